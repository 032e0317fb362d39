/* rt.h - the messages between the host and cove-runtime, PID 1 of a sandbox.
 *
 * Order of a life: host HELLO, runtime HELLO, host CLAIM, runtime CLAIMED, then streams. The host opens even streams
 * (2, 4, ...), the runtime odd ones. A stream begins with a request (EXEC, READ, ...) and its last word is EXIT, DONE
 * or ERROR from the runtime, which the host confirms with CLOSE.
 *
 * Windows. Each direction of a stream starts with a credit of rt_initial_window(type) bytes of DATA payload, counted
 * over all its channels together. The receiver returns credit with CREDIT as it consumes. A sender without credit stops
 * reading its source, so a slow reader slows the program and nothing grows without bound.
 *
 * Adoption. The runtime keeps DATA until it is credited and last words until CLOSE. When a host says HELLO again with a
 * new epoch, the runtime answers HELLO, then RESUME for each live stream, then repeats everything that was not
 * credited, in order, then goes on. `out` in RESUME is the number of DATA bytes credited so far, `in` the number it has
 * received; a host that stored more than `out` drops the difference. CLAIMED, if it was said before, follows HELLO once
 * more; STARTED is said again after its RESUME, and the end of a channel may be. What lay unread in the socket before
 * that HELLO was meant for the host before and is ignored. A resumed stream starts with no credit for the host to
 * send; a CREDIT for all that is free follows its repeated DATA.
 *
 * Reset. After RESET nothing of the claim is left: the sandbox waits for another one, with the same file rules, since
 * those of the first still hold PID 1. A reset that fails is followed by no claim.
 *
 * CLOSE before the last word gives a request up: a program is killed with its tree, an unfinished file is removed.
 *
 * All decoders treat their input as hostile and fail on any byte too few or too many. Encoders write into a caller's
 * buffer of FRAME_PAYLOAD_MAX bytes and return the length, or -1: with LIMIT when the content does not fit, with
 * INVALID when a value is one that the decoder would refuse (ids, ranges, kinds: what the comments at the fields say).
 */
#pragma once

#include "core/base/err.h"
#include "core/base/id.h"
#include "core/base/pack.h"
#include "core/wire/frame.h"

#define RT_PATH_MAX 4096
#define RT_ARGS_MAX 4096 /* argv plus environment entries */

/* DATA flags */
#define RT_STDIN 0u
#define RT_STDOUT 1u
#define RT_STDERR 2u
#define RT_KERNEL 3u     /* both ways; JSON lines, which nobody here reads */
#define RT_CHANNEL 0x03u /* mask: which of them; file streams use 0 */
#define RT_END 0x80u     /* nothing follows on this channel; EXIT and ERROR say so of all channels */

struct rt_hello {
    uint32_t version;
    uint64_t epoch;    /* chosen by the host, echoed by the runtime; a new one means a new host */
    uint32_t features; /* RT_FEATURE_* bits */
};

#define RT_FEATURE_PRELOAD_RULES 0x1u /* the runtime understands PRELOAD_RULES */
#define RT_FEATURE_WARM_UP 0x2u       /* and WARM_UP */

struct rt_number { /* CREDIT: bytes consumed. STARTED: pid inside the sandbox */
    uint32_t value;
};

/* What a path may be used for after CLAIM. The runtime turns them into the rights that the kernel's Landlock knows:
 * LIST is READ_DIR and nothing else (it is given to "/", so that directories can be listed but no file opened); DEVICE
 * is READ_DIR, READ_FILE, WRITE_FILE and IOCTL_DEV; READ_WRITE is everything but making devices. */
enum rt_access {
    RT_ACCESS_READ = 1,
    RT_ACCESS_READ_EXEC = 2,
    RT_ACCESS_READ_WRITE = 3, /* and execute */
    RT_ACCESS_DEVICE = 4,
    RT_ACCESS_LIST = 5,
};
#define RT_ACCESS_OPTIONAL 0x80u /* or-ed in: a path that does not exist is skipped instead of refusing the claim */
#define RT_RULES_MAX 64
#define RT_RULE_PATH_MAX 255 /* bytes */

struct rt_rule {
    uint8_t access;
    const char *path; /* decode: in *strings, see below */
};

