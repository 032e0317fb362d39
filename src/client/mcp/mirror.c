/* Annotated parameters are kept as one object of JSON: name of the tool -> header -> path to the
 * parameter. A server that lists more tools than the maximum gets no headers for the rest, which it
 * then refuses with a clear error.
 *
 * Invariant: no header contains a control character, whatever the message holds. */
#include "client/mcp/mirror.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <strings.h>

#define MIRROR_TOOLS_MAX 4096u
#define MIRROR_PARAMS_MAX 32u /* of one tool */
#define MIRROR_DEPTH_MAX 8u

struct mirror {
    json_t *tools;
};

struct mirror *mirror_new(void)
{
    struct mirror *m = mem_new(struct mirror);

    m->tools = json_object();
    return m;
}

void mirror_free(struct mirror *m)
{
    if (!m)
        return;
    json_decref(m->tools);
    free(m);
}

const char *mirror_version(const json_t *params)
{
    return json_string_value(json_object_get(json_object_get(params, "_meta"), MIRROR_VERSION_KEY));
}

/* --- values --- */

static bool mirror_is_plain(const char *value, size_t len)
{
    if (len == 0 || value[0] == ' ' || value[len - 1] == ' ' || (len > 2 && strncmp(value, "=?", 2) == 0))
        return false;
    for (size_t i = 0; i < len; i++)
        if (value[i] < ' ' || value[i] > '~')
            return false;
    return true;
}

void mirror_write_value(struct buf *out, const char *value, size_t len)
{
    if (mirror_is_plain(value, len)) {
        buf_add(out, value, len);
        return;
    }
    buf_adds(out, "=?base64?");
    text_base64(out, value, len);
    buf_adds(out, "?=");
}

static char *mirror_header(const char *prefix, const char *name, const char *value, size_t len)
{
    struct buf out = { 0 };

    buf_addf(&out, "%s%s: ", prefix, name);
    mirror_write_value(&out, value, len);
    return out.data;
}

/* NULL: the value has no header. */
static char *mirror_param_header(const char *name, const json_t *value)
{
    char number[32];

    if (json_is_string(value))
        return mirror_header("Mcp-Param-", name, json_string_value(value), json_string_length(value));
    if (json_is_boolean(value))
        return str_printf("Mcp-Param-%s: %s", name, json_is_true(value) ? "true" : "false");
    if (!json_is_integer(value))
        return NULL;
    snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return mirror_header("Mcp-Param-", name, number, strlen(number));
}

/* --- annotations --- */

static bool mirror_is_token(const char *name)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    return *name && strlen(name) <= 100 && !name[strspn(name, token)];
}

static bool mirror_is_known(const json_t *params, const char *name)
{
    const char *other;
    json_t *path;

    json_object_foreach((json_t *)params, other, path) if (strcasecmp(other, name) == 0) return true;
    return false;
}

static bool mirror_is_scalar_type(const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));

    return type && (str_eq(type, "string") || str_eq(type, "integer") || str_eq(type, "boolean"));
}

/* Follows `properties` only: a parameter below a list or a choice has no fixed place. False: an
 * annotation is invalid. */
static bool mirror_walk(const json_t *schema, json_t *path, json_t *params)
{
    const json_t *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *property;

    if (json_array_size(path) > MIRROR_DEPTH_MAX)
        return true;
    json_object_foreach((json_t *)properties, key, property)
    {
        const json_t *annotation = json_object_get(property, "x-mcp-header");
        const char *name = json_string_value(annotation);
        bool ok = true;

        json_array_append_new(path, json_string(key));
        if (annotation)
            ok = name && mirror_is_token(name) && mirror_is_scalar_type(property) && !mirror_is_known(params, name) &&
                 json_object_size(params) < MIRROR_PARAMS_MAX &&
                 json_object_set_new(params, name, json_deep_copy(path)) == 0;
        ok = ok && mirror_walk(property, path, params);
        json_array_remove(path, json_array_size(path) - 1);
        if (!ok)
            return false;
    }
    return true;
}

void mirror_learn(struct mirror *m, const json_t *result)
{
    const json_t *tools = json_object_get(result, "tools");
    size_t i;
    json_t *tool;

    json_array_foreach(tools, i, tool)
    {
        const char *name = json_string_value(json_object_get(tool, "name"));
        json_t *params = json_object(), *path = json_array();

        if (name && mirror_walk(json_object_get(tool, "inputSchema"), path, params) && json_object_size(params) > 0 &&
            json_object_size(m->tools) < MIRROR_TOOLS_MAX)
            json_object_set(m->tools, name, params);
        else if (name)
            json_object_del(m->tools, name);
        json_decref(params);
        json_decref(path);
    }
}

static size_t mirror_add_params(const struct mirror *m, const json_t *params, char **ret, size_t n)
{
    const char *tool = json_string_value(json_object_get(params, "name")), *name;
    const json_t *known = tool ? json_object_get(m->tools, tool) : NULL;
    json_t *path, *step;

    json_object_foreach((json_t *)known, name, path)
    {
        const json_t *value = json_object_get(params, "arguments");
        size_t i;

        json_array_foreach(path, i, step) value = json_object_get(value, json_string_value(step));
        char *header = mirror_param_header(name, value);
        if (header)
            ret[n++] = header;
    }
    return n;
}

size_t mirror_headers(const struct mirror *m, const char *method, const json_t *params, const char *version,
                      char *ret[MIRROR_HEADERS_MAX])
{
    bool calls_tool = str_eq(method, "tools/call");
    const char *key = calls_tool || str_eq(method, "prompts/get") ? "name"
                      : str_eq(method, "resources/read")          ? "uri"
                                                                  : NULL;
    const json_t *name = key ? json_object_get(params, key) : NULL;
    size_t n = 0;

    ret[n++] = mirror_header("", "MCP-Protocol-Version", version, strlen(version));
    ret[n++] = mirror_header("", "Mcp-Method", method, strlen(method));
    if (json_is_string(name))
        ret[n++] = mirror_header("", "Mcp-Name", json_string_value(name), json_string_length(name));
    return calls_tool ? mirror_add_params(m, params, ret, n) : n;
}
