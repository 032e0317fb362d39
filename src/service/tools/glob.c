/* glob: files whose paths match a pattern.
 *
 * The walk asks the runtime for one directory after another, and enters only directories in which
 * something can match. It never follows a link, so it ends in every tree; a tree that changes
 * meanwhile costs at most GLOB_DIRS_MAX requests. Names are matched on the loop of the server, so
 * that is bounded too: names and pattern may be made to take long. */
#include "service/tools/glob_pattern.h"
#include "service/tools/tool_file.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define GLOB_LIMIT_PRESET 200u
#define GLOB_LIMIT_MAX 10000u
#define GLOB_DIRS_MAX 5000u
#define GLOB_NAMES_MAX 50000u /* of one directory */
#define GLOB_ENTRIES_MAX 500000u
#define GLOB_WALK_NS (20 * NS_PER_S)
#define GLOB_WORK_MAX 16000000u /* of glob_pattern_work, in one call: 0.2 s */

/* clang-format off */
static const char glob_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "minLength": 1, "maxLength": 1024, "description": "For example *.py (in every directory), src/**/*.{c,h}, docs/*.md."},
        "path": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "The directory in which the search begins. Default: /workspace."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 10000, "description": "Number of files. Default: 200."}
    },
    "required": ["pattern"],
    "additionalProperties": false
});
static const char glob_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "files": {"type": "array", "items": {"type": "string"}, "description": "Paths relative to path, sorted."},
        "complete": {"type": "boolean", "description": "False: there may be more files."},
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
    "anyOf": [{"required": ["path", "files", "complete"]}, {"required": ["error"]}]
});
/* clang-format on */

struct glob_dir {
    struct glob_dir *next;
    char *path; /* relative to the beginning; "": the beginning */
    struct glob_position at;
};

struct glob_walk {
    struct tool_call *call;
    struct tool_file file;
    char *base;
    struct glob_pattern *pattern;
    struct glob_dir *queue, **queue_end, *current;
    char **found;
    size_t nfound;
    uint64_t limit, ndirs, nentries, deadline_ns, work;
    bool is_incomplete;
};

static void glob_dir_free(struct glob_dir *d)
{
    if (d)
        free(d->path);
    free(d);
}

static void glob_stop(void *work)
{
    struct glob_walk *g = work;

    tool_file_done(&g->file);
    glob_dir_free(g->current);
    while (g->queue) {
        struct glob_dir *d = g->queue;

        g->queue = d->next;
        glob_dir_free(d);
    }
    for (size_t i = 0; i < g->nfound; i++)
        free(g->found[i]);
    free(g->found);
    glob_pattern_free(g->pattern);
    free(g->base);
    free(g);
}

static int glob_compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void glob_answer(struct glob_walk *g)
{
    struct tool_answer *a = &g->call->answer;
    uint64_t room = g->call->tools->settings.output_bytes;
    size_t shown = 0;
    struct jsonw w;

    if (g->nfound)
        qsort(g->found, g->nfound, sizeof(*g->found), glob_compare_paths);
    jsonw_init(&w, &a->json, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "path", g->base);
    jsonw_karray(&w, "files");
    for (; shown < g->nfound && a->text.len < room; shown++) {
        auto_free char *line = str_dup(g->found[shown]);

        jsonw_str(&w, g->found[shown]);
        str_strip_control_chars(line);
        buf_adds(&a->text, shown ? "\n" : "");
        tool_text_add(&a->text, line, strlen(line));
    }
    jsonw_end_array(&w);
    a->is_truncated = g->is_incomplete || shown < g->nfound;
    jsonw_kbool(&w, "complete", !a->is_truncated);
    jsonw_end_object(&w);
    if (g->nfound == 0)
        buf_adds(&a->text, "No file matches.");
    if (a->is_truncated)
        buf_adds(&a->text, "\n[there may be more files; use a narrower pattern or path, or a higher limit]");
    tool_call_finish(g->call);
}

static char *glob_join(const char *dir, const char *name)
{
    return *dir ? str_printf("%s/%s", dir, name) : str_dup(name);
}

static void glob_queue_dir(struct glob_walk *g, char *path, const struct glob_position *at)
{
    struct glob_dir *d = mem_new(struct glob_dir);

    d->path = path;
    d->at = *at;
    *g->queue_end = d;
    g->queue_end = &d->next;
    g->ndirs++;
}

