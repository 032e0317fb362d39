/* A token is checked in order of cost: its form, its claims, whether its key is known, then the
 * signature. Only a token with acceptable claims can trigger a fetch of keys.
 *
 * All requests that need a fetch wait for the one in progress. The number of waiting requests is
 * bounded, because they depend on a foreign server. */
#include "server/auth/issuer.h"

#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>

#define FETCH_NS (10 * NS_PER_S) /* time limit for the complete response */
#define CONNECT_MS 5000u
#define WAITS_MAX 512u

struct issuer_wait {
    struct issuer_wait *next, **link;
    struct issuer *issuer;
    void (*on_keys)(void *arg);
    void *arg;
};

struct issuer {
    struct ev *ev;
    struct issuer_settings settings;
    struct jwt_rules rules;
    struct jwks *keys; /* NULL: not fetched yet */
    bool fetch_attempted;
    uint64_t attempted_ns, fetched_ns;
    struct fetch *fetch;
    struct fetch_call *call; /* fetch in progress */
    int status;
    struct buf body;
    struct ev_timer fetch_timeout, refresh_timer;
    struct issuer_wait *waiters;
    unsigned nwaiters;
};

/* --- keys --- */

static void issuer_wake_waiters(struct issuer *i)
{
    struct issuer_wait *list = i->waiters;

    i->waiters = NULL; /* new waiters wait for the next fetch */
    if (list)
        list->link = &list;
    while (list) {
        struct issuer_wait *w = list;

        list = w->next;
        if (list)
            list->link = &list;
        i->nwaiters--;
        w->on_keys(w->arg);
        free(w);
    }
}

static int issuer_set_keys(struct issuer *i, const char *text, size_t len, struct err *err)
{
    struct jwks *fresh = NULL;

    if (jwks_parse(text, len, &fresh, err) < 0)
        return -1;
    jwks_free(i->keys);
    i->keys = fresh;
    i->fetched_ns = ev_now(i->ev);
    return 0;
}

static int issuer_read_key_file(struct issuer *i, struct err *err)
{
    auto_fd int fd = open(i->settings.jwks_file, O_RDONLY | O_CLOEXEC);
    auto_free char *text = mem_alloc(JWKS_BYTES_MAX + 2);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, text, JWKS_BYTES_MAX + 1);

    i->fetch_attempted = true;
    i->attempted_ns = ev_now(i->ev);
    if (n < 0)
        return err_sys(err, ERR_CONF_VALUE, "auth.jwt.jwksFile: %.120s", i->settings.jwks_file);
    if (issuer_set_keys(i, text, (size_t)n, err) == 0)
        return 0;
    err->id = ERR_CONF_VALUE;
    return err_wrap(err, "auth.jwt.jwksFile");
}

static void issuer_on_refresh_timer(void *arg);

static void issuer_fetch_finished(struct issuer *i, const struct err *failed)
{
    struct err err = { 0 };

    i->call = NULL;
    i->attempted_ns = ev_now(i->ev);
    ev_timer_clear(i->ev, &i->fetch_timeout);
    if (failed)
        err = *failed;
    else if (i->status != 200)
        err_set(&err, ERR_PROTOCOL, "the issuer answered with status %d", i->status);
    else
        (void)issuer_set_keys(i, i->body.data ? i->body.data : "", i->body.len, &err);
    if (err.id != ERR_NONE)
        log_warn("cannot fetch the issuer's keys: %s%s", err.msg, i->keys ? "; the previous keys stay in use" : "");
    buf_done(&i->body);
    uint64_t wait = err.id == ERR_NONE ? i->settings.keys_max_age_ms : max_u64(i->settings.refetch_min_ms, 1000);
    ev_timer_set(i->ev, &i->refresh_timer, ev_now(i->ev) + wait * NS_PER_MS, issuer_on_refresh_timer, i);
    issuer_wake_waiters(i);
}

static void issuer_fetch_abort(struct issuer *i, enum err_id id, const char *why)
{
    struct err err;

    fetch_cancel(i->call);
    err_set(&err, id, "%s", why);
    issuer_fetch_finished(i, &err);
}

/* Deferred: libcurl must not be called from its own callbacks, and a waiter may start the next
 * fetch. */
