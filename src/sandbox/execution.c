/* One execution from its request to its row's last word.
 *
 * The program is started and its row inserted side by side; `done` waits for the row. Where nobody is told of it before
 * its end (at_end), the row waits too: most programs that are waited for are over in a moment, and then beginning and
 * end are one commit. Output goes to files as it comes (output.c) and watches are told once a turn. The end is one
 * update with everything in it (finish.c).
 *
 * Invariants:
 * 1. An execution that was told to anybody has a row, and the row gets an end: its own, or that it was lost.
 * 2. Whatever a watch was told of is in a file or the row already.
 * 3. The first execution of a sandbox stays with it to its end: if it remains the only one, the sandbox's final sums
 * are its own, and its receipt is completed with them. */
#include "sandbox/contexts.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <limits.h>
#include <stdio.h>

#define CODE_ARG_MAX (16 * KIB) /* a longer text goes by file: all arguments together have to fit into one frame */
#define WORDS_MAX (56 * KIB)
#define INPUT_STORED_MAX (512 * KIB) /* to go on with after a restart; a longer input just ends there */
#define RING_MIN (64 * KIB)
#define MOMENT_NS (5 * NS_PER_MS) /* a program that runs for longer gets its row before its end */

/* --- the object --- */

char **ex_copy_list(const char *const *list)
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

