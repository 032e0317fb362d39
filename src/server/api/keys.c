/* /v1/keys */
#include "server/api/api_internal.h"

#include "server/auth/tenant_users.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>
#include <time.h>

static void api_key_write_json(const struct store_key *row, struct jsonw *w)
{
    auto_free char *scopes = str_dup(row->scopes ? row->scopes : "");
    char *save = NULL;

    jsonw_object(w);
    jsonw_kstr(w, "id", row->id);
    jsonw_kstr(w, "name", row->name ? row->name : "");
    jsonw_kstr(w, "tenant", row->owner);
    jsonw_kstr_if(w, "user", row->user);
    jsonw_kstr(w, "prefix", row->prefix);
    jsonw_karray(w, "scopes");
    for (char *s = strtok_r(scopes, " ", &save); s; s = strtok_r(NULL, " ", &save))
        jsonw_str(w, s);
    jsonw_end_array(w);
    api_write_time(w, "createdAt", row->created_ms);
    api_write_time(w, "expiresAt", row->expires_ms);
    api_write_time(w, "lastUsedAt", row->last_used_ms);
    api_write_time(w, "revokedAt", row->revoked_ms);
}

static void api_key_answer(struct http_req *req, int status, const struct store_key *row, const char *secret)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    api_key_write_json(row, &w);
    jsonw_kstr_if(&w, "key", secret);
    jsonw_end_object(&w);
    if (secret)
        http_set_header(req, "Cache-Control", "no-store");
    http_answer_json(req, status, &out);
}

static void api_key_on_created(void *arg, const struct err *err, const struct store_key *row, const char *secret)
{
    if (err) {
        http_answer_err(arg, err);
    } else {
        audit_trail_add_target(arg, "key", row->id);
        audit_trail_add_detail(arg, "name", row->name ? row->name : "");
        audit_trail_add_detail(arg, "scopes", row->scopes ? row->scopes : "");
        audit_trail_add_detail(arg, "tenant", row->owner);
        if (row->user[0])
            audit_trail_add_detail(arg, "user", row->user);
        api_key_answer(arg, 201, row, secret);
    }
}

static void api_key_on_rotated(void *arg, const struct err *err, const struct store_key *row, const char *secret)
{
    if (!http_answer_if_err(arg, err))
        api_key_answer(arg, 200, row, secret);
}

static void api_key_on_row(void *arg, const struct err *err, const struct store_key *row)
{
    struct err why = { 0 };

    if (!err && !auth_key_is_visible(gateway_principal(arg), row))
        err = (err_set(&why, ERR_MISSING, "there is no key '%s'", row->id), &why);
    if (!http_answer_if_err(arg, err))
        api_key_answer(arg, 200, row, NULL);
}

static void api_key_on_revoked(void *arg, const struct err *err, const struct store_key *row UNUSED)
{
    if (!http_answer_if_err(arg, err))
        http_answer_empty(arg, 204);
}

/* --- create --- */

int api_read_scopes(const json_t *body, const char *name, uint32_t *ret, struct err *err)
{
    json_t *list = NULL;

    if (json_input_array(body, "", name, SCOPE_COUNT, &list, err) < 0)
        return -1;
    if (list && json_array_size(list) == 0)
        return err_set(err, ERR_INVALID, "%s: must not be empty", name);
    for (size_t i = 0; list && i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        uint32_t bits;

        if (!one)
            return err_set(err, ERR_INVALID, "%s[%zu]: must be a string", name, i);
        if (scope_parse(one, &bits, err) < 0)
            return err_wrap(err, "%s[%zu]", name, i);
        *ret |= bits;
    }
    return 0;
}

/* null: a key without a user. An absent field: a key of the user that creates it. */
static int api_key_read_user(const json_t *body, struct auth_key_spec *ret, struct err *err)
{
    if (json_is_null(json_object_get(body, "user"))) {
        ret->user = "";
        return 0;
    }
    return json_input_text(body, "", "user", 1, 64, &ret->user, err);
}

