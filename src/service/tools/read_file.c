/* read_file: lines of a text file, with their numbers.
 *
 * The file is read from its beginning and passes through: only the requested lines are kept. The
 * reading stops at the last one, so a file of any size costs what its lines cost, and a file
 * without newlines is bounded by READ_SCAN_MAX. */
#include "service/tools/tool_file.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <string.h>

#define READ_LINES_PRESET 2000u
#define READ_LINES_MAX 100000u
#define READ_OFFSET_MAX 1000000000u
#define READ_LINE_CHARS 2000u
#define READ_SCAN_MAX (256 * MIB)

/* clang-format off */
static const char read_file_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "Absolute, or relative to /workspace."},
        "offset": {"type": "integer", "minimum": 1, "maximum": 1000000000, "description": "Number of the first line. Default: 1."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100000, "description": "Number of lines. Default: 2000."}
    },
    "required": ["file_path"],
    "additionalProperties": false
});
static const char read_file_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": "string", "description": "The lines, without numbers."},
        "offset": {"type": "integer", "description": "Number of the first line."},
        "lines": {"type": "integer", "description": "How many lines content has."},
        "cut_lines": {"type": "integer", "description": "Lines that lost what follows their first 2000 characters."},
        "next_offset": {"type": ["integer", "null"], "description": "Where to read on; null: the file ends here."},
        "size": {"type": "integer", "description": "Bytes of the file."},
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
    "anyOf": [{"required": ["path", "content", "offset", "lines", "cut_lines", "next_offset"]}, {"required": ["error"]}]
});
/* clang-format on */

struct read_file {
    struct tool_file file;
    uint64_t first, limit; /* lines */
    uint64_t line;         /* number of the current one */
    uint64_t kept, cut, scanned;
    struct buf current;    /* bytes of the current line, up to READ_LINE_CHARS characters */
    bool current_has_text; /* the current line has begun */
    struct buf content, numbered;
    bool is_over; /* the call is ending: other bytes are ignored */
};

static void read_file_stop(void *work)
{
    struct read_file *r = work;

    tool_file_done(&r->file);
    buf_done(&r->current);
    buf_done(&r->content);
    buf_done(&r->numbered);
    free(r);
}

/* --- the answer --- */

static void read_file_write_text(const struct read_file *r, bool more, struct buf *out)
{
    if (r->kept == 0)
        buf_addf(out,
                 r->line > 1 || r->current_has_text ? "The file has only %" PRIu64 " lines." : "The file is empty.",
                 r->current_has_text ? r->line : r->line - 1);
    if (r->numbered.len)
        buf_add(out, r->numbered.data, r->numbered.len);
    if (r->cut)
        buf_addf(out, "[%" PRIu64 " lines were cut after %u characters]\n", r->cut, READ_LINE_CHARS);
    if (more)
        buf_addf(out, "[the file goes on; read it with offset %" PRIu64 "]\n", r->first + r->kept);
}

static void read_file_answer(struct read_file *r, bool more)
{
    struct tool_call *c = r->file.call;
    struct jsonw w;

    r->is_over = true;
    jsonw_init(&w, &c->answer.json, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "path", r->file.path);
    jsonw_key(&w, "content");
    jsonw_strn(&w, r->content.data ? r->content.data : "", r->content.len);
    jsonw_ku64(&w, "offset", r->first);
    jsonw_ku64(&w, "lines", r->kept);
    jsonw_ku64(&w, "cut_lines", r->cut);
    jsonw_ki64_or_null(&w, "next_offset", more, (int64_t)(r->first + r->kept));
    if (r->file.size)
        jsonw_ku64(&w, "size", r->file.size);
    jsonw_end_object(&w);
    read_file_write_text(r, more, &c->answer.text);
    c->answer.is_truncated = more || r->cut;
    tool_call_finish(c);
}

static void read_file_refuse(struct read_file *r, enum err_id id, const char *why)
{
    struct err err;

    r->is_over = true;
    err_set(&err, id, "%.150s: %s", r->file.path, why);
    tool_file_fail(&r->file, &err);
}

/* --- lines --- */

