/* Text for a model is JSON text in the end: valid UTF-8, and no NUL, at which C strings end. */
#include "service/tools/tool_internal.h"

#include "core/base/str.h"

#include <stdio.h>

#define REPLACEMENT "\xef\xbf\xbd"

void tool_text_add(struct buf *out, const char *data, size_t len)
{
    size_t at = 0;
    uint32_t c;

    while (at < len) {
        size_t n = str_utf8(data + at, len - at, &c);

        if (n == 0 || data[at] == '\0') {
            buf_adds(out, REPLACEMENT);
            at++;
        } else {
            buf_add(out, data + at, n);
            at += n;
        }
    }
}

json_t *tool_text_load_json(struct buf *text)
{
    for (char *p = text->data; p && (p = strchr(p, '\\')); p += 2)
        if (strncmp(p, "\\u0000", 6) == 0)
            memcpy(p, "\\ufffd", 6);
    return json_loadb(text->data ? text->data : "", text->len, 0, NULL);
}

size_t tool_text_broken_start(const char *data, size_t len)
{
    size_t n = 0;

    while (n < len && n < 3 && ((uint8_t)data[n] & 0xc0) == 0x80)
        n++;
    return n;
}

size_t tool_text_whole_length(const char *data, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        uint8_t c = (uint8_t)data[len - back];

        if ((c & 0xc0) == 0x80)
            continue;
        return (c >= 0xf0 && back < 4) || (c >= 0xe0 && back < 3) || (c >= 0xc0 && back < 2) ? len - back : len;
    }
    return len;
}

bool tool_text_split(uint64_t total, uint64_t space, uint64_t *ret_head, uint64_t *ret_tail)
{
    if (total <= space) {
        *ret_head = total;
        *ret_tail = 0;
        return false;
    }
    *ret_head = space / 2;
    *ret_tail = space - space / 2;
    return true;
}

void tool_text_add_part(struct buf *out, const char *name, const char *data, size_t len)
{
    while (len > 0 && data[len - 1] == '\n')
        len--;
    if (len == 0)
        return;
    buf_addf(out, "%s%s:\n", out->len ? "\n" : "", name);
    tool_text_add(out, data, len);
}

void tool_text_share(const uint64_t *needs, uint64_t *ret_shares, size_t n, uint64_t space)
{
    uint64_t left = space;
    size_t open = n;
    bool changed = true;

    for (size_t i = 0; i < n; i++)
        ret_shares[i] = UINT64_MAX;
    while (changed && open > 0) {
        uint64_t share = left / open;

        changed = false;
        for (size_t i = 0; i < n; i++)
            if (ret_shares[i] == UINT64_MAX && needs[i] <= share) {
                ret_shares[i] = needs[i];
                left -= needs[i];
                open--;
                changed = true;
            }
    }
    for (size_t i = 0; i < n; i++)
        if (ret_shares[i] == UINT64_MAX)
            ret_shares[i] = left / max_u64(open, 1);
}
