/* runtime_reset.h - RESET: nothing of the claim is left, and the sandbox waits for another one. */
#pragma once

#include "inside/runtime/files.h"

void runtime_reset_record_baseline(
    struct runtime *rt); /* before anybody else lives here: what a reset has to come back to */
request_open_fn runtime_reset_open;
