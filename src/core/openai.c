/* openai: bodies in the OpenAI style. Its larger part is a JSON scanner that validates a request body and
 * remembers the two top-level values the router needs. Nearly all of such a body is text inside strings, so
 * strings are scanned 64 bytes at a time: a routine for the processor at hand marks quotes, backslashes and
 * control bytes in bit masks, and plain C works on the masks. Also here: the bodies the router writes itself,
 * and the end of an event stream. */
#include "openai.h"

#include <assert.h>
#include <stdio.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* ---- 64 bytes at a time ---- */

/* Bit i is byte i. */
struct openai_block {
    uint64_t quote, slash, control;
    uint64_t escape; /* may follow a backslash, \u not counted; only bits behind a backslash and bit 0 mean
                        something */
};

typedef void openai_classify_fn(const unsigned char *p, struct openai_block *blocks, size_t n);

/* The bytes that may follow a backslash but for u, which wants a look at four more. */
static bool openai_is_escape(unsigned char c)
{
    return c == 'n' || c == '"' || c == '\\' || c == 't' || c == 'r' || c == '/' || c == 'b' || c == 'f';
}

/* The bits of `escape` that mean something, one by one. */
static uint64_t openai_escapes(const unsigned char *p, uint64_t slash)
{
    uint64_t escape = openai_is_escape(p[0]);

    for (uint64_t after = slash << 1; after != 0; after &= after - 1) {
        unsigned i = (unsigned)__builtin_ctzll(after);

        escape |= (uint64_t)openai_is_escape(p[i]) << i;
    }
    return escape;
}

static void openai_classify_plain(const unsigned char *p, struct openai_block *blocks, size_t n)
{
    for (; n > 0; n--, p += 64, blocks++) {
        uint64_t quote = 0, slash = 0, control = 0;

        for (unsigned i = 0; i < 64; i++) {
            quote |= (uint64_t)(p[i] == '"') << i;
            slash |= (uint64_t)(p[i] == '\\') << i;
            control |= (uint64_t)(p[i] < 0x20) << i;
        }
        *blocks = (struct openai_block){quote, slash, control, openai_escapes(p, slash)};
    }
}

#ifdef __x86_64__

#define OPENAI_HAS_SSE2 1

static void openai_classify_sse2(const unsigned char *p, struct openai_block *blocks, size_t n)
{
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), low = _mm_set1_epi8(0x1f);

    for (; n > 0; n--, p += 64, blocks++) {
        uint64_t q = 0, s = 0, c = 0;

        for (unsigned i = 0; i < 64; i += 16) {
            __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + i));

            q |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, quote)) << i;
            s |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, slash)) << i;
            c |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(v, low), v)) << i;
        }
        *blocks = (struct openai_block){q, s, c, openai_escapes(p, s)};
    }
}

/* Escape letters by their halves: the table for the high half of a byte gives a bit for each row of ASCII
 * that has some (2_: " / 5_: \ 6_: b f n 7_: r t), the one for the low half the rows in which it is one. */
__attribute__((target("avx2"))) static void openai_classify_avx2(const unsigned char *p,
                                                                 struct openai_block *blocks, size_t n)
{
    const __m256i quote = _mm256_set1_epi8('"'), slash = _mm256_set1_epi8('\\'), low = _mm256_set1_epi8(0x1f);
    const __m256i nibble = _mm256_set1_epi8(0x0f), zero = _mm256_setzero_si256();
    const __m256i rows =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 1, 0, 0, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i columns =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 1 | 4 | 8, 0, 8, 0, 4, 0, 0, 0, 0, 0, 2, 0, 4, 1));

    for (; n > 0; n--, p += 64, blocks++) {
        uint64_t q = 0, s = 0, c = 0, e = 0;

        for (unsigned i = 0; i < 64; i += 32) {
            __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(p + i));
            __m256i row = _mm256_shuffle_epi8(rows, _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble));
            __m256i column = _mm256_shuffle_epi8(columns, _mm256_and_si256(v, nibble));
            __m256i none = _mm256_cmpeq_epi8(_mm256_and_si256(row, column), zero);

            q |= (uint64_t)(unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, quote)) << i;
            s |= (uint64_t)(unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(v, slash)) << i;
            c |= (uint64_t)(unsigned)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(v, low), v)) << i;
            e |= (uint64_t) ~(unsigned)_mm256_movemask_epi8(none) << i;
        }
        *blocks = (struct openai_block){q, s, c, e};
    }
}

