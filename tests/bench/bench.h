/* What the bench programs share: the clock, dying, their usage, loopback, the few parts of HTTP/1.1 they
 * need, the mark of a timed SSE chunk. They trust each other and the proxy between them; nothing here is
 * meant for bytes from strangers.
 */
#ifndef BENCH_H
#define BENCH_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

/* A chunk's payload holds this mark and then BENCH_STAMP_DIGITS digits: CLOCK_MONOTONIC in ns when it was
 * sent. */
#define BENCH_MARK         "\"t\":"
#define BENCH_MARK_BYTES   4
#define BENCH_STAMP_DIGITS 18
#define BENCH_TIMED_BYTES  (BENCH_MARK_BYTES + BENCH_STAMP_DIGITS)

enum bench_body { BENCH_LENGTH, BENCH_CHUNKED, BENCH_UNTIL_CLOSE };

static inline int64_t bench_ns(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t bench_now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return bench_ns(t);
}

static inline struct timespec bench_timespec(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static inline _Noreturn void bench_die(const char *what)
{
    perror(what);
    exit(2);
}

/* Ends the program when it was asked for its usage alone. */
static inline void bench_help(int argc, char **argv, const char *usage)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        exit(0);
    }
}

/* False, so that a reader of options ends with it. What getopt_long finds wrong it names itself. */
static inline bool bench_wrong(const char *program, const char *what, const char *text)
{
    fprintf(stderr, "%s: %s%s\n", program, what, text);
    return false;
}

static inline void bench_raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static inline struct sockaddr_in bench_loopback(int port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* A non-blocking listener on loopback. */
static inline int bench_listen(int port)
{
    const struct sockaddr_in a = bench_loopback(port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 65535) < 0)
        bench_die("listen");
    return fd;
}

/* Size of the head with its empty line; 0: not all there. */
static inline size_t bench_head_bytes(const char *p, size_t n)
{
    const char *end = memmem(p, n, "\r\n\r\n", 4);

    return end ? (size_t)(end - p) + 4 : 0;
}

/* The value of a field, found by "Name:"; NULL if the head has none. It ends at a CR. */
static inline const char *bench_field(const char *head, size_t n, const char *name)
{
    const size_t name_bytes = strlen(name);
    const char *end = head + n, *line = head;

    while ((line = memchr(line, '\n', (size_t)(end - line))) != NULL) {
        line++;
        if ((size_t)(end - line) > name_bytes && strncasecmp(line, name, name_bytes) == 0) {
            for (line += name_bytes; *line == ' ';)
                line++;
            return line;
        }
    }
    return NULL;
}

/* How a head's body ends; *left_bytes is its Content-Length. Without any length: none for requests, until
 * close for answers. */
static inline enum bench_body bench_framing(const char *head, size_t n, uint64_t *left_bytes)
{
    const char *v = bench_field(head, n, "content-length:");

    *left_bytes = 0;
    if (v) {
        *left_bytes = strtoull(v, NULL, 10);
        return BENCH_LENGTH;
    }
    v = bench_field(head, n, "transfer-encoding:");
    return v && strncasecmp(v, "chunked", 7) == 0 ? BENCH_CHUNKED : BENCH_UNTIL_CLOSE;
}

/* True when the bytes so far end with the last chunk. tail keeps the last five bytes between calls. */
static inline bool bench_chunked_end(char tail[5], const char *p, size_t n)
{
    if (n >= 5) {
        memcpy(tail, p + n - 5, 5);
    } else {
        memmove(tail, tail + n, 5 - n);
        memcpy(tail + 5 - n, p, n);
    }
    return memcmp(tail, "0\r\n\r\n", 5) == 0;
}

#endif
