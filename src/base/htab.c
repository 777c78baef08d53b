/* htab: chains, growth and the seeded hash. It owns the buckets and the process's hash key, not the nodes. */
#include "htab.h"
#include "mem.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <sys/random.h>

#define HTAB_MIN_BUCKETS 8

static uint64_t seed[2];
static bool seeded;

/* ---- SipHash-1-3: one round per word, three at the end ---- */

static uint64_t rotl(uint64_t x, unsigned int bits)
{
    return (x << bits) | (x >> (64 - bits));
}

/* Inlined by force: gcc leaves it a call otherwise, which costs a third of a short key's hash. */
__attribute__((always_inline)) static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] = rotl(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] = rotl(v[2], 32);
}

/* The first byte is the lowest, on every machine. n <= 8. */
static uint64_t load_le(const char *p, size_t n)
{
    uint64_t word = 0;

    if (n > 0)
        memcpy(&word, p, n);
    return le64toh(word);
}

static uint64_t sip_hash(struct slice s)
{
    uint64_t v[4] = {seed[0] ^ UINT64_C(0x736f6d6570736575), seed[1] ^ UINT64_C(0x646f72616e646f6d),
                     seed[0] ^ UINT64_C(0x6c7967656e657261), seed[1] ^ UINT64_C(0x7465646279746573)};
    const char *p = s.p;
    uint64_t word;

    for (size_t left = s.n; left >= 8; left -= 8, p += 8) {
        word = load_le(p, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = load_le(p, s.n % 8) | (uint64_t)s.n << 56;
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void htab_seed(uint64_t k0, uint64_t k1)
{
    seed[0] = k0;
    seed[1] = k1;
    seeded = true;
}

uint64_t htab_hash(struct slice bytes)
{
    if (!seeded) {
        if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
            abort(); /* 16 bytes are never cut short; without a secret key there is no service */
        seeded = true;
    }
    return sip_hash(bytes);
}

/* ---- the table ---- */

void htab_init(struct htab *t, size_t expected)
{
    size_t n_buckets = HTAB_MIN_BUCKETS;

    while (n_buckets < expected && n_buckets <= SIZE_MAX / 4)
        n_buckets *= 2;
    *t = (struct htab){.mask = n_buckets - 1};
    t->buckets = mem_array(NULL, n_buckets, sizeof(t->buckets[0]));
    memset(t->buckets, 0, n_buckets * sizeof(t->buckets[0]));
}

void htab_free(struct htab *t)
{
    mem_free(t->buckets);
    *t = (struct htab){0};
}

static void link_node(struct htab *t, struct htab_node *node)
{
    struct htab_node **bucket = &t->buckets[node->hash & t->mask];

    node->next = *bucket;
    *bucket = node;
}

static void grow(struct htab *t)
{
    struct htab old = *t;

    htab_init(t, (old.mask + 1) * 2);
    t->n = old.n;
    for (size_t i = 0; i <= old.mask; i++) {
        for (struct htab_node *node = old.buckets[i], *next; node != NULL; node = next) {
            next = node->next;
            link_node(t, node);
        }
    }
    htab_free(&old);
}

struct htab_node *htab_find(const struct htab *t, uint64_t hash, htab_eq_fn *eq, const void *key)
{
    struct htab_node *node = t->buckets[hash & t->mask];

    while (node != NULL && (node->hash != hash || !eq(node, key)))
        node = node->next;
    return node;
}

void htab_add(struct htab *t, struct htab_node *node, uint64_t hash)
{
    if (t->n > t->mask)
        grow(t);
    node->hash = hash;
    link_node(t, node);
    t->n++;
}

void htab_remove(struct htab *t, struct htab_node *node)
{
    struct htab_node **at = &t->buckets[node->hash & t->mask];

    while (*at != node) {
        assert(*at != NULL);
        at = &(*at)->next;
    }
    *at = node->next;
    node->next = NULL;
    t->n--;
}

void htab_each(struct htab *t, void (*fn)(struct htab_node *node, void *arg), void *arg)
{
    for (size_t i = 0; i <= t->mask; i++) {
        for (struct htab_node *node = t->buckets[i], *next; node != NULL; node = next) {
            next = node->next;
            fn(node, arg);
        }
    }
}
