/* Lines: format, escapes, limits. */
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
    before = buf_reserve(pending, LOG_SINK_BUFFER_BYTES - 100);
    assert_non_null(before);
    memset(before, 'z', LOG_SINK_BUFFER_BYTES - 100);
    buf_commit(pending, LOG_SINK_BUFFER_BYTES - 100);
    log_info("fits", LOG_INT("n", 1));
    buf_consume_keep(pending, LOG_SINK_BUFFER_BYTES - 100);
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

static int tear_down(void **state)
{
    (void)state;
    mem_free(last_line);
    log_sink_close(log_sink());
    return 0;
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
    };

    return cmocka_run_group_tests(tests, NULL, tear_down);
}