#endif

static void openai_classify_first(const unsigned char *p, struct openai_block *blocks, size_t n);

static openai_classify_fn *openai_classify = openai_classify_first;

bool openai_use_simd(enum openai_simd kind)
{
    switch (kind) {
#ifdef OPENAI_HAS_SSE2
    case OPENAI_AVX2:
        if (!__builtin_cpu_supports("avx2"))
            return false;
        openai_classify = openai_classify_avx2;
        return true;
    case OPENAI_SSE2:
        openai_classify = openai_classify_sse2;
        return true;
#endif
    case OPENAI_PLAIN:
        openai_classify = openai_classify_plain;
        return true;
    default:
        return false;
    }
}

/* The first call chooses. */
static void openai_classify_first(const unsigned char *p, struct openai_block *blocks, size_t n)
{
    if (!openai_use_simd(OPENAI_AVX2) && !openai_use_simd(OPENAI_SSE2))
        (void)openai_use_simd(OPENAI_PLAIN);
    openai_classify(p, blocks, n);
}

/* ---- the scanner ---- */

#define OPENAI_WINDOW 32 /* blocks marked at once */

enum openai_key { OPENAI_KEY_OTHER, OPENAI_KEY_MODEL, OPENAI_KEY_STREAM };

enum openai_expect {
    OPENAI_VALUE,
    OPENAI_VALUE_OR_CLOSE, /* behind [ */
    OPENAI_KEY,
    OPENAI_KEY_OR_CLOSE, /* behind { */
    OPENAI_COMMA_OR_CLOSE,
    OPENAI_END
};

struct openai_scan {
    const unsigned char *p;
    size_t n, at;
    enum openai_expect expect;
    size_t depth;
    uint64_t objects[OPENAI_MAX_DEPTH / 64]; /* bit d: what is open at depth d + 1 is an object */
    enum openai_key key;                     /* the top-level key whose value comes next */
    bool has_model;
    size_t model_at;        /* where the value of the last "model" starts */
    struct slice model_raw; /* that value when it is a string, with its quotes */
    bool stream;
    const char *error;
    size_t first, count; /* the blocks that are marked */
    struct openai_block blocks[OPENAI_WINDOW];
};

static bool openai_fail(struct openai_scan *s, size_t at, const char *error)
{
    s->error = error;
    s->at = at;
    return false;
}

/* Marks the blocks from number `first` on. The last one of a body is filled up with spaces. */
static void openai_mark(struct openai_scan *s, size_t first)
{
    size_t whole = s->n / 64 - first;
    unsigned char last[64];

    s->first = first;
    s->count = whole < OPENAI_WINDOW ? whole : OPENAI_WINDOW;
    if (s->count > 0) {
        openai_classify(s->p + first * 64, s->blocks, s->count);
        return;
    }
    memset(last, ' ', sizeof(last));
    memcpy(last, s->p + first * 64, s->n % 64);
    openai_classify(last, s->blocks, 1);
    s->count = 1;
}

static const struct openai_block *openai_block_at(struct openai_scan *s, size_t block)
{
    if (block - s->first >= s->count)
        openai_mark(s, block);
    return &s->blocks[block - s->first];
}

/* The bytes that a backslash makes ordinary. *carry: the first byte of this block, then of the next one. */
static uint64_t openai_escaped(uint64_t slash, uint64_t *carry)
{
    uint64_t escaped = *carry;

    slash &= ~*carry;
    *carry = 0;
    if ((slash & slash << 1) == 0) { /* no two in a row */
        *carry = slash >> 63;
        return escaped | slash << 1;
    }
    while (slash != 0) {
        unsigned i = (unsigned)__builtin_ctzll(slash);

        *carry = i == 63;
        escaped |= UINT64_C(1) << i << 1;
        slash &= ~(UINT64_C(3) << i);
    }
    return escaped;
}

/* Value of a hexadecimal digit, 16 for anything else. */
static unsigned openai_hex(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10u : 16u;
}

static bool openai_is_hex4(const unsigned char *p)
{
    return (openai_hex(p[0]) | openai_hex(p[1]) | openai_hex(p[2]) | openai_hex(p[3])) < 16;
}

