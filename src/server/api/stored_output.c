/* Events of a context are one JSON object per line, made by the server from the messages of the
 * language kernel (service/kernel_event.h). Each object begins with its type. */
#include "server/api/stored_output.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/api/api_internal.h"
#include "service/context.h"

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

/* Writes "results": [...] and, if present, "exception": {...}. True: some results did not fit. */
static bool stored_output_embed_results(struct manager *m, const char *execution, struct jsonw *w)
{
    auto_fd int fd = manager_open_output(m, execution, CONTEXT_EVENTS);
    auto_buf exception = { 0 };
    uint64_t offset = 0;

    jsonw_karray(w, "results");
    while (fd >= 0 && offset <= RESULTS_MAX) {
        auto_buf line = { 0 };
        char type[16];

        if (!stored_output_read_event(fd, offset, &line, type))
            break;
        offset += line.len + 1;
        if (offset > RESULTS_MAX)
            break;
        if (str_eq(type, "exception")) {
            buf_clear(&exception);
            buf_add(&exception, line.data, line.len);
        } else if (str_eq(type, "display") || str_eq(type, "result")) {
            jsonw_raw(w, line.data);
        }
    }
    jsonw_end_array(w);
    if (exception.len)
        api_write_raw_json(w, "exception", exception.data);
    return offset > RESULTS_MAX;
}

/* --- an execution with its output --- */

/* True: some output did not fit. */
static bool stored_output_embed(struct manager *m, const struct store_execution *row, int channel, const char *name,
                                struct jsonw *w)
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

    jsonw_key(w, name);
    jsonw_strn(w, data, done > 0 ? (size_t)done : 0);
    return failed || from > 0 || done < 0 || size > (size_t)done;
}

void stored_output_write_execution(struct manager *m, const struct store_execution *row, bool output, struct buf *out)
{
    struct jsonw w;

    jsonw_init(&w, out, 0);
    api_write_execution(row, &w);
    if (output) {
        bool more = stored_output_embed(m, row, 1, "stdout", &w);

        more = stored_output_embed(m, row, 2, "stderr", &w) || more;
        more = (row->context[0] && stored_output_embed_results(m, row->id, &w)) || more;
        jsonw_kbool(&w, "truncated", more);
    }
    jsonw_end_object(&w);
}
