#include "host/egress/transparent.h"

#include "core/base/str.h"
#include "host/egress/http_front.h"
#include "host/egress/last_words.h"
#include "host/egress/tunnel.h"

#include <netinet/in.h>

static void transparent_refuse(struct egress_conn *c, const char *reason, const char *fix)
{
    char subject[EGRESS_CONN_SUBJECT];
    struct http_refusal r = {
        .status = 403, .code = "egress_denied", .reason = reason, .fix = fix, .subject = subject
    };

    (void)egress_conn_subject(c, subject);
    egress_conn_count_refusal(c, reason);
    last_words_refuse_any(c, TLS_ALERT_ACCESS_DENIED, &r);
}

static void transparent_explain(struct egress_conn *c, struct egress_decision d)
{
    struct egress_target t = { .host = c->host, .address = c->address, .port = c->port };
    auto_buf reason = { 0 };
    auto_buf fix = { 0 };

    egress_rules_explain(c->sandbox->rules, &t, d, &reason, &fix);
    transparent_refuse(c, reason.data, fix.len ? fix.data : "");
}

static void transparent_to_name(struct egress_conn *c, const char *host, const struct ip_address *address,
                                uint16_t port)
{
    struct egress_secret *secret = *host ? egress_sandbox_find_secret(c->sandbox, host) : NULL;

    egress_conn_set_target(c, host, address, port);
    struct egress_decision d = egress_conn_decide(c, NULL, NULL);
    if (secret && port == 80)
        http_front_start(c, HTTP_FRONT_BOUND, host);
    else if (secret)
        transparent_refuse(c, "the name of a secret works with http:// on port 80 only",
                           "use http:// in place of https://");
    else if (d.verdict == EGRESS_REFUSED)
        transparent_explain(c, d);
    else if (!egress_conn_has_bytes_left(c))
        transparent_refuse(c, EGRESS_CONN_BYTES_REASON, "");
    else if (d.verdict == EGRESS_NEEDS_REQUEST || (port == 80 && *host))
        http_front_start(c, HTTP_FRONT_BOUND, host);
    else
        tunnel_start(c, false, NULL, 0);
}

void transparent_start(struct egress_conn *c)
{
    struct sockaddr_in sa = { 0 }; /* the listener is an IPv4 socket */
    socklen_t len = sizeof(sa);
    struct ip_address address;

    if (getsockname(c->fd, (struct sockaddr *)&sa, &len) < 0 || sa.sin_family != AF_INET ||
        !host_address_from((const struct sockaddr *)&sa, &address)) {
        egress_conn_abort(c);
        return;
    }
    uint32_t number = ntohl(sa.sin_addr.s_addr);
    const char *host = invented_names_find(&c->sandbox->names, number);
    bool is_invented = number >= EGRESS_ADDRESS_FIRST - 2 && number <= EGRESS_ADDRESS_LAST + 1;

    /* An address that no name has, or the listener's own: there is nothing to decide about. */
    if (address.bytes[0] == 127 || (is_invented && !host))
        egress_conn_abort(c);
    else
        transparent_to_name(c, host ? host : "", &address, ntohs(sa.sin_port));
}
