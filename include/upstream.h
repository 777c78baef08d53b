/* upstream: one pod's connections: a LIFO pool of idle keep-alive connections, connecting, sending a request,
 * reading its answer. It decides nothing about retries; it says precisely what went wrong (upstream_failure).
 */
#ifndef UPSTREAM_H
#define UPSTREAM_H

#include "conn.h"
#include "http1.h"
#include "pod.h"

#define UPSTREAM_SPANS_MAX   64
#define UPSTREAM_MAX_INTERIM 8 /* 1xx heads before an answer; a pod that sends more is broken */

/* The pod's address and connections; belongs to the pod (pod->upstream). */
struct upstream {
    struct loop *loop;
    struct pod *pod;
    struct sockaddr_storage address;
    socklen_t address_bytes; /* 0 = not resolved yet */
    char *tls_name;          /* https, and the name in the pod's certificate; NULL = plain */
    struct list idle;        /* front = used most recently */
    size_t n_idle;
};

/* Shared by all; may change on reload. <= 0 = none, but for connect. */
struct upstream_rules {
    int64_t connect_timeout_us, body_timeout_us, keepalive_us;
    size_t max_head_bytes;   /* of an answer */
    struct tls_context *tls; /* for pods with a tls_name; NULL = there are none */
    size_t max_open;  /* connections to all pods together: at this, an idle one makes room for a new one */
    size_t n_open;    /* now */
    struct list idle; /* upstream_conn.by_age of all pods, idle longest first */
};

enum upstream_failure {
    UPSTREAM_CONNECT,      /* no connection within the limit, or refused; nothing was sent */
    UPSTREAM_STALE,        /* a reused connection died before the first byte of the answer */
    UPSTREAM_RESET,        /* died before the answer was complete */
    UPSTREAM_PROTOCOL,     /* the answer is not acceptable HTTP/1.x; `why` says what */
    UPSTREAM_HEAD_TIMEOUT, /* no complete head in time */
    UPSTREAM_BODY_TIMEOUT  /* silence between bytes of the body */
};

struct upstream_conn;

/* One read's worth of an answer. */
struct upstream_data {
    const struct http1_head *head; /* set once, with the first part of the answer; valid during the call */
    const struct slice *spans;     /* content, framing removed; valid during the call */
    unsigned n_spans;
    struct slice framed; /* the spans with their framing, when they were whole chunks in the usual form, which
                            can go on as they are; else {NULL, 0} */
    bool end;            /* the answer is complete: the connection is gone from the caller's hands */
};

/* Called with the `arg` of the request. */
struct upstream_ops {
    /* A new connection stands (not called for a reused one). */
    void (*connected)(void *arg);
    /* The pod has taken the whole request, which had to wait. */
    void (*sent)(void *arg);
    void (*data)(void *arg, const struct upstream_data *d);
    /* The connection is closed and gone from the caller's hands. why: a text that lives long enough to be
     * logged. */
    void (*failed)(void *arg, enum upstream_failure f, const char *why);
};

struct upstream_conn {
    struct loop_grave grave;
    struct conn conn;
    struct upstream *up;
    struct list by_age; /* in rules->idle while idle */
    struct list link;   /* in up->idle while idle */
    struct wheel_timer timer;
    const struct upstream_ops *ops; /* NULL while idle */
    void *arg;
    struct upstream_rules *rules;
    int64_t head_timeout_us; /* of the current request; <= 0 = none */
    struct http1 http;
    struct http1_head *head; /* while the answer's head is read */
    struct buf in;           /* an unfinished head */
    int connect_error;       /* errno of a connect that failed at once */
    bool reused;             /* it has served an earlier request */
    bool got_bytes;          /* of the current answer */
    bool got_head;
    unsigned interim;  /* 1xx heads so far */
    bool answer_keeps; /* the answer allows reuse */
    bool send_broken;  /* the pod took only a part of the request: its answer may still come */
    bool head_request;
};

/* Makes and frees pod->upstream. Freeing closes idle connections; busy ones must be gone. */
struct upstream *upstream_new(struct loop *l, struct pod *pod);
void upstream_free(struct upstream *up);
/* A new address applies to new connections; idle ones to another address are closed. */
void upstream_set_address(struct upstream *up, const struct sockaddr *a, socklen_t n);
/* The same for https; NULL = plain. The name is copied. */
void upstream_set_tls(struct upstream *up, const char *name);
void upstream_close_idle(struct upstream *up);

struct upstream_request {
    /* The request's bytes, at most CONN_BORROWED_MAX parts; valid until the request ends. The array itself is
     * used up. */
    struct iovec *iov;
    unsigned n_iov;
    bool fresh; /* do not reuse a connection (a stale one died under this request) */
    bool head_request;
    int64_t head_timeout_us; /* sent to answer's head; <= 0 = none */
    struct upstream_rules *rules;
    const struct upstream_ops *ops;
    void *arg;
};
/* Starts the request; ops are called later, never inside. NULL: no socket could be made (errno); nothing was
 * started. */
struct upstream_conn *upstream_send(struct upstream *up, const struct upstream_request *r);
/* Back-pressure: stop and go on reading the answer. */
void upstream_pause(struct upstream_conn *u, bool paused);
/* The request is not wanted any more: closes the connection at once (the engine stops when it sees that). No
 * call back. */
void upstream_cancel(struct upstream_conn *u);

#endif
