/* mountinfo.h - parses the text of /proc/PID/mountinfo, one mount at a time. All functions except
 * mountinfo_read are pure. */
#pragma once

#include "core/base/base.h"

struct mountinfo {
    uint32_t id;
    char root[512];  /* root of the mount within its file system */
    char point[512]; /* path where it is mounted */
    char type[64];
    char super[512]; /* options of the file system itself; for cgroup v1 they name the controllers */
};

/* Reads the next mount and advances *text. False at the end. Skips lines that are malformed or
 * longer than the fields: cove does not use a mount that it cannot parse. */
bool mountinfo_next(const char **text, struct mountinfo *ret);

/* Returns the text of this process's own mountinfo; the caller frees it. */
char *mountinfo_read(void) MUST_USE;

/* Whether `word` is an element of a comma-separated list: "memory" in "rw,memory". */
bool mountinfo_has_option(const char *options, const char *word);
