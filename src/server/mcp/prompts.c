/* Prompts: a few tasks that a person can choose in a client, as text that names the tools; and the
 * completion of their arguments. */
#include "server/mcp/mcp_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define MCP_PROMPT_ARGUMENTS 2u
#define MCP_PROMPT_VALUE_MAX 4096u
#define MCP_PROMPTS_TTL_MS 3600000u

struct mcp_prompt {
    const char *name, *title, *description;
    struct {
        const char *name, *description;
        bool is_required;
        const char *values[6]; /* for completion */
    } arguments[MCP_PROMPT_ARGUMENTS];
    const char *text; /* {name} stands for an argument */
};

static const struct mcp_prompt mcp_prompts[] = {
    { "analyse_file",
      "Analyse a file",
      "Reads a data file in a sandbox and answers a question about it.",
      { { "path",
          "Path of the file in the sandbox, for example /workspace/data.csv",
          true,
          { "/workspace/data.csv", "/workspace/data.json" } },
        { "question", "The question to answer; without it, a summary", false, { NULL } } },
      "Analyse the file {path} in the sandbox. Look at its first lines and its size before you read all of it. Then "
      "run "
      "Python code in the sandbox that computes the answer; do not estimate figures by reading. Question: {question}" },
    { "debug_failure",
      "Find the cause of a failure",
      "Runs a command that fails, finds the cause and proposes the smallest fix.",
      { { "command", "The command that fails", true, { "python3 main.py", "pytest", "npm test", "make" } },
        { "expected", "The behaviour that is expected instead", false, { NULL } } },
      "The command `{command}` fails in the sandbox. Run it and read its whole output, the exit code and the hint in "
      "the "
      "result. State the cause, change as little as possible, and run the command again to show that it works. "
      "Expected "
      "behaviour: {expected}" },
    { "run_script",
      "Write and run a script",
      "Writes a script for a task, runs it in a sandbox and reports its output.",
      { { "task", "The task of the script", true, { NULL } },
        { "language", "Language of the script", false, { "python", "node", "bash" } } },
      "Write a script for this task and run it in the sandbox: {task}. Language: {language}. Save it in /workspace, "
      "show "
      "what it printed, and say which limits or denials the result reports." },
};

static const struct mcp_prompt *mcp_prompt_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(mcp_prompts); i++)
        if (str_eq(mcp_prompts[i].name, name))
            return &mcp_prompts[i];
    return NULL;
}

static void mcp_write_prompt(const struct mcp_prompt *p, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "name", p->name);
    jsonw_kstr(w, "title", p->title);
    jsonw_kstr(w, "description", p->description);
    jsonw_karray(w, "arguments");
    for (size_t i = 0; i < MCP_PROMPT_ARGUMENTS; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "name", p->arguments[i].name);
        jsonw_kstr(w, "description", p->arguments[i].description);
        jsonw_kbool(w, "required", p->arguments[i].is_required);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    jsonw_end_object(w);
}

void mcp_prompts_list(struct mcp_server_call *c)
{
    auto_buf out = { 0 };
    struct jsonw w;
    size_t at;

    if (!mcp_read_cursor(c, "prompts", &at))
        return;
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "prompts");
    for (; at < ARRAY_LEN(mcp_prompts); at++)
        mcp_write_prompt(&mcp_prompts[at], &w);
    if (c->mcp->fixtures)
        mcp_fixtures_write_prompts(&w);
    jsonw_end_array(&w);
    mcp_server_call_write_cache_hints(c, &w, MCP_PROMPTS_TTL_MS, false);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}

static const char *mcp_prompt_value(const struct mcp_prompt *p, const json_t *arguments, const char *name, size_t len)
{
    for (size_t i = 0; i < MCP_PROMPT_ARGUMENTS; i++) {
        const char *value = json_string_value(json_object_get(arguments, p->arguments[i].name));

        if (strlen(p->arguments[i].name) == len && strncmp(p->arguments[i].name, name, len) == 0)
            return value && *value ? value : "not given";
    }
    return "";
}

