/* scrape: reads the metrics page of one pod again and again, and its list of models when that is wanted. Each
 * pod has its own clock and time limit, so that a slow pod delays no other. Writes pod->numbers; a failed
 * read leaves them to grow stale. */
#ifndef SCRAPE_H
#define SCRAPE_H

#include "curlev.h"
#include "pod.h"
#include "promtext.h"

#define SCRAPE_PAGE_MAX (16 * 1024 * 1024)
/* Reads started in one tick of the timers (20 ms), so that thousands of pods make no long turn of the loop;
 * and the number of pods from which on first reads are spread over the interval. */
#define SCRAPE_STARTS_MAX   32
#define SCRAPE_FEW          64
#define SCRAPE_MODELS_EVERY 10            /* reads of a pod's metrics between two of its models */
#define SCRAPE_MODELS_KEEP  3             /* reads of its models that may fail in a row: then it has none */
#define SCRAPE_MODELS_MAX   (1024 * 1024) /* bytes of such a list */

/* Shared by all; kept by scrape. */
struct scrape_pace {
    size_t n; /* pods that are read */
    int64_t tick;
    unsigned started; /* in that tick */
};

/* Shared by all; may change on reload. */
struct scrape_rules {
    int64_t interval_us; /* pause between two reads */
    int64_t timeout_us;
    const char *ca_file; /* for https pods; "" = the system's */
    struct scrape_pace *pace;
    bool models; /* read /v1/models too */
};

struct scrape;

struct scrape_ops {
    /* New numbers are in pod->numbers. */
    void (*fresh)(struct pod *pod, void *arg);
    /* why: valid during the call. first: the read before this one was good (or there was none), so it is
     * worth a log line. */
    void (*failed)(struct pod *pod, const char *why, bool first, void *arg);
    /* Numbers come again after a failure. */
    void (*recovered)(struct pod *pod, void *arg);
    /* What /v1/models answered; empty when reads have failed for so long that it is not known any more. Valid
     * during the call. */
    void (*models)(struct pod *pod, struct slice list, void *arg);
};

/* Starts at once, or as soon as the pod's upstream has an address; where there are many pods, within the
 * interval. The pod outlives the scrape. */
struct scrape *scrape_new(struct loop *l, struct curlev *c, struct pod *pod, enum promtext_engine engine,
                          const struct scrape_rules *rules, const struct scrape_ops *ops, void *arg);
/* The rules changed: who waits does not wait longer than their interval. */
void scrape_heed_rules(struct scrape *s);
void scrape_free(struct scrape *s);

#endif
