#include "tests/unit/test.h"

#include "server/audit/security.h"
#include "core/base/str.h"

#include <stdio.h>

#define T0 (1000 * NS_PER_S)

static struct security *s;
static enum security_kind kind;
static unsigned count;

static int setup(void **state UNUSED)
{
    s = security_new();
    return 0;
}

static int teardown(void **state UNUSED)
{
    security_free(s);
    return 0;
}

static unsigned alarms(const char *subject, int status, unsigned n, uint64_t now)
{
    unsigned raised = 0;

    for (unsigned i = 0; i < n; i++)
        raised += security_count_refusal(s, subject, status, now, &kind, &count);
    return raised;
}

TEST(each_kind_raises_exactly_one_alarm_at_its_threshold)
{
    static const struct {
        int status;
        unsigned below;
        const char *name;
    } cases[] = { { 401, 9, "security.repeated_failures" },
                  { 403, 29, "security.probing" },
                  { 404, 29, "security.probing" },
                  { 429, 49, "security.flood" } };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char subject[16];

        snprintf(subject, sizeof(subject), "192.0.2.%zu", i);
        assert_int_equal(alarms(subject, cases[i].status, cases[i].below, T0), 0);
        assert_int_equal(alarms(subject, cases[i].status, 1, T0), 1);
        assert_string_equal(security_name(kind), cases[i].name);
        assert_int_equal(count, cases[i].below + 1);
        assert_int_equal(alarms(subject, cases[i].status, 1000, T0 + 1), 0);
    }
    assert_int_equal(alarms("192.0.2.9", 400, 1000, T0), 0);
    assert_int_equal(alarms("192.0.2.9", 500, 1000, T0), 0);
}

TEST(a_new_window_resets_the_count_and_can_raise_another_alarm)
{
    assert_int_equal(alarms("ky1", 401, 9, T0), 0);
    assert_int_equal(alarms("ky1", 401, 9, T0 + SECURITY_WINDOW_NS), 0);
    assert_int_equal(alarms("ky1", 401, 1, T0 + SECURITY_WINDOW_NS + 1), 1);
    assert_int_equal(alarms("ky1", 401, 10, T0 + 2 * SECURITY_WINDOW_NS), 1);
}

TEST(subjects_are_separate_and_only_the_oldest_are_evicted)
{
    char name[32];

    assert_int_equal(alarms("ky1", 401, 9, T0), 0);
    for (unsigned i = 0; i < SECURITY_SUBJECTS - 1; i++) {
        snprintf(name, sizeof(name), "10.0.%u.%u", i >> 8, i & 255);
        assert_int_equal(alarms(name, 401, 1, T0 + 1 + i), 0);
    }
    assert_int_equal(alarms("ky1", 401, 1, T0 + 5000), 1);
    for (unsigned i = 0; i < 10 * SECURITY_SUBJECTS; i++) {
        snprintf(name, sizeof(name), "10.1.%u.%u", i >> 8, i & 255);
        assert_int_equal(alarms(name, 401, 1, T0 + 6000 + i), 0);
    }
    assert_int_equal(alarms("ky1", 401, 9, T0 + 20000), 0); /* evicted, so counted from the beginning */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define EACH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        EACH(each_kind_raises_exactly_one_alarm_at_its_threshold),
        EACH(a_new_window_resets_the_count_and_can_raise_another_alarm),
        EACH(subjects_are_separate_and_only_the_oldest_are_evicted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
