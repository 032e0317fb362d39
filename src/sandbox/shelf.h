/* shelf.h - templates that were asked for lately, so that whoever asks again need not wait for the store.
 *
 * A template from the shelf is at most a second old, and older than no change that was made through this process: it
 * tells the shelf of each (shelf_drop). The caller passes the time in. */
#pragma once

#include "sandbox/templates.h"

struct shelf;

struct shelf *shelf_new(struct store *st);
void shelf_free(struct shelf *s); /* who still waits is told by the store */
DEFINE_AUTO(shelf, shelf_free);

/* As template_get; done may be called before it returns. */
void shelf_get(struct shelf *s, const char *name, uint64_t now_ns, store_template_fn *done, void *arg);
void shelf_drop(struct shelf *s, const char *name); /* it was changed or removed */
