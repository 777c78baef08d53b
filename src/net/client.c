/* One downstream connection. Bytes come from the loop's shared read buffer and are parsed there; only what
 * cannot be used yet is copied into `in`. A sized body is read straight to its final place. */
#include "client.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include "log.h"
#include "mem.h"
#include "metrics.h"
#include "tls.h"

#define CLIENT_LINGER_US  (2 * US_PER_S)
#define CLIENT_BODY_FIRST (4 * 1024)
/* A head and the start of a body: what comes behind it is read straight to its place, not copied there. */
#define CLIENT_FIRST_READ     (16 * 1024)
#define CLIENT_EXACT_BODY_MAX (64 * 1024 * 1024)
/* Larger bodies take several reads, whatever is known of them. With a first read it must fit into `in`. */
#define CLIENT_FORESEEN_MAX (96 * 1024)
/* From here on in huge pages: in small ones the kernel takes as long to find the memory as to fill it. And
 * apart: nothing may touch them before the body does, or a head alone would take two megabytes. */
#define CLIENT_HUGE_BODY      (4 * 1024 * 1024)
#define CLIENT_CHUNK_LINE_MAX 20 /* sixteen digits, CR LF */
/* Who sends or takes less is not waited for: one byte now and then would make a request last for ever. */
#define CLIENT_SLOWEST_BYTES_PER_S 1024

/* What the owner wants before a body may be so much longer than it was for the last one. */
#define CLIENT_FRONT_SPARE 64

/* The block of a body whose head is still being read, and what the same read has put to the body's place. */
struct client_foreseen {
    char *block; /* NULL: it is the owner's */
    size_t front, cap, n;
};

static void client_process_kept(struct client *c);

/* ---- time limits ---- */

static void client_arm(struct client *c, int64_t in_us)
{
    if (in_us > 0)
        loop_timer_set(c->conn.loop, &c->timer, loop_now_us(c->conn.loop) + in_us);
    else
        wheel_rest(&c->timer);
}

static void client_refuse(struct client *c, enum outcome o, const char *why)
{
    c->refused = true;
    c->keep_alive = false;
    c->state = CLIENT_BUSY;
    wheel_rest(&c->timer);
    c->ops->refuse(c, o, why);
}

static void client_lost(struct client *c, enum client_loss loss)
{
    if (c->state == CLIENT_BODY || c->state == CLIENT_BUSY)
        c->ops->gone(c, loss);
    client_close(c);
}

/* Acknowledged bytes show how a client reads: it has stalled when they hardly grow during the whole limit. */
static void client_check_stall(struct client *c)
{
    const int64_t now_us = loop_now_us(c->conn.loop), limit_us = c->rules->write_timeout_us;
    const uint64_t acked = conn_acked_bytes(&c->conn);

    if (conn_pending(&c->conn) == 0 || limit_us <= 0)
        return;
    if (acked - c->acked_bytes > (uint64_t)(limit_us / US_PER_S) * CLIENT_SLOWEST_BYTES_PER_S) {
        c->acked_bytes = acked;
        c->stalled_since_us = now_us;
    } else if (now_us - c->stalled_since_us >= limit_us) {
        client_lost(c, CLIENT_LOSS_STALLED);
        return;
    }
    /* Looked at four times per limit: a stall is noticed at most a quarter late. */
    loop_timer_set(c->conn.loop, &c->timer, now_us + limit_us / 4 + 1);
}

static void client_watch_writing(struct client *c)
{
    if (conn_pending(&c->conn) == 0 || wheel_pending(&c->timer) || c->rules->write_timeout_us <= 0)
        return;
    c->acked_bytes = conn_acked_bytes(&c->conn);
    c->stalled_since_us = loop_now_us(c->conn.loop);
    client_arm(c, c->rules->write_timeout_us / 4 + 1);
}

