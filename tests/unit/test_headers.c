/* The heads that leave the router: what stays, what goes, what is added, and that there is never more than
 * one framing field. */
#include "headers.h"
#include "mem.h"

#include <ctype.h>
#include <stdio.h>

#include "test.h"

#define MAX_HEAD_BYTES 65536

static void parse(struct http1_head *head, enum http1_kind kind, const char *data)
{
    struct http1 h;

    http1_start(&h, kind, head, MAX_HEAD_BYTES, false);
    assert_int_equal(http1_head(&h, data, strlen(data)), strlen(data));
}

static const char *names[HEADER_COUNT] = {
    [HEADER_HOST] = "Host",
    [HEADER_CONNECTION] = "Connection",
    [HEADER_KEEP_ALIVE] = "Keep-Alive",
    [HEADER_PROXY_CONNECTION] = "Proxy-Connection",
    [HEADER_PROXY_AUTHENTICATE] = "Proxy-Authenticate",
    [HEADER_PROXY_AUTHORIZATION] = "Proxy-Authorization",
    [HEADER_TE] = "TE",
    [HEADER_TRAILER] = "Trailer",
    [HEADER_TRANSFER_ENCODING] = "Transfer-Encoding",
    [HEADER_UPGRADE] = "Upgrade",
    [HEADER_CONTENT_LENGTH] = "Content-Length",
    [HEADER_CONTENT_TYPE] = "Content-Type",
    [HEADER_CONTENT_ENCODING] = "Content-Encoding",
    [HEADER_EXPECT] = "Expect",
    [HEADER_X_REQUEST_ID] = "X-Request-ID",
    [HEADER_X_FORWARDED_FOR] = "X-Forwarded-For",
    [HEADER_X_FORWARDED_PROTO] = "X-Forwarded-Proto",
    [HEADER_X_ACCEL_BUFFERING] = "X-Accel-Buffering",
    [HEADER_ACCEPT_ENCODING] = "Accept-Encoding",
    [HEADER_HTTP2_SETTINGS] = "HTTP2-Settings",
};

/* Every name in three spellings, and with each single byte changed. */
static void test_ids(void **state)
{
    (void)state;
    for (int id = 1; id < HEADER_COUNT; id++) {
        char name[32];
        size_t n = strlen(names[id]);

        assert_int_equal(headers_id(slice_of(names[id])), id);
        for (size_t i = 0; i < n; i++)
            name[i] = (char)tolower((unsigned char)names[id][i]);
        assert_int_equal(headers_id((struct slice){name, n}), id);
        for (size_t i = 0; i < n; i++)
            name[i] = (char)toupper((unsigned char)names[id][i]);
        assert_int_equal(headers_id((struct slice){name, n}), id);
        for (size_t i = 0; i < n; i++) {
            char kept = name[i];

            name[i] = '_';
            assert_int_equal(headers_id((struct slice){name, n}), HEADER_OTHER);
            name[i] = kept;
        }
        assert_int_equal(headers_id((struct slice){name, n - 1}), HEADER_OTHER);
        name[n] = 'x';
        assert_int_equal(headers_id((struct slice){name, n + 1}), HEADER_OTHER);
    }
    assert_int_equal(headers_id(SLICE("X-Session-ID")), HEADER_OTHER);
}

static void assert_uuid4(const char *id, size_t n)
{
    assert_int_equal(n, 36);
    assert_int_equal(strlen(id), 36);
    for (size_t i = 0; i < n; i++) {
        if (i == 8 || i == 13 || i == 18 || i == 23)
            assert_int_equal(id[i], '-');
        else
            assert_non_null(strchr("0123456789abcdef", id[i]));
    }
    assert_int_equal(id[14], '4');
    assert_non_null(strchr("89ab", id[19]));
}

