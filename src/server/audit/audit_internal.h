/* audit_internal.h - declarations shared by the files of this directory. No other directory
 * includes it. */
#pragma once

#include "server/audit/audit.h"
#include "server/audit/segment.h"
#include "server/audit/sign.h"
#include "core/ev/work.h"

struct audit_batch { /* owned by the writer thread while work is queued, otherwise by the loop */
    struct buf data;
    size_t done;         /* bytes of `data` already in the file */
    uint64_t last_seq;   /* number of the last record in `data` */
    bool has_checkpoint; /* `data` ends with a checkpoint */
    bool rotate;         /* that checkpoint is the last record of its file */
    struct chain_link checkpoint;
    int error;
    uint64_t took_ns;
    uint64_t trimmed, trimmed_bytes; /* old files that were removed, and their bytes */
};

struct audit_file { /* owned like audit_batch */
    int fd;
    uint32_t no;
    uint64_t size;
    uint64_t reserved_end; /* the file is preallocated up to here; 0: it is not */
    bool fallocate_unsupported, reserve_failed;
};

struct audit {
    struct ev *ev;
    struct audit_settings set;
    char *dir;
    int dirfd;
    struct sign_key *key;
    struct work_pool *pool, *readers;
    struct chain_link head;     /* the last record appended */
    uint64_t written;           /* number of the last record written */
    unsigned unsigned_records;  /* records since the last checkpoint */
    uint64_t first_ns, last_ns; /* when the first and the last unsigned record were appended */
    struct buf pending;
    struct audit_batch batch;
    struct audit_file file;
    struct work_item work;
    struct ev_defer flush;
    struct ev_timer lazy_timer, sign_timer, retry_timer;
    struct audit_wait *waiters, *last_waiter;
    enum audit_state state;
    struct audit_stats stats;
    struct audit_reading *readings;
};

/* read.c */
void audit_readings_free(struct audit *a); /* cancels the reads in progress */
