/* Items become lines of canonical rules one by one, so that a problem has the line of its item; the
 * whole text is parsed at the end for what concerns all rules. */
#include "policy/file/network_file.h"

#include "core/base/str.h"
#include "policy/egress_rules.h"
#include "policy/file/schema.h"
#include "policy/operator_network.h"

#define METHODS_MAX 16
#define FIX "Write 'network: none', or {egress: [pypi.org, ...]}; docs/policies.md lists all forms."

struct network_file {
    struct problems *problems;
    struct buf rules;
    bool has_short_form, has_rules; /* `allow` or `deny`; `egress` */
    const struct doc *allow, *deny; /* lists of the short form */
};

struct network_item { /* a rule or a secret that is written as a map */
    struct network_file *file;
    const char *allow, *deny, *path;
    const char *methods[METHODS_MAX + 1];
    size_t nmethods;
    struct egress_secret_fields secret;
};

static void network_file_report(struct network_file *f, const struct doc *d, const char *where, const struct err *err)
{
    problems_add(f->problems, ERR_EGRESS_RULE, d->line, d->col, NULL, "%s: %s", where, err->msg);
}

static void network_file_add_rule(struct network_file *f, const struct doc *d, enum egress_action action,
                                  const char *target, const struct network_item *item, const char *where)
{
    struct err err = { 0 };

    if (egress_rules_add_line(&f->rules, action, target, item && item->nmethods ? item->methods : NULL,
                              item ? item->path : NULL, &err) < 0)
        network_file_report(f, d, where, &err);
}

static bool network_file_text(struct network_file *f, const struct doc *d, const char *where, const char **ret)
{
    if (!schema_text(f->problems, d, where))
        return false;
    *ret = d->text;
    return true;
}

static void network_item_read_allow(void *arg, const struct doc *d)
{
    struct network_item *i = arg;

    (void)network_file_text(i->file, d, "network.egress.allow", &i->allow);
}

static void network_item_read_deny(void *arg, const struct doc *d)
{
    struct network_item *i = arg;

    (void)network_file_text(i->file, d, "network.egress.deny", &i->deny);
}

static void network_item_read_path(void *arg, const struct doc *d)
{
    struct network_item *i = arg;

    (void)network_file_text(i->file, d, "network: path", &i->path);
}

static void network_item_read_methods(void *arg, const struct doc *d)
{
    struct network_item *i = arg;

    if (!schema_list(i->file->problems, d, "network: methods"))
        return;
    for (size_t k = 0; k < d->n && i->nmethods < METHODS_MAX; k++)
        if (network_file_text(i->file, &d->items[k], "network: methods", &i->methods[i->nmethods]))
            i->nmethods++;
    if (d->n == 0 || d->n > METHODS_MAX)
        problems_add(i->file->problems, ERR_EGRESS_RULE, d->line, d->col, "Write [GET, HEAD], or omit it.",
                     "network: methods must name at least one method");
}

/* A canonical rule, such as "deny *:22", as answers of the server have it. */
static void network_file_add_line(struct network_file *f, const struct doc *d)
{
    auto_(egress_rules) rules = NULL;
    struct err err = { 0 };

    if (egress_rules_parse(d->text, strlen(d->text), &rules, &err) < 0)
        network_file_report(f, d, "network.egress", &err);
    else if (rules->nsecrets > 0 || strchr(d->text, '\n'))
        problems_add(f->problems, ERR_EGRESS_RULE, d->line, d->col, NULL,
                     "network.egress: must be one rule; secrets belong to network.secrets");
    else
        egress_rules_write(rules, &f->rules);
}

static void network_file_read_item(struct network_file *f, const struct doc *d)
{
    static const struct schema_key keys[] = { { "allow", network_item_read_allow },
                                              { "deny", network_item_read_deny },
                                              { "methods", network_item_read_methods },
                                              { "path", network_item_read_path } };
    struct network_item item = { .file = f };
    size_t before = f->problems->n;

    if (d->kind == DOC_TEXT) {
        if (!schema_text(f->problems, d, "network.egress"))
            return;
        if (strchr(d->text, ' '))
            network_file_add_line(f, d);
        else
            network_file_add_rule(f, d, EGRESS_ALLOW, d->text, NULL, "network.egress");
        return;
    }
    schema_map(f->problems, d, "network.egress", keys, ARRAY_LEN(keys), &item);
    if (f->problems->n > before)
        return;
    if (!item.allow == !item.deny)
        problems_add(f->problems, ERR_EGRESS_RULE, d->line, d->col, "Write {allow: HOST} or {deny: HOST}.",
                     "network.egress: a rule has either allow or deny");
    else
        network_file_add_rule(f, d, item.allow ? EGRESS_ALLOW : EGRESS_DENY, item.allow ? item.allow : item.deny, &item,
                              "network.egress");
}

