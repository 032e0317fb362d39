/* The engine with a real jailer, a real runtime and a real egress proxy: how rules reach a sandbox,
 * and what the engine learns of its connections. The origin is a process of this test. */
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/prctl.h>

#define ORIGIN_ADDRESS "127.0.0.2"

static pid_t proxy, origin;
static uint16_t origin_port;
static char origin_rule[64];

/* --- the origin: one answer for each connection; "/slow" takes three seconds --- */

static void origin_answer(int sock)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
    char request[4096];
    ssize_t n = read(sock, request, sizeof(request) - 1);

    request[n > 0 ? n : 0] = '\0';
    if (strstr(request, "/slow"))
        sleep(3);
    if (write(sock, answer, sizeof(answer) - 1) < 0)
        _exit(1);
}

static void origin_serve(int listener)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGCHLD, SIG_IGN);
    for (int sock; (sock = accept(listener, NULL, NULL)) >= 0; close(sock))
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            origin_answer(sock);
            _exit(0);
        }
    _exit(1);
}

static int start_origin(void **state)
{
    struct sockaddr_in addr = { .sin_family = AF_INET };
    socklen_t len = sizeof(addr);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, ORIGIN_ADDRESS, &addr.sin_addr);
    if (listener < 0 || bind(listener, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(listener, 64) < 0 ||
        getsockname(listener, (struct sockaddr *)&addr, &len) < 0)
        return -1;
    origin_port = ntohs(addr.sin_port);
    snprintf(origin_rule, sizeof(origin_rule), "allow " ORIGIN_ADDRESS "/32:%u", origin_port);
    origin = fork();
    if (origin == 0)
        origin_serve(listener);
    close(listener);
    return make_state_dir(state);
}

static int stop_origin(void **state)
{
    kill(origin, SIGKILL);
    waitpid(origin, NULL, 0);
    return remove_state_dir(state);
}

/* --- the world with a proxy --- */

static void start_proxy(int *ret_engine)
{
    char jailer_fd[16], engine_fd[16];
    int listeners[2], engine[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, listeners), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, engine), 0);
    proxy = fork();
    if (proxy == 0) {
        snprintf(jailer_fd, sizeof(jailer_fd), "%d", listeners[1]);
        snprintf(engine_fd, sizeof(engine_fd), "%d", engine[1]);
        fcntl(listeners[1], F_SETFD, 0);
        fcntl(engine[1], F_SETFD, 0);
        execl(getenv("COVE_EGRESS"), "cove-egress", "--jailer-fd", jailer_fd, "--engine-fd", engine_fd, "--open-ranges",
              "127.0.0.0/8", NULL);
        _exit(126);
    }
    close(listeners[1]);
    close(engine[1]);
    world_egress = listeners[0];
    *ret_engine = engine[0];
}

static void open_network(struct world *w)
{
    struct err err = { 0 };
    int engine;

    start_proxy(&engine);
    open_world(w);
    close(world_egress);
    world_egress = 0;
    assert_int_equal(engine_set_egress(w->engine, engine, &err), 0);
}

static void close_network(struct world *w)
{
    int status;

    close_world(w);
    assert_int_equal(waitpid(proxy, &status, 0), proxy); /* it ends with its sockets */
}

static struct sandbox_spec network_spec(const char *rules)
{
    struct sandbox_spec spec = plain_spec();

    spec.driver = DRIVER_NATIVE;
    spec.network = (struct network_policy){ .mode = NETWORK_EGRESS, .rules = rules };
    return spec;
}

static void begin_with(struct world *w, const char *rules, const struct exec_spec *exec)
{
    struct sandbox_spec spec = network_spec(rules);
    struct err err = { 0 };

    open_network(w);
    w->spec = exec;
    if (sandbox_handle_new(w->engine, &spec, &box_ops, w, &w->box, &err) < 0)
        fail_msg("sandbox_handle_new: %s", err.msg);
}

/* One more program in the sandbox; its output replaces that of the one before. */
static const struct receipt_egress *run_again(struct world *w, const struct exec_spec *spec)
{
    struct err err = { 0 };

    exec_handle_free(w->exec);
    w->exec = NULL;
    w->exited = 0;
    buf_done(&w->out);
    buf_done(&w->errout);
    if (sandbox_handle_exec(w->box, spec, &exec_ops, w, &w->exec, &err) < 0)
        fail_msg("sandbox_handle_exec: %s", err.msg);
    turn_until(w, &w->exited, 30);
    return &exec_handle_receipt(w->exec)->egress;
}

