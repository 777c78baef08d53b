/* The pods: each listens on a port of its own, reads requests strictly, and does what the request's plan
 * says. */
#include "torture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define POD_PLUGS 3 /* connections of our own that fill the backlog of a black hole */

struct pod {
    struct loop_io listener, second; /* second: at the other address of the one that is known by name */
    uint16_t port;
    unsigned metrics_mode, active;
    struct pod_conn *first;
    int plugs[POD_PLUGS];
    bool plugged;
};

struct pod_conn {
    struct flow flow;
    struct wire wire;
    struct pod *pod;
    struct pod_conn *next, **back;
    struct record *record;
    unsigned served;
    bool active, poisoned, closing, half_closed;
};

static struct pod pods[TORTURE_PODS];
static unsigned pods_limit;
static int64_t pods_strict_from_us;

static unsigned pod_index(const struct pod *p)
{
    return (unsigned)(p - pods);
}

/* ---- connections ---- */

static void pod_conn_idle(struct pod_conn *c)
{
    if (c->active)
        c->pod->active--;
    c->active = false;
    if (c->record != NULL)
        c->record->pod_open = false;
    c->record = NULL;
}

static void pod_conn_drop(struct pod_conn *c, bool reset)
{
    if (c->record != NULL)
        c->record->pod_closed_us = util_now_us();
    pod_conn_idle(c);
    *c->back = c->next;
    if (c->next != NULL)
        c->next->back = c->back;
    flow_close(&c->flow, reset);
    flow_free(&c->flow);
    wire_free(&c->wire);
    loop_free_later(c);
}

void pods_set_limit(unsigned limit, int64_t strict_from_us)
{
    pods_limit = limit;
    pods_strict_from_us = strict_from_us;
}

/* What the router has closed counts no more, though we have not read it yet. */
static void pod_check_limit(struct pod *p, const struct record *r)
{
    unsigned active = 0;

    if (pods_limit == 0 || p->active <= pods_limit || util_now_us() < pods_strict_from_us)
        return;
    for (struct pod_conn *c = p->first; c != NULL; c = c->next)
        active += c->active && !flow_peer_left(&c->flow);
    if (active > pods_limit)
        oracle_complain(r, "pod %u has %u requests, its limit is %u", pod_index(p), active, pods_limit);
}

/* ---- metrics pages ---- */

static void pod_metrics_page(struct pod_conn *c, struct buf *out)
{
    const struct pod *p = c->pod;
    struct buf body = {0};
    const char *waiting = p->metrics_mode == 5   ? "7"
                          : p->metrics_mode == 6 ? "NaN"
                          : p->metrics_mode == 7 ? "-1e400"
                                                 : "0";

    if (p->metrics_mode == 8)
        for (unsigned i = 0; i < 64 * 1024; i++)
            buf_text(&body, "filler{a=\"}\\\"\"} 1e9\n# junk\n");
    if (p->metrics_mode != 9)
        buf_printf(&body,
                   "# TYPE vllm:num_requests_waiting "
                   "gauge\nvllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} %s\n"
                   "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} "
                   "%u\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n",
                   waiting, p->active);
    buf_printf(out, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", p->metrics_mode == 1 ? "500 No" : "200 OK",
               buf_size(&body) + (p->metrics_mode == 10 ? 100 : 0));
    buf_put(out, buf_bytes(&body), buf_size(&body));
    buf_free(&body);
}

static void pod_answer_metrics(struct pod_conn *c)
{
    struct buf page = {0};

    switch (c->pod->metrics_mode) {
    case 2: /* hangs */
        return;
    case 3:
        flow_send(&c->flow, "\x01\x02garbage\r\n\r\n", 13);
        flow_add(&c->flow, STEP_CLOSE, 0);
        break;
    case 4:
        flow_add(&c->flow, STEP_RESET, 0);
        break;
    default:
        pod_metrics_page(c, &page);
        if (c->pod->metrics_mode == 11)
            flow_send_pieces(&c->flow, buf_bytes(&page), buf_size(&page), 40, 20 * 1000);
        else
            flow_send(&c->flow, buf_bytes(&page), buf_size(&page));
        if (c->pod->metrics_mode == 10)
            flow_add(&c->flow, STEP_CLOSE, 0);
        break;
    }
    buf_free(&page);
}

