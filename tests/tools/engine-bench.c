/* engine-bench - drives the engine directly, for measurements and load tests.
 *
 *     engine-bench [--count N | --seconds S] [--workers W] [--depth D] [--quiet] -- PROGRAM ARG...
 *     engine-bench --step -- PROGRAM ARG...
 *         one run for each line on standard input, answered by a line
 *     engine-bench --live -- PROGRAM ARG...
 *         the same in one sandbox that lives on: only the execution is measured
 *     engine-bench --idle N
 *         N ready sandboxes until standard input ends
 *     engine-bench --python N [--preload MODULES] [--step] -- CODE
 *         CODE in a member of a pool of N sandboxes with a waiting Python
 *
 * A run is a whole life: create, execute, exit, destroy. Each run prints its microseconds on a
 * line; with --python, the time until the interpreter has answered. The last line is "per second:
 * R". Workers are processes, each with its own jailer; depth is the number of concurrent runs of a
 * worker. A run that does not exit with 0 ends everything, because a failed start would look like a
 * good figure. */
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/engine.h"
#include "sandbox/receipt.h"
#include "host/jailer/jailer.h"
#include "sandbox/pool/pools.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define WORKERS_MAX 64u
#define DEPTH_MAX 1024u
#define SAMPLES_MAX 1000000u

struct options {
    uint64_t count, seconds, idle;
    uint32_t workers, depth;
    bool step, live, quiet;
    const char *state_dir, *preload;
    uint32_t python; /* pool members; 0: programs are started */
    const char *const *argv;
};

struct bench {
    struct options o;
    struct ev *ev;
    struct engine *engine;
    struct pools *pools; /* NULL: no pool */
    pid_t jailer;
    uint64_t begun, finished, ready;
    uint64_t end_ns;
    uint64_t *samples;
    struct ev_io input;
    bool closing;     /* no more input: end with the last run */
    struct run *host; /* --live: the sandbox of all runs */
};

struct run {
    struct bench *b;
    struct sandbox_handle *box;
    struct exec_handle *exec;
    uint64_t start_ns, over_ns;
    struct ev_defer defer;
    char said[8192]; /* --python: output of the language kernel */
    size_t nsaid;
};

static NORETURN void die(const char *what, const struct err *err)
{
    fprintf(stderr, "engine-bench: %s%s%s\n", what, err ? ": " : "", err ? err->msg : "");
    exit(1);
}

static void begin_run(struct bench *b);

static bool more(const struct bench *b)
{
    if (b->o.step || b->o.idle)
        return false;
    if (b->o.seconds)
        return clock_mono_ns() < b->end_ns;
    return b->begun < b->o.count;
}

static void free_run(void *arg)
{
    struct run *r = arg;

    exec_handle_free(r->exec);
    sandbox_handle_free(r->box);
    free(r);
}

static void finish_run(struct run *r)
{
    struct bench *b = r->b;

    uint64_t took = (r->over_ns ? r->over_ns : clock_mono_ns()) - r->start_ns;

    if (b->samples && b->finished < SAMPLES_MAX)
        b->samples[b->finished] = took;
    b->finished++;
    ev_defer(b->ev, &r->defer, free_run, r);
    if (b->o.step) {
        printf("%" PRIu64 "\n", took / 1000);
        fflush(stdout);
    }
    if (more(b))
        begin_run(b);
    else if (b->finished == b->begun && (!b->o.step || b->closing))
        ev_stop(b->ev);
}

static void on_destroyed(void *arg, const struct err *err)
{
    if (err)
        die("destroy", err);
    finish_run(arg);
}

static void on_exit_(void *arg, const struct receipt *receipt)
{
    struct run *r = arg;

    if (receipt_exit_code(receipt) != 0) {
        fprintf(stderr, "engine-bench: ended by %s, exit code %d, signal %d\n", ended_by_name(receipt->ended_by),
                receipt->exit_code, receipt->signal);
        exit(1);
    }
    if (r->b->o.live)
        finish_run(r);
    else
        sandbox_handle_destroy(r->box, on_destroyed, r);
}

