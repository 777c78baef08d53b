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

/* What names, methods and trailers are made of (RFC 9110 5.6.2: token). */
static const bool http1_token[256] = {
    ['!'] = true, ['#'] = true, ['$'] = true, ['%'] = true, ['&'] = true, ['\''] = true, ['*'] = true,
    ['+'] = true, ['-'] = true, ['.'] = true, ['^'] = true, ['_'] = true, ['`'] = true,  ['|'] = true,
    ['~'] = true, ['0'] = true, ['1'] = true, ['2'] = true, ['3'] = true, ['4'] = true,  ['5'] = true,
    ['6'] = true, ['7'] = true, ['8'] = true, ['9'] = true, ['A'] = true, ['B'] = true,  ['C'] = true,
    ['D'] = true, ['E'] = true, ['F'] = true, ['G'] = true, ['H'] = true, ['I'] = true,  ['J'] = true,
    ['K'] = true, ['L'] = true, ['M'] = true, ['N'] = true, ['O'] = true, ['P'] = true,  ['Q'] = true,
    ['R'] = true, ['S'] = true, ['T'] = true, ['U'] = true, ['V'] = true, ['W'] = true,  ['X'] = true,
    ['Y'] = true, ['Z'] = true, ['a'] = true, ['b'] = true, ['c'] = true, ['d'] = true,  ['e'] = true,
    ['f'] = true, ['g'] = true, ['h'] = true, ['i'] = true, ['j'] = true, ['k'] = true,  ['l'] = true,
    ['m'] = true, ['n'] = true, ['o'] = true, ['p'] = true, ['q'] = true, ['r'] = true,  ['s'] = true,
    ['t'] = true, ['u'] = true, ['v'] = true, ['w'] = true, ['x'] = true, ['y'] = true,  ['z'] = true,
};

/* Each option of Connection is looked for among all fields, so their number is kept small. */
#define HTTP1_MAX_OPTIONS 32

#define HTTP1_SPARE_HEADS 4

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
        .kind = kind, .head = head, .max_head_bytes = max_head_bytes, .head_request = head_request};
    memset(head, 0, offsetof(struct http1_head, fields));
}

size_t http1_skip_blank(const char *data, size_t n)
{
    size_t at = 0;

    while (at < 8 && n - at >= 2 && data[at] == '\r' && data[at + 1] == '\n')
        at += 2;
    return at;
}

struct slice http1_find(const struct http1_head *h, enum header_id id)
{
    for (size_t i = 0; i < h->n_fields; i++) {
        if (h->fields[i].id == id)
            return http1_value(h, &h->fields[i]);
    }
    return (struct slice){NULL, 0};
}

struct slice http1_find_name(const struct http1_head *h, struct slice name)
{
    for (size_t i = 0; i < h->n_fields; i++) {
        if (h->fields[i].name_n == name.n && slice_ieq(http1_name(h, &h->fields[i]), name))
            return http1_value(h, &h->fields[i]);
    }
    return (struct slice){NULL, 0};
}

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

/* Letters, digits and what else stands in host names, addresses and ports (RFC 3986 3.2.2), but for the
 * comma. */
static bool http1_is_host(struct slice host)
{
    for (size_t i = 0; i < host.n; i++) {
        char c = host.p[i];
        bool other = c == ':' || c == '[' || c == ']' || c == '(' || c == ')' || c == ';' || c == '=';

        if (!other && (!http1_token[(unsigned char)c] || c == '#' || c == '^' || c == '`' || c == '|'))
            return false;
    }
    return true;
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
static ssize_t http1_check_method(struct http1 *h, struct slice method)
{
    static const char *const known[] = {"POST", "GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"};

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (slice_eq(method, slice_of(known[i])))
            return 0;
    }
    for (size_t i = 0; i < method.n; i++) {
        if (!http1_token[(unsigned char)method.p[i]])
            return http1_fail(h, HTTP1_BAD, "not a request line: expected METHOD TARGET HTTP/1.1");
    }
    return http1_fail(h, HTTP1_UNSUPPORTED,
                      "method not supported: expected GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS");
}

