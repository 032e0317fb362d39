/* Everything that the language kernel sends is hostile input (kernel_event.c). An event that is not
 * about the running request or a query is rejected. Output that arrives while no request runs is
 * dropped: it comes from threads that user code left.
 *
 * Invariants:
 * 1. on_died is called once for each process, whatever caused its end, unless the owner resets the
 *    language kernel before. The process is still readable then (its receipt), until the reset.
 * 2. The timer is set in the states STARTING, CHECKING, BUSY and INTERRUPTED only. It never acts
 *    while timer_delay_ns asks it to wait: a paused sandbox could not answer and would be ended for
 *    it.
 * 3. A request ends once: with on_finished or, if it is lost with its process, with on_died. */
#include "service/language_kernel.h"

#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/base/jsonw.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/languages.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>

#define INPUT_LINE_MAX (60000u) /* every language kernel accepts this much as one answer */

struct language_kernel_spec {
    const char *name;
    const char *runtime;    /* NULL: the language kernel is a program of its own */
    const char *args[3];    /* after the interpreter */
    const char *exit_error; /* name of the error event when code ends itself */
    const char *interrupt_error;
    const char *launcher; /* the program that starts the interpreter, or NULL */
    bool can_fork;
};

static const struct language_kernel_spec language_kernels[] = {
    { "python", "python", { "-I", "/.cove/kernels/python/kernel.py" }, "SystemExit", "KeyboardInterrupt", NULL, true },
    { "node", "node", { "/.cove/kernels/node/kernel.mjs" }, "Exit", "Interrupted", "/.cove/kernels/node/start", false },
    { "bash", NULL, { "/.cove/kernels/bash/kernel" }, "ExitStatus", "Interrupted", NULL, false },
};

static const char *const language_kernel_states[] = { "dead",        "starting",   "idle",     "checking", "busy",
                                                      "interrupted", "collecting", "stopping", "closed",   "ended" };

/* The language kernel of sh is that of bash. */
static const struct language_kernel_spec *language_kernel_find(const char *name)
{
    const struct language *language = language_by_name(name);
    const char *wanted = language && str_eq(language->name, "sh") ? "bash" : language ? language->name : name;

    for (size_t i = 0; i < ARRAY_LEN(language_kernels); i++)
        if (str_eq(wanted, language_kernels[i].name))
            return &language_kernels[i];
    return NULL;
}

const char *language_kernel_language(const char *name)
{
    const struct language_kernel_spec *l = language_kernel_find(name);

    return l ? l->name : NULL;
}

/* --- the object --- */

void language_kernel_init(struct language_kernel *k, struct ev *ev, const char *owner_id, const char *language,
                          const struct language_kernel_ops *ops, void *arg)
{
    k->ev = ev;
    k->owner_id = owner_id;
    k->spec = language_kernel_find(language);
    k->ops = ops;
    k->arg = arg;
    k->collects_denials = ops->collects_denials;
}

const char *language_kernel_name(const struct language_kernel *k)
{
    return k->spec->name;
}

bool language_kernel_can_fork(const struct language_kernel *k)
{
    return k->spec->can_fork;
}

static bool language_kernel_runs_code(const struct language_kernel *k)
{
    return (k->state == LANGUAGE_KERNEL_BUSY || k->state == LANGUAGE_KERNEL_INTERRUPTED) && !k->resumed;
}

bool language_kernel_is_executing(const struct language_kernel *k)
{
    return language_kernel_runs_code(k) || k->state == LANGUAGE_KERNEL_COLLECTING;
}

static void language_kernel_on_timer(void *arg);

static void language_kernel_set_timer(struct language_kernel *k, uint64_t ns)
{
    ev_timer_set(k->ev, &k->timer, ev_now(k->ev) + ns, language_kernel_on_timer, k);
}

static void language_kernel_set_state(struct language_kernel *k, enum language_kernel_state state)
{
    if (k->state == state)
        return;
    log_debug("language kernel of %s: %s -> %s", k->owner_id, language_kernel_states[k->state],
              language_kernel_states[state]);
    k->state = state;
    if (state != LANGUAGE_KERNEL_STARTING && state != LANGUAGE_KERNEL_CHECKING && state != LANGUAGE_KERNEL_BUSY &&
        state != LANGUAGE_KERNEL_INTERRUPTED)
        ev_timer_clear(k->ev, &k->timer);
}

