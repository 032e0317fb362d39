/* mountinfo.h - reads the text of /proc/PID/mountinfo, one mount after another. All but mountinfo_read is pure: text
 * in, struct out. */
#pragma once

#include "core/base/base.h"

struct mountinfo {
    uint32_t id;
    char root[512];  /* of the mount within its file system */
    char point[512]; /* where it is mounted */
    char type[64];
    char super[512]; /* options of the file system itself: for cgroup v1 they name the controllers */
};

/* Takes the next mount from *text and moves it on. False at the end. Lines that are malformed or longer than the
 * fields are skipped: a mount that cannot be read is a mount that cove does not use. */
bool mountinfo_next(const char **text, struct mountinfo *ret);

/* The text of this process's own mounts; the caller frees. */
char *mountinfo_read(void) MUST_USE;

/* "memory" in "rw,memory": a whole word of a comma-separated list. */
bool mountinfo_has_option(const char *options, const char *word);
