/* syscalls.h - which system calls a sandbox may make: one readable table, one BPF program per profile made from it.
 *
 * The table (syscalls.def) is an allow list with a column per profile. What it does not name answers ENOSYS, so that
 * programs fall back as they would on an older kernel; what it names as refused answers EPERM, so that a person sees a
 * policy and not a missing feature. The compiler makes a binary tree over the numbers, because the kernel runs the
 * filter once for every number when it is installed and a list costs ten times as much there. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <linux/filter.h>

enum profile { PROFILE_BASE, PROFILE_PYTHON, PROFILE_NODE, PROFILE_SHELL, PROFILE_COUNT };

enum syscall_rule { SC_ALLOW, SC_EPERM, SC_ENOSYS, SC_ARGS /* allowed when its arguments pass */ };

/* What a policy may open beyond its profile; grants.def says which calls that is. */
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

/* One filter: a profile, what is granted on top of it, and what is denied from it. A call that is both is denied. */
struct filter_spec {
    enum profile profile;
    uint32_t grants;                  /* GRANT_BIT */
    uint64_t deny[FILTER_DENY_WORDS]; /* bit per number; answers EPERM */
};

const char *profile_name(enum profile p);
bool profile_parse(const char *name, enum profile *ret);

const char *grant_name(enum grant g);
const char *grant_why(enum grant g);
bool grant_parse(const char *name, enum grant *ret);

/* What the table says of a number; numbers it does not know are SC_ENOSYS. */
enum syscall_rule syscall_rule(enum profile p, unsigned nr);
const char *syscall_name(unsigned nr); /* NULL when the table does not know it */
/* The verdict for a whole call, as a slow reference evaluator: 0 allowed, else the errno; -1 is "kill". */
int syscall_verdict(enum profile p, uint32_t arch, unsigned nr, const uint64_t args[6]);
unsigned syscall_allowed_count(enum profile p); /* SC_ALLOW and SC_ARGS */
int syscall_number(const char *name);           /* -1 when the table does not know it */
bool syscall_is_needed(unsigned nr);            /* no policy can deny it */
/* Whether a refusal of it is worth an alarm: mounts, namespaces, other processes, the host itself. What is merely
 * unusual, old or a record of bugs is not among them, because ordinary programs try that too. */
bool syscall_is_attack(unsigned nr);

/* The same for a whole filter. */
int filter_verdict(const struct filter_spec *s, uint32_t arch, unsigned nr, const uint64_t args[6]);
unsigned filter_allowed_count(const struct filter_spec *s);

/* Writes the program for x86-64: a foreign architecture (int 0x80 included) is killed, x32 numbers answer ENOSYS.
 *
 * With `notify`, what would answer EPERM is handed to the filter's listener, who must answer in its place; every other
 * errno stays the kernel's own answer. A filter with `notify` whose listener is gone answers ENOSYS there. */
int filter_build(const struct filter_spec *s, bool notify, struct sock_filter prog[FILTER_MAX], size_t *ret_len,
                 struct err *err);
