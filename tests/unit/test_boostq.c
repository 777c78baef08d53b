/* The queue's rules one by one. First the sixteen scenarios that every session-boost queue of this kind is
 * expected to pass, numbered, then what is our own: promotion, lanes, the overtake bound, limits and their
 * edges. */
#include "queue_fixture.h"

#define S US_PER_S

static struct fixture f;

static int setup(void **state)
{
    (void)state;
    fx_start(&f, fx_rules(), 1, 16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fx_end(&f);
    return 0;
}

static void restart(struct boostq_rules rules, size_t n_pods, unsigned limit)
{
    fx_end(&f);
    fx_start(&f, rules, n_pods, limit);
}

/* ---- the sixteen scenarios ---- */

static void scenario_01_follow_up_before_plain(void **state)
{
    struct boostq_item *plain, *follow_up;

    (void)state;
    fx_mark(&f, "conv-123", 0);
    plain = fx_push(&f, 0, NULL);
    f.now_us += 1 * S;
    follow_up = fx_push(&f, 1, "conv-123");
    assert_true(follow_up->boosted);
    assert_false(plain->boosted);
    fx_expect(&f, 1);
    fx_expect(&f, 0);
    fx_expect(&f, FX_NONE);
}

static void scenario_02_plain_in_arrival_order(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++, f.now_us += FX_MS)
        fx_push(&f, i, NULL);
    for (int i = 0; i < 3; i++)
        fx_expect(&f, i);
}

static void scenario_03_evicted_session_is_not_boosted(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.max_sessions = 2;
    restart(rules, 1, 16);
    fx_mark(&f, "123", 0);
    fx_mark(&f, "456", 0);
    fx_mark(&f, "789", 0);
    assert_false(fx_push(&f, 0, "123")->boosted);
    assert_true(fx_push(&f, 1, "456")->boosted);
}

static void scenario_04_completing_again_keeps_a_session(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.max_sessions = 2;
    restart(rules, 1, 16);
    fx_mark(&f, "a", 0);
    fx_mark(&f, "b", 0);
    fx_mark(&f, "a", 0);
    fx_mark(&f, "c", 0);
    assert_true(fx_push(&f, 0, "a")->boosted);
    assert_false(fx_push(&f, 1, "b")->boosted);
    assert_true(fx_push(&f, 2, "c")->boosted);
    assert_int_equal(f.m->q.tracker.n, 2);
}

static void scenario_05_latest_completion_first_then_plain(void **state)
{
    (void)state;
    fx_mark(&f, "A", 0);
    f.now_us += 1 * S;
    fx_mark(&f, "B", 0);
    fx_push(&f, 0, "X");
    fx_push(&f, 1, "A");
    fx_push(&f, 2, "B");
    fx_push(&f, 3, NULL);
    fx_expect(&f, 2);
    fx_expect(&f, 1);
    fx_expect(&f, 0);
    fx_expect(&f, 3);
}

static void scenario_06_neither_fifo_nor_lifo(void **state)
{
    (void)state;
    fx_mark(&f, "A", 0);
    fx_mark(&f, "B", 0);
    fx_mark(&f, "C", 0);
    fx_push(&f, 0, "B");
    fx_push(&f, 1, "C");
    fx_push(&f, 2, "A");
    fx_expect(&f, 1);
    fx_expect(&f, 0);
    fx_expect(&f, 2);
}

static void scenario_07_cancelled_leave_while_pods_are_busy(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        fx_push(&f, i, NULL);
    fx_numbers(&f, 0, 5);
    fx_remove(&f, 0);
    fx_remove(&f, 1);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(boostq_len(&f.m->q), 1);
    assert_int_equal(f.items[2].queue.where, BOOSTQ_FRESH);
    assert_int_equal(f.m->q.stats.abandoned, 2);
}

