/* Heads are rebuilt from parsed parts (core/http1/write.h), so a request has the field of the secret
 * once, and a response has it in no field. Framing fields are not searched: the writer makes them
 * from numbers. */
#include "host/egress/secret_way.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>
#include <strings.h>

struct secret_way {
    struct egress_secret_rule rule;
    struct secret_forms *forms;
    char *field; /* the value of the field, as the format of the rule has it */
    size_t field_len;
    char host[HOSTNAME_MAX + 8]; /* with the port, as a Host field has it */
};

int secret_way_new(const struct egress_secret_rule *rule, const char *value, struct secret_way **ret, struct err *err)
{
    const char *place = strstr(rule->format, "{}");
    size_t n = strlen(value);

    if (n == 0 || n > SECRET_WAY_VALUE_MAX)
        return err_set(err, ERR_INVALID, "secret %s: the value has %zu bytes; it must have 1 to %u", rule->name, n,
                       SECRET_WAY_VALUE_MAX);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
            return err_set(err, ERR_INVALID, "secret %s: byte %zu of the value is a control character; remove it",
                           rule->name, i + 1);
    if (!place)
        return err_set(err, ERR_INVALID, "secret %s: the format has no {}", rule->name);
    struct secret_way *w = mem_new(struct secret_way);
    w->rule = *rule;
    w->forms = secret_forms_new(value);
    w->field = str_printf("%.*s%s%s", (int)(place - rule->format), rule->format, value, place + 2);
    w->field_len = strlen(w->field);
    if (rule->port == 443)
        snprintf(w->host, sizeof(w->host), "%s", rule->host);
    else
        snprintf(w->host, sizeof(w->host), "%s:%u", rule->host, rule->port);
    *ret = w;
    return 0;
}

void secret_way_free(struct secret_way *w)
{
    if (!w)
        return;
    secret_forms_free(w->forms);
    explicit_bzero(w->field, w->field_len);
    free(w->field);
    free(w);
}

const struct egress_secret_rule *secret_way_rule(const struct secret_way *w)
{
    return &w->rule;
}

void secret_way_wipe(struct buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_done(b);
}

/* --- requests --- */

/* Enough room for the head, so that no growth of the buffer leaves the value in freed memory. */
static size_t way_request_size(const struct secret_way *w, const struct http1_request *r)
{
    size_t n = r->method.len + r->target.len + w->field_len + sizeof(*w) + 256;

    for (size_t i = 0; i < r->fields.count; i++)
        n += r->fields.list[i].name.len + r->fields.list[i].value.len + 4;
    return n;
}

int secret_way_write_request(const struct secret_way *w, const struct http1_request *r, bool close, struct buf *out,
                             struct err *err)
{
    const char *const drop[] = { w->rule.header, "Accept-Encoding", "Range", "If-Range", NULL };
    const struct http1_added_field added[] = { { "Accept-Encoding", http1_text_of("identity") },
                                               { w->rule.header, { w->field, w->field_len } } };
    const struct http1_rewrite rewrite = {
        .host = http1_text_of(w->host), .drop = drop, .added = added, .nadded = ARRAY_LEN(added), .close = close
    };

    if (r->form == HTTP1_FORM_AUTHORITY || http1_text_is_nocase(r->method, "TRACE"))
        return err_set(err, ERR_DENIED, "secret %s: the method %.*s is not possible on this way", w->rule.name,
                       (int)min_size(r->method.len, 20), r->method.data);
    buf_room(out, way_request_size(w, r));
    http1_write_request(r, &rewrite, out);
    return 0;
}

/* --- responses --- */

static int way_check_response(const struct secret_way *w, const struct http1_request *request,
                              const struct http1_response *r, struct err *err)
{
    if (r->is_upgrade)
        return err_set(err, ERR_PROTOCOL, "%s changed the protocol although it was not asked to", w->rule.host);
    if (r->status == 206)
        return err_set(err, ERR_PROTOCOL, "%s sent a part of a response although it was not asked to", w->rule.host);
    if (r->framing == HTTP1_FRAMING_CHUNKED && request->is_http10)
        return err_set(err, ERR_PROTOCOL, "%s sent chunks to a client of HTTP/1.0", w->rule.host);
    for (size_t i = 0; i < r->fields.count && r->framing != HTTP1_FRAMING_NONE; i++) {
        const struct http1_field *f = &r->fields.list[i];

        if (http1_text_is_nocase(f->name, "Content-Encoding") && !http1_text_is_nocase(f->value, "identity"))
            return err_set(err, ERR_PROTOCOL,
                           "%s sent a response with Content-Encoding although identity was asked for, so it cannot be "
                           "searched for the secret",
                           w->rule.host);
    }
    return 0;
}

/* The part of an absolute URI on the bound host that follows the authority. Returns false for any
 * other URI. */
static bool way_is_own_uri(const struct secret_way *w, struct http1_text uri, struct http1_text *ret_rest)
{
    static const char scheme[] = "https://";
    struct http1_authority a;
    size_t from = sizeof(scheme) - 1, to = from;

    if (uri.len < from || strncasecmp(uri.data, scheme, from) != 0)
        return false;
    while (to < uri.len && !strchr("/?#", uri.data[to]))
        to++;
    if (!http1_authority_parse((struct http1_text){ uri.data + from, to - from }, &a) ||
        !http1_text_is_nocase(a.host, w->rule.host) || (a.port ? a.port : 443) != w->rule.port)
        return false;
    *ret_rest = (struct http1_text){ uri.data + to, uri.len - to };
    return true;
}

