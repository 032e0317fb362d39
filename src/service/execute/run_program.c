/* Writes the input files, then starts the program: a command as it is; code goes to the language
 * kernel (service/language_kernel.h), which waits in the sandbox already or is started.
 *
 * The timeout of code starts when the language kernel is ready, so the start of the interpreter
 * does not count. After the timeout the code is interrupted first, so that it can produce a
 * traceback, and killed after a grace period. The grace period is short, because no state of the
 * interpreter has to be saved. */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define RUN_GRACE_NS (1 * NS_PER_S) /* after an interrupt */

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
    if (r->state != EXECUTION_STAGING)
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
    const char *path = r->request.files[r->file_index].path;
    struct files_request write = { FILES_OP_WRITE, path, .flags = FILES_PARENTS };
    if (files_open(r->sandbox.handle, &write, &run_stage_ops, r, &r->files_job, &err) < 0)
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
    language_kernel_reset(&r->kernel);
    r->file_index = r->file_sent = r->input_sent = 0;
    r->uses_prepared_interpreter = r->is_checking = false;
    r->started_ns = 0;
}

struct exec_handle *run_get_exec(const struct run *r)
{
    return r->request.code ? r->kernel.exec : r->exec;
}

/* --- input --- */

static void run_send_input(struct run *r)
{
    r->input_sent += exec_handle_write(r->exec, r->request.input + r->input_sent, r->request.input_len - r->input_sent);
    if (r->input_sent == r->request.input_len)
        exec_handle_write_end(r->exec);
}

/* --- code --- */

/* From here on the timeout runs, and output belongs to the code. */
static void run_begin_code(struct run *r, uint64_t cpu_base_ns)
{
    r->cpu_base_ns = cpu_base_ns;
    run_program_started(r);
    if (r->state == EXECUTION_ENDED)
        return; /* cancelled by on_started */
    language_kernel_execute(&r->kernel, &(struct language_kernel_code){ .id = r->id, .code = r->request.code },
                            r->request.timeout_ms * NS_PER_MS);
}

/* The CPU time of a check belongs to the code. */
static void run_begin_check_or_code(struct run *r, uint64_t cpu_base_ns)
{
    r->cpu_base_ns = cpu_base_ns;
    if (r->request.check != RUN_CHECK_NONE)
        run_check_start(r);
    else
        run_begin_code(r, cpu_base_ns);
}

static void run_on_kernel_ready(void *arg, const struct kernel_event *e UNUSED)
{
    struct run *r = arg;

    run_begin_check_or_code(r, sandbox_handle_cpu_ns(r->sandbox.handle));
}

static bool run_on_kernel_event(void *arg, const struct kernel_event *e)
{
    struct run *r = arg;

    if (r->is_checking) {
        if (run_check_read_answer(r, e))
            run_begin_code(r, r->cpu_base_ns);
        return true;
    }
    if (e->kind == KERNEL_EVENT_DISPLAY || e->kind == KERNEL_EVENT_RESULT || e->kind == KERNEL_EVENT_ERROR)
        output_stream_write_event(&r->stream, e);
    else if (e->kind == KERNEL_EVENT_INPUT)
        language_kernel_send_input_line(&r->kernel, r->request.input ? r->request.input : "", r->request.input_len,
                                        &r->input_sent);
    return true;
}

static void run_on_kernel_rejected(void *arg, const struct kernel_event *e)
{
    struct run *r = arg;

    if (!e && !r->has_receipt)
        r->rejected_lines++;
}

static void run_on_code_finished(void *arg, const struct language_kernel_result *result)
{
    struct run *r = arg;
    bool stopped = result->status == KERNEL_STATUS_INTERRUPTED && r->kernel.was_interrupted && r->stop_requested;

    run_make_receipt(r, stopped ? r->stop_cause : result->ended_by, result->exit_code, result->signal);
    run_program_ended(r);
}

static void run_fail_lost(struct run *r)
{
    struct err err;

    err_set(&err, ERR_LOST, "the sandbox was lost while the code ran");
    run_fail(r, &err);
}

/* The language kernel ended before it reported how the code ended. */
static void run_end_without_result(struct run *r, const struct language_kernel_death *d)
{
    const struct receipt *x = d->receipt;
    bool stopped = r->stop_requested || r->kernel.was_interrupted;

    if ((d->was_starting || d->was_checking) && r->stop_requested) {
        run_fail(r, &r->error); /* the error of its tenant */
    } else if (x->ended_by == ENDED_LOST) {
        run_fail_lost(r);
    } else if (d->was_checking) {
        run_check_fail(r);
    } else if (d->was_executing && x->ended_by == ENDED_KILLED && stopped) {
        run_make_receipt(r, r->stop_requested ? r->stop_cause : r->kernel.interrupt_cause, -1, 0);
        run_program_ended(r);
    } else {
        r->has_error = true;
        language_kernel_death_error(&r->kernel, d, "the interpreter", &r->error);
        str_strip_control_chars(r->error.msg);
        if (d->was_executing) {
            run_make_receipt(r, x->ended_by, x->exit_code, x->signal);
            run_program_ended(r);
        } else {
            run_fail(r, &r->error);
        }
    }
}

