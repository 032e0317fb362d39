/* scene.h - a manager and an executor with a real store, a scripted jailer and scripted runtimes.
 *
 * A test is a script, as in tests/unit/sandbox/fake.h: it calls the service, takes the frames that
 * the service sent, and answers them. Only public headers of src/service are used, so the tests
 * describe behaviour and not its implementation. A `done` may run inside the call or in a later
 * turn of the loop: answered() runs the loop until it ran, and checks that it ran once. */
#pragma once

#include "tests/unit/service/scene_faults.h"

#include "service/execute/executor.h"
#include "service/manager.h"
#include "service/ephemeral_sandbox.h"
#include "service/live_sandboxes.h"
#include "service/tenant_quotas.h"

#include <sys/stat.h>

/* --- the scene --- */

struct scene_settings {
    uint32_t live_max, executions_max, creating_max;
    uint32_t running_max, waiting_max; /* of the executor */
    uint64_t cache_bytes, output_bytes;
    bool sync_full;
    bool with_pools; /* J_LIST is answered, so that pools create members */
};

struct scene {
    struct fake k; /* its ev, jailer and runtime, that of the sandbox made last, are used */
    struct scene_settings set;
    struct store *store;
    struct pools *pools;
    struct manager *m;
    struct executor *executor;
    uint32_t create_stream;                       /* of the last J_CREATE or J_ADOPT */
    char create_id[ID_SIZE], runtime_id[ID_SIZE]; /* of its sandbox; of the sandbox that k.runtime belongs to */
    int connects;
    int ends; /* calls of on_end */
    enum ended_by end_cause;
    const char *stray; /* id of a sandbox that the jailer lists; NULL: none */
};

static char scene_dir[64], scene_db[96]; /* the output is in the same directory */

static inline int scene_connect(void *arg, int *ret_jailer, int *ret_monitor, struct err *err UNUSED)
{
    struct scene *s = arg;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    fd_close(&s->k.jailer);
    s->k.jailer = pair[1];
    *ret_jailer = pair[0];
    *ret_monitor = -1;
    s->connects++;
    return 0;
}

static inline void scene_on_end(void *arg, const char *id UNUSED, const char *owner UNUSED, enum ended_by by,
                                const struct err *why UNUSED)
{
    struct scene *s = arg;

    s->ends++;
    s->end_cause = by;
}

/* Opens the store and starts a manager and an executor on it. */
static inline void scene_start(struct scene *s)
{
    struct manager_settings set = { .output_dir = scene_dir,
                                    .connect = scene_connect,
                                    .on_end = scene_on_end,
                                    .arg = s,
                                    .live_max = s->set.live_max,
                                    .executions_max = s->set.executions_max ? s->set.executions_max : 64,
                                    .creating_max = s->set.creating_max ? s->set.creating_max : 16,
                                    .starting_max = 64,
                                    .sync_full = s->set.sync_full };
    struct err err = { 0 };

    if (store_open(s->k.ev, &(struct store_settings){ .url.file = scene_db }, &s->store, &err) < 0)
        fail_msg("%s", err.msg);
    s->pools = pools_new(s->k.ev);
    set.store = s->store;
    set.pools = s->pools;
    assert_int_equal(manager_new(s->k.ev, &set, &s->m, &err), 0);
    s->executor = executor_new(
        &(struct executor_settings){ .ev = s->k.ev,
                                     .ephemerals = manager_ephemerals(s->m),
                                     .running_max = s->set.running_max ? s->set.running_max : 64,
                                     .waiting_max = s->set.waiting_max ? s->set.waiting_max : 512,
                                     .wait_ms = 30000,
                                     .output_bytes = s->set.output_bytes ? s->set.output_bytes : 256 * MIB,
                                     .cache_bytes = s->set.cache_bytes,
                                     .cache_age_ms = 3600000 });
}

static inline void scene_await_ready(struct scene *s)
{
    uint64_t end = now_ms() + 5000 * slow_factor();

    while (!manager_ready(s->m, NULL) && now_ms() < end)
        ev_turn(s->k.ev, 5);
    assert_true(manager_ready(s->m, NULL));
}

static inline void scene_open_with(struct scene *s, const struct scene_settings *set)
{
    static unsigned scenes;
    struct err err = { 0 };

    snprintf(scene_db, sizeof(scene_db), "%s/%u.db", scene_dir, ++scenes); /* a failed test may leave one open */
    *s = (struct scene){ .k = { .jailer = -1, .runtime = -1, .cpu = -1, .oom = -1 }, .set = *set };
    store_refuse(NULL, 0);
    clock_hold(false);
    assert_int_equal(ev_new(&s->k.ev, &err), 0);
    scene_start(s);
    scene_await_ready(s);
}

