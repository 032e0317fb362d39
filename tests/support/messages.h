/* messages.h - every message of the wire in one table: an example with every field set, and its
 * codec functions.
 *
 * Unit tests use the table to test each message from every side, fuzz targets to find the decoders
 * of a frame type, and tests/fuzz/corpus.c to write the first inputs. A message that is missing in
 * this table is not fuzzed. */
#pragma once

#include "core/wire/frame.h"

enum message_link {                 /* which header has the message */
                    MESSAGE_RT,     /* rt.h: engine and runtime */
                    MESSAGE_JAIL,   /* jail.h: engine, jailer and monitor */
                    MESSAGE_EGRESS, /* egress.h: jailer, engine and egress proxy */
};

struct message {
    const char *name;
    uint8_t types[12]; /* frame types that carry it, then 0 */
    enum message_link link;
    bool items; /* a payload holds one or more of them */
    /* Encodes the example into a buffer of FRAME_PAYLOAD_MAX bytes. Returns its length. */
    int (*example)(uint8_t *out, struct err *err);
    /* Decodes the payload and encodes the result. Returns its length, or -1 if the decoder refused.
     * A decoded message must be encodable. */
    int (*again)(const struct frame *f, uint8_t *out, struct err *err);
    /* Decodes the encoded example and compares every field with it. */
    bool (*kept)(void);
};

extern const struct message messages[];
extern const size_t nmessages;

bool message_has_type(const struct message *m, uint8_t type);

/* Passes a hostile packet to frame_parse, and its payload to every decoder for its type. A message
 * has only one encoding, so every accepted payload must encode to the same bytes again, or the
 * process aborts. */
void messages_attack(const uint8_t *packet, size_t n, enum message_link link);