static void scenario_08_limit_per_pod(void **state)
{
    (void)state;
    f.admit.rules.inflight_limit = 2;
    for (int i = 0; i < 3; i++)
        fx_push(&f, i, NULL);
    assert_int_equal(fx_admit(&f), 0);
    assert_int_equal(fx_admit(&f), 1);
    assert_int_equal(fx_admit(&f), FX_NONE);
    f.now_us += 100 * FX_MS;
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(f.pods[0]->in_flight, 2);
    fx_release(&f, 0);
    assert_int_equal(fx_admit(&f), 2);
}

static void scenario_09_grace_lets_the_follow_up_go_first(void **state)
{
    (void)state;
    f.admit.rules.inflight_limit = 1;
    f.admit.rules.grace_us = 200 * FX_MS;
    fx_push(&f, 0, "r1");
    assert_int_equal(fx_admit(&f), 0);
    fx_mark(&f, "r1", 0);
    fx_push(&f, 1, NULL);
    fx_release(&f, 0);
    f.now_us += 20 * FX_MS;
    fx_push(&f, 2, "r1");
    assert_int_equal(fx_admit(&f), FX_NONE);
    f.now_us += 179 * FX_MS;
    assert_int_equal(fx_admit(&f), FX_NONE);
    f.now_us += 1 * FX_MS;
    assert_int_equal(fx_admit(&f), 2);
}

static void scenario_10_grace_ends_without_a_follow_up(void **state)
{
    (void)state;
    f.admit.rules.inflight_limit = 1;
    f.admit.rules.grace_us = 100 * FX_MS;
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), 0);
    fx_push(&f, 1, NULL);
    fx_release(&f, 0);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(admit_next_due_us(&f.admit, f.now_us), f.now_us + 100 * FX_MS);
    f.now_us += 100 * FX_MS;
    assert_int_equal(fx_admit(&f), 1);
}

static void scenario_11_cancelled_is_skipped(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    fx_push(&f, 1, NULL);
    fx_remove(&f, 0);
    fx_expect(&f, 1);
}

static void scenario_12_no_session_no_boost(void **state)
{
    (void)state;
    fx_mark(&f, "conv-123", 0);
    assert_false(fx_push(&f, 0, NULL)->boosted);
    assert_false(fx_push(&f, 1, "")->boosted);
}

static void scenario_13_length(void **state)
{
    (void)state;
    assert_int_equal(boostq_len(&f.m->q), 0);
    for (int i = 0; i < 5; i++)
        fx_push(&f, i, NULL);
    assert_int_equal(boostq_len(&f.m->q), 5);
}

static void scenario_14_abandoned_then_nothing_to_admit(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    fx_remove(&f, 0);
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_int_equal(f.pods[0]->in_flight, 0);
}

static void scenario_15_admitted_then_abandoned(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), 0);
    assert_int_equal(f.pods[0]->in_flight, 1);
    fx_release(&f, 0);
    assert_int_equal(f.pods[0]->in_flight, 0);
}

/* One loop, no threads: either order may happen, never both at once. */
static void scenario_16_admit_and_abandon_2000_times(void **state)
{
    struct test_random r = {16};

    (void)state;
    for (int i = 0; i < 2000; i++) {
        fx_push(&f, 0, i % 3 == 0 ? "s" : NULL);
        if (test_random_below(&r, 2) == 0)
            fx_remove(&f, 0);
        else
            fx_expect(&f, 0);
        assert_int_equal(f.pods[0]->in_flight, 0);
        assert_int_equal(boostq_len(&f.m->q), 0);
    }
}

/* ---- completions ---- */

static int n_promotions;
static const struct boostq_item *last_promoted;

static void on_promoted(struct boostq_item *item, void *arg)
{
    assert_ptr_equal(arg, &f);
    n_promotions++;
    last_promoted = item;
}

