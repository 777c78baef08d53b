/* The value syntaxes: what Go accepts and refuses, sizes, and that formatted values parse back. */
#include "duration.h"

#include "test.h"

static void test_durations(void **state)
{
    static const struct {
        const char *text;
        int64_t us;
    } good[] = {
        {"0", 0},
        {"+0", 0},
        {"-0", 0},
        {"0s", 0},
        {"30s", 30 * US_PER_S},
        {"1m30s", 90 * US_PER_S},
        {"30s1m", 90 * US_PER_S},
        {"+5s", 5 * US_PER_S},
        {"250ms", 250000},
        {"1.5h", 5400 * US_PER_S},
        {".5s", 500000},
        {"1.s", US_PER_S},
        {"-1s", -US_PER_S},
        {"-.5ms", -500},
        {"1h0.5m", 3630 * US_PER_S},
        {"100us", 100},
        {"100\xc2\xb5s", 100},
        {"100\xce\xbcs", 100},
        {"1ns", 1},
        {"-1ns", -1},
        {"1001ns", 2},
        {"2000ns", 2},
        {"1h1m1s1ms1us", INT64_C(3661001001)},
        {"0.3333333333333333333h", INT64_C(1200000000)},
        {"0.100000000000000000000s", 100000},
        {"9223372036854775807ns", INT64_C(9223372036854776)},
        {"-9223372036854775808ns", INT64_C(-9223372036854776)},
        {"2562047h47m16.854775807s", INT64_C(9223372036854776)},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        int64_t us = -77;

        if (!duration_parse(slice_of(good[i].text), &us) || us != good[i].us)
            fail_msg("\"%s\" gave %lld, not %lld", good[i].text, (long long)us, (long long)good[i].us);
    }
}

static void test_no_durations(void **state)
{
    static const char *const bad[] = {
        "",
        "30",
        "s",
        ".",
        "1 s",
        "1d",
        "1S",
        "--1s",
        "1s-1s",
        "+",
        "-",
        "+-1s",
        " 1s",
        "1s ",
        ".s",
        "1..s",
        "1.5",
        "1s1",
        "00",
        "0x1s",
        "1e3s",
        "1\xc2s",
        "1m s",
        "inf",
        "1_000s",
        "9223372036854775808ns",
        "-9223372036854775809ns",
        "18446744073709551616s",
        "2562048h",
        "9223372036.9h",
        "2562047h47m16.854775808s",
        "1s9223372036854775807ns",
        "5124095.9999h",
        "0.99999999999999999999999h2562047h47m16s",
        "99999999999999999999999999999ns",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int64_t us = -77;

        if (duration_parse(slice_of(bad[i]), &us) || us != -77)
            fail_msg("\"%s\" was taken as %lld", bad[i], (long long)us);
    }
    assert_false(duration_parse((struct slice){"1s\0", 3}, &(int64_t){0}));
}

static void expect_format(int64_t us, const char *want)
{
    char out[DURATION_TEXT_MAX];
    size_t n = duration_format(us, out);

    assert_string_equal(out, want);
    assert_int_equal(n, strlen(want));
}

static void test_format(void **state)
{
    (void)state;
    expect_format(0, "0s");
    expect_format(90 * US_PER_S, "1m30s");
    expect_format(60 * US_PER_S, "1m");
    expect_format(3600 * US_PER_S, "1h");
    expect_format(3600 * US_PER_S + 500000, "1h0.5s");
    expect_format(250000, "250ms");
    expect_format(1500, "1.5ms");
    expect_format(1500000, "1.5s");
    expect_format(7, "7us");
    expect_format(-US_PER_S, "-1s");
    expect_format(INT64_MIN, "-2562047788h54.775808s");
}

static void test_format_parses_back(void **state)
{
    struct test_random r = {9};

    (void)state;
    for (int i = 0; i < 100000; i++) {
        char out[DURATION_TEXT_MAX];
        int64_t us = (int64_t)(test_random_next(&r) >> (11 + test_random_below(&r, 52))), back;

        if (i % 2 == 0)
            us = us / US_PER_MS * US_PER_MS;
        if (i % 3 == 0)
            us = -us;
        assert_true(duration_parse((struct slice){out, duration_format(us, out)}, &back));
        assert_true(back == us);
    }
}

