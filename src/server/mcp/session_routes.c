/* /v1/mcp/sessions: the open sessions of the tenant, and sessions for a bridge. */
#include "server/mcp/mcp_internal.h"

#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define MCP_SESSIONS_PAGE_MAX 1000u

static void mcp_write_session(const struct mcp_session *s, bool with_secret, struct jsonw *w)
{
    char text[32];
    uint64_t expires_ms = s->used_ms + s->mcp->settings.idle_ms;

    jsonw_object(w);
    jsonw_kstr(w, "id", s->id);
    if (with_secret)
        jsonw_kstr(w, "secret", s->secret);
    jsonw_kstr(w, "kind", s->is_bridge ? "bridge" : "client");
    jsonw_kstr_if(w, "protocolVersion", s->revision);
    jsonw_kstr_if(w, "clientName", s->client_name);
    jsonw_kstr_if(w, "clientVersion", s->client_version);
    jsonw_kstr_if(w, "sandboxId", s->sandbox);
    jsonw_kstr_if(w, "template", s->template);
    jsonw_kstr_if(w, "createdBy", s->user[0] ? s->user : s->key_id);
    jsonw_kstr(w, "createdAt", clock_rfc3339_ms(s->created_ms, text));
    jsonw_kstr(w, "usedAt", clock_rfc3339_ms(s->used_ms, text));
    jsonw_kstr(w, "expiresAt", clock_rfc3339_ms(expires_ms, text));
    jsonw_end_object(w);
}

static bool mcp_session_is_visible(const struct mcp_session *s, const struct http_req *req)
{
    const char *owner = gateway_visible_owner(req);

    return str_eq(owner, STORE_ANY_OWNER) || str_eq(s->owner, owner);
}

/* --- opening --- */

struct mcp_session_request {
    struct http_req *req;
    struct mcp *mcp;
    json_t *body;                   /* NULL: none */
    const char *sandbox, *template; /* at most one; borrowed from the body */
};

static void mcp_session_request_free(void *arg)
{
    struct mcp_session_request *r = arg;

    json_decref(r->body);
    free(r);
}

static void mcp_session_request_finish(struct mcp_session_request *r)
{
    struct buf out = { 0 };
    struct err err = { 0 };
    struct jsonw w;
    struct mcp_session *s = mcp_session_open(r->mcp, gateway_principal(r->req), &err);

    if (!s) {
        http_answer_err(r->req, &err);
        return;
    }
    s->is_bridge = true;
    if (r->sandbox) {
        s->borrows_sandbox = true;
        (void)str_copy(s->sandbox, sizeof(s->sandbox), r->sandbox);
    }
    (void)str_copy(s->template, sizeof(s->template), r->template ? r->template : "");
    audit_trail_add_target(r->req, "mcp_session", s->id);
    jsonw_init(&w, &out, 0);
    mcp_write_session(s, true, &w);
    http_answer_json(r->req, 201, &out);
}

static void mcp_session_on_sandbox(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct mcp_session_request *r = arg;

    if (http_answer_if_err(r->req, err))
        return;
    if (row->state == STORE_SANDBOX_ENDED)
        http_refuse(r->req, ERR_SANDBOX_ENDED, "sandbox: %s has ended", row->id);
    else
        mcp_session_request_finish(r);
}

static void mcp_session_on_template(void *arg, const struct err *err, const struct store_template *row)
{
    struct mcp_session_request *r = arg;

    if (err || !row)
        http_refuse(r->req, ERR_MISSING, "template: there is no template '%.63s'; GET /v1/templates lists them",
                    r->template);
    else
        mcp_session_request_finish(r);
}

/* The body may be absent. */
static int mcp_session_request_read(struct mcp_session_request *r, struct err *err)
{
    static const char *const names[] = { "sandbox", "template", NULL };
    size_t len;
    const char *text = http_body(r->req, &len), *own = gateway_principal(r->req)->sandbox;

    if (http_query_require_none(r->req, err) < 0)
        return -1;
    if (len == 0)
        return 0;
    if (json_input_parse(text, len, &r->body, err) < 0 ||
        json_input_require_known_fields(r->body, "", names, err) < 0 ||
        json_input_text(r->body, "", "sandbox", 1, 64, &r->sandbox, err) < 0 ||
        json_input_text(r->body, "", "template", 1, STORE_NAME_MAX, &r->template, err) < 0)
        return -1;
    if (r->sandbox && r->template)
        return err_set(err, ERR_INVALID, "sandbox and template cannot be combined; give one of them");
    if (r->template && own[0])
        return err_set(err, ERR_DENIED, "template: this credential is only valid for one sandbox; omit the template");
    if (r->sandbox && (!id_valid(r->sandbox, "sb") || (own[0] && !str_eq(r->sandbox, own))))
        return err_set(err, ERR_MISSING, "sandbox: there is no such sandbox");
    return 0;
}

