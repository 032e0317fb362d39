/* runtime_stream.h - the streams of one connection: windows, data kept for a new host, last frames,
 * and slices of work.
 *
 * A request opens a stream and attaches its own object and operations to it. Long work is done in
 * steps: runtime_stream_wake requests a call of `step` in the next round of the loop, so a big
 * request never delays the others. After runtime_stream_done or runtime_stream_fail, the object is
 * released (ops->release) at the end of the round, or at CLOSE if it can rewind; the stream itself
 * stays until the host's CLOSE, because a new host must get the last frame again. */
#pragma once

#include "core/ev/ev.h"
#include "inside/runtime/unacked_data.h"
#include "core/wire/chan.h"
#include "core/wire/rt.h"

#define RUNTIME_STREAMS_MAX 1024u

struct runtime_stream;

struct runtime_stream_ops {
    /* DATA from the host; NULL: none is expected. */
    void (*on_data)(struct runtime_stream *s, const struct frame *f);
    void (*on_control)(struct runtime_stream *s, const struct frame *f); /* SIGNAL, RESIZE; may be NULL */
    void (*on_room)(struct runtime_stream *s); /* window is available again; NULL: wakes `step` */
    bool (*step)(struct runtime_stream *s);    /* one slice of work; true: call it again */
    void (*resume)(struct runtime_stream *s); /* repeats frames that are neither DATA nor the last frame; may be NULL */
    void (*rewind)(struct runtime_stream *s, size_t n); /* go back n bytes of DATA; NULL: they are kept */
    void (*release)(struct runtime_stream *s);          /* frees s->obj; also after an early CLOSE */
};

struct runtime_streams {
    struct ev *ev;
    struct chan *chan;
    struct runtime_stream *first, *last;
    size_t count;
    struct ev_defer tick;
};

struct runtime_stream {
    struct runtime_streams *streams;
    struct runtime_stream *next;
    uint32_t id;
    uint8_t request; /* frame type that opened it */
    const struct runtime_stream_ops *ops;
    void *obj;
    bool step_wanted;  /* `step` must be called */
    bool is_finished;  /* the last frame was sent */
    bool is_repeating; /* uncredited frames are being repeated to a new host; new frames wait */
    size_t repeat_at;  /* bytes of `unacked` repeated so far */

    struct unacked_data unacked;
    size_t uncredited;      /* DATA bytes sent but not credited */
    uint64_t credited;      /* DATA bytes sent and credited */
    uint8_t ended_channels; /* channels closed with RT_END, one bit each */
    uint64_t received;      /* DATA bytes from the host */
    uint64_t consumed;      /* received bytes that are processed */
    size_t credit_owed;     /* processed bytes that are not credited yet */
    uint8_t last_type;      /* type of the last frame, kept until CLOSE */
    uint8_t *last_payload;
    uint32_t last_len;
};

void runtime_streams_init(struct runtime_streams *all, struct ev *ev, struct chan *chan);
/* For a new host: announces every stream and repeats uncredited data. */
void runtime_streams_resume(struct runtime_streams *all);
void runtime_streams_on_drained(struct runtime_streams *all); /* the channel accepts frames again */

/* The caller has checked that the id is free. */
struct runtime_stream *runtime_stream_open(struct runtime_streams *all, uint32_t id, uint8_t request);
struct runtime_stream *runtime_stream_find(const struct runtime_streams *all, uint32_t id);
/* Releases the object if the last frame was sent. Must not be called from the object's own
 * callbacks. */
void runtime_stream_release_if_finished(struct runtime_stream *s);
void runtime_stream_close(struct runtime_stream *s); /* CLOSE: frees the stream and stops its work */
void runtime_stream_on_credit(struct runtime_stream *s, const struct frame *f);
void runtime_stream_on_data(struct runtime_stream *s, const struct frame *f);

void runtime_stream_wake(struct runtime_stream *s);
/* DATA bytes that may be sent now, at most one frame. */
size_t runtime_stream_room(const struct runtime_stream *s);
/* Sends bytes; a repetition may merge them with adjacent ones. */
void runtime_stream_send_data(struct runtime_stream *s, uint8_t channel, const void *data, size_t len);
void runtime_stream_send_unit(struct runtime_stream *s, const void *data, size_t len); /* packed items; never split */
void runtime_stream_end_channel(struct runtime_stream *s, uint8_t channel);
/* Sends a frame that is not kept. */
void runtime_stream_send_frame(struct runtime_stream *s, uint8_t type, uint8_t flags, const void *data, size_t len);
void runtime_stream_consumed(struct runtime_stream *s, size_t n); /* returns credit */

/* Last frames. Only the first one counts. */
void runtime_stream_send_last(struct runtime_stream *s, uint8_t type, const void *data, size_t len);
void runtime_stream_done(struct runtime_stream *s, const struct rt_done *done);
void runtime_stream_fail(struct runtime_stream *s, const struct err *err);

/* One buffer of FRAME_PAYLOAD_MAX bytes that every module may use within a call, for reading and
 * encoding. */
uint8_t *runtime_scratch_buffer(void);