/* The escapes of one block that are not single letters from the list. */
static bool openai_long_escapes(struct openai_scan *s, size_t base, uint64_t odd)
{
    for (; odd != 0; odd &= odd - 1) {
        size_t at = base + (size_t)__builtin_ctzll(odd);

        if (at >= s->n)
            return openai_fail(s, s->n, "string without its closing quote");
        if (s->p[at] != 'u')
            return openai_fail(s, at, "unknown escape in a string: expected one of \" \\ / b f n r t u");
        if (s->n - at < 5 || !openai_is_hex4(s->p + at + 1))
            return openai_fail(s, at, "bad escape in a string: expected four hexadecimal digits after \\u");
    }
    return true;
}

/* s->at is behind the opening quote; afterwards behind the closing one. */
static bool openai_string(struct openai_scan *s)
{
    uint64_t carry = 0, from = ~UINT64_C(0) << s->at % 64;

    for (size_t block = s->at / 64; block * 64 < s->n; block++, from = ~UINT64_C(0)) {
        const struct openai_block *b = openai_block_at(s, block);
        uint64_t escaped = openai_escaped(b->slash & from, &carry);
        uint64_t stop = ((b->quote & ~escaped) | b->control) & from;
        uint64_t inside = stop == 0 ? ~UINT64_C(0) : (stop & -stop) - 1;
        uint64_t odd = escaped & ~b->escape & inside;
        size_t end;

        if (odd != 0 && !openai_long_escapes(s, block * 64, odd))
            return false;
        if (stop == 0)
            continue;
        end = block * 64 + (size_t)__builtin_ctzll(stop);
        if (s->p[end] != '"')
            return openai_fail(s, end, "control byte in a string: it has to be escaped");
        s->at = end + 1;
        return true;
    }
    return openai_fail(s, s->n, "string without its closing quote");
}

static bool openai_literal(struct openai_scan *s, const char *word, size_t n)
{
    if (s->n - s->at < n || memcmp(s->p + s->at, word, n) != 0)
        return openai_fail(s, s->at, "unknown word: expected true, false or null");
    s->at += n;
    return true;
}

static size_t openai_digits(struct openai_scan *s)
{
    size_t start = s->at;

    while (s->at < s->n && s->p[s->at] >= '0' && s->p[s->at] <= '9')
        s->at++;
    return s->at - start;
}

static bool openai_next_is(const struct openai_scan *s, char a, char b)
{
    return s->at < s->n && (s->p[s->at] == (unsigned char)a || s->p[s->at] == (unsigned char)b);
}

static bool openai_number(struct openai_scan *s)
{
    size_t start = s->at, digits;
    bool zero;

    s->at += openai_next_is(s, '-', '-');
    zero = openai_next_is(s, '0', '0');
    digits = openai_digits(s);
    if (digits == 0 || (zero && digits > 1))
        return openai_fail(s, start, "bad number: expected digits without leading zeros");
    if (openai_next_is(s, '.', '.')) {
        s->at++;
        if (openai_digits(s) == 0)
            return openai_fail(s, start, "bad number: expected digits after the point");
    }
    if (openai_next_is(s, 'e', 'E')) {
        s->at++;
        s->at += openai_next_is(s, '+', '-');
        if (openai_digits(s) == 0)
            return openai_fail(s, start, "bad number: expected digits in the exponent");
    }
    return true;
}

static bool openai_in_object(const struct openai_scan *s)
{
    return (s->objects[(s->depth - 1) / 64] >> (s->depth - 1) % 64 & 1) != 0;
}

static bool openai_open(struct openai_scan *s, bool object)
{
    uint64_t bit = UINT64_C(1) << s->depth % 64;

    if (s->depth == OPENAI_MAX_DEPTH)
        return openai_fail(s, s->at, "arrays and objects nested more than 1024 deep");
    if (object)
        s->objects[s->depth / 64] |= bit;
    else
        s->objects[s->depth / 64] &= ~bit;
    s->depth++;
    s->at++;
    s->expect = object ? OPENAI_KEY_OR_CLOSE : OPENAI_VALUE_OR_CLOSE;
    return true;
}

static void openai_value_done(struct openai_scan *s)
{
    s->expect = s->depth == 0 ? OPENAI_END : OPENAI_COMMA_OR_CLOSE;
}

