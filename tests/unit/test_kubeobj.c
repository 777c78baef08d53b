/* Envelopes and identities as real API servers write them, and trees of other shapes. */
#include "kubeobj.h"

#include <cjson/cJSON.h>

#include "mem.h"
#include "test.h"

static void test_parse(void **state)
{
    const struct slice bad[] = {
        SLICE(""),      SLICE("{}{}"),          SLICE("{} x"), SLICE("{\"a\""), SLICE("{\"a\":\"\x1b\"}"),
        SLICE("{},\n"), SLICE("{\"a\":\"\0\"}")};
    struct cJSON *o = kubeobj_parse(SLICE("{\"a\":\n\t[]}\r\n"));

    (void)state;
    assert_non_null(o);
    kubeobj_free(o);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_null(kubeobj_parse(bad[i]));
}

static void test_meta(void **state)
{
    struct cJSON *o = kubeobj_parse(SLICE(
        "{\"metadata\":{\"name\":\"p-1\",\"namespace\":\"llm\",\"uid\":\"u1\",\"resourceVersion\":\"42\","
        "\"creationTimestamp\":\"2026-01-02T03:04:05Z\",\"deletionTimestamp\":null,"
        "\"managedFields\":[{\"fieldsV1\":{\"f:metadata\":{}}}]}}"));
    struct kubeobj_meta m;

    (void)state;
    assert_true(kubeobj_meta(o, &m));
    assert_true(slice_eq(m.uid, SLICE("u1")) && slice_eq(m.namespace, SLICE("llm")));
    assert_true(slice_eq(m.version, SLICE("42")) && slice_eq(m.created, SLICE("2026-01-02T03:04:05Z")));
    assert_false(m.deleting);
    kubeobj_free(o);
    o = kubeobj_parse(SLICE(
        "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\",\"deletionTimestamp\":\"2026-01-02T03:04:05Z\"}}"));
    assert_true(kubeobj_meta(o, &m));
    assert_true(m.deleting);
    kubeobj_free(o);
}

static void test_meta_of_other_shapes(void **state)
{
    static const char *const texts[] = {"{}",
                                        "[]",
                                        "1",
                                        "{\"metadata\":[]}",
                                        "{\"metadata\":{\"uid\":7,\"name\":\"x\"}}",
                                        "{\"metadata\":{\"uid\":\"\",\"name\":\"x\"}}"};
    struct kubeobj_meta m;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct cJSON *o = kubeobj_parse(slice_of(texts[i]));

        assert_non_null(o);
        assert_false(kubeobj_meta(o, &m));
        kubeobj_free(o);
    }
    assert_false(kubeobj_meta(NULL, &m));
    assert_null(kubeobj_parse(SLICE("")));
    assert_null(kubeobj_parse(SLICE("{\"a\":")));
}

static void test_event(void **state)
{
    static const struct {
        const char *text;
        enum kubeobj_event event;
    } cases[] = {{"{\"type\":\"ADDED\",\"object\":{}}", KUBEOBJ_ADDED},
                 {"{\"type\":\"MODIFIED\",\"object\":{}}", KUBEOBJ_MODIFIED},
                 {"{\"type\":\"DELETED\",\"object\":{}}", KUBEOBJ_DELETED},
                 {"{\"type\":\"BOOKMARK\",\"object\":{}}", KUBEOBJ_BOOKMARK},
                 {"{\"type\":\"ERROR\",\"object\":{}}", KUBEOBJ_ERROR},
                 {"{\"type\":\"added\",\"object\":{}}", KUBEOBJ_UNKNOWN}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct cJSON *o = kubeobj_parse(slice_of(cases[i].text));
        const struct cJSON *object;

        assert_int_equal(kubeobj_event(o, &object), cases[i].event);
        assert_non_null(object);
        kubeobj_free(o);
    }
}

static void test_list_and_status(void **state)
{
    struct cJSON *o =
        kubeobj_parse(SLICE("{\"metadata\":{\"resourceVersion\":\"9\",\"continue\":\"abc\"},\"items\":[]}"));
    struct slice version, more;

    (void)state;
    assert_true(kubeobj_list(o, &version, &more));
    assert_true(slice_eq(version, SLICE("9")) && slice_eq(more, SLICE("abc")));
    kubeobj_free(o);
    o = kubeobj_parse(SLICE(
        "{\"kind\":\"Status\",\"metadata\":{},\"code\":410,\"reason\":\"Expired\",\"message\":\"too old\"}"));
    assert_false(kubeobj_list(o, &version, &more));
    assert_int_equal(kubeobj_status(o, &more), 410);
    assert_true(slice_eq(more, SLICE("too old")));
    kubeobj_free(o);
    assert_int_equal(kubeobj_status(NULL, &more), 0);
}

static void test_values(void **state)
{
    struct cJSON *o = kubeobj_parse(SLICE("{\"a\":1,\"b\":1.5,\"c\":null,\"d\":true,\"e\":1e300,\"f\":-3}"));
    int64_t v = 0;

    (void)state;
    assert_true(kubeobj_int(o, "a", &v) && v == 1);
    assert_true(kubeobj_int(o, "f", &v) && v == -3);
    assert_false(kubeobj_int(o, "b", &v) || kubeobj_int(o, "e", &v) || kubeobj_int(o, "x", &v));
    assert_true(kubeobj_bool(o, "c", true) && kubeobj_bool(o, "d", false) && !kubeobj_bool(o, "x", false));
    kubeobj_free(o);
}

static void test_authority(void **state)
{
    char *a = kubeobj_authority(SLICE("10.0.0.1"), 8000);

    (void)state;
    assert_string_equal(a, "10.0.0.1:8000");
    mem_free(a);
    a = kubeobj_authority(SLICE("FD00:0::1"), 80);
    assert_string_equal(a, "[fd00::1]:80");
    mem_free(a);
    assert_null(kubeobj_authority(SLICE("10.0.0.1"), 0));
    assert_null(kubeobj_authority(SLICE("10.0.0.1"), 65536));
    assert_null(kubeobj_authority(SLICE("pod.example"), 80));
    assert_null(kubeobj_authority((struct slice){NULL, 0}, 80));
}

static void test_sorting(void **state)
{
    struct kubeobj_endpoint *e = mem_array(NULL, 3, sizeof(*e));
    size_t n;

    (void)state;
    e[0] = (struct kubeobj_endpoint){mem_strdup("10.0.0.2:1"), mem_strdup("")};
    e[1] = (struct kubeobj_endpoint){mem_strdup("10.0.0.1:1"), mem_strdup("a")};
    e[2] = (struct kubeobj_endpoint){mem_strdup("10.0.0.2:1"), mem_strdup("b")};
    n = kubeobj_sort_endpoints(e, 3);
    assert_int_equal(n, 2);
    assert_string_equal(e[0].authority, "10.0.0.1:1");
    assert_string_equal(e[1].uid, "b");
    kubeobj_free_endpoints(e, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parse),
                                       cmocka_unit_test(test_meta),
                                       cmocka_unit_test(test_meta_of_other_shapes),
                                       cmocka_unit_test(test_event),
                                       cmocka_unit_test(test_list_and_status),
                                       cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_authority),
                                       cmocka_unit_test(test_sorting)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
