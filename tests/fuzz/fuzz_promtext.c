/* Any bytes as a metrics page: whole and in pieces must give the same numbers, and the numbers must make
 * sense. The first input byte chooses the engine, the second the size of the pieces. */
#include "promtext.h"

#include <assert.h>
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a >= b && a <= b;
}

static void run(struct promtext *p, enum promtext_engine engine, struct slice page, size_t step)
{
    promtext_start(p, engine);
    while (page.n > 0) {
        size_t n = page.n < step ? page.n : step;

        promtext_feed(p, (struct slice){page.p, n});
        page.p += n;
        page.n -= n;
    }
    assert(promtext_finish(p) == (p->samples > 0));
}

static void check_agreement(const struct promtext *a, const struct promtext *b)
{
    assert(a->samples == b->samples);
    assert(same(a->numbers.running, b->numbers.running));
    assert(same(a->numbers.waiting, b->numbers.waiting));
    assert(same(a->numbers.waiting_min, b->numbers.waiting_min));
    assert(same(a->numbers.kv_usage, b->numbers.kv_usage));
}

static void check_sense(const struct pod_numbers *n)
{
    assert(isnan(n->running) || n->running >= 0);
    assert(isnan(n->kv_usage) || n->kv_usage >= 0);
    assert(isnan(n->waiting) == isnan(n->waiting_min));
    assert(isnan(n->waiting) || (n->waiting_min >= 0 && n->waiting_min <= n->waiting));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct promtext whole, pieces;
    enum promtext_engine engine;
    struct slice page;

    if (size < 2)
        return 0;
    engine = (enum promtext_engine)(data[0] % 3);
    page = (struct slice){(const char *)data + 2, size - 2};
    run(&whole, engine, page, page.n + 1);
    run(&pieces, engine, page, (size_t)data[1] + 1);
    check_agreement(&whole, &pieces);
    check_sense(&whole.numbers);
    assert(engine != PROMTEXT_NONE || isnan(whole.numbers.waiting));
    return 0;
}