static ssize_t http1_check_target(struct http1 *h, struct slice method, struct slice target)
{
    for (size_t i = 0; i < target.n; i++) {
        if (target.p[i] <= ' ' || target.p[i] > '~' || target.p[i] == '#')
            return http1_fail(h, HTTP1_BAD,
                              "space, fragment or byte outside of ASCII in the request target: it has to be "
                              "percent-encoded");
    }
    if (slice_eq(target, SLICE("*")) && slice_eq(method, SLICE("OPTIONS")))
        return 0;
    if (target.n > 0 && target.p[0] == '/')
        return 0;
    if (http1_authority(target).n == 0 || !http1_is_host(http1_authority(target)))
        return http1_fail(
            h, HTTP1_BAD,
            "bad request target: expected a path that starts with / or an http:// URL with a host");
    return 0;
}

/* base[0..n) without the CRLF. */
static ssize_t http1_request_line(struct http1 *h, const char *base, size_t n)
{
    const char *first = memchr(base, ' ', n);
    const char *last = n > 0 ? memrchr(base, ' ', n) : NULL;
    struct slice version;

    if (first == NULL || first == base)
        return http1_fail(h, HTTP1_BAD, "not a request line: expected METHOD TARGET HTTP/1.1");
    version = (struct slice){last + 1, n - (size_t)(last + 1 - base)};
    if (!http1_is_version(version, &h->head->minor)) {
        if (first == last || slice_starts(version, SLICE("HTTP/")))
            return http1_fail(h, HTTP1_VERSION,
                              "wrong HTTP version in the request line: expected HTTP/1.1 or HTTP/1.0");
        return http1_fail(h, HTTP1_BAD,
                          "request line does not end with its version: expected METHOD TARGET HTTP/1.1");
    }
    if (first == last)
        return http1_fail(h, HTTP1_BAD, "request line without a target: expected METHOD TARGET HTTP/1.1");
    h->head->method_n = (uint32_t)(first - base);
    h->head->target = h->head->method_n + 1;
    h->head->target_n = (uint32_t)(last - first - 1);
    if (http1_check_method(h, http1_method(h->head)) < 0)
        return -1;
    return http1_check_target(h, http1_method(h->head), http1_target(h->head));
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

static ssize_t http1_first_line(struct http1 *h, const char *base, size_t n)
{
    return h->kind == HTTP1_REQUEST ? http1_request_line(h, base, n) : http1_status_line(h, base, n);
}

/* ---- fields ---- */

/* base[at..end) is a line without its CRLF: NAME: VALUE. */
static ssize_t http1_field_line(struct http1 *h, const char *base, size_t at, size_t end)
{
    struct http1_head *head = h->head;
    size_t colon = at;
    struct slice value;

    while (colon < end && http1_token[(unsigned char)base[colon]])
        colon++;
    if (colon == at || colon == end || base[colon] != ':')
        return http1_fail(h, HTTP1_BAD, "bad field: expected NAME: VALUE, no white space before the colon");
    if (head->n_fields == HTTP1_MAX_FIELDS || colon - at > UINT16_MAX)
        return http1_fail(h, HTTP1_HEAD_TOO_LARGE,
                          "more than 128 fields in the head, or a name longer than 65535 bytes");
    value = slice_trim((struct slice){base + colon + 1, end - colon - 1});
    head->fields[head->n_fields++] = (struct http1_field){
        .name = (uint32_t)at,
        .name_n = (uint16_t)(colon - at),
        .value = (uint32_t)(value.p - base),
        .value_n = (uint32_t)value.n,
        .id = (uint8_t)headers_id((struct slice){base + at, colon - at}),
    };
    return 0;
}

/* ---- line ends and control bytes ---- */

/* The first byte of base[at..end) below 0x20, or DEL; end when there is none. */
static size_t http1_next_control(const char *base, size_t at, size_t end)
{
#ifdef __SSE2__
    const __m128i low = _mm_set1_epi8(0x1f), del = _mm_set1_epi8(0x7f);

    for (; end - at >= 16; at += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(base + at));
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(_mm_min_epu8(v, low), v), _mm_cmpeq_epi8(v, del));
        int mask = _mm_movemask_epi8(hit);

        if (mask != 0)
            return at + (size_t)__builtin_ctz((unsigned)mask);
    }
#endif
    while (at < end && (unsigned char)base[at] >= 0x20 && base[at] != 0x7f)
        at++;
    return at;
}

