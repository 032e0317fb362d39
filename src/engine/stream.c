/* The streams of one control connection: numbers, windows, credit, and what to do with the ones nobody owns any more.
 *
 * Everything that arrives here was written by a process inside the sandbox. The checks that belong to every stream are
 * made in this file, so that an owner sees only frames that could be legal: the stream exists, its DATA fits the
 * window, names a known channel that has not ended, and says something.
 *
 * Credit goes back in halves of a window. The sender always has the other half, so it never waits for us, and a
 * program that prints little costs no CREDIT at all.
 *
 * A stream can be left in two ways. Abandoned, it goes on to its last word, and what it says is credited and thrown
 * away. Cancelled, the runtime is told to forget it; frames that were on their way then still arrive, and no last word
 * says when they end. So a cancelled stream is followed by a STATS request: the runtime answers in order, and after
 * that answer nothing of the stream can come. */
#include "engine/inside.h"

#include "base/mem.h"

#define RESUMED_MAX 1024u /* streams that an earlier host can have left open */

static struct stream **find(struct box *b, uint32_t id)
{
    struct stream **p = &b->streams;

    while (*p && (*p)->id != id)
        p = &(*p)->next;
    return p;
}

static struct stream *add(struct box *b, uint32_t id, uint8_t type, const struct stream_ops *ops, void *arg)
{
    struct stream *s = mem_new(struct stream);

    s->box = b;
    s->id = id;
    s->window = s->room = s->credit = rt_window(type);
    s->ops = ops;
    s->arg = arg;
    s->next = b->streams;
    b->streams = s;
    return s;
}

uint32_t stream_reserve(struct box *b)
{
    do
        b->next_stream += 2;
    while (b->next_stream == 0 || *find(b, b->next_stream));
    return b->next_stream;
}

struct stream *stream_open_as(struct box *b, uint32_t id, uint8_t type, const uint8_t *data, uint32_t len,
                              const struct stream_ops *ops, void *arg)
{
    struct stream *s = add(b, id, type, ops, arg);
    struct frame f = { .type = type, .stream = id, .len = len, .data = data };

    if (b->wired)
        chan_send(&b->chan, &f);
    return s;
}

struct stream *stream_open(struct box *b, uint8_t type, const uint8_t *data, uint32_t len, const struct stream_ops *ops,
                           void *arg)
{
    return stream_open_as(b, stream_reserve(b), type, data, len, ops, arg);
}

void stream_close(struct box *b, uint32_t id)
{
    struct frame f = { .type = FRAME_CLOSE, .stream = id };

    if (b->wired)
        chan_send(&b->chan, &f);
}

void stream_send(struct stream *s, uint8_t type, uint8_t flags, const uint8_t *data, uint32_t len)
{
    struct frame f = { .type = type, .flags = flags, .stream = s->id, .len = len, .data = data };

    if (s->box->wired)
        chan_send(&s->box->chan, &f);
}

static void give_credit(struct stream *s)
{
    uint8_t payload[4];
    struct pack p;

    pack_init(&p, payload, sizeof(payload));
    pack_u32(&p, s->owed);
    s->room += s->owed;
    s->owed = 0;
    stream_send(s, FRAME_CREDIT, 0, payload, sizeof(payload));
}

void stream_consumed(struct stream *s, size_t n)
{
    s->owed += (uint32_t)n;
    if (s->owed >= s->window / 2)
        give_credit(s);
}

void stream_abandon(struct stream *s)
{
    uint32_t unseen = s->window - s->room - s->owed;

    s->ops = NULL;
    if (unseen > 0)
        stream_consumed(s, unseen);
}

/* --- cancelling --- */

static bool on_fence_frame(void *arg UNUSED, const struct frame *f)
{
    return f->type == FRAME_DONE || f->type == FRAME_ERROR;
}

static void on_fence_gone(void *arg UNUSED, const struct err *why UNUSED)
{
}

static const struct stream_ops fence_ops = { .on_frame = on_fence_frame, .on_gone = on_fence_gone };

void stream_cancel(struct stream *s)
{
    s->ops = NULL;
    stream_send(s, FRAME_CLOSE, 0, NULL, 0);
    s->cancelled = true;
    s->fence = stream_open(s->box, FRAME_STATS, NULL, 0, &fence_ops, NULL)->id;
}

static void drop_fenced(struct box *b, uint32_t fence)
{
    for (struct stream **p = &b->streams; *p;) {
        struct stream *s = *p;

        if (s->cancelled && s->fence == fence) {
            *p = s->next;
            free(s);
        } else {
            p = &s->next;
        }
    }
}

/* --- writing --- */

