/* Every rule goes through egress_rules_add_line() or, in its canonical form, through the parser, so
 * the grammar is in one place. A canonical rule ("allow pypi.org") holds a space and a target
 * ("pypi.org") does not, which is how both can be texts of one list. */
#include "service/network_field.h"

#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/json_input.h"
#include "policy/egress_rules.h"
#include "policy/operator_network.h"

#include <stdio.h>

#define NETWORK_TARGET_MAX 512
#define NETWORK_METHODS_MAX 16
#define NETWORK_LINE_MAX 1024 /* of one canonical rule in a request */

/* --- reading --- */

static int network_field_fail(struct err *err, const char *path)
{
    err_wrap(err, "%s", path);
    err_sanitize(err);
    return -1;
}

/* `methods` and `path` of a rule or a secret. */
static int network_field_read_match(const json_t *object, const char *at, const char *methods[NETWORK_METHODS_MAX + 1],
                                    const char **ret_path, struct err *err)
{
    json_t *list = NULL;

    if (json_input_array(object, at, "methods", NETWORK_METHODS_MAX, &list, err) < 0 ||
        json_input_text(object, at, "path", 1, EGRESS_RULE_PATH_MAX, ret_path, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        methods[i] = json_string_value(json_array_get(list, i));
        if (!methods[i])
            return err_set(err, ERR_INVALID, "%smethods[%zu]: must be a method such as GET", at, i);
    }
    return 0;
}

static int network_field_add_object(struct buf *text, const json_t *rule, const char *path, struct err *err)
{
    static const char *const names[] = { "allow", "deny", "methods", "path", NULL };
    const char *methods[NETWORK_METHODS_MAX + 1] = { NULL }, *allow = NULL, *deny = NULL, *below = NULL;
    auto_free char *at = str_printf("%s.", path);

    if (json_input_require_known_fields(rule, at, names, err) < 0 ||
        json_input_text(rule, at, "allow", 1, NETWORK_TARGET_MAX, &allow, err) < 0 ||
        json_input_text(rule, at, "deny", 1, NETWORK_TARGET_MAX, &deny, err) < 0 ||
        network_field_read_match(rule, at, methods, &below, err) < 0)
        return -1;
    if (!allow == !deny)
        return err_set(err, ERR_EGRESS_RULE, "%s: must have either allow or deny", path);
    if (egress_rules_add_line(text, allow ? EGRESS_ALLOW : EGRESS_DENY, allow ? allow : deny,
                              methods[0] ? methods : NULL, below, err) < 0)
        return network_field_fail(err, path);
    return 0;
}

/* A canonical line. */
static int network_field_add_line(struct buf *text, const char *line, const char *path, struct err *err)
{
    auto_(egress_rules) parsed = NULL;

    if (strlen(line) > NETWORK_LINE_MAX || strchr(line, '\n'))
        return err_set(err, ERR_EGRESS_RULE, "%s: a rule is one line of at most %d bytes", path, NETWORK_LINE_MAX);
    if (egress_rules_parse(line, strlen(line), &parsed, err) < 0)
        return network_field_fail(err, path);
    if (parsed->nsecrets > 0)
        return err_set(err, ERR_EGRESS_RULE, "%s: not a rule; write secrets in network.secrets", path);
    egress_rules_write(parsed, text);
    return 0;
}

static int network_field_add_rule(struct buf *text, const json_t *rule, enum egress_action action, const char *path,
                                  struct err *err)
{
    const char *target = json_string_value(rule);

    if (json_is_object(rule))
        return network_field_add_object(text, rule, path, err);
    if (!target || strlen(target) != json_string_length(rule))
        return err_set(err, ERR_EGRESS_RULE, "%s: must be a target such as pypi.org or *.example.org:443, or an object",
                       path);
    if (strchr(target, ' '))
        return network_field_add_line(text, target, path, err);
    if (egress_rules_add_line(text, action, target, NULL, NULL, err) < 0)
        return network_field_fail(err, path);
    return 0;
}

static int network_field_add_list(struct buf *text, const json_t *network, const char *name, enum egress_action action,
                                  struct err *err)
{
    json_t *list = NULL;

    if (json_input_array(network, "network.", name, EGRESS_RULES_MAX, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *rule = json_array_get(list, i);
        auto_free char *path = str_printf("network.%s[%zu]", name, i);

        if (!str_eq(name, "egress") && !json_is_string(rule))
            return err_set(err, ERR_EGRESS_RULE, "%s: must be a target such as pypi.org; write other rules in egress",
                           path);
        if (network_field_add_rule(text, rule, action, path, err) < 0)
            return -1;
    }
    return 0;
}

static int network_field_add_secret(struct buf *text, const json_t *secret, const char *path, struct err *err)
{
    static const char *const names[] = { "name", "host", "header", "format", "methods", "path", NULL };
    const char *methods[NETWORK_METHODS_MAX + 1] = { NULL };
    struct egress_secret_fields f = { 0 };
    auto_free char *at = str_printf("%s.", path);

    if (!json_is_object(secret))
        return err_set(err, ERR_EGRESS_RULE, "%s: must be an object with name and host", path);
    if (json_input_require_known_fields(secret, at, names, err) < 0 ||
        json_input_text(secret, at, "name", 1, NETWORK_TARGET_MAX, &f.name, err) < 0 ||
        json_input_text(secret, at, "host", 1, NETWORK_TARGET_MAX, &f.host, err) < 0 ||
        json_input_text(secret, at, "header", 1, NETWORK_TARGET_MAX, &f.header, err) < 0 ||
        json_input_text(secret, at, "format", 1, NETWORK_TARGET_MAX, &f.format, err) < 0 ||
        network_field_read_match(secret, at, methods, &f.path, err) < 0)
        return -1;
    f.methods = methods[0] ? methods : NULL;
    if (!f.name || !f.host)
        return err_set(err, ERR_EGRESS_RULE, "%s: must have name and host", path);
    return egress_rules_add_secret(text, &f, err) < 0 ? network_field_fail(err, path) : 0;
}

static int network_field_add_secrets(struct buf *text, const json_t *network, struct err *err)
{
    json_t *list = NULL;

    if (json_input_array(network, "network.", "secrets", EGRESS_RULE_SECRETS_MAX, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        auto_free char *path = str_printf("network.secrets[%zu]", i);

        if (network_field_add_secret(text, json_array_get(list, i), path, err) < 0)
            return -1;
    }
    return 0;
}

static int network_field_add_all(struct buf *text, const json_t *network, struct err *err)
{
    bool is_short = json_object_get(network, "allow") || json_object_get(network, "deny");

    if (is_short && json_object_get(network, "egress"))
        return err_set(err, ERR_INVALID, "network: allow and deny are the short form of egress; use one of the two");
    if (network_field_add_list(text, network, "deny", EGRESS_DENY, err) < 0 ||
        network_field_add_list(text, network, "allow", EGRESS_ALLOW, err) < 0 ||
        network_field_add_list(text, network, "egress", EGRESS_ALLOW, err) < 0)
        return -1;
    return network_field_add_secrets(text, network, err);
}

static int network_field_read_object(const json_t *network, struct network_policy *ret, struct err *err)
{
    static const char *const names[] = { "mode", "egress", "allow", "deny", "secrets", NULL };
    static const char *const modes[] = { "egress", NULL };
    auto_buf text = { 0 }, canonical = { 0 };
    auto_(egress_rules) all = NULL;
    unsigned mode = 0;

    if (json_input_require_known_fields(network, "network.", names, err) < 0 ||
        json_input_enum(network, "network.", "mode", modes, &mode, err) < 0)
        return -1;
    if (network_field_add_all(&text, network, err) < 0)
        return -1;
    /* The whole list has limits of its own. */
    if (egress_rules_parse(text.data ? text.data : "", text.len, &all, err) < 0)
        return network_field_fail(err, "network");
    egress_rules_write(all, &canonical);
    *ret = (struct network_policy){ .mode = NETWORK_EGRESS, .rules = str_dup(canonical.data ? canonical.data : "") };
    return 0;
}

int network_field_read(const json_t *value, struct network_policy *ret, struct err *err)
{
    const char *text = json_string_value(value);

    if (json_is_object(value))
        return network_field_read_object(value, ret, err);
    if (text && str_eq(text, "none")) {
        *ret = (struct network_policy){ .mode = NETWORK_NONE };
        return 0;
    }
    return err_set(err, ERR_INVALID,
                   "network: must be \"none\", or an object such as {\"allow\": [\"pypi.org\"]}; a sandbox reaches "
                   "only the hosts that are named");
}

/* --- addresses --- */

int network_field_check_addresses(const struct network_policy *p, const struct ip_prefix *open, size_t nopen,
                                  struct err *err)
{
    return operator_network_check_addresses(p, open, nopen, "network", "the setting egress.openRanges", err);
}
