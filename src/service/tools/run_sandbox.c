/* run_sandbox: code in a process of its own, which can be left running, asked for, cancelled and
 * listed. Code that succeeds is kept as a script.
 *
 * Each mode is a way to one execution: execute and async start it, status and cancel name it. Then
 * all of them read its row, wait for its end if they should, and answer with the row. An execution
 * that has ended is read again until it is known whether its code was kept: the store answers in
 * order, so the second row comes after the script. */
#include "service/tools/run_sandbox_answer.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/languages.h"

#include <assert.h>
#include <unistd.h>

#define WAIT_MAX_MS 60000u
#define CANCEL_WAIT_MS 10000u
#define LIST_DEFAULT 20u
#define LIST_MAX 100u
#define LIST_ROWS 200u /* that a filter by state looks at */
#define READS_MAX 8u   /* of an ended row, while its code is being kept */
#define STREAMED_MAX (1 * MIB)
#define STREAM_STEP (64 * KIB)

/* clang-format off */
static const char run_sandbox_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "mode": {"enum": ["execute", "stream", "async", "status", "cancel", "list"], "description": "execute (default): run code and wait for its end; stream: the same, with progress messages; async: start it and return at once; status, cancel: of execution_id; list: executions of the sandbox."},
        "code": {"type": "string", "minLength": 1, "description": "execute, stream, async: the code. Each run is a process of its own: variables do not stay."},
        "cached": {"type": "string", "description": "Instead of code: the id (sc...) or the digest of a script that search_tools found."},
        "language": {"type": "string", "description": "Language of the code: python, node, bash, sh, ... Default: the language of the sandbox."},
        "timeout_ms": {"type": "integer", "minimum": 1, "description": "The code is killed after this time."},
        "execution_id": {"type": "string", "description": "status, cancel: the execution (ex...)."},
        "wait_ms": {"type": "integer", "minimum": 0, "maximum": 60000, "description": "status: wait up to this time for the end. Default: 0."},
        "output_offset": {"type": "integer", "minimum": 0, "description": "status: first byte of standard output to return. Default: 0."},
        "stderr_offset": {"type": "integer", "minimum": 0, "description": "status: first byte of standard error to return. Default: its last part."},
        "states": {"type": "array", "maxItems": 6, "items": {"enum": ["pending", "running", "completed", "failed", "cancelled", "timeout"]}, "description": "list: only executions in these states."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "list: at most this number of executions, the newest first. Default: 20."}
    },
    "additionalProperties": false
});
/* clang-format on */

enum run_sandbox_mode { MODE_EXECUTE, MODE_STREAM, MODE_ASYNC, MODE_STATUS, MODE_CANCEL, MODE_LIST };
static const char *const run_sandbox_modes[] = { "execute", "stream", "async", "status", "cancel", "list", NULL };

struct run_sandbox {
    struct tool_call *call; /* NULL: cancelled, and the work waits for an answer before it is freed */
    struct tools *tools;
    enum run_sandbox_mode mode;
    unsigned pending; /* answers of store and manager to come */
    char owner[STORE_OWNER_MAX + 1], sandbox[ID_SIZE], execution[ID_SIZE];

    /* execute, async */
    bool is_for_one_sandbox;
    const char *cached; /* borrowed from the arguments; NULL: none */
    char *code;         /* the caller's, or that of the script */
    const struct language *language;
    uint64_t timeout_ms;

    /* the answer */
    struct run_sandbox_window window;
    uint64_t wait_ms; /* UINT64_MAX: to the end */
    unsigned states;
    uint64_t limit;
    unsigned reads;
    struct execution_watch *watch;
    struct ev_timer timer;
    uint64_t streamed[2];
};

static void run_sandbox_free(struct run_sandbox *x)
{
    ev_timer_clear(x->tools->settings.ev, &x->timer);
    execution_watch_free(x->watch);
    free(x->code);
    free(x);
}

/* The caller waits for the end, and an execution whose caller is gone is killed. */
static bool run_sandbox_is_attached(const struct run_sandbox *x)
{
    return x->mode == MODE_EXECUTE || x->mode == MODE_STREAM;
}

