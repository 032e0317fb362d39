/* engine_internal.h - what engine.c, sandbox_stream.c, sandbox_handle.c, sandbox_handle_end.c, sandbox_claim.c,
 * exec_handle.c, exec_receipt.c and files.c know of one another. Nothing outside this room includes it.
 *
 * Who owns what: the engine knows its boxes and open questions but owns only the questions; a box owns its streams and
 * knows its executions; executions and boxes belong to the caller. A memory block is released at once when none of
 * our callbacks is on the stack, else at the end of the turn (engine_free_deferred), so every function may go on using
 * an object after a callback in which the caller freed it. */
#pragma once

#include "sandbox/clocks.h"
#include "core/base/backoff.h"
#include "sandbox/engine.h"
#include "sandbox/receipt.h"
#include "core/wire/chan.h"
#include "core/wire/jail.h"
#include "core/wire/rt.h"

/* Room for one encoded message. The build zeroes automatic variables; for 64 KiB of which a hundred bytes are used that
 * would cost more than the message, and encoders return how much they wrote. */
#define PAYLOAD(name) uint8_t name[FRAME_PAYLOAD_MAX] __attribute__((uninitialized))

/* --- engine.c: questions to the jailer --- */

struct jailer_request;
/* f is NULL when err is set. Descriptors that the callee does not take out of `fds` are closed after it. */
struct jailer_reply {
    const struct frame *f;
    int *fds;
    size_t nfds;
};
typedef void jailer_reply_fn(struct jailer_request *ask, const struct jailer_reply *a, const struct err *err);

struct sandbox_kind { /* sandboxes that come from one template */
    struct filter_spec filter;
    char language[16]; /* of its zygote; "": nobody joins */
    uint64_t preload;  /* hash of what that loads */
};

struct jailer_request {
    struct jailer_request *next;
    uint32_t stream;
    uint8_t type;
    char id[ID_SIZE];             /* the sandbox it is about, or "" */
    jailer_reply_fn *on_reply;    /* NULL: nobody waits for the answer any more */
    void *owner;                  /* box, exec or engine */
    struct sandbox_kind kind;     /* J_TEMPLATE: what was asked for */
    sandbox_handle_done_fn *done; /* for questions that a caller of ours waits for */
    sandbox_handle_usage_fn *on_usage;
    engine_list_fn *on_list;
    uint64_t lifetime_ms; /* J_SET_LIMITS: what was asked for */
    void *done_arg;
};

#define JAILER_REQUEST_BUCKETS 64u
#define SANDBOX_HANDLE_BUCKETS 256u
/* A descriptor too many, in the middle of a message of the jailer, would cost the connection and all sandboxes. */
#define SANDBOX_HANDLE_FDS 4u /* control, pidfd, processor and memory counters */
#define OTHER_FDS 2048u       /* connections of clients, files, and interpreters on their way into a box */

struct engine {
    struct ev *ev;
    struct chan chan;
    const struct engine_ops *ops;
    void *arg;
    bool lost, lost_reported;
    struct err why;
    struct chan monitor;
    struct ev_timer monitor_timer;
    struct backoff monitor_backoff; /* of requesting the monitor again; zero: the jailer has none */
    const char *monitor_absent_why; /* why the monitor cannot be asked; NULL when it can */
    struct ev_timer lost_timer;
    uint32_t next_stream;
    uint32_t cores;
    struct sandbox_kind *templates; /* asked for, and not refused */
    size_t ntemplates;
    struct jailer_request *requests[JAILER_REQUEST_BUCKETS];
    struct sandbox_handle *handles[SANDBOX_HANDLE_BUCKETS];
    uint64_t nhandles, max_handles;
    struct ev_defer defer;
};

/* Asks the jailer; fn is called exactly once, later, with the answer or with an error, unless the owner is forgotten
 * first. On an engine that lost its jailer the answer is that error. */
struct jailer_request *engine_request(struct engine *e, uint8_t type, const uint8_t *data, uint32_t len, const int *fds,
                                      size_t nfds, jailer_reply_fn *fn, void *owner);
struct jailer_request *engine_request_for_sandbox(struct engine *e, uint8_t type, const char *id, jailer_reply_fn *fn,
                                                  void *owner);
