/* relay: passes bytes between a client and a pod and looks at none of them: one recv and one send in each
 * direction, level-triggered epoll, nothing else. What it costs is the kernel's part of a proxy that passes
 * on each read at once.
 *
 *   --port P    where clients connect; each connection has one to the pod
 *   --to P      the pod's
 */
#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES (64 * 1024)
#define N_EVENTS   64

struct pair;

/* One end of a pair; fd -1: the listener's only end has no other, and a pair that is over has none. */
struct side {
    int fd;
    struct pair *pair; /* NULL: the listener */
    struct side *other;
};

struct pair {
    struct side client, pod;
    struct pair *next_over;
};

static int epoll_fd;
static struct sockaddr_in pod;
static struct pair *over; /* freed after the events that may still name them */
static volatile sig_atomic_t stopped;
static char input[READ_BYTES];

static void watch(struct side *s)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};

    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s->fd, &e) < 0)
        bench_die("relay: epoll_ctl");
}

static void open_side(struct side *s, int fd, struct pair *pair, struct side *other)
{
    const int on = 1;

    *s = (struct side){fd, pair, other};
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    watch(s);
}

static void open_pair(int client_fd)
{
    const int pod_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pair *p = calloc(1, sizeof(*p));

    if (!p || pod_fd < 0 || connect(pod_fd, (const struct sockaddr *)&pod, sizeof(pod)) < 0)
        bench_die("relay: connect");
    open_side(&p->client, client_fd, p, &p->pod);
    open_side(&p->pod, pod_fd, p, &p->client);
}

static void close_pair(struct pair *p)
{
    (void)close(p->client.fd);
    (void)close(p->pod.fd);
    p->client.fd = p->pod.fd = -1;
    p->next_over = over;
    over = p;
}

static void accept_all(int listener)
{
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        open_pair(fd);
    if (errno != EAGAIN && errno != ECONNABORTED)
        bench_die("relay: accept");
}

/* Waits for the reader's room: load and sink always read on. */
static bool pass_on(struct side *s)
{
    const ssize_t n = recv(s->fd, input, sizeof(input), MSG_DONTWAIT);

    if (n <= 0)
        return n < 0 && errno == EAGAIN;
    return send(s->other->fd, input, (size_t)n, MSG_NOSIGNAL) == n;
}

static void run_event(struct side *s)
{
    if (!s->pair)
        accept_all(s->fd);
    else if (s->fd >= 0 && !pass_on(s))
        close_pair(s->pair);
}

static void run(struct side *listener)
{
    struct epoll_event events[N_EVENTS];

    watch(listener);
    while (!stopped) {
        const int n = epoll_wait(epoll_fd, events, N_EVENTS, -1);

        for (int i = 0; i < n; i++)
            run_event(events[i].data.ptr);
        for (struct pair *p; (p = over) != NULL; free(p))
            over = p->next_over;
    }
}

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static int port_of(const char *text)
{
    const long port = strtol(text, NULL, 10);

    return port > 0 && port <= UINT16_MAX ? (int)port : 0;
}

static const char usage[] = "usage: relay --port P --to P\n";

int main(int argc, char **argv)
{
    static const struct option list[] = {{"port", 1, NULL, 'p'}, {"to", 1, NULL, 't'}, {0}};
    struct side listener = {.fd = -1};
    int port = 0, to = 0, o;

    bench_help(argc, argv, usage);
    while ((o = getopt_long(argc, argv, "", list, NULL)) != -1) {
        if (o == '?')
            return 2;
        *(o == 'p' ? &port : &to) = port_of(optarg);
    }
    if (optind < argc || port == 0 || to == 0) {
        (void)bench_wrong("relay", "--port and --to need port numbers\n", usage);
        return 2;
    }
    bench_raise_descriptor_limit();
    (void)signal(SIGTERM, on_signal);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    pod = bench_loopback(to);
    listener.fd = bench_listen(port);
    run(&listener);
    return 0;
}
