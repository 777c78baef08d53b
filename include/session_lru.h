/* session_lru: the sessions of one model whose last turn completed, most recently completed first, at most
 * SESSION_BOOST_MAX_SESSIONS of them. Only a completion changes the order; looking up does not. Knows no
 * queue.
 *
 * With a million sessions every line that is touched comes from memory. So an entry is one line and lies in
 * the hash table itself, in the first free slot from its hash on, with its neighbours in the order: looking
 * up reads one line in most cases, and nothing is read to find another. */
#ifndef SESSION_LRU_H
#define SESSION_LRU_H

#include "htab.h"

/* What stands for a session id, here and in the queue: its 128-bit hash under the process's secret key, as
 * short for an id of 60,000 bytes as for one of 10. Two ids of one key are not to be expected in the life of
 * all routers together, and nobody can search for them without the secret. */
struct session_key {
    uint64_t hash, check;
};

struct session_entry {
    _Alignas(64) struct session_key key;
    uint64_t completed;    /* completion number: larger = more recent, never used twice; 0 = a free slot */
    int64_t completed_us;  /* when */
    uint64_t pod_id;       /* the pod that served the last turn: its prefix is warm there */
    uint32_t newer, older; /* slots of the neighbours in the order of completion */
};

struct session_lru {
    /* mask + 1 slots of the table, and the ring's end behind them: its `older` is the newest entry. */
    struct session_entry *slots;
    uint32_t mask;
    size_t n, max;
    uint64_t last_completed;
    uint64_t evictions;
};

/* max >= 1, and at most SESSION_LRU_MAX. */
#define SESSION_LRU_MAX ((size_t)1 << 30)
void session_lru_init(struct session_lru *l, size_t max);
void session_lru_free(struct session_lru *l);
/* Follows a changed limit: evicts what is over it. */
void session_lru_resize(struct session_lru *l, size_t max);

void session_lru_key(struct session_key *key, struct slice session);
/* A turn of the session completed on the pod. Returns the entry, valid until the next mark. */
const struct session_entry *session_lru_mark(struct session_lru *l, const struct session_key *key,
                                             uint64_t pod_id, int64_t now_us);
/* The entry or NULL, valid until the next mark; changes nothing. */
const struct session_entry *session_lru_find(const struct session_lru *l, const struct session_key *key);
/* Whether the session whose last completion has that number, 0 for none, is still there: the oldest are
 * evicted first. */
static inline bool session_lru_keeps(const struct session_lru *l, uint64_t completed)
{
    return completed > 0 && completed >= l->slots[l->slots[l->mask + 1].newer].completed;
}
/* A look-up of the key follows soon: starts to load its line. */
static inline void session_lru_prefetch(const struct session_lru *l, const struct session_key *key)
{
    __builtin_prefetch(&l->slots[(uint32_t)key->hash & l->mask]);
}

#endif