static void on_output(void *arg UNUSED, int channel, const void *data, size_t len)
{
    if (channel == 2)
        (void)!write(2, data, len);
}

static void on_exec_failed(void *arg UNUSED, const struct err *err)
{
    die("exec", err);
}

/* Only the answer is measured; the sandbox is destroyed afterwards. */
static void on_kernel(void *arg, const void *data, size_t len)
{
    struct run *r = arg;
    char line[4096];

    if (r->over_ns || r->nsaid + len >= sizeof(r->said))
        return;
    memcpy(r->said + r->nsaid, data, len);
    r->nsaid += len;
    r->said[r->nsaid] = '\0';
    if (strstr(r->said, "\"ready\"") && !strstr(r->said, "\"started\"")) {
        int n = snprintf(line, sizeof(line), "{\"op\":\"execute\",\"id\":\"a\",\"code\":\"%s\"}\n", r->b->o.argv[0]);

        if (n >= (int)sizeof(line) || exec_handle_write_language_kernel(r->exec, line, (size_t)n) != (size_t)n)
            die("the code is too long", NULL);
    }
    if (!strstr(r->said, "\"finished\""))
        return;
    if (!strstr(r->said, "\"ok\""))
        die(r->said, NULL);
    r->over_ns = clock_mono_ns();
    sandbox_handle_destroy(r->box, on_destroyed, r);
}

static const struct exec_handle_ops kernel_ops = { .on_output = on_output,
                                                   .on_language_kernel_data = on_kernel,
                                                   .on_failed = on_exec_failed };
static const struct exec_handle_ops exec_ops = { .on_output = on_output,
                                                 .on_exit = on_exit_,
                                                 .on_failed = on_exec_failed };

static void execute(struct run *r, struct sandbox_handle *box)
{
    static const char *const python[] = { "python3", NULL };
    bool kernel = r->b->o.python > 0;
    struct exec_spec spec = { .argv = kernel ? python : r->b->o.argv,
                              .wall_ms = 30000,
                              .output_max = 8 * MIB,
                              .is_language_kernel = kernel,
                              .use_waiting_interpreter = kernel };
    struct err err = { 0 };

    if (sandbox_handle_exec(box, &spec, kernel ? &kernel_ops : &exec_ops, r, &r->exec, &err) < 0)
        die("exec", &err);
}

static struct sandbox_spec wanted(const struct bench *b)
{
    static struct zygote_spec zygote;
    struct sandbox_spec spec = { .level = LEVEL_STANDARD, .profile = b->o.python ? PROFILE_PYTHON : PROFILE_BASE };

    zygote = (struct zygote_spec){ "python", b->o.preload };
    if (b->o.python)
        spec.zygote = &zygote;

    limits_default(&spec.limits);
    return spec;
}

static void on_joined(void *arg, const struct err *err)
{
    struct run *r = arg;

    if (err)
        die("an interpreter for a sandbox without one", err);
    execute(r, r->box);
}

static void on_ready(void *arg)
{
    struct run *r = arg;
    struct bench *b = r->b;
    struct sandbox_spec spec = wanted(b);

    if (b->pools)
        pools_claim_finished(b->pools, &spec, clock_mono_ns() - r->start_ns);
    if (b->o.live) {
        b->host = r;
    } else if (b->o.python && !sandbox_handle_has_interpreter(r->box)) {
        sandbox_handle_join_interpreter(r->box, on_joined, r);
    } else if (!b->o.idle) {
        execute(r, r->box);
    } else if (++b->ready == b->o.idle) {
        printf("ready\n");
        fflush(stdout);
    }
}

static void on_failed(void *arg UNUSED, const struct err *err)
{
    die("sandbox", err);
}

static void on_ended(void *arg UNUSED, const struct err *why)
{
    die("the sandbox ended", why);
}

static void on_lost(void *arg UNUSED, const struct err *why)
{
    die("the jailer is gone", why);
}

static const struct sandbox_handle_ops box_ops = { .on_ready = on_ready, .on_failed = on_failed, .on_ended = on_ended };
static const struct engine_ops engine_ops = { .on_lost = on_lost };

