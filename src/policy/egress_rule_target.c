#include "policy/egress_rule_target.h"

#include "core/base/str.h"

#include <strings.h>

static const struct {
    const char *name, *summary;
} egress_preset_table[] = {
#define PRESET(name, summary) { #name, summary },
#define PRESET_HOST(name, host, port)
#include "policy/egress_presets.def"
#undef PRESET
#undef PRESET_HOST
};

static const struct {
    const char *preset, *host;
    uint16_t port;
} egress_preset_hosts[] = {
#define PRESET(name, summary)
#define PRESET_HOST(name, host, port) { #name, host, port },
#include "policy/egress_presets.def"
#undef PRESET
#undef PRESET_HOST
};

bool egress_rule_target_of_preset(const char *preset, size_t i, struct egress_rule *ret)
{
    for (size_t row = 0; row < ARRAY_LEN(egress_preset_hosts); row++) {
        if (!str_eq(egress_preset_hosts[row].preset, preset) || i-- > 0)
            continue;
        *ret = (struct egress_rule){ .nports = 1 };
        ret->ports[0] = (struct egress_ports){ egress_preset_hosts[row].port, egress_preset_hosts[row].port };
        str_copy(ret->host, sizeof(ret->host), egress_preset_hosts[row].host);
        str_copy(ret->preset, sizeof(ret->preset), preset);
        return true;
    }
    return false;
}

/* --- ports --- */

bool egress_rule_target_eat_port(const char **p, const char *end, uint16_t *ret)
{
    unsigned port = 0;
    const char *at = *p;

    while (at < end && *at >= '0' && *at <= '9' && port <= 65535)
        port = port * 10 + (unsigned)(*at++ - '0');
    if (port == 0 || port > 65535 || **p == '0')
        return false;
    *p = at;
    *ret = (uint16_t)port;
    return true;
}

bool egress_rule_target_has_port(const struct egress_rule *r, uint16_t port)
{
    for (uint32_t i = 0; i < r->nports; i++)
        if (r->ports[i].first <= port && port <= r->ports[i].last)
            return true;
    return r->nports == 0 && (port == 80 || port == 443);
}

/* Sorted, without overlaps, and empty for the default, so that equal sets of ports are written in
 * the same way. */
static void egress_rule_target_normalize_ports(struct egress_rule *r)
{
    struct egress_ports *p = r->ports;
    uint32_t n = 0;

    for (uint32_t i = 1; i < r->nports; i++)
        for (uint32_t k = i; k > 0 && p[k].first < p[k - 1].first; k--) {
            struct egress_ports swapped = p[k];

            p[k] = p[k - 1];
            p[k - 1] = swapped;
        }
    for (uint32_t i = 0; i < r->nports; i++)
        if (n > 0 && p[i].first <= (uint32_t)p[n - 1].last + 1)
            p[n - 1].last = p[i].last > p[n - 1].last ? p[i].last : p[n - 1].last;
        else
            p[n++] = p[i];
    r->nports = n;
    if (n == 2 && p[0].first == 80 && p[0].last == 80 && p[1].first == 443 && p[1].last == 443)
        r->nports = 0;
    memset(p + r->nports, 0, (EGRESS_RULE_PORTS_MAX - r->nports) * sizeof(*p));
}

static int egress_rule_target_parse_ports(const char *text, size_t len, struct egress_rule *r, struct err *err)
{
    const char *p = text, *end = text + len;

    for (bool all = len == 1 && *p == '*';; p++) {
        struct egress_ports range = { 1, 65535 };

        if (all)
            p++;
        else if (!egress_rule_target_eat_port(&p, end, &range.first))
            break;
        else if (p == end || *p != '-')
            range.last = range.first;
        else if (p++, !egress_rule_target_eat_port(&p, end, &range.last) || range.last < range.first)
            break;
        if (r->nports == EGRESS_RULE_PORTS_MAX)
            return err_set(err, ERR_EGRESS_RULE, "ports '%.*s': a rule has at most %d ranges of ports", (int)len, text,
                           EGRESS_RULE_PORTS_MAX);
        r->ports[r->nports++] = range;
        if (p == end) {
            egress_rule_target_normalize_ports(r);
            return 0;
        }
        if (*p != ',')
            break;
    }
    return err_set(err, ERR_EGRESS_RULE,
                   "ports '%.*s': expected '*', or numbers from 1 to 65535 like 443 or 80,443,8000-8100", (int)len,
                   text);
}

/* --- the whole target --- */

static int egress_rule_target_parse_preset(const char *name, size_t len, struct egress_rule *r, struct err *err)
{
    auto_buf known = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(egress_preset_table); i++) {
        const char *preset = egress_preset_table[i].name;

        if (strlen(preset) == len && strncasecmp(preset, name, len) == 0) {
            str_copy(r->preset, sizeof(r->preset), preset);
            return 0;
        }
        buf_addf(&known, "%s%s", i ? ", " : "", preset);
    }
    return err_set(err, ERR_EGRESS_RULE, "preset '%.*s' does not exist; presets are %s", (int)len, name, known.data);
}

