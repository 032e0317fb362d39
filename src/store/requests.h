/* requests.h - how a call passes through the store, for requests.c. */
#pragma once

#include "store/backend.h"

typedef void store_untyped_fn(void); /* a `done` of any type; requests.c knows which */

struct store_request *store_request_new(enum store_op op, const struct row_table *t, store_untyped_fn *done, void *arg);
void store_request_free(struct store_request *c);
#define ANY(fn) ((store_untyped_fn *)(fn))

/* Common kinds of calls, with all arguments copied and checked. owner NULL: for a table without
 * owners. */
struct store_request *store_get_request(enum store_op op, const struct row_table *t, const char *owner, const char *id,
                                        store_untyped_fn *done, void *arg);
struct store_request *store_row_request(enum store_op op, const struct row_table *t, const void *row,
                                        store_untyped_fn *done, void *arg);
struct store_request *store_update_request(const struct row_table *t, const char *owner, const void *row, uint32_t set,
                                           const struct store_condition *when, store_untyped_fn *done, void *arg);
/* Also submits the call. kind: the two-letter prefix of its ids; NULL for a list by name. */
struct store_request *store_list_request(struct store *st, const struct row_table *t, const struct store_list *q,
                                         const char *kind, store_untyped_fn *done, void *arg);

/* Marks a call as failed before it was tried; it is still answered in order. */
void store_request_reject(struct store_request *c, const struct err *err);
/* Takes ownership of the call, and returns it for a caller that may detach it later. */
struct store_request *store_request_submit(struct store *st, struct store_request *c);
void store_usage_request_answer(struct store_request *c, const struct err *err);
/* Calls `done`. */
void store_request_answer(struct store_request *c);
