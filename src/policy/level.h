/* level.h - the isolation levels and their file rules. Data only. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/network.h"

enum level { LEVEL_STANDARD, LEVEL_HIGH, LEVEL_CUSTOM };

const char *level_name(enum level l);
bool level_parse(const char *name, enum level *ret);

/* The permitted operations below a path. The numbers equal those of enum rt_access; a test checks
 * that. */
enum file_access {
    FILE_READ = 1,
    FILE_READ_EXEC = 2,
    FILE_READ_WRITE = 3, /* includes execute: programs are built and run in /workspace */
    FILE_DEVICE = 4,     /* read, write and ioctl of device nodes; creates nothing */
    FILE_LIST = 5,       /* lists directories; opens no file */
};

/* Landlock rules of a level. Rights add up along a path, so a rule on "/" applies to everything
 * below it. */
struct file_rule {
    uint8_t access; /* enum file_access */
    const char *path;
    bool optional; /* a missing path is not an error */
};
const struct file_rule *level_file_rules(enum level l, size_t *count);

/* The default environment of a program: NULL-terminated "NAME=value". */
const char *const *level_environment(enum level l, enum network_mode network);