static struct run *new_run(struct bench *b)
{
    struct run *r = mem_new(struct run);

    r->b = b;
    r->start_ns = clock_mono_ns();
    return r;
}

static void begin_box(struct bench *b)
{
    struct sandbox_spec spec = wanted(b);
    struct err err = { 0 };

    struct run *r = new_run(b);

    r->box = b->pools ? pools_take(b->pools, &spec, NULL) : NULL;
    int rc = r->box ? sandbox_handle_claim(r->box, &spec, &box_ops, r, &err)
                    : sandbox_handle_new(b->engine, &spec, &box_ops, r, &r->box, &err);
    if (rc < 0)
        die("sandbox", &err);
}

static void begin_run(struct bench *b)
{
    b->begun++;
    if (b->host)
        execute(new_run(b), b->host->box);
    else
        begin_box(b);
}

/* --- one worker --- */

/* A file in the build directory of this program. */
static int open_built(const char *variable, const char *name)
{
    const char *path = variable ? getenv(variable) : NULL;
    char self[4096];
    auto_free char *beside = NULL;

    if (!path) {
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

        self[n > 0 ? n : 0] = '\0';
        *(strrchr(self, '/') ? strrchr(self, '/') : self) = '\0';
        beside = str_printf("%s/../../src/main/%s", self, name);
        path = beside;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "engine-bench: %s: ", path);
        perror(NULL);
        exit(1);
    }
    return fd;
}

static bool pool_full(const struct bench *b)
{
    struct pool_info info;

    if (!pools_get(b->pools, "python", &info))
        die("there is no pool named python", NULL);
    if (info.zygote == POOL_ZYGOTE_FAILED)
        die(info.zygote_error, NULL);
    return info.size == b->o.python && info.without_interpreter == 0;
}

static void start_engine(struct bench *b)
{
    struct jailer_settings settings = { .runtime_fd = open_built("COVE_RUNTIME", "cove-runtime"),
                                        .kernels_fd = b->o.python ? open_built(NULL, "kernels") : 0,
                                        .state_dir = b->o.state_dir };
    struct pool_settings pool = { .min = b->o.python, .max = b->o.python };
    struct sandbox_spec like = wanted(b);
    struct err err = { 0 };
    int sock;

    if (jailer_fork(&settings, &sock, &b->jailer, &err) < 0)
        die("jailer", &err);
    close(settings.runtime_fd);
    if (ev_new(&b->ev, &err) < 0 || engine_new(b->ev, sock, &engine_ops, b, &b->engine, &err) < 0)
        die("engine", &err);
    if (!b->o.idle)
        pools_set_engine(b->pools = pools_new(b->ev), b->engine);
    if (b->o.python && pools_put(b->pools, "python", &like, &pool, &err) < 0)
        die("pool", &err);
    while (b->o.python && !pool_full(b))
        ev_turn(b->ev, -1);
}

static void stop_engine(struct bench *b)
{
    ev_turn(b->ev, 0);
    pools_free(b->pools);
    engine_free(b->engine);
    ev_free(b->ev);
    waitpid(b->jailer, NULL, 0);
}

static void work(struct bench *b)
{
    start_engine(b);
    b->end_ns = clock_mono_ns() + b->o.seconds * NS_PER_S;
    for (uint32_t i = 0; i < b->o.depth && (i == 0 || more(b)); i++)
        begin_run(b);
    ev_run(b->ev);
    stop_engine(b);
}

/* --- step and idle --- */

static void on_input(void *arg, uint32_t events UNUSED)
{
    struct bench *b = arg;
    char c[64];
    ssize_t n = read(0, c, sizeof(c));

    if (n <= 0) {
        ev_io_del(b->ev, &b->input);
        b->closing = true;
        if (b->finished == b->begun || b->o.idle)
            ev_stop(b->ev);
        return;
    }
    for (ssize_t i = 0; i < n; i++)
        if (c[i] == '\n' && b->o.step)
            begin_run(b);
}

