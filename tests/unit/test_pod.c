/* A pod's slots: the limit, grace windows, scraped numbers, pauses after failed connects, and when time alone
 * changes the answer. */
#include "pod.h"

#include "test.h"

#include <math.h>

#define S  US_PER_S
#define T0 (100 * S)

static struct pod *p;
static struct pod_rules rules;

static int setup(void **state)
{
    (void)state;
    p = pod_new(SLICE("10.0.0.1:8000"));
    rules = (struct pod_rules){.gated = true, .inflight_limit = 2, .grace_us = 0, .stale_us = 3 * S};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pod_unref(p);
    return 0;
}

static void numbers(double waiting, double waiting_min, int64_t at_us)
{
    p->numbers = (struct pod_numbers){.waiting = waiting, .waiting_min = waiting_min, .at_us = at_us};
}

static void test_new_pods_have_names_and_ids_of_their_own(void **state)
{
    struct pod *other = pod_new(SLICE("10.0.0.2:8000"));

    (void)state;
    assert_string_equal(p->name, "10.0.0.1:8000");
    assert_int_not_equal(p->id, 0);
    assert_int_not_equal(p->id, other->id);
    pod_unref(pod_ref(other));
    pod_unref(other);
}

static void test_limit(void **state)
{
    (void)state;
    assert_int_equal(pod_room(p, &rules, T0), POD_ROOM);
    pod_take_slot(p);
    assert_int_equal(pod_room(p, &rules, T0), POD_ROOM);
    pod_take_slot(p);
    assert_int_equal(pod_room(p, &rules, T0), POD_FULL);
    pod_release_slot(p, &rules, true, T0);
    assert_int_equal(pod_room(p, &rules, T0), POD_ROOM);
    assert_int_equal(pod_free_slots(p, &rules), 1);
    assert_int_equal(p->in_flight, 1);
}

static void test_without_a_gate_only_leaving_counts(void **state)
{
    (void)state;
    rules.gated = false;
    rules.grace_us = S;
    for (int i = 0; i < 5; i++)
        pod_take_slot(p);
    pod_release_slot(p, &rules, true, T0);
    numbers(9, 9, T0);
    assert_int_equal(pod_room(p, &rules, T0), POD_ROOM);
    assert_int_equal(pod_next_due_us(p, &(struct pod_rules){.stale_us = -1}, T0), INT64_MAX); /* no window */
    p->leaving = true;
    assert_int_equal(pod_room(p, &rules, T0), POD_NOT_USABLE);
}

/* ---- grace ---- */

static void test_grace_holds_one_slot_of_two(void **state)
{
    (void)state;
    rules.grace_us = 200 * US_PER_MS;
    pod_take_slot(p);
    pod_take_slot(p);
    pod_release_slot(p, &rules, true, T0);
    assert_int_equal(pod_room(p, &rules, T0), POD_GRACE); /* one runs, one is held */
    pod_release_slot(p, &rules, false, T0);
    assert_int_equal(pod_room(p, &rules, T0), POD_ROOM); /* one free, one held */
    assert_int_equal(pod_free_slots(p, &rules), 1);
    pod_take_slot(p);
    assert_int_equal(pod_room(p, &rules, T0), POD_GRACE);
    assert_int_equal(pod_free_slots(p, &rules), 0);
    assert_int_equal(pod_next_due_us(p, &rules, T0), T0 + 200 * US_PER_MS);
    assert_int_equal(pod_room(p, &rules, T0 + 200 * US_PER_MS - 1), POD_GRACE);
    assert_int_equal(pod_room(p, &rules, T0 + 200 * US_PER_MS), POD_ROOM);
}

static void test_each_release_opens_its_own_window(void **state)
{
    (void)state;
    rules.grace_us = 10;
    pod_take_slot(p);
    pod_take_slot(p);
    pod_release_slot(p, &rules, true, T0);
    pod_release_slot(p, &rules, true, T0 + 4);
    assert_int_equal(pod_room(p, &rules, T0 + 9), POD_GRACE);
    assert_int_equal(pod_room(p, &rules, T0 + 10), POD_ROOM);
    pod_take_slot(p);
    assert_int_equal(pod_next_due_us(p, &rules, T0 + 10), T0 + 14);
    assert_int_equal(pod_room(p, &rules, T0 + 13), POD_GRACE);
    assert_int_equal(pod_room(p, &rules, T0 + 14), POD_ROOM);
}

