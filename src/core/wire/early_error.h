/* early_error.h - the failure of a process that has no event loop yet. */
#pragma once

#include "core/base/err.h"

/* Sends ERROR on stream 0 of the control socket of a sandbox, as the answer that the engine waits
 * for. Does not allocate, because it is called between clone and exec. */
void early_error_send(int control, const struct err *err);
