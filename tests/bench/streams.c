/* streams: many event streams at once, every byte of them checked. Opens N connections, sends one streamed
 * chat completion on each and compares the text of every event, as it comes, with the text the answer must
 * have. One thread, epoll. It shares no code with the router. Usage: streams PORT STREAMS TOKENS
 * REFERENCE_FILE [MODEL]
 *
 * The reference file has one line for each prompt: PROMPT TAB TEXT. Stream i asks prompt i modulo their
 * number, so that bytes of one stream that end up in another show. The last line says what came; the exit
 * status is 1 when anything was wrong. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_PROMPTS 64
#define LINE_BYTES  4096
#define QUIET_MS    30000 /* nothing at all for that long: give up */
#define BATCH       256
#define CONNECTS    64 /* started in one go */

struct prompt {
    char *question, *text;
    size_t text_n;
};

struct line {
    char text[LINE_BYTES];
    size_t n;
};

enum part { HEAD, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, LAST_END, OVER };

struct stream {
    int fd;
    size_t number;
    const struct prompt *prompt;
    enum part part;
    uint64_t left; /* of the chunk */
    struct line frame,
        event; /* the lines being read: of head and chunks, and of the events inside the chunks */
    bool ok_status, chunked, sent, done;
    size_t text_at;
    int64_t sent_us;
};

static struct prompt prompts[MAX_PROMPTS];
static size_t n_prompts, n_tokens;
static const char *model = "m";
static struct stream *streams;
static size_t n_streams, n_started, n_over, n_bad;
static uint64_t total_bytes, total_events;
static int64_t worst_first_us;
static int poller;

static int64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void die(const char *what)
{
    fprintf(stderr, "streams: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void read_reference(const char *path)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "r");

    if (!f)
        die(path);
    while (n_prompts < MAX_PROMPTS && fgets(text, sizeof text, f)) {
        char *tab = strchr(text, '\t'), *end = strchr(text, '\n');
        struct prompt *p = &prompts[n_prompts];

        if (!tab || !end)
            continue;
        *tab = *end = '\0';
        p->question = strdup(text);
        p->text = strdup(tab + 1);
        if (!p->question || !p->text)
            die("memory");
        p->text_n = strlen(p->text);
        n_prompts++;
    }
    fclose(f);
    if (n_prompts == 0) {
        fprintf(stderr, "streams: no prompts in %s\n", path);
        exit(2);
    }
}

/* wrong == NULL: all came as it should. */
static void stream_end(struct stream *s, const char *wrong)
{
    close(s->fd);
    s->part = OVER;
    n_over++;
    if (!wrong)
        return;
    if (++n_bad <= 10)
        fprintf(stderr, "stream %zu: %s (%zu of %zu text bytes came)\n", s->number, wrong, s->text_at,
                s->prompt->text_n);
}

/* ---- what streams must be: parsing from the outside in ---- */

/* The text of an event is what follows "content":" up to the next quote: the reference texts need no escapes.
 */
static const char *on_event(struct stream *s, const char *json)
{
    static const char key[] = "\"content\":\"";
    const char *text = strstr(json, key), *end;

    if (s->done)
        return "an event behind [DONE]";
    if (strcmp(json, "[DONE]") == 0) {
        s->done = true;
        return s->text_at == s->prompt->text_n ? NULL : "[DONE] before the text was complete";
    }
    if (!text)
        return "an event without text";
    text += sizeof key - 1;
    end = strchr(text, '"');
    const size_t n = end ? (size_t)(end - text) : 0;
    if (n > s->prompt->text_n - s->text_at || memcmp(text, s->prompt->text + s->text_at, n) != 0)
        return "wrong text";
    if (s->text_at == 0 && n > 0 && now_us() - s->sent_us > worst_first_us)
        worst_first_us = now_us() - s->sent_us;
    s->text_at += n;
    total_events++;
    return NULL;
}

static const char *on_event_line(struct stream *s)
{
    if (s->event.n == 0)
        return NULL;
    return strncmp(s->event.text, "data: ", 6) == 0 ? on_event(s, s->event.text + 6) : "not a data line";
}

static const char *on_head_line(struct stream *s)
{
    const char *text = s->frame.text;

    if (s->frame.n == 0) {
        s->part = CHUNK_SIZE;
        return s->ok_status && s->chunked ? NULL : "the answer is not a chunked 200";
    }
    s->ok_status = s->ok_status || strncmp(text, "HTTP/1.1 200 ", 13) == 0;
    s->chunked = s->chunked || strcasecmp(text, "Transfer-Encoding: chunked") == 0;
    return NULL;
}

static const char *on_frame_line(struct stream *s)
{
    char *end;

    switch (s->part) {
    case HEAD:
        return on_head_line(s);
    case CHUNK_SIZE:
        s->left = strtoull(s->frame.text, &end, 16);
        s->part = s->left > 0 ? CHUNK_DATA : LAST_END;
        return s->frame.n > 0 && *end == '\0' ? NULL : "bad chunk size";
    case CHUNK_END:
        s->part = CHUNK_SIZE;
        return s->frame.n == 0 ? NULL : "no CRLF behind a chunk";
    default:
        s->part = OVER;
        return s->frame.n == 0 && s->done ? NULL : "ended without [DONE]";
    }
}

/* Takes bytes up to the line's end. True when the line is complete (without its CR LF). */
static bool line_take(struct line *l, const char **data, size_t *n, const char **wrong)
{
    const char *end = memchr(*data, '\n', *n);
    const size_t take = end ? (size_t)(end - *data) : *n;

    if (l->n + take >= LINE_BYTES) {
        *wrong = "a line is too long";
        return false;
    }
    memcpy(l->text + l->n, *data, take);
    l->n += take;
    *data += take + (end ? 1 : 0);
    *n -= take + (end ? 1 : 0);
    if (!end)
        return false;
    if (l->n > 0 && l->text[l->n - 1] == '\r')
        l->n--;
    l->text[l->n] = '\0';
    return true;
}

static const char *feed_body(struct stream *s, const char *data, size_t n)
{
    const char *wrong = NULL;

    while (n > 0 && !wrong) {
        if (line_take(&s->event, &data, &n, &wrong)) {
            wrong = on_event_line(s);
            s->event.n = 0;
        }
    }
    return wrong;
}

static const char *feed(struct stream *s, const char *data, size_t n)
{
    const char *wrong = NULL;

    while (n > 0 && !wrong) {
        if (s->part == OVER)
            return "bytes behind the answer";
        if (s->part == CHUNK_DATA) {
            const size_t take = n < s->left ? n : (size_t)s->left;
            wrong = feed_body(s, data, take);
            data += take;
            n -= take;
            s->left -= take;
            if (s->left == 0)
                s->part = CHUNK_END;
        } else if (line_take(&s->frame, &data, &n, &wrong)) {
            wrong = on_frame_line(s);
            s->frame.n = 0;
        }
    }
    return wrong;
}

/* ---- connections ---- */

static void stream_start(struct stream *s, uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event e = {.events = EPOLLOUT, .data.ptr = s};

    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (s->fd < 0)
        die("socket");
    s->number = n_started++;
    s->prompt = &prompts[s->number % n_prompts];
    if (connect(s->fd, (struct sockaddr *)&to, sizeof to) != 0 && errno != EINPROGRESS)
        die("connect");
    if (epoll_ctl(poller, EPOLL_CTL_ADD, s->fd, &e) != 0)
        die("epoll_ctl");
}

static void stream_send(struct stream *s)
{
    char body[LINE_BYTES], text[LINE_BYTES + 512];
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};
    const int n = snprintf(body, sizeof body,
                           "{\"model\":\"%s\",\"stream\":true,\"max_tokens\":%zu,\"messages\":[{\"role\":"
                           "\"user\",\"content\":\"%s\"}]}",
                           model, n_tokens, s->prompt->question);
    const int all =
        snprintf(text, sizeof text,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                 "X-Session-ID: stream-%zu\r\nContent-Length: %d\r\n\r\n%s",
                 s->number, n, body);

    s->sent_us = now_us();
    s->sent = true;
    if (write(s->fd, text, (size_t)all) != all) {
        stream_end(s, "the request could not be sent");
        return;
    }
    if (epoll_ctl(poller, EPOLL_CTL_MOD, s->fd, &e) != 0)
        die("epoll_ctl");
}

