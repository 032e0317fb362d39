/* grep: lines that match an expression, by the grep of the sandbox's image.
 *
 * A search is an execution of a fixed program without a shell; the arguments of the call are only
 * its pattern, its options from a fixed set, and a path after "--". File names arrive with a NUL
 * after them, so a name with a newline or a colon cannot be taken for something else. The output is
 * hostile all the same: it is bounded, and a part that cannot be read is skipped. */
#include "service/tools/glob_pattern.h"
#include "service/tools/grep_output.h"
#include "service/tools/tool_program.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define GREP_PATTERN_MAX 4096u
#define GREP_CONTEXT_MAX 20u
#define GREP_LIMIT_PRESET 200u
#define GREP_LIMIT_MAX 10000u
#define GREP_LINE_BYTES 500u
#define GREP_OUTPUT_MAX (2 * MIB)
#define GREP_STDERR_SHOWN 400u

/* clang-format off */
static const char grep_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "A POSIX extended regular expression, with \\w, \\b and \\s, for one line at a time. It is applied to bytes: ignore_case is for ASCII letters."},
        "path": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "A file, or a directory that is searched with everything below. Default: /workspace."},
        "glob": {"type": "string", "minLength": 1, "maxLength": 1024, "description": "Search only files whose paths below path match, as for the tool glob: *.py, src/**/*.c."},
        "output_mode": {"enum": ["content", "files", "count"], "description": "Matching lines (default), only the names of files with a match, or the number of matching lines of each."},
        "ignore_case": {"type": "boolean"},
        "fixed": {"type": "boolean", "description": "The pattern is plain text. Default: false."},
        "context": {"type": "integer", "minimum": 0, "maximum": 20, "description": "Lines to show before and after each match. Default: 0."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10000, "description": "Number of lines or files. Default: 200."},
        "timeout_ms": {"type": "integer", "minimum": 1}
    },
    "required": ["pattern"],
    "additionalProperties": false
});
static const char grep_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {
            "path": {"type": "string", "description": "Relative to path; of path itself if that is a file."},
            "line": {"type": "integer"},
            "text": {"type": "string", "description": "At most 500 bytes of the line."},
            "is_match": {"type": "boolean", "description": "False: a line of the context."}},
            "required": ["path", "line", "text", "is_match"]}},
        "files": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "array", "items": {"type": "object", "properties": {
            "path": {"type": "string"}, "count": {"type": "integer"}}, "required": ["path", "count"]}},
        "complete": {"type": "boolean", "description": "False: there may be more matches."},
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
    "anyOf": [{"required": ["path", "lines", "complete"]}, {"required": ["path", "files", "complete"]}, {"required": ["path", "counts", "complete"]}, {"required": ["error"]}]
});
/* clang-format on */

enum grep_mode { GREP_CONTENT, GREP_FILES, GREP_COUNT };

struct grep_tool {
    struct tool_call *call;
    void *program; /* the work of tool_program.h */
    void (*program_stop)(void *work);
    char *path;
    struct glob_pattern *glob; /* NULL: every file */
    unsigned mode;
    uint64_t limit;

    /* The answer. */
    struct jsonw w;
    uint64_t found;
    bool is_incomplete;
};

static void grep_stop(void *work)
{
    struct grep_tool *g = work;

    if (g->program)
        g->program_stop(take_ptr(&g->program));
    glob_pattern_free(g->glob);
    free(g->path);
    free(g);
}

/* --- the output of grep --- */

/* The path of a file as it is shown: below the searched directory. */
static const char *grep_shown_path(const struct grep_tool *g, const char *path)
{
    const char *p = path;

    if (str_eat(&p, g->path))
        while (*p == '/')
            p++;
    return *p ? p : path;
}

static void grep_add_line(struct grep_tool *g, const char *path, char separator, const char *text, size_t len)
{
    struct buf *out = &g->call->answer.text;
    auto_free char *shown = str_dup(path);

    str_strip_control_chars(shown);
    buf_adds(out, out->len ? "\n" : "");
    tool_text_add(out, shown, strlen(shown));
    if (separator)
        buf_addf(out, "%c", separator);
    tool_text_add(out, text, len);
}