/* ---- answers ---- */

static void pod_head(struct pod_conn *c, unsigned status, const char *framing)
{
    char head[512];
    const struct plan *p = c->record != NULL ? &c->record->plan : NULL;
    const int n = snprintf(head, sizeof head, "HTTP/1.1 %u %s\r\nX-Pod: %u\r\n%s%s\r\n", status,
                           status == 200 ? "OK" : "Odd", pod_index(c->pod),
                           p != NULL && p->stream ? "Content-Type: text/event-stream\r\n" : "", framing);

    flow_send(&c->flow, head, (size_t)n);
}

static void pod_sized_head(struct pod_conn *c, unsigned status, size_t n, const char *more)
{
    char framing[128];

    snprintf(framing, sizeof framing, "Content-Length: %zu\r\n%s", n, more);
    pod_head(c, status, framing);
}

static void pod_chunk(struct pod_conn *c, const char *p, size_t n)
{
    char line[24];

    flow_send(&c->flow, line, (size_t)snprintf(line, sizeof line, "%zx\r\n", n));
    flow_send(&c->flow, p, n);
    flow_send(&c->flow, "\r\n", 2);
}

/* Chunks of p[0..n), one event each for a stream, some with a pause behind. */
static void pod_chunks(struct pod_conn *c, const struct plan *plan, const char *p, size_t n)
{
    struct rng r = {util_mix(plan->n) + 4};

    while (n > 0) {
        const char *blank = plan->stream ? memmem(p, n, "\n\n", 2) : NULL;
        size_t k = blank != NULL ? (size_t)(blank + 2 - p) : 1 + rng_below(&r, 9000);

        k = k < n ? k : n;
        pod_chunk(c, p, k);
        if (rng_below(&r, 4) == 0)
            flow_add(&c->flow, STEP_WAIT, plan->pod_us / 8);
        p += k;
        n -= k;
    }
}

static void pod_cut(struct pod_conn *c, bool reset, uint32_t pause_us)
{
    if (pause_us > 0)
        flow_add(&c->flow, STEP_WAIT, pause_us);
    flow_add(&c->flow, reset ? STEP_RESET : STEP_CLOSE, 0);
    c->closing = true;
}

/* A part of the body, then the end. */
static void pod_answer_part(struct pod_conn *c, const struct plan *p, const struct buf *body, bool reset)
{
    const size_t n = buf_size(body), part = n / 2;
    const bool chunked = p->stream || p->variant & 1;

    c->record->deed = reset ? DEED_RESET : DEED_CUT_BODY;
    if (chunked) {
        pod_head(c, p->status, "Transfer-Encoding: chunked\r\n");
        pod_chunks(c, p, buf_bytes(body), part);
        if (part > 0 && p->variant & 2)
            flow_send(&c->flow, "ff\r\n", 4);
    } else {
        pod_sized_head(c, p->status, n, "");
        flow_send(&c->flow, buf_bytes(body), part);
    }
    pod_cut(c, reset, p->variant & 4 ? 0 : 5000 + p->pod_us / 4);
}

static void pod_answer_whole(struct pod_conn *c, const struct plan *p, const struct buf *body)
{
    c->record->deed = DEED_WHOLE;
    switch (p->pod) {
    case POD_CHUNKED:
    case POD_STREAM:
        pod_head(c, p->status, "Transfer-Encoding: chunked\r\n");
        pod_chunks(c, p, buf_bytes(body), buf_size(body));
        if (p->variant & 1)
            flow_send(&c->flow, "0;x=y\r\nX-Trailer: 1\r\n\r\n", 24);
        else
            flow_send(&c->flow, "0\r\n\r\n", 5);
        break;
    case POD_UNTIL_CLOSE:
        pod_head(c, p->status, p->variant & 1 ? "Connection: close\r\n" : "");
        flow_send(&c->flow, buf_bytes(body), buf_size(body));
        break;
    case POD_BYTES: {
        const size_t before = buf_size(&c->flow.out);
        char all[4096];
        size_t n;

        pod_sized_head(c, p->status, buf_size(body), "");
        flow_send(&c->flow, buf_bytes(body), buf_size(body));
        n = buf_size(&c->flow.out) - before;
        memcpy(all, buf_bytes(&c->flow.out), n);
        buf_clear(&c->flow.out);
        c->flow.n_steps = c->flow.at = 0;
        flow_send_pieces(&c->flow, all, n, 1, 500);
        break;
    }
    default:
        pod_sized_head(c, p->status, buf_size(body), p->pod == POD_CLOSES ? "Connection: close\r\n" : "");
        if (!c->wire.head_request)
            flow_send(&c->flow, buf_bytes(body), buf_size(body));
        break;
    }
}

