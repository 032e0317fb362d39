/* policy_file.h - policies and floors from files: YAML or JSON in, struct policy and struct operator_limits out.
 *
 * Everything that is wrong with a file is reported in one go; a file with any problem yields nothing. */
#pragma once

#include "policy/policy.h"
#include "core/doc/problems.h"

/* `file` is how messages call it; `dir` is the absolute directory that relative paths in it start from. Pure: nothing
 * is opened. The caller frees with policy_done. */
int policy_file_read(const char *data, size_t len, const char *file, const char *dir, struct policy *ret,
                     struct problems *pr);

/* Reads into *ret what this file demands on top of what is there: maxima become the smaller, prohibitions add up. */
int operator_limits_file_read(const char *data, size_t len, const char *file, struct operator_limits *ret,
                              struct problems *pr);

/* The same from the disk. `name` is a built-in policy or a file. */
int policy_file_load(const char *name, struct policy *ret, struct problems *pr);
int operator_limits_file_load(struct operator_limits *ret,
                              struct problems *pr); /* the operator's and the variable's, where they are */
/* Whole, at most DOC_BYTES_MAX. The caller frees. */
int policy_file_load_bytes(const char *path, char **ret, size_t *len, struct problems *pr);
