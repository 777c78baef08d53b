/* Numbers to text and back: what is accepted, that nothing is lost, that the locale does not matter. */
#include "number.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>

#include "test.h"

static void test_parse(void **state)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"0", 0},
        {"11.0", 11},
        {"-3", -3},
        {"+7", 7},
        {"1e+06", 1e6},
        {"1.20832e+06", 1208320},
        {"1E-3", 0.001},
        {".5", 0.5},
        {"5.", 5},
        {"007", 7},
        {"1e400", (double)INFINITY},
        {"+Inf", (double)INFINITY},
        {"inf", (double)INFINITY},
        {"-Infinity", -(double)INFINITY},
        {"0.6431870669745958", 0.6431870669745958},
    };
    static const char *const bad[] = {"",     " 1",     "1 ",   "+",       "-",   ".",    "e5",
                                      "1e",   "1e+",    "0x10", "1_000",   "1,5", "--1",  "1.2.3",
                                      "Infi", "nan(1)", "1d",   "infinit", "+-1", "1e5.0"};
    double v;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(number_parse(slice_of(good[i].text), &v));
        assert_true(v >= good[i].value && v <= good[i].value);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(number_parse(slice_of(bad[i]), &v));
    assert_true(number_parse(SLICE("NaN"), &v) && isnan(v));
    assert_true(number_parse(SLICE("nan"), &v) && isnan(v));
}

/* The bytes behind the slice must not be read. */
static void test_parse_ends_with_the_slice(void **state)
{
    char digits[200];
    double v;

    (void)state;
    assert_true(number_parse((struct slice){"1234", 2}, &v));
    assert_true(v > 11 && v < 13);
    memset(digits, '1', sizeof(digits));
    assert_false(number_parse((struct slice){digits, sizeof(digits)}, &v));
}

static void assert_text(double value, const char *expected)
{
    char text[NUMBER_TEXT_MAX + 1];

    text[number_format(value, text)] = '\0';
    assert_string_equal(text, expected);
}

static void test_format(void **state)
{
    (void)state;
    assert_text(0, "0");
    assert_text(-12, "-12");
    assert_text(0.1, "0.1");
    assert_text(812.25, "812.25");
    assert_text(1e6, "1000000");
    assert_text(9007199254740991.0, "9007199254740991");
    assert_text(1e300, "1e+300");
    assert_text((double)NAN, "NaN");
    assert_text((double)INFINITY, "+Inf");
    assert_text(-(double)INFINITY, "-Inf");
}

static void test_format_int(void **state)
{
    static const struct {
        int64_t n;
        const char *text;
    } cases[] = {{0, "0"},
                 {7, "7"},
                 {-10, "-10"},
                 {INT64_MAX, "9223372036854775807"},
                 {INT64_MIN, "-9223372036854775808"}};
    char text[NUMBER_TEXT_MAX + 1];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        text[number_format_int(cases[i].n, text)] = '\0';
        assert_string_equal(text, cases[i].text);
    }
}

/* Around each power of ten, and around the largest number that takes the short way. */
static void test_format_int_lengths(void **state)
{
    char text[NUMBER_TEXT_MAX], expected[NUMBER_TEXT_MAX];

    (void)state;
    for (int64_t n = 1; n < INT64_MAX / 10; n *= 10) {
        const int64_t near[] = {n - 1, n, 1 - n, -n, n + UINT32_MAX, n + UINT32_MAX - 1};

        for (size_t i = 0; i < ARRAY_LEN(near); i++) {
            int len = snprintf(expected, sizeof(expected), "%lld", (long long)near[i]);

            assert_int_equal(number_format_int(near[i], text), len);
            assert_memory_equal(text, expected, (size_t)len);
        }
    }
}

/* Any bit pattern reads back as itself. */
static void test_nothing_is_lost(void **state)
{
    struct test_random random = {7};
    char text[NUMBER_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < 100000; i++) {
        uint64_t bits = test_random_next(&random);
        double v, back;

        memcpy(&v, &bits, sizeof(v));
        if (i % 2 == 0)
            v = (double)(bits >> 32) / 1e6;
        assert_true(number_parse((struct slice){text, number_format(v, text)}, &back));
        assert_true(isnan(v) ? isnan(back) : back >= v && back <= v);
    }
}

/* A locale with a decimal comma, where the machine has one, changes nothing. */
static void test_locale(void **state)
{
    static const char *const commas[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    double v;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(commas) && setlocale(LC_ALL, commas[i]) == NULL; i++)
        ;
    assert_text(0.5, "0.5");
    assert_true(number_parse(SLICE("0.5"), &v) && v > 0.4 && v < 0.6);
    assert_non_null(setlocale(LC_ALL, "C"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_parse_ends_with_the_slice),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_format_int),
        cmocka_unit_test(test_format_int_lengths),
        cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_locale),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
