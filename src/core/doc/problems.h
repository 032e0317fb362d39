/* problems.h - all errors of a file, each with its position, its code and, if known, a fix. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"

#define PROBLEMS_MAX 50

struct problem {
    enum err_id id;
    uint32_t line, col; /* from 1; 0 if the problem has no position */
    char msg[240];
    char fix[200]; /* "": the fix of errors.def, if its row is SPECIFIC */
};

struct problems {
    const char *file; /* NULL: the problems are in the command line */
    struct problem list[PROBLEMS_MAX];
    size_t n;
    size_t overflow_count; /* number of problems that did not fit into list */
};

void problems_add(struct problems *p, enum err_id id, uint32_t line, uint32_t col, const char *fix, const char *fmt,
                  ...) PRINTF_LIKE(6, 7);
/* In file order, each in the format of err_print.h: "cove: FILE:LINE:COLUMN: MESSAGE [code]". */
void problems_print(struct problems *p, struct buf *out);
/* writes "error" (the first) and "errors" (all) into an open object */
void problems_json(struct problems *p, struct jsonw *w);
/* the exit code for all problems together; 0 if there are none */
int problems_exit(const struct problems *p);
