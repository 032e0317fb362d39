/* The answers of handlers. Nothing is sent here: the answer is stored in the request, and
 * request_lifecycle.c sends it when the connection is ready for it. */
#include "server/http/http_internal.h"

#include "server/http/range.h"

#include "core/base/err_print.h"
#include "core/base/fd.h"
#include "core/base/jsonw.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#define DEFAULT_DOCS "/docs/errors#"

static struct http_answer_header **http_answer_find_header(struct http_req *req, const char *name)
{
    struct http_answer_header **at = &req->answer_headers;

    while (*at && strcasecmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

void http_set_header(struct http_req *req, const char *name, const char *value)
{
    struct http_answer_header **at = http_answer_find_header(req, name), *old = *at;
    size_t n = strlen(name) + 1, len = strlen(value) + 1;
    struct http_answer_header *h = mem_alloc(sizeof(struct http_answer_header) + n + len);
    char *to = h->name + n;

    memcpy(h->name, name, n);
    for (size_t i = 0; i < len - 1; i++)
        to[i] = (unsigned char)value[i] < 0x20 || value[i] == 0x7f ? ' ' : value[i];
    h->value = to;
    h->next = old ? old->next : NULL;
    *at = h;
    free(old);
}

void http_drop_header(struct http_req *req, const char *name)
{
    struct http_answer_header **at = http_answer_find_header(req, name), *old = *at;

    if (old)
        *at = old->next;
    free(old);
}

/* An ASCII name for old clients, and the complete name for others (RFC 6266, RFC 8187). */
void http_set_filename(struct http_req *req, const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    auto_buf text = { 0 };

    buf_adds(&text, "attachment; filename=\"");
    for (const char *p = name; *p; p++)
        buf_add(&text, strchr(plain, *p) ? p : "_", 1);
    buf_adds(&text, "\"; filename*=UTF-8''");
    for (const char *p = name; *p; p++)
        if (strchr(plain, *p))
            buf_add(&text, p, 1);
        else
            buf_addf(&text, "%%%02X", (unsigned char)*p);
    http_set_header(req, "Content-Disposition", text.data);
}

static void http_answer_default_header(struct http_req *req, const char *name, const char *value)
{
    if (!*http_answer_find_header(req, name))
        http_set_header(req, name, value);
}

static void http_answer_begin(struct http_req *req, enum http_answer_kind kind, int status, const char *type)
{
    assert(!req->has_answer);
    req->has_answer = true;
    req->answer_complete = kind != ANSWER_STREAM;
    req->answer_kind = kind;
    req->status = status;
    if (!req->conn)
        return;
    if (type)
        http_answer_default_header(req, "Content-Type", type);
    http_answer_default_header(req, "Cache-Control", "no-store");
    http_set_header(req, "X-Content-Type-Options", "nosniff");
    http_set_header(req, "X-Request-Id", req->id);
}

/* The answer is complete, or a stream has begun: send it, unless on_answer holds it back. */
static void http_answer_given(struct http_req *req)
{
    bool (*fn)(struct http_req *, void *) = take_ptr(&req->on_answer);

    if (req->conn && req->conn->suspended)
        http_server_schedule_run(req->s); /* first, so that work which the hook defers runs after the answer */
    req->answer_held = fn && !fn(req, req->answer_arg);
    if (!req->answer_held)
        request_answer_ready(req);
}

void http_on_answer(struct http_req *req, bool (*fn)(struct http_req *req, void *arg), void *arg)
{
    req->on_answer = fn;
    req->answer_arg = arg;
}

void http_release_answer(struct http_req *req)
{
    assert(req->answer_held);
    req->answer_held = false;
    request_answer_ready(req);
}

int http_answer_status(const struct http_req *req)
{
    return req->status;
}

enum err_id http_answer_error_id(const struct http_req *req)
{
    return req->error;
}

void http_answer(struct http_req *req, int status, const char *type, const void *data, size_t len)
{
    http_answer_begin(req, ANSWER_BUFFER, status, type);
    buf_add(&req->content, data, len);
    http_answer_given(req);
}

void http_answer_json(struct http_req *req, int status, struct buf *body)
{
    http_answer_begin(req, ANSWER_BUFFER, status, "application/json");
    req->content = *body;
    *body = (struct buf){ 0 };
    http_answer_given(req);
}

void http_answer_empty(struct http_req *req, int status)
{
    http_answer_begin(req, ANSWER_BUFFER, status, NULL);
    http_answer_given(req);
}

static void http_error_put_limit(const struct err_limit *limit, struct jsonw *w)
{
    if (!limit->name)
        return;
    jsonw_kobject(w, "details");
    jsonw_kstr(w, "limit", limit->name);
    jsonw_ku64(w, "max", limit->max);
    jsonw_ku64(w, "used", limit->used);
    jsonw_ku64(w, "requested", limit->requested);
    jsonw_end_object(w);
}

void http_error_json(const struct err *err, const char *request_id, const char *docs, const char *details,
                     struct buf *out)
{
    const struct err_info *info = err_info(err->id);
    auto_free char *link = str_printf("%s%s", docs ? docs : DEFAULT_DOCS, info->code);
    bool hidden = info->kind == ERR_KIND_SYS || info->kind == ERR_KIND_BUG;
    struct jsonw w;

    jsonw_init(&w, out, 0);
    jsonw_object(&w);
    jsonw_key(&w, "error");
    jsonw_object(&w);
    jsonw_kstr(&w, "code", info->code);
    jsonw_kstr(&w, "message", hidden ? "the server could not do this; see the server's log for the reason" : err->msg);
    err_put_hints(&w, err->id, NULL);
    jsonw_kstr(&w, "docs", link);
    jsonw_kstr(&w, "requestId", request_id);
    if (details)
        jsonw_kraw(&w, "details", details);
    else
        http_error_put_limit(&err->limit, &w);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    if (hidden)
        log_error("request %s: %s", request_id, err->msg);
}

void http_answer_err_with(struct http_req *req, const struct err *err, const char *details)
{
    int status = err_info(err->id)->http;
    char seconds[24];

    if (status == 401)
        http_answer_default_header(req, "WWW-Authenticate", "Bearer");
    snprintf(seconds, sizeof(seconds), "%" PRIu64, max_u64((err->limit.retry_ms + 999) / 1000, 1));
    if (status == 429 || status == 503 || err->limit.retry_ms)
        http_answer_default_header(req, "Retry-After", seconds);
    http_answer_begin(req, ANSWER_BUFFER, status, "application/json");
    req->error = err->id;
    http_error_json(err, req->id, req->s ? req->s->settings.docs : NULL, details, &req->content);
    http_answer_given(req);
}

void http_answer_err(struct http_req *req, const struct err *err)
{
    http_answer_err_with(req, err, NULL);
}

bool http_answer_if_err(struct http_req *req, const struct err *err)
{
    if (err)
        http_answer_err(req, err);
    return err != NULL;
}

void http_refuse(struct http_req *req, enum err_id id, const char *fmt, ...)
{
    struct err err = { .id = id };
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(err.msg, sizeof(err.msg), fmt, ap);
    va_end(ap);
    http_answer_err(req, &err);
}

void http_answer_refusal(struct http_req *req, const struct err *err)
{
    req->close_after_answer |= err->id ==
                               ERR_HTTP_MALFORMED; /* the beginning of the next request cannot be found reliably */
    http_answer_err(req, err);
}

/* ranges */

static bool http_answer_empty_false(struct http_req *req, int status)
{
    http_answer_empty(req, status);
    return false;
}

bool http_select_range(struct http_req *req, uint64_t size, const char *etag, int *ret_status, uint64_t *ret_from,
                       uint64_t *ret_len)
{
    const char *match = http_header(req, "If-Match"), *none = http_header(req, "If-None-Match");
    const char *range = http_header(req, "Range"), *only_if = http_header(req, "If-Range");
    char text[80];

    http_drop_header(req, "Content-Range"); /* of a range that the handler had considered */
    http_drop_header(req, "ETag");
    if (etag)
        http_set_header(req, "ETag", etag);
    http_set_header(req, "Accept-Ranges", "bytes");
    if (match && !range_tag_listed(match, etag ? etag : "", false)) {
        struct err err = { 0 };

        err_set(&err, ERR_HTTP_PRECONDITION, "the resource has changed: its entity tag is now %s; read it again",
                etag ? etag : "unknown");
        http_answer_err(req, &err);
        return false;
    }
    if (none && range_tag_listed(none, etag ? etag : "", true))
        return http_answer_empty_false(req, 304);
    if (only_if && (!etag || !str_eq(only_if, etag)))
        range = NULL;
    switch (range_parse(range, size, ret_from, ret_len)) {
    case RANGE_UNSATISFIABLE:
        snprintf(text, sizeof(text), "bytes */%" PRIu64, size);
        http_set_header(req, "Content-Range", text);
        struct err err = { 0 };
        err_set(&err, ERR_HTTP_RANGE, "the range '%.60s' is outside of the %" PRIu64 " bytes", range, size);
        http_answer_err(req, &err);
        return false;
    case RANGE_PART:
        snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, *ret_from, *ret_from + *ret_len - 1,
                 size);
        http_set_header(req, "Content-Range", text);
        *ret_status = 206;
        return true;
    case RANGE_WHOLE:
        break;
    }
    *ret_status = 200;
    return true;
}

void http_answer_file(struct http_req *req, const char *type, int fd, uint64_t size, const char *etag)
{
    auto_fd int mine = fd;
    uint64_t from, len;
    int status;

    if (!http_select_range(req, size, etag, &status, &from, &len))
        return;
    http_answer_begin(req, ANSWER_FILE, status, type);
    req->fd = take_fd(&mine);
    req->file_offset = from;
    req->answer_len = len;
    http_answer_given(req);
}

char *http_etag(uint64_t size, uint64_t version, char buf[64])
{
    snprintf(buf, 64, "\"%" PRIx64 "-%" PRIx64 "\"", size, version);
    return buf;
}

void http_answer_upgrade(struct http_req *req, struct http_ws *ws)
{
    http_answer_begin(req, ANSWER_UPGRADE, 101, NULL);
    req->ws = ws;
    http_answer_given(req);
}

/* streams begin here; the rest is in stream.c */

void http_answer_stream(struct http_req *req, int status, const char *type, uint64_t len)
{
    http_answer_begin(req, ANSWER_STREAM, status, type);
    req->answer_len = len;
    http_answer_given(req);
}
