/* Each message is one list of its fields, used in both directions (codec.h). Ids become names of
 * cgroups and directories in a privileged process, so anything that is not exactly an id is refused
 * here. */
#include "core/wire/jail.h"

#include "core/wire/codec.h"
#include "core/wire/egress.h"

static void codec_sandbox_id(struct codec *w, char id[ID_SIZE])
{
    codec_str(w, id, ID_SIZE, "id");
    codec_check(w, id_valid(id, "sb"), "id");
}

static void jail_template_walk(struct codec *w, struct jail_template *m)
{
    codec_str(w, m->name, sizeof(m->name), "name");
    codec_u8(w, &m->driver);
    codec_u8(w, &m->profile);
    codec_u32(w, &m->grants);
    for (size_t i = 0; i < JAIL_DENY_WORDS; i++)
        codec_u64(w, &m->deny[i]);
    codec_u8(w, &m->joinable);
    codec_check(w, m->joinable <= 1, "joinable");
    codec_u8(w, &m->egress);
    codec_check(w, m->egress <= 1, "egress");
}
CODEC_DEFINE(jail_template);

static void jail_zygote_walk(struct codec *w, struct jail_zygote *m)
{
    codec_str(w, m->template, sizeof(m->template), "template");
    codec_str(w, m->language, sizeof(m->language), "language");
    codec_str(w, m->preload, sizeof(m->preload), "preload");
}
CODEC_DEFINE(jail_zygote);

static void jail_create_walk(struct codec *w, struct jail_create *m)
{
    uint32_t n;

    codec_sandbox_id(w, m->id);
    codec_str(w, m->template, sizeof(m->template), "template");
    codec_str(w, m->hostname, sizeof(m->hostname), "hostname");
    codec_u32(w, &m->owner_uid);
    codec_u32(w, &m->owner_gid);
    n = codec_count(w, &m->nlimits, JAIL_LIMITS_MAX, "limits");
    for (uint32_t i = 0; i < n; i++)
        codec_u64(w, &m->limits[i]);
    codec_u8(w, &m->network);
    codec_check(w, m->network <= 1, "network");
    n = codec_count(w, &m->nmounts, JAIL_MOUNTS_MAX, "mounts");
    for (uint32_t i = 0; i < n; i++) {
        struct jail_mount *mount = &m->mounts[i];

        codec_u8(w, &mount->kind);
        codec_check(w, mount->kind >= JAIL_BIND_RO && mount->kind <= JAIL_WORKSPACE_COW, "mount kind");
        codec_u8(w, &mount->fd);
        codec_str(w, mount->dst, sizeof(mount->dst), "mount target");
    }
}
CODEC_DEFINE(jail_create);

static void jail_created_walk(struct codec *w, struct jail_created *m)
{
    codec_u32(w, &m->pid);
    codec_u32(w, &m->host_uid);
    codec_u32(w, &m->walls);
    codec_u8(w, &m->cpu_fd);
    codec_check(w, m->cpu_fd <= 1, "cpu_fd");
    codec_u8(w, &m->oom_fd);
    codec_check(w, m->oom_fd <= 1, "oom_fd");
    codec_u8(w, &m->cpu_unit);
    codec_check(w, m->cpu_unit <= 1, "cpu_unit");
    codec_u8(w, &m->egress_carrier);
    codec_check(w, m->egress_carrier <= EGRESS_CARRIER_TPROXY, "egress_carrier");
    codec_str(w, m->cgroup, sizeof(m->cgroup), "cgroup");
    uint32_t n = codec_count(w, &m->nlimits, JAIL_LIMITS_MAX, "limits");
    for (uint32_t i = 0; i < n; i++) {
        codec_u8(w, &m->enforced[i]);
        codec_check(w, m->enforced[i] <= JAIL_ENFORCED, "enforced");
        codec_u8(w, &m->why[i]);
    }
}
CODEC_DEFINE(jail_created);

static void jail_id_walk(struct codec *w, struct jail_id *m)
{
    codec_sandbox_id(w, m->id);
}
CODEC_DEFINE(jail_id);

static void jail_set_limits_walk(struct codec *w, struct jail_set_limits *m)
{
    codec_sandbox_id(w, m->id);
    codec_u64(w, &m->lifetime_ms);
    codec_u64(w, &m->memory);
    codec_u64(w, &m->swap);
    codec_u64(w, &m->cpu);
    codec_u64(w, &m->pids);
}
CODEC_DEFINE(jail_set_limits);

static void jail_stats_walk(struct codec *w, struct jail_stats *m)
{
    codec_u64(w, &m->cpu_ns);
    codec_u64(w, &m->memory);
    codec_u64(w, &m->memory_peak);
    codec_u64(w, &m->oom_kills);
    codec_u64(w, &m->pids);
    codec_u64(w, &m->pids_peak);
    codec_u64(w, &m->pids_refused);
    codec_u64(w, &m->throttled_ns);
    codec_u64(w, &m->io_read);
    codec_u64(w, &m->io_write);
}
CODEC_DEFINE(jail_stats);

static void jail_list_walk(struct codec *w, struct jail_list *m)
{
    uint32_t n = codec_count(w, &m->n, JAIL_LIST_MAX, "ids");

    for (uint32_t i = 0; i < n; i++)
        codec_sandbox_id(w, m->ids[i]);
}
CODEC_DEFINE(jail_list);

static void jail_event_walk(struct codec *w, struct jail_event *m)
{
    codec_sandbox_id(w, m->id);
    codec_u8(w, &m->kind);
    codec_check(w, m->kind == JAIL_EVENT_ENDED || m->kind == JAIL_EVENT_OOM, "kind");
    codec_i32(w, &m->status);
}
CODEC_DEFINE(jail_event);

static void jail_watch_walk(struct codec *w, struct jail_watch *m)
{
    codec_sandbox_id(w, m->id);
    codec_i32(w, &m->sys);
}
CODEC_DEFINE(jail_watch);

static void jail_denial_notice_walk(struct codec *w, struct jail_denial_notice *m)
{
    codec_sandbox_id(w, m->id);
    codec_u8(w, &m->watched);
    codec_check(w, m->watched == JAIL_WATCHED || m->watched == JAIL_UNWATCHABLE, "watched");
    codec_u8(w, &m->refused);
    codec_check(w, m->refused <= 1, "refused");
}
CODEC_DEFINE(jail_denial_notice);

static void jail_denied_walk(struct codec *w, struct jail_denied *m)
{
    codec_u8(w, &m->watched);
    codec_check(w, m->watched <= JAIL_UNWATCHABLE, "watched");
    codec_i32(w, &m->sys);
    codec_u64(w, &m->overflow_count);
    uint32_t n = codec_count(w, &m->n, JAIL_DENIALS_MAX, "denials");
    for (uint32_t i = 0; i < n; i++) {
        struct jail_denial *d = &m->entries[i];

        codec_u32(w, &d->nr);
        for (size_t a = 0; a < ARRAY_LEN(d->args); a++)
            codec_u32(w, &d->args[a]);
        codec_u64(w, &d->count);
    }
}
CODEC_DEFINE(jail_denied);