static void pod_answer_bad(struct pod_conn *c, const struct plan *p)
{
    size_t n;
    const char *bad = plan_garbage(p, &n);

    c->record->deed = DEED_BAD_HEAD;
    switch (p->pod) {
    case POD_GARBAGE:
        flow_send(&c->flow, bad, n);
        break;
    case POD_BAD_CHUNK:
        c->record->deed = DEED_BAD_BODY;
        pod_head(c, p->status, "Transfer-Encoding: chunked\r\n");
        flow_send(&c->flow, plan_bad_chunk(p), strlen(plan_bad_chunk(p)));
        break;
    case POD_INTERIM_FLOOD:
        for (unsigned i = 0; i < 9; i++)
            flow_send(&c->flow, "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", 35);
        break;
    default: /* POD_HEAD_FLOOD */
        flow_send(&c->flow, "HTTP/1.1 200 OK\r\n", 17);
        for (unsigned i = 0; i < (p->variant & 1 ? 130 : 80); i++) {
            char pad[1001];

            memset(pad, 'p', sizeof pad - 1);
            pad[sizeof pad - 1] = '\0';
            flow_send(&c->flow, "X-Pad: ", 7);
            flow_send(&c->flow, pad, p->variant & 1 ? 8 : sizeof pad - 1);
            flow_send(&c->flow, "\r\n", 2);
        }
        flow_send(&c->flow, "\r\n", 2);
        break;
    }
    flow_add(&c->flow, STEP_STOP, 0); /* stays open: the router is to close it */
    c->poisoned = true;
}

