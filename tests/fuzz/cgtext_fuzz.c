/* Files of cgroupfs. A reported value must stand in the text as digits; anything else is
 * unknown. */
#include "core/base/mem.h"
#include "host/isolate/cgtext.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = { "oom_kill", "usage_usec", "max", "throttled_time", "" };
    auto_free char *text = mem_alloc(size + 1);

    if (size)
        memcpy(text, data, size);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        uint64_t v = cgtext_value(text, keys[i]);
        char digits[32];

        snprintf(digits, sizeof(digits), "%" PRIu64, v);
        if (v != CGTEXT_UNKNOWN && !strstr(text, digits))
            abort();
        if (cgtext_has_word(text, keys[i]) && !strstr(text, keys[i]))
            abort();
    }
    (void)cgtext_number(text);
    return 0;
}
