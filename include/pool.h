/* pool: items of one size, for things that come and go by the hundred thousand. They lie close together in
 * chunks that double from 4 KiB to 2 MiB, without an allocator's header; one that is given back is the next
 * to be handed out. Chunks are kept until the whole pool is freed. */
#ifndef POOL_H
#define POOL_H

#include "util.h"

struct pool {
    size_t item_bytes;
    void *returned;            /* the last one given back; each holds a pointer to the next */
    struct pool_chunk *chunks; /* newest first */
    size_t used, room;         /* items handed out of the newest chunk, and how many fit */
};

/* item_bytes: at least a pointer's, at most 1 KiB, a multiple of the type's alignment (its sizeof is); items
 * of 64 bytes start at cache lines. */
void pool_init(struct pool *p, size_t item_bytes);
/* Frees all items. */
void pool_free(struct pool *p);
/* Not zeroed. */
MUST_CHECK void *pool_get(struct pool *p);
void pool_put(struct pool *p, void *item);

#endif
