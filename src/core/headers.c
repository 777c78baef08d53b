/* headers: the heads that leave the router. A head is written in one piece: room for the longest possible
 * result is reserved first, and runs of fields that stay are copied as they came. Which connection a head
 * goes to, and what body follows, is decided by the caller. */
#include "headers.h"
#include "cors.h"
#include "mem.h"
#include "text.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <sys/random.h>

/* ---- names ---- */

/* Equal but for case. `lower` has only lower-case letters, digits and hyphens, and the other side is a token,
 * so that one bit makes the difference. */
static bool headers_is8(const char *name, const char *lower)
{
    uint64_t a, b;

    memcpy(&a, name, sizeof(a));
    memcpy(&b, lower, sizeof(b));
    return (a | UINT64_C(0x2020202020202020)) == b;
}

static bool headers_is4(const char *name, const char *lower)
{
    uint32_t a, b;

    memcpy(&a, name, sizeof(a));
    memcpy(&b, lower, sizeof(b));
    return (a | UINT32_C(0x20202020)) == b;
}

/* Names have 2 to 24 bytes. The last step overlaps the one before. */
static bool headers_is(const char *name, const char *lower, size_t n)
{
    if (n >= 8)
        return headers_is8(name, lower) && headers_is8(name + n - 8, lower + n - 8) &&
               (n <= 16 || headers_is8(name + 8, lower + 8));
    if (n >= 4)
        return headers_is4(name, lower) && headers_is4(name + n - 4, lower + n - 4);
    return n == 2 && (name[0] | 0x20) == lower[0] && (name[1] | 0x20) == lower[1];
}

/* The known names stand where length, first and last letter put them, in either case: the bit that makes the
 * difference falls out. The compiler refuses two at one place. */
#define HEADERS_PLACE(n, first, last)          (((n) + 2U * ((first) + 2U * (9U * (last)))) % 64)
#define HEADERS_NAME(id, name, n, first, last) [HEADERS_PLACE(n, first, last)] = {name, n, id}

static const struct {
    char name[30];
    uint8_t n, id;
} headers_names[64] = {
    HEADERS_NAME(HEADER_TE, "te", 2, 't', 'e'),
    HEADERS_NAME(HEADER_HOST, "host", 4, 'h', 't'),
    HEADERS_NAME(HEADER_EXPECT, "expect", 6, 'e', 't'),
    HEADERS_NAME(HEADER_TRAILER, "trailer", 7, 't', 'r'),
    HEADERS_NAME(HEADER_UPGRADE, "upgrade", 7, 'u', 'e'),
    HEADERS_NAME(HEADER_CONNECTION, "connection", 10, 'c', 'n'),
    HEADERS_NAME(HEADER_KEEP_ALIVE, "keep-alive", 10, 'k', 'e'),
    HEADERS_NAME(HEADER_CONTENT_TYPE, "content-type", 12, 'c', 'e'),
    HEADERS_NAME(HEADER_X_REQUEST_ID, "x-request-id", 12, 'x', 'd'),
    HEADERS_NAME(HEADER_CONTENT_LENGTH, "content-length", 14, 'c', 'h'),
    HEADERS_NAME(HEADER_HTTP2_SETTINGS, "http2-settings", 14, 'h', 's'),
    HEADERS_NAME(HEADER_ACCEPT_ENCODING, "accept-encoding", 15, 'a', 'g'),
    HEADERS_NAME(HEADER_X_FORWARDED_FOR, "x-forwarded-for", 15, 'x', 'r'),
    HEADERS_NAME(HEADER_PROXY_CONNECTION, "proxy-connection", 16, 'p', 'n'),
    HEADERS_NAME(HEADER_CONTENT_ENCODING, "content-encoding", 16, 'c', 'g'),
    HEADERS_NAME(HEADER_TRANSFER_ENCODING, "transfer-encoding", 17, 't', 'g'),
    HEADERS_NAME(HEADER_X_FORWARDED_PROTO, "x-forwarded-proto", 17, 'x', 'o'),
    HEADERS_NAME(HEADER_X_ACCEL_BUFFERING, "x-accel-buffering", 17, 'x', 'g'),
    HEADERS_NAME(HEADER_PROXY_AUTHENTICATE, "proxy-authenticate", 18, 'p', 'e'),
    HEADERS_NAME(HEADER_PROXY_AUTHORIZATION, "proxy-authorization", 19, 'p', 'n'),
};

enum header_id headers_id(struct slice name)
{
    const size_t place = HEADERS_PLACE(name.n, (unsigned char)name.p[0], (unsigned char)name.p[name.n - 1]);

