/* frame.h - the message unit between cove's processes: a header of 12 bytes and at most 64 KiB of
 * payload.
 *
 *     u32 len   payload bytes       u8 type   a row of frames.def    u8 flags   depends on the type
 *     u16 zero                      u32 stream  0 is the connection itself
 *
 * All numbers are little-endian. On a SOCK_SEQPACKET socket one frame is one packet; on a byte
 * stream frames follow each other. The functions here do no I/O. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define WIRE_VERSION 6u
#define FRAME_HEADER 12u
#define FRAME_PAYLOAD_MAX 65536u
#define FRAME_MAX (FRAME_HEADER + FRAME_PAYLOAD_MAX)
/* A buffer for one encoded message. The build zeroes automatic variables; for 64 KiB, of which
 * about a hundred bytes are used, zeroing would cost more than the message. Encoders return how
 * much they wrote. */
#define PAYLOAD(name) uint8_t name[FRAME_PAYLOAD_MAX] __attribute__((uninitialized))
#define WIRE_WINDOW (256u * 1024u)       /* initial credit of a stream, in bytes */
#define WIRE_WINDOW_BULK (1024u * 1024u) /* initial credit of a file or archive stream, in bytes */

enum frame_type {
#define FRAME(name, number, from, what) FRAME_##name = number,
#include "core/wire/frames.def"
#undef FRAME
};

struct frame {
    uint8_t type;
    uint8_t flags;
    uint32_t stream;
    uint32_t len;
    const uint8_t *data; /* points into the input */
};

void frame_header(uint8_t out[FRAME_HEADER], const struct frame *f);
/* Parses one whole packet. Fails on short input, a wrong length, a non-zero reserved field, and an
 * unknown type. */
int frame_parse(const void *packet, size_t n, struct frame *ret, struct err *err);
const char *frame_name(uint8_t type); /* "EXEC", or "?" */
