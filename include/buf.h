/* buf: bytes that grow at the end and are consumed at the front, up to a maximum. */
#ifndef BUF_H
#define BUF_H

#include "util.h"

struct buf {
    char *data;
    size_t start, len, cap; /* the bytes are data[start .. start+len) */
    size_t max_bytes;       /* len never exceeds it */
};

/* Allocates nothing yet. */
void buf_init(struct buf *b, size_t max_bytes);
/* Gives the memory back; the buffer stays usable. */
void buf_free(struct buf *b);
/* False, with nothing appended, when the maximum would be exceeded. */
MUST_CHECK bool buf_append(struct buf *b, const void *p, size_t n_bytes);
MUST_CHECK bool buf_append_slice(struct buf *b, struct slice s);
MUST_CHECK bool buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A place for n more bytes at the end (then buf_commit what was written), or NULL above the maximum. */
MUST_CHECK char *buf_reserve(struct buf *b, size_t n_bytes);
void buf_commit(struct buf *b, size_t n_bytes);
/* Drops n bytes at the front; frees the memory when the buffer becomes empty and was larger than 4 KiB. */
void buf_consume(struct buf *b, size_t n_bytes);
void buf_clear(struct buf *b);

static inline struct slice buf_slice(const struct buf *b)
{
    return (struct slice){b->len > 0 ? b->data + b->start : "", b->len};
}

#endif