static void test_request_id(void **state)
{
    static const char *const refused[] = {"",     "a b",   "a,b",      "a\"b", "a'b",
                                          "a\tb", "a\x7f", "\xc3\xa9", "a\nb"};
    char id[HEADERS_REQUEST_ID_MAX + 1], other[HEADERS_REQUEST_ID_MAX + 1],
        longest[HEADERS_REQUEST_ID_MAX + 1];

    (void)state;
    assert_int_equal(headers_request_id(SLICE("req-1:/!~{}"), id), 11);
    assert_string_equal(id, "req-1:/!~{}");
    memset(longest, 'x', sizeof(longest));
    assert_int_equal(headers_request_id((struct slice){longest, HEADERS_REQUEST_ID_MAX}, id),
                     HEADERS_REQUEST_ID_MAX);
    assert_memory_equal(id, longest, HEADERS_REQUEST_ID_MAX);
    assert_uuid4(other, headers_request_id((struct slice){longest, HEADERS_REQUEST_ID_MAX + 1}, other));
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        assert_uuid4(id, headers_request_id(slice_of(refused[i]), id));
    for (int i = 0; i < 200; i++) { /* more than are fetched at once */
        assert_uuid4(id, headers_request_id((struct slice){NULL, 0}, id));
        assert_string_not_equal(id, other);
        memcpy(other, id, sizeof(id));
    }
}

static void check_request(const char *in, const char *line, const char *rest)
{
    struct http1_head head;
    struct headers_request r = {
        .head = &head, .request_id = SLICE("id1"), .peer_ip = SLICE("10.0.0.9"), .proto = SLICE("http")};
    struct buf out;
    size_t line_bytes;

    parse(&head, HTTP1_REQUEST, in);
    buf_init(&out, MAX_HEAD_BYTES + HEADERS_EXTRA_BYTES);
    assert_true(headers_request_block(&out, &r, &line_bytes));
    assert_int_equal(line_bytes, strlen(line));
    assert_true(buf_append(&out, "", 1));
    assert_memory_equal(buf_slice(&out).p, line, line_bytes);
    assert_string_equal(buf_slice(&out).p + line_bytes, rest);
    buf_free(&out);
}

#define ADDED "X-Request-ID: id1\r\nX-Forwarded-For: 10.0.0.9\r\nX-Forwarded-Proto: http\r\n\r\n"

static void test_request(void **state)
{
    (void)state;
    check_request("GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n", "GET /v1/models HTTP/1.1\r\n", ADDED);
    check_request("GET / HTTP/1.0\r\nA: b\r\n\r\n", "GET / HTTP/1.1\r\n", "A: b\r\n" ADDED);
    /* Order and spelling stay; what lies between goes. */
    check_request("POST /v1/x?a=b HTTP/1.1\r\nAccept:*/*\r\nhost: h\r\nContent-Type: application/json\r\n"
                  "X-Session-ID:  s1 \r\ncontent-length: 3\r\nExpect: 100-continue\r\nX-REQUEST-id: "
                  "theirs\r\nLast: 1\r\n\r\n",
                  "POST /v1/x?a=b HTTP/1.1\r\n",
                  "Accept:*/*\r\nContent-Type: application/json\r\nX-Session-ID:  s1 \r\nLast: 1\r\n" ADDED);
    /* RF11: hop-by-hop fields, and those that Connection names, however often it comes */
    check_request(
        "GET / HTTP/1.1\r\nHost: h\r\nX-Secret: 1\r\nConnection: close, X-secret\r\nTE: trailers\r\n"
        "Keep-Alive: timeout=5\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: "
        "keep-alive\r\nTrailer: T\r\n"
        "Upgrade: h2c\r\nHTTP2-Settings: AA\r\nConnection: upgrade,X-Other\r\nx-other: "
        "2\r\nProxy-Authenticate: x\r\n"
        "Authorization: Bearer k\r\n\r\n",
        "GET / HTTP/1.1\r\n", "Authorization: Bearer k\r\n" ADDED);
    check_request(
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n",
        "POST / HTTP/1.1\r\n", ADDED);
    check_request("GET http://h/v1/models?x=http://y HTTP/1.1\r\nHost: h\r\n\r\n",
                  "GET /v1/models?x=http://y HTTP/1.1\r\n", ADDED);
    check_request("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\n", ADDED);
    check_request("GET HTTPS://h?x HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?x HTTP/1.1\r\n", ADDED);
    check_request(
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nA: b\r\nX-Forwarded-For:\r\n"
        "x-forwarded-for: 3.3.3.3\r\nX-Forwarded-Proto: https\r\n\r\n",
        "GET / HTTP/1.1\r\n",
        "A: b\r\nX-Request-ID: id1\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 10.0.0.9\r\n"
        "X-Forwarded-Proto: https\r\n\r\n");
}

