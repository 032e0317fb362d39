/* /v1/scripts: code that ran successfully, for the tenant that ran it. */
#include "server/api/api_internal.h"

#include "core/base/str.h"
#include "service/script_cache.h"

#define LANGUAGE_NAME_MAX 39u

static void api_script_write(const struct store_script *row, struct jsonw *w)
{
    char digest[2 * STORE_HASH_LEN + 1];

    script_digest_format(row->digest, digest);
    jsonw_object(w);
    jsonw_kstr(w, "id", row->id);
    jsonw_kstr(w, "digest", digest);
    jsonw_kstr(w, "language", row->language);
    jsonw_kstr_if(w, "description", row->description);
    jsonw_ku64(w, "sizeBytes", row->size_bytes);
    jsonw_ku64(w, "uses", row->uses);
    api_write_time(w, "createdAt", row->created_ms);
    api_write_time(w, "lastUsedAt", row->last_used_ms);
    jsonw_kstr_if(w, "lastExecutionId", row->last_execution);
    jsonw_kstr_if(w, "createdBy", row->created_by);
    if (row->code)
        jsonw_kstr(w, "code", row->code);
    jsonw_end_object(w);
}

static void api_script_on_rows(void *arg, const struct err *err, const struct store_script *rows, size_t n,
                               uint64_t total UNUSED, const char *next)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(req, err, &w, &out))
        return;
    for (size_t i = 0; i < n; i++)
        api_script_write(&rows[i], &w);
    api_list_end(req, &w, next);
}

static int api_script_check_language(const char *language, struct err *err)
{
    return !language || strlen(language) <= LANGUAGE_NAME_MAX
               ? 0
               : err_set(err, ERR_INVALID,
                         "language: a name has at most %u bytes; GET /v1/runtimes lists the languages",
                         LANGUAGE_NAME_MAX);
}

static void api_script_list(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "search", "language", NULL };
    struct api *api = ctx;
    struct store_list page = { 0 };
    struct err err = { 0 };

    if (api_read_page(req, names, &page, &err) < 0 ||
        api_script_check_language(http_query(req, "language"), &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    const char *name = http_query(req, "language");
    const struct language *language = name ? language_by_name(name) : NULL; /* "py" is python */
    const struct store_script_search q = { .owner = page.owner,
                                           .text = http_query(req, "search"),
                                           .language = language ? language->name : name,
                                           .cursor = page.cursor,
                                           .limit = page.limit };
    store_script_search(api->settings.store, &q, api_script_on_rows, req);
}

static void api_script_on_row(void *arg, const struct err *err, const struct store_script *row)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (http_answer_if_err(req, err))
        return;
    jsonw_init(&w, &out, 0);
    api_script_write(row, &w);
    http_answer_json(req, 200, &out);
}

static void api_script_get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "scriptId", "sc", "script");

    if (id)
        store_script_get(api->settings.store, gateway_visible_owner(req), id, api_script_on_row, req);
}

static void api_script_delete(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = api_id_or_refuse(req, "scriptId", "sc", "script");

    if (id)
        store_script_delete(api->settings.store, gateway_visible_owner(req), id, api_answer_done, req);
}

const struct http_route script_routes[] = {
    { "GET", "/v1/scripts", api_script_list, HTTP_BODY_NONE, .data = &permission_executions_read },
    { "GET", "/v1/scripts/{scriptId}", api_script_get, HTTP_BODY_NONE, .data = &permission_executions_read },
    { "DELETE", "/v1/scripts/{scriptId}", api_script_delete, HTTP_BODY_NONE, .data = &permission_executions },
    { 0 },
};
