/* Values in place: where they end, what objects and arrays hold, characters of strings, and text that is no
 * JSON. */
#include "json.h"

#include "test.h"

static void expect_take(const char *text, const char *value, const char *left)
{
    struct slice rest = slice_of(text), got = json_take(&rest);

    assert_true(slice_eq(got, slice_of(value)));
    assert_true((got.p == NULL) == (value == NULL));
    assert_true(slice_eq(rest, slice_of(left)));
}

static void test_take(void **state)
{
    (void)state;
    expect_take(" 12 ,3", "12", " ,3");
    expect_take("\"a\\\"b\" x", "\"a\\\"b\"", " x");
    expect_take("\"a\\\\\"b", "\"a\\\\\"", "b");
    expect_take("\"\\\\\\\"\"b", "\"\\\\\\\"\"", "b");
    expect_take("{\"a\":[1,{\"b\":\"}]\"}]}]", "{\"a\":[1,{\"b\":\"}]\"}]}", "]");
    expect_take("\r\n\ttrue}", "true", "}");
    expect_take("", NULL, "");
    expect_take("   ", NULL, "");
    expect_take("\"open", NULL, "");
    expect_take("{\"a\":1", NULL, "");
    expect_take("{\"open", NULL, "");
    expect_take(":1", NULL, "");
}

static void test_members(void **state)
{
    struct slice inside = json_inside(SLICE("{ \"a\" : 1 , \"b\":[2,3],\"c\":{}}")), key, value;

    (void)state;
    assert_true(json_member(&inside, &key, &value));
    assert_true(slice_eq(key, SLICE("a")) && slice_eq(value, SLICE("1")));
    assert_true(json_member(&inside, &key, &value));
    assert_true(slice_eq(key, SLICE("b")) && slice_eq(value, SLICE("[2,3]")));
    assert_true(json_member(&inside, &key, &value));
    assert_true(slice_eq(key, SLICE("c")) && json_is(value, '{'));
    assert_false(json_member(&inside, &key, &value));
}

static void test_elements(void **state)
{
    struct slice inside = json_inside(SLICE("[ \"x\",[1], null ]")), value;

    (void)state;
    assert_true(json_element(&inside, &value) && slice_eq(value, SLICE("\"x\"")));
    assert_true(json_element(&inside, &value) && slice_eq(value, SLICE("[1]")));
    assert_true(json_element(&inside, &value) && slice_eq(value, SLICE("null")));
    assert_false(json_element(&inside, &value));
    inside = json_inside(SLICE("[]"));
    assert_false(json_element(&inside, &value));
}

static void test_find(void **state)
{
    (void)state;
    assert_true(slice_eq(json_find(SLICE("{\"a\":1,\"b\":2,\"a\":3}"), SLICE("a")), SLICE("3")));
    assert_null(json_find(SLICE("{\"a\":{\"b\":2}}"), SLICE("b")).p);
    assert_null(json_find(SLICE("[\"a\",1]"), SLICE("a")).p);
    assert_null(json_find(SLICE("7"), SLICE("a")).p);
    assert_null(json_find((struct slice){NULL, 0}, SLICE("a")).p);
    assert_null(json_inside(SLICE("true")).p);
    assert_null(json_inside(SLICE("{")).p);
}

static void expect_characters(const char *inside, size_t n)
{
    assert_int_equal(json_characters(slice_of(inside)), n);
}

static void test_characters(void **state)
{
    (void)state;
    expect_characters("", 0);
    expect_characters("hello world", 11);
    expect_characters("\xc3\xa4\xe4\xbd\xa0\xf0\x9f\x98\x80 and ten more", 16);
    expect_characters("a\\nb\\\"c\\\\d", 7);
    expect_characters("\\u00e4\\ud83d\\ude00x", 3);
    expect_characters("\\ud83d", 1);
    expect_characters("\\", 1);
    expect_characters("\\u12", 3);
    assert_int_equal(json_characters((struct slice){NULL, 0}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take), cmocka_unit_test(test_members),    cmocka_unit_test(test_elements),
        cmocka_unit_test(test_find), cmocka_unit_test(test_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
