/* engine_internal.h - what engine.c, the files sandbox_*.c and exec_*.c, and files.c know of one
 * another. Only this directory includes it, without the directories of the drivers.
 *
 * Ownership: the engine owns the links of the drivers, and lists its sandbox_handles. A driver owns
 * the requests. A sandbox_handle owns its streams and lists its executions. Executions and
 * sandbox_handles belong to the caller. Memory is released at once when none of our callbacks is
 * on the stack, else at the end of the loop iteration (driver_free_deferred), so every function
 * may go on using an object after a callback in which the caller freed it. */
#pragma once

#include "sandbox/clocks.h"
#include "sandbox/egress_link.h"
#include "sandbox/engine.h"
#include "sandbox/network_usage.h"
#include "sandbox/owned_spec.h"
#include "sandbox/receipt.h"
#include "core/wire/chan.h"
#include "sandbox/driver/driver.h"
#include "core/wire/rt.h"

/* --- engine.c --- */

#define SANDBOX_HANDLE_BUCKETS 256u
/* If descriptors run out in the middle of a message of a driver, the connection and all its
 * sandboxes are lost. */
#define SANDBOX_HANDLE_FDS 4u /* control stream, pidfd, CPU counter and memory counter */
#define OTHER_FDS 2048u       /* client connections, files, and interpreters on their way into a sandbox */

struct engine {
    struct ev *ev;
    const struct engine_ops *ops;
    void *arg;
    struct driver_link *links[DRIVER_COUNT]; /* drivers with the same operations share one */
    struct engine_list *lists;               /* requested, and not answered by every link */
    struct egress_link egress;
    bool has_stale_bindings; /* perhaps: sandbox_network.c */
    bool lost_reported;
    struct ev_timer lost_timer;
    uint32_t cores;
    struct sandbox_handle *handles[SANDBOX_HANDLE_BUCKETS];
    uint64_t nhandles, max_handles;
    struct ev_defer defer;
};

/* True if it is certain that nothing was denied since the last request: the monitor sends its
 * notice before the denied call returns, so the notice has arrived here before any later action
 * of the program is visible. */
bool engine_has_no_new_denials(const struct sandbox_handle *b);
struct sandbox_handle *engine_find_handle(struct engine *e, const char *id); /* NULL: none */
void engine_add_handle(struct engine *e, struct sandbox_handle *b);
void engine_remove_handle(struct engine *e, struct sandbox_handle *b);
/* A sandbox_handle ended, perhaps the last one that on_lost waited for. */
void engine_maybe_report_lost(struct engine *e);

/* --- spec_equal.c --- */

struct sandbox_kind sandbox_kind_of_spec(const struct sandbox_spec *spec);
/* The spec without the fields that the claim sets. */
struct sandbox_spec sandbox_spec_unclaimed(const struct sandbox_spec *spec);
/* Compares all limits except those that the engine enforces, which the claim can choose. */
bool sandbox_limits_equal(const struct limits *a, const struct limits *b);

/* --- zygote.c --- */

/* INTERPRETER_LOST: the waiting interpreter has ended. */
void sandbox_handle_interpreter_lost(struct sandbox_handle *b, const struct frame *f);

/* --- sandbox_stream.c: streams of one control connection --- */

struct sandbox_stream;
struct sandbox_stream_ops {
    /* STARTED, DATA, EXIT, DONE, ERROR. The last three end the stream. DATA must be credited
     * with sandbox_stream_consumed(). Returns false for a frame that is not allowed here: the
     * sandbox is then ended. */
    bool (*on_frame)(void *arg, const struct frame *f);
    void (*on_writable)(void *arg); /* credit arrived, or the send queue drained */
    /* The sandbox ended first; why is NULL when the result is ignored. */
    void (*on_gone)(void *arg, const struct err *why);
};