static void run_sandbox_stop(void *work)
{
    struct run_sandbox *x = work;

    x->call = NULL;
    if (x->watch && run_sandbox_is_attached(x))
        execution_watch_kill(x->watch);
    if (x->pending == 0)
        run_sandbox_free(x);
}

/* Counts an answer. False: the call was cancelled, and x is gone. */
static bool run_sandbox_resume(struct run_sandbox *x)
{
    x->pending--;
    if (x->call)
        return true;
    if (x->pending == 0)
        run_sandbox_free(x);
    return false;
}

/* --- to the end of an execution --- */

static void run_sandbox_read_row(struct run_sandbox *x);

static void run_sandbox_finish(struct run_sandbox *x, const struct store_execution *row)
{
    struct script_run_state script;
    bool known = script_runs_find(x->tools->script_runs, row->id, &script);

    execution_watch_free(take_ptr(&x->watch));
    ev_timer_clear(x->tools->settings.ev, &x->timer);
    x->call->answer.is_error = run_sandbox_is_attached(x) && run_sandbox_state(row) != RUN_SANDBOX_COMPLETED;
    run_sandbox_answer(x->call, row, &x->window, known && script.is_settled ? &script : NULL);
}

static void run_sandbox_stream(struct run_sandbox *x, int channel)
{
    auto_fd int fd = manager_open_output(x->tools->settings.manager, x->execution, channel);
    auto_free char *data = fd >= 0 ? mem_alloc(STREAM_STEP) : NULL;
    uint64_t *at = &x->streamed[channel - 1];

    for (ssize_t n = 1; data && n > 0 && *at < STREAMED_MAX;) {
        n = pread(fd, data, (size_t)min_u64(STREAM_STEP, STREAMED_MAX - *at), (off_t)*at);
        if (n > 0) {
            *at += (uint64_t)n;
            x->call->ops.on_output(x->call->arg, channel, data, (size_t)n);
        }
    }
}

static void run_sandbox_on_change(void *arg, const struct store_execution *ended)
{
    struct run_sandbox *x = arg;

    if (run_sandbox_is_attached(x) && x->call->ops.on_output) {
        run_sandbox_stream(x, 1);
        run_sandbox_stream(x, 2);
    }
    if (!ended)
        return;
    execution_watch_free(take_ptr(&x->watch));
    manager_flush_acknowledged_ends(x->tools->settings.manager); /* so that the row has ended */
    run_sandbox_read_row(x);
}

static void run_sandbox_on_timeout(void *arg)
{
    struct run_sandbox *x = arg;

    x->wait_ms = 0;
    run_sandbox_read_row(x);
}

/* Begins to wait, once. False: there is nothing to wait for, the execution has ended meanwhile. */
static bool run_sandbox_wait(struct run_sandbox *x)
{
    struct ev *ev = x->tools->settings.ev;

    if (!x->watch)
        x->watch = manager_watch_execution(x->tools->settings.manager, x->owner, x->sandbox, x->execution,
                                           run_sandbox_on_change, x);
    if (!x->watch)
        return false;
    if (x->mode == MODE_CANCEL)
        execution_watch_kill(x->watch);
    if (x->wait_ms != UINT64_MAX)
        ev_timer_set(ev, &x->timer, ev_now(ev) + x->wait_ms * NS_PER_MS, run_sandbox_on_timeout, x);
    return true;
}

static void run_sandbox_on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct run_sandbox *x = arg;
    struct script_run_state script;

    if (!run_sandbox_resume(x) || x->call->end_defer.on)
        return;
    if (err) {
        tool_call_fail(x->call, err);
        return;
    }
    if (!str_eq(row->sandbox, x->sandbox)) {
        struct err missing = { 0 };

        err_set(&missing, ERR_MISSING, "execution_id: there is no such execution in this sandbox");
        tool_call_fail(x->call, &missing);
        return;
    }
    bool live = row->state == STORE_EXECUTION_STARTING || row->state == STORE_EXECUTION_RUNNING;
    if (live && x->wait_ms > 0 && run_sandbox_wait(x))
        return;
    bool unsettled = script_runs_find(x->tools->script_runs, x->execution, &script) && !script.is_settled;
    /* Without a watch a live row is about to end; an ended one, whose code is being kept, has a
     * result soon. */
    if (((live && x->wait_ms > 0) || (!live && unsettled)) && x->reads++ < READS_MAX)
        run_sandbox_read_row(x);
    else
        run_sandbox_finish(x, row);
}

