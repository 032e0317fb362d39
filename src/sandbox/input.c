/* Standard input that is written while the program runs. What the program does not read waits on the side of whoever
 * writes: nothing is gathered here. Bytes are counted, so that a writer whose connection broke, or who met a new
 * server, goes on where the sandbox has them. That needs one writer at a time; a terminal has as many as sit before it,
 * and what they type goes in as it comes. */
#include "sandbox/inside.h"

#include "base/mem.h"

struct writer *manager_writer(struct manager *m, const char *owner, const char *sandbox, const char *id,
                              const struct writer_ops *ops, void *arg, struct err *err)
{
    struct sb *sb = sb_find(m, owner, sandbox);
    struct ex *ex = sb ? ex_find(sb, id) : NULL;

    if (!ex || !ex->inserted || (ex->stream && !ex->started && !ex->ended)) {
        err_set(err, ERR_BUSY, "the server has just started and is still finding its executions");
        return NULL;
    }
    const char *why = ex->ended                      ? "has ended"
                      : !ex->input_open              ? "was started without stdinOpen"
                      : ex->input_closed             ? "has had the end of its standard input"
                      : ex->writers && !ex->spec.tty ? "is being written to by another request"
                                                     : NULL;
    if (why) {
        err_set(err, ERR_EXISTS, "execution %s %s", ex->id, why);
        return NULL;
    }
    struct writer *w = mem_new(struct writer);
    w->ex = ex;
    w->ops = ops;
    w->arg = arg;
    w->next = ex->writers;
    ex->writers = w;
    return w;
}

void writer_free(struct writer *w)
{
    if (w && w->ex) {
        struct writer **p = &w->ex->writers;

        while (*p != w)
            p = &(*p)->next;
        *p = w->next;
    }
    free(w);
}

uint64_t writer_bytes(const struct writer *w)
{
    return w->ex ? w->ex->input_sent : 0;
}

size_t writer_send(struct writer *w, const void *data, size_t len)
{
    size_t n = w->ex ? exec_write(w->ex->exec, data, len) : 0;

    if (w->ex)
        w->ex->input_sent += n;
    return n;
}

void writer_close(struct writer *w)
{
    if (!w->ex)
        return;
    w->ex->input_closed = true;
    exec_write_end(w->ex->exec);
}

void input_room(struct ex *ex)
{
    struct writer *next;

    for (struct writer *w = ex->writers; w; w = next) {
        next = w->next; /* it may go, and no other */
        w->ops->on_room(w->arg);
    }
}

void input_over(struct ex *ex)
{
    uint64_t taken = ex->input_sent;

    while (ex->writers) {
        struct writer *w = ex->writers;

        ex->writers = w->next;
        w->ex = NULL;
        w->ops->on_over(w->arg, taken);
    }
}
