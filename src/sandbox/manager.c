/* The table of living sandboxes, and the connection to the jailer they live in.
 *
 * Only what lives is in memory; what has ended is in the store. A sandbox enters the table when its creation begins or
 * when it is loaded, and leaves it when its end is committed, so for any id the table and the store together have one
 * answer.
 *
 * A lost jailer takes its sandboxes with it. The engine tells each of them before it tells us, so by then all of them
 * are on their way to their tombstones, and all that is left to do is to connect again, a little later each time. */
#include "sandbox/contexts.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdio.h>

#define BACKOFF_MIN (100 * NS_PER_MS)
#define BACKOFF_MAX (5 * NS_PER_S)
#define TURN_WAIT_NS (60 * NS_PER_S)
#define CREATE_KEEP_NS (2 * NS_PER_S) /* many times what either takes; whatever hangs holds up others no longer */
#define START_KEEP_NS (1 * NS_PER_S)

uint64_t now_ms(void)
{
    return clock_real_ns() / NS_PER_MS;
}

uint64_t mono_ms(const struct manager *m)
{
    return ev_now(m->ev) / NS_PER_MS;
}

/* --- the table --- */

static struct sb **bucket(const struct manager *m, const char *id)
{
    uint32_t h = 2166136261u;

    for (const char *p = id; *p; p++)
        h = (h ^ (uint8_t)*p) * 16777619u;
    return (struct sb **)&m->sbs[h % SB_BUCKETS];
}

struct sb *sb_find(const struct manager *m, const char *owner, const char *id)
{
    struct sb *sb = *bucket(m, id);

    while (sb && !str_eq(sb->id, id))
        sb = sb->next;
    return sb && (str_eq(owner, STORE_ANY_OWNER) || str_eq(owner, sb->owner)) ? sb : NULL;
}

bool manager_lives(const struct manager *m, const char *owner, const char *id)
{
    const struct sb *sb = sb_find(m, owner, id);

    return sb ? sb->state != SB_ENDING : !m->loaded;
}

struct sb *sb_new(struct manager *m, const char *id, const char *owner)
{
    struct sb *sb = mem_new(struct sb);
    struct sb **p = bucket(m, id);

    sb->m = m;
    (void)str_copy(sb->id, sizeof(sb->id), id);
    (void)str_copy(sb->owner, sizeof(sb->owner), owner);
    spec_init(&sb->spec);
    sb->share = share_of(m, owner);
    sb->next = *p;
    *p = sb;
    m->nsbs++;
    return sb;
}

static void unlist(struct sb *sb)
{
    struct sb **p = bucket(sb->m, sb->id);

    while (*p != sb)
        p = &(*p)->next;
    *p = sb->next;
}

void sb_rename(struct sb *sb, const char *id)
{
    unlist(sb);
    (void)str_copy(sb->id, sizeof(sb->id), id);
    struct sb **p = bucket(sb->m, id);
    sb->next = *p;
    *p = sb;
}

void sb_pinned(struct sb *sb, uint64_t pins)
{
    sb->pins = pins;
    for (unsigned i = 0; i < 64; i++)
        sb->m->pinned[i] += pins >> i & 1;
}

void sb_free(struct sb *sb)
{
    struct manager *m = sb->m;

    unlist(sb);
    m->nsbs--;
    for (unsigned i = 0; i < 64; i++)
        if (sb->pins >> i & 1)
            m->pinned[i]--;
    ev_timer_clear(m->ev, &sb->idle);
    ev_timer_clear(m->ev, &sb->retry);
    for (struct attend *a = sb->attends; a; a = a->next)
        a->sb = NULL;
    turn_end(&sb->turn);
    share_give(sb->share, sb->holds);
    while (sb->contexts)
        cx_free(sb->contexts);
    while (sb->execs)
        ex_free(sb->execs);
    exec_free(sb->first);
    box_free(sb->box);
    while (sb->ops) {
        struct op *op = sb->ops;

        sb->ops = op->next;
        free(op);
    }
    while (sb->waiters) {
        struct waiter *w = sb->waiters;

        sb->waiters = w->next;
        free(w);
    }
    spec_done(&sb->spec);
    free(sb->template);
    free(sb);
    if (m->nsbs == 0 && m->emptied)
        m->emptied(m->emptied_arg);
}

