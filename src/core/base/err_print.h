/* err_print.h - how every program of cove prints an error:
 *
 *     cove: program 'pyhton' was not found in /usr/local/bin:/usr/bin:/bin [program_not_found]
 *       cause: The program does not exist in the sandbox.
 *       fix:   cove looks for programs in ...
 *
 * Cause and fix are printed only where they say more than the message: where the row of errors.def
 * is SPECIFIC, or the caller has a fix of its own. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"

/* Adds the error as text, with control characters of its message replaced. */
void err_print(struct buf *out, const struct err *err);

/* Adds the lines "  cause: " and "  fix: ". A `fix` that is neither NULL nor "" replaces the fix of
 * the row. */
void err_print_hints(struct buf *out, enum err_id id, const char *fix);

/* The same as keys "cause" and "fix" in an open object. */
void err_put_hints(struct jsonw *w, enum err_id id, const char *fix);
