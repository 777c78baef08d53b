/* The router as a process: starting it, its two logs, and asking it what it counts. */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUTER_LAST_LINES   40
#define ROUTER_GET_LIMIT_US (5 * 1000 * 1000)

struct router_log {
    struct loop_io io;
    struct buf in;
    void (*line)(char *line, size_t n);
};

uint16_t router_port;
pid_t router_pid;

static uint16_t router_ports[3];
static struct router_log router_out, router_err;
static char router_last[ROUTER_LAST_LINES][256];
static unsigned router_n_last;

/* ---- logs ---- */

static void router_err_line(char *line, size_t n)
{
    static const char *const names[] = {"listener=inference", "listener=metrics", "listener=debug"};
    const char *port = strstr(line, " port=");

    snprintf(router_last[router_n_last++ % ROUTER_LAST_LINES], sizeof *router_last, "%.*s", (int)n, line);
    for (unsigned i = 0; i < 3; i++)
        if (port != NULL && strstr(line, names[i]) != NULL && strstr(line, "listening") != NULL)
            router_ports[i] = (uint16_t)strtoul(port + 6, NULL, 10);
    if (strstr(line, "internal error") != NULL || strstr(line, "Sanitizer") != NULL ||
        strstr(line, "runtime error") != NULL)
        oracle_complain(NULL, "the router says: %s", line);
    if (settings.verbose)
        fprintf(stderr, "%s\n", line);
    router_port = router_ports[ROUTER_INFERENCE];
}

void router_show_last_lines(void)
{
    const unsigned first = router_n_last > ROUTER_LAST_LINES ? router_n_last - ROUTER_LAST_LINES : 0;

    for (unsigned i = first; i < router_n_last; i++)
        fprintf(stderr, "    | %s\n", router_last[i % ROUTER_LAST_LINES]);
}

static void router_log_lines(struct router_log *log)
{
    char *end;

    while ((end = memchr(buf_bytes(&log->in), '\n', buf_size(&log->in))) != NULL) {
        char *line = log->in.data + log->in.off;

        *end = '\0';
        log->line(line, (size_t)(end - line));
        buf_take(&log->in, (size_t)(end + 1 - line));
    }
}

static void router_log_ready(struct loop_io *io, uint32_t events)
{
    static char bytes[256 * 1024];
    struct router_log *log = io->owner;
    const ssize_t n = read(io->fd, bytes, sizeof bytes);

    (void)events;
    if (n > 0) {
        buf_put(&log->in, bytes, (size_t)n);
        router_log_lines(log);
    } else if (n == 0 || errno != EAGAIN) {
        loop_forget(io);
        close(io->fd);
        io->fd = -1;
    }
}

static void router_log_open(struct router_log *log, int fd, void (*line)(char *line, size_t n))
{
    buf_clear(&log->in);
    log->io = (struct loop_io){.fd = fd, .ready = router_log_ready, .owner = log};
    log->line = line;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    loop_watch(&log->io, EPOLLIN);
}

static void router_log_close(struct router_log *log)
{
    if (log->io.fd >= 0) {
        loop_forget(&log->io);
        close(log->io.fd);
    }
    log->io.fd = -1;
    buf_free(&log->in);
}

void router_block_logs(bool blocked)
{
    struct router_log *logs[] = {&router_out, &router_err};

    for (unsigned i = 0; i < 2; i++) {
        if (logs[i]->io.fd < 0)
            continue;
        if (blocked)
            loop_forget(&logs[i]->io);
        else
            loop_watch(&logs[i]->io, EPOLLIN);
    }
}

/* ---- the process ---- */

static void router_exec(const char *ini, bool boost, bool text_log, unsigned queue_max, int out, int err)
{
    char queue[48];
    const char *const env[] = {"PATH=/usr/bin:/bin",
                               "ROUTER_BIND=127.0.0.1",
                               boost ? "ENABLE_SESSION_BOOST=true" : "ENABLE_SESSION_BOOST=false",
                               text_log ? "ACCESS_LOG_FORMAT=text" : "ACCESS_LOG_FORMAT=json",
                               queue,
                               "METRICS_SCRAPE_INTERVAL=100ms",
                               "METRICS_SCRAPE_TIMEOUT=300ms",
                               "CLIENT_HEADER_TIMEOUT=3s",
                               "CLIENT_BODY_TIMEOUT=1500ms",
                               "CLIENT_WRITE_TIMEOUT=1s",
                               "UPSTREAM_CONNECT_TIMEOUT=300ms",
                               "UPSTREAM_HEADER_TIMEOUT=1500ms",
                               "UPSTREAM_BODY_TIMEOUT=1500ms",
                               "UPSTREAM_KEEPALIVE=400ms",
                               "MAX_HEADER_BYTES=64KiB",
                               "MAX_BODY_BYTES=512KiB",
                               "DRAIN_TIMEOUT=20s",
                               "ASAN_OPTIONS=abort_on_error=1",
                               NULL};
    const char *const args[] = {settings.router, "--port", "0", "--metrics-port", "0", "--debug-port", "0",
                                "--config",      ini,      NULL};

    snprintf(queue, sizeof queue, "QUEUE_MAX_REQUESTS=%u", queue_max);
    dup2(out, 1);
    dup2(err, 2);
    execve(settings.router, (char *const *)(uintptr_t)args, (char *const *)(uintptr_t)env);
    perror(settings.router);
    _exit(127);
}

