/* stored_output.h - the output of an execution in the files that the manager writes, and an
 * execution as JSON together with its output. */
#pragma once

#include "core/base/buf.h"
#include "core/base/jsonw.h"
#include "core/base/err.h"
#include "service/manager.h"
#include "service/result.h"

/* Opens a file of output: returns 1 with a descriptor in *ret and its size; 0 if the file does not
 * exist, because nothing was written or retention removed it; -1 if it exists and cannot be opened,
 * with ERR_DESCRIPTORS or ERR_SYS. Without a descriptor the size is 0. */
int stored_output_open(struct manager *m, const char *execution, int channel, int *ret, uint64_t *ret_size,
                       struct err *err);

/* Reads the event of a context at the offset, a line without its newline, and its type. False: no
 * complete line there. */
bool stored_output_read_event(int fd, uint64_t offset, struct buf *ret, char ret_type[16]);

const char *execution_state_name(const struct store_execution *row); /* starting, running or ended */

enum execution_output {
    EXECUTION_OUTPUT_NONE,
    EXECUTION_OUTPUT_STREAMED, /* the client has the output: only the value and the exception */
    EXECUTION_OUTPUT_EMBEDDED,
};
struct execution_view { /* the parts of an execution that a client gets */
    enum execution_output output;
    enum receipt_detail receipt;
};
/* Writes the execution as a JSON object. */
void stored_output_write_execution(struct manager *m, const struct store_execution *row, struct execution_view view,
                                   struct jsonw *w);

/* Reads the displayed results, the value and the exception of an execution in a context into *ret.
 * False: some did not fit. */
bool stored_output_read_results(struct manager *m, const struct store_execution *row, bool keep,
                                struct result_output *ret);
/* The same as stored_output_write_execution, with output that the caller has read; NULL: none. */
void stored_output_write_result(const struct store_execution *row, const struct result_output *output, bool truncated,
                                struct execution_view view, struct jsonw *w);
