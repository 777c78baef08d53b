/* Both formats to the letter, what is left out when, and that no value can forge a field or a line. */
#include "accesslog.h"

#include <stdio.h>

#include "mem.h"
#include "test.h"

#define FEB_3 INT64_C(1772600767080000) /* 2026-03-04T05:06:07.08Z */

static struct accesslog_route route;

/* The example of the format's description. */
static struct accesslog_entry example(void)
{
    return (struct accesslog_entry){
        .wall_us = FEB_3,
        .method = SLICE("POST"),
        .path = SLICE("/v1/completions"),
        .minor = 1,
        .status = 200,
        .route = &route,
        .selected_pod = log_know("p"),
        .request_id = SLICE("r1"),
        .upstream_status = 200,
        .upstream_attempts = 1,
        .input_tokens = 9,
        .output_tokens = 16,
        .total_us = 812999,
        .request_us = 1000,
        .upstream_us = 809000,
        .response_us = 999,
        .queue_us = -1,
        .ttft_us = -1,
    };
}

static struct accesslog_entry minimal(void)
{
    return (struct accesslog_entry){
        .wall_us = FEB_3,
        .method = SLICE("GET"),
        .path = SLICE("/v1/models"),
        .status = 200,
        .queue_us = -1,
        .ttft_us = -1,
    };
}

static struct accesslog_entry with_our_fields(void)
{
    struct accesslog_entry e = example();

    e.queue_us = 12999;
    e.ttft_us = 0;
    e.session = SLICE("s-1");
    e.has_queue = true;
    e.boosted = true;
    e.overtaken = 3;
    e.closed_by = "client";
    e.closed_phase = "STREAM";
    return e;
}

typedef bool format_fn(struct buf *out, const struct accesslog_entry *e);

static void assert_line(format_fn *format, const struct accesslog_entry *e, const char *expected)
{
    struct buf out;

    buf_init(&out, ACCESSLOG_LINE_MAX);
    assert_true(format(&out, e));
    assert_true(buf_append(&out, "", 1));
    assert_string_equal(buf_slice(&out).p, expected);
    buf_free(&out);
}

static void test_text_example(void **state)
{
    struct accesslog_entry e = example();

    (void)state;
    assert_line(
        accesslog_text, &e,
        "[2026-03-04T05:06:07.08Z] \"POST /v1/completions HTTP/1.1\" 200 model_name=m "
        "model_route=default/r model_server=default/s selected_pod=p request_id=r1 backend_type=model_server "
        "backend_name=default/s upstream_model=um upstream_status_code=200 upstream_attempts=1 tokens=9/16 "
        "timings=812ms(1+809+0)\n");
}

static void test_text_minimal(void **state)
{
    struct accesslog_entry e = minimal();

    (void)state;
    assert_line(accesslog_text, &e,
                "[2026-03-04T05:06:07.08Z] \"GET /v1/models HTTP/1.0\" 200 timings=0ms(0+0+0)\n");
    e.output_tokens = 5;
    e.queue_us = 0;
    e.closed_by = "router";
    e.total_us = -5;
    assert_line(
        accesslog_text, &e,
        "[2026-03-04T05:06:07.08Z] \"GET /v1/models HTTP/1.0\" 200 tokens=0/5 queue_ms=0 closed_by=router "
        "timings=0ms(0+0+0)\n");
}

static void test_text_our_fields(void **state)
{
    struct accesslog_entry e = with_our_fields();

    (void)state;
    assert_line(
        accesslog_text, &e,
        "[2026-03-04T05:06:07.08Z] \"POST /v1/completions HTTP/1.1\" 200 model_name=m "
        "model_route=default/r model_server=default/s selected_pod=p request_id=r1 backend_type=model_server "
        "backend_name=default/s upstream_model=um upstream_status_code=200 upstream_attempts=1 tokens=9/16 "
        "queue_ms=12 ttft_ms=0 session=s-1 boosted=true overtaken=3 closed_by=client:STREAM "
        "timings=812ms(1+809+0)\n");
}