static void pod_answer_odd(struct pod_conn *c, const struct plan *p, const struct buf *body)
{
    switch (p->pod) {
    case POD_SURPLUS:
        pod_answer_whole(c, p, body);
        flow_send(&c->flow, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", 45);
        c->poisoned = true;
        break;
    case POD_INTERIM:
        for (unsigned i = 0; i <= p->variant % 8u; i++)
            flow_send(&c->flow,
                      i & 1 ? "HTTP/1.1 100 Continue\r\n\r\n" : "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
                      i & 1 ? 25 : 37);
        pod_answer_whole(c, p, body);
        break;
    case POD_NO_BODY:
        c->record->deed = DEED_WHOLE;
        pod_sized_head(c, p->status, 5, "");
        flow_send(&c->flow, "smugg", 5);
        c->poisoned = true;
        break;
    case POD_FIN_HEAD:
    case POD_RST_HEAD:
        c->record->deed = p->pod == POD_FIN_HEAD ? DEED_CUT_HEAD : DEED_RESET;
        flow_send(&c->flow, "HTTP/1.1 200 OK\r\nContent-Le", 27);
        pod_cut(c, p->pod == POD_RST_HEAD, p->variant & 4 ? 0 : 5000);
        break;
    case POD_NO_DONE:
        c->record->deed = DEED_CUT_BODY;
        pod_head(c, 200, "Connection: close\r\n");
        flow_send(&c->flow, buf_bytes(body), buf_size(body) - 14);
        pod_cut(c, false, 0);
        break;
    default: /* POD_HANG_BODY */
        c->record->deed = DEED_HANG_BODY;
        pod_sized_head(c, p->status, buf_size(body), "");
        flow_send(&c->flow, buf_bytes(body), buf_size(body) / 2);
        flow_add(&c->flow, STEP_STOP, 0);
        break;
    }
}

static void pod_end_silently(struct pod_conn *c, const struct plan *p)
{
    const bool reset = p->pod == POD_STALE_RST || p->pod == POD_RST_BEFORE;

    c->record->deed = DEED_SILENT_END;
    c->record->retry_allowed = c->served > 0;
    pod_cut(c, reset, 0);
}

static void pod_act(struct pod_conn *c, const struct plan *p)
{
    struct buf body = {0};

    plan_answer_body(p, &body);
    if (p->pod_us > 0)
        flow_add(&c->flow, STEP_WAIT, p->pod == POD_LATE ? p->pod_us * 2 : p->pod_us);
    switch (p->pod) {
    case POD_STALE_FIN:
    case POD_STALE_RST:
        if (c->served > 0)
            pod_end_silently(c, p);
        else
            pod_answer_whole(c, p, &body);
        break;
    case POD_FIN_BEFORE:
    case POD_RST_BEFORE:
        pod_end_silently(c, p);
        break;
    case POD_FIN_BODY:
    case POD_FIN_STREAM:
        pod_answer_part(c, p, &body, false);
        break;
    case POD_RST_BODY:
    case POD_RST_STREAM:
        pod_answer_part(c, p, &body, true);
        break;
    case POD_HANG_HEAD:
        c->record->deed = DEED_HANG_HEAD;
        flow_add(&c->flow, STEP_STOP, 0);
        break;
    case POD_GARBAGE:
    case POD_BAD_CHUNK:
    case POD_INTERIM_FLOOD:
    case POD_HEAD_FLOOD:
        pod_answer_bad(c, p);
        break;
    case POD_SURPLUS:
    case POD_INTERIM:
    case POD_NO_BODY:
    case POD_FIN_HEAD:
    case POD_RST_HEAD:
    case POD_NO_DONE:
    case POD_HANG_BODY:
        pod_answer_odd(c, p, &body);
        break;
    default:
        pod_answer_whole(c, p, &body);
        break;
    }
    if (p->pod == POD_HALF_CLOSES) {
        flow_add(&c->flow, STEP_FIN, 0);
        c->half_closed = true;
    }
    if (p->pod == POD_UNTIL_CLOSE || p->pod == POD_HANGS_UP)
        pod_cut(c, false, 0);
    buf_free(&body);
    flow_play(&c->flow);
}

/* ---- requests ---- */

static void pod_check_request(struct pod_conn *c, struct record *r)
{
    const struct wire *w = &c->wire;
    char id[24], host[TORTURE_AUTHORITY_MAX];
    struct buf body = {0};

    snprintf(id, sizeof id, "t-%u", r->plan.n);
    (void)pod_authority((unsigned)(c->pod - pods), host);
    if (strcmp(w->request_id, id) != 0)
        oracle_complain(r, "the pod got request id \"%s\"", w->request_id);
    if (strcmp(w->host, host) != 0)
        oracle_complain(r, "the pod got Host \"%s\"", w->host);
    if (w->hop_by_hop)
        oracle_complain(r, "the pod got fields that are for one hop");
    plan_body(&r->plan, true, &body);
    if (!w->has_length || buf_size(&body) != buf_size(&w->body) ||
        memcmp(buf_bytes(&body), buf_bytes(&w->body), buf_size(&body)) != 0)
        oracle_complain(r, "the pod got another body");
    buf_free(&body);
}

/* A request may come to a pod again only where the last connection was a kept one that gave no byte of an
 * answer. */
static void pod_arrival(struct pod_conn *c, struct record *r)
{
    tally.arrivals++;
    if (!plan_is_proxied(&r->plan))
        oracle_complain(r, "a pod got what had to be refused");
    if (r->arrivals > 0 && !r->retry_allowed && !(r->killed && r->reused)) {
        tally.duplicates++;
        oracle_complain(r, "a pod got it again");
    }
    if (r->arrivals > 0)
        tally.stale_retries++;
    r->arrivals++;
    r->pod = (uint8_t)pod_index(c->pod);
    r->reused = c->served > 0;
    r->retry_allowed = false;
    r->killed = false;
    r->deed = DEED_NONE;
    r->arrived_us = util_now_us();
    r->pod_open = true;
    c->record = r;
}

static void pod_answer_stranger(struct pod_conn *c)
{
    if (strcmp(c->wire.target, "/metrics") == 0) {
        pod_answer_metrics(c);
    } else if (strncmp(c->wire.target, "/v1/", 4) == 0) {
        tally.mutants_relayed++;
        c->wire.head_request = strcmp(c->wire.method, "HEAD") == 0;
        pod_sized_head(c, 200, 2, "");
        flow_send(&c->flow, "{}", c->wire.head_request ? 0 : 2);
    }
    flow_play(&c->flow);
}

static void pod_request(struct pod_conn *c)
{
    struct record *r = c->wire.mark >= 0 ? oracle_record(c->wire.mark) : NULL;

    c->wire.head_request = strcmp(c->wire.method, "HEAD") == 0;
    if (c->poisoned)
        oracle_complain(r, "a connection was used again that is not in step");
    if (buf_size(&c->wire.in) > 0)
        oracle_complain(r, "a pod got bytes behind a request");
    if (c->half_closed && flow_peer_left(&c->flow)) {
        /* The router saw our end, and may have sent it again before we read this. */
        pod_conn_drop(c, false);
        return;
    }
    if (c->wire.mark >= 0 && r == NULL)
        oracle_complain(NULL, "a pod got request %ld, which is over", c->wire.mark);
    if (strcmp(c->wire.target, "/metrics") != 0) {
        c->active = true;
        c->pod->active++;
    }
    if (r == NULL) {
        pod_answer_stranger(c);
        return;
    }
    pod_arrival(c, r);
    pod_check_limit(c->pod, r);
    pod_check_request(c, r);
    if (c->half_closed) { /* the router had not seen our end when it sent this */
        r->deed = DEED_SILENT_END;
        r->retry_allowed = true;
        return;
    }
    pod_act(c, &r->plan);
}

/* The pod answers before it has read the body, and hangs up. It counts as done: behind the unread body we
 * would not see the router leave. */
static void pod_early(struct pod_conn *c, struct record *r)
{
    pod_arrival(c, r);
    r->deed = DEED_EARLY;
    r->retry_allowed = c->served > 0; /* our reset may overtake the answer */
    flow_pause_reading(&c->flow, true);
    pod_sized_head(c, 413, 0, "Connection: close\r\n");
    pod_cut(c, false, 2000);
    flow_play(&c->flow);
}

static void pod_on_bytes(struct flow *f, const char *p, size_t n)
{
    struct pod_conn *c = f->owner;

    if (c->active || c->closing)
        oracle_complain(c->record, "a pod got bytes while it had a request");
    buf_put(&c->wire.in, p, n);
    if (wire_read(&c->wire)) {
        if (c->wire.state == WIRE_BAD) {
            oracle_complain(c->wire.mark >= 0 ? oracle_record(c->wire.mark) : NULL,
                            "a pod got a bad request: %s", c->wire.why);
            pod_conn_drop(c, true);
            return;
        }
        pod_request(c);
        return;
    }
    if (c->wire.state == WIRE_BODY && c->wire.mark >= 0) {
        struct record *r = oracle_record(c->wire.mark);

        if (r != NULL && r->plan.pod == POD_EARLY && plan_is_proxied(&r->plan))
            pod_early(c, r);
        else if (r != NULL && r->plan.pod == POD_SLOW_TAKER)
            f->read_max = 8 * 1024;
    }
}

static void pod_on_ended(struct flow *f, int error)
{
    (void)error;
    pod_conn_drop(f->owner, false);
}

/* The answer is out. */
static void pod_on_played(struct flow *f)
{
    struct pod_conn *c = f->owner;

    if (!flow_is_open(f)) {
        pod_conn_drop(c, false);
        return;
    }
    pod_conn_idle(c);
    c->served++;
    f->read_max = 0;
    wire_start(&c->wire, true, false);
}

static void pod_on_accept(struct loop_io *io, uint32_t events)
{
    struct pod *p = io->owner;
    const int fd = accept4(io->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct pod_conn *c;

    (void)events;
    if (fd < 0)
        return;
    c = util_alloc(sizeof *c);
    c->pod = p;
    c->flow.owner = c;
    c->flow.bytes = pod_on_bytes;
    c->flow.ended = pod_on_ended;
    c->flow.played = pod_on_played;
    wire_start(&c->wire, true, false);
    c->next = p->first;
    c->back = &p->first;
    if (c->next != NULL)
        c->next->back = &c->next;
    p->first = c;
    flow_open(&c->flow, fd);
}

/* ---- up and down ---- */

static bool pod_listen_at(struct pod *p, struct loop_io *io, in_addr_t address, int backlog)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(p->port), .sin_addr.s_addr = htonl(address)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int one = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 || listen(fd, backlog) < 0) {
        close(fd);
        return false;
    }
    *io = (struct loop_io){.fd = fd, .ready = pod_on_accept, .owner = p};
    return true;
}

