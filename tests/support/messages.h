/* messages.h - every message of the wire as one table: an example with every field set, and its codec.
 *
 * Unit tests use it to test each message, fuzz targets to find the decoders of a frame type, and
 * tests/fuzz/corpus.c to write the first inputs. A message that is missing here is not attacked by any
 * test. */
#pragma once

#include "core/wire/frame.h"

struct message {
    const char *name;
    uint8_t types[12]; /* frame types that carry it, then 0 */
    bool jail;         /* from jail.h; otherwise from rt.h */
    bool items;        /* one or more of them in a payload */
    /* The example, encoded into a buffer of FRAME_PAYLOAD_MAX bytes: its length. */
    int (*example)(uint8_t *out, struct err *err);
    /* Decodes the payload and encodes the result: its length, or -1 when decoding refused. A decoded
     * message must encode. */
    int (*again)(const struct frame *f, uint8_t *out, struct err *err);
    /* Decodes the encoded example and compares every field with it. */
    bool (*kept)(void);
};

extern const struct message messages[];
extern const size_t nmessages;

bool message_has_type(const struct message *m, uint8_t type);

/* Passes a hostile packet to frame_parse, and its payload to every decoder that its type selects. A
 * message has exactly one encoding, so an accepted one must encode to the same bytes again; otherwise
 * the process aborts. */
void messages_attack(const uint8_t *packet, size_t n, bool jail);
