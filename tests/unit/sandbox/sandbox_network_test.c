/* The engine and a scripted egress proxy: when a sandbox is bound, what a restarted proxy gets, and
 * what receipts report. */
#include "fake.h"

#include "core/wire/egress.h"
#include "sandbox/engine_internal.h"

#include <sys/socket.h>
#include <sys/un.h>

static int proxy = -1;    /* the proxy's end of its socket */
static int listener = -1; /* of a proxy that can be restarted */
static char path[64];

static const struct sandbox_secret key = { "openai", "sk-secret" };
static const char rules[] = "allow pypi.org\nsecret openai api.openai.com:443 header=Authorization";

static struct sandbox_spec egress_spec(void)
{
    struct sandbox_spec spec = plain_spec();

    spec.network = (struct network_policy){ .mode = NETWORK_EGRESS, .rules = rules };
    spec.secrets = &key;
    spec.nsecrets = 1;
    spec.tenant = "acme";
    spec.share = (struct egress_share){ .connections_max = 7, .connection_rate = 5, .bytes_max = 9000 };
    return spec;
}

/* --- the script of the proxy --- */

static void proxy_given(struct fake *k)
{
    struct err err = { 0 };
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    proxy = pair[1];
    assert_int_equal(engine_set_egress(k->engine, pair[0], &err), 0);
}

static void proxy_listens(void)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };

    snprintf(path, sizeof(path), "/tmp/cove-test-egress.%d", (int)getpid());
    str_copy(addr.sun_path, sizeof(addr.sun_path), path);
    (void)unlink(path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 4), 0);
}

static void proxy_accepts(struct fake *k)
{
    uint64_t end = now_ms() + 10000;

    assert_true(listener >= 0);
    while (engine_egress_absent_why(k->engine) && now_ms() < end)
        ev_turn(k->ev, 20);
    proxy = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(proxy >= 0);
}

static void proxy_dies(struct fake *k)
{
    fd_close(&proxy);
    turn(k);
}

static void proxy_takes(struct fake *k, uint8_t type)
{
    turn(k);
    take(proxy, type);
}

static void proxy_binds(struct fake *k)
{
    put(proxy, FRAME_E_BOUND, 0, got.f.stream, NULL, 0);
    turn(k);
}

static void proxy_error(struct fake *k, enum err_id id, const char *msg)
{
    struct rt_error m = { .id = id };
    uint8_t out[FRAME_PAYLOAD_MAX];

    str_copy(m.msg, sizeof(m.msg), msg);
    int len = rt_error_encode(&m, out, NULL);
    put(proxy, FRAME_E_ERROR, 0, got.f.stream, out, (size_t)len);
    turn(k);
}

static struct egress_reported report;

static void report_reset(void)
{
    report = (struct egress_reported){ .carrier = EGRESS_CARRIER_TPROXY };
}

static void report_destination(const char *host, uint64_t connections, uint64_t refused, uint64_t received,
                               const char *reason)
{
    struct egress_destination *d = &report.destinations[report.n++];

    *d = (struct egress_destination){
        .port = 443, .connections = connections, .refused = refused, .received = received
    };
    str_copy(d->host, sizeof(d->host), host);
    str_copy(d->reason, sizeof(d->reason), reason);
    report.connections += connections;
    report.refused += refused;
    report.received += received;
}

static void proxy_reports(struct fake *k)
{
    static uint8_t out[FRAME_PAYLOAD_MAX];
    int len = egress_reported_encode(&report, out, NULL);

    assert_true(len > 0);
    put(proxy, FRAME_E_REPORTED, 0, got.f.stream, out, (size_t)len);
    turn(k);
}

/* The rules of the E_BIND that was taken last. */
static void check_bind(struct fake *k, const char *want_rules, const struct sandbox_secret *want_secret)
{
    struct egress_bind m;
    void *strings;

    assert_int_equal(egress_bind_decode(&got.f, &m, &strings, NULL), 0);
    assert_string_equal(m.id, sandbox_handle_id(k->box));
    assert_string_equal(m.rules, want_rules);
    if (want_secret) {
        assert_string_equal(m.secrets[0], want_secret->name);
        assert_string_equal(m.secrets[1], want_secret->value);
        assert_null(m.secrets[2]);
    } else {
        assert_null(m.secrets[0]);
    }
    free(strings);
}

/* --- scenes --- */

static void scene_proxied(struct fake *k)
{
    scene_engine(k);
    proxy_given(k);
    k->carrier = EGRESS_CARRIER_TPROXY;
    report_reset();
}

static void scene_restartable(struct fake *k)
{
    scene_engine(k);
    proxy_listens();
    engine_connect_egress(k->engine, path);
    proxy_accepts(k);
    k->carrier = EGRESS_CARRIER_TPROXY;
    report_reset();
}

