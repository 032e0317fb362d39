#include "core/base/pack.h"

void pack_init(struct pack *p, void *data, size_t cap)
{
    *p = (struct pack){ .data = data, .cap = cap };
}

void pack_raw(struct pack *p, const void *data, size_t len)
{
    if (p->bad || len > p->cap - p->len) {
        p->bad = true;
        return;
    }
    if (len)
        memcpy(p->data + p->len, data, len);
    p->len += len;
}

static void pack_le(struct pack *p, uint64_t v, size_t n)
{
    uint8_t b[8];

    for (size_t i = 0; i < n; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    pack_raw(p, b, n);
}

void pack_u8(struct pack *p, uint8_t v)
{
    pack_le(p, v, 1);
}

void pack_u16(struct pack *p, uint16_t v)
{
    pack_le(p, v, 2);
}

void pack_u32(struct pack *p, uint32_t v)
{
    pack_le(p, v, 4);
}

void pack_u64(struct pack *p, uint64_t v)
{
    pack_le(p, v, 8);
}

void pack_bytes(struct pack *p, const void *data, size_t len)
{
    if (len > UINT32_MAX) {
        p->bad = true;
        return;
    }
    pack_u32(p, (uint32_t)len);
    pack_raw(p, data, len);
}

void pack_str(struct pack *p, const char *s)
{
    pack_bytes(p, s, strlen(s));
}

void unpack_init(struct unpack *u, const void *data, size_t len)
{
    *u = (struct unpack){ .data = data, .len = len };
}

/* The next n bytes, or NULL. */
static const uint8_t *unpack_take(struct unpack *u, size_t n)
{
    if (u->bad || n > u->len - u->pos) {
        u->bad = true;
        return NULL;
    }
    const uint8_t *p = u->data + u->pos;
    u->pos += n;
    return p;
}

static uint64_t unpack_le(struct unpack *u, size_t n)
{
    const uint8_t *p = unpack_take(u, n);
    uint64_t v = 0;

    if (!p)
        return 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t unpack_u8(struct unpack *u)
{
    return (uint8_t)unpack_le(u, 1);
}

uint16_t unpack_u16(struct unpack *u)
{
    return (uint16_t)unpack_le(u, 2);
}

uint32_t unpack_u32(struct unpack *u)
{
    return (uint32_t)unpack_le(u, 4);
}

uint64_t unpack_u64(struct unpack *u)
{
    return unpack_le(u, 8);
}

const uint8_t *unpack_bytes(struct unpack *u, size_t max, size_t *len)
{
    uint32_t n = unpack_u32(u);

    *len = 0;
    if (u->bad || n > max) {
        u->bad = true;
        return NULL;
    }
    const uint8_t *p = unpack_take(u, n);
    if (p)
        *len = n;
    return p;
}

void unpack_str(struct unpack *u, char *dst, size_t cap)
{
    size_t len;
    const uint8_t *p = unpack_bytes(u, cap - 1, &len);

    dst[0] = '\0';
    if (!p)
        return;
    if (memchr(p, '\0', len)) {
        u->bad = true;
        return;
    }
    memcpy(dst, p, len);
    dst[len] = '\0';
}

void unpack_raw(struct unpack *u, void *dst, size_t len)
{
    const uint8_t *p = unpack_take(u, len);

    if (p)
        memcpy(dst, p, len);
    else
        memset(dst, 0, len);
}

bool unpack_end(struct unpack *u)
{
    return !u->bad && u->pos == u->len;
}