static void free_list(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

struct ex *ex_alloc(const char *id)
{
    struct ex *ex = mem_new(struct ex);

    if (id)
        memcpy(ex->id, id, sizeof(ex->id));
    else
        id_new("ex", ex->id);
    ex->spec.request = ex->request;
    ex->fd[0] = ex->fd[1] = ex->fd[2] = -1;
    ex->created_ms = now_ms();
    return ex;
}

void ex_link(struct ex *ex, struct sb *sb)
{
    for (struct ex *other = sb->execs; other; other = other->next)
        other->alone = false;
    ex->sb = sb;
    ex->paused_ms = sb->paused_ms;
    ex->next = sb->execs;
    sb->execs = ex;
    sb->nexecs++;
    sb->m->looks.executing++;
    sb_busy(sb);
}

struct ex *ex_new(struct sb *sb, const char *id)
{
    struct ex *ex = ex_alloc(id);

    ex->submitted = true; /* it comes from its row */
    ex_link(ex, sb);
    return ex;
}

static void ex_unlink(struct ex *ex)
{
    struct sb *sb = ex->sb;
    struct ex **p = &sb->execs;

    while (*p != ex)
        p = &(*p)->next;
    *p = ex->next;
    sb->nexecs--;
    sb->m->looks.executing--;
    ev_timer_clear(sb->m->ev, &ex->retry);
    ev_timer_clear(sb->m->ev, &ex->note);
    ev_defer_clear(sb->m->ev, &ex->tell);
    ex_not_told(ex);
    ev_defer_clear(sb->m->ev, &ex->cancel);
    sb_busy(sb);
}

void ex_free(struct ex *ex)
{
    for (struct watch *w = ex->watches; w; w = w->next)
        w->ex = NULL;
    for (struct writer *w = ex->writers; w; w = w->next)
        w->ex = NULL;
    call_forget(ex);
    if (ex->inserting)
        store_forget(ex->inserting);
    if (ex->ending)
        store_forget(ex->ending);
    turn_end(&ex->turn);
    if (ex->sb)
        ex_unlink(ex);
    output_close(ex);
    files_free(ex->job);
    exec_free(ex->exec);
    free_list(ex->argv);
    spec_env_free(ex->env);
    free(ex->code);
    free(ex->cwd);
    free(ex->input);
    free(ex->receipt_json);
    free(ex->error_json);
    free(ex);
}

/* --- what the engine tells --- */

static void send_input(void *arg)
{
    struct ex *ex = arg;

    if (!ex->input) {
        input_room(ex);
        return;
    }
    ex->input_sent += exec_write(ex->exec, ex->input + ex->input_sent, ex->input_len - ex->input_sent);
    if (ex->input_sent == ex->input_len)
        exec_write_end(ex->exec);
}

static void on_start_stored(void *arg UNUSED, const struct err *err, const struct store_execution *row UNUSED)
{
    if (err && err->id != ERR_EXISTS && err->id != ERR_MISSING)
        log_warn("the start of an execution was not written down: %s", err->msg);
}

static void on_started(void *arg)
{
    struct ex *ex = arg;
    struct store_execution row = { .state = STORE_EX_RUNNING };

    ex->started = true;
    turn_end(&ex->turn);
    if (!ex->started_ms)
        row.started_ms = ex->started_ms = now_ms();
    if (row.started_ms && ex->submitted) {
        memcpy(row.id, ex->id, sizeof(row.id));
        store_execution_update(ex->sb->m->store, ex->sb->owner, &row, STORE_EX_SET_STATE | STORE_EX_SET_STARTED,
                               &(struct store_when){ .states = STORE_BIT(STORE_EX_STARTING) }, on_start_stored, NULL);
    }
    if (ex->stream)
        ex->input_sent = (size_t)exec_received(ex->exec);
    if (ex->stream && ex->input)
        ex->input_sent = min_size(ex->input_sent, ex->input_len);
    send_input(ex);
    ex_tell(ex);
}

static void on_output(void *arg, int channel, const void *data, size_t len)
{
    struct ex *ex = arg;

    output_append(ex, channel, data, len);
    ex_tell(ex);
}

static char *code_path(const struct ex *ex)
{
    return str_printf("%s-%s", RUNTIME_CODE_FILE, ex->id);
}

static void remove_code(struct ex *ex)
{
    static const struct files_ops ops = { 0 };
    auto_free char *path = code_path(ex);

    files_free(take_ptr(&ex->job));
    (void)files_remove(ex->sb->box, path, FILES_MISSING_OK, &ops, ex, &ex->job, NULL);
}

static void on_exit_(void *arg, const struct receipt *r)
{
    struct ex *ex = arg;
    struct err lost;

    if (ex->by_file && ex->sb->state != SB_ENDING)
        remove_code(ex);
    if (r->ended_by != ENDED_LOST) {
        ex_end(ex, STORE_EX_ENDED, r, NULL);
        return;
    }
    err_set(&lost, ERR_LOST, "the sandbox was lost while it ran");
    ex_end(ex, STORE_EX_FAILED, r, &lost);
}

static void on_failed(void *arg, const struct err *err)
{
    ex_end(arg, STORE_EX_FAILED, NULL, err);
}

const struct exec_ops ex_exec_ops = { .on_started = on_started,
                                      .on_output = on_output,
                                      .on_writable = send_input,
                                      .on_exit = on_exit_,
                                      .on_failed = on_failed };

/* --- starting --- */

static char *request_json(const struct ex *ex)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    if (ex->exec) {
        jsonw_ku64(&w, "stream", exec_stream(ex->exec));
        jsonw_ku64(&w, "cpuBaseNs", exec_cpu_base(ex->exec));
    } else {
        jsonw_kstr(&w, "context", ex->context);
    }
    if (ex->request[0])
        jsonw_kstr(&w, "requestId", ex->request);
    jsonw_ku64(&w, "timeoutMs", ex->spec.wall_ms);
    jsonw_ku64(&w, "cpuTimeMs", ex->spec.cpu_ms);
    jsonw_ku64(&w, "outputBytes", ex->spec.output_max);
    jsonw_ku64(&w, "pausedMs", ex->paused_ms);
    jsonw_ku64(&w, "createdMonoMs", ex->created_mono_ms);
    jsonw_kbool(&w, "changes", ex->spec.changes);
    if (ex->input && ex->input_len <= INPUT_STORED_MAX)
        jsonw_kstr(&w, "stdin", ex->input);
    if (ex->input_open)
        jsonw_kbool(&w, "stdinOpen", true);
    if (ex->spec.tty) {
        jsonw_kbool(&w, "tty", true);
        jsonw_ku64(&w, "rows", ex->spec.rows);
        jsonw_ku64(&w, "cols", ex->spec.cols);
        jsonw_ku64(&w, "ring", ex->ring);
    }
    jsonw_end_object(&w);
    return out.data;
}

