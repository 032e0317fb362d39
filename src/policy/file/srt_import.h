/* srt_import.h - converts settings of sandbox-runtime (srt) to a policy of cove, and reports the
 * result for each setting.
 *
 * The two have opposite defaults: srt lets a program read everything that is not denied, cove shows
 * only the system and bound paths. So cove fulfils most denials of srt without a rule, and paths
 * that srt leaves open must be named. */
#pragma once

#include "core/base/buf.h"
#include "core/doc/problems.h"

/* Writes the policy as YAML to `out`, and one remark for each setting to `said`. Returns the number
 * of settings without an equivalent, or -1 if the file cannot be read. */
int srt_import(const char *data, size_t len, const char *file, struct buf *out, struct buf *said, struct problems *pr);
