/* Two things are not checked because they cannot differ: packages and system files belong to the
 * read-only root, and file locks end with the processes that hold them. */
#include "sandbox/pool/recycle.h"

const char *const recycle_verdict_names[] = { [RECYCLE_YES] = "recycled",
                                              [RECYCLE_NO_POOL] = "no_pool",
                                              [RECYCLE_DISABLED] = "disabled",
                                              [RECYCLE_FULL] = "full",
                                              [RECYCLE_AGE] = "age",
                                              [RECYCLE_STOPPED] = "stopped",
                                              [RECYCLE_REFUSED] = "refused_call",
                                              [RECYCLE_LIMIT] = "limit",
                                              [RECYCLE_UNCOUNTED] = "uncounted",
                                              [RECYCLE_PEAK] = "memory_peak",
                                              [RECYCLE_USES] = "uses",
                                              [RECYCLE_RESET] = "reset",
                                              [RECYCLE_PROCESSES] = "processes",
                                              [RECYCLE_SOCKETS] = "sockets",
                                              [RECYCLE_ALTERED] = "altered",
                                              [RECYCLE_MEMORY] = "memory",
                                              [RECYCLE_INTERPRETER] = "interpreter",
                                              [RECYCLE_COUNT] = NULL };

static bool recycle_memory_near_limit(const struct recycle_facts *f)
{
    return f->memory_limit && f->memory_peak / 1000 >= f->memory_limit / (1000 * 1000) * RECYCLE_PEAK_PERMILLE;
}

static enum recycle_verdict recycle_check_before_reset(const struct recycle_facts *f)
{
    const struct {
        bool no;
        enum recycle_verdict why;
    } chain[] = {
        { !f->pool_matches, RECYCLE_NO_POOL },
        { !f->enabled, RECYCLE_DISABLED },
        { f->pool_size >= f->pool_max, RECYCLE_FULL },
        { f->max_age_ms && f->age_ms > f->max_age_ms, RECYCLE_AGE },
        { !f->ended_by_itself, RECYCLE_STOPPED },
        { f->has_denials, RECYCLE_REFUSED },
        { f->at_limit, RECYCLE_LIMIT },
        { f->memory_peak == UINT64_MAX, RECYCLE_UNCOUNTED },
        { recycle_memory_near_limit(f), RECYCLE_PEAK },
        { f->uses >= RECYCLE_USES_MAX, RECYCLE_USES },
    };

    for (size_t i = 0; i < ARRAY_LEN(chain); i++)
        if (chain[i].no)
            return chain[i].why;
    return RECYCLE_YES;
}

static enum recycle_verdict recycle_check_after_reset(const struct recycle_facts *f)
{
    if (f->reset_failed)
        return RECYCLE_RESET;
    if (f->pids == UINT64_MAX || f->memory == UINT64_MAX)
        return RECYCLE_UNCOUNTED;
    if (f->processes_left > 0 || f->pids != 1)
        return RECYCLE_PROCESSES;
    if (f->sockets > 0)
        return RECYCLE_SOCKETS;
    if (f->init_altered)
        return RECYCLE_ALTERED;
    return f->memory > RECYCLE_MEMORY_MAX ? RECYCLE_MEMORY : RECYCLE_YES;
}

enum recycle_verdict recycle_decide(const struct recycle_facts *f)
{
    enum recycle_verdict why = recycle_check_before_reset(f);

    return why == RECYCLE_YES && f->was_reset ? recycle_check_after_reset(f) : why;
}
