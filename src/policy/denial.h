/* denial.h - describes a denied system call: the call, the rule that denied it, and how to allow
 * it. */
#pragma once

#include "policy/syscalls.h"

/* The arguments that identify the operation of a call, as bits: plain numbers such as a request or
 * an address family, never pointers. Denials of a call that agree in these arguments are one entry
 * of a receipt. 0 for an unknown number. */
uint8_t denial_significant_args(unsigned nr);

struct denial {
    char name[32];  /* "socket", or "call 999" */
    char call[96];  /* "socket(2, 3, 1)"; "..." stands for arguments that are not shown */
    char rule[240]; /* "not allowed (profile python): mounts and roots are the walls themselves" */
    char fix[160];
};

struct denial_count {
    struct denial denial;
    uint64_t count;
};

/* `args` must hold at least the arguments that denial_significant_args() names. */
void denial_describe(const struct filter_spec *s, unsigned nr, const uint64_t args[6], struct denial *ret);
