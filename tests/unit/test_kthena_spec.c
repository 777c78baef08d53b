/* Specs as Kthena's manuals show them, fields without a meaning here, and objects of other shapes. */
#include "kthena_spec.h"

#include "mem.h"
#include "test.h"

#define META "\"metadata\":{\"name\":\"n\",\"namespace\":\"ns\",\"uid\":\"u\"}"

static struct cJSON *object(const char *spec, struct kubeobj_meta *meta)
{
    char *text = mem_printf("{" META ",\"spec\":%s}", spec);
    struct cJSON *o = kubeobj_parse(slice_of(text));

    assert_non_null(o);
    assert_true(kubeobj_meta(o, meta));
    mem_free(text);
    return o;
}

static struct cJSON *server(const char *spec, struct kthena_server_spec *out, struct kthena_notes *notes)
{
    struct kubeobj_meta meta;
    struct cJSON *o = object(spec, &meta);

    kthena_spec_server(o, &meta, out, notes);
    return o;
}

static struct cJSON *route(const char *spec, struct route_spec *out, struct kthena_notes *notes)
{
    struct kubeobj_meta meta;
    struct cJSON *o = object(spec, &meta);

    kthena_spec_route(o, &meta, out, notes);
    return o;
}

static void test_server(void **state)
{
    struct kthena_server_spec s;
    struct kthena_notes n;
    struct cJSON *o = server(
        "{\"model\":\"Qwen/Qwen3-8B\",\"inferenceEngine\":\"SGLang\",\"workloadSelector\":{\"matchLabels\":"
        "{\"app\":\"q\",\"tier\":\"gpu\"}},\"workloadPort\":{\"port\":30000,\"protocol\":\"https\"},"
        "\"trafficPolicy\":{\"timeout\":\"1m30s\"}}",
        &s, &n);

    (void)state;
    assert_null(n.problem);
    assert_string_equal(n.fields, "");
    assert_string_equal(s.server.name, "ns/n");
    assert_string_equal(s.server.model, "Qwen/Qwen3-8B");
    assert_int_equal(s.server.engine, PROMTEXT_SGLANG);
    assert_int_equal(s.server.timeout_us, 90 * US_PER_S);
    assert_true(s.server.given);
    assert_int_equal(s.port, 30000);
    assert_true(s.server.https);
    assert_int_equal(s.labels.n, 2);
    kthena_spec_free_server(&s);
    kubeobj_free(o);
}

static void test_server_notes(void **state)
{
    static const struct {
        const char *spec, *fields;
        bool used;
        const char *warnings; /* NULL: none */
    } cases[] = {
        {"{\"inferenceEngine\":\"vLLM\",\"workloadSelector\":{\"matchLabels\":{\"a\":\"b\"}},"
         "\"workloadPort\":{\"port\":1},"
         "\"trafficPolicy\":{\"retry\":{\"attempts\":2}},\"kvConnector\":{\"type\":\"nixl\"},\"x\":null}",
         "spec.trafficPolicy.retry,spec.kvConnector", true, NULL},
        {"{\"inferenceEngine\":\"TGI\",\"workloadSelector\":{\"matchLabels\":{\"a\":\"b\"},\"pdGroup\":{"
         "\"groupKey\":\"g\","
         "\"decodeLabels\":{\"role\":\"decode\"}}},\"workloadPort\":{\"port\":1},\"trafficPolicy\":{"
         "\"timeout\":\"soon\"}}",
         "spec.workloadSelector.pdGroup", true,
         "spec.inferenceEngine is \"TGI\": expected vLLM or SGLang; the metrics of its pods are not read\n"
         "spec.trafficPolicy.timeout is \"soon\": expected a duration like 30s; none of its own applies"},
        {"{\"workloadSelector\":{\"matchLabels\":{\"a\":\"b\"}},\"workloadPort\":{\"port\":1}}", "", true,
         "spec.inferenceEngine is \"\": expected vLLM or SGLang; the metrics of its pods are not read"},
        {"{\"inferenceEngine\":\"vLLM\",\"workloadSelector\":{\"matchLabels\":{}},\"workloadPort\":{\"port\":"
         "1}}",
         "", false, NULL},
        {"{\"inferenceEngine\":\"vLLM\",\"workloadSelector\":{\"matchLabels\":{\"a\":\"b\"}},"
         "\"workloadPort\":{\"port\":70000}}",
         "", false, NULL},
        {"{\"inferenceEngine\":\"vLLM\",\"workloadSelector\":{\"matchLabels\":{\"a\":\"b\"}},"
         "\"workloadPort\":{\"port\":1,"
         "\"protocol\":\"grpc\"}}",
         "", false, NULL},
        {"[]", "", false,
         "spec.inferenceEngine is \"\": expected vLLM or SGLang; the metrics of its pods are not read"},
        {"{\"inferenceEngine\":\"vLLM\",\"workloadSelector\":[1],\"workloadPort\":\"x\",\"a,b \\u00e9\":1}",
         "spec.a?b???", false, NULL}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct kthena_server_spec s;
        struct kthena_notes n;
        struct cJSON *o = server(cases[i].spec, &s, &n);

        assert_string_equal(n.fields, cases[i].fields);
        assert_string_equal(n.warnings, cases[i].warnings != NULL ? cases[i].warnings : "");
        assert_int_equal(n.problem == NULL, cases[i].used);
        kthena_spec_free_server(&s);
        kubeobj_free(o);
    }
}