static void openai_close(struct openai_scan *s)
{
    s->depth--;
    s->at++;
    openai_value_done(s);
}

static bool openai_scalar(struct openai_scan *s)
{
    switch (s->p[s->at]) {
    case '"':
        s->at++;
        return openai_string(s);
    case 't':
        return openai_literal(s, "true", 4);
    case 'f':
        return openai_literal(s, "false", 5);
    case 'n':
        return openai_literal(s, "null", 4);
    default:
        if (s->p[s->at] != '-' && (s->p[s->at] < '0' || s->p[s->at] > '9'))
            return openai_fail(s, s->at,
                               "expected a value: object, array, string, number, true, false or null");
        return openai_number(s);
    }
}

/* The value of a top-level key that the router knows: p[start..s->at), or just its first byte for arrays and
 * objects. */
static void openai_note(struct openai_scan *s, size_t start)
{
    if (s->key == OPENAI_KEY_STREAM)
        s->stream = s->p[start] == 't';
    if (s->key == OPENAI_KEY_MODEL) {
        s->has_model = true;
        s->model_at = start;
        s->model_raw = (struct slice){NULL, 0};
        if (s->p[start] == '"')
            s->model_raw = (struct slice){(const char *)s->p + start, s->at - start};
    }
    s->key = OPENAI_KEY_OTHER;
}

static bool openai_value(struct openai_scan *s)
{
    size_t start = s->at;
    bool nested = s->p[start] == '{' || s->p[start] == '[';

    if (nested ? !openai_open(s, s->p[start] == '{') : !openai_scalar(s))
        return false;
    if (s->key != OPENAI_KEY_OTHER)
        openai_note(s, start);
    if (!nested)
        openai_value_done(s);
    return true;
}

