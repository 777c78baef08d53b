/* A non-blocking socket with a script of what to send and when. Clients and pods are made of it. */
#include "torture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static char flow_shared[256 * 1024];

static void flow_watch(struct flow *f)
{
    const bool sending = f->connecting || (f->running && f->timer.slot == 0 && f->at < f->n_steps &&
                                           f->steps[f->at].kind == STEP_SEND);
    const uint32_t events =
        (f->read_paused || f->connecting ? 0 : (uint32_t)EPOLLIN) | (sending ? (uint32_t)EPOLLOUT : 0);

    if (events == 0)
        loop_forget(&f->io);
    else
        loop_watch(&f->io, events);
}

bool flow_is_open(const struct flow *f)
{
    return f->io.fd >= 0;
}

void flow_close(struct flow *f, bool reset)
{
    static const struct linger hard = {1, 0};

    if (f->io.fd < 0)
        return;
    loop_forget(&f->io);
    loop_disarm(&f->timer);
    if (reset)
        setsockopt(f->io.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(f->io.fd);
    f->io.fd = -1;
    f->running = f->connecting = false;
    f->n_steps = f->at = 0;
    buf_clear(&f->out);
}

void flow_free(struct flow *f)
{
    flow_close(f, false);
    buf_free(&f->out);
    free(f->steps);
    f->steps = NULL;
    f->cap_steps = 0;
}

bool flow_peer_left(const struct flow *f)
{
    struct pollfd p = {.fd = f->io.fd, .events = POLLRDHUP};

    return f->io.fd < 0 || (poll(&p, 1, 0) > 0 && p.revents != 0);
}

/* ---- the script ---- */

void flow_add(struct flow *f, enum step_kind kind, uint32_t value)
{
    if (f->n_steps == f->cap_steps) {
        f->cap_steps = f->cap_steps > 0 ? f->cap_steps * 2 : 8;
        f->steps = util_resize(f->steps, f->cap_steps * sizeof *f->steps);
    }
    f->steps[f->n_steps++] = (struct step){kind, value};
}

void flow_send(struct flow *f, const void *p, size_t n)
{
    if (n == 0)
        return;
    buf_put(&f->out, p, n);
    if (f->n_steps > f->at && f->steps[f->n_steps - 1].kind == STEP_SEND)
        f->steps[f->n_steps - 1].value += (uint32_t)n;
    else
        flow_add(f, STEP_SEND, (uint32_t)n);
}

void flow_send_pieces(struct flow *f, const char *p, size_t n, size_t piece, uint32_t pause_us)
{
    while (n > 0) {
        const size_t k = n < piece ? n : piece;

        flow_send(f, p, k);
        p += k;
        n -= k;
        if (n > 0)
            flow_add(f, STEP_WAIT, pause_us);
    }
}

/* False: the flow is closed, or cannot go on now. */
static bool flow_step_send(struct flow *f, struct step *s)
{
    while (s->value > 0) {
        const ssize_t n = send(f->io.fd, buf_bytes(&f->out), s->value, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            /* Reading tells how it ended; what is left of the script cannot be played. */
            f->at = f->n_steps;
            f->running = false;
            return false;
        }
        if (n < 0)
            return false;
        buf_take(&f->out, (size_t)n);
        s->value -= (uint32_t)n;
    }
    return true;
}

static void flow_run(struct flow *f)
{
    while (f->io.fd >= 0 && f->running && f->at < f->n_steps) {
        struct step *s = &f->steps[f->at];

        if (s->kind == STEP_SEND && !flow_step_send(f, s))
            break;
        f->at++;
        if (s->kind == STEP_WAIT) {
            loop_arm(&f->timer, util_now_us() + s->value);
            break;
        }
        if (s->kind == STEP_FIN)
            shutdown(f->io.fd, SHUT_WR);
        if (s->kind == STEP_CLOSE || s->kind == STEP_RESET) {
            flow_close(f, s->kind == STEP_RESET);
            f->played(f);
            return;
        }
        if (s->kind == STEP_STOP) {
            f->running = false;
            break;
        }
    }
    if (f->io.fd < 0)
        return;
    if (f->running && f->at == f->n_steps && f->timer.slot == 0) {
        f->running = false;
        f->n_steps = f->at = 0;
        buf_clear(&f->out);
        flow_watch(f);
        f->played(f);
        return;
    }
    flow_watch(f);
}

void flow_play(struct flow *f)
{
    if (f->io.fd < 0)
        return;
    f->running = true;
    if (!f->connecting && f->timer.slot == 0)
        flow_run(f);
}

bool flow_is_played(const struct flow *f)
{
    return f->at == f->n_steps && f->timer.slot == 0;
}

static void flow_on_timer(struct loop_timer *t)
{
    flow_run(t->owner);
}

/* ---- reading ---- */

static void flow_read(struct flow *f)
{
    const size_t most =
        f->read_max > 0 && f->read_max < sizeof flow_shared ? f->read_max : sizeof flow_shared;
    const ssize_t n = recv(f->io.fd, flow_shared, most, 0);

    if (n > 0) {
        f->bytes(f, flow_shared, (size_t)n);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    /* Said once; the owner closes, or goes on sending to a half-closed side. */
    f->read_paused = true;
    flow_watch(f);
    f->ended(f, n == 0 ? 0 : errno);
}

static void flow_connected(struct flow *f)
{
    int error = 0;
    socklen_t n = sizeof error;

    f->connecting = false;
    getsockopt(f->io.fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (error != 0) {
        f->read_paused = true;
        f->ended(f, error);
        return;
    }
    flow_run(f);
}

static void flow_ready(struct loop_io *io, uint32_t events)
{
    struct flow *f = io->owner;

    if (f->connecting) {
        flow_connected(f);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !f->read_paused)
        flow_read(f);
    else if (events & (EPOLLHUP | EPOLLERR) && f->read_paused && !(events & EPOLLOUT))
        loop_forget(io); /* nobody reads: told when somebody does */
    if (f->io.fd >= 0 && !f->connecting && events & EPOLLOUT)
        flow_run(f);
}

void flow_pause_reading(struct flow *f, bool paused)
{
    f->read_paused = paused;
    if (f->io.fd >= 0)
        flow_watch(f);
}

/* ---- opening ---- */

void flow_open(struct flow *f, int fd)
{
    int one = 1;

    f->io = (struct loop_io){.fd = fd, .ready = flow_ready, .owner = f};
    f->timer = (struct loop_timer){.fire = flow_on_timer, .owner = f};
    f->connecting = f->running = f->read_paused = false;
    f->n_steps = f->at = 0;
    f->read_max = 0;
    buf_clear(&f->out);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    flow_watch(f);
}

void flow_connect(struct flow *f, uint16_t port, int receive_buffer)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        perror("torture: socket");
        exit(2);
    }
    if (receive_buffer > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    flow_open(f, fd);
    f->connecting = true;
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS) {
        perror("torture: connect");
        exit(2);
    }
    flow_watch(f);
}
