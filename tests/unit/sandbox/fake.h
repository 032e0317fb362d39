/* fake.h - a scripted jailer and runtime, on the other ends of real sockets.
 *
 * A test is a script: it takes the next frame that the engine sent, checks it, answers, and runs
 * the loop. Nothing runs concurrently, so every order of events can be tested. */
#pragma once

#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/engine.h"
#include "sandbox/receipt.h"
#include "core/wire/frame.h"
#include "core/wire/jail.h"
#include "core/wire/rt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ALL_OUTSIDE 0x3fffu
#define ALL_INSIDE 0x3ffu

struct fake {
    struct ev *ev;
    struct engine *engine;
    struct sandbox_handle *box;
    struct exec_handle *exec;
    int jailer;  /* the jailer's end of its socket */
    int runtime; /* PID 1's end of the control stream, once created */
    int cpu;     /* file with the value of the CPU counter */
    int oom;     /* file of memory events */
    char id[ID_SIZE];
    uint64_t epoch;
    uint8_t carrier; /* of the sandboxes that the jailer creates */
    uint32_t stream; /* id of the execution's stream */
    int fds_before;

    int lost, ready, failed, ended, done, started, exited, exec_failed, writable, collected;
    bool hold; /* on_output calls hold_credit with this */
    bool free_exec_in_output, destroy_in_exit, free_all_in_exit;
    struct err err; /* of the last failed, ended, lost or exec_failed callback */
    struct err done_err;
    bool done_ok;
    enum ended_by ended_by;
    int exit_code, signal;
    struct buf out, errout;
    struct buf kernel;
};

struct packet {
    struct frame f;
    uint8_t bytes[FRAME_MAX];
    int fds[FD_PASS_MAX];
    size_t nfds;
};

static struct packet got; /* the frame taken last */

static inline int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static inline void turn(struct fake *k)
{
    for (int i = 0; i < 6; i++)
        ev_turn(k->ev, 0);
}

static inline uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Runs the loop until the counter changes; a test that waits in vain fails after a minute. */
static inline void turn_until(struct fake *k, const int *counter)
{
    uint64_t end = now_ms() + 60000;

    while (*counter == 0 && now_ms() < end)
        ev_turn(k->ev, 50);
    assert_int_not_equal(*counter, 0);
}

/* --- raw frames --- */

static inline bool take_any(int sock)
{
    for (size_t i = 0; i < got.nfds; i++)
        fd_close(&got.fds[i]);
    got.nfds = FD_PASS_MAX;
    ssize_t n = fd_recv(sock, got.bytes, sizeof(got.bytes), got.fds, &got.nfds, MSG_DONTWAIT);
    if (n <= 0) {
        got.nfds = 0;
        return false;
    }
    assert_int_equal(frame_parse(got.bytes, (size_t)n, &got.f, NULL), 0);
    return true;
}

static inline void take(int sock, uint8_t type)
{
    if (!take_any(sock))
        fail_msg("no frame where %s was expected", frame_name(type));
    if (got.f.type != type)
        fail_msg("%s where %s was expected", frame_name(got.f.type), frame_name(type));
}

static inline void put_fds(int sock, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len,
                           const int *fds, size_t nfds)
{
    static uint8_t packet[FRAME_MAX];
    struct frame f = { .type = type, .flags = flags, .stream = stream, .len = (uint32_t)len };

    frame_header(packet, &f);
    if (len)
        memcpy(packet + FRAME_HEADER, data, len);
    assert_int_equal(fd_send(sock, packet, FRAME_HEADER + len, fds, nfds, 0), FRAME_HEADER + len);
}

static inline void put(int sock, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len)
{
    put_fds(sock, type, flags, stream, data, len, NULL, 0);
}

/* --- callbacks --- */

static inline void on_lost(void *arg, const struct err *why)
{
    struct fake *k = arg;

    k->lost++;
    k->err = *why;
}

static inline void on_ready(void *arg)
{
    ((struct fake *)arg)->ready++;
}

static inline void on_failed(void *arg, const struct err *err)
{
    struct fake *k = arg;

    k->failed++;
    k->err = *err;
}

