#include "host/egress/egress_control.h"

#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/wire/chan.h"
#include "core/wire/egress.h"
#include "core/wire/rt.h"
#include "host/egress/egress_sandbox.h"

#define LINKS_MAX 32u
#define SECRETS_NS NS_PER_S /* uses of secrets are reported together */

struct control_link {
    struct control_link *next;
    struct egress_control *control;
    struct chan chan;
    bool is_jailer, is_engine; /* which messages it may send; a process of root may send all */
    struct ev_defer free_later;
};

/* --- answers --- */

static void control_link_send(struct control_link *l, uint8_t type, uint32_t stream, const uint8_t *data, int len)
{
    if (len >= 0)
        chan_send(&l->chan, &(struct frame){ .type = type, .stream = stream, .len = (uint32_t)len, .data = data });
}

static void control_link_send_error(struct control_link *l, uint32_t stream, const struct err *why)
{
    struct rt_error e = { .id = why->id, .sys = why->sys };
    PAYLOAD(out);

    if (!str_copy(e.msg, sizeof(e.msg), why->msg))
        memcpy(e.msg, why->msg, sizeof(e.msg) - 1);
    control_link_send(l, FRAME_E_ERROR, stream, out, rt_error_encode(&e, out, NULL));
}

/* `unbind`: the rules have ended when the answer arrives. */
static void control_link_send_report(struct control_link *l, uint32_t stream, struct egress_sandbox *s, bool unbind)
{
    static struct egress_reported r;
    PAYLOAD(out);

    egress_sandbox_report(s, &r);
    if (unbind)
        egress_sandbox_unbind(s);
    control_link_send(l, FRAME_E_REPORTED, stream, out, egress_reported_encode(&r, out, NULL));
}

static void control_link_send_list(struct control_link *l, uint32_t stream, const struct egress_sandbox *s)
{
    static struct egress_listed r;
    PAYLOAD(out);

    egress_sandbox_list(s, &r);
    control_link_send(l, FRAME_E_LISTED, stream, out, egress_listed_encode(&r, out, NULL));
}

/* --- secrets --- */

/* Returns false if some could not be sent: the engine is not connected. */
static bool egress_control_report_secrets(struct egress_control *c, struct egress_sandbox *s)
{
    PAYLOAD(out);
    struct control_link *l = c->links;
    bool all = true;

    while (l && l != s->engine)
        l = l->next;
    for (size_t i = 0; i < s->nsecrets; i++) {
        struct egress_secret *secret = s->secrets[i];
        struct egress_secret_used m = { .count = secret->used };

        if (secret->used == 0)
            continue;
        all = all && l;
        if (!l)
            continue;
        (void)str_copy(m.id, sizeof(m.id), s->id);
        (void)str_copy(m.name, sizeof(m.name), secret->name);
        (void)str_copy(m.host, sizeof(m.host), secret->host);
        control_link_send(l, FRAME_E_SECRET, 0, out, egress_secret_used_encode(&m, out, NULL));
        secret->used = 0;
    }
    return all;
}

static void egress_control_on_secrets_timer(void *arg)
{
    struct egress_control *c = arg;
    struct egress_proxy *p = c->proxy;
    bool all = true;

    for (size_t i = 0; i < EGRESS_SANDBOX_BUCKETS; i++)
        for (struct egress_sandbox *s = p->sandboxes[i]; s; s = s->next)
            all = egress_control_report_secrets(c, s) && all;
    if (!all)
        ev_timer_set(p->ev, &c->secrets_timer, ev_now(p->ev) + SECRETS_NS, egress_control_on_secrets_timer, c);
}

static void egress_control_on_secret_used(void *arg, struct egress_sandbox *s UNUSED)
{
    struct egress_control *c = arg;
    struct ev *ev = c->proxy->ev;

    if (!c->secrets_timer.slot)
        ev_timer_set(ev, &c->secrets_timer, ev_now(ev) + SECRETS_NS, egress_control_on_secrets_timer, c);
}

/* --- messages --- */

static int control_link_listen(struct control_link *l, const struct frame *f, int *fds, size_t nfds, struct err *err)
{
    struct egress_listen m;
    struct err why = { 0 };

    if (egress_listen_decode(f, &m, err) < 0)
        return -1;
    /* Not a reason to end the link, which serves other sandboxes. */
    if (egress_sandbox_listen(l->control->proxy, &m, fds, nfds, l, &why) < 0)
        log_write_with_ids(LOG_ERROR, &(struct log_ids){ .sandbox = m.id }, "cannot use its listeners: %s", why.msg);
    return 0;
}

static int control_link_bind(struct control_link *l, const struct frame *f, struct err *err)
{
    struct egress_proxy *p = l->control->proxy;
    struct egress_bind m;
    void *strings = NULL;
    struct err why = { 0 };

    if (egress_bind_decode(f, &m, &strings, err) < 0)
        return -1;
    struct egress_sandbox *s = egress_sandbox_find(p, m.id);
    if (s)
        (void)egress_control_report_secrets(l->control, s);
    if (egress_sandbox_bind(p, &m, l, &why) < 0)
        control_link_send_error(l, f->stream, &why);
    else
        control_link_send(l, FRAME_E_BOUND, f->stream, NULL, 0);
    explicit_bzero(strings, f->len);
    free(strings);
    return 0;
}

