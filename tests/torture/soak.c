/* What a long run looks like over time: windows of a minute with memory, descriptors and the delay that
 * requests saw which no fault touched. Owns the windows. */
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>

#define SOAK_WINDOW_US (60 * 1000 * 1000)

struct window {
    uint64_t requests;
    uint32_t *delays_us;
    size_t n_delays, cap_delays;
    long rss_kb, fds;
};

static struct window *windows;
static size_t n_windows;
static int64_t soak_start_us;

static struct window *soak_window(void)
{
    size_t i;

    if (soak_start_us == 0)
        soak_start_us = util_now_us();
    i = (size_t)((util_now_us() - soak_start_us) / SOAK_WINDOW_US);
    if (i >= n_windows) {
        windows = util_resize(windows, (i + 1) * sizeof *windows);
        for (; n_windows <= i; n_windows++)
            windows[n_windows] = (struct window){0};
    }
    return &windows[i];
}

/* What the router and its queue added: without the time the pod was told to take. */
void soak_request(const struct record *r)
{
    struct window *w = soak_window();
    const int64_t delay_us = r->done_us - r->sent_us - r->plan.pod_us;

    w->requests++;
    if (r->plan.client != CLIENT_PLAIN || r->plan.pod != POD_PLAIN || r->result != RESULT_ANSWER ||
        !r->from_pod)
        return;
    for (unsigned d = 0; d < DISTURBANCES; d++)
        if (oracle_disturbed(d, r->sent_us))
            return;
    if (w->n_delays == w->cap_delays) {
        w->cap_delays = w->cap_delays > 0 ? w->cap_delays * 2 : 1024;
        w->delays_us = util_resize(w->delays_us, w->cap_delays * sizeof *w->delays_us);
    }
    w->delays_us[w->n_delays++] = delay_us > 0 ? (uint32_t)delay_us : 0;
}

void soak_rest(long rss_kb, long fds)
{
    struct window *w = soak_window();

    w->rss_kb = rss_kb;
    w->fds = fds;
}

static int soak_compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static double soak_ms(const struct window *w, double part)
{
    return w->n_delays == 0 ? 0 : (double)w->delays_us[(size_t)((double)(w->n_delays - 1) * part)] / 1000;
}

/* KiB per hour, by least squares over the windows from the second on. */
static double soak_slope(void)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;

    for (size_t i = 1; i < n_windows; i++) {
        const double minute = (double)i, kb = (double)windows[i].rss_kb;

        if (windows[i].rss_kb == 0)
            continue;
        n++;
        x += minute;
        y += kb;
        xx += minute * minute;
        xy += minute * kb;
    }
    return n < 3 ? 0 : 60 * (n * xy - x * y) / (n * xx - x * x);
}

void soak_table(void)
{
    puts("\nminute  requests  untouched   p50 ms    p99 ms  memory KiB  descriptors");
    for (size_t i = 0; i < n_windows; i++) {
        struct window *w = &windows[i];

        if (w->n_delays > 0)
            qsort(w->delays_us, w->n_delays, sizeof *w->delays_us, soak_compare);
        printf("%6zu %9llu %10zu %8.2f %9.2f %11ld %12ld\n", i, (unsigned long long)w->requests, w->n_delays,
               soak_ms(w, 0.5), soak_ms(w, 0.99), w->rss_kb, w->fds);
    }
    printf("memory slope from the second minute on: %.0f KiB per hour\n", soak_slope());
}

void soak_close(void)
{
    for (size_t i = 0; i < n_windows; i++)
        free(windows[i].delays_us);
    free(windows);
}
