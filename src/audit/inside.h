/* inside.h - what the files of this room share. Nothing outside includes it. */
#pragma once

#include "audit/audit.h"
#include "audit/segment.h"
#include "audit/sign.h"
#include "ev/work.h"

struct batch { /* while a work is on, the writer's; otherwise the loop's */
    struct buf data;
    size_t done;       /* bytes of it that are in the file */
    uint64_t last_seq; /* of it */
    bool signs;        /* it ends with a checkpoint, */
    bool rotate;       /* the last one of its file */
    struct chain_link checkpoint;
    int error;
    uint64_t took_ns;
    uint64_t trimmed, trimmed_bytes; /* old files that were removed */
};

struct file { /* the writer's, as above */
    int fd;
    uint32_t no;
    uint64_t size;
    uint64_t set_aside; /* up to here the disk has promised room; 0: it does not promise */
    bool no_promise, scarce;
};

struct audit {
    struct ev *ev;
    struct audit_settings set;
    char *dir;
    int dirfd;
    struct sign_key *key;
    struct work_pool *pool, *readers;
    struct chain_link at;       /* the last record that was made */
    uint64_t written;           /* the last one that was written */
    unsigned unsigned_;         /* records behind the last checkpoint */
    uint64_t first_ns, last_ns; /* when the first and the last of them were made */
    struct buf pending;
    struct batch batch;
    struct file file;
    struct work work;
    struct ev_defer flush;
    struct ev_timer lazy, sign, retry;
    struct audit_wait *waits;
    enum audit_state state;
    struct audit_stats stats;
    struct reading *readings;
};

/* read.c */
void read_done(struct audit *a); /* forgets those under way */
