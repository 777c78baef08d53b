/* Pools: items do not overlap and keep their bytes while others come and go; what is given back is used
 * again; 64-byte items start at cache lines. */
#include "pool.h"

#include "test.h"

#define N_ITEMS 70000

static void fill(unsigned char *item, size_t item_bytes, size_t i)
{
    memset(item, (int)(i % 251), item_bytes);
}

static void check(const unsigned char *item, size_t item_bytes, size_t i)
{
    for (size_t k = 0; k < item_bytes; k++)
        assert_int_equal(item[k], i % 251);
}

static void run_program(size_t item_bytes)
{
    static unsigned char *items[N_ITEMS];
    struct test_random r = {item_bytes};
    struct pool p;

    memset(items, 0, sizeof(items));
    pool_init(&p, item_bytes);
    for (size_t step = 0; step < 3 * N_ITEMS; step++) {
        size_t i = test_random_below(&r, N_ITEMS);

        if (items[i] == NULL) {
            items[i] = pool_get(&p);
            fill(items[i], item_bytes, i);
        } else {
            check(items[i], item_bytes, i);
            pool_put(&p, items[i]);
            items[i] = NULL;
        }
    }
    for (size_t i = 0; i < N_ITEMS; i++) {
        if (items[i] != NULL)
            check(items[i], item_bytes, i);
    }
    pool_free(&p);
}

static void test_random_programs(void **state)
{
    (void)state;
    run_program(sizeof(void *));
    run_program(24);
    run_program(64);
    run_program(128);
}

static void test_given_back_is_next(void **state)
{
    struct pool p;
    void *a, *b;

    (void)state;
    pool_init(&p, 64);
    a = pool_get(&p);
    b = pool_get(&p);
    assert_int_equal((uintptr_t)a % 64, 0);
    assert_int_equal((uintptr_t)b % 64, 0);
    pool_put(&p, a);
    pool_put(&p, b);
    assert_ptr_equal(pool_get(&p), b);
    assert_ptr_equal(pool_get(&p), a);
    pool_free(&p);
    a = pool_get(&p); /* it is ready again */
    assert_non_null(a);
    pool_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_given_back_is_next),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