struct sandbox_stream {
    struct sandbox_stream *next;
    struct sandbox_handle *sandbox;
    uint32_t id;
    uint32_t window;
    uint32_t receive_room;                /* bytes the runtime may still send */
    uint32_t credit_owed;                 /* bytes consumed, but not credited yet */
    uint32_t send_credit;                 /* bytes we may still send */
    uint8_t ended_channels;               /* bit per channel: the runtime sent RT_END on it */
    const struct sandbox_stream_ops *ops; /* NULL: abandoned, all its frames are discarded */
    void *arg;
    bool is_orphan;   /* a request of the previous server process that was not resumed */
    bool confirm_end; /* the owner sends CLOSE, once it has stored the end */
    bool cancelled;   /* CLOSE was sent early; the stream is dropped when the stream `fence_stream_id` ends */
    uint32_t fence_stream_id;
};

struct sandbox_stream *sandbox_stream_open(struct sandbox_handle *b, uint8_t type, const uint8_t *data, uint32_t len,
                                           const struct sandbox_stream_ops *ops, void *arg);
uint32_t sandbox_stream_reserve(struct sandbox_handle *b); /* an id for sandbox_stream_open_as() */
struct sandbox_stream *sandbox_stream_open_as(struct sandbox_handle *b, uint32_t id, uint8_t type, const uint8_t *data,
                                              uint32_t len, const struct sandbox_stream_ops *ops, void *arg);
void sandbox_stream_close(struct sandbox_handle *b, uint32_t id); /* for a stream with `confirm_end` */
void sandbox_stream_abandon(struct sandbox_stream *s);            /* discard the rest of the stream */
void sandbox_stream_cancel(struct sandbox_stream *s);             /* make the runtime cancel the request */
void sandbox_stream_send_frame(struct sandbox_stream *s, uint8_t type, uint8_t flags, const uint8_t *data,
                               uint32_t len);
/* Returns the bytes that fit now. */
size_t sandbox_stream_write(struct sandbox_stream *s, uint8_t channel, const void *data, size_t len);
void sandbox_stream_consumed(struct sandbox_stream *s, size_t n);
void sandbox_stream_on_frame(struct sandbox_handle *b, const struct frame *f);
/* RESUME: a stream of the previous server process. */
void sandbox_stream_on_resume(struct sandbox_handle *b, const struct frame *f);
void sandbox_streams_on_drained(struct sandbox_handle *b);
void sandbox_streams_close_all(struct sandbox_handle *b, const struct err *why);

/* --- sandbox_handle.c, sandbox_handle_end.c, sandbox_claim.c: one sandbox --- */

enum sandbox_handle_state {
    SANDBOX_HANDLE_CREATING, /* the driver creates or adopts it */
    SANDBOX_HANDLE_HELLO,    /* HELLO was sent, followed by CLAIM */
    SANDBOX_HANDLE_CLAIMING, /* the reply to HELLO arrived */
    SANDBOX_HANDLE_READY,
    SANDBOX_HANDLE_ENDING, /* being killed, or found dead; the last frames are still arriving */
    SANDBOX_HANDLE_ENDED,  /* no process is left; destroy removes the rest */
    SANDBOX_HANDLE_DESTROYING,
    SANDBOX_HANDLE_GONE,
};

/* The interpreter that joined the sandbox; PID 1 holds its descriptors. */
enum sandbox_interpreter_state {
    SANDBOX_INTERPRETER_NONE,
    SANDBOX_INTERPRETER_WAITING,
    SANDBOX_INTERPRETER_RESERVED, /* for an execution that is not launched yet */
};

/* The binding of a sandbox with NETWORK_EGRESS, from its claim to its end. */
struct sandbox_network {
    uint8_t *bind; /* payload of E_BIND, with secrets; NULL: never needed again */
    uint32_t bind_len;
    char tenant[EGRESS_SECRET_NAME_MAX];
    struct egress_share share;
    bool is_requested;            /* E_BIND was sent at least once, so the end sends E_UNBIND */
    bool is_awaited;              /* the sandbox becomes ready when it is bound */
    bool is_stale;                /* the proxy of this connection has no rules for the sandbox yet */
    bool was_claimed;             /* is_awaited: CLAIMED has arrived */
    uint32_t last_reports;        /* requests of sandbox_network_end that are not answered */
    bool is_baseline_unknown;     /* adopted: the counters of the previous server process are not known yet */
    struct network_usage before;  /* of proxies that ended */
    struct network_usage seen;    /* the latest totals */
    struct network_usage charged; /* totals that receipts contain */
    struct sandbox_network_update *updates;
};

