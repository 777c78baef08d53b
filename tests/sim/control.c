/* The control path /sim/ and the log of the last /v1/ requests. Owns the log. */
#include "sim.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_ENTRIES  1000
#define LOG_HEAD_MAX 16384

static struct log_entry log_ring[LOG_ENTRIES];
static int64_t log_count, log_first; /* entries ever made; the first since the last reset */
int64_t control_scrapes;

/* ---- log ---- */

int64_t control_log(struct http_conn *conn, const struct http_request *request)
{
    struct log_entry *entry = &log_ring[log_count % LOG_ENTRIES];
    free(entry->head);
    *entry = (struct log_entry){.number = log_count, .conn_id = http_conn_id(conn), .start_seq = -1};
    entry->head_len = request->head_len < LOG_HEAD_MAX ? request->head_len : LOG_HEAD_MAX;
    entry->head = util_copy(request->head, entry->head_len);
    http_header(request, "x-session-id", entry->session, sizeof(entry->session));
    http_header(request, "x-request-id", entry->request_id, sizeof(entry->request_id));
    entry->body_hash = util_fnv1a(request->body, request->body_len);
    entry->body_bytes = request->body_len;
    snprintf(entry->outcome, sizeof(entry->outcome), "running");
    return log_count++;
}

struct log_entry *control_log_entry(int64_t number)
{
    if (number < log_first || number < log_count - LOG_ENTRIES)
        return NULL;
    return &log_ring[number % LOG_ENTRIES];
}

void control_log_outcome(int64_t number, const char *outcome)
{
    struct log_entry *entry = control_log_entry(number);
    if (entry)
        snprintf(entry->outcome, sizeof(entry->outcome), "%s", outcome);
}

void control_free(void)
{
    for (size_t i = 0; i < LOG_ENTRIES; i++)
        free(log_ring[i].head);
}

static void print_text(struct buf *out, const char *key, const char *text)
{
    buf_printf(out, ",\"%s\":", key);
    buf_json(out, text, strlen(text));
}

/* "METHOD target HTTP/1.1" and then the header lines, as they came. */
static void print_head(struct buf *out, const struct log_entry *entry)
{
    const char *at = entry->head, *end = at + entry->head_len;
    const char *space = memchr(at, ' ', entry->head_len);
    const char *stop = memmem(at, entry->head_len, "\r\n", 2);
    const char *last = stop ? memrchr(at, ' ', (size_t)(stop - at)) : NULL;
    buf_text(out, ",\"method\":");
    buf_json(out, at, space ? (size_t)(space - at) : 0);
    buf_text(out, ",\"path\":");
    buf_json(out, space ? space + 1 : at, space && last > space ? (size_t)(last - space) - 1 : 0);
    buf_text(out, ",\"headers\":[");
    for (bool first = true; stop && (at = stop + 2) < end; first = false) {
        stop = memmem(at, (size_t)(end - at), "\r\n", 2);
        buf_text(out, first ? "" : ",");
        buf_json(out, at, stop ? (size_t)(stop - at) : (size_t)(end - at));
    }
    buf_text(out, "]");
}

static void print_entry(struct buf *out, const struct log_entry *entry)
{
    buf_printf(out, "{\"n\":%lld,\"conn\":%lld", (long long)entry->number, (long long)entry->conn_id);
    print_head(out, entry);
    print_text(out, "request_id", entry->request_id);
    print_text(out, "session", entry->session);
    if (entry->start_seq >= 0)
        buf_printf(out, ",\"seq\":%lld", (long long)entry->start_seq);
    else
        buf_text(out, ",\"seq\":null");
    buf_printf(out, ",\"status\":%lld,\"prompt_tokens\":%lld,\"cached_tokens\":%lld",
               (long long)entry->status, (long long)entry->prompt_tokens, (long long)entry->cached_tokens);
    buf_printf(out, ",\"body_fnv64\":\"%016llx\",\"body_bytes\":%zu", (unsigned long long)entry->body_hash,
               entry->body_bytes);
    print_text(out, "outcome", entry->outcome);
    buf_text(out, "}");
}