void engine_forget_requests(struct engine *e, const void *owner);
/* Asks the monitor, which must be there (unwatched is NULL), what was refused in a sandbox. */
void engine_request_denials(struct engine *e, const char *id, jailer_reply_fn *fn, void *owner);
/* Nothing since the last question, for sure: the monitor's news of a refusal is sent before the call returns, so it has
 * arrived before anything that a program did later can be seen here. */
bool engine_has_no_new_denials(const struct sandbox_handle *b);
/* Asks for the template unless that was done. A box may be asked for right behind: the jailer takes requests in order,
 * and a template that fails fails the boxes that were asked for meanwhile. */
void engine_request_template(struct engine *e, const struct sandbox_kind *kind);
void engine_forget_template(struct engine *e, const struct sandbox_kind *kind); /* so that it is asked for again */
void engine_template_name(const struct sandbox_kind *kind, char ret[JAIL_NAME_MAX]);
struct sandbox_kind sandbox_kind_of_spec(const struct sandbox_spec *spec);
bool sandbox_kind_equal(const struct sandbox_kind *a, const struct sandbox_kind *b);
/* But for those that are kept on this side and can be chosen when a box is claimed. */
bool engine_jailer_limits_equal(const struct limits *a, const struct limits *b);
bool engine_jailer_limits_fit(const struct limits *made, const struct limits *want); /* or can be made the same */
void engine_add_handle(struct engine *e, struct sandbox_handle *b);
void engine_remove_handle(struct engine *e, struct sandbox_handle *b);
void engine_maybe_report_lost(struct engine *e); /* a box is over: perhaps the last one that held back on_lost */
void engine_callback_begin(void);                /* around every callback that the loop makes into this room */
void engine_callback_end(void);
void engine_free_deferred(struct ev *ev, struct ev_defer *d, void *mem); /* frees mem, now or at the end of the turn */
/* Text from the other side, made fit for a terminal. */
void engine_error_from_wire(const struct rt_error *m, struct err *ret);

/* --- zygote.c --- */

void sandbox_handle_interpreter_lost(struct sandbox_handle *b,
                                     const struct frame *f); /* INTERPRETER_LOST: what waited has ended */

/* --- sandbox_stream.c: streams of one control connection --- */

struct sandbox_stream;
struct sandbox_stream_ops {
    /* STARTED, DATA, EXIT, DONE, ERROR. The stream is gone after the last three. DATA must be credited with
     * stream_consumed(). Returns false when the frame has no place here: the box is then ended. */
    bool (*on_frame)(void *arg, const struct frame *f);
    void (*on_writable)(void *arg);                    /* credit came back, or the queue emptied */
    void (*on_gone)(void *arg, const struct err *why); /* the box ended first; why is NULL when nobody wants to know */
};

struct sandbox_stream {
    struct sandbox_stream *next;
    struct sandbox_handle *sandbox;
    uint32_t id;
    uint32_t window;
    uint32_t receive_room;                /* bytes the runtime may still send */
    uint32_t credit_owed;                 /* consumed, not credited yet */
    uint32_t send_credit;                 /* bytes we may still send */
    uint8_t ended_channels;               /* channels on which the runtime said RT_END, as bits */
    const struct sandbox_stream_ops *ops; /* NULL: abandoned, everything is swallowed */
    void *arg;
    bool is_orphan;   /* a request of an earlier host that nobody took up */
    bool confirm_end; /* CLOSE is the owner's to send, when it has kept the last word */
    bool cancelled;   /* the runtime was told to forget it; gone when the stream `fence` ended */
    uint32_t fence_stream_id;
};

struct sandbox_stream *sandbox_stream_open(struct sandbox_handle *b, uint8_t type, const uint8_t *data, uint32_t len,
                                           const struct sandbox_stream_ops *ops, void *arg);
uint32_t sandbox_stream_reserve(struct sandbox_handle *b); /* a number for sandbox_stream_open_as() */
struct sandbox_stream *sandbox_stream_open_as(struct sandbox_handle *b, uint32_t id, uint8_t type, const uint8_t *data,
                                              uint32_t len, const struct sandbox_stream_ops *ops, void *arg);
void sandbox_stream_close(struct sandbox_handle *b, uint32_t id); /* of a stream with `confirm` */
void sandbox_stream_abandon(struct sandbox_stream *s);            /* swallow the rest of it */
void sandbox_stream_cancel(struct sandbox_stream *s);             /* make the runtime give it up */
void sandbox_stream_send_frame(struct sandbox_stream *s, uint8_t type, uint8_t flags, const uint8_t *data,
                               uint32_t len);
