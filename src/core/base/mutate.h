/* mutate.h - in test builds only, omits one wall, to prove that a test detects its absence.
 *
 * A build with -Dmutate=true reads the name of the wall from COVE_MUTATE. Any other build contains
 * no such code: the function is a constant, and tests/mutation checks that the installed program
 * does not even contain the name of the variable. */
#pragma once

#include "core/base/base.h"

#ifdef COVE_WITH_MUTATIONS
static inline bool wall_is_mutated(const char *wall)
{
    const char *off = getenv("COVE_MUTATE");

    return off && strcmp(off, wall) == 0;
}

/* The environment with which the runtime is started: only COVE_MUTATE is passed on. */
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
