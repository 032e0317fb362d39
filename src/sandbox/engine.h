/* engine.h - sandboxes for a program that has an ev loop and a socket to a jailer.
 *
 * engine is the connection to the jailer; box is one sandbox over it; exec is one program running in a box. Everything
 * is asynchronous: a call starts something, a callback says how it went, and nothing here blocks, prints or keeps state
 * on disk. Objects are freed by their owner after the callback that ends them (on_failed, on_ended, on_exit), or at any
 * time before with the matching _free, which makes no further callback.
 *
 * Truth: what a box reports was measured. A number that could not be had is absent and carries a reason. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "sandbox/receipt.h"
#include "core/ev/ev.h"
#include "policy/level.h"
#include "policy/limits.h"
#include "policy/syscalls.h"

struct engine;
struct sandbox_handle;
struct sandbox_spec;
struct exec_handle;

struct engine_ops {
    void (*on_lost)(void *arg, const struct err *why); /* the jailer is gone, and every box with it */
};
/* How many boxes an engine has room for whose process may hold so many descriptors; further ones are ERR_DESCRIPTORS.
 */
uint64_t engine_max_sandboxes(uint64_t nofile);
/* Takes the socket. */
int engine_new(struct ev *ev, int jailer_fd, const struct engine_ops *ops, void *arg, struct engine **ret,
               struct err *err);
void engine_free(struct engine *e);
/* Lets receipts tell what was refused: a socket to the monitor that watches the jailer's sandboxes. Takes the socket,
 * also when it fails. Before the first box. */
int engine_set_monitor(struct engine *e, int monitor_fd, struct err *err);
/* The same for who did not start the monitor: asks the jailer for a way to it, again when it was lost. What was refused
 * before is not told, and where there is none receipts say so. Before the first box. */
void engine_connect_monitor(struct engine *e);
DEFINE_AUTO(engine, engine_free);

/* The sandboxes that live in the jailer, whoever made them, in the order of their ids: the first ones, or those behind
 * `after`. ids is NULL when err is set. A list of ENGINE_LIST_MAX may have more behind it. */
#define ENGINE_LIST_MAX 1024
typedef void engine_list_fn(void *arg, const char (*ids)[ID_SIZE], size_t n, const struct err *err);
void engine_list_sandboxes(struct engine *e, const char *after, engine_list_fn *fn, void *arg);
void engine_destroy_sandbox(struct engine *e, const char *id); /* a sandbox for which there is no box; nobody is told */

/* --- one sandbox --- */

enum sandbox_mount_kind { SANDBOX_MOUNT_BIND_RO, SANDBOX_MOUNT_WORKSPACE, SANDBOX_MOUNT_WORKSPACE_COW };
struct sandbox_mount {
    enum sandbox_mount_kind kind;
    int fd;          /* borrowed for the call */
    const char *dst; /* SANDBOX_MOUNT_BIND_RO only */
};

struct zygote_spec { /* sandboxes with different ones are of different kinds, and each kind has its own zygote */
    const char *language;
    const char *preload; /* names with commas between them; "" is none */
};

struct sandbox_spec {
    const char *id; /* "sb..."; NULL: a new one */
    enum level level;
    const char *policy; /* its name, for the receipt; NULL: the level says it all */
    enum profile profile;
    uint32_t grants;                  /* GRANT_BIT: opened beyond the profile */
    uint64_t deny[FILTER_DENY_WORDS]; /* bit per system call: closed below it */
    struct limits limits;
    bool require_all_walls; /* refuse a sandbox without those that only root can raise */
    const struct zygote_spec
        *zygote; /* whose members may join it: engine_start_zygote, sandbox_handle_join_interpreter; NULL: nobody's */
    uint64_t require_enforced; /* bit per limit: refuse a host that cannot enforce it whole */
    const char *hostname;      /* NULL is "cove" */
    const char *const *env;    /* added to the level's own environment; NULL-terminated or NULL */
    const struct sandbox_mount *mounts;
    size_t nmounts;
    uid_t owner_uid; /* whose files a SANDBOX_MOUNT_WORKSPACE directory holds */
    gid_t owner_gid;
};

