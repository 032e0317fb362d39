/* The processor counters of living sandboxes, read now and then and told to the store, so that what runs for long is
 * counted in the hours in which it ran, and what a crash of the machine takes is a minute. When that is, looks.c says.
 *
 * A counter is one file of the kernel, read in a few microseconds; what did not move is not written down. The store
 * adds what a figure is above the highest before, so a note that comes twice, or behind an end, changes nothing. */
#include "sandbox/inside.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/usage.h"

#include <stdlib.h>

uint64_t meter_read(struct sb *sb)
{
    uint64_t ns = sb->box ? box_cpu_ns(sb->box) : BOX_UNKNOWN;

    if (ns != BOX_UNKNOWN && ns / NS_PER_US > sb->cpu_us) {
        budget_cpu(sb, ns / NS_PER_US - sb->cpu_us);
        sb->cpu_us = ns / NS_PER_US;
    }
    return sb->cpu_us;
}

static void on_noted(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("usage was not written down yet: %s", err->msg);
}

/* Whose it is: that of the one execution that runs. With several, or none, it is left to the one who made the sandbox.
 */
static const char *whose(const struct sb *sb)
{
    return sb->execs && !sb->execs->next ? sb->execs->created_by : "";
}

void manager_note_usage(struct manager *m, const char *owner)
{
    struct store_usage_note *notes = mem_new_array(struct store_usage_note, m->nsbs + 1);
    uint64_t now = now_ms();
    size_t n = 0;

    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = m->sbs[i]; sb; sb = sb->next) {
            bool theirs = str_eq(owner, STORE_ANY_OWNER) || str_eq(owner, sb->owner);

            if (!theirs || (sb->state != SB_RUNNING && sb->state != SB_PAUSED) || meter_read(sb) <= sb->noted_cpu_us)
                continue;
            notes[n] = (struct store_usage_note){ .cpu_us = sb->cpu_us, .at_ms = now };
            memcpy(notes[n].sandbox, sb->id, sizeof(notes[n].sandbox));
            (void)str_copy(notes[n].created_by, sizeof(notes[n].created_by), whose(sb));
            sb->noted_cpu_us = sb->cpu_us;
            n++;
        }
    if (n)
        store_usage_note(m->store, notes, n, on_noted, NULL);
    free(notes);
    guests_flush(m);
}

static int by_age(const void *a, const void *b)
{
    const struct manager_living *x = a, *y = b;

    return x->created_ms != y->created_ms ? (x->created_ms < y->created_ms ? -1 : 1) : strcmp(x->id, y->id);
}

size_t manager_living(const struct manager *m, const char *owner, struct manager_living *ret, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (const struct sb *sb = m->sbs[i]; sb && n < max; sb = sb->next) {
            if (!str_eq(owner, STORE_ANY_OWNER) && !str_eq(owner, sb->owner))
                continue;
            if (sb->state != SB_RUNNING && sb->state != SB_PAUSED)
                continue;
            ret[n] = (struct manager_living){ .paused = sb->state == SB_PAUSED,
                                              .created_ms = sb->created_ms,
                                              .executions = sb->nexecs,
                                              .cpu_millis = sb->spec.limits.v[LIMIT_CPU],
                                              .memory_bytes = sb->spec.limits.v[LIMIT_MEMORY],
                                              .pids = sb->spec.limits.v[LIMIT_PIDS] };
            memcpy(ret[n].id, sb->id, sizeof(ret[n].id));
            memcpy(ret[n].owner, sb->owner, sizeof(ret[n].owner));
            n++;
        }
    if (n > 1)
        qsort(ret, n, sizeof(*ret), by_age);
    return n;
}

/* Whether something runs in a sandbox by itself: a hundredth of a processor since its counter was read last. Where it
 * was never read, what it says is the start of the sandbox. */
static bool moves(struct sb *sb, uint64_t since_ns)
{
    uint64_t before = sb->cpu_us;

    return before && (meter_read(sb) - before) * NS_PER_US * 100 >= since_ns;
}

static void on_time(void *arg);

static void plan(struct manager *m)
{
    uint64_t at = looks_next(&m->looks);

    if (at != LOOKS_NEVER && (!m->meter.slot || m->meter.at > at)) /* one that comes too early plans again */
        ev_timer_set(m->ev, &m->meter, at, on_time, m);
}

static void on_time(void *arg)
{
    struct manager *m = arg;
    uint64_t now = ev_now(m->ev), since = now - max_u64(m->looks.looked_ns, m->looks.stirred_ns);
    bool moved = false;

    if (now >= looks_next(&m->looks)) {
        for (size_t i = 0; i < SB_BUCKETS; i++)
            for (struct sb *sb = m->sbs[i]; sb; sb = sb->next)
                moved |= moves(sb, since);
        manager_note_usage(m, STORE_ANY_OWNER);
        looks_done(&m->looks, now, now_ms(), moved);
    }
    plan(m);
}

void meter_stir(struct manager *m)
{
    m->looks.living = m->nsbs;
    looks_stir(&m->looks, ev_now(m->ev), now_ms());
    plan(m);
}

void meter_stop(struct manager *m)
{
    ev_timer_clear(m->ev, &m->meter);
}