static void test_a_completion_promotes_who_waits(void **state)
{
    (void)state;
    n_promotions = 0;
    f.m->q.on_promoted = on_promoted;
    f.m->q.on_promoted_arg = &f;
    fx_push(&f, 0, "x");
    fx_push(&f, 1, "y");
    fx_push(&f, 2, "s1");
    assert_false(f.items[2].queue.boosted);
    assert_int_equal(fx_mark(&f, "s1", 0), 1);
    assert_int_equal(n_promotions, 1);
    assert_ptr_equal(last_promoted, &f.items[2].queue);
    assert_true(f.items[2].queue.boosted);
    assert_int_equal(fx_mark(&f, "s1", 0), 0); /* once each */
    fx_expect(&f, 2);
    fx_expect(&f, 0);
    fx_expect(&f, 1);
    assert_int_equal(f.m->q.stats.promoted, 1);
}

static void test_a_completion_ranks_the_waiting_anew(void **state)
{
    (void)state;
    fx_mark(&f, "a", 0);
    fx_mark(&f, "b", 0);
    fx_push(&f, 0, "a");
    fx_push(&f, 1, "b");
    fx_mark(&f, "a", 0);
    fx_expect(&f, 0);
    fx_expect(&f, 1);
}

static void test_calls_of_one_session_go_in_arrival_order(void **state)
{
    (void)state;
    fx_push(&f, 0, "a");
    fx_push(&f, 1, "a");
    assert_int_equal(fx_mark(&f, "a", 0), 2);
    fx_push(&f, 2, "a");
    fx_mark(&f, "a", 0);
    for (int i = 0; i < 3; i++)
        fx_expect(&f, i);
}

static void test_completions_in_one_instant_have_an_order(void **state)
{
    (void)state;
    fx_mark(&f, "a", 0);
    fx_mark(&f, "b", 0);
    fx_mark(&f, "c", 0);
    fx_push(&f, 0, "a");
    fx_push(&f, 1, "b");
    fx_push(&f, 2, "c");
    fx_expect(&f, 2);
    fx_expect(&f, 1);
    fx_expect(&f, 0);
}

/* A session that left the tracker keeps the rank of who waits, and new requests of it start plain. */
static void test_eviction_while_waiting(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.max_sessions = 1;
    restart(rules, 1, 16);
    fx_mark(&f, "a", 0);
    fx_push(&f, 0, NULL);
    fx_push(&f, 1, "a");
    fx_mark(&f, "b", 0);
    assert_false(fx_push(&f, 2, "a")->boosted);
    assert_true(f.items[1].queue.boosted);
    fx_expect(&f, 1);
    fx_expect(&f, 0);
    fx_expect(&f, 2);
}

static void test_without_boost_only_arrival_counts(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.boost = false;
    restart(rules, 1, 16);
    assert_int_equal(fx_mark(&f, "a", 0), 0);
    fx_push(&f, 0, NULL);
    assert_false(fx_push(&f, 1, "a")->boosted);
    fx_expect(&f, 0);
    fx_expect(&f, 1);
    assert_int_equal(f.m->q.tracker.n, 0);
}

static void test_a_new_limit_evicts_sessions(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    fx_mark(&f, "a", 0);
    fx_mark(&f, "b", 0);
    rules.max_sessions = 1;
    rules.boost = false; /* needs a restart: is left as it was */
    boostq_set_rules(&f.m->q, &rules);
    assert_true(f.m->q.rules.boost);
    assert_false(fx_push(&f, 0, "a")->boosted);
    assert_true(fx_push(&f, 1, "b")->boosted);
}

/* ---- the overtake bound ---- */

/* A boosted request with an old completion, overtaken n times by newer ones that are admitted before it. */
static void overtake(int by, const char *session)
{
    fx_mark(&f, session, 0);
    fx_push(&f, by, session);
    fx_expect(&f, by);
}

