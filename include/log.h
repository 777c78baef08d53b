/* log: levels, text or JSON lines, and sinks that never block the caller. A sink gathers lines in a bounded
 * buffer and writes them in batches when it is flushed; what does not fit is dropped and counted. It does not
 * know the event loop: the loop flushes at the end of each turn. */
#ifndef LOG_H
#define LOG_H

#include "buf.h"
#include "text.h"

#define LOG_BUFFER_BYTES (1024 * 1024)
#define LOG_LINE_BYTES   (16 * 1024)

/* ---- sinks: where lines go ---- */

struct log_sink {
    int fd;
    bool owns_fd;
    bool pollable; /* a pipe, terminal or socket: asked before every write whether it would block */
    char *path;    /* NULL for stdout and stderr */
    bool mid_line; /* the last write ended inside a line */
    struct buf pending;
    uint64_t dropped; /* lines lost: buffer full, or the write failed */
};

/* output: "stdout", "stderr" or a file path (created, appended, mode 0644). False: *error says why (errno
 * text with the path); the caller frees *error with mem_free. */
MUST_CHECK bool log_sink_open(struct log_sink *s, const char *output, char **error);
/* A whole line or nothing is kept; the line ends with '\n'. */
void log_sink_write(struct log_sink *s, struct slice line);
/* Writes as much as the other side takes right now. A broken output drops what is pending and counts it. */
void log_sink_flush(struct log_sink *s);
/* Opens the same path anew (log rotation), after a flush. Keeps the old file when that fails. */
void log_sink_reopen(struct log_sink *s);
void log_sink_close(struct log_sink *s);

/* ---- the router's own log, on stderr ---- */

/* LOG_ALWAYS: whatever the level is; looks like LOG_INFO. */
enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_ALWAYS };
enum log_format { LOG_TEXT, LOG_JSON };

enum log_kind { LOG_FIELD_STR, LOG_FIELD_INT, LOG_FIELD_BOOL, LOG_FIELD_MS };

/* One key=value of a line. Build with the macros below; their keys are literals. */
struct log_field {
    struct slice key; /* as a text line has it: " key=" */
    enum log_kind kind;
    union {
        struct slice str;
        int64_t num;
    };
};

#define LOG_KEY(k) SLICE(" " k "=")
#define LOG_SLICE(k, v)                                                                                      \
    {                                                                                                        \
        .key = LOG_KEY(k), .kind = LOG_FIELD_STR, .str = (v)                                                 \
    }
#define LOG_STR(k, v)                                                                                        \
    {                                                                                                        \
        .key = LOG_KEY(k), .kind = LOG_FIELD_STR, .str = slice_of(v)                                         \
    }
#define LOG_INT(k, v)                                                                                        \
    {                                                                                                        \
        .key = LOG_KEY(k), .kind = LOG_FIELD_INT, .num = (int64_t)(v)                                        \
    }
#define LOG_BOOL(k, v)                                                                                       \
    {                                                                                                        \
        .key = LOG_KEY(k), .kind = LOG_FIELD_BOOL, .num = (v) ? 1 : 0                                        \
    }
/* Microseconds, written as milliseconds with three decimals at most. */
#define LOG_MS(k, us)                                                                                        \
    {                                                                                                        \
        .key = LOG_KEY(k), .kind = LOG_FIELD_MS, .num = (us)                                                 \
    }

void log_init(enum log_level level, enum log_format format);
/* The sink behind the log, for flushing and for the dropped counter. */
struct log_sink *log_sink(void);
/* Lines below it are not written. Read by log_enabled, set by log_init. */
extern enum log_level log_lowest;
static inline bool log_enabled(enum log_level level)
{
    return level >= log_lowest;
}
/* Text: TIME LEVEL MESSAGE key=value ...; JSON: {"time","level","msg",key:value,...}. Values that hold
 * spaces, quotes,
 * '=' or control bytes are quoted and escaped, bytes that are not UTF-8 as \xNN: no value can forge a field
 * or a line. A text line over LOG_LINE_BYTES is cut and ends in "..."; a JSON line leaves out the fields that
 * do not fit and ends in "cut":"...". A slice field with p == NULL is left out. Keys are written as they are:
 * they are ours. An error is flushed at once, in case the process does not live to the end of the loop's
 * turn. */
void log_write(enum log_level level, const char *message, const struct log_field *fields, size_t n_fields);

#define LOG_WITH_FIELDS(level, message, ...)                                                                 \
    do {                                                                                                     \
        if (log_enabled(level)) {                                                                            \
            const struct log_field log_fields_[] = {__VA_ARGS__};                                            \
            log_write((level), (message), log_fields_, ARRAY_LEN(log_fields_));                              \
        }                                                                                                    \
    } while (0)
/* log_info("session boost: dequeued", LOG_STR("model", m), LOG_INT("queue_len", 3)): at least one field. */
#define log_debug(message, ...) LOG_WITH_FIELDS(LOG_DEBUG, message, __VA_ARGS__)
#define log_info(message, ...)  LOG_WITH_FIELDS(LOG_INFO, message, __VA_ARGS__)
#define log_warn(message, ...)  LOG_WITH_FIELDS(LOG_WARN, message, __VA_ARGS__)
#define log_error(message, ...) LOG_WITH_FIELDS(LOG_ERROR, message, __VA_ARGS__)
/* A line without fields, printf style. */
void log_plain(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* One value as log_write writes it in a text line, quoted only when needed. A value that does not fit as a
 * whole is put in as far as it goes. 6 * n + 2 bytes are room enough. */
MUST_CHECK struct text log_put_text(struct text t, struct slice value);
/* The same for a value that needs neither quotes nor an escape. When it may need some, or does not fit, the
 * text comes back as it was. */
MUST_CHECK struct text log_put_plain(struct text t, struct slice value);
/* "value" with JSON escapes and quotes; invalid UTF-8 becomes U+FFFD. Room as above. */
MUST_CHECK struct text log_put_json(struct text t, struct slice value);
/* Appends what log_put_json makes. What exceeds the buffer's maximum is lost. */
void log_append_json(struct buf *out, struct slice value);

#endif
