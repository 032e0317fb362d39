#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/outcome.h"

TEST(outcome_follows_from_the_end)
{
    static const struct {
        enum ended_by by;
        int exit_code;
        bool failed;
        const char *outcome;
    } rows[] = {
        { ENDED_EXIT, 0, false, "success" },     { ENDED_EXIT, 3, false, "error" },
        { ENDED_EXIT, 0, true, "error" }, /* an interpreter that ended with 0 before its code did */
        { ENDED_EXIT, 1, true, "error" },        { ENDED_SIGNAL, -1, false, "error" },
        { ENDED_TIMEOUT, -1, false, "timeout" }, { ENDED_TIMEOUT, -1, true, "timeout" },
        { ENDED_CPU, -1, false, "timeout" },     { ENDED_LIFETIME, -1, true, "timeout" },
        { ENDED_IDLE, -1, true, "timeout" },     { ENDED_MEMORY, -1, true, "out_of_memory" },
        { ENDED_KILLED, -1, false, "killed" },   { ENDED_KILLED, -1, true, "killed" },
        { ENDED_BUDGET, -1, false, "killed" },   { ENDED_LOST, -1, true, "lost" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (!str_eq(outcome_name(outcome_of(rows[i].by, rows[i].exit_code, rows[i].failed)), rows[i].outcome))
            fail_msg("row %zu is %s", i, outcome_name(outcome_of(rows[i].by, rows[i].exit_code, rows[i].failed)));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        RUN(outcome_follows_from_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
