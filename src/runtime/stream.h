/* stream.h - the streams of one connection: windows, what is kept for a new host, last words, and slices of work.
 *
 * A request opens a stream and hangs its own object and operations on it. Work that could take long is done in steps:
 * stream_wake asks for a call of `step` in the next turn, so a big request never holds up the others. After
 * stream_done/stream_fail the object is released (ops->release) at the end of the turn, or at CLOSE if it can rewind;
 * the stream itself stays until the host's CLOSE, because a new host must hear the last word again. */
#pragma once

#include "ev/ev.h"
#include "runtime/keep.h"
#include "wire/chan.h"
#include "wire/rt.h"

#define STREAMS_MAX 1024u

struct stream;

struct stream_ops {
    void (*on_data)(struct stream *s, const struct frame *f);  /* DATA from the host; NULL when none is expected */
    void (*on_other)(struct stream *s, const struct frame *f); /* SIGNAL, RESIZE; may be NULL */
    void (*on_room)(struct stream *s);                         /* more may be sent again; NULL wakes `step` */
    bool (*step)(struct stream *s);                            /* one slice of work; true: again next turn */
    void (*resume)(struct stream *s);                          /* repeats what is neither DATA nor last word */
    void (*rewind)(struct stream *s, size_t n);                /* go back n bytes of DATA; NULL: they are kept */
    void (*release)(struct stream *s);                         /* frees s->obj; also after an early CLOSE */
};

struct streams {
    struct ev *ev;
    struct chan *chan;
    struct stream *first, *last;
    size_t count;
    struct ev_defer tick;
};

struct stream {
    struct streams *all;
    struct stream *next;
    uint32_t id;
    uint8_t request; /* frame type that opened it */
    const struct stream_ops *ops;
    void *obj;
    bool ready;       /* step wanted */
    bool over;        /* last word said */
    bool repeating;   /* a new host is being told again what it may lack; nothing new is said before that is done */
    size_t repeat_at; /* bytes of `kept` repeated so far */

    struct keep kept;
    size_t uncredited; /* DATA bytes sent that the host has not taken yet */
    uint64_t credited; /* those it has */
    uint8_t ended;     /* channels closed with RT_END, one bit each */
    uint64_t received; /* DATA bytes from the host */
    uint64_t consumed; /* of them, done with */
    size_t owed;       /* of these, not credited yet */
    uint8_t last_type; /* the last word, kept until CLOSE */
    uint8_t *last_word;
    uint32_t last_len;
};

void streams_init(struct streams *all, struct ev *ev, struct chan *chan);
void streams_resume(struct streams *all);  /* a new host: tell it of every stream, repeat what is not credited */
void streams_drained(struct streams *all); /* the channel takes frames again */

struct stream *stream_open(struct streams *all, uint32_t id, uint8_t request); /* the caller checked the id is free */
struct stream *stream_find(const struct streams *all, uint32_t id);
void stream_settle(struct stream *s); /* releases the object if the last word was said; not from its own callbacks */
void stream_close(struct stream *s);  /* CLOSE: forget it, and stop whatever it was doing */
void stream_credit(struct stream *s, const struct frame *f);
void stream_data(struct stream *s, const struct frame *f);

void stream_wake(struct stream *s);
size_t stream_room(const struct stream *s); /* DATA bytes that may be sent now, at most one frame's worth */
void stream_send(struct stream *s, uint8_t channel, const void *data, size_t len); /* bytes; units may be joined */
void stream_send_unit(struct stream *s, const void *data, size_t len);             /* packed items, never split */
void stream_end(struct stream *s, uint8_t channel);
void stream_frame(struct stream *s, uint8_t type, uint8_t flags, const void *data, size_t len); /* not kept */
void stream_consumed(struct stream *s, size_t n);                                               /* returns credit */

/* Last words. Only the first one counts. */
void stream_last(struct stream *s, uint8_t type, const void *data, size_t len);
void stream_done(struct stream *s, const struct rt_done *done);
void stream_fail(struct stream *s, const struct err *err);

/* One buffer of FRAME_PAYLOAD_MAX bytes that every module may use within a call, for reading and encoding. */
uint8_t *stream_scratch(void);
