/* A webhook and its receiver in one loop. The receiver is a few lines on a socket, so that it can
 * misbehave. */
#include "tests/unit/test.h"

#include "server/audit/webhook.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static struct ev *loop;
static int listener, client = -1;
static struct ev_io on_listener, on_client;
static uint16_t port;
static unsigned requests;
static struct buf got; /* the last request */
static const char *answer;
static unsigned good_after; /* the first requests answered with status 500 */
static bool endless;

static void drop(void)
{
    ev_io_del(loop, &on_client);
    fd_close(&client);
}

static bool whole(void)
{
    char *end = got.data ? strstr(got.data, "\r\n\r\n") : NULL,
         *length = got.data ? strcasestr(got.data, "content-length:") : NULL;

    return end && length && got.len >= (size_t)(end + 4 - got.data) + (size_t)atoi(length + 15);
}

static void on_bytes(void *arg UNUSED, uint32_t events UNUSED)
{
    char piece[8192];
    ssize_t n = read(client, piece, sizeof(piece));

    if (n <= 0) {
        drop();
        return;
    }
    buf_add(&got, piece, (size_t)n);
    if (!whole())
        return;
    requests++;
    if (requests <= good_after) {
        static const char busy[] = "HTTP/1.1 500 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

        assert_int_equal(fd_write_all(client, busy, sizeof(busy) - 1), 0);
        drop();
    } else if (answer) {
        assert_int_equal(fd_write_all(client, answer, strlen(answer)), 0);
        if (!endless)
            drop();
        else {
            char big[65536];

            memset(big, 'x', sizeof(big));
            for (int i = 0; i < 64 && send(client, big, sizeof(big), MSG_NOSIGNAL | MSG_DONTWAIT) > 0; i++)
                continue;
        }
    } /* else: no response */
}

static void on_connect(void *arg UNUSED, uint32_t events UNUSED)
{
    struct err err = { 0 };

    if (client >= 0)
        drop();
    client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    buf_clear(&got);
    if (client >= 0)
        assert_int_equal(ev_io_add(loop, &on_client, client, EPOLLIN, on_bytes, NULL, &err), 0);
}

static int setup(void **state UNUSED)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    struct err err = { 0 };

    requests = good_after = 0;
    endless = false;
    answer = "HTTP/1.1 204 ok\r\nConnection: close\r\n\r\n";
    if (ev_new(&loop, &err) < 0)
        return -1;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&in, len) < 0 || listen(listener, 64) < 0 ||
        getsockname(listener, (struct sockaddr *)&in, &len) < 0)
        return -1;
    port = ntohs(in.sin_port);
    return ev_io_add(loop, &on_listener, listener, EPOLLIN, on_connect, NULL, &err);
}

static int teardown(void **state UNUSED)
{
    drop();
    ev_io_del(loop, &on_listener);
    fd_close(&listener);
    buf_done(&got);
    ev_free(loop);
    return 0;
}

static struct webhook *make(const char *host, const char *const *allow, uint64_t deadline_ns, struct err *err)
{
    auto_free char *url = str_printf("http://%s:%u/hook", host, port);
    struct webhook_settings set = {
        .url = url, .allow = allow, .secret = "key", .retry_ns = NS_PER_MS, .tries = 4, .deadline_ns = deadline_ns
    };
    struct webhook *w = NULL;

    return webhook_new(loop, &set, &w, err) < 0 ? NULL : w;
}

static const char *const here[] = { "127.0.0.1", NULL };

static struct webhook_stats settle(struct webhook *w)
{
    struct webhook_stats s;

    for (webhook_stats(w, &s); s.waiting; webhook_stats(w, &s))
        ev_turn(loop, 100);
    return s;
}

static char *header(const char *name)
{
    const char *at = strstr(got.data, name);

    assert_non_null(at);
    at += strlen(name) + 2;
    return str_dup_n(at, strcspn(at, "\r"));
}

