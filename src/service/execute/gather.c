/* Collects output files: each path or pattern of the request in order, one request to the sandbox
 * at a time.
 *
 * All limits are counted in one place: files, bytes, listed directories. A file that cannot be
 * collected is listed with its reason and never fails the run, because the output of the run is
 * worth more than one of its files. The collection has a deadline, in case the sandbox does not
 * answer. */
#include "service/execute/executor_internal.h"

#include "core/base/clock.h"
#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "service/execute/run_path.h"

#include <inttypes.h>
#include <stdio.h>

#define PATIENCE_NS (10 * NS_PER_S)
#define GATHER_DIRS_MAX 64u
#define GATHER_NAMES_MAX 10000u /* in one directory */
#define GATHER_OMITTED_MAX 50u

/* One step: a directory and the pattern to match in it, or a file. */
struct gather_item {
    struct gather_item *next;
    char *path;
    char *pattern;         /* NULL: path is a file */
    bool named_in_request; /* the request named it, so its absence is reported */
};

struct gather_file {
    char *path;
    struct buf data;
};

struct gather_omission { /* a file that was not collected */
    char *path;
    char reason[160];
};

struct gather {
    struct gather_item *queue;
    struct files_job *job;
    struct gather_item *current; /* the subject of job */
    struct gather_item **insert_at;
    struct buf data; /* of the file being read */
    struct gather_file *files;
    size_t nfiles;
    struct gather_omission *omissions;
    size_t nomissions, nmore_omitted;
    uint64_t bytes;
    unsigned ndirs_listed;
    size_t nmatches_queued; /* matched names that are still in the queue */
    bool is_file;
    struct ev_timer timer;
    struct ev_defer next_defer;
};

static void gather_item_free(struct gather_item *f)
{
    if (!f)
        return;
    free(f->path);
    free(f->pattern);
    free(f);
}

void gather_free(struct run *r)
{
    struct gather *g = r->gather;

    if (!g)
        return;
    ev_timer_clear(r->executor->settings.ev, &g->timer);
    ev_defer_clear(r->executor->settings.ev, &g->next_defer);
    files_free(g->job);
    gather_item_free(g->current);
    buf_done(&g->data);
    while (g->queue) {
        struct gather_item *f = g->queue;

        g->queue = f->next;
        gather_item_free(f);
    }
    for (size_t i = 0; i < g->nfiles; i++) {
        free(g->files[i].path);
        buf_done(&g->files[i].data);
    }
    for (size_t i = 0; i < g->nomissions; i++)
        free(g->omissions[i].path);
    free(g->files);
    free(g->omissions);
    free(take_ptr(&r->gather));
}

uint64_t gather_bytes(const struct run *r)
{
    return r->gather ? r->gather->bytes : 0;
}

bool gather_is_incomplete(const struct run *r)
{
    return r->gather && r->gather->nomissions + r->gather->nmore_omitted > 0;
}

static void gather_omit(struct gather *g, const char *path, const char *why)
{
    if (g->nomissions == GATHER_OMITTED_MAX) {
        g->nmore_omitted++;
        return;
    }
    g->omissions = mem_resize(g->omissions, g->nomissions + 1, sizeof(*g->omissions));
    struct gather_omission *l = &g->omissions[g->nomissions++];
    l->path = str_dup(path);
    snprintf(l->reason, sizeof(l->reason), "%s", why);
    str_strip_control_chars(l->reason);
}

/* --- one request after another --- */

static void gather_next(void *arg);

static void gather_add_item(struct gather_item ***at, char *path, const char *rest, bool asked)
{
    struct gather_item *f = mem_new(struct gather_item);

    f->path = path;
    f->pattern = rest ? str_dup(rest) : NULL;
    f->named_in_request = asked;
    f->next = **at;
    **at = f;
    *at = &f->next;
}

static void gather_queue_match(struct gather *g, char *path, const char *rest)
{
    gather_add_item(&g->insert_at, path, rest, false);
    g->nmatches_queued++;
}

