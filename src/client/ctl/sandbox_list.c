/* cove ls and cove rm: the sandboxes of the server together with those that `cove run --keep` left
 * on this host. A server that is missing or slow does not hide the kept ones: it gets little time
 * then, and a note says that its sandboxes are not listed. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "client/cli/report.h"

#include <stdio.h>

#define PATIENCE_MS 2000 /* with a server, if there are kept sandboxes to list */

/* --- listing --- */

void ctl_sandbox_listing_init(struct ctl_sandbox_listing *l, bool all)
{
    *l = (struct ctl_sandbox_listing){ .now_ms = clock_real_ms(), .items = json_array(), .all = all };
    ctl_table_row(&l->table, "id", "name", "state", "runtime", "created", "expires");
}

void ctl_sandbox_listing_add(void *arg, const json_t *s)
{
    struct ctl_sandbox_listing *l = arg;
    const char *ended = ctl_field_text(s, "endedBy"), *name = ctl_field_text(s, "name");
    char created[CTL_AGE], until[CTL_AGE];

    if (!l->all && str_eq(ctl_field_text(s, "state"), "ended"))
        return;
    if ((!*ended || str_eq(ended, "lost")) && *ctl_field_text(json_object_get(s, "reason"), "code"))
        ended = ctl_field_text(json_object_get(s, "reason"),
                               "code"); /* more specific; a sandbox whose creation failed has only this */
    json_array_append(l->items, (json_t *)(uintptr_t)s);
    ctl_table_row(&l->table, ctl_field_text(s, "id"), *name ? name : "-", ctl_field_text(s, "state"),
                  ctl_field_text(s, "runtime"), ctl_age(ctl_field_text(s, "createdAt"), l->now_ms, created),
                  *ended ? ended : ctl_age(ctl_field_text(s, "expiresAt"), l->now_ms, until));
}

static void ctl_sandbox_listing_add_kept(void *arg, const char *id, uint64_t since_real_ns)
{
    struct ctl_sandbox_listing *l = arg;
    char stamp[32], age[CTL_AGE];

    clock_rfc3339(since_real_ns, stamp);
    json_array_append_new(l->items, json_pack("{s:s,s:s,s:s}", "id", id, "state", "kept", "keptSince", stamp));
    ctl_table_row(&l->table, id, "-", "kept", "-", ctl_age(stamp, l->now_ms, age), "-");
}

static void ctl_sandbox_listing_print_ids(const struct ctl_sandbox_listing *l)
{
    for (size_t i = 0; i < json_array_size(l->items); i++)
        ctl_printf("%s", ctl_field_text(json_array_get(l->items, i), "id"));
}

int ctl_sandbox_listing_print(struct ctl *c, struct ctl_sandbox_listing *l)
{
    AUTO_JSON *whole = json_pack("{s:o}", "items", l->items);

    if (!c->json && !c->quiet)
        return ctl_table_print(&l->table);
    ctl_table_free(&l->table);
    if (c->json)
        return ctl_print_json(whole);
    ctl_sandbox_listing_print_ids(l);
    return 0;
}

/* --- both worlds --- */

/* Adds the sandboxes of the server. An error is only a note if there are kept sandboxes, or if no
 * server was named at all. */
static int ctl_sandbox_listing_add_server(struct ctl *c, struct ctl_sandbox_listing *l, struct err *err)
{
    size_t kept = json_array_size(l->items);

    if (kept && c->client)
        client_set_patience(c->client, PATIENCE_MS);
    if (ctl_require_server(c, err) == 0 && ctl_for_each_item(c, l->all ? "/v1/sandboxes" : "/v1/sandboxes?state=!ended",
                                                             ctl_sandbox_listing_add, l, err) == 0)
        return 0;
    bool nameless = c->client && client_is_default(c->client) && err->id == ERR_UNREACHABLE;
    if (!kept && !nameless)
        return -1;
    if (nameless && !kept)
        report_note("no server is configured; 'cove serve' starts one, 'cove login' stores the address of another");
    else if (!nameless)
        report_note("only sandboxes kept on this host are listed: %s", err->msg);
    *err = (struct err){ 0 };
    return 0;
}

