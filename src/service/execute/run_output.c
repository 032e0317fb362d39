/* The output of a run: kept in memory until the result is delivered, or passed on to the client if
 * it is streamed.
 *
 * The kept output of all runs together is at most settings.output_bytes; output beyond it is
 * dropped and counted as dropped. Half of it is divided equally among the slots, so that other runs
 * cannot use up the guaranteed share of a run. */
#include "service/execute/executor_internal.h"

static uint64_t saturating_sub_u64(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* The share of output that every slot is guaranteed. */
static uint64_t run_guaranteed_bytes(const struct executor *e)
{
    return e->settings.output_bytes / 2 / e->settings.running_max;
}

static uint64_t run_output_room(const void *arg)
{
    const struct run *r = arg;
    const struct executor *e = r->executor;

    if (r->request.streamed)
        return OUTPUT_UNLIMITED;
    return saturating_sub_u64(run_guaranteed_bytes(e), r->held_bytes) +
           saturating_sub_u64(e->settings.output_bytes / 2, e->shared_held_bytes);
}

static void run_set_held_bytes(struct run *r, uint64_t held)
{
    struct executor *e = r->executor;

    e->shared_held_bytes -= saturating_sub_u64(r->held_bytes, run_guaranteed_bytes(e));
    e->shared_held_bytes += saturating_sub_u64(held, run_guaranteed_bytes(e));
    e->stats.held_bytes += held - r->held_bytes;
    r->held_bytes = held;
}

static size_t run_output_write(void *arg, int channel, const void *data, size_t len)
{
    struct run *r = arg;

    if (channel == 2)
        failure_add_output(&r->failure, data, len);
    if (!r->request.streamed) {
        run_set_held_bytes(r, r->held_bytes + len);
        buf_add(&r->output.text[channel - 1], data, len);
    } else if (r->ops && r->ops->on_output) {
        r->ops->on_output(r->arg, channel, data, len);
    }
    return len;
}

static const char *run_event_type_name(const struct kernel_event *e)
{
    return e->kind == KERNEL_EVENT_DISPLAY ? "display" : e->kind == KERNEL_EVENT_RESULT ? "result" : "exception";
}

static size_t run_output_write_event(void *arg, const struct kernel_event *e, const struct buf *json)
{
    struct run *r = arg;
    const char *type = run_event_type_name(e);

    if (e->kind == KERNEL_EVENT_ERROR)
        failure_hint_add_event(&r->failure, e);
    result_output_add_event(&r->output, type, json->data, json->len, !r->request.streamed);
    run_set_held_bytes(r, result_output_bytes(&r->output));
    if (r->request.streamed && r->ops && r->ops->on_event)
        r->ops->on_event(r->arg, type, json);
    return json->len;
}

static const struct output_sink run_output_sink = {
    .event_end = "", .room = run_output_room, .write = run_output_write, .write_event = run_output_write_event
};

void run_output_init(struct run *r)
{
    r->stream = (struct output_stream){ .sink = &run_output_sink, .arg = r, .limit = r->request.output_max };
}

void run_output_free(struct run *r)
{
    run_set_held_bytes(r, 0);
    result_output_done(&r->output);
    failure_done(&r->failure);
    buf_done(&r->result_json);
}
