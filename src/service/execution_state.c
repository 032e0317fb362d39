#include "service/execution_state.h"

#include "core/base/log.h"

void execution_set_state(const char *id, enum execution_state *state, enum execution_state next)
{
    static const char *const names[] = {
        "waiting", "creating", "staging", "starting", "running", "gathering", "ended"
    };

    if (*state != next)
        log_debug("execution %s: %s -> %s", id, names[*state], names[next]);
    *state = next;
}