static inline void on_ended(void *arg, const struct err *why)
{
    struct fake *k = arg;

    k->ended++;
    k->err = *why;
}

static inline void on_done(void *arg, const struct err *err)
{
    struct fake *k = arg;

    k->done++;
    k->done_ok = !err;
    if (err)
        k->done_err = *err;
}

static inline void on_started(void *arg)
{
    ((struct fake *)arg)->started++;
}

static inline void on_output(void *arg, int channel, const void *data, size_t len)
{
    struct fake *k = arg;

    buf_add(channel == 1 ? &k->out : &k->errout, data, len);
    if (k->free_exec_in_output) {
        exec_handle_free(k->exec);
        k->exec = NULL;
    } else if (k->hold) {
        exec_handle_hold_credit(k->exec, true);
    }
}

static inline void on_writable(void *arg)
{
    ((struct fake *)arg)->writable++;
}

static inline void on_exit_(void *arg, const struct receipt *r)
{
    struct fake *k = arg;

    k->exited++;
    k->ended_by = r->ended_by;
    k->exit_code = r->exit_code;
    k->signal = r->signal;
    if (k->destroy_in_exit)
        sandbox_handle_destroy(k->box, on_done, k);
    if (k->free_all_in_exit) {
        exec_handle_free(k->exec);
        sandbox_handle_free(k->box);
        engine_free(k->engine);
        k->exec = NULL;
        k->box = NULL;
        k->engine = NULL;
    }
}

static inline void on_exec_failed(void *arg, const struct err *err)
{
    struct fake *k = arg;

    k->exec_failed++;
    k->err = *err;
}

static inline void on_kernel(void *arg, const void *data, size_t len)
{
    buf_add(&((struct fake *)arg)->kernel, data, len);
}

static const struct engine_ops fake_engine_ops = { .on_lost = on_lost };
static const struct sandbox_handle_ops fake_box_ops = { .on_ready = on_ready,
                                                        .on_failed = on_failed,
                                                        .on_ended = on_ended };
static inline void on_denials(void *arg)
{
    struct fake *k = arg;

    k->collected++;
}

static const struct exec_handle_ops fake_exec_ops = { .on_started = on_started,
                                                      .on_output = on_output,
                                                      .on_writable = on_writable,
                                                      .on_denials = on_denials,
                                                      .on_exit = on_exit_,
                                                      .on_failed = on_exec_failed,
                                                      .on_language_kernel_data = on_kernel };

/* --- the script of the jailer --- */

static inline void jailer_takes(struct fake *k, uint8_t type)
{
    turn(k);
    take(k->jailer, type);
}

static inline void jailer_ok(struct fake *k)
{
    put(k->jailer, FRAME_J_OK, 0, got.f.stream, NULL, 0);
    turn(k);
}

static inline void jailer_error(struct fake *k, enum err_id id, const char *msg)
{
    struct rt_error m = { .id = id };
    uint8_t out[FRAME_PAYLOAD_MAX];

    str_copy(m.msg, sizeof(m.msg), msg);
    int len = rt_error_encode(&m, out, NULL);
    assert_true(len > 0);
    put(k->jailer, FRAME_J_ERROR, 0, got.f.stream, out, (size_t)len);
    turn(k);
}

static inline void jailer_stats(struct fake *k, const struct jail_stats *st)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    int len = jail_stats_encode(st, out, NULL);

    assert_true(len > 0);
    put(k->jailer, FRAME_DONE, 0, got.f.stream, out, (size_t)len);
    turn(k);
}

static const struct jail_stats no_oom = { .cpu_ns = 9000000, .memory_peak = 4096, .pids_peak = 2 };

/* The regular end of a sandbox by the jailer: killed, then counted; or removed with the final
 * totals. */
static inline void jailer_ends(struct fake *k)
{
    jailer_takes(k, FRAME_J_KILL);
    jailer_ok(k);
    jailer_takes(k, FRAME_J_STATS);
    jailer_stats(k, &no_oom);
}

static inline void jailer_removes(struct fake *k)
{
    jailer_takes(k, FRAME_J_DESTROY);
    jailer_stats(k, &no_oom);
}

