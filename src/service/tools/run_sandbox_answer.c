/* Standard output is read from the start to the end, in as many calls as a client wants: an answer
 * names the offset at which the next one continues. Both streams share the space of an answer. */
#include "service/tools/run_sandbox_answer.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/outcome.h"
#include "service/stored_output.h"

#define OUTPUT_BYTES_MAX 500000u
#define OUTPUT_LINES_MAX 5000u

enum {
    STATE_PENDING,
    STATE_RUNNING,
    STATE_COMPLETED = RUN_SANDBOX_COMPLETED,
    STATE_FAILED,
    STATE_CANCELLED,
    STATE_TIMEOUT
};

const char *const run_sandbox_states[RUN_SANDBOX_STATES + 1] = { "pending",   "running", "completed", "failed",
                                                                 "cancelled", "timeout", NULL };

/* clang-format off */
const char run_sandbox_output_schema[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "executionId": {"type": "string"},
        "sandboxId": {"type": "string"},
        "state": {"enum": ["pending", "running", "completed", "failed", "cancelled", "timeout"]},
        "outcome": {"type": "string", "description": "The outcome of the execution, once it has ended."},
        "exitCode": {"type": ["integer", "null"]},
        "signal": {"type": "integer"},
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "outputOffset": {"type": "integer", "description": "Offset of stdout in the standard output."},
        "nextOutputOffset": {"type": "integer", "description": "The output_offset that continues."},
        "stderrOffset": {"type": "integer", "description": "Offset of stderr in the standard error."},
        "stdoutBytes": {"type": "integer", "description": "Size of the kept standard output so far."},
        "stderrBytes": {"type": "integer"},
        "truncated": {"type": "boolean", "description": "Output is missing here."},
        "truncation": {
            "type": "object",
            "properties": {
                "maxLines": {"type": "integer"},
                "maxBytes": {"type": "integer"},
                "missingBytes": {"type": "integer", "description": "Of both streams, before and after the parts that are shown."},
                "droppedBytes": {"type": "integer", "description": "Output that the server did not keep."}
            }
        },
        "createdAt": {"type": "string"},
        "startedAt": {"type": "string"},
        "endedAt": {"type": "string"},
        "hint": {"type": "string"},
        "script": {
            "type": "object",
            "description": "Whether the code is kept, to run it again with cached.",
            "properties": {"id": {"type": "string"}, "kept": {"type": "boolean"}, "reason": {"type": "string"}},
            "required": ["kept"]
        },
        "executions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "executionId": {"type": "string"},
                    "state": {"type": "string"},
                    "outcome": {"type": "string"},
                    "exitCode": {"type": ["integer", "null"]},
                    "createdAt": {"type": "string"},
                    "endedAt": {"type": "string"}
                },
                "required": ["executionId", "state", "createdAt"]
            }
        },
        "hasMore": {"type": "boolean"}
    },
    "anyOf": [{"required": ["executionId", "sandboxId", "state"]}, {"required": ["executions", "hasMore"]}]
});
/* clang-format on */

unsigned run_sandbox_state(const struct store_execution *row)
{
    const char *outcome = row->outcome ? row->outcome : "";

    if (row->state == STORE_EXECUTION_STARTING)
        return STATE_PENDING;
    if (row->state == STORE_EXECUTION_RUNNING)
        return STATE_RUNNING;
    if (str_eq(outcome, outcome_name(OUTCOME_SUCCESS)))
        return STATE_COMPLETED;
    if (str_eq(outcome, outcome_name(OUTCOME_TIMEOUT)))
        return STATE_TIMEOUT;
    return str_eq(outcome, outcome_name(OUTCOME_KILLED)) ? STATE_CANCELLED : STATE_FAILED;
}

/* --- output --- */

struct run_sandbox_stream {
    uint64_t total, from, next; /* bytes kept so far; the part that is shown */
    struct buf text;            /* valid UTF-8 */
};

/* The length of the part of data that has at most OUTPUT_LINES_MAX lines. */
static size_t run_sandbox_bound_lines(const char *data, size_t len)
{
    const char *end = data;

    for (unsigned lines = 0; lines < OUTPUT_LINES_MAX; lines++) {
        const char *newline = memchr(end, '\n', (size_t)(data + len - end));

        if (!newline)
            return len;
        end = newline + 1;
    }
    return (size_t)(end - data);
}

