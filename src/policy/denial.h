/* denial.h - a refused system call in words: what was asked, which rule refused it, what can be done. */
#pragma once

#include "policy/syscalls.h"

/* The arguments of a call that say what was asked, as bits: plain numbers such as a request or a family, never
 * pointers. Two refusals of a call that agree in them are one line of a receipt. 0 for a number nobody knows. */
uint8_t denial_significant_args(unsigned nr);

struct denial {
    char name[32];  /* "socket", or "call 999" */
    char call[96];  /* "socket(2, 3, 1)"; "..." stands for arguments that are not told */
    char rule[240]; /* "not allowed (profile python): mounts and roots are the walls themselves" */
    char fix[160];
};

/* args holds at least those that denial_significant_args() names. */
void denial_describe(const struct filter_spec *s, unsigned nr, const uint64_t args[6], struct denial *ret);
