/* cove secret: set, ls, show, rm. A value is never an argument: other users of this machine see
 * the arguments of a process. */
#include "client/ctl/ctl_internal.h"

#include "client/cli/report.h"
#include "client/ctl/hidden_input.h"
#include "core/base/clock.h"
#include "core/base/str.h"

#include <stdio.h>

#define SECRET_INPUT_MAX (4 * KIB) /* the server refuses values that are longer than it permits */

struct ctl_secret_listing {
    struct ctl_table table;
    uint64_t now_ms;
    json_t *all;
};

static void ctl_secret_add_row(void *arg, const json_t *s)
{
    struct ctl_secret_listing *l = arg;
    char updated[CTL_AGE], used[CTL_AGE], uses[24];

    json_array_append(l->all, (json_t *)(uintptr_t)s);
    snprintf(uses, sizeof(uses), "%" PRIu64, ctl_field_number(s, "uses"));
    ctl_table_row(
        &l->table, ctl_field_text(s, "name"), ctl_age(ctl_field_text(s, "updatedAt"), l->now_ms, updated), uses,
        *ctl_field_text(s, "lastUsedAt") ? ctl_age(ctl_field_text(s, "lastUsedAt"), l->now_ms, used) : "never");
}

static int ctl_secret_list(struct ctl *c, struct err *err)
{
    struct ctl_secret_listing l = { .now_ms = clock_real_ms(), .all = json_array() };
    AUTO_JSON *whole = json_pack("{s:o}", "items", l.all);
    json_t *s;
    size_t i;

    if (ctl_require_args(c, 0, 0, "secret ls [FLAGS]", err) < 0)
        return -1;
    ctl_table_row(&l.table, "name", "set", "uses", "last used");
    if (ctl_for_each_item(c, "/v1/secrets", ctl_secret_add_row, &l, err) < 0) {
        ctl_table_free(&l.table);
        return -1;
    }
    if (!c->json && !c->quiet)
        return ctl_table_print(&l.table);
    ctl_table_free(&l.table);
    if (c->json)
        return ctl_print_json(whole);
    json_array_foreach(l.all, i, s) ctl_printf("%s", ctl_field_text(s, "name"));
    return 0;
}

static int ctl_secret_read_value(struct ctl *c, char *ret, struct err *err)
{
    const struct arg *variable = args_find(&c->args, OPT_ENV);
    const char *given = variable ? getenv(variable->value) : NULL;

    if (!variable) {
        if (hidden_input_read("Value: ", ret, SECRET_INPUT_MAX) > 0)
            return 0;
        return err_set(err, ERR_USAGE,
                       "no value given; type it, redirect it to standard input, or name a variable with --env");
    }
    if (!given || !*given)
        return err_set(err, ERR_USAGE, "--env %.64s: the variable is not set, or empty", variable->value);
    if (!str_copy(ret, SECRET_INPUT_MAX, given))
        return err_set(err, ERR_USAGE, "--env %.64s: the value is longer than %llu bytes", variable->value,
                       SECRET_INPUT_MAX - 1);
    return 0;
}

/* "any" alone removes the restriction. */
static void ctl_secret_set_hosts(const struct ctl *c, json_t *body)
{
    json_t *hosts = json_array();
    bool given = false;

    for (size_t i = 0; i < c->args.n; i++) {
        const struct arg *a = &c->args.items[i];

        given = given || a->opt->id == OPT_SECRET_HOST;
        if (a->opt->id == OPT_SECRET_HOST && !str_eq(a->value, "any"))
            json_array_append_new(hosts, json_string(a->value));
    }
    if (given)
        json_object_set_new(body, "hosts", hosts);
    else
        json_decref(hosts);
}

static int ctl_secret_set(struct ctl *c, struct err *err)
{
    AUTO_JSON *answer = NULL;
    char value[SECRET_INPUT_MAX];

    if (ctl_require_args(c, 1, 1, "secret set [FLAGS] NAME", err) < 0 || ctl_secret_read_value(c, value, err) < 0)
        return -1;
    AUTO_JSON *body = json_pack("{s:s}", "value", value);
    explicit_bzero(value, sizeof(value));
    if (body)
        ctl_secret_set_hosts(c, body);
    auto_free char *path = ctl_api_path("/v1/secrets/%s", c->args.rest[0]);
    if (!body)
        return err_set(err, ERR_INVALID, "the value is not UTF-8");
    char *text = json_dumps(body, JSON_COMPACT);
    int rc = client_json(c->client, "PUT", path, text, &answer, err);
    explicit_bzero(text, strlen(text));
    free(text);
    if (rc < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    if (!c->quiet)
        report_note("secret %s is set; sandboxes use it with --secret %s@HOST", c->args.rest[0], c->args.rest[0]);
    return 0;
}

static int ctl_secret_show(struct ctl *c, struct err *err)
{
    static const char *const fields[] = { "name", "createdAt", "updatedAt", "lastUsedAt", "createdBy", NULL };
    AUTO_JSON *answer = NULL;

    if (ctl_require_args(c, 1, 1, "secret show NAME", err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/secrets/%s", c->args.rest[0]);
    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    for (size_t i = 0; fields[i]; i++)
        if (*ctl_field_text(answer, fields[i]))
            ctl_printf("%-11s %s", fields[i], ctl_field_text(answer, fields[i]));
    const json_t *host;
    size_t i;
    json_array_foreach(json_object_get(answer, "hosts"), i, host)
        ctl_printf("%-11s %s", i ? "" : "hosts", json_string_value(host) ? json_string_value(host) : "");
    if (i == 0)
        ctl_printf("%-11s %s", "hosts", "any");
    ctl_printf("%-11s %" PRIu64, "generation", ctl_field_number(answer, "generation"));
    ctl_printf("%-11s %" PRIu64, "uses", ctl_field_number(answer, "uses"));
    return 0;
}

static int ctl_secret_remove(struct ctl *c, struct err *err)
{
    return ctl_remove_each(c, "/v1/secrets/%s", "secret rm NAME...", err);
}

int ctl_secret(struct ctl *c, const char *what, struct err *err)
{
    static const struct ctl_subcommand all[] = { { "ls", ctl_secret_list },
                                                 { "set", ctl_secret_set },
                                                 { "show", ctl_secret_show },
                                                 { "rm", ctl_secret_remove },
                                                 { NULL } };

    return ctl_run_subcommand(c, all, "secret", what, err);
}
