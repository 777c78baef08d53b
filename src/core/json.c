/* json: finds where values end. Nearly all of what it reads is text in strings, which is passed over 64 bytes
 * at a time. It owns no memory and no opinion about what values mean. */
#include "json.h"

#ifdef __x86_64__
#include <emmintrin.h>
#endif

static inline const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* ---- 64 bytes at a time ---- */

/* Of p[0..64) those that are c: bit i for byte i. */
static inline uint64_t find_bytes(const char *p, char c)
{
    uint64_t found = 0;

#ifdef __x86_64__
    for (unsigned i = 0; i < 64; i += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + i));

        found |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(c))) << i;
    }
#else
    for (unsigned i = 0; i < 64; i++)
        found |= (uint64_t)(p[i] == c) << i;
#endif
    return found;
}

#ifdef __x86_64__
/* Bytes that continue a character are the smallest ones by sign. */
static inline size_t count_continued(const char *p)
{
    const __m128i *v = (const __m128i *)(const void *)p, least = _mm_set1_epi8(-0x40);
    const __m128i a = _mm_loadu_si128(v), b = _mm_loadu_si128(v + 1), c = _mm_loadu_si128(v + 2),
                  d = _mm_loadu_si128(v + 3);
    __m128i sum;

    if (_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d))) == 0)
        return 0;
    sum = _mm_add_epi8(_mm_add_epi8(_mm_cmplt_epi8(a, least), _mm_cmplt_epi8(b, least)),
                       _mm_add_epi8(_mm_cmplt_epi8(c, least), _mm_cmplt_epi8(d, least)));
    sum = _mm_sad_epu8(_mm_sub_epi8(_mm_setzero_si128(), sum), _mm_setzero_si128());
    return (size_t)(_mm_cvtsi128_si64(sum) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(sum, sum)));
}
#else
/* How many of p[0..64) continue a character. */
static inline size_t count_continued(const char *p)
{
    size_t n = 0;

    for (unsigned i = 0; i < 64; i++)
        n += ((unsigned char)p[i] & 0xc0) == 0x80;
    return n;
}
#endif

/* p[0..64), or a copy of the fewer that are left, filled up with NULs. */
static inline const char *block_at(const char *p, const char *end, char copy[64])
{
    if (end - p >= 64)
        return p;
    memset(copy, 0, 64);
    memcpy(copy, p, (size_t)(end - p));
    return copy;
}

/* ---- where values end ---- */

/* All return the place behind what starts at p, or NULL when it has no end. */

/* A string without escapes of less than 16 bytes, as most keys are; NULL for any other. */
static inline const char *short_string_end(const char *p, const char *end)
{
#ifdef __x86_64__
    if (end - p >= 17) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + 1));
        const __m128i marks =
            _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
        const int at = __builtin_ffs(_mm_movemask_epi8(marks));

        return at != 0 && p[at] == '"' ? p + at + 1 : NULL;
    }
#endif
    (void)p, (void)end;
    return NULL;
}

/* After an odd number of backslashes. */
static inline bool is_escaped(const char *quote, const char *start)
{
    const char *slash = quote;

    while (slash > start && slash[-1] == '\\')
        slash--;
    return (quote - slash) % 2 != 0;
}

static const char *long_string_end(const char *start, const char *end)
{
    char copy[64];

    for (const char *p = start;; p += 64) {
        const char *block = block_at(p, end, copy);

        for (uint64_t quotes = find_bytes(block, '"'); quotes != 0; quotes &= quotes - 1) {
            const char *quote = p + __builtin_ctzll(quotes);

            if (!is_escaped(quote, start))
                return quote + 1;
        }
        if (block == copy)
            return NULL;
    }
}

static inline const char *string_end(const char *p, const char *end)
{
    const char *found = short_string_end(p, end);

    return found != NULL ? found : long_string_end(p + 1, end);
}

static const char *nested_end(const char *p, const char *end)
{
    size_t depth = 0;

    while (p < end) {
        if (*p == '"') {
            p = string_end(p, end);
            if (p == NULL)
                return NULL;
            continue;
        }
        if (*p == '{' || *p == '[')
            depth++;
        else if ((*p == '}' || *p == ']') && --depth == 0)
            return p + 1;
        p++;
    }
    return NULL;
}

static const char *word_end(const char *p, const char *end)
{
    const char *start = p;

    while (p < end && *p != ',' && *p != ']' && *p != '}' && *p != ':' && (unsigned char)*p > ' ')
        p++;
    return p == start ? NULL : p;
}

