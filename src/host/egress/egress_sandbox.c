#include "host/egress/egress_sandbox.h"

#include "core/base/fd.h"
#include "core/base/hash.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/egress/egress_conn.h"
#include "host/egress/resolver.h"
#include "host/egress/secret_way.h"

#include <errno.h>
#include <sys/socket.h>

#define RETRY_NS (50 * NS_PER_MS) /* while other sandboxes hold what this one waits for */
#define WAITING_MAX 4096u         /* more than a listener keeps */
#define BURST_S 4u                /* connections of so many seconds may come at once */

static struct egress_sandbox **egress_sandbox_bucket(struct egress_proxy *p, const char *id)
{
    return &p->sandboxes[hash_fold(hash_str(HASH_INIT, id)) % EGRESS_SANDBOX_BUCKETS];
}

struct egress_sandbox *egress_sandbox_find(struct egress_proxy *p, const char *id)
{
    struct egress_sandbox *s = *egress_sandbox_bucket(p, id);

    while (s && !str_eq(s->id, id))
        s = s->next;
    return s;
}

static struct egress_sandbox *egress_sandbox_get(struct egress_proxy *p, const char *id, struct err *err)
{
    struct egress_sandbox *s = egress_sandbox_find(p, id);

    if (s)
        return s;
    if (p->nsandboxes == EGRESS_SANDBOXES_MAX) {
        err_set(err, ERR_LIMIT, "the egress proxy serves %u sandboxes, which is its maximum", EGRESS_SANDBOXES_MAX);
        return NULL;
    }
    s = mem_new(struct egress_sandbox);
    s->proxy = p;
    (void)str_copy(s->id, sizeof(s->id), id);
    for (size_t i = 0; i < EGRESS_LISTENERS; i++)
        s->listeners[i].sandbox = s;
    struct egress_sandbox **bucket = egress_sandbox_bucket(p, id);
    linked_push(bucket, s);
    p->nsandboxes++;
    return s;
}

/* --- listeners --- */

static void egress_listener_update(struct egress_listener_source *l)
{
    bool reads = l->sandbox->rules && !l->is_full && !l->is_paused;

    ev_io_set(l->sandbox->proxy->ev, &l->io, reads ? EPOLLIN : 0);
}

static void egress_sandbox_end_pauses(void *arg)
{
    struct egress_sandbox *s = arg;

    for (size_t i = 0; i < EGRESS_LISTENERS; i++) {
        s->listeners[i].is_paused = false;
        egress_listener_update(&s->listeners[i]);
    }
}

void egress_sandbox_pause(struct egress_listener_source *l, uint64_t until)
{
    struct egress_sandbox *s = l->sandbox;

    l->is_paused = true;
    egress_listener_update(l);
    if (!s->resume_timer.slot || until < s->resume_timer.at)
        ev_timer_set(s->proxy->ev, &s->resume_timer, until, egress_sandbox_end_pauses, s);
}

void egress_sandbox_pause_if_short(struct egress_listener_source *l)
{
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        egress_sandbox_pause(l, ev_now(l->sandbox->proxy->ev) + RETRY_NS);
}

void egress_sandbox_resume(struct egress_sandbox *s)
{
    for (size_t i = 0; i < EGRESS_LISTENERS; i++) {
        s->listeners[i].is_full = false;
        egress_listener_update(&s->listeners[i]);
    }
}

static bool egress_sandbox_take_connection(struct egress_sandbox *s, uint64_t *ret_at)
{
    uint64_t now = ev_now(s->proxy->ev);

    return share_bucket_take(&s->connection_bucket, s->connection_rate, s->connection_rate * BURST_S, now, ret_at) &&
           share_bucket_take(&s->tenant->rate, SHARES_TENANT_RATE, SHARES_TENANT_BURST, now, ret_at);
}

bool egress_sandbox_may_open(struct egress_sandbox *s, uint64_t *ret_at)
{
    if (egress_sandbox_take_connection(s, ret_at))
        return true;
    *ret_at = max_u64(*ret_at, ev_now(s->proxy->ev) + RETRY_NS);
    return false;
}

