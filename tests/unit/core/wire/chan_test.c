#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/wire/chan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* One channel under test; the test holds its other end as a plain socket. */
static struct ev *loop;
static struct chan chan;
static int peer;

static struct {
    unsigned frames, ends, drains;
    uint32_t streams[128]; /* of the frames, in order */
    size_t nfds;
    struct err why;
    unsigned done_after, pause_after; /* number of frames after which the callback does so */
} got;

static void on_frame(void *arg UNUSED, const struct frame *f, int *fds, size_t nfds)
{
    if (got.frames < ARRAY_LEN(got.streams))
        got.streams[got.frames] = f->stream;
    got.frames++;
    got.nfds += nfds;
    for (size_t i = 0; i < nfds; i++)
        close(fds[i]);
    if (got.frames == got.done_after)
        chan_done(&chan);
    if (got.frames == got.pause_after)
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

static void open_chan(bool fds_allowed)
{
    struct err err = { 0 };
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(chan_init(&chan, loop, pair[0], fds_allowed, &ops, NULL, &err), 0);
    peer = pair[1];
    assert_int_equal(fd_nonblock(peer, true), 0);
    memset(&got, 0, sizeof(got));
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    if (ev_new(&loop, &err) < 0)
        return -1;
    open_chan(false);
    return 0;
}

static int teardown(void **state UNUSED)
{
    chan_done(&chan);
    fd_close(&peer);
    ev_free(loop);
    return 0;
}

static void peer_send(uint32_t stream)
{
    struct frame f = { .type = FRAME_CLOSE, .stream = stream };
    uint8_t header[FRAME_HEADER];

    frame_header(header, &f);
    assert_int_equal(send(peer, header, sizeof(header), MSG_NOSIGNAL), sizeof(header));
}

/* Returns the payload length of the next frame, or -1 if there is none. */
static ssize_t peer_receive(uint32_t *stream)
{
    static uint8_t packet[FRAME_MAX];
    struct err err = { 0 };
    struct frame f;
    ssize_t n = recv(peer, packet, sizeof(packet), 0);

    if (n <= 0)
        return -1;
    assert_int_equal(frame_parse(packet, (size_t)n, &f, &err), 0);
    *stream = f.stream;
    return (ssize_t)f.len;
}

static void turns(int n)
{
    while (n-- > 0)
        ev_turn(loop, 0);
}

static size_t open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    size_t n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static uint8_t payload[FRAME_PAYLOAD_MAX];

static void send_data(uint32_t stream, uint32_t len)
{
    chan_send(&chan, &(struct frame){ .type = FRAME_DATA, .stream = stream, .len = len, .data = payload });
}

/* Sends until the socket accepts no more and packets are queued; returns the number of frames sent.
 */
static uint32_t fill_socket(void)
{
    uint32_t n = 0;

    while (chan_idle(&chan))
        send_data(n++, FRAME_PAYLOAD_MAX);
    return n;
}

TEST(frames_arrive_in_order_and_complete)
{
    uint32_t stream;

    peer_send(2);
    peer_send(4);
    turns(1);
    assert_int_equal(got.frames, 2);
    assert_int_equal(got.streams[0], 2);
    assert_int_equal(got.streams[1], 4);

    send_data(6, 5);
    send_data(8, 0);
    assert_int_equal(peer_receive(&stream), 5);
    assert_int_equal(stream, 6);
    assert_int_equal(peer_receive(&stream), 0);
    assert_int_equal(stream, 8);
}

TEST(packets_that_the_socket_refuses_are_queued_and_sent_in_order)
{
    uint32_t sent = fill_socket(), received = 0, stream;

    send_data(sent++, 1); /* must not overtake the queued packets, though it would fit */
    for (int i = 0; i < 100 && received < sent; i++) {
        while (peer_receive(&stream) >= 0)
            assert_int_equal(stream, received++);
        turns(1);
    }
    assert_int_equal(received, sent);
    assert_true(chan_idle(&chan));
    assert_int_equal(chan.queued, 0);
    assert_int_equal(got.ends, 0);
}

TEST(an_idle_channel_does_not_wake_the_loop_for_writing)
{
    uint32_t stream;

    fill_socket();
    while (!chan_idle(&chan)) {
        while (peer_receive(&stream) >= 0)
            ;
        turns(1);
    }
    assert_int_equal(chan.io.events, EPOLLIN);
}

TEST(passing_the_high_water_mark_and_draining_are_reported_once)
{
    uint32_t stream;

    while (!chan_full(&chan))
        send_data(0, FRAME_PAYLOAD_MAX);
    assert_true(chan.queued >= CHAN_HIGH);
    turns(2);
    assert_int_equal(got.drains, 0);
    while (!chan_idle(&chan)) {
        while (peer_receive(&stream) >= 0)
            ;
        turns(1);
    }
    assert_int_equal(got.drains, 1);
    assert_int_equal(got.ends, 0);
}

TEST(a_peer_that_never_reads_loses_the_channel_at_the_hard_limit)
{
    for (int i = 0; i < 200; i++)
        send_data(0, FRAME_PAYLOAD_MAX);
    assert_true(chan_idle(&chan)); /* the queue was dropped */
    assert_int_equal(got.ends, 0); /* but not during the call */
    turns(1);
    assert_int_equal(got.ends, 1);
    assert_int_equal(got.why.id, ERR_LIMIT);
}

TEST(end_of_file_comes_once_after_the_last_frame)
{
    peer_send(2);
    fd_close(&peer);
    turns(3);
    assert_int_equal(got.frames, 1);
    assert_int_equal(got.ends, 1);
    assert_int_equal(got.why.id, ERR_LOST);
    assert_true(chan.dead);
    send_data(2, 1); /* has no effect */
    turns(1);
    assert_int_equal(got.ends, 1);
}

TEST(last_frames_are_received_after_the_peer_left_without_reading)
{
    send_data(2, 100); /* unread when the peer closes: the kernel answers with a reset */
    peer_send(2);
    fd_close(&peer);
    turns(2);
    assert_int_equal(got.frames, 1);
    assert_int_equal(got.ends, 1);
    assert_int_equal(got.why.id, ERR_LOST);
}

TEST(last_frames_are_received_after_a_failed_send)
{
    peer_send(2);
    fd_close(&peer);
    send_data(2, 100);
    assert_int_equal(got.ends, 0);
    turns(2);
    assert_int_equal(got.frames, 1);
    assert_int_equal(got.ends, 1);
    assert_int_equal(got.why.id, ERR_LOST);
}

TEST(a_peer_that_only_stops_reading_is_lost_too)
{
    peer_send(2);
    assert_int_equal(shutdown(peer, SHUT_RD), 0);
    send_data(2, 100);
    turns(2);
    assert_int_equal(got.frames, 1);
    assert_int_equal(got.ends, 1);
    assert_int_equal(got.why.id, ERR_LOST);
}

TEST(a_paused_channel_reads_nothing_and_sees_the_end_after_it_continues)
{
    chan_pause(&chan, true);
    peer_send(2);
    fd_close(&peer);
    turns(3);
    assert_int_equal(got.frames, 0);
    assert_int_equal(got.ends, 0);
    chan_pause(&chan, false);
    turns(2);
    assert_int_equal(got.frames, 1);
    assert_int_equal(got.ends, 1);
}

TEST(a_channel_paused_by_its_own_callback_stops_immediately)
{
    got.pause_after = 1;
    peer_send(2);
    peer_send(4);
    turns(2);
    assert_int_equal(got.frames, 1);
    chan_pause(&chan, false);
    turns(1);
    assert_int_equal(got.frames, 2);
}

TEST(an_owner_that_waits_for_drain_is_called_when_the_peer_dies)
{
    chan_pause(&chan, true);
    while (!chan_full(&chan))
        send_data(0, FRAME_PAYLOAD_MAX);
    fd_close(&peer);
    turns(2);
    assert_int_equal(got.drains, 1);
    assert_int_equal(got.ends, 0);
    chan_pause(&chan, false);
    turns(2);
    assert_int_equal(got.ends, 1);
}

TEST(an_invalid_packet_ends_the_channel)
{
    assert_int_equal(send(peer, "hello", 5, 0), 5);
    peer_send(2);
    turns(2);
    assert_int_equal(got.frames, 0);
    assert_int_equal(got.ends, 1);
    assert_int_equal(got.why.id, ERR_PROTOCOL);
}

TEST(a_packet_longer_than_any_frame_ends_the_channel)
{
    static const uint8_t big[FRAME_MAX + 1];

    assert_int_equal(send(peer, big, sizeof(big), 0), sizeof(big));
    turns(1);
    assert_int_equal(got.ends, 1);
    assert_int_equal(got.why.id, ERR_PROTOCOL);
}

static void peer_send_fds(const void *packet, size_t len, size_t nfds)
{
    int fds[FD_PASS_MAX];

    for (size_t i = 0; i < nfds; i++)
        fds[i] = STDERR_FILENO;
    assert_int_equal(fd_send(peer, packet, len, fds, nfds, 0), len);
}

TEST(unexpected_descriptors_are_closed_and_end_the_channel)
{
    uint8_t header[FRAME_HEADER];
    size_t before = open_fds();

    frame_header(header, &(struct frame){ .type = FRAME_CLOSE });
    peer_send_fds(header, sizeof(header), 3);
    turns(1);
    assert_int_equal(got.frames, 0);
    assert_int_equal(got.ends, 1);
    assert_int_equal(got.why.id, ERR_PROTOCOL);
    assert_int_equal(open_fds(), before - 1); /* the channel's own socket */
}

TEST(descriptors_with_an_invalid_packet_are_closed)
{
    size_t before;

    chan_done(&chan);
    fd_close(&peer);
    open_chan(true);
    before = open_fds();
    peer_send_fds("hello", 5, FD_PASS_MAX);
    turns(1);
    assert_int_equal(got.ends, 1);
    assert_int_equal(open_fds(), before - 1);
}

TEST(descriptors_pass_where_allowed_and_the_channel_owns_queued_ones)
{
    struct frame f = { .type = FRAME_J_CREATED, .stream = 99 };
    size_t received = 0;
    int sent = memfd_create("sent", MFD_CLOEXEC);
    uint8_t header[FRAME_HEADER];

    chan_done(&chan);
    fd_close(&peer);
    open_chan(true);
    frame_header(header, &(struct frame){ .type = FRAME_J_CREATE });
    peer_send_fds(header, sizeof(header), FD_PASS_MAX);
    turns(1);
    assert_int_equal(got.nfds, FD_PASS_MAX);

    fill_socket();
    assert_int_equal(write(sent, "mark", 4), 4);
    chan_send_fds(&chan, &f, &sent, 1);
    close(sent); /* the caller's copy, long before the packet is sent */
    while (received == 0) {
        static uint8_t packet[FRAME_MAX];
        char mark[4];
        int fd;
        size_t nfds = 1;

        while (fd_recv(peer, packet, sizeof(packet), &fd, &nfds, 0) > 0) {
            if (nfds) {
                assert_int_equal(pread(fd, mark, 4, 0), 4);
                assert_memory_equal(mark, "mark", 4);
                close(fd);
                received++;
            }
            nfds = 1;
        }
        turns(1);
    }
    assert_int_equal(received, 1);
}

TEST(queued_descriptors_are_closed_with_the_channel)
{
    struct frame f = { .type = FRAME_J_CREATED };
    size_t before = open_fds();
    const int fds[3] = { STDERR_FILENO, STDERR_FILENO, STDERR_FILENO };

    fill_socket();
    chan_send_fds(&chan, &f, fds, 3);
    assert_int_equal(open_fds(), before + 3);
    chan_done(&chan);
    assert_int_equal(open_fds(), before - 1);
}

TEST(a_descriptor_that_cannot_be_queued_ends_the_channel)
{
    struct frame f = { .type = FRAME_J_CREATED };
    const int fds[2] = { STDERR_FILENO, STDERR_FILENO };
    struct rlimit limit, tight;

    fill_socket();
    int lowest = dup(STDERR_FILENO);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    tight = (struct rlimit){ .rlim_cur = (rlim_t)lowest + 1,
                             .rlim_max = limit.rlim_max }; /* enough for one, but not for two */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    chan_send_fds(&chan, &f, fds, 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    turns(1);
    assert_int_equal(got.ends, 1);
    assert_int_equal(got.why.id, ERR_SYS);
    assert_int_equal(got.why.sys, EMFILE);
    assert_int_equal(fcntl(lowest, F_GETFD), -1); /* the first duplicate is closed */
}

TEST(a_callback_may_finish_the_channel)
{
    got.done_after = 1;
    peer_send(2);
    peer_send(4);
    turns(2);
    assert_int_equal(got.frames, 1);
    assert_int_equal(got.ends, 0);
    chan_done(&chan); /* a second call has no effect */
}

TEST(a_zeroed_channel_can_be_finished_and_closes_nothing)
{
    struct chan never = { 0 };
    size_t before = open_fds();

    chan_done(&never);
    assert_int_equal(open_fds(), before);
}

TEST(a_flood_of_packets_does_not_starve_other_sources)
{
    for (uint32_t i = 0; i < 100; i++)
        peer_send(i);
    turns(1);
    assert_true(got.frames > 0 && got.frames < 100);
    turns(10);
    assert_int_equal(got.frames, 100);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(got.streams[i], i);
}

TEST(init_closes_the_descriptor_when_it_fails)
{
    struct chan c;
    struct err err = { 0 };
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC); /* epoll refuses plain files */

    assert_int_equal(chan_init(&c, loop, fd, false, &ops, NULL, &err), -1);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
    chan_done(&c);
}

#define RUN_CHAN(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_CHAN(frames_arrive_in_order_and_complete),
        RUN_CHAN(packets_that_the_socket_refuses_are_queued_and_sent_in_order),
        RUN_CHAN(an_idle_channel_does_not_wake_the_loop_for_writing),
        RUN_CHAN(passing_the_high_water_mark_and_draining_are_reported_once),
        RUN_CHAN(a_peer_that_never_reads_loses_the_channel_at_the_hard_limit),
        RUN_CHAN(end_of_file_comes_once_after_the_last_frame),
        RUN_CHAN(last_frames_are_received_after_the_peer_left_without_reading),
        RUN_CHAN(last_frames_are_received_after_a_failed_send),
        RUN_CHAN(a_peer_that_only_stops_reading_is_lost_too),
        RUN_CHAN(a_paused_channel_reads_nothing_and_sees_the_end_after_it_continues),
        RUN_CHAN(a_channel_paused_by_its_own_callback_stops_immediately),
        RUN_CHAN(an_owner_that_waits_for_drain_is_called_when_the_peer_dies),
        RUN_CHAN(an_invalid_packet_ends_the_channel),
        RUN_CHAN(a_packet_longer_than_any_frame_ends_the_channel),
        RUN_CHAN(unexpected_descriptors_are_closed_and_end_the_channel),
        RUN_CHAN(descriptors_with_an_invalid_packet_are_closed),
        RUN_CHAN(descriptors_pass_where_allowed_and_the_channel_owns_queued_ones),
        RUN_CHAN(queued_descriptors_are_closed_with_the_channel),
        RUN_CHAN(a_descriptor_that_cannot_be_queued_ends_the_channel),
        RUN_CHAN(a_callback_may_finish_the_channel),
        RUN_CHAN(a_zeroed_channel_can_be_finished_and_closes_nothing),
        RUN_CHAN(a_flood_of_packets_does_not_starve_other_sources),
        RUN_CHAN(init_closes_the_descriptor_when_it_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
