/* show.h - prints output and displayed results of code, and saves pictures to files. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <jansson.h>

struct ctl_show {
    bool quiet;
    const char *save;    /* directory for pictures and documents; NULL: do not save them */
    const char *name;    /* prefix of the file names */
    unsigned last_saved; /* number in the name of the last saved file */
    unsigned unsaved;    /* pictures that were displayed but not saved */
    uint64_t offset[2];  /* bytes printed, per stream */
    struct err err;      /* set when a function returns false */
};

/* Print one line of a stream: output, the `data` of a display or a result, an exception. Return
 * false with s->err set on failure. */
bool ctl_show_output(struct ctl_show *s, const json_t *line);
bool ctl_show_data(struct ctl_show *s, const json_t *data);
bool ctl_show_exception(struct ctl_show *s, const json_t *line);
/* Prints the notes at the end. */
void ctl_show_end(const struct ctl_show *s);