bool egress_sandbox_may_accept(struct egress_listener_source *l)
{
    struct egress_sandbox *s = l->sandbox;
    struct shares *shares = &s->proxy->shares;
    uint64_t now = ev_now(s->proxy->ev), at;

    if (!s->tenant)
        return false;
    if (s->nconns >= s->connections_max) {
        l->is_full = true;
        egress_listener_update(l);
        return false;
    }
    if (!shares_may_accept(shares, s->tenant, now))
        return false;
    if (!shares_has_room(shares, s->tenant)) {
        egress_sandbox_pause(l, now + RETRY_NS);
        return false;
    }
    if (!egress_sandbox_take_connection(s, &at)) {
        egress_sandbox_pause(l, at);
        return false;
    }
    return true;
}

static void egress_sandbox_close_listeners(struct egress_sandbox *s)
{
    for (size_t i = 0; i < EGRESS_LISTENERS; i++)
        if (s->listeners[i].io.on) {
            ev_io_del(s->proxy->ev, &s->listeners[i].io);
            close(s->listeners[i].io.fd);
            egress_proxy_count_listeners(s->proxy, -1);
        }
    resolver_end_all(s);
    while (s->conns)
        egress_conn_close(s->conns);
    s->jailer = NULL;
    s->carrier = EGRESS_CARRIER_NONE;
}

static int egress_sandbox_add_listeners(struct egress_sandbox *s, int *fds, size_t nfds, struct err *err)
{
    static void (*const on_ready[EGRESS_LISTENERS])(void *, uint32_t) = {
        [EGRESS_LISTEN_DNS_UDP] = resolver_on_datagrams,
        [EGRESS_LISTEN_DNS_TCP] = resolver_on_connection,
        [EGRESS_LISTEN_PROXY] = egress_conn_on_proxy_listener,
        [EGRESS_LISTEN_ANY] = egress_conn_on_any_listener,
    };

    for (size_t i = 0; i < nfds; i++) {
        struct egress_listener_source *l = &s->listeners[i];

        l->is_full = l->is_paused = false;
        if (!fd_is_socket(fds[i]) || fd_nonblock(fds[i], true) < 0)
            return err_set(err, ERR_PROTOCOL, "descriptor %zu of the listeners is not a socket", i);
        if (ev_io_add(s->proxy->ev, &l->io, fds[i], s->rules ? EPOLLIN : 0, on_ready[i], l, err) < 0)
            return -1;
        fds[i] = -1;
        egress_proxy_count_listeners(s->proxy, 1);
    }
    return 0;
}

static void egress_sandbox_free_if_unused(struct egress_sandbox *s)
{
    struct egress_proxy *p = s->proxy;

    if (s->jailer || s->rules)
        return;
    egress_sandbox_close_listeners(s);
    ev_timer_clear(p->ev, &s->resume_timer);
    invented_names_done(&s->names);
    destinations_done(&s->destinations);
    linked_remove(s);
    p->nsandboxes--;
    free(s);
}

int egress_sandbox_listen(struct egress_proxy *p, const struct egress_listen *m, int *fds, size_t nfds,
                          const void *jailer, struct err *err)
{
    size_t expected = m->carrier == EGRESS_CARRIER_TPROXY ? EGRESS_LISTENERS : EGRESS_LISTENERS - 1;
    struct egress_sandbox *s = NULL;
    int rc = -1;

    if (nfds == expected && p->nlisteners + nfds > p->descriptors_max / 4 * 3)
        err_set(err, ERR_DESCRIPTORS,
                "the listeners of other sandboxes have used up the descriptors of the egress proxy");
    else if (nfds == expected)
        s = egress_sandbox_get(p, m->id, err);
    else
        err_set(err, ERR_PROTOCOL, "the message has %zu listeners; its carrier needs %zu", nfds, expected);
    if (s) {
        egress_sandbox_close_listeners(s);
        s->jailer = jailer;
        s->carrier = m->carrier;
        rc = egress_sandbox_add_listeners(s, fds, nfds, err);
        if (rc < 0)
            egress_sandbox_unlisten(s);
    }
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    return rc;
}

void egress_sandbox_unlisten(struct egress_sandbox *s)
{
    egress_sandbox_close_listeners(s);
    if (s->engine)
        egress_sandbox_free_if_unused(s);
    else
        egress_sandbox_unbind(s); /* an engine that comes back does not know it */
}

/* --- secrets --- */

