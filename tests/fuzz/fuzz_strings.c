/* JSON bodies made from the input, which is a program: runs of text, escapes, pairs and decoys at any
 * distance, so that each path through the scan of strings is met at each place of its blocks. What must hold:
 * the model's name comes out as it was put in, decoys are none, and a spoiled string is an error. */
#include "openai.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_strings: %s\n", what);
    abort();
}

struct program {
    struct buf body, name;
    bool spoiled;
};

static void put(struct buf *b, const char *text, size_t n)
{
    require(buf_append(b, text, n), "memory");
}

static void put_text(struct buf *b, const char *text)
{
    put(b, text, strlen(text));
}

/* One step of a string; what it means goes to `means`, when that is asked for. */
static void put_step(struct program *p, uint8_t kind, uint8_t n, struct buf *means)
{
    static const struct {
        const char *written, *means;
    } steps[] = {{"\\\"", "\""},
                 {"\\\\", "\\"},
                 {"\\/", "/"},
                 {"\\n", "\n"},
                 {"\\t", "\t"},
                 {"\\u0041", "A"},
                 {"\\u00e9", "\xc3\xa9"},
                 {"\\uFFfd", "\xef\xbf\xbd"},
                 {"\\ud83d\\ude00", "\xf0\x9f\x98\x80"},
                 {"\xc3\xa9", "\xc3\xa9"},
                 {"\xe2\x82\xac", "\xe2\x82\xac"},
                 {"}", "}"},
                 {"]", "]"},
                 {",", ","},
                 {":", ":"},
                 {"{[", "{["},
                 {"\\\\\\\"", "\\\""},
                 {"\x7f", "\x7f"}};
    static const char *const bad[] = {"\n", "\x01", "\\x", "\\u12g4", "\\ ", "\\u00q"};

    if (kind < 128) {
        const char letter = (char)('a' + (kind & 15));

        for (uint8_t i = 0; i <= n % 70; i++) {
            put(&p->body, &letter, 1);
            if (means != NULL)
                put(means, &letter, 1);
        }
    } else if (kind < 250) {
        put_text(&p->body, steps[n % ARRAY_LEN(steps)].written);
        if (means != NULL)
            put_text(means, steps[n % ARRAY_LEN(steps)].means);
    } else {
        put_text(&p->body, bad[n % ARRAY_LEN(bad)]);
        p->spoiled = true;
    }
}

static const uint8_t *put_string(struct program *p, const uint8_t *at, const uint8_t *end, struct buf *means)
{
    put_text(&p->body, "\"");
    for (; at + 1 < end && at[0] != 0; at += 2)
        put_step(p, at[0], at[1], means);
    put_text(&p->body, "\"");
    return at + 1 < end ? at + 2 : end;
}

/* A member that is not the model, with a string in some depth. */
static const uint8_t *put_decoy(struct program *p, const uint8_t *at, const uint8_t *end, uint8_t kind)
{
    static const char *const before[] = {
        "\"messages\":[{\"content\":", "\"a\":{\"model\":", "\"Model\":", "\"models\":[[",
        "\"\\u006dodels\":",           "\"mode\": \t\n"};
    static const char *const after[] = {"}]", "}", "", "]]", "", ""};

    put_text(&p->body, before[kind % ARRAY_LEN(before)]);
    at = put_string(p, at, end, NULL);
    put_text(&p->body, after[kind % ARRAY_LEN(before)]);
    put_text(&p->body, ",");
    return at;
}

static void make(struct program *p, const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"\"model\":", "\"\\u006dodel\" : ", "\"mod\\u0065l\":"};
    const uint8_t *at = data + 1, *end = data + size;

    buf_init(&p->body, SIZE_MAX / 4);
    buf_init(&p->name, SIZE_MAX / 4);
    p->spoiled = false;
    put_text(&p->body, "{");
    for (uint8_t i = 0; i < (data[0] & 7) && !p->spoiled; i++)
        at = put_decoy(p, at, end, (uint8_t)(data[0] + i));
    put_text(&p->body, keys[(data[0] >> 3) % ARRAY_LEN(keys)]);
    put_text(&p->name, "m");
    put_text(&p->body, "\"m");
    for (; at + 1 < end && at[0] != 0 && !p->spoiled; at += 2)
        put_step(p, at[0], at[1], &p->name);
    put_text(&p->body, "\"}");
}

static void check(const struct program *p)
{
    static const enum openai_simd kinds[] = {OPENAI_PLAIN, OPENAI_SSE2, OPENAI_AVX2};
    /* The memory ends with the spare bytes: a read behind them is found. */
    char *exact = mem_alloc(p->body.len + OPENAI_SPARE);
    struct openai_body b;

    memcpy(exact, buf_slice(&p->body).p, p->body.len);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        enum openai_verdict v;

        if (!openai_use_simd(kinds[i]))
            continue;
        v = openai_inspect(exact, p->body.len, &b);
        if (p->spoiled) {
            require(v == OPENAI_NOT_JSON, "a spoiled string is taken");
        } else if (p->name.len > OPENAI_MODEL_MAX) {
            require(v == OPENAI_BAD_MODEL, "a name that is too long is taken");
        } else {
            require(v == OPENAI_OK, "a good body is refused");
            require(slice_eq((struct slice){b.model, b.model_n}, buf_slice(&p->name)), "another model");
        }
    }
    mem_free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct program p;

    if (size < 2 || size > 600)
        return 0;
    make(&p, data, size);
    check(&p);
    buf_free(&p.body);
    buf_free(&p.name);
    return 0;
}
