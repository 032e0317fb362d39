/* level.h - the isolation levels and the file rules that belong to them. Data only. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

enum level { LEVEL_STANDARD, LEVEL_HIGH, LEVEL_CUSTOM };

const char *level_name(enum level l);
bool level_parse(const char *name, enum level *ret);

/* What may be done below a path. Same numbers as enum rt_access; tests hold the two together. */
enum file_access {
    FILE_READ = 1,
    FILE_READ_EXEC = 2,
    FILE_READ_WRITE = 3, /* and execute: programs are built and run in /workspace */
    FILE_DEVICE = 4,     /* read, write and ioctl of device nodes; nothing can be made there */
    FILE_LIST = 5,       /* list directories; opens no file */
};

/* Landlock rules of a level. Rights add up along a path, so a rule on "/" reaches everything below it. */
struct file_rule {
    uint8_t access; /* enum file_access */
    const char *path;
    bool optional; /* no error when the path does not exist */
};
const struct file_rule *level_file_rules(enum level l, size_t *count);

/* The environment a program starts with when nobody said otherwise: NULL-terminated "NAME=value". */
const char *const *level_environment(enum level l);