/* --- what is written down --- */

char *why_json(const struct err *why)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "code", err_info(why->id)->code);
    jsonw_kstr(&w, "message", why->msg);
    jsonw_end_object(&w);
    return out.data;
}

/* Limits that executions of an adopted sandbox still begin with. */
static const enum limit stored_limits[] = { LIMIT_OUTPUT, LIMIT_CPU_TIME };

char *sb_spec_json(const struct sb *sb)
{
    uint64_t cpus = sb->spec.limits.v[LIMIT_CPUSET];
    char text[LIMIT_TEXT];
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_key(&w, "spec");
    jsonw_object(&w);
    spec_json(&sb->spec, &w);
    jsonw_end_object(&w);
    jsonw_key(&w, "limits"); /* also those that no request can name: a policy or a floor decided them */
    jsonw_object(&w);
    for (size_t i = 0; i < ARRAY_LEN(stored_limits); i++)
        jsonw_ku64(&w, limit_info(stored_limits[i])->name, sb->spec.limits.v[stored_limits[i]]);
    if (cpus)
        jsonw_kstr(&w, limit_info(LIMIT_CPUSET)->name, limit_print(LIMIT_CPUSET, cpus, text));
    jsonw_end_object(&w);
    jsonw_ku64(&w, "expiresMonoMs", sb->expires_mono_ms);
    jsonw_ku64(&w, "pausedMs", sb->paused_ms);
    jsonw_ku64(&w, "pausedAtMonoMs", sb->paused_at_ms);
    jsonw_kbool(&w, "pausedByIdle", sb->paused_by_idle);
    contexts_json(sb, &w);
    jsonw_end_object(&w);
    return out.data;
}

static int read_stored(const char *text, struct sb *sb, struct spec *spec, struct err *err)
{
    auto_json *root = NULL;
    json_t *inner = NULL, *limits = NULL;
    const char *cpus = NULL;

    if (!text)
        return err_set(err, ERR_STORE_CORRUPT, "it has no spec");
    if (body_parse(text, strlen(text), &root, err) < 0 || body_object(root, "", "spec", &inner, err) < 0)
        return -1;
    if (!inner)
        return err_set(err, ERR_STORE_CORRUPT, "it has no spec");
    if (spec_read(spec, inner, SPEC_OF_SANDBOX, NULL, err) < 0 || spec_finish(spec, err) < 0 ||
        body_object(root, "", "limits", &limits, err) < 0)
        return -1;
    for (size_t i = 0; limits && i < ARRAY_LEN(stored_limits); i++)
        if (body_u64(limits, "limits.", limit_info(stored_limits[i])->name, 0, UINT64_MAX,
                     &spec->limits.v[stored_limits[i]], NULL, err) < 0)
            return -1;
    if (limits && body_text(limits, "limits.", limit_info(LIMIT_CPUSET)->name, 1, LIMIT_TEXT, &cpus, err) < 0)
        return -1;
    if (cpus && limit_parse(LIMIT_CPUSET, cpus, &spec->limits.v[LIMIT_CPUSET], err) < 0)
        return -1;
    spec_env_free(take_ptr(&spec->env)); /* a policy names variables; the sandbox has them with their values */
    spec->nenv = 0;
    if (!sb)
        return 0;
    if (body_u64(root, "", "expiresMonoMs", 0, UINT64_MAX, &sb->expires_mono_ms, NULL, err) < 0 ||
        body_u64(root, "", "pausedMs", 0, UINT64_MAX, &sb->paused_ms, NULL, err) < 0 ||
        body_u64(root, "", "pausedAtMonoMs", 0, UINT64_MAX, &sb->paused_at_ms, NULL, err) < 0 ||
        contexts_read(sb, root, err) < 0)
        return -1;
    return body_bool(root, "", "pausedByIdle", &sb->paused_by_idle, err);
}

