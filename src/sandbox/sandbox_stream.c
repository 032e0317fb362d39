/* The streams of one control connection: ids, windows, credit, and the handling of streams that
 * lost their owner.
 *
 * All frames that arrive here were written by a process inside the sandbox. The checks that
 * apply to every stream are made in this file, so that an owner sees only frames that could be
 * legal: the stream exists, its DATA fits the window, names a known channel that has not ended,
 * and is not empty.
 *
 * Credit is returned in halves of a window. The sender always has the other half, so it never
 * waits for us, and a program that prints little costs no CREDIT frame at all.
 *
 * An owner can leave a stream in two ways. An abandoned stream goes on to its last frame; its
 * data is credited and discarded. For a cancelled stream, CLOSE makes the runtime forget it;
 * frames sent before CLOSE arrived still come, and no last frame says when they end. So a
 * cancelled stream is followed by a STATS request as a fence: the runtime answers in order, and
 * after that answer no frame of the stream can come. */
#include "sandbox/engine_internal.h"

#include "core/base/mem.h"

#define RESUMED_STREAMS_MAX 1024u /* streams that a previous server process can have left open */

static struct sandbox_stream **sandbox_stream_find(struct sandbox_handle *b, uint32_t id)
{
    struct sandbox_stream **p = &b->streams;

    while (*p && (*p)->id != id)
        p = &(*p)->next;
    return p;
}

static struct sandbox_stream *sandbox_stream_add(struct sandbox_handle *b, uint32_t id, uint8_t type,
                                                 const struct sandbox_stream_ops *ops, void *arg)
{
    struct sandbox_stream *s = mem_new(struct sandbox_stream);

    s->sandbox = b;
    s->id = id;
    s->window = s->receive_room = s->send_credit = rt_initial_window(type);
    s->ops = ops;
    s->arg = arg;
    s->next = b->streams;
    b->streams = s;
    return s;
}

uint32_t sandbox_stream_reserve(struct sandbox_handle *b)
{
    do
        b->next_stream += 2;
    while (b->next_stream == 0 || *sandbox_stream_find(b, b->next_stream));
    return b->next_stream;
}

struct sandbox_stream *sandbox_stream_open_as(struct sandbox_handle *b, uint32_t id, uint8_t type, const uint8_t *data,
                                              uint32_t len, const struct sandbox_stream_ops *ops, void *arg)
{
    struct sandbox_stream *s = sandbox_stream_add(b, id, type, ops, arg);
    struct frame f = { .type = type, .stream = id, .len = len, .data = data };

    if (b->is_connected)
        chan_send(&b->chan, &f);
    return s;
}

struct sandbox_stream *sandbox_stream_open(struct sandbox_handle *b, uint8_t type, const uint8_t *data, uint32_t len,
                                           const struct sandbox_stream_ops *ops, void *arg)
{
    return sandbox_stream_open_as(b, sandbox_stream_reserve(b), type, data, len, ops, arg);
}

void sandbox_stream_close(struct sandbox_handle *b, uint32_t id)
{
    struct frame f = { .type = FRAME_CLOSE, .stream = id };

    if (b->is_connected)
        chan_send(&b->chan, &f);
}

void sandbox_stream_send_frame(struct sandbox_stream *s, uint8_t type, uint8_t flags, const uint8_t *data, uint32_t len)
{
    struct frame f = { .type = type, .flags = flags, .stream = s->id, .len = len, .data = data };

    if (s->sandbox->is_connected)
        chan_send(&s->sandbox->chan, &f);
}

static void sandbox_stream_send_credit(struct sandbox_stream *s)
{
    uint8_t payload[4];
    struct pack p;

    pack_init(&p, payload, sizeof(payload));
    pack_u32(&p, s->credit_owed);
    s->receive_room += s->credit_owed;
    s->credit_owed = 0;
    sandbox_stream_send_frame(s, FRAME_CREDIT, 0, payload, sizeof(payload));
}