static void scene_created_here(struct fake *k, const struct sandbox_spec *spec)
{
    struct rt_hello hello;

    scene_asked(k, spec);
    jailer_takes(k, FRAME_J_TEMPLATE);
    jailer_ok(k);
    jailer_takes(k, FRAME_J_CREATE);
    jailer_created(k, ALL_OUTSIDE);
    runtime_takes(k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    k->epoch = hello.epoch;
    runtime_takes(k, FRAME_CLAIM);
}

static void runtime_ready(struct fake *k)
{
    runtime_hello(k, WIRE_VERSION, k->epoch);
    runtime_claimed(k, ALL_INSIDE, 3);
}

static void scene_bound(struct fake *k)
{
    struct sandbox_spec spec = egress_spec();

    scene_created_here(k, &spec);
    proxy_takes(k, FRAME_E_BIND);
    proxy_binds(k);
    runtime_ready(k);
    assert_int_equal(k->ready, 1);
}

static void scene_leave(struct fake *k)
{
    fd_close(&proxy);
    if (listener >= 0)
        (void)unlink(path);
    fd_close(&listener);
    scene_end(k);
}

/* --- binding --- */

TEST(a_sandbox_is_ready_when_its_runtime_and_the_proxy_have_answered)
{
    struct sandbox_spec spec = egress_spec();

    for (int proxy_first = 0; proxy_first < 2; proxy_first++) {
        struct fake k;

        scene_proxied(&k);
        scene_created_here(&k, &spec);
        proxy_takes(&k, FRAME_E_BIND);
        if (proxy_first)
            proxy_binds(&k);
        else
            runtime_ready(&k);
        assert_int_equal(k.ready, 0);
        assert_false(sandbox_handle_accepts_exec(k.box));
        if (proxy_first)
            runtime_ready(&k);
        else
            proxy_binds(&k);
        assert_int_equal(k.ready, 1);
        scene_leave(&k);
    }
}

TEST(the_jailer_learns_the_mode_and_the_proxy_everything_else)
{
    struct fake k;
    struct sandbox_spec spec = egress_spec();
    struct jail_template template;
    struct jail_create create;
    struct egress_bind m;
    void *strings;

    scene_proxied(&k);
    scene_asked(&k, &spec);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    assert_int_equal(jail_template_decode(&got.f, &template, NULL), 0);
    assert_int_equal(template.egress, 1);
    assert_true(str_ends(template.name, "-egress"));
    jailer_ok(&k);
    jailer_takes(&k, FRAME_J_CREATE);
    assert_int_equal(jail_create_decode(&got.f, &create, NULL), 0);
    assert_int_equal(create.network, NETWORK_EGRESS);
    assert_string_equal(create.template, template.name);
    silent(&k, proxy); /* the sandbox does not exist yet */
    take_any(-1);
    scene_leave(&k);

    scene_proxied(&k);
    scene_created_here(&k, &spec);
    proxy_takes(&k, FRAME_E_BIND);
    assert_int_equal(egress_bind_decode(&got.f, &m, &strings, NULL), 0);
    assert_string_equal(m.id, k.id);
    assert_string_equal(m.tenant, "acme");
    assert_int_equal(m.connections_max, 7);
    assert_int_equal(m.connection_rate, 5);
    assert_int_equal(m.bytes_max, 9000);
    free(strings);
    check_bind(&k, rules, &key);
    scene_leave(&k);
}

TEST(the_environment_names_the_proxy_unless_the_caller_does)
{
    static const char *const own[] = { "https_proxy=http://own", NULL };
    struct fake k;
    struct sandbox_spec spec = egress_spec();
    struct rt_claim m;
    void *strings;
    bool http = false, https = false, offline = false;
    char address[64];

    spec.env = own;
    scene_proxied(&k);
    scene_created_here(&k, &spec);
    assert_int_equal(rt_claim_decode(&got.f, &m, &strings, NULL), 0);
    snprintf(address, sizeof(address), "http_proxy=http://127.0.0.1:%d", EGRESS_PROXY_PORT);
    for (size_t i = 0; m.env[i]; i++) {
        http |= str_eq(m.env[i], address);
        https |= str_eq(m.env[i], own[0]);
        offline |= str_starts(m.env[i], "PIP_NO_INDEX") || str_starts(m.env[i], "UV_OFFLINE");
        assert_false(str_starts(m.env[i], "https_proxy=http://127"));
        assert_null(strstr(m.env[i], "sk-secret"));
    }
    assert_true(http && https && !offline);
    free(strings);
    scene_leave(&k);
}

TEST(a_sandbox_without_network_sends_nothing_to_the_proxy)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();
    struct exec_spec exec = { .argv = true_argv };

    scene_proxied(&k);
    scene_created_here(&k, &spec);
    runtime_ready(&k);
    scene_running_with(&k, &exec);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    assert_null(exec_handle_receipt(k.exec)->egress.absent_why);
    sandbox_handle_destroy(k.box, on_done, &k);
    jailer_removes(&k);
    assert_int_equal(k.done, 1);
    silent(&k, proxy);
    scene_leave(&k);
}

TEST(without_a_proxy_a_claim_is_refused_at_once)
{
    struct fake k;
    struct sandbox_spec spec = egress_spec();
    struct err err = { 0 };

    scene_engine(&k);
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &k.box, &err), -1);
    assert_int_equal(err.id, ERR_NETWORK_UNAVAILABLE);
    silent(&k, k.jailer);
    engine_connect_egress(k.engine, "/tmp/cove-no-such-proxy");
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &k.box, &err), -1);
    assert_int_equal(err.id, ERR_NETWORK_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "/tmp/cove-no-such-proxy"));
    scene_leave(&k);
}

TEST(a_driver_without_egress_is_refused)
{
    struct fake k;
    struct sandbox_spec spec = egress_spec();
    struct err err = { 0 };

    spec.driver = DRIVER_BWRAP;
    scene_proxied(&k);
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &k.box, &err), -1);
    assert_int_equal(err.id, ERR_DRIVER_UNSUPPORTED);
    assert_string_equal(err.msg, "driver bwrap has no network; use native, or network none");
    scene_leave(&k);
}

TEST(more_secrets_than_the_proxy_takes_are_refused)
{
    struct sandbox_secret many[EGRESS_SECRETS_MAX + 1];
    struct fake k;
    struct sandbox_spec spec = egress_spec();
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = key;
    spec.secrets = many;
    spec.nsecrets = ARRAY_LEN(many);
    scene_proxied(&k);
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &k.box, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
    silent(&k, k.jailer);
    scene_leave(&k);
}