static void network_file_read_egress(void *arg, const struct doc *d)
{
    struct network_file *f = arg;

    f->has_rules = true;
    if (!schema_list(f->problems, d, "network.egress"))
        return;
    for (size_t i = 0; i < d->n; i++)
        network_file_read_item(f, &d->items[i]);
}

static void network_file_read_allow(void *arg, const struct doc *d)
{
    struct network_file *f = arg;

    f->has_short_form = true;
    f->allow = schema_list(f->problems, d, "network.allow") ? d : NULL;
}

static void network_file_read_deny(void *arg, const struct doc *d)
{
    struct network_file *f = arg;

    f->has_short_form = true;
    f->deny = schema_list(f->problems, d, "network.deny") ? d : NULL;
}

static void network_file_add_targets(struct network_file *f, const struct doc *list, enum egress_action action,
                                     const char *where)
{
    for (size_t i = 0; list && i < list->n; i++)
        if (schema_text(f->problems, &list->items[i], where))
            network_file_add_rule(f, &list->items[i], action, list->items[i].text, NULL, where);
}

/* --- secrets --- */

#define SECRET_FIELD(field, where)                                           \
    static void network_secret_read_##field(void *arg, const struct doc *d)  \
    {                                                                        \
        struct network_item *i = arg;                                        \
                                                                             \
        (void)network_file_text(i->file, d, where #field, &i->secret.field); \
    }
SECRET_FIELD(name, "network.secrets.")
SECRET_FIELD(host, "network.secrets.")
SECRET_FIELD(header, "network.secrets.")
SECRET_FIELD(format, "network.secrets.")

static void network_file_read_secret(struct network_file *f, const struct doc *d)
{
    static const struct schema_key keys[] = {
        { "name", network_secret_read_name },     { "host", network_secret_read_host },
        { "header", network_secret_read_header }, { "format", network_secret_read_format },
        { "methods", network_item_read_methods }, { "path", network_item_read_path },
    };
    struct network_item item = { .file = f };
    size_t before = f->problems->n;
    struct err err = { 0 };

    schema_map(f->problems, d, "network.secrets", keys, ARRAY_LEN(keys), &item);
    if (f->problems->n > before)
        return;
    if (!item.secret.name || !item.secret.host) {
        problems_add(f->problems, ERR_EGRESS_RULE, d->line, d->col, "Write {name: openai, host: api.openai.com}.",
                     "network.secrets: a secret needs a name and a host");
        return;
    }
    item.secret.methods = item.nmethods ? item.methods : NULL;
    item.secret.path = item.path;
    if (egress_rules_add_secret(&f->rules, &item.secret, &err) < 0)
        network_file_report(f, d, "network.secrets", &err);
}

static void network_file_read_secrets(void *arg, const struct doc *d)
{
    struct network_file *f = arg;

    if (!schema_list(f->problems, d, "network.secrets"))
        return;
    for (size_t i = 0; i < d->n; i++)
        network_file_read_secret(f, &d->items[i]);
}

/* --- the key --- */

static void network_file_read_mode(void *arg, const struct doc *d)
{
    struct network_file *f = arg;

    if (schema_text(f->problems, d, "network.mode") && !str_eq(d->text, network_mode_name(NETWORK_EGRESS)))
        problems_add(f->problems, ERR_POLICY_VALUE, d->line, d->col, "Write 'network: none', or omit mode.",
                     "network.mode: '%.40s' is not egress", d->text);
}

static void network_file_read_foreign(void *arg, const struct doc *d)
{
    struct network_file *f = arg;

    problems_add(f->problems, ERR_POLICY_FEATURE, d->key_line, d->key_col,
                 "Use 'cove policy import FILE' to convert it.", "network: '%.40s' is a setting of sandbox-runtime",
                 d->key);
}

static void network_file_read_map(struct network_file *f, const struct doc *d)
{
    static const struct schema_key keys[] = {
        { "egress", network_file_read_egress },
        { "allow", network_file_read_allow },
        { "deny", network_file_read_deny },
        { "secrets", network_file_read_secrets },
        { "mode", network_file_read_mode },
        { "allowedDomains", network_file_read_foreign, true },
        { "deniedDomains", network_file_read_foreign, true },
    };

    schema_map(f->problems, d, "network", keys, ARRAY_LEN(keys), f);
    if (f->has_short_form && f->has_rules)
        problems_add(f->problems, ERR_POLICY_VALUE, d->line, d->col,
                     "Use only egress, whose rules are evaluated in order.", "network: egress excludes allow and deny");
    network_file_add_targets(f, f->deny, EGRESS_DENY, "network.deny");
    network_file_add_targets(f, f->allow, EGRESS_ALLOW, "network.allow");
}

/* Writes the text again, so that secrets stand after the rules. */
static bool network_file_finish(struct network_file *f, const struct doc *d, struct network_policy *ret)
{
    auto_(egress_rules) rules = NULL;
    auto_buf text = { 0 };
    struct err err = { 0 };

    if (egress_rules_parse(f->rules.data ? f->rules.data : "", f->rules.len, &rules, &err) < 0) {
        network_file_report(f, d, "network", &err);
        return false;
    }
    egress_rules_write(rules, &text);
    *ret = (struct network_policy){ NETWORK_EGRESS, text.len ? str_dup(text.data) : NULL };
    return true;
}

bool network_file_read(struct problems *pr, const struct doc *d, struct network_policy *ret)
{
    struct network_file f = { .problems = pr };
    size_t before = pr->n;
    bool ok = false;

    if (d->kind == DOC_TEXT && str_eq(d->text, network_mode_name(NETWORK_NONE))) {
        *ret = (struct network_policy){ NETWORK_NONE, NULL };
        return true;
    }
    if (d->kind != DOC_MAP) {
        problems_add(pr, ERR_POLICY_VALUE, d->line, d->col, FIX, "network: must be none or a mapping");
        return false;
    }
    network_file_read_map(&f, d);
    if (pr->n == before)
        ok = network_file_finish(&f, d, ret);
    buf_done(&f.rules);
    return ok;
}

/* --- operator limits --- */

struct network_operator {
    struct problems *problems;
    struct operator_limits *limits;
    bool narrow;
};

static void network_operator_read_deny(void *arg, const struct doc *d)
{
    struct network_operator *o = arg;
    struct network_file f = { .problems = o->problems };
    size_t before = o->problems->n;
    struct err err = { 0 };

    if (schema_list(o->problems, d, "network.deny"))
        network_file_add_targets(&f, d, EGRESS_DENY, "network.deny");
    if (o->problems->n == before && f.rules.len > 0 && operator_network_deny(o->limits, f.rules.data, &err) < 0)
        network_file_report(&f, d, "network.deny", &err);
    buf_done(&f.rules);
}

static bool network_operator_range_is_open(const struct operator_limits *l, size_t n, const struct ip_prefix *range)
{
    for (size_t i = 0; i < n; i++)
        if (l->open_ranges[i].bits <= range->bits && ip_prefix_contains(&l->open_ranges[i], &range->address))
            return true;
    return false;
}

/* Of a second file, only ranges within those of the first one have an effect. */
static void network_operator_read_open_ranges(void *arg, const struct doc *d)
{
    struct network_operator *o = arg;
    struct operator_limits opened = { 0 };

    if (!schema_list(o->problems, d, "network.openRanges"))
        return;
    for (size_t i = 0; i < d->n; i++) {
        const struct doc *item = &d->items[i];
        struct ip_prefix range;

        if (!schema_text(o->problems, item, "network.openRanges"))
            continue;
        if (!ip_prefix_parse(item->text, strlen(item->text), &range))
            problems_add(o->problems, ERR_POLICY_VALUE, item->line, item->col, "Write a prefix like 10.1.0.0/16.",
                         "network.openRanges: '%.60s' is not an address or a prefix", item->text);
        else if (o->narrow && !network_operator_range_is_open(o->limits, o->limits->nopen_ranges, &range))
            continue;
        else if (!operator_network_open(&opened, &range))
            problems_add(o->problems, ERR_POLICY_VALUE, item->line, item->col, NULL,
                         "network.openRanges: more than %d prefixes", OPERATOR_OPEN_RANGES_MAX);
    }
    free(o->limits->open_ranges);
    o->limits->open_ranges = opened.open_ranges;
    o->limits->nopen_ranges = opened.nopen_ranges;
}

void network_file_read_operator(struct problems *pr, const struct doc *d, bool narrow, struct operator_limits *ret)
{
    static const struct schema_key keys[] = { { "deny", network_operator_read_deny },
                                              { "openRanges", network_operator_read_open_ranges } };
    struct network_operator o = { pr, ret, narrow };

    if (d->kind == DOC_TEXT && str_eq(d->text, network_mode_name(NETWORK_NONE)))
        ret->forbids_network = true;
    else if (d->kind == DOC_MAP)
        schema_map(pr, d, "network", keys, ARRAY_LEN(keys), &o);
    else
        problems_add(pr, ERR_POLICY_VALUE, d->line, d->col, "Write 'network: none' to forbid every network.",
                     "network: must be none, or a mapping with deny and openRanges");
}