/* Anybody can fail a handshake as often as he likes: one line a second says so. */
static void client_tls_failed(struct client *c, const char *kind, const char *why)
{
    struct client_rules *r = c->rules;
    const int64_t now_us = loop_now_us(c->conn.loop);

    metrics_inc(METRIC_TLS_FAILURES, kind);
    if (r->tls_logged_us != 0 && now_us - r->tls_logged_us < US_PER_S) {
        r->tls_unlogged++;
    } else {
        log_warn("a TLS handshake failed", LOG_STR("peer", c->address), LOG_STR("reason", kind),
                 LOG_STR("error", why), LOG_INT("not_logged", r->tls_unlogged));
        r->tls_logged_us = now_us;
        r->tls_unlogged = 0;
    }
    client_close(c);
}

static void client_on_timer(struct wheel_timer *t)
{
    struct client *c = CONTAINER_OF(t, struct client, timer);

    switch (c->state) {
    case CLIENT_HEAD:
        c->head->base = buf_slice(&c->in).p;
        client_refuse(c, OUTCOME_CLIENT_TIMEOUT,
                      "the request head did not arrive within CLIENT_HEADER_TIMEOUT");
        break;
    case CLIENT_BODY:
        client_refuse(
            c, OUTCOME_CLIENT_TIMEOUT,
            "the request body stopped for CLIENT_BODY_TIMEOUT, or came at less than 1 KiB per second");
        break;
    case CLIENT_BUSY:
    case CLIENT_FLUSH:
        client_check_stall(c);
        break;
    case CLIENT_IDLE:
        if (c->conn.connecting && !c->rules->closing) {
            client_tls_failed(c, "timeout", "the handshake was not complete within CLIENT_HEADER_TIMEOUT");
            break;
        }
        if (conn_pending(&c->conn) > 0) {
            client_check_stall(c);
            break;
        }
        /* Arrived in the meantime; who does not take what TLS has to say first is not read from. */
        if (!c->conn.connecting && !c->conn.writing && conn_has_unread(&c->conn))
            client_arm(c, c->rules->idle_timeout_us);
        else
            client_close(c);
        break;
    case CLIENT_LINGER:
    case CLIENT_CLOSED:
        client_close(c);
        break;
    }
}

/* ---- reading requests ---- */

static void client_drop_head(struct client *c)
{
    http1_head_free(c->head);
    c->head = NULL;
}

static void client_start_head(struct client *c)
{
    c->state = CLIENT_HEAD;
    c->first_byte_us = loop_now_us(c->conn.loop);
    c->framing = HTTP1_NO_BODY;
    c->refused = false;
    if (c->head == NULL)
        c->head = http1_head_new();
    http1_start(&c->http, HTTP1_REQUEST, c->head, c->rules->max_head_bytes, false);
}

/* For the rest of the head: its first byte counts, later ones win no time. */
static void client_await_head(struct client *c)
{
    const int64_t limit_us = c->rules->header_timeout_us;
    const int64_t left_us = c->first_byte_us + limit_us - loop_now_us(c->conn.loop);

    client_arm(c, limit_us <= 0 ? 0 : left_us > 0 ? left_us : 1);
}

static void client_whole(struct client *c)
{
    c->state = CLIENT_BUSY;
    wheel_rest(&c->timer);
    c->ops->request(c);
}

static bool client_make_room(struct client *c, size_t n)
{
    const uint64_t limit = c->rules->max_body_bytes;
    size_t cap = c->body_cap > 0 ? c->body_cap : CLIENT_BODY_FIRST;

    if (c->body_n + n > limit) {
        client_refuse(c, OUTCOME_BODY_TOO_LARGE, "the request body is larger than MAX_BODY_BYTES");
        return false;
    }
    if (c->rules->held_bytes + n > c->rules->max_held_bytes) {
        client_refuse(c, OUTCOME_QUEUE_BYTES, "QUEUE_MAX_BYTES of request bodies are waiting in the router");
        return false;
    }
    while (cap < c->body_n + n)
        cap *= 2;
    if (cap > c->body_cap) {
        c->body = mem_realloc(c->body, cap + CLIENT_BODY_SPARE);
        c->body_cap = cap;
    }
    return true;
}

/* How long the next byte may take: less for a body that came slowly so far, so that it has an end. */
static void client_await_body(struct client *c)
{
    const int64_t lasted_us = loop_now_us(c->conn.loop) - c->body_since_us;
    const int64_t behind_us = lasted_us - (int64_t)c->body_n * US_PER_S / CLIENT_SLOWEST_BYTES_PER_S;
    const int64_t limit_us = c->rules->body_timeout_us;

    client_arm(c, behind_us <= 0 ? limit_us : behind_us < limit_us ? limit_us - behind_us : 1);
}

