/* headers: what leaves the router as a head. Removes hop-by-hop fields both ways, keeps or makes the request
 * id, adds the forwarded fields, writes exactly one framing field. Works on parsed heads; owns nothing. */
#ifndef HEADERS_H
#define HEADERS_H

#include "authority.h"
#include "buf.h"
#include "http1.h"
#include "number.h"

#define HEADERS_REQUEST_ID_MAX 128

/* True for a field's name as RFC 9110 (5.6.2) has it: letters, digits and a few marks. */
bool headers_is_name(struct slice text);

/* HEADER_OTHER for a name that is not in the table; any case. The name is a token as http1 accepts it. */
enum header_id headers_id(struct slice name);

/* The client's id if it has 1..128 visible ASCII characters without quotes, commas or spaces, else a new
 * UUIDv4. Writes a terminated string; returns its length. */
size_t headers_request_id(struct slice from_client, char out[HEADERS_REQUEST_ID_MAX + 1]);

/* The part of a request's head that is the same for every pod: appends "METHOD TARGET HTTP/1.1\r\n" (an
 * absolute-form target is reduced to its path) and returns that line's length in *line_bytes; then the
 * client's end-to-end fields in their order and spelling, without hop-by-hop fields, those named in
 * Connection, Host, Content-Length, Expect, X-Request-ID; then X-Request-ID, X-Forwarded-For (the client's
 * own list with peer_ip appended), X-Forwarded-Proto ("http", or the client's value kept), and the final
 * CRLF. What is missing in between and depends on the pod are headers_pod_start and headers_pod_length.
 * False, with nothing appended, when the buffer has no room for head->bytes + HEADERS_EXTRA_BYTES more. */
#define HEADERS_EXTRA_BYTES 320 /* request_id is at most HEADERS_REQUEST_ID_MAX bytes, peer_ip at most 64 */
struct headers_request {
    const struct http1_head *head;
    struct slice request_id, peer_ip;
    struct slice proto;   /* "http" or "https" as the client reached us */
    bool readable_answer; /* without Accept-Encoding: the router has to understand the answer */
};
MUST_CHECK bool headers_request_block(struct buf *out, const struct headers_request *r, size_t *line_bytes);
#define HEADERS_AUTHORITY_MAX (AUTHORITY_HOST_MAX + 6) /* with a colon and a port */
/* "Host: AUTHORITY\r\nContent-Length: ", the same for all requests to a pod; to be freed. */
char *headers_pod_start(const char *authority);
/* "N\r\n", of the body that follows. Returns its length. */
size_t headers_pod_length(char out[NUMBER_TEXT_MAX], size_t n_bytes);
#define HEADERS_POD_MAX (HEADERS_AUTHORITY_MAX + 64) /* of both together */

/* The head of an answer relayed to the client. */
struct headers_response {
    const struct http1_head *head; /* the pod's */
    struct slice request_id;       /* replaces the pod's own X-Request-ID */
    unsigned client_minor;         /* the client speaks HTTP/1.minor */
    bool keep_alive;               /* say that the connection stays open */
    enum http1_framing framing;    /* to the client: SIZED, CHUNKED, UNTIL_CLOSE or NO_BODY */
    /* For SIZED, and for NO_BODY answers to HEAD when the pod gave one (has_length). */
    uint64_t content_length;
    bool has_length;
    bool event_stream; /* headers_is_event_stream says so */
    bool own_cors;     /* the pod's Access-Control- fields stay out, and there is a Vary: Origin */
    struct slice cors; /* complete lines, or empty */
};
/* Status line with the pod's code and reason, its end-to-end fields in order, one framing field, Connection
 * where the version needs it, X-Request-ID, and X-Accel-Buffering: no for text/event-stream unless the pod
 * set it. CHUNKED is for HTTP/1.1 clients only; UNTIL_CLOSE always says close; 1xx and 204 never get a
 * length. False as for headers_request_block. */
MUST_CHECK bool headers_response_block(struct buf *out, const struct headers_response *r);

/* The head of an answer of our own. */
struct headers_own {
    unsigned status;
    const char *content_type; /* NULL: none */
    size_t content_length;    /* a 204 says none */
    struct slice date;        /* as clock_http_date writes it */
    struct slice request_id;  /* {NULL, 0}: none */
    unsigned client_minor;    /* as in struct headers_response */
    bool keep_alive;
    const char *extra; /* complete "Name: value\r\n" lines, or NULL */
};
/* False as for headers_request_block. */
MUST_CHECK bool headers_own_block(struct buf *out, const struct headers_own *r);
/* True for that type (in lower case) with any parameters. content_type has no blanks at its ends, as in a
 * head. */
bool headers_is_type(struct slice content_type, struct slice type);
/* The same for text/event-stream. */
bool headers_is_event_stream(struct slice content_type);
/* Value of the first field of that name (any case) among fields as headers_request_block writes them; {NULL,
 * 0}: none. */
struct slice headers_field(struct slice fields, struct slice name);
/* The same, and leaves in *fields what comes behind it; {NULL, 0} when there was no more. */
struct slice headers_next_field(struct slice *fields, struct slice name);
/* True for application/json and types that end in +json. */
bool headers_is_json(struct slice content_type);
/* Path without query of a request target; absolute form reduced. */
struct slice headers_path(struct slice target);

#endif
