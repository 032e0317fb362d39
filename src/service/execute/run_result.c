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

void run_make_receipt(struct run *r, enum ended_by by, int code, int signo)
{
    struct language_kernel_figures f = {
        .execution = r->id,
        .request = r->request.request_id,
        .final = false, /* the final sums come later and are not reported */
        .started_real_ns = r->started_real_ns,
        .wall_ns = clock_mono_ns() - r->started_ns, /* both times may lie in one turn of the loop */
        .cpu_base_ns = r->cpu_base_ns,
        .cpu_why = "this host has no CPU counter for the sandbox",
        .other_why = "counted at the end of the sandbox, after this result is sent",
        .wall_limit_ms = r->request.timeout_ms,
        .output_limit = r->request.output_max,
        .stdout_bytes = r->stream.kept[0] + r->stream.dropped[0],
        .stderr_bytes = r->stream.kept[1] + r->stream.dropped[1],
        .dropped_bytes = r->stream.dropped[0] + r->stream.dropped[1],
    };

    language_kernel_make_receipt(&r->kernel, &f, by, code, signo, &r->receipt);
    r->has_receipt = true;
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
    const uint64_t *dropped = r->stream.dropped;

    return dropped[0] || dropped[1] || dropped[2] || r->rejected_lines || r->receipt.dropped_bytes;
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
        r->dropped_bytes = run->stream.dropped[0] + run->stream.dropped[1];
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
