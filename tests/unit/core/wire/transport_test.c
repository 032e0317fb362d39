/* Frames cross every kind of transport whole, in their order, whatever the pieces in which a byte
 * stream delivers them. */
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/wire/chan.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

enum kind { PACKETS, STREAM, PIPES, KINDS };
static const char *const kind_names[KINDS] = { "packets", "stream", "pipes" };

static struct ev *loop;
static struct chan chan; /* the channel under test */
static int peer_in, peer_out;

static struct {
    unsigned frames, ends, drains, pause_after;
    uint64_t bytes;
    bool disorder;
    struct err why;
} got;

static uint8_t payload[FRAME_PAYLOAD_MAX];

static uint32_t length_of(uint32_t number)
{
    static const uint32_t lengths[] = { 0, 1, 11, 12, 13, 4096, 65535, FRAME_PAYLOAD_MAX };

    return lengths[number % ARRAY_LEN(lengths)];
}

static void on_frame(void *arg UNUSED, const struct frame *f, int *fds, size_t nfds)
{
    got.disorder = got.disorder || f->stream != got.frames || f->len != length_of(f->stream) ||
                   (f->len && memcmp(f->data, payload, f->len) != 0);
    got.bytes += f->len;
    for (size_t i = 0; i < nfds; i++)
        close(fds[i]);
    if (++got.frames == got.pause_after)
        chan_pause(&chan, true);
}

static void on_end(void *arg UNUSED, const struct err *why)
{
    got.ends++;
    got.why = *why;
}

static void on_drain(void *arg UNUSED)
{
    got.drains++;
}

static const struct chan_ops ops = { on_frame, on_end, on_drain };

static void open_chan(enum kind kind)
{
    struct err err = { 0 };
    int a[2], b[2];

    memset(&got, 0, sizeof(got));
    for (size_t i = 0; i < sizeof(payload); i++)
        payload[i] = (uint8_t)(i * 7 + i / 256);
    assert_int_equal(ev_new(&loop, &err), 0);
    if (kind == PIPES) {
        assert_int_equal(pipe2(a, O_CLOEXEC), 0);
        assert_int_equal(pipe2(b, O_CLOEXEC), 0);
        assert_int_equal(chan_init_pair(&chan, loop, a[0], b[1], true, &ops, NULL, &err), 0);
        peer_out = a[1];
        peer_in = b[0];
    } else {
        assert_int_equal(socketpair(AF_UNIX, (kind == PACKETS ? SOCK_SEQPACKET : SOCK_STREAM) | SOCK_CLOEXEC, 0, a), 0);
        assert_int_equal(chan_init(&chan, loop, a[0], true, &ops, NULL, &err), 0);
        peer_in = peer_out = a[1];
    }
    assert_int_equal(fd_nonblock(peer_in, true), 0);
    assert_int_equal(fd_nonblock(peer_out, true), 0);
    assert_int_equal(transport_passes_fds(&chan.transport), kind == PACKETS);
}

static void close_peer(void)
{
    if (peer_out != peer_in)
        fd_close(&peer_out);
    fd_close(&peer_in);
    peer_out = -1;
}

static void close_chan(void)
{
    close_peer();
    chan_done(&chan);
    ev_run(loop); /* the loop has nothing left to wait for */
    ev_free(loop);
}

static size_t encode(uint32_t number, uint8_t *out)
{
    uint32_t len = length_of(number);

    frame_header(out, &(struct frame){ .type = FRAME_DATA, .stream = number, .len = len });
    memcpy(out + FRAME_HEADER, payload, len);
    return FRAME_HEADER + len;
}

static void turn(void)
{
    for (int i = 0; i < 4; i++)
        ev_turn(loop, 0);
}

/* Writes all of it, while the channel reads. */
static void peer_write(const uint8_t *bytes, size_t n, size_t piece)
{
    for (size_t done = 0; done < n;) {
        ssize_t w = write(peer_out, bytes + done, min_u64(piece, n - done));

        if (w > 0)
            done += (size_t)w;
        else
            assert_int_equal(errno, EAGAIN);
        turn();
    }
}

TEST(frames_arrive_whole_and_in_order)
{
    static uint8_t packet[FRAME_MAX];

    for (enum kind kind = 0; kind < KINDS; kind++) {
        open_chan(kind);
        for (uint32_t i = 0; i < 64; i++)
            peer_write(packet, encode(i, packet),
                       kind == PACKETS ? FRAME_MAX
                       : i % 2         ? FRAME_MAX
                                       : 7 * (size_t)(i + 1));
        turn();
        if (got.frames != 64 || got.disorder || got.ends)
            fail_msg("%s: %u frames, %u ends: %s", kind_names[kind], got.frames, got.ends, got.why.msg);
        close_peer();
        turn();
        assert_int_equal(got.ends, 1);
        assert_int_equal(got.why.id, ERR_LOST);
        close_chan();
    }
}

