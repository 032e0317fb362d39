/* buf.h - a growing byte buffer. The caller bounds its size; the buffer never shrinks. Always
 * NUL-terminated. */
#pragma once

#include "core/base/base.h"

struct buf {
    char *data;
    size_t len;
    size_t cap;
};

void buf_done(struct buf *b);
void buf_clear(struct buf *b); /* keeps the memory */
void buf_add(struct buf *b, const void *data, size_t len);
void buf_adds(struct buf *b, const char *s);
void buf_addf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Reserves n more bytes and the NUL after them. The caller writes both, and adds the number of
 * written bytes to len. */
char *buf_room(struct buf *b, size_t n);
void buf_drop(struct buf *b, size_t n); /* removes n bytes from the front */

#define auto_buf __attribute__((cleanup(buf_done))) struct buf