TEST(rules_that_the_proxy_refuses_fail_the_sandbox)
{
    struct fake k;
    struct sandbox_spec spec = egress_spec();

    scene_proxied(&k);
    scene_created_here(&k, &spec);
    runtime_ready(&k);
    proxy_takes(&k, FRAME_E_BIND);
    proxy_error(&k, ERR_EGRESS_RULE, "line 1: 'x' is not a host");
    jailer_removes(&k);
    proxy_takes(&k, FRAME_E_UNBIND);
    proxy_reports(&k);
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.ready, 0);
    assert_int_equal(k.err.id, ERR_EGRESS_RULE);
    assert_non_null(strstr(k.err.msg, "is not a host"));
    scene_leave(&k);
}

TEST(a_lost_proxy_that_cannot_come_back_fails_the_claim)
{
    struct fake k;
    struct sandbox_spec spec = egress_spec();

    scene_proxied(&k);
    scene_created_here(&k, &spec);
    runtime_ready(&k);
    proxy_dies(&k);
    jailer_removes(&k);
    turn(&k);
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_NETWORK_UNAVAILABLE);
    scene_leave(&k);
}

TEST(a_claim_in_progress_survives_a_restart_of_the_proxy)
{
    struct fake k;
    struct sandbox_spec spec = egress_spec();

    scene_restartable(&k);
    scene_created_here(&k, &spec);
    runtime_ready(&k);
    proxy_takes(&k, FRAME_E_BIND);
    proxy_dies(&k);
    assert_int_equal(k.ready + k.failed, 0);
    proxy_accepts(&k);
    proxy_takes(&k, FRAME_E_BIND);
    check_bind(&k, rules, &key);
    assert_int_equal(k.ready, 0);
    proxy_binds(&k);
    assert_int_equal(k.ready, 1);
    scene_leave(&k);
}

TEST(a_restarted_proxy_gets_the_rules_and_secrets_of_living_sandboxes)
{
    struct fake k;

    scene_restartable(&k);
    scene_bound(&k);
    proxy_dies(&k);
    assert_non_null(engine_egress_absent_why(k.engine));
    proxy_accepts(&k);
    proxy_takes(&k, FRAME_E_BIND);
    check_bind(&k, rules, &key);
    proxy_binds(&k);
    silent(&k, proxy);
    assert_int_equal(k.ready, 1);
    scene_leave(&k);
}

#define MANY 40

/* The queue of a connection is bounded, and a binding may have 64 KiB. */
TEST(a_restarted_proxy_gets_bindings_as_fast_as_it_answers)
{
    struct sandbox_spec spec = egress_spec();
    struct sandbox_handle *boxes[MANY];
    int fds[MANY][3];
    uint32_t streams[MANY];
    struct fake k;
    int taken = 0;

    scene_restartable(&k);
    for (int i = 0; i < MANY; i++) {
        scene_asked(&k, &spec);
        boxes[i] = k.box;
        if (i == 0) {
            jailer_takes(&k, FRAME_J_TEMPLATE);
            jailer_ok(&k);
        }
        jailer_takes(&k, FRAME_J_CREATE);
        jailer_created(&k, ALL_OUTSIDE);
        memcpy(fds[i], ((int[]){ k.runtime, k.cpu, k.oom }), sizeof(fds[i]));
        proxy_takes(&k, FRAME_E_BIND);
        proxy_binds(&k);
    }
    proxy_dies(&k);
    sandbox_handle_free(boxes[MANY - 1]); /* it is not bound again */
    proxy_accepts(&k);
    turn(&k);
    while (take_any(proxy))
        streams[taken++] = got.f.stream;
    assert_in_range(taken, 1, MANY - 2);
    for (int i = 0; i < taken; i++) {
        put(proxy, FRAME_E_BOUND, 0, streams[i], NULL, 0);
        turn(&k);
        if (take_any(proxy))
            streams[taken++] = got.f.stream;
    }
    while (take_any(proxy))
        taken++;
    assert_int_equal(taken, MANY - 1);
    k.box = boxes[0];
    k.runtime = fds[0][0];
    k.cpu = fds[0][1];
    k.oom = fds[0][2];
    for (int i = 1; i < MANY; i++) {
        if (i < MANY - 1)
            sandbox_handle_free(boxes[i]);
        for (size_t f = 0; f < ARRAY_LEN(fds[i]); f++)
            close(fds[i][f]);
    }
    scene_leave(&k);
}

/* Their only use after E_BOUND is a proxy that is restarted. */
TEST(secrets_are_kept_only_if_a_proxy_may_need_them_again)
{
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    assert_null(k.box->egress->bind);
    scene_leave(&k);
    scene_restartable(&k);
    scene_bound(&k);
    assert_non_null(k.box->egress->bind);
    sandbox_handle_destroy(k.box, on_done, &k);
    assert_null(k.box->egress->bind);
    scene_leave(&k);
}

/* --- changes --- */

static const struct network_policy other_policy = { .mode = NETWORK_EGRESS, .rules = "allow example.org" };

TEST(a_change_is_done_when_the_proxy_has_it_and_survives_its_restart)
{
    static const struct sandbox_secret other_key = { "other", "value" };
    struct fake k;

    scene_restartable(&k);
    scene_bound(&k);
    sandbox_handle_set_network(k.box, &other_policy, &other_key, 1, on_done, &k);
    assert_int_equal(k.done, 0);
    proxy_takes(&k, FRAME_E_BIND);
    check_bind(&k, "allow example.org", &other_key);
    assert_int_equal(k.done, 0);
    proxy_binds(&k);
    assert_int_equal(k.done, 1);
    assert_true(k.done_ok);
    proxy_dies(&k);
    proxy_accepts(&k);
    proxy_takes(&k, FRAME_E_BIND);
    check_bind(&k, "allow example.org", &other_key);
    scene_leave(&k);
}