static void test_boosted_is_forced_at_the_bound(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.max_overtakes = 3;
    restart(rules, 1, 16);
    fx_mark(&f, "old", 0);
    fx_push(&f, 0, "old");
    for (int i = 1; i <= 3; i++) {
        overtake(i, "new");
        assert_int_equal(boostq_overtaken(&f.m->q, &f.items[0].queue), i);
    }
    fx_mark(&f, "new", 0);
    fx_push(&f, 4, "new");
    fx_expect(&f, 0); /* not 4: the fourth overtaking does not happen */
    assert_true(f.items[0].queue.forced);
    assert_int_equal(f.items[0].queue.overtaken, 3);
    fx_expect(&f, 4);
    assert_false(f.items[4].queue.forced);
    assert_int_equal(f.m->q.stats.forced_by_overtakes, 1);
    assert_int_equal(f.m->q.stats.dequeued_forced, 1);
}

static void test_bound_of_one(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.max_overtakes = 1;
    restart(rules, 1, 16);
    fx_mark(&f, "old", 0);
    fx_push(&f, 0, "old");
    overtake(1, "new");
    fx_mark(&f, "new", 0);
    fx_push(&f, 2, "new");
    fx_expect(&f, 0);
    fx_expect(&f, 2);
}

/* The oldest plain request is forced after the bound too: first turns get one slot in bound + 1. */
static void test_plain_is_forced_at_the_bound(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.max_overtakes = 2;
    restart(rules, 1, 16);
    fx_push(&f, 0, NULL);
    fx_push(&f, 1, NULL);
    overtake(2, "s");
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[0].queue), 1);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[1].queue), 0);
    overtake(3, "s");
    fx_mark(&f, "s", 0);
    fx_push(&f, 4, "s");
    fx_expect(&f, 0);
    assert_int_equal(f.items[0].queue.overtaken, 2);
    fx_expect(&f, 4); /* 1 is the oldest since a moment: its count started at 0 */
    overtake(5, "s");
    fx_mark(&f, "s", 0);
    fx_push(&f, 6, "s");
    fx_expect(&f, 1);
    fx_expect(&f, 6);
}

static void test_the_count_of_the_oldest_plain_one_ends_with_it(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.max_overtakes = 2;
    restart(rules, 1, 16);
    fx_push(&f, 0, NULL);
    fx_push(&f, 1, NULL);
    overtake(2, "s");
    fx_remove(&f, 0);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[1].queue), 0);
    overtake(3, "s");
    fx_mark(&f, "s", 0);
    fx_push(&f, 4, "s");
    fx_expect(&f, 4);
}

static void test_an_older_boosted_request_does_not_overtake(void **state)
{
    (void)state;
    fx_mark(&f, "a", 0);
    fx_mark(&f, "b", 0);
    fx_push(&f, 0, "b");
    fx_push(&f, 1, "a");
    fx_push(&f, 2, NULL);
    fx_expect(&f, 0);
    fx_expect(&f, 1);
    fx_expect(&f, 2);
    assert_int_equal(f.items[1].queue.overtaken, 0);
    assert_int_equal(f.items[2].queue.overtaken, 0);
}

/* Counts are differences: somebody leaving in the middle, at the front or at the end changes nobody else's.
 */
static void test_counts_stay_exact_when_others_leave(void **state)
{
    static const char *const ids[] = {"s0", "s1", "s2", "s3", "s4", "s5"};

    (void)state;
    for (int i = 0; i < 6; i++)
        fx_mark(&f, ids[i], 0);
    for (int i = 0; i < 6; i++)
        fx_push(&f, i, ids[i]);
    fx_mark(&f, "s2", 0);
    fx_expect(&f, 2); /* 0 and 1: one */
    fx_expect(&f, 5); /* 0, 1, 3, 4: one more */
    fx_remove(&f, 1);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[0].queue), 2);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[3].queue), 1);
    fx_remove(&f, 4);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[3].queue), 1);
    fx_remove(&f, 0);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[3].queue), 1);
    assert_int_equal(f.m->q.shared.overtakes_total, 1);
    fx_expect(&f, 3);
    assert_int_equal(f.items[3].queue.overtaken, 1);
    assert_int_equal(f.m->q.shared.overtakes_total, 0);
}

