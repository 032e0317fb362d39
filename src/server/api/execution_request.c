/* Parses the description of an execution: the same object in the body of a request and in a
 * WebSocket message. */
#include "server/api/api_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/custom_policy.h"
#include "service/language_kernel.h"

#define COMMAND_MAX 1024
#define WORD_MAX (32 * KIB)
#define CWD_MAX 4000
#define SIZE_MAX_ROWS 4096u

const char *const execution_request_fields[] = { "code",     "command",   "stdin",     "stdinOpen",   "env",
                                                 "cwd",      "timeoutMs", "cpuTimeMs", "outputBytes", "background",
                                                 "changes",  "tty",       "rows",      "cols",        "receipt",
                                                 "language", "isolated",  "stream",    NULL };

void execution_request_done(struct execution_request *l)
{
    json_decref(l->body);
    spec_env_free(l->env);
    free(l->argv);
    *l = (struct execution_request){ 0 };
}

static int execution_request_read_shell_line(const json_t *body, const char ***ret, struct err *err)
{
    const char *line = NULL;

    if (json_input_text(body, "", "command", 1, WORD_MAX, &line, err) < 0)
        return -1;
    *ret = mem_new_array(const char *, 4);
    (*ret)[0] = "/bin/sh";
    (*ret)[1] = "-c";
    (*ret)[2] = line;
    (*ret)[3] = NULL;
    return 0;
}

int execution_request_read_command(const json_t *body, const char ***ret, struct err *err)
{
    json_t *list = NULL;

    if (json_is_string(json_object_get(body, "command")))
        return execution_request_read_shell_line(body, ret, err);
    if (json_input_array(body, "", "command", COMMAND_MAX, &list, err) < 0)
        return -1;
    if (!list)
        return 0;
    size_t n = json_array_size(list);
    if (n == 0)
        return err_set(err, ERR_INVALID, "command: must contain at least one argument");
    auto_free const char **argv = mem_new_array(const char *, n + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_string(v) || json_string_length(v) > WORD_MAX)
            return err_set(err, ERR_INVALID, "command[%zu]: must be a string of at most %llu bytes", i, WORD_MAX);
        argv[i] = json_string_value(v);
    }
    argv[n] = NULL;
    if (!argv[0][0])
        return err_set(err, ERR_INVALID, "command[0]: the program name is empty");
    *ret = take_ptr(&argv);
    return 0;
}

/* Code runs in the default context of its language, unless it is isolated. */
static int execution_request_read_language(struct execution_request *l, struct err *err)
{
    struct execution_spec *s = &l->spec;

    if (json_input_text(l->body, "", "language", 1, 40, &s->language, err) < 0 ||
        json_input_bool(l->body, "", "isolated", &s->isolated, err) < 0)
        return -1;
    if (!s->language)
        return 0;
    if (!s->code)
        return err_set(err, ERR_INVALID, "language: belongs to code; a command names its program itself");
    if (!language_kernel_language(s->language)) {
        err_set(err, ERR_RUNTIME_MISSING, "language: unknown language '%.40s'; use python, node or bash", s->language);
        err_sanitize(err);
        return -1;
    }
    return 0;
}

static int execution_request_read_program(struct execution_request *l, struct err *err)
{
    static const char *const shell[] = { "/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh",
                                         NULL };
    struct execution_spec *s = &l->spec;

    if (json_input_text(l->body, "", "code", 1, EXECUTION_CODE_MAX, &s->code, err) < 0 ||
        execution_request_read_command(l->body, &l->argv, err) < 0)
        return -1;
    s->argv = l->argv;
    if (s->tty && !s->code && !s->argv)
        s->argv = shell;
    if (!s->code == !s->argv)
        return err_set(err, ERR_INVALID,
                       s->code ? "code and command cannot be combined; give one of them"
                               : "code or command is required");
    return 0;
}

/* A terminal runs until the user leaves it, so without a given timeout it gets the longest allowed
 * one. */
static uint64_t execution_request_terminal_timeout(const struct operator_limits *f)
{
    uint64_t most = limit_info(LIMIT_WALL)->max;

    return custom_policy_check_operator_limit(f, LIMIT_WALL, "timeoutMs", most, NULL) < 0 ? 0 : most;
}

