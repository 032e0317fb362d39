#include "rt_host.h"

#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PATIENCE_MS 60000 /* machines that build and test at the same time are slow */

static int put(const char *path, const char *text)
{
    auto_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd < 0 ? -1 : fd_write_all(fd, text, strlen(text));
}

static bool isolate(void)
{
    char map[64];
    uid_t uid = getuid();
    gid_t gid = getgid();

    if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) < 0)
        return false;
    put("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "1000 %u 1", uid);
    if (put("/proc/self/uid_map", map) < 0)
        return false;
    snprintf(map, sizeof(map), "1000 %u 1", gid);
    return put("/proc/self/gid_map", map) == 0;
}

static NORETURN void become_runtime(int sock, bool isolated)
{
    const char *program = getenv("COVE_RUNTIME");
    int null = open("/dev/null", O_RDWR);

    if (isolated && (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                     mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0))
        _exit(99);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int s = fcntl(sock, F_DUPFD, 10), n = fcntl(null, F_DUPFD, 10);
    dup2(n, 0);
    dup2(n, 1);
    if (!getenv("COVE_TEST_STDERR"))
        dup2(n, 2);
    dup2(s, 3);
    for (int fd = 4; fd < 256; fd++)
        close(fd);
    if (chdir("/") < 0)
        _exit(98);
    char *argv[] = { (char *)(uintptr_t) "cove-runtime", NULL }, *env[] = { NULL };
    execve(program, argv, env);
    _exit(97);
}

/* The middle process makes the namespaces, sends the pid of PID 1 as seen from here, and waits for
 * it. */
