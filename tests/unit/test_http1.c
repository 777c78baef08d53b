/* HTTP/1.x messages: what is taken, what is refused and how, and that it makes no difference how the bytes
 * arrive. */
#include "http1.h"
#include "buf.h"

#include <stdio.h>
#include <stdlib.h>

#include "test.h"

#define MAX_HEAD_BYTES 4096

/* All there is to say about one message, as text. */
struct result {
    enum http1_error error;
    const char *reason;
    bool complete;   /* the head */
    bool done;       /* the message */
    size_t consumed; /* bytes */
    size_t body_n;
    struct buf text;
};

static void describe_head(struct buf *out, const struct http1_head *h)
{
    assert_true(buf_printf(out, "%.*s|%.*s|%u|%.*s|1.%u|%d %d %d %llu\n", SLICE_ARG(http1_method(h)),
                           SLICE_ARG(http1_target(h)), h->status, (int)h->reason_n, h->base + h->reason,
                           h->minor, (int)h->framing, h->keep_alive, h->expect_continue,
                           (unsigned long long)h->content_length));
    for (size_t i = 0; i < h->n_fields; i++)
        assert_true(buf_printf(out, "%d %.*s=%.*s\n", h->fields[i].id,
                               SLICE_ARG(http1_name(h, &h->fields[i])),
                               SLICE_ARG(http1_value(h, &h->fields[i]))));
}

/* The end of the piece in which the byte `at` arrives. */
typedef size_t piece_fn(size_t at, size_t n, size_t arg);

static size_t piece_whole(size_t at, size_t n, size_t arg)
{
    (void)at, (void)arg;
    return n;
}

static size_t piece_byte(size_t at, size_t n, size_t arg)
{
    (void)n, (void)arg;
    return at + 1;
}

static size_t piece_two(size_t at, size_t n, size_t arg)
{
    return at < arg ? arg : n;
}

/* The head is given from a fresh, exact copy in each call: it may move, and nothing behind it may be read. */
static ssize_t feed_head(struct http1 *h, const char *data, size_t have, char **copy)
{
    free(*copy);
    *copy = malloc(have + 1);
    memcpy(*copy, data, have);
    return http1_head(h, *copy, have);
}

static void feed_body(struct http1 *h, struct slice data, struct result *r, piece_fn *piece, size_t arg)
{
    while (r->consumed < data.n && !h->done) {
        size_t end = piece(r->consumed, data.n, arg);

        while (r->consumed < end && !h->done) {
            struct slice span;
            ssize_t n = http1_body(h, data.p + r->consumed, end - r->consumed, &span);

            if (n < 0)
                return;
            assert_true(n > 0 && (size_t)n <= end - r->consumed && span.n <= (size_t)n);
            assert_true(buf_append_slice(&r->text, span));
            r->consumed += (size_t)n;
            r->body_n += span.n;
        }
    }
}

static void run(struct result *r, enum http1_kind kind, bool head_request, struct slice data, piece_fn *piece,
                size_t arg)
{
    struct http1_head head;
    struct http1 h;
    char *copy = NULL;
    ssize_t n = 0;

    *r = (struct result){.error = HTTP1_OK};
    buf_init(&r->text, SIZE_MAX / 4);
    http1_start(&h, kind, &head, MAX_HEAD_BYTES, head_request);
    for (size_t have = 0; n == 0 && have < data.n;) {
        have = piece(have, data.n, arg);
        n = feed_head(&h, data.p, have, &copy);
    }
    r->complete = n > 0;
    if (n > 0) {
        r->consumed = (size_t)n;
        describe_head(&r->text, &head);
        feed_body(&h, data, r, piece, arg);
    }
    r->error = h.error;
    r->reason = h.reason;
    r->done = h.done;
    free(copy);
}

static void assert_same(const struct result *a, const struct result *b)
{
    assert_int_equal(a->error, b->error);
    assert_ptr_equal(a->reason, b->reason);
    assert_int_equal(a->complete, b->complete);
    assert_int_equal(a->done, b->done);
    if (a->error == HTTP1_OK)
        assert_int_equal(a->consumed, b->consumed);
    assert_true(slice_eq(buf_slice(&a->text), buf_slice(&b->text)));
}

/* In one piece, in every two pieces, and byte by byte. */
static void run_all(struct result *r, enum http1_kind kind, bool head_request, struct slice data)
{
    struct result other;

    run(r, kind, head_request, data, piece_whole, 0);
    for (size_t at = 0; at <= data.n; at++) {
        run(&other, kind, head_request, data, at == 0 ? piece_byte : piece_two, at);
        assert_same(r, &other);
        buf_free(&other.text);
    }
}

/* A slice in a constant table. */
#define TEXT(literal)                                                                                        \
    {                                                                                                        \
        (literal), sizeof(literal) - 1                                                                       \
    }

struct good {
    enum http1_kind kind;
    bool head_request;
    struct slice data;
    const char *text; /* as describe_head, then the body */
    size_t rest;      /* bytes that belong to the next message */
};

