/* sink: a pod that costs next to nothing, so that a benchmark measures the proxy before it. One thread,
 * epoll.
 *
 *   POST /v1/...      a chat.completion of 1 KB; with "stream":true in the first 4 KB of the body, SSE chunks
 * of 200 B with their send time, each stream one every --interval-ms, --chunks of them (0: until closed) GET
 * /metrics      the gauges of an idle vLLM GET /v1/models    the model --model
 *
 * The streams advance in --phases groups, spread over the interval; an engine sends a step's tokens in one go
 * too. It does not simulate an engine; that is vllm-sim.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_PORTS     16
#define READ_BYTES    (256 * 1024)
#define PEEK_BYTES    4096
#define ANSWER_BYTES  1024
#define CHUNK_PAYLOAD 200
#define N_EVENTS      256

/* What is read next on a connection. */
enum state { HEAD, BODY, STREAMING };

struct conn {
    int fd;
    enum state state;
    enum bench_body framing;
    bool listener, looked, streams; /* looked: for what the body asks */
    char tail[5];
    uint64_t left_bytes;
    char *partial; /* an incomplete head, else NULL */
    size_t partial_bytes;
    struct phase *phase; /* while streaming */
    size_t place;        /* in phase->conns */
    uint32_t chunks;
};

struct phase {
    struct conn **conns;
    size_t n, room;
};

static struct {
    int ports[MAX_PORTS];
    size_t n_ports;
    int interval_ms, n_phases;
    uint32_t chunks;
    const char *model;
} options = {.interval_ms = 50, .model = "bench"};

static int epoll_fd;
static volatile sig_atomic_t stopped;
static char input[READ_BYTES + PEEK_BYTES];
static char answer[2 * ANSWER_BYTES], metrics[2048], models[512], chunk[CHUNK_PAYLOAD + 8];
static size_t answer_bytes, metrics_bytes, models_bytes, chunk_bytes;
static char *stamp; /* in chunk */
static struct phase *phases;
static size_t next_phase;
static uint64_t n_requests, n_chunks, n_late;

/* ---- what is sent ---- */

static size_t make_answer(char *to, size_t room, const char *type, const char *body)
{
    return (size_t)snprintf(to, room, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
                            type, strlen(body), body);
}

static void make_completion(void)
{
    char body[ANSWER_BYTES + 1];
    const char *end =
        "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":180,\"completion_tokens\":120,"
        "\"total_tokens\":300}}";
    size_t n =
        (size_t)snprintf(body, sizeof(body),
                         "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,"
                         "\"model\":\"%s\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                         "\"content\":\"",
                         options.model);

    for (; n < ANSWER_BYTES - strlen(end); n++)
        body[n] = "the answer goes on "[n % 19];
    memcpy(body + n, end, strlen(end) + 1);
    answer_bytes = make_answer(answer, sizeof(answer), "application/json", body);
}

static void make_metrics(void)
{
    static const char *const gauges[] = {"num_requests_running", "num_requests_waiting",
                                         "kv_cache_usage_perc", "gpu_cache_usage_perc"};
    char body[1500];
    size_t n = 0;

    for (size_t i = 0; i < sizeof(gauges) / sizeof(*gauges); i++)
        n += (size_t)snprintf(body + n, sizeof(body) - n,
                              "# HELP vllm:%s of an idle engine\n# TYPE vllm:%s gauge\n"
                              "vllm:%s{engine=\"0\",model_name=\"%s\"} 0.0\n",
                              gauges[i], gauges[i], gauges[i], options.model);
    metrics_bytes = make_answer(metrics, sizeof(metrics), "text/plain; version=0.0.4", body);
}

static void make_models(void)
{
    char body[300];

    (void)snprintf(body, sizeof(body),
                   "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\"}]}", options.model);
    models_bytes = make_answer(models, sizeof(models), "application/json", body);
}

static void make_chunk(void)
{
    char payload[CHUNK_PAYLOAD + 1];
    size_t n = (size_t)snprintf(payload, sizeof(payload),
                                "data: {" BENCH_MARK
                                "%0*d,\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\","
                                "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"",
                                BENCH_STAMP_DIGITS, 0);
    const char *end = "\"}}]}\n\n";

    while (n < CHUNK_PAYLOAD - strlen(end))
        payload[n++] = 'x';
    memcpy(payload + n, end, strlen(end) + 1);
    chunk_bytes = (size_t)snprintf(chunk, sizeof(chunk), "%x\r\n%s\r\n", CHUNK_PAYLOAD, payload);
    stamp = strstr(chunk, BENCH_MARK) + BENCH_MARK_BYTES;
}

