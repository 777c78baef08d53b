/* promtext: Prometheus exposition text of a pod -> the few numbers the router wants, streaming, any split of
 * the bytes.
 *
 * Names are matched whole, never by prefix. Every series of a name counts as one engine rank: waiting and
 * running are summed, the smallest waiting count is kept beside the sum, and KV use is the fullest rank's. A
 * number that is missing, NaN, infinite or negative is left out: no opinion. The names are one table in
 * promtext.c. */
#ifndef PROMTEXT_H
#define PROMTEXT_H

#include "pod.h"

#define PROMTEXT_LINE_MAX 8192 /* longer lines are skipped, not an error: LoRA lists can be long */

enum promtext_engine { PROMTEXT_NONE, PROMTEXT_VLLM, PROMTEXT_SGLANG };

/* What the series of one name come to so far. NAN = none yet. */
struct promtext_gauge {
    double sum, min, max;
    double split_sum; /* the rows with a `priority`: SGLang's plain rows already hold them, so they count only
                         without those */
};

enum promtext_number {
    PROMTEXT_RUNNING,
    PROMTEXT_WAITING,
    PROMTEXT_KV,
    PROMTEXT_KV_OLD,
    PROMTEXT_AWAKE,
    PROMTEXT_TTFT_SUM,
    PROMTEXT_TTFT_COUNT,
    PROMTEXT_TPOT_SUM,
    PROMTEXT_TPOT_COUNT,
    PROMTEXT_TPOT_OLD_SUM,
    PROMTEXT_TPOT_OLD_COUNT,
    PROMTEXT_NUMBERS
};

struct promtext {
    enum promtext_engine engine;
    struct pod_numbers numbers; /* after promtext_finish; at_us is left to the caller */
    struct pod_totals totals;   /* the same; summed over ranks */
    struct promtext_gauge gauges[PROMTEXT_NUMBERS];
    char line[PROMTEXT_LINE_MAX];
    size_t line_n;
    bool skipping;  /* the rest of an overlong line */
    size_t samples; /* well-formed samples seen, of any name: 0 at the end = not a metrics page */
};

void promtext_start(struct promtext *p, enum promtext_engine engine);
void promtext_feed(struct promtext *p, struct slice bytes);
/* Handles a last line without newline and completes the numbers. False: no well-formed sample at all. */
MUST_CHECK bool promtext_finish(struct promtext *p);

#endif
