/* http1: one HTTP/1.x message. A head is read line by line as it arrives: line ends and control bytes first,
 * then what the line says; the rules about framing, Host and versions follow when the head is complete. At
 * the end of this file: the decoder for chunked bodies. What to do with a message is not decided here.
 *
 * There is no llhttp in here: with it, heads took 60 % of the instructions of a small request, and its
 * grammar is not strict enough on its own. It is the reference instead: the fuzz target has everything that
 * is accepted here read by llhttp too. */
#include "http1.h"
#include "headers.h"
#include "mem.h"

#include <assert.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* What names, methods and trailers are made of (RFC 9110 5.6.2: token), and what stands in host names,
 * addresses and ports (RFC 3986 3.2.2) but for the comma. */
#define HTTP1_IN_TOKEN 1
#define HTTP1_IN_HOST  2

static const uint8_t http1_class[256] = {
    ['!'] = 3, ['#'] = 1, ['$'] = 3, ['%'] = 3, ['&'] = 3, ['\''] = 3, ['('] = 2, [')'] = 2, ['*'] = 3,
    ['+'] = 3, ['-'] = 3, ['.'] = 3, ['0'] = 3, ['1'] = 3, ['2'] = 3,  ['3'] = 3, ['4'] = 3, ['5'] = 3,
    ['6'] = 3, ['7'] = 3, ['8'] = 3, ['9'] = 3, [':'] = 2, [';'] = 2,  ['='] = 2, ['A'] = 3, ['B'] = 3,
    ['C'] = 3, ['D'] = 3, ['E'] = 3, ['F'] = 3, ['G'] = 3, ['H'] = 3,  ['I'] = 3, ['J'] = 3, ['K'] = 3,
    ['L'] = 3, ['M'] = 3, ['N'] = 3, ['O'] = 3, ['P'] = 3, ['Q'] = 3,  ['R'] = 3, ['S'] = 3, ['T'] = 3,
    ['U'] = 3, ['V'] = 3, ['W'] = 3, ['X'] = 3, ['Y'] = 3, ['Z'] = 3,  ['['] = 2, [']'] = 2, ['^'] = 1,
    ['_'] = 3, ['`'] = 1, ['a'] = 3, ['b'] = 3, ['c'] = 3, ['d'] = 3,  ['e'] = 3, ['f'] = 3, ['g'] = 3,
    ['h'] = 3, ['i'] = 3, ['j'] = 3, ['k'] = 3, ['l'] = 3, ['m'] = 3,  ['n'] = 3, ['o'] = 3, ['p'] = 3,
    ['q'] = 3, ['r'] = 3, ['s'] = 3, ['t'] = 3, ['u'] = 3, ['v'] = 3,  ['w'] = 3, ['x'] = 3, ['y'] = 3,
    ['z'] = 3, ['|'] = 1, ['~'] = 3,
};

static bool http1_is_token(char c)
{
    return (http1_class[(unsigned char)c] & HTTP1_IN_TOKEN) != 0;
}

/* Each option of Connection is looked for among all fields, so their number is kept small. */
#define HTTP1_MAX_OPTIONS 32

#define HTTP1_SPARE_HEADS 4

/* For what has to be compiled into its callers: a search for one kind of byte. */
#define HTTP1_INLINE static inline __attribute__((always_inline))

/* Kept out of the loop over lines, which then lives in registers. */
#define HTTP1_APART __attribute__((noinline))

static struct http1_head *http1_spare[HTTP1_SPARE_HEADS];
static size_t http1_n_spare;

struct http1_head *http1_head_new(void)
{
    return http1_n_spare > 0 ? http1_spare[--http1_n_spare] : mem_alloc(sizeof(struct http1_head));
}

void http1_head_free(struct http1_head *h)
{
    if (h != NULL && http1_n_spare < HTTP1_SPARE_HEADS)
        http1_spare[http1_n_spare++] = h;
    else
        mem_free(h);
}

static ssize_t http1_fail(struct http1 *h, enum http1_error error, const char *reason)
{
    h->error = error;
    h->reason = reason;
    return -1;
}

void http1_start(struct http1 *h, enum http1_kind kind, struct http1_head *head, size_t max_head_bytes,
                 bool head_request)
{
    assert(max_head_bytes < UINT32_MAX);
    *h = (struct http1){
        .kind = kind, .head = head, .max_head_bytes = (uint32_t)max_head_bytes, .head_request = head_request};
    memset(head, 0, offsetof(struct http1_head, first));
}

size_t http1_skip_blank(const char *data, size_t n)
{
    size_t at = 0;

    while (at < 8 && n - at >= 2 && data[at] == '\r' && data[at + 1] == '\n')
        at += 2;
    return at;
}

