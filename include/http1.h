/* http1: bytes -> one HTTP/1.x message: head, body spans, end; strict, with limits. It owns no socket and
 * copies no bytes: everything it returns points into what it was fed. The rules are those of RFC 9112; where
 * that leaves a choice, the one that two servers cannot understand differently. */
#ifndef HTTP1_H
#define HTTP1_H

#include <sys/types.h>

#include "util.h"

#define HTTP1_MAX_FIELDS 128
/* Chunk extensions and trailers of one message together; both are dropped. */
#define HTTP1_MAX_EXTRA_BYTES 8192

enum http1_kind { HTTP1_REQUEST, HTTP1_RESPONSE };
enum http1_framing { HTTP1_NO_BODY, HTTP1_SIZED, HTTP1_CHUNKED, HTTP1_UNTIL_CLOSE };
enum http1_error {
    HTTP1_OK,
    HTTP1_BAD,             /* not HTTP/1.0 or 1.1, ambiguous framing, control bytes, ...: 400 or 502 */
    HTTP1_HEAD_TOO_LARGE,  /* over max_head_bytes or HTTP1_MAX_FIELDS: 431 */
    HTTP1_TARGET_TOO_LONG, /* the request line alone is over max_head_bytes: 414 */
    HTTP1_VERSION,         /* another HTTP version (HTTP/2 preface, HTTP/0.9, HTTP/2.0): 400 */
    HTTP1_UNSUPPORTED      /* CONNECT, TRACE, unusual methods, Transfer-Encoding other than chunked: 400 */
};

/* The fields that the router itself looks at or removes; everything else is HEADER_OTHER (headers.c has the
 * names). */
enum header_id {
    HEADER_OTHER,
    HEADER_HOST,
    HEADER_CONNECTION,
    HEADER_KEEP_ALIVE,
    HEADER_PROXY_CONNECTION,
    HEADER_PROXY_AUTHENTICATE,
    HEADER_PROXY_AUTHORIZATION,
    HEADER_TE,
    HEADER_TRAILER,
    HEADER_TRANSFER_ENCODING,
    HEADER_UPGRADE,
    HEADER_CONTENT_LENGTH,
    HEADER_CONTENT_TYPE,
    HEADER_CONTENT_ENCODING,
    HEADER_EXPECT,
    HEADER_X_REQUEST_ID,
    HEADER_X_FORWARDED_FOR,
    HEADER_X_FORWARDED_PROTO,
    HEADER_X_ACCEL_BUFFERING,
    HEADER_HTTP2_SETTINGS,
    HEADER_ACCEPT_ENCODING,
    HEADER_COUNT
};
_Static_assert(HEADER_COUNT <= 32, "a set of fields is one 32-bit word");

/* One field; offsets from the first byte of the head. The value is without surrounding white space. */
struct http1_field {
    uint32_t name, value, value_n;
    uint16_t name_n;
    uint8_t id; /* enum header_id */
};

/* What a head says. About 2 KiB: made for the time a head is read and used, not kept by idle connections. */
struct http1_head {
    const char *base;  /* the head's bytes; set again by http1_head on every call */
    size_t bytes;      /* its length with the final CRLF CRLF */
    uint32_t method_n; /* a request's method starts at base */
    uint32_t target, target_n;
    unsigned status; /* of a response */
    uint32_t reason, reason_n;
    unsigned minor;  /* HTTP/1.minor */
    bool keep_alive; /* this side lets the connection live on (version, Connection) */
    bool expect_continue;
    enum http1_framing framing; /* of the body that follows, from method/status and fields */
    /* The Content-Length field, also when no body follows (HEAD, 304); 0 without one. */
    uint64_t content_length;
    uint32_t has, repeats; /* bit `enum header_id`: the fields it has, and has more than once */
    bool names_fields;     /* Connection has more in it than "close" and "keep-alive" */
    size_t n_fields;
    uint8_t first[HEADER_COUNT]; /* where in fields the first one of that id is, if it has one */
    struct http1_field fields[HTTP1_MAX_FIELDS];
};

