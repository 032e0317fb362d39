/* Resources: the files of sandboxes, and the receipts of executions.
 *
 * The list holds the files of /workspace of the session's sandbox. */
#include "server/mcp/mcp_internal.h"

#include "core/base/id.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "server/gateway/unread_responses.h"
#include "server/mcp/resource_uri.h"
#include "service/sandbox_files.h"

#include <stdio.h>

#define MCP_RESOURCE_MAX (1 * MIB)
#define MCP_RESOURCES_LISTED 1000u
#define MCP_RESOURCES_PAGE 100u
#define MCP_RESOURCE_TTL_MS 0u
#define MCP_TEMPLATES_TTL_MS 3600000u

struct mcp_file_work {
    struct sandbox_files_job *job;
    struct sandbox_files_request request;
    struct resource_uri uri;
    char *text; /* the URI */
    size_t at;  /* list: the cursor */
    struct buf data;
    char **names;
    size_t nnames;
    bool is_too_large, is_no_file;
    struct files_entry entry;
};

static void mcp_file_work_free(struct mcp_file_work *f)
{
    sandbox_files_free(f->job);
    for (size_t i = 0; i < f->nnames; i++)
        free(f->names[i]);
    free(f->names);
    free(f->text);
    buf_done(&f->data);
    free(f);
}

static void mcp_file_cancel(struct mcp_server_call *c)
{
    mcp_file_work_free(take_ptr(&c->work));
}

static const char *mcp_type_of_name(const char *name, bool is_text)
{
    static const struct {
        const char *end, *type;
    } rows[] = {
        { ".py", "text/x-python" },    { ".md", "text/markdown" }, { ".json", "application/json" },
        { ".csv", "text/csv" },        { ".html", "text/html" },   { ".png", "image/png" },
        { ".jpg", "image/jpeg" },      { ".jpeg", "image/jpeg" },  { ".svg", "image/svg+xml" },
        { ".pdf", "application/pdf" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_ends(name, rows[i].end))
            return rows[i].type;
    return is_text ? "text/plain" : "application/octet-stream";
}

/* --- the list --- */

static int mcp_compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void mcp_write_listed_file(const char *sandbox, const char *name, struct jsonw *w)
{
    auto_buf uri = { 0 };
    auto_free char *path = str_printf("/workspace/%s", name);

    resource_uri_write_file(&uri, sandbox, path);
    jsonw_object(w);
    jsonw_kstr(w, "uri", uri.data);
    jsonw_kstr(w, "name", name);
    jsonw_kstr(w, "mimeType", mcp_type_of_name(name, true));
    jsonw_end_object(w);
}

static void mcp_resources_answer(struct mcp_server_call *c, const struct mcp_file_work *f, size_t at)
{
    auto_buf out = { 0 };
    struct jsonw w;
    size_t n = f ? f->nnames : 0, end = min_size(n, at + MCP_RESOURCES_PAGE);

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "resources");
    if (at == 0 && c->mcp->fixtures)
        mcp_fixtures_write_resources(&w);
    for (size_t i = at; i < end; i++)
        mcp_write_listed_file(f->request.sandbox, f->names[i], &w);
    jsonw_end_array(&w);
    if (end < n)
        mcp_write_cursor(&w, "resources", end);
    mcp_server_call_write_cache_hints(c, &w, MCP_RESOURCE_TTL_MS, false);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}

static void mcp_list_on_entry(void *arg, const struct files_entry *e)
{
    struct mcp_server_call *c = arg;
    struct mcp_file_work *f = c->work;

    if (e->kind != 'f' || !text_is_utf8(e->name, strlen(e->name)))
        return;
    f->names = mem_resize(f->names, f->nnames + 1, sizeof(*f->names));
    f->names[f->nnames++] = str_dup(e->name);
}

/* A sandbox that cannot be read has no files to list. */
static void mcp_list_on_done(void *arg, const struct files_done *d UNUSED, const struct err *err UNUSED)
{
    struct mcp_server_call *c = arg;
    struct mcp_file_work *f = take_ptr(&c->work);
    size_t at = f->at;

    c->on_cancel = NULL;
    if (f->nnames)
        qsort(f->names, f->nnames, sizeof(*f->names), mcp_compare_names);
    mcp_resources_answer(c, f, at);
    mcp_file_work_free(f);
}

