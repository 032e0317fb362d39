/* The code of a script, whose description is read from it.
 *
 * Checked in addition to memory errors: a description is one line of UTF-8 within its bound,
 * without control characters. */
#include "service/script_cache.h"

#include "core/base/str.h"
#include "core/base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    auto_free char *code = str_dup_n((const char *)data, len);
    auto_free char *description = script_description(code);
    size_t n = description ? strlen(description) : 0;

    must(!description || (n > 0 && n <= STORE_SCRIPT_DESCRIPTION_MAX && text_is_utf8(description, n)));
    for (size_t i = 0; i < n; i++)
        must((unsigned char)description[i] >= 0x20 && description[i] != 0x7f);
    return 0;
}