static void issuer_on_body_too_large(void *arg)
{
    issuer_fetch_abort(arg, ERR_PROTOCOL, "the response is too large for a key set");
}

static void issuer_on_fetch_timeout(void *arg)
{
    issuer_fetch_abort(arg, ERR_TIMEOUT, "the response was not complete in time");
}

static void issuer_on_head(void *arg, int status)
{
    ((struct issuer *)arg)->status = status;
}

static void issuer_on_data(void *arg, const void *data, size_t len)
{
    struct issuer *i = arg;

    if (i->body.len + len <= JWKS_BYTES_MAX) {
        buf_add(&i->body, data, len);
        return;
    }
    fetch_hold(i->call, true);
    ev_timer_set(i->ev, &i->fetch_timeout, ev_now(i->ev), issuer_on_body_too_large, i);
}

static void issuer_on_fetch_done(void *arg, const struct err *err)
{
    issuer_fetch_finished(arg, err);
}

static void issuer_start_fetch(struct issuer *i)
{
    static const struct fetch_ops ops = { .on_head = issuer_on_head,
                                          .on_data = issuer_on_data,
                                          .on_done = issuer_on_fetch_done };
    static const char *const headers[] = { "Accept: application/jwk-set+json, application/json", NULL };
    struct fetch_spec spec = { .url = i->settings.jwks_url, .headers = headers, .connect_ms = CONNECT_MS };
    struct err err = { 0 };

    i->fetch_attempted = true;
    i->attempted_ns = ev_now(i->ev);
    i->status = 0;
    if (fetch_start(i->fetch, &spec, &ops, i, &i->call, &err) < 0) {
        issuer_fetch_finished(i, &err);
        return;
    }
    ev_timer_set(i->ev, &i->fetch_timeout, ev_now(i->ev) + FETCH_NS, issuer_on_fetch_timeout, i);
}

static void issuer_on_refresh_timer(void *arg)
{
    struct issuer *i = arg;

    if (!i->call)
        issuer_start_fetch(i);
}

/* Returns true if the keys may have changed or will be fetched. */
static bool issuer_reload_keys(struct issuer *i)
{
    struct err err = { 0 };

    if (i->fetch_attempted && ev_now(i->ev) - i->attempted_ns < i->settings.refetch_min_ms * NS_PER_MS)
        return false;
    if (i->settings.jwks_url) {
        issuer_start_fetch(i);
        return true;
    }
    if (issuer_read_key_file(i, &err) == 0)
        return true;
    log_warn("%s; the previous keys stay in use", err.msg);
    return false;
}

/* --- construction --- */

static int issuer_check_settings(const struct issuer_settings *s, struct err *err)
{
    if (!*s->issuer || !*s->audience)
        return err_set(err, ERR_CONF_VALUE, "auth.jwt: set both issuer and audience to accept tokens");
    if (!s->jwks_url == !s->jwks_file)
        return err_set(err, ERR_CONF_VALUE, "auth.jwt: set exactly one of jwksUrl and jwksFile");
    if (s->jwks_url && !fetch_is_safe(s->jwks_url)) /* an attacker that can modify the keys in transit can log in */
        return err_set(err, ERR_CONF_VALUE, "auth.jwt.jwksUrl: must begin with https:// (http:// only on this host)");
    return 0;
}

int issuer_new(struct ev *ev, const struct issuer_settings *set, struct issuer **ret, struct err *err)
{
    if (issuer_check_settings(set, err) < 0)
        return -1;
    auto_(issuer) i = mem_new(struct issuer);
    i->ev = ev;
    i->settings = *set;
    i->rules = (struct jwt_rules){ set->issuer, set->audience, set->skew_ms, set->lifetime_max_ms };
    if (set->jwks_file ? issuer_read_key_file(i, err) < 0 : fetch_new(ev, &i->fetch, err) < 0)
        return -1;
    if (set->jwks_url)
        issuer_start_fetch(i);
    *ret = take_ptr(&i);
    return 0;
}

void issuer_free(struct issuer *i)
{
    if (!i)
        return;
    while (i->waiters) {
        struct issuer_wait *w = i->waiters;

        i->waiters = w->next;
        free(w);
    }
    ev_timer_clear(i->ev, &i->fetch_timeout);
    ev_timer_clear(i->ev, &i->refresh_timer);
    fetch_free(i->fetch);
    jwks_free(i->keys);
    buf_done(&i->body);
    free(i);
}