static void client_count_body(struct client *c, size_t n)
{
    c->body_n += n;
    c->rules->held_bytes += n;
}

static bool client_add_body(struct client *c, struct slice s)
{
    if (s.n == 0)
        return true;
    if (!client_make_room(c, s.n))
        return false;
    memcpy(c->body + c->body_n, s.p, s.n);
    client_count_body(c, s.n);
    return true;
}

/* What stands behind the head is in its place already, if it is of this body alone. A body must fill half of
 * its room at least: the rest of it is memory that nobody counts. */
static bool client_was_foreseen(const struct client_foreseen *f, size_t front, uint64_t length)
{
    return f != NULL && front <= f->front && length >= f->n && length <= f->cap && length >= f->cap / 2;
}

void *client_place_body(struct client *c, size_t front)
{
    const uint64_t length = c->head->framing == HTTP1_SIZED ? c->head->content_length : 0;
    struct client_foreseen *f = c->foreseen;
    char *block;

    if (length == 0 || length >= CLIENT_HUGE_BODY || length > c->rules->max_body_bytes)
        return mem_alloc(front);
    c->last_front = (uint32_t)(front + CLIENT_FRONT_SPARE);
    if (client_was_foreseen(f, front, length)) {
        block = f->block;
        front = f->front;
        f->block = NULL;
    } else {
        block = mem_alloc(front + length + CLIENT_BODY_SPARE);
    }
    c->place = block + front;
    return block;
}

/* The owner wants the body: where it goes, and the go-ahead for a client that waits for it. What has come of
 * it already is looked at next, and only then there is something to wait for. */
static void client_start_body(struct client *c, uint64_t length, size_t have, bool send_continue)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

    c->state = CLIENT_BODY;
    if (length > 0 && length <= CLIENT_EXACT_BODY_MAX) {
        c->body_cap = (size_t)length;
        c->body = c->place != NULL ? c->place : mem_table(c->body_cap + CLIENT_BODY_SPARE);
    }
    if (send_continue) {
        struct iovec iov = {(char *)(uintptr_t)go_on, sizeof go_on - 1};

        if (!conn_writev(&c->conn, &iov, 1))
            c->conn.broken = true; /* noticed when the body is read */
    }
    c->body_since_us = loop_now_us(c->conn.loop);
    if (have == 0)
        client_await_body(c);
}

static void client_head_done(struct client *c, size_t have)
{
    const uint64_t length = c->head->framing == HTTP1_SIZED ? c->head->content_length : 0;
    const bool body = c->head->framing == HTTP1_CHUNKED || length > 0;
    bool send_continue, wanted;

    if (have > 0)
        c->foreseen = NULL; /* the body begins before it */
    send_continue = c->head->expect_continue && c->head->minor >= 1 && have == 0 && c->foreseen == NULL;
    c->last_length = length <= CLIENT_FORESEEN_MAX ? (uint32_t)length : 0;
    c->minor = (uint8_t)c->head->minor;
    c->keep_alive = c->head->keep_alive;
    c->state = CLIENT_BUSY;
    /* Answered on the head alone: a body that is on its way would be taken for the next request. */
    c->refused = body;
    wanted = c->ops->head(c);
    client_drop_head(c);
    if (!wanted)
        return;
    c->refused = false;
    if (length > c->rules->max_body_bytes)
        client_refuse(c, OUTCOME_BODY_TOO_LARGE, "Content-Length is larger than MAX_BODY_BYTES");
    else if (body)
        client_start_body(c, length, have, send_continue);
    else
        client_whole(c);
}

static enum outcome client_error_outcome(enum http1_error e)
{
    switch (e) {
    case HTTP1_HEAD_TOO_LARGE:
        return OUTCOME_HEAD_TOO_LARGE;
    case HTTP1_TARGET_TOO_LONG:
        return OUTCOME_URI_TOO_LONG;
    case HTTP1_UNSUPPORTED:
        return OUTCOME_UNSUPPORTED;
    case HTTP1_OK:
    case HTTP1_BAD:
    case HTTP1_VERSION:
        break;
    }
    return OUTCOME_BAD_HTTP;
}

