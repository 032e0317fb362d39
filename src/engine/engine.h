/* engine.h - sandboxes for a program that has an ev loop and a socket to a jailer.
 *
 * engine is the connection to the jailer; box is one sandbox over it; exec is one program running in a box. Everything
 * is asynchronous: a call starts something, a callback says how it went, and nothing here blocks, prints or keeps state
 * on disk. Objects are freed by their owner after the callback that ends them (on_failed, on_ended, on_exit), or at any
 * time before with the matching _free, which makes no further callback.
 *
 * Truth: what a box reports was measured. A number that could not be had is absent and carries a reason. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "base/id.h"
#include "ev/ev.h"
#include "policy/level.h"
#include "policy/limits.h"
#include "policy/syscalls.h"

struct engine;
struct box;
struct exec;
struct receipt; /* engine/receipt.h */

struct engine_ops {
    void (*on_lost)(void *arg, const struct err *why); /* the jailer is gone, and every box with it */
};
/* Takes the socket. */
int engine_new(struct ev *ev, int jailer_fd, const struct engine_ops *ops, void *arg, struct engine **ret,
               struct err *err);
void engine_free(struct engine *e);
/* Lets receipts tell what was refused: a socket to the monitor that watches the jailer's sandboxes. Takes the socket,
 * also when it fails. Before the first box. */
int engine_watch(struct engine *e, int monitor_fd, struct err *err);
DEFINE_AUTO(engine, engine_free);

/* --- one sandbox --- */

enum box_mount_kind { BOX_BIND_RO, BOX_WORKSPACE, BOX_WORKSPACE_COW };
struct box_mount {
    enum box_mount_kind kind;
    int fd;          /* borrowed for the call */
    const char *dst; /* BOX_BIND_RO only */
};

struct box_spec {
    enum level level;
    const char *policy; /* its name, for the receipt; NULL: the level says it all */
    enum profile profile;
    uint32_t grants;                  /* GRANT_BIT: opened beyond the profile */
    uint64_t deny[FILTER_DENY_WORDS]; /* bit per system call: closed below it */
    struct limits limits;
    bool every_wall;        /* refuse a sandbox without those that only root can raise */
    uint64_t enforce;       /* bit per limit: refuse a host that cannot enforce it whole */
    const char *hostname;   /* NULL is "cove" */
    const char *const *env; /* added to the level's own environment; NULL-terminated or NULL */
    const struct box_mount *mounts;
    size_t nmounts;
    uid_t owner_uid; /* whose files a BOX_WORKSPACE directory holds */
    gid_t owner_gid;
};

struct box_ops {
    void (*on_ready)(void *arg);                         /* every wall is up; executions may start */
    void (*on_failed)(void *arg, const struct err *err); /* instead of on_ready; nothing is left behind */
    void (*on_ended)(void *arg, const struct err *why);  /* the sandbox ended without being asked to */
};

int box_new(struct engine *e, const struct box_spec *spec, const struct box_ops *ops, void *arg, struct box **ret,
            struct err *err);
/* Takes over a living sandbox by its id (a kept one, or after a restart). on_ready follows, or on_failed. */
int box_adopt(struct engine *e, const char *id, const struct box_spec *spec, const struct box_ops *ops, void *arg,
              struct box **ret, struct err *err);
void box_free(struct box *b); /* destroys the sandbox in the background if nobody did */
const char *box_id(const struct box *b);

/* Each answers once through `done`; err is NULL on success. */
typedef void box_done_fn(void *arg, const struct err *err);
void box_destroy(struct box *b, box_done_fn *done, void *arg); /* kill, remove every trace, final counters */
void box_freeze(struct box *b, box_done_fn *done, void *arg);
void box_thaw(struct box *b, box_done_fn *done, void *arg);
void box_keep(struct box *b, box_done_fn *done, void *arg); /* let it outlive this process */

/* --- one program --- */

struct exec_spec {
    const char *const *argv;
    const char *const *env; /* may be NULL */
    const char *cwd;        /* NULL is /workspace */
    bool tty;
    uint16_t rows, cols;
    bool stdin_open;          /* exec_write will be used; otherwise /dev/null */
    uint64_t wall_ms, cpu_ms; /* clocks of this execution; 0 is none */
    uint64_t output_max;      /* bytes handed to on_output; the rest is counted and dropped; 0 is no cap */
    bool changes;             /* find out what it changed under /workspace */
};

struct exec_ops {
    void (*on_started)(void *arg);
    /* channel 1 or 2. The bytes are credited to the program when this returns, unless exec_hold(x, true) is set: then
     * the program is slowed down until exec_hold(x, false). */
    void (*on_output)(void *arg, int channel, const void *data, size_t len);
    void (*on_writable)(void *arg); /* exec_write took less than it was given, and can take more now */
    /* The program ended, all its output was delivered. The receipt belongs to the exec; `final` figures may follow
     * with box_destroy. */
    void (*on_exit)(void *arg, const struct receipt *r);
    /* It could not be started. */
    void (*on_failed)(void *arg, const struct err *err);
};

int box_exec(struct box *b, const struct exec_spec *spec, const struct exec_ops *ops, void *arg, struct exec **ret,
             struct err *err);
void exec_free(struct exec *x); /* kills what still runs */
void exec_hold(struct exec *x, bool hold);
size_t exec_write(struct exec *x, const void *data, size_t len); /* to its standard input; bytes taken */
void exec_write_end(struct exec *x);
void exec_signal(struct exec *x, int signo); /* to its process group, as a terminal would */
void exec_resize(struct exec *x, uint16_t rows, uint16_t cols);
void exec_kill(struct exec *x);                           /* the whole tree; on_exit follows with endedBy killed */
const struct receipt *exec_receipt(const struct exec *x); /* final after box_destroy answered */
