/* A sandbox that sends anything at any time to an engine with a running program and file job.
 * The first bytes of the input choose when the runtime stops being honest; the rest are its
 * frames, mixed with actions of the client and events of the jailer. In every case each
 * completion is reported at most once, everything that was started is reported when the sandbox
 * is dead, and no descriptor is leaked. */
#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/engine.h"
#include "sandbox/files.h"
#include "sandbox/receipt.h"
#include "sandbox/walls.h"
#include "core/wire/jail.h"
#include "core/wire/rt.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>

static struct {
    struct ev *ev;
    struct engine *engine;
    struct sandbox_handle *box;
    struct exec_handle *exec;
    struct files_job *job;
    int jailer, runtime;
    uint64_t oom_kills;
    int ready, failed, ended, lost, done, exited, job_done, watching;
    uint64_t out;
} w;

static uint8_t out[FRAME_PAYLOAD_MAX];

#define CHECK(condition)  \
    do {                  \
        if (!(condition)) \
            abort();      \
    } while (0)

static void put_fds(int sock, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len,
                    const int *fds, size_t nfds)
{
    static uint8_t packet[FRAME_MAX];
    struct frame f = { .type = type, .flags = flags, .stream = stream, .len = (uint32_t)len };

    frame_header(packet, &f);
    if (len)
        memcpy(packet + FRAME_HEADER, data, len);
    (void)!fd_send(sock, packet, FRAME_HEADER + len, fds, nfds, MSG_DONTWAIT);
}

static void put(int sock, uint8_t type, uint8_t flags, uint32_t stream, const void *data, int len)
{
    if (sock >= 0 && len >= 0)
        put_fds(sock, type, flags, stream, data, (size_t)len, NULL, 0);
}

/* --- callbacks --- */

static void on_lost(void *arg, const struct err *why)
{
    (void)arg;
    CHECK(why->id && w.lost++ == 0);
}

static void on_ready(void *arg)
{
    (void)arg;
    CHECK(w.ready++ == 0);
}

static void on_failed(void *arg, const struct err *err)
{
    (void)arg;
    CHECK(err->id && !w.ready && w.failed++ == 0);
}

static void on_ended(void *arg, const struct err *why)
{
    (void)arg;
    CHECK(why->id && w.ready && !w.done && w.ended++ == 0);
}

static void on_done(void *arg, const struct err *err)
{
    (void)arg;
    (void)err;
    w.done++;
}

static void on_op(void *arg, const struct err *err)
{
    (void)arg;
    (void)err;
}

static void on_output(void *arg, int channel, const void *data, size_t len)
{
    (void)arg;
    (void)data;
    CHECK((channel == 1 || channel == 2) && len > 0 && !w.exited);
    w.out += len;
}

static void on_exit_(void *arg, const struct receipt *r)
{
    auto_buf text = { 0 };
    struct jsonw j;

    (void)arg;
    CHECK(w.exited++ == 0);
    CHECK(r->dropped_bytes <= r->stdout_bytes + r->stderr_bytes);
    CHECK(w.out == r->stdout_bytes + r->stderr_bytes - r->dropped_bytes);
    CHECK(receipt_exit_code(r) >= 0 && receipt_exit_code(r) <= 255);
    jsonw_init(&j, &text, 0);
    receipt_json(r, &j);
    receipt_print(r, &text);
}

static void on_exec_failed(void *arg, const struct err *err)
{
    (void)arg;
    CHECK(err->id && w.exited++ == 0);
}

static void on_entry(void *arg, const struct files_entry *e)
{
    (void)arg;
    CHECK(e->name[0] && !strchr(e->name, '/') && !w.job_done);
}

static void on_job_done(void *arg, const struct files_done *d, const struct err *err)
{
    (void)arg;
    CHECK(!d != !err && w.job_done++ == 0);
}

static const struct engine_ops engine_ops = { .on_lost = on_lost };
static const struct sandbox_handle_ops box_ops = { .on_ready = on_ready, .on_failed = on_failed, .on_ended = on_ended };
static const struct exec_handle_ops exec_ops = { .on_output = on_output,
                                                 .on_exit = on_exit_,
                                                 .on_failed = on_exec_failed };
