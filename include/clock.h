/* clock: the only place that reads a clock. Everything else is handed `now_us`. */
#ifndef CLOCK_H
#define CLOCK_H

#include "util.h"

/* Longest text clock_format writes, with its terminator. */
#define CLOCK_TEXT_MAX 32

/* Microseconds since some fixed point; never goes back. */
int64_t clock_mono_us(void);
/* Microseconds since 1970; for texts only: it may go back. */
int64_t clock_wall_us(void);
/* RFC 3339 in UTC with the fraction's trailing zeros trimmed: "2026-03-04T05:06:07.08Z". Returns the length.
 */
size_t clock_format(int64_t wall_us, char out[CLOCK_TEXT_MAX]);
/* The form of HTTP's Date field (RFC 9110 5.6.7), in whole seconds: "Sun, 06 Nov 1994 08:49:37 GMT". Valid
 * until the next call; made anew once a second. For the years 0 to 9999. */
struct slice clock_http_date(int64_t wall_us);

/* The text made last: most lines that are written one after another have the same time. Begins with zeros. */
struct clock_text {
    int64_t wall_us;
    size_t n;
    char text[CLOCK_TEXT_MAX];
};

/* Writes what clock_format writes, without the terminator, and returns what comes behind it. There is room
 * for CLOCK_TEXT_MAX bytes at `to`. */
MUST_CHECK static inline char *clock_put(struct clock_text *last, int64_t wall_us, char *to)
{
    if (last->n == 0 || last->wall_us != wall_us) {
        last->n = clock_format(wall_us, last->text);
        last->wall_us = wall_us;
    }
    memcpy(to, last->text, sizeof(last->text));
    return to + last->n;
}

#endif
