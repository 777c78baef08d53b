/* bench_openai: microseconds for openai_inspect of chat bodies of several sizes, with each kind of string
 * scan. Under callgrind the instructions of openai_inspect by its number of calls. */
#include "openai.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TURNS 50

/* What stands in the strings of conversations, as JSON. */
static const char *const parts[] = {
    "the queue holds a request until some pod has room and then sends it there, ",
    "because a session that just ended its turn still has its prefix in the cache.\\n",
    "He said: \\\"that depends on the batch size\\\".\\n",
    "\\tfor (int i = 0; i < n; i++)\\n\\t\\tsum += a[i];\\n",
    "we measured this twice, and the second run agreed with the first to within a few percent. ",
    "printf(\\\"%d\\\\n\\\", x); // C:\\\\temp\\\\out.txt\\n",
    "Gr\xc3\xb6\xc3\x9f\x65 \xe2\x80\x93 na\xc3\xafve caf\xc3\xa9, \xe4\xbd\xa0\xe5\xa5\xbd.\\n",
    "so the next turn costs less there than anywhere else, ",
};

/* The same as a client writes it that escapes all that is not ASCII. */
static const char *const ascii_parts[] = {
    "\\u4f60\\u597d\\uff0c\\u4e16\\u754c\\u3002\\n",
    "na\\u00efve caf\\u00e9 \\ud83d\\ude42 ",
};

static void put(struct buf *out, const char *text)
{
    if (!buf_append_slice(out, slice_of(text)))
        abort();
}

static void make_body(struct buf *out, size_t n_bytes, const char *const *text, size_t n_parts)
{
    size_t part = 0;

    put(out, "{\"messages\": [");
    for (int turn = 0; out->len + 100 < n_bytes; turn++) {
        const size_t end = out->len + 700;

        put(out, turn == 0 ? "" : ", ");
        put(out, turn % 2 == 0 ? "{\"role\": \"user\", \"content\": \""
                               : "{\"role\": \"assistant\", \"content\": \"");
        while (out->len < end && out->len + 100 < n_bytes)
            put(out, text[part++ * 5 % n_parts]);
        put(out, "\"}");
    }
    put(out, "], \"temperature\": 0.7, \"max_tokens\": 256, \"model\": \"bench\"}");
}

static double now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The best of several turns: what else the machine does only makes it slower. */
static double measure(char *body, size_t n, long rounds)
{
    struct openai_body found;
    double best = 1e9;

    for (int turn = 0; turn < TURNS; turn++) {
        const double start = now_us();

        for (long i = 0; i < rounds; i++) {
            if (openai_inspect(body, n, &found) != OPENAI_OK)
                abort();
        }
        if (now_us() - start < best)
            best = now_us() - start;
    }
    return best / (double)rounds;
}

static const char *only = "";

static void run(const char *name, struct buf *body, long total_bytes)
{
    static const enum openai_simd kinds[] = {OPENAI_PLAIN, OPENAI_SSE2, OPENAI_AVX2};
    static const char *const kind_names[] = {"plain", "SSE2", "AVX2"};
    const size_t n = body->len;
    const long rounds = total_bytes / (long)n / TURNS + 1;

    if (buf_reserve(body, OPENAI_SPARE) == NULL)
        abort();
    printf("%-16s %7zu bytes", name, n);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (strstr(kind_names[i], only) != NULL && openai_use_simd(kinds[i]))
            printf("  %s %8.2f us", kind_names[i], measure(body->data + body->start, n, rounds));
    }
    printf("\n");
}

static void run_file(const char *path, long total_bytes)
{
    struct buf body;
    FILE *f = fopen(path, "rb");
    size_t n = 1;

    buf_init(&body, SIZE_MAX / 4);
    while (f != NULL && n > 0) {
        char *at = buf_reserve(&body, 4096);

        if (at == NULL)
            abort();
        n = fread(at, 1, 4096, f);
        buf_commit(&body, n);
    }
    if (f == NULL || fclose(f) != 0 || body.len == 0) {
        perror(path);
        exit(2);
    }
    run("file", &body, total_bytes);
    buf_free(&body);
}

/* bench_openai [BYTES [KIND [FILE]]]: how many bytes to scan for each number; plain, SSE2 or AVX2 alone; a
 * body of one's own. */
int main(int argc, char **argv)
{
    static const size_t sizes[] = {256, 1024, 4096, 65536, 1048576};
    const long total_bytes = argc > 1 ? strtol(argv[1], NULL, 10) : 1000000000;

    if (argc > 2)
        only = argv[2];
    if (argc > 3) {
        run_file(argv[3], total_bytes);
        return 0;
    }
    for (size_t i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        const bool ascii = i >= ARRAY_LEN(sizes);
        struct buf body;

        buf_init(&body, SIZE_MAX / 4);
        make_body(&body, sizes[i % ARRAY_LEN(sizes)], ascii ? ascii_parts : parts,
                  ascii ? ARRAY_LEN(ascii_parts) : ARRAY_LEN(parts));
        run(ascii ? "chat in ASCII" : "chat", &body, total_bytes);
        buf_free(&body);
    }
    return 0;
}
