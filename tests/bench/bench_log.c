/* bench_log: nanoseconds for each line of the log and of the access log, as a request writes them. Useful
 * under callgrind too: instructions of log_write and accesslog_* by their number of calls. Prints one line
 * for each case: case, ns per line, bytes per line. Nothing is written out. */
#include "accesslog.h"
#include "clock.h"
#include "log.h"
#include "metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Lines between two flushes, few enough for the buffer to keep its memory. */
#define LINES_PER_TURN 4

#define REQUEST_ID "0b5c6f1e-8d7a-4c3b-9a2f-6e1d0c9b8a7f"
#define SESSION_ID "5f0e8a9c-1b2d-4e3f-8a7b-6c5d4e3f2a1b"
#define POD_NAME   "10.244.1.17:8000"

static double now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void write_boost(void)
{
    static int64_t wait_us;

    log_info("session boost: dequeued", LOG_KNOWN("req", log_know(REQUEST_ID)),
             LOG_KNOWN("model", log_know("meta-llama/Llama-3.1-8B")),
             LOG_KNOWN("session", log_know(SESSION_ID)), LOG_BOOL("boosted", true), LOG_INT("queue_len", 12),
             LOG_MS("wait_ms", wait_us += 7), LOG_KNOWN("pod", log_know(POD_NAME)));
}

static struct accesslog_entry entry;
static struct accesslog_route route;

static void make_entry(void)
{
    accesslog_route_set(&route, "meta-llama/Llama-3.1-8B", "default/llama", "default/llama-8b",
                        "meta-llama/Llama-3.1-8B");
    entry = (struct accesslog_entry){
        .method = SLICE("POST"),
        .path = SLICE("/v1/chat/completions"),
        .minor = 1,
        .status = 200,
        .route = &route,
        .plain = true,
        .selected_pod = log_know(POD_NAME),
        .request_id = SLICE(REQUEST_ID),
        .upstream_status = 200,
        .upstream_attempts = 1,
        .input_tokens = 2381,
        .output_tokens = 167,
        .total_us = 4812999,
        .request_us = 1000,
        .upstream_us = 809000,
        .response_us = 4002999,
        .queue_us = 12345,
        .ttft_us = 809999,
        .session = SLICE(SESSION_ID),
        .has_queue = true,
        .boosted = true,
        .overtaken = 3,
    };
}

static void write_access(bool (*format)(struct buf *, const struct accesslog_entry *))
{
    entry.wall_us = clock_wall_us();
    if (!format(&log_sink()->pending, &entry))
        abort();
}

static void write_access_text(void)
{
    write_access(accesslog_text);
}

static void write_access_json(void)
{
    write_access(accesslog_json);
}

static const char *only = "";

static void run(const char *name, void (*write_line)(void), int n_lines)
{
    struct buf *pending = &log_sink()->pending;
    size_t n_bytes = 0;
    double start = now_ns();

    if (strstr(name, only) == NULL)
        return;
    for (int i = 0; i < n_lines; i++) {
        write_line();
        if (i % LINES_PER_TURN == 0) {
            n_bytes = pending->len;
            buf_consume_keep(pending, pending->len);
        }
    }
    printf("%-40s %8.0f ns %8zu bytes\n", name, (now_ns() - start) / n_lines, n_bytes / LINES_PER_TURN);
}

static void observe(void)
{
    struct slice values[METRICS_MAX_LABELS] = {SLICE("meta-llama/Llama-3.1-8B"),
                                               SLICE("/v1/chat/completions"), SLICE("200"), SLICE("")};

    metrics_observe(metrics_series(METRIC_REQUEST_DURATION, values), 0.8);
}

/* bench_log [LINES [WORD]]: the cases whose name contains the word. */
int main(int argc, char **argv)
{
    int n_lines = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1000000;

    if (argc > 2)
        only = argv[2];
    make_entry();
    log_init(LOG_INFO, LOG_TEXT);
    run("session boost line, text", write_boost, n_lines);
    log_init(LOG_INFO, LOG_JSON);
    run("session boost line, JSON", write_boost, n_lines);
    run("access log line, text", write_access_text, n_lines);
    run("access log line, JSON", write_access_json, n_lines);
    run("observation, series looked up", observe, n_lines);
    return 0;
}
