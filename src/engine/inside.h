/* inside.h - what engine.c, stream.c, box.c, box_end.c, claim.c, exec.c, settle.c and files.c know of one
 * another. Nothing outside this room includes it.
 *
 * Who owns what: the engine knows its boxes and open questions but owns only the questions; a box owns its streams and
 * knows its executions; executions and boxes belong to the caller. A memory block is released at once when none of
 * our callbacks is on the stack, else at the end of the turn (engine_release), so every function may go on using an
 * object after a callback in which the caller freed it. */
#pragma once

#include "engine/clocks.h"
#include "engine/engine.h"
#include "engine/receipt.h"
#include "wire/chan.h"
#include "wire/jail.h"
#include "wire/rt.h"

/* Room for one encoded message. The build zeroes automatic variables; for 64 KiB of which a hundred bytes are used that
 * would cost more than the message, and encoders return how much they wrote. */
#define PAYLOAD(name) uint8_t name[FRAME_PAYLOAD_MAX] __attribute__((uninitialized))

/* --- engine.c: questions to the jailer --- */

struct ask;
/* f is NULL when err is set. Descriptors that the callee does not take out of `fds` are closed after it. */
struct answer {
    const struct frame *f;
    int *fds;
    size_t nfds;
};
typedef void ask_fn(struct ask *ask, const struct answer *a, const struct err *err);

struct kind { /* sandboxes that come from one template */
    struct filter_spec filter;
    char language[16]; /* of its zygote; "": nobody joins */
    uint64_t preload;  /* hash of what that loads */
};

struct ask {
    struct ask *next;
    uint32_t stream;
    uint8_t type;
    char id[ID_SIZE];  /* the sandbox it is about, or "" */
    ask_fn *fn;        /* NULL: nobody waits for the answer any more */
    void *owner;       /* box, exec or engine */
    struct kind kind;  /* J_TEMPLATE: what was asked for */
    box_done_fn *done; /* for questions that a caller of ours waits for */
    box_usage_fn *usage;
    engine_list_fn *list;
    uint64_t lifetime_ms; /* J_EXTEND: what was asked for */
    void *done_arg;
};

#define ASK_BUCKETS 64u
#define BOX_BUCKETS 256u
/* A descriptor too many, in the middle of a message of the jailer, would cost the connection and all sandboxes. */
#define BOX_FDS 4u      /* control, pidfd, processor and memory counters */
#define OTHER_FDS 2048u /* connections of clients, files, and interpreters on their way into a box */

struct engine {
    struct ev *ev;
    struct chan chan;
    const struct engine_ops *ops;
    void *arg;
    bool lost, told;
    struct err why;
    struct chan monitor;
    struct ev_timer monitor_timer;
    uint64_t monitor_wait_ns; /* until it is asked for again; 0: there is none to ask for */
    const char *unwatched;    /* why the monitor cannot be asked; NULL when it can */
    struct ev_timer lost_timer;
    uint32_t next_stream;
    uint32_t cores;
    struct kind *templates; /* asked for, and not refused */
    size_t ntemplates;
    struct ask *asks[ASK_BUCKETS];
    struct box *boxes[BOX_BUCKETS];
    uint64_t nboxes, room;
    struct ev_defer defer;
};

/* Asks the jailer; fn is called exactly once, later, with the answer or with an error, unless the owner is forgotten
 * first. On an engine that lost its jailer the answer is that error. */
struct ask *engine_ask(struct engine *e, uint8_t type, const uint8_t *data, uint32_t len, const int *fds, size_t nfds,
                       ask_fn *fn, void *owner);
struct ask *engine_ask_id(struct engine *e, uint8_t type, const char *id, ask_fn *fn, void *owner);
void engine_forget(struct engine *e, const void *owner);
/* Asks the monitor, which must be there (unwatched is NULL), what was refused in a sandbox. */
void engine_ask_denials(struct engine *e, const char *id, ask_fn *fn, void *owner);
/* Nothing since the last question, for sure: the monitor's news of a refusal is sent before the call returns, so it has
 * arrived before anything that a program did later can be seen here. */
bool engine_nothing_refused(const struct box *b);
/* Asks for the template unless that was done. A box may be asked for right behind: the jailer takes requests in order,
 * and a template that fails fails the boxes that were asked for meanwhile. */
