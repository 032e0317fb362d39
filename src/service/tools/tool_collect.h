/* tool_collect.h - reads files of the sandbox of a call that paths and patterns name, as JSON.
 *
 * Files, bytes and listed directories are bounded. A file that cannot be read is listed with its
 * reason and does not fail the collection. */
#pragma once

#include "service/tools/tool_file.h"

#define TOOL_COLLECT_PATTERNS_MAX 16u

struct collect_item;

struct tool_collect { /* embedded in the work of a call; all zero: idle */
    struct tool_call *call;
    struct tool_file file;
    struct collect_item *queue, *current;
    uint64_t bytes, bytes_max;
    unsigned ndirs, nqueued;
    /* The result: objects with path, sizeBytes and content or contentBase64; and with path and
     * reason. */
    json_t *files, *omitted;
    /* err: the sandbox cannot be used. */
    void (*on_end)(void *arg, const struct err *err);
    void *arg;
};

/* patterns: absolute, NULL-terminated. A missing file is listed as omitted if its path has no
 * pattern. */
void tool_collect_start(struct tool_collect *t, struct tool_call *c, const char *const *patterns, uint64_t bytes_max,
                        void (*on_end)(void *arg, const struct err *err), void *arg);
void tool_collect_done(struct tool_collect *t);

/* Reads a list of paths or patterns, relative ones below /workspace. Absent: *ret stays NULL. Free
 * it with tool_collect_free_patterns. */
int tool_collect_read_patterns(const json_t *arguments, const char *name, char ***ret, struct err *err);
void tool_collect_free_patterns(char **patterns);
