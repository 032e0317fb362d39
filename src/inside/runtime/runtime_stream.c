/* Everything that the host must not miss is either DATA, kept until it is credited, or a last
 * frame, kept until CLOSE. To serve a new host, the runtime only has to iterate over the streams. A
 * stream that can produce its DATA again (`rewind`: a file is read again) keeps none, which saves a
 * copy of a large file; its object stays until CLOSE, because its last bytes may be needed again.
 *
 * Credit is returned in quarters of a window, not for every frame: each CREDIT wakes the other
 * side.
 *
 * Invariants
 * 1. A stream's uncredited bytes never exceed its window, because no module may send more than
 *    runtime_stream_room returns.
 * 2. No object is released inside its own callbacks, but where possible before the next frame is
 *    handled: a request that follows a last frame finds no traces of the previous one.
 * 3. While a stream repeats, its room is 0 and new frames wait, so the order is kept; repeating
 *    continues only as fast as the channel accepts frames.
 * 4. The end of a channel is an empty frame, which is sent again after a RESUME; it carries no
 *    bytes, so a duplicate is harmless. */
#include "inside/runtime/runtime_stream.h"

#include "core/base/mem.h"

#include <assert.h>
#include <sys/mman.h>

#define PAGE 4096u

static _Alignas(PAGE) uint8_t runtime_scratch[FRAME_PAYLOAD_MAX];

uint8_t *runtime_scratch_buffer(void)
{
    return runtime_scratch;
}

void runtime_streams_init(struct runtime_streams *all, struct ev *ev, struct chan *chan)
{
    *all = (struct runtime_streams){ .ev = ev, .chan = chan };
}

struct runtime_stream *runtime_stream_find(const struct runtime_streams *all, uint32_t id)
{
    for (struct runtime_stream *s = all->first; s; s = s->next)
        if (s->id == id)
            return s;
    return NULL;
}

struct runtime_stream *runtime_stream_open(struct runtime_streams *all, uint32_t id, uint8_t request)
{
    struct runtime_stream *s = mem_new(struct runtime_stream);

