/* A definition is measured before it is copied: bytes, depth and number of values. The digest
 * covers the definition with sorted keys, so that a server may reorder them, and every other
 * change is seen.
 *
 * x-mcp-header: the keyword is valid only on a string, integer or boolean that is reachable
 * through `properties` alone, because only then one argument belongs to it. The walk
 * distinguishes keywords from names of properties and from data (enum, const, default), which
 * may look like keywords. */
#include "remote/mcp/mcp_tool.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <strings.h>

#define DESCRIPTION_MAX 16384u
#define TITLE_MAX 256u
#define PATH_MAX_DEPTH 8u

struct mcp_tool_header {
    char *name;
    const char *path[PATH_MAX_DEPTH]; /* names of properties, borrowed from the definition */
    size_t depth;
};

struct mcp_tool {
    json_t *definition;
    char digest[MCP_TOOL_DIGEST_SIZE];
    struct mcp_tool_header headers[MCP_TOOL_HEADERS_MAX];
    size_t header_count;
};

/* --- text --- */

bool mcp_tool_name_valid(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n <= MCP_TOOL_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == n;
}

char *mcp_clean_text(const char *text, size_t max)
{
    size_t n = strlen(text);

    if (n > max)
        for (n = max; n > 0 && ((unsigned char)text[n] & 0xc0u) == 0x80u;)
            n--; /* not in the middle of a character */
    char *copy = str_dup_n(text, n);
    /* One line at a time, in place, because the function also replaces line feeds. */
    for (char *line = copy, *end; *line; line = end) {
        for (end = line; *end && *end != '\n' && *end != '\t';)
            end++;
        char separator = *end;

        *end = '\0';
        str_strip_control_chars(line);
        *end = separator;
        end += separator != '\0';
    }
    return copy;
}

static void mcp_tool_clean_key(json_t *object, const char *key, size_t max)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (!text) {
        json_object_del(object, key); /* of the wrong type, or absent */
        return;
    }
    auto_free char *clean = mcp_clean_text(text, max);
    json_object_set_new(object, key, json_string(clean));
}

/* --- bounds --- */

static bool mcp_tool_measure(const json_t *v, unsigned depth, size_t *values)
{
    const json_t *item;
    const char *key;
    size_t i;

    if (depth > MCP_TOOL_DEPTH_MAX || ++*values > MCP_TOOL_VALUES_MAX)
        return false;
    if (json_is_array(v)) {
        json_array_foreach(v, i, item) if (!mcp_tool_measure(item, depth + 1, values)) return false;
    } else if (json_is_object(v)) {
        json_object_foreach((json_t *)v, key, item) if (!mcp_tool_measure(item, depth + 1, values)) return false;
    }
    return true;
}

static int mcp_tool_set_digest(struct mcp_tool *t, const json_t *definition, struct err *err)
{
    size_t size = json_dumpb(definition, NULL, 0, JSON_COMPACT | JSON_SORT_KEYS);
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (size == 0 || size > MCP_TOOL_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "its definition has %zu bytes; the maximum is %u", size, MCP_TOOL_BYTES_MAX);
    auto_free char *text = mem_alloc(size);
    (void)json_dumpb(definition, text, size, JSON_COMPACT | JSON_SORT_KEYS);
    if (EVP_Digest(text, size, hash, &n, EVP_sha256(), NULL) != 1 || n != 32)
        return err_set(err, ERR_SYS, "SHA-256 is not available");
    for (unsigned i = 0; i < n; i++)
        snprintf(t->digest + (size_t)i * 2, 3, "%02x", hash[i]);
    return 0;
}

/* --- x-mcp-header --- */

struct mcp_header_walk {
    struct mcp_tool *tool;
    const char *path[PATH_MAX_DEPTH];
    size_t depth;
    bool is_direct; /* only `properties` led here */
    struct err *err;
};

static int mcp_header_walk_schema(struct mcp_header_walk *w, const json_t *schema);

static bool mcp_header_name_valid(const char *name)
{
    size_t n = name ? strlen(name) : 0;

    return n > 0 && n <= MCP_TOOL_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~") == n;
}

