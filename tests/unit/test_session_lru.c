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

/* Ids that differ in one byte, or only in length, stay apart. */
static void test_ids_of_any_length_are_kept_apart(void **state)
{
    static char id[70000];
    static const size_t lengths[] = {1, 36, 37, 256, 257, 60000, 70000};
    struct session_lru l;

    (void)state;
    memset(id, 'x', sizeof(id));
    session_lru_init(&l, 100);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        struct slice s = {id, lengths[i]};
        struct session_key key;

        session_lru_key(&key, s);
        assert_null(find(&l, s));
        (void)session_lru_mark(&l, &key, 1, 0);
        assert_non_null(find(&l, s));
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

static void test_both_halves_of_a_key_count(void **state)
{
    static const struct session_key keys[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}};
    struct session_lru l;

    (void)state;
    session_lru_init(&l, 100);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        assert_null(session_lru_find(&l, &keys[i]));
        (void)session_lru_mark(&l, &keys[i], i, 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        assert_int_equal(session_lru_find(&l, &keys[i])->pod_id, i);
    session_lru_free(&l);
}

/* More than one of the pool's chunks, many times over: entries are used again. */
static void test_many_sessions_come_and_go(void **state)
{
    struct session_lru l;

    (void)state;
    session_lru_init(&l, 1000);
    for (uint64_t i = 1; i <= 20000; i++) {
        const struct session_key new = {i * 64, i}, oldest = {(i - 999) * 64, i - 999},
                                 gone = {(i - 1000) * 64, i - 1000};

        (void)session_lru_mark(&l, &new, i, 0);
        if (i <= 1000)
            continue;
        assert_int_equal(session_lru_find(&l, &oldest)->pod_id, i - 999);
        assert_null(session_lru_find(&l, &gone));
    }
    assert_int_equal(l.evictions, 19000);
    assert_true(l.mask < 4096); /* the table did not grow for the last 19,000 */
    session_lru_free(&l);
}

/* ---- against a plain array ---- */

struct naive {
    uint64_t completed[MAX_NAIVE]; /* 0 = not tracked */
    uint64_t once[MAX_NAIVE];      /* the number that it had last, tracked or not; 0 = never completed */
    uint64_t last, evictions;
};

static void naive_mark(struct naive *n, size_t session, size_t max)
{
    size_t count = 0, oldest = MAX_NAIVE;

    n->completed[session] = n->once[session] = ++n->last;
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
        assert_int_equal(session_lru_keeps(l, n->once[i]), e != NULL);
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
        cmocka_unit_test(test_ids_of_any_length_are_kept_apart),
        cmocka_unit_test(test_both_halves_of_a_key_count),
        cmocka_unit_test(test_many_sessions_come_and_go),
        cmocka_unit_test(test_random_programs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
