/* tool_internal.h - shared by the files of this directory. No other directory includes it.
 *
 * A tool is one file that defines a struct tool_definition, and one row in the table of tools.c.
 * Its start function reads the arguments, whose names and required fields are already checked
 * against input_schema, and begins the work. The work ends with tool_call_finish or
 * tool_call_fail, from any callback; the caller is always called later. */
#pragma once

#include "service/tools/tools.h"

#include "core/base/buf.h"
#include "core/base/id.h"
#include "core/base/jsonw.h"
#include "core/doc/json_input.h"

#define TOOL_PATH_MAX 4000u
#define TOOL_IMAGES_MAX 16u
#define TOOL_IMAGES_BYTES (4 * MIB) /* base64, of one result */

/* JSON in C without escaped quotes. */
#define TOOL_JSON(...) #__VA_ARGS__

struct tool_definition {
    struct tool tool;
    /* -1: the arguments are wrong, and nothing was begun. */
    int (*start)(struct tool_call *c, struct err *err);
};

struct tools {
    struct tools_settings settings;
    struct script_runs *script_runs;
    struct tools_stats stats;
    struct tool_call *calls;
    json_t **schemas; /* input_schema of each tool, parsed */
};

struct tool_answer {
    bool is_error, is_truncated;
    struct buf text, json;
    struct tool_image *images; /* owned, with their strings */
    size_t nimages;
    char execution[ID_SIZE]; /* "": none */
};

struct tool_call {
    struct tool_call *next;
    struct tools *tools;
    const struct tool_definition *definition;
    struct tool_request request;
    struct tool_ops ops;
    void *arg;
    /* Set by start: ends and frees the work, whatever its state. NULL: there is nothing to end. */
    void (*stop)(void *work);
    void *work;
    struct ev_defer end_defer;
    bool has_failed;
    struct err err; /* has_failed */
    struct tool_answer answer;
};

/* --- the end of a call (tools.c) --- */

/* Ends the call with c->answer. */
void tool_call_finish(struct tool_call *c);
/* Refuses the call. */
void tool_call_fail(struct tool_call *c, const struct err *err);
/* Ends the call with a result that says that the work failed. `path` may be NULL. */
void tool_call_finish_with_error(struct tool_call *c, const struct err *err, const char *path);
void tool_answer_add_image(struct tool_answer *a, const char *type, const char *data, size_t len);

/* --- arguments (tool_arguments.c) --- */

/* Whether the arguments have the required names of a parsed schema and no others. */
int tool_arguments_check_names(const json_t *arguments, const json_t *schema, struct err *err);
/* An absolute path, or one relative to /workspace. Absent: `preset`; NULL: it is required. */
int tool_arguments_path(const json_t *arguments, const char *name, const char *preset, char **ret, struct err *err);
/* timeout_ms in the range of the operator. Absent: the setting, or 0 if the operator allows
 * less. */
int tool_arguments_timeout(const struct tool_call *c, uint64_t *ret, struct err *err);
/* "language": python, node, bash or an alias. Absent: unchanged. */
int tool_arguments_language(const json_t *arguments, const char **ret, struct err *err);

/* --- text (tool_text.c) --- */

/* Adds valid UTF-8 without NULs: other bytes become U+FFFD. */
void tool_text_add(struct buf *out, const char *data, size_t len);
/* Parses an object that this server wrote. NULs in its strings become U+FFFD, because the strings
 * of most readers end at a NUL. */
json_t *tool_text_load_json(struct buf *text);
/* Lengths of the beginning and the end that are kept of a text of `total` bytes, of which at most
 * `space` are shown. False: everything is kept. */
bool tool_text_split(uint64_t total, uint64_t space, uint64_t *ret_head, uint64_t *ret_tail);
/* The number of bytes at the beginning that form complete characters. */
size_t tool_text_whole_length(const char *data, size_t len);
/* The number of bytes at the beginning that belong to a character that begins earlier. */
size_t tool_text_broken_start(const char *data, size_t len);
/* Adds "name:\n" and the text without newlines at its end; nothing if it is empty. */
void tool_text_add_part(struct buf *out, const char *name, const char *data, size_t len);
/* Divides the space among the needs: equal shares; the rest of a small need goes to the others. */
void tool_text_share(const uint64_t *needs, uint64_t *ret_shares, size_t n, uint64_t space);
