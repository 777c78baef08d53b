/* Strict readers of what the router sends, to pods (requests) and to clients (answers). They accept what a
 * careful HTTP/1.1 sender may send, and no more; they know nothing of the router's parser. */
#include "torture.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_END, CHUNK_LAST };

void wire_start(struct wire *w, bool request, bool head_request)
{
    struct buf in = w->in, body = w->body;

    *w = (struct wire){
        .in = in, .body = body, .request = request, .head_request = head_request, .mark = -1, .keep = true};
    buf_clear(&w->body);
}

void wire_free(struct wire *w)
{
    buf_free(&w->in);
    buf_free(&w->body);
}

static bool wire_fail(struct wire *w, const char *why)
{
    w->state = WIRE_BAD;
    w->why = why;
    return true;
}

static void wire_copy(char *to, size_t room, const char *p, size_t n)
{
    if (n >= room)
        n = room - 1;
    memcpy(to, p, n);
    to[n] = '\0';
}

/* ---- the first line ---- */

static const char *wire_request_line(struct wire *w, const char *p, size_t n)
{
    const char *first = memchr(p, ' ', n), *last = memrchr(p, ' ', n);

    if (first == NULL || first == last || memchr(first + 1, ' ', (size_t)(last - first - 1)) != NULL)
        return "request line is not three words";
    if (n - (size_t)(last + 1 - p) != 8 || memcmp(last + 1, "HTTP/1.1", 8) != 0)
        return "request line without HTTP/1.1";
    if (first[1] != '/')
        return "target is no path";
    wire_copy(w->method, sizeof w->method, p, (size_t)(first - p));
    wire_copy(w->target, sizeof w->target, first + 1, (size_t)(last - first - 1));
    w->minor = 1;
    return NULL;
}

static const char *wire_status_line(struct wire *w, const char *p, size_t n)
{
    if (n < 13 || memcmp(p, "HTTP/1.1 ", 9) != 0 || !isdigit((unsigned char)p[9]) ||
        !isdigit((unsigned char)p[10]) || !isdigit((unsigned char)p[11]) || p[12] != ' ')
        return "bad status line";
    w->status = (unsigned)strtoul(p + 9, NULL, 10);
    return NULL;
}

/* ---- fields ---- */

struct wire_field {
    const char *name, *value;
    size_t name_n, value_n;
};

static bool wire_is(const struct wire_field *f, const char *name)
{
    return strlen(name) == f->name_n && strncasecmp(f->name, name, f->name_n) == 0;
}

static bool wire_says(const struct wire_field *f, const char *value)
{
    return strlen(value) == f->value_n && strncasecmp(f->value, value, f->value_n) == 0;
}

static bool wire_number(const struct wire_field *f, uint64_t *n)
{
    *n = 0;
    for (size_t i = 0; i < f->value_n; i++) {
        if (!isdigit((unsigned char)f->value[i]) || i > 18)
            return false;
        *n = *n * 10 + (uint64_t)(f->value[i] - '0');
    }
    return f->value_n > 0;
}

