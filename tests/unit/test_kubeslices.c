/* EndpointSlices: conditions, ports, both families, slices that share pods, and lists that replace. */
#include "kubeslices.h"

#include <stdio.h>

#include "buf.h"
#include "mem.h"
#include "test.h"

static bool put(struct kubeslices *s, const char *text, const char **why)
{
    struct cJSON *o = kubeobj_parse(slice_of(text));
    bool ok;

    assert_non_null(o);
    ok = kubeslices_put(s, o, why);
    kubeobj_free(o);
    return ok;
}

/* A slice of one endpoint. */
static void put_one(struct kubeslices *s, const char *uid, const char *address, const char *conditions)
{
    const char *why = NULL;
    char *text = mem_printf(
        "{\"metadata\":{\"name\":\"n-%s\",\"uid\":\"%s\"},\"addressType\":\"%s\",\"endpoints\":[{"
        "\"addresses\":[\"%s\"],\"conditions\":{%s},\"targetRef\":{\"kind\":\"Pod\",\"uid\":\"pod-%s\"}}],"
        "\"ports\":[{\"name\":\"http\",\"port\":8000},{\"name\":\"metrics\",\"port\":9000}]}",
        uid, uid, strchr(address, ':') != NULL ? "IPv6" : "IPv4", address, conditions, address);

    assert_true(put(s, text, &why));
    mem_free(text);
}

static void expect(const struct kubeslices *s, const char *authorities)
{
    struct buf all;
    size_t n;
    struct kubeobj_endpoint *e = kubeslices_endpoints(s, &n);

    buf_init(&all, 4096);
    for (size_t i = 0; i < n; i++)
        assert_true(buf_printf(&all, "%s%s", i > 0 ? " " : "", e[i].authority));
    assert_true(buf_append(&all, "", 1));
    assert_string_equal(buf_slice(&all).p, authorities);
    kubeobj_free_endpoints(e, n);
    buf_free(&all);
}

static void test_conditions(void **state)
{
    static const struct {
        const char *conditions;
        bool usable;
    } cases[] = {{"\"ready\":true,\"serving\":true,\"terminating\":false", true},
                 {"\"ready\":false,\"serving\":true,\"terminating\":true", false},
                 {"\"ready\":false,\"serving\":false,\"terminating\":false", false},
                 {"\"ready\":true,\"terminating\":true", false},
                 {"\"ready\":null", true},
                 {"", true}};
    struct kubeslices s;

    (void)state;
    kubeslices_init(&s, SLICE(""));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put_one(&s, "a", "10.0.0.1", cases[i].conditions);
        expect(&s, cases[i].usable ? "10.0.0.1:8000" : "");
    }
    kubeslices_free(&s);
}

static void test_ports(void **state)
{
    static const struct {
        const char *port, *authority;
    } cases[] = {{"", "10.0.0.1:8000"}, {"metrics", "10.0.0.1:9000"}, {"8123", "10.0.0.1:8123"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kubeslices s;

        kubeslices_init(&s, slice_of(cases[i].port));
        put_one(&s, "a", "10.0.0.1", "");
        expect(&s, cases[i].authority);
        kubeslices_free(&s);
    }
}

static void test_bad_slices(void **state)
{
    static const char *const texts[] = {"{}",
                                        "{\"metadata\":{\"name\":\"x\",\"uid\":\"a\"},\"addressType\":"
                                        "\"FQDN\",\"endpoints\":[{\"addresses\":[\"a.b\"]}]}",
                                        "{\"metadata\":{\"name\":\"x\",\"uid\":\"a\"},\"addressType\":"
                                        "\"IPv4\",\"endpoints\":[{\"addresses\":[\"10.0.0.9\"]}],"
                                        "\"ports\":[{\"name\":\"grpc\",\"port\":1}]}",
                                        "{\"metadata\":{\"name\":\"x\",\"uid\":\"a\"},\"addressType\":"
                                        "\"IPv4\",\"endpoints\":[{\"addresses\":[\"10.0.0.9\"]}],"
                                        "\"ports\":[{\"name\":\"http\",\"port\":null}]}"};
    struct kubeslices s;

    (void)state;
    kubeslices_init(&s, SLICE("http"));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *why = NULL;

        assert_false(put(&s, texts[i], &why));
        assert_non_null(why);
        expect(&s, "");
    }
    kubeslices_free(&s);
}

/* A number is the pods' port. One that the slice does not have is used, and said. */
static void test_number_that_no_port_has(void **state)
{
    static const char *const ports[] = {"[{\"port\":8000}]", "[{\"port\":7},{\"port\":80}]", "[]", "null"};
    struct kubeslices s;

    (void)state;
    kubeslices_init(&s, SLICE("80"));
    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        char *text = mem_printf("{\"metadata\":{\"name\":\"x\",\"uid\":\"a\"},\"addressType\":\"IPv4\","
                                "\"endpoints\":[{\"addresses\":[\"10.0.0.3\"]}],\"ports\":%s}",
                                ports[i]);
        const char *why;

        assert_true(put(&s, text, &why));
        expect(&s, "10.0.0.3:80");
        if (i == 0)
            assert_non_null(strstr(why, "no port of the EndpointSlice has the number"));
        else
            assert_null(why);
        mem_free(text);
    }
    kubeslices_free(&s);
}

