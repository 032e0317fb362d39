/* Standard input that is written while the program runs. Back-pressure goes to the writer: input
 * that the program does not read is not buffered here. Bytes are counted, so that a writer that
 * lost its connection, or a new server, continues after the bytes that the sandbox has. That
 * requires one writer at a time. A terminal accepts any number of writers, and their input is sent
 * in order of arrival. */
#include "service/execution_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"

struct execution_writer *manager_open_execution_input(struct manager *m, const char *owner, const char *sandbox,
                                                      const char *id, const struct execution_writer_ops *ops, void *arg,
                                                      struct err *err)
{
    struct sandbox *sb = registry_find(manager_sandbox_services(m)->registry, owner, sandbox);
    struct execution *ex = sb ? execution_find(sb, id) : NULL;

    if (!ex || ex->row != EXECUTION_ROW_COMMITTED || (ex->resume_stream && ex->state < EXECUTION_RUNNING)) {
        err_set(err, ERR_BUSY, "the server has just started and is still recovering its executions; try again");
        return NULL;
    }
    const char *why = ex->state == EXECUTION_ENDED         ? "has ended"
                      : ex->context_id[0]                  ? "runs in a context; answer its input events with "
                                                             "POST .../input"
                      : !ex->input_open                    ? "was started without stdinOpen"
                      : ex->input_closed                   ? "has already received the end of its standard input"
                      : ex->input_writers && !ex->spec.tty ? "is already being written to by another request"
                                                           : NULL;
    if (why) {
        err_set(err, ERR_EXISTS, "execution %s %s", ex->id, why);
        return NULL;
    }
    struct execution_writer *w = mem_new(struct execution_writer);
    w->execution = ex;
    w->ops = ops;
    w->arg = arg;
    w->next = ex->input_writers;
    ex->input_writers = w;
    return w;
}

void execution_writer_free(struct execution_writer *w)
{
    if (w && w->execution) {
        list_remove(&w->execution->input_writers, w);
    }
    free(w);
}

uint64_t execution_writer_bytes(const struct execution_writer *w)
{
    return w->execution ? w->execution->input_sent : 0;
}

size_t execution_writer_send(struct execution_writer *w, const void *data, size_t len)
{
    size_t n = w->execution ? exec_handle_write(w->execution->exec, data, len) : 0;

    if (w->execution)
        w->execution->input_sent += n;
    return n;
}

void execution_writer_close(struct execution_writer *w)
{
    if (!w->execution)
        return;
    w->execution->input_closed = true;
    exec_handle_write_end(w->execution->exec);
}

void execution_input_writable(struct execution *ex)
{
    struct execution_writer *next;

    for (struct execution_writer *w = ex->input_writers; w; w = next) {
        next = w->next; /* on_writable may free this writer, but no other */
        w->ops->on_writable(w->arg);
    }
}

void execution_input_end(struct execution *ex)
{
    uint64_t taken = ex->input_sent;

    while (ex->input_writers) {
        struct execution_writer *w = ex->input_writers;

        ex->input_writers = w->next;
        w->execution = NULL;
        w->ops->on_end(w->arg, taken);
    }
}
