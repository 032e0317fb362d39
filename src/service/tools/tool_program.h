/* tool_program.h - a tool that runs something in the sandbox of its call: one execution, followed
 * to its end.
 *
 * The execution is an ordinary one: it has a row, kept output and a receipt. It is killed if the
 * call is cancelled, unless it runs in the background. */
#pragma once

#include "service/manager.h"
#include "service/tools/tool_internal.h"

/* Makes the answer of an execution that has ended. Calls tool_call_finish or tool_call_fail. */
typedef void tool_program_ended_fn(struct tool_call *c, const struct store_execution *row);

/* The spec is copied. context: an id, whose context runs spec->code; or NULL. */
void tool_program_start(struct tool_call *c, struct execution_spec *spec, const char *context,
                        tool_program_ended_fn *on_ended);
/* Makes c->answer of the execution, without ending the call. */
void tool_program_make_answer(struct tool_call *c, const struct store_execution *row);
/* The usual answer: the result of the execution. */
void tool_program_answer(struct tool_call *c, const struct store_execution *row);

extern const char tool_program_output_schema[];
