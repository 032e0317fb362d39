/* world.h - a real jailer, an engine, one sandbox and one execution, with callbacks that record.
 * Needs root, or an unprivileged user with a runtime directory. */
#pragma once

#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/str.h"
#include "sandbox/engine.h"
#include "sandbox/receipt.h"
#include "tests/contract/driver_under_test.h"
#include "host/jailer/jailer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static char state_dir[64];

struct world {
    struct ev *ev;
    struct engine *engine;
    struct sandbox_handle *box;
    struct exec_handle *exec;
    pid_t jailer;
    const struct exec_spec *spec; /* started as soon as the sandbox is ready */
    const char *input;            /* written to it, followed by the end of input */
    int ready, failed, ended, lost, done, exited, exec_failed, started;
    int kill_after_bytes; /* kill after so many bytes of output */
    int order, exit_order, ended_order;
    bool done_ok;
    struct err err;
    struct buf out, errout;
};

static inline void on_lost(void *arg, const struct err *why)
{
    struct world *w = arg;

    w->lost++;
    w->err = *why;
}

static inline void on_started(void *arg)
{
    struct world *w = arg;

    w->started++;
    if (!w->input)
        return;
    assert_int_equal(exec_handle_write(w->exec, w->input, strlen(w->input)), strlen(w->input));
    exec_handle_write_end(w->exec);
}

static inline void on_output(void *arg, int channel, const void *data, size_t len)
{
    struct world *w = arg;

    buf_add(channel == 1 ? &w->out : &w->errout, data, len);
    if (w->kill_after_bytes && w->out.len >= (size_t)w->kill_after_bytes)
        kill(w->jailer, SIGKILL);
}

static inline void on_exit_(void *arg, const struct receipt *r)
{
    struct world *w = arg;

    assert_ptr_equal(r, exec_handle_receipt(w->exec));
    w->exited++;
    w->exit_order = ++w->order;
}

static inline void on_exec_failed(void *arg, const struct err *err)
{
    struct world *w = arg;

    w->exec_failed++;
    w->err = *err;
}

static const struct exec_handle_ops exec_ops = {
    .on_started = on_started, .on_output = on_output, .on_exit = on_exit_, .on_failed = on_exec_failed
};

static inline void on_ready(void *arg)
{
    struct world *w = arg;
    struct err err = { 0 };

    w->ready++;
    if (w->spec && sandbox_handle_exec(w->box, w->spec, &exec_ops, w, &w->exec, &err) < 0)
        fail_msg("sandbox_handle_exec: %s", err.msg);
}

static inline void on_failed(void *arg, const struct err *err)
{
    struct world *w = arg;

    w->failed++;
    w->err = *err;
}

static inline void on_ended(void *arg, const struct err *why)
{
    struct world *w = arg;

    w->ended++;
    w->ended_order = ++w->order;
    w->err = *why;
}

static inline void on_done(void *arg, const struct err *err)
{
    struct world *w = arg;

    w->done++;
    w->done_ok = !err;
    if (err)
        w->err = *err;
}

static const struct engine_ops engine_ops = { .on_lost = on_lost };
static const struct sandbox_handle_ops box_ops = { .on_ready = on_ready, .on_failed = on_failed, .on_ended = on_ended };

static int world_kernels; /* a directory, or 0 */
static int world_egress;  /* the jailer's socket to an egress proxy, or 0 */

static inline void open_world(struct world *w)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .kernels_fd = world_kernels,
                                 .egress_fd = world_egress,
                                 .state_dir = state_dir };
    struct err err = { 0 };
    int sock;

    *w = (struct world){ 0 };
    assert_true(s.runtime_fd >= 0);
    assert_int_equal(jailer_fork(&s, &sock, &w->jailer, &err), 0);
    close(s.runtime_fd);
    assert_int_equal(ev_new(&w->ev, &err), 0);
    assert_int_equal(engine_new(w->ev, sock, &engine_ops, w, &w->engine, &err), 0);
}

/* The seconds are what an idle machine needs at most; a busy one gets four times as long. */
static inline void turn_until(struct world *w, const int *what, uint64_t seconds)
{
    uint64_t end = clock_mono_ns() + 4 * seconds * NS_PER_S;

    while (*what == 0 && !w->failed && !w->exec_failed && clock_mono_ns() < end)
        ev_turn(w->ev, 100);
    if (*what == 0)
        fail_msg("timed out; last error: %s", w->err.msg);
}

static inline struct sandbox_spec plain_spec(void)
{
    struct sandbox_spec spec = { .driver = driver_under_test(), .level = LEVEL_STANDARD, .profile = PROFILE_PYTHON };

    limits_default(&spec.limits);
    return spec;
}

static inline void begin(struct world *w, const struct sandbox_spec *box, const struct exec_spec *spec)
{
    struct err err = { 0 };

    open_world(w);
    w->spec = spec;
    if (sandbox_handle_new(w->engine, box, &box_ops, w, &w->box, &err) < 0)
        fail_msg("sandbox_handle_new: %s", err.msg);
}

static inline void run(struct world *w, const struct exec_spec *spec)
{
    struct sandbox_spec box = plain_spec();

    begin(w, &box, spec);
    turn_until(w, &w->exited, 30);
}

static inline void destroy(struct world *w)
{
    sandbox_handle_destroy(w->box, on_done, w);
    turn_until(w, &w->done, 30);
    if (!w->done_ok)
        fail_msg("destroy: %s", w->err.msg);
}

static inline void close_world(struct world *w)
{
    exec_handle_free(w->exec);
    sandbox_handle_free(w->box);
    engine_free(w->engine);
    ev_turn(w->ev, 0);
    ev_free(w->ev);
    assert_int_equal(waitpid(w->jailer, NULL, 0), w->jailer);
    buf_done(&w->out);
    buf_done(&w->errout);
}

#define SH(script)               \
    (const char *const[])        \
    {                            \
        "sh", "-c", script, NULL \
    }
#define PY(script)                    \
    (const char *const[])             \
    {                                 \
        "python3", "-c", script, NULL \
    }

static inline void expect_end(const struct world *w, enum ended_by by)
{
    const struct receipt *r = exec_handle_receipt(w->exec);

    if (r->ended_by != by)
        fail_msg("ended by %s (code %d, signal %d) and not %s; stderr: %s", ended_by_name(r->ended_by), r->exit_code,
                 r->signal, ended_by_name(by), w->errout.data ? w->errout.data : "");
}

static inline int make_state_dir(void **state UNUSED)
{
    const char *mine = getenv("XDG_RUNTIME_DIR"); /* an unprivileged user's */

    snprintf(state_dir, sizeof(state_dir), "%s/cove-test-XXXXXX", geteuid() == 0 || !mine ? "/run" : mine);
    return mkdtemp(state_dir) ? 0 : -1;
}

static inline int remove_state_dir(void **state UNUSED)
{
    auto_free char *kept = str_printf("%s/kept", state_dir);

    rmdir(kept);
    return rmdir(state_dir); /* fails if anything remains */
}
