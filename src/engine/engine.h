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
#include "engine/receipt.h"
#include "ev/ev.h"
#include "policy/level.h"
#include "policy/limits.h"
#include "policy/syscalls.h"

struct engine;
struct box;
struct box_spec;
struct exec;

struct engine_ops {
    void (*on_lost)(void *arg, const struct err *why); /* the jailer is gone, and every box with it */
};
/* How many boxes an engine has room for whose process may hold so many descriptors; further ones are ERR_DESCRIPTORS.
 */
uint64_t engine_room(uint64_t nofile);
/* Takes the socket. */
int engine_new(struct ev *ev, int jailer_fd, const struct engine_ops *ops, void *arg, struct engine **ret,
               struct err *err);
void engine_free(struct engine *e);
/* Lets receipts tell what was refused: a socket to the monitor that watches the jailer's sandboxes. Takes the socket,
 * also when it fails. Before the first box. */
int engine_watch(struct engine *e, int monitor_fd, struct err *err);
/* The same for who did not start the monitor: asks the jailer for a way to it, again when it was lost. What was refused
 * before is not told, and where there is none receipts say so. Before the first box. */
void engine_watch_kept(struct engine *e);
DEFINE_AUTO(engine, engine_free);

/* The sandboxes that live in the jailer, whoever made them, in the order of their ids: the first ones, or those behind
 * `after`. ids is NULL when err is set. A list of ENGINE_LIST_MAX may have more behind it. */
#define ENGINE_LIST_MAX 1024
typedef void engine_list_fn(void *arg, const char (*ids)[ID_SIZE], size_t n, const struct err *err);
void engine_list(struct engine *e, const char *after, engine_list_fn *fn, void *arg);
void engine_destroy(struct engine *e, const char *id); /* a sandbox for which there is no box; nobody is told */

/* --- one sandbox --- */

enum box_mount_kind { BOX_BIND_RO, BOX_WORKSPACE, BOX_WORKSPACE_COW };
struct box_mount {
    enum box_mount_kind kind;
    int fd;          /* borrowed for the call */
    const char *dst; /* BOX_BIND_RO only */
};

struct zygote_spec { /* sandboxes with different ones are of different kinds, and each kind has its own zygote */
    const char *language;
    const char *preload; /* names with commas between them; "" is none */
};

struct box_spec {
    const char *id; /* "sb..."; NULL: a new one */
    enum level level;
    const char *policy; /* its name, for the receipt; NULL: the level says it all */
    enum profile profile;
    uint32_t grants;                  /* GRANT_BIT: opened beyond the profile */
    uint64_t deny[FILTER_DENY_WORDS]; /* bit per system call: closed below it */
    struct limits limits;
    bool every_wall;                  /* refuse a sandbox without those that only root can raise */
    const struct zygote_spec *zygote; /* whose members may join it: engine_zygote, box_join; NULL: nobody's */
    uint64_t enforce;                 /* bit per limit: refuse a host that cannot enforce it whole */
    const char *hostname;             /* NULL is "cove" */
    const char *const *env;           /* added to the level's own environment; NULL-terminated or NULL */
    const struct box_mount *mounts;
    size_t nmounts;
    uid_t owner_uid; /* whose files a BOX_WORKSPACE directory holds */
    gid_t owner_gid;
};

struct box_ops {
    void (*on_ready)(void *arg);                         /* every wall is up; executions may start */
    void (*on_failed)(void *arg, const struct err *err); /* instead of on_ready; nothing is left behind */
    void (*on_ended)(void *arg, const struct err *why);  /* the sandbox ended without being asked to */
    void (*on_made)(void *arg);                          /* optional, before on_ready: its walls are going up */
    void (*on_member_lost)(void *arg);                   /* optional: the interpreter that waited in it has ended */
};

int box_new(struct engine *e, const struct box_spec *spec, const struct box_ops *ops, void *arg, struct box **ret,
            struct err *err);
/* A sandbox without an owner: its walls are up and nothing of a caller is in it. on_ready says that it waits, or
 * on_failed that it has ended, also while it waits. Of `like` only what the jailer has to know is used, and there are
 * no mounts. */
int box_prepare(struct engine *e, const struct box_spec *like, const struct box_ops *ops, void *arg, struct box **ret,
                struct err *err);
/* It is the caller's from now on, with the rest of the spec (id: its own, or NULL), also when it is still being
 * prepared; on_ready of these ops follows, or on_failed. A failure changes nothing: it stays what it was. */
