/* turns: the clients of bench-ttft: plays the sessions of a regime (workload.h) against a router or straight
 * against pods, one connection a call, answers streamed, and prints what it saw as one JSON object. Times are
 * kept in model time: real time since the start, multiplied by the regime's scale. */
#include "bench.h"
#include "heap.h"
#include "mem.h"
#include "results.h"
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define RETRY_US     1000000 /* model time, after a 504, as its Retry-After says */
#define N_EVENTS     128
#define READ_BYTES   (64 * 1024)
#define ANSWER_BYTES (64 * 1024) /* of a whole answer; more is not one of ours */
#define PORTS_MAX    64

struct text {
    char *p;
    size_t n, cap;
};

struct turns;
struct session;

struct timer {
    struct heap_node at;
    void (*fire)(struct turns *t, struct timer *timer);
};

struct call {
    struct session *session;
    struct timer retry;
    unsigned index;
    int fd;
    struct text request; /* head and body, freed once sent */
    size_t sent_bytes;
    struct text answer;
    size_t head_bytes; /* of the answer; 0: not all there */
    int64_t issued_us, ttft_us;
};

struct session {
    struct timer wake;
    struct workload_place place;
    const struct workload_kind *kind;
    unsigned turns, calls_left;
    struct text messages; /* JSON, the conversation so far */
    struct text next;     /* what the first call's answer adds to it */
    struct call calls[WORKLOAD_CALLS_MAX];
};

struct turns {
    struct workload_regime regime;
    const char *model;
    bool send_session;
    unsigned ports[PORTS_MAX], n_ports, next_port;
    uint64_t seed, errors, issued, answered;
    int64_t start_ns;
    double scale;
    int epoll;
    struct heap timers;
    struct session *sessions;
    struct results results;
    struct results_series late; /* timers, in real time: high when the machine has no time for us */
    char read[READ_BYTES];
};

static int64_t model_us(const struct turns *t)
{
    return (int64_t)((double)(bench_now_ns() - t->start_ns) / 1000 * t->scale);
}

static void arm(struct turns *t, struct timer *timer, void (*fire)(struct turns *, struct timer *),
                int64_t due_us)
{
    timer->fire = fire;
    heap_push(&t->timers, &timer->at, (uint64_t)due_us);
}

static void text_add(struct text *to, const char *p, size_t n)
{
    if (to->n + n + 1 > to->cap) {
        to->cap = (to->n + n + 1) * 2;
        to->p = mem_array(to->p, to->cap, 1);
    }
    memcpy(to->p + to->n, p, n);
    to->n += n;
    to->p[to->n] = '\0';
}

static void text_put(struct text *to, const char *s)
{
    text_add(to, s, strlen(s));
}

static void text_free(struct text *text)
{
    mem_free(text->p);
    *text = (struct text){0};
}

/* ---- a request ---- */

/* Letters that no other message of the run has. */
static void put_user_text(struct text *to, const struct workload_place *place, size_t n)
{
    uint64_t bits = place->seed;
    char letters[WORKLOAD_BLOCK_BYTES];

    bits = workload_mix(bits ^ ((uint64_t)place->slot << 32 | place->life));
    bits = workload_mix(bits ^ ((uint64_t)place->turn << 32 | place->call));
    while (n > 0) {
        size_t some = n < sizeof(letters) ? n : sizeof(letters);

        for (size_t i = 0; i < some; i++) {
            if (i % 8 == 0)
                bits = workload_mix(bits);
            letters[i] = (char)('a' + ((bits >> (i % 8 * 8)) & 0xff) % 26);
        }
        text_add(to, letters, some);
        n -= some;
    }
}

static struct text make_body(const struct turns *t, const struct call *c)
{
    struct session *s = c->session;
    struct workload_place place = s->place;
    struct text body = {0}, message = {0};
    char start[256];

