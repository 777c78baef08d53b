/* Listening sockets: one for each address family, the same port. */
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "mem.h"

#define LISTEN_RETRY_US (100 * US_PER_MS)

union listen_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Of sockets with somebody waiting the one that is watched first is looked at first, and may take all there
 * is: that is not the one that took the last connection. */
static void listen_enable(struct listener *l, bool on)
{
    const uint32_t before = l->watching ? EPOLLIN : 0, now = on ? EPOLLIN : 0;

    l->watching = on;
    for (size_t i = 1; i <= l->n && now != before; i++) {
        struct listen_socket *s = &l->sockets[(l->last + i) % l->n];

        loop_watch(l->loop, LOOP_DOWNSTREAM, s->fd, &s->watch, before, now);
    }
}

static void listen_on_retry(struct wheel_timer *t)
{
    struct listener *l = CONTAINER_OF(t, struct listener, retry);

    if (!l->paused)
        listen_enable(l, true);
}

/* Out of descriptors or memory: the waiting connection stays in the backlog; a short rest instead of a busy
 * loop. */
static void listen_rest(struct listener *l, int error)
{
    const int64_t now_us = loop_now_us(l->loop);

    listen_enable(l, false);
    loop_timer_set(l->loop, &l->retry, now_us + LISTEN_RETRY_US);
    if (l->complained_us != 0 && now_us - l->complained_us < US_PER_S)
        return;
    l->complained_us = now_us;
    log_warn("cannot accept connections for now", LOG_STR("error", strerror(error)),
             LOG_INT("port", l->port));
}

/* At most so many. */
static void listen_accept(struct listener *l, size_t which, int most)
{
    for (int i = 0; i < most && !l->paused; i++) {
        union listen_address from;
        socklen_t n = sizeof from;
        const int got = accept4(l->sockets[which].fd, &from.any, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (got >= 0) {
            l->last = which;
            l->on_accept(l, got, &from.any);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            listen_rest(l, errno);
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            return;
        }
    }
}

static void listen_on_ready(struct loop_watch *w, uint32_t events)
{
    const struct listen_socket *s = CONTAINER_OF(w, struct listen_socket, watch);

    (void)events;
    if (s->owner->watching)
        listen_accept(s->owner, (size_t)(s - s->owner->sockets), LISTEN_BATCH);
}

static bool listen_parse(const char *text, uint16_t port, union listen_address *a, socklen_t *n)
{
    memset(a, 0, sizeof *a);
    if (inet_pton(AF_INET, text, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons(port);
        *n = sizeof a->v4;
        return true;
    }
    if (inet_pton(AF_INET6, text, &a->v6.sin6_addr) == 1) {
        a->v6.sin6_family = AF_INET6;
        a->v6.sin6_port = htons(port);
        *n = sizeof a->v6;
        return true;
    }
    return false;
}

/* 0, or an errno; *port is filled in when it was 0. */
static int listen_socket(struct listener *l, const char *text, uint16_t *port)
{
    static const struct loop_watch_ops watch_ops = {listen_on_ready, NULL};
    union listen_address a;
    socklen_t n;
    int fd, one = 1, error;

    if (!listen_parse(text, *port, &a, &n))
        return EINVAL;
    fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, &a.any, n) < 0 || listen(fd, SOMAXCONN) < 0 || getsockname(fd, &a.any, &n) < 0) {
        error = errno;
        close(fd);
        return error;
    }
    *port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    l->sockets[l->n++] = (struct listen_socket){{&watch_ops}, l, fd};
    return 0;
}

/* A machine without one of the families is normal; a port that is taken in one of them is not. */
static bool listen_is_missing_family(int error)
{
    return error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
}

static int listen_open_both(struct listener *l, const char *v4, const char *v6, uint16_t *port)
{
    const int error = listen_socket(l, v4, port);
    int error6;

    if (error != 0 && !listen_is_missing_family(error))
        return error;
    error6 = listen_socket(l, v6, port);
    if (error6 != 0 && !listen_is_missing_family(error6))
        return error6;
    return l->n > 0 ? 0 : error;
}

static int listen_open_text(struct listener *l, const char *text)
{
    if (text[0] == '\0')
        return listen_open_both(l, "0.0.0.0", "::", &l->port);
    if (strcmp(text, "loopback") == 0)
        return listen_open_both(l, "127.0.0.1", "::1", &l->port);
    return listen_socket(l, text, &l->port);
}

bool listen_open(struct listener *l, struct loop *loop, const char *bind_text, uint16_t port, char **error)
{
    int failed = EADDRINUSE;

    l->loop = loop;
    l->paused = l->watching = false;
    l->complained_us = 0;
    l->last = 0;
    wheel_timer_init(&l->retry, listen_on_retry);
    /* A free port of one family may be taken in the other: then another one is tried. */
    for (int tries = port == 0 ? 8 : 1; failed == EADDRINUSE && tries > 0; tries--) {
        listen_close(l);
        l->port = port;
        failed = listen_open_text(l, bind_text);
    }
    if (failed != 0) {
        *error =
            mem_printf("cannot listen on %s port %u: %s", bind_text[0] == '\0' ? "all addresses" : bind_text,
                       (unsigned)port, failed == EINVAL ? "not an IP address" : strerror(failed));
        listen_close(l);
        return false;
    }
    listen_enable(l, true);
    return true;
}

void listen_pause(struct listener *l, bool paused)
{
    if (paused == l->paused)
        return;
    l->paused = paused;
    loop_timer_cancel(l->loop, &l->retry);
    listen_enable(l, !paused);
}

void listen_take_waiting(struct listener *l)
{
    for (size_t i = 0; i < l->n; i++)
        listen_accept(l, i, SOMAXCONN);
}

void listen_close(struct listener *l)
{
    if (l->loop != NULL)
        loop_timer_cancel(l->loop, &l->retry);
    for (size_t i = 0; i < l->n; i++)
        close(l->sockets[i].fd);
    l->n = 0;
    l->watching = false; /* closing ends the watch */
}

void listen_address_text(const struct sockaddr *a, char out[LISTEN_TEXT_MAX])
{
    const union listen_address *u = (const void *)a;

    out[0] = '\0';
    if (a->sa_family == AF_INET)
        inet_ntop(AF_INET, &u->v4.sin_addr, out, LISTEN_TEXT_MAX);
    else if (a->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &u->v6.sin6_addr, out, LISTEN_TEXT_MAX);
}
