/* pool: chunks and the list of items that were given back. It knows no types; under the address sanitizer an
 * item that is not handed out must not be touched. */
#include "pool.h"
#include "mem.h"

#include <assert.h>
#include <sanitizer/asan_interface.h>

#define MIN_CHUNK_BYTES ((size_t)4096)
#define MAX_CHUNK_BYTES ((size_t)2 << 20)
#define MAX_ITEM_BYTES  ((size_t)1024)

/* Its size keeps the items behind it at cache lines. */
struct pool_chunk {
    _Alignas(64) struct pool_chunk *next;
    size_t n_bytes; /* with this header */
};

void pool_init(struct pool *p, size_t item_bytes)
{
    assert(item_bytes >= sizeof(void *) && item_bytes <= MAX_ITEM_BYTES);
    *p = (struct pool){.item_bytes = item_bytes};
}

void pool_free(struct pool *p)
{
    for (struct pool_chunk *chunk = p->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        ASAN_UNPOISON_MEMORY_REGION(chunk, chunk->n_bytes);
        mem_free(chunk);
    }
    pool_init(p, p->item_bytes);
}

static void add_chunk(struct pool *p)
{
    size_t n_bytes = p->chunks == NULL ? MIN_CHUNK_BYTES : p->chunks->n_bytes * 2;
    struct pool_chunk *chunk;

    if (n_bytes > MAX_CHUNK_BYTES)
        n_bytes = MAX_CHUNK_BYTES;
    chunk = mem_table(n_bytes);
    *chunk = (struct pool_chunk){.next = p->chunks, .n_bytes = n_bytes};
    ASAN_POISON_MEMORY_REGION(chunk + 1, n_bytes - sizeof(*chunk));
    p->chunks = chunk;
    p->used = 0;
    p->room = (n_bytes - sizeof(*chunk)) / p->item_bytes;
}

void *pool_get(struct pool *p)
{
    void *item = p->returned;

    if (item == NULL) {
        if (p->used == p->room)
            add_chunk(p);
        item = (char *)(p->chunks + 1) + p->used++ * p->item_bytes;
    }
    ASAN_UNPOISON_MEMORY_REGION(item, p->item_bytes);
    if (item == p->returned)
        memcpy(&p->returned, item, sizeof(p->returned));
    return item;
}

void pool_put(struct pool *p, void *item)
{
    memcpy(item, &p->returned, sizeof(p->returned));
    p->returned = item;
    ASAN_POISON_MEMORY_REGION(item, p->item_bytes);
}
