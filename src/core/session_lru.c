/* session_lru: a hash table of entries that also stand in a list by completion. It owns the entries and the
 * completion numbers, and nothing about who waits. */
#include "session_lru.h"

#include <assert.h>

static struct session_entry *entry_of(struct htab_node *node)
{
    return CONTAINER_OF(node, struct session_entry, by_id);
}

static bool entry_is(const struct htab_node *node, const void *key)
{
    const struct session_entry *e = (const struct session_entry *)(const void *)node;
    const struct session_key *k = key;

    return e->check == k->check;
}

void session_lru_key(struct session_key *key, struct slice session)
{
    uint64_t hash[2];

    htab_hash128(session, hash);
    *key = (struct session_key){hash[0], hash[1]};
}

void session_lru_init(struct session_lru *l, size_t max)
{
    assert(max >= 1);
    *l = (struct session_lru){.max = max};
    htab_init(&l->by_id, 0);
    pool_init(&l->entries, sizeof(struct session_entry));
    list_init(&l->by_completion);
}

static void drop_oldest(struct session_lru *l)
{
    struct session_entry *e = LIST_ITEM(l->by_completion.prev, struct session_entry, by_completion);

    list_del(&e->by_completion);
    htab_remove(&l->by_id, &e->by_id);
    pool_put(&l->entries, e);
    l->n--;
}

void session_lru_free(struct session_lru *l)
{
    htab_free(&l->by_id);
    pool_free(&l->entries);
}

static void evict_above(struct session_lru *l, size_t n)
{
    while (l->n > n) {
        drop_oldest(l);
        l->evictions++;
    }
}

void session_lru_resize(struct session_lru *l, size_t max)
{
    assert(max >= 1);
    l->max = max;
    evict_above(l, max);
}

static struct session_entry *add_entry(struct session_lru *l, const struct session_key *key)
{
    struct session_entry *e;

    evict_above(l, l->max - 1);
    e = pool_get(&l->entries);
    *e = (struct session_entry){.check = key->check};
    list_init(&e->by_completion);
    htab_add(&l->by_id, &e->by_id, key->hash);
    l->n++;
    return e;
}

const struct session_entry *session_lru_mark(struct session_lru *l, const struct session_key *key,
                                             uint64_t pod_id, int64_t now_us)
{
    struct htab_node *node = htab_find(&l->by_id, key->hash, entry_is, key);
    struct session_entry *e = node != NULL ? entry_of(node) : add_entry(l, key);

    list_del(&e->by_completion);
    list_push_front(&l->by_completion, &e->by_completion);
    e->completed = ++l->last_completed;
    e->completed_us = now_us;
    e->pod_id = pod_id;
    return e;
}

const struct session_entry *session_lru_find(const struct session_lru *l, const struct session_key *key)
{
    struct htab_node *node = htab_find(&l->by_id, key->hash, entry_is, key);

    return node == NULL ? NULL : entry_of(node);
}