TEST(SR08_a_delivery_has_an_id_and_its_signature_covers_the_time)
{
    struct err err = { 0 };
    auto_(webhook) w = make("127.0.0.1", here, 0, &err);
    char want[65], other[65];

    assert_non_null(w);
    webhook_send(w, "{\"a\":1}", 7);
    struct webhook_stats s = settle(w);
    assert_int_equal(s.delivered, 1);
    assert_int_equal(requests, 1);
    auto_free char *stamp = header("Cove-Timestamp"), *signature = header("Cove-Signature"),
                   *id = header("Cove-Delivery");
    uint64_t at = strtoull(stamp, NULL, 10), now = clock_real_ns() / NS_PER_S;
    assert_true(at <= now && at + 300 > now);
    webhook_signature("key", at, "{\"a\":1}", 7, want);
    assert_true(str_starts(signature, "v1="));
    assert_string_equal(signature + 3, want);
    assert_true(str_starts(id, "wh"));
    assert_non_null(strstr(got.data, "\r\n\r\n{\"a\":1}"));
    webhook_signature("key", at + 1, "{\"a\":1}", 7, other);
    assert_string_not_equal(want, other); /* the time is signed too */
    webhook_signature("other", at, "{\"a\":1}", 7, other);
    assert_string_not_equal(want, other);
    webhook_signature("key", at, "{\"a\":2}", 7, other);
    assert_string_not_equal(want, other);
}

TEST(SR08_the_signature_is_a_standard_hmac_sha256)
{
    char hex[65];

    /* printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac secret */
    webhook_signature("secret", 1700000000, "{\"a\":1}", 7, hex);
    assert_string_equal(hex, "49f24e537407743fa4a0242bb63b94b9a47ee99cbbe071ccd8a22550ae411686");
}

TEST(a_failing_receiver_is_retried_and_events_stay_in_order)
{
    struct err err = { 0 };
    auto_(webhook) w = make("127.0.0.1", here, 0, &err);

    good_after = 2;
    webhook_send(w, "{\"n\":1}", 7);
    webhook_send(w, "{\"n\":2}", 7);
    struct webhook_stats s = settle(w);
    assert_int_equal(s.delivered, 2);
    assert_int_equal(s.failed, 2);
    assert_int_equal(s.dropped, 0);
    assert_int_equal(requests, 4);
    assert_non_null(strstr(got.data, "{\"n\":2}"));
}

TEST(an_undeliverable_event_is_dropped_and_a_rejected_one_immediately)
{
    struct err err = { 0 };
    auto_(webhook) w = make("127.0.0.1", here, 0, &err);

    good_after = 100;
    webhook_send(w, "{}", 2);
    assert_int_equal(settle(w).dropped, 1);
    assert_int_equal(requests, 4);
    good_after = 0;
    requests = 0;
    answer = "HTTP/1.1 410 gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    webhook_send(w, "{}", 2);
    assert_int_equal(settle(w).dropped, 2);
    assert_int_equal(requests, 1);
}

TEST(a_full_queue_drops_the_oldest_event)
{
    struct err err = { 0 };
    auto_(webhook) w = make("127.0.0.1", here, 0, &err);
    struct webhook_stats s;

    for (unsigned i = 0; i < WEBHOOK_QUEUE_MAX + 50; i++) {
        auto_free char *body = str_printf("{\"n\":%u}", i);

        webhook_send(w, body, strlen(body));
    }
    webhook_stats(w, &s);
    assert_int_equal(s.waiting, WEBHOOK_QUEUE_MAX);
    assert_int_equal(s.dropped, 50);
    s = settle(w);
    assert_int_equal(s.delivered, WEBHOOK_QUEUE_MAX);
    assert_non_null(strstr(got.data, "{\"n\":305}"));
}

TEST(SR01_a_url_with_a_private_address_is_refused)
{
    static const char *const bad[] = { "127.0.0.1",  "[::1]",  "169.254.169.254",    "10.0.0.1",
                                       "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0177.0.0.1" };
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        err = (struct err){ 0 };
        auto_(webhook) w = make(bad[i], NULL, 0, &err);
        if (w)
            fail_msg("%s was accepted", bad[i]);
        assert_true(err.id == ERR_DENIED || err.id == ERR_INVALID);
    }
}