static int egress_rule_target_parse_host(const char *text, size_t len, struct egress_rule *r, struct err *err)
{
    const char *slash = memchr(text, '/', len);

    if (ip_prefix_parse(text, len, &r->prefix)) {
        r->is_prefix = true;
        return 0;
    }
    if (slash && text[0] >= '0' && text[0] <= '9')
        return err_set(err, ERR_EGRESS_RULE,
                       "'%.*s' is not a prefix: it needs four numbers, a length like /24, and no bits set after it",
                       (int)len, text);
    if (slash)
        return err_set(err, ERR_EGRESS_RULE, "'%.*s': a target has no path; give only '%.*s'", (int)len, text,
                       (int)(slash - text), text);
    if (memchr(text, ',', len))
        return err_set(err, ERR_EGRESS_RULE, "'%.*s': a rule has one target; write a rule for each", (int)len, text);
    if (hostname_pattern_normalize(text, len, r->host, err) < 0) {
        if (err)
            err->id = ERR_EGRESS_RULE;
        return -1;
    }
    if (str_eq(r->host, &EGRESS_SECRET_SUFFIX[1]) || str_ends(r->host, EGRESS_SECRET_SUFFIX))
        return err_set(err, ERR_EGRESS_RULE, "'%.100s': names below %s belong to secrets; bind a secret instead",
                       r->host, &EGRESS_SECRET_SUFFIX[1]);
    return 0;
}

static int egress_rule_target_parse_v6(const char *text, size_t len, struct egress_rule *r, struct err *err)
{
    const char *close = memchr(text, ']', len), *end = text + len;

    if (!close || (close + 1 < end && close[1] != ':') ||
        !ip_prefix_parse(text + 1, (size_t)(close - text) - 1, &r->prefix) || r->prefix.address.family != 6)
        return err_set(err, ERR_EGRESS_RULE,
                       "'%.*s' is not an IPv6 address or prefix; write it like [2001:db8::1]:443 or "
                       "[2001:db8::/32]:443",
                       (int)len, text);
    r->is_prefix = true;
    return close + 1 == end ? 0 : egress_rule_target_parse_ports(close + 2, (size_t)(end - close) - 2, r, err);
}

int egress_rule_target_parse(const char *text, size_t len, struct egress_rule *r, struct err *err)
{
    if (len == 0)
        return err_set(err, ERR_EGRESS_RULE, "the target is empty; give a name like pypi.org");
    if (len > HOSTNAME_MAX + 80)
        return err_set(err, ERR_EGRESS_RULE, "the target has more than %d characters", HOSTNAME_MAX + 80);
    /* "preset:80" is a host of this name. */
    if (len > 7 && strncasecmp(text, "preset:", 7) == 0 && text[7] != '*' && (text[7] < '0' || text[7] > '9'))
        return egress_rule_target_parse_preset(text + 7, len - 7, r, err);
    if (text[0] == '[')
        return egress_rule_target_parse_v6(text, len, r, err);

    const char *colon = memchr(text, ':', len), *end = text + len;
    if (colon && end - colon >= 3 && colon[1] == '/' && colon[2] == '/') {
        const char *host = colon + 3, *slash = memchr(host, '/', (size_t)(end - host));

        return err_set(err, ERR_EGRESS_RULE, "'%.*s' is a URL; give only '%.*s'", (int)len, text,
                       (int)((slash ? slash : end) - host), host);
    }
    if (colon && memchr(colon + 1, ':', (size_t)(end - colon) - 1))
        return err_set(err, ERR_EGRESS_RULE, "'%.*s': write an IPv6 address in brackets, like [2001:db8::1]:443",
                       (int)len, text);
    if (egress_rule_target_parse_host(text, colon ? (size_t)(colon - text) : len, r, err) < 0)
        return -1;
    return colon ? egress_rule_target_parse_ports(colon + 1, (size_t)(end - colon) - 1, r, err) : 0;
}

void egress_rule_target_write(const struct egress_rule *r, struct buf *out)
{
    char address[IP_ADDRESS_TEXT];

    if (r->preset[0]) {
        buf_addf(out, "preset:%s", r->preset);
        return;
    }
    if (r->is_prefix) {
        bool six = r->prefix.address.family == 6;

        buf_addf(out, "%s%s", six ? "[" : "", ip_address_format(&r->prefix.address, address));
        if (r->prefix.bits != (six ? 128 : 32))
            buf_addf(out, "/%u", r->prefix.bits);
        buf_adds(out, six ? "]" : "");
    } else
        buf_adds(out, r->host);
    if (r->nports == 1 && r->ports[0].first == 1 && r->ports[0].last == 65535) {
        buf_adds(out, ":*");
        return;
    }
    for (uint32_t i = 0; i < r->nports; i++) {
        buf_addf(out, "%c%u", i ? ',' : ':', r->ports[i].first);
        if (r->ports[i].last != r->ports[i].first)
            buf_addf(out, "-%u", r->ports[i].last);
    }
}
