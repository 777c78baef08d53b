/* One pod's connections. A connection is busy from upstream_send until its answer is complete or it failed.
 */
#include "upstream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "mem.h"
#include "tls.h"

/* ---- life ---- */

static void upstream_conn_free(struct loop_grave *g)
{
    struct upstream_conn *u = CONTAINER_OF(g, struct upstream_conn, grave);

    buf_free(&u->in); /* not earlier: what is being delivered may lie in it */
    mem_free(u);
}

static void upstream_drop_head(struct upstream_conn *u)
{
    http1_head_free(u->head);
    u->head = NULL;
}

static void upstream_conn_close(struct upstream_conn *u)
{
    if (u->ops == NULL)
        u->up->n_idle--;
    u->rules->n_open--;
    list_del(&u->by_age);
    list_del(&u->link);
    loop_timer_cancel(u->up->loop, &u->timer);
    conn_close(&u->conn, false);
    upstream_drop_head(u);
    loop_bury(u->up->loop, &u->grave, upstream_conn_free);
}

static void upstream_fail(struct upstream_conn *u, enum upstream_failure f, const char *why)
{
    const struct upstream_ops *ops = u->ops;

    upstream_conn_close(u);
    ops->failed(u->arg, f, why);
}

struct upstream *upstream_new(struct loop *l, struct pod *pod)
{
    struct upstream *up = mem_zalloc(sizeof *up);

    up->loop = l;
    up->pod = pod;
    list_init(&up->idle);
    pod->upstream = up;
    return up;
}

void upstream_close_idle(struct upstream *up)
{
    LIST_EACH_SAFE(it, &up->idle)
    upstream_conn_close(LIST_ITEM(it, struct upstream_conn, link));
}

void upstream_free(struct upstream *up)
{
    upstream_close_idle(up);
    up->pod->upstream = NULL;
    mem_free(up->tls_name);
    mem_free(up);
}

void upstream_set_address(struct upstream *up, const struct sockaddr *a, socklen_t n)
{
    if (n == up->address_bytes && memcmp(a, &up->address, n) == 0)
        return;
    upstream_close_idle(up);
    memcpy(&up->address, a, n);
    up->address_bytes = n;
}

void upstream_set_tls(struct upstream *up, const char *name)
{
    if (name == NULL ? up->tls_name == NULL : up->tls_name != NULL && strcmp(name, up->tls_name) == 0)
        return;
    upstream_close_idle(up);
    mem_free(up->tls_name);
    up->tls_name = name != NULL ? mem_strdup(name) : NULL;
}

/* ---- time limits ---- */

static void upstream_arm(struct upstream_conn *u, int64_t in_us)
{
    if (in_us > 0)
        loop_timer_set(u->up->loop, &u->timer, loop_now_us(u->up->loop) + in_us);
    else
        wheel_rest(&u->timer);
}

static void upstream_on_timer(struct wheel_timer *t)
{
    struct upstream_conn *u = CONTAINER_OF(t, struct upstream_conn, timer);

    if (u->ops == NULL)
        upstream_conn_close(u);
    else if (u->conn.connecting)
        upstream_fail(u, UPSTREAM_CONNECT, "no connection within UPSTREAM_CONNECT_TIMEOUT");
    else if (!u->got_head)
        upstream_fail(u, UPSTREAM_HEAD_TIMEOUT, "no answer within the pod's time limit");
    else
        upstream_fail(u, UPSTREAM_BODY_TIMEOUT, "no byte of the answer within UPSTREAM_BODY_TIMEOUT");
}

/* ---- reuse ---- */

/* NULL = the connection may serve another request; else why not. */
static const char *upstream_why_not_reusable(const struct upstream_conn *u, bool surplus)
{
    if (!u->answer_keeps)
        return "the pod closes it";
    if (surplus)
        return "bytes behind the answer";
    if (u->send_broken || conn_pending(&u->conn) > 0)
        return "the request was not taken whole";
    if (u->up->pod->leaving)
        return "the pod leaves";
    return NULL;
}

