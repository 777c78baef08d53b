/* Request bodies in every form, with each kind of string scan and against cJSON; error bodies; event streams.
 */
#include "openai.h"
#include "mem.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

#include "test.h"

static const enum openai_simd kinds[] = {OPENAI_PLAIN, OPENAI_SSE2, OPENAI_AVX2};

/* A copy in memory that ends with the spare bytes. */
static char *copy_of(struct slice body)
{
    char *copy = mem_alloc(body.n + OPENAI_SPARE);

    memcpy(copy, body.n > 0 ? body.p : "", body.n);
    memset(copy + body.n, '"', OPENAI_SPARE);
    return copy;
}

/* The result with every kind of scan the processor has. */
static enum openai_verdict inspect(struct slice body, struct openai_body *out)
{
    char *copy = copy_of(body);
    struct openai_body other;
    enum openai_verdict verdict;

    assert_true(openai_use_simd(OPENAI_PLAIN));
    verdict = openai_inspect(copy, body.n, out);
    for (size_t i = 1; i < ARRAY_LEN(kinds); i++) {
        if (!openai_use_simd(kinds[i]))
            continue;
        assert_int_equal(openai_inspect(copy, body.n, &other), verdict);
        assert_int_equal(other.model_raw.n, out->model_raw.n);
        assert_ptr_equal(other.model_raw.p, out->model_raw.p);
        assert_int_equal(other.stream, out->stream);
        assert_int_equal(other.error_at, out->error_at);
        assert_ptr_equal(other.error, out->error);
        assert_string_equal(other.model, out->model);
    }
    if (out->model_raw.p != NULL)
        out->model_raw.p = body.p + (out->model_raw.p - copy);
    mem_free(copy);
    return verdict;
}

static void check_ok(const char *body, const char *model, const char *raw, bool stream)
{
    struct openai_body b;

    assert_int_equal(inspect(slice_of(body), &b), OPENAI_OK);
    assert_null(b.error);
    assert_string_equal(b.model, model);
    assert_int_equal(b.model_n, strlen(model));
    assert_true(slice_eq(b.model_raw, slice_of(raw)));
    assert_int_equal(b.stream, stream);
}

static void test_found(void **state)
{
    (void)state;
    check_ok("{\"model\":\"m\"}", "m", "\"m\"", false);
    check_ok(" \r\n\t{ \"stream\" : true , \"model\" : \"org/m-1:x\" } \n", "org/m-1:x", "\"org/m-1:x\"",
             true);
    check_ok("{\"stream\":false,\"model\":\" m \"}", " m ", "\" m \"", false);
    check_ok("{\"stream\":\"true\",\"model\":\"m\"}", "m", "\"m\"", false);
    check_ok("{\"stream\":1,\"model\":\"m\"}", "m", "\"m\"", false);
    check_ok("{\"stream\":{\"a\":true},\"model\":\"m\"}", "m", "\"m\"", false);
    /* only the top level counts */
    check_ok("{\"a\":{\"model\":\"x\",\"stream\":true},\"b\":[{\"model\":\"y\"}],\"model\":\"m\"}", "m",
             "\"m\"", false);
    check_ok("{\"model\":\"m\",\"a\":{\"model\":\"x\"},\"b\":[\"model\"]}", "m", "\"m\"", false);
    check_ok("{\"Model\":\"x\",\"models\":\"x\",\"mode\":\"x\",\"model\":\"m\"}", "m", "\"m\"", false);
    check_ok("{\"x\":\"model\",\"model\":\"m\"}", "m", "\"m\"", false);
    /* the last of several counts */
    check_ok("{\"model\":\"a\",\"model\":\"b\"}", "b", "\"b\"", false);
    check_ok("{\"model\":1,\"model\":\"b\"}", "b", "\"b\"", false);
    check_ok("{\"stream\":true,\"model\":\"a\",\"stream\":false}", "a", "\"a\"", false);
    check_ok("{\"model\":\"a\",\"\\u006dodel\":\"b\"}", "b", "\"b\"", false);
    check_ok("{\"model\":\"a\",\"m\\u006F\\u0064\\u0065l\":\"b\",\"str\\u0065am\":true}", "b", "\"b\"", true);
    check_ok("{\"\\u006d\\u006f\\u0064\\u0065\\u006c\":\"b\"}", "b", "\"b\"", false);
    check_ok("{\"mod\\/el\":\"x\",\"model\":\"a\"}", "a", "\"a\"", false);
    /* escapes */
    check_ok("{\"model\":\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"}",
             "a\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
             "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"", false);
    check_ok("{\"model\":\"\xff\xfe\"}", "\xff\xfe", "\"\xff\xfe\"", false);
    /* RF19: odd, but JSON */
    check_ok("{\"n\":[-0,0.5,1e400,-1E+5,2e-7,123456789012345678901234567890],\"u\":\"\\ud800\\u0000\","
             "\"model\":\"m\"}",
             "m", "\"m\"", false);
}

