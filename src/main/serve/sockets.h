/* sockets.h - the sockets that clients of the server connect to, opened by the supervisor.
 *
 * The supervisor keeps them open while coved restarts: clients that connect meanwhile wait in the
 * backlog of the socket instead of being refused. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/types.h>

int sockets_check_address(const char *address, struct err *err); /* only checks the syntax */
/* address: "127.0.0.1:8700" or "[::1]:8700". Fails with ADDRESS_USED if another process listens
 * there. */
int sockets_listen_tcp(const char *address, int *ret_fd, struct err *err);
/* Replaces the socket of a dead server. */
int sockets_listen_unix(const char *path, mode_t mode, int *ret_fd, struct err *err);
/* "127.0.0.1:8700", the address to which the socket is bound, with the real port if 0 was
 * requested; the caller frees. */
char *sockets_local_address(int fd) MUST_USE;
