#include "core/base/mem.h"

#include <stdio.h>

static NORETURN void out_of_memory(size_t size)
{
    fprintf(stderr, "cove: out of memory (%zu bytes)\n", size);
    abort();
}

void *mem_alloc(size_t size)
{
    void *p = calloc(1, size ? size : 1);

    if (!p)
        out_of_memory(size);
    return p;
}

void *mem_resize(void *p, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes))
        out_of_memory(SIZE_MAX);
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q)
        out_of_memory(bytes);
    return q;
}

void *mem_copy(const void *p, size_t size)
{
    void *q = mem_alloc(size);

    if (size)
        memcpy(q, p, size);
    return q;
}
