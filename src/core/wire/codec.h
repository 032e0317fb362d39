/* codec.h - the field codec of rt.c and jail.c: one function lists the fields of a message, and the
 * same function encodes and decodes.
 *
 * A codec function either reads the struct and writes bytes, or reads bytes and writes the struct.
 * Each layout exists once, so the two directions cannot differ, and a check in it applies to both.
 * As in pack and unpack, errors are sticky: after the first failure nothing more is read, numbers
 * decode as 0 and counts as 0.
 *
 * Private to this directory. */
#pragma once

#include "core/base/err.h"
#include "core/base/pack.h"
#include "core/wire/frame.h"

struct codec {
    struct pack *out; /* exactly one of out and in is NULL */
    struct unpack *in;
    const char *bad_field;     /* the first field with an invalid value; NULL if all are valid */
    bool too_big;              /* the value of bad_field is too long or has too many elements */
    size_t strings_left;       /* how many more strings the lists may hold */
    const char **string_slots; /* decoding: where the next list begins */
    char *string_bytes;        /* decoding: where the text of the next string goes */
};

void codec_u8(struct codec *w, uint8_t *v);
void codec_u16(struct codec *w, uint16_t *v);
void codec_u32(struct codec *w, uint32_t *v);
void codec_i32(struct codec *w, int32_t *v);
void codec_u64(struct codec *w, uint64_t *v);
void codec_char(struct codec *w, char *v);
void codec_raw(struct codec *w, void *data, size_t len); /* no length on the wire */
void codec_str(struct codec *w, char *s, size_t cap, const char *what);
/* Returns the number of elements that follow; 0 if it exceeds max. */
uint32_t codec_count(struct codec *w, uint32_t *n, uint32_t max, const char *what);
void codec_check(struct codec *w, bool ok, const char *what);
bool codec_failed(const struct codec *w);

/* Strings that decode into separate memory: one allocation, returned and owned by the caller, holds
 * the pointers of all lists and the text they point to. Its size follows from the payload: a string
 * takes 4 bytes of length on the wire and one NUL in memory, so the text fits into as many bytes as
 * the payload has, and the lists hold at most a quarter as many strings. Encoding only sets
 * strings_left. */
void *codec_strings(struct codec *w, size_t nlists, size_t max) MUST_USE;
void codec_text(struct codec *w, const char **s, size_t max, const char *what);
void codec_list(struct codec *w, const char *const **list,
                const char *what); /* NULL-terminated; NULL encodes as empty */

/* Finish a whole message: return the length of the payload (encoder), 0 (decoder), or -1. */
int codec_end_encode(const struct codec *w, const char *name, struct err *err);
int codec_end_decode(const struct codec *w, const struct frame *f, struct err *err);

/* Encoding does not write to the struct, so casting the const away is safe. */
#define CODEC_DEFINE_ENCODER(m, max_strings)                           \
    int m##_encode(const struct m *msg, uint8_t *out, struct err *err) \
    {                                                                  \
        struct pack p;                                                 \
        struct codec w = { .out = &p, .strings_left = (max_strings) }; \
                                                                       \
        pack_init(&p, out, FRAME_PAYLOAD_MAX);                         \
        m##_walk(&w, (struct m *)(uintptr_t)msg);                      \
        return codec_end_encode(&w, #m, err);                          \
    }

/* CODEC_DEFINE(rt_hello) defines rt_hello_encode and rt_hello_decode from rt_hello_walk. */
#define CODEC_DEFINE(m)                                                   \
    CODEC_DEFINE_ENCODER(m, 0)                                            \
                                                                          \
    int m##_decode(const struct frame *f, struct m *ret, struct err *err) \
    {                                                                     \
        struct unpack u;                                                  \
        struct codec w = { .in = &u };                                    \
        struct m msg = { 0 };                                             \
                                                                          \
        unpack_init(&u, f->data, f->len);                                 \
        m##_walk(&w, &msg);                                               \
        if (codec_end_decode(&w, f, err) < 0)                             \
            return -1;                                                    \
        *ret = msg;                                                       \
        return 0;                                                         \
    }                                                                     \
    struct m