/* More windows than the ring first holds, wrapped round; and a reload that shortens them. */
static void test_many_windows(void **state)
{
    (void)state;
    rules.inflight_limit = 100;
    rules.grace_us = 1000;
    for (int i = 0; i < 100; i++)
        pod_take_slot(p);
    for (int i = 0; i < 100; i++)
        pod_release_slot(p, &rules, true, T0 + i * 20);
    assert_int_equal(p->held_n, 50);
    assert_int_equal(pod_next_due_us(p, &rules, T0 + 99 * 20), T0 + 50 * 20 + 1000);
    rules.inflight_limit = 50;
    assert_int_equal(pod_room(p, &rules, T0 + 99 * 20), POD_GRACE);
    assert_int_equal(pod_room(p, &rules, T0 + 100 * 20), POD_ROOM);
    rules.grace_us = 5;
    pod_take_slot(p);
    pod_release_slot(p, &rules, true, T0 + 100 * 20);
    assert_int_equal(pod_room(p, &rules, T0 + 100 * 20 + 4), POD_GRACE);
    assert_int_equal(pod_room(p, &rules, T0 + 100 * 20 + 5), POD_ROOM);
    assert_int_equal(p->held_n, 0);
}

/* ---- scraped numbers ---- */

static void test_waiting_requests_close_the_pod(void **state)
{
    (void)state;
    numbers(3, 3, T0);
    assert_int_equal(pod_room(p, &rules, T0), POD_BACKPRESSURE);
    numbers(0, 0, T0);
    assert_int_equal(pod_room(p, &rules, T0), POD_ROOM);
}

static void test_any_rank_without_waiting_is_room(void **state)
{
    (void)state;
    numbers(3, 0, T0);
    assert_int_equal(pod_room(p, &rules, T0), POD_ROOM);
}

static void test_missing_numbers_are_no_opinion(void **state)
{
    (void)state;
    numbers(NAN, NAN, T0);
    assert_int_equal(pod_room(p, &rules, T0), POD_ROOM);
    assert_int_equal(pod_next_due_us(p, &rules, T0), INT64_MAX);
}

/* Whatever the rules are, until it says otherwise or is silent for too long. */
static void test_asleep(void **state)
{
    (void)state;
    p->numbers = (struct pod_numbers){.asleep = true, .at_us = T0};
    assert_true(pod_is_asleep(p, T0));
    assert_int_equal(pod_room(p, &rules, T0), POD_NOT_USABLE);
    assert_int_equal(pod_next_due_us(p, &rules, T0), T0 + POD_ASLEEP_KEEP_US + 1);
    rules.gated = false;
    assert_int_equal(pod_room(p, &rules, T0 + POD_ASLEEP_KEEP_US), POD_NOT_USABLE);
    assert_int_equal(pod_room(p, &rules, T0 + POD_ASLEEP_KEEP_US + 1), POD_ROOM);
    p->numbers = (struct pod_numbers){.asleep = false, .at_us = T0};
    assert_int_equal(pod_room(p, &rules, T0), POD_ROOM);
}

/* A scrape with these totals of first tokens. */
static void scrape_ttft(double sum_s, double n, int64_t now_us)
{
    const struct pod_numbers none = {NAN, NAN, NAN, NAN, false, 0};

    pod_take_numbers(p, &none, &(struct pod_totals){sum_s, n, NAN, NAN}, now_us);
}

/* The Go router's: (10,5) to (18,9) is 2, no change is nothing, (10,5) to (9,2) is 4.5, (100,10) to (15,15)
 * is 1. */
static void test_was_tried(void **state)
{
    (void)state;
    assert_false(pod_was_tried(p, 1));
    pod_take_slot(p);
    assert_false(pod_was_tried(p, T0));
    pod_release_slot(p, &rules, false, T0);
    assert_true(pod_was_tried(p, T0 + POD_AVERAGE_KEEP_US));
    assert_false(pod_was_tried(p, T0 + POD_AVERAGE_KEEP_US + 1));
}

static void test_averages_as_the_go_router_has_them(void **state)
{
    static const struct {
        double s, n, average_s;
    } steps[] = {{10, 5, 2},  {18, 9, 2},        {18, 9, 2},  {10, 5, 2},
                 {9, 2, 4.5}, {100, 10, 11.375}, {15, 15, 1}, {0, 0, 1}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        const double got = (scrape_ttft(steps[i].s, steps[i].n, T0 + (int64_t)i * S),
                            pod_average_s(&p->ttft, T0 + (int64_t)i * S));

        assert_true(got >= steps[i].average_s && got <= steps[i].average_s);
    }
}

