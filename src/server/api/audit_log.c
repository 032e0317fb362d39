/* /v1/audit and its key: the records of the principal's tenant, or of all tenants with `admin`.
 * Security events are the records whose action begins with "security.".
 *
 * Records are returned exactly as stored, byte for byte, so that an export can be verified against
 * their hashes. A page may be short although more pages follow: a tenant with few records among
 * many needs more requests. */
#include "server/api/api_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define ACTION_MAX 64u

struct audit_log_query {
    struct http_req *req;
    struct api *api;
    struct audit_query q;
    char tenant[STORE_OWNER_MAX + 1], action[ACTION_MAX + 1];
    bool is_stream, answer_begun, awaiting_room;
    struct open_stream open_stream; /* only used by a stream */
    struct err revocation;          /* the credential was revoked while a page was being read */
};

static void audit_log_query_free(struct audit_log_query *l)
{
    open_stream_unregister(&l->open_stream);
    free(l);
}

/* --- a page --- */

static void audit_log_answer_page(struct audit_log_query *l, const struct audit_page *p)
{
    struct buf out = { 0 };
    struct jsonw w;
    char cursor[24];
    const char *line = p->lines.data, *end;

    if (!api_list_begin(l->req, NULL, &w, &out))
        return;
    for (size_t i = 0; i < p->n; i++, line = end + 1) {
        end = strchr(line, '\n');
        auto_free char *one = str_dup_n(line, (size_t)(end - line));
        jsonw_raw(&w, one);
    }
    jsonw_end_array(&w);
    jsonw_ku64(&w, "lastSeq", p->last);
    if (p->more) {
        snprintf(cursor, sizeof(cursor), "%" PRIu64, p->last);
        jsonw_kstr(&w, "nextCursor", cursor);
    }
    api_object_end(l->req, 200, &w);
}

/* --- the whole trail as a stream --- */

static void audit_log_on_page(void *arg, const struct err *err, const struct audit_page *p);

static void audit_log_read_next_page(void *arg)
{
    struct audit_log_query *l = arg;

    if (!l->awaiting_room)
        return;
    l->awaiting_room = false;
    audit_read(l->api->settings.audit, &l->q, audit_log_on_page, l);
}

/* True: more pages follow. */
static bool audit_log_send_page(struct audit_log_query *l, const struct audit_page *p)
{
    if (!l->answer_begun) {
        l->answer_begun = true;
        http_on_room(l->req, audit_log_read_next_page, l);
        http_answer_stream(l->req, 200, "application/x-ndjson", HTTP_UNTIL_END);
    }
    bool room = http_stream_write(l->req, p->lines.data, p->lines.len);
    if (!p->more || http_client_is_gone(l->req)) {
        http_on_room(l->req, NULL, NULL);
        http_stream_end(l->req);
        return false;
    }
    l->q.after = p->last;
    l->awaiting_room = true;
    if (room)
        audit_log_read_next_page(l);
    return true;
}

static void audit_log_on_page(void *arg, const struct err *err, const struct audit_page *p)
{
    struct audit_log_query *l = arg;

    if (l->revocation.id != ERR_NONE)
        err = &l->revocation;
    if (err && l->answer_begun) {
        http_on_room(l->req, NULL, NULL);
        http_stream_break(l->req);
    } else if (err) {
        http_answer_err(l->req, err);
    } else if (!l->is_stream) {
        audit_log_answer_page(l, p);
    } else if (audit_log_send_page(l, p)) {
        return;
    }
    audit_log_query_free(l);
}

/* The client disconnected during the stream: stop reading. */
static void audit_log_on_client_gone(void *arg)
{
    audit_log_read_next_page(arg);
}

/* A response that has begun is aborted, so that the client does not take it for complete. */
static void audit_log_on_revoked(void *arg, const struct err *why)
{
    struct audit_log_query *l = arg;

    l->revocation = *why;
    if (!l->awaiting_room)
        return;
    http_on_client_gone(l->req, NULL, NULL);
    http_on_room(l->req, NULL, NULL);
    http_stream_break(l->req); /* a query that waits for buffer space has begun its response */
    audit_log_query_free(l);
}

/* --- query parameters --- */

static int audit_log_read_time(const struct http_req *req, const char *name, uint64_t *ret, struct err *err)
{
    const char *text = http_query(req, name);

    if (text && !clock_from_rfc3339(text, ret))
        return err_set(err, ERR_INVALID, "%s: must be a time such as 2027-01-31T12:00:00Z", name);
    return 0;
}

