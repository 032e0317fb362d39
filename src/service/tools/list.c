/* list: the entries of one directory, by name. */
#include "service/tools/tool_file.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#define LIST_LIMIT_PRESET 500u
#define LIST_LIMIT_MAX 10000u
#define LIST_SCAN_MAX 50000u /* entries that are read to sort them */

/* clang-format off */
static const char list_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "The directory. Default: /workspace."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10000, "description": "Number of entries. Default: 500."}
    },
    "additionalProperties": false
});
static const char list_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "entries": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"},
            "name_base64": {"type": "string", "description": "The exact name, if it is not UTF-8."},
            "kind": {"enum": ["file", "directory", "link", "fifo", "socket", "device"]},
            "size": {"type": "integer"},
            "modified_at": {"type": "string"},
            "target": {"type": "string", "description": "Of a link."}},
            "required": ["name", "kind", "size", "modified_at"]}},
        "total": {"type": "integer", "description": "Entries of the directory; 50000 stands for more."},
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
    "anyOf": [{"required": ["path", "entries", "total"]}, {"required": ["error"]}]
});
/* clang-format on */

struct list_entry {
    char kind;
    uint64_t size, mtime_ns;
    char *name, *target;
};

struct list_tool {
    struct tool_file file;
    uint64_t limit;
    struct list_entry *entries;
    size_t n;
};

static void list_stop(void *work)
{
    struct list_tool *l = work;

    tool_file_done(&l->file);
    for (size_t i = 0; i < l->n; i++) {
        free(l->entries[i].name);
        free(l->entries[i].target);
    }
    free(l->entries);
    free(l);
}

static void list_on_name(void *arg, const struct files_entry *e)
{
    struct list_tool *l = arg;

    if ((l->n & (l->n - 1)) == 0) /* doubles */
        l->entries = mem_resize(l->entries, l->n ? 2 * l->n : 1, sizeof(*l->entries));
    l->entries[l->n++] = (struct list_entry){ e->kind, e->size, e->mtime_ns, str_dup(e->name), str_dup(e->target) };
}

static int list_compare_names(const void *a, const void *b)
{
    return strcmp(((const struct list_entry *)a)->name, ((const struct list_entry *)b)->name);
}

static void list_write_entry(const struct list_entry *e, struct jsonw *w)
{
    char at[32];

    jsonw_object(w);
    jsonw_kstr(w, "name", e->name);
    if (!text_is_utf8(e->name, strlen(e->name))) {
        auto_buf coded = { 0 };

        text_base64(&coded, e->name, strlen(e->name));
        jsonw_kstr(w, "name_base64", coded.data);
    }
    jsonw_kstr(w, "kind", tool_file_kind_name(e->kind));
    jsonw_ku64(w, "size", e->size);
    jsonw_kstr(w, "modified_at", clock_rfc3339(e->mtime_ns, at));
    if (e->kind == 'l')
        jsonw_kstr(w, "target", e->target);
    jsonw_end_object(w);
}

/* A name cannot end its line. */
static void list_add_line(const struct list_entry *e, struct buf *out)
{
    auto_free char *name = str_dup(e->name), *target = str_dup(e->target);

    str_strip_control_chars(name);
    str_strip_control_chars(target);
    buf_addf(out, "%s%-9s %10" PRIu64 "  ", out->len ? "\n" : "", tool_file_kind_name(e->kind), e->size);
    tool_text_add(out, name, strlen(name));
    buf_adds(out, e->kind == 'd' ? "/" : e->kind == 'l' ? " -> " : "");
    if (e->kind == 'l')
        tool_text_add(out, target, strlen(target));
}

static void list_on_end(void *arg, const struct files_done *d, const struct err *err)
{
    struct list_tool *l = arg;
    struct tool_call *c = l->file.call;
    struct buf *text = &c->answer.text;
    size_t shown = 0;
    struct jsonw w;

    if (err) {
        tool_file_fail(&l->file, err);
        return;
    }
    if (l->n)
        qsort(l->entries, l->n, sizeof(*l->entries), list_compare_names);
    jsonw_init(&w, &c->answer.json, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "path", l->file.path);
    jsonw_karray(&w, "entries");
    for (; shown < l->n && shown < l->limit && text->len < c->tools->settings.output_bytes; shown++) {
        list_write_entry(&l->entries[shown], &w);
        list_add_line(&l->entries[shown], text);
    }
    jsonw_end_array(&w);
    jsonw_ku64(&w, "total", l->n);
    jsonw_end_object(&w);
    c->answer.is_truncated = shown < l->n || d->truncated;
    if (l->n == 0)
        buf_adds(text, "The directory is empty.");
    if (c->answer.is_truncated)
        buf_addf(text, "\n[%zu%s more entries; set limit, or use glob]", l->n - shown, d->truncated ? " or" : "");
    tool_call_finish(c);
}

static int list_start(struct tool_call *c, struct err *err)
{
    static const struct tool_file_ops ops = { .on_name = list_on_name, .on_end = list_on_end };
    const json_t *a = c->request.arguments;
    uint64_t limit = LIST_LIMIT_PRESET;
    char *path = NULL;

    if (json_input_u64(a, "", "limit", 1, LIST_LIMIT_MAX, &limit, NULL, err) < 0 ||
        tool_arguments_path(a, "path", "/workspace", &path, err) < 0)
        return -1;
    struct list_tool *l = mem_new(struct list_tool);
    l->limit = limit;
    c->work = l;
    c->stop = list_stop;
    tool_file_list(&l->file, c, path, LIST_SCAN_MAX, &ops, l);
    return 0;
}

const struct tool_definition tool_list = {
    .tool = { .name = "list",
              .title = "List a directory",
              .description =
                  "Lists the entries of one directory of the sandbox by name: kind, size in bytes, name, and the "
                  "target "
                  "of a link. Shows 500 entries unless limit says otherwise. Use glob to find files below a directory "
                  "by name, and grep to find them by content.",
              .input_schema = list_input,
              .output_schema = list_output,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_READS_FILES,
              .is_read_only = true,
              .is_idempotent = true },
    .start = list_start,
};