static void stream_read(struct stream *s)
{
    static char data[65536];
    const ssize_t n = read(s->fd, data, sizeof data);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        stream_end(s, n == 0 ? "closed in the middle" : "reset in the middle");
        return;
    }
    total_bytes += (uint64_t)n;
    const char *wrong = feed(s, data, (size_t)n);
    if (wrong || s->part == OVER)
        stream_end(s, wrong);
}

static void start_some(uint16_t port)
{
    for (int i = 0; i < CONNECTS && n_started < n_streams; i++)
        stream_start(&streams[n_started], port);
}

static void run(uint16_t port)
{
    struct epoll_event events[BATCH];

    while (n_over < n_streams) {
        start_some(port);
        const int n = epoll_wait(poller, events, BATCH, n_started < n_streams ? 1 : QUIET_MS);
        if (n == 0 && n_started == n_streams) {
            fprintf(stderr, "streams: nothing came for %d s, %zu streams open\n", QUIET_MS / 1000,
                    n_streams - n_over);
            n_bad += n_streams - n_over;
            return;
        }
        for (int i = 0; i < n; i++) {
            struct stream *s = events[i].data.ptr;
            if (s->sent)
                stream_read(s);
            else
                stream_send(s);
        }
    }
}

int main(int argc, char **argv)
{
    static const char usage[] = "usage: streams PORT STREAMS TOKENS REFERENCE_FILE [MODEL]\n";

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc < 5 || argc > 6) {
        fprintf(stderr, "streams: %d arguments, expected 4 or 5\n%s", argc - 1, usage);
        return 2;
    }
    const uint16_t port = (uint16_t)strtoul(argv[1], NULL, 10);
    n_streams = strtoul(argv[2], NULL, 10);
    n_tokens = strtoul(argv[3], NULL, 10);
    read_reference(argv[4]);
    if (argc > 5)
        model = argv[5];
    streams = calloc(n_streams, sizeof *streams);
    poller = epoll_create1(0);
    if (!streams || poller < 0)
        die("start");
    const int64_t begun_us = now_us();
    run(port);
    printf("streams=%zu bad=%zu events=%llu bytes=%llu seconds=%.1f worst_first_token_ms=%.1f\n", n_streams,
           n_bad, (unsigned long long)total_events, (unsigned long long)total_bytes,
           (double)(now_us() - begun_us) / 1e6, (double)worst_first_us / 1e3);
    free(streams);
    return n_bad > 0 ? 1 : 0;
}
