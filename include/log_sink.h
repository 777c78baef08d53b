/* log_sink: where log lines go: stdout, stderr or a file. A sink never blocks the caller: it gathers lines in
 * a bounded buffer and writes them in batches when it is flushed; what does not fit is dropped and counted.
 * It does not know the event loop, at whose turns' ends the server flushes. */
#ifndef LOG_SINK_H
#define LOG_SINK_H

#include "buf.h"

#define LOG_SINK_BUFFER_BYTES (1024 * 1024)
/* A pipe takes 64 KiB at once, and the reader of a busy router may be a little behind. */
#define LOG_SINK_CLOSE_WAIT_US US_PER_S

/* Two sinks may write to one output, a pipe that both logs go to, and a write may end inside a line. The
 * output is then in one of three states, and each sink knows its part of it:
 *
 *     between lines        no sink has mid_line, none is torn: each may write
 *     inside a line        the sink whose line it is has mid_line: it alone may write, until the line's end
 *     inside a lost line   both are torn: whoever writes next ends that line first, with a '\n' of its own
 */
struct log_sink {
    int fd;
    bool owns_fd;
    bool may_block; /* shared with other processes, in their mode: each write is preceded by a poll() */
    char *path;     /* NULL for stdout and stderr */
    bool mid_line;  /* the output ends inside a line of this sink, whose rest is pending */
    bool torn;      /* the output ends inside a line whose rest is lost */
    struct log_sink *beside; /* another one that writes to the same output, or NULL */
    struct buf pending;
    uint64_t dropped; /* lines lost: buffer full, or the write failed */
};

/* output: "stdout", "stderr" or a file path (created, mode 0644). A file is appended to, as stdout or stderr
 * too. False: *error says why (errno text with the path); the caller frees *error with mem_free. */
MUST_CHECK bool log_sink_open(struct log_sink *s, const char *output, char **error);
/* A whole line or nothing is kept; the line ends with '\n'. */
void log_sink_write(struct log_sink *s, struct slice line);
/* Where both write to the same output, neither writes into a line of the other from now on. Anew after each
 * log_sink_reopen, which parts them when the output is another one. */
void log_sink_pair(struct log_sink *a, struct log_sink *b);
/* Writes as much as the other side takes right now. A broken output drops what is pending and counts it. */
void log_sink_flush(struct log_sink *s);
/* Opens the same path anew (log rotation), after a flush; stdout and stderr stay. False: the old file stays
 * in use, *error as above. */
MUST_CHECK bool log_sink_reopen(struct log_sink *s, char **error);
/* A flush that waits for a slow reader, LOG_SINK_CLOSE_WAIT_US at most. What is not taken by then is dropped
 * and counted. */
void log_sink_finish(struct log_sink *s);
/* Finishes first, if that has not been done. */
void log_sink_close(struct log_sink *s);

#endif
