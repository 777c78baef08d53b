/* Admission over pods and models: what wakes the queue, turns between models, retries, the accounts of the
 * closed gate, and the per-pod limit under 10,000 random finishes and cancels. */
#include "queue_fixture.h"

static struct fixture f;

static int setup(void **state)
{
    (void)state;
    fx_start(&f, fx_rules(), 2, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fx_end(&f);
    return 0;
}

/* The gate was closed by somebody else's load, nothing of ours is in flight. */
static void test_fresh_numbers_open_the_gate(void **state)
{
    (void)state;
    fx_numbers(&f, 0, 5);
    fx_numbers(&f, 1, 2);
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(f.m->closed_reason, POD_BACKPRESSURE);
    f.now_us += US_PER_S;
    fx_numbers(&f, 0, 5);
    fx_numbers(&f, 1, 0);
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[1]);
}

/* The scrapes stopped while the last numbers said no. */
static void test_stale_numbers_open_the_gate(void **state)
{
    (void)state;
    fx_numbers(&f, 0, 5);
    fx_numbers(&f, 1, 5);
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(admit_next_due_us(&f.admit, f.now_us), f.now_us + 3 * US_PER_S + 1);
    f.now_us += 3 * US_PER_S + 1;
    assert_int_equal(fx_admit(&f), 0);
}

static void test_a_pod_without_room_is_not_used_although_another_has_some(void **state)
{
    (void)state;
    fx_numbers(&f, 0, 1);
    fx_push(&f, 0, NULL);
    fx_push(&f, 1, NULL);
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[1]);
    assert_int_equal(fx_admit(&f), FX_NONE);
}

static bool order_is_free(size_t may_come)
{
    return admit_order_is_free(&f.admit, f.m, may_come, f.now_us);
}

/* The fixture's limit is 1. */
static void test_the_order_is_free_with_room_for_all_on_each_usable_pod(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    assert_true(order_is_free(0));
    assert_false(order_is_free(1));
    fx_numbers(&f, 0, 1);
    assert_false(order_is_free(0));
    f.now_us += 3 * US_PER_S + 1;
    fx_push(&f, 1, NULL);
    assert_false(order_is_free(0));
    assert_int_equal(fx_admit(&f), 0);
    assert_false(order_is_free(0));
    fx_set_aside(&f, f.ran_on[0] == f.pods[1]);
    model_refresh(f.m, f.now_us);
    assert_true(order_is_free(0));
    f.admit.rules.gated = false;
    assert_true(order_is_free(SIZE_MAX / 2));
}

/* A pump would see that the pause is over. */
static void test_the_order_is_not_free_when_a_pod_has_come_back(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    fx_set_aside(&f, 0);
    f.pods[0]->in_flight = 1;
    assert_false(order_is_free(0)); /* nobody has noticed yet that it is aside */
    model_refresh(f.m, f.now_us);
    assert_true(order_is_free(0));
    f.now_us += POD_ASIDE_MIN_US;
    assert_false(order_is_free(0));
    f.pods[0]->in_flight = 0;
    assert_false(order_is_free(0));
    model_refresh(f.m, f.now_us);
    assert_true(order_is_free(0));
}

static void test_pods_aside_are_left_out_but_never_all(void **state)
{
    (void)state;
    fx_set_aside(&f, 0);
    fx_push(&f, 0, NULL);
    fx_push(&f, 1, NULL);
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[1]);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(admit_next_due_us(&f.admit, f.now_us), f.now_us + POD_ASIDE_MIN_US);
    fx_set_aside(&f, 1);
    assert_int_equal(fx_admit(&f), 1);
    assert_ptr_equal(f.ran_on[1], f.pods[0]);
}

static void test_a_pause_that_ends_lets_the_pod_back_in(void **state)
{
    (void)state;
    fx_set_aside(&f, 0);
    f.pods[1]->in_flight = 1;
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), FX_NONE);
    f.now_us = admit_next_due_us(&f.admit, f.now_us);
    assert_int_equal(fx_admit(&f), 0);
    f.pods[1]->in_flight = 0;
}

static void test_an_open_gate_limits_nothing(void **state)
{
    (void)state;
    f.admit.rules.gated = false;
    fx_numbers(&f, 0, 5);
    fx_numbers(&f, 1, 5);
    for (int i = 0; i < 20; i++) {
        fx_push(&f, i, NULL);
        assert_int_equal(fx_admit(&f), i);
    }
    assert_int_equal(f.pods[0]->in_flight, 10);
    assert_int_equal(f.pods[1]->in_flight, 10);
}

