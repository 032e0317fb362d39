/* Where certificates come from is one question, whether one is good another, and using it a third; the files of this
 * room each answer one, and this one asks them in order.
 *
 * 1. The first certificate must be good, or there is no server. After that, nothing that is wrong with a new one can
 *    take the old one away. */
#include "tls/server.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "tls/pem_watch.h"

#include <errno.h>
#include <poll.h>

#define PATIENCE_MS 10000 /* for the first certificate from the supervisor */
#define AGE_EVERY_NS (24 * 3600 * NS_PER_S)
#define SOON_MS (14ull * 24 * 3600 * 1000)

struct tls_server {
    struct ev *ev;
    struct tls_front *front;
    struct pem_paths paths;
    int source;
    struct ev_io source_io;
    struct pem_watch watch;
    struct ev_timer age;
    struct tls_facts facts;
    uint64_t loaded, failed;
    int *listeners;
    size_t nlisteners;
};

enum tls_age tls_age(uint64_t not_after_ms, uint64_t now_ms)
{
    if (not_after_ms <= now_ms)
        return TLS_OVER;
    return not_after_ms - now_ms < SOON_MS ? TLS_SOON : TLS_FRESH;
}

static uint64_t now_ms(void)
{
    return clock_real_ns() / NS_PER_MS;
}

/* Once a day, and at each load. */
static void tell_age(void *arg)
{
    struct tls_server *t = arg;
    enum tls_age age = tls_age(t->facts.not_after_ms, now_ms());
    char when[32];

    clock_rfc3339_ms(t->facts.not_after_ms, when);
    if (age == TLS_OVER)
        log_error("the certificate of %s ended at %s: clients refuse it; put a new one in its place", t->facts.subject,
                  when);
    else if (age == TLS_SOON)
        log_warn("the certificate of %s ends at %s: put a new one in its place before that", t->facts.subject, when);
    ev_timer_set(t->ev, &t->age, ev_now(t->ev) + AGE_EVERY_NS, tell_age, t);
}

static void adopt_facts(struct tls_server *t, const struct tls_facts *facts)
{
    char when[32];

    t->facts = *facts;
    t->loaded++;
    log_info("certificate of %s in use, ends at %s, SHA-256 %s", facts->subject,
             clock_rfc3339_ms(facts->not_after_ms, when), facts->fingerprint);
    tell_age(t);
}

/* --- a new certificate --- */

static int judge(const struct pem *pem, struct tls_identity **ret, struct err *err)
{
    auto_(tls_identity) id = NULL;

    if (tls_identity_new(pem, &id, err) < 0)
        return -1;
    if (tls_age(tls_identity_facts(id)->not_after_ms, now_ms()) == TLS_OVER)
        return err_set(err, ERR_TLS_FILES, "tls.certificate: it is out of date");
    *ret = take_ptr(&id);
    return 0;
}

static void refuse(struct tls_server *t, const struct err *err)
{
    char when[32];

    t->failed++;
    log_error("the new certificate is not used: %s; the one before stays, which ends at %s", err->msg,
              clock_rfc3339_ms(t->facts.not_after_ms, when));
}

static void renew(struct tls_server *t, const struct pem *pem)
{
    struct tls_identity *id = NULL;
    struct err err = { 0 };

    if (judge(pem, &id, &err) < 0) {
        refuse(t, &err);
        return;
    }
    adopt_facts(t, tls_identity_facts(id));
    tls_front_change(t->front, id);
}

static void on_changed(void *arg)
{
    struct tls_server *t = arg;
    struct pem pem = { 0 };
    struct err err = { 0 };

    if (pem_read(&t->paths, &pem, &err) < 0)
        refuse(t, &err);
    else
        renew(t, &pem);
    pem_done(&pem);
}

static void on_source(void *arg, uint32_t events UNUSED)
{
    struct tls_server *t = arg;
    struct pem pem = { 0 };
    struct err err = { 0 };

    if (pem_recv(t->source, &pem, &err) == 0)
        renew(t, &pem);
    else if (err.id == ERR_LOST)
        ev_io_del(t->ev, &t->source_io);
    else if (err.id != ERR_BUSY)
        refuse(t, &err);
    pem_done(&pem);
}