static int execution_request_read_limits(struct execution_request *l, struct api *api, struct err *err)
{
    const struct limit_info *wall = limit_info(LIMIT_WALL), *cpu = limit_info(LIMIT_CPU_TIME);
    struct execution_spec *s = &l->spec;
    const struct operator_limits *f = api->settings.operator_limits;

    if (s->tty)
        s->timeout_ms = execution_request_terminal_timeout(f);
    if (json_input_u64(l->body, "", "timeoutMs", wall->min, wall->max, &s->timeout_ms, NULL, err) < 0 ||
        json_input_u64(l->body, "", "cpuTimeMs", 1, cpu->max, &s->cpu_ms, NULL, err) < 0 ||
        json_input_u64(l->body, "", "outputBytes", 1, EXECUTION_OUTPUT_MAX, &s->output_max, NULL, err) < 0)
        return -1;
    if (custom_policy_check_operator_limit(f, LIMIT_WALL, "timeoutMs", s->timeout_ms, err) < 0 ||
        custom_policy_check_operator_limit(f, LIMIT_CPU_TIME, "cpuTimeMs", s->cpu_ms, err) < 0)
        return -1;
    return custom_policy_check_operator_limit(f, LIMIT_OUTPUT, "outputBytes", s->output_max, err);
}

int api_check_operator_limits(struct api *api, uint64_t timeout_ms, uint64_t output_max, struct err *err)
{
    if (custom_policy_check_operator_limit(api->settings.operator_limits, LIMIT_WALL, "timeoutMs", timeout_ms, err) < 0)
        return -1;
    return custom_policy_check_operator_limit(api->settings.operator_limits, LIMIT_OUTPUT, "outputBytes", output_max,
                                              err);
}

int execution_request_read_tty_size(const json_t *body, uint16_t *rows, uint16_t *cols, struct err *err)
{
    uint64_t r = *rows, c = *cols;

    if (json_input_u64(body, "", "rows", 1, SIZE_MAX_ROWS, &r, NULL, err) < 0 ||
        json_input_u64(body, "", "cols", 1, SIZE_MAX_ROWS, &c, NULL, err) < 0)
        return -1;
    *rows = (uint16_t)r;
    *cols = (uint16_t)c;
    return 0;
}

static int execution_request_read_terminal(struct execution_request *l, struct err *err)
{
    struct execution_spec *s = &l->spec;

    if (json_input_bool(l->body, "", "tty", &s->tty, err) < 0)
        return -1;
    if (!s->tty && (json_object_get(l->body, "rows") || json_object_get(l->body, "cols")))
        return err_set(err, ERR_INVALID, "rows and cols require tty");
    s->rows = 24;
    s->cols = 80;
    return execution_request_read_tty_size(l->body, &s->rows, &s->cols, err);
}

static int execution_request_read_env(struct execution_request *l, struct err *err)
{
    json_t *env = NULL;
    size_t n = 0;
    bool named = false;

    if (json_input_object(l->body, "", "env", &env, err) < 0 ||
        (env && spec_read_env(env, "env", &l->env, &n, err) < 0))
        return -1;
    for (size_t i = 0; i < n; i++)
        named = named || str_starts(l->env[i], "TERM=");
    if (l->spec.tty && !named) {
        l->env = mem_resize(l->env, n + 2, sizeof(char *));
        l->env[n] = str_dup("TERM=xterm-256color");
        l->env[n + 1] = NULL;
    }
    l->spec.env = (const char *const *)l->env;
    return 0;
}

int api_read_receipt_detail(const json_t *body, enum receipt_detail *ret, struct err *err)
{
    unsigned detail = *ret;

    if (json_input_enum(body, "", "receipt", receipt_detail_names, &detail, err) < 0)
        return -1;
    *ret = (enum receipt_detail)detail;
    return 0;
}

int execution_request_read(struct execution_request *l, struct api *api, struct err *err)
{
    struct execution_spec *s = &l->spec;

    if (json_input_require_known_fields(l->body, "", execution_request_fields, err) < 0 ||
        execution_request_read_terminal(l, err) < 0 || execution_request_read_program(l, err) < 0 ||
        execution_request_read_limits(l, api, err) < 0 ||
        json_input_text(l->body, "", "stdin", 0, EXECUTION_STDIN_MAX, &s->input, err) < 0 ||
        json_input_bool(l->body, "", "stdinOpen", &s->input_open, err) < 0 ||
        json_input_text(l->body, "", "cwd", 1, CWD_MAX, &s->cwd, err) < 0 ||
        json_input_bool(l->body, "", "background", &s->background, err) < 0 ||
        json_input_bool(l->body, "", "changes", &s->changes, err) < 0 || execution_request_read_language(l, err) < 0 ||
        execution_request_read_env(l, err) < 0)
        return -1;
    if (s->input && (s->input_open || s->tty))
        return err_set(err, ERR_INVALID,
                       "stdin cannot be combined with %s; give all input in stdin, or send it while the program runs",
                       s->tty ? "tty" : "stdinOpen");
    if (s->input)
        s->input_len = strlen(s->input);
    s->input_open = s->input_open || s->tty;
    return 0;
}
