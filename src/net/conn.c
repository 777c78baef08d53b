/* One non-blocking socket. Order of bytes: `out` and `borrowed` are never used at the same time. */
#include "conn.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "mem.h"

static void conn_on_event(evutil_socket_t fd, short what, void *arg)
{
    struct conn *c = arg;

    (void)fd;
    if ((what & EV_WRITE) && c->writing) {
        if (c->connecting) {
            c->connecting = false;
            c->ops->connected(c);
        } else if (!conn_flush(c) || !c->writing) {
            c->ops->drained(c);
        }
    }
    /* The owner may have closed the connection, or lost interest, in the call above. */
    if ((what & EV_READ) && (c->reading || c->watching))
        c->ops->readable(c);
}

/* A pending event cannot change its mask: it is taken out and put in anew. Watching is edge-triggered, or
 * unread bytes would call for ever. */
static void conn_want(struct conn *c, bool reading, bool watching, bool writing)
{
    const short what =
        (short)((reading || watching ? EV_READ : 0) | (watching ? EV_ET : 0) | (writing ? EV_WRITE : 0));

    if (reading == c->reading && watching == c->watching && writing == c->writing)
        return;
    if (c->reading || c->watching || c->writing)
        event_del(&c->event);
    c->reading = reading;
    c->watching = watching;
    c->writing = writing;
    if (what == 0)
        return;
    event_assign(&c->event, c->loop->base, c->fd, (short)(what | EV_PERSIST), conn_on_event, c);
    event_add(&c->event, NULL);
}

static void conn_want_write(struct conn *c, bool on)
{
    conn_want(c, c->reading, c->watching, on);
}

void conn_open(struct conn *c, struct loop *l, int fd, const struct conn_ops *ops, size_t max_pending_bytes)
{
    memset(c, 0, sizeof *c);
    c->fd = fd;
    c->loop = l;
    c->ops = ops;
    buf_init(&c->out, max_pending_bytes);
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
    conn_want(c, false, false, false);
    if (reset)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(c->fd);
    c->fd = -1;
    c->connecting = false;
    conn_drop_borrowed(c);
    buf_free(&c->out);
}

void conn_want_read(struct conn *c, bool on)
{
    if (c->fd >= 0)
        conn_want(c, on, false, c->writing);
}

void conn_watch(struct conn *c)
{
    conn_want(c, false, true, c->writing);
}

ssize_t conn_read(struct conn *c, void *p, size_t n_bytes)
{
    ssize_t n;

    do
        n = read(c->fd, p, n_bytes);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : -2;
}

/* Advances iov by what the kernel takes now. False: the other side is gone. */
static bool conn_push(struct conn *c, struct iovec *iov, unsigned *first, unsigned n)
{
    const struct msghdr msg = {.msg_iov = iov + *first, .msg_iovlen = n - *first};
    ssize_t took;

    do
        took = sendmsg(c->fd, &msg, MSG_NOSIGNAL);
    while (took < 0 && errno == EINTR);
    if (took < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return true;
    if (took < 0) {
        c->broken = true;
        return false;
    }
    c->sent_bytes += (uint64_t)took;
    while (*first < n && (size_t)took >= iov[*first].iov_len)
        took -= (ssize_t)iov[(*first)++].iov_len;
    /* A short write means a full send queue: asking again would only return EAGAIN. */
    if (*first < n) {
        iov[*first].iov_base = (char *)iov[*first].iov_base + took;
        iov[*first].iov_len -= (size_t)took;
    }
    return true;
}

static bool conn_keep(struct conn *c, const struct iovec *iov, unsigned first, unsigned n)
{
    for (; first < n; first++) {
        if (!buf_append(&c->out, iov[first].iov_base, iov[first].iov_len)) {
            c->broken = true;
            return false;
        }
    }
    conn_want_write(c, true);
    return true;
}

bool conn_writev(struct conn *c, struct iovec *iov, unsigned n)
{
    unsigned first = 0;

    if (c->broken || c->fd < 0)
        return false;
    if (c->out.len == 0 && !conn_push(c, iov, &first, n))
        return false;
    return first == n || conn_keep(c, iov, first, n);
}

bool conn_send_borrowed(struct conn *c, const struct iovec *iov, unsigned n)
{
    struct iovec parts[CONN_BORROWED_MAX];
    unsigned first = 0;

    memcpy(parts, iov, n * sizeof *iov);
    if (!c->connecting && !conn_push(c, parts, &first, n))
        return false;
    if (first == n)
        return true;
    c->borrowed = mem_array(NULL, n - first, sizeof *c->borrowed);
    memcpy(c->borrowed, parts + first, (n - first) * sizeof *c->borrowed);
    c->borrowed_n = n - first;
    conn_want_write(c, true);
    return true;
}

void conn_await_connect(struct conn *c)
{
    c->connecting = true;
    conn_want_write(c, true);
}

bool conn_flush(struct conn *c)
{
    if (c->broken || c->fd < 0)
        return false;
    if (c->out.len > 0) {
        struct iovec one = {c->out.data + c->out.start, c->out.len};
        const size_t before = one.iov_len;
        unsigned first = 0;

        if (!conn_push(c, &one, &first, 1))
            goto fail;
        buf_consume(&c->out, first == 1 ? before : before - one.iov_len);
    }
    if (c->borrowed_n > 0 && !conn_push(c, c->borrowed, &c->borrowed_first, c->borrowed_n))
        goto fail;
    if (c->borrowed_first == c->borrowed_n)
        conn_drop_borrowed(c);
    conn_want_write(c, c->out.len > 0 || c->borrowed_n > 0);
    return true;
fail:
    conn_want_write(c, false);
    return false;
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

bool conn_peer_gone(const struct conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};

    return c->fd >= 0 && poll(&p, 1, 0) > 0;
}
