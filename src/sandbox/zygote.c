/* Interpreters that are forked instead of started. A zygote belongs to a kind of sandbox; one of
 * its forks is brought into a sandbox in advance and waits there, held by PID 1 and at no CPU
 * cost, for the execution that takes it. */
#include "sandbox/engine_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"

static void zygote_on_reply(struct jailer_request *ask, const struct jailer_reply *a UNUSED, const struct err *err)
{
    if (ask->done)
        ask->done(ask->done_arg, err);
}

static int zygote_send_request(struct engine *e, const struct jail_zygote *m, sandbox_handle_done_fn *done, void *arg,
                               struct err *err)
{
    PAYLOAD(payload);
    int len = jail_zygote_encode(m, payload, err);

    if (len < 0)
        return -1;
    struct jailer_request *a = engine_request(e, FRAME_J_ZYGOTE, payload, (uint32_t)len, NULL, 0, zygote_on_reply, arg);
    a->done = done;
    a->done_arg = arg;
    return 0;
}

int engine_start_zygote(struct engine *e, const struct sandbox_spec *like, sandbox_handle_done_fn *done, void *arg,
                        struct err *err)
{
    struct sandbox_kind kind = sandbox_kind_of_spec(like);
    struct jail_zygote m = { "", "", "" };

    if (!like->zygote || e->lost)
        return e->lost ? (*err = e->why, -1) : err_set(err, ERR_BUG, "the spec has no zygote");
    engine_template_name(&kind, m.template);
    memcpy(m.language, kind.language, sizeof(m.language));
    if (!str_copy(m.preload, sizeof(m.preload), like->zygote->preload))
        return err_set(err, ERR_LIMIT, "preload: the list is longer than %zu bytes", sizeof(m.preload) - 1);
    engine_request_template(e, &kind);
    return zygote_send_request(e, &m, done, arg, err);
}

void engine_stop_zygote(struct engine *e, const struct sandbox_spec *like)
{
    struct sandbox_kind kind = sandbox_kind_of_spec(like);
    struct jail_zygote m = { "", "", "" };
    struct err err;

    engine_template_name(&kind, m.template);
    if (!e->lost)
        (void)zygote_send_request(e, &m, NULL, NULL, &err);
}

void engine_forget_zygote_request(struct engine *e, const void *arg)
{
    engine_forget_requests(e, arg);
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
static void zygote_on_joined(struct jailer_request *ask, const struct jailer_reply *a, const struct err *err)
{
    struct sandbox_handle *b = ask->owner;
    struct err why;

    b->join_request = NULL;
    if (!err && a->nfds != RT_INTERPRETER_FDS) {
        err_set(&why, ERR_PROTOCOL, "an interpreter with %zu descriptors", a->nfds);
        err = &why;
    } else if (!err && !b->is_connected) {
        err_set(&why, ERR_LOST, "sandbox %s has ended", b->id);
        err = &why;
    }
    if (!err) {
        chan_send_fds(&b->chan, &(struct frame){ .type = FRAME_INTERPRETER }, a->fds, a->nfds);
        b->interpreter = SANDBOX_INTERPRETER_WAITING;
    }
    if (ask->done)
        ask->done(ask->done_arg, err);
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
        b->join_request = engine_request_for_sandbox(b->engine, FRAME_J_JOIN, b->id, zygote_on_joined, b);
    b->join_request->done = done;
    b->join_request->done_arg = arg;
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
