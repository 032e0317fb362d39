/* J_CREATE and J_ADOPT: from a spec to the descriptors of a sandbox. */
#include "sandbox/jailed/jailed_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"

/* --- the request --- */

static int jailed_add_mount(struct jail_create *m, const struct sandbox_mount *from, struct err *err)
{
    static const uint8_t kinds[] = { [SANDBOX_MOUNT_BIND_RO] = JAIL_BIND_RO,
                                     [SANDBOX_MOUNT_WORKSPACE] = JAIL_WORKSPACE,
                                     [SANDBOX_MOUNT_WORKSPACE_COW] = JAIL_WORKSPACE_COW };
    struct jail_mount *jm = &m->mounts[m->nmounts];

    if ((size_t)from->kind >= ARRAY_LEN(kinds) || from->fd < 0)
        return err_set(err, ERR_BUG, "mount %u: unknown kind, or no descriptor", m->nmounts);
    jm->kind = kinds[from->kind];
    jm->fd = (uint8_t)m->nmounts;
    _Static_assert(SANDBOX_MOUNT_DST_MAX == JAIL_DST_MAX, "every target fits into the message");
    if (from->kind == SANDBOX_MOUNT_BIND_RO)
        (void)str_copy(jm->dst, sizeof(jm->dst), from->dst);
    m->nmounts++;
    return 0;
}

static int jailed_encode_create(const char *id, const struct sandbox_kind *kind, const struct sandbox_spec *spec,
                                uint8_t *out, struct err *err)
{
    struct jail_create m = { .owner_uid = spec->owner_uid,
                             .owner_gid = spec->owner_gid,
                             .network = (uint8_t)spec->network.mode,
                             .nlimits = LIMIT_COUNT };

    _Static_assert(LIMIT_COUNT <= JAIL_LIMITS_MAX, "every limit fits into the message");
    memcpy(m.id, id, sizeof(m.id));
    jailed_template_name(kind, m.template);
    if (!str_copy(m.hostname, sizeof(m.hostname), spec->hostname ? spec->hostname : "cove"))
        return err_set(err, ERR_INVALID, "hostname: longer than %d bytes", JAIL_NAME_MAX - 1);
    memcpy(m.limits, spec->limits.v, sizeof(spec->limits.v));
    if (spec->nmounts > JAIL_MOUNTS_MAX)
        return err_set(err, ERR_LIMIT, "mounts: %zu are too many; a sandbox takes at most %d", spec->nmounts,
                       JAIL_MOUNTS_MAX);
    for (size_t i = 0; i < spec->nmounts; i++)
        if (jailed_add_mount(&m, &spec->mounts[i], err) < 0)
            return -1;
    return jail_create_encode(&m, out, err);
}

/* --- the reply --- */

static int jailed_read_created(const struct jailed_reply *reply, struct driver_created *c, struct err *err)
{
    struct jail_created m;
    size_t n = 0;

    if (jail_created_decode(reply->f, &m, err) < 0)
        return -1;
    if (reply->nfds != 2u + m.cpu_fd + m.oom_fd || m.cpu_unit > 1 || m.nlimits > LIMIT_COUNT)
        return err_set(err, ERR_PROTOCOL, "J_CREATED with %zu descriptors", reply->nfds);
    c->walls = m.walls & ~JAIL_ROOTLESS;
    c->rootless = m.walls & JAIL_ROOTLESS;
    memcpy(c->cgroup, m.cgroup, sizeof(c->cgroup));
    memcpy(c->limits.enforcement, m.enforced, sizeof(c->limits.enforcement));
    memcpy(c->limits.reason, m.why, sizeof(c->limits.reason));
    c->cpu_unit = m.cpu_unit;
    c->carrier = m.egress_carrier;
    c->control_fd = take_fd(&reply->fds[n++]);
    c->pidfd = take_fd(&reply->fds[n++]);
    if (m.cpu_fd)
        c->cpu_fd = take_fd(&reply->fds[n++]);
    if (m.oom_fd)
        c->oom_fd = take_fd(&reply->fds[n++]);
    return 0;
}

static void jailed_on_created(struct jailed_link *l, struct jailed_request *a, const struct jailed_reply *reply,
                              const struct err *err)
{
    struct driver_created c = { .control_fd = -1, .pidfd = -1, .cpu_fd = -1, .oom_fd = -1 };
    struct err why = { 0 };

    if (err && err->id == ERR_MISSING && a->type == FRAME_J_CREATE) { /* its spawner died */
        jailed_forget_template(l, &a->kind);
        err_set(&why, ERR_BUSY, "the process that makes sandboxes of this kind ended and is restarted; try again");
        err = &why;
    }
    if (!a->base.on.created) {
        if (!err && a->type == FRAME_J_CREATE)
            jailed_send_id(l, FRAME_J_DESTROY, a->id, jailed_on_done, NULL);
        return;
    }
    bool valid = !err && jailed_read_created(reply, &c, &why) == 0;
    a->base.on.created(&a->base, err ? NULL : &c, valid ? NULL : err ? err : &why);
    fd_close(&c.control_fd);
    fd_close(&c.pidfd);
    fd_close(&c.cpu_fd);
    fd_close(&c.oom_fd);
}

static struct jailed_request *jailed_find_creation(struct jailed_link *l, const struct sandbox_kind *kind)
{
    for (size_t i = 0; i < JAILED_REQUEST_BUCKETS; i++)
        for (struct jailed_request *a = l->requests[i]; a; a = a->next)
            if (a->type == FRAME_J_CREATE && a->base.on.created && sandbox_kind_equal(&a->kind, kind))
                return a;
    return NULL;
}

/* The jailer still replies to each of these requests; nothing waits for that. */
void jailed_fail_creations(struct jailed_link *l, const struct sandbox_kind *kind, const struct err *why)
{
    for (struct jailed_request *a; (a = jailed_find_creation(l, kind));) {
        struct driver_request answered = a->base;

        driver_request_forget(&a->base);
        answered.on.created(&answered, NULL, why);
    }
}

struct driver_request *jailed_create(struct driver_link *link, const char *id, const struct sandbox_kind *kind,
                                     const struct sandbox_spec *spec, driver_created_fn *fn, void *owner,
                                     struct err *err)
{
    struct jailed_link *l = jailed_link(link);
    int fds[JAIL_MOUNTS_MAX];
    PAYLOAD(payload);
    int len = jailed_encode_create(id, kind, spec, payload, err);

    if (len < 0)
        return NULL;
    for (size_t i = 0; i < spec->nmounts; i++)
        fds[i] = spec->mounts[i].fd;
    jailed_request_template(l, kind);
    struct jailed_request *a = jailed_send(l, FRAME_J_CREATE, payload, (uint32_t)len, fds, spec->nmounts,
                                           jailed_on_created, owner);
    a->base.on.created = fn;
    a->kind = *kind;
    memcpy(a->id, id, sizeof(a->id));
    return &a->base;
}

struct driver_request *jailed_adopt(struct driver_link *l, const char *id, driver_created_fn *fn, void *owner)
{
    struct jailed_request *a = jailed_send_id(jailed_link(l), FRAME_J_ADOPT, id, jailed_on_created, owner);

    a->base.on.created = fn;
    return &a->base;
}
