/* Any bytes as a request or an answer. The first byte chooses the kind and the splits, the rest is the
 * message. What must hold: one piece and any pieces give the same; content never exceeds what came in; a
 * refusal has its reason; llhttp, strict, takes every head and chunked body that we take and reads the same
 * out of it; what headers.c writes for such a head is a good head. */
#include "http1.h"
#include "buf.h"
#include "headers.h"
#include "mem.h"

#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_HEAD_BYTES 1024

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_http1: %s\n", what);
    abort();
}

struct outcome {
    struct http1 h;
    ssize_t head_bytes;
    size_t consumed;
    struct buf text; /* what the head says, then the content */
    size_t body_at;
};

static void add(struct buf *out, const void *p, size_t n)
{
    require(buf_append(out, &n, sizeof(n)) && buf_append(out, p, n), "memory");
}

static void describe(struct buf *out, const struct http1_head *h)
{
    const uint64_t numbers[] = {h->bytes,           h->status,         h->minor,   h->keep_alive,
                                h->expect_continue, h->content_length, h->framing, h->n_fields};

    add(out, numbers, sizeof(numbers));
    add(out, http1_method(h).p, http1_method(h).n);
    add(out, http1_target(h).p, http1_target(h).n);
    add(out, h->base + h->reason, h->reason_n);
    for (size_t i = 0; i < h->n_fields; i++) {
        add(out, &h->fields[i].id, 1);
        add(out, http1_name(h, &h->fields[i]).p, h->fields[i].name_n);
        add(out, http1_value(h, &h->fields[i]).p, h->fields[i].value_n);
    }
}

/* The end of the next piece: all of it for seed 0. */
static size_t next_end(size_t at, size_t n, uint32_t *seed)
{
    if (*seed == 0)
        return n;
    *seed = *seed * 1664525u + 1013904223u;
    at += 1 + (*seed >> 24) % ((*seed >> 16 & 7) == 0 ? 64 : 4);
    return at < n ? at : n;
}

static void run_body(struct outcome *o, const char *data, size_t n, uint32_t *seed)
{
    while (o->consumed < n && !o->h.done && o->h.error == HTTP1_OK) {
        size_t end = next_end(o->consumed, n, seed);

        while (o->consumed < end && !o->h.done) {
            struct slice span;
            ssize_t used = http1_body(&o->h, data + o->consumed, end - o->consumed, &span);

            if (used < 0)
                return;
            require(used > 0 && (size_t)used <= end - o->consumed, "progress");
            require(span.n <= (size_t)used, "more content than input");
            require(buf_append_slice(&o->text, span), "memory");
            o->consumed += (size_t)used;
        }
    }
}

static void run(struct outcome *o, struct http1_head *head, const char *data, size_t n, unsigned mode,
                uint32_t seed)
{
    *o = (struct outcome){.head_bytes = 0};
    buf_init(&o->text, SIZE_MAX / 4);
    http1_start(&o->h, (mode & 1) != 0 ? HTTP1_RESPONSE : HTTP1_REQUEST, head, MAX_HEAD_BYTES,
                (mode & 2) != 0);
    for (size_t have = 0; o->head_bytes == 0 && have < n;) {
        char *copy;

        have = next_end(have, n, &seed);
        copy = mem_alloc(have); /* exact, and somewhere else each time */
        memcpy(copy, data, have);
        o->head_bytes = http1_head(&o->h, copy, have);
        if (o->head_bytes > 0)
            describe(&o->text, head);
        mem_free(copy);
    }
    head->base = data;
    o->body_at = o->text.len;
    if (o->head_bytes <= 0)
        return;
    o->consumed = (size_t)o->head_bytes;
    run_body(o, data, n, &seed);
}

static void compare(const struct outcome *a, const struct outcome *b)
{
    require(a->h.error == b->h.error && a->h.reason == b->h.reason, "another error with other pieces");
    require(a->h.done == b->h.done, "another end with other pieces");
    require(slice_eq(buf_slice(&a->text), buf_slice(&b->text)), "another head or content with other pieces");
    require(a->h.error != HTTP1_OK || a->consumed == b->consumed, "another length with other pieces");
    require((a->h.error == HTTP1_OK) == (a->h.reason == NULL),
            "an error without a reason, or a reason without an error");
}

/* What llhttp makes of a message. */
struct reference {
    const struct http1_head *head;
    size_t n_fields;
    uint64_t length;
    struct slice value; /* of the last field, which may come in several calls */
    struct buf body;
    bool done;
};

static void check_value(struct reference *r)
{
    if (r->n_fields > 0)
        require(slice_eq(slice_trim(r->value), http1_value(r->head, &r->head->fields[r->n_fields - 1])),
                "llhttp sees another value");
    r->value = (struct slice){NULL, 0};
}

static int on_field(llhttp_t *parser, const char *p, size_t n)
{
    struct reference *r = parser->data;

    check_value(r);
    require(r->n_fields < r->head->n_fields, "llhttp sees more fields");
    require(slice_eq((struct slice){p, n}, http1_name(r->head, &r->head->fields[r->n_fields])),
            "llhttp sees another name");
    r->n_fields++;
    return 0;
}

static int on_value(llhttp_t *parser, const char *p, size_t n)
{
    struct reference *r = parser->data;

    require(r->value.n == 0, "llhttp sees a value of two parts");
    r->value = (struct slice){p, n};
    return 0;
}

