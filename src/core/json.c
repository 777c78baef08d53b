/* json: finds where values end. It owns no memory and no opinion about what values mean. */
#include "json.h"

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* All three return the place behind what starts at p, or NULL when it has no end. */

/* A quote ends a string when an even number of backslashes stands before it. */
static const char *string_end(const char *p, const char *end)
{
    const char *start = p + 1, *quote = start, *slash;

    while ((quote = memchr(quote, '"', (size_t)(end - quote))) != NULL) {
        for (slash = quote; slash > start && slash[-1] == '\\';)
            slash--;
        if ((quote - slash) % 2 == 0)
            return quote + 1;
        quote++;
    }
    return NULL;
}

static const char *nested_end(const char *p, const char *end)
{
    size_t depth = 0;

    while (p < end) {
        if (*p == '"') {
            p = string_end(p, end);
            if (p == NULL)
                return NULL;
            continue;
        }
        if (*p == '{' || *p == '[')
            depth++;
        else if ((*p == '}' || *p == ']') && --depth == 0)
            return p + 1;
        p++;
    }
    return NULL;
}

static const char *word_end(const char *p, const char *end)
{
    const char *start = p;

    while (p < end && *p != ',' && *p != ']' && *p != '}' && *p != ':' && (unsigned char)*p > ' ')
        p++;
    return p == start ? NULL : p;
}

static const char *value_end(const char *p, const char *end)
{
    if (*p == '"')
        return string_end(p, end);
    return *p == '{' || *p == '[' ? nested_end(p, end) : word_end(p, end);
}

/* What is left behind p. */
static void rest_from(struct slice *rest, const char *p)
{
    rest->n -= (size_t)(p - rest->p);
    rest->p = p;
}

struct slice json_take(struct slice *rest)
{
    const char *end, *from, *to;

    if (rest->n == 0)
        return (struct slice){NULL, 0};
    end = rest->p + rest->n;
    from = skip_space(rest->p, end);
    to = from < end ? value_end(from, end) : NULL;
    if (to == NULL) {
        rest_from(rest, end);
        return (struct slice){NULL, 0};
    }
    rest_from(rest, to);
    return (struct slice){from, (size_t)(to - from)};
}

struct slice json_inside(struct slice value)
{
    if (value.n < 2 || (value.p[0] != '{' && value.p[0] != '[' && value.p[0] != '"'))
        return (struct slice){NULL, 0};
    return (struct slice){value.p + 1, value.n - 2};
}

/* Skips white space and then one `c`, if it is there. */
static bool skip_mark(struct slice *rest, char c)
{
    const char *end, *p;

    if (rest->n == 0)
        return false;
    end = rest->p + rest->n;
    p = skip_space(rest->p, end);
    if (p == end || *p != c)
        return false;
    rest_from(rest, p + 1);
    return true;
}

bool json_element(struct slice *inside, struct slice *value)
{
    (void)skip_mark(inside, ',');
    *value = json_take(inside);
    return value->n > 0;
}

bool json_member(struct slice *inside, struct slice *key, struct slice *value)
{
    if (!json_element(inside, key) || key->p[0] != '"' || !skip_mark(inside, ':'))
        return false;
    *key = json_inside(*key);
    *value = json_take(inside);
    return value->n > 0;
}

struct slice json_find(struct slice object, struct slice name)
{
    struct slice rest = json_inside(object), key, value, found = {NULL, 0};

    while (json_is(object, '{') && json_member(&rest, &key, &value)) {
        if (slice_eq(key, name))
            found = value;
    }
    return found;
}

/* ---- characters ---- */

/* Bytes that do not continue a character, eight at a time. */
static size_t count_starts(const char *p, size_t n)
{
    const uint64_t tops = UINT64_C(0x8080808080808080);
    size_t continued = 0, i = 0;
    uint64_t v;

    for (; i + 8 <= n; i += 8) {
        memcpy(&v, p + i, 8);
        continued += (size_t)__builtin_popcountll(v & ~(v << 1) & tops);
    }
    for (; i < n; i++)
        continued += ((unsigned char)p[i] & 0xc0) == 0x80;
    return n - continued;
}

/* The second half of a pair: \udc00 to \udfff. */
static bool is_low_half(const char *escape)
{
    return (escape[2] | 0x20) == 'd' && memchr("cdefCDEF", escape[3], 8) != NULL;
}

size_t json_characters(struct slice inside)
{
    size_t n = 0;

    while (inside.n > 0) {
        const char *slash = memchr(inside.p, '\\', inside.n);
        size_t plain = slash == NULL ? inside.n : (size_t)(slash - inside.p), escape = 0;

        n += count_starts(inside.p, plain);
        if (slash != NULL) {
            escape = inside.n - plain >= 6 && slash[1] == 'u' ? 6 : inside.n - plain >= 2 ? 2 : 1;
            n += escape == 6 && is_low_half(slash) ? 0 : 1;
        }
        inside.p += plain + escape;
        inside.n -= plain + escape;
    }
    return n;
}