static void run_sandbox_read_row(struct run_sandbox *x)
{
    x->pending++;
    store_execution_get(x->tools->settings.store, x->owner, x->execution, run_sandbox_on_row, x);
}

/* --- execute and async --- */

static void run_sandbox_on_accepted(void *arg, const struct err *err, const struct store_execution *row)
{
    struct run_sandbox *x = arg;
    bool may_keep = !x->is_for_one_sandbox;
    struct execution_watch *watch = NULL;

    if (!err && !x->call && run_sandbox_is_attached(x))
        watch = manager_watch_execution(x->tools->settings.manager, x->owner, row->sandbox, row->id,
                                        run_sandbox_on_change, x);
    if (watch)
        execution_watch_kill(watch);
    execution_watch_free(watch);
    if (!err && may_keep)
        script_runs_add(x->tools->script_runs, row, x->language->name, x->code);
    if (!run_sandbox_resume(x))
        return;
    if (err) {
        tool_call_fail(x->call, err);
        return;
    }
    (void)str_copy(x->execution, sizeof(x->execution), row->id);
    if (x->mode == MODE_ASYNC)
        run_sandbox_finish(x, row);
    else
        run_sandbox_read_row(x);
}

static void run_sandbox_execute(struct run_sandbox *x)
{
    const struct tool_request *r = &x->call->request;

    assert(x->language);
    const struct execution_spec spec = { .code = x->code,
                                         .language = x->language->name,
                                         .isolated = true,
                                         .timeout_ms = x->timeout_ms,
                                         .background = x->mode == MODE_ASYNC,
                                         .created_by = r->created_by,
                                         .request_id = r->request_id };

    x->pending++;
    manager_execute(x->tools->settings.manager, x->owner, x->sandbox, NULL, &spec, run_sandbox_on_accepted, x);
}

/* The language of the sandbox, if neither the call nor the script has one. */
static void run_sandbox_on_sandbox(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct run_sandbox *x = arg;
    struct err unknown = { 0 };

    if (!run_sandbox_resume(x))
        return;
    if (!err && !(x->language = language_by_name(row->runtime ? row->runtime : "")))
        err_set(&unknown, ERR_INVALID, "language: required, because the sandbox has no language of its own");
    if (err || !x->language)
        tool_call_fail(x->call, err ? err : &unknown);
    else
        run_sandbox_execute(x);
}

static void run_sandbox_choose_language(struct run_sandbox *x)
{
    if (x->language) {
        run_sandbox_execute(x);
        return;
    }
    x->pending++;
    store_sandbox_get(x->tools->settings.store, x->owner, x->sandbox, run_sandbox_on_sandbox, x);
}

static void run_sandbox_on_script(void *arg, const struct err *err, const struct store_script *row)
{
    struct run_sandbox *x = arg;
    struct err why = { 0 };

    if (!run_sandbox_resume(x))
        return;
    if (err && err->id == ERR_MISSING)
        err_set(&why, ERR_MISSING, "cached: there is no such script; search_tools finds scripts");
    else if (err)
        why = *err;
    else if (!(x->language = language_by_name(row->language)))
        err_set(&why, ERR_RUNTIME_MISSING, "cached: the language of the script is not known any more");
    if (why.id != ERR_NONE) {
        tool_call_fail(x->call, &why);
        return;
    }
    x->code = str_dup(row->code);
    run_sandbox_execute(x);
}

static int run_sandbox_find_script(struct run_sandbox *x, struct err *err)
{
    uint8_t digest[STORE_HASH_LEN];
    struct store *st = x->tools->settings.store;

    if (x->is_for_one_sandbox)
        return err_set(err, ERR_MISSING, "cached: a credential of one sandbox has no scripts; pass the code");
    if (id_valid(x->cached, "sc"))
        store_script_get(st, x->owner, x->cached, run_sandbox_on_script, x);
    else if (script_digest_parse(x->cached, digest))
        store_script_find(st, x->owner, digest, run_sandbox_on_script, x);
    else
        return err_set(err, ERR_INVALID,
                       "cached: must be the id of a script (sc...) or its digest, 64 hexadecimal digits");
    x->pending++;
    return 0;
}

