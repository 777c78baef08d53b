/* The hash table against an array of flags, also with few different hashes; the hash against what Python 3.11
 * computes for the same bytes and key (its hash of bytes is SipHash-1-3). */
#include "htab.h"
#include "mem.h"

#include "test.h"

#define N_KEYS  500
#define N_STEPS 200000

struct item {
    uint64_t key;
    bool in;
    struct htab_node node;
};

/* Of the key that is looked for: a node with another hash is not to be asked. */
static uint64_t wanted_hash;

static bool item_eq(const struct htab_node *node, const void *key)
{
    assert_true(node->hash == wanted_hash);
    return CONTAINER_OF(node, const struct item, node)->key == *(const uint64_t *)key;
}

static uint64_t hash_key(uint64_t key)
{
    return htab_hash((struct slice){(const char *)&key, sizeof(key)});
}

static void run_program(size_t expected, uint64_t hash_mask)
{
    static struct item items[N_KEYS];
    struct test_random r = {3};
    struct htab t;
    size_t n = 0;

    memset(items, 0, sizeof(items));
    htab_init(&t, expected);
    for (int i = 0; i < N_STEPS; i++) {
        uint64_t key = test_random_below(&r, N_KEYS), hash = hash_key(key) & hash_mask;
        struct item *it = &items[key];
        struct htab_node *found;

        wanted_hash = hash;
        found = htab_find(&t, hash, item_eq, &key);
        assert_ptr_equal(found, it->in ? &it->node : NULL);
        it->key = key;
        if (it->in)
            htab_remove(&t, &it->node), n--;
        else
            htab_add(&t, &it->node, hash), n++;
        it->in = !it->in;
        assert_int_equal(t.n, n);
    }
    htab_free(&t);
}

static void test_random_program(void **state)
{
    (void)state;
    run_program(0, UINT64_MAX);
    run_program(N_KEYS, UINT64_MAX);
}

static void test_equal_hashes(void **state)
{
    (void)state;
    run_program(0, 3);
    run_program(0, UINT64_MAX << 60); /* all of them meet at the table's start */
    run_program(0, UINT64_C(0x3f0));  /* and here at its end */
}

static void test_growth(void **state)
{
    struct item *items = mem_array(NULL, 10000, sizeof(*items));
    struct htab t;
    size_t mask;

    (void)state;
    htab_init(&t, 10000);
    mask = t.mask;
    for (size_t i = 0; i < 10000; i++) {
        items[i].key = i;
        htab_add(&t, &items[i].node, hash_key(i));
    }
    assert_int_equal(t.mask, mask); /* the expected size was enough */
    htab_free(&t);
    htab_init(&t, 0);
    for (size_t i = 0; i < 10000; i++)
        htab_add(&t, &items[i].node, hash_key(i));
    assert_int_equal(t.mask, 32767);
    for (uint64_t i = 0; i < 10000; i++) {
        wanted_hash = hash_key(i);
        assert_ptr_equal(htab_find(&t, wanted_hash, item_eq, &i), &items[i].node);
    }
    htab_free(&t);
    mem_free(items);
}

static void free_item(struct htab_node *node, void *arg)
{
    struct item *it = CONTAINER_OF(node, struct item, node);

    *(uint64_t *)arg += it->key;
    mem_free(it);
}

static void test_each_may_free(void **state)
{
    struct htab t;
    uint64_t sum = 0;

    (void)state;
    htab_init(&t, 0);
    for (uint64_t i = 1; i <= 1000; i++) {
        struct item *it = mem_zalloc(sizeof(*it));

        it->key = i;
        htab_add(&t, &it->node, i & 15); /* long chains */
    }
    htab_each(&t, free_item, &sum);
    assert_int_equal(sum, 500500);
    htab_free(&t);
}

static void test_hash_vectors(void **state)
{
    char bytes[16];

    (void)state;
    for (int i = 0; i < 16; i++)
        bytes[i] = (char)i;
    htab_seed(UINT64_C(0x0000000000000000), UINT64_C(0x0000000000000000));
    assert_true(htab_hash((struct slice){bytes, 1}) == UINT64_C(0x68a914128e01e473));
    assert_true(htab_hash((struct slice){bytes, 7}) == UINT64_C(0x2f098ab0c751325a));
    assert_true(htab_hash((struct slice){bytes, 8}) == UINT64_C(0xead411e67ebe2eea));
    assert_true(htab_hash((struct slice){bytes, 9}) == UINT64_C(0x75927f9d95124362));
    assert_true(htab_hash((struct slice){bytes, 15}) == UINT64_C(0xf30eb725bb91c9ea));
    assert_true(htab_hash((struct slice){bytes, 16}) == UINT64_C(0x8972188433a5c5b7));
    htab_seed(UINT64_C(0x25556dc46dc3dca0), UINT64_C(0xfc3ee4dbd06f6c90));
    assert_true(htab_hash((struct slice){bytes, 1}) == UINT64_C(0xddb5fc492fbdf63a));
    assert_true(htab_hash((struct slice){bytes, 7}) == UINT64_C(0x831edfe12fee6ffd));
    assert_true(htab_hash((struct slice){bytes, 8}) == UINT64_C(0x354edb093928c942));
    assert_true(htab_hash((struct slice){bytes, 9}) == UINT64_C(0x09a5e47bf18abecc));
    assert_true(htab_hash((struct slice){bytes, 15}) == UINT64_C(0xbe8dc664d017b99e));
    assert_true(htab_hash((struct slice){bytes, 16}) == UINT64_C(0x2e932605ea370595));
    htab_seed(1, 2);
    assert_int_not_equal(htab_hash(SLICE("abc")), htab_hash(SLICE("abd")));
}

/* What OpenSSL 3.0 computes (openssl mac, SIPHASH with c-rounds:1, d-rounds:3, size:16). */
static void test_hash128_vectors(void **state)
{
    static const struct {
        size_t n;
        uint64_t hash[2];
    } wanted[] = {
        {1, {UINT64_C(0xbfb46889313de014), UINT64_C(0x4183f3703007a62e)}},
        {7, {UINT64_C(0xf948acffd7726749), UINT64_C(0x8e412ff2ff117b6e)}},
        {8, {UINT64_C(0x1765019c86d7fee7), UINT64_C(0x23b1e9fd4c0788bb)}},
        {16, {UINT64_C(0x47c5f842228a717b), UINT64_C(0x26bfd0a3e8e65f2c)}},
    };
    char bytes[16];

    (void)state;
    for (int i = 0; i < 16; i++)
        bytes[i] = (char)i;
    htab_seed(UINT64_C(0x25556dc46dc3dca0), UINT64_C(0xfc3ee4dbd06f6c90));
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        uint64_t hash[2];

        htab_hash128((struct slice){bytes, wanted[i].n}, &hash[0], &hash[1]);
        assert_true(hash[0] == wanted[i].hash[0] && hash[1] == wanted[i].hash[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_program), cmocka_unit_test(test_equal_hashes),
        cmocka_unit_test(test_growth),         cmocka_unit_test(test_each_may_free),
        cmocka_unit_test(test_hash_vectors),   cmocka_unit_test(test_hash128_vectors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
