/* Events of a context are one JSON object per line, made by the server from the messages of the
 * language kernel (service/kernel_event.h). Each object begins with its type. */
#include "service/stored_output.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/context.h"
#include "service/result.h"

#include <errno.h>
#include <sys/stat.h>

#define STEP (64 * KIB)
#define EMBEDDED_MAX (1 * MIB)
#define RESULTS_MAX (16 * MIB)

int stored_output_open(struct manager *m, const char *execution, int channel, int *ret, uint64_t *ret_size,
                       struct err *err)
{
    int fd = manager_open_output(m, execution, channel);
    struct stat st;

    *ret_size = fd >= 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    if (fd >= 0) {
        *ret = fd;
        return 1;
    }
    if (errno == ENOENT)
        return 0;
    if (errno == EMFILE || errno == ENFILE)
        return err_set(err, ERR_DESCRIPTORS,
                       "cannot open the output of %s: the server has too many open files; try again later", execution);
    return err_sys(err, ERR_SYS, "opening the output of %s", execution);
}

/* --- events of a context --- */

static bool stored_output_read_type(const struct buf *line, char ret[16])
{
    static const char start[] = "{\"type\":\"";
    const char *p = line->data;

    if (line->len < sizeof(start) || !str_eat(&p, start))
        return false;
    size_t n = strcspn(p, "\"");
    if (n == 0 || n > 15)
        return false;
    memcpy(ret, p, n);
    ret[n] = '\0';
    return true;
}

bool stored_output_read_event(int fd, uint64_t offset, struct buf *ret, char ret_type[16])
{
    char data[STEP] __attribute__((uninitialized));

    for (;;) {
        ssize_t n = pread(fd, data, sizeof(data), (off_t)(offset + ret->len));
        const char *end = n > 0 ? memchr(data, '\n', (size_t)n) : NULL;

        if (n <= 0)
            return false;
        buf_add(ret, data, end ? (size_t)(end - data) : (size_t)n);
        if (end)
            return stored_output_read_type(ret, ret_type);
    }
}

bool stored_output_read_results(struct manager *m, const struct store_execution *row, bool keep,
                                struct result_output *ret)
{
    auto_fd int fd = row->context[0] ? manager_open_output(m, row->id, CONTEXT_EVENTS) : -1;
    uint64_t offset = 0;

    while (fd >= 0 && offset <= RESULTS_MAX) {
        auto_buf line = { 0 };
        char type[16];

        if (!stored_output_read_event(fd, offset, &line, type))
            break;
        offset += line.len + 1;
        if (offset <= RESULTS_MAX)
            result_output_add_event(ret, type, line.data, line.len, keep);
    }
    return offset <= RESULTS_MAX;
}

/* --- an execution with its output --- */

/* False: some output did not fit. */
static bool stored_output_read_text(struct manager *m, const struct store_execution *row, int channel, struct buf *ret)
{
    uint64_t size = 0;
    bool silent = row->ended_ms && row->out_bytes[channel - 1] == row->dropped[channel - 1];
    auto_fd int fd = -1;
    struct err err = { 0 };
    bool failed = !silent && stored_output_open(m, row->id, channel, &fd, &size, &err) < 0;
    uint64_t from = fd >= 0 ? output_first_kept_offset(fd, 0) : 0;
    size_t n = (size_t)min_u64(size - from, EMBEDDED_MAX);
    auto_free char *data = mem_alloc(n + 1);
    ssize_t done = n > 0 ? fd_pread_full(fd, data, n, from) : 0;

    if (done > 0)
        buf_add(ret, data, (size_t)done);
    return !failed && from == 0 && done >= 0 && size <= (size_t)done;
}

static bool stored_output_read_all(struct manager *m, const struct store_execution *row, enum execution_output detail,
                                   struct result_output *ret)
{
    bool embedded = detail == EXECUTION_OUTPUT_EMBEDDED;
    bool whole = stored_output_read_results(m, row, embedded, ret);

    for (int i = 0; embedded && i < 2; i++)
        whole = stored_output_read_text(m, row, i + 1, &ret->text[i]) && whole;
    return whole || !embedded;
}

const char *execution_state_name(const struct store_execution *row)
{
    return row->ended_ms ? "ended" : row->state == STORE_EXECUTION_RUNNING ? "running" : "starting";
}

static void execution_write_place(const struct store_execution *row, struct jsonw *w)
{
    char created[32];

    jsonw_kstr(w, "sandboxId", row->sandbox);
    jsonw_kstr_if(w, "contextId", row->context);
    jsonw_kstr(w, "state", execution_state_name(row));
    jsonw_kbool(w, "background", row->background);
    if (row->tty)
        jsonw_kbool(w, "tty", true);
    jsonw_kstr_if(w, "createdBy", row->created_by);
    if (row->created_ms)
        jsonw_kstr(w, "createdAt", clock_rfc3339_ms(row->created_ms, created));
    jsonw_ku64(w, "stdoutBytes", row->out_bytes[0] - row->dropped[0]);
    jsonw_ku64(w, "stderrBytes", row->out_bytes[1] - row->dropped[1]);
}

void stored_output_write_result(const struct store_execution *row, const struct result_output *output, bool truncated,
                                struct execution_view view, struct jsonw *w)
{
    struct result r = { .id = row->id,
                        .has_ended = row->ended_ms != 0,
                        .ended_by = row->ended_by,
                        .exit_code = row->has_exit_code ? row->exit_code : -1,
                        .signal = row->signal,
                        .output = output,
                        .was_streamed = view.output == EXECUTION_OUTPUT_STREAMED,
                        .truncated = truncated,
                        .dropped_bytes = row->dropped[0] + row->dropped[1] + row->dropped[2],
                        .started_ms = row->started_ms,
                        .ended_ms = row->ended_ms,
                        .hint = row->hint,
                        .error_json = row->error_json };

    jsonw_object(w);
    result_write(&r, w);
    execution_write_place(row, w);
    if (row->context_reset)
        jsonw_kbool(w, "contextReset", true);
    result_write_stored_receipt(row->receipt_json, view.receipt, w);
    jsonw_end_object(w);
}

void stored_output_write_execution(struct manager *m, const struct store_execution *row, struct execution_view view,
                                   struct jsonw *w)
{
    struct result_output output = { 0 };
    bool has_output = view.output != EXECUTION_OUTPUT_NONE, whole = true;

    if (has_output)
        whole = stored_output_read_all(m, row, view.output, &output);
    stored_output_write_result(row, has_output ? &output : NULL,
                               !whole || row->dropped[0] + row->dropped[1] + row->dropped[2] > 0, view, w);
    result_output_done(&output);
}
