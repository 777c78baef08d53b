/* Policies: the scores' numbers, who is chosen, and that ties are shared out. */
#include "policy.h"
#include "test.h"

#include <math.h>

static uint64_t dice = 42;

static void expect_scores(enum policy_score s, struct policy_pod *pods, size_t n, const double *scores)
{
    for (size_t i = 0; i < n; i++)
        assert_true(policy_score_of(s, pods, n, i, &dice) == scores[i]);
}

#define SCORES(...)                                                                                          \
    (const double[])                                                                                         \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

/* The Go router's scenarios, with waiting requests for its guess of them. */
static void test_least_request_score(void **state)
{
    struct policy_pod a[3] = {{.in_flight = 0}, {.in_flight = 10}, {.in_flight = 5}};
    struct policy_pod b[3] = {{.in_flight = 1}, {.in_flight = 2}, {.in_flight = 3}};
    struct policy_pod c[3] = {{.in_flight = 5}, {.in_flight = 5, .waiting = 5}, {.in_flight = 0}};
    struct policy_pod idle[2] = {{.in_flight = 0}, {.in_flight = 0}};

    (void)state;
    expect_scores(POLICY_SCORE_LEAST_REQUEST, a, 3, SCORES(100, 0, 50));
    expect_scores(POLICY_SCORE_LEAST_REQUEST, b, 3, SCORES(66, 33, 0));
    expect_scores(POLICY_SCORE_LEAST_REQUEST, c, 3, SCORES(99, 0, 100));
    expect_scores(POLICY_SCORE_LEAST_REQUEST, idle, 2, SCORES(100, 100));
}

static void test_other_scores(void **state)
{
    struct policy_pod kv[3] = {{.kv_usage = 0}, {.kv_usage = 0.5}, {.kv_usage = 1}};
    struct policy_pod prefix[3] = {{.matched = 0}, {.matched = 1.0 / 3}, {.matched = 1}};
    struct policy_pod late[4] = {{.ttft_s = .1, .tpot_s = .04},
                                 {.ttft_s = .3, .tpot_s = .02},
                                 {.ttft_s = NAN, .tpot_s = .01},
                                 {.ttft_s = .2, .tpot_s = .03}};
    struct policy_pod alike[2] = {{.ttft_s = .1, .tpot_s = .1}, {.ttft_s = .1, .tpot_s = .1}};
    bool low = false, high = false;

    (void)state;
    expect_scores(POLICY_SCORE_KV_USAGE, kv, 3, SCORES(100, 50, 0));
    expect_scores(POLICY_SCORE_PREFIX, prefix, 3, SCORES(0, 33, 100));
    expect_scores(POLICY_SCORE_LEAST_LATENCY, late, 4,
                  SCORES(50, 50, 50, 50)); /* the fastest start is the slowest between */
    late[1].tpot_s = .04;
    expect_scores(POLICY_SCORE_LEAST_LATENCY, late, 4, SCORES(50, 0, 50, 75));
    expect_scores(POLICY_SCORE_LEAST_LATENCY, alike, 2, SCORES(100, 100));
    for (int i = 0; i < 1000; i++) {
        const double v = policy_score_of(POLICY_SCORE_RANDOM, alike, 2, 0, &dice);

        assert_true(v >= 0 && v <= 100 && v == trunc(v));
        low = low || v < 10;
        high = high || v > 90;
    }
    assert_true(low && high);
}

/* How often each of the pods is chosen. */
static void count(const struct policy *p, const struct policy_pod *pods, size_t n, size_t counts[4])
{
    memset(counts, 0, 4 * sizeof(*counts));
    for (int i = 0; i < 1000; i++) {
        struct policy_pod judged[4];

        memcpy(judged, pods, n * sizeof(*pods));
        counts[policy_choose(p, judged, n, &dice)]++;
    }
}

static void expect_always(enum policy_kind kind, const struct policy_pod *pods, size_t n, size_t chosen)
{
    const struct policy p = {.kind = kind};
    size_t counts[4];

    count(&p, pods, n, counts);
    assert_int_equal(counts[chosen], 1000);
}

static void test_orders(void **state)
{
    struct policy_pod flight[3] = {
        {.in_flight = 2}, {.in_flight = 1, .waiting = 9, .kv_usage = .9}, {.in_flight = 3}};
    struct policy_pod waiting[3] = {
        {.waiting = 2, .kv_usage = .1}, {.waiting = 1, .kv_usage = .9}, {.waiting = 2}};
    struct policy_pod kv[3] = {
        {.kv_usage = .3, .in_flight = 1}, {.kv_usage = .2, .in_flight = 9}, {.kv_usage = .4}};
    struct policy_pod prefix[3] = {
        {.matched = .5, .in_flight = 1}, {.matched = .75, .in_flight = 7}, {.matched = .75, .in_flight = 8}};

    (void)state;
    expect_always(POLICY_LEAST_REQUEST, flight, 3, 1);
    expect_always(POLICY_LEAST_REQUEST, waiting, 3, 1);
    waiting[0].in_flight = waiting[1].in_flight = 1;
    expect_always(POLICY_LEAST_REQUEST, waiting, 3, 2);
    expect_always(POLICY_KV_USAGE, kv, 3, 1);
    expect_always(POLICY_PREFIX, prefix, 3, 1);
    expect_always(POLICY_ROUND_ROBIN, flight, 3, 0); /* they come in the order of turns */
}

