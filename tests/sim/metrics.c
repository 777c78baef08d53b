/* Counters and histograms of the simulated engine and the text of /metrics, with the names, help lines and
 * label order of vLLM or SGLang. Gauges are read from the engine when the text is made. */
#include "sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOUNDS_MAX 24
#define LABELS_MAX 8

struct bounds {
    size_t n;
    double at[BOUNDS_MAX];
};

static const struct bounds bounds_ttft = {22, {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                               1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560}};
static const struct bounds bounds_token = {
    19, {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}};
static const struct bounds bounds_request = {
    21, {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}};
static const struct bounds bounds_iteration = {
    13, {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};
static const struct bounds bounds_ttft_sglang = {
    18, {.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400}};

static const struct bounds *const bounds_of[HIST_COUNT] = {
    [HIST_TTFT] = &bounds_ttft,
    [HIST_INTER_TOKEN] = &bounds_token,
    [HIST_REQUEST_PER_TOKEN] = &bounds_token,
    [HIST_E2E] = &bounds_request,
    [HIST_QUEUE] = &bounds_request,
    [HIST_PREFILL] = &bounds_request,
    [HIST_DECODE] = &bounds_request,
    [HIST_INFERENCE] = &bounds_request,
    [HIST_ITERATION_TOKENS] = &bounds_iteration,
};

struct histogram {
    uint64_t counts[BOUNDS_MAX + 1]; /* the last used one is +Inf */
    double sum;
};

static struct {
    double created;
    int64_t counters[SIM_RANKS_MAX][COUNT_COUNT];
    struct histogram histograms[SIM_RANKS_MAX][HIST_COUNT];
} metrics;

static const struct bounds *bounds_for(size_t which)
{
    return which == HIST_TTFT && cfg.engine == ENGINE_SGLANG ? &bounds_ttft_sglang : bounds_of[which];
}

void metrics_reset(void)
{
    memset(&metrics, 0, sizeof(metrics));
    metrics.created = util_unix_time();
}

void metrics_observe(size_t rank, enum metrics_histogram which, double value)
{
    const struct bounds *bounds = bounds_for(which);
    struct histogram *histogram = &metrics.histograms[rank][which];
    size_t i = 0;
    while (i < bounds->n && value > bounds->at[i])
        i++;
    histogram->counts[i]++;
    histogram->sum += value;
}

void metrics_count(size_t rank, enum metrics_counter which, int64_t n)
{
    metrics.counters[rank][which] += n;
}

/* ---- text ---- */

struct label {
    const char *name, *value;
};

static int label_order(const void *a, const void *b)
{
    return strcmp(((const struct label *)a)->name, ((const struct label *)b)->name);
}

/* A number the way Python writes a float: 3.0, 0.25, 1.7e+09, NaN. */
static void put_number(struct buf *out, double value)
{
    char text[40];
    if (isnan(value)) {
        buf_text(out, "NaN");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        double back = strtod(text, NULL);
        if (!(back < value) && !(back > value))
            break;
    }
    buf_text(out, text);
    if (!strpbrk(text, ".e"))
        buf_text(out, ".0");
}

static size_t base_labels(struct label *labels, size_t rank)
{
    static char number[8];
    size_t n = 0;
    snprintf(number, sizeof(number), "%zu", rank);
    labels[n++] = (struct label){"model_name", cfg.models[0]};
    if (cfg.engine == ENGINE_VLLM) {
        if (cfg.metrics_names != NAMES_OLD || cfg.ranks > 1)
            labels[n++] = (struct label){"engine", number};
        return n;
    }
    if (cfg.ranks > 1)
        labels[n++] = (struct label){"dp_rank", number};
    if (cfg.metrics_names == NAMES_OLD)
        return n;
    labels[n++] = (struct label){"engine_type", "unified"};
    labels[n++] = (struct label){"moe_ep_rank", "0"};
    labels[n++] = (struct label){"pp_rank", "0"};
    labels[n++] = (struct label){"tp_rank", "0"};
    return n;
}

/* One sample. Labels come out sorted by name, as the Python client writes them. */
static void put_sample(struct buf *out, const char *name, const char *suffix, size_t rank, const char *label,
                       const char *label_value, double value)
{
    struct label labels[LABELS_MAX];
    size_t n = base_labels(labels, rank);
    if (label)
        labels[n++] = (struct label){label, label_value};
    qsort(labels, n, sizeof(labels[0]), label_order);
    buf_printf(out, "%s%s", name, suffix);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%s=\"", i ? "," : "{", labels[i].name);
        for (const char *c = labels[i].value; *c; c++)
            if (*c == '\n')
                buf_text(out, "\\n");
            else
                buf_printf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        buf_text(out, "\"");
    }
    buf_text(out, "} ");
    put_number(out, value);
    buf_text(out, "\n");
}

