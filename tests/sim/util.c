/* Memory, byte buffers, hashes and clocks of vllm-sim. Owns no state but the interned strings. */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct interned {
    struct interned *next;
    char text[];
};

static struct interned *interned_list;

void *util_alloc(size_t size)
{
    void *memory = calloc(1, size ? size : 1);
    if (!memory) {
        fputs("vllm-sim: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

void *util_resize(void *old, size_t size)
{
    void *memory = realloc(old, size ? size : 1);
    if (!memory) {
        fputs("vllm-sim: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

char *util_copy(const char *text, size_t len)
{
    char *copy = util_alloc(len + 1);
    memcpy(copy, text, len);
    return copy;
}

const char *util_intern(const char *text)
{
    size_t size = strlen(text) + 1;
    for (struct interned *known = interned_list; known; known = known->next)
        if (strcmp(known->text, text) == 0)
            return known->text;
    struct interned *made = util_alloc(sizeof(*made) + size);
    memcpy(made->text, text, size);
    made->next = interned_list;
    interned_list = made;
    return made->text;
}

void util_free_interned(void)
{
    while (interned_list) {
        struct interned *next = interned_list->next;
        free(interned_list);
        interned_list = next;
    }
}

int64_t util_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

double util_unix_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)(now.tv_nsec / 1000) / 1e6;
}

uint64_t util_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

uint64_t util_fnv1a(const char *data, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3U;
    return hash;
}

void util_token_text(uint64_t seed, int64_t index, char *out, size_t len)
{
    uint64_t bits = util_mix(seed + (uint64_t)index);
    out[0] = ' ';
    for (size_t i = 1; i < len; i++) {
        if (i % 8 == 0)
            bits = util_mix(bits);
        out[i] = (char)('a' + ((bits >> (i % 8 * 8)) & 0xff) % 26);
    }
}

size_t buf_size(const struct buf *b)
{
    return b->len - b->off;
}

const char *buf_bytes(const struct buf *b)
{
    return b->data ? b->data + b->off : "";
}

/* Makes room for `more` bytes after len; moves the content to the front first if that is enough. */
static void buf_room(struct buf *b, size_t more)
{
    if (b->cap - b->len >= more)
        return;
    if (b->off > b->cap / 2) {
        memmove(b->data, b->data + b->off, b->len - b->off);
        b->len -= b->off;
        b->off = 0;
    }
    if (b->cap - b->len >= more)
        return;
    size_t cap = b->cap ? b->cap : 256;
    while (cap - b->len < more)
        cap *= 2;
    b->data = util_resize(b->data, cap);
    b->cap = cap;
}

void buf_put(struct buf *b, const void *data, size_t len)
{
    if (len == 0)
        return;
    buf_room(b, len);
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

void buf_text(struct buf *b, const char *text)
{
    buf_put(b, text, strlen(text));
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int need = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (need > 0) {
        buf_room(b, (size_t)need + 1);
        vsnprintf(b->data + b->len, (size_t)need + 1, format, again);
        b->len += (size_t)need;
    }
    va_end(again);
}

void buf_json(struct buf *b, const char *text, size_t len)
{
    buf_put(b, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            buf_printf(b, "\\u%04x", c);
        else
            buf_put(b, &text[i], 1);
    }
    buf_put(b, "\"", 1);
}

void buf_take(struct buf *b, size_t len)
{
    b->off += len;
    if (b->off == b->len)
        b->off = b->len = 0;
}

void buf_clear(struct buf *b)
{
    b->off = b->len = 0;
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}
