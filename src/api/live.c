/* Answers that go on for as long as their client wants them: who asked must still be allowed to hear. A key that is
 * revoked or rotated ends what it has open at once, one that expires at its moment, and a server that stops ends those
 * that would never end by themselves with a word, instead of waiting for them until its patience is over.
 *
 * `end` of a stream may free it and others never: the list is walked from its head again after each. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/str.h"

#define YEARS_MS (UINT64_C(1) << 40) /* no connection lives that long, and a sum of nanoseconds does not hold it */

static void unlink_live(struct api_live *l)
{
    if (!l->at)
        return;
    *l->at = l->next;
    if (l->next)
        l->next->at = l->at;
    l->at = NULL;
}

void live_done(struct api_live *l)
{
    if (!l->api)
        return;
    ev_timer_clear(l->api->set.ev, &l->expiry);
    unlink_live(l);
    l->api = NULL;
}

static void finish(struct api_live *l, const struct err *why)
{
    void (*end)(void *, const struct err *) = l->end;
    void *arg = l->arg;

    live_done(l);
    end(arg, why);
}

static void on_expired(void *arg)
{
    struct err why;

    err_set(&why, ERR_UNAUTHORIZED, "the key has expired");
    finish(arg, &why);
}

void live_begin(struct api_live *l, struct api *api, const struct principal *who,
                void (*end)(void *arg, const struct err *why), void *arg)
{
    uint64_t now = clock_real_ns() / NS_PER_MS, left = who->expires_ms > now ? who->expires_ms - now : 0;

    *l = (struct api_live){ .api = api, .next = api->lives, .at = &api->lives, .end = end, .arg = arg };
    str_copy(l->key_id, sizeof(l->key_id), who->key_id);
    str_copy(l->user, sizeof(l->user), who->user);
    str_copy(l->owner, sizeof(l->owner), who->owner);
    l->passed = who->kind == PRINCIPAL_SANDBOX_TOKEN || who->kind == PRINCIPAL_TICKET || who->kind == PRINCIPAL_SIGNED;
    if (l->next)
        l->next->at = &l->next;
    api->lives = l;
    if (who->expires_ms && left < YEARS_MS)
        ev_timer_set(api->set.ev, &l->expiry, ev_now(api->set.ev) + left * NS_PER_MS, on_expired, l);
}

static bool of(const struct api_live *l, const char *id)
{
    return str_eq(l->key_id, id) || str_eq(l->user, id) || str_eq(l->owner, id);
}

static bool is_passed(const struct api_live *l, const char *id UNUSED)
{
    return l->passed;
}

static bool is_endless(const struct api_live *l, const char *id UNUSED)
{
    return l->endless;
}

static void end_some(struct api *api, bool (*meant)(const struct api_live *l, const char *id), const char *id,
                     const struct err *why)
{
    struct api_live *l = api->lives;

    while (l) {
        bool it = meant(l, id);

        if (it)
            finish(l, why);
        l = it ? api->lives : l->next;
    }
}

void api_on_revoked(struct api *api, const char *id)
{
    struct err why;

    err_set(&why, ERR_UNAUTHORIZED, "the key was revoked or replaced");
    end_some(api, of, id, &why);
}

void live_end_passed(struct api *api)
{
    struct err why;

    err_set(&why, ERR_UNAUTHORIZED, "all tokens that were handed out have ended");
    end_some(api, is_passed, NULL, &why);
}

void api_stop(struct api *api)
{
    struct err why;

    err_set(&why, ERR_BUSY, "the server is stopping");
    end_some(api, is_endless, NULL, &why);
}
