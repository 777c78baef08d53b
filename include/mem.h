/* mem: allocation that never returns NULL. When memory runs out it writes one plain line to stderr and
 * aborts: no caller has a half-working path for it. Sizes of 0 are allowed. */
#ifndef MEM_H
#define MEM_H

#include "util.h"

MUST_CHECK void *mem_alloc(size_t n_bytes);
MUST_CHECK void *mem_zalloc(size_t n_bytes);
MUST_CHECK void *mem_realloc(void *p, size_t n_bytes);
/* Room for n items of size_bytes each; aborts when the product overflows. */
MUST_CHECK void *mem_array(void *p, size_t n, size_t size_bytes);
MUST_CHECK char *mem_strdup(const char *s);
/* Room for one item behind the n there are, in an array that has grown by this alone: it doubles whenever n
 * is a power of two, so that nobody has to keep its capacity. */
MUST_CHECK void *mem_grow(void *p, size_t n, size_t size_bytes);
/* A terminated copy of the slice. */
MUST_CHECK char *mem_dup_slice(struct slice s);
MUST_CHECK char *mem_printf(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* For large tables that are read here and there: starts at a cache line, and from 2 MiB on at a huge page,
 * which the kernel is asked for: with small ones each look costs a miss of the address cache too. Not zeroed;
 * mem_free frees it. */
MUST_CHECK void *mem_table(size_t n_bytes);
/* NULL is allowed. */
void mem_free(void *p);

/* For tests: the n-th allocation from now fails (1 = the next one); 0 switches it off. */
void mem_fail_at(uint64_t nth);

#endif