static void test_text_unknown_output(void **state)
{
    struct accesslog_entry e = minimal();

    (void)state;
    e.input_tokens = 9;
    e.output_tokens = -1;
    assert_line(accesslog_text, &e,
                "[2026-03-04T05:06:07.08Z] \"GET /v1/models HTTP/1.0\" 200 tokens=9/- timings=0ms(0+0+0)\n");
    e.input_tokens = 0;
    assert_line(accesslog_text, &e,
                "[2026-03-04T05:06:07.08Z] \"GET /v1/models HTTP/1.0\" 200 timings=0ms(0+0+0)\n");
}

static void test_text_error(void **state)
{
    struct accesslog_entry e = minimal();

    (void)state;
    e.status = 404;
    e.error_type = "route_not_found";
    e.error_message = SLICE("route not found");
    e.model_name = SLICE("x");
    e.error_origin = "router";
    e.has_queue = true;
    assert_line(
        accesslog_text, &e,
        "[2026-03-04T05:06:07.08Z] \"GET /v1/models HTTP/1.0\" 404 error=route_not_found:\"route not found\" "
        "model_name=x error_origin=router boosted=false overtaken=0 timings=0ms(0+0+0)\n");
    e.error_message = SLICE("");
    e.error_origin = NULL;
    e.has_queue = false;
    assert_line(
        accesslog_text, &e,
        "[2026-03-04T05:06:07.08Z] \"GET /v1/models HTTP/1.0\" 404 error=route_not_found: model_name=x "
        "timings=0ms(0+0+0)\n");
}

static void test_text_escapes(void **state)
{
    struct accesslog_entry e = minimal();

    (void)state;
    e.method = SLICE("G\"T");
    e.path = SLICE("/v1/a b\n\\\xc3\xa9\x7f\" 200");
    e.minor = 1;
    e.session = SLICE("a boosted=true\n[2026");
    e.model_name = SLICE("\"q\"");
    e.request_id = SLICE("r\xff");
    assert_line(accesslog_text, &e,
                "[2026-03-04T05:06:07.08Z] \"G\\x22T /v1/a\\x20b\\x0a\\x5c\\xc3\\xa9\\x7f\\x22\\x20200 "
                "HTTP/1.1\" 200 "
                "model_name=\"\\\"q\\\"\" request_id=\"r\\xff\" session=\"a boosted=true\\n[2026\" "
                "timings=0ms(0+0+0)\n");
    e = minimal();
    e.method = e.path = SLICE("");
    assert_line(accesslog_text, &e, "[2026-03-04T05:06:07.08Z] \"- - HTTP/1.0\" 200 timings=0ms(0+0+0)\n");
}

static void test_json_example(void **state)
{
    struct accesslog_entry e = example();

    (void)state;
    assert_line(
        accesslog_json, &e,
        "{\"timestamp\":\"2026-03-04T05:06:07.08Z\",\"method\":\"POST\",\"path\":\"/v1/completions\","
        "\"protocol\":\"HTTP/1.1\",\"status_code\":200,\"model_name\":\"m\",\"model_route\":\"default/r\","
        "\"model_server\":\"default/s\",\"selected_pod\":\"p\",\"request_id\":\"r1\","
        "\"backend_type\":\"model_server\",\"backend_name\":\"default/s\",\"upstream_model\":\"um\","
        "\"upstream_status_code\":200,\"upstream_attempts\":1,\"input_tokens\":9,\"output_tokens\":16,"
        "\"duration_total\":812,\"duration_request_processing\":1,\"duration_upstream_processing\":809,"
        "\"duration_response_processing\":0}\n");
}