static void upstream_park(struct upstream_conn *u)
{
    list_del(&u->link);
    list_push_front(&u->up->idle, &u->link);
    u->up->n_idle++;
    list_push_back(&u->rules->idle, &u->by_age);
    u->ops = NULL;
    u->arg = NULL;
    u->reused = true;
    conn_want_read(&u->conn, true); /* a close by the pod shows as readable */
    upstream_arm(u, u->rules->keepalive_us);
}

/* ---- reading an answer ---- */

static void upstream_finish(struct upstream_conn *u, bool surplus)
{
    if (upstream_why_not_reusable(u, surplus) == NULL)
        upstream_park(u);
    else
        upstream_conn_close(u);
}

/* The answer's last part is handed over after the connection is in the pool or closed: the caller may at once
 * send the next request to this pod. */
static void upstream_deliver(struct upstream_conn *u, struct upstream_data *d, bool surplus)
{
    const struct upstream_ops *ops = u->ops;
    void *arg = u->arg;
    struct http1_head *head = u->head;

    if (d->end) {
        u->head = NULL;
        upstream_finish(u, surplus);
    }
    ops->data(arg, d);
    if (d->end)
        http1_head_free(head);
    else if (d->head != NULL)
        upstream_drop_head(u);
}

/* Reads the head in p; 1xx heads are skipped. Returns the bytes used, 0 = incomplete, -1 = failed. */
static ssize_t upstream_parse_head(struct upstream_conn *u, const char *p, size_t n)
{
    size_t at = 0;

    for (;;) {
        const ssize_t used = http1_head(&u->http, p + at, n - at);

        if (used < 0) {
            upstream_fail(u, UPSTREAM_PROTOCOL, u->http.reason);
            return -1;
        }
        if (used == 0)
            return (ssize_t)at;
        at += (size_t)used;
        if (u->head->status >= 200) {
            u->got_head = true;
            u->answer_keeps = u->head->keep_alive && u->head->framing != HTTP1_UNTIL_CLOSE;
            return (ssize_t)at;
        }
        if (++u->interim > UPSTREAM_MAX_INTERIM) {
            upstream_fail(u, UPSTREAM_PROTOCOL, "more than 8 interim (1xx) answers");
            return -1;
        }
        http1_start(&u->http, HTTP1_RESPONSE, u->head, u->rules->max_head_bytes, u->head_request);
        if (at == n)
            return (ssize_t)at;
    }
}

/* Collects content of p[*at..n) until the spans are full. False: what follows is no body. */
static bool upstream_collect(struct upstream_conn *u, struct slice *spans, struct upstream_data *d,
                             const char *p, size_t *at, size_t n)
{
    const size_t first = *at;
    bool whole = true;

    d->n_spans = 0;
    d->framed = (struct slice){NULL, 0};
    while (*at < n && !u->http.done && d->n_spans < UPSTREAM_SPANS_MAX) {
        const ssize_t used = http1_body(&u->http, p + *at, n - *at, &spans[d->n_spans]);

        if (used < 0)
            return false;
        *at += (size_t)used;
        whole &= u->http.whole;
        d->n_spans += spans[d->n_spans].n > 0;
    }
    if (whole)
        d->framed = (struct slice){p + first, *at - first};
    return true;
}

/* Body bytes, n > 0, handed over in one call per read; content before an error still counts. Compiled into
 * its one caller by force: gcc thinks that it has too large a frame for that. */
static inline __attribute__((always_inline)) void
upstream_parse_body(struct upstream_conn *u, struct upstream_data *d, const char *p, size_t n)
{
    struct slice spans[UPSTREAM_SPANS_MAX];
    size_t at = 0;
    bool good;

    d->spans = spans;
    do {
        good = upstream_collect(u, spans, d, p, &at, n);
        d->end = u->http.done;
        if (d->head != NULL || d->n_spans > 0 || d->end)
            upstream_deliver(u, d, at < n);
        d->head = NULL;
        if (u->conn.fd < 0)
            return; /* cancelled, or complete and closed */
    } while (good && at < n && !d->end);
    if (!good)
        upstream_fail(u, UPSTREAM_PROTOCOL, u->http.reason);
}

