/* cove tool: ls, show, call.
 *
 * call reads the tool first: its schema says which arguments are text, so `--arg limit=5` is a
 * number where the tool wants one, and its place says whether a sandbox belongs to the command. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"
#include "core/base/text.h"

#include <stdio.h>
#include <unistd.h>

#define ARGUMENTS_MAX (4 * MIB)
#define PATIENCE_MORE_MS 120000u
#define WIDTH 78u

/* --- ls and show --- */

static char *ctl_tool_scopes(const json_t *tool)
{
    struct buf all = { 0 };
    const json_t *scope;
    size_t i;

    json_array_foreach(json_object_get(tool, "scopes"), i, scope)
        buf_addf(&all, "%s%s", i ? ", " : "", json_string_value(scope));
    return all.data ? all.data : str_dup("-");
}

static int ctl_tool_list(struct ctl *c, struct err *err)
{
    struct ctl_table table = { 0 };
    AUTO_JSON *answer = NULL;
    const json_t *tool;
    size_t i;

    if (ctl_require_args(c, 0, 0, "tool ls", err) < 0 ||
        client_json(c->client, "GET", "/v1/tools", NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    if (!c->quiet)
        ctl_table_row(&table, "name", "acts in", "needs", "purpose");
    json_array_foreach(json_object_get(answer, "items"), i, tool)
    {
        auto_free char *scopes = ctl_tool_scopes(tool);
        const char *place = ctl_field_text(tool, "place");

        if (c->quiet)
            ctl_printf("%s", ctl_field_text(tool, "name"));
        else
            ctl_table_row(&table, ctl_field_text(tool, "name"),
                          str_eq(place, "fresh_sandbox") ? "a fresh sandbox"
                          : str_eq(place, "server")      ? "the server"
                                                         : "a sandbox",
                          scopes, ctl_field_text(tool, "title"));
    }
    return c->quiet ? 0 : ctl_table_print(&table);
}

/* The type of an argument in one word, or its values. */
static void ctl_tool_argument_type(const json_t *property, struct buf *out)
{
    const json_t *values = json_object_get(property, "enum"), *v;
    size_t i;

    json_array_foreach(values, i, v) buf_addf(out, "%s%s", i ? "|" : "", json_string_value(v));
    if (!values)
        buf_adds(out, *ctl_field_text(property, "type") ? ctl_field_text(property, "type") : "any");
}

static bool ctl_tool_is_required(const json_t *schema, const char *name)
{
    const json_t *one;
    size_t i;

    json_array_foreach(json_object_get(schema, "required"), i,
                       one) if (str_eq(json_string_value(one), name)) return true;
    return false;
}

static void ctl_tool_print_arguments(const json_t *schema)
{
    const json_t *property;
    const char *name;

    json_object_foreach(json_object_get(schema, "properties"), name, property)
    {
        auto_buf type = { 0 };

        ctl_tool_argument_type(property, &type);
        ctl_printf("  %-14s %s%s  %s", name, type.data, ctl_tool_is_required(schema, name) ? ", required" : "",
                   ctl_field_text(property, "description"));
    }
}

static int ctl_tool_fetch(struct ctl *c, const char *name, json_t **ret, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/tools/%s", name);

    return client_json(c->client, "GET", path, NULL, ret, err);
}

static int ctl_tool_show(struct ctl *c, struct err *err)
{
    AUTO_JSON *tool = NULL;
    auto_buf text = { 0 };

    if (ctl_require_args(c, 1, 1, "tool show NAME", err) < 0 || ctl_tool_fetch(c, c->args.rest[0], &tool, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(tool);
    auto_free char *scopes = ctl_tool_scopes(tool);
    ctl_printf("%s: %s", ctl_field_text(tool, "name"), ctl_field_text(tool, "title"));
    text_wrap(&text, ctl_field_text(tool, "description"), 0, 0, WIDTH);
    (void)fwrite(text.data, 1, text.len, stdout);
    ctl_printf("%sAccess: %s", text.len && text.data[text.len - 1] == '\n' ? "" : "\n", scopes);
    ctl_printf("Arguments:");
    ctl_tool_print_arguments(json_object_get(tool, "inputSchema"));
    return 0;
}

/* --- call --- */

struct ctl_tool_words { /* of the command line */
    const char *sandbox, *name, *json;
};

static bool ctl_tool_is_json(const char *word)
{
    return word[0] == '{' || str_eq(word, "-");
}

static int ctl_tool_read_words(const struct ctl *c, struct ctl_tool_words *ret, struct err *err)
{
    int n = c->args.nrest;
    char **rest = c->args.rest;

    if (ctl_require_args(c, 1, 3, "tool call [FLAGS] [SANDBOX] NAME [JSON|-]", err) < 0)
        return -1;
    if (ctl_tool_is_json(rest[n - 1]))
        ret->json = rest[--n];
    if (n == 0 || n > 2)
        return err_set(err, ERR_USAGE, "usage: cove tool call [FLAGS] [SANDBOX] NAME [JSON|-]; JSON begins with '{'");
    ret->name = rest[n - 1];
    ret->sandbox = n == 2 ? rest[0] : NULL;
    return 0;
}

static int ctl_tool_read_json(const char *word, json_t **ret, struct err *err)
{
    auto_buf text = { 0 };
    json_error_t why;

    if (str_eq(word, "-")) {
        if (ctl_read_path("/dev/stdin", ARGUMENTS_MAX, &text, err) < 0)
            return -1;
    } else {
        buf_adds(&text, word);
    }
    *ret = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(*ret))
        return 0;
    return err_set(err, ERR_INVALID, "arguments: line %d: %.100s; give one JSON object", *ret ? 1 : why.line,
                   *ret ? "not an object" : why.text);
}

/* A value is text if the tool takes text there, or does not know the name; else it is JSON. */
static int ctl_tool_parse_value(const json_t *property, const char *name, const char *text, json_t **ret,
                                struct err *err)
{
    bool is_text = !property || json_object_get(property, "enum") || str_eq(ctl_field_text(property, "type"), "string");

    *ret = is_text ? json_string(text) : json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (*ret)
        return 0;
    return err_set(err, ERR_INVALID, "--arg %.60s: must be %s, as JSON%s", name,
                   is_text ? "UTF-8" : ctl_field_text(property, "type"),
                   str_eq(ctl_field_text(property, "type"), "array") ? ", for example '[\"a\", \"b\"]'" : "");
}

static int ctl_tool_read_flags(const struct ctl *c, const json_t *tool, json_t *arguments, struct err *err)
{
    const json_t *properties = json_object_get(json_object_get(tool, "inputSchema"), "properties");

    for (size_t i = 0; i < c->args.n; i++) {
        const char *pair = c->args.items[i].value, *equals = pair ? strchr(pair, '=') : NULL;
        json_t *value = NULL;

        if (c->args.items[i].opt->id != OPT_TOOL_ARG)
            continue;
        if (!equals || equals == pair)
            return err_set(err, ERR_USAGE, "--arg %.60s: must be NAME=VALUE", pair);
        auto_free char *name = str_dup_n(pair, (size_t)(equals - pair));
        if (ctl_tool_parse_value(json_object_get(properties, name), name, equals + 1, &value, err) < 0)
            return -1;
        json_object_set_new(arguments, name, value);
    }
    return 0;
}

static int ctl_tool_path(struct ctl *c, const struct ctl_tool_words *words, const json_t *tool, char **ret,
                         struct err *err)
{
    bool needs = str_eq(ctl_field_text(tool, "place"), "sandbox");
    auto_free char *sandbox = NULL;

    if (needs && !words->sandbox)
        return err_set(err, ERR_USAGE, "%s acts in a sandbox; write 'cove tool call SANDBOX %s'", words->name,
                       words->name);
    if (!needs && words->sandbox)
        return err_set(err, ERR_USAGE, "%s needs no sandbox; write 'cove tool call %s'", words->name, words->name);
    if (needs && ctl_resolve_sandbox(c, words->sandbox, &sandbox, err) < 0)
        return -1;
    *ret = needs ? ctl_api_path("/v1/sandboxes/%s/tools/%s", sandbox, words->name)
                 : ctl_api_path("/v1/tools/%s", words->name);
    return 0;
}

/* The server answers when the tool has ended, which may take as long as the caller allows. */
static void ctl_tool_wait_for_timeout(struct ctl *c, const json_t *arguments)
{
    uint64_t ms = ctl_field_number(arguments, "timeout_ms");

    if (ms)
        client_set_patience(c->client, (uint32_t)min_u64(ms + PATIENCE_MORE_MS, UINT32_MAX));
}

static int ctl_tool_print_result(const struct ctl *c, const json_t *answer)
{
    const char *text = ctl_field_text(answer, "text");

    if (c->json) {
        (void)ctl_print_json(answer);
    } else {
        auto_free char *shown = str_dup(text);
        char *rest = shown, *line;

        while ((line = strsep(&rest, "\n")))
            if (*line || rest)
                ctl_printf("%s", line);
    }
    return json_is_true(json_object_get(answer, "isError")) ? 1 : 0;
}

static int ctl_tool_call(struct ctl *c, struct err *err)
{
    AUTO_JSON *tool = NULL, *arguments = NULL, *answer = NULL;
    struct ctl_tool_words words = { 0 };
    auto_free char *path = NULL;

    if (ctl_tool_read_words(c, &words, err) < 0 || ctl_tool_fetch(c, words.name, &tool, err) < 0 ||
        ctl_tool_path(c, &words, tool, &path, err) < 0)
        return -1;
    if (words.json ? ctl_tool_read_json(words.json, &arguments, err) < 0 : !(arguments = json_object()))
        return -1;
    if (ctl_tool_read_flags(c, tool, arguments, err) < 0)
        return -1;
    ctl_tool_wait_for_timeout(c, arguments);
    auto_free char *body = json_dumps(arguments, JSON_COMPACT);
    if (client_json(c->client, "POST", path, body, &answer, err) < 0)
        return -1;
    return ctl_tool_print_result(c, answer);
}

int ctl_tool(struct ctl *c, const char *what, struct err *err)
{
    if (str_eq(what, "ls"))
        return ctl_tool_list(c, err);
    if (str_eq(what, "show"))
        return ctl_tool_show(c, err);
    return ctl_tool_call(c, err);
}