#define HOST_FIELD "Host: h\r\n"
#define HOST_TEXT  "1 Host=h\n"

static const struct good goods[] = {
    {HTTP1_REQUEST, false, TEXT("GET / HTTP/1.1\r\n" HOST_FIELD "\r\n"), "GET|/|0||1.1|0 1 0 0\n" HOST_TEXT,
     0},
    {HTTP1_REQUEST, false, TEXT("GET /v1/models?a=b&c=%20 HTTP/1.0\r\n\r\n"),
     "GET|/v1/models?a=b&c=%20|0||1.0|0 0 0 0\n", 0},
    {HTTP1_REQUEST, false, TEXT("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"),
     "GET|/|0||1.0|0 1 0 0\n2 Connection=Keep-Alive\n", 0},
    {HTTP1_REQUEST, false, TEXT("GET / HTTP/1.1\r\n" HOST_FIELD "Connection: x-a, CLOSE\r\n\r\n"),
     "GET|/|0||1.1|0 0 0 0\n" HOST_TEXT "2 Connection=x-a, CLOSE\n", 0},
    {HTTP1_REQUEST, false, TEXT("POST /v1/x HTTP/1.1\r\n" HOST_FIELD "content-LENGTH:  5  \r\n\r\nhelloGET "),
     "POST|/v1/x|0||1.1|1 1 0 5\n" HOST_TEXT "11 content-LENGTH=5\nhello", 4},
    {HTTP1_REQUEST, false, TEXT("POST / HTTP/1.1\r\n" HOST_FIELD "Content-Length: 0\r\n\r\nX"),
     "POST|/|0||1.1|1 1 0 0\n" HOST_TEXT "11 Content-Length=0\n", 1},
    {HTTP1_REQUEST, false,
     TEXT("POST / HTTP/1.1\r\n" HOST_FIELD "Expect: 100-Continue\r\nTransfer-Encoding: Chunked\r\n\r\n"
          "5\r\nhello\r\n00A;x=\"y z\";q\r\n, world12!\r\n0\r\nT: v\r\nU:\r\n\r\nnext"),
     "POST|/|0||1.1|2 1 1 0\n" HOST_TEXT
     "14 Expect=100-Continue\n9 Transfer-Encoding=Chunked\nhello, world12!",
     4},
    /* RFC 9110 10.1.1: an expectation of an HTTP/1.0 client is ignored; so is one without a body. */
    {HTTP1_REQUEST, false, TEXT("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx"),
     "POST|/|0||1.0|1 0 0 1\n14 Expect=100-continue\n11 Content-Length=1\nx", 0},
    {HTTP1_REQUEST, false, TEXT("GET / HTTP/1.1\r\n" HOST_FIELD "Expect: 100-continue\r\n\r\n"),
     "GET|/|0||1.1|0 1 0 0\n" HOST_TEXT "14 Expect=100-continue\n", 0},
    {HTTP1_REQUEST, false, TEXT("GET http://H:80/v1/models HTTP/1.1\r\n" HOST_FIELD "\r\n"),
     "GET|http://H:80/v1/models|0||1.1|0 1 0 0\n" HOST_TEXT, 0},
    {HTTP1_REQUEST, false, TEXT("GET https://h:443/ HTTP/1.1\r\n" HOST_FIELD "\r\n"),
     "GET|https://h:443/|0||1.1|0 1 0 0\n" HOST_TEXT, 0},
    {HTTP1_REQUEST, false, TEXT("GET http://h?q HTTP/1.0\r\n\r\n"), "GET|http://h?q|0||1.0|0 0 0 0\n", 0},
    {HTTP1_REQUEST, false, TEXT("OPTIONS * HTTP/1.1\r\nHost:\r\n\r\n"), "OPTIONS|*|0||1.1|0 1 0 0\n1 Host=\n",
     0},
    {HTTP1_REQUEST, false, TEXT("GET / HTTP/1.1\r\nHost: [::1]:8080\r\nX: a\tb \xc3\xa9\r\nY:\r\n\r\n"),
     "GET|/|0||1.1|0 1 0 0\n1 Host=[::1]:8080\n0 X=a\tb \xc3\xa9\n0 Y=\n", 0},
    /* An upgrade is not taken up: what follows is the next request. */
    {HTTP1_REQUEST, false,
     TEXT("GET / HTTP/1.1\r\n" HOST_FIELD "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
          "HTTP2-Settings: AA\r\n\r\nGET"),
     "GET|/|0||1.1|0 1 0 0\n" HOST_TEXT
     "2 Connection=Upgrade, HTTP2-Settings\n10 Upgrade=h2c\n19 HTTP2-Settings=AA\n",
     3},
    {HTTP1_REQUEST, false,
     TEXT("POST / HTTP/1.1\r\n" HOST_FIELD
          "Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nhi"),
     "POST|/|0||1.1|1 1 0 2\n" HOST_TEXT
     "2 Connection=Upgrade\n10 Upgrade=websocket\n11 Content-Length=2\nhi",
     0},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd"),
     "||200|OK|1.1|1 1 0 3\n11 Content-Length=3\nabc", 1},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n"),
     "||404||1.1|1 1 0 0\n11 Content-Length=0\n", 0},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"),
     "||200||1.1|2 1 0 0\n9 Transfer-Encoding=chunked\nx", 0},
    {HTTP1_RESPONSE, false,
     TEXT("HTTP/1.1 503 Over \xe9 loaded\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nall of it"),
     "||503|Over \xe9 loaded|1.1|3 0 0 0\n0 Set-Cookie=a\n0 Set-Cookie=b\nall of it", 0},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx"),
     "||200|OK|1.0|1 1 0 1\n2 Connection=keep-alive\n11 Content-Length=1\nx", 0},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1"), "||100|Continue|1.1|0 1 0 0\n", 8},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
     "||103|Early Hints|1.1|0 1 0 0\n0 Link=</a>\n", 0},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n"),
     "||304|Not Modified|1.1|0 1 0 10\n11 Content-Length=10\n", 0},
    {HTTP1_RESPONSE, true, TEXT("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
     "||200|OK|1.1|0 1 0 10\n11 Content-Length=10\n", 0},
    {HTTP1_RESPONSE, true, TEXT("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
     "||200|OK|1.1|0 1 0 0\n9 Transfer-Encoding=chunked\n", 0},
    /* No body whatever is announced; but a connection where a body is announced is not used again. */
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 204 No Content\r\n\r\n"), "||204|No Content|1.1|0 1 0 0\n", 0},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"),
     "||204|No Content|1.1|0 1 0 0\n11 Content-Length=0\n", 0},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc"),
     "||204|No Content|1.1|0 0 0 3\n11 Content-Length=3\n", 3},
    {HTTP1_RESPONSE, false, TEXT("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     "||204|No Content|1.1|0 0 0 0\n9 Transfer-Encoding=chunked\n", 5},
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(goods); i++) {
        const struct good *g = &goods[i];
        struct result r;

        run_all(&r, g->kind, g->head_request, g->data);
        if (r.error != HTTP1_OK)
            print_message("good %zu: %s\n", i, r.reason);
        assert_int_equal(r.error, HTTP1_OK);
        assert_true(r.complete);
        assert_true(buf_append(&r.text, "", 1));
        assert_string_equal(buf_slice(&r.text).p, g->text);
        assert_int_equal(r.consumed, g->data.n - g->rest);
        assert_int_equal(r.done, strstr(g->text, "all of it") == NULL);
        buf_free(&r.text);
    }
}

