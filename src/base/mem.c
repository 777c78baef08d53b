/* mem: the one door to the allocator. It owns what happens when memory runs out (a line and abort) and the
 * test hook that makes an allocation fail; it keeps no statistics and no pools. */
#include "mem.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CACHE_LINE_BYTES ((size_t)64)
#define HUGE_PAGE_BYTES  ((size_t)2 << 20)

static uint64_t fail_countdown;

/* Kept out of what allocates, all of which would have its locals. */
static __attribute__((noinline, noreturn)) void run_out(size_t n_bytes)
{
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (poll(&err, 1, 0) == 1) /* whoever reads it may have stopped: no reason to hang */
        (void)dprintf(STDERR_FILENO, "kthena-router: out of memory (%zu bytes asked for)\n", n_bytes);
    abort();
}

static void *checked(void *p, size_t n_bytes)
{
    if (p == NULL)
        run_out(n_bytes);
    return p;
}

/* True when the test hook says that this allocation fails. */
static bool shall_fail(void)
{
    return fail_countdown > 0 && --fail_countdown == 0;
}

/* malloc(0) may return NULL, which here would look like failure. */
static size_t at_least_one(size_t n_bytes)
{
    return n_bytes > 0 ? n_bytes : 1;
}

void *mem_alloc(size_t n_bytes)
{
    return checked(shall_fail() ? NULL : malloc(at_least_one(n_bytes)), n_bytes);
}

void *mem_zalloc(size_t n_bytes)
{
    return checked(shall_fail() ? NULL : calloc(1, at_least_one(n_bytes)), n_bytes);
}

void *mem_realloc(void *p, size_t n_bytes)
{
    return checked(shall_fail() ? NULL : realloc(p, at_least_one(n_bytes)), n_bytes);
}

void *mem_array(void *p, size_t n, size_t size_bytes)
{
    size_t total_bytes;

    if (__builtin_mul_overflow(n, size_bytes, &total_bytes))
        return checked(NULL, SIZE_MAX);
    return mem_realloc(p, total_bytes);
}

void *mem_grow(void *p, size_t n, size_t size_bytes)
{
    return (n & (n - 1)) == 0 ? mem_array(p, n == 0 ? 1 : 2 * n, size_bytes) : p;
}

char *mem_strdup(const char *s)
{
    return mem_dup_slice(slice_of(s));
}

char *mem_dup_slice(struct slice s)
{
    char *copy = mem_alloc(s.n + 1);

    if (s.n > 0)
        memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    return copy;
}

char *mem_printf(const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    int n;

    va_start(args, fmt);
    n = shall_fail() ? -1 : vasprintf(&text, fmt, args);
    va_end(args);
    return checked(n < 0 ? NULL : text, 0);
}

void *mem_table(size_t n_bytes)
{
    size_t align_bytes = n_bytes < HUGE_PAGE_BYTES ? CACHE_LINE_BYTES : HUGE_PAGE_BYTES;
    size_t whole_bytes = (at_least_one(n_bytes) + align_bytes - 1) & ~(align_bytes - 1);
    void *p;

    if (whole_bytes < n_bytes)
        return checked(NULL, n_bytes);
    p = checked(shall_fail() ? NULL : aligned_alloc(align_bytes, whole_bytes), n_bytes);
    if (align_bytes == HUGE_PAGE_BYTES)
        (void)madvise(p, whole_bytes, MADV_HUGEPAGE); /* a refusal costs time only */
    return p;
}

/* Most pointers of a request are NULL when it ends: that is not worth a call. */
void mem_free(void *p)
{
    if (p != NULL)
        free(p);
}

void mem_fail_at(uint64_t nth)
{
    fail_countdown = nth;
}
