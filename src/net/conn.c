/* One non-blocking socket. Order of bytes: `out` and `borrowed` are never used at the same time. */
#include "conn.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "mem.h"
#include "tls.h"

/* Records taken of a reader that keeps up, before others have their turn. */
#define CONN_TLS_BURST 16

/* Parts that have at most so many bytes together are sent as one. */
#define CONN_JOINED_BYTES 4096

/* What plain connections do not need, or not often, is not compiled into what they do with every chunk. */
#define CONN_APART __attribute__((noinline))

/* What a connection has besides when it speaks TLS. */
struct conn_tls {
    struct conn *owner;
    struct tls *session;
    struct loop_task again; /* bytes wait inside the session, and the socket is silent about them */
    bool read_wants_write;  /* reading goes on when the socket takes bytes */
    bool write_wants_read;  /* writing goes on after something was read */
};

static void conn_go_on_connecting(struct conn *c);
static uint32_t conn_tls_event(struct conn *c, uint32_t what);

static void conn_readable(struct conn *c)
{
    const struct loop_ahead *ahead = &c->loop->ahead;
    const bool more = ahead->watch == &c->watch && ahead->got == LOOP_AHEAD_EACH;

    c->ops->readable(c);
    if (more && c->reading)
        c->ops->readable(c);
}

CONN_APART static void conn_writable(struct conn *c)
{
    if (!conn_flush(c) || conn_pending(c) == 0)
        c->ops->drained(c);
}

static void conn_on_ready(struct loop_watch *w, uint32_t what)
{
    struct conn *c = CONTAINER_OF(w, struct conn, watch);

    if (c->connecting) {
        conn_go_on_connecting(c);
        return;
    }
    if (c->tls != NULL)
        what = conn_tls_event(c, what);
    if ((what & EPOLLOUT) && c->writing)
        conn_writable(c);
    /* The owner may have closed the connection, or lost interest, in the call above. */
    if ((what & EPOLLIN) && (c->reading || c->watching))
        conn_readable(c);
}

/* Watching is edge-triggered, or unread bytes would call for ever. */
static uint32_t conn_events(const struct conn *c)
{
    return (c->reading || c->watching ? EPOLLIN : 0u) | (c->watching ? EPOLLET : 0u) |
           (c->writing ? EPOLLOUT : 0u);
}

static void conn_want(struct conn *c, bool reading, bool watching, bool writing)
{
    const uint32_t before = conn_events(c);

    if (c->reading == reading && c->watching == watching && c->writing == writing)
        return;
    c->reading = reading;
    c->watching = watching;
    c->writing = writing;
    if (conn_events(c) != before)
        loop_watch(c->loop, c->side, c->fd, &c->watch, before, conn_events(c));
}

static void conn_want_write(struct conn *c, bool on)
{
    conn_want(c, c->reading, c->watching, on);
}

static bool conn_read_ahead(struct loop_watch *w, char *p, size_t n_bytes, ssize_t *got)
{
    struct conn *c = CONTAINER_OF(w, struct conn, watch);

    if (!c->reading || c->connecting || c->tls != NULL)
        return false;
    *got = conn_read(c, p, n_bytes);
    return true;
}

void conn_open(struct conn *c, struct loop *l, enum loop_side side, int fd, const struct conn_ops *ops,
               size_t max_pending_bytes)
{
    static const struct loop_watch_ops watch_ops = {conn_on_ready, conn_read_ahead};

    memset(c, 0, sizeof *c);
    c->fd = fd;
    c->loop = l;
    c->ops = ops;
    c->watch.ops = &watch_ops;
    c->side = side;
    buf_init(&c->out, max_pending_bytes);
}

/* ---- TLS ---- */

static void conn_on_again(struct loop_task *t)
{
    struct conn *c = CONTAINER_OF(t, struct conn_tls, again)->owner;

    if (c->reading)
        c->ops->readable(c);
}