char *ex_told_request(const struct ex *ex)
{
    static char terminal[] = "{\"tty\":true}";

    return ex->spec.tty ? terminal : ex->told[0] ? (char *)ex->told : NULL;
}

void ex_kill(struct ex *ex)
{
    if (ex->exec)
        exec_kill(ex->exec);
    else
        call_kill(ex);
}

static void on_inserted(void *arg, const struct err *err)
{
    struct ex *ex = arg;
    store_execution_fn *done = ex->done;
    struct store_execution row = { .created_ms = ex->created_ms,
                                   .started_ms = ex->started_ms,
                                   .background = ex->background };

    ex->inserting = NULL;
    ex->done = NULL;
    if (err && ex->noted) {
        ex->submitted = false; /* tried again with its end */
        return;
    }
    output_name(ex, !err);
    if (err) {
        if (!ex->ended)
            ex_kill(ex);
        done(ex->done_arg, err, NULL);
        return;
    }
    ex->inserted = true;
    memcpy(row.id, ex->id, sizeof(row.id));
    memcpy(row.sandbox, ex->sb->id, sizeof(row.sandbox));
    memcpy(row.owner, ex->sb->owner, sizeof(row.owner));
    row.state = ex->started ? STORE_EX_RUNNING : STORE_EX_STARTING;
    row.request_json = ex_told_request(ex);
    row.created_by = ex->created_by[0] ? ex->created_by : NULL;
    if (done)
        done(ex->done_arg, NULL, &row);
}

void ex_insert(struct ex *ex)
{
    struct store_execution row = { .state = ex->started ? STORE_EX_RUNNING : STORE_EX_STARTING,
                                   .created_ms = ex->created_ms,
                                   .started_ms = ex->started_ms,
                                   .background = ex->background };
    auto_free char *request = request_json(ex);

    ex->submitted = true;
    ev_timer_clear(ex->sb->m->ev, &ex->note);
    memcpy(row.id, ex->id, sizeof(row.id));
    memcpy(row.sandbox, ex->sb->id, sizeof(row.sandbox));
    memcpy(row.owner, ex->sb->owner, sizeof(row.owner));
    row.request_json = request;
    row.created_by = ex->created_by[0] ? ex->created_by : NULL;
    ex->inserting = store_execution_insert(ex->sb->m->store, &row, on_inserted, ex);
    sb_event(ex->sb, "execution_started", ex->id, NULL);
}

static void on_moment(void *arg)
{
    ex_insert(arg);
}

static void give_up(struct ex *ex, const struct err *err)
{
    if (ex->done)
        ex->done(ex->done_arg, err, NULL);
    ex_free(ex);
}

static void start(struct ex *ex)
{
    struct err err = { 0 };

    ex->spec.id = ex->id;
    ex->spec.argv = (const char *const *)ex->argv;
    ex->spec.env = (const char *const *)ex->env;
    ex->spec.cwd = ex->cwd;
    ex->spec.stdin_open = ex->input_open || ex->input;
    ex->spec.confirm = true;
    if (box_exec(ex->sb->box, &ex->spec, &ex_exec_ops, ex, &ex->exec, &err) < 0) {
        give_up(ex, &err);
        return;
    }
    ex->sb->m->stats.executions++;
    ex->created_mono_ms = mono_ms(ex->sb->m);
    if (ex->at_end)
        ev_timer_set(ex->sb->m->ev, &ex->note, ev_now(ex->sb->m->ev) + MOMENT_NS, on_moment, ex);
    else
        ex_insert(ex);
}

