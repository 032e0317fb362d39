/* tool_result.h - the result of a program as the answer of a tool: the object of service/result.h
 * with shortened output, and the same as text.
 *
 * Output streams, displayed values and the traceback share the space of the answer. A part that
 * exceeds its share keeps its beginning and its end, with a mark between them. Images leave the
 * object: each result has the indexes of its images in the list of the answer. */
#pragma once

#include "service/tools/tool_internal.h"

struct tool_streams { /* standard output and standard error */
    uint64_t bytes[2];
    /* Adds the bytes at this offset of channel 1 or 2; fewer if they cannot be read. */
    void (*read)(const void *arg, int channel, uint64_t offset, size_t len, struct buf *out);
    const void *arg;
};

/* Takes `result`. `note` is added to the text if something was left out: how to get the rest. */
void tool_result_make(struct tool_answer *a, json_t *result, const struct tool_streams *streams, uint64_t space,
                      const char *note);
