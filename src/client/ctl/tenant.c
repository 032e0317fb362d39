/* cove tenant: create, ls, info, set, rm. For the operator; without the scope admin, `info` without
 * a name shows the caller's own tenant. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "client/cli/report.h"

#include <inttypes.h>
#include <stdio.h>

enum ctl_quota_unit { PLAIN, MILLIS, BYTES };

static const struct {
    int opt;
    const char *key, *word;
    enum ctl_quota_unit unit;
} tenant_quota_flags[] = {
    { OPT_MAX_SANDBOXES, "sandboxes", "sandboxes", PLAIN },
    { OPT_MAX_CPUS, "cpuMillis", "processors", MILLIS },
    { OPT_MAX_MEMORY, "memoryBytes", "memory", BYTES },
    { OPT_MAX_DISK, "storageBytes", "disk", BYTES },
    { OPT_MAX_EXECUTIONS, "executionsPerHour", "executions per hour", PLAIN },
};

static int ctl_tenant_read_quota(const struct arg *a, enum ctl_quota_unit unit, json_t **ret, struct err *err)
{
    uint64_t v = 0;
    bool good = str_eq(a->value, "none") ? true
                : unit == MILLIS         ? str_to_millis(a->value, &v)
                : unit == BYTES          ? str_to_bytes(a->value, &v)
                                         : str_to_u64(a->value, INT64_MAX, &v);

    if (!good || (v == 0 && !str_eq(a->value, "none")))
        return err_set(err, ERR_USAGE, "--%s %.40s: must be a number above 0%s, or 'none'", a->opt->name, a->value,
                       unit == BYTES ? " such as 4G" : "");
    *ret = v ? json_integer((json_int_t)v) : json_null();
    return 0;
}

static int ctl_tenant_set_quotas(const struct ctl *c, json_t *body, struct err *err)
{
    AUTO_JSON *all = json_object();

    for (size_t i = 0; i < ARRAY_LEN(tenant_quota_flags); i++) {
        const struct arg *a = args_find(&c->args, tenant_quota_flags[i].opt);
        json_t *v = NULL;

        if (a && ctl_tenant_read_quota(a, tenant_quota_flags[i].unit, &v, err) < 0)
            return -1;
        if (a)
            json_object_set_new(all, tenant_quota_flags[i].key, v);
    }
    if (json_object_size(all))
        json_object_set(body, "quota", all);
    return 0;
}

static const char *ctl_tenant_amount_text(uint64_t v, enum ctl_quota_unit unit, char buf[32])
{
    if (unit == MILLIS)
        snprintf(buf, 32, "%g", (double)v / 1000);
    else if (unit == BYTES && v >= MIB)
        snprintf(buf, 32, "%" PRIu64 "M", v / (uint64_t)MIB);
    else
        snprintf(buf, 32, "%" PRIu64, v);
    return buf;
}

static int ctl_tenant_print(struct ctl *c, const json_t *t)
{
    struct ctl_table table = { 0 };
    const json_t *quota = json_object_get(t, "quota"), *used = json_object_get(t, "used");

    if (c->json)
        return ctl_print_json(t);
    ctl_printf("%s%s", ctl_field_text(t, "name"),
               *ctl_field_text(t, "removedAt")                 ? "  removed"
               : json_is_true(json_object_get(t, "suspended")) ? "  suspended"
                                                               : "");
    fflush(stdout); /* the table is written without stdio */
    ctl_table_row(&table, "resource", "used", "quota");
    for (size_t i = 0; i < ARRAY_LEN(tenant_quota_flags); i++) {
        char a[32], b[32];
        uint64_t limit = ctl_field_number(quota, tenant_quota_flags[i].key);

        ctl_table_row(
            &table, tenant_quota_flags[i].word,
            ctl_tenant_amount_text(ctl_field_number(used, tenant_quota_flags[i].key), tenant_quota_flags[i].unit, a),
            limit ? ctl_tenant_amount_text(limit, tenant_quota_flags[i].unit, b) : "-");
    }
    return ctl_table_print(&table);
}

static int ctl_tenant_send(struct ctl *c, const char *method, const char *path, json_t *body, struct err *err)
{
    AUTO_JSON *answer = NULL;
    auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    if (client_json(c->client, method, path, text, &answer, err) < 0)
        return -1;
    return ctl_tenant_print(c, answer);
}