/* p[0..n) is everything of the answer that was not used yet. */
static void upstream_use(struct upstream_conn *u, const char *p, size_t n)
{
    struct upstream_data d = {0};
    ssize_t used = 0;

    if (!u->got_head) {
        used = upstream_parse_head(u, p, n);
        if (used < 0)
            return;
        if (!u->got_head) {
            /* The rest of an unfinished head stays; heads of 1xx answers before it go. */
            if (u->in.len > 0 && p == u->in.data + u->in.start)
                buf_consume(&u->in, (size_t)used);
            else if (!buf_append(&u->in, p + used, n - (size_t)used))
                upstream_fail(u, UPSTREAM_PROTOCOL, "the head of the answer is too large");
            return;
        }
        d.head = u->head;
        if ((size_t)used == n || u->http.done) {
            d.end = u->http.done;
            upstream_deliver(u, &d, (size_t)used < n);
            return;
        }
    }
    upstream_parse_body(u, &d, p + used, n - (size_t)used);
}

/* Not before the first byte: a request may wait for it for minutes, and a head is large. */
static void upstream_start_answer(struct upstream_conn *u)
{
    u->got_bytes = true;
    buf_init(&u->in, u->rules->max_head_bytes + LOOP_READ_BYTES);
    u->head = http1_head_new();
    http1_start(&u->http, HTTP1_RESPONSE, u->head, u->rules->max_head_bytes, u->head_request);
}

static void upstream_take_bytes(struct upstream_conn *u, const char *p, size_t n)
{
    if (!u->got_bytes)
        upstream_start_answer(u);
    if (u->in.len == 0) {
        upstream_use(u, p, n);
        return;
    }
    if (!buf_append(&u->in, p, n)) {
        upstream_fail(u, UPSTREAM_PROTOCOL, "the head of the answer is too large");
        return;
    }
    upstream_use(u, buf_slice(&u->in).p, u->in.len);
    if (u->got_head)
        buf_free(&u->in);
}

static void upstream_on_bytes(struct upstream_conn *u, const char *p, size_t n)
{
    upstream_take_bytes(u, p, n);
    /* More is to come, unless it is complete, failed, or held up by the client (upstream_pause). */
    if (u->got_head && u->ops != NULL && u->conn.reading)
        upstream_arm(u, u->rules->body_timeout_us);
}

/* FIN or RST from the pod. */
static void upstream_on_close(struct upstream_conn *u, bool reset)
{
    struct upstream_data d = {.end = true};

    if (!u->got_bytes)
        upstream_fail(u, u->reused ? UPSTREAM_STALE : UPSTREAM_RESET,
                      "the pod closed the connection without an answer");
    else if (!reset && u->got_head && http1_eof(&u->http))
        upstream_deliver(u, &d, false);
    else
        upstream_fail(u, UPSTREAM_RESET, "the pod closed the connection before its answer was complete");
}

static void upstream_on_readable(struct conn *conn)
{
    struct upstream_conn *u = CONTAINER_OF(conn, struct upstream_conn, conn);
    char *p;
    const ssize_t got = conn_read_shared(conn, &p);

    if (got == -1)
        return;
    if (u->ops == NULL)
        upstream_conn_close(u); /* idle: closed by the pod, or bytes nobody asked for */
    else if (got > 0)
        upstream_on_bytes(u, p, (size_t)got);
    else
        upstream_on_close(u, got < 0);
}

/* ---- sending ---- */

static void upstream_sent_failed(struct upstream_conn *u)
{
    /* The pod may have answered (413, say) and closed: what it wrote is still to be read, so the end of
     * reading decides. */
    u->send_broken = true;
}

static void upstream_on_connected(struct conn *conn, const char *why)
{
    struct upstream_conn *u = CONTAINER_OF(conn, struct upstream_conn, conn);

    if (u->connect_error != 0)
        why = strerror(u->connect_error);
    if (why != NULL) {
        upstream_fail(u, UPSTREAM_CONNECT, why);
        return;
    }
    upstream_arm(u, u->head_timeout_us);
    conn_want_read(&u->conn, true);
    if (!conn_flush(&u->conn))
        upstream_sent_failed(u);
    u->ops->connected(u->arg);
}

