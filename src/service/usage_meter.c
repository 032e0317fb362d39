/* sample_schedule.c decides when a sample is due; here are its clocks and its timer. */
#include "service/usage_meter.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "service/sample_schedule.h"

struct usage_meter {
    struct ev *ev;
    struct sample_schedule schedule;
    struct ev_timer timer;
    usage_meter_sample_fn *sample;
    void *arg;
};

struct usage_meter *usage_meter_new(struct ev *ev, usage_meter_sample_fn *sample, void *arg)
{
    struct usage_meter *u = mem_new(struct usage_meter);

    *u = (struct usage_meter){ .ev = ev, .sample = sample, .arg = arg };
    return u;
}

void usage_meter_free(struct usage_meter *u)
{
    if (!u)
        return;
    ev_timer_clear(u->ev, &u->timer);
    free(u);
}

static void usage_meter_on_timer(void *arg);

static void usage_meter_set_timer(struct usage_meter *u)
{
    uint64_t at = sample_schedule_next_ns(&u->schedule);

    /* A timer that fires too early sets itself again. */
    if (at != SAMPLE_NEVER && (!u->timer.slot || u->timer.at > at))
        ev_timer_set(u->ev, &u->timer, at, usage_meter_on_timer, u);
}

static void usage_meter_on_timer(void *arg)
{
    struct usage_meter *u = arg;
    uint64_t now = ev_now(u->ev), since = now - max_u64(u->schedule.sampled_ns, u->schedule.activity_ns);

    if (now >= sample_schedule_next_ns(&u->schedule))
        sample_schedule_sampled(&u->schedule, now, clock_real_ms(), u->sample(u->arg, since));
    usage_meter_set_timer(u);
}

void usage_meter_activity(struct usage_meter *u, size_t live_sandboxes)
{
    u->schedule.live_sandboxes = live_sandboxes;
    sample_schedule_activity(&u->schedule, ev_now(u->ev), clock_real_ms());
    usage_meter_set_timer(u);
}

void usage_meter_execution_begin(struct usage_meter *u)
{
    u->schedule.running_executions++;
}

void usage_meter_execution_end(struct usage_meter *u)
{
    u->schedule.running_executions--;
}
