/* level.h - the isolation levels and the file rules that belong to them. Data only. */
#pragma once

#include "base/base.h"
#include "base/err.h"

enum level { LEVEL_STANDARD, LEVEL_HIGH, LEVEL_CUSTOM };

const char *level_name(enum level l);
bool level_parse(const char *name, enum level *ret);

/* Landlock rules of a level: what may be done below each path inside the sandbox. Same numbers as enum rt_access. */
struct file_rule {
    uint8_t access; /* 1 read, 2 read and execute, 3 read, write and execute, 4 device */
    const char *path;
    bool optional; /* no error when the path does not exist */
};
const struct file_rule *level_file_rules(enum level l, size_t *count);

/* The environment a program starts with when nobody said otherwise: NULL-terminated "NAME=value". */
const char *const *level_environment(enum level l);