static void check_verdict(struct slice body, enum openai_verdict verdict, const char *word, size_t at)
{
    struct openai_body b;
    enum openai_verdict got = inspect(body, &b);

    if (got != verdict || strstr(b.error, word) == NULL || b.error_at != at)
        print_message("%.*s: %d, %s at %zu\n", SLICE_ARG(body), (int)got, b.error, b.error_at);
    assert_int_equal(got, verdict);
    assert_non_null(strstr(b.error, word));
    assert_int_equal(b.error_at, at);
    assert_null(b.model_raw.p);
    assert_int_equal(b.model_n, 0);
    assert_string_equal(b.model, "");
}

static void test_model_refused(void **state)
{
    (void)state;
    check_verdict(SLICE("[]"), OPENAI_NOT_OBJECT, "object", 0);
    check_verdict(SLICE(" null"), OPENAI_NOT_OBJECT, "object", 1);
    check_verdict(SLICE("\"model\""), OPENAI_NOT_OBJECT, "object", 0);
    check_verdict(SLICE("12"), OPENAI_NOT_OBJECT, "object", 0);
    check_verdict(SLICE("{}"), OPENAI_NO_MODEL, "model", 0);
    check_verdict(SLICE("{\"a\":{\"model\":\"x\"}}"), OPENAI_NO_MODEL, "model", 0);
    check_verdict(SLICE("[{\"model\":\"x\"}]"), OPENAI_NOT_OBJECT, "object", 0);
    check_verdict(SLICE("{\"model\":null}"), OPENAI_BAD_MODEL, "string", 9);
    check_verdict(SLICE("{\"model\":[\"m\"]}"), OPENAI_BAD_MODEL, "string", 9);
    check_verdict(SLICE("{\"model\":{\"model\":\"m\"}}"), OPENAI_BAD_MODEL, "string", 9);
    check_verdict(SLICE("{\"model\":\"m\",\"model\":5}"), OPENAI_BAD_MODEL, "string", 21);
    check_verdict(SLICE("{\"model\":\"\"}"), OPENAI_BAD_MODEL, "empty", 9);
    check_verdict(SLICE("{\"model\":\" \\n\\t\\u0020\"}"), OPENAI_BAD_MODEL, "empty", 9);
    check_verdict(SLICE("{\"model\":\"a\\u0000b\"}"), OPENAI_BAD_MODEL, "NUL", 9);
    check_verdict(SLICE("{\"model\":\"\\ud83d\"}"), OPENAI_BAD_MODEL, "surrogate", 9);
    check_verdict(SLICE("{\"model\":\"\\ud83dxxxxxx\"}"), OPENAI_BAD_MODEL, "surrogate", 9);
    check_verdict(SLICE("{\"model\":\"\\ud83d\\ud83d\"}"), OPENAI_BAD_MODEL, "surrogate", 9);
    check_verdict(SLICE("{\"model\":\"\\ud83d\\n12345\"}"), OPENAI_BAD_MODEL, "surrogate", 9);
    check_verdict(SLICE("{\"model\":\"\\ude00\\ud83d\"}"), OPENAI_BAD_MODEL, "surrogate", 9);
}

static void test_model_length(void **state)
{
    char body[2 * OPENAI_MODEL_MAX];
    struct openai_body b;

    (void)state;
    for (int extra = -1; extra <= 1; extra++) {
        int n = snprintf(body, sizeof(body), "{\"model\":\"%0*d\"}", OPENAI_MODEL_MAX + extra, 7);

        assert_int_equal(inspect((struct slice){body, (size_t)n}, &b),
                         extra <= 0 ? OPENAI_OK : OPENAI_BAD_MODEL);
        assert_int_equal(b.model_n, extra <= 0 ? OPENAI_MODEL_MAX + extra : 0);
    }
    /* the last character is too long for what is left */
    (void)snprintf(body, sizeof(body), "{\"model\":\"%0*d\\u00e9\"}", OPENAI_MODEL_MAX - 1, 7);
    assert_int_equal(inspect(slice_of(body), &b), OPENAI_BAD_MODEL);
    (void)snprintf(body, sizeof(body), "{\"model\":\"%0*d\\u00e9\"}", OPENAI_MODEL_MAX - 2, 7);
    assert_int_equal(inspect(slice_of(body), &b), OPENAI_OK);
}

