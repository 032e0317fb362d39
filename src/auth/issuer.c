/* A token is judged by what costs least first: its form, its claims, then whether we know its key, then the signature.
 * Only a token whose claims would be fine can make us fetch keys.
 *
 * A fetch that is under way is waited for by all who need it; how many may wait is bounded, because they wait for
 * somebody else's server. */
#include "auth/issuer.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>

#define FETCH_NS (10 * NS_PER_S) /* for the whole answer */
#define CONNECT_MS 5000u
#define WAITS_MAX 512u

struct issuer_wait {
    struct issuer_wait *next, **at;
    struct issuer *issuer;
    void (*again)(void *arg);
    void *arg;
};

struct issuer {
    struct ev *ev;
    struct issuer_settings set;
    struct jwt_rules rules;
    struct jwks *keys; /* NULL: none yet */
    bool tried;
    uint64_t tried_ns, fetched_ns;
    struct fetch *fetch;
    struct fetch_call *call; /* under way */
    int status;
    struct buf body;
    struct ev_timer patience, refresh;
    struct issuer_wait *waits;
    unsigned nwaits;
};

/* --- keys --- */

static void wake(struct issuer *i)
{
    struct issuer_wait *list = i->waits;

    i->waits = NULL; /* whoever waits anew waits for the next fetch */
    if (list)
        list->at = &list;
    while (list) {
        struct issuer_wait *w = list;

        list = w->next;
        if (list)
            list->at = &list;
        i->nwaits--;
        w->again(w->arg);
        free(w);
    }
}

static int take_keys(struct issuer *i, const char *text, size_t len, struct err *err)
{
    struct jwks *fresh = NULL;

    if (jwks_parse(text, len, &fresh, err) < 0)
        return -1;
    jwks_free(i->keys);
    i->keys = fresh;
    i->fetched_ns = ev_now(i->ev);
    return 0;
}

static int read_file(struct issuer *i, struct err *err)
{
    auto_fd int fd = open(i->set.jwks_file, O_RDONLY | O_CLOEXEC);
    auto_free char *text = mem_alloc(JWKS_BYTES_MAX + 2);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, text, JWKS_BYTES_MAX + 1);

    i->tried = true;
    i->tried_ns = ev_now(i->ev);
    if (n < 0)
        return err_sys(err, ERR_CONF_VALUE, "auth.jwt.jwksFile: %.120s", i->set.jwks_file);
    if (take_keys(i, text, (size_t)n, err) == 0)
        return 0;
    err->id = ERR_CONF_VALUE;
    return err_wrap(err, "auth.jwt.jwksFile");
}

static void refresh(void *arg);

static void fetch_over(struct issuer *i, const struct err *failed)
{
    struct err err = { 0 };

    i->call = NULL;
    i->tried_ns = ev_now(i->ev);
    ev_timer_clear(i->ev, &i->patience);
    if (failed)
        err = *failed;
    else if (i->status != 200)
        err_set(&err, ERR_PROTOCOL, "it answered with status %d", i->status);
    else
        (void)take_keys(i, i->body.data ? i->body.data : "", i->body.len, &err);
    if (err.id != ERR_NONE)
        log_warn("the keys of the issuer of tokens: %s%s", err.msg, i->keys ? "; its last keys stay in use" : "");
    buf_done(&i->body);
    uint64_t wait = err.id == ERR_NONE ? i->set.age_ms : max_u64(i->set.floor_ms, 1000);
    ev_timer_set(i->ev, &i->refresh, ev_now(i->ev) + wait * NS_PER_MS, refresh, i);
    wake(i);
}

static void give_up(struct issuer *i, enum err_id id, const char *why)
{
    struct err err;

    fetch_cancel(i->call);
    err_set(&err, id, "%s", why);
    fetch_over(i, &err);
}

/* libcurl is not to be entered from inside itself, and who waits may start the next fetch. */
static void on_too_large(void *arg)
{
    give_up(arg, ERR_PROTOCOL, "the answer is too large for a key set");
}

static void on_late(void *arg)
{
    give_up(arg, ERR_TIMEOUT, "the answer did not come to its end in time");
}

static void on_head(void *arg, int status)
{
    ((struct issuer *)arg)->status = status;
}

static void on_data(void *arg, const void *data, size_t len)
{
    struct issuer *i = arg;

    if (i->body.len + len <= JWKS_BYTES_MAX) {
        buf_add(&i->body, data, len);
        return;
    }
    fetch_hold(i->call, true);
    ev_timer_set(i->ev, &i->patience, ev_now(i->ev), on_too_large, i);
}

static void on_done(void *arg, const struct err *err)
{
    fetch_over(arg, err);
}

static void begin_fetch(struct issuer *i)
{
    static const struct fetch_ops ops = { .on_head = on_head, .on_data = on_data, .on_done = on_done };
    static const char *const headers[] = { "Accept: application/jwk-set+json, application/json", NULL };
    struct fetch_spec spec = { .url = i->set.jwks_url, .headers = headers, .connect_ms = CONNECT_MS };
    struct err err = { 0 };

    i->tried = true;
    i->tried_ns = ev_now(i->ev);
    i->status = 0;
    if (fetch_start(i->fetch, &spec, &ops, i, &i->call, &err) < 0) {
        fetch_over(i, &err);
        return;
    }
    ev_timer_set(i->ev, &i->patience, ev_now(i->ev) + FETCH_NS, on_late, i);
}

static void refresh(void *arg)
{
    struct issuer *i = arg;

    if (!i->call)
        begin_fetch(i);
}