/* A prepared interpreter that died before it was claimed has run nothing: start a new one. */
static void run_on_kernel_failed(struct run *r, const struct err *err)
{
    if (r->uses_prepared_interpreter && err->id == ERR_LOST && !r->stop_requested && r->state < EXECUTION_GATHERING &&
        sandbox_handle_accepts_exec(r->sandbox.handle)) {
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

/* An interpreter lives until its sandbox is destroyed, after the result was delivered: only then
 * its denials are known. */
static void run_on_kernel_died(void *arg, const struct language_kernel_death *d)
{
    struct run *r = arg;

    if (d->error) {
        run_on_kernel_failed(r, d->error);
        return;
    }
    if (!r->has_receipt && r->state != EXECUTION_ENDED)
        run_end_without_result(r, d);
    ephemeral_sandbox_count_denials(&r->sandbox, d->receipt);
}

static void run_on_output(void *arg, int channel, const void *data, size_t len)
{
    struct run *r = arg;

    if (r->state == EXECUTION_RUNNING && !r->has_receipt)
        output_stream_write(&r->stream, channel, data, len);
}

static const struct language_kernel_ops run_kernel_ops = { .grace_ns = RUN_GRACE_NS,
                                                           .keeps_code_stderr = true,
                                                           .on_ready = run_on_kernel_ready,
                                                           .on_event = run_on_kernel_event,
                                                           .on_output = run_on_output,
                                                           .on_finished = run_on_code_finished,
                                                           .on_died = run_on_kernel_died,
                                                           .on_rejected = run_on_kernel_rejected };

/* --- a command --- */

static void run_on_command_writable(void *arg)
{
    struct run *r = arg;

    if (r->exec && r->state != EXECUTION_ENDED && r->request.input)
        run_send_input(r);
}

static void run_on_command_started(void *arg)
{
    run_program_started(arg);
}

static void run_on_command_exit(void *arg, const struct receipt *x)
{
    struct run *r = arg;

    if (!r->has_receipt && r->state != EXECUTION_ENDED && x->ended_by == ENDED_LOST) {
        run_fail_lost(r);
    } else if (!r->has_receipt && r->state != EXECUTION_ENDED) {
        r->receipt = *x;
        r->has_receipt = true;
        if (r->stop_requested && x->ended_by == ENDED_KILLED)
            r->receipt.ended_by = r->stop_cause;
        run_program_ended(r);
    }
    if (!r->has_receipt) /* it was stopped without waiting for its end */
        ephemeral_sandbox_count_denials(&r->sandbox, x);
}

static void run_on_command_failed(void *arg, const struct err *err)
{
    run_fail(arg, err);
}

static const struct exec_handle_ops run_command_ops = { .on_started = run_on_command_started,
                                                        .on_output = run_on_output,
                                                        .on_writable = run_on_command_writable,
                                                        .on_exit = run_on_command_exit,
                                                        .on_failed = run_on_command_failed };

/* --- start --- */

static int run_start_code(struct run *r, struct err *err)
{
    const char *zygote = r->spec.zygote.language;
    bool join = zygote && str_eq(zygote, r->request.language) && !r->cold_start_only,
         joined = join && sandbox_handle_has_interpreter(r->sandbox.handle);
    struct exec_spec spec = { .id = r->id,
                              .request = r->request.request_id,
                              .env = r->request.env,
                              .cwd = r->request.cwd,
                              .use_waiting_interpreter = joined,
                              .prefer_interpreter = join };

    language_kernel_init(&r->kernel, r->executor->settings.ev, r->id, r->request.language, &run_kernel_ops, r);
    r->kernel.collects_denials = r->spec.network.mode != NETWORK_NONE; /* with them, the counters of the proxy */
    if (language_kernel_start(&r->kernel, r->sandbox.handle, r->request.template, &spec, err) < 0)
        return -1;
    r->uses_prepared_interpreter = join;
    if (joined) { /* it reads the request when it is ready, so do not wait for READY */
        uint64_t cpu_base_ns = exec_handle_cpu_base(r->kernel.exec);

        run_begin_check_or_code(r, cpu_base_ns ? cpu_base_ns : SANDBOX_USAGE_UNKNOWN);
    }
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

    if (sandbox_handle_exec(r->sandbox.handle, &spec, &run_command_ops, r, &r->exec, err) < 0)
        return -1;
    if (r->request.input)
        run_send_input(r);
    return 0;
}

static void run_start_program(struct run *r)
{
    struct err err = { 0 };

    execution_set_state(r->id, &r->state, EXECUTION_STARTING);
    if ((r->request.code ? run_start_code(r, &err) : run_start_command(r, &err)) < 0)
        run_fail(r, &err);
}
