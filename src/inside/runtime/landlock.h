/* landlock.h - the last wall: which paths the sandbox may use, independent of owner and mode.
 *
 * The mask functions are pure, so that every ABI can be tested on any kernel; the others call the
 * running kernel. */
#pragma once

#include "core/base/err.h"
#include "core/wire/rt.h"

/* All rights of an ABI, none for 0. Newer ABIs are treated as the newest known one. */
uint64_t landlock_handled(int abi);
/* The rights that a rule of this access grants. A file gets fewer: the kernel refuses directory
 * rights on files. */
uint64_t landlock_rights(int abi, enum rt_access access, bool is_dir);

int landlock_abi(void); /* ABI of the running kernel; 0: no Landlock */
/* Makes a ruleset as a descriptor. It restricts no process yet. */
int landlock_build(int abi, const struct rt_rule *rules, size_t n, int *ret, struct err *err);
/* Restricts this process and all its future children. Requires no_new_privs. Other processes may
 * use the same ruleset. */
int landlock_restrict(int ruleset, struct err *err);