struct rt_claim { /* PRELOAD_RULES: without entropy, demands and environment */
    char id[ID_SIZE];
    uint8_t entropy[32];
    uint32_t landlock_min; /* refuse the claim when the kernel's Landlock ABI is lower; 0 accepts none at all */
    uint32_t walls;        /* RT_WALL_* bits: refuse the claim when one of them is missing */
    struct rt_rule rules[RT_RULES_MAX];
    uint32_t nrules;
    const char *const *env; /* encode: "NAME=value"..., NULL-terminated. decode: in *strings, see below */
};

/* Bits of rt_claimed.walls: set only when the runtime saw it with its own eyes. */
#define RT_WALL_SECCOMP 0x01u /* filter mode, of PID 1 itself */
#define RT_WALL_NO_NEW_PRIVS 0x02u
#define RT_WALL_CAPS 0x04u /* effective, permitted, inheritable, bounding, ambient all empty */
#define RT_WALL_SECUREBITS 0x08u
#define RT_WALL_UID 0x10u /* not 0 */
#define RT_WALL_LANDLOCK 0x20u
#define RT_WALL_PID_NS 0x40u  /* it is PID 1 */
#define RT_WALL_ROOT_RO 0x80u /* statvfs("/") says read-only */
#define RT_WALL_GROUPS 0x200u /* no supplementary groups */
#define RT_WALL_NET 0x100u    /* no interface but lo */

struct rt_claimed {
    uint32_t walls;
    uint32_t landlock_abi;
};

#define RT_EXEC_TTY 0x01u   /* a terminal of rows x cols instead of pipes; output arrives on RT_STDOUT */
#define RT_EXEC_STDIN 0x02u /* the host will send DATA on RT_STDIN and end it; otherwise /dev/null */
/* The program has a socket at descriptor 3, and RT_KERNEL is its other end; not with a terminal. Output that was
 * written before something on the socket is told before it. */
#define RT_EXEC_KERNEL 0x04u
/* No program is started: an interpreter has joined the sandbox and was given to PID 1 with INTERPRETER. With
 * RT_EXEC_KERNEL; argv says what it is. */
#define RT_EXEC_JOINED 0x08u
/* No program is started: the kernel of another execution is asked to fork itself, and the copy is this one. With
 * RT_EXEC_KERNEL; directory and environment are the other's, argv says what it is. */
#define RT_EXEC_FORKED 0x10u

#define RT_INTERPRETER_FDS 3u /* of INTERPRETER: kernel socket, output and errors */

struct rt_exec {
    uint32_t flags;
    uint16_t rows, cols;
    const char *cwd;         /* absolute; "" is /workspace; never NULL */
    const char *const *argv; /* at least one; argv[0] is looked up in PATH of the environment when it holds no slash */
    const char *const *env;  /* added to, and overriding, the environment of CLAIM */
    uint32_t forked_stream;  /* of RT_EXEC_FORKED, and only then in the message: the stream of the other execution */
};

enum rt_scope { RT_SCOPE_PROCESS, RT_SCOPE_GROUP, RT_SCOPE_TREE };

struct rt_signal {
    uint32_t signo;
    uint8_t scope;
};

struct rt_resize {
    uint16_t rows, cols;
};

struct rt_exit {
    int32_t code;                     /* 0-255, or -1 when ended by a signal */
    int32_t signal;                   /* 0, or the signal */
    uint64_t user_us, sys_us;         /* of the process and the children it waited for */
    uint64_t max_rss;                 /* bytes, largest single process */
    uint64_t read_bytes, write_bytes; /* through read and write calls, same processes; RT_UNKNOWN if not readable */
    uint64_t tasks_started;           /* processes and threads of the whole sandbox while it ran; RT_UNKNOWN */
    uint64_t full;                    /* RT_FULL_*: places that had no room left at the end */
};
#define RT_FULL_WORKSPACE 0x01u
#define RT_FULL_WORKSPACE_INODES 0x02u
#define RT_FULL_TMP 0x04u
#define RT_FULL_TMP_INODES 0x08u /* of /tmp or /dev/shm, which have the same number each */
#define RT_FULL_SHM 0x10u
#define RT_FULL_ALL 0x1fu
#define RT_UNKNOWN UINT64_MAX

