/* accesslog: see accesslog.h. Owns the two formats; measuring the times and writing the lines out is done
 * elsewhere. */
#include "accesslog.h"

#include "clock.h"
#include "mem.h"

/* So that each format gets its own copy of what both have, with the keys as constants. */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NOINLINE      __attribute__((noinline))

/* Room for any line: 12 values of at most ACCESSLOG_VALUE_MAX bytes, six written for one, and our own words.
 * So nothing asks for room on the way. */
static char spare[ACCESSLOG_LINE_MAX];

/* Into the buffer itself, unless it is nearly full. */
static char *begin_line(struct buf *out)
{
    char *to = buf_reserve(out, ACCESSLOG_LINE_MAX);

    return to != NULL ? to : spare;
}

static inline bool end_line(struct buf *out, const char *line, const char *end)
{
    const size_t n = (size_t)(end - line);

    if (line == spare)
        return buf_append(out, line, n);
    buf_commit(out, n);
    return true;
}

/* ---- values ---- */

/* Not cut inside a character. */
static struct slice cut(struct slice value, char copy[ACCESSLOG_VALUE_MAX])
{
    size_t n = ACCESSLOG_VALUE_MAX - 3;

    for (size_t back = 0; back < 3 && ((unsigned char)value.p[n] & 0xc0) == 0x80; back++)
        n--;
    memcpy(copy, value.p, n);
    memcpy(copy + n, "...", 3);
    return (struct slice){copy, n + 3};
}

/* The value, or what fits of it. */
static NOINLINE char *put_escaped(char *to, struct text (*put)(struct text, struct slice), struct slice value)
{
    char copy[ACCESSLOG_VALUE_MAX];
    const struct text t = {to, 6 * ACCESSLOG_VALUE_MAX + 2};

    return put(t, value.n <= ACCESSLOG_VALUE_MAX ? value : cut(value, copy)).at;
}

/* One of the parts between the quotes of a text line's request. */
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

static inline char *put_part(char *to, struct slice value, bool plain)
{
    if (value.n == 0)
        return text_add(to, SLICE("-"));
    if (plain)
        return text_add(to, value);
    return put_escaped(to, put_hex_escaped, value);
}

static char *put_time(char *to, int64_t wall_us)
{
    static struct clock_text last;

    return clock_put(&last, wall_us, to);
}

static char *put_whole_ms(char *to, int64_t us)
{
    /* Division is cheaper without a sign. */
    return text_add_int(to, us > 0 ? (int64_t)((uint64_t)us / US_PER_MS) : 0);
}

/* ---- fields, as both formats have them ---- */

struct key {
    struct slice text, json;
};

#define KEY(k) ((struct key){SLICE(" " k "="), SLICE(",\"" k "\":")})

enum format { TEXT, JSON };

static ALWAYS_INLINE char *put_key(char *to, enum format f, struct key key)
{
    return text_add(to, f == JSON ? key.json : key.text);
}

static ALWAYS_INLINE char *put_quote(char *to, enum format f)
{
    return f == JSON ? text_add(to, SLICE("\"")) : to;
}

static ALWAYS_INLINE char *put_value(char *to, enum format f, struct slice value, bool plain)
{
    if (plain)
        return put_quote(text_add(put_quote(to, f), value), f);
    return put_escaped(to, f == JSON ? log_put_json : log_put_text, value);
}

/* Left out when empty, as are the next two. */
static ALWAYS_INLINE char *put_str(char *to, enum format f, struct key key, struct slice value, bool plain)
{
    return value.n > 0 ? put_value(put_key(to, f, key), f, value, plain) : to;
}

/* One of our own words. */
static ALWAYS_INLINE char *put_word(char *to, enum format f, struct key key, const char *word)
{
    return word != NULL ? put_value(put_key(to, f, key), f, slice_of(word), true) : to;
}

static ALWAYS_INLINE char *put_count(char *to, enum format f, struct key key, int64_t n)
{
    return n > 0 ? text_add_int(put_key(to, f, key), n) : to;
}

static ALWAYS_INLINE char *put_ms(char *to, enum format f, struct key key, int64_t us)
{
    return put_whole_ms(put_key(to, f, key), us);
}

