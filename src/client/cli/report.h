/* report.h - what cove itself has to say, to people and to programs. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"

/* Prints the error and returns the exit status that belongs to it. People get message, code, cause
 * and fix on standard error; with `json` one object {"error": ...} goes to standard output. */
int report_error(const struct err *err, bool json);
/* {code, message, cause, fix} under the key "error" of an object that is open. */
void report_error_json(struct jsonw *w, const struct err *err);

/* A remark of one line on standard error: "cove: ...". */
void report_note(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Writes all of it to standard output; 0, or 125 with a message when that fails (a full disk). A
 * reader that went away is no failure. */
int report_text(const struct buf *text);
