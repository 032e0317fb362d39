/* Canonical text, and single fields of requests and flags, are read by the same functions, so that
 * a rule has one form whichever way it came. */
#include "policy/egress_rules.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/egress_request_match.h"
#include "policy/egress_rule_target.h"
#include "policy/egress_secret.h"

#include <strings.h>

#define TOKENS_MAX 8 /* in a line; a secret has at most 7 */

struct token {
    const char *at;
    size_t len;
};

static bool token_is(const struct token *t, const char *word)
{
    return strlen(word) == t->len && strncasecmp(t->at, word, t->len) == 0;
}

/* Whether the token is `key`=VALUE; then *ret is VALUE. */
static bool token_attribute(const struct token *t, const char *key, struct token *ret)
{
    size_t n = strlen(key);

    if (t->len <= n || strncasecmp(t->at, key, n) != 0 || t->at[n] != '=')
        return false;
    *ret = (struct token){ t->at + n + 1, t->len - n - 1 };
    return true;
}

/* methods= and path=; 0 if the token is another attribute. */
static int egress_rules_eat_request(const struct token *t, struct egress_request_match *m, struct err *err)
{
    struct token value;

    if (token_attribute(t, "methods", &value)) {
        if (m->methods)
            return err_set(err, ERR_EGRESS_RULE, "methods= is given twice");
        return egress_request_match_set_methods(m, value.at, value.len, err) < 0 ? -1 : 1;
    }
    if (token_attribute(t, "path", &value)) {
        if (m->path[0])
            return err_set(err, ERR_EGRESS_RULE, "path= is given twice");
        return egress_request_match_set_path(m, value.at, value.len, err) < 0 ? -1 : 1;
    }
    return 0;
}

static int egress_rules_refuse_token(const struct token *t, const char *known, struct err *err)
{
    return err_set(err, ERR_EGRESS_RULE, "'%.*s' is not an attribute; attributes are %s", (int)min_size(t->len, 60),
                   t->at, known);
}

/* After the target and all attributes are known. */
static int egress_rules_check_rule(const struct egress_rule *r, struct err *err)
{
    if (egress_request_match_is_empty(&r->request))
        return 0;
    if (r->preset[0])
        return err_set(err, ERR_EGRESS_RULE,
                       "a preset has no methods and no path, because its hosts use HTTPS, which is not read");
    if (egress_rule_target_has_port(r, 443))
        return err_set(err, ERR_EGRESS_RULE,
                       "methods and path are not visible in HTTPS; name a port that is read in clear, like %.80s:80",
                       r->is_prefix ? "192.0.2.1" : r->host);
    return 0;
}

/* Replaces a rule that only names a preset by the rules of its hosts. */
static int egress_rules_append(struct egress_rules *rules, const struct egress_rule *r, struct err *err)
{
    struct egress_rule row = *r;

    for (size_t i = 0; r->preset[0] ? egress_rule_target_of_preset(r->preset, i, &row) : i == 0; i++) {
        if (rules->nrules == EGRESS_RULES_MAX)
            return err_set(err, ERR_EGRESS_RULE, "there are more than %d rules", EGRESS_RULES_MAX);
        row.action = r->action;
        rules->rules[rules->nrules++] = row;
    }
    return 0;
}

static int egress_rules_parse_rule(const struct token *t, size_t n, struct egress_rule *r, struct err *err)
{
    r->action = token_is(&t[0], "allow") ? EGRESS_ALLOW : EGRESS_DENY;
    if (n < 2)
        return err_set(err, ERR_EGRESS_RULE, "the target is missing; give a name like pypi.org");
    if (egress_rule_target_parse(t[1].at, t[1].len, r, err) < 0)
        return -1;
    for (size_t i = 2; i < n; i++) {
        int known = egress_rules_eat_request(&t[i], &r->request, err);

        if (known <= 0)
            return known < 0 ? -1 : egress_rules_refuse_token(&t[i], "methods= and path=", err);
    }
    return egress_rules_check_rule(r, err);
}

