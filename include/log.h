/* log: the router's own log: levels, text or JSON lines, and how a value stands in one. Lines go to a sink
 * (log_sink.h). */
#ifndef LOG_H
#define LOG_H

#include "log_sink.h"
#include "text.h"

#define LOG_LINE_BYTES (16 * 1024)
#define LOG_PLAIN_MAX  1024
#define LOG_KEY_MAX    64

/* ---- the router's own log, on stderr ---- */

/* LOG_DEBUG: no line has it, LOG_LEVEL knows it. LOG_ALWAYS: whatever the level is; looks like LOG_INFO. */
enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_ALWAYS };
enum log_format { LOG_TEXT, LOG_JSON };

void log_init(enum log_level level, enum log_format format);
/* Lines from now on have this time; 0: that of the clock. */
void log_set_time(int64_t wall_us);
/* The sink behind the log, for flushing and for the dropped counter. */
struct log_sink *log_sink(void);
/* Lines below it are not written. Set by log_init. */
extern enum log_level log_lowest;
static inline bool log_enabled(enum log_level level)
{
    return level >= log_lowest;
}
/* A value that stands in many lines: whether it goes there as it is was found out once. It is not copied. */
struct log_known {
    struct slice value;
    bool is_plain; /* log_is_plain */
};
struct log_known log_know(const char *value);

/* Text: TIME LEVEL MESSAGE key=value ...; JSON: {"time","level","msg",key:value,...}. Values that hold
 * spaces, quotes, '=' or control bytes are quoted and escaped, bytes that are not UTF-8 as \xNN: no value can
 * forge a field or a line. A text line over LOG_LINE_BYTES is cut and ends in "..."; a JSON line leaves out
 * the fields that do not fit and ends in "cut":"...". A string field with p == NULL is left out. Messages and
 * keys are written as they are: they are ours. An error is flushed at once, in case the process does not live
 * to the end of the loop's turn.
 *
 * log_info("session boost: dequeued", LOG_STR("model", m), LOG_INT("queue_len", 3)): at least one field. What
 * the fields are computed from must not log. */
#define log_info(message, ...)               LOG_WITH_FIELDS(LOG_INFO, message, __VA_ARGS__)
#define log_warn(message, ...)               LOG_WITH_FIELDS(LOG_WARN, message, __VA_ARGS__)
#define log_error(message, ...)              LOG_WITH_FIELDS(LOG_ERROR, message, __VA_ARGS__)
#define LOG_WITH_FIELDS(level, message, ...) LOG_EVENT(level, slice_of(message), __VA_ARGS__)
#define LOG_EVENT(level, message, ...)                                                                       \
    do {                                                                                                     \
        if (log_enabled(level)) {                                                                            \
            struct log_line log_line_;                                                                       \
            log_begin(&log_line_, (level), (message));                                                       \
            __VA_ARGS__;                                                                                     \
            log_end(&log_line_);                                                                             \
            if ((level) == LOG_ERROR)                                                                        \
                log_sink_flush(log_sink());                                                                  \
        }                                                                                                    \
    } while (0)

/* The fields. Keys are literals. */
#define LOG_SLICE(k, v) log_str(&log_line_, LOG_KEY(k), (v))
#define LOG_STR(k, v)   log_str(&log_line_, LOG_KEY(k), slice_of(v))
#define LOG_INT(k, v)   log_int(&log_line_, LOG_KEY(k), (int64_t)(v))
#define LOG_BOOL(k, v)  log_bool(&log_line_, LOG_KEY(k), (v))
/* Microseconds, written as milliseconds with three decimals at most. */
#define LOG_MS(k, us) log_ms(&log_line_, LOG_KEY(k), (us))
/* A struct log_known. */
#define LOG_KNOWN(k, v) log_put_known(&log_line_, LOG_KEY(k), (v))
#define LOG_KEY(k)      SLICE(" " k "=") /* as a text line has it */

/* ---- what those are made of ---- */

/* A line on its way into the sink. */
struct log_line {
    bool cut; /* something did not fit; nothing more is written */
    char *start, *at;
    char *quick_end; /* a field that starts up to here has room, whatever it is; == start: none goes in
                        quickly */
};

void log_begin(struct log_line *l, enum log_level level, struct slice message);
void log_end(struct log_line *l);
void log_add_str(struct log_line *l, struct slice key, struct slice value);
void log_add_int(struct log_line *l, struct slice key, int64_t n);
void log_add_bool(struct log_line *l, struct slice key, bool b);
void log_add_ms(struct log_line *l, struct slice key, int64_t us);

/* The field goes in without a call. */
static inline bool log_is_quick(const struct log_line *l, struct slice key)
{
    assert(key.n <= LOG_KEY_MAX);
    return l->at <= l->quick_end;
}

static inline void log_str(struct log_line *l, struct slice key, struct slice value)
{
    if (value.p != NULL)
        log_add_str(l, key, value);
}

static inline __attribute__((always_inline)) void log_put_known(struct log_line *l, struct slice key,
                                                                struct log_known v)
{
    if (v.is_plain && log_is_quick(l, key))
        l->at = text_add(text_add(l->at, key), v.value);
    else
        log_str(l, key, v.value);
}

static inline __attribute__((always_inline)) void log_int(struct log_line *l, struct slice key, int64_t n)
{
    if (log_is_quick(l, key))
        l->at = text_add_int(text_add(l->at, key), n);
    else
        log_add_int(l, key, n);
}

static inline void log_bool(struct log_line *l, struct slice key, bool b)
{
    if (log_is_quick(l, key))
        l->at = text_add_bool(text_add(l->at, key), b);
    else
        log_add_bool(l, key, b);
}

/* 0: it did not have to wait. */
static inline void log_ms(struct log_line *l, struct slice key, int64_t us)
{
    if (us == 0)
        log_int(l, key, 0);
    else
        log_add_ms(l, key, us);
}

/* ---- values ---- */

/* One value as a text line has it, quoted only when needed. A value that does not fit as a
 * whole is put in as far as it goes. 6 * n + 2 bytes are room enough. */
MUST_CHECK struct text log_put_text(struct text t, struct slice value);
/* The same for a value that needs neither quotes nor an escape. When it may need some, or does not fit, the
 * text comes back as it was. */
MUST_CHECK struct text log_put_plain(struct text t, struct slice value);
/* The value needs neither quotes nor an escape in any kind of line, is not empty and not longer than
 * LOG_PLAIN_MAX. False may be wrong. */
bool log_is_plain(struct slice value);
/* "value" with JSON escapes and quotes; invalid UTF-8 becomes U+FFFD. Room as above. */
MUST_CHECK struct text log_put_json(struct text t, struct slice value);
/* Appends what log_put_json makes. What exceeds the buffer's maximum is lost. */
void log_append_json(struct buf *out, struct slice value);

#endif
