/* Those who stay with a sandbox: sockets that show its state, and end with it. */
#include "sandbox/inside.h"

#include "base/mem.h"

struct attend *manager_attend(struct manager *m, const char *owner, const char *id, attend_fn *fn, void *arg,
                              struct err *err)
{
    struct sb *sb = m->loaded ? sb_find(m, owner, id) : NULL;

    if (!sb || sb->state == SB_LOADED || sb->state == SB_CREATING) {
        if (!m->loaded || sb)
            err_set(err, ERR_BUSY, "the sandbox is not settled yet; ask again");
        else
            err_set(err, ERR_MISSING, "there is no such sandbox");
        return NULL;
    }
    if (sb->state == SB_ENDING) {
        sb_ended_error(sb, err);
        return NULL;
    }
    struct attend *a = mem_new(struct attend);
    a->sb = sb;
    a->fn = fn;
    a->arg = arg;
    a->next = sb->attends;
    sb->attends = a;
    return a;
}

void attend_free(struct attend *a)
{
    if (a && a->sb) {
        struct attend **p = &a->sb->attends;

        while (*p != a)
            p = &(*p)->next;
        *p = a->next;
    }
    free(a);
}

enum store_sandbox_state attend_state(const struct attend *a)
{
    return !a->sb || a->sb->state == SB_ENDING ? STORE_SB_ENDED
           : a->sb->state == SB_PAUSED         ? STORE_SB_PAUSED
                                               : STORE_SB_RUNNING;
}

const struct spec *attend_spec(const struct attend *a)
{
    return a->sb ? &a->sb->spec : NULL;
}

void sb_tell(struct sb *sb)
{
    struct attend *next;

    for (struct attend *a = sb->attends; a; a = next) {
        next = a->next; /* it may go, and no other */
        a->fn(a->arg, NULL);
    }
}

void sb_tell_end(struct sb *sb)
{
    struct err why;

    sb_ended_error(sb, &why);
    while (sb->attends) {
        struct attend *a = sb->attends;

        sb->attends = a->next;
        a->sb = NULL;
        a->fn(a->arg, &why);
    }
}