/* The parsers. Each returns the bytes it used; 0 = it needs more, or the request went to the owner. */
static size_t client_parse_head(struct client *c, const char *p, size_t n)
{
    const ssize_t used = http1_head(&c->http, p, n);

    if (used < 0) {
        client_refuse(c, client_error_outcome(c->http.error), c->http.reason);
        return 0;
    }
    if (used == 0) {
        client_await_head(c);
        return 0;
    }
    c->last_head_n = (uint32_t)used;
    client_head_done(c, n - (size_t)used);
    return (size_t)used;
}

static size_t client_parse_body(struct client *c, const char *p, size_t n)
{
    struct slice span;
    const ssize_t used = http1_body(&c->http, p, n, &span);

    if (used < 0) {
        client_refuse(c, client_error_outcome(c->http.error), c->http.reason);
        return 0;
    }
    if (!client_add_body(c, span))
        return 0;
    if (c->http.done)
        client_whole(c);
    else
        client_await_body(c);
    return (size_t)used;
}

/* Uses as many bytes as make sense now. A head that ends inside p is parsed in place. */
static size_t client_process(struct client *c, const char *p, size_t n)
{
    size_t at = 0;

    while (at < n && c->state <= CLIENT_BODY) {
        const enum client_state before = c->state;
        size_t used;

        if (before == CLIENT_IDLE) {
            if (conn_pending(&c->conn) > 0)
                break; /* asks ahead and does not read: the answers would pile up */
            at += http1_skip_blank(p + at, n - at);
            if (n - at == 1 && p[at] == '\r')
                break; /* may be half of another blank line */
            if (at < n)
                client_start_head(c);
            continue;
        }
        used = before == CLIENT_HEAD ? client_parse_head(c, p + at, n - at)
                                     : client_parse_body(c, p + at, n - at);
        at += used;
        if (used == 0 && c->state == before)
            break;
    }
    return at;
}

/* An unfinished head and a read, or what is kept of requests sent ahead and a read. */
static uint32_t client_most_kept(const struct client_rules *rules)
{
    return (uint32_t)(rules->max_head_bytes + 2 * LOOP_READ_BYTES);
}

/* Keeps the bytes that client_process left. A head in progress must stay whole. */
static void client_keep(struct client *c, const char *p, size_t n)
{
    const uint32_t most = client_most_kept(c->rules);

    if (c->state >= CLIENT_FLUSH || n == 0)
        return;
    /* A reload allows larger heads: a kept connection must have room for them, or it would lose bytes. */
    if (c->in.max_bytes < most)
        c->in.max_bytes = most;
    if (!buf_append(&c->in, p, n)) {
        c->keep_alive = false;
        buf_clear(&c->in);
    }
    /* Enough pipelined bytes; a FIN behind them must not go unnoticed. */
    if (c->state == CLIENT_BUSY && c->in.len >= c->rules->max_head_bytes)
        conn_watch(&c->conn);
}

/* Reads on when little enough is kept. Else requests sent ahead would come in faster than they are answered,
 * until they did not fit and were lost. */
static void client_read_on(struct client *c)
{
    const bool enough = c->in.len >= c->rules->max_head_bytes;

    if (c->state == CLIENT_HEAD || c->state == CLIENT_BODY || (c->state == CLIENT_BUSY && !enough) ||
        (c->state == CLIENT_IDLE && !enough && conn_pending(&c->conn) == 0))
        conn_want_read(&c->conn, true);
}

static void client_process_kept(struct client *c)
{
    const struct slice s = buf_slice(&c->in);
    const size_t used = client_process(c, s.p, s.n);

    if (c->state >= CLIENT_FLUSH)
        return;
    buf_consume(&c->in, used);
    client_read_on(c);
}

static void client_on_next(struct loop_task *t)
{
    struct client *c = CONTAINER_OF(t, struct client, next);

    if (c->state == CLIENT_IDLE)
        client_process_kept(c);
}