static void put_head(struct buf *out, const char *name, const char *suffix, const char *help,
                     const char *type)
{
    buf_printf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name, suffix, type);
}

static void put_created(struct buf *out, const char *name, const char *help)
{
    put_head(out, name, "_created", help, "gauge");
    for (size_t rank = 0; rank < (size_t)cfg.ranks; rank++)
        put_sample(out, name, "_created", rank, NULL, NULL, metrics.created);
}

static void put_gauge(struct buf *out, const char *name, const char *help, double (*value)(size_t rank))
{
    put_head(out, name, "", help, "gauge");
    for (size_t rank = 0; rank < (size_t)cfg.ranks; rank++)
        put_sample(out, name, "", rank, NULL, NULL, value(rank));
}

static void put_counter(struct buf *out, const char *name, const char *help, enum metrics_counter which)
{
    put_head(out, name, "_total", help, "counter");
    for (size_t rank = 0; rank < (size_t)cfg.ranks; rank++)
        put_sample(out, name, "_total", rank, NULL, NULL, (double)metrics.counters[rank][which]);
    put_created(out, name, help);
}

static void put_histogram_rank(struct buf *out, const char *name, enum metrics_histogram which, size_t rank)
{
    const struct bounds *bounds = bounds_for(which);
    const struct histogram *histogram = &metrics.histograms[rank][which];
    uint64_t total = 0;
    for (size_t i = 0; i <= bounds->n; i++) {
        struct buf le = {0};
        total += histogram->counts[i];
        if (i < bounds->n)
            put_number(&le, bounds->at[i]);
        else
            buf_text(&le, "+Inf");
        buf_put(&le, "", 1);
        put_sample(out, name, "_bucket", rank, "le", buf_bytes(&le), (double)total);
        buf_free(&le);
    }
    put_sample(out, name, "_count", rank, NULL, NULL, (double)total);
    put_sample(out, name, "_sum", rank, NULL, NULL, histogram->sum);
}

static void put_histogram(struct buf *out, const char *name, const char *help, enum metrics_histogram which)
{
    put_head(out, name, "", help, "histogram");
    for (size_t rank = 0; rank < (size_t)cfg.ranks; rank++)
        put_histogram_rank(out, name, which, rank);
    put_created(out, name, help);
}

/* ---- gauges ---- */

/* A forced number is the pod's total: it goes to the first rank. */
static double gauge(double forced, int64_t real, size_t rank)
{
    if (cfg.metrics_fault.kind == METRICS_FAULT_NAN)
        return NAN;
    if (isnan(forced))
        return (double)real;
    return rank == 0 ? forced : 0;
}

static double gauge_running(size_t rank)
{
    return gauge(cfg.force_running, engine_stats.running_by_rank[rank], rank);
}

static double gauge_waiting(size_t rank)
{
    return gauge(cfg.force_waiting, engine_stats.waiting_by_rank[rank], rank);
}

static double gauge_kv(size_t rank)
{
    (void)rank;
    if (cfg.metrics_fault.kind == METRICS_FAULT_NAN)
        return NAN;
    return isnan(cfg.force_kv) ? cache_usage() : cfg.force_kv;
}

static double gauge_hit_rate(size_t rank)
{
    const int64_t *counters = metrics.counters[rank];
    int64_t queries = counters[COUNT_PREFIX_QUERIES];
    return queries ? (double)counters[COUNT_PREFIX_HITS] / (double)queries : 0;
}

static double gauge_zero(size_t rank)
{
    (void)rank;
    return 0;
}