static const struct sandbox_files_ops mcp_list_ops = { .files = { .on_entry = mcp_list_on_entry,
                                                                  .on_done = mcp_list_on_done } };

static void mcp_file_open(struct mcp_server_call *c, struct mcp_file_work *f, const struct sandbox_files_ops *ops)
{
    c->work = f;
    c->on_cancel = mcp_file_cancel;
    sandbox_files_open(c->mcp->settings.manager, &f->request, ops, c, &f->job);
}

static bool mcp_may_read_files(const struct mcp_server_call *c)
{
    return principal_has_scopes(&c->principal, SCOPE_BIT(FILES_READ));
}

void mcp_resources_list(struct mcp_server_call *c)
{
    struct mcp_file_work *f;
    size_t at;

    if (!mcp_read_cursor(c, "resources", &at))
        return;
    if (!c->session || !c->session->sandbox[0] || !mcp_may_read_files(c)) {
        mcp_resources_answer(c, NULL, at);
        return;
    }
    f = mem_new(struct mcp_file_work);
    f->at = at;
    (void)str_copy(f->uri.sandbox, sizeof(f->uri.sandbox), c->session->sandbox);
    f->request = (struct sandbox_files_request){
        .owner = mcp_server_call_tenant(c),
        .sandbox = f->uri.sandbox,
        .files = { .operation = FILES_OP_LIST, .path = "/workspace", .length = MCP_RESOURCES_LISTED }
    };
    mcp_file_open(c, f, &mcp_list_ops);
}

static void mcp_write_template(struct jsonw *w, const char *uri, const char *name, const char *title,
                               const char *description)
{
    jsonw_object(w);
    jsonw_kstr(w, "uriTemplate", uri);
    jsonw_kstr(w, "name", name);
    jsonw_kstr(w, "title", title);
    jsonw_kstr(w, "description", description);
    jsonw_end_object(w);
}

void mcp_resource_templates_list(struct mcp_server_call *c)
{
    auto_buf out = { 0 };
    struct jsonw w;
    size_t at;

    if (!mcp_read_cursor(c, "templates", &at))
        return;
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "resourceTemplates");
    if (c->mcp->fixtures)
        mcp_fixtures_write_templates(&w);
    if (mcp_may_read_files(c))
        mcp_write_template(&w, "cove://sandboxes/{id}/files/{+path}", "sandbox_file", "File of a sandbox",
                           "A file of a sandbox, at most 1 MiB. The path is absolute, without its first slash: "
                           "workspace/data.csv.");
    if (principal_has_scopes(&c->principal, SCOPE_BIT(SANDBOXES_READ)))
        mcp_write_template(
            &w, "cove://executions/{id}/receipt", "execution_receipt", "Receipt of an execution",
            "The resources that an execution used, the limits that it reached, and the denials of its sandbox.");
    jsonw_end_array(&w);
    mcp_server_call_write_cache_hints(c, &w, MCP_TEMPLATES_TTL_MS, false);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}

/* --- reading --- */

void mcp_resource_missing(struct mcp_server_call *c, const char *uri, const char *reason)
{
    auto_buf data = { 0 };
    struct jsonw w;

    jsonw_init(&w, &data, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "uri", uri);
    jsonw_end_object(&w);
    mcp_server_call_error(c, c->is_modern ? JSONRPC_INVALID_PARAMS : MCP_RESOURCE_MISSING, reason, data.data);
}

void mcp_answer_resource(struct mcp_server_call *c, const char *uri, const char *type, const char *data, size_t len)
{
    bool is_text = text_is_utf8(data, len) && !memchr(data, '\0', len);
    auto_buf out = { 0 };
    auto_buf coded = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "contents");
    jsonw_object(&w);
    jsonw_kstr(&w, "uri", uri);
    jsonw_kstr(&w, "mimeType", type ? type : mcp_type_of_name(uri, is_text));
    if (is_text) {
        jsonw_key(&w, "text");
        jsonw_strn(&w, data, len);
    } else {
        text_base64(&coded, data, len);
        jsonw_kstr(&w, "blob", coded.data);
    }
    jsonw_end_object(&w);
    jsonw_end_array(&w);
    mcp_server_call_write_cache_hints(c, &w, MCP_RESOURCE_TTL_MS, false);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}