/* ---- connections ---- */

static void leave_phase(struct conn *c)
{
    struct phase *p = c->phase;

    if (!p)
        return;
    p->conns[c->place] = p->conns[--p->n];
    p->conns[c->place]->place = c->place;
    c->phase = NULL;
}

static void close_conn(struct conn *c)
{
    leave_phase(c);
    (void)close(c->fd);
    free(c->partial);
    free(c);
}

static bool send_all(struct conn *c, const char *p, size_t n)
{
    return send(c->fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static bool start_stream(struct conn *c)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                               "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    struct phase *p = &phases[next_phase++ % (size_t)options.n_phases];

    if (p->n == p->room) {
        p->room = p->room ? 2 * p->room : 16;
        p->conns = realloc(p->conns, p->room * sizeof(*p->conns));
        if (!p->conns)
            bench_die("memory");
    }
    c->place = p->n;
    c->phase = p;
    c->chunks = 0;
    c->state = STREAMING;
    p->conns[p->n++] = c;
    return send_all(c, head, sizeof(head) - 1);
}

static bool end_request(struct conn *c)
{
    n_requests++;
    if (c->streams)
        return start_stream(c);
    c->state = HEAD;
    return send_all(c, answer, answer_bytes);
}

static bool send_get(struct conn *c, const char *head)
{
    c->state = HEAD;
    if (strncmp(head, "GET /metrics", 12) == 0)
        return send_all(c, metrics, metrics_bytes);
    return send_all(c, models, models_bytes);
}

static void look_for_stream(struct conn *c, const char *p, size_t n)
{
    if (n > PEEK_BYTES)
        n = PEEK_BYTES;
    c->looked = true;
    c->streams = memmem(p, n, "\"stream\":true", 13) || memmem(p, n, "\"stream\": true", 14);
}

/* Some of the body; what a client sends after its end is not expected. */
static bool take_body(struct conn *c, const char *p, size_t n)
{
    if (n > 0 && !c->looked)
        look_for_stream(c, p, n);
    if (c->framing == BENCH_CHUNKED)
        return !bench_chunked_end(c->tail, p, n) || end_request(c);
    if (n > c->left_bytes)
        return false;
    c->left_bytes -= n;
    return c->left_bytes > 0 || end_request(c);
}

static bool keep_partial(struct conn *c, const char *p, size_t n)
{
    if (n > PEEK_BYTES)
        return false;
    if (!c->partial && !(c->partial = malloc(PEEK_BYTES)))
        bench_die("memory");
    memcpy(c->partial, p, n);
    c->partial_bytes = n;
    return true;
}

static bool take_head(struct conn *c, const char *p, size_t n)
{
    const size_t head_bytes = bench_head_bytes(p, n);

    if (head_bytes == 0)
        return keep_partial(c, p, n);
    free(c->partial);
    c->partial = NULL;
    c->partial_bytes = 0;
    if (strncmp(p, "GET ", 4) == 0)
        return send_get(c, p);
    c->framing = bench_framing(p, head_bytes, &c->left_bytes);
    c->state = BODY;
    c->looked = c->streams = false;
    memset(c->tail, 0, sizeof(c->tail));
    return take_body(c, p + head_bytes, n - head_bytes);
}

static bool read_conn(struct conn *c)
{
    const ssize_t n = read(c->fd, input + c->partial_bytes, READ_BYTES);

    if (n < 0 && errno == EAGAIN)
        return true;
    if (n <= 0)
        return false;
    switch (c->state) {
    case HEAD:
        if (c->partial)
            memcpy(input, c->partial, c->partial_bytes);
        return take_head(c, input, c->partial_bytes + (size_t)n);
    case BODY:
        return take_body(c, input, (size_t)n);
    default:
        return true;
    }
}

/* ---- streams ---- */

static void put_stamp(int64_t ns)
{
    for (int i = BENCH_STAMP_DIGITS - 1; i >= 0; i--, ns /= 10)
        stamp[i] = (char)('0' + ns % 10);
}

static bool end_stream(struct conn *c)
{
    static const char end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

    leave_phase(c);
    c->state = HEAD;
    return send_all(c, end, sizeof(end) - 1);
}

/* False: the connection is gone. */
static bool send_chunk(struct conn *c)
{
    ssize_t n;

    put_stamp(bench_now_ns());
    n = send(c->fd, chunk, chunk_bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) {
        n_late++;
        return true;
    }
    if (n != (ssize_t)chunk_bytes)
        return false;
    n_chunks++;
    return ++c->chunks != options.chunks || end_stream(c);
}

/* From the end: a stream that leaves is replaced by one already served. */
static void run_phase(struct phase *p)
{
    for (size_t i = p->n; i-- > 0;) {
        struct conn *c = p->conns[i];

        if (!send_chunk(c))
            close_conn(c);
    }
}

/* ---- the loop ---- */

static void watch(struct conn *c)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};

    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e) < 0)
        bench_die("epoll_ctl");
}