static void test_not_json(void **state)
{
    (void)state;
    check_verdict((struct slice){NULL, 0}, OPENAI_NOT_JSON, "empty", 0);
    check_verdict(SLICE(" "), OPENAI_NOT_JSON, "middle", 1);
    check_verdict(SLICE("\xef\xbb\xbf{}"), OPENAI_NOT_JSON, "value", 0);
    check_verdict(SLICE("{\"model\":\"m\"} x"), OPENAI_NOT_JSON, "after the end", 14);
    check_verdict(SLICE("{\"model\":\"m\"}{}"), OPENAI_NOT_JSON, "after the end", 13);
    check_verdict(SLICE("{\"model\":\"m\"}\0"), OPENAI_NOT_JSON, "after the end", 13);
    check_verdict(SLICE("{\"model\":\"m\""), OPENAI_NOT_JSON, "middle", 12);
    check_verdict(SLICE("{\"model\":\"m\",}"), OPENAI_NOT_JSON, "key", 13);
    check_verdict(SLICE("{\"model\":}"), OPENAI_NOT_JSON, "value", 9);
    check_verdict(SLICE("{\"model\" \"m\"}"), OPENAI_NOT_JSON, "colon", 9);
    check_verdict(SLICE("{\"model\""), OPENAI_NOT_JSON, "colon", 8);
    check_verdict(SLICE("{model:\"m\"}"), OPENAI_NOT_JSON, "key", 1);
    check_verdict(SLICE("{'model':'m'}"), OPENAI_NOT_JSON, "key", 1);
    check_verdict(SLICE("{,}"), OPENAI_NOT_JSON, "key", 1);
    check_verdict(SLICE("[,]"), OPENAI_NOT_JSON, "value", 1);
    check_verdict(SLICE("[1,]"), OPENAI_NOT_JSON, "value", 3);
    check_verdict(SLICE("[1 2]"), OPENAI_NOT_JSON, "]", 3);
    check_verdict(SLICE("[1}"), OPENAI_NOT_JSON, "]", 2);
    check_verdict(SLICE("{\"a\":1]"), OPENAI_NOT_JSON, "}", 6);
    check_verdict(SLICE("{\"a\":1 \"b\":2}"), OPENAI_NOT_JSON, "}", 7);
    check_verdict(SLICE("]"), OPENAI_NOT_JSON, "value", 0);
    check_verdict(SLICE("[tru]"), OPENAI_NOT_JSON, "word", 1);
    check_verdict(SLICE("[nul"), OPENAI_NOT_JSON, "word", 1);
    check_verdict(SLICE("[truex]"), OPENAI_NOT_JSON, "]", 5);
    check_verdict(SLICE("[NaN]"), OPENAI_NOT_JSON, "value", 1);
    check_verdict(SLICE("[01]"), OPENAI_NOT_JSON, "zeros", 1);
    check_verdict(SLICE("[-]"), OPENAI_NOT_JSON, "number", 1);
    check_verdict(SLICE("[+1]"), OPENAI_NOT_JSON, "value", 1);
    check_verdict(SLICE("[.5]"), OPENAI_NOT_JSON, "value", 1);
    check_verdict(SLICE("[5.]"), OPENAI_NOT_JSON, "point", 1);
    check_verdict(SLICE("[1e]"), OPENAI_NOT_JSON, "exponent", 1);
    check_verdict(SLICE("[1e+]"), OPENAI_NOT_JSON, "exponent", 1);
    check_verdict(SLICE("[0x1]"), OPENAI_NOT_JSON, "]", 2);
    check_verdict(SLICE("{\"model\":\"m"), OPENAI_NOT_JSON, "closing quote", 11);
    check_verdict(SLICE("{\"model\":\"m\\\""), OPENAI_NOT_JSON, "closing quote", 13);
    check_verdict(SLICE("\"\\"), OPENAI_NOT_JSON, "closing quote", 2);
    check_verdict(SLICE("\"a\nb\""), OPENAI_NOT_JSON, "control", 2);
    check_verdict(SLICE("\"a\0b\""), OPENAI_NOT_JSON, "control", 2);
    check_verdict(SLICE("\"\\a\""), OPENAI_NOT_JSON, "escape", 2);
    check_verdict(SLICE("\"\\x41\""), OPENAI_NOT_JSON, "escape", 2);
    check_verdict(SLICE("\"\\U0041\""), OPENAI_NOT_JSON, "escape", 2);
    check_verdict(SLICE("\"\\u12g4\""), OPENAI_NOT_JSON, "hexadecimal", 2);
    check_verdict(SLICE("\"\\u123\""), OPENAI_NOT_JSON, "hexadecimal", 2);
    check_verdict(SLICE("\"\\u12"), OPENAI_NOT_JSON, "hexadecimal", 2);
    check_verdict(SLICE("\v{}"), OPENAI_NOT_JSON, "value", 0);
}

