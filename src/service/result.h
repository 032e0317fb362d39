/* result.h - the result of an execution as JSON, in one shape for every way to run something: a
 * request without a sandbox, an execution of a sandbox, an execution of a context.
 *
 * Streams carry the same object at their end, without the output and the displayed results that
 * they have sent already. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"
#include "policy/outcome.h"
#include "sandbox/receipt.h"
#include "store/store.h"

/* The output of a program, and of its code. */
struct result_output {
    struct buf text[2];   /* stdout, stderr */
    struct buf results;   /* list items: displays, and the value of the last expression */
    struct buf value;     /* that value as text, a JSON string; empty: none */
    struct buf exception; /* a JSON object; empty: none */
};

/* Adds an event as kernel_event_json() writes it. Exceptions and the value are always kept; list
 * items only with `keep`. */
void result_output_add_event(struct result_output *o, const char *type, const char *json, size_t len, bool keep);
uint64_t result_output_bytes(const struct result_output *o);
void result_output_done(struct result_output *o);

struct result {
    const char *id;
    bool has_ended;
    const char *ended_by;               /* has_ended: a name of enum ended_by; NULL: it was not started */
    int exit_code;                      /* -1: none */
    int signal;                         /* 0: none */
    const struct result_output *output; /* NULL: the result is written without its output */
    bool was_streamed;                  /* the client has stdout, stderr and results */
    bool truncated;                     /* some output is missing */
    uint64_t dropped_bytes;             /* beyond the limit of the output */
    const char *hint;                   /* advice for the next step; NULL: none */
    uint64_t started_ms, ended_ms;      /* 0: not yet */
    const char *error_json;             /* why it could not run, or was lost; NULL: none */
};

/* Writes the members from id to endedAt and error; the caller begins and ends the object. */
void result_write(const struct result *r, struct jsonw *w);
enum receipt_detail { RECEIPT_SUMMARY, RECEIPT_NONE, RECEIPT_FULL };
extern const char *const receipt_detail_names[]; /* ends with NULL */
/* Write the member "receipt", or nothing. */
void result_write_receipt(const struct receipt *r, enum receipt_detail detail, struct jsonw *w);
void result_write_stored_receipt(const char *json, enum receipt_detail detail, struct jsonw *w);
/* {"code", "message"}, also as rows store it; the caller frees it. */
char *result_error_json(const struct err *why);
/* The outcome of an execution that has ended. */
enum outcome result_outcome(const char *ended_by, int exit_code, bool failed);
/* Sets the outcome of a row whose other columns of the end are set. */
void result_set_row_outcome(struct store_execution *row);