TEST(a_change_that_fails_leaves_the_rules_before_it)
{
    for (int lost = 0; lost < 2; lost++) {
        struct fake k;

        scene_restartable(&k);
        scene_bound(&k);
        sandbox_handle_set_network(k.box, &other_policy, NULL, 0, on_done, &k);
        proxy_takes(&k, FRAME_E_BIND);
        if (lost)
            proxy_dies(&k);
        else
            proxy_error(&k, ERR_EGRESS_RULE, "line 1");
        assert_int_equal(k.done, 1);
        assert_false(k.done_ok);
        assert_int_equal(k.done_err.id, lost ? ERR_NETWORK_UNAVAILABLE : ERR_EGRESS_RULE);
        if (!lost)
            proxy_dies(&k);
        proxy_accepts(&k);
        proxy_takes(&k, FRAME_E_BIND);
        check_bind(&k, rules, &key);
        scene_leave(&k);
    }
}

TEST(a_change_that_a_late_proxy_may_still_apply_is_undone)
{
    struct fake k;

    scene_restartable(&k);
    scene_bound(&k);
    sandbox_handle_set_network(k.box, &other_policy, NULL, 0, on_done, &k);
    proxy_takes(&k, FRAME_E_BIND);
    uint64_t from = now_ms();
    while (!k.done && now_ms() < from + 30000)
        ev_turn(k.ev, 50);
    assert_int_equal(k.done, 1);
    assert_int_equal(k.done_err.id, ERR_NETWORK_UNAVAILABLE);
    proxy_takes(&k, FRAME_E_BIND);
    check_bind(&k, rules, &key);
    scene_leave(&k);
}

TEST(a_change_needs_a_sandbox_with_a_network_and_a_proxy)
{
    const struct network_policy none = { .mode = NETWORK_NONE };
    struct sandbox_spec spec = plain_spec();
    struct fake k;

    scene_proxied(&k);
    scene_created_here(&k, &spec);
    runtime_ready(&k);
    sandbox_handle_set_network(k.box, &other_policy, NULL, 0, on_done, &k);
    assert_int_equal(k.done, 0); /* never inside the call */
    turn(&k);
    assert_int_equal(k.done, 1);
    assert_int_equal(k.done_err.id, ERR_NETWORK_NOT_ENABLED);
    silent(&k, proxy);
    scene_leave(&k);

    scene_proxied(&k);
    scene_bound(&k);
    sandbox_handle_set_network(k.box, &none, NULL, 0, on_done, &k);
    turn(&k);
    assert_int_equal(k.done_err.id, ERR_INVALID);
    proxy_dies(&k);
    sandbox_handle_set_network(k.box, &other_policy, NULL, 0, on_done, &k);
    turn(&k);
    assert_int_equal(k.done, 2);
    assert_int_equal(k.done_err.id, ERR_NETWORK_UNAVAILABLE);
    scene_leave(&k);
}

TEST(a_freed_sandbox_gets_no_answer_to_a_change)
{
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    sandbox_handle_set_network(k.box, &other_policy, NULL, 0, on_done, &k);
    proxy_takes(&k, FRAME_E_BIND);
    uint32_t stream = got.f.stream;
    sandbox_handle_free(k.box);
    k.box = NULL;
    proxy_takes(&k, FRAME_E_UNBIND);
    put(proxy, FRAME_E_BOUND, 0, stream, NULL, 0);
    turn(&k);
    assert_int_equal(k.done, 0);
    scene_leave(&k);
}

/* --- questions --- */

static int listed, reported;
static struct egress_listed last_list;
static struct egress_reported last_report;
static enum err_id last_error;

static void on_listed(void *arg UNUSED, const struct egress_listed *l, const struct err *err)
{
    listed++;
    last_error = err ? err->id : 0;
    if (l)
        last_list = *l;
}

static void on_reported(void *arg UNUSED, const struct egress_reported *r, const struct err *err)
{
    reported++;
    last_error = err ? err->id : 0;
    if (r)
        last_report = *r;
}

TEST(open_connections_are_listed)
{
    static struct egress_listed l;
    static uint8_t out[FRAME_PAYLOAD_MAX];
    struct sandbox_spec spec = plain_spec();
    struct fake k;

    listed = 0;
    l = (struct egress_listed){ .n = 1, .connections = { { "pypi.org", 443, EGRESS_WAY_TUNNEL, 5, 6, 7 } } };
    scene_proxied(&k);
    scene_bound(&k);
    sandbox_handle_connections(k.box, on_listed, &k);
    proxy_takes(&k, FRAME_E_LIST);
    int len = egress_listed_encode(&l, out, NULL);
    put(proxy, FRAME_E_LISTED, 0, got.f.stream, out, (size_t)len);
    turn(&k);
    assert_int_equal(listed, 1);
    assert_int_equal(last_list.n, 1);
    assert_string_equal(last_list.connections[0].host, "pypi.org");
    scene_leave(&k);

    scene_proxied(&k);
    scene_created_here(&k, &spec);
    runtime_ready(&k);
    sandbox_handle_connections(k.box, on_listed, &k);
    sandbox_handle_network_report(k.box, on_reported, &k);
    assert_int_equal(listed, 1);
    turn(&k);
    assert_int_equal(listed, 2);
    assert_int_equal(last_error, ERR_NETWORK_NOT_ENABLED);
    silent(&k, proxy);
    scene_leave(&k);
}

