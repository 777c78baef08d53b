/* accesslog: see accesslog.h. Owns the two formats; measuring the times and writing the lines out is done
 * elsewhere. */
#include "accesslog.h"

#include "clock.h"
#include "log.h"

/* So that the keys are copied as constants. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* A line is made here and then appended as a whole. Any line fits: 15 values of at most ACCESSLOG_VALUE_MAX
 * bytes, six written for one, and our own words. */
static char line[ACCESSLOG_LINE_MAX];

static bool end_line(struct buf *out, struct text t)
{
    return t.left_bytes > 0 && buf_append(out, line, (size_t)(t.at - line));
}

static struct text put_ms(struct text t, int64_t us)
{
    return text_put_int(t, us > 0 ? us / US_PER_MS : 0);
}

/* Part of a line's first few bytes, so there is room. */
static struct text put_time(struct text t, int64_t wall_us)
{
    return text_skip(t, clock_format(wall_us, t.at));
}

/* Not cut inside a character. */
static __attribute__((noinline)) struct text
put_cut(struct text t, struct text (*put)(struct text, struct slice), struct slice value)
{
    char copy[ACCESSLOG_VALUE_MAX];
    size_t n = ACCESSLOG_VALUE_MAX - 3;

    for (size_t back = 0; back < 3 && ((unsigned char)value.p[n] & 0xc0) == 0x80; back++)
        n--;
    memcpy(copy, value.p, n);
    memcpy(copy + n, "...", 3);
    return put(t, (struct slice){copy, n + 3});
}

/* The value, or what fits of it. */
static inline struct text put_bounded(struct text t, struct text (*put)(struct text, struct slice),
                                      struct slice value)
{
    return value.n <= ACCESSLOG_VALUE_MAX ? put(t, value) : put_cut(t, put, value);
}

static struct text put_closed_by(struct text t, const struct accesslog_entry *e)
{
    t = text_put(t, slice_of(e->closed_by));
    if (e->closed_phase != NULL) {
        t = text_put(t, SLICE(":"));
        t = text_put(t, slice_of(e->closed_phase));
    }
    return t;
}

/* ---- text ---- */

static struct text put_hex_escaped(struct text t, struct slice s)
{
    static const char hex[] = "0123456789abcdef";

    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if (c > ' ' && c < 0x7f && c != '"' && c != '\\')
            t = text_put_char(t, (char)c);
        else
            t = text_put(t, (struct slice){(char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, 4});
    }
    return t;
}

/* One of the three parts between the quotes of the request line. */
static struct text text_part(struct text t, struct slice value)
{
    struct text plain = t;

    if (value.n == 0)
        return text_put(t, SLICE("-"));
    if (value.n <= ACCESSLOG_VALUE_MAX)
        plain = log_put_plain(t, value);
    return plain.at != t.at ? plain : put_bounded(t, put_hex_escaped, value);
}

static ALWAYS_INLINE struct text text_str(struct text t, struct slice key, struct slice value)
{
    if (value.n == 0)
        return t;
    t = text_put(t, key);
    return put_bounded(t, log_put_text, value);
}

static ALWAYS_INLINE struct text text_count(struct text t, struct slice key, unsigned n)
{
    if (n == 0)
        return t;
    t = text_put(t, key);
    return text_put_int(t, n);
}

static struct text text_request(struct text t, const struct accesslog_entry *e)
{
    t = text_put(t, SLICE("["));
    t = put_time(t, e->wall_us);
    t = text_put(t, SLICE("] \""));
    t = text_part(t, e->method);
    t = text_put(t, SLICE(" "));
    t = text_part(t, e->path);
    t = text_put(t, SLICE(" "));
    t = text_part(t, e->protocol);
    t = text_put(t, SLICE("\" "));
    return text_put_int(t, e->status);
}

