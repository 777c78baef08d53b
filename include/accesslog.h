/* accesslog: one finished request -> one line, text or JSON, in the Go router's formats plus our own fields
 * (text: before the timings, JSON: at the end). Writes into a buffer; does not know where lines go. */
#ifndef ACCESSLOG_H
#define ACCESSLOG_H

#include "log.h"

#define ACCESSLOG_VALUE_MAX LOG_PLAIN_MAX /* bytes of one value; a longer one is cut and ends in "..." */
#define ACCESSLOG_LINE_MAX  (96 * 1024)   /* no line is longer, however much of it has to be escaped */

/* What the lines of all requests of a route say of it, ready to be put in. */
struct accesslog_route {
    char *bytes; /* of the slices */
    struct accesslog_route_fields {
        struct slice names;   /* model_name, model_route, model_server */
        struct slice backend; /* backend_type, backend_name, upstream_model */
    } text, json;
};

/* The backend is the model server. Begins with zeros, or is set anew. */
void accesslog_route_set(struct accesslog_route *a, const char *model_name, const char *route,
                         const char *server, const char *upstream_model);
void accesslog_route_free(struct accesslog_route *a);

struct accesslog_entry {
    int64_t wall_us;                     /* receipt of the first byte */
    const struct accesslog_route *route; /* NULL = none was found */
    struct slice model_name;             /* that no route has */
    bool plain;                          /* method, path, request_id, session and user are: log_is_plain */
    struct slice method, path;           /* path without query; client input, escaped */
    unsigned minor;                      /* of HTTP/1 */
    unsigned status;                     /* 0 = nothing was answered */
    const char *error_type;              /* outcome name, NULL = success */
    struct slice error_message;
    struct log_known selected_pod;
    struct slice request_id;
    unsigned upstream_status, upstream_attempts;
    const char *error_origin; /* "client", "router", "upstream" or NULL */
    int64_t input_tokens;     /* 0 = unknown */
    int64_t output_tokens;    /* -1 = unknown, "-" in a text line; JSON omits what is not above 0 */
    int64_t total_us, request_us, upstream_us,
        response_us;  /* request: receipt to end of body; upstream: first attempt to answer's
                         head; response: head to end */
    int64_t queue_us; /* -1 = was not queued */
    int64_t ttft_us;  /* receipt to first body byte of the answer; -1 = none */
    struct slice session, user;
    const char *sticky; /* "new", "hit", "waited", "spill", "gone" or NULL */
    bool has_queue;     /* boosted and overtaken are meaningful */
    bool boosted;
    unsigned overtaken;
    const char *closed_by;    /* "client", "pod", "router" or NULL: who cut it, with closed_phase */
    const char *closed_phase; /* state name at that moment, or NULL */
};

/* Appends one line with its '\n'. False, with nothing appended: over the buffer's maximum. No value can end
 * the line or its field: see log_put_text; in the quoted request line blanks, quotes, backslashes and all
 * but ASCII become \xNN, and an empty part becomes "-". Times below 0 (but for the -1 above) are written as
 * 0. */
MUST_CHECK bool accesslog_text(struct buf *out, const struct accesslog_entry *e);
MUST_CHECK bool accesslog_json(struct buf *out, const struct accesslog_entry *e);

#endif