static int on_head(llhttp_t *parser)
{
    struct reference *r = parser->data;

    check_value(r);
    r->length = parser->content_length;
    r->done = true;
    parser->upgrade = 0;
    return 1;
}

/* Tabs around the values of these fields are white space for us, and for llhttp part of a value it does not
 * know. */
static bool has_tab(const struct http1_head *head)
{
    return memchr(head->base, '\t', head->bytes) != NULL;
}

static void check_head(const struct http1_head *head)
{
    llhttp_settings_t settings = {
        .on_header_field = on_field, .on_header_value = on_value, .on_headers_complete = on_head};
    struct reference r = {.head = head};
    llhttp_t parser;

    llhttp_init(&parser, head->status == 0 ? HTTP_REQUEST : HTTP_RESPONSE, &settings);
    parser.data = &r;
    if (llhttp_execute(&parser, head->base, head->bytes) != HPE_OK) {
        require(has_tab(head), "llhttp refuses a head that we take");
        return;
    }
    require(r.done && r.n_fields == head->n_fields, "llhttp sees another end of the head");
    require(parser.http_minor == head->minor && parser.status_code == head->status,
            "llhttp sees another first line");
    if (head->framing == HTTP1_SIZED)
        require(r.length == head->content_length, "llhttp sees another length");
}

static int on_body(llhttp_t *parser, const char *p, size_t n)
{
    struct reference *r = parser->data;

    return buf_append(&r->body, p, n) ? 0 : -1;
}

static int on_done(llhttp_t *parser)
{
    struct reference *r = parser->data;

    r->done = true;
    return HPE_PAUSED;
}

static void check_chunked(const struct outcome *o, const char *data)
{
    static const char head[] = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    llhttp_settings_t settings = {.on_body = on_body, .on_message_complete = on_done};
    const char *body = data + o->head_bytes;
    size_t n = o->consumed - (size_t)o->head_bytes;
    struct reference r = {.done = false};
    struct slice ours = buf_slice(&o->text);
    llhttp_t parser;

    if (memchr(body, ';', n) != NULL || memchr(body, ':', n) != NULL)
        return; /* llhttp wants extensions to be well formed, and a trailer may name Content-Length */
    buf_init(&r.body, SIZE_MAX / 4);
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    parser.data = &r;
    require(llhttp_execute(&parser, head, sizeof(head) - 1) == HPE_OK, "llhttp refuses the plainest head");
    (void)llhttp_execute(&parser, body, n);
    require(r.done, "llhttp does not see the end of a chunked body");
    ours.p += o->body_at;
    ours.n -= o->body_at;
    require(slice_eq(ours, buf_slice(&r.body)), "llhttp sees another content");
    buf_free(&r.body);
}

/* A head that was taken can be written, and what was written is a head again, with one framing field. */
static void check_written(const struct http1_head *head)
{
    struct headers_request request = {
        .head = head, .request_id = SLICE("id"), .peer_ip = SLICE("::1"), .proto = SLICE("http")};
    struct headers_response response = {
        .head = head, .request_id = SLICE("id"), .client_minor = 1, .framing = HTTP1_CHUNKED};
    bool is_request = head->status == 0;
    struct http1_head again;
    struct http1 h;
    struct buf out;
    size_t line_bytes;

    buf_init(&out, SIZE_MAX / 4);
    require(is_request ? headers_request_block(&out, &request, &line_bytes)
                       : headers_response_block(&out, &response),
            "a head cannot be written");
    if (is_request) {
        struct buf whole;

        buf_init(&whole, SIZE_MAX / 4);
        require(buf_append(&whole, buf_slice(&out).p, line_bytes) && buf_printf(&whole, "Host: pod\r\n") &&
                    buf_append(&whole, buf_slice(&out).p + line_bytes, out.len - line_bytes),
                "memory");
        buf_free(&out);
        out = whole;
    }
    http1_start(&h, is_request ? HTTP1_REQUEST : HTTP1_RESPONSE, &again, MAX_HEAD_BYTES * 2, false);
    if (again.n_fields > 0 || head->n_fields < HTTP1_MAX_FIELDS - 8)
        require(http1_head(&h, buf_slice(&out).p, out.len) == (ssize_t)out.len, "a written head is refused");
    for (size_t i = 0; i < again.n_fields; i++)
        require(again.fields[i].id != HEADER_CONTENT_LENGTH && again.fields[i].id != HEADER_UPGRADE &&
                    again.fields[i].id != HEADER_TE,
                "a hop-by-hop field stayed");
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http1_head head, other_head;
    struct outcome whole, pieces;
    unsigned mode = size > 0 ? data[0] : 0;
    const char *message = (const char *)data + 1;

    if (size < 2)
        return 0;
    run(&whole, &head, message, size - 1, mode, 0);
    run(&pieces, &other_head, message, size - 1, mode, 1 + (mode >> 2));
    compare(&whole, &pieces);
    if (whole.head_bytes > 0) {
        check_head(&head);
        check_written(&head);
        if (whole.h.framing == HTTP1_CHUNKED && whole.h.done)
            check_chunked(&whole, message);
    }
    buf_free(&whole.text);
    buf_free(&pieces.text);
    return 0;
}
