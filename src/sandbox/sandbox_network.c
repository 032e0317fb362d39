/* The rules of a sandbox in the egress proxy, and the counters that the proxy keeps for it.
 *
 * E_BIND is encoded when the sandbox is claimed, and sent when the sandbox exists, in parallel to
 * CLAIM. Until the proxy has answered, the sandbox is not ready; until then, and while there is no
 * proxy, connections from inside wait in the backlog of listeners that no process reads. So every
 * fault here fails closed.
 *
 * A proxy that is restarted knows nothing: its first connection makes all bindings stale, and each
 * is sent again, a bounded number at a time. Payloads of E_BIND are kept for that, with the secrets
 * in them, unless the connection never comes back.
 *
 * Invariants:
 * 1. A sandbox whose rules the proxy refused never becomes ready. An adopted sandbox becomes ready
 *    without rules, because its programs run already.
 * 2. A change of rules that fails leaves the rules before it.
 * 3. The rules of a sandbox are sent in the order of the requests: a stale binding before the
 *    change that follows it.
 * 4. Memory that held secrets is wiped before it is released. */
#include "sandbox/engine_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define REBINDS_MAX 32u /* of 64 KiB at most, so that the queue of the connection stays far from its limit */

struct sandbox_network_update {
    struct sandbox_network_update *next;
    uint8_t *bind;
    uint32_t bind_len;
    struct network_policy policy;
    sandbox_handle_done_fn *done;
    void *arg;
};

static struct egress_link *sandbox_network_link(const struct sandbox_handle *b)
{
    return &b->engine->egress;
}

static bool sandbox_network_is_connected(const struct sandbox_handle *b)
{
    return !egress_link_absent_why(sandbox_network_link(b));
}

/* --- the payload --- */

static void sandbox_network_wipe(uint8_t **payload, uint32_t len)
{
    if (*payload)
        explicit_bzero(*payload, len);
    free(take_ptr(payload));
}

static int sandbox_network_encode(const struct sandbox_handle *b, const struct sandbox_network *n, const char *rules,
                                  const struct sandbox_secret *secrets, size_t nsecrets, uint8_t **ret,
                                  uint32_t *ret_len, struct err *err)
{
    const char *pairs[2 * EGRESS_SECRETS_MAX + 1] = { NULL };
    struct egress_bind m = { .connections_max = n->share.connections_max,
                             .connection_rate = n->share.connection_rate,
                             .bytes_max = n->share.bytes_max,
                             .rules = rules ? rules : "",
                             .secrets = pairs };
    PAYLOAD(payload);

    if (nsecrets > EGRESS_SECRETS_MAX)
        return err_set(err, ERR_LIMIT, "network: %zu secrets are too many; a sandbox takes at most %d", nsecrets,
                       EGRESS_SECRETS_MAX);
    for (size_t i = 0; i < nsecrets; i++) {
        pairs[2 * i] = secrets[i].name;
        pairs[2 * i + 1] = secrets[i].value;
    }
    memcpy(m.id, b->id, sizeof(m.id));
    memcpy(m.tenant, n->tenant, sizeof(m.tenant));
    int len = egress_bind_encode(&m, payload, err);
    if (len >= 0) {
        *ret = mem_copy(payload, (size_t)len);
        *ret_len = (uint32_t)len;
    } else {
        err_wrap(err, "network");
    }
    explicit_bzero(payload, len >= 0 ? (size_t)len : sizeof(payload));
    return len < 0 ? -1 : 0;
}

int sandbox_network_check(const struct engine *e, const struct sandbox_spec *spec, struct err *err)
{
    const char *why = egress_link_absent_why(&e->egress);

    if (spec->network.mode == NETWORK_NONE || !why)
        return 0;
    return err_set(err, ERR_NETWORK_UNAVAILABLE, "%s", why);
}

int sandbox_network_prepare(struct sandbox_handle *b, const struct sandbox_spec *spec, struct err *err)
{
    if (spec->network.mode == NETWORK_NONE)
        return 0;
    struct sandbox_network *n = mem_new(struct sandbox_network);

    n->share = spec->share;
    n->is_baseline_unknown = b->adopted;
    if (!str_copy(n->tenant, sizeof(n->tenant), spec->tenant ? spec->tenant : "")) {
        free(n);
        return err_set(err, ERR_BUG, "the name of the tenant is longer than %zu bytes", sizeof(n->tenant) - 1);
    }
    if (sandbox_network_encode(b, n, spec->network.rules, spec->secrets, spec->nsecrets, &n->bind, &n->bind_len, err) <
        0) {
        free(n);
        return -1;
    }
    b->egress = n;
    return 0;
}

