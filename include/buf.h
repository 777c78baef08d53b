/* buf: bytes that grow at the end and are consumed at the front, up to a maximum. */
#ifndef BUF_H
#define BUF_H

#include "util.h"

#include <assert.h>

#define BUF_MAX_BYTES  (UINT32_MAX / 2)
#define BUF_KEEP_BYTES 4096 /* an empty buffer keeps no more memory than this */

struct buf {
    char *data;
    uint32_t start, len, cap; /* the bytes are data[start .. start+len); 32 bits: each connection has some */
    uint32_t max_bytes;       /* len never exceeds it */
};

/* Allocates nothing yet. A maximum over BUF_MAX_BYTES becomes that. */
void buf_init(struct buf *b, size_t max_bytes);
/* Gives the memory back; the buffer stays usable. */
void buf_free(struct buf *b);
/* What buf_reserve does when there is no room behind the last byte. */
MUST_CHECK char *buf_make_room(struct buf *b, size_t n_bytes);

/* Behind the last byte. */
static inline char *buf_end(const struct buf *b)
{
    return b->data + b->start + b->len;
}

/* For n more bytes behind the last one, where it is. */
static inline bool buf_has_room(const struct buf *b, size_t n_bytes)
{
    /* Of nothing as well there has to be a place that is not NULL. */
    return n_bytes <= b->max_bytes - b->len && n_bytes < b->cap - b->start - b->len;
}

/* A place for n more bytes at the end (then buf_commit what was written), or NULL above the maximum. */
MUST_CHECK static inline char *buf_reserve(struct buf *b, size_t n_bytes)
{
    return buf_has_room(b, n_bytes) ? buf_end(b) : buf_make_room(b, n_bytes);
}

/* At most as many as were reserved. */
static inline void buf_commit(struct buf *b, size_t n_bytes)
{
    b->len += (uint32_t)n_bytes;
}

/* False, with nothing appended, when the maximum would be exceeded. */
MUST_CHECK static inline bool buf_append(struct buf *b, const void *p, size_t n_bytes)
{
    char *at;

    if (n_bytes == 0)
        return true;
    at = buf_reserve(b, n_bytes);
    if (at == NULL)
        return false;
    memcpy(at, p, n_bytes);
    b->len += (uint32_t)n_bytes;
    return true;
}

MUST_CHECK static inline bool buf_append_slice(struct buf *b, struct slice s)
{
    return buf_append(b, s.p, s.n);
}

MUST_CHECK bool buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Drops n bytes at the front and keeps the memory: for a buffer that fills up again at once. */
static inline void buf_consume_keep(struct buf *b, size_t n_bytes)
{
    assert(n_bytes <= b->len);
    b->start = n_bytes == b->len ? 0 : b->start + (uint32_t)n_bytes;
    b->len -= (uint32_t)n_bytes;
}

/* Drops n bytes at the front; frees the memory when the buffer becomes empty and was larger than
 * BUF_KEEP_BYTES. */
static inline void buf_consume(struct buf *b, size_t n_bytes)
{
    buf_consume_keep(b, n_bytes);
    if (b->len == 0 && b->cap > BUF_KEEP_BYTES)
        buf_free(b);
}

static inline void buf_clear(struct buf *b)
{
    buf_consume(b, b->len);
}

static inline struct slice buf_slice(const struct buf *b)
{
    return (struct slice){b->len > 0 ? b->data + b->start : "", b->len};
}

#endif
