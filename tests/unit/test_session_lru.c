/* The tracker of completed sessions: order, eviction, numbers, long ids; and random programs against a plain
 * array. */
#include "session_lru.h"

#include "test.h"

#include <stdio.h>

#define MAX_NAIVE 16

static const struct session_entry *mark(struct session_lru *l, const char *id, uint64_t pod_id)
{
    struct session_key key;

    session_lru_key(&key, slice_of(id));
    return session_lru_mark(l, &key, pod_id, 7);
}

static const struct session_entry *find(const struct session_lru *l, struct slice id)
{
    struct session_key key;

    session_lru_key(&key, id);
    return session_lru_find(l, &key);
}

static bool has(const struct session_lru *l, const char *id)
{
    return find(l, slice_of(id)) != NULL;
}

static void test_a_completion_is_remembered(void **state)
{
    struct session_lru l;

    (void)state;
    session_lru_init(&l, 2);
    assert_false(has(&l, "a"));
    (void)mark(&l, "a", 5);
    assert_int_equal(find(&l, SLICE("a"))->pod_id, 5);
    assert_int_equal(find(&l, SLICE("a"))->completed_us, 7);
    assert_int_equal(l.n, 1);
    session_lru_free(&l);
}

/* UPSTREAM scenario 4. */
static void test_completing_again_keeps_a_session(void **state)
{
    struct session_lru l;

    (void)state;
    session_lru_init(&l, 2);
    (void)mark(&l, "a", 1);
    (void)mark(&l, "b", 1);
    (void)mark(&l, "a", 1);
    (void)mark(&l, "c", 1);
    assert_true(has(&l, "a"));
    assert_false(has(&l, "b"));
    assert_true(has(&l, "c"));
    assert_int_equal(l.n, 2);
    assert_int_equal(l.evictions, 1);
    session_lru_free(&l);
}

static void test_looking_up_does_not_keep_a_session(void **state)
{
    struct session_lru l;

    (void)state;
    session_lru_init(&l, 2);
    (void)mark(&l, "a", 1);
    (void)mark(&l, "b", 1);
    assert_true(has(&l, "a"));
    (void)mark(&l, "c", 1);
    assert_false(has(&l, "a"));
    assert_true(has(&l, "b"));
    session_lru_free(&l);
}

static void test_every_completion_has_a_larger_number(void **state)
{
    struct session_lru l;
    uint64_t a, b;

    (void)state;
    session_lru_init(&l, 2);
    a = mark(&l, "a", 1)->completed;
    b = mark(&l, "b", 1)->completed;
    assert_true(0 < a && a < b);
    assert_true(mark(&l, "a", 2)->completed > b);
    assert_int_equal(find(&l, SLICE("a"))->pod_id, 2);
    session_lru_free(&l);
}

static void test_a_smaller_limit_evicts_the_oldest(void **state)
{
    struct session_lru l;

    (void)state;
    session_lru_init(&l, 3);
    (void)mark(&l, "a", 1);
    (void)mark(&l, "b", 1);
    (void)mark(&l, "c", 1);
    session_lru_resize(&l, 1);
    assert_int_equal(l.n, 1);
    assert_true(has(&l, "c"));
    assert_int_equal(l.evictions, 2);
    session_lru_resize(&l, 2);
    (void)mark(&l, "d", 1);
    assert_true(has(&l, "c"));
    session_lru_free(&l);
}

/* 256 bytes are stored as they are, 257 as a digest; ids that differ in one byte, or only in length, stay
 * apart. */
static void test_long_ids_are_stored_small_and_kept_apart(void **state)
{
    static char id[70000];
    static const size_t lengths[] = {255, 256, 257, 258, 60000, 70000};
    struct session_lru l;
    struct session_key key;

    (void)state;
    memset(id, 'x', sizeof(id));
    session_lru_init(&l, 100);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        struct slice s = {id, lengths[i]};

        assert_null(find(&l, s));
        session_lru_key(&key, s);
        (void)session_lru_mark(&l, &key, 1, 0);
        assert_int_equal(find(&l, s)->id_bytes,
                         lengths[i] <= SESSION_LRU_ID_BYTES ? lengths[i] : SESSION_LRU_DIGEST_BYTES);
        id[lengths[i] - 1] = 'y';
        assert_null(find(&l, s));
        id[lengths[i] - 1] = 'x';
        id[0] = 'y';
        assert_null(find(&l, s));
        id[0] = 'x';
    }
    assert_int_equal(l.n, ARRAY_LEN(lengths));
    session_lru_free(&l);
}

/* ---- against a plain array ---- */

struct naive {
    uint64_t completed[MAX_NAIVE]; /* 0 = not tracked */
    uint64_t last, evictions;
};

static void naive_mark(struct naive *n, size_t session, size_t max)
{
    size_t count = 0, oldest = MAX_NAIVE;

    n->completed[session] = ++n->last;
    for (size_t i = 0; i < MAX_NAIVE; i++) {
        if (n->completed[i] == 0)
            continue;
        count++;
        if (oldest == MAX_NAIVE || n->completed[i] < n->completed[oldest])
            oldest = i;
    }
    if (count > max) {
        n->completed[oldest] = 0;
        n->evictions++;
    }
}

static void check_same(const struct session_lru *l, const struct naive *n)
{
    size_t count = 0;

    for (size_t i = 0; i < MAX_NAIVE; i++) {
        const struct session_entry *e = find(l, (struct slice){&"0123456789abcdef"[i], 1});

        assert_int_equal(e == NULL ? 0 : e->completed, n->completed[i]);
        count += n->completed[i] != 0;
    }
    assert_int_equal(l->n, count);
    assert_int_equal(l->evictions, n->evictions);
}

static void test_random_programs(void **state)
{
    struct test_random r = {42};

    (void)state;
    for (size_t max = 1; max <= MAX_NAIVE + 1; max++) {
        struct naive n = {.last = 0};
        struct session_lru l;

        session_lru_init(&l, max);
        for (int step = 0; step < 3000; step++) {
            size_t session = test_random_below(&r, MAX_NAIVE);
            struct session_key key;

            session_lru_key(&key, (struct slice){&"0123456789abcdef"[session], 1});
            (void)session_lru_mark(&l, &key, 1, step);
            naive_mark(&n, session, max);
            check_same(&l, &n);
        }
        session_lru_free(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_completion_is_remembered),
        cmocka_unit_test(test_completing_again_keeps_a_session),
        cmocka_unit_test(test_looking_up_does_not_keep_a_session),
        cmocka_unit_test(test_every_completion_has_a_larger_number),
        cmocka_unit_test(test_a_smaller_limit_evicts_the_oldest),
        cmocka_unit_test(test_long_ids_are_stored_small_and_kept_apart),
        cmocka_unit_test(test_random_programs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
