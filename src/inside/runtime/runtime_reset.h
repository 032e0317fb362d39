/* runtime_reset.h - RESET: removes everything of the claim, so that the sandbox can be claimed
 * again. */
#pragma once

#include "inside/runtime/files.h"

/* Records the state that a reset must restore. Call it before another process lives in the
 * sandbox. */
void runtime_reset_record_baseline(struct runtime *rt);
request_open_fn runtime_reset_open;
