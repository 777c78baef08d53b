/* text: pieces of a line put one after another into a place of fixed size, for lines that are made for every
 * request. It is handed on by value, so that it stays in two registers. The place is the caller's. Bytes that
 * grow or are consumed are buf's. */
#ifndef TEXT_H
#define TEXT_H

#include "number.h"

struct text {
    char *at;          /* the next piece goes here; not terminated */
    size_t left_bytes; /* 0: full; a piece may be missing, and all that came after it is */
};

/* After n bytes were written at t.at. */
MUST_CHECK static inline struct text text_skip(struct text t, size_t n_bytes)
{
    return (struct text){t.at + n_bytes, t.left_bytes - n_bytes};
}

/* Pieces are short: two moves that may overlap are cheaper than a call. */
static inline void text_copy(char *to, const char *from, size_t n_bytes)
{
    if (n_bytes >= 8 && n_bytes <= 16) {
        uint64_t ends[2];

        memcpy(&ends[0], from, 8);
        memcpy(&ends[1], from + n_bytes - 8, 8);
        memcpy(to, &ends[0], 8);
        memcpy(to + n_bytes - 8, &ends[1], 8);
    } else if (n_bytes >= 4 && n_bytes < 8) {
        uint32_t ends[2];

        memcpy(&ends[0], from, 4);
        memcpy(&ends[1], from + n_bytes - 4, 4);
        memcpy(to, &ends[0], 4);
        memcpy(to + n_bytes - 4, &ends[1], 4);
    } else if (n_bytes > 0) {
        memcpy(to, from, n_bytes);
    }
}

/* The whole piece or nothing, and then nothing more. */
MUST_CHECK static inline struct text text_put(struct text t, struct slice piece)
{
    if (piece.n > t.left_bytes)
        return (struct text){t.at, 0};
    text_copy(t.at, piece.p, piece.n);
    return text_skip(t, piece.n);
}

MUST_CHECK static inline struct text text_put_char(struct text t, char c)
{
    if (t.left_bytes == 0)
        return t;
    *t.at = c;
    return text_skip(t, 1);
}

MUST_CHECK static inline struct text text_put_bool(struct text t, bool b)
{
    return text_put(t, b ? SLICE("true") : SLICE("false"));
}

/* Asks for the room of the longest number. One digit is what most numbers of a line have. */
MUST_CHECK static inline struct text text_put_int(struct text t, int64_t n)
{
    if (t.left_bytes < NUMBER_TEXT_MAX)
        return (struct text){t.at, 0};
    if (n < 0 || n > 9)
        return text_skip(t, number_format_int(n, t.at));
    *t.at = (char)('0' + n);
    return text_skip(t, 1);
}

#endif
