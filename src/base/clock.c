/* clock: the only reader of the system's clocks, and the text form of wall time. */
#include "clock.h"

#include "number.h"

#include <time.h>

#define S_PER_DAY       INT64_C(86400)
#define SECOND_TEXT_MAX 24 /* "-290308-12-21T19:59:05" is the longest */

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

/* The text of the last second asked for, and the first part of it, that of its day: most lines need the same.
 */
static struct {
    int64_t s, day;
    size_t n, date_n;
    char text[SECOND_TEXT_MAX];
} last = {.s = INT64_MIN, .day = INT64_MIN};

static void make_date(int64_t day)
{
    time_t s = (time_t)(day * S_PER_DAY);
    struct tm tm;

    (void)gmtime_r(&s, &tm);
    last.date_n = strftime(last.text, sizeof(last.text), "%Y-%m-%dT", &tm);
    last.day = day;
}

static char *put_pair(char *to, uint32_t n)
{
    number_put_pair(to, n);
    return to + 2;
}

static __attribute__((noinline)) void make_second(int64_t s)
{
    int64_t day = s / S_PER_DAY - (s % S_PER_DAY < 0);
    uint32_t s_of_day = (uint32_t)(s - day * S_PER_DAY);
    char *to;

    if (day != last.day)
        make_date(day);
    to = put_pair(last.text + last.date_n, s_of_day / 3600);
    *to++ = ':';
    to = put_pair(to, s_of_day / 60 % 60);
    *to++ = ':';
    to = put_pair(to, s_of_day % 60);
    last.n = (size_t)(to - last.text);
    last.s = s;
}

/* The point and at most six digits; nothing for 0. */
static char *put_fraction(char *to, uint32_t us)
{
    if (us == 0)
        return to;
    *to++ = '.';
    to = put_pair(put_pair(put_pair(to, us / 10000), us / 100 % 100), us % 100);
    while (to[-1] == '0')
        to--;
    return to;
}

size_t clock_format(int64_t wall_us, char out[CLOCK_TEXT_MAX])
{
    int64_t s = wall_us / US_PER_S, us = wall_us % US_PER_S;
    char *to;

    if (us < 0)
        us += US_PER_S, s--;
    if (s != last.s)
        make_second(s);
    memcpy(out, last.text, sizeof(last.text));
    to = put_fraction(out + last.n, (uint32_t)us);
    *to++ = 'Z';
    *to = '\0';
    return (size_t)(to - out);
}

struct slice clock_http_date(int64_t wall_us)
{
    static char text[sizeof "Sun, 06 Nov 1994 08:49:37 GMT"];
    static time_t made_for;
    const time_t s = (time_t)(wall_us / US_PER_S);
    struct tm tm;

    if (s != made_for || text[0] == '\0') {
        (void)gmtime_r(&s, &tm);
        /* English names: nobody here sets a locale. */
        (void)strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        made_for = s;
    }
    return (struct slice){text, sizeof text - 1};
}
