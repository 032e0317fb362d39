/* srt_import.h - settings of sandbox-runtime (srt) as a policy of cove, and line by line what became of them.
 *
 * The two begin at opposite ends: srt lets a program read everything but what is denied, cove shows it nothing but the
 * system and what is bound. So most of srt's denials hold by themselves, and what srt leaves open has to be named. */
#pragma once

#include "core/base/buf.h"
#include "core/doc/problems.h"

/* Writes the policy as YAML to `out` and remarks, one for each setting, to `said`. Returns how many settings have no
 * equivalent, or -1 when the file cannot be read. */
int srt_import(const char *data, size_t len, const char *file, struct buf *out, struct buf *said, struct problems *pr);
