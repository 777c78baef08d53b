/* headers: the heads that leave the router. A head is written in one piece: room for the longest possible
 * result is reserved first, and runs of fields that stay are copied as they came. Which connection a head
 * goes to, and what body follows, is decided by the caller. */
#include "headers.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

/* ---- names ---- */

/* Equal but for case. `lower` has only lower-case letters, digits and hyphens, and the other side is a token,
 * so that one bit makes the difference. */
static bool headers_is(const char *name, const char *lower, size_t n)
{
    const uint64_t bits = UINT64_C(0x2020202020202020);
    uint64_t a, b;

    if (n < 8) {
        for (size_t i = 0; i < n; i++) {
            if ((name[i] | 0x20) != lower[i])
                return false;
        }
        return true;
    }
    for (size_t i = 0; i < n; i += 8) {
        size_t at = i + 8 <= n ? i : n - 8; /* the last step overlaps the one before */

        memcpy(&a, name + at, 8);
        memcpy(&b, lower + at, 8);
        if ((a | bits) != b)
            return false;
    }
    return true;
}

static enum header_id headers_if(struct slice name, const char *lower, enum header_id id)
{
    return headers_is(name.p, lower, name.n) ? id : HEADER_OTHER;
}

/* Length and first letter in one number. */
#define HEADERS_KEY(length, letter) ((length) << 8 | (letter))

enum header_id headers_id(struct slice name)
{
    if (name.n < 2 || name.n > 19)
        return HEADER_OTHER;
    switch (HEADERS_KEY(name.n, (unsigned)(name.p[0] | 0x20) & 0xff)) {
    case HEADERS_KEY(2, 't'):
        return headers_if(name, "te", HEADER_TE);
    case HEADERS_KEY(4, 'h'):
        return headers_if(name, "host", HEADER_HOST);
    case HEADERS_KEY(6, 'e'):
        return headers_if(name, "expect", HEADER_EXPECT);
    case HEADERS_KEY(7, 't'):
        return headers_if(name, "trailer", HEADER_TRAILER);
    case HEADERS_KEY(7, 'u'):
        return headers_if(name, "upgrade", HEADER_UPGRADE);
    case HEADERS_KEY(10, 'c'):
        return headers_if(name, "connection", HEADER_CONNECTION);
    case HEADERS_KEY(10, 'k'):
        return headers_if(name, "keep-alive", HEADER_KEEP_ALIVE);
    case HEADERS_KEY(12, 'c'):
        return headers_if(name, "content-type", HEADER_CONTENT_TYPE);
    case HEADERS_KEY(12, 'x'):
        return headers_if(name, "x-request-id", HEADER_X_REQUEST_ID);
    case HEADERS_KEY(14, 'c'):
        return headers_if(name, "content-length", HEADER_CONTENT_LENGTH);
    case HEADERS_KEY(14, 'h'):
        return headers_if(name, "http2-settings", HEADER_HTTP2_SETTINGS);
    case HEADERS_KEY(15, 'x'):
        return headers_if(name, "x-forwarded-for", HEADER_X_FORWARDED_FOR);
    case HEADERS_KEY(16, 'p'):
        return headers_if(name, "proxy-connection", HEADER_PROXY_CONNECTION);
    case HEADERS_KEY(16, 'c'):
        return headers_if(name, "content-encoding", HEADER_CONTENT_ENCODING);
    case HEADERS_KEY(17, 't'):
        return headers_if(name, "transfer-encoding", HEADER_TRANSFER_ENCODING);
    case HEADERS_KEY(17, 'x'):
        if (headers_is(name.p, "x-forwarded-proto", name.n))
            return HEADER_X_FORWARDED_PROTO;
        return headers_if(name, "x-accel-buffering", HEADER_X_ACCEL_BUFFERING);
    case HEADERS_KEY(18, 'p'):
        return headers_if(name, "proxy-authenticate", HEADER_PROXY_AUTHENTICATE);
    case HEADERS_KEY(19, 'p'):
        return headers_if(name, "proxy-authorization", HEADER_PROXY_AUTHORIZATION);
    default:
        return HEADER_OTHER;
    }
}

/* ---- request id ---- */

/* Visible ASCII without what would need care in a log line, a list or a JSON string. */
static bool headers_request_id_ok(struct slice id)
{
    if (id.n == 0 || id.n > HEADERS_REQUEST_ID_MAX)
        return false;
    for (size_t i = 0; i < id.n; i++) {
        char c = id.p[i];

        if (c <= ' ' || c > '~' || c == '"' || c == '\'' || c == '`' || c == ',')
            return false;
    }
    return true;
}

