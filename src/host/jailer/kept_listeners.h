/* kept_listeners.h - listening sockets of sandboxes that outlive their client: one per sandbox,
 * named by its id. */
#pragma once

#include "core/base/err.h"
#include "core/ev/ev.h"
#include "core/wire/unix_listener.h"

struct kept_listeners;

/* Owns the socket, and decides whether the peer may use it. */
typedef void unix_connection_fn(void *arg, int sock, const struct ucred *peer);

int kept_listeners_new(struct ev *ev, const char *state_dir, unix_connection_fn *on_visitor, void *arg,
                       struct kept_listeners **ret, struct err *err);
void kept_listeners_free(struct kept_listeners *k); /* removes all sockets */
int kept_listeners_add(struct kept_listeners *k, const char *id, struct err *err);
void kept_listeners_remove(struct kept_listeners *k, const char *id);
