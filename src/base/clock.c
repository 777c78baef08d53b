/* clock: the only reader of the system's clocks, and the text form of wall time. */
#include "clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;

    (void)clock_gettime(id, &ts); /* cannot fail for these two clocks */
    return (int64_t)ts.tv_sec * US_PER_S + ts.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

int64_t clock_wall_us(void)
{
    return read_us(CLOCK_REALTIME);
}

size_t clock_format(int64_t wall_us, char out[CLOCK_TEXT_MAX])
{
    int64_t us = wall_us % US_PER_S;
    time_t s = (time_t)(wall_us / US_PER_S);
    struct tm tm;
    size_t n;

    if (us < 0)
        us += US_PER_S, s--;
    (void)gmtime_r(&s, &tm);
    n = strftime(out, CLOCK_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    if (us > 0) {
        n += (size_t)snprintf(out + n, CLOCK_TEXT_MAX - n, ".%06d", (int)us);
        while (out[n - 1] == '0')
            n--;
    }
    out[n++] = 'Z';
    out[n] = '\0';
    return n;
}
