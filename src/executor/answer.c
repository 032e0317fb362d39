/* What is told of a run: its receipt, and the members of the answer.
 *
 * The receipt is the engine's, with the same honesty. The sandbox still lives when the answer is given, so what is
 * counted at its end (memory, processes, refused calls) carries that as its reason; processor time and the clock are
 * the code's own, because nothing else ran in there. */
#include "executor/inside.h"

#include "base/clock.h"
#include "base/jsonw.h"
#include "base/str.h"

static struct figure later(void)
{
    return (struct figure){ .why = "counted at the end of the sandbox, and the answer does not wait for that" };
}

void answer_receipt(struct run *run, enum ended_by by, int code, int signo)
{
    struct receipt *r = &run->receipt;
    uint64_t cpu = box_cpu_ns(run->guest.box);

    *r = *exec_receipt(run->exec);
    r->changes = NULL;
    r->denials = NULL;
    r->nchanges = r->ndenials = 0;
    r->final = false; /* the sums come, and are told to nobody */
    r->ended_by = by;
    r->exit_code = code;
    r->signal = signo;
    r->started_real_ns = run->started_real_ns;
    r->wall_ns = (struct figure){ .v = clock_mono_ns() - run->started_ns }; /* both may be of one turn of the loop */
    if (cpu == BOX_UNKNOWN || run->cpu_base_ns == BOX_UNKNOWN || cpu < run->cpu_base_ns)
        r->cpu_ns = (struct figure){ .why = "this host has no CPU counter for the sandbox" };
    else
        r->cpu_ns = (struct figure){ .v = cpu - run->cpu_base_ns };
    r->memory_peak = r->read_bytes = r->write_bytes = r->tasks_started = r->pids_peak = later();
    r->pids_refused = r->oom_kills = r->throttled_ns = later();
    r->denials_why = r->full_why = later().why;
    r->limits.v[LIMIT_WALL] = run->req.timeout_ms;
    r->limits.v[LIMIT_OUTPUT] = run->req.output_max;
    r->stdout_bytes = run->produced[0];
    r->stderr_bytes = run->produced[1];
    r->dropped_bytes = run->dropped[0] + run->dropped[1];
    run->has_receipt = true;
}

static const char *status(const struct run *r)
{
    switch (r->receipt.ended_by) {
    case ENDED_EXIT:
        return r->has_why ? "died" : r->receipt.exit_code == 0 ? "ok" : "error";
    case ENDED_SIGNAL:
        return r->has_why ? "died" : r->word == KEVENT_INTERRUPTED ? "interrupted" : "error";
    case ENDED_LOST:
        return "died";
    default:
        return r->has_why ? "died" : r->word == KEVENT_INTERRUPTED ? "interrupted" : "killed";
    }
}

static bool cut(const struct run *r)
{
    return r->dropped[0] || r->dropped[1] || r->events_dropped || r->receipt.dropped_bytes;
}

bool answer_is_good(const struct run *r)
{
    return r->has_receipt && !r->has_why && r->receipt.ended_by == ENDED_EXIT && r->receipt.exit_code == 0 && !cut(r) &&
           !gather_short(r);
}

static void put_output(const struct run *r, struct jsonw *w)
{
    static const char *const names[] = { "stdout", "stderr" };

    for (int i = 0; i < 2; i++) {
        jsonw_key(w, names[i]);
        jsonw_strn(w, r->out[i].data ? r->out[i].data : "", r->out[i].len);
    }
    if (!r->req.code)
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

static void put_number_or_null(struct jsonw *w, const char *key, int v, bool known)
{
    jsonw_key(w, key);
    if (known)
        jsonw_i64(w, v);
    else
        jsonw_null(w);
}

void answer_body(struct run *run)
{
    struct receipt *r = &run->receipt;
    struct jsonw w;

    if (!run->req.code) {
        r->limits.v[LIMIT_OUTPUT] = run->req.output_max;
        r->dropped_bytes = run->dropped[0] + run->dropped[1];
    }
    jsonw_init(&w, &run->body, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "id", run->id);
    jsonw_kstr(&w, "sandboxId", box_id(run->guest.box));
    jsonw_kstr(&w, "status", status(run));
    put_number_or_null(&w, "exitCode", r->exit_code, r->exit_code >= 0);
    put_number_or_null(&w, "signal", r->signal, r->signal > 0);
    jsonw_kstr(&w, "endedBy", ended_by_name(r->ended_by));
    if (!run->req.streamed)
        put_output(run, &w);
    jsonw_kbool(&w, "truncated", cut(run));
    jsonw_ku64(&w, "droppedBytes", r->dropped_bytes);
    if (run->has_why) {
        jsonw_key(&w, "error");
        jsonw_object(&w);
        jsonw_kstr(&w, "code", err_info(run->why.id)->code);
        jsonw_kstr(&w, "message", run->why.msg);
        jsonw_end_object(&w);
    }
    gather_json(run, &w);
    jsonw_key(&w, "receipt");
    receipt_json(r, &w);
}