static bool grep_add_content(struct grep_tool *g, const char *path, const char *text, size_t len)
{
    auto_buf shown = { 0 };
    uint64_t number;
    bool is_match;
    size_t head;

    if (!grep_output_parse_line(text, len, &number, &is_match, &head))
        return false;
    size_t kept = tool_text_whole_length(text + head, min_size(len - head, GREP_LINE_BYTES));
    tool_text_add(&shown, text + head, kept);
    jsonw_object(&g->w);
    jsonw_kstr(&g->w, "path", path);
    jsonw_ku64(&g->w, "line", number);
    jsonw_kstr(&g->w, "text", shown.data ? shown.data : "");
    jsonw_kbool(&g->w, "is_match", is_match);
    jsonw_end_object(&g->w);
    grep_add_line(g, path, is_match ? ':' : '-', text, head + kept);
    if (kept < len - head)
        buf_adds(&g->call->answer.text, " [...]");
    return true;
}

static bool grep_add_count(struct grep_tool *g, const char *path, const char *text, size_t len)
{
    uint64_t count;

    if (!grep_output_parse_count(text, len, &count))
        return false;
    jsonw_object(&g->w);
    jsonw_kstr(&g->w, "path", path);
    jsonw_ku64(&g->w, "count", count);
    jsonw_end_object(&g->w);
    grep_add_line(g, path, ':', text, len);
    return true;
}

static void grep_add_record(void *arg, const char *name, const char *text, size_t len)
{
    struct grep_tool *g = arg;
    const char *path = grep_shown_path(g, name);
    bool added = true;

    if (g->glob && !glob_pattern_matches(g->glob, path))
        return;
    if (g->found == g->limit || g->call->answer.text.len >= g->call->tools->settings.output_bytes) {
        g->is_incomplete = true;
        return;
    }
    if (g->mode == GREP_CONTENT) {
        added = grep_add_content(g, path, text, len);
    } else if (g->mode == GREP_COUNT) {
        added = grep_add_count(g, path, text, len);
    } else {
        jsonw_str(&g->w, path);
        grep_add_line(g, path, '\0', "", 0);
    }
    g->found += added;
}

/* --- the answer --- */

static void grep_read_output(const struct grep_tool *g, const char *id, int channel, uint64_t max, struct buf *out)
{
    auto_fd int fd = manager_open_output(g->call->tools->settings.manager, id, channel);
    ssize_t n = fd < 0 ? 0 : fd_pread_full(fd, buf_room(out, (size_t)max), (size_t)max, 0);

    if (n > 0)
        out->len += (size_t)n;
    if (out->data)
        out->data[out->len] = '\0';
}

static void grep_answer_failed(struct grep_tool *g, const struct store_execution *row, const struct buf *text)
{
    struct err err;

    if (str_eq(row->outcome ? row->outcome : "", "timeout"))
        err_set(&err, ERR_TIMEOUT, "the search ran too long; narrow path or glob, or raise timeout_ms");
    else if (text->len)
        err_set(&err, ERR_INVALID, "%.200s", text->data);
    else
        err_set(&err, ERR_SYS, "grep could not be run in the sandbox (%s)", row->outcome ? row->outcome : "lost");
    err_sanitize(&err);
    tool_call_finish_with_error(g->call, &err, g->path);
}

static void grep_finish_answer(struct grep_tool *g)
{
    struct tool_answer *a = &g->call->answer;

    jsonw_end_array(&g->w);
    jsonw_kbool(&g->w, "complete", !g->is_incomplete);
    jsonw_end_object(&g->w);
    a->is_truncated = g->is_incomplete;
    if (g->found == 0)
        buf_adds(&a->text, "No line matches.");
    if (g->is_incomplete)
        buf_adds(&a->text, "\n[there may be more matches; use a narrower pattern, path or glob, or a higher limit]");
    tool_call_finish(g->call);
}

/* Exit codes: 0 something matches, 1 nothing does, 2 an error, possibly in one of many files. */
static void grep_on_ended(struct tool_call *c, const struct store_execution *row)
{
    static const char *const lists[] = { "lines", "files", "counts" };
    struct grep_tool *g = c->work;
    auto_buf out = { 0 }, errors = { 0 };
    bool finished = row->has_exit_code && row->exit_code <= 1;

    (void)str_copy(c->answer.execution, sizeof(c->answer.execution), row->id);
    grep_read_output(g, row->id, 1, GREP_OUTPUT_MAX, &out);
    grep_read_output(g, row->id, 2, GREP_STDERR_SHOWN, &errors);
    jsonw_init(&g->w, &c->answer.json, 0);
    jsonw_object(&g->w);
    jsonw_kstr(&g->w, "path", g->path);
    jsonw_karray(&g->w, lists[g->mode]);
    g->is_incomplete = !finished || row->dropped[0] > 0;
    if (!grep_output_read(&out, g->mode == GREP_FILES, grep_add_record, g))
        g->is_incomplete = true;
    if (!finished && g->found == 0)
        grep_answer_failed(g, row, &errors);
    else
        grep_finish_answer(g);
}

