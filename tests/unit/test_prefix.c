/* Prefixes: chains of prompts, what a store knows of them, and its bound; against a naive store. */
#include "prefix.h"
#include "buf.h"
#include "mem.h"
#include "openai.h"
#include "test.h"

/* {"prompt":TEXT}, TEXT of n bytes that begins with `same` bytes of one letter and goes on with another. */
static struct prefix_chain *chain_of(size_t n, size_t same, char other)
{
    char *body = mem_alloc(n + 16), *text = body + 11;
    struct prefix_chain *c;

    memcpy(body, "{\"prompt\":\"", 11);
    memset(text, 'a', same);
    memset(text + same, other, n - same);
    memcpy(text + n, "\"}", 2);
    c = prefix_chain_of(&(struct prompt_fields){.prompt = body + 10}, body + n + 13);
    mem_free(body);
    return c;
}

static struct prefix_chain *chain(const char *body)
{
    const size_t n = strlen(body);
    char *copy = mem_alloc(n + OPENAI_SPARE);
    struct prefix_chain *c;
    struct openai_body b;

    memcpy(copy, body, n);
    (void)openai_inspect(copy, n, &b);
    c = prefix_chain_of(&b.prompt, copy + n);
    mem_free(copy);
    return c;
}

static void test_chains(void **state)
{
    struct prefix_chain *a = chain_of(300, 300, 'a'), *b = chain_of(300, 130, 'b'),
                        *c = chain_of(129, 129, 'a');
    struct prefix_chain *large = chain_of(20000, 20000, 'a');

    (void)state;
    assert_int_equal(a->n, 5); /* of 64 bytes, the last one of 44 */
    assert_memory_equal(a->hashes, b->hashes, 2 * sizeof(a->hashes[0]));
    for (size_t i = 2; i < 5; i++)
        assert_true(a->hashes[i] != b->hashes[i]);
    assert_int_equal(c->n, 3);
    assert_true(c->hashes[2] != a->hashes[2]); /* a short block is another one */
    assert_true(a->hashes[0] != a->hashes[1]); /* the same text at another place */
    assert_int_equal(large->n, PREFIX_BLOCKS_MAX);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(large);
}

static void test_where_prompts_are(void **state)
{
    static const char *const none[] = {"{}", "{\"model\":\"m\"}", "{\"prompt\":\"\"}", "[]", ""};
    struct prefix_chain *one =
        chain("{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"model\":\"m\"}");
    struct prefix_chain *two =
        chain("{\"model\":\"n\",\"stream\":true,\"messages\":[{\"content\":\"hello\",\"role\":\"user\"}]}");
    struct prefix_chain *other = chain("{\"messages\":[{\"role\":\"user\",\"content\":\"hellO\"}]}");

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(none); i++)
        assert_null(chain(none[i]));
    assert_int_equal(one->n, 1);
    assert_true(one->hashes[0] == two->hashes[0]);
    assert_true(one->hashes[0] != other->hashes[0]);
    mem_free(one);
    mem_free(two);
    mem_free(other);
}

static void test_matches(void **state)
{
    struct prefix_store s;
    struct prefix_chain *a = chain_of(640, 640, 'a'), *b = chain_of(640, 320, 'b'),
                        *c = chain_of(640, 0, 'c');
    struct prefix_chain *longer = chain_of(1280, 1280, 'a');

    (void)state;
    prefix_store_init(&s, 1000);
    assert_int_equal(prefix_store_match(&s, a), 0);
    prefix_store_add(&s, a);
    assert_int_equal(s.n, 10);
    assert_int_equal(prefix_store_match(&s, a), 10);
    assert_int_equal(prefix_store_match(&s, b), 5);
    assert_int_equal(prefix_store_match(&s, c), 0);
    assert_int_equal(prefix_store_match(&s, longer), 10);
    prefix_store_add(&s, longer);
    prefix_store_add(&s, a);
    assert_int_equal(s.n, 20);
    assert_int_equal(prefix_store_match(&s, longer), 20);
    prefix_store_free(&s);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(longer);
}

/* Every match as a walk from the front finds it, whatever has been forgotten. */
static unsigned walk(const struct prefix_store *s, struct prefix_chain *c)
{
    const unsigned n = c->n;
    unsigned known = 0;

    for (c->n = 1; c->n <= n && prefix_store_match(s, c) == c->n; c->n++)
        known = c->n;
    c->n = n;
    return known;
}

static void test_forgets_what_was_used_longest_ago(void **state)
{
    struct prefix_store s;
    struct prefix_chain *chains[40];
    uint64_t dice = 3;

    (void)state;
    prefix_store_init(&s, 150);
    for (size_t i = 0; i < ARRAY_LEN(chains); i++)
        chains[i] = chain_of(64 * (1 + i), 32 * (i % 20), (char)('b' + i % 7));
    for (int step = 0; step < 5000; step++) {
        struct prefix_chain *c;

        dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407U;
        c = chains[(dice >> 33) % ARRAY_LEN(chains)];
        if ((dice >> 60) % 2 == 0) {
            prefix_store_add(&s, c);
            assert_int_equal(prefix_store_match(&s, c), c->n);
            assert_true(s.n <= 150 && s.blocks.n == s.n);
        } else {
            assert_int_equal(prefix_store_match(&s, c), walk(&s, c));
        }
    }
    assert_int_equal(s.n, 150);
    prefix_store_free(&s);
    for (size_t i = 0; i < ARRAY_LEN(chains); i++)
        mem_free(chains[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_where_prompts_are),
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_forgets_what_was_used_longest_ago),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