static char fetch_script[160];

static struct exec_spec fetch_exec(const char *path)
{
    static const char *argv[] = { "sh", "-c", fetch_script, NULL };

    snprintf(fetch_script, sizeof(fetch_script),
             "curl -sS --max-time 10 -w '%%{http_code}' http://" ORIGIN_ADDRESS ":%u%s", origin_port, path);
    return (struct exec_spec){ .argv = argv, .wall_ms = 30000 };
}

/* --- tests --- */

TEST(an_allowed_origin_is_reached_and_its_bytes_are_in_the_receipt)
{
    struct exec_spec exec = fetch_exec("/");
    struct world w;

    begin_with(&w, origin_rule, &exec);
    turn_until(&w, &w.exited, 30);
    expect_end(&w, ENDED_EXIT);
    assert_string_equal(w.out.data, "hello\n200");
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_int_not_equal(r->egress.carrier, EGRESS_CARRIER_NONE);
    assert_null(r->egress.absent_why);
    assert_int_equal(r->egress.connections, 1);
    assert_int_equal(r->egress.ndestinations, 1);
    assert_string_equal(r->egress.destinations[0].host, ORIGIN_ADDRESS);
    assert_int_equal(r->egress.destinations[0].port, origin_port);
    assert_in_range(r->egress.received_bytes, 6, 4096);
    destroy(&w);
    assert_int_equal(r->egress.connections, 1);
    close_network(&w);
}

TEST(a_refused_origin_is_named_and_a_change_of_rules_applies_at_once)
{
    const struct network_policy allowed = { .mode = NETWORK_EGRESS, .rules = origin_rule };
    const struct network_policy nothing = { .mode = NETWORK_EGRESS, .rules = "" };
    struct exec_spec exec = fetch_exec("/");
    const struct receipt_egress *e;
    struct world w;

    begin_with(&w, "", &exec);
    turn_until(&w, &w.exited, 30);
    assert_true(str_ends(w.out.data, "403"));
    e = &exec_handle_receipt(w.exec)->egress;
    assert_int_equal(e->refused, 1);
    assert_int_equal(e->connections, 0);
    assert_true(str_starts(e->destinations[0].reason, "no rule"));
    sandbox_handle_set_network(w.box, &allowed, NULL, 0, on_done, &w);
    turn_until(&w, &w.done, 10);
    assert_true(w.done_ok);
    e = run_again(&w, &exec);
    assert_string_equal(w.out.data, "hello\n200");
    assert_int_equal(e->connections, 1);
    assert_int_equal(e->refused, 0);
    w.done = 0;
    sandbox_handle_set_network(w.box, &nothing, NULL, 0, on_done, &w);
    turn_until(&w, &w.done, 10);
    e = run_again(&w, &exec);
    assert_true(str_ends(w.out.data, "403"));
    assert_int_equal(e->refused, 1);
    w.done = 0;
    destroy(&w);
    close_network(&w);
}

TEST(rules_that_the_proxy_cannot_read_fail_the_sandbox)
{
    struct world w;

    begin_with(&w, "allow not a rule", NULL);
    for (int i = 0; i < 300 && !w.failed; i++)
        ev_turn(w.ev, 100);
    assert_int_equal(w.failed, 1);
    assert_int_equal(w.ready, 0);
    assert_non_null(strstr(w.err.msg, "network rules"));
    close_network(&w);
}

static struct egress_listed last_list;
static int listed;

static void on_listed(void *arg UNUSED, const struct egress_listed *l, const struct err *err)
{
    assert_null(err);
    last_list = *l;
    listed++;
}

TEST(an_open_connection_is_listed_and_a_stricter_rule_ends_it)
{
    const struct network_policy nothing = { .mode = NETWORK_EGRESS, .rules = "" };
    struct exec_spec exec = fetch_exec("/slow");
    struct world w;

    begin_with(&w, origin_rule, &exec);
    turn_until(&w, &w.started, 30);
    for (last_list.n = 0; last_list.n == 0 && !w.exited;) {
        listed = 0;
        sandbox_handle_connections(w.box, on_listed, &w);
        turn_until(&w, &listed, 10);
    }
    assert_int_equal(last_list.n, 1);
    assert_string_equal(last_list.connections[0].host, ORIGIN_ADDRESS);
    sandbox_handle_set_network(w.box, &nothing, NULL, 0, on_done, &w);
    turn_until(&w, &w.done, 10);
    turn_until(&w, &w.exited, 10);
    assert_false(str_ends(w.out.data ? w.out.data : "", "200"));
    w.done = 0;
    destroy(&w);
    close_network(&w);
}

