/* Lists and watches in every split; strings with brackets; what is not JSON; limits. */
#include "kubescan.h"

#include "mem.h"
#include "test.h"

/* Feeds `text` in pieces of `step` and joins the objects with '|'; what is left says how it ended. */
static char *cut(enum kubescan_mode mode, struct slice text, size_t step, enum kubescan_step *end,
                 char **outer)
{
    struct kubescan s;
    struct buf all;
    char *result;

    buf_init(&all, 1024 * 1024);
    kubescan_init(&s);
    kubescan_start(&s, mode);
    *end = KUBESCAN_MORE;
    while (text.n > 0 && *end != KUBESCAN_BAD) {
        struct slice in = {text.p, text.n < step ? text.n : step};

        text.p += in.n, text.n -= in.n;
        do {
            *end = kubescan_next(&s, &in);
            if (*end == KUBESCAN_OBJECT)
                assert_true(buf_append_slice(&all, buf_slice(&s.object)) && buf_append(&all, "|", 1));
        } while (*end == KUBESCAN_OBJECT || (*end == KUBESCAN_DONE && in.n > 0));
    }
    if (*end == KUBESCAN_BAD)
        assert_non_null(s.error);
    if (outer != NULL)
        *outer = mem_dup_slice(buf_slice(&s.outer));
    result = mem_dup_slice(buf_slice(&all));
    kubescan_free(&s);
    buf_free(&all);
    return result;
}

static void expect(enum kubescan_mode mode, const char *text, enum kubescan_step end, const char *objects,
                   const char *outer)
{
    for (size_t step = 1; step <= strlen(text); step++) {
        enum kubescan_step got_end;
        char *got_outer, *got = cut(mode, slice_of(text), step, &got_end, &got_outer);

        assert_string_equal(got, objects);
        assert_int_equal(got_end, end);
        if (outer != NULL)
            assert_string_equal(got_outer, outer);
        mem_free(got);
        mem_free(got_outer);
    }
}

static void test_list(void **state)
{
    (void)state;
    expect(KUBESCAN_LIST, "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[]}",
           KUBESCAN_DONE, "", "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[]}");
    expect(KUBESCAN_LIST, "{\"items\": [ {\"a\":[{}]} , {\"b\":\"]}\\\"{\"}\n],\"metadata\":{\"items\":[1]}}",
           KUBESCAN_DONE, "{\"a\":[{}]}|{\"b\":\"]}\\\"{\"}|",
           "{\"items\": [],\"metadata\":{\"items\":[1]}}");
    expect(KUBESCAN_LIST, "{\"x\\\"items\":[1],\"y\":\"[\",\"items\" : [{}]} ", KUBESCAN_MORE, "{}|",
           "{\"x\\\"items\":[1],\"y\":\"[\",\"items\" : []}");
    expect(KUBESCAN_LIST, "{\"kind\":\"Status\",\"code\":410}", KUBESCAN_DONE, "",
           "{\"kind\":\"Status\",\"code\":410}");
}

static void test_list_that_is_none(void **state)
{
    (void)state;
    expect(KUBESCAN_LIST, "<html>", KUBESCAN_BAD, "", NULL);
    expect(KUBESCAN_LIST, "[]", KUBESCAN_BAD, "", NULL);
    expect(KUBESCAN_LIST, "{\"items\":[1]}", KUBESCAN_BAD, "", NULL);
    expect(KUBESCAN_LIST, "{\"items\":[{}]}x", KUBESCAN_BAD, "{}|", NULL);
    expect(KUBESCAN_LIST, "{\"items\":[{}", KUBESCAN_MORE, "{}|", NULL);
}

static void test_watch(void **state)
{
    (void)state;
    expect(KUBESCAN_WATCH, "{\"type\":\"ADDED\",\"object\":{}}\n{\"type\":\"B\"}\n\n", KUBESCAN_MORE,
           "{\"type\":\"ADDED\",\"object\":{}}\n|{\"type\":\"B\"}\n|", "");
    expect(KUBESCAN_WATCH, "{}\n,", KUBESCAN_BAD, "{}\n|", NULL);
    expect(KUBESCAN_WATCH, "x", KUBESCAN_BAD, "", NULL);
}

/* Lines stay lines, whatever is in them: what is broken hides nothing behind it. */
static void test_broken_lines(void **state)
{
    (void)state;
    expect(KUBESCAN_WATCH, "{}{}\n", KUBESCAN_MORE, "{}{}\n|", "");
    expect(KUBESCAN_WATCH, "{\"a\":[\n{}\n", KUBESCAN_MORE, "{\"a\":[\n|{}\n|", "");
    expect(KUBESCAN_WATCH, "{\"a\n \r\n{}\r\n", KUBESCAN_MORE, "{\"a\n|{}\r\n|", "");
}

static void test_rest(void **state)
{
    struct kubescan s;
    struct slice in = SLICE("{}\n{\"a\"");

    (void)state;
    kubescan_init(&s);
    kubescan_start(&s, KUBESCAN_WATCH);
    assert_true(kubescan_at_rest(&s));
    assert_int_equal(kubescan_next(&s, &in), KUBESCAN_OBJECT);
    assert_true(kubescan_at_rest(&s));
    assert_int_equal(kubescan_next(&s, &in), KUBESCAN_MORE);
    assert_false(kubescan_at_rest(&s));
    kubescan_start(&s, KUBESCAN_LIST);
    assert_true(kubescan_at_rest(&s));
    kubescan_free(&s);
}

static void test_limits(void **state)
{
    const size_t n = KUBESCAN_OBJECT_MAX + 16;
    char *text = mem_alloc(n);
    enum kubescan_step end;
    char *got;

    (void)state;
    memset(text, 'x', n);
    memcpy(text, "{\"a\":\"", 6);
    got = cut(KUBESCAN_WATCH, (struct slice){text, n}, 100000, &end, NULL);
    assert_int_equal(end, KUBESCAN_BAD);
    mem_free(got);
    got = cut(KUBESCAN_LIST, (struct slice){text, KUBESCAN_OUTER_MAX + 1}, 1000, &end, NULL);
    assert_int_equal(end, KUBESCAN_BAD);
    mem_free(got);
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list),  cmocka_unit_test(test_list_that_is_none),
                                       cmocka_unit_test(test_watch), cmocka_unit_test(test_broken_lines),
                                       cmocka_unit_test(test_rest),  cmocka_unit_test(test_limits)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
