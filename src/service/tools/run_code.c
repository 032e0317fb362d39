/* run_code: code in a language kernel of the sandbox, whose variables stay. */
#include "service/tools/tool_program.h"

/* clang-format off */
static const char run_code_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "code": {"type": "string", "minLength": 1, "description": "The code. The value of its last expression is returned."},
        "language": {"enum": ["python", "node", "bash"], "description": "Default: the language of the sandbox."},
        "context": {"type": "string", "description": "Id of a context (cx...) to run in. Default: the default context of the language."},
        "timeout_ms": {"type": "integer", "minimum": 1, "description": "The code is interrupted after this time."}
    },
    "required": ["code"],
    "additionalProperties": false
});
/* clang-format on */

static int run_code_start(struct tool_call *c, struct err *err)
{
    const json_t *a = c->request.arguments;
    struct execution_spec spec = { 0 };
    const char *context = NULL;

    if (json_input_text(a, "", "code", 1, EXECUTION_CODE_MAX, &spec.code, err) < 0 ||
        tool_arguments_language(a, &spec.language, err) < 0 ||
        json_input_text(a, "", "context", 1, 64, &context, err) < 0 ||
        tool_arguments_timeout(c, &spec.timeout_ms, err) < 0)
        return -1;
    if (context && spec.language)
        return err_set(err, ERR_INVALID, "language: a context has a language already; omit it");
    if (context && !id_valid(context, "cx"))
        return err_set(err, ERR_INVALID, "context: must be the id of a context (cx...)");
    tool_program_start(c, &spec, context, tool_program_answer);
    return 0;
}

const struct tool_definition tool_run_code = {
    .tool = { .name = "run_code",
              .title = "Run code",
              .description =
                  "Runs Python, JavaScript (Node.js) or bash code in the sandbox. Variables, imports and functions "
                  "stay "
                  "for later calls, as in a notebook. Returns stdout, stderr, the value of the last expression, "
                  "displayed results, images (for example matplotlib figures) and the exception with its traceback. "
                  "Working directory: /workspace. Long output keeps its beginning and its end. Use bash for shell "
                  "commands and programs; use code_executor for code that needs no sandbox of its own.",
              .input_schema = run_code_input,
              .output_schema = tool_program_output_schema,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_EXECUTES,
              .is_destructive = true,
              .is_open_world = true },
    .start = run_code_start,
};
