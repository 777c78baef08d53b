/* openai: bodies in the OpenAI style. Its larger part is a JSON scanner that validates a request body and
 * remembers the few top-level values the router needs. Nearly all of such a body is text inside long strings:
 * they are read 64 bytes at a time by a routine for the processor at hand, which stops only where there is
 * something to look at. NULs behind the body stop it too, as they are wrong everywhere in JSON: so nothing
 * here asks where the body ends but what found a NUL. Also here: the bodies the router writes itself, and the
 * end of an event stream. */
#include "openai.h"
#include "json.h"

#include <assert.h>
#include <stdio.h>
#ifdef __x86_64__
#include <immintrin.h>
#define OPENAI_HAS_SSE2 1
#endif

/* For what has to be compiled into its callers: into a loop that lives in registers, or for another
 * processor. */
#define OPENAI_INLINE static inline __attribute__((always_inline))

/* ---- 64 bytes of a string at a time ---- */

/* What a routine sees in 64 bytes. Bit i is byte i. */
struct openai_marks {
    uint64_t stop; /* quotes and control bytes */
    uint64_t slash;
    uint64_t known; /* may follow a backslash: a backslash, most letters; the others are looked at singly */
};

/* A place in a string, and what there is to stop for in the 64 bytes of its block. */
struct openai_place {
    const unsigned char *block; /* its first byte does not follow a backslash */
    uint64_t stop;              /* ends the string, or must not be in it */
    uint64_t odd;               /* follows a backslash and is not known */
    uint64_t cut;               /* 1: the last byte is a backslash that belongs to the next block */
};

/* True: there is something to stop for. The cut is asked for by the sign: that costs a jump and no
 * arithmetic. */
OPENAI_INLINE bool openai_judge(struct openai_place *at, struct openai_marks m)
{
    const uint64_t escapers = json_escapers(m.slash), escaped = escapers << 1;

    at->stop = m.stop & ~escaped;
    at->odd = escaped & ~m.known;
    at->cut = escapers >> 63;
    return (at->stop | at->odd) != 0 || (int64_t)escapers < 0;
}

typedef bool openai_any_fn(const unsigned char *block);

/* Moves on to the first block with something to stop for; false: over n blocks without. Most blocks of most
 * texts have no mark at all. A block that is cut stops it as well: to step back inside would make each
 * address wait for the marks of the block before. */
OPENAI_INLINE bool openai_skip(struct openai_place *place, size_t n, openai_any_fn *any_mark,
                               struct openai_marks (*marks)(const unsigned char *))
{
    struct openai_place at = {.block = place->block};

    for (; n > 0; n--, at.block += 64) {
        if (any_mark(at.block) && openai_judge(&at, marks(at.block)))
            break;
    }
    *place = at;
    return n > 0;
}

