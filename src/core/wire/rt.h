/* rt.h - the messages between the engine and cove-runtime, PID 1 of a sandbox.
 *
 * Order: HELLO from the engine, HELLO from the runtime, CLAIM from the engine, CLAIMED from the
 * runtime, then streams. The engine opens even streams (2, 4, ...), the runtime odd ones. A stream
 * begins with a request (EXEC, READ, ...). Its last frame is EXIT, DONE or ERROR from the runtime,
 * which the engine confirms with CLOSE.
 *
 * Windows. Each direction of a stream starts with a credit of rt_initial_window(type) bytes of DATA
 * payload, shared by all its channels. The receiver returns credit with CREDIT as it consumes. A
 * sender without credit stops reading its source, so a slow reader slows the program down
 * (back-pressure) and no buffer grows without bound.
 *
 * Adoption. The runtime keeps DATA until it is credited, and last frames until CLOSE. When an
 * engine sends HELLO again with a new epoch, the runtime answers with HELLO, then RESUME for each
 * live stream, then repeats everything that was not credited, in order, and continues. `out` in
 * RESUME is the number of DATA bytes credited so far, `in` the number received; an engine that
 * stored more than `out` drops the difference. If CLAIMED was sent before, it is repeated after
 * HELLO; STARTED is repeated after its RESUME, and the end of a channel may be. Unread
 * frames in the socket from before that HELLO belong to the previous engine and are ignored. In a
 * resumed stream the engine starts without credit to send; a CREDIT for all free bytes follows the
 * repeated DATA.
 *
 * Reset. After RESET nothing of the claim is left: the sandbox waits for another claim, with the
 * same file rules, since the rules of the first claim still apply to PID 1. After a failed reset no
 * claim is possible.
 *
 * CLOSE before the last frame cancels a request: a program is killed with its process tree, an
 * unfinished file is removed.
 *
 * All decoders treat their input as hostile and fail on missing or extra bytes. Encoders write into
 * a caller's buffer of FRAME_PAYLOAD_MAX bytes and return the length, or -1: with LIMIT if the
 * content does not fit, with INVALID if the decoder would refuse a value (ids, ranges, kinds: see
 * the comments of the fields). */
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
#define RT_KERNEL 3u     /* both directions; JSON lines, which are passed through unread */
#define RT_CHANNEL 0x03u /* mask for the channel; file streams use 0 */
#define RT_END 0x80u     /* last frame of this channel; EXIT and ERROR end all channels */

struct rt_hello {
    uint32_t version;
    uint64_t epoch;    /* chosen by the engine, echoed by the runtime; a new value means a new engine */
    uint32_t features; /* RT_FEATURE_* bits */
};

#define RT_FEATURE_PRELOAD_RULES 0x1u /* the runtime understands PRELOAD_RULES */
#define RT_FEATURE_WARM_UP 0x2u       /* the runtime understands WARM_UP */

struct rt_number { /* CREDIT: bytes consumed. STARTED: pid inside the sandbox */
    uint32_t value;
};

/* The permitted uses of a path after CLAIM. The runtime translates them to Landlock rights: LIST is
 * READ_DIR only (given to "/", so that directories can be listed but no file opened); DEVICE is
 * READ_DIR, READ_FILE, WRITE_FILE and IOCTL_DEV; READ_WRITE is everything except creating devices.
 */
enum rt_access {
    RT_ACCESS_READ = 1,
    RT_ACCESS_READ_EXEC = 2,
    RT_ACCESS_READ_WRITE = 3, /* includes execute */
    RT_ACCESS_DEVICE = 4,
    RT_ACCESS_LIST = 5,
};
#define RT_ACCESS_OPTIONAL 0x80u /* or-ed in: a missing path is skipped instead of failing the claim */
#define RT_RULES_MAX 64
#define RT_RULE_PATH_MAX 255 /* bytes */

struct rt_rule {
    uint8_t access;
    const char *path; /* decode: points into *strings, see below */
};

struct rt_claim { /* in PRELOAD_RULES without entropy, required walls and environment */
    char id[ID_SIZE];
    uint8_t entropy[32];
    uint32_t landlock_min; /* fail the claim if the kernel's Landlock ABI is lower; 0: Landlock may be missing */
    uint32_t walls;        /* RT_WALL_* bits: fail the claim if one of them is missing */
    struct rt_rule rules[RT_RULES_MAX];
    uint32_t nrules;
    const char *const *env; /* encode: "NAME=value"..., NULL-terminated; decode: points into *strings, see below */
};