struct sandbox_handle_ops {
    void (*on_ready)(void *arg);                         /* every wall is up; executions may start */
    void (*on_failed)(void *arg, const struct err *err); /* instead of on_ready; nothing is left behind */
    void (*on_ended)(void *arg, const struct err *why);  /* the sandbox ended without being asked to */
    void (*on_created)(void *arg);                       /* optional, before on_ready: its walls are going up */
    void (*on_interpreter_lost)(void *arg);              /* optional: the interpreter that waited in it has ended */
};

int sandbox_handle_new(struct engine *e, const struct sandbox_spec *spec, const struct sandbox_handle_ops *ops,
                       void *arg, struct sandbox_handle **ret, struct err *err);
/* A sandbox without an owner: its walls are up and nothing of a caller is in it. on_ready says that it waits, or
 * on_failed that it has ended, also while it waits. Of `like` only what the jailer has to know is used, and there are
 * no mounts. */
int sandbox_handle_prepare(struct engine *e, const struct sandbox_spec *like, const struct sandbox_handle_ops *ops,
                           void *arg, struct sandbox_handle **ret, struct err *err);
/* It is the caller's from now on, with the rest of the spec (id: its own, or NULL), also when it is still being
 * prepared; on_ready of these ops follows, or on_failed. A failure changes nothing: it stays what it was. */
int sandbox_handle_claim(struct sandbox_handle *b, const struct sandbox_spec *spec,
                         const struct sandbox_handle_ops *ops, void *arg, struct err *err);
/* Whether one may be prepared for the other: the same level, walls, limits and host name, and no mounts. Limits that
 * are kept on this side (lifetime, idle time, output, time on the wall) come with the claim. */
bool sandbox_spec_equal(const struct sandbox_spec *a, const struct sandbox_spec *b);
bool sandbox_spec_same_kind(const struct sandbox_spec *a, const struct sandbox_spec *b); /* they share a zygote */
/* Whether what was prepared for one can be claimed for the other: as above, but limits of memory, swap, processor and
 * fewer processes are set when it is claimed. For one with a cgroup: sandbox_handle_can_freeze. */
bool sandbox_spec_fits_claim(const struct sandbox_spec *made, const struct sandbox_spec *want);
/* The way back: it is nobody's again, its executions are told nothing more, and what ran and was left in it goes.
 * on_ready of these ops says that it waits as one that was prepared, and was looked at; on_failed that it has ended.
 * Only of one that sandbox_handle_can_reset: others fail. It can be claimed again at the same level. */
void sandbox_handle_reset(struct sandbox_handle *b, const struct sandbox_handle_ops *ops, void *arg);
bool sandbox_handle_can_reset(const struct sandbox_handle *b);
struct sandbox_reset_report {
    uint32_t processes, objects; /* by the word of its first process, which has ended them, and removed these */
    uint64_t files;
    uint32_t sockets;      /* these it could not, */
    bool init_altered;     /* nor how it is scheduled and limited itself */
    bool limit_reached;    /* memory, processes or room had run out in it */
    bool has_denials;      /* the filter refused something in it, or it is not known that it did not */
    uint64_t pids, memory; /* as the kernel counts now; SANDBOX_USAGE_UNKNOWN */
};
const struct sandbox_reset_report *sandbox_handle_reset_report(const struct sandbox_handle *b); /* by the last reset */
bool sandbox_handle_has_denials(const struct sandbox_handle *b); /* the filter has, or nobody would know */
/* Takes over a living sandbox by its id (a kept one, or after a restart). on_ready follows, or on_failed. */
int sandbox_handle_adopt(struct engine *e, const char *id, const struct sandbox_spec *spec,
                         const struct sandbox_handle_ops *ops, void *arg, struct sandbox_handle **ret, struct err *err);
void sandbox_handle_free(struct sandbox_handle *b); /* destroys the sandbox in the background if nobody did */
const char *sandbox_handle_id(const struct sandbox_handle *b);
/* It is ready; or was prepared and claimed, and an execution may be sent right behind the claim. If that is refused,
 * both fail. */
bool sandbox_handle_accepts_exec(const struct sandbox_handle *b);
bool sandbox_handle_can_freeze(const struct sandbox_handle *b); /* known when it is ready: it has a cgroup */