TEST(totals_include_those_of_a_proxy_that_ended)
{
    struct fake k;

    reported = 0;
    scene_restartable(&k);
    scene_bound(&k);
    report_destination("pypi.org", 2, 0, 100, "");
    sandbox_handle_network_report(k.box, on_reported, &k);
    proxy_takes(&k, FRAME_E_REPORT);
    proxy_reports(&k);
    assert_int_equal(last_report.connections, 2);
    sandbox_handle_network_report(k.box, on_reported, &k);
    proxy_dies(&k);
    assert_int_equal(reported, 2);
    assert_int_equal(last_error, ERR_NETWORK_UNAVAILABLE);
    proxy_accepts(&k);
    proxy_takes(&k, FRAME_E_BIND);
    proxy_binds(&k);
    sandbox_handle_network_report(k.box, on_reported, &k);
    proxy_takes(&k, FRAME_E_REPORT);
    proxy_reports(&k);
    assert_int_equal(last_report.connections, 4);
    assert_int_equal(last_report.n, 1);
    assert_int_equal(last_report.destinations[0].received, 200);
    scene_leave(&k);
}

static int used;
static void on_secret_used(void *arg UNUSED, const char *name, const char *host, uint32_t count)
{
    assert_string_equal(name, "openai");
    assert_string_equal(host, "api.openai.com");
    used += (int)count;
}

TEST(a_use_of_a_secret_is_reported_to_the_owner)
{
    static const struct sandbox_handle_ops ops = { .on_ready = on_ready,
                                                   .on_failed = on_failed,
                                                   .on_secret_used = on_secret_used };
    struct sandbox_spec spec = egress_spec();
    struct egress_secret_used m = { .name = "openai", .host = "api.openai.com", .count = 3 };
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct fake k;

    used = 0;
    scene_proxied(&k);
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &ops, &k, &k.box, NULL), 0);
    memcpy(m.id, sandbox_handle_id(k.box), sizeof(m.id));
    jailer_takes(&k, FRAME_J_TEMPLATE);
    jailer_ok(&k);
    jailer_takes(&k, FRAME_J_CREATE);
    jailer_created(&k, ALL_OUTSIDE);
    int len = egress_secret_used_encode(&m, out, NULL);
    put(proxy, FRAME_E_SECRET, 0, 0, out, (size_t)len);
    turn(&k);
    assert_int_equal(used, 3);
    m.id[2] = m.id[2] == 'a' ? 'b' : 'a';
    len = egress_secret_used_encode(&m, out, NULL);
    put(proxy, FRAME_E_SECRET, 0, 0, out, (size_t)len); /* of a sandbox that is not ours */
    turn(&k);
    assert_int_equal(used, 3);
    assert_null(engine_egress_absent_why(k.engine));
    scene_leave(&k);
}

static void on_reported_again(void *arg, const struct egress_reported *r UNUSED, const struct err *err)
{
    struct fake *k = arg;

    assert_non_null(err);
    if (++reported < 1000)
        sandbox_handle_network_report(k->box, on_reported_again, k);
}

TEST(a_client_that_repeats_failed_requests_does_not_hold_the_loop)
{
    struct fake k;

    reported = 0;
    scene_proxied(&k);
    scene_bound(&k);
    sandbox_handle_network_report(k.box, on_reported_again, &k);
    sandbox_handle_network_report(k.box, on_reported_again, &k);
    fd_close(&proxy);
    turn(&k);
    assert_in_range(reported, 4, 40);
    reported = 1000;
    scene_leave(&k);
}

TEST(a_proxy_that_breaks_the_protocol_is_lost)
{
    static uint8_t junk[FRAME_PAYLOAD_MAX];
    static const struct {
        uint8_t type;
        size_t len;
    } wrong[] = { { FRAME_E_REPORTED, 3 }, { FRAME_E_BOUND, 0 }, { FRAME_E_LISTED, 0 }, { FRAME_E_ERROR, 1 } };

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct fake k;

        reported = 0;
        scene_proxied(&k);
        scene_bound(&k);
        sandbox_handle_network_report(k.box, on_reported, &k);
        proxy_takes(&k, FRAME_E_REPORT);
        put(proxy, wrong[i].type, 0, got.f.stream, junk, wrong[i].len);
        turn(&k);
        assert_int_equal(reported, 1);
        assert_int_not_equal(last_error, 0);
        assert_non_null(engine_egress_absent_why(k.engine));
        scene_leave(&k);
    }
}

TEST(an_answer_without_a_request_is_ignored)
{
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    put(proxy, FRAME_E_BOUND, 0, 12345, NULL, 0);
    turn(&k);
    assert_null(engine_egress_absent_why(k.engine));
    scene_leave(&k);
}

TEST(a_silent_proxy_does_not_hold_a_sandbox_for_ever)
{
    struct fake k;
    struct sandbox_spec spec = egress_spec();

    scene_proxied(&k);
    scene_created_here(&k, &spec);
    runtime_ready(&k);
    proxy_takes(&k, FRAME_E_BIND);
    uint64_t from = now_ms();
    while (!take_any(k.jailer) && now_ms() < from + 30000)
        ev_turn(k.ev, 50);
    assert_int_equal(got.f.type, FRAME_J_DESTROY);
    assert_true(now_ms() - from < 10000);
    jailer_stats(&k, &no_oom);
    turn_until(&k, &k.failed);
    assert_int_equal(k.err.id, ERR_NETWORK_UNAVAILABLE);
    assert_non_null(strstr(k.err.msg, "did not answer"));
    scene_leave(&k);
}

/* --- receipts --- */

static const struct exec_spec plain_exec = { .argv = true_argv };

