/* run_sandbox_answer.h - an execution as the answer of run_sandbox: its state, and its output from
 * an offset on. */
#pragma once

#include "service/manager.h"
#include "service/tools/script_runs.h"
#include "service/tools/tool_internal.h"

#define RUN_SANDBOX_STATES 6u
#define RUN_SANDBOX_COMPLETED 2u                                     /* its index */
extern const char *const run_sandbox_states[RUN_SANDBOX_STATES + 1]; /* pending, running, ...; ends with NULL */
/* The index in run_sandbox_states. */
unsigned run_sandbox_state(const struct store_execution *row);

struct run_sandbox_window { /* the part of the output that is asked for */
    uint64_t stdout_offset, stderr_offset;
    bool has_stderr_offset; /* otherwise the end of standard error, which holds the reason of a failure */
};

/* Makes the answer. script: NULL if it is unknown whether the code is kept. */
void run_sandbox_answer(struct tool_call *c, const struct store_execution *row, const struct run_sandbox_window *window,
                        const struct script_run_state *script);
/* A list of executions, of which those in `states` (bits) are shown. */
void run_sandbox_answer_list(struct tool_call *c, const struct store_execution *rows, size_t n, unsigned states,
                             uint64_t limit, bool has_more_rows);

extern const char run_sandbox_output_schema[];