void language_kernel_reset(struct language_kernel *k)
{
    if (!k->ops)
        return;
    exec_handle_free(take_ptr(&k->exec));
    kernel_event_reader_reset(&k->reader);
    buf_done(&k->unsent);
    k->stderr_head[0] = '\0';
    k->resumed = k->was_interrupted = k->killed_by_timer = k->was_killed = false;
    language_kernel_set_state(k, LANGUAGE_KERNEL_DEAD);
}

void language_kernel_close(struct language_kernel *k)
{
    if (k->state != LANGUAGE_KERNEL_DEAD && k->state != LANGUAGE_KERNEL_ENDED)
        language_kernel_set_state(k, LANGUAGE_KERNEL_CLOSED);
}

/* --- to the language kernel --- */

static void language_kernel_flush(void *arg)
{
    struct language_kernel *k = arg;

    if (!k->unsent.len || k->state == LANGUAGE_KERNEL_CLOSED)
        return;
    size_t n = exec_handle_write_language_kernel(k->exec, k->unsent.data, k->unsent.len);

    if (n == k->unsent.len)
        buf_done(&k->unsent);
    else
        buf_drop(&k->unsent, n);
}

bool language_kernel_has_unsent(const struct language_kernel *k)
{
    return k->unsent.len > 0;
}

static void language_kernel_write_op(struct buf *out, struct jsonw *w, const char *op, const char *id)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_kstr(w, "op", op);
    jsonw_kstr(w, "id", id);
}

static void language_kernel_begin_line(struct language_kernel *k, struct jsonw *w, const char *op, const char *id)
{
    language_kernel_write_op(&k->unsent, w, op, id);
}

static void language_kernel_send_line(struct language_kernel *k, struct jsonw *w)
{
    jsonw_end_object(w);
    buf_adds(&k->unsent, "\n");
    language_kernel_flush(k);
}

static void language_kernel_write_code(struct jsonw *w, const struct language_kernel_code *c)
{
    jsonw_kstr(w, "code", c->code);
    if (c->cwd)
        jsonw_kstr(w, "cwd", c->cwd);
    if (!c->env || !c->env[0])
        return;
    jsonw_kobject(w, "env");
    for (size_t i = 0; c->env[i]; i++) {
        auto_free char *name = str_dup_n(c->env[i], strcspn(c->env[i], "="));

        jsonw_kstr(w, name, c->env[i] + strlen(name) + 1);
    }
    jsonw_end_object(w);
}

bool language_kernel_accepts_code(const struct language_kernel_code *c)
{
    auto_buf line = { 0 };
    struct jsonw w;

    if (strlen(c->code) < KERNEL_EVENT_LINE_MAX / 16 && !c->env)
        return true;
    language_kernel_write_op(&line, &w, "execute", c->id);
    language_kernel_write_code(&w, c);
    jsonw_end_object(&w);
    return line.len + 1 < KERNEL_EVENT_LINE_MAX;
}

void language_kernel_execute(struct language_kernel *k, const struct language_kernel_code *c, uint64_t timeout_ns)
{
    struct jsonw w;

    snprintf(k->request_id, sizeof(k->request_id), "%s", c->id);
    k->was_interrupted = k->exited_itself = false;
    k->timeout_ms = timeout_ns / NS_PER_MS;
    language_kernel_set_state(k, LANGUAGE_KERNEL_BUSY);
    language_kernel_set_timer(k, timeout_ns);
    if (k->collects_denials)
        exec_handle_mark_denials(k->exec);
    language_kernel_begin_line(k, &w, "execute", c->id);
    language_kernel_write_code(&w, c);
    language_kernel_send_line(k, &w);
}

void language_kernel_check(struct language_kernel *k, const struct language_kernel_code *c, bool has_data)
{
    struct jsonw w;

    snprintf(k->request_id, sizeof(k->request_id), "%s", c->id);
    language_kernel_set_state(k, LANGUAGE_KERNEL_CHECKING);
    language_kernel_set_timer(k, LANGUAGE_KERNEL_CHECK_NS);
    language_kernel_begin_line(k, &w, "check", c->id);
    jsonw_kstr(&w, "code", c->code);
    jsonw_kbool(&w, "data", has_data);
    language_kernel_send_line(k, &w);
}

