/* Lines: format, escapes, limits. Sinks: nothing blocks, nothing is lost silently, lines stay whole. */
#include "log.h"
#include "mem.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

/* ---- lines, looked at in the log's own buffer ---- */

static char *last_line;

/* The pending line without its time; the text is valid until the next call. */
static const char *take_line(void)
{
    struct slice s = buf_slice(&log_sink()->pending);
    const char *start;

    mem_free(last_line);
    last_line = mem_dup_slice(s);
    buf_consume_keep(&log_sink()->pending, s.n);
    start = strchr(last_line, ' ');
    assert_true(s.n > 0);
    assert_int_equal(last_line[s.n - 1], '\n');
    last_line[s.n - 1] = '\0';
    return start == NULL ? last_line : start + 1;
}

/* As in a router that has run for a while: lines begin the quick way, when their turn's time is set. */
static void make_room(void)
{
    assert_non_null(buf_reserve(&log_sink()->pending, 4 * LOG_LINE_BYTES));
}

static void test_text_line(void **state)
{
    (void)state;
    log_init(LOG_INFO, LOG_TEXT);
    log_info("session boost: dequeued", LOG_STR("model", "m1"), LOG_INT("queue_len", -3),
             LOG_BOOL("boosted", true), LOG_MS("wait_ms", 12500),
             LOG_SLICE("absent", ((struct slice){NULL, 0})), LOG_STR("empty", ""));
    assert_string_equal(take_line(),
                        "INFO session boost: dequeued model=m1 queue_len=-3 boosted=true wait_ms=12.5 "
                        "empty=\"\"");
    assert_true(last_line[4] == '-' && last_line[10] == 'T'); /* the time */
}

static void test_levels(void **state)
{
    (void)state;
    log_init(LOG_WARN, LOG_TEXT);
    assert_false(log_enabled(LOG_INFO));
    assert_true(log_enabled(LOG_WARN));
    log_info("no", LOG_INT("n", 1));
    assert_int_equal(log_sink()->pending.len, 0);
    log_warn("yes", LOG_INT("n", 1));
    assert_string_equal(take_line(), "WARN yes n=1");
    log_init(LOG_DEBUG, LOG_TEXT);
    LOG_WITH_FIELDS(LOG_DEBUG, "yes", LOG_INT("n", 2));
    assert_string_equal(take_line(), "DEBUG yes n=2");
    log_init(LOG_ERROR, LOG_TEXT);
    LOG_WITH_FIELDS(LOG_ALWAYS, "yes", LOG_INT("n", 3));
    assert_string_equal(take_line(), "INFO yes n=3");
}

static void expect_ms(int64_t us, const char *want)
{
    log_init(LOG_INFO, LOG_TEXT);
    log_info("x", LOG_MS("t", us));
    assert_string_equal(take_line() + strlen("INFO x t="), want);
}

static void test_ms(void **state)
{
    (void)state;
    expect_ms(0, "0");
    expect_ms(1, "0.001");
    expect_ms(1500, "1.5");
    expect_ms(10000, "10");
    expect_ms(100000, "100");
    expect_ms(1234567, "1234.567");
    expect_ms(-50, "-0.05");
}

static void expect_text(struct slice value, const char *want)
{
    char bytes[200];
    struct text t = log_put_text((struct text){bytes, sizeof(bytes)}, value);

    assert_true(t.left_bytes > 0);
    assert_int_equal(t.at - bytes, strlen(want));
    assert_memory_equal(bytes, want, strlen(want));
}

