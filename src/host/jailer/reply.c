/* Replies are built in one static buffer: there is one thread, and sending copies. Frames that a
 * client is too slow to read are queued in its channel, which is bounded. */
#include "host/jailer/jailer_internal.h"

#include "core/base/fd.h"
#include "core/wire/rt.h"

#include <stdio.h>

static uint8_t reply_buffer[FRAME_PAYLOAD_MAX];

void reply_frame(struct jailer_client *c, uint32_t stream, uint8_t type, const void *data, int len)
{
    if (!c || !stream || len < 0)
        return;
    chan_send(&c->chan, &(struct frame){ .type = type, .stream = stream, .len = (uint32_t)len, .data = data });
}

void reply_ok(struct jailer_client *c, uint32_t stream)
{
    reply_frame(c, stream, FRAME_J_OK, NULL, 0);
}

void reply_error(struct jailer_client *c, uint32_t stream, const struct err *err)
{
    struct rt_error e = { .id = (uint32_t)err->id, .sys = err->sys };
    struct err ignored;

    (void)snprintf(e.msg, sizeof(e.msg), "%s", err->msg);
    reply_frame(c, stream, FRAME_J_ERROR, reply_buffer, rt_error_encode(&e, reply_buffer, &ignored));
}

void reply_stats(struct jailer_client *c, uint32_t stream, const struct cgroup_stats *s)
{
    struct err ignored;
    struct jail_stats m = {
        .cpu_ns = s->cpu_ns,
        .memory = s->memory,
        .memory_peak = s->memory_peak,
        .oom_kills = s->oom_kills,
        .pids = s->pids,
        .pids_peak = s->pids_peak,
        .pids_refused = s->pids_refused,
        .throttled_ns = s->throttled_ns,
        .io_read = JAIL_UNKNOWN,
        .io_write = JAIL_UNKNOWN,
    };
    reply_frame(c, stream, FRAME_DONE, reply_buffer, jail_stats_encode(&m, reply_buffer, &ignored));
}

void reply_event(const struct jailed_sandbox *sandbox, enum jail_event_kind kind)
{
    struct jail_event e = { .kind = (uint8_t)kind, .status = sandbox->status };
    struct err ignored;

    if (!sandbox->owner)
        return;
    memcpy(e.id, sandbox->id, sizeof(e.id));
    int len = jail_event_encode(&e, reply_buffer, &ignored);
    if (len >= 0)
        chan_send(&sandbox->owner->chan,
                  &(struct frame){ .type = FRAME_J_EVENT, .len = (uint32_t)len, .data = reply_buffer });
}

/* J_CREATED carries the descriptors that give the client control of the sandbox. */
void reply_created(struct jailed_sandbox *sandbox, uint32_t stream)
{
    bool v2 = false;
    auto_fd int usage = cgroup_usage_fd(&sandbox->jailer->cgroups, sandbox->id, &v2);
    auto_fd int memory = cgroup_memory_fd(&sandbox->jailer->cgroups, sandbox->id);
    int fds[4] = { sandbox->control, sandbox->pidfd };
    size_t nfds = 2;
    struct err err;

    if ((sandbox->created.cpu_fd = usage >= 0))
        fds[nfds++] = usage;
    if ((sandbox->created.oom_fd = memory >= 0))
        fds[nfds++] = memory;
    sandbox->created.cpu_unit = v2;
    int len = jail_created_encode(&sandbox->created, reply_buffer, &err);
    if (len < 0) {
        reply_error(sandbox->owner, stream, &err);
        return;
    }
    chan_send_fds(
        &sandbox->owner->chan,
        &(struct frame){ .type = FRAME_J_CREATED, .stream = stream, .len = (uint32_t)len, .data = reply_buffer }, fds,
        nfds);
    if (!sandbox->kept)
        fd_close(&sandbox->control);
}