/* Whether one of 8 bytes is a quote, a backslash or a control byte. */
static bool openai_any_mark(const unsigned char *p)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint64_t v, quote, slash;

    memcpy(&v, p, sizeof(v));
    quote = v ^ ones * '"';
    slash = v ^ ones * '\\';
    return ((((v - ones * 0x20) & ~v) | ((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & tops) != 0;
}

/* openai_marks_plain asks itself, of 8 bytes at a time. */
OPENAI_INLINE bool openai_any_plain(const unsigned char *block)
{
    return block != NULL;
}

static struct openai_marks openai_marks_plain(const unsigned char *p)
{
    struct openai_marks m = {0, 0, 0};

    for (unsigned from = 0; from < 64; from += 8) {
        if (!openai_any_mark(p + from))
            continue;
        for (unsigned i = from; i < from + 8; i++) {
            m.stop |= (uint64_t)(p[i] == '"' || p[i] < 0x20) << i;
            m.slash |= (uint64_t)(p[i] == '\\') << i;
        }
    }
    m.known = m.slash;
    return m;
}

#ifdef OPENAI_HAS_SSE2

/* Below 0x20, or 0x22: one comparison once 0x22 has changed places with 0x20. It compares with signs, so 0x80
 * is taken off. */
OPENAI_INLINE __m128i openai_stops_sse2(__m128i v)
{
    return _mm_cmplt_epi8(_mm_xor_si128(v, _mm_set1_epi8((char)0x82)), _mm_set1_epi8((char)(0x21 ^ 0x80)));
}

OPENAI_INLINE __m128i openai_is_sse2(__m128i v, char c)
{
    return _mm_cmpeq_epi8(v, _mm_set1_epi8(c));
}

OPENAI_INLINE __m128i openai_known_sse2(__m128i v)
{
    return _mm_or_si128(openai_is_sse2(v, 'n'), _mm_or_si128(openai_is_sse2(v, 't'), openai_is_sse2(v, '"')));
}

OPENAI_INLINE __m128i openai_load_sse2(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

OPENAI_INLINE uint64_t openai_bits_sse2(__m128i a, __m128i b, __m128i c, __m128i d)
{
    return (uint64_t)(unsigned)_mm_movemask_epi8(a) | (uint64_t)(unsigned)_mm_movemask_epi8(b) << 16 |
           (uint64_t)(unsigned)_mm_movemask_epi8(c) << 32 | (uint64_t)(unsigned)_mm_movemask_epi8(d) << 48;
}

/* Quotes, control bytes and backslashes. */
OPENAI_INLINE __m128i openai_any16_sse2(const unsigned char *p)
{
    const __m128i v = openai_load_sse2(p);

    return _mm_or_si128(openai_stops_sse2(v), openai_is_sse2(v, '\\'));
}

OPENAI_INLINE bool openai_any_sse2(const unsigned char *p)
{
    return _mm_movemask_epi8(
               _mm_or_si128(_mm_or_si128(openai_any16_sse2(p), openai_any16_sse2(p + 16)),
                            _mm_or_si128(openai_any16_sse2(p + 32), openai_any16_sse2(p + 48)))) != 0;
}

OPENAI_INLINE struct openai_marks openai_marks_sse2(const unsigned char *p)
{
    const __m128i a = openai_load_sse2(p), b = openai_load_sse2(p + 16);
    const __m128i c = openai_load_sse2(p + 32), d = openai_load_sse2(p + 48);
    const uint64_t stop = openai_bits_sse2(openai_stops_sse2(a), openai_stops_sse2(b), openai_stops_sse2(c),
                                           openai_stops_sse2(d));
    const uint64_t slash = openai_bits_sse2(openai_is_sse2(a, '\\'), openai_is_sse2(b, '\\'),
                                            openai_is_sse2(c, '\\'), openai_is_sse2(d, '\\'));
    const uint64_t letter = openai_bits_sse2(openai_known_sse2(a), openai_known_sse2(b), openai_known_sse2(c),
                                             openai_known_sse2(d));

    return (struct openai_marks){stop, slash, letter | slash};
}

/* Processors with AVX2 have BMI too: asking for both loses none. */
#define OPENAI_AVX2_CODE __attribute__((target("avx2,bmi,bmi2")))

OPENAI_AVX2_CODE OPENAI_INLINE __m256i openai_stops_avx2(__m256i v)
{
    return _mm256_cmpgt_epi8(_mm256_set1_epi8((char)(0x21 ^ 0x80)),
                             _mm256_xor_si256(v, _mm256_set1_epi8((char)0x82)));
}

OPENAI_AVX2_CODE OPENAI_INLINE __m256i openai_is_avx2(__m256i v, char c)
{
    return _mm256_cmpeq_epi8(v, _mm256_set1_epi8(c));
}

/* Each byte is compared with what the table has for the low half of (byte + 1) / 2; the 1 keeps NUL from
 * being found. Only b (backspace) has the place of another one, the quote, and is left to a single look. */
OPENAI_AVX2_CODE OPENAI_INLINE __m256i openai_known_avx2(__m256i v)
{
    const __m128i known = _mm_setr_epi8(1, '"', 0, 'f', 0, 0, 0, 'n', '/', 'r', 't', 0, 0, 0, '\\', 0);
    const __m256i place = _mm256_avg_epu8(v, _mm256_setzero_si256());

    return _mm256_cmpeq_epi8(v, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(known), place));
}

OPENAI_AVX2_CODE OPENAI_INLINE __m256i openai_load_avx2(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

OPENAI_AVX2_CODE OPENAI_INLINE uint64_t openai_bits_avx2(__m256i a, __m256i b)
{
    return (uint64_t)(unsigned)_mm256_movemask_epi8(a) | (uint64_t)(unsigned)_mm256_movemask_epi8(b) << 32;
}

OPENAI_AVX2_CODE OPENAI_INLINE __m256i openai_any32_avx2(const unsigned char *p)
{
    const __m256i v = openai_load_avx2(p);

    return _mm256_or_si256(openai_stops_avx2(v), openai_is_avx2(v, '\\'));
}

OPENAI_AVX2_CODE OPENAI_INLINE bool openai_any_avx2(const unsigned char *p)
{
    const __m256i any = _mm256_or_si256(openai_any32_avx2(p), openai_any32_avx2(p + 32));

    return !_mm256_testz_si256(any, any);
}

OPENAI_AVX2_CODE OPENAI_INLINE struct openai_marks openai_marks_avx2(const unsigned char *p)
{
    const __m256i a = openai_load_avx2(p), b = openai_load_avx2(p + 32);

    return (struct openai_marks){
        openai_bits_avx2(openai_stops_avx2(a), openai_stops_avx2(b)),
        openai_bits_avx2(openai_is_avx2(a, '\\'), openai_is_avx2(b, '\\')),
        openai_bits_avx2(openai_known_avx2(a), openai_known_avx2(b)),
    };
}

/* ---- what needs a look, with AVX2 ----
 *
 * Nearly all escapes are simple, so blocks with such escapes are passed over without a look at any mask. Two
 * functions turn each of 32 bytes into one that is below 0x21 if it needs a look: if it ends the string, must
 * not be in it, or follows a backslash and is not one of a few letters. They know no more than the one or two
 * bytes before it. Bytes that need no look are thereby proved good. */

/* The quote takes the place of the space, next to the control bytes. */
OPENAI_AVX2_CODE OPENAI_INLINE __m256i openai_swap_avx2(const unsigned char *p)
{
    return _mm256_xor_si256(openai_load_avx2(p), _mm256_set1_epi8(2));
}

/* All ones where the (swapped) byte is what the table has for its low half: " f t n / and what is given for
 * the backslash; r and b would have the place of the quote. */
OPENAI_AVX2_CODE OPENAI_INLINE __m256i openai_simple_avx2(__m256i v, char backslash)
{
    const __m128i table =
        _mm_setr_epi8('"' ^ 2, 0, 0, 0, 'f' ^ 2, 0, 't' ^ 2, 0, 0, 0, 0, 0, 'n' ^ 2, '/' ^ 2, backslash, 0);

    return _mm256_cmpeq_epi8(v, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v));
}

/* Takes all backslashes for such that escape: right as long as two in a row need a look, and there are no two
 * before p. */
OPENAI_AVX2_CODE OPENAI_INLINE __m256i openai_rough_avx2(const unsigned char *p)
{
    const __m256i v = openai_swap_avx2(p);

    return _mm256_blendv_epi8(v, openai_simple_avx2(v, 0), openai_is_avx2(openai_load_avx2(p - 1), '\\'));
}

/* Two in a row are one character: the byte behind them is not escaped, if there is no third one. There a
 * third one needs a look, and so does all that is no small letter. */
OPENAI_AVX2_CODE OPENAI_INLINE __m256i openai_fine_avx2(const unsigned char *p)
{
    const __m256i v = openai_swap_avx2(p);
    const __m256i behind_two = _mm256_subs_epu8(v, _mm256_set1_epi8(('\\' ^ 2) - 0x20));
    const __m256i behind_any = _mm256_blendv_epi8(openai_simple_avx2(v, '\\' ^ 2), behind_two,
                                                  openai_is_avx2(openai_load_avx2(p - 2), '\\'));

    return _mm256_blendv_epi8(v, behind_any, openai_is_avx2(openai_load_avx2(p - 1), '\\'));
}

OPENAI_AVX2_CODE OPENAI_INLINE bool openai_any_rough_avx2(const unsigned char *block)
{
    const __m256i lower = _mm256_min_epu8(openai_rough_avx2(block), openai_rough_avx2(block + 32));
    const __m256i below = _mm256_subs_epu8(_mm256_set1_epi8(0x21), lower);

    return !_mm256_testz_si256(below, below);
}

/* Which bytes need a look: bit i is byte i. */
OPENAI_AVX2_CODE OPENAI_INLINE uint64_t openai_all_fine_avx2(const unsigned char *block)
{
    const __m256i a = openai_fine_avx2(block), b = openai_fine_avx2(block + 32), top = _mm256_set1_epi8(0x20);

    return openai_bits_avx2(_mm256_cmpeq_epi8(_mm256_min_epu8(a, top), a),
                            _mm256_cmpeq_epi8(_mm256_min_epu8(b, top), b));
}

#endif

/* ---- the scanner ---- */

enum openai_key {
    OPENAI_KEY_OTHER,
    OPENAI_KEY_MODEL,
    OPENAI_KEY_STREAM,
    OPENAI_KEY_USER,
    OPENAI_KEY_OPTIONS,
    OPENAI_KEY_PROMPT,
    OPENAI_KEY_MESSAGES,
    OPENAI_KEY_SYSTEM,
    OPENAI_KEY_INPUT,
    OPENAI_KEY_INSTRUCTIONS
};

struct openai_scan {
    const unsigned char *p, *end; /* NULs follow */
    const unsigned char *model;   /* where the value of the last "model" starts; NULL: none */
    struct slice model_raw;       /* that value when it is a string, with its quotes */
    struct openai_body *out;      /* takes the other keys */
    const char *error;
    const unsigned char *error_at;
    size_t outside; /* depth of what openai_nested starts in: 1 in the object that is the body */
    unsigned char closers[OPENAI_MAX_DEPTH + 1]; /* what ends the array or object of each depth, from 1 */
};

/* Each part of the scanner returns the place behind what it read, or NULL with an error. The place is handed
 * on and not kept in the scan, so that it stays in a register. */

__attribute__((cold, noinline)) static const unsigned char *
openai_fail(struct openai_scan *s, const unsigned char *at, const char *error)
{
    s->error = error;
    s->error_at = at;
    return NULL;
}

/* For where any text would do better than the end. */
static const unsigned char *openai_unexpected(struct openai_scan *s, const unsigned char *at,
                                              const char *error)
{
    if (s->p == s->end)
        error = "empty: expected a JSON object";
    else if (at == s->end)
        error = "ends in the middle of a JSON value";
    return openai_fail(s, at, error);
}

/* The first byte from *at on that is no white space: NUL at the end, as that is wrong everywhere. */
OPENAI_INLINE unsigned char openai_peek(const unsigned char **at)
{
    unsigned char c = **at;

    while (c <= ' ' && (c == ' ' || c == '\n' || c == '\r' || c == '\t'))
        c = *++*at;
    return c;
}

/* The same behind the byte at *at, a comma or a colon. A string is usual there, with a space before it or
 * without. */
OPENAI_INLINE unsigned char openai_next(const unsigned char **at)
{
    const unsigned char *const p = *at;

    if (memcmp(p + 1, " \"", 2) == 0) {
        *at = p + 2;
        return '"';
    }
    *at = p + 1;
    return p[1] == '"' ? '"' : openai_peek(at);
}

/* ---- strings ---- */

static bool openai_is_escape(unsigned char c)
{
    return c == 'n' || c == '"' || c == '\\' || c == 't' || c == 'r' || c == '/' || c == 'b' || c == 'f';
}

/* Four hexadecimal digits, all four at once. One addition sets a byte's top bit from the first digit (letter)
 * on, the other one behind the last. Where the top bit is set before, both set it or neither, and what such
 * bytes do to their neighbours is of no interest. */
static bool openai_is_hex4(const unsigned char *p)
{
    const uint32_t ones = 0x01010101, tops = ones << 7;
    uint32_t v, lower, digit, letter;

    memcpy(&v, p, sizeof(v));
    lower = v | ones * 0x20;
    digit = (v + ones * (0x80 - '0')) & ~(v + ones * (0x7f - '9'));
    letter = (lower + ones * (0x80 - 'a')) & ~(lower + ones * (0x7f - 'f'));
    return ((digit | letter) & tops) == tops;
}

static const char openai_no_quote[] = "string without its closing quote";
static const char openai_control[] = "control byte in a string: it has to be escaped";

/* What is wrong with the byte behind a backslash, NULL for nothing. */
static const char *openai_escape_error(const struct openai_scan *s, const unsigned char *p)
{
    if (p == s->end)
        return openai_no_quote;
    if (*p < 0x20)
        return openai_control;
    if (*p != 'u')
        return openai_is_escape(*p) ? NULL
                                    : "unknown escape in a string: expected one of \" \\ / b f n r t u";
    return s->end - p >= 5 && openai_is_hex4(p + 1)
               ? NULL
               : "bad escape in a string: expected four hexadecimal digits after \\u";
}

/* Looks at what is odd before the end of the string, if that is in the block. */
static bool openai_escapes(struct openai_scan *s, const unsigned char *block, struct openai_place at)
{
    const uint64_t inside = (at.stop & -at.stop) - 1; /* all bits without a stop */

    for (uint64_t odd = at.odd & inside; odd != 0; odd &= odd - 1) {
        const unsigned char *p = block + __builtin_ctzll(odd);
        const char *error = openai_escape_error(s, p);

        if (error != NULL) {
            (void)openai_fail(s, p, error);
            return false;
        }
    }
    return true;
}

static const unsigned char *openai_string_end(struct openai_scan *s, const unsigned char *block,
                                              uint64_t stop)
{
    const unsigned char *p = block + __builtin_ctzll(stop);

    if (p == s->end)
        return openai_fail(s, p, openai_no_quote);
    return *p == '"' ? p + 1 : openai_fail(s, p, openai_control);
}

/* Looks at a string from at->block on, until n blocks have nothing to stop for. The place behind its closing
 * quote; NULL with an error, or without one if the string goes on at at->block. */
OPENAI_INLINE const unsigned char *openai_look(struct openai_scan *s, struct openai_place *at, size_t n,
                                               openai_any_fn *any_mark,
                                               struct openai_marks (*marks)(const unsigned char *))
{
    while (openai_skip(at, n, any_mark, marks)) {
        if (at->odd != 0 && !openai_escapes(s, at->block, *at))
            return NULL;
        if (at->stop != 0)
            return openai_string_end(s, at->block, at->stop);
        at->block += 64 - at->cut;
    }
    return NULL;
}

static const unsigned char *openai_rest_plain(struct openai_scan *s, const unsigned char *at)
{
    struct openai_place place = {.block = at};

    return openai_look(s, &place, SIZE_MAX, openai_any_plain, openai_marks_plain);
}

/* The last block in which a byte needs a look, and which ones do. */
struct openai_window {
    const unsigned char *block;
    uint64_t looks;
};

/* The inside of a string starts at `at`. Its first byte that needs a look, or one before it. */
typedef const unsigned char *openai_first_fn(struct openai_window *w, const unsigned char *at);
/* The same string from there on, and its closing quote. */
typedef const unsigned char *openai_rest_fn(struct openai_scan *s, const unsigned char *at);

/* Most strings are short. */
OPENAI_INLINE const unsigned char *openai_first_plain(struct openai_window *w, const unsigned char *at)
{
    const unsigned char *const last = at + 16;

    (void)w;
    while (at < last && *at != '"' && *at != '\\' && *at >= 0x20)
        at++;
    return at;
}

#ifdef OPENAI_HAS_SSE2
static const unsigned char *openai_rest_sse2(struct openai_scan *s, const unsigned char *at)
{
    struct openai_place place = {.block = at};

    return openai_look(s, &place, SIZE_MAX, openai_any_sse2, openai_marks_sse2);
}

OPENAI_INLINE const unsigned char *openai_first_sse2(struct openai_window *w, const unsigned char *at)
{
    (void)w;
    return at + __builtin_ctz((unsigned)_mm_movemask_epi8(openai_any16_sse2(at)) | 1u << 16);
}

OPENAI_INLINE bool openai_are_two(const unsigned char *p)
{
    return memcmp(p, "\\\\", 2) == 0;
}

/* The first block from `at` on that has a byte that needs a look. A block behind two backslashes is none for
 * the rough look; what it passes over does not end with two. Right before `at` none escapes another byte than
 * the fine look takes it for: one does, two do not. */
OPENAI_AVX2_CODE static struct openai_window openai_pass_avx2(const unsigned char *at)
{
    for (;; at += 64) {
        const bool two = openai_are_two(at - 2);
        uint64_t looks;

        while (!two && !openai_any_rough_avx2(at))
            at += 64;
        /* or the compiler has the loop keep parts of each block for the fine look, which is rare */
        __asm__("" : "+r"(at));
        looks = openai_all_fine_avx2(at);
        if (looks != 0)
            return (struct openai_window){at, looks};
    }
}

/* What the window has of the keys and short values between two long strings is used as well: whether a byte
 * needs a look does not depend on where a string starts. The escapes that are passed over are in no key that
 * matters. */
OPENAI_AVX2_CODE OPENAI_INLINE const unsigned char *openai_first_avx2(struct openai_window *w,
                                                                      const unsigned char *at)
{
    const size_t offset = (size_t)(at - w->block);

    if (offset >= 64 || w->looks >> offset == 0) {
        *w = openai_pass_avx2(offset < 64 ? w->block + 64 : at);
        return w->block + __builtin_ctzll(w->looks);
    }
    return at + __builtin_ctzll(w->looks >> offset);
}

/* Where one byte needed a look, more of them are likely to follow. */
OPENAI_AVX2_CODE static const unsigned char *openai_rest_avx2(struct openai_scan *s, const unsigned char *at)
{
    struct openai_place place;
    struct openai_window w;
    const unsigned char *end;

    do {
        place.block = at[-1] == '\\' && at[-2] != '\\' ? at - 1 : at;
        end = openai_look(s, &place, 4, openai_any_avx2, openai_marks_avx2);
        if (end != NULL || s->error != NULL)
            return end;
        w = openai_pass_avx2(place.block);
        at = w.block + __builtin_ctzll(w.looks);
    } while (*at != '"');
    return at + 1;
}
#endif

/* The inside of any string, and its closing quote. */
OPENAI_INLINE const unsigned char *openai_string(struct openai_scan *s, const unsigned char *at,
                                                 struct openai_window *w, openai_first_fn *first,
                                                 openai_rest_fn *rest)
{
    at = first(w, at);
    return *at == '"' ? at + 1 : rest(s, at);
}

/* ---- numbers and words ---- */

static const unsigned char *openai_literal(struct openai_scan *s, const unsigned char *at, struct slice word)
{
    if (memcmp(at, word.p, word.n) != 0)
        return openai_fail(s, at, "unknown word: expected true, false or null");
    return at + word.n;
}

/* Behind the digits at `at`, `at` itself when there is none. */
OPENAI_INLINE const unsigned char *openai_digits(const unsigned char *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

/* Errors are at its first byte. */
static const unsigned char *openai_number(struct openai_scan *s, const unsigned char *at)
{
    const unsigned char *first = at, *digits = at + (*at == '-');

    at = openai_digits(digits);
    if (at == digits || (*digits == '0' && at - digits > 1))
        return openai_fail(s, first, "bad number: expected digits without leading zeros");
    if (*at == '.') {
        digits = at + 1;
        at = openai_digits(digits);
        if (at == digits)
            return openai_fail(s, first, "bad number: expected digits after the point");
    }
    if (*at == 'e' || *at == 'E') {
        digits = at + 1 + (at[1] == '+' || at[1] == '-');
        at = openai_digits(digits);
        if (at == digits)
            return openai_fail(s, first, "bad number: expected digits in the exponent");
    }
    return at;
}

/* A value that is no string, array or object. */
static const unsigned char *openai_word(struct openai_scan *s, const unsigned char *at, unsigned char c)
{
    if (c == '-' || (c >= '0' && c <= '9'))
        return openai_number(s, at);
    switch (c) {
    case 't':
        return openai_literal(s, at, SLICE("true"));
    case 'f':
        return openai_literal(s, at, SLICE("false"));
    case 'n':
        return openai_literal(s, at, SLICE("null"));
    default:
        return openai_unexpected(s, at,
                                 "expected a value: object, array, string, number, true, false or null");
    }
}

/* ---- decoding ---- */

/* Appends one code point; the room is there. */
static char *openai_utf8(char *at, unsigned c)
{
    if (c < 0x80) {
        *at++ = (char)c;
    } else if (c < 0x800) {
        *at++ = (char)(0xc0 | c >> 6);
        *at++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *at++ = (char)(0xe0 | c >> 12);
        *at++ = (char)(0x80 | (c >> 6 & 0x3f));
        *at++ = (char)(0x80 | (c & 0x3f));
    } else {
        *at++ = (char)(0xf0 | c >> 18);
        *at++ = (char)(0x80 | (c >> 12 & 0x3f));
        *at++ = (char)(0x80 | (c >> 6 & 0x3f));
        *at++ = (char)(0x80 | (c & 0x3f));
    }
    return at;
}

/* Four digits of a string that was validated. */
static unsigned openai_hex4(const char *p)
{
    unsigned c = 0;

    for (int i = 0; i < 4; i++)
        c = c << 4 | (((unsigned char)p[i] & 0xfu) + (p[i] > '9' ? 9u : 0u));
    return c;
}

/* raw[*at] is the u of \uXXXX. False for NUL and half a surrogate pair, which *c has then. Leaves *at behind
 * it. */
static bool openai_decode_u(struct slice raw, size_t *at, unsigned *c)
{
    unsigned low;

    *c = openai_hex4(raw.p + *at + 1);
    *at += 5;
    if (*c < 0xd800 || *c > 0xdfff)
        return *c != 0;
    if (*c > 0xdbff || raw.n - *at < 6 || raw.p[*at] != '\\' || raw.p[*at + 1] != 'u')
        return false;
    low = openai_hex4(raw.p + *at + 2);
    if (low < 0xdc00 || low > 0xdfff)
        return false;
    *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
    *at += 6;
    return true;
}

/* raw[*at] is the byte behind a backslash. */
static bool openai_decode_escape(struct slice raw, size_t *at, unsigned *c)
{
    static const char letters[] = "bfnrt", bytes[] = "\b\f\n\r\t";
    const char *letter;

    if (raw.p[*at] == 'u')
        return openai_decode_u(raw, at, c);
    letter = memchr(letters, raw.p[*at], sizeof(letters) - 1);
    *c = (unsigned char)(letter != NULL ? bytes[letter - letters] : raw.p[*at]);
    (*at)++;
    return true;
}

/* The next piece of raw at *at: plain text as it stands, or what one escape means, in code. *good: false for
 * an escape that has no meaning. */
static struct slice openai_decode_piece(struct slice raw, size_t *at, char code[4], bool *good)
{
    struct slice piece = {raw.p + *at, raw.n - *at};
    const char *slash = memchr(piece.p, '\\', piece.n);
    unsigned c;

    *good = true;
    if (slash != piece.p) {
        piece.n = slash != NULL ? (size_t)(slash - piece.p) : piece.n;
        *at += piece.n;
        return piece;
    }
    (*at)++;
    *good = openai_decode_escape(raw, at, &c);
    return (struct slice){code, (size_t)(openai_utf8(code, c) - code)};
}

static const char openai_long_name[] = "model name longer than 1024 bytes";

static const char *openai_decode_escapes(struct slice raw, char *out, size_t max, size_t *n)
{
    char code[4];
    bool good;

    *n = 0;
    for (size_t at = 0; at < raw.n;) {
        struct slice piece = openai_decode_piece(raw, &at, code, &good);

        if (!good)
            return "model name with a NUL or half a surrogate pair";
        if (piece.n > max - *n)
            return openai_long_name;
        memcpy(out + *n, piece.p, piece.n);
        *n += piece.n;
    }
    return NULL;
}

/* raw: the inside of a string that was validated. Returns NULL or what was wrong. */
static const char *openai_decode(struct slice raw, char *out, size_t max, size_t *n)
{
    if (memchr(raw.p, '\\', raw.n) != NULL)
        return openai_decode_escapes(raw, out, max, n);
    *n = 0;
    if (raw.n > max)
        return openai_long_name;
    memcpy(out, raw.p, raw.n);
    *n = raw.n;
    return NULL;
}

/* ---- keys ---- */

/* raw: the inside of a string without escapes. */
OPENAI_INLINE enum openai_key openai_plain_key(struct slice raw)
{
    switch (raw.n) {
    case 4:
        return memcmp(raw.p, "user", 4) == 0 ? OPENAI_KEY_USER : OPENAI_KEY_OTHER;
    case 5:
        return memcmp(raw.p, "model", 5) == 0   ? OPENAI_KEY_MODEL
               : memcmp(raw.p, "input", 5) == 0 ? OPENAI_KEY_INPUT
                                                : OPENAI_KEY_OTHER;
    case 6:
        return memcmp(raw.p, "stream", 6) == 0   ? OPENAI_KEY_STREAM
               : memcmp(raw.p, "prompt", 6) == 0 ? OPENAI_KEY_PROMPT
               : memcmp(raw.p, "system", 6) == 0 ? OPENAI_KEY_SYSTEM
                                                 : OPENAI_KEY_OTHER;
    case 8:
        return memcmp(raw.p, "messages", 8) == 0 ? OPENAI_KEY_MESSAGES : OPENAI_KEY_OTHER;
    case 12:
        return memcmp(raw.p, "instructions", 12) == 0 ? OPENAI_KEY_INSTRUCTIONS : OPENAI_KEY_OTHER;
    case 14:
        return memcmp(raw.p, "stream_options", 14) == 0 ? OPENAI_KEY_OPTIONS : OPENAI_KEY_OTHER;
    default:
        return OPENAI_KEY_OTHER;
    }
}

static enum openai_key openai_any_key(struct slice raw)
{
    char plain[14];
    size_t n;

    if (raw.n > 6 * sizeof(plain) || openai_decode_escapes(raw, plain, sizeof(plain), &n) != NULL)
        return OPENAI_KEY_OTHER;
    return openai_plain_key((struct slice){plain, n});
}

/* ---- structure ---- */

/* A colon, right behind the key or not. */
OPENAI_INLINE const unsigned char *openai_colon(struct openai_scan *s, const unsigned char *at)
{
    if (*at != ':' && openai_peek(&at) != ':')
        return openai_fail(s, at, "expected a colon after the key");
    return at;
}

static const char openai_no_key[] = "expected a key in quotes";

/* A key that does not matter; c is the byte at `at`. The place of its colon. */
OPENAI_INLINE const unsigned char *openai_any_member(struct openai_scan *s, const unsigned char *at,
                                                     unsigned char c, struct openai_window *w,
                                                     openai_first_fn *first, openai_rest_fn *rest)
{
    if (c != '"')
        return openai_unexpected(s, at, openai_no_key);
    at = openai_string(s, at + 1, w, first, rest);
    return at != NULL ? openai_colon(s, at) : NULL;
}

/* The same for one that does. */
OPENAI_INLINE const unsigned char *openai_member(struct openai_scan *s, const unsigned char *at,
                                                 unsigned char c, enum openai_key *key,
                                                 struct openai_window *w, openai_first_fn *first,
                                                 openai_rest_fn *rest)
{
    const char *const inside = (const char *)at + 1;

    if (c != '"')
        return openai_unexpected(s, at, openai_no_key);
    at = first(w, at + 1);
    if (*at == '"') {
        *key = openai_plain_key((struct slice){inside, (size_t)((const char *)at - inside)});
        return openai_colon(s, at + 1);
    }
    at = rest(s, at);
    if (at == NULL)
        return NULL;
    *key = openai_any_key((struct slice){inside, (size_t)((const char *)at - inside) - 1});
    return openai_colon(s, at);
}

OPENAI_INLINE const unsigned char *openai_scalar(struct openai_scan *s, const unsigned char *at,
                                                 unsigned char c, struct openai_window *w,
                                                 openai_first_fn *first, openai_rest_fn *rest)
{
    return c == '"' ? openai_string(s, at + 1, w, first, rest) : openai_word(s, at, c);
}

/* An array or object starts: its closer is two behind its opener in ASCII. */
OPENAI_INLINE const unsigned char *openai_open(struct openai_scan *s, const unsigned char *at,
                                               unsigned char c, unsigned char **top)
{
    if (*top == s->closers + OPENAI_MAX_DEPTH)
        return openai_fail(s, at, "arrays and objects nested more than 1024 deep");
    *++*top = (unsigned char)(c + 2);
    return at + 1;
}

static const unsigned char *openai_no_comma(struct openai_scan *s, const unsigned char *at,
                                            unsigned char closer)
{
    return openai_unexpected(s, at,
                             closer == '}' ? "expected a comma or } after a member"
                                           : "expected a comma or ] after an element");
}

/* An array or object with all that is in it. Each round is one value, in an object with its key; an array or
 * object is a value when it opens and when it closes. */
OPENAI_INLINE const unsigned char *openai_nested(struct openai_scan *s, const unsigned char *at,
                                                 unsigned char c, struct openai_window *w,
                                                 openai_first_fn *first, openai_rest_fn *rest)
{
    unsigned char *const bottom = s->closers + s->outside, *top = bottom;

    *bottom = ' '; /* opens nothing */
    for (;;) {
        if (*top == '}') {
            at = openai_any_member(s, at, c, w, first, rest);
            if (at == NULL)
                return NULL;
            c = openai_next(&at);
        }
        if (c == '"') {
            at = openai_string(s, at + 1, w, first, rest);
        } else if (c == '{' || c == '[') {
            at = openai_open(s, at, c, &top);
            if (at == NULL)
                return NULL;
            c = openai_peek(&at);
            if (c != *top)
                continue;
        } else {
            at = openai_word(s, at, c);
        }
        if (at == NULL)
            return NULL;
        c = openai_peek(&at);
        for (; c != ','; c = openai_peek(&at)) {
            if (c != *top)
                return openai_no_comma(s, at, *top);
            at++;
            if (--top == bottom)
                return at;
        }
        c = openai_next(&at);
    }
}

OPENAI_INLINE const unsigned char *openai_value(struct openai_scan *s, const unsigned char *at,
                                                unsigned char c, struct openai_window *w,
                                                openai_first_fn *first, openai_rest_fn *rest)
{
    return c == '{' || c == '[' ? openai_nested(s, at, c, w, first, rest)
                                : openai_scalar(s, at, c, w, first, rest);
}

/* A string with its quotes; {NULL, 0} for any other value. */
static struct slice openai_if_string(const unsigned char *start, const unsigned char *end)
{
    return *start == '"' ? (struct slice){(const char *)start, (size_t)(end - start)}
                         : (struct slice){NULL, 0};
}

/* The value of a key: [start, end). */
static void openai_note(struct openai_scan *s, enum openai_key key, const unsigned char *start,
                        const unsigned char *end)
{
    switch (key) {
    case OPENAI_KEY_MODEL:
        s->model = start;
        s->model_raw = openai_if_string(start, end);
        break;
    case OPENAI_KEY_STREAM:
        s->out->stream = *start == 't';
        break;
    case OPENAI_KEY_USER:
        s->out->user = openai_if_string(start, end);
        break;
    case OPENAI_KEY_OPTIONS:
        s->out->stream_options = (struct slice){(const char *)start, (size_t)(s->end - start)};
        break;
    case OPENAI_KEY_PROMPT:
        s->out->prompt.prompt = (const char *)start;
        break;
    case OPENAI_KEY_MESSAGES:
        s->out->prompt.messages = (const char *)start;
        break;
    case OPENAI_KEY_SYSTEM:
        s->out->prompt.system = (const char *)start;
        break;
    case OPENAI_KEY_INPUT:
        s->out->prompt.input = (const char *)start;
        break;
    case OPENAI_KEY_INSTRUCTIONS:
        s->out->prompt.instructions = (const char *)start;
        break;
    case OPENAI_KEY_OTHER:
        break;
    }
}

/* The members of the object that is the body; c is the byte at `at`, behind its brace. */
OPENAI_INLINE const unsigned char *openai_members(struct openai_scan *s, const unsigned char *at,
                                                  unsigned char c, struct openai_window *w,
                                                  openai_first_fn *first, openai_rest_fn *rest)
{
    enum openai_key key = OPENAI_KEY_OTHER;

    for (;;) {
        const unsigned char *start;

        at = openai_member(s, at, c, &key, w, first, rest);
        if (at == NULL)
            return NULL;
        c = openai_next(&at);
        start = at;
        at = openai_value(s, at, c, w, first, rest);
        if (at == NULL)
            return NULL;
        if (key != OPENAI_KEY_OTHER)
            openai_note(s, key, start, at);
        c = openai_peek(&at);
        if (c == '}')
            return at + 1;
        if (c != ',')
            return openai_no_comma(s, at, '}');
        c = openai_next(&at);
    }
}

OPENAI_INLINE bool openai_document(struct openai_scan *s, openai_first_fn *first, openai_rest_fn *rest)
{
    struct openai_window place = {s->end + OPENAI_SPARE, 0}, *const w = &place; /* behind all strings */
    const unsigned char *at = s->p;
    unsigned char c = openai_peek(&at);

    s->outside = c == '{';
    if (c == '{') {
        at++;
        c = openai_peek(&at);
        at = c == '}' ? at + 1 : openai_members(s, at, c, w, first, rest);
    } else {
        at = c == '"' ? rest(s, at + 1) : openai_value(s, at, c, w, first, rest);
    }
    if (at == NULL)
        return false;
    (void)openai_peek(&at);
    return at == s->end || openai_fail(s, at, "more text after the end of the JSON value") != NULL;
}

/* ---- the kinds of scan ---- */

/* Reads the body; false with an error. */
typedef bool openai_document_fn(struct openai_scan *s);

static bool openai_document_plain(struct openai_scan *s)
{
    return openai_document(s, openai_first_plain, openai_rest_plain);
}

#ifdef OPENAI_HAS_SSE2
static bool openai_document_sse2(struct openai_scan *s)
{
    return openai_document(s, openai_first_sse2, openai_rest_sse2);
}

OPENAI_AVX2_CODE static bool openai_document_avx2(struct openai_scan *s)
{
    return openai_document(s, openai_first_avx2, openai_rest_avx2);
}
#endif

static openai_document_fn *openai_chosen; /* NULL: not chosen yet */

bool openai_use_simd(enum openai_simd kind)
{
    switch (kind) {
#ifdef OPENAI_HAS_SSE2
    case OPENAI_AVX2:
        if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") ||
            !__builtin_cpu_supports("bmi2"))
            return false;
        openai_chosen = openai_document_avx2;
        return true;
    case OPENAI_SSE2:
        openai_chosen = openai_document_sse2;
        return true;
#endif
    case OPENAI_PLAIN:
        openai_chosen = openai_document_plain;
        return true;
    default:
        return false;
    }
}

static void openai_choose(void)
{
    if (!openai_use_simd(OPENAI_AVX2) && !openai_use_simd(OPENAI_SSE2))
        (void)openai_use_simd(OPENAI_PLAIN);
}

/* ---- request bodies ---- */

static enum openai_verdict openai_verdict(struct openai_body *out, enum openai_verdict verdict, size_t at,
                                          const char *error)
{
    out->error = error;
    out->error_at = at;
    return verdict;
}

static bool openai_is_blank(struct slice text)
{
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] != ' ' && (text.p[i] < '\t' || text.p[i] > '\r'))
            return false;
    }
    return true;
}