struct bad {
    enum http1_kind kind;
    enum http1_error error;
    struct slice data;
    const char *word; /* of the reason */
};

#define REQUEST(fields)  "POST / HTTP/1.1\r\nHost: h\r\n" fields "\r\n"
#define CHUNKED(body)    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" body
#define RESPONSE(fields) "HTTP/1.1 200 OK\r\n" fields "\r\n"
#define BAD_REQUEST(line, word)                                                                              \
    {                                                                                                        \
        HTTP1_REQUEST, HTTP1_BAD, TEXT(line "\r\nHost: h\r\n\r\n"), word                                     \
    }
#define BAD_FIELDS(fields, word)                                                                             \
    {                                                                                                        \
        HTTP1_REQUEST, HTTP1_BAD, TEXT(REQUEST(fields)), word                                                \
    }
#define BAD_CHUNKED(body, word)                                                                              \
    {                                                                                                        \
        HTTP1_REQUEST, HTTP1_BAD, TEXT(CHUNKED(body)), word                                                  \
    }
#define BAD_STATUS(line, word)                                                                               \
    {                                                                                                        \
        HTTP1_RESPONSE, HTTP1_BAD, TEXT(line "\r\n\r\n"), word                                               \
    }
#define BAD_RESPONSE(fields, word)                                                                           \
    {                                                                                                        \
        HTTP1_RESPONSE, HTTP1_BAD, TEXT(RESPONSE(fields)), word                                              \
    }
#define BAD_VERSION(line)                                                                                    \
    {                                                                                                        \
        HTTP1_REQUEST, HTTP1_VERSION, TEXT(line "\r\n"), "version"                                           \
    }