static void client_use(struct client *c, const char *p, size_t n)
{
    size_t used;

    if (c->state >= CLIENT_FLUSH)
        return;
    if (c->in.len > 0 || c->state == CLIENT_BUSY) {
        client_keep(c, p, n);
        if (c->state < CLIENT_BUSY)
            client_process_kept(c);
        return;
    }
    used = client_process(c, p, n);
    if (used < n && c->state != CLIENT_CLOSED)
        client_keep(c, p + used, n - used);
}

static void client_took_in_place(struct client *c, size_t n)
{
    client_count_body(c, n);
    c->http.remaining -= n;
    c->http.done = c->http.remaining == 0;
    if (c->http.done)
        client_whole(c);
    else
        client_await_body(c);
}

/* A sized body goes to its place without passing the shared buffer. True: handled. */
static bool client_read_sized(struct client *c, ssize_t *got)
{
    size_t room;

    if (c->state != CLIENT_BODY || c->http.framing != HTTP1_SIZED || c->in.len > 0)
        return false;
    room = c->body_cap - c->body_n;
    if (room == 0 || c->rules->held_bytes + room > c->rules->max_held_bytes)
        return false;
    *got = conn_read(&c->conn, c->body + c->body_n, room);
    if (*got > 0)
        client_took_in_place(c, (size_t)*got);
    return true;
}

static bool client_foresees(const struct client *c)
{
    return c->state == CLIENT_IDLE && c->last_length > CLIENT_FIRST_READ &&
           c->last_head_n <= CLIENT_FIRST_READ && c->in.len == 0 && !client_is_secure(c) &&
           c->rules->held_bytes + CLIENT_FORESEEN_MAX <= c->rules->max_held_bytes;
}

/* Uses a read of which the first head_n bytes went to `shared` and the others to f. When the head ends
 * elsewhere they are used as two reads would be. */
static void client_use_foreseen(struct client *c, struct client_foreseen *f, const char *shared,
                                size_t head_n)
{
    c->foreseen = f;
    client_use(c, shared, head_n);
    c->foreseen = NULL;
    if (f->block == NULL)
        client_took_in_place(c, f->n);
    else
        client_use(c, f->block + f->front, f->n);
}

/* The next request of a conversation has a head as long as the last one's, and a body that is a little
 * longer: one read takes both, each to its place. Returns what was read. */
static ssize_t client_read_foreseen(struct client *c, char *shared)
{
    const size_t head_n = c->last_head_n, likely = c->last_length + c->last_length / 4;
    struct client_foreseen f = {.front = c->last_front,
                                .cap = likely < CLIENT_FORESEEN_MAX ? likely : CLIENT_FORESEEN_MAX};
    struct iovec iov[2] = {{shared, head_n}, {NULL, f.cap}};
    ssize_t got;

    f.block = mem_alloc(f.front + f.cap + CLIENT_BODY_SPARE);
    iov[1].iov_base = f.block + f.front;
    got = conn_readv(&c->conn, iov, 2);
    if (got > 0 && (size_t)got <= head_n) {
        client_use(c, shared, (size_t)got);
    } else if (got > 0) {
        f.n = (size_t)got - head_n;
        client_use_foreseen(c, &f, shared, head_n);
    }
    mem_free(f.block);
    return got;
}

static void client_on_readable(struct conn *conn)
{
    struct client *c = CONTAINER_OF(conn, struct client, conn);
    char *shared = c->conn.loop->read_buffer;
    ssize_t got;

    if (conn->watching) {
        if (conn_peer_gone(conn))
            client_lost(c, CLIENT_LOSS_GONE);
        return;
    }
    if (client_foresees(c)) {
        got = client_read_foreseen(c, shared);
    } else if (!client_read_sized(c, &got)) {
        got = conn_read(conn, shared, c->state == CLIENT_BODY ? LOOP_READ_BYTES : CLIENT_FIRST_READ);
        if (got > 0)
            client_use(c, shared, (size_t)got);
    }
    if (got == 0 && c->state == CLIENT_FLUSH)
        conn_want_read(conn, false); /* it has said all it wanted to say, and still reads */
    else if (got == 0 || got == -2)
        client_lost(c, CLIENT_LOSS_GONE);
}

