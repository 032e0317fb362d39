/* The result of a run: its receipt and the members of the JSON answer.
 *
 * The receipt follows the rules of the engine. The sandbox still lives when the result is
 * delivered, so figures that are counted at its end (memory, processes, denied system calls) carry
 * that reason instead of a value. CPU time and wall time belong to the code alone, because nothing
 * else ran in the sandbox. */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"
#include "core/base/jsonw.h"
#include "core/base/str.h"

static struct receipt_figure run_figure_not_counted_yet(void)
{
    return (struct receipt_figure){ .why = "counted at the end of the sandbox, after this result is sent" };
}

void run_make_receipt(struct run *run, enum ended_by by, int code, int signo)
{
    struct receipt *r = &run->receipt;
    uint64_t cpu = sandbox_handle_cpu_ns(run->sandbox.handle);

    *r = *exec_handle_receipt(run->exec);
    r->changes = NULL;
    r->denials = NULL;
    r->nchanges = r->ndenials = 0;
    r->final = false; /* the final sums come later and are not reported */
    r->ended_by = by;
    r->exit_code = code;
    r->signal = signo;
    r->started_real_ns = run->started_real_ns;
    r->wall_ns = (struct receipt_figure){ .v = clock_mono_ns() -
                                               /* clock_mono_ns(), because both times may lie in one
                                                * turn of the loop. */
                                               run->started_ns };
    if (cpu == SANDBOX_USAGE_UNKNOWN || run->cpu_base_ns == SANDBOX_USAGE_UNKNOWN || cpu < run->cpu_base_ns)
        r->cpu_ns = (struct receipt_figure){ .why = "this host has no CPU counter for the sandbox" };
    else
        r->cpu_ns = (struct receipt_figure){ .v = cpu - run->cpu_base_ns };
    r->memory_peak = r->read_bytes = r->write_bytes = r->tasks_started = r->pids_peak = run_figure_not_counted_yet();
    r->pids_refused = r->oom_kills = r->throttled_ns = run_figure_not_counted_yet();
    r->denials_why = r->full_filesystems_why = run_figure_not_counted_yet().why;
    r->limits.v[LIMIT_WALL] = run->request.timeout_ms;
    r->limits.v[LIMIT_OUTPUT] = run->request.output_max;
    r->stdout_bytes = run->produced_bytes[0];
    r->stderr_bytes = run->produced_bytes[1];
    r->dropped_bytes = run->dropped_bytes[0] + run->dropped_bytes[1];
    run->has_receipt = true;
}

static const char *run_status_name(const struct run *r)
{
    switch (r->receipt.ended_by) {
    case ENDED_EXIT:
        return r->has_error ? "died" : r->receipt.exit_code == 0 ? "ok" : "error";
    case ENDED_SIGNAL:
        return r->has_error ? "died" : r->kernel_status == KERNEL_STATUS_INTERRUPTED ? "interrupted" : "error";
    case ENDED_LOST:
        return "died";
    default:
        return r->has_error ? "died" : r->kernel_status == KERNEL_STATUS_INTERRUPTED ? "interrupted" : "killed";
    }
}

static bool run_output_is_truncated(const struct run *r)
{
    return r->dropped_bytes[0] || r->dropped_bytes[1] || r->events_dropped || r->receipt.dropped_bytes;
}

bool run_result_is_cacheable(const struct run *r)
{
    return r->has_receipt && !r->has_error && r->receipt.ended_by == ENDED_EXIT && r->receipt.exit_code == 0 &&
           !run_output_is_truncated(r) && !gather_is_incomplete(r);
}

static void run_put_output_json(const struct run *r, struct jsonw *w)
{
    static const char *const names[] = { "stdout", "stderr" };

    for (int i = 0; i < 2; i++) {
        jsonw_key(w, names[i]);
        jsonw_strn(w, r->output[i].data ? r->output[i].data : "", r->output[i].len);
    }
    if (!r->request.code)
        return;
    jsonw_key(w, "results");
    jsonw_array(w);
    if (r->events.len)
        jsonw_raw(w, r->events.data);
    jsonw_end_array(w);
    if (r->exception.len) {
        jsonw_key(w, "exception");
        jsonw_raw(w, r->exception.data);
    }
}

static void run_put_number_or_null(struct jsonw *w, const char *key, int v, bool known)
{
    jsonw_key(w, key);
    if (known)
        jsonw_i64(w, v);
    else
        jsonw_null(w);
}

void run_write_result_json(struct run *run)
{
    struct receipt *r = &run->receipt;
    struct jsonw w;

    if (!run->request.code) {
        r->limits.v[LIMIT_OUTPUT] = run->request.output_max;
        r->dropped_bytes = run->dropped_bytes[0] + run->dropped_bytes[1];
    }
    jsonw_init(&w, &run->result_json, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "id", run->id);
    jsonw_kstr(&w, "sandboxId", sandbox_handle_id(run->sandbox.handle));
    jsonw_kstr(&w, "status", run_status_name(run));
    run_put_number_or_null(&w, "exitCode", r->exit_code, r->exit_code >= 0);
    run_put_number_or_null(&w, "signal", r->signal, r->signal > 0);
    jsonw_kstr(&w, "endedBy", ended_by_name(r->ended_by));
    if (!run->request.streamed)
        run_put_output_json(run, &w);
    jsonw_kbool(&w, "truncated", run_output_is_truncated(run));
    jsonw_ku64(&w, "droppedBytes", r->dropped_bytes);
    if (run->has_error) {
        jsonw_key(&w, "error");
        jsonw_object(&w);
        jsonw_kstr(&w, "code", err_info(run->error.id)->code);
        jsonw_kstr(&w, "message", run->error.msg);
        jsonw_end_object(&w);
    }
    gather_json(run, &w);
    jsonw_key(&w, "receipt");
    receipt_json(r, &w);
}
