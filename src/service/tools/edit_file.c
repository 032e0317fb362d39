/* edit_file: replaces text in a file.
 *
 * The file is read, changed here and written as a whole, with its mode. A program that writes the
 * file in between loses that change; there is no lock inside of a sandbox that it would have to
 * respect. */
#include "service/tools/tool_file.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define EDIT_FILE_MAX (8 * MIB)
#define SNIPPET_LINES 3u /* before and after the first replacement */
#define SNIPPET_LINES_MAX 20u
#define SNIPPET_CHARS 200u

/* clang-format off */
static const char edit_file_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "Absolute, or relative to /workspace."},
        "old_string": {"type": "string", "minLength": 1, "description": "The text to replace, exactly as in the file, with its whitespace and without line numbers."},
        "new_string": {"type": "string", "description": "The text to put in its place."},
        "replace_all": {"type": "boolean", "description": "Replace every occurrence. Default: false, and old_string must occur exactly once."}
    },
    "required": ["file_path", "old_string", "new_string"],
    "additionalProperties": false
});
static const char edit_file_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "replacements": {"type": "integer"},
        "line": {"type": "integer", "description": "Of the first replacement."},
        "size": {"type": "integer", "description": "Bytes of the new file."},
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
    "anyOf": [{"required": ["path", "replacements", "line", "size"]}, {"required": ["error"]}]
});
/* clang-format on */

struct edit_file {
    struct tool_file file;
    const char *old, *new;
    size_t old_len, new_len;
    bool all;
    uint64_t replacements;
    size_t first; /* offset of the first replacement */
    struct buf content;
};

static void edit_file_stop(void *work)
{
    struct edit_file *e = work;

    tool_file_done(&e->file);
    buf_done(&e->content);
    free(e);
}

static void edit_file_refuse(struct edit_file *e, const struct err *err)
{
    tool_file_fail(&e->file, err);
}

/* --- the answer --- */

static uint64_t edit_file_count_lines(const char *from, const char *to)
{
    uint64_t n = 0;

    for (const char *p = from; (p = memchr(p, '\n', (size_t)(to - p))); p++)
        n++;
    return n;
}

/* The lines of the first replacement and some around it. line: number of its first line. */
static void edit_file_add_snippet(const struct edit_file *e, uint64_t line, struct buf *out)
{
    const char *text = e->content.data ? e->content.data : "", *end = text + e->content.len;
    const char *p = text + e->first;
    uint64_t before = 0, lines = edit_file_count_lines(p, p + e->new_len) + SNIPPET_LINES;
    bool ends_line = e->new_len > 0 && p[e->new_len - 1] == '\n';

    while (p > text && (p[-1] != '\n' || before < SNIPPET_LINES))
        before += *--p == '\n';
    lines = min_u64(lines + !ends_line + before, SNIPPET_LINES_MAX);
    line -= before;
    for (; p < end && lines > 0; lines--) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((newline ? newline : end) - p);

        buf_addf(out, "\n%6" PRIu64 "|", line++);
        tool_text_add(out, p, tool_text_whole_length(p, min_size(len, SNIPPET_CHARS)));
        p += len + 1;
    }
}

static void edit_file_on_written(void *arg, const struct files_done *d, const struct err *err)
{
    struct edit_file *e = arg;
    struct tool_call *c = e->file.call;
    const char *text = e->content.data ? e->content.data : "";
    uint64_t line = 1 + edit_file_count_lines(text, text + e->first);
    struct jsonw w;

    if (err) {
        tool_file_fail(&e->file, err);
        return;
    }
    jsonw_init(&w, &c->answer.json, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "path", e->file.path);
    jsonw_ku64(&w, "replacements", e->replacements);
    jsonw_ku64(&w, "line", line);
    jsonw_ku64(&w, "size", d->bytes);
    jsonw_end_object(&w);
    buf_addf(&c->answer.text, "Replaced %" PRIu64 " occurrence%s in ", e->replacements,
             e->replacements == 1 ? "" : "s");
    tool_text_add(&c->answer.text, e->file.path, strlen(e->file.path));
    buf_adds(&c->answer.text, ".");
    edit_file_add_snippet(e, line, &c->answer.text);
    tool_call_finish(c);
}

/* --- the replacement --- */

static const char *edit_file_find(const struct edit_file *e, const char *from, const char *end)
{
    return from < end ? memmem(from, (size_t)(end - from), e->old, e->old_len) : NULL;
}

static uint64_t edit_file_count(const struct edit_file *e)
{
    const char *p = e->file.data.data, *end = p + e->file.data.len;
    uint64_t n = 0;

    while (p && (p = edit_file_find(e, p, end))) {
        p += e->old_len;
        n++;
    }
    return n;
}

