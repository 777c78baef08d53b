/* prefix: which pod has seen the beginning of a prompt before. A prompt becomes a chain of hashes, one for
 * each block of its text, each with all before it; a store remembers the chains that one pod has served.
 * Bounded: the first PREFIX_BLOCKS_MAX blocks of a prompt, the last PREFIX_STORE_MAX blocks of a pod. */
#ifndef PREFIX_H
#define PREFIX_H

#include "htab.h"
#include "list.h"
#include "pool.h"
#include "prompt.h"

#define PREFIX_BLOCK_BYTES 64
#define PREFIX_BLOCKS_MAX  128
#define PREFIX_STORE_MAX   50000 /* 56 bytes each, and as much again for the table */

struct prefix_chain {
    unsigned n;
    uint64_t hashes[]; /* of the text up to the end of each block; the last block may be short */
};

/* Of a request's prompt (prompt.h); NULL: it has none. Freed by the caller with mem_free. */
struct prefix_chain *prefix_chain_of(const struct prompt_fields *prompt, const char *end);

struct prefix_store {
    struct htab blocks;
    struct pool entries;
    struct list by_use; /* front = used last */
    size_t n, max;
};

void prefix_store_init(struct prefix_store *s, size_t max);
void prefix_store_free(struct prefix_store *s);
/* The pod has served the prompt. */
void prefix_store_add(struct prefix_store *s, const struct prefix_chain *c);
/* How many blocks from the first on are known. Changes nothing. */
unsigned prefix_store_match(const struct prefix_store *s, const struct prefix_chain *c);

#endif