/* A browser or a probe that was given http:// gets an answer that it can show. */
static void client_refuse_plain(struct client *c)
{
    conn_unsecure(&c->conn);
    c->conn.broken = false;
    client_start_head(c);
    client_refuse(c, OUTCOME_BAD_HTTP, "this port speaks TLS: the URL must begin with https://");
}

static void client_on_secured(struct conn *conn, const char *why)
{
    struct client *c = CONTAINER_OF(conn, struct client, conn);

    if (why == NULL) {
        client_arm(c, c->rules->idle_timeout_us);
        conn_want_read(conn, true);
    } else if (strcmp(tls_failure()->kind, "plain_http") == 0) {
        client_refuse_plain(c);
    } else {
        client_tls_failed(c, tls_failure()->kind, why);
    }
}

/* ---- answering ---- */

bool client_may_keep(const struct client *c, enum http1_framing framing)
{
    return c->keep_alive && !c->refused && !c->rules->closing && framing != HTTP1_UNTIL_CLOSE;
}

void client_begin(struct client *c, enum http1_framing framing, bool keep_alive)
{
    c->framing = framing;
    c->keep_alive = keep_alive;
}

/* "1a2b\r\n" at the end of out; returns where it starts. */
static char *client_chunk_line(char *out, size_t room, size_t n)
{
    char *at = out + room;

    *--at = '\n';
    *--at = '\r';
    do
        *--at = "0123456789abcdef"[n & 15];
    while ((n >>= 4) > 0);
    return at;
}

static void client_iov_put(struct iovec **at, const char *p, size_t bytes)
{
    *(*at)++ = (struct iovec){(char *)(uintptr_t)p, bytes};
}

/* Chunks as the pod made them go on as they are; other content becomes one chunk. */
static void client_put_chunks(const struct client_part *part, char *chunk_line, struct iovec **at)
{
    struct iovec *line = *at;
    size_t total = 0;
    char *start;

    if (part->framed.n > 0) {
        client_iov_put(at, part->framed.p, part->framed.n);
    } else if (part->n_spans > 0) {
        (*at)++;
        for (unsigned i = 0; i < part->n_spans; i++) {
            total += part->spans[i].n;
            client_iov_put(at, part->spans[i].p, part->spans[i].n);
        }
        start = client_chunk_line(chunk_line, CLIENT_CHUNK_LINE_MAX, total);
        *line = (struct iovec){start, (size_t)(chunk_line + CLIENT_CHUNK_LINE_MAX - start)};
        client_iov_put(at, "\r\n0\r\n\r\n", part->end ? 7 : 2);
        return;
    }
    if (part->end)
        client_iov_put(at, "0\r\n\r\n", 5);
}

bool client_send(struct client *c, const struct client_part *part)
{
    struct iovec iov[CLIENT_SPANS_MAX + 4], *at = iov;
    char chunk_line[CLIENT_CHUNK_LINE_MAX];

    if (part->head.n > 0)
        client_iov_put(&at, part->head.p, part->head.n);
    if (c->framing == HTTP1_CHUNKED) {
        client_put_chunks(part, chunk_line, &at);
    } else {
        for (unsigned i = 0; i < part->n_spans; i++)
            client_iov_put(&at, part->spans[i].p, part->spans[i].n);
    }
    if (at > iov && !conn_writev(&c->conn, iov, (unsigned)(at - iov)))
        return false;
    if (conn_pending(&c->conn) > 0)
        client_watch_writing(c);
    return true;
}

static void client_on_drained(struct conn *conn)
{
    struct client *c = CONTAINER_OF(conn, struct client, conn);

    if (conn->broken)
        client_lost(c, CLIENT_LOSS_GONE);
    else if (c->state == CLIENT_FLUSH)
        client_end(c, false);
    else if (c->state == CLIENT_IDLE)
        client_end(c, true);
    else if (c->state == CLIENT_BUSY)
        c->ops->drained(c);
}

char *client_take_body(struct client *c, size_t *n)
{
    char *body = c->body;

    *n = c->body_n;
    c->body = c->place = NULL;
    c->body_n = c->body_cap = 0;
    return body;
}

void client_release_held(struct client_rules *rules, size_t n_bytes)
{
    rules->held_bytes -= n_bytes;
}

