/* What somebody hands on of their rights (auth/passes.h), and who somebody is. Secrets are in answers only, which are
 * never kept by anybody in between. */
#include "api/transfer.h"

#include "auth/passes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"

#define OPERATIONS_MAX 6 /* as many as there are */

static uint64_t now_ms(void)
{
    return clock_real_ns() / NS_PER_MS;
}

static void json_scopes(struct jsonw *w, const char *key, uint32_t scopes)
{
    auto_buf names = { 0 };
    char *save = NULL;

    scope_write_list(scopes, &names);
    jsonw_key(w, key);
    jsonw_array(w);
    for (char *s = names.len ? strtok_r(names.data, " ", &save) : NULL; s; s = strtok_r(NULL, " ", &save))
        jsonw_str(w, s);
    jsonw_end_array(w);
}

static void answer_secret(struct http_req *req, int status, struct buf *out)
{
    http_set_header(req, "Cache-Control", "no-store");
    http_answer_json(req, status, out);
}

static const char *const methods[] = {
    "GET",
    "PUT",
    NULL,
};

/* --- of one sandbox: tokens and URLs --- */

struct wish {
    struct http_req *req;
    struct api *api;
    json_t *body;
    struct pass_spec spec;
    const char *method, *path; /* of a URL; NULL: a token */
};

static void wish_free(struct wish *w)
{
    json_decref(w->body);
    free(w);
}

static void wish_refuse(struct wish *w, const struct err *err)
{
    http_answer_err(w->req, err);
    wish_free(w);
}

static void answer_token(struct wish *w, const struct pass *g, const char *token)
{
    struct buf out = { 0 };
    struct jsonw j;

    jsonw_init(&j, &out, 0);
    jsonw_object(&j);
    jsonw_kstr(&j, "id", g->id);
    jsonw_kstr(&j, "sandboxId", g->sandbox);
    json_scopes(&j, "operations", g->scopes);
    if (g->port)
        jsonw_ku64(&j, "port", g->port);
    api_time(&j, "expiresAt", g->expires_ms);
    jsonw_kstr(&j, "token", token);
    jsonw_end_object(&j);
    answer_secret(w->req, 201, &out);
}

static void answer_url(struct wish *w, const struct pass *g, const char *signature)
{
    auto_buf url = { 0 };
    struct buf out = { 0 };
    struct jsonw j;

    buf_addf(&url, "/v1/sandboxes/%s/files?path=", g->sandbox);
    text_query(&url, w->path);
    buf_addf(&url, "&signature=%s", signature);
    jsonw_init(&j, &out, 0);
    jsonw_object(&j);
    jsonw_kstr(&j, "id", g->id);
    jsonw_kstr(&j, "sandboxId", g->sandbox);
    jsonw_kstr(&j, "method", w->method);
    jsonw_kstr(&j, "path", w->path);
    api_time(&j, "expiresAt", g->expires_ms);
    jsonw_kstr(&j, "url", url.data);
    jsonw_end_object(&j);
    answer_secret(w->req, 201, &out);
}

static void on_sandbox(void *arg, const struct err *failed, const struct store_sandbox *row)
{
    struct wish *w = arg;
    auto_buf text = { 0 };
    struct pass g;
    struct err err = { 0 };
    int rc = 0;

    if (failed) {
        wish_refuse(w, failed);
        return;
    }
    w->spec.owner = row->owner;
    w->spec.sandbox = row->id;
    if (row->state == STORE_SB_ENDED)
        rc = err_set(&err, ERR_SANDBOX_ENDED, "sandbox %s has ended", row->id);
    else if (w->path)
        rc = auth_url_sign(w->api->set.auth, api_who(w->req), &w->spec, w->method, w->path, now_ms(), &text, &g, &err);
    else
        rc = auth_token_make(w->api->set.auth, api_who(w->req), &w->spec, now_ms(), &text, &g, &err);
    if (rc < 0) {
        wish_refuse(w, &err);
        return;
    }
    api_audit_target(w->req, "token", g.id);
    if (w->path)
        answer_url(w, &g, text.data);
    else
        answer_token(w, &g, text.data);
    wish_free(w);
}