static int ctl_tenant_create(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object();

    if (ctl_require_args(c, 1, 1, "tenant create [FLAGS] NAME", err) < 0 || ctl_tenant_set_quotas(c, body, err) < 0)
        return -1;
    json_object_set_new(body, "name", json_string(c->args.rest[0]));
    return ctl_tenant_send(c, "POST", "/v1/tenants", body, err);
}

static int ctl_tenant_change(struct ctl *c, struct err *err)
{
    bool suspend = args_find(&c->args, OPT_SUSPEND) != NULL, resume = args_find(&c->args, OPT_RESUME) != NULL;
    AUTO_JSON *body = json_object();

    if (ctl_require_args(c, 1, 1, "tenant set [FLAGS] NAME", err) < 0 || ctl_tenant_set_quotas(c, body, err) < 0)
        return -1;
    if (suspend && resume)
        return err_set(err, ERR_USAGE, "--suspend and --resume exclude each other");
    if (suspend || resume)
        json_object_set_new(body, "suspended", json_boolean(suspend));
    if (!json_object_size(body))
        return err_set(err, ERR_USAGE, "nothing to change; add --suspend, --resume or a quota");
    auto_free char *path = ctl_api_path("/v1/tenants/%s", c->args.rest[0]);
    return ctl_tenant_send(c, "PATCH", path, body, err);
}

static int ctl_tenant_info(struct ctl *c, struct err *err)
{
    if (ctl_require_args(c, 0, 1, "tenant info [NAME]", err) < 0)
        return -1;
    AUTO_JSON *me = NULL;
    const char *name = c->args.nrest ? c->args.rest[0] : NULL;
    if (!name) {
        if (client_json(c->client, "GET", "/v1/whoami", NULL, &me, err) < 0)
            return -1;
        name = ctl_field_text(me, "tenant");
    }
    auto_free char *path = ctl_api_path("/v1/tenants/%s", name);
    return ctl_tenant_send(c, "GET", path, NULL, err);
}

static int ctl_tenant_remove(struct ctl *c, struct err *err)
{
    if (ctl_require_args(c, 1, 1, "tenant rm NAME", err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/tenants/%s", c->args.rest[0]);
    if (client_json(c->client, "DELETE", path, NULL, NULL, err) < 0)
        return -1;
    if (!c->json && !c->quiet)
        report_note("tenant %s is removed; its name cannot be used again", c->args.rest[0]);
    return 0;
}

struct ctl_tenant_listing {
    struct ctl_table table;
    uint64_t now_ms;
    json_t *all;
};

static void ctl_tenant_add_row(void *arg, const json_t *t)
{
    struct ctl_tenant_listing *l = arg;
    char created[CTL_AGE], sandboxes[32];
    const json_t *used = json_object_get(t, "used");

    json_array_append(l->all, (json_t *)(uintptr_t)t);
    ctl_table_row(&l->table, ctl_field_text(t, "name"),
                  *ctl_field_text(t, "removedAt")                 ? "removed"
                  : json_is_true(json_object_get(t, "suspended")) ? "suspended"
                                                                  : "active",
                  ctl_tenant_amount_text(ctl_field_number(used, "sandboxes"), PLAIN, sandboxes),
                  ctl_age(ctl_field_text(t, "createdAt"), l->now_ms, created));
}

static int ctl_tenant_list(struct ctl *c, struct err *err)
{
    struct ctl_tenant_listing l = { .now_ms = clock_real_ms(), .all = json_array() };
    AUTO_JSON *whole = json_pack("{s:o}", "items", l.all);

    if (ctl_require_args(c, 0, 0, "tenant ls", err) < 0)
        return -1;
    ctl_table_row(&l.table, "name", "state", "sandboxes", "created");
    if (ctl_for_each_item(c, "/v1/tenants", ctl_tenant_add_row, &l, err) < 0)
        return -1;
    return c->json ? ctl_print_json(whole) : ctl_table_print(&l.table);
}

int ctl_tenant(struct ctl *c, const char *what, struct err *err)
{
    static const struct ctl_subcommand all[] = { { "create", ctl_tenant_create }, { "ls", ctl_tenant_list },
                                                 { "info", ctl_tenant_info },     { "set", ctl_tenant_change },
                                                 { "rm", ctl_tenant_remove },     { NULL } };

    return ctl_run_subcommand(c, all, "tenant", what, err);
}