/* A few heads are kept for the next message: each is used for a moment only. The contents are not
 * initialised. */
MUST_CHECK struct http1_head *http1_head_new(void);
/* NULL is allowed. */
void http1_head_free(struct http1_head *h);

/* Small: each open stream has two. */
struct http1 {
    struct http1_head *head; /* while the head is being read; borrowed */
    size_t parsed;           /* bytes of the head that were checked */
    size_t line;             /* where the line of the head that holds them starts */
    uint64_t remaining;      /* of a sized body, or of the chunk */
    uint32_t max_head_bytes;
    enum http1_kind kind : 8;
    enum http1_framing framing : 8;
    enum http1_error error : 8;
    uint8_t chunk_state;  /* private */
    uint8_t chunk_digits; /* private */
    bool head_request;    /* the response answers HEAD */
    uint16_t extra_bytes; /* of chunk extensions and trailers so far */
    bool head_complete;
    bool whole; /* the last run of content was one chunk, whole and in the usual form: size line, content,
                   CRLF */
    bool done;  /* the message is complete; feed nothing more, call http1_start again */
    const char *reason; /* static; what was wrong and what was expected */
};

/* Before each message. head_request: the response belongs to a HEAD request (no body whatever it says). */
void http1_start(struct http1 *h, enum http1_kind kind, struct http1_head *head, size_t max_head_bytes,
                 bool head_request);
/* base[0..have) holds the head from its first byte on (the caller keeps it contiguous; it may move between
 * calls). Only bytes not seen yet are scanned. Returns the head's length when it is complete, 0 = more bytes
 * needed, -1 = error; how the bytes were split between calls makes no difference. Leading CRLFs before a
 * request line are skipped by http1_skip_blank (before each call until the first other byte), not here. 1xx
 * responses are complete messages without a body (done is set); 101 is an error. After a complete head
 * without body `done` is true; "Content-Length: 0" is HTTP1_SIZED and done. */
ssize_t http1_head(struct http1 *h, const char *base, size_t have);
/* Body bytes: consumes up to n bytes and gives at most one run of content in *span (span->n may be 0).
 * Returns the bytes consumed, -1 = error. Call until everything is consumed or h->done; bytes behind the end
 * are not consumed. Bytes of content that stand before an error are given first. */
ssize_t http1_body(struct http1 *h, const char *data, size_t n, struct slice *span);
/* The other side closed: true when the message is whole (UNTIL_CLOSE framing becomes done), false when it was
 * cut. */
bool http1_eof(struct http1 *h);
/* How many bytes of CRLF stand before a request line (RFC 9112 2.2; at most a few are tolerated). */
size_t http1_skip_blank(const char *data, size_t n);

static inline struct slice http1_name(const struct http1_head *h, const struct http1_field *f)
{
    return (struct slice){h->base + f->name, f->name_n};
}
static inline struct slice http1_value(const struct http1_head *h, const struct http1_field *f)
{
    return (struct slice){h->base + f->value, f->value_n};
}
static inline struct slice http1_method(const struct http1_head *h)
{
    return (struct slice){h->base, h->method_n};
}
static inline struct slice http1_target(const struct http1_head *h)
{
    return (struct slice){h->base + h->target, h->target_n};
}
static inline bool http1_has(const struct http1_head *h, enum header_id id)
{
    return (h->has >> id & 1) != 0;
}
/* The value of the first field of that id, or {NULL, 0}. */
static inline struct slice http1_find(const struct http1_head *h, enum header_id id)
{
    return http1_has(h, id) ? http1_value(h, &h->fields[h->first[id]]) : (struct slice){NULL, 0};
}
/* The first field of that name (any case), or {NULL, 0}. */
struct slice http1_find_name(const struct http1_head *h, struct slice name);

#endif
