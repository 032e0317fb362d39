/* Back-off of restarts: a program that always dies must not load the machine, and a program that
 * was killed must be back soon. */
#include "tests/unit/test.h"

#include "main/serve/supervisor.h"

TEST(the_backoff_grows_when_a_program_dies_at_once_and_shrinks_after_a_run)
{
    static const struct {
        uint64_t ran_ms, wait_ms;
    } steps[] = {
        { 0, 100 },     { 0, 200 },     { 0, 400 },   { 50, 800 }, /* dies at once */
        { 900, 400 },   { 9000, 100 }, /* a medium run halves the back-off, a long run resets it */
        { 90, 200 },    { 300, 100 },   { 300, 100 }, { 300, 100 },                           /* killed repeatedly */
        { 0, 200 },     { 0, 400 },     { 0, 800 },   { 0, 1600 },  { 0, 3000 }, { 0, 3000 }, /* never more than 3 s */
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
        RUN(the_backoff_grows_when_a_program_dies_at_once_and_shrinks_after_a_run),
    };

    return cmocka_run_group_tests_name("supervisor", tests, NULL, NULL);
}
