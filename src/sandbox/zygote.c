/* Interpreters that are forked instead of started. A zygote belongs to a kind of sandbox; one of
 * its forks is brought into a sandbox in advance and waits there, held by PID 1 and at no CPU
 * cost, for the execution that takes it. */
#include "sandbox/engine_internal.h"

static void zygote_on_started(struct driver_request *r, const struct err *err)
{
    if (r->then.done)
        r->then.done(r->then_arg, err);
}

int engine_start_zygote(struct engine *e, const struct sandbox_spec *like, sandbox_handle_done_fn *done, void *arg,
                        struct err *err)
{
    struct sandbox_kind kind = sandbox_kind_of_spec(like);
    struct driver_link *l = e->links[kind.driver];

    if (kind.language[0] == '\0' || l->lost)
        return l->lost ? (*err = l->why, -1) : err_set(err, ERR_BUG, "the spec has no zygote");
    struct driver_request *r = l->ops->start_zygote(l, &kind, like->zygote->preload, zygote_on_started, arg, err);
    if (!r)
        return -1;
    r->then.done = done;
    r->then_arg = arg;
    return 0;
}

void engine_stop_zygote(struct engine *e, const struct sandbox_spec *like)
{
    struct sandbox_kind kind = sandbox_kind_of_spec(like);
    struct driver_link *l = e->links[kind.driver];

    if (kind.language[0])
        l->ops->stop_zygote(l, &kind);
}

void engine_forget_zygote_request(struct engine *e, const void *arg)
{
    for (unsigned i = 0; i < DRIVER_COUNT; i++)
        e->links[i]->ops->forget(e->links[i], arg);
}

/* The frame may have crossed an EXEC that was to take the lost interpreter; that execution then
 * fails too. */
void sandbox_handle_interpreter_lost(struct sandbox_handle *b, const struct frame *f)
{
    bool waited = b->interpreter == SANDBOX_INTERPRETER_WAITING;

    if (f->len != 0) {
        sandbox_handle_protocol_error(b, "INTERPRETER_LOST with a payload");
        return;
    }
    b->interpreter = SANDBOX_INTERPRETER_NONE;
    if (waited && b->ops && b->ops->on_interpreter_lost)
        b->ops->on_interpreter_lost(b->arg);
}

/* PID 1 holds the interpreter's descriptors from now on: thousands may wait, and the descriptors
 * that each costs here are limited (SANDBOX_HANDLE_FDS). */
static void zygote_on_joined(struct driver_request *r, int *fds, size_t nfds, const struct err *err)
{
    struct sandbox_handle *b = r->owner;
    struct err why;

    b->join_request = NULL;
    if (!err && nfds != RT_INTERPRETER_FDS) {
        err_set(&why, ERR_PROTOCOL, "an interpreter with %zu descriptors", nfds);
        err = &why;
    } else if (!err && !b->is_connected) {
        err_set(&why, ERR_LOST, "sandbox %s has ended", b->id);
        err = &why;
    }
    if (!err) {
        chan_send_fds(&b->chan, &(struct frame){ .type = FRAME_INTERPRETER }, fds, nfds);
        b->interpreter = SANDBOX_INTERPRETER_WAITING;
    }
    if (r->then.done)
        r->then.done(r->then_arg, err);
}

void sandbox_handle_join_interpreter(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg)
{
    struct err err;

    if (b->interpreter != SANDBOX_INTERPRETER_NONE) {
        err_set(&err, ERR_EXISTS, "an interpreter waits in sandbox %s already", b->id);
        done(arg, &err);
        return;
    }
    if (!b->join_request)
        b->join_request = b->link->ops->join(b->link, b->id, zygote_on_joined, b);
    b->join_request->then.done = done;
    b->join_request->then_arg = arg;
}

bool sandbox_handle_has_interpreter(const struct sandbox_handle *b)
{
    return b->interpreter == SANDBOX_INTERPRETER_WAITING;
}

void sandbox_handle_warm_up(struct sandbox_handle *b)
{
    if (b->supports_warm_up && b->is_connected && b->interpreter == SANDBOX_INTERPRETER_WAITING)
        chan_send(&b->chan, &(struct frame){ .type = FRAME_WARM_UP });
}