/* A forced one, the next of the newest session, the oldest of the others. */
static void test_who_follows_is_known(void **state)
{
    static const int order[] = {4, 2, 3, 0, 1};

    (void)state;
    fx_push(&f, 0, NULL);
    fx_push(&f, 1, NULL);
    fx_push(&f, 2, "s");
    fx_push(&f, 3, "s");
    fx_push(&f, 4, NULL);
    (void)fx_mark(&f, "s", 0);
    boostq_force(&f.m->q, &f.items[4].queue);
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        assert_ptr_equal(boostq_upcoming(&f.m->q, &f.m->q.shared), &f.items[order[i]].queue);
        fx_expect(&f, order[i]);
    }
    assert_null(boostq_upcoming(&f.m->q, &f.m->q.shared));
}

/* Only in a long queue there is something to load. */
static void test_an_admission_names_the_next_one_of_a_long_queue(void **state)
{
    static struct admit_item waiting[ADMIT_LONG_QUEUE + 2];
    struct admission got;
    size_t n = 0;

    (void)state;
    f.admit.rules.gated = false;
    for (size_t i = 0; i < ARRAY_LEN(waiting); i++)
        boostq_push(&f.m->q, &waiting[i].queue, f.now_us, f.now_us);
    admit_begin(&f.admit, f.now_us);
    while (admit_next(&f.admit, f.now_us, &got)) {
        assert_ptr_equal(got.item, &waiting[n++]);
        assert_ptr_equal(got.upcoming, boostq_len(&f.m->q) >= ADMIT_LONG_QUEUE ? &waiting[n] : NULL);
        pod_release_slot(got.pod, &f.admit.rules, true, f.now_us);
    }
    assert_int_equal(n, ARRAY_LEN(waiting));
}

static void test_nothing_waits_nothing_is_due(void **state)
{
    (void)state;
    assert_int_equal(admit_next_due_us(&f.admit, f.now_us), INT64_MAX);
    fx_push(&f, 0, NULL);
    assert_int_equal(admit_next_due_us(&f.admit, f.now_us), f.now_us + 30 * US_PER_S);
}

/* ---- several models on the same pods ---- */

static void test_models_take_turns(void **state)
{
    struct boostq_rules rules = fx_rules();
    struct model *other = model_new("other", &rules, NULL);
    struct admit_item items[4];
    struct admission got;

    (void)state;
    model_set_pods(f.m, f.pods, 1, f.now_us);
    model_set_pods(other, f.pods, 1, f.now_us);
    admit_add_model(&f.admit, other);
    for (int i = 0; i < 4; i++) {
        items[i] = (struct admit_item){.queue = {.session = {NULL, 0}}};
        fx_push(&f, i, NULL);
        boostq_push(&other->q, &items[i].queue, f.now_us, f.now_us);
    }
    for (int i = 0; i < 8; i++) {
        admit_begin(&f.admit, f.now_us);
        assert_true(admit_next(&f.admit, f.now_us, &got));
        assert_ptr_equal(got.model, i % 2 == 0 ? f.m : other);
        assert_ptr_equal(got.item, i % 2 == 0 ? &f.items[i / 2] : &items[i / 2]);
        assert_int_equal(f.pods[0]->in_flight, 1); /* one limit for both */
        assert_false(admit_next(&f.admit, f.now_us, &got));
        pod_release_slot(f.pods[0], &f.admit.rules, true, f.now_us);
    }
    admit_remove_model(&f.admit, other);
    model_free(other);
}

