/* load: sends requests to a proxy (or straight to a pod) and prints what came back as one JSON object.
 *
 *   --mode closed   --active requests on their way all the time, over --connections connections used in turn
 *   --mode open     --rate requests a second, each timed from when it was due, also if no connection was free
 *   --mode sse      --connections streams at a time; the delay of each chunk is from the stamp that sink put
 * in to the kernel's, when it arrived at the socket: that load itself waits for its core, which it shares
 * with sink, is no delay of the proxy's
 *
 * Figures are taken in one window: --seconds after --warmup, or, with --requests N, all of N requests (SSE:
 * streams). At the window's ends it also reads the CPU time and memory of the processes given with --watch
 * NAME=PID, the busy time of each core and the machine's count of TCP segments: whoever takes the window
 * takes those with it. It checks status codes and counts; what a proxy must not change in a body is for the
 * end-to-end tests.
 */
#include "bench.h"

#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define READ_BYTES    (256 * 1024)
#define HEAD_BYTES    320
#define PARTIAL_BYTES 8192
#define N_EVENTS      256
#define MAX_WATCHED   32
#define MAX_CORES     256
#define MAX_STARTING  256 /* streams that have no answer yet, while the streams are opened */
#define NO_ANSWER_NS  (30 * INT64_C(1000000000))

enum mode { CLOSED, OPEN, SSE };

/* IDLE: may be given a request. A connection in another state has one on its way. */
enum state { IDLE, WAITING, IN_BODY };

struct conn {
    int fd;
    enum state state;
    enum bench_body framing;
    bool wants_write, reused;
    char tail[5];
    char *head; /* the request's */
    size_t head_bytes;
    size_t sent_bytes; /* of head and body */
    uint64_t left_bytes;
    int64_t start_ns;
    char *partial; /* an incomplete head, else NULL */
    size_t partial_bytes;
    char carry[BENCH_TIMED_BYTES]; /* the end of what was read: a stamp may be cut in two */
    size_t carry_bytes;
    struct conn *next; /* in idle */
};

/* Values below 64 are exact, above that to 1/64. */
#define HISTOGRAM_SUB  64
#define HISTOGRAM_SIZE (HISTOGRAM_SUB * 59)

struct histogram {
    uint64_t n, max, counts[HISTOGRAM_SIZE];
    double sum;
};

struct watched {
    const char *name;
    int pid;
    long rss_start_kb, rss_kb;
    uint64_t cpu_ns;
};

struct machine {
    int64_t now_ns;
    uint64_t segments, own_cpu_ns;
    uint64_t idle[MAX_CORES], all[MAX_CORES];
    int n_cores;
};

static struct {
    enum mode mode;
    int port;
    size_t connections, active;
    double rate, warmup, seconds;
    uint64_t requests;
    const char *path, *body_file;
} options = {.connections = 64, .seconds = 3, .path = "/v1/chat/completions"};

static struct watched watched[MAX_WATCHED];
static size_t n_watched;
static struct conn *conns;
static struct conn *idle_first, **idle_end = &idle_first;
static char *body;
static size_t body_bytes;
static char input[PARTIAL_BYTES + READ_BYTES];
static int epoll_fd;
static bool in_window, ended;
static int64_t window_due_ns; /* its next end; 0: not by time, or not known yet */
static struct machine at_start;
static struct histogram latency, delay;
static uint64_t n_sent, n_finished, n_answered;                      /* since the start */
static uint64_t n_done, n_errors, n_reopened, n_reads, n_read_bytes; /* in the window */
static size_t n_starting;
static int64_t open_start_ns, progress_ns;
static uint64_t n_due; /* --mode open: requests whose time has come */

/* ---- histogram ---- */

static size_t histogram_place(uint64_t v)
{
    const int shift = v < HISTOGRAM_SUB ? 0 : 63 - __builtin_clzll(v) - 6;

    if (v < HISTOGRAM_SUB)
        return (size_t)v;
    return (size_t)(shift + 1) * HISTOGRAM_SUB + (size_t)((v >> shift) % HISTOGRAM_SUB);
}

static void histogram_add(struct histogram *h, int64_t ns)
{
    const uint64_t v = ns > 0 ? (uint64_t)ns : 0;

    h->n++;
    h->sum += (double)v;
    h->counts[histogram_place(v)]++;
    if (v > h->max)
        h->max = v;
}