/* What has to be found wrong in a body that is one string, byte by byte; NULL: nothing. */
static const char *slow_string(struct slice body, size_t *at)
{
    for (*at = 1; *at < body.n; (*at)++) {
        const unsigned char *p = (const unsigned char *)body.p + *at;

        if (*p < 0x20)
            return "control";
        if (*p == '"')
            return (*at)++ + 1 == body.n ? NULL : "after the end";
        if (*p != '\\')
            continue;
        if (++*at == body.n)
            break;
        if (p[1] < 0x20)
            return "control";
        if (p[1] == 'u' && (body.n - *at < 5 || strspn(body.p + *at + 1, "0123456789abcdefABCDEF") < 4))
            return "hexadecimal";
        if (strchr("\"\\/bfnrtu", p[1]) == NULL)
            return "unknown escape";
    }
    return "closing quote";
}

/* As the body, and in an array. */
static void check_string(struct slice body)
{
    char array[402];
    size_t at;
    const char *word = slow_string(body, &at);

    array[0] = '[';
    memcpy(array + 1, body.p, body.n);
    array[1 + body.n] = ']';
    if (word == NULL) {
        check_verdict(body, OPENAI_NOT_OBJECT, "object", 0);
        check_verdict((struct slice){array, body.n + 2}, OPENAI_NOT_OBJECT, "object", 0);
        return;
    }
    check_verdict(body, OPENAI_NOT_JSON, word, at);
    if (strcmp(word, "after the end") == 0)
        word = "comma or ]";
    check_verdict((struct slice){array, body.n + 1}, OPENAI_NOT_JSON, word, at + 1);
}

/* Strings of every length, closed or not, with something in them at every place. */
static void test_strings_everywhere(void **state)
{
    static const char *const pieces[] = {"\"",      "\\",      "\\\"",    "\\\\",      "\\\\\"",
                                         "\x01",    "\x1f",    "\x7f",    "\xff",      "\\n\\t\\r\\b",
                                         "\\x",     "\\\x01",  "\\u00e9", "\\u00g9",   "\\u0",
                                         "\\u12:4", "\\u@123", "!#",      "\\u00E9\\", "\\\x80"};
    char body[400];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        for (size_t n = 0; n < 150; n += n < 40 ? 1 : 7) {
            for (size_t at = 0; at <= n; at++) {
                size_t size = strlen(pieces[i]), end = 1 + n + size;

                memset(body, 'x', sizeof(body));
                body[0] = '"';
                memcpy(body + 1 + at, pieces[i], size);
                body[end] = '\0'; /* for strspn */
                check_string((struct slice){body, end});
                body[end] = '"';
                check_string((struct slice){body, end + 1});
            }
        }
    }
}

/* The model's value of every length, at every distance from the end of the body. */
static void test_models_everywhere(void **state)
{
    char body[300], name[80], raw[82];

    (void)state;
    for (int n = 1; n < 75; n++) {
        for (int end = 0; end < 75; end++) {
            (void)snprintf(name, sizeof(name), "%0*d", n, 7);
            (void)snprintf(raw, sizeof(raw), "\"%s\"", name);
            (void)snprintf(body, sizeof(body), "{\"%0*d\":1,\"model\":%s}%*s", n / 2 + 1, 3, raw, end, "");
            check_ok(body, name, raw, false);
        }
    }
}

/* Every byte behind a backslash, at every place of a block and across its end. */
static void test_escapes_everywhere(void **state)
{
    char body[200];
    struct openai_body b;

    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        for (size_t at = 0; at < 140; at++) {
            bool good = c != 0 && strchr("\"\\/bfnrt", (int)c) != NULL;
            enum openai_verdict verdict;

            memset(body, 'x', sizeof(body));
            body[0] = '[';
            body[1] = '"';
            body[2 + at] = '\\';
            body[3 + at] = (char)c;
            body[3 + at + 3] = '"';
            body[3 + at + 4] = ']';
            verdict = inspect((struct slice){body, at + 8}, &b);
            assert_int_equal(verdict, good ? OPENAI_NOT_OBJECT : OPENAI_NOT_JSON);
        }
    }
}

/* A string of `at` bytes, of which `first` are given, and a run of backslashes, in an array. */
static void check_run(const char *first, size_t at, size_t run)
{
    char body[600];
    struct openai_body b;
    char *const end = body + 2 + at + run;

    memset(body, 'x', sizeof(body));
    memcpy(body, "[\"", 2);
    memcpy(body + 2, first, strlen(first));
    memset(body + 2 + at, '\\', run);
    memcpy(end, "n\"]", 3);
    assert_int_equal(inspect((struct slice){body, at + run + 5}, &b), OPENAI_NOT_OBJECT);
    memset(end, ' ', 90); /* whole blocks without a mark */
    end[0] = '"';
    end[90] = ']';
    assert_int_equal(inspect((struct slice){body, at + run + 93}, &b),
                     run % 2 == 0 ? OPENAI_NOT_OBJECT : OPENAI_NOT_JSON);
}

