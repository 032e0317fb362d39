/* Checks that the daemon has parsed the head in the same way as request_scanner.c.
 *
 * request_scanner.c has found the bytes well-formed; this file checks that libmicrohttpd parsed
 * them to the same result. The daemon does not expose the bytes, but all of its strings lie where
 * they were received, because it cuts the lines in place. So the head is measured: method, target,
 * version, names and values must follow each other with exactly the gaps that the grammar has
 * between them, and their sum must be the size of the head that the daemon counted. Anything that
 * was skipped, joined or cut short leaves a gap of a different size. Blanks may occur only before a
 * value, and only those are counted without being inspected, which is safe because the daemon skips
 * nothing else there.
 *
 * A daemon that lays out its strings differently would fail every request, which the tests notice
 * at once: an error of this check can only refuse requests, never admit one. */
#include "server/http/mhd_callbacks.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <strings.h>

struct head_walk {
    struct http_req *req;
    uintptr_t expected_at; /* address at which the next name must begin */
    size_t nheaders;       /* headers so far */
    size_t bytes;          /* bytes of names and values, with their NULs */
    const char *problem;
};

static enum MHD_Result head_measure_header(void *cls, enum MHD_ValueKind kind UNUSED, const char *name, size_t name_len,
                                           const char *value, size_t value_len)
{
    struct head_walk *w = cls;
    uintptr_t after_colon = (uintptr_t)name + name_len + 1;

    if (!value)
        w->problem = "a header without a value";
    else if ((uintptr_t)name != w->expected_at || (uintptr_t)value < after_colon)
        w->problem = "a line that does not end in CR LF, is folded, or has a NUL";
    else if (!request_scanner_is_token(name, name_len))
        w->problem = "a header whose name is not a token";
    else if (!request_scanner_is_value(value, value_len))
        w->problem = "a control character in a header";
    if (w->problem)
        return MHD_NO;
    w->expected_at = (uintptr_t)value + value_len + 2;
    w->nheaders++;
    w->bytes += name_len + value_len + 2;
    return MHD_YES;
}

static char *head_copy_text(char **to, const char *s, size_t n)
{
    char *begin = *to;

    memcpy(begin, s, n);
    begin[n] = '\0';
    *to += n + 1;
    return begin;
}

/* Removes trailing blanks, which are not part of a value. */
static enum MHD_Result head_copy_header(void *cls, enum MHD_ValueKind kind UNUSED, const char *name, size_t name_len,
                                        const char *value, size_t value_len)
{
    struct head_walk *w = cls;
    struct http_header_field *h = &w->req->headers[w->req->nheaders++];
    char *to = (char *)w->expected_at;

    while (value_len > 0 && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
        value_len--;
    h->name = head_copy_text(&to, name, name_len);
    h->value = head_copy_text(&to, value, value_len);
    w->expected_at = (uintptr_t)to;
    return MHD_YES;
}

static int head_measure_request_line(const struct http_req *req, const char *url, const char *method,
                                     const char *version, struct err *err)
{
    size_t method_len = strlen(method), target_len = strlen(req->target);
    const char *p = version;

    if ((uintptr_t)url != (uintptr_t)method + method_len + 1 || (uintptr_t)version != (uintptr_t)url + target_len + 1 ||
        !request_scanner_is_token(method, method_len) || !request_scanner_is_target(req->target, target_len))
        return err_set(err, ERR_HTTP_MALFORMED, "the request line is not METHOD TARGET VERSION with single spaces");
    if (!str_eat(&p, "HTTP/1.") || (*p != '0' && *p != '1') || p[1])
        return err_set(err, ERR_HTTP_MALFORMED, "the version is neither HTTP/1.1 nor HTTP/1.0");
    if (method_len + target_len + 10 > req->s->settings.limits.line_max)
        return err_set(err, ERR_HTTP_URI_LONG, "the request line is longer than %zu bytes",
                       req->s->settings.limits.line_max);
    return 0;
}

static int head_measure(struct head_walk *w, struct MHD_Connection *mhd, const char *method, struct err *err)
{
    const struct http_limits *lim = &w->req->s->settings.limits;
    size_t size = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;

    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, head_measure_header, w);
    if (!w->problem && w->expected_at + 2 != (uintptr_t)method + size)
        w->problem = "a line that does not end in CR LF, is folded, or has a NUL";
    if (w->problem)
        return err_set(err, ERR_HTTP_MALFORMED, "the head of the request has %s", w->problem);
    if (size > lim->head_max)
        return err_set(err, ERR_HTTP_HEADERS, "the head of the request is larger than %zu bytes", lim->head_max);
    if (w->nheaders > lim->headers_max)
        return err_set(err, ERR_HTTP_HEADERS, "the request has more than %u headers", lim->headers_max);
    return 0;
}