static struct conn *new_conn(int fd, bool listener)
{
    struct conn *c = calloc(1, sizeof(*c));

    if (!c)
        bench_die("memory");
    c->fd = fd;
    c->listener = listener;
    watch(c);
    return c;
}

static void accept_all(const struct conn *l)
{
    const int on = 1;
    int fd;

    while ((fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)new_conn(fd, false);
    }
    if (errno != EAGAIN && errno != ECONNABORTED)
        bench_die("accept");
}

static void run_events(const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        struct conn *c = events[i].data.ptr;

        if (c->listener)
            accept_all(c);
        else if (!read_conn(c))
            close_conn(c);
    }
}

/* Phase i of n is due at i/n of each interval. A late turn runs what it missed, one phase after the other. */
static void run(void)
{
    const int64_t step_ns = (int64_t)options.interval_ms * 1000000 / options.n_phases;
    struct epoll_event events[N_EVENTS];
    int64_t due_ns = bench_now_ns();

    for (size_t turn = 0; !stopped;) {
        int64_t now_ns = bench_now_ns();
        struct timespec wait = bench_timespec(due_ns > now_ns ? due_ns - now_ns : 0);

        run_events(events, epoll_pwait2(epoll_fd, events, N_EVENTS, &wait, NULL));
        for (now_ns = bench_now_ns(); due_ns <= now_ns; due_ns += step_ns)
            run_phase(&phases[turn++ % (size_t)options.n_phases]);
    }
}

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

static const char usage[] =
    "usage: sink --port P [--port P ...] [--model NAME] [--interval-ms N] [--phases N] [--chunks N]\n";

/* getopt_long said what else is wrong. */
static bool options_are_sane(int argc, char **argv)
{
    if (optind < argc)
        return bench_wrong("sink", "not an option: ", argv[optind]);
    if (options.n_ports == 0)
        return bench_wrong("sink", "--port is needed", "");
    return (options.interval_ms > 0 && options.n_phases > 0) ||
           bench_wrong("sink", "--interval-ms and --phases need a number above 0", "");
}

static bool read_options(int argc, char **argv)
{
    static const struct option list[] = {{"port", 1, NULL, 'p'},        {"model", 1, NULL, 'm'},
                                         {"interval-ms", 1, NULL, 'i'}, {"phases", 1, NULL, 'g'},
                                         {"chunks", 1, NULL, 'c'},      {0}};
    int o;

    while ((o = getopt_long(argc, argv, "", list, NULL)) != -1) {
        const int number = o == 'm' || o == '?' ? 0 : (int)strtol(optarg, NULL, 10);

        if (o == 'p' && options.n_ports == MAX_PORTS)
            return bench_wrong("sink", "too many --port: ", optarg);
        if (o == 'p')
            options.ports[options.n_ports++] = number;
        else if (o == 'm')
            options.model = optarg;
        else if (o == 'i')
            options.interval_ms = number;
        else if (o == 'g')
            options.n_phases = number;
        else if (o == 'c')
            options.chunks = (uint32_t)number;
        else
            return false;
    }
    if (options.n_phases == 0)
        options.n_phases = options.interval_ms;
    return options_are_sane(argc, argv);
}

int main(int argc, char **argv)
{
    bench_help(argc, argv, usage);
    if (!read_options(argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    bench_raise_descriptor_limit();
    (void)prctl(PR_SET_TIMERSLACK, 1UL);
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, on_signal);
    phases = calloc((size_t)options.n_phases, sizeof(*phases));
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!phases || epoll_fd < 0)
        bench_die("sink");
    make_completion();
    make_metrics();
    make_models();
    make_chunk();
    for (size_t i = 0; i < options.n_ports; i++)
        (void)new_conn(bench_listen(options.ports[i]), true);
    run();
    printf("{\"requests\":%llu,\"chunks\":%llu,\"late\":%llu}\n", (unsigned long long)n_requests,
           (unsigned long long)n_chunks, (unsigned long long)n_late);
    return 0;
}
