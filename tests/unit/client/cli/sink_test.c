#include "tests/unit/test.h"

#include "client/cli/sink.h"
#include "client/cli/source.h"

#include "core/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

static int changes;

static void on_change(void *arg UNUSED)
{
    changes++;
}

/* Reads all available bytes and returns their number. */
static size_t drain(int fd)
{
    static char buf[1 << 16];
    size_t total = 0;
    ssize_t n;

    fd_nonblock(fd, true);
    while ((n = read(fd, buf, sizeof(buf))) > 0)
        total += (size_t)n;
    return total;
}

TEST(a_full_pipe_buffers_the_rest_and_reports_the_drain_once)
{
    static char data[300000];
    auto_(ev) ev = NULL;
    struct sink s;
    int p[2];
    size_t got = 0;

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(ev_new(&ev, NULL), 0);
    sink_init(&s, ev, p[1], on_change, NULL);
    changes = 0;
    sink_write(&s, data, sizeof(data));
    assert_true(sink_has_pending(&s));
    assert_int_equal(fcntl(p[1], F_GETFL) & O_NONBLOCK, 0); /* the given descriptor is unchanged */
    sink_write(&s, "tail", 4);
    for (int i = 0; i < 100 && changes == 0; i++) {
        got += drain(p[0]);
        ev_turn(ev, 10);
    }
    got += drain(p[0]);
    assert_int_equal(got, sizeof(data) + 4);
    assert_int_equal(changes, 1);
    assert_false(sink_has_pending(&s));
    sink_done(&s);
    close(p[0]);
    close(p[1]);
}

TEST(a_closed_reader_breaks_the_sink_and_drops_further_output)
{
    auto_(ev) ev = NULL;
    struct sink s;
    int p[2];

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(ev_new(&ev, NULL), 0);
    sink_init(&s, ev, p[1], on_change, NULL);
    sink_write(&s, "a", 1);
    assert_false(s.broken);
    close(p[0]);
    sink_write(&s, "b", 1);
    assert_true(s.broken);
    assert_int_equal(s.error, EPIPE);
    sink_write(&s, "c", 1);
    assert_false(sink_has_pending(&s));
    sink_done(&s);
    close(p[1]);
}

TEST(the_loop_notices_a_reader_that_closes_while_output_is_pending)
{
    static char data[300000];
    auto_(ev) ev = NULL;
    struct sink s;
    int p[2];

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(ev_new(&ev, NULL), 0);
    sink_init(&s, ev, p[1], on_change, NULL);
    changes = 0;
    sink_write(&s, data, sizeof(data));
    close(p[0]);
    ev_turn(ev, 1000);
    assert_true(s.broken);
    assert_int_equal(changes, 1);
    assert_false(sink_has_pending(&s));
    sink_done(&s);
    close(p[1]);
}

TEST(a_full_socket_does_not_block)
{
    static char data[4 << 20];
    auto_(ev) ev = NULL;
    struct sink s;
    int p[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
    assert_int_equal(ev_new(&ev, NULL), 0);
    sink_init(&s, ev, p[1], on_change, NULL);
    sink_write(&s, data, sizeof(data));
    assert_true(sink_has_pending(&s));
    sink_done(&s);
    close(p[0]);
    close(p[1]);
}

TEST(the_errno_of_a_full_disk_is_kept)
{
    auto_(ev) ev = NULL;
    struct sink s;
    auto_fd int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    assert_int_equal(ev_new(&ev, NULL), 0);
    sink_init(&s, ev, full, on_change, NULL);
    sink_write(&s, "x", 1);
    assert_true(s.broken);
    assert_int_equal(s.error, ENOSPC);
    sink_done(&s);
}

/* --- source: the other direction --- */

struct taker {
    size_t room; /* bytes it accepts before it is full */
    size_t got;
    int ends;
};

static size_t take(void *arg, const void *data UNUSED, size_t len)
{
    struct taker *t = arg;
    size_t n = min_size(len, t->room);

    t->room -= n;
    t->got += n;
    return n;
}

static void take_end(void *arg)
{
    struct taker *t = arg;

    t->ends++;
}

TEST(input_is_read_only_as_fast_as_it_is_accepted_and_ends_once)
{
    static struct source s;
    auto_(ev) ev = NULL;
    struct taker t = { .room = 10 };
    int p[2];

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(ev_new(&ev, NULL), 0);
    assert_int_equal(write(p[1], "0123456789abcdef", 16), 16);
    close(p[1]);
    source_start(&s, ev, p[0], take, take_end, &t);
    for (int i = 0; i < 5; i++)
        ev_turn(ev, 0);
    assert_int_equal(t.got, 10);
    assert_int_equal(t.ends, 0);
    t.room = 100;
    source_resume(&s);
    for (int i = 0; i < 5; i++)
        ev_turn(ev, 0);
    assert_int_equal(t.got, 16);
    assert_int_equal(t.ends, 1);
    source_stop(&s);
    close(p[0]);
}

TEST(a_full_consumer_does_not_spin_the_loop_after_the_writer_closed)
{
    static struct source s;
    auto_(ev) ev = NULL;
    struct taker t = { .room = 1 };
    int p[2];

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(ev_new(&ev, NULL), 0);
    assert_int_equal(write(p[1], "xyz", 3), 3);
    close(p[1]);
    source_start(&s, ev, p[0], take, take_end, &t);
    ev_turn(ev, 0);
    assert_int_equal(t.got, 1);
    assert_false(s.io.on); /* a pipe without a writer is always readable */
    source_stop(&s);
    close(p[0]);
}

TEST(a_regular_file_is_read_to_its_end_without_epoll)
{
    static struct source s;
    auto_(ev) ev = NULL;
    struct taker t = { .room = SIZE_MAX };
    FILE *f = tmpfile();

    assert_non_null(f);
    for (int i = 0; i < 30000; i++)
        fputs("0123456789", f);
    rewind(f);
    assert_int_equal(ev_new(&ev, NULL), 0);
    source_start(&s, ev, fileno(f), take, take_end, &t);
    for (int i = 0; i < 50 && !t.ends; i++)
        ev_turn(ev, 0);
    assert_int_equal(t.got, 300000);
    assert_int_equal(t.ends, 1);
    source_stop(&s);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_full_pipe_buffers_the_rest_and_reports_the_drain_once),
        RUN(a_closed_reader_breaks_the_sink_and_drops_further_output),
        RUN(the_loop_notices_a_reader_that_closes_while_output_is_pending),
        RUN(a_full_socket_does_not_block),
        RUN(the_errno_of_a_full_disk_is_kept),
        RUN(input_is_read_only_as_fast_as_it_is_accepted_and_ends_once),
        RUN(a_full_consumer_does_not_spin_the_loop_after_the_writer_closed),
        RUN(a_regular_file_is_read_to_its_end_without_epoll),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
