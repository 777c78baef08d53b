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
    expect_take(" ],1", NULL, ",1");
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

static void test_enter(void **state)
{
    struct slice rest = SLICE(" [ {\"a\":1,\"b\":[2]} , 3, {} ],\"x\":4}"), key, value;

    (void)state;
    assert_false(json_enter(&rest, '{'));
    assert_true(json_enter(&rest, '[') && json_enter(&rest, '{'));
    assert_true(json_member(&rest, &key, &value) && slice_eq(key, SLICE("a")));
    assert_true(json_member(&rest, &key, &value) && slice_eq(value, SLICE("[2]")));
    assert_false(json_member(&rest, &key, &value));
    assert_false(json_enter(&rest, '{'));
    assert_true(json_element(&rest, &value) && slice_eq(value, SLICE("3")));
    assert_true(json_enter(&rest, '{'));
    assert_false(json_member(&rest, &key, &value));
    assert_false(json_element(&rest, &value)); /* the end of the array */
    assert_true(json_member(&rest, &key, &value) && slice_eq(key, SLICE("x")));
    assert_false(json_member(&rest, &key, &value));
    assert_false(json_enter(&rest, '{'));
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

static size_t characters_one_by_one(struct slice inside)
{
    size_t n = 0;

    for (size_t i = 0; i < inside.n;) {
        const char *p = inside.p + i;
        const size_t left = inside.n - i, bytes = *p != '\\'                 ? 1
                                                  : left >= 6 && p[1] == 'u' ? 6
                                                  : left < 2                 ? 1
                                                                             : 2;

        if (bytes == 6)
            n += (p[2] | 0x20) != 'd' || strchr("cdefCDEF", p[3]) == NULL;
        else
            n += ((unsigned char)*p & 0xc0) != 0x80;
        i += bytes;
    }
    return n;
}

/* Strings of every length around whole blocks, made of what matters in them, at the end of the text and
 * before it. */
static void test_strings_against_a_naive_reading(void **state)
{
    static const char *const pieces[] = {
        "a",        "bcdefghijklmnopqrst", "\\\\", "\\\"", "\\n", "\\u00e4", "\\uD83d", "\\uDe00",
        "\xc3\xa4", "\xf0\x9f\x98\x80",    "{[",   "u"};
    struct test_random r = {7};
    char text[1200];

    (void)state;
    for (int run = 0; run < 20000; run++) {
        const size_t longest = test_random_below(&r, 300);
        size_t n = 1;
        struct slice rest, got;

        text[0] = '"';
        while (n < longest) {
            const char *piece =
                pieces[test_random_below(&r, test_random_below(&r, 3) == 0 ? ARRAY_LEN(pieces) : 2)];

            memcpy(text + n, piece, strlen(piece));
            n += strlen(piece);
        }
        memcpy(text + n++, "\"", 1);
        memset(text + n, ',', 100);
        rest = (struct slice){text, n + test_random_below(&r, 100)};
        got = json_take(&rest);
        assert_int_equal(got.n, n);
        got = json_inside(got);
        assert_int_equal(json_characters(got), characters_one_by_one(got));
        rest = (struct slice){text, n - 1};
        assert_null(json_take(&rest).p); /* open */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_enter),
        cmocka_unit_test(test_strings_against_a_naive_reading),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
