/* log_sink: where log lines go: stdout, stderr or a file. A sink never blocks the caller: it gathers lines in
 * a bounded buffer and writes them in batches when it is flushed; what does not fit is dropped and counted.
 * It does not know the event loop, at whose turns' ends the server flushes. */
#ifndef LOG_SINK_H
#define LOG_SINK_H

#include "buf.h"

#define LOG_SINK_BUFFER_BYTES (1024 * 1024)
/* A pipe takes 64 KiB at once, and the reader of a busy router may be a little behind. */
#define LOG_SINK_CLOSE_WAIT_US US_PER_S

struct log_sink {
    int fd;
    bool owns_fd;
    bool may_block; /* shared with other processes, in their mode: each write is preceded by a poll() */
    char *path;     /* NULL for stdout and stderr */
    bool mid_line;  /* the last write ended inside a line, whose rest is pending */
    bool torn;      /* or is lost, or that of `beside`: the next line begins on a line of its own */
    struct log_sink *beside; /* another one that writes to the same output, or NULL */
    struct buf pending;
    uint64_t dropped; /* lines lost: buffer full, or the write failed */
};

/* output: "stdout", "stderr" or a file path (created, appended, mode 0644). False: *error says why (errno
 * text with the path); the caller frees *error with mem_free. */
MUST_CHECK bool log_sink_open(struct log_sink *s, const char *output, char **error);
/* A whole line or nothing is kept; the line ends with '\n'. */
void log_sink_write(struct log_sink *s, struct slice line);
/* Where both write to the same output, neither writes into a line of the other from now on, nor over it where
 * that is a file. Anew after each log_sink_reopen. */
void log_sink_pair(struct log_sink *a, struct log_sink *b);
/* Writes as much as the other side takes right now. A broken output drops what is pending and counts it. */
void log_sink_flush(struct log_sink *s);
/* Opens the same path anew (log rotation), after a flush; the sink stands alone then. Keeps the old file when
 * that fails. */
void log_sink_reopen(struct log_sink *s);
/* After a flush that waits for a slow reader, LOG_SINK_CLOSE_WAIT_US at most. How many lines it did not take.
 */
uint64_t log_sink_close(struct log_sink *s);

#endif
