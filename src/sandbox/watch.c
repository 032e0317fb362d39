/* Those who follow an execution. Output may come many times in a turn; a watch is told once, at its end. */
#include "sandbox/contexts.h"

#include "base/mem.h"
#include "base/str.h"

static void tell(void *arg)
{
    struct ex *ex = arg;
    struct watch *next;

    for (struct watch *w = ex->watches; w; w = next) {
        next = w->next;
        w->fn(w->arg, NULL);
    }
}

void ex_tell(struct ex *ex)
{
    if (ex->watches)
        ev_defer(ex->sb->m->ev, &ex->tell, tell, ex);
}

void ex_tell_end(struct ex *ex, const struct store_execution *row)
{
    while (ex->watches) {
        struct watch *w = ex->watches;

        ex->watches = w->next;
        w->ex = NULL;
        w->fn(w->arg, row);
    }
}

struct ex *ex_find(const struct sb *sb, const char *id)
{
    struct ex *ex = sb->execs;

    while (ex && !str_eq(ex->id, id))
        ex = ex->next;
    return ex;
}

struct watch *manager_watch(struct manager *m, const char *owner, const char *sandbox, const char *id, watch_fn *fn,
                            void *arg)
{
    struct sb *sb = sb_find(m, owner, sandbox);
    struct ex *ex = sb ? ex_find(sb, id) : NULL;

    if (!ex || !ex->inserted)
        return NULL;
    struct watch *w = mem_new(struct watch);
    w->ex = ex;
    w->fn = fn;
    w->arg = arg;
    w->next = ex->watches;
    ex->watches = w;
    return w;
}

void watch_free(struct watch *w)
{
    if (w && w->ex) {
        struct watch **p = &w->ex->watches;

        while (*p != w)
            p = &(*p)->next;
        *p = w->next;
    }
    free(w);
}

uint64_t watch_bytes(const struct watch *w, int channel)
{
    return w->ex ? w->ex->len[channel - 1] : 0;
}

uint64_t watch_kept(const struct watch *w)
{
    return w->ex ? w->ex->forgotten : 0;
}

uint64_t watch_input(const struct watch *w)
{
    return w->ex ? w->ex->input_sent : 0;
}

bool watch_started(const struct watch *w)
{
    return w->ex && w->ex->started;
}

void watch_signal(struct watch *w, int signo)
{
    struct ex *ex = w->ex;

    if (!ex || ex->ended)
        return;
    if (ex->exec)
        exec_signal(ex->exec, signo);
    else
        call_signal(ex, signo);
}

bool watch_resize(struct watch *w, uint16_t rows, uint16_t cols)
{
    struct ex *ex = w->ex;

    if (!ex || !ex->spec.tty)
        return false;
    if (ex->spec.rows == rows && ex->spec.cols == cols)
        return true;
    ex->spec.rows = rows;
    ex->spec.cols = cols;
    if (ex->exec && !ex->ended)
        exec_resize(ex->exec, rows, cols);
    ex_tell(ex);
    return true;
}

bool watch_size(const struct watch *w, uint16_t *rows, uint16_t *cols)
{
    if (!w->ex || !w->ex->spec.tty)
        return false;
    *rows = w->ex->spec.rows;
    *cols = w->ex->spec.cols;
    return true;
}

void watch_kill(struct watch *w)
{
    if (w->ex && !w->ex->ended)
        ex_kill(w->ex);
}
