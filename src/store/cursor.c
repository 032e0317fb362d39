/* 12 hexadecimal digits and the id. The digits hold times until the year 10889, and the text
 * needs no escaping in a URL. A forged cursor only selects a position in the client's own list. */
#include "store/cursor.h"

#include "core/base/str.h"

#include <stdio.h>

#define TIME_DIGITS 12

void store_cursor_format(const struct store_cursor *c, char ret[STORE_CURSOR_SIZE])
{
    snprintf(ret, STORE_CURSOR_SIZE, "%0*" PRIx64 "%s", TIME_DIGITS, c->created_ms & ((UINT64_C(1) << 48) - 1), c->id);
}

int store_cursor_parse(const char *text, const char *kind, struct store_cursor *ret, struct err *err)
{
    struct store_cursor c = { 0 };

    if (strnlen(text, STORE_CURSOR_SIZE) < TIME_DIGITS)
        return err_set(err, ERR_INVALID, "cursor: not a cursor; use the nextCursor of the previous page");
    for (size_t i = 0; i < TIME_DIGITS; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *d = text[i] ? strchr(digits, text[i]) : NULL;

        if (!d)
            return err_set(err, ERR_INVALID, "cursor: not a cursor; use the nextCursor of the previous page");
        c.created_ms = c.created_ms << 4 | (uint64_t)(d - digits);
    }
    text += TIME_DIGITS;
    if (!str_copy(c.id, sizeof(c.id), text) || (kind ? !id_valid(text, kind) : !store_owner_valid(text)))
        return err_set(err, ERR_INVALID, "cursor: not a cursor of this list; use the nextCursor of the previous page");
    *ret = c;
    return 0;
}
