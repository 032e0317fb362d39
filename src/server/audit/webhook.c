/* One delivery at a time, in order: a receiver that is slow or unavailable gets no burst when it
 * recovers, and the queue has a fixed size. Only the status of its response is used. */
#include "server/audit/webhook.h"

#include "server/audit/address.h"
#include "server/audit/chain.h"
#include "core/base/backoff.h"
#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/fetch/fetch.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>

#define NETS_MAX 32u
#define URL_MAX 2000u
#define ANSWER_MAX (64 * KIB)
#define BACKOFF_MAX_NS (60 * NS_PER_S)

struct webhook_delivery {
    struct webhook_delivery *next;
    char id[ID_SIZE];
    char *body;
    size_t len;
};

struct webhook {
    struct ev *ev;
    struct fetch *fetch;
    char *url, *secret;
    struct ip_prefix nets[NETS_MAX];
    size_t nnets;
    struct backoff backoff;
    uint64_t deadline_ns;
    unsigned tries;

    struct webhook_delivery *first, **last;
    struct fetch_call *call;
    struct ev_defer next;
    struct ev_timer timer; /* deadline of a try, or delay before the next try */
    unsigned tries_made;
    int status;
    size_t answer_bytes;
    bool address_refused; /* the connection was refused by webhook_may_connect */
    struct webhook_stats stats;
};

void webhook_signature(const char *secret, uint64_t timestamp, const char *body, size_t len, char ret[65])
{
    auto_buf text = { 0 };
    uint8_t mac[32];
    unsigned n = sizeof(mac);

    buf_addf(&text, "%" PRIu64 ".", timestamp);
    buf_add(&text, body, len);
    if (!HMAC(EVP_sha256(), secret, (int)strlen(secret), (const uint8_t *)text.data, text.len, mac, &n) ||
        n != sizeof(mac))
        abort();
    chain_hex(mac, sizeof(mac), ret);
}

/* --- settings --- */

static int webhook_check_url(struct webhook *w, struct err *err)
{
    const char *p = w->url;
    struct sockaddr_storage addr;

    if (strlen(w->url) > URL_MAX || strpbrk(w->url, " \t\r\n\\"))
        return err_set(err, ERR_INVALID, "not a valid URL");
    if (!str_eat(&p, "https://") && !str_eat(&p, "http://"))
        return err_set(err, ERR_INVALID, "must begin with http:// or https://");
    size_t n = strcspn(p, "/?#");
    if (memchr(p, '@', n))
        return err_set(err, ERR_INVALID, "must not contain a user name or password; deliveries are signed instead");
    auto_free char *host = str_dup_n(p, n);
    char *colon = strrchr(host, ':');
    if (colon && !strchr(colon, ']'))
        *colon = '\0';
    if (!*host)
        return err_set(err, ERR_INVALID, "the URL has no host");
    int literal = address_literal(host, &addr, err);
    if (literal < 0)
        return err_wrap(err, "host");
    if (literal && !address_is_allowed((struct sockaddr *)&addr, w->nets, w->nnets))
        return err_set(err, ERR_DENIED,
                       "%.60s is not a public address; add it to security.webhookAllow if it is correct", host);
    return 0;
}

int webhook_new(struct ev *ev, const struct webhook_settings *set, struct webhook **ret, struct err *err)
{
    auto_(webhook) w = mem_new(struct webhook);

    w->ev = ev;
    w->last = &w->first;
    w->url = str_dup(set->url);
    w->secret = str_dup(set->secret);
    w->backoff = (struct backoff){ .min_ns = set->retry_ns ? set->retry_ns : NS_PER_S, .max_ns = BACKOFF_MAX_NS };
    w->deadline_ns = set->deadline_ns ? set->deadline_ns : 15 * NS_PER_S;
    w->tries = set->tries ? set->tries : 6;
    for (const char *const *a = set->allow; a && *a; a++) {
        if (w->nnets == NETS_MAX)
            return err_set(err, ERR_INVALID, "at most %u networks can be allowed", NETS_MAX);
        if (address_net_parse(*a, &w->nets[w->nnets++], err) < 0)
            return -1;
    }
    if (webhook_check_url(w, err) < 0 || fetch_new(ev, &w->fetch, err) < 0)
        return -1;
    *ret = take_ptr(&w);
    return 0;
}

static void webhook_drop_first(struct webhook *w)
{
    struct webhook_delivery *d = w->first;

    w->first = d->next;
    if (!w->first)
        w->last = &w->first;
    free(d->body);
    free(d);
    w->stats.waiting--;
    w->tries_made = 0;
    backoff_reset(&w->backoff);
}

void webhook_free(struct webhook *w)
{
    if (!w)
        return;
    fetch_free(w->fetch);
    ev_defer_clear(w->ev, &w->next);
    ev_timer_clear(w->ev, &w->timer);
    while (w->first)
        webhook_drop_first(w);
    if (w->secret)
        explicit_bzero(w->secret, strlen(w->secret));
    free(w->secret);
    free(w->url);
    free(w);
}