/* Two models of the name have the pod: together they get every second slot, and each of them every fourth. */
static void test_a_name_with_two_targets_on_a_pod_is_one(void **state)
{
    static const size_t turns[] = {0, 2, 1, 2, 0, 2, 1, 2};
    struct boostq_rules rules = fx_rules();
    struct model *models[] = {f.m, model_new("m", &rules, f.m), model_new("other", &rules, NULL)};
    struct admit_item items[3][4];
    struct admission got;

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        model_set_pods(models[k], f.pods, 1, f.now_us);
        if (k > 0)
            admit_add_model(&f.admit, models[k]);
        for (size_t i = 0; i < 4; i++) {
            items[k][i] = (struct admit_item){.queue = {.session = {NULL, 0}}};
            boostq_push(&models[k]->q, &items[k][i].queue, f.now_us, f.now_us);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(turns); i++) {
        admit_begin(&f.admit, f.now_us);
        assert_true(admit_next(&f.admit, f.now_us, &got));
        assert_ptr_equal(got.model, models[turns[i]]);
        pod_release_slot(f.pods[0], &f.admit.rules, true, f.now_us);
    }
    for (size_t k = 0; k < 3; k++) {
        while (boostq_oldest(&models[k]->q) != NULL)
            boostq_remove(&models[k]->q, boostq_oldest(&models[k]->q));
        if (k > 0) {
            admit_remove_model(&f.admit, models[k]);
            model_free(models[k]);
        }
    }
}

static void test_the_order_is_not_free_while_another_model_has_room_for_some_only(void **state)
{
    struct boostq_rules rules = fx_rules();
    struct model *other = model_new("other", &rules, NULL);
    struct admit_item items[2] = {{.queue = {.session = {NULL, 0}}}, {.queue = {.session = {NULL, 0}}}};

    (void)state;
    f.admit.rules.inflight_limit = 3;
    model_set_pods(f.m, f.pods, 1, f.now_us);
    model_set_pods(other, f.pods + 1, 1, f.now_us);
    admit_add_model(&f.admit, other);
    f.pods[1]->in_flight = 2;
    fx_push(&f, 0, NULL);
    assert_true(order_is_free(2)); /* nobody waits there */
    for (size_t i = 0; i < ARRAY_LEN(items); i++)
        boostq_push(&other->q, &items[i].queue, f.now_us, f.now_us);
    assert_false(order_is_free(0)); /* one of two could go */
    f.pods[1]->in_flight = 3;
    assert_true(order_is_free(0)); /* nobody can */
    f.pods[1]->in_flight = 0;
    assert_true(order_is_free(0)); /* everybody can */
    assert_false(order_is_free(1));
    while (boostq_oldest(&other->q) != NULL)
        boostq_remove(&other->q, boostq_oldest(&other->q));
    admit_remove_model(&f.admit, other);
    model_free(other);
}

static void test_a_model_without_candidates_holds_nobody_up(void **state)
{
    struct boostq_rules rules = fx_rules();
    struct model *other = model_new("other", &rules, NULL);

    (void)state;
    admit_add_model(&f.admit, other);
    for (int i = 0; i < 3; i++) {
        fx_push(&f, i, NULL);
        fx_expect(&f, i);
    }
    admit_remove_model(&f.admit, other);
    model_free(other);
}

/* ---- two queues of one name, fair between its users ---- */

static struct model *second;
static struct fairq_run runs[FX_ITEMS];

static void start_fair(unsigned max_overtakes)
{
    struct boostq_rules rules = fx_rules();

    rules.boost = false;
    rules.fair = true;
    rules.max_overtakes = max_overtakes;
    rules.fairness = (struct fairq_rules){.window_us = 60 * US_PER_S,
                                          .input_weight = 1,
                                          .token_weight = 1,
                                          .max_users = 9,
                                          .max_concurrent = 1,
                                          .max_qps = 1};
    fx_end(&f);
    fx_start(&f, rules, 2, 9);
    second = model_new("m", &rules, f.m);
    model_set_pods(f.m, f.pods, 1, f.now_us);
    model_set_pods(second, f.pods + 1, 1, f.now_us);
    admit_add_model(&f.admit, second);
    memset(runs, 0, sizeof(runs));
}

static void end_fair(void)
{
    struct boostq_item *item;

    while ((item = boostq_oldest(&second->q)) != NULL)
        boostq_remove(&second->q, item);
    admit_remove_model(&f.admit, second);
    model_free(second);
}

static void push_of(struct model *m, int i, const char *user)
{
    f.items[i] = (struct admit_item){.queue = {.fair = {.user = slice_of(user)}}};
    boostq_push(&m->q, &f.items[i].queue, f.now_us, f.now_us);
}