void language_kernel_send_input(struct language_kernel *k, const char *text)
{
    struct jsonw w;

    language_kernel_begin_line(k, &w, "input", k->request_id);
    if (text)
        jsonw_kstr(&w, "text", text);
    else
        jsonw_kbool(&w, "eof", true);
    language_kernel_send_line(k, &w);
}

/* A language kernel that requests input has read everything before it: while earlier lines are
 * unsent, requests are ignored, so that untrusted code cannot make answers accumulate here. */
void language_kernel_send_input_line(struct language_kernel *k, const char *input, size_t len, size_t *sent)
{
    const char *from = input + *sent;
    size_t left = len - *sent, n = 0;

    if (language_kernel_has_unsent(k))
        return;
    while (n < left && n < INPUT_LINE_MAX && from[n] != '\n')
        n++;
    if (left == 0) {
        language_kernel_send_input(k, NULL);
        return;
    }
    bool more = n == left || from[n] != '\n';
    for (size_t i = 0; n < left && more && i < 3 && ((unsigned char)from[n] & 0xc0) == 0x80; i++)
        n--; /* keeps the bytes of a character together */
    *sent += n + !more;
    struct jsonw w;
    language_kernel_begin_line(k, &w, "input", k->request_id);
    jsonw_key(&w, "text");
    jsonw_strn(&w, from, n);
    if (more)
        jsonw_kbool(&w, "more", true);
    language_kernel_send_line(k, &w);
}

void language_kernel_send_query(struct language_kernel *k, bool inspect, const char *id, const char *code,
                                uint64_t cursor)
{
    struct jsonw w;

    language_kernel_begin_line(k, &w, inspect ? "inspect" : "complete", id);
    jsonw_kstr(&w, "code", code);
    jsonw_ku64(&w, "cursor", cursor);
    language_kernel_send_line(k, &w);
}

static bool language_kernel_ran_too_long(const struct language_kernel *k)
{
    return k->was_interrupted && (k->interrupt_cause == ENDED_TIMEOUT || k->interrupt_cause == ENDED_CPU);
}

void language_kernel_interrupt(struct language_kernel *k, enum ended_by cause)
{
    if (k->state != LANGUAGE_KERNEL_BUSY)
        return;
    k->was_interrupted = true;
    k->interrupt_cause = cause;
    language_kernel_set_state(k, LANGUAGE_KERNEL_INTERRUPTED);
    exec_handle_signal(k->exec, SIGINT);
    language_kernel_set_timer(k, language_kernel_ran_too_long(k) ? LANGUAGE_KERNEL_TIMEOUT_GRACE_NS : k->ops->grace_ns);
}

void language_kernel_kill(struct language_kernel *k)
{
    if (k->state == LANGUAGE_KERNEL_IDLE)
        language_kernel_set_state(k, LANGUAGE_KERNEL_STOPPING);
    k->was_killed = true;
    exec_handle_kill(k->exec);
}

static void language_kernel_on_timer(void *arg)
{
    struct language_kernel *k = arg;
    uint64_t delay = k->ops->timer_delay_ns ? k->ops->timer_delay_ns(k->arg) : 0;

    if (delay) {
        language_kernel_set_timer(k, delay);
    } else if (k->state == LANGUAGE_KERNEL_BUSY) {
        language_kernel_interrupt(k, ENDED_TIMEOUT);
    } else {
        k->killed_by_timer = true;
        language_kernel_kill(k);
    }
}

/* --- from the language kernel --- */

static bool language_kernel_is_exit_event(const struct language_kernel *k, const struct kernel_event *e, int *ret)
{
    const char *name = json_string_value(json_object_get(e->root, "name"));
    const char *value = json_string_value(json_object_get(e->root, "value"));
    uint64_t code = 0;

    if (e->kind != KERNEL_EVENT_ERROR || !name || !value || !str_eq(name, k->spec->exit_error))
        return false;
    bool none = str_eq(k->spec->name, "python") && (str_eq(value, "") || str_eq(value, "None"));
    bool negative = value[0] == '-';
    if (!none && !str_to_u64(value + negative, UINT32_MAX, &code))
        return false;
    *ret = (int)((negative ? -code : code) & 0xff);
    return true;
}