static const struct bad bads[] = {
    /* the request line */
    BAD_REQUEST("", "request line"),
    BAD_REQUEST("GET", "request line"),
    BAD_REQUEST(" GET / HTTP/1.1", "request line"),
    BAD_REQUEST("GET HTTP/1.1", "target"),
    BAD_REQUEST("GET  HTTP/1.1", "target"),
    BAD_REQUEST("GET  / HTTP/1.1", "target"),
    BAD_REQUEST("GET /  HTTP/1.1", "target"),
    BAD_REQUEST("GET / HTTP/1.1 ", "version"),
    BAD_REQUEST("GET / HTTP/1.1 x", "version"),
    BAD_REQUEST("GET /\tHTTP/1.1", "control"),
    BAD_REQUEST("GET /a b HTTP/1.1", "target"),
    BAD_REQUEST("GET /a#b HTTP/1.1", "target"),
    BAD_REQUEST("GET /\xc3\xa9 HTTP/1.1", "target"),
    BAD_REQUEST("GET /a\x7f HTTP/1.1", "control"),
    BAD_REQUEST("GET v1/models HTTP/1.1", "target"),
    BAD_REQUEST("GET * HTTP/1.1", "target"),
    BAD_REQUEST("GET http:// HTTP/1.1", "target"),
    BAD_REQUEST("GET http:///x HTTP/1.1", "target"),
    BAD_REQUEST("GET ftp://h/ HTTP/1.1", "target"),
    BAD_REQUEST("GET http://u@h/ HTTP/1.1", "target"),
    BAD_REQUEST("GET http://h,i/ HTTP/1.1", "target"),
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT("get / HTTP/1.1\r\nHost: h\r\n\r\n"), "method"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT("BREW / HTTP/1.1\r\nHost: h\r\n\r\n"), "method"},
    BAD_REQUEST("G(T / HTTP/1.1", "request line"),
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT("DESCRIBE / HTTP/1.1\r\nHost: h\r\n\r\n"), "method"},
    BAD_REQUEST("GET / RTSP/1.0", "version"),
    BAD_REQUEST("GET / http/1.1", "version"),
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n"), "method"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT("TRACE / HTTP/1.1\r\nHost: h\r\n\r\n"), "method"},
    BAD_VERSION("GET /"),
    BAD_VERSION("GET / HTTP/0.9"),
    BAD_VERSION("GET / HTTP/1.2"),
    BAD_VERSION("GET / HTTP/1.10"),
    BAD_VERSION("GET / HTTP/1."),
    BAD_VERSION("GET / HTTP/2.0"),
    BAD_VERSION("GET / HTTP/01.1"),
    {HTTP1_REQUEST, HTTP1_VERSION, TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "version"},
    /* A TLS handshake on a plain port. */
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("\x16\x03\x01\x02"), "control"},
    /* line ends and bytes */
    BAD_FIELDS("A: b\nC: d\r\n", "LF without CR"),
    BAD_FIELDS("A: b\r\rC: d\r\n", "CR without LF"),
    BAD_FIELDS("A: b\rC: d\r\n", "CR without LF"),
    BAD_FIELDS("A: b\r\n\rC: d\r\n", "CR without LF"),
    BAD_FIELDS("A:\rb\r\n", "CR without LF"),
    BAD_FIELDS("A: b\0c\r\n", "control"),
    BAD_FIELDS("A: b\x0b\r\n", "control"),
    BAD_FIELDS("A: b\x7f\r\n", "control"),
    BAD_FIELDS("A\t: b\r\n", "field"),
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.1\nHost: h\n\n"), "LF without CR"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.1\r\nHost: h\r\n\n"), "LF without CR"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.1\r\rHost: h\r\r"), "CR without LF"},
    BAD_FIELDS("A: b\r\n c\r\n", "folded"),
    BAD_FIELDS("A: b\r\n\tc\r\n", "folded"),
    BAD_FIELDS("A:\r\n \r\n", "folded"),
    BAD_FIELDS(" A: b\r\n", "folded"),
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.1\r\n Host: h\r\n\r\n"), "folded"},
    /* field names */
    BAD_FIELDS(": b\r\n", "field"),
    BAD_FIELDS("A : b\r\n", "field"),
    BAD_FIELDS("A b: c\r\n", "field"),
    BAD_FIELDS("A\r\n", "field"),
    BAD_FIELDS("A(: b\r\n", "field"),
    BAD_FIELDS("\xc3\xa9: b\r\n", "field"),
    BAD_FIELDS("Transfer-Encoding : chunked\r\n", "field"),
    BAD_FIELDS("Content-Length\t: 5\r\n", "field"),
    /* framing */
    BAD_FIELDS("Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length"),
    BAD_FIELDS("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 5\r\nTransfer-Encoding: identity\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: +5\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: -5\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 5, 5\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 5,5\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 5 5\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 0x5\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 5.0\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: \"5\"\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length:\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 9223372036854775808\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 18446744073709551617\r\n", "Content-Length"),
    BAD_FIELDS("Content-Length: 00000000000000000005\r\n", "Content-Length"),
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), "HTTP/1.0"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT(REQUEST("Transfer-Encoding: gzip, chunked\r\n")), "chunked"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT(REQUEST("Transfer-Encoding: chunked, chunked\r\n")), "chunked"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT(REQUEST("Transfer-Encoding: chunked, identity\r\n")), "chunked"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT(REQUEST("Transfer-Encoding: identity\r\n")), "chunked"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT(REQUEST("Transfer-Encoding: xchunked\r\n")), "chunked"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT(REQUEST("Transfer-Encoding: \"chunked\"\r\n")), "chunked"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT(REQUEST("Transfer-Encoding: chunked;q=1\r\n")), "chunked"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED, TEXT(REQUEST("Transfer-Encoding:\r\n")), "chunked"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED,
     TEXT(REQUEST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")), "chunked"},
    {HTTP1_REQUEST, HTTP1_UNSUPPORTED,
     TEXT(REQUEST("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n")), "chunked"},
    /* Host */
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.1\r\n\r\n"), "Host"},
    BAD_FIELDS("Host: h\r\n", "Host"),
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"), "Host"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), "Host"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.1\r\nHost: a,b\r\n\r\n"), "Host"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.1\r\nHost: u@h\r\n\r\n"), "Host"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET / HTTP/1.1\r\nHost: h/x\r\n\r\n"), "Host"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET http://other/ HTTP/1.1\r\nHost: h\r\n\r\n"), "differs"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET http://h:81/ HTTP/1.1\r\nHost: h\r\n\r\n"), "differs"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET https://h:80/ HTTP/1.1\r\nHost: h\r\n\r\n"), "differs"},
    {HTTP1_REQUEST, HTTP1_BAD, TEXT("GET http://h/ HTTP/1.1\r\nHost:\r\n\r\n"), "differs"},
    BAD_FIELDS(
        "Connection: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q\r\nConnection: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p\r\n",
        "Connection"),
    /* chunked bodies */
    BAD_CHUNKED("\r\n", "size"),
    BAD_CHUNKED("x\r\n", "size"),
    BAD_CHUNKED("-1\r\n", "size"),
    BAD_CHUNKED("+1\r\nx\r\n0\r\n\r\n", "size"),
    BAD_CHUNKED("0x1\r\nx\r\n0\r\n\r\n", "size"),
    BAD_CHUNKED(" 1\r\nx\r\n0\r\n\r\n", "size"),
    BAD_CHUNKED("1 \r\nx\r\n0\r\n\r\n", "size"),
    BAD_CHUNKED("1 ;a\r\nx\r\n0\r\n\r\n", "size"),
    BAD_CHUNKED(";a\r\nx\r\n0\r\n\r\n", "size"),
    BAD_CHUNKED("1\nx\r\n0\r\n\r\n", "size"),
    BAD_CHUNKED("1\r\nx\n0\r\n\r\n", "longer"),
    BAD_CHUNKED("1\r\nxy\r\n0\r\n\r\n", "longer"),
    BAD_CHUNKED("1\r\nx\r0\r\n\r\n", "CR without LF"),
    BAD_CHUNKED("1\rx\r\n0\r\n\r\n", "CR without LF"),
    BAD_CHUNKED("1\r\nx\r\n0\r\n\n", "trailer"),
    BAD_CHUNKED("1\r\nx\r\n0\r\n\r\r", "CR without LF"),
    BAD_CHUNKED("1\r\nx\r\n\r\n0\r\n\r\n", "size"),
    BAD_CHUNKED("8000000000000000\r\n", "too large"),
    BAD_CHUNKED("10000000000000000\r\n", "too large"),
    BAD_CHUNKED("00000000000000001\r\nx\r\n", "too large"),
    /* RF8: a bare LF in an extension */
    BAD_CHUNKED("5;a\nX\r\nhello\r\n0\r\n\r\n", "control"),
    BAD_CHUNKED("5;a\rX\r\nhello\r\n0\r\n\r\n", "CR without LF"),
    BAD_CHUNKED("5;a\0\r\nhello\r\n0\r\n\r\n", "control"),
    BAD_CHUNKED("0\r\nA: b\nC: d\r\n\r\n", "control"),
    BAD_CHUNKED("0\r\nA: b\rC: d\r\n\r\n", "CR without LF"),
    BAD_CHUNKED("0\r\n A: b\r\n\r\n", "trailer"),
    BAD_CHUNKED("0\r\nA: b\r\n c\r\n\r\n", "trailer"),
    BAD_CHUNKED("0\r\nA : b\r\n\r\n", "trailer"),
    BAD_CHUNKED("0\r\n: b\r\n\r\n", "trailer"),
    BAD_CHUNKED("0\r\nGET / HTTP/1.1\r\n\r\n", "trailer"),
    /* answers */
    BAD_STATUS("", "status line"),
    BAD_STATUS("hello", "status line"),
    BAD_STATUS("ICY 200 OK", "status line"),
    BAD_STATUS("HTTP/1.1 20 OK", "status code"),
    BAD_STATUS("HTTP/1.1 2000 OK", "status code"),
    BAD_STATUS("HTTP/1.1 2x0 OK", "status code"),
    BAD_STATUS("HTTP/1.1 099 OK", "status code"),
    BAD_STATUS("HTTP/1.1 600 OK", "status code"),
    BAD_STATUS("HTTP/1.1 200OK", "status code"),
    BAD_STATUS("HTTP/1.1  200 OK", "status code"),
    BAD_STATUS("HTTP/1.1 101 Switching Protocols", "101"),
    BAD_STATUS("HTTP/1.1 200 O\x01K", "control"),
    {HTTP1_RESPONSE, HTTP1_VERSION, TEXT("HTTP/1.2 200 OK\r\n\r\n"), "version"},
    {HTTP1_RESPONSE, HTTP1_VERSION, TEXT("HTTP/2.0 200 OK\r\n\r\n"), "version"},
    {HTTP1_RESPONSE, HTTP1_VERSION, TEXT("HTTP/1.1\r\n\r\n"), "version"},
    {HTTP1_RESPONSE, HTTP1_VERSION, TEXT("HTTP/1.10 200 OK\r\n\r\n"), "version"},
    {HTTP1_RESPONSE, HTTP1_BAD, TEXT("\r\nHTTP/1.1 200 OK\r\n\r\n"), "status line"},
    {HTTP1_RESPONSE, HTTP1_BAD, TEXT("HTTP/1.1 200 OK\nContent-Length: 0\n\n"), "LF without CR"},
    BAD_RESPONSE("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Content-Length"),
    BAD_RESPONSE("Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length"),
    BAD_RESPONSE("Content-Length: 5, 6\r\n", "Content-Length"),
    BAD_RESPONSE("A: b\r\n folded\r\n", "folded"),
    {HTTP1_RESPONSE, HTTP1_UNSUPPORTED, TEXT(RESPONSE("Transfer-Encoding: gzip\r\n")), "chunked"},
    {HTTP1_RESPONSE, HTTP1_BAD, TEXT("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), "HTTP/1.0"},
};

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bads); i++) {
        const struct bad *b = &bads[i];
        struct result r;

        run_all(&r, b->kind, false, b->data);
        if (r.error != b->error || strstr(r.reason, b->word) == NULL)
            print_message("bad %zu (%.*s): error %d, %s\n", i, SLICE_ARG(b->data), (int)r.error,
                          r.reason != NULL ? r.reason : "-");
        assert_int_equal(r.error, b->error);
        assert_non_null(strstr(r.reason, b->word));
        assert_false(r.done);
        buf_free(&r.text);
    }
}