static bool wire_is_hop_by_hop(const struct wire_field *f)
{
    static const char *const names[] = {"Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "TE",
                                        "Trailer",    "Upgrade",          "HTTP2-Settings",      "X-Hop",
                                        "Expect"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (wire_is(f, names[i]))
            return true;
    return false;
}

static const char *wire_framing_field(struct wire *w, const struct wire_field *f)
{
    if (wire_is(f, "Content-Length")) {
        if (w->has_length || w->chunked || !wire_number(f, &w->remaining))
            return "bad Content-Length";
        w->has_length = true;
    } else {
        if (w->chunked || w->has_length || !wire_says(f, "chunked"))
            return "bad Transfer-Encoding";
        w->chunked = true;
    }
    return NULL;
}

static const char *wire_field(struct wire *w, const struct wire_field *f)
{
    uint64_t n;

    if (wire_is(f, "Content-Length") || wire_is(f, "Transfer-Encoding"))
        return wire_framing_field(w, f);
    if (wire_is(f, "X-Request-ID")) {
        if (w->request_id[0] != '\0')
            return "two request ids";
        wire_copy(w->request_id, sizeof w->request_id, f->value, f->value_n);
    } else if (wire_is(f, w->request ? "X-Torture" : "X-Pod")) {
        if (!wire_number(f, &n))
            return "bad mark";
        w->mark = (long)n;
    } else if (wire_is(f, "Connection")) {
        w->keep = wire_says(f, "keep-alive");
        if (!w->keep && !wire_says(f, "close"))
            return "Connection names fields";
        w->hop_by_hop |= w->request;
    } else if (wire_is(f, "Host")) {
        wire_copy(w->host, sizeof w->host, f->value, f->value_n);
    } else if (wire_is(f, "Retry-After")) {
        w->has_retry_after = true;
    } else if (wire_is_hop_by_hop(f)) {
        w->hop_by_hop = true;
    }
    return NULL;
}

static const char *wire_line(struct wire *w, const char *p, size_t n)
{
    struct wire_field f = {.name = p};
    const char *colon = memchr(p, ':', n);

    for (size_t i = 0; i < n; i++)
        if (((unsigned char)p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7f)
            return "control byte in the head";
    if (colon == NULL || colon == p)
        return "field without a name";
    f.name_n = (size_t)(colon - p);
    for (size_t i = 0; i < f.name_n; i++)
        if (!isalnum((unsigned char)p[i]) && strchr("!#$%&'*+-.^_`|~", p[i]) == NULL)
            return "field name is no token";
    f.value = colon + 1;
    f.value_n = n - f.name_n - 1;
    while (f.value_n > 0 && (*f.value == ' ' || *f.value == '\t')) {
        f.value++;
        f.value_n--;
    }
    while (f.value_n > 0 && (f.value[f.value_n - 1] == ' ' || f.value[f.value_n - 1] == '\t'))
        f.value_n--;
    return wire_field(w, &f);
}

/* ---- the head ---- */

static bool wire_begin_body(struct wire *w)
{
    const bool never =
        !w->request && (w->status < 200 || w->status == 204 || w->status == 304 || w->head_request);

    if (never && w->chunked && w->status != 304 && !w->head_request)
        return wire_fail(w, "body framing where there is no body");
    w->chunked = w->chunked && !never;
    w->until_close = !w->request && !never && !w->chunked && !w->has_length;
    if (never || (!w->chunked && !w->until_close && w->remaining == 0)) {
        w->remaining = 0;
        w->state = WIRE_DONE;
        return true;
    }
    if (w->until_close)
        w->keep = false;
    w->state = WIRE_BODY;
    return false;
}

static bool wire_read_head(struct wire *w)
{
    const char *p = buf_bytes(&w->in), *end = memmem(p, buf_size(&w->in), "\r\n\r\n", 4), *line;
    bool first = true;

    if (end == NULL)
        return buf_size(&w->in) > TORTURE_HEAD_MAX + 16384 ? wire_fail(w, "endless head") : false;
    for (; p < end + 2; p = line + 2, first = false) {
        const char *why;

        line = memmem(p, (size_t)(end + 2 - p), "\r\n", 2);
        why = !first       ? wire_line(w, p, (size_t)(line - p))
              : w->request ? wire_request_line(w, p, (size_t)(line - p))
                           : wire_status_line(w, p, (size_t)(line - p));
        if (why != NULL)
            return wire_fail(w, why);
    }
    buf_take(&w->in, (size_t)(end + 4 - buf_bytes(&w->in)));
    if (!w->request && w->status < 200) {
        w->interim = true;
        return true;
    }
    return wire_begin_body(w);
}

/* ---- bodies ---- */

static void wire_take(struct wire *w)
{
    size_t n = buf_size(&w->in);

    if (!w->until_close && n > w->remaining)
        n = (size_t)w->remaining;
    buf_put(&w->body, buf_bytes(&w->in), n);
    buf_take(&w->in, n);
    if (!w->until_close)
        w->remaining -= n;
}

/* False: more bytes are needed, or the state changed. */
static bool wire_chunk_line(struct wire *w)
{
    const char *p = buf_bytes(&w->in), *end = memmem(p, buf_size(&w->in), "\r\n", 2);
    size_t n = end == NULL ? 0 : (size_t)(end - p);

    if (end == NULL) {
        if (buf_size(&w->in) > 20)
            wire_fail(w, "long chunk line");
        return false;
    }
    if (w->chunk_state == CHUNK_END || w->chunk_state == CHUNK_LAST) {
        if (n > 0)
            return !wire_fail(w, "no line end behind a chunk");
        buf_take(&w->in, 2);
        if (w->chunk_state == CHUNK_LAST) {
            w->state = WIRE_DONE;
            return false;
        }
        w->chunk_state = CHUNK_SIZE;
        return true;
    }
    if (n == 0 || n > 16)
        return !wire_fail(w, "bad chunk size");
    for (size_t i = 0; i < n; i++)
        if (!isxdigit((unsigned char)p[i]))
            return !wire_fail(w, "bad chunk size");
    w->remaining = strtoull(p, NULL, 16);
    w->chunk_state = w->remaining > 0 ? CHUNK_DATA : CHUNK_LAST;
    buf_take(&w->in, n + 2);
    return true;
}

static void wire_chunks(struct wire *w)
{
    while (w->state == WIRE_BODY) {
        if (w->chunk_state != CHUNK_DATA) {
            if (!wire_chunk_line(w))
                return;
            continue;
        }
        if (buf_size(&w->in) == 0)
            return;
        wire_take(w);
        if (w->remaining == 0)
            w->chunk_state = CHUNK_END;
    }
}

bool wire_read(struct wire *w)
{
    w->interim = false;
    if (w->state == WIRE_HEAD && wire_read_head(w))
        return true;
    if (w->state != WIRE_BODY)
        return w->state != WIRE_HEAD;
    if (w->chunked) {
        wire_chunks(w);
    } else {
        wire_take(w);
        if (!w->until_close && w->remaining == 0)
            w->state = WIRE_DONE;
    }
    return w->state != WIRE_BODY;
}

void wire_eof(struct wire *w)
{
    if (w->state == WIRE_BODY && w->until_close)
        w->state = WIRE_DONE;
}
