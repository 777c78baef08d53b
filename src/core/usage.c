/* usage: nearly all of an answer is text, which is searched for one word, 16 bytes at a time; only what
 * follows that word is looked at byte by byte. A key cannot stand in a text: its quotes would have
 * backslashes. It owns the place in the stream and the counts. */
#include "usage.h"
#include "json.h"

#include <assert.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

static const char usage_word[] = "\"usage\"";
#define WORD_BYTES   (sizeof(usage_word) - 1)
#define NUMBER_LIMIT INT64_C(1000000000000000)

/* What comes next. */
enum usage_state {
    USAGE_SEARCH, /* the word; `matched` bytes of it stand at the end of what came */
    USAGE_COLON,
    USAGE_BRACE,
    USAGE_OBJECT,
    USAGE_TAIL /* what stands behind an object in its event or document tells how deep it is */
};

/* ---- searching ---- */

#ifdef __x86_64__
/* Of p[0..16): where the word may begin, by its first and fifth byte. */
static inline __m128i word_marks(const char *p)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
    const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + 4));

    return _mm_and_si128(_mm_cmpeq_epi8(a, _mm_set1_epi8('"')), _mm_cmpeq_epi8(b, _mm_set1_epi8('g')));
}

/* The first whole word of those that begin in p[0..16), or NULL. */
static const char *find_word_at(const char *p)
{
    unsigned at = (unsigned)_mm_movemask_epi8(word_marks(p));

    for (; at != 0; at &= at - 1) {
        const char *found = p + __builtin_ctz(at);

        if (memcmp(found, usage_word, WORD_BYTES) == 0)
            return found;
    }
    return NULL;
}
#endif

/* The first whole word, or NULL. The last bytes are looked at together with some before them, a second time.
 */
static const char *find_word(const char *p, size_t n)
{
#ifdef __x86_64__
    const char *last = p + n - (15 + WORD_BYTES), *found = NULL;

    if (n >= 15 + WORD_BYTES) {
        for (; last - p > 48 && found == NULL; p += 64) {
            const __m128i any = _mm_or_si128(_mm_or_si128(word_marks(p), word_marks(p + 16)),
                                             _mm_or_si128(word_marks(p + 32), word_marks(p + 48)));

            for (unsigned i = 0; i < 64 && found == NULL && _mm_movemask_epi8(any) != 0; i += 16)
                found = find_word_at(p + i);
        }
        for (; p < last && found == NULL; p += 16)
            found = find_word_at(p);
        return found != NULL ? found : find_word_at(last);
    }
#endif
    return n < WORD_BYTES ? NULL : memmem(p, n, usage_word, WORD_BYTES);
}

/* One byte at the edge of what came. */
static void match_byte(struct usage *u, char c)
{
    if (c == usage_word[u->matched])
        u->matched++;
    else
        u->matched = c == '"';
    if (u->matched == 1 && u->before_slash)
        u->matched = 0;
    u->before_slash = c == '\\';
}

/* The part of the word that the bytes from `at` on end with; what came is p to end. */
static void match_end(struct usage *u, const char *p, const char *at, const char *end)
{
    const char *from = (size_t)(end - at) < WORD_BYTES ? at : end - WORD_BYTES;

    u->matched = 0;
    if (end[-1] == '\n')
        return;
    if (from > p)
        u->before_slash = from[-1] == '\\';
    for (; from < end; from++)
        match_byte(u, *from);
}

/* ---- lines of an event stream ---- */

static bool is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

/* The unfinished line that the bytes end with: its first bytes tell what it is. */
static void keep_line(struct usage *u, const char *p, const char *end)
{
    const char *start = end;
    size_t n;

    while (start > p && !is_line_end(start[-1]))
        start--;
    if (start > p)
        u->line_n = 0;
    n = (size_t)(end - start) < sizeof(u->line) - u->line_n ? (size_t)(end - start)
                                                            : sizeof(u->line) - u->line_n;
    memcpy(u->line + u->line_n, start, n);
    u->line_n = (uint8_t)(u->line_n + n);
}

/* Whether `at`, in the bytes from p on, stands in a data line. */
static bool in_data_line(const struct usage *u, const char *p, const char *at)
{
    const char *start = at;
    char line[sizeof(u->line)];
    size_t n = 0;

    while (start > p && !is_line_end(start[-1]))
        start--;
    if (start == p) {
        n = u->line_n;
        memcpy(line, u->line, n);
    }
    for (; n < sizeof(line) && start < at; start++)
        line[n++] = *start;
    return n == sizeof(line) && memcmp(line, "data:", n) == 0;
}

