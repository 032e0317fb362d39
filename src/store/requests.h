/* requests.h - the way of a call through the store, for requests.c. */
#pragma once

#include "store/backend.h"

typedef void store_untyped_fn(void); /* a `done` of whatever type; requests.c knows which */

struct store_request *store_request_new(enum store_op op, const struct row_table *t, store_untyped_fn *done, void *arg);
void store_request_free(struct store_request *c);
#define ANY(fn) ((store_untyped_fn *)(fn))

/* Calls of the usual kinds, with everything copied and checked. owner NULL: of a table that has none. */
struct store_request *store_get_request(enum store_op op, const struct row_table *t, const char *owner, const char *id,
                                        store_untyped_fn *done, void *arg);
struct store_request *store_row_request(enum store_op op, const struct row_table *t, const void *row,
                                        store_untyped_fn *done, void *arg);
struct store_request *store_update_request(const struct row_table *t, const char *owner, const void *row, uint32_t set,
                                           const struct store_condition *when, store_untyped_fn *done, void *arg);
/* Is submitted at once. kind: the two letters of its ids, NULL for a list by name. */
struct store_request *store_list_request(struct store *st, const struct row_table *t, const struct store_list *q,
                                         const char *kind, store_untyped_fn *done, void *arg);

/* Marks a call as failed before it was tried; it is answered in its turn all the same. */
void store_request_reject(struct store_request *c, const struct err *err);
/* Takes the call and returns it, for a caller that may want to forget it. */
struct store_request *store_request_submit(struct store *st, struct store_request *c);
void store_usage_request_answer(struct store_request *c, const struct err *err);
/* Calls `done`. */
void store_request_answer(struct store_request *c);