/* Runs of every length, ending at every place of a block, and behind something that is looked at closer. */
static void test_backslash_runs(void **state)
{
    (void)state;
    for (size_t run = 0; run < 140; run++) {
        for (size_t at = 0; at < 66; at++)
            check_run("", at, run);
    }
    for (size_t run = 0; run < 6; run++) {
        for (size_t at = 10; at < 330; at++)
            check_run("\\r\\u00e9", at, run);
    }
}

static void test_depth(void **state)
{
    char *body = mem_alloc(2 * OPENAI_MAX_DEPTH + 4);
    struct openai_body b;

    (void)state;
    memset(body, '[', OPENAI_MAX_DEPTH + 1);
    memset(body + OPENAI_MAX_DEPTH, ']', OPENAI_MAX_DEPTH);
    assert_int_equal(inspect((struct slice){body, 2 * OPENAI_MAX_DEPTH}, &b), OPENAI_NOT_OBJECT);
    memset(body, '[', OPENAI_MAX_DEPTH + 1);
    memset(body + OPENAI_MAX_DEPTH + 1, ']', OPENAI_MAX_DEPTH + 1);
    assert_int_equal(inspect((struct slice){body, 2 * OPENAI_MAX_DEPTH + 2}, &b), OPENAI_NOT_JSON);
    assert_int_equal(b.error_at, OPENAI_MAX_DEPTH);
    mem_free(body);
}

/* ---- random documents ---- */

static void put_string(struct buf *out, struct test_random *r)
{
    static const char *const pieces[] = {"a",
                                         " text of a message ",
                                         "\\n",
                                         "\\\"",
                                         "\\\\",
                                         "\\u00e9",
                                         "\\ud83d\\ude00",
                                         "\xc3\xa9",
                                         "model",
                                         "{",
                                         "]",
                                         ",",
                                         ":",
                                         "\\/",
                                         "\\t",
                                         "stream"};

    assert_true(buf_append(out, "\"", 1));
    for (size_t n = test_random_below(r, 12); n > 0; n--)
        assert_true(buf_append_slice(out, slice_of(pieces[test_random_below(r, ARRAY_LEN(pieces))])));
    assert_true(buf_append(out, "\"", 1));
}

static void put_value(struct buf *out, struct test_random *r, int depth);

static void put_space(struct buf *out, struct test_random *r)
{
    static const char *const spaces[] = {"", "", "", " ", "\n", "\r\n  ", "\t"};

    assert_true(buf_append_slice(out, slice_of(spaces[test_random_below(r, ARRAY_LEN(spaces))])));
}

static void put_container(struct buf *out, struct test_random *r, int depth, bool object)
{
    static const char *const keys[] = {"\"model\"", "\"stream\"", "\"a\"", "\"messages\"", "\"mod\\u0065l\""};

    assert_true(buf_append(out, object ? "{" : "[", 1));
    for (size_t i = 0, n = test_random_below(r, 6); i < n; i++) {
        assert_true(i == 0 || buf_append(out, ",", 1));
        put_space(out, r);
        if (object) {
            assert_true(buf_append_slice(out, slice_of(keys[test_random_below(r, ARRAY_LEN(keys))])));
            put_space(out, r);
            assert_true(buf_append(out, ":", 1));
        }
        put_value(out, r, depth + 1);
        put_space(out, r);
    }
    assert_true(buf_append(out, object ? "}" : "]", 1));
}

static void put_value(struct buf *out, struct test_random *r, int depth)
{
    static const char *const scalars[] = {"true", "false", "null", "0", "-1.5e3", "12345"};
    size_t kind = test_random_below(r, 10);

    put_space(out, r);
    if (kind < 4)
        put_string(out, r);
    else if (kind < 8 && depth < 6)
        put_container(out, r, depth, kind < 6);
    else
        assert_true(buf_append_slice(out, slice_of(scalars[test_random_below(r, ARRAY_LEN(scalars))])));
}

/* What cJSON says of a key: the last item of that exact name. */
static cJSON *last_of(cJSON *object, const char *key)
{
    cJSON *item, *found = NULL;

    cJSON_ArrayForEach(item, object)
    {
        if (item->string != NULL && strcmp(item->string, key) == 0)
            found = item;
    }
    return found;
}

static void check_against_cjson(struct slice body)
{
    struct openai_body b;
    enum openai_verdict verdict = inspect(body, &b);
    const char *end = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(body.p, body.n, &end, 0), *model, *stream;

    if (verdict == OPENAI_NOT_JSON) {
        cJSON_Delete(root);
        return;
    }
    if (root == NULL) { /* cJSON takes no half surrogate pairs */
        assert_non_null(memmem(body.p, body.n, "\\ud", 3));
        return;
    }
    model = last_of(root, "model");
    stream = last_of(root, "stream");
    if (!cJSON_IsObject(root))
        assert_int_equal(verdict, OPENAI_NOT_OBJECT);
    else if (model == NULL)
        assert_int_equal(verdict, OPENAI_NO_MODEL);
    else if (!cJSON_IsString(model) || model->valuestring[strspn(model->valuestring, " \n\t\r")] == '\0')
        assert_int_equal(verdict, OPENAI_BAD_MODEL);
    else
        assert_string_equal(b.model, model->valuestring);
    if (cJSON_IsObject(root))
        assert_int_equal(b.stream, cJSON_IsTrue(stream));
    cJSON_Delete(root);
}

