/* prefix: hashes of prompts, and the blocks a pod knows.
 *
 * A chain is added from its last block to its first, so that of two blocks of a chain the earlier one was
 * always used later and is forgotten later: if a block is known, all before it are. That is what lets the end
 * of a match be found by halving. */
#include "prefix.h"
#include "mem.h"

struct entry {
    struct htab_node by_hash;
    struct list by_use;
};

/* ---- chains ---- */

struct hasher {
    struct prefix_chain *chain;
    uint64_t so_far;                /* the hash of the block before */
    char block[PREFIX_BLOCK_BYTES]; /* the beginning of one that came in pieces */
    size_t n;                       /* of it */
};

#define WORDS (PREFIX_BLOCK_BYTES / sizeof(uint64_t))

/* The process's own, made with the key of the hash table. */
static const uint64_t *secret(void)
{
    static uint64_t words[WORDS];

    for (uint64_t i = 0; words[WORDS - 1] == 0 && i < WORDS; i++)
        words[i] = htab_hash((struct slice){(const char *)&i, sizeof(i)}) | 1;
    return words;
}

static inline uint64_t word_at(const char *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof(word));
    return word;
}

__extension__ typedef unsigned __int128 wide_word;

/* The product of two words, its halves folded. */
static inline uint64_t fold(uint64_t a, uint64_t b)
{
    const wide_word product = (wide_word)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* A third of what htab_hash costs. Whoever does not know the secret meets another block's hash by chance
 * alone, and would win nothing but a worse choice of his pod. */
static uint64_t hash_block(const char *block, uint64_t before)
{
    const uint64_t *keys = secret();
    uint64_t sum = before;

    for (unsigned i = 0; i < WORDS; i += 2, block += 2 * sizeof(sum))
        sum += fold(word_at(block) ^ keys[i], (word_at(block + sizeof(sum)) ^ keys[i + 1]) + before);
    return fold(sum ^ keys[0], keys[1]);
}

static void end_block(struct hasher *h, const char *block)
{
    h->so_far = hash_block(block, h->so_far);
    h->chain->hashes[h->chain->n++] = h->so_far;
    h->n = 0;
}

/* What stands in one piece is hashed where it stands. Strings are taken as they are written: an escape makes
 * another prompt of it, and no wrong one. */
static void take_piece(struct slice text, bool escaped, void *arg)
{
    struct hasher *h = arg;

    (void)escaped;
    while (text.n > 0 && h->chain->n < PREFIX_BLOCKS_MAX) {
        const size_t room = PREFIX_BLOCK_BYTES - h->n, n = text.n < room ? text.n : room;

        if (n == PREFIX_BLOCK_BYTES) {
            end_block(h, text.p);
        } else {
            memcpy(h->block + h->n, text.p, n);
            h->n += n;
            if (n == room)
                end_block(h, h->block);
        }
        text.p += n;
        text.n -= n;
    }
}

struct prefix_chain *prefix_chain_of(const struct prompt_fields *prompt, const char *end)
{
    struct prefix_chain *c = mem_alloc(sizeof(*c) + PREFIX_BLOCKS_MAX * sizeof(c->hashes[0]));
    struct hasher h;

    h.chain = c;
    h.so_far = h.n = c->n = 0;
    prompt_each(prompt, end, take_piece, &h);
    if (h.n > 0) {
        memset(h.block + h.n, 0, sizeof(h.block) - h.n); /* no NUL stands in a string as it is */
        end_block(&h, h.block);
    }
    if (c->n > 0)
        return mem_realloc(c, sizeof(*c) + c->n * sizeof(c->hashes[0]));
    mem_free(c);
    return NULL;
}

/* ---- stores ---- */

void prefix_store_init(struct prefix_store *s, size_t max)
{
    *s = (struct prefix_store){.max = max};
    htab_init(&s->blocks, 0);
    pool_init(&s->entries, sizeof(struct entry));
    list_init(&s->by_use);
}

void prefix_store_free(struct prefix_store *s)
{
    htab_free(&s->blocks);
    pool_free(&s->entries);
}

/* The hash is the key. */
static bool is_block(const struct htab_node *node, const void *key)
{
    (void)node, (void)key;
    return true;
}

static void forget_oldest(struct prefix_store *s)
{
    struct entry *e = LIST_ITEM(s->by_use.prev, struct entry, by_use);

    list_del(&e->by_use);
    htab_remove(&s->blocks, &e->by_hash);
    pool_put(&s->entries, e);
    s->n--;
}

static struct entry *new_entry(struct prefix_store *s, uint64_t hash)
{
    struct entry *e;

    if (s->n == s->max)
        forget_oldest(s);
    e = pool_get(&s->entries);
    list_init(&e->by_use);
    htab_add(&s->blocks, &e->by_hash, hash);
    s->n++;
    return e;
}

void prefix_store_add(struct prefix_store *s, const struct prefix_chain *c)
{
    for (unsigned i = c->n; i > 0; i--) {
        struct htab_node *node = htab_find(&s->blocks, c->hashes[i - 1], is_block, NULL);
        struct entry *e =
            node != NULL ? CONTAINER_OF(node, struct entry, by_hash) : new_entry(s, c->hashes[i - 1]);

        list_del(&e->by_use);
        list_push_front(&s->by_use, &e->by_use);
    }
}

unsigned prefix_store_match(const struct prefix_store *s, const struct prefix_chain *c)
{
    unsigned known = 0, unknown = c->n + 1;

    while (known + 1 < unknown) {
        const unsigned middle = known + (unknown - known) / 2;

        if (htab_find(&s->blocks, c->hashes[middle - 1], is_block, NULL) != NULL)
            known = middle;
        else
            unknown = middle;
    }
    return known;
}
