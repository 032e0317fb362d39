/* The D-Bus call against a manager that a child process simulates, and the parser against possible
 * replies. */
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "host/systemd/userbus.h"

#include "tests/support/fakebus.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char dir[64];

TEST(replies_errors_and_unrelated_messages_are_distinguished)
{
    uint8_t buf[256];
    char why[128];
    size_t n = fakebus_answer(buf, FAKEBUS_RETURN, 2, NULL);

    assert_int_equal(userbus_message_length(buf), n);
    assert_int_equal(userbus_decode_reply(buf, n, 2, why), USERBUS_DONE);
    assert_int_equal(userbus_decode_reply(buf, n, 3, why), USERBUS_OTHER);
    n = fakebus_answer(buf, FAKEBUS_SIGNAL, 2, NULL); /* a signal is never a reply, whatever its fields are */
    assert_int_equal(userbus_decode_reply(buf, n, 2, why), USERBUS_OTHER);
    n = fakebus_answer(buf, FAKEBUS_ERROR, 2, "org.freedesktop.systemd1.UnitExists");
    assert_int_equal(userbus_decode_reply(buf, n, 2, why), USERBUS_REFUSED);
    assert_string_equal(why, "org.freedesktop.systemd1.UnitExists");
}

TEST(a_truncated_or_oversized_message_is_malformed)
{
    uint8_t buf[256];
    char why[128];
    size_t n = fakebus_answer(buf, FAKEBUS_ERROR, 2, "a.b.C");

    for (size_t i = 0; i < n; i++)
        assert_int_equal(userbus_decode_reply(buf, i, 2, why), USERBUS_MALFORMED);
    buf[28] = 200; /* a name longer than the message */
    assert_int_equal(userbus_decode_reply(buf, n, 2, why), USERBUS_MALFORMED);
    (void)fakebus_answer(buf, FAKEBUS_RETURN, 2, NULL);
    buf[18] = 'v'; /* a type of unknown length */
    assert_int_equal(userbus_decode_reply(buf, 24, 2, why), USERBUS_MALFORMED);
    (void)fakebus_answer(buf, FAKEBUS_RETURN, 2, NULL);
    buf[0] = 'B';
    assert_int_equal(userbus_message_length(buf), 0);
    (void)fakebus_answer(buf, FAKEBUS_RETURN, 2, NULL);
    buf[6] = 1; /* a body of 64 KiB */
    assert_int_equal(userbus_message_length(buf), 0);
}

TEST(a_call_contains_the_scope_and_every_process)
{
    uint8_t buf[USERBUS_CALL_MAX];
    pid_t pids[] = { 0x01020304, 77 };
    static const uint8_t list[] = { 8, 0, 0, 0, 4, 3, 2, 1, 77, 0, 0, 0 };
    size_t n = userbus_encode_scope_call(buf, 2, "cove-x.scope", pids, 2);

    assert_true(n > 0);
    assert_int_equal(userbus_message_length(buf), n); /* its length fields are consistent */
    assert_non_null(memmem(buf, n, "StartTransientUnit", 18));
    assert_non_null(memmem(buf, n, "cove-x.scope", 13));
    assert_non_null(memmem(buf, n, "Delegate", 9));
    assert_non_null(memmem(buf, n, list, sizeof(list)));
}

