/* heap: an intrusive binary min-heap. The 64-bit key stands beside the pointer in one array, so that sifting
 * does not touch the nodes; a node knows its place, so that it can be removed or re-keyed in O(log n).
 * Keys need not be unique; equal keys come out in no particular order, unless the caller has one. Nodes
 * belong to the caller. */
#ifndef HEAP_H
#define HEAP_H

#include "util.h"

struct heap_node {
    uint32_t at; /* 1-based place in the array; 0 = in no heap */
};

struct heap_entry {
    uint64_t key;
    struct heap_node *node;
};

struct heap {
    struct heap_entry *entries; /* entries[0] is unused */
    size_t n, cap;              /* n <= UINT32_MAX */
    /* The order of equal keys, strict; NULL: none. When it changes for a node, heap_rekey it. */
    bool (*before_when_equal)(const struct heap_node *a, const struct heap_node *b);
};

/* A zeroed struct heap is an empty heap. Frees the array, not the nodes. */
void heap_free(struct heap *h);
void heap_push(struct heap *h, struct heap_node *node, uint64_t key);
/* The node must be in h. */
void heap_remove(struct heap *h, struct heap_node *node);
/* Gives a node that is in h another key. */
void heap_rekey(struct heap *h, struct heap_node *node, uint64_t key);
/* A node that is in no heap, with a key of its own, takes the place of one that is in h. */
void heap_replace(struct heap *h, struct heap_node *node, struct heap_node *by, uint64_t key);

static inline bool heap_has(const struct heap_node *node)
{
    return node->at != 0;
}

/* The node with the smallest key, or NULL. */
static inline struct heap_node *heap_min(const struct heap *h)
{
    return h->n == 0 ? NULL : h->entries[1].node;
}

/* Only for a heap that is not empty. */
static inline uint64_t heap_min_key(const struct heap *h)
{
    return h->entries[1].key;
}

#endif