/* Of a group of prefill and decode pods those that decode are used. */
static void test_groups(void **state)
{
    struct kthena_server_spec s;
    struct kthena_notes n;
    struct kthena_labels pod = {0};
    struct cJSON
        *o = server(
            "{\"inferenceEngine\":\"vLLM\",\"workloadSelector\":{\"matchLabels\":{\"a\":\"b\"},\"pdGroup\":"
            "{\"groupKey\":\"g\",\"prefillLabels\":{\"role\":\"prefill\"},\"decodeLabels\":{\"role\":"
            "\"decode\"}}},"
            "\"workloadPort\":{\"port\":1}}",
            &s, &n),
        *labels = kubeobj_parse(SLICE("{\"a\":\"b\",\"role\":\"prefill\"}"));

    (void)state;
    assert_true(kthena_spec_labels_read(labels, &pod));
    assert_false(kthena_spec_labels_match(&s.labels, &pod));
    kubeobj_free(labels);
    labels = kubeobj_parse(SLICE("{\"role\":\"decode\",\"c\":\"d\"}"));
    assert_true(kthena_spec_labels_read(labels, &pod)); /* adds to what is there */
    assert_true(kthena_spec_labels_match(&s.labels, &pod));
    kthena_spec_labels_free(&pod);
    assert_false(kthena_spec_labels_match(&pod, &s.labels));
    kubeobj_free(labels);
    kthena_spec_free_server(&s);
    kubeobj_free(o);
}

static void test_route(void **state)
{
    struct route_spec r;
    struct kthena_notes n;
    struct cJSON *o = route("{\"modelName\":\"m\",\"loraAdapters\":[\"a\",\"b\"],\"rules\":[{\"name\":"
                            "\"premium\",\"modelMatch\":{\"headers\":"
                            "{\"user-type\":{\"exact\":\"premium\"},\"x\":{}},\"uri\":{\"prefix\":\"/v1/"
                            "chat\"},\"body\":{\"model\":\"m\"}},"
                            "\"targetModels\":[{\"modelServerName\":\"s1\",\"weight\":70},{"
                            "\"modelServerName\":\"s2\",\"weight\":30}]},"
                            "{\"modelMatch\":{\"headers\":{\"a\":{\"regex\":\"^b\",\"prefix\":\"c\"}}},"
                            "\"targetModels\":[{\"modelServerName\":\"s3\"}]}]}",
                            &r, &n);

    (void)state;
    assert_null(n.problem);
    assert_string_equal(n.fields, "");
    assert_string_equal(r.name, "ns/n");
    assert_string_equal(r.model, "m");
    assert_int_equal(r.n_adapters, 2);
    assert_int_equal(r.n_rules, 2);
    assert_string_equal(r.rules[0].name, "premium");
    assert_int_equal(r.rules[0].n_headers, 2);
    assert_int_equal(r.rules[0].headers[0].value.kind, ROUTE_EXACT);
    assert_string_equal(r.rules[0].headers[0].value.text, "premium");
    assert_int_equal(r.rules[0].headers[1].value.kind, ROUTE_ANY);
    assert_int_equal(r.rules[0].uri.kind, ROUTE_PREFIX);
    assert_string_equal(r.rules[0].model, "m");
    assert_string_equal(r.rules[0].targets[1].server, "ns/s2");
    assert_int_equal(r.rules[0].targets[1].weight, 30);
    assert_int_equal(r.rules[1].headers[0].value.kind, ROUTE_PREFIX); /* before regex */
    assert_int_equal(r.rules[1].targets[0].weight, ROUTE_NO_WEIGHT);
    route_spec_free(&r);
    kubeobj_free(o);
}

