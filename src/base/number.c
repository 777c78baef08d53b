/* number: see number.h. Owns the C locale object that strtod and snprintf are run under; knows no units. */
#include "number.h"

#include <assert.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WHOLE_MAX      9007199254740992.0 /* 2^53: up to here every whole number is exact */
#define PARSE_TEXT_MAX 128 /* longer numbers are nonsense, and strtod needs a terminated copy */

const char number_pairs[201] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
    "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
    "8081828384858687888990919293949596979899";

/* Made once and kept: a process that calls setlocale must not get "0,5" into its metrics page. */
static locale_t c_locale(void)
{
    static locale_t c;

    if (c == (locale_t)0)
        c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    assert(c != (locale_t)0);
    return c;
}

static size_t skip_digits(struct slice s, size_t at)
{
    while (at < s.n && s.p[at] >= '0' && s.p[at] <= '9')
        at++;
    return at;
}

static size_t skip_sign(struct slice s, size_t at)
{
    return at < s.n && (s.p[at] == '+' || s.p[at] == '-') ? at + 1 : at;
}

/* strtod takes more than we want (blanks, hexadecimal, locale's own), so the grammar is checked first. */
static bool is_decimal(struct slice s)
{
    size_t start = skip_sign(s, 0);
    size_t at = skip_digits(s, start);
    size_t n_digits = at - start;

    if (at < s.n && s.p[at] == '.') {
        size_t end = skip_digits(s, at + 1);

        n_digits += end - at - 1;
        at = end;
    }
    if (n_digits == 0)
        return false;
    if (at < s.n && (s.p[at] == 'e' || s.p[at] == 'E')) {
        start = skip_sign(s, at + 1);
        at = skip_digits(s, start);
        if (at == start)
            return false;
    }
    return at == s.n;
}

static bool parse_word(struct slice text, double *value)
{
    size_t sign = skip_sign(text, 0);
    struct slice word = {text.p + sign, text.n - sign};

    if (slice_ieq(word, SLICE("nan")))
        *value = (double)NAN;
    else if (slice_ieq(word, SLICE("inf")) || slice_ieq(word, SLICE("infinity")))
        *value = text.p[0] == '-' ? -(double)INFINITY : (double)INFINITY;
    else
        return false;
    return true;
}

bool number_parse(struct slice text, double *value)
{
    char copy[PARSE_TEXT_MAX];

    if (text.n == 0 || text.n >= sizeof(copy))
        return false;
    if (!is_decimal(text))
        return parse_word(text, value);
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    *value = strtod_l(copy, NULL, c_locale());
    return true;
}

/* Below 10000; returns what comes behind it. */
static inline char *put_few_digits(char *to, unsigned n)
{
    if (n >= 1000) {
        number_put_pair(to, n / 100);
        to += 2;
    } else if (n >= 100) {
        *to++ = (char)('0' + n / 100);
    } else if (n < 10) {
        *to++ = (char)('0' + n);
        return to;
    }
    number_put_pair(to, n % 100);
    return to + 2;
}

static char *put_digits(char *to, uint64_t n)
{
    if (n < 10000)
        return put_few_digits(to, (unsigned)n);
    to = put_digits(to, n / 10000);
    number_put_pair(to, (unsigned)(n / 100 % 100));
    number_put_pair(to + 2, (unsigned)(n % 100));
    return to + 4;
}

size_t number_format_int(int64_t value, char out[NUMBER_TEXT_MAX])
{
    char *to = out;

    if (value >= 0 && value < 10000)
        return (size_t)(put_few_digits(out, (unsigned)value) - out);
    if (value < 0)
        *to++ = '-';
    return (size_t)(put_digits(to, value < 0 ? 0 - (uint64_t)value : (uint64_t)value) - out);
}

static size_t format_word(const char *word, char out[NUMBER_TEXT_MAX])
{
    size_t n = strlen(word);

    memcpy(out, word, n);
    return n;
}

static size_t format_fraction(double value, char out[NUMBER_TEXT_MAX])
{
    locale_t before = uselocale(c_locale());
    int n = 0;

    for (int digits = 15; digits <= 17; digits++) {
        n = snprintf(out, NUMBER_TEXT_MAX, "%.*g", digits, value);
        assert(n > 0 && n < NUMBER_TEXT_MAX);
        if (strtod(out, NULL) >= value && strtod(out, NULL) <= value)
            break;
    }
    uselocale(before);
    return (size_t)n;
}

size_t number_format(double value, char out[NUMBER_TEXT_MAX])
{
    if (isnan(value))
        return format_word("NaN", out);
    if (isinf(value))
        return format_word(value > 0 ? "+Inf" : "-Inf", out);
    if (fabs(value) < WHOLE_MAX && trunc(value) >= value && trunc(value) <= value)
        return number_format_int((int64_t)value, out);
    return format_fraction(value, out);
}