void engine_template(struct engine *e, const struct kind *kind);
void engine_template_gone(struct engine *e, const struct kind *kind); /* so that it is asked for again */
void engine_template_name(const struct kind *kind, char ret[JAIL_NAME_MAX]);
struct kind engine_kind(const struct box_spec *spec);
bool engine_same_kind(const struct kind *a, const struct kind *b);
/* But for those that are kept on this side and can be chosen when a box is claimed. */
bool engine_same_limits(const struct limits *a, const struct limits *b);
bool engine_fit_limits(const struct limits *made, const struct limits *want); /* or can be made the same */
void engine_add(struct engine *e, struct box *b);
void engine_remove(struct engine *e, struct box *b);
void engine_settle(struct engine *e); /* a box is over: perhaps the last one that held back on_lost */
void engine_enter(void);              /* around every callback that the loop makes into this room */
void engine_leave(void);
void engine_release(struct ev *ev, struct ev_defer *d, void *mem); /* frees mem, now or at the end of the turn */
/* Text from the other side, made fit for a terminal. */
void engine_error(const struct rt_error *m, struct err *ret);

/* --- zygote.c --- */

void box_member_lost(struct box *b, const struct frame *f); /* MEMBER_LOST: what waited has ended */

/* --- stream.c: streams of one control connection --- */

struct stream;
struct stream_ops {
    /* STARTED, DATA, EXIT, DONE, ERROR. The stream is gone after the last three. DATA must be credited with
     * stream_consumed(). Returns false when the frame has no place here: the box is then ended. */
    bool (*on_frame)(void *arg, const struct frame *f);
    void (*on_writable)(void *arg);                    /* credit came back, or the queue emptied */
    void (*on_gone)(void *arg, const struct err *why); /* the box ended first; why is NULL when nobody wants to know */
};

struct stream {
    struct stream *next;
    struct box *box;
    uint32_t id;
    uint32_t window;
    uint32_t room;                /* bytes the runtime may still send */
    uint32_t owed;                /* consumed, not credited yet */
    uint32_t credit;              /* bytes we may still send */
    uint8_t ended;                /* channels on which the runtime said RT_END, as bits */
    const struct stream_ops *ops; /* NULL: abandoned, everything is swallowed */
    void *arg;
    bool orphan;    /* a request of an earlier host that nobody took up */
    bool confirm;   /* CLOSE is the owner's to send, when it has kept the last word */
    bool cancelled; /* the runtime was told to forget it; gone when the stream `fence` ended */
    uint32_t fence;
};

struct stream *stream_open(struct box *b, uint8_t type, const uint8_t *data, uint32_t len, const struct stream_ops *ops,
                           void *arg);
uint32_t stream_reserve(struct box *b); /* a number for stream_open_as() */
struct stream *stream_open_as(struct box *b, uint32_t id, uint8_t type, const uint8_t *data, uint32_t len,
                              const struct stream_ops *ops, void *arg);
void stream_close(struct box *b, uint32_t id); /* of a stream with `confirm` */
void stream_abandon(struct stream *s);         /* swallow the rest of it */
void stream_cancel(struct stream *s);          /* make the runtime give it up */
void stream_send(struct stream *s, uint8_t type, uint8_t flags, const uint8_t *data, uint32_t len);
size_t stream_write(struct stream *s, uint8_t channel, const void *data, size_t len); /* bytes that fit now */
void stream_consumed(struct stream *s, size_t n);
void stream_frame(struct box *b, const struct frame *f);
void stream_resumed(struct box *b, const struct frame *f); /* RESUME: a stream of the host before us */
void streams_drained(struct box *b);
void streams_gone(struct box *b, const struct err *why);

/* --- box.c, box_end.c, claim.c: one sandbox --- */

enum box_state {
    BOX_CREATING, /* J_CREATE or J_ADOPT is out */
    BOX_HELLO,    /* HELLO is out, and CLAIM behind it */
    BOX_CLAIMING, /* HELLO came back */
    BOX_READY,
    BOX_ENDING, /* being killed, or found dead; last words are still coming */
    BOX_ENDED,  /* no process is left; destroy removes the rest */
    BOX_DESTROYING,
    BOX_GONE,
};

enum box_member { /* an interpreter that joined; PID 1 holds its descriptors */
                  MEMBER_NONE,
                  MEMBER_WAITS,
                  MEMBER_PROMISED, /* to an execution that is not launched yet */
};