static inline const char *value_end(const char *p, const char *end)
{
    if (*p == '"')
        return string_end(p, end);
    return *p == '{' || *p == '[' ? nested_end(p, end) : word_end(p, end);
}

/* What is left behind p. */
static inline void rest_from(struct slice *rest, const char *p)
{
    rest->n -= (size_t)(p - rest->p);
    rest->p = p;
}

/* The value at `from`, behind white space. */
static inline struct slice take_at(struct slice *rest, const char *from)
{
    const char *end = rest->p + rest->n, *to = from < end ? value_end(from, end) : NULL;

    if (to == NULL) {
        rest_from(rest, from < end && (*from == ']' || *from == '}') ? from + 1 : end);
        return (struct slice){NULL, 0};
    }
    rest_from(rest, to);
    return (struct slice){from, (size_t)(to - from)};
}

struct slice json_take(struct slice *rest)
{
    return rest->n == 0 ? (struct slice){NULL, 0} : take_at(rest, skip_space(rest->p, rest->p + rest->n));
}

struct slice json_inside(struct slice value)
{
    if (value.n < 2 || (value.p[0] != '{' && value.p[0] != '[' && value.p[0] != '"'))
        return (struct slice){NULL, 0};
    return (struct slice){value.p + 1, value.n - 2};
}

/* Behind white space and one comma, where there is one. */
static inline const char *skip_comma(struct slice rest)
{
    const char *end = rest.p + rest.n, *p = skip_space(rest.p, end);

    return p < end && *p == ',' ? skip_space(p + 1, end) : p;
}

bool json_enter(struct slice *inside, char open)
{
    const char *p = inside->n > 0 ? skip_comma(*inside) : NULL;

    if (p == NULL || p == inside->p + inside->n || *p != open)
        return false;
    rest_from(inside, p + 1);
    return true;
}

bool json_element(struct slice *inside, struct slice *value)
{
    *value = inside->n == 0 ? (struct slice){NULL, 0} : take_at(inside, skip_comma(*inside));
    return value->n > 0;
}

bool json_member(struct slice *inside, struct slice *key, struct slice *value)
{
    const char *end, *p;

    if (!json_element(inside, key) || key->p[0] != '"')
        return false;
    end = inside->p + inside->n;
    p = skip_space(inside->p, end);
    if (p == end || *p != ':')
        return false;
    *key = (struct slice){key->p + 1, key->n - 2};
    *value = take_at(inside, skip_space(p + 1, end));
    return value->n > 0;
}

struct slice json_find(struct slice object, struct slice name)
{
    struct slice rest = json_inside(object), key, value, found = {NULL, 0};

    while (json_is(object, '{') && json_member(&rest, &key, &value)) {
        if (slice_eq(key, name))
            found = value;
    }
    return found;
}

/* ---- characters ---- */

/* The second half of a pair: \udc00 to \udfff. */
static bool is_low_half(const char *escape)
{
    return (escape[2] | 0x20) == 'd' && memchr("cdefCDEF", escape[3], 8) != NULL;
}

/* How many characters too many the escape's bytes, of the `left` that there are, are counted for. */
static size_t count_too_many(const char *slash, size_t left)
{
    size_t starts = 0;

    if (left < 6 || slash[1] != 'u')
        return left < 2 ? 0 : 1;
    for (unsigned i = 0; i < 6; i++)
        starts += ((unsigned char)slash[i] & 0xc0) != 0x80;
    return is_low_half(slash) ? starts : starts - 1;
}

/* Every byte that starts a character, but for what that is wrong for: escapes. */
size_t json_characters(struct slice inside)
{
    const char *p = inside.p, *end;
    size_t less = 0;
    char copy[64];

    if (inside.n == 0)
        return 0;
    end = p + inside.n;
    /* A role, say. */
    for (; inside.n < 16 && p < end && *p != '\\'; p++)
        less += ((unsigned char)*p & 0xc0) == 0x80;
    while (p < end) {
        const char *block = block_at(p, end, copy);
        uint64_t escapers = json_escapers(find_bytes(block, '\\'));
        const uint64_t cut = block == p ? escapers >> 63 : 0; /* belongs to the next block */

        less += count_continued(block);
        for (escapers &= ~(cut << 63); escapers != 0; escapers &= escapers - 1) {
            const char *slash = p + __builtin_ctzll(escapers);

            less += end - slash >= 6 && slash[1] != 'u' ? 1 : count_too_many(slash, (size_t)(end - slash));
        }
        p += 64 - cut;
    }
    return inside.n > less ? inside.n - less
                           : 0; /* escapes cut short overlap where nobody has checked the text */
}