void egress_secret_unref(struct egress_secret *secret)
{
    if (--secret->refs)
        return;
    secret_way_free(secret->way);
    explicit_bzero(secret->value, strlen(secret->value));
    free(secret->value);
    free(secret);
}

static void egress_secrets_unref(struct egress_secret *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        egress_secret_unref(list[i]);
}

void egress_secret_use(struct egress_secret *secret)
{
    struct egress_proxy *p = secret->sandbox->proxy;

    secret->used++;
    p->on_secret_used(p->arg, secret->sandbox);
}

struct egress_secret *egress_sandbox_find_secret(const struct egress_sandbox *s, const char *host)
{
    const struct egress_secret_rule *rule = s->rules ? egress_rules_find_secret(s->rules, host) : NULL;

    for (size_t i = 0; rule && i < s->nsecrets; i++)
        if (str_eq(s->secrets[i]->name, rule->name))
            return s->secrets[i];
    return NULL;
}

static bool egress_secret_rule_equal(const struct egress_secret_rule *a, const struct egress_secret_rule *b)
{
    return str_eq(a->name, b->name) && str_eq(a->host, b->host) && a->port == b->port && str_eq(a->header, b->header) &&
           str_eq(a->format, b->format) && a->request.methods == b->request.methods &&
           str_eq(a->request.path, b->request.path);
}

/* A secret that stays the same keeps its object, so that its connections stay. */
static struct egress_secret *egress_secret_reuse(const struct egress_sandbox *s, const struct egress_secret_rule *rule,
                                                 const char *value)
{
    for (size_t i = 0; i < s->nsecrets; i++)
        if (egress_secret_rule_equal(secret_way_rule(s->secrets[i]->way), rule) &&
            str_eq(s->secrets[i]->value, value)) {
            s->secrets[i]->refs++;
            return s->secrets[i];
        }
    return NULL;
}

static int egress_secret_make(struct egress_sandbox *s, const struct egress_secret_rule *rule,
                              const char *const *values, struct egress_secret **ret, struct err *err)
{
    struct secret_way *way;

    while (values && values[0] && !str_eq(values[0], rule->name))
        values += 2;
    if (!values || !values[0])
        return err_set(err, ERR_INVALID, "secret %s has no value", rule->name);
    *ret = egress_secret_reuse(s, rule, values[1]);
    if (*ret)
        return 0;
    if (secret_way_new(rule, values[1], &way, err) < 0)
        return err_wrap(err, "secret %s", rule->name);
    struct egress_secret *secret = mem_new(struct egress_secret);
    secret->refs = 1;
    secret->way = way;
    secret->value = str_dup(values[1]);
    secret->sandbox = s;
    (void)str_copy(secret->name, sizeof(secret->name), rule->name);
    (void)str_copy(secret->host, sizeof(secret->host), rule->host);
    *ret = secret;
    return 0;
}

/* --- rules --- */

static void egress_sandbox_set_shares(struct egress_sandbox *s, const struct egress_bind *m)
{
    struct share_tenant *before = s->tenant;
    uint32_t most = s->proxy->settings->sandbox_connections;

    s->tenant = shares_join(&s->proxy->shares, m->tenant);
    if (before)
        shares_leave(&s->proxy->shares, before);
    s->connections_max = m->connections_max ? m->connections_max : most;
    s->connection_rate = m->connection_rate && m->connection_rate < SHARES_TENANT_RATE ? m->connection_rate
                         : m->connection_rate                                          ? SHARES_TENANT_RATE
                                                                                       : SHARES_SANDBOX_RATE;
    s->bytes_max = m->bytes_max;
}

static int egress_sandbox_make_secrets(struct egress_sandbox *s, const struct egress_rules *rules,
                                       const struct egress_bind *m, struct egress_secret **ret, struct err *err)
{
    for (size_t i = 0; i < rules->nsecrets; i++)
        if (egress_secret_make(s, &rules->secrets[i], m->secrets, &ret[i], err) < 0) {
            egress_secrets_unref(ret, i);
            return -1;
        }
    return 0;
}