/* Or `end`. */
static const char *find_byte(const char *at, const char *end, char c)
{
    const char *found = memchr(at, c, (size_t)(end - at));

    return found != NULL ? found : end;
}

static bool is_done(struct slice line)
{
    return line.n < sizeof(((struct usage *)NULL)->head) &&
           slice_eq(slice_trim((struct slice){line.p + 5, line.n - 5}), SLICE("[DONE]"));
}

/* A line of which the first bytes were kept: a blank one ends the event, the first with data counts it. */
static void count_line(struct usage *u)
{
    const struct slice line = {u->head, u->head_n};

    if (line.n == 0) {
        u->counted = false;
    } else if (!u->counted && slice_starts(line, SLICE("data:")) && !is_done(line)) {
        u->counted = true;
        u->events++;
    }
    u->head_n = 0;
}

static void count_events(struct usage *u, struct slice bytes)
{
    const char *at = bytes.p, *end = at + bytes.n, *lf = find_byte(at, end, '\n'), *stop;

    for (; at < end; at = stop + 1) {
        size_t n, room = sizeof(u->head) - u->head_n;

        stop = find_byte(at, lf, '\r');
        n = (size_t)(stop - at) < room ? (size_t)(stop - at) : room;
        memcpy(u->head + u->head_n, at, n);
        u->head_n = (uint8_t)(u->head_n + n);
        if (stop == end)
            return;
        if (!(u->head_n == 0 && u->head_cr && stop == lf)) /* the second half of CR LF */
            count_line(u);
        u->head_cr = stop != lf;
        if (stop == lf)
            lf = find_byte(stop + 1, end, '\n');
    }
}

/* ---- the object ---- */

#define NAME(text)                                                                                           \
    {                                                                                                        \
        text, sizeof(text) - 1                                                                               \
    }
static const struct usage_name {
    struct slice name;
    enum usage_count count;
} usage_names[] = {
    {NAME("prompt_tokens"), USAGE_INPUT},
    {NAME("input_tokens"), USAGE_INPUT},
    {NAME("completion_tokens"), USAGE_OUTPUT},
    {NAME("output_tokens"), USAGE_OUTPUT},
    {NAME("total_tokens"), USAGE_TOTAL},
    {NAME("cache_creation_input_tokens"), USAGE_CACHE_CREATED},
    {NAME("cache_read_input_tokens"), USAGE_CACHE_READ},
};
#undef NAME

static enum usage_count count_of_key(const struct usage *u)
{
    const struct slice key = {u->key, u->key_n};

    for (size_t i = 0; i < ARRAY_LEN(usage_names); i++) {
        if (slice_eq(key, usage_names[i].name))
            return usage_names[i].count;
    }
    return USAGE_COUNTS;
}

static void start_member(struct usage *u)
{
    u->is_key = true;
    u->key_n = 0;
    u->number = -1;
    u->ignored = false;
}

/* Whether what was found is not too deep, as far as one can tell: in the document itself, or in an event or
 * the object that an event brings. */
static bool is_shallow(const struct usage *u)
{
    return u->has_found && u->level >= (u->stream ? -2 : -1);
}

/* The event is over, or is no JSON from here on. */
static void end_event(struct usage *u)
{
    for (size_t i = 0; is_shallow(u) && i < USAGE_COUNTS; i++) {
        if (!u->found.seen[i])
            continue;
        u->taken.counts[i] = u->found.counts[i];
        u->taken.seen[i] = true;
    }
    u->has_found = false;
    u->state = USAGE_SEARCH;
}

/* A member of the usage object is over. */
static void end_member(struct usage *u)
{
    const enum usage_count count = u->number < 0 || u->ignored ? USAGE_COUNTS : count_of_key(u);

    if (count != USAGE_COUNTS) {
        u->found.counts[count] = u->number;
        u->found.seen[count] = true;
    }
    start_member(u);
}

/* The string may be a key that matters. */
static bool is_kept(const struct usage *u)
{
    return u->state == USAGE_TAIL || (u->depth == 1 && u->is_key);
}

