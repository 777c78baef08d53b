/* Token counts in answers of every kind and in every split, and an event that is hidden. */
#include "usage.h"
#include "mem.h"

#include "test.h"

#define CHUNK(rest)                                                                                          \
    "{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":" rest "}"
#define DELTA "[{\"index\":0,\"delta\":{\"content\":\"hello there, \\\"usage\\\": 5\"}}]"

static void feed(struct usage *u, const char *text, size_t first, size_t step)
{
    size_t n = strlen(text), at = first < n ? first : n;

    usage_feed(u, (struct slice){text, at});
    for (; at < n; at += step)
        usage_feed(u, (struct slice){text + at, n - at < step ? n - at : step});
}

static void test_has_input(void **state)
{
    static const struct {
        const char *text;
        bool has;
    } cases[] = {
        {"{\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":3}}", true},
        {"{\"usage\":{\"completion_tokens\":3}}", false},
        {"{\"usage\":{\"prompt_tokens\":12345678901234567890,\"completion_tokens\":3}}", false},
        {"{\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":3}}", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct usage u = {.stream = false};
        int64_t in, out;

        feed(&u, cases[i].text, 0, 7);
        assert_true(usage_tokens(&u, &in, &out));
        assert_true(in == 0 && out == 3);
        assert_true(usage_has_input(&u) == cases[i].has);
    }
}

static void expect_split(bool stream, const char *text, int64_t input, int64_t output, size_t first,
                         size_t step)
{
    struct usage u = {.stream = stream};
    int64_t in, out;

    feed(&u, text, first, step);
    assert_int_equal(usage_tokens(&u, &in, &out), input > 0 || output > 0);
    assert_int_equal(in, input);
    assert_int_equal(out, output);
}

/* -1: not known. Two parts, cut at every place, and pieces of every small size. */
static void expect(bool stream, const char *text, int64_t input, int64_t output)
{
    for (size_t first = 0; first <= strlen(text); first++)
        expect_split(stream, text, input, output, first, 100000);
    for (size_t step = 1; step < 40; step++)
        expect_split(stream, text, input, output, 0, step);
}

