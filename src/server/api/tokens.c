/* Delegated credentials (server/auth/delegation.h) and the identity of the principal. Responses
 * that contain a secret forbid caching. */
#include "server/api/file_transfer.h"

#include "server/auth/delegation.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#define OPERATIONS_MAX 6 /* number of delegable scopes */

static void token_write_scopes(struct jsonw *w, const char *key, uint32_t scopes)
{
    auto_buf names = { 0 };
    char *save = NULL;

    scope_write_list(scopes, &names);
    jsonw_karray(w, key);
    for (char *s = names.len ? strtok_r(names.data, " ", &save) : NULL; s; s = strtok_r(NULL, " ", &save))
        jsonw_str(w, s);
    jsonw_end_array(w);
}

static void token_answer_secret(struct http_req *req, int status, struct buf *out)
{
    http_set_header(req, "Cache-Control", "no-store");
    http_answer_json(req, status, out);
}

static const char *const token_url_methods[] = {
    "GET",
    "PUT",
    NULL,
};

/* --- for one sandbox: tokens and signed URLs --- */

struct token_request {
    struct http_req *req;
    struct api *api;
    json_t *body;
    struct delegation_spec spec;
    const char *method, *path; /* of a signed URL; NULL: a token */
};

static void token_request_free(void *arg)
{
    struct token_request *w = arg;

    json_decref(w->body);
    free(w);
}

static void token_request_answer_token(struct token_request *w, const struct delegated_token *g, const char *token)
{
    struct buf out = { 0 };
    struct jsonw j;

    api_object_begin(&j, &out);
    jsonw_kstr(&j, "id", g->id);
    jsonw_kstr(&j, "sandboxId", g->sandbox);
    token_write_scopes(&j, "operations", g->scopes);
    if (g->port)
        jsonw_ku64(&j, "port", g->port);
    api_write_time(&j, "expiresAt", g->expires_ms);
    jsonw_kstr(&j, "token", token);
    jsonw_end_object(&j);
    token_answer_secret(w->req, 201, &out);
}

static void token_request_answer_url(struct token_request *w, const struct delegated_token *g, const char *signature)
{
    auto_buf url = { 0 };
    struct buf out = { 0 };
    struct jsonw j;

    buf_addf(&url, "/v1/sandboxes/%s/files?path=", g->sandbox);
    text_percent_encode(&url, w->path);
    buf_addf(&url, "&signature=%s", signature);
    api_object_begin(&j, &out);
    jsonw_kstr(&j, "id", g->id);
    jsonw_kstr(&j, "sandboxId", g->sandbox);
    jsonw_kstr(&j, "method", w->method);
    jsonw_kstr(&j, "path", w->path);
    api_write_time(&j, "expiresAt", g->expires_ms);
    jsonw_kstr(&j, "url", url.data);
    jsonw_end_object(&j);
    token_answer_secret(w->req, 201, &out);
}

static void token_request_on_sandbox(void *arg, const struct err *failed, const struct store_sandbox *row)
{
    struct token_request *w = arg;
    auto_buf text = { 0 };
    struct delegated_token g;
    struct err err = { 0 };
    int rc = 0;

    if (http_answer_if_err(w->req, failed))
        return;
    w->spec.owner = row->owner;
    w->spec.sandbox = row->id;
    if (row->state == STORE_SANDBOX_ENDED)
        rc = err_set(&err, ERR_SANDBOX_ENDED, "sandbox %s has ended", row->id);
    else if (w->path)
        rc = delegation_sign_url(w->api->settings.auth, gateway_principal(w->req), &w->spec, w->method, w->path,
                                 clock_real_ms(), &text, &g, &err);
    else
        rc = delegation_make_token(w->api->settings.auth, gateway_principal(w->req), &w->spec, clock_real_ms(), &text,
                                   &g, &err);
    if (rc < 0) {
        http_answer_err(w->req, &err);
        return;
    }
    audit_trail_add_target(w->req, "token", g.id);
    if (w->path)
        token_request_answer_url(w, &g, text.data);
    else
        token_request_answer_token(w, &g, text.data);
}