static void test_pod_fields(void **state)
{
    char out[NUMBER_TEXT_MAX], longest[HEADERS_AUTHORITY_MAX + 1] = "";
    char *start = headers_pod_start("[::1]:8000");
    size_t n;

    (void)state;
    assert_string_equal(start, "Host: [::1]:8000\r\nContent-Length: ");
    mem_free(start);
    n = headers_pod_length(out, 0);
    assert_true(slice_eq((struct slice){out, n}, SLICE("0\r\n")));
    n = headers_pod_length(out, INT64_MAX);
    assert_true(slice_eq((struct slice){out, n}, SLICE("9223372036854775807\r\n")));
    memset(longest, 'x', HEADERS_AUTHORITY_MAX);
    start = headers_pod_start(longest);
    assert_true(strlen(start) + n <= HEADERS_POD_MAX);
    mem_free(start);
}

static void check_response(const char *in, struct headers_response r, const char *expected)
{
    struct http1_head head;
    struct buf out;

    parse(&head, HTTP1_RESPONSE, in);
    r.head = &head;
    r.request_id = SLICE("id1");
    buf_init(&out, MAX_HEAD_BYTES);
    assert_true(headers_response_block(&out, &r));
    assert_true(buf_append(&out, "", 1));
    assert_string_equal(buf_slice(&out).p, expected);
    buf_free(&out);
}

static void test_response(void **state)
{
    const struct headers_response sized = {
        .client_minor = 1, .keep_alive = true, .framing = HTTP1_SIZED, .content_length = 12};
    const struct headers_response chunked = {.client_minor = 1, .keep_alive = true, .framing = HTTP1_CHUNKED};

    (void)state;
    check_response(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\nServer: uvicorn\r\n\r\n",
        sized,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nServer: uvicorn\r\nContent-Length: 12\r\n"
        "X-Request-ID: id1\r\n\r\n");
    /* SS10: one framing field, ours. Duplicates and their order stay. */
    check_response(
        "HTTP/1.1 429 Slow Down\r\nSet-Cookie: a=1\r\nTransfer-Encoding: chunked\r\nSet-Cookie: b=2\r\n"
        "X-Request-Id: pods\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive, X-Pod\r\nX-Pod: 3\r\n\r\n",
        chunked,
        "HTTP/1.1 429 Slow Down\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nTransfer-Encoding: chunked\r\n"
        "X-Request-ID: id1\r\n\r\n");
    check_response("HTTP/1.0 200\r\nProxy-Authenticate: x\r\nUpgrade: h2\r\nTrailer: T\r\n\r\n", chunked,
                   "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\nX-Request-ID: id1\r\n\r\n");
}

