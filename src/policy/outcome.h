/* outcome.h - how an execution went, in one word for a client that asks only that. */
#pragma once

#include "policy/ended_by.h"

enum outcome {
    OUTCOME_SUCCESS,
    OUTCOME_ERROR, /* the program failed, or could not be started */
    OUTCOME_TIMEOUT,
    OUTCOME_OUT_OF_MEMORY,
    OUTCOME_KILLED,
    OUTCOME_LOST,
};
#define OUTCOME_COUNT 6

/* failed: the code raised an exception, or the execution has an error. */
enum outcome outcome_of(enum ended_by by, int exit_code, bool failed);
const char *outcome_name(enum outcome outcome);
