/* duration: text to value and back for durations, byte sizes, integers and booleans. It owns the grammar
 * only: what a value means and its allowed range are the configuration's. */
#include "duration.h"

#include <stdio.h>

#define NS_MAX (UINT64_C(1) << 63) /* the magnitude of the smallest int64_t */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Takes "+" or "-" off the front; true for "-". */
static bool take_sign(struct slice *text)
{
    bool negative = text->n > 0 && text->p[0] == '-';

    if (negative || (text->n > 0 && text->p[0] == '+'))
        text->p++, text->n--;
    return negative;
}

/* Takes digits off the front, also none. False when the number is beyond 2^63. */
static bool take_digits(struct slice *text, uint64_t *value)
{
    for (*value = 0; text->n > 0 && is_digit(text->p[0]); text->p++, text->n--) {
        if (__builtin_mul_overflow(*value, UINT64_C(10), value) ||
            __builtin_add_overflow(*value, (uint64_t)(text->p[0] - '0'), value) || *value > NS_MAX)
            return false;
    }
    return true;
}

/* ---- durations ---- */

static const struct unit {
    struct slice name;
    uint64_t size;
} time_units[] = {
    {{"ns", 2}, 1},
    {{"us", 2}, 1000},
    {{"\xc2\xb5s", 3}, 1000}, /* micro sign */
    {{"\xce\xbcs", 3}, 1000}, /* Greek mu */
    {{"ms", 2}, 1000000},
    {{"s", 1}, UINT64_C(1000000000)},
    {{"m", 1}, UINT64_C(60000000000)},
    {{"h", 1}, UINT64_C(3600000000000)},
};

/* Takes the unit, which reaches to the next digit, dot or the end. 0 when there is none of that name. */
static uint64_t take_unit(struct slice *text)
{
    struct slice name = {text->p, 0};

    while (name.n < text->n && name.p[name.n] != '.' && !is_digit(name.p[name.n]))
        name.n++;
    text->p += name.n;
    text->n -= name.n;
    for (size_t i = 0; i < ARRAY_LEN(time_units); i++) {
        if (slice_eq(name, time_units[i].name))
            return time_units[i].size;
    }
    return 0;
}

/* Takes the digits after the dot: fraction = value / scale. Digits past the 18th change nothing that counts.
 */
static void take_fraction(struct slice *text, uint64_t *value, double *scale)
{
    int n = 0;

    *value = 0;
    *scale = 1;
    for (; text->n > 0 && is_digit(text->p[0]); text->p++, text->n--) {
        if (n++ >= 18)
            continue;
        *value = *value * 10 + (uint64_t)(text->p[0] - '0');
        *scale *= 10;
    }
}

/* Takes one group such as "1.5h" and adds it to *ns. */
static bool take_group(struct slice *text, uint64_t *ns)
{
    size_t digits = text->n;
    uint64_t whole, part = 0, unit;
    double scale = 1;

    if (!take_digits(text, &whole))
        return false;
    digits -= text->n;
    if (text->n > 0 && text->p[0] == '.') {
        text->p++, text->n--;
        digits += text->n;
        take_fraction(text, &part, &scale);
        digits -= text->n;
    }
    unit = take_unit(text);
    if (digits == 0 || unit == 0 || __builtin_mul_overflow(whole, unit, &whole) || whole > NS_MAX)
        return false;
    whole += (uint64_t)((double)part * ((double)unit / scale));
    return !__builtin_add_overflow(*ns, whole, ns) && *ns <= NS_MAX;
}

bool duration_parse(struct slice text, int64_t *us)
{
    bool negative = take_sign(&text);
    uint64_t ns = 0;
    int64_t magnitude_us;

    if (slice_eq(text, SLICE("0"))) {
        *us = 0;
        return true;
    }
    if (text.n == 0)
        return false;
    while (text.n > 0) {
        if (!take_group(&text, &ns))
            return false;
    }
    if (ns == NS_MAX && !negative)
        return false;
    magnitude_us = (int64_t)((ns + 999) / 1000);
    *us = negative ? -magnitude_us : magnitude_us;
    return true;
}

/* Writes value / unit in decimal, with as many decimals as it takes, and the unit's name. */
static size_t put_decimal(char *out, size_t room, uint64_t value, uint64_t unit, const char *name)
{
    char part[24];
    int n_part = 0;

    for (uint64_t rest = value % unit; rest > 0; rest %= unit) {
        rest *= 10;
        part[n_part++] = (char)('0' + rest / unit);
    }
    return (size_t)snprintf(out, room, "%llu%s%.*s%s", (unsigned long long)(value / unit),
                            n_part > 0 ? "." : "", n_part, part, name);
}

