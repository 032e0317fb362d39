/* A response of a server that knows the secret and wants a program in the sandbox to see it: a
 * head, then a body, as the egress proxy passes them on. The first byte chooses the secret and the
 * pieces.
 *
 * Checked in addition to memory errors: no form of the secret is in the output, with any pieces;
 * pieces make no difference to the content; the length stays; little is held back. */
#include "host/egress/secret_way.h"

#include "core/base/mem.h"
#include "core/base/str.h"

static const char *const values[] = { "abab", "s3cret+/=", "aaaaaa", "k\"<\\&'" };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static struct secret_way *make_way(const char *value)
{
    const struct egress_secret_rule rule = {
        .name = "n", .host = "h.x", .port = 443, .header = "Authorization", .format = "Bearer {}"
    };
    struct secret_way *w = NULL;

    must(secret_way_new(&rule, value, &w, NULL) == 0);
    return w;
}

/* The content that comes out of the filter, for content in pieces. */
static struct buf filter(const struct secret_forms *forms, const char *data, size_t n, size_t piece)
{
    struct secret_scrub s;
    struct buf out = { 0 };

    secret_scrub_init(&s, forms);
    for (size_t at = 0; at < n; at += piece) {
        secret_scrub_feed(&s, data + at, min_size(piece, n - at), &out);
        must(s.raw.len == s.clean.len && s.raw.len < 64);
    }
    secret_scrub_end(&s, &out);
    secret_scrub_done(&s);
    must(out.len == n);
    return out;
}

static void check_content(const char *value, const char *data, size_t n, size_t piece)
{
    struct secret_forms *forms = secret_forms_new(value);
    struct buf whole = filter(forms, data, n, n > 0 ? n : 1), cut = filter(forms, data, n, piece);

    must(n == 0 || memcmp(whole.data, cut.data, n) == 0);
    must(n == 0 || !memmem(whole.data, n, value, strlen(value)));
    if (n > 0) {
        auto_free char *text = mem_copy(data, n);

        secret_forms_mask(forms, text, n);
        must(memcmp(text, whole.data, n) == 0);
        must(secret_forms_mask(forms, text, n) == 0);
    }
    buf_done(&whole);
    buf_done(&cut);
    secret_forms_free(forms);
}

static void check_body(const struct secret_way *w, const struct http1_response *r, const char *data, size_t n,
                       size_t piece, const char *value)
{
    enum http1_result result = HTTP1_MORE;
    struct secret_body b;
    struct buf out = { 0 };
    size_t at = 0, used;
    struct err err = { 0 };

    secret_body_init(&b, w, r);
    while (result == HTTP1_MORE && at < n) {
        result = secret_body_feed(&b, data + at, min_size(piece, n - at), &used, &out, &err);
        must(used <= min_size(piece, n - at));
        at += used;
    }
    bool is_complete = result == HTTP1_DONE || (result == HTTP1_MORE && secret_body_close(&b, &out, &err) == 0);
    must(is_complete || r->framing != HTTP1_FRAMING_UNTIL_CLOSE);
    must(r->framing == HTTP1_FRAMING_CHUNKED || out.len <= n);
    must(out.len == 0 || !memmem(out.data, out.len, value, strlen(value)));
    secret_body_done(&b);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct http1_response r;
    const struct http1_request request = { .is_http10 = false };
    struct err err = { 0 };
    size_t seen = 0, len = 0;

    if (size < 1)
        return 0;
    const char *value = values[bytes[0] & 3], *data = (const char *)bytes + 1;
    size_t n = size - 1, piece = (bytes[0] >> 2) + 1u;
    check_content(value, data, n, piece);
    if (http1_read_response(data, n, &seen, false, false, &r, &len, &err) != HTTP1_DONE)
        return 0;
    struct secret_way *w = make_way(value);
    struct buf out = { 0 };
    if (secret_way_write_response(w, &request, &r, false, &out, &err) == 0) {
        must(!memmem(out.data, out.len, value, strlen(value)));
        check_body(w, &r, data + len, n - len, piece, value);
    } else {
        must(out.len == 0 && err.msg[0]);
    }
    buf_done(&out);
    secret_way_free(w);
    return 0;
}