static inline void jailer_event(struct fake *k, enum jail_event_kind kind, int status)
{
    struct jail_event m = { .kind = (uint8_t)kind, .status = status };
    uint8_t out[FRAME_PAYLOAD_MAX];

    memcpy(m.id, k->id, sizeof(m.id));
    int len = jail_event_encode(&m, out, NULL);
    put(k->jailer, FRAME_J_EVENT, 0, 0, out, (size_t)len);
    turn(k);
}

static inline void set_cpu(struct fake *k, const char *text)
{
    assert_int_equal(ftruncate(k->cpu, 0), 0);
    assert_int_equal(pwrite(k->cpu, text, strlen(text), 0), strlen(text));
}

static inline void jailer_created_with(struct fake *k, uint32_t walls, uint8_t enforced)
{
    struct jail_created m = {
        .pid = 7, .host_uid = 1900000000, .walls = walls, .cpu_fd = 1, .oom_fd = 1, .nlimits = LIMIT_COUNT
    };
    uint8_t out[FRAME_PAYLOAD_MAX];
    int pair[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    m.egress_carrier = k->carrier;
    str_copy(m.cgroup, sizeof(m.cgroup), "v1");
    memset(m.enforced, enforced, LIMIT_COUNT);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    k->runtime = pair[1];
    k->cpu = memfd_create("cpu", MFD_CLOEXEC);
    set_cpu(k, "1000000\n");
    k->oom = memfd_create("oom", MFD_CLOEXEC);
    int fds[4] = { pair[0], null, k->cpu, k->oom };
    int len = jail_created_encode(&m, out, NULL);
    assert_true(len > 0);
    put_fds(k->jailer, FRAME_J_CREATED, 0, got.f.stream, out, (size_t)len, fds, 4);
    close(pair[0]);
    close(null);
    turn(k);
}

static inline void jailer_created(struct fake *k, uint32_t walls)
{
    jailer_created_with(k, walls, JAIL_ENFORCED);
}

/* --- the script of the runtime --- */

static inline void runtime_takes(struct fake *k, uint8_t type)
{
    turn(k);
    take(k->runtime, type);
}

static inline void runtime_says(struct fake *k, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
                                size_t len)
{
    put(k->runtime, type, flags, stream, data, len);
    turn(k);
}

static inline void runtime_hello(struct fake *k, uint32_t version, uint64_t epoch)
{
    struct rt_hello m = { .version = version, .epoch = epoch };
    uint8_t out[FRAME_PAYLOAD_MAX];
    int len = rt_hello_encode(&m, out, NULL);

    runtime_says(k, FRAME_HELLO, 0, 0, out, (size_t)len);
}

static inline void runtime_claimed(struct fake *k, uint32_t walls, uint32_t abi)
{
    struct rt_claimed m = { .walls = walls, .landlock_abi = abi };
    uint8_t out[FRAME_PAYLOAD_MAX];
    int len = rt_claimed_encode(&m, out, NULL);

    runtime_says(k, FRAME_CLAIMED, 0, 0, out, (size_t)len);
}

static inline void runtime_started(struct fake *k)
{
    uint8_t pid[4] = { 2 };

    runtime_says(k, FRAME_STARTED, 0, k->stream, pid, 4);
}

static inline void runtime_exit(struct fake *k, int code, int signal)
{
    struct rt_exit m = { .code = code, .signal = signal, .read_bytes = 11, .write_bytes = 22, .tasks_started = 3 };
    uint8_t out[FRAME_PAYLOAD_MAX];
    int len = rt_exit_encode(&m, out, NULL);

    runtime_says(k, FRAME_EXIT, 0, k->stream, out, (size_t)len);
}

static inline void runtime_error(struct fake *k, uint32_t stream, enum err_id id, const char *msg)
{
    struct rt_error m = { .id = id };
    uint8_t out[FRAME_PAYLOAD_MAX];

    str_copy(m.msg, sizeof(m.msg), msg);
    int len = rt_error_encode(&m, out, NULL);
    runtime_says(k, FRAME_ERROR, 0, stream, out, (size_t)len);
}

static inline void runtime_done(struct fake *k, uint32_t stream, const struct rt_done *m)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    int len = rt_done_encode(m, out, NULL);

    runtime_says(k, FRAME_DONE, 0, stream, out, (size_t)len);
}

