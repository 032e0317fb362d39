/* tool_staging.h - files in the arguments of a tool, written into the sandbox of its call. */
#pragma once

#include "service/tools/tool_file.h"

#define TOOL_STAGED_MAX 64u

struct staged_file {
    char *path; /* absolute */
    const char *data;
    size_t len;
    struct buf decoded; /* of base64 */
};

struct tool_staging {
    struct staged_file files[TOOL_STAGED_MAX];
    size_t n;
    uint64_t bytes;
    /* Writing. */
    struct tool_call *call;
    struct tool_file file;
    size_t next;
    void (*on_end)(void *arg, const struct err *err);
    void *arg;
};

/* Reads a list of {name, content | content_base64, mime_type}. Names are relative to `dir`;
 * absolute ones stay below /workspace or /tmp. The strings are borrowed from the arguments. */
int tool_staging_read(struct tool_staging *s, const json_t *arguments, const char *name, const char *dir,
                      struct err *err);
/* Writes one file after another. err: of s->file; see tool_file_fail. */
void tool_staging_write(struct tool_staging *s, struct tool_call *c, void (*on_end)(void *arg, const struct err *err),
                        void *arg);
void tool_staging_done(struct tool_staging *s);

/* The schema of the list, whose last brace is missing. */
#define TOOL_STAGING_SCHEMA                                                                                     \
    "{\"type\": \"array\", \"maxItems\": 64, \"items\": {\"type\": \"object\", \"properties\": {"               \
    "\"name\": {\"type\": \"string\", \"minLength\": 1}, \"content\": {\"type\": \"string\", \"description\": " \
    "\"Text.\"}, \"content_base64\": {\"type\": \"string\", \"description\": \"Other content.\"}, "             \
    "\"mime_type\": {\"type\": \"string\", \"description\": \"Has no effect.\"}}, \"required\": [\"name\"], "   \
    "\"additionalProperties\": false}"