static int mcp_header_walk_keyword(struct mcp_header_walk *w, const json_t *schema, const json_t *keyword)
{
    const char *name = json_string_value(keyword), *type = json_string_value(json_object_get(schema, "type"));
    struct mcp_tool *t = w->tool;

    if (!mcp_header_name_valid(name))
        return err_set(w->err, ERR_INVALID, "its schema has an x-mcp-header that is not the name of a header");
    if (!w->is_direct || w->depth == 0)
        return err_set(w->err, ERR_INVALID, "its schema has an x-mcp-header on a value that is not a property");
    if (!type || (!str_eq(type, "string") && !str_eq(type, "integer") && !str_eq(type, "boolean")))
        return err_set(w->err, ERR_INVALID,
                       "its schema has an x-mcp-header on a property of another type than string, "
                       "integer or boolean");
    for (size_t i = 0; i < t->header_count; i++)
        if (strcasecmp(t->headers[i].name, name) == 0)
            return err_set(w->err, ERR_INVALID, "its schema has two properties with the x-mcp-header '%s'", name);
    if (t->header_count == MCP_TOOL_HEADERS_MAX)
        return err_set(w->err, ERR_LIMIT, "its schema has more than %u properties with x-mcp-header",
                       MCP_TOOL_HEADERS_MAX);
    struct mcp_tool_header *h = &t->headers[t->header_count++];
    h->name = str_dup(name);
    h->depth = w->depth;
    memcpy(h->path, w->path, sizeof(h->path));
    return 0;
}

/* `properties` leads to arguments; the other maps of schemas do not. */
static int mcp_header_walk_map(struct mcp_header_walk *w, const json_t *map, bool are_properties)
{
    bool was_direct = w->is_direct;
    const json_t *schema;
    const char *name;
    int status = 0;

    if (!json_is_object(map))
        return 0;
    json_object_foreach((json_t *)map, name, schema)
    {
        w->is_direct = was_direct && are_properties && w->depth < PATH_MAX_DEPTH;
        if (w->is_direct)
            w->path[w->depth++] = name;
        bool pushed = w->is_direct;
        status = mcp_header_walk_schema(w, schema);
        w->depth -= pushed;
        if (status < 0)
            break;
    }
    w->is_direct = was_direct;
    return status;
}

static bool mcp_header_is_map_keyword(const char *key)
{
    static const char *const keys[] = { "$defs", "definitions", "patternProperties", "dependentSchemas" };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (str_eq(key, keys[i]))
            return true;
    return false;
}

static bool mcp_header_is_data_keyword(const char *key)
{
    static const char *const keys[] = { "enum", "const", "default", "examples" };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (str_eq(key, keys[i]))
            return true;
    return false;
}

static int mcp_header_walk_schema(struct mcp_header_walk *w, const json_t *schema)
{
    bool was_direct = w->is_direct;
    const json_t *value;
    const char *key;
    int status = 0;
    size_t i;

    if (json_is_array(schema)) {
        w->is_direct = false;
        json_array_foreach(schema, i, value) if ((status = mcp_header_walk_schema(w, value)) < 0) break;
        w->is_direct = was_direct;
        return status;
    }
    if (!json_is_object(schema))
        return 0;
    json_object_foreach((json_t *)schema, key, value)
    {
        if (str_eq(key, "x-mcp-header")) {
            status = mcp_header_walk_keyword(w, schema, value);
        } else if (str_eq(key, "properties") || mcp_header_is_map_keyword(key)) {
            status = mcp_header_walk_map(w, value, str_eq(key, "properties"));
        } else if (!mcp_header_is_data_keyword(key)) {
            w->is_direct = false;
            status = mcp_header_walk_schema(w, value);
            w->is_direct = was_direct;
        }
        if (status < 0)
            return -1;
    }
    return 0;
}

/* --- one definition --- */

