/* The wheel against a plain array of due times: nothing fires early, nothing is more than a tick late, a
 * cancelled timer never fires; timers that set and cancel each other while firing. */
#include "wheel.h"

#include "test.h"

#define N_TIMERS 200
#define N_STEPS  100000
#define IDLE     INT64_MIN

struct item {
    struct wheel_timer timer;
    int64_t due_us;  /* IDLE when not armed */
    int64_t late_us; /* from here on it is late */
};

static struct item items[N_TIMERS];
static struct wheel wheel;
static int64_t now_us;
static size_t n_fired;

static void fire(struct wheel_timer *t)
{
    struct item *it = CONTAINER_OF(t, struct item, timer);

    assert_false(wheel_pending(t));
    assert_true(it->due_us != IDLE);
    assert_true(it->due_us <= now_us);
    it->due_us = IDLE;
    n_fired++;
}

/* From the past to far beyond one round of the wheel. */
static int64_t random_delay(struct test_random *r)
{
    switch (test_random_below(r, 4)) {
    case 0:
        return (int64_t)test_random_below(r, 3 * WHEEL_TICK_US);
    case 1:
        return (int64_t)test_random_below(r, 2 * US_PER_S) - US_PER_S / 10;
    case 2:
        return (int64_t)test_random_below(r, WHEEL_SLOTS * WHEEL_TICK_US);
    default:
        return (int64_t)test_random_below(r, 5 * WHEEL_SLOTS * WHEEL_TICK_US);
    }
}

static int64_t random_pause(struct test_random *r)
{
    return test_random_below(r, 500) == 0 ? (int64_t)test_random_below(r, 60 * US_PER_S)
                                          : (int64_t)test_random_below(r, 2 * WHEEL_TICK_US);
}

static void check_all(void)
{
    size_t n_in_slots = 0;

    for (size_t i = 0; i < N_TIMERS; i++) {
        bool armed = items[i].due_us != IDLE;

        assert_int_equal(wheel_pending(&items[i].timer), armed);
        assert_true(!armed || now_us < items[i].late_us);
        n_in_slots += wheel_in_slot(&items[i].timer);
    }
    assert_int_equal(wheel.n, n_in_slots);
}

static void step(struct test_random *r)
{
    struct item *it = &items[test_random_below(r, N_TIMERS)];

    switch (test_random_below(r, 8)) {
    case 0:
        wheel_cancel(&wheel, &it->timer);
        assert_false(wheel_in_slot(&it->timer));
        it->due_us = IDLE;
        break;
    case 1:
    case 2:
        wheel_rest(&it->timer);
        it->due_us = IDLE;
        break;
    default:
        it->due_us = now_us + random_delay(r);
        it->late_us = (it->due_us > now_us ? it->due_us : now_us) + WHEEL_TICK_US;
        wheel_set(&wheel, &it->timer, it->due_us);
    }
}

static void start_items(void)
{
    now_us = INT64_C(987654321);
    wheel_init(&wheel, now_us);
    for (size_t i = 0; i < N_TIMERS; i++) {
        wheel_timer_init(&items[i].timer, fire);
        items[i].due_us = IDLE;
    }
}

static void test_random_program(void **state)
{
    struct test_random r = {11};

    (void)state;
    start_items();
    for (int i = 0; i < N_STEPS; i++) {
        for (size_t n = test_random_below(&r, 4); n > 0; n--)
            step(&r);
        now_us += random_pause(&r);
        wheel_advance(&wheel, now_us);
        check_all();
    }
    assert_true(n_fired > 10000);
}

static void check_none_is_late(void)
{
    for (size_t i = 0; i < N_TIMERS; i++)
        assert_true(items[i].due_us == IDLE || now_us <= items[i].late_us);
}

/* Whoever sleeps until the wheel names the next tick misses none: all fire within theirs. */
static void test_sleeping_until_the_next_tick(void **state)
{
    struct test_random r = {12};
    size_t n_wakes = 0;

    (void)state;
    n_fired = 0;
    start_items();
    for (int i = 0; i < 100 * N_TIMERS; i++) {
        const int64_t last_us = now_us;

        while (wheel.n == 0 || test_random_below(&r, 2) == 0)
            step(&r);
        now_us = wheel_next_us(&wheel);
        assert_true(now_us > last_us && now_us % WHEEL_TICK_US == 0);
        check_none_is_late();
        n_wakes++;
        wheel_advance(&wheel, now_us);
        check_all();
    }
    assert_true(n_fired > n_wakes / 10);
}

static void test_when_a_timer_is_looked_at(void **state)
{
    static const int64_t dues_us[] = {
        0, 1, WHEEL_TICK_US - 1, WHEEL_TICK_US, 7 * US_PER_S, 10 * US_PER_S + 1};

    (void)state;
    now_us = 0;
    for (size_t i = 0; i < sizeof dues_us / sizeof *dues_us; i++) {
        struct item it = {.due_us = dues_us[i]};

        wheel_init(&wheel, 0);
        wheel_timer_init(&it.timer, fire);
        wheel_set(&wheel, &it.timer, it.due_us);
        now_us = wheel_look_us(&it.timer) - 1;
        wheel_advance(&wheel, now_us);
        assert_true(it.due_us != IDLE);
        wheel_advance(&wheel, ++now_us);
        assert_true(it.due_us == IDLE);
    }
}