/* Handles a matched name: a file to read, a directory to list, or the prefix of a path without
 * another pattern. */
static void gather_follow_match(struct gather *g, const char *dir, const char *name, const char *left, char kind)
{
    auto_free char *path = str_printf("%s/%s", dir, name);

    if (!*left) {
        if (kind == 'f')
            gather_queue_match(g, take_ptr(&path), NULL);
        return;
    }
    if (kind != 'd')
        return;
    auto_free char *whole = str_printf("%s/%s", path, left);
    char *inner = NULL;
    const char *rest = NULL;
    if (run_path_split(whole, &inner, &rest))
        gather_queue_match(g, inner, rest);
    else
        gather_queue_match(g, take_ptr(&whole), NULL);
}

static void gather_on_name(void *arg, const struct files_entry *e)
{
    struct run *r = arg;
    struct gather *g = r->gather;
    const char *left;

    if (!run_path_matches(g->current->pattern, e->name, &left))
        return;
    if (g->nmatches_queued == GATHER_NAMES_MAX)
        g->nmore_omitted++; /* limits queued names, because patterns in several parts of a path multiply */
    else
        gather_follow_match(g, g->current->path, e->name, left, e->kind);
}

static void gather_item_done(struct run *r)
{
    struct gather *g = r->gather;

    gather_item_free(take_ptr(&g->current));
    files_free(take_ptr(&g->job));
    ev_defer(r->executor->settings.ev, &g->next_defer, gather_next, r);
}

static void gather_on_listed(void *arg, const struct files_done *d, const struct err *err)
{
    struct run *r = arg;
    struct gather *g = r->gather;

    if (err && g->current->named_in_request)
        gather_omit(g, g->current->path, err->msg);
    else if (d && d->truncated)
        gather_omit(g, g->current->path, "the directory has too many entries; only the first were matched");
    gather_item_done(r);
}

static void gather_on_file_entry(void *arg, const struct files_entry *e)
{
    struct run *r = arg;

    r->gather->is_file = e->kind == 'f';
}

static void gather_on_data(void *arg, const void *data, size_t len)
{
    struct run *r = arg;
    struct gather *g = r->gather;
    /* One byte more shows that the file is too large. */
    uint64_t room = RUN_GATHERED_BYTES + 1 - g->bytes - g->data.len;

    buf_add(&g->data, data, min_size(len, (size_t)room));
}

static void gather_on_read(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct run *r = arg;
    struct gather *g = r->gather;
    const char *why = NULL;

    if (err)
        why = g->current->named_in_request || err->id != ERR_MISSING ? err->msg : "";
    else if (!g->is_file)
        why = "not a regular file";
    else if (g->bytes + g->data.len > RUN_GATHERED_BYTES)
        why = "too large: the output files together may have at most 8 MiB";
    if (why) {
        if (*why)
            gather_omit(g, g->current->path, why);
        buf_done(&g->data);
    } else {
        g->bytes += g->data.len;
        g->files = mem_resize(g->files, g->nfiles + 1, sizeof(*g->files));
        g->files[g->nfiles++] = (struct gather_file){ take_ptr(&g->current->path), g->data };
        g->data = (struct buf){ 0 };
    }
    gather_item_done(r);
}

static const struct files_ops gather_list_ops = { .on_entry = gather_on_name, .on_done = gather_on_listed };
static const struct files_ops gather_read_ops = { .on_entry = gather_on_file_entry,
                                                  .on_data = gather_on_data,
                                                  .on_done = gather_on_read };

static bool gather_has_file(const struct gather *g, const char *path)
{
    for (size_t i = 0; i < g->nfiles; i++)
        if (str_eq(g->files[i].path, path))
            return true;
    return false;
}