/* 16 random bytes. The kernel is asked once for many. */
static void headers_random(unsigned char out[16])
{
    static unsigned char pool[1024];
    static size_t left;

    if (left == 0) {
        for (size_t at = 0; at < sizeof(pool);) {
            ssize_t n = getrandom(pool + at, sizeof(pool) - at, 0);

            if (n > 0)
                at += (size_t)n; /* an interrupted call is made again */
        }
        left = sizeof(pool);
    }
    left -= 16;
    memcpy(out, pool + left, 16);
}

size_t headers_request_id(struct slice from_client, char out[HEADERS_REQUEST_ID_MAX + 1])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char bytes[16];
    char *at = out;

    if (headers_request_id_ok(from_client)) {
        memcpy(out, from_client.p, from_client.n);
        out[from_client.n] = '\0';
        return from_client.n;
    }
    headers_random(bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40; /* version 4, RFC 9562 */
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = hex[bytes[i] >> 4];
        *at++ = hex[bytes[i] & 15];
    }
    *at = '\0';
    return (size_t)(at - out);
}

/* ---- writing ---- */

static char *headers_put(char *at, struct slice s)
{
    if (s.n > 0)
        memcpy(at, s.p, s.n);
    return at + s.n;
}

#define HEADERS_PUT(at, literal) headers_put((at), SLICE(literal))

static char *headers_put_number(char *at, uint64_t n)
{
    char digits[20];
    size_t i = sizeof(digits);

    do
        digits[--i] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    return headers_put(at, (struct slice){digits + i, sizeof(digits) - i});
}

static char *headers_put_length(char *at, uint64_t n)
{
    at = HEADERS_PUT(at, "Content-Length: ");
    at = headers_put_number(at, n);
    return HEADERS_PUT(at, "\r\n");
}

static char *headers_put_request_id(char *at, struct slice id)
{
    if (id.n == 0)
        return at;
    at = HEADERS_PUT(at, "X-Request-ID: ");
    at = headers_put(at, id);
    return HEADERS_PUT(at, "\r\n");
}

#define HEADERS_BIT(id) (UINT32_C(1) << (id))

_Static_assert(HEADER_COUNT <= 32, "a set of fields is one 32-bit word");

/* What concerns one connection (RFC 9110 7.6.1), and what is always written anew. */
#define HEADERS_NOT_RELAYED                                                                                  \
    (HEADERS_BIT(HEADER_CONNECTION) | HEADERS_BIT(HEADER_KEEP_ALIVE) |                                       \
     HEADERS_BIT(HEADER_PROXY_CONNECTION) | HEADERS_BIT(HEADER_PROXY_AUTHENTICATE) |                         \
     HEADERS_BIT(HEADER_PROXY_AUTHORIZATION) | HEADERS_BIT(HEADER_TE) | HEADERS_BIT(HEADER_TRAILER) |        \
     HEADERS_BIT(HEADER_TRANSFER_ENCODING) | HEADERS_BIT(HEADER_UPGRADE) |                                   \
     HEADERS_BIT(HEADER_HTTP2_SETTINGS) | HEADERS_BIT(HEADER_CONTENT_LENGTH) |                               \
     HEADERS_BIT(HEADER_X_REQUEST_ID))

static bool headers_list_has(struct slice list, struct slice name)
{
    while (list.p != NULL) {
        if (slice_ieq(slice_trim(slice_cut(&list, ',')), name))
            return true;
    }
    return false;
}

/* A Connection field that names more than "close" and "keep-alive". */
static bool headers_names_fields(struct slice list)
{
    while (list.p != NULL) {
        struct slice token = slice_trim(slice_cut(&list, ','));

        if (token.n > 0 && !slice_ieq(token, SLICE("close")) && !slice_ieq(token, SLICE("keep-alive")))
            return true;
    }
    return false;
}

/* Whether any Connection field of the head names other fields. */
static bool headers_connection_names(const struct http1_head *head)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        if (head->fields[i].id == HEADER_CONNECTION &&
            headers_names_fields(http1_value(head, &head->fields[i])))
            return true;
    }
    return false;
}

static bool headers_is_named(const struct http1_head *head, struct slice name)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        if (head->fields[i].id == HEADER_CONNECTION &&
            headers_list_has(http1_value(head, &head->fields[i]), name))
            return true;
    }
    return false;
}

/* Copies the fields that stay: those not in the set `drop` and not named in Connection. Lines that stand
 * together are copied together; http1 made sure that a line ends where the next field starts. */