static void test_json(void **state)
{
    (void)state;
    expect(false,
           "{\"id\":\"x\",\"choices\":[{\"message\":{\"content\":\"the "
           "\\\"usage\\\":{\\\"prompt_tokens\\\":9}\"}}],"
           "\"usage\":{\"prompt_tokens\":12,\"total_tokens\":20,\"completion_tokens\":8,"
           "\"prompt_tokens_details\":{\"cached_tokens\":4,\"prompt_tokens\":99}},\"kv\":null}",
           12, 8);
    expect(false,
           "{\n  \"usage\" : {\n    \"prompt_tokens\" : 5 ,\r\n \"total_tokens\": 5\n  },\n  \"data\": []\n}",
           5, 0);
    expect(false, "{\"usage\":{\"prompt_tokens\":3,\"total_tokens\":10}}", 3, 7);
    expect(false, "{\"usage\":{\"total_tokens\":10}}", 0, -1);
    expect(false, "{\"x\\\"usage\":{\"prompt_tokens\":3}}", 0, -1);
    expect(false, "{\"usage\":{\"total_tokens\":{\"n\":7},\"input_tokens\":[5]}}", 0, -1);
    expect(false, "{\"usage\":null}", 0, -1);
    expect(false, "{\"usage\":\"usage\",\"x\":\"usage\"}", 0, -1);
    expect(false, "{\"usage\":{}}", 0, -1);
    expect(false, "{\"usage\":{\"type\":\"duration\",\"seconds\":3}}", 0, -1);
    expect(false, "{\"usage\":{\"prompt_tokens\":-3,\"completion_tokens\":1.5,\"total_tokens\":null}}", 0,
           -1);
    expect(false, "{\"usage\":{\"prompt_tokens\":99999999999999999999999}}", 0, -1);
    expect(false, "{\"usage\":{\"completion_tokens\":\"7\",\"note\":\"prompt_tokens\",\"input_tokens\":2}}",
           2, -1);
    expect(false, "{\"usage\":{\"a\":[1,{\"total_tokens\":5},\"}\"],\"output_tokens\":6}}", 0, 6);
    expect(false, "{\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":", 7, -1);
}

/* What the caller or a tool calls usage is not what the answer reports. */
static void test_depth(void **state)
{
#define DEEP  "[{\"message\":{\"a\":\"}]\",\"usage\":{\"prompt_tokens\":900,\"completion_tokens\":901}}}]"
#define USAGE "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}"
    (void)state;
    expect(false, "{\"choices\":" DEEP "," USAGE "}", 3, 4);
    expect(false, "{" USAGE ",\"choices\":" DEEP "}\n", 3, 4);
    expect(false,
           "{" USAGE
           ", \"a long text without meaning\" : \"usage\" , \"x\":[0.25,0.125,1234567890123456,{}]}",
           3, 4);
    expect(false, "{\"choices\":" DEEP "}", 0, -1);
    expect(false, "{\"choices\":" DEEP ",\"usage\":null}", 0, -1);
    expect(false, "{\"choices\":" DEEP ",\"usage\" : \n {\"total_tokens\":7,\"prompt_tokens\":5}}", 5, 2);
    expect(false, "{\"a\":{" USAGE "}}", 0, -1);
    expect(true, "data: {\"choices\":" DEEP "}\n\ndata: {\"choices\":[]," USAGE "}\n\n", 3, 4);
    expect(true, "data: {\"choices\":[]," USAGE "}\n\ndata: {\"choices\":" DEEP "}\n\n", 3, 4);
    expect(true, "data: {\"choices\":[]," USAGE ",\"x\":" DEEP "}\r\n\r\ndata: [DONE]\r\n\r\n", 3, 4);
    expect(true, "data: {\"response\":{\"tools\":" DEEP "," USAGE ",\ndata: \"x\":" DEEP "}}\n\n", 3, 4);
    expect(true,
           "data: {\"response\":{" USAGE "},\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\n\n", 5,
           6);
}

static void test_responses(void **state)
{
    (void)state;
    expect(
        false,
        "{\"object\":\"response\",\"tools\":[{\"parameters\":{\"properties\":{\"usage\":{\"type\":\"string\"}"
        "}}}],"
        "\"usage\":{\"input_tokens\":11,\"input_tokens_details\":{\"cached_tokens\":1},\"output_tokens\":22,"
        "\"output_tokens_details\":{\"reasoning_tokens\":3},\"total_tokens\":33},\"metadata\":{}}",
        11, 22);
    expect(true,
           "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n"
           "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":"
           "{\"input_tokens\":4,\"output_tokens\":5,\"total_tokens\":9}}}\n\n",
           4, 5);
}

static void test_anthropic(void **state)
{
    (void)state;
    expect(
        true,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":"
        "{\"input_tokens\":25,\"cache_creation_input_tokens\":3,\"cache_read_input_tokens\":2,"
        "\"cache_creation\":{\"input_tokens\":77},\"output_tokens\":1}}}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"x\"}}\n\n"
        "event: message_delta\ndata: "
        "{\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":15}}\n\n"
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        30, 15);
    expect(false, "{\"type\":\"message\",\"usage\":{\"input_tokens\":10,\"output_tokens\":20}}", 10, 20);
}

static void test_stream(void **state)
{
    (void)state;
    expect(
        true,
        "data: " CHUNK(DELTA) "\n\ndata: " CHUNK("[],\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":7,"
                                                 "\"total_tokens\":13}") "\n\ndata: [DONE]\n\n",
        6, 7);
    expect(true,
           "data:" CHUNK(
               "[],\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":7}") "\r\n\r\ndata: [DONE]\r\n\r\n",
           6, 7);
    expect(
        true,
        "data: " CHUNK("[],\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":7}") "\r\rdata: [DONE]\r\r",
        6, 7);
    /* In each event, the sums so far. */
    expect(true,
           "data: " CHUNK(
               DELTA
               ",\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":1}") "\n\n"
                                                                           "data: " CHUNK(
                                                                               DELTA
                                                                               ",\"usage\":{\"prompt_"
                                                                               "tokens\":6,\"completion_"
                                                                               "tokens\":2}") "\n\n"
                                                                                              "data: " CHUNK(
                                                                                                  "[],"
                                                                                                  "\"usage\":"
                                                                                                  "{\"prompt_"
                                                                                                  "tokens\":"
                                                                                                  "6,"
                                                                                                  "\"completi"
                                                                                                  "on_"
                                                                                                  "tokens\":"
                                                                                                  "2}") "\n\n"
                                                                                                        "data"
                                                                                                        ": "
                                                                                                        "[DON"
                                                                                                        "E]"
                                                                                                        "\n"
                                                                                                        "\n",
           6, 2);
}