struct slice http1_find_name(const struct http1_head *h, struct slice name)
{
    for (size_t i = 0; i < h->n_fields; i++) {
        if (h->fields[i].name_n == name.n && slice_ieq(http1_name(h, &h->fields[i]), name))
            return http1_value(h, &h->fields[i]);
    }
    return (struct slice){NULL, 0};
}

/* ---- searching ---- */

/* Each kind of byte that is searched for has two forms, which say the same of every byte: the second one by
 * its top bit. */
typedef bool http1_kind_fn(char c);
#ifdef __SSE2__
typedef __m128i http1_kind_sse2_fn(__m128i v);

HTTP1_INLINE unsigned http1_bits_sse2(const char *p, http1_kind_sse2_fn *kind)
{
    return (unsigned)_mm_movemask_epi8(kind(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* Moved to where `last` is the largest number with a sign, what is not first..last is below `first`. */
HTTP1_INLINE __m128i http1_is_outside(__m128i v, char first, char last)
{
    const char move = (char)(0x7f - last);

    return _mm_subs_epi8(_mm_add_epi8(v, _mm_set1_epi8(move)), _mm_set1_epi8((char)(first + move)));
}

HTTP1_INLINE __m128i http1_equals(__m128i v, char c)
{
    return _mm_cmpeq_epi8(v, _mm_set1_epi8(c));
}

#define HTTP1_KIND(name) name, name##_sse2
#else
typedef void http1_kind_sse2_fn(void);

#define HTTP1_KIND(name) name, NULL
#endif

/* Bit i: base[at + i] is of that kind. Of 16 bytes, or as many as there are before `end`: these are looked at
 * together with those before them. */
HTTP1_INLINE unsigned http1_bits(const char *base, size_t at, size_t end, http1_kind_fn *kind,
                                 http1_kind_sse2_fn *kind_sse2)
{
    unsigned bits = 0;

#ifdef __SSE2__
    if (end - at >= 16)
        return http1_bits_sse2(base + at, kind_sse2);
    if (end >= 16)
        return http1_bits_sse2(base + end - 16, kind_sse2) >> (16 - (end - at));
#else
    (void)kind_sse2;
#endif
    for (unsigned i = 0; i < 16 && at + i < end; i++)
        bits |= (unsigned)kind(base[at + i]) << i;
    return bits;
}

/* The same as http1_bits, of 64 bytes. */
HTTP1_INLINE uint64_t http1_bits64(const char *base, size_t at, size_t end, http1_kind_fn *kind,
                                   http1_kind_sse2_fn *kind_sse2)
{
    uint64_t bits = 0;

#ifdef __SSE2__
    if (end - at >= 64)
        return (uint64_t)http1_bits_sse2(base + at, kind_sse2) |
               (uint64_t)http1_bits_sse2(base + at + 16, kind_sse2) << 16 |
               (uint64_t)http1_bits_sse2(base + at + 32, kind_sse2) << 32 |
               (uint64_t)http1_bits_sse2(base + at + 48, kind_sse2) << 48;
#endif
    for (unsigned i = 0; i < 64 && at + i < end; i += 16)
        bits |= (uint64_t)http1_bits(base, at + i, end, kind, kind_sse2) << i;
    return bits;
}

/* The first byte of that kind in base[at..end), end when there is none. */
HTTP1_INLINE size_t http1_search(const char *base, size_t at, size_t end, http1_kind_fn *kind,
                                 http1_kind_sse2_fn *kind_sse2)
{
    for (; at < end; at += 16) {
        unsigned bits = http1_bits(base, at, end, kind, kind_sse2);

        if (bits != 0)
            return at + (unsigned)__builtin_ctz(bits);
    }
    return end;
}

static bool http1_is_blank(char c)
{
    return c == ' ' || c == '	';
}

/* Control bytes, line ends among them. That bytes outside of ASCII are found, too, makes it cheaper. */
HTTP1_INLINE bool http1_is_no_text(char c)
{
    return c < ' ' || c > '~';
}

/* What must not stand in a request target. */
HTTP1_INLINE bool http1_is_no_target(char c)
{
    return c <= ' ' || c > '~' || c == '#';
}

/* What is unusual in a field's name: they mostly are letters and hyphens. */
HTTP1_INLINE bool http1_is_no_word(char c)
{
    char lower = (char)(c | 0x20);

    return (lower < 'a' || lower > 'z') && c != '-';
}

/* And in a host with its port: letters, digits, hyphens, dots and the colon stand there mostly. */
HTTP1_INLINE bool http1_is_no_host(char c)
{
    return http1_is_no_word(c) && (c < '.' || c > ':' || c == '/');
}

#ifdef __SSE2__
HTTP1_INLINE __m128i http1_is_no_text_sse2(__m128i v)
{
    return http1_is_outside(v, ' ', '~');
}

HTTP1_INLINE __m128i http1_is_no_target_sse2(__m128i v)
{
    return _mm_or_si128(http1_is_outside(v, '!', '~'), http1_equals(v, '#'));
}

HTTP1_INLINE __m128i http1_is_no_word_sse2(__m128i v)
{
    const __m128i lower = _mm_or_si128(v, _mm_set1_epi8(0x20));

    return _mm_andnot_si128(http1_equals(v, '-'), http1_is_outside(lower, 'a', 'z'));
}

HTTP1_INLINE __m128i http1_is_no_host_sse2(__m128i v)
{
    const __m128i other = _mm_or_si128(http1_is_outside(v, '.', ':'), http1_equals(v, '/'));

    return _mm_and_si128(http1_is_no_word_sse2(v), other);
}
#endif

/* ---- the first line ---- */

/* "HTTP/1.0" or "HTTP/1.1"; the rest of a longer or shorter word is wrong. */
static bool http1_is_version(struct slice word, unsigned *minor)
{
    if (word.n != 8 || memcmp(word.p, "HTTP/1.", 7) != 0 || (word.p[7] != '0' && word.p[7] != '1'))
        return false;
    *minor = (unsigned)(word.p[7] - '0');
    return true;
}

static bool http1_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* `host` is a part of the head. */
static bool http1_is_host(const struct http1_head *head, struct slice host)
{
    size_t at = (size_t)(host.p - head->base), end = at + host.n;

    at = http1_search(head->base, at, end, HTTP1_KIND(http1_is_no_host));
    while (at < end && (http1_class[(unsigned char)head->base[at]] & HTTP1_IN_HOST) != 0)
        at++;
    return at == end;
}

/* The authority of an absolute-form target, {NULL, 0} for any other form. */
static struct slice http1_authority(struct slice target)
{
    size_t scheme = 0, end;

    if (target.n > 0 && target.p[0] == '/')
        return (struct slice){NULL, 0};
    if (target.n > 7 && strncasecmp(target.p, "http://", 7) == 0)
        scheme = 7;
    else if (target.n > 8 && strncasecmp(target.p, "https://", 8) == 0)
        scheme = 8;
    if (scheme == 0)
        return (struct slice){NULL, 0};
    for (end = scheme; end < target.n && target.p[end] != '/' && target.p[end] != '?';)
        end++;
    return (struct slice){target.p + scheme, end - scheme};
}

/* The methods of APIs. CONNECT would make a tunnel, TRACE would send credentials back, and nobody needs the
 * others. */
static bool http1_is_method(struct slice word)
{
    switch (word.n) {
    case 3:
        return memcmp(word.p, "GET", 3) == 0 || memcmp(word.p, "PUT", 3) == 0;
    case 4:
        return memcmp(word.p, "POST", 4) == 0 || memcmp(word.p, "HEAD", 4) == 0;
    case 5:
        return memcmp(word.p, "PATCH", 5) == 0;
    case 6:
        return memcmp(word.p, "DELETE", 6) == 0;
    case 7:
        return memcmp(word.p, "OPTIONS", 7) == 0;
    default:
        return false;
    }
}

static ssize_t http1_check_method(struct http1 *h, struct slice method)
{
    if (http1_is_method(method))
        return 0;
    for (size_t i = 0; i < method.n; i++) {
        if (!http1_is_token(method.p[i]))
            return http1_fail(h, HTTP1_BAD, "not a request line: expected METHOD TARGET HTTP/1.1");
    }
    return http1_fail(h, HTTP1_UNSUPPORTED,
                      "method not supported: expected GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS");
}

static ssize_t http1_check_target(struct http1 *h, struct slice method, struct slice target)
{
    if (http1_search(target.p, 0, target.n, HTTP1_KIND(http1_is_no_target)) < target.n)
        return http1_fail(h, HTTP1_BAD,
                          "space, fragment or byte outside of ASCII in the request target: it has to be "
                          "percent-encoded");
    if (target.n > 0 && target.p[0] == '/')
        return 0;
    if (slice_eq(target, SLICE("*")) && slice_eq(method, SLICE("OPTIONS")))
        return 0;
    if (http1_authority(target).n == 0 || !http1_is_host(h->head, http1_authority(target)))
        return http1_fail(
            h, HTTP1_BAD,
            "bad request target: expected a path that starts with / or an http:// URL with a host");
    return 0;
}

/* What is wrong with base[0..n), which is not METHOD TARGET VERSION. */
static ssize_t http1_no_request_line(struct http1 *h, const char *base, size_t n)
{
    const char *first = memchr(base, ' ', n);
    const char *last = n > 0 ? memrchr(base, ' ', n) : NULL;
    struct slice version;

    if (first == NULL || first == base)
        return http1_fail(h, HTTP1_BAD, "not a request line: expected METHOD TARGET HTTP/1.1");
    version = (struct slice){last + 1, n - (size_t)(last + 1 - base)};
    if (http1_is_version(version, &h->head->minor))
        return http1_fail(h, HTTP1_BAD, "request line without a target: expected METHOD TARGET HTTP/1.1");
    if (first == last || slice_starts(version, SLICE("HTTP/")))
        return http1_fail(h, HTTP1_VERSION,
                          "wrong HTTP version in the request line: expected HTTP/1.1 or HTTP/1.0");
    return http1_fail(h, HTTP1_BAD,
                      "request line does not end with its version: expected METHOD TARGET HTTP/1.1");
}

/* base[0..n) without the CRLF. */
static ssize_t http1_request_line(struct http1 *h, const char *base, size_t n)
{
    struct http1_head *head = h->head;
    size_t first = 0, last = n - 9; /* where the spaces before the target and the version are */

    if (n < 10 || base[last] != ' ' || !http1_is_version((struct slice){base + last + 1, 8}, &head->minor))
        return http1_no_request_line(h, base, n);
    while (base[first] != ' ')
        first++;
    if (first == last || first == 0)
        return http1_no_request_line(h, base, n);
    head->method_n = (uint32_t)first;
    head->target = head->method_n + 1;
    head->target_n = (uint32_t)last - head->target;
    if (http1_check_method(h, http1_method(head)) < 0)
        return -1;
    return http1_check_target(h, http1_method(head), http1_target(head));
}

static ssize_t http1_status_line(struct http1 *h, const char *base, size_t n)
{
    unsigned status;

    if (n < 5 || memcmp(base, "HTTP/", 5) != 0)
        return http1_fail(h, HTTP1_BAD, "not a status line: expected HTTP/1.1 CODE REASON");
    if (n < 9 || base[8] != ' ' || !http1_is_version((struct slice){base, 8}, &h->head->minor))
        return http1_fail(h, HTTP1_VERSION,
                          "wrong HTTP version in the status line: expected HTTP/1.1 or HTTP/1.0");
    if (n < 12 || !http1_is_digit(base[9]) || !http1_is_digit(base[10]) || !http1_is_digit(base[11]) ||
        (n > 12 && base[12] != ' '))
        return http1_fail(h, HTTP1_BAD, "bad status code: expected three digits");
    status = (unsigned)(base[9] - '0') * 100 + (unsigned)(base[10] - '0') * 10 + (unsigned)(base[11] - '0');
    if (status < 100 || status > 599)
        return http1_fail(h, HTTP1_BAD, "bad status code: expected 100 to 599");
    if (status == 101)
        return http1_fail(h, HTTP1_BAD, "101 Switching Protocols: nobody asked for it");
    h->head->status = status;
    h->head->reason = n > 13 ? 13 : (uint32_t)n;
    h->head->reason_n = (uint32_t)n - h->head->reason;
    return 0;
}

HTTP1_APART static ssize_t http1_first_line(struct http1 *h, const char *base, size_t n)
{
    return h->kind == HTTP1_REQUEST ? http1_request_line(h, base, n) : http1_status_line(h, base, n);
}

/* ---- fields ---- */

/* Inside a line, where tabs are the only control bytes. */
HTTP1_INLINE bool http1_is_inner_blank(char c)
{
    return (unsigned char)c <= ' ';
}

static void http1_note_field(struct http1_head *head, unsigned id)
{
    const uint32_t bit = UINT32_C(1) << id;

    if (http1_has(head, id))
        head->repeats |= bit;
    else
        head->first[id] = (uint8_t)head->n_fields;
    head->has |= bit;
    head->n_fields++;
}

/* base[at..end) is a line without its CRLF: NAME: VALUE. The CR stops what is searched for, up to
 * base[readable). */
HTTP1_INLINE ssize_t http1_field_line(struct http1 *h, const char *base, size_t at, size_t end,
                                      size_t readable)
{
    struct http1_head *head = h->head;
    struct http1_field *field = &head->fields[head->n_fields];
    size_t colon = http1_search(base, at, readable, HTTP1_KIND(http1_is_no_word)), value;

    while (base[colon] != ':' && http1_is_token(base[colon]))
        colon++;
    if (colon == at || base[colon] != ':')
        return http1_fail(h, HTTP1_BAD, "bad field: expected NAME: VALUE, no white space before the colon");
    if (head->n_fields == HTTP1_MAX_FIELDS || colon - at > UINT16_MAX)
        return http1_fail(h, HTTP1_HEAD_TOO_LARGE,
                          "more than 128 fields in the head, or a name longer than 65535 bytes");
    for (value = colon + 1; value < end && http1_is_inner_blank(base[value]);)
        value++;
    while (end > value && http1_is_inner_blank(base[end - 1]))
        end--;
    field->name = (uint32_t)at;
    field->name_n = (uint16_t)(colon - at);
    field->value = (uint32_t)value;
    field->value_n = (uint32_t)(end - value);
    field->id = (uint8_t)headers_id((struct slice){base + at, colon - at});
    http1_note_field(head, field->id);
    return 0;
}

/* ---- lines ---- */

/* base[line..at) is a line without its CRLF. Returns as http1_head. */
HTTP1_INLINE ssize_t http1_line(struct http1 *h, const char *base, size_t line, size_t at, size_t readable)
{
    if (line == 0)
        return http1_first_line(h, base, at);
    if (at == line)
        return (ssize_t)at + 2;
    return http1_field_line(h, base, line, at, readable);
}

/* The byte is no text of ASCII, and no line's end. Every line has to end with CR LF and nothing else: some
 * servers take a lone CR for the end of a field (CVE-2023-30589), some a lone LF. */
HTTP1_APART static ssize_t http1_no_text(struct http1 *h, char c)
{
    if ((c & 0x80) != 0)
        return 0;
    if (c == '\r')
        return http1_fail(h, HTTP1_BAD, "CR without LF in the head: lines end with CR LF");
    if (c == '\n')
        return http1_fail(h, HTTP1_BAD, "LF without CR in the head: lines end with CR LF");
    if (c != '\t' || h->line == 0)
        return http1_fail(h, HTTP1_BAD, "control byte in the head: expected text");
    return 0;
}

/* From one byte that is no text to the next in base[h->parsed..end). */
static ssize_t http1_scan_lines(struct http1 *h, const char *base, size_t end)
{
    size_t line = h->line;

    for (size_t block = h->parsed; block < end; block += 64) {
        uint64_t bits = http1_bits64(base, block, end, HTTP1_KIND(http1_is_no_text));

        if (block < line)
            bits &= bits - 1; /* the LF of the last line of the block before */
        for (; bits != 0; bits &= bits - 1) {
            const size_t at = block + (unsigned)__builtin_ctzll(bits);
            const bool ends = base[at] == '\r' && base[at + 1] == '\n'; /* a CR is not the last byte */
            const ssize_t n = ends ? http1_line(h, base, line, at, end) : http1_no_text(h, base[at]);

            if (n != 0)
                return n;
            if (!ends)
                continue;
            h->line = line = at + 2;
            bits &= bits - 1; /* the LF, if it is in this block */
        }
    }
    h->parsed = end;
    return 0;
}

/* Looks at what is new of base[0..end). Returns as http1_head. */
static ssize_t http1_scan(struct http1 *h, const char *base, size_t end)
{
    /* A CR at the end waits for what follows it. */
    ssize_t n = http1_scan_lines(h, base, end > 0 && base[end - 1] == '\r' ? end - 1 : end);

    /* Whatever else is wrong with such a line, and even if it is not complete. */
    if (n <= 0 && h->line > 0 && h->line < end && http1_is_blank(base[h->line]))
        return http1_fail(h, HTTP1_BAD,
                          "a line of the head starts with white space (folded fields are obsolete)");
    return n;
}

/* ---- what the fields mean ---- */

static bool http1_repeats(const struct http1_head *head, enum header_id id)
{
    return (head->repeats >> id & 1) != 0;
}

/* The options of all Connection fields. */
struct http1_options {
    unsigned n;
    bool close, keep_alive, other;
};

static void http1_add_options(struct http1_options *o, struct slice list)
{
    while (list.p != NULL) {
        struct slice token = slice_trim(slice_cut(&list, ','));
        bool close = slice_ieq(token, SLICE("close")), keep_alive = slice_ieq(token, SLICE("keep-alive"));

        o->n++;
        o->close |= close;
        o->keep_alive |= keep_alive;
        o->other |= token.n > 0 && !close && !keep_alive;
    }
}

static ssize_t http1_check_connection(struct http1 *h)
{
    struct http1_options o = {0};
    struct http1_head *head = h->head;

    for (size_t i = 0; http1_has(head, HEADER_CONNECTION) && i < head->n_fields; i++) {
        if (head->fields[i].id == HEADER_CONNECTION)
            http1_add_options(&o, http1_value(head, &head->fields[i]));
    }
    if (o.n > HTTP1_MAX_OPTIONS)
        return http1_fail(h, HTTP1_BAD, "more than 32 options in Connection");
    head->keep_alive = !o.close && (head->minor > 0 || o.keep_alive);
    head->names_fields = o.other;
    return 0;
}

/* Up to 19 digits: no sign, no list, nothing that could overflow on the way. */
static bool http1_length(struct slice text, uint64_t *length)
{
    uint64_t n = 0;

    if (text.n == 0 || text.n > 19)
        return false;
    for (const char *p = text.p, *end = p + text.n; p < end; p++) {
        const unsigned digit = (unsigned)*p - '0';

        if (digit > 9)
            return false;
        n = n * 10 + digit;
    }
    *length = n;
    return n <= INT64_MAX;
}

static ssize_t http1_check_framing(struct http1 *h)
{
    struct http1_head *head = h->head;
    bool sized = http1_has(head, HEADER_CONTENT_LENGTH), coded = http1_has(head, HEADER_TRANSFER_ENCODING);

    if (http1_repeats(head, HEADER_CONTENT_LENGTH) || (sized && coded))
        return http1_fail(h, HTTP1_BAD,
                          "Content-Length given twice or with Transfer-Encoding: expected one of them, once");
    if (http1_repeats(head, HEADER_TRANSFER_ENCODING) ||
        (coded && !slice_ieq(http1_find(head, HEADER_TRANSFER_ENCODING), SLICE("chunked"))))
        return http1_fail(h, HTTP1_UNSUPPORTED, "Transfer-Encoding: expected chunked and nothing else");
    if (coded && head->minor == 0)
        return http1_fail(h, HTTP1_BAD, "Transfer-Encoding in HTTP/1.0, which does not have it");
    if (sized && !http1_length(http1_find(head, HEADER_CONTENT_LENGTH), &head->content_length))
        return http1_fail(h, HTTP1_BAD, "bad Content-Length: expected digits, at most 9223372036854775807");
    head->framing = coded ? HTTP1_CHUNKED : sized ? HTTP1_SIZED : HTTP1_NO_BODY;
    return 0;
}

/* Without a port that says what the scheme says anyway. */
static struct slice http1_plain_authority(struct slice authority, struct slice port)
{
    if (authority.n > port.n && memcmp(authority.p + authority.n - port.n, port.p, port.n) == 0)
        authority.n -= port.n;
    return authority;
}

/* Or the target has none, as nearly always. */
static bool http1_same_authority(struct slice target, struct slice host)
{
    struct slice authority, port;

    if (target.p[0] == '/')
        return true;
    authority = http1_authority(target);
    if (authority.n == 0)
        return true;
    port = (target.p[4] | 0x20) == 's' ? SLICE(":443") : SLICE(":80");
    return slice_ieq(http1_plain_authority(authority, port), http1_plain_authority(host, port));
}

static ssize_t http1_check_host(struct http1 *h)
{
    const struct http1_head *head = h->head;
    const struct slice host = http1_find(head, HEADER_HOST);

    if (host.p == NULL && head->minor > 0)
        return http1_fail(h, HTTP1_BAD, "no Host field, which HTTP/1.1 requires");
    if (http1_repeats(head, HEADER_HOST))
        return http1_fail(h, HTTP1_BAD, "several Host fields: expected one");
    if (host.p != NULL && !http1_is_host(head, host))
        return http1_fail(h, HTTP1_BAD, "bad Host field: expected NAME or NAME:PORT");
    if (host.p != NULL && !http1_same_authority(http1_target(head), host))
        return http1_fail(h, HTTP1_BAD, "the host of the request target differs from the Host field");
    return 0;
}

static ssize_t http1_finish_request(struct http1 *h)
{
    struct http1_head *head = h->head;

    if (http1_check_host(h) < 0)
        return -1;
    head->expect_continue = head->minor > 0 && head->framing != HTTP1_NO_BODY &&
                            slice_ieq(http1_find(head, HEADER_EXPECT), SLICE("100-continue"));
    return 0;
}

static void http1_finish_response(struct http1 *h)
{
    struct http1_head *head = h->head;
    bool never = head->status < 200 || head->status == 204;

    /* Who announces a body where there can be none may also send one: that connection is not used again. */
    if (never && (head->framing == HTTP1_CHUNKED || head->content_length > 0))
        head->keep_alive = false;
    if (never || head->status == 304 || h->head_request)
        head->framing = HTTP1_NO_BODY;
    else if (head->framing == HTTP1_NO_BODY)
        head->framing = HTTP1_UNTIL_CLOSE;
    if (head->framing == HTTP1_UNTIL_CLOSE)
        head->keep_alive = false;
}

static ssize_t http1_finish_head(struct http1 *h, size_t n)
{
    struct http1_head *head = h->head;

    head->bytes = n;
    if (http1_check_connection(h) < 0 || http1_check_framing(h) < 0)
        return -1;
    if (h->kind == HTTP1_RESPONSE)
        http1_finish_response(h);
    else if (http1_finish_request(h) < 0)
        return -1;
    h->framing = head->framing;
    h->remaining = head->framing == HTTP1_SIZED ? head->content_length : 0;
    h->done = head->framing == HTTP1_NO_BODY || (head->framing == HTTP1_SIZED && h->remaining == 0);
    h->head_complete = true;
    return (ssize_t)n;
}

/* The line never ended; what there is of it is kept for the log. */
static ssize_t http1_target_too_long(struct http1 *h, const char *base, size_t n)
{
    const char *space = memchr(base, ' ', n);

    if (space != NULL) {
        h->head->method_n = (uint32_t)(space - base);
        h->head->target = h->head->method_n + 1;
        h->head->target_n = (uint32_t)n - h->head->target;
    }
    return http1_fail(h, HTTP1_TARGET_TOO_LONG, "the request line is longer than the limit for a head");
}

ssize_t http1_head(struct http1 *h, const char *base, size_t have)
{
    size_t end = have < h->max_head_bytes ? have : h->max_head_bytes;
    ssize_t n;

    assert(!h->head_complete && h->error == HTTP1_OK);
    h->head->base = base;
    n = http1_scan(h, base, end);
    if (n > 0)
        return http1_finish_head(h, (size_t)n);
    if (n < 0 || have < h->max_head_bytes)
        return n;
    if (h->kind == HTTP1_REQUEST && h->line == 0)
        return http1_target_too_long(h, base, end);
    return http1_fail(h, HTTP1_HEAD_TOO_LARGE, "the head is larger than the limit");
}

/* ---- chunked bodies ---- */

enum {
    HTTP1_CHUNK_SIZE, /* hex digits */
    HTTP1_CHUNK_EXTENSION,
    HTTP1_CHUNK_SIZE_LF,
    HTTP1_CHUNK_DATA,
    HTTP1_CHUNK_DATA_CR,
    HTTP1_CHUNK_DATA_LF,
    HTTP1_CHUNK_TRAILER, /* start of a line */
    HTTP1_CHUNK_TRAILER_NAME,
    HTTP1_CHUNK_TRAILER_VALUE,
    HTTP1_CHUNK_TRAILER_LF,
    HTTP1_CHUNK_END_LF
};

/* Each one more than it is worth. */
static const uint8_t http1_hex_digits[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
    ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
};

/* -1: none. */
static int http1_hex(char c)
{
    return http1_hex_digits[(unsigned char)c] - 1;
}

/* The steps return NULL, or the reason of an error, and then nothing has changed. */
static const char *http1_chunk_go(struct http1 *h, uint8_t state)
{
    h->chunk_state = state;
    return NULL;
}

static const char *http1_chunk_size(struct http1 *h, char c)
{
    int digit = http1_hex(c);

    if (digit >= 0) {
        if (h->chunk_digits == 16 || h->remaining > INT64_MAX >> 4)
            return "chunk size too large: expected at most 7fffffffffffffff";
        h->chunk_digits++;
        h->remaining = h->remaining << 4 | (uint64_t)digit;
        return NULL;
    }
    if (h->chunk_digits == 0)
        return "chunk without a size: expected hexadecimal digits";
    if (c == '\r')
        return http1_chunk_go(h, HTTP1_CHUNK_SIZE_LF);
    if (c == ';')
        return http1_chunk_go(h, HTTP1_CHUNK_EXTENSION);
    return "bad chunk size: expected hexadecimal digits and CR LF";
}

/* A byte of an extension or trailer, dropped; CR leads on. */
static const char *http1_chunk_extra(struct http1 *h, char c, uint8_t after_cr)
{
    if (c == '\r')
        return http1_chunk_go(h, after_cr);
    if (c != '\t' && ((unsigned char)c < 0x20 || c == 0x7f))
        return "control byte in a chunk extension or trailer: lines end with CR LF";
    if (h->extra_bytes == HTTP1_MAX_EXTRA_BYTES)
        return "more than 8192 bytes of chunk extensions and trailers";
    h->extra_bytes++;
    return NULL;
}

static const char *http1_chunk_trailer(struct http1 *h, char c)
{
    bool start = h->chunk_state == HTTP1_CHUNK_TRAILER;
    const char *reason;

    if (start && c == '\r')
        return http1_chunk_go(h, HTTP1_CHUNK_END_LF);
    if (c != ':' && !http1_is_token(c))
        return "bad trailer: expected NAME: VALUE or an empty line after the last chunk";
    if (start && c == ':')
        return "trailer without a name: expected NAME: VALUE";
    reason = http1_chunk_extra(h, c, 0);
    if (reason == NULL)
        h->chunk_state = c == ':' ? HTTP1_CHUNK_TRAILER_VALUE : HTTP1_CHUNK_TRAILER_NAME;
    return reason;
}

static const char *http1_chunk_lf(struct http1 *h, char c)
{
    if (c != '\n')
        return "CR without LF in a chunked body: lines end with CR LF";
    switch (h->chunk_state) {
    case HTTP1_CHUNK_SIZE_LF:
        return http1_chunk_go(h, h->remaining == 0 ? HTTP1_CHUNK_TRAILER : HTTP1_CHUNK_DATA);
    case HTTP1_CHUNK_DATA_LF:
        h->chunk_digits = 0;
        return http1_chunk_go(h, HTTP1_CHUNK_SIZE);
    case HTTP1_CHUNK_TRAILER_LF:
        return http1_chunk_go(h, HTTP1_CHUNK_TRAILER);
    default:
        h->done = true;
        return NULL;
    }
}

/* One byte that is not content. */
static const char *http1_chunk_step(struct http1 *h, char c)
{
    switch (h->chunk_state) {
    case HTTP1_CHUNK_SIZE:
        return http1_chunk_size(h, c);
    case HTTP1_CHUNK_EXTENSION:
        return http1_chunk_extra(h, c, HTTP1_CHUNK_SIZE_LF);
    case HTTP1_CHUNK_DATA_CR:
        return c == '\r' ? http1_chunk_go(h, HTTP1_CHUNK_DATA_LF)
                         : "chunk longer than its size: expected CR LF after its data";
    case HTTP1_CHUNK_TRAILER:
    case HTTP1_CHUNK_TRAILER_NAME:
        return http1_chunk_trailer(h, c);
    case HTTP1_CHUNK_TRAILER_VALUE:
        return http1_chunk_extra(h, c, HTTP1_CHUNK_TRAILER_LF);
    default:
        return http1_chunk_lf(h, c);
    }
}

/* The part of data[0..n) that belongs to the run of content with h->remaining bytes. */
static size_t http1_take(struct http1 *h, const char *data, size_t n, struct slice *span)
{
    if (n > h->remaining)
        n = (size_t)h->remaining;
    h->remaining -= n;
    *span = (struct slice){data, n};
    return n;
}

/* The usual case: a whole chunk, size line and end included, at the start of data. Returns its length, or 0
 * when it is anything else, which the steps above look at byte by byte. */
static size_t http1_whole_chunk(const char *data, size_t n, struct slice *span)
{
    size_t size = 0, at = 0;
    int digit;

    while (at < 7 && at + 2 < n && (digit = http1_hex(data[at])) >= 0) {
        size = size << 4 | (size_t)digit;
        at++;
    }
    if (size == 0 || at + size + 4 > n || memcmp(data + at, "\r\n", 2) != 0 ||
        memcmp(data + at + 2 + size, "\r\n", 2) != 0)
        return 0;
    *span = (struct slice){data + at + 2, size};
    return at + size + 4;
}

/* One run of content with all that surrounds it. */
static ssize_t http1_chunked(struct http1 *h, const char *data, size_t n, struct slice *span)
{
    size_t at = 0;

    if (h->chunk_state == HTTP1_CHUNK_SIZE && h->chunk_digits == 0) {
        at = http1_whole_chunk(data, n, span);
        h->whole = at > 0;
        if (at > 0)
            return (ssize_t)at;
    }
    while (at < n && !h->done) {
        const char *reason;

        if (h->chunk_state == HTTP1_CHUNK_DATA) {
            if (span->n > 0)
                break;
            at += http1_take(h, data + at, n - at, span);
            if (h->remaining == 0)
                h->chunk_state = HTTP1_CHUNK_DATA_CR;
            continue;
        }
        reason = http1_chunk_step(h, data[at]);
        if (reason != NULL && span->n > 0)
            break; /* found again by the next call, when the content before it is safe */
        if (reason != NULL)
            return http1_fail(h, HTTP1_BAD, reason);
        at++;
    }
    return (ssize_t)at;
}

ssize_t http1_body(struct http1 *h, const char *data, size_t n, struct slice *span)
{
    assert(h->head_complete && h->error == HTTP1_OK);
    *span = (struct slice){NULL, 0};
    h->whole = false;
    if (h->done || n == 0)
        return 0;
    switch (h->framing) {
    case HTTP1_SIZED:
        n = http1_take(h, data, n, span);
        h->done = h->remaining == 0;
        return (ssize_t)n;
    case HTTP1_UNTIL_CLOSE:
        *span = (struct slice){data, n};
        return (ssize_t)n;
    case HTTP1_CHUNKED:
        return http1_chunked(h, data, n, span);
    default:
        return 0;
    }
}

bool http1_eof(struct http1 *h)
{
    if (h->head_complete && h->error == HTTP1_OK && h->framing == HTTP1_UNTIL_CLOSE)
        h->done = true;
    return h->done;
}
