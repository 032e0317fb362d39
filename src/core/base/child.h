/* child.h - a child process that continues without exec, connected to its parent by one socket. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/types.h>

/* Returns twice, like fork; *ret_pid is 0 in the child. Each side gets its own end of a SEQPACKET
 * pair (close-on-exec), and the other end is closed. The child has the process name `name`, blocks
 * no signal, and ignores SIGPIPE and SIGHUP. It is in a new process group, or with `session` in a
 * new session, before it receives a signal that the parent blocks, because Ctrl-C is meant for the
 * parent only. */
int child_fork(const char *name, bool session, int *ret_sock, pid_t *ret_pid, struct err *err);