static const struct receipt_egress *run_once(struct fake *k)
{
    exec_handle_free(k->exec);
    k->exec = NULL;
    k->exited = k->started = 0;
    while (take_any(k->runtime)) /* the runtime forgets the stream before */
        ;
    scene_running_with(k, &plain_exec);
    runtime_exit(k, 0, 0);
    assert_int_equal(k->exited, 0);
    proxy_takes(k, FRAME_E_REPORT);
    proxy_reports(k);
    assert_int_equal(k->exited, 1);
    return &exec_handle_receipt(k->exec)->egress;
}

TEST(a_receipt_has_what_no_receipt_before_it_had)
{
    const struct receipt_egress *e;
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    report_destination("pypi.org", 1, 0, 100, "");
    e = run_once(&k);
    assert_null(e->absent_why);
    assert_int_equal(e->carrier, EGRESS_CARRIER_TPROXY);
    assert_int_equal(e->connections, 1);
    assert_int_equal(e->ndestinations, 1);
    assert_string_equal(exec_handle_receipt(k.exec)->network.rules, rules);
    report_reset();
    report_destination("pypi.org", 1, 0, 100, "");
    report_destination("example.org", 0, 4, 0, "no rule allows example.org:443");
    e = run_once(&k);
    assert_int_equal(e->connections, 0);
    assert_int_equal(e->refused, 4);
    assert_int_equal(e->ndestinations, 1);
    assert_string_equal(e->destinations[0].host, "example.org");
    e = run_once(&k);
    assert_int_equal(e->refused + e->ndestinations, 0);
    scene_leave(&k);
}

TEST(the_last_totals_of_the_sandbox_are_those_of_its_only_execution)
{
    const struct receipt_egress *e;
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    e = run_once(&k);
    assert_int_equal(e->connections, 0);
    sandbox_handle_destroy(k.box, on_done, &k);
    jailer_removes(&k);
    assert_int_equal(k.done, 0); /* the last counters are on their way */
    proxy_takes(&k, FRAME_E_UNBIND);
    report_destination("late.example", 1, 0, 50, "");
    proxy_reports(&k);
    assert_int_equal(k.done, 1);
    assert_int_equal(e->connections, 1);
    assert_string_equal(e->destinations[0].host, "late.example");
    scene_leave(&k);
}

TEST(an_execution_that_is_destroyed_has_the_counters_until_then)
{
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    scene_running_with(&k, &plain_exec);
    sandbox_handle_destroy(k.box, on_done, &k);
    proxy_takes(&k, FRAME_E_UNBIND);
    report_destination("pypi.org", 1, 0, 100, "");
    proxy_reports(&k);
    jailer_removes(&k);
    fd_close(&k.runtime);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(exec_handle_receipt(k.exec)->egress.connections, 1);
    scene_leave(&k);
}