    place.call = c->index;
    (void)snprintf(start, sizeof(start), "{\"model\":\"%s\",\"stream\":true,\"max_tokens\":%u,\"messages\":[",
                   t->model, s->kind->chunks);
    text_put(&message,
             s->messages.n > 0 ? ",{\"role\":\"user\",\"content\":\"" : "{\"role\":\"user\",\"content\":\"");
    put_user_text(&message, &place, workload_user_bytes(s->kind, &place));
    text_put(&message, "\"}");
    text_put(&body, start);
    if (s->messages.n > 0)
        text_add(&body, s->messages.p, s->messages.n);
    text_add(&body, message.p, message.n);
    text_put(&body, "]}");
    if (c->index == 0) {
        s->next.n = 0;
        text_add(&s->next, message.p, message.n);
    }
    text_free(&message);
    return body;
}

static void make_request(const struct turns *t, struct call *c)
{
    struct text body = make_body(t, c);
    char head[512], session[64] = "";

    if (t->send_session)
        (void)snprintf(session, sizeof(session), "X-Session-ID: s%u-%u\r\n", c->session->place.slot,
                       c->session->place.life);
    (void)snprintf(head, sizeof(head),
                   "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n%s"
                   "Content-Length: %zu\r\n\r\n",
                   session, body.n);
    c->request.n = 0;
    text_put(&c->request, head);
    text_add(&c->request, body.p, body.n);
    text_free(&body);
}

/* ---- a connection ---- */

static void watch(const struct turns *t, struct call *c, int how, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = c};

    if (epoll_ctl(t->epoll, how, c->fd, &e) < 0)
        bench_die("turns: epoll_ctl");
}

/* Closed by a reset, so that thousands of calls leave no port waiting. */
static void call_close(struct call *c)
{
    const struct linger at_once = {.l_onoff = 1};

    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    (void)close(c->fd);
    c->fd = -1;
    text_free(&c->request);
}

static void call_send(struct turns *t, struct call *c)
{
    const struct sockaddr_in to = bench_loopback((int)t->ports[t->next_port++ % t->n_ports]);
    const int on = 1;

    make_request(t, c);
    c->sent_bytes = c->head_bytes = c->answer.n = 0;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        bench_die("turns: socket");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(c->fd, (const struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
        bench_die("turns: connect");
    watch(t, c, EPOLL_CTL_ADD, EPOLLOUT);
}

static void call_retry(struct turns *t, struct timer *timer)
{
    call_send(t, CONTAINER_OF(timer, struct call, retry));
}

static void call_failed(struct turns *t, struct call *c, int status)
{
    call_close(c);
    if (status == 504)
        t->results.failed += results_open(&t->results, model_us(t));
    else
        t->errors++;
    arm(t, &c->retry, call_retry, model_us(t) + RETRY_US);
}

/* ---- sessions ---- */

static void session_wake(struct turns *t, struct timer *timer)
{
    struct session *s = CONTAINER_OF(timer, struct session, wake);

    s->calls_left = s->kind->calls;
    for (unsigned i = 0; i < s->kind->calls; i++) {
        struct call *c = &s->calls[i];

        c->session = s;
        c->index = i;
        c->issued_us = model_us(t);
        t->issued++;
        call_send(t, c);
    }
}

static void session_begin(struct turns *t, struct session *s, int64_t due_us)
{
    s->kind = workload_kind_of(&t->regime, s->place.slot);
    s->place.turn = s->place.call = 0;
    s->turns = workload_turns(s->kind, &s->place);
    s->messages.n = 0;
    arm(t, &s->wake, session_wake, due_us);
}

static void session_turn_over(struct turns *t, struct session *s)
{
    int64_t due_us = model_us(t) + workload_pause_us(s->kind, &s->place);

    text_add(&s->messages, s->next.p, s->next.n);
    if (++s->place.turn < s->turns) {
        arm(t, &s->wake, session_wake, due_us);
        return;
    }
    s->place.life++;
    session_begin(t, s, due_us);
}

/* ---- an answer ---- */

static uint64_t number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at == NULL ? 0 : strtoull(at + strlen(name), NULL, 10);
}

/* The texts of all chunks, one after the other; they hold letters and blanks alone. */
static void put_answer_text(struct text *to, const char *at)
{
    static const char name[] = "\"content\":\"";

    while ((at = strstr(at, name)) != NULL) {
        const char *end = strchr(at + strlen(name), '"');

        if (end == NULL)
            return;
        text_add(to, at + strlen(name), (size_t)(end - at) - strlen(name));
        at = end;
    }
}

static void call_answered(struct turns *t, struct call *c)
{
    struct session *s = c->session;
    const char *body = c->answer.p + c->head_bytes;

    t->answered++;
    if (results_open(&t->results, model_us(t)))
        results_answered(&t->results, s->place.turn == 0, c->ttft_us,
                         number_after(body, "\"prompt_tokens\":"), number_after(body, "\"cached_tokens\":"));
    if (c->index == 0) {
        text_put(&s->next, ",{\"role\":\"assistant\",\"content\":\"");
        put_answer_text(&s->next, body);
        text_put(&s->next, "\"}");
    }
    call_close(c);
    if (--s->calls_left == 0)
        session_turn_over(t, s);
}

static bool is_whole(const struct call *c)
{
    return c->answer.n >= 5 && memcmp(c->answer.p + c->answer.n - 5, "0\r\n\r\n", 5) == 0;
}

static void call_got(struct turns *t, struct call *c)
{
    if (c->head_bytes == 0) {
        c->head_bytes = bench_head_bytes(c->answer.p, c->answer.n);
        if (c->head_bytes == 0)
            return;
        if (strncmp(c->answer.p, "HTTP/1.1 200", 12) != 0) {
            call_failed(t, c, (int)strtol(c->answer.p + 9, NULL, 10));
            return;
        }
        c->ttft_us = 0;
    }
    if (c->ttft_us == 0 && strstr(c->answer.p + c->head_bytes, "data:") != NULL)
        c->ttft_us = model_us(t) - c->issued_us;
    if (is_whole(c))
        call_answered(t, c);
}

static void call_read(struct turns *t, struct call *c)
{
    ssize_t n = read(c->fd, t->read, sizeof(t->read));

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || c->answer.n + (size_t)n > ANSWER_BYTES) {
        call_failed(t, c, 0);
        return;
    }
    text_add(&c->answer, t->read, (size_t)n);
    call_got(t, c);
}

