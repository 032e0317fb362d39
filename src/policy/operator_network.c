/* Denials of the operator stand before all other rules, because the first rule that matches
 * decides. A secret is a way to a host that no rule describes, so it is checked separately. */
#include "policy/operator_network.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/closed_ranges.h"
#include "policy/egress_rules.h"

static int operator_network_check_secret(const struct egress_rules *denials, const struct egress_secret_rule *s,
                                         const char *where, const char *operator, struct err * err)
{
    struct egress_target t = { .host = s->host, .port = s->port };

    if (egress_rules_decide(denials, &t, "GET", "/").rule < 0)
        return 0;
    return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "%s: secret %s: %.80s denies the host %.80s", where,
                   s->name, operator, s->host);
}

int operator_network_check(const struct operator_limits *f, const struct network_policy *n, const char *where,
                           const char *operator, struct err * err)
{
    auto_(egress_rules) rules = NULL;
    auto_(egress_rules) denials = NULL;

    if (!f || n->mode == NETWORK_NONE)
        return 0;
    if (f->forbids_network)
        return err_set(err, ERR_POLICY_OPERATOR_LIMIT, "%s: %.80s forbids a network", where, operator);
    if (!f->network_denials || !n->rules)
        return 0;
    if (egress_rules_parse(n->rules, strlen(n->rules), &rules, err) < 0 ||
        egress_rules_parse(f->network_denials, strlen(f->network_denials), &denials, err) < 0)
        return -1;
    for (size_t i = 0; i < rules->nsecrets; i++)
        if (operator_network_check_secret(denials, &rules->secrets[i], where, operator, err) < 0)
            return -1;
    return 0;
}

static struct ip_address operator_network_last_address(const struct ip_prefix *p)
{
    struct ip_address last = p->address;
    unsigned bits = p->address.family == 4 ? 32 : 128;

    for (unsigned i = p->bits; i < bits; i++)
        last.bytes[i / 8] |= (uint8_t)(0x80u >> i % 8);
    return last;
}

/* The name of the closed range that holds the whole prefix, or NULL. */
static const char *operator_network_closed_range(const struct ip_prefix *p, const struct ip_prefix *open, size_t nopen)
{
    struct ip_address last = operator_network_last_address(p);
    const char *first_range = closed_range_of(&p->address, open, nopen);
    const char *last_range = closed_range_of(&last, open, nopen);

    return first_range && last_range && str_eq(first_range, last_range) ? first_range : NULL;
}

static int operator_network_check_rule(const struct egress_rule *r, const struct ip_prefix *open, size_t nopen,
                                       const char *where, const char *setting, struct err *err)
{
    static const struct ip_prefix loopback = { { 4, { 127, 0, 0, 1 } }, 32 };
    bool is_local = !r->is_prefix && (str_eq(r->host, "localhost") || str_ends(r->host, ".localhost"));
    const struct ip_prefix *prefix = r->is_prefix ? &r->prefix : &loopback;
    const char *range = operator_network_closed_range(prefix, open, nopen);
    char text[IP_ADDRESS_TEXT];

    if (!range || (!r->is_prefix && !is_local))
        return 0;
    if (is_local)
        return err_set(err, ERR_EGRESS_RULE,
                       "%s: allow %.80s: inside it is the sandbox itself, which needs no rule; only the operator can "
                       "open the loopback of this host, with %s",
                       where, r->host, setting);
    return err_set(err, ERR_EGRESS_RULE,
                   "%s: allow %s/%u: the address range is closed (%s); only the operator can open it, with %s", where,
                   ip_address_format(&prefix->address, text), prefix->bits, range, setting);
}

int operator_network_check_addresses(const struct network_policy *n, const struct ip_prefix *open, size_t nopen,
                                     const char *where, const char *setting, struct err *err)
{
    auto_(egress_rules) rules = NULL;

    if (!n->rules || !*n->rules)
        return 0;
    if (egress_rules_parse(n->rules, strlen(n->rules), &rules, err) < 0)
        return err_wrap(err, "%s", where);
    for (size_t i = 0; i < rules->nrules; i++)
        if (rules->rules[i].action == EGRESS_ALLOW &&
            operator_network_check_rule(&rules->rules[i], open, nopen, where, setting, err) < 0)
            return -1;
    return 0;
}

/* Both texts, in canonical form, or an error if there are too many rules. The caller frees. */
static int operator_network_join(const char *first, const char *second, char **ret, struct err *err)
{
    auto_free char *both = str_printf("%s\n%s", first ? first : "", second ? second : "");
    auto_(egress_rules) rules = NULL;
    auto_buf text = { 0 };

    if (egress_rules_parse(both, strlen(both), &rules, err) < 0)
        return -1;
    egress_rules_write(rules, &text);
    *ret = str_dup(text.data ? text.data : "");
    return 0;
}

int operator_network_narrow(const struct operator_limits *f, struct network_policy *n, struct err *err)
{
    char *rules;

    if (!f || !f->network_denials || n->mode == NETWORK_NONE)
        return 0;
    size_t len = strlen(f->network_denials);
    if (n->rules && strncmp(n->rules, f->network_denials, len) == 0 && (!n->rules[len] || n->rules[len] == '\n'))
        return 0;
    if (operator_network_join(f->network_denials, n->rules, &rules, err) < 0)
        return err_wrap(err, "with the denials of %.80s", f->file);
    network_policy_done(&(struct network_policy){ .rules = n->rules });
    n->rules = rules;
    return 0;
}

int operator_network_deny(struct operator_limits *f, const char *lines, struct err *err)
{
    char *text;

    if (operator_network_join(f->network_denials, lines, &text, err) < 0)
        return -1;
    free(f->network_denials);
    f->network_denials = text;
    return 0;
}

char *operator_network_open_ranges(const struct operator_limits *f)
{
    char address[IP_ADDRESS_TEXT];
    struct buf text = { 0 };

    buf_adds(&text, "");
    for (size_t i = 0; i < f->nopen_ranges; i++)
        buf_addf(&text, "%s%s/%u", i ? "," : "", ip_address_format(&f->open_ranges[i].address, address),
                 f->open_ranges[i].bits);
    return text.data;
}

bool operator_network_open(struct operator_limits *f, const struct ip_prefix *range)
{
    if (f->nopen_ranges == OPERATOR_OPEN_RANGES_MAX)
        return false;
    f->open_ranges = mem_resize(f->open_ranges, f->nopen_ranges + 1, sizeof(*range));
    f->open_ranges[f->nopen_ranges++] = *range;
    return true;
}
