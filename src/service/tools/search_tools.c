/* search_tools: the tools and the scripts that match a query, in steps: without a query the names
 * and one line for each, with a query the schemas of the tools that it matches.
 *
 * Tools come first, in the order of the table or by matches, then the scripts of the tenant, as the
 * store ranks them. Offset and limit count both. */
#include "service/script_cache.h"
#include "service/tools/tool_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define LIMIT_DEFAULT 10u
#define LIMIT_MAX 50u
#define OFFSET_MAX 1000u
#define SCRIPTS_MAX 1000u /* that facets and pages are computed from */
#define EXCLUDE_MAX 64u
#define NAME_WEIGHT 10u    /* of a word in a name, in occurrences */
#define EXACT_WEIGHT 1000u /* of a word that is a name */

/* clang-format off */
static const char search_tools_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 256, "description": "Words that a tool or script must contain, each of them. Default: everything, without schemas."},
        "type": {"enum": ["tool", "script", "all"], "description": "Default: all."},
        "category": {"type": "string", "maxLength": 64, "description": "Category of tools (code, files, sandboxes, server) or language of scripts."},
        "exclude": {"type": "array", "maxItems": 64, "items": {"type": "string"}, "description": "Names of tools, categories or languages to leave out."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "Default: 10."},
        "offset": {"type": "integer", "minimum": 0, "maximum": 1000, "description": "Matches to skip. Default: 0."}
    },
    "additionalProperties": false
});

static const char search_tools_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "summary": {"type": "string"},
        "tools": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "title": {"type": "string"},
                    "category": {"type": "string"},
                    "description": {"type": "string"},
                    "inputSchema": {"type": "object"},
                    "outputSchema": {"type": "object"},
                    "example": {"type": "object", "description": "Arguments of a call."}
                },
                "required": ["name", "title", "category", "description"]
            }
        },
        "scripts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "Run it with run_sandbox and cached."},
                    "digest": {"type": "string"},
                    "language": {"type": "string"},
                    "description": {"type": "string"},
                    "sizeBytes": {"type": "integer"},
                    "uses": {"type": "integer"}
                },
                "required": ["id", "digest", "language", "sizeBytes", "uses"]
            }
        },
        "totalMatches": {"type": "integer"},
        "facets": {
            "type": "object",
            "properties": {
                "categories": {"type": "object", "additionalProperties": {"type": "integer"}},
                "languages": {"type": "object", "additionalProperties": {"type": "integer"}}
            },
            "required": ["categories", "languages"]
        },
        "pagination": {
            "type": "object",
            "properties": {"offset": {"type": "integer"}, "limit": {"type": "integer"}, "hasMore": {"type": "boolean"}},
            "required": ["offset", "limit", "hasMore"]
        }
    },
    "required": ["summary", "tools", "scripts", "totalMatches", "facets", "pagination"]
});
/* clang-format on */

enum search_tools_type { TYPE_TOOL, TYPE_SCRIPT, TYPE_ALL };
static const char *const search_tools_types[] = { "tool", "script", "all", NULL };

struct tool_match {
    const struct tool *tool;
    uint64_t score;
    size_t index; /* in the table */
};

struct search_tools {
    struct tool_call *call; /* NULL: cancelled; the store has not answered yet */
    bool is_searching;
    enum search_tools_type type;
    const char *query, *category, *exclude[EXCLUDE_MAX];
    size_t nexclude;
    uint64_t limit, offset;
    struct tool_match matches[TOOLS_MAX];
    size_t nmatches;

    /* The answer. */
    json_t *tools, *scripts, *categories, *languages;
    struct buf text;
    uint64_t total;
    uint64_t schema_bytes; /* of the tools that are shown */
    bool has_omitted_schemas;
};

static void search_tools_free(struct search_tools *x)
{
    json_decref(x->tools);
    json_decref(x->scripts);
    json_decref(x->categories);
    json_decref(x->languages);
    buf_done(&x->text);
    free(x);
}

static void search_tools_stop(void *work)
{
    struct search_tools *x = work;

    x->call = NULL;
    if (!x->is_searching)
        search_tools_free(x);
}

