/* The result of a run: its receipt and the members of the JSON answer.
 *
 * The receipt follows the rules of the engine. The sandbox still lives when the result is
 * delivered, so figures that are counted at its end (memory, processes, denied system calls) carry
 * that reason instead of a value. CPU time and wall time belong to the code alone, because nothing
 * else ran in the sandbox. */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"
#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/kernel_receipt.h"

/* The interpreter lives on, and its receipt changes when it ends. */
static void run_copy_network(struct run *r)
{
    struct receipt_egress *egress = &r->receipt.egress;

    kernel_receipt_set_network(&r->kernel, &r->receipt);
    r->receipt.network.rules = r->spec.network.rules;
    free(r->destinations);
    r->destinations = egress->ndestinations
                          ? mem_copy(egress->destinations, egress->ndestinations * sizeof(*egress->destinations))
                          : NULL;
    egress->destinations = r->destinations;
}

void run_make_receipt(struct run *r, enum ended_by by, int code, int signo)
{
    struct kernel_figures f = {
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

    kernel_receipt_make(&r->kernel, &f, by, code, signo, &r->receipt);
    if (r->kernel.collects_denials)
        run_copy_network(r);
    r->has_receipt = true;
}

static bool run_output_is_truncated(const struct run *r)
{
    const uint64_t *dropped = r->stream.dropped;

    return dropped[0] || dropped[1] || dropped[2] || r->rejected_lines || r->receipt.dropped_bytes;
}

bool run_result_is_cacheable(const struct run *r)
{
    return r->has_receipt && !r->has_error && r->receipt.ended_by == ENDED_EXIT && r->receipt.exit_code == 0 &&
           !run_output_is_truncated(r) && !gather_is_incomplete(r) &&
           (!r->request.cached_if_pure || (r->report && r->report->pure));
}

static struct receipt *run_complete_receipt(struct run *run)
{
    struct receipt *r = &run->receipt;

    if (!run->request.code) {
        r->limits.v[LIMIT_OUTPUT] = run->request.output_max;
        r->dropped_bytes = run->stream.dropped[0] + run->stream.dropped[1];
    }
    return r;
}

static bool run_write_hint(struct run *run)
{
    const struct executor_settings *set = &run->executor->settings;

    if (run->request.code)
        failure_set_code(&run->failure, run->request.language, run->request.code);
    else
        failure_set_argv(&run->failure, run->request.argv);
    return failure_hint_write(&run->failure, HINT_EXECUTE, &run->receipt, set->ephemerals->modules, ev_now(set->ev),
                              run->hint);
}

static void run_write_report(const struct run *run, struct jsonw *w)
{
    if (!run->report)
        return;
    jsonw_key(w, "report");
    code_report_write(run->report, w);
}

/* Code that was refused: nothing was started. */
static void run_write_refusal_json(struct run *run)
{
    auto_free char *error = run->has_error ? result_error_json(&run->error) : NULL;
    struct result result = { .id = run->id,
                             .has_ended = true,
                             .output = &run->output,
                             .was_streamed = run->request.streamed,
                             .hint = run->hint,
                             .exit_code = -1,
                             .ended_ms = clock_real_ms(),
                             .error_json = error };
    struct jsonw w;

    jsonw_init(&w, &run->result_json, 0);
    jsonw_object(&w);
    result_write(&result, &w);
    jsonw_kstr(&w, "sandboxId", sandbox_handle_id(run->sandbox.handle));
    run_write_report(run, &w);
}

void run_write_result_json(struct run *run)
{
    if (run->is_answered_by_check) {
        run_write_refusal_json(run);
        return;
    }
    struct receipt *r = run_complete_receipt(run);
    bool hinted = run->has_receipt && run_write_hint(run);
    auto_free char *error = run->has_error ? result_error_json(&run->error) : NULL;
    struct result result = {
        .id = run->id,
        .has_ended = true,
        .ended_by = ended_by_name(r->ended_by),
        .exit_code = r->exit_code,
        .signal = r->signal,
        .output = &run->output,
        .was_streamed = run->request.streamed,
        .truncated = run_output_is_truncated(run),
        .dropped_bytes = r->dropped_bytes,
        .hint = hinted ? run->hint : NULL,
        .started_ms = r->started_real_ns / NS_PER_MS,
        .ended_ms = clock_real_ms(),
        .error_json = error,
    };
    struct jsonw w;

    jsonw_init(&w, &run->result_json, 0);
    jsonw_object(&w);
    result_write(&result, &w);
    jsonw_kstr(&w, "sandboxId", sandbox_handle_id(run->sandbox.handle));
    gather_json(run, &w);
    result_write_receipt(r, run->request.receipt, &w);
    run_write_report(run, &w);
}
