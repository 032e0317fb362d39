/* Watches of executions. Output may arrive many times in one turn of the loop; a watch is notified
 * once, at the end of the turn. */
#include "service/context_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

static void execution_on_notify_deferred(void *arg)
{
    struct execution *ex = arg;
    struct execution_watch *next;

    for (struct execution_watch *w = ex->watches; w; w = next) {
        next = w->next;
        w->fn(w->arg, NULL);
    }
}

void execution_notify(struct execution *ex)
{
    if (ex->watches)
        ev_defer(ex->sandbox->services->ev, &ex->notify_defer, execution_on_notify_deferred, ex);
}

void execution_notify_end(struct execution *ex, const struct store_execution *row)
{
    while (ex->watches) {
        struct execution_watch *w = ex->watches;

        ex->watches = w->next;
        w->execution = NULL;
        w->fn(w->arg, row);
    }
}

struct execution *execution_find(const struct sandbox *sb, const char *id)
{
    struct execution *ex = sb->executions;

    while (ex && !str_eq(ex->id, id))
        ex = ex->next;
    return ex;
}

struct execution_watch *manager_watch_execution(struct manager *m, const char *owner, const char *sandbox,
                                                const char *id, execution_watch_fn *fn, void *arg)
{
    struct sandbox *sb = registry_find(manager_sandbox_services(m)->registry, owner, sandbox);
    struct execution *ex = sb ? execution_find(sb, id) : NULL;

    if (!ex || ex->row != EXECUTION_ROW_COMMITTED)
        return NULL;
    struct execution_watch *w = mem_new(struct execution_watch);
    w->execution = ex;
    w->fn = fn;
    w->arg = arg;
    w->next = ex->watches;
    ex->watches = w;
    return w;
}

void execution_watch_free(struct execution_watch *w)
{
    if (w && w->execution) {
        list_remove(&w->execution->watches, w);
    }
    free(w);
}

uint64_t execution_watch_output_bytes(const struct execution_watch *w, int channel)
{
    return w->execution ? w->execution->output.stream.kept[channel - 1] : 0;
}

uint64_t execution_watch_first_kept_offset(const struct execution_watch *w)
{
    return w->execution ? w->execution->output.discarded_bytes : 0;
}

uint64_t execution_watch_input_bytes(const struct execution_watch *w)
{
    return w->execution ? w->execution->input_sent : 0;
}

bool execution_watch_has_started(const struct execution_watch *w)
{
    return w->execution && w->execution->state >= EXECUTION_RUNNING && w->execution->started_ms;
}

void execution_watch_signal(struct execution_watch *w, int signo)
{
    struct execution *ex = w->execution;

    if (!ex || ex->state == EXECUTION_ENDED)
        return;
    if (ex->exec)
        exec_handle_signal(ex->exec, signo);
    else
        context_execution_signal(ex, signo);
}

bool execution_watch_resize(struct execution_watch *w, uint16_t rows, uint16_t cols)
{
    struct execution *ex = w->execution;

    if (!ex || !ex->spec.tty)
        return false;
    if (ex->spec.rows == rows && ex->spec.cols == cols)
        return true;
    ex->spec.rows = rows;
    ex->spec.cols = cols;
    if (ex->exec && ex->state != EXECUTION_ENDED)
        exec_handle_resize(ex->exec, rows, cols);
    execution_notify(ex);
    return true;
}

bool execution_watch_terminal_size(const struct execution_watch *w, uint16_t *rows, uint16_t *cols)
{
    if (!w->execution || !w->execution->spec.tty)
        return false;
    *rows = w->execution->spec.rows;
    *cols = w->execution->spec.cols;
    return true;
}

void execution_watch_kill(struct execution_watch *w)
{
    if (w->execution && w->execution->state != EXECUTION_ENDED)
        execution_kill(w->execution);
}
