/* reset.h - RESET: nothing of the claim is left, and the sandbox waits for another one. */
#pragma once

#include "runtime/files.h"

void reset_init(struct runtime *rt); /* before anybody else lives here: what a reset has to come back to */
request_open reset_open;
