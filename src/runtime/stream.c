/* Everything that is told to the host and must not be lost is either DATA, kept until credited, or a last word, kept
 * until CLOSE. A new host therefore needs nothing but a walk over the streams. A stream that can make its DATA a second
 * time (`rewind`: a file is just read again) keeps none, which spares a large file one copy; its object stays until
 * CLOSE, since the last of its bytes may be wanted again.
 *
 * Credit goes back in quarters of a window, not for every frame: each is a wake-up on the other side.
 *
 * Invariants:
 * 1. A stream's uncredited bytes never exceed its window, because nobody may send more than stream_room says.
 * 2. No object is released inside one of its own callbacks, but before the next frame is looked at where that is
 *    possible: whoever asks again after a last word finds the request's traces gone.
 * 3. While a stream is repeating, room is 0 and everything else it wants to say waits, so the order stays; repeating
 *    goes on only as the channel takes it.
 * 4. The end of a channel is said with an empty frame, and said again after a RESUME; it carries no bytes, so saying it
 *    twice changes nothing. */
#include "runtime/stream.h"

#include "base/mem.h"

#include <assert.h>
#include <sys/mman.h>

#define PAGE 4096u

static _Alignas(PAGE) uint8_t scratch[FRAME_PAYLOAD_MAX];

uint8_t *stream_scratch(void)
{
    return scratch;
}

void streams_init(struct streams *all, struct ev *ev, struct chan *chan)
{
    *all = (struct streams){ .ev = ev, .chan = chan };
}

struct stream *stream_find(const struct streams *all, uint32_t id)
{
    for (struct stream *s = all->first; s; s = s->next)
        if (s->id == id)
            return s;
    return NULL;
}

struct stream *stream_open(struct streams *all, uint32_t id, uint8_t request)
{
    struct stream *s = mem_new(struct stream);

    s->all = all;
    s->id = id;
    s->request = request;
    if (all->last)
        all->last->next = s;
    else
        all->first = s;
    all->last = s;
    all->count++;
    return s;
}

static void on_tick(void *arg);

static void release(struct stream *s)
{
    const struct stream_ops *ops = s->ops;

    s->ops = NULL;
    if (ops && ops->release)
        ops->release(s);
    s->obj = NULL;
}

void stream_settle(struct stream *s)
{
    if (s->over && s->ops && !s->ops->rewind)
        release(s);
}

static void unlink_stream(struct stream *s)
{
    struct streams *all = s->all;
    struct stream *before = NULL;

    for (struct stream *p = all->first; p != s; p = p->next)
        before = p;
    if (before)
        before->next = s->next;
    else
        all->first = s->next;
    if (all->last == s)
        all->last = before;
    all->count--;
}

void stream_close(struct stream *s)
{
    struct streams *all = s->all;

    s->over = true; /* whatever release does, nothing more is said on this stream */
    release(s);
    unlink_stream(s);
    keep_done(&s->kept);
    free(s->last_word);
    free(s);
    if (all->count == 0) /* an idle sandbox gives the buffer's pages back */
        madvise(scratch, sizeof(scratch), MADV_DONTNEED);
}

void stream_wake(struct stream *s)
{
    s->ready = true;
    ev_defer(s->all->ev, &s->all->tick, on_tick, s->all);
}

static void put(struct stream *s, uint8_t type, uint8_t flags, const void *data, size_t len)
{
    struct frame f = { .type = type, .flags = flags, .stream = s->id, .len = (uint32_t)len, .data = data };

    chan_send(s->all->chan, &f);
}

void stream_frame(struct stream *s, uint8_t type, uint8_t flags, const void *data, size_t len)
{
    if (!s->over)
        put(s, type, flags, data, len);
}

size_t stream_room(const struct stream *s)
{
    size_t window = rt_window(s->request);

    if (s->over || s->repeating || s->uncredited >= window || chan_full(s->all->chan))
        return 0;
    return min_size(window - s->uncredited, FRAME_PAYLOAD_MAX);
}

static bool can_rewind(const struct stream *s)
{
    return s->ops && s->ops->rewind;
}

static void send_data(struct stream *s, uint8_t channel, const void *data, size_t len, bool merge)
{
    if (s->over)
        return;
    assert(len <= FRAME_PAYLOAD_MAX);
    s->uncredited += len;
    if (!can_rewind(s))
        keep_add(&s->kept, channel, data, len, merge);
    put(s, FRAME_DATA, channel, data, len);
}

void stream_send(struct stream *s, uint8_t channel, const void *data, size_t len)
{
    send_data(s, channel, data, len, true);
}

void stream_send_unit(struct stream *s, const void *data, size_t len)
{
    send_data(s, 0, data, len, false);
}

void stream_end(struct stream *s, uint8_t channel)
{
    if (s->over || s->ended & 1u << channel)
        return;
    s->ended |= (uint8_t)(1u << channel);
    if (!s->repeating)
        put(s, FRAME_DATA, channel | RT_END, NULL, 0);
}

static void send_credit(struct stream *s)
{
    uint8_t out[4];
    struct pack p;

    pack_init(&p, out, sizeof(out));
    pack_u32(&p, (uint32_t)s->owed);
    s->owed = 0;
    put(s, FRAME_CREDIT, 0, out, p.len);
}