/* Each answers once through `done`; err is NULL on success. */
typedef void sandbox_handle_done_fn(void *arg, const struct err *err);
void sandbox_handle_destroy(struct sandbox_handle *b, sandbox_handle_done_fn *done,
                            void *arg); /* kill, remove every trace, final counters */
bool sandbox_handle_is_lost(
    const struct sandbox_handle *b); /* its jailer is gone: whoever asks something from now on may never be answered */
void sandbox_handle_freeze(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg);
void sandbox_handle_thaw(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg);
void sandbox_handle_keep(struct sandbox_handle *b, sandbox_handle_done_fn *done,
                         void *arg); /* let it outlive this process */

void sandbox_handle_set_lifetime(struct sandbox_handle *b, uint64_t lifetime_ms, sandbox_handle_done_fn *done,
                                 void *arg); /* its lifetime, from now on */
/* Brings a member of the kind's zygote into a box of it that is ready or prepared; it waits there for one execution
 * with `joined`. There can be one at a time: while one is on its way, whoever asks last is told of it. Who prepared a
 * box is told nothing more when it was claimed. */
void sandbox_handle_join_interpreter(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg);
bool sandbox_handle_has_interpreter(const struct sandbox_handle *b);
/* Lets the one that waits do ahead what its first execution would begin with. It costs memory and a few milliseconds of
 * a processor; without it the execution takes as much longer. */
void sandbox_handle_warm_up(struct sandbox_handle *b);
/* Why it ended, after on_ended: by a clock of the sandbox, by memory, or lost. */
enum ended_by sandbox_handle_ended_by(const struct sandbox_handle *b);

struct sandbox_handle_usage { /* since its beginning, or now; SANDBOX_USAGE_UNKNOWN where this host cannot say */
    uint64_t cpu_ns, throttled_ns;
    uint64_t memory, memory_peak, oom_kills;
    uint64_t pids, pids_peak, pids_refused;
    uint64_t io_read, io_write;
};
#define SANDBOX_USAGE_UNKNOWN UINT64_MAX
typedef void sandbox_handle_usage_fn(void *arg, const struct sandbox_handle_usage *u,
                                     const struct err *err); /* one of them is NULL */
void sandbox_handle_usage(struct sandbox_handle *b, sandbox_handle_usage_fn *fn, void *arg);

/* Its processor time so far, read at once; after its end what it came to. SANDBOX_USAGE_UNKNOWN where this host cannot
 * say. */
uint64_t sandbox_handle_cpu_ns(const struct sandbox_handle *b);
uint64_t sandbox_handle_memory_peak(const struct sandbox_handle *b); /* after its end; SANDBOX_USAGE_UNKNOWN before */

/* Starts the process that members are forked from, as like->zygote says, for sandboxes of that kind; done is told when
 * it can be forked. It takes the place of the one before, and is to be started again when a join finds it LOST or
 * MISSING. */
int engine_start_zygote(struct engine *e, const struct sandbox_spec *like, sandbox_handle_done_fn *done, void *arg,
                        struct err *err);
void engine_forget_zygote_request(struct engine *e, const void *arg); /* it is not told any more */
/* Ends it, if there is one; members that it has born live on. */
void engine_stop_zygote(struct engine *e, const struct sandbox_spec *like);

/* --- one program --- */

struct exec_spec {
    const char *id;      /* "ex..."; NULL: a new one */
    const char *request; /* that asks for it, for the receipt; may be NULL */
    const char *const *argv;
    const char *const *env; /* may be NULL */
    const char *cwd;        /* NULL is /workspace */
    bool tty;
    uint16_t rows, cols;
    bool stdin_open;          /* exec_handle_write will be used; otherwise /dev/null */
    uint64_t wall_ms, cpu_ms; /* clocks of this execution; 0 is none */
    uint64_t output_max;      /* bytes handed to on_output; the rest is counted and dropped; 0 is no cap */
    bool changes;             /* find out what it changed under /workspace */
    bool unmetered;           /* nobody reads its receipt's processor time, and a read at the end takes its time */
    bool confirm_end; /* the sandbox remembers its end until exec_handle_free, for a host that comes after this one */
    bool use_waiting_interpreter; /* it is not started: the member that waits in the box is taken; with kernel */
    bool prefer_interpreter; /* the same if it can be had, which may mean to bring one into the box first; otherwise
                                argv is started */
    const struct exec_handle
        *fork_of;            /* it is not started: this one's kernel forks itself; with kernel, without env and cwd */
    bool is_language_kernel; /* it has a socket at descriptor 3: on_kernel and exec_handle_write_language_kernel; not
                                with tty */
};

