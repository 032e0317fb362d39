/* hidden_input.h - a line that must not be seen: a key or a secret. */
#pragma once

#include "core/base/base.h"

/* Reads a line of standard input, without spaces and carriage returns at its end, into `ret`. On a
 * terminal it prints the prompt and hides what is typed. Returns the length; a longer line is cut
 * off at cap - 1. */
size_t hidden_input_read(const char *prompt, char *ret, size_t cap);
