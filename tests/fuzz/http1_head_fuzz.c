/* Bytes of a client or of an origin, as the egress proxy reads their heads. The first byte chooses
 * request or response and the pieces.
 *
 * Checked in addition to memory errors: pieces make no difference; all texts lie in the input; a
 * head that was accepted is written again as a head that is accepted, has the same framing, and has
 * no field of one hop; its path either normalises to a path without dot segments, or is refused and
 * leaves the buffer as it was. */
#include "core/http1/path.h"
#include "core/http1/write.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

struct outcome {
    enum http1_result result;
    size_t len;
    struct err err;
};

static const char *input, *input_end;

static void must_lie_in_input(struct http1_text t)
{
    must(t.len == 0 || (t.data >= input && t.data + t.len <= input_end));
}

static void check_fields(const struct http1_fields *f)
{
    must(f->count <= HTTP1_FIELDS_MAX);
    for (size_t i = 0; i < f->count; i++) {
        must_lie_in_input(f->list[i].name);
        must_lie_in_input(f->list[i].value);
        must(f->list[i].name.len > 0 && !memchr(f->list[i].value.data, '\n', f->list[i].value.len));
    }
}

static struct outcome read_pieces(const char *data, size_t n, size_t piece, unsigned how, struct http1_request *q,
                                  struct http1_response *p)
{
    struct outcome out = { .result = HTTP1_MORE };
    size_t seen = 0, at = 0;

    while (out.result == HTTP1_MORE && at < n) {
        at += min_size(piece, n - at);
        out.result = q ? http1_read_request(data, at, &seen, q, &out.len, &out.err)
                       : http1_read_response(data, at, &seen, how & 1, how & 2, p, &out.len, &out.err);
        must(out.result != HTTP1_DONE || out.len <= at);
    }
    must(out.result != HTTP1_BAD || out.err.msg[0]);
    return out;
}

static void check_path(struct http1_text path)
{
    struct buf b = { 0 };
    struct err err = { 0 };

    buf_adds(&b, "x");
    if (http1_path_normalize(path, &b, &err) == 0) {
        must(b.len >= 2 && b.len <= path.len + 2 && b.data[1] == '/' && strlen(b.data) == b.len);
        must(!strstr(b.data, "/../") && !strstr(b.data, "/./") && !strstr(b.data, "//") && !strchr(b.data, '\\'));
    } else {
        must(b.len == 1 && b.data[1] == '\0' && err.msg[0]);
    }
    buf_done(&b);
}

static void check_request(const struct http1_request *q)
{
    static struct http1_request again;
    const struct http1_rewrite w = { 0 };
    struct buf b = { 0 };
    struct err err = { 0 };
    size_t seen = 0, len;

    check_fields(&q->fields);
    must_lie_in_input(q->method);
    must_lie_in_input(q->path);
    must_lie_in_input(q->query);
    must_lie_in_input(q->authority.host);
    must_lie_in_input(q->host.host);
    check_path(q->path);
    if (q->form == HTTP1_FORM_AUTHORITY)
        return;
    http1_write_request(q, &w, &b);
    /* The written head can be larger than the limit, by the spaces that it adds. */
    enum http1_result result = http1_read_request(b.data, b.len, &seen, &again, &len, &err);
    must(result == HTTP1_DONE || err.id == ERR_HTTP_HEADERS);
    if (result == HTTP1_DONE) {
        must(len == b.len && again.framing == q->framing && again.length == q->length && !again.host_differs);
        must(again.form == HTTP1_FORM_ORIGIN || again.form == HTTP1_FORM_ASTERISK);
        must(!http1_find(&again.fields, "Upgrade") && !http1_find(&again.fields, "Proxy-Authorization"));
    }
    buf_done(&b);
}

static void check_response(const struct http1_response *p)
{
    const struct http1_rewrite w = { 0 };
    struct buf b = { 0 };

    check_fields(&p->fields);
    must_lie_in_input(p->reason);
    must(p->status >= 100 && p->status <= 999);
    must(!p->keep_alive || p->framing != HTTP1_FRAMING_UNTIL_CLOSE);
    http1_write_response(p, &w, false, &b);
    must(b.len > 4 && memcmp(b.data + b.len - 4, "\r\n\r\n", 4) == 0);
    buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct http1_request q, q_cut;
    static struct http1_response p, p_cut;

    if (size < 2)
        return 0;
    bool is_request = bytes[0] & 1;
    unsigned how = bytes[0] >> 1 & 3;
    size_t piece = (bytes[0] >> 3) + 1u;
    input = (const char *)bytes + 1;
    input_end = input + size - 1;
    struct outcome whole = read_pieces(input, size - 1, size - 1, how, is_request ? &q : NULL, &p),
                   cut = read_pieces(input, size - 1, piece, how, is_request ? &q_cut : NULL, &p_cut);
    must(whole.result == cut.result && whole.len == cut.len && whole.err.id == cut.err.id);
    if (whole.result == HTTP1_DONE && is_request)
        check_request(&q);
    else if (whole.result == HTTP1_DONE)
        check_response(&p);
    return 0;
}