struct rt_error {
    uint32_t id; /* enum err_id */
    int32_t sys; /* errno */
    char msg[200];
};

struct rt_resume {
    uint8_t request; /* frame type that opened the stream */
    uint64_t out, in;
};

/* File kinds in entries: 'f' regular, 'd' directory, 'l' link, 'p' fifo, 's' socket, 'c' 'b' devices. */
struct rt_entry {
    char kind;
    uint32_t mode; /* permission bits */
    uint64_t size;
    uint64_t mtime_ns;
    uint64_t version;         /* rt_file_version(); 0 in LIST */
    uint8_t settled;          /* 1: every later write changes `version`; 0 in LIST */
    char name[RT_PATH_MAX];   /* LIST: name in the directory; STAT, READ: the path asked for */
    char target[RT_PATH_MAX]; /* of a link, else "" */
};

#define RT_PATH_PARENTS 0x01u   /* WRITE, MKDIR, MOVE: make missing parents */
#define RT_PATH_EXCL 0x02u      /* WRITE, MKDIR, MOVE: fail with EXISTS instead of replacing or accepting */
#define RT_PATH_RECURSIVE 0x04u /* REMOVE, WATCH: a whole tree; REMOVE: missing is an error without MISSING_OK */
#define RT_PATH_MISSING_OK 0x08u

struct rt_path { /* READ, WRITE, LIST, STAT, MKDIR, REMOVE, TAR_OUT, TAR_IN, SNAPSHOT, CHANGES, WATCH */
    char path[RT_PATH_MAX];
    uint64_t offset, length; /* READ; length of LIST and CHANGES is the greatest number of entries */
    uint32_t mode;           /* WRITE, MKDIR; 0 is the default (0644, 0755) */
    uint32_t flags;          /* READ: rt_file_version() of the file that is meant, or BUSY; 0 for whatever is there */
};

struct rt_move {
    char from[RT_PATH_MAX], to[RT_PATH_MAX];
    uint32_t flags;
};

struct rt_done { /* counts; which ones mean something depends on the request */
    uint64_t bytes, files;
    uint64_t added, modified, deleted; /* CHANGES */
    uint64_t skipped;                  /* TAR_OUT: sockets, pipes and devices, and names too long to say */
    uint8_t truncated;                 /* LIST, SNAPSHOT, CHANGES: there was more than the limit */
};

enum rt_change_kind { RT_ADDED = 'A', RT_MODIFIED = 'M', RT_DELETED = 'D' };
struct rt_change { /* DATA of CHANGES: packed one after another, never split over two frames */
    char kind;     /* enum rt_change_kind */
    char file;     /* kind of file, as in rt_entry */
    uint64_t size;
    char path[RT_PATH_MAX]; /* relative to /workspace */
};

enum rt_event_kind {
    RT_WATCHING = 'W', /* first, once: nothing that happens from here on is left out; dir says what the path is */
    RT_CREATED = 'C',
    RT_WRITTEN = 'M', /* its content, or its mode, owner or times */
    RT_REMOVED = 'R', /* or moved to where nobody watches */
    RT_MOVED = 'V',
    RT_OVERFLOW = 'O', /* there were more than could be told: some are missing here */
};
struct rt_event {           /* DATA of WATCH: packed one after another, never split over two frames */
    char kind;              /* enum rt_event_kind */
    uint8_t dir;            /* 1: a directory */
    char path[RT_PATH_MAX]; /* relative to the watched directory, or to the directory of what is none; "" is itself */
    char from[RT_PATH_MAX]; /* MOVED, likewise; else "" */
};

struct rt_stats {       /* payload of DONE for STATS */
    uint32_t processes; /* in the pid namespace, PID 1 excluded */
    uint32_t executions;
    uint64_t workspace_bytes, workspace_bytes_max, workspace_files, workspace_files_max; /* by statvfs */
    uint64_t tmp_bytes, tmp_bytes_max;
};

struct rt_reset {       /* payload of DONE for RESET: what was found, and is gone */
    uint32_t processes; /* beside the main processes of executions and the interpreter that waited */
    uint32_t objects;   /* System V memory and semaphores */
    uint64_t files;     /* in /workspace, /tmp and /dev/shm */
    uint32_t sockets;   /* TCP connections that outlive their processes; these stay */
    uint8_t altered;    /* 1: how PID 1 is scheduled or limited was changed, and that stays */
    uint8_t full;       /* 1: a place had no room left */
};