static void test_json_minimal(void **state)
{
    struct accesslog_entry e = minimal();

    (void)state;
    assert_line(accesslog_json, &e,
                "{\"timestamp\":\"2026-03-04T05:06:07.08Z\",\"method\":\"GET\",\"path\":\"/v1/models\","
                "\"protocol\":\"HTTP/1.0\",\"status_code\":200,\"model_name\":\"\",\"duration_total\":0,"
                "\"duration_request_processing\":0,\"duration_upstream_processing\":0,"
                "\"duration_response_processing\":0}\n");
}

static void test_json_error_and_our_fields(void **state)
{
    struct accesslog_entry e = with_our_fields();

    (void)state;
    e.error_type = "client_gone";
    e.error_message = SLICE("a \"b\"\n\xff");
    e.error_origin = "client";
    assert_line(
        accesslog_json, &e,
        "{\"timestamp\":\"2026-03-04T05:06:07.08Z\",\"method\":\"POST\",\"path\":\"/v1/completions\","
        "\"protocol\":\"HTTP/1.1\",\"status_code\":200,\"error\":{\"type\":\"client_gone\","
        "\"message\":\"a \\\"b\\\"\\n\xef\xbf\xbd\"},\"model_name\":\"m\",\"model_route\":\"default/r\","
        "\"model_server\":\"default/s\",\"selected_pod\":\"p\",\"request_id\":\"r1\","
        "\"backend_type\":\"model_server\",\"backend_name\":\"default/s\",\"upstream_model\":\"um\","
        "\"upstream_status_code\":200,\"upstream_attempts\":1,\"error_origin\":\"client\",\"input_tokens\":9,"
        "\"output_tokens\":16,\"duration_total\":812,\"duration_request_processing\":1,"
        "\"duration_upstream_processing\":809,\"duration_response_processing\":0,\"queue_ms\":12,"
        "\"ttft_ms\":0,\"session\":\"s-1\",\"boosted\":true,\"overtaken\":3,"
        "\"closed_by\":\"client:STREAM\"}\n");
}

/* The same entry into every buffer that is too small: nothing is left behind, and what was there stays. */
static void test_full_buffer(void **state)
{
    struct accesslog_entry e = with_our_fields();
    format_fn *formats[] = {accesslog_text, accesslog_json};

    (void)state;
    for (size_t max = 5; max < 1400; max++) {
        struct buf out;

        buf_init(&out, max);
        assert_true(buf_append(&out, "first", 5));
        if (!formats[max % 2](&out, &e))
            assert_true(slice_eq(buf_slice(&out), SLICE("first")));
        else
            assert_true(buf_slice(&out).p[buf_slice(&out).n - 1] == '\n');
        buf_free(&out);
    }
}

/* Every value at its longest and all of it to be escaped still gives a line within the bound. */
static void test_longest_line(void **state)
{
    static char junk[4 * ACCESSLOG_VALUE_MAX];
    struct slice s = {junk, sizeof(junk) - 1};
    struct accesslog_entry e = with_our_fields();
    struct accesslog_route longest = {.bytes = NULL};
    format_fn *formats[] = {accesslog_text, accesslog_json};

    (void)state;
    memset(junk, 1, sizeof(junk) - 1);
    accesslog_route_set(&longest, junk, junk, junk, junk);
    e.route = &longest;
    e.method = e.path = e.error_message = e.request_id = e.session = e.user = e.selected_pod.value = s;
    e.error_type = "x";
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        struct buf out;

        buf_init(&out, ACCESSLOG_LINE_MAX);
        assert_true(formats[i](&out, &e));
        buf_free(&out);
    }
    accesslog_route_free(&longest);
}