static void test_forced_go_by_arrival(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        fx_push(&f, i, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fx_admit(&f), i);
    fx_mark(&f, "s", 0);
    fx_push(&f, 3, "s");
    boostq_requeue(&f.m->q, &f.items[2].queue);
    boostq_requeue(&f.m->q, &f.items[0].queue);
    boostq_requeue(&f.m->q, &f.items[1].queue);
    for (int i = 0; i < 3; i++)
        fx_release(&f, i);
    for (int i = 0; i < 4; i++)
        fx_expect(&f, i);
}

/* ---- the wait limit ---- */

static void test_wait_limit_to_the_microsecond(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    f.now_us += 1;
    fx_push(&f, 1, NULL);
    assert_int_equal(boostq_next_due_us(&f.m->q), f.now_us - 1 + 30 * S);
    f.now_us += 30 * S - 2;
    assert_null(boostq_expire(&f.m->q, f.now_us));
    f.now_us += 1;
    assert_ptr_equal(boostq_expire(&f.m->q, f.now_us), &f.items[0].queue);
    assert_null(boostq_expire(&f.m->q, f.now_us));
    assert_int_equal(f.m->q.stats.expired, 1);
    fx_expect(&f, 1); /* the limit ends at admission */
}

static void test_no_wait_limit(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    rules.timeout_us = 0;
    restart(rules, 1, 16);
    fx_push(&f, 0, NULL);
    assert_null(boostq_expire(&f.m->q, INT64_MAX));
    assert_int_equal(boostq_next_due_us(&f.m->q), INT64_MAX);
}

static void test_a_request_put_back_keeps_its_arrival(void **state)
{
    (void)state;
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), 0);
    fx_release(&f, 0);
    f.now_us += 10 * S;
    fx_push(&f, 1, NULL);
    boostq_requeue(&f.m->q, &f.items[0].queue);
    assert_true(f.items[0].queue.forced);
    assert_ptr_equal(boostq_oldest(&f.m->q), &f.items[0].queue);
    f.now_us += 20 * S;
    assert_ptr_equal(boostq_expire(&f.m->q, f.now_us), &f.items[0].queue);
    assert_null(boostq_expire(&f.m->q, f.now_us));
    assert_ptr_equal(boostq_oldest(&f.m->q), &f.items[1].queue);
}

/* Whoever was moved here counts from when he came to the other queue, whichever of them came here first, and
 * also when he has been admitted and put back. */
static void test_moved_requests_keep_their_wait_limits(void **state)
{
    static const int64_t waited_s[] = {9, 3, 14, 1, 14};
    static const int by_age[] = {2, 4, 0, 1, 3, 5};

    (void)state;
    f.now_us += 100 * S;
    fx_push(&f, 5, NULL);
    for (int i = 0; i < 5; i++) {
        f.items[i].queue.session = SLICE("");
        boostq_push(&f.m->q, &f.items[i].queue, f.now_us, f.now_us - waited_s[i] * S);
    }
    boostq_take(&f.m->q, &f.items[1].queue);
    boostq_requeue(&f.m->q, &f.items[1].queue);
    for (size_t i = 0; i < ARRAY_LEN(by_age); i++) {
        struct boostq_item *oldest = boostq_oldest(&f.m->q);
        const int64_t due_us = boostq_next_due_us(&f.m->q);

        assert_ptr_equal(oldest, &f.items[by_age[i]].queue);
        assert_int_equal(due_us, f.now_us + 30 * S - (by_age[i] < 5 ? waited_s[by_age[i]] * S : 0));
        assert_null(boostq_expire(&f.m->q, due_us - 1));
        assert_ptr_equal(boostq_expire(&f.m->q, due_us), oldest);
    }
    assert_null(boostq_oldest(&f.m->q));
}

/* ---- lanes ---- */

static struct boostq_rules sticky_rules(void)
{
    struct boostq_rules rules = fx_rules();

    rules.sticky = true;
    return rules;
}