TEST(a_sandbox_without_network_has_no_listeners)
{
    struct exec_spec exec = { .argv = SH("curl -sS --proxy http://127.0.0.1:3128 http://" ORIGIN_ADDRESS "/; echo $?"),
                              .wall_ms = 30000 };
    struct sandbox_spec spec = plain_spec();
    struct world w;

    open_network(&w);
    w.spec = &exec;
    assert_int_equal(sandbox_handle_new(w.engine, &spec, &box_ops, &w, &w.box, NULL), 0);
    turn_until(&w, &w.exited, 30);
    assert_string_equal(w.out.data, "7\n"); /* curl: failed to connect */
    assert_int_equal(exec_handle_receipt(w.exec)->egress.carrier, EGRESS_CARRIER_NONE);
    destroy(&w);
    close_network(&w);
}

TEST(a_prepared_sandbox_serves_each_claim_with_the_rules_of_that_claim)
{
    struct exec_spec exec = fetch_exec("/"), quiet = { .argv = SH("true"), .wall_ms = 30000 };
    struct sandbox_spec strict = network_spec(""), wide = network_spec(origin_rule);
    struct err err = { 0 };
    struct world w;

    open_network(&w);
    assert_int_equal(sandbox_handle_prepare(w.engine, &strict, &box_ops, &w, &w.box, &err), 0);
    turn_until(&w, &w.ready, 30);
    w.ready = 0;
    assert_int_equal(sandbox_handle_claim(w.box, &wide, &box_ops, &w, &err), 0);
    turn_until(&w, &w.ready, 30);
    run_again(&w, &quiet);
    w.ready = 0;
    exec_handle_free(w.exec);
    w.exec = NULL;
    sandbox_handle_reset(w.box, &box_ops, &w);
    turn_until(&w, &w.ready, 30);
    /* The listeners of the proxy do not count as sockets of the claim before. */
    assert_int_equal(sandbox_handle_reset_report(w.box)->sockets, 0);
    w.ready = 0;
    assert_int_equal(sandbox_handle_claim(w.box, &strict, &box_ops, &w, &err), 0);
    turn_until(&w, &w.ready, 30);
    const struct receipt_egress *e = run_again(&w, &exec);
    assert_true(str_ends(w.out.data, "403"));
    assert_int_equal(e->connections, 0);
    assert_int_equal(e->refused, 1);
    destroy(&w);
    close_network(&w);
}

TEST(a_proxy_that_was_killed_lets_executions_end)
{
    struct exec_spec exec = { .argv = SH("curl -sS --max-time 2 http://" ORIGIN_ADDRESS "/; echo $?"),
                              .wall_ms = 30000 },
                     quiet = { .argv = SH("true"), .wall_ms = 30000 };
    struct world w;

    begin_with(&w, origin_rule, &quiet);
    turn_until(&w, &w.exited, 30);
    kill(proxy, SIGKILL);
    for (int i = 0; i < 100 && !engine_egress_absent_why(w.engine); i++)
        ev_turn(w.ev, 100);
    const struct receipt_egress *e = run_again(&w, &exec);
    assert_string_not_equal(w.out.data, "0\n");
    assert_non_null(e->absent_why);
    destroy(&w);
    close_network(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(an_allowed_origin_is_reached_and_its_bytes_are_in_the_receipt),
        RUN(a_refused_origin_is_named_and_a_change_of_rules_applies_at_once),
        RUN(rules_that_the_proxy_cannot_read_fail_the_sandbox),
        RUN(an_open_connection_is_listed_and_a_stricter_rule_ends_it),
        RUN(a_sandbox_without_network_has_no_listeners),
        RUN(a_prepared_sandbox_serves_each_claim_with_the_rules_of_that_claim),
        RUN(a_proxy_that_was_killed_lets_executions_end),
    };

    return cmocka_run_group_tests(tests, start_origin, stop_origin);
}
