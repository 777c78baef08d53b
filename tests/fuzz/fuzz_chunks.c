/* Chunked bodies made from the input, which is a program: each four bytes are one chunk, and may spoil it. So
 * deep states are reached that bytes alone do not find. What must hold: a good body gives its content and
 * ends where it ends; a spoiled one gives the content before the spoiled place, or an error; the pieces it
 * comes in make no difference. */
#include "http1.h"
#include "buf.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_chunks: %s\n", what);
    abort();
}

struct program {
    struct buf text, content;
    bool spoiled;
};

static void put(struct program *p, const char *text, size_t n)
{
    require(buf_append(&p->text, text, n), "memory");
}

static void put_text(struct program *p, const char *text)
{
    put(p, text, strlen(text));
}

/* Size lines that mean n. */
static void put_size(struct program *p, size_t n, uint8_t form)
{
    static const char *const forms[] = {"%zx", "%zX", "0%zx", "00000%zX"};
    static const char *const extras[] = {"", ";", ";a", ";a=b;c", ";a=\"x\\\"y\"", "; \t x", ";\xc3\xa9", ""};

    require(buf_printf(&p->text, forms[form & 3], n), "memory");
    put_text(p, extras[form >> 2 & 7]);
    put_text(p, "\r\n");
}

/* What is no chunk, in each state. The content before it counts. */
static void spoil(struct program *p, uint8_t how)
{
    static const char *const places[] = {"\r\n",
                                         "5\nhello\r\n",
                                         "g\r\n",
                                         " 5\r\n",
                                         "5 \r\n",
                                         "-1\r\n",
                                         "+5\r\n",
                                         "0x5\r\n",
                                         "5;\n\r\n",
                                         "5;\x7f\r\n",
                                         "5;\x01\r\n",
                                         "5\r",
                                         "fffffffffffffffff\r\n",
                                         "8000000000000000\r\n",
                                         "0\r\n:\r\n",
                                         "0\r\nno colon\r\n",
                                         "0\r\nx y: z\r\n",
                                         "0\r\nx: a\nb\r\n",
                                         "0\r\n\n",
                                         "0\r\n\rx"};

    p->spoiled = true;
    put_text(p, places[how % ARRAY_LEN(places)]);
    put_text(p, "!");
}

static void put_chunk(struct program *p, const uint8_t op[4])
{
    char bytes[300];
    const size_t n = 1 + op[1];

    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)("\r\n0;:ab"[(i * (op[3] | 1u) + op[2]) % 7]);
    put_size(p, n, op[2]);
    put(p, bytes, n);
    require(buf_append(&p->content, bytes, n), "memory");
    if ((op[0] & 0xf0) == 0xf0) { /* longer than its size */
        p->spoiled = true;
        put_text(p, op[0] & 1 ? "x\r\n" : "\n");
    } else {
        put_text(p, "\r\n");
    }
}

static void put_end(struct program *p, uint8_t how)
{
    static const char *const ends[] = {"0\r\n\r\n",
                                       "000\r\n\r\n",
                                       "0;x=y\r\n\r\n",
                                       "0\r\nX: y\r\n\r\n",
                                       "0\r\nContent-Length: 7\r\nX:\r\n\r\n",
                                       "0\r\nA: \xc3\xa9\t\r\n\r\n"};

    put_text(p, ends[how % ARRAY_LEN(ends)]);
}

static void make(struct program *p, const uint8_t *data, size_t size)
{
    buf_init(&p->text, SIZE_MAX / 4);
    buf_init(&p->content, SIZE_MAX / 4);
    p->spoiled = false;
    for (; size >= 4 && !p->spoiled; data += 4, size -= 4) {
        if ((data[0] & 0xf0) == 0xe0)
            spoil(p, data[1]);
        else
            put_chunk(p, data);
    }
    if (!p->spoiled)
        put_end(p, size > 0 ? data[0] : 0);
}

/* Feeds the body in pieces of `piece` bytes. Returns whether it ended well. */
static bool decode(const struct program *p, size_t piece, struct buf *content, size_t *used_n)
{
    static const char head_text[] = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    const struct slice text = buf_slice(&p->text);
    struct http1_head *head = http1_head_new();
    struct http1 h;

    *used_n = 0;
    http1_start(&h, HTTP1_REQUEST, head, 1024, false);
    require(http1_head(&h, head_text, sizeof head_text - 1) > 0, "the plainest head is refused");
    for (size_t end = 0; end < text.n && !h.done && h.error == HTTP1_OK;) {
        end = text.n - end < piece ? text.n : end + piece;
        while (*used_n < end && !h.done) {
            struct slice span;
            const ssize_t used = http1_body(&h, text.p + *used_n, end - *used_n, &span);

            if (used < 0)
                break;
            require(used > 0, "no progress");
            require(buf_append_slice(content, span), "memory");
            *used_n += (size_t)used;
        }
    }
    http1_head_free(head);
    return h.done;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {SIZE_MAX, 1, 2, 3, 5, 16, 17, 64, 4096};
    struct program p;

    if (size > 400)
        return 0;
    make(&p, data, size);
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        struct buf content;
        size_t used;

        buf_init(&content, SIZE_MAX / 4);
        require(decode(&p, pieces[i], &content, &used) == !p.spoiled,
                p.spoiled ? "a bad body is taken" : "a good body is refused");
        require(slice_eq(buf_slice(&content), buf_slice(&p.content)), "another content");
        require(p.spoiled || used == p.text.len, "another end");
        buf_free(&content);
    }
    buf_free(&p.text);
    buf_free(&p.content);
    return 0;
}
