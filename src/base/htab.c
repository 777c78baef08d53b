/* htab: slots, growth and the seeded hash. It owns the slots and the process's hash key, not the nodes. */
#include "htab.h"
#include "mem.h"

#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include <sys/random.h>

#define HTAB_MIN_SLOTS 8

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

/* The first byte is the lowest, on every machine. */
static uint64_t load_le(const char *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof(word));
    return le64toh(word);
}

/* The last bytes, fewer than 8, below the length; read together with those before them where there are. */
static inline uint64_t last_word(struct slice s)
{
    const size_t n = s.n % 8;
    uint64_t word = (uint64_t)s.n << 56;

    if (n > 0 && s.n >= 8)
        return word | load_le(s.p + s.n - 8) >> (64 - 8 * n);
    for (size_t i = 0; i < n; i++)
        word |= (uint64_t)(unsigned char)s.p[s.n - n + i] << (8 * i);
    return word;
}

/* The state after all bytes; `variant` is mixed in at first. */
__attribute__((always_inline)) static inline void sip_start(uint64_t v[4], struct slice s, uint64_t variant)
{
    const char *p = s.p;
    uint64_t word;

    v[0] = seed[0] ^ UINT64_C(0x736f6d6570736575);
    v[1] = seed[1] ^ UINT64_C(0x646f72616e646f6d) ^ variant;
    v[2] = seed[0] ^ UINT64_C(0x6c7967656e657261);
    v[3] = seed[1] ^ UINT64_C(0x7465646279746573);
    for (size_t left = s.n; left >= 8; left -= 8, p += 8) {
        word = load_le(p);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = last_word(s);
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

__attribute__((always_inline)) static inline uint64_t sip_end(uint64_t v[4])
{
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void htab_seed(uint64_t k0, uint64_t k1)
{
    seed[0] = k0;
    seed[1] = k1;
    seeded = true;
}

static void need_seed(void)
{
    if (seeded)
        return;
    if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        abort(); /* 16 bytes are never cut short; without a secret key there is no service */
    seeded = true;
}

uint64_t htab_hash(struct slice bytes)
{
    uint64_t v[4];

    need_seed();
    sip_start(v, bytes, 0);
    v[2] ^= 0xff;
    return sip_end(v);
}

void htab_hash128(struct slice bytes, uint64_t *hash, uint64_t *check)
{
    uint64_t v[4];

    need_seed();
    sip_start(v, bytes, 0xee);
    v[2] ^= 0xee;
    *hash = sip_end(v);
    v[1] ^= 0xdd;
    *check = sip_end(v);
}

/* ---- the table ---- */

void htab_init(struct htab *t, size_t expected)
{
    size_t n_slots = HTAB_MIN_SLOTS;

    while (n_slots / 2 < expected && n_slots <= SIZE_MAX / 4 / sizeof(t->slots[0]))
        n_slots *= 2;
    *t = (struct htab){.mask = n_slots - 1};
    t->slots = mem_table(n_slots * sizeof(t->slots[0]));
    memset(t->slots, 0, n_slots * sizeof(t->slots[0]));
}

void htab_free(struct htab *t)
{
    mem_free(t->slots);
    *t = (struct htab){0};
}

/* Into the first free slot from its hash on. */
static void put(struct htab *t, struct htab_slot slot)
{
    size_t at = slot.hash & t->mask;

    while (t->slots[at].node != NULL)
        at = (at + 1) & t->mask;
    t->slots[at] = slot;
}

static void grow(struct htab *t)
{
    struct htab old = *t;

    htab_init(t, (old.mask + 1) / 2 + 1);
    t->n = old.n;
    for (size_t at = 0; at <= old.mask; at++) {
        if (old.slots[at].node != NULL)
            put(t, old.slots[at]);
    }
    htab_free(&old);
}

struct htab_node *htab_find(const struct htab *t, uint64_t hash, htab_eq_fn *eq, const void *key)
{
    const struct htab_slot *slot;

    for (size_t at = hash & t->mask; (slot = &t->slots[at])->node != NULL; at = (at + 1) & t->mask) {
        if (slot->hash == hash && eq(slot->node, key))
            break;
    }
    return slot->node;
}

void htab_add(struct htab *t, struct htab_node *node, uint64_t hash)
{
    if (t->n >= (t->mask + 1) / 2)
        grow(t);
    node->hash = hash;
    put(t, (struct htab_slot){hash, node});
    t->n++;
}

/* Closes the gap at `at`: what follows without a free slot between moves up, unless it would pass the place
 * of its hash. */
static void close_gap(struct htab *t, size_t at)
{
    for (size_t from = (at + 1) & t->mask; t->slots[from].node != NULL; from = (from + 1) & t->mask) {
        size_t moved = (from - t->slots[from].hash) & t->mask;

        if (moved < ((from - at) & t->mask))
            continue;
        t->slots[at] = t->slots[from];
        at = from;
    }
    t->slots[at].node = NULL;
}

void htab_remove(struct htab *t, struct htab_node *node)
{
    size_t at = node->hash & t->mask;

    while (t->slots[at].node != node) {
        assert(t->slots[at].node != NULL);
        at = (at + 1) & t->mask;
    }
    close_gap(t, at);
    t->n--;
}

void htab_each(struct htab *t, void (*fn)(struct htab_node *node, void *arg), void *arg)
{
    for (size_t at = 0; at <= t->mask; at++) {
        if (t->slots[at].node != NULL)
            fn(t->slots[at].node, arg);
    }
}
