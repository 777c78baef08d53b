/* conn: one non-blocking stream socket, plain or with TLS (tls.h): reads into a shared buffer, writes at once
 * and keeps only what the kernel did not take. Level-triggered; EPOLLOUT is armed only after EAGAIN. It knows
 * no protocol. */
#ifndef CONN_H
#define CONN_H

#include <sys/socket.h>
#include <sys/uio.h>

#include "buf.h"
#include "loop.h"

#define CONN_BORROWED_MAX 6

struct conn;
struct conn_tls;
struct tls;

struct conn_ops {
    void (*readable)(struct conn *c);
    /* Everything handed over has left for the kernel (after a write that had to wait), or the write failed
     * (c->broken). */
    void (*drained)(struct conn *c);
    /* The connect of conn_await_connect, the handshake of conn_secure, or both have ended. why: NULL = well;
     * else a text that is valid during the call. */
    void (*connected)(struct conn *c, const char *why);
};

struct conn {
    int fd; /* -1 = closed */
    enum loop_side side : 8;
    bool reading : 1;    /* readable is called while there is something to read */
    bool watching : 1;   /* not reading; readable is called when something more arrives, a FIN or RST too: see
                            conn_peer_gone */
    bool writing : 1;    /* waits for the socket to take bytes */
    bool broken : 1;     /* a write failed: the other side is gone */
    bool connecting : 1; /* or in the handshake: the events go there */
    struct loop *loop;
    const struct conn_ops *ops;
    struct conn_tls *tls;    /* NULL = plain */
    struct loop_watch watch; /* one for both directions: memory counts with many open streams */
    struct buf out;          /* copied bytes that wait for the kernel */
    struct iovec *borrowed;  /* bytes of the owner that wait, instead of `out`; NULL while none do */
    unsigned borrowed_first, borrowed_n;
    uint64_t sent_bytes; /* taken by the kernel so far */
};

/* Takes over the non-blocking fd. max_pending_bytes bounds what conn_writev may keep. */
void conn_open(struct conn *c, struct loop *l, enum loop_side side, int fd, const struct conn_ops *ops,
               size_t max_pending_bytes);
/* The connection speaks TLS; takes over the session. Before anything was read or written. ops->connected
 * tells when the handshake has ended. */
void conn_secure(struct conn *c, struct tls *session);
/* Back to plain, to answer a client whose handshake failed because it speaks plain HTTP. */
void conn_unsecure(struct conn *c);
/* Closes the socket and forgets what waits; safe to call twice. reset: the other side gets RST instead of
 * FIN. */
void conn_close(struct conn *c, bool reset);

/* What conn_want_read does when something changes. */
void conn_set_read(struct conn *c, bool on);
static inline void conn_want_read(struct conn *c, bool on)
{
    if (c->reading != on || c->watching || c->tls != NULL)
        conn_set_read(c, on);
}
/* Stops reading, and still calls readable once for whatever arrives: the owner asks conn_peer_gone. */
void conn_watch(struct conn *c);
/* > 0 bytes read, 0 = the other side closed, -1 = nothing now, -2 = error (errno). */
ssize_t conn_read(struct conn *c, void *p, size_t n_bytes);
/* The same into several parts, of a plain connection. */
ssize_t conn_readv(struct conn *c, const struct iovec *iov, unsigned n);
/* As conn_read, of at most LOOP_READ_BYTES or of what was read ahead; *p: where they stand, valid inside the
 * callback. */
ssize_t conn_read_shared(struct conn *c, char **p);

/* Writes what the kernel takes and copies the rest. False: the other side is gone, or more would wait than
 * allowed. */
MUST_CHECK bool conn_writev(struct conn *c, struct iovec *iov, unsigned n);
/* As conn_writev, but what waits is not copied: the bytes stay valid until `drained` or conn_close. Nothing
 * else may be waiting. n <= CONN_BORROWED_MAX. */
MUST_CHECK bool conn_send_borrowed(struct conn *c, struct iovec *iov, unsigned n);
/* A connect is under way on the socket: ops->connected is called when it has ended, well or badly. */
void conn_await_connect(struct conn *c);
/* Hands what waits to the kernel: after a successful connect, and when the socket takes bytes again. */
MUST_CHECK bool conn_flush(struct conn *c);

/* Our side is done (FIN); reading goes on. Nothing may be waiting. */
void conn_end_writing(struct conn *c);

size_t conn_borrowed_bytes(const struct conn *c);
/* Bytes that wait in this process. */
static inline size_t conn_pending(const struct conn *c)
{
    return c->borrowed == NULL ? c->out.len : c->out.len + conn_borrowed_bytes(c);
}
/* Bytes the other side has acknowledged so far: grows while a slow reader makes progress. */
uint64_t conn_acked_bytes(const struct conn *c);
/* Something has arrived that was not read. */
bool conn_has_unread(const struct conn *c);
/* True when the other side has closed or reset, also behind unread bytes. */
bool conn_peer_gone(const struct conn *c);

#endif