void stream_consumed(struct stream *s, size_t n)
{
    s->consumed += n;
    s->owed += n;
    if (s->owed >= rt_window(s->request) / 4 && !s->over && !s->repeating)
        send_credit(s);
}

static void room_again(struct stream *s)
{
    if (s->over || s->repeating || !s->ops)
        return;
    if (s->ops->on_room)
        s->ops->on_room(s);
    else
        stream_wake(s);
}

void stream_credit(struct stream *s, const struct frame *f)
{
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    uint32_t n = unpack_u32(&u);
    if (!unpack_end(&u) || n > s->uncredited)
        return; /* more than was sent: nothing of ours depends on believing it */
    s->uncredited -= n;
    s->credited += n;
    keep_drop(&s->kept, min_size(n, s->kept.len));
    s->repeat_at -= min_size(s->repeat_at, n);
    room_again(s);
}

void stream_data(struct stream *s, const struct frame *f)
{
    const struct stream_ops *ops = s->ops;
    struct err err;

    if (s->over || !ops)
        return; /* sent before the host heard our last word */
    if (!ops->on_data) {
        err_set(&err, ERR_PROTOCOL, "%s takes no DATA", frame_name(s->request));
        stream_fail(s, &err);
    } else if (s->received - s->consumed + s->owed + f->len > rt_window(s->request)) {
        err_set(&err, ERR_PROTOCOL, "DATA beyond the window of %s", frame_name(s->request));
        stream_fail(s, &err);
    } else {
        s->received += f->len;
        ops->on_data(s, f);
    }
    stream_settle(s);
}

void stream_last(struct stream *s, uint8_t type, const void *data, size_t len)
{
    if (s->over)
        return;
    if (!s->repeating)
        put(s, type, 0, data, len);
    s->over = true;
    s->last_type = type;
    s->last_word = mem_copy(data, len);
    s->last_len = (uint32_t)len;
    ev_defer(s->all->ev, &s->all->tick, on_tick, s->all);
}

void stream_done(struct stream *s, const struct rt_done *done)
{
    int n = rt_done_encode(done, scratch, NULL);

    assert(n >= 0);
    stream_last(s, FRAME_DONE, scratch, (size_t)n);
}

void stream_fail(struct stream *s, const struct err *err)
{
    struct rt_error m = { .id = (uint32_t)err->id, .sys = err->sys };

    memcpy(m.msg, err->msg, sizeof(m.msg) - 1); /* both hold a NUL further on; a long message loses its end */
    int n = rt_error_encode(&m, scratch, NULL);
    assert(n >= 0);
    stream_last(s, FRAME_ERROR, scratch, (size_t)n);
}

void streams_drained(struct streams *all)
{
    for (struct stream *s = all->first; s; s = s->next)
        room_again(s);
    ev_defer(all->ev, &all->tick, on_tick, all);
}

static void repeat(struct stream *s)
{
    uint8_t channel = 0;

    for (size_t n; (n = keep_read(&s->kept, s->repeat_at, &channel, scratch, FRAME_PAYLOAD_MAX)) > 0;) {
        if (chan_full(s->all->chan))
            return; /* streams_drained comes back */
        put(s, FRAME_DATA, channel, scratch, n);
        s->repeat_at += n;
    }
    s->repeating = false;
    for (uint8_t c = 0; c <= RT_CHANNEL; c++)
        if (s->ended & 1u << c)
            put(s, FRAME_DATA, c | RT_END, NULL, 0);
    if (s->over) {
        put(s, s->last_type, 0, s->last_word, s->last_len);
        return;
    }
    s->owed = rt_window(s->request) - (s->received - s->consumed); /* all that a host may send that sent nothing yet */
    if (s->ops && s->ops->on_data && s->owed > 0)
        send_credit(s);
    room_again(s);
}

static void on_tick(void *arg)
{
    struct streams *all = arg;
    bool again = false;

    for (struct stream *s = all->first; s; s = s->next) {
        if (s->repeating)
            repeat(s);
        if (s->ready && !s->over && s->ops && s->ops->step) {
            s->ready = false;
            s->ready = s->ops->step(s) || s->ready;
        }
        stream_settle(s);
        again = again || (s->ops && s->ready && !s->over && s->ops->step);
    }
    if (again)
        ev_defer(all->ev, &all->tick, on_tick, all);
}

/* As if what the host has not taken were not said yet, the last word included. */
static void rewind_stream(struct stream *s)
{
    s->ops->rewind(s, s->uncredited);
    s->uncredited = 0;
    s->over = false;
    s->ended = 0;
    free(take_ptr(&s->last_word));
}

void streams_resume(struct streams *all)
{
    for (struct stream *s = all->first; s; s = s->next) {
        struct rt_resume m = { .request = s->request, .out = s->credited, .in = s->received };
        int n = rt_resume_encode(&m, scratch, NULL);

        assert(n >= 0);
        put(s, FRAME_RESUME, 0, scratch, (size_t)n);
        if (s->ops && s->ops->resume)
            s->ops->resume(s);
        if (can_rewind(s))
            rewind_stream(s);
        s->repeating = true;
        s->repeat_at = 0;
    }
    ev_defer(all->ev, &all->tick, on_tick, all);
}
