/* Sessions: the state that a legacy client, or a bridge in front of a client, has on the server.
 *
 * The secret of a session is 256 random bits, and works only with the credential that opened the
 * session: for any other it is unknown. Sessions are in memory, so they end with this process; a
 * client then gets 404 and opens another.
 *
 * Invariant: a session has no call, stream or job after mcp_session_end(). */
#include "server/mcp/mcp_internal.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/id.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/auth/mac.h"

#include <openssl/crypto.h>
#include <stdio.h>

#define MCP_EXPIRY_STEP_NS (NS_PER_S)
#define MCP_SANDBOX_SESSIONS_MAX 16u /* of the tokens of one sandbox */

static struct mcp_session **mcp_session_bucket(struct mcp *m, const char *secret)
{
    return &m->buckets[hash_fold(hash_str(HASH_INIT, secret)) % MCP_BUCKETS];
}

static void mcp_session_draw_secret(char ret[MCP_SECRET_SIZE])
{
    uint8_t random[MAC_LEN];

    mac_random_bytes(random);
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(ret + 2 * i, 3, "%02x", random[i]);
}

/* sandbox: of the credential that opened them; NULL: any. */
static uint32_t mcp_sessions_count(const struct mcp *m, const char *tenant, const char *sandbox)
{
    uint32_t n = 0;

    for (const struct mcp_session *s = m->sessions; s; s = s->next)
        n += str_eq(s->owner, tenant) && (!sandbox || str_eq(s->credential_sandbox, sandbox));
    return n;
}

/* holder: subject and verb. */
static int mcp_session_refuse(struct mcp *m, const char *holder, uint32_t used, const char *setting, struct err *err)
{
    m->sessions_refused++;
    err_set(err, ERR_LIMIT,
            "%s %u MCP sessions, the maximum%s; end one with DELETE /mcp or DELETE /v1/mcp/sessions/{id}, or wait "
            "until an unused one expires",
            holder, used, setting);
    return err_set_limit(err, "mcpSessions", used, used);
}

/* Code in a sandbox may have a token for it: such tokens do not use up the sessions of the
 * tenant. */
static int mcp_session_check_limit(struct mcp *m, const struct principal *p, struct err *err)
{
    uint32_t used = mcp_sessions_count(m, p->owner, NULL);

    if (used >= m->settings.sessions_max)
        return mcp_session_refuse(m, "the tenant has", used, " (mcp.sessions)", err);
    used = p->sandbox[0] ? mcp_sessions_count(m, p->owner, p->sandbox) : 0;
    if (used >= MCP_SANDBOX_SESSIONS_MAX)
        return mcp_session_refuse(m, "the tokens of the sandbox have", used, "", err);
    return 0;
}

struct mcp_session *mcp_session_open(struct mcp *m, const struct principal *p, struct err *err)
{
    char secret[MCP_SECRET_SIZE];

    if (mcp_session_check_limit(m, p, err) < 0)
        return NULL;
    mcp_session_draw_secret(secret);
    struct mcp_session *s = mem_new(struct mcp_session);
    struct mcp_session **bucket = mcp_session_bucket(m, secret);

    s->mcp = m;
    memcpy(s->secret, secret, sizeof(secret));
    id_new("ms", s->id);
    (void)str_copy(s->owner, sizeof(s->owner), p->owner);
    (void)str_copy(s->key_id, sizeof(s->key_id), p->key_id);
    (void)str_copy(s->user, sizeof(s->user), p->user);
    (void)str_copy(s->credential_sandbox, sizeof(s->credential_sandbox), p->sandbox);
    (void)str_copy(s->sandbox, sizeof(s->sandbox), p->sandbox);
    s->borrows_sandbox = p->sandbox[0] != '\0';
    s->principal_kind = p->kind;
    s->log_level = -1;
    s->created_ms = clock_real_ms();
    mcp_session_touch(s);
    linked_push(&m->sessions, s);
    s->bucket_next = *bucket;
    *bucket = s;
    m->nsessions++;
    s->number = ++m->sessions_opened;
    mcp_sessions_schedule_expiry(m);
    return s;
}

void mcp_session_touch(struct mcp_session *s)
{
    s->used_ns = ev_now(s->mcp->settings.ev);
    s->used_ms = clock_real_ms();
}

/* A token of an issuer has no key: then the user is compared. */
static bool mcp_session_belongs_to(const struct mcp_session *s, const struct principal *p)
{
    return s->principal_kind == p->kind && str_eq(s->owner, p->owner) && str_eq(s->key_id, p->key_id) &&
           str_eq(s->user, p->user) && str_eq(s->credential_sandbox, p->sandbox);
}

struct mcp_session *mcp_session_find(struct mcp *m, const struct principal *p, const char *secret)
{
    struct mcp_session *s = strlen(secret) == MCP_SECRET_SIZE - 1 ? *mcp_session_bucket(m, secret) : NULL;

    while (s && CRYPTO_memcmp(s->secret, secret, MCP_SECRET_SIZE - 1) != 0)
        s = s->bucket_next;
    return s && mcp_session_belongs_to(s, p) ? s : NULL;
}

static void mcp_session_end_calls(struct mcp_session *s)
{
    struct mcp_server_call *c = s->mcp->calls;

    while (c) {
        bool mine = c->session == s;

        if (mine) {
            mcp_replay_finish(c);
            c->session = NULL;
            mcp_server_call_cancel(c);
        }
        c = mine ? s->mcp->calls : c->next;
    }
}

void mcp_session_free(struct mcp_session *s)
{
    struct mcp_session **bucket = mcp_session_bucket(s->mcp, s->secret);

    while (*bucket != s)
        bucket = &(*bucket)->bucket_next;
    *bucket = s->bucket_next;
    linked_remove(s);
    s->mcp->nsessions--;
    while (s->replays)
        mcp_replay_free(s->replays);
    mcp_watches_free(s);
    json_decref(s->capabilities);
    explicit_bzero(s->secret, sizeof(s->secret));
    free(s);
}

void mcp_session_end(struct mcp_session *s)
{
    mcp_session_end_calls(s);
    mcp_listener_close(s);
    mcp_session_delete_sandbox(s);
    mcp_session_free(s);
}

static bool mcp_session_has_calls(const struct mcp_session *s)
{
    for (const struct mcp_server_call *c = s->mcp->calls; c; c = c->next)
        if (c->session == s)
            return true;
    return false;
}

static void mcp_sessions_on_expiry(void *arg)
{
    struct mcp *m = arg;
    uint64_t now = ev_now(m->settings.ev), idle = m->settings.idle_ms * NS_PER_MS;
    struct mcp_session *next;

    for (struct mcp_session *s = m->sessions; s; s = next) {
        next = s->next;
        mcp_replays_expire(s, now);
        if (mcp_session_sandbox_ends_soon(s) && mcp_session_has_calls(s))
            mcp_session_extend_sandbox(s);
        if (now - s->used_ns < idle || s->listener || mcp_session_has_calls(s))
            continue;
        m->sessions_expired++;
        mcp_session_end(s);
    }
    mcp_sessions_schedule_expiry(m);
}

void mcp_sessions_schedule_expiry(struct mcp *m)
{
    if (m->sessions && !m->expiry_timer.slot)
        ev_timer_set(m->settings.ev, &m->expiry_timer, ev_now(m->settings.ev) + MCP_EXPIRY_STEP_NS,
                     mcp_sessions_on_expiry, m);
}
