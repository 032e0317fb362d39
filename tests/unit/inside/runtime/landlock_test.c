#include "tests/unit/test.h"

#include "inside/runtime/landlock.h"

#define EXECUTE 0x1u
#define READ_FILE 0x4u
#define READ_DIR 0x8u
#define MAKE_CHAR 0x40u
#define MAKE_BLOCK 0x800u
#define REFER 0x2000u
#define TRUNCATE 0x4000u
#define IOCTL_DEV 0x8000u

TEST(every_abi_handles_exactly_its_own_rights)
{
    static const struct {
        int abi;
        uint64_t handled;
    } cases[] = {
        { 0, 0 },      { 1, 0x1fff }, { 2, 0x3fff }, { 3, 0x7fff },  { 4, 0x7fff },   { 5, 0xffff },
        { 6, 0xffff }, { 7, 0xffff }, { 8, 0xffff }, { 9, 0x1ffff }, { 12, 0x1ffff },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (landlock_handled(cases[i].abi) != cases[i].handled)
            fail_msg("ABI %d: %#" PRIx64, cases[i].abi, landlock_handled(cases[i].abi));
}

TEST(no_access_allows_making_devices)
{
    for (int abi = 0; abi < 12; abi++)
        for (int access = 0; access < 8; access++)
            assert_false(landlock_rights(abi, (enum rt_access)access, true) & (MAKE_CHAR | MAKE_BLOCK));
}

TEST(rights_are_limited_to_handled_ones_and_files_get_no_directory_rights)
{
    for (int abi = 0; abi < 12; abi++)
        for (int access = RT_ACCESS_READ; access <= RT_ACCESS_LIST; access++) {
            uint64_t dir = landlock_rights(abi, (enum rt_access)access, true);
            uint64_t file = landlock_rights(abi, (enum rt_access)access, false);

            assert_int_equal(dir & ~landlock_handled(abi), 0);
            assert_int_equal(file & ~dir, 0);
            assert_int_equal(file & (READ_DIR | REFER | 0x1ff0), 0);
        }
}

TEST(each_access_grants_the_rights_of_its_name)
{
    assert_int_equal(landlock_rights(7, RT_ACCESS_READ, true), READ_FILE | READ_DIR);
    assert_int_equal(landlock_rights(7, RT_ACCESS_READ_EXEC, true), READ_FILE | READ_DIR | EXECUTE);
    assert_int_equal(landlock_rights(7, RT_ACCESS_READ_WRITE, true), 0x7fff & ~(MAKE_CHAR | MAKE_BLOCK));
    assert_int_equal(landlock_rights(7, RT_ACCESS_DEVICE, false), READ_FILE | 0x2u | IOCTL_DEV);
    assert_int_equal(landlock_rights(4, RT_ACCESS_DEVICE, false), READ_FILE | 0x2u);
    assert_int_equal(landlock_rights(7, RT_ACCESS_LIST, true), READ_DIR);
    assert_int_equal(landlock_rights(7, (enum rt_access)6, true), 0);
    assert_true(landlock_rights(2, RT_ACCESS_READ_WRITE, true) & REFER);
    assert_false(landlock_rights(2, RT_ACCESS_READ_WRITE, true) & TRUNCATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_abi_handles_exactly_its_own_rights),
        RUN(no_access_allows_making_devices),
        RUN(rights_are_limited_to_handled_ones_and_files_get_no_directory_rights),
        RUN(each_access_grants_the_rights_of_its_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
