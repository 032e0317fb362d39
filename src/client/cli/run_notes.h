/* run_notes.h - the notes that `cove run` prints on standard error when the program has ended. */
#pragma once

#include "client/cli/run_options.h"
#include "sandbox/failure.h"
#include "sandbox/hint.h"
#include "sandbox/receipt.h"

/* How the program ended, the limits that this host does not enforce, and why it may have failed.
 * output_whole: standard output took everything; otherwise the end is not explained. */
void run_notes_print(const struct run_options *o, const struct receipt *rc, const struct failure *texts,
                     bool output_whole);
void run_notes_kept(const char *sandbox_id);

/* Writes the hint for a failed program, and returns whether there is one. */
bool run_notes_write_hint(const struct receipt *rc, const struct failure *texts, char ret[HINT_MAX]);
