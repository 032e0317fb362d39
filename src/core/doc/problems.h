/* problems.h - what is wrong with a file: as many errors as there are, each with its place, code, cause and fix. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"

#define PROBLEMS_MAX 50

struct problem {
    enum err_id id;
    uint32_t line, col; /* from 1; 0 when it has no place */
    char msg[240];
    char fix[200]; /* "" is the fix of the table */
};

struct problems {
    const char *file;
    struct problem list[PROBLEMS_MAX];
    size_t n;
    size_t overflow_count; /* that did not fit */
};

void problems_add(struct problems *p, enum err_id id, uint32_t line, uint32_t col, const char *fix, const char *fmt,
                  ...) PRINTF_LIKE(6, 7);
/* In the order of the file. */
void problems_print(struct problems *p, struct buf *out);
void problems_json(struct problems *p, struct jsonw *w); /* "error": the first one, "errors": all, in an open object */
int problems_exit(const struct problems *p);             /* the exit status that fits them all; 0 when there is none */