/* Each of these headers may occur once; with two, another reader of the message could use the other
 * one. */
static int head_check_single_headers(const struct http_req *req, struct err *err)
{
    static const char *const single[] = { "Host",
                                          "Content-Length",
                                          "Transfer-Encoding",
                                          "Content-Type",
                                          "Authorization",
                                          "Origin",
                                          "Expect",
                                          "Range",
                                          "Sec-WebSocket-Key",
                                          "Sec-WebSocket-Version",
                                          "MCP-Protocol-Version",
                                          "Mcp-Method",
                                          "Mcp-Name",
                                          "Mcp-Session-Id",
                                          "Cove-Session",
                                          "Last-Event-ID" };

    for (size_t i = 0; i < ARRAY_LEN(single); i++) {
        unsigned n = 0;

        for (size_t k = 0; k < req->nheaders; k++)
            n += strcasecmp(req->headers[k].name, single[i]) == 0;
        if (n > 1)
            return err_set(err, ERR_HTTP_MALFORMED, "the header %s occurs more than once", single[i]);
    }
    return 0;
}

/* The length of the body must be unambiguous: no Content-Length together with Transfer-Encoding,
 * and no coding except chunked. */
static int head_check_framing(struct http_req *req, struct err *err)
{
    const char *coding = http_header(req, "Transfer-Encoding"), *length = http_header(req, "Content-Length");

    if (!http_header(req, "Host") && !req->is_http10)
        return err_set(err, ERR_HTTP_MALFORMED, "the request has no Host header");
    if (coding && (length || req->is_http10))
        return err_set(err, ERR_HTTP_MALFORMED, "Transfer-Encoding together with Content-Length, or in HTTP/1.0");
    if (coding && strcasecmp(coding, "chunked") != 0)
        return err_set(err, ERR_HTTP_METHOD_UNKNOWN, "unknown transfer coding; only chunked is supported");
    if (length && !str_to_u64(length, INT64_MAX, &req->content_length))
        return err_set(err, ERR_HTTP_MALFORMED, "Content-Length is not a number");
    req->is_chunked = coding != NULL;
    req->has_body = req->is_chunked || req->content_length > 0;
    return 0;
}

int head_verify(struct http_req *req, struct MHD_Connection *mhd, const char *url, const char *method,
                const char *version, struct err *err)
{
    struct head_walk w = { .req = req, .expected_at = (uintptr_t)version + strlen("HTTP/1.1") + 2 };

    if (head_measure_request_line(req, url, method, version, err) < 0 || head_measure(&w, mhd, method, err) < 0)
        return -1;
    req->is_http10 = version[7] == '0';
    req->headers = mem_new_array(struct http_header_field, w.nheaders + 1);
    req->header_memory = mem_alloc(w.bytes + 1);
    w.expected_at = (uintptr_t)req->header_memory;
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, head_copy_header, &w);
    if (head_check_single_headers(req, err) < 0 || head_check_framing(req, err) < 0)
        return -1;
    req->is_head = str_eq(method, "HEAD");
    if (!str_copy(req->method, sizeof(req->method), req->is_head ? "GET" : method) || !route_method_bit(req->method))
        return err_set(err, ERR_HTTP_METHOD_UNKNOWN, "unknown method %.20s", method);
    return 0;
}
