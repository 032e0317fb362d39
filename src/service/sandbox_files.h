/* sandbox_files.h - operations on the files of a sandbox, which is named by its id.
 *
 * A job acquires the sandbox, starts one operation of sandbox/files.h in it and holds the sandbox
 * until it is freed. A watch releases the sandbox at once: it does not count as use. */
#pragma once

#include "service/manager.h"

struct sandbox_files_request {
    const char *owner, *sandbox;
    /* FILES_OP_READ: one file, although it may change meanwhile; see sandbox_files_read(). */
    struct files_request files;
};

struct sandbox_files_ops {
    /* on_done also reports that the sandbox cannot be used. */
    struct files_ops files;
    /* Write, tar_in: the job accepts bytes from now on. */
    void (*on_start)(void *arg);
    /* Read: the file changed before every attempt to read it. True: the whole file is read as it is
     * when it is opened, whatever its length. False: the job fails with ERR_EXISTS. */
    bool (*on_changing)(void *arg);
};

struct sandbox_files_job;

/* Callbacks may run before the call returns, and after *ret is set. `ops` and the strings of the
 * request are borrowed until on_done or sandbox_files_free(). */
void sandbox_files_open(struct manager *m, const struct sandbox_files_request *request,
                        const struct sandbox_files_ops *ops, void *arg, struct sandbox_files_job **ret);
/* Read: each on_entry describes the file, and is answered by this call or by sandbox_files_free().
 * on_entry comes again if the file was written or replaced before it is opened, so on_data receives
 * bytes of the described file only. length 0: up to its end when it is opened, even if it
 * changed. */
void sandbox_files_read(struct sandbox_files_job *j, uint64_t offset, uint64_t length);
size_t sandbox_files_send(struct sandbox_files_job *j, const void *data, size_t len); /* files_send() */
void sandbox_files_send_end(struct sandbox_files_job *j);
void sandbox_files_hold_credit(struct sandbox_files_job *j, bool hold);
void sandbox_files_free(struct sandbox_files_job *j); /* at any time; no callback follows */
