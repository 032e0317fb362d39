/* receipt.h - what an execution used, met and changed, and why it ended. */
#pragma once

#include "core/base/base.h"
#include "core/base/id.h"
#include "core/base/jsonw.h"
#include "policy/denial.h"
#include "policy/level.h"
#include "policy/limits.h"

enum ended_by {
    ENDED_EXIT,
    ENDED_SIGNAL,
    ENDED_LIFETIME,
    ENDED_IDLE,
    ENDED_WALL,
    ENDED_CPU,
    ENDED_MEMORY,
    ENDED_KILLED,
    ENDED_LOST,
    ENDED_BUDGET, /* of a server: its tenant may use no more */
};
const char *ended_by_name(enum ended_by e);

/* A figure that may be unknown: `why` is NULL when `v` is measured, else the reason for its absence. */
struct receipt_figure {
    uint64_t v;
    const char *why; /* static text */
};

struct receipt_change {
    char kind;      /* 'A' added, 'M' modified, 'D' deleted */
    char file_kind; /* 'f' 'd' 'l' ... */
    uint64_t size;
    char *path;
};

struct receipt_denial {
    struct denial denial;
    uint64_t count;
};

#define RECEIPT_REQUEST_MAX 64

struct receipt {
    char sandbox[ID_SIZE];
    char execution[ID_SIZE];
    char request[RECEIPT_REQUEST_MAX + 1]; /* of a server: what asked for it; "" when nothing did */
    bool final;
    enum ended_by ended_by;
    int exit_code; /* -1 when it did not exit */
    int signal;    /* 0 when it was not ended by one */
    uint64_t started_real_ns;
    struct receipt_figure wall_ns, cpu_ns, memory_peak, read_bytes, write_bytes, tasks_started, pids_peak;
    struct receipt_figure pids_refused, oom_kills, throttled_ns;
    uint64_t stdout_bytes, stderr_bytes; /* produced */
    uint64_t dropped_bytes;              /* of them, past the cap */
    uint32_t full_filesystems;           /* RT_FULL_*: at the end */
    const char *full_filesystems_why;    /* NULL when that was looked at */
    enum level level;
    char policy[64]; /* "" when nobody named one */
    char profile[16];
    char driver[16];
    char cgroup[16];
    uint32_t host_walls;   /* JAIL_WALL_*: raised from outside */
    uint32_t inside_walls; /* RT_WALL_*: seen from inside */
    uint32_t landlock_abi;
    struct limits limits;
    uint8_t enforced[LIMIT_COUNT];     /* 0 none, 1 partial, 2 enforced */
    uint8_t enforced_why[LIMIT_COUNT]; /* enum limit_reason, where it is less than enforced */
    struct receipt_change *changes;
    size_t nchanges;
    uint64_t added, modified, deleted;
    bool changes_truncated;
    const char *changes_why;        /* NULL when they were measured */
    struct receipt_denial *denials; /* system calls that were refused, in the order of their first time */
    size_t ndenials;
    uint64_t denials_more;   /* and so many more, of kinds that found no room in the list */
    const char *denials_why; /* NULL when they were counted */
};

bool receipt_rootless(const struct receipt *r); /* made by a plain user */
int receipt_exit_code(const struct receipt *r); /* of `cove run`: the program's own, 124, 123, 128+n, 125 */
void receipt_json(const struct receipt *r, struct jsonw *w);     /* one object */
void receipt_json_end(const struct receipt *r, struct jsonw *w); /* of it exitCode, signal and endedBy */
void receipt_print(const struct receipt *r, struct buf *out);    /* for a person, a few lines */
void receipt_done(struct receipt *r);