struct sandbox_handle {
    struct engine *engine;    /* NULL after engine_free */
    struct driver_link *link; /* NULL after engine_free */
    const struct driver_caps *caps;
    struct ev *ev;
    struct sandbox_handle *next;
    enum sandbox_handle_state state;
    const struct sandbox_handle_ops *ops; /* NULL after sandbox_handle_free */
    void *arg;
    char id[ID_SIZE];
    enum level level;
    struct network_policy network;  /* owns its text */
    struct sandbox_network *egress; /* NULL: NETWORK_NONE, or not claimed */
    struct sandbox_kind kind;
    struct owned_spec made; /* what it was created from; a claim has to fit */
    struct limits limits;
    char policy[64];
    bool require_all_walls;
    uint64_t require_enforced;

    uint8_t *claim; /* encoded CLAIM, until it is sent */
    uint32_t claim_len;
    bool adopted;
    bool runtime_checks_walls; /* the runtime itself refuses a claim if a wall is missing */
    bool claim_sent;
    bool is_unclaimed; /* a prepared sandbox that is not claimed yet */
    bool resetting;    /* RESET was sent: frames of other streams are discarded */
    bool was_reset;    /* it was reset at least once: the file rules of its first claim still apply */
    struct sandbox_reset_report reset_report;
    struct limits driver_limits; /* the limits that the driver has applied */

    struct driver_created created; /* without its descriptors */
    struct rt_claimed runtime_report;
    uint64_t epoch;
    struct chan chan;
    bool is_connected;                  /* chan is in use */
    bool driver_answered;               /* ENDING, DESTROYING: the driver has answered all requests of this state */
    bool died_of_memory;                /* ENDING: memory ran out */
    int32_t init_status;                /* wait status of PID 1; -1: unknown */
    struct cpu_sample cpu_sample;       /* the last one; `at` 0: none */
    struct driver_request *cpu_request; /* of a driver without cpu_fd; NULL: none is open */
    bool cpu_unmeasured;                /* such a driver cannot measure it */
    int pidfd, cpu_fd, oom_fd;
    enum sandbox_interpreter_state interpreter;
    bool supports_warm_up;               /* its runtime supports WARM_UP */
    struct driver_request *join_request; /* the request that brings an interpreter; NULL: none */

    struct sandbox_stream *streams;
    uint32_t next_stream;
    struct exec_handle *execs;
    size_t running_execs;          /* entries of execs that have not ended */
    uint64_t launched_execs;       /* total since the sandbox was created */
    uint64_t oom_kills_attributed; /* OOM kills that already explained the end of an execution */

    struct sandbox_clocks clocks;
    struct ev_timer timer;
    bool paused, is_kept, clock_expired; /* clock_expired: a clock of the sandbox ran out */
    enum ended_by expired_clock;         /* valid if clock_expired: which clock */
    bool failed;                         /* it ends before it was ready: on_failed instead of on_ended */
    bool destroy_wanted;
    struct err why;
    struct sandbox_handle_usage stats;
    bool stats_known;
    struct driver_denials denials;  /* the monitor's latest answer */
    const char *denials_absent_why; /* why there is no answer; NULL: there is */
    bool denials_known;             /* the monitor has answered at least once */
    /* The monitor reported that it watches the sandbox, and denials that were not requested yet. */
    bool is_monitored, has_new_denials;
    bool waits_for_monitor; /* the timer limits the wait for the monitor's answer */
    /* Counts that a receipt contains already; the last entry is overflow_count. */
    uint64_t denials_reported[DRIVER_DENIALS_MAX + 1];
    struct err destroy_err;
    bool destroy_failed;
    sandbox_handle_done_fn *done;
    void *done_arg;
    struct ev_defer defer;
};

