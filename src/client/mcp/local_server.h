/* local_server.h - a private `cove serve` for one process: it listens on a Unix socket only,
 * keeps its state in a temporary directory, and ends with the process that started it. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct local_server;

/* `program` is the path of cove-serve. Returns when the server accepts requests; this blocks. If
 * the user is not root, the server accepts sandboxes with fewer enforced limits. */
int local_server_start(const char *program, struct local_server **ret, struct err *err);
/* Stops the server and removes its directory; NULL is accepted. This blocks. */
void local_server_stop(struct local_server *s);
DEFINE_AUTO(local_server, local_server_stop);
const char *local_server_socket(const struct local_server *s);