/* Bits of rt_claimed.walls: set only if the runtime verified the wall itself. */
#define RT_WALL_SECCOMP 0x01u /* PID 1 itself is in filter mode */
#define RT_WALL_NO_NEW_PRIVS 0x02u
#define RT_WALL_CAPS 0x04u /* effective, permitted, inheritable, bounding, ambient all empty */
#define RT_WALL_SECUREBITS 0x08u
#define RT_WALL_UID 0x10u /* not 0 */
#define RT_WALL_LANDLOCK 0x20u
#define RT_WALL_PID_NS 0x40u  /* the runtime is PID 1 */
#define RT_WALL_ROOT_RO 0x80u /* statvfs("/") reports read-only */
#define RT_WALL_GROUPS 0x200u /* no supplementary groups */
#define RT_WALL_NET 0x100u    /* no interface except lo */

struct rt_claimed {
    uint32_t walls;
    uint32_t landlock_abi;
};

#define RT_EXEC_TTY 0x01u   /* a terminal of rows x cols instead of pipes; output arrives on RT_STDOUT */
#define RT_EXEC_STDIN 0x02u /* the engine will send DATA on RT_STDIN and end it; otherwise stdin is /dev/null */
/* The program has a socket at descriptor 3 whose other end is RT_KERNEL; not with a terminal.
 * Output written before a message on the socket is also sent before that message. */
#define RT_EXEC_KERNEL 0x04u
/* No program is started: the execution takes an interpreter that has joined the sandbox and was
 * passed to PID 1 with INTERPRETER. Requires RT_EXEC_KERNEL; argv describes the interpreter. */
#define RT_EXEC_JOINED 0x08u
/* No program is started: the language kernel of another execution forks itself, and the copy
 * becomes this execution. Requires RT_EXEC_KERNEL; directory and environment are those of the other
 * execution, argv describes the copy. */
#define RT_EXEC_FORKED 0x10u

#define RT_INTERPRETER_FDS 3u /* descriptors of INTERPRETER: language kernel socket, stdout, stderr */

struct rt_exec {
    uint32_t flags;
    uint16_t rows, cols;
    const char *cwd;         /* absolute; "" is /workspace; never NULL */
    const char *const *argv; /* at least one; argv[0] without a slash is looked up in PATH of the environment */
    const char *const *env;  /* added to the environment of CLAIM; overrides it */
    uint32_t forked_stream;  /* stream of the execution to fork; present in the message only with RT_EXEC_FORKED */
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
    int32_t code;             /* 0-255, or -1 if ended by a signal */
    int32_t signal;           /* 0, or the signal number */
    uint64_t user_us, sys_us; /* of the process and the children it waited for */
    uint64_t max_rss;         /* bytes, of the largest single process */
    /* through read and write calls of the same processes; RT_UNKNOWN if not readable */
    uint64_t read_bytes, write_bytes;
    /* processes and threads of the whole sandbox; RT_UNKNOWN if not readable */
    uint64_t tasks_started;
    uint64_t full; /* RT_FULL_* bits: file systems without free space at the end */
};
#define RT_FULL_WORKSPACE 0x01u
#define RT_FULL_WORKSPACE_INODES 0x02u
#define RT_FULL_TMP 0x04u
#define RT_FULL_TMP_INODES 0x08u /* of /tmp or /dev/shm, each of which has the same maximum */
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

/* File kinds in entries: 'f' regular, 'd' directory, 'l' symbolic link, 'p' fifo, 's' socket, 'c'
 * 'b' devices. */
struct rt_entry {
    char kind;
    uint32_t mode; /* permission bits */
    uint64_t size;
    uint64_t mtime_ns;
    uint64_t version;         /* rt_file_version(); 0 in LIST */
    uint8_t settled;          /* 1: every later write changes `version`; 0 in LIST */
    char name[RT_PATH_MAX];   /* LIST: name in the directory; STAT, READ: the requested path */
    char target[RT_PATH_MAX]; /* of a symbolic link, else "" */
};

#define RT_PATH_PARENTS 0x01u /* WRITE, MKDIR, MOVE: create missing parents */
#define RT_PATH_EXCL 0x02u    /* WRITE, MKDIR, MOVE: fail with EXISTS instead of replacing or accepting */
/* REMOVE, WATCH: a whole tree. REMOVE: a missing path is an error unless MISSING_OK is set */
#define RT_PATH_RECURSIVE 0x04u
#define RT_PATH_MISSING_OK 0x08u

struct rt_path { /* READ, WRITE, LIST, STAT, MKDIR, REMOVE, TAR_OUT, TAR_IN, SNAPSHOT, CHANGES, WATCH */
    char path[RT_PATH_MAX];
    uint64_t offset, length; /* READ: byte range. LIST, CHANGES: length is the maximum number of entries */
    uint32_t mode;           /* WRITE, MKDIR: permission bits; 0 is the default (0644, 0755) */
    uint32_t flags;          /* READ: the expected rt_file_version(), else BUSY; 0 accepts any file */
};