/* --- scenes --- */

static inline struct sandbox_spec plain_spec(void)
{
    struct sandbox_spec spec = { .level = LEVEL_STANDARD, .profile = PROFILE_PYTHON };

    limits_default(&spec.limits);
    return spec;
}

static inline void scene_engine(struct fake *k)
{
    struct err err = { 0 };
    int pair[2];

    *k = (struct fake){ .fds_before = count_fds(), .jailer = -1, .runtime = -1, .cpu = -1, .oom = -1 };
    assert_int_equal(ev_new(&k->ev, &err), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    k->jailer = pair[1];
    assert_int_equal(engine_new(k->ev, pair[0], &fake_engine_ops, k, &k->engine, &err), 0);
}

static inline void scene_asked(struct fake *k, const struct sandbox_spec *spec)
{
    struct err err = { 0 };

    if (sandbox_handle_new(k->engine, spec, &fake_box_ops, k, &k->box, &err) < 0)
        fail_msg("box_new: %s", err.msg);
    str_copy(k->id, sizeof(k->id), sandbox_handle_id(k->box));
}

/* J_CREATE was sent, and is not answered. */
static inline void scene_creating(struct fake *k, const struct sandbox_spec *spec)
{
    scene_engine(k);
    scene_asked(k, spec);
    jailer_takes(k, FRAME_J_TEMPLATE);
    jailer_ok(k);
    jailer_takes(k, FRAME_J_CREATE);
}

/* The walls are up; HELLO and CLAIM were sent. */
static inline void scene_created(struct fake *k, const struct sandbox_spec *spec)
{
    struct rt_hello hello;

    scene_creating(k, spec);
    jailer_created(k, ALL_OUTSIDE);
    runtime_takes(k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    k->epoch = hello.epoch;
    runtime_takes(k, FRAME_CLAIM);
}

static inline void scene_ready_with(struct fake *k, const struct sandbox_spec *spec)
{
    scene_created(k, spec);
    runtime_hello(k, WIRE_VERSION, k->epoch);
    runtime_claimed(k, ALL_INSIDE, 3);
    assert_int_equal(k->ready, 1);
}

static inline void scene_ready(struct fake *k)
{
    struct sandbox_spec spec = plain_spec();

    scene_ready_with(k, &spec);
}

static inline void scene_exec(struct fake *k, const struct exec_spec *spec)
{
    struct err err = { 0 };

    if (sandbox_handle_exec(k->box, spec, &fake_exec_ops, k, &k->exec, &err) < 0)
        fail_msg("box_exec: %s", err.msg);
}

static const char *const true_argv[] = { "true", NULL };

static inline void scene_running_with(struct fake *k, const struct exec_spec *spec)
{
    scene_exec(k, spec);
    runtime_takes(k, FRAME_EXEC);
    k->stream = got.f.stream;
    runtime_started(k);
    assert_int_equal(k->started, 1);
}

static inline void scene_running(struct fake *k)
{
    struct exec_spec spec = { .argv = true_argv };

    scene_ready(k);
    scene_running_with(k, &spec);
}

/* Frees what is left and checks that no descriptor stayed open. */
static inline void scene_end(struct fake *k)
{
    exec_handle_free(k->exec);
    sandbox_handle_free(k->box);
    engine_free(k->engine);
    turn(k);
    ev_free(k->ev);
    take_any(-1);
    fd_close(&k->jailer);
    fd_close(&k->runtime);
    fd_close(&k->cpu);
    fd_close(&k->oom);
    buf_done(&k->out);
    buf_done(&k->errout);
    buf_done(&k->kernel);
    assert_int_equal(count_fds(), k->fds_before);
}

/* Fails if the socket holds another frame. */
static inline void silent(struct fake *k, int sock)
{
    turn(k);
    if (take_any(sock))
        fail_msg("%s was not expected", frame_name(got.f.type));
}