static double histogram_us(const struct histogram *h, double share)
{
    uint64_t rank = (uint64_t)(share * (double)h->n);
    size_t i = 0;

    while (i < HISTOGRAM_SIZE - 1 && h->counts[i] <= rank)
        rank -= h->counts[i++];
    return (i < HISTOGRAM_SUB ? (double)i
                              : (double)(HISTOGRAM_SUB + i % HISTOGRAM_SUB) *
                                    (double)(UINT64_C(1) << (i / HISTOGRAM_SUB - 1))) /
           1000;
}

static void histogram_print(const char *name, const struct histogram *h)
{
    if (h->n == 0)
        return;
    printf(",\"%s_us\":{\"n\":%llu,\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,"
           "\"max\":%.1f}",
           name, (unsigned long long)h->n, h->sum / (double)h->n / 1000, histogram_us(h, 0.5),
           histogram_us(h, 0.9), histogram_us(h, 0.99), histogram_us(h, 0.999), (double)h->max / 1000);
}

/* ---- the machine and the processes watched ---- */

/* The whole of a small file of /proc as a string; "" when it is gone. */
static const char *read_small(const char *path)
{
    static char text[65536];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* CPU time of all threads, to the nanosecond. */
static uint64_t process_cpu_ns(int pid)
{
    char path[64];
    uint64_t sum = 0;
    DIR *tasks;
    struct dirent *e;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    tasks = opendir(path);
    while (tasks && (e = readdir(tasks)) != NULL) {
        char file[400];

        (void)snprintf(file, sizeof(file), "%s/%s/schedstat", path, e->d_name);
        if (e->d_name[0] != '.')
            sum += strtoull(read_small(file), NULL, 10);
    }
    if (tasks)
        (void)closedir(tasks);
    return sum;
}

static long process_rss_kb(int pid)
{
    char path[64];
    const char *line;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
    line = strstr(read_small(path), "VmRSS:");
    return line ? strtol(line + 6, NULL, 10) : 0;
}

static uint64_t machine_segments(void)
{
    const char *line = strstr(read_small("/proc/net/snmp"), "Tcp: ");
    unsigned long long sent = 0;

    line = line ? strstr(line + 1, "Tcp: ") : NULL;
    if (line)
        (void)sscanf(line, "Tcp: %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &sent);
    return sent;
}

static void machine_cores(struct machine *m)
{
    const char *line = read_small("/proc/stat");

    m->n_cores = 0;
    while ((line = strstr(line, "\ncpu")) != NULL && m->n_cores < MAX_CORES) {
        unsigned long long v[8] = {0};
        int core;

        line++;
        if (sscanf(line, "cpu%d %llu %llu %llu %llu %llu %llu %llu %llu", &core, &v[0], &v[1], &v[2], &v[3],
                   &v[4], &v[5], &v[6], &v[7]) < 5)
            continue;
        m->idle[m->n_cores] = v[3] + v[4];
        m->all[m->n_cores++] = v[0] + v[1] + v[2] + v[3] + v[4] + v[5] + v[6] + v[7];
    }
}

static void machine_read(struct machine *m)
{
    struct timespec t;

    machine_cores(m);
    m->segments = machine_segments();
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    m->own_cpu_ns = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
    m->now_ns = bench_now_ns();
}

/* ---- the window ---- */

static void start_window(void)
{
    in_window = true;
    machine_read(&at_start);
    for (size_t i = 0; i < n_watched; i++)
        watched[i].cpu_ns = process_cpu_ns(watched[i].pid);
    window_due_ns = options.requests ? 0 : at_start.now_ns + (int64_t)(options.seconds * 1e9);
}

static void print_machine(const struct machine *m)
{
    printf(",\"seconds\":%.6f,\"segments\":%llu,\"load_cpu_ns\":%llu,\"cores_busy\":[",
           (double)(m->now_ns - at_start.now_ns) / 1e9, (unsigned long long)(m->segments - at_start.segments),
           (unsigned long long)(m->own_cpu_ns - at_start.own_cpu_ns));
    for (int i = 0; i < m->n_cores; i++) {
        const double all = (double)(m->all[i] - at_start.all[i]);

        printf("%s%.3f", i ? "," : "", all > 0 ? 1 - (double)(m->idle[i] - at_start.idle[i]) / all : 0);
    }
    printf("],\"watched\":[");
    for (size_t i = 0; i < n_watched; i++)
        printf("%s{\"name\":\"%s\",\"pid\":%d,\"cpu_ns\":%llu,\"rss_start_kb\":%ld,\"rss_kb\":%ld}",
               i ? "," : "", watched[i].name, watched[i].pid, (unsigned long long)watched[i].cpu_ns,
               watched[i].rss_start_kb, watched[i].rss_kb);
    printf("]");
}

static void end_window(void)
{
    struct machine m;

    for (size_t i = 0; i < n_watched; i++) {
        watched[i].cpu_ns = process_cpu_ns(watched[i].pid) - watched[i].cpu_ns;
        watched[i].rss_kb = process_rss_kb(watched[i].pid);
    }
    machine_read(&m);
    printf(
        "{\"requests\":%llu,\"errors\":%llu,\"reopened\":%llu,\"reads\":%llu,\"bytes\":%llu,\"chunks\":%llu",
        (unsigned long long)n_done, (unsigned long long)n_errors, (unsigned long long)n_reopened,
        (unsigned long long)n_reads, (unsigned long long)n_read_bytes, (unsigned long long)delay.n);
    histogram_print("latency", &latency);
    histogram_print("delay", &delay);
    print_machine(&m);
    puts("}");
    ended = true;
}

static void window_by_time(int64_t now_ns)
{
    if (window_due_ns == 0 || now_ns < window_due_ns)
        return;
    if (in_window)
        end_window();
    else
        start_window();
}

/* ---- connections ---- */

static void watch(const struct conn *c, int operation)
{
    struct epoll_event e = {.events = c->wants_write ? EPOLLIN | EPOLLOUT : EPOLLIN,
                            .data.u64 = (uint64_t)(c - conns)};

    if (epoll_ctl(epoll_fd, operation, c->fd, &e) < 0)
        bench_die("epoll_ctl");
}

/* Waits for the connection, so that no backlog overflows. */
static void open_conn(struct conn *c)
{
    const struct sockaddr_in a = bench_loopback(options.port);
    const int on = 1;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
        bench_die("load: connect");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (options.mode == SSE)
        (void)setsockopt(c->fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
    (void)fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->wants_write = c->reused = false;
    watch(c, EPOLL_CTL_ADD);
}

static void make_idle(struct conn *c)
{
    c->state = IDLE;
    c->next = NULL;
    *idle_end = c;
    idle_end = &c->next;
}

static struct conn *take_idle(void)
{
    struct conn *c = idle_first;

    if (c && (idle_first = c->next) == NULL)
        idle_end = &idle_first;
    return c;
}

static void want_write(struct conn *c, bool wants)
{
    if (c->wants_write == wants)
        return;
    c->wants_write = wants;
    watch(c, EPOLL_CTL_MOD);
}

/* What the proxy does not take now goes out when it reads on. A broken connection shows when it is read. */
static void send_rest(struct conn *c)
{
    const size_t all = c->head_bytes + body_bytes;

    while (c->sent_bytes < all) {
        const size_t head_sent = c->sent_bytes < c->head_bytes ? c->sent_bytes : c->head_bytes;
        const size_t body_sent = c->sent_bytes - head_sent;
        struct iovec v[2] = {{c->head + head_sent, c->head_bytes - head_sent},
                             {body + body_sent, body_bytes - body_sent}};
        const struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        const ssize_t n = sendmsg(c->fd, &m, MSG_NOSIGNAL);

        if (n < 0) {
            want_write(c, errno == EAGAIN);
            return;
        }
        c->sent_bytes += (size_t)n;
    }
    want_write(c, false);
}

static void send_request(struct conn *c)
{
    c->state = WAITING;
    c->sent_bytes = c->carry_bytes = c->partial_bytes = 0;
    memset(c->tail, 0, sizeof(c->tail));
    send_rest(c);
}

static bool may_send(void)
{
    if (options.mode == OPEN)
        return n_sent < n_due;
    if (options.mode == SSE && n_starting >= MAX_STARTING)
        return false;
    return n_sent - n_finished < options.active && (options.requests == 0 || n_sent < options.requests);
}

static void send_next(void)
{
    while (idle_first && may_send()) {
        struct conn *c = take_idle();

        c->start_ns = options.mode == OPEN ? open_start_ns + (int64_t)((double)n_sent * 1e9 / options.rate)
                                           : bench_now_ns();
        n_sent++;
        n_starting++;
        send_request(c);
    }
}

/* ---- answers ---- */

static void end_answer(struct conn *c, bool good)
{
    const int64_t now_ns = bench_now_ns();

    n_finished++;
    progress_ns = now_ns;
    c->reused = true;
    if (in_window) {
        n_done += good;
        n_errors += !good;
        histogram_add(&latency, now_ns - c->start_ns);
    }
    make_idle(c);
    if (in_window && options.requests && n_finished == options.requests)
        end_window();
}

/* Streams under way, or as many answers: the load is what it shall be. */
static void count_answer(void)
{
    n_answered++;
    n_starting--;
    progress_ns = bench_now_ns();
    if (options.mode == SSE && n_answered == options.connections && !options.requests)
        window_due_ns = progress_ns + (int64_t)(options.warmup * 1e9);
}

static void report_bad_answer(const char *p, size_t n)
{
    static bool reported;

    if (!reported)
        fprintf(stderr, "load: the first answer that is not 200: %.*s\n", (int)(n < 400 ? n : 400), p);
    reported = true;
}

static void read_stamp(const char *digits, int64_t arrived_ns)
{
    int64_t sent_ns = 0;

    for (int i = 0; i < BENCH_STAMP_DIGITS; i++)
        sent_ns = sent_ns * 10 + (digits[i] - '0');
    if (in_window)
        histogram_add(&delay, arrived_ns - sent_ns);
}

/* p holds what was carried over and what is new. */
static void read_stamps(struct conn *c, const char *p, size_t n, int64_t arrived_ns)
{
    const char *end = p + n, *mark;

    progress_ns = arrived_ns;
    while ((mark = memmem(p, (size_t)(end - p), BENCH_MARK, BENCH_MARK_BYTES)) &&
           end - mark >= BENCH_TIMED_BYTES) {
        read_stamp(mark + BENCH_MARK_BYTES, arrived_ns);
        p = mark + BENCH_TIMED_BYTES;
    }
    if (end - p >= BENCH_TIMED_BYTES)
        p = end - BENCH_TIMED_BYTES + 1;
    c->carry_bytes = (size_t)(end - p);
    memcpy(c->carry, p, c->carry_bytes);
}

static bool body_ends(struct conn *c, const char *p, size_t n)
{
    if (c->framing == BENCH_CHUNKED)
        return bench_chunked_end(c->tail, p, n);
    c->left_bytes -= n < c->left_bytes ? n : c->left_bytes;
    return c->framing == BENCH_LENGTH && c->left_bytes == 0;
}

static void take_body(struct conn *c, char *p, size_t n, int64_t arrived_ns)
{
    if (options.mode == SSE) {
        memcpy(p - c->carry_bytes, c->carry, c->carry_bytes);
        read_stamps(c, p - c->carry_bytes, c->carry_bytes + n, arrived_ns);
    }
    if (body_ends(c, p, n))
        end_answer(c, c->left_bytes == 0);
}

static void keep_partial(struct conn *c, const char *p, size_t n)
{
    if (n > PARTIAL_BYTES) {
        fputs("load: an answer's head is too large\n", stderr);
        exit(2);
    }
    if (!c->partial && !(c->partial = malloc(PARTIAL_BYTES)))
        bench_die("memory");
    memcpy(c->partial, p, n);
    c->partial_bytes = n;
}

static void take_head(struct conn *c, char *p, size_t n, int64_t arrived_ns)
{
    const size_t head_bytes = bench_head_bytes(p, n);
    const bool good = n > 12 && memcmp(p + 9, "200", 3) == 0;

    if (head_bytes == 0) {
        keep_partial(c, p, n);
        return;
    }
    c->state = IN_BODY;
    c->framing = bench_framing(p, head_bytes, &c->left_bytes);
    count_answer();
    if (!good) {
        report_bad_answer(p, n);
        n_errors++;
    }
    take_body(c, p + head_bytes, n - head_bytes, arrived_ns);
}

static void reopen(struct conn *c)
{
    (void)close(c->fd);
    open_conn(c);
    n_reopened += in_window;
}

/* A proxy may close an idle connection, also while a request is on its way to it; else this answer is lost.
 */
static void lose_conn(struct conn *c)
{
    const enum state was = c->state;
    const bool again = was == WAITING && c->reused && c->partial_bytes == 0;

    reopen(c);
    if (again) {
        send_request(c);
        return;
    }
    if (was == WAITING)
        count_answer();
    if (was != IDLE)
        end_answer(c, was == IN_BODY && c->framing == BENCH_UNTIL_CLOSE);
}

/* The kernel's stamp of the last bytes, by bench_now_ns(); its own are by the clock on the wall. */
static ssize_t read_stamped(int fd, char *p, size_t n, int64_t *arrived_ns)
{
    static int64_t wall_ahead_ns;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
    } control;
    struct iovec iov = {p, n};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    const ssize_t got = recvmsg(fd, &m, 0);
    const struct cmsghdr *stamp = got > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    struct timespec t;

    *arrived_ns = bench_now_ns();
    if (wall_ahead_ns == 0) {
        (void)clock_gettime(CLOCK_REALTIME, &t);
        wall_ahead_ns = bench_ns(t) - *arrived_ns;
    }
    if (stamp && stamp->cmsg_type == SCM_TIMESTAMPNS) {
        memcpy(&t, CMSG_DATA(stamp), sizeof(t));
        *arrived_ns = bench_ns(t) - wall_ahead_ns;
    }
    return got;
}

static void read_conn(struct conn *c)
{
    char *at = input + PARTIAL_BYTES;
    int64_t arrived_ns = 0;
    const ssize_t n =
        options.mode == SSE ? read_stamped(c->fd, at, READ_BYTES, &arrived_ns) : read(c->fd, at, READ_BYTES);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        lose_conn(c);
        return;
    }
    n_reads += in_window;
    n_read_bytes += in_window ? (uint64_t)n : 0;
    if (c->state == WAITING) {
        if (c->partial_bytes)
            memcpy(at - c->partial_bytes, c->partial, c->partial_bytes);
        take_head(c, at - c->partial_bytes, c->partial_bytes + (size_t)n, arrived_ns);
    } else if (c->state == IN_BODY) {
        take_body(c, at, (size_t)n, arrived_ns);
    }
}

/* ---- the loop ---- */

static void check_progress(int64_t now_ns)
{
    if (now_ns - progress_ns < NO_ANSWER_NS)
        return;
    fprintf(stderr, "load: no answer for 30 s: %llu requests sent, %llu answered, %llu finished\n",
            (unsigned long long)n_sent, (unsigned long long)n_answered, (unsigned long long)n_finished);
    exit(2);
}

/* When there is something to do without an event. */
static int64_t next_due_ns(int64_t now_ns)
{
    int64_t due_ns = now_ns + 1000000000;

    if (window_due_ns && window_due_ns < due_ns)
        due_ns = window_due_ns;
    if (options.mode == OPEN) {
        const int64_t request_ns = open_start_ns + (int64_t)((double)n_due * 1e9 / options.rate);

        if (request_ns < due_ns)
            due_ns = request_ns;
    }
    return due_ns;
}

static void run_events(const struct epoll_event *events, int n)
{
    for (int i = 0; i < n && !ended; i++) {
        struct conn *c = &conns[events[i].data.u64];

        if (events[i].events & EPOLLOUT)
            send_rest(c);
        if (events[i].events & ~(uint32_t)EPOLLOUT)
            read_conn(c);
        if (options.mode != OPEN)
            send_next();
    }
}

static void run(void)
{
    struct epoll_event events[N_EVENTS];

    while (!ended) {
        int64_t now_ns = bench_now_ns();
        const int64_t due_ns = next_due_ns(now_ns);
        const struct timespec wait = bench_timespec(due_ns > now_ns ? due_ns - now_ns : 0);

        run_events(events, epoll_pwait2(epoll_fd, events, N_EVENTS, &wait, NULL));
        now_ns = bench_now_ns();
        if (options.mode == OPEN && now_ns >= open_start_ns)
            n_due = 1 + (uint64_t)((double)(now_ns - open_start_ns) * options.rate / 1e9);
        if (!ended)
            send_next();
        if (!ended)
            window_by_time(now_ns);
        check_progress(now_ns);
    }
}

/* ---- start ---- */

static void load_body(void)
{
    const int fd = open(options.body_file, O_RDONLY | O_CLOEXEC);
    struct stat s;

    if (fd < 0 || fstat(fd, &s) < 0)
        bench_die(options.body_file);
    body_bytes = (size_t)s.st_size;
    body = malloc(body_bytes + 1);
    if (!body || read(fd, body, body_bytes) != (ssize_t)body_bytes)
        bench_die(options.body_file);
    (void)close(fd);
}

static void open_conns(void)
{
    conns = calloc(options.connections, sizeof(*conns));
    for (size_t i = 0; i < options.connections; i++) {
        struct conn *c = &conns[i];

        c->head = malloc(HEAD_BYTES + strlen(options.path));
        if (!c->head)
            bench_die("memory");
        c->head_bytes =
            (size_t)snprintf(c->head, HEAD_BYTES + strlen(options.path),
                             "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: load/1\r\nAccept: */*\r\n"
                             "Content-Type: application/json\r\nX-Session-ID: session-%08zu\r\n"
                             "Content-Length: %zu\r\n\r\n",
                             options.path, options.port, i, body_bytes);
        open_conn(c);
        make_idle(c);
    }
}

static void start(void)
{
    for (size_t i = 0; i < n_watched; i++)
        watched[i].rss_start_kb = process_rss_kb(watched[i].pid);
    open_conns();
    open_start_ns = progress_ns = bench_now_ns();
    if (options.requests)
        start_window();
    else if (options.mode != SSE)
        window_due_ns = open_start_ns + (int64_t)(options.warmup * 1e9);
    send_next();
}

static const char usage[] =
    "usage: load --port P --body FILE [--mode closed|open|sse] [--connections N] [--active N] [--rate N]\n"
    "            [--warmup S] [--seconds S | --requests N] [--path /v1/...] [--watch NAME=PID ...]\n";

static bool wrong(const char *what, const char *text)
{
    return bench_wrong("load", what, text);
}

static bool read_mode(const char *name)
{
    options.mode = strcmp(name, "open") == 0 ? OPEN : strcmp(name, "sse") == 0 ? SSE : CLOSED;
    if (options.mode == CLOSED && strcmp(name, "closed") != 0)
        return wrong("--mode is closed, open or sse, not ", name);
    return true;
}

static bool read_watched(char *text)
{
    char *pid = strchr(text, '=');

    if (!pid || n_watched == MAX_WATCHED)
        return wrong(pid ? "too many --watch: " : "--watch needs NAME=PID: ", text);
    *pid = '\0';
    watched[n_watched++] = (struct watched){.name = text, .pid = (int)strtol(pid + 1, NULL, 10)};
    return true;
}

static bool read_option(int o, char *text)
{
    switch (o) {
    case 'p':
        options.port = (int)strtol(text, NULL, 10);
        return true;
    case 'c':
        options.connections = strtoull(text, NULL, 10);
        return options.connections > 0 || wrong("--connections needs a number above 0: ", text);
    case 'a':
        options.active = strtoull(text, NULL, 10);
        return true;
    case 'n':
        options.requests = strtoull(text, NULL, 10);
        return true;
    case 'r':
        options.rate = strtod(text, NULL);
        return true;
    case 'w':
        options.warmup = strtod(text, NULL);
        return true;
    case 's':
        options.seconds = strtod(text, NULL);
        return true;
    case 'b':
        options.body_file = text;
        return true;
    case 'u':
        options.path = text;
        return true;
    case 'm':
        return read_mode(text);
    case 'P':
        return read_watched(text);
    default:
        return false;
    }
}

static bool read_options(int argc, char **argv)
{
    static const struct option list[] = {
        {"port", 1, NULL, 'p'},     {"connections", 1, NULL, 'c'}, {"active", 1, NULL, 'a'},
        {"requests", 1, NULL, 'n'}, {"rate", 1, NULL, 'r'},        {"warmup", 1, NULL, 'w'},
        {"path", 1, NULL, 'u'},     {"seconds", 1, NULL, 's'},     {"body", 1, NULL, 'b'},
        {"mode", 1, NULL, 'm'},     {"watch", 1, NULL, 'P'},       {0}};
    int o;

    while ((o = getopt_long(argc, argv, "", list, NULL)) != -1) {
        if (!read_option(o, optarg))
            return false;
    }
    if (options.active == 0 || options.active > options.connections)
        options.active = options.connections;
    if (optind < argc)
        return wrong("not an option: ", argv[optind]);
    if (options.port <= 0 || !options.body_file)
        return wrong("--port and --body are needed", "");
    return options.mode != OPEN || options.rate > 0 || wrong("--mode open needs a --rate above 0", "");
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
    (void)signal(SIGPIPE, SIG_IGN);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        bench_die("epoll");
    load_body();
    start();
    run();
    return 0;
}