struct rt_move {
    char from[RT_PATH_MAX], to[RT_PATH_MAX];
    uint32_t flags;
};

struct rt_done { /* counts; which ones are used depends on the request */
    uint64_t bytes, files;
    uint64_t added, modified, deleted; /* CHANGES */
    uint64_t skipped;                  /* TAR_OUT: sockets, pipes, devices, and files whose names are too long */
    uint8_t truncated;                 /* LIST, SNAPSHOT, CHANGES: 1 if there was more than the limit */
};

enum rt_change_kind { RT_ADDED = 'A', RT_MODIFIED = 'M', RT_DELETED = 'D' };
struct rt_change { /* DATA of CHANGES: packed one after another, never split across frames */
    char kind;     /* enum rt_change_kind */
    char file;     /* kind of file, as in rt_entry */
    uint64_t size;
    char path[RT_PATH_MAX]; /* relative to /workspace */
};

enum rt_event_kind {
    RT_WATCHING = 'W', /* the first event, once: all later changes are reported; dir gives the type of the path */
    RT_CREATED = 'C',
    RT_WRITTEN = 'M', /* its content, mode, owner or times changed */
    RT_REMOVED = 'R', /* removed, or moved out of the watched tree */
    RT_MOVED = 'V',
    RT_OVERFLOW = 'O', /* too many events: some are missing here */
};
struct rt_event { /* DATA of WATCH: packed one after another, never split across frames */
    char kind;    /* enum rt_event_kind */
    uint8_t dir;  /* 1: a directory */
    /* relative to the watched directory, or to the directory of the watched file; "" is the watched
     * path itself */
    char path[RT_PATH_MAX];
    char from[RT_PATH_MAX]; /* MOVED: the old path, relative as in path; else "" */
};

struct rt_stats {       /* payload of DONE for STATS */
    uint32_t processes; /* in the pid namespace, without PID 1 */
    uint32_t executions;
    uint64_t workspace_bytes, workspace_bytes_max, workspace_files, workspace_files_max; /* from statvfs */
    uint64_t tmp_bytes, tmp_bytes_max;
};

struct rt_reset {       /* payload of DONE for RESET: what was found and removed */
    uint32_t processes; /* besides the main processes of executions and the waiting interpreter */
    uint32_t objects;   /* System V memory and semaphores */
    uint64_t files;     /* in /workspace, /tmp and /dev/shm */
    uint32_t sockets;   /* TCP connections that outlive their processes; not removed */
    uint8_t altered;    /* 1: the scheduling or the rlimits of PID 1 were changed; not undone */
    uint8_t full;       /* 1: a file system had no free space */
};

/* Identifies one content of a file: a hash of its inode, size, modification time and change time.
 * A second write within the same tick of the kernel's clock may not change it; see
 * rt_entry.settled. */
uint64_t rt_file_version(uint64_t inode, uint64_t size, uint64_t mtime_ns, uint64_t ctime_ns);
uint32_t rt_file_version_check(uint64_t version); /* rt_path.flags of a READ that accepts only this version; never 0 */
uint32_t rt_initial_window(uint8_t request);      /* initial credit of a stream opened by this frame type, in bytes */

int rt_hello_encode(const struct rt_hello *m, uint8_t *out, struct err *err);
int rt_hello_decode(const struct frame *f, struct rt_hello *ret, struct err *err);
int rt_number_encode(const struct rt_number *m, uint8_t *out, struct err *err);
int rt_number_decode(const struct frame *f, struct rt_number *ret, struct err *err);
/* Decoded string lists are in one allocation, *strings, which the caller frees. */
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
/* Converts an error of the other side; control characters are removed from its text. */
void rt_error_to_err(const struct rt_error *m, struct err *ret);
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
/* Items in DATA, or the whole payload of DONE for STAT and READ. An item that does not fit sets
 * p->bad and leaves p->len unchanged, so the caller can send the packed items and try again.
 * Unpacking writes directly to *ret, because there may be thousands of items; *ret is undefined if
 * the result is false. */
void rt_entry_pack(struct pack *p, const struct rt_entry *e);
bool rt_entry_unpack(struct unpack *u, struct rt_entry *ret);
void rt_change_pack(struct pack *p, const struct rt_change *c);
bool rt_change_unpack(struct unpack *u, struct rt_change *ret);
void rt_event_pack(struct pack *p, const struct rt_event *e);
bool rt_event_unpack(struct unpack *u, struct rt_event *ret);
