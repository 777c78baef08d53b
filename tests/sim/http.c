/* Connections of vllm-sim: listening, strict HTTP/1.x parsing (a lenient pod would hide mistakes of the
 * client under test), framing of answers, keep-alive, and the ways to break a connection on purpose.
 * Owns connections; what is answered is decided in api.c. */
#include "sim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MAX_BYTES    (256 * 1024)
#define BODY_MAX_BYTES    (256 * 1024 * 1024)
#define PIPELINE_BYTES    (256 * 1024) /* read ahead while a request is being answered */
#define UNWRITTEN_BYTES   (256 * 1024) /* no further request is begun while so much is unwritten */
#define CHUNK_LINE_BYTES  256
#define DRAIN_US          1000000
#define ACCEPTS_PER_EVENT 256

enum body_kind { BODY_NONE, BODY_SIZED, BODY_CHUNKED };

struct listener {
    struct loop_io io;
    struct loop_timer retry;
    bool control, open;
    struct sockaddr_storage address;
    socklen_t address_len;
};

struct http_conn {
    struct loop_io io;
    struct loop_timer timer; /* idle time-out, delayed cut, or the end of draining */
    struct http_conn *prev, *next;
    struct api_call *call;
    struct buf in, out, body;
    int64_t id, answered;
    bool control, active, processing, dead, eof;
    bool closing, draining; /* close when written; discard what still comes in */
    /* the request being read */
    size_t scanned, head_len; /* head_len 0: not complete yet; else with the empty line */
    enum body_kind body_kind;
    size_t body_len, chunk_at;
    bool trailer, head_request, http10, wants_close;
    /* the answer being written */
    char request_id[256];
    bool chunked;
    int64_t cut_left; /* -1 = no cut */
    bool cut_reset;
    int64_t cut_delay_us, idle_close_us; /* idle_close_us -1 = the usual time-out */
};

struct http_stats http_stats;

static struct listener listeners[2]; /* API, control */
static struct http_conn *conn_list;
static int64_t next_conn_id;

static void conn_ready(struct loop_io *io, uint32_t events);
static void conn_timer(struct loop_timer *timer);
static void conn_process(struct http_conn *conn);

/* ---- life of a connection ---- */

static void conn_open(int fd, bool control)
{
    struct http_conn *conn = util_alloc(sizeof(*conn));
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    conn->io = (struct loop_io){.fd = fd, .ready = conn_ready, .owner = conn};
    conn->timer = (struct loop_timer){.fire = conn_timer, .owner = conn};
    conn->control = control;
    conn->id = next_conn_id++;
    conn->cut_left = conn->idle_close_us = -1;
    conn->next = conn_list;
    if (conn_list)
        conn_list->prev = conn;
    conn_list = conn;
    if (!control) {
        http_stats.open++;
        http_stats.accepted++;
    }
    loop_watch(&conn->io, EPOLLIN | EPOLLRDHUP);
}

/* The only place where a connection ends. The memory stays until the end of the turn. */
static void conn_close(struct http_conn *conn, bool reset)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    if (conn->dead)
        return;
    conn->dead = true;
    loop_disarm(&conn->timer);
    loop_forget(&conn->io);
    if (reset)
        setsockopt(conn->io.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(conn->io.fd);
    if (conn->next)
        conn->next->prev = conn->prev;
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        conn_list = conn->next;
    http_stats.open -= !conn->control;
    if (conn->call)
        api_gone(conn);
    buf_free(&conn->in);
    buf_free(&conn->out);
    buf_free(&conn->body);
    loop_free_later(conn);
}

/* Ends our side but keeps reading for a while: closing with unread bytes would reset the connection and
 * could take the answer away from the client. */
static void conn_drain(struct http_conn *conn)
{
    conn->draining = true;
    shutdown(conn->io.fd, SHUT_WR);
    loop_watch(&conn->io, EPOLLIN | EPOLLRDHUP);
    loop_arm(&conn->timer, util_now_us() + DRAIN_US);
}

/* After an answer: how long the connection may stay idle. */
static void conn_arm_idle(struct http_conn *conn)
{
    if (conn->idle_close_us >= 0)
        loop_arm(&conn->timer, util_now_us() + conn->idle_close_us);
    else if (cfg.keep_alive_timeout_s > 0)
        loop_arm(&conn->timer, util_now_us() + (int64_t)(cfg.keep_alive_timeout_s * 1e6));
}

