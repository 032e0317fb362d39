#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/id.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int open_count(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void pair(int sv[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
}

TEST(passed_descriptors_arrive_with_close_on_exec)
{
    int sv[2], got[2];
    size_t n = 2;
    char b[4];

    pair(sv);
    int nul = open("/dev/null", O_RDONLY);
    assert_int_equal(fd_send(sv[0], "hi", 2, &nul, 1, 0), 2);
    assert_int_equal(fd_recv(sv[1], b, sizeof(b), got, &n, 0), 2);
    assert_int_equal(n, 1);
    assert_int_equal(fcntl(got[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(got[0]);
    close(nul);
    close(sv[0]);
    close(sv[1]);
}

TEST(descriptors_beyond_the_capacity_are_all_closed)
{
    int sv[2], got[1], three[3];
    size_t n = 1;
    char b[4];

    pair(sv);
    for (int i = 0; i < 3; i++)
        three[i] = open("/dev/null", O_RDONLY);
    assert_int_equal(fd_send(sv[0], "x", 1, three, 3, 0), 1);
    int before = open_count();
    assert_int_equal(fd_recv(sv[1], b, sizeof(b), got, &n, 0), -1);
    assert_int_equal(errno, EPROTO);
    assert_int_equal(n, 0);
    assert_int_equal(open_count(), before);
    for (int i = 0; i < 3; i++)
        close(three[i]);
    close(sv[0]);
    close(sv[1]);
}

/* A connection whose peer reads nothing, and whose last close blocks for a minute (SO_LINGER). */
static int lingering(int *ret_peer)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct linger minute = { .l_onoff = 1, .l_linger = 60 };
    socklen_t len = sizeof(at);
    static const char some[65536];
    auto_fd int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(door, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(door, 1), 0);
    assert_int_equal(getsockname(door, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, len), 0);
    *ret_peer = accept(door, NULL, NULL);
    while (send(fd, some, sizeof(some), MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &minute, sizeof(minute)), 0);
    return fd;
}

static void send_lingering(int sock, size_t times, int *ret_peer)
{
    int fds[FD_PASS_MAX], fd = lingering(ret_peer);

    for (size_t i = 0; i < times; i++)
        fds[i] = fd;
    assert_int_equal(fd_send(sock, "m", 1, fds, times, 0), 1);
    close(fd); /* the one in the message is the last */
}

TEST(closing_a_received_socket_with_linger_does_not_block)
{
    uint64_t began = clock_mono_ns();
    int sv[2], peer[4], got[2];
    size_t nfds = 2;
    char c;

    pair(sv);
    send_lingering(sv[0], 1, &peer[0]);
    assert_int_equal(fd_recv(sv[1], &c, 1, NULL, NULL, 0), -1); /* not wanted */
    send_lingering(sv[0], FD_PASS_MAX, &peer[1]);
    assert_int_equal(fd_recv(sv[1], &c, 1, got, &nfds, 0), -1); /* more than wanted */
    send_lingering(sv[0], 1, &peer[2]);
    nfds = 2;
    assert_int_equal(fd_recv(sv[1], &c, 1, got, &nfds, 0), 1); /* wanted, and closed here */
    close(got[0]);
    assert_int_equal(send(sv[0], "", 0, 0), 0);
    assert_int_equal(send(sv[0], "", 0, 0), 0);
    send_lingering(sv[0], 1, &peer[3]);
    fd_hang_up(sv[1]); /* not even received, after empty packets that look like end of file */
    assert_true(clock_mono_ns() - began < 50 * NS_PER_S);
    for (size_t i = 0; i < ARRAY_LEN(peer); i++)
        close(peer[i]);
    close(sv[0]);
}

TEST(a_packet_longer_than_the_buffer_is_an_error_and_not_truncated)
{
    int sv[2];
    char b[2];

    pair(sv);
    assert_int_equal(fd_send(sv[0], "long", 4, NULL, 0, 0), 4);
    assert_int_equal(fd_recv(sv[1], b, sizeof(b), NULL, NULL, 0), -1);
    assert_int_equal(errno, EPROTO);
    close(sv[0]);
    close(sv[1]);
}

TEST(pread_full_reads_to_the_end_and_keeps_the_file_offset)
{
    char b[16];
    auto_fd int fd = memfd_create("t", MFD_CLOEXEC);

    assert_int_equal(fd_write_all(fd, "0123456789", 10), 0);
    assert_int_equal(lseek(fd, 3, SEEK_SET), 3);
    assert_int_equal(fd_pread_full(fd, b, 4, 2), 4);
    assert_memory_equal(b, "2345", 4);
    assert_int_equal(fd_pread_full(fd, b, sizeof(b), 7), 3);
    assert_memory_equal(b, "789", 3);
    assert_int_equal(fd_pread_full(fd, b, sizeof(b), 10), 0);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 3);
    assert_int_equal(fd_pread_full(-1, b, 1, 0), -1);
}

TEST(new_ids_are_valid_and_unique)
{
    char a[ID_SIZE], b[ID_SIZE];

    id_new("sb", a);
    id_new("sb", b);
    assert_true(id_valid(a, "sb"));
    assert_false(id_valid(a, "ex"));
    assert_string_not_equal(a, b);
    assert_false(id_valid("sb", "sb"));
    assert_false(id_valid("sbAAAAAAAAAAAAAAAAAAAA", "sb"));
    assert_false(id_valid("sbaaaaaaaaaaaaaaaaaaaaa", "sb"));
    assert_false(id_valid("sb../aaaaaaaaaaaaaaaaa", "sb"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(passed_descriptors_arrive_with_close_on_exec),
        RUN(descriptors_beyond_the_capacity_are_all_closed),
        RUN(closing_a_received_socket_with_linger_does_not_block),
        RUN(a_packet_longer_than_the_buffer_is_an_error_and_not_truncated),
        RUN(pread_full_reads_to_the_end_and_keeps_the_file_offset),
        RUN(new_ids_are_valid_and_unique),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