static void test_route_notes(void **state)
{
    static const struct {
        const char *spec, *fields;
        bool used;
    } cases[] = {
        {"{\"modelName\":\"m\",\"rateLimit\":{},\"rules\":[{\"targetModels\":[{\"modelServerName\":\"s\"},"
         "{\"externalModelProviderName\":\"e\"}],\"mirror\":1}]}",
         "spec.rules.targetModels.externalModelProviderName,spec.rules.mirror,spec.rateLimit", true},
        {"{\"modelName\":\"m\",\"rules\":[{\"modelMatch\":{\"uri\":{\"regex\":\"(\"}},\"targetModels\":[{"
         "\"modelServerName\":\"s\"}]}]}",
         "", true},
        {"{\"modelName\":\"m\",\"parentRefs\":[{\"name\":\"gw\"}],\"rules\":[{\"targetModels\":[{"
         "\"modelServerName\":\"s\"}]}]}",
         "", false},
        {"{\"modelName\":\"m\",\"parentRefs\":[],\"rules\":[{\"targetModels\":[{\"modelServerName\":\"s\"}]}]"
         "}",
         "", true},
        {"{\"modelName\":\"\",\"loraAdapters\":[\"\"],\"rules\":[{}]}", "", false},
        {"{\"modelName\":\"m\"}", "", false},
        {"{\"modelName\":7,\"rules\":{\"a\":1},\"loraAdapters\":3}", "", false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct route_spec r;
        struct kthena_notes n;
        struct cJSON *o = route(cases[i].spec, &r, &n);

        assert_string_equal(n.fields, cases[i].fields);
        assert_int_equal(n.problem == NULL, cases[i].used);
        route_spec_free(&r);
        kubeobj_free(o);
    }
}

/* Each says where it is, what is there and what was expected. */
static void test_route_warnings(void **state)
{
    static const struct {
        const char *rules, *warnings;
    } cases[] = {
        {"[{\"targetModels\":[{\"modelServerName\":\"s\",\"weight\":0},{\"modelServerName\":\"t\",\"weight\":"
         "1000000}]}]",
         ""},
        {"[{\"targetModels\":[{\"modelServerName\":\"s\",\"weight\":1},{\"modelServerName\":\"t\",\"weight\":"
         "-5}]}]",
         "spec.rules[0].targetModels[1].weight is -5: expected a whole number from 0 to 1000000; it counts "
         "as 0"},
        {"[{\"targetModels\":[{\"modelServerName\":\"s\",\"weight\":1e30}]}]",
         "spec.rules[0].targetModels[0].weight is 1e+30: expected a whole number from 0 to 1000000; it "
         "counts as 0\n"
         "spec.rules[0] takes no request: all weights are 0; expected one above"},
        {"[{\"targetModels\":[{\"modelServerName\":\"s\",\"weight\":\"7\"},{\"modelServerName\":\"t\","
         "\"weight\":0.5}]}]",
         "spec.rules[0].targetModels[0].weight is \"7\": expected a whole number from 0 to 1000000; it "
         "counts as 0\n"
         "spec.rules[0].targetModels[1].weight is 0.5: expected a whole number from 0 to 1000000; it counts "
         "as 0\n"
         "spec.rules[0] takes no request: all weights are 0; expected one above"},
        {"[{\"targetModels\":[{\"modelServerName\":\"s\",\"weight\":1},{\"modelServerName\":\"t\"}]}]",
         "spec.rules[0] takes no request: some targets have a weight and some have none; expected all or "
         "none"},
        {"[{\"targetModels\":[{\"modelServerName\":\"s\"}]},{\"targetModels\":[]},{}]",
         "spec.rules[1] takes no request: there is no target\nspec.rules[2] takes no request: there is no "
         "target"},
        {"[{\"targetModels\":[{\"modelServerName\":\"s\"},{\"externalModelProviderName\":\"e\"},7]}]",
         "spec.rules[0].targetModels[1] names no ModelServer; it is left out\n"
         "spec.rules[0].targetModels[2] names no ModelServer; it is left out"},
        {"[{\"modelMatch\":{\"headers\":{\"host\":{\"regex\":\"(\"}}},\"targetModels\":[{\"modelServerName\":"
         "\"s\"}]}]",
         "spec.rules[0]: the regex \"(\" never matches: ( has no )\n"
         "spec.rules[0]: the header host is not passed on to pods and counts as empty"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *spec = mem_printf("{\"modelName\":\"m\",\"rules\":%s}", cases[i].rules);
        struct route_spec r;
        struct kthena_notes n;
        struct cJSON *o = route(spec, &r, &n);

        assert_null(n.problem);
        assert_string_equal(n.warnings, cases[i].warnings);
        route_spec_free(&r);
        kubeobj_free(o);
        mem_free(spec);
    }
}

/* A condition of the wrong kind would match everything: its rule is left out, and the next one is still [1].
 */
static void test_rules_that_are_not_understood(void **state)
{
    static const struct {
        const char *rule, *warning;
    } cases[] = {{"\"modelMatch\":\"x\"", ".modelMatch is not an object"},
                 {"\"modelMatch\":{\"uri\":\"/v1/x\"}", ".modelMatch.uri is not an object"},
                 {"\"modelMatch\":{\"uri\":{\"prefix\":7}}",
                  ".modelMatch.uri is not a text in exact, prefix or regex"},
                 {"\"modelMatch\":{\"uri\":{\"suffix\":\"x\"}}",
                  ".modelMatch.uri is not one of exact, prefix or regex"},
                 {"\"modelMatch\":{\"headers\":[{\"x-a\":{\"exact\":\"v\"}}]}",
                  ".modelMatch.headers is not an object"},
                 {"\"modelMatch\":{\"headers\":{\"x-a\":\"v\"}}", ".modelMatch.headers.x-a is not an object"},
                 {"\"modelMatch\":{\"headers\":{\"x-a\":{\"exact\":5}}}",
                  ".modelMatch.headers.x-a is not a text in exact, prefix or regex"},
                 {"\"modelMatch\":{\"body\":\"m\"}", ".modelMatch.body is not an object"},
                 {"\"modelMatch\":{\"body\":{\"model\":7}}", ".modelMatch.body.model is not a text"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *spec = mem_printf("{\"modelName\":\"m\",\"rules\":[{%s,\"targetModels\":[{\"modelServerName\":"
                                "\"s\"}]},{\"name\":\"next\"}]}",
                                cases[i].rule);
        char *expected =
            mem_printf("spec.rules[0]%s; the rule is left out\nspec.rules[1] takes no request: there "
                       "is no target",
                       cases[i].warning);
        struct route_spec r;
        struct kthena_notes n;
        struct cJSON *o = route(spec, &r, &n);

        assert_null(n.problem);
        assert_string_equal(n.warnings, expected);
        assert_int_equal(r.n_rules, 1);
        assert_string_equal(r.rules[0].name, "next");
        route_spec_free(&r);
        kubeobj_free(o);
        mem_free(expected);
        mem_free(spec);
    }
}

static void test_nothing_is_understood(void **state)
{
    static const char *const specs[] = {"{\"modelName\":\"m\",\"rules\":[7]}",
                                        "{\"modelName\":\"m\",\"rules\":{\"targetModels\":[{}]}}"};
    static const char *const problems[] = {"none of its spec.rules is understood", "it has no spec.rules"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        struct route_spec r;
        struct kthena_notes n;
        struct cJSON *o = route(specs[i], &r, &n);

        assert_string_equal(n.problem, problems[i]);
        route_spec_free(&r);
        kubeobj_free(o);
    }
}

/* A selector that lost a label would select more. */
static void test_labels_that_are_not_understood(void **state)
{
    static const char *const selectors[] = {
        "{\"matchLabels\":{\"a\":\"b\",\"v\":2}}", "{\"matchLabels\":{\"a\":\"b\"},\"pdGroup\":\"x\"}",
        "{\"matchLabels\":{\"a\":\"b\"},\"pdGroup\":{\"decodeLabels\":[1]}}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(selectors); i++) {
        char *spec =
            mem_printf("{\"inferenceEngine\":\"vLLM\",\"workloadSelector\":%s,\"workloadPort\":{\"port\":"
                       "1},\"trafficPolicy\":{\"timeout\":10}}",
                       selectors[i]);
        struct kthena_server_spec s;
        struct kthena_notes n;
        struct cJSON *o = server(spec, &s, &n);

        assert_non_null(n.problem);
        assert_non_null(strstr(n.problem, "not a text"));
        assert_string_equal(n.warnings, "spec.trafficPolicy.timeout is not a text; it does not count");
        kthena_spec_free_server(&s);
        kubeobj_free(o);
        mem_free(spec);
    }
}

static void test_many_labels(void **state)
{
    struct kthena_labels l = {0};
    struct cJSON *o;
    struct buf text;

    (void)state;
    for (int n = KTHENA_SPEC_LABELS_MAX; n <= KTHENA_SPEC_LABELS_MAX + 1; n++) {
        buf_init(&text, 65536);
        for (int i = 0; i < n; i++)
            assert_true(buf_printf(&text, "%c\"l%d\":\"x\"", i == 0 ? '{' : ',', i));
        assert_true(buf_append(&text, "}", 1));
        o = kubeobj_parse(buf_slice(&text));
        assert_int_equal(kthena_spec_labels_read(o, &l), n == KTHENA_SPEC_LABELS_MAX);
        assert_int_equal(l.n, KTHENA_SPEC_LABELS_MAX);
        kthena_spec_labels_free(&l);
        kubeobj_free(o);
        buf_free(&text);
    }
}

static void test_notes_are_bounded(void **state)
{
    struct buf spec;
    struct route_spec r;
    struct kthena_notes n;
    struct cJSON *o;

    (void)state;
    buf_init(&spec, 65536);
    assert_true(buf_printf(&spec, "{\"modelName\":\"m\",\"rules\":[{}]"));
    for (int i = 0; i < 200; i++)
        assert_true(buf_printf(&spec, ",\"unknown-field-%d\":1", i));
    assert_true(buf_printf(&spec, ",\"loraAdapters\":[7"));
    for (int i = 0; i < 200; i++)
        assert_true(buf_printf(&spec, ",%d", i));
    assert_true(buf_append(&spec, "]}", 3));
    o = route(buf_slice(&spec).p, &r, &n);
    assert_true(strlen(n.fields) < KTHENA_SPEC_NOTES_MAX && strlen(n.fields) > KTHENA_SPEC_NOTES_MAX / 2);
    assert_non_null(strstr(n.fields, "spec.unknown-field-0,"));
    assert_true(strlen(n.warnings) < KTHENA_SPEC_NOTES_MAX && strlen(n.warnings) > KTHENA_SPEC_NOTES_MAX / 2);
    route_spec_free(&r);
    kubeobj_free(o);
    buf_free(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_server),
                                       cmocka_unit_test(test_server_notes),
                                       cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_route),
                                       cmocka_unit_test(test_route_notes),
                                       cmocka_unit_test(test_route_warnings),
                                       cmocka_unit_test(test_rules_that_are_not_understood),
                                       cmocka_unit_test(test_nothing_is_understood),
                                       cmocka_unit_test(test_labels_that_are_not_understood),
                                       cmocka_unit_test(test_many_labels),
                                       cmocka_unit_test(test_notes_are_bounded)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
