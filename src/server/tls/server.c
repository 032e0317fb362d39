/* Loads certificates, checks them and puts them into use, with the other files of this directory.
 *
 * 1. The first certificate must be usable, or the server does not start. After that, an unusable
 *    new certificate never replaces the current one. */
#include "server/tls/server.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/metrics.h"
#include "server/tls/pem_watch.h"

#include <errno.h>
#include <poll.h>

#define PATIENCE_MS 10000 /* time limit for the first certificate from the supervisor */
#define AGE_EVERY_NS (24 * 3600 * NS_PER_S)
#define SOON_MS (14ull * 24 * 3600 * 1000)

struct tls_server {
    struct ev *ev;
    struct tls_front *front;
    struct pem_paths paths;
    int source;
    struct ev_io source_io;
    struct pem_watch watch;
    struct ev_timer age_timer;
    struct tls_facts facts;
    uint64_t loaded, failed;
    int *listeners;
    size_t nlisteners;
};

enum tls_expiry tls_expiry_of(uint64_t not_after_ms, uint64_t now_ms)
{
    if (not_after_ms <= now_ms)
        return TLS_EXPIRED;
    return not_after_ms - now_ms < SOON_MS ? TLS_EXPIRES_SOON : TLS_EXPIRES_LATER;
}

/* Called once a day, and at each load. */
static void tls_server_log_expiry(void *arg)
{
    struct tls_server *t = arg;
    enum tls_expiry age = tls_expiry_of(t->facts.not_after_ms, clock_real_ms());
    char when[32];

    clock_rfc3339_ms(t->facts.not_after_ms, when);
    if (age == TLS_EXPIRED)
        log_error("the certificate of %s expired at %s and clients refuse it; replace it", t->facts.subject, when);
    else if (age == TLS_EXPIRES_SOON)
        log_warn("the certificate of %s expires at %s; replace it before that", t->facts.subject, when);
    ev_timer_set(t->ev, &t->age_timer, ev_now(t->ev) + AGE_EVERY_NS, tls_server_log_expiry, t);
}

static void tls_server_set_facts(struct tls_server *t, const struct tls_facts *facts)
{
    char when[32];

    t->facts = *facts;
    t->loaded++;
    log_info("certificate of %s in use, expires at %s, SHA-256 %s", facts->subject,
             clock_rfc3339_ms(facts->not_after_ms, when), facts->fingerprint);
    tls_server_log_expiry(t);
}

/* --- a new certificate --- */

static int tls_server_check_certificate(const struct pem *pem, struct tls_identity **ret, struct err *err)
{
    auto_(tls_identity) id = NULL;

    if (tls_identity_new(pem, &id, err) < 0)
        return -1;
    if (tls_expiry_of(tls_identity_facts(id)->not_after_ms, clock_real_ms()) == TLS_EXPIRED)
        return err_set(err, ERR_TLS_FILES, "tls.certificate: the certificate has expired");
    *ret = take_ptr(&id);
    return 0;
}

static void tls_server_keep_previous(struct tls_server *t, const struct err *err)
{
    char when[32];

    t->failed++;
    log_error("the new certificate is not used: %s; the previous one stays in use, expires at %s", err->msg,
              clock_rfc3339_ms(t->facts.not_after_ms, when));
}

static void tls_server_renew(struct tls_server *t, const struct pem *pem)
{
    struct tls_identity *id = NULL;
    struct err err = { 0 };

    if (tls_server_check_certificate(pem, &id, &err) < 0) {
        tls_server_keep_previous(t, &err);
        return;
    }
    tls_server_set_facts(t, tls_identity_facts(id));
    tls_front_set_identity(t->front, id);
}

static void tls_server_on_files_changed(void *arg)
{
    struct tls_server *t = arg;
    struct pem pem = { 0 };
    struct err err = { 0 };

    if (pem_read(&t->paths, &pem, &err) < 0)
        tls_server_keep_previous(t, &err);
    else
        tls_server_renew(t, &pem);
    pem_done(&pem);
}