static int ctl_sandbox_listing_fill(struct ctl *c, struct ctl_sandbox_listing *l, bool local, bool server,
                                    struct err *err)
{
    if (local)
        ctl_kept_list(c, ctl_sandbox_listing_add_kept, l);
    return server ? ctl_sandbox_listing_add_server(c, l, err) : 0;
}

int ctl_ls(struct ctl *c, struct err *err)
{
    struct ctl_sandbox_listing l;

    if (ctl_require_args(c, 0, 0, "ls [FLAGS]", err) < 0)
        return -1;
    ctl_sandbox_listing_init(&l, args_find(&c->args, OPT_ALL) != NULL);
    if (ctl_sandbox_listing_fill(c, &l, true, !args_find(&c->args, OPT_LOCAL), err) == 0)
        return ctl_sandbox_listing_print(c, &l);
    ctl_table_free(&l.table);
    json_decref(l.items);
    return -1;
}

/* --- removal --- */

static int ctl_rm_one(struct ctl *c, const struct ctl_sandbox_name *name, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s", name->id);
    AUTO_JSON *answer = NULL;

    if ((name->kept ? ctl_kept_remove(c, name->id, err) : client_json(c->client, "DELETE", path, NULL, &answer, err)) <
        0)
        return -1;
    if (c->json)
        return answer ? ctl_print_json(answer) : 0;
    if (!c->quiet)
        ctl_printf("%s", name->id);
    return 0;
}

static int ctl_rm_all(struct ctl *c, bool local, bool server, struct err *err)
{
    struct ctl_sandbox_listing l;
    size_t kept = 0, n;
    int status = 0;

    ctl_sandbox_listing_init(&l, false);
    int bad = ctl_sandbox_listing_fill(c, &l, local, server, err);
    ctl_table_free(&l.table);
    n = json_array_size(l.items);
    for (size_t i = 0; i < n; i++)
        kept += str_eq(ctl_field_text(json_array_get(l.items, i), "state"), "kept");
    auto_free char *question = str_printf("end %zu sandbox%s of %s and %zu kept on this host", n - kept,
                                          n - kept == 1 ? "" : "es",
                                          c->client ? client_endpoint(c->client) : "the server", kept);
    if (!bad && n)
        bad = ctl_confirm(c, question, err);
    for (size_t i = 0; i < n && !bad; i++) {
        const json_t *s = json_array_get(l.items, i);
        auto_free char *id = str_dup(ctl_field_text(s, "id"));
        struct ctl_sandbox_name name = { id, str_eq(ctl_field_text(s, "state"), "kept") };

        if (ctl_rm_one(c, &name, err) < 0) /* the others are removed all the same */
            status = report_error(err, c->json);
    }
    json_decref(l.items);
    return bad ? -1 : status;
}

int ctl_rm(struct ctl *c, struct err *err)
{
    bool all = args_find(&c->args, OPT_ALL) != NULL, server_only = c->verb->id == VERB_SANDBOX;
    int status = 0;

    if (all == (c->args.nrest > 0))
        return err_set(err, ERR_USAGE, "usage: cove %s ID..., or cove %s --all", server_only ? "sandbox rm" : "rm",
                       server_only ? "sandbox rm" : "rm");
    if (all)
        return ctl_rm_all(c, !server_only, !args_find(&c->args, OPT_LOCAL), err);
    for (int i = 0; i < c->args.nrest; i++) {
        struct ctl_sandbox_name name = { 0 };

        if (ctl_find_sandbox(c, c->args.rest[i], &name, err) < 0 || ctl_rm_one(c, &name, err) < 0)
            status = report_error(err, c->json);
        free(name.id);
    }
    return status;
}
