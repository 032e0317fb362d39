/* The server's own documentation: the contract as YAML and JSON, and as pages for people. All of it
 * is made at build time and the same for every client, so it is public and may be cached. */
#include "server/api/api_internal.h"

#include "server/api/contract.h"

/* The pages have no script and load nothing but their own style. */
#define PAGE_POLICY                                                                               \
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors " \
    "'none'"

static void api_docs_answer(struct http_req *req, const char *type, const char *data, size_t len)
{
    if (!api_has_no_query(req))
        return;
    http_set_header(req, "Content-Security-Policy", PAGE_POLICY);
    http_set_header(req, "Referrer-Policy", "no-referrer");
    http_set_header(req, "Cache-Control", "no-cache");
    http_answer(req, 200, type, data, len);
}

static void api_get_openapi_yaml(struct http_req *req, void *ctx UNUSED)
{
    api_docs_answer(req, "application/yaml", api_contract, api_contract_len);
}

static void api_get_openapi_json(struct http_req *req, void *ctx UNUSED)
{
    api_docs_answer(req, "application/json", api_contract_json, api_contract_json_len);
}

static void api_get_docs(struct http_req *req, void *ctx UNUSED)
{
    api_docs_answer(req, "text/html; charset=utf-8", api_docs_page, api_docs_page_len);
}

static void api_get_docs_errors(struct http_req *req, void *ctx UNUSED)
{
    api_docs_answer(req, "text/html; charset=utf-8", api_errors_page, api_errors_page_len);
}

static void api_get_docs_style(struct http_req *req, void *ctx UNUSED)
{
    api_docs_answer(req, "text/css; charset=utf-8", api_docs_style, api_docs_style_len);
}

const struct http_route docs_routes[] = {
    { "GET", "/v1/openapi.yaml", api_get_openapi_yaml, HTTP_BODY_NONE, .data = &permission_public },
    { "GET", "/v1/openapi.json", api_get_openapi_json, HTTP_BODY_NONE, .data = &permission_public },
    { "GET", "/docs", api_get_docs, HTTP_BODY_NONE, .data = &permission_public },
    { "GET", "/docs/errors", api_get_docs_errors, HTTP_BODY_NONE, .data = &permission_public },
    { "GET", "/docs/style.css", api_get_docs_style, HTTP_BODY_NONE, .data = &permission_public },
    { 0 },
};
