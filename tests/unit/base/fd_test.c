#include "../test.h"

#include "base/fd.h"
#include "base/id.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

TEST(descriptors_travel_and_arrive_close_on_exec)
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

TEST(more_descriptors_than_room_are_all_closed)
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

TEST(a_packet_longer_than_the_buffer_is_an_error_not_a_cut)
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

TEST(a_read_from_a_place_is_whole_up_to_the_end_and_moves_nothing)
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

TEST(ids_are_valid_and_differ)
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
        RUN(descriptors_travel_and_arrive_close_on_exec),
        RUN(more_descriptors_than_room_are_all_closed),
        RUN(a_packet_longer_than_the_buffer_is_an_error_not_a_cut),
        RUN(a_read_from_a_place_is_whole_up_to_the_end_and_moves_nothing),
        RUN(ids_are_valid_and_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
