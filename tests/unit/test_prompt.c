/* The text of a prompt and the estimate of its tokens, for each kind of body. */
#include "prompt.h"
#include "mem.h"
#include "openai.h"

#include "test.h"

static void append(struct slice text, bool escaped, void *arg)
{
    (void)escaped;
    assert_true(buf_append_slice(arg, text));
}

/* A copy with the spare bytes that openai_inspect asks for. Bodies need no model. */
static char *inspect(struct slice body, struct prompt_fields *fields)
{
    char *copy = mem_alloc(body.n + OPENAI_SPARE);
    struct openai_body b;

    memcpy(copy, body.p, body.n);
    (void)openai_inspect(copy, body.n, &b);
    *fields = b.prompt;
    return copy;
}

static int64_t tokens_of(struct slice body)
{
    struct prompt_fields f;
    char *copy = inspect(body, &f);
    const int64_t tokens = prompt_tokens(&f, copy + body.n);

    mem_free(copy);
    return tokens;
}

static void expect_text(const char *body, const char *text)
{
    struct prompt_fields f;
    char *copy = inspect(slice_of(body), &f);
    struct buf got;

    buf_init(&got, 100000);
    prompt_each(&f, copy + strlen(body), append, &got);
    assert_int_equal(got.len, strlen(text));
    assert_memory_equal(buf_slice(&got).p, text, got.len);
    buf_free(&got);
    mem_free(copy);
}

static void test_prompt(void **state)
{
    (void)state;
    expect_text("{\"prompt\":\"once\"}", "once");
    expect_text("{\"messages\":[{\"role\":\"user\",\"content\":\"m\"}],\"prompt\":\"first\"}", "first");
    expect_text("{\"prompt\":[\"a\",\"b\"]}", "");
    expect_text("{\"prompt\":\"x\",\"prompt\":\"last\"}", "last");
}

static void test_messages(void **state)
{
    (void)state;
    expect_text("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
                "<|im_start|>user\nhi<|im_end|>\n");
    expect_text("{\"system\":\"be kind\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}",
                "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n");
    expect_text("{\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[]}",
                "<|im_start|>system\ns<|im_end|>\n");
    expect_text(
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"image_url\",\"text\":\"no\"},{\"text\":\"b\"},{\"type\":\"input_text\",\"text\":\"c\"},"
        "{\"type\":\"output_text\",\"text\":\"d\"}]}]}",
        "<|im_start|>user\na\nb\nc\nd<|im_end|>\n");
    expect_text(
        "{\"messages\":[7,{\"content\":\"no role\"},{\"role\":1,\"content\":\"x\"},"
        "{\"role\":\"tool\"},{\"role\":\"user\",\"content\":null},{\"role\":\"user\",\"content\":[]}]}",
        "");
    expect_text("{\"messages\":\"text\"}", "");
}

static void test_input(void **state)
{
    (void)state;
    expect_text("{\"input\":\"hi\"}", "<|im_start|>user\nhi<|im_end|>\n");
    expect_text("{\"instructions\":\"do\",\"input\":[{\"role\":\"user\",\"content\":\"a\"},"
                "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
                "\"text\":\"b\"}]},"
                "{\"type\":\"\",\"role\":\"user\",\"content\":\"c\"},"
                "{\"type\":\"function_call\",\"role\":\"x\",\"content\":\"no\"},\"text\",[1,2]]}",
                "<|im_start|>developer\ndo<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
                "<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n");
    expect_text("{\"input\":7}", "");
}

static void test_tokens(void **state)
{
    (void)state;
    assert_int_equal(tokens_of(SLICE("{\"messages\":[{\"role\":\"user\",\"content\":\"hello world\"}]}")),
                     10);
    assert_int_equal(tokens_of(SLICE("{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}")), 9);
    assert_int_equal(tokens_of(SLICE("{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}")), 8);
    assert_int_equal(tokens_of(SLICE("{\"prompt\":\"\"}")), 0);
    assert_int_equal(tokens_of(SLICE("{\"prompt\":\"hello world\"}")), 3);
    assert_int_equal(tokens_of(SLICE("{\"prompt\":\"\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\"}")),
                     1);
    assert_int_equal(tokens_of(SLICE("{\"prompt\":\"\\u4f60\\u4f60\\u4f60\\u4f60\\n\"}")), 2);
    assert_int_equal(tokens_of(SLICE("{\"query\":\"q\",\"documents\":[\"d\"]}")), 0);
    assert_int_equal(tokens_of(SLICE("[1]")), 0);
    assert_int_equal(tokens_of(SLICE("")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_input),
        cmocka_unit_test(test_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