static void call_write(struct turns *t, struct call *c)
{
    ssize_t n = send(c->fd, c->request.p + c->sent_bytes, c->request.n - c->sent_bytes, MSG_NOSIGNAL);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        call_failed(t, c, 0);
        return;
    }
    c->sent_bytes += (size_t)n;
    if (c->sent_bytes == c->request.n)
        watch(t, c, EPOLL_CTL_MOD, EPOLLIN);
}

/* ---- the run ---- */

static void fire_due(struct turns *t)
{
    while (t->timers.n > 0 && (int64_t)heap_min_key(&t->timers) <= model_us(t)) {
        struct heap_node *node = heap_min(&t->timers);
        struct timer *timer = CONTAINER_OF(node, struct timer, at);

        results_add(&t->late,
                    (int64_t)((double)(model_us(t) - (int64_t)heap_min_key(&t->timers)) / t->scale));
        heap_remove(&t->timers, node);
        timer->fire(t, timer);
    }
}

static struct timespec until_next(const struct turns *t)
{
    int64_t due_us = t->results.until_us;

    if (t->timers.n > 0 && (int64_t)heap_min_key(&t->timers) < due_us)
        due_us = (int64_t)heap_min_key(&t->timers);
    due_us -= model_us(t);
    return bench_timespec(due_us > 0 ? (int64_t)((double)due_us * 1000 / t->scale) : 0);
}

static void play(struct turns *t)
{
    struct epoll_event events[N_EVENTS];

    while (model_us(t) < t->results.until_us) {
        const struct timespec wait = until_next(t);
        int n = epoll_pwait2(t->epoll, events, N_EVENTS, &wait, NULL);

        for (int i = 0; i < n; i++) {
            struct call *c = events[i].data.ptr;

            if ((events[i].events & EPOLLOUT) != 0)
                call_write(t, c);
            else
                call_read(t, c);
        }
        fire_due(t);
    }
}

static void set_up(struct turns *t)
{
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (t->epoll < 0)
        bench_die("turns: epoll_create1");
    t->start_ns = bench_now_ns();
    t->sessions = mem_array(NULL, t->regime.sessions, sizeof(*t->sessions));
    for (unsigned i = 0; i < t->regime.sessions; i++) {
        t->sessions[i] = (struct session){.place = {.seed = t->seed, .slot = i}};
        session_begin(t, &t->sessions[i], workload_start_us(&t->sessions[i].place));
    }
}