size_t sandbox_stream_write(struct sandbox_stream *s, uint8_t channel, const void *data,
                            size_t len); /* bytes that fit now */
void sandbox_stream_consumed(struct sandbox_stream *s, size_t n);
void sandbox_stream_on_frame(struct sandbox_handle *b, const struct frame *f);
void sandbox_stream_on_resume(struct sandbox_handle *b,
                              const struct frame *f); /* RESUME: a stream of the host before us */
void sandbox_streams_on_drained(struct sandbox_handle *b);
void sandbox_streams_close_all(struct sandbox_handle *b, const struct err *why);

/* --- sandbox_handle.c, sandbox_handle_end.c, sandbox_claim.c: one sandbox --- */

enum sandbox_handle_state {
    SANDBOX_HANDLE_CREATING, /* J_CREATE or J_ADOPT is out */
    SANDBOX_HANDLE_HELLO,    /* HELLO is out, and CLAIM behind it */
    SANDBOX_HANDLE_CLAIMING, /* HELLO came back */
    SANDBOX_HANDLE_READY,
    SANDBOX_HANDLE_ENDING, /* being killed, or found dead; last words are still coming */
    SANDBOX_HANDLE_ENDED,  /* no process is left; destroy removes the rest */
    SANDBOX_HANDLE_DESTROYING,
    SANDBOX_HANDLE_GONE,
};

enum sandbox_interpreter_state { /* an interpreter that joined; PID 1 holds its descriptors */
                                 SANDBOX_INTERPRETER_NONE,
                                 SANDBOX_INTERPRETER_WAITING,
                                 SANDBOX_INTERPRETER_RESERVED, /* to an execution that is not launched yet */
};

struct sandbox_handle {
    struct engine *engine; /* NULL after engine_free */
    struct ev *ev;
    struct sandbox_handle *next;
    enum sandbox_handle_state state;
    const struct sandbox_handle_ops *ops; /* NULL after sandbox_handle_free */
    void *arg;
    char id[ID_SIZE];
    enum level level;
    struct sandbox_kind kind;
    struct limits limits;
    char policy[64];
    bool require_all_walls;
    uint64_t require_enforced;

    uint8_t *claim; /* CLAIM, until it is sent */
    uint32_t claim_len;
    bool adopted;
    bool runtime_checks_walls; /* the runtime itself refuses a claim with a wall too few */
    bool claim_sent;
    bool is_unclaimed; /* greeted, and claimed by nobody yet */
    bool resetting;    /* RESET is out: what comes of other streams is of no interest */
    bool was_reset;    /* it was reset: the rules of its first claim hold on */
    struct sandbox_reset_report reset_report;
    struct limits jailer_limits; /* to the jailer */

    struct jail_created jailer_report;
    struct rt_claimed runtime_report;
    uint64_t epoch;
    struct chan chan;
    bool is_connected;    /* chan is in use */
    bool jailer_answered; /* ENDING, DESTROYING: the jailer has answered all that the state asks of it */
    bool died_of_memory;  /* ENDING: it died because memory ran out */
    int32_t init_status;  /* of PID 1, from J_EVENT; -1 when it is not known */
    uint64_t cpu_sample_ns,
        cpu_sampled_at; /* the counter as it was in this turn of the loop: the kernel gathers it anew each time */
    int pidfd, cpu_fd, oom_fd;
    enum sandbox_interpreter_state interpreter;
    bool supports_warm_up;               /* its runtime hands on the word */
    struct jailer_request *join_request; /* the question that brings one; NULL */

    struct sandbox_stream *streams;
    uint32_t next_stream;
    struct exec_handle *execs;
    size_t running_execs;          /* of them, not over yet */
    uint64_t launched_execs;       /* ever */
    uint64_t oom_kills_attributed; /* oom kills that were already somebody's end */

    struct sandbox_clocks clocks;
    struct ev_timer timer;
    bool paused, is_kept, clock_expired; /* over: a clock of the sandbox ran out */
    enum ended_by expired_clock;         /* over: which */
    bool failed;                         /* it ends before it was ready: on_failed, not on_ended */
    bool destroy_wanted;
    struct err why;
    struct jail_stats stats;
    bool stats_known;
    struct jail_denied denials;         /* what the monitor said last */
    const char *denials_absent_why;     /* why it did not, or NULL */
    bool is_monitored, has_new_denials; /* the monitor said that it is, and that there is something to ask for */
    bool waits_for_monitor;             /* the timer is for its answer */
    uint64_t
        denials_reported[JAIL_DENIALS_MAX + 1]; /* counts that are in a receipt already; the last is that of `more` */
    struct err destroy_err;
    bool destroy_failed;
    sandbox_handle_done_fn *done;
    void *done_arg;
    struct ev_defer defer;
};

