/* landlock.h - the last wall: which paths the sandbox may use, whatever owner and mode say.
 *
 * The masks are pure, so that every ABI can be tested on any kernel; the rest talks to the running one. */
#pragma once

#include "core/base/err.h"
#include "core/wire/rt.h"

/* Every right that an ABI knows, none for 0. Unknown newer ABIs are used as the newest we know. */
uint64_t landlock_handled(int abi);
/* The rights that a rule of this access gives. Files take fewer: the kernel refuses directory rights on them. */
uint64_t landlock_rights(int abi, enum rt_access access, bool is_dir);

int landlock_abi(void); /* of the running kernel; 0 when it has none */
/* The ruleset as a descriptor, which restricts nobody yet. */
int landlock_build(int abi, const struct rt_rule *rules, size_t n, int *ret, struct err *err);
/* Restricts this process and all it will start. Needs no_new_privs. Others may live under the same ruleset. */
int landlock_restrict(int ruleset, struct err *err);