static void test_random_documents(void **state)
{
    struct test_random r = {11};

    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct openai_body b;
        struct buf out;

        buf_init(&out, SIZE_MAX / 4);
        put_container(&out, &r, 0, i % 8 != 0);
        assert_int_not_equal(inspect(buf_slice(&out), &b), OPENAI_NOT_JSON);
        check_against_cjson(buf_slice(&out));
        /* and with one byte changed, or cut */
        out.data[out.start + test_random_below(&r, out.len)] =
            "\"\\{}[],:0ax\n\x01"[test_random_below(&r, 13)];
        check_against_cjson(buf_slice(&out));
        check_against_cjson((struct slice){buf_slice(&out).p, test_random_below(&r, out.len)});
        buf_free(&out);
    }
}

/* ---- bodies of our own ---- */

static void check_text(struct buf *out, const char *expected)
{
    assert_true(buf_append(out, "", 1));
    assert_string_equal(buf_slice(out).p, expected);
    buf_clear(out);
}

static void test_error_bodies(void **state)
{
    struct buf out;

    (void)state;
    buf_init(&out, 4096);
    assert_true(openai_error(&out, SLICE("no \"x\"\\\n\r\t\x01\x7f"), "server_error", "c"));
    check_text(&out,
               "{\"error\":{\"message\":\"no \\\"x\\\"\\\\\\n\\r\\t\\u0001\x7f\",\"type\":\"server_error\","
               "\"param\":null,\"code\":\"c\"}}");
    assert_true(openai_error_event(&out, false, SLICE("m"), "t", "c"));
    check_text(&out,
               "data: {\"error\":{\"message\":\"m\",\"type\":\"t\",\"param\":null,\"code\":\"c\"}}\n\n");
    assert_true(openai_error_event(&out, true, SLICE("m"), "t", "c"));
    check_text(&out,
               "\n\ndata: {\"error\":{\"message\":\"m\",\"type\":\"t\",\"param\":null,\"code\":\"c\"}}\n\n");
    buf_free(&out);
}