void router_start(const char *ini, bool boost, bool text_log, unsigned queue_max)
{
    int out[2], err[2];

    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 || (router_pid = fork()) < 0) {
        perror("torture: cannot start the router");
        exit(2);
    }
    if (router_pid == 0)
        router_exec(ini, boost, text_log, queue_max, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    memset(router_ports, 0, sizeof router_ports);
    router_port = 0;
    router_n_last = 0;
    router_log_open(&router_out, out[0], oracle_log_line);
    router_log_open(&router_err, err[0], router_err_line);
}

bool router_is_up(void)
{
    return router_ports[0] != 0 && router_ports[1] != 0 && router_ports[2] != 0;
}

bool router_is_alive(int *status)
{
    return router_pid > 0 && waitpid(router_pid, status, WNOHANG) == 0;
}

static void router_read_rest(struct router_log *log)
{
    while (log->io.fd >= 0) {
        const size_t before = buf_size(&log->in);

        router_log_ready(&log->io, 0);
        if (log->io.fd >= 0 && buf_size(&log->in) == before)
            break;
    }
}

void router_close(void)
{
    router_read_rest(&router_out);
    router_read_rest(&router_err);
    router_log_close(&router_out);
    router_log_close(&router_err);
    router_port = 0;
    router_pid = 0;
}

/* ---- asking ---- */

struct router_question {
    struct flow flow;
    struct wire wire;
    struct loop_timer limit;
    router_got_fn *got;
};

static void router_answer(struct router_question *q, unsigned status)
{
    router_got_fn *got = q->got;

    loop_disarm(&q->limit);
    flow_close(&q->flow, false);
    if (got != NULL)
        got(status, buf_bytes(&q->wire.body), buf_size(&q->wire.body));
    flow_free(&q->flow);
    wire_free(&q->wire);
    loop_free_later(q);
}

static void router_question_bytes(struct flow *f, const char *p, size_t n)
{
    struct router_question *q = f->owner;

    buf_put(&q->wire.in, p, n);
    if (!wire_read(&q->wire))
        return;
    if (q->wire.state == WIRE_BAD)
        oracle_complain(NULL, "a bad answer from an admin port: %s", q->wire.why);
    router_answer(q, q->wire.state == WIRE_DONE ? q->wire.status : 0);
}

static void router_question_ended(struct flow *f, int error)
{
    (void)error;
    router_answer(f->owner, 0);
}

static void router_question_late(struct loop_timer *t)
{
    router_answer(t->owner, 0);
}

static void router_question_played(struct flow *f)
{
    (void)f;
}

static struct router_question *router_ask(enum router_port_kind port, const char *p, size_t n,
                                          router_got_fn *got)
{
    struct router_question *q = util_alloc(sizeof *q);

    q->got = got;
    q->flow.owner = q;
    q->flow.bytes = router_question_bytes;
    q->flow.ended = router_question_ended;
    q->flow.played = router_question_played;
    q->limit = (struct loop_timer){.fire = router_question_late, .owner = q};
    wire_start(&q->wire, false, false);
    flow_connect(&q->flow, router_ports[port], 0);
    flow_send(&q->flow, p, n);
    loop_arm(&q->limit, util_now_us() + ROUTER_GET_LIMIT_US);
    flow_play(&q->flow);
    return q;
}

void router_get(enum router_port_kind port, const char *path, router_got_fn *got)
{
    char request[256];
    const int n =
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", path);

    router_ask(port, request, (size_t)n, got);
}

void router_send_junk(enum router_port_kind port, const char *p, size_t n)
{
    router_ask(port, p, n, NULL);
}
