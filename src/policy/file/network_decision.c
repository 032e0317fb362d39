/* The proxy reads requests in clear with http:// only. Of https:// and other protocols it sees host
 * and port, so method and path of such a URL do not take part in the decision. */
#include "policy/file/network_decision.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/http1/path.h"
#include "policy/closed_ranges.h"

#include <stdio.h>

struct network_url {
    bool is_clear; /* http: the proxy sees method and path */
    uint16_t port;
    char host[HOSTNAME_MAX + 1]; /* as written, without brackets */
    bool has_path;
    struct buf path;     /* decoded */
    struct err path_why; /* why there is none */
};

static int network_url_error(struct err *err, const char *why)
{
    return err_set(err, ERR_INVALID, "url: %s; write https://HOST/PATH, http://HOST/PATH, tcp://HOST:PORT or HOST:PORT",
                   why);
}

static int network_url_read_scheme(const char **at, struct network_url *ret, struct err *err)
{
    const char *colon = strstr(*at, "://");
    static const struct {
        const char *name;
        uint16_t port;
    } schemes[] = { { "http://", 80 }, { "https://", 443 }, { "tcp://", 0 }, { "ws://", 80 }, { "wss://", 443 } };

    ret->port = 443;
    if (!colon)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++)
        if (strncasecmp(*at, schemes[i].name, strlen(schemes[i].name)) == 0) {
            ret->is_clear = schemes[i].port == 80;
            ret->port = schemes[i].port;
            *at += strlen(schemes[i].name);
            return 0;
        }
    return network_url_error(err, "unknown scheme");
}

/* "host", "host:port", "[v6]" or "[v6]:port". */
static int network_url_read_authority(const char *text, size_t len, struct network_url *ret, struct err *err)
{
    auto_free char *whole = str_dup_n(text, len);
    char *host = whole, *end = strchr(whole, ']'), *colon = strrchr(whole, ':');
    uint64_t port;

    if (strchr(whole, '@'))
        return network_url_error(err, "a user name is not allowed");
    if (host[0] == '[') {
        if (!end || (end[1] && end[1] != ':'))
            return network_url_error(err, "the brackets of the address are wrong");
        *end = '\0';
        host++;
        colon = end[1] ? end + 1 : NULL;
    }
    if (colon) {
        *colon = '\0';
        if (!str_to_u64(colon + 1, UINT16_MAX, &port) || port == 0)
            return network_url_error(err, "the port is not a number from 1 to 65535");
        ret->port = (uint16_t)port;
    }
    if (!*host || !str_copy(ret->host, sizeof(ret->host), host))
        return network_url_error(err, "it has no valid host");
    return ret->port ? 0 : network_url_error(err, "the port is missing");
}

static int network_url_read(const char *url, struct network_url *ret, struct err *err)
{
    const char *at = url;

    if (strlen(url) > NETWORK_URL_MAX)
        return network_url_error(err, "it is too long");
    if (network_url_read_scheme(&at, ret, err) < 0)
        return -1;
    size_t len = strcspn(at, "/?#");
    if (network_url_read_authority(at, len, ret, err) < 0)
        return -1;
    struct http1_text path = { at + len, strcspn(at + len, "?#") };
    ret->has_path = http1_path_normalize(path, &ret->path, &ret->path_why) == 0;
    return 0;
}

static bool network_method_is_known(const char *method)
{
    for (size_t i = 0; egress_methods[i]; i++)
        if (str_eq(egress_methods[i], method))
            return true;
    return false;
}

static void network_write_rule(const struct egress_rules *rules, const struct egress_decision *d,
                               struct network_decision *ret)
{
    const struct egress_secret_rule *secret = egress_rules_find_secret(rules, ret->host);
    struct egress_rules one = { 0 };

    if (d->rule >= 0) {
        one = (struct egress_rules){ .rules = &rules->rules[d->rule], .nrules = 1 };
        egress_rules_write(&one, &ret->rule);
    } else if (secret) {
        one = (struct egress_rules){ .secrets = (struct egress_secret_rule *)(uintptr_t)secret, .nsecrets = 1 };
        egress_rules_write(&one, &ret->rule);
    }
}

