/* codec.h - how rt.c and jail.c describe a message: one function walks its fields, and the same walk encodes and
 * decodes.
 *
 * A walk either reads the struct and writes bytes, or reads bytes and writes the struct; a layout is written once, so
 * the two directions cannot drift apart, and a check written in it holds on both sides. Like pack and unpack it is
 * sticky: after the first failure nothing more is read, numbers decode as 0 and counts as none.
 *
 * Private to this room. */
#pragma once

#include "core/base/err.h"
#include "core/base/pack.h"
#include "core/wire/frame.h"

struct codec {
    struct pack *out; /* one of the two is NULL */
    struct unpack *in;
    const char *bad_field;     /* the first field whose value is not allowed */
    bool too_big;              /* ... because there is too much of it */
    size_t strings_left;       /* how many more strings the lists may hold */
    const char **string_slots; /* decoding: where the next list begins, and where the next string goes */
    char *string_bytes;
};

void codec_u8(struct codec *w, uint8_t *v);
void codec_u16(struct codec *w, uint16_t *v);
void codec_u32(struct codec *w, uint32_t *v);
void codec_i32(struct codec *w, int32_t *v);
void codec_u64(struct codec *w, uint64_t *v);
void codec_char(struct codec *w, char *v);
void codec_raw(struct codec *w, void *data, size_t len); /* no length on the wire */
void codec_str(struct codec *w, char *s, size_t cap, const char *what);
/* The number of elements to walk next: 0 when it is beyond max. */
uint32_t codec_count(struct codec *w, uint32_t *n, uint32_t max, const char *what);
void codec_check(struct codec *w, bool ok, const char *what);
bool codec_failed(const struct codec *w);

/* Strings that decode into memory of their own: one allocation, returned and owned by the caller, holds the pointers of
 * all lists and the text they point to. It is sized by the payload: a string takes 4 bytes of length on the wire and
 * one NUL in memory, so the text fits into as many bytes as the payload has, and the lists can hold no more strings
 * than a quarter of that. Encoding sets only strings_left. */
void *codec_strings(struct codec *w, size_t nlists, size_t max) MUST_USE;
void codec_text(struct codec *w, const char **s, size_t max, const char *what);
void codec_list(struct codec *w, const char *const **list,
                const char *what); /* NULL-terminated; NULL encodes as empty */

/* Ends of a whole message: the length of the payload, or 0, or -1. */
int codec_end_encode(const struct codec *w, const char *name, struct err *err);
int codec_end_decode(const struct codec *w, const struct frame *f, struct err *err);

/* An encoding walk does not write to the struct, so the const that is cast away is kept in fact. */
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

/* CODEC_DEFINE(rt_hello) defines rt_hello_encode and rt_hello_decode over rt_hello_walk. */
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
