/* A driver of this machine hands over a file, and its sample is of now. Each read makes Linux sum
 * the counter up, so one sample serves a loop iteration. Another driver has to be asked: a reader
 * gets the last sample with its time, and a newer one is requested for the next reader. */
#include "sandbox/engine_internal.h"

#include "sandbox/clocks.h"

#define CPU_SAMPLE_INTERVAL_NS (20 * NS_PER_MS) /* between two requests */

static void sandbox_cpu_on_stats(struct driver_request *r, const struct sandbox_handle_usage *u, const struct err *err)
{
    struct sandbox_handle *b = r->owner;

    b->cpu_request = NULL;
    if (err)
        return;
    b->cpu_unmeasured = u->cpu_ns == SANDBOX_USAGE_UNKNOWN;
    b->cpu_sample = (struct cpu_sample){ .ns = u->cpu_ns, .at = ev_now(b->ev) };
}

static void sandbox_cpu_request(struct sandbox_handle *b)
{
    bool alive = b->engine && (b->state == SANDBOX_HANDLE_READY || b->state == SANDBOX_HANDLE_CLAIMING);

    if (!alive || b->cpu_request || b->cpu_unmeasured ||
        (b->cpu_sample.at && ev_now(b->ev) - b->cpu_sample.at < CPU_SAMPLE_INTERVAL_NS))
        return;
    b->cpu_request = b->link->ops->stats(b->link, b->id, sandbox_cpu_on_stats, b);
}

struct cpu_sample sandbox_cpu_read(struct sandbox_handle *b)
{
    if (b->cpu_fd >= 0)
        b->cpu_sample = (struct cpu_sample){ .ns = cpu_counter_read(b->cpu_fd, b->created.cpu_unit),
                                             .at = ev_now(b->ev) };
    else
        sandbox_cpu_request(b);
    return b->cpu_sample.at ? b->cpu_sample : (struct cpu_sample){ .ns = CPU_UNKNOWN };
}

struct cpu_sample sandbox_handle_cpu_sample(struct sandbox_handle *b)
{
    _Static_assert(CPU_UNKNOWN == SANDBOX_USAGE_UNKNOWN, "the same value for unknown");

    if (b->stats_known)
        return (struct cpu_sample){ .ns = b->stats.cpu_ns, .at = ev_now(b->ev) };
    return b->cpu_fd >= 0 && b->cpu_sample.at == ev_now(b->ev) ? b->cpu_sample : sandbox_cpu_read(b);
}

uint64_t sandbox_handle_cpu_ns(struct sandbox_handle *b)
{
    return sandbox_handle_cpu_sample(b).ns;
}

uint64_t sandbox_cpu_base(struct sandbox_handle *b)
{
    struct cpu_sample s = sandbox_cpu_read(b);
    bool comes_later = b->cpu_fd < 0 && b->created.limits.enforcement[LIMIT_CPU_TIME] == ENFORCEMENT_FULL;

    return s.ns == CPU_UNKNOWN && comes_later ? 0 : s.ns;
}
