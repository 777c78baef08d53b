/* Pages of real engines in every split, and the traps: names that only begin like ours, escapes, ranks, NaN,
 * sizes. */
#include "promtext.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "test.h"

/* vLLM, one engine. */
static const char vllm_page[] =
    "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
    "# TYPE vllm:num_requests_running gauge\n"
    "vllm:num_requests_running{engine=\"0\",model_name=\"qwen3-8b\"} 11.0\n"
    "# HELP vllm:num_requests_waiting Number of requests waiting to be processed.\n"
    "# TYPE vllm:num_requests_waiting gauge\n"
    "vllm:num_requests_waiting{engine=\"0\",model_name=\"qwen3-8b\"} 3.0\n"
    "# TYPE vllm:num_requests_waiting_by_reason gauge\n"
    "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"qwen3-8b\",reason=\"capacity\"} 1.0\n"
    "vllm:num_requests_waiting_by_reason{engine=\"0\",model_name=\"qwen3-8b\",reason=\"deferred\"} 2.0\n"
    "# TYPE vllm:engine_sleep_state gauge\n"
    "vllm:engine_sleep_state{engine=\"0\",model_name=\"qwen3-8b\",sleep_state=\"awake\"} 1.0\n"
    "# TYPE vllm:kv_cache_usage_perc gauge\n"
    "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"qwen3-8b\"} 0.6431870669745958\n"
    "# TYPE vllm:prefix_cache_hits_total counter\n"
    "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"qwen3-8b\"} 1.20832e+06\n"
    "# TYPE vllm:prefix_cache_hits_created gauge\n"
    "vllm:prefix_cache_hits_created{engine=\"0\",model_name=\"qwen3-8b\"} 1.7885553e+09\n"
    "# TYPE vllm:time_to_first_token_seconds histogram\n"
    "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.1\",model_name=\"qwen3-8b\"} 210.0\n"
    "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.25\",model_name=\"qwen3-8b\"} 388.0\n"
    "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"+Inf\",model_name=\"qwen3-8b\"} 402.0\n"
    "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"qwen3-8b\"} 402.0\n"
    "vllm:time_to_first_token_seconds_sum{engine=\"0\",model_name=\"qwen3-8b\"} 61.37\n"
    "# TYPE vllm:iteration_tokens_total histogram\n"
    "vllm:iteration_tokens_total_bucket{engine=\"0\",le=\"+Inf\",model_name=\"qwen3-8b\"} 9000.0\n";

/* vLLM, two data-parallel ranks, a LoRA line, a line with escapes. */
static const char ranks_page[] = "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 0.0\n"
                                 "vllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 7.0\n"
                                 "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.10\n"
                                 "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.97\n"
                                 "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"a,b\","
                                 "waiting_lora_adapters=\"\"} 1.788555301e+09\n"
                                 "foo{path=\"C:\\\\x\\\"y{z} 9\"} 1\n";

/* vLLM before the KV metric got its new name. */
static const char old_page[] = "# TYPE vllm:gpu_cache_usage_perc gauge\n"
                               "vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.0\n"
                               "# TYPE vllm:num_requests_swapped gauge\n"
                               "vllm:num_requests_swapped{model_name=\"m\"} 0.0\n"
                               "vllm:num_requests_waiting{model_name=\"m\"} 2.0\n"
                               "vllm:cpu_cache_usage_perc{model_name=\"m\"} NaN\n";

#define SGLANG_RANK                                                                                          \
    "engine_type=\"unified\",model_name=\"llama\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\""
static const char sglang_page[] =
    "# TYPE sglang:num_running_reqs gauge\n"
    "sglang:num_running_reqs{" SGLANG_RANK "} 5.0\n"
    "# TYPE sglang:num_queue_reqs gauge\n"
    "sglang:num_queue_reqs{" SGLANG_RANK "} 2.0\n"
    "# TYPE sglang:token_usage gauge\n"
    "sglang:token_usage{" SGLANG_RANK "} 0.37\n"
    "# TYPE sglang:time_to_first_token_seconds histogram\n"
    "sglang:time_to_first_token_seconds_bucket{le=\"0.1\",model_name=\"llama\"} 3.0\n"
    "sglang:time_to_first_token_seconds_bucket{le=\"+Inf\",model_name=\"llama\"} 9.0\n";