static void conn_timer(struct loop_timer *timer)
{
    struct http_conn *conn = timer->owner;
    conn_close(conn, conn->cut_left == 0 && conn->cut_reset);
}

static void conn_want(struct http_conn *conn)
{
    uint32_t events = EPOLLRDHUP;
    if (!conn->active || buf_size(&conn->in) < PIPELINE_BYTES)
        events |= EPOLLIN;
    if (buf_size(&conn->out) > 0)
        events |= EPOLLOUT;
    if (!conn->dead)
        loop_watch(&conn->io, events);
}

/* All bytes so far are with the kernel: do what waited for that. */
static void conn_written(struct http_conn *conn)
{
    if (conn->cut_left == 0) {
        loop_arm(&conn->timer, util_now_us() + conn->cut_delay_us);
        if (conn->cut_delay_us == 0)
            conn_close(conn, conn->cut_reset);
    } else if (conn->closing && !conn->active && !conn->processing) {
        if (conn->eof || buf_size(&conn->in) == 0)
            conn_close(conn, false);
        else
            conn_drain(conn);
    }
}

void http_flush(struct http_conn *conn)
{
    if (conn->dead || conn->draining)
        return;
    while (buf_size(&conn->out) > 0) {
        ssize_t n = send(conn->io.fd, buf_bytes(&conn->out), buf_size(&conn->out), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            buf_clear(&conn->out); /* broken; the loop reports it and the connection ends there */
        if (n < 0)
            break;
        buf_take(&conn->out, (size_t)n);
    }
    if (buf_size(&conn->out) == 0)
        conn_written(conn);
    conn_want(conn);
}

/* ---- answers ---- */

static void conn_put(struct http_conn *conn, const char *data, size_t len)
{
    if (conn->dead || conn->draining)
        return;
    if (conn->cut_left >= 0) {
        len = (int64_t)len < conn->cut_left ? len : (size_t)conn->cut_left;
        conn->cut_left -= (int64_t)len;
    }
    buf_put(&conn->out, data, len);
}

static const char *status_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } known[] = {{200, "OK"},
                 {400, "Bad Request"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {413, "Content Too Large"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {502, "Bad Gateway"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].status == status)
            return known[i].reason;
    return "Simulated";
}

static const char *date_line(void)
{
    static char line[64];
    static time_t made;
    time_t now = time(NULL);
    struct tm parts;
    if (now != made && gmtime_r(&now, &parts))
        strftime(line, sizeof(line), "date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
    made = now;
    return line;
}

void http_head(struct http_conn *conn, int status, const char *content_type, int64_t length)
{
    struct buf head = {0};
    bool last = cfg.max_requests_per_connection && conn->answered + 1 >= cfg.max_requests_per_connection;
    conn->wants_close = conn->wants_close || last || (length < 0 && conn->http10);
    conn->chunked = length < 0 && !conn->http10;
    buf_printf(&head, "HTTP/1.1 %d %s\r\n%sserver: vllm-sim\r\n", status, status_reason(status), date_line());
    if (length >= 0)
        buf_printf(&head, "content-length: %lld\r\n", (long long)length);
    buf_printf(&head, "content-type: %s\r\nx-sim-pod: %lld\r\n", content_type, (long long)cfg.port);
    if (conn->request_id[0])
        buf_printf(&head, "x-request-id: %s\r\n", conn->request_id);
    if (conn->wants_close)
        buf_text(&head, "connection: close\r\n");
    else if (conn->http10)
        buf_text(&head, "connection: keep-alive\r\n");
    buf_text(&head, conn->chunked ? "transfer-encoding: chunked\r\n\r\n" : "\r\n");
    conn_put(conn, buf_bytes(&head), buf_size(&head));
    buf_free(&head);
}

void http_body(struct http_conn *conn, const char *data, size_t len)
{
    char line[24];
    if (conn->head_request || len == 0)
        return;
    if (conn->chunked)
        conn_put(conn, line, (size_t)snprintf(line, sizeof(line), "%zx\r\n", len));
    conn_put(conn, data, len);
    if (conn->chunked)
        conn_put(conn, "\r\n", 2);
}

void http_done(struct http_conn *conn)
{
    if (conn->chunked && !conn->head_request)
        conn_put(conn, "0\r\n\r\n", 5);
    conn->active = false;
    conn->call = NULL;
    conn->answered++;
    conn->closing = conn->closing || conn->wants_close;
    if (conn->cut_left != 0)
        conn->cut_left = -1; /* the answer was shorter than the cut */
    if (!conn->dead && !conn->closing && conn->cut_left < 0)
        conn_arm_idle(conn);
    http_flush(conn);
    conn_process(conn);
}

void http_reply(struct http_conn *conn, int status, const char *content_type, struct buf *body)
{
    http_head(conn, status, content_type, (int64_t)buf_size(body));
    http_body(conn, buf_bytes(body), buf_size(body));
    buf_free(body);
    http_done(conn);
}

void http_raw(struct http_conn *conn, const char *data, size_t len, bool keep_open)
{
    conn->chunked = false;
    conn->wants_close = !keep_open;
    conn_put(conn, data, len);
    http_done(conn);
}

void http_kill(struct http_conn *conn, bool reset)
{
    conn_close(conn, reset);
}

void http_cut(struct http_conn *conn, int64_t bytes, bool reset, int64_t delay_us)
{
    conn->cut_left = bytes;
    conn->cut_reset = reset;
    conn->cut_delay_us = delay_us;
}

void http_close_when_idle(struct http_conn *conn, int64_t delay_us)
{
    conn->idle_close_us = delay_us;
}

size_t http_pending(const struct http_conn *conn)
{
    return buf_size(&conn->out);
}

struct api_call *http_call(const struct http_conn *conn)
{
    return conn->call;
}

void http_set_call(struct http_conn *conn, struct api_call *call)
{
    conn->call = call;
}

int64_t http_conn_id(const struct http_conn *conn)
{
    return conn->id;
}

bool http_is_control(const struct http_conn *conn)
{
    return conn->control;
}

/* ---- requests ---- */

static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alnum && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return len > 0;
}

/* The line at `at`, without its CRLF; NULL at the end of the head. */
static const char *next_line(const char *at, const char *end, size_t *len)
{
    const char *stop = at && at < end ? memmem(at, (size_t)(end - at), "\r\n", 2) : NULL;
    if (!stop)
        return NULL;
    *len = (size_t)(stop - at);
    return at;
}

/* Splits a header line; the value without blanks around it. */
static bool split_header(const char *line, size_t len, size_t *name_len, const char **value,
                         size_t *value_len)
{
    const char *colon = memchr(line, ':', len);
    if (!colon || !is_token(line, (size_t)(colon - line)))
        return false;
    const char *from = colon + 1, *to = line + len;
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    for (const char *c = from; c < to; c++)
        if ((unsigned char)*c < 0x20 && *c != '\t')
            return false;
    *name_len = (size_t)(colon - line);
    *value = from;
    *value_len = (size_t)(to - from);
    return true;
}

static bool same_word(const char *text, size_t len, const char *word)
{
    return len == strlen(word) && strncasecmp(text, word, len) == 0;
}

bool http_header(const struct http_request *request, const char *name, char *out, size_t out_size)
{
    const char *end = request->head + request->head_len, *value;
    size_t len, name_len, value_len;
    const char *line = next_line(request->head, end, &len);
    out[0] = '\0';
    while (line && (line = next_line(line + len + 2, end, &len))) {
        if (!split_header(line, len, &name_len, &value, &value_len) || !same_word(line, name_len, name))
            continue;
        snprintf(out, out_size, "%.*s", (int)(value_len < out_size ? value_len : out_size - 1), value);
        return true;
    }
    return false;
}

static bool read_request_line(struct http_request *request, const char *line, size_t len)
{
    const char *space = memchr(line, ' ', len);
    const char *last = memrchr(line, ' ', len);
    if (!space || space == last || len - (size_t)(last - line) != 9)
        return false;
    size_t method_len = (size_t)(space - line), target_len = (size_t)(last - space) - 1;
    if (strncmp(last, " HTTP/1.", 8) != 0 || (last[8] != '0' && last[8] != '1'))
        return false;
    if (!is_token(line, method_len) || method_len >= sizeof(request->method))
        return false;
    if (target_len == 0 || target_len >= sizeof(request->target) || memchr(space + 1, ' ', target_len))
        return false;
    snprintf(request->method, sizeof(request->method), "%.*s", (int)method_len, line);
    snprintf(request->target, sizeof(request->target), "%.*s", (int)target_len, space + 1);
    request->minor = last[8] - '0';
    return true;
}

static bool read_length(struct http_conn *conn, const char *value, size_t len)
{
    size_t total = 0;
    if (conn->body_kind != BODY_NONE || len == 0 || len > 15)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9')
            return false;
        total = total * 10 + (size_t)(value[i] - '0');
    }
    conn->body_kind = BODY_SIZED;
    conn->body_len = total;
    return true;
}