static int egress_rules_eat_format(const struct token *value, struct egress_secret_rule *s, struct err *err)
{
    char format[2 * sizeof(s->format)];
    size_t n = 0;

    for (size_t i = 0; i < value->len && n < sizeof(format) - 1; i++) {
        static const char *const codes[] = { "20", "25" };
        bool code = value->at[i] == '%';

        if (!code)
            format[n++] = value->at[i];
        else if (value->len - i > 2 && memcmp(value->at + i + 1, codes[0], 2) == 0)
            format[n++] = ' ';
        else if (value->len - i > 2 && memcmp(value->at + i + 1, codes[1], 2) == 0)
            format[n++] = '%';
        else
            return err_set(err, ERR_EGRESS_RULE, "secret %s: in format=, write %%20 for a space and %%25 for '%%'",
                           s->name);
        i += code ? 2 : 0;
    }
    format[n] = '\0';
    return egress_secret_set_format(s, format, err);
}

static int egress_rules_eat_secret_attribute(const struct token *t, struct egress_secret_rule *s, struct err *err)
{
    struct token value;
    int known = egress_rules_eat_request(t, &s->request, err);

    if (known != 0)
        return known < 0 ? -1 : 0;
    if (token_attribute(t, "header", &value) && !s->header[0])
        return egress_secret_set_header(s, value.at, value.len, err);
    if (token_attribute(t, "format", &value) && !s->format[0])
        return egress_rules_eat_format(&value, s, err);
    return egress_rules_refuse_token(t, "header=, format=, methods= and path=, each once", err);
}

static int egress_rules_parse_secret(const struct token *t, size_t n, struct egress_rules *rules, struct err *err)
{
    struct egress_secret_rule s = { 0 };

    if (n < 3)
        return err_set(err, ERR_EGRESS_RULE, "a secret needs a name and a host, like: secret openai api.openai.com");
    if (egress_secret_set_name(&s, t[1].at, t[1].len, err) < 0 ||
        egress_secret_set_host(&s, t[2].at, t[2].len, err) < 0)
        return -1;
    for (size_t i = 3; i < n; i++)
        if (egress_rules_eat_secret_attribute(&t[i], &s, err) < 0)
            return -1;
    egress_secret_set_defaults(&s);
    for (size_t i = 0; i < rules->nsecrets; i++)
        if (str_eq(rules->secrets[i].name, s.name))
            return err_set(err, ERR_EGRESS_RULE, "secret %s is bound twice; give the second one another name", s.name);
    if (rules->nsecrets == EGRESS_RULE_SECRETS_MAX)
        return err_set(err, ERR_EGRESS_RULE, "there are more than %d secrets", EGRESS_RULE_SECRETS_MAX);
    rules->secrets[rules->nsecrets++] = s;
    return 0;
}

static int egress_rules_parse_tokens(const struct token *t, size_t n, struct egress_rules *rules, struct err *err)
{
    struct egress_rule r = { 0 };

    if (token_is(&t[0], "secret"))
        return egress_rules_parse_secret(t, n, rules, err);
    if (!token_is(&t[0], "allow") && !token_is(&t[0], "deny"))
        return err_set(err, ERR_EGRESS_RULE, "'%.*s': a rule begins with allow, deny or secret",
                       (int)min_size(t[0].len, 60), t[0].at);
    return egress_rules_parse_rule(t, n, &r, err) < 0 ? -1 : egress_rules_append(rules, &r, err);
}

static int egress_rules_parse_line(const char *line, size_t len, struct egress_rules *rules, struct err *err)
{
    struct token t[TOKENS_MAX];
    size_t n = 0;

    for (size_t at = 0; at < len; at++) {
        size_t first = at;

        while (at < len && line[at] != ' ' && line[at] != '\t')
            if (line[at] < 0x21 || line[at++] > 0x7e)
                return err_set(err, ERR_EGRESS_RULE, "it has a character that is not printable ASCII");
        if (at == first)
            continue;
        if (n == TOKENS_MAX)
            return err_set(err, ERR_EGRESS_RULE, "it has too many words");
        t[n++] = (struct token){ line + first, at - first };
    }
    return n ? egress_rules_parse_tokens(t, n, rules, err) : 0;
}

int egress_rules_parse(const char *text, size_t len, struct egress_rules **ret, struct err *err)
{
    auto_(egress_rules) rules = NULL;
    unsigned number = 1;

    if (len > EGRESS_RULES_TEXT_LIMIT)
        return err_set(err, ERR_EGRESS_RULE, "the rules have more than %d characters", (int)EGRESS_RULES_TEXT_LIMIT);
    rules = mem_new(struct egress_rules);
    rules->rules = mem_alloc(EGRESS_RULES_MAX * sizeof(*rules->rules));
    rules->secrets = mem_alloc(EGRESS_RULE_SECRETS_MAX * sizeof(*rules->secrets));
    for (size_t at = 0; at < len; number++) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;

        if (egress_rules_parse_line(text + at, n, rules, err) < 0)
            return err_wrap(err, "rule %u", number);
        at += n + 1;
    }
    if (rules->nrules > 0)
        rules->rules = mem_resize(rules->rules, rules->nrules, sizeof(*rules->rules));
    *ret = take_ptr(&rules);
    return 0;
}

