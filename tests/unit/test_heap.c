/* The heap against a plain array: after every step of a random program both have the same smallest key, every
 * node is where it says, and each key is what was last given. */
#include "heap.h"

#include "test.h"

#define N_NODES 300
#define N_STEPS 200000

struct item {
    uint64_t key;
    bool in;
    struct heap_node node;
};

static struct item items[N_NODES];

static const struct item *model_min(void)
{
    const struct item *min = NULL;

    for (size_t i = 0; i < N_NODES; i++) {
        if (items[i].in && (min == NULL || items[i].key < min->key))
            min = &items[i];
    }
    return min;
}

static void check_top(const struct heap *h)
{
    const struct item *want = model_min();
    const struct item *top;

    if (want == NULL) {
        assert_null(heap_min(h));
        return;
    }
    top = CONTAINER_OF(heap_min(h), struct item, node);
    assert_int_equal(heap_min_key(h), want->key);
    assert_true(top->in);
    assert_int_equal(top->key, want->key);
}

static void check_all(const struct heap *h)
{
    size_t n = 0;

    for (size_t i = 0; i < N_NODES; i++) {
        assert_int_equal(heap_has(&items[i].node), items[i].in);
        n += items[i].in;
        if (items[i].in) {
            assert_ptr_equal(h->entries[items[i].node.at].node, &items[i].node);
            assert_int_equal(h->entries[items[i].node.at].key, items[i].key);
        }
    }
    assert_int_equal(h->n, n);
    for (size_t at = 2; at <= h->n; at++)
        assert_true(h->entries[at / 2].key <= h->entries[at].key);
}

/* Few different keys give many ties; the others use the whole range. */
static uint64_t random_key(struct test_random *r)
{
    return test_random_below(r, 2) == 0 ? test_random_below(r, 20) : test_random_next(r);
}

static void replace(struct heap *h, struct test_random *r, struct item *it)
{
    struct item *by = &items[test_random_below(r, N_NODES)];

    if (by->in)
        return;
    by->key = random_key(r);
    heap_replace(h, &it->node, &by->node, by->key);
    by->in = true;
    it->in = false;
}

static void step(struct heap *h, struct test_random *r)
{
    struct item *it = &items[test_random_below(r, N_NODES)];

    if (!it->in) {
        it->key = random_key(r);
        heap_push(h, &it->node, it->key);
        it->in = true;
    } else if (test_random_below(r, 2) == 0) {
        it->key = random_key(r);
        heap_rekey(h, &it->node, it->key);
    } else if (test_random_below(r, 3) == 0) {
        replace(h, r, it);
    } else {
        if (test_random_below(r, 2) == 0)
            it = CONTAINER_OF(heap_min(h), struct item, node);
        heap_remove(h, &it->node);
        it->in = false;
    }
}

static void test_random_program(void **state)
{
    struct heap h = {0};
    struct test_random r = {1};

    (void)state;
    for (int i = 0; i < N_STEPS; i++) {
        step(&h, &r);
        check_top(&h);
        if (i % 50 == 0)
            check_all(&h);
    }
    heap_free(&h);
    assert_int_equal(h.n, 0);
}

static void test_sorts(void **state)
{
    static struct item many[5000];
    struct heap h = {0};
    struct test_random r = {7};
    uint64_t last = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        heap_push(&h, &many[i].node, test_random_next(&r));
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        assert_true(heap_min_key(&h) >= last);
        last = heap_min_key(&h);
        heap_remove(&h, heap_min(&h));
    }
    assert_null(heap_min(&h));
    heap_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_program),
        cmocka_unit_test(test_sorts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