/* sandbox_claim.c: from a spec to a box that is ready */
int sandbox_claim_start(struct sandbox_handle *b, const struct sandbox_spec *spec, struct err *err);
int sandbox_claim_prepare(struct sandbox_handle *b, const struct sandbox_spec *spec,
                          struct err *err); /* CLAIM, ready to be sent */
void sandbox_claim_proceed(
    struct sandbox_handle *b); /* a spare has an owner and a claim: it goes the way of all others */
void sandbox_claim_on_frame(struct sandbox_handle *b, const struct frame *f); /* a frame on stream 0 */
void sandbox_claim_on_adopted_frame(struct sandbox_handle *b,
                                    const struct frame *f); /* the first frames of an adopted runtime */
void sandbox_claim_preload_rules(struct sandbox_handle *b); /* PRELOAD_RULES, while no request waits */
void sandbox_claim_drop(struct sandbox_handle *b);          /* whatever preparation is still held */

/* sandbox_handle.c */
int sandbox_handle_connect(struct sandbox_handle *b, int control_fd, struct err *err);
void sandbox_handle_set_ready(struct sandbox_handle *b);
void sandbox_handle_protocol_error(struct sandbox_handle *b, const char *fmt, ...)
    PRINTF_LIKE(2, 3); /* the runtime broke the protocol */
void sandbox_handle_on_jailer_event(struct sandbox_handle *b, const struct jail_event *ev);
void sandbox_handle_detach_engine(struct sandbox_handle *b); /* the engine goes away */
void sandbox_handle_exec_added(struct sandbox_handle *b);
void sandbox_handle_exec_launched(struct sandbox_handle *b, struct exec_handle *launched);
void sandbox_handle_exec_ended(struct sandbox_handle *b); /* one execution less */
bool sandbox_handle_is_unfinished(const struct sandbox_handle *b);
void sandbox_handle_set_timer(struct sandbox_handle *b, uint64_t at);
void sandbox_handle_disconnect(struct sandbox_handle *b);
uint64_t sandbox_handle_sample_cpu(
    struct sandbox_handle *b); /* the processor counter now, also for those who ask in the same turn */
struct cpu_rate sandbox_handle_cpu_rate(const struct sandbox_handle *b);

/* sandbox_handle_end.c: the ways out */
void sandbox_handle_fail(struct sandbox_handle *b, const struct err *err); /* before it was ready; on_failed follows */
void sandbox_handle_kill(struct sandbox_handle *b, const struct err *why); /* when it was; on_ended follows */
void sandbox_handle_end(struct sandbox_handle *b,
                        const struct err *why);            /* whichever its state asks for; an end under way goes on */
void sandbox_handle_end_timeout(struct sandbox_handle *b); /* the deadline of an end under way has passed */
void sandbox_handle_start_destroy(struct sandbox_handle *b);
void sandbox_handle_jailer_lost(struct sandbox_handle *b, const struct err *why);

/* --- exec_handle.c --- */

enum exec_handle_state {
    EXEC_PREPARING, /* SNAPSHOT is out, or an interpreter is on its way; nothing runs yet */
    EXEC_STARTING,  /* EXEC is out */
    EXEC_RUNNING,
    EXEC_COLLECTING, /* EXIT came; counters and changes are being asked for */
    EXEC_ENDED,
};

struct exec_handle {
    struct exec_handle *next;
    struct sandbox_handle *sandbox; /* NULL after sandbox_handle_free */
    struct ev *ev;
    enum exec_handle_state state;
    const struct exec_handle_ops *ops; /* NULL after exec_handle_free */
    void *arg;

