/* log_sink: it owns the output's file descriptor and the buffer before it. */
#include "log_sink.h"
#include "clock.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pipe that poll() calls writable takes this much at once without blocking (PIPE_BUF on Linux). */
#define LOG_SINK_PIPE_CHUNK 4096

/* O_NONBLOCK: opening a FIFO without a reader is an error then instead of a hang. */
static int open_path(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
}

static bool is_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) < 0 || S_ISREG(st.st_mode);
}

/* Non-blocking mode belongs to the open file, which we may share with our parent and its shell. So a pipe or
 * a terminal is opened a second time, for ourselves. Where that is not possible (sockets, /proc missing) we
 * write to the shared one, in pieces that poll() vouches for. */
static void open_std(struct log_sink *s, int fd)
{
    char path[32];

    s->fd = fd;
    if (is_file(fd))
        return;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        s->may_block = true;
        return;
    }
    s->fd = fd;
    s->owns_fd = true;
}

bool log_sink_open(struct log_sink *s, const char *output, char **error)
{
    *s = (struct log_sink){.fd = -1};
    buf_init(&s->pending, LOG_SINK_BUFFER_BYTES);
    if (strcmp(output, "stdout") == 0 || strcmp(output, "stderr") == 0) {
        open_std(s, strcmp(output, "stdout") == 0 ? STDOUT_FILENO : STDERR_FILENO);
        return true;
    }
    s->fd = open_path(output);
    if (s->fd < 0) {
        *error = mem_printf("cannot open \"%s\" for writing: %s", output, strerror(errno));
        return false;
    }
    s->owns_fd = true;
    s->path = mem_strdup(output);
    return true;
}

void log_sink_write(struct log_sink *s, struct slice line)
{
    if (buf_append_slice(&s->pending, line))
        return;
    log_sink_flush(s);
    if (!buf_append_slice(&s->pending, line))
        s->dropped++;
}

/* Of the output, whoever writes to it next. */
static void set_torn(struct log_sink *s, bool torn)
{
    s->torn = torn;
    if (s->beside != NULL)
        s->beside->torn = torn;
}

/* The output is broken, or nobody takes the rest. */
static void drop_pending(struct log_sink *s)
{
    struct slice lost = buf_slice(&s->pending);

    for (size_t i = 0; i < lost.n; i++)
        s->dropped += lost.p[i] == '\n';
    buf_clear(&s->pending);
    if (s->mid_line)
        set_torn(s, true);
    s->mid_line = false;
}

static bool would_block(const struct log_sink *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};

    /* An error or a hang-up is not waited for: the write that follows reports it. */
    return s->may_block && poll(&p, 1, 0) < 1;
}

/* One write; false when there is nothing more to do now. */
static bool flush_some(struct log_sink *s)
{
    const bool torn = s->torn;
    struct slice bytes = torn ? SLICE("\n") : buf_slice(&s->pending);
    ssize_t n;

    if (s->pending.len == 0 || would_block(s))
        return false;
    if (s->may_block && bytes.n > LOG_SINK_PIPE_CHUNK)
        bytes.n = LOG_SINK_PIPE_CHUNK;
    n = write(s->fd, bytes.p, bytes.n);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        drop_pending(s);
        return false;
    }
    s->mid_line = bytes.p[n - 1] != '\n';
    if (torn)
        set_torn(s, false);
    else
        buf_consume_keep(&s->pending, (size_t)n);
    return true;
}

static void unpair(struct log_sink *s)
{
    if (s->beside != NULL)
        s->beside->beside = NULL;
    s->beside = NULL;
}

static bool is_same_output(int a, int b)
{
    struct stat at, bt;

    return fstat(a, &at) == 0 && fstat(b, &bt) == 0 && at.st_dev == bt.st_dev && at.st_ino == bt.st_ino;
}

/* A file that the shell opened with `>` is written at a place of its own otherwise. */
static void set_append(int fd)
{
    const int flags = fcntl(fd, F_GETFL);

    if (flags >= 0 && (flags & O_APPEND) == 0 && is_file(fd))
        (void)fcntl(fd, F_SETFL, flags | O_APPEND);
}

void log_sink_pair(struct log_sink *a, struct log_sink *b)
{
    if (!is_same_output(a->fd, b->fd))
        return;
    set_append(a->fd);
    set_append(b->fd);
    a->beside = b;
    b->beside = a;
    set_torn(a, a->torn || b->torn);
}

static void flush_alone(struct log_sink *s)
{
    while (flush_some(s))
        ;
}

void log_sink_flush(struct log_sink *s)
{
    if (s->beside != NULL && s->beside->mid_line)
        flush_alone(s->beside);
    if (s->beside == NULL || !s->beside->mid_line)
        flush_alone(s);
}

/* The old output has the line's begin, the new one shall not have its rest. */
static void drop_rest_of_line(struct log_sink *s)
{
    const struct slice pending = buf_slice(&s->pending);
    const char *end = s->mid_line ? memchr(pending.p, '\n', pending.n) : NULL;

    if (end == NULL)
        return;
    buf_consume_keep(&s->pending, (size_t)(end + 1 - pending.p));
    s->dropped++;
    s->mid_line = false;
    set_torn(s, true);
}

void log_sink_reopen(struct log_sink *s)
{
    int fd = s->path != NULL ? open_path(s->path) : -1;

    if (fd < 0)
        return;
    log_sink_flush(s);
    drop_rest_of_line(s);
    unpair(s);
    s->torn = false;
    (void)close(s->fd);
    s->fd = fd;
}

static void flush_patiently(struct log_sink *s)
{
    const int64_t until_us = clock_mono_us() + LOG_SINK_CLOSE_WAIT_US;
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};

    log_sink_flush(s);
    while (s->pending.len > 0 && clock_mono_us() < until_us) {
        (void)poll(&p, 1, (int)((until_us - clock_mono_us()) / US_PER_MS) + 1);
        log_sink_flush(s);
    }
}

uint64_t log_sink_close(struct log_sink *s)
{
    uint64_t lost;

    flush_patiently(s);
    lost = s->dropped;
    drop_pending(s);
    lost = s->dropped - lost;
    unpair(s);
    if (s->owns_fd)
        (void)close(s->fd);
    buf_free(&s->pending);
    mem_free(s->path);
    *s = (struct log_sink){.fd = -1};
    return lost;
}