static void string_byte(struct usage *u, char c)
{
    if (u->escaped) {
        u->escaped = false;
    } else if (c == '\\') {
        u->escaped = true;
    } else if (c == '"') {
        u->in_string = false;
        if (u->state == USAGE_TAIL && slice_eq((struct slice){u->key, u->key_n}, SLICE("usage")))
            u->state = USAGE_COLON;
        return;
    }
    if (is_kept(u) && u->key_n < USAGE_KEY_MAX)
        u->key[u->key_n++] = c;
}

static void number_byte(struct usage *u, char c)
{
    if (c >= '0' && c <= '9' && u->number < NUMBER_LIMIT)
        u->number = (u->number < 0 ? 0 : u->number * 10) + (c - '0');
    else
        u->ignored = true; /* not a whole number, or one that makes no sense */
}

/* Anything outside strings. */
static void object_byte(struct usage *u, char c)
{
    switch (c) {
    case '"':
        u->in_string = true;
        break;
    case '{':
    case '[':
        if (u->depth == UINT8_MAX)
            end_event(u);
        u->depth++;
        break;
    case '}':
    case ']':
        if (--u->depth > 0)
            break;
        end_member(u);
        u->state = USAGE_TAIL;
        break;
    case ',':
        if (u->depth == 1)
            end_member(u);
        break;
    case ':':
        u->is_key = u->is_key && u->depth > 1;
        break;
    case ' ':
    case '\t':
    case '\n':
    case '\r':
        break;
    default:
        if (u->depth == 1)
            number_byte(u, c);
    }
}

/* The byte stands in a usage object and in none of its strings; a line's end in a stream is no part of it. */
static bool is_in_object(const struct usage *u, char c)
{
    return u->state == USAGE_OBJECT && !u->in_string && !u->between_lines && !(u->stream && is_line_end(c));
}

/* Up to the next string, the object's end, or the end of a line in a stream. The first byte is_in_object. */
static const char *object_run(struct usage *u, const char *at, const char *end)
{
    for (; at < end; at++) {
        if (u->depth == 1 && *at >= '0' && *at <= '9') {
            number_byte(u, *at);
            continue;
        }
        if (u->stream && is_line_end(*at))
            return at;
        object_byte(u, *at);
        if (u->in_string || u->state != USAGE_OBJECT)
            return at + 1;
    }
    return at;
}

/* Of several in one event the least deep counts, of equals each count's last. */
static void enter_object(struct usage *u)
{
    if (!u->has_found || u->level < 0) {
        u->found = (struct usage_counts){.seen = {false}};
        u->level = 0;
    }
    u->has_found = true;
    u->state = USAGE_OBJECT;
    u->depth = 1;
    u->in_string = u->escaped = false;
    start_member(u);
}

/* Behind an object, outside strings. */
static void tail_byte(struct usage *u, char c)
{
    u->state = USAGE_TAIL;
    if (c == '"') {
        u->in_string = true;
        u->escaped = false;
        u->key_n = 0;
    } else if (c == '{' || c == '[') {
        u->level++;
    } else if (c == '}' || c == ']') {
        u->level--;
    }
}

/* After a line end inside the object: a data line goes on with it, other lines have nothing to say, and a
 * blank one ends the event. */
static void line_byte(struct usage *u, char c)
{
    const bool second_half = c == '\n' && u->after_cr;

    u->after_cr = c == '\r';
    if (second_half)
        return;
    if (is_line_end(c)) {
        if (u->name_n == 0 && !u->skips_line)
            end_event(u);
        u->name_n = 0;
        u->skips_line = false;
    } else if (u->skips_line || c != "data:"[u->name_n]) {
        u->skips_line = true;
    } else if (++u->name_n == 5) {
        u->between_lines = false;
    }
}

static void leave_line(struct usage *u, char c)
{
    u->between_lines = true;
    u->skips_line = false;
    u->name_n = 0;
    u->after_cr = c == '\r';
    if (u->in_string)
        end_event(u); /* no JSON */
}

/* The first byte that means something in a string, or `end`. */
static const char *find_string_mark(const char *at, const char *end)
{
#ifdef __x86_64__
    for (; end - at >= 16; at += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)at);
        const __m128i marks = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'))),
            _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\n')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\r'))));
        const int found = _mm_movemask_epi8(marks);

        if (found != 0)
            return at + __builtin_ctz((unsigned)found);
    }
#endif
    while (at < end && *at != '"' && *at != '\\' && !is_line_end(*at))
        at++;
    return at;
}