int box_claim(struct box *b, const struct box_spec *spec, const struct box_ops *ops, void *arg, struct err *err);
/* Whether one may be prepared for the other: the same level, walls, limits and host name, and no mounts. Limits that
 * are kept on this side (lifetime, idle time, output, time on the wall) come with the claim. */
bool box_like(const struct box_spec *a, const struct box_spec *b);
bool box_same_kind(const struct box_spec *a, const struct box_spec *b); /* they share a zygote */
/* Whether what was prepared for one can be claimed for the other: as above, but limits of memory, swap, processor and
 * fewer processes are set when it is claimed. For one with a cgroup: box_can_freeze. */
bool box_fits(const struct box_spec *made, const struct box_spec *want);
/* The way back: it is nobody's again, its executions are told nothing more, and what ran and was left in it goes.
 * on_ready of these ops says that it waits as one that was prepared, and was looked at; on_failed that it has ended.
 * Only of one that box_can_reset: others fail. It can be claimed again at the same level. */
void box_reset(struct box *b, const struct box_ops *ops, void *arg);
bool box_can_reset(const struct box *b);
struct box_found {
    uint32_t processes, objects; /* by the word of its first process, which has ended them, and removed these */
    uint64_t files;
    uint32_t sockets;      /* these it could not, */
    bool altered;          /* nor how it is scheduled and limited itself */
    bool limit;            /* memory, processes or room had run out in it */
    bool refused;          /* the filter refused something in it, or it is not known that it did not */
    uint64_t pids, memory; /* as the kernel counts now; BOX_UNKNOWN */
};
const struct box_found *box_found(const struct box *b); /* by the last reset */
bool box_refused(const struct box *b);                  /* the filter has, or nobody would know */
/* Takes over a living sandbox by its id (a kept one, or after a restart). on_ready follows, or on_failed. */
int box_adopt(struct engine *e, const char *id, const struct box_spec *spec, const struct box_ops *ops, void *arg,
              struct box **ret, struct err *err);
void box_free(struct box *b); /* destroys the sandbox in the background if nobody did */
const char *box_id(const struct box *b);
/* It is ready; or was prepared and claimed, and an execution may be sent right behind the claim. If that is refused,
 * both fail. */
bool box_takes_exec(const struct box *b);
bool box_can_freeze(const struct box *b); /* known when it is ready: it has a cgroup */

/* Each answers once through `done`; err is NULL on success. */
typedef void box_done_fn(void *arg, const struct err *err);
void box_destroy(struct box *b, box_done_fn *done, void *arg); /* kill, remove every trace, final counters */
bool box_lost(const struct box *b); /* its jailer is gone: whoever asks something from now on may never be answered */
void box_freeze(struct box *b, box_done_fn *done, void *arg);
void box_thaw(struct box *b, box_done_fn *done, void *arg);
void box_keep(struct box *b, box_done_fn *done, void *arg); /* let it outlive this process */

void box_extend(struct box *b, uint64_t lifetime_ms, box_done_fn *done, void *arg); /* its lifetime, from now on */
/* Brings a member of the kind's zygote into a box of it that is ready or prepared; it waits there for one execution
 * with `joined`. There can be one at a time: while one is on its way, whoever asks last is told of it. Who prepared a
 * box is told nothing more when it was claimed. */
void box_join(struct box *b, box_done_fn *done, void *arg);
bool box_has_member(const struct box *b);
/* Lets the one that waits do ahead what its first execution would begin with. It costs memory and a few milliseconds of
 * a processor; without it the execution takes as much longer. */
void box_rehearse(struct box *b);
/* Why it ended, after on_ended: by a clock of the sandbox, by memory, or lost. */
enum ended_by box_ended_by(const struct box *b);

struct box_usage { /* since its beginning, or now; BOX_UNKNOWN where this host cannot say */
    uint64_t cpu_ns, throttled_ns;
    uint64_t memory, memory_peak, oom_kills;
    uint64_t pids, pids_peak, pids_refused;
    uint64_t io_read, io_write;
};
#define BOX_UNKNOWN UINT64_MAX
typedef void box_usage_fn(void *arg, const struct box_usage *u, const struct err *err); /* one of them is NULL */
void box_usage(struct box *b, box_usage_fn *fn, void *arg);

/* Its processor time so far, read at once; after its end what it came to. BOX_UNKNOWN where this host cannot say. */
uint64_t box_cpu_ns(const struct box *b);
uint64_t box_memory_peak(const struct box *b); /* after its end; BOX_UNKNOWN before */