/* --- tokens --- */

static void issuer_read_roles(const struct issuer *i, const struct jwt *t, struct issuer_claims *ret)
{
    const json_t *v = json_object_get(t->claims, i->settings.role_claim), *one;
    const char *role = json_string_value(v);
    size_t k;

    if (role && str_copy(ret->roles[0], sizeof(ret->roles[0]), role))
        ret->nroles = 1;
    json_array_foreach(v, k, one)
    {
        role = json_string_value(one);
        if (role && ret->nroles < ISSUER_ROLES_MAX && str_copy(ret->roles[ret->nroles], sizeof(ret->roles[0]), role))
            ret->nroles++;
    }
}

static int issuer_read_claims(const struct issuer *i, const struct jwt *t, struct issuer_claims *ret, struct err *err)
{
    const char *user = jwt_claim_text(t, i->settings.user_claim);
    const char *tenant = *i->settings.tenant_claim ? jwt_claim_text(t, i->settings.tenant_claim) : "";

    if (!user || !str_copy(ret->user, sizeof(ret->user), user))
        return err_set(err, ERR_UNAUTHORIZED, "the token is not valid: its claim %s does not name a user",
                       i->settings.user_claim);
    if (!tenant || !str_copy(ret->tenant, sizeof(ret->tenant), tenant))
        return err_set(err, ERR_UNAUTHORIZED, "the token is not valid: its claim %s does not name a tenant",
                       i->settings.tenant_claim);
    if (*i->settings.role_claim)
        issuer_read_roles(i, t, ret);
    return 0;
}

static enum issuer_verdict issuer_wait_for_keys(struct issuer *i, void (*again)(void *arg), void *arg,
                                                struct issuer_wait **ret_wait, struct err *err)
{
    if (i->nwaiters == WAITS_MAX) {
        err_set(err, ERR_ISSUER_DOWN, "too many requests wait for the issuer's keys; retry later");
        return ISSUER_NO;
    }
    struct issuer_wait *w = mem_new(struct issuer_wait);
    *w = (struct issuer_wait){ .issuer = i, .on_keys = again, .arg = arg };
    linked_push(&i->waiters, w);
    i->nwaiters++;
    *ret_wait = w;
    return ISSUER_LATER;
}

void issuer_wait_cancel(struct issuer_wait *w)
{
    linked_remove(w);
    w->issuer->nwaiters--;
    free(w);
}

static bool issuer_keys_are_usable(const struct issuer *i)
{
    return i->keys && (i->settings.jwks_file || ev_now(i->ev) - i->fetched_ns < ISSUER_KEEP_NS);
}

enum issuer_verdict issuer_check(struct issuer *i, const char *token, uint64_t now_ms, struct issuer_claims *ret,
                                 struct err *err, void (*again)(void *arg), void *arg, struct issuer_wait **ret_wait)
{
    __attribute__((cleanup(jwt_done))) struct jwt t = { 0 };
    const struct jwk *key = NULL;

    *ret = (struct issuer_claims){ 0 };
    if (jwt_parse(token, &t, err) < 0)
        return ISSUER_FORGED;
    if (jwt_check_claims(&t, &i->rules, now_ms, &ret->expires_ms, err) < 0 || issuer_read_claims(i, &t, ret, err) < 0)
        return ISSUER_NO;
    if (issuer_keys_are_usable(i))
        key = jwks_find(i->keys, t.kid, t.alg);
    if (!key && again && (i->call || issuer_reload_keys(i))) {
        if (i->call)
            return issuer_wait_for_keys(i, again, arg, ret_wait, err);
        key = issuer_keys_are_usable(i) ? jwks_find(i->keys, t.kid, t.alg)
                                        : NULL; /* a fetch may fail before it begins */
    }
    if (!key && !issuer_keys_are_usable(i)) {
        err_set(err, ERR_ISSUER_DOWN, "the issuer's keys are not available at the moment; retry later");
        return ISSUER_NO;
    }
    if (!key) {
        err_set(err, ERR_UNAUTHORIZED, "the token is not valid: the issuer has no such key");
        return ISSUER_NO;
    }
    return jwt_verify(&t, key, err) < 0 ? ISSUER_FORGED : ISSUER_YES;
}