/* What the connection itself must know of a header line. */
static bool read_header(struct http_conn *conn, const char *line, size_t len, bool *expects)
{
    const char *value;
    size_t name_len, value_len;
    if (!split_header(line, len, &name_len, &value, &value_len))
        return false;
    if (same_word(line, name_len, "content-length"))
        return read_length(conn, value, value_len);
    if (same_word(line, name_len, "transfer-encoding")) {
        bool good = conn->body_kind == BODY_NONE && same_word(value, value_len, "chunked") && !conn->http10;
        conn->body_kind = BODY_CHUNKED;
        return good;
    }
    if (same_word(line, name_len, "connection") && same_word(value, value_len, "close"))
        conn->wants_close = true;
    if (same_word(line, name_len, "connection") && same_word(value, value_len, "keep-alive"))
        conn->wants_close = false;
    if (same_word(line, name_len, "expect") && same_word(value, value_len, "100-continue"))
        *expects = true;
    if (same_word(line, name_len, "x-request-id") && value_len < sizeof(conn->request_id))
        snprintf(conn->request_id, sizeof(conn->request_id), "%.*s", (int)value_len, value);
    return true;
}

/* Status of the refusal, or 0. */
static int read_head(struct http_conn *conn, struct http_request *request)
{
    const char *head = buf_bytes(&conn->in), *end = head + conn->head_len - 2;
    size_t len;
    bool expects = false;
    const char *line = next_line(head, end, &len);
    conn->body_kind = BODY_NONE;
    conn->body_len = 0;
    conn->trailer = false;
    conn->request_id[0] = '\0';
    conn->chunk_at = conn->head_len;
    buf_clear(&conn->body);
    if (!line || !read_request_line(request, line, len))
        return 400;
    conn->wants_close = conn->http10 = request->minor == 0;
    conn->head_request = strcmp(request->method, "HEAD") == 0;
    while ((line = next_line(line + len + 2, end, &len)))
        if (!read_header(conn, line, len, &expects))
            return 400;
    if (conn->body_len > BODY_MAX_BYTES)
        return 413;
    if (expects && buf_size(&conn->in) == conn->head_len && !conn->http10)
        buf_text(&conn->out, "HTTP/1.1 100 Continue\r\n\r\n");
    return 0;
}