/* The first byte that means something behind an object, or `end`. */
static const char *find_tail_mark(const char *at, const char *end)
{
#ifdef __x86_64__
    for (; end - at >= 16; at += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)at);
        const __m128i brace = _mm_or_si128(v, _mm_set1_epi8(' ')); /* [ and ] are { and } without this bit */
        const __m128i marks =
            _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(brace, _mm_set1_epi8('{')),
                                      _mm_cmpeq_epi8(brace, _mm_set1_epi8('}'))),
                         _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')),
                                      _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\n')),
                                                   _mm_cmpeq_epi8(v, _mm_set1_epi8('\r')))));
        const int found = _mm_movemask_epi8(marks);

        if (found != 0)
            return at + __builtin_ctz((unsigned)found);
    }
#endif
    return at;
}

/* The bytes of a string that have no meaning of their own. */
static const char *string_run(struct usage *u, const char *at, const char *end)
{
    const char *stop = find_string_mark(at, end);
    const size_t room = sizeof(u->key) - u->key_n, there = (size_t)(stop - at),
                 n = there < room ? there : room;

    if (is_kept(u)) {
        memcpy(u->key + u->key_n, at, n);
        u->key_n = (uint8_t)(u->key_n + n);
    }
    return stop;
}

/* Behind an object: blanks keep what comes next open, as behind the first word. */
static void value_or_tail(struct usage *u, char c)
{
    if (c != ' ' && c != '\t' && !is_line_end(c))
        tail_byte(u, c);
}

/* One byte behind the word. */
static void value_byte(struct usage *u, char c)
{
    if (u->between_lines)
        line_byte(u, c);
    else if (u->stream && is_line_end(c))
        leave_line(u, c);
    else if (u->in_string)
        string_byte(u, c);
    else if (u->state == USAGE_COLON && c == ':')
        u->state = USAGE_BRACE;
    else if (u->state == USAGE_BRACE && c == '{' && !(u->has_found && u->level > 0))
        enter_object(u);
    else if (u->has_found)
        value_or_tail(u, c);
    else if (c != ' ' && c != '\t' && !is_line_end(c))
        u->state = USAGE_SEARCH;
}

/* ---- the stream ---- */

static void found_word(struct usage *u, const char *p, const char *last)
{
    u->matched = 0;
    u->before_slash = u->between_lines = u->in_string = false;
    if (!u->stream || in_data_line(u, p, last))
        u->state = USAGE_COLON;
}

/* From `at` on, in the bytes from p on; returns where to go on. */
static const char *search(struct usage *u, const char *p, const char *at, const char *end)
{
    const char *found;

    while (u->matched > 0 && at < end) {
        match_byte(u, *at++);
        if (u->matched == WORD_BYTES) {
            found_word(u, p, at - 1);
            return at;
        }
    }
    if (at == end)
        return end;
    found = find_word(at, (size_t)(end - at));
    if (found == NULL) {
        match_end(u, p, at, end);
        return end;
    }
    if (found > p ? found[-1] == '\\' : u->before_slash)
        return found + WORD_BYTES - 1; /* inside a string, which ends here */
    found_word(u, p, found + 1);
    return found + WORD_BYTES;
}

void usage_feed(struct usage *u, struct slice bytes)
{
    const char *p = bytes.p, *at = p, *end;

    if (bytes.n == 0)
        return;
    end = p + bytes.n;
    if (u->count_events)
        count_events(u, bytes);
    while (at < end) {
        if (u->state == USAGE_SEARCH) {
            at = search(u, p, at, end);
            continue;
        }
        if (is_in_object(u, *at)) {
            at = object_run(u, at, end);
            continue;
        }
        if (u->in_string && !u->escaped && !u->between_lines)
            at = string_run(u, at, end);
        else if (u->state == USAGE_TAIL && !u->in_string && !u->between_lines)
            at = find_tail_mark(at, end);
        if (at == end)
            break;
        value_byte(u, *at++);
    }
    u->before_slash = end[-1] == '\\';
    if (u->stream)
        keep_line(u, p, end);
}

/* With what the event or document that is not over yet has brought. */
static bool has_count(const struct usage *u, enum usage_count i)
{
    return u->taken.seen[i] || (is_shallow(u) && u->found.seen[i]);
}

static int64_t count_now(const struct usage *u, enum usage_count i)
{
    return is_shallow(u) && u->found.seen[i] ? u->found.counts[i] : u->taken.counts[i];
}

bool usage_has_input(const struct usage *u)
{
    return has_count(u, USAGE_INPUT);
}

