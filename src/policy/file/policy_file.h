/* policy_file.h - reads policies and operator limits from YAML or JSON files into struct policy and
 * struct operator_limits.
 *
 * All problems of a file are reported together; a file with any problem has no effect. */
#pragma once

#include "policy/policy.h"
#include "core/doc/problems.h"

/* `file` is the name for messages; `dir` is the absolute directory for relative paths. Opens no
 * file. The caller frees the result with policy_done. */
int policy_file_read(const char *data, size_t len, const char *file, const char *dir, struct policy *ret,
                     struct problems *pr);

/* Adds the demands of this file to those in *ret: the smaller maximum applies, and prohibitions add
 * up. */
int operator_limits_file_read(const char *data, size_t len, const char *file, struct operator_limits *ret,
                              struct problems *pr);

/* Reads from the disk. `name` is a built-in policy or a file. */
int policy_file_load(const char *name, struct policy *ret, struct problems *pr);
int operator_limits_file_load(struct operator_limits *ret,
                              /* reads the operator's file and the file named by the variable, if
                               * they exist */
                              struct problems *pr);
/* Reads a whole file of at most DOC_BYTES_MAX. The caller frees the result. */
int policy_file_load_bytes(const char *path, char **ret, size_t *len, struct problems *pr);