/* One line or one chunk at chunk_at. 1: progress, 2: body complete, 0: more bytes needed, -1: broken. */
static int read_chunk(struct http_conn *conn)
{
    const char *start = buf_bytes(&conn->in) + conn->chunk_at;
    size_t have = buf_size(&conn->in) - conn->chunk_at, size = 0, digits = 0;
    const char *stop = memmem(start, have < CHUNK_LINE_BYTES ? have : CHUNK_LINE_BYTES, "\r\n", 2);
    if (!stop)
        return have >= CHUNK_LINE_BYTES ? -1 : 0;
    size_t line_len = (size_t)(stop - start) + 2;
    if (conn->trailer) {
        conn->chunk_at += line_len;
        return line_len == 2 ? 2 : 1;
    }
    for (; digits < 8 && digits < line_len; digits++) {
        const char *all = "0123456789abcdef0123456789ABCDEF";
        const char *found = start[digits] ? strchr(all, start[digits]) : NULL;
        if (!found)
            break;
        size = size * 16 + (size_t)(found - all) % 16;
    }
    if (digits == 0 || (start[digits] != '\r' && start[digits] != ';') || size > BODY_MAX_BYTES)
        return -1;
    if (size == 0) {
        conn->trailer = true;
        conn->chunk_at += line_len;
        return 1;
    }
    if (have < line_len + size + 2)
        return 0;
    if (memcmp(start + line_len + size, "\r\n", 2) != 0)
        return -1;
    buf_put(&conn->body, start + line_len, size);
    conn->chunk_at += line_len + size + 2;
    return buf_size(&conn->body) > BODY_MAX_BYTES ? -1 : 1;
}

/* Length of the whole request in `in`; 0: more bytes needed, -1: broken body. */
static int64_t read_body(struct http_conn *conn, struct http_request *request)
{
    if (conn->body_kind == BODY_CHUNKED) {
        int step;
        do
            step = read_chunk(conn);
        while (step == 1);
        request->body = buf_bytes(&conn->body);
        request->body_len = buf_size(&conn->body);
        return step == 2 ? (int64_t)conn->chunk_at : step;
    }
    if (buf_size(&conn->in) - conn->head_len < conn->body_len)
        return 0;
    request->body = buf_bytes(&conn->in) + conn->head_len;
    request->body_len = conn->body_len;
    return (int64_t)(conn->head_len + conn->body_len);
}

