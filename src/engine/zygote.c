/* Interpreters that are forked instead of started. A zygote belongs to a kind of sandboxes; a member of it is brought
 * into a box ahead of time and waits there, held by PID 1 and without cost, for the execution that takes it. */
#include "engine/inside.h"

#include "base/fd.h"
#include "base/str.h"

static void on_zygote(struct ask *ask, const struct answer *a UNUSED, const struct err *err)
{
    if (ask->done)
        ask->done(ask->done_arg, err);
}

static int ask_zygote(struct engine *e, const struct jail_zygote *m, box_done_fn *done, void *arg, struct err *err)
{
    PAYLOAD(payload);
    int len = jail_zygote_encode(m, payload, err);

    if (len < 0)
        return -1;
    struct ask *a = engine_ask(e, FRAME_J_ZYGOTE, payload, (uint32_t)len, NULL, 0, on_zygote, arg);
    a->done = done;
    a->done_arg = arg;
    return 0;
}

int engine_zygote(struct engine *e, const struct box_spec *like, box_done_fn *done, void *arg, struct err *err)
{
    struct kind kind = engine_kind(like);
    struct jail_zygote m = { "", "", "" };

    if (!like->zygote || e->lost)
        return e->lost ? (*err = e->why, -1) : err_set(err, ERR_BUG, "a kind of sandboxes without a zygote");
    engine_template_name(&kind, m.template);
    memcpy(m.language, kind.language, sizeof(m.language));
    if (!str_copy(m.preload, sizeof(m.preload), like->zygote->preload))
        return err_set(err, ERR_LIMIT, "a list of preloads has at most %zu bytes", sizeof(m.preload) - 1);
    engine_template(e, &kind);
    return ask_zygote(e, &m, done, arg, err);
}

void engine_zygote_end(struct engine *e, const struct box_spec *like)
{
    struct kind kind = engine_kind(like);
    struct jail_zygote m = { "", "", "" };
    struct err err;

    engine_template_name(&kind, m.template);
    if (!e->lost)
        (void)ask_zygote(e, &m, NULL, NULL, &err);
}

void engine_zygote_forget(struct engine *e, const void *arg)
{
    engine_forget(e, arg);
}

/* It may have been on its way while an execution was sent to take what is lost; that one hears it too. */
void box_member_lost(struct box *b, const struct frame *f)
{
    bool waited = b->member == MEMBER_WAITS;

    if (f->len != 0) {
        box_violate(b, "MEMBER_LOST with a payload");
        return;
    }
    b->member = MEMBER_NONE;
    if (waited && b->ops && b->ops->on_member_lost)
        b->ops->on_member_lost(b->arg);
}

/* PID 1 holds it from now on: thousands may wait, and what each costs here is counted (BOX_FDS). */
static void on_joined(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct box *b = ask->owner;
    struct err why;

    b->join = NULL;
    if (!err && a->nfds != RT_MEMBER_FDS) {
        err_set(&why, ERR_PROTOCOL, "a member with %zu descriptors", a->nfds);
        err = &why;
    } else if (!err && !b->wired) {
        err_set(&why, ERR_LOST, "sandbox %s has ended", b->id);
        err = &why;
    }
    if (!err) {
        chan_send_fds(&b->chan, &(struct frame){ .type = FRAME_MEMBER }, a->fds, a->nfds);
        b->member = MEMBER_WAITS;
    }
    if (ask->done)
        ask->done(ask->done_arg, err);
}

void box_join(struct box *b, box_done_fn *done, void *arg)
{
    struct err err;

    if (b->member != MEMBER_NONE) {
        err_set(&err, ERR_EXISTS, "an interpreter waits in sandbox %s already", b->id);
        done(arg, &err);
        return;
    }
    if (!b->join)
        b->join = engine_ask_id(b->e, FRAME_J_JOIN, b->id, on_joined, b);
    b->join->done = done;
    b->join->done_arg = arg;
}

bool box_has_member(const struct box *b)
{
    return b->member == MEMBER_WAITS;
}

void box_rehearse(struct box *b)
{
    if (b->rehearses && b->wired && b->member == MEMBER_WAITS)
        chan_send(&b->chan, &(struct frame){ .type = FRAME_REHEARSE });
}
