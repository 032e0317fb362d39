/* The network of sandboxes: --net, --allow and --deny, `cove sandbox connections` and
 * `cove policy why`. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"
#include "client/cli/report.h"

#include <stdio.h>

/* --- flags --- */

/* A target alone is allowed. A text with a blank is a rule with attributes: "HOST:80 methods=GET".
 */
static json_t *ctl_network_rule(const struct arg *a)
{
    bool allows = a->opt->id == OPT_ALLOW;

    if (strchr(a->value, ' ')) {
        auto_free char *line = str_printf("%s %s", allows ? "allow" : "deny", a->value);

        return json_string(line);
    }
    return allows ? json_string(a->value) : json_pack("{s:s}", "deny", a->value);
}

/* "header=X-Api-Key", "methods=GET,HEAD", ... after the host. */
static int ctl_network_secret_attribute(json_t *secret, char *word, struct err *err)
{
    static const char *const names[] = { "header", "format", "path" };
    char *value = strchr(word, '='), *rest = NULL;

    if (value)
        *value++ = '\0';
    for (size_t i = 0; value && i < ARRAY_LEN(names); i++)
        if (str_eq(word, names[i]))
            return json_object_set_new(secret, word, json_string(value)) < 0
                       ? err_set(err, ERR_USAGE, "--secret: %s is not UTF-8", word)
                       : 0;
    if (!value || !str_eq(word, "methods"))
        return err_set(err, ERR_USAGE,
                       "--secret: '%.40s': after NAME@HOST come header=, format=, methods= and path=", word);
    json_t *methods = json_array();
    for (char *one = strtok_r(value, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
        json_array_append_new(methods, json_string(one));
    json_object_set_new(secret, "methods", methods);
    return 0;
}

static int ctl_network_secret(const struct arg *a, json_t *list, struct err *err)
{
    auto_free char *text = str_dup(a->value);
    char *rest = NULL, *name = strtok_r(text, " ", &rest), *host = name ? strchr(name, '@') : NULL;

    if (!host || host == name || !host[1])
        return err_set(err, ERR_USAGE, "--secret '%.80s': must be NAME@HOST, such as openai@api.openai.com", a->value);
    *host++ = '\0';
    AUTO_JSON *secret = json_pack("{s:s, s:s}", "name", name, "host", host);
    if (!secret)
        return err_set(err, ERR_USAGE, "--secret: the name or the host is not UTF-8");
    for (char *word; (word = strtok_r(NULL, " ", &rest));)
        if (ctl_network_secret_attribute(secret, word, err) < 0)
            return -1;
    json_array_append(list, secret);
    return 0;
}

int ctl_set_network(const struct ctl *c, json_t *body, struct err *err)
{
    const struct arg *net = args_find(&c->args, OPT_NET);
    AUTO_JSON *rules = json_array(), *secrets = json_array();

    for (size_t i = 0; i < c->args.n; i++) {
        const struct arg *a = &c->args.items[i];

        if ((a->opt->id == OPT_ALLOW || a->opt->id == OPT_DENY) &&
            json_array_append_new(rules, ctl_network_rule(a)) < 0)
            return err_set(err, ERR_USAGE, "--%s: the target is not UTF-8", a->opt->name);
        if (a->opt->id == OPT_SECRET && ctl_network_secret(a, secrets, err) < 0)
            return -1;
    }
    bool any = json_array_size(rules) > 0 || json_array_size(secrets) > 0;
    bool none = net && str_eq(net->value, "none");
    if (net && !none && !str_eq(net->value, "egress"))
        return err_set(err, ERR_USAGE, "--net %.40s: must be none or egress", net->value);
    if (none && any)
        return err_set(err, ERR_USAGE, "--net none excludes --allow and --secret; omit --net");
    if (none)
        json_object_set_new(body, "network", json_string("none"));
    else if (net || any)
        json_object_set_new(body, "network", json_pack("{s:O, s:O}", "egress", rules, "secrets", secrets));
    return 0;
}

/* --- cove sandbox info --- */

/* A rule in the form of an answer ("deny *:22"), or in one that a request may have. */
static void ctl_network_print_rule(int width, const char *label, const json_t *rule)
{
    const char *text = json_string_value(rule), *deny = ctl_field_text(rule, "deny");
    size_t i;
    json_t *method;
    auto_buf out = { 0 };

    if (text)
        buf_addf(&out, "%s%s", strchr(text, ' ') ? "" : "allow ", text);
    else
        buf_addf(&out, "%s%s", *deny ? "deny " : "allow ", *deny ? deny : ctl_field_text(rule, "allow"));
    json_array_foreach(json_object_get(rule, "methods"), i, method)
        buf_addf(&out, "%s%s", i ? "," : " methods=", json_is_string(method) ? json_string_value(method) : "");
    if (*ctl_field_text(rule, "path"))
        buf_addf(&out, " path=%s", ctl_field_text(rule, "path"));
    ctl_printf("%-*s %s", width, label, out.data);
}

void ctl_network_print(const json_t *network, int width)
{
    static const char *const short_form[] = { "deny", "allow" }; /* denials first */
    const char *label = "network";
    const json_t *rule, *secret;
    size_t i;

    if (!json_is_object(network)) {
        ctl_printf("%-*s %s", width, label, json_is_string(network) ? json_string_value(network) : "none");
        return;
    }
    json_array_foreach(json_object_get(network, "egress"), i, rule)
    {
        ctl_network_print_rule(width, label, rule);
        label = "";
    }
    for (size_t k = 0; k < ARRAY_LEN(short_form); k++)
        json_array_foreach(json_object_get(network, short_form[k]), i, rule)
        {
            AUTO_JSON *one = json_pack("{s:O}", short_form[k], rule);

            ctl_network_print_rule(width, label, one);
            label = "";
        }
    if (*label)
        ctl_printf("%-*s egress, nothing is allowed", width, label);
    json_array_foreach(json_object_get(network, "secrets"), i, secret)
        ctl_printf("%-*s http://%s.secret.cove/ for %s", width, i ? "" : "secrets", ctl_field_text(secret, "name"),
                   ctl_field_text(secret, "host"));
}

/* --- cove sandbox connections --- */

static void ctl_connection_add_row(struct ctl_table *table, const json_t *connection)
{
    char age[32], received[32], sent[32];
    auto_free char *port = str_printf("%" PRIu64, ctl_field_number(connection, "port"));

    ctl_table_row(table, ctl_field_text(connection, "host"), port, ctl_field_text(connection, "way"),
                  str_ms(ctl_field_number(connection, "ageMs"), age),
                  str_size(ctl_field_number(connection, "receivedBytes"), received),
                  str_size(ctl_field_number(connection, "sentBytes"), sent));
}

int ctl_sandbox_connections(struct ctl *c, struct err *err)
{
    auto_free char *id = NULL;
    AUTO_JSON *answer = NULL;
    struct ctl_table table = { 0 };
    const json_t *connection;
    size_t i;

    if (ctl_require_args(c, 1, 1, "sandbox connections ID", err) < 0 ||
        ctl_resolve_sandbox(c, c->args.rest[0], &id, err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/connections", id);
    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    if (!c->quiet)
        ctl_table_row(&table, "host", "port", "way", "age", "received", "sent");
    json_array_foreach(json_object_get(answer, "items"), i, connection) ctl_connection_add_row(&table, connection);
    if (ctl_field_number(answer, "more") && !c->quiet)
        report_note("%" PRIu64 " more connections are open", ctl_field_number(answer, "more"));
    return ctl_table_print(&table);
}

/* --- cove policy why --- */

static void ctl_print_decision(const json_t *answer)
{
    bool allowed = json_is_true(json_object_get(answer, "allowed"));
    const char *rule = ctl_field_text(answer, "rule");

    ctl_printf("%s: %s:%" PRIu64, allowed ? "allowed" : "refused", ctl_field_text(answer, "host"),
               ctl_field_number(answer, "port"));
    ctl_printf("  rule    %s", *rule ? rule : "no rule matches");
    if (*ctl_field_text(answer, "reason"))
        ctl_printf("  reason  %s", ctl_field_text(answer, "reason"));
    if (*ctl_field_text(answer, "fix"))
        ctl_printf("  fix     %s", ctl_field_text(answer, "fix"));
}

int ctl_policy(struct ctl *c, const char *what, struct err *err)
{
    const struct arg *method = args_find(&c->args, OPT_METHOD);
    auto_free char *id = NULL;
    AUTO_JSON *answer = NULL;

    if (!str_eq(what, "why"))
        return err_set(err, ERR_BUG, "'policy %s' is not implemented here", what);
    if (ctl_require_args(c, 2, 2, "policy why [FLAGS] SANDBOX URL", err) < 0 ||
        ctl_resolve_sandbox(c, c->args.rest[0], &id, err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/network/why?url=%s", id, c->args.rest[1]);
    auto_free char *extra = method ? ctl_api_path("&method=%s", method->value) : str_dup("");
    auto_free char *whole = str_printf("%s%s", path, extra);
    if (client_json(c->client, "GET", whole, NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        (void)ctl_print_json(answer);
    else
        ctl_print_decision(answer);
    return json_is_true(json_object_get(answer, "allowed")) ? 0 : 1;
}
