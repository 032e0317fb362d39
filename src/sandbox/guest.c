/* What guests used is gathered by tenant, user and hour, and written when the first of it is a second old. A store that
 * refuses loses nothing: the sums stay and are offered again with what came since.
 *
 * Invariants:
 * 1. From guest_admit to guest_end a guest is in the manager's list; its time and its processor time are in the sums of
 *    what lives until guest_end moves them to the sums of what has ended.
 * 2. `flushing` is what the store was asked to add; nothing is added to it, and only its answer empties it. */
#include "sandbox/guest.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/met.h"
#include "sandbox/inside.h"

#define FLUSH_NS (1 * NS_PER_S)
#define SUMS_MAX 4096u /* tenants and users of one second; of more, the sums of a user become nobody's */

/* --- sums on their way to the store --- */

static struct store_usage *sum_of(struct manager *m, const char *owner, const char *by, uint64_t at_ms)
{
    struct guest_sums *s = &m->guest_sums;
    uint64_t hour = at_ms / STORE_HOUR_MS * STORE_HOUR_MS;

    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i].hour_ms == hour && str_eq(s->rows[i].owner, owner) && str_eq(s->rows[i].created_by, by))
            return &s->rows[i];
    if (s->n >= SUMS_MAX && *by)
        return sum_of(m, owner, "", at_ms);
    s->rows = mem_resize(s->rows, s->n + 1, sizeof(*s->rows));
    struct store_usage *u = &s->rows[s->n++];
    *u = (struct store_usage){ .hour_ms = hour };
    (void)str_copy(u->owner, sizeof(u->owner), owner);
    (void)str_copy(u->created_by, sizeof(u->created_by), by);
    return u;
}

static void on_flush(void *arg);

static void plan(struct manager *m)
{
    if (m->guest_sums.n && !m->guest_sums.timer.slot && !m->guest_sums.call)
        ev_timer_set(m->ev, &m->guest_sums.timer, ev_now(m->ev) + FLUSH_NS, on_flush, m);
}

static void put_back(struct manager *m, const struct store_usage *from)
{
    struct store_usage *to = sum_of(m, from->owner, from->created_by, from->hour_ms);

    to->executions += from->executions;
    to->failed += from->failed;
    to->cpu_us += from->cpu_us;
    to->execution_ms += from->execution_ms;
    to->output_bytes += from->output_bytes;
    to->sandbox_ms += from->sandbox_ms;
    to->memory_mib_ms += from->memory_mib_ms;
    to->storage_mib_ms += from->storage_mib_ms;
    to->memory_peak = max_u64(to->memory_peak, from->memory_peak);
}

static void on_flushed(void *arg, const struct err *err)
{
    struct manager *m = arg;
    struct guest_sums *s = &m->guest_sums;

    s->call = NULL;
    if (err) {
        log_warn("usage was not written down yet: %s", err->msg);
        for (size_t i = 0; i < s->nflushing; i++)
            put_back(m, &s->flushing[i]);
    }
    free(take_ptr(&s->flushing));
    s->nflushing = 0;
    plan(m);
}

void guests_flush(struct manager *m)
{
    struct guest_sums *s = &m->guest_sums;

    ev_timer_clear(m->ev, &s->timer);
    if (!s->n || s->call)
        return;
    s->flushing = take_ptr(&s->rows);
    s->nflushing = s->n;
    s->n = 0;
    s->call = store_usage_add(m->store, s->flushing, s->nflushing, on_flushed, m);
}

static void on_flush(void *arg)
{
    guests_flush(arg);
}

static void on_last(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("usage of the last second was not written down: %s", err->msg);
}

void manager_guests_finish(struct manager *m)
{
    struct guest_sums *s = &m->guest_sums;

    ev_timer_clear(m->ev, &s->timer);
    if (s->n)
        store_usage_add(m->store, s->rows, s->n, on_last, NULL);
    s->n = 0;
}

void guests_free(struct manager *m)
{
    struct guest_sums *s = &m->guest_sums;

    ev_timer_clear(m->ev, &s->timer);
    if (s->call)
        store_forget(s->call);
    free(s->rows);
    free(s->flushing);
    for (struct guest *g = m->guests; g; g = g->next)
        g->at = NULL;
}

