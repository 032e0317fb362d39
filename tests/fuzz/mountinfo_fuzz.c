/* The kernel writes mountinfo, but every process that may mount chooses names in it. Every field
 * that is returned must be a non-empty string within its bounds, and the reader must end. */
#include "core/base/mem.h"
#include "host/isolate/mountinfo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = mem_alloc(size + 1);
    struct mountinfo m;
    size_t lines = 0;

    if (size)
        memcpy(text, data, size);
    for (const char *p = text; mountinfo_next(&p, &m); lines++) {
        if (lines > size || p < text || p > text + size)
            abort();
        if (!*m.root || strnlen(m.root, sizeof(m.root)) == sizeof(m.root) || !*m.point ||
            strnlen(m.point, sizeof(m.point)) == sizeof(m.point) || !*m.type || !*m.super)
            abort();
        (void)mountinfo_has_option(m.super, "memory");
    }
    return 0;
}
