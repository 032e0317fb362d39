#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/ev/fair_queue.h"

#include <stdio.h>

#define WAIT (3600 * NS_PER_S)

static struct ev *loop;
static struct fair_queue turns;

struct thing {
    struct fair_queue_slot turn;
    char name;
    bool fails; /* gives its place back as soon as it has it */
};

static char order[256]; /* names of what was begun; a small letter x before one that was refused */
static size_t norder;

static void on_turn(void *arg, const struct err *err)
{
    struct thing *t = arg;

    if (norder + 3 > sizeof(order))
        norder = 0;
    if (err)
        order[norder++] = 'x';
    order[norder++] = t->name;
    order[norder] = '\0';
    if (!err && t->fails)
        fair_queue_release(&t->turn);
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    norder = 0;
    order[0] = '\0';
    return ev_new(&loop, &err);
}

static int teardown(void **state UNUSED)
{
    fair_queue_done(&turns);
    ev_free(loop);
    return 0;
}

static void ask(struct fair_queue_line *line, struct thing *t, char name)
{
    *t = (struct thing){ .name = name };
    fair_queue_acquire(&turns, line, &t->turn, on_turn, t);
}

static void finish(struct thing *t)
{
    fair_queue_release(&t->turn);
    ev_turn(loop, 0);
}

TEST(who_comes_when_there_is_room_begins_at_once_and_the_rest_wait)
{
    struct fair_queue_line a = { 0 };
    struct thing things[3];

    fair_queue_init(&turns, loop, 2, WAIT, WAIT);
    assert_true(fair_queue_has_room(&turns));
    for (int i = 0; i < 3; i++)
        ask(&a, &things[i], (char)('1' + i));
    assert_string_equal(order, "12");
    assert_false(fair_queue_has_room(&turns));
    finish(&things[0]);
    assert_string_equal(order, "123");
    finish(&things[1]);
    finish(&things[2]);
    finish(&things[2]); /* twice is once */
    assert_int_equal(turns.held, 0);
    assert_true(fair_queue_has_room(&turns));
}

TEST(it_is_crowded_when_more_than_half_of_the_places_are_taken_or_somebody_waits)
{
    struct fair_queue_line a = { 0 };
    struct thing things[3];

    fair_queue_init(&turns, loop, 4, WAIT, WAIT);
    for (int i = 0; i < 3; i++) {
        assert_false(fair_queue_is_busy(&turns));
        ask(&a, &things[i], (char)('1' + i));
    }
    assert_true(fair_queue_is_busy(&turns));
    for (int i = 0; i < 3; i++)
        finish(&things[i]);
    assert_false(fair_queue_is_busy(&turns));
}

TEST(places_go_round_by_tenant_however_long_one_of_their_lines_is)
{
    struct fair_queue_line a = { 0 }, b = { 0 }, c = { 0 };
    struct thing many[40], few[2], one;

    fair_queue_init(&turns, loop, 1, WAIT, WAIT);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        ask(&a, &many[i], 'a');
    ask(&b, &few[0], 'b');
    ask(&b, &few[1], 'b');
    ask(&c, &one, 'c');
    finish(&many[0]);
    finish(&many[1]);
    finish(&few[0]);
    finish(&one);
    finish(&many[2]);
    finish(&few[1]);
    finish(&many[3]);
    assert_string_equal(order, "aabcabaa"); /* the first was under way; then each line in turn */
    for (size_t i = ARRAY_LEN(many) - 1; i >= 4; i--)
        fair_queue_release(&many[i].turn);
    assert_true(fair_queue_has_room(&turns));
}

TEST(who_leaves_is_passed_over_and_so_is_its_line)
{
    struct fair_queue_line a = { 0 }, b = { 0 };
    struct thing first, gone[3], last;

    fair_queue_init(&turns, loop, 1, WAIT, WAIT);
    ask(&a, &first, '1');
    for (int i = 0; i < 3; i++)
        ask(&b, &gone[i], 'g');
    ask(&a, &last, '2');
    fair_queue_release(&gone[1].turn);
    fair_queue_release(&gone[2].turn);
    fair_queue_release(&gone[0].turn);
    finish(&first);
    assert_string_equal(order, "12");
    finish(&last);
    assert_true(fair_queue_has_room(&turns));
}

TEST(a_thousand_that_fail_at_once_leave_the_stack_alone_and_the_next_begins)
{
    static struct thing fail[5000];
    struct fair_queue_line a = { 0 };
    struct thing first, last;

    fair_queue_init(&turns, loop, 1, WAIT, WAIT);
    ask(&a, &first, '1');
    for (size_t i = 0; i < ARRAY_LEN(fail); i++) {
        fail[i] = (struct thing){ .name = 'f', .fails = true };
        fair_queue_acquire(&turns, &a, &fail[i].turn, on_turn, &fail[i]);
    }
    ask(&a, &last, '2');
    fair_queue_release(&first.turn);
    for (int i = 0; i < 10000 && turns.first; i++)
        ev_turn(loop, 0);
    assert_null(turns.first);
    assert_int_equal(turns.held, 1);
    fair_queue_release(&last.turn);
}

TEST(a_place_that_is_kept_too_long_is_lent_to_the_next_and_who_waits_too_long_is_told)
{
    struct fair_queue_line a = { 0 };
    struct thing stuck, next, late;
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;

    fair_queue_init(&turns, loop, 1, WAIT, 1);
    ask(&a, &stuck, 's');
    ask(&a, &next, 'n');
    while (norder < 2 && clock_mono_ns() < end)
        ev_turn(loop, 10);
    assert_memory_equal(order, "sn", 2);
    fair_queue_release(&next.turn);
    fair_queue_release(&stuck.turn); /* its place was given away: nothing more to give */
    assert_int_equal(turns.held, 0);
    fair_queue_done(&turns);
    norder = 0;
    fair_queue_init(&turns, loop, 1, 1, WAIT);
    ask(&a, &stuck, 's');
    ask(&a, &late, 'l');
    while (norder < 3 && clock_mono_ns() < end)
        ev_turn(loop, 10);
    assert_memory_equal(order, "sxl", 3);
    fair_queue_release(&late.turn); /* nothing */
    fair_queue_release(&stuck.turn);
}

#define RUN_TURNS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_TURNS(who_comes_when_there_is_room_begins_at_once_and_the_rest_wait),
        RUN_TURNS(it_is_crowded_when_more_than_half_of_the_places_are_taken_or_somebody_waits),
        RUN_TURNS(places_go_round_by_tenant_however_long_one_of_their_lines_is),
        RUN_TURNS(who_leaves_is_passed_over_and_so_is_its_line),
        RUN_TURNS(a_thousand_that_fail_at_once_leave_the_stack_alone_and_the_next_begins),
        RUN_TURNS(a_place_that_is_kept_too_long_is_lent_to_the_next_and_who_waits_too_long_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
