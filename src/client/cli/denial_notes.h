/* denial_notes.h - prints one note per denied operation after a program has failed. An operation
 * that the hint names already is left out; hint: NULL or "" if there is none. */
#pragma once

#include "sandbox/receipt.h"

void denial_notes_limits(const struct receipt *r, const char *hint);
/* `whose`: another command made the sandbox, so its profile is not known here. */
void denial_notes_calls(const struct receipt *r, bool whose, const char *hint);
/* Destinations that the rules of the sandbox refused. */
void denial_notes_network(const struct receipt *r, const char *hint);
/* Prints a hint on a terminal, if it says more than the output of the program. Returns whether it
 * was printed. */
bool hint_note(const char *hint);