int egress_sandbox_bind(struct egress_proxy *p, const struct egress_bind *m, const void *engine, struct err *err)
{
    auto_(egress_rules) rules = NULL;
    struct egress_secret *secrets[EGRESS_RULE_SECRETS_MAX];

    if (egress_rules_parse(m->rules, strlen(m->rules), &rules, err) < 0)
        return -1;
    struct egress_sandbox *s = egress_sandbox_get(p, m->id, err);
    if (!s)
        return -1;
    if (egress_sandbox_make_secrets(s, rules, m, secrets, err) < 0) {
        egress_sandbox_free_if_unused(s);
        return -1;
    }
    egress_secrets_unref(s->secrets, s->nsecrets);
    s->nsecrets = rules->nsecrets;
    for (size_t i = 0; i < s->nsecrets; i++)
        s->secrets[i] = secrets[i];
    egress_rules_free(s->rules);
    s->rules = take_ptr(&rules);
    s->engine = engine;
    egress_sandbox_set_shares(s, m);
    for (struct egress_conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        egress_conn_recheck(c);
    }
    egress_sandbox_resume(s);
    return 0;
}

/* The kernel keeps connections and queries of programs that are gone. They were made for the rules
 * that end here, so the next ones must not serve them. */
static void egress_sandbox_drop_waiting(struct egress_sandbox *s)
{
    for (size_t i = 0; i < EGRESS_LISTENERS; i++)
        for (unsigned n = 0; s->listeners[i].io.on && n < WAITING_MAX; n++) {
            int sock = s->listeners[i].io.fd;
            int got = i == EGRESS_LISTEN_DNS_UDP ? (int)recv(sock, NULL, 0, MSG_DONTWAIT)
                                                 : accept4(sock, NULL, NULL, SOCK_CLOEXEC);

            if (got < 0)
                break;
            if (i != EGRESS_LISTEN_DNS_UDP)
                close(got);
        }
}

void egress_sandbox_unbind(struct egress_sandbox *s)
{
    egress_sandbox_drop_waiting(s);
    resolver_end_all(s);
    while (s->conns)
        egress_conn_close(s->conns);
    egress_secrets_unref(s->secrets, s->nsecrets);
    s->nsecrets = 0;
    egress_rules_free(s->rules);
    s->rules = NULL;
    s->engine = NULL;
    if (s->tenant)
        shares_leave(&s->proxy->shares, s->tenant);
    s->tenant = NULL;
    invented_names_reset(&s->names);
    destinations_done(&s->destinations);
    egress_sandbox_resume(s); /* which now means not to read */
    egress_sandbox_free_if_unused(s);
}

/* --- answers --- */

void egress_sandbox_report(const struct egress_sandbox *s, struct egress_reported *ret)
{
    ret->carrier = s->carrier;
    destinations_report(&s->destinations, ret);
}

void egress_sandbox_list(const struct egress_sandbox *s, struct egress_listed *ret)
{
    ret->n = ret->more = 0;
    for (const struct egress_conn *c = s->conns; c; c = c->next) {
        if (!c->destination)
            continue;
        if (ret->n == ARRAY_LEN(ret->connections))
            ret->more++;
        else
            egress_conn_describe(c, &ret->connections[ret->n++]);
    }
}

/* --- links --- */

static void egress_sandboxes_lose(struct egress_proxy *p, const void *jailer, const void *engine)
{
    for (size_t i = 0; i < EGRESS_SANDBOX_BUCKETS; i++)
        for (struct egress_sandbox *s = p->sandboxes[i], *next; s; s = next) {
            next = s->next;
            bool lost = engine && s->engine == engine;

            if (lost)
                s->engine = NULL;
            if (jailer && s->jailer == jailer)
                egress_sandbox_close_listeners(s);
            if (!s->jailer && !s->engine)
                egress_sandbox_unbind(s);
        }
}

void egress_sandboxes_lose_jailer(struct egress_proxy *p, const void *jailer)
{
    egress_sandboxes_lose(p, jailer, NULL);
}

void egress_sandboxes_lose_engine(struct egress_proxy *p, const void *engine)
{
    egress_sandboxes_lose(p, NULL, engine);
}

void egress_sandboxes_free(struct egress_proxy *p)
{
    for (size_t i = 0; i < EGRESS_SANDBOX_BUCKETS; i++)
        for (struct egress_sandbox *s = p->sandboxes[i], *next; s; s = next) {
            next = s->next;
            s->jailer = NULL;
            egress_sandbox_close_listeners(s);
            egress_sandbox_unbind(s);
        }
}
