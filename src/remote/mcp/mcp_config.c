/* The file belongs to the user, but it is often copied from elsewhere: it is bounded and read
 * strictly where a key is known. A variable that is not set is an error, because a server would
 * otherwise get an empty credential and fail with a message of its own. */
#include "remote/mcp/mcp_config.h"

#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/json_input.h"
#include "remote/mcp/mcp_servers.h"

struct mcp_config_reader {
    char *(*getenv_fn)(const char *name);
    const char *server;
    struct err *err;
};

static int mcp_config_fail(const struct mcp_config_reader *r, const char *key, const char *wrong)
{
    err_set(r->err, ERR_INVALID, "server '%.40s': %s: %s", r->server, key, wrong);
    err_sanitize(r->err);
    return -1;
}

/* --- variables --- */

static int mcp_config_expand_one(const struct mcp_config_reader *r, const char *key, const char *name, size_t len,
                                 struct buf *out)
{
    auto_free char *text = str_dup_n(name, len);
    char *variable = str_starts(text, "env:") ? text + 4 : text, *fallback = strstr(variable, ":-");

    if (fallback) {
        *fallback = '\0';
        fallback += 2;
    }
    const char *value = r->getenv_fn(variable);
    if (!value && !fallback) {
        auto_free char *wrong = str_printf(
            "the environment variable %.60s is not set; set it, or write ${%.60s:-default}", variable, variable);
        return mcp_config_fail(r, key, wrong);
    }
    buf_adds(out, value ? value : fallback);
    return 0;
}

/* The caller frees *ret. */
static int mcp_config_expand(const struct mcp_config_reader *r, const char *key, const char *text, char **ret)
{
    auto_buf out = { 0 };

    buf_adds(&out, "");
    for (const char *p = text; *p;) {
        const char *end = str_starts(p, "${") ? strchr(p, '}') : NULL;

        if (!end) {
            buf_add(&out, p++, 1);
            continue;
        }
        if (mcp_config_expand_one(r, key, p + 2, (size_t)(end - p - 2), &out) < 0)
            return -1;
        p = end + 1;
    }
    *ret = take_ptr(&out.data);
    return 0;
}

/* --- one server --- */

static int mcp_config_text(const struct mcp_config_reader *r, const json_t *object, const char *key, char **ret)
{
    const json_t *value = json_object_get(object, key);

    if (!value)
        return 0;
    if (!json_is_string(value) || json_string_length(value) == 0)
        return mcp_config_fail(r, key, "it is not a text; write \"...\"");
    return mcp_config_expand(r, key, json_string_value(value), ret);
}

static int mcp_config_command(const struct mcp_config_reader *r, const json_t *object, char ***ret)
{
    const json_t *args = json_object_get(object, "args"), *word;
    size_t i, n = 0;

    if (args && (!json_is_array(args) || json_array_size(args) > MCP_CONFIG_WORDS_MAX))
        return mcp_config_fail(r, "args", "it is not a list of at most 256 texts; write [\"...\"]");
    char **words = mem_alloc((json_array_size(args) + 2) * sizeof(char *));
    *ret = words;
    if (mcp_config_text(r, object, "command", &words[n++]) < 0)
        return -1;
    json_array_foreach(args, i, word)
    {
        if (!json_is_string(word))
            return mcp_config_fail(r, "args", "one of them is not a text; write \"...\"");
        if (mcp_config_expand(r, "args", json_string_value(word), &words[n++]) < 0)
            return -1;
    }
    return 0;
}

/* "NAME=value" or "Name: value" of each member. */
static int mcp_config_pairs(const struct mcp_config_reader *r, const json_t *object, const char *key,
                            const char *between, char ***ret)
{
    const json_t *map = json_object_get(object, key), *value;
    const char *name;
    size_t n = 0;

    if (map && (!json_is_object(map) || json_object_size(map) > MCP_CONFIG_WORDS_MAX))
        return mcp_config_fail(r, key, "it is not a mapping of at most 256 texts; write {\"NAME\": \"...\"}");
    char **lines = mem_alloc((json_object_size(map) + 1) * sizeof(char *));
    *ret = lines;
    json_object_foreach((json_t *)map, name, value)
    {
        auto_free char *text = NULL;

        if (!json_is_string(value) || !*name || strpbrk(name, "=:\r\n "))
            return mcp_config_fail(r, key, "a name or a value in it is not valid; write {\"NAME\": \"...\"}");
        if (mcp_config_expand(r, key, json_string_value(value), &text) < 0)
            return -1;
        lines[n++] = str_printf("%s%s%s", name, between, text);
    }
    return 0;
}

