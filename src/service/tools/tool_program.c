/* The start of an execution cannot be cancelled, so a program whose call is cancelled meanwhile
 * stays until the manager answers, kills the execution and is freed then. */
#include "service/tools/tool_program.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/context.h"
#include "service/stored_output.h"
#include "service/tools/tool_result.h"

#include <unistd.h>

#define STREAMED_MAX (1 * MIB)
#define STREAM_STEP (64 * KIB)

struct tool_program {
    struct tool_call *call; /* NULL: cancelled */
    struct manager *manager;
    char owner[STORE_OWNER_MAX + 1];
    bool background;
    bool is_starting; /* manager_execute has not answered yet */
    tool_program_ended_fn *on_ended;
    struct execution_watch *watch;
    char id[ID_SIZE];
    int fd[2]; /* of stdout and stderr; -1: not open */
    uint64_t streamed[2];
};

/* clang-format off */
const char tool_program_output_schema[] = TOOL_JSON({
    "type": "object",
    "description": "The result of the execution.",
    "properties": {
        "id": {"type": "string", "description": "The execution."},
        "sandboxId": {"type": "string"},
        "state": {"enum": ["starting", "running", "ended"]},
        "outcome": {"enum": ["success", "error", "timeout", "out_of_memory", "killed", "lost"]},
        "exitCode": {"type": ["integer", "null"]},
        "signal": {"type": ["integer", "null"]},
        "endedBy": {"type": "string"},
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "stdoutBytes": {"type": "integer", "description": "Kept bytes, of which stdout may be a part."},
        "stderrBytes": {"type": "integer"},
        "truncated": {"type": "boolean", "description": "Some output is missing here."},
        "value": {"type": ["string", "null"], "description": "The value of the last expression."},
        "results": {"type": "array", "items": {"type": "object", "properties": {
            "type": {"type": "string"},
            "data": {"type": "object"},
            "images": {"type": "array", "items": {"type": "integer"}, "description": "Indexes in the images of the answer."}}}},
        "exception": {"type": "object", "properties": {
            "name": {"type": "string"}, "value": {"type": "string"}, "traceback": {"type": "string"}}},
        "hint": {"type": "string", "description": "Advice for the next step."},
        "contextReset": {"type": "boolean", "description": "The interpreter was restarted: its variables are lost."},
        "error": {"type": "object"},
        "receipt": {"type": "object"}
    },
    "required": ["id", "sandboxId", "state"]
});
/* clang-format on */

static void tool_program_free(struct tool_program *p)
{
    execution_watch_free(p->watch);
    fd_close(&p->fd[0]);
    fd_close(&p->fd[1]);
    free(p);
}

static void tool_program_stop(void *work)
{
    struct tool_program *p = work;

    p->call = NULL;
    if (p->is_starting)
        return;
    if (p->watch && !p->background)
        execution_watch_kill(p->watch);
    tool_program_free(p);
}

/* --- output while it runs --- */

static void tool_program_stream(struct tool_program *p, int channel)
{
    auto_free char *data = NULL;
    int *fd = &p->fd[channel - 1];
    uint64_t *at = &p->streamed[channel - 1];
    ssize_t n = 1;

    if (*at >= STREAMED_MAX || (*fd < 0 && (*fd = manager_open_output(p->manager, p->id, channel)) < 0))
        return;
    data = mem_alloc(STREAM_STEP);
    while (n > 0 && *at < STREAMED_MAX) {
        n = pread(*fd, data, (size_t)min_u64(STREAM_STEP, STREAMED_MAX - *at), (off_t)*at);
        if (n > 0) {
            *at += (uint64_t)n;
            p->call->ops.on_output(p->call->arg, channel, data, (size_t)n);
        }
    }
}

static void tool_program_on_change(void *arg, const struct store_execution *ended)
{
    struct tool_program *p = arg;

    if (p->call->ops.on_output) {
        tool_program_stream(p, 1);
        tool_program_stream(p, 2);
    }
    if (ended)
        p->on_ended(p->call, ended);
}

/* --- the end --- */

struct stored_program_output {
    struct manager *manager;
    const char *id;
};