/* Starts the process that members are forked from, as like->zygote says, for sandboxes of that kind; done is told when
 * it can be forked. It takes the place of the one before, and is to be started again when a join finds it LOST or
 * MISSING. */
int engine_zygote(struct engine *e, const struct box_spec *like, box_done_fn *done, void *arg, struct err *err);
void engine_zygote_forget(struct engine *e, const void *arg); /* it is not told any more */
/* Ends it, if there is one; members that it has born live on. */
void engine_zygote_end(struct engine *e, const struct box_spec *like);

/* --- one program --- */

struct exec_spec {
    const char *id;      /* "ex..."; NULL: a new one */
    const char *request; /* that asks for it, for the receipt; may be NULL */
    const char *const *argv;
    const char *const *env; /* may be NULL */
    const char *cwd;        /* NULL is /workspace */
    bool tty;
    uint16_t rows, cols;
    bool stdin_open;          /* exec_write will be used; otherwise /dev/null */
    uint64_t wall_ms, cpu_ms; /* clocks of this execution; 0 is none */
    uint64_t output_max;      /* bytes handed to on_output; the rest is counted and dropped; 0 is no cap */
    bool changes;             /* find out what it changed under /workspace */
    bool unmetered;           /* nobody reads its receipt's processor time, and a read at the end takes its time */
    bool confirm;             /* the sandbox remembers its end until exec_free, for a host that comes after this one */
    bool joined;              /* it is not started: the member that waits in the box is taken; with kernel */
    bool
        join; /* the same if it can be had, which may mean to bring one into the box first; otherwise argv is started */
    const struct exec
        *fork_of; /* it is not started: this one's kernel forks itself; with kernel, without env and cwd */
    bool kernel;  /* it has a socket at descriptor 3: on_kernel and exec_kernel_write; not with tty */
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
    /* What a kernel wrote to its socket, behind all output that it wrote before; credited as output is. May be NULL. */
    void (*on_kernel)(void *arg, const void *data, size_t len);
};

int box_exec(struct box *b, const struct exec_spec *spec, const struct exec_ops *ops, void *arg, struct exec **ret,
             struct err *err);
/* Takes up an execution that an earlier host started in an adopted box. Only from on_ready, before anything of it can
 * have arrived. What it had written and the earlier host had not stored arrives next; on_started is said again;
 * on_failed with LOST means that the sandbox knows no such execution. argv, env, tty and stdin of the spec are not
 * used. Of a kernel `stored` does not count: what was not credited comes again, and its owner knows what of it is old.
 */
struct exec_resume {
    uint32_t stream;          /* exec_stream() of the earlier host's exec */
    uint64_t stored[2];       /* bytes of channel 1 and 2 that are kept already */
    uint64_t started_real_ns; /* 0: it is not known that it started */
    uint64_t elapsed_ms;      /* of its time on the wall */
    uint64_t cpu_base_ns; /* exec_cpu_base() of the earlier host's exec; 0: unknown, its processor clock begins anew */
};
int box_exec_resume(struct box *b, const struct exec_spec *spec, const struct exec_resume *resume,
                    const struct exec_ops *ops, void *arg, struct exec **ret, struct err *err);
/* After the last of them: what an earlier host left running and nobody took up is killed. */
void box_resume_end(struct box *b);
uint64_t exec_received(const struct exec *x); /* bytes of standard input that the earlier host had sent; on_started */
uint32_t exec_stream(const struct exec *x);   /* its name for box_exec_resume(); known as soon as box_exec returned */
/* Where the sandbox's processor counter stood when it began, 0 where there is none; known with exec_stream(). */
uint64_t exec_cpu_base(const struct exec *x);
uint64_t exec_dropped(const struct exec *x, int channel); /* bytes of 1 or 2 that were past the cap; in on_exit */
void exec_free(struct exec *x);                           /* kills what still runs */
void exec_hold(struct exec *x, bool hold);
size_t exec_write(struct exec *x, const void *data, size_t len); /* to its standard input; bytes taken */
void exec_write_end(struct exec *x);
size_t exec_kernel_write(struct exec *x, const void *data, size_t len); /* to a kernel's socket; bytes taken */
void exec_signal(struct exec *x, int signo);                            /* to its process group, as a terminal would */
void exec_resize(struct exec *x, uint16_t rows, uint16_t cols);
void exec_kill(struct exec *x);                           /* the whole tree; on_exit follows with endedBy killed */
const struct receipt *exec_receipt(const struct exec *x); /* final after box_destroy answered */
