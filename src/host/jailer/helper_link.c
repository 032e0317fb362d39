/* Nothing here waits for the helper: the connection is made or retried later, and frames that the
 * helper is too slow to read are queued. */
#include "host/jailer/helper_link.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/wire/unix_listener.h"
#include "host/jailer/jailer_internal.h"

#define FIRST_WAIT_NS (20 * NS_PER_MS)
#define LAST_WAIT_NS (2 * NS_PER_S)

static void helper_link_connect(void *arg);

static void helper_link_retry_later(struct helper_link *l)
{
    struct ev *ev = l->jailer->ev;

    ev_timer_set(ev, &l->retry_timer, ev_now(ev) + backoff_next(&l->backoff), helper_link_connect, l);
    if (!helper_link_expected(l))
        l->ops->on_absent(l->jailer);
}

static void helper_link_on_frame(void *arg UNUSED, const struct frame *f UNUSED, int *fds UNUSED, size_t nfds UNUSED)
{
    /* A helper reports only to clients; the jailer expects no frames from it. */
}

static void helper_link_on_end(void *arg, const struct err *why)
{
    struct helper_link *l = arg;

    log_warn("%s (%s)", l->ops->loss, why->msg);
    chan_done(&l->chan);
    l->connected = false;
    l->lost_at = ev_now(l->jailer->ev);
    backoff_reset(&l->backoff);
    if (l->path)
        helper_link_retry_later(l);
    else
        l->ops->on_absent(l->jailer);
}

static const struct chan_ops helper_link_chan_ops = { .on_frame = helper_link_on_frame, .on_end = helper_link_on_end };

static void helper_link_connect(void *arg)
{
    struct helper_link *l = arg;
    auto_fd int sock = -1;
    struct ucred peer;

    /* The listening process gets power over sandboxes, so it must have our uid. */
    if (unix_connect(l->path, &sock, &peer, NULL) < 0 || peer.uid != geteuid() ||
        chan_init(&l->chan, l->jailer->ev, take_fd(&sock), false, &helper_link_chan_ops, l, NULL) < 0) {
        helper_link_retry_later(l);
        return;
    }
    l->connected = true;
    for (struct jailed_sandbox *sandbox = l->jailer->sandboxes; sandbox; sandbox = sandbox->next)
        l->ops->announce(sandbox);
}

void helper_link_start(struct helper_link *l, struct jailer *j, const char *path, const struct helper_link_ops *ops)
{
    *l = (struct helper_link){ .jailer = j,
                               .ops = ops,
                               .path = path,
                               .lost_at = ev_now(j->ev),
                               .backoff = { .min_ns = FIRST_WAIT_NS, .max_ns = LAST_WAIT_NS } };
    helper_link_connect(l);
}

int helper_link_start_with(struct helper_link *l, struct jailer *j, int sock, const struct helper_link_ops *ops,
                           struct err *err)
{
    *l = (struct helper_link){ .jailer = j, .ops = ops };
    if (chan_init(&l->chan, j->ev, sock, false, &helper_link_chan_ops, l, err) < 0)
        return -1;
    l->connected = true;
    return 0;
}

void helper_link_end(struct helper_link *l)
{
    if (!l->jailer)
        return;
    ev_timer_clear(l->jailer->ev, &l->retry_timer);
    chan_done(&l->chan);
}

void helper_link_send(struct helper_link *l, const struct frame *f, const int *fds, size_t nfds)
{
    if (l->connected)
        chan_send_fds(&l->chan, f, fds, nfds);
}

bool helper_link_expected(const struct helper_link *l)
{
    return l->connected || (l->path && ev_now(l->jailer->ev) < l->lost_at + HELPER_LINK_GRACE_NS);
}
