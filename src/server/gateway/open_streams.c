/* Responses that last as long as the client wants: the credential must stay valid meanwhile. When a
 * key is revoked or rotated, its streams are closed at once; when it expires, at that moment. At
 * shutdown, endless streams are closed immediately with a final event instead of using up the drain
 * timeout.
 *
 * Invariant: `end` may free its own stream but no other. The list is scanned again from its head
 * after each call. */
#include "server/gateway/open_streams.h"

#include "server/gateway/gateway_internal.h"

#include "core/base/clock.h"
#include "core/base/str.h"

#define YEARS_MS (UINT64_C(1) << 40) /* longer than any connection; a larger value in nanoseconds would overflow */

static void open_stream_unlink(struct open_stream *l)
{
    if (!l->list_link)
        return;
    *l->list_link = l->next;
    if (l->next)
        l->next->list_link = l->list_link;
    l->list_link = NULL;
}

void open_stream_unregister(struct open_stream *l)
{
    if (!l->gateway)
        return;
    ev_timer_clear(l->gateway->settings.ev, &l->expiry_timer);
    open_stream_unlink(l);
    l->gateway = NULL;
}

static void open_stream_end(struct open_stream *l, const struct err *why)
{
    void (*end)(void *, const struct err *) = l->on_end;
    void *arg = l->arg;

    open_stream_unregister(l);
    end(arg, why);
}

static void open_stream_on_expired(void *arg)
{
    struct err why;

    err_set(&why, ERR_UNAUTHORIZED, "the key has expired");
    open_stream_end(arg, &why);
}

void open_stream_register(struct open_stream *l, struct gateway *gateway, const struct principal *principal,
                          void (*end)(void *arg, const struct err *why), void *arg)
{
    uint64_t now = clock_real_ms(), left = principal->expires_ms > now ? principal->expires_ms - now : 0;

    *l = (struct open_stream){ .gateway = gateway,
                               .next = gateway->open_streams,
                               .list_link = &gateway->open_streams,
                               .on_end = end,
                               .arg = arg };
    str_copy(l->key_id, sizeof(l->key_id), principal->key_id);
    str_copy(l->user, sizeof(l->user), principal->user);
    str_copy(l->owner, sizeof(l->owner), principal->owner);
    l->is_delegated = principal_is_delegated(principal);
    if (l->next)
        l->next->list_link = &l->next;
    gateway->open_streams = l;
    if (principal->expires_ms && left < YEARS_MS)
        ev_timer_set(gateway->settings.ev, &l->expiry_timer, ev_now(gateway->settings.ev) + left * NS_PER_MS,
                     open_stream_on_expired, l);
}

static bool open_stream_belongs_to(const struct open_stream *l, const char *id)
{
    return str_eq(l->key_id, id) || str_eq(l->user, id) || str_eq(l->owner, id);
}

static bool open_stream_is_delegated(const struct open_stream *l, const char *id UNUSED)
{
    return l->is_delegated;
}

static bool open_stream_is_endless(const struct open_stream *l, const char *id UNUSED)
{
    return l->is_endless;
}

static void open_streams_end_matching(struct gateway *gateway,
                                      bool (*meant)(const struct open_stream *l, const char *id), const char *id,
                                      const struct err *why)
{
    struct open_stream *l = gateway->open_streams;

    while (l) {
        bool it = meant(l, id);

        if (it)
            open_stream_end(l, why);
        l = it ? gateway->open_streams : l->next;
    }
}

void open_streams_end_revoked(struct gateway *gateway, const char *id)
{
    struct err why;

    err_set(&why, ERR_UNAUTHORIZED, "the key was revoked or rotated");
    open_streams_end_matching(gateway, open_stream_belongs_to, id, &why);
}

void open_streams_end_delegated(struct gateway *gateway)
{
    struct err why;

    err_set(&why, ERR_UNAUTHORIZED, "all delegated tokens were revoked");
    open_streams_end_matching(gateway, open_stream_is_delegated, NULL, &why);
}

void open_streams_end_endless(struct gateway *gateway)
{
    struct err why;

    err_set(&why, ERR_BUSY, "the server is stopping; try again when it has restarted");
    open_streams_end_matching(gateway, open_stream_is_endless, NULL, &why);
}