static double gauge_capacity_tokens(size_t rank)
{
    (void)rank;
    return (double)(cfg.kv_blocks * (SIM_BLOCK_BYTES / SIM_TOKEN_BYTES));
}

static double gauge_used_tokens(size_t rank)
{
    return floor(gauge_capacity_tokens(rank) * cache_usage());
}

/* ---- vLLM ---- */

static bool shows_old(void)
{
    return cfg.metrics_names != NAMES_NEW;
}

static bool shows_new(void)
{
    return cfg.metrics_names != NAMES_OLD;
}

static void put_waiting_by_reason(struct buf *out)
{
    const char *name = "vllm:num_requests_waiting_by_reason";
    put_head(out, name, "", "Number of requests waiting to be processed, by reason.", "gauge");
    for (size_t rank = 0; rank < (size_t)cfg.ranks; rank++) {
        put_sample(out, name, "", rank, "reason", "capacity", gauge_waiting(rank));
        put_sample(out, name, "", rank, "reason", "deferred", 0);
    }
}

static void put_sleep_state(struct buf *out)
{
    static const char *const states[] = {"awake", "weights_offloaded", "discard_all"};
    const char *name = "vllm:engine_sleep_state";
    put_head(out, name, "",
             "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake.",
             "gauge");
    for (size_t rank = 0; rank < (size_t)cfg.ranks; rank++)
        for (size_t i = 0; i < 3; i++)
            put_sample(out, name, "", rank, "sleep_state", states[i], i == 0);
}

static void put_vllm_load(struct buf *out)
{
    put_gauge(out, "vllm:num_requests_running", "Number of requests in model execution batches.",
              gauge_running);
    put_gauge(out, "vllm:num_requests_waiting", "Number of requests waiting to be processed.", gauge_waiting);
    if (shows_new()) {
        put_waiting_by_reason(out);
        put_sleep_state(out);
        put_gauge(out, "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", gauge_kv);
    }
    if (shows_old()) {
        put_gauge(out, "vllm:gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage.",
                  gauge_kv);
        put_gauge(out, "vllm:num_requests_swapped", "Number of requests swapped to CPU.", gauge_zero);
    }
}

static void put_vllm_prefix(struct buf *out)
{
    if (shows_old()) {
        put_counter(out, "vllm:gpu_prefix_cache_queries",
                    "GPU prefix cache queries, in terms of number of queried tokens.", COUNT_PREFIX_QUERIES);
        put_counter(out, "vllm:gpu_prefix_cache_hits",
                    "GPU prefix cache hits, in terms of number of cached tokens.", COUNT_PREFIX_HITS);
    }
    if (shows_new()) {
        put_counter(out, "vllm:prefix_cache_queries",
                    "Prefix cache queries, in terms of number of queried tokens.", COUNT_PREFIX_QUERIES);
        put_counter(out, "vllm:prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.",
                    COUNT_PREFIX_HITS);
        put_counter(out, "vllm:prompt_tokens_cached", "Number of cached prompt tokens.", COUNT_PREFIX_HITS);
    }
}

static void put_vllm_success(struct buf *out)
{
    static const char *const reasons[] = {"stop", "length", "abort"};
    const char *name = "vllm:request_success";
    put_head(out, name, "_total", "Count of successfully processed requests.", "counter");
    for (size_t rank = 0; rank < (size_t)cfg.ranks; rank++)
        for (size_t i = 0; i < 3; i++)
            put_sample(out, name, "_total", rank, "finished_reason", reasons[i],
                       (double)metrics.counters[rank][COUNT_STOP + i]);
}

static void put_vllm_cache_config(struct buf *out)
{
    put_head(out, "vllm:cache_config_info", "", "Information of the LLMEngine CacheConfig", "gauge");
    for (size_t rank = 0; rank < (size_t)cfg.ranks; rank++)
        buf_printf(out,
                   "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"True\",engine=\"%zu\","
                   "num_gpu_blocks=\"%lld\"} 1.0\n",
                   rank, (long long)cfg.kv_blocks);
}