static int edit_file_check_matches(const struct edit_file *e, uint64_t n, struct err *err)
{
    const struct buf *data = &e->file.data;
    char size[32];

    if (n == 0)
        return err_set(err, ERR_MISSING,
                       "old_string: has no match in %.100s%s; read the file and copy the text exactly", e->file.path,
                       data->len && memmem(data->data, data->len, "\r\n", 2) && strchr(e->old, '\n')
                           ? ", whose lines end with \\r\\n"
                           : "");
    if (n > 1 && !e->all)
        return err_set(err, ERR_INVALID,
                       "old_string: has %" PRIu64 " matches in %.100s and must have one; add lines around it, or set "
                       "replace_all",
                       n, e->file.path);
    if (data->len - n * e->old_len + n * e->new_len > EDIT_FILE_MAX)
        return err_set(err, ERR_LIMIT, "%.100s: would be larger than %s", e->file.path, str_bytes(EDIT_FILE_MAX, size));
    return 0;
}

static void edit_file_replace(struct edit_file *e)
{
    const char *p = e->file.data.data, *end = p + e->file.data.len, *match;

    e->first = (size_t)(edit_file_find(e, p, end) - p);
    while ((match = edit_file_find(e, p, end))) {
        buf_add(&e->content, p, (size_t)(match - p));
        buf_add(&e->content, e->new, e->new_len);
        p = match + e->old_len;
    }
    buf_add(&e->content, p, (size_t)(end - p));
}

static bool edit_file_on_entry(void *arg, const struct files_entry *entry)
{
    struct edit_file *e = arg;
    struct err err;

    if (entry->kind == 'f')
        return true;
    err_set(&err, ERR_WRONG_KIND, "%.150s: is a link, which an edit would replace; edit its target, which list shows",
            e->file.path);
    edit_file_refuse(e, &err);
    return false;
}

static void edit_file_on_read(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    static const struct tool_file_ops ops = { .on_end = edit_file_on_written };
    struct edit_file *e = arg;
    struct err why;

    if (err) {
        edit_file_refuse(e, err);
        return;
    }
    if (tool_file_is_binary(e->file.data.data, e->file.data.len)) {
        err_set(&why, ERR_WRONG_KIND, "%.150s: is a binary file; change it with a program", e->file.path);
        edit_file_refuse(e, &why);
        return;
    }
    e->replacements = edit_file_count(e);
    if (edit_file_check_matches(e, e->replacements, &why) < 0) {
        edit_file_refuse(e, &why);
        return;
    }
    edit_file_replace(e);
    tool_file_write(&e->file, e->file.call, e->file.path, e->content.data ? e->content.data : "", e->content.len,
                    e->file.mode, &ops, e);
}

static int edit_file_start(struct tool_call *c, struct err *err)
{
    static const struct tool_file_ops ops = { .on_entry = edit_file_on_entry, .on_end = edit_file_on_read };
    const json_t *a = c->request.arguments;
    const char *old = NULL, *new = NULL;
    char *path = NULL;
    bool all = false;

    if (json_input_text(a, "", "old_string", 1, JSON_INPUT_SIZE_MAX, &old, err) < 0 ||
        json_input_text(a, "", "new_string", 0, JSON_INPUT_SIZE_MAX, &new, err) < 0 ||
        json_input_bool(a, "", "replace_all", &all, err) < 0)
        return -1;
    if (str_eq(old, new))
        return err_set(err, ERR_INVALID, "new_string: equals old_string, so there is nothing to change");
    if (tool_arguments_path(a, "file_path", NULL, &path, err) < 0)
        return -1;
    struct edit_file *e = mem_new(struct edit_file);
    e->old = old;
    e->new = new;
    e->old_len = strlen(old);
    e->new_len = strlen(new);
    e->all = all;
    c->work = e;
    c->stop = edit_file_stop;
    tool_file_read(&e->file, c, path, EDIT_FILE_MAX, &ops, e);
    return 0;
}

const struct tool_definition tool_edit_file = {
    .tool = { .name = "edit_file",
              .title = "Edit a file",
              .description =
                  "Replaces text in a text file of the sandbox. old_string must occur exactly once, with all its "
                  "whitespace; otherwise nothing changes and the error says how many matches there are. Add lines "
                  "around it to make it unique, or set replace_all. Read the file first. Returns the lines around the "
                  "change. Use write_file for new files and complete rewrites.",
              .input_schema = edit_file_input,
              .output_schema = edit_file_output,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_WRITES_FILES | TOOL_READS_FILES,
              .is_destructive = true },
    .start = edit_file_start,
};