static char *headers_put_fields(char *at, const struct http1_head *head, uint32_t drop)
{
    bool names = headers_connection_names(head);
    size_t run = 0, run_n = 0; /* the lines to be copied */

    for (size_t i = 0; i < head->n_fields; i++) {
        const struct http1_field *f = &head->fields[i];
        size_t end = i + 1 < head->n_fields ? f[1].name : head->bytes - 2;

        if ((drop >> f->id & 1) == 0 && !(names && headers_is_named(head, http1_name(head, f)))) {
            run = run_n == 0 ? f->name : run;
            run_n = end - run;
            continue;
        }
        at = headers_put(at, (struct slice){head->base + run, run_n});
        run_n = 0;
    }
    return headers_put(at, (struct slice){head->base + run, run_n});
}

/* ---- requests ---- */

/* An absolute-form target without scheme and authority; the result may start with '?'. */
static struct slice headers_origin(struct slice target)
{
    const char *scheme = target.n > 0 && target.p[0] != '/' ? memmem(target.p, target.n, "://", 3) : NULL;
    size_t at;

    if (scheme == NULL)
        return target;
    for (at = (size_t)(scheme - target.p) + 3; at < target.n && target.p[at] != '/' && target.p[at] != '?';)
        at++;
    return (struct slice){target.p + at, target.n - at};
}

struct slice headers_path(struct slice target)
{
    struct slice path = headers_origin(target);

    path = slice_cut(&path, '?');
    return path.n > 0 ? path : SLICE("/");
}

struct slice headers_field(struct slice fields, struct slice name)
{
    while (fields.p != NULL) {
        struct slice value = slice_cut(&fields, '\n');

        if (value.n > name.n && value.p[name.n] == ':' && slice_ieq(slice_cut(&value, ':'), name))
            return slice_trim((struct slice){value.p, value.n - 1}); /* without the CR */
    }
    return (struct slice){NULL, 0};
}

static char *headers_put_request_line(char *at, const struct http1_head *head)
{
    struct slice target = headers_origin(http1_target(head));

    at = headers_put(at, http1_method(head));
    *at++ = ' ';
    if (target.n == 0 || target.p[0] == '?')
        *at++ = '/';
    at = headers_put(at, target);
    return HEADERS_PUT(at, " HTTP/1.1\r\n");
}

/* All that the client's own fields say, in order, then the client. */
static char *headers_put_forwarded_for(char *at, const struct headers_request *r)
{
    at = HEADERS_PUT(at, "X-Forwarded-For: ");
    for (size_t i = 0; i < r->head->n_fields; i++) {
        const struct http1_field *f = &r->head->fields[i];

        if (f->id == HEADER_X_FORWARDED_FOR && f->value_n > 0) {
            at = headers_put(at, http1_value(r->head, f));
            at = HEADERS_PUT(at, ", ");
        }
    }
    at = headers_put(at, r->peer_ip);
    return HEADERS_PUT(at, "\r\n");
}

static char *headers_put_forwarded_proto(char *at, const struct headers_request *r)
{
    struct slice proto = http1_find(r->head, HEADER_X_FORWARDED_PROTO);

    at = HEADERS_PUT(at, "X-Forwarded-Proto: ");
    at = headers_put(at, proto.n > 0 ? proto : slice_of(r->proto));
    return HEADERS_PUT(at, "\r\n");
}

bool headers_request_block(struct buf *out, const struct headers_request *r, size_t *line_bytes)
{
    static const uint32_t drop = HEADERS_NOT_RELAYED | HEADERS_BIT(HEADER_HOST) | HEADERS_BIT(HEADER_EXPECT) |
                                 HEADERS_BIT(HEADER_X_FORWARDED_FOR) | HEADERS_BIT(HEADER_X_FORWARDED_PROTO);
    char *start, *at;

    assert(r->request_id.n <= HEADERS_REQUEST_ID_MAX && r->peer_ip.n <= 64 && strlen(r->proto) <= 5);
    start = at = buf_reserve(out, r->head->bytes + HEADERS_EXTRA_BYTES);
    if (start == NULL)
        return false;
    at = headers_put_request_line(at, r->head);
    *line_bytes = (size_t)(at - start);
    at = headers_put_fields(at, r->head, drop);
    at = headers_put_request_id(at, r->request_id);
    at = headers_put_forwarded_for(at, r);
    at = headers_put_forwarded_proto(at, r);
    at = HEADERS_PUT(at, "\r\n");
    buf_commit(out, (size_t)(at - start));
    return true;
}