static int mcp_tool_read(struct mcp_tool *t, const json_t *definition, struct err *err)
{
    const json_t *schema = json_object_get(definition, "inputSchema");
    const char *name = json_string_value(json_object_get(definition, "name"));
    size_t values = 0;

    if (!json_is_object(definition))
        return err_set(err, ERR_INVALID, "its definition is not an object");
    if (!name || !mcp_tool_name_valid(name))
        return err_set(err, ERR_INVALID, "its name is not 1 to %u characters of A-Z a-z 0-9 _ - .", MCP_TOOL_NAME_MAX);
    if (!mcp_tool_measure(definition, 0, &values))
        return err_set(err, ERR_LIMIT, "its definition is deeper than %u levels or has more than %u values",
                       MCP_TOOL_DEPTH_MAX, MCP_TOOL_VALUES_MAX);
    if (!json_is_object(schema))
        return err_set(err, ERR_INVALID, "its inputSchema is not an object");
    if (mcp_tool_set_digest(t, definition, err) < 0)
        return -1;
    t->definition = json_deep_copy(definition);
    mcp_tool_clean_key(t->definition, "description", DESCRIPTION_MAX);
    mcp_tool_clean_key(t->definition, "title", TITLE_MAX);
    json_t *annotations = json_object_get(t->definition, "annotations");
    if (json_is_object(annotations))
        mcp_tool_clean_key(annotations, "title", TITLE_MAX);
    struct mcp_header_walk walk = { .tool = t, .is_direct = true, .err = err };
    return mcp_header_walk_schema(&walk, json_object_get(t->definition, "inputSchema"));
}

int mcp_tool_new(const json_t *definition, struct mcp_tool **ret, struct err *err)
{
    auto_(mcp_tool) t = mem_new(struct mcp_tool);

    if (mcp_tool_read(t, definition, err) < 0)
        return -1;
    *ret = take_ptr(&t);
    return 0;
}

void mcp_tool_free(struct mcp_tool *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->header_count; i++)
        free(t->headers[i].name);
    json_decref(t->definition);
    free(t);
}

const char *mcp_tool_name(const struct mcp_tool *t)
{
    return json_string_value(json_object_get(t->definition, "name"));
}

const char *mcp_tool_digest(const struct mcp_tool *t)
{
    return t->digest;
}

json_t *mcp_tool_definition(const struct mcp_tool *t)
{
    return t->definition;
}

/* --- headers of a call --- */

static bool mcp_header_is_plain(const char *value)
{
    size_t n = strlen(value);

    for (size_t i = 0; i < n; i++)
        if (value[i] < 0x20 || value[i] > 0x7e)
            return false;
    if (n > 0 && (value[0] == ' ' || value[n - 1] == ' '))
        return false;
    return !(str_starts(value, "=?base64?") && str_ends(value, "?="));
}

void mcp_header_add(struct buf *out, const char *name, const char *value)
{
    if (!*value) {
        buf_addf(out, "%s;", name); /* libcurl sends an empty value for this form only */
    } else if (mcp_header_is_plain(value)) {
        buf_addf(out, "%s: %s", name, value);
    } else {
        buf_addf(out, "%s: =?base64?", name);
        text_base64(out, value, strlen(value));
        buf_adds(out, "?=");
    }
    buf_add(out, "", 1);
}

/* "" and false: the argument is absent, null, or not a scalar. */
static bool mcp_header_value(const json_t *v, struct buf *ret)
{
    if (json_is_string(v))
        buf_adds(ret, json_string_value(v));
    else if (json_is_boolean(v))
        buf_adds(ret, json_is_true(v) ? "true" : "false");
    else if (json_is_integer(v))
        buf_addf(ret, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        buf_addf(ret, "%.17g", json_real_value(v));
    else
        return false;
    return true;
}

int mcp_tool_headers(const struct mcp_tool *t, const json_t *arguments, struct buf *ret, size_t *ret_count,
                     struct err *err)
{
    *ret_count = 0;
    for (size_t i = 0; i < t->header_count; i++) {
        const struct mcp_tool_header *h = &t->headers[i];
        const json_t *v = arguments;
        auto_buf value = { 0 };

        for (size_t k = 0; k < h->depth; k++)
            v = json_object_get(v, h->path[k]);
        if (!mcp_header_value(v, &value))
            continue;
        if (value.len > MCP_TOOL_HEADER_VALUE_MAX)
            return err_set(err, ERR_INVALID,
                           "argument '%.60s': its value is sent in a header and has %zu bytes; use at most %u",
                           h->path[h->depth - 1], value.len, MCP_TOOL_HEADER_VALUE_MAX);
        auto_free char *name = str_printf("Mcp-Param-%s", h->name);
        mcp_header_add(ret, name, value.data ? value.data : "");
        ++*ret_count;
    }
    return 0;
}