static void test_lines(void **state)
{
    (void)state;
    expect(true, ": {\"usage\":{\"prompt_tokens\":6}}\n\nevent: {\"usage\":{\"prompt_tokens\":6}}\n\n", 0,
           -1);
    expect(true, "data: x\n: \"usage\":{\"prompt_tokens\":6}\n\n", 0, -1);
    expect(
        true,
        "data: {\"usage\":\ndata: {\"prompt_tokens\":\ndata:6,\ndata: \"completion_tokens\":\ndata:2}}\n\n",
        6, 2);
    expect(true, "data: {\"usage\"\r\ndata: :{\"prompt_tokens\":\r\nid: 7\r\n: 8\r\ndata:6}}\r\n\r\n", 6, -1);
    /* A blank line ends the event, and what follows is another one. */
    expect(true, "data: {\"usage\":{\"prompt_tokens\":6\n\ndata: }}\n\n", 0, -1);
    expect(true, "data: {\"usage\":{\"prompt_tokens\":6,\r\n\r\ndata: \"total_tokens\":9}}\n\n", 6, -1);
    expect(true, "data: {\"usage\":{\"a\":\"open\ndata: \",\"prompt_tokens\":6}}\n\n", 0, -1);
}

static void test_events(void **state)
{
    static const struct {
        const char *text;
        unsigned events;
    } cases[] = {
        {": hello\n\ndata: a\n\nevent: x\ndata: b\n\ndata: c\r\n\r\ndata: [DONE]\n\n", 3},
        {"data: {\"choices\":[\ndata: ]}\n\ndata:\n\ndata: [DONE] \n\n", 2},
        {"data: a\r\rid: 1\rdata: b\rdata: c\r\rdata:[DONE]\r\r", 2},
        {"data: a\r\ndata: b\r\n\r\ndata: a text that is longer than what is kept of it\r\n\r\n", 2},
        {"date: a\n\n\n\ndata: [DONE]s that stay open\n\ndata: cut", 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        for (size_t first = 0; first <= strlen(cases[i].text); first++) {
            struct usage u = {.stream = true, .count_events = true};

            feed(&u, cases[i].text, first, first % 2 == 0 ? 1 : 1000);
            assert_int_equal(u.events, cases[i].events);
        }
    }
}

/* ---- hiding ---- */

static char *hide(const char *text, size_t first, size_t step)
{
    struct usage_hide h;
    struct buf out;
    size_t n = strlen(text), at = 0;
    char *result;

    usage_hide_init(&h);
    buf_init(&out, 1 << 24);
    while (at < n) {
        size_t size = at == 0 && first > 0 ? first : step;
        struct slice span = {text + at, n - at < size ? n - at : size};

        at += span.n;
        assert_true(buf_append_slice(&out, usage_hide_feed(&h, &span, 1, at == n)));
    }
    usage_hide_free(&h);
    result = mem_dup_slice(buf_slice(&out));
    buf_free(&out);
    return result;
}

static void expect_hidden(const char *text, const char *left)
{
    for (size_t first = 1; first <= strlen(text); first++) {
        char *got = hide(text, first, first % 3 == 0 ? 1 : 100000);

        assert_string_equal(got, left);
        mem_free(got);
    }
}

#define EXTRA "data: " CHUNK("[],\"usage\":{\"prompt_tokens\":6,\"completion_tokens\":7}")

static void test_hide(void **state)
{
    (void)state;
    expect_hidden("data: a\n\n" EXTRA "\n\ndata: [DONE]\n\n", "data: a\n\ndata: [DONE]\n\n");
    expect_hidden("data: a\r\n\r\n" EXTRA "\r\n\r\ndata: [DONE]\r\n\r\n",
                  "data: a\r\n\r\ndata: [DONE]\r\n\r\n");
    expect_hidden("data: a\n\n" EXTRA "\n\n", "data: a\n\n");
    expect_hidden(": c\nid: 1\ndata: {\"choices\": [ ],\ndata: \"usage\": {}}\n\ndata: x", "data: x");
    expect_hidden("data: " CHUNK(DELTA ",\"usage\":{\"prompt_tokens\":6}") "\n\n",
                  "data: " CHUNK(DELTA ",\"usage\":{\"prompt_tokens\":6}") "\n\n");
    expect_hidden("data: {\"choices\":[],\"usage\":null}\n\n", "data: {\"choices\":[],\"usage\":null}\n\n");
    expect_hidden("data: {\"usage\":{\"choices\":[]}}\n\n", "data: {\"usage\":{\"choices\":[]}}\n\n");
    expect_hidden("data: cut", "data: cut");
    expect_hidden("data: {\"error\":{\"code\":500},\"choices\":[],\"usage\":{}}\n\n",
                  "data: {\"error\":{\"code\":500},\"choices\":[],\"usage\":{}}\n\n");
    expect_hidden("data: {\"error\":null,\"choices\":[],\"usage\":{}}\n\n", "");
}

static void test_hide_no_longer_than_needed(void **state)
{
    struct usage_hide h;
    struct slice spans[2] = {SLICE("data: a\n\ndata: b\n"), SLICE("\ndata: c")}, got;

    (void)state;
    usage_hide_init(&h);
    got = usage_hide_feed(&h, spans, 1, false);
    assert_true(slice_eq(got, SLICE("data: a\n\n")));
    got = usage_hide_feed(&h, spans + 1, 1, false);
    assert_true(slice_eq(got, SLICE("data: b\n\n")));
    got = usage_hide_feed(&h, NULL, 0, true);
    assert_true(slice_eq(got, SLICE("data: c")));
    got = usage_hide_feed(&h, spans, 2, false);
    assert_true(slice_eq(got, SLICE("data: a\n\ndata: b\n\n")));
    usage_hide_free(&h);
}

static void test_long_event_passes_alone(void **state)
{
    struct usage_hide h;
    char *text = mem_alloc(USAGE_EVENT_MAX + 1);
    struct slice span = {text, USAGE_EVENT_MAX}, got;

    (void)state;
    memset(text, 'x', USAGE_EVENT_MAX + 1);
    usage_hide_init(&h);
    assert_int_equal(usage_hide_feed(&h, &span, 1, false).n, 0);
    span.n = 1;
    assert_int_equal(usage_hide_feed(&h, &span, 1, false).n, USAGE_EVENT_MAX + 1);
    span = SLICE(EXTRA "\n\nda");
    got = usage_hide_feed(&h, &span, 1, false);
    assert_true(slice_eq(got, SLICE(EXTRA "\n\n"))); /* still the long one */
    span = SLICE("ta: a\n\n" EXTRA "\n\n");
    assert_true(slice_eq(usage_hide_feed(&h, &span, 1, false), SLICE("data: a\n\n")));
    usage_hide_free(&h);
    mem_free(text);
}

/* The blank line that ends it may come in pieces. */
static void test_long_event_ends_in_pieces(void **state)
{
    static const char *const ends[] = {"\n", "\r\n"};
    char *text = mem_alloc(USAGE_EVENT_MAX + 1);

    (void)state;
    memset(text, 'x', USAGE_EVENT_MAX + 1);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        struct slice span = {text, USAGE_EVENT_MAX + 1};
        struct usage_hide h;
        size_t given;
        char *tail = mem_printf("x%s%s" EXTRA "%s%s", ends[i], ends[i], ends[i], ends[i]);

        usage_hide_init(&h);
        given = usage_hide_feed(&h, &span, 1, false).n;
        for (const char *at = tail; *at != '\0'; at++) {
            span = (struct slice){at, 1};
            given += usage_hide_feed(&h, &span, 1, false).n;
        }
        assert_int_equal(given, USAGE_EVENT_MAX + 2 + 2 * strlen(ends[i]));
        usage_hide_free(&h);
        mem_free(tail);
    }
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_has_input),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_anthropic),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_hide),
        cmocka_unit_test(test_hide_no_longer_than_needed),
        cmocka_unit_test(test_long_event_passes_alone),
        cmocka_unit_test(test_long_event_ends_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