static int token_request_read_operations(const json_t *body, uint32_t *ret, struct err *err)
{
    json_t *list = NULL;

    if (json_input_array(body, "", "operations", OPERATIONS_MAX, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        uint32_t bits;

        if (!name)
            return err_set(err, ERR_INVALID, "operations[%zu]: must be a string, the name of a scope", i);
        if (scope_parse(name, &bits, err) < 0)
            return err_wrap(err, "operations[%zu]", i);
        *ret |= bits;
    }
    return 0;
}

static int token_request_read_token(struct token_request *w, struct err *err)
{
    static const char *const names[] = { "operations", "port", "ttlMs", NULL };
    uint64_t port = 0;

    if (json_input_require_known_fields(w->body, "", names, err) < 0 ||
        token_request_read_operations(w->body, &w->spec.scopes, err) < 0 ||
        json_input_u64(w->body, "", "port", 1, UINT16_MAX, &port, NULL, err) < 0)
        return -1;
    w->spec.port = (uint16_t)port;
    return json_input_u64(w->body, "", "ttlMs", 1000, DELEGATION_TTL_MAX_MS, &w->spec.ttl_ms, NULL, err);
}

static int token_request_read_url(struct token_request *w, struct err *err)
{
    static const char *const names[] = { "method", "path", "ttlMs", NULL };
    unsigned method = 0;

    if (json_input_require_known_fields(w->body, "", names, err) < 0 ||
        json_input_enum(w->body, "", "method", token_url_methods, &method, err) < 0 ||
        file_transfer_read_body_path(w->req, w->body, "path", &w->path, err) < 0)
        return -1;
    w->method = token_url_methods[method];
    audit_trail_add_target(w->req, "path", w->path);
    return json_input_u64(w->body, "", "ttlMs", 1000, DELEGATION_TTL_MAX_MS, &w->spec.ttl_ms, NULL, err);
}

static void token_request_begin(struct http_req *req, struct api *api,
                                int (*read)(struct token_request *w, struct err *err))
{
    struct token_request *w = mem_new(struct token_request);
    struct err err = { 0 };
    const char *id;

    w->req = req;
    w->api = api;
    http_free_with_request(req, w, token_request_free);
    if (http_query_require_none(req, &err) < 0 || api_read_sandbox_id(req, &id, &err) < 0 ||
        api_read_body(req, &w->body, &err) < 0 || read(w, &err) < 0)
        http_answer_err(req, &err);
    else
        store_sandbox_get(api->settings.store, gateway_visible_owner(req), id, token_request_on_sandbox, w);
}

static void create_token(struct http_req *req, void *ctx)
{
    token_request_begin(req, ctx, token_request_read_token);
}

static void api_signed_url_create(struct http_req *req, void *ctx)
{
    token_request_begin(req, ctx, token_request_read_url);
}

/* --- tickets --- */

/* Characters that a path in a request consists of; others are percent-encoded there and would never
 * match. */
static bool ticket_is_request_path(const char *path)
{
    for (; *path; path++)
        if (*path <= ' ' || *path > '~' || *path == '?' || *path == '#')
            return false;
    return true;
}

static int ticket_read_request(const json_t *body, const char **ret_method, const char **ret_path, struct err *err)
{
    static const char *const names[] = { "method", "path", NULL };
    unsigned method = 0;

    if (json_input_require_known_fields(body, "", names, err) < 0 ||
        json_input_enum(body, "", "method", token_url_methods, &method, err) < 0 ||
        json_input_text(body, "", "path", 1, TICKET_PATH_MAX, ret_path, err) < 0)
        return -1;
    if (!*ret_path || !str_starts(*ret_path, "/v1/") || !ticket_is_request_path(*ret_path))
        return err_set(err, ERR_INVALID, "path: must be the path of a request without a query, for example /v1/events");
    *ret_method = token_url_methods[method];
    return 0;
}

static void api_ticket_create(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    auto_json *body = NULL;
    char text[TICKET_SIZE];
    const char *method = NULL, *path = NULL;
    struct err err = { 0 };
    struct buf out = { 0 };
    struct jsonw w;

    if (http_query_require_none(req, &err) < 0 || api_read_body(req, &body, &err) < 0 ||
        ticket_read_request(body, &method, &path, &err) < 0 ||
        delegation_make_ticket(api->settings.auth, gateway_principal(req), method, path, ev_now(api->settings.ev), text,
                               &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    api_object_begin(&w, &out);
    jsonw_kstr(&w, "method", method);
    jsonw_kstr(&w, "path", path);
    api_write_time(&w, "expiresAt", clock_real_ms() + TICKET_NS / NS_PER_MS);
    jsonw_kstr(&w, "ticket", text);
    jsonw_end_object(&w);
    token_answer_secret(req, 201, &out);
}

/* --- revocation of all tokens --- */

static void api_token_on_all_revoked(void *arg, const struct err *err)
{
    struct gateway *gateway = gateway_of_request(arg);

    if (http_answer_if_err(arg, err))
        return;
    if (gateway)
        open_streams_end_delegated(gateway);
    http_answer_empty(arg, 204);
}

static void api_token_revoke_all(struct http_req *req, void *ctx)
{
    struct api *api = ctx;

    if (api_has_no_query(req))
        delegation_revoke_all(api->settings.auth, api_token_on_all_revoked, req);
}

/* --- whoami --- */

static void api_whoami(struct http_req *req, void *ctx UNUSED)
{
    static const char *const kinds[] = { [PRINCIPAL_KEY] = "key",       [PRINCIPAL_LOCAL] = "local",
                                         [PRINCIPAL_JWT] = "jwt",       [PRINCIPAL_SANDBOX_TOKEN] = "sandbox_token",
                                         [PRINCIPAL_TICKET] = "ticket", [PRINCIPAL_SIGNED] = "signed" };
    const struct principal *p = gateway_principal(req);
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_has_no_query(req))
        return;
    api_object_begin(&w, &out);
    jsonw_kstr(&w, "kind", kinds[p->kind]);
    jsonw_kstr(&w, "tenant", p->owner);
    jsonw_kstr_if(&w, "userId", p->user);
    jsonw_kstr_if(&w, "keyId", p->key_id);
    jsonw_kstr_if(&w, "sandboxId", p->sandbox);
    if (p->port)
        jsonw_ku64(&w, "port", p->port);
    token_write_scopes(&w, "scopes", p->scopes);
    api_write_time(&w, "expiresAt", p->expires_ms);
    api_object_end(req, 200, &w);
}

/* --- login settings: public, for clients without a credential --- */

static void api_login_settings(struct http_req *req, void *ctx)
{
    const struct api_settings *set = &((struct api *)ctx)->settings;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_has_no_query(req))
        return;
    api_object_begin(&w, &out);
    if (set->login_client && *set->login_client) {
        jsonw_kstr(&w, "issuer", set->login_issuer);
        jsonw_kstr(&w, "audience", set->login_audience);
        jsonw_kstr(&w, "clientId", set->login_client);
    }
    api_object_end(req, 200, &w);
}

#define JSON_BODY HTTP_BODY_BUFFERED, 16 * KIB, "application/json"

const struct http_route token_routes[] = {
    { "POST", "/v1/sandboxes/{sandboxId}/tokens", create_token, JSON_BODY, &permission_authenticated },
    { "POST", "/v1/sandboxes/{sandboxId}/files/sign", api_signed_url_create, JSON_BODY, &permission_files_read },
    { "POST", "/v1/tickets", api_ticket_create, JSON_BODY, &permission_self },
    { "DELETE", "/v1/tokens", api_token_revoke_all, HTTP_BODY_NONE, .data = &permission_admin },
    { "GET", "/v1/login", api_login_settings, HTTP_BODY_NONE, .data = &permission_public },
    { "GET", "/v1/whoami", api_whoami, HTTP_BODY_NONE, .data = &permission_self },
    { 0 },
};
