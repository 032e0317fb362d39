/* kept.h - the doors of sandboxes that outlive the command that made them: one socket each, named by the id. */
#pragma once

#include "base/err.h"
#include "ev/ev.h"
#include "wire/door.h"

struct kept;

/* Owns the socket, and decides whether its process may come in. */
typedef void visitor_fn(void *arg, int sock, const struct ucred *who);

int kept_new(struct ev *ev, const char *state_dir, visitor_fn *on_visitor, void *arg, struct kept **ret,
             struct err *err);
void kept_free(struct kept *k); /* removes all doors */
int kept_add(struct kept *k, const char *id, struct err *err);
void kept_remove(struct kept *k, const char *id);