/* A CR stands at h->parsed. Every line has to end with CR LF and nothing else: some servers take a lone CR
 * for the end of a field (CVE-2023-30589), some a lone LF. Returns as http1_head. */
static ssize_t http1_line_end(struct http1 *h, const char *base, size_t end)
{
    size_t at = h->parsed;

    if (at + 1 == end)
        return 0;
    if (base[at + 1] != '\n')
        return http1_fail(h, HTTP1_BAD, "CR without LF in the head: lines end with CR LF");
    if (at == h->line && at > 0)
        return (ssize_t)at + 2;
    if ((h->line == 0 ? http1_first_line(h, base, at) : http1_field_line(h, base, h->line, at)) < 0)
        return -1;
    h->line = h->parsed = at + 2;
    return 0;
}

/* One step of the scan: to the next control byte. */
static ssize_t http1_scan_step(struct http1 *h, const char *base, size_t end)
{
    if (h->parsed == h->line && h->line > 0 && (base[h->line] == ' ' || base[h->line] == '\t'))
        return http1_fail(h, HTTP1_BAD,
                          "a line of the head starts with white space (folded fields are obsolete)");
    h->parsed = http1_next_control(base, h->parsed, end);
    if (h->parsed == end)
        return 0;
    if (base[h->parsed] == '\r')
        return http1_line_end(h, base, end);
    if (base[h->parsed] == '\n')
        return http1_fail(h, HTTP1_BAD, "LF without CR in the head: lines end with CR LF");
    if (base[h->parsed] != '\t' || h->line == 0)
        return http1_fail(h, HTTP1_BAD, "control byte in the head: expected text");
    h->parsed++;
    return 0;
}

/* Looks at what is new of base[0..end). Returns as http1_head. */
static ssize_t http1_scan(struct http1 *h, const char *base, size_t end)
{
    while (h->parsed < end) {
        size_t before = h->parsed;
        ssize_t n = http1_scan_step(h, base, end);

        if (n != 0)
            return n;
        if (h->parsed == before)
            break; /* a CR at the end: its LF is not here yet */
    }
    return 0;
}

/* ---- what the fields mean ---- */

/* The fields that decide on framing and connection, counted. */
struct http1_facts {
    unsigned hosts, lengths, encodings, options;
    bool close, keep_alive;
    struct slice host, length, encoding, expect;
};

static void http1_connection(struct http1_facts *facts, struct slice list)
{
    while (list.p != NULL) {
        struct slice token = slice_trim(slice_cut(&list, ','));

        facts->options++;
        facts->close = facts->close || slice_ieq(token, SLICE("close"));
        facts->keep_alive = facts->keep_alive || slice_ieq(token, SLICE("keep-alive"));
    }
}

static void http1_fact(struct http1_facts *facts, enum header_id id, struct slice value)
{
    switch (id) {
    case HEADER_HOST:
        facts->hosts++;
        facts->host = value;
        break;
    case HEADER_CONTENT_LENGTH:
        facts->lengths++;
        facts->length = value;
        break;
    case HEADER_TRANSFER_ENCODING:
        facts->encodings++;
        facts->encoding = value;
        break;
    case HEADER_CONNECTION:
        http1_connection(facts, value);
        break;
    case HEADER_EXPECT:
        facts->expect = value;
        break;
    default:
        break;
    }
}

static ssize_t http1_gather(struct http1 *h, struct http1_facts *facts)
{
    const struct http1_head *head = h->head;

    for (size_t i = 0; i < head->n_fields; i++) {
        if (head->fields[i].id != HEADER_OTHER)
            http1_fact(facts, (enum header_id)head->fields[i].id, http1_value(head, &head->fields[i]));
    }
    if (facts->options > HTTP1_MAX_OPTIONS)
        return http1_fail(h, HTTP1_BAD, "more than 32 options in Connection");
    return 0;
}

/* Up to 19 digits: no sign, no list, nothing that could overflow on the way. */
static bool http1_length(struct slice text, uint64_t *length)
{
    if (text.n == 0 || text.n > 19)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        if (!http1_is_digit(text.p[i]))
            return false;
        *length = *length * 10 + (uint64_t)(text.p[i] - '0');
    }
    return *length <= INT64_MAX;
}