static void print_log(struct buf *out, int64_t limit)
{
    int64_t first = log_count - (limit < LOG_ENTRIES ? limit : LOG_ENTRIES);
    if (first < log_first)
        first = log_first;
    buf_text(out, ",\"log\":[");
    for (int64_t i = first; i < log_count; i++) {
        buf_text(out, i > first ? ",\n" : "\n");
        print_entry(out, &log_ring[i % LOG_ENTRIES]);
    }
    buf_text(out, "]");
}

/* ---- endpoints ---- */

static void print_numbers(struct buf *out)
{
    const struct engine_stats *s = &engine_stats;
    buf_printf(out, "{\"port\":%lld,\"control_port\":%lld,\"running\":%lld,\"waiting\":%lld,",
               (long long)cfg.port, (long long)cfg.control_port, (long long)s->running,
               (long long)s->waiting);
    buf_printf(out, "\"peak_running\":%lld,\"peak_waiting\":%lld,", (long long)s->peak_running,
               (long long)s->peak_waiting);
    buf_printf(out, "\"connections\":{\"open\":%lld,\"accepted\":%lld},\"scrapes\":%lld,",
               (long long)http_stats.open, (long long)http_stats.accepted, (long long)control_scrapes);
    buf_printf(out, "\"requests\":{\"received\":%lld,\"started\":%lld,\"finished\":%lld,\"aborted\":%lld},",
               (long long)(log_count - log_first), (long long)s->started, (long long)s->finished,
               (long long)s->aborted);
    buf_printf(out, "\"kv\":{\"usage\":%.15g,\"resident_blocks\":%lld},\n\"config\":", cache_usage(),
               (long long)cache_resident());
}

static void reply_state(struct http_conn *conn, const struct http_request *request)
{
    struct buf out = {0};
    const char *limit = strstr(request->target, "?log=");
    print_numbers(&out);
    config_print(&out);
    print_log(&out, limit ? strtoll(limit + 5, NULL, 10) : LOG_ENTRIES);
    buf_text(&out, "}\n");
    http_reply(conn, 200, "application/json", &out);
}

static void reply_config(struct http_conn *conn, const struct http_request *request)
{
    struct buf out = {0};
    char error[256] = "";
    cJSON *object = cJSON_ParseWithLength(request->body, request->body_len);
    bool good = config_apply(object, error, sizeof(error));
    cJSON_Delete(object);
    if (good) {
        config_print(&out);
    } else {
        buf_text(&out, "{\"error\":");
        buf_json(&out, error, strlen(error));
        buf_text(&out, "}");
    }
    http_reply(conn, good ? 200 : 400, "application/json", &out);
}

static void reply_reset(struct http_conn *conn)
{
    struct buf out = {0};
    log_first = log_count;
    control_scrapes = 0;
    http_stats.accepted = http_stats.open;
    engine_reset_stats();
    metrics_reset();
    cache_clear();
    config_restore();
    config_print(&out);
    http_reply(conn, 200, "application/json", &out);
}

bool control_request(struct http_conn *conn, const struct http_request *request)
{
    struct buf out = {0};
    bool post = strcmp(request->method, "POST") == 0;
    if (strncmp(request->target, "/sim/", 5) != 0)
        return false;
    const char *what = request->target + 5;
    size_t len = strcspn(what, "?");
    if (!post && len == 5 && memcmp(what, "state", 5) == 0) {
        reply_state(conn, request);
    } else if (post && len == 6 && memcmp(what, "config", 6) == 0) {
        reply_config(conn, request);
    } else if (post && len == 5 && memcmp(what, "reset", 5) == 0) {
        reply_reset(conn);
    } else {
        buf_text(&out, "{\"error\":\"expected GET /sim/state, POST /sim/config or POST /sim/reset\"}");
        http_reply(conn, 404, "application/json", &out);
    }
    return true;
}