static int read_operations(const json_t *body, uint32_t *ret, struct err *err)
{
    json_t *list = NULL;

    if (body_array(body, "", "operations", OPERATIONS_MAX, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        uint32_t bits;

        if (!name)
            return err_set(err, ERR_INVALID, "operations[%zu]: an operation is a text, the name of a scope", i);
        if (scope_parse(name, &bits, err) < 0)
            return err_wrap(err, "operations[%zu]", i);
        *ret |= bits;
    }
    return 0;
}

static int read_token(struct wish *w, struct err *err)
{
    static const char *const names[] = { "operations", "port", "ttlMs", NULL };
    uint64_t port = 0;

    if (body_only(w->body, "", names, err) < 0 || read_operations(w->body, &w->spec.scopes, err) < 0 ||
        body_u64(w->body, "", "port", 1, UINT16_MAX, &port, NULL, err) < 0)
        return -1;
    w->spec.port = (uint16_t)port;
    return body_u64(w->body, "", "ttlMs", 1000, PASS_TTL_MAX_MS, &w->spec.ttl_ms, NULL, err);
}

static int read_url(struct wish *w, struct err *err)
{
    static const char *const names[] = { "method", "path", "ttlMs", NULL };
    unsigned method = 0;

    if (body_only(w->body, "", names, err) < 0 || body_word(w->body, "", "method", methods, &method, err) < 0 ||
        body_text(w->body, "", "path", 1, 4000, &w->path, err) < 0 || transfer_check_path(w->path, "path", err) < 0)
        return -1;
    w->method = methods[method];
    api_audit_target(w->req, "path", w->path);
    return body_u64(w->body, "", "ttlMs", 1000, PASS_TTL_MAX_MS, &w->spec.ttl_ms, NULL, err);
}

static void begin(struct http_req *req, struct api *api, int (*read)(struct wish *w, struct err *err))
{
    struct wish *w = mem_new(struct wish);
    struct err err = { 0 };
    const char *id;

    w->req = req;
    w->api = api;
    if (api_no_query(req, &err) < 0 || api_sandbox_id(req, &id, &err) < 0 || api_body(req, &w->body, &err) < 0 ||
        read(w, &err) < 0)
        wish_refuse(w, &err);
    else
        store_sandbox_get(api->set.store, api_sees(req), id, on_sandbox, w);
}

static void create_token(struct http_req *req, void *ctx)
{
    begin(req, ctx, read_token);
}

static void sign_url(struct http_req *req, void *ctx)
{
    begin(req, ctx, read_url);
}

/* --- tickets --- */

/* Letters that a path has in a request; others are percent-encoded there, and would never match. */
static bool is_target(const char *path)
{
    for (; *path; path++)
        if (*path <= ' ' || *path > '~' || *path == '?' || *path == '#')
            return false;
    return true;
}

static int read_ticket(const json_t *body, const char **ret_method, const char **ret_path, struct err *err)
{
    static const char *const names[] = { "method", "path", NULL };
    unsigned method = 0;

    if (body_only(body, "", names, err) < 0 || body_word(body, "", "method", methods, &method, err) < 0 ||
        body_text(body, "", "path", 1, TICKET_PATH_MAX, ret_path, err) < 0)
        return -1;
    if (!*ret_path || !str_starts(*ret_path, "/v1/") || !is_target(*ret_path))
        return err_set(err, ERR_INVALID,
                       "path: write the path of the request, for example /v1/events, without a query");
    *ret_method = methods[method];
    return 0;
}

static void create_ticket(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    auto_json *body = NULL;
    char text[TICKET_SIZE];
    const char *method = NULL, *path = NULL;
    struct err err = { 0 };
    struct buf out = { 0 };
    struct jsonw w;

    if (api_no_query(req, &err) < 0 || api_body(req, &body, &err) < 0 || read_ticket(body, &method, &path, &err) < 0 ||
        auth_ticket_make(api->set.auth, api_who(req), method, path, ev_now(api->set.ev), text, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "method", method);
    jsonw_kstr(&w, "path", path);
    api_time(&w, "expiresAt", now_ms() + TICKET_NS / NS_PER_MS);
    jsonw_kstr(&w, "ticket", text);
    jsonw_end_object(&w);
    answer_secret(req, 201, &out);
}

/* --- all of them --- */

static void on_ended(void *arg, const struct err *err)
{
    const struct api_request *r = http_user(arg);

    if (err) {
        http_answer_err(arg, err);
        return;
    }
    if (r->api)
        live_end_passed(r->api);
    http_answer_empty(arg, 204);
}

static void end_all(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct err err = { 0 };

    if (api_no_query(req, &err) < 0)
        http_answer_err(req, &err);
    else
        auth_passes_end(api->set.auth, on_ended, req);
}

/* --- who am I --- */

static void whoami(struct http_req *req, void *ctx UNUSED)
{
    static const char *const kinds[] = { [PRINCIPAL_KEY] = "key",       [PRINCIPAL_LOCAL] = "local",
                                         [PRINCIPAL_JWT] = "jwt",       [PRINCIPAL_SANDBOX_TOKEN] = "sandbox_token",
                                         [PRINCIPAL_TICKET] = "ticket", [PRINCIPAL_SIGNED] = "signed" };
    const struct principal *p = api_who(req);
    struct err err = { 0 };
    struct buf out = { 0 };
    struct jsonw w;

    if (api_no_query(req, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "kind", kinds[p->kind]);
    jsonw_kstr(&w, "tenant", p->owner);
    if (p->user[0])
        jsonw_kstr(&w, "userId", p->user);
    if (p->key_id[0])
        jsonw_kstr(&w, "keyId", p->key_id);
    if (p->sandbox[0])
        jsonw_kstr(&w, "sandboxId", p->sandbox);
    if (p->port)
        jsonw_ku64(&w, "port", p->port);
    json_scopes(&w, "scopes", p->scopes);
    api_time(&w, "expiresAt", p->expires_ms);
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

/* --- where to log in: told to everybody, for those who have nothing yet --- */

static void login(struct http_req *req, void *ctx)
{
    const struct api_settings *set = &((struct api *)ctx)->set;
    struct err err = { 0 };
    struct buf out = { 0 };
    struct jsonw w;

    if (api_no_query(req, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    if (set->login_client && *set->login_client) {
        jsonw_kstr(&w, "issuer", set->login_issuer);
        jsonw_kstr(&w, "audience", set->login_audience);
        jsonw_kstr(&w, "clientId", set->login_client);
    }
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

#define JSON_BODY HTTP_BODY_BUFFERED, 16 * KIB, "application/json"

const struct http_route token_routes[] = {
    { "POST", "/v1/sandboxes/{sandboxId}/tokens", create_token, JSON_BODY, &api_any },
    { "POST", "/v1/sandboxes/{sandboxId}/files/sign", sign_url, JSON_BODY, &api_files_read },
    { "POST", "/v1/tickets", create_ticket, JSON_BODY, &api_self },
    { "POST", "/v1/tokens/revoke", end_all, HTTP_BODY_NONE, .data = &api_admin },
    { "GET", "/v1/login", login, HTTP_BODY_NONE, .data = &api_open },
    { "GET", "/v1/whoami", whoami, HTTP_BODY_NONE, .data = &api_self },
    { 0 },
};
