/* template_cache.h - templates that were asked for lately, so that whoever asks again need not wait for the store.
 *
 * A template from the shelf is at most a second old, and older than no change that was made through this process: it
 * tells the shelf of each (template_cache_invalidate). The caller passes the time in. */
#pragma once

#include "service/templates.h"

struct template_cache;

struct template_cache *template_cache_new(struct store *st);
void template_cache_free(struct template_cache *s); /* who still waits is told by the store */
DEFINE_AUTO(template_cache, template_cache_free);

/* As template_get; done may be called before it returns. */
void template_cache_get(struct template_cache *s, const char *name, uint64_t now_ns, store_template_fn *done,
                        void *arg);
void template_cache_invalidate(struct template_cache *s, const char *name); /* it was changed or removed */