void webhook_stats(const struct webhook *w, struct webhook_stats *ret)
{
    *ret = w->stats;
}

/* --- one try --- */

static void webhook_try_first(void *arg);

/* The receiver rejects the event permanently, so a retry would fail too. */
static bool webhook_status_is_final(int status)
{
    return status >= 400 && status < 500 && status != 408 && status != 425 && status != 429;
}

static void webhook_try_finished(struct webhook *w, const char *why)
{
    bool good = w->status >= 200 && w->status < 300;

    w->call = NULL;
    ev_timer_clear(w->ev, &w->timer);
    w->tries_made++;
    if (good) {
        w->stats.delivered++;
        webhook_drop_first(w);
    } else {
        w->stats.failed++;
        if (w->tries_made >= w->tries || webhook_status_is_final(w->status) || w->address_refused) {
            log_warn("the webhook did not accept an event: %s%.0d", why, w->status);
            w->stats.dropped++;
            webhook_drop_first(w);
        }
    }
    if (w->first && w->tries_made == 0)
        ev_defer(w->ev, &w->next, webhook_try_first, w);
    else if (w->first)
        ev_timer_set(w->ev, &w->timer, ev_now(w->ev) + backoff_next(&w->backoff), webhook_try_first, w);
}

static void webhook_on_head(void *arg, int status)
{
    struct webhook *w = arg;

    w->status = status;
}

static void webhook_abort_try(struct webhook *w, const char *why)
{
    struct fetch_call *c = take_ptr(&w->call);

    fetch_cancel(c);
    webhook_try_finished(w, why);
}

static void webhook_on_data(void *arg, const void *data UNUSED, size_t len)
{
    struct webhook *w = arg;

    w->answer_bytes += len;
    if (w->answer_bytes > ANSWER_MAX && w->call)
        webhook_abort_try(w, "its response is too long, status ");
}

static void webhook_on_fetch_done(void *arg, const struct err *err)
{
    struct webhook *w = arg;

    if (err)
        w->status = 0;
    webhook_try_finished(w, w->address_refused
                                ? "its address is not public; add it to security.webhookAllow if it is correct"
                            : err ? err->msg
                                  : "status ");
}

static void webhook_on_deadline(void *arg)
{
    struct webhook *w = arg;

    w->status = 0;
    webhook_abort_try(w, "no response in time");
}

static bool webhook_may_connect(void *arg, const struct sockaddr *addr)
{
    struct webhook *w = arg;
    bool yes = address_is_allowed(addr, w->nets, w->nnets);

    w->address_refused |= !yes;
    return yes;
}

static void webhook_try_first(void *arg)
{
    static const struct fetch_ops ops = { .on_head = webhook_on_head,
                                          .on_data = webhook_on_data,
                                          .on_done = webhook_on_fetch_done };
    struct webhook *w = arg;
    struct webhook_delivery *d = w->first;
    uint64_t now = clock_real_ns() / NS_PER_S;
    char hex[65], id[64], stamp[64], signature[96];
    struct err err = { 0 };

    webhook_signature(w->secret, now, d->body, d->len, hex);
    snprintf(id, sizeof(id), "Cove-Delivery: %s", d->id);
    snprintf(stamp, sizeof(stamp), "Cove-Timestamp: %" PRIu64, now);
    snprintf(signature, sizeof(signature), "Cove-Signature: v1=%s", hex);
    struct fetch_spec spec = { .method = "POST",
                               .url = w->url,
                               .headers = (const char *const[]){ "Content-Type: application/json", id, stamp, signature,
                                                                 NULL },
                               .body = d->body,
                               .body_len = d->len,
                               .connect_ms = 5000,
                               .silence_ms = 10000,
                               .may_connect = webhook_may_connect };
    w->status = 0;
    w->answer_bytes = 0;
    w->address_refused = false;
    ev_timer_set(w->ev, &w->timer, ev_now(w->ev) + w->deadline_ns, webhook_on_deadline, w);
    if (fetch_start(w->fetch, &spec, &ops, w, &w->call, &err) < 0)
        webhook_try_finished(w, err.msg);
}

void webhook_send(struct webhook *w, const char *json, size_t len)
{
    struct webhook_delivery *d = mem_new(struct webhook_delivery);

    if (w->stats.waiting >= WEBHOOK_QUEUE_MAX) {
        /* The first delivery is in progress and stays; the second oldest is dropped. */
        struct webhook_delivery *old = w->first->next;

        w->first->next = old->next;
        if (!old->next)
            w->last = &w->first->next;
        free(old->body);
        free(old);
        w->stats.waiting--;
        w->stats.dropped++;
    }
    id_new("wh", d->id);
    d->body = str_dup_n(json, len);
    d->len = len;
    *w->last = d;
    w->last = &d->next;
    w->stats.waiting++;
    if (w->first == d)
        ev_defer(w->ev, &w->next, webhook_try_first, w);
}
