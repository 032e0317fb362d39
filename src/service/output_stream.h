/* output_stream.h - the output of one execution: standard output, standard error and events of a
 * language kernel, within one limit. A sink keeps it: files (output.c), or memory and the client
 * itself (execute/run_output.c). */
#pragma once

#include "core/base/buf.h"
#include "service/kernel_event.h"

#define OUTPUT_CHANNELS 3
#define OUTPUT_EVENTS 3 /* the channel of events; 1 and 2 are stdout and stderr */
#define OUTPUT_UNLIMITED UINT64_MAX

struct output_sink {
    const char *event_end; /* is written after each event and counts as a part of it */
    /* How many bytes more the sink accepts; NULL: any number. */
    uint64_t (*room)(const void *arg);
    /* Return the number of bytes that were kept; the others are lost. */
    size_t (*write)(void *arg, int channel, const void *data, size_t len);
    size_t (*write_event)(void *arg, const struct kernel_event *e, const struct buf *json);
};

struct output_stream {
    const struct output_sink *sink;
    void *arg;
    uint64_t limit;                    /* of the kept bytes of all channels together; or OUTPUT_UNLIMITED */
    uint64_t kept[OUTPUT_CHANNELS];    /* bytes */
    uint64_t dropped[OUTPUT_CHANNELS]; /* bytes beyond the limit */
    uint64_t lost[OUTPUT_CHANNELS];    /* bytes that the sink refused */
};

/* Keeps the beginning of the data if it exceeds the limit. */
void output_stream_write(struct output_stream *s, int channel, const void *data, size_t len);
/* Keeps the event as a whole or not at all. */
void output_stream_write_event(struct output_stream *s, const struct kernel_event *e);
uint64_t output_stream_kept(const struct output_stream *s); /* bytes of all channels */