static int gather_request_item(struct run *r, struct err *err)
{
    struct gather *g = r->gather;
    struct sandbox_handle *b = r->sandbox.handle;

    if (g->current->pattern) {
        if (g->ndirs_listed++ == GATHER_DIRS_MAX)
            return err_set(err, ERR_LIMIT, "too many directories to search; use a more specific pattern");
        struct files_request list = { FILES_OP_LIST, g->current->path, .length = GATHER_NAMES_MAX };
        return files_open(b, &list, &gather_list_ops, r, &g->job, err);
    }
    if (g->nfiles == RUN_GATHERED_MAX)
        return err_set(err, ERR_LIMIT, "too many files: a result has at most %u", RUN_GATHERED_MAX);
    g->is_file = true;
    struct files_request read = { FILES_OP_READ, g->current->path, .length = RUN_GATHERED_BYTES + 1 - g->bytes };
    return files_open(b, &read, &gather_read_ops, r, &g->job, err);
}

static void gather_next(void *arg)
{
    struct run *r = arg;
    struct gather *g = r->gather;
    struct err err;

    while (g->queue) {
        g->current = g->queue;
        g->queue = g->current->next;
        g->nmatches_queued -= !g->current->named_in_request;
        g->current->next = NULL;
        g->insert_at = &g->queue;
        err = (struct err){ 0 };
        if (!g->current->pattern && gather_has_file(g, g->current->path)) {
            gather_item_free(take_ptr(&g->current));
            continue;
        }
        if (gather_request_item(r, &err) == 0)
            return;
        gather_omit(g, g->current->path, err.msg);
        gather_item_free(take_ptr(&g->current));
    }
    ev_timer_clear(r->executor->settings.ev, &g->timer);
    run_complete_with_result(r);
}

static void gather_on_timeout(void *arg)
{
    struct run *r = arg;
    struct gather *g = r->gather;

    ev_defer_clear(r->executor->settings.ev, &g->next_defer);
    gather_omit(g, g->current ? g->current->path : "/workspace", "the sandbox did not answer in time");
    files_free(take_ptr(&g->job));
    run_complete_with_result(r);
}

void gather_start(struct run *r)
{
    struct gather *g = r->gather = mem_new(struct gather);
    struct gather_item **at = &g->queue;

    for (const char *const *p = r->request.outputs; *p; p++) {
        char *dir = NULL;
        const char *rest = NULL;

        if (run_path_split(*p, &dir, &rest))
            gather_add_item(&at, dir, rest, true);
        else
            gather_add_item(&at, str_dup(*p), NULL, true);
    }
    ev_timer_set(r->executor->settings.ev, &g->timer, ev_now(r->executor->settings.ev) + PATIENCE_NS, gather_on_timeout,
                 r);
    gather_next(r);
}

/* --- the JSON --- */

static const char *gather_shown_path(const char *path)
{
    const char *p = path;

    return str_eat(&p, "/workspace/") ? p : path;
}

void gather_json(const struct run *r, struct jsonw *w)
{
    const struct gather *g = r->gather;

    if (!r->request.outputs)
        return;
    jsonw_key(w, "files");
    jsonw_array(w);
    for (size_t i = 0; g && i < g->nfiles; i++) {
        const struct buf *data = &g->files[i].data;
        const char *content = data->data ? data->data : "";
        auto_buf coded = { 0 };

        jsonw_object(w);
        jsonw_kstr(w, "path", gather_shown_path(g->files[i].path));
        jsonw_ku64(w, "sizeBytes", data->len);
        if (text_is_utf8(content, data->len)) {
            jsonw_key(w, "content");
            jsonw_strn(w, content, data->len);
        } else {
            text_base64(&coded, content, data->len);
            jsonw_kstr(w, "contentBase64", coded.data);
        }
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    jsonw_key(w, "omitted");
    jsonw_array(w);
    for (size_t i = 0; g && i < g->nomissions; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "path", gather_shown_path(g->omissions[i].path));
        jsonw_kstr(w, "reason", g->omissions[i].reason);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    if (g && g->nmore_omitted)
        jsonw_ku64(w, "omittedMore", g->nmore_omitted);
}