void egress_rules_free(struct egress_rules *r)
{
    if (!r)
        return;
    free(r->rules);
    free(r->secrets);
    free(r);
}

static void egress_rules_write_rule(const struct egress_rule *r, struct buf *out)
{
    buf_adds(out, r->action == EGRESS_ALLOW ? "allow " : "deny ");
    egress_rule_target_write(r, out);
    egress_request_match_write(&r->request, out);
}

static void egress_rules_start_line(struct buf *out)
{
    if (out->len > 0 && out->data[out->len - 1] != '\n')
        buf_adds(out, "\n");
}

/* Rules after the first one of a preset: the preset is written once. */
static bool egress_rules_is_same_preset(const struct egress_rules *r, size_t i)
{
    const struct egress_rule *row = &r->rules[i];

    return i > 0 && row->preset[0] && row[-1].action == row->action && str_eq(row[-1].preset, row->preset);
}

void egress_rules_write(const struct egress_rules *r, struct buf *out)
{
    for (size_t i = 0; i < r->nrules; i++) {
        if (egress_rules_is_same_preset(r, i))
            continue;
        egress_rules_start_line(out);
        egress_rules_write_rule(&r->rules[i], out);
    }
    for (size_t i = 0; i < r->nsecrets; i++) {
        egress_rules_start_line(out);
        egress_secret_write(&r->secrets[i], out);
    }
}

static int egress_rules_set_request(struct egress_request_match *m, const char *const *methods, const char *path,
                                    struct err *err)
{
    for (const char *const *name = methods; name && *name; name++) {
        struct egress_request_match one = { 0 };

        if (egress_request_match_set_methods(&one, *name, strlen(*name), err) < 0)
            return -1;
        m->methods |= one.methods;
    }
    return path ? egress_request_match_set_path(m, path, strlen(path), err) : 0;
}

/* Errors quote the text. */
static int egress_rules_check_printable(const char *text, struct err *err)
{
    for (size_t i = 0; text[i]; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return err_set(err, ERR_EGRESS_RULE, "byte %zu of the rule is not printable ASCII%s", i + 1,
                           (unsigned char)text[i] >= 0x80 ? "; write a name in its ASCII form, which begins with xn--"
                                                          : "");
    return 0;
}

int egress_rules_add_line(struct buf *text, enum egress_action action, const char *target, const char *const *methods,
                          const char *path, struct err *err)
{
    struct egress_rule r = { .action = action };

    if (egress_rules_check_printable(target, err) < 0)
        return -1;
    if (strpbrk(target, " \t"))
        return err_set(err, ERR_EGRESS_RULE, "'%.100s': a target has no spaces", target);
    if (egress_rule_target_parse(target, strlen(target), &r, err) < 0 ||
        egress_rules_set_request(&r.request, methods, path, err) < 0 || egress_rules_check_rule(&r, err) < 0)
        return -1;
    egress_rules_start_line(text);
    egress_rules_write_rule(&r, text);
    return 0;
}

int egress_rules_add_secret(struct buf *text, const struct egress_secret_fields *f, struct err *err)
{
    struct egress_secret_rule s = { 0 };

    if (egress_rules_check_printable(f->name, err) < 0 || egress_rules_check_printable(f->host, err) < 0 ||
        (f->header && egress_rules_check_printable(f->header, err) < 0))
        return -1;
    if (egress_secret_set_name(&s, f->name, strlen(f->name), err) < 0 ||
        egress_secret_set_host(&s, f->host, strlen(f->host), err) < 0 ||
        (f->header && egress_secret_set_header(&s, f->header, strlen(f->header), err) < 0) ||
        (f->format && egress_secret_set_format(&s, f->format, err) < 0) ||
        egress_rules_set_request(&s.request, f->methods, f->path, err) < 0)
        return -1;
    egress_secret_set_defaults(&s);
    egress_rules_start_line(text);
    egress_secret_write(&s, text);
    return 0;
}
