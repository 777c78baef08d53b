/* Loaded into the router: allocation number n fails, and as many after it as wanted. The file named in
 * FAIL_ALLOC holds three numbers: how many there were so far, n (0 = none fails), how many fail from there
 * on. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COUNT, FIRST, FAILING, NUMBERS };

static volatile int64_t *numbers;

__attribute__((constructor)) static void open_numbers(void)
{
    const char *path = getenv("FAIL_ALLOC");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *p;

    if (fd < 0)
        return;
    p = mmap(NULL, NUMBERS * sizeof *numbers, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED)
        numbers = p;
}

static bool fails(void)
{
    int64_t n;

    if (numbers == NULL)
        return false;
    n = ++numbers[COUNT];
    if (numbers[FIRST] == 0 || n < numbers[FIRST] || n - numbers[FIRST] >= numbers[FAILING])
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n)
{
    static void *(*real)(size_t n);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "malloc");
    return fails() ? NULL : real(n);
}

/* dlsym itself allocates, with calloc, before there is one. */
void *calloc(size_t n, size_t size)
{
    static void *(*real)(size_t n, size_t size);
    static char early[4096];
    static bool looking;

    if (real == NULL && looking)
        return n * size <= sizeof early ? early : NULL;
    looking = true;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "calloc");
    return fails() ? NULL : real(n, size);
}

void *realloc(void *p, size_t n)
{
    static void *(*real)(void *p, size_t n);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "realloc");
    return fails() ? NULL : real(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    static void *(*real)(size_t align, size_t n);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "aligned_alloc");
    return fails() ? NULL : real(align, n);
}
