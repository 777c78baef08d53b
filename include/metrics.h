/* metrics: the router's own counters, gauges and histograms, declared once in metrics.def, kept in memory,
 * rendered as Prometheus exposition text. Label values come from configuration and fixed tables only, and
 * each family has a bound on its series. */
#ifndef METRICS_H
#define METRICS_H

#include "buf.h"

#define METRICS_MAX_LABELS 8
#define METRICS_MAX_SERIES                                                                                   \
    4096 /* of one family; more are counted in kthena_router_metric_series_dropped_total */

enum metric {
#define METRIC(id, kind, name, buckets, labels, help) METRIC_##id,
#include "metrics.def"
#undef METRIC
    METRIC_COUNT
};

struct metrics_series;

/* The series of a family with these label values (as many as the family has labels, in its order), made when
 * new. The pointer stays valid for the life of the process, so callers on the hot path keep it. Never NULL:
 * over the bound a shared sink is returned. */
struct metrics_series *metrics_series(enum metric m, const struct slice *label_values);
void metrics_add(struct metrics_series *s, double v); /* counter: v >= 0; gauge: any */
void metrics_set(struct metrics_series *s,
                 double v); /* gauge, and counters kept elsewhere (never going down) */
void metrics_observe(struct metrics_series *s, double v); /* histogram; seconds where the name says so */
double metrics_value(const struct metrics_series *s); /* for tests: counter or gauge; a histogram's count */
/* Removes a series (a pod that is gone) from the page; its pointer must not be used again. */
void metrics_drop(enum metric m, const struct slice *label_values);

/* metrics_inc(METRIC_X, "a", "b"): look up and add 1. */
#define metrics_inc(m, ...)                                                                                  \
    do {                                                                                                     \
        const char *labels_[] = {__VA_ARGS__};                                                               \
        metrics_add_labels((m), labels_, ARRAY_LEN(labels_), 1);                                             \
    } while (0)
void metrics_add_labels(enum metric m, const char *const *label_values, size_t n, double v);

/* The whole page, families in metrics.def's order with HELP and TYPE; label values escaped. False: over the
 * buffer's maximum. */
MUST_CHECK bool metrics_render(struct buf *out);
/* Forgets all series (tests). */
void metrics_reset(void);

#endif
