/* results: what one run of bench-ttft measured, gathered in its window and printed as one JSON object. Times
 * in are model time; times out are in seconds. */
#ifndef RESULTS_H
#define RESULTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define RESULTS_QUANTILES 41 /* 0 %, 2.5 % ... 100 % */

struct results_series {
    float *seconds;
    size_t n, cap;
};

struct results {
    int64_t from_us, until_us; /* the window; what ends in it counts */
    struct results_series first, follow;
    uint64_t prompt_tokens, cached_tokens, follow_prompt_tokens, follow_cached_tokens;
    uint64_t failed; /* 504 */
};

static inline void results_add(struct results_series *s, int64_t us)
{
    if (s->n == s->cap) {
        s->cap = s->cap > 0 ? s->cap * 2 : 1024;
        s->seconds = realloc(s->seconds, s->cap * sizeof(*s->seconds));
        if (s->seconds == NULL)
            abort();
    }
    s->seconds[s->n++] = (float)((double)us / 1e6);
}

static inline bool results_open(const struct results *r, int64_t now_us)
{
    return now_us >= r->from_us && now_us < r->until_us;
}

/* One call that was answered in full. */
static inline void results_answered(struct results *r, bool first, int64_t ttft_us, uint64_t prompt_tokens,
                                    uint64_t cached_tokens)
{
    results_add(first ? &r->first : &r->follow, ttft_us);
    r->prompt_tokens += prompt_tokens;
    r->cached_tokens += cached_tokens;
    if (!first) {
        r->follow_prompt_tokens += prompt_tokens;
        r->follow_cached_tokens += cached_tokens;
    }
}

static inline int results_compare(const void *a, const void *b)
{
    const float *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

/* The series must be sorted. */
static inline double results_quantile(const struct results_series *s, double q)
{
    return s->n == 0 ? 0 : (double)s->seconds[(size_t)(q * (double)(s->n - 1) + 0.5)];
}

static inline void results_print_series(const char *name, struct results_series *s)
{
    double sum = 0;

    if (s->n > 0)
        qsort(s->seconds, s->n, sizeof(*s->seconds), results_compare);
    for (size_t i = 0; i < s->n; i++)
        sum += (double)s->seconds[i];
    printf(", \"%s\": {\"n\": %zu, \"mean\": %.4f, \"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f, "
           "\"quantiles\": [",
           name, s->n, s->n > 0 ? sum / (double)s->n : 0, results_quantile(s, 0.5), results_quantile(s, 0.9),
           results_quantile(s, 0.99));
    for (unsigned i = 0; i < RESULTS_QUANTILES; i++)
        printf("%s%.4f", i > 0 ? ", " : "", results_quantile(s, (double)i / (RESULTS_QUANTILES - 1)));
    printf("]}");
}

/* Members of the object that the caller opened. */
static inline void results_print(struct results *r)
{
    double seconds = (double)(r->until_us - r->from_us) / 1e6;

    printf(", \"seconds\": %.1f, \"turns\": %zu, \"turns_per_s\": %.4f", seconds, r->first.n + r->follow.n,
           (double)(r->first.n + r->follow.n) / seconds);
    printf(", \"warm\": %.4f, \"warm_follow\": %.4f",
           r->prompt_tokens > 0 ? (double)r->cached_tokens / (double)r->prompt_tokens : 0,
           r->follow_prompt_tokens > 0 ? (double)r->follow_cached_tokens / (double)r->follow_prompt_tokens
                                       : 0);
    printf(", \"failed\": %llu", (unsigned long long)r->failed);
    results_print_series("first", &r->first);
    results_print_series("follow", &r->follow);
}

static inline void results_free(struct results *r)
{
    free(r->first.seconds);
    free(r->follow.seconds);
}

#endif
