/* runtime_stream.h - the streams of one connection: windows, what is kept for a new host, last words, and slices of
 * work.
 *
 * A request opens a stream and hangs its own object and operations on it. Work that could take long is done in steps:
 * runtime_stream_wake asks for a call of `step` in the next turn, so a big request never holds up the others. After
 * runtime_stream_done/runtime_stream_fail the object is released (ops->release) at the end of the turn, or at CLOSE if
 * it can rewind; the stream itself stays until the host's CLOSE, because a new host must hear the last word again. */
#pragma once

#include "core/ev/ev.h"
#include "inside/runtime/unacked_data.h"
#include "core/wire/chan.h"
#include "core/wire/rt.h"

#define RUNTIME_STREAMS_MAX 1024u

struct runtime_stream;

struct runtime_stream_ops {
    void (*on_data)(struct runtime_stream *s,
                    const struct frame *f); /* DATA from the host; NULL when none is expected */
    void (*on_control)(struct runtime_stream *s, const struct frame *f); /* SIGNAL, RESIZE; may be NULL */
    void (*on_room)(struct runtime_stream *s);                           /* more may be sent again; NULL wakes `step` */
    bool (*step)(struct runtime_stream *s);                              /* one slice of work; true: again next turn */
    void (*resume)(struct runtime_stream *s);           /* repeats what is neither DATA nor last word */
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
    bool step_wanted;  /* step wanted */
    bool is_finished;  /* last word said */
    bool is_repeating; /* a new host is being told again what it may lack; nothing new is said before that is done */
    size_t repeat_at;  /* bytes of `kept` repeated so far */

    struct unacked_data unacked;
    size_t uncredited;      /* DATA bytes sent that the host has not taken yet */
    uint64_t credited;      /* those it has */
    uint8_t ended_channels; /* channels closed with RT_END, one bit each */
    uint64_t received;      /* DATA bytes from the host */
    uint64_t consumed;      /* of them, done with */
    size_t credit_owed;     /* of these, not credited yet */
    uint8_t last_type;      /* the last word, kept until CLOSE */
    uint8_t *last_payload;
    uint32_t last_len;
};

void runtime_streams_init(struct runtime_streams *all, struct ev *ev, struct chan *chan);
void runtime_streams_resume(
    struct runtime_streams *all); /* a new host: tell it of every stream, repeat what is not credited */
void runtime_streams_on_drained(struct runtime_streams *all); /* the channel takes frames again */

struct runtime_stream *runtime_stream_open(struct runtime_streams *all, uint32_t id,
                                           uint8_t request); /* the caller checked the id is free */
struct runtime_stream *runtime_stream_find(const struct runtime_streams *all, uint32_t id);
void runtime_stream_release_if_finished(
    struct runtime_stream *s); /* releases the object if the last word was said; not from its own callbacks */
void runtime_stream_close(struct runtime_stream *s); /* CLOSE: forget it, and stop whatever it was doing */
void runtime_stream_on_credit(struct runtime_stream *s, const struct frame *f);
void runtime_stream_on_data(struct runtime_stream *s, const struct frame *f);

void runtime_stream_wake(struct runtime_stream *s);
size_t
runtime_stream_room(const struct runtime_stream *s); /* DATA bytes that may be sent now, at most one frame's worth */
void runtime_stream_send_data(struct runtime_stream *s, uint8_t channel, const void *data,
                              size_t len);                                             /* bytes; units may be joined */
void runtime_stream_send_unit(struct runtime_stream *s, const void *data, size_t len); /* packed items, never split */
void runtime_stream_end_channel(struct runtime_stream *s, uint8_t channel);
void runtime_stream_send_frame(struct runtime_stream *s, uint8_t type, uint8_t flags, const void *data,
                               size_t len);                       /* not kept */
void runtime_stream_consumed(struct runtime_stream *s, size_t n); /* returns credit */

/* Last words. Only the first one counts. */
void runtime_stream_send_last(struct runtime_stream *s, uint8_t type, const void *data, size_t len);
void runtime_stream_done(struct runtime_stream *s, const struct rt_done *done);
void runtime_stream_fail(struct runtime_stream *s, const struct err *err);

/* One buffer of FRAME_PAYLOAD_MAX bytes that every module may use within a call, for reading and encoding. */
uint8_t *runtime_scratch_buffer(void);