static void test_averages_between_scrapes(void **state)
{
    (void)state;
    assert_true(isnan(pod_average_s(&p->ttft, T0)));
    scrape_ttft(NAN, NAN, T0);
    assert_true(isnan(pod_average_s(&p->ttft, T0)));
    assert_int_equal(p->numbers.at_us, T0);
    scrape_ttft(10, 5, T0);
    assert_true(pod_average_s(&p->ttft, T0) == 2);
    scrape_ttft(22, 8, T0 + S);
    assert_true(pod_average_s(&p->ttft, T0 + S) == 4);
    scrape_ttft(22, 8, T0 + 2 * S); /* nothing new: the last one holds */
    assert_true(pod_average_s(&p->ttft, T0 + S + POD_AVERAGE_KEEP_US) == 4);
    assert_true(isnan(pod_average_s(&p->ttft, T0 + S + POD_AVERAGE_KEEP_US + 1)));
    scrape_ttft(9, 2, T0 + 3 * S); /* the pod has begun anew */
    assert_true(pod_average_s(&p->ttft, T0 + 3 * S) == 4.5);
    scrape_ttft(0, 0, T0 + 4 * S);
    assert_true(pod_average_s(&p->ttft, T0 + 4 * S) == 4.5);
    scrape_ttft(NAN, NAN, T0 + 5 * S);
    scrape_ttft(3, 3, T0 + 6 * S);
    assert_true(pod_average_s(&p->ttft, T0 + 6 * S) == 1);
    assert_true(isnan(pod_average_s(&p->tpot, T0 + 6 * S)));
}

static void test_stale_numbers_are_no_opinion(void **state)
{
    (void)state;
    assert_true(pod_numbers_stale(p, &rules, T0)); /* never scraped */
    numbers(3, 3, T0);
    assert_int_equal(pod_room(p, &rules, T0 + 3 * S), POD_BACKPRESSURE);
    assert_false(pod_numbers_stale(p, &rules, T0 + 3 * S));
    assert_int_equal(pod_next_due_us(p, &rules, T0), T0 + 3 * S + 1);
    assert_int_equal(pod_room(p, &rules, T0 + 3 * S + 1), POD_ROOM);
    assert_true(pod_numbers_stale(p, &rules, T0 + 3 * S + 1));
    assert_int_equal(pod_next_due_us(p, &rules, T0 + 3 * S + 1), INT64_MAX);
    pod_take_slot(p);
    pod_take_slot(p);
    assert_int_equal(pod_room(p, &rules, T0 + 9 * S), POD_FULL); /* the limit alone decides */
}

/* ---- set aside ---- */

static void test_set_aside_after_three_failures_with_growing_pauses(void **state)
{
    static const int64_t pauses_s[] = {1, 2, 4, 8, 16, 30, 30};
    int64_t now_us = T0;

    (void)state;
    assert_false(pod_connect_failed(p, now_us));
    assert_false(pod_connect_failed(p, now_us));
    assert_false(pod_is_aside(p, now_us));
    for (size_t i = 0; i < ARRAY_LEN(pauses_s); i++) {
        assert_true(pod_connect_failed(p, now_us));
        assert_true(pod_is_aside(p, now_us));
        assert_int_equal(pod_next_due_us(p, &rules, now_us), now_us + pauses_s[i] * S);
        now_us += pauses_s[i] * S;
        assert_true(pod_is_aside(p, now_us - 1));
        assert_false(pod_is_aside(p, now_us));
        assert_int_equal(pod_next_due_us(p, &rules, now_us), INT64_MAX);
    }
}

static void test_failures_together_count_as_one_pause(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++)
        assert_int_equal(pod_connect_failed(p, T0 + i), i == 2);
    assert_int_equal(p->aside_until_us, T0 + 2 + S);
}

static void test_a_connect_that_succeeds_ends_it(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        (void)pod_connect_failed(p, T0);
    pod_connect_succeeded(p);
    assert_false(pod_is_aside(p, T0));
    assert_false(pod_connect_failed(p, T0));
    assert_false(pod_connect_failed(p, T0));
    assert_true(pod_connect_failed(p, T0));
    assert_int_equal(p->aside_until_us, T0 + S);
}

static void test_every_reason_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < POD_ROOM_KINDS; i++)
        assert_non_null(pod_room_name((enum pod_room)i));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_new_pods_have_names_and_ids_of_their_own),
        TEST(test_limit),
        TEST(test_without_a_gate_only_leaving_counts),
        TEST(test_grace_holds_one_slot_of_two),
        TEST(test_each_release_opens_its_own_window),
        TEST(test_many_windows),
        TEST(test_waiting_requests_close_the_pod),
        TEST(test_any_rank_without_waiting_is_room),
        TEST(test_missing_numbers_are_no_opinion),
        TEST(test_asleep),
        TEST(test_averages_between_scrapes),
        TEST(test_was_tried),
        TEST(test_averages_as_the_go_router_has_them),
        TEST(test_stale_numbers_are_no_opinion),
        TEST(test_set_aside_after_three_failures_with_growing_pauses),
        TEST(test_failures_together_count_as_one_pause),
        TEST(test_a_connect_that_succeeds_ends_it),
        TEST(test_every_reason_has_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