static void send_code(void *arg)
{
    struct ex *ex = arg;
    size_t len = strlen(ex->code);

    ex->code_sent += files_send(ex->job, ex->code + ex->code_sent, len - ex->code_sent);
    if (ex->code_sent == len)
        files_send_end(ex->job);
}

static void on_code_there(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct ex *ex = arg;

    if (err)
        give_up(ex, err);
    else
        start(ex);
}

static void write_code(struct ex *ex)
{
    static const struct files_ops ops = { .on_writable = send_code, .on_done = on_code_there };
    auto_free char *path = code_path(ex);
    struct err err = { 0 };

    ex->by_file = true;
    if (files_write(ex->sb->box, path, 0600, 0, &ops, ex, &ex->job, &err) < 0)
        give_up(ex, &err);
    else
        send_code(ex);
}

/* The loader of a runtime names one file; executions side by side need one each. */
static char *loader(const struct runtime *rt, const struct ex *ex)
{
    const char *at = strstr(rt->code_loader, RUNTIME_CODE_FILE);
    auto_free char *path = code_path(ex);

    return str_printf("%.*s%s%s", (int)(at - rt->code_loader), rt->code_loader, path, at + strlen(RUNTIME_CODE_FILE));
}

static int code_argv(struct ex *ex, struct err *err)
{
    const struct runtime *rt = runtime_by_name(ex->sb->spec.runtime);
    bool long_ = strlen(ex->code) > CODE_ARG_MAX;
    char path[PATH_MAX];

    if (!rt)
        return err_set(err, ERR_BUG, "sandbox %s has no runtime", ex->sb->id);
    if (runtime_find(rt, runtime_dirs, path, sizeof(path), err) < 0)
        return -1;
    auto_free char *text = long_ ? loader(rt, ex) : str_dup(ex->code);
    const char *const words[] = { path, rt->code_flag, text, rt->code_zero ? rt->name : NULL, NULL };
    ex->argv = ex_copy_list(words);
    if (!long_)
        free(take_ptr(&ex->code));
    return 0;
}

static void on_turn(void *arg, const struct err *err)
{
    struct ex *ex = arg;

    if (err)
        give_up(ex, err);
    else if (ex->code)
        write_code(ex);
    else
        start(ex);
}

static void on_box(void *arg, struct box *box UNUSED, const struct err *err)
{
    struct ex *ex = arg;
    struct sb *sb = ex->sb; /* found before it was asked for; linked only now */
    struct err why = { 0 };

    ex->sb = NULL;
    if (err) {
        give_up(ex, err);
        return;
    }
    if (budget_check(sb->m, sb->owner, true, &why) < 0) {
        manager_release(sb->m, sb->id);
        give_up(ex, &why);
        return;
    }
    bool twice = ex_find(sb, ex->id) != NULL;
    ex_link(ex, sb);
    manager_release(sb->m, sb->id);
    if (twice) {
        err_set(&why, ERR_IDEMPOTENCY, "execution %s is being started already", ex->id);
        give_up(ex, &why);
        return;
    }
    if (sb->nexecs > sb->m->set.executions_max) {
        err_set(&why, ERR_LIMIT, "sandbox %s runs %zu executions already, and no more at one time", sb->id,
                sb->nexecs - 1);
        give_up(ex, &why);
        return;
    }
    if (!ex->spec.wall_ms)
        ex->spec.wall_ms = sb->spec.limits.v[LIMIT_WALL];
    if (!ex->spec.cpu_ms)
        ex->spec.cpu_ms = sb->spec.limits.v[LIMIT_CPU_TIME];
    if (!ex->spec.output_max)
        ex->spec.output_max = sb->spec.limits.v[LIMIT_OUTPUT];
    if (ex->spec.tty) {
        ex->ring = ex->spec.output_max ? max_u64(ex->spec.output_max, RING_MIN) : 0;
        ex->spec.output_max = 0;
    }
    if ((ex->code && code_argv(ex, &why) < 0) ||
        share_take_execution(sb->share, share_now(sb->m), &sb->m->refusal, &why) < 0)
        give_up(ex, &why);
    else
        turns_ask(&sb->m->starts, &sb->share->starts, &ex->turn, on_turn, ex);
}

