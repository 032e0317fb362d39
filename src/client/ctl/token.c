/* cove token: create, url, ticket, revoke. A secret is printed alone on standard output, so that a
 * script can read it. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"
#include "client/cli/report.h"

#include <stdio.h>

#define TTL_MAX_MS (24ull * 3600 * 1000)

static int ctl_token_set_ttl(const struct ctl *c, json_t *body, struct err *err)
{
    const struct arg *a = args_find(&c->args, OPT_TTL);
    uint64_t ms;

    if (!a)
        return 0;
    if (!str_to_ms(a->value, &ms) || ms < 1000 || ms > TTL_MAX_MS)
        return err_set(err, ERR_USAGE, "--ttl %.40s: must be a time from 1s to 24h, such as 10m", a->value);
    json_object_set_new(body, "ttlMs", json_integer((json_int_t)ms));
    return 0;
}

static void ctl_token_set_method(const struct ctl *c, json_t *body)
{
    json_object_set_new(body, "method", json_string(args_find(&c->args, OPT_PUT) ? "PUT" : "GET"));
}

static int ctl_token_post(struct ctl *c, const char *path, const json_t *body, json_t **ret, struct err *err)
{
    auto_free char *text = json_dumps(body, JSON_COMPACT);

    return client_json(c->client, "POST", path, text, ret, err);
}

/* --- create and url --- */

static int ctl_token_set_operations(const struct ctl *c, json_t *body)
{
    static const char *const usual[] = { "executions", "files" };
    json_t *list = json_array();

    for (size_t i = 0; i < c->args.n; i++)
        if (c->args.items[i].opt->id == OPT_SCOPE)
            json_array_append_new(list, json_string(c->args.items[i].value));
    for (size_t i = 0; i < ARRAY_LEN(usual) && !args_find(&c->args, OPT_SCOPE); i++)
        json_array_append_new(list, json_string(usual[i]));
    return json_object_set_new(body, "operations", list);
}

static int ctl_token_create(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;
    auto_free char *id = NULL;

    if (ctl_require_args(c, 1, 1, "token create [FLAGS] SANDBOX", err) < 0 || ctl_token_set_ttl(c, body, err) < 0)
        return -1;
    if (ctl_resolve_sandbox(c, c->args.rest[0], &id, err) < 0)
        return -1;
    ctl_token_set_operations(c, body);
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/tokens", id);
    if (ctl_token_post(c, path, body, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_printf("%s", ctl_field_text(answer, "token"));
    if (!c->quiet)
        report_note("token for sandbox %s, expires %s; it won't be shown again", id,
                    ctl_field_text(answer, "expiresAt"));
    return 0;
}

/* The server returns only a path; the client adds the address. With a Unix socket there is no
 * address to add. */
static char *ctl_token_absolute_url(const struct ctl *c, const char *url)
{
    const char *where = client_endpoint(c->client);

    return str_printf("%s%s", str_starts(where, "http") ? where : "", url);
}

static int ctl_token_make_url(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;
    auto_free char *id = NULL;

    if (ctl_require_args(c, 1, 1, "token url [FLAGS] SANDBOX:PATH", err) < 0 || ctl_token_set_ttl(c, body, err) < 0)
        return -1;
    const char *word = c->args.rest[0], *colon = strchr(word, ':');
    if (!colon || !colon[1])
        return err_set(err, ERR_USAGE, "missing file; usage: cove token url SANDBOX:PATH");
    auto_free char *name = str_dup_n(word, (size_t)(colon - word)), *inside = ctl_sandbox_path(colon + 1);
    if (ctl_resolve_sandbox(c, name, &id, err) < 0)
        return -1;
    json_object_set_new(body, "path", json_string(inside));
    ctl_token_set_method(c, body);
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/files/sign", id);
    if (ctl_token_post(c, path, body, &answer, err) < 0)
        return -1;
    auto_free char *url = ctl_token_absolute_url(c, ctl_field_text(answer, "url"));
    json_object_set_new(answer, "url", json_string(url));
    if (c->json)
        return ctl_print_json(answer);
    ctl_printf("%s", url);
    if (!c->quiet)
        report_note("%s of %s, expires %s%s", ctl_field_text(answer, "method"), inside,
                    ctl_field_text(answer, "expiresAt"),
                    str_starts(url, "http") ? "" : "; prefix it with the address of the server");
    return 0;
}

/* --- ticket and revoke --- */

static int ctl_token_make_ticket(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;

    if (ctl_require_args(c, 1, 1, "token ticket [FLAGS] PATH", err) < 0)
        return -1;
    json_object_set_new(body, "path", json_string(c->args.rest[0]));
    ctl_token_set_method(c, body);
    if (ctl_token_post(c, "/v1/tickets", body, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_printf("%s", ctl_field_text(answer, "ticket"));
    if (!c->quiet)
        report_note("valid for one %s within a minute, as %s?ticket=...", ctl_field_text(answer, "method"),
                    c->args.rest[0]);
    return 0;
}

static int ctl_token_revoke_all(struct ctl *c, struct err *err)
{
    AUTO_JSON *answer = NULL;

    if (ctl_require_args(c, 0, 0, "token revoke --all", err) < 0)
        return -1;
    if (!args_find(&c->args, OPT_ALL))
        return err_set(err, ERR_USAGE,
                       "the server keeps no list of tokens; use --all to revoke every token and every signed URL; "
                       "a single one ends with its sandbox or with the key that made it");
    if (client_json(c->client, "DELETE", "/v1/tokens", NULL, &answer, err) < 0)
        return -1;
    if (!c->quiet)
        report_note("every token and every signed URL is revoked; keys are not");
    return 0;
}

int ctl_token(struct ctl *c, const char *what, struct err *err)
{
    if (str_eq(what, "create"))
        return ctl_token_create(c, err);
    if (str_eq(what, "url"))
        return ctl_token_make_url(c, err);
    if (str_eq(what, "ticket"))
        return ctl_token_make_ticket(c, err);
    return ctl_token_revoke_all(c, err);
}
