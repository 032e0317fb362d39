/* Writes the input files, then starts the program: a command as it is; code goes to the language
 * kernel, which waits in the sandbox already or is started.
 *
 * Everything that the language kernel sends is hostile input (service/kernel_event.h); unexpected
 * events are dropped.
 *
 * The timeout of code starts when the language kernel is ready, so the start of the interpreter
 * does not count. After the timeout the code is interrupted first, so that it can produce a
 * traceback, and killed after a grace period. The grace period is short, because no state of the
 * interpreter has to be saved. */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"
#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/context.h"

#include <signal.h>
#include <stdio.h>

#define START_NS (60 * NS_PER_S)
#define GRACE_NS (1 * NS_PER_S)
#define INPUT_LINE_MAX (60000u) /* every language kernel accepts this much as one answer */

static void run_start_program(struct run *r);

/* --- input files --- */

static void run_stage_next_file(struct run *r);

static void run_on_stage_writable(void *arg)
{
    struct run *r = arg;
    const struct run_file *f = &r->request.files[r->file_index];

    r->file_sent += files_send(r->files_job, f->data + r->file_sent, f->len - r->file_sent);
    if (r->file_sent == f->len)
        files_send_end(r->files_job);
}

static void run_on_file_staged(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct run *r = arg;
    struct err why;

    files_free(take_ptr(&r->files_job));
    if (r->state != RUN_STAGING)
        return;
    if (err) {
        err_set(&why, err->id, "files[%zu]: %.180s", r->file_index, err->msg);
        run_fail(r, &why);
        return;
    }
    r->file_index++;
    run_stage_next_file(r);
}

static const struct files_ops run_stage_ops = { .on_writable = run_on_stage_writable, .on_done = run_on_file_staged };

static void run_stage_next_file(struct run *r)
{
    struct err err = { 0 };

    if (r->file_index == r->request.nfiles) {
        run_start_program(r);
        return;
    }
    r->file_sent = 0;
    if (files_write(r->sandbox.handle, r->request.files[r->file_index].path, 0, FILES_PARENTS, &run_stage_ops, r,
                    &r->files_job, &err) < 0)
        run_fail(r, &err);
    else
        run_on_stage_writable(r);
}

void run_stage_files(struct run *r)
{
    run_stage_next_file(r);
}

void run_reset_program(struct run *r)
{
    files_free(take_ptr(&r->files_job));
    exec_handle_free(take_ptr(&r->exec));
    kernel_event_reader_reset(&r->kernel_reader);
    buf_clear(&r->kernel_out);
    r->file_index = r->file_sent = r->input_sent = 0;
    r->interrupt_sent = r->uses_prepared_interpreter = false;
    r->stderr_head[0] = '\0';
    r->started_ns = 0;
}

/* --- to the program --- */

static void run_send_input(struct run *r)
{
    r->input_sent += exec_handle_write(r->exec, r->request.input + r->input_sent, r->request.input_len - r->input_sent);
    if (r->input_sent == r->request.input_len)
        exec_handle_write_end(r->exec);
}

static void run_send_kernel_line(struct run *r)
{
    size_t n = r->kernel_out.len ? exec_handle_write_language_kernel(r->exec, r->kernel_out.data, r->kernel_out.len)
                                 : 0;

    if (n == r->kernel_out.len)
        buf_clear(&r->kernel_out);
    else
        buf_drop(&r->kernel_out, n);
}

static void run_on_program_writable(void *arg)
{
    struct run *r = arg;

    if (!r->exec || r->state == RUN_DONE)
        return;
    if (r->request.code)
        run_send_kernel_line(r);
    else if (r->request.input)
        run_send_input(r);
}

static void run_send_kernel_request(struct run *r, const char *op, const char *key, const char *text)
{
    struct jsonw w;

    jsonw_init(&w, &r->kernel_out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "op", op);
    jsonw_kstr(&w, "id", r->id);
    if (text)
        jsonw_kstr(&w, key, text);
    else
        jsonw_kbool(&w, "eof", true);
    jsonw_end_object(&w);
    buf_adds(&r->kernel_out, "\n");
    run_send_kernel_line(r);
}

