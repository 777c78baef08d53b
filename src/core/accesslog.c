/* accesslog: see accesslog.h. Owns the two formats; measuring the times and writing the lines out is done
 * elsewhere. */
#include "accesslog.h"

#include "clock.h"
#include "log.h"
#include "number.h"

/* Appends until something does not fit; then the whole line is taken back. */
struct writer {
    struct buf *out;
    size_t line_start;
    bool ok;
};

static struct writer writer_start(struct buf *out)
{
    return (struct writer){.out = out, .line_start = out->len, .ok = true};
}

static bool writer_end(struct writer *w)
{
    if (!w->ok)
        w->out->len = w->line_start;
    return w->ok;
}

static void put(struct writer *w, struct slice s)
{
    w->ok = w->ok && buf_append_slice(w->out, s);
}

static void put_int(struct writer *w, int64_t n)
{
    char text[NUMBER_TEXT_MAX];

    put(w, (struct slice){text, number_format_int(n, text)});
}

static void put_ms(struct writer *w, int64_t us)
{
    put_int(w, us > 0 ? us / US_PER_MS : 0);
}

static void put_bool(struct writer *w, bool b)
{
    put(w, b ? SLICE("true") : SLICE("false"));
}

static void put_time(struct writer *w, int64_t wall_us)
{
    char text[CLOCK_TEXT_MAX];

    put(w, (struct slice){text, clock_format(wall_us, text)});
}

/* The value, or what fits of it, not cut inside a character. */
static struct slice bounded(struct slice s, char copy[ACCESSLOG_VALUE_MAX])
{
    size_t n = ACCESSLOG_VALUE_MAX - 3;

    if (s.n <= ACCESSLOG_VALUE_MAX)
        return s;
    for (size_t back = 0; back < 3 && ((unsigned char)s.p[n] & 0xc0) == 0x80; back++)
        n--;
    memcpy(copy, s.p, n);
    memcpy(copy + n, "...", 3);
    return (struct slice){copy, n + 3};
}

/* The appenders of log do not say whether everything fitted, so the longest escapes are asked for first. */
static void put_escaped(struct writer *w, void (*append)(struct buf *, struct slice), struct slice value)
{
    char copy[ACCESSLOG_VALUE_MAX];
    struct slice s = bounded(value, copy);

    w->ok = w->ok && 6 * s.n + 2 <= w->out->max_bytes - w->out->len;
    if (w->ok)
        append(w->out, s);
}

static void put_closed_by(struct writer *w, const struct accesslog_entry *e)
{
    put(w, slice_of(e->closed_by));
    if (e->closed_phase != NULL) {
        put(w, SLICE(":"));
        put(w, slice_of(e->closed_phase));
    }
}

/* ---- text ---- */

