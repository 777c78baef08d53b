/* session_lru: the sessions of one model whose last turn completed, most recently completed first, at most
 * SESSION_BOOST_MAX_SESSIONS of them. Only a completion changes the order; looking up does not. Knows no
 * queue. */
#ifndef SESSION_LRU_H
#define SESSION_LRU_H

#include "htab.h"
#include "list.h"

/* Longer ids are stored as a digest of seeded hashes, so that an entry's size is bounded. */
#define SESSION_LRU_ID_BYTES     256
#define SESSION_LRU_DIGEST_BYTES 33

/* A session id made ready for look-ups, here and in the queue. `id` may point into the struct itself: do not
 * copy it. */
struct session_key {
    struct slice id; /* the id, or its digest; at most SESSION_LRU_ID_BYTES */
    uint64_t hash;   /* of `id` as the client gave it */
    char digest[SESSION_LRU_DIGEST_BYTES];
};

struct session_entry {
    struct htab_node by_id;
    struct list by_completion;
    uint64_t completed;   /* completion number: larger = more recent; never 0, never used twice */
    int64_t completed_us; /* when */
    uint64_t pod_id;      /* the pod that served the last turn: its prefix is warm there */
    uint32_t id_bytes;
    char id[]; /* the stored key */
};

struct session_lru {
    struct htab by_id;
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

/* Fills *key, which borrows the bytes of `session`. */
void session_lru_key(struct session_key *key, struct slice session);
/* A turn of the session completed on the pod. Returns the entry, valid until the next mark. */
const struct session_entry *session_lru_mark(struct session_lru *l, const struct session_key *key,
                                             uint64_t pod_id, int64_t now_us);
/* The entry or NULL; changes nothing. */
const struct session_entry *session_lru_find(const struct session_lru *l, const struct session_key *key);

#endif