/* A copy of the text at *at, which moves after it, without the secret. */
static struct http1_text way_clean_text(const struct secret_way *w, struct http1_text t, char **at)
{
    struct http1_text clean = { *at, t.len };

    memcpy(*at, t.data, t.len);
    secret_forms_mask(w->forms, *at, t.len);
    *at += t.len;
    return clean;
}

static struct http1_text way_clean_location(const struct secret_way *w, struct http1_text uri, char **at)
{
    struct http1_text rest, clean = { *at, 0 };

    if (!way_is_own_uri(w, uri, &rest))
        return way_clean_text(w, uri, at);
    *at += sprintf(*at, "http://%s%s%s", w->rule.name, EGRESS_SECRET_SUFFIX,
                   rest.len > 0 && rest.data[0] == '/' ? "" : "/");
    way_clean_text(w, rest, at);
    clean.len = (size_t)(*at - clean.data);
    return clean;
}

/* All texts of *r without the secret, in memory that the caller wipes and frees. */
static char *way_clean_head(const struct secret_way *w, const struct http1_response *r, struct http1_response *ret)
{
    size_t n = r->reason.len + 1, location = sizeof("http:///") + sizeof(w->rule.name) + sizeof(EGRESS_SECRET_SUFFIX);

    for (size_t i = 0; i < r->fields.count; i++)
        n += r->fields.list[i].name.len + r->fields.list[i].value.len + location;
    char *memory = mem_alloc(n), *at = memory;
    *ret = *r;
    ret->reason = way_clean_text(w, r->reason, &at);
    for (size_t i = 0; i < r->fields.count; i++) {
        const struct http1_field *f = &r->fields.list[i];
        bool is_location = http1_text_is_nocase(f->name, "Location");

        ret->fields.list[i].name = way_clean_text(w, f->name, &at);
        ret->fields.list[i].value = is_location ? way_clean_location(w, f->value, &at)
                                                : way_clean_text(w, f->value, &at);
    }
    return memory;
}

int secret_way_write_response(const struct secret_way *w, const struct http1_request *request,
                              const struct http1_response *r, bool close, struct buf *out, struct err *err)
{
    /* They would lead a client to https:// or to another port, where there is no secret. */
    static const char *const drop[] = { "Alt-Svc", "Strict-Transport-Security", NULL };
    const struct http1_rewrite rewrite = { .drop = drop, .close = close || r->framing == HTTP1_FRAMING_UNTIL_CLOSE };
    struct http1_response clean;

    if (way_check_response(w, request, r, err) < 0)
        return -1;
    auto_free char *memory UNUSED = way_clean_head(w, r, &clean);
    http1_write_response(&clean, &rewrite, request->is_http10 && !r->is_interim, out);
    return 0;
}

/* --- bodies --- */

void secret_body_init(struct secret_body *b, const struct secret_way *w, const struct http1_response *r)
{
    *b = (struct secret_body){ .is_chunked = r->framing == HTTP1_FRAMING_CHUNKED };
    http1_body_init(&b->body, r->framing, r->length);
    secret_scrub_init(&b->scrub, w->forms);
}

void secret_body_done(struct secret_body *b)
{
    secret_scrub_done(&b->scrub);
}

static void secret_body_write(const struct secret_body *b, const struct buf *content, struct buf *out)
{
    char head[HTTP1_CHUNK_HEAD_MAX];

    if (content->len == 0)
        return;
    if (b->is_chunked)
        buf_add(out, head, http1_chunk_head(content->len, head));
    buf_add(out, content->data, content->len);
    if (b->is_chunked)
        buf_add(out, "\r\n", 2);
}

static void secret_body_end(struct secret_body *b, struct buf *out)
{
    auto_buf rest = { 0 };

    secret_scrub_end(&b->scrub, &rest);
    secret_body_write(b, &rest, out);
    if (b->is_chunked)
        buf_adds(out, HTTP1_CHUNKS_END);
}

enum http1_result secret_body_feed(struct secret_body *b, const char *data, size_t n, size_t *ret_n, struct buf *out,
                                   struct err *err)
{
    enum http1_result result;
    auto_buf clean = { 0 };
    size_t at = 0;

    do {
        struct http1_text content;
        size_t used;

        result = http1_body_read(&b->body, data + at, n - at, &used, &content, err);
        if (result == HTTP1_BAD)
            break;
        at += used;
        secret_scrub_feed(&b->scrub, content.data, content.len, &clean);
    } while (result == HTTP1_MORE && at < n);
    secret_body_write(b, &clean, out);
    if (result == HTTP1_DONE)
        secret_body_end(b, out);
    *ret_n = at;
    return result;
}

int secret_body_close(struct secret_body *b, struct buf *out, struct err *err)
{
    if (!http1_body_may_close(&b->body))
        return err_set(err, ERR_CUT_OFF, "the connection ended before the response was complete");
    if (b->body.state == HTTP1_BODY_UNTIL_CLOSE)
        secret_body_end(b, out);
    return 0;
}