/* A message that is not all there is no error. */
static void test_more_needed(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(goods); i++) {
        const struct good *g = &goods[i];

        for (size_t n = 0; n < g->data.n - g->rest; n++) {
            struct result r;

            run(&r, g->kind, g->head_request, (struct slice){g->data.p, n}, piece_whole, 0);
            assert_int_equal(r.error, HTTP1_OK);
            assert_false(r.done);
            buf_free(&r.text);
        }
    }
}

/* Faults of a line are known before the rest of the head is there. */
static void test_early(void **state)
{
    struct result r;

    (void)state;
    run(&r, HTTP1_REQUEST, false, SLICE("GET /index.html\r\n"), piece_whole, 0);
    assert_int_equal(r.error, HTTP1_VERSION);
    run(&r, HTTP1_RESPONSE, false, SLICE("SSH-2.0-x\r\n"), piece_whole, 0);
    assert_int_equal(r.error, HTTP1_BAD);
    run(&r, HTTP1_REQUEST, false, SLICE("GET / HTTP/1.1\r\nHost : h\r\n"), piece_whole, 0);
    assert_int_equal(r.error, HTTP1_BAD);
    run(&r, HTTP1_REQUEST, false, SLICE("GET / HTTP/1.1\r\nA: b\0"), piece_whole, 0);
    assert_int_equal(r.error, HTTP1_BAD);
}

