/* Did the daemon read the head as frame.c did?
 *
 * frame.c has found the bytes well-formed, and this asks whether what libmicrohttpd made of them is the same. It does
 * not hand out the bytes, but all of its strings lie where they were received: the daemon cuts the lines in place. So
 * the head is measured. Method, target, version, names and values must follow each other with exactly the gaps that
 * the grammar has between them, and their sum must be the size of the head that the daemon counted. Whatever was
 * skipped, joined or cut short leaves a gap of another size. Blanks may stand only before a value, and only those are
 * counted without being looked at, which is safe since the daemon skips nothing else there.
 *
 * A daemon that laid out its strings in another way would fail every request, which tests see at once: the check can be
 * wrong in the safe direction only. */
#include "http/daemon.h"

#include "base/mem.h"
#include "base/str.h"

#include <strings.h>

struct walk {
    struct http_req *req;
    uintptr_t at; /* where the next name must begin */
    size_t n;     /* headers so far */
    size_t bytes; /* of names and values, with their NULs */
    const char *bad;
};

static enum MHD_Result measure(void *cls, enum MHD_ValueKind kind UNUSED, const char *name, size_t name_len,
                               const char *value, size_t value_len)
{
    struct walk *w = cls;
    uintptr_t after_colon = (uintptr_t)name + name_len + 1;

    if (!value)
        w->bad = "a header without a value";
    else if ((uintptr_t)name != w->at || (uintptr_t)value < after_colon)
        w->bad = "a line that does not end in CR LF, is folded, or has a NUL";
    else if (!frame_is_token(name, name_len))
        w->bad = "a header whose name is not a token";
    else if (!frame_is_value(value, value_len))
        w->bad = "a control character in a header";
    if (w->bad)
        return MHD_NO;
    w->at = (uintptr_t)value + value_len + 2;
    w->n++;
    w->bytes += name_len + value_len + 2;
    return MHD_YES;
}

static char *put(char **to, const char *s, size_t n)
{
    char *begin = *to;

    memcpy(begin, s, n);
    begin[n] = '\0';
    *to += n + 1;
    return begin;
}

/* Trailing blanks are no part of a value. */
static enum MHD_Result copy(void *cls, enum MHD_ValueKind kind UNUSED, const char *name, size_t name_len,
                            const char *value, size_t value_len)
{
    struct walk *w = cls;
    struct header *h = &w->req->headers[w->req->nheaders++];
    char *to = (char *)w->at;

    while (value_len > 0 && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
        value_len--;
    h->name = put(&to, name, name_len);
    h->value = put(&to, value, value_len);
    w->at = (uintptr_t)to;
    return MHD_YES;
}

static int measure_line(const struct http_req *req, const char *url, const char *method, const char *version,
                        struct err *err)
{
    size_t method_len = strlen(method), target_len = strlen(req->target);
    const char *p = version;

    if ((uintptr_t)url != (uintptr_t)method + method_len + 1 || (uintptr_t)version != (uintptr_t)url + target_len + 1 ||
        !frame_is_token(method, method_len) || !frame_is_target(req->target, target_len))
        return err_set(err, ERR_HTTP_MALFORMED, "the request line is not METHOD TARGET VERSION with single spaces");
    if (!str_eat(&p, "HTTP/1.") || (*p != '0' && *p != '1') || p[1])
        return err_set(err, ERR_HTTP_MALFORMED, "the version is neither HTTP/1.1 nor HTTP/1.0");
    if (method_len + target_len + 10 > req->s->set.limits.line_max)
        return err_set(err, ERR_HTTP_URI_LONG, "the request line is longer than %zu bytes",
                       req->s->set.limits.line_max);
    return 0;
}

static int measure_head(struct walk *w, struct MHD_Connection *mhd, const char *method, struct err *err)
{
    const struct http_limits *lim = &w->req->s->set.limits;
    size_t size = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;

    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, measure, w);
    if (!w->bad && w->at + 2 != (uintptr_t)method + size)
        w->bad = "a line that does not end in CR LF, is folded, or has a NUL";
    if (w->bad)
        return err_set(err, ERR_HTTP_MALFORMED, "the head of the request has %s", w->bad);
    if (size > lim->head_max)
        return err_set(err, ERR_HTTP_HEADERS, "the head of the request is larger than %zu bytes", lim->head_max);
    if (w->n > lim->headers_max)
        return err_set(err, ERR_HTTP_HEADERS, "the request has more than %u headers", lim->headers_max);
    return 0;
}

/* At most one of these, or the second reader of the message may see another one. */
static int check_single(const struct http_req *req, struct err *err)
{
    static const char *const single[] = {
        "Host",   "Content-Length", "Transfer-Encoding", "Content-Type",         "Authorization", "Origin",
        "Expect", "Range",          "Sec-WebSocket-Key", "Sec-WebSocket-Version"
    };

    for (size_t i = 0; i < ARRAY_LEN(single); i++) {
        unsigned n = 0;

        for (size_t k = 0; k < req->nheaders; k++)
            n += strcasecmp(req->headers[k].name, single[i]) == 0;
        if (n > 1)
            return err_set(err, ERR_HTTP_MALFORMED, "the header %s came more than once", single[i]);
    }
    return 0;
}

/* How long is the body? One answer only: no Content-Length beside Transfer-Encoding, no coding but chunked. */
static int check_framing(struct http_req *req, struct err *err)
{
    const char *coding = http_header(req, "Transfer-Encoding"), *length = http_header(req, "Content-Length");

    if (!http_header(req, "Host") && !req->old)
        return err_set(err, ERR_HTTP_MALFORMED, "the request has no Host header");
    if (coding && (length || req->old))
        return err_set(err, ERR_HTTP_MALFORMED, "Transfer-Encoding beside Content-Length, or in HTTP/1.0");
    if (coding && strcasecmp(coding, "chunked") != 0)
        return err_set(err, ERR_HTTP_METHOD_UNKNOWN, "no transfer coding but chunked is known here");
    if (length && !str_to_u64(length, INT64_MAX, &req->declared))
        return err_set(err, ERR_HTTP_MALFORMED, "Content-Length is not a number");
    req->chunked = coding != NULL;
    req->has_body = req->chunked || req->declared > 0;
    return 0;
}

int screen_head(struct http_req *req, struct MHD_Connection *mhd, const char *url, const char *method,
                const char *version, struct err *err)
{
    struct walk w = { .req = req, .at = (uintptr_t)version + strlen("HTTP/1.1") + 2 };

    if (measure_line(req, url, method, version, err) < 0 || measure_head(&w, mhd, method, err) < 0)
        return -1;
    req->old = version[7] == '0';
    req->headers = mem_new_array(struct header, w.n + 1);
    req->head = mem_alloc(w.bytes + 1);
    w.at = (uintptr_t)req->head;
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, copy, &w);
    if (check_single(req, err) < 0 || check_framing(req, err) < 0)
        return -1;
    req->is_head = str_eq(method, "HEAD");
    if (!str_copy(req->method, sizeof(req->method), req->is_head ? "GET" : method) || !route_method(req->method))
        return err_set(err, ERR_HTTP_METHOD_UNKNOWN, "the method %.20s is not known here", method);
    return 0;
}