    if (headers_names[place].n != name.n || !headers_is(name.p, headers_names[place].name, name.n))
        return HEADER_OTHER;
    return (enum header_id)headers_names[place].id;
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

/* Hexadecimal digits of sixteen numbers below 16, each in one step for all. */
typedef unsigned char headers_16 __attribute__((vector_size(16)));

static headers_16 headers_hex(headers_16 numbers)
{
    return numbers + '0' + ((headers_16)(numbers > 9) & ('a' - '0' - 10));
}

/* A new UUID of version 4 (RFC 9562). Which digit a random bit goes into is of no interest. */
static size_t headers_uuid(char out[HEADERS_REQUEST_ID_MAX + 1])
{
    unsigned char bytes[16];
    char digits[32];
    headers_16 all, lower, upper;

    headers_random(bytes);
    bytes[12] = (bytes[12] & 0xf0) | 0x04; /* the version, digit 12 */
    bytes[0] = (bytes[0] & 0x3f) | 0x80;   /* the variant, digit 16 */
    memcpy(&all, bytes, sizeof(all));
    lower = headers_hex(all & 0x0f);
    upper = headers_hex(all >> 4);
    memcpy(digits, &lower, sizeof(lower));
    memcpy(digits + 16, &upper, sizeof(upper));
    memcpy(out, digits, 8);
    memcpy(out + 9, digits + 8, 4);
    memcpy(out + 14, digits + 12, 4);
    memcpy(out + 19, digits + 16, 4);
    memcpy(out + 24, digits + 20, 12);
    out[8] = out[13] = out[18] = out[23] = '-';
    out[36] = '\0';
    return 36;
}

size_t headers_request_id(struct slice from_client, char out[HEADERS_REQUEST_ID_MAX + 1])
{
    if (!headers_request_id_ok(from_client))
        return headers_uuid(out);
    memcpy(out, from_client.p, from_client.n);
    out[from_client.n] = '\0';
    return from_client.n;
}

/* ---- writing ---- */

/* n is at most INT64_MAX. */
static char *headers_put_length(char *at, uint64_t n)
{
    at = text_add(at, SLICE("Content-Length: "));
    at = text_add_int(at, (int64_t)n);
    return text_add(at, SLICE("\r\n"));
}

/* before: the field's name with ": ". */
static char *headers_put_line(char *at, struct slice before, struct slice value)
{
    at = text_add(at, before);
    at = text_add(at, value);
    return text_add(at, SLICE("\r\n"));
}

static char *headers_put_request_id(char *at, struct slice id)
{
    return id.n == 0 ? at : headers_put_line(at, SLICE("X-Request-ID: "), id);
}

#define HEADERS_BIT(id) (UINT32_C(1) << (id))

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

static bool headers_is_named(const struct http1_head *head, struct slice name)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        if (head->fields[i].id == HEADER_CONNECTION &&
            headers_list_has(http1_value(head, &head->fields[i]), name))
            return true;
    }
    return false;
}

static bool headers_is_cors(struct slice name)
{
    return name.n > 15 && slice_ieq((struct slice){name.p, 15}, SLICE("access-control-"));
}

/* A field that its id alone does not tell to drop. */
static bool headers_is_dropped(const struct http1_head *head, const struct http1_field *f, bool drop_cors)
{
    const struct slice name = http1_name(head, f);

    return (drop_cors && headers_is_cors(name)) || (head->names_fields && headers_is_named(head, name));
}

/* Copies the fields that stay: those not in the set `drop`, not named in Connection and, if wanted, not of
 * CORS. Lines that stand together are copied together; http1 made sure that a line ends where the next field
 * starts. */
static char *headers_put_fields(char *at, const struct http1_head *head, uint32_t drop, bool drop_cors)
{
    const bool look = head->names_fields || drop_cors;
    const size_t end = head->bytes - 2;
    size_t run = head->n_fields > 0 ? head->fields[0].name : end; /* where the lines to be copied start */

    for (const struct http1_field *f = head->fields, *last = f + head->n_fields; f < last; f++) {
        if ((drop >> f->id & 1) == 0 && !(look && headers_is_dropped(head, f, drop_cors)))
            continue;
        at = text_add(at, (struct slice){head->base + run, f->name - run});
        run = f + 1 < last ? f[1].name : end;
    }
    return text_add(at, (struct slice){head->base + run, end - run});
}

/* ---- requests ---- */

/* An absolute-form target without scheme and authority; the result may start with '?'. */
static __attribute__((noinline)) struct slice headers_cut_authority(struct slice target)
{
    const char *scheme = memmem(target.p, target.n, "://", 3);
    size_t at;

    if (scheme == NULL)
        return target;
    for (at = (size_t)(scheme - target.p) + 3; at < target.n && target.p[at] != '/' && target.p[at] != '?';)
        at++;
    return (struct slice){target.p + at, target.n - at};
}

