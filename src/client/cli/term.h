/* term.h - the terminal in raw mode, and back, whatever happens. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

int term_raw(int fd, struct err *err);
void term_restore(void); /* nothing when it is not raw; safe in a signal handler */
bool term_size(int fd, uint16_t *rows, uint16_t *cols);
