/* Retention: removes rows and output that are too old or too large, about once per hour.
 *
 * Ages are measured by the wall clock, and a wall clock that jumped ahead would remove everything.
 * So the last trusted time is kept in the store, and rows are removed by age only while the clock
 * agrees with it (wallclock_guard.h). Limits in bytes do not depend on the clock. */
#include "main/coved.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define GC_EVERY_NS (3600 * NS_PER_S)
/* Key in the meta table; format: wallclock_guard_format(). */
#define WALLCLOCK_META_KEY "server.calendar"

static uint64_t coved_retention_cutoff_ms(const struct coved *d, enum conf_setting s)
{
    uint64_t now = wallclock_guard_now_ms(&d->wallclock, ev_now(d->ev), clock_real_ms());
    uint64_t keep = conf_number(&d->conf, s);

    return now > keep ? now - keep : 0;
}

void coved_fill_retention(void *arg, struct store_retention *ret)
{
    const struct coved *d = arg;

    *ret = (struct store_retention){
        .executions_before_ms = coved_retention_cutoff_ms(d, SETTING_KEEP_EXECUTIONS),
        .sandboxes_before_ms = coved_retention_cutoff_ms(d, SETTING_KEEP_SANDBOXES),
        .events_before_ms = coved_retention_cutoff_ms(d, SETTING_KEEP_EVENTS),
        .idem_before_ms = coved_retention_cutoff_ms(d, SETTING_KEEP_EVENTS),
        .usage_before_ms = coved_retention_cutoff_ms(d, SETTING_KEEP_USAGE),
        .scripts_before_ms = coved_retention_cutoff_ms(d, SETTING_KEEP_SCRIPTS),
        .output_bytes_max = conf_number(&d->conf, SETTING_KEEP_BYTES),
        .db_bytes_max = conf_number(&d->conf, SETTING_KEEP_DB),
    };
}

/* --- the trusted wall clock --- */

static void coved_on_wallclock_stored(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("cannot save the last trusted wall-clock time: %s", err->msg);
}

/* Returns whether rows that are old by the wall clock may be removed. */
static bool coved_update_wallclock(struct coved *d)
{
    char text[WALLCLOCK_GUARD_TEXT];
    bool waited = d->wallclock.is_distrusted;
    bool holds = wallclock_guard_update(&d->wallclock, ev_now(d->ev), clock_real_ms());

    store_meta_put(d->store, WALLCLOCK_META_KEY, wallclock_guard_format(&d->wallclock, text), coved_on_wallclock_stored,
                   NULL);
    if (waited && holds)
        log_info("retention by age is active again: the wall clock is trusted");
    return holds;
}

struct coved_wallclock_query {
    struct coved *d;
    bool done;
    struct err err;
};

static void coved_on_wallclock(void *arg, const struct err *err, const char *value)
{
    struct coved_wallclock_query *a = arg;

    if (err)
        a->err = *err;
    else
        wallclock_guard_init(&a->d->wallclock, value, ev_now(a->d->ev), clock_real_ms());
    a->done = true;
}

int coved_open_wallclock(struct coved *d, struct err *err)
{
    struct coved_wallclock_query a = { .d = d };
    const struct wallclock_guard *c = &d->wallclock;

    store_meta_get(d->store, WALLCLOCK_META_KEY, coved_on_wallclock, &a);
    while (!a.done)
        ev_turn(d->ev, -1);
    if (a.err.id != ERR_NONE) {
        *err = a.err;
        return -1;
    }
    if (!coved_update_wallclock(d))
        log_warn("the wall clock is %" PRIu64
                 " days ahead of the last time this server ran; if it is correct, rows that are too old are removed "
                 "after a day of running, or immediately with 'cove gc'",
                 (c->began_ms - c->trusted_ms) / WALLCLOCK_GUARD_DAY_MS);
    return 0;
}

/* --- removal --- */

static void coved_on_garbage_collected(void *arg, const struct err *err, const struct manager_gc *removed)
{
    const struct coved *d = arg;

    if (err) {
        log_warn("retention: %s", err->msg);
    } else if (removed->executions + removed->sandboxes + removed->events + removed->usage + removed->scripts) {
        auto_free char *details = str_printf("{\"executions\":%" PRIu64 ",\"sandboxes\":%" PRIu64 ",\"events\":%" PRIu64
                                             ",\"usageRows\":%" PRIu64 ",\"scripts\":%" PRIu64 "}",
                                             removed->executions, removed->sandboxes, removed->events, removed->usage,
                                             removed->scripts);

        server_audit_record(d->recorder, "server.gc", details);
        log_info("retention: removed %" PRIu64 " executions, %" PRIu64 " sandboxes, %" PRIu64 " events, %" PRIu64
                 " rows of usage, %" PRIu64 " scripts",
                 removed->executions, removed->sandboxes, removed->events, removed->usage, removed->scripts);
    }
}

void coved_collect_garbage(void *arg)
{
    struct coved *d = arg;
    struct store_retention keep;

    coved_fill_retention(d, &keep);
    if (!coved_update_wallclock(d)) /* limits in bytes do not depend on the clock */
        keep = (struct store_retention){ .output_bytes_max = keep.output_bytes_max, .db_bytes_max = keep.db_bytes_max };
    retention_run(manager_retention(d->manager), &keep, false, coved_on_garbage_collected, d);
    ev_timer_set(d->ev, &d->gc_timer, ev_now(d->ev) + GC_EVERY_NS, coved_collect_garbage, d);
}