static void network_decide_target(const struct egress_rules *rules, const struct network_url *u, const char *method,
                                  const struct ip_address *address, struct network_decision *ret)
{
    struct egress_target t = { .host = address ? "" : ret->host, .port = u->port };
    bool seen = u->is_clear && u->has_path;

    if (address)
        t.address = *address;
    struct egress_decision d = egress_rules_decide(rules, &t, seen ? method : NULL, seen ? u->path.data : NULL);
    network_write_rule(rules, &d, ret);
    ret->is_allowed = d.verdict == EGRESS_ALLOWED && !ret->closed_range;
    if (ret->is_allowed)
        return;
    if (ret->closed_range) {
        buf_addf(&ret->reason, "the address is closed (%s), whatever the rules allow", ret->closed_range);
        buf_adds(&ret->fix, "only the operator can open it, with the setting egress.openRanges");
    } else if (d.verdict == EGRESS_NEEDS_REQUEST && u->is_clear) {
        buf_adds(&ret->reason, u->path_why.msg);
        buf_adds(&ret->fix, "request the path in its simplest form");
    } else {
        egress_rules_explain(rules, &t, d, &ret->reason, &ret->fix);
        if (ret->fix.len == 0 && str_ends(ret->host, EGRESS_SECRET_SUFFIX))
            buf_adds(&ret->fix, "change name, methods or path of the secret in network.secrets");
    }
}

static int network_decide_url(const struct network_policy *p, const struct ip_prefix *open, size_t nopen,
                              const struct network_url *u, const char *method, struct network_decision *ret,
                              struct err *err)
{
    auto_(egress_rules) rules = NULL;
    struct ip_address address;
    bool literal = ip_address_parse(u->host, strlen(u->host), &address);

    ret->port = u->port;
    if (literal) {
        (void)str_copy(ret->host, sizeof(ret->host), u->host);
        ret->closed_range = closed_range_of(&address, open, nopen);
    } else if (hostname_normalize(u->host, strlen(u->host), ret->host, err) < 0) {
        return err_wrap(err, "url");
    }
    ret->method = u->is_clear ? method : NULL;
    if (p->mode == NETWORK_NONE) {
        buf_adds(&ret->reason, "the sandbox was created without a network");
        buf_addf(&ret->fix, "create a sandbox with the rule: allow %s%s%s:%u",
                 literal && address.family == 6 ? "[" : "", ret->host, literal && address.family == 6 ? "]" : "",
                 ret->port);
        return 0;
    }
    const char *text = p->rules ? p->rules : "";
    if (egress_rules_parse(text, strlen(text), &rules, err) < 0)
        return -1;
    network_decide_target(rules, u, method, literal ? &address : NULL, ret);
    return 0;
}

int network_decide(const struct network_policy *p, const struct ip_prefix *open, size_t nopen, const char *url,
                   const char *method, struct network_decision *ret, struct err *err)
{
    struct network_url u = { 0 };
    int rc = -1;

    *ret = (struct network_decision){ 0 };
    if (method && !network_method_is_known(method))
        (void)err_set(err, ERR_INVALID, "method: must be a method of HTTP in capitals, such as GET");
    else if (network_url_read(url, &u, err) == 0)
        rc = network_decide_url(p, open, nopen, &u, method ? method : "GET", ret, err);
    if (rc < 0 && err)
        str_strip_control_chars(err->msg); /* of the URL */
    buf_done(&u.path);
    return rc;
}

void network_decision_done(struct network_decision *d)
{
    buf_done(&d->rule);
    buf_done(&d->reason);
    buf_done(&d->fix);
}

void network_decision_write(const struct network_decision *d, const char *url, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "url", url);
    jsonw_kstr(w, "host", d->host);
    jsonw_ku64(w, "port", d->port);
    jsonw_kbool(w, "allowed", d->is_allowed);
    jsonw_kstr_if(w, "method", d->method);
    jsonw_kstr_if(w, "rule", d->rule.data);
    jsonw_kstr_if(w, "closedRange", d->closed_range);
    jsonw_kstr_if(w, "reason", d->reason.data);
    jsonw_kstr_if(w, "fix", d->fix.data);
    jsonw_end_object(w);
}