/* The same, and a target that is a path already, as nearly all are. */
static struct slice headers_origin(struct slice target)
{
    return target.n == 0 || target.p[0] == '/' ? target : headers_cut_authority(target);
}

struct slice headers_path(struct slice target)
{
    struct slice path = headers_origin(target);

    path = slice_cut(&path, '?');
    return path.n > 0 ? path : SLICE("/");
}

bool headers_is_name(struct slice text)
{
    for (size_t i = 0; i < text.n; i++) {
        if (!isalnum((unsigned char)text.p[i]) &&
            (text.p[i] == '\0' || strchr("!#$%&'*+-.^_`|~", text.p[i]) == NULL))
            return false;
    }
    return text.n > 0;
}

struct slice headers_next_field(struct slice *fields, struct slice name)
{
    while (fields->p != NULL) {
        struct slice value = slice_cut(fields, '\n');

        if (value.n > name.n && value.p[name.n] == ':' && slice_ieq(slice_cut(&value, ':'), name))
            return slice_trim((struct slice){value.p, value.n - 1}); /* without the CR */
    }
    return (struct slice){NULL, 0};
}

struct slice headers_field(struct slice fields, struct slice name)
{
    return headers_next_field(&fields, name);
}

static char *headers_put_request_line(char *at, const struct http1_head *head)
{
    struct slice target = headers_origin(http1_target(head));

    at = text_add(at, http1_method(head));
    *at++ = ' ';
    if (target.n == 0 || target.p[0] == '?')
        *at++ = '/';
    at = text_add(at, target);
    return text_add(at, SLICE(" HTTP/1.1\r\n"));
}

/* All that the client's own fields say, in order, then the client. */
static char *headers_put_forwarded_for(char *at, const struct headers_request *r)
{
    at = text_add(at, SLICE("X-Forwarded-For: "));
    for (size_t i = 0; http1_has(r->head, HEADER_X_FORWARDED_FOR) && i < r->head->n_fields; i++) {
        const struct http1_field *f = &r->head->fields[i];

        if (f->id == HEADER_X_FORWARDED_FOR && f->value_n > 0) {
            at = text_add(at, http1_value(r->head, f));
            at = text_add(at, SLICE(", "));
        }
    }
    at = text_add(at, r->peer_ip);
    return text_add(at, SLICE("\r\n"));
}

static char *headers_put_forwarded_proto(char *at, const struct headers_request *r)
{
    struct slice proto = http1_find(r->head, HEADER_X_FORWARDED_PROTO);

    at = text_add(at, SLICE("X-Forwarded-Proto: "));
    at = text_add(at, proto.n > 0 ? proto : r->proto);
    return text_add(at, SLICE("\r\n"));
}

bool headers_request_block(struct buf *out, const struct headers_request *r, size_t *line_bytes)
{
    const uint32_t drop = HEADERS_NOT_RELAYED | HEADERS_BIT(HEADER_HOST) | HEADERS_BIT(HEADER_EXPECT) |
                          HEADERS_BIT(HEADER_X_FORWARDED_FOR) | HEADERS_BIT(HEADER_X_FORWARDED_PROTO) |
                          (r->readable_answer ? HEADERS_BIT(HEADER_ACCEPT_ENCODING) : 0);
    char *start, *at;

    assert(r->request_id.n <= HEADERS_REQUEST_ID_MAX && r->peer_ip.n <= 64 && r->proto.n <= 5);
    start = at = buf_reserve(out, r->head->bytes + HEADERS_EXTRA_BYTES);
    if (start == NULL)
        return false;
    at = headers_put_request_line(at, r->head);
    *line_bytes = (size_t)(at - start);
    at = headers_put_fields(at, r->head, drop, false);
    at = headers_put_request_id(at, r->request_id);
    at = headers_put_forwarded_for(at, r);
    at = headers_put_forwarded_proto(at, r);
    at = text_add(at, SLICE("\r\n"));
    buf_commit(out, (size_t)(at - start));
    return true;
}

char *headers_pod_start(const char *authority)
{
    assert(strlen(authority) <= HEADERS_AUTHORITY_MAX);
    return mem_printf("Host: %s\r\nContent-Length: ", authority);
}

size_t headers_pod_length(char out[NUMBER_TEXT_MAX], size_t n_bytes)
{
    return (size_t)(text_add(text_add_int(out, (int64_t)n_bytes), SLICE("\r\n")) - out);
}

/* ---- answers ---- */

bool headers_is_type(struct slice content_type, struct slice type)
{
    struct slice rest;

    if (content_type.n < type.n || !slice_ieq((struct slice){content_type.p, type.n}, type))
        return false;
    rest = slice_trim((struct slice){content_type.p + type.n, content_type.n - type.n});
    return rest.n == 0 || rest.p[0] == ';';
}

