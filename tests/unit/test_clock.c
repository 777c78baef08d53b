/* The text form of wall time, and a clock that does not go back. */
#include "clock.h"

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
        cmocka_unit_test(test_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
