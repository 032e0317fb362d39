/* The `cursor` that a client sends with a list.
 *
 * Checked in addition to memory errors: an error has a message; an accepted cursor reads the
 * same after it is written again, and holds only characters of an id or a name. */
#include "store/cursor.h"

#include "core/base/str.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const kinds[] = { "sb", "ex", "ky", NULL };

    auto_free char *text = str_dup_n((const char *)data, size);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct store_cursor one = { 0 }, two = { 0 };
        struct err err = { 0 };
        char again[STORE_CURSOR_SIZE];

        if (store_cursor_parse(text, kinds[i], &one, &err) < 0) {
            must(err.id == ERR_INVALID && err.msg[0]);
            continue;
        }
        must(kinds[i] ? id_valid(one.id, kinds[i]) : store_owner_valid(one.id));
        store_cursor_format(&one, again);
        must(str_eq(again, text));
        must(store_cursor_parse(again, kinds[i], &two, &err) == 0);
        must(one.created_ms == two.created_ms && str_eq(one.id, two.id));
    }
    return 0;
}
