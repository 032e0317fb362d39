/* engine.h - sandboxes for a program that has an ev loop and the means of a driver.
 *
 * `struct engine` has the connections of the drivers, `struct sandbox_handle` is one sandbox over
 * such a connection, `struct exec_handle` one program that runs in a sandbox. Everything is
 * asynchronous: a call starts an operation and a callback reports its result. Nothing here
 * blocks, prints or keeps state on disk. The owner of an object frees it after the callback that
 * ends it (on_failed, on_ended, on_exit), or at any earlier time with the matching _free, after
 * which no callback follows.
 *
 * Every figure that a sandbox reports was measured. A figure that could not be measured is
 * absent and carries a reason. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "sandbox/driver/spec.h"
#include "sandbox/receipt.h"
#include "core/ev/ev.h"
#include "policy/languages.h"

struct engine;
struct sandbox_handle;
struct exec_handle;

struct engine_ops {
    void (*on_lost)(void *arg, const struct err *why); /* a driver is gone, and every sandbox with it */
};
/* How many sandboxes an engine can hold when its process may open `nofile` descriptors. Creating
 * more fails with ERR_DESCRIPTORS. */
uint64_t engine_max_sandboxes(uint64_t nofile);
/* Takes ownership of the socket. */
int engine_new(struct ev *ev, int jailer_fd, const struct engine_ops *ops, void *arg, struct engine **ret,
               struct err *err);
void engine_free(struct engine *e);
/* Connects a monitor that watches the jailer's sandboxes, so that receipts list denials. Takes
 * ownership of the socket, also on failure. Call before the first sandbox is created. */
int engine_set_monitor(struct engine *e, int monitor_fd, struct err *err);
/* Like engine_set_monitor, for a process that did not start the monitor: requests a connection
 * to it from the jailer, and again after that connection is lost. Denials from before the
 * connection are not reported; without a monitor, receipts say so. Call before the first sandbox
 * is created. */
void engine_connect_monitor(struct engine *e);
/* The connection to an egress proxy (cove-egress) that only this engine uses. Takes ownership of
 * the socket, also on failure; when it is lost, it stays lost. Sandboxes with NETWORK_EGRESS need a
 * proxy. */
int engine_set_egress(struct engine *e, int egress_fd, struct err *err);
/* Connects to the proxy that listens on `socket`, and again after that connection is lost; then
 * every living sandbox gets its rules again. */
void engine_connect_egress(struct engine *e, const char *socket);
/* Why there is no connection to a proxy, so that a sandbox with NETWORK_EGRESS cannot be created.
 * NULL: connected. */
const char *engine_egress_absent_why(const struct engine *e);
DEFINE_AUTO(engine, engine_free);

/* Lists the sandboxes that live in the jailer, no matter which process created them, ordered by
 * id: the first ones, or those that follow the id `after`. ids is NULL when err is set. If the
 * list has ENGINE_LIST_MAX entries, there may be more. */
#define ENGINE_LIST_MAX 1024 /* DRIVER_LIST_MAX */
typedef void engine_list_fn(void *arg, const char (*ids)[ID_SIZE], size_t n, const struct err *err);
void engine_list_sandboxes(struct engine *e, const char *after, engine_list_fn *fn, void *arg);
/* for a sandbox without a sandbox_handle; no callback follows */
void engine_destroy_sandbox(struct engine *e, const char *id);

/* --- one sandbox --- */

struct sandbox_handle_ops {
    void (*on_ready)(void *arg); /* every wall is up; executions may start */
    /* called instead of on_ready; nothing of the sandbox is left */
    void (*on_failed)(void *arg, const struct err *err);
    void (*on_ended)(void *arg, const struct err *why); /* the sandbox ended without a request to destroy it */
    void (*on_created)(void *arg);                      /* optional, before on_ready: the walls are being raised */
    /* optional: the interpreter that waited in the sandbox has ended */
    void (*on_interpreter_lost)(void *arg);
    /* optional: the egress proxy added the secret to `count` requests to this host */
    void (*on_secret_used)(void *arg, const char *name, const char *host, uint32_t count);
};

int sandbox_handle_new(struct engine *e, const struct sandbox_spec *spec, const struct sandbox_handle_ops *ops,
                       void *arg, struct sandbox_handle **ret, struct err *err);
/* Creates a sandbox without an owner: its walls are up and it holds nothing of any caller.
 * on_ready reports that the sandbox waits for a claim; on_failed reports that it has ended, also
 * while it waits. Only the parts of `like` that the driver needs are used; mounts are not
 * allowed. */
int sandbox_handle_prepare(struct engine *e, const struct sandbox_spec *like, const struct sandbox_handle_ops *ops,
                           void *arg, struct sandbox_handle **ret, struct err *err);
