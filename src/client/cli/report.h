/* report.h - prints errors, notes and text of cove itself, for people or as JSON. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"

/* Prints the error and returns its exit status: as err_print() on standard error, or with `json`
 * one object {"error": ...} on standard output. */
int report_error(const struct err *err, bool json);
/* Adds {code, message}, and cause and fix of a SPECIFIC row, under the key "error" to an open
 * object. */
void report_error_json(struct jsonw *w, const struct err *err);

/* Prints a note of one line on standard error: "cove: ...". */
void report_note(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Writes the whole text to standard output. Returns 0, or 125 after printing an error (a full
 * disk). A closed reader is not an error. */
/* Indentation of JSON on standard output: for a reader on a terminal, none in a pipe. */
int report_json_indent(void);
int report_text(const struct buf *text);
