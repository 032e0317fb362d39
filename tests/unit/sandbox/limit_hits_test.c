#include "tests/unit/test.h"

#include "core/base/str.h"
#include "sandbox/limit_hits.h"
#include "core/wire/jail.h"
#include "core/wire/rt.h"

#include <signal.h>

static struct receipt plain(void)
{
    struct receipt r = { 0 };

    limits_default(&r.limits);
    memset(r.enforced, JAIL_ENFORCED, sizeof(r.enforced));
    return r;
}

static const struct limit_hit *find(const struct receipt *r, enum limit l, struct limit_hit all[LIMIT_COUNT])
{
    size_t n = limit_hits_list(r, all);

    for (size_t i = 0; i < n; i++)
        if (all[i].limit == l)
            return &all[i];
    return NULL;
}

TEST(an_execution_that_hit_no_limit_has_an_empty_list)
{
    struct receipt r = plain();
    struct limit_hit all[LIMIT_COUNT];

    assert_int_equal(limit_hits_list(&r, all), 0);
}

TEST(refused_processes_are_counted_and_the_flag_is_named)
{
    struct receipt r = plain();
    struct limit_hit all[LIMIT_COUNT];

    r.pids_refused.v = 7;
    const struct limit_hit *m = find(&r, LIMIT_PIDS, all);
    assert_non_null(m);
    assert_int_equal(m->count, 7);
    assert_string_equal(m->fix, "--pids sets it");
    assert_null(limit_hit_unobservable(&r, LIMIT_PIDS));
}

TEST(each_full_file_system_is_a_separate_limit)
{
    static const struct {
        uint32_t bit;
        enum limit limit;
        const char *fix;
    } rows[] = {
        { RT_FULL_WORKSPACE, LIMIT_WORKSPACE, "--disk sets it" },
        { RT_FULL_WORKSPACE_INODES, LIMIT_WORKSPACE_INODES, "limits.workspaceInodes of a policy sets it" },
        { RT_FULL_TMP, LIMIT_TMP, "--tmp sets it" },
        { RT_FULL_TMP_INODES, LIMIT_TMP_INODES, "limits.tmpInodes of a policy sets it" },
        { RT_FULL_SHM, LIMIT_SHM, "limits.shmBytes of a policy sets it" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct receipt r = plain();
        struct limit_hit all[LIMIT_COUNT];

        r.full_filesystems = rows[i].bit;
        assert_int_equal(limit_hits_list(&r, all), 1);
        assert_int_equal(all[0].limit, rows[i].limit);
        assert_int_equal(all[0].count, 0); /* the number of hits is not known */
        assert_string_equal(all[0].fix, rows[i].fix);
        assert_null(limit_hit_unobservable(&r, rows[i].limit));
    }
}

TEST(a_full_host_directory_is_not_a_limit_hit)
{
    struct receipt r = plain();
    struct limit_hit all[LIMIT_COUNT];

    r.full_filesystems = RT_FULL_WORKSPACE;
    r.enforced[LIMIT_WORKSPACE] = JAIL_NONE;
    assert_int_equal(limit_hits_list(&r, all), 0);
    assert_null(limit_hit_unobservable(&r, LIMIT_WORKSPACE));
}

TEST(an_unchecked_file_system_is_neither_full_nor_free)
{
    struct receipt r = plain();
    struct limit_hit all[LIMIT_COUNT];

    r.full_filesystems = RT_FULL_WORKSPACE;
    r.full_filesystems_why = "because";
    assert_int_equal(limit_hits_list(&r, all), 0);
    assert_string_equal(limit_hit_unobservable(&r, LIMIT_WORKSPACE), "because");
}

TEST(only_the_signal_reports_a_file_size_limit_hit)
{
    struct receipt r = plain();
    struct limit_hit all[LIMIT_COUNT];

    r.signal = SIGXFSZ;
    assert_non_null(find(&r, LIMIT_FSIZE, all));
    assert_null(limit_hit_unobservable(&r, LIMIT_FSIZE));
    r.signal = 0;
    r.exit_code = 128 + SIGXFSZ; /* a program may exit with any number */
    assert_null(find(&r, LIMIT_FSIZE, all));
    assert_non_null(strstr(limit_hit_unobservable(&r, LIMIT_FSIZE), "EFBIG"));
}

TEST(limits_without_an_observable_hit_are_reported_as_unseen)
{
    struct receipt r = plain();

    assert_non_null(strstr(limit_hit_unobservable(&r, LIMIT_NOFILE), "EMFILE"));
    assert_non_null(strstr(limit_hit_unobservable(&r, LIMIT_TMP), "ENOSPC"));
    r.pids_refused.why = "this host counts nothing";
    assert_string_equal(limit_hit_unobservable(&r, LIMIT_PIDS), "this host counts nothing");
    assert_null(limit_hit_unobservable(&r, LIMIT_MEMORY));
    assert_null(limit_hit_unobservable(&r, LIMIT_WALL));
}

TEST(dropped_output_is_a_limit_hit)
{
    struct receipt r = plain();
    struct limit_hit all[LIMIT_COUNT];

    r.dropped_bytes = 1;
    assert_string_equal(find(&r, LIMIT_OUTPUT, all)->fix, "--max-output sets it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(an_execution_that_hit_no_limit_has_an_empty_list),
        RUN(refused_processes_are_counted_and_the_flag_is_named),
        RUN(each_full_file_system_is_a_separate_limit),
        RUN(a_full_host_directory_is_not_a_limit_hit),
        RUN(an_unchecked_file_system_is_neither_full_nor_free),
        RUN(only_the_signal_reports_a_file_size_limit_hit),
        RUN(limits_without_an_observable_hit_are_reported_as_unseen),
        RUN(dropped_output_is_a_limit_hit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