void sandbox_stream_consumed(struct sandbox_stream *s, size_t n)
{
    s->credit_owed += (uint32_t)n;
    if (s->credit_owed >= s->window / 2)
        sandbox_stream_send_credit(s);
}

void sandbox_stream_abandon(struct sandbox_stream *s)
{
    uint32_t unseen = s->window - s->receive_room - s->credit_owed;

    s->ops = NULL;
    if (unseen > 0)
        sandbox_stream_consumed(s, unseen);
}

/* --- cancelling --- */

static bool sandbox_stream_on_fence_frame(void *arg UNUSED, const struct frame *f)
{
    return f->type == FRAME_DONE || f->type == FRAME_ERROR;
}

static void sandbox_stream_on_fence_gone(void *arg UNUSED, const struct err *why UNUSED)
{
}

static const struct sandbox_stream_ops sandbox_stream_fence_ops = { .on_frame = sandbox_stream_on_fence_frame,
                                                                    .on_gone = sandbox_stream_on_fence_gone };

void sandbox_stream_cancel(struct sandbox_stream *s)
{
    s->ops = NULL;
    sandbox_stream_send_frame(s, FRAME_CLOSE, 0, NULL, 0);
    s->cancelled = true;
    s->fence_stream_id = sandbox_stream_open(s->sandbox, FRAME_STATS, NULL, 0, &sandbox_stream_fence_ops, NULL)->id;
}

static void sandbox_stream_drop_fenced(struct sandbox_handle *b, uint32_t fence)
{
    for (struct sandbox_stream **p = &b->streams; *p;) {
        struct sandbox_stream *s = *p;

        if (s->cancelled && s->fence_stream_id == fence) {
            *p = s->next;
            free(s);
        } else {
            p = &s->next;
        }
    }
}

/* --- writing --- */

size_t sandbox_stream_write(struct sandbox_stream *s, uint8_t channel, const void *data, size_t len)
{
    const uint8_t *p = data;
    size_t done = 0;

    while (done < len && s->send_credit > 0 && s->sandbox->is_connected && !chan_full(&s->sandbox->chan)) {
        size_t n = min_size(min_size(len - done, s->send_credit), FRAME_PAYLOAD_MAX);

        sandbox_stream_send_frame(s, FRAME_DATA, channel, p + done, (uint32_t)n);
        s->send_credit -= (uint32_t)n;
        done += n;
    }
    return done;
}

/* --- arriving frames --- */

static void sandbox_stream_on_credit(struct sandbox_stream *s, const struct frame *f)
{
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    uint32_t n = unpack_u32(&u);
    if (!s->ops && !u.bad)
        return; /* it may be for bytes that the previous server process sent */
    if (!unpack_end(&u) || n == 0 || n > s->window - s->send_credit) {
        sandbox_handle_protocol_error(s->sandbox, "a credit of %u bytes for data that it was not sent", n);
        return;
    }
    s->send_credit += n;
    if (s->ops && s->ops->on_writable)
        s->ops->on_writable(s->arg);
}

static void sandbox_stream_on_data(struct sandbox_stream *s, const struct frame *f)
{
    uint8_t channel = f->flags & RT_CHANNEL;
    uint8_t bit = (uint8_t)(1u << channel);

    if (f->flags & ~(RT_CHANNEL | RT_END) || s->ended_channels & bit || (f->len == 0 && !(f->flags & RT_END))) {
        sandbox_handle_protocol_error(s->sandbox, "a DATA frame with flags 0x%02x, which its stream does not allow",
                                      f->flags);
        return;
    }
    if (f->len > s->receive_room) {
        sandbox_handle_protocol_error(s->sandbox, "%u bytes, and the window has room for %u", f->len, s->receive_room);
        return;
    }
    s->receive_room -= f->len;
    if (f->flags & RT_END)
        s->ended_channels |= bit;
    if (s->cancelled)
        return;
    if (!s->ops)
        sandbox_stream_consumed(s, f->len);
    else if (!s->ops->on_frame(s->arg, f))
        sandbox_handle_protocol_error(s->sandbox, "DATA on channel %u, which its stream does not have", channel);
}

