/* Decisions over parsed rules. A target is a name, or an address that the client gave literally;
 * patterns match only names and prefixes only addresses, so no look-up is needed to decide. */
#include "policy/egress_rules.h"

#include "core/base/str.h"
#include "policy/closed_ranges.h"
#include "policy/egress_request_match.h"
#include "policy/egress_rule_target.h"

#define PORT_WORDS (65536 / 64)

static bool egress_rule_matches_target(const struct egress_rule *r, const struct egress_target *t)
{
    if (!egress_rule_target_has_port(r, t->port))
        return false;
    if (!t->host[0])
        return r->is_prefix && ip_prefix_contains(&r->prefix, &t->address);
    return !r->is_prefix && hostname_matches(r->host, t->host);
}

static enum egress_verdict egress_verdict_of(enum egress_action a)
{
    return a == EGRESS_ALLOW ? EGRESS_ALLOWED : EGRESS_REFUSED;
}

static bool egress_host_is_secret(const char *host)
{
    return str_ends(host, EGRESS_SECRET_SUFFIX) || str_eq(host, &EGRESS_SECRET_SUFFIX[1]);
}

/* NAME.secret.cove: the proxy answers itself, in clear, so port 80 only. */
static enum egress_verdict egress_rules_decide_secret(const struct egress_rules *r, const struct egress_target *t,
                                                      const char *method, const char *path)
{
    const struct egress_secret_rule *s = egress_rules_find_secret(r, t->host);

    if (!s || t->port != 80)
        return EGRESS_REFUSED;
    if (egress_request_match_is_empty(&s->request))
        return EGRESS_ALLOWED;
    if (!method)
        return EGRESS_NEEDS_REQUEST;
    return egress_request_matches(&s->request, method, path) ? EGRESS_ALLOWED : EGRESS_REFUSED;
}

/* Without a request, rules that depend on one leave the verdict open only if they disagree with
 * the first rule after them that matches in any case. */
static struct egress_decision egress_rules_decide_target(const struct egress_rules *r, const struct egress_target *t)
{
    bool open[2] = { false, false }; /* by action: a rule that depends on the request has it */
    int first_open = -1;
    struct egress_decision d = { EGRESS_REFUSED, -1 };

    for (size_t i = 0; i < r->nrules; i++) {
        if (!egress_rule_matches_target(&r->rules[i], t))
            continue;
        if (egress_request_match_is_empty(&r->rules[i].request)) {
            d = (struct egress_decision){ egress_verdict_of(r->rules[i].action), (int)i };
            break;
        }
        open[r->rules[i].action] = true;
        first_open = first_open < 0 ? (int)i : first_open;
    }
    if (open[d.verdict == EGRESS_ALLOWED ? EGRESS_DENY : EGRESS_ALLOW])
        return (struct egress_decision){ EGRESS_NEEDS_REQUEST, first_open };
    return d;
}

struct egress_decision egress_rules_decide(const struct egress_rules *r, const struct egress_target *t,
                                           const char *method, const char *path)
{
    if (egress_host_is_secret(t->host))
        return (struct egress_decision){ egress_rules_decide_secret(r, t, method, path), -1 };
    if (!method)
        return egress_rules_decide_target(r, t);
    for (size_t i = 0; i < r->nrules; i++)
        if (egress_rule_matches_target(&r->rules[i], t) && egress_request_matches(&r->rules[i].request, method, path))
            return (struct egress_decision){ egress_verdict_of(r->rules[i].action), (int)i };
    return (struct egress_decision){ EGRESS_REFUSED, -1 };
}

int egress_rules_deny_of_address(const struct egress_rules *r, const struct egress_target *t,
                                 const struct ip_address *a)
{
    for (size_t i = 0; i < r->nrules; i++) {
        const struct egress_rule *row = &r->rules[i];

        if (row->action == EGRESS_DENY && row->is_prefix && egress_rule_target_has_port(row, t->port) &&
            ip_prefix_contains(&row->prefix, a))
            return (int)i;
        if (row->action == EGRESS_ALLOW && egress_rule_matches_target(row, t) &&
            egress_request_match_is_empty(&row->request))
            break;
    }
    return -1;
}

/* The ports of a range in word `word` of a set. Rules come from tenants and are asked for every
 * name, so sets are not walked port by port. */
static uint64_t egress_ports_mask(const struct egress_ports *p, uint32_t word)
{
    uint64_t mask = UINT64_MAX;

    if (word == p->first / 64)
        mask &= UINT64_MAX << p->first % 64;
    if (word == p->last / 64)
        mask &= UINT64_MAX >> (63 - p->last % 64);
    return mask;
}

static const struct egress_ports *egress_rule_ports(const struct egress_rule *r, uint32_t *ret_n)
{
    static const struct egress_ports usual[] = { { 80, 80 }, { 443, 443 } };

    *ret_n = r->nports ? r->nports : ARRAY_LEN(usual);
    return r->nports ? r->ports : usual;
}

static void egress_ports_deny(uint64_t *denied, const struct egress_rule *r)
{
    uint32_t n;
    const struct egress_ports *p = egress_rule_ports(r, &n);

    for (const struct egress_ports *end = p + n; p < end; p++)
        for (uint32_t word = p->first / 64; word <= p->last / 64; word++)
            denied[word] |= egress_ports_mask(p, word);
}