static void conn_refuse(struct http_conn *conn, int status)
{
    struct buf text = {0};
    buf_text(&text, "Invalid HTTP request received.");
    conn->wants_close = conn->active = true;
    conn->head_request = false;
    http_reply(conn, status, "text/plain; charset=utf-8", &text);
}

/* The request line again, for a request whose body came later. */
static int read_head_again(const struct http_conn *conn, struct http_request *request)
{
    size_t len;
    const char *line = next_line(request->head, request->head + conn->head_len, &len);
    return line && read_request_line(request, line, len) ? 0 : 400;
}

/* Finds the end of the head. False: not there yet, or refused. */
static bool find_head(struct http_conn *conn)
{
    const char *bytes = buf_bytes(&conn->in);
    size_t from = conn->scanned > 3 ? conn->scanned - 3 : 0;
    const char *end = memmem(bytes + from, buf_size(&conn->in) - from, "\r\n\r\n", 4);
    conn->scanned = buf_size(&conn->in);
    if (end)
        conn->head_len = (size_t)(end - bytes) + 4;
    else if (conn->scanned > HEAD_MAX_BYTES)
        conn_refuse(conn, 431);
    return end != NULL;
}

/* Reads one request and hands it on. False: nothing complete. */
static bool conn_next(struct http_conn *conn)
{
    struct http_request request = {0};
    bool fresh = conn->head_len == 0;
    int refusal;
    if (buf_size(&conn->in) > 0)
        loop_disarm(&conn->timer);
    if (fresh && !find_head(conn))
        return false;
    /* The slices of the head are made again when the body is complete: `in` may have moved. */
    request.head = buf_bytes(&conn->in);
    request.head_len = conn->head_len - 2;
    refusal = fresh ? read_head(conn, &request) : read_head_again(conn, &request);
    int64_t total = refusal ? 0 : read_body(conn, &request);
    if (refusal || total < 0) {
        conn_refuse(conn, refusal ? refusal : 400);
        return false;
    }
    if (total == 0) {
        http_flush(conn); /* a "100 Continue" may be waiting */
        return false;
    }
    conn->active = true;
    conn->idle_close_us = -1;
    api_request(conn, &request);
    conn->scanned = conn->head_len = 0;
    if (!conn->dead)
        buf_take(&conn->in, (size_t)total);
    return true;
}

static void conn_process(struct http_conn *conn)
{
    if (conn->processing)
        return;
    conn->processing = true;
    while (!conn->dead && !conn->active && !conn->closing && !conn->draining && conn->cut_left != 0 &&
           buf_size(&conn->in) > 0 && buf_size(&conn->out) < UNWRITTEN_BYTES)
        if (!conn_next(conn))
            break;
    conn->processing = false;
    if (!conn->dead && !conn->draining) {
        if (conn->closing)
            http_flush(conn);
        conn_want(conn);
    }
}

/* ---- events ---- */

static void conn_read(struct http_conn *conn)
{
    char bytes[65536];
    ssize_t n = 0;
    for (int i = 0; i < 16; i++) {
        n = recv(conn->io.fd, bytes, sizeof(bytes), 0);
        if (n <= 0)
            break;
        if (!conn->draining)
            buf_put(&conn->in, bytes, (size_t)n);
        if ((size_t)n < sizeof(bytes) || (conn->active && buf_size(&conn->in) >= PIPELINE_BYTES))
            break;
    }
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        conn->eof = true;
}

static void conn_ready(struct loop_io *io, uint32_t events)
{
    struct http_conn *conn = io->owner;
    if (events & EPOLLIN)
        conn_read(conn);
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        conn->eof = true;
    if (!conn->dead && (events & EPOLLIN) && !conn->draining)
        conn_process(conn);
    if (!conn->dead && (events & EPOLLOUT)) {
        http_flush(conn);
        if (!conn->dead && conn->call)
            api_drained(conn);
        if (!conn->dead)
            conn_process(conn);
    }
    if (!conn->dead && conn->eof) /* as uvicorn: who has closed his side wants no answer */
        conn_close(conn, false);
}

