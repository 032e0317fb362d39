/* syscalls.h - which system calls a sandbox may make: one readable table, one BPF program per profile made from it.
 *
 * The table (syscalls.def) is an allow list with a column per profile. What it does not name answers ENOSYS, so that
 * programs fall back as they would on an older kernel; what it names as refused answers EPERM, so that a person sees a
 * policy and not a missing feature. The compiler makes a binary tree over the numbers, because the kernel runs the
 * filter once for every number when it is installed and a list costs ten times as much there. */
#pragma once

#include "base/base.h"
#include "base/err.h"

#include <linux/filter.h>

enum profile { PROFILE_BASE, PROFILE_PYTHON, PROFILE_NODE, PROFILE_SHELL, PROFILE_COUNT };

enum syscall_rule { SC_ALLOW, SC_EPERM, SC_ENOSYS, SC_ARGS /* allowed when its arguments pass */ };

#define FILTER_MAX 2048

const char *profile_name(enum profile p);
bool profile_parse(const char *name, enum profile *ret);

/* What the table says of a number; numbers it does not know are SC_ENOSYS. */
enum syscall_rule syscall_rule(enum profile p, unsigned nr);
const char *syscall_name(unsigned nr); /* NULL when the table does not know it */
/* The verdict for a whole call, as a slow reference evaluator: 0 allowed, else the errno; -1 is "kill". */
int syscall_verdict(enum profile p, uint32_t arch, unsigned nr, const uint64_t args[6]);
unsigned syscall_allowed_count(enum profile p); /* SC_ALLOW and SC_ARGS */

/* Writes the program for x86-64: a foreign architecture (int 0x80 included) is killed, x32 numbers answer ENOSYS. */
int filter_build(enum profile p, struct sock_filter prog[FILTER_MAX], size_t *ret_len, struct err *err);