/* Who goes; it ends at once and has cost so many tokens. */
static int go(int64_t tokens)
{
    const int i = fx_admit(&f);

    if (i == FX_NONE)
        return i;
    fairq_start(f.m->q.fair, &runs[i], &f.items[i].queue.fair, f.now_us);
    assert_int_equal(fx_admit(&f), FX_NONE); /* one at one time, in both queues */
    fairq_end(f.m->q.fair, &runs[i], tokens, 0, f.now_us);
    fx_release(&f, i);
    return i;
}

static void test_the_queues_of_a_name_are_as_one(void **state)
{
    (void)state;
    start_fair(9);
    push_of(f.m, 0, "heavy");
    f.admit.rules.inflight_limit = 9;
    assert_false(order_is_free(0)); /* whatever room there is */
    assert_int_equal(go(50), 0);
    push_of(f.m, 1, "heavy");
    push_of(second, 2, "heavy");
    push_of(second, 3, "light");
    push_of(f.m, 4, "light");
    push_of(second, 5, NULL);
    assert_int_equal(second->q.name->n, 5);
    assert_int_equal(go(20), 3);
    assert_int_equal(go(20), 5); /* nobody has had less; last among equals only */
    assert_int_equal(go(20), 4);
    assert_int_equal(go(20), 1); /* of one user the one that came first */
    assert_int_equal(f.m->q.name->n, 1);
    assert_int_equal(go(20), 2);
    assert_int_equal(go(20), FX_NONE);
    end_fair();
}

static void test_a_queue_without_room_holds_the_name_up_not(void **state)
{
    (void)state;
    start_fair(9);
    f.pods[0]->leaving = true;
    push_of(f.m, 0, "a");
    push_of(second, 1, "b");
    assert_int_equal(go(1), 1);
    f.pods[0]->leaving = false;
    assert_int_equal(go(1), 0);
    end_fair();
}

/* Those of another queue count when both could have gone, and only then. */
static void test_the_overtake_bound_holds_over_the_queues_of_a_name(void **state)
{
    (void)state;
    start_fair(2);
    push_of(f.m, 0, "heavy");
    assert_int_equal(go(500), 0);
    push_of(f.m, 1, "heavy");
    f.pods[0]->leaving = true;
    push_of(second, 2, "a");
    assert_int_equal(go(1), 2);
    f.pods[0]->leaving = false;
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[1].queue), 0);
    for (int i = 3; i < 6; i++)
        push_of(second, i, "b");
    assert_int_equal(go(1), 3);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[1].queue), 1);
    assert_int_equal(go(1), 4);
    assert_int_equal(go(1), 1);
    assert_true(f.items[1].queue.forced && f.items[1].queue.overtaken == 2);
    assert_int_equal(go(1), 5);
    end_fair();
}

static void test_models_of_a_name_stand_beside_each_other(void **state)
{
    struct boostq_rules rules = fx_rules();
    struct model *other, *third;

    (void)state;
    start_fair(9);
    other = model_new("other", &rules, NULL);
    admit_add_model(&f.admit, other);
    third = model_new("m", &rules, second);
    admit_add_model(&f.admit, third);
    assert_ptr_equal(f.admit.models[0], f.m);
    assert_ptr_equal(f.admit.models[1], second);
    assert_ptr_equal(f.admit.models[2], third);
    assert_ptr_equal(f.admit.models[3], other);
    admit_remove_model(&f.admit, third);
    admit_remove_model(&f.admit, other);
    model_free(third);
    model_free(other);
    end_fair();
}

/* ---- retries ---- */

static enum admit_retry retry(int item, struct pod **pod)
{
    struct pod *failed = f.ran_on[item];
    enum admit_retry got;

    pod_release_slot(failed, &f.admit.rules, false, f.now_us);
    f.ran_on[item] = NULL;
    got = admit_retry(&f.admit, f.m, &f.items[item], failed, f.now_us, pod);
    if (got == ADMIT_RETRY_NOW)
        f.ran_on[item] = *pod;
    return got;
}

static void test_retry_takes_the_next_pod(void **state)
{
    struct pod *pod = NULL;

    (void)state;
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), 0);
    assert_int_equal(retry(0, &pod), ADMIT_RETRY_NOW);
    assert_ptr_equal(pod, f.pods[1]);
    assert_int_equal(f.pods[0]->in_flight, 0);
    assert_int_equal(f.pods[1]->in_flight, 1);
    assert_int_equal(retry(0, &pod), ADMIT_RETRY_NONE); /* both are tried */
    assert_int_equal(f.pods[1]->in_flight, 0);
}