static const char usage[] =
    "usage: turns --ports PORT,PORT... --regime NAME [--model NAME] [--seed N] [--no-session]\n"
    "             [--warmup S] [--seconds S] [--scale F] [--sessions N]   (S in model time)\n"
    "regimes: long-above long-below short-above short-below agents\n";

static bool wrong(const char *what, const char *text)
{
    return bench_wrong("turns", what, text);
}

static bool read_ports(struct turns *t, const char *list)
{
    const char *at = list;
    char *end;

    for (t->n_ports = 0; t->n_ports < PORTS_MAX; at = end + 1) {
        const unsigned long port = strtoul(at, &end, 10);

        if (end == at || port == 0 || port > UINT16_MAX || (*end != ',' && *end != '\0'))
            break;
        t->ports[t->n_ports++] = (unsigned)port;
        if (*end == '\0')
            return true;
    }
    return wrong("--ports needs port numbers, separated by commas: ", list);
}

static const struct option long_options[] = {
    {"ports", 1, NULL, 'p'},   {"regime", 1, NULL, 'r'},     {"model", 1, NULL, 'm'},
    {"seed", 1, NULL, 's'},    {"no-session", 0, NULL, 'n'}, {"warmup", 1, NULL, 'w'},
    {"seconds", 1, NULL, 'd'}, {"scale", 1, NULL, 'f'},      {"sessions", 1, NULL, 'S'},
    {NULL, 0, NULL, 0},
};

static bool read_options(struct turns *t, int argc, char **argv)
{
    double warmup_s = -1, seconds = -1;
    unsigned sessions = 0;

    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        const struct workload_regime *r = c == 'r' ? workload_find(optarg) : NULL;

        switch (c) {
        case 'p':
            if (!read_ports(t, optarg))
                return false;
            break;
        case 'r':
            if (r == NULL)
                return wrong("no such regime: ", optarg);
            t->regime = *r;
            break;
        case 'm':
            t->model = optarg;
            break;
        case 's':
            t->seed = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            t->send_session = false;
            break;
        case 'w':
            warmup_s = strtod(optarg, NULL);
            break;
        case 'd':
            seconds = strtod(optarg, NULL);
            break;
        case 'f':
            t->scale = strtod(optarg, NULL);
            break;
        case 'S':
            sessions = (unsigned)strtoul(optarg, NULL, 10);
            break;
        default:
            return false;
        }
    }
    t->regime.sessions = sessions > 0 ? sessions : t->regime.sessions;
    t->scale = t->scale > 0 ? t->scale : t->regime.scale;
    warmup_s = warmup_s < 0 ? t->regime.warmup_s : warmup_s;
    seconds = seconds < 0 ? t->regime.window_s : seconds;
    t->results.from_us = (int64_t)(warmup_s * 1e6);
    t->results.until_us = (int64_t)((warmup_s + seconds) * 1e6);
    if (optind < argc)
        return wrong("not an option: ", argv[optind]);
    if (t->n_ports == 0 || t->regime.name == NULL)
        return wrong("--ports and --regime are needed", "");
    return seconds > 0 || wrong("--seconds needs a number above 0", "");
}

int main(int argc, char **argv)
{
    static struct turns t = {.model = "sim", .seed = 1, .send_session = true};

    bench_help(argc, argv, usage);
    if (!read_options(&t, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    bench_raise_descriptor_limit();
    set_up(&t);
    play(&t);
    printf("{\"run\": \"real\", \"regime\": \"%s\", \"seed\": %llu, \"sessions\": %u, \"scale\": %.1f, "
           "\"issued\": %llu, \"answered\": %llu, \"errors\": %llu",
           t.regime.name, (unsigned long long)t.seed, t.regime.sessions, t.scale,
           (unsigned long long)t.issued, (unsigned long long)t.answered, (unsigned long long)t.errors);
    results_print(&t.results);
    results_print_series("late", &t.late);
    printf("}\n");
    return 0;
}