bool usage_tokens(const struct usage *u, int64_t *input, int64_t *output)
{
    const int64_t total = count_now(u, USAGE_TOTAL);

    *input = count_now(u, USAGE_INPUT) + count_now(u, USAGE_CACHE_CREATED) + count_now(u, USAGE_CACHE_READ);
    *output = has_count(u, USAGE_OUTPUT) ? count_now(u, USAGE_OUTPUT) : -1;
    if (*output < 0 && has_count(u, USAGE_INPUT) && has_count(u, USAGE_TOTAL))
        *output = total > *input ? total - *input : 0;
    return *input > 0 || *output > 0;
}

/* ---- hiding an event ---- */

void usage_hide_init(struct usage_hide *h)
{
    *h = (struct usage_hide){.passing = false};
    buf_init(&h->text, SIZE_MAX / 2);
}

void usage_hide_free(struct usage_hide *h)
{
    buf_free(&h->text);
}

/* The length of the first event with the blank line that ends it; 0: it has not come whole. Lines end with
 * LF, CR LF or, where no LF has come, CR. */
static size_t event_bytes(struct slice text)
{
    const char *p = text.p, *end = text.p + text.n, *next;
    const char mark = memchr(p, '\n', text.n) != NULL ? '\n' : '\r';

    while ((next = memchr(p, mark, (size_t)(end - p))) != NULL) {
        p = next + 1;
        if (p < end && *p == mark)
            return (size_t)(p + 1 - text.p);
        if (p + 1 < end && p[0] == '\r' && p[1] == '\n')
            return (size_t)(p + 2 - text.p);
    }
    return 0;
}

/* The text of an event: its data lines, joined. */
static void join_data(struct slice event, struct buf *out)
{
    while (event.p != NULL) {
        struct slice line = slice_cut(&event, memchr(event.p, '\n', event.n) != NULL ? '\n' : '\r');

        if (slice_starts(line, SLICE("data:")) && !buf_append(out, line.p + 5, line.n - 5))
            return;
    }
}

static bool is_extra(struct slice event)
{
    struct buf data;
    struct slice rest, object, choices, error, none;
    bool extra;

    if (find_word(event.p, event.n) == NULL)
        return false;
    buf_init(&data, USAGE_EVENT_MAX);
    join_data(event, &data);
    rest = buf_slice(&data);
    object = json_take(&rest);
    choices = json_find(object, SLICE("choices"));
    error = json_find(object, SLICE("error"));
    rest = json_inside(choices);
    extra = json_is(choices, '[') && !json_element(&rest, &none) &&
            json_is(json_find(object, SLICE("usage")), '{') && (error.n == 0 || json_is(error, 'n'));
    buf_free(&data);
    return extra;
}

/* Moves what stays of the whole events together; returns their length. */
static size_t keep_events(struct usage_hide *h)
{
    char *text = h->text.data;
    size_t at = 0, kept = 0, n;

    if (h->text.len == 0)
        return 0;
    text += h->text.start;
    while (at < h->text.len && (n = event_bytes((struct slice){text + at, h->text.len - at})) > 0) {
        if (h->passing || !is_extra((struct slice){text + at, n})) {
            memmove(text + kept, text + at, n);
            kept += n;
        }
        h->passing = false;
        at += n;
    }
    memmove(text + kept, text + at, h->text.len - at);
    h->text.len -= (uint32_t)(at - kept);
    return kept;
}

/* Of an event that is too long to be held back all goes out but the line ends, which may begin a blank line.
 */
static size_t pass_event(struct usage_hide *h, size_t kept)
{
    const char *text = buf_slice(&h->text).p;
    size_t given = h->text.len;

    if (given - kept > USAGE_EVENT_MAX)
        h->passing = true;
    if (!h->passing)
        return kept;
    while (given > kept && h->text.len - given < 3 && is_line_end(text[given - 1]))
        given--;
    return given;
}

struct slice usage_hide_feed(struct usage_hide *h, const struct slice *spans, size_t n_spans, bool end)
{
    bool fits = true;

    buf_consume_keep(&h->text, h->given_bytes);
    for (size_t i = 0; i < n_spans; i++)
        fits = buf_append_slice(&h->text, spans[i]) && fits;
    assert(fits);
    h->given_bytes = pass_event(h, keep_events(h));
    if (end)
        h->given_bytes = h->text.len;
    return (struct slice){buf_slice(&h->text).p, h->given_bytes};
}
