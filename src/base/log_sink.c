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
static int open_path(const char *path, char **error)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);

    if (fd < 0)
        *error = mem_printf("cannot open \"%s\" for writing: %s", path, strerror(errno));
    return fd;
}

static bool is_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) < 0 || S_ISREG(st.st_mode);
}

/* A file that the shell opened with `>` is written at a place of its own otherwise: two logs in it would
 * write over each other, and one that is cut to nothing under our hands would begin with a hole. */
static void set_append(int fd)
{
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_APPEND);
}

/* Non-blocking mode belongs to the open file, which we may share with our parent and its shell. So a pipe or
 * a terminal is opened a second time, for ourselves. Where that is not possible (sockets, /proc missing) we
 * write to the shared one, in pieces that poll() vouches for. */
static void open_std(struct log_sink *s, int fd)
{
    char path[32];

    s->fd = fd;
    if (is_file(fd)) {
        set_append(fd);
        return;
    }
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
    s->fd = open_path(output, error);
    if (s->fd < 0)
        return false;
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

/* The first n_bytes of what is pending, up to the end of a line, never reach the output. */
static void drop(struct log_sink *s, size_t n_bytes)
{
    const char *lost = buf_slice(&s->pending).p;

    for (size_t i = 0; i < n_bytes; i++)
        s->dropped += lost[i] == '\n';
    buf_consume(&s->pending, n_bytes);
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
        drop(s, s->pending.len); /* it is broken */
        return false;
    }
    s->mid_line = bytes.p[n - 1] != '\n';
    if (torn)
        set_torn(s, false);
    else
        buf_consume_keep(&s->pending, (size_t)n);
    return true;
}

static bool is_same_output(int a, int b)
{
    struct stat at, bt;

    return fstat(a, &at) == 0 && fstat(b, &bt) == 0 && at.st_dev == bt.st_dev && at.st_ino == bt.st_ino;
}

void log_sink_pair(struct log_sink *a, struct log_sink *b)
{
    if (!is_same_output(a->fd, b->fd))
        return;
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

/* A line of which the output has the beginning ends there: the next output does not begin with its rest. */
static void leave_output(struct log_sink *s)
{
    const struct slice left = buf_slice(&s->pending);

    if (s->mid_line)
        drop(s, (size_t)((const char *)memchr(left.p, '\n', left.n) + 1 - left.p));
    if (s->beside != NULL)
        s->beside->beside = NULL;
    s->beside = NULL;
    s->torn = false;
}

bool log_sink_reopen(struct log_sink *s, char **error)
{
    int fd;

    if (s->path == NULL)
        return true;
    fd = open_path(s->path, error);
    if (fd < 0)
        return false;
    log_sink_flush(s);
    if (!is_same_output(fd, s->fd))
        leave_output(s);
    (void)close(s->fd);
    s->fd = fd;
    return true;
}

void log_sink_finish(struct log_sink *s)
{
    const int64_t until_us = clock_mono_us() + LOG_SINK_CLOSE_WAIT_US;
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};

    log_sink_flush(s);
    while (s->pending.len > 0 && clock_mono_us() < until_us) {
        (void)poll(&p, 1, (int)((until_us - clock_mono_us()) / US_PER_MS) + 1);
        log_sink_flush(s);
    }
    drop(s, s->pending.len);
}

void log_sink_close(struct log_sink *s)
{
    log_sink_finish(s);
    leave_output(s);
    if (s->owns_fd)
        (void)close(s->fd);
    buf_free(&s->pending);
    mem_free(s->path);
    *s = (struct log_sink){.fd = -1};
}