/* Pod 0 is full, pod 1 free: a's follow-up waits for pod 0, the plain one behind it goes to pod 1. */
static void test_a_follow_up_waits_for_its_warm_pod(void **state)
{
    (void)state;
    restart(sticky_rules(), 2, 1);
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[0]);
    fx_mark(&f, "a", 0);
    fx_push(&f, 1, "a");
    fx_push(&f, 2, NULL);
    assert_int_equal(f.items[1].queue.lane->pod_id, f.pods[0]->id);
    assert_int_equal(fx_admit(&f), 2);
    assert_ptr_equal(f.ran_on[2], f.pods[1]);
    assert_int_equal(fx_admit(&f), FX_NONE);
    fx_release(&f, 0);
    assert_int_equal(fx_admit(&f), 1);
    assert_ptr_equal(f.ran_on[1], f.pods[0]);
}

static void test_sticky_wait_to_the_microsecond(void **state)
{
    (void)state;
    restart(sticky_rules(), 2, 1);
    f.pods[0]->in_flight = 1;
    fx_mark(&f, "a", 0);
    fx_push(&f, 0, "a");
    assert_int_equal(boostq_next_due_us(&f.m->q), f.now_us + 5 * S);
    f.now_us += 5 * S - 1;
    assert_int_equal(fx_admit(&f), FX_NONE);
    assert_false(f.items[0].queue.forced);
    f.now_us += 1;
    assert_int_equal(fx_admit(&f), 0);
    assert_true(f.items[0].queue.forced);
    assert_ptr_equal(f.ran_on[0], f.pods[1]);
    assert_int_equal(f.m->q.stats.forced_by_sticky_wait, 1);
    f.pods[0]->in_flight = 0;
}

/* A promoted request waits for its pod from its promotion on. */
static void test_sticky_wait_counts_from_entering_the_lane(void **state)
{
    (void)state;
    restart(sticky_rules(), 2, 1);
    f.pods[0]->in_flight = f.pods[1]->in_flight = 1;
    fx_push(&f, 0, "a");
    f.now_us += 4 * S;
    fx_mark(&f, "a", 0);
    assert_int_equal(f.items[0].queue.lane->pod_id, f.pods[0]->id);
    f.now_us += 5 * S - 1;
    boostq_force_due(&f.m->q, f.now_us);
    assert_false(f.items[0].queue.forced);
    boostq_force_due(&f.m->q, f.now_us + 1);
    assert_true(f.items[0].queue.forced);
    f.pods[0]->in_flight = f.pods[1]->in_flight = 0;
}

static void test_the_better_of_two_lanes_goes_first(void **state)
{
    (void)state;
    restart(sticky_rules(), 2, 4);
    fx_mark(&f, "a", 0);
    fx_mark(&f, "b", 1);
    fx_mark(&f, "c", 0);
    fx_push(&f, 0, "a");
    fx_push(&f, 1, "b");
    fx_push(&f, 2, "c");
    assert_int_equal(fx_admit(&f), 2);
    assert_int_equal(fx_admit(&f), 1);
    assert_ptr_equal(f.ran_on[1], f.pods[1]);
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[0]);
}

static void test_a_closing_lane_empties_into_the_shared_one(void **state)
{
    (void)state;
    restart(sticky_rules(), 2, 1);
    fx_mark(&f, "a", 0);
    fx_mark(&f, "b", 0);
    fx_push(&f, 0, "a");
    fx_push(&f, 1, "a");
    fx_push(&f, 2, "b");
    fx_expect(&f, 2);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[0].queue), 1);
    f.pods[0]->leaving = true;
    assert_true(model_refresh(f.m, f.now_us));
    assert_int_equal(f.m->q.shared.n, 2);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[0].queue), 0);
    assert_int_equal(fx_push(&f, 3, "a")->lane->pod_id, 0);
    assert_int_equal(boostq_next_due_us(&f.m->q), f.items[0].queue.arrived_us + 30 * S);
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[1]);
    fx_release(&f, 0);
    fx_expect(&f, 1);
    f.pods[0]->leaving = false;
    assert_true(model_refresh(f.m, f.now_us));
    fx_expect(&f, 3); /* the group stays in the shared lane, and prefers the warm pod there */
    fx_mark(&f, "a", 0);
    assert_int_equal(fx_push(&f, 4, "a")->lane->pod_id, f.pods[0]->id);
}