static void mcp_read_on_entry(void *arg, const struct files_entry *e)
{
    struct mcp_server_call *c = arg;
    struct mcp_file_work *f = c->work;

    f->is_no_file = e->kind != 'f';
    f->is_too_large = e->size > MCP_RESOURCE_MAX;
    if (f->is_no_file || f->is_too_large) {
        c->work = NULL;
        c->on_cancel = NULL;
        mcp_resource_missing(c, f->text,
                             f->is_no_file ? "uri: not a regular file"
                                           : "uri: the file is larger than 1 MiB; read parts of it with a tool");
        mcp_file_work_free(f);
        return;
    }
    sandbox_files_read(f->job, 0, e->size);
}

static void mcp_read_on_data(void *arg, const void *data, size_t len)
{
    struct mcp_server_call *c = arg;
    struct mcp_file_work *f = c->work;

    if (f->data.len + len <= MCP_RESOURCE_MAX)
        buf_add(&f->data, data, len);
}

static void mcp_read_on_done(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct mcp_server_call *c = arg;
    struct mcp_file_work *f = take_ptr(&c->work);

    c->on_cancel = NULL;
    if (err)
        mcp_resource_missing(c, f->text, err->sys ? err_info(err->id)->cause : err->msg);
    else
        mcp_answer_resource(c, f->text, NULL, f->data.data ? f->data.data : "", f->data.len);
    mcp_file_work_free(f);
}

static bool mcp_read_on_changing(void *arg UNUSED)
{
    return false;
}

static const struct sandbox_files_ops mcp_read_ops = {
    .files = { .on_entry = mcp_read_on_entry, .on_data = mcp_read_on_data, .on_done = mcp_read_on_done },
    .on_changing = mcp_read_on_changing
};

static void mcp_read_file_resource(struct mcp_server_call *c, const char *uri, const struct resource_uri *parsed)
{
    struct mcp_file_work *f;
    struct err err = { 0 };

    if (!mcp_server_call_authorize(c, SCOPE_BIT(FILES_READ), AUTH_CLASS_DEFAULT,
                                   &(struct gateway_action){ .name = "file.read", .sandbox = parsed->sandbox }))
        return;
    if (unread_responses_check(c->mcp->settings.gateway, mcp_server_call_tenant(c), &err) < 0) {
        http_set_header(c->req, "Retry-After", "1");
        mcp_server_call_refuse(c, &err);
        return;
    }
    f = mem_new(struct mcp_file_work);
    f->uri = *parsed;
    f->text = str_dup(uri);
    f->request = (struct sandbox_files_request){ .owner = mcp_server_call_visible_owner(c),
                                                 .sandbox = f->uri.sandbox,
                                                 .files = { .operation = FILES_OP_READ, .path = f->uri.path } };
    mcp_file_open(c, f, &mcp_read_ops);
}

static void mcp_on_receipt(void *arg, const struct err *err, const struct store_execution *row)
{
    struct mcp_server_call *c = arg;
    const char *uri = mcp_server_call_text(c, "uri");

    if (err || !row->receipt_json)
        mcp_resource_missing(c, uri, err ? err->msg : "uri: the execution has no receipt yet; it has not ended");
    else
        mcp_answer_resource(c, uri, "application/json", row->receipt_json, strlen(row->receipt_json));
}

void mcp_resources_read(struct mcp_server_call *c)
{
    const char *uri = mcp_server_call_text(c, "uri");
    struct resource_uri parsed;

    if (!uri) {
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, "uri: required", NULL);
        return;
    }
    if (c->mcp->fixtures && mcp_fixtures_read_resource(c, uri))
        return;
    if (!resource_uri_parse(uri, &parsed)) {
        mcp_resource_missing(c, uri, "uri: there is no such resource; resources/templates/list lists the forms");
    } else if (parsed.execution[0]) {
        if (mcp_server_call_authorize(c, SCOPE_BIT(SANDBOXES_READ), AUTH_CLASS_DEFAULT,
                                      &(struct gateway_action){ .name = "execution.receipt" }))
            store_execution_get(c->mcp->settings.store, mcp_server_call_visible_owner(c), parsed.execution,
                                mcp_on_receipt, c);
    } else {
        mcp_read_file_resource(c, uri, &parsed);
    }
}