bool headers_is_event_stream(struct slice content_type)
{
    return headers_is_type(content_type, SLICE("text/event-stream"));
}

bool headers_is_json(struct slice content_type)
{
    const struct slice type = slice_trim(slice_cut(&content_type, ';'));

    return slice_ieq(type, SLICE("application/json")) ||
           (type.n > 5 && slice_ieq((struct slice){type.p + type.n - 5, 5}, SLICE("+json")));
}

/* HTTP/1.1 connections live on unless told; HTTP/1.0 connections end unless told. */
static char *headers_put_connection(char *at, bool keep_alive, unsigned client_minor)
{
    if (!keep_alive)
        return text_add(at, SLICE("Connection: close\r\n"));
    return client_minor == 0 ? text_add(at, SLICE("Connection: keep-alive\r\n")) : at;
}

static char *headers_put_framing(char *at, const struct headers_response *r)
{
    unsigned status = r->head->status;

    switch (r->framing) {
    case HTTP1_SIZED:
        return headers_put_length(at, r->content_length);
    case HTTP1_CHUNKED:
        assert(r->client_minor > 0);
        return text_add(at, SLICE("Transfer-Encoding: chunked\r\n"));
    case HTTP1_NO_BODY:
        return r->has_length && status >= 200 && status != 204 ? headers_put_length(at, r->content_length)
                                                               : at;
    default:
        return at;
    }
}

static bool headers_varies_by_origin(const struct http1_head *head)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        const struct slice value = http1_value(head, &head->fields[i]);

        if (slice_ieq(http1_name(head, &head->fields[i]), SLICE("vary")) &&
            (headers_list_has(value, SLICE("origin")) || headers_list_has(value, SLICE("*"))))
            return true;
    }
    return false;
}

static char *headers_put_status_line(char *at, const struct http1_head *head)
{
    at = text_add(at, SLICE("HTTP/1.1 "));
    at = text_add(at, (struct slice){head->base + sizeof("HTTP/1.1"), 3});
    *at++ = ' ';
    at = text_add(at, (struct slice){head->base + head->reason, head->reason_n});
    return text_add(at, SLICE("\r\n"));
}

bool headers_response_block(struct buf *out, const struct headers_response *r)
{
    char *start, *at;

    assert(r->request_id.n <= HEADERS_REQUEST_ID_MAX);
    start = at = buf_reserve(out, r->head->bytes + r->cors.n + HEADERS_EXTRA_BYTES);
    if (start == NULL)
        return false;
    at = headers_put_status_line(at, r->head);
    at = headers_put_fields(at, r->head, HEADERS_NOT_RELAYED, r->own_cors);
    at = headers_put_framing(at, r);
    at = headers_put_connection(at, r->keep_alive && r->framing != HTTP1_UNTIL_CLOSE, r->client_minor);
    at = headers_put_request_id(at, r->request_id);
    if (r->event_stream && !http1_has(r->head, HEADER_X_ACCEL_BUFFERING))
        at = text_add(at, SLICE("X-Accel-Buffering: no\r\n"));
    at = text_add(at, r->cors);
    if (r->own_cors && !headers_varies_by_origin(r->head))
        at = text_add(at, SLICE(CORS_VARY));
    at = text_add(at, SLICE("\r\n"));
    buf_commit(out, (size_t)(at - start));
    return true;
}

static const char *headers_reason(unsigned status)
{
    static const struct {
        unsigned status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
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

bool headers_own_block(struct buf *out, const struct headers_own *r)
{
    const struct slice type = slice_of(r->content_type), extra = slice_of(r->extra);
    char *start, *at;

    assert(r->request_id.n <= HEADERS_REQUEST_ID_MAX);
    start = at = buf_reserve(out, type.n + extra.n + HEADERS_EXTRA_BYTES);
    if (start == NULL)
        return false;
    at = text_add(at, SLICE("HTTP/1.1 "));
    at = text_add_int(at, r->status);
    at = headers_put_line(at, SLICE(" "), slice_of(headers_reason(r->status)));
    at = headers_put_line(at, SLICE("Date: "), r->date);
    if (type.n > 0)
        at = headers_put_line(at, SLICE("Content-Type: "), type);
    if (r->status != 204)
        at = headers_put_length(at, r->content_length);
    at = headers_put_connection(at, r->keep_alive, r->client_minor);
    at = headers_put_request_id(at, r->request_id);
    at = text_add(at, extra);
    at = text_add(at, SLICE("\r\n"));
    buf_commit(out, (size_t)(at - start));
    return true;
}
