/* sockets.h - the sockets that clients of the server connect to, opened by the supervisor.
 *
 * It holds them while coved is restarted: clients that come meanwhile wait in the kernel's queue instead of being
 * refused. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/types.h>

int sockets_check_address(const char *address, struct err *err); /* whether it is one at all */
/* "127.0.0.1:8700", "[::1]:8700". ADDRESS_USED when somebody has it. */
int sockets_listen_tcp(const char *address, int *ret_fd, struct err *err);
/* A dead server's is replaced. */
int sockets_listen_unix(const char *path, mode_t mode, int *ret_fd, struct err *err);
/* "127.0.0.1:8700" as the socket has it; port 0 became a real one. */
char *sockets_local_address(int fd) MUST_USE;