/* Whether the rule has a port that no earlier rule denied. */
static bool egress_ports_any_left(const uint64_t *denied, const struct egress_rule *r)
{
    uint32_t n;
    const struct egress_ports *p = egress_rule_ports(r, &n);

    for (const struct egress_ports *end = p + n; p < end; p++)
        for (uint32_t word = p->first / 64; word <= p->last / 64; word++)
            if (egress_ports_mask(p, word) & ~denied[word])
                return true;
    return false;
}

bool egress_rules_may_resolve(const struct egress_rules *r, const char *host)
{
    uint64_t denied[PORT_WORDS];
    bool any_denied = false;

    if (egress_host_is_secret(host))
        return egress_rules_find_secret(r, host) != NULL;
    for (size_t i = 0; i < r->nrules; i++) {
        const struct egress_rule *row = &r->rules[i];

        if (row->is_prefix || !hostname_matches(row->host, host))
            continue;
        if (row->action == EGRESS_ALLOW && (!any_denied || egress_ports_any_left(denied, row)))
            return true;
        if (row->action == EGRESS_ALLOW || !egress_request_match_is_empty(&row->request))
            continue;
        if (!any_denied)
            memset(denied, 0, sizeof(denied));
        any_denied = true;
        egress_ports_deny(denied, row);
    }
    return false;
}

const struct egress_secret_rule *egress_rules_find_secret(const struct egress_rules *r, const char *host)
{
    for (size_t i = 0; i < r->nsecrets; i++) {
        size_t n = strlen(r->secrets[i].name);

        if (strncmp(host, r->secrets[i].name, n) == 0 && str_eq(host + n, EGRESS_SECRET_SUFFIX))
            return &r->secrets[i];
    }
    return NULL;
}

/* --- explanations --- */

static void egress_target_write(const struct egress_target *t, struct buf *out)
{
    char address[IP_ADDRESS_TEXT];

    if (t->host[0])
        buf_addf(out, "%s:%u", t->host, t->port);
    else if (t->address.family == 6)
        buf_addf(out, "[%s]:%u", ip_address_format(&t->address, address), t->port);
    else
        buf_addf(out, "%s:%u", ip_address_format(&t->address, address), t->port);
}

static void egress_rules_explain_secret(const struct egress_rules *r, const struct egress_target *t, struct buf *reason,
                                        struct buf *fix)
{
    const struct egress_secret_rule *s = egress_rules_find_secret(r, t->host);
    int n = str_ends(t->host, EGRESS_SECRET_SUFFIX) ? (int)(strlen(t->host) - strlen(EGRESS_SECRET_SUFFIX)) : 0;

    if (n == 0)
        buf_addf(reason, "%s has the names of secrets below it", t->host);
    else if (!s) {
        buf_addf(reason, "no secret is bound to the name %.*s", n, t->host);
        buf_addf(fix, "secret %.*s HOST", n, t->host);
    } else if (t->port != 80) {
        buf_addf(reason, "%s is served on port 80 only", t->host);
        buf_addf(fix, "use http://%s/", t->host);
    } else
        buf_addf(reason, "secret %s does not allow this method and path", s->name);
}

static void egress_rules_explain_no_match(const struct egress_rules *r, const struct egress_target *t,
                                          struct buf *reason)
{
    bool by_request = false, by_port = false, apex = false;

    for (size_t i = 0; i < r->nrules; i++) {
        const struct egress_rule *row = &r->rules[i];

        if (row->action == EGRESS_DENY)
            continue;
        by_request |= egress_rule_matches_target(row, t);
        by_port |= !row->is_prefix && t->host[0] && hostname_matches(row->host, t->host);
        apex |= !row->is_prefix && str_starts(row->host, "*.") && str_eq(row->host + 2, t->host);
    }
    buf_adds(reason, by_request ? "no rule allows this method and path on " : "no rule allows ");
    egress_target_write(t, reason);
    if (!by_request && by_port)
        buf_adds(reason, ", only other ports");
    else if (apex)
        buf_addf(reason, " (*.%s does not include it)", t->host);
}

void egress_rules_explain(const struct egress_rules *r, const struct egress_target *t, struct egress_decision d,
                          struct buf *reason, struct buf *fix)
{
    if (egress_host_is_secret(t->host)) {
        egress_rules_explain_secret(r, t, reason, fix);
        return;
    }
    if (d.rule < 0)
        egress_rules_explain_no_match(r, t, reason);
    else {
        buf_adds(reason, "denied by a rule: deny ");
        egress_rule_target_write(&r->rules[d.rule], reason);
        egress_request_match_write(&r->rules[d.rule].request, reason);
    }
    const char *range = t->host[0] ? NULL : closed_range_of(&t->address, NULL, 0);
    buf_adds(fix, "allow ");
    egress_target_write(t, fix);
    if (d.rule >= 0)
        buf_adds(fix, " before that rule");
    if (range)
        buf_addf(fix, ", if the operator opened its range (%s)", range);
}
