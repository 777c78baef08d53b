/* The byte buffer against a plain array, its maximum, and that a full buffer is not moved for each byte. */
#include "buf.h"
#include "mem.h"

#include <stdio.h>

#include "test.h"

#define MAX_BYTES 1000

/* What the buffer must hold. */
static char model[MAX_BYTES];
static size_t model_len;

static void model_append(const char *p, size_t n)
{
    memcpy(model + model_len, p, n);
    model_len += n;
}

static void append_random(struct buf *b, struct test_random *r)
{
    char bytes[400];
    size_t n = test_random_below(r, sizeof(bytes));
    bool fits = model_len + n <= MAX_BYTES, done = false;
    char *at;

    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)test_random_next(r);
    if (test_random_below(r, 2) == 0) {
        done = buf_append(b, bytes, n);
    } else if ((at = buf_reserve(b, n)) != NULL) {
        memcpy(at, bytes, n);
        buf_commit(b, n);
        done = true;
    }
    assert_int_equal(done, fits);
    if (done)
        model_append(bytes, n);
}

static void printf_random(struct buf *b, struct test_random *r)
{
    char text[64];
    unsigned long long value = test_random_next(r) >> test_random_below(r, 64);
    size_t n = (size_t)snprintf(text, sizeof(text), "<%llu>", value);
    bool fits = model_len + n <= MAX_BYTES;

    assert_int_equal(buf_printf(b, "<%llu>", value), fits);
    if (fits)
        model_append(text, n);
}

static void consume_random(struct buf *b, struct test_random *r)
{
    size_t n = test_random_below(r, model_len + 1);

    buf_consume(b, n);
    model_len -= n;
    memmove(model, model + n, model_len);
}

static void test_random_program(void **state)
{
    struct test_random r = {5};
    struct buf b;

    (void)state;
    buf_init(&b, MAX_BYTES);
    for (int i = 0; i < 200000; i++) {
        switch (test_random_below(&r, 3)) {
        case 0:
            append_random(&b, &r);
            break;
        case 1:
            printf_random(&b, &r);
            break;
        default:
            consume_random(&b, &r);
        }
        assert_int_equal(b.len, model_len);
        assert_memory_equal(buf_slice(&b).p, model, model_len);
        assert_true(b.cap <= MAX_BYTES + MAX_BYTES / 4 + 1);
    }
    buf_free(&b);
}

static void test_maximum(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 4);
    assert_null(buf_reserve(&b, 5));
    assert_false(buf_append(&b, "12345", 5));
    assert_int_equal(b.len, 0);
    assert_true(buf_append(&b, "123", 3));
    assert_false(buf_printf(&b, "%s", "45"));
    assert_true(buf_printf(&b, "%d", 4));
    assert_false(buf_append_slice(&b, SLICE("5")));
    assert_true(slice_eq(buf_slice(&b), SLICE("1234")));
    assert_true(buf_append(&b, NULL, 0));
    assert_non_null(buf_reserve(&b, 0));
    assert_null(buf_reserve(&b, SIZE_MAX));
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_true(buf_append_slice(&b, SLICE("abcd")));
    buf_free(&b);
    buf_init(&b, SIZE_MAX);
    assert_true(buf_append_slice(&b, SLICE("no limit")));
    buf_free(&b);
}

static void test_gives_memory_back(void **state)
{
    struct buf b;
    char *big = mem_zalloc(100000);

    (void)state;
    buf_init(&b, 200000);
    assert_int_equal(buf_slice(&b).n, 0);
    assert_null(b.data); /* nothing yet */
    assert_true(buf_append(&b, big, 100));
    buf_consume(&b, 100);
    assert_non_null(b.data); /* a small one is kept */
    assert_int_equal(b.start, 0);
    assert_true(buf_append(&b, big, 100000));
    buf_consume(&b, 99999);
    assert_non_null(b.data);
    buf_consume(&b, 1);
    assert_null(b.data);
    assert_true(buf_append(&b, big, 100000));
    buf_free(&b);
    assert_int_equal(b.len, 0);
    assert_true(buf_append(&b, big, 1));
    buf_free(&b);
    mem_free(big);
}

/* One byte out, one byte in, at the maximum: the gap is closed once for many bytes. */
static void test_full_stream_is_linear(void **state)
{
    const size_t max_bytes = 1 << 20;
    struct buf b;
    size_t n_moves = 0, start = 0;

    (void)state;
    buf_init(&b, max_bytes);
    memset(buf_reserve(&b, max_bytes), 'x', max_bytes);
    buf_commit(&b, max_bytes);
    for (size_t i = 0; i < max_bytes; i++) {
        buf_consume(&b, 1);
        assert_true(buf_append(&b, "y", 1));
        n_moves += b.start <= start;
        start = b.start;
    }
    assert_true(n_moves <= 8);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_program),
        cmocka_unit_test(test_maximum),
        cmocka_unit_test(test_gives_memory_back),
        cmocka_unit_test(test_full_stream_is_linear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