TEST(a_slow_reader_gets_every_frame_that_was_sent)
{
    static uint8_t bytes[24 * FRAME_MAX];

    for (enum kind kind = 0; kind < KINDS; kind++) {
        size_t want = 0, have = 0;

        open_chan(kind);
        for (uint32_t i = 0; i < 24; i++) {
            want += FRAME_HEADER + length_of(i);
            chan_send(&chan, &(struct frame){ .type = FRAME_DATA, .stream = i, .len = length_of(i), .data = payload });
        }
        assert_false(chan_idle(&chan));
        while (have < want) {
            ssize_t n = read(peer_in, bytes + have, kind == PACKETS ? FRAME_MAX : 5000);

            if (n > 0)
                have += (size_t)n;
            else
                assert_int_equal(errno, EAGAIN);
            ev_turn(loop, 0);
        }
        assert_true(chan_idle(&chan));
        const uint8_t *p = bytes;
        for (uint32_t i = 0; i < 24; p += FRAME_HEADER + length_of(i), i++) {
            struct frame f;
            struct err err;

            if (frame_parse(p, FRAME_HEADER + length_of(i), &f, &err) < 0)
                fail_msg("%s: frame %u: %s", kind_names[kind], i, err.msg);
            assert_true(f.stream == i && (f.len == 0 || memcmp(f.data, payload, f.len) == 0));
        }
        assert_int_equal(got.ends, 0);
        close_chan();
    }
}

/* The loop sees no event for frames that one read of a byte stream has brought. */
TEST(frames_of_one_read_are_all_delivered_also_after_a_pause)
{
    static uint8_t bytes[200 * FRAME_HEADER];

    for (enum kind kind = STREAM; kind < KINDS; kind++) {
        open_chan(kind);
        for (uint32_t i = 0; i < 200; i++)
            frame_header(bytes + i * FRAME_HEADER, &(struct frame){ .type = FRAME_DATA, .stream = i });
        got.pause_after = 3;
        assert_int_equal(write(peer_out, bytes, sizeof(bytes)), sizeof(bytes));
        for (int i = 0; i < 20; i++)
            ev_turn(loop, 0);
        assert_int_equal(got.frames, 3);
        assert_true(chan_pending(&chan));
        chan_pause(&chan, false);
        for (int i = 0; i < 20; i++)
            ev_turn(loop, 0);
        assert_int_equal(got.frames, 200);
        assert_false(chan_pending(&chan));
        close_chan();
    }
}

TEST(a_wrong_or_cut_frame_ends_a_byte_stream_with_the_reason)
{
    static const uint8_t too_long[FRAME_HEADER] = { 1, 0, 1, 0, FRAME_DATA };
    static const uint8_t no_type[FRAME_HEADER] = { 0, 0, 0, 0, 255 };
    static const uint8_t cut[FRAME_HEADER + 1] = { 9, 0, 0, 0, FRAME_DATA };

    for (enum kind kind = STREAM; kind < KINDS; kind++) {
        for (int c = 0; c < 3; c++) {
            const uint8_t *bytes = c == 0 ? too_long : c == 1 ? no_type : cut;
            size_t n = c == 2 ? sizeof(cut) : FRAME_HEADER;

            open_chan(kind);
            assert_int_equal(write(peer_out, bytes, n), n);
            turn();
            assert_int_equal(got.ends, c == 2 ? 0 : 1);
            close_peer();
            turn();
            assert_int_equal(got.ends, 1);
            assert_int_equal(got.why.id, ERR_PROTOCOL);
            assert_int_equal(got.frames, 0);
            close_chan();
        }
    }
}

TEST(descriptors_cross_only_a_packet_socket)
{
    int fd = STDIN_FILENO;

    for (enum kind kind = 0; kind < KINDS; kind++) {
        open_chan(kind);
        chan_send_fds(&chan, &(struct frame){ .type = FRAME_DATA }, &fd, 1);
        turn();
        assert_int_equal(got.ends, kind == PACKETS ? 0 : 1);
        close_chan();
    }
}

TEST(a_closed_reader_ends_the_channel)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        open_chan(kind);
        if (kind == PIPES) { /* only the direction that the channel writes to */
            fd_close(&peer_in);
            turn();
            assert_int_equal(got.ends, 1);
            peer_in = peer_out;
        } else {
            close_peer();
            chan_send(&chan, &(struct frame){ .type = FRAME_DATA });
            turn();
            assert_int_equal(got.ends, 1);
        }
        assert_int_equal(got.why.id, ERR_LOST);
        close_chan();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(frames_arrive_whole_and_in_order),
        RUN(a_slow_reader_gets_every_frame_that_was_sent),
        RUN(frames_of_one_read_are_all_delivered_also_after_a_pause),
        RUN(a_wrong_or_cut_frame_ends_a_byte_stream_with_the_reason),
        RUN(descriptors_cross_only_a_packet_socket),
        RUN(a_closed_reader_ends_the_channel),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