static int audit_log_read_tenant(struct audit_log_query *l, struct err *err)
{
    const char *sees = gateway_visible_owner(l->req), *wanted = http_query(l->req, "tenant");
    bool all = str_eq(sees, STORE_ANY_OWNER);

    if (wanted && !store_owner_valid(wanted))
        return err_set(err, ERR_INVALID, "tenant: not a valid tenant name");
    if (wanted && !all && !str_eq(wanted, sees))
        return err_set(err, ERR_DENIED, "only an admin may read the records of another tenant");
    if (wanted || !all) {
        str_copy(l->tenant, sizeof(l->tenant), wanted ? wanted : sees);
        l->q.tenant = l->tenant;
    }
    return 0;
}

static int audit_log_read_action(struct audit_log_query *l, struct err *err)
{
    const char *text = http_query(l->req, "action");

    if (text &&
        (!*text || strlen(text) > ACTION_MAX || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.") != strlen(text)))
        return err_set(
            err, ERR_INVALID,
            "action: must be an action such as sandbox.create, or a prefix that ends with a dot such as sandbox.");
    if (text) {
        str_copy(l->action, sizeof(l->action), text);
        l->q.action = l->action;
    }
    return 0;
}

static int audit_log_read_query(struct audit_log_query *l, struct err *err)
{
    static const char *const names[] = { "since", "until", "tenant", "latest", "format", "action", NULL };
    const char *format = http_query(l->req, "format");
    struct store_list page = { 0 };

    if (!l->api->settings.audit)
        return err_set(err, ERR_NOT_SUPPORTED_YET, "this server keeps no audit trail; set audit.enabled to true");
    if (api_read_page(l->req, names, &page, err) < 0 || audit_log_read_time(l->req, "since", &l->q.since_ms, err) < 0 ||
        audit_log_read_time(l->req, "until", &l->q.until_ms, err) < 0 || audit_log_read_tenant(l, err) < 0 ||
        audit_log_read_action(l, err) < 0 || http_query_bool(l->req, "latest", false, &l->q.latest, err) < 0)
        return -1;
    if (page.cursor && !str_to_u64(page.cursor, INT64_MAX, &l->q.after))
        return err_set(err, ERR_INVALID, "cursor: not a cursor of this list; pass the nextCursor of the previous page");
    if (format && !str_eq(format, "json") && !str_eq(format, "jsonl"))
        return err_set(err, ERR_INVALID, "format: must be json or jsonl");
    l->is_stream = format && str_eq(format, "jsonl");
    if (l->is_stream && l->q.latest)
        return err_set(err, ERR_INVALID, "latest cannot be combined with format=jsonl; omit one of them");
    l->q.limit = l->is_stream ? AUDIT_PAGE_MAX : page.limit;
    return 0;
}

static void api_audit_log_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct audit_log_query *l = mem_new(struct audit_log_query);
    struct err err = { 0 };

    *l = (struct audit_log_query){ .req = req, .api = api };
    if (audit_log_read_query(l, &err) < 0) {
        http_answer_err(req, &err);
        audit_log_query_free(l);
        return;
    }
    if (l->is_stream) {
        http_on_client_gone(req, audit_log_on_client_gone, l);
        open_stream_register(&l->open_stream, api->settings.gateway, gateway_principal(req), audit_log_on_revoked, l);
    }
    audit_read(api->settings.audit, &l->q, audit_log_on_page, l);
}

static void api_audit_log_get_key(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct audit_stats s;
    struct buf out = { 0 };
    struct jsonw w;
    struct err err = { 0 };
    char hex[2 * CHAIN_HASH + 1];

    if (http_query_require_none(req, &err) == 0 && !api->settings.audit)
        err_set(&err, ERR_NOT_SUPPORTED_YET, "this server keeps no audit trail; set audit.enabled to true");
    if (err.id != ERR_NONE) {
        http_answer_err(req, &err);
        return;
    }
    audit_stats(api->settings.audit, &s);
    chain_hex(s.head.hash, CHAIN_HASH, hex);
    api_object_begin(&w, &out);
    jsonw_kstr(&w, "id", audit_key_id(api->settings.audit));
    jsonw_kstr(&w, "algorithm", "Ed25519");
    jsonw_kstr(&w, "publicKey", audit_key_pem(api->settings.audit));
    jsonw_kobject(&w, "head");
    jsonw_ku64(&w, "seq", s.head.seq);
    jsonw_kstr(&w, "hash", hex);
    jsonw_end_object(&w);
    api_object_end(req, 200, &w);
}

const struct http_route audit_routes[] = {
    { "GET", "/v1/audit", api_audit_log_list, HTTP_BODY_NONE, .data = &permission_audit },
    { "GET", "/v1/audit/key", api_audit_log_get_key, HTTP_BODY_NONE, .data = &permission_audit },
    { 0 },
};
