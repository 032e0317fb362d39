/* mutate.h - leaves out one wall, in test builds only, to prove that some test would notice.
 *
 * A build with -Dmutate=true reads the name of the wall from COVE_MUTATE. Any other build has no such code: the
 * function is a constant, and tests/mutation checks that the installed program does not even hold the variable's name.
 */
#pragma once

#include "core/base/base.h"

#ifdef COVE_WITH_MUTATIONS
static inline bool wall_is_mutated(const char *wall)
{
    const char *off = getenv("COVE_MUTATE");

    return off && strcmp(off, wall) == 0;
}

/* What the runtime is started with: the switch goes with it. */
static inline char *const *mutated_environment(void)
{
    extern char **environ;
    static char *env[2];

    for (char **e = environ; *e; e++)
        if (strncmp(*e, "COVE_MUTATE=", 12) == 0)
            env[0] = *e;
    return env;
}
#else
static inline bool wall_is_mutated(const char *wall UNUSED)
{
    return false;
}

static inline char *const *mutated_environment(void)
{
    static char *const none[1];

    return none;
}
#endif