static void openai_space(struct openai_scan *s)
{
    while (s->at < s->n && s->p[s->at] <= ' ' &&
           (s->p[s->at] == ' ' || s->p[s->at] == '\n' || s->p[s->at] == '\r' || s->p[s->at] == '\t'))
        s->at++;
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

static unsigned openai_hex4(const char *p)
{
    unsigned c = 0;

    for (int i = 0; i < 4; i++)
        c = c << 4 | openai_hex((unsigned char)p[i]);
    return c;
}

/* raw[*at] is the u of \uXXXX. False for NUL and half a surrogate pair. Leaves *at behind it. */
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
    *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
    *at += 6;
    return low >= 0xdc00 && low <= 0xdfff;
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

/* The next piece of raw at *at: plain text as it stands, or what one escape means, in code. p is NULL for an
 * escape that has no meaning. */
static struct slice openai_decode_piece(struct slice raw, size_t *at, char code[4])
{
    struct slice piece = {raw.p + *at, raw.n - *at};
    const char *slash = memchr(piece.p, '\\', piece.n);
    unsigned c;

    if (slash != piece.p) {
        piece.n = slash != NULL ? (size_t)(slash - piece.p) : piece.n;
        *at += piece.n;
        return piece;
    }
    (*at)++;
    if (!openai_decode_escape(raw, at, &c))
        return (struct slice){NULL, 0};
    return (struct slice){code, (size_t)(openai_utf8(code, c) - code)};
}

/* raw: the inside of a string that was validated. Returns NULL or what was wrong. */
static const char *openai_decode(struct slice raw, char *out, size_t max, size_t *n)
{
    char code[4];

    *n = 0;
    for (size_t at = 0; at < raw.n;) {
        struct slice piece = openai_decode_piece(raw, &at, code);

        if (piece.p == NULL)
            return "model name with a NUL or half a surrogate pair";
        if (piece.n > max - *n)
            return "model name longer than 1024 bytes";
        memcpy(out + *n, piece.p, piece.n);
        *n += piece.n;
    }
    return NULL;
}

/* ---- keys ---- */

static enum openai_key openai_key_of(struct slice raw)
{
    char plain[6];
    size_t n;

    if (raw.n > 6 * sizeof(plain) || raw.n < 5)
        return OPENAI_KEY_OTHER;
    if (memchr(raw.p, '\\', raw.n) != NULL) {
        if (openai_decode(raw, plain, sizeof(plain), &n) != NULL)
            return OPENAI_KEY_OTHER;
        raw = (struct slice){plain, n};
    }
    if (slice_eq(raw, SLICE("model")))
        return OPENAI_KEY_MODEL;
    return slice_eq(raw, SLICE("stream")) ? OPENAI_KEY_STREAM : OPENAI_KEY_OTHER;
}

/* A key with its colon. */
static bool openai_member(struct openai_scan *s)
{
    size_t start = s->at + 1;

    if (s->p[s->at] != '"')
        return openai_fail(s, s->at, "expected a key in quotes");
    s->at = start;
    if (!openai_string(s))
        return false;
    if (s->depth == 1)
        s->key = openai_key_of((struct slice){(const char *)s->p + start, s->at - 1 - start});
    openai_space(s);
    if (!openai_next_is(s, ':', ':'))
        return openai_fail(s, s->at, "expected a colon after the key");
    s->at++;
    s->expect = OPENAI_VALUE;
    return true;
}

static bool openai_comma_or_close(struct openai_scan *s)
{
    bool object = openai_in_object(s);

    if (s->p[s->at] == (object ? '}' : ']')) {
        openai_close(s);
        return true;
    }
    if (s->p[s->at] != ',')
        return openai_fail(s, s->at,
                           object ? "expected a comma or } after a member"
                                  : "expected a comma or ] after an element");
    s->at++;
    s->expect = object ? OPENAI_KEY : OPENAI_VALUE;
    return true;
}

/* One token; s->at is on its first byte. */
static bool openai_step(struct openai_scan *s)
{
    switch (s->expect) {
    case OPENAI_VALUE_OR_CLOSE:
        if (s->p[s->at] == ']') {
            openai_close(s);
            return true;
        }
        return openai_value(s);
    case OPENAI_VALUE:
        return openai_value(s);
    case OPENAI_KEY_OR_CLOSE:
        if (s->p[s->at] == '}') {
            openai_close(s);
            return true;
        }
        return openai_member(s);
    case OPENAI_KEY:
        return openai_member(s);
    case OPENAI_COMMA_OR_CLOSE:
        return openai_comma_or_close(s);
    default:
        return openai_fail(s, s->at, "more text after the end of the JSON value");
    }
}

static bool openai_run(struct openai_scan *s)
{
    for (openai_space(s); s->at < s->n; openai_space(s)) {
        if (!openai_step(s))
            return false;
    }
    if (s->expect != OPENAI_END)
        return openai_fail(
            s, s->n, s->n == 0 ? "empty: expected a JSON object" : "ends in the middle of a JSON value");
    return true;
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

    if (!s->has_model)
        return openai_verdict(out, OPENAI_NO_MODEL, 0, "no \"model\" in the request body");
    if (s->model_raw.n == 0)
        return openai_verdict(out, OPENAI_BAD_MODEL, s->model_at, "\"model\" is not a string");
    inside = (struct slice){s->model_raw.p + 1, s->model_raw.n - 2};
    error = openai_decode(inside, out->model, OPENAI_MODEL_MAX, &out->model_n);
    if (error == NULL && openai_is_blank((struct slice){out->model, out->model_n}))
        error = "\"model\" is empty";
    if (error != NULL) {
        out->model_n = 0;
        out->model[0] = '\0';
        return openai_verdict(out, OPENAI_BAD_MODEL, s->model_at, error);
    }
    out->model[out->model_n] = '\0';
    out->model_raw = s->model_raw;
    return openai_verdict(out, OPENAI_OK, 0, NULL);
}

enum openai_verdict openai_inspect(struct slice body, struct openai_body *out)
{
    struct openai_scan s;

    s.p = (const unsigned char *)body.p;
    s.n = body.n;
    s.at = s.depth = s.first = s.count = s.model_at =
        0; /* blocks and objects are written before they are read */
    s.expect = OPENAI_VALUE;
    s.key = OPENAI_KEY_OTHER;
    s.has_model = s.stream = false;
    s.model_raw = out->model_raw = (struct slice){NULL, 0};
    out->model[0] = '\0';
    out->model_n = 0;
    out->stream = false;
    if (!openai_run(&s))
        return openai_verdict(out, OPENAI_NOT_JSON, s.at, s.error);
    out->stream = s.stream;
    s.at = 0;
    openai_space(&s);
    if (s.p[s.at] != '{')
        return openai_verdict(out, OPENAI_NOT_OBJECT, s.at, "not an object: expected { ... }");
    return openai_take_model(&s, out);
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