#define NONE ((double)NAN)

struct expected {
    double running, waiting, waiting_min, kv_usage;
    size_t samples;
};

static void assert_number(double value, double expected)
{
    if (isnan(expected))
        assert_true(isnan(value));
    else
        assert_true(value >= expected && value <= expected);
}

static void assert_numbers(struct promtext *p, struct expected e)
{
    assert_int_equal(promtext_finish(p), e.samples > 0);
    assert_int_equal(p->samples, e.samples);
    assert_number(p->numbers.running, e.running);
    assert_number(p->numbers.waiting, e.waiting);
    assert_number(p->numbers.waiting_min, e.waiting_min);
    assert_number(p->numbers.kv_usage, e.kv_usage);
    assert_true(p->numbers.at_us == 0);
}

/* Whole, split in two at each place, and byte by byte. */
static void check(enum promtext_engine engine, const char *page, struct expected e)
{
    struct slice all = slice_of(page);
    static struct promtext p;

    for (size_t at = 0; at <= all.n; at++) {
        promtext_start(&p, engine);
        promtext_feed(&p, (struct slice){all.p, at});
        promtext_feed(&p, (struct slice){all.p + at, all.n - at});
        assert_numbers(&p, e);
    }
    promtext_start(&p, engine);
    for (size_t at = 0; at < all.n; at++)
        promtext_feed(&p, (struct slice){all.p + at, 1});
    assert_numbers(&p, e);
}

/* CASES DS17. A pod sleeps when all of its ranks do; who does not say is awake. */
static void test_sleep(void **state)
{
#define STATE(rank, state, value)                                                                            \
    "vllm:engine_sleep_state{engine=\"" rank "\",model_name=\"m\",sleep_state=\"" state "\"} " value "\n"
    static const struct {
        const char *page;
        bool asleep;
    } cases[] = {{STATE("0", "awake", "0.0") STATE("0", "weights_offloaded", "1.0")
                      STATE("0", "discard_all", "0.0"),
                  true},
                 {STATE("0", "awake", "1.0") STATE("0", "weights_offloaded", "0.0"), false},
                 {STATE("0", "awake", "0") STATE("1", "awake", "1"), false},
                 {STATE("0", "awake", "0") STATE("1", "awake", "0"), true},
                 {STATE("0", "discard_all", "0"), false},
                 {STATE("0", "awake", "NaN"), false},
                 {"vllm:engine_sleep_state 0\n", false},
                 {"vllm:num_requests_waiting 0\n", false}};
    static struct promtext p;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        promtext_start(&p, PROMTEXT_VLLM);
        promtext_feed(&p, slice_of(cases[i].page));
        assert_true(promtext_finish(&p));
        assert_int_equal(p.numbers.asleep, cases[i].asleep);
    }
    promtext_start(&p, PROMTEXT_SGLANG);
    promtext_feed(&p, slice_of(cases[0].page));
    assert_true(promtext_finish(&p) && !p.numbers.asleep);
}

static void test_samples_of_engines(void **state)
{
    (void)state;
    check(PROMTEXT_VLLM, vllm_page, (struct expected){11, 3, 3, 0.6431870669745958, 14});
    check(PROMTEXT_VLLM, ranks_page, (struct expected){NONE, 7, 0, 0.97, 6});
    check(PROMTEXT_VLLM, old_page, (struct expected){NONE, 2, 2, 0, 4});
    check(PROMTEXT_SGLANG, sglang_page, (struct expected){5, 2, 2, 0.37, 5});
}