static NORETURN void middle(int sock, int tell)
{
    int word[2] = { 0, 0 };
    int status = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    word[1] = isolate();
    word[0] = fork();
    if (word[0] == 0)
        become_runtime(sock, word[1]);
    close(sock);
    if (fd_write_all(tell, word, sizeof(word)) < 0)
        _exit(1);
    close(tell);
    while (waitpid(word[0], &status, 0) < 0 && errno == EINTR)
        ;
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* COVE_TEST_TRANSPORT=stream runs the same tests over a byte stream. */
static int transport_type(void)
{
    const char *name = getenv("COVE_TEST_TRANSPORT");

    return name && strcmp(name, "stream") == 0 ? SOCK_STREAM : SOCK_SEQPACKET;
}

/* One frame, which is one packet or the next bytes of the stream. Returns 0 at the end. */
static size_t receive(const struct host *h, uint8_t packet[FRAME_MAX])
{
    ssize_t n = recv(h->fd, packet, transport_type() == SOCK_STREAM ? FRAME_HEADER : FRAME_MAX,
                     transport_type() == SOCK_STREAM ? MSG_WAITALL : 0);

    if (n != FRAME_HEADER || transport_type() == SOCK_SEQPACKET)
        return n > 0 ? (size_t)n : 0;
    size_t len = packet[0] | (size_t)packet[1] << 8 | (size_t)packet[2] << 16;
    assert_true(len <= FRAME_PAYLOAD_MAX);
    assert_int_equal(fd_read_full(h->fd, packet + FRAME_HEADER, len), len);
    return FRAME_HEADER + len;
}

struct host *host_start(void)
{
    struct host *h = mem_new(struct host);
    int sv[2], tell[2], word[2];

    assert_non_null(getenv("COVE_RUNTIME"));
    assert_int_equal(socketpair(AF_UNIX, transport_type() | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(pipe2(tell, O_CLOEXEC), 0);
    h->child = fork();
    if (h->child == 0) {
        close(sv[0]);
        middle(sv[1], tell[1]);
    }
    close(sv[1]);
    close(tell[1]);
    assert_int_equal(fd_read_full(tell[0], word, sizeof(word)), sizeof(word));
    close(tell[0]);
    h->fd = sv[0];
    h->pid = word[0];
    h->isolated = word[1];
    h->next = 2;
    return h;
}

void host_stop(struct host *h)
{
    int status;

    close(h->fd);
    assert_int_equal(waitpid(h->child, &status, 0), h->child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    for (size_t i = 0; i < HOST_STREAMS; i++)
        if (h->streams[i]) {
            for (size_t c = 0; c < 4; c++)
                buf_done(&h->streams[i]->data[c]);
            free(h->streams[i]);
        }
    free(h);
}

void host_send(struct host *h, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len)
{
    struct frame f = { .type = type, .flags = flags, .stream = stream, .len = (uint32_t)len };
    uint8_t head[FRAME_HEADER];
    struct iovec iov[2] = { { head, sizeof(head) }, { (void *)(uintptr_t)data, len } };

    frame_header(head, &f);
    assert_int_equal(fd_sendv(h->fd, iov, 2, NULL, 0, MSG_NOSIGNAL), (ssize_t)(sizeof(head) + len));
}

struct got *host_got(struct host *h, uint32_t stream)
{
    assert_true(stream / 2 < HOST_STREAMS);
    if (!h->streams[stream / 2])
        h->streams[stream / 2] = mem_new(struct got);
    return h->streams[stream / 2];
}

void host_credit(struct host *h, uint32_t stream, uint64_t n)
{
    struct rt_number m = { .value = (uint32_t)n };
    uint8_t out[16];
    int len = rt_number_encode(&m, out, NULL);

    assert_true(len > 0);
    host_send(h, FRAME_CREDIT, 0, stream, out, (size_t)len);
    host_got(h, stream)->uncredited -= n;
}

static void take_data(struct host *h, struct got *g, const struct frame *f)
{
    uint8_t channel = f->flags & RT_CHANNEL;
    size_t drop = (size_t)min_u64(g->skip, f->len);

    assert_true(channel < 4);
    if (f->len > 0) /* an end may be sent twice, bytes after it never */
        assert_false(g->ended & 1u << channel && drop == 0);
    g->skip -= drop;
    g->bytes += f->len - drop;
    g->kernel_bytes += channel == RT_KERNEL ? f->len - drop : 0;
    if (!g->discard)
        buf_add(&g->data[channel], f->data + drop, f->len - drop);
    if (g->heard)
        g->heard(g, channel);
    if (f->flags & RT_END)
        g->ended |= (uint8_t)(1u << channel);
    g->uncredited += f->len;
    if (!g->hold && f->len > 0)
        host_credit(h, f->stream, f->len);
}

static void take_stream(struct host *h, const struct frame *f)
{
    struct got *g = host_got(h, f->stream);
    struct rt_number m;

    switch (f->type) {
    case FRAME_DATA:
        assert_int_equal(g->last, 0);
        take_data(h, g, f);
        break;
    case FRAME_CREDIT:
        assert_int_equal(rt_number_decode(f, &m, NULL), 0);
        g->credit += m.value;
        g->credits++;
        break;
    case FRAME_STARTED:
        assert_int_equal(rt_number_decode(f, &m, NULL), 0);
        assert_true(g->resumed || (g->bytes == 0 && g->ended == 0)); /* nothing arrives before the start */
        g->started = true;
        g->pid = m.value;
        break;
    case FRAME_RESUME:
        assert_int_equal(rt_resume_decode(f, &g->resume, NULL), 0);
        g->resumed = true;
        g->skip = g->bytes - g->resume.out;
        g->uncredited = 0;
        g->credit = 0;
        g->last = 0;
        break;
    case FRAME_EXIT:
        assert_int_equal(rt_exit_decode(f, &g->exit, NULL), 0);
        g->last = f->type;
        break;
    case FRAME_ERROR:
        assert_int_equal(rt_error_decode(f, &g->error, NULL), 0);
        g->last = f->type;
        break;
    case FRAME_DONE:
        assert_true(f->len <= sizeof(g->done));
        if (f->len)
            memcpy(g->done, f->data, f->len);
        g->done_len = f->len;
        g->last = f->type;
        break;
    default:
        fail_msg("unexpected %s", frame_name(f->type));
    }
}

static void take(struct host *h, const struct frame *f)
{
    struct rt_hello m;

    if (f->stream != 0) {
        take_stream(h, f);
    } else if (f->type == FRAME_HELLO) {
        assert_int_equal(rt_hello_decode(f, &m, NULL), 0);
        if (m.epoch == h->epoch)
            h->hellos++;
    } else if (f->type == FRAME_CLAIMED) {
        assert_int_equal(rt_claimed_decode(f, &h->claimed, NULL), 0);
        h->was_claimed = true;
    } else if (f->type == FRAME_ERROR) {
        assert_int_equal(rt_error_decode(f, &h->error, NULL), 0);
    } else {
        fail_msg("unexpected %s on stream 0", frame_name(f->type));
    }
}

bool host_turn(struct host *h, int timeout_ms)
{
    static uint8_t packet[FRAME_MAX];
    struct pollfd p = { .fd = h->fd, .events = POLLIN };
    struct err err = { 0 };
    struct frame f;

    if (poll(&p, 1, timeout_ms) <= 0)
        return false;
    size_t n = receive(h, packet);
    if (n == 0)
        fail_msg("the runtime has ended");
    if (frame_parse(packet, n, &f, &err) < 0)
        fail_msg("%s", err.msg);
    take(h, &f);
    return true;
}

static void turn(struct host *h)
{
    if (!host_turn(h, PATIENCE_MS))
        fail_msg("no frame for %d ms", PATIENCE_MS);
}

/* Frames that an earlier client left unread are dropped until the answer to our HELLO. */
void host_hello(struct host *h, uint64_t epoch)
{
    static uint8_t packet[FRAME_MAX];
    struct rt_hello m = { .version = WIRE_VERSION, .epoch = epoch }, answer;
    uint8_t out[64];
    int n = rt_hello_encode(&m, out, NULL);
    struct frame f;

    h->epoch = epoch;
    host_send(h, FRAME_HELLO, 0, 0, out, (size_t)n);
    for (;;) {
        struct pollfd p = { .fd = h->fd, .events = POLLIN };

        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        size_t len = receive(h, packet);
        assert_true(len > 0);
        assert_int_equal(frame_parse(packet, len, &f, NULL), 0);
        if (f.type == FRAME_HELLO && rt_hello_decode(&f, &answer, NULL) == 0 && answer.epoch == epoch)
            return;
    }
}

void host_claim(struct host *h, const struct rt_claim *claim)
{
    auto_free uint8_t *out = mem_alloc(FRAME_PAYLOAD_MAX);
    int n = rt_claim_encode(claim, out, NULL);

    assert_true(n > 0);
    host_send(h, FRAME_CLAIM, 0, 0, out, (size_t)n);
    h->was_claimed = false;
    h->error.id = 0;
    while (!h->was_claimed && !h->error.id)
        turn(h);
}

struct host *host_ready(void)
{
    static const char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "FROM=claim", NULL };
    struct host *h = host_start();
    auto_free struct rt_claim *claim = mem_new(struct rt_claim);

    claim->rules[0] = (struct rt_rule){ RT_ACCESS_READ_WRITE, "/" };
    claim->rules[1] = (struct rt_rule){ RT_ACCESS_DEVICE, "/dev" };
    claim->nrules = 2;
    claim->env = env;
    id_new("sb", claim->id);
    host_hello(h, 1);
    host_claim(h, claim);
    if (!h->was_claimed)
        fail_msg("claim: %s", h->error.msg);
    return h;
}

uint32_t host_open(struct host *h, uint8_t type, const void *payload, size_t len)
{
    uint32_t stream = h->next;

    while (h->streams[stream / 2]) /* in use */
        stream = stream / 2 + 1 < HOST_STREAMS ? stream + 2 : 2;
    h->next = stream / 2 + 1 < HOST_STREAMS ? stream + 2 : 2;
    host_got(h, stream)->credit = rt_initial_window(type);
    host_send(h, type, 0, stream, payload, len);
    return stream;
}

void host_wait(struct host *h, uint32_t stream)
{
    while (!host_got(h, stream)->last)
        turn(h);
}

void host_close(struct host *h, uint32_t stream)
{
    struct got *g = host_got(h, stream);

    host_send(h, FRAME_CLOSE, 0, stream, NULL, 0);
    for (size_t c = 0; c < 4; c++)
        buf_done(&g->data[c]);
    free(g);
    h->streams[stream / 2] = NULL;
}

uint32_t host_exec(struct host *h, const struct rt_exec *req)
{
    auto_free uint8_t *out = mem_alloc(FRAME_PAYLOAD_MAX);
    struct err err = { 0 };
    int n = rt_exec_encode(req, out, &err);

    if (n < 0)
        fail_msg("%s", err.msg);
    return host_open(h, FRAME_EXEC, out, (size_t)n);
}

uint32_t host_sh(struct host *h, const char *script)
{
    const char *argv[] = { "sh", "-c", script, NULL }, *env[] = { NULL };
    struct rt_exec req = { .cwd = "/", .argv = argv, .env = env };

    return host_exec(h, &req);
}

uint32_t host_path(struct host *h, uint8_t type, const char *path, uint32_t flags)
{
    auto_free uint8_t *out = mem_alloc(FRAME_PAYLOAD_MAX);
    auto_free struct rt_path *m = mem_new(struct rt_path);

    snprintf(m->path, sizeof(m->path), "%s", path);
    m->flags = flags;
    int n = rt_path_encode(m, out, NULL);
    assert_true(n > 0);
    return host_open(h, type, out, (size_t)n);
}

void host_data(struct host *h, uint32_t stream, const void *data, size_t len, bool end)
{
    struct got *g = host_got(h, stream);
    const uint8_t *p = data;

    do {
        size_t n = min_size(min_size(len, FRAME_PAYLOAD_MAX), (size_t)g->credit);

        if (g->last)
            return; /* refused meanwhile */
        if (len > 0 && n == 0) {
            turn(h);
            continue;
        }
        host_send(h, FRAME_DATA, n == len && end ? RT_END : 0, stream, p, n);
        g->credit -= n;
        p += n;
        len -= n;
        while (host_turn(h, 0))
            ;
    } while (len > 0);
}

void host_kernel(struct host *h, uint32_t stream, const char *text, bool end)
{
    host_send(h, FRAME_DATA, (uint8_t)(RT_KERNEL | (end ? RT_END : 0)), stream, text, strlen(text));
}

void host_signal(struct host *h, uint32_t stream, int signo, enum rt_scope scope)
{
    struct rt_signal m = { .signo = (uint32_t)signo, .scope = (uint8_t)scope };
    uint8_t out[16];
    int n = rt_signal_encode(&m, out, NULL);

    assert_true(n > 0);
    host_send(h, FRAME_SIGNAL, 0, stream, out, (size_t)n);
}