static int run_sandbox_open(struct manager *m, const char *execution, int channel, uint64_t *ret_total)
{
    int fd = -1;

    return stored_output_open(m, execution, channel, &fd, ret_total, NULL) > 0 ? fd : -1;
}

static void run_sandbox_read(struct run_sandbox_stream *s, int fd, uint64_t space)
{
    size_t want = (size_t)min_u64(s->total - s->from, space);
    auto_free char *data = mem_alloc(want + 1);
    ssize_t n = fd < 0 || want == 0 ? 0 : fd_pread_full(fd, data, want, s->from);

    if (n <= 0)
        return;
    size_t len = run_sandbox_bound_lines(data, (size_t)n);
    if (s->from + len < s->total)
        len = tool_text_whole_length(data, len) ? tool_text_whole_length(data, len) : len;
    tool_text_add(&s->text, data, len);
    s->next = s->from + len;
}

static void run_sandbox_read_streams(const struct tool_call *c, const struct store_execution *row,
                                     const struct run_sandbox_window *window, struct run_sandbox_stream ret[2])
{
    struct manager *m = c->tools->settings.manager;
    uint64_t space = min_u64(c->tools->settings.output_bytes, OUTPUT_BYTES_MAX), share[2];
    auto_fd int out = run_sandbox_open(m, row->id, 1, &ret[0].total);
    auto_fd int errors = run_sandbox_open(m, row->id, 2, &ret[1].total);

    ret[0].from = ret[0].next = min_u64(window->stdout_offset, ret[0].total);
    ret[1].from = min_u64(window->has_stderr_offset ? window->stderr_offset : 0, ret[1].total);
    tool_text_share((uint64_t[]){ ret[0].total - ret[0].from, ret[1].total - ret[1].from }, share, 2, space);
    if (!window->has_stderr_offset && ret[1].total > share[1])
        ret[1].from = ret[1].total - share[1];
    ret[1].next = ret[1].from;
    run_sandbox_read(&ret[0], out, share[0]);
    run_sandbox_read(&ret[1], errors, share[1]);
}

/* --- one execution --- */

static void run_sandbox_write_time(struct jsonw *w, const char *key, uint64_t ms)
{
    char text[32];

    if (ms)
        jsonw_kstr(w, key, clock_rfc3339_ms(ms, text));
}

static void run_sandbox_write_state(const struct store_execution *row, struct jsonw *w)
{
    jsonw_kstr(w, "executionId", row->id);
    jsonw_kstr(w, "state", run_sandbox_states[run_sandbox_state(row)]);
    jsonw_kstr_if(w, "outcome", row->outcome);
    if (row->has_exit_code)
        jsonw_ki64(w, "exitCode", row->exit_code);
    run_sandbox_write_time(w, "createdAt", row->created_ms);
    run_sandbox_write_time(w, "endedAt", row->ended_ms);
}

static void run_sandbox_write_script(const struct script_run_state *script, struct jsonw *w)
{
    jsonw_kobject(w, "script");
    jsonw_kbool(w, "kept", script->script[0] != '\0');
    jsonw_kstr_if(w, "id", script->script);
    jsonw_kstr_if(w, "reason", script->reason);
    jsonw_end_object(w);
}

