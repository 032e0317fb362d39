/* args.h - a command line taken apart by the table of options. Pure: nothing here opens, prints or
 * exits. */
#pragma once

#include "client/cli/table.h"

#include "core/base/err.h"

struct arg {
    const struct cli_option *opt;
    const char *value; /* NULL when the flag has none; points into argv */
};

struct args {
    struct arg *items; /* in the order given */
    size_t n;
    char **rest; /* the words that are no flags, NULL-terminated; they point into argv */
    int nrest;
    bool after_dashes; /* the rest was opened with "--" */
};

/* argv[0] is the verb. Where a program follows, the first word of it ends the flags: what stands
 * behind belongs to the program. That is the first word of `run`, and the second of `enter` and
 * `exec`, which name a sandbox before. With every other verb, flags may stand between the words.
 * "--" ends the flags everywhere. */
int args_parse(const struct cli_verb *v, int argc, char **argv, struct args *ret, struct err *err);
void args_done(struct args *a);

const struct arg *args_find(const struct args *a, int id); /* the last one given, or NULL */
/* Whether a flag without argument stands among the words before "--", also in a line that does not
 * parse: an error has to be printed in the form that was asked for. */
bool args_has_flag(int argc, char **argv, const char *flag);
