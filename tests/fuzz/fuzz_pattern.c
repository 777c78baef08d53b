/* A pattern and a value from any bytes, parted by the first zero byte. What is understood must give the same
 * answer twice, and a literal text in \Q..\E is found in itself. */
#include "pattern.h"
#include "mem.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_quoted(struct slice text)
{
    const char *error;
    char *quoted = mem_printf("\\Q%.*s", SLICE_ARG(text));
    struct pattern *p = pattern_new(slice_of(quoted), &error);

    if (p != NULL)
        assert(memmem(text.p, text.n, "\\E", 2) != NULL || pattern_matches(p, text));
    pattern_free(p);
    mem_free(quoted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice value = {(const char *)data, size}, text = slice_cut(&value, '\0');
    const char *error;
    struct pattern *p = pattern_new(text, &error);

    assert((p == NULL) == (error != NULL));
    if (p != NULL)
        assert(pattern_matches(p, value) == pattern_matches(p, value));
    pattern_free(p);
    if (text.n < PATTERN_TEXT_MAX / 2)
        fuzz_quoted(text);
    return 0;
}
