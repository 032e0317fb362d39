/* template_cache.h - a cache of recently used templates in front of the store.
 *
 * An entry is at most one second old, and never older than a change made through this process,
 * which reports every change with template_cache_invalidate(). The caller passes the time in. */
#pragma once

#include "service/templates.h"

struct template_cache;

struct template_cache *template_cache_new(struct store *st);
void template_cache_free(struct template_cache *s); /* pending lookups still call their `done` */
DEFINE_AUTO(template_cache, template_cache_free);

/* As template_get; `done` may run before it returns. */
void template_cache_get(struct template_cache *s, const char *name, uint64_t now_ns, store_template_fn *done,
                        void *arg);
void template_cache_invalidate(struct template_cache *s, const char *name); /* it was changed or removed */