static void tls_server_on_source(void *arg, uint32_t events UNUSED)
{
    struct tls_server *t = arg;
    struct pem pem = { 0 };
    struct err err = { 0 };

    if (pem_recv(t->source, &pem, &err) == 0)
        tls_server_renew(t, &pem);
    else if (err.id == ERR_LOST)
        ev_io_del(t->ev, &t->source_io);
    else if (err.id != ERR_BUSY)
        tls_server_keep_previous(t, &err);
    pem_done(&pem);
}

void tls_server_reload(struct tls_server *t)
{
    struct err err = { 0 };

    if (t->source < 0) {
        pem_watch_mark_read(&t->watch);
        tls_server_on_files_changed(t);
    } else if (pem_request(t->source, &err) < 0)
        tls_server_keep_previous(t, &err);
}

/* --- the first certificate --- */

static int tls_server_request_first(int source, struct pem *ret, struct err *err)
{
    struct pollfd p = { .fd = source, .events = POLLIN };

    if (pem_request(source, err) < 0)
        return -1;
    while (poll(&p, 1, PATIENCE_MS) != 0) {
        if (pem_recv(source, ret, err) == 0)
            return 0;
        if (err->id != ERR_BUSY)
            return -1;
    }
    return err_set(err, ERR_TLS_FILES, "the supervisor did not send the certificate");
}

static int tls_server_load_first(struct tls_server *t, const struct tls_front_settings *set, struct err *err)
{
    struct tls_identity *id = NULL;
    struct pem pem = { 0 };
    int rc = t->source < 0 ? pem_read(&t->paths, &pem, err) : tls_server_request_first(t->source, &pem, err);

    if (rc == 0)
        rc = tls_identity_new(&pem, &id, err);
    pem_done(&pem);
    if (rc < 0)
        return -1;
    struct tls_facts facts = *tls_identity_facts(id);
    if (tls_front_new(t->ev, set, id, &t->front, err) < 0)
        return -1;
    tls_server_set_facts(t, &facts);
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
    if (t->source < 0) /* before the files are read, so that a change in between is not lost */
        pem_watch_init(&t->watch, ev, &t->paths, tls_server_on_files_changed, t);
    if (tls_server_load_first(t, &front, err) < 0 ||
        (t->source >= 0 && ev_io_add(ev, &t->source_io, t->source, EPOLLIN, tls_server_on_source, t, err) < 0)) {
        tls_server_free(t);
        return -1;
    }
    *ret = t;
    return 0;
}

void tls_server_stop_accepting(struct tls_server *t)
{
    tls_front_stop_accepting(t->front);
}

void tls_server_free(struct tls_server *t)
{
    if (!t)
        return;
    tls_front_free(t->front);
    pem_watch_done(&t->watch);
    ev_timer_clear(t->ev, &t->age_timer);
    ev_io_del(t->ev, &t->source_io);
    fd_close(&t->source);
    for (size_t i = 0; i < t->nlisteners; i++)
        close(t->listeners[i]);
    free(t->listeners);
    free(t);
}

void tls_server_metrics(const struct tls_server *t, struct buf *out)
{
    struct tls_front_stats s;

    tls_front_stats(t->front, &s);
    metrics_number(out, "tls_certificate_expiry_timestamp_seconds", "When the certificate in use expires.",
                   t->facts.not_after_ms / 1000);
    metrics_number(out, "tls_certificates_loaded_total", "Certificates put into use.", t->loaded);
    metrics_number(out, "tls_certificates_refused_total", "New certificates that could not be used.", t->failed);
    metrics_number(out, "tls_connections", "Open connections, including those in the handshake.", s.open);
    metrics_number(out, "tls_connections_total", "Accepted connections.", s.accepted);
    metrics_number(out, "tls_handshakes_total", "Completed handshakes.", s.handshakes);
    metrics_number(out, "tls_handshakes_resumed_total", "Handshakes that resumed an earlier session with a ticket.",
                   s.resumed);
    metrics_number(out, "tls_handshakes_failed_total", "Failed handshakes.", s.failed);
    metrics_number(out, "tls_handshakes_late_total", "Handshakes that timed out or were aborted for newer ones.",
                   s.timed_out);
    metrics_number(out, "tls_plain_requests_total", "Clients that spoke HTTP without TLS.", s.plain);
}
