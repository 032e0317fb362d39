/* err.h - how a function reports that it failed.
 *
 * A function that can fail returns 0 or -1 and takes `struct err *err` last. The struct lives on
 * the caller's stack and owns no memory. `id` names a row of errors.def, which holds the public
 * code, the cause and the fix; `msg` describes this occurrence. The function that handles an error
 * prints or logs it; functions that propagate it do not. */
#pragma once

#include "core/base/base.h"

/* The classes of errors that a caller may branch on. */
enum err_kind {
    ERR_KIND_NONE,
    ERR_KIND_INVALID, /* the request is wrong; a retry does not help */
    ERR_KIND_DENIED,  /* valid, but not permitted */
    ERR_KIND_MISSING, /* the named object does not exist */
    ERR_KIND_EXISTS,  /* the object already exists */
    ERR_KIND_BUSY,    /* try again later */
    ERR_KIND_LIMIT,   /* a limit is reached */
    ERR_KIND_TIMEOUT, /* a time limit expired */
    ERR_KIND_SYS,     /* the system refused an operation that should work */
    ERR_KIND_LOST,    /* the peer is gone */
    ERR_KIND_BUG,     /* a defect of cove */
};

enum err_id {
    ERR_NONE,
#define ERR(id, code, kind, http, exit, hints, cause, fix) ERR_##id,
#include "core/base/errors.def"
#undef ERR
    ERR_COUNT,
};

enum err_hints {
    ERR_HINTS_GENERIC,  /* cause and fix are only in the documentation */
    ERR_HINTS_SPECIFIC, /* cause and fix are printed with the error */
};

struct err_info {
    const char *code; /* snake_case, public, never reused */
    enum err_kind kind;
    int http;
    int exit;
    enum err_hints hints;
    const char *cause; /* for the documentation, never empty; with an error, print err_cause() */
    const char *fix;
};

/* The limit that refused a request. It is part of the error, so that the figures always belong to
 * the refused tenant. */
struct err_limit {
    const char *name; /* as in JSON, static; NULL: the error is not about a limit with figures */
    uint64_t used, requested, max;
    uint64_t retry_ms; /* until the limit is free again without any action; 0: not without action */
};

struct err {
    enum err_id id;
    int sys; /* errno, or 0 */
    char msg[240];
    struct err_limit limit; /* err_set() and err_sys() clear it, so set it after them; err_wrap() keeps it */
};

/* Adds the figures of the limit to an error; a NULL err is accepted. Returns -1. */
int err_set_limit(struct err *err, const char *name, uint64_t used, uint64_t max);

/* All three return -1, so that a caller can write `return err_set(...)`. A NULL err is accepted. */
int err_set(struct err *err, enum err_id id, const char *fmt, ...) PRINTF_LIKE(3, 4);
int err_sys(struct err *err, enum err_id id, const char *fmt, ...) PRINTF_LIKE(3, 4); /* appends strerror(errno) */
int err_wrap(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);                /* "context: message" */
#ifdef __clang_analyzer__
/* The analyzer reads one file at a time, so it would follow a path on which err_set returns 0. */
#define err_set(...)                \
    ({                              \
        (void)err_set(__VA_ARGS__); \
        -1;                         \
    })
#define err_sys(...)                \
    ({                              \
        (void)err_sys(__VA_ARGS__); \
        -1;                         \
    })
#define err_wrap(...)                \
    ({                               \
        (void)err_wrap(__VA_ARGS__); \
        -1;                          \
    })
#endif

const struct err_info *err_info(enum err_id id); /* never NULL; an unknown id gives internal_error */
/* The text to print with an error: NULL if the row is GENERIC. err_print.h prints whole errors. */
const char *err_cause(enum err_id id);
const char *err_fix(enum err_id id);
enum err_kind err_kind(const struct err *err);
enum err_id err_by_code(const char *code); /* ERR_NONE if no row has this code */