/* What most requests have goes in as one piece. */
static ALWAYS_INLINE char *put_upstream(char *to, enum format f, const struct accesslog_entry *e)
{
    const struct key most = {SLICE(" upstream_status_code=200 upstream_attempts=1"),
                             SLICE(",\"upstream_status_code\":200,\"upstream_attempts\":1")};

    if (e->upstream_status == 200 && e->upstream_attempts == 1)
        return put_key(to, f, most);
    to = put_count(to, f, KEY("upstream_status_code"), e->upstream_status);
    return put_count(to, f, KEY("upstream_attempts"), e->upstream_attempts);
}

static ALWAYS_INLINE char *put_names(char *to, enum format f, const struct accesslog_entry *e)
{
    const struct accesslog_route_fields *r = e->route == NULL ? NULL
                                             : f == JSON      ? &e->route->json
                                                              : &e->route->text;

    if (r != NULL)
        to = text_add(to, r->names);
    else if (f == JSON || e->model_name.n > 0)
        to = put_value(put_key(to, f, KEY("model_name")), f, e->model_name, false);
    to = put_str(to, f, KEY("selected_pod"), e->selected_pod.value, e->selected_pod.is_plain);
    to = put_str(to, f, KEY("request_id"), e->request_id, e->plain);
    if (r != NULL)
        to = text_add(to, r->backend);
    to = put_upstream(to, f, e);
    return put_word(to, f, KEY("error_origin"), e->error_origin);
}

static ALWAYS_INLINE char *put_closed_by(char *to, enum format f, const struct accesslog_entry *e)
{
    if (e->closed_by == NULL)
        return to;
    to = put_quote(put_key(to, f, KEY("closed_by")), f);
    to = text_add(to, slice_of(e->closed_by));
    if (e->closed_phase != NULL)
        to = text_add(text_add(to, SLICE(":")), slice_of(e->closed_phase));
    return put_quote(to, f);
}

static ALWAYS_INLINE char *put_own(char *to, enum format f, const struct accesslog_entry *e)
{
    if (e->queue_us >= 0)
        to = put_ms(to, f, KEY("queue_ms"), e->queue_us);
    if (e->ttft_us >= 0)
        to = put_ms(to, f, KEY("ttft_ms"), e->ttft_us);
    to = put_str(to, f, KEY("session"), e->session, e->plain);
    to = put_word(to, f, KEY("sticky"), e->sticky);
    to = put_str(to, f, KEY("user"), e->user, e->plain);
    if (e->has_queue) {
        to = text_add_bool(put_key(to, f, KEY("boosted")), e->boosted);
        to = text_add_int(put_key(to, f, KEY("overtaken")), e->overtaken);
    }
    return put_closed_by(to, f, e);
}

/* ---- a route's part ---- */

struct names {
    struct slice model, route, server, upstream_model;
};

static ALWAYS_INLINE char *put_route(char *to, enum format f, const struct names *n,
                                     struct accesslog_route_fields *r)
{
    r->names.p = to;
    to = put_str(to, f, KEY("model_name"), n->model, false);
    to = put_str(to, f, KEY("model_route"), n->route, false);
    to = put_str(to, f, KEY("model_server"), n->server, false);
    r->names.n = (size_t)(to - r->names.p);
    r->backend.p = to;
    to = put_word(to, f, KEY("backend_type"), "model_server");
    to = put_str(to, f, KEY("backend_name"), n->server, false);
    to = put_str(to, f, KEY("upstream_model"), n->upstream_model, false);
    r->backend.n = (size_t)(to - r->backend.p);
    return to;
}

void accesslog_route_set(struct accesslog_route *a, const char *model_name, const char *route,
                         const char *server, const char *upstream_model)
{
    const struct names n = {slice_of(model_name), slice_of(route), slice_of(server),
                            slice_of(upstream_model)};
    struct slice *const all[] = {&a->text.names, &a->text.backend, &a->json.names, &a->json.backend};
    char *end = put_route(put_route(spare, TEXT, &n, &a->text), JSON, &n, &a->json);

    mem_free(a->bytes);
    a->bytes = mem_dup_slice((struct slice){spare, (size_t)(end - spare)});
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        all[i]->p = a->bytes + (all[i]->p - spare);
}

