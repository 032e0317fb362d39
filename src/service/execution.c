/* One execution from its request to its end.
 *
 * The program is started and its row is inserted at the same time; `done` waits for the row. With
 * report_only_end the insertion is delayed: most programs that a client waits for end within a few
 * milliseconds, and then start and end are one commit. Output goes to files as it arrives
 * (output.c), and watches are notified once per turn of the loop. The end is one update
 * (execution_end.c).
 *
 * Invariants:
 * 1. An execution that was reported to a client has a row, and the row gets an end: its own, or
 *    that it was lost.
 * 2. Everything that a watch reports is already in a file or in the row.
 * 3. The first execution of a sandbox stays with it until the end of the sandbox: if it remains the
 *    only one, the final sums of the sandbox are its own, and its receipt is completed with
 *    them. */
#include "service/context_internal.h"
#include "service/default_context.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/drivers.h"

#include <limits.h>
#include <stdio.h>

/* Longer code goes through a file: all arguments together must fit into one frame. */
#define CODE_ARG_MAX (16 * KIB)
#define WORDS_MAX (56 * KIB)
#define TERMINAL_RING_MIN (64 * KIB)
#define ROW_INSERT_DELAY_NS (5 * NS_PER_MS) /* a program that runs longer gets its row before its end */

/* --- the object --- */

char **execution_copy_list(const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    char **out = mem_new_array(char *, n + 1);
    for (size_t i = 0; i < n; i++)
        out[i] = str_dup(list[i]);
    out[n] = NULL;
    return out;
}

