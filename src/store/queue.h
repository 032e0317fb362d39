/* queue.h - the way of a call through the store, for calls.c. */
#pragma once

#include "store/backend.h"

typedef void store_any_fn(void); /* a `done` of whatever type; calls.c knows which */

struct store_call *store_call_new(enum store_op op, const struct row_table *t, store_any_fn *done, void *arg);
void store_call_free(struct store_call *c);
#define ANY(fn) ((store_any_fn *)(fn))

/* Calls of the usual kinds, with everything copied and checked. owner NULL: of a table that has none. */
struct store_call *store_get_call(enum store_op op, const struct row_table *t, const char *owner, const char *id,
                                  store_any_fn *done, void *arg);
struct store_call *store_row_call(enum store_op op, const struct row_table *t, const void *row, store_any_fn *done,
                                  void *arg);
struct store_call *store_update_call(const struct row_table *t, const char *owner, const void *row, uint32_t set,
                                     const struct store_when *when, store_any_fn *done, void *arg);
/* Is submitted at once. kind: the two letters of its ids, NULL for a list by name. */
struct store_call *store_list_call(struct store *st, const struct row_table *t, const struct store_list *q,
                                   const char *kind, store_any_fn *done, void *arg);

/* Marks a call as failed before it was tried; it is answered in its turn all the same. */
void store_refuse(struct store_call *c, const struct err *err);
/* Takes the call and returns it, for a caller that may want to forget it. */
struct store_call *store_submit(struct store *st, struct store_call *c);
void store_usage_answer(struct store_call *c, const struct err *err);
/* Calls `done`. */
void store_answer(struct store_call *c);
