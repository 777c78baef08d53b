/* util: slices and the compiler attributes that the whole project uses. Header only, libc only. */
#ifndef UTIL_H
#define UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#define MUST_CHECK                      __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args)          __attribute__((format(printf, fmt, args)))
#define ARRAY_LEN(a)                    (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define US_PER_MS INT64_C(1000)
#define US_PER_S  INT64_C(1000000)

/* Bytes that somebody else owns; not terminated. p may be NULL only when n is 0. */
struct slice {
    const char *p;
    size_t n;
};

#define SLICE(literal) ((struct slice){(literal), sizeof(literal) - 1})
/* For "%.*s". */
#define SLICE_ARG(s) (int)(s).n, (s).p

static inline struct slice slice_of(const char *s)
{
    return (struct slice){s, s == NULL ? 0 : strlen(s)};
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* ASCII case-insensitive, as HTTP field names and tokens are compared. Most differ in their first byte or not
 * at all. */
static inline bool slice_ieq(struct slice a, struct slice b)
{
    if (a.n != b.n || (a.n > 0 && ((a.p[0] ^ b.p[0]) & ~0x20) != 0))
        return false;
    return a.n == 0 || memcmp(a.p, b.p, a.n) == 0 || strncasecmp(a.p, b.p, a.n) == 0;
}

static inline bool slice_starts(struct slice s, struct slice prefix)
{
    return s.n >= prefix.n && (prefix.n == 0 || memcmp(s.p, prefix.p, prefix.n) == 0);
}

/* Without the spaces and tabs at both ends (HTTP's optional white space). */
static inline struct slice slice_trim(struct slice s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t'))
        s.p++, s.n--;
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/* Cuts the text up to the first `sep` off *rest and returns it; *rest becomes what follows the separator.
 * Without a separator the whole of *rest is returned and *rest becomes {NULL, 0}. Loop while rest.p != NULL.
 */
static inline struct slice slice_cut(struct slice *rest, char sep)
{
    const char *at = rest->n > 0 ? memchr(rest->p, sep, rest->n) : NULL;
    struct slice head = *rest;

    if (at == NULL) {
        *rest = (struct slice){NULL, 0};
        return head;
    }
    head.n = (size_t)(at - rest->p);
    rest->p += head.n + 1;
    rest->n -= head.n + 1;
    return head;
}

#endif
