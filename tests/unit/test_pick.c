/* The choice of a pod: the warm one, then the order of preference, then ties in turn. */
#include "queue_fixture.h"

#include <math.h>

static struct fixture f;

static int setup(void **state)
{
    (void)state;
    fx_start(&f, fx_rules(), 3, 16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        f.pods[i]->in_flight = 0;
    fx_end(&f);
    return 0;
}

static void expect(int item, int pod)
{
    struct model_target *t = pick_target(f.m, &f.items[item], &f.admit.rules, f.now_us);

    if (pod == FX_NONE)
        assert_null(t);
    else
        assert_ptr_equal(t, f.m->targets[pod]);
}

static void set(size_t pod, unsigned in_flight, double waiting, double kv_usage)
{
    f.pods[pod]->in_flight = in_flight;
    f.pods[pod]->numbers =
        (struct pod_numbers){.waiting = waiting, .waiting_min = 0, .kv_usage = kv_usage, .at_us = f.now_us};
}

static void test_order_of_preference(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    set(0, 2, 0, 0);
    set(1, 1, 9, 0.9);
    set(2, 2, 0, 0);
    expect(0, 1); /* our own count first */
    set(0, 1, 3, 0.1);
    set(1, 1, 2, 0.9);
    expect(0, 1); /* then waiting */
    set(2, 1, 2, 0.5);
    expect(0, 2); /* then KV use */
}

static void test_missing_and_stale_numbers_count_as_nothing(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    set(0, 1, 1, 0.5);
    set(1, 1, NAN, NAN);
    set(2, 2, 0, 0);
    expect(0, 1);
    set(1, 1, 5, 0.9);
    expect(0, 0);
    f.pods[1]->numbers.at_us = f.now_us - f.admit.rules.stale_us - 1;
    expect(0, 1);
}

static void test_ties_in_turn(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        fx_push(&f, i, NULL);
        assert_int_equal(fx_admit(&f), i);
        assert_ptr_equal(f.ran_on[i], f.pods[i % 3]);
        fx_release(&f, i);
    }
}

static void test_warm_pod_while_it_has_room(void **state)
{
    (void)state;
    fx_mark(&f, "a", 2);
    fx_push(&f, 0, "a");
    set(2, 15, 9, 1);
    expect(0, 2);
    set(2, 16, 9, 1);
    expect(0, 0);
}

/* Whatever the policy would choose. */
static void test_warm_pod_before_any_policy(void **state)
{
    (void)state;
    fx_mark(&f, "a", 2);
    fx_push(&f, 0, "a");
    set(0, 1, 0, 0);
    for (enum policy_kind kind = POLICY_LEAST_REQUEST; kind < POLICY_KINDS; kind++) {
        model_set_policy(f.m, &(struct policy){.kind = kind, .weights = {1, 1, 1, 1, 1}});
        set(2, 15, 9, 1);
        for (int i = 0; i < 10; i++)
            expect(0, 2);
        set(2, 16, 9, 1);
        if (kind == POLICY_LEAST_REQUEST)
            expect(0, 1);
    }
}

static void test_no_preference_when_the_rules_do_not_want_it(void **state)
{
    (void)state;
    f.m->q.rules.prefer_warm = false;
    fx_mark(&f, "a", 2);
    fx_push(&f, 0, "a");
    set(2, 1, 0, 0);
    expect(0, 0);
}

static void test_the_warm_pod_follows_the_last_completion(void **state)
{
    (void)state;
    fx_mark(&f, "a", 2);
    fx_push(&f, 0, "a");
    fx_mark(&f, "a", 1);
    expect(0, 1);
    assert_int_equal(fx_admit(&f), 0);
    assert_int_equal(f.items[0].queue.warm_pod_id, f.pods[1]->id);
    fx_release(&f, 0);
}

static void test_never_a_pod_without_room(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    set(0, 16, 0, 0);
    set(1, 16, 0, 0);
    set(2, 15, 0, 0);
    expect(0, 2);
    f.pods[2]->numbers.waiting_min = 1;
    expect(0, FX_NONE);
}

static void test_tried_pods_only_when_all_are_tried(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    f.items[0].tried[0] = f.pods[0]->id;
    f.items[0].n_tried = 1;
    set(1, 5, 0, 0);
    set(2, 4, 0, 0);
    expect(0, 2);
    set(1, 16, 0, 0);
    set(2, 16, 0, 0);
    expect(0, FX_NONE); /* full, but not tried: it waits for them */
    assert_true(pick_any_untried(f.m, &f.items[0]));
    f.pods[1]->leaving = f.pods[2]->leaving = true;
    (void)model_refresh(f.m, f.now_us);
    assert_false(pick_any_untried(f.m, &f.items[0]));
    expect(0, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_order_of_preference),
        TEST(test_missing_and_stale_numbers_count_as_nothing),
        TEST(test_ties_in_turn),
        TEST(test_warm_pod_while_it_has_room),
        TEST(test_warm_pod_before_any_policy),
        TEST(test_no_preference_when_the_rules_do_not_want_it),
        TEST(test_the_warm_pod_follows_the_last_completion),
        TEST(test_never_a_pod_without_room),
        TEST(test_tried_pods_only_when_all_are_tried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