/* The pod that the group waits for still holds the prefix of its earlier turns. */
static void test_a_group_keeps_its_lane(void **state)
{
    (void)state;
    restart(sticky_rules(), 2, 1);
    f.pods[0]->in_flight = f.pods[1]->in_flight = 1;
    fx_mark(&f, "a", 0);
    fx_push(&f, 0, "a");
    fx_mark(&f, "a", 1);
    fx_push(&f, 1, "a");
    assert_int_equal(f.items[0].queue.lane->pod_id, f.pods[0]->id);
    assert_int_equal(f.items[1].queue.lane->pod_id, f.pods[0]->id);
    assert_int_equal(boostq_warm_pod(&f.m->q, &f.items[0].queue), f.pods[1]->id);
    fx_remove(&f, 0);
    fx_remove(&f, 1);
    assert_int_equal(fx_push(&f, 2, "a")->lane->pod_id, f.pods[1]->id);
    f.pods[0]->in_flight = f.pods[1]->in_flight = 0;
}

/* Only admissions from the own lane overtake. */
static void test_other_lanes_do_not_overtake(void **state)
{
    (void)state;
    restart(sticky_rules(), 2, 4);
    fx_mark(&f, "a", 0);
    fx_mark(&f, "b", 1);
    fx_push(&f, 0, "a");
    fx_push(&f, 1, "b");
    fx_expect(&f, 1);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[0].queue), 0);
}

/* The pod of session "old" is gone. Sessions that have a pod of their own pass it as often as the bound
 * allows. */
static void test_pod_lanes_pass_the_shared_lane_up_to_the_bound(void **state)
{
    struct boostq_rules rules = sticky_rules();

    (void)state;
    rules.max_overtakes = 3;
    restart(rules, 2, 1);
    fx_mark(&f, "old", 1);
    fx_mark(&f, "older", 1);
    model_set_pods(f.m, f.pods, 1, f.now_us);
    fx_push(&f, 9, "new"); /* arrived before: does not count */
    fx_push(&f, 0, "old");
    fx_push(&f, 8, "older");
    fx_mark(&f, "new", 0);
    fx_expect(&f, 9);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[0].queue), 0);
    for (int i = 1; i <= 3; i++) {
        overtake(i, "new");
        assert_int_equal(boostq_overtaken(&f.m->q, &f.items[0].queue), i);
        assert_int_equal(boostq_overtaken(&f.m->q, &f.items[8].queue), 0);
    }
    fx_mark(&f, "new", 0);
    fx_push(&f, 4, "new");
    fx_expect(&f, 0);
    assert_true(f.items[0].queue.forced);
    assert_int_equal(f.items[0].queue.overtaken, 3);
    fx_expect(&f, 4);
    assert_int_equal(boostq_overtaken(&f.m->q, &f.items[8].queue), 1); /* the oldest now */
    fx_expect(&f, 8);
    assert_int_equal(f.m->q.shared_passed, 0);
}

static void test_stickiness_switched_off_by_a_reload(void **state)
{
    struct boostq_rules rules = fx_rules();

    (void)state;
    restart(sticky_rules(), 2, 1);
    f.pods[0]->in_flight = 1;
    fx_mark(&f, "a", 0);
    fx_push(&f, 0, "a");
    assert_int_equal(fx_admit(&f), FX_NONE);
    rules.sticky = rules.prefer_warm = false;
    boostq_set_rules(&f.m->q, &rules);
    assert_int_equal(f.items[0].queue.lane->pod_id, 0);
    assert_int_equal(boostq_warm_pod(&f.m->q, &f.items[0].queue), 0);
    assert_int_equal(fx_admit(&f), 0);
    assert_ptr_equal(f.ran_on[0], f.pods[1]);
    f.pods[0]->in_flight = 0;
}

