/* One operation at a time: list a directory for one part of a pattern, or read one file. A name
 * that a directory lists is never trusted further than its next operation, which the runtime
 * carries out inside of the sandbox. */
#include "service/tools/tool_collect.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "service/execute/run_path.h"

#include <stdio.h>

#define COLLECT_DIRS_MAX 64u
#define COLLECT_NAMES_MAX 10000u
#define COLLECT_FILES_MAX 100u
#define COLLECT_OMITTED_MAX 50u

struct collect_item {
    struct collect_item *next;
    char *path;
    char *rest;    /* the pattern to match in the directory; NULL: path is a file */
    bool is_named; /* the request named it, so its absence is reported */
};

static void collect_item_free(struct collect_item *i)
{
    if (!i)
        return;
    free(i->path);
    free(i->rest);
    free(i);
}

void tool_collect_done(struct tool_collect *t)
{
    tool_file_done(&t->file);
    collect_item_free(take_ptr(&t->current));
    while (t->queue) {
        struct collect_item *i = t->queue;

        t->queue = i->next;
        collect_item_free(i);
    }
    json_decref(t->files);
    json_decref(t->omitted);
    *t = (struct tool_collect){ 0 };
}

static json_t *collect_string(const char *text)
{
    auto_buf valid = { 0 };

    tool_text_add(&valid, text, strlen(text));
    return json_string(valid.data ? valid.data : "");
}

static void collect_omit(struct tool_collect *t, const char *path, const char *reason)
{
    const char *shown = path;

    (void)str_eat(&shown, "/workspace/");
    if (json_array_size(t->omitted) < COLLECT_OMITTED_MAX)
        json_array_append_new(t->omitted,
                              json_pack("{s:o,s:o}", "path", collect_string(shown), "reason", collect_string(reason)));
}

static void collect_add_item(struct tool_collect *t, char *path, const char *rest, bool named)
{
    struct collect_item *i = mem_new(struct collect_item), **at = &t->queue;

    i->path = path;
    i->rest = rest ? str_dup(rest) : NULL;
    i->is_named = named;
    while (*at)
        at = &(*at)->next;
    *at = i;
    t->nqueued++;
}

static void collect_next(struct tool_collect *t);

static void collect_item_end(struct tool_collect *t)
{
    collect_item_free(take_ptr(&t->current));
    collect_next(t);
}

/* --- directories --- */

static void collect_on_name(void *arg, const struct files_entry *e)
{
    struct tool_collect *t = arg;
    const char *left, *rest = NULL;
    char *dir = NULL;

    if (t->nqueued >= COLLECT_NAMES_MAX || !run_path_matches(t->current->rest, e->name, &left) ||
        (e->kind != 'f' && !(*left && e->kind == 'd')))
        return;
    if (!*left) {
        collect_add_item(t, str_printf("%s/%s", t->current->path, e->name), NULL, false);
        return;
    }
    auto_free char *whole = str_printf("%s/%s/%s", t->current->path, e->name, left);
    if (run_path_split(whole, &dir, &rest))
        collect_add_item(t, dir, rest, false);
    else
        collect_add_item(t, take_ptr(&whole), NULL, false);
}

static void collect_on_listed(void *arg, const struct files_done *d, const struct err *err)
{
    struct tool_collect *t = arg;

    if (err && !t->file.is_acquired) {
        t->on_end(t->arg, err);
        return;
    }
    if (d && d->truncated)
        collect_omit(t, t->current->path, "the directory has too many entries; only the first were matched");
    collect_item_end(t);
}

/* --- files --- */

static void collect_add_file(struct tool_collect *t, const char *path, const struct buf *data)
{
    const char *content = data->data ? data->data : "", *shown = path;
    json_t *file = json_object();

    (void)str_eat(&shown, "/workspace/");
    json_object_set_new(file, "path", collect_string(shown));
    json_object_set_new(file, "sizeBytes", json_integer((json_int_t)data->len));
    if (text_is_utf8(content, data->len) && !memchr(content, '\0', data->len)) {
        json_object_set_new(file, "content", json_stringn(content, data->len));
    } else {
        auto_buf coded = { 0 };

        text_base64(&coded, content, data->len);
        json_object_set_new(file, "contentBase64", json_string(coded.data));
    }
    json_array_append_new(t->files, file);
    t->bytes += data->len;
}

static void collect_on_read(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct tool_collect *t = arg;

    if (err && !t->file.is_acquired) {
        t->on_end(t->arg, err);
        return;
    }
    if (err && err->id == ERR_LIMIT)
        collect_omit(t, t->current->path, "too large for the rest of the result");
    else if (err && (t->current->is_named || err->id != ERR_MISSING))
        collect_omit(t, t->current->path, err->msg);
    else if (!err)
        collect_add_file(t, t->current->path, &t->file.data);
    collect_item_end(t);
}

/* --- all of it --- */

static void collect_next(struct tool_collect *t)
{
    static const struct tool_file_ops list_ops = { .on_name = collect_on_name, .on_end = collect_on_listed };
    static const struct tool_file_ops read_ops = { .on_end = collect_on_read };

    while (t->queue) {
        struct collect_item *i = t->current = t->queue;

        t->queue = i->next;
        t->nqueued--;
        if (i->rest && t->ndirs++ < COLLECT_DIRS_MAX) {
            tool_file_list(&t->file, t->call, str_dup(i->path), COLLECT_NAMES_MAX, &list_ops, t);
            return;
        }
        if (!i->rest && json_array_size(t->files) < COLLECT_FILES_MAX) {
            tool_file_read(&t->file, t->call, str_dup(i->path), t->bytes_max - t->bytes, &read_ops, t);
            return;
        }
        collect_omit(t, i->path, i->rest ? "too many directories to search" : "too many files");
        collect_item_free(take_ptr(&t->current));
    }
    t->on_end(t->arg, NULL);
}

void tool_collect_start(struct tool_collect *t, struct tool_call *c, const char *const *patterns, uint64_t bytes_max,
                        void (*on_end)(void *arg, const struct err *err), void *arg)
{
    t->call = c;
    t->bytes_max = bytes_max;
    t->on_end = on_end;
    t->arg = arg;
    t->files = json_array();
    t->omitted = json_array();
    for (; *patterns; patterns++) {
        const char *rest = NULL;
        char *dir = NULL;

        if (run_path_split(*patterns, &dir, &rest))
            collect_add_item(t, dir, rest, true);
        else
            collect_add_item(t, str_dup(*patterns), NULL, true);
    }
    collect_next(t);
}

/* --- arguments --- */

void tool_collect_free_patterns(char **patterns)
{
    for (char **p = patterns; p && *p; p++)
        free(*p);
    free(patterns);
}

int tool_collect_read_patterns(const json_t *arguments, const char *name, char ***ret, struct err *err)
{
    json_t *list = NULL;
    char what[48];

    if (json_input_array(arguments, "", name, TOOL_COLLECT_PATTERNS_MAX, &list, err) < 0)
        return -1;
    if (!list)
        return 0;
    char **all = mem_alloc((json_array_size(list) + 1) * sizeof(*all));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));

        snprintf(what, sizeof(what), "%s[%zu]", name, i);
        if ((!text && err_set(err, ERR_INVALID, "%s: must be a path or a pattern of paths", what) < 0) ||
            run_path_resolve(text, what, &all[i], err) < 0) {
            tool_collect_free_patterns(all);
            return -1;
        }
    }
    *ret = all;
    return 0;
}