TEST(an_execution_whose_sandbox_is_lost_has_the_counters_until_then)
{
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    scene_running_with(&k, &plain_exec);
    fd_close(&k.runtime);
    jailer_ends(&k);
    assert_int_equal(k.exited, 0);
    proxy_takes(&k, FRAME_E_REPORT);
    report_destination("pypi.org", 1, 0, 100, "");
    proxy_reports(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(exec_handle_receipt(k.exec)->egress.connections, 1);
    scene_leave(&k);
}

TEST(counters_of_a_proxy_that_ended_during_the_execution_are_absent)
{
    struct fake k;

    scene_restartable(&k);
    scene_bound(&k);
    scene_running_with(&k, &plain_exec);
    proxy_dies(&k);
    proxy_accepts(&k);
    proxy_takes(&k, FRAME_E_BIND);
    proxy_binds(&k);
    report_destination("pypi.org", 1, 0, 100, "");
    runtime_exit(&k, 0, 0);
    proxy_takes(&k, FRAME_E_REPORT);
    proxy_reports(&k);
    assert_int_equal(k.exited, 1);
    assert_non_null(strstr(exec_handle_receipt(k.exec)->egress.absent_why, "ended while the execution ran"));
    /* The next execution is counted, and does not get connections of the one before. */
    report_destination("next.example", 1, 0, 7, "");
    const struct receipt_egress *e = run_once(&k);
    assert_null(e->absent_why);
    assert_int_equal(e->connections, 1);
    assert_string_equal(e->destinations[0].host, "next.example");
    scene_leave(&k);
}

TEST(an_execution_ends_also_without_a_proxy)
{
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    scene_running_with(&k, &plain_exec);
    proxy_dies(&k);
    runtime_exit(&k, 0, 0);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_non_null(exec_handle_receipt(k.exec)->egress.absent_why);
    scene_leave(&k);
}

TEST(an_execution_that_is_freed_while_its_counters_are_requested_is_not_reported)
{
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    scene_running_with(&k, &plain_exec);
    runtime_exit(&k, 0, 0);
    proxy_takes(&k, FRAME_E_REPORT);
    exec_handle_free(k.exec);
    k.exec = NULL;
    proxy_reports(&k);
    assert_int_equal(k.exited, 0);
    scene_leave(&k);
}

TEST(a_sandbox_or_an_engine_that_is_freed_while_counters_are_requested_gets_no_answer)
{
    for (int with_engine = 0; with_engine < 2; with_engine++) {
        struct fake k;

        scene_proxied(&k);
        scene_bound(&k);
        scene_running_with(&k, &plain_exec);
        sandbox_handle_network_report(k.box, on_reported, &k);
        proxy_takes(&k, FRAME_E_REPORT);
        runtime_exit(&k, 0, 0);
        proxy_takes(&k, FRAME_E_REPORT);
        reported = 0;
        if (with_engine) {
            engine_free(k.engine);
            k.engine = NULL;
        } else {
            sandbox_handle_free(k.box);
            k.box = NULL;
            exec_handle_free(k.exec);
            k.exec = NULL;
            proxy_reports(&k);
        }
        turn(&k);
        assert_int_equal(k.exited + reported, 0);
        scene_leave(&k);
    }
}

/* The code of a context: its process lives on. */
TEST(a_collection_waits_for_the_counters_of_the_network)
{
    struct exec_spec spec = { .argv = true_argv, .is_language_kernel = true };
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    scene_running_with(&k, &spec);
    for (uint64_t i = 1; i <= 2; i++) {
        exec_handle_mark_denials(k.exec);
        assert_false(exec_handle_collect_denials(k.exec, false));
        proxy_takes(&k, FRAME_E_REPORT);
        assert_int_equal(k.collected, i - 1);
        report_reset();
        report_destination("pypi.org", i, 0, 100 * i, "");
        proxy_reports(&k);
        assert_int_equal(k.collected, i);
        assert_int_equal(exec_handle_receipt(k.exec)->egress.connections, 1);
        assert_int_equal(exec_handle_receipt(k.exec)->egress.received_bytes, 100);
    }
    exec_handle_mark_denials(k.exec);
    assert_false(exec_handle_collect_denials(k.exec, false));
    proxy_takes(&k, FRAME_E_REPORT);
    runtime_exit(&k, 1, 0); /* the process ends first */
    proxy_reports(&k);
    assert_int_equal(k.collected, 3);
    assert_int_equal(k.exited, 1);
    scene_leave(&k);
}

/* --- prepared, recycled and adopted sandboxes --- */

static void scene_prepared(struct fake *k)
{
    struct sandbox_spec spec = egress_spec();
    struct rt_hello hello;

    assert_int_equal(sandbox_handle_prepare(k->engine, &spec, &fake_box_ops, k, &k->box, NULL), 0);
    str_copy(k->id, sizeof(k->id), sandbox_handle_id(k->box));
    jailer_takes(k, FRAME_J_TEMPLATE);
    jailer_ok(k);
    jailer_takes(k, FRAME_J_CREATE);
    jailer_created(k, ALL_OUTSIDE);
    runtime_takes(k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(k, WIRE_VERSION, hello.epoch);
    assert_int_equal(k->ready, 1);
    silent(k, proxy);
    k->ready = 0;
}

static void scene_claimed(struct fake *k)
{
    struct sandbox_spec spec = egress_spec();

    assert_int_equal(sandbox_handle_claim(k->box, &spec, &fake_box_ops, k, NULL), 0);
    proxy_takes(k, FRAME_E_BIND);
    check_bind(k, rules, &key);
    runtime_takes(k, FRAME_CLAIM);
    runtime_claimed(k, ALL_INSIDE, 3);
    assert_int_equal(k->ready, 0);
    assert_false(sandbox_handle_accepts_exec(k->box));
}

TEST(a_prepared_sandbox_is_bound_by_its_claim)
{
    struct fake k;

    scene_proxied(&k);
    scene_prepared(&k);
    scene_claimed(&k);
    put(proxy, FRAME_E_BOUND, 0, got.f.stream, NULL, 0);
    scene_leave(&k);
}

TEST(a_claim_without_a_proxy_leaves_the_sandbox_unclaimed)
{
    struct sandbox_spec spec = egress_spec();
    struct err err = { 0 };
    struct fake k;

    scene_restartable(&k);
    scene_prepared(&k);
    proxy_dies(&k);
    assert_int_equal(sandbox_handle_claim(k.box, &spec, &fake_box_ops, &k, &err), -1);
    assert_int_equal(err.id, ERR_NETWORK_UNAVAILABLE);
    silent(&k, k.runtime);
    proxy_accepts(&k);
    silent(&k, proxy); /* it has no rules yet */
    assert_int_equal(sandbox_handle_claim(k.box, &spec, &fake_box_ops, &k, &err), 0);
    proxy_takes(&k, FRAME_E_BIND);
    scene_leave(&k);
}

static void runtime_was_reset(struct fake *k)
{
    struct rt_reset m = { 0 };
    uint8_t out[FRAME_PAYLOAD_MAX];

    runtime_takes(k, FRAME_RESET);
    int len = rt_reset_encode(&m, out, NULL);
    runtime_says(k, FRAME_DONE, 0, got.f.stream, out, (size_t)len);
}

TEST(a_reset_forgets_the_rules_before_the_sandbox_waits_again)
{
    struct fake k;

    scene_proxied(&k);
    scene_bound(&k);
    sandbox_handle_reset(k.box, &fake_box_ops, &k);
    k.ready = 0;
    runtime_was_reset(&k);
    silent(&k, k.jailer);
    proxy_takes(&k, FRAME_E_UNBIND);
    proxy_reports(&k);
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &no_oom);
    assert_int_equal(k.ready, 1);
    k.ready = 0;
    while (take_any(k.runtime)) /* PRELOAD_RULES */
        ;
    scene_claimed(&k);
    scene_leave(&k);
}

TEST(a_reset_whose_rules_may_still_be_in_effect_ends_the_sandbox)
{
    struct fake k;

    scene_restartable(&k);
    scene_bound(&k);
    sandbox_handle_reset(k.box, &fake_box_ops, &k);
    k.ready = 0;
    runtime_was_reset(&k);
    proxy_takes(&k, FRAME_E_UNBIND);
    proxy_dies(&k);
    jailer_removes(&k);
    assert_int_equal(k.ready, 0);
    assert_int_equal(k.failed, 1);
    scene_leave(&k);
}

static const char adopted_id[] = "sbaaaaaaaaaaaaaaaaaaaa";

static void scene_adopted(struct fake *k)
{
    struct sandbox_spec spec = egress_spec();
    struct rt_hello hello;

    assert_int_equal(sandbox_handle_adopt(k->engine, adopted_id, &spec, &fake_box_ops, k, &k->box, NULL), 0);
    jailer_takes(k, FRAME_J_ADOPT);
    jailer_created(k, ALL_OUTSIDE);
    runtime_takes(k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(k, WIRE_VERSION, hello.epoch);
    runtime_claimed(k, ALL_INSIDE, 3);
}

TEST(an_adopted_sandbox_is_bound_again_and_its_old_connections_are_in_no_receipt)
{
    const struct receipt_egress *e;
    struct fake k;

    scene_restartable(&k);
    scene_adopted(&k);
    assert_int_equal(k.ready, 0);
    proxy_takes(&k, FRAME_E_BIND);
    check_bind(&k, rules, &key);
    proxy_binds(&k);
    proxy_takes(&k, FRAME_E_REPORT);
    report_destination("old.example", 5, 0, 500, "");
    proxy_reports(&k);
    assert_int_equal(k.ready, 1);
    report_destination("new.example", 1, 0, 10, "");
    e = run_once(&k);
    assert_int_equal(e->connections, 1);
    assert_string_equal(e->destinations[0].host, "new.example");
    sandbox_handle_free(k.box); /* it is kept, and so are its rules */
    k.box = NULL;
    silent(&k, proxy);
    scene_leave(&k);
}

TEST(an_adopted_sandbox_does_not_wait_for_a_proxy)
{
    struct fake k;

    scene_engine(&k);
    report_reset();
    k.carrier = EGRESS_CARRIER_PROXY;
    proxy_listens();
    fd_close(&listener);
    engine_connect_egress(k.engine, path);
    scene_adopted(&k);
    assert_int_equal(k.ready, 1);
    proxy_listens();
    proxy_accepts(&k);
    proxy_takes(&k, FRAME_E_BIND);
    check_bind(&k, rules, &key);
    scene_leave(&k);
}

TEST(a_destroyed_sandbox_without_a_handle_is_unbound)
{
    struct fake k;

    scene_proxied(&k);
    engine_destroy_sandbox(k.engine, adopted_id);
    jailer_takes(&k, FRAME_J_DESTROY);
    proxy_takes(&k, FRAME_E_UNBIND);
    scene_leave(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_sandbox_is_ready_when_its_runtime_and_the_proxy_have_answered),
        RUN(the_jailer_learns_the_mode_and_the_proxy_everything_else),
        RUN(the_environment_names_the_proxy_unless_the_caller_does),
        RUN(a_sandbox_without_network_sends_nothing_to_the_proxy),
        RUN(without_a_proxy_a_claim_is_refused_at_once),
        RUN(a_driver_without_egress_is_refused),
        RUN(more_secrets_than_the_proxy_takes_are_refused),
        RUN(rules_that_the_proxy_refuses_fail_the_sandbox),
        RUN(a_lost_proxy_that_cannot_come_back_fails_the_claim),
        RUN(a_claim_in_progress_survives_a_restart_of_the_proxy),
        RUN(a_restarted_proxy_gets_the_rules_and_secrets_of_living_sandboxes),
        RUN(a_restarted_proxy_gets_bindings_as_fast_as_it_answers),
        RUN(secrets_are_kept_only_if_a_proxy_may_need_them_again),
        RUN(a_change_is_done_when_the_proxy_has_it_and_survives_its_restart),
        RUN(a_change_that_fails_leaves_the_rules_before_it),
        RUN(a_change_that_a_late_proxy_may_still_apply_is_undone),
        RUN(a_change_needs_a_sandbox_with_a_network_and_a_proxy),
        RUN(a_freed_sandbox_gets_no_answer_to_a_change),
        RUN(open_connections_are_listed),
        RUN(totals_include_those_of_a_proxy_that_ended),
        RUN(a_use_of_a_secret_is_reported_to_the_owner),
        RUN(a_client_that_repeats_failed_requests_does_not_hold_the_loop),
        RUN(a_proxy_that_breaks_the_protocol_is_lost),
        RUN(an_answer_without_a_request_is_ignored),
        RUN(a_silent_proxy_does_not_hold_a_sandbox_for_ever),
        RUN(a_receipt_has_what_no_receipt_before_it_had),
        RUN(the_last_totals_of_the_sandbox_are_those_of_its_only_execution),
        RUN(an_execution_that_is_destroyed_has_the_counters_until_then),
        RUN(an_execution_whose_sandbox_is_lost_has_the_counters_until_then),
        RUN(counters_of_a_proxy_that_ended_during_the_execution_are_absent),
        RUN(an_execution_ends_also_without_a_proxy),
        RUN(an_execution_that_is_freed_while_its_counters_are_requested_is_not_reported),
        RUN(a_sandbox_or_an_engine_that_is_freed_while_counters_are_requested_gets_no_answer),
        RUN(a_collection_waits_for_the_counters_of_the_network),
        RUN(a_prepared_sandbox_is_bound_by_its_claim),
        RUN(a_claim_without_a_proxy_leaves_the_sandbox_unclaimed),
        RUN(a_reset_forgets_the_rules_before_the_sandbox_waits_again),
        RUN(a_reset_whose_rules_may_still_be_in_effect_ends_the_sandbox),
        RUN(an_adopted_sandbox_is_bound_again_and_its_old_connections_are_in_no_receipt),
        RUN(an_adopted_sandbox_does_not_wait_for_a_proxy),
        RUN(a_destroyed_sandbox_without_a_handle_is_unbound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
