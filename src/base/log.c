/* log: turning fields into one line. Nothing here decides what is logged. */
#include "log.h"
#include "clock.h"
#include "mem.h"

/* ---- values as text and as JSON ---- */

/* Length of the UTF-8 character at the front (its code in *code), or 0: cut short, overlong, a surrogate, too
 * big. */
static size_t utf8_next(struct slice s, uint32_t *code)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)s.p;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;

    if (n == 0 || n > s.n)
        return 0;
    *code = n == 1 ? p[0] : p[0] & (0xffU >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (p[i] & 0x3fU);
    }
    if (*code < smallest[n] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
        return 0;
    return n;
}

/* Characters that a terminal or an editor may take for a command, a new line or a change of direction. */
static bool is_deceptive(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
           (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/* The letter of a two-character escape, or 0. */
static char short_escape(uint32_t code)
{
    switch (code) {
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    case '"':
    case '\\':
        return (char)code;
    default:
        return 0;
    }
}

/* \xNN or \uNNNN. */
static struct text put_code(struct text t, char letter, uint32_t code)
{
    char escape[6] = {'\\', letter};
    int n_digits = letter == 'x' ? 2 : 4;

    for (int i = 0; i < n_digits; i++)
        escape[2 + i] = "0123456789abcdef"[code >> 4 * (n_digits - 1 - i) & 15];
    return text_put(t, (struct slice){escape, 2 + (size_t)n_digits});
}

/* \n and the like, or else a code; JSON knows no \xNN. */
static struct text put_escape(struct text t, uint32_t code, bool json)
{
    char letter = short_escape(code);

    if (letter != 0)
        return text_put(t, (struct slice){(char[]){'\\', letter}, 2});
    return put_code(t, code < 0x80 && !json ? 'x' : 'u', code);
}

/* Kept apart from what is done for nearly all values, which is cheaper without their locals. */
#define NOINLINE __attribute__((noinline))

/* Text without its quotes. The message of a line keeps its own quotes. */
static NOINLINE struct text put_text_chars(struct text t, struct slice s)
{
    while (s.n > 0 && t.left_bytes > 0) {
        uint32_t code = 0;
        size_t n = utf8_next(s, &code), taken = n > 0 ? n : 1;

        if (n == 0)
            t = put_code(t, 'x', (unsigned char)s.p[0]);
        else if (is_deceptive(code) || code == '"' || code == '\\')
            t = put_escape(t, code, false);
        else
            t = text_put(t, (struct slice){s.p, n});
        s.p += taken;
        s.n -= taken;
    }
    return t;
}

static bool needs_quotes(struct slice s)
{
    if (s.n == 0)
        return true;
    while (s.n > 0) {
        uint32_t code = 0;
        size_t n = utf8_next(s, &code);

        if (n == 0 || is_deceptive(code) || code == ' ' || code == '"' || code == '=' || code == '\\')
            return true;
        s.p += n;
        s.n -= n;
    }
    return false;
}

static NOINLINE struct text put_text_slowly(struct text t, struct slice value)
{
    bool quoted = needs_quotes(value);

    if (quoted)
        t = text_put_char(t, '"');
    t = put_text_chars(t, value);
    if (quoted)
        t = text_put_char(t, '"');
    return t;
}

static struct text put_json_char(struct text t, struct slice s, size_t n, uint32_t code)
{
    if (n == 0)
        t = text_put(t, SLICE("\xef\xbf\xbd"));
    else if (code < 0x20 || code == '"' || code == '\\')
        t = put_escape(t, code, true);
    else
        t = text_put(t, (struct slice){s.p, n});
    return t;
}

static NOINLINE struct text put_json_chars(struct text t, struct slice s)
{
    while (s.n > 0 && t.left_bytes > 0) {
        uint32_t code = 0;
        size_t n = utf8_next(s, &code), taken = n > 0 ? n : 1;

        t = put_json_char(t, s, n, code);
        s.p += taken;
        s.n -= taken;
    }
    return t;
}

/* ---- values that need none of this: nearly all ---- */

/* Sixteen bytes that are looked at at once; comparisons give 0xff for yes. */
typedef unsigned char bytes16 __attribute__((vector_size(16)));
typedef signed char signed16 __attribute__((vector_size(16)));
typedef uint64_t halves16 __attribute__((vector_size(16)));

typedef bytes16 plain_fn(bytes16 bytes);

/* As signed bytes, those that are not ASCII are below all others. */
static inline bytes16 is_above(bytes16 bytes, signed char limit)
{
    return (bytes16)((signed16)bytes > limit);
}

/* After adding 1, DEL is not ASCII either. '!' is said to be not plain as its neighbour '"' is not: the slow
 * way knows better. */
static inline bytes16 is_plain_in_text(bytes16 bytes)
{
    return is_above(bytes + 1, '"' + 1) & ~((bytes16)(bytes == '=') | (bytes16)(bytes == '\\'));
}

static inline bytes16 is_plain_in_json(bytes16 bytes)
{
    return is_above(bytes, ' ' - 1) & ~((bytes16)(bytes == '"') | (bytes16)(bytes == '\\'));
}

static inline bytes16 load16(const char *from)
{
    bytes16 bytes;

    memcpy(&bytes, from, sizeof(bytes));
    return bytes;
}

static inline bytes16 copy16(char *to, const char *from)
{
    bytes16 bytes = load16(from);

    memcpy(to, &bytes, sizeof(bytes));
    return bytes;
}

static inline uint64_t copy8(char *to, const char *from)
{
    uint64_t bytes;

    memcpy(&bytes, from, sizeof(bytes));
    memcpy(to, &bytes, sizeof(bytes));
    return bytes;
}

#define PLAIN8 UINT64_C(0x7878787878787878) /* 'x' */

/* At most eight bytes, filled up with one that is always plain. */
static inline uint64_t copy_few(char *to, struct slice from)
{
    uint32_t ends[2];

    if (from.n >= 4) {
        memcpy(&ends[0], from.p, 4);
        memcpy(&ends[1], from.p + from.n - 4, 4);
        text_copy(to, from.p, from.n);
        return (uint64_t)ends[0] << 32 | ends[1];
    }
    if (from.n == 0)
        return PLAIN8;
    text_copy(to, from.p, from.n);
    return PLAIN8 << 24 | (uint64_t)(unsigned char)from.p[0] << 16 |
           (uint64_t)(unsigned char)from.p[from.n / 2] << 8 | (unsigned char)from.p[from.n - 1];
}

static inline bytes16 copy_short(char *to, struct slice from)
{
    halves16 bytes;

    if (from.n >= 8)
        bytes = (halves16){copy8(to, from.p), copy8(to + from.n - 8, from.p + from.n - 8)};
    else
        bytes = (halves16){copy_few(to, from), PLAIN8};
    return (bytes16)bytes;
}

static inline bool is_all(bytes16 plain)
{
    halves16 all = (halves16)plain;

    return (all[0] & all[1]) == UINT64_MAX;
}

/* Copies the value; false: some byte is not plain. The last bytes are taken together with some before them, a
 * second time, so that no tail is left. */
static inline bool copy_plain(char *to, struct slice value, plain_fn *is_plain)
{
    size_t last = value.n - 16;
    bytes16 plain;

    if (value.n < 16)
        return is_all(is_plain(copy_short(to, value)));
    plain = is_plain(copy16(to + last, value.p + last));
    for (size_t i = 0; i < last; i += 16)
        plain &= is_plain(copy16(to + i, value.p + i));
    return is_all(plain);
}

static inline bool is_put_plain(struct text t, struct slice value, plain_fn *is_plain)
{
    return value.n <= t.left_bytes && copy_plain(t.at, value, is_plain);
}

struct text log_put_text(struct text t, struct slice value)
{
    if (value.n > 0 && is_put_plain(t, value, is_plain_in_text))
        return text_skip(t, value.n);
    return put_text_slowly(t, value);
}

struct text log_put_plain(struct text t, struct slice value)
{
    return is_put_plain(t, value, is_plain_in_text) ? text_skip(t, value.n) : t;
}

bool log_is_plain(struct slice value)
{
    char few[16];
    size_t last = value.n - 16;
    bytes16 plain;

    if (value.n > LOG_PLAIN_MAX)
        return false;
    if (value.n < 16)
        return value.n > 0 && is_all(is_plain_in_text(copy_short(few, value)));
    plain = is_plain_in_text(load16(value.p + last));
    for (size_t i = 0; i < last; i += 16)
        plain &= is_plain_in_text(load16(value.p + i));
    return is_all(plain);
}

struct log_known log_know(const char *value)
{
    const struct slice s = slice_of(value);

    return (struct log_known){s, log_is_plain(s)};
}

struct text log_put_json(struct text t, struct slice value)
{
    t = text_put_char(t, '"');
    if (is_put_plain(t, value, is_plain_in_json))
        t = text_skip(t, value.n);
    else
        t = put_json_chars(t, value);
    return text_put_char(t, '"');
}

void log_append_json(struct buf *out, struct slice value)
{
    size_t most = 6 * value.n + 2, left = out->max_bytes - out->len;
    size_t room = most < left ? most : left;
    char *at = buf_reserve(out, room);

    if (at != NULL)
        buf_commit(out, (size_t)(log_put_json((struct text){at, room}, value).at - at));
}

/* ---- lines ---- */

/* Kept free at the end of a line for what says that it was cut. */
#define LOG_TAIL_BYTES 20

enum log_level log_lowest = LOG_INFO;

static struct {
    struct log_sink sink;
    enum log_format format;
    bool open;
    int64_t now_us;  /* 0 = ask the clock */
    bool time_ready; /* the text of now_us is made, the sink is open, and lines are text */
    struct clock_text time;
    char spare[LOG_LINE_BYTES]; /* takes the line that the sink has no room for at once */
} the_log;

static NOINLINE void open_log(void)
{
    char *error;

    the_log.open = log_sink_open(&the_log.sink, "stderr", &error);
}

struct log_sink *log_sink(void)
{
    if (!the_log.open)
        open_log();
    return &the_log.sink;
}

void log_init(enum log_level level, enum log_format format)
{
    log_lowest = level;
    the_log.format = format;
    the_log.time_ready = false;
    (void)log_sink();
}

void log_set_time(int64_t wall_us)
{
    the_log.now_us = wall_us;
    the_log.time_ready = false;
}

/* The point and at most three digits; nothing for 0. */
static size_t format_thousandths(unsigned thousandths, char out[4])
{
    size_t n = 4;

    if (thousandths == 0)
        return 0;
    out[0] = '.';
    out[1] = (char)('0' + thousandths / 100);
    number_put_pair(&out[2], thousandths % 100);
    while (out[n - 1] == '0')
        n--;
    return n;
}

static struct text put_ms(struct text t, int64_t us)
{
    uint64_t left = us < 0 ? 0 - (uint64_t)us : (uint64_t)us;
    char *to = t.at;

    if (t.left_bytes < NUMBER_TEXT_MAX + 5)
        return (struct text){t.at, 0};
    if (us < 0)
        *to++ = '-';
    to += number_format_int((int64_t)(left / 1000), to);
    to += format_thousandths((unsigned)(left % 1000), to);
    return text_skip(t, (size_t)(to - t.at));
}

/* ---- the pieces of a line ---- */

/* For both of these heads there is room. */
static char *put_json_head(char *to, enum log_level level, int64_t now_us)
{
    static const struct slice names[] = {{"debug", 5}, {"info", 4}, {"warn", 4}, {"error", 5}, {"info", 4}};

    to = clock_put(&the_log.time, now_us, text_add(to, SLICE("{\"time\":\"")));
    to = text_add(text_add(to, SLICE("\",\"level\":\"")), names[level]);
    return text_add(to, SLICE("\",\"msg\":"));
}

/* Eight bytes are written; those behind the level are overwritten later. */
static inline char *put_level(char *to, enum log_level level)
{
    static const struct {
        char text[8];
        size_t n;
    } names[] = {{" DEBUG  ", 7}, {" INFO   ", 6}, {" WARN   ", 6}, {" ERROR  ", 7}, {" INFO   ", 6}};

    memcpy(to, names[level].text, sizeof(names[level].text));
    return to + names[level].n;
}

/* The time, the level and what stands before the message. */
static void line_start(struct log_line *l, enum log_level level)
{
    char *at = buf_reserve(&log_sink()->pending, LOG_LINE_BYTES);
    int64_t now_us = the_log.now_us != 0 ? the_log.now_us : clock_wall_us();

    l->cut = false;
    l->start = l->quick_end = at != NULL ? at : the_log.spare;
    if (the_log.format == LOG_TEXT)
        l->at = put_level(clock_put(&the_log.time, now_us, l->start), level);
    else
        l->at = put_json_head(l->start, level, now_us);
    the_log.time_ready = the_log.now_us != 0 && the_log.format == LOG_TEXT;
}

static struct text line_rest(const struct log_line *l)
{
    size_t used = (size_t)(l->at - l->start) + LOG_TAIL_BYTES;

    return (struct text){l->at, l->cut ? 0 : LOG_LINE_BYTES - used};
}

/* A text line keeps what was put in of a piece that did not fit, a JSON line does not. */
static void line_put(struct log_line *l, struct text after)
{
    if (after.left_bytes == 0) {
        l->cut = true;
        l->quick_end = l->start;
    }
    if (after.left_bytes > 0 || the_log.format == LOG_TEXT)
        l->at = after.at;
}

/* " key=", or ,"key": of it. */
static struct text line_put_key(const struct log_line *l, struct slice key)
{
    struct text t = line_rest(l);

    if (the_log.format == LOG_TEXT)
        return text_put(t, key);
    t = text_put(t, SLICE(",\""));
    t = text_put(t, (struct slice){key.p + 1, key.n - 2});
    return text_put(t, SLICE("\":"));
}

/* ---- lines ---- */

static NOINLINE void begin_slowly(struct log_line *l, enum log_level level, struct slice message)
{
    line_start(l, level);
    line_put(l, the_log.format == LOG_TEXT ? text_put(line_rest(l), message)
                                           : log_put_json(line_rest(l), message));
}

/* What nearly all lines of a busy turn begin with is put in without a call. */
void log_begin(struct log_line *l, enum log_level level, struct slice message)
{
    const struct buf *pending = &the_log.sink.pending;
    char *to;

    if (!the_log.time_ready || message.n > 64 || !buf_has_room(pending, LOG_LINE_BYTES)) {
        begin_slowly(l, level, message);
        return;
    }
    to = buf_end(pending);
    l->cut = false;
    l->start = to;
    l->quick_end = to + LOG_LINE_BYTES - LOG_TAIL_BYTES - LOG_KEY_MAX - LOG_PLAIN_MAX;
    memcpy(to, the_log.time.text, sizeof(the_log.time.text));
    l->at = text_add(put_level(to + the_log.time.n, level), message);
}

static NOINLINE void end_slowly(struct log_line *l)
{
    struct slice line;

    if (the_log.format == LOG_TEXT)
        l->at = text_add(l->at, l->cut ? SLICE("...\n") : SLICE("\n"));
    else
        l->at = text_add(l->at, l->cut ? SLICE(",\"cut\":\"...\"}\n") : SLICE("}\n"));
    line = (struct slice){l->start, (size_t)(l->at - l->start)};
    if (l->start == the_log.spare)
        log_sink_write(&the_log.sink, line);
    else
        buf_commit(&the_log.sink.pending, line.n);
}

void log_end(struct log_line *l)
{
    if (l->quick_end == l->start) {
        end_slowly(l);
        return;
    }
    *l->at = '\n';
    buf_commit(&the_log.sink.pending, (size_t)(l->at + 1 - l->start));
}

void log_add_str(struct log_line *l, struct slice key, struct slice value)
{
    struct text t = line_put_key(l, key);

    line_put(l, the_log.format == LOG_TEXT ? log_put_text(t, value) : log_put_json(t, value));
}

void log_add_int(struct log_line *l, struct slice key, int64_t n)
{
    line_put(l, text_put_int(line_put_key(l, key), n));
}

void log_add_bool(struct log_line *l, struct slice key, bool b)
{
    line_put(l, text_put_bool(line_put_key(l, key), b));
}

void log_add_ms(struct log_line *l, struct slice key, int64_t us)
{
    line_put(l, put_ms(line_put_key(l, key), us));
}
