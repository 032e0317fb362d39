/* term.h - puts the terminal into raw mode, or reads single keys, and restores it on every exit. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

int term_raw(int fd, struct err *err);
/* Keys arrive at once, unechoed, and Ctrl-C as a key; output is unchanged. Until term_restore. */
int term_keys(int fd, struct err *err);
void term_restore(void); /* no effect if it is not raw; async-signal-safe */
bool term_size(int fd, uint16_t *rows, uint16_t *cols);