/* Gives the sandbox to the caller, also while it is still being prepared, and applies the rest
 * of the spec (id: the sandbox's own id, or NULL). on_ready or on_failed of `ops` follows. If
 * the call itself fails, the sandbox is unchanged. */
int sandbox_handle_claim(struct sandbox_handle *b, const struct sandbox_spec *spec,
                         const struct sandbox_handle_ops *ops, void *arg, struct err *err);
/* Whether a sandbox prepared for one spec serves the other: same level, walls, limits and host
 * name, and no mounts. Limits that the engine enforces (lifetime, idle time, output, execution
 * timeout) are set by the claim and are not compared. */
bool sandbox_spec_equal(const struct sandbox_spec *a, const struct sandbox_spec *b);
/* The driver of the spec has zygotes. Without them `zygote` of a spec has no effect: interpreters
 * are started one by one. */
bool sandbox_spec_supports_zygote(const struct sandbox_spec *spec);
/* the two specs share a zygote */
bool sandbox_spec_same_kind(const struct sandbox_spec *a, const struct sandbox_spec *b);
/* Whether a sandbox prepared for `made` can be claimed for `want`: like sandbox_spec_equal, but
 * the claim can still change the limits of memory, swap and CPU and lower the limit of
 * processes. Requires a cgroup: sandbox_handle_can_freeze. */
bool sandbox_spec_fits_claim(const struct sandbox_spec *made, const struct sandbox_spec *want);
/* Returns a claimed sandbox to the unclaimed state: its executions get no more callbacks, and
 * all processes and files that they left are removed. on_ready of `ops` reports that the sandbox
 * waits like a prepared one and was verified; on_failed reports that it has ended. Fails unless
 * sandbox_handle_can_reset. After a reset the sandbox can be claimed only at the same level. */
void sandbox_handle_reset(struct sandbox_handle *b, const struct sandbox_handle_ops *ops, void *arg);
bool sandbox_handle_can_reset(const struct sandbox_handle *b);
struct sandbox_reset_report {
    /* reported by PID 1: processes killed and SysV objects removed by the reset */
    uint32_t processes, objects;
    uint64_t files;     /* reported by PID 1: files removed by the reset */
    uint32_t sockets;   /* TCP sockets that the reset could not close */
    bool init_altered;  /* PID 1's own scheduling or rlimits were changed */
    bool limit_reached; /* memory, processes or disk space ran out in the sandbox */
    bool has_denials;   /* the filter denied a system call, or it is not known that none was denied */
    /* as counted by Linux after the reset, without helper processes of the driver;
     * SANDBOX_USAGE_UNKNOWN if not available */
    uint64_t pids, memory;
};
/* of the last reset */
const struct sandbox_reset_report *sandbox_handle_reset_report(const struct sandbox_handle *b);
/* a system call was denied, or denials are not counted */
bool sandbox_handle_has_denials(const struct sandbox_handle *b);
/* Takes over a living sandbox by its id: a kept one, or one of the previous server process.
 * on_ready or on_failed follows. */
int sandbox_handle_adopt(struct engine *e, const char *id, const struct sandbox_spec *spec,
                         const struct sandbox_handle_ops *ops, void *arg, struct sandbox_handle **ret, struct err *err);
void sandbox_handle_free(struct sandbox_handle *b); /* destroys the sandbox in the background unless that was done */
const char *sandbox_handle_id(const struct sandbox_handle *b);
/* True when the sandbox is ready, and also when it was prepared and claimed, because EXEC may
 * follow CLAIM without waiting. If the claim is refused, the execution fails too. */
bool sandbox_handle_accepts_exec(const struct sandbox_handle *b);
/* it has a cgroup; valid once the sandbox is ready */
bool sandbox_handle_can_freeze(const struct sandbox_handle *b);

/* Each of these calls `done` once; err is NULL on success. */
typedef void sandbox_handle_done_fn(void *arg, const struct err *err);
/* Kills all processes, removes all files, and reads the final counters. */
void sandbox_handle_destroy(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg);
/* The driver is gone: requests from now on may never be answered. */
bool sandbox_handle_is_lost(const struct sandbox_handle *b);
void sandbox_handle_freeze(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg);
void sandbox_handle_thaw(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg);
/* Lets the sandbox outlive this process. */
void sandbox_handle_keep(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg);

/* The new lifetime starts now. */
void sandbox_handle_set_lifetime(struct sandbox_handle *b, uint64_t lifetime_ms, sandbox_handle_done_fn *done,
                                 void *arg);
/* Brings an interpreter, forked from the zygote of the sandbox's kind, into a sandbox that is
 * ready or prepared. The interpreter waits there for one execution with
 * `use_waiting_interpreter`. At most one can wait or be on its way; while one is on its way,
 * only the latest caller is called back. The preparer of a sandbox gets no callback after the
 * sandbox was claimed. */