struct exec_handle_ops {
    void (*on_started)(void *arg);
    /* channel 1 or 2. The bytes are credited to the program when this returns, unless exec_handle_hold_credit(x, true)
     * is set: then the program is slowed down until exec_handle_hold_credit(x, false). */
    void (*on_output)(void *arg, int channel, const void *data, size_t len);
    void (*on_writable)(void *arg); /* exec_handle_write took less than it was given, and can take more now */
    /* The program ended, all its output was delivered. The receipt belongs to the exec; `final` figures may follow
     * with sandbox_handle_destroy. */
    void (*on_exit)(void *arg, const struct receipt *r);
    /* It could not be started. */
    void (*on_failed)(void *arg, const struct err *err);
    /* What a kernel wrote to its socket, behind all output that it wrote before; credited as output is. May be NULL. */
    void (*on_language_kernel_data)(void *arg, const void *data, size_t len);
};

int sandbox_handle_exec(struct sandbox_handle *b, const struct exec_spec *spec, const struct exec_handle_ops *ops,
                        void *arg, struct exec_handle **ret, struct err *err);
/* Takes up an execution that an earlier host started in an adopted box. Only from on_ready, before anything of it can
 * have arrived. What it had written and the earlier host had not stored arrives next; on_started is said again;
 * on_failed with LOST means that the sandbox knows no such execution. argv, env, tty and stdin of the spec are not
 * used. Of a kernel `stored` does not count: what was not credited comes again, and its owner knows what of it is old.
 */
struct exec_resume {
    uint32_t stream_id;       /* exec_handle_stream_id() of the earlier host's exec */
    uint64_t stored_bytes[2]; /* bytes of channel 1 and 2 that are kept already */
    uint64_t started_real_ns; /* 0: it is not known that it started */
    uint64_t elapsed_ms;      /* of its time on the wall */
    uint64_t cpu_base_ns; /* exec_handle_cpu_base() of the earlier host's exec; 0: unknown, its processor clock begins
                             anew */
};
int sandbox_handle_exec_resume(struct sandbox_handle *b, const struct exec_spec *spec, const struct exec_resume *resume,
                               const struct exec_handle_ops *ops, void *arg, struct exec_handle **ret, struct err *err);
/* After the last of them: what an earlier host left running and nobody took up is killed. */
void sandbox_handle_resume_finish(struct sandbox_handle *b);
uint64_t exec_handle_stdin_received(
    const struct exec_handle *x); /* bytes of standard input that the earlier host had sent; on_started */
uint32_t exec_handle_stream_id(const struct exec_handle *x); /* its name for sandbox_handle_exec_resume(); known as soon
                                                                as sandbox_handle_exec returned */
/* Where the sandbox's processor counter stood when it began, 0 where there is none; known with exec_handle_stream_id().
 */
uint64_t exec_handle_cpu_base(const struct exec_handle *x);
uint64_t exec_handle_dropped_bytes(const struct exec_handle *x,
                                   int channel); /* bytes of 1 or 2 that were past the cap; in on_exit */
void exec_handle_free(struct exec_handle *x);    /* kills what still runs */
void exec_handle_hold_credit(struct exec_handle *x, bool hold);
size_t exec_handle_write(struct exec_handle *x, const void *data, size_t len); /* to its standard input; bytes taken */
void exec_handle_write_end(struct exec_handle *x);
size_t exec_handle_write_language_kernel(struct exec_handle *x, const void *data,
                                         size_t len);      /* to a kernel's socket; bytes taken */
void exec_handle_signal(struct exec_handle *x, int signo); /* to its process group, as a terminal would */
void exec_handle_resize(struct exec_handle *x, uint16_t rows, uint16_t cols);
void exec_handle_kill(struct exec_handle *x); /* the whole tree; on_exit follows with endedBy killed */
const struct receipt *
exec_handle_receipt(const struct exec_handle *x); /* final after sandbox_handle_destroy answered */