static void test_odd_endpoints(void **state)
{
    const char *why;
    struct kubeslices s;

    (void)state;
    kubeslices_init(&s, SLICE(""));
    assert_true(
        put(&s,
            "{\"metadata\":{\"name\":\"x\",\"uid\":\"a\"},\"addressType\":\"IPv4\",\"endpoints\":[{},7,"
            "{\"addresses\":[]},{\"addresses\":[\"no-ip\"]},{\"addresses\":[\"10.0.0.3\",\"10.0.0.4\"]}],"
            "\"ports\":[{\"port\":80}]}",
            &why));
    expect(&s, "10.0.0.3:80");
    /* A slice without endpoints may have no ports either. */
    assert_true(put(&s,
                    "{\"metadata\":{\"name\":\"x\",\"uid\":\"a\"},\"addressType\":\"IPv6\",\"endpoints\":"
                    "null,\"ports\":null}",
                    &why));
    expect(&s, "");
    kubeslices_free(&s);
}

static void test_union(void **state)
{
    struct kubeslices s;
    size_t n;
    struct kubeobj_endpoint *e;

    (void)state;
    kubeslices_init(&s, SLICE(""));
    put_one(&s, "a", "10.0.0.2", "");
    put_one(&s, "b", "10.0.0.1", "");
    put_one(&s, "c", "10.0.0.2", "");
    put_one(&s, "d", "fd00::7", "");
    expect(&s, "10.0.0.1:8000 10.0.0.2:8000 [fd00::7]:8000");
    e = kubeslices_endpoints(&s, &n);
    assert_string_equal(e[0].uid, "pod-10.0.0.1");
    kubeobj_free_endpoints(e, n);
    kubeslices_free(&s);
}

static void delete (struct kubeslices *s, const char *uid)
{
    char *text = mem_printf("{\"metadata\":{\"name\":\"x\",\"uid\":\"%s\"}}", uid);
    struct cJSON *o = kubeobj_parse(slice_of(text));

    kubeslices_delete(s, o);
    kubeobj_free(o);
    mem_free(text);
}

static void test_service_names(void **state)
{
    static const char *const bad[] = {"",    "/",      "a/",  "/a",      "a/b/c",
                                      "A",   "a:",     "a:0", "a:65536", "a:99999999999",
                                      "a b", "a:HTTP", "-a",  "a.b"};
    static const struct {
        const char *text, *namespace, *name, *port;
    } good[] = {{"chat", "", "chat", ""},
                {"llm/chat", "llm", "chat", ""},
                {"chat:http", "", "chat", "http"},
                {"llm/chat:8000", "llm", "chat", "8000"}};
    struct slice namespace, name, port;
    const char *error;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        error = NULL;
        assert_false(kubeslices_parse_service(slice_of(bad[i]), &namespace, &name, &port, &error));
        assert_non_null(error);
    }
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(kubeslices_parse_service(slice_of(good[i].text), &namespace, &name, &port, &error));
        assert_true(slice_eq(namespace, slice_of(good[i].namespace)) &&
                    slice_eq(name, slice_of(good[i].name)) && slice_eq(port, slice_of(good[i].port)));
    }
}

static void test_lists_replace(void **state)
{
    struct kubeslices s;

    (void)state;
    kubeslices_init(&s, SLICE(""));
    kubeslices_list_begin(&s);
    put_one(&s, "a", "10.0.0.1", "");
    put_one(&s, "b", "10.0.0.2", "");
    kubeslices_list_end(&s);
    expect(&s, "10.0.0.1:8000 10.0.0.2:8000");
    /* A list that broke off takes nothing away. */
    kubeslices_list_begin(&s);
    put_one(&s, "b", "10.0.0.2", "");
    kubeslices_list_begin(&s);
    put_one(&s, "c", "10.0.0.3", "");
    expect(&s, "10.0.0.1:8000 10.0.0.2:8000 10.0.0.3:8000");
    kubeslices_list_end(&s);
    expect(&s, "10.0.0.3:8000");
    delete (&s, "b");
    delete (&s, "c");
    expect(&s, "");
    kubeslices_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conditions),
                                       cmocka_unit_test(test_ports),
                                       cmocka_unit_test(test_bad_slices),
                                       cmocka_unit_test(test_odd_endpoints),
                                       cmocka_unit_test(test_number_that_no_port_has),
                                       cmocka_unit_test(test_union),
                                       cmocka_unit_test(test_lists_replace),
                                       cmocka_unit_test(test_service_names)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