static bool pod_listen(struct pod *p, int backlog)
{
    return pod_listen_at(p, &p->listener, INADDR_LOOPBACK, backlog);
}

static void pod_close_listener(struct pod *p)
{
    if (p->listener.fd >= 0) {
        loop_forget(&p->listener);
        close(p->listener.fd);
        p->listener.fd = -1;
    }
    for (unsigned i = 0; p->plugged && i < POD_PLUGS; i++)
        close(p->plugs[i]);
    p->plugged = false;
}

void pod_down(unsigned i, bool kill_connections)
{
    struct pod *p = &pods[i];

    pod_close_listener(p);
    while (kill_connections && p->first != NULL) {
        struct record *r = p->first->record;

        if (r != NULL)
            r->killed = true;
        pod_conn_drop(p->first, true);
    }
}

/* Connections with a request of a round that is over: the router has closed them, and who hangs does not read
 * that. */
void pods_forget_records(void)
{
    for (unsigned i = 0; i < TORTURE_PODS; i++) {
        for (struct pod_conn *c = pods[i].first, *next; c != NULL; c = next) {
            next = c->next;
            if (c->record != NULL)
                pod_conn_drop(c, true);
        }
    }
}

void pod_up(unsigned i)
{
    pod_close_listener(&pods[i]);
    if (!pod_listen(&pods[i], 512)) {
        perror("torture: a pod cannot listen again");
        exit(2);
    }
    loop_watch(&pods[i].listener, EPOLLIN);
}

