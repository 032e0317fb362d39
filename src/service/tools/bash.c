/* bash, also as shell: one command line. Each call is a process of its own, so `cd` and variables
 * do not stay. An image without bash runs the line with sh. */
#include "service/tools/tool_program.h"

#define BASH_COMMAND_MAX (32 * KIB)

/* clang-format off */
static const char bash_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "maxLength": 32768, "description": "The command line."},
        "description": {"type": "string", "maxLength": 1000, "description": "The purpose of the command, for a human reader; it has no effect."},
        "timeout_ms": {"type": "integer", "minimum": 1, "description": "The command and its children are killed after this time."},
        "background": {"type": "boolean", "description": "Return at once, while the command runs; run_sandbox with mode status or cancel and the id of the result continues. Default: false."}
    },
    "required": ["command"],
    "additionalProperties": false
});
/* clang-format on */

static int bash_start(struct tool_call *c, struct err *err)
{
    const json_t *a = c->request.arguments;
    const char *argv[] = {
        "/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash -c \"$1\"; else exec sh -c \"$1\"; fi",
        "sh",      NULL, NULL
    };
    struct execution_spec spec = { .argv = argv };
    const char *description = NULL;

    if (json_input_text(a, "", "command", 1, BASH_COMMAND_MAX, &argv[4], err) < 0 ||
        json_input_text(a, "", "description", 0, 4000, &description, err) < 0 ||
        json_input_bool(a, "", "background", &spec.background, err) < 0 ||
        tool_arguments_timeout(c, &spec.timeout_ms, err) < 0)
        return -1;
    tool_program_start(c, &spec, NULL, tool_program_answer);
    return 0;
}

#define BASH_TOOL(NAME)                                                                                               \
    {                                                                                                                 \
        .tool = { .name = NAME,                                                                                       \
                  .title = "Run a shell command",                                                                     \
                  .description =                                                                                      \
                      "Runs a command line with bash in the sandbox, in /workspace. Returns the exit code, stdout "   \
                      "and "                                                                                          \
                      "stderr. Every call is a new shell: join commands with && if they depend on each other, and "   \
                      "name directories instead of changing into them. Long output keeps its beginning and its end. " \
                      "Use read_file, write_file and edit_file for files; use run_code for code that keeps its "      \
                      "variables; use exec to pass arguments without quoting.",                                       \
                  .input_schema = bash_input,                                                                         \
                  .output_schema = tool_program_output_schema,                                                        \
                  .place = TOOL_IN_SANDBOX,                                                                           \
                  .rights = TOOL_EXECUTES,                                                                            \
                  .is_destructive = true,                                                                             \
                  .is_open_world = true },                                                                            \
        .start = bash_start,                                                                                          \
    }

const struct tool_definition tool_bash = BASH_TOOL("bash");
const struct tool_definition tool_shell = BASH_TOOL("shell");
