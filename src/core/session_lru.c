/* session_lru: a hash table whose slots are the entries, each linked to its neighbours in the order of
 * completion by their slots' numbers. It owns the table and the completion numbers, and nothing about who
 * waits. */
#include "session_lru.h"
#include "mem.h"

#include <assert.h>

#define MIN_SLOTS 8

void session_lru_key(struct session_key *key, struct slice session)
{
    htab_hash128(session, &key->hash, &key->check);
}

/* ---- the ring of entries ---- */

static uint32_t ring_end(const struct session_lru *l)
{
    return l->mask + 1;
}

static void ring_take_out(struct session_lru *l, const struct session_entry *e)
{
    l->slots[e->newer].older = e->older;
    l->slots[e->older].newer = e->newer;
}

static void ring_put_newest(struct session_lru *l, uint32_t at)
{
    struct session_entry *end = &l->slots[ring_end(l)], *e = &l->slots[at];

    e->newer = ring_end(l);
    e->older = end->older;
    l->slots[e->older].newer = at;
    end->older = at;
}

/* ---- the table ---- */

static void table_init(struct session_lru *l, uint32_t n_slots)
{
    const size_t n_bytes = ((size_t)n_slots + 1) * sizeof(l->slots[0]);

    l->mask = n_slots - 1;
    l->slots = mem_table(n_bytes);
    memset(l->slots, 0, n_bytes);
    l->slots[n_slots].newer = l->slots[n_slots].older = n_slots;
}

/* The slot of the key; if it is not there, the free slot where it would be put. Every third look goes on to
 * the next line, which then is on its way. */
static uint32_t slot_of(const struct session_lru *l, const struct session_key *key)
{
    uint32_t at = (uint32_t)key->hash & l->mask;
    const struct session_entry *e;

    __builtin_prefetch(&l->slots[at + 1]);
    while ((e = &l->slots[at])->completed != 0 && (e->key.hash != key->hash || e->key.check != key->check))
        at = (at + 1) & l->mask;
    return at;
}

/* All entries move, and in their old slots stands where to, so that the neighbours can be told. */
static void grow(struct session_lru *l)
{
    const struct session_lru old = *l;

    table_init(l, (old.mask + 1) * 2);
    for (uint32_t i = 0; i <= old.mask; i++) {
        uint32_t at = slot_of(l, &old.slots[i].key);

        if (old.slots[i].completed == 0)
            continue;
        l->slots[at] = old.slots[i];
        old.slots[i].newer = at;
    }
    l->slots[ring_end(l)] = old.slots[ring_end(&old)];
    old.slots[ring_end(&old)].newer = ring_end(l);
    for (uint32_t i = 0; i <= ring_end(l); i++) {
        l->slots[i].newer = old.slots[l->slots[i].newer].newer;
        l->slots[i].older = old.slots[l->slots[i].older].newer;
    }
    mem_free(old.slots);
}

static void move(struct session_lru *l, uint32_t to, uint32_t from)
{
    const struct session_entry *e = &l->slots[from];

    l->slots[e->newer].older = l->slots[e->older].newer = to;
    l->slots[to] = *e;
}

/* Frees the slot; what follows it without a free slot between moves up, unless it would pass the place of its
 * hash. */
static void free_slot(struct session_lru *l, uint32_t at)
{
    for (uint32_t from = (at + 1) & l->mask; l->slots[from].completed != 0; from = (from + 1) & l->mask) {
        uint32_t moved = (from - (uint32_t)l->slots[from].key.hash) & l->mask;

        if (moved < ((from - at) & l->mask))
            continue;
        move(l, at, from);
        at = from;
    }
    l->slots[at].completed = 0;
}

/* ---- life ---- */

void session_lru_init(struct session_lru *l, size_t max)
{
    assert(max >= 1 && max <= SESSION_LRU_MAX);
    *l = (struct session_lru){.max = max};
    table_init(l, MIN_SLOTS);
}

void session_lru_free(struct session_lru *l)
{
    mem_free(l->slots);
    *l = (struct session_lru){0};
}

static void evict_above(struct session_lru *l, size_t n)
{
    while (l->n > n) {
        uint32_t oldest = l->slots[ring_end(l)].newer;

        ring_take_out(l, &l->slots[oldest]);
        free_slot(l, oldest);
        l->n--;
        l->evictions++;
    }
}

void session_lru_resize(struct session_lru *l, size_t max)
{
    assert(max >= 1 && max <= SESSION_LRU_MAX);
    l->max = max;
    evict_above(l, max);
}

/* Returns its slot. The new entry is in no ring yet. */
static uint32_t add_entry(struct session_lru *l, const struct session_key *key)
{
    uint32_t at;

    evict_above(l, l->max - 1);
    if (l->n > l->mask / 2)
        grow(l);
    at = slot_of(l, key);
    l->slots[at].key = *key;
    l->n++;
    return at;
}

const struct session_entry *session_lru_mark(struct session_lru *l, const struct session_key *key,
                                             uint64_t pod_id, int64_t now_us)
{
    uint32_t at = slot_of(l, key);
    struct session_entry *e;

    if (l->slots[at].completed != 0)
        ring_take_out(l, &l->slots[at]);
    else
        at = add_entry(l, key);
    ring_put_newest(l, at);
    e = &l->slots[at];
    e->completed = ++l->last_completed;
    e->completed_us = now_us;
    e->pod_id = pod_id;
    return e;
}

const struct session_entry *session_lru_find(const struct session_lru *l, const struct session_key *key)
{
    const struct session_entry *e = &l->slots[slot_of(l, key)];

    return e->completed == 0 ? NULL : e;
}