/* In the next turn, so that one fast sender cannot hold this one. */
static void conn_read_again(struct conn *c)
{
    if (c->reading && tls_has_more(c->tls->session))
        loop_defer_next(c->loop, &c->tls->again);
}

void conn_secure(struct conn *c, struct tls *session)
{
    c->tls = mem_zalloc(sizeof *c->tls);
    c->tls->owner = c;
    c->tls->session = session;
    loop_task_init(&c->tls->again, conn_on_again);
    c->connecting = true;
}

static void conn_drop_tls(struct conn *c, bool goodbye)
{
    if (c->tls == NULL)
        return;
    if (goodbye)
        tls_end_writing(c->tls->session);
    loop_task_cancel(&c->tls->again);
    tls_free(c->tls->session);
    mem_free(c->tls);
    c->tls = NULL;
}

void conn_unsecure(struct conn *c)
{
    conn_drop_tls(c, false);
}

/* Whatever the session waits for is what the event waits for. */
static const char *conn_handshake(struct conn *c)
{
    const int step = tls_handshake(c->tls->session);

    if (step == TLS_FAILED)
        return tls_failure()->text;
    conn_want(c, step != TLS_WANT_WRITE, false, step == TLS_WANT_WRITE);
    c->connecting = step != 1;
    return NULL;
}

CONN_APART static uint32_t conn_tls_event(struct conn *c, uint32_t what)
{
    struct conn_tls *t = c->tls;

    if ((what & EPOLLOUT) && t->read_wants_write) {
        t->read_wants_write = false;
        what |= EPOLLIN;
        if (conn_pending(c) == 0) {
            conn_want_write(c, false);
            what &= ~(uint32_t)EPOLLOUT;
        }
    }
    if ((what & EPOLLIN) && t->write_wants_read) {
        t->write_wants_read = false;
        conn_want_write(c, true);
    }
    return what;
}

CONN_APART static ssize_t conn_tls_read(struct conn *c, void *p, size_t n_bytes)
{
    const ssize_t n = tls_read(c->tls->session, p, n_bytes);

    if (n == TLS_WANT_WRITE) {
        c->tls->read_wants_write = true;
        conn_want_write(c, true);
        return TLS_WANT_READ;
    }
    conn_read_again(c);
    return n;
}

/* ---- life ---- */

static const char *conn_connect_error(const struct conn *c)
{
    int error = 0;
    socklen_t n = sizeof error;

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        error = errno;
    return error != 0 ? strerror(error) : NULL;
}

/* A connect has ended, or the handshake goes on. */
CONN_APART static void conn_go_on_connecting(struct conn *c)
{
    /* A handshake on a socket whose connect failed fails with the same error. */
    const char *why = c->tls != NULL ? conn_handshake(c) : conn_connect_error(c);

    if (why == NULL && c->tls != NULL && c->connecting)
        return;
    c->connecting = false;
    c->broken = why != NULL;
    c->ops->connected(c, why);
    if (c->tls != NULL)
        conn_read_again(c); /* what came with the end of the handshake */
}

static void conn_drop_borrowed(struct conn *c)
{
    mem_free(c->borrowed);
    c->borrowed = NULL;
    c->borrowed_first = c->borrowed_n = 0;
}

void conn_close(struct conn *c, bool reset)
{
    static const struct linger hard = {1, 0};

    if (c->fd < 0)
        return;
    c->reading = c->watching = c->writing = false; /* closing ends the watch */
    conn_drop_tls(c, !reset && !c->broken);
    if (reset)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(c->fd);
    c->fd = -1;
    c->connecting = false;
    conn_drop_borrowed(c);
    buf_free(&c->out);
}

void conn_set_read(struct conn *c, bool on)
{
    if (c->fd < 0)
        return;
    conn_want(c, on, false, c->writing);
    if (c->tls != NULL)
        conn_read_again(c);
}