static void client_drop_body(struct client *c)
{
    client_release_held(c->rules, c->body_n);
    if (c->body != c->place)
        mem_free(c->body);
    c->body = c->place = NULL;
    c->body_n = c->body_cap = 0;
}

/* The half-closed goodbye: the answer must not be lost to the RST that unread request bytes would cause. */
static void client_say_goodbye(struct client *c)
{
    if (!c->refused && c->in.len == 0 && !conn_has_unread(&c->conn)) {
        client_close(c);
        return;
    }
    c->state = CLIENT_LINGER;
    buf_free(&c->in);
    conn_end_writing(&c->conn);
    conn_want_read(&c->conn, true);
    client_arm(c, CLIENT_LINGER_US);
}

static void client_next_request(struct client *c)
{
    c->state = CLIENT_IDLE;
    /* A client that pipelines without reading its answers waits until they have left. */
    if (conn_pending(&c->conn) > 0)
        conn_want_read(&c->conn, false);
    else if (c->in.len >= c->rules->max_head_bytes)
        conn_watch(&c->conn);
    else
        conn_want_read(&c->conn, true);
    if (conn_pending(&c->conn) > 0) {
        wheel_rest(&c->timer);
        client_watch_writing(c);
        return;
    }
    client_arm(c, c->rules->idle_timeout_us);
    if (c->in.len > 0)
        loop_defer(c->conn.loop, &c->next);
}

void client_end(struct client *c, bool clean)
{
    if (c->state == CLIENT_CLOSED)
        return;
    c->request = NULL;
    /* Where the end of the connection is the end of the answer, only a reset can say that it is not whole. */
    c->cut |= !clean && c->state == CLIENT_BUSY && c->framing == HTTP1_UNTIL_CLOSE;
    client_drop_head(c);
    client_drop_body(c);
    if (c->conn.broken) {
        client_close(c);
    } else if (clean && c->keep_alive) {
        client_next_request(c);
    } else if (conn_pending(&c->conn) > 0) {
        c->state = CLIENT_FLUSH;
        client_watch_writing(c);
    } else {
        client_say_goodbye(c);
    }
}

/* ---- life ---- */

static void client_free(struct loop_grave *g)
{
    struct client *c = CONTAINER_OF(g, struct client, grave);

    mem_free(c->address);
    mem_free(c);
}

void client_close(struct client *c)
{
    if (c->state == CLIENT_CLOSED)
        return;
    c->state = CLIENT_CLOSED;
    loop_timer_cancel(c->conn.loop, &c->timer);
    loop_task_cancel(&c->next);
    conn_close(&c->conn, c->cut);
    client_drop_head(c);
    client_drop_body(c);
    buf_free(&c->in);
    c->ops->closed(c);
    loop_bury(c->conn.loop, &c->grave, client_free);
}

void client_hurry_idle(struct client *c)
{
    if (c->state == CLIENT_IDLE && conn_pending(&c->conn) == 0)
        client_arm(c, c->rules->idle_timeout_us);
}

struct client *client_new(struct loop *l, int fd, const struct sockaddr *from, struct client_rules *rules,
                          const struct client_ops *ops, void *arg)
{
    static const struct conn_ops conn_ops = {client_on_readable, client_on_drained, client_on_secured};
    struct client *c = mem_zalloc(sizeof *c);
    char address[LISTEN_TEXT_MAX];
    int one = 1;

    conn_open(&c->conn, l, LOOP_DOWNSTREAM, fd, &conn_ops, SIZE_MAX);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    list_init(&c->link);
    c->rules = rules;
    c->ops = ops;
    c->arg = arg;
    buf_init(&c->in, client_most_kept(rules));
    wheel_timer_init(&c->timer, client_on_timer);
    loop_task_init(&c->next, client_on_next);
    listen_address_text(from, address);
    c->address = mem_strdup(address);
    c->address_n = (uint8_t)strlen(address);
    conn_want_read(&c->conn, true);
    client_arm(c, rules->idle_timeout_us);
    return c;
}

void client_secure(struct client *c, const struct tls_context *tls)
{
    conn_secure(&c->conn, tls_accept(tls, c->conn.fd));
    client_arm(c, c->rules->header_timeout_us);
}
