/* kept.h - the doors of sandboxes that outlive the command that made them: one socket each, named by the id. */
#pragma once

#include "base/err.h"
#include "ev/ev.h"

struct kept;

/* on_visitor gets a connected socket of a process of the same user; it owns it. */
int kept_new(struct ev *ev, const char *state_dir, void (*on_visitor)(void *arg, int sock), void *arg,
             struct kept **ret, struct err *err);
void kept_free(struct kept *k); /* removes all doors */
int kept_add(struct kept *k, const char *id, struct err *err);
void kept_remove(struct kept *k, const char *id);
