/* clock: the only place that reads a clock. Everything else is handed `now_us`. */
#ifndef CLOCK_H
#define CLOCK_H

#include "util.h"

/* Longest text clock_format_* writes, with its terminator. */
#define CLOCK_TEXT_MAX 40

/* Microseconds since some fixed point; never goes back. */
int64_t clock_mono_us(void);
/* Microseconds since 1970; for log lines only. */
int64_t clock_wall_us(void);
/* RFC 3339 in UTC with the fraction's trailing zeros trimmed: "2026-03-04T05:06:07.08Z". Returns the length.
 */
size_t clock_format(int64_t wall_us, char out[CLOCK_TEXT_MAX]);

#endif