/* --- the start --- */

/* The last part of the pattern limits what grep opens; the whole pattern is applied to its
 * output. */
static char *grep_include_option(const char *glob)
{
    const char *slash = strrchr(glob, '/'), *name = slash ? slash + 1 : glob;

    return strpbrk(name, "{}") || str_eq(name, "**") || !*name ? str_dup("--include=*")
                                                               : str_printf("--include=%s", name);
}

struct grep_options {
    const char *pattern, *glob;
    bool ignore_case, fixed;
    uint64_t context, timeout_ms;
};

static void grep_start_program(struct grep_tool *g, const struct grep_options *o)
{
    static const char *const env[] = { "LC_ALL=C", NULL };
    static const char *const modes[] = { "-n", "-l", "-c" };
    auto_free char *include = o->glob ? grep_include_option(o->glob) : NULL;
    auto_free char *context = str_printf("-C%" PRIu64, o->context);
    struct execution_spec spec = { .env = env, .output_max = GREP_OUTPUT_MAX, .timeout_ms = o->timeout_ms };
    struct tool_call *c = g->call;
    const char *argv[24];
    size_t n = 0;

    argv[n++] = "grep";
    argv[n++] = "-rHIZ";
    argv[n++] = o->fixed ? "-F" : "-E";
    argv[n++] = modes[g->mode];
    argv[n++] = "--devices=skip";
    argv[n++] = "--color=never";
    argv[n++] = "--no-group-separator";
    argv[n++] = "--exclude-dir=.git";
    if (o->ignore_case)
        argv[n++] = "-i";
    if (o->context && g->mode == GREP_CONTENT)
        argv[n++] = context;
    if (include)
        argv[n++] = include;
    argv[n++] = "-e";
    argv[n++] = o->pattern;
    argv[n++] = "--";
    argv[n++] = g->path;
    argv[n] = NULL;
    spec.argv = argv;
    tool_program_start(c, &spec, NULL, grep_on_ended);
    g->program = c->work;
    g->program_stop = c->stop;
    c->work = g;
    c->stop = grep_stop;
}

static int grep_start(struct tool_call *c, struct err *err)
{
    static const char *const modes[] = { "content", "files", "count", NULL };
    struct grep_tool *g = mem_new(struct grep_tool);
    const json_t *a = c->request.arguments;
    struct grep_options o = { 0 };

    g->call = c;
    g->limit = GREP_LIMIT_PRESET;
    c->work = g;
    c->stop = grep_stop;
    if (json_input_text(a, "", "pattern", 1, GREP_PATTERN_MAX, &o.pattern, err) < 0 ||
        json_input_text(a, "", "glob", 1, GLOB_PATTERN_MAX, &o.glob, err) < 0 ||
        json_input_enum(a, "", "output_mode", modes, &g->mode, err) < 0 ||
        json_input_bool(a, "", "ignore_case", &o.ignore_case, err) < 0 ||
        json_input_bool(a, "", "fixed", &o.fixed, err) < 0 ||
        json_input_u64(a, "", "context", 0, GREP_CONTEXT_MAX, &o.context, NULL, err) < 0 ||
        json_input_u64(a, "", "limit", 1, GREP_LIMIT_MAX, &g->limit, NULL, err) < 0 ||
        tool_arguments_timeout(c, &o.timeout_ms, err) < 0 || (o.glob && glob_pattern_new(o.glob, &g->glob, err) < 0) ||
        tool_arguments_path(a, "path", "/workspace", &g->path, err) < 0)
        return -1;
    grep_start_program(g, &o);
    return 0;
}

const struct tool_definition tool_grep = {
    .tool = { .name = "grep",
              .title = "Find lines",
              .description =
                  "Finds lines that match a regular expression (POSIX extended, bytes) in text files of the sandbox, "
                  "below a "
                  "directory or in one file. Returns path:line:text, up to 200 lines, each cut after 500 bytes; or "
                  "only "
                  "the files, or counts. glob selects files, context shows the lines around a match. Skips binary "
                  "files, "
                  "links and .git. Use glob to find files by name, and read_file to see more of a file.",
              .input_schema = grep_input,
              .output_schema = grep_output,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_READS_FILES,
              .is_read_only = true,
              .is_idempotent = true },
    .start = grep_start,
};
