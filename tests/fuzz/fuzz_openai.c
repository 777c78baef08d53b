/* Any bytes as a request body, an error message and an event stream. What must hold: all kinds of string scan
 * say the same; what we take, cJSON takes, except numbers and half surrogate pairs that only cJSON refuses;
 * the model value leads back to the same model when it is written again; an event stream's end does not
 * depend on the pieces it came in. */
#include "openai.h"
#include "mem.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_openai: %s\n", what);
    abort();
}

/* The body has its spare bytes. */
static enum openai_verdict inspect(struct buf *body, struct openai_body *out)
{
    static const enum openai_simd others[] = {OPENAI_SSE2, OPENAI_AVX2};
    char *const p = buf_reserve(body, OPENAI_SPARE) - body->len;
    struct openai_body other;
    enum openai_verdict verdict;

    require(openai_use_simd(OPENAI_PLAIN), "plain C is always there");
    verdict = openai_inspect(p, body->len, out);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (!openai_use_simd(others[i]))
            continue;
        require(openai_inspect(p, body->len, &other) == verdict, "another verdict");
        require(other.error == out->error && other.error_at == out->error_at, "another error");
        require(other.model_raw.p == out->model_raw.p && other.model_raw.n == out->model_raw.n &&
                    other.stream == out->stream && strcmp(other.model, out->model) == 0,
                "another finding");
    }
    require((verdict == OPENAI_OK) == (out->error == NULL) && out->error_at <= body->len,
            "an error without its text");
    return verdict;
}

/* cJSON reads numbers of up to 63 bytes, 1000 levels, and no half surrogate pairs. */
static bool cjson_may_refuse(struct slice body)
{
    size_t digits = 0, depth = 0;

    for (size_t i = 0; i < body.n; i++) {
        digits = strchr("0123456789+-.eE", body.p[i]) != NULL && body.p[i] != '\0' ? digits + 1 : 0;
        depth += body.p[i] == '[' || body.p[i] == '{';
        if (digits > 62 || depth > 999 ||
            (i + 2 < body.n && body.p[i] == '\\' && body.p[i + 1] == 'u' && (body.p[i + 2] | 0x20) == 'd'))
            return true;
    }
    return false;
}

static void check_cjson(struct slice body, enum openai_verdict verdict, const struct openai_body *b)
{
    cJSON *root = cJSON_ParseWithLength(body.p, body.n), *item, *model = NULL, *stream = NULL;

    require(root != NULL || cjson_may_refuse(body), "cJSON refuses what we take");
    if (root == NULL)
        return;
    require(cJSON_IsObject(root) == (verdict != OPENAI_NOT_OBJECT), "object or not");
    cJSON_ArrayForEach(item, root)
    {
        if (item->string != NULL && strcmp(item->string, "model") == 0)
            model = item;
        if (item->string != NULL && strcmp(item->string, "stream") == 0)
            stream = item;
    }
    if (verdict == OPENAI_OK)
        require(model != NULL && cJSON_IsString(model) && strcmp(model->valuestring, b->model) == 0,
                "another model");
    if (verdict == OPENAI_NO_MODEL)
        require(model == NULL, "a model that we do not see");
    if (verdict != OPENAI_NOT_OBJECT)
        require(b->stream == cJSON_IsTrue(stream), "another stream");
    cJSON_Delete(root);
}

/* Text as a JSON string is a JSON string, and as a model name comes back if it is UTF-8 without NUL. */
static void check_written(struct slice text, const char *model)
{
    struct openai_body b;
    enum openai_verdict verdict;
    struct buf out;

    buf_init(&out, SIZE_MAX / 4);
    require(buf_printf(&out, "{\"model\":") && openai_model_value(&out, text) && buf_printf(&out, "}"),
            "memory");
    verdict = inspect(&out, &b);
    require(verdict == OPENAI_OK || verdict == OPENAI_BAD_MODEL, "what we write is no JSON");
    if (model != NULL && memmem(buf_slice(&out).p, out.len, "\\ufffd", 6) == NULL)
        require(verdict == OPENAI_OK && strcmp(b.model, model) == 0, "a model name changed");
    buf_free(&out);
}

static void check_stream(struct slice text)
{
    struct openai_sse whole = {.n = 0}, bytes = {.n = 0};

    openai_sse_feed(&whole, text);
    for (size_t i = 0; i < text.n; i++)
        openai_sse_feed(&bytes, (struct slice){text.p + i, 1});
    require(whole.n == bytes.n && memcmp(whole.tail, bytes.tail, whole.n) == 0 && whole.cut == bytes.cut &&
                openai_sse_done(&whole) == openai_sse_done(&bytes),
            "another end of a stream");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct slice text = {(const char *)data, size};
    struct openai_body b;
    enum openai_verdict verdict;
    struct buf body;

    buf_init(&body, SIZE_MAX / 4);
    require(buf_append_slice(&body, text), "memory");
    verdict = inspect(&body, &b);

    if (verdict != OPENAI_NOT_JSON)
        check_cjson(text, verdict, &b);
    if (verdict == OPENAI_OK)
        check_written((struct slice){b.model, b.model_n}, b.model);
    check_written(text, NULL);
    check_stream(text);
    buf_free(&body);
    return 0;
}