/* Sends one line of the request's standard input. A language kernel that requests input has read
 * everything before it: while earlier lines are unsent, requests are ignored, so that untrusted
 * code cannot make answers accumulate here. */
static void run_answer_input_request(struct run *r)
{
    const char *from = r->request.input ? r->request.input + r->input_sent : "";
    size_t left = r->request.input ? r->request.input_len - r->input_sent : 0, n = 0;

    if (r->kernel_out.len > 0)
        return;
    while (n < left && n < INPUT_LINE_MAX && from[n] != '\n')
        n++;
    if (left == 0) {
        run_send_kernel_request(r, "input", NULL, NULL);
        return;
    }
    auto_free char *line = str_dup_n(from, n);
    r->input_sent += n + (n < left && from[n] == '\n');
    run_send_kernel_request(r, "input", "text", line);
}

/* --- timers --- */

static void run_on_timer(void *arg)
{
    struct run *r = arg;

    if (r->state == RUN_RUNNING && !r->interrupt_sent)
        run_interrupt(r, ENDED_WALL);
    else
        exec_handle_kill(r->exec);
}

static void run_set_timer(struct run *r, uint64_t ns)
{
    ev_timer_set(r->executor->settings.ev, &r->timer, ev_now(r->executor->settings.ev) + ns, run_on_timer, r);
}

void run_interrupt(struct run *r, enum ended_by by)
{
    r->interrupt_sent = true;
    r->stop_cause = by;
    exec_handle_signal(r->exec, SIGINT);
    run_set_timer(r, GRACE_NS);
}

/* --- from the language kernel --- */

/* Code that ends itself is a program with an exit status, not an exception. Language kernels report
 * it as an error, because in a context it is one: there the interpreter continues. */
static bool run_is_exit_event(const struct run *r, const struct kernel_event *e, int *ret)
{
    static const char *const names[][2] = { { "python", "SystemExit" }, { "node", "Exit" }, { "bash", "ExitStatus" } };
    const char *name = json_string_value(json_object_get(e->root, "name"));
    const char *value = json_string_value(json_object_get(e->root, "value"));
    uint64_t code = 0;

    if (e->kind != KERNEL_EVENT_ERROR || !name || !value)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!str_eq(r->request.language, names[i][0]) || !str_eq(name, names[i][1]))
            continue;
        bool none = i == 0 && (str_eq(value, "") || str_eq(value, "None"));
        if (!none && !str_to_u64(value, UINT32_MAX, &code))
            return false;
        *ret = (int)(code & 0xff);
        return true;
    }
    return false;
}

static void run_on_code_finished(struct run *r, const struct kernel_event *e)
{
    r->kernel_status = e->status;
    if (e->status == KERNEL_STATUS_INTERRUPTED && r->interrupt_sent)
        run_make_receipt(r, r->stop_cause, -1, SIGINT);
    else if (e->status == KERNEL_STATUS_INTERRUPTED)
        run_make_receipt(r, ENDED_SIGNAL, -1, SIGINT);
    else
        run_make_receipt(r, ENDED_EXIT, e->status == KERNEL_STATUS_OK ? 0 : r->exited_itself ? r->exit_status : 1, 0);
    run_program_ended(r);
}

/* From here on the timeout runs, and output belongs to the code. */
static void run_begin_code(struct run *r, uint64_t cpu_base_ns)
{
    r->cpu_base_ns = cpu_base_ns;
    run_set_timer(r, r->request.timeout_ms * NS_PER_MS);
    run_program_started(r);
    run_send_kernel_request(r, "execute", "code", r->request.code);
}

