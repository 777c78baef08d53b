/* policy: compares and scores pods. */
#include "policy.h"

#include <assert.h>
#include <math.h>

static const char *const words[POLICY_KINDS] = {
    [POLICY_UNSET] = "",
    [POLICY_LEAST_REQUEST] = "least-request",
    [POLICY_ROUND_ROBIN] = "round-robin",
    [POLICY_RANDOM] = "random",
    [POLICY_PREFIX] = "prefix",
    [POLICY_LEAST_LATENCY] = "least-latency",
    [POLICY_KV_USAGE] = "kv-usage",
    [POLICY_SCORE] = "score",
};

static const enum policy_kind kind_of_score[POLICY_SCORES] = {
    [POLICY_SCORE_LEAST_REQUEST] = POLICY_LEAST_REQUEST,
    [POLICY_SCORE_RANDOM] = POLICY_RANDOM,
    [POLICY_SCORE_PREFIX] = POLICY_PREFIX,
    [POLICY_SCORE_LEAST_LATENCY] = POLICY_LEAST_LATENCY,
    [POLICY_SCORE_KV_USAGE] = POLICY_KV_USAGE,
};

const char *policy_word(enum policy_kind kind)
{
    return words[kind];
}

enum policy_kind policy_by_word(struct slice word)
{
    for (enum policy_kind k = POLICY_LEAST_REQUEST; k < POLICY_SCORE; k++) {
        if (slice_eq(word, slice_of(words[k])))
            return k;
    }
    return POLICY_KINDS;
}

enum policy_score policy_score_by_word(struct slice word)
{
    const enum policy_kind kind = policy_by_word(word);
    enum policy_score s = 0;

    while (s < POLICY_SCORES && kind_of_score[s] != kind)
        s++;
    return s;
}

const char *policy_score_word(enum policy_score s)
{
    return words[kind_of_score[s]];
}

bool policy_wants_prefix(const struct policy *p)
{
    return p->kind == POLICY_PREFIX || (p->kind == POLICY_SCORE && p->weights[POLICY_SCORE_PREFIX] > 0);
}

/* xorshift64* */
static uint64_t roll(uint64_t *dice)
{
    *dice ^= *dice >> 12;
    *dice ^= *dice << 25;
    *dice ^= *dice >> 27;
    return *dice * UINT64_C(2685821657736338717) >> 32;
}

/* ---- scores ---- */

static double base_of(const struct policy_pod *p)
{
    return p->in_flight + 100 * p->waiting;
}

static double score_least_request(const struct policy_pod *pods, size_t n, size_t i)
{
    double max = 0;

    for (size_t k = 0; k < n; k++)
        max = fmax(max, base_of(&pods[k]));
    return max == 0 ? 100 : trunc((max - base_of(&pods[i])) / max * 100);
}

static bool has_latency(const struct policy_pod *p)
{
    return p->ttft_s > 0 && p->tpot_s > 0;
}

/* 100 for the least of those that are known, 0 for the largest. */
static double part_latency(const struct policy_pod *pods, size_t n, double value, bool first)
{
    double min = INFINITY, max = -INFINITY;

    for (size_t k = 0; k < n; k++) {
        if (!has_latency(&pods[k]))
            continue;
        min = fmin(min, first ? pods[k].ttft_s : pods[k].tpot_s);
        max = fmax(max, first ? pods[k].ttft_s : pods[k].tpot_s);
    }
    return max > min ? 100 * (max - value) / (max - min) : 100;
}

static double score_least_latency(const struct policy_pod *pods, size_t n, size_t i)
{
    if (!has_latency(&pods[i]))
        return 50;
    return trunc(
        (part_latency(pods, n, pods[i].ttft_s, true) + part_latency(pods, n, pods[i].tpot_s, false)) / 2);
}