void conn_watch(struct conn *c)
{
    conn_want(c, false, true, c->writing);
}

static ssize_t conn_got(ssize_t n)
{
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : -2;
}

ssize_t conn_read(struct conn *c, void *p, size_t n_bytes)
{
    ssize_t n;

    if (c->tls != NULL)
        return conn_tls_read(c, p, n_bytes);
    do
        n = recv(c->fd, p, n_bytes, 0);
    while (n < 0 && errno == EINTR);
    return conn_got(n);
}

ssize_t conn_readv(struct conn *c, const struct iovec *iov, unsigned n)
{
    ssize_t got;

    do
        got = readv(c->fd, iov, (int)n);
    while (got < 0 && errno == EINTR);
    return conn_got(got);
}

ssize_t conn_read_shared(struct conn *c, char **p)
{
    struct loop *l = c->loop;

    if (l->ahead.watch == &c->watch) {
        l->ahead.watch = NULL;
        *p = l->ahead.p;
        return l->ahead.got;
    }
    *p = l->read_buffer + l->read_at;
    return conn_read(c, *p, LOOP_READ_BYTES);
}

/* Takes off iov what has left. Returns how many parts are gone whole. */
static unsigned conn_advance(struct conn *c, struct iovec *iov, unsigned n, size_t left)
{
    unsigned at = 0;

    c->sent_bytes += left;
    for (; at < n && left >= iov[at].iov_len; at++)
        left -= iov[at].iov_len;
    if (at < n) {
        iov[at].iov_base = (char *)iov[at].iov_base + left;
        iov[at].iov_len -= left;
    }
    return at;
}

CONN_APART static int conn_tls_push(struct conn *c, struct iovec *iov, unsigned n)
{
    unsigned at = 0;

    for (unsigned records = 0; at < n && records < CONN_TLS_BURST; records++) {
        const ssize_t took = tls_writev(c->tls->session, iov + at, n - at);

        if (took == TLS_FAILED) {
            c->broken = true;
            return -1;
        }
        c->tls->write_wants_read = took == TLS_WANT_READ;
        if (took < 0)
            break;
        at += conn_advance(c, iov + at, n - at, (size_t)took);
    }
    return (int)at;
}

/* Sends several parts; *total: what they have together. The kernel takes one part with less effort than a
 * list of them: for small ones that is worth a copy. */
static ssize_t conn_send_parts(int fd, struct iovec *iov, unsigned n, size_t *total)
{
    char joined[CONN_JOINED_BYTES];
    const struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
    size_t len = 0;

    for (unsigned i = 0; i < n; len += iov[i++].iov_len) {
        if (len + iov[i].iov_len <= sizeof joined)
            memcpy(joined + len, iov[i].iov_base, iov[i].iov_len);
    }
    *total = len;
    return len <= sizeof joined ? send(fd, joined, len, MSG_NOSIGNAL) : sendmsg(fd, &msg, MSG_NOSIGNAL);
}

/* One part is what a chunk of a stream is. */
static inline ssize_t conn_send(int fd, struct iovec *iov, unsigned n, size_t *total)
{
    if (n > 1)
        return conn_send_parts(fd, iov, n, total);
    *total = iov->iov_len;
    return send(fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL);
}

/* After a send that did not take everything. */
CONN_APART static int conn_sent_less(struct conn *c, struct iovec *iov, unsigned n, ssize_t took)
{
    size_t total;

    while (took < 0 && errno == EINTR)
        took = conn_send(c->fd, iov, n, &total);
    if (took < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (took < 0) {
        c->broken = true;
        return -1;
    }
    /* A short write means a full send queue: asking again would only return EAGAIN. */
    return (int)conn_advance(c, iov, n, (size_t)took);
}

/* Takes off iov what the kernel takes now. Returns how many parts are gone whole; -1: the other side is gone.
 */
static inline int conn_push(struct conn *c, struct iovec *iov, unsigned n)
{
    size_t total;
    ssize_t took;

    if (c->tls != NULL)
        return conn_tls_push(c, iov, n);
    took = conn_send(c->fd, iov, n, &total);
    if (took != (ssize_t)total)
        return conn_sent_less(c, iov, n, took);
    c->sent_bytes += total;
    return (int)n;
}

CONN_APART static bool conn_keep(struct conn *c, const struct iovec *iov, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (!buf_append(&c->out, iov[i].iov_base, iov[i].iov_len)) {
            c->broken = true;
            return false;
        }
    }
    conn_want_write(c, true);
    return true;
}