static int mcp_config_check_type(const struct mcp_config_reader *r, const json_t *object, const char *url)
{
    const char *type = json_string_value(json_object_get(object, "type"));

    if (!type)
        return 0;
    if (str_eq(type, "sse"))
        return mcp_config_fail(r, "type",
                               "the transport 'sse' of 2024 is not supported; use the server's Streamable HTTP "
                               "address with \"type\": \"http\"");
    if (url ? !str_eq(type, "http") && !str_eq(type, "streamable-http") && !str_eq(type, "streamableHttp")
            : !str_eq(type, "stdio"))
        return mcp_config_fail(r, "type", "it does not fit; write \"http\" with a url, or \"stdio\" with a command");
    return 0;
}

static int mcp_config_server_read(const struct mcp_config_reader *r, const json_t *object,
                                  struct mcp_config_server *ret)
{
    if (!json_is_object(object))
        return mcp_config_fail(r, "it", "it is not a mapping; write {\"command\": \"...\"} or {\"url\": \"...\"}");
    if (!mcp_server_name_valid(r->server))
        return mcp_config_fail(r, "name", "it is not valid; use 1 to 32 of A-Z a-z 0-9 _ -, without '__'");
    if (mcp_config_text(r, object, "url", &ret->url) < 0 || mcp_config_text(r, object, "cwd", &ret->cwd) < 0 ||
        mcp_config_command(r, object, &ret->command) < 0 || mcp_config_pairs(r, object, "env", "=", &ret->env) < 0 ||
        mcp_config_pairs(r, object, "headers", ": ", &ret->headers) < 0)
        return -1;
    if (!ret->url == !ret->command[0])
        return mcp_config_fail(r, "url", "it needs either a url or a command");
    return mcp_config_check_type(r, object, ret->url);
}

/* --- the file --- */

int mcp_config_parse(const char *text, size_t len, char *(*getenv_fn)(const char *name), struct mcp_config *ret,
                     struct err *err)
{
    struct mcp_config_reader r = { .getenv_fn = getenv_fn, .err = err };
    struct mcp_config c = { 0 };
    auto_json *root = NULL;
    const json_t *object;

    if (len > MCP_CONFIG_BYTES_MAX)
        return err_set(err, ERR_INVALID, "the file has %zu bytes; use at most %u", len, MCP_CONFIG_BYTES_MAX);
    if (json_input_parse(text, len, &root, err) < 0)
        return -1;
    json_t *servers = json_object_get(root, "mcpServers");
    if (!json_is_object(servers) || json_object_size(servers) > MCP_SERVERS_MAX)
        return err_set(err, ERR_INVALID,
                       "mcpServers: it is not a mapping of at most %u servers; write {\"mcpServers\": "
                       "{\"NAME\": {\"command\": \"...\"}}}",
                       MCP_SERVERS_MAX);
    c.servers = mem_alloc((json_object_size(servers) + 1) * sizeof(struct mcp_config_server));
    json_object_foreach(servers, r.server, object)
    {
        if (json_is_true(json_object_get(object, "disabled")))
            continue;
        struct mcp_config_server *s = &c.servers[c.n++];

        s->name = str_dup(r.server);
        if (mcp_config_server_read(&r, object, s) < 0) {
            mcp_config_done(&c);
            return -1;
        }
    }
    *ret = c;
    return 0;
}

static void mcp_config_free_list(char **list)
{
    for (char **p = list; p && *p; p++)
        free(*p);
    free(list);
}

void mcp_config_done(struct mcp_config *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->servers[i].name);
        free(c->servers[i].url);
        free(c->servers[i].cwd);
        mcp_config_free_list(c->servers[i].headers);
        mcp_config_free_list(c->servers[i].command);
        mcp_config_free_list(c->servers[i].env);
    }
    free(c->servers);
    *c = (struct mcp_config){ 0 };
}