static void test_other_engine_is_no_opinion(void **state)
{
    (void)state;
    check(PROMTEXT_SGLANG, vllm_page, (struct expected){NONE, NONE, NONE, NONE, 14});
    check(PROMTEXT_VLLM, sglang_page, (struct expected){NONE, NONE, NONE, NONE, 5});
    check(PROMTEXT_NONE, vllm_page, (struct expected){NONE, NONE, NONE, NONE, 14});
}

static void test_names_match_whole(void **state)
{
    (void)state;
    check(PROMTEXT_VLLM,
          "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 1\nvllm:num_requests_waiting_total 2\n"
          "vllm:num_requests_waiting_created 3\nvllm:num_requests_waitin 4\nxvllm:num_requests_waiting 5\n"
          "num_requests_waiting 6\nvllm:num_requests_waiting2 7\n",
          (struct expected){NONE, NONE, NONE, NONE, 7});
    check(PROMTEXT_VLLM, "vllm:num_requests_waiting 4\n", (struct expected){NONE, 4, 4, NONE, 1});
    check(PROMTEXT_VLLM, "vllm:num_requests_waiting\t4\n", (struct expected){NONE, 4, 4, NONE, 1});
    check(PROMTEXT_VLLM, "vllm:num_requests_waiting {a=\"b\"} 4\n", (struct expected){NONE, 4, 4, NONE, 1});
}

static void test_new_kv_name_wins(void **state)
{
    (void)state;
    check(PROMTEXT_VLLM, "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.9\n",
          (struct expected){NONE, NONE, NONE, 0.5, 2});
    check(PROMTEXT_VLLM, "vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.5\n",
          (struct expected){NONE, NONE, NONE, 0.5, 2});
    check(PROMTEXT_VLLM, "vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc NaN\n",
          (struct expected){NONE, NONE, NONE, 0.9, 2});
}

static void test_ranks(void **state)
{
    (void)state;
    check(PROMTEXT_VLLM,
          "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} 3\n"
          "vllm:num_requests_running{engine=\"2\"} NaN\nvllm:num_requests_waiting{engine=\"0\"} 5\n"
          "vllm:num_requests_waiting{engine=\"1\"} 4\nvllm:num_requests_waiting{engine=\"2\"} NaN\n",
          (struct expected){5, 9, 4, NONE, 6});
    check(PROMTEXT_VLLM, "vllm:num_requests_waiting NaN\n", (struct expected){NONE, NONE, NONE, NONE, 1});
    check(PROMTEXT_VLLM, "vllm:num_requests_waiting +Inf\nvllm:num_requests_waiting -1\n",
          (struct expected){NONE, NONE, NONE, NONE, 2});
    check(PROMTEXT_VLLM, "vllm:num_requests_waiting 1e+06\nvllm:num_requests_waiting 1.5e1\n",
          (struct expected){NONE, 1000015, 15, NONE, 2});
}

/* SGLang: the plain row is the total of the rows by priority. */
static void test_rows_by_priority(void **state)
{
    static const char parts[] = "sglang:num_queue_reqs{model_name=\"m\",priority=\"0\"} 0\n"
                                "sglang:num_queue_reqs{model_name=\"m\",priority=\"1\"} 4\n";
    static const char with_total[] = "sglang:num_queue_reqs{model_name=\"m\",priority=\"1\"} 4\n"
                                     "sglang:num_queue_reqs{model_name=\"m\"} 4\n";
    static const char empty_label[] = "sglang:num_queue_reqs{model_name=\"m\",priority=\"\"} 4\n"
                                      "sglang:num_queue_reqs{priority=\"1\",model_name=\"m\"} 4\n";

    (void)state;
    check(PROMTEXT_SGLANG, parts, (struct expected){NONE, 4, 4, NONE, 2});
    check(PROMTEXT_SGLANG, with_total, (struct expected){NONE, 4, 4, NONE, 2});
    check(PROMTEXT_SGLANG, empty_label, (struct expected){NONE, 4, 4, NONE, 2});
    check(PROMTEXT_SGLANG, "sglang:num_queue_reqs{a=\"priority\",xpriority=\"1\"} 4\n",
          (struct expected){NONE, 4, 4, NONE, 1});
}