static void mcp_prompt_text(const struct mcp_prompt *p, const json_t *arguments, struct buf *out)
{
    const char *at = p->text;

    while (*at) {
        size_t n = strcspn(at, "{"), len;

        buf_add(out, at, n);
        at += n;
        if (!*at)
            break;
        len = strcspn(++at, "}");
        buf_adds(out, mcp_prompt_value(p, arguments, at, len));
        at += len + 1;
    }
}

/* False: the call was answered. */
static bool mcp_prompt_check(struct mcp_server_call *c, const struct mcp_prompt *p, const json_t *arguments)
{
    for (size_t i = 0; i < MCP_PROMPT_ARGUMENTS; i++) {
        const json_t *value = json_object_get(arguments, p->arguments[i].name);
        bool is_bad = value ? !json_is_string(value) || json_string_length(value) > MCP_PROMPT_VALUE_MAX
                            : p->arguments[i].is_required;

        if (!is_bad)
            continue;
        auto_free char *text = str_printf("arguments.%s: must be a string of at most %u bytes", p->arguments[i].name,
                                          MCP_PROMPT_VALUE_MAX);
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, text, NULL);
        return false;
    }
    return true;
}

static void mcp_answer_prompt(struct mcp_server_call *c, const struct mcp_prompt *p, const json_t *arguments)
{
    auto_buf out = { 0 };
    auto_buf text = { 0 };
    struct jsonw w;

    mcp_prompt_text(p, arguments, &text);
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "description", p->description);
    jsonw_karray(&w, "messages");
    jsonw_object(&w);
    jsonw_kstr(&w, "role", "user");
    jsonw_kobject(&w, "content");
    jsonw_kstr(&w, "type", "text");
    jsonw_kstr(&w, "text", text.data);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}

void mcp_prompts_get(struct mcp_server_call *c)
{
    const char *name = mcp_server_call_text(c, "name");
    const json_t *arguments = json_object_get(c->params, "arguments");
    const struct mcp_prompt *p = name ? mcp_prompt_find(name) : NULL;

    if (name && c->mcp->fixtures && mcp_fixtures_get_prompt(c, name, arguments))
        return;
    if (!p)
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, "name: there is no such prompt; prompts/list lists them",
                              NULL);
    else if (mcp_prompt_check(c, p, arguments))
        mcp_answer_prompt(c, p, arguments);
}

/* --- completion --- */

static void mcp_write_completions(const struct mcp_prompt *p, const char *argument, const char *begin, struct jsonw *w)
{
    for (size_t i = 0; p && i < MCP_PROMPT_ARGUMENTS; i++)
        for (size_t k = 0; str_eq(p->arguments[i].name, argument) && p->arguments[i].values[k]; k++)
            if (str_starts(p->arguments[i].values[k], begin))
                jsonw_str(w, p->arguments[i].values[k]);
}

void mcp_complete(struct mcp_server_call *c)
{
    const json_t *ref = json_object_get(c->params, "ref"), *argument = json_object_get(c->params, "argument");
    const char *type = json_string_value(json_object_get(ref, "type"));
    const char *name = json_string_value(json_object_get(ref, "name"));
    const char *argument_name = json_string_value(json_object_get(argument, "name"));
    const char *value = json_string_value(json_object_get(argument, "value"));
    auto_buf out = { 0 };
    struct jsonw w;

    if (!type || !argument_name || !value || !(str_eq(type, "ref/prompt") || str_eq(type, "ref/resource"))) {
        mcp_server_call_error(
            c, JSONRPC_INVALID_PARAMS,
            "ref and argument: required, with a type (ref/prompt or ref/resource), a name and a value", NULL);
        return;
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kobject(&w, "completion");
    jsonw_karray(&w, "values");
    mcp_write_completions(name && str_eq(type, "ref/prompt") ? mcp_prompt_find(name) : NULL, argument_name, value, &w);
    jsonw_end_array(&w);
    jsonw_kbool(&w, "hasMore", false);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    mcp_server_call_result(c, out.data);
}
