/* cove template: ls, show, set, rm. `set` replaces a template as a whole: the server never returns
 * the values of its environment, so changes could not be merged. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"
#include "client/cli/report.h"

#include <stdio.h>

#define SPEC_MAX (256 * KIB)

/* --- printing --- */

static void ctl_template_duration(const json_t *spec, const char *key, char buf[32])
{
    if (json_object_get(spec, key))
        (void)str_ms(ctl_field_number(spec, key), buf);
    else
        (void)str_copy(buf, 32, "-");
}

static void ctl_template_add_row(void *arg, const json_t *t)
{
    const json_t *spec = json_object_get(t, "spec"), *r = json_object_get(spec, "resources");
    const char *runtime = ctl_field_text(spec, "runtime");
    char memory[32] = "-", lifetime[32];

    if (json_object_get(r, "memoryBytes"))
        (void)str_bytes(ctl_field_number(r, "memoryBytes"), memory);
    ctl_template_duration(spec, "lifetimeMs", lifetime);
    ctl_table_row(arg, ctl_field_text(t, "name"), *runtime ? runtime : "-", memory, lifetime,
                  json_is_true(json_object_get(t, "builtin")) ? "built in" : "yours",
                  json_is_true(json_object_get(t, "available")) ? "yes" : ctl_field_text(t, "reason"));
}

static void ctl_template_collect(void *arg, const json_t *t)
{
    json_array_append(arg, (json_t *)(uintptr_t)t);
}

static int ctl_template_list(struct ctl *c, struct err *err)
{
    struct ctl_table table = { 0 };
    json_t *all = json_array(), *t;
    AUTO_JSON *whole = json_pack("{s:o}", "items", all);
    size_t i;

    if (ctl_require_args(c, 0, 0, "template ls", err) < 0 ||
        ctl_for_each_item(c, "/v1/templates", ctl_template_collect, all, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(whole);
    if (!c->quiet)
        ctl_table_row(&table, "name", "runtime", "memory", "lifetime", "origin", "available");
    json_array_foreach(all, i, t)
    {
        if (c->quiet)
            ctl_printf("%s", ctl_field_text(t, "name"));
        else
            ctl_template_add_row(&table, t);
    }
    return c->quiet ? 0 : ctl_table_print(&table);
}

static int ctl_template_print(struct ctl *c, const json_t *t)
{
    const json_t *value;
    const char *key;

    if (c->json)
        return ctl_print_json(t);
    ctl_printf("%-14s %s, generation %" PRIu64 "%s", "name", ctl_field_text(t, "name"),
               ctl_field_number(t, "generation"), json_is_true(json_object_get(t, "builtin")) ? ", built in" : "");
    if (json_is_true(json_object_get(t, "available")))
        ctl_printf("%-14s yes", "available");
    else
        ctl_printf("%-14s no: %s", "available", ctl_field_text(t, "reason"));
    if (*ctl_field_text(t, "fix"))
        ctl_printf("%-14s %s", "fix", ctl_field_text(t, "fix"));
    json_object_foreach(json_object_get(t, "spec"), key, value)
    {
        if (str_eq(key, "network")) {
            ctl_network_print(value, 14);
            continue;
        }
        auto_free char *text = json_is_string(value)
                                   ? str_dup(json_string_value(value))
                                   : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);

        ctl_printf("%-14s %s", key, text ? text : "");
    }
    return 0;
}

static int ctl_template_show(struct ctl *c, struct err *err)
{
    AUTO_JSON *answer = NULL;

    if (ctl_require_args(c, 1, 1, "template show NAME", err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/templates/%s", c->args.rest[0]);
    return client_json(c->client, "GET", path, NULL, &answer, err) < 0 ? -1 : ctl_template_print(c, answer);
}

/* --- changing --- */

/* --spec: a JSON object with the fields of the REST interface; flags override it. */
static int ctl_template_read_spec(const struct ctl *c, json_t *body, struct err *err)
{
    const struct arg *a = args_find(&c->args, OPT_SPEC);
    auto_buf text = { 0 };
    json_error_t where;

    if (!a)
        return 0;
    if (ctl_read_path(str_eq(a->value, "-") ? "/dev/stdin" : a->value, SPEC_MAX, &text, err) < 0)
        return err_wrap(err, "--spec");
    AUTO_JSON *given = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(given))
        return err_set(err, ERR_INVALID, "--spec %.100s: line %d: %.60s; it must be one JSON object", a->value,
                       given ? 1 : where.line, given ? "not an object" : where.text);
    json_object_update(body, given);
    return 0;
}

static int ctl_template_read_flags(const struct ctl *c, json_t *body, struct err *err)
{
    AUTO_JSON *preload = json_array();

    for (size_t i = 0; i < c->args.n; i++)
        if (c->args.items[i].opt->id == OPT_PRELOAD)
            json_array_append_new(preload, json_string(c->args.items[i].value));
    if (json_array_size(preload))
        json_object_set(body, "preload", preload);
    return ctl_set_spec(c, body, err);
}

static int ctl_template_set(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;

    if (ctl_require_args(c, 1, 1, "template set [FLAGS] NAME", err) < 0 || ctl_template_read_spec(c, body, err) < 0 ||
        ctl_template_read_flags(c, body, err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/templates/%s", c->args.rest[0]), *text = json_dumps(body, JSON_COMPACT);
    if (client_json(c->client, "PUT", path, text, &answer, err) < 0)
        return -1;
    if (!c->json && !c->quiet && !json_is_true(json_object_get(answer, "available")))
        report_note("%s is not available on this host: %s%s%s", c->args.rest[0], ctl_field_text(answer, "reason"),
                    *ctl_field_text(answer, "fix") ? "; " : "", ctl_field_text(answer, "fix"));
    return c->quiet ? 0 : ctl_template_print(c, answer);
}

static int ctl_template_remove(struct ctl *c, struct err *err)
{
    return ctl_remove_each(c, "/v1/templates/%s", "template rm NAME...", err);
}

int ctl_template(struct ctl *c, const char *what, struct err *err)
{
    static const struct ctl_subcommand all[] = { { "ls", ctl_template_list },
                                                 { "show", ctl_template_show },
                                                 { "set", ctl_template_set },
                                                 { "rm", ctl_template_remove },
                                                 { NULL } };

    return ctl_run_subcommand(c, all, "template", what, err);
}