/* The interrupt is the exception that the code sees. Its reader has to know the reason. */
static void language_kernel_name_timeout(const struct language_kernel *k, const struct kernel_event *e)
{
    const char *name = json_string_value(json_object_get(e->root, "name"));
    json_t *lines = json_object_get(e->root, "traceback");
    char value[64], line[80];

    if (e->kind != KERNEL_EVENT_ERROR || !language_kernel_ran_too_long(k) || !str_eq(name, k->spec->interrupt_error))
        return;
    if (k->interrupt_cause == ENDED_CPU)
        snprintf(value, sizeof(value), "stopped at the limit of CPU time");
    else
        snprintf(value, sizeof(value), "stopped after %" PRIu64 " ms", k->timeout_ms);
    snprintf(line, sizeof(line), "TimeoutError: %s", value);
    json_object_set_new(e->root, "name", json_string("TimeoutError"));
    json_object_set_new(e->root, "value", json_string(value));
    if (json_array_size(lines) > 0)
        json_array_set_new(lines, json_array_size(lines) - 1, json_string(line));
}

static void language_kernel_finish(struct language_kernel *k)
{
    struct language_kernel_result result = k->result;

    language_kernel_set_state(k, k->was_killed ? LANGUAGE_KERNEL_STOPPING : LANGUAGE_KERNEL_IDLE);
    k->ops->on_finished(k->arg, &result);
}

static void language_kernel_on_denials(void *arg)
{
    struct language_kernel *k = arg;

    if (k->state == LANGUAGE_KERNEL_COLLECTING)
        language_kernel_finish(k);
}

static void language_kernel_on_finished(struct language_kernel *k, const struct kernel_event *e)
{
    struct language_kernel_result result = { .status = e->status, .ended_by = ENDED_EXIT };

    if (e->status == KERNEL_STATUS_INTERRUPTED || language_kernel_ran_too_long(k)) {
        result.ended_by = k->was_interrupted ? k->interrupt_cause : ENDED_SIGNAL;
        result.exit_code = -1;
        result.signal = SIGINT;
    } else if (e->status != KERNEL_STATUS_OK) {
        result.exit_code = k->exited_itself ? k->exit_status : 1;
    }
    k->result = result;
    if (k->collects_denials && !exec_handle_collect_denials(k->exec, k->was_interrupted))
        language_kernel_set_state(k, LANGUAGE_KERNEL_COLLECTING);
    else
        language_kernel_finish(k);
}

/* False: the event is not the answer to the check. */
static bool language_kernel_on_check_event(struct language_kernel *k, const struct kernel_event *e)
{
    if (k->state != LANGUAGE_KERNEL_CHECKING || !str_eq(e->id, k->request_id) ||
        (e->kind != KERNEL_EVENT_REPORT && e->kind != KERNEL_EVENT_REFUSED))
        return false;
    language_kernel_set_state(k, LANGUAGE_KERNEL_IDLE);
    (void)k->ops->on_event(k->arg, e);
    return true;
}

/* False: the event is not about the running request. */
static bool language_kernel_on_request_event(struct language_kernel *k, const struct kernel_event *e)
{
    if ((k->state != LANGUAGE_KERNEL_BUSY && k->state != LANGUAGE_KERNEL_INTERRUPTED) || !str_eq(e->id, k->request_id))
        return false;
    if (k->resumed && (e->kind == KERNEL_EVENT_COMPLETIONS || e->kind == KERNEL_EVENT_REFUSED)) {
        k->resumed = false;
        language_kernel_set_state(k, LANGUAGE_KERNEL_IDLE);
        k->ops->on_idle(k->arg);
        return true;
    }
    if (k->resumed)
        return false;
    if (e->kind == KERNEL_EVENT_FINISHED) {
        language_kernel_on_finished(k, e);
        return true;
    }
    if (language_kernel_is_exit_event(k, e, &k->exit_status)) {
        k->exited_itself = true;
        return true;
    }
    language_kernel_name_timeout(k, e);
    return k->ops->on_event(k->arg, e);
}

