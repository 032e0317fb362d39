/* Files out: each path or pattern of the request in its order, one question to the sandbox at a time.
 *
 * All bounds are counted in one place: files, bytes, directories that are listed. What does not come is named with its
 * reason and never fails the run: its output is worth more than one file of it. A sandbox that does not answer has a
 * deadline. */
#include "executor/inside.h"

#include "base/clock.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"
#include "executor/path.h"

#include <inttypes.h>
#include <stdio.h>

#define PATIENCE_NS (10 * NS_PER_S)
#define LISTS_MAX 64u
#define NAMES_MAX 10000u /* of one directory */
#define OMITTED_MAX 50u

struct found { /* to be looked at: a directory with what is to match in it, or a file */
    struct found *next;
    char *path;
    char *rest; /* NULL: a file */
    bool asked; /* the request named it, so its absence is told */
};

struct piece {
    char *path;
    struct buf data;
};

struct left { /* out, and why */
    char *path;
    char why[160];
};

struct gather {
    struct found *queue;
    struct files_job *job;
    struct found *at; /* the job is about it */
    struct found **behind;
    struct buf data; /* of the file that is being read */
    struct piece *pieces;
    size_t npieces;
    struct left *left;
    size_t nleft, nmore;
    uint64_t bytes;
    unsigned lists;
    size_t nqueue; /* of names that matched and are not looked at yet */
    bool is_file;
    struct ev_timer timer;
    struct ev_defer next;
};

static void found_free(struct found *f)
{
    if (!f)
        return;
    free(f->path);
    free(f->rest);
    free(f);
}

void gather_free(struct run *r)
{
    struct gather *g = r->gather;

    if (!g)
        return;
    ev_timer_clear(r->e->set.ev, &g->timer);
    ev_defer_clear(r->e->set.ev, &g->next);
    files_free(g->job);
    found_free(g->at);
    buf_done(&g->data);
    while (g->queue) {
        struct found *f = g->queue;

        g->queue = f->next;
        found_free(f);
    }
    for (size_t i = 0; i < g->npieces; i++) {
        free(g->pieces[i].path);
        buf_done(&g->pieces[i].data);
    }
    for (size_t i = 0; i < g->nleft; i++)
        free(g->left[i].path);
    free(g->pieces);
    free(g->left);
    free(take_ptr(&r->gather));
}

uint64_t gather_bytes(const struct run *r)
{
    return r->gather ? r->gather->bytes : 0;
}

bool gather_short(const struct run *r)
{
    return r->gather && r->gather->nleft + r->gather->nmore > 0;
}

static void leave_out(struct gather *g, const char *path, const char *why)
{
    if (g->nleft == OMITTED_MAX) {
        g->nmore++;
        return;
    }
    g->left = mem_resize(g->left, g->nleft + 1, sizeof(*g->left));
    struct left *l = &g->left[g->nleft++];
    l->path = str_dup(path);
    snprintf(l->why, sizeof(l->why), "%s", why);
    str_tame(l->why);
}

/* --- one question after another --- */

static void ask_next(void *arg);

static void add(struct found ***at, char *path, const char *rest, bool asked)
{
    struct found *f = mem_new(struct found);

    f->path = path;
    f->rest = rest ? str_dup(rest) : NULL;
    f->asked = asked;
    f->next = **at;
    **at = f;
    *at = &f->next;
}

static void queue(struct gather *g, char *path, const char *rest)
{
    add(&g->behind, path, rest, false);
    g->nqueue++;
}

/* A name that matched: a file to read, a directory to look into, or the way to something without a pattern. */
static void follow(struct gather *g, const char *dir, const char *name, const char *left, char kind)
{
    auto_free char *path = str_printf("%s/%s", dir, name);

    if (!*left) {
        if (kind == 'f')
            queue(g, take_ptr(&path), NULL);
        return;
    }
    if (kind != 'd')
        return;
    auto_free char *whole = str_printf("%s/%s", path, left);
    char *inner = NULL;
    const char *rest = NULL;
    if (path_split(whole, &inner, &rest))
        queue(g, inner, rest);
    else
        queue(g, take_ptr(&whole), NULL);
}

static void on_name(void *arg, const struct files_entry *e)
{
    struct run *r = arg;
    struct gather *g = r->gather;
    const char *left;

    if (!path_matches(g->at->rest, e->name, &left))
        return;
    if (g->nqueue == NAMES_MAX)
        g->nmore++; /* they are kept until they are looked at, and there are patterns of patterns */
    else
        follow(g, g->at->path, e->name, left, e->kind);
}

static void answered(struct run *r)
{
    struct gather *g = r->gather;

    found_free(take_ptr(&g->at));
    files_free(take_ptr(&g->job));
    ev_defer(r->e->set.ev, &g->next, ask_next, r);
}

static void on_listed(void *arg, const struct files_done *d, const struct err *err)
{
    struct run *r = arg;
    struct gather *g = r->gather;

    if (err && g->at->asked)
        leave_out(g, g->at->path, err->msg);
    else if (d && d->truncated)
        leave_out(g, g->at->path, "the directory has more names than are looked at");
    answered(r);
}

