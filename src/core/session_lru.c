/* session_lru: a hash table of entries that also stand in a list by completion. It owns the entries and the
 * completion numbers, and nothing about who waits. */
#include "session_lru.h"
#include "mem.h"

#include <assert.h>

/* A large limit is a promise about the future: buckets for more than this many are made when they are needed.
 */
#define MAX_FIRST_BUCKETS ((size_t)1 << 20)

static struct session_entry *entry_of(struct htab_node *node)
{
    return CONTAINER_OF(node, struct session_entry, by_id);
}

static bool entry_is(const struct htab_node *node, const void *key)
{
    const struct session_entry *e = (const struct session_entry *)(const void *)node;
    const struct session_key *k = key;

    return slice_eq((struct slice){e->id, e->id_bytes}, k->id);
}

/* Two different ids of one length differ in a half, so both that half's hash and the whole one would have to
 * collide; the length is part of the digest. The first byte is one that no header value holds. */
static void make_digest(struct session_key *key, struct slice id)
{
    size_t half = id.n / 2;
    uint64_t words[4] = {key->hash, htab_hash((struct slice){id.p, half}),
                         htab_hash((struct slice){id.p + half, id.n - half}), id.n};

    key->digest[0] = '\0';
    memcpy(key->digest + 1, words, sizeof(words));
    key->id = (struct slice){key->digest, sizeof(key->digest)};
}

void session_lru_key(struct session_key *key, struct slice session)
{
    key->hash = htab_hash(session);
    key->id = session;
    if (session.n > SESSION_LRU_ID_BYTES)
        make_digest(key, session);
}

void session_lru_init(struct session_lru *l, size_t max)
{
    assert(max >= 1);
    *l = (struct session_lru){.max = max};
    htab_init(&l->by_id, max < MAX_FIRST_BUCKETS ? max : MAX_FIRST_BUCKETS);
    list_init(&l->by_completion);
}

static void drop_oldest(struct session_lru *l)
{
    struct session_entry *e = LIST_ITEM(l->by_completion.prev, struct session_entry, by_completion);

    list_del(&e->by_completion);
    htab_remove(&l->by_id, &e->by_id);
    mem_free(e);
    l->n--;
}

void session_lru_free(struct session_lru *l)
{
    while (l->n > 0)
        drop_oldest(l);
    htab_free(&l->by_id);
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
    struct session_entry *e = mem_alloc(sizeof(*e) + key->id.n);

    evict_above(l, l->max - 1);
    *e = (struct session_entry){.id_bytes = (uint32_t)key->id.n};
    if (key->id.n > 0)
        memcpy(e->id, key->id.p, key->id.n);
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
