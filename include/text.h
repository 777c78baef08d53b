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

typedef uint64_t text_16 __attribute__((vector_size(16)));

/* The first and the last bytes, as many as the type has; they may overlap. */
#define TEXT_COPY_ENDS(type, to, from, n_bytes)                                                              \
    do {                                                                                                     \
        type first_, last_;                                                                                  \
        memcpy(&first_, (from), sizeof(type));                                                               \
        memcpy(&last_, (from) + (n_bytes) - sizeof(type), sizeof(type));                                     \
        memcpy((to), &first_, sizeof(type));                                                                 \
        memcpy((to) + (n_bytes) - sizeof(type), &last_, sizeof(type));                                       \
    } while (0)

/* Pieces are short: a few moves are cheaper than a call. Those of constant length are left to the compiler.
 */
static inline void text_copy(char *to, const char *from, size_t n_bytes)
{
    if (__builtin_constant_p(n_bytes) || n_bytes > 64) {
        memcpy(to, from, n_bytes);
    } else if (n_bytes >= 16) {
        TEXT_COPY_ENDS(text_16, to, from, n_bytes);
        if (n_bytes > 32)
            TEXT_COPY_ENDS(text_16, to + 16, from + 16, n_bytes - 32);
    } else if (n_bytes >= 8) {
        TEXT_COPY_ENDS(uint64_t, to, from, n_bytes);
    } else if (n_bytes >= 4) {
        TEXT_COPY_ENDS(uint32_t, to, from, n_bytes);
    } else if (n_bytes >= 2) {
        TEXT_COPY_ENDS(uint16_t, to, from, n_bytes);
    } else if (n_bytes > 0) {
        *to = *from;
    }
}

/* ---- where room is known to suffice: what comes behind the piece is returned ---- */

MUST_CHECK static inline char *text_add(char *to, struct slice piece)
{
    text_copy(to, piece.p, piece.n);
    return to + piece.n;
}

/* One or two digits are what most numbers of a line have. */
MUST_CHECK static inline char *text_add_int(char *to, int64_t n)
{
    if (n < 0 || n > 99)
        return to + number_format_int(n, to);
    if (n > 9) {
        number_put_pair(to, (unsigned)n);
        return to + 2;
    }
    *to = (char)('0' + n);
    return to + 1;
}

#define TEXT_BOOL_BYTES 8 /* room for one: as many are written, whatever it is */

MUST_CHECK static inline char *text_add_bool(char *to, bool b)
{
    memcpy(to, b ? "true    " : "false   ", TEXT_BOOL_BYTES);
    return to + (b ? 4 : 5);
}

/* ---- where it may not ---- */

/* The whole piece or nothing, and then nothing more. */
MUST_CHECK static inline struct text text_put(struct text t, struct slice piece)
{
    if (piece.n > t.left_bytes)
        return (struct text){t.at, 0};
    return (struct text){text_add(t.at, piece), t.left_bytes - piece.n};
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

/* Asks for the room of the longest number. */
MUST_CHECK static inline struct text text_put_int(struct text t, int64_t n)
{
    if (t.left_bytes < NUMBER_TEXT_MAX)
        return (struct text){t.at, 0};
    return text_skip(t, (size_t)(text_add_int(t.at, n) - t.at));
}

#endif