static void mcp_session_create(struct http_req *req, void *ctx)
{
    struct mcp_session_request *r = mem_new(struct mcp_session_request);
    struct mcp *m = ctx;
    struct err err = { 0 };

    r->req = req;
    r->mcp = m;
    http_free_with_request(req, r, mcp_session_request_free);
    if (mcp_session_request_read(r, &err) < 0)
        http_answer_err(req, &err);
    else if (r->sandbox)
        store_sandbox_get(m->settings.store, gateway_visible_owner(req), r->sandbox, mcp_session_on_sandbox, r);
    else if (r->template)
        template_cache_get(m->template_cache, r->template, ev_now(m->settings.ev), mcp_session_on_template, r);
    else
        mcp_session_request_finish(r);
}

/* --- the list --- */

/* The cursor is the number of the last session of the page. */
static int mcp_session_read_page(const struct http_req *req, uint64_t *ret_limit, uint64_t *ret_before, struct err *err)
{
    static const char *const names[] = { "limit", "cursor", NULL };
    const char *cursor = http_query(req, "cursor");

    *ret_before = UINT64_MAX;
    if (http_query_require_known(req, names, err) < 0 ||
        http_query_u64(req, "limit", 1, MCP_SESSIONS_PAGE_MAX, 100, ret_limit, err) < 0)
        return -1;
    if (cursor && (!str_eat(&cursor, "ms.") || !str_to_u64(cursor, UINT64_MAX - 1, ret_before)))
        return err_set(err, ERR_INVALID, "cursor: not a cursor of this list; pass the nextCursor of the previous page");
    return 0;
}

static void mcp_session_list(struct http_req *req, void *ctx)
{
    const struct mcp *m = ctx;
    struct buf out = { 0 };
    struct err err = { 0 };
    struct jsonw w;
    uint64_t limit, before, last = 0;
    bool is_cut = false;

    if (mcp_session_read_page(req, &limit, &before, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "items");
    for (const struct mcp_session *s = m->sessions; s && !is_cut; s = s->next) {
        if (s->number >= before || !mcp_session_is_visible(s, req))
            continue;
        is_cut = limit-- == 0;
        if (is_cut)
            break;
        mcp_write_session(s, false, &w);
        last = s->number;
    }
    jsonw_end_array(&w);
    if (is_cut) {
        auto_free char *next = str_printf("ms.%" PRIu64, last);

        jsonw_kstr(&w, "nextCursor", next);
    }
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

static struct mcp_session *mcp_session_by_id(struct http_req *req, struct mcp *m)
{
    const char *id = http_param(req, "mcpSessionId");
    struct mcp_session *s = m->sessions;
    struct err err = { 0 };

    if (http_query_require_none(req, &err) < 0) {
        http_answer_err(req, &err);
        return NULL;
    }
    while (s && !(str_eq(s->id, id) && mcp_session_is_visible(s, req)))
        s = s->next;
    if (!s)
        http_refuse(req, ERR_MISSING, "there is no such MCP session; GET /v1/mcp/sessions lists them");
    return s;
}

static void mcp_session_get(struct http_req *req, void *ctx)
{
    const struct mcp_session *s = mcp_session_by_id(req, ctx);
    struct buf out = { 0 };
    struct jsonw w;

    if (!s)
        return;
    jsonw_init(&w, &out, 0);
    mcp_write_session(s, false, &w);
    http_answer_json(req, 200, &out);
}

static void mcp_session_delete(struct http_req *req, void *ctx)
{
    struct mcp_session *s = mcp_session_by_id(req, ctx);

    if (!s)
        return;
    mcp_session_end(s);
    http_answer_empty(req, 204);
}

/* A token for one sandbox opens sessions that have this sandbox. */
static const struct gateway_permission mcp_permission_open = { .class = AUTH_CLASS_CREATE,
                                                               .allows_sandbox_credential = true,
                                                               .requires_live_sandbox = true };
static const struct gateway_permission mcp_permission_read = { .scopes = SCOPE_BIT(SANDBOXES_READ) };
static const struct gateway_permission mcp_permission_end = { .scopes = SCOPE_BIT(SANDBOXES_WRITE) };

const struct http_route mcp_session_routes[] = {
    { "POST", "/v1/mcp/sessions", mcp_session_create, HTTP_BODY_BUFFERED, .accept = "application/json",
      .data = &mcp_permission_open },
    { "GET", "/v1/mcp/sessions", mcp_session_list, HTTP_BODY_NONE, .data = &mcp_permission_read },
    { "GET", "/v1/mcp/sessions/{mcpSessionId}", mcp_session_get, HTTP_BODY_NONE, .data = &mcp_permission_read },
    { "DELETE", "/v1/mcp/sessions/{mcpSessionId}", mcp_session_delete, HTTP_BODY_NONE, .data = &mcp_permission_end },
    { 0 },
};