static void on_event(void *arg, const struct files_event *e)
{
    (void)arg;
    CHECK(e->path[0] == '/' && !strstr(e->path, "//") && !strstr(e->path, "/../") && !w.job_done);
    CHECK((w.watching++ == 0) == (e->kind == FILES_WATCHING) && !e->from == (e->kind != FILES_MOVED));
}

static const struct files_ops files_ops = { .on_entry = on_entry, .on_event = on_event, .on_done = on_job_done };

static uint32_t every(bool inside)
{
    size_t n;
    const struct wall *walls = walls_all(&n);
    uint32_t bits = 0;

    for (size_t i = 0; i < n; i++)
        bits |= inside ? walls[i].inside : walls[i].outside;
    return bits;
}

/* --- an honest jailer --- */

static void answer_created(uint32_t stream)
{
    struct jail_created m = { .pid = 7, .walls = every(false), .nlimits = LIMIT_COUNT };
    int pair[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    CHECK(null >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    int fds[2] = { pair[0], null };
    int len = jail_created_encode(&m, out, NULL);
    CHECK(len > 0);
    put_fds(w.jailer, FRAME_J_CREATED, 0, stream, out, (size_t)len, fds, 2);
    close(pair[0]);
    close(null);
    w.runtime = pair[1];
}

static void answer(const struct frame *f)
{
    struct jail_stats st = { .oom_kills = w.oom_kills };

    if (f->type == FRAME_J_CREATE)
        answer_created(f->stream);
    else if (f->type == FRAME_J_STATS || f->type == FRAME_J_DESTROY)
        put(w.jailer, FRAME_DONE, 0, f->stream, out, jail_stats_encode(&st, out, NULL));
    else
        put(w.jailer, FRAME_J_OK, 0, f->stream, NULL, 0);
    if ((f->type == FRAME_J_KILL || f->type == FRAME_J_DESTROY) && w.runtime >= 0)
        fd_close(&w.runtime);
}

/* Takes the next frame of a socket; false when there is none. */
static bool take(int sock, struct frame *ret)
{
    static uint8_t packet[FRAME_MAX];
    int fds[FD_PASS_MAX];
    size_t nfds = FD_PASS_MAX;
    ssize_t n = sock < 0 ? -1 : fd_recv(sock, packet, sizeof(packet), fds, &nfds, MSG_DONTWAIT);

    for (size_t i = 0; n > 0 && i < nfds; i++)
        close(fds[i]);
    return n > 0 && frame_parse(packet, (size_t)n, ret, NULL) == 0;
}

static void turn(void)
{
    struct frame f;

    for (int i = 0; i < 4; i++) {
        ev_turn(w.ev, 0);
        while (take(w.jailer, &f))
            answer(&f);
    }
}

/* --- an honest start --- */

static void runtime_hello(void)
{
    struct rt_claimed claimed = { .walls = every(true), .landlock_abi = 7 };
    struct rt_hello m;
    struct frame f;

    CHECK(take(w.runtime, &f) && f.type == FRAME_HELLO && rt_hello_decode(&f, &m, NULL) == 0);
    put(w.runtime, FRAME_HELLO, 0, 0, out, rt_hello_encode(&m, out, NULL));
    put(w.runtime, FRAME_CLAIMED, 0, 0, out, rt_claimed_encode(&claimed, out, NULL));
    turn();
    CHECK(w.ready == 1);
}

static void open_world(uint8_t honest)
{
    static const char *const argv[] = { "true", NULL };
    struct sandbox_spec box = { .level = LEVEL_STANDARD };
    struct exec_spec spec = { .argv = argv, .stdin_open = true, .output_max = 1000, .changes = honest & 2 };
    struct err err = { 0 };
    int pair[2];

    memset(&w, 0, sizeof(w));
    w.runtime = -1;
    limits_default(&box.limits);
    CHECK(ev_new(&w.ev, &err) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    w.jailer = pair[1];
    CHECK(engine_new(w.ev, pair[0], &engine_ops, NULL, &w.engine, &err) == 0);
    CHECK(sandbox_handle_new(w.engine, &box, &box_ops, NULL, &w.box, &err) == 0);
    turn();
    if (!(honest & 1))
        return;
    runtime_hello();
    CHECK(sandbox_handle_exec(w.box, &spec, &exec_ops, NULL, &w.exec, &err) == 0);
    if (honest & 8)
        CHECK(files_open(w.box, &(struct files_request){ FILES_OP_WATCH, "/workspace" }, &files_ops, NULL, &w.job,
                         &err) == 0);
    else if (honest & 4)
        CHECK(files_open(w.box, &(struct files_request){ FILES_OP_LIST, "/workspace" }, &files_ops, NULL, &w.job,
                         &err) == 0);
    turn();
}

/* --- actions that the input chooses --- */

static void say(const uint8_t **p, const uint8_t *end, uint8_t type)
{
    if (end - *p < 3)
        return;
    uint8_t flags = (*p)[0], stream = (*p)[1];
    int len = (int)min_size((*p)[2], (size_t)(end - *p - 3));

    put(w.runtime, type, flags, stream, *p + 3, len);
    *p += 3 + len;
}

static void say_flood(uint8_t stream)
{
    static const uint8_t zero[65536];

    put(w.runtime, FRAME_DATA, RT_STDOUT, stream, zero, sizeof(zero));
}

static void say_exit(uint8_t stream, uint8_t code)
{
    struct rt_exit m = { .code = code };

    put(w.runtime, FRAME_EXIT, 0, stream, out, rt_exit_encode(&m, out, NULL));
}

static void say_done(uint8_t stream)
{
    struct rt_done m = { .added = 1 };

    put(w.runtime, FRAME_DONE, 0, stream, out, rt_done_encode(&m, out, NULL));
}

static void news(uint8_t kind)
{
    struct jail_event m = { .kind = kind, .status = SIGKILL };

    memcpy(m.id, sandbox_handle_id(w.box), sizeof(m.id));
    put(w.jailer, FRAME_J_EVENT, 0, 0, out, jail_event_encode(&m, out, NULL));
}

static void act(uint8_t op, uint8_t arg)
{
    switch (op % 16) {
    case 0:
        put(w.runtime, FRAME_STARTED, 0, arg, "\2\0\0\0", 4);
        break;
    case 1:
        say_exit((uint8_t)(arg & 0x1e), arg >> 5);
        break;
    case 2:
        say_done(arg);
        break;
    case 3:
        say_flood(arg);
        break;
    case 4:
        news(JAIL_EVENT_OOM);
        w.oom_kills += arg & 1;
        break;
    case 5:
        news(JAIL_EVENT_ENDED);
        break;
    case 6:
        fd_close(&w.runtime);
        break;
    case 7:
        if (arg == 77)
            fd_close(&w.jailer);
        break;
    case 8:
        if (w.exec)
            exec_handle_kill(w.exec);
        break;
    case 9:
        if (w.exec)
            (void)exec_handle_write(w.exec, "abc", 3);
        break;
    case 10:
        if (w.exec)
            exec_handle_hold_credit(w.exec, arg & 1);
        break;
    case 11:
        exec_handle_free(w.exec);
        w.exec = NULL;
        break;
    case 12:
        files_free(w.job);
        w.job = NULL;
        break;
    case 13:
        (arg & 1 ? sandbox_handle_freeze : sandbox_handle_thaw)(w.box, on_op, NULL);
        break;
    case 14:
        sandbox_handle_destroy(w.box, on_done, NULL);
        break;
    default:
        if (w.exec)
            exec_handle_signal(w.exec, arg);
    }
}

static void close_world(void)
{
    bool running = w.exec && !w.exited, listing = w.job && !w.job_done;

    fd_close(&w.runtime); /* the sandbox is dead: everything that was started must be reported now */
    for (int i = 0; i < 4; i++)
        turn();
    CHECK(!running || w.exited == 1);
    CHECK(!listing || w.job_done == 1);
    CHECK(w.failed || w.ended || w.done || w.lost);
    exec_handle_free(w.exec);
    files_free(w.job);
    sandbox_handle_free(w.box);
    engine_free(w.engine);
    turn();
    ev_free(w.ev);
    fd_close(&w.jailer);
    fd_close(&w.runtime);
}

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    CHECK(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *p = data, *end = data + size;
    int before = count_fds();

    if (size < 1)
        return 0;
    signal(SIGPIPE, SIG_IGN);
    open_world(*p++);
    for (int steps = 0; end - p >= 2 && steps < 64; steps++) {
        uint8_t op = *p++;

        if (op >= 128)
            act(op, *p++);
        else
            say(&p, end, op);
        if (op & 1)
            turn();
    }
    turn();
    close_world();
    CHECK(count_fds() == before);
    return 0;
}
