/* queue.h - the way of a call through the store, for calls.c. */
#pragma once

#include "store/backend.h"

typedef void store_any_fn(void); /* a `done` of whatever type; calls.c knows which */

struct store_call *store_call_new(enum store_op op, const struct row_table *t, store_any_fn *done, void *arg);
void store_call_free(struct store_call *c);
/* Marks a call as failed before it was tried; it is answered in its turn all the same. */
void store_refuse(struct store_call *c, const struct err *err);
/* Takes the call and returns it, for a caller that may want to forget it. */
struct store_call *store_submit(struct store *st, struct store_call *c);
/* Calls `done`. */
void store_answer(struct store_call *c);