bool conn_writev(struct conn *c, struct iovec *iov, unsigned n)
{
    const bool waiting = c->out.len > 0;
    int gone;

    if (c->broken || c->fd < 0)
        return false;
    gone = waiting ? 0 : conn_push(c, iov, n);
    return gone == (int)n || (gone >= 0 && conn_keep(c, iov + gone, n - (unsigned)gone));
}

bool conn_send_borrowed(struct conn *c, struct iovec *iov, unsigned n)
{
    const int gone = c->connecting ? 0 : conn_push(c, iov, n);

    if (gone < 0)
        return false;
    n -= (unsigned)gone;
    if (n == 0)
        return true;
    c->borrowed = mem_array(NULL, n, sizeof *c->borrowed);
    memcpy(c->borrowed, iov + gone, n * sizeof *c->borrowed);
    c->borrowed_n = n;
    conn_want_write(c, true);
    return true;
}

void conn_await_connect(struct conn *c)
{
    c->connecting = true;
    conn_want_write(c, true);
}

static bool conn_flush_out(struct conn *c)
{
    struct iovec one = {c->out.data + c->out.start, c->out.len};
    const size_t before = one.iov_len;
    const int gone = conn_push(c, &one, 1);

    if (gone >= 0)
        buf_consume(&c->out, gone == 1 ? before : before - one.iov_len);
    return gone >= 0;
}

static bool conn_flush_borrowed(struct conn *c)
{
    const int gone = conn_push(c, c->borrowed + c->borrowed_first, c->borrowed_n - c->borrowed_first);

    if (gone < 0)
        return false;
    c->borrowed_first += (unsigned)gone;
    if (c->borrowed_first == c->borrowed_n)
        conn_drop_borrowed(c);
    return true;
}

bool conn_flush(struct conn *c)
{
    if (c->broken || c->fd < 0)
        return false;
    if ((c->out.len > 0 && !conn_flush_out(c)) || (c->borrowed_n > 0 && !conn_flush_borrowed(c))) {
        conn_want_write(c, false);
        return false;
    }
    conn_want_write(c,
                    (c->out.len > 0 || c->borrowed_n > 0) && (c->tls == NULL || !c->tls->write_wants_read));
    return true;
}

void conn_end_writing(struct conn *c)
{
    if (c->tls != NULL)
        tls_end_writing(c->tls->session);
    shutdown(c->fd, SHUT_WR);
}

size_t conn_borrowed_bytes(const struct conn *c)
{
    size_t n = 0;

    for (unsigned i = c->borrowed_first; i < c->borrowed_n; i++)
        n += c->borrowed[i].iov_len;
    return n;
}

uint64_t conn_acked_bytes(const struct conn *c)
{
    int queued = 0;

    if (c->fd < 0 || ioctl(c->fd, SIOCOUTQ, &queued) < 0 || queued < 0)
        queued = 0;
    return c->sent_bytes - (uint64_t)queued;
}

bool conn_has_unread(const struct conn *c)
{
    int unread = 0;

    if (c->tls != NULL && tls_has_more(c->tls->session))
        return true;
    return c->fd >= 0 && ioctl(c->fd, FIONREAD, &unread) == 0 && unread > 0;
}

bool conn_peer_gone(const struct conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};

    return c->fd >= 0 && poll(&p, 1, 0) > 0;
}
