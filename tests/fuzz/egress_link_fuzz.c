/* An egress proxy that sends anything at any time to an engine with a sandbox that has a network.
 * Jailer and runtime are honest. Each request of the client is answered exactly once, at the latest
 * when the proxy is dead; the program ends; no descriptor is leaked. */
#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/engine.h"
#include "sandbox/hint.h"
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
    int jailer, runtime, proxy;
    uint32_t stream; /* of the program */
    int ready, failed, done, exited, asked, answered, destroyed;
    bool is_abandoned; /* the client frees everything now */
    uint8_t last_type;
    uint32_t last_stream; /* of the proxy's last request */
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
    CHECK(why->id && w.ready);
}

static void on_done(void *arg, const struct err *err)
{
    (void)arg;
    (void)err;
    CHECK(w.done++ == 0);
}

static void on_used(void *arg, const char *name, const char *host, uint32_t count)
{
    (void)arg;
    (void)count;
    CHECK(strlen(name) < EGRESS_SECRET_NAME_MAX && strlen(host) < EGRESS_HOST_MAX);
}

static void on_changed(void *arg, const struct err *err)
{
    (void)arg;
    CHECK(!err || err->id);
    w.answered++;
}

static void on_listed(void *arg, const struct egress_listed *l, const struct err *err)
{
    (void)arg;
    CHECK(!l != !err && (!l || l->n <= EGRESS_CONNECTIONS_MAX));
    w.answered++;
}

static void on_reported(void *arg, const struct egress_reported *r, const struct err *err)
{
    (void)arg;
    CHECK(!r != !err && (!r || r->n <= EGRESS_DESTINATIONS_MAX));
    w.answered++;
}

static void write_everything(const struct receipt *r)
{
    struct hint_facts facts = { .ended_by = ENDED_EXIT, .exit_code = 1 };
    struct limit_hit hits[LIMIT_COUNT];
    char hint[HINT_MAX];
    auto_buf text = { 0 };
    struct jsonw j;

    jsonw_init(&j, &text, 0);
    receipt_json(r, &j);
    receipt_print(r, &text);
    hint_facts_from_receipt(&facts, r, hits);
    facts.exit_code = 1;
    (void)hint_write(&facts, hint);
    for (const char *c = hint; *c; c++)
        CHECK((unsigned char)*c >= ' ');
}

static void on_exit_(void *arg, const struct receipt *r)
{
    (void)arg;
    CHECK(w.exited++ == 0 && r->egress.ndestinations <= EGRESS_DESTINATIONS_MAX);
    write_everything(r);
}

static void on_exec_failed(void *arg, const struct err *err)
{
    (void)arg;
    CHECK(err->id && w.exited++ == 0);
}

static const struct sandbox_handle_ops box_ops = {
    .on_ready = on_ready, .on_failed = on_failed, .on_ended = on_ended, .on_secret_used = on_used
};
static const struct exec_handle_ops exec_ops = { .on_exit = on_exit_, .on_failed = on_exec_failed };

static uint32_t every(bool inside)
{
    size_t n;
    const struct wall *walls = walls_all(&n);
    uint32_t bits = 0;

    for (size_t i = 0; i < n; i++)
        bits |= inside ? walls[i].inside : walls[i].outside;
    return bits;
}

/* --- an honest jailer and an honest runtime --- */

static void answer_created(uint32_t stream)
{
    struct jail_created m = {
        .pid = 7, .walls = every(false), .egress_carrier = EGRESS_CARRIER_TPROXY, .nlimits = LIMIT_COUNT
    };
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

static void jailer_answers(const struct frame *f)
{
    struct jail_stats st = { 0 };

    if (f->type == FRAME_J_CREATE)
        answer_created(f->stream);
    else if (f->type == FRAME_J_STATS || f->type == FRAME_J_DESTROY)
        put(w.jailer, FRAME_DONE, 0, f->stream, out, jail_stats_encode(&st, out, NULL));
    else
        put(w.jailer, FRAME_J_OK, 0, f->stream, NULL, 0);
    if (f->type == FRAME_J_KILL || f->type == FRAME_J_DESTROY)
        fd_close(&w.runtime);
}

static void runtime_answers(const struct frame *f)
{
    struct rt_claimed claimed = { .walls = every(true), .landlock_abi = 7 };
    struct rt_hello m;

    if (f->type == FRAME_HELLO && rt_hello_decode(f, &m, NULL) == 0) {
        put(w.runtime, FRAME_HELLO, 0, 0, out, rt_hello_encode(&m, out, NULL));
        put(w.runtime, FRAME_CLAIMED, 0, 0, out, rt_claimed_encode(&claimed, out, NULL));
    } else if (f->type == FRAME_EXEC) {
        w.stream = f->stream;
        put(w.runtime, FRAME_STARTED, 0, f->stream, "\2\0\0\0", 4);
    }
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
            jailer_answers(&f);
        while (take(w.runtime, &f))
            runtime_answers(&f);
        while (take(w.proxy, &f)) {
            w.last_type = f.type;
            w.last_stream = f.stream;
        }
    }
}

static void open_world(void)
{
    static const struct sandbox_secret key = { "openai", "value" };
    struct sandbox_spec box = { .level = LEVEL_STANDARD,
                                .network = { .mode = NETWORK_EGRESS, .rules = "allow pypi.org" },
                                .secrets = &key,
                                .nsecrets = 1 };
    struct err err = { 0 };
    int jailer[2], proxy[2];

    memset(&w, 0, sizeof(w));
    w.runtime = -1;
    limits_default(&box.limits);
    CHECK(ev_new(&w.ev, &err) == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, jailer) == 0 &&
          socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, proxy) == 0);
    w.jailer = jailer[1];
    w.proxy = proxy[1];
    CHECK(engine_new(w.ev, jailer[0], NULL, NULL, &w.engine, &err) == 0);
    CHECK(engine_set_egress(w.engine, proxy[0], &err) == 0);
    CHECK(sandbox_handle_new(w.engine, &box, &box_ops, NULL, &w.box, &err) == 0);
    turn();
}