    s->streams = all;
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

static void runtime_streams_on_tick(void *arg);

static void runtime_stream_release(struct runtime_stream *s)
{
    const struct runtime_stream_ops *ops = s->ops;

    s->ops = NULL;
    if (ops && ops->release)
        ops->release(s);
    s->obj = NULL;
}

void runtime_stream_release_if_finished(struct runtime_stream *s)
{
    if (s->is_finished && s->ops && !s->ops->rewind)
        runtime_stream_release(s);
}

static void runtime_stream_unlink(struct runtime_stream *s)
{
    struct runtime_streams *all = s->streams;
    struct runtime_stream *before = NULL;

    for (struct runtime_stream *p = all->first; p != s; p = p->next)
        before = p;
    if (before)
        before->next = s->next;
    else
        all->first = s->next;
    if (all->last == s)
        all->last = before;
    all->count--;
}

void runtime_stream_close(struct runtime_stream *s)
{
    struct runtime_streams *all = s->streams;

    s->is_finished = true; /* nothing more is sent on this stream, even by release */
    runtime_stream_release(s);
    runtime_stream_unlink(s);
    unacked_data_done(&s->unacked);
    free(s->last_payload);
    free(s);
    if (all->count == 0) /* an idle sandbox returns the pages of the buffer */
        madvise(runtime_scratch, sizeof(runtime_scratch), MADV_DONTNEED);
}

void runtime_stream_wake(struct runtime_stream *s)
{
    s->step_wanted = true;
    ev_defer(s->streams->ev, &s->streams->tick, runtime_streams_on_tick, s->streams);
}

static void runtime_stream_put_frame(struct runtime_stream *s, uint8_t type, uint8_t flags, const void *data,
                                     size_t len)
{
    struct frame f = { .type = type, .flags = flags, .stream = s->id, .len = (uint32_t)len, .data = data };

    chan_send(s->streams->chan, &f);
}

void runtime_stream_send_frame(struct runtime_stream *s, uint8_t type, uint8_t flags, const void *data, size_t len)
{
    if (!s->is_finished)
        runtime_stream_put_frame(s, type, flags, data, len);
}

size_t runtime_stream_room(const struct runtime_stream *s)
{
    size_t window = rt_initial_window(s->request);

    if (s->is_finished || s->is_repeating || s->uncredited >= window || chan_full(s->streams->chan))
        return 0;
    return min_size(window - s->uncredited, FRAME_PAYLOAD_MAX);
}

static bool runtime_stream_can_rewind(const struct runtime_stream *s)
{
    return s->ops && s->ops->rewind;
}

static void runtime_stream_queue_data(struct runtime_stream *s, uint8_t channel, const void *data, size_t len,
                                      bool merge)
{
    if (s->is_finished)
        return;
    assert(len <= FRAME_PAYLOAD_MAX);
    s->uncredited += len;
    if (!runtime_stream_can_rewind(s))
        unacked_data_add(&s->unacked, channel, data, len, merge);
    runtime_stream_put_frame(s, FRAME_DATA, channel, data, len);
}

void runtime_stream_send_data(struct runtime_stream *s, uint8_t channel, const void *data, size_t len)
{
    runtime_stream_queue_data(s, channel, data, len, true);
}

void runtime_stream_send_unit(struct runtime_stream *s, const void *data, size_t len)
{
    runtime_stream_queue_data(s, 0, data, len, false);
}

void runtime_stream_end_channel(struct runtime_stream *s, uint8_t channel)
{
    if (s->is_finished || s->ended_channels & 1u << channel)
        return;
    s->ended_channels |= (uint8_t)(1u << channel);
    if (!s->is_repeating)
        runtime_stream_put_frame(s, FRAME_DATA, channel | RT_END, NULL, 0);
}

static void runtime_stream_send_credit(struct runtime_stream *s)
{
    uint8_t out[4];
    struct pack p;

    pack_init(&p, out, sizeof(out));
    pack_u32(&p, (uint32_t)s->credit_owed);
    s->credit_owed = 0;
    runtime_stream_put_frame(s, FRAME_CREDIT, 0, out, p.len);
}

void runtime_stream_consumed(struct runtime_stream *s, size_t n)
{
    s->consumed += n;
    s->credit_owed += n;
    if (s->credit_owed >= rt_initial_window(s->request) / 4 && !s->is_finished && !s->is_repeating)
        runtime_stream_send_credit(s);
}

static void runtime_stream_notify_room(struct runtime_stream *s)
{
    if (s->is_finished || s->is_repeating || !s->ops)
        return;
    if (s->ops->on_room)
        s->ops->on_room(s);
    else
        runtime_stream_wake(s);
}

void runtime_stream_on_credit(struct runtime_stream *s, const struct frame *f)
{
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    uint32_t n = unpack_u32(&u);
    if (!unpack_end(&u) || n > s->uncredited)
        return; /* more than was sent: ignored, nothing depends on it */
    s->uncredited -= n;
    s->credited += n;
    unacked_data_drop(&s->unacked, min_size(n, s->unacked.len));
    s->repeat_at -= min_size(s->repeat_at, n);
    runtime_stream_notify_room(s);
}

void runtime_stream_on_data(struct runtime_stream *s, const struct frame *f)
{
    const struct runtime_stream_ops *ops = s->ops;
    struct err err;

    if (s->is_finished || !ops)
        return; /* sent before the host received our last frame */
    if (!ops->on_data) {
        err_set(&err, ERR_PROTOCOL, "%s does not accept DATA", frame_name(s->request));
        runtime_stream_fail(s, &err);
    } else if (s->received - s->consumed + s->credit_owed + f->len > rt_initial_window(s->request)) {
        err_set(&err, ERR_PROTOCOL, "DATA beyond the window of %s", frame_name(s->request));
        runtime_stream_fail(s, &err);
    } else {
        s->received += f->len;
        ops->on_data(s, f);
    }
    runtime_stream_release_if_finished(s);
}

void runtime_stream_send_last(struct runtime_stream *s, uint8_t type, const void *data, size_t len)
{
    if (s->is_finished)
        return;
    if (!s->is_repeating)
        runtime_stream_put_frame(s, type, 0, data, len);
    s->is_finished = true;
    s->last_type = type;
    s->last_payload = mem_copy(data, len);
    s->last_len = (uint32_t)len;
    ev_defer(s->streams->ev, &s->streams->tick, runtime_streams_on_tick, s->streams);
}

void runtime_stream_done(struct runtime_stream *s, const struct rt_done *done)
{
    int n = rt_done_encode(done, runtime_scratch, NULL);

    assert(n >= 0);
    runtime_stream_send_last(s, FRAME_DONE, runtime_scratch, (size_t)n);
}

void runtime_stream_fail(struct runtime_stream *s, const struct err *err)
{
    struct rt_error m = { .id = (uint32_t)err->id, .sys = err->sys };

    memcpy(m.msg, err->msg, sizeof(m.msg) - 1); /* both end with a NUL; a long message is truncated */
    int n = rt_error_encode(&m, runtime_scratch, NULL);
    assert(n >= 0);
    runtime_stream_send_last(s, FRAME_ERROR, runtime_scratch, (size_t)n);
}

void runtime_streams_on_drained(struct runtime_streams *all)
{
    for (struct runtime_stream *s = all->first; s; s = s->next)
        runtime_stream_notify_room(s);
    ev_defer(all->ev, &all->tick, runtime_streams_on_tick, all);
}

static void runtime_stream_repeat(struct runtime_stream *s)
{
    uint8_t channel = 0;

    for (size_t n;
         (n = unacked_data_read(&s->unacked, s->repeat_at, &channel, runtime_scratch, FRAME_PAYLOAD_MAX)) > 0;) {
        if (chan_full(s->streams->chan))
            return; /* runtime_streams_on_drained continues */
        runtime_stream_put_frame(s, FRAME_DATA, channel, runtime_scratch, n);
        s->repeat_at += n;
    }
    s->is_repeating = false;
    for (uint8_t c = 0; c <= RT_CHANNEL; c++)
        if (s->ended_channels & 1u << c)
            runtime_stream_put_frame(s, FRAME_DATA, c | RT_END, NULL, 0);
    if (s->is_finished) {
        runtime_stream_put_frame(s, s->last_type, 0, s->last_payload, s->last_len);
        return;
    }
    /* The whole window of a host that has not sent anything yet. */
    s->credit_owed = rt_initial_window(s->request) - (s->received - s->consumed);
    if (s->ops && s->ops->on_data && s->credit_owed > 0)
        runtime_stream_send_credit(s);
    runtime_stream_notify_room(s);
}

static void runtime_streams_on_tick(void *arg)
{
    struct runtime_streams *all = arg;
    bool again = false;

    for (struct runtime_stream *s = all->first; s; s = s->next) {
        if (s->is_repeating)
            runtime_stream_repeat(s);
        if (s->step_wanted && !s->is_finished && s->ops && s->ops->step) {
            s->step_wanted = false;
            s->step_wanted = s->ops->step(s) || s->step_wanted;
        }
        runtime_stream_release_if_finished(s);
        again = again || (s->ops && s->step_wanted && !s->is_finished && s->ops->step);
    }
    if (again)
        ev_defer(all->ev, &all->tick, runtime_streams_on_tick, all);
}

/* Treats everything that the host has not credited as not sent yet, the last frame included. */
static void runtime_stream_rewind(struct runtime_stream *s)
{
    s->ops->rewind(s, s->uncredited);
    s->uncredited = 0;
    s->is_finished = false;
    s->ended_channels = 0;
    free(take_ptr(&s->last_payload));
}

void runtime_streams_resume(struct runtime_streams *all)
{
    for (struct runtime_stream *s = all->first; s; s = s->next) {
        struct rt_resume m = { .request = s->request, .out = s->credited, .in = s->received };
        int n = rt_resume_encode(&m, runtime_scratch, NULL);

        assert(n >= 0);
        runtime_stream_put_frame(s, FRAME_RESUME, 0, runtime_scratch, (size_t)n);
        if (s->ops && s->ops->resume)
            s->ops->resume(s);
        if (runtime_stream_can_rewind(s))
            runtime_stream_rewind(s);
        s->is_repeating = true;
        s->repeat_at = 0;
    }
    ev_defer(all->ev, &all->tick, runtime_streams_on_tick, all);
}
