/* The requests about one sandbox that have no state of their own, and the table of operations. */
#include "sandbox/jailed/jailed_internal.h"

/* --- requests that are answered by J_OK --- */

static struct driver_request *jailed_request_done(struct driver_link *l, uint8_t type, const char *id,
                                                  driver_done_fn *fn, void *owner)
{
    struct jailed_request *a = jailed_send_id(jailed_link(l), type, id, jailed_on_done, owner);

    a->base.on.done = fn;
    return &a->base;
}

static struct driver_request *jailed_kill(struct driver_link *l, const char *id, driver_done_fn *fn, void *owner)
{
    return jailed_request_done(l, FRAME_J_KILL, id, fn, owner);
}

static struct driver_request *jailed_freeze(struct driver_link *l, const char *id, driver_done_fn *fn, void *owner)
{
    return jailed_request_done(l, FRAME_J_FREEZE, id, fn, owner);
}

static struct driver_request *jailed_thaw(struct driver_link *l, const char *id, driver_done_fn *fn, void *owner)
{
    return jailed_request_done(l, FRAME_J_THAW, id, fn, owner);
}

static struct driver_request *jailed_keep(struct driver_link *l, const char *id, int control_fd, driver_done_fn *fn,
                                          void *owner)
{
    struct jail_id m;
    PAYLOAD(payload);

    memcpy(m.id, id, sizeof(m.id));
    int len = jail_id_encode(&m, payload, NULL);
    struct jailed_request *a = jailed_send(jailed_link(l), FRAME_J_KEEP, payload, len > 0 ? (uint32_t)len : 0,
                                           &control_fd, control_fd >= 0, jailed_on_done, owner);
    a->base.on.done = fn;
    return &a->base;
}

static struct driver_request *jailed_set_limits(struct driver_link *l, const char *id, uint64_t lifetime_ms,
                                                const struct limits *limits, driver_done_fn *fn, void *owner)
{
    struct jail_set_limits m = { .lifetime_ms = lifetime_ms };
    PAYLOAD(payload);

    memcpy(m.id, id, sizeof(m.id));
    if (limits) {
        m.memory = limits->v[LIMIT_MEMORY];
        m.swap = limits->v[LIMIT_SWAP];
        m.cpu = limits->v[LIMIT_CPU];
        m.pids = limits->v[LIMIT_PIDS];
    }
    int len = jail_set_limits_encode(&m, payload, NULL);
    struct jailed_request *a = jailed_send(jailed_link(l), FRAME_J_SET_LIMITS, payload, len > 0 ? (uint32_t)len : 0,
                                           NULL, 0, jailed_on_done, owner);
    a->base.on.done = fn;
    return &a->base;
}

/* --- requests that are answered by counters --- */

static void jailed_on_stats(struct jailed_link *l UNUSED, struct jailed_request *a, const struct jailed_reply *reply,
                            const struct err *err)
{
    struct jail_stats m;
    struct err why = { 0 };

    if (!a->base.on.stats)
        return;
    if (err || jail_stats_decode(reply->f, &m, &why) < 0) {
        a->base.on.stats(&a->base, NULL, err ? err : &why);
        return;
    }
    const struct sandbox_handle_usage u = { .cpu_ns = m.cpu_ns,
                                            .throttled_ns = m.throttled_ns,
                                            .memory = m.memory,
                                            .memory_peak = m.memory_peak,
                                            .oom_kills = m.oom_kills,
                                            .pids = m.pids,
                                            .pids_peak = m.pids_peak,
                                            .pids_refused = m.pids_refused,
                                            .io_read = m.io_read,
                                            .io_write = m.io_write };
    _Static_assert(SANDBOX_USAGE_UNKNOWN == JAIL_UNKNOWN, "the same value for unknown");
    a->base.on.stats(&a->base, &u, NULL);
}

static struct driver_request *jailed_request_stats(struct driver_link *l, uint8_t type, const char *id,
                                                   driver_stats_fn *fn, void *owner)
{
    struct jailed_request *a = jailed_send_id(jailed_link(l), type, id, jailed_on_stats, owner);

    a->base.on.stats = fn;
    return &a->base;
}

static struct driver_request *jailed_stats(struct driver_link *l, const char *id, driver_stats_fn *fn, void *owner)
{
    return jailed_request_stats(l, FRAME_J_STATS, id, fn, owner);
}

static struct driver_request *jailed_destroy(struct driver_link *l, const char *id, driver_stats_fn *fn, void *owner)
{
    return jailed_request_stats(l, FRAME_J_DESTROY, id, fn, owner);
}

/* --- the list --- */

static void jailed_on_list(struct jailed_link *l UNUSED, struct jailed_request *a, const struct jailed_reply *reply,
                           const struct err *err)
{
    static struct jail_list m; /* 24 KiB: more than a stack should hold */
    struct err why = { 0 };

    _Static_assert(DRIVER_LIST_MAX == JAIL_LIST_MAX, "a full list is known by its length");
    if (!a->base.on.list)
        return;
    if (err || jail_list_decode(reply->f, &m, &why) < 0)
        a->base.on.list(&a->base, NULL, 0, err ? err : &why);
    else
        a->base.on.list(&a->base, m.ids, m.n, NULL);
}

static struct driver_request *jailed_list(struct driver_link *link, const char *after, driver_list_fn *fn, void *owner)
{
    struct jailed_link *l = jailed_link(link);
    struct jailed_request *a = after ? jailed_send_id(l, FRAME_J_LIST, after, jailed_on_list, owner)
                                     : jailed_send(l, FRAME_J_LIST, NULL, 0, NULL, 0, jailed_on_list, owner);

    a->base.on.list = fn;
    return &a->base;
}

/* The root of every template is made of the host's own /usr. */
static int jailed_find_language(const char *template UNUSED, const struct language *l, char *path, size_t cap,
                                struct err *err)
{
    return language_find_program(l, language_dirs, path, cap, err);
}

const struct driver_ops jailed_driver_ops = {
    .find_language = jailed_find_language,
    .open = jailed_open,
    .close = jailed_close,
    .forget = jailed_forget,
    .create = jailed_create,
    .destroy = jailed_destroy,
    .kill = jailed_kill,
    .stats = jailed_stats,
    .set_limits = jailed_set_limits,
    .list = jailed_list,
    .freeze = jailed_freeze,
    .thaw = jailed_thaw,
    .keep = jailed_keep,
    .adopt = jailed_adopt,
    .start_zygote = jailed_start_zygote,
    .stop_zygote = jailed_stop_zygote,
    .join = jailed_join,
    .denials = jailed_denials,
    .has_unread_denials = jailed_has_unread_denials,
    .forget_denials = jailed_forget_denials,
    .set_monitor = jailed_set_monitor,
    .connect_monitor = jailed_connect_monitor,
};
