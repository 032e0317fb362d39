/* pack.h - encodes and decodes bytes that cross a trust boundary: little-endian numbers, counted
 * strings.
 *
 * Errors are sticky in both directions: after the first value that does not fit, every further call
 * does nothing and `bad` stays set, so a codec is a list of calls with one check at the end. A
 * string or blob is a u32 length and its bytes; strings contain no NUL. Nothing here allocates;
 * unpacked strings and blobs point into the input. */
#pragma once

#include "core/base/base.h"

struct pack {
    uint8_t *data;
    size_t cap;
    size_t len;
    bool bad;
};

void pack_init(struct pack *p, void *data, size_t cap);
void pack_u8(struct pack *p, uint8_t v);
void pack_u16(struct pack *p, uint16_t v);
void pack_u32(struct pack *p, uint32_t v);
void pack_u64(struct pack *p, uint64_t v);
void pack_bytes(struct pack *p, const void *data, size_t len); /* u32 length + bytes */
void pack_str(struct pack *p, const char *s);
void pack_raw(struct pack *p, const void *data, size_t len); /* no length */

struct unpack {
    const uint8_t *data;
    size_t len;
    size_t pos;
    bool bad;
};

void unpack_init(struct unpack *u, const void *data, size_t len);
uint8_t unpack_u8(struct unpack *u);
uint16_t unpack_u16(struct unpack *u);
uint32_t unpack_u32(struct unpack *u);
uint64_t unpack_u64(struct unpack *u);
const uint8_t *unpack_bytes(struct unpack *u, size_t max, size_t *len); /* NULL, and bad is set, if longer than max */
/* Copies into dst (cap includes the NUL); sets bad if it does not fit or contains a NUL. */
void unpack_str(struct unpack *u, char *dst, size_t cap);
void unpack_raw(struct unpack *u, void *dst, size_t len);
bool unpack_end(struct unpack *u); /* true if there was no error and no byte is left */