struct box {
    struct engine *e; /* NULL after engine_free */
    struct ev *ev;
    struct box *next;
    enum box_state state;
    const struct box_ops *ops; /* NULL after box_free */
    void *arg;
    char id[ID_SIZE];
    enum level level;
    struct kind kind;
    struct limits limits;
    char policy[64];
    bool every_wall;
    uint64_t enforce;

    uint8_t *claim; /* CLAIM, until it is sent */
    uint32_t claim_len;
    bool adopted;
    bool demanding; /* the runtime itself refuses a claim with a wall too few */
    bool claim_sent;
    bool spare;     /* greeted, and claimed by nobody yet */
    bool resetting; /* RESET is out: what comes of other streams is of no interest */
    bool used;      /* it was reset: the rules of its first claim hold on */
    struct box_found found;
    struct limits told; /* to the jailer */

    struct jail_created outside;
    struct rt_claimed inside;
    uint64_t epoch;
    struct chan chan;
    bool wired;     /* chan is in use */
    bool settled;   /* ENDING, DESTROYING: the jailer has answered all that the state asks of it */
    bool memory;    /* ENDING: it died because memory ran out */
    int32_t status; /* of PID 1, from J_EVENT; -1 when it is not known */
    uint64_t cpu_seen,
        cpu_looked; /* the counter as it was in this turn of the loop: the kernel gathers it anew each time */
    int pidfd, cpu_fd, oom_fd;
    enum box_member member;
    bool rehearses;   /* its runtime hands on the word */
    struct ask *join; /* the question that brings one; NULL */

    struct stream *streams;
    uint32_t next_stream;
    struct exec *execs;
    size_t running;    /* of them, not over yet */
    uint64_t launched; /* ever */
    uint64_t oom_seen; /* oom kills that were already somebody's end */

    struct life life;
    struct ev_timer timer;
    bool paused, kept, over; /* over: a clock of the sandbox ran out */
    enum ended_by cause;     /* over: which */
    bool failed;             /* it ends before it was ready: on_failed, not on_ended */
    bool destroy_wanted;
    struct err why;
    struct jail_stats stats;
    bool stats_known;
    struct jail_denied denied; /* what the monitor said last */
    const char *denied_why;    /* why it did not, or NULL */
    bool watched, refused;     /* the monitor said that it is, and that there is something to ask for */
    bool asks_monitor;         /* the timer is for its answer */
    uint64_t denied_told[JAIL_DENIALS_MAX + 1]; /* counts that are in a receipt already; the last is that of `more` */
    struct err destroy_err;
    bool destroy_failed;
    box_done_fn *done;
    void *done_arg;
    struct ev_defer defer;
};

/* claim.c: from a spec to a box that is ready */
int claim_start(struct box *b, const struct box_spec *spec, struct err *err);
int claim_prepare(struct box *b, const struct box_spec *spec, struct err *err); /* CLAIM, ready to be sent */
void claim_go(struct box *b); /* a spare has an owner and a claim: it goes the way of all others */
void claim_frame(struct box *b, const struct frame *f);    /* a frame on stream 0 */
void claim_greeting(struct box *b, const struct frame *f); /* the first frames of an adopted runtime */
void claim_expect(struct box *b);                          /* EXPECT: while nobody waits */
void claim_drop(struct box *b);                            /* whatever preparation is still held */

/* box.c */
int box_wire(struct box *b, int control_fd, struct err *err);
void box_ready(struct box *b);
void box_violate(struct box *b, const char *fmt, ...) PRINTF_LIKE(2, 3); /* the runtime broke the protocol */
void box_event(struct box *b, const struct jail_event *ev);
void box_orphan(struct box *b); /* the engine goes away */
void box_exec_added(struct box *b);
void box_exec_launched(struct box *b, struct exec *launched);
void box_exec_over(struct box *b); /* one execution less */
bool box_unfinished(const struct box *b);
void box_set_timer(struct box *b, uint64_t at);
void box_unwire(struct box *b);
uint64_t box_cpu_look(struct box *b); /* the processor counter now, also for those who ask in the same turn */
struct cpu_rate box_cpu_rate(const struct box *b);

/* box_end.c: the ways out */
void box_fail(struct box *b, const struct err *err); /* before it was ready; on_failed follows */
void box_kill(struct box *b, const struct err *why); /* when it was; on_ended follows */
void box_end(struct box *b, const struct err *why);  /* whichever its state asks for; an end under way goes on */
void box_end_late(struct box *b);                    /* the deadline of an end under way has passed */
void box_destroy_now(struct box *b);
void box_jailer_lost(struct box *b, const struct err *why);

