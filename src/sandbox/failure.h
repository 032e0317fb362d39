/* failure.h - what an execution leaves that may explain its failure, collected while it runs for
 * its hint (hint.h): the end of standard error, the beginning of its code, its exception.
 *
 * All of it comes from the program and is bounded here. */
#pragma once

#include "core/base/buf.h"
#include "sandbox/hint.h"

#define FAILURE_CODE_MAX 4096u
#define FAILURE_TEXT_MAX (16 * KIB) /* of each text of an exception */

/* In place; zero is empty. */
struct failure {
    struct buf output;    /* the end of standard error: at most 2 * HINT_OUTPUT_MAX bytes */
    char *code;           /* NULL: unknown */
    const char *language; /* static; NULL: a command */
    char *exception_name, *exception_value, *traceback; /* NULL: no exception */
};

void failure_set_code(struct failure *f, const char *language, const char *code);
/* The command line of a program; `python3 -c CODE` has the code of that language. */
void failure_set_argv(struct failure *f, const char *const *argv);
void failure_add_output(struct failure *f, const void *data, size_t len);
void failure_set_exception(struct failure *f, const char *name, const char *value, const char *traceback);
/* Whether a hint would need the installed modules. */
bool failure_needs_modules(const struct failure *f);
/* Points the facts to the texts. */
void failure_fill_facts(const struct failure *f, struct hint_facts *facts);
void failure_done(struct failure *f);