static void test_at_most_three_pods(void **state)
{
    struct pod *pod = NULL;

    (void)state;
    fx_end(&f);
    fx_start(&f, fx_rules(), 4, 1);
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), 0);
    assert_int_equal(retry(0, &pod), ADMIT_RETRY_NOW);
    assert_int_equal(retry(0, &pod), ADMIT_RETRY_NOW);
    assert_int_equal(retry(0, &pod), ADMIT_RETRY_NONE);
    assert_int_equal(f.items[0].queue.where, BOOSTQ_OUT);
}

static void test_retry_waits_when_every_other_pod_is_full(void **state)
{
    struct pod *pod = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        fx_push(&f, i, NULL);
        assert_int_equal(fx_admit(&f), i);
    }
    fx_mark(&f, "s", 0);
    fx_push(&f, 2, "s");
    assert_int_equal(retry(0, &pod), ADMIT_RETRY_QUEUED);
    assert_int_equal(f.items[0].queue.where, BOOSTQ_FORCED);
    assert_int_equal(fx_admit(&f), 2); /* pod 0 has room, but not for the one that has tried it */
    assert_ptr_equal(f.ran_on[2], f.pods[0]);
    assert_int_equal(fx_admit(&f), FX_NONE);
    fx_release(&f, 1);
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[1]);
}

/* The oldest forced request has tried the only pod with room: the next forced one goes, before boosted ones.
 */
static void test_the_next_forced_request_goes_when_the_oldest_cannot(void **state)
{
    struct pod *pod = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        fx_push(&f, i, NULL);
        assert_int_equal(fx_admit(&f), i);
    }
    assert_ptr_equal(f.ran_on[0], f.pods[0]);
    assert_int_equal(retry(0, &pod), ADMIT_RETRY_QUEUED);
    fx_mark(&f, "s", 0);
    fx_push(&f, 2, "s");
    fx_push(&f, 3, NULL);
    fx_push(&f, 4, NULL);
    fx_remove(&f, 3);
    fx_remove(&f, 4);
    boostq_requeue(&f.m->q, &f.items[4].queue);
    boostq_requeue(&f.m->q, &f.items[3].queue);
    fx_expect(&f, 3);
    fx_expect(&f, 4);
    fx_expect(&f, 2);
    assert_int_equal(fx_admit(&f), FX_NONE);
}

/* Moved here with a pod that it has tried: the only one with room is no reason to stop, and no place for it.
 */
static void test_a_moved_request_that_has_tried_the_only_pod_with_room_waits(void **state)
{
    (void)state;
    f.items[0].queue.session = (struct slice){NULL, 0};
    f.items[0].tried[f.items[0].n_tried++] = f.pods[0]->id;
    f.pods[1]->in_flight = 1;
    admit_move(f.m, &f.items[0], f.now_us, f.now_us);
    assert_int_equal(fx_admit(&f), FX_NONE);
    f.pods[1]->in_flight = 0;
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[1]);
}

/* What waits to be tried again must not wait for ever: when no usable pod is left untried, any will do. */
static void test_a_tried_pod_is_better_than_none(void **state)
{
    struct pod *pod = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        fx_push(&f, i, NULL);
        assert_int_equal(fx_admit(&f), i);
    }
    assert_int_equal(retry(0, &pod), ADMIT_RETRY_QUEUED);
    assert_int_equal(fx_admit(&f), FX_NONE);
    f.pods[1]->leaving = true;
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[0]);
}

/* ---- the accounts of the closed gate ---- */

static void test_the_closed_gate_is_accounted_by_reason(void **state)
{
    (void)state;
    f.admit.rules.grace_us = 7;
    fx_push(&f, 0, NULL);
    fx_push(&f, 1, NULL);
    fx_push(&f, 2, NULL);
    assert_int_equal(fx_admit(&f), 0);
    assert_int_equal(fx_admit(&f), 1);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(f.m->closed_reason, POD_FULL);
    f.now_us += 100;
    fx_release(&f, 0);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(f.m->closed_reason, POD_GRACE);
    assert_int_equal(f.m->closed_us[POD_FULL], 100);
    f.now_us += 7;
    fx_numbers(&f, 0, 1);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(f.m->closed_reason, POD_BACKPRESSURE);
    f.now_us += 30;
    f.pods[0]->leaving = f.pods[1]->leaving = true;
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(f.m->closed_reason, POD_NOT_USABLE);
    f.now_us += 4;
    f.pods[0]->leaving = f.pods[1]->leaving = false;
    fx_numbers(&f, 0, 0);
    assert_int_equal(fx_admit(&f), 2);
    assert_int_equal(f.m->closed_reason, POD_ROOM);
    f.now_us += 1000;
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(f.m->closed_reason, POD_ROOM);
    assert_int_equal(f.m->closed_us[POD_FULL], 100);
    assert_int_equal(f.m->closed_us[POD_GRACE], 7);
    assert_int_equal(f.m->closed_us[POD_BACKPRESSURE], 30);
    assert_int_equal(f.m->closed_us[POD_NOT_USABLE], 4);
}