/* --- tools --- */

static const char *search_tools_category(const struct tool *tool)
{
    return tool->rights & TOOL_EXECUTES                                   ? "code"
           : tool->rights & (TOOL_READS_FILES | TOOL_WRITES_FILES)        ? "files"
           : tool->rights & (TOOL_READS_SANDBOXES | TOOL_MAKES_SANDBOXES) ? "sandboxes"
                                                                          : "server";
}

static bool search_tools_is_excluded(const struct search_tools *x, const char *name)
{
    for (size_t i = 0; i < x->nexclude; i++)
        if (str_eq(x->exclude[i], name))
            return true;
    return false;
}

static uint64_t search_tools_count(const char *text, const char *word)
{
    uint64_t n = 0;

    for (const char *at = text; (at = strcasestr(at, word)); at += strlen(word))
        n++;
    return n;
}

/* 0: a word of the query is missing. */
static uint64_t search_tools_score(const struct search_tools *x, const struct tool *tool)
{
    auto_free char *words = str_dup(x->query);
    uint64_t score = 1;
    char *rest = NULL;

    for (char *word = strtok_r(words, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest)) {
        uint64_t n = search_tools_count(tool->name, word) * NAME_WEIGHT + search_tools_count(tool->title, word) +
                     search_tools_count(tool->description, word);

        if (n == 0)
            return 0;
        score += n + (strcasecmp(tool->name, word) == 0 ? EXACT_WEIGHT : 0);
    }
    return score;
}

static int search_tools_compare(const void *a, const void *b)
{
    const struct tool_match *m = a, *n = b;

    if (m->score != n->score)
        return m->score > n->score ? -1 : 1;
    return m->index < n->index ? -1 : 1;
}

static void search_tools_add_facet(json_t *facets, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(facets, name));

    json_object_set_new(facets, name, json_integer(n + 1));
}

static void search_tools_find(struct search_tools *x)
{
    size_t n;
    const struct tool *all = tools_all(&n);

    for (size_t i = 0; i < n && x->type != TYPE_SCRIPT; i++) {
        const char *category = search_tools_category(&all[i]);
        uint64_t score = search_tools_score(x, &all[i]);

        if (score == 0 || (x->category && !str_eq(category, x->category)) || search_tools_is_excluded(x, all[i].name) ||
            search_tools_is_excluded(x, category))
            continue;
        x->matches[x->nmatches++] = (struct tool_match){ &all[i], score, i };
        search_tools_add_facet(x->categories, category);
    }
    qsort(x->matches, x->nmatches, sizeof(x->matches[0]), search_tools_compare);
    x->total = x->nmatches;
}

/* The first sentence of the description. */
static char *search_tools_line(const struct tool *tool)
{
    const char *end = strstr(tool->description, ". ");

    return str_dup_n(tool->description, end ? (size_t)(end - tool->description) + 1 : strlen(tool->description));
}

/* A value of the type of a property, as short as possible. */
static json_t *search_tools_example_value(const char *name, const json_t *property)
{
    const json_t *words = json_object_get(property, "enum");
    const char *type = json_string_value(json_object_get(property, "type"));

    if (json_array_size(words))
        return json_incref(json_array_get(words, 0));
    if (type && str_eq(type, "integer"))
        return json_incref(json_object_get(property, "minimum") ? json_object_get(property, "minimum")
                                                                : json_integer(1));
    if (type && str_eq(type, "boolean"))
        return json_true();
    if (type && str_eq(type, "array"))
        return json_array();
    if (type && str_eq(type, "object"))
        return json_object();
    return json_string(str_eq(name, "code") ? "print(6 * 7)" : str_eq(name, "command") ? "ls -l" : name);
}

static json_t *search_tools_example(const json_t *schema)
{
    const json_t *required = json_object_get(schema, "required"), *properties = json_object_get(schema, "properties");
    json_t *example = json_object();

    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));

        json_object_set_new(example, name, search_tools_example_value(name, json_object_get(properties, name)));
    }
    return example;
}