static void sandbox_network_free_update(struct sandbox_network_update *u)
{
    sandbox_network_wipe(&u->bind, u->bind_len);
    network_policy_done(&u->policy);
    free(u);
}

void sandbox_network_release(struct sandbox_handle *b)
{
    struct sandbox_network *n = take_ptr(&b->egress);

    if (!n)
        return;
    while (n->updates) {
        struct sandbox_network_update *u = n->updates;

        n->updates = u->next;
        sandbox_network_free_update(u);
    }
    sandbox_network_wipe(&n->bind, n->bind_len);
    network_usage_done(&n->before);
    network_usage_done(&n->seen);
    network_usage_done(&n->charged);
    free(n);
}

/* --- binding --- */

static void sandbox_network_set_bound(struct sandbox_handle *b)
{
    struct sandbox_network *n = b->egress;

    if (!n->is_awaited)
        return;
    n->is_awaited = false;
    if (n->was_claimed && b->state == SANDBOX_HANDLE_CLAIMING)
        sandbox_handle_set_ready(b);
}

void sandbox_network_see(struct sandbox_handle *b, const struct egress_reported *r)
{
    network_usage_set(&b->egress->seen, &b->egress->before, r);
}

static void sandbox_network_on_baseline(struct egress_request *r, const struct egress_reported *m,
                                        const struct err *err UNUSED)
{
    struct sandbox_handle *b = r->owner;
    struct sandbox_network *n = b->egress;

    if (m) {
        sandbox_network_see(b, m);
        network_usage_copy(&n->charged, &n->seen);
        n->is_baseline_unknown = false;
    }
    sandbox_network_set_bound(b);
}

static void sandbox_network_on_refused(struct sandbox_handle *b, const struct err *err)
{
    struct sandbox_network *n = b->egress;
    bool comes_back = !sandbox_network_is_connected(b) && egress_link_reconnects(sandbox_network_link(b));
    struct err why = *err;

    if (comes_back)
        return; /* sandbox_network_on_link_lost() has made it stale, or will */
    if (!n->is_awaited || b->adopted) {
        sandbox_network_set_bound(b);
        return;
    }
    err_wrap(&why, "network rules of the sandbox");
    sandbox_handle_fail(b, &why);
}

static void sandbox_network_on_bound(struct egress_request *r, const struct err *err)
{
    struct sandbox_handle *b = r->owner;
    struct sandbox_network *n = b->egress;

    if (!n)
        return;
    if (err) {
        sandbox_network_on_refused(b, err);
        return;
    }
    if (!egress_link_reconnects(sandbox_network_link(b)))
        sandbox_network_wipe(&n->bind, n->bind_len);
    if (n->is_baseline_unknown)
        egress_link_report(sandbox_network_link(b), b->id, sandbox_network_on_baseline, b);
    else
        sandbox_network_set_bound(b);
}

static void sandbox_network_send_bind(struct sandbox_handle *b)
{
    struct sandbox_network *n = b->egress;

    n->is_stale = false;
    n->is_requested = true;
    egress_link_bind(sandbox_network_link(b), n->bind, n->bind_len, sandbox_network_on_bound, b);
}

void sandbox_network_bind(struct sandbox_handle *b)
{
    struct sandbox_network *n = b->egress;

    if (!n)
        return;
    /* The programs of an adopted sandbox run already, and do not wait for a proxy. */
    n->is_awaited = !b->adopted || sandbox_network_is_connected(b);
    if (sandbox_network_is_connected(b) || !egress_link_reconnects(sandbox_network_link(b)))
        sandbox_network_send_bind(b);
    else
        n->is_stale = true;
}

bool sandbox_network_is_awaited(struct sandbox_handle *b)
{
    if (!b->egress || !b->egress->is_awaited)
        return false;
    b->egress->was_claimed = true;
    return true;
}

/* --- events of the connection --- */

/* A claim that waits is first: it is the only one with a deadline. */
static void sandbox_network_rebind_some(struct engine *e)
{
    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS && e->has_stale_bindings; i++)
        for (struct sandbox_handle *b = e->handles[i]; b; b = b->next) {
            if (!b->egress || !b->egress->is_stale)
                continue;
            if (e->egress.nsent >= REBINDS_MAX)
                return;
            sandbox_network_send_bind(b);
        }
    e->has_stale_bindings = false;
}

