/* session_lru: the sessions of one model whose last turn completed, most recently completed first, at most
 * SESSION_BOOST_MAX_SESSIONS of them. Only a completion changes the order; looking up does not. Knows no
 * queue. */
#ifndef SESSION_LRU_H
#define SESSION_LRU_H

#include "htab.h"
#include "list.h"
#include "pool.h"

/* What stands for a session id, here and in the queue: its 128-bit hash under the process's secret key, as
 * short for an id of 60,000 bytes as for one of 10. Two ids of one key are not to be expected in the life of
 * all routers together, and nobody can search for them without the secret. */
struct session_key {
    uint64_t hash, check;
};

/* One cache line. */
struct session_entry {
    _Alignas(64) struct htab_node by_id;
    uint64_t check; /* the key's; by_id has its hash */
    struct list by_completion;
    uint64_t completed;   /* completion number: larger = more recent; never 0, never used twice */
    int64_t completed_us; /* when */
    uint64_t pod_id;      /* the pod that served the last turn: its prefix is warm there */
};

struct session_lru {
    struct htab by_id;
    struct pool entries;
    struct list by_completion; /* front = most recent */
    size_t n, max;
    uint64_t last_completed;
    uint64_t evictions;
};

/* max >= 1. */
void session_lru_init(struct session_lru *l, size_t max);
void session_lru_free(struct session_lru *l);
/* Follows a changed limit: evicts what is over it. */
void session_lru_resize(struct session_lru *l, size_t max);

void session_lru_key(struct session_key *key, struct slice session);
/* A turn of the session completed on the pod. Returns the entry, valid until the next mark. */
const struct session_entry *session_lru_mark(struct session_lru *l, const struct session_key *key,
                                             uint64_t pod_id, int64_t now_us);
/* The entry or NULL; changes nothing. */
const struct session_entry *session_lru_find(const struct session_lru *l, const struct session_key *key);

#endif