static void run_on_kernel_event(void *arg, const struct kernel_event *e)
{
    struct run *r = arg;

    if (r->has_receipt || r->state < RUN_STARTING || r->state > RUN_RUNNING)
        return;
    if (!e) {
        r->events_dropped++; /* the rejected line may have been a result */
        return;
    }
    if (e->kind == KERNEL_EVENT_READY && r->state == RUN_STARTING)
        run_begin_code(r, sandbox_handle_cpu_ns(r->sandbox.handle));
    if (r->state != RUN_RUNNING || !str_eq(e->id, r->id))
        return;
    if (run_is_exit_event(r, e, &r->exit_status)) {
        r->exited_itself = true;
    } else if (e->kind == KERNEL_EVENT_DISPLAY || e->kind == KERNEL_EVENT_RESULT || e->kind == KERNEL_EVENT_ERROR) {
        run_add_kernel_event(r, e);
    } else if (e->kind == KERNEL_EVENT_INPUT) {
        run_answer_input_request(r);
    } else if (e->kind == KERNEL_EVENT_FINISHED) {
        run_on_code_finished(r, e);
    }
}

static void run_on_kernel_bytes(void *arg, const void *data, size_t len)
{
    struct run *r = arg;

    if (r->state != RUN_DONE)
        kernel_event_reader_feed(&r->kernel_reader, data, len, run_on_kernel_event, r);
}

/* --- from the program --- */

static void run_on_program_output(void *arg, int channel, const void *data, size_t len)
{
    struct run *r = arg;
    size_t had = strlen(r->stderr_head);

    if (r->state == RUN_RUNNING && !r->has_receipt)
        run_add_output(r, channel, data, len);
    if (r->request.code && channel == 2 && had < sizeof(r->stderr_head) - 1)
        snprintf(r->stderr_head + had, sizeof(r->stderr_head) - had, "%.*s", (int)min_size(len, sizeof(r->stderr_head)),
                 (const char *)data);
}

static void run_on_program_started(void *arg)
{
    struct run *r = arg;

    if (!r->request.code)
        run_program_started(r);
}

static void run_set_death_error(struct run *r, const struct receipt *x)
{
    r->has_error = true;
    if (r->state == RUN_STARTING && x->ended_by == ENDED_KILLED)
        err_set(&r->error, ERR_TIMEOUT, "the interpreter was not ready within %llu s", START_NS / NS_PER_S);
    else if (x->ended_by == ENDED_MEMORY)
        err_set(&r->error, ERR_CONTEXT_DEAD, "the interpreter was killed because it reached the memory limit");
    else if (x->ended_by == ENDED_EXIT)
        err_set(&r->error, ERR_CONTEXT_DEAD, "the interpreter ended with status %d%s%.120s", x->exit_code,
                r->stderr_head[0] ? ": " : "", r->stderr_head);
    else if (x->ended_by == ENDED_SIGNAL)
        err_set(&r->error, ERR_CONTEXT_DEAD, "the interpreter was ended by signal %d", x->signal);
    else if (x->ended_by == ENDED_LOST)
        err_set(&r->error, ERR_LOST, "the sandbox was lost while the code ran");
    else
        err_set(&r->error, ERR_CONTEXT_DEAD, "the interpreter was ended (%s)", ended_by_name(x->ended_by));
    str_strip_control_chars(r->error.msg);
}

/* The language kernel ended before it reported how the code ended. */
static void run_on_kernel_died(struct run *r, const struct receipt *x)
{
    bool started = r->state == RUN_RUNNING, killed = x->ended_by == ENDED_KILLED;

    if (started && killed && (r->interrupt_sent || r->stop_requested)) {
        run_make_receipt(r, r->stop_cause, -1, 0);
        r->receipt.signal = 0;
    } else if (!started && r->stop_requested) {
        run_fail(r, &r->error); /* the error of its tenant */
        return;
    } else {
        run_set_death_error(r, x);
        if (!started || x->ended_by == ENDED_LOST) {
            run_fail(r, &r->error);
            return;
        }
        run_make_receipt(r, x->ended_by, x->exit_code, x->signal);
    }
    run_program_ended(r);
}

static void run_on_program_receipt(struct run *r, const struct receipt *x)
{
    if (r->has_receipt || r->state == RUN_DONE)
        return;
    if (r->request.code) {
        run_on_kernel_died(r, x);
        return;
    }
    if (x->ended_by == ENDED_LOST) {
        run_set_death_error(r, x);
        run_fail(r, &r->error);
        return;
    }
    r->receipt = *x;
    r->has_receipt = true;
    if (r->stop_requested && x->ended_by == ENDED_KILLED)
        r->receipt.ended_by = r->stop_cause;
    run_program_ended(r);
}

