/* Egress rules: from users in policy files, requests and flags, and from coved to cove-egress. The
 * first line of the input is the target of a decision, the rest is the rules.
 *
 * Checked in addition to memory errors: a refusal has a printable message; the canonical text reads
 * to itself and decides the same; a target is allowed only for a name that may resolve; the fix of
 * a refusal is a rule that allows the target; and fields cannot add a second line. */
#include "policy/egress_rules.h"

#include "core/base/str.h"

static const char *const methods[] = { NULL, "GET", "post", "PROPFIND" };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void must_be_printable(const char *text)
{
    must(text[0] != '\0');
    for (const char *p = text; *p; p++)
        must(*p >= 0x20 && *p <= 0x7e);
}

static struct egress_rules *read_again(const char *text)
{
    struct egress_rules *r = NULL;
    struct err err = { 0 };

    must(egress_rules_parse(text, strlen(text), &r, &err) == 0);
    return r;
}

static void check_fix(const struct egress_rules *r, const struct egress_target *t, struct egress_decision d)
{
    auto_(egress_rules) fixed = NULL;
    auto_buf reason = { 0 }, text = { 0 };

    egress_rules_explain(r, t, d, &reason, &text);
    must_be_printable(reason.data);
    if (str_ends(t->host, "secret.cove") || r->nrules == EGRESS_RULES_MAX)
        return;
    must_be_printable(text.data);
    size_t rule = strlen("allow ") + strcspn(text.data + strlen("allow "), " ,"); /* a condition may follow */
    auto_free char *line = str_dup_n(text.data, rule);
    fixed = read_again(line);
    must(egress_rules_decide(fixed, t, "GET", "/").verdict == EGRESS_ALLOWED);
}

static void check_target(const struct egress_rules *r, const struct egress_rules *same, const char *text, size_t len)
{
    static const uint16_t ports[] = { 80, 443, 8080 };
    char host[HOSTNAME_MAX + 1] = "";
    struct egress_target t = { .host = host };

    if (!ip_address_parse(text, len, &t.address) && hostname_normalize(text, len, host, NULL) < 0)
        return;
    for (size_t i = 0; i < ARRAY_LEN(ports); i++)
        for (size_t k = 0; k < ARRAY_LEN(methods); k++) {
            t.port = ports[i];
            struct egress_decision d = egress_rules_decide(r, &t, methods[k], methods[k] ? "/v1/x" : NULL);

            must(d.verdict == egress_rules_decide(same, &t, methods[k], methods[k] ? "/v1/x" : NULL).verdict);
            must(d.rule < (int)r->nrules && (methods[k] || d.verdict != EGRESS_NEEDS_REQUEST || d.rule < 0 ||
                                             r->rules[d.rule].request.methods || r->rules[d.rule].request.path[0]));
            must(d.verdict == EGRESS_REFUSED || !host[0] || egress_rules_may_resolve(r, host));
            if (d.verdict == EGRESS_REFUSED)
                check_fix(r, &t, d);
        }
}

static void check_fields(const char *text)
{
    auto_buf line = { 0 };
    const char *const names[] = { text, NULL };
    struct egress_secret_fields f = { .name = "k", .host = text, .header = "X-Key", .format = text, .path = text };

    for (int field = 0; field < 5; field++) {
        buf_clear(&line);
        int rc = field == 0   ? egress_rules_add_line(&line, EGRESS_ALLOW, text, NULL, NULL, NULL)
                 : field == 1 ? egress_rules_add_line(&line, EGRESS_DENY, "a:80", names, NULL, NULL)
                 : field == 2 ? egress_rules_add_line(&line, EGRESS_ALLOW, "a:80", NULL, text, NULL)
                 : field == 3 ? egress_rules_add_secret(&line, &f, NULL)
                              : (f.host = "a", f.path = NULL, egress_rules_add_secret(&line, &f, NULL));
        if (rc < 0)
            continue;
        must_be_printable(line.data);
        auto_(egress_rules) r = read_again(line.data);
        auto_buf again = { 0 };
        egress_rules_write(r, &again);
        must(str_eq(again.data, line.data));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = str_dup_n((const char *)data, size);
    size_t n = strcspn(text, "\n");
    const char *rest = text + n + (text[n] != '\0');
    auto_(egress_rules) r = NULL;
    auto_buf canonical = { 0 }, again = { 0 };
    struct err err = { 0 };

    if (size == 0)
        return 0;
    check_fields(rest);
    if (egress_rules_parse(rest, strlen(rest), &r, &err) < 0) {
        must(err.id == ERR_EGRESS_RULE);
        must_be_printable(err.msg);
        return 0;
    }
    egress_rules_write(r, &canonical);
    auto_(egress_rules) same = read_again(canonical.data ? canonical.data : "");
    egress_rules_write(same, &again);
    must(canonical.len == again.len && (canonical.len == 0 || str_eq(canonical.data, again.data)));
    check_target(r, same, text, n);
    return 0;
}
