/* The KV blocks of the simulated pod. A block is known by the hash of all text up to its end, so a hit
 * means the whole prefix is the same. Owns the blocks; sequences hold (pin) them. Blocks nobody holds stay
 * until their room is needed, the least recently used goes first. */
#include "sim.h"

#include <stdlib.h>

struct cache_block {
    uint64_t hash;
    struct cache_block *chain;         /* next in the same bucket */
    struct cache_block *older, *newer; /* in the order of use, when not held */
    int64_t holders;
};

static struct {
    struct cache_block **buckets;
    size_t n_buckets; /* a power of two, or 0 */
    struct cache_block *oldest, *newest;
    int64_t capacity, resident, held, reserved;
} cache;

static struct cache_block **cache_find(uint64_t hash)
{
    struct cache_block **at = &cache.buckets[hash & (cache.n_buckets - 1)];
    while (*at && (*at)->hash != hash)
        at = &(*at)->chain;
    return at;
}

static void lru_add(struct cache_block *block)
{
    block->newer = NULL;
    block->older = cache.newest;
    if (cache.newest)
        cache.newest->newer = block;
    else
        cache.oldest = block;
    cache.newest = block;
}

static void lru_remove(struct cache_block *block)
{
    if (block->older)
        block->older->newer = block->newer;
    else
        cache.oldest = block->newer;
    if (block->newer)
        block->newer->older = block->older;
    else
        cache.newest = block->older;
}

static void cache_evict_oldest(void)
{
    struct cache_block *block = cache.oldest;
    struct cache_block **at = cache_find(block->hash);
    *at = block->chain;
    lru_remove(block);
    free(block);
    cache.resident--;
}

static void cache_make_room(int64_t blocks)
{
    while (cache.oldest && cache.resident + cache.reserved + blocks > cache.capacity)
        cache_evict_oldest();
}

static void cache_rehash(size_t n_buckets)
{
    struct cache_block **old = cache.buckets;
    size_t n_old = cache.n_buckets;
    cache.buckets = util_alloc(n_buckets * sizeof(struct cache_block *));
    cache.n_buckets = n_buckets;
    for (size_t i = 0; i < n_old; i++) {
        for (struct cache_block *block = old[i], *next; block; block = next) {
            struct cache_block **at = &cache.buckets[block->hash & (n_buckets - 1)];
            next = block->chain;
            block->chain = *at;
            *at = block;
        }
    }
    free(old);
}

void cache_set_capacity(int64_t blocks)
{
    cache.capacity = blocks;
    if (cache.n_buckets == 0)
        cache_rehash(1024);
    cache_make_room(0);
}

void cache_clear(void)
{
    while (cache.oldest)
        cache_evict_oldest();
}

void cache_free(void)
{
    cache_clear();
    free(cache.buckets);
}

static void cache_hold(struct cache_block *block)
{
    if (block->holders++ == 0) {
        lru_remove(block);
        cache.held++;
    }
}

struct cache_block *cache_pin_known(uint64_t hash)
{
    struct cache_block *block = *cache_find(hash);
    if (block)
        cache_hold(block);
    return block;
}

struct cache_block *cache_pin(uint64_t hash)
{
    struct cache_block *block = cache_pin_known(hash);
    if (block)
        return block;
    cache_make_room(1);
    if (cache.resident + cache.reserved + 1 > cache.capacity)
        return NULL;
    if ((size_t)cache.resident > cache.n_buckets)
        cache_rehash(cache.n_buckets * 4);
    block = util_alloc(sizeof(*block));
    block->hash = hash;
    *cache_find(hash) = block;
    cache.resident++;
    cache.held++;
    block->holders = 1;
    return block;
}

void cache_unpin(struct cache_block *block)
{
    if (--block->holders > 0)
        return;
    cache.held--;
    lru_add(block);
    cache_make_room(0);
}

void cache_reserve(int64_t blocks)
{
    cache.reserved += blocks;
    cache_make_room(0);
}

void cache_unreserve(int64_t blocks)
{
    cache.reserved -= blocks;
}

int64_t cache_available(void)
{
    return cache.capacity - cache.held - cache.reserved;
}

int64_t cache_resident(void)
{
    return cache.resident;
}

double cache_usage(void)
{
    if (cache.capacity == 0)
        return 0;
    double usage = (double)(cache.held + cache.reserved) / (double)cache.capacity;
    return usage > 1 ? 1 : usage;
}