static void glob_on_name(void *arg, const struct files_entry *e)
{
    struct glob_walk *g = arg;
    struct glob_position next;

    g->nentries++;
    g->work += glob_pattern_work(g->pattern, &g->current->at);
    if (g->work > GLOB_WORK_MAX) {
        g->is_incomplete = true;
        return;
    }
    bool matches = glob_pattern_step(g->pattern, &g->current->at, e->name, &next);
    if (matches && (e->kind == 'f' || e->kind == 'l')) {
        if (g->nfound == g->limit) {
            g->is_incomplete = true;
            return;
        }
        g->found = mem_resize(g->found, g->nfound + 1, sizeof(*g->found));
        g->found[g->nfound++] = glob_join(g->current->path, e->name);
    }
    if (e->kind != 'd' || !glob_pattern_continues(g->pattern, &next) || str_eq(e->name, ".git"))
        return;
    if (g->ndirs >= GLOB_DIRS_MAX)
        g->is_incomplete = true;
    else
        glob_queue_dir(g, glob_join(g->current->path, e->name), &next);
}

static void glob_next(struct glob_walk *g);

/* A directory that was removed meanwhile, or that may not be read, is skipped. */
static void glob_on_listed(void *arg, const struct files_done *d, const struct err *err)
{
    struct glob_walk *g = arg;
    bool is_base = g->current->path[0] == '\0';

    glob_dir_free(take_ptr(&g->current));
    if (err && (is_base || !g->file.is_acquired)) {
        tool_file_fail(&g->file, err);
        return;
    }
    g->is_incomplete = g->is_incomplete || (d && d->truncated) || (err && err->id != ERR_MISSING);
    glob_next(g);
}

static void glob_next(struct glob_walk *g)
{
    static const struct tool_file_ops ops = { .on_name = glob_on_name, .on_end = glob_on_listed };
    bool stops = g->nfound == g->limit || g->nentries > GLOB_ENTRIES_MAX || g->work > GLOB_WORK_MAX ||
                 ev_now(g->call->tools->settings.ev) > g->deadline_ns;

    if (!g->queue || stops) {
        g->is_incomplete = g->is_incomplete || g->queue;
        glob_answer(g);
        return;
    }
    g->current = g->queue;
    g->queue = g->current->next;
    if (!g->queue)
        g->queue_end = &g->queue;
    g->current->next = NULL;
    tool_file_list(&g->file, g->call, glob_join(g->base, g->current->path), GLOB_NAMES_MAX, &ops, g);
}

static int glob_start(struct tool_call *c, struct err *err)
{
    const json_t *a = c->request.arguments;
    uint64_t limit = GLOB_LIMIT_PRESET;
    const char *text = NULL;
    auto_(glob_pattern) pattern = NULL;
    struct glob_position at;
    char *base = NULL;

    if (json_input_text(a, "", "pattern", 1, GLOB_PATTERN_MAX, &text, err) < 0 ||
        json_input_u64(a, "", "limit", 1, GLOB_LIMIT_MAX, &limit, NULL, err) < 0 ||
        glob_pattern_new(text, &pattern, err) < 0 || tool_arguments_path(a, "path", "/workspace", &base, err) < 0)
        return -1;
    struct glob_walk *g = mem_new(struct glob_walk);
    glob_pattern_begin(pattern, &at);
    g->call = c;
    g->base = base;
    g->pattern = take_ptr(&pattern);
    g->limit = limit;
    g->deadline_ns = ev_now(c->tools->settings.ev) + GLOB_WALK_NS;
    g->queue_end = &g->queue;
    c->work = g;
    c->stop = glob_stop;
    glob_queue_dir(g, str_dup(""), &at);
    glob_next(g);
    return 0;
}

const struct tool_definition tool_glob = {
    .tool = { .name = "glob",
              .title = "Find files by name",
              .description =
                  "Finds files of the sandbox whose paths match a pattern: * and ? within a name, ** for any "
                  "directories, {a,b} for a choice; a pattern without a slash matches in every directory. Returns up "
                  "to "
                  "200 paths relative to path, sorted. Does not follow links and skips .git. Use grep to find files by "
                  "content, and list for one directory with sizes.",
              .input_schema = glob_input,
              .output_schema = glob_output,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_READS_FILES,
              .is_read_only = true,
              .is_idempotent = true },
    .start = glob_start,
};
