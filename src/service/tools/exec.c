/* exec: a program with its arguments, without a shell. */
#include "service/tools/tool_program.h"

#include "core/base/mem.h"
#include "service/spec.h"

#define ARGV_MAX 1024u
#define WORD_MAX (32 * KIB)

/* clang-format off */
static const char exec_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "argv": {"type": "array", "minItems": 1, "maxItems": 1024, "items": {"type": "string"}, "description": "The program and its arguments, passed as they are."},
        "cwd": {"type": "string", "minLength": 1, "description": "Working directory. Default: /workspace."},
        "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables for the program."},
        "stdin": {"type": "string", "description": "Its standard input. Default: empty."},
        "timeout_ms": {"type": "integer", "minimum": 1, "description": "The program and its children are killed after this time."}
    },
    "required": ["argv"],
    "additionalProperties": false
});
/* clang-format on */

static int exec_read_argv(const json_t *arguments, const char ***ret, struct err *err)
{
    json_t *list = NULL;

    if (json_input_array(arguments, "", "argv", ARGV_MAX, &list, err) < 0)
        return -1;
    size_t n = json_array_size(list);
    auto_free const char **argv = mem_alloc((n + 1) * sizeof(*argv));
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_string(v) || json_string_length(v) > WORD_MAX)
            return err_set(err, ERR_INVALID, "argv[%zu]: must be a string of at most %llu bytes", i, WORD_MAX);
        argv[i] = json_string_value(v);
    }
    if (n == 0 || !argv[0][0])
        return err_set(err, ERR_INVALID, "argv: must begin with the name of a program");
    *ret = take_ptr(&argv);
    return 0;
}

static int exec_start(struct tool_call *c, struct err *err)
{
    const json_t *a = c->request.arguments;
    struct execution_spec spec = { 0 };
    auto_free const char **argv = NULL;
    json_t *env = NULL;
    char **words = NULL;
    size_t n = 0;

    if (exec_read_argv(a, &argv, err) < 0 || json_input_text(a, "", "cwd", 1, TOOL_PATH_MAX, &spec.cwd, err) < 0 ||
        json_input_text(a, "", "stdin", 0, EXECUTION_STDIN_MAX, &spec.input, err) < 0 ||
        json_input_object(a, "", "env", &env, err) < 0 || tool_arguments_timeout(c, &spec.timeout_ms, err) < 0 ||
        (env && spec_read_env(env, "env", &words, &n, err) < 0))
        return -1;
    spec.argv = argv;
    spec.env = (const char *const *)words;
    spec.input_len = spec.input ? strlen(spec.input) : 0;
    tool_program_start(c, &spec, NULL, tool_program_answer);
    spec_env_free(words);
    return 0;
}

const struct tool_definition tool_exec = {
    .tool = { .name = "exec",
              .title = "Run a program",
              .description =
                  "Runs a program with a list of arguments in the sandbox, without a shell: no quoting, no expansion, "
                  "no pipes. Returns the exit code, stdout and stderr. Long output keeps its beginning and its end. "
                  "Use "
                  "it when arguments contain quotes, spaces or text from other sources; use bash for pipes and "
                  "redirections.",
              .input_schema = exec_input,
              .output_schema = tool_program_output_schema,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_EXECUTES,
              .is_destructive = true,
              .is_open_world = true },
    .start = exec_start,
};
