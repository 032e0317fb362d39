/* denial_notes.h - a line for each thing that a program was refused, for somebody who sees only
 * that it failed. */
#pragma once

#include "sandbox/receipt.h"

void denial_notes_limits(const struct receipt *r);
/* `whose`: the sandbox was made by another command, and its profile is not known here. */
void denial_notes_calls(const struct receipt *r, bool whose);
