#include "tests/unit/test.h"

#include "core/base/metrics.h"

TEST(the_kind_of_a_family_follows_from_its_name)
{
    auto_buf out = { 0 };

    metrics_number(&out, "calls_total", "Calls.", 3);
    metrics_number(&out, "waiting", "Calls that wait.", 0);
    metrics_duration(&out, "wait_seconds_total", "Time spent waiting.", 1500000002);
    metrics_family(&out, "run_seconds", "summary", "Time of runs.");
    metrics_value(&out, "run_seconds_count", "{pool=\"a\"}", 7);
    assert_string_equal(out.data, "# HELP cove_calls_total Calls.\n# TYPE cove_calls_total counter\n"
                                  "cove_calls_total 3\n"
                                  "# HELP cove_waiting Calls that wait.\n# TYPE cove_waiting gauge\n"
                                  "cove_waiting 0\n"
                                  "# HELP cove_wait_seconds_total Time spent waiting.\n"
                                  "# TYPE cove_wait_seconds_total counter\n"
                                  "cove_wait_seconds_total 1.500000002\n"
                                  "# HELP cove_run_seconds Time of runs.\n# TYPE cove_run_seconds summary\n"
                                  "cove_run_seconds_count{pool=\"a\"} 7\n");
}

TEST(the_buckets_of_a_histogram_are_sums)
{
    struct histogram h = { 0 };
    auto_buf plain = { 0 }, labelled = { 0 };

    histogram_add(&h, NS_PER_MS / 2);
    histogram_add(&h, 3 * NS_PER_MS);
    histogram_add(&h, 10 * NS_PER_S);
    metrics_histogram(&plain, "run_seconds", "", &h);
    assert_non_null(strstr(plain.data, "cove_run_seconds_bucket{le=\"0.001\"} 1\n"));
    assert_non_null(strstr(plain.data, "cove_run_seconds_bucket{le=\"0.004\"} 2\n"));
    assert_non_null(strstr(plain.data, "cove_run_seconds_bucket{le=\"4.096\"} 2\n"));
    assert_non_null(strstr(plain.data, "cove_run_seconds_bucket{le=\"+Inf\"} 3\n"
                                       "cove_run_seconds_sum 10.003500000\n"
                                       "cove_run_seconds_count 3\n"));
    metrics_histogram(&labelled, "run_seconds", "warm=\"true\"", &h);
    assert_non_null(strstr(labelled.data, "cove_run_seconds_bucket{warm=\"true\",le=\"0.001\"} 1\n"));
    assert_non_null(strstr(labelled.data, "cove_run_seconds_count{warm=\"true\"} 3\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_kind_of_a_family_follows_from_its_name),
        RUN(the_buckets_of_a_histogram_are_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