size_t stream_write(struct stream *s, uint8_t channel, const void *data, size_t len)
{
    const uint8_t *p = data;
    size_t done = 0;

    while (done < len && s->credit > 0 && s->box->wired && !chan_full(&s->box->chan)) {
        size_t n = min_size(min_size(len - done, s->credit), FRAME_PAYLOAD_MAX);

        stream_send(s, FRAME_DATA, channel, p + done, (uint32_t)n);
        s->credit -= (uint32_t)n;
        done += n;
    }
    return done;
}

/* --- arriving frames --- */

static void on_credit(struct stream *s, const struct frame *f)
{
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    uint32_t n = unpack_u32(&u);
    if (!s->ops && !u.bad)
        return; /* it may speak of bytes that an earlier host sent */
    if (!unpack_end(&u) || n == 0 || n > s->window - s->credit) {
        box_violate(s->box, "a credit of %u bytes for data that was not sent", n);
        return;
    }
    s->credit += n;
    if (s->ops && s->ops->on_writable)
        s->ops->on_writable(s->arg);
}

static void on_data(struct stream *s, const struct frame *f)
{
    uint8_t channel = f->flags & RT_CHANNEL;
    uint8_t bit = (uint8_t)(1u << channel);

    if (f->flags & ~(RT_CHANNEL | RT_END) || s->ended & bit || (f->len == 0 && !(f->flags & RT_END))) {
        box_violate(s->box, "a DATA frame with flags 0x%02x that has no place on its stream", f->flags);
        return;
    }
    if (f->len > s->room) {
        box_violate(s->box, "%u bytes where the window has room for %u", f->len, s->room);
        return;
    }
    s->room -= f->len;
    if (f->flags & RT_END)
        s->ended |= bit;
    if (s->cancelled)
        return;
    if (!s->ops)
        stream_consumed(s, f->len);
    else if (!s->ops->on_frame(s->arg, f))
        box_violate(s->box, "DATA on channel %u of a stream that has none", channel);
}

static void on_last_word(struct box *b, struct stream **p, const struct frame *f)
{
    struct stream *s = *p;

    *p = s->next;
    if (!s->cancelled && !(s->confirm && s->ops))
        stream_send(s, FRAME_CLOSE, 0, NULL, 0);
    drop_fenced(b, s->id);
    if (s->ops && !s->ops->on_frame(s->arg, f))
        box_violate(b, "a %s frame that cannot be right", frame_name(f->type));
    free(s);
}

void stream_frame(struct box *b, const struct frame *f)
{
    struct stream **p = find(b, f->stream);
    struct stream *s = *p;

    if (!s && b->resetting)
        return; /* it was sent before the reset came */
    if (!s) {
        box_violate(b, "a %s frame on stream %u, which is not open", frame_name(f->type), f->stream);
        return;
    }
    switch (f->type) {
    case FRAME_CREDIT:
        on_credit(s, f);
        break;
    case FRAME_DATA:
        on_data(s, f);
        break;
    case FRAME_STARTED:
        if (s->ops && !s->ops->on_frame(s->arg, f))
            box_violate(b, "a STARTED frame that cannot be right");
        break;
    case FRAME_EXIT:
    case FRAME_DONE:
    case FRAME_ERROR:
        on_last_word(b, p, f);
        break;
    default:
        box_violate(b, "a %s frame, which only a host may send", frame_name(f->type));
    }
}

static size_t count(const struct box *b)
{
    size_t n = 0;

    for (const struct stream *s = b->streams; s; s = s->next)
        n++;
    return n;
}

/* What an earlier host had open belongs to nobody now, unless somebody took it up. */
static void resumed(struct box *b, uint32_t id, const struct rt_resume *m)
{
    struct exec *x = m->request == FRAME_EXEC ? resume_find(b, id) : NULL;
    struct stream *s = add(b, id, m->request, x ? &exec_stream_ops : NULL, x);

    s->orphan = !x;
    if (x)
        resume_attach(x, s, m);
}

void stream_resumed(struct box *b, const struct frame *f)
{
    struct rt_resume m;
    struct err err;

    if (rt_resume_decode(f, &m, &err) < 0)
        box_violate(b, "RESUME: %s", err.msg);
    else if (!b->adopted || f->stream == 0 || *find(b, f->stream) || count(b) >= RESUMED_MAX)
        box_violate(b, "RESUME of stream %u", f->stream);
    else
        resumed(b, f->stream, &m);
}

void streams_drained(struct box *b)
{
    struct stream *next;

    for (struct stream *s = b->streams; s && b->wired && !chan_full(&b->chan); s = next) {
        next = s->next;
        if (s->ops && s->ops->on_writable)
            s->ops->on_writable(s->arg);
    }
}

void streams_gone(struct box *b, const struct err *why)
{
    while (b->streams) {
        struct stream *s = b->streams;

        b->streams = s->next;
        if (s->ops)
            s->ops->on_gone(s->arg, why);
        free(s);
    }
}
