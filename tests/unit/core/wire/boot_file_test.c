/* The walls that a runtime raises itself reach it whole, or are refused. */
#include "core/wire/boot_file.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

static const struct sock_filter notify[] = { { .code = 6, .k = 0x7fc00000u } };
static const struct sock_filter plain[] = { { .code = 6, .k = 1 }, { .code = 6, .k = 0x00050000u } };
static const struct boot_file_header good = {
    .notify = 1, .plain = 2, .nmasks = 2, .masks = { { "keys", 0 }, { "acpi", 1 } }
};
static struct err err;

TEST(the_programs_and_the_masks_come_back)
{
    struct boot_file_header head;
    auto_fd int fd = boot_file_make(&good, notify, plain, &err);

    assert_true(fd >= 0);
    struct sock_filter *programs = boot_file_read(fd, &head, &err);
    assert_non_null(programs);
    assert_memory_equal(&head, &good, sizeof(head));
    assert_int_equal(programs[0].k, notify[0].k);
    assert_int_equal(programs[1].k, plain[0].k);
    assert_int_equal(programs[2].k, plain[1].k);
    free(programs);
}

TEST(every_reader_finds_the_whole_file_wherever_the_offset_is)
{
    struct boot_file_header head;
    auto_fd int fd = boot_file_make(&good, notify, plain, &err);

    assert_int_equal(lseek(fd, 3, SEEK_SET), 3);
    for (int i = 0; i < 2; i++) {
        struct sock_filter *programs = boot_file_read(fd, &head, &err);

        assert_non_null(programs);
        free(programs);
    }
}

TEST(no_holder_can_change_the_file)
{
    auto_fd int fd = boot_file_make(&good, notify, plain, &err);

    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
}

static void assert_refused(const struct boot_file_header *head, size_t programs)
{
    struct boot_file_header back;
    auto_fd int fd = memfd_create("boot", MFD_CLOEXEC);

    assert_int_equal(fd_write_all(fd, head, sizeof(*head)), 0);
    for (size_t i = 0; i < programs; i++)
        assert_int_equal(fd_write_all(fd, plain, sizeof(plain[0])), 0);
    assert_null(boot_file_read(fd, &back, &err));
    assert_int_equal(err.id, ERR_WALL_MISSING);
}

TEST(a_file_that_is_cut_or_wrong_is_refused)
{
    struct boot_file_header h = good;

    assert_refused(&h, 2); /* one instruction is missing */
    h.plain = 0;
    assert_refused(&h, 3);
    h.plain = BOOT_PROGRAM_MAX + 1;
    assert_refused(&h, 3);
    h = good;
    h.notify = UINT32_MAX;
    assert_refused(&h, 3);
    h = good;
    h.nmasks = BOOT_MASKS_MAX + 1;
    assert_refused(&h, 3);
    h = good;
    memset(h.masks[1].name, 'a', sizeof(h.masks[1].name));
    assert_refused(&h, 3);
    h = good;
    memcpy(h.masks[1].name, "../x", 5);
    assert_refused(&h, 3);
}

TEST(an_empty_file_is_refused)
{
    struct boot_file_header head;
    auto_fd int fd = memfd_create("boot", MFD_CLOEXEC);

    assert_null(boot_file_read(fd, &head, &err));
    assert_int_equal(err.id, ERR_WALL_MISSING);
}

TEST(a_namespace_that_was_not_made_is_named)
{
    struct boot_namespaces here, inside;
    auto_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(boot_namespaces_get(proc, &here, &err), 0);
    for (size_t i = 0; i < BOOT_NAMESPACES; i++)
        inside.inodes[i] = here.inodes[i] + 1;
    assert_int_equal(boot_namespaces_check(&here, &inside, &err), 0);
    for (size_t i = 0; i < BOOT_NAMESPACES; i++) {
        auto_free char *named = str_printf("of type %s;", boot_namespace_names[i]);

        inside.inodes[i]--;
        assert_int_equal(boot_namespaces_check(&here, &inside, &err), -1);
        assert_int_equal(err.id, ERR_WALL_MISSING);
        assert_non_null(strstr(err.msg, named));
        inside.inodes[i]++;
    }
    assert_int_equal(boot_namespaces_get(-1, &inside, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_programs_and_the_masks_come_back),
        RUN(every_reader_finds_the_whole_file_wherever_the_offset_is),
        RUN(no_holder_can_change_the_file),
        RUN(a_file_that_is_cut_or_wrong_is_refused),
        RUN(an_empty_file_is_refused),
        RUN(a_namespace_that_was_not_made_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