static void test_response_connection(void **state)
{
    struct headers_response r = {
        .client_minor = 0, .keep_alive = true, .framing = HTTP1_SIZED, .content_length = 1};

    (void)state;
    check_response(
        "HTTP/1.1 200 OK\r\n\r\n", r,
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\nX-Request-ID: id1\r\n\r\n");
    r.keep_alive = false;
    check_response("HTTP/1.1 200 OK\r\n\r\n", r,
                   "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\nX-Request-ID: id1\r\n\r\n");
    r.client_minor = 1;
    check_response("HTTP/1.1 200 OK\r\n\r\n", r,
                   "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\nX-Request-ID: id1\r\n\r\n");
    r.keep_alive = true; /* an answer that ends with the connection cannot keep it */
    r.framing = HTTP1_UNTIL_CLOSE;
    check_response("HTTP/1.1 200 OK\r\n\r\n", r,
                   "HTTP/1.1 200 OK\r\nConnection: close\r\nX-Request-ID: id1\r\n\r\n");
}

static void test_response_without_body(void **state)
{
    struct headers_response r = {.client_minor = 1,
                                 .keep_alive = true,
                                 .framing = HTTP1_NO_BODY,
                                 .content_length = 9,
                                 .has_length = true};

    (void)state;
    check_response("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", r,
                   "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nX-Request-ID: id1\r\n\r\n");
    check_response("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", r,
                   "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nX-Request-ID: id1\r\n\r\n");
    check_response("HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", r,
                   "HTTP/1.1 204 No Content\r\nX-Request-ID: id1\r\n\r\n");
    check_response("HTTP/1.1 103 Early Hints\r\n\r\n", r,
                   "HTTP/1.1 103 Early Hints\r\nX-Request-ID: id1\r\n\r\n");
    r.has_length = false;
    check_response("HTTP/1.1 200 OK\r\n\r\n", r, "HTTP/1.1 200 OK\r\nX-Request-ID: id1\r\n\r\n");
}

/* SS2: the proxy in front of us must not hold events back, unless the pod wants it to. */
static void test_accel_buffering(void **state)
{
    const struct headers_response r = {
        .client_minor = 1, .keep_alive = true, .framing = HTTP1_CHUNKED, .event_stream = true};

    (void)state;
    check_response(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n", r,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
        "X-Request-ID: id1\r\nX-Accel-Buffering: no\r\n\r\n");
    check_response("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: yes\r\n\r\n", r,
                   "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: yes\r\n"
                   "Transfer-Encoding: chunked\r\nX-Request-ID: id1\r\n\r\n");
}

static void test_event_stream(void **state)
{
    (void)state;
    assert_true(headers_is_event_stream(SLICE("text/event-stream")));
    assert_true(headers_is_event_stream(SLICE("Text/Event-Stream ; charset=utf-8")));
    assert_false(headers_is_event_stream(SLICE("text/event-streams")));
    assert_false(headers_is_event_stream(SLICE("application/json; x=text/event-stream")));
    assert_false(headers_is_event_stream((struct slice){NULL, 0}));
}

#define DATE "Sun, 06 Nov 1994 08:49:37 GMT"

static void check_own(unsigned status, const char *type, bool keep_alive, unsigned minor, const char *extra,
                      const char *expected)
{
    const struct headers_own own = {status, type, 7, SLICE(DATE), SLICE("id1"), minor, keep_alive, extra};
    struct buf out;

    buf_init(&out, MAX_HEAD_BYTES);
    assert_true(headers_own_block(&out, &own));
    assert_true(buf_append(&out, "", 1));
    assert_string_equal(buf_slice(&out).p, expected);
    buf_free(&out);
}

static void test_own(void **state)
{
    (void)state;
    check_own(503, "application/json", true, 1, "Retry-After: 2\r\n",
              "HTTP/1.1 503 Service Unavailable\r\nDate: " DATE
              "\r\nContent-Type: application/json\r\nContent-Length: 7\r\n"
              "X-Request-ID: id1\r\nRetry-After: 2\r\n\r\n");
    check_own(200, NULL, false, 1, NULL,
              "HTTP/1.1 200 OK\r\nDate: " DATE
              "\r\nContent-Length: 7\r\nConnection: close\r\nX-Request-ID: id1\r\n\r\n");
    check_own(200, NULL, true, 0, NULL,
              "HTTP/1.1 200 OK\r\nDate: " DATE
              "\r\nContent-Length: 7\r\nConnection: keep-alive\r\nX-Request-ID: id1\r\n\r\n");
}

static void test_path(void **state)
{
    (void)state;
    assert_true(slice_eq(headers_path(SLICE("/v1/models?a=/b")), SLICE("/v1/models")));
    assert_true(slice_eq(headers_path(SLICE("http://h:1/v1/models?a")), SLICE("/v1/models")));
    assert_true(slice_eq(headers_path(SLICE("http://h?a=/b")), SLICE("/")));
    assert_true(slice_eq(headers_path(SLICE("/a?b=http://c/d")), SLICE("/a")));
    assert_true(slice_eq(headers_path(SLICE("*")), SLICE("*")));
}

/* Without room nothing is appended. */
static void test_no_room(void **state)
{
    struct http1_head head;
    struct headers_request request = {
        .head = &head, .request_id = SLICE("i"), .peer_ip = SLICE("p"), .proto = SLICE("http")};
    struct headers_response response = {.head = &head, .framing = HTTP1_SIZED};
    struct buf out;
    size_t line_bytes;

    (void)state;
    buf_init(&out, 40);
    parse(&head, HTTP1_REQUEST, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_false(headers_request_block(&out, &request, &line_bytes));
    parse(&head, HTTP1_RESPONSE, "HTTP/1.1 200 OK\r\n\r\n");
    assert_false(headers_response_block(&out, &response));
    assert_false(headers_own_block(&out, &(struct headers_own){.status = 200}));
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_request_id),
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_pod_fields),
        cmocka_unit_test(test_response),
        cmocka_unit_test(test_response_connection),
        cmocka_unit_test(test_response_without_body),
        cmocka_unit_test(test_accel_buffering),
        cmocka_unit_test(test_event_stream),
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_path),
        cmocka_unit_test(test_no_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
