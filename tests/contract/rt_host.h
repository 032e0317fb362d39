/* rt_host.h - a client of the runtime for tests: starts the real cove-runtime and speaks its
 * protocol, one blocking call at a time.
 *
 * The runtime runs as PID 1 of a pid namespace with its own /proc, as user 1000 of a user
 * namespace, if this machine allows that; otherwise as a plain child, and host->isolated is
 * false. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/wire/rt.h"

#define HOST_STREAMS 1100

struct got {               /* what was received on one stream */
    struct buf data[4];    /* by channel */
    uint8_t ended;         /* channels with RT_END, one bit each */
    uint64_t bytes;        /* over all channels */
    uint64_t kernel_bytes; /* part of bytes: from a language kernel */
    uint64_t credit;       /* credit that the runtime returned for our data */
    uint32_t credits;      /* number of frames with credit */
    uint64_t uncredited;
    void (*heard)(struct got *g, unsigned channel); /* called after each piece; may be NULL */
    bool hold;                                      /* do not credit what arrives */
    bool discard;                                   /* count, do not store */
    bool started;
    bool resumed;
    struct rt_resume resume;
    uint64_t skip; /* bytes to drop after a resume: stored before, but not credited */
    uint8_t last;  /* type of the last frame; 0: none */
    struct rt_exit exit;
    struct rt_error error;
    uint8_t done[8192];
    size_t done_len;
    uint32_t pid;
};

struct host {
    int fd;      /* control socket */
    int keep;    /* a duplicate, like the jailer's */
    pid_t child; /* our direct child */
    pid_t pid;   /* of the runtime, in our pid namespace */
    bool isolated;
    uint64_t epoch;
    uint32_t next;
    struct rt_claimed claimed;
    bool was_claimed;
    uint32_t hellos;
    struct rt_error error; /* received on stream 0 */
    struct got *streams[HOST_STREAMS];
};

struct host *host_start(void);  /* before HELLO */
struct host *host_ready(void);  /* after HELLO and CLAIM, everything allowed */
void host_stop(struct host *h); /* closes the socket and waits for the end */
void host_hello(struct host *h, uint64_t epoch);
void host_claim(struct host *h, const struct rt_claim *claim); /* waits for the answer, which may be an error */

void host_send(struct host *h, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len);
bool host_turn(struct host *h, int timeout_ms); /* handles one frame; false: none arrived */
uint32_t host_open(struct host *h, uint8_t type, const void *payload, size_t len); /* a new stream */
struct got *host_got(struct host *h, uint32_t stream);
void host_wait(struct host *h, uint32_t stream);  /* until its last frame; fails the test after a minute of silence */
void host_close(struct host *h, uint32_t stream); /* sends CLOSE and forgets the stream */
void host_credit(struct host *h, uint32_t stream, uint64_t n);

uint32_t host_exec(struct host *h, const struct rt_exec *req);
uint32_t host_sh(struct host *h, const char *script); /* sh -c, cwd / */
uint32_t host_path(struct host *h, uint8_t type, const char *path, uint32_t flags);
void host_data(struct host *h, uint32_t stream, const void *data, size_t len, bool end); /* limited by credit */
/* To the channel of a language kernel. */
void host_kernel(struct host *h, uint32_t stream, const char *text, bool end);
void host_signal(struct host *h, uint32_t stream, int signo, enum rt_scope scope);
