#include "policy/outcome.h"

static const char *const outcome_names[OUTCOME_COUNT] = {
    [OUTCOME_SUCCESS] = "success", [OUTCOME_ERROR] = "error",
    [OUTCOME_TIMEOUT] = "timeout", [OUTCOME_OUT_OF_MEMORY] = "out_of_memory",
    [OUTCOME_KILLED] = "killed",   [OUTCOME_LOST] = "lost",
};

enum outcome outcome_of(enum ended_by by, int exit_code, bool failed)
{
    switch (by) {
    case ENDED_EXIT:
        return exit_code == 0 && !failed ? OUTCOME_SUCCESS : OUTCOME_ERROR;
    case ENDED_SIGNAL:
        return OUTCOME_ERROR;
    case ENDED_LIFETIME:
    case ENDED_IDLE:
    case ENDED_TIMEOUT:
    case ENDED_CPU:
        return OUTCOME_TIMEOUT;
    case ENDED_MEMORY:
        return OUTCOME_OUT_OF_MEMORY;
    case ENDED_KILLED:
    case ENDED_BUDGET:
        return OUTCOME_KILLED;
    case ENDED_LOST:
        break;
    }
    return OUTCOME_LOST;
}

const char *outcome_name(enum outcome outcome)
{
    return outcome_names[outcome];
}