/* A long value is cut between two characters and says so. */
static void test_long_values_are_cut(void **state)
{
    char text[ACCESSLOG_VALUE_MAX + 8], expected[ACCESSLOG_VALUE_MAX + 200];
    struct accesslog_entry e = minimal();
    int kept = ACCESSLOG_VALUE_MAX - 4;

    (void)state;
    memset(text, 'a', sizeof(text));
    e.session = (struct slice){text, ACCESSLOG_VALUE_MAX};
    (void)snprintf(
        expected, sizeof(expected),
        "[2026-03-04T05:06:07.08Z] \"GET /v1/models HTTP/1.0\" 200 session=%.*s timings=0ms(0+0+0)\n",
        ACCESSLOG_VALUE_MAX, text);
    assert_line(accesslog_text, &e, expected);
    memcpy(text + kept, "\xc3\xa9", 2);
    e.session = (struct slice){text, ACCESSLOG_VALUE_MAX + 1};
    (void)snprintf(
        expected, sizeof(expected),
        "[2026-03-04T05:06:07.08Z] \"GET /v1/models HTTP/1.0\" 200 session=%.*s... timings=0ms(0+0+0)\n",
        kept, text);
    assert_line(accesslog_text, &e, expected);
}

/* That values are known to be plain makes no difference. */
static void test_plain_values(void **state)
{
    format_fn *formats[] = {accesslog_text, accesslog_json};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        struct accesslog_entry e = with_our_fields();
        struct buf out;

        e.user = SLICE("u");
        buf_init(&out, ACCESSLOG_LINE_MAX);
        assert_true(formats[i](&out, &e));
        assert_true(buf_append(&out, "", 1));
        e.plain = true;
        assert_line(formats[i], &e, buf_slice(&out).p);
        buf_free(&out);
    }
}

static void test_route_is_escaped(void **state)
{
    struct accesslog_entry e = minimal();
    struct accesslog_route odd = {.bytes = NULL};

    (void)state;
    accesslog_route_set(&odd, "a", "b", "c", "d");
    accesslog_route_set(&odd, "a b", "r\n", "\xc3\xa9", "\"");
    e.route = &odd;
    assert_line(accesslog_text, &e,
                "[2026-03-04T05:06:07.08Z] \"GET /v1/models HTTP/1.0\" 200 model_name=\"a b\" "
                "model_route=\"r\\n\" model_server=\xc3\xa9 backend_type=model_server "
                "backend_name=\xc3\xa9 upstream_model=\"\\\"\" timings=0ms(0+0+0)\n");
    assert_line(accesslog_json, &e,
                "{\"timestamp\":\"2026-03-04T05:06:07.08Z\",\"method\":\"GET\",\"path\":\"/v1/models\","
                "\"protocol\":\"HTTP/1.0\",\"status_code\":200,\"model_name\":\"a b\","
                "\"model_route\":\"r\\n\",\"model_server\":\"\xc3\xa9\",\"backend_type\":\"model_server\","
                "\"backend_name\":\"\xc3\xa9\",\"upstream_model\":\"\\\"\",\"duration_total\":0,"
                "\"duration_request_processing\":0,\"duration_upstream_processing\":0,"
                "\"duration_response_processing\":0}\n");
    accesslog_route_free(&odd);
}

static int set_route(void **state)
{
    (void)state;
    accesslog_route_set(&route, "m", "default/r", "default/s", "um");
    return 0;
}

static int free_route(void **state)
{
    (void)state;
    accesslog_route_free(&route);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_example),
        cmocka_unit_test(test_text_minimal),
        cmocka_unit_test(test_text_our_fields),
        cmocka_unit_test(test_text_unknown_output),
        cmocka_unit_test(test_text_error),
        cmocka_unit_test(test_text_escapes),
        cmocka_unit_test(test_json_example),
        cmocka_unit_test(test_json_minimal),
        cmocka_unit_test(test_json_error_and_our_fields),
        cmocka_unit_test(test_full_buffer),
        cmocka_unit_test(test_longest_line),
        cmocka_unit_test(test_long_values_are_cut),
        cmocka_unit_test(test_plain_values),
        cmocka_unit_test(test_route_is_escaped),
    };

    return cmocka_run_group_tests(tests, set_route, free_route);
}
