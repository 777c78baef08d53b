/* Any bytes as a pod's answer: whole and in pieces must give the same counts, the same bytes must be left
 * when an event is hidden, and nothing may be lost or added otherwise. Also as a request body whose prompt is
 * measured. The first input byte says whether it is an event stream, the second the size of the pieces. */
#include "mem.h"
#include "prompt.h"
#include "usage.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_usage: %s\n", what);
    abort();
}

static struct slice cut(struct slice *text, size_t step)
{
    struct slice piece = {text->p, text->n < step ? text->n : step};

    text->p += piece.n;
    text->n -= piece.n;
    return piece;
}

static struct usage read_usage(bool stream, struct slice text, size_t step)
{
    struct usage u = {.stream = stream, .count_events = stream};

    while (text.n > 0)
        usage_feed(&u, cut(&text, step));
    return u;
}

static void check_counts(bool stream, struct slice text, size_t step)
{
    const struct usage whole = read_usage(stream, text, text.n + 1), pieces = read_usage(stream, text, step);
    int64_t in, out, in_pieces, out_pieces;

    require(usage_tokens(&whole, &in, &out) == usage_tokens(&pieces, &in_pieces, &out_pieces),
            "known or not");
    require(in == in_pieces && out == out_pieces && in >= 0 && out >= -1, "other counts");
    require(whole.events == pieces.events, "another number of events");
}

static void hide(struct slice text, size_t step, struct buf *out)
{
    struct usage_hide h;

    usage_hide_init(&h);
    buf_init(out, SIZE_MAX / 4);
    while (text.n > 0) {
        struct slice piece = cut(&text, step);

        require(buf_append_slice(out, usage_hide_feed(&h, &piece, 1, text.n == 0)), "memory");
    }
    usage_hide_free(&h);
}

/* What is left is the text without some of its parts. */
static bool is_part(struct slice left, struct slice text)
{
    size_t at = 0;

    for (size_t i = 0; i < text.n && at < left.n; i++)
        at += text.p[i] == left.p[at];
    return at == left.n;
}

static void check_hiding(struct slice text, size_t step)
{
    const bool mixed_ends = memchr(text.p, '\r', text.n) != NULL;
    struct buf whole, pieces;

    hide(text, text.n + 1, &whole);
    hide(text, step, &pieces);
    require(is_part(buf_slice(&whole), text) && is_part(buf_slice(&pieces), text),
            "a byte that was not there");
    require(mixed_ends || slice_eq(buf_slice(&whole), buf_slice(&pieces)), "something else is hidden");
    require(memmem(text.p, text.n, "\"usage\"", 7) != NULL || whole.len == text.n, "a byte is missing");
    buf_free(&whole);
    buf_free(&pieces);
}

/* Of text that nobody has validated. */
static void check_prompt(struct slice text, struct prompt_fields f)
{
    const int64_t n = prompt_tokens(&f, text.p + text.n);

    require(n >= 0 && n <= (int64_t)text.n * 16 + 1, "tokens from nowhere");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text;

    if (size < 3)
        return 0;
    text = (struct slice){(const char *)data + 2, size - 2};
    check_counts(data[0] % 2 == 1, text, (size_t)data[1] + 1);
    check_hiding(text, (size_t)data[1] + 1);
    check_prompt(text, (struct prompt_fields){.prompt = text.p});
    check_prompt(text, (struct prompt_fields){.messages = text.p, .system = text.p + text.n / 2});
    check_prompt(text, (struct prompt_fields){.input = text.p, .instructions = text.p + text.n / 2});
    return 0;
}
