/* htab: an intrusive hash table with chains and a hash seeded per process, so that clients cannot aim at one
 * bucket. It doubles when it is full; give the expected size to avoid growing (a growth moves every node at
 * once). Nodes belong to the caller. */
#ifndef HTAB_H
#define HTAB_H

#include "util.h"

struct htab_node {
    struct htab_node *next;
    uint64_t hash;
};

struct htab {
    struct htab_node **buckets;
    size_t n, mask;
};

/* True when the node holds the key. Called only for nodes of the same hash. */
typedef bool htab_eq_fn(const struct htab_node *node, const void *key);

/* SipHash-1-3 under the process's random key. */
uint64_t htab_hash(struct slice bytes);
/* For tests that need the same order in each run. */
void htab_seed(uint64_t k0, uint64_t k1);

void htab_init(struct htab *t, size_t expected);
/* Frees the buckets, not the nodes. */
void htab_free(struct htab *t);
/* The node, or NULL. */
struct htab_node *htab_find(const struct htab *t, uint64_t hash, htab_eq_fn *eq, const void *key);
/* The caller has checked that the key is not there. */
void htab_add(struct htab *t, struct htab_node *node, uint64_t hash);
/* The node must be in t. */
void htab_remove(struct htab *t, struct htab_node *node);
/* Calls fn for every node; fn may free the node, and must not change the table otherwise. */
void htab_each(struct htab *t, void (*fn)(struct htab_node *node, void *arg), void *arg);

#endif
