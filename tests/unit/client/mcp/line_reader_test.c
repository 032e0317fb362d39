/* Lines from a pipe and from a file. */
#include "tests/unit/test.h"

#include "client/mcp/line_reader.h"
#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/str.h"

#include <sys/mman.h>

#define LINE_MAX_FOR_TESTS 10u

struct scene {
    struct ev *ev;
    struct line_reader *reader;
    int in, out; /* of a pipe */
    struct buf lines;
    bool holds_after_line;
};

static void on_line(void *arg, const char *line, size_t len)
{
    struct scene *s = arg;

    buf_addf(&s->lines, "%.*s;", (int)len, line);
    if (s->holds_after_line)
        line_reader_hold(s->reader, true);
}

static void on_too_long(void *arg)
{
    buf_adds(&((struct scene *)arg)->lines, "too long;");
}

static void on_end(void *arg)
{
    buf_adds(&((struct scene *)arg)->lines, "end");
}

static const struct line_reader_ops ops = { on_line, on_too_long, on_end };

static void scene_init(struct scene *s, int fd)
{
    int pipe_fds[2] = { -1, -1 };
    struct err err = { 0 };

    *s = (struct scene){ .in = fd, .out = -1 };
    assert_int_equal(ev_new(&s->ev, &err), 0);
    if (fd < 0) {
        assert_int_equal(pipe(pipe_fds), 0);
        s->in = pipe_fds[0];
        s->out = pipe_fds[1];
    }
    buf_adds(&s->lines, "");
    s->reader = line_reader_new(s->ev, s->in, LINE_MAX_FOR_TESTS, &ops, s);
}

static void scene_write(struct scene *s, const char *text)
{
    assert_int_equal(fd_write_all(s->out, text, strlen(text)), 0);
    ev_turn(s->ev, 0);
    ev_turn(s->ev, 0);
}

static void scene_done(struct scene *s)
{
    line_reader_free(s->reader);
    ev_free(s->ev);
    fd_close(&s->in);
    fd_close(&s->out);
    buf_done(&s->lines);
}

TEST(a_line_may_arrive_in_pieces_and_with_carriage_returns)
{
    struct scene s;

    scene_init(&s, -1);
    scene_write(&s, "ab");
    assert_string_equal(s.lines.data, "");
    scene_write(&s, "c\r\n\nd");
    assert_string_equal(s.lines.data, "abc;;");
    fd_close(&s.out);
    ev_turn(s.ev, 0);
    ev_turn(s.ev, 0);
    assert_string_equal(s.lines.data, "abc;;d;end");
    scene_done(&s);
}

TEST(a_line_beyond_the_maximum_is_skipped_and_reported_once)
{
    struct scene s;

    scene_init(&s, -1);
    scene_write(&s, "1234567890\n12345678901\nnext\n");
    assert_string_equal(s.lines.data, "1234567890;too long;next;");
    for (int i = 0; i < 5; i++)
        scene_write(&s, "1234567");
    scene_write(&s, "\nlast\n");
    assert_string_equal(s.lines.data, "1234567890;too long;next;too long;last;");
    scene_done(&s);
}

TEST(a_regular_file_is_read_to_its_end)
{
    struct scene s;
    int fd = memfd_create("lines", MFD_CLOEXEC);

    assert_int_equal(fd_write_all(fd, "one\ntwo", 7), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    scene_init(&s, fd);
    for (int i = 0; i < 5; i++)
        ev_turn(s.ev, 0);
    assert_string_equal(s.lines.data, "one;two;end");
    scene_done(&s);
}

TEST(input_waits_in_the_pipe_while_the_reader_is_held)
{
    struct scene s;

    scene_init(&s, -1);
    s.holds_after_line = true;
    scene_write(&s, "one\n");
    scene_write(&s, "two\n");
    assert_string_equal(s.lines.data, "one;");
    line_reader_hold(s.reader, false);
    ev_turn(s.ev, 0);
    assert_string_equal(s.lines.data, "one;two;");
    scene_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_line_may_arrive_in_pieces_and_with_carriage_returns),
        RUN(a_line_beyond_the_maximum_is_skipped_and_reported_once),
        RUN(a_regular_file_is_read_to_its_end),
        RUN(input_waits_in_the_pipe_while_the_reader_is_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