/* Where the type of a length ends. */
static void test_name_limit(void **state)
{
    static char data[70000];
    struct http1_head head;
    struct http1 h;

    (void)state;
    for (size_t n = UINT16_MAX; n <= UINT16_MAX + 1; n++) {
        size_t at = (size_t)snprintf(data, sizeof(data), "GET / HTTP/1.0\r\n");

        memset(data + at, 'a', n);
        memcpy(data + at + n, ":x\r\n\r\n", 6);
        http1_start(&h, HTTP1_REQUEST, &head, sizeof(data), false);
        assert_int_equal(http1_head(&h, data, at + n + 6), n == UINT16_MAX ? (ssize_t)(at + n + 6) : -1);
        assert_int_equal(h.error, n == UINT16_MAX ? HTTP1_OK : HTTP1_HEAD_TOO_LARGE);
    }
}

/* A head of exactly n bytes. */
static struct slice padded(const char *first, size_t n)
{
    static char data[MAX_HEAD_BYTES + 8];
    size_t at = strlen(first);

    memcpy(data, first, at);
    memset(data + at, 'a', n - at - 4);
    memcpy(data + n - 4, "\r\n\r\n", 4);
    return (struct slice){data, n};
}

static void check_limit(const char *first, size_t n, enum http1_error error)
{
    struct result r;

    run_all(&r, HTTP1_REQUEST, false, padded(first, n));
    assert_int_equal(r.error, error);
    assert_int_equal(r.complete, error == HTTP1_OK);
    buf_free(&r.text);
}

