/* A stream of server-sent events from an MCP server of others.
 *
 * The first byte is the size of the pieces. Checked in addition to memory errors: the events,
 * the last id and the retry time are the same in one piece and in many; data stays within its
 * bound, and an id has no line break. */
#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/mcp/sse.h"

#define EVENT_MAX 300u

static void must(bool ok)
{
    if (!ok)
        abort();
}

static bool on_event(void *arg, const struct sse_event *e)
{
    struct buf *out = arg;

    must(e->len <= EVENT_MAX && e->data[e->len] == '\0');
    must(strlen(e->id) <= SSE_ID_MAX && !strpbrk(e->id, "\r\n"));
    must(e->type[0] && strlen(e->type) <= SSE_TYPE_MAX);
    buf_addf(out, "%s %s %zu ", e->type, e->id, e->len);
    buf_add(out, e->data, e->len);
    return true;
}

static void read_stream(const uint8_t *data, size_t size, size_t piece, struct buf *out)
{
    auto_(sse) s = sse_new(EVENT_MAX, on_event, out);
    struct err err = { 0 };
    uint32_t ms = 0;

    for (size_t at = 0; at < size; at += piece) {
        if (sse_feed(s, data + at, min_size(piece, size - at), &err) < 0) {
            must(err.id == ERR_PROTOCOL && err.msg[0]);
            return;
        }
    }
    must(!sse_retry_ms(s, &ms) || ms <= 3600000);
    buf_addf(out, "end %s %u", sse_last_id(s), ms);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_buf whole = { 0 };
    auto_buf pieces = { 0 };

    if (size < 2)
        return 0;
    read_stream(data + 1, size - 1, size - 1, &whole);
    read_stream(data + 1, size - 1, 1u + data[0] % 16u, &pieces);
    must(whole.len == pieces.len && (whole.len == 0 || memcmp(whole.data, pieces.data, whole.len) == 0));
    return 0;
}
