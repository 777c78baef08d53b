/* test: what every unit test needs: cmocka with the headers it wants, and random numbers that are the same in
 * each run and on each machine. */
#ifndef TEST_H
#define TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct test_random {
    uint64_t state; /* any seed */
};

/* SplitMix64. */
static inline uint64_t test_random_next(struct test_random *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* 0 .. n-1 */
static inline size_t test_random_below(struct test_random *r, size_t n)
{
    return (size_t)(test_random_next(r) % n);
}

#endif
