/* A model's targets: who is usable, which lanes are open, and what stays when the pods change. */
#include "queue_fixture.h"

static struct fixture f;

static int setup(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.sticky = true;
    fx_start(&f, rules, 3, 16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fx_end(&f);
    return 0;
}

static void test_new_targets_are_usable_and_open(void **state)
{
    (void)state;
    assert_string_equal(f.m->name, "m");
    assert_int_equal(f.m->n_targets, 3);
    assert_int_equal(f.m->n_usable, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_ptr_equal(f.m->targets[i]->pod, f.pods[i]);
        assert_true(f.m->targets[i]->usable && f.m->targets[i]->lane.open);
        assert_ptr_equal(model_target_of(f.m, f.pods[i]->id), f.m->targets[i]);
        assert_int_equal(f.m->targets[i]->index, i);
        assert_int_equal(f.pods[i]->refs, 2);
    }
    assert_null(model_target_of(f.m, 0));
    assert_false(model_refresh(f.m, f.now_us));
}

static void test_a_pod_set_aside_is_not_usable_for_its_pause(void **state)
{
    (void)state;
    fx_set_aside(&f, 1);
    assert_true(model_refresh(f.m, f.now_us));
    assert_int_equal(f.m->n_usable, 2);
    assert_false(f.m->targets[1]->usable || f.m->targets[1]->lane.open);
    assert_int_equal(model_target_room(f.m->targets[1], &f.admit.rules, f.now_us), POD_NOT_USABLE);
    assert_false(model_refresh(f.m, f.now_us + POD_ASIDE_MIN_US - 1));
    assert_true(model_refresh(f.m, f.now_us + POD_ASIDE_MIN_US));
    assert_int_equal(f.m->n_usable, 3);
    assert_true(f.m->targets[1]->lane.open);
}

static void test_never_are_all_pods_aside(void **state)
{
    (void)state;
    f.pods[2]->leaving = true;
    fx_set_aside(&f, 0);
    fx_set_aside(&f, 1);
    (void)model_refresh(f.m, f.now_us);
    assert_int_equal(f.m->n_usable, 2);
    assert_true(f.m->targets[0]->usable && f.m->targets[1]->usable);
    assert_false(f.m->targets[2]->usable);
    pod_connect_succeeded(f.pods[0]);
    assert_true(model_refresh(f.m, f.now_us));
    assert_int_equal(f.m->n_usable, 1);
    assert_false(f.m->targets[1]->usable);
}

static void expect_usable(bool a, bool b, bool c)
{
    (void)model_refresh(f.m, f.now_us);
    assert_true(f.m->targets[0]->usable == a && f.m->targets[1]->usable == b && f.m->targets[2]->usable == c);
    assert_int_equal(f.m->n_usable, a + b + c);
}

static void test_adapters_go_to_pods_that_list_them(void **state)
{
    (void)state;
    model_set_listed(f.m, f.pods[1]->id, true);
    expect_usable(true, true, true); /* no adapter */
    f.m->adapter = true;
    assert_true(model_is_listed(f.m, f.now_us));
    expect_usable(false, true, false);
    model_set_listed(f.m, f.pods[2]->id, true);
    model_set_listed(f.m, 999999, true);
    expect_usable(false, true, true);
    f.pods[2]->leaving = true;
    expect_usable(false, true, false);
    for (int i = 0; i < POD_ASIDE_AFTER_FAILURES; i++)
        (void)pod_connect_failed(f.pods[1], f.now_us);
    assert_false(model_is_listed(f.m, f.now_us));
    expect_usable(true, false, false); /* nobody in place has it: any will do */
    f.now_us += POD_ASIDE_MIN_US;
    expect_usable(false, true, false);
    model_set_listed(f.m, f.pods[1]->id, false);
    expect_usable(true, true, false);
}

static void test_targets_that_stay_keep_lane_and_turn(void **state)
{
    struct model_target *kept = f.m->targets[1];
    struct pod *pods[] = {f.pods[2], f.pods[1]};

    (void)state;
    kept->last_admitted = 7;
    fx_mark(&f, "a", 1);
    fx_push(&f, 0, "a");
    fx_mark(&f, "b", 0);
    fx_push(&f, 1, "b");
    model_set_pods(f.m, pods, 2, f.now_us);
    assert_int_equal(f.m->n_targets, 2);
    assert_ptr_equal(f.m->targets[0], kept);
    assert_int_equal(kept->index, 0);
    assert_int_equal(kept->last_admitted, 7);
    assert_ptr_equal(f.items[0].queue.lane, &kept->lane);
    assert_ptr_equal(f.items[1].queue.lane, &f.m->q.shared);
    assert_int_equal(f.pods[0]->refs, 1);
    model_set_pods(f.m, f.pods, 3, f.now_us);
    assert_int_equal(f.m->n_targets, 3);
    assert_ptr_equal(f.m->targets[2]->pod, f.pods[0]);
    assert_int_equal(f.m->targets[2]->index, 2);
    assert_int_equal(f.m->n_usable, 3);
}

static void test_no_pods_at_all(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    model_set_pods(f.m, NULL, 0, f.now_us);
    assert_int_equal(f.m->n_targets, 0);
    assert_int_equal(f.m->n_usable, 0);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(f.m->closed_reason, POD_NOT_USABLE);
    model_set_pods(f.m, f.pods, 1, f.now_us);
    assert_int_equal(fx_admit(&f), 0); /* those already waiting waited on for one */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_new_targets_are_usable_and_open),
        TEST(test_a_pod_set_aside_is_not_usable_for_its_pause),
        TEST(test_never_are_all_pods_aside),
        TEST(test_adapters_go_to_pods_that_list_them),
        TEST(test_targets_that_stay_keep_lane_and_turn),
        TEST(test_no_pods_at_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
