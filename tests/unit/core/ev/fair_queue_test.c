#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/ev/fair_queue.h"

#include <stdio.h>

#define WAIT (3600 * NS_PER_S)

static struct ev *loop;
static struct fair_queue queue;

struct request {
    struct fair_queue_slot turn;
    char name;
    bool fails; /* releases its slot as soon as it has it */
};

static char order[256]; /* names of the requests in the order of their start; an x before a failed one */
static size_t norder;

static void on_acquired(void *arg, const struct err *err)
{
    struct request *t = arg;

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
    fair_queue_done(&queue);
    ev_free(loop);
    return 0;
}

static void ask(struct fair_queue_line *line, struct request *t, char name)
{
    *t = (struct request){ .name = name };
    fair_queue_acquire(&queue, line, &t->turn, on_acquired, t);
}

static void finish(struct request *t)
{
    fair_queue_release(&t->turn);
    ev_turn(loop, 0);
}

TEST(requests_start_immediately_up_to_the_maximum_and_then_wait)
{
    struct fair_queue_line a = { 0 };
    struct request requests[3];

    fair_queue_init(&queue, loop, 2, WAIT, WAIT);
    assert_true(fair_queue_has_room(&queue));
    for (int i = 0; i < 3; i++)
        ask(&a, &requests[i], (char)('1' + i));
    assert_string_equal(order, "12");
    assert_false(fair_queue_has_room(&queue));
    finish(&requests[0]);
    assert_string_equal(order, "123");
    finish(&requests[1]);
    finish(&requests[2]);
    finish(&requests[2]); /* the second call has no effect */
    assert_int_equal(queue.held, 0);
    assert_true(fair_queue_has_room(&queue));
}

TEST(the_queue_is_busy_above_half_of_its_slots_or_with_waiters)
{
    struct fair_queue_line a = { 0 };
    struct request requests[3];

    fair_queue_init(&queue, loop, 4, WAIT, WAIT);
    for (int i = 0; i < 3; i++) {
        assert_false(fair_queue_is_busy(&queue));
        ask(&a, &requests[i], (char)('1' + i));
    }
    assert_true(fair_queue_is_busy(&queue));
    for (int i = 0; i < 3; i++)
        finish(&requests[i]);
    assert_false(fair_queue_is_busy(&queue));
}

TEST(slots_rotate_between_tenants_whatever_the_length_of_their_lines)
{
    struct fair_queue_line a = { 0 }, b = { 0 }, c = { 0 };
    struct request many[40], few[2], one;

    fair_queue_init(&queue, loop, 1, WAIT, WAIT);
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
    assert_string_equal(order, "aabcabaa"); /* the first was running; then each line in rotation */
    for (size_t i = ARRAY_LEN(many) - 1; i >= 4; i--)
        fair_queue_release(&many[i].turn);
    assert_true(fair_queue_has_room(&queue));
}

TEST(a_released_waiter_is_skipped_and_an_empty_line_leaves_the_rotation)
{
    struct fair_queue_line a = { 0 }, b = { 0 };
    struct request first, gone[3], last;

    fair_queue_init(&queue, loop, 1, WAIT, WAIT);
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
    assert_true(fair_queue_has_room(&queue));
}

TEST(immediate_failures_do_not_recurse_and_the_next_request_starts)
{
    static struct request fail[5000];
    struct fair_queue_line a = { 0 };
    struct request first, last;

    fair_queue_init(&queue, loop, 1, WAIT, WAIT);
    ask(&a, &first, '1');
    for (size_t i = 0; i < ARRAY_LEN(fail); i++) {
        fail[i] = (struct request){ .name = 'f', .fails = true };
        fair_queue_acquire(&queue, &a, &fail[i].turn, on_acquired, &fail[i]);
    }
    ask(&a, &last, '2');
    fair_queue_release(&first.turn);
    for (int i = 0; i < 10000 && queue.first; i++)
        ev_turn(loop, 0);
    assert_null(queue.first);
    assert_int_equal(queue.held, 1);
    fair_queue_release(&last.turn);
}

TEST(an_expired_slot_goes_to_the_next_and_an_expired_wait_fails)
{
    struct fair_queue_line a = { 0 };
    struct request stuck, next, late;
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;

    fair_queue_init(&queue, loop, 1, WAIT, 1);
    ask(&a, &stuck, 's');
    ask(&a, &next, 'n');
    while (norder < 2 && clock_mono_ns() < end)
        ev_turn(loop, 10);
    assert_memory_equal(order, "sn", 2);
    fair_queue_release(&next.turn);
    fair_queue_release(&stuck.turn); /* its slot was already given to the next */
    assert_int_equal(queue.held, 0);
    fair_queue_done(&queue);
    norder = 0;
    fair_queue_init(&queue, loop, 1, 1, WAIT);
    ask(&a, &stuck, 's');
    ask(&a, &late, 'l');
    while (norder < 3 && clock_mono_ns() < end)
        ev_turn(loop, 10);
    assert_memory_equal(order, "sxl", 3);
    fair_queue_release(&late.turn); /* no effect */
    fair_queue_release(&stuck.turn);
}

#define RUN_QUEUE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_QUEUE(requests_start_immediately_up_to_the_maximum_and_then_wait),
        RUN_QUEUE(the_queue_is_busy_above_half_of_its_slots_or_with_waiters),
        RUN_QUEUE(slots_rotate_between_tenants_whatever_the_length_of_their_lines),
        RUN_QUEUE(a_released_waiter_is_skipped_and_an_empty_line_leaves_the_rotation),
        RUN_QUEUE(immediate_failures_do_not_recurse_and_the_next_request_starts),
        RUN_QUEUE(an_expired_slot_goes_to_the_next_and_an_expired_wait_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
