/* Two interfaces behind one gateway, over a real store, audit log and HTTP server. The service is
 * a set of hooks that record their calls. */
#include "tests/support/http_limits.h"
#include "tests/unit/test.h"

#include "server/gateway/audit_trail.h"
#include "server/gateway/open_streams.h"
#include "core/base/fd.h"
#include "core/base/str.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

static char dir[64], sock[96];
static struct ev *loop;
static struct store *store;
static struct auth *auth;
static struct audit *audit;
static struct gateway *gateway;
static struct http_server *server;
static uint16_t port;
static char calls[512]; /* hooks and handlers in the order of their calls */
static int first_context, second_context;

static void note(const char *what)
{
    strcat(calls, what);
    strcat(calls, ";");
}

/* --- the service --- */

static bool no_tenant_is_suspended(void *arg UNUSED, const char *tenant UNUSED)
{
    return false;
}

static bool no_sandbox_is_live(void *arg UNUSED, const char *sandbox UNUSED)
{
    return false;
}

static const char *owner_of_every_sandbox(void *arg UNUSED, const char *sandbox UNUSED)
{
    return "anna";
}

static int find_no_context(void *arg UNUSED, const char *owner UNUSED, const char *sandbox UNUSED,
                           const char *context UNUSED, bool *ret_starting UNUSED, struct err *err)
{
    return err_set(err, ERR_MISSING, "there is no such context");
}

static void flush_ends(void *arg UNUSED)
{
    note("flush");
}

/* --- the interfaces --- */

static uint64_t count_records(void)
{
    struct audit_stats s;

    audit_stats(audit, &s);
    return s.records;
}

static void first_handler(struct http_req *req, void *ctx)
{
    assert_ptr_equal(ctx, &first_context);
    note("first");
    http_answer_empty(req, 204);
}

static void second_handler(struct http_req *req, void *ctx)
{
    assert_ptr_equal(ctx, &second_context);
    assert_ptr_equal(gateway_of_request(req), gateway);
    note("second");
    http_answer_empty(req, 204);
}

static void accepting_handler(struct http_req *req, void *ctx UNUSED)
{
    uint64_t before = count_records();

    audit_trail_record_accepted(req);
    assert_int_equal(count_records(), before + 2); /* one of them for the tenant of the sandbox */
    http_answer_empty(req, 204);
    assert_int_equal(count_records(), before + 2);
    gateway_commit_acknowledged_ends(gateway);
    assert_int_equal(count_records(), before + 4);
}

static void failing_handler(struct http_req *req, void *ctx UNUSED)
{
    struct err err = { 0 };

    err_set(&err, ERR_QUOTA, "too many sandboxes");
    err.limit = (struct err_limit){ .name = "sandboxes", .used = 2, .requested = 1, .max = 2, .retry_ms = 1500 };
    http_answer_err(req, &err);
}

static const struct gateway_permission open_to_all = { .is_public = true };
static const struct gateway_permission any_principal = { 0 };
static const struct http_route first_routes[] = {
    { "GET", "/first", first_handler, .data = &any_principal },
    { "GET", "/public", first_handler, .data = &open_to_all },
    { 0 },
};
static const struct http_route second_routes[] = {
    { "GET", "/second", second_handler, .data = &any_principal },
    { "POST", "/second/{sandboxId}", accepting_handler, .data = &any_principal },
    { "POST", "/fail", failing_handler, .data = &any_principal },
    { 0 },
};
static const struct http_route *const first_tables[] = { first_routes, NULL };
static const struct http_route *const second_tables[] = { second_routes, NULL };

/* --- set-up --- */

static int open_stores(struct err *err)
{
    auto_free char *db = str_printf("%s/cove.db", dir), *log = str_printf("%s/audit", dir);
    struct store_settings store_set = { .url.file = db };
    struct auth_settings auth_set = { .owner_uid = geteuid() };
    struct audit_settings audit_set = { .dir = log };
    struct audit_open_report found;

    if (store_open(loop, &store_set, &store, err) < 0 || auth_new(loop, store, &auth_set, &auth, err) < 0)
        return -1;
    return audit_open(loop, &audit_set, &audit, &found, err);
}

static int open_server(struct err *err)
{
    const struct http_tables tables[] = { { first_tables, &first_context }, { second_tables, &second_context }, { 0 } };
    struct http_settings set = { .limits = http_limits_for_tests(), .tables = tables };

    gateway = gateway_new(&(struct gateway_settings){ .ev = loop,
                                                      .store = store,
                                                      .auth = auth,
                                                      .audit = audit,
                                                      .hooks = { .tenant_is_suspended = no_tenant_is_suspended,
                                                                 .sandbox_is_live = no_sandbox_is_live,
                                                                 .sandbox_owner = owner_of_every_sandbox,
                                                                 .find_context = find_no_context,
                                                                 .flush_acknowledged_ends = flush_ends } });
    gateway_add_routes(gateway, first_tables);
    gateway_add_routes(gateway, second_tables);
    set.ctx = gateway;
    set.on_request = gateway_on_request;
    set.on_done = gateway_on_done;
    if (http_server_new(loop, &set, &server, err) < 0 || http_listen_tcp(server, "127.0.0.1:0", &port, err) < 0)
        return -1;
    return http_listen_unix(server, sock, 0600, err);
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    strcpy(dir, "/tmp/gateway-XXXXXX");
    calls[0] = '\0';
    if (!mkdtemp(dir))
        return -1;
    snprintf(sock, sizeof(sock), "%s/s", dir);
    return ev_new(&loop, &err) < 0 || open_stores(&err) < 0 || open_server(&err) < 0 ? -1 : 0;
}