TEST(SR02_a_name_that_resolves_to_a_private_address_is_refused_on_connect)
{
    struct err err = { 0 };
    auto_(webhook) w = make("localhost", NULL, 0, &err); /* a name: its address is known only after the lookup */

    assert_non_null(w);
    webhook_send(w, "{}", 2);
    struct webhook_stats s = settle(w);
    assert_int_equal(s.dropped, 1);
    assert_int_equal(s.failed, 1);
    assert_int_equal(requests, 0);
}

TEST(SR02_redirects_are_not_followed_and_other_schemes_refused)
{
    static const char *const bad[] = { "file:///etc/passwd",
                                       "gopher://example.org/",
                                       "unix:/run/x",
                                       "ftp://example.org/",
                                       "//example.org/",
                                       "example.org",
                                       "",
                                       "http://",
                                       "http:///x",
                                       "https://exa mple.org/" };
    struct err err = { 0 };
    auto_(webhook) w = make("127.0.0.1", here, 0, &err);

    answer = "HTTP/1.1 302 there\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    webhook_send(w, "{}", 2);
    struct webhook_stats s = settle(w);
    assert_int_equal(s.delivered, 0);
    assert_int_equal(s.dropped, 1);
    assert_int_equal(requests, 4); /* the original address, once per try */
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct webhook *none = NULL;

        if (webhook_new(loop, &(struct webhook_settings){ .url = bad[i], .secret = "x" }, &none, &err) == 0)
            fail_msg("'%s' was accepted", bad[i]);
    }
}

TEST(SR03_an_endless_or_absent_response_does_not_block)
{
    struct err err = { 0 };
    auto_(webhook) patient = make("127.0.0.1", here, 0, &err);
    auto_(webhook) w = make("127.0.0.1", here, 200 * NS_PER_MS, &err);

    answer = "HTTP/1.1 200 ok\r\nContent-Type: text/plain\r\n\r\n";
    endless = true;
    webhook_send(patient, "{}", 2);
    struct webhook_stats s = settle(patient);
    assert_int_equal(s.delivered, 1); /* the status was received; the body is not read */
    endless = false;
    answer = NULL;
    webhook_send(w, "{}", 2);
    s = settle(w);
    assert_int_equal(s.dropped, 1);
    assert_int_equal(s.failed, 4);
    auto_buf huge = { 0 };
    buf_adds(&huge, "HTTP/1.1 200 ok\r\n");
    for (int i = 0; i < 4000; i++)
        buf_addf(&huge, "X-%d: %0*d\r\n", i, 100, 0);
    buf_adds(&huge, "\r\n");
    answer = huge.data;
    webhook_send(w, "{}", 2);
    assert_int_equal(settle(w).dropped, 2);
}

TEST(SR04_a_user_name_or_password_in_the_url_is_refused)
{
    struct webhook *w = NULL;
    struct err err = { 0 };

    assert_int_equal(webhook_new(loop,
                                 &(struct webhook_settings){ .url = "https://me:secret@example.org/", .secret = "x" },
                                 &w, &err),
                     -1);
    assert_non_null(strstr(err.msg, "user name or password"));
    assert_null(strstr(err.msg, "secret@"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define EACH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        EACH(SR08_a_delivery_has_an_id_and_its_signature_covers_the_time),
        EACH(SR08_the_signature_is_a_standard_hmac_sha256),
        EACH(a_failing_receiver_is_retried_and_events_stay_in_order),
        EACH(an_undeliverable_event_is_dropped_and_a_rejected_one_immediately),
        EACH(a_full_queue_drops_the_oldest_event),
        EACH(SR01_a_url_with_a_private_address_is_refused),
        EACH(SR02_a_name_that_resolves_to_a_private_address_is_refused_on_connect),
        EACH(SR02_redirects_are_not_followed_and_other_schemes_refused),
        EACH(SR03_an_endless_or_absent_response_does_not_block),
        EACH(SR04_a_user_name_or_password_in_the_url_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