/* One timer at a time, looked at every millisecond. */
static void test_one_tick_late_at_most(void **state)
{
    (void)state;
    wheel_init(&wheel, 0);
    for (int64_t due_us = 1; due_us < 300 * US_PER_S; due_us = due_us * 3 + 777) {
        struct item it;

        wheel_timer_init(&it.timer, fire);
        wheel_init(&wheel, 0);
        it.due_us = due_us;
        wheel_set(&wheel, &it.timer, due_us);
        for (now_us = 0; now_us < due_us; now_us += 1000) {
            wheel_advance(&wheel, now_us);
            assert_true(it.due_us != IDLE);
        }
        now_us = due_us + WHEEL_TICK_US - 1;
        wheel_advance(&wheel, now_us);
        assert_true(it.due_us == IDLE);
    }
}

/* Pushing a timer out again and again leaves it in its slot until that comes round. */
static void test_pushing_out_is_a_store(void **state)
{
    struct item it;
    struct list *link;

    (void)state;
    now_us = 0;
    wheel_init(&wheel, now_us);
    wheel_timer_init(&it.timer, fire);
    wheel_set(&wheel, &it.timer, US_PER_S);
    link = it.timer.link.prev;
    it.due_us = 60 * US_PER_S;
    wheel_set(&wheel, &it.timer, it.due_us);
    assert_ptr_equal(it.timer.link.prev, link);
    for (now_us = 0; now_us < it.due_us; now_us += WHEEL_TICK_US)
        wheel_advance(&wheel, now_us);
    wheel_set(&wheel, &it.timer, it.due_us = now_us + WHEEL_TICK_US); /* and back again */
    now_us += WHEEL_TICK_US;
    wheel_advance(&wheel, now_us);
    assert_true(it.due_us == IDLE);
}

static struct wheel_timer first, second, third;
static int n_first, n_second, n_third;

static void fire_first(struct wheel_timer *t)
{
    n_first++;
    wheel_cancel(&wheel, &second);
    wheel_set(&wheel, t, now_us);                 /* again, at the next tick */
    wheel_set(&wheel, &third, now_us + US_PER_S); /* moves one of this slot */
}

static void fire_second(struct wheel_timer *t)
{
    (void)t;
    n_second++;
}

static void fire_third(struct wheel_timer *t)
{
    (void)t;
    n_third++;
}

static void test_changes_while_firing(void **state)
{
    (void)state;
    now_us = 0;
    wheel_init(&wheel, now_us);
    wheel_timer_init(&first, fire_first);
    wheel_timer_init(&second, fire_second);
    wheel_timer_init(&third, fire_third);
    wheel_set(&wheel, &first, 100);
    wheel_set(&wheel, &second, 100);
    wheel_set(&wheel, &third, 100);
    now_us = WHEEL_TICK_US;
    wheel_advance(&wheel, now_us);
    assert_int_equal(n_first, 1);
    assert_int_equal(n_second, 0);
    assert_int_equal(n_third, 0);
    assert_int_equal(wheel.n, 2);
    wheel_advance(&wheel, now_us); /* the same time again: nothing */
    assert_int_equal(n_first, 1);
    now_us += WHEEL_TICK_US;
    wheel_advance(&wheel, now_us);
    assert_int_equal(n_first, 2);
    wheel_cancel(&wheel, &first);
    wheel_cancel(&wheel, &first); /* twice does no harm */
    now_us += 2 * US_PER_S;
    wheel_advance(&wheel, now_us);
    assert_int_equal(n_third, 1);
    assert_int_equal(wheel.n, 0);
}

static void test_never(void **state)
{
    struct item it;

    (void)state;
    now_us = 0;
    wheel_init(&wheel, now_us);
    wheel_timer_init(&it.timer, fire);
    wheel_set(&wheel, &it.timer, INT64_MAX - 1);
    now_us = INT64_C(1) << 60;
    wheel_advance(&wheel, now_us);
    assert_true(wheel_pending(&it.timer));
    assert_true(wheel_look_us(&it.timer) > now_us);
    wheel_cancel(&wheel, &it.timer);
    assert_int_equal(wheel.n, 0);
}

/* The store leaves the timer in its slot, where it is found, not fired, and put aside. */
static void test_resting(void **state)
{
    struct item it = {.due_us = IDLE};

    (void)state;
    now_us = 0;
    wheel_init(&wheel, now_us);
    wheel_timer_init(&it.timer, fire);
    wheel_set(&wheel, &it.timer, US_PER_S);
    wheel_rest(&it.timer);
    assert_false(wheel_pending(&it.timer));
    assert_int_equal(wheel.n, 1);
    now_us = 2 * US_PER_S;
    wheel_advance(&wheel, now_us);
    assert_int_equal(wheel.n, 0);
    assert_false(wheel_in_slot(&it.timer));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_program),
        cmocka_unit_test(test_sleeping_until_the_next_tick),
        cmocka_unit_test(test_when_a_timer_is_looked_at),
        cmocka_unit_test(test_one_tick_late_at_most),
        cmocka_unit_test(test_pushing_out_is_a_store),
        cmocka_unit_test(test_changes_while_firing),
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_resting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
