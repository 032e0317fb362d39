/* Samples the CPU counters of live sandboxes and sends them to the store, so that the usage of a
 * long execution is recorded in the hours in which it ran, and a crash of the machine loses at most
 * a minute. sample_schedule.c decides when.
 *
 * A counter is one file of the kernel, read in a few microseconds; an unchanged counter is not
 * sent. The store adds only the difference above the highest value so far, so a reading that
 * arrives twice, or after the end, changes nothing. */
#include "service/service_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/usage.h"

#include <stdlib.h>

uint64_t usage_meter_read_cpu_us(struct sandbox *sb)
{
    uint64_t ns = sb->handle ? sandbox_handle_cpu_ns(sb->handle) : SANDBOX_USAGE_UNKNOWN;

    if (ns != SANDBOX_USAGE_UNKNOWN && ns / NS_PER_US > sb->cpu_us) {
        budget_add_cpu(sb->manager, sb->quota, ns / NS_PER_US - sb->cpu_us);
        sb->cpu_us = ns / NS_PER_US;
    }
    return sb->cpu_us;
}

static void usage_meter_on_committed(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("cannot store CPU usage; the next sample includes it: %s", err->msg);
}

/* The user of the CPU time: the user of the only running execution. With several or none, "": the
 * creator of the sandbox. */
static const char *usage_meter_cpu_user(const struct sandbox *sb)
{
    return sb->executions && !sb->executions->next ? sb->executions->created_by : "";
}

void manager_commit_cpu_usage(struct manager *m, const char *owner)
{
    struct store_cpu_reading *notes = mem_new_array(struct store_cpu_reading, m->nsandboxes + 1);
    uint64_t now = clock_real_ms();
    size_t n = 0;

    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next) {
            bool theirs = str_eq(owner, STORE_ANY_OWNER) || str_eq(owner, sb->owner);

            if (!theirs || (sb->state != SANDBOX_STATE_RUNNING && sb->state != SANDBOX_STATE_PAUSED) ||
                usage_meter_read_cpu_us(sb) <= sb->committed_cpu_us)
                continue;
            notes[n] = (struct store_cpu_reading){ .cpu_us = sb->cpu_us, .at_ms = now };
            memcpy(notes[n].sandbox, sb->id, sizeof(notes[n].sandbox));
            (void)str_copy(notes[n].created_by, sizeof(notes[n].created_by), usage_meter_cpu_user(sb));
            sb->committed_cpu_us = sb->cpu_us;
            n++;
        }
    if (n)
        store_usage_record_cpu(m->store, notes, n, usage_meter_on_committed, NULL);
    free(notes);
    usage_batch_flush(m->ephemeral_usage);
}

static int live_sandbox_compare_age(const void *a, const void *b)
{
    const struct manager_live_sandbox *x = a, *y = b;

    return x->created_ms != y->created_ms ? (x->created_ms < y->created_ms ? -1 : 1) : strcmp(x->id, y->id);
}

size_t manager_list_live_sandboxes(const struct manager *m, const char *owner, struct manager_live_sandbox *ret,
                                   size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (const struct sandbox *sb = m->sandboxes[i]; sb && n < max; sb = sb->next) {
            if (!str_eq(owner, STORE_ANY_OWNER) && !str_eq(owner, sb->owner))
                continue;
            if (sb->state != SANDBOX_STATE_RUNNING && sb->state != SANDBOX_STATE_PAUSED)
                continue;
            ret[n] = (struct manager_live_sandbox){ .paused = sb->state == SANDBOX_STATE_PAUSED,
                                                    .created_ms = sb->created_ms,
                                                    .executions = sb->nexecutions,
                                                    .cpu_millis = sb->spec.limits.v[LIMIT_CPU],
                                                    .memory_bytes = sb->spec.limits.v[LIMIT_MEMORY],
                                                    .pids = sb->spec.limits.v[LIMIT_PIDS] };
            memcpy(ret[n].id, sb->id, sizeof(ret[n].id));
            memcpy(ret[n].owner, sb->owner, sizeof(ret[n].owner));
            n++;
        }
    if (n > 1)
        qsort(ret, n, sizeof(*ret), live_sandbox_compare_age);
    return n;
}

/* Whether a program runs in the sandbox without an execution: at least 1 % of a CPU since the last
 * reading. The first reading does not count, because it contains the start of the sandbox. */
static bool usage_meter_is_active(struct sandbox *sb, uint64_t since_ns)
{
    uint64_t before = sb->cpu_us;

    return before && (usage_meter_read_cpu_us(sb) - before) * NS_PER_US * 100 >= since_ns;
}

static void usage_meter_on_timer(void *arg);

static void usage_meter_set_timer(struct manager *m)
{
    uint64_t at = sample_schedule_next_ns(&m->sample_schedule);

    /* A timer that fires too early sets itself again. */
    if (at != SAMPLE_NEVER && (!m->sample_timer.slot || m->sample_timer.at > at))
        ev_timer_set(m->ev, &m->sample_timer, at, usage_meter_on_timer, m);
}

static void usage_meter_on_timer(void *arg)
{
    struct manager *m = arg;
    uint64_t now = ev_now(m->ev), since = now - max_u64(m->sample_schedule.sampled_ns, m->sample_schedule.activity_ns);
    bool moved = false;

    if (now >= sample_schedule_next_ns(&m->sample_schedule)) {
        for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
            for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
                moved |= usage_meter_is_active(sb, since);
        manager_commit_cpu_usage(m, STORE_ANY_OWNER);
        sample_schedule_sampled(&m->sample_schedule, now, clock_real_ms(), moved);
    }
    usage_meter_set_timer(m);
}

void usage_meter_activity(struct manager *m)
{
    m->sample_schedule.live_sandboxes = m->nsandboxes;
    sample_schedule_activity(&m->sample_schedule, ev_now(m->ev), clock_real_ms());
    usage_meter_set_timer(m);
}

void usage_meter_stop(struct manager *m)
{
    ev_timer_clear(m->ev, &m->sample_timer);
}