void sandbox_handle_join_interpreter(struct sandbox_handle *b, sandbox_handle_done_fn *done, void *arg);
bool sandbox_handle_has_interpreter(const struct sandbox_handle *b);
/* Lets the waiting interpreter do in advance the work that its first execution would begin with.
 * This costs memory and a few milliseconds of CPU; without it the first execution takes as much
 * longer. */
void sandbox_handle_warm_up(struct sandbox_handle *b);
/* Why the sandbox ended, valid after on_ended: a clock of the sandbox, out of memory, or lost. */
enum ended_by sandbox_handle_ended_by(const struct sandbox_handle *b);

/* Replaces the rules and secrets of a ready sandbox that was made with NETWORK_EGRESS; `done` is
 * called when they are in effect. Connections that the new rules refuse are ended. Fails with
 * network_not_enabled for other sandboxes. After a failure the rules are those of before. `p` and
 * `secrets` are borrowed for the call. */
void sandbox_handle_set_network(struct sandbox_handle *b, const struct network_policy *p,
                                const struct sandbox_secret *secrets, size_t nsecrets, sandbox_handle_done_fn *done,
                                void *arg);
/* Open connections. Either l or err is NULL. */
typedef void sandbox_handle_connections_fn(void *arg, const struct egress_listed *l, const struct err *err);
void sandbox_handle_connections(struct sandbox_handle *b, sandbox_handle_connections_fn *fn, void *arg);
/* Totals since the sandbox was claimed. Either r or err is NULL. */
typedef void sandbox_handle_network_fn(void *arg, const struct egress_reported *r, const struct err *err);
void sandbox_handle_network_report(struct sandbox_handle *b, sandbox_handle_network_fn *fn, void *arg);

/* Either u or err is NULL. */
typedef void sandbox_handle_usage_fn(void *arg, const struct sandbox_handle_usage *u, const struct err *err);
void sandbox_handle_usage(struct sandbox_handle *b, sandbox_handle_usage_fn *fn, void *arg);

/* CPU time used so far, read immediately; after the end, the total. SANDBOX_USAGE_UNKNOWN where
 * the host cannot measure it. */
uint64_t sandbox_handle_cpu_ns(struct sandbox_handle *b); /* of sandbox_handle_cpu_sample */
struct cpu_sample sandbox_handle_cpu_sample(struct sandbox_handle *b);
/* valid after the end; SANDBOX_USAGE_UNKNOWN before */
uint64_t sandbox_handle_memory_peak(const struct sandbox_handle *b);
/* The program of a language, as the sandbox sees it. template: name of its template, or NULL. */
int sandbox_handle_find_language(const struct sandbox_handle *b, const char *template, const struct language *l,
                                 char *path, size_t cap, struct err *err);

/* Starts the zygote described by like->zygote for sandboxes of that kind; `done` is called when
 * it can fork. It replaces the previous zygote of the kind. Start it again when a join fails
 * with LOST or MISSING. */
int engine_start_zygote(struct engine *e, const struct sandbox_spec *like, sandbox_handle_done_fn *done, void *arg,
                        struct err *err);
/* drops the callback registered with this arg */
void engine_forget_zygote_request(struct engine *e, const void *arg);
/* Ends the zygote of this kind, if there is one. Interpreters that it forked live on. */
void engine_stop_zygote(struct engine *e, const struct sandbox_spec *like);

/* --- one program --- */

struct exec_spec {
    const char *id;      /* "ex..."; NULL: generate one */
    const char *request; /* id of the request, for the receipt; may be NULL */
    const char *const *argv;
    const char *const *env; /* may be NULL */
    const char *cwd;        /* NULL is /workspace */
    bool tty;
    uint16_t rows, cols;
    bool stdin_open;          /* exec_handle_write will be used; otherwise /dev/null */
    uint64_t wall_ms, cpu_ms; /* clocks of this execution, in milliseconds; 0: no limit */
    uint64_t output_max;      /* bytes passed to on_output; the rest is counted and dropped; 0: no cap */
    bool changes;             /* report what the execution changed under /workspace */
    bool unmetered;           /* leave CPU time out of the receipt: saves reading the counter at the end */
    /* the sandbox keeps the end until exec_handle_free, for a server process that adopts the
     * sandbox */
    bool confirm_end;
    /* use the interpreter that waits in the sandbox instead of starting argv; requires
     * is_language_kernel */
    bool use_waiting_interpreter;
    /* use an interpreter if possible, which may first bring one into the sandbox; else start
     * argv */
    bool prefer_interpreter;
    /* Let the language kernel of this execution fork itself instead of starting argv. Requires
     * is_language_kernel; env and cwd must be NULL. */
    const struct exec_handle *fork_of;
    /* the program has a socket at descriptor 3: on_language_kernel_data,
     * exec_handle_write_language_kernel; not with tty */
    bool is_language_kernel;
};