/* --- list --- */

static void run_sandbox_on_rows(void *arg, const struct err *err, const struct store_execution *rows, size_t n,
                                const char *next)
{
    struct run_sandbox *x = arg;

    if (!run_sandbox_resume(x))
        return;
    if (err)
        tool_call_fail(x->call, err);
    else
        run_sandbox_answer_list(x->call, rows, n, x->states, x->limit, next != NULL);
}

static void run_sandbox_on_list_sandbox(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct run_sandbox *x = arg;
    const unsigned all = (1u << RUN_SANDBOX_STATES) - 1;
    const struct store_list q = { .owner = x->owner,
                                  .sandbox = x->sandbox,
                                  .limit = x->states == all ? (uint32_t)x->limit : LIST_ROWS };

    if (!run_sandbox_resume(x))
        return;
    if (err) {
        tool_call_fail(x->call, err);
        return;
    }
    (void)row;
    x->pending++;
    store_execution_list(x->tools->settings.store, &q, run_sandbox_on_rows, x);
}

/* --- arguments --- */

static int run_sandbox_read_states(const json_t *a, unsigned *ret, struct err *err)
{
    json_t *list = NULL;

    *ret = (1u << RUN_SANDBOX_STATES) - 1;
    if (json_input_array(a, "", "states", RUN_SANDBOX_STATES, &list, err) < 0)
        return -1;
    if (json_array_size(list))
        *ret = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        unsigned state = 0;

        while (word && state < RUN_SANDBOX_STATES && !str_eq(word, run_sandbox_states[state]))
            state++;
        if (!word || state == RUN_SANDBOX_STATES)
            return err_set(err, ERR_INVALID,
                           "states: must be a list of pending, running, completed, failed, cancelled and timeout");
        *ret |= 1u << state;
    }
    return 0;
}

/* An argument of another mode has no effect, which a client would not notice. */
static int run_sandbox_check_mode(const struct run_sandbox *x, const json_t *a, struct err *err)
{
    static const struct {
        const char *name;
        unsigned modes; /* bits */
    } uses[] = {
        { "code", 1u << MODE_EXECUTE | 1u << MODE_STREAM | 1u << MODE_ASYNC },
        { "cached", 1u << MODE_EXECUTE | 1u << MODE_STREAM | 1u << MODE_ASYNC },
        { "language", 1u << MODE_EXECUTE | 1u << MODE_STREAM | 1u << MODE_ASYNC },
        { "timeout_ms", 1u << MODE_EXECUTE | 1u << MODE_STREAM | 1u << MODE_ASYNC },
        { "execution_id", 1u << MODE_STATUS | 1u << MODE_CANCEL },
        { "wait_ms", 1u << MODE_STATUS },
        { "output_offset", 1u << MODE_STATUS | 1u << MODE_CANCEL },
        { "stderr_offset", 1u << MODE_STATUS | 1u << MODE_CANCEL },
        { "states", 1u << MODE_LIST },
        { "limit", 1u << MODE_LIST },
    };

    for (size_t i = 0; i < ARRAY_LEN(uses); i++)
        if (json_object_get(a, uses[i].name) && !(uses[i].modes & 1u << x->mode))
            return err_set(err, ERR_INVALID, "%s: has no effect in mode %s; omit it", uses[i].name,
                           run_sandbox_modes[x->mode]);
    return 0;
}

static int run_sandbox_read_code(struct run_sandbox *x, const json_t *a, struct err *err)
{
    const char *language = NULL, *code = NULL;

    if (json_input_text(a, "", "code", 1, EXECUTION_CODE_MAX, &code, err) < 0 ||
        json_input_text(a, "", "cached", 1, 64, &x->cached, err) < 0 ||
        json_input_text(a, "", "language", 1, 40, &language, err) < 0 ||
        tool_arguments_timeout(x->call, &x->timeout_ms, err) < 0)
        return -1;
    x->code = code ? str_dup(code) : NULL;
    if (!x->code == !x->cached)
        return err_set(err, ERR_INVALID, "code, cached: mode %s needs one of them", run_sandbox_modes[x->mode]);
    if (language && x->cached)
        return err_set(err, ERR_INVALID, "language: a script has a language already; omit it");
    if (language && !(x->language = language_by_name(language))) {
        language_unknown_error("language", language, err);
        err_sanitize(err);
        return -1;
    }
    return 0;
}