int sb_read_spec(struct sb *sb, const char *text, struct err *err)
{
    return read_stored(text, sb, &sb->spec, err);
}

int manager_spec(const struct store_sandbox *row, struct spec *ret, struct err *err)
{
    spec_init(ret);
    if (read_stored(row->spec_json, NULL, ret, err) == 0)
        return 0;
    spec_done(ret);
    return err_wrap(err, "the row of sandbox %s", row->id);
}

static void on_event(void *arg UNUSED, const struct err *err, uint64_t seq UNUSED)
{
    if (err)
        log_warn("an event was not written down: %s", err->msg);
}

void sb_event(struct sb *sb, const char *kind, const char *execution, const char *body_json)
{
    auto_buf body = { 0 };
    struct store_event row = { .at_ms = now_ms(), .kind = (char *)kind };

    str_copy(row.owner, sizeof(row.owner), sb->owner);
    str_copy(row.sandbox, sizeof(row.sandbox), sb->id);
    if (execution)
        buf_addf(&body, "{\"executionId\":\"%s\"%s%s}", execution, body_json ? "," : "", body_json ? body_json : "");
    else
        buf_addf(&body, "{%s}", body_json ? body_json : "");
    row.body_json = body.data;
    store_event_append(sb->m->store, &row, on_event, NULL);
}

/* --- the jailer --- */

static void on_lost(void *arg, const struct err *why)
{
    manager_down(arg, why);
}

static const struct engine_ops engine_ops = { .on_lost = on_lost };

static void free_engine(void *arg)
{
    engine_free(arg);
}

static void on_reconnect(void *arg)
{
    manager_connect(arg);
}

void manager_down(struct manager *m, const struct err *why)
{
    log_warn("no jailer: %s", why->msg);
    snprintf(m->not_ready, sizeof(m->not_ready), "there is no jailer: %.120s", why->msg);
    pools_engine(m->pools, NULL);
    if (m->engine)
        ev_defer(m->ev, &m->defer, free_engine, take_ptr(&m->engine));
    ev_timer_set(m->ev, &m->reconnect, ev_now(m->ev) + m->backoff_ns, on_reconnect, m);
    m->backoff_ns = min_u64(m->backoff_ns * 2, BACKOFF_MAX);
}

static int new_engine(struct manager *m, struct err *err)
{
    int jailer = -1, monitor = -1;

    if (m->set.connect(m->set.arg, &jailer, &monitor, err) < 0)
        return -1;
    if (engine_new(m->ev, jailer, &engine_ops, m, &m->engine, err) < 0) {
        fd_close(&jailer);
        fd_close(&monitor);
        return -1;
    }
    if (monitor < 0)
        engine_watch_kept(m->engine);
    else if (engine_watch(m->engine, monitor, err) < 0)
        log_warn("no monitor: %s", err->msg); /* receipts say that refusals were not counted */
    return 0;
}

void manager_connect(struct manager *m)
{
    struct err err = { 0 };

    if (new_engine(m, &err) < 0) {
        manager_down(m, &err);
        return;
    }
    m->stats.reconnects++;
    m->backoff_ns = BACKOFF_MIN;
    m->not_ready[0] = '\0';
    if (m->loaded)
        recover_adopt(m);
}

bool manager_ready(const struct manager *m, const char **ret_why)
{
    const char *why = NULL;

    if (!m->engine)
        why = m->not_ready;
    else if (!m->loaded)
        why = "the store is still being read";
    else if (m->adopting > 0)
        why = "sandboxes of before are still being adopted";
    if (ret_why)
        *ret_why = why;
    return why == NULL;
}