static inline void scene_open(struct scene *s)
{
    scene_open_with(s, &(struct scene_settings){ 0 });
}

/* Runs the loop until the store has answered everything and nothing more happens. */
static inline void settle(struct scene *s)
{
    struct store_stats st;
    uint64_t end = now_ms() + 5000 * slow_factor();

    do {
        turn(&s->k);
        store_stats(s->store, &st);
        if (st.waiting > 0)
            ev_turn(s->k.ev, 5);
    } while (st.waiting > 0 && now_ms() < end);
    assert_int_equal(st.waiting, 0);
    turn(&s->k);
}

static inline void advance(struct scene *s, uint64_t ms)
{
    atomic_fetch_add(&clock_ahead_ns, ms * NS_PER_MS);
    settle(s);
}

static inline void scene_free_objects(struct scene *s)
{
    executor_free(s->executor);
    manager_free(s->m);
    pools_free(s->pools);
    store_close(s->store);
}

/* Ends the manager as a kill of its process does. */
static inline void scene_kill(struct scene *s)
{
    settle(s);
    scene_free_objects(s);
    turn(&s->k);
}

/* Ends everything in the order of a server that stops. */
static inline void scene_close(struct scene *s)
{
    executor_finish(s->executor);
    store_finish(s->store);
    manager_finish(s->m);
    scene_free_objects(s);
    turn(&s->k);
    ev_free(s->k.ev);
    fd_close(&s->k.jailer);
    fd_close(&s->k.runtime);
    fd_close(&s->k.cpu);
    fd_close(&s->k.oom);
    (void)take_any(-1);
    auto_free char *command = str_printf("rm -rf %s/*", scene_dir);
    assert_int_equal(system(command), 0);
}

static inline int scene_set_up(void **state UNUSED)
{
    str_copy(scene_dir, sizeof(scene_dir), "/tmp/cove-unit-XXXXXX");
    if (!mkdtemp(scene_dir))
        return -1;
    return 0;
}

static inline int scene_tear_down(void **state UNUSED)
{
    char command[120];

    snprintf(command, sizeof(command), "rm -rf %s", scene_dir);
    return system(command);
}

/* --- frames --- */

static inline void answer_list(struct scene *s)
{
    static struct jail_list list;
    uint8_t out[FRAME_PAYLOAD_MAX];

    list.n = s->stray ? 1 : 0;
    if (s->stray)
        str_copy(list.ids[0], sizeof(list.ids[0]), s->stray);
    int len = jail_list_encode(&list, out, NULL);
    put(s->k.jailer, FRAME_DONE, 0, got.f.stream, out, (size_t)len);
}

/* Takes the next frame to the jailer, if there is one. */
static inline bool take_request(struct scene *s)
{
    if (!take_any(s->k.jailer))
        return false;
    if (got.f.type == FRAME_J_LIST && (s->set.with_pools || s->stray))
        answer_list(s);
    if (got.f.type == FRAME_J_CREATE || got.f.type == FRAME_J_ADOPT) {
        static struct jail_create create;
        struct jail_id adopt;

        assert_int_equal(got.f.type == FRAME_J_CREATE ? jail_create_decode(&got.f, &create, NULL)
                                                      : jail_id_decode(&got.f, &adopt, NULL),
                         0);
        memcpy(s->create_id, got.f.type == FRAME_J_CREATE ? create.id : adopt.id, ID_SIZE);
        s->create_stream = got.f.stream;
    }
    return true;
}

/* Waits for the next request of this type to the jailer and skips others. */
static inline void expect(struct scene *s, uint8_t type)
{
    uint64_t end = now_ms() + 5000 * slow_factor();

    while (now_ms() < end) {
        ev_turn(s->k.ev, 5);
        while (take_request(s))
            if (got.f.type == type)
                return;
    }
    fail_msg("%s was never requested", frame_name(type));
}

/* Waits for the next frame of this type to the runtime and skips others. */
static inline void expect_runtime(struct scene *s, uint8_t type)
{
    uint64_t end = now_ms() + 5000 * slow_factor();

    while (now_ms() < end) {
        while (take_any(s->k.runtime))
            if (got.f.type == type)
                return;
        ev_turn(s->k.ev, 5);
    }
    fail_msg("%s was never sent", frame_name(type));
}