/* Names one content of a file: a hash of its inode, its size and its times. Two writes within one tick of the kernel's
 * clock may leave it as it is, see rt_entry.settled. */
uint64_t rt_file_version(uint64_t inode, uint64_t size, uint64_t mtime_ns, uint64_t ctime_ns);
uint32_t rt_file_version_check(uint64_t version); /* rt_path.flags of a READ of that version alone; never 0 */
uint32_t rt_initial_window(uint8_t request);      /* starting credit of a stream opened by this frame type */

int rt_hello_encode(const struct rt_hello *m, uint8_t *out, struct err *err);
int rt_hello_decode(const struct frame *f, struct rt_hello *ret, struct err *err);
int rt_number_encode(const struct rt_number *m, uint8_t *out, struct err *err);
int rt_number_decode(const struct frame *f, struct rt_number *ret, struct err *err);
/* Decoded string lists live in one allocation that the caller frees: *strings. */
int rt_claim_encode(const struct rt_claim *m, uint8_t *out, struct err *err);
int rt_claim_decode(const struct frame *f, struct rt_claim *ret, void **strings, struct err *err);
int rt_claimed_encode(const struct rt_claimed *m, uint8_t *out, struct err *err);
int rt_claimed_decode(const struct frame *f, struct rt_claimed *ret, struct err *err);
int rt_exec_encode(const struct rt_exec *m, uint8_t *out, struct err *err);
int rt_exec_decode(const struct frame *f, struct rt_exec *ret, void **strings, struct err *err);
int rt_signal_encode(const struct rt_signal *m, uint8_t *out, struct err *err);
int rt_signal_decode(const struct frame *f, struct rt_signal *ret, struct err *err);
int rt_resize_encode(const struct rt_resize *m, uint8_t *out, struct err *err);
int rt_resize_decode(const struct frame *f, struct rt_resize *ret, struct err *err);
int rt_exit_encode(const struct rt_exit *m, uint8_t *out, struct err *err);
int rt_exit_decode(const struct frame *f, struct rt_exit *ret, struct err *err);
int rt_error_encode(const struct rt_error *m, uint8_t *out, struct err *err);
int rt_error_decode(const struct frame *f, struct rt_error *ret, struct err *err);
int rt_resume_encode(const struct rt_resume *m, uint8_t *out, struct err *err);
int rt_resume_decode(const struct frame *f, struct rt_resume *ret, struct err *err);
int rt_path_encode(const struct rt_path *m, uint8_t *out, struct err *err);
int rt_path_decode(const struct frame *f, struct rt_path *ret, struct err *err);
int rt_move_encode(const struct rt_move *m, uint8_t *out, struct err *err);
int rt_move_decode(const struct frame *f, struct rt_move *ret, struct err *err);
int rt_done_encode(const struct rt_done *m, uint8_t *out, struct err *err);
int rt_done_decode(const struct frame *f, struct rt_done *ret, struct err *err);
int rt_stats_encode(const struct rt_stats *m, uint8_t *out, struct err *err);
int rt_stats_decode(const struct frame *f, struct rt_stats *ret, struct err *err);
int rt_reset_encode(const struct rt_reset *m, uint8_t *out, struct err *err);
int rt_reset_decode(const struct frame *f, struct rt_reset *ret, struct err *err);
/* Items inside DATA, or the whole payload of DONE for STAT and READ: appended to and taken from a cursor. An item that
 * does not fit sets p->bad and leaves p->len as it was, so the caller can send what is there and try again. Unpacking
 * writes straight to *ret, since items come by the thousand; its content means nothing when the answer is false. */
void rt_entry_pack(struct pack *p, const struct rt_entry *e);
bool rt_entry_unpack(struct unpack *u, struct rt_entry *ret);
void rt_change_pack(struct pack *p, const struct rt_change *c);
bool rt_change_unpack(struct unpack *u, struct rt_change *ret);
void rt_event_pack(struct pack *p, const struct rt_event *e);
bool rt_event_unpack(struct unpack *u, struct rt_event *ret);
