/* The body of a message, as the egress proxy passes it on. The first byte chooses the framing and
 * the pieces.
 *
 * Checked in addition to memory errors: pieces make no difference to the end, the content and the
 * refusal; content and its framing together are the bytes that belong to the message; the content
 * of an accepted body, written as chunks, is read back as the same content. */
#include "core/http1/body.h"

#include "core/base/buf.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

struct outcome {
    enum http1_result result;
    size_t used;
    struct buf content;
};

static struct outcome read_body(enum http1_framing framing, uint64_t length, const char *data, size_t n, size_t piece)
{
    struct outcome out = { HTTP1_MORE, 0, { 0 } };
    struct http1_body b;
    struct err err = { 0 };

    http1_body_init(&b, framing, length);
    while (out.result == HTTP1_MORE && out.used < n) {
        size_t len = min_size(piece, n - out.used), used;
        struct http1_text content;

        out.result = http1_body_read(&b, data + out.used, len, &used, &content, &err);
        must(used <= len && content.len <= used && (used > 0 || out.result != HTTP1_MORE));
        must(content.len == 0 || content.data + content.len == data + out.used + used);
        buf_add(&out.content, content.data, content.len);
        out.used += used;
    }
    must(out.result != HTTP1_BAD || err.msg[0]);
    return out;
}

static void check_written(const struct buf *content)
{
    struct buf b = { 0 };

    for (size_t at = 0; at < content->len; at += 7) {
        char head[HTTP1_CHUNK_HEAD_MAX];
        size_t n = min_size(7, content->len - at);

        buf_add(&b, head, http1_chunk_head(n, head));
        buf_add(&b, content->data + at, n);
        buf_add(&b, "\r\n", 2);
    }
    buf_adds(&b, HTTP1_CHUNKS_END);
    struct outcome again = read_body(HTTP1_FRAMING_CHUNKED, 0, b.data, b.len, 5);
    must(again.result == HTTP1_DONE && again.used == b.len && again.content.len == content->len);
    must(content->len == 0 || memcmp(again.content.data, content->data, content->len) == 0);
    buf_done(&again.content);
    buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const enum http1_framing framings[] = { HTTP1_FRAMING_CHUNKED, HTTP1_FRAMING_CHUNKED, HTTP1_FRAMING_LENGTH,
                                                   HTTP1_FRAMING_UNTIL_CLOSE };
    const char *data = (const char *)bytes + 1;

    if (size < 2)
        return 0;
    enum http1_framing framing = framings[bytes[0] & 3];
    struct outcome whole = read_body(framing, 20, data, size - 1, size - 1),
                   cut = read_body(framing, 20, data, size - 1, (bytes[0] >> 2) + 1u);
    must(whole.result == cut.result && whole.used == cut.used && whole.content.len == cut.content.len);
    must(whole.content.len == 0 || memcmp(whole.content.data, cut.content.data, whole.content.len) == 0);
    if (whole.result == HTTP1_DONE)
        check_written(&whole.content);
    buf_done(&whole.content);
    buf_done(&cut.content);
    return 0;
}
