/* policy: how a pod is chosen among those with room, where a route says so: one view of the pods, or several
 * scores of 0 to 100 that are weighted and added. Sees numbers alone; who may be chosen is pick's. */
#ifndef POLICY_H
#define POLICY_H

#include "util.h"

enum policy_kind {
    POLICY_UNSET,         /* pick's own order: least in-flight, waiting, KV use, ties in turn */
    POLICY_LEAST_REQUEST, /* least in-flight, then waiting, then KV use, ties at random */
    POLICY_ROUND_ROBIN,   /* in turn */
    POLICY_RANDOM,        /* all alike */
    POLICY_PREFIX,        /* the longest known beginning of the prompt, then as least-request */
    POLICY_LEAST_LATENCY, /* the shortest times to first and between tokens, times requests in flight + 1 */
    POLICY_KV_USAGE,      /* least KV use, then as least-request */
    POLICY_SCORE,         /* the largest weighted sum of scores, ties at random */
    POLICY_KINDS
};

/* The parts of a score; each has the word of the policy of the same name. */
enum policy_score {
    POLICY_SCORE_LEAST_REQUEST,
    POLICY_SCORE_RANDOM,
    POLICY_SCORE_PREFIX,
    POLICY_SCORE_LEAST_LATENCY,
    POLICY_SCORE_KV_USAGE,
    POLICY_SCORES
};

#define POLICY_WEIGHT_MAX 1000

struct policy {
    enum policy_kind kind;
    unsigned weights[POLICY_SCORES]; /* of POLICY_SCORE, at least one above 0 */
    int64_t max_waiting;             /* pods with so many waiting or more have no room; 0 = off */
};

/* One pod as it is judged. NAN: not known. */
struct policy_pod {
    unsigned in_flight; /* requests of ours */
    double waiting;     /* at the pod; missing and stale ones are 0 */
    double kv_usage;    /* 0..1, the same */
    double ttft_s, tpot_s;
    bool tried;     /* of late: a request of ours has ended there */
    double matched; /* 0..1 of the prompt is known there */
    double score;   /* written here */
};

/* "round-robin"; "score" for POLICY_SCORE. */
const char *policy_word(enum policy_kind kind);
/* POLICY_KINDS: no such word. Not POLICY_UNSET or POLICY_SCORE. */
enum policy_kind policy_by_word(struct slice word);
/* POLICY_SCORES: none of a score's words. */
enum policy_score policy_score_by_word(struct slice word);
const char *policy_score_word(enum policy_score s);
/* True when it asks for `matched`. */
bool policy_wants_prefix(const struct policy *p);

/* The index of the chosen one of n >= 1 pods, given in the order of turns. Not for POLICY_UNSET. *dice is a
 * state of random numbers, never 0. */
size_t policy_choose(const struct policy *p, struct policy_pod *pods, size_t n, uint64_t *dice);

/* The scores alone, 0 to 100 each (tests); the Go router's formulas, with waiting requests for its guess of
 * them. */
double policy_score_of(enum policy_score s, const struct policy_pod *pods, size_t n, size_t i,
                       uint64_t *dice);

#endif