void tls_server_reload(struct tls_server *t)
{
    struct err err = { 0 };

    if (t->source < 0) {
        pem_watch_note(&t->watch);
        on_changed(t);
    } else if (pem_ask(t->source, &err) < 0)
        refuse(t, &err);
}

/* --- the first --- */

static int first_from_source(int source, struct pem *ret, struct err *err)
{
    struct pollfd p = { .fd = source, .events = POLLIN };

    if (pem_ask(source, err) < 0)
        return -1;
    while (poll(&p, 1, PATIENCE_MS) != 0) {
        if (pem_recv(source, ret, err) == 0)
            return 0;
        if (err->id != ERR_BUSY)
            return -1;
    }
    return err_set(err, ERR_TLS_FILES, "the supervisor did not hand over the certificate");
}

static int first(struct tls_server *t, const struct tls_front_settings *set, struct err *err)
{
    struct tls_identity *id = NULL;
    struct pem pem = { 0 };
    int rc = t->source < 0 ? pem_read(&t->paths, &pem, err) : first_from_source(t->source, &pem, err);

    if (rc == 0)
        rc = tls_identity_new(&pem, &id, err);
    pem_done(&pem);
    if (rc < 0)
        return -1;
    struct tls_facts facts = *tls_identity_facts(id);
    if (tls_front_new(t->ev, set, id, &t->front, err) < 0)
        return -1;
    adopt_facts(t, &facts);
    return 0;
}

int tls_server_new(struct ev *ev, const struct tls_server_settings *set, struct tls_server **ret, struct err *err)
{
    struct tls_server *t = mem_new(struct tls_server);
    struct tls_front_settings front = set->front;

    t->ev = ev;
    t->paths = set->paths;
    t->source = set->source;
    t->nlisteners = front.nlisteners;
    t->listeners = mem_copy(front.listeners, front.nlisteners * sizeof(*front.listeners));
    front.listeners = t->listeners;
    if (t->source < 0) /* before they are read: a change in between is none that gets lost */
        pem_watch_init(&t->watch, ev, &t->paths, on_changed, t);
    if (first(t, &front, err) < 0 ||
        (t->source >= 0 && ev_io_add(ev, &t->source_io, t->source, EPOLLIN, on_source, t, err) < 0)) {
        tls_server_free(t);
        return -1;
    }
    *ret = t;
    return 0;
}

void tls_server_close(struct tls_server *t)
{
    tls_front_close(t->front);
}

void tls_server_free(struct tls_server *t)
{
    if (!t)
        return;
    tls_front_free(t->front);
    pem_watch_done(&t->watch);
    ev_timer_clear(t->ev, &t->age);
    ev_io_del(t->ev, &t->source_io);
    fd_close(&t->source);
    for (size_t i = 0; i < t->nlisteners; i++)
        close(t->listeners[i]);
    free(t->listeners);
    free(t);
}

void tls_server_figures(const struct tls_server *t, struct buf *out)
{
    struct tls_front_stats s;

    tls_front_stats(t->front, &s);
    const struct {
        const char *name, *kind, *help;
        uint64_t value;
    } rows[] = {
        { "certificate_expiry_timestamp_seconds", "gauge", "When the certificate in use ends.",
          t->facts.not_after_ms / 1000 },
        { "certificates_loaded_total", "counter", "Certificates that came into use.", t->loaded },
        { "certificates_refused_total", "counter", "New certificates that could not be used.", t->failed },
        { "connections", "gauge", "Open connections, with those in the handshake.", s.open },
        { "connections_total", "counter", "Connections that were accepted.", s.accepted },
        { "handshakes_total", "counter", "Handshakes that were completed.", s.handshakes },
        { "handshakes_resumed_total", "counter", "Of them, those with a ticket of an earlier one.", s.resumed },
        { "handshakes_failed_total", "counter", "Handshakes that went wrong.", s.failed },
        { "handshakes_late_total", "counter", "Handshakes that were given up.", s.late },
        { "plain_requests_total", "counter", "Clients that spoke HTTP without TLS.", s.plain },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        buf_addf(out, "# HELP cove_tls_%s %s\n# TYPE cove_tls_%s %s\ncove_tls_%s %" PRIu64 "\n", rows[i].name,
                 rows[i].help, rows[i].name, rows[i].kind, rows[i].name, rows[i].value);
}