/* Keeps the current line. False: the answer is full without it. */
static bool read_file_keep_line(struct read_file *r, bool has_newline)
{
    uint64_t room = r->file.call->tools->settings.output_bytes;
    size_t len = r->current.len, chars = 0, at = 0;
    uint32_t c;
    bool cut;

    while (at < len && chars < READ_LINE_CHARS) {
        size_t n = str_utf8(r->current.data + at, len - at, &c);

        at += n ? n : 1;
        chars++;
    }
    cut = at < len;
    if (r->numbered.len + at + 16 > room && r->kept > 0)
        return false;
    buf_addf(&r->numbered, "%6" PRIu64 "|", r->line);
    tool_text_add(&r->numbered, r->current.data ? r->current.data : "", at);
    buf_adds(&r->numbered, "\n");
    tool_text_add(&r->content, r->current.data ? r->current.data : "", at);
    if (has_newline)
        buf_adds(&r->content, "\n");
    r->kept++;
    r->cut += cut;
    return true;
}

/* False: the answer is complete. */
static bool read_file_end_line(struct read_file *r, bool has_newline)
{
    if (r->line >= r->first && !read_file_keep_line(r, has_newline))
        return false;
    r->line++;
    r->current_has_text = false;
    buf_clear(&r->current);
    return true;
}

static void read_file_add_bytes(struct read_file *r, const char *data, size_t len)
{
    size_t room = 4 * READ_LINE_CHARS + 4 - r->current.len;

    r->current_has_text = r->current_has_text || len > 0;
    if (r->line >= r->first)
        buf_add(&r->current, data, min_size(len, room));
}

static void read_file_on_data(void *arg, const void *data, size_t len)
{
    struct read_file *r = arg;
    const char *p = data, *end = p + len;

    if (r->is_over)
        return;
    if (r->scanned == 0 && tool_file_is_binary(data, len)) {
        read_file_refuse(r, ERR_WRONG_KIND,
                         "is a binary file; get it with return_files, or examine it with bash (file, xxd)");
        return;
    }
    r->scanned += len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));

        if (r->kept == r->limit) {
            read_file_answer(r, true);
            return;
        }
        read_file_add_bytes(r, p, (size_t)((newline ? newline : end) - p));
        if (!newline)
            break;
        p = newline + 1;
        if (!read_file_end_line(r, true)) {
            read_file_answer(r, true);
            return;
        }
    }
    if (r->scanned > READ_SCAN_MAX)
        read_file_refuse(r, ERR_LIMIT, "the lines come after its first 256M; read them with bash (sed -n, tail)");
}

static void read_file_on_end(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct read_file *r = arg;
    bool fits = true;

    if (r->is_over)
        return;
    if (err) {
        tool_file_fail(&r->file, err);
        return;
    }
    if (r->current_has_text && r->kept < r->limit)
        fits = read_file_end_line(r, false);
    read_file_answer(r, !fits);
}

static int read_file_start(struct tool_call *c, struct err *err)
{
    static const struct tool_file_ops ops = { .on_data = read_file_on_data, .on_end = read_file_on_end };
    const json_t *a = c->request.arguments;
    uint64_t first = 1, limit = READ_LINES_PRESET;
    char *path = NULL;

    if (json_input_u64(a, "", "offset", 1, READ_OFFSET_MAX, &first, NULL, err) < 0 ||
        json_input_u64(a, "", "limit", 1, READ_LINES_MAX, &limit, NULL, err) < 0 ||
        tool_arguments_path(a, "file_path", NULL, &path, err) < 0)
        return -1;
    struct read_file *r = mem_new(struct read_file);
    r->first = first;
    r->limit = limit;
    r->line = 1;
    c->work = r;
    c->stop = read_file_stop;
    tool_file_read(&r->file, c, path, 0, &ops, r);
    return 0;
}

const struct tool_definition tool_read_file = {
    .tool = { .name = "read_file",
              .title = "Read a text file",
              .description =
                  "Returns lines of a text file of the sandbox as `NNNNNN|text`, with line numbers. Reads 2000 lines "
                  "from the beginning unless offset and limit say otherwise; lines are cut after 2000 characters, and "
                  "the result says where to read on. Use grep to find text, list or glob to find files, and "
                  "return_files for images and other binary files. The numbers are not part of the file: omit them in "
                  "edit_file.",
              .input_schema = read_file_input,
              .output_schema = read_file_output,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_READS_FILES,
              .is_read_only = true,
              .is_idempotent = true },
    .start = read_file_start,
};
