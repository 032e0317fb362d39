/* args.h - parses a command line with the table of options. Pure: opens no files, prints nothing
 * and never exits. */
#pragma once

#include "client/cli/table.h"

#include "core/base/err.h"

struct arg {
    const struct cli_option *opt;
    const char *value; /* NULL: a flag without a value; points into argv */
    bool letter;       /* given as its one-letter form */
};

struct args {
    struct arg *items; /* in the order given */
    size_t n;
    char **rest; /* arguments that are not flags, NULL-terminated; point into argv */
    int nrest;
    bool after_dashes; /* "--" preceded the rest */
    int before_dashes; /* how many of the rest precede "--"; without it, all of them */
};

/* argv[0] is the verb. For a verb that runs a program, the first word of the program ends the
 * flags: all later arguments belong to the program. For `run` and `execute` that is the first
 * argument, for `shell` and `exec`, which name a sandbox first, the second. Other verbs accept
 * flags between the arguments. "--" always ends the flags. */
int args_parse(const struct cli_verb *v, int argc, char **argv, struct args *ret, struct err *err);
void args_done(struct args *a);

const struct arg *args_find(const struct args *a, int id); /* the last one given, or NULL */
/* Whether a flag without an argument occurs before "--", also in a command line that does not
 * parse: --json also decides the form of a usage error. */
bool args_has_flag(int argc, char **argv, const char *flag);