/* --- actions that the input chooses --- */

/* A frame of the proxy: to the last request, or to any stream. */
static void say(const uint8_t **p, const uint8_t *end, uint8_t type)
{
    if (end - *p < 2)
        return;
    uint32_t stream = (*p)[0] & 1 ? w.last_stream : (*p)[0] >> 1;
    int len = (int)min_size((*p)[1], (size_t)(end - *p - 2));

    put(w.proxy, type, 0, stream, *p + 2, len);
    *p += 2 + len;
}

static void say_report(uint8_t n)
{
    static struct egress_reported m;

    m = (struct egress_reported){
        .carrier = n % 3, .connections = n, .refused = n, .n = n % (EGRESS_DESTINATIONS_MAX + 1)
    };
    for (uint32_t i = 0; i < m.n; i++) {
        struct egress_destination *d = &m.destinations[i];

        *d = (struct egress_destination){ .port = n, .refused = n * i, .received = UINT64_MAX - i };
        memset(d->host, n + (int)i, n % EGRESS_HOST_MAX);
        memset(d->reason, n, n % EGRESS_REASON_MAX);
    }
    put(w.proxy, FRAME_E_REPORTED, 0, w.last_stream, out, egress_reported_encode(&m, out, NULL));
}

static void say_error(uint8_t id)
{
    struct rt_error m = { .id = id, .msg = "no" };

    put(w.proxy, FRAME_E_ERROR, 0, w.last_stream, out, rt_error_encode(&m, out, NULL));
}

static void say_used(void)
{
    struct egress_secret_used m = { .name = "openai", .host = "api", .count = 1 };

    memcpy(m.id, sandbox_handle_id(w.box), sizeof(m.id));
    put(w.proxy, FRAME_E_SECRET, 0, 0, out, egress_secret_used_encode(&m, out, NULL));
}

static void start_program(void)
{
    static const char *const argv[] = { "true", NULL };
    struct exec_spec spec = { .argv = argv };

    if (!w.exec && !w.exited && w.ready && !w.done)
        (void)sandbox_handle_exec(w.box, &spec, &exec_ops, NULL, &w.exec, NULL);
}

static void end_program(uint8_t code)
{
    struct rt_exit m = { .code = code };

    if (w.stream)
        put(w.runtime, FRAME_EXIT, 0, w.stream, out, rt_exit_encode(&m, out, NULL));
    w.stream = 0;
}

static void change_rules(uint8_t arg)
{
    const struct network_policy p = { .mode = arg & 1 ? NETWORK_EGRESS : NETWORK_NONE, .rules = "allow example.org" };

    w.asked++;
    sandbox_handle_set_network(w.box, &p, NULL, 0, on_changed, NULL);
}

static void act(uint8_t op, uint8_t arg)
{
    switch (op % 12) {
    case 0:
        put(w.proxy, FRAME_E_BOUND, 0, w.last_stream, NULL, 0);
        break;
    case 1:
        say_report(arg);
        break;
    case 2:
        say_error(arg);
        break;
    case 3:
        say_used();
        break;
    case 4:
        start_program();
        break;
    case 5:
        end_program(arg);
        break;
    case 6:
        change_rules(arg);
        break;
    case 7:
        w.asked++;
        sandbox_handle_connections(w.box, on_listed, NULL);
        break;
    case 8:
        w.asked++;
        sandbox_handle_network_report(w.box, on_reported, NULL);
        break;
    case 9:
        if (w.exec)
            (void)exec_handle_collect_denials(w.exec, arg & 1);
        break;
    case 10:
        if (arg % 8 == 0 && w.destroyed++ == 0)
            sandbox_handle_destroy(w.box, on_done, NULL);
        break;
    default:
        if (arg % 8 == 0)
            fd_close(&w.proxy);
        if (arg == 1)
            w.is_abandoned = true;
    }
}

static void close_world(void)
{
    bool running = w.exec && !w.exited && !w.is_abandoned;

    if (w.is_abandoned) { /* no callback follows, also if the proxy answers */
        int before = w.answered + w.exited;

        sandbox_handle_free(take_ptr(&w.box));
        put(w.proxy, FRAME_E_BOUND, 0, w.last_stream, NULL, 0);
        say_report(3);
        turn();
        CHECK(w.answered + w.exited == before);
        w.asked = w.answered;
        w.done = 1;
    }
    fd_close(&w.proxy); /* every request is answered now */
    for (int i = 0; i < 4; i++)
        turn();
    CHECK(w.answered == w.asked && (w.ready + w.failed == 1 || w.done));
    fd_close(&w.runtime);
    for (int i = 0; i < 4; i++)
        turn();
    CHECK(!running || w.exited == 1);
    if (w.exec)
        write_everything(exec_handle_receipt(w.exec));
    exec_handle_free(w.exec);
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

    signal(SIGPIPE, SIG_IGN);
    open_world();
    for (int steps = 0; end - p >= 2 && steps < 64 && !w.is_abandoned; steps++) {
        uint8_t op = *p++;

        if (op >= 128)
            act((uint8_t)(op - 128), *p++);
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