/* ---- dumps ---- */

struct seen {
    int order[FX_ITEMS];
    size_t n;
};

static void note(const struct boostq_item *item, void *arg)
{
    struct seen *s = arg;

    s->order[s->n++] = (int)(CONTAINER_OF(item, struct admit_item, queue) - f.items);
}

static void test_each_in_the_order_of_service(void **state)
{
    static const int want[] = {0, 4, 3, 5, 1, 2};
    struct seen s = {.n = 0};

    (void)state;
    restart(sticky_rules(), 2, 1);
    fx_push(&f, 0, NULL);
    assert_int_equal(fx_admit(&f), 0);
    fx_release(&f, 0);
    fx_mark(&f, "a", 0);
    fx_mark(&f, "b", 1);
    fx_push(&f, 1, NULL);
    fx_push(&f, 2, "new");
    fx_push(&f, 3, "a");
    fx_push(&f, 4, "b");
    fx_push(&f, 5, "a");
    boostq_requeue(&f.m->q, &f.items[0].queue);
    boostq_each(&f.m->q, note, &s);
    assert_int_equal(s.n, ARRAY_LEN(want));
    assert_memory_equal(s.order, want, sizeof(want));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(scenario_01_follow_up_before_plain),
        TEST(scenario_02_plain_in_arrival_order),
        TEST(scenario_03_evicted_session_is_not_boosted),
        TEST(scenario_04_completing_again_keeps_a_session),
        TEST(scenario_05_latest_completion_first_then_plain),
        TEST(scenario_06_neither_fifo_nor_lifo),
        TEST(scenario_07_cancelled_leave_while_pods_are_busy),
        TEST(scenario_08_limit_per_pod),
        TEST(scenario_09_grace_lets_the_follow_up_go_first),
        TEST(scenario_10_grace_ends_without_a_follow_up),
        TEST(scenario_11_cancelled_is_skipped),
        TEST(scenario_12_no_session_no_boost),
        TEST(scenario_13_length),
        TEST(scenario_14_abandoned_then_nothing_to_admit),
        TEST(scenario_15_admitted_then_abandoned),
        TEST(scenario_16_admit_and_abandon_2000_times),
        TEST(test_a_completion_promotes_who_waits),
        TEST(test_a_completion_ranks_the_waiting_anew),
        TEST(test_calls_of_one_session_go_in_arrival_order),
        TEST(test_completions_in_one_instant_have_an_order),
        TEST(test_eviction_while_waiting),
        TEST(test_without_boost_only_arrival_counts),
        TEST(test_a_new_limit_evicts_sessions),
        TEST(test_boosted_is_forced_at_the_bound),
        TEST(test_bound_of_one),
        TEST(test_plain_is_forced_at_the_bound),
        TEST(test_the_count_of_the_oldest_plain_one_ends_with_it),
        TEST(test_an_older_boosted_request_does_not_overtake),
        TEST(test_counts_stay_exact_when_others_leave),
        TEST(test_forced_go_by_arrival),
        TEST(test_wait_limit_to_the_microsecond),
        TEST(test_no_wait_limit),
        TEST(test_a_request_put_back_keeps_its_arrival),
        TEST(test_moved_requests_keep_their_wait_limits),
        TEST(test_a_follow_up_waits_for_its_warm_pod),
        TEST(test_sticky_wait_to_the_microsecond),
        TEST(test_sticky_wait_counts_from_entering_the_lane),
        TEST(test_the_better_of_two_lanes_goes_first),
        TEST(test_a_closing_lane_empties_into_the_shared_one),
        TEST(test_a_group_keeps_its_lane),
        TEST(test_other_lanes_do_not_overtake),
        TEST(test_pod_lanes_pass_the_shared_lane_up_to_the_bound),
        TEST(test_stickiness_switched_off_by_a_reload),
        TEST(test_each_in_the_order_of_service),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