static void on_file(void *arg, const struct files_entry *e)
{
    struct run *r = arg;

    r->gather->is_file = e->kind == 'f';
}

static void on_bytes(void *arg, const void *data, size_t len)
{
    struct run *r = arg;
    struct gather *g = r->gather;
    uint64_t room = RUN_GATHERED_BYTES + 1 - g->bytes - g->data.len; /* one byte more says that it is too large */

    buf_add(&g->data, data, min_size(len, (size_t)room));
}

static void on_read(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct run *r = arg;
    struct gather *g = r->gather;
    const char *why = NULL;

    if (err)
        why = g->at->asked || err->id != ERR_MISSING ? err->msg : "";
    else if (!g->is_file)
        why = "it is no regular file";
    else if (g->bytes + g->data.len > RUN_GATHERED_BYTES)
        why = "there is no room for it in an answer: all files together have at most 8 MiB";
    if (why) {
        if (*why)
            leave_out(g, g->at->path, why);
        buf_done(&g->data);
    } else {
        g->bytes += g->data.len;
        g->pieces = mem_resize(g->pieces, g->npieces + 1, sizeof(*g->pieces));
        g->pieces[g->npieces++] = (struct piece){ take_ptr(&g->at->path), g->data };
        g->data = (struct buf){ 0 };
    }
    answered(r);
}

static const struct files_ops list_ops = { .on_entry = on_name, .on_done = on_listed };
static const struct files_ops read_ops = { .on_entry = on_file, .on_data = on_bytes, .on_done = on_read };

static bool known_already(const struct gather *g, const char *path)
{
    for (size_t i = 0; i < g->npieces; i++)
        if (str_eq(g->pieces[i].path, path))
            return true;
    return false;
}

static int ask(struct run *r, struct err *err)
{
    struct gather *g = r->gather;
    struct box *b = r->guest.box;

    if (g->at->rest) {
        if (g->lists++ == LISTS_MAX)
            return err_set(err, ERR_LIMIT, "too many directories would have to be looked into");
        return files_list(b, g->at->path, NAMES_MAX, &list_ops, r, &g->job, err);
    }
    if (g->npieces == RUN_GATHERED_MAX)
        return err_set(err, ERR_LIMIT, "an answer has at most %u files", RUN_GATHERED_MAX);
    g->is_file = true;
    return files_read(b, g->at->path, 0, RUN_GATHERED_BYTES + 1 - g->bytes, &read_ops, r, &g->job, err);
}

static void ask_next(void *arg)
{
    struct run *r = arg;
    struct gather *g = r->gather;
    struct err err;

    while (g->queue) {
        g->at = g->queue;
        g->queue = g->at->next;
        g->nqueue -= !g->at->asked;
        g->at->next = NULL;
        g->behind = &g->queue;
        err = (struct err){ 0 };
        if (!g->at->rest && known_already(g, g->at->path)) {
            found_free(take_ptr(&g->at));
            continue;
        }
        if (ask(r, &err) == 0)
            return;
        leave_out(g, g->at->path, err.msg);
        found_free(take_ptr(&g->at));
    }
    ev_timer_clear(r->e->set.ev, &g->timer);
    run_told(r);
}

static void on_late(void *arg)
{
    struct run *r = arg;
    struct gather *g = r->gather;

    ev_defer_clear(r->e->set.ev, &g->next);
    leave_out(g, g->at ? g->at->path : "/workspace", "the sandbox did not answer in time");
    files_free(take_ptr(&g->job));
    run_told(r);
}

void gather_begin(struct run *r)
{
    struct gather *g = r->gather = mem_new(struct gather);
    struct found **at = &g->queue;

    for (const char *const *p = r->req.outputs; *p; p++) {
        char *dir = NULL;
        const char *rest = NULL;

        if (path_split(*p, &dir, &rest))
            add(&at, dir, rest, true);
        else
            add(&at, str_dup(*p), NULL, true);
    }
    ev_timer_set(r->e->set.ev, &g->timer, ev_now(r->e->set.ev) + PATIENCE_NS, on_late, r);
    ask_next(r);
}

/* --- told --- */

static const char *shown(const char *path)
{
    const char *p = path;

    return str_eat(&p, "/workspace/") ? p : path;
}

void gather_json(const struct run *r, struct jsonw *w)
{
    const struct gather *g = r->gather;

    if (!r->req.outputs)
        return;
    jsonw_key(w, "files");
    jsonw_array(w);
    for (size_t i = 0; g && i < g->npieces; i++) {
        auto_buf coded = { 0 };

        text_base64(&coded, g->pieces[i].data.data ? g->pieces[i].data.data : "", g->pieces[i].data.len);
        jsonw_object(w);
        jsonw_kstr(w, "path", shown(g->pieces[i].path));
        jsonw_ku64(w, "size", g->pieces[i].data.len);
        jsonw_kstr(w, "contentBase64", coded.data ? coded.data : "");
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    jsonw_key(w, "omitted");
    jsonw_array(w);
    for (size_t i = 0; g && i < g->nleft; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "path", shown(g->left[i].path));
        jsonw_kstr(w, "reason", g->left[i].why);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    if (g && g->nmore)
        jsonw_ku64(w, "omittedMore", g->nmore);
}