/* sandbox_claim.c: from a spec to a ready sandbox */
int sandbox_claim_start(struct sandbox_handle *b, const struct sandbox_spec *spec, struct err *err);
/* Encodes CLAIM. */
int sandbox_claim_prepare(struct sandbox_handle *b, const struct sandbox_spec *spec, struct err *err);
/* A prepared sandbox has an owner and a claim: continues like a new sandbox. */
void sandbox_claim_proceed(struct sandbox_handle *b);
void sandbox_claim_on_frame(struct sandbox_handle *b, const struct frame *f); /* a frame on stream 0 */
/* The first frames of an adopted runtime. */
void sandbox_claim_on_adopted_frame(struct sandbox_handle *b, const struct frame *f);
void sandbox_claim_preload_rules(struct sandbox_handle *b); /* PRELOAD_RULES, while no request waits */
void sandbox_claim_drop(struct sandbox_handle *b);          /* releases the encoded claim */

/* sandbox_handle.c */
int sandbox_handle_connect(struct sandbox_handle *b, int control_fd, struct err *err);
void sandbox_handle_set_ready(struct sandbox_handle *b);
/* The runtime violated the protocol. */
void sandbox_handle_protocol_error(struct sandbox_handle *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sandbox_handle_on_oom(struct sandbox_handle *b);        /* memory ran out */
void sandbox_handle_detach_engine(struct sandbox_handle *b); /* the engine is freed */
void sandbox_handle_exec_added(struct sandbox_handle *b);
void sandbox_handle_exec_launched(struct sandbox_handle *b, struct exec_handle *launched);
void sandbox_handle_exec_ended(struct sandbox_handle *b); /* an execution ended */
bool sandbox_handle_is_unfinished(const struct sandbox_handle *b);
void sandbox_handle_set_timer(struct sandbox_handle *b, uint64_t at);
void sandbox_handle_disconnect(struct sandbox_handle *b);
/* sandbox_cpu.c: a sample of now, where the driver can provide one. It is kept for later calls in
 * the same loop iteration. */
struct cpu_sample sandbox_cpu_read(struct sandbox_handle *b);
/* The CPU time before an execution that starts now; CPU_UNKNOWN: that of the execution cannot be
 * limited. Before the first sample of a driver that has to be asked it is 0, so that the limit
 * cannot be exceeded. */
uint64_t sandbox_cpu_base(struct sandbox_handle *b);
struct cpu_rate sandbox_handle_cpu_rate(const struct sandbox_handle *b);

/* sandbox_handle_end.c: how a sandbox ends */
/* Before it was ready; on_failed follows. */
void sandbox_handle_fail(struct sandbox_handle *b, const struct err *err);
void sandbox_handle_kill(struct sandbox_handle *b, const struct err *why); /* when it was ready; on_ended follows */
void sandbox_handle_continue_end(struct sandbox_handle *b); /* an end that waits for answers has one more */
/* Calls fail or kill, depending on the state; an end in progress continues. */
void sandbox_handle_end(struct sandbox_handle *b, const struct err *why);
void sandbox_handle_end_timeout(struct sandbox_handle *b); /* the deadline of an end in progress has passed */
void sandbox_handle_start_destroy(struct sandbox_handle *b);
void sandbox_handle_link_lost(struct sandbox_handle *b, const struct err *why);

/* sandbox_reset.c */
void sandbox_reset_on_unbound(struct sandbox_handle *b, const struct err *err); /* the rules are forgotten */

/* sandbox_network.c: the rules of a sandbox in the egress proxy, and its counters */
extern const struct egress_link_ops sandbox_network_link_ops; /* arg: the engine */
int sandbox_network_check(const struct engine *e, const struct sandbox_spec *spec,
                          struct err *err); /* a proxy exists */
/* Encodes E_BIND. */
int sandbox_network_prepare(struct sandbox_handle *b, const struct sandbox_spec *spec, struct err *err);
void sandbox_network_bind(struct sandbox_handle *b);       /* the sandbox exists and was claimed */
bool sandbox_network_is_awaited(struct sandbox_handle *b); /* at CLAIMED: the sandbox becomes ready later */
/* Requests the last counters, if there are some: before removal with E_UNBIND. The end of the
 * sandbox continues when they are there; sandbox_network_is_ending() until then. */
void sandbox_network_end(struct sandbox_handle *b, bool unbind);
void sandbox_network_unbind(struct sandbox_handle *b); /* without a result */
bool sandbox_network_is_ending(const struct sandbox_handle *b);
void sandbox_network_release(struct sandbox_handle *b);
void sandbox_network_see(struct sandbox_handle *b, const struct egress_reported *r); /* the latest counters */

/* --- exec_handle.c --- */

enum exec_handle_state {
    EXEC_PREPARING, /* SNAPSHOT was sent, or an interpreter is on its way; nothing runs yet */
    EXEC_STARTING,  /* EXEC was sent */
    EXEC_RUNNING,
    EXEC_COLLECTING, /* EXIT arrived; counters and changes are being requested */
    EXEC_ENDED,
};

struct exec_handle {
    struct exec_handle *next;
    struct sandbox_handle *sandbox; /* NULL after sandbox_handle_free */
    struct ev *ev;
    enum exec_handle_state state;
    const struct exec_handle_ops *ops; /* NULL after exec_handle_free */
    void *arg;

    struct sandbox_stream *stream; /* stream of the request that the state waits for */
    uint8_t *request;              /* encoded EXEC, while SNAPSHOT is pending */
    uint32_t request_len;
    uint8_t *interpreter_request; /* encoded EXEC for the interpreter that is on its way */
    uint32_t interpreter_request_len;
    bool uses_interpreter; /* it takes the waiting interpreter; valid until it is launched */
    uint32_t stream_id;    /* of EXEC; set from the start */
    bool confirm_end, close_pending;
    bool is_resumed, awaits_resume; /* awaits_resume: its RESUME has not arrived */
    uint64_t resume_skip_bytes;     /* RESUME: repeated bytes that are stored already */
    uint64_t stdin_received;        /* RESUME: bytes of standard input that the runtime received */
    bool tty, stdin_open, changes, unmetered, is_language_kernel;
    bool stdin_ended, stdin_end_wanted; /* stdin_end_wanted: exec_handle_write_end was called before EXEC was sent */
    bool write_wanted;                  /* exec_handle_write took less than it was given */
    int signal_wanted;                  /* signal passed to exec_handle_signal before EXEC was sent; 0: none */
    bool resize_wanted;
    uint16_t rows, cols;
    bool credit_held;
    size_t uncredited_bytes; /* delivered, but not credited */
    uint64_t output_max, output_delivered;
    uint64_t wall_ms, cpu_ms;

    bool end_decided;                       /* receipt.ended_by is final */
    bool exit_received;                     /* EXIT arrived */
    bool denials_uncounted;                 /* denials were not counted for a part of its run */
    bool network_uncounted;                 /* a proxy ended during its run, and with it its counters */
    struct egress_request *network_request; /* the counters for its receipt are on their way; NULL: no */
    bool ran_concurrently;                  /* another execution ran at the same time */
    uint64_t started_ns, cpu_base;
    uint64_t dropped_bytes[2];                         /* receipt.dropped_bytes, by channel */
    uint64_t denials_baseline[DRIVER_DENIALS_MAX + 1]; /* counts at its launch; the last entry is overflow_count */
    /* COLLECTING: the timer limits the wait for the monitor's answer. */
    bool waits_for_monitor;
    bool denials_marked;                    /* exec_handle_mark_denials was called */
    bool denials_mark_unknown;              /* denials_marked: the counts at the mark are not known */
    bool is_collection_open;                /* on_denials follows exec_handle_collect_denials */
    struct driver_request *denials_request; /* the collection waits for it; NULL: no */
    struct ev_timer denials_timer;          /* limits the wait for denials_request */
    struct exec_clocks clocks;
    struct ev_timer timer;
    struct receipt receipt;
    struct ev_defer defer;
};

/* Decides the cause unless that was done, and kills the process tree. */
void exec_handle_end(struct exec_handle *x, enum ended_by cause);
void exec_handle_decide_end(struct exec_handle *x, enum ended_by cause);
/* The sandbox is dead and all its frames were read. */
void exec_handle_sandbox_gone(struct exec_handle *x, const struct err *why, bool memory);
void exec_handle_pause(struct exec_handle *x, bool paused);
/* Sets the final figures. */
void exec_handle_set_final_usage(struct exec_handle *x, const struct sandbox_handle_usage *st, bool alone);
void exec_handle_finish(struct exec_handle *x);                      /* calls on_exit with the receipt as it is */
void exec_handle_fail(struct exec_handle *x, const struct err *err); /* calls on_failed */
void exec_handle_set_timer(struct exec_handle *x, uint64_t at);
void exec_handle_drop_stream(struct exec_handle *x);
void exec_handle_on_stream_gone(void *arg, const struct err *why); /* on_gone of every stream of an execution */
struct sandbox_stream *exec_handle_open_path_request(struct exec_handle *x, uint8_t type,
                                                     const struct sandbox_stream_ops *ops);
void exec_handle_release(struct exec_handle *x);
/* exec_handle.c, for exec_resume.c: an execution that is in the sandbox's list, but not launched */
struct exec_handle *exec_handle_create(struct sandbox_handle *b, const struct exec_spec *spec,
                                       const struct exec_handle_ops *ops, void *arg);
extern const struct sandbox_stream_ops exec_handle_stream_ops;
/* exec_requests.c */
void exec_handle_send_signal(struct exec_handle *x, int signo, enum rt_scope scope);
void exec_handle_send_resize(struct exec_handle *x);
void exec_handle_send_stdin_end(struct exec_handle *x);
/* exec_resume.c */
struct exec_handle *exec_resume_find(const struct sandbox_handle *b, uint32_t stream);
void exec_resume_attach(struct exec_handle *x, struct sandbox_stream *s, const struct rt_resume *m);
void exec_resume_timeout(struct exec_handle *x);
/* exec_denials.c */
/* Timeout for the monitor's answer; longer than the monitor waits for a listener on its way. */
#define MONITOR_ANSWER_NS (4 * NS_PER_S)
/* Stores the monitor's answer. */
void denials_store_answer(struct sandbox_handle *b, const struct driver_denials *d, const struct err *err);
void denials_monitor_lost(struct sandbox_handle *b); /* the next monitor counts from 0 */
void denials_mark_baseline(struct exec_handle *x);   /* called at the launch */
void denials_set_absent(struct exec_handle *x, const char *why);
void denials_fill_receipt(struct exec_handle *x);    /* from the monitor's latest answer */
void denials_end_collection(struct exec_handle *x);  /* the process ends: answers an open collection now */
void denials_drop_collection(struct exec_handle *x); /* without on_denials */
void denials_on_network(struct exec_handle *x);      /* the other part of a collection has arrived */
/* exec_network.c */
/* Requests the counters for the receipt; exec_receipt_on_network or denials_on_network follows.
 * False: there is nothing to request. */
bool exec_network_collect(struct exec_handle *x);
void exec_network_fill_receipt(struct exec_handle *x); /* from the latest counters */
void exec_network_fill_final(struct exec_handle *x);   /* it was the only execution of the sandbox */
void exec_network_drop_collection(struct exec_handle *x);
/* exec_receipt.c */
extern const char exec_receipt_resumed_why[];
void exec_receipt_set_walls(struct exec_handle *x); /* the sandbox became ready after the execution began */
void exec_receipt_begin(struct exec_handle *x, const struct sandbox_handle *b, const struct exec_spec *spec);
void exec_receipt_on_exit(struct exec_handle *x, const struct rt_exit *m);
void exec_receipt_on_network(struct exec_handle *x);
void exec_receipt_timeout(struct exec_handle *x); /* the requests after the end took too long */
void exec_handle_detach(struct exec_handle *x);   /* the sandbox_handle is freed: no callback from now on */