static void search_tools_show_tool(struct search_tools *x, const struct tool *tool)
{
    uint64_t size = strlen(tool->description) + strlen(tool->input_schema) + strlen(tool->output_schema);
    bool whole = *x->query && x->schema_bytes + size <= x->call->tools->settings.output_bytes;
    auto_free char *line = search_tools_line(tool);
    json_t *t = json_pack("{s:s, s:s, s:s, s:s}", "name", tool->name, "title", tool->title, "category",
                          search_tools_category(tool), "description", whole ? tool->description : line);

    buf_addf(&x->text, "- %s: %s\n", tool->name, whole ? tool->description : line);
    x->has_omitted_schemas |= *x->query && !whole;
    if (whole) {
        json_t *input = json_loads(tool->input_schema, 0, NULL);
        auto_json *example = search_tools_example(input);
        auto_free char *text = json_dumps(example, JSON_COMPACT);

        x->schema_bytes += size;
        json_object_set(t, "example", example);
        json_object_set_new(t, "inputSchema", input);
        json_object_set_new(t, "outputSchema", json_loads(tool->output_schema, 0, NULL));
        buf_addf(&x->text, "  arguments: %s\n  example: %s\n", tool->input_schema, text ? text : "{}");
    }
    json_array_append_new(x->tools, t);
}

static void search_tools_show_tools(struct search_tools *x)
{
    for (size_t i = (size_t)x->offset; i < x->nmatches && i < x->offset + x->limit; i++)
        search_tools_show_tool(x, x->matches[i].tool);
}

/* --- scripts --- */

static void search_tools_show_script(struct search_tools *x, const struct store_script *row)
{
    char digest[2 * STORE_HASH_LEN + 1];
    json_t *s = json_object();

    script_digest_format(row->digest, digest);
    json_object_set_new(s, "id", json_string(row->id));
    json_object_set_new(s, "digest", json_string(digest));
    json_object_set_new(s, "language", json_string(row->language));
    if (row->description)
        json_object_set_new(s, "description", json_string(row->description));
    json_object_set_new(s, "sizeBytes", json_integer((json_int_t)row->size_bytes));
    json_object_set_new(s, "uses", json_integer((json_int_t)row->uses));
    json_array_append_new(x->scripts, s);
    buf_addf(&x->text, "- %s (%s, %" PRIu64 " uses): %s\n", row->id, row->language, row->uses,
             row->description ? row->description : "no description");
}

static void search_tools_show_scripts(struct search_tools *x, const struct store_script *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (search_tools_is_excluded(x, rows[i].language))
            continue;
        uint64_t at = x->total++;
        search_tools_add_facet(x->languages, rows[i].language);
        if (at >= x->offset && at < x->offset + x->limit)
            search_tools_show_script(x, &rows[i]);
    }
}

/* --- the answer --- */

static void search_tools_finish(struct search_tools *x)
{
    struct tool_answer *a = &x->call->answer;
    uint64_t shown = json_array_size(x->tools) + json_array_size(x->scripts);
    bool more = x->offset + shown < x->total;
    auto_free char *summary = str_printf(
        "%" PRIu64 " matches, of which %zu tools; %" PRIu64 " shown, from number %" PRIu64 " on.%s%s", x->total,
        x->nmatches, shown, x->offset, *x->query ? "" : " A query shows the schemas of the tools it matches.",
        x->has_omitted_schemas ? " Some schemas are left out; use a narrower query." : "");
    auto_json *result = json_pack("{s:s, s:O, s:O, s:I, s:{s:O, s:O}, s:{s:I, s:I, s:b}}", "summary", summary, "tools",
                                  x->tools, "scripts", x->scripts, "totalMatches", (json_int_t)x->total, "facets",
                                  "categories", x->categories, "languages", x->languages, "pagination", "offset",
                                  (json_int_t)x->offset, "limit", (json_int_t)x->limit, "hasMore", more);
    auto_free char *text = json_dumps(result, JSON_COMPACT);

    buf_adds(&a->json, text ? text : "{}");
    buf_addf(&a->text, "%s\n", summary);
    tool_text_add(&a->text, x->text.data ? x->text.data : "", x->text.len);
    if (json_array_size(x->scripts))
        buf_adds(&a->text, "Run a script with run_sandbox and \"cached\": its id.\n");
    a->is_truncated = x->has_omitted_schemas;
    tool_call_finish(x->call);
}