static void execution_free_list(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

struct execution *execution_alloc(const char *id)
{
    struct execution *ex = mem_new(struct execution);

    if (id)
        memcpy(ex->id, id, sizeof(ex->id));
    else
        id_new("ex", ex->id);
    ex->spec.request = ex->request_id;
    output_init(ex);
    ex->created_ms = clock_real_ms();
    return ex;
}

void execution_link(struct execution *ex, struct sandbox *sb)
{
    for (struct execution *other = sb->executions; other; other = other->next)
        other->is_only_execution = false;
    ex->sandbox = sb;
    ex->sandbox_paused_ms = sb->paused_total_ms;
    ex->next = sb->executions;
    sb->executions = ex;
    sb->nexecutions++;
    budget_execution_begin(sb->quota);
    usage_meter_execution_begin(sb->services->usage_meter);
    sandbox_restart_idle_timer(sb);
}

size_t sandbox_running_executions(const struct sandbox *sb)
{
    return sb->nexecutions - sb->nuncommitted;
}

int sandbox_check_running_executions(const struct sandbox *sb, size_t running, struct err *err)
{
    size_t max = sb->services->executions->max_per_sandbox;

    if (running >= max) {
        err_set(err, ERR_LIMIT, "sandbox %s runs %zu executions already, which is the maximum; wait for one to end",
                sb->id, running);
        return err_set_limit(err, "executions", running, max);
    }
    if (sb->nuncommitted >= EXECUTIONS_UNCOMMITTED_MAX)
        return err_set(err, ERR_BUSY, "the ends of %zu executions of sandbox %s are not stored yet; try again",
                       sb->nuncommitted, sb->id);
    return 0;
}

static void execution_unlink(struct execution *ex)
{
    struct sandbox *sb = ex->sandbox;

    list_remove(&sb->executions, ex);
    sb->nexecutions--;
    sb->nuncommitted -= ex->state == EXECUTION_ENDED;
    if (ex->state != EXECUTION_ENDED)
        budget_execution_cancel(sb->quota);
    usage_meter_execution_end(sb->services->usage_meter);
    ev_timer_clear(sb->services->ev, &ex->retry_timer);
    ev_timer_clear(sb->services->ev, &ex->insert_timer);
    ev_timer_clear(sb->services->ev, &ex->cpu_timer);
    ev_defer_clear(sb->services->ev, &ex->notify_defer);
    execution_unqueue_commit(ex);
    ev_defer_clear(sb->services->ev, &ex->cancel_defer);
    sandbox_restart_idle_timer(sb);
}

void execution_free(struct execution *ex)
{
    for (struct execution_watch *w = ex->watches; w; w = w->next)
        w->execution = NULL;
    for (struct execution_writer *w = ex->input_writers; w; w = w->next)
        w->execution = NULL;
    context_execution_unlink(ex);
    if (ex->insert_request)
        store_request_detach(ex->insert_request);
    if (ex->end_request)
        store_request_detach(ex->end_request);
    fair_queue_release(&ex->start_slot);
    if (ex->sandbox)
        execution_unlink(ex);
    output_close(ex);
    failure_done(&ex->failure);
    files_free(ex->files_job);
    exec_handle_free(ex->exec);
    execution_free_list(ex->argv);
    spec_env_free(ex->env);
    free(ex->code);
    free(ex->cwd);
    free(ex->input);
    free(ex->receipt_json);
    free(ex->error_json);
    free(ex->hint);
    free(ex);
}

/* --- callbacks of the engine --- */

static void execution_send_input(void *arg)
{
    struct execution *ex = arg;

    if (!ex->input) {
        execution_input_writable(ex);
        return;
    }
    ex->input_sent += exec_handle_write(ex->exec, ex->input + ex->input_sent, ex->input_len - ex->input_sent);
    if (ex->input_sent == ex->input_len)
        exec_handle_write_end(ex->exec);
}

static void execution_on_start_committed(void *arg UNUSED, const struct err *err,
                                         const struct store_execution *row UNUSED)
{
    if (err && err->id != ERR_EXISTS && err->id != ERR_MISSING)
        log_warn("cannot store the start of an execution: %s", err->msg);
}

void execution_begin_running(struct execution *ex)
{
    struct store_execution row = { .state = STORE_EXECUTION_RUNNING };

    if (ex->state < EXECUTION_RUNNING)
        execution_set_state(ex->id, &ex->state, EXECUTION_RUNNING);
    if (ex->started_ms)
        return;
    row.started_ms = ex->started_ms = clock_real_ms();
    if (ex->row == EXECUTION_ROW_NONE)
        return;
    memcpy(row.id, ex->id, sizeof(row.id));
    store_execution_update(
        ex->sandbox->services->store, ex->sandbox->owner, &row, STORE_EXECUTION_SET_STATE | STORE_EXECUTION_SET_STARTED,
        &(struct store_condition){ .states = STORE_BIT(STORE_EXECUTION_STARTING) }, execution_on_start_committed, NULL);
}

static void execution_on_started(void *arg)
{
    struct execution *ex = arg;

    execution_begin_running(ex);
    fair_queue_release(&ex->start_slot);
    if (ex->resume_stream)
        ex->input_sent = (size_t)exec_handle_stdin_received(ex->exec);
    if (ex->resume_stream && ex->input)
        ex->input_sent = min_size(ex->input_sent, ex->input_len);
    execution_send_input(ex);
    execution_notify(ex);
}

static void execution_on_output(void *arg, int channel, const void *data, size_t len)
{
    struct execution *ex = arg;

    output_stream_write(&ex->output.stream, channel, data, len);
    execution_notify(ex);
}

static char *execution_code_path(const struct execution *ex)
{
    return str_printf("%s-%s", LANGUAGE_CODE_FILE, ex->id);
}

static void execution_remove_code_file(struct execution *ex)
{
    static const struct files_ops ops = { 0 };
    auto_free char *path = execution_code_path(ex);

    files_free(take_ptr(&ex->files_job));
    (void)files_open(ex->sandbox->handle, &(struct files_request){ FILES_OP_REMOVE, path, .flags = FILES_MISSING_OK },
                     &ops, ex, &ex->files_job, NULL);
}

static void execution_on_exit(void *arg, const struct receipt *r)
{
    struct execution *ex = arg;
    struct err lost;

    if (ex->code_in_file && ex->sandbox->state != SANDBOX_STATE_ENDING)
        execution_remove_code_file(ex);
    if (r->ended_by != ENDED_LOST) {
        execution_end(ex, STORE_EXECUTION_ENDED, r, NULL);
        return;
    }
    err_set(&lost, ERR_LOST, "the sandbox was lost while the program ran");
    execution_end(ex, STORE_EXECUTION_FAILED, r, &lost);
}

static void execution_on_failed(void *arg, const struct err *err)
{
    execution_end(arg, STORE_EXECUTION_FAILED, NULL, err);
}

const struct exec_handle_ops execution_engine_ops = { .on_started = execution_on_started,
                                                      .on_output = execution_on_output,
                                                      .on_writable = execution_send_input,
                                                      .on_exit = execution_on_exit,
                                                      .on_failed = execution_on_failed };

/* --- start --- */

void execution_kill(struct execution *ex)
{
    if (ex->exec)
        exec_handle_kill(ex->exec);
    else
        context_execution_kill(ex);
}

static void execution_on_row_inserted(void *arg, const struct err *err)
{
    struct execution *ex = arg;
    store_execution_fn *done = ex->done;
    struct store_execution row = {
        .created_ms = ex->created_ms, .started_ms = ex->started_ms, .background = ex->background, .tty = ex->spec.tty
    };

    ex->insert_request = NULL;
    ex->done = NULL;
    if (err && ex->end_journaled) {
        ex->row = EXECUTION_ROW_NONE; /* retried with its end */
        return;
    }
    output_set_final_names(ex, !err);
    if (err) {
        if (ex->state != EXECUTION_ENDED)
            execution_kill(ex);
        if (done)
            done(ex->done_arg, err, NULL);
        return;
    }
    ex->row = EXECUTION_ROW_COMMITTED;
    memcpy(row.id, ex->id, sizeof(row.id));
    memcpy(row.sandbox, ex->sandbox->id, sizeof(row.sandbox));
    memcpy(row.owner, ex->sandbox->owner, sizeof(row.owner));
    row.state = ex->started_ms ? STORE_EXECUTION_RUNNING : STORE_EXECUTION_STARTING;
    memcpy(row.context, ex->context_id, sizeof(row.context));
    row.created_by = ex->created_by[0] ? ex->created_by : NULL;
    if (done)
        done(ex->done_arg, NULL, &row);
}

void execution_insert_row(struct execution *ex)
{
    struct store_execution row = { .state = ex->started_ms ? STORE_EXECUTION_RUNNING : STORE_EXECUTION_STARTING,
                                   .created_ms = ex->created_ms,
                                   .started_ms = ex->started_ms,
                                   .background = ex->background,
                                   .tty = ex->spec.tty };
    auto_free char *request = execution_request_json(ex);

    ex->row = EXECUTION_ROW_SUBMITTED;
    ev_timer_clear(ex->sandbox->services->ev, &ex->insert_timer);
    memcpy(row.id, ex->id, sizeof(row.id));
    memcpy(row.sandbox, ex->sandbox->id, sizeof(row.sandbox));
    memcpy(row.owner, ex->sandbox->owner, sizeof(row.owner));
    memcpy(row.context, ex->context_id, sizeof(row.context));
    row.request_json = request;
    row.created_by = ex->created_by[0] ? ex->created_by : NULL;
    ex->insert_request = store_execution_insert(ex->sandbox->services->store, &row, execution_on_row_inserted, ex);
    sandbox_append_event(ex->sandbox, "execution_started", ex->id, NULL);
}

static void execution_on_insert_timer(void *arg)
{
    execution_insert_row(arg);
}

void execution_insert_row_later(struct execution *ex)
{
    struct ev *ev = ex->sandbox->services->ev;

    ev_timer_set(ev, &ex->insert_timer, ev_now(ev) + ROW_INSERT_DELAY_NS, execution_on_insert_timer, ex);
}

/* The call may not have returned yet. */
static void execution_abort_start(struct sandbox_services *s, struct execution *ex, const struct err *err)
{
    if (ex->done)
        sandbox_refuse(s, &(struct sandbox_reply){ .on_execution = ex->done, .arg = ex->done_arg }, err);
    execution_free(ex);
}

static void execution_start(struct execution *ex)
{
    struct err err = { 0 };

    ex->spec.id = ex->id;
    ex->spec.argv = (const char *const *)ex->argv;
    ex->spec.env = (const char *const *)ex->env;
    ex->spec.cwd = ex->cwd;
    ex->spec.stdin_open = ex->input_open || ex->input;
    ex->spec.confirm_end = true;
    if (sandbox_handle_exec(ex->sandbox->handle, &ex->spec, &execution_engine_ops, ex, &ex->exec, &err) < 0) {
        execution_abort_start(ex->sandbox->services, ex, &err);
        return;
    }
    execution_set_state(ex->id, &ex->state, EXECUTION_STARTING);
    ex->sandbox->services->stats->executions++;
    ex->created_mono_ms = sandbox_mono_ms(ex->sandbox);
    if (ex->report_only_end)
        execution_insert_row_later(ex);
    else
        execution_insert_row(ex);
}

static void execution_send_code(void *arg)
{
    struct execution *ex = arg;
    size_t len = strlen(ex->code);

    ex->code_sent += files_send(ex->files_job, ex->code + ex->code_sent, len - ex->code_sent);
    if (ex->code_sent == len)
        files_send_end(ex->files_job);
}

static void execution_on_code_written(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct execution *ex = arg;

    if (err)
        execution_abort_start(ex->sandbox->services, ex, err);
    else
        execution_start(ex);
}

static void execution_write_code_file(struct execution *ex)
{
    static const struct files_ops ops = { .on_writable = execution_send_code, .on_done = execution_on_code_written };
    auto_free char *path = execution_code_path(ex);
    struct err err = { 0 };

    ex->code_in_file = true;
    execution_set_state(ex->id, &ex->state, EXECUTION_STAGING);
    if (files_open(ex->sandbox->handle, &(struct files_request){ FILES_OP_WRITE, path, .mode = 0600 }, &ops, ex,
                   &ex->files_job, &err) < 0)
        execution_abort_start(ex->sandbox->services, ex, &err);
    else
        execution_send_code(ex);
}

/* The loader of a language names one file; concurrent executions need one each. */
static char *execution_code_loader(const struct language *rt, const struct execution *ex)
{
    const char *at = strstr(rt->code_loader, LANGUAGE_CODE_FILE);
    auto_free char *path = execution_code_path(ex);

    return str_printf("%.*s%s%s", (int)(at - rt->code_loader), rt->code_loader, path, at + strlen(LANGUAGE_CODE_FILE));
}

static void execution_set_failure_code(struct execution *ex)
{
    if (ex->code)
        failure_set_code(&ex->failure, ex->sandbox->spec.runtime, ex->code);
    else
        failure_set_argv(&ex->failure, (const char *const *)ex->argv);
}

static int execution_set_code_argv(struct execution *ex, struct err *err)
{
    const struct language *rt = language_by_name(ex->language[0] ? ex->language : ex->sandbox->spec.runtime);
    bool long_ = strlen(ex->code) > CODE_ARG_MAX;
    char path[PATH_MAX];

    if (!rt)
        return err_set(err, ERR_BUG, "sandbox %s has no runtime", ex->sandbox->id);
    const char *template = ex->sandbox->template ? ex->sandbox->template : "";
    if (drivers_ops(ex->sandbox->spec.driver)->find_language(template, rt, path, sizeof(path), err) < 0)
        return -1;
    auto_free char *text = long_ ? execution_code_loader(rt, ex) : str_dup(ex->code);
    const char *const words[] = { path, rt->code_flag, text, rt->code_needs_argv0 ? rt->name : NULL, NULL };
    ex->argv = execution_copy_list(words);
    if (!long_)
        free(take_ptr(&ex->code));
    return 0;
}

static void execution_on_start_slot(void *arg, const struct err *err)
{
    struct execution *ex = arg;

    if (err)
        execution_abort_start(ex->sandbox->services, ex, err);
    else if (ex->code)
        execution_write_code_file(ex);
    else
        execution_start(ex);
}

static void execution_on_sandbox_acquired(void *arg, struct sandbox_handle *sandbox UNUSED, const struct err *err)
{
    struct execution *ex = arg;
    struct sandbox *sb = ex->sandbox; /* found before the request; linked only now */
    struct err why = { 0 };

    ex->sandbox = NULL;
    if (err) { /* the call has returned */
        ex->done(ex->done_arg, err, NULL);
        execution_free(ex);
        return;
    }
    if (budget_check(sb->services->budgets, sb->quota, true, &why) < 0) {
        sandbox_release(sb);
        execution_abort_start(sb->services, ex, &why);
        return;
    }
    bool twice = execution_find(sb, ex->id) != NULL;
    execution_link(ex, sb);
    sandbox_release(sb);
    if (twice) {
        err_set(&why, ERR_IDEMPOTENCY, "execution %s is being started already", ex->id);
        execution_abort_start(sb->services, ex, &why);
        return;
    }
    if (sandbox_check_running_executions(sb, sandbox_running_executions(sb) - 1, &why) < 0) {
        execution_abort_start(sb->services, ex, &why);
        return;
    }
    if (!ex->spec.wall_ms)
        ex->spec.wall_ms = sb->spec.limits.v[LIMIT_WALL];
    if (!ex->spec.cpu_ms)
        ex->spec.cpu_ms = sb->spec.limits.v[LIMIT_CPU_TIME];
    if (!ex->spec.output_max)
        ex->spec.output_max = sb->spec.limits.v[LIMIT_OUTPUT];
    if (ex->spec.tty) {
        ex->output.ring_bytes = ex->spec.output_max ? max_u64(ex->spec.output_max, TERMINAL_RING_MIN) : 0;
        ex->spec.output_max = 0;
    }
    execution_set_failure_code(ex);
    if ((ex->code && execution_set_code_argv(ex, &why) < 0) ||
        quota_reserve_execution(sb->quota, quota_now_ms(sb->services->ev), &why) < 0)
        execution_abort_start(sb->services, ex, &why);
    else
        fair_queue_acquire(&sb->services->executions->start_queue, &sb->quota->start_line, &ex->start_slot,
                           execution_on_start_slot, ex);
}

static int execution_check_argv_size(const struct execution_spec *s, struct err *err)
{
    size_t sum = 0;

    for (size_t i = 0; s->argv && s->argv[i]; i++)
        sum += strlen(s->argv[i]) + 4;
    if (sum > WORDS_MAX)
        return err_set(err, ERR_INVALID,
                       "command: the arguments have %zu bytes, the maximum is %llu; use a file or stdin", sum,
                       WORDS_MAX);
    return 0;
}

void manager_execute(struct manager *m, const char *owner, const char *sandbox, const char *id,
                     const struct execution_spec *s, store_execution_fn *done, void *arg)
{
    struct sandbox_services *services = manager_sandbox_services(m);
    struct err err = { 0 };

    if (default_context_serves(s)) {
        default_context_execute(m, owner, sandbox, id, s, done, arg);
        return;
    }
    if (execution_check_argv_size(s, &err) < 0) {
        sandbox_refuse(services, &(struct sandbox_reply){ .on_execution = done, .arg = arg }, &err);
        return;
    }
    struct execution *ex = execution_alloc(id);
    ex->done = done;
    ex->done_arg = arg;
    ex->code = s->code ? str_dup(s->code) : NULL;
    ex->argv = s->argv ? execution_copy_list(s->argv) : NULL;
    ex->env = execution_copy_list(s->env);
    if (s->cwd)
        ex->cwd = s->cwd[0] == '/' ? str_dup(s->cwd) : str_printf("/workspace/%s", s->cwd);
    if (s->input) {
        ex->input = str_dup_n(s->input, s->input_len);
        ex->input_len = s->input_len;
    }
    (void)str_copy(ex->language, sizeof(ex->language), s->language ? s->language : "");
    ex->input_open = s->input_open;
    ex->background = s->background;
    (void)str_copy(ex->created_by, sizeof(ex->created_by), s->created_by ? s->created_by : "");
    (void)str_copy(ex->request_id, sizeof(ex->request_id), s->request_id ? s->request_id : "");
    ex->report_only_end = s->report_only_end;
    ex->spec.wall_ms = s->timeout_ms;
    ex->spec.cpu_ms = s->cpu_ms;
    ex->spec.output_max = s->output_max;
    ex->spec.changes = s->changes;
    ex->spec.tty = s->tty;
    ex->spec.rows = s->rows;
    ex->spec.cols = s->cols;
    ex->sandbox = recovery_is_loaded(services->recovery) ? registry_find(services->registry, owner, sandbox) : NULL;
    sandbox_acquire_at_once(services, owner, sandbox, execution_on_sandbox_acquired, ex);
}