static void test_head_limit(void **state)
{
    (void)state;
    check_limit("GET / HTTP/1.1\r\nHost: h\r\nX: ", MAX_HEAD_BYTES - 1, HTTP1_OK);
    check_limit("GET / HTTP/1.1\r\nHost: h\r\nX: ", MAX_HEAD_BYTES, HTTP1_OK);
    check_limit("GET / HTTP/1.1\r\nHost: h\r\nX: ", MAX_HEAD_BYTES + 1, HTTP1_HEAD_TOO_LARGE);
    check_limit("GET /", MAX_HEAD_BYTES + 8, HTTP1_TARGET_TOO_LONG);
}

static void check_fields(enum http1_kind kind, size_t n, enum http1_error error)
{
    struct result r;
    struct buf data;

    buf_init(&data, MAX_HEAD_BYTES);
    assert_true(buf_printf(&data, kind == HTTP1_REQUEST ? "GET / HTTP/1.1\r\nHost: h\r\n"
                                                        : "HTTP/1.1 200 OK\r\nA: b\r\n"));
    for (size_t i = 1; i < n; i++)
        assert_true(buf_printf(&data, "X: %zu\r\n", i));
    assert_true(buf_printf(&data, "\r\n"));
    run_all(&r, kind, false, buf_slice(&data));
    assert_int_equal(r.error, error);
    buf_free(&r.text);
    buf_free(&data);
}

static void test_field_limit(void **state)
{
    (void)state;
    check_fields(HTTP1_REQUEST, HTTP1_MAX_FIELDS, HTTP1_OK);
    check_fields(HTTP1_REQUEST, HTTP1_MAX_FIELDS + 1, HTTP1_HEAD_TOO_LARGE);
    check_fields(HTTP1_RESPONSE, HTTP1_MAX_FIELDS, HTTP1_OK);
    check_fields(HTTP1_RESPONSE, HTTP1_MAX_FIELDS + 1, HTTP1_HEAD_TOO_LARGE);
}