TEST(a_call_that_does_not_fit_has_length_0)
{
    uint8_t buf[USERBUS_CALL_MAX];
    char name[USERBUS_CALL_MAX];

    memset(name, 'a', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(userbus_encode_scope_call(buf, 2, name, NULL, 0), 0);
}

/* --- a simulated manager --- */

static int listen_at(const char *name)
{
    int fd = fakebus_listen(dir, name);

    assert_true(fd >= 0);
    return fd;
}

enum manner { WILLING, REFUSING, MUTE, CLOSED, RAMBLING };

/* Serves one connection: the handshake, on a bus the Hello, then the call. */
static pid_t manager(int door, bool bus, enum manner manner)
{
    pid_t pid = fork();
    uint8_t buf[FAKEBUS_ANSWER_MAX], call[USERBUS_CALL_MAX];

    if (pid)
        return pid;
    int fd = accept(door, NULL, NULL);
    if (fakebus_greet(fd, manner != CLOSED) != (manner != CLOSED))
        _exit(1);
    if (manner == CLOSED)
        _exit(0);
    if (bus) {
        (void)fakebus_read_call(fd, call, sizeof(call));
        (void)!write(fd, buf, fakebus_answer(buf, FAKEBUS_RETURN, 1, NULL));
    }
    if (!fakebus_read_call(fd, call, sizeof(call)))
        _exit(2);
    if (manner == MUTE)
        _exit(0);
    (void)!write(fd, buf, fakebus_answer(buf, FAKEBUS_SIGNAL, 0, NULL)); /* signals may precede the reply */
    if (manner == RAMBLING)
        (void)!write(fd, "HTTP/1.1 400 Bad", 16);
    else
        (void)!write(fd, buf,
                     fakebus_answer(buf, manner == WILLING ? FAKEBUS_RETURN : FAKEBUS_ERROR, 2,
                                    manner == WILLING ? NULL : "x.y.Busy"));
    _exit(0);
}

static int ask(const char *door_name, bool bus, enum manner manner, struct err *err)
{
    int door = listen_at(door_name), status;
    pid_t pid = manager(door, bus, manner), self = getpid();
    int done = userbus_start_scope(dir, 1000, "cove-test.scope", &self, 1, err);

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(door);
    auto_free char *path = str_printf("%s/%s", dir, door_name);
    unlink(path);
    return done;
}

TEST(the_managers_private_socket_suffices)
{
    struct err err = { 0 };

    assert_int_equal(ask("systemd/private", false, WILLING, &err), 0);
}

TEST(the_bus_is_used_if_the_private_socket_is_missing)
{
    struct err err = { 0 };

    assert_int_equal(ask("bus", true, WILLING, &err), 0);
}

TEST(a_refusal_is_reported_and_a_missing_reply_is_an_error)
{
    struct err err = { 0 };

    assert_int_equal(ask("systemd/private", false, REFUSING, &err), -1);
    assert_non_null(strstr(err.msg, "x.y.Busy"));
    assert_int_equal(ask("systemd/private", false, MUTE, &err), -1);
    assert_int_equal(err.id, ERR_TIMEOUT);
    assert_int_equal(ask("systemd/private", false, RAMBLING, &err), -1);
    assert_int_equal(err.id, ERR_PROTOCOL);
    assert_int_equal(ask("bus", true, CLOSED, &err), -1);
    assert_int_equal(err.id, ERR_DENIED);
}

TEST(a_missing_socket_is_an_error_at_once)
{
    struct err err = { 0 };
    pid_t self = getpid();

    assert_int_equal(userbus_start_scope(dir, 1000, "cove-test.scope", &self, 1, &err), -1);
    assert_int_equal(err.sys, ENOENT);
}

TEST(root_is_refused_without_connecting)
{
    struct err err = { 0 };
    pid_t self = getpid();
    int door = listen_at("systemd/private");

    assert_int_equal(userbus_start_scope(dir, 0, "cove-test.scope", &self, 1, &err), -1);
    assert_int_equal(err.id, ERR_BUG);
    assert_int_equal(poll(&(struct pollfd){ .fd = door, .events = POLLIN }, 1, 0), 0); /* no connection was attempted */
    close(door);
    auto_free char *path = str_printf("%s/systemd/private", dir);
    unlink(path);
}

TEST(either_socket_makes_the_manager_available)
{
    static const char *const doors[] = { "systemd/private", "bus" };

    assert_false(userbus_is_available(dir));
    for (size_t i = 0; i < ARRAY_LEN(doors); i++) {
        int door = listen_at(doors[i]);
        auto_free char *path = str_printf("%s/%s", dir, doors[i]);

        assert_true(userbus_is_available(dir));
        close(door);
        unlink(path);
    }
}

TEST(the_runtime_dir_is_from_the_environment_or_the_default)
{
    char buf[USERBUS_DIR_MAX];

    setenv("XDG_RUNTIME_DIR", "/elsewhere", 1);
    assert_string_equal(userbus_runtime_dir(1000, buf), "/elsewhere");
    setenv("XDG_RUNTIME_DIR", "not/absolute", 1);
    assert_string_equal(userbus_runtime_dir(1000, buf), "/run/user/1000");
    unsetenv("XDG_RUNTIME_DIR");
    assert_string_equal(userbus_runtime_dir(4294967294u, buf), "/run/user/4294967294");
}

static int set_up(void **state UNUSED)
{
    str_copy(dir, sizeof(dir), "/tmp/cove-userbus-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    auto_free char *below = str_printf("%s/systemd", dir);
    signal(SIGPIPE, SIG_IGN);
    return mkdir(below, 0700);
}

static int tear_down(void **state UNUSED)
{
    auto_free char *below = str_printf("%s/systemd", dir);

    rmdir(below);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(replies_errors_and_unrelated_messages_are_distinguished),
        RUN(a_truncated_or_oversized_message_is_malformed),
        RUN(a_call_contains_the_scope_and_every_process),
        RUN(a_call_that_does_not_fit_has_length_0),
        RUN(the_managers_private_socket_suffices),
        RUN(the_bus_is_used_if_the_private_socket_is_missing),
        RUN(a_refusal_is_reported_and_a_missing_reply_is_an_error),
        RUN(a_missing_socket_is_an_error_at_once),
        RUN(root_is_refused_without_connecting),
        RUN(either_socket_makes_the_manager_available),
        RUN(the_runtime_dir_is_from_the_environment_or_the_default),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