static void upstream_on_drained(struct conn *conn)
{
    struct upstream_conn *u = CONTAINER_OF(conn, struct upstream_conn, conn);

    if (conn->broken)
        upstream_sent_failed(u);
    else if (u->ops != NULL)
        u->ops->sent(u->arg);
}

/* Descriptors are shared with the clients: the connection that has been idle longest goes first. False: none
 * is idle. */
static bool upstream_drop_oldest(struct upstream_rules *rules)
{
    struct list *oldest = list_first(&rules->idle);

    if (oldest != NULL)
        upstream_conn_close(LIST_ITEM(oldest, struct upstream_conn, by_age));
    return oldest != NULL;
}

/* -1: errno says why. */
static int upstream_socket(const struct upstream *up, struct upstream_rules *rules)
{
    int fd;

    if (rules->n_open >= rules->max_open)
        (void)upstream_drop_oldest(rules);
    do
        fd = socket(up->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    while (fd < 0 && (errno == EMFILE || errno == ENFILE) && upstream_drop_oldest(rules));
    return fd;
}

static struct upstream_conn *upstream_connect(struct upstream *up, struct upstream_rules *rules)
{
    static const struct conn_ops conn_ops = {upstream_on_readable, upstream_on_drained,
                                             upstream_on_connected};
    const int fd = upstream_socket(up, rules), one = 1;
    struct upstream_conn *u;

    if (fd < 0)
        return NULL;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    u = mem_zalloc(sizeof *u);
    u->up = up;
    u->rules = rules;
    rules->n_open++;
    list_init(&u->by_age);
    list_init(&u->link);
    wheel_timer_init(&u->timer, upstream_on_timer);
    conn_open(&u->conn, up->loop, LOOP_UPSTREAM, fd, &conn_ops, 0);
    /* Every result, success and failure alike, is reported by the first writable event. */
    if (up->tls_name != NULL && rules->tls == NULL)
        u->connect_error = EPROTONOSUPPORT; /* never plain instead */
    else if (connect(fd, (const struct sockaddr *)&up->address, up->address_bytes) < 0 &&
             errno != EINPROGRESS)
        u->connect_error = errno;
    conn_await_connect(&u->conn);
    if (up->tls_name != NULL && rules->tls != NULL)
        conn_secure(&u->conn, tls_connect(rules->tls, fd, up->tls_name));
    return u;
}

static struct upstream_conn *upstream_take_idle(struct upstream *up)
{
    struct list *first = list_first(&up->idle);
    struct upstream_conn *u;

    if (first == NULL)
        return NULL;
    u = LIST_ITEM(first, struct upstream_conn, link);
    list_del(first);
    list_del(&u->by_age);
    up->n_idle--;
    return u;
}

struct upstream_conn *upstream_send(struct upstream *up, const struct upstream_request *r)
{
    struct upstream_conn *u = r->fresh ? NULL : upstream_take_idle(up);

    if (u == NULL)
        u = upstream_connect(up, r->rules);
    if (u == NULL)
        return NULL;
    u->ops = r->ops;
    u->arg = r->arg;
    u->head_timeout_us = r->head_timeout_us;
    u->head_request = r->head_request;
    u->got_bytes = u->got_head = u->send_broken = false;
    u->interim = 0;
    upstream_arm(u, u->conn.connecting ? r->rules->connect_timeout_us : r->head_timeout_us);
    if (!conn_send_borrowed(&u->conn, r->iov, r->n_iov))
        upstream_sent_failed(u);
    return u;
}

void upstream_pause(struct upstream_conn *u, bool paused)
{
    conn_want_read(&u->conn, !paused);
    /* While nobody reads, silence is not the pod's fault. */
    if (u->got_head)
        upstream_arm(u, paused ? 0 : u->rules->body_timeout_us);
}

void upstream_cancel(struct upstream_conn *u)
{
    upstream_conn_close(u);
}