static void tool_program_read_output(const void *arg, int channel, uint64_t offset, size_t len, struct buf *out)
{
    const struct stored_program_output *o = arg;
    auto_fd int fd = manager_open_output(o->manager, o->id, channel);
    ssize_t n = fd < 0 ? 0 : fd_pread_full(fd, buf_room(out, len), len, offset);

    if (n > 0)
        out->len += (size_t)n;
    if (out->data)
        out->data[out->len] = '\0';
}

void tool_program_make_answer(struct tool_call *c, const struct store_execution *row)
{
    struct manager *m = c->tools->settings.manager;
    struct stored_program_output output = { m, row->id };
    struct tool_streams streams = { .bytes = { row->out_bytes[0] - row->dropped[0],
                                               row->out_bytes[1] - row->dropped[1] },
                                    .read = tool_program_read_output,
                                    .arg = &output };
    struct execution_view view = { .output = EXECUTION_OUTPUT_EMBEDDED };
    auto_free char *note = str_printf(
        "run_sandbox with mode status, execution_id %s and output_offset returns any part of it.", row->id);
    struct result_output kept = { 0 };
    auto_buf text = { 0 };
    struct jsonw w;

    c->answer.is_truncated = !stored_output_read_results(m, row, true, &kept) ||
                             row->dropped[0] + row->dropped[1] + row->dropped[2] > 0;
    jsonw_init(&w, &text, 0);
    stored_output_write_result(row, &kept, c->answer.is_truncated, view, &w);
    result_output_done(&kept);
    (void)str_copy(c->answer.execution, sizeof(c->answer.execution), row->id);
    tool_result_make(&c->answer, tool_text_load_json(&text), &streams, c->tools->settings.output_bytes, note);
}

void tool_program_answer(struct tool_call *c, const struct store_execution *row)
{
    tool_program_make_answer(c, row);
    tool_call_finish(c);
}

static void tool_program_answer_background(struct tool_call *c, const struct store_execution *row)
{
    struct jsonw w;

    (void)str_copy(c->answer.execution, sizeof(c->answer.execution), row->id);
    jsonw_init(&w, &c->answer.json, 0);
    stored_output_write_result(row, NULL, false, (struct execution_view){ 0 }, &w);
    buf_addf(
        &c->answer.text,
        "Execution %s runs in the background. run_sandbox with mode status returns its output, with mode cancel it "
        "ends it.",
        row->id);
    tool_call_finish(c);
}

/* --- the start --- */

static void tool_program_on_accepted(void *arg, const struct err *err, const struct store_execution *row)
{
    struct tool_program *p = arg;

    p->is_starting = false;
    if (!err && !row->ended_ms)
        p->watch = manager_watch_execution(p->manager, p->owner, row->sandbox, row->id, tool_program_on_change, p);
    if (!p->call) {
        if (p->watch)
            execution_watch_kill(p->watch);
        tool_program_free(p);
    } else if (err) {
        tool_call_fail(p->call, err);
    } else {
        (void)str_copy(p->id, sizeof(p->id), row->id);
        if (p->background)
            tool_program_answer_background(p->call, row);
        else if (!p->watch)
            p->on_ended(p->call, row);
    }
}

static void tool_program_start_in_context(struct tool_program *p, const struct execution_spec *spec,
                                          const char *context)
{
    const struct tool_request *r = &p->call->request;
    struct context_execution_spec call = { .code = spec->code,
                                           .timeout_ms = spec->timeout_ms,
                                           .input = "",
                                           .created_by = spec->created_by,
                                           .request_id = spec->request_id };

    manager_context_execute(p->manager, r->owner, r->sandbox, context, NULL, &call, tool_program_on_accepted, p);
}

void tool_program_start(struct tool_call *c, struct execution_spec *spec, const char *context,
                        tool_program_ended_fn *on_ended)
{
    struct tool_program *p = mem_new(struct tool_program);

    p->call = c;
    p->manager = c->tools->settings.manager;
    p->background = spec->background;
    p->is_starting = true;
    p->on_ended = on_ended;
    p->fd[0] = p->fd[1] = -1;
    (void)str_copy(p->owner, sizeof(p->owner), c->request.owner);
    c->work = p;
    c->stop = tool_program_stop;
    spec->created_by = c->request.created_by;
    spec->request_id = c->request.request_id;
    if (context)
        tool_program_start_in_context(p, spec, context);
    else
        manager_execute(p->manager, c->request.owner, c->request.sandbox, NULL, spec, tool_program_on_accepted, p);
}