/* ---- the limit ---- */

static struct test_random rng;

static void check_limit(unsigned limit)
{
    unsigned running[FX_PODS] = {0};

    for (int i = 0; i < FX_ITEMS; i++) {
        for (size_t p = 0; p < f.n_pods; p++)
            running[p] += f.ran_on[i] == f.pods[p];
    }
    for (size_t p = 0; p < f.n_pods; p++) {
        assert_int_equal(f.pods[p]->in_flight, running[p]);
        assert_true(running[p] <= limit);
    }
}

/* A request that waits is cancelled or left alone, one that runs finishes, one that is out arrives. */
static void random_move(int i)
{
    static const char *const ids[] = {NULL, "a", "b", "c", "d"};

    if (f.ran_on[i] != NULL)
        fx_release(&f, i);
    else if (f.items[i].queue.where == BOOSTQ_OUT)
        fx_push(&f, i, ids[test_random_below(&rng, ARRAY_LEN(ids))]);
    else if (test_random_below(&rng, 2) == 0)
        fx_remove(&f, i);
    if (test_random_below(&rng, 3) == 0)
        fx_mark(&f, ids[1 + test_random_below(&rng, 4)], test_random_below(&rng, 3));
}

static void test_the_limit_holds_under_random_finishes_and_cancels(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    fx_end(&f);
    rules.sticky = true;
    fx_start(&f, rules, 3, 4);
    rng.state = 3;
    for (int step = 0; step < 10000; step++) {
        f.now_us += (int64_t)test_random_below(&rng, 1000);
        random_move((int)test_random_below(&rng, FX_ITEMS));
        while (fx_admit(&f) != FX_NONE)
            ;
        check_limit(4);
    }
    /* the counters must end at 0: fx_end */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_fresh_numbers_open_the_gate),
        TEST(test_stale_numbers_open_the_gate),
        TEST(test_a_pod_without_room_is_not_used_although_another_has_some),
        TEST(test_the_order_is_free_with_room_for_all_on_each_usable_pod),
        TEST(test_the_order_is_not_free_when_a_pod_has_come_back),
        TEST(test_pods_aside_are_left_out_but_never_all),
        TEST(test_a_pause_that_ends_lets_the_pod_back_in),
        TEST(test_an_open_gate_limits_nothing),
        TEST(test_who_follows_is_known),
        TEST(test_an_admission_names_the_next_one_of_a_long_queue),
        TEST(test_nothing_waits_nothing_is_due),
        TEST(test_models_take_turns),
        TEST(test_a_name_with_two_targets_on_a_pod_is_one),
        TEST(test_the_order_is_not_free_while_another_model_has_room_for_some_only),
        TEST(test_a_model_without_candidates_holds_nobody_up),
        TEST(test_the_queues_of_a_name_are_as_one),
        TEST(test_a_queue_without_room_holds_the_name_up_not),
        TEST(test_the_overtake_bound_holds_over_the_queues_of_a_name),
        TEST(test_models_of_a_name_stand_beside_each_other),
        TEST(test_retry_takes_the_next_pod),
        TEST(test_at_most_three_pods),
        TEST(test_retry_waits_when_every_other_pod_is_full),
        TEST(test_the_next_forced_request_goes_when_the_oldest_cannot),
        TEST(test_a_moved_request_that_has_tried_the_only_pod_with_room_waits),
        TEST(test_a_tried_pod_is_better_than_none),
        TEST(test_the_closed_gate_is_accounted_by_reason),
        TEST(test_the_limit_holds_under_random_finishes_and_cancels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