static void listener_retry(struct loop_timer *timer)
{
    struct listener *listener = timer->owner;
    if (listener->open)
        loop_watch(&listener->io, EPOLLIN);
}

static void listener_ready(struct loop_io *io, uint32_t events)
{
    struct listener *listener = io->owner;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        int fd = accept4(io->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            conn_open(fd, listener->control);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE) { /* wait for descriptors instead of spinning */
            loop_forget(io);
            loop_arm(&listener->retry, util_now_us() + 100000);
        }
        return;
    }
}

static void set_port(struct sockaddr_storage *address, int64_t port)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
}

static bool make_address(struct listener *listener, int64_t port)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&listener->address;
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&listener->address;
    if (inet_pton(AF_INET, cfg.bind, &v4->sin_addr) == 1) {
        listener->address.ss_family = AF_INET;
        listener->address_len = sizeof(*v4);
    } else if (inet_pton(AF_INET6, cfg.bind, &v6->sin6_addr) == 1) {
        listener->address.ss_family = AF_INET6;
        listener->address_len = sizeof(*v6);
    } else
        return false;
    set_port(&listener->address, port);
    return true;
}

/* A socket bound to the address; refuses connections until listen(). */
static int bound_socket(const struct listener *listener)
{
    int one = 1;
    int fd = socket(listener->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (const struct sockaddr *)(const void *)&listener->address, listener->address_len) == 0)
        return fd;
    close(fd);
    return -1;
}

bool http_listen(int64_t *port, bool control)
{
    struct listener *listener = &listeners[control];
    socklen_t len = sizeof(listener->address);
    if (!make_address(listener, *port)) {
        fprintf(stderr, "vllm-sim: bind: expected an IPv4 or IPv6 address, got %s\n", cfg.bind);
        return false;
    }
    listener->control = control;
    listener->retry = (struct loop_timer){.fire = listener_retry, .owner = listener};
    listener->io = (struct loop_io){.fd = bound_socket(listener), .ready = listener_ready, .owner = listener};
    if (listener->io.fd < 0 || listen(listener->io.fd, 8192) < 0) {
        fprintf(stderr, "vllm-sim: cannot listen on %s port %lld: %s\n", cfg.bind, (long long)*port,
                strerror(errno));
        return false;
    }
    getsockname(listener->io.fd, (struct sockaddr *)(void *)&listener->address, &len);
    *port = listener->address.ss_family == AF_INET6
                ? ntohs(((struct sockaddr_in6 *)(void *)&listener->address)->sin6_port)
                : ntohs(((struct sockaddr_in *)(void *)&listener->address)->sin_port);
    listener->open = true;
    loop_watch(&listener->io, EPOLLIN);
    return true;
}

void http_print_address(const char *label, int64_t port)
{
    bool v6 = strchr(cfg.bind, ':') != NULL;
    printf("%s %s%s%s:%lld\n", label, v6 ? "[" : "", cfg.bind, v6 ? "]" : "", (long long)port);
    fflush(stdout);
}

static void close_idle_connections(void)
{
    for (struct http_conn *conn = conn_list, *next; conn; conn = next) {
        next = conn->next;
        if (!conn->control && !conn->active && buf_size(&conn->out) == 0)
            conn_close(conn, false);
    }
}

/* Refusing keeps a bound socket that does not listen, so that nobody else gets the port meanwhile. */
void http_refuse(bool refuse)
{
    struct listener *listener = &listeners[0];
    if (!listener->io.ready || refuse == !listener->open)
        return;
    if (refuse) {
        loop_forget(&listener->io);
        close(listener->io.fd);
        listener->io.fd = bound_socket(listener);
        listener->open = false;
        close_idle_connections();
        return;
    }
    if (listener->io.fd < 0)
        listener->io.fd = bound_socket(listener);
    if (listener->io.fd < 0 || listen(listener->io.fd, 8192) < 0) {
        fprintf(stderr, "vllm-sim: cannot listen again on port %lld: %s\n", (long long)cfg.port,
                strerror(errno));
        exit(1);
    }
    listener->open = true;
    loop_watch(&listener->io, EPOLLIN);
}

void http_close_all(void)
{
    for (size_t i = 0; i < 2; i++) {
        loop_disarm(&listeners[i].retry);
        if (listeners[i].io.ready && listeners[i].io.fd >= 0) {
            loop_forget(&listeners[i].io);
            close(listeners[i].io.fd);
        }
    }
    while (conn_list)
        conn_close(conn_list, false);
}
