/* Programs that die: one that always does must not cost the machine, one that was killed must not be missed for long.
 */
#include "tests/unit/test.h"

#include "main/serve/supervisor.h"

TEST(a_program_that_dies_at_once_is_tried_ever_more_seldom_and_one_that_ran_is_back_at_once)
{
    static const struct {
        uint64_t ran_ms, wait_ms;
    } steps[] = {
        { 0, 100 },     { 0, 200 },     { 0, 400 },   { 50, 800 },  /* dies at once */
        { 900, 400 },   { 9000, 100 },                              /* a while is half forgiven, long enough is all */
        { 90, 200 },    { 300, 100 },   { 300, 100 }, { 300, 100 }, /* killed again and again */
        { 0, 200 },     { 0, 400 },     { 0, 800 },   { 0, 1600 },  { 0, 3000 }, { 0, 3000 }, /* never more seldom */
        { 4000, 1500 }, { 16000, 100 },
    };
    uint64_t wait = 0;

    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        wait = supervisor_backoff_ns(wait, steps[i].ran_ms * NS_PER_MS);
        if (wait != steps[i].wait_ms * NS_PER_MS)
            fail_msg("step %zu: %" PRIu64 " ms instead of %" PRIu64, i, (uint64_t)(wait / NS_PER_MS), steps[i].wait_ms);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        RUN(a_program_that_dies_at_once_is_tried_ever_more_seldom_and_one_that_ran_is_back_at_once),
    };

    return cmocka_run_group_tests_name("supervisor", tests, NULL, NULL);
}
