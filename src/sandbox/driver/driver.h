/* driver.h - what the engine asks of a driver, which makes sandboxes by one kind of wall.
 *
 * A driver is one `struct driver_ops` and a row in sandbox/drivers.c. A link (struct driver_link)
 * is its connection to the maker of the sandboxes; drivers with the same operations share a link.
 *
 * Every request is answered exactly once, and never inside the call that makes it, unless it is
 * forgotten first. On a link that is lost, a request is accepted too, and answered a moment later
 * with the loss. So callers have one code path.
 *
 * The driver does not take part in what a sandbox does: the engine speaks with the runtime over the
 * control stream that driver_created hands over. */
#pragma once

#include "core/base/err.h"
#include "core/ev/ev.h"
#include "policy/languages.h"
#include "sandbox/driver/spec.h"

struct driver_caps {
    uint32_t levels;       /* bit per enum level: the levels that it can serve */
    uint32_t mounts;       /* bit per enum sandbox_mount_kind */
    bool mount_references; /* mounts may be references; false: they are descriptors */
    bool freeze;
    bool keep;       /* a sandbox outlives the process of the engine, which adopts it again */
    bool prepare;    /* a sandbox can be created before it has an owner */
    bool reset;      /* a sandbox can return to the unclaimed state */
    bool zygote;     /* interpreters of a zygote can join a sandbox; needs fd_passing */
    bool denials;    /* denied system calls are counted */
    bool fd_passing; /* the control stream passes descriptors */
    bool egress;     /* a sandbox can have listeners of the egress proxy */
    /* Processes that the counters of an idle sandbox include: PID 1, and what keeps it alive. */
    uint32_t processes;
};

/* --- answers --- */

/* A sandbox that was created or adopted. The driver closes the descriptors that the callback does
 * not take (-1 afterwards). */
struct driver_created {
    uint32_t walls; /* JAIL_WALL_* bits that the driver attests */
    bool rootless;  /* made by an unprivileged user: walls that need root are missing */
    struct limit_enforcements limits;
    char cgroup[16];  /* "v1", "v2", "hybrid" or "none" */
    int control_fd;   /* the stream of frames to PID 1 */
    int pidfd;        /* of PID 1; -1: none, as with the next two */
    int cpu_fd;       /* a file with the CPU time used so far (cpu_counter_read); -1: stats() reports it */
    int oom_fd;       /* a file with a line "oom_kill N" */
    uint8_t cpu_unit; /* of cpu_fd */
    uint8_t carrier;  /* enum egress_carrier of core/wire/egress.h */
};

#define DRIVER_DENIALS_MAX 64
#define DRIVER_DENIAL_ARGS 4
struct driver_denial {
    uint32_t nr;
    uint32_t args[DRIVER_DENIAL_ARGS]; /* the arguments that identify the operation; the others are 0 */
    uint64_t count;
};

struct driver_denials {
    const char *absent_why;                           /* why there are no counts; NULL: there are */
    uint64_t overflow_count;                          /* denials that did not fit into entries */
    struct driver_denial entries[DRIVER_DENIALS_MAX]; /* in the order of their first occurrence */
    uint32_t n;
};

#define DRIVER_LIST_MAX 1024 /* ids in one answer */

struct driver_request;
/* Each result is NULL when err is set, with one exception: if `c` is not NULL, the sandbox
 * exists. */
typedef void driver_done_fn(struct driver_request *r, const struct err *err);
typedef void driver_created_fn(struct driver_request *r, struct driver_created *c, const struct err *err);
typedef void driver_stats_fn(struct driver_request *r, const struct sandbox_handle_usage *u, const struct err *err);
typedef void driver_denials_fn(struct driver_request *r, const struct driver_denials *d, const struct err *err);
typedef void driver_list_fn(struct driver_request *r, const char (*ids)[ID_SIZE], size_t n, const struct err *err);
/* The descriptors of an interpreter, as FRAME_INTERPRETER passes them. The driver closes those
 * that the callback does not take. */
typedef void driver_joined_fn(struct driver_request *r, int *fds, size_t nfds, const struct err *err);

/* Allocated by the driver, as a part of its own; valid until it is answered. */
struct driver_request {
    union driver_answer_fn {
        driver_done_fn *done;
        driver_created_fn *created;
        driver_stats_fn *stats;
        driver_denials_fn *denials;
        driver_list_fn *list;
        driver_joined_fn *joined;
    } on;        /* NULL: the answer is ignored; a sandbox that was created for it is destroyed */
    void *owner; /* forget() finds requests by it */
    /* Set by the caller after the request was made, for its own callback. */
    union {
        void (*done)(void *arg, const struct err *err);
        void (*usage)(void *arg, const struct sandbox_handle_usage *u, const struct err *err);
        void (*list)(void *arg, const char (*ids)[ID_SIZE], size_t n, const struct err *err);
    } then;
    void *then_arg;
    uint64_t lifetime_ms; /* set_limits: the requested lifetime */
};