static void test_text_values(void **state)
{
    (void)state;
    expect_text(SLICE("plain-value_1:2/3"), "plain-value_1:2/3");
    expect_text(SLICE("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
    expect_text(SLICE("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
    expect_text(SLICE(""), "\"\"");
    expect_text(SLICE("a b"), "\"a b\"");
    expect_text(SLICE("a=b"), "\"a=b\"");
    expect_text(SLICE("say \"x\""), "\"say \\\"x\\\"\"");
    expect_text(SLICE("back\\slash"), "\"back\\\\slash\"");
    expect_text(SLICE("x\nERROR forged"), "\"x\\nERROR forged\"");
    expect_text(SLICE("\r\t\x1b[31m\x7f"), "\"\\r\\t\\x1b[31m\\x7f\"");
    expect_text((struct slice){"a\0b", 3}, "\"a\\x00b\"");
    expect_text(SLICE("bad\xff"), "\"bad\\xff\"");
    expect_text(SLICE("cut\xc3"), "\"cut\\xc3\"");
    expect_text(SLICE("\xc0\xaf"), "\"\\xc0\\xaf\"");                   /* overlong */
    expect_text(SLICE("\xe0\x80\xaf"), "\"\\xe0\\x80\\xaf\"");          /* overlong */
    expect_text(SLICE("\xed\xa0\x80"), "\"\\xed\\xa0\\x80\"");          /* a surrogate */
    expect_text(SLICE("\xf4\x90\x80\x80"), "\"\\xf4\\x90\\x80\\x80\""); /* beyond the last character */
    expect_text(SLICE("\xc2\x85"), "\"\\u0085\"");                      /* next line */
    expect_text(SLICE("\xe2\x80\xa8"), "\"\\u2028\"");                  /* line separator */
    expect_text(SLICE("\xe2\x80\xae"), "\"\\u202e\"");                  /* right to left */
}

static bool is_always_plain(unsigned char c)
{
    return c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
}

/* Most values are looked at in steps of many bytes: no byte may slip through in any place. */
static void test_each_byte_in_each_place(void **state)
{
    (void)state;
    for (size_t n = 1; n < 70; n++) {
        for (size_t place = 0; place < n; place++) {
            for (int c = 0; c < 256; c++) {
                char value[70], bytes[600];
                struct text t = {bytes, sizeof(bytes)};
                bool plain = is_always_plain((unsigned char)c);
                size_t len;

                memset(value, '~', n);
                value[place] = (char)c;
                len = (size_t)(log_put_text(t, (struct slice){value, n}).at - bytes);
                assert_int_equal(len == n && memcmp(bytes, value, n) == 0, plain);
                assert_int_equal(bytes[0] == '"', !plain);
                assert_int_equal(log_is_plain((struct slice){value, n}), plain && c != '!');
                len = (size_t)(log_put_json(t, (struct slice){value, n}).at - bytes);
                assert_int_equal(len == n + 2, c >= ' ' && c < 0x80 && c != '"' && c != '\\');
                assert_memory_equal(bytes + 1, value, place);
            }
        }
    }
}

/* What does not fit as a whole is put in as far as it goes, and nothing behind the end is written. */
static void test_full_text(void **state)
{
    static const char whole[] = "\"a\\\"b c\"";

    (void)state;
    for (size_t room = 0; room < sizeof(whole) + 1; room++) {
        char bytes[40];
        struct text t = {bytes, room};

        memset(bytes, '#', sizeof(bytes));
        t = log_put_text(t, SLICE("a\"b c"));
        assert_true((size_t)(t.at - bytes) <= room);
        assert_int_equal(t.left_bytes > 0, room >= sizeof(whole));
        assert_memory_equal(bytes, whole, (size_t)(t.at - bytes));
        assert_int_equal(bytes[room], '#');
        assert_ptr_equal(text_put_int((struct text){bytes, 3}, 1234).at, bytes);
    }
}

static void expect_json(struct slice value, const char *want)
{
    struct buf b;

    buf_init(&b, 1000);
    log_append_json(&b, value);
    assert_true(buf_append(&b, "", 1));
    assert_string_equal(b.data, want);
    buf_free(&b);
}

static void test_json_values(void **state)
{
    (void)state;
    expect_json(SLICE("a b=c"), "\"a b=c\"");
    expect_json(SLICE(""), "\"\"");
    expect_json(SLICE("q\"b\\n\n\r\t"), "\"q\\\"b\\\\n\\n\\r\\t\"");
    expect_json(SLICE("\x01\x1f"), "\"\\u0001\\u001f\"");
    expect_json((struct slice){"\0", 1}, "\"\\u0000\"");
    expect_json(SLICE("gr\xc3\xbc\xff\xc3"), "\"gr\xc3\xbc\xef\xbf\xbd\xef\xbf\xbd\"");
}

static cJSON *take_json(void)
{
    cJSON *line;

    (void)take_line();
    line = cJSON_Parse(last_line);
    assert_non_null(line);
    return line;
}

static void test_json_line(void **state)
{
    cJSON *line;

    (void)state;
    log_init(LOG_INFO, LOG_JSON);
    log_info("a \"message\"", LOG_STR("model", "m\n1"), LOG_INT("n", 7), LOG_BOOL("b", false),
             LOG_MS("wait_ms", 1500), LOG_STR("absent", NULL));
    line = take_json();
    assert_non_null(cJSON_GetObjectItem(line, "time"));
    assert_string_equal(cJSON_GetObjectItem(line, "level")->valuestring, "info");
    assert_string_equal(cJSON_GetObjectItem(line, "msg")->valuestring, "a \"message\"");
    assert_string_equal(cJSON_GetObjectItem(line, "model")->valuestring, "m\n1");
    assert_int_equal(cJSON_GetObjectItem(line, "n")->valueint, 7);
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(line, "b")));
    assert_true(cJSON_GetObjectItem(line, "wait_ms")->valuedouble == 1.5);
    assert_null(cJSON_GetObjectItem(line, "absent"));
    cJSON_Delete(line);
}

static void test_long_lines(void **state)
{
    char *big = mem_alloc(100000);
    size_t len;
    cJSON *line;

    (void)state;
    memset(big, 'x', 99999);
    big[99999] = '\0';
    log_init(LOG_INFO, LOG_TEXT);
    log_info("m", LOG_INT("n", 1), LOG_STR("big", big), LOG_INT("lost", 1));
    len = log_sink()->pending.len;
    assert_true(len <= LOG_LINE_BYTES && len > LOG_LINE_BYTES - 64);
    (void)take_line();
    assert_string_equal(last_line + strlen(last_line) - 5, "xx...");
    memset(big, '\n', 99999);
    log_info("m", LOG_STR("big", big));
    assert_true(log_sink()->pending.len <= LOG_LINE_BYTES);
    (void)take_line();
    assert_null(strchr(last_line, '\n'));
    assert_string_equal(last_line + strlen(last_line) - 5, "\\n...");

    log_init(LOG_INFO, LOG_JSON);
    log_info("m", LOG_INT("n", 1), LOG_STR("big", big), LOG_INT("lost", 1));
    line = take_json();
    assert_int_equal(cJSON_GetObjectItem(line, "n")->valueint, 1);
    assert_string_equal(cJSON_GetObjectItem(line, "cut")->valuestring, "...");
    assert_null(cJSON_GetObjectItem(line, "big"));
    cJSON_Delete(line);
    mem_free(big);
}

/* The quick way of what is known to be plain gives the same, up to the end of the line. */
static void test_known_values(void **state)
{
    static char big[LOG_LINE_BYTES];
    const struct log_known longer = log_know("0123456789012345678901234567890123456789");
    const struct log_known plain = log_know("m1"), odd = log_know("m 1"), none = {.is_plain = false};

    (void)state;
    memset(big, 'y', LOG_PLAIN_MAX + 1);
    assert_true(log_is_plain((struct slice){big, LOG_PLAIN_MAX}));
    assert_false(log_is_plain((struct slice){big, LOG_PLAIN_MAX + 1}));
    assert_true(plain.is_plain && !odd.is_plain && !log_know("").is_plain);
    log_init(LOG_INFO, LOG_TEXT);
    log_info("x", LOG_KNOWN("a", plain), LOG_KNOWN("b", odd), LOG_KNOWN("c", none),
             LOG_KNOWN("d", log_know("")));
    assert_string_equal(take_line(), "INFO x a=m1 b=\"m 1\" d=\"\"");
    log_set_time(INT64_C(1772600767080000));
    make_room();
    log_info("from now on it is quick", LOG_INT("n", 1));
    assert_string_equal(take_line(), "INFO from now on it is quick n=1");
    log_error("x", LOG_KNOWN("a", plain), LOG_KNOWN("b", odd), LOG_KNOWN("c", none), LOG_INT("n", -5),
              LOG_MS("t", 0), LOG_MS("t", 1500), LOG_BOOL("b", true));
    assert_int_equal(log_sink()->pending.len, 0); /* an error is written at once */
    log_info("x", LOG_KNOWN("a", plain), LOG_KNOWN("b", odd), LOG_KNOWN("c", none), LOG_INT("n", -5),
             LOG_MS("t", 0), LOG_MS("t", 1500), LOG_BOOL("b", true));
    assert_string_equal(take_line(), "INFO x a=m1 b=\"m 1\" n=-5 t=0 t=1.5 b=true");
    for (size_t n = LOG_LINE_BYTES - 160; n < LOG_LINE_BYTES - 1; n++) {
        memset(big, 'y', n);
        big[n] = '\0';
        log_info("x", LOG_KNOWN("big", log_know(big)), LOG_KNOWN("a", longer), LOG_INT("n", 1234567),
                 LOG_BOOL("b", false));
        assert_true(log_sink()->pending.len <= LOG_LINE_BYTES);
        (void)take_line();
        if (strcmp(last_line + strlen(last_line) - 3, "...") != 0)
            assert_string_equal(strstr(last_line, " a="),
                                " a=0123456789012345678901234567890123456789 n=1234567 b=false");
        else
            assert_null(strstr(last_line, "b=false"));
    }
    log_init(LOG_INFO, LOG_JSON);
    log_info("x", LOG_KNOWN("a", plain), LOG_KNOWN("b", odd));
    log_set_time(0);
    (void)take_line();
    assert_non_null(strstr(last_line, "\"msg\":\"x\",\"a\":\"m1\",\"b\":\"m 1\"}"));
}

static void test_time(void **state)
{
    (void)state;
    log_init(LOG_INFO, LOG_TEXT);
    make_room();
    for (int i = 0; i < 4; i++) { /* every second one from memory */
        log_set_time(i < 2 ? INT64_C(1772600767080000) : INT64_C(1772600768080000));
        log_info("x", LOG_INT("n", 1));
        log_info("x", LOG_INT("n", 2));
        (void)take_line();
        assert_string_equal(last_line, i < 2 ? "2026-03-04T05:06:07.08Z INFO x n=1\n"
                                               "2026-03-04T05:06:07.08Z INFO x n=2"
                                             : "2026-03-04T05:06:08.08Z INFO x n=1\n"
                                               "2026-03-04T05:06:08.08Z INFO x n=2");
    }
    log_set_time(0);
    log_info("x", LOG_INT("n", 1));
    (void)take_line();
    assert_true(strncmp(last_line, "2026-03-04T05:06:08", 19) > 0);
}

/* The buffer has less room than the longest line takes: lines that do fit are kept. */
static void test_nearly_full_buffer(void **state)
{
    struct buf *pending = &log_sink()->pending;
    char *before;

    (void)state;
    log_init(LOG_INFO, LOG_TEXT);
    before = buf_reserve(pending, LOG_BUFFER_BYTES - 100);
    assert_non_null(before);
    memset(before, 'z', LOG_BUFFER_BYTES - 100);
    buf_commit(pending, LOG_BUFFER_BYTES - 100);
    log_info("fits", LOG_INT("n", 1));
    buf_consume_keep(pending, LOG_BUFFER_BYTES - 100);
    assert_string_equal(take_line(), "INFO fits n=1");
}

/* Every byte string gives one line of valid JSON, and text without a raw control byte. */
static void test_random_values(void **state)
{
    struct test_random r = {13};

    (void)state;
    for (int i = 0; i < 20000; i++) {
        char bytes[40];
        struct slice value = {bytes, test_random_below(&r, sizeof(bytes))};
        cJSON *line;

        for (size_t k = 0; k < value.n; k++)
            bytes[k] =
                (char)(test_random_below(&r, 2) == 0 ? test_random_next(&r) : test_random_below(&r, 128));
        log_init(LOG_INFO, LOG_JSON);
        log_info("m", LOG_SLICE("v", value), LOG_INT("after", 1));
        line = take_json();
        assert_non_null(cJSON_GetObjectItem(line, "after"));
        cJSON_Delete(line);
        log_init(LOG_INFO, LOG_TEXT);
        log_info("m", LOG_SLICE("v", value), LOG_INT("after", 1));
        (void)take_line();
        for (const char *p = last_line; *p != '\0'; p++)
            assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
        assert_string_equal(last_line + strlen(last_line) - 8, " after=1");
    }
}

/* ---- sinks ---- */

/* A sink that writes into a new pipe, opened as the configuration opens one; *reader is the other end. */
static void open_pipe_sink(struct log_sink *s, int *reader)
{
    int fds[2];
    char path[64], *error;

    assert_int_equal(pipe(fds), 0);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[1]);
    assert_true(log_sink_open(s, path, &error));
    assert_false(s->may_block);
    (void)close(fds[1]);
    *reader = fds[0];
}

/* As stdout or stderr are when /proc is missing: the shared, blocking descriptor itself. */
static void open_blocking_sink(struct log_sink *s, int *reader)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    *s = (struct log_sink){.fd = fds[1], .owns_fd = true, .may_block = true};
    buf_init(&s->pending, LOG_BUFFER_BYTES);
    *reader = fds[0];
}