static enum openai_verdict openai_take_model(const struct openai_scan *s, struct openai_body *out)
{
    struct slice inside;
    const char *error;
    size_t at;

    if (s->model == NULL)
        return openai_verdict(out, OPENAI_NO_MODEL, 0, "no \"model\" in the request body");
    at = (size_t)(s->model - s->p);
    if (s->model_raw.n == 0)
        return openai_verdict(out, OPENAI_BAD_MODEL, at, "\"model\" is not a string");
    inside = (struct slice){s->model_raw.p + 1, s->model_raw.n - 2};
    error = openai_decode(inside, out->model, OPENAI_MODEL_MAX, &out->model_n);
    if (error == NULL && openai_is_blank((struct slice){out->model, out->model_n}))
        error = "\"model\" is empty";
    if (error != NULL) {
        out->model_n = 0;
        out->model[0] = '\0';
        return openai_verdict(out, OPENAI_BAD_MODEL, at, error);
    }
    out->model[out->model_n] = '\0';
    out->model_raw = s->model_raw;
    return openai_verdict(out, OPENAI_OK, 0, NULL);
}

enum openai_verdict openai_inspect(char *body, size_t n, struct openai_body *out)
{
    static char empty[OPENAI_SPARE];
    const unsigned char *first;
    struct openai_scan s; /* of `closers` what is used is written first */

