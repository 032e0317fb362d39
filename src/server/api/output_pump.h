/* output_pump.h - sends the output of one execution to one client: stdout, stderr and the events of
 * a context, each from an offset on, and then its end.
 *
 * Stored output: output_pump_join(), then output_pump_run() whenever `on_progress` is called, the
 * client has read, or the previous call returned OUTPUT_PUMP_MORE. Live output, which is stored
 * nowhere: output_pump_add(), and output_pump_flush() after the last byte.
 *
 * 1. Bytes of a channel are sent once and in the order of offsets. While a function of the client
 *    runs, `offset` is already that of the next byte.
 * 2. Text is sent as text: a character that is split at the end of a piece waits for its remaining
 *    bytes. A piece with bytes that are not UTF-8 is sent as base64.
 * 3. An event is sent after the output that preceded it, and the end after the last byte.
 * 4. Nothing is read for a client whose buffer is full. A slow client costs only its offsets, and
 *    does not delay the execution. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"
#include "service/context.h"
#include "service/result.h"

#define OUTPUT_PIECE_MAX (32 * KIB)
#define OUTPUT_CHANNELS 3
#define OUTPUT_CHANNEL(c) (1u << ((c)-1))

struct output_piece {
    int channel; /* 1: stdout, 2: stderr */
    uint64_t offset;
    const char *data;
    size_t len;
    bool is_text; /* complete UTF-8 characters */
};

/* A kind of client. */
struct output_client_ops {
    size_t piece_max;   /* bytes in one message; at most OUTPUT_PIECE_MAX */
    size_t turn_max;    /* bytes after which output_pump_run() returns, for the sake of other clients */
    bool is_raw;        /* bytes are sent unchanged: a piece may split characters */
    bool embeds_output; /* output_pump.end_json contains the output */
    bool (*has_room)(void *client);
    void (*send_output)(void *client, const struct output_piece *piece);
    void (*send_event)(void *client, const char *type, const struct buf *json);
    void (*send_end)(void *client, const char *execution_json); /* NULL: the owner sends it */
};

struct output_pump {
    struct manager *manager;
    const struct output_client_ops *ops;
    void *client;
    void (*on_progress)(void *arg);
    void *arg;
    char execution[ID_SIZE];
    unsigned channels;             /* that the client gets */
    enum receipt_detail receipt;   /* in end_json */
    bool is_terminal;              /* the beginning of its output may be discarded */
    struct execution_watch *watch; /* NULL: it has ended, or only the existing bytes are sent */
    int fd[OUTPUT_CHANNELS];       /* -1: nothing was written so far */
    uint64_t offset[OUTPUT_CHANNELS], end[OUTPUT_CHANNELS]; /* end: bytes readable now */
    struct buf split_character[2];                          /* live output: the start of a character */
    struct buf end_json;                                    /* the execution; empty until it has ended */
};

/* on_progress: output_pump_run() can do something; called from the loop. NULL for live output. */
void output_pump_init(struct output_pump *p, struct manager *m, const struct output_client_ops *ops, void *client,
                      void (*on_progress)(void *arg), void *arg);
void output_pump_done(struct output_pump *p);

struct output_join {
    const char *owner, *sandbox; /* the execution must belong to both */
    unsigned channels;           /* OUTPUT_CHANNEL(1) | ...; events only exist in a context */
    bool existing_only;          /* end at the bytes that exist now */
    uint64_t offset[OUTPUT_CHANNELS];
    bool has_tail;
    enum receipt_detail receipt; /* of the end */
    uint64_t tail_bytes;         /* if has_tail: begin so many bytes before the end of stdout and stderr instead */
};
#define OUTPUT_ALL_CHANNELS (OUTPUT_CHANNEL(1) | OUTPUT_CHANNEL(2) | OUTPUT_CHANNEL(CONTEXT_EVENTS))

/* Follows the execution of the row. ERR_HTTP_RANGE: it has ended before an offset. A running
 * execution may still be before it: after a restart of the server, or before its first output. */
int output_pump_join(struct output_pump *p, const struct output_join *join, const struct store_execution *row,
                     struct err *err);

enum output_pump_result {
    OUTPUT_PUMP_WAITING, /* for the execution or for the client */
    OUTPUT_PUMP_MORE,    /* turn_max was reached: call it again from the loop */
    OUTPUT_PUMP_ENDED,   /* the end was sent */
    OUTPUT_PUMP_FAILED,  /* output exists and cannot be read; a client that resumes at its offsets misses nothing */
};
enum output_pump_result output_pump_run(struct output_pump *p, struct err *err);

/* Sends live output, even if the client's buffer is full: the caller stops the source. */
void output_pump_add(struct output_pump *p, int channel, const void *data, size_t len);
void output_pump_flush(struct output_pump *p);

bool output_pump_has_events(const struct output_pump *p);
/* Writes members: stream, offset, and the bytes as "data" or "base64". */
void output_piece_write(const struct output_piece *piece, struct jsonw *w);
