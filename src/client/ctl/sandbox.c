/* cove sandbox: create, ls, info, rm, pause, resume, set, connections. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "client/cli/report.h"

#include <stdio.h>

static int ctl_sandbox_create(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;

    if (ctl_require_args(c, 0, 0, "sandbox create [FLAGS]", err) < 0)
        return -1;
    ctl_set_text(c, OPT_NAME, body, "name");
    ctl_set_text(c, OPT_TEMPLATE, body, "template");
    if (ctl_set_spec(c, body, err) < 0)
        return -1;
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    if (client_json(c->client, "POST", "/v1/sandboxes", text, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_printf("%s", ctl_field_text(answer, "id"));
    char until[CTL_AGE];
    const char *name = ctl_field_text(answer, *ctl_field_text(answer, "name") ? "name" : "id");
    if (!c->quiet && *ctl_field_text(answer, "expiresAt"))
        report_note("expires %s; 'cove exec %s -- COMMAND' runs a command in it",
                    ctl_age(ctl_field_text(answer, "expiresAt"), clock_real_ms(), until), name);
    return 0;
}

static int ctl_sandbox_list(struct ctl *c, struct err *err)
{
    static const struct {
        int opt;
        const char *form;
    } filters[] = { { OPT_STATE, "state=%s" },
                    { OPT_NAME, "name=%s" },
                    { OPT_TEMPLATE, "template=%s" },
                    { OPT_METADATA, "metadata=%s" } };
    bool all = args_find(&c->args, OPT_STATE) || args_find(&c->args, OPT_ALL);
    struct ctl_sandbox_listing l;

    if (ctl_require_args(c, 0, 0, "sandbox ls [FLAGS]", err) < 0)
        return -1;
    auto_buf path = { 0 };
    buf_addf(&path, "/v1/sandboxes%s", all ? "" : "?state=!ended");
    for (size_t i = 0, n = !all; i < c->args.n; i++)
        for (size_t k = 0; k < ARRAY_LEN(filters); k++)
            if (c->args.items[i].opt->id == filters[k].opt) {
                auto_free char *pair = ctl_api_path(filters[k].form, c->args.items[i].value);

                buf_addf(&path, "%c%s", n++ ? '&' : '?', pair);
            }
    ctl_sandbox_listing_init(&l, all);
    int bad = ctl_for_each_item(c, path.data, ctl_sandbox_listing_add, &l, err);
    int status = bad ? -1 : ctl_sandbox_listing_print(c, &l);
    if (bad)
        json_decref(l.items);
    return status;
}

/* Sends one request for each given sandbox; stops at the first failure. */
static int ctl_sandbox_for_each_named(struct ctl *c, const char *method, const char *form, const char *body,
                                      const char *usage, void (*say)(const json_t *answer), struct err *err)
{
    if (ctl_require_args(c, 1, 1000, usage, err) < 0)
        return -1;
    for (int i = 0; i < c->args.nrest; i++) {
        auto_free char *id = NULL;
        AUTO_JSON *answer = NULL;

        if (ctl_resolve_sandbox(c, c->args.rest[i], &id, err) < 0)
            return -1;
        auto_free char *path = ctl_api_path(form, id);
        if (client_json(c->client, method, path, body, &answer, err) < 0)
            return -1;
        if (c->json)
            (void)ctl_print_json(answer);
        else if (!c->quiet)
            say(answer);
    }
    return 0;
}

static void ctl_sandbox_print_id(const json_t *s)
{
    ctl_printf("%s", ctl_field_text(s, "id"));
}

static void ctl_sandbox_print_all(const json_t *s)
{
    static const char *const shown[] = { "id",     "name",      "state",     "runtime", "template", "level",
                                         "driver", "createdAt", "expiresAt", "endedAt", "endedBy" };
    const json_t *r = json_object_get(s, "resources"), *why = json_object_get(s, "reason");
    char memory[32], storage[32];

    for (size_t i = 0; i < ARRAY_LEN(shown); i++)
        if (*ctl_field_text(s, shown[i]))
            ctl_printf("%-10s %s", shown[i], ctl_field_text(s, shown[i]));
    if (why)
        ctl_printf("%-10s %s", "reason", ctl_field_text(why, "message"));
    uint64_t millis = ctl_field_number(r, "cpuMillis");
    ctl_printf("%-10s %.3g processor%s, %s memory, %s disk, %" PRIu64 " processes", "limits", (double)millis / 1000,
               millis == 1000 ? "" : "s", str_bytes(ctl_field_number(r, "memoryBytes"), memory),
               str_bytes(ctl_field_number(r, "storageBytes"), storage), ctl_field_number(r, "pids"));
    ctl_network_print(json_object_get(s, "network"), 10);
}

static int ctl_sandbox_set(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object();

    ctl_set_text(c, OPT_NAME, body, "name");
    ctl_set_text(c, OPT_IDLE_ACTION, body, "idleAction");
    if (ctl_set_limit(c, LIMIT_LIFETIME, body, "lifetimeMs", err) < 0 ||
        ctl_set_limit(c, LIMIT_IDLE, body, "idleTimeoutMs", err) < 0 || ctl_set_network(c, body, err) < 0 ||
        ctl_set_pairs(c, OPT_METADATA, false, body, "metadata", err) < 0)
        return -1;
    if (json_object_size(body) == 0)
        return err_set(
            err, ERR_USAGE,
            "nothing to change; use --name, --metadata, --lifetime, --idle, --idle-action, --allow, --deny, --secret "
            "or --net");
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    return ctl_sandbox_for_each_named(c, "PATCH", "/v1/sandboxes/%s", text, "sandbox set [FLAGS] ID...",
                                      ctl_sandbox_print_id, err);
}

int ctl_sandbox(struct ctl *c, const char *what, struct err *err)
{
    if (str_eq(what, "create"))
        return ctl_sandbox_create(c, err);
    if (str_eq(what, "ls"))
        return ctl_sandbox_list(c, err);
    if (str_eq(what, "info"))
        return ctl_sandbox_for_each_named(c, "GET", "/v1/sandboxes/%s", NULL, "sandbox info ID...",
                                          ctl_sandbox_print_all, err);
    if (str_eq(what, "rm") && args_find(&c->args, OPT_ALL))
        return ctl_rm(c, err);
    if (str_eq(what, "rm"))
        return ctl_sandbox_for_each_named(c, "DELETE", "/v1/sandboxes/%s", NULL, "sandbox rm ID...",
                                          ctl_sandbox_print_id, err);
    if (str_eq(what, "pause"))
        return ctl_sandbox_for_each_named(c, "POST", "/v1/sandboxes/%s/pause", NULL, "sandbox pause ID...",
                                          ctl_sandbox_print_id, err);
    if (str_eq(what, "resume"))
        return ctl_sandbox_for_each_named(c, "POST", "/v1/sandboxes/%s/resume", NULL, "sandbox resume ID...",
                                          ctl_sandbox_print_id, err);
    if (str_eq(what, "connections"))
        return ctl_sandbox_connections(c, err);
    return ctl_sandbox_set(c, err);
}
