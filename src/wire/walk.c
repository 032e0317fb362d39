/* Each walk_x is pack_x or unpack_x behind one name. What is refused marks the cursor as well, so that the rest of the
 * walk does nothing and one check at its end is enough. */
#include "wire/walk.h"

#include "base/mem.h"

bool walk_failed(const struct walk *w)
{
    return w->what || (w->out ? w->out->bad : w->in->bad);
}

static void refuse(struct walk *w, const char *what, bool too_big)
{
    if (walk_failed(w))
        return;
    w->what = what;
    w->too_big = too_big;
    if (w->out)
        w->out->bad = true;
    else
        w->in->bad = true;
}

void walk_check(struct walk *w, bool ok, const char *what)
{
    if (!ok)
        refuse(w, what, false);
}

void walk_u8(struct walk *w, uint8_t *v)
{
    if (w->out)
        pack_u8(w->out, *v);
    else
        *v = unpack_u8(w->in);
}

void walk_u16(struct walk *w, uint16_t *v)
{
    if (w->out)
        pack_u16(w->out, *v);
    else
        *v = unpack_u16(w->in);
}

void walk_u32(struct walk *w, uint32_t *v)
{
    if (w->out)
        pack_u32(w->out, *v);
    else
        *v = unpack_u32(w->in);
}

void walk_i32(struct walk *w, int32_t *v)
{
    uint32_t bits = (uint32_t)*v;

    walk_u32(w, &bits);
    if (!w->out)
        *v = (int32_t)bits;
}

void walk_u64(struct walk *w, uint64_t *v)
{
    if (w->out)
        pack_u64(w->out, *v);
    else
        *v = unpack_u64(w->in);
}

void walk_char(struct walk *w, char *v)
{
    uint8_t byte = (uint8_t)*v;

    walk_u8(w, &byte);
    if (!w->out)
        *v = (char)byte;
}

void walk_raw(struct walk *w, void *data, size_t len)
{
    if (w->out)
        pack_raw(w->out, data, len);
    else
        unpack_raw(w->in, data, len);
}

void walk_str(struct walk *w, char *s, size_t cap, const char *what)
{
    if (!w->out)
        unpack_str(w->in, s, cap);
    else if (strnlen(s, cap) == cap)
        refuse(w, what, true);
    else
        pack_str(w->out, s);
}

uint32_t walk_count(struct walk *w, uint32_t *n, uint32_t max, const char *what)
{
    walk_u32(w, n);
    if (*n > max)
        refuse(w, what, true);
    return walk_failed(w) ? 0 : *n;
}

void *walk_strings(struct walk *w, size_t nlists, size_t max)
{
    size_t payload = w->in->len;

    w->strings_left = min_size(max, payload / 4);
    w->slots = mem_alloc((w->strings_left + nlists) * sizeof(char *) + payload);
    w->text = (char *)(w->slots + w->strings_left + nlists);
    return w->slots;
}

static void encode_text(struct walk *w, const char *s, size_t max, const char *what)
{
    if (strlen(s) > max)
        refuse(w, what, true);
    else
        pack_str(w->out, s);
}

static void decode_text(struct walk *w, const char **ret, size_t max, const char *what)
{
    size_t len;
    const uint8_t *p = unpack_bytes(w->in, max, &len);

    if (!p)
        return;
    if (memchr(p, '\0', len)) {
        refuse(w, what, false);
        return;
    }
    *ret = memcpy(w->text, p, len);
    w->text[len] = '\0';
    w->text += len + 1;
}

void walk_text(struct walk *w, const char **s, size_t max, const char *what)
{
    if (w->out)
        encode_text(w, *s, max, what);
    else
        decode_text(w, s, max, what);
}

static uint32_t list_len(const char *const *list)
{
    uint32_t n = 0;

    while (list && list[n])
        n++;
    return n;
}

void walk_list(struct walk *w, const char *const **list, const char *what)
{
    uint32_t n = w->out ? list_len(*list) : 0;

    n = walk_count(w, &n, (uint32_t)w->strings_left, what);
    w->strings_left -= n;
    if (w->out) {
        for (uint32_t i = 0; i < n; i++)
            encode_text(w, (*list)[i], FRAME_PAYLOAD_MAX, what);
        return;
    }
    *list = w->slots;
    for (uint32_t i = 0; i < n; i++)
        decode_text(w, &w->slots[i], FRAME_PAYLOAD_MAX, what);
    w->slots += n + 1; /* past the NULL, which is there already: the allocation came zeroed */
}

int walk_end_encode(const struct walk *w, const char *name, struct err *err)
{
    if (w->what)
        return err_set(err, w->too_big ? ERR_LIMIT : ERR_INVALID, w->too_big ? "%s: too much in %s" : "%s: bad %s",
                       name, w->what);
    if (w->out->bad)
        return err_set(err, ERR_LIMIT, "%s: more than %u bytes", name, FRAME_PAYLOAD_MAX);
    return (int)w->out->len;
}

int walk_end_decode(const struct walk *w, const struct frame *f, struct err *err)
{
    if (w->what)
        return err_set(err, ERR_PROTOCOL, "%s frame: bad %s", frame_name(f->type), w->what);
    if (!unpack_end(w->in))
        return err_set(err, ERR_PROTOCOL, "%s frame: %s", frame_name(f->type),
                       w->in->bad ? "cut short or malformed" : "goes on after its end");
    return 0;
}