void driver_request_forget(struct driver_request *r);

/* --- the link --- */

struct driver_link;
struct driver_events {
    void (*on_exit)(void *arg, const char *id, int status); /* PID 1 has ended; its wait status */
    void (*on_oom)(void *arg, const char *id);              /* memory ran out in the sandbox */
    /* All open requests were answered. Called again after each request that is made later. */
    void (*on_lost)(void *arg, struct driver_link *l);
    /* Whether the denied calls of a sandbox are counted, and whether there are some that no request
     * has fetched. */
    void (*on_denial_notice)(void *arg, const char *id, bool watched, bool denied);
    void (*on_denials_lost)(void *arg, struct driver_link *l); /* counting starts again from 0 */
};

struct driver_settings {
    int jailer_fd; /* socket to a jailer; open takes it, also on failure */
};

/* The first member of the connection of every driver. */
struct driver_link {
    const struct driver_ops *ops;
    const struct driver_events *events;
    void *arg;                      /* of events */
    const char *denials_absent_why; /* why denials cannot be requested; NULL while they can */
    bool lost;
    struct err why; /* lost: the reason */
};

struct driver_ops {
    /* The program of a language, as the sandboxes see it that the driver makes from a template (its
     * name; "": none). Does not block for longer than a look at the file system. */
    int (*find_language)(const char *template, const struct language *l, char *path, size_t cap, struct err *err);
    int (*open)(struct ev *ev, const struct driver_settings *s, const struct driver_events *events, void *arg,
                struct driver_link **ret, struct err *err);
    void (*close)(struct driver_link *l);                     /* no callback follows */
    void (*forget)(struct driver_link *l, const void *owner); /* no callback follows for this owner */

    /* Fails at once if the spec cannot be expressed; then nothing was requested. */
    struct driver_request *(*create)(struct driver_link *l, const char *id, const struct sandbox_kind *kind,
                                     const struct sandbox_spec *spec, driver_created_fn *fn, void *owner,
                                     struct err *err);
    struct driver_request *(*destroy)(struct driver_link *l, const char *id, driver_stats_fn *fn, void *owner);
    struct driver_request *(*kill)(struct driver_link *l, const char *id, driver_done_fn *fn, void *owner);
    struct driver_request *(*stats)(struct driver_link *l, const char *id, driver_stats_fn *fn, void *owner);
    /* The lifetime starts now. `limits`: memory, swap, CPU and processes too; NULL: they stay. */
    struct driver_request *(*set_limits)(struct driver_link *l, const char *id, uint64_t lifetime_ms,
                                         const struct limits *limits, driver_done_fn *fn, void *owner);
    /* after: NULL, or the id after which the list continues; at most DRIVER_LIST_MAX ids, in their
     * order */
    struct driver_request *(*list)(struct driver_link *l, const char *after, driver_list_fn *fn, void *owner);

    /* Without the capability they answer with driver_unsupported. */
    struct driver_request *(*freeze)(struct driver_link *l, const char *id, driver_done_fn *fn, void *owner);
    struct driver_request *(*thaw)(struct driver_link *l, const char *id, driver_done_fn *fn, void *owner);
    /* control_fd: a descriptor to keep for the process that adopts the sandbox; -1: none */
    struct driver_request *(*keep)(struct driver_link *l, const char *id, int control_fd, driver_done_fn *fn,
                                   void *owner);
    struct driver_request *(*adopt)(struct driver_link *l, const char *id, driver_created_fn *fn, void *owner);

    /* NULL without the capability */
    struct driver_request *(*start_zygote)(struct driver_link *l, const struct sandbox_kind *kind, const char *preload,
                                           driver_done_fn *fn, void *owner, struct err *err);
    void (*stop_zygote)(struct driver_link *l, const struct sandbox_kind *kind);
    struct driver_request *(*join)(struct driver_link *l, const char *id, driver_joined_fn *fn, void *owner);

    struct driver_request *(*denials)(struct driver_link *l, const char *id, driver_denials_fn *fn, void *owner);
    bool (*has_unread_denials)(struct driver_link *l);             /* a notice may have arrived that was not read */
    void (*forget_denials)(struct driver_link *l, const char *id); /* nothing asks for this sandbox any more */
    int (*set_monitor)(struct driver_link *l, int monitor_fd, struct err *err); /* takes the descriptor */
    void (*connect_monitor)(struct driver_link *l);
};

/* --- callbacks on the stack --- */

/* Encloses every callback from the event loop into the engine or a driver. */
void driver_callback_begin(void);
void driver_callback_end(void);
/* Frees mem: at once, or at the end of the loop iteration if a callback is on the stack. */
void driver_free_deferred(struct ev *ev, struct ev_defer *d, void *mem);
