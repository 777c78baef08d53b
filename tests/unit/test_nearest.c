/* The nearest known name of a mistyped one. */
#include "nearest.h"
#include "test.h"

static struct nearest search(const char *wanted)
{
    static const char *const names[] = {"port", "debug_port", "session_boost_timeout",
                                        "session_boost_header"};
    struct nearest n;

    nearest_start(&n, slice_of(wanted));
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        nearest_try(&n, slice_of(names[i]));
    return n;
}

static void check(const char *wanted, const char *best, size_t distance)
{
    struct nearest n = search(wanted);

    assert_string_equal(n.best, best);
    assert_int_equal(n.distance, distance);
}

static void test_distances(void **state)
{
    (void)state;
    check("port", "port", 0);
    check("PORT", "port", 0);
    check("prot", "port", 2);
    check("por", "port", 1);
    check("ports", "port", 1);
    check("part", "port", 1);
    check("", "port", 4);
    check("sesion_boost_timeuot", "session_boost_timeout", 3);
    check("session_bost_haeder", "session_boost_header", 3);
}

static void test_first_of_equals(void **state)
{
    struct nearest n;

    (void)state;
    nearest_start(&n, SLICE("ab"));
    nearest_try(&n, SLICE("ax"));
    nearest_try(&n, SLICE("xb"));
    assert_string_equal(n.best, "ax");
}

static void test_long_names_are_compared_by_their_beginning(void **state)
{
    char a[200], b[200];
    struct nearest n;

    (void)state;
    memset(a, 'a', sizeof(a));
    memset(b, 'a', sizeof(b));
    memset(b + NEAREST_NAME_MAX, 'b', sizeof(b) - NEAREST_NAME_MAX);
    nearest_start(&n, (struct slice){a, sizeof(a)});
    nearest_try(&n, (struct slice){b, sizeof(b)});
    assert_int_equal(n.distance, 0);
    assert_int_equal(strlen(n.best), NEAREST_NAME_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distances),
        cmocka_unit_test(test_first_of_equals),
        cmocka_unit_test(test_long_names_are_compared_by_their_beginning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