    struct sandbox_stream *stream; /* of the request that the state waits for */
    uint8_t *request;              /* EXEC, while SNAPSHOT is out */
    uint32_t request_len;
    uint8_t *interpreter_request; /* EXEC for the interpreter that is on its way */
    uint32_t interpreter_request_len;
    bool uses_interpreter; /* until it is launched: it takes the interpreter that waits */
    uint32_t stream_id;    /* of EXEC, from the beginning */
    bool confirm_end, close_pending;
    bool is_resumed, awaits_resume; /* awaited: its RESUME has not come */
    uint64_t resume_skip_bytes;     /* RESUME: bytes that come again and are kept already */
    uint64_t stdin_received;        /* RESUME: of standard input */
    bool tty, stdin_open, changes, unmetered, is_language_kernel;
    bool stdin_ended, stdin_end_wanted; /* end_wanted: exec_handle_write_end before EXEC was sent */
    bool write_wanted;                  /* exec_handle_write took less than it was given */
    int signal_wanted;                  /* exec_handle_signal before EXEC was sent */
    bool resize_wanted;
    uint16_t rows, cols;
    bool credit_held;
    size_t uncredited_bytes; /* delivered, not credited */
    uint64_t output_max, output_delivered;
    uint64_t wall_ms, cpu_ms;

    bool end_decided;       /* receipt.ended_by is final */
    bool exit_received;     /* EXIT came */
    bool denials_uncounted; /* for a part of its run nobody told us of refusals */
    bool ran_concurrently;  /* another execution ran beside it */
    uint64_t started_ns, cpu_base;
    uint64_t dropped_bytes[2];                       /* of receipt.dropped_bytes, by channel */
    uint64_t denials_baseline[JAIL_DENIALS_MAX + 1]; /* counts when it was launched; the last is that of `more` */
    bool waits_for_monitor;                          /* SETTLING: the timer is for its answer */
    struct exec_clocks clocks;
    struct ev_timer timer;
    struct receipt receipt;
    struct ev_defer defer;
};

void exec_handle_end(struct exec_handle *x, enum ended_by cause); /* decides, if nobody did, and kills its tree */
void exec_handle_decide_end(struct exec_handle *x, enum ended_by cause);
void exec_handle_sandbox_gone(struct exec_handle *x, const struct err *why,
                              bool memory); /* the sandbox is dead and drained */
void exec_handle_pause(struct exec_handle *x, bool paused);
void exec_handle_set_final_usage(struct exec_handle *x, const struct jail_stats *st, bool alone); /* final figures */
void exec_handle_finish(struct exec_handle *x);                      /* on_exit with the receipt as it is */
void exec_handle_fail(struct exec_handle *x, const struct err *err); /* on_failed */
void exec_handle_set_timer(struct exec_handle *x, uint64_t at);
void exec_handle_drop_stream(struct exec_handle *x);
void exec_handle_on_stream_gone(void *arg, const struct err *why); /* on_gone of every stream of an execution */
struct sandbox_stream *exec_handle_open_path_request(struct exec_handle *x, uint8_t type,
                                                     const struct sandbox_stream_ops *ops);
void exec_handle_release(struct exec_handle *x);
/* exec_handle.c, for exec_resume.c: an execution in the box's list, not launched */
struct exec_handle *exec_handle_create(struct sandbox_handle *b, const struct exec_spec *spec,
                                       const struct exec_handle_ops *ops, void *arg);
extern const struct sandbox_stream_ops exec_handle_stream_ops;
/* exec_resume.c */
struct exec_handle *exec_resume_find(const struct sandbox_handle *b, uint32_t stream);
void exec_resume_attach(struct exec_handle *x, struct sandbox_stream *s, const struct rt_resume *m);
void exec_resume_timeout(struct exec_handle *x);
/* exec_receipt.c */
#define MONITOR_ANSWER_NS (4 * NS_PER_S) /* for the monitor to answer; more than it waits for a listener on its way */
void denials_store_answer(struct sandbox_handle *b, const struct jailer_reply *a,
                          const struct err *err);    /* the monitor's answer */
void denials_monitor_lost(struct sandbox_handle *b); /* the next monitor counts from 0 */
void denials_mark_baseline(struct exec_handle *x);   /* at the launch */
void exec_receipt_set_walls(struct exec_handle *x);  /* its box is ready, and was not when it began */
void exec_receipt_begin(struct exec_handle *x, const struct sandbox_handle *b, const struct exec_spec *spec);
void exec_receipt_on_exit(struct exec_handle *x, const struct rt_exit *m);
void exec_receipt_timeout(struct exec_handle *x); /* the questions after the end took too long */
void exec_handle_detach(struct exec_handle *x);   /* the box is freed: no callback from here on */