static struct text text_error(struct text t, const struct accesslog_entry *e)
{
    if (e->error_type == NULL)
        return t;
    t = text_put(t, SLICE(" error="));
    t = text_put(t, slice_of(e->error_type));
    t = text_put(t, SLICE(":"));
    if (e->error_message.n > 0)
        t = put_bounded(t, log_put_text, e->error_message);
    return t;
}

static struct text text_names(struct text t, const struct accesslog_entry *e)
{
    t = text_str(t, SLICE(" model_name="), e->model_name);
    t = text_str(t, SLICE(" model_route="), e->model_route);
    t = text_str(t, SLICE(" model_server="), e->model_server);
    t = text_str(t, SLICE(" selected_pod="), e->selected_pod);
    t = text_str(t, SLICE(" request_id="), e->request_id);
    t = text_str(t, SLICE(" backend_type="), slice_of(e->backend_type));
    t = text_str(t, SLICE(" backend_name="), e->backend_name);
    t = text_str(t, SLICE(" upstream_model="), e->upstream_model);
    t = text_count(t, SLICE(" upstream_status_code="), e->upstream_status);
    t = text_count(t, SLICE(" upstream_attempts="), e->upstream_attempts);
    return text_str(t, SLICE(" error_origin="), slice_of(e->error_origin));
}

static struct text text_tokens(struct text t, const struct accesslog_entry *e)
{
    if (e->input_tokens <= 0 && e->output_tokens <= 0)
        return t;
    t = text_put(t, SLICE(" tokens="));
    t = text_put_int(t, e->input_tokens);
    t = text_put(t, SLICE("/"));
    return text_put_int(t, e->output_tokens);
}

static struct text text_own(struct text t, const struct accesslog_entry *e)
{
    if (e->queue_us >= 0) {
        t = text_put(t, SLICE(" queue_ms="));
        t = put_ms(t, e->queue_us);
    }
    if (e->ttft_us >= 0) {
        t = text_put(t, SLICE(" ttft_ms="));
        t = put_ms(t, e->ttft_us);
    }
    t = text_str(t, SLICE(" session="), e->session);
    t = text_str(t, SLICE(" sticky="), slice_of(e->sticky));
    t = text_str(t, SLICE(" user="), e->user);
    if (e->has_queue) {
        t = text_put(t, SLICE(" boosted="));
        t = text_put_bool(t, e->boosted);
        t = text_put(t, SLICE(" overtaken="));
        t = text_put_int(t, e->overtaken);
    }
    if (e->closed_by != NULL) {
        t = text_put(t, SLICE(" closed_by="));
        t = put_closed_by(t, e);
    }
    return t;
}

static struct text text_timings(struct text t, const struct accesslog_entry *e)
{
    t = text_put(t, SLICE(" timings="));
    t = put_ms(t, e->total_us);
    t = text_put(t, SLICE("ms("));
    t = put_ms(t, e->request_us);
    t = text_put(t, SLICE("+"));
    t = put_ms(t, e->upstream_us);
    t = text_put(t, SLICE("+"));
    t = put_ms(t, e->response_us);
    return text_put(t, SLICE(")\n"));
}

bool accesslog_text(struct buf *out, const struct accesslog_entry *e)
{
    struct text t = {line, sizeof(line)};

    t = text_request(t, e);
    t = text_error(t, e);
    t = text_names(t, e);
    t = text_tokens(t, e);
    t = text_own(t, e);
    t = text_timings(t, e);
    return end_line(out, t);
}

/* ---- JSON ---- */

/* Keys come with their punctuation: `,"method":`. */
static ALWAYS_INLINE struct text json_str(struct text t, struct slice key, struct slice value)
{
    t = text_put(t, key);
    return put_bounded(t, log_put_json, value);
}

static ALWAYS_INLINE struct text json_optional(struct text t, struct slice key, struct slice value)
{
    if (value.n > 0)
        t = json_str(t, key, value);
    return t;
}

static ALWAYS_INLINE struct text json_count(struct text t, struct slice key, int64_t n)
{
    if (n <= 0)
        return t;
    t = text_put(t, key);
    return text_put_int(t, n);
}

