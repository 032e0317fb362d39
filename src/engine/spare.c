/* One sandbox ahead. Making the walls costs several times what claiming them does, and who asked twice for the same
 * sandbox will ask again, so the next one is made while nobody waits: when the last one has become ready. It is a box
 * like any other that was greeted and not claimed: no user code can run in it, nothing of a caller is in it (its
 * environment, rules and entropy come with CLAIM), and it is given away once.
 *
 * Only what the jailer is told when it makes a sandbox has to be equal: the filter, the limits, the host name. One with
 * mounts is never made ahead.
 *
 * Invariants:
 * 1. There is at most one. It belongs to the engine until spare_take(), and to the caller from then on.
 * 2. It has no clock of its own once it answered; its end, for whatever reason, is noticed and frees it. */
#include "engine/inside.h"

#include "base/str.h"

static void on_failed(void *arg, const struct err *why UNUSED)
{
    struct engine *e = arg;

    box_free(take_ptr(&e->spare.box)); /* the next one that gets ready tries again */
}

static const struct box_ops ops = { .on_failed = on_failed };

static struct shape shape_of(const struct box_spec *spec)
{
    struct shape s = { .kind = engine_kind(spec), .limits = spec->limits };

    s.usable = spec->nmounts == 0 && !spec->zygote &&
               str_copy(s.hostname, sizeof(s.hostname), spec->hostname ? spec->hostname : "cove");
    return s;
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->usable && b->usable && engine_same_kind(&a->kind, &b->kind) &&
           memcmp(&a->limits, &b->limits, sizeof(a->limits)) == 0 && str_eq(a->hostname, b->hostname);
}

void engine_make_ahead(struct engine *e)
{
    e->spare.on = true;
}

const char *engine_made_ahead(const struct engine *e, const struct box_spec *spec)
{
    struct shape wanted = shape_of(spec);

    return e->spare.box && same_shape(&e->spare.shape, &wanted) ? e->spare.box->id : NULL;
}

struct box *spare_find(struct engine *e, const struct box_spec *spec)
{
    const char *id = engine_made_ahead(e, spec);

    return id && (!spec->id || str_eq(spec->id, id)) ? e->spare.box : NULL;
}

struct box *spare_take(struct engine *e)
{
    return take_ptr(&e->spare.box);
}

void spare_asked(struct engine *e, const struct box_spec *spec)
{
    struct shape s = shape_of(spec);

    if (!e->spare.on)
        return;
    e->spare.again = same_shape(&e->spare.last, &s);
    e->spare.last = s;
}

void spare_refill(struct engine *e)
{
    struct spare *s = &e->spare;

    if (!s->on || !s->again || e->lost || (s->box && same_shape(&s->shape, &s->last)))
        return;
    struct box_spec spec = { .profile = s->last.kind.filter.profile,
                             .grants = s->last.kind.filter.grants,
                             .limits = s->last.limits,
                             .hostname = s->last.hostname };

    memcpy(spec.deny, s->last.kind.filter.deny, sizeof(spec.deny));
    spare_drop(e);
    s->shape = s->last;
    (void)box_prepare(e, &spec, &ops, e, &s->box, NULL);
}

void spare_drop(struct engine *e)
{
    box_free(take_ptr(&e->spare.box));
}
