/* files.h - the files of a sandbox, read and written by its runtime from inside.
 *
 * Each call starts a job; on_done ends it, exactly once, and the caller frees the job then or gives it up at any time
 * with files_free, which makes no further callback (a write that is given up leaves the old file as it was). Paths are
 * absolute inside the sandbox. What arrives was written by the sandbox: names and bytes are hostile input. */
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
    bool settled;       /* every later write changes `version`; false for some ms after a write, and in a list */
    const char *name;   /* in a list: one name, never a path; else the path asked for */
    const char *target; /* of a link, else "" */
};

enum files_event_kind { FILES_WATCHING, FILES_CREATED, FILES_MODIFIED, FILES_REMOVED, FILES_MOVED, FILES_OVERFLOW };

struct files_event {
    enum files_event_kind kind;
    bool is_directory;       /* it is about a directory */
    const char *path, *from; /* absolute; never leads out of what was asked for. from: FILES_MOVED, else NULL */
};

struct files_done {
    uint64_t bytes, files;
    bool truncated; /* a list that had more entries than the limit */
};

struct files_ops {                                            /* what a job never does may be NULL */
    void (*on_entry)(void *arg, const struct files_entry *e); /* list: each one; stat, read: once, before on_done */
    void (*on_event)(void *arg, const struct files_event *e); /* watch; credited by the frame, see hold */
    void (*on_data)(void *arg, const void *data, size_t len); /* read, tar_out; credited when it returns, see hold */
    void (*on_writable)(void *arg);                           /* files_send took less than it was given */
    void (*on_done)(void *arg, const struct files_done *d, const struct err *err); /* one of the two is NULL */
};

/* Flags; which of them mean something is said with each call. */
#define FILES_PARENTS 0x01u    /* make missing parents */
#define FILES_EXCL 0x02u       /* EXISTS instead of replacing */
#define FILES_RECURSIVE 0x04u  /* a whole tree */
#define FILES_MISSING_OK 0x08u /* nothing to remove is no error */

/* length 0 is to the end */
int files_read(struct sandbox_handle *b, const char *path, uint64_t offset, uint64_t length,
               const struct files_ops *ops, void *arg, struct files_job **ret, struct err *err);
/* BUSY when the file is not the one that files_stat told of: another has its name, or it was written to since. */
int files_read_unchanged(struct sandbox_handle *b, const char *path, const struct files_entry *seen, uint64_t offset,
                         uint64_t length, const struct files_ops *ops, void *arg, struct files_job **ret,
                         struct err *err);
/* mode 0 is 0644; PARENTS, EXCL. Bytes follow with files_send and files_send_end; the file appears whole or not. */
int files_write(struct sandbox_handle *b, const char *path, uint32_t mode, uint32_t flags, const struct files_ops *ops,
                void *arg, struct files_job **ret, struct err *err);
/* limit 0 is all */
int files_list(struct sandbox_handle *b, const char *path, uint64_t limit, const struct files_ops *ops, void *arg,
               struct files_job **ret, struct err *err);
int files_stat(struct sandbox_handle *b, const char *path, const struct files_ops *ops, void *arg,
               struct files_job **ret, struct err *err);
/* mode 0 is 0755; PARENTS, EXCL */
int files_mkdir(struct sandbox_handle *b, const char *path, uint32_t mode, uint32_t flags, const struct files_ops *ops,
                void *arg, struct files_job **ret, struct err *err);
/* PARENTS, EXCL */
int files_move(struct sandbox_handle *b, const char *from, const char *to, uint32_t flags, const struct files_ops *ops,
               void *arg, struct files_job **ret, struct err *err);
/* RECURSIVE, MISSING_OK */
int files_remove(struct sandbox_handle *b, const char *path, uint32_t flags, const struct files_ops *ops, void *arg,
                 struct files_job **ret, struct err *err);
int files_tar_out(struct sandbox_handle *b, const char *path, const struct files_ops *ops, void *arg,
                  struct files_job **ret, struct err *err);
int files_tar_in(struct sandbox_handle *b, const char *path, const struct files_ops *ops, void *arg,
                 struct files_job **ret, struct err *err);
/* RECURSIVE. FILES_WATCHING comes first: what happens from then on is told, or FILES_OVERFLOW says that something is
 * missing. on_done comes when what is watched is gone. While it is held, the sandbox keeps what happens as long as it
 * has room for it. */
int files_watch(struct sandbox_handle *b, const char *path, uint32_t flags, const struct files_ops *ops, void *arg,
                struct files_job **ret, struct err *err);

size_t files_send(struct files_job *j, const void *data, size_t len); /* write, tar_in: bytes taken */
void files_send_end(struct files_job *j);
void files_hold_credit(struct files_job *j, bool hold); /* stop or go on crediting what arrives */
void files_free(struct files_job *j);