    if (openai_chosen == NULL)
        openai_choose();
    body = n > 0 ? body : empty;
    memset(body + n, 0, OPENAI_SPARE);
    s.p = (const unsigned char *)body;
    s.end = s.p + n;
    s.model = NULL;
    s.model_raw = out->model_raw = (struct slice){NULL, 0};
    s.out = out;
    s.error = NULL;
    out->stream = false;
    out->user = out->stream_options = (struct slice){NULL, 0};
    out->prompt = (struct prompt_fields){.prompt = NULL};
    out->model[0] = '\0';
    out->model_n = 0;
    if (!openai_chosen(&s))
        return openai_verdict(out, OPENAI_NOT_JSON, (size_t)(s.error_at - s.p), s.error);
    first = s.p;
    if (openai_peek(&first) != '{')
        return openai_verdict(out, OPENAI_NOT_OBJECT, (size_t)(first - s.p),
                              "not an object: expected { ... }");
    return openai_take_model(&s, out);
}

/* ---- changes to a body ---- */

#define OPENAI_INCLUDE_USAGE "\"include_usage\":true"

/* Whether members follow the brace. */
static bool openai_has_members(struct slice object)
{
    struct slice rest = json_inside(object);

    return json_take(&rest).p != NULL;
}

/* `text` goes behind the body's first brace, or that of an object in it, in front of what is there. */
static bool openai_insert(struct slice body, struct slice object, struct slice text, struct openai_edit *e)
{
    *e = (struct openai_edit){(size_t)(object.p - body.p) + 1, 0, text};
    return true;
}