static ALWAYS_INLINE struct text json_ms(struct text t, struct slice key, int64_t us)
{
    t = text_put(t, key);
    return put_ms(t, us);
}

static struct text json_request(struct text t, const struct accesslog_entry *e)
{
    t = text_put(t, SLICE("{\"timestamp\":\""));
    t = put_time(t, e->wall_us);
    t = json_str(t, SLICE("\",\"method\":"), e->method);
    t = json_str(t, SLICE(",\"path\":"), e->path);
    t = json_str(t, SLICE(",\"protocol\":"), e->protocol);
    t = text_put(t, SLICE(",\"status_code\":"));
    t = text_put_int(t, e->status);
    if (e->error_type != NULL) {
        t = json_str(t, SLICE(",\"error\":{\"type\":"), slice_of(e->error_type));
        t = json_str(t, SLICE(",\"message\":"), e->error_message);
        t = text_put(t, SLICE("}"));
    }
    return t;
}

static struct text json_names(struct text t, const struct accesslog_entry *e)
{
    t = json_str(t, SLICE(",\"model_name\":"), e->model_name);
    t = json_optional(t, SLICE(",\"model_route\":"), e->model_route);
    t = json_optional(t, SLICE(",\"model_server\":"), e->model_server);
    t = json_optional(t, SLICE(",\"selected_pod\":"), e->selected_pod);
    t = json_optional(t, SLICE(",\"request_id\":"), e->request_id);
    t = json_optional(t, SLICE(",\"backend_type\":"), slice_of(e->backend_type));
    t = json_optional(t, SLICE(",\"backend_name\":"), e->backend_name);
    t = json_optional(t, SLICE(",\"upstream_model\":"), e->upstream_model);
    t = json_count(t, SLICE(",\"upstream_status_code\":"), e->upstream_status);
    t = json_count(t, SLICE(",\"upstream_attempts\":"), e->upstream_attempts);
    return json_optional(t, SLICE(",\"error_origin\":"), slice_of(e->error_origin));
}

static struct text json_numbers(struct text t, const struct accesslog_entry *e)
{
    t = json_count(t, SLICE(",\"input_tokens\":"), e->input_tokens);
    t = json_count(t, SLICE(",\"output_tokens\":"), e->output_tokens);
    t = json_ms(t, SLICE(",\"duration_total\":"), e->total_us);
    t = json_ms(t, SLICE(",\"duration_request_processing\":"), e->request_us);
    t = json_ms(t, SLICE(",\"duration_upstream_processing\":"), e->upstream_us);
    return json_ms(t, SLICE(",\"duration_response_processing\":"), e->response_us);
}

static struct text json_own(struct text t, const struct accesslog_entry *e)
{
    if (e->queue_us >= 0)
        t = json_ms(t, SLICE(",\"queue_ms\":"), e->queue_us);
    if (e->ttft_us >= 0)
        t = json_ms(t, SLICE(",\"ttft_ms\":"), e->ttft_us);
    t = json_optional(t, SLICE(",\"session\":"), e->session);
    t = json_optional(t, SLICE(",\"sticky\":"), slice_of(e->sticky));
    t = json_optional(t, SLICE(",\"user\":"), e->user);
    if (e->has_queue) {
        t = text_put(t, SLICE(",\"boosted\":"));
        t = text_put_bool(t, e->boosted);
        t = text_put(t, SLICE(",\"overtaken\":"));
        t = text_put_int(t, e->overtaken);
    }
    if (e->closed_by != NULL) {
        t = text_put(t, SLICE(",\"closed_by\":\""));
        t = put_closed_by(t, e);
        t = text_put(t, SLICE("\""));
    }
    return t;
}

bool accesslog_json(struct buf *out, const struct accesslog_entry *e)
{
    struct text t = {line, sizeof(line)};

    t = json_request(t, e);
    t = json_names(t, e);
    t = json_numbers(t, e);
    t = json_own(t, e);
    t = text_put(t, SLICE("}\n"));
    return end_line(out, t);
}