/* True: the keys may be other ones now, or will be. */
static bool look_again(struct issuer *i)
{
    struct err err = { 0 };

    if (i->tried && ev_now(i->ev) - i->tried_ns < i->set.floor_ms * NS_PER_MS)
        return false;
    if (i->set.jwks_url) {
        begin_fetch(i);
        return true;
    }
    if (read_file(i, &err) == 0)
        return true;
    log_warn("%s; the last keys stay in use", err.msg);
    return false;
}

/* --- life --- */

static int check_settings(const struct issuer_settings *s, struct err *err)
{
    if (!*s->issuer || !*s->audience)
        return err_set(err, ERR_CONF_VALUE, "auth.jwt: issuer and audience are both needed to accept tokens");
    if (!s->jwks_url == !s->jwks_file)
        return err_set(err, ERR_CONF_VALUE, "auth.jwt: one of jwksUrl and jwksFile says where the issuer's keys are");
    if (s->jwks_url && !fetch_is_safe(s->jwks_url)) /* who changes the keys on their way is in */
        return err_set(err, ERR_CONF_VALUE,
                       "auth.jwt.jwksUrl: it must begin with https:// (http:// on this host only)");
    return 0;
}

int issuer_new(struct ev *ev, const struct issuer_settings *set, struct issuer **ret, struct err *err)
{
    if (check_settings(set, err) < 0)
        return -1;
    auto_(issuer) i = mem_new(struct issuer);
    i->ev = ev;
    i->set = *set;
    i->rules = (struct jwt_rules){ set->issuer, set->audience, set->skew_ms, set->lifetime_max_ms };
    if (set->jwks_file ? read_file(i, err) < 0 : fetch_new(ev, &i->fetch, err) < 0)
        return -1;
    if (set->jwks_url)
        begin_fetch(i);
    *ret = take_ptr(&i);
    return 0;
}

void issuer_free(struct issuer *i)
{
    if (!i)
        return;
    while (i->waits) {
        struct issuer_wait *w = i->waits;

        i->waits = w->next;
        free(w);
    }
    ev_timer_clear(i->ev, &i->patience);
    ev_timer_clear(i->ev, &i->refresh);
    fetch_free(i->fetch);
    jwks_free(i->keys);
    buf_done(&i->body);
    free(i);
}

/* --- tokens --- */

static void read_roles(const struct issuer *i, const struct jwt *t, struct issuer_claims *ret)
{
    const json_t *v = json_object_get(t->claims, i->set.role_claim), *one;
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

static int read_claims(const struct issuer *i, const struct jwt *t, struct issuer_claims *ret, struct err *err)
{
    const char *user = jwt_text(t, i->set.user_claim);
    const char *tenant = *i->set.tenant_claim ? jwt_text(t, i->set.tenant_claim) : "";

    if (!user || !str_copy(ret->user, sizeof(ret->user), user))
        return err_set(err, ERR_UNAUTHORIZED, "the token is not valid: its claim %s names nobody", i->set.user_claim);
    if (!tenant || !str_copy(ret->tenant, sizeof(ret->tenant), tenant))
        return err_set(err, ERR_UNAUTHORIZED, "the token is not valid: its claim %s names no tenant",
                       i->set.tenant_claim);
    if (*i->set.role_claim)
        read_roles(i, t, ret);
    return 0;
}

static enum issuer_verdict wait_for_keys(struct issuer *i, void (*again)(void *arg), void *arg,
                                         struct issuer_wait **ret_wait, struct err *err)
{
    if (i->nwaits == WAITS_MAX) {
        err_set(err, ERR_ISSUER_DOWN, "too many requests wait for the issuer's keys");
        return ISSUER_NO;
    }
    struct issuer_wait *w = mem_new(struct issuer_wait);
    *w = (struct issuer_wait){ .next = i->waits, .at = &i->waits, .issuer = i, .again = again, .arg = arg };
    if (i->waits)
        i->waits->at = &w->next;
    i->waits = w;
    i->nwaits++;
    *ret_wait = w;
    return ISSUER_LATER;
}

void issuer_forget(struct issuer_wait *w)
{
    *w->at = w->next;
    if (w->next)
        w->next->at = w->at;
    w->issuer->nwaits--;
    free(w);
}

static bool keys_hold(const struct issuer *i)
{
    return i->keys && (i->set.jwks_file || ev_now(i->ev) - i->fetched_ns < ISSUER_KEEP_NS);
}

enum issuer_verdict issuer_check(struct issuer *i, const char *token, uint64_t now_ms, struct issuer_claims *ret,
                                 struct err *err, void (*again)(void *arg), void *arg, struct issuer_wait **ret_wait)
{
    __attribute__((cleanup(jwt_done))) struct jwt t = { 0 };
    const struct jwk *key = NULL;

    *ret = (struct issuer_claims){ 0 };
    if (jwt_parse(token, &t, err) < 0)
        return ISSUER_FORGED;
    if (jwt_check(&t, &i->rules, now_ms, &ret->expires_ms, err) < 0 || read_claims(i, &t, ret, err) < 0)
        return ISSUER_NO;
    if (keys_hold(i))
        key = jwks_find(i->keys, t.kid, t.alg);
    if (!key && again && (i->call || look_again(i))) {
        if (i->call)
            return wait_for_keys(i, again, arg, ret_wait, err);
        key = keys_hold(i) ? jwks_find(i->keys, t.kid, t.alg) : NULL; /* a fetch may fail before it begins */
    }
    if (!key && !keys_hold(i)) {
        err_set(err, ERR_ISSUER_DOWN, "the keys of the issuer cannot be had at the moment");
        return ISSUER_NO;
    }
    if (!key) {
        err_set(err, ERR_UNAUTHORIZED, "the token is not valid: its issuer has no such key");
        return ISSUER_NO;
    }
    return jwt_verify(&t, key, err) < 0 ? ISSUER_FORGED : ISSUER_YES;
}
