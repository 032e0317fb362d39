/* A limit refuses in the kernel, which reports the refusal to the program and, for some limits
 * only, counts it. This file lists only observed refusals: a counter of the cgroup, a file
 * system without a free block, the signal that ended a program. For the other limits it returns
 * the reason why refusals cannot be observed; a refusal is never guessed from an exit code.
 *
 * Limits that end an execution are its endedBy, and limits that slow it down have their own
 * figures; neither is listed here. */
#include "sandbox/limit_hits.h"

#include "core/wire/rt.h"

#include <signal.h>
#include <stdio.h>

static const struct {
    uint32_t bit;
    enum limit limit;
} limit_full_bits[] = {
    { RT_FULL_WORKSPACE, LIMIT_WORKSPACE },
    { RT_FULL_WORKSPACE_INODES, LIMIT_WORKSPACE_INODES },
    { RT_FULL_TMP, LIMIT_TMP },
    { RT_FULL_TMP_INODES, LIMIT_TMP_INODES },
    { RT_FULL_SHM, LIMIT_SHM },
};

static uint32_t limit_hit_full_bit(enum limit l)
{
    for (size_t i = 0; i < ARRAY_LEN(limit_full_bits); i++)
        if (limit_full_bits[i].limit == l)
            return limit_full_bits[i].bit;
    return 0;
}

/* NULL when no refusal is known. */
static const char *limit_hit_describe(const struct receipt *r, enum limit l, uint64_t *count)
{
    *count = 0;
    if (l == LIMIT_PIDS && !r->pids_refused.why && r->pids_refused.v > 0) {
        *count = r->pids_refused.v;
        return "refused a process or thread";
    }
    if (l == LIMIT_FSIZE && r->signal == SIGXFSZ)
        return "a write past it ended the program";
    if (limit_hit_full_bit(l) && !r->full_filesystems_why && (r->full_filesystems & limit_hit_full_bit(l)))
        return "was full when the execution ended";
    if (l == LIMIT_OUTPUT && r->dropped_bytes > 0)
        return "output past it was dropped";
    return NULL;
}

size_t limit_hits_list(const struct receipt *r, struct limit_hit ret[LIMIT_COUNT])
{
    size_t n = 0;

    for (int i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *info = limit_info((enum limit)i);
        struct limit_hit *m = &ret[n];

        /* A full directory of the host is not a limit of cove. */
        if (r->enforced[i] == 0 || !(m->how = limit_hit_describe(r, (enum limit)i, &m->count)))
            continue;
        m->limit = (enum limit)i;
        if (info->flag)
            snprintf(m->fix, sizeof(m->fix), "--%s sets it", info->flag);
        else
            snprintf(m->fix, sizeof(m->fix), "limits.%s of a policy sets it", info->name);
        n++;
    }
    return n;
}

const char *limit_hit_unobservable(const struct receipt *r, enum limit l)
{
    uint64_t count;

    if (r->enforced[l] == 0 || limit_hit_describe(r, l, &count))
        return NULL;
    if (l == LIMIT_NOFILE)
        return "the kernel reports it only to the program (EMFILE) and does not count it";
    if (l == LIMIT_FSIZE)
        return "only a SIGXFSZ that ends the program is seen; a program that ignores it gets EFBIG, which is not "
               "counted";
    if (l == LIMIT_PIDS)
        return r->pids_refused.why;
    if (limit_hit_full_bit(l))
        return r->full_filesystems_why
                   ? r->full_filesystems_why
                   : "it was not full when the execution ended; earlier ENOSPC errors are not counted";
    return NULL;
}
