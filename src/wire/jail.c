/* Each message is one walk over its fields, used by both directions (walk.h). Ids become names of cgroups and
 * directories in a privileged process, so anything that is not exactly an id ends here. */
#include "wire/jail.h"

#include "wire/walk.h"

static void walk_id(struct walk *w, char id[ID_SIZE])
{
    walk_str(w, id, ID_SIZE, "id");
    walk_check(w, id_valid(id, "sb"), "id");
}

static void jail_template_walk(struct walk *w, struct jail_template *m)
{
    walk_str(w, m->name, sizeof(m->name), "name");
    walk_u8(w, &m->profile);
    walk_u32(w, &m->grants);
    for (size_t i = 0; i < JAIL_DENY_WORDS; i++)
        walk_u64(w, &m->deny[i]);
    walk_u8(w, &m->joinable);
    walk_check(w, m->joinable <= 1, "joinable");
}
WALK_CODEC(jail_template);

static void jail_zygote_walk(struct walk *w, struct jail_zygote *m)
{
    walk_str(w, m->template, sizeof(m->template), "template");
    walk_str(w, m->language, sizeof(m->language), "language");
    walk_str(w, m->preload, sizeof(m->preload), "preload");
}
WALK_CODEC(jail_zygote);

static void jail_create_walk(struct walk *w, struct jail_create *m)
{
    uint32_t n;

    walk_id(w, m->id);
    walk_str(w, m->template, sizeof(m->template), "template");
    walk_str(w, m->hostname, sizeof(m->hostname), "hostname");
    walk_u32(w, &m->owner_uid);
    walk_u32(w, &m->owner_gid);
    n = walk_count(w, &m->nlimits, JAIL_LIMITS_MAX, "limits");
    for (uint32_t i = 0; i < n; i++)
        walk_u64(w, &m->limits[i]);
    n = walk_count(w, &m->nmounts, JAIL_MOUNTS_MAX, "mounts");
    for (uint32_t i = 0; i < n; i++) {
        struct jail_mount *mount = &m->mounts[i];

        walk_u8(w, &mount->kind);
        walk_check(w, mount->kind >= JAIL_BIND_RO && mount->kind <= JAIL_WORKSPACE_COW, "mount kind");
        walk_u8(w, &mount->fd);
        walk_str(w, mount->dst, sizeof(mount->dst), "mount target");
    }
}
WALK_CODEC(jail_create);

static void jail_created_walk(struct walk *w, struct jail_created *m)
{
    walk_u32(w, &m->pid);
    walk_u32(w, &m->host_uid);
    walk_u32(w, &m->walls);
    walk_u8(w, &m->cpu_fd);
    walk_check(w, m->cpu_fd <= 1, "cpu_fd");
    walk_u8(w, &m->oom_fd);
    walk_check(w, m->oom_fd <= 1, "oom_fd");
    walk_u8(w, &m->cpu_unit);
    walk_check(w, m->cpu_unit <= 1, "cpu_unit");
    walk_str(w, m->cgroup, sizeof(m->cgroup), "cgroup");
    uint32_t n = walk_count(w, &m->nlimits, JAIL_LIMITS_MAX, "limits");
    for (uint32_t i = 0; i < n; i++) {
        walk_u8(w, &m->enforced[i]);
        walk_check(w, m->enforced[i] <= JAIL_ENFORCED, "enforced");
        walk_u8(w, &m->why[i]);
    }
}
WALK_CODEC(jail_created);

static void jail_id_walk(struct walk *w, struct jail_id *m)
{
    walk_id(w, m->id);
}
WALK_CODEC(jail_id);

static void jail_extend_walk(struct walk *w, struct jail_extend *m)
{
    walk_id(w, m->id);
    walk_u64(w, &m->lifetime_ms);
    walk_u64(w, &m->memory);
    walk_u64(w, &m->swap);
    walk_u64(w, &m->cpu);
    walk_u64(w, &m->pids);
}
WALK_CODEC(jail_extend);

static void jail_stats_walk(struct walk *w, struct jail_stats *m)
{
    walk_u64(w, &m->cpu_ns);
    walk_u64(w, &m->memory);
    walk_u64(w, &m->memory_peak);
    walk_u64(w, &m->oom_kills);
    walk_u64(w, &m->pids);
    walk_u64(w, &m->pids_peak);
    walk_u64(w, &m->pids_refused);
    walk_u64(w, &m->throttled_ns);
    walk_u64(w, &m->io_read);
    walk_u64(w, &m->io_write);
}
WALK_CODEC(jail_stats);

static void jail_list_walk(struct walk *w, struct jail_list *m)
{
    uint32_t n = walk_count(w, &m->n, JAIL_LIST_MAX, "ids");

    for (uint32_t i = 0; i < n; i++)
        walk_id(w, m->ids[i]);
}
WALK_CODEC(jail_list);

static void jail_event_walk(struct walk *w, struct jail_event *m)
{
    walk_id(w, m->id);
    walk_u8(w, &m->kind);
    walk_check(w, m->kind == JAIL_EVENT_ENDED || m->kind == JAIL_EVENT_OOM, "kind");
    walk_i32(w, &m->status);
}
WALK_CODEC(jail_event);

static void jail_watch_walk(struct walk *w, struct jail_watch *m)
{
    walk_id(w, m->id);
    walk_i32(w, &m->sys);
}
WALK_CODEC(jail_watch);

static void jail_news_walk(struct walk *w, struct jail_news *m)
{
    walk_id(w, m->id);
    walk_u8(w, &m->watched);
    walk_check(w, m->watched == JAIL_WATCHED || m->watched == JAIL_UNWATCHABLE, "watched");
    walk_u8(w, &m->refused);
    walk_check(w, m->refused <= 1, "refused");
}
WALK_CODEC(jail_news);

static void jail_denied_walk(struct walk *w, struct jail_denied *m)
{
    walk_u8(w, &m->watched);
    walk_check(w, m->watched <= JAIL_UNWATCHABLE, "watched");
    walk_i32(w, &m->sys);
    walk_u64(w, &m->more);
    uint32_t n = walk_count(w, &m->n, JAIL_DENIALS_MAX, "denials");
    for (uint32_t i = 0; i < n; i++) {
        struct jail_denial *d = &m->each[i];

        walk_u32(w, &d->nr);
        for (size_t a = 0; a < ARRAY_LEN(d->args); a++)
            walk_u32(w, &d->args[a]);
        walk_u64(w, &d->count);
    }
}
WALK_CODEC(jail_denied);