void manager_stats(const struct manager *m, struct manager_stats *ret)
{
    *ret = m->stats;
    ret->running = ret->paused = ret->executing = 0;
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (const struct sb *sb = m->sbs[i]; sb; sb = sb->next) {
            ret->running += sb->state == SB_RUNNING;
            ret->paused += sb->state == SB_PAUSED;
            ret->executing += sb->nexecs;
        }
}

/* --- life --- */

int manager_new(struct ev *ev, const struct manager_settings *set, struct manager **ret, struct err *err)
{
    auto_fd int dir = open(set->output_dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);

    if (dir < 0)
        return err_sys(err, ERR_SYS, "%s", set->output_dir);
    struct manager *m = mem_new(struct manager);
    m->ev = ev;
    m->set = *set;
    m->set.output_dir = NULL;
    m->store = set->store;
    m->told_last = &m->told;
    m->output_dir = take_fd(&dir);
    m->backoff_ns = BACKOFF_MIN;
    m->pools = set->pools ? set->pools : pools_new(ev);
    if (!m->set.executions_max)
        m->set.executions_max = 64;
    turns_init(&m->creates, ev, set->creating_max ? set->creating_max : 16, TURN_WAIT_NS, CREATE_KEEP_NS);
    turns_init(&m->starts, ev, set->starting_max ? set->starting_max : 64, TURN_WAIT_NS, START_KEEP_NS);
    *ret = m;
    m->began_ms = now_ms();
    budget_start(m);
    ends_open(m);
    ends_replay(m);
    recover_start(m);
    manager_connect(m);
    return 0;
}

void manager_end_all(struct manager *m, const struct err *why, void (*done)(void *arg), void *arg)
{
    size_t n = 0;
    struct sb **all = mem_new_array(struct sb *, m->nsbs + 1);

    m->emptied = done;
    m->emptied_arg = arg;
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = m->sbs[i]; sb; sb = sb->next)
            all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* each may be gone when this returns, but only itself */
        sb_end(all[i], ENDED_KILLED, why);
    free(all);
    if (n == 0)
        done(arg);
}

static void finish_execution(struct ex *ex, const struct err *why)
{
    store_execution_fn *done = ex->done;

    ex->done = NULL;
    if (done)
        done(ex->done_arg, why, NULL);
}

static void finish_sandbox(struct sb *sb, const struct err *why)
{
    store_sandbox_fn *created = sb->created;

    sb->created = NULL;
    if (created)
        created(sb->created_arg, why, NULL);
    sb_answer_waiters(sb, why, NULL);
    sb_fail_ops(sb, why);
    contexts_end(sb, why);
    for (struct ex *ex = sb->execs; ex; ex = ex->next)
        finish_execution(ex, why);
}

void manager_finish(struct manager *m)
{
    struct err why;

    if (!m)
        return;
    err_set(&why, ERR_BUSY, "the server is being stopped; what runs in sandboxes goes on");
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = m->sbs[i]; sb; sb = sb->next)
            finish_sandbox(sb, &why);
}

/* The engine goes first: without it, letting go of an execution kills nothing. */
void manager_free(struct manager *m)
{
    if (!m)
        return;
    m->emptied = NULL;
    ev_timer_clear(m->ev, &m->reconnect);
    budget_stop(m);
    ev_defer_clear(m->ev, &m->settle);
    if (m->defer.on) {
        ev_defer_clear(m->ev, &m->defer);
        engine_free(m->defer.arg);
    }
    pools_engine(m->pools, NULL);
    engine_free(m->engine);
    if (!m->set.pools)
        pools_free(m->pools);
    for (size_t i = 0; i < SB_BUCKETS; i++)
        while (m->sbs[i])
            sb_free(m->sbs[i]);
    guests_free(m);
    turns_done(&m->creates);
    turns_done(&m->starts);
    shares_free(m);
    ends_close(m);
    if (m->gc_dir)
        closedir(m->gc_dir);
    fd_close(&m->output_dir);
    meter_stop(m); /* what was let go of has stirred it */
    free(m);
}