static int teardown(void **state UNUSED)
{
    auto_free char *command = str_printf("rm -rf %s", dir);

    http_server_free(server);
    gateway_free(gateway);
    audit_close(audit);
    auth_free(auth);
    store_close(store);
    ev_free(loop);
    return system(command);
}

static int dial_tcp(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* The user of this process is the local owner and needs no key. */
static int dial_unix(void)
{
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(str_copy(to.sun_path, sizeof(to.sun_path), sock));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Sends a request and returns everything received until the server closed. */
static const char *ask(int socket_fd, const char *line)
{
    static char answer[65536];
    auto_fd int fd = socket_fd;
    auto_free char *text = str_printf("%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", line);
    size_t n = 0;

    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
    fd_nonblock(fd, true);
    for (int i = 0; i < 5000; i++) {
        ev_turn(loop, 2);
        ssize_t got = read(fd, answer + n, sizeof(answer) - 1 - n);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    answer[n] = '\0';
    return answer;
}

/* --- tests --- */

TEST(each_interface_gets_its_own_context)
{
    assert_true(str_starts(ask(dial_unix(), "GET /first"), "HTTP/1.1 204"));
    assert_true(str_starts(ask(dial_unix(), "GET /second"), "HTTP/1.1 204"));
    assert_string_equal(calls, "flush;first;flush;second;");
}

TEST(acknowledged_ends_are_committed_before_a_later_request_is_read)
{
    /* accepting_handler checks the outcome of its own audit record */
    assert_true(str_starts(ask(dial_unix(), "POST /second/sb1"), "HTTP/1.1 204"));
    assert_string_equal(calls, "flush;flush;");
    assert_true(str_starts(ask(dial_unix(), "GET /first"), "HTTP/1.1 204"));
    assert_string_equal(calls, "flush;flush;flush;first;");
}

TEST(a_request_without_credential_reaches_only_public_routes)
{
    const char *refusal = ask(dial_tcp(), "GET /second");

    assert_true(str_starts(refusal, "HTTP/1.1 401"));
    assert_non_null(strcasestr(refusal, "WWW-Authenticate: Bearer"));
    assert_null(strstr(calls, "second"));
    assert_true(str_starts(ask(dial_tcp(), "GET /public"), "HTTP/1.1 204"));
    assert_non_null(strstr(calls, "first"));
}

TEST(an_exceeded_quota_is_answered_with_its_numbers_and_the_time_to_retry)
{
    const char *refusal = ask(dial_unix(), "POST /fail");

    assert_non_null(strstr(refusal, "{\"limit\":\"sandboxes\",\"max\":2,\"used\":2,\"requested\":1}"));
    assert_non_null(strcasestr(refusal, "Retry-After: 2\r\n"));
}

TEST(requests_are_counted_by_route_and_status)
{
    const struct gateway_counter *c;

    ask(dial_unix(), "GET /first");
    ask(dial_unix(), "GET /first");
    ask(dial_tcp(), "GET /first");
    ask(dial_unix(), "GET /nowhere");
    assert_int_equal(gateway_counters(gateway, &c), 2);
    assert_ptr_equal(c[0].route, &first_routes[0]);
    assert_int_equal(c[0].requests[2], 2);
    assert_int_equal(c[0].requests[4], 1);
    assert_null(c[1].route);
    assert_int_equal(c[1].requests[4], 1);
}

static void note_end(void *arg, const struct err *why)
{
    note(arg);
    note(err_info(why->id)->code);
}

TEST(streams_end_with_their_credential_or_when_the_server_stops)
{
    struct principal key = { .kind = PRINCIPAL_KEY, .key_id = "k1", .owner = "anna" };
    struct principal token = { .kind = PRINCIPAL_SANDBOX_TOKEN, .key_id = "k2", .owner = "bert" };
    struct open_stream a, b, c, d;

    open_stream_register(&a, gateway, &key, note_end, (char[]){ "a" });
    open_stream_register(&b, gateway, &token, note_end, (char[]){ "b" });
    open_stream_register(&c, gateway, &token, note_end, (char[]){ "c" });
    open_stream_register(&d, gateway, &key, note_end, (char[]){ "d" });
    d.is_endless = true;
    open_stream_unregister(&c);
    open_streams_end_delegated(gateway);
    assert_string_equal(calls, "b;unauthorized;");
    open_streams_end_endless(gateway);
    assert_string_equal(calls, "b;unauthorized;d;service_unavailable;");
    open_streams_end_revoked(gateway, "k1");
    assert_string_equal(calls, "b;unauthorized;d;service_unavailable;a;unauthorized;");
    open_streams_end_revoked(gateway, "k1");
    assert_string_equal(calls, "b;unauthorized;d;service_unavailable;a;unauthorized;");
}

#define RUN_GATEWAY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_GATEWAY(each_interface_gets_its_own_context),
        RUN_GATEWAY(acknowledged_ends_are_committed_before_a_later_request_is_read),
        RUN_GATEWAY(a_request_without_credential_reaches_only_public_routes),
        RUN_GATEWAY(an_exceeded_quota_is_answered_with_its_numbers_and_the_time_to_retry),
        RUN_GATEWAY(requests_are_counted_by_route_and_status),
        RUN_GATEWAY(streams_end_with_their_credential_or_when_the_server_stops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