static void sandbox_network_on_link_connected(void *arg)
{
    struct engine *e = arg;

    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        for (struct sandbox_handle *b = e->handles[i]; b; b = b->next)
            if (b->egress && b->egress->is_requested && b->egress->bind && b->state <= SANDBOX_HANDLE_ENDING)
                b->egress->is_stale = true;
    e->has_stale_bindings = true;
    sandbox_network_rebind_some(e);
}

static void sandbox_network_on_link_answered(void *arg)
{
    struct engine *e = arg;

    if (e->has_stale_bindings && e->egress.nsent <= REBINDS_MAX / 2)
        sandbox_network_rebind_some(e);
}

static void sandbox_network_forget_counters(struct sandbox_handle *b)
{
    network_usage_copy(&b->egress->before, &b->egress->seen);
    for (struct exec_handle *x = b->execs; x; x = x->next)
        x->network_uncounted = x->network_uncounted || x->state != EXEC_ENDED;
}

static void sandbox_network_on_link_lost(void *arg)
{
    struct engine *e = arg;

    for (size_t i = 0; i < SANDBOX_HANDLE_BUCKETS; i++)
        for (struct sandbox_handle *b = e->handles[i]; b; b = b->next)
            if (b->egress)
                sandbox_network_forget_counters(b);
}

static void sandbox_network_on_secret_used(void *arg, const struct egress_secret_used *used)
{
    struct sandbox_handle *b = engine_find_handle(arg, used->id);

    if (b && b->egress && b->ops && b->ops->on_secret_used)
        b->ops->on_secret_used(b->arg, used->name, used->host, used->count);
}

const struct egress_link_ops sandbox_network_link_ops = { .on_connected = sandbox_network_on_link_connected,
                                                          .on_answered = sandbox_network_on_link_answered,
                                                          .on_lost = sandbox_network_on_link_lost,
                                                          .on_secret_used = sandbox_network_on_secret_used };

/* --- requests of the caller --- */

static void sandbox_network_answer(struct egress_request *r, const struct err *err)
{
    if (r->then.done)
        r->then.done(r->then_arg, err);
}

static void sandbox_network_on_updated(struct egress_request *r, const struct err *err)
{
    struct sandbox_handle *b = r->owner;
    struct sandbox_network *n = b->egress;
    struct sandbox_network_update *u = r->then_arg;

    if (!n)
        return; /* released with its updates */
    list_remove(&n->updates, u);
    sandbox_handle_done_fn *done = u->done;
    void *arg = u->arg;
    if (!err) {
        sandbox_network_wipe(&n->bind, n->bind_len);
        if (egress_link_reconnects(sandbox_network_link(b))) {
            n->bind = take_ptr(&u->bind);
            n->bind_len = u->bind_len;
        }
        network_policy_done(&b->network);
        b->network = u->policy;
        u->policy = (struct network_policy){ 0 };
    } else if (err->id == ERR_NETWORK_UNAVAILABLE && sandbox_network_is_connected(b) && n->bind && !n->updates) {
        sandbox_network_send_bind(b); /* a proxy that is only late would apply the new rules */
    }
    sandbox_network_free_update(u);
    if (done)
        done(arg, err);
}

static int sandbox_network_check_update(const struct sandbox_handle *b, const struct network_policy *p, struct err *err)
{
    if (b->network.mode != NETWORK_EGRESS)
        return err_set(err, ERR_NETWORK_NOT_ENABLED,
                       "sandbox %s was made without a network; create one with network {\"egress\": []}", b->id);
    if (p->mode != NETWORK_EGRESS)
        return err_set(err, ERR_INVALID,
                       "network none: the listeners of a living sandbox stay; {\"egress\": []} allows nothing");
    if (!b->egress || b->state != SANDBOX_HANDLE_READY)
        return err_set(err, ERR_LOST, "sandbox %s is not ready", b->id);
    if (!sandbox_network_is_connected(b))
        return err_set(err, ERR_NETWORK_UNAVAILABLE, "%s", egress_link_absent_why(sandbox_network_link(b)));
    return 0;
}

static int sandbox_network_send_update(struct sandbox_handle *b, struct sandbox_network_update *u,
                                       const struct sandbox_secret *secrets, size_t nsecrets, struct err *err)
{
    if (sandbox_network_encode(b, b->egress, u->policy.rules, secrets, nsecrets, &u->bind, &u->bind_len, err) < 0)
        return -1;
    if (b->egress->is_stale)
        sandbox_network_send_bind(b);
    list_append(&b->egress->updates, u);
    egress_link_bind(sandbox_network_link(b), u->bind, u->bind_len, sandbox_network_on_updated, b)->then_arg = u;
    return 0;
}

