/* child.h - a process of ours that goes on without exec, joined to its parent by one socket. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/types.h>

/* Returns twice, as fork does, and *ret_pid is 0 in the child. Each side gets its own end of a SEQPACKET pair, close on
 * exec; the other's is closed. The child bears the name, blocks no signal, and ignores SIGPIPE and SIGHUP. It has a
 * process group of its own, or with `session` a session, before it takes a signal that the parent blocks: Ctrl-C is
 * meant for the parent. */
int child_fork(const char *name, bool session, int *ret_sock, pid_t *ret_pid, struct err *err);