static int control_link_ask(struct control_link *l, const struct frame *f, struct err *err)
{
    struct egress_id m;
    struct err why = { 0 };

    if (egress_id_decode(f, &m, err) < 0)
        return -1;
    struct egress_sandbox *s = egress_sandbox_find(l->control->proxy, m.id);
    if (!s || !s->rules) {
        err_set(&why, ERR_MISSING, "sandbox %s has no rules bound in the egress proxy", m.id);
        control_link_send_error(l, f->stream, &why);
        return 0;
    }
    (void)egress_control_report_secrets(l->control, s);
    if (f->type == FRAME_E_LIST)
        control_link_send_list(l, f->stream, s);
    else
        control_link_send_report(l, f->stream, s, f->type == FRAME_E_UNBIND);
    return 0;
}

static int control_link_unlisten(struct control_link *l, const struct frame *f, struct err *err)
{
    struct egress_id m;

    if (egress_id_decode(f, &m, err) < 0)
        return -1;
    struct egress_sandbox *s = egress_sandbox_find(l->control->proxy, m.id);
    if (s)
        egress_sandbox_unlisten(s);
    return 0;
}

static int control_link_handle(struct control_link *l, const struct frame *f, int *fds, size_t nfds, struct err *err)
{
    bool is_from_jailer = f->type == FRAME_E_LISTEN || f->type == FRAME_E_UNLISTEN;

    if (is_from_jailer ? !l->is_jailer : !l->is_engine)
        return err_set(err, ERR_PROTOCOL, "this process may not send %s", frame_name(f->type));
    switch (f->type) {
    case FRAME_E_LISTEN:
        return control_link_listen(l, f, fds, nfds, err);
    case FRAME_E_UNLISTEN:
        return control_link_unlisten(l, f, err);
    case FRAME_E_BIND:
        return control_link_bind(l, f, err);
    case FRAME_E_UNBIND:
    case FRAME_E_REPORT:
    case FRAME_E_LIST:
        return control_link_ask(l, f, err);
    default:
        return err_set(err, ERR_PROTOCOL, "%s is not a message to the egress proxy", frame_name(f->type));
    }
}

/* --- links --- */

static void control_link_end(struct control_link *l)
{
    struct egress_control *c = l->control;

    list_remove(&c->links, l);
    c->nlinks--;
    chan_done(&l->chan);
    if (l->is_jailer)
        egress_sandboxes_lose_jailer(c->proxy, l);
    if (l->is_engine)
        egress_sandboxes_lose_engine(c->proxy, l);
    ev_defer(c->proxy->ev, &l->free_later, free, l);
    if (!c->listener.path)
        ev_stop(c->proxy->ev);
}

static void control_link_on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct control_link *l = arg;
    struct err err = { 0 };
    int rc = control_link_handle(l, f, fds, nfds, &err);

    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    if (rc < 0) {
        log_error("ending a connection of the host: %s", err.msg);
        control_link_end(l);
    }
}

static void control_link_on_end(void *arg, const struct err *why UNUSED)
{
    control_link_end(arg);
}

int egress_control_add_link(struct egress_control *c, int sock, bool is_jailer, bool is_engine, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = control_link_on_frame, .on_end = control_link_on_end };
    struct control_link *l = mem_new(struct control_link);

    l->control = c;
    l->is_jailer = is_jailer;
    l->is_engine = is_engine;
    if (chan_init(&l->chan, c->proxy->ev, sock, is_jailer, &ops, l, err) < 0) {
        free(l);
        return -1;
    }
    list_push(&c->links, l);
    c->nlinks++;
    return 0;
}

static void egress_control_on_connection(void *arg, int sock, const struct ucred *peer)
{
    struct egress_control *c = arg;
    bool is_trusted = peer->uid == 0 || peer->uid == c->own_uid;

    if (c->nlinks < LINKS_MAX && (is_trusted || peer->uid == c->proxy->settings->host_uid))
        (void)egress_control_add_link(c, sock, is_trusted, true, NULL);
    else
        close(sock);
}

/* Root may connect in any case; the socket belongs to the user of the engine. */
static int egress_control_listen(struct egress_control *c, struct err *err)
{
    const struct egress_settings *w = c->proxy->settings;

    return unix_listener_open(&c->listener, c->proxy->ev, w->socket, w->host_uid, egress_control_on_connection, c, err);
}

int egress_control_init(struct egress_control *c, struct egress_proxy *p, struct err *err)
{
    const struct egress_settings *w = p->settings;

    *c = (struct egress_control){ .proxy = p, .own_uid = geteuid() };
    p->on_secret_used = egress_control_on_secret_used;
    p->arg = c;
    if (w->socket)
        return egress_control_listen(c, err);
    if (egress_control_add_link(c, w->jailer_fd, true, false, err) < 0 ||
        egress_control_add_link(c, w->engine_fd, false, true, err) < 0)
        return -1;
    return 0;
}

void egress_control_done(struct egress_control *c)
{
    while (c->links) {
        struct control_link *l = c->links;

        c->links = l->next;
        chan_done(&l->chan);
        free(l);
    }
    ev_timer_clear(c->proxy->ev, &c->secrets_timer);
    unix_listener_close(&c->listener);
}
