/* Slices: comparison, trimming, cutting. */
#include "util.h"

#include "test.h"

static void test_eq(void **state)
{
    (void)state;
    assert_true(slice_eq(SLICE("ab"), slice_of("ab")));
    assert_false(slice_eq(SLICE("ab"), SLICE("aB")));
    assert_false(slice_eq(SLICE("ab"), SLICE("abc")));
    assert_true(slice_eq(SLICE(""), (struct slice){NULL, 0}));
    assert_true(slice_ieq(SLICE("Content-Type"), SLICE("content-tYPE")));
    assert_false(slice_ieq(SLICE("a"), SLICE("ab")));
    assert_int_equal(slice_of(NULL).n, 0);
}

static void test_starts(void **state)
{
    (void)state;
    assert_true(slice_starts(SLICE("/v1/models"), SLICE("/v1/")));
    assert_true(slice_starts(SLICE("/v1/"), SLICE("")));
    assert_false(slice_starts(SLICE("/v1"), SLICE("/v1/")));
}

static void test_trim(void **state)
{
    (void)state;
    assert_true(slice_eq(slice_trim(SLICE(" \t a b\t ")), SLICE("a b")));
    assert_true(slice_eq(slice_trim(SLICE("\r\n")), SLICE("\r\n")));
    assert_int_equal(slice_trim(SLICE(" \t ")).n, 0);
}

static void test_cut(void **state)
{
    struct slice rest = SLICE("a,,b");

    (void)state;
    assert_true(slice_eq(slice_cut(&rest, ','), SLICE("a")));
    assert_true(slice_eq(slice_cut(&rest, ','), SLICE("")));
    assert_non_null(rest.p);
    assert_true(slice_eq(slice_cut(&rest, ','), SLICE("b")));
    assert_null(rest.p);
    rest = SLICE("a,");
    assert_true(slice_eq(slice_cut(&rest, ','), SLICE("a")));
    assert_non_null(rest.p); /* one more, empty, item follows */
    assert_int_equal(slice_cut(&rest, ',').n, 0);
    assert_null(rest.p);
}

struct outer {
    int before;
    int member;
};

static void test_container(void **state)
{
    struct outer o = {1, 2};

    (void)state;
    assert_ptr_equal(CONTAINER_OF(&o.member, struct outer, member), &o);
    assert_int_equal(ARRAY_LEN(((int[]){1, 2, 3})), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eq),  cmocka_unit_test(test_starts),    cmocka_unit_test(test_trim),
        cmocka_unit_test(test_cut), cmocka_unit_test(test_container),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
