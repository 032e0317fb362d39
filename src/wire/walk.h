/* walk.h - how rt.c and jail.c describe a message: one function walks its fields, and the same walk encodes and
 * decodes.
 *
 * A walk either reads the struct and writes bytes, or reads bytes and writes the struct; a layout is written once, so
 * the two directions cannot drift apart, and a check written in it holds on both sides. Like pack and unpack it is
 * sticky: after the first failure nothing more is read, numbers decode as 0 and counts as none.
 *
 * Private to this room. */
#pragma once

#include "base/err.h"
#include "base/pack.h"
#include "wire/frame.h"

struct walk {
    struct pack *out; /* one of the two is NULL */
    struct unpack *in;
    const char *what;    /* the first field whose value is not allowed */
    bool too_big;        /* ... because there is too much of it */
    size_t strings_left; /* how many more strings the lists may hold */
    const char **slots;  /* decoding: where the next list begins, and where the next string goes */
    char *text;
};

void walk_u8(struct walk *w, uint8_t *v);
void walk_u16(struct walk *w, uint16_t *v);
void walk_u32(struct walk *w, uint32_t *v);
void walk_i32(struct walk *w, int32_t *v);
void walk_u64(struct walk *w, uint64_t *v);
void walk_char(struct walk *w, char *v);
void walk_raw(struct walk *w, void *data, size_t len); /* no length on the wire */
void walk_str(struct walk *w, char *s, size_t cap, const char *what);
/* The number of elements to walk next: 0 when it is beyond max. */
uint32_t walk_count(struct walk *w, uint32_t *n, uint32_t max, const char *what);
void walk_check(struct walk *w, bool ok, const char *what);
bool walk_failed(const struct walk *w);

/* Strings that decode into memory of their own: one allocation, returned and owned by the caller, holds the pointers of
 * all lists and the text they point to. It is sized by the payload: a string takes 4 bytes of length on the wire and
 * one NUL in memory, so the text fits into as many bytes as the payload has, and the lists can hold no more strings
 * than a quarter of that. Encoding sets only strings_left. */
void *walk_strings(struct walk *w, size_t nlists, size_t max) MUST_USE;
void walk_text(struct walk *w, const char **s, size_t max, const char *what);
void walk_list(struct walk *w, const char *const **list, const char *what); /* NULL-terminated; NULL encodes as empty */

/* Ends of a whole message: the length of the payload, or 0, or -1. */
int walk_end_encode(const struct walk *w, const char *name, struct err *err);
int walk_end_decode(const struct walk *w, const struct frame *f, struct err *err);

/* An encoding walk does not write to the struct, so the const that is cast away is kept in fact. */
#define WALK_ENCODER(m, max_strings)                                   \
    int m##_encode(const struct m *msg, uint8_t *out, struct err *err) \
    {                                                                  \
        struct pack p;                                                 \
        struct walk w = { .out = &p, .strings_left = (max_strings) };  \
                                                                       \
        pack_init(&p, out, FRAME_PAYLOAD_MAX);                         \
        m##_walk(&w, (struct m *)(uintptr_t)msg);                      \
        return walk_end_encode(&w, #m, err);                           \
    }

/* WALK_CODEC(rt_hello) defines rt_hello_encode and rt_hello_decode over rt_hello_walk. */
#define WALK_CODEC(m)                                                     \
    WALK_ENCODER(m, 0)                                                    \
                                                                          \
    int m##_decode(const struct frame *f, struct m *ret, struct err *err) \
    {                                                                     \
        struct unpack u;                                                  \
        struct walk w = { .in = &u };                                     \
        struct m msg = { 0 };                                             \
                                                                          \
        unpack_init(&u, f->data, f->len);                                 \
        m##_walk(&w, &msg);                                               \
        if (walk_end_decode(&w, f, err) < 0)                              \
            return -1;                                                    \
        *ret = msg;                                                       \
        return 0;                                                         \
    }                                                                     \
    struct m
