#include "core/base/buf.h"

#include "core/base/mem.h"

#include <stdarg.h>
#include <stdio.h>

void buf_done(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ 0 };
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

/* Reserves n more bytes and the NUL. */
#define BUF_SHORT_TEXT 32u

static void buf_reserve(struct buf *b, size_t n)
{
    size_t need = b->len + n + 1;

    if (need < n)
        abort();
    if (need <= b->cap)
        return;
    size_t cap = b->cap ? b->cap : 128;
    while (cap < need)
        cap += cap / 2 + 64;
    b->data = mem_resize(b->data, cap, 1);
    b->cap = cap;
}

char *buf_room(struct buf *b, size_t n)
{
    buf_reserve(b, n);
    return b->data + b->len;
}

void buf_add(struct buf *b, const void *data, size_t len)
{
    buf_reserve(b, len);
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_adds(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    buf_reserve(b, BUF_SHORT_TEXT); /* only longer texts are formatted twice */
    size_t room = b->cap - b->len;
    int n = vsnprintf(b->data + b->len, room, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    if ((size_t)n >= room) {
        buf_reserve(b, (size_t)n);
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    b->len += (size_t)n;
}

void buf_drop(struct buf *b, size_t n)
{
    if (n >= b->len) {
        buf_clear(b);
        return;
    }
    memmove(b->data, b->data + n, b->len - n + 1);
    b->len -= n;
}