static void sandbox_stream_on_last_frame(struct sandbox_handle *b, struct sandbox_stream **p, const struct frame *f)
{
    struct sandbox_stream *s = *p;

    *p = s->next;
    if (!s->cancelled && !(s->confirm_end && s->ops))
        sandbox_stream_send_frame(s, FRAME_CLOSE, 0, NULL, 0);
    sandbox_stream_drop_fenced(b, s->id);
    if (s->ops && !s->ops->on_frame(s->arg, f))
        sandbox_handle_protocol_error(b, "an invalid %s frame", frame_name(f->type));
    free(s);
}

void sandbox_stream_on_frame(struct sandbox_handle *b, const struct frame *f)
{
    struct sandbox_stream **p = sandbox_stream_find(b, f->stream);
    struct sandbox_stream *s = *p;

    if (!s && b->resetting)
        return; /* it was sent before RESET arrived */
    if (!s) {
        sandbox_handle_protocol_error(b, "a %s frame on stream %u, which is not open", frame_name(f->type), f->stream);
        return;
    }
    switch (f->type) {
    case FRAME_CREDIT:
        sandbox_stream_on_credit(s, f);
        break;
    case FRAME_DATA:
        sandbox_stream_on_data(s, f);
        break;
    case FRAME_STARTED:
        if (s->ops && !s->ops->on_frame(s->arg, f))
            sandbox_handle_protocol_error(b, "an invalid STARTED frame");
        break;
    case FRAME_EXIT:
    case FRAME_DONE:
    case FRAME_ERROR:
        sandbox_stream_on_last_frame(b, p, f);
        break;
    default:
        sandbox_handle_protocol_error(b, "a %s frame, which only the server may send", frame_name(f->type));
    }
}

static size_t sandbox_streams_count(const struct sandbox_handle *b)
{
    size_t n = 0;

    for (const struct sandbox_stream *s = b->streams; s; s = s->next)
        n++;
    return n;
}

/* A stream of the previous server process has no owner, unless its execution is resumed. */
static void sandbox_stream_add_resumed(struct sandbox_handle *b, uint32_t id, const struct rt_resume *m)
{
    struct exec_handle *x = m->request == FRAME_EXEC ? exec_resume_find(b, id) : NULL;
    struct sandbox_stream *s = sandbox_stream_add(b, id, m->request, x ? &exec_handle_stream_ops : NULL, x);

    s->is_orphan = !x;
    if (x)
        exec_resume_attach(x, s, m);
}

void sandbox_stream_on_resume(struct sandbox_handle *b, const struct frame *f)
{
    struct rt_resume m;
    struct err err;

    if (rt_resume_decode(f, &m, &err) < 0)
        sandbox_handle_protocol_error(b, "RESUME: %s", err.msg);
    else if (!b->adopted || f->stream == 0 || *sandbox_stream_find(b, f->stream) ||
             sandbox_streams_count(b) >= RESUMED_STREAMS_MAX)
        sandbox_handle_protocol_error(b, "RESUME of stream %u", f->stream);
    else
        sandbox_stream_add_resumed(b, f->stream, &m);
}

void sandbox_streams_on_drained(struct sandbox_handle *b)
{
    struct sandbox_stream *next;

    for (struct sandbox_stream *s = b->streams; s && b->is_connected && !chan_full(&b->chan); s = next) {
        next = s->next;
        if (s->ops && s->ops->on_writable)
            s->ops->on_writable(s->arg);
    }
}

void sandbox_streams_close_all(struct sandbox_handle *b, const struct err *why)
{
    while (b->streams) {
        struct sandbox_stream *s = b->streams;

        b->streams = s->next;
        if (s->ops)
            s->ops->on_gone(s->arg, why);
        free(s);
    }
}