bool openai_want_usage(struct slice body, const struct openai_body *b, struct openai_edit *e)
{
    struct slice rest = b->stream_options, options = json_take(&rest);

    if (!b->stream)
        return false;
    if (options.p == NULL)
        return openai_insert(body, (struct slice){memchr(body.p, '{', body.n), 1},
                             SLICE("\"stream_options\":{" OPENAI_INCLUDE_USAGE "},"), e);
    if (slice_eq(options, SLICE("null"))) {
        *e = (struct openai_edit){(size_t)(options.p - body.p), 4, SLICE("{" OPENAI_INCLUDE_USAGE "}")};
        return true;
    }
    if (!json_is(options, '{') || json_find(options, SLICE("include_usage")).p != NULL)
        return false;
    return openai_insert(
        body, options,
        openai_has_members(options) ? SLICE(OPENAI_INCLUDE_USAGE ",") : SLICE(OPENAI_INCLUDE_USAGE), e);
}

bool openai_decode_string(struct buf *out, struct slice value)
{
    const struct slice raw = json_inside(value);
    char code[4];
    bool good;

    for (size_t at = 0; at < raw.n;) {
        const struct slice piece = openai_decode_piece(raw, &at, code, &good);

        if (!good || !buf_append_slice(out, piece))
            return false;
    }
    return true;
}