static ssize_t http1_check_framing(struct http1 *h, const struct http1_facts *facts)
{
    if (facts->lengths > 1 || (facts->lengths > 0 && facts->encodings > 0))
        return http1_fail(h, HTTP1_BAD,
                          "Content-Length given twice or with Transfer-Encoding: expected one of them, once");
    if (facts->encodings > 1 || (facts->encodings == 1 && !slice_ieq(facts->encoding, SLICE("chunked"))))
        return http1_fail(h, HTTP1_UNSUPPORTED, "Transfer-Encoding: expected chunked and nothing else");
    if (facts->encodings == 1 && h->head->minor == 0)
        return http1_fail(h, HTTP1_BAD, "Transfer-Encoding in HTTP/1.0, which does not have it");
    h->head->content_length = 0;
    if (facts->lengths == 1 && !http1_length(facts->length, &h->head->content_length))
        return http1_fail(h, HTTP1_BAD, "bad Content-Length: expected digits, at most 9223372036854775807");
    return 0;
}

/* Without a port that says what the scheme says anyway. */
static struct slice http1_plain_authority(struct slice authority, struct slice port)
{
    if (authority.n > port.n && memcmp(authority.p + authority.n - port.n, port.p, port.n) == 0)
        authority.n -= port.n;
    return authority;
}

static bool http1_same_authority(const struct http1_head *head, struct slice authority, struct slice host)
{
    struct slice port = (http1_target(head).p[4] | 0x20) == 's' ? SLICE(":443") : SLICE(":80");

    return slice_ieq(http1_plain_authority(authority, port), http1_plain_authority(host, port));
}

static ssize_t http1_check_host(struct http1 *h, const struct http1_facts *facts)
{
    struct slice authority = http1_authority(http1_target(h->head));

    if (facts->hosts == 0 && h->head->minor > 0)
        return http1_fail(h, HTTP1_BAD, "no Host field, which HTTP/1.1 requires");
    if (facts->hosts > 1)
        return http1_fail(h, HTTP1_BAD, "several Host fields: expected one");
    if (!http1_is_host(facts->host))
        return http1_fail(h, HTTP1_BAD, "bad Host field: expected NAME or NAME:PORT");
    if (facts->hosts == 1 && authority.n > 0 && !http1_same_authority(h->head, authority, facts->host))
        return http1_fail(h, HTTP1_BAD, "the host of the request target differs from the Host field");
    return 0;
}

static ssize_t http1_finish_request(struct http1 *h, const struct http1_facts *facts)
{
    struct http1_head *head = h->head;

    if (http1_check_host(h, facts) < 0)
        return -1;
    head->framing = facts->encodings > 0 ? HTTP1_CHUNKED : facts->lengths > 0 ? HTTP1_SIZED : HTTP1_NO_BODY;
    head->expect_continue =
        head->minor > 0 && head->framing != HTTP1_NO_BODY && slice_ieq(facts->expect, SLICE("100-continue"));
    return 0;
}

static ssize_t http1_finish_response(struct http1 *h, const struct http1_facts *facts)
{
    struct http1_head *head = h->head;
    bool never = head->status < 200 || head->status == 204;

    head->expect_continue = false;
    if (never || head->status == 304 || h->head_request)
        head->framing = HTTP1_NO_BODY;
    else
        head->framing = facts->encodings > 0 ? HTTP1_CHUNKED
                        : facts->lengths > 0 ? HTTP1_SIZED
                                             : HTTP1_UNTIL_CLOSE;
    /* Who announces a body where there can be none may also send one: that connection is not used again. */
    if (head->framing == HTTP1_UNTIL_CLOSE || (never && (facts->encodings > 0 || head->content_length > 0)))
        head->keep_alive = false;
    return 0;
}

static ssize_t http1_finish_head(struct http1 *h, size_t n)
{
    struct http1_facts facts = {0};
    struct http1_head *head = h->head;

    head->bytes = n;
    if (http1_gather(h, &facts) < 0 || http1_check_framing(h, &facts) < 0)
        return -1;
    head->keep_alive = !facts.close && (head->minor > 0 || facts.keep_alive);
    if ((h->kind == HTTP1_REQUEST ? http1_finish_request(h, &facts) : http1_finish_response(h, &facts)) < 0)
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

static int http1_hex(char c)
{
    if (http1_is_digit(c))
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
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
    if (c != ':' && !http1_token[(unsigned char)c])
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
