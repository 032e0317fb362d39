/* mem.h - allocation that never returns NULL.
 *
 * Running out of memory aborts: every process of cove can be restarted, and none may continue in an
 * undefined state. The caller therefore bounds sizes that come from outside. */
#pragma once

#include "core/base/base.h"

void *mem_alloc(size_t size);                         /* zeroed */
void *mem_resize(void *p, size_t count, size_t size); /* like reallocarray */
void *mem_copy(const void *p, size_t size);
#define mem_new(type) ((type *)mem_alloc(sizeof(type)))
#define mem_new_array(type, n) ((type *)mem_resize(NULL, (n), sizeof(type)))