static int read_key(const struct principal *by, const json_t *body, struct auth_key_spec *ret, struct err *err)
{
    static const char *const names[] = { "name", "scopes", "expiresAt", "user", "tenant", NULL };
    const char *expires = NULL, *named = NULL;

    if (json_input_require_known_fields(body, "", names, err) < 0 ||
        json_input_text(body, "", "name", 1, 64, &ret->name, err) < 0 ||
        api_read_scopes(body, "scopes", &ret->scopes, err) < 0 || api_key_read_user(body, ret, err) < 0 ||
        json_input_text(body, "", "expiresAt", 1, 40, &expires, err) < 0 ||
        json_input_text(body, "", "tenant", 1, STORE_NAME_MAX, &named, err) < 0 ||
        auth_resolve_tenant(by, named, &ret->owner, err) < 0)
        return -1;
    bool of_user = ret->user ? *ret->user : by->user[0] && str_eq(ret->owner, by->owner);
    if (!ret->scopes && !of_user)
        return err_set(err, ERR_INVALID, "scopes: required; list what the key may do");
    if (!ret->name)
        return err_set(err, ERR_INVALID, "name: required; describe what the key is for");
    if (expires && !clock_from_rfc3339(expires, &ret->expires_ms))
        return err_set(err, ERR_INVALID, "expiresAt: must be a time such as 2027-01-31T12:00:00Z");
    if (expires && ret->expires_ms <= clock_real_ms())
        return err_set(err, ERR_INVALID, "expiresAt: must be in the future");
    return 0;
}

static void api_key_create(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    auto_json *body = NULL;
    struct auth_key_spec spec = { 0 };
    struct err err = { 0 };

    if (http_query_require_none(req, &err) < 0 || api_read_body(req, &body, &err) < 0 ||
        read_key(gateway_principal(req), body, &spec, &err) < 0)
        http_answer_err(req, &err);
    else
        auth_key_create(api->settings.auth, gateway_principal(req), &spec, clock_real_ms(), api_key_on_created, req);
}

/* --- list --- */

static void api_key_on_rows(void *arg, const struct err *err, const struct store_key *rows, size_t n, const char *next)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(req, err, &w, &out))
        return;
    for (size_t i = 0; i < n; i++) {
        api_key_write_json(&rows[i], &w);
        jsonw_end_object(&w);
    }
    api_list_end(req, &w, next);
}

static void api_key_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    struct err err = { 0 };

    if (api_read_page(req, NULL, &q, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    q.owner = auth_key_visible_owner(gateway_principal(req));
    q.user = auth_key_visible_user(gateway_principal(req));
    store_key_list(api->settings.store, &q, api_key_on_rows, req);
}

/* --- one key --- */

static void api_key_get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "keyId", "ky", "key");

    if (id)
        store_key_get(api->settings.store, auth_key_visible_owner(gateway_principal(req)), id, api_key_on_row, req);
}

static void api_key_revoke(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "keyId", "ky", "key");

    if (id)
        auth_key_revoke(api->settings.auth, gateway_principal(req), id, clock_real_ms(), api_key_on_revoked, req);
}

static void api_key_rotate(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "keyId", "ky", "key");

    if (id)
        auth_key_rotate(api->settings.auth, gateway_principal(req), id, api_key_on_rotated, req);
}

const struct http_route key_routes[] = {
    { "POST", "/v1/keys", api_key_create, HTTP_BODY_BUFFERED, 16 * KIB, "application/json", &permission_keys },
    { "GET", "/v1/keys", api_key_list, HTTP_BODY_NONE, .data = &permission_keys },
    { "GET", "/v1/keys/{keyId}", api_key_get, HTTP_BODY_NONE, .data = &permission_keys },
    { "DELETE", "/v1/keys/{keyId}", api_key_revoke, HTTP_BODY_NONE, .data = &permission_keys },
    { "POST", "/v1/keys/{keyId}/rotate", api_key_rotate, HTTP_BODY_NONE, .data = &permission_keys },
    { 0 },
};
