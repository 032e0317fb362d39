/* The command line of Bubblewrap, and how its end is read. */
#include "host/bwrap/bwrap.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "host/bwrap/bwrap_args.h"
#include "host/isolate/sandbox_mounts.h"
#include "tests/unit/test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static struct bwrap_args args;
static const struct native_spec spec = { .id = "sbabcdefghijklmnopqrst", .hostname = "cove" };

static bool has(const char *option, const char *value)
{
    for (size_t i = 0; i + 1 < args.n; i++)
        if (str_eq(args.argv[i], option) && (!value || str_eq(args.argv[i + 1], value)))
            return true;
    return false;
}

TEST(every_namespace_but_the_network_is_made)
{
    static const char *const wanted[] = { "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
                                          "--unshare-cgroup" };

    bwrap_args_build(&args, &spec);
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (!has(wanted[i], NULL))
            fail_msg("%s is missing", wanted[i]);
    /* The spawner's network has no routes and belongs to another user namespace. */
    assert_false(has("--unshare-net", NULL));
    assert_false(has("--unshare-all", NULL));
}

TEST(the_runtime_is_pid_1_and_dies_with_bubblewrap)
{
    bwrap_args_build(&args, &spec);
    assert_true(has("--as-pid-1", NULL));
    assert_true(has("--die-with-parent", NULL));
    assert_true(has("--uid", "1000") && has("--gid", "1000"));
    assert_string_equal(args.argv[args.n - 2], "/.cove/runtime");
    assert_string_equal(args.argv[args.n - 1], spec.id);
    assert_null(args.argv[args.n]);
}

TEST(only_the_two_capabilities_of_the_runtime_are_kept)
{
    size_t added = 0;

    bwrap_args_build(&args, &spec);
    for (size_t i = 0; i < args.n; i++)
        added += str_eq(args.argv[i], "--cap-add");
    assert_true(has("--cap-drop", "ALL"));
    assert_int_equal(added, 2);
    assert_true(has("--cap-add", "CAP_SYS_ADMIN") && has("--cap-add", "CAP_SETPCAP"));
}

TEST(binds_are_left_to_the_runtime_by_their_targets)
{
    static const struct native_spec lent = {
        .id = "sbabcdefghijklmnopqrst",
        .hostname = "cove",
        .nmounts = 3,
        .mounts = { { NATIVE_BIND, 7, "/usr/bin/bwrap" }, { NATIVE_WORKSPACE, 8, "" }, { NATIVE_BIND, 9, "/mnt/data" } }
    };
    struct lent_bind binds[NATIVE_MOUNTS];

    bwrap_args_build(&args, &lent);
    assert_string_equal(args.argv[args.n - 4], "/.cove/runtime");
    assert_string_equal(args.argv[args.n - 3], lent.id);
    assert_string_equal(args.argv[args.n - 2], "/usr/bin/bwrap");
    assert_string_equal(args.argv[args.n - 1], "/mnt/data");
    assert_null(args.argv[args.n]);
    assert_int_equal(sandbox_mounts_get_binds(&lent, binds), 2); /* in the same order */
    assert_int_equal(binds[0].fd, 7);
    assert_int_equal(binds[1].fd, 9);
}

TEST(the_command_line_has_room_for_every_bind)
{
    static struct native_spec full = { .id = "sbabcdefghijklmnopqrst", .hostname = "cove", .nmounts = NATIVE_MOUNTS };

    for (size_t i = 0; i < NATIVE_MOUNTS; i++)
        snprintf(full.mounts[i].dst, sizeof(full.mounts[i].dst), "/mnt/%zu", i);
    bwrap_args_build(&args, &full);
    assert_string_equal(args.argv[args.n - 1], full.mounts[NATIVE_MOUNTS - 1].dst);
}

TEST(the_wait_status_is_that_of_pid_1)
{
    int ended = W_EXITCODE(1, 0);

    assert_int_equal(bwrap_wait_status(W_EXITCODE(0, 0)), W_EXITCODE(0, 0));
    assert_int_equal(bwrap_wait_status(ended), ended);
    assert_int_equal(bwrap_wait_status(W_EXITCODE(128 + SIGKILL, 0)), W_EXITCODE(0, SIGKILL));
    assert_int_equal(bwrap_wait_status(W_EXITCODE(0, SIGKILL)), W_EXITCODE(0, SIGKILL)); /* Bubblewrap itself */
}

TEST(the_first_line_of_a_failure_is_the_error)
{
    struct err err = { 0 };
    int ends[2];

    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    assert_false(bwrap_read_failure(ends[0], &err));
    assert_int_equal(fd_write_all(ends[1], "bwrap: no \x1b[1m namespaces\nmore\n", 31), 0);
    assert_true(bwrap_read_failure(ends[0], &err));
    assert_int_equal(err.id, ERR_DRIVER_UNAVAILABLE);
    assert_string_equal(err.msg, "bwrap: no ?[1m namespaces");
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_namespace_but_the_network_is_made),           RUN(the_runtime_is_pid_1_and_dies_with_bubblewrap),
        RUN(only_the_two_capabilities_of_the_runtime_are_kept), RUN(the_wait_status_is_that_of_pid_1),
        RUN(binds_are_left_to_the_runtime_by_their_targets),    RUN(the_command_line_has_room_for_every_bind),
        RUN(the_first_line_of_a_failure_is_the_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
