/* log: turning fields into one line, and sinks that take lines without ever blocking. It owns the output's
 * file descriptor and the buffer before it; it does not know the event loop, and nothing here decides what is
 * logged. */
#include "log.h"
#include "clock.h"
#include "mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pipe that poll() calls writable takes this much at once without blocking (PIPE_BUF on Linux). */
#define LOG_PIPE_CHUNK 4096

/* ---- sinks ---- */

/* O_NONBLOCK: opening a FIFO without a reader is an error then instead of a hang. */
static int open_path(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
}

static bool is_pollable(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && !S_ISREG(st.st_mode);
}

/* Non-blocking mode belongs to the open file, which we may share with our parent and its shell. So a pipe or
 * a terminal is opened a second time, for ourselves. Where that is not possible (sockets, /proc missing) we
 * write to the shared one, in pieces that poll() vouches for. */
static void open_std(struct log_sink *s, int fd)
{
    char path[32];

    s->fd = fd;
    s->pollable = is_pollable(fd);
    if (!s->pollable)
        return;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return;
    s->fd = fd;
    s->owns_fd = true;
}

bool log_sink_open(struct log_sink *s, const char *output, char **error)
{
    *s = (struct log_sink){.fd = -1};
    buf_init(&s->pending, LOG_BUFFER_BYTES);
    if (strcmp(output, "stdout") == 0 || strcmp(output, "stderr") == 0) {
        open_std(s, strcmp(output, "stdout") == 0 ? STDOUT_FILENO : STDERR_FILENO);
        return true;
    }
    s->fd = open_path(output);
    if (s->fd < 0) {
        *error = mem_printf("cannot open \"%s\" for writing: %s", output, strerror(errno));
        return false;
    }
    s->owns_fd = true;
    s->pollable = is_pollable(s->fd);
    s->path = mem_strdup(output);
    return true;
}

void log_sink_write(struct log_sink *s, struct slice line)
{
    if (buf_append_slice(&s->pending, line))
        return;
    log_sink_flush(s);
    if (!buf_append_slice(&s->pending, line))
        s->dropped++;
}

/* The output is broken. Should it recover, the next line starts on a line of its own. */
static void drop_pending(struct log_sink *s)
{
    struct slice lost = buf_slice(&s->pending);

    for (size_t i = 0; i < lost.n; i++)
        s->dropped += lost.p[i] == '\n';
    buf_clear(&s->pending);
    if (s->mid_line && !buf_append(&s->pending, "\n", 1))
        s->mid_line = false;
}

static bool would_block(const struct log_sink *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};

    /* An error or a hang-up is not waited for: the write that follows reports it. */
    return s->pollable && poll(&p, 1, 0) < 1;
}

/* One write; false when there is nothing more to do now. */
static bool flush_some(struct log_sink *s)
{
    struct slice bytes = buf_slice(&s->pending);
    ssize_t n;

    if (bytes.n == 0 || would_block(s))
        return false;
    if (s->pollable && bytes.n > LOG_PIPE_CHUNK)
        bytes.n = LOG_PIPE_CHUNK;
    n = write(s->fd, bytes.p, bytes.n);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        drop_pending(s);
        return false;
    }
    s->mid_line = bytes.p[n - 1] != '\n';
    buf_consume(&s->pending, (size_t)n);
    return true;
}

void log_sink_flush(struct log_sink *s)
{
    while (flush_some(s))
        ;
}

void log_sink_reopen(struct log_sink *s)
{
    int fd = s->path != NULL ? open_path(s->path) : -1;

    if (fd < 0)
        return;
    log_sink_flush(s);
    (void)close(s->fd);
    s->fd = fd;
    s->pollable = is_pollable(fd);
}

void log_sink_close(struct log_sink *s)
{
    log_sink_flush(s);
    if (s->owns_fd)
        (void)close(s->fd);
    buf_free(&s->pending);
    mem_free(s->path);
    *s = (struct log_sink){.fd = -1};
}

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