/* Bytes that are no UTF-8 would make the answer no JSON. */
static void test_utf8(void **state)
{
    struct buf out;

    (void)state;
    buf_init(&out, 4096);
    assert_true(openai_model_value(
        &out, SLICE("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf")));
    check_text(&out, "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf\"");
    assert_true(openai_model_value(&out, SLICE("\xc3 \xc3(\x80\xff\xc3"))); /* cut, wrong, alone */
    check_text(&out, "\"\\ufffd \\ufffd(\\ufffd\\ufffd\\ufffd\"");
    assert_true(openai_model_value(&out, SLICE("\xc0\xaf\xe0\x80\xaf"))); /* longer than needed */
    check_text(&out, "\"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\"");
    assert_true(openai_model_value(&out, SLICE("\xed\xa0\x80"))); /* surrogate */
    check_text(&out, "\"\\ufffd\\ufffd\\ufffd\"");
    assert_true(openai_model_value(&out, SLICE("\xf4\x90\x80\x80"))); /* above U+10FFFF */
    check_text(&out, "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
    assert_true(openai_model_value(&out, (struct slice){NULL, 0}));
    check_text(&out, "\"\"");
    buf_free(&out);
}

static void test_model_list(void **state)
{
    static const char model[] = ",\"object\":\"model\",\"created\":0,\"owned_by\":\"kthena\"}";
    const struct slice names[] = {SLICE("b"), SLICE("a\"")};
    char expected[400];
    struct buf out;

    (void)state;
    buf_init(&out, 4096);
    assert_true(openai_model_list(&out, names, 0));
    check_text(&out, "{\"object\":\"list\",\"data\":[]}");
    assert_true(openai_model_list(&out, names, 2));
    (void)snprintf(expected, sizeof(expected),
                   "{\"object\":\"list\",\"data\":[{\"id\":\"b\"%s,{\"id\":\"a\\\"\"%s]}", model, model);
    check_text(&out, expected);
    buf_free(&out);
}

static void test_no_room(void **state)
{
    struct buf out;

    (void)state;
    for (size_t max = 0; max < 63; max++) {
        buf_init(&out, max);
        assert_int_equal(openai_error(&out, SLICE("m\n"), "t", "c"), max >= 62);
        buf_free(&out);
    }
}

/* ---- event streams ---- */

static void check_stream(const char *text, bool done, bool inside)
{
    size_t n = strlen(text);

    for (size_t a = 0; a <= n; a++) {
        for (size_t b = a; b <= n; b++) {
            struct openai_sse s = {.n = 0};

            openai_sse_feed(&s, (struct slice){text, a});
            openai_sse_feed(&s, (struct slice){text + a, b - a});
            openai_sse_feed(&s, (struct slice){text + b, n - b});
            assert_int_equal(openai_sse_done(&s), done);
            assert_int_equal(openai_sse_inside_event(&s), inside);
        }
    }
}

static void test_event_streams(void **state)
{
    (void)state;
    check_stream("", false, false);
    check_stream("data: {}\n\n", false, false);
    check_stream("data: {}\n", false, true);
    check_stream("data: {}\r\n", false, true);
    check_stream("data: {", false, true);
    check_stream("data: {}\n\ndata: [DONE]\n\n", true, false);
    check_stream("data: {}\r\n\r\ndata:[DONE]\r\n\r\n", true, false);
    check_stream("data: {}\r\rdata: [DONE]\r\r", true, false);
    check_stream("data: [DONE]", true, true);
    check_stream("data: [DONE]\n", true, true);
    check_stream("data: [DONE]\r", true, true);
    check_stream("data: [DONE]\n\n: comment\n\n", true, false);
    check_stream("data: [DONE]\n\nevent: x\nid: 1\n\n", true, false);
    check_stream("data: [DONE]\n\ndata: more\n\n", false, false);
    check_stream("data: [DONE]\n\ndata: mor", false, true);
    check_stream("data: [DONE]x\n\n", false, false);
    check_stream("data:  [DONE]\n\n", false, false);
    check_stream("xdata: [DONE]\n\n", false, false);
    check_stream("data: [DON\n\n", false, false);
    check_stream("data: a\n\r\n\r", false, false);
    check_stream("data: a\n\n\n\nx", false, true);
    check_stream("data: {\"a\":\"data: [DONE]\"}\n\n", false, false);
    check_stream("data: {\"a text that is longer than what the tail can hold, whole\":1}\n\ndata: [DONE]\n\n",
                 true, false);
    check_stream(
        "data: {\"a text that is longer than what the tail can hold, so it is not whole there: [DONE]\"}",
        false, true);
    check_stream(
        "data: {\"a text that is longer than what the tail can hold, so it is not whole there\"}\r\n\r\n",
        false, false);
}

/* What the edit makes of the body; NULL: nothing is wanted. */
static void expect_wish(const char *body, const char *wanted)
{
    char *copy = copy_of(slice_of(body));
    struct slice text = {copy, strlen(body)};
    struct openai_body b;
    struct openai_edit e;
    struct buf out;

    assert_int_equal(openai_inspect(copy, text.n, &b), OPENAI_OK);
    assert_int_equal(openai_want_usage(text, &b, &e), wanted != NULL);
    buf_init(&out, 4096);
    if (wanted != NULL) {
        assert_true(buf_append(&out, text.p, e.at) && buf_append_slice(&out, e.text) &&
                    buf_append(&out, text.p + e.at + e.n, text.n - e.at - e.n));
        assert_true(slice_eq(buf_slice(&out), slice_of(wanted)));
    }
    buf_free(&out);
    mem_free(copy);
}

static void test_want_usage(void **state)
{
    (void)state;
    expect_wish(" { \"model\":\"m\",\"stream\":true}",
                " {\"stream_options\":{\"include_usage\":true}, \"model\":\"m\",\"stream\":true}");
    expect_wish("{\"model\":\"m\",\"stream_options\":{\"a\":{}},\"stream\":true}",
                "{\"model\":\"m\",\"stream_options\":{\"include_usage\":true,\"a\":{}},\"stream\":true}");
    expect_wish("{\"model\":\"m\",\"stream_options\": { } ,\"stream\":true}",
                "{\"model\":\"m\",\"stream_options\": {\"include_usage\":true } ,\"stream\":true}");
    expect_wish("{\"model\":\"m\",\"stream_options\":null,\"stream\":true}",
                "{\"model\":\"m\",\"stream_options\":{\"include_usage\":true},\"stream\":true}");
    expect_wish("{\"model\":\"m\",\"stream_options\":1,\"stream_\\u006fptions\":{},\"stream\":true}",
                "{\"model\":\"m\",\"stream_options\":1,\"stream_\\u006fptions\":{\"include_usage\":true},"
                "\"stream\":true}");
    expect_wish("{\"model\":\"m\",\"stream_options\":{\"include_usage\":false},\"stream\":true}", NULL);
    expect_wish("{\"model\":\"m\",\"stream_options\":{\"include_usage\":true},\"stream\":true}", NULL);
    expect_wish("{\"model\":\"m\",\"stream_options\":\"x\",\"stream\":true}", NULL);
    expect_wish("{\"model\":\"m\",\"stream_options\":[],\"stream\":true}", NULL);
    expect_wish("{\"model\":\"m\",\"stream_options\":{},\"stream\":false}", NULL);
    expect_wish("{\"model\":\"m\"}", NULL);
}

static void expect_user(const char *body, const char *raw)
{
    char *copy = copy_of(slice_of(body));
    struct openai_body b;

    assert_int_equal(openai_inspect(copy, strlen(body), &b), OPENAI_OK);
    assert_true(slice_eq(b.user, slice_of(raw)));
    mem_free(copy);
}

static void test_user(void **state)
{
    struct buf out;

    (void)state;
    expect_user("{\"model\":\"m\",\"user\":\"u\",\"x\":{\"user\":\"no\"}}", "\"u\"");
    expect_user("{\"user\":\"a\",\"\\u0075ser\":\"b\",\"model\":\"m\"}", "\"b\"");
    expect_user("{\"user\":\"a\",\"user\":7,\"model\":\"m\"}", NULL);
    expect_user("{\"user\":{},\"model\":\"m\"}", NULL);
    expect_user("{\"model\":\"m\"}", NULL);
    buf_init(&out, 8);
    assert_true(openai_decode_string(&out, SLICE("\"a\\u00e4\\n\"")));
    assert_true(slice_eq(buf_slice(&out), SLICE("a\xc3\xa4\n")));
    assert_false(openai_decode_string(&out, SLICE("\"12345\"")));
    assert_false(openai_decode_string(&out, SLICE("\"\\u0000\"")));
    buf_clear(&out);
    openai_decode_text(&out, SLICE("\"a\\u0000\\ud800\\ud83d\\ude00\""));
    assert_true(slice_eq(buf_slice(&out), SLICE("a\0\xed\xa0\x80\xf0\x9f\x98"))); /* as much as fits */
    buf_clear(&out);
    openai_decode_text(&out, SLICE("\"\\ud83dx\\udc00\\n\""));
    assert_true(slice_eq(buf_slice(&out), SLICE("\xed\xa0\xbdx\xed\xb0\x80\n")));
    buf_free(&out);
}

/* Where the fields of a prompt begin, the last of each name. */
static void test_prompt_fields(void **state)
{
    char body[300] =
        "{\"prompt\":1,\"model\":\"m\",\"messages\" : [],\"system\":{},\"input\":\"i\",\"x\":{\"prompt\":"
        "9},\"instructions\":null,\"pro\\u006dpt\":\"p\"}";
    struct openai_body b;

    (void)state;
    assert_int_equal(openai_inspect(body, strlen(body), &b), OPENAI_OK);
    assert_ptr_equal(b.prompt.messages, strchr(body, '['));
    assert_ptr_equal(b.prompt.system, strstr(body, "{}"));
    assert_ptr_equal(b.prompt.input, strstr(body, "\"i\""));
    assert_ptr_equal(b.prompt.instructions, strstr(body, "null"));
    assert_ptr_equal(b.prompt.prompt, strstr(body, "\"p\"}"));
    (void)snprintf(body, sizeof(body), "{\"messages\":[}");
    assert_int_equal(openai_inspect(body, strlen(body), &b), OPENAI_NOT_JSON);
    assert_null(b.prompt.messages);
}

static void test_model_names(void **state)
{
    struct buf out;

    (void)state;
    buf_init(&out, 20);
    openai_model_names(SLICE("{\"object\":\"list\",\"data\":[{\"id\":\"a\"},{\"id\":\"\"},{\"id\":7},"
                             "{\"name\":\"x\"},{\"id\":\"b\\nc\"},{\"id\":\"\\u00e9/d\"}]}"),
                       &out);
    assert_true(slice_eq(buf_slice(&out), SLICE("a\n\xc3\xa9/d\n")));
    openai_model_names(SLICE("{\"data\":[{\"id\":\"fifteen-bytes-ab\"},{\"id\":\"e\"}]}"), &out);
    assert_true(slice_eq(buf_slice(&out), SLICE("a\n\xc3\xa9/d\n"))); /* whole names only */
    openai_model_names(SLICE("not a list"), &out);
    openai_model_names(SLICE(""), &out);
    assert_int_equal(out.len, 7);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_model_refused),
        cmocka_unit_test(test_model_length),
        cmocka_unit_test(test_not_json),
        cmocka_unit_test(test_strings_everywhere),
        cmocka_unit_test(test_models_everywhere),
        cmocka_unit_test(test_escapes_everywhere),
        cmocka_unit_test(test_backslash_runs),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_random_documents),
        cmocka_unit_test(test_error_bodies),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_model_list),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_event_streams),
        cmocka_unit_test(test_want_usage),
        cmocka_unit_test(test_user),
        cmocka_unit_test(test_prompt_fields),
        cmocka_unit_test(test_model_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