/* Fails if the jailer was requested to do this, other requests are skipped. */
static inline void expect_no(struct scene *s, uint8_t type)
{
    settle(s);
    while (take_request(s))
        if (got.f.type == type)
            fail_msg("%s was requested", frame_name(type));
}

static inline void expect_no_runtime(struct scene *s, uint8_t type)
{
    settle(s);
    while (take_any(s->k.runtime))
        if (got.f.type == type)
            fail_msg("%s was sent", frame_name(type));
}

static const struct jail_stats zero_stats = { 0 };

/* Answers all requests to the jailer that end a sandbox or count what it used. Returns how many
 * sandboxes were destroyed. */
static inline int obey(struct scene *s)
{
    int destroyed = 0;

    while (take_request(s)) {
        uint8_t type = got.f.type;
        struct jail_id m;

        if ((type == FRAME_J_KILL || type == FRAME_J_DESTROY) && jail_id_decode(&got.f, &m, NULL) == 0 &&
            str_eq(m.id, s->runtime_id))
            fd_close(&s->k.runtime);
        if (type == FRAME_J_KILL || type == FRAME_J_KEEP)
            jailer_ok(&s->k);
        else if (type == FRAME_J_STATS || type == FRAME_J_DESTROY)
            jailer_stats(&s->k, &zero_stats);
        destroyed += type == FRAME_J_DESTROY;
    }
    return destroyed;
}

/* An obedient jailer, until the counter changes. Returns how many sandboxes it destroyed. */
static inline int obey_until(struct scene *s, const int *counter)
{
    uint64_t end = now_ms() + 5000 * slow_factor();
    int destroyed = 0;

    while (*counter == 0 && now_ms() < end) {
        ev_turn(s->k.ev, 5);
        destroyed += obey(s);
    }
    assert_int_not_equal(*counter, 0);
    return destroyed;
}

/* Waits for a callback and checks that it is not repeated. */
static inline void answered(struct scene *s, int *n)
{
    turn_until(&s->k, n);
    settle(s);
    assert_int_equal(*n, 1);
    *n = 0;
}

static inline void jailer_made(struct scene *s)
{
    fd_close(&s->k.cpu);
    fd_close(&s->k.oom);
    fd_close(&s->k.runtime);
    memcpy(s->runtime_id, s->create_id, ID_SIZE);
    got.f.stream = s->create_stream;
    jailer_created(&s->k, ALL_OUTSIDE);
}

/* The jailer dies, and its sandboxes with it. */
static inline void jailer_is_lost(struct scene *s)
{
    fd_close(&s->k.jailer);
    fd_close(&s->k.runtime);
    turn(&s->k);
}

static inline void runtime_dies(struct scene *s)
{
    fd_close(&s->k.runtime);
    turn(&s->k);
}

/* Answers HELLO. */
static inline void runtime_greets(struct scene *s)
{
    struct rt_hello hello;

    expect_runtime(s, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(&s->k, WIRE_VERSION, hello.epoch);
}

static inline void runtime_output(struct scene *s, unsigned channel, const char *text)
{
    runtime_says(&s->k, FRAME_DATA, (uint8_t)channel, s->k.stream, text, strlen(text));
}

/* --- a language kernel, on the stream of the last EXEC --- */

static inline void kernel_says(struct scene *s, const char *line)
{
    auto_free char *text = str_printf("%s\n", line);

    runtime_output(s, RT_KERNEL, text);
}

static inline void kernel_ready(struct scene *s)
{
    kernel_says(s, "{\"event\":\"ready\",\"language\":\"bash\",\"version\":\"5.2\",\"protocol\":1}");
}

static inline void kernel_finishes(struct scene *s, const char *id, const char *status)
{
    auto_free char *line = str_printf("{\"event\":\"finished\",\"id\":\"%s\",\"status\":\"%s\"}", id, status);

    kernel_says(s, line);
}

/* Waits for the next line to the language kernel, and checks that it contains the text. */
static inline void expect_kernel_line(struct scene *s, const char *text)
{
    do
        expect_runtime(s, FRAME_DATA);
    while ((got.f.flags & RT_CHANNEL) != RT_KERNEL || got.f.len <= 1);
    auto_free char *line = str_dup_n((const char *)got.f.data, got.f.len);
    if (!strstr(line, text))
        fail_msg("%s where %s was expected", line, text);
}

static inline void expect_no_kernel_line(struct scene *s)
{
    settle(s);
    while (take_any(s->k.runtime))
        if (got.f.type == FRAME_DATA && (got.f.flags & RT_CHANNEL) == RT_KERNEL)
            fail_msg("a line was sent to the language kernel");
}