static void serve(struct bench *b)
{
    struct err err = { 0 };

    start_engine(b);
    if (b->o.live)
        begin_box(b);
    while (b->o.live && !b->host)
        ev_turn(b->ev, -1);
    if (ev_io_add(b->ev, &b->input, 0, EPOLLIN, on_input, b, &err) < 0)
        die("standard input", &err);
    for (uint64_t i = 0; i < b->o.idle; i++)
        begin_run(b);
    ev_run(b->ev);
    stop_engine(b);
}

/* --- many workers --- */

struct shared {
    uint64_t finished;
    uint64_t ns;
    uint64_t samples[SAMPLES_MAX];
};

static struct shared *share(size_t n)
{
    void *p = mmap(NULL, n * sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        die("mmap", NULL);
    return p;
}

static int run_workers(const struct options *o)
{
    struct shared *all = share(o->workers);
    pid_t pids[WORKERS_MAX];
    double rate = 0;

    for (uint32_t i = 0; i < o->workers; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct bench b = { .o = *o, .samples = all[i].samples };
            uint64_t start = clock_mono_ns();

            b.o.count = o->count / o->workers + (i < o->count % o->workers);
            work(&b);
            all[i].finished = b.finished;
            all[i].ns = clock_mono_ns() - start;
            _exit(0);
        }
    }
    for (uint32_t i = 0; i < o->workers; i++) {
        int status = 1;

        if (pids[i] < 0 || waitpid(pids[i], &status, 0) < 0 || status != 0)
            return 1;
        for (uint64_t n = 0; n < all[i].finished && n < SAMPLES_MAX && !o->quiet; n++)
            printf("%" PRIu64 "\n", all[i].samples[n] / 1000);
        rate += (double)all[i].finished * 1e9 / (double)all[i].ns;
    }
    printf("per second: %.1f\n", rate);
    return 0;
}

/* --- the command line --- */

static uint64_t number(const char *name, const char *text, uint64_t max)
{
    uint64_t v;

    if (!text || !str_to_u64(text, max, &v) || v == 0) {
        fprintf(stderr, "engine-bench: %s wants a number from 1 to %" PRIu64 "\n", name, max);
        exit(2);
    }
    return v;
}

static void parse(int argc, char **argv, struct options *o)
{
    static const char *const dflt[] = { "true", NULL };

    *o = (struct options){
        .count = 100, .workers = 1, .depth = 1, .state_dir = "/run/cove", .preload = "", .argv = dflt
    };
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;

        if (str_eq(a, "--")) {
            if (next)
                o->argv = (const char *const *)&argv[i + 1];
            return;
        }
        if (str_eq(a, "--step"))
            o->step = true;
        else if (str_eq(a, "--live"))
            o->step = o->live = true;
        else if (str_eq(a, "--quiet"))
            o->quiet = true;
        else if (str_eq(a, "--count"))
            o->count = number(a, next, SAMPLES_MAX), i++;
        else if (str_eq(a, "--seconds"))
            o->seconds = number(a, next, 3600), i++;
        else if (str_eq(a, "--workers"))
            o->workers = (uint32_t)number(a, next, WORKERS_MAX), i++;
        else if (str_eq(a, "--depth"))
            o->depth = (uint32_t)number(a, next, DEPTH_MAX), i++;
        else if (str_eq(a, "--idle"))
            o->idle = number(a, next, DEPTH_MAX), i++;
        else if (str_eq(a, "--python"))
            o->python = (uint32_t)number(a, next, DEPTH_MAX), i++;
        else if (str_eq(a, "--preload") && next)
            o->preload = next, i++;
        else if (str_eq(a, "--state-dir") && next)
            o->state_dir = next, i++;
        else {
            fprintf(stderr, "engine-bench: unknown argument %s\n", a);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct options o;

    signal(SIGPIPE, SIG_IGN);
    parse(argc, argv, &o);
    if (!o.step && !o.idle)
        return run_workers(&o);
    struct bench b = { .o = o };
    serve(&b);
    return 0;
}
