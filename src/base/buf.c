/* buf: room for bytes. Consumed bytes leave a gap at the front, which is closed only when that is cheap for
 * what was consumed, so that a long stream through a full buffer stays linear. */
#include "buf.h"
#include "mem.h"

#include <stdarg.h>
#include <stdio.h>

#define BUF_FIRST_BYTES 256

void buf_init(struct buf *b, size_t max_bytes)
{
    *b = (struct buf){.max_bytes = max_bytes < BUF_MAX_BYTES ? (uint32_t)max_bytes : BUF_MAX_BYTES};
}

void buf_free(struct buf *b)
{
    mem_free(b->data);
    buf_init(b, b->max_bytes);
}

/* A quarter above the maximum: when the end is reached, at least that much was consumed at the front, which
 * pays for closing the gap. */
static size_t cap_limit(const struct buf *b)
{
    return (size_t)b->max_bytes + b->max_bytes / 4 + 1;
}

static size_t next_cap(const struct buf *b, size_t need_bytes)
{
    size_t limit = cap_limit(b);
    size_t cap = b->cap < BUF_FIRST_BYTES / 2 ? BUF_FIRST_BYTES : b->cap;

    cap = cap > limit / 2 ? limit : cap * 2;
    return cap > need_bytes ? cap : need_bytes;
}

/* Makes place for n more bytes after the end, whatever the maximum says. */
static void make_room(struct buf *b, size_t n_bytes)
{
    size_t need_bytes = b->len + n_bytes;
    char *data;

    if (b->start + need_bytes <= b->cap)
        return;
    if (need_bytes <= b->cap && (b->start >= b->len || b->cap >= cap_limit(b))) {
        memmove(b->data, b->data + b->start, b->len);
        b->start = 0;
        return;
    }
    b->cap = (uint32_t)next_cap(b, need_bytes);
    if (b->start == 0) {
        b->data = mem_realloc(b->data, b->cap);
        return;
    }
    data = mem_alloc(b->cap);
    memcpy(data, b->data + b->start, b->len);
    mem_free(b->data);
    b->data = data;
    b->start = 0;
}

static bool fits(const struct buf *b, size_t n_bytes)
{
    return n_bytes <= b->max_bytes - b->len;
}

char *buf_make_room(struct buf *b, size_t n_bytes)
{
    if (!fits(b, n_bytes))
        return NULL;
    make_room(b, n_bytes > 0 ? n_bytes : 1); /* never NULL for "nothing more" */
    return b->data + b->start + b->len;
}

bool buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args, again;
    int n;
    bool ok;

    va_start(args, fmt);
    va_copy(again, args);
    n = vsnprintf(NULL, 0, fmt, args);
    ok = n >= 0 && fits(b, (size_t)n);
    if (ok) {
        make_room(b, (size_t)n + 1); /* the terminator is written, but never counted */
        (void)vsnprintf(b->data + b->start + b->len, (size_t)n + 1, fmt, again);
        b->len += (uint32_t)n;
    }
    va_end(again);
    va_end(args);
    return ok;
}