static void put_vllm_histograms(struct buf *out)
{
    put_histogram(out, "vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.",
                  HIST_ITERATION_TOKENS);
    put_histogram(out, "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.",
                  HIST_TTFT);
    if (shows_old())
        put_histogram(out, "vllm:time_per_output_token_seconds",
                      "Histogram of time per output token in seconds.", HIST_INTER_TOKEN);
    if (shows_new()) {
        put_histogram(out, "vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.",
                      HIST_INTER_TOKEN);
        put_histogram(out, "vllm:request_time_per_output_token_seconds",
                      "Histogram of time_per_output_token_seconds per request.", HIST_REQUEST_PER_TOKEN);
    }
    put_histogram(out, "vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.",
                  HIST_E2E);
    put_histogram(out, "vllm:request_queue_time_seconds",
                  "Histogram of time spent in WAITING phase for request.", HIST_QUEUE);
    put_histogram(out, "vllm:request_inference_time_seconds",
                  "Histogram of time spent in RUNNING phase for request.", HIST_INFERENCE);
    put_histogram(out, "vllm:request_prefill_time_seconds",
                  "Histogram of time spent in PREFILL phase for request.", HIST_PREFILL);
    put_histogram(out, "vllm:request_decode_time_seconds",
                  "Histogram of time spent in DECODE phase for request.", HIST_DECODE);
}

static void put_vllm(struct buf *out)
{
    if (cfg.metrics_fault.kind != METRICS_FAULT_MISSING)
        put_vllm_load(out);
    put_vllm_prefix(out);
    put_counter(out, "vllm:num_preemptions", "Cumulative number of preemption from the engine.",
                COUNT_PREEMPTIONS);
    put_counter(out, "vllm:prompt_tokens", "Number of prefill tokens processed.", COUNT_PROMPT_TOKENS);
    put_counter(out, "vllm:generation_tokens", "Number of generation tokens processed.",
                COUNT_GENERATION_TOKENS);
    put_vllm_success(out);
    put_vllm_cache_config(out);
    put_vllm_histograms(out);
}

/* ---- SGLang ---- */

static void put_sglang(struct buf *out)
{
    if (cfg.metrics_fault.kind != METRICS_FAULT_MISSING) {
        put_gauge(out, "sglang:num_running_reqs", "The number of running requests.", gauge_running);
        put_gauge(out, "sglang:num_queue_reqs", "The number of requests in the waiting queue.",
                  gauge_waiting);
        put_gauge(out, "sglang:token_usage", "The token usage.", gauge_kv);
    }
    put_gauge(out, "sglang:num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.",
              gauge_zero);
    put_gauge(out, "sglang:num_used_tokens", "The number of used tokens.", gauge_used_tokens);
    put_gauge(out, "sglang:max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.",
              gauge_capacity_tokens);
    put_gauge(out, "sglang:cache_hit_rate", "The prefix cache hit rate.", gauge_hit_rate);
    put_counter(out, "sglang:prompt_tokens", "Number of prefill tokens processed.", COUNT_PROMPT_TOKENS);
    put_counter(out, "sglang:generation_tokens", "Number of generation tokens processed.",
                COUNT_GENERATION_TOKENS);
    put_counter(out, "sglang:cached_tokens", "Number of cached prompt tokens.", COUNT_PREFIX_HITS);
    put_counter(out, "sglang:num_aborted_requests", "Number of requests aborted.", COUNT_ABORT);
    put_histogram(out, "sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.",
                  HIST_TTFT);
    if (shows_old())
        put_histogram(out, "sglang:time_per_output_token_seconds",
                      "Histogram of time per output token in seconds.", HIST_INTER_TOKEN);
    if (shows_new())
        put_histogram(out, "sglang:inter_token_latency_seconds",
                      "Histogram of inter-token latency in seconds.", HIST_INTER_TOKEN);
    put_histogram(out, "sglang:e2e_request_latency_seconds",
                  "Histogram of End-to-end request latency in seconds", HIST_E2E);
    put_histogram(out, "sglang:queue_time_seconds", "Histogram of queueing time in seconds.", HIST_QUEUE);
}

void metrics_render(struct buf *out)
{
    if (cfg.engine == ENGINE_VLLM)
        put_vllm(out);
    else
        put_sglang(out);
}