static bool put(struct buf *out, struct slice s)
{
    return buf_append_slice(out, s);
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

static bool put_escape(struct buf *out, uint32_t code)
{
    char letter = short_escape(code);

    if (letter != 0)
        return buf_printf(out, "\\%c", letter);
    return buf_printf(out, code < 0x80 ? "\\x%02x" : "\\u%04x", (unsigned int)code);
}

/* Text without its quotes. The message of a line keeps its own quotes. False: the buffer is full. */
static bool put_text(struct buf *out, struct slice s, bool keep_quotes)
{
    while (s.n > 0) {
        uint32_t code = 0;
        size_t n = utf8_next(s, &code);
        bool ok;

        if (n == 0)
            ok = buf_printf(out, "\\x%02x", (unsigned int)(unsigned char)s.p[0]);
        else if (is_deceptive(code) || (!keep_quotes && (code == '"' || code == '\\')))
            ok = put_escape(out, code);
        else
            ok = put(out, (struct slice){s.p, n});
        if (!ok)
            return false;
        n = n > 0 ? n : 1;
        s.p += n;
        s.n -= n;
    }
    return true;
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

static bool put_text_value(struct buf *out, struct slice value)
{
    /* What does not fit as a whole is put in as far as it goes. */
    if (!needs_quotes(value))
        return put(out, value) || put_text(out, value, false);
    return put(out, SLICE("\"")) && put_text(out, value, false) && put(out, SLICE("\""));
}

static bool put_json_char(struct buf *out, struct slice s, size_t n, uint32_t code)
{
    char letter = short_escape(code);

    if (n == 0)
        return put(out, SLICE("\xef\xbf\xbd"));
    if (letter != 0)
        return buf_printf(out, "\\%c", letter);
    if (code < 0x20)
        return buf_printf(out, "\\u%04x", (unsigned int)code);
    return put(out, (struct slice){s.p, n});
}

static bool put_json_value(struct buf *out, struct slice s)
{
    if (!put(out, SLICE("\"")))
        return false;
    while (s.n > 0) {
        uint32_t code = 0;
        size_t n = utf8_next(s, &code);

        if (!put_json_char(out, s, n, code))
            return false;
        n = n > 0 ? n : 1;
        s.p += n;
        s.n -= n;
    }
    return put(out, SLICE("\""));
}

void log_append_text(struct buf *out, struct slice value)
{
    (void)put_text_value(out, value);
}

void log_append_json(struct buf *out, struct slice value)
{
    (void)put_json_value(out, value);
}

/* ---- lines ---- */

/* Kept free at the end of a line for what says that it was cut. */
#define LOG_TAIL_BYTES 20

static const char *const level_text[] = {"DEBUG", "INFO", "WARN", "ERROR"};
static const char *const level_json[] = {"debug", "info", "warn", "error"};

static struct {
    struct log_sink sink;
    enum log_level level;
    enum log_format format;
    bool open;
} the_log = {.level = LOG_INFO};

struct log_sink *log_sink(void)
{
    char *error;

    if (!the_log.open && log_sink_open(&the_log.sink, "stderr", &error))
        the_log.open = true;
    return &the_log.sink;
}

void log_init(enum log_level level, enum log_format format)
{
    the_log.level = level;
    the_log.format = format;
    (void)log_sink();
}

bool log_enabled(enum log_level level)
{
    return level >= the_log.level;
}

static bool put_ms(struct buf *out, int64_t us)
{
    uint64_t left = us < 0 ? 0 - (uint64_t)us : (uint64_t)us;
    unsigned int thousandths = (unsigned int)(left % 1000);
    char decimals[8];
    int n = snprintf(decimals, sizeof(decimals), ".%03u", thousandths);

    while (n > 0 && (decimals[n - 1] == '0' || decimals[n - 1] == '.'))
        n--;
    return buf_printf(out, "%s%llu%.*s", us < 0 ? "-" : "", (unsigned long long)(left / 1000), n, decimals);
}

static bool put_value(struct buf *out, const struct log_field *f, bool json)
{
    switch (f->kind) {
    case LOG_FIELD_STR:
        return json ? put_json_value(out, f->str) : put_text_value(out, f->str);
    case LOG_FIELD_INT:
        return buf_printf(out, "%lld", (long long)f->num);
    case LOG_FIELD_BOOL:
        return put(out, f->num != 0 ? SLICE("true") : SLICE("false"));
    case LOG_FIELD_MS:
        return put_ms(out, f->num);
    }
    return true;
}

static bool is_left_out(const struct log_field *f)
{
    return f->kind == LOG_FIELD_STR && f->str.p == NULL;
}

/* The tail's room was kept, so this cannot fail. */
static void end_line(struct buf *line, struct slice tail)
{
    bool ok;

    line->max_bytes += LOG_TAIL_BYTES;
    ok = put(line, tail);
    assert(ok);
}

static void build_text(struct buf *line, enum log_level level, const char *time, struct slice message,
                       const struct log_field *fields, size_t n_fields)
{
    bool ok = buf_printf(line, "%s %s ", time, level_text[level]) && put_text(line, message, true);

    for (size_t i = 0; ok && i < n_fields; i++) {
        if (!is_left_out(&fields[i]))
            ok = buf_printf(line, " %s=", fields[i].key) && put_value(line, &fields[i], false);
    }
    end_line(line, ok ? SLICE("\n") : SLICE("...\n"));
}

static void build_json(struct buf *line, enum log_level level, const char *time, struct slice message,
                       const struct log_field *fields, size_t n_fields)
{
    /* A byte takes six at most. */
    bool cut = message.n > LOG_LINE_BYTES / 8;
    size_t whole;

    if (cut)
        message.n = LOG_LINE_BYTES / 8;
    cut = !(buf_printf(line, "{\"time\":\"%s\",\"level\":\"%s\",\"msg\":", time, level_json[level]) &&
            put_json_value(line, message)) ||
          cut;
    whole = line->len;
    for (size_t i = 0; !cut && i < n_fields; i++) {
        if (is_left_out(&fields[i]))
            continue;
        cut = !(buf_printf(line, ",\"%s\":", fields[i].key) && put_value(line, &fields[i], true));
        whole = cut ? whole : line->len;
    }
    line->len = whole;
    end_line(line, cut ? SLICE(",\"cut\":\"...\"}\n") : SLICE("}\n"));
}

void log_write(enum log_level level, const char *message, const struct log_field *fields, size_t n_fields)
{
    static struct buf line; /* kept, so that a line costs no allocation */
    char time[CLOCK_TEXT_MAX];

    if (!log_enabled(level))
        return;
    line.max_bytes = LOG_LINE_BYTES - LOG_TAIL_BYTES;
    buf_clear(&line);
    (void)clock_format(clock_wall_us(), time);
    (the_log.format == LOG_JSON ? build_json : build_text)(&line, level, time, slice_of(message), fields,
                                                           n_fields);
    log_sink_write(log_sink(), buf_slice(&line));
    if (level >= LOG_ERROR)
        log_sink_flush(log_sink());
}

void log_plain(enum log_level level, const char *fmt, ...)
{
    va_list args;
    char text[LOG_LINE_BYTES];

    if (!log_enabled(level))
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    log_write(level, text, NULL, 0);
}