double policy_score_of(enum policy_score s, const struct policy_pod *pods, size_t n, size_t i, uint64_t *dice)
{
    switch (s) {
    case POLICY_SCORE_LEAST_REQUEST:
        return score_least_request(pods, n, i);
    case POLICY_SCORE_RANDOM:
        return (double)(roll(dice) % 101);
    case POLICY_SCORE_PREFIX:
        return trunc(pods[i].matched * 100);
    case POLICY_SCORE_LEAST_LATENCY:
        return score_least_latency(pods, n, i);
    case POLICY_SCORE_KV_USAGE:
        return trunc((1 - pods[i].kv_usage) * 100);
    case POLICY_SCORES:
        break;
    }
    return 0;
}

static double sum_of_scores(const struct policy *p, const struct policy_pod *pods, size_t n, size_t i,
                            uint64_t *dice)
{
    double sum = 0;

    for (enum policy_score s = 0; s < POLICY_SCORES; s++) {
        if (p->weights[s] > 0)
            sum += p->weights[s] * policy_score_of(s, pods, n, i, dice);
    }
    return sum;
}

/* ---- latency as a cost ---- */

static double mean_of_known(const struct policy_pod *pods, size_t n, bool first)
{
    double sum = 0;
    size_t known = 0;

    for (size_t k = 0; k < n; k++) {
        const double v = first ? pods[k].ttft_s : pods[k].tpot_s;

        if (v > 0) {
            sum += v;
            known++;
        }
    }
    return known > 0 ? sum / (double)known : NAN;
}

/* 1 for a pod like the average, and for what is not known. */
static double relative(double value, double mean)
{
    return value > 0 && mean > 0 ? value / mean : 1;
}

/* A pod of unknown latency gets one request to find out. If nobody knows after that, it is like the average.
 */
static double latency_cost(const struct policy_pod *p, double ttft_s, double tpot_s)
{
    if (!(p->ttft_s > 0) && p->in_flight == 0 && !p->tried)
        return 0;
    return (relative(p->ttft_s, ttft_s) + relative(p->tpot_s, tpot_s)) * (p->in_flight + 1);
}

/* ---- choosing ---- */

/* What counts first: the larger, the better. */
static void rate(const struct policy *p, struct policy_pod *pods, size_t n, uint64_t *dice)
{
    const double ttft_s = mean_of_known(pods, n, true), tpot_s = mean_of_known(pods, n, false);

    for (size_t i = 0; i < n; i++) {
        switch (p->kind) {
        case POLICY_SCORE:
            pods[i].score = sum_of_scores(p, pods, n, i, dice);
            break;
        case POLICY_PREFIX:
            pods[i].score = pods[i].matched;
            break;
        case POLICY_KV_USAGE:
            pods[i].score = -pods[i].kv_usage;
            break;
        case POLICY_LEAST_LATENCY:
            pods[i].score = -latency_cost(&pods[i], ttft_s, tpot_s);
            break;
        default:
            pods[i].score = 0;
            break;
        }
    }
}

static int compare(double a, double b)
{
    return (a > b) - (a < b);
}

/* > 0: a is better. What counts second: the order of least-request. */
static int compare_pods(const struct policy *p, const struct policy_pod *a, const struct policy_pod *b)
{
    int order = compare(a->score, b->score);

    if (order != 0 || p->kind == POLICY_SCORE || p->kind == POLICY_RANDOM)
        return order;
    order = compare(b->in_flight, a->in_flight);
    if (order == 0)
        order = compare(b->waiting, a->waiting);
    return order != 0 ? order : compare(b->kv_usage, a->kv_usage);
}

/* Each of the k best so far stays with a chance of 1/k. */
size_t policy_choose(const struct policy *p, struct policy_pod *pods, size_t n, uint64_t *dice)
{
    size_t best = 0;
    uint64_t equals = 1;

    assert(n > 0 && p->kind != POLICY_UNSET);
    if (p->kind == POLICY_ROUND_ROBIN)
        return 0;
    rate(p, pods, n, dice);
    for (size_t i = 1; i < n; i++) {
        const int order = compare_pods(p, &pods[i], &pods[best]);

        if (order > 0)
            equals = 1;
        if (order > 0 || (order == 0 && roll(dice) % ++equals == 0))
            best = i;
    }
    return best;
}