static void test_bytes(void **state)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {
        {"0", 0},
        {"65536", 65536},
        {"64KiB", 65536},
        {"64Ki", 65536},
        {"64K", 65536},
        {"1MB", 1000000},
        {"1kB", 1000},
        {"1KB", 1000},
        {"64MiB", 67108864},
        {"64M", 67108864},
        {"1GiB", 1 << 30},
        {"1Gi", 1 << 30},
        {"2G", INT64_C(2) << 30},
        {"1GB", 1000000000},
        {"1TiB", INT64_C(1) << 40},
        {"3TB", INT64_C(3000000000000)},
        {"10B", 10},
        {"007", 7},
        {"9223372036854775807", INT64_MAX},
    };
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      "K",
                                      "1.5G",
                                      "1 K",
                                      " 1",
                                      "1k",
                                      "1kiB",
                                      "1KiBs",
                                      "1e3",
                                      "0x10",
                                      "1_000",
                                      "1PiB",
                                      "9223372036854775808",
                                      "8388608TiB",
                                      "99999999999999999999"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        int64_t bytes = -77;

        if (!duration_parse_bytes(slice_of(good[i].text), &bytes) || bytes != good[i].bytes)
            fail_msg("\"%s\" gave %lld", good[i].text, (long long)bytes);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int64_t bytes = -77;

        if (duration_parse_bytes(slice_of(bad[i]), &bytes) || bytes != -77)
            fail_msg("\"%s\" was taken as %lld", bad[i], (long long)bytes);
    }
}

static void expect_format_bytes(int64_t bytes, const char *want)
{
    char out[DURATION_TEXT_MAX];
    size_t n = duration_format_bytes(bytes, out);
    int64_t back;

    assert_string_equal(out, want);
    assert_int_equal(n, strlen(want));
    assert_true(duration_parse_bytes((struct slice){out, n}, &back));
    assert_true(back == bytes);
}

static void test_format_bytes(void **state)
{
    (void)state;
    expect_format_bytes(0, "0");
    expect_format_bytes(1000, "1000");
    expect_format_bytes(65536, "64KiB");
    expect_format_bytes(64 << 20, "64MiB");
    expect_format_bytes(1 << 30, "1GiB");
    expect_format_bytes((1 << 20) + 1, "1048577");
    expect_format_bytes(INT64_C(5) << 50, "5120TiB");
    expect_format_bytes(INT64_MAX, "9223372036854775807");
}

static void test_ints(void **state)
{
    static const char *const bad[] = {"",
                                      "+",
                                      "-",
                                      " 16",
                                      "16 ",
                                      "1e3",
                                      "0x10",
                                      "1_000",
                                      "--1",
                                      "1.0",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "100000000000000000000"};
    int64_t value;

    (void)state;
    assert_true(duration_parse_int(SLICE("16"), &value) && value == 16);
    assert_true(duration_parse_int(SLICE("+16"), &value) && value == 16);
    assert_true(duration_parse_int(SLICE("-16"), &value) && value == -16);
    assert_true(duration_parse_int(SLICE("007"), &value) && value == 7);
    assert_true(duration_parse_int(SLICE("00000000000000000000000016"), &value) && value == 16);
    assert_true(duration_parse_int(SLICE("9223372036854775807"), &value) && value == INT64_MAX);
    assert_true(duration_parse_int(SLICE("-9223372036854775808"), &value) && value == INT64_MIN);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        value = -77;
        if (duration_parse_int(slice_of(bad[i]), &value) || value != -77)
            fail_msg("\"%s\" was taken as %lld", bad[i], (long long)value);
    }
}

static void test_bools(void **state)
{
    static const char *const yes[] = {"1", "t", "T", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False"};
    static const char *const bad[] = {"",  "yes", "on", "tRuE", " true", "true ",
                                      "2", "no",  "Y",  "tr",   "falsee"};
    bool value = false;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(yes); i++)
        assert_true(duration_parse_bool(slice_of(yes[i]), &value) && value);
    for (size_t i = 0; i < ARRAY_LEN(no); i++)
        assert_true(duration_parse_bool(slice_of(no[i]), &value) && !value);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(duration_parse_bool(slice_of(bad[i]), &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_durations), cmocka_unit_test(test_no_durations),
        cmocka_unit_test(test_format),    cmocka_unit_test(test_format_parses_back),
        cmocka_unit_test(test_bytes),     cmocka_unit_test(test_format_bytes),
        cmocka_unit_test(test_ints),      cmocka_unit_test(test_bools),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
