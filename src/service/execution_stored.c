/* The request of an execution, as stored in its row, and the execution that a new server makes of
 * the row. */
#include "service/execution_internal.h"

#include "core/base/buf.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/json_input.h"

#include <errno.h>
#include <string.h>

#define INPUT_STORED_MAX (512 * KIB) /* kept for a resume after a restart; a longer input ends there */

char *execution_request_json(const struct execution *ex)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    if (ex->exec) {
        jsonw_ku64(&w, "stream", exec_handle_stream_id(ex->exec));
        jsonw_ku64(&w, "cpuBaseNs", exec_handle_cpu_base(ex->exec));
    }
    if (ex->request_id[0])
        jsonw_kstr(&w, "requestId", ex->request_id);
    jsonw_ku64(&w, "timeoutMs", ex->spec.wall_ms);
    jsonw_ku64(&w, "cpuTimeMs", ex->spec.cpu_ms);
    jsonw_ku64(&w, "outputBytes", ex->spec.output_max);
    jsonw_ku64(&w, "pausedMs", ex->sandbox_paused_ms);
    jsonw_ku64(&w, "createdMonoMs", ex->created_mono_ms);
    jsonw_kbool(&w, "changes", ex->spec.changes);
    if (ex->input && !ex->context_id[0] && ex->input_len <= INPUT_STORED_MAX)
        jsonw_kstr(&w, "stdin", ex->input);
    if (ex->input_open)
        jsonw_kbool(&w, "stdinOpen", true);
    if (ex->spec.tty) {
        jsonw_ku64(&w, "rows", ex->spec.rows);
        jsonw_ku64(&w, "cols", ex->spec.cols);
        jsonw_ku64(&w, "ring", ex->output.ring_bytes);
    }
    jsonw_end_object(&w);
    return out.data;
}

static int execution_read_request_json(struct execution *ex, const char *text, struct err *err)
{
    auto_json *root = NULL;
    const char *input = NULL, *request = NULL;
    uint64_t stream = 0, rows = 0, cols = 0;

    if (!text)
        return err_set(err, ERR_STORE_CORRUPT, "the row has no request");
    if (json_input_parse(text, strlen(text), &root, err) < 0 ||
        json_input_u64(root, "", "stream", 1, UINT32_MAX, &stream, NULL, err) < 0 ||
        json_input_u64(root, "", "timeoutMs", 0, UINT64_MAX, &ex->spec.wall_ms, NULL, err) < 0 ||
        json_input_u64(root, "", "cpuTimeMs", 0, UINT64_MAX, &ex->spec.cpu_ms, NULL, err) < 0 ||
        json_input_u64(root, "", "outputBytes", 0, UINT64_MAX, &ex->spec.output_max, NULL, err) < 0 ||
        json_input_u64(root, "", "pausedMs", 0, UINT64_MAX, &ex->sandbox_paused_ms, NULL, err) < 0 ||
        json_input_u64(root, "", "createdMonoMs", 0, UINT64_MAX, &ex->created_mono_ms, NULL, err) < 0 ||
        json_input_u64(root, "", "cpuBaseNs", 0, UINT64_MAX, &ex->cpu_base_ns, NULL, err) < 0 ||
        json_input_bool(root, "", "changes", &ex->spec.changes, err) < 0 ||
        json_input_bool(root, "", "stdinOpen", &ex->input_open, err) < 0 ||
        json_input_u64(root, "", "rows", 0, UINT16_MAX, &rows, NULL, err) < 0 ||
        json_input_u64(root, "", "cols", 0, UINT16_MAX, &cols, NULL, err) < 0 ||
        json_input_u64(root, "", "ring", 0, UINT64_MAX, &ex->output.ring_bytes, NULL, err) < 0 ||
        json_input_text(root, "", "requestId", 1, RECEIPT_REQUEST_MAX, &request, err) < 0 ||
        json_input_text(root, "", "stdin", 0, JSON_INPUT_SIZE_MAX, &input, err) < 0)
        return -1;
    (void)str_copy(ex->request_id, sizeof(ex->request_id), request ? request : "");
    ex->resume_stream = (uint32_t)stream;
    ex->spec.rows = (uint16_t)rows;
    ex->spec.cols = (uint16_t)cols;
    if (input) {
        ex->input = str_dup(input);
        ex->input_len = strlen(input);
    }
    return 0;
}

void sandbox_load_execution(struct sandbox *sb, const struct store_execution *row)
{
    struct execution *ex = execution_alloc(row->id);
    struct err err = { 0 };

    ex->row = EXECUTION_ROW_COMMITTED;
    execution_link(ex, sb);
    ex->created_ms = row->created_ms;
    ex->started_ms = row->started_ms;
    ex->background = row->background;
    ex->spec.tty = row->tty;
    memcpy(ex->context_id, row->context, sizeof(ex->context_id));
    (void)str_copy(ex->created_by, sizeof(ex->created_by), row->created_by ? row->created_by : "");
    if (execution_read_request_json(ex, row->request_json, &err) < 0)
        log_error("execution %s: cannot read its row: %s", ex->id, err.msg);
    if (output_open_existing(ex) < 0) /* tried again when it is resumed */
        log_warn("output of %s: %s", ex->id, strerror(errno));
}

/* --- resume after a restart --- */

static uint64_t execution_elapsed_ms(const struct execution *ex)
{
    const struct sandbox *sb = ex->sandbox;
    uint64_t now = sb->paused_at_ms ? sb->paused_at_ms : sandbox_mono_ms(sb);
    uint64_t from = ex->created_mono_ms ? ex->created_mono_ms : now;
    uint64_t paused = sb->paused_total_ms > ex->sandbox_paused_ms ? sb->paused_total_ms - ex->sandbox_paused_ms : 0;

    return now > from + paused ? now - from - paused : 0;
}

static int execution_resume(struct execution *ex, struct err *err)
{
    struct exec_resume resume = { .stream_id = ex->resume_stream, .elapsed_ms = execution_elapsed_ms(ex) };

    if (output_open_existing(ex) < 0)
        return err_sys(err, ERR_SYS, "output of %s", ex->id);
    resume.stored_bytes[0] = ex->output.stream.kept[0];
    resume.stored_bytes[1] = ex->output.stream.kept[1];
    resume.started_real_ns = ex->started_ms * NS_PER_MS;
    resume.cpu_base_ns = ex->cpu_base_ns;
    ex->spec.id = ex->id;
    ex->spec.stdin_open = ex->input_open || ex->input;
    ex->spec.confirm_end = true;
    execution_set_state(ex->id, &ex->state, EXECUTION_STARTING);
    return sandbox_handle_exec_resume(ex->sandbox->handle, &ex->spec, &resume, &execution_engine_ops, ex, &ex->exec,
                                      err);
}

void sandbox_resume_executions(struct sandbox *sb)
{
    for (struct execution *ex = sb->executions, *next; ex; ex = next) {
        struct err err = { 0 };

        next = ex->next;
        if (ex->context_id[0])
            continue;
        if (execution_resume(ex, &err) < 0)
            execution_end(ex, STORE_EXECUTION_FAILED, NULL, &err);
    }
}
