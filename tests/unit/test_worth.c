/* The wait that follows from what turns cost: nothing learned, cheap, costly, between, and back again. */
#include "worth.h"

#include "test.h"

#define LIMIT_US (10 * US_PER_S)

static void add(struct worth *w, unsigned n, const struct worth_turn *turn)
{
    while (n-- > 0)
        worth_add(w, turn);
}

static struct worth_turn cold_turn(int64_t first_us, int64_t held_us)
{
    return (struct worth_turn){
        .body_bytes = 1000, .has_warm_pod = true, .first_us = first_us, .held_us = held_us};
}

static void test_too_little_seen(void **state)
{
    struct worth w = {0};
    const struct worth_turn turn = cold_turn(0, US_PER_S);

    (void)state;
    assert_int_equal(worth_wait_us(&w, LIMIT_US), LIMIT_US);
    add(&w, WORTH_MIN_TURNS - 1, &turn);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), LIMIT_US);
    add(&w, 1, &turn);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), 0);
}

static void test_warm_turns_say_nothing_of_cold_ones(void **state)
{
    struct worth w = {0};
    struct worth_turn turn = cold_turn(0, US_PER_S);

    (void)state;
    turn.on_warm_pod = true;
    add(&w, 10 * WORTH_MIN_TURNS, &turn);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), LIMIT_US);
    turn.on_warm_pod = false;
    add(&w, WORTH_MIN_TURNS - 1, &turn);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), LIMIT_US);
    add(&w, 1, &turn);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), 0);
}

static int64_t wait_at(int64_t first_us)
{
    struct worth w = {0};
    const struct worth_turn turn = cold_turn(first_us, US_PER_S);

    add(&w, WORTH_MIN_TURNS, &turn);
    return worth_wait_us(&w, LIMIT_US);
}

static void test_share_of_a_turn(void **state)
{
    (void)state;
    assert_int_equal(wait_at(125000), 0);
    assert_in_range(wait_at(187500), LIMIT_US / 2 - 100, LIMIT_US / 2 + 100);
    assert_int_equal(wait_at(250000), LIMIT_US);
    assert_int_equal(wait_at(900000), LIMIT_US);
}

/* First turns of 100 ms and 1,000 bytes; follow-ups, all warm, of 4,000 bytes would take 400 ms cold. */
static void test_scaled_to_the_size_of_follow_ups(void **state)
{
    struct worth w = {0};
    struct worth_turn turn = cold_turn(100000, US_PER_S);

    (void)state;
    turn.has_warm_pod = false;
    add(&w, WORTH_MIN_TURNS, &turn);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), LIMIT_US);
    turn = (struct worth_turn){4000, true, true, 1000, US_PER_S};
    add(&w, WORTH_MIN_TURNS, &turn);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), LIMIT_US);
    turn.body_bytes = 1000;
    add(&w, 10 * WORTH_MIN_TURNS, &turn);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), 0);
}

/* It is learned anew at the pace of some 64 turns: neither at once nor after hundreds. */
static void test_follows_change(void **state)
{
    struct worth w = {0};
    const struct worth_turn cheap = cold_turn(1000, US_PER_S), costly = cold_turn(500000, US_PER_S);

    (void)state;
    add(&w, 20 * WORTH_MIN_TURNS, &cheap);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), 0);
    add(&w, 10, &costly);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), 0);
    add(&w, 2 * WORTH_MIN_TURNS, &costly);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), LIMIT_US);
    add(&w, 2 * WORTH_MIN_TURNS, &cheap);
    assert_int_equal(worth_wait_us(&w, LIMIT_US), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_too_little_seen), cmocka_unit_test(test_warm_turns_say_nothing_of_cold_ones),
        cmocka_unit_test(test_share_of_a_turn), cmocka_unit_test(test_scaled_to_the_size_of_follow_ups),
        cmocka_unit_test(test_follows_change),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
