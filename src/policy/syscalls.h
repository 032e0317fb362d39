/* syscalls.h - the system calls that a sandbox may make: one readable table, and a BPF program per
 * profile compiled from it.
 *
 * The table (syscalls.def) is an allow list with a column per profile. Calls that are not in the
 * table return ENOSYS, so that programs fall back as on an older kernel. Calls that the table
 * refuses return EPERM, so that users see a policy and not a missing feature. The compiler makes a
 * binary tree over the numbers, because the kernel runs the filter once for every number when it is
 * installed, and a linear list costs ten times as much there. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <linux/filter.h>

enum profile { PROFILE_BASE, PROFILE_PYTHON, PROFILE_NODE, PROFILE_SHELL, PROFILE_COUNT };

enum syscall_rule { SC_ALLOW, SC_EPERM, SC_ENOSYS, SC_ARGS /* allowed if its arguments pass */ };

/* Calls that a policy may allow in addition to its profile; grants.def lists them. */
enum grant {
#define GRANT(id, name, why) GRANT_##id,
#define GRANTED(grant, nr, name, action)
#include "policy/grants.def"
#undef GRANT
#undef GRANTED
    GRANT_COUNT,
};
#define GRANT_BIT(id) (1u << GRANT_##id)
#define GRANTS_ALL ((1u << GRANT_COUNT) - 1)

#define FILTER_MAX 2048
#define FILTER_DENY_WORDS 8 /* 512 numbers: more than the table has */

/* One filter: a profile, additional grants, and denied calls. A call that is both granted and
 * denied is denied. */
struct filter_spec {
    enum profile profile;
    uint32_t grants;                  /* GRANT_BIT */
    uint64_t deny[FILTER_DENY_WORDS]; /* one bit per number; denied calls return EPERM */
};

const char *profile_name(enum profile p);
bool profile_parse(const char *name, enum profile *ret);

const char *grant_name(enum grant g);
const char *grant_why(enum grant g);
bool grant_parse(const char *name, enum grant *ret);

/* The rule of the table for a number; SC_ENOSYS for unknown numbers. */
enum syscall_rule syscall_rule(enum profile p, unsigned nr);
const char *syscall_name(unsigned nr); /* NULL if the number is not in the table */
/* Evaluates a whole call, slowly, as the reference for the filter: 0 allowed, else the errno; -1
 * means "kill". */
int syscall_verdict(enum profile p, uint32_t arch, unsigned nr, const uint64_t args[6]);
unsigned syscall_allowed_count(enum profile p); /* SC_ALLOW and SC_ARGS */
int syscall_number(const char *name);           /* -1 if the name is not in the table */
bool syscall_is_needed(unsigned nr);            /* true: no policy can deny it */
/* Whether a denial of the call is worth an alarm: mounts, namespaces, other processes, the host
 * itself. Calls that are merely unusual, old or known for bugs do not count, because ordinary
 * programs try them too. */
bool syscall_is_attack(unsigned nr);

/* The same for a filter with grants and denied calls. */
int filter_verdict(const struct filter_spec *s, uint32_t arch, unsigned nr, const uint64_t args[6]);
unsigned filter_allowed_count(const struct filter_spec *s);

/* Writes the program for x86-64: a foreign architecture (int 0x80 included) is killed, x32 numbers
 * return ENOSYS.
 *
 * With `notify`, calls that would return EPERM are passed to the filter's listener, which must
 * answer them; the kernel itself returns every other errno. If the listener is gone, these calls
 * return ENOSYS. */
int filter_build(const struct filter_spec *s, bool notify, struct sock_filter prog[FILTER_MAX], size_t *ret_len,
                 struct err *err);
