/* files.h - the files of a sandbox, read and written from inside by its runtime.
 *
 * files_open starts a job. on_done ends the job exactly once; the caller frees it then, or gives
 * it up at any earlier time with files_free, after which no callback follows (a write that is
 * given up leaves the old file unchanged). Paths are absolute inside the sandbox. Names and
 * bytes that arrive were written by the sandbox: they are hostile input. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct sandbox_handle;
struct files_job;

struct files_entry {
    char kind; /* 'f' file, 'd' directory, 'l' link, 'p' fifo, 's' socket, 'c' 'b' devices */
    uint32_t mode;
    uint64_t size, mtime_ns;
    uint64_t version;   /* hash of inode, size and times; 0 in a list */
    bool settled;       /* every later write changes `version`; false in a list and for some ms after a write */
    const char *name;   /* in a list: one name, never a path; else the requested path */
    const char *target; /* target of a link, else "" */
};

enum files_event_kind { FILES_WATCHING, FILES_CREATED, FILES_MODIFIED, FILES_REMOVED, FILES_MOVED, FILES_OVERFLOW };

struct files_event {
    enum files_event_kind kind;
    bool is_directory;       /* the event is about a directory */
    const char *path, *from; /* absolute, never outside of the watched path; from: FILES_MOVED only, else NULL */
};

struct files_done {
    uint64_t bytes, files;
    bool truncated; /* a list had more entries than the limit */
};

struct files_ops { /* callbacks that a job never uses may be NULL */
    /* List: each entry; stat, read: once, before on_done. */
    void (*on_entry)(void *arg, const struct files_entry *e);
    void (*on_event)(void *arg, const struct files_event *e); /* watch; credited per frame, see files_hold_credit */
    /* Read, tar_out; credited when it returns, see files_hold_credit. */
    void (*on_data)(void *arg, const void *data, size_t len);
    /* files_send took less than it was given, and can take more now. */
    void (*on_writable)(void *arg);
    void (*on_done)(void *arg, const struct files_done *d, const struct err *err); /* either d or err is NULL */
};

#define FILES_PARENTS 0x01u    /* make missing parents: write, mkdir, move */
#define FILES_EXCL 0x02u       /* fail with EXISTS instead of replacing: write, mkdir, move */
#define FILES_RECURSIVE 0x04u  /* a whole tree: remove, watch */
#define FILES_MISSING_OK 0x08u /* a missing path is not an error: remove */

enum files_operation {
    FILES_OP_READ,
    FILES_OP_WRITE, /* the bytes follow with files_send and files_send_end; the file appears complete or not at all */
    FILES_OP_LIST,
    FILES_OP_STAT,
    FILES_OP_MKDIR,
    FILES_OP_MOVE,
    FILES_OP_REMOVE,
    FILES_OP_TAR_OUT,
    FILES_OP_TAR_IN,
    /* FILES_WATCHING comes first: every later change is reported, or FILES_OVERFLOW says that
     * events are missing. on_done comes when the watched path is gone. While credit is held, the
     * sandbox buffers events up to its limit. */
    FILES_OP_WATCH,
};

struct files_request {
    enum files_operation operation;
    const char *path;
    const char *move_to;     /* move */
    uint64_t offset, length; /* read: bytes, length 0: to the end of the file; list: at most `length` entries, 0: all */
    uint32_t mode;           /* write, mkdir; 0: 0644 for files, 0755 for directories */
    uint32_t flags;
    /* Read: fail with BUSY if the file is not the one that a stat reported: another file has its
     * name, or it was written to since. NULL: read any file. */
    const struct files_entry *seen;
};

/* The request is not used after the call. */
int files_open(struct sandbox_handle *b, const struct files_request *r, const struct files_ops *ops, void *arg,
               struct files_job **ret, struct err *err);

size_t files_send(struct files_job *j, const void *data, size_t len); /* write, tar_in; returns the bytes taken */
void files_send_end(struct files_job *j);
void files_hold_credit(struct files_job *j, bool hold); /* stops or resumes crediting of arriving data */
void files_free(struct files_job *j);
