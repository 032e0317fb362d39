/* Lines to a pipe, a socket and a file, with readers that are slow or gone. */
#include "tests/unit/test.h"

#include "client/mcp/line_writer.h"
#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define HIGH_MARK (256 * KIB)

struct scene {
    struct ev *ev;
    struct line_writer *writer;
    int in, out; /* the reader's end, the writer's end */
    struct buf events;
};

static void on_pressure(void *arg, bool high)
{
    buf_adds(&((struct scene *)arg)->events, high ? "high;" : "low;");
}

static void on_written(void *arg)
{
    buf_adds(&((struct scene *)arg)->events, "written;");
}

static void on_closed(void *arg)
{
    buf_adds(&((struct scene *)arg)->events, "closed;");
}

static const struct line_writer_ops ops = { on_pressure, on_written, on_closed };

static void scene_init(struct scene *s, bool with_socket)
{
    int fds[2];
    struct err err = { 0 };

    assert_int_equal(with_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, fds) : pipe(fds), 0);
    *s = (struct scene){ .in = fds[0], .out = fds[1] };
    assert_int_equal(ev_new(&s->ev, &err), 0);
    buf_adds(&s->events, "");
    s->writer = line_writer_new(s->ev, s->out, HIGH_MARK, &ops, s);
}

static void scene_done(struct scene *s)
{
    line_writer_free(s->writer);
    ev_free(s->ev);
    fd_close(&s->in);
    fd_close(&s->out);
    buf_done(&s->events);
}

TEST(a_message_is_one_line_and_is_written_at_once)
{
    for (int with_socket = 0; with_socket <= 1; with_socket++) {
        struct scene s;
        char got[64] = "";

        scene_init(&s, with_socket);
        line_writer_add(s.writer, "{\"a\":\r\n1}", 9);
        assert_int_equal(line_writer_waiting(s.writer), 0);
        assert_true(read(s.in, got, sizeof(got) - 1) > 0);
        assert_string_equal(got, "{\"a\":  1}\n");
        scene_done(&s);
    }
}

TEST(a_slow_reader_causes_pressure_and_gets_every_byte)
{
    for (int with_socket = 0; with_socket <= 1; with_socket++) {
        struct scene s;
        size_t total = 0, len = 3 * HIGH_MARK;
        auto_free char *text = mem_alloc(len);
        auto_free char *got = mem_alloc(len);

        memset(text, 'x', len);
        scene_init(&s, with_socket);
        line_writer_add(s.writer, text, len); /* returns, although no process reads */
        line_writer_add(s.writer, "tail", 4);
        ev_turn(s.ev, 0);
        assert_string_equal(s.events.data, "high;");
        for (int turns = 0; total < len + 6 && turns < 10000; turns++) {
            fd_nonblock(s.in, true);
            ssize_t n = read(s.in, got, len);
            total += n > 0 ? (size_t)n : 0;
            ev_turn(s.ev, 0);
        }
        assert_int_equal(total, len + 6);
        assert_non_null(strstr(s.events.data, "high;low;"));
        assert_non_null(strstr(s.events.data, "written;"));
        assert_int_equal(fcntl(s.out, F_GETFL) & O_NONBLOCK, 0);
        scene_done(&s);
    }
}

TEST(the_end_of_the_reader_is_reported_once_and_lines_are_dropped)
{
    for (int with_socket = 0; with_socket <= 1; with_socket++) {
        struct scene s;

        scene_init(&s, with_socket);
        fd_close(&s.in);
        ev_turn(s.ev, 0); /* nothing was written */
        ev_turn(s.ev, 0);
        line_writer_add(s.writer, "x", 1);
        ev_turn(s.ev, 0);
        assert_string_equal(s.events.data, "closed;");
        assert_int_equal(line_writer_waiting(s.writer), 0);
        scene_done(&s);
    }
}

TEST(a_regular_file_takes_lines)
{
    struct err err = { 0 };
    struct scene s = { .in = -1, .out = memfd_create("out", MFD_CLOEXEC) };
    char got[16] = "";

    assert_int_equal(ev_new(&s.ev, &err), 0);
    s.writer = line_writer_new(s.ev, s.out, HIGH_MARK, &ops, &s);
    line_writer_add(s.writer, "one", 3);
    line_writer_add(s.writer, "two", 3);
    assert_int_equal(pread(s.out, got, sizeof(got) - 1, 0), 8);
    assert_string_equal(got, "one\ntwo\n");
    scene_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_message_is_one_line_and_is_written_at_once),
        RUN(a_slow_reader_causes_pressure_and_gets_every_byte),
        RUN(the_end_of_the_reader_is_reported_once_and_lines_are_dropped),
        RUN(a_regular_file_takes_lines),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