static void run_sandbox_write_json(struct tool_call *c, const struct store_execution *row,
                                   const struct run_sandbox_stream s[2], const struct script_run_state *script)
{
    uint64_t dropped = row->dropped[0] + row->dropped[1];
    uint64_t missing = s[0].total - (s[0].next - s[0].from) + s[1].total - (s[1].next - s[1].from);
    struct jsonw w;

    c->answer.is_truncated = s[0].next < s[0].total || s[1].from > 0 || s[1].next < s[1].total || dropped;
    jsonw_init(&w, &c->answer.json, 0);
    jsonw_object(&w);
    run_sandbox_write_state(row, &w);
    jsonw_kstr(&w, "sandboxId", row->sandbox);
    run_sandbox_write_time(&w, "startedAt", row->started_ms);
    if (row->signal)
        jsonw_ki64(&w, "signal", row->signal);
    jsonw_kstr(&w, "stdout", s[0].text.data ? s[0].text.data : "");
    jsonw_kstr(&w, "stderr", s[1].text.data ? s[1].text.data : "");
    jsonw_ku64(&w, "outputOffset", s[0].from);
    jsonw_ku64(&w, "nextOutputOffset", s[0].next);
    jsonw_ku64(&w, "stderrOffset", s[1].from);
    jsonw_ku64(&w, "stdoutBytes", s[0].total);
    jsonw_ku64(&w, "stderrBytes", s[1].total);
    jsonw_kbool(&w, "truncated", c->answer.is_truncated);
    if (c->answer.is_truncated) {
        jsonw_kobject(&w, "truncation");
        jsonw_ku64(&w, "maxLines", OUTPUT_LINES_MAX);
        jsonw_ku64(&w, "maxBytes", min_u64(c->tools->settings.output_bytes, OUTPUT_BYTES_MAX));
        jsonw_ku64(&w, "missingBytes", missing);
        jsonw_ku64(&w, "droppedBytes", dropped);
        jsonw_end_object(&w);
    }
    jsonw_kstr_if(&w, "hint", row->hint);
    if (script)
        run_sandbox_write_script(script, &w);
    jsonw_end_object(&w);
}

static void run_sandbox_write_text(struct tool_call *c, const struct store_execution *row,
                                   const struct run_sandbox_stream s[2], const struct script_run_state *script)
{
    struct buf *out = &c->answer.text;

    buf_addf(out, "Execution %s: %s", row->id, run_sandbox_states[run_sandbox_state(row)]);
    if (row->has_exit_code)
        buf_addf(out, ", exit code %d", row->exit_code);
    buf_adds(out, ".");
    tool_text_add_part(out, "stdout", s[0].text.data ? s[0].text.data : "", s[0].text.len);
    tool_text_add_part(out, "stderr", s[1].text.data ? s[1].text.data : "", s[1].text.len);
    if (s[0].next < s[0].total)
        buf_addf(out, "\n\n[stdout continues: mode status, output_offset %" PRIu64 " of %" PRIu64 " bytes]", s[0].next,
                 s[0].total);
    if (s[1].from > 0)
        buf_addf(out, "\n\n[stderr: the first %" PRIu64 " bytes are left out]", s[1].from);
    if (row->hint)
        buf_addf(out, "\n\nHint: %s", row->hint);
    if (script && script->script[0])
        buf_addf(out, "\n\nThe code is kept as script %s; \"cached\": \"%s\" runs it again.", script->script,
                 script->script);
    else if (script)
        buf_addf(out, "\n\nThe code is not kept as a script: %s.", script->reason);
}

void run_sandbox_answer(struct tool_call *c, const struct store_execution *row, const struct run_sandbox_window *window,
                        const struct script_run_state *script)
{
    struct run_sandbox_stream streams[2] = { 0 };

    (void)str_copy(c->answer.execution, sizeof(c->answer.execution), row->id);
    run_sandbox_read_streams(c, row, window, streams);
    run_sandbox_write_json(c, row, streams, script);
    run_sandbox_write_text(c, row, streams, script);
    buf_done(&streams[0].text);
    buf_done(&streams[1].text);
    tool_call_finish(c);
}

/* --- a list --- */

void run_sandbox_answer_list(struct tool_call *c, const struct store_execution *rows, size_t n, unsigned states,
                             uint64_t limit, bool has_more_rows)
{
    uint64_t shown = 0;
    size_t i = 0;
    struct jsonw w;

    jsonw_init(&w, &c->answer.json, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "executions");
    for (; i < n && shown < limit; i++) {
        unsigned state = run_sandbox_state(&rows[i]);

        if (!(states & (1u << state)))
            continue;
        shown++;
        jsonw_object(&w);
        run_sandbox_write_state(&rows[i], &w);
        jsonw_end_object(&w);
        buf_addf(&c->answer.text, "%s %s\n", rows[i].id, run_sandbox_states[state]);
    }
    jsonw_end_array(&w);
    jsonw_kbool(&w, "hasMore", i < n || has_more_rows);
    jsonw_end_object(&w);
    if (shown == 0)
        buf_adds(&c->answer.text, "There are no such executions.");
    tool_call_finish(c);
}
