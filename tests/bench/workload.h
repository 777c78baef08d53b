/* workload: the regimes of bench-ttft: pods, sessions, lengths, think times, and the one stream of choices
 * that follows from a seed. queue_sim and turns read the same numbers here, so a simulated and a real run of
 * one seed play the same sessions. All times are in model time; a real run divides them by regime.scale. */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* How vllm-sim counts: 4 bytes a token, blocks of 64 bytes, a template around each message. */
#define WORKLOAD_TOKEN_BYTES     4
#define WORKLOAD_BLOCK_BYTES     64
#define WORKLOAD_USER_BYTES      9  /* "<|user|>" and a line end */
#define WORKLOAD_ASSISTANT_BYTES 13 /* "<|assistant|>" */
/* One streamed chunk stands for 20 tokens, so that hundreds of streams leave the machine time for the rest.
 */
#define WORKLOAD_CHUNK_BYTES 80
#define WORKLOAD_CALLS_MAX   8

struct workload_range {
    unsigned min, max;
};

/* A kind of session. */
struct workload_kind {
    struct workload_range first_tokens, grow_tokens; /* of the user's first and later messages */
    struct workload_range turns;
    unsigned chunks; /* of each answer */
    unsigned calls;  /* at one time in each turn; the first one's answer goes on in the next prompt */
    int64_t think_us;
    bool tool; /* the pause is think_us sharp; else exponential with that mean, at most five times as long */
};

struct workload_regime {
    const char *name;
    unsigned pods, slots, sessions;
    unsigned agents_percent;
    struct workload_kind chat, agent;
    int64_t chunk_us;
    unsigned prefill_tokens_per_s, kv_blocks; /* of each pod */
    unsigned warmup_s, window_s;
    double scale; /* how much faster the real run goes */
};

#define WORKLOAD_LONG                                                                                        \
    {                                                                                                        \
        {3500, 4500}, {600, 1000}, {4, 9}, 10, 1, 5000000, false                                             \
    }
#define WORKLOAD_SHORT                                                                                       \
    {                                                                                                        \
        {100, 300}, {50, 250}, {4, 9}, 10, 1, 5000000, false                                                 \
    }
#define WORKLOAD_AGENT                                                                                       \
    {                                                                                                        \
        {1500, 2500}, {100, 400}, {8, 16}, 4, 3, 10000, true                                                 \
    }
#define WORKLOAD_CHAT                                                                                        \
    {                                                                                                        \
        {1500, 2500}, {100, 400}, {4, 9}, 10, 1, 5000000, false                                              \
    }

static const struct workload_regime workload_regimes[] = {
    {"long-above", 4, 16, 200, 0, WORKLOAD_LONG, WORKLOAD_LONG, 400000, 6000, 25000, 60, 180, 20},
    {"long-below", 4, 16, 50, 0, WORKLOAD_LONG, WORKLOAD_LONG, 400000, 6000, 25000, 60, 180, 20},
    {"short-above", 4, 16, 250, 0, WORKLOAD_SHORT, WORKLOAD_SHORT, 400000, 6000, 25000, 60, 180, 20},
    {"short-below", 4, 16, 80, 0, WORKLOAD_SHORT, WORKLOAD_SHORT, 400000, 6000, 25000, 60, 180, 20},
    {"agents", 4, 16, 80, 50, WORKLOAD_CHAT, WORKLOAD_AGENT, 400000, 6000, 25000, 30, 50, 5},
};

#define WORKLOAD_REGIMES (sizeof(workload_regimes) / sizeof(workload_regimes[0]))

static inline const struct workload_regime *workload_find(const char *name)
{
    for (size_t i = 0; i < WORKLOAD_REGIMES; i++) {
        if (strcmp(workload_regimes[i].name, name) == 0)
            return &workload_regimes[i];
    }
    return NULL;
}

/* ---- choices: a hash of who and when, so that their order of asking does not matter ---- */

enum workload_what { WORKLOAD_TURNS, WORKLOAD_TOKENS, WORKLOAD_PAUSE, WORKLOAD_START };

/* Slot `slot` of the closed loop plays one session after the other; `life` counts them. */
struct workload_place {
    uint64_t seed;
    unsigned slot, life, turn, call;
};

static inline uint64_t workload_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* 0 <= it < 1. */
static inline double workload_random(const struct workload_place *p, enum workload_what what)
{
    uint64_t x = workload_mix(p->seed * 16 + (uint64_t)what);

    x = workload_mix(x ^ ((uint64_t)p->slot << 32 | p->life));
    x = workload_mix(x ^ ((uint64_t)p->turn << 32 | p->call));
    return (double)(x >> 11) / 9007199254740992.0;
}

static inline unsigned workload_between(const struct workload_range *r, double random)
{
    return r->min + (unsigned)(random * (double)(r->max - r->min + 1));
}

static inline const struct workload_kind *workload_kind_of(const struct workload_regime *r, unsigned slot)
{
    return slot % 100 * r->agents_percent % 100 + r->agents_percent >= 100 ? &r->agent : &r->chat;
}

/* A slot's first session is cut at a random place, so that not all end together. */
static inline unsigned workload_turns(const struct workload_kind *k, const struct workload_place *p)
{
    double random = workload_random(p, WORKLOAD_TURNS);

    if (p->life == 0)
        return 1 + (unsigned)(random * (double)k->turns.max);
    return workload_between(&k->turns, random);
}

static inline size_t workload_user_bytes(const struct workload_kind *k, const struct workload_place *p)
{
    const struct workload_range *r = p->turn == 0 ? &k->first_tokens : &k->grow_tokens;

    return (size_t)workload_between(r, workload_random(p, WORKLOAD_TOKENS)) * WORKLOAD_TOKEN_BYTES;
}

static inline int64_t workload_pause_us(const struct workload_kind *k, const struct workload_place *p)
{
    double times = k->tool ? 1 : -log(1 - workload_random(p, WORKLOAD_PAUSE));

    return (int64_t)((double)k->think_us * (times < 5 ? times : 5));
}

/* When a slot begins: within the first ten seconds. */
static inline int64_t workload_start_us(const struct workload_place *p)
{
    return (int64_t)(workload_random(p, WORKLOAD_START) * 1e7);
}

static inline size_t workload_answer_bytes(const struct workload_kind *k)
{
    return (size_t)k->chunks * WORKLOAD_CHUNK_BYTES;
}

#endif
