/* tool_file.h - one operation on one file of the sandbox of a call, by the runtime inside.
 *
 * An operation fails in two ways: the sandbox cannot be used (there is none, it is paused), which
 * refuses the call; or the file is not as needed (missing, a directory, no space), which is a
 * result of the tool. tool_file_fail makes this distinction. */
#pragma once

#include "service/sandbox_files.h"
#include "service/tools/tool_internal.h"

struct tool_file;

struct tool_file_ops {
    /* Read: the file is regular. False: it is not to be read, and the owner has ended the call or
     * the operation. NULL: it is read. */
    bool (*on_entry)(void *arg, const struct files_entry *e);
    /* Read: bytes of the file. NULL: they are kept in f->data, up to f->max; a larger file fails
     * with ERR_LIMIT. List: on_name instead. */
    void (*on_data)(void *arg, const void *data, size_t len);
    void (*on_name)(void *arg, const struct files_entry *e);
    /* The last callback. err: see tool_file_fail. */
    void (*on_end)(void *arg, const struct files_done *d, const struct err *err);
};

struct tool_file { /* embedded in the work of a call; all zero: idle */
    struct tool_call *call;
    const struct tool_file_ops *ops;
    void *arg;
    char *path; /* owned */
    struct sandbox_files_job *job;
    struct sandbox_files_request request;
    bool is_acquired; /* the sandbox could be used */
    uint64_t max;     /* of data */
    struct buf data;
    bool is_too_large;
    struct ev_defer end_defer; /* is_too_large: ends the operation, though the file goes on */
    const char *content;       /* write: borrowed */
    size_t content_len, sent;
    uint32_t mode; /* read: of the file; 0: a link, whose target is read */
    uint64_t size; /* the same */
};

/* The operation is idle again after on_end; its path and its data stay until the next start. Each
 * takes the path. */
void tool_file_read(struct tool_file *f, struct tool_call *c, char *path, uint64_t max, const struct tool_file_ops *ops,
                    void *arg);
/* Makes missing parents and replaces the file. mode 0: 0644. The content is borrowed until
 * on_end. */
void tool_file_write(struct tool_file *f, struct tool_call *c, char *path, const char *content, size_t len,
                     uint32_t mode, const struct tool_file_ops *ops, void *arg);
/* At most `max` names. */
void tool_file_list(struct tool_file *f, struct tool_call *c, char *path, uint64_t max, const struct tool_file_ops *ops,
                    void *arg);
void tool_file_done(struct tool_file *f); /* at any time; no callback follows */

/* Ends the call with this error of the operation. */
void tool_file_fail(struct tool_file *f, const struct err *err);
/* "file", "directory", ... */
const char *tool_file_kind_name(char kind);
/* Whether the first bytes contain a NUL, as text never does. */
bool tool_file_is_binary(const char *data, size_t len);