static void test_shapes_of_lines(void **state)
{
    static const char *const good[] = {
        "vllm:num_requests_waiting 4",
        "vllm:num_requests_waiting 4\r\n",
        "\r\n\r\nvllm:num_requests_waiting{a=\"b\"} 4\r\n",
        "vllm:num_requests_waiting 4 1788555301000\n",
        "vllm:num_requests_waiting{a=\"b\"} 4 -5\n",
        "  vllm:num_requests_waiting   4  \n",
        "vllm:num_requests_waiting{} 4\n",
        "vllm:num_requests_waiting{a=\"b\",} 4\n",
        "vllm:num_requests_waiting{ a = \"b\" , c = \"d\" } 4\n",
        "vllm:num_requests_waiting{a=\"} 9\"} 4\n",
        "vllm:num_requests_waiting{a=\"\\\"} 9\"} 4\n",
        "vllm:num_requests_waiting{a=\"\\\\\"} 4\n",
        "vllm:num_requests_waiting{a=\"\"}4\n",
        "#\n# vllm:num_requests_waiting 9\n #x\nvllm:num_requests_waiting 4\n\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        check(PROMTEXT_VLLM, good[i], (struct expected){NONE, 4, 4, NONE, 1});
}

/* A malformed line is skipped; the next one counts. */
static void test_malformed_lines(void **state)
{
    static const char *const bad[] = {
        "vllm:num_requests_waiting",
        "vllm:num_requests_waiting{",
        "vllm:num_requests_waiting{a=\"b\"",
        "vllm:num_requests_waiting{a=\"b} 9",
        "vllm:num_requests_waiting{a=b} 9",
        "vllm:num_requests_waiting{a} 9",
        "vllm:num_requests_waiting{a=\"\\",
        "vllm:num_requests_waiting{,} 9",
        "vllm:num_requests_waiting{a=\"b\" c=\"d\"} 9",
        "vllm:num_requests_waiting nine",
        "vllm:num_requests_waiting 0x9",
        "vllm:num_requests_waiting 9 now",
        "vllm:num_requests_waiting 9 1 1",
        "vllm:num_requests_waiting+9",
        "vllm:num_requests_waiting-9",
        "vllm:num_requests_waiting 9,5",
        "vllm:num_requests_waiting{=\"b\"} 9",
        "{a=\"b\"} 9",
        "9 9",
        "<html><body>404</body></html>",
        "{\"detail\":\"Not Found\"}",
        "vllm:num_requests_waiting 9\r9",
        "vllm:num_requests_waiting{\"a\"=\"b\"} 9",
    };
    char page[256];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        check(PROMTEXT_VLLM, bad[i], (struct expected){NONE, NONE, NONE, NONE, 0});
        (void)snprintf(page, sizeof(page), "%s\nvllm:num_requests_waiting 1\n", bad[i]);
        check(PROMTEXT_VLLM, page, (struct expected){NONE, 1, 1, NONE, 1});
    }
    check(PROMTEXT_VLLM, "", (struct expected){NONE, NONE, NONE, NONE, 0});
}

static void test_zero_bytes(void **state)
{
    static const char page[] = "vllm:num_requests_waiting\0 9\nvllm:num_requests_waiting{a=\"\0\"} 1\n";
    static struct promtext p;

    (void)state;
    promtext_start(&p, PROMTEXT_VLLM);
    promtext_feed(&p, (struct slice){page, sizeof(page) - 1});
    assert_numbers(&p, (struct expected){NONE, 1, 1, NONE, 1});
}