/* A listener that accepts nobody, its backlog full: connections hang. */
void pod_hole(unsigned i)
{
    struct pod *p = &pods[i];
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(p->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    pod_close_listener(p);
    if (!pod_listen(p, 0))
        return;
    for (unsigned k = 0; k < POD_PLUGS; k++) {
        p->plugs[k] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (connect(p->plugs[k], (const struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
            perror("torture: plug");
    }
    p->plugged = true;
}

void pod_metrics_mode(unsigned i, unsigned mode)
{
    pods[i].metrics_mode = mode;
}

uint16_t pod_port(unsigned i)
{
    return pods[i].port;
}

static bool pod_has_name(unsigned i)
{
    return i == TORTURE_PODS - 1;
}

const char *pod_authority(unsigned i, char out[TORTURE_AUTHORITY_MAX])
{
    snprintf(out, TORTURE_AUTHORITY_MAX, "%s:%u", pod_has_name(i) ? "pod.torture" : "127.0.0.1",
             pods[i].port);
    return out;
}

static bool pod_listen_first(unsigned i)
{
    struct pod *p = &pods[i];

    if (!pod_listen(p, 512))
        return false;
    if (!pod_has_name(i) || pod_listen_at(p, &p->second, INADDR_LOOPBACK + 1, 512))
        return true;
    close(p->listener.fd);
    return false;
}

/* Below the range of ports that outgoing connections get: a pod that is down must not lose its port to one.
 */
void pods_open(void)
{
    uint16_t port = (uint16_t)(20000 + getpid() % 10000);

    for (unsigned i = 0; i < TORTURE_PODS; i++) {
        pods[i].listener.fd = pods[i].second.fd = -1;
        do {
            if (++port > 32000)
                port = 20000;
            pods[i].port = port;
        } while (!pod_listen_first(i));
        loop_watch(&pods[i].listener, EPOLLIN);
        if (pods[i].second.fd >= 0)
            loop_watch(&pods[i].second, EPOLLIN);
    }
}

void pods_close(void)
{
    for (unsigned i = 0; i < TORTURE_PODS; i++) {
        pod_down(i, true);
        if (pods[i].second.fd < 0)
            continue;
        loop_forget(&pods[i].second);
        close(pods[i].second.fd);
    }
}