/* An interpreter lives until its sandbox is destroyed, after the result was delivered: only then
 * its denials are known. The same holds for a program that was stopped without waiting for its
 * end. */
static void run_on_program_exit(void *arg, const struct receipt *x)
{
    struct run *r = arg;

    run_on_program_receipt(r, x);
    if (r->request.code || !r->has_receipt)
        ephemeral_sandbox_count_denials(&r->sandbox, x);
}

/* A prepared interpreter that died before it was claimed has run nothing: start a new one. */
static void run_on_program_failed(void *arg, const struct err *err)
{
    struct run *r = arg;

    if (r->uses_prepared_interpreter && err->id == ERR_LOST && !r->stop_requested && r->state < RUN_GATHERING &&
        sandbox_handle_accepts_exec(r->sandbox.handle)) {
        ev_timer_clear(r->executor->settings.ev, &r->timer);
        run_reset_program(r);
        r->cold_start_only = true;
        r->executor->stats.by_pool_result[r->sandbox.source.loan.result]--;
        r->sandbox.source.loan.result = sandbox_source_is_member(&r->sandbox.source) ? POOL_PARTIAL : POOL_MISS;
        r->executor->stats.by_pool_result[r->sandbox.source.loan.result]++;
        run_start_program(r);
    } else {
        run_fail(r, err);
    }
}

static const struct exec_handle_ops run_exec_ops = { .on_started = run_on_program_started,
                                                     .on_output = run_on_program_output,
                                                     .on_writable = run_on_program_writable,
                                                     .on_exit = run_on_program_exit,
                                                     .on_failed = run_on_program_failed,
                                                     .on_language_kernel_data = run_on_kernel_bytes };

/* --- start --- */

static int run_start_code(struct run *r, struct err *err)
{
    static const char *const member[] = { "kernel", NULL };
    const char *zygote = r->spec.zygote.language;
    bool join = zygote && str_eq(zygote, r->request.language) && !r->cold_start_only,
         joined = join && sandbox_handle_has_interpreter(r->sandbox.handle);
    struct context_command command;
    struct exec_spec spec = { .id = r->id,
                              .request = r->request.request_id,
                              .argv = member,
                              .env = r->request.env,
                              .cwd = r->request.cwd,
                              .unmetered = true,
                              .is_language_kernel = true,
                              .use_waiting_interpreter = joined,
                              .prefer_interpreter = join };

    if (!joined && context_kernel_command(r->request.language, &command, err) < 0)
        return -1;
    if (!joined)
        spec.argv = command.argv;
    if (sandbox_handle_exec(r->sandbox.handle, &spec, &run_exec_ops, r, &r->exec, err) < 0)
        return -1;
    run_set_timer(r, START_NS);
    r->uses_prepared_interpreter = join;
    if (joined) /* it reads the request when it is ready, so do not wait for READY */
        run_begin_code(r, exec_handle_cpu_base(r->exec) ? exec_handle_cpu_base(r->exec) : SANDBOX_USAGE_UNKNOWN);
    return 0;
}

static int run_start_command(struct run *r, struct err *err)
{
    struct exec_spec spec = { .id = r->id,
                              .request = r->request.request_id,
                              .argv = r->request.argv,
                              .env = r->request.env,
                              .cwd = r->request.cwd,
                              .stdin_open = r->request.input != NULL,
                              .wall_ms = r->request.timeout_ms };

    if (sandbox_handle_exec(r->sandbox.handle, &spec, &run_exec_ops, r, &r->exec, err) < 0)
        return -1;
    if (r->request.input)
        run_send_input(r);
    return 0;
}

static void run_start_program(struct run *r)
{
    struct err err = { 0 };

    r->state = RUN_STARTING;
    if ((r->request.code ? run_start_code(r, &err) : run_start_command(r, &err)) < 0)
        run_fail(r, &err);
}
