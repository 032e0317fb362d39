/* A head is built from parsed parts, never copied as a block, so it has no byte that the parser did
 * not accept. */
#include "core/http1/write.h"

#include <strings.h>

static const char *const write_hop_fields[] = { "Connection", "Keep-Alive",        "TE",
                                                "Trailer",    "Transfer-Encoding", "Upgrade",
                                                "Host",       "Content-Length",    NULL };

static void write_text(struct buf *out, struct http1_text t)
{
    if (t.len > 0)
        buf_add(out, t.data, t.len);
}

static bool write_names_has(const char *const *names, struct http1_text name)
{
    for (; names && *names; names++)
        if (http1_text_is_nocase(name, *names))
            return true;
    return false;
}

static bool write_is_for_hop(const struct http1_fields *all, struct http1_text name)
{
    if (write_names_has(write_hop_fields, name) || (name.len > 6 && strncasecmp(name.data, "Proxy-", 6) == 0))
        return true;
    for (size_t i = 0; i < all->count; i++)
        if (http1_text_is_nocase(all->list[i].name, "Connection") && http1_list_has(all->list[i].value, name))
            return true;
    return false;
}

static void write_field(struct buf *out, struct http1_text name, struct http1_text value)
{
    write_text(out, name);
    buf_add(out, ": ", 2);
    write_text(out, value);
    buf_add(out, "\r\n", 2);
}

static void write_fields(const struct http1_fields *f, const struct http1_rewrite *w, struct buf *out)
{
    for (size_t i = 0; i < f->count; i++) {
        const struct http1_field *field = &f->list[i];
        bool is_kept_upgrade = w->keep_upgrade && http1_text_is_nocase(field->name, "Upgrade");

        if ((write_is_for_hop(f, field->name) && !is_kept_upgrade) || write_names_has(w->drop, field->name) ||
            (w->drop_expect && http1_text_is_nocase(field->name, "Expect")))
            continue;
        write_field(out, field->name, field->value);
    }
}

static void write_added(const struct http1_rewrite *w, struct buf *out)
{
    for (size_t i = 0; i < w->nadded; i++)
        write_field(out, http1_text_of(w->added[i].name), w->added[i].value);
}

static void write_framing(const struct http1_rewrite *w, enum http1_framing framing, bool has_length, uint64_t length,
                          struct buf *out)
{
    if (w->framing_from_caller)
        return;
    if (framing == HTTP1_FRAMING_CHUNKED)
        buf_adds(out, "Transfer-Encoding: chunked\r\n");
    else if (has_length)
        buf_addf(out, "Content-Length: %" PRIu64 "\r\n", length);
}

static void write_connection(const struct http1_rewrite *w, bool say_keep_alive, struct buf *out)
{
    if (w->keep_upgrade)
        buf_adds(out, "Connection: upgrade\r\n");
    else if (w->close)
        buf_adds(out, "Connection: close\r\n");
    else if (say_keep_alive)
        buf_adds(out, "Connection: keep-alive\r\n");
}

static void write_host(const struct http1_request *r, const struct http1_rewrite *w, struct buf *out)
{
    const struct http1_authority *a = r->form == HTTP1_FORM_ABSOLUTE ? &r->authority : &r->host;

    if (w->host.len > 0) {
        buf_adds(out, "Host: ");
        write_text(out, w->host);
        buf_add(out, "\r\n", 2);
    } else if (a->host.len > 0) {
        buf_adds(out, a->is_ipv6 ? "Host: [" : "Host: ");
        write_text(out, a->host);
        buf_adds(out, a->is_ipv6 ? "]" : "");
        if (a->port)
            buf_addf(out, ":%u", a->port);
        buf_add(out, "\r\n", 2);
    }
}

void http1_write_request(const struct http1_request *r, const struct http1_rewrite *w, struct buf *out)
{
    write_text(out, r->method);
    buf_add(out, " ", 1);
    if (r->form == HTTP1_FORM_ASTERISK)
        buf_add(out, "*", 1);
    else if (r->path.len == 0)
        buf_add(out, "/", 1);
    write_text(out, r->path);
    write_text(out, r->query);
    buf_adds(out, r->is_http10 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
    write_host(r, w, out);
    write_fields(&r->fields, w, out);
    write_framing(w, r->framing, r->has_length, r->length, out);
    write_added(w, out);
    write_connection(w, r->is_http10 && r->keep_alive, out);
    buf_add(out, "\r\n", 2);
}

void http1_write_response(const struct http1_response *r, const struct http1_rewrite *w, bool to_http10,
                          struct buf *out)
{
    buf_addf(out, "HTTP/1.1 %03u ", r->status);
    write_text(out, r->reason);
    buf_add(out, "\r\n", 2);
    write_fields(&r->fields, w, out);
    write_framing(w, r->framing, r->has_length, r->length, out);
    write_added(w, out);
    write_connection(w, to_http10, out);
    buf_add(out, "\r\n", 2);
}
