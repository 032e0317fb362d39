/* audit_internal.h - what the files of this room share. Nothing outside includes it. */
#pragma once

#include "server/audit/audit.h"
#include "server/audit/segment.h"
#include "server/audit/sign.h"
#include "core/ev/work.h"

struct audit_batch { /* while a work is on, the writer's; otherwise the loop's */
    struct buf data;
    size_t done;         /* bytes of it that are in the file */
    uint64_t last_seq;   /* of it */
    bool has_checkpoint; /* it ends with a checkpoint, */
    bool rotate;         /* the last one of its file */
    struct chain_link checkpoint;
    int error;
    uint64_t took_ns;
    uint64_t trimmed, trimmed_bytes; /* old files that were removed */
};

struct audit_file { /* the writer's, as above */
    int fd;
    uint32_t no;
    uint64_t size;
    uint64_t reserved_end; /* up to here the disk has promised room; 0: it does not promise */
    bool fallocate_unsupported, reserve_failed;
};

struct audit {
    struct ev *ev;
    struct audit_settings set;
    char *dir;
    int dirfd;
    struct sign_key *key;
    struct work_pool *pool, *readers;
    struct chain_link head;     /* the last record that was made */
    uint64_t written;           /* the last one that was written */
    unsigned unsigned_records;  /* records behind the last checkpoint */
    uint64_t first_ns, last_ns; /* when the first and the last of them were made */
    struct buf pending;
    struct audit_batch batch;
    struct audit_file file;
    struct work_item work;
    struct ev_defer flush;
    struct ev_timer lazy_timer, sign_timer, retry_timer;
    struct audit_wait *waiters;
    enum audit_state state;
    struct audit_stats stats;
    struct audit_reading *readings;
};

/* read.c */
void audit_readings_free(struct audit *a); /* forgets those under way */