/* --- exec.c --- */

enum exec_state {
    EXEC_MARKING,  /* MARK is out, or an interpreter is on its way; nothing runs yet */
    EXEC_STARTING, /* EXEC is out */
    EXEC_RUNNING,
    EXEC_SETTLING, /* EXIT came; counters and changes are being asked for */
    EXEC_OVER,
};

struct exec {
    struct exec *next;
    struct box *box; /* NULL after box_free */
    struct ev *ev;
    enum exec_state state;
    const struct exec_ops *ops; /* NULL after exec_free */
    void *arg;

    struct stream *stream; /* of the request that the state waits for */
    uint8_t *request;      /* EXEC, while MARK is out */
    uint32_t request_len;
    uint8_t *joined_request; /* EXEC for the interpreter that is on its way */
    uint32_t joined_len;
    bool joined;        /* until it is launched: it takes the interpreter that waits */
    uint32_t stream_id; /* of EXEC, from the beginning */
    bool confirm, unclosed;
    bool resumed, awaited; /* awaited: its RESUME has not come */
    uint64_t skip;         /* RESUME: bytes that come again and are kept already */
    uint64_t received;     /* RESUME: of standard input */
    bool tty, stdin_open, changes, unmetered, kernel;
    bool stdin_ended, end_wanted; /* end_wanted: exec_write_end before EXEC was sent */
    bool write_wanted;            /* exec_write took less than it was given */
    int signal_wanted;            /* exec_signal before EXEC was sent */
    bool resize_wanted;
    uint16_t rows, cols;
    bool hold;
    size_t held; /* delivered, not credited */
    uint64_t output_max, handed;
    uint64_t wall_ms, cpu_ms;

    bool decided;   /* receipt.ended_by is final */
    bool exited;    /* EXIT came */
    bool uncounted; /* for a part of its run nobody told us of refusals */
    bool shared;    /* another execution ran beside it */
    uint64_t started_ns, cpu_base;
    uint64_t dropped[2];                        /* of receipt.dropped_bytes, by channel */
    uint64_t denied_base[JAIL_DENIALS_MAX + 1]; /* counts when it was launched; the last is that of `more` */
    bool asks_monitor;                          /* SETTLING: the timer is for its answer */
    struct clocks clocks;
    struct ev_timer timer;
    struct receipt receipt;
    struct ev_defer defer;
};

void exec_end(struct exec *x, enum ended_by cause); /* decides, if nobody did, and kills its tree */
void exec_decide(struct exec *x, enum ended_by cause);
void exec_gone(struct exec *x, const struct err *why, bool memory); /* the sandbox is dead and drained */
void exec_pause(struct exec *x, bool paused);
void exec_complete(struct exec *x, const struct jail_stats *st, bool alone); /* final figures */
void exec_finish(struct exec *x);                                            /* on_exit with the receipt as it is */
void exec_fail(struct exec *x, const struct err *err);                       /* on_failed */
void exec_set_timer(struct exec *x, uint64_t at);
void exec_drop_stream(struct exec *x);
void exec_stream_gone(void *arg, const struct err *why); /* on_gone of every stream of an execution */
struct stream *exec_open_path(struct exec *x, uint8_t type, const struct stream_ops *ops);
void exec_release(struct exec *x);
/* exec.c, for resume.c: an execution in the box's list, not launched */
struct exec *exec_make(struct box *b, const struct exec_spec *spec, const struct exec_ops *ops, void *arg);
extern const struct stream_ops exec_stream_ops;
/* resume.c */
struct exec *resume_find(const struct box *b, uint32_t stream);
void resume_attach(struct exec *x, struct stream *s, const struct rt_resume *m);
void resume_late(struct exec *x);
/* settle.c */
#define MONITOR_NS (4 * NS_PER_S) /* for the monitor to answer; more than it waits for a listener on its way */
void denials_take(struct box *b, const struct answer *a, const struct err *err); /* the monitor's answer */
void denials_lost(struct box *b);                                                /* the next monitor counts from 0 */
void denials_base(struct exec *x);                                               /* at the launch */
void settle_walls(struct exec *x); /* its box is ready, and was not when it began */
void settle_begin(struct exec *x, const struct box *b, const struct exec_spec *spec);
void settle_exit(struct exec *x, const struct rt_exit *m);
void settle_late(struct exec *x); /* the questions after the end took too long */
void exec_detach(struct exec *x); /* the box is freed: no callback from here on */