static int check_words(const struct execution_spec *s, struct err *err)
{
    size_t sum = 0;

    for (size_t i = 0; s->argv && s->argv[i]; i++)
        sum += strlen(s->argv[i]) + 4;
    if (sum > WORDS_MAX)
        return err_set(err, ERR_INVALID, "command: its words have %zu bytes, and at most %llu fit; use a file or stdin",
                       sum, WORDS_MAX);
    return 0;
}

void manager_execute(struct manager *m, const char *owner, const char *sandbox, const char *id,
                     const struct execution_spec *s, store_execution_fn *done, void *arg)
{
    struct err err = { 0 };

    if (check_words(s, &err) < 0) {
        done(arg, &err, NULL);
        return;
    }
    struct ex *ex = ex_alloc(id);
    ex->done = done;
    ex->done_arg = arg;
    ex->code = s->code ? str_dup(s->code) : NULL;
    ex->argv = s->argv ? ex_copy_list(s->argv) : NULL;
    ex->env = ex_copy_list(s->env);
    if (s->cwd)
        ex->cwd = s->cwd[0] == '/' ? str_dup(s->cwd) : str_printf("/workspace/%s", s->cwd);
    if (s->input) {
        ex->input = str_dup_n(s->input, s->input_len);
        ex->input_len = s->input_len;
    }
    ex->input_open = s->input_open;
    ex->background = s->background;
    (void)str_copy(ex->created_by, sizeof(ex->created_by), s->created_by ? s->created_by : "");
    (void)str_copy(ex->request, sizeof(ex->request), s->request ? s->request : "");
    ex->at_end = s->at_end;
    ex->spec.wall_ms = s->timeout_ms;
    ex->spec.cpu_ms = s->cpu_ms;
    ex->spec.output_max = s->output_max;
    ex->spec.changes = s->changes;
    ex->spec.tty = s->tty;
    ex->spec.rows = s->rows;
    ex->spec.cols = s->cols;
    ex->sb = m->loaded ? sb_find(m, owner, sandbox) : NULL;
    manager_use(m, owner, sandbox, on_box, ex);
}

/* --- after a restart --- */

static uint64_t elapsed_ms(const struct ex *ex)
{
    const struct sb *sb = ex->sb;
    uint64_t now = sb->paused_at_ms ? sb->paused_at_ms : mono_ms(sb->m);
    uint64_t from = ex->created_mono_ms ? ex->created_mono_ms : now;
    uint64_t paused = sb->paused_ms > ex->paused_ms ? sb->paused_ms - ex->paused_ms : 0;

    return now > from + paused ? now - from - paused : 0;
}

int ex_resume(struct ex *ex, struct err *err)
{
    struct exec_resume resume = { .stream = ex->stream, .elapsed_ms = elapsed_ms(ex) };

    if (output_load(ex) < 0)
        return err_sys(err, ERR_SYS, "the output of %s", ex->id);
    resume.stored[0] = ex->len[0];
    resume.stored[1] = ex->len[1];
    resume.started_real_ns = ex->started_ms * NS_PER_MS;
    resume.cpu_base_ns = ex->cpu_base_ns;
    ex->spec.id = ex->id;
    ex->spec.stdin_open = ex->input_open || ex->input;
    ex->spec.confirm = true;
    return box_exec_resume(ex->sb->box, &ex->spec, &resume, &ex_exec_ops, ex, &ex->exec, err);
}
