/* listen: accepting connections in batches. Stops accepting while the owner says so, and for a moment when
 * the process is out of file descriptors; afterwards the sockets take turns. Owns its sockets, not the
 * connections. */
#ifndef LISTEN_H
#define LISTEN_H

#include <netinet/in.h>

#include "loop.h"

#define LISTEN_SOCKETS  2 /* IPv4 and IPv6 */
#define LISTEN_BATCH    64
#define LISTEN_TEXT_MAX 64

struct listen_socket {
    struct loop_watch watch;
    struct listener *owner;
    int fd;
};

struct listener {
    struct loop *loop;
    struct listen_socket sockets[LISTEN_SOCKETS];
    size_t n, last; /* last: that took a connection */
    uint16_t port;  /* the real one */
    bool paused;
    bool watching;            /* neither paused nor resting */
    struct wheel_timer retry; /* after EMFILE */
    int64_t complained_us;    /* the last log line about EMFILE */
    /* Takes over the non-blocking fd. May call listen_pause. */
    void (*on_accept)(struct listener *l, int fd, const struct sockaddr *from);
    void *arg;
};

/* bind_text: "" = all addresses of both families, "loopback" = 127.0.0.1 and ::1, else one address literal.
 * port 0 = any free port, the same for both families. False: *error says what failed (mem_free). */
MUST_CHECK bool listen_open(struct listener *l, struct loop *loop, const char *bind_text, uint16_t port,
                            char **error);
void listen_pause(struct listener *l, bool paused);
/* Before a close, which would reset them: accepts the connections that wait, a backlog of them at most, and
 * none while paused. */
void listen_take_waiting(struct listener *l);
void listen_close(struct listener *l);
/* "127.0.0.1", "::1": an address without port. */
void listen_address_text(const struct sockaddr *a, char out[LISTEN_TEXT_MAX]);

#endif
