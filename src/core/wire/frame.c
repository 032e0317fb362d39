/* A frame is validated before any caller sees it: the length against the packet, the reserved field
 * against zero, the type against frames.def. Payloads are validated by rt.c and jail.c. */
#include "core/wire/frame.h"

#include "core/base/pack.h"

#include <assert.h>

static const char *const frame_names[UINT8_MAX + 1] = {
#define FRAME(name, number, from, what) [number] = #name,
#include "core/wire/frames.def"
#undef FRAME
};

const char *frame_name(uint8_t type)
{
    return frame_names[type] ? frame_names[type] : "?";
}

void frame_header(uint8_t out[FRAME_HEADER], const struct frame *f)
{
    struct pack p;

    assert(f->len <= FRAME_PAYLOAD_MAX);
    pack_init(&p, out, FRAME_HEADER);
    pack_u32(&p, f->len);
    pack_u8(&p, f->type);
    pack_u8(&p, f->flags);
    pack_u16(&p, 0);
    pack_u32(&p, f->stream);
}

int frame_parse(const void *packet, size_t n, struct frame *ret, struct err *err)
{
    struct unpack u;
    struct frame f;

    if (n < FRAME_HEADER)
        return err_set(err, ERR_PROTOCOL, "a packet of %zu bytes is too short for a frame", n);
    unpack_init(&u, packet, n);
    f.len = unpack_u32(&u);
    f.type = unpack_u8(&u);
    f.flags = unpack_u8(&u);
    uint16_t reserved = unpack_u16(&u);
    f.stream = unpack_u32(&u);
    f.data = u.data + FRAME_HEADER;

    if (f.len > FRAME_PAYLOAD_MAX || f.len != n - FRAME_HEADER)
        return err_set(err, ERR_PROTOCOL, "the length field of a frame is %" PRIu32 ", but the packet holds %zu bytes",
                       f.len, n - FRAME_HEADER);
    if (reserved != 0)
        return err_set(err, ERR_PROTOCOL, "the reserved field of a frame is %u", (unsigned)reserved);
    if (!frame_names[f.type])
        return err_set(err, ERR_PROTOCOL, "frame type %u does not exist", (unsigned)f.type);
    *ret = f;
    return 0;
}
