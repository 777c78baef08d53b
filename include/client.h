/* client: one downstream connection: reads requests (head, whole body, within limits and time), writes
 * answers with the right framing, keeps the connection alive, answers pipelined requests in order. What a
 * request means is the owner's business (ops). */
#ifndef CLIENT_H
#define CLIENT_H

#include "conn.h"
#include "http1.h"
#include "listen.h"
#include "outcome.h"

/* The owner stops reading from the pod while more than this waits, and goes on when nothing waits: the
 * kernel's send queue keeps a fast reader busy meanwhile. */
#define CLIENT_HIGH_BYTES (256 * 1024)
#define CLIENT_SPANS_MAX  64

enum client_state {
    CLIENT_IDLE,   /* between requests */
    CLIENT_HEAD,   /* a part of a head has arrived */
    CLIENT_BODY,   /* the owner knows the request; its body is arriving */
    CLIENT_BUSY,   /* the whole request is with the owner, who is to answer */
    CLIENT_FLUSH,  /* answered; closes when everything is written */
    CLIENT_LINGER, /* our side is shut; what still arrives is thrown away, so that the answer is not lost to a
                      reset */
    CLIENT_CLOSED
};

struct tls_context;

enum client_loss { CLIENT_LOSS_GONE, CLIENT_LOSS_STALLED };

struct client;

struct client_ops {
    /* A head arrived (c->head). True: read the body, then `request` is called (at once when there is none).
     * False: the owner has answered already (client_end was called). */
    bool (*head)(struct client *c);
    void (*request)(struct client *c);
    /* The request cannot be read further: the owner must answer with this outcome and call client_end. why is
     * a static text. */
    void (*refuse)(struct client *c, enum outcome o, const char *why);
    /* The client left, or does not read, in BODY or BUSY: the owner forgets c, which is closed after the
     * call. */
    void (*gone)(struct client *c, enum client_loss loss);
    /* Everything that waited for the client has left for the kernel. */
    void (*drained)(struct client *c);
    /* The connection is closed; c is freed at the end of the turn. */
    void (*closed)(struct client *c);
};

/* Shared by all connections of a listener; may change at any time (reload). */
struct client_rules {
    size_t max_head_bytes;
    uint64_t max_body_bytes;
    uint64_t max_held_bytes; /* of all bodies in this process */
    uint64_t held_bytes;     /* now; a body that was taken gives its bytes back with client_release_held */
    int64_t header_timeout_us, body_timeout_us, idle_timeout_us, write_timeout_us; /* <= 0 = none */
    bool closing;          /* draining: no answer says any more that its connection is kept alive */
    int64_t tls_logged_us; /* the last log line about a failed handshake */
    size_t tls_unlogged;   /* and how many failed since */
};

struct client {
    struct loop_grave grave;
    struct conn conn;
    struct list link; /* for the owner */
    struct client_rules *rules;
    const struct client_ops *ops;
    void *arg;     /* owner's, per listener */
    void *request; /* owner's, per request */
    enum client_state state : 8;
    enum http1_framing framing : 8; /* of the current answer; set by client_begin */
    uint8_t minor;                  /* HTTP/1.minor of the current request */
    uint8_t address_n;
    bool keep_alive; /* the request allows it */
    bool refused;    /* the request was not read to its end */
    bool cut;        /* an answer that ends with its connection is not whole: close with a reset */
    struct http1 http;
    /* While a head is read and during ops->head only: the owner takes what it needs. */
    struct http1_head *head;
    struct client_foreseen *foreseen;  /* while a read is used that may have begun the body in its place */
    uint32_t last_head_n, last_length; /* of the last request; length: Content-Length, 0 if very long */
    uint32_t last_front;               /* bytes that the next one's owner may want before its body */
    struct buf in;                     /* bytes not yet used: an unfinished head, or pipelined requests */
    char *body;
    char *place; /* in the owner's block, see client_place_body; NULL: the body gets a block of its own */
    size_t body_n, body_cap;
    int64_t first_byte_us; /* of the current request */
    int64_t body_since_us; /* when its body was wanted */
    struct wheel_timer timer;
    struct loop_task next; /* goes on with pipelined bytes */
    uint64_t acked_bytes;  /* at the last look at a slow reader */
    int64_t stalled_since_us;
    char *address; /* the peer's, as text of address_n bytes */
};

/* Takes over the fd. */
struct client *client_new(struct loop *l, int fd, const struct sockaddr *from, struct client_rules *rules,
                          const struct client_ops *ops, void *arg);

/* For a new one: it speaks TLS. The handshake has header_timeout_us. */
void client_secure(struct client *c, const struct tls_context *tls);
static inline struct slice client_address(const struct client *c)
{
    return (struct slice){c->address, c->address_n};
}
static inline bool client_is_secure(const struct client *c)
{
    return c->conn.tls != NULL;
}

#define CLIENT_BODY_SPARE 64 /* bytes behind a body that belong to it and are not set */
/* For ops->head: a block of the owner's (mem_free), its first `front` bytes for whatever it likes. Where the
 * head says how long the body is, and that is not very long, it goes to client->place, in the same block at
 * `front` or behind it. */
void *client_place_body(struct client *c, size_t front);
/* Ownership of the body goes to the caller (mem_free, but for `place`), who gives its bytes back with
 * client_release_held. */
char *client_take_body(struct client *c, size_t *n);
void client_release_held(struct client_rules *rules, size_t n_bytes);

/* May this answer leave the connection open? Decides with the request, the framing and the drain. */
bool client_may_keep(const struct client *c, enum http1_framing framing);
void client_begin(struct client *c, enum http1_framing framing, bool keep_alive);
/* A piece of an answer. */
struct client_part {
    struct slice head;         /* of the answer, with the first part */
    const struct slice *spans; /* of the body, none of them empty */
    unsigned n_spans;
    struct slice framed; /* the same as chunks, when the owner has them so already; else {NULL, 0} */
    bool end;            /* completes the message's framing */
};
/* In one write. What the kernel does not take is copied. False: the client is gone; the owner ends its
 * request and calls client_close. */
MUST_CHECK bool client_send(struct client *c, const struct client_part *part);
static inline size_t client_pending(const struct client *c)
{
    return conn_pending(&c->conn);
}
/* The owner is done with the request. clean: the answer is complete and the connection may live on; else it
 * is closed after what waits was written, without completing the message. Does not call back into the owner.
 */
void client_end(struct client *c, bool clean);
/* Closes at once; calls ops->closed, not ops->gone. */
void client_close(struct client *c);
/* For a drain: a connection that waits between requests has idle_timeout_us from now on. */
void client_hurry_idle(struct client *c);

#endif
