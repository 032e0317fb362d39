/* Each codec_x calls pack_x or unpack_x, depending on the direction. A refused value also marks the
 * cursor as bad, so that the remaining calls do nothing and one check at the end is enough. */
#include "core/wire/codec.h"

#include "core/base/mem.h"

bool codec_failed(const struct codec *w)
{
    return w->bad_field || (w->out ? w->out->bad : w->in->bad);
}

static void codec_refuse(struct codec *w, const char *what, bool too_big)
{
    if (codec_failed(w))
        return;
    w->bad_field = what;
    w->too_big = too_big;
    if (w->out)
        w->out->bad = true;
    else
        w->in->bad = true;
}

void codec_check(struct codec *w, bool ok, const char *what)
{
    if (!ok)
        codec_refuse(w, what, false);
}

void codec_u8(struct codec *w, uint8_t *v)
{
    if (w->out)
        pack_u8(w->out, *v);
    else
        *v = unpack_u8(w->in);
}

void codec_u16(struct codec *w, uint16_t *v)
{
    if (w->out)
        pack_u16(w->out, *v);
    else
        *v = unpack_u16(w->in);
}

void codec_u32(struct codec *w, uint32_t *v)
{
    if (w->out)
        pack_u32(w->out, *v);
    else
        *v = unpack_u32(w->in);
}

void codec_i32(struct codec *w, int32_t *v)
{
    uint32_t bits = (uint32_t)*v;

    codec_u32(w, &bits);
    if (!w->out)
        *v = (int32_t)bits;
}

void codec_u64(struct codec *w, uint64_t *v)
{
    if (w->out)
        pack_u64(w->out, *v);
    else
        *v = unpack_u64(w->in);
}

void codec_char(struct codec *w, char *v)
{
    uint8_t byte = (uint8_t)*v;

    codec_u8(w, &byte);
    if (!w->out)
        *v = (char)byte;
}

void codec_raw(struct codec *w, void *data, size_t len)
{
    if (w->out)
        pack_raw(w->out, data, len);
    else
        unpack_raw(w->in, data, len);
}

void codec_str(struct codec *w, char *s, size_t cap, const char *what)
{
    if (!w->out)
        unpack_str(w->in, s, cap);
    else if (strnlen(s, cap) == cap)
        codec_refuse(w, what, true);
    else
        pack_str(w->out, s);
}

uint32_t codec_count(struct codec *w, uint32_t *n, uint32_t max, const char *what)
{
    codec_u32(w, n);
    if (*n > max)
        codec_refuse(w, what, true);
    return codec_failed(w) ? 0 : *n;
}

void *codec_strings(struct codec *w, size_t nlists, size_t max)
{
    size_t payload = w->in->len;

    w->strings_left = min_size(max, payload / 4);
    w->string_slots = mem_alloc((w->strings_left + nlists) * sizeof(char *) + payload);
    w->string_bytes = (char *)(w->string_slots + w->strings_left + nlists);
    return w->string_slots;
}

static void codec_encode_text(struct codec *w, const char *s, size_t max, const char *what)
{
    if (strlen(s) > max)
        codec_refuse(w, what, true);
    else
        pack_str(w->out, s);
}

static void codec_decode_text(struct codec *w, const char **ret, size_t max, const char *what)
{
    size_t len;
    const uint8_t *p = unpack_bytes(w->in, max, &len);

    if (!p)
        return;
    if (memchr(p, '\0', len)) {
        codec_refuse(w, what, false);
        return;
    }
    *ret = memcpy(w->string_bytes, p, len);
    w->string_bytes[len] = '\0';
    w->string_bytes += len + 1;
}

void codec_text(struct codec *w, const char **s, size_t max, const char *what)
{
    if (w->out)
        codec_encode_text(w, *s, max, what);
    else
        codec_decode_text(w, s, max, what);
}

static uint32_t codec_list_length(const char *const *list)
{
    uint32_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

void codec_list(struct codec *w, const char *const **list, const char *what)
{
    uint32_t n = w->out ? codec_list_length(*list) : 0;

    n = codec_count(w, &n, (uint32_t)w->strings_left, what);
    w->strings_left -= n;
    if (w->out) {
        for (uint32_t i = 0; i < n; i++)
            codec_encode_text(w, (*list)[i], FRAME_PAYLOAD_MAX, what);
        return;
    }
    *list = w->string_slots;
    for (uint32_t i = 0; i < n; i++)
        codec_decode_text(w, &w->string_slots[i], FRAME_PAYLOAD_MAX, what);
    w->string_slots += n + 1; /* past the NULL, which is already there because the allocation is zeroed */
}

int codec_end_encode(const struct codec *w, const char *name, struct err *err)
{
    if (w->bad_field)
        return err_set(err, w->too_big ? ERR_LIMIT : ERR_INVALID, w->too_big ? "%s: %s is too large" : "%s: invalid %s",
                       name, w->bad_field);
    if (w->out->bad)
        return err_set(err, ERR_LIMIT, "%s: more than %u bytes", name, FRAME_PAYLOAD_MAX);
    return (int)w->out->len;
}

int codec_end_decode(const struct codec *w, const struct frame *f, struct err *err)
{
    if (w->bad_field)
        return err_set(err, ERR_PROTOCOL, "%s frame: invalid %s", frame_name(f->type), w->bad_field);
    if (!unpack_end(w->in))
        return err_set(err, ERR_PROTOCOL, "%s frame: %s", frame_name(f->type),
                       w->in->bad ? "truncated or malformed" : "extra bytes at the end");
    return 0;
}
