/* number: doubles and integers to text and back, in the syntax of metrics pages and logs, whatever the
 * process's locale is. Durations and sizes of the configuration are duration's. */
#ifndef NUMBER_H
#define NUMBER_H

#include "util.h"

/* Longest text of number_format and number_format_int; they do not terminate it. */
#define NUMBER_TEXT_MAX 32

/* Decimal, with optional sign, fraction and exponent ("11.0", "1e+06", ".5"), or "NaN", "Inf", "+Inf",
 * "-Infinity" in any case. Not accepted: blanks, hexadecimal, an empty text. Too large a value becomes
 * infinite, as in IEEE. */
MUST_CHECK bool number_parse(struct slice text, double *value);
/* The text that reads back to the same value: whole numbers below 2^53 as integers, else as few digits as
 * that takes; infinite ones and NAN as metrics pages have them ("+Inf", "-Inf", "NaN"). Returns its length.
 */
size_t number_format(double value, char out[NUMBER_TEXT_MAX]);
size_t number_format_int(int64_t value, char out[NUMBER_TEXT_MAX]);

/* "00" to "99" one after another. */
extern const char number_pairs[201];

/* Two digits; n is below 100. */
static inline void number_put_pair(char *to, unsigned n)
{
    memcpy(to, &number_pairs[2 * n], 2);
}

#endif