static bool language_kernel_is_answer(const struct kernel_event *e)
{
    return e->kind == KERNEL_EVENT_COMPLETIONS || e->kind == KERNEL_EVENT_INSPECTION || e->kind == KERNEL_EVENT_REFUSED;
}

static void language_kernel_on_event(void *arg, const struct kernel_event *e)
{
    struct language_kernel *k = arg;

    if (k->state == LANGUAGE_KERNEL_CLOSED)
        return;
    if (e && e->kind == KERNEL_EVENT_READY && k->state == LANGUAGE_KERNEL_STARTING) {
        if (!k->ops->keeps_code_stderr)
            k->stderr_head[0] = '\0';
        language_kernel_set_state(k, LANGUAGE_KERNEL_IDLE);
        k->ops->on_ready(k->arg, e);
    } else if (!e || (!language_kernel_on_check_event(k, e) && !language_kernel_on_request_event(k, e) &&
                      (!language_kernel_is_answer(e) || !k->ops->on_event(k->arg, e)))) {
        k->ops->on_rejected(k->arg, e);
    }
}

static void language_kernel_on_data(void *arg, const void *data, size_t len)
{
    struct language_kernel *k = arg;

    if (k->state != LANGUAGE_KERNEL_CLOSED)
        kernel_event_reader_feed(&k->reader, data, len, language_kernel_on_event, k);
}

static void language_kernel_on_output(void *arg, int channel, const void *data, size_t len)
{
    struct language_kernel *k = arg;
    size_t had = strlen(k->stderr_head);

    if (channel == 2 && (k->state == LANGUAGE_KERNEL_STARTING || k->ops->keeps_code_stderr) &&
        had < sizeof(k->stderr_head) - 1)
        snprintf(k->stderr_head + had, sizeof(k->stderr_head) - had, "%.*s", (int)min_size(len, sizeof(k->stderr_head)),
                 (const char *)data);
    if (language_kernel_runs_code(k))
        k->ops->on_output(k->arg, channel, data, len);
}

/* Its state after a restart of the server is unknown, because rows are committed a little later.
 * But a language kernel handles one request after another, so when it answers this query it has
 * finished everything before. The id of the query is one that no earlier server used. */
static void language_kernel_on_started(void *arg)
{
    struct language_kernel *k = arg;

    if (!k->resumed)
        return;
    id_new("qs", k->request_id);
    language_kernel_set_state(k, LANGUAGE_KERNEL_BUSY);
    language_kernel_set_timer(k, k->resumed_busy_ns);
    buf_adds(&k->unsent, "\n"); /* ends a line that the earlier server may have sent in part */
    language_kernel_send_query(k, false, k->request_id, "", 0);
}

static void language_kernel_end(struct language_kernel *k, const struct receipt *r, const struct err *err)
{
    struct language_kernel_death death = { .receipt = r,
                                           .error = err,
                                           .was_starting = k->state == LANGUAGE_KERNEL_STARTING,
                                           .was_checking = k->state == LANGUAGE_KERNEL_CHECKING,
                                           .was_executing = language_kernel_is_executing(k) };

    language_kernel_set_state(k, LANGUAGE_KERNEL_ENDED);
    k->ops->on_died(k->arg, &death);
}

static void language_kernel_on_exit(void *arg, const struct receipt *r)
{
    language_kernel_end(arg, r, NULL);
}

static void language_kernel_on_failed(void *arg, const struct err *err)
{
    language_kernel_end(arg, NULL, err);
}

static const struct exec_handle_ops language_kernel_exec_ops = { .on_started = language_kernel_on_started,
                                                                 .on_output = language_kernel_on_output,
                                                                 .on_writable = language_kernel_flush,
                                                                 .on_exit = language_kernel_on_exit,
                                                                 .on_failed = language_kernel_on_failed,
                                                                 .on_denials = language_kernel_on_denials,
                                                                 .on_language_kernel_data = language_kernel_on_data };

/* --- start --- */

struct language_kernel_command {
    const char *argv[5];
    char path[PATH_MAX];
};