static int run_sandbox_read_arguments(struct run_sandbox *x, const json_t *a, struct err *err)
{
    const char *id = NULL;
    unsigned mode = MODE_EXECUTE;

    if (json_input_enum(a, "", "mode", run_sandbox_modes, &mode, err) < 0)
        return -1;
    x->mode = (enum run_sandbox_mode)mode;
    if (run_sandbox_check_mode(x, a, err) < 0 || json_input_text(a, "", "execution_id", 1, 64, &id, err) < 0 ||
        json_input_u64(a, "", "wait_ms", 0, WAIT_MAX_MS, &x->wait_ms, NULL, err) < 0 ||
        json_input_u64(a, "", "output_offset", 0, INT64_MAX, &x->window.stdout_offset, NULL, err) < 0 ||
        json_input_u64(a, "", "stderr_offset", 0, INT64_MAX, &x->window.stderr_offset, &x->window.has_stderr_offset,
                       err) < 0 ||
        json_input_u64(a, "", "limit", 1, LIST_MAX, &x->limit, NULL, err) < 0 ||
        run_sandbox_read_states(a, &x->states, err) < 0)
        return -1;
    if (x->mode != MODE_STATUS && x->mode != MODE_CANCEL)
        return x->mode == MODE_LIST ? 0 : run_sandbox_read_code(x, a, err);
    if (!id)
        return err_set(err, ERR_INVALID, "execution_id: mode %s needs it", run_sandbox_modes[x->mode]);
    if (!id_valid(id, "ex"))
        return err_set(err, ERR_MISSING, "execution_id: there is no such execution");
    (void)str_copy(x->execution, sizeof(x->execution), id);
    return 0;
}

static int run_sandbox_begin(struct run_sandbox *x, struct err *err)
{
    switch (x->mode) {
    case MODE_STATUS:
        run_sandbox_read_row(x);
        return 0;
    case MODE_CANCEL:
        x->wait_ms = CANCEL_WAIT_MS;
        run_sandbox_read_row(x);
        return 0;
    case MODE_LIST:
        x->pending++;
        store_sandbox_get(x->tools->settings.store, x->owner, x->sandbox, run_sandbox_on_list_sandbox, x);
        return 0;
    default:
        x->wait_ms = UINT64_MAX;
        if (x->cached)
            return run_sandbox_find_script(x, err);
        run_sandbox_choose_language(x);
        return 0;
    }
}

static int run_sandbox_start(struct tool_call *c, struct err *err)
{
    struct run_sandbox *x = mem_new(struct run_sandbox);

    x->call = c;
    x->tools = c->tools;
    x->limit = LIST_DEFAULT;
    x->is_for_one_sandbox = c->request.is_for_one_sandbox;
    (void)str_copy(x->owner, sizeof(x->owner), c->request.owner);
    (void)str_copy(x->sandbox, sizeof(x->sandbox), c->request.sandbox);
    c->work = x;
    c->stop = run_sandbox_stop;
    return run_sandbox_read_arguments(x, c->request.arguments, err) < 0 ? -1 : run_sandbox_begin(x, err);
}

const struct tool_definition tool_run_sandbox = {
    .tool = { .name = "run_sandbox",
              .title = "Run a script",
              .description =
                  "Runs code or a cached script in a new process in the sandbox, and follows it: wait for its end "
                  "(execute), leave it running (async), ask for its state and for output from an offset (status), "
                  "cancel it, or list the executions. States: pending, running, completed, failed, cancelled, "
                  "timeout. Output is limited to 5,000 lines and 500,000 bytes per answer; nextOutputOffset "
                  "continues. Code that completes is kept as a script, which search_tools finds. Use run_code for "
                  "code whose variables must stay.",
              .input_schema = run_sandbox_input,
              .output_schema = run_sandbox_output_schema,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_EXECUTES,
              .is_destructive = true,
              .is_open_world = true },
    .start = run_sandbox_start,
};
