/* The router as a process: starting it, its two logs, and asking it what it counts. */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

static int64_t *router_clock; /* shared with the library that is loaded into the router */
static char router_clock_path[512];

void router_jump_clock(int64_t seconds)
{
    if (router_clock != NULL)
        *router_clock = seconds;
}

static void router_open_clock(void)
{
    const int64_t zero = 0;
    int fd;
    void *p;

    if (settings.preload == NULL || router_clock != NULL)
        return;
    snprintf(router_clock_path, sizeof router_clock_path, "%s/clock", settings.directory);
    fd = open(router_clock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &zero, sizeof zero) != sizeof zero) {
        perror(router_clock_path);
        exit(2);
    }
    p = mmap(NULL, sizeof zero, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED)
        router_clock = p;
}

void router_forget_clock(void)
{
    if (router_clock == NULL)
        return;
    munmap(router_clock, sizeof *router_clock);
    router_clock = NULL;
    unlink(router_clock_path);
}

static char *router_variable(const char *name, const char *value)
{
    struct buf text = {0};

    buf_printf(&text, "%s=%s", name, value);
    buf_put(&text, "", 1);
    return text.data;
}

static void router_exec(const struct router_start *how, int out, int err)
{
    char queue[24];
    const char *const args[] = {settings.router, "--port", "0",        "--metrics-port", "0",
                                "--debug-port",  "0",      "--config", how->ini,         NULL};
    char *env[32];
    unsigned n = 0;

    snprintf(queue, sizeof queue, "%u", how->queue_max);
    env[n++] = router_variable("PATH", "/usr/bin:/bin");
    env[n++] = router_variable("ROUTER_BIND", "127.0.0.1");
    env[n++] = router_variable("ENABLE_SESSION_BOOST", how->boost ? "true" : "false");
    env[n++] = router_variable("ACCESS_LOG_FORMAT", how->text_log ? "text" : "json");
    env[n++] = router_variable("ACCESS_LOG_OUTPUT", how->full_disk ? "/dev/full" : "stdout");
    env[n++] = router_variable("QUEUE_MAX_REQUESTS", queue);
    env[n++] = router_variable("METRICS_SCRAPE_INTERVAL", "100ms");
    env[n++] = router_variable("METRICS_SCRAPE_TIMEOUT", "300ms");
    env[n++] = router_variable("CLIENT_HEADER_TIMEOUT", "3s");
    env[n++] = router_variable("CLIENT_BODY_TIMEOUT", "1500ms");
    env[n++] = router_variable("CLIENT_WRITE_TIMEOUT", "1s");
    env[n++] = router_variable("UPSTREAM_CONNECT_TIMEOUT", "300ms");
    env[n++] = router_variable("UPSTREAM_HEADER_TIMEOUT", "1500ms");
    env[n++] = router_variable("UPSTREAM_BODY_TIMEOUT", "1500ms");
    env[n++] = router_variable("UPSTREAM_KEEPALIVE", "400ms");
    env[n++] = router_variable("MAX_HEADER_BYTES", "64KiB");
    env[n++] = router_variable("MAX_BODY_BYTES", "512KiB");
    env[n++] = router_variable("DRAIN_TIMEOUT", "20s");
    env[n++] = router_variable("ROUTER_RESOLV_CONF", dns_resolv_conf());
    env[n++] = router_variable("ROUTER_DNS_TTL_MIN", "50ms");
    env[n++] = router_variable("ROUTER_DNS_TTL_MAX", "200ms");
    env[n++] = router_variable("ASAN_OPTIONS", "abort_on_error=1:verify_asan_link_order=0");
    if (router_clock != NULL) {
        env[n++] = router_variable("LD_PRELOAD", settings.preload);
        env[n++] = router_variable("TORTURE_CLOCK", router_clock_path);
    }
    env[n] = NULL;
    if (how->open_files > 0) {
        const struct rlimit few = {how->open_files, how->open_files};

        setrlimit(RLIMIT_NOFILE, &few);
    }
    dup2(out, 1);
    dup2(err, 2);
    execve(settings.router, (char *const *)(uintptr_t)args, env);
    perror(settings.router);
    _exit(127);
}

void router_start(const struct router_start *how)
{
    int out[2], err[2];

    router_open_clock();
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 || (router_pid = fork()) < 0) {
        perror("torture: cannot start the router");
        exit(2);
    }
    if (router_pid == 0)
        router_exec(how, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    memset(router_ports, 0, sizeof router_ports);
    router_port = 0;
    router_n_last = 0;
    router_out.io.fd = -1;
    if (how->deaf)
        close(out[0]);
    else
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