/* One of the three parts between the quotes of the request line. */
static void text_part(struct writer *w, struct slice value)
{
    static const char hex[] = "0123456789abcdef";
    char copy[ACCESSLOG_VALUE_MAX];
    struct slice s = bounded(value, copy);

    if (s.n == 0)
        put(w, SLICE("-"));
    for (size_t i = 0, plain = 0; i <= s.n; i++) {
        unsigned char c = i < s.n ? (unsigned char)s.p[i] : 0;

        if (c > ' ' && c < 0x7f && c != '"' && c != '\\')
            continue;
        put(w, (struct slice){s.p + plain, i - plain});
        if (i < s.n)
            put(w, (struct slice){(char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, 4});
        plain = i + 1;
    }
}

static void text_str(struct writer *w, struct slice key, struct slice value)
{
    if (value.n == 0)
        return;
    put(w, key);
    put_escaped(w, log_append_text, value);
}

static void text_count(struct writer *w, struct slice key, unsigned n)
{
    if (n == 0)
        return;
    put(w, key);
    put_int(w, n);
}

static void text_request(struct writer *w, const struct accesslog_entry *e)
{
    put(w, SLICE("["));
    put_time(w, e->wall_us);
    put(w, SLICE("] \""));
    text_part(w, e->method);
    put(w, SLICE(" "));
    text_part(w, e->path);
    put(w, SLICE(" "));
    text_part(w, e->protocol);
    put(w, SLICE("\" "));
    put_int(w, e->status);
}

static void text_error(struct writer *w, const struct accesslog_entry *e)
{
    if (e->error_type == NULL)
        return;
    put(w, SLICE(" error="));
    put(w, slice_of(e->error_type));
    put(w, SLICE(":"));
    if (e->error_message.n > 0)
        put_escaped(w, log_append_text, e->error_message);
}

static void text_names(struct writer *w, const struct accesslog_entry *e)
{
    text_str(w, SLICE(" model_name="), e->model_name);
    text_str(w, SLICE(" model_route="), e->model_route);
    text_str(w, SLICE(" model_server="), e->model_server);
    text_str(w, SLICE(" selected_pod="), e->selected_pod);
    text_str(w, SLICE(" request_id="), e->request_id);
    text_str(w, SLICE(" backend_type="), slice_of(e->backend_type));
    text_str(w, SLICE(" backend_name="), e->backend_name);
    text_str(w, SLICE(" upstream_model="), e->upstream_model);
    text_count(w, SLICE(" upstream_status_code="), e->upstream_status);
    text_count(w, SLICE(" upstream_attempts="), e->upstream_attempts);
    text_str(w, SLICE(" error_origin="), slice_of(e->error_origin));
}

static void text_tokens(struct writer *w, const struct accesslog_entry *e)
{
    if (e->input_tokens <= 0 && e->output_tokens <= 0)
        return;
    put(w, SLICE(" tokens="));
    put_int(w, e->input_tokens);
    put(w, SLICE("/"));
    put_int(w, e->output_tokens);
}

static void text_own(struct writer *w, const struct accesslog_entry *e)
{
    if (e->queue_us >= 0) {
        put(w, SLICE(" queue_ms="));
        put_ms(w, e->queue_us);
    }
    if (e->ttft_us >= 0) {
        put(w, SLICE(" ttft_ms="));
        put_ms(w, e->ttft_us);
    }
    text_str(w, SLICE(" session="), e->session);
    if (e->has_queue) {
        put(w, SLICE(" boosted="));
        put_bool(w, e->boosted);
        put(w, SLICE(" overtaken="));
        put_int(w, e->overtaken);
    }
    if (e->closed_by != NULL) {
        put(w, SLICE(" closed_by="));
        put_closed_by(w, e);
    }
}

static void text_timings(struct writer *w, const struct accesslog_entry *e)
{
    put(w, SLICE(" timings="));
    put_ms(w, e->total_us);
    put(w, SLICE("ms("));
    put_ms(w, e->request_us);
    put(w, SLICE("+"));
    put_ms(w, e->upstream_us);
    put(w, SLICE("+"));
    put_ms(w, e->response_us);
    put(w, SLICE(")\n"));
}

bool accesslog_text(struct buf *out, const struct accesslog_entry *e)
{
    struct writer w = writer_start(out);

    text_request(&w, e);
    text_error(&w, e);
    text_names(&w, e);
    text_tokens(&w, e);
    text_own(&w, e);
    text_timings(&w, e);
    return writer_end(&w);
}

/* ---- JSON ---- */

/* Keys come with their punctuation: `,"method":`. */
static void json_str(struct writer *w, struct slice key, struct slice value)
{
    put(w, key);
    put_escaped(w, log_append_json, value);
}

static void json_optional(struct writer *w, struct slice key, struct slice value)
{
    if (value.n > 0)
        json_str(w, key, value);
}

static void json_count(struct writer *w, struct slice key, int64_t n)
{
    if (n <= 0)
        return;
    put(w, key);
    put_int(w, n);
}

static void json_ms(struct writer *w, struct slice key, int64_t us)
{
    put(w, key);
    put_ms(w, us);
}

static void json_request(struct writer *w, const struct accesslog_entry *e)
{
    put(w, SLICE("{\"timestamp\":\""));
    put_time(w, e->wall_us);
    json_str(w, SLICE("\",\"method\":"), e->method);
    json_str(w, SLICE(",\"path\":"), e->path);
    json_str(w, SLICE(",\"protocol\":"), e->protocol);
    put(w, SLICE(",\"status_code\":"));
    put_int(w, e->status);
    if (e->error_type != NULL) {
        json_str(w, SLICE(",\"error\":{\"type\":"), slice_of(e->error_type));
        json_str(w, SLICE(",\"message\":"), e->error_message);
        put(w, SLICE("}"));
    }
}

static void json_names(struct writer *w, const struct accesslog_entry *e)
{
    json_str(w, SLICE(",\"model_name\":"), e->model_name);
    json_optional(w, SLICE(",\"model_route\":"), e->model_route);
    json_optional(w, SLICE(",\"model_server\":"), e->model_server);
    json_optional(w, SLICE(",\"selected_pod\":"), e->selected_pod);
    json_optional(w, SLICE(",\"request_id\":"), e->request_id);
    json_optional(w, SLICE(",\"backend_type\":"), slice_of(e->backend_type));
    json_optional(w, SLICE(",\"backend_name\":"), e->backend_name);
    json_optional(w, SLICE(",\"upstream_model\":"), e->upstream_model);
    json_count(w, SLICE(",\"upstream_status_code\":"), e->upstream_status);
    json_count(w, SLICE(",\"upstream_attempts\":"), e->upstream_attempts);
    json_optional(w, SLICE(",\"error_origin\":"), slice_of(e->error_origin));
}

static void json_numbers(struct writer *w, const struct accesslog_entry *e)
{
    json_count(w, SLICE(",\"input_tokens\":"), e->input_tokens);
    json_count(w, SLICE(",\"output_tokens\":"), e->output_tokens);
    json_ms(w, SLICE(",\"duration_total\":"), e->total_us);
    json_ms(w, SLICE(",\"duration_request_processing\":"), e->request_us);
    json_ms(w, SLICE(",\"duration_upstream_processing\":"), e->upstream_us);
    json_ms(w, SLICE(",\"duration_response_processing\":"), e->response_us);
}

static void json_own(struct writer *w, const struct accesslog_entry *e)
{
    if (e->queue_us >= 0)
        json_ms(w, SLICE(",\"queue_ms\":"), e->queue_us);
    if (e->ttft_us >= 0)
        json_ms(w, SLICE(",\"ttft_ms\":"), e->ttft_us);
    json_optional(w, SLICE(",\"session\":"), e->session);
    if (e->has_queue) {
        put(w, SLICE(",\"boosted\":"));
        put_bool(w, e->boosted);
        put(w, SLICE(",\"overtaken\":"));
        put_int(w, e->overtaken);
    }
    if (e->closed_by != NULL) {
        put(w, SLICE(",\"closed_by\":\""));
        put_closed_by(w, e);
        put(w, SLICE("\""));
    }
}

bool accesslog_json(struct buf *out, const struct accesslog_entry *e)
{
    struct writer w = writer_start(out);

    json_request(&w, e);
    json_names(&w, e);
    json_numbers(&w, e);
    json_own(&w, e);
    put(&w, SLICE("}\n"));
    return writer_end(&w);
}