struct exec_handle_ops {
    void (*on_started)(void *arg);
    /* channel is 1 or 2. The bytes are credited to the program when this returns, unless
     * exec_handle_hold_credit(x, true) is set: back-pressure then slows the program until
     * exec_handle_hold_credit(x, false). */
    void (*on_output)(void *arg, int channel, const void *data, size_t len);
    void (*on_writable)(void *arg); /* exec_handle_write took less than it was given, and can take more now */
    /* The program ended and all its output was delivered. The receipt belongs to the
     * exec_handle; sandbox_handle_destroy may add final figures. */
    void (*on_exit)(void *arg, const struct receipt *r);
    /* The program could not be started. */
    void (*on_failed)(void *arg, const struct err *err);
    /* Data that a language kernel wrote to its socket, delivered after all output that it wrote
     * before; credited like output. May be NULL. */
    void (*on_language_kernel_data)(void *arg, const void *data, size_t len);
    /* The receipt has the denials that exec_handle_collect_denials left open. May be NULL. */
    void (*on_denials)(void *arg);
};

int sandbox_handle_exec(struct sandbox_handle *b, const struct exec_spec *spec, const struct exec_handle_ops *ops,
                        void *arg, struct exec_handle **ret, struct err *err);
/* Resumes an execution that a previous server process started in an adopted sandbox. Call it
 * only from on_ready, before any frame of the execution can have arrived. Output that the
 * previous process had not stored arrives next; on_started is called again; on_failed with LOST
 * means that the sandbox does not know the execution. argv, env, tty and stdin of the spec are
 * not used. For a language kernel `stored_bytes` is ignored: all data that was not credited
 * arrives again, and the owner must recognize the part that it has already. */
struct exec_resume {
    uint32_t stream_id;       /* exec_handle_stream_id() of the previous process's execution */
    uint64_t stored_bytes[2]; /* bytes of channels 1 and 2 that are stored already */
    uint64_t started_real_ns; /* 0: not known to have started */
    uint64_t elapsed_ms;      /* wall clock time that the execution has used */
    /* exec_handle_cpu_base() of the previous process's execution; 0: unknown, the CPU clock
     * restarts */
    uint64_t cpu_base_ns;
};
int sandbox_handle_exec_resume(struct sandbox_handle *b, const struct exec_spec *spec, const struct exec_resume *resume,
                               const struct exec_handle_ops *ops, void *arg, struct exec_handle **ret, struct err *err);
/* Call after the last sandbox_handle_exec_resume: kills executions of the previous process that
 * were not resumed. */
void sandbox_handle_resume_finish(struct sandbox_handle *b);
/* Bytes of standard input that the previous process had sent; valid from on_started. */
uint64_t exec_handle_stdin_received(const struct exec_handle *x);
/* identifies the execution for sandbox_handle_exec_resume(); valid when sandbox_handle_exec
 * returns */
uint32_t exec_handle_stream_id(const struct exec_handle *x);
/* The sandbox's CPU counter at the start of the execution, 0 without a counter; valid like
 * exec_handle_stream_id(). */
uint64_t exec_handle_cpu_base(const struct exec_handle *x);
/* Bytes of channel 1 or 2 beyond the cap; valid in on_exit. */
uint64_t exec_handle_dropped_bytes(const struct exec_handle *x, int channel);
void exec_handle_free(struct exec_handle *x); /* kills the execution if it still runs */
void exec_handle_hold_credit(struct exec_handle *x, bool hold);
/* to standard input; returns the bytes taken */
size_t exec_handle_write(struct exec_handle *x, const void *data, size_t len);
void exec_handle_write_end(struct exec_handle *x);
/* Writes to the socket of a language kernel; returns the bytes taken. */
size_t exec_handle_write_language_kernel(struct exec_handle *x, const void *data, size_t len);
void exec_handle_signal(struct exec_handle *x, int signo); /* to its process group, as a terminal does */
void exec_handle_resize(struct exec_handle *x, uint16_t rows, uint16_t cols);
void exec_handle_kill(struct exec_handle *x); /* kills the whole process tree; on_exit follows with endedBy killed */
/* For a language kernel that lives over many executions. Mark the start of each: the denials of
 * exec_handle_receipt() are then those since the mark. */
void exec_handle_mark_denials(struct exec_handle *x);
/* True: the receipt has the denials since the mark, or the reason why they are not known. False:
 * the monitor is asked, and on_denials follows, later and before on_exit or on_failed. was_cut_off:
 * the code was interrupted, perhaps in a denied call. */
bool exec_handle_collect_denials(struct exec_handle *x, bool was_cut_off);
/* Final after the callback of sandbox_handle_destroy. */
const struct receipt *exec_handle_receipt(const struct exec_handle *x);