/* --- one of them --- */

void guest_init(struct guest *g, struct manager *m, const char *owner, const char *created_by)
{
    *g = (struct guest){ .m = m, .share = share_of(m, owner) };
    (void)str_copy(g->created_by, sizeof(g->created_by), created_by ? created_by : "");
}

int guest_admit(struct guest *g, struct err *err)
{
    struct manager *m = g->m;
    const char *why;

    if (!manager_ready(m, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    if (budget_check(m, g->share->name, true, err) < 0 ||
        share_take_execution(g->share, share_now(m), &m->refusal, err) < 0)
        return -1;
    g->next = m->guests;
    g->at = &m->guests;
    if (g->next)
        g->next->at = &g->next;
    m->guests = g;
    m->stats.executions++;
    return 0;
}

struct turn_line *guest_line(const struct guest *g)
{
    return &g->share->guests;
}

uint32_t guest_waiting(const struct guest *g)
{
    return g->share->guests_waiting;
}

void guest_wait(const struct guest *g, int by)
{
    g->share->guests_waiting += (uint32_t)by;
    pools_expect(g->m->pools, by);
}

static void wanted(const struct guest *g, const struct spec *spec, struct box_spec *ret)
{
    spec_box(spec, ret);
    ret->enforce = g->m->set.enforce;
    ret->every_wall = g->m->set.every_wall;
}

static int make_box(struct guest *g, const struct spec *spec, const struct box_ops *ops, void *arg, struct err *err)
{
    struct box_spec box;

    wanted(g, spec, &box);
    if (spec->nhide == 0) {
        g->box = pools_lend(g->m->pools, &box, g->share->name, &g->loan);
        g->cpu_base_ns = g->loan.uses ? box_cpu_ns(g->box) : 0;
        g->claiming = true;
        g->claim_ns = ev_now(g->m->ev);
    }
    g->pooled = g->box != NULL;
    if (!g->box)
        return manager_new_box(g->m, spec, &box, ops, arg, &g->box, err);
    if (box_claim(g->box, &box, ops, arg, err) == 0)
        return 0;
    if (err->id == ERR_LOST)
        return guest_again(g, spec, ops, arg, err);
    box_free(take_ptr(&g->box));
    return -1;
}

int guest_again(struct guest *g, const struct spec *spec, const struct box_ops *ops, void *arg, struct err *err)
{
    struct box_spec box;
    const char *why;

    guest_ready(g, spec, false);
    box_free(take_ptr(&g->box));
    g->pooled = false;
    g->loan = (struct pool_loan){ 0 };
    g->cpu_base_ns = 0;
    if (!manager_ready(g->m, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    wanted(g, spec, &box);
    return manager_new_box(g->m, spec, &box, ops, arg, &g->box, err);
}

int guest_begin(struct guest *g, const struct spec *spec, const struct box_ops *ops, void *arg, struct err *err)
{
    struct manager *m = g->m;
    const char *why;

    if (!manager_ready(m, &why))
        return err_set(err, ERR_BUSY, "%s", why);
    sb_amounts(spec, g->amounts);
    if (share_take(g->share, g->amounts, &m->refusal, err) < 0)
        return -1;
    g->begun = true;
    g->created_ms = now_ms();
    return make_box(g, spec, ops, arg, err);
}

void guest_ready(struct guest *g, const struct spec *spec, bool well)
{
    struct box_spec box;

    if (!g->claiming)
        return;
    g->claiming = false;
    wanted(g, spec, &box);
    pools_claimed(g->m->pools, &box, well ? ev_now(g->m->ev) - g->claim_ns + 1 : 0);
}

uint64_t guest_meter(struct guest *g)
{
    uint64_t ns = g->box ? box_cpu_ns(g->box) : BOX_UNKNOWN;

    if (ns != BOX_UNKNOWN && ns >= g->cpu_base_ns)
        ns -= g->cpu_base_ns;
    if (ns != BOX_UNKNOWN && ns / NS_PER_US > g->cpu_us) {
        budget_add_cpu(g->m, g->share->name, ns / NS_PER_US - g->cpu_us);
        g->cpu_us = ns / NS_PER_US;
    }
    return g->cpu_us;
}

void guest_ran(struct guest *g, const struct guest_use *use)
{
    struct manager *m = g->m;
    const struct receipt *r = use->receipt;
    struct store_usage *u = sum_of(m, g->share->name, g->created_by, now_ms());

    g->ran = true;
    u->executions++;
    u->failed += use->failed;
    u->execution_ms += use->wall_ms;
    u->output_bytes += use->output_bytes;
    budget_add_execution(m, g->share->name);
    m->stats.executions_failed += use->failed;
    if (r) {
        stats_count(&m->stats, r);
        m->stats.executions_ended[r->ended_by]++;
        refusals_count(m, g->share->name, r);
    }
    plan(m);
}

void guest_refused(const struct guest *g, const struct receipt *r)
{
    refusals_count(g->m, g->share->name, r);
}

/* The hours that it lived in; nearly always one. */
static void count_life(struct guest *g, uint64_t ended_ms)
{
    uint64_t peak = g->box ? box_memory_peak(g->box) : g->peak ? g->peak : BOX_UNKNOWN;

    if (g->loan.uses) /* it may be that of a run before */
        peak = BOX_UNKNOWN;

    for (uint64_t from = g->created_ms, to; from < ended_ms; from = to) {
        struct store_usage *u = sum_of(g->m, g->share->name, g->created_by, from);

        to = min_u64(ended_ms, (from / STORE_HOUR_MS + 1) * STORE_HOUR_MS);
        u->sandbox_ms += to - from;
        u->memory_mib_ms += (to - from) * (g->amounts[STORE_QUOTA_MEMORY] / MIB);
        u->storage_mib_ms += (to - from) * (g->amounts[STORE_QUOTA_STORAGE] / MIB);
    }
    struct store_usage *u = sum_of(g->m, g->share->name, g->created_by, ended_ms);
    u->cpu_us += guest_meter(g);
    if (peak != BOX_UNKNOWN)
        u->memory_peak = max_u64(u->memory_peak, peak);
    budget_add_span(g->m, g->share->name, g->created_ms, ended_ms);
}

void guest_over(struct guest *g)
{
    if (!g->at || !g->begun || g->over)
        return;
    g->over = true;
    g->over_ms = now_ms();
    share_give(g->share, g->amounts);
}

void guest_end(struct guest *g)
{
    if (!g->at)
        return;
    guest_over(g);
    if (g->begun)
        count_life(g, g->over_ms);
    *g->at = g->next;
    if (g->next)
        g->next->at = g->at;
    g->at = NULL;
    plan(g->m);
}

static void on_numbers(void *arg, const struct box_usage *u, const struct err *err)
{
    struct guest *g = arg;

    guest_meter(g);
    if (!err) {
        g->back.usage = *u;
        g->peak = u->memory_peak;
        if (pools_give_back(g->m->pools, g->box, &g->loan, &g->back))
            g->box = NULL;
    }
    g->given(g->arg);
}

bool guest_give_back(struct guest *g, const struct spec *spec, bool by_itself, bool full, void (*done)(void *arg))
{
    struct box_spec *as = &g->as;

    if (!g->box || !pools_takes_back(g->m->pools, &g->loan))
        return false;
    wanted(g, spec, as);
    g->back = (struct pool_return){ .owner = g->share->name, .as = as, .by_itself = by_itself, .full = full };
    g->given = done;
    box_usage(g->box, on_numbers, g);
    return true;
}

/* --- those of a tenant --- */

void guests_stop(struct manager *m, const char *owner, enum ended_by by, const struct err *why)
{
    for (struct guest *g = m->guests, *next; g; g = next) {
        next = g->next;
        if (g->stopped || !g->stop || !str_eq(g->share->name, owner))
            continue;
        g->stopped = true;
        g->stop(g->arg, by, why); /* which takes none out of the list before it returns */
    }
}
