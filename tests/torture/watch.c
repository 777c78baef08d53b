/* Looks at the router's own numbers while requests run: a queue must not sleep while a pod of its model has
 * room. */
#include "torture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer than a follow-up may wait for its pod, with the time between two looks. */
#define WATCH_ASLEEP_US (1000 * 1000)

static struct {
    double admitted;
    int64_t asleep_since_us; /* 0 = it is not */
} watched[TORTURE_MODELS];
static unsigned watch_limit;
static bool watch_asking;

static const char *const watch_names[TORTURE_MODELS] = {"alpha", "beta", "gamma"};
static const unsigned watch_first[TORTURE_MODELS] = {0, 2, 4}, watch_n[TORTURE_MODELS] = {4, 3, 2};

/* NAN = no such series. */
static double watch_value(const char *page, const char *family, const char *label, const char *value)
{
    char series[160];
    const char *at;
    const int n = snprintf(series, sizeof series, "\n%s{%s=\"%s\"} ", family, label, value);

    at = strstr(page, series);
    return at == NULL ? (double)NAN : strtod(at + n, NULL);
}

static bool watch_pod_has_room(const char *page, unsigned pod)
{
    char name[TORTURE_AUTHORITY_MAX];
    double waiting;

    (void)pod_authority(pod, name);
    waiting = watch_value(page, "kthena_router_pod_waiting_requests", "pod", name);
    return watch_value(page, "kthena_router_pod_inflight_requests", "pod", name) < watch_limit &&
           watch_value(page, "kthena_router_pod_set_aside", "pod", name) == 0 &&
           (!(waiting > 0) || watch_value(page, "kthena_router_pod_metrics_stale", "pod", name) == 1);
}

static bool watch_is_asleep(const char *page, unsigned model)
{
    const double admitted =
        watch_value(page, "kthena_router_session_boost_queue_dequeue_total", "model", watch_names[model]);
    const bool moved = !(admitted == watched[model].admitted);

    watched[model].admitted = admitted;
    if (moved ||
        !(watch_value(page, "kthena_router_session_boost_queue_size", "model", watch_names[model]) > 0))
        return false;
    for (unsigned i = 0; i < watch_n[model]; i++)
        if (watch_pod_has_room(page, watch_first[model] + i))
            return true;
    return false;
}

static void watch_got(unsigned status, const char *body, size_t n)
{
    const int64_t now_us = util_now_us();
    const bool unclear = oracle_disturbed(DISTURB_RELOAD, now_us) || oracle_disturbed(DISTURB_FROZEN, now_us);
    char *page = util_copy(body, n);

    watch_asking = false;
    for (unsigned m = 0; m < TORTURE_MODELS && status == 200; m++) {
        if (!watch_is_asleep(page, m) || unclear) {
            watched[m].asleep_since_us = 0;
        } else if (watched[m].asleep_since_us == 0) {
            watched[m].asleep_since_us = now_us;
        } else if (now_us - watched[m].asleep_since_us > WATCH_ASLEEP_US) {
            oracle_complain(NULL, "the queue of %s sleeps although a pod has room", watch_names[m]);
            watched[m].asleep_since_us = 0;
        }
    }
    free(page);
}

void watch_start(unsigned limit)
{
    memset(watched, 0, sizeof watched);
    watch_limit = limit;
    watch_asking = false;
}

void watch_look(void)
{
    if (watch_limit == 0 || watch_asking)
        return;
    watch_asking = true;
    router_get(ROUTER_METRICS, "/metrics", watch_got);
}