/* The command that starts the language kernel in a sandbox. */
static int language_kernel_find_command(const struct language_kernel_spec *l, const struct sandbox_handle *sandbox,
                                        const char *template, struct language_kernel_command *ret, struct err *err)
{
    const struct language *rt = l && l->runtime ? language_by_name(l->runtime) : NULL;
    size_t n = 0;

    if (!l)
        return err_set(err, ERR_RUNTIME_MISSING, "no language kernel for this language; use python, node or bash");
    if (rt && sandbox_handle_find_language(sandbox, template, rt, ret->path, sizeof(ret->path), err) < 0)
        return -1;
    if (l->launcher)
        ret->argv[n++] = l->launcher;
    if (rt)
        ret->argv[n++] = ret->path;
    for (size_t i = 0; i < ARRAY_LEN(l->args) && l->args[i]; i++)
        ret->argv[n++] = l->args[i];
    ret->argv[n] = NULL;
    return 0;
}

/* For an interpreter that exists already: there is nothing to start. */
static const char *const language_kernel_no_command[] = { "kernel", NULL };

static int language_kernel_launch(struct language_kernel *k, struct sandbox_handle *sandbox, struct exec_spec *spec,
                                  struct err *err)
{
    spec->unmetered = spec->is_language_kernel = true;
    if (sandbox_handle_exec(sandbox, spec, &language_kernel_exec_ops, k, &k->exec, err) < 0)
        return -1;
    k->sandbox = sandbox;
    language_kernel_set_state(k, LANGUAGE_KERNEL_STARTING);
    return 0;
}

int language_kernel_start(struct language_kernel *k, struct sandbox_handle *sandbox, const char *template,
                          struct exec_spec *spec, struct err *err)
{
    struct language_kernel_command command;

    spec->argv = language_kernel_no_command;
    if (!spec->use_waiting_interpreter && language_kernel_find_command(k->spec, sandbox, template, &command, err) < 0)
        return -1;
    if (!spec->use_waiting_interpreter)
        spec->argv = command.argv;
    if (language_kernel_launch(k, sandbox, spec, err) < 0)
        return -1;
    if (!spec->use_waiting_interpreter)
        language_kernel_set_timer(k, LANGUAGE_KERNEL_START_NS);
    return 0;
}

int language_kernel_fork(struct language_kernel *k, const struct language_kernel *of, struct exec_spec *spec,
                         struct err *err)
{
    spec->argv = language_kernel_no_command;
    spec->fork_of = of->exec;
    if (language_kernel_launch(k, of->sandbox, spec, err) < 0)
        return -1;
    language_kernel_set_timer(k, LANGUAGE_KERNEL_FORK_NS);
    return 0;
}

int language_kernel_resume(struct language_kernel *k, struct sandbox_handle *sandbox, struct exec_spec *spec,
                           uint32_t stream, uint64_t busy_ms, struct err *err)
{
    struct exec_resume resume = { .stream_id = stream };

    spec->unmetered = spec->is_language_kernel = true;
    if (sandbox_handle_exec_resume(sandbox, spec, &resume, &language_kernel_exec_ops, k, &k->exec, err) < 0)
        return -1;
    k->sandbox = sandbox;
    k->resumed = true;
    k->resumed_busy_ns = busy_ms * NS_PER_MS;
    language_kernel_set_state(k, LANGUAGE_KERNEL_STARTING);
    return 0;
}

/* --- the end --- */

void language_kernel_death_error(const struct language_kernel *k, const struct language_kernel_death *death,
                                 const char *subject, struct err *ret)
{
    const struct receipt *r = death->receipt;

    if (k->killed_by_timer && death->was_starting)
        err_set(ret, ERR_TIMEOUT, "%s was not ready within %llu s", subject, LANGUAGE_KERNEL_START_NS / NS_PER_S);
    else if (r->ended_by == ENDED_MEMORY)
        err_set(ret, ERR_CONTEXT_DEAD, "%s was killed because it reached the memory limit", subject);
    else if (r->ended_by == ENDED_EXIT)
        err_set(ret, ERR_CONTEXT_DEAD, "%s ended with status %d%s%.120s", subject, r->exit_code,
                k->stderr_head[0] ? ": " : "", k->stderr_head);
    else if (r->ended_by == ENDED_SIGNAL)
        err_set(ret, ERR_CONTEXT_DEAD, "%s was ended by signal %d", subject, r->signal);
    else
        err_set(ret, ERR_CONTEXT_DEAD, "%s was ended (%s)", subject, ended_by_name(r->ended_by));
}
