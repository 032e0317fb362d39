#include "tests/unit/test.h"

#include "host/isolate/native.h"

TEST(bind_targets_must_be_normalized_and_not_reserved)
{
    static const struct {
        const char *dst;
        bool ok;
    } rows[] = {
        { "/mnt/data", true },
        { "/workspace/in", true },
        { "/skills", true },
        { "/usr/share/x", true },
        { "/etc/passwd", true },
        { "/procs", true },
        { "/.coven", true },
        { "/mnt/a..b", true },
        { "/", false },
        { "", false },
        { "mnt/x", false },
        { "/mnt", false },
        { "/workspace", false },
        { "/proc", false },
        { "/proc/sys", false },
        { "/dev/null", false },
        { "/.cove/runtime", false },
        { "/tmp/x", false },
        { "/mnt/../proc", false },
        { "/mnt/..", false },
        { "/mnt/./x", false },
        { "/mnt//x", false },
        { "/mnt/x/", false },
        { "/sys/fs", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = { 0 };

        if ((native_check_target(rows[i].dst, &err) == 0) != rows[i].ok)
            fail_msg("'%s'", rows[i].dst);
        if (!rows[i].ok)
            assert_int_equal(err.id, ERR_BIND_TARGET);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(bind_targets_must_be_normalized_and_not_reserved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