void accesslog_route_free(struct accesslog_route *a)
{
    mem_free(a->bytes);
    *a = (struct accesslog_route){.bytes = NULL};
}

/* ---- text ---- */

static char *text_request(char *to, const struct accesslog_entry *e)
{
    to = text_add(put_time(text_add(to, SLICE("[")), e->wall_us), SLICE("] \""));
    to = text_add(put_part(to, e->method, e->plain), SLICE(" "));
    to = text_add(put_part(to, e->path, e->plain), SLICE(" "));
    to = text_add(to, e->minor == 0 ? SLICE("HTTP/1.0\" ") : SLICE("HTTP/1.1\" "));
    return text_add_int(to, e->status);
}

static char *text_error(char *to, const struct accesslog_entry *e)
{
    if (e->error_type == NULL)
        return to;
    to = text_add(text_add(to, SLICE(" error=")), slice_of(e->error_type));
    to = text_add(to, SLICE(":"));
    return e->error_message.n > 0 ? put_escaped(to, log_put_text, e->error_message) : to;
}

static char *text_tokens(char *to, const struct accesslog_entry *e)
{
    if (e->input_tokens <= 0 && e->output_tokens <= 0)
        return to;
    to = text_add_int(text_add(to, SLICE(" tokens=")), e->input_tokens);
    to = text_add(to, SLICE("/"));
    return e->output_tokens < 0 ? text_add(to, SLICE("-")) : text_add_int(to, e->output_tokens);
}

static char *text_timings(char *to, const struct accesslog_entry *e)
{
    to = put_whole_ms(text_add(to, SLICE(" timings=")), e->total_us);
    to = put_whole_ms(text_add(to, SLICE("ms(")), e->request_us);
    to = put_whole_ms(text_add(to, SLICE("+")), e->upstream_us);
    to = put_whole_ms(text_add(to, SLICE("+")), e->response_us);
    return text_add(to, SLICE(")\n"));
}

bool accesslog_text(struct buf *out, const struct accesslog_entry *e)
{
    char *line = begin_line(out), *to = line;

    to = text_request(to, e);
    to = text_error(to, e);
    to = put_names(to, TEXT, e);
    to = text_tokens(to, e);
    to = put_own(to, TEXT, e);
    to = text_timings(to, e);
    return end_line(out, line, to);
}

/* ---- JSON ---- */

static char *json_request(char *to, const struct accesslog_entry *e)
{
    to = text_add(put_time(text_add(to, SLICE("{\"timestamp\":\"")), e->wall_us), SLICE("\""));
    to = put_value(put_key(to, JSON, KEY("method")), JSON, e->method, e->plain);
    to = put_value(put_key(to, JSON, KEY("path")), JSON, e->path, e->plain);
    to = put_word(to, JSON, KEY("protocol"), e->minor == 0 ? "HTTP/1.0" : "HTTP/1.1");
    return text_add_int(put_key(to, JSON, KEY("status_code")), e->status);
}

static char *json_error(char *to, const struct accesslog_entry *e)
{
    if (e->error_type == NULL)
        return to;
    to = put_value(text_add(to, SLICE(",\"error\":{\"type\":")), JSON, slice_of(e->error_type), true);
    to = put_value(text_add(to, SLICE(",\"message\":")), JSON, e->error_message, false);
    return text_add(to, SLICE("}"));
}

static char *json_numbers(char *to, const struct accesslog_entry *e)
{
    to = put_count(to, JSON, KEY("input_tokens"), e->input_tokens);
    to = put_count(to, JSON, KEY("output_tokens"), e->output_tokens);
    to = put_ms(to, JSON, KEY("duration_total"), e->total_us);
    to = put_ms(to, JSON, KEY("duration_request_processing"), e->request_us);
    to = put_ms(to, JSON, KEY("duration_upstream_processing"), e->upstream_us);
    return put_ms(to, JSON, KEY("duration_response_processing"), e->response_us);
}

bool accesslog_json(struct buf *out, const struct accesslog_entry *e)
{
    char *line = begin_line(out), *to = line;

    to = json_request(to, e);
    to = json_error(to, e);
    to = put_names(to, JSON, e);
    to = json_numbers(to, e);
    to = put_own(to, JSON, e);
    to = text_add(to, SLICE("}\n"));
    return end_line(out, line, to);
}