static void search_tools_on_scripts(void *arg, const struct err *err, const struct store_script *rows, size_t n,
                                    uint64_t total, const char *next UNUSED)
{
    struct search_tools *x = arg;

    x->is_searching = false;
    if (!x->call) {
        search_tools_free(x);
        return;
    }
    if (err) {
        tool_call_fail(x->call, err);
        return;
    }
    search_tools_show_scripts(x, rows, n);
    x->total += total - n; /* those beyond SCRIPTS_MAX */
    search_tools_finish(x);
}

static bool search_tools_is_tool_category(const char *category)
{
    size_t n;
    const struct tool *all = tools_all(&n);

    for (size_t i = 0; i < n; i++)
        if (str_eq(search_tools_category(&all[i]), category))
            return true;
    return false;
}

static void search_tools_begin(struct search_tools *x)
{
    const struct tool_request *r = &x->call->request;
    const struct store_script_search q = {
        .owner = r->owner, .text = x->query, .language = x->category, .limit = SCRIPTS_MAX
    };

    search_tools_find(x);
    search_tools_show_tools(x);
    if (x->type == TYPE_TOOL || r->is_for_one_sandbox || (x->category && search_tools_is_tool_category(x->category))) {
        search_tools_finish(x);
        return;
    }
    x->is_searching = true;
    store_script_search(x->call->tools->settings.store, &q, search_tools_on_scripts, x);
}

/* --- arguments --- */

static int search_tools_read_exclude(struct search_tools *x, const json_t *a, struct err *err)
{
    json_t *list = NULL;

    if (json_input_array(a, "", "exclude", EXCLUDE_MAX, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!json_is_string(json_array_get(list, i)))
            return err_set(err, ERR_INVALID, "exclude: must be a list of names");
        x->exclude[x->nexclude++] = json_string_value(json_array_get(list, i));
    }
    return 0;
}

static int search_tools_read(struct search_tools *x, const json_t *a, struct err *err)
{
    unsigned type = TYPE_ALL;

    if (json_input_text(a, "", "query", 0, STORE_SCRIPT_SEARCH_MAX, &x->query, err) < 0 ||
        json_input_enum(a, "", "type", search_tools_types, &type, err) < 0 ||
        json_input_text(a, "", "category", 1, 64, &x->category, err) < 0 ||
        json_input_u64(a, "", "limit", 1, LIMIT_MAX, &x->limit, NULL, err) < 0 ||
        json_input_u64(a, "", "offset", 0, OFFSET_MAX, &x->offset, NULL, err) < 0)
        return -1;
    x->type = (enum search_tools_type)type;
    return search_tools_read_exclude(x, a, err);
}

static int search_tools_start(struct tool_call *c, struct err *err)
{
    struct search_tools *x = mem_new(struct search_tools);

    x->call = c;
    x->query = "";
    x->limit = LIMIT_DEFAULT;
    x->tools = json_array();
    x->scripts = json_array();
    x->categories = json_object();
    x->languages = json_object();
    c->work = x;
    c->stop = search_tools_stop;
    if (search_tools_read(x, c->request.arguments, err) < 0)
        return -1;
    search_tools_begin(x);
    return 0;
}

const struct tool_definition tool_search_tools = {
    .tool = { .name = "search_tools",
              .title = "Find tools and scripts",
              .description =
                  "Finds tools and cached scripts (code that ran successfully). Without a query: names and one line "
                  "for each. With a query: descriptions, schemas and an example call of the tools that contain every "
                  "word, best match first, then scripts, which run_sandbox runs again by their id. Use type, category "
                  "and exclude to narrow a search, offset and limit to page.",
              .input_schema = search_tools_input,
              .output_schema = search_tools_output,
              .place = TOOL_ON_SERVER,
              .rights = TOOL_READS_EXECUTIONS,
              .is_read_only = true,
              .is_idempotent = true },
    .start = search_tools_start,
};
