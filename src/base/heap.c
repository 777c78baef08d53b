/* heap: sifting. An entry is moved through a hole instead of being swapped at each step, and every move tells
 * the node its new place. */
#include "heap.h"
#include "mem.h"

#include <assert.h>

static void place(struct heap *h, size_t at, struct heap_entry e)
{
    h->entries[at] = e;
    e.node->at = (uint32_t)at;
}

static inline bool goes_before(const struct heap *h, struct heap_entry a, struct heap_entry b)
{
    if (a.key != b.key)
        return a.key < b.key;
    return h->before_when_equal != NULL && h->before_when_equal(a.node, b.node);
}

static void sift_up(struct heap *h, size_t at, struct heap_entry e)
{
    while (at > 1 && goes_before(h, e, h->entries[at / 2])) {
        place(h, at, h->entries[at / 2]);
        at /= 2;
    }
    place(h, at, e);
}

static void sift_down(struct heap *h, size_t at, struct heap_entry e)
{
    while (at * 2 <= h->n) {
        size_t child = at * 2;

        if (child < h->n && goes_before(h, h->entries[child + 1], h->entries[child]))
            child++;
        if (!goes_before(h, h->entries[child], e))
            break;
        place(h, at, h->entries[child]);
        at = child;
    }
    place(h, at, e);
}

/* Puts e into the hole at `at`, whichever way it has to go. */
static void settle(struct heap *h, size_t at, struct heap_entry e)
{
    if (at > 1 && goes_before(h, e, h->entries[at / 2]))
        sift_up(h, at, e);
    else
        sift_down(h, at, e);
}

void heap_free(struct heap *h)
{
    mem_free(h->entries);
    *h = (struct heap){0};
}

/* A table: two children lie in one cache line. */
static void grow(struct heap *h)
{
    struct heap_entry *old = h->entries;

    h->cap = h->cap > 0 ? h->cap * 2 : 16;
    h->entries = mem_table(h->cap * sizeof(h->entries[0]));
    if (h->n > 0)
        memcpy(h->entries + 1, old + 1, h->n * sizeof(h->entries[0]));
    mem_free(old);
}

void heap_push(struct heap *h, struct heap_node *node, uint64_t key)
{
    assert(node->at == 0 && h->n < UINT32_MAX);
    if (h->n + 1 >= h->cap)
        grow(h);
    h->n++;
    sift_up(h, h->n, (struct heap_entry){key, node});
}

void heap_remove(struct heap *h, struct heap_node *node)
{
    size_t at = node->at;
    struct heap_entry last = h->entries[h->n];

    assert(at >= 1 && at <= h->n && h->entries[at].node == node);
    h->n--;
    if (last.node != node)
        settle(h, at, last);
    node->at = 0;
}

void heap_rekey(struct heap *h, struct heap_node *node, uint64_t key)
{
    assert(node->at >= 1 && node->at <= h->n && h->entries[node->at].node == node);
    settle(h, node->at, (struct heap_entry){key, node});
}

void heap_replace(struct heap *h, struct heap_node *node, struct heap_node *by, uint64_t key)
{
    const size_t at = node->at;

    assert(at >= 1 && at <= h->n && h->entries[at].node == node && by->at == 0);
    node->at = 0;
    settle(h, at, (struct heap_entry){key, by});
}