/* A chunked body whose extensions and trailers have n bytes together. */
static void check_extra(size_t n, enum http1_error error)
{
    struct result r;
    struct buf data;

    buf_init(&data, SIZE_MAX / 4);
    assert_true(buf_printf(&data, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"));
    for (size_t i = 0; i < 100; i++)
        assert_true(buf_printf(&data, "1;e=0123456789\r\nx\r\n"));
    assert_true(buf_printf(&data, "0\r\nTrailer-Field:%*d\r\n\r\n", (int)(n - 100 * 12 - 14), 1));
    run(&r, HTTP1_REQUEST, false, buf_slice(&data), piece_whole, 0);
    assert_int_equal(r.error, error);
    assert_int_equal(r.done, error == HTTP1_OK);
    assert_int_equal(r.body_n, 100);
    buf_free(&r.text);
    buf_free(&data);
}

static void test_extra_limit(void **state)
{
    (void)state;
    check_extra(HTTP1_MAX_EXTRA_BYTES, HTTP1_OK);
    check_extra(HTTP1_MAX_EXTRA_BYTES + 1, HTTP1_BAD);
}

/* The largest sizes, without their content. */
static void test_largest_sizes(void **state)
{
    struct result r;

    (void)state;
    run(&r, HTTP1_REQUEST, false, SLICE(REQUEST("Content-Length: 9223372036854775807\r\n")), piece_whole, 0);
    assert_int_equal(r.error, HTTP1_OK);
    assert_false(r.done);
    buf_free(&r.text);
    run(&r, HTTP1_REQUEST, false, SLICE(CHUNKED("7fffffffffffffff\r\nx")), piece_whole, 0);
    assert_int_equal(r.error, HTTP1_OK);
    assert_int_equal(r.body_n, 1);
    buf_free(&r.text);
}

/* What came before an error is content: a broken answer is relayed as far as it is good. */
static void test_content_before_error(void **state)
{
    struct result r;

    (void)state;
    run(&r, HTTP1_RESPONSE, false,
        SLICE("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz"), piece_whole, 0);
    assert_int_equal(r.error, HTTP1_BAD);
    assert_int_equal(r.body_n, 5);
    buf_free(&r.text);
}

static bool eof_after(enum http1_kind kind, struct slice data)
{
    struct http1_head head;
    struct http1 h;
    struct slice span;
    ssize_t n;

    http1_start(&h, kind, &head, MAX_HEAD_BYTES, false);
    n = http1_head(&h, data.p, data.n);
    while (n > 0 && (size_t)n < data.n && !h.done) {
        ssize_t more = http1_body(&h, data.p + n, data.n - (size_t)n, &span);

        if (more <= 0)
            break;
        n += more;
    }
    return http1_eof(&h);
}

static void test_eof(void **state)
{
    (void)state;
    assert_true(eof_after(HTTP1_RESPONSE, SLICE("HTTP/1.1 200 OK\r\n\r\n")));
    assert_true(eof_after(HTTP1_RESPONSE, SLICE("HTTP/1.1 200 OK\r\n\r\nabc")));
    assert_true(eof_after(HTTP1_RESPONSE, SLICE(RESPONSE("Content-Length: 0\r\n"))));
    assert_false(eof_after(HTTP1_RESPONSE, SLICE("HTTP/1.1 200 OK\r\n")));
    assert_false(eof_after(HTTP1_RESPONSE, SLICE("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc")));
    assert_false(
        eof_after(HTTP1_RESPONSE, SLICE("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")));
    assert_false(
        eof_after(HTTP1_RESPONSE, SLICE("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")));
    assert_false(eof_after(HTTP1_RESPONSE, SLICE("HTTP/1.1 200 OK\r\nA : b\r\n\r\n")));
    assert_false(eof_after(HTTP1_REQUEST, SLICE("GET / HTTP/1.1\r\n")));
}

static void test_skip_blank(void **state)
{
    (void)state;
    assert_int_equal(http1_skip_blank("", 0), 0);
    assert_int_equal(http1_skip_blank("GET", 3), 0);
    assert_int_equal(http1_skip_blank("\r", 1), 0);
    assert_int_equal(http1_skip_blank("\r\nGET", 5), 2);
    assert_int_equal(http1_skip_blank("\r\n\r\n\r", 5), 4);
    assert_int_equal(http1_skip_blank("\n\r\n", 3), 0);
    assert_int_equal(http1_skip_blank("\r\n\r\n\r\n\r\n\r\n", 10), 8);
}

static void test_find(void **state)
{
    static const struct slice data =
        TEXT("GET / HTTP/1.1\r\nHost: h\r\nx-session-ID: one\r\nX-Session-Id: two\r\nX-Empty:\r\n\r\n");
    struct http1_head head;
    struct http1 h;

    (void)state;
    http1_start(&h, HTTP1_REQUEST, &head, MAX_HEAD_BYTES, false);
    assert_int_equal(http1_head(&h, data.p, data.n), data.n);
    assert_true(slice_eq(http1_find(&head, HEADER_HOST), SLICE("h")));
    assert_null(http1_find(&head, HEADER_EXPECT).p);
    assert_true(slice_eq(http1_find_name(&head, SLICE("X-SESSION-ID")), SLICE("one")));
    assert_non_null(http1_find_name(&head, SLICE("x-empty")).p);
    assert_int_equal(http1_find_name(&head, SLICE("x-empty")).n, 0);
    assert_null(http1_find_name(&head, SLICE("x-session")).p);
}

/* Random bytes made of what HTTP is made of: any split gives what one piece gives. */
static void test_random_splits(void **state)
{
    static const char *const parts[] = {"GET ",
                                        "POST ",
                                        "/v1/x",
                                        " HTTP/1.1\r\n",
                                        "HTTP/1.1 200 OK\r\n",
                                        "Host: h\r\n",
                                        "Content-Length: 3\r\n",
                                        "\r\n",
                                        "\r",
                                        "\n",
                                        "Transfer-Encoding: chunked\r\n",
                                        "3\r\nabc\r\n",
                                        "0\r\n",
                                        "abc",
                                        "A: b\r\n",
                                        "2;x\r\n",
                                        ":",
                                        " ",
                                        "\t",
                                        "Connection: close\r\n",
                                        "HTTP/1.0 204 \r\n"};
    struct test_random random = {7};

    (void)state;
    for (int round = 0; round < 4000; round++) {
        struct buf data;
        struct result whole, split;
        enum http1_kind kind = test_random_below(&random, 2) == 0 ? HTTP1_REQUEST : HTTP1_RESPONSE;

        buf_init(&data, SIZE_MAX / 4);
        assert_true(buf_printf(&data, kind == HTTP1_REQUEST ? "POST / HTTP/1.1\r\nHost: h\r\n"
                                                            : "HTTP/1.1 200 OK\r\n"));
        for (size_t n = test_random_below(&random, 12); n > 0; n--)
            assert_true(
                buf_append_slice(&data, slice_of(parts[test_random_below(&random, ARRAY_LEN(parts))])));
        run(&whole, kind, false, buf_slice(&data), piece_whole, 0);
        for (int i = 0; i < 5; i++) {
            run(&split, kind, false, buf_slice(&data), i == 0 ? piece_byte : piece_two,
                1 + test_random_below(&random, data.len));
            assert_same(&whole, &split);
            buf_free(&split.text);
        }
        buf_free(&whole.text);
        buf_free(&data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),          cmocka_unit_test(test_bad),
        cmocka_unit_test(test_more_needed),   cmocka_unit_test(test_early),
        cmocka_unit_test(test_name_limit),    cmocka_unit_test(test_head_limit),
        cmocka_unit_test(test_field_limit),   cmocka_unit_test(test_extra_limit),
        cmocka_unit_test(test_largest_sizes), cmocka_unit_test(test_content_before_error),
        cmocka_unit_test(test_eof),           cmocka_unit_test(test_skip_blank),
        cmocka_unit_test(test_find),          cmocka_unit_test(test_random_splits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
