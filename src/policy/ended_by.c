#include "policy/ended_by.h"

#include "core/base/base.h"
#include "core/base/str.h"

static const char *const ended_by_names[] = {
    [ENDED_EXIT] = "exit",       [ENDED_SIGNAL] = "signal", [ENDED_LIFETIME] = "lifetime", [ENDED_IDLE] = "idle",
    [ENDED_TIMEOUT] = "timeout", [ENDED_CPU] = "cpu",       [ENDED_MEMORY] = "memory",     [ENDED_KILLED] = "killed",
    [ENDED_LOST] = "lost",       [ENDED_BUDGET] = "budget",
};

const char *ended_by_name(enum ended_by e)
{
    return (unsigned)e < ARRAY_LEN(ended_by_names) ? ended_by_names[e] : "lost";
}

bool ended_by_parse(const char *name, enum ended_by *ret)
{
    for (unsigned i = 0; i < ARRAY_LEN(ended_by_names); i++)
        if (str_eq(name, ended_by_names[i])) {
            *ret = (enum ended_by)i;
            return true;
        }
    return false;
}
