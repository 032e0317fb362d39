#include "policy/ended_by.h"

#include "core/base/base.h"

static const char *const ended_by_names[] = {
    [ENDED_EXIT] = "exit", [ENDED_SIGNAL] = "signal", [ENDED_LIFETIME] = "lifetime", [ENDED_IDLE] = "idle",
    [ENDED_WALL] = "wall", [ENDED_CPU] = "cpu",       [ENDED_MEMORY] = "memory",     [ENDED_KILLED] = "killed",
    [ENDED_LOST] = "lost", [ENDED_BUDGET] = "budget",
};

const char *ended_by_name(enum ended_by e)
{
    return (unsigned)e < ARRAY_LEN(ended_by_names) ? ended_by_names[e] : "lost";
}