#define NUMBERED_BYTES 115

static void write_numbered(struct log_sink *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        char line[128];
        int n = snprintf(line, sizeof(line), "line %08d %0100d\n", i, 0);

        log_sink_write(s, (struct slice){line, (size_t)n});
    }
}

/* Reads what is there; every line must be whole and numbered upwards. Returns how many lines came. */
static int read_lines(struct log_sink *s, int reader)
{
    char *all = mem_alloc(4 * LOG_BUFFER_BYTES);
    size_t len = 0;
    int n_lines = 0, last = -1;

    assert_int_equal(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
    for (;;) {
        ssize_t n = read(reader, all + len, 4 * LOG_BUFFER_BYTES - len);

        if (n <= 0 && s->pending.len == 0)
            break;
        len += n > 0 ? (size_t)n : 0;
        log_sink_flush(s);
    }
    for (char *p = all; p < all + len; n_lines++) {
        int number;

        assert_int_equal(sscanf(p, "line %d ", &number), 1);
        assert_true(number > last);
        last = number;
        assert_int_equal(p[NUMBERED_BYTES - 1], '\n');
        p += NUMBERED_BYTES;
    }
    mem_free(all);
    return n_lines;
}

static void take_lines(int reader, size_t n_lines)
{
    char bytes[NUMBERED_BYTES];

    for (; n_lines > 0; n_lines--)
        assert_int_equal(read(reader, bytes, sizeof(bytes)), sizeof(bytes));
}

/* Both logs into one pipe: neither writes into a line of the other. */
static void test_shared_pipe(void **state)
{
    struct log_sink a, b;
    char path[64], *error;
    int reader;

    (void)state;
    open_pipe_sink(&a, &reader);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", a.fd);
    assert_true(log_sink_open(&b, path, &error));
    log_sink_pair(&a, &b);
    write_numbered(&a, 0, 1000); /* more than a pipe holds */
    log_sink_flush(&a);
    assert_true(a.mid_line);
    write_numbered(&b, 1000, 1010);
    take_lines(reader, 80);
    log_sink_flush(&b); /* what there is room for now is a's, and it does not end with a line either */
    assert_true(a.mid_line);
    assert_int_equal(b.pending.len, 10 * NUMBERED_BYTES);
    take_lines(reader, 560);
    log_sink_flush(&b); /* room for all */
    assert_int_equal(a.pending.len, 0);
    assert_int_equal(read_lines(&b, reader), 1000 - 80 - 560 + 10);
    log_sink_close(&b);
    log_sink_flush(&a); /* which stands alone again */
    log_sink_close(&a);
    (void)close(reader);
}

/* The half of a line that one log leaves in the pipe for good ends before the other one's next line. */
static void test_shared_pipe_is_given_up(void **state)
{
    struct log_sink a, b;
    char path[64], *error, bytes[3 * NUMBERED_BYTES];
    int reader;
    ssize_t n;

    (void)state;
    (void)alarm(60);
    open_pipe_sink(&a, &reader);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", a.fd);
    assert_true(log_sink_open(&b, path, &error));
    log_sink_pair(&a, &b);
    write_numbered(&a, 0, 1000);
    log_sink_close(&a); /* nobody reads on in time */
    take_lines(reader, 560);
    write_numbered(&b, 1000, 1001);
    log_sink_flush(&b);
    while ((n = read(reader, bytes, sizeof(bytes))) == (ssize_t)sizeof(bytes))
        ;
    assert_true(n > NUMBERED_BYTES);
    assert_int_equal(bytes[n - NUMBERED_BYTES - 1], '\n');
    assert_memory_equal(bytes + n - NUMBERED_BYTES, "line 00001000 ", 14);
    log_sink_close(&b);
    (void)alarm(0);
    (void)close(reader);
}

/* A reader that is behind gets the rest while the sink is closed. */
static void test_close_waits_for_the_reader(void **state)
{
    const int n_lines = 3000;
    struct log_sink s;
    int reader, status;
    pid_t child;

    (void)state;
    open_pipe_sink(&s, &reader);
    child = fork();
    if (child == 0) {
        char bytes[NUMBERED_BYTES];
        size_t got = 0;

        log_sink_close(&s);
        for (ssize_t n; (n = read(reader, bytes, sizeof(bytes))) > 0;) /* slower than anybody writes */
            got += (size_t)n;
        _exit(got == (size_t)n_lines * NUMBERED_BYTES ? 0 : 1);
    }
    write_numbered(&s, 0, n_lines);
    log_sink_close(&s);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    (void)close(reader);
}

/* Nobody takes the rest: the end comes all the same. */
static void test_close_with_a_stuck_reader(void **state)
{
    struct log_sink s;
    int reader;

    (void)state;
    (void)alarm(60);
    open_pipe_sink(&s, &reader);
    write_numbered(&s, 0, 1000);
    log_sink_close(&s);
    (void)alarm(0);
    (void)close(reader);
}

static void full_pipe(void (*open_sink)(struct log_sink *, int *))
{
    const int n_lines = 30000; /* more than pipe and buffer hold */
    struct log_sink s;
    int reader;

    (void)alarm(60); /* a write that blocks ends the test */
    open_sink(&s, &reader);
    write_numbered(&s, 0, n_lines);
    log_sink_flush(&s);
    log_sink_flush(&s);
    assert_true(s.dropped > 0);
    assert_true(s.pending.len <= LOG_BUFFER_BYTES);
    assert_int_equal(read_lines(&s, reader), n_lines - (int)s.dropped);
    write_numbered(&s, n_lines, n_lines + 10); /* it has recovered */
    log_sink_flush(&s);
    assert_int_equal(read_lines(&s, reader), 10);
    (void)alarm(0);
    log_sink_close(&s);
    (void)close(reader);
}

static void test_full_pipe(void **state)
{
    (void)state;
    full_pipe(open_pipe_sink);
    full_pipe(open_blocking_sink);
}

static void test_closed_pipe(void **state)
{
    struct log_sink s;
    int reader;

    (void)state;
    open_pipe_sink(&s, &reader);
    (void)close(reader);
    write_numbered(&s, 0, 3);
    assert_int_equal(s.dropped, 0);
    log_sink_flush(&s);
    log_sink_flush(&s);
    assert_int_equal(s.dropped, 3);
    assert_int_equal(s.pending.len, 0);
    write_numbered(&s, 3, 5);
    log_sink_flush(&s);
    assert_int_equal(s.dropped, 5);
    log_sink_close(&s);
}

/* stdout as a pipe: the sink must not make our parent's end non-blocking. */
static void test_stdout_is_left_as_it_is(void **state)
{
    struct log_sink s;
    char *error;
    int fds[2], saved = dup(STDOUT_FILENO);

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(dup2(fds[1], STDOUT_FILENO), STDOUT_FILENO);
    assert_true(log_sink_open(&s, "stdout", &error));
    write_numbered(&s, 0, 3);
    log_sink_flush(&s);
    assert_int_equal(fcntl(STDOUT_FILENO, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(read_lines(&s, fds[0]), 3);
    log_sink_close(&s);
    assert_true(fcntl(STDOUT_FILENO, F_GETFD) >= 0); /* still open */
    assert_int_equal(dup2(saved, STDOUT_FILENO), STDOUT_FILENO);
    (void)close(saved);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static char temp_dir[] = "/tmp/test_log.XXXXXX";

static char *temp_path(const char *name)
{
    return mem_printf("%s/%s", temp_dir, name);
}

static void expect_file(const char *path, const char *want)
{
    char text[256];
    FILE *f = fopen(path, "r");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    (void)fclose(f);
    assert_string_equal(text, want);
}

static void test_file(void **state)
{
    char *path = temp_path("access.log"), *moved = temp_path("access.log.1"), *error;
    struct log_sink s;
    struct stat st;
    mode_t mask = umask(0);

    (void)state;
    assert_true(log_sink_open(&s, path, &error));
    (void)umask(mask);
    assert_false(s.may_block);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    log_sink_write(&s, SLICE("one\n"));
    expect_file(path, ""); /* gathered */
    log_sink_flush(&s);
    expect_file(path, "one\n");
    assert_int_equal(rename(path, moved), 0);
    log_sink_write(&s, SLICE("two\n"));
    log_sink_reopen(&s);
    log_sink_write(&s, SLICE("three\n"));
    log_sink_close(&s);
    expect_file(moved, "one\ntwo\n");
    expect_file(path, "three\n");
    assert_true(log_sink_open(&s, path, &error));
    log_sink_write(&s, SLICE("four\n"));
    log_sink_close(&s); /* flushes */
    expect_file(path, "three\nfour\n");
    assert_int_equal(unlink(path) + unlink(moved), 0);
    mem_free(path);
    mem_free(moved);
}

/* stdout sent to a file: the descriptor is used as it is, and is not ours to close. */
static void test_stdout_is_a_file(void **state)
{
    char *path = temp_path("stdout"), *error;
    int saved = dup(STDOUT_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    struct log_sink s;

    (void)state;
    assert_int_equal(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    assert_true(log_sink_open(&s, "stdout", &error));
    log_sink_write(&s, SLICE("one\n"));
    log_sink_reopen(&s); /* nothing to open anew */
    log_sink_close(&s);
    assert_int_equal(write(STDOUT_FILENO, "two\n", 4), 4);
    assert_int_equal(dup2(saved, STDOUT_FILENO), STDOUT_FILENO);
    expect_file(path, "one\ntwo\n");
    assert_int_equal(close(fd) + close(saved) + unlink(path), 0);
    mem_free(path);
}

static void test_reopen_fails(void **state)
{
    char *dir = temp_path("sub"), *path = temp_path("sub/log"), *moved = temp_path("gone"),
         *kept = temp_path("gone/log");
    struct log_sink s;
    char *error;

    (void)state;
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_true(log_sink_open(&s, path, &error));
    assert_int_equal(rename(dir, moved), 0);
    log_sink_write(&s, SLICE("one\n"));
    log_sink_reopen(&s);
    log_sink_write(&s, SLICE("two\n"));
    log_sink_close(&s);
    expect_file(kept, "one\ntwo\n");
    assert_int_equal(unlink(kept) + rmdir(moved), 0);
    mem_free(dir);
    mem_free(path);
    mem_free(moved);
    mem_free(kept);
}

static void test_cannot_open(void **state)
{
    char *path = temp_path("none/log"), *fifo = temp_path("fifo"), *error = NULL;
    struct log_sink s;

    (void)state;
    assert_false(log_sink_open(&s, path, &error));
    assert_non_null(strstr(error, path));
    assert_non_null(strstr(error, strerror(ENOENT)));
    mem_free(error);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    (void)alarm(60);
    assert_false(log_sink_open(&s, fifo, &error)); /* nobody reads; it must not wait */
    (void)alarm(0);
    mem_free(error);
    assert_int_equal(unlink(fifo), 0);
    mem_free(path);
    mem_free(fifo);
}

/* A full disk in the middle of a line, played by a file size limit: what follows starts on a line of its own.
 */
static void test_broken_in_mid_line(void **state)
{
    char *path = temp_path("full"), *error;
    struct rlimit old, small;
    struct log_sink s;

    (void)state;
    assert_true(log_sink_open(&s, path, &error));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){6, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    log_sink_write(&s, SLICE("one\n"));
    log_sink_write(&s, SLICE("two\n"));
    log_sink_write(&s, SLICE("three\n"));
    for (int i = 0; i < 3; i++) { /* nothing is left to be tried again, and lost again */
        log_sink_flush(&s);
        assert_int_equal(s.dropped, 2);
        assert_int_equal(s.pending.len, 0);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    log_sink_write(&s, SLICE("four\n"));
    log_sink_flush(&s);
    log_sink_close(&s);
    expect_file(path, "one\ntw\nfour\n");
    assert_int_equal(unlink(path), 0);
    mem_free(path);
}

static int set_up(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    return mkdtemp(temp_dir) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    mem_free(last_line);
    log_sink_close(log_sink());
    return rmdir(temp_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_line),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_ms),
        cmocka_unit_test(test_text_values),
        cmocka_unit_test(test_each_byte_in_each_place),
        cmocka_unit_test(test_full_text),
        cmocka_unit_test(test_json_values),
        cmocka_unit_test(test_json_line),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_nearly_full_buffer),
        cmocka_unit_test(test_random_values),
        cmocka_unit_test(test_full_pipe),
        cmocka_unit_test(test_shared_pipe),
        cmocka_unit_test(test_shared_pipe_is_given_up),
        cmocka_unit_test(test_close_waits_for_the_reader),
        cmocka_unit_test(test_close_with_a_stuck_reader),
        cmocka_unit_test(test_closed_pipe),
        cmocka_unit_test(test_stdout_is_left_as_it_is),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_stdout_is_a_file),
        cmocka_unit_test(test_reopen_fails),
        cmocka_unit_test(test_cannot_open),
        cmocka_unit_test(test_broken_in_mid_line),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