static void test_least_latency(void **state)
{
    struct policy_pod pods[4] = {{.ttft_s = .5, .tpot_s = .02},
                                 {.ttft_s = .02, .tpot_s = .005},
                                 {.ttft_s = .03, .tpot_s = .005},
                                 {.ttft_s = NAN, .tpot_s = NAN, .in_flight = 1}};

    (void)state;
    expect_always(POLICY_LEAST_LATENCY, pods, 4, 1);
    pods[1].in_flight = 1; /* two at once on the fastest are slower than one on the next */
    expect_always(POLICY_LEAST_LATENCY, pods, 4, 2);
    pods[3].in_flight = 0; /* nobody knows: one finds out */
    expect_always(POLICY_LEAST_LATENCY, pods, 4, 3);
    pods[3].tried = true; /* and did not: it is like the average, which is slower than the next */
    expect_always(POLICY_LEAST_LATENCY, pods, 4, 2);
    pods[0].in_flight = 1;
    pods[1].in_flight = pods[2].in_flight = 20;
    expect_always(POLICY_LEAST_LATENCY, pods, 4, 3);
    pods[0].in_flight = pods[1].in_flight = pods[2].in_flight = 0;
    pods[3].ttft_s = .01; /* single tokens have no time between */
    expect_always(POLICY_LEAST_LATENCY, pods, 4, 1);
}

static void test_ties_are_shared_out(void **state)
{
    const struct policy_pod pods[4] = {
        {.in_flight = 5}, {.in_flight = 0}, {.in_flight = 0}, {.in_flight = 0}};
    static const enum policy_kind kinds[] = {POLICY_LEAST_REQUEST, POLICY_PREFIX, POLICY_KV_USAGE,
                                             POLICY_LEAST_LATENCY};
    size_t counts[4];

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        count(&(struct policy){.kind = kinds[k]}, pods, 4, counts);
        assert_int_equal(counts[0], 0);
        for (size_t i = 1; i < 4; i++)
            assert_in_range(counts[i], 260, 410);
    }
    count(&(struct policy){.kind = POLICY_RANDOM}, pods, 4, counts);
    for (size_t i = 0; i < 4; i++)
        assert_in_range(counts[i], 190, 310);
}

static void test_weighted_scores(void **state)
{
    struct policy p = {.kind = POLICY_SCORE,
                       .weights = {[POLICY_SCORE_PREFIX] = 2, [POLICY_SCORE_LEAST_REQUEST] = 1}};
    const struct policy_pod pods[3] = {
        {.in_flight = 4, .matched = 1}, {.in_flight = 0}, {.in_flight = 2, .matched = .4}};
    size_t counts[4];

    (void)state;
    count(&p, pods, 3, counts); /* 200 + 0, 0 + 100, 80 + 50 */
    assert_int_equal(counts[0], 1000);
    p.weights[POLICY_SCORE_LEAST_REQUEST] = 5; /* 200, 500, 330 */
    count(&p, pods, 3, counts);
    assert_int_equal(counts[1], 1000);
}

static void test_words(void **state)
{
    (void)state;
    for (enum policy_kind k = POLICY_LEAST_REQUEST; k < POLICY_SCORE; k++)
        assert_int_equal(policy_by_word(slice_of(policy_word(k))), k);
    for (enum policy_score s = 0; s < POLICY_SCORES; s++)
        assert_int_equal(policy_score_by_word(slice_of(policy_score_word(s))), s);
    assert_int_equal(policy_by_word(SLICE("score")), POLICY_KINDS);
    assert_int_equal(policy_by_word(SLICE("")), POLICY_KINDS);
    assert_int_equal(policy_score_by_word(SLICE("round-robin")), POLICY_SCORES);
    assert_true(policy_wants_prefix(&(struct policy){.kind = POLICY_PREFIX}));
    assert_false(
        policy_wants_prefix(&(struct policy){.kind = POLICY_SCORE, .weights = {[POLICY_SCORE_RANDOM] = 1}}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_request_score),
        cmocka_unit_test(test_other_scores),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_least_latency),
        cmocka_unit_test(test_ties_are_shared_out),
        cmocka_unit_test(test_weighted_scores),
        cmocka_unit_test(test_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
