/* htab: a hash table of the caller's nodes, with a hash seeded per process, so that clients cannot aim at one
 * place. A slot holds the hash beside the pointer and a node lies in the first free slot from its hash on, so
 * that a look-up touches one cache line of slots and no node but the one it finds. It doubles when half of
 * the slots are taken (a processor cannot guess the length of look-ups in fuller ones); give the expected
 * size to avoid growing (a growth moves every slot at once). */
#ifndef HTAB_H
#define HTAB_H

#include "util.h"

struct htab_node {
    uint64_t hash;
};

struct htab_slot {
    uint64_t hash;
    struct htab_node *node; /* NULL: free */
};

struct htab {
    struct htab_slot *slots;
    size_t n, mask;
};

/* True when the node holds the key. Called only for nodes of the same hash. */
typedef bool htab_eq_fn(const struct htab_node *node, const void *key);

/* SipHash-1-3 under the process's random key. */
uint64_t htab_hash(struct slice bytes);
/* 128 bits of it, for keys that are kept instead of the bytes: *hash alone serves as the table's hash. */
void htab_hash128(struct slice bytes, uint64_t *hash, uint64_t *check);
/* For tests that need the same order in each run. */
void htab_seed(uint64_t k0, uint64_t k1);

void htab_init(struct htab *t, size_t expected);
/* Frees the slots, not the nodes. */
void htab_free(struct htab *t);
/* A look-up of the hash follows soon: starts to load its line. */
static inline void htab_prefetch(const struct htab *t, uint64_t hash)
{
    __builtin_prefetch(&t->slots[hash & t->mask]);
}
/* The node, or NULL. */
struct htab_node *htab_find(const struct htab *t, uint64_t hash, htab_eq_fn *eq, const void *key);
/* The caller has checked that the key is not there. */
void htab_add(struct htab *t, struct htab_node *node, uint64_t hash);
/* The node must be in t. */
void htab_remove(struct htab *t, struct htab_node *node);
/* Calls fn for every node; fn may free the node, and must not change the table otherwise. */
void htab_each(struct htab *t, void (*fn)(struct htab_node *node, void *arg), void *arg);

#endif