void openai_decode_text(struct buf *out, struct slice value)
{
    const struct slice raw = json_inside(value);
    char code[4];
    bool good;

    for (size_t at = 0; at < raw.n && out->len < out->max_bytes;) {
        struct slice piece = openai_decode_piece(raw, &at, code, &good);

        if (piece.n > out->max_bytes - out->len)
            piece.n = out->max_bytes - out->len;
        if (!buf_append_slice(out, piece))
            return; /* never: there is room */
    }
}

/* ---- bodies of our own ---- */

/* The length of the UTF-8 character at p, 0 when there is none. */
static size_t openai_utf8_length(const unsigned char *p, size_t n)
{
    static const unsigned first_code[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf8 ? 4 : 0;
    unsigned code;

    if (size <= 1 || size > n)
        return size <= 1 ? size : 0;
    code = p[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (code < first_code[size] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    return size;
}

/* One byte that cannot stand in a string as it is. */
static bool openai_put_escape(struct buf *out, unsigned char c)
{
    switch (c) {
    case '"':
        return buf_append(out, "\\\"", 2);
    case '\\':
        return buf_append(out, "\\\\", 2);
    case '\n':
        return buf_append(out, "\\n", 2);
    case '\r':
        return buf_append(out, "\\r", 2);
    case '\t':
        return buf_append(out, "\\t", 2);
    default:
        return c >= 0x80 ? buf_append(out, "\\ufffd", 6) : buf_printf(out, "\\u%04x", c);
    }
}

static bool openai_put_string(struct buf *out, struct slice text)
{
    const unsigned char *p = (const unsigned char *)(text.n > 0 ? text.p : "");
    size_t plain = 0; /* start of what can be copied */

    if (!buf_append(out, "\"", 1))
        return false;
    for (size_t i = 0; i < text.n;) {
        size_t size = openai_utf8_length(p + i, text.n - i);

        if (size > 1 || (size == 1 && p[i] >= 0x20 && p[i] != '"' && p[i] != '\\')) {
            i += size;
            continue;
        }
        if (!buf_append(out, p + plain, i - plain) || !openai_put_escape(out, p[i]))
            return false;
        plain = ++i;
    }
    return buf_append(out, p + plain, text.n - plain) && buf_append(out, "\"", 1);
}

bool openai_model_value(struct buf *out, struct slice name)
{
    return openai_put_string(out, name);
}

static bool openai_put(struct buf *out, const char *text)
{
    return buf_append_slice(out, slice_of(text));
}

bool openai_error(struct buf *out, struct slice message, const char *type, const char *code)
{
    return openai_put(out, "{\"error\":{\"message\":") && openai_put_string(out, message) &&
           openai_put(out, ",\"type\":") && openai_put_string(out, slice_of(type)) &&
           openai_put(out, ",\"param\":null,\"code\":") && openai_put_string(out, slice_of(code)) &&
           openai_put(out, "}}");
}

bool openai_error_event(struct buf *out, bool inside_event, struct slice message, const char *type,
                        const char *code)
{
    return openai_put(out, inside_event ? "\n\ndata: " : "data: ") &&
           openai_error(out, message, type, code) && openai_put(out, "\n\n");
}

bool openai_model_list(struct buf *out, const struct slice *names, size_t n)
{
    if (!openai_put(out, "{\"object\":\"list\",\"data\":["))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!openai_put(out, i > 0 ? ",{\"id\":" : "{\"id\":") || !openai_put_string(out, names[i]) ||
            !openai_put(out, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"kthena\"}"))
            return false;
    }
    return openai_put(out, "]}");
}

static bool openai_is_name(struct slice name)
{
    for (size_t i = 0; i < name.n; i++) {
        if ((unsigned char)name.p[i] < 0x20)
            return false;
    }
    return name.n > 0;
}

void openai_model_names(struct slice list, struct buf *out)
{
    struct slice models = json_inside(json_find(list, SLICE("data"))), model;
    struct buf name;

    buf_init(&name, OPENAI_MODEL_MAX);
    while (json_element(&models, &model)) {
        buf_clear(&name);
        if (!openai_decode_string(&name, json_find(model, SLICE("id"))) ||
            !openai_is_name(buf_slice(&name)) || !buf_append(&name, "\n", 1))
            continue;
        if (!buf_append_slice(out, buf_slice(&name)))
            break;
    }
    buf_free(&name);
}

/* ---- event streams ---- */

void openai_sse_feed(struct openai_sse *s, struct slice bytes)
{
    size_t keep;

    if (bytes.n >= OPENAI_SSE_TAIL) {
        memcpy(s->tail, bytes.p + bytes.n - OPENAI_SSE_TAIL, OPENAI_SSE_TAIL);
        s->cut |= s->n > 0 || bytes.n > OPENAI_SSE_TAIL;
        s->n = OPENAI_SSE_TAIL;
        return;
    }
    if (bytes.n == 0)
        return;
    keep = s->n < OPENAI_SSE_TAIL - bytes.n ? s->n : OPENAI_SSE_TAIL - bytes.n;
    s->cut |= keep < s->n;
    memmove(s->tail, s->tail + s->n - keep, keep);
    memcpy(s->tail + keep, bytes.p, bytes.n);
    s->n = (uint32_t)(keep + bytes.n);
}

/* The next line of the tail from *at on, without its end; *at goes behind that. *ended: it has an end. */
static struct slice openai_sse_line(const struct openai_sse *s, size_t *at, bool *ended)
{
    const size_t start = *at;
    size_t end = start;

    while (end < s->n && s->tail[end] != '\n' && s->tail[end] != '\r')
        end++;
    *ended = end < s->n;
    *at = end + 1;
    if (*at < s->n && s->tail[end] == '\r' && s->tail[*at] == '\n')
        (*at)++;
    return (struct slice){s->tail + start, end - start};
}

/* Where the first line starts that is whole from its first byte on. A LF first may be half of a CR LF: it
 * ends nothing new. */
static size_t openai_sse_first(const struct openai_sse *s)
{
    size_t at = 0;
    bool ended;

    if (s->cut)
        (void)openai_sse_line(s, &at, &ended);
    return at;
}

bool openai_sse_done(const struct openai_sse *s)
{
    bool done = false, ended;

    for (size_t at = openai_sse_first(s); at < s->n;) {
        const struct slice line = openai_sse_line(s, &at, &ended);

        if (slice_starts(line, SLICE("data:")))
            done = slice_eq(line, SLICE("data: [DONE]")) || slice_eq(line, SLICE("data:[DONE]"));
    }
    return done;
}

bool openai_sse_inside_event(const struct openai_sse *s)
{
    bool inside = s->cut, ended;

    for (size_t at = openai_sse_first(s); at < s->n;)
        inside = openai_sse_line(s, &at, &ended).n > 0 || (inside && !ended);
    return inside;
}
