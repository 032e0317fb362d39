/* show.h - what code writes and shows, on the terminal and in files of somebody who runs it from here. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <jansson.h>

struct ctl_show {
    bool quiet;
    const char *save;    /* a directory for pictures and documents; NULL: they are not kept */
    const char *name;    /* what their names begin with */
    unsigned last_saved; /* the number in the name of the last one */
    unsigned unsaved;    /* that were shown, and nobody said where to */
    uint64_t offset[2];  /* bytes of output that were written here */
    struct err err;      /* why something could not be */
};

/* Lines of a stream: an output, the `data` of a display or a result, an exception. False: s->err. */
bool ctl_show_output(struct ctl_show *s, const json_t *line);
bool ctl_show_data(struct ctl_show *s, const json_t *data);
bool ctl_show_exception(struct ctl_show *s, const json_t *line);
/* The remarks behind it all. */
void ctl_show_end(const struct ctl_show *s);
