/* The text form of wall time, and a clock that does not go back. */
#include "clock.h"

#include <time.h>

#include "test.h"

static void expect_text(int64_t wall_us, const char *want)
{
    char out[CLOCK_TEXT_MAX];
    size_t n = clock_format(wall_us, out);

    assert_string_equal(out, want);
    assert_int_equal(n, strlen(want));
}

static void test_format(void **state)
{
    (void)state;
    expect_text(0, "1970-01-01T00:00:00Z");
    expect_text(INT64_C(1772600767080000), "2026-03-04T05:06:07.08Z");
    expect_text(INT64_C(1772600767000001), "2026-03-04T05:06:07.000001Z");
    expect_text(INT64_C(1772600767999999), "2026-03-04T05:06:07.999999Z");
    expect_text(INT64_C(1772600760000000), "2026-03-04T05:06:00Z");
    expect_text(-1, "1969-12-31T23:59:59.999999Z");
    expect_text(-US_PER_S, "1969-12-31T23:59:59Z");
    expect_text(INT64_MIN, "-290308-12-21T19:59:05.224192Z");
    expect_text(INT64_MAX, "294247-01-10T04:00:54.775807Z");
}

/* Parts of the text are kept from call to call: jumps between seconds and days must not mix them up. */
static void test_format_jumps(void **state)
{
    struct test_random r = {3};

    (void)state;
    for (int i = 0; i < 20000; i++) {
        int64_t s = (int64_t)test_random_below(&r, 4) * 86400 + (int64_t)test_random_below(&r, 3) - 1;
        time_t t = (time_t)s;
        char want[CLOCK_TEXT_MAX];
        struct tm tm;

        assert_non_null(gmtime_r(&t, &tm));
        assert_true(strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%SZ", &tm) > 0);
        expect_text(s * US_PER_S, want);
    }
}

static void expect_http_date(int64_t wall_us, const char *want)
{
    struct slice date = clock_http_date(wall_us);

    assert_int_equal(date.n, strlen(want));
    assert_memory_equal(date.p, want, date.n);
}

static void test_http_date(void **state)
{
    (void)state;
    expect_http_date(0, "Thu, 01 Jan 1970 00:00:00 GMT");
    expect_http_date(INT64_C(784111777000000), "Sun, 06 Nov 1994 08:49:37 GMT");
    expect_http_date(INT64_C(784111777999999), "Sun, 06 Nov 1994 08:49:37 GMT");
    expect_http_date(INT64_C(784111778000000), "Sun, 06 Nov 1994 08:49:38 GMT");
    expect_http_date(0, "Thu, 01 Jan 1970 00:00:00 GMT");
}

static void test_read(void **state)
{
    int64_t before = clock_mono_us();

    (void)state;
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_mono_us();

        assert_true(now >= before);
        before = now;
    }
    assert_true(clock_wall_us() > INT64_C(1700000000) * US_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_format_jumps),
        cmocka_unit_test(test_http_date),
        cmocka_unit_test(test_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