/* A line of n bytes that says 4 at its front, then one that says 1, fed in pieces of `step` bytes. */
static void check_long_line(size_t n, size_t step, struct expected e)
{
    static const char front[] = "vllm:num_requests_waiting 4", next[] = "\nvllm:num_requests_waiting 1\n";
    static struct promtext p;
    static char page[2 * PROMTEXT_LINE_MAX];
    size_t len = n + sizeof(next) - 1;

    memset(page, ' ', n);
    memcpy(page, front, sizeof(front) - 1);
    memcpy(page + n, next, sizeof(next) - 1);
    promtext_start(&p, PROMTEXT_VLLM);
    for (size_t at = 0; at < len; at += step)
        promtext_feed(&p, (struct slice){page + at, len - at < step ? len - at : step});
    assert_numbers(&p, e);
}

/* Up to the limit a line counts, above it it is skipped to its end, however it arrives. */
static void test_long_lines(void **state)
{
    static const size_t steps[] = {
        1, 2, 1000, 4096, PROMTEXT_LINE_MAX, PROMTEXT_LINE_MAX + 1, 2 * PROMTEXT_LINE_MAX};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        check_long_line(PROMTEXT_LINE_MAX, steps[i], (struct expected){NONE, 5, 1, NONE, 2});
        check_long_line(PROMTEXT_LINE_MAX + 1, steps[i], (struct expected){NONE, 1, 1, NONE, 1});
        check_long_line(PROMTEXT_LINE_MAX + 4000, steps[i], (struct expected){NONE, 1, 1, NONE, 1});
    }
}

/* The same scanner is used for scrape after scrape. */
static void test_start_forgets(void **state)
{
    static struct promtext p;

    (void)state;
    promtext_start(&p, PROMTEXT_VLLM);
    promtext_feed(&p, SLICE("vllm:num_requests_waiting 4\nvllm:num_requests_run"));
    promtext_start(&p, PROMTEXT_VLLM);
    promtext_feed(&p, SLICE("vllm:kv_cache_usage_perc 0.25\n"));
    assert_numbers(&p, (struct expected){NONE, NONE, NONE, 0.25, 1});
}

static void expect_totals(enum promtext_engine engine, const char *page, double ttft_s, double ttft_n,
                          double tpot_s, double tpot_n)
{
    struct promtext *p = malloc(sizeof(*p));

    promtext_start(p, engine);
    promtext_feed(p, slice_of(page));
    assert_true(promtext_finish(p));
    assert_true(p->totals.ttft_s == ttft_s && p->totals.ttft_n == ttft_n);
    assert_true((isnan(tpot_s) && isnan(p->totals.tpot_s)) ||
                (p->totals.tpot_s == tpot_s && p->totals.tpot_n == tpot_n));
    free(p);
}

static void test_totals(void **state)
{
    (void)state;
    expect_totals(PROMTEXT_VLLM, vllm_page, 61.37, 402, NAN, NAN);
    expect_totals(PROMTEXT_VLLM,
                  "vllm:time_to_first_token_seconds_sum{engine=\"0\"} "
                  "1\nvllm:time_to_first_token_seconds_sum{engine=\"1\"} 2\n"
                  "vllm:time_to_first_token_seconds_count{engine=\"0\"} "
                  "3\nvllm:time_to_first_token_seconds_count{engine=\"1\"} 4\n"
                  "vllm:inter_token_latency_seconds_sum 5\nvllm:inter_token_latency_seconds_count 6\n"
                  "vllm:time_per_output_token_seconds_sum 7\nvllm:time_per_output_token_seconds_count 8\n",
                  3, 7, 5, 6);
    expect_totals(
        PROMTEXT_SGLANG,
        "sglang:time_to_first_token_seconds_sum 1\nsglang:time_to_first_token_seconds_count 2\n"
        "sglang:time_per_output_token_seconds_sum 3\nsglang:time_per_output_token_seconds_count 4\n",
        1, 2, 3, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sleep),
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_samples_of_engines),
        cmocka_unit_test(test_other_engine_is_no_opinion),
        cmocka_unit_test(test_names_match_whole),
        cmocka_unit_test(test_new_kv_name_wins),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_rows_by_priority),
        cmocka_unit_test(test_shapes_of_lines),
        cmocka_unit_test(test_malformed_lines),
        cmocka_unit_test(test_zero_bytes),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_start_forgets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