size_t duration_format(int64_t us, char out[DURATION_TEXT_MAX])
{
    uint64_t left = us < 0 ? 0 - (uint64_t)us : (uint64_t)us;
    const uint64_t second = (uint64_t)US_PER_S, minute = 60 * second, hour = 60 * minute;
    size_t n = 0;

    if (us < 0)
        out[n++] = '-';
    if (left >= hour)
        n += (size_t)snprintf(out + n, DURATION_TEXT_MAX - n, "%lluh", (unsigned long long)(left / hour));
    if (left % hour >= minute)
        n += (size_t)snprintf(out + n, DURATION_TEXT_MAX - n, "%llum",
                              (unsigned long long)(left % hour / minute));
    if (left == 0 || left % minute >= second || (left >= minute && left % minute > 0))
        n += put_decimal(out + n, DURATION_TEXT_MAX - n, left % minute, second, "s");
    else if (left % minute >= 1000)
        n += put_decimal(out + n, DURATION_TEXT_MAX - n, left % minute, 1000, "ms");
    else if (left % minute > 0)
        n += put_decimal(out + n, DURATION_TEXT_MAX - n, left % minute, 1, "us");
    return n;
}

/* ---- byte sizes ---- */

/* The first three of each power of 1024 are what duration_format_bytes looks through. */
static const struct unit byte_units[] = {
    {{"", 0}, 1},
    {{"B", 1}, 1},
    {{"KiB", 3}, UINT64_C(1) << 10},
    {{"Ki", 2}, UINT64_C(1) << 10},
    {{"K", 1}, UINT64_C(1) << 10},
    {{"MiB", 3}, UINT64_C(1) << 20},
    {{"Mi", 2}, UINT64_C(1) << 20},
    {{"M", 1}, UINT64_C(1) << 20},
    {{"GiB", 3}, UINT64_C(1) << 30},
    {{"Gi", 2}, UINT64_C(1) << 30},
    {{"G", 1}, UINT64_C(1) << 30},
    {{"TiB", 3}, UINT64_C(1) << 40},
    {{"Ti", 2}, UINT64_C(1) << 40},
    {{"T", 1}, UINT64_C(1) << 40},
    {{"kB", 2}, 1000},
    {{"KB", 2}, 1000},
    {{"MB", 2}, 1000000},
    {{"GB", 2}, UINT64_C(1000000000)},
    {{"TB", 2}, UINT64_C(1000000000000)},
};

bool duration_parse_bytes(struct slice text, int64_t *bytes)
{
    uint64_t value;

    if (text.n == 0 || !is_digit(text.p[0]) || !take_digits(&text, &value))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(byte_units); i++) {
        if (!slice_eq(text, byte_units[i].name))
            continue;
        if (__builtin_mul_overflow(value, byte_units[i].size, &value) || value > INT64_MAX)
            return false;
        *bytes = (int64_t)value;
        return true;
    }
    return false;
}

size_t duration_format_bytes(int64_t bytes, char out[DURATION_TEXT_MAX])
{
    static const char *const names[] = {"", "KiB", "MiB", "GiB", "TiB"};
    size_t power = 0;

    while (bytes != 0 && bytes % 1024 == 0 && power + 1 < ARRAY_LEN(names)) {
        bytes /= 1024;
        power++;
    }
    return (size_t)snprintf(out, DURATION_TEXT_MAX, "%lld%s", (long long)bytes, names[power]);
}

/* ---- integers and booleans ---- */

bool duration_parse_int(struct slice text, int64_t *value)
{
    bool negative = take_sign(&text);
    uint64_t magnitude;

    if (text.n == 0 || !take_digits(&text, &magnitude) || text.n > 0)
        return false;
    if (magnitude == NS_MAX && !negative)
        return false;
    *value = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

bool duration_parse_bool(struct slice text, bool *value)
{
    static const struct slice yes[] = {{"1", 1}, {"t", 1}, {"T", 1}, {"true", 4}, {"TRUE", 4}, {"True", 4}};
    static const struct slice no[] = {{"0", 1}, {"f", 1}, {"F", 1}, {"false", 5}, {"FALSE", 5}, {"False", 5}};

    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (slice_eq(text, yes[i]) || slice_eq(text, no[i])) {
            *value = slice_eq(text, yes[i]);
            return true;
        }
    }
    return false;
}
