#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "server/tls/pem_source.h"
#include "server/tls/server.h"

#include <stdio.h>
#include <sys/stat.h>

static char dir[64];
static int ours, theirs;

static int set_up(void **state UNUSED)
{
    int pair[2];

    snprintf(dir, sizeof(dir), "/tmp/cove-pem-XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    ours = pair[0];
    theirs = pair[1];
    return 0;
}

static int tear_down(void **state UNUSED)
{
    static const char *const names[] = { "cert", "key", "empty", "fifo" };

    close(ours);
    close(theirs);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        auto_free char *path = str_printf("%s/%s", dir, names[i]);

        (void)unlink(path);
    }
    return rmdir(dir);
}

static char *file(const char *name, const char *text)
{
    char *path = str_printf("%s/%s", dir, name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static void assert_part(const struct pem *p, enum pem_part part, const char *text)
{
    assert_int_equal(p->part[part].len, strlen(text));
    assert_string_equal(p->part[part].len ? p->part[part].data : "", text);
}

TEST(parts_that_are_not_named_are_empty)
{
    auto_free char *cert = file("cert", "CERT"), *key = file("key", "KEY");
    struct pem_paths paths = { { cert, key, "" } };
    struct pem p = { 0 };

    assert_int_equal(pem_read(&paths, &p, NULL), 0);
    assert_part(&p, PEM_CERTIFICATE, "CERT");
    assert_part(&p, PEM_KEY, "KEY");
    assert_part(&p, PEM_CLIENT_CA, "");
    pem_done(&p);
}

TEST(a_path_that_is_not_a_file_is_refused_with_its_setting)
{
    auto_free char *cert = file("cert", "CERT"), *empty = file("empty", ""), *fifo = str_printf("%s/fifo", dir);
    const struct {
        const char *key, *word;
    } rows[] = { { empty, "empty" },
                 { dir, "not a regular file" },
                 { fifo, "not a regular file" },
                 { "/nowhere/key", "No such file" } };

    assert_int_equal(mkfifo(fifo, 0600), 0); /* opening it must not block */
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct pem_paths paths = { { cert, rows[i].key, NULL } };
        struct pem p = { 0 };
        struct err err = { 0 };

        assert_int_equal(pem_read(&paths, &p, &err), -1);
        assert_int_equal(err.id, ERR_TLS_FILES);
        assert_non_null(strstr(err.msg, "tls.key"));
        if (!strstr(err.msg, rows[i].word))
            fail_msg("%s", err.msg);
        assert_null(p.part[PEM_CERTIFICATE].data);
    }
}

TEST(all_parts_reach_the_other_process_unchanged)
{
    struct pem sent = { 0 }, got = { 0 };
    struct err err = { 0 };

    assert_int_equal(pem_recv(theirs, &got, &err), -1);
    assert_int_equal(err.id, ERR_BUSY);
    for (int i = 0; i < 200000; i++)
        buf_add(&sent.part[PEM_CERTIFICATE], "C", 1);
    buf_adds(&sent.part[PEM_KEY], "KEY");
    assert_int_equal(pem_send(ours, &sent, &err), 0);
    assert_int_equal(pem_recv(theirs, &got, &err), 0);
    assert_int_equal(got.part[PEM_CERTIFICATE].len, 200000);
    assert_part(&got, PEM_KEY, "KEY");
    assert_part(&got, PEM_CLIENT_CA, "");
    pem_done(&sent);
    pem_done(&got);
    assert_null(got.part[PEM_KEY].data);
}

TEST(a_read_failure_is_sent_to_the_other_side)
{
    struct err why, err = { 0 };
    struct pem got = { 0 };

    err_set(&why, ERR_TLS_FILES, "tls.key: no such thing");
    pem_send_failure(ours, &why);
    assert_int_equal(pem_recv(theirs, &got, &err), -1);
    assert_int_equal(err.id, ERR_TLS_FILES);
    assert_string_equal(err.msg, "tls.key: no such thing");
    close(ours);
    ours = -1;
    assert_int_equal(pem_recv(theirs, &got, &err), -1);
    assert_int_equal(err.id, ERR_LOST);
}

TEST(malformed_messages_are_refused)
{
    struct pem got = { 0 };
    struct err err = { 0 };

    assert_int_equal(send(ours, "p", 1, 0), 1); /* the message of parts, without descriptors */
    assert_int_equal(pem_recv(theirs, &got, &err), -1);
    assert_int_equal(err.id, ERR_PROTOCOL);
    assert_int_equal(send(ours, "?", 1, 0), 1);
    assert_int_equal(pem_recv(theirs, &got, &err), -1);
    assert_int_equal(err.id, ERR_PROTOCOL);
}

TEST(a_request_is_answered_with_the_current_files)
{
    auto_free char *cert = file("cert", "ONE"), *key = file("key", "KEY");
    struct pem_paths paths = { { cert, key, NULL } };
    struct pem_source source;
    struct pem got = { 0 };
    struct err err = { 0 };
    auto_(ev) ev = NULL;

    assert_int_equal(ev_new(&ev, &err), 0);
    assert_int_equal(pem_source_init(&source, ev, &paths, ours, &err), 0);
    free(file("cert", "TWO"));
    assert_int_equal(pem_request(theirs, &err), 0);
    assert_int_equal(pem_request(theirs, &err), 0);
    ev_turn(ev, 1000);
    assert_int_equal(pem_recv(theirs, &got, &err), 0);
    assert_part(&got, PEM_CERTIFICATE, "TWO");
    pem_done(&got);
    assert_int_equal(pem_recv(theirs, &got, &err), -1); /* two requests, one answer */
    assert_int_equal(err.id, ERR_BUSY);
    unlink(key);
    pem_source_send(&source);
    assert_int_equal(pem_recv(theirs, &got, &err), -1);
    assert_non_null(strstr(err.msg, "tls.key"));
    pem_source_done(&source);
}

TEST(a_certificate_expires_soon_for_two_weeks)
{
    const uint64_t day = 24ull * 3600 * 1000;
    const struct {
        uint64_t not_after, now;
        enum tls_expiry age;
    } rows[] = { { 100 * day, 0, TLS_EXPIRES_LATER },           { 100 * day, 86 * day, TLS_EXPIRES_LATER },
                 { 100 * day, 86 * day + 1, TLS_EXPIRES_SOON }, { 100 * day, 100 * day - 1, TLS_EXPIRES_SOON },
                 { 100 * day, 100 * day, TLS_EXPIRED },         { 0, 1, TLS_EXPIRED } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (tls_expiry_of(rows[i].not_after, rows[i].now) != rows[i].age)
            fail_msg("row %zu", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(parts_that_are_not_named_are_empty, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_path_that_is_not_a_file_is_refused_with_its_setting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_parts_reach_the_other_process_unchanged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_read_failure_is_sent_to_the_other_side, set_up, tear_down),
        cmocka_unit_test_setup_teardown(malformed_messages_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_is_answered_with_the_current_files, set_up, tear_down),
        cmocka_unit_test(a_certificate_expires_soon_for_two_weeks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