void sandbox_handle_set_network(struct sandbox_handle *b, const struct network_policy *p,
                                const struct sandbox_secret *secrets, size_t nsecrets, sandbox_handle_done_fn *done,
                                void *arg)
{
    struct sandbox_network_update *u;
    struct err err = { 0 };

    if (!b->engine)
        return;
    if (sandbox_network_check_update(b, p, &err) == 0) {
        u = mem_new(struct sandbox_network_update);
        u->done = done;
        u->arg = arg;
        network_policy_copy(&u->policy, p);
        if (sandbox_network_send_update(b, u, secrets, nsecrets, &err) == 0)
            return;
        sandbox_network_free_update(u);
    }
    struct egress_request *r = egress_link_refuse(sandbox_network_link(b), &err, sandbox_network_answer, b);
    r->then.done = done;
    r->then_arg = arg;
}

static void sandbox_network_on_listed(struct egress_request *r, const struct egress_listed *l, const struct err *err)
{
    r->then.list(r->then_arg, l, err);
}

static void sandbox_network_on_not_listed(struct egress_request *r, const struct err *err)
{
    r->then.list(r->then_arg, NULL, err);
}

static struct egress_request *sandbox_network_refuse(struct sandbox_handle *b, egress_link_done_fn *fn)
{
    struct err err;

    err_set(&err, ERR_NETWORK_NOT_ENABLED, "sandbox %s was made without a network", b->id);
    return egress_link_refuse(sandbox_network_link(b), &err, fn, b);
}

void sandbox_handle_connections(struct sandbox_handle *b, sandbox_handle_connections_fn *fn, void *arg)
{
    struct egress_request *r;

    if (!b->engine)
        return;
    if (b->egress)
        r = egress_link_list(sandbox_network_link(b), b->id, sandbox_network_on_listed, b);
    else
        r = sandbox_network_refuse(b, sandbox_network_on_not_listed);
    r->then.list = fn;
    r->then_arg = arg;
}

static void sandbox_network_on_reported(struct egress_request *r, const struct egress_reported *m,
                                        const struct err *err)
{
    static struct egress_reported totals; /* 27 KiB: more than a stack should hold */
    struct sandbox_handle *b = r->owner;

    if (m && b->egress) {
        sandbox_network_see(b, m);
        network_usage_report(&b->egress->seen, m->carrier, &totals);
        m = &totals;
    }
    r->then.report(r->then_arg, m, err);
}

static void sandbox_network_on_not_reported(struct egress_request *r, const struct err *err)
{
    r->then.report(r->then_arg, NULL, err);
}

void sandbox_handle_network_report(struct sandbox_handle *b, sandbox_handle_network_fn *fn, void *arg)
{
    struct egress_request *r;

    if (!b->engine)
        return;
    if (b->egress)
        r = egress_link_report(sandbox_network_link(b), b->id, sandbox_network_on_reported, b);
    else
        r = sandbox_network_refuse(b, sandbox_network_on_not_reported);
    r->then.report = fn;
    r->then_arg = arg;
}

/* --- the end --- */

static void sandbox_network_on_last_report(struct egress_request *r, const struct egress_reported *m,
                                           const struct err *err)
{
    struct sandbox_handle *b = r->owner;

    if (!b->egress)
        return;
    b->egress->last_reports--;
    if (m)
        sandbox_network_see(b, m);
    for (struct exec_handle *x = b->execs; x && !m; x = x->next)
        x->network_uncounted = x->network_uncounted || x->state != EXEC_ENDED;
    if (b->state == SANDBOX_HANDLE_CLAIMING)
        sandbox_reset_on_unbound(b, err);
    else
        sandbox_handle_continue_end(b);
}

void sandbox_network_end(struct sandbox_handle *b, bool unbind)
{
    struct sandbox_network *n = b->egress;

    if (!n || !n->is_requested || !b->engine)
        return;
    n->last_reports++;
    n->is_stale = false;
    if (unbind) {
        sandbox_network_wipe(&n->bind, n->bind_len);
        n->is_requested = false;
        egress_link_unbind(sandbox_network_link(b), b->id, sandbox_network_on_last_report, b);
    } else {
        egress_link_report(sandbox_network_link(b), b->id, sandbox_network_on_last_report, b);
    }
}

void sandbox_network_unbind(struct sandbox_handle *b)
{
    if (b->egress && b->egress->is_requested && sandbox_network_is_connected(b))
        egress_link_unbind(sandbox_network_link(b), b->id, NULL, NULL);
}

bool sandbox_network_is_ending(const struct sandbox_handle *b)
{
    return b->egress && b->egress->last_reports > 0;
}