size_t headers_pod_fields(char out[HEADERS_POD_FIELDS_MAX], struct slice authority, int64_t content_length)
{
    char *at = out;

    assert(authority.n <= 300);
    at = HEADERS_PUT(at, "Host: ");
    at = headers_put(at, authority);
    at = HEADERS_PUT(at, "\r\n");
    if (content_length >= 0)
        at = headers_put_length(at, (uint64_t)content_length);
    return (size_t)(at - out);
}

/* ---- answers ---- */

bool headers_is_event_stream(struct slice content_type)
{
    return slice_ieq(slice_trim(slice_cut(&content_type, ';')), SLICE("text/event-stream"));
}

/* HTTP/1.1 connections live on unless told; HTTP/1.0 connections end unless told. */
static char *headers_put_connection(char *at, bool keep_alive, unsigned client_minor)
{
    if (!keep_alive)
        return HEADERS_PUT(at, "Connection: close\r\n");
    return client_minor == 0 ? HEADERS_PUT(at, "Connection: keep-alive\r\n") : at;
}

static char *headers_put_framing(char *at, const struct headers_response *r)
{
    unsigned status = r->head->status;

    switch (r->framing) {
    case HTTP1_SIZED:
        return headers_put_length(at, r->content_length);
    case HTTP1_CHUNKED:
        assert(r->client_minor > 0);
        return HEADERS_PUT(at, "Transfer-Encoding: chunked\r\n");
    case HTTP1_NO_BODY:
        return r->has_length && status >= 200 && status != 204 ? headers_put_length(at, r->content_length)
                                                               : at;
    default:
        return at;
    }
}

static char *headers_put_status_line(char *at, const struct http1_head *head)
{
    at = HEADERS_PUT(at, "HTTP/1.1 ");
    at = headers_put_number(at, head->status);
    *at++ = ' ';
    at = headers_put(at, (struct slice){head->base + head->reason, head->reason_n});
    return HEADERS_PUT(at, "\r\n");
}

bool headers_response_block(struct buf *out, const struct headers_response *r)
{
    char *start, *at;

    assert(r->request_id.n <= HEADERS_REQUEST_ID_MAX);
    start = at = buf_reserve(out, r->head->bytes + HEADERS_EXTRA_BYTES);
    if (start == NULL)
        return false;
    at = headers_put_status_line(at, r->head);
    at = headers_put_fields(at, r->head, HEADERS_NOT_RELAYED);
    at = headers_put_framing(at, r);
    at = headers_put_connection(at, r->keep_alive && r->framing != HTTP1_UNTIL_CLOSE, r->client_minor);
    at = headers_put_request_id(at, r->request_id);
    if (headers_is_event_stream(http1_find(r->head, HEADER_CONTENT_TYPE)) &&
        http1_find(r->head, HEADER_X_ACCEL_BUFFERING).p == NULL)
        at = HEADERS_PUT(at, "X-Accel-Buffering: no\r\n");
    at = HEADERS_PUT(at, "\r\n");
    buf_commit(out, (size_t)(at - start));
    return true;
}

bool headers_own_block(struct buf *out, unsigned status, const char *content_type, size_t content_length,
                       bool keep_alive, unsigned client_minor, struct slice request_id, const char *extra)
{
    struct slice type = slice_of(content_type), reason = slice_of(headers_reason(status)),
                 more = slice_of(extra);
    char *start, *at;

    assert(request_id.n <= HEADERS_REQUEST_ID_MAX);
    start = at = buf_reserve(out, type.n + more.n + HEADERS_EXTRA_BYTES);
    if (start == NULL)
        return false;
    at = HEADERS_PUT(at, "HTTP/1.1 ");
    at = headers_put_number(at, status);
    *at++ = ' ';
    at = headers_put(at, reason);
    at = HEADERS_PUT(at, "\r\n");
    if (type.n > 0) {
        at = HEADERS_PUT(at, "Content-Type: ");
        at = headers_put(at, type);
        at = HEADERS_PUT(at, "\r\n");
    }
    at = headers_put_length(at, content_length);
    at = headers_put_connection(at, keep_alive, client_minor);
    at = headers_put_request_id(at, request_id);
    at = headers_put(at, more);
    at = HEADERS_PUT(at, "\r\n");
    buf_commit(out, (size_t)(at - start));
    return true;
}

const char *headers_reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *reason;
    } reasons[] = {
        {100, "Continue"},
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
    };

    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        if (reasons[i].status == status)
            return reasons[i].reason;
    }
    return "Unknown";
}
