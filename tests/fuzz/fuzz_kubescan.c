/* Any bytes as an answer of the Kubernetes API: whole and in pieces the same objects must come out, and each
 * object goes through the readers of all kinds. The first input byte chooses list or watch, the second the
 * size of the pieces. */
#include "kubescan.h"

#include <assert.h>
#include <stdlib.h>

#include "kubeslices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    size_t objects, bytes;
    enum kubescan_step last;
    bool at_rest;
};

static void read_endpoints(const struct kubeslices *s)
{
    size_t n;
    struct kubeobj_endpoint *e = kubeslices_endpoints(s, &n);

    for (size_t i = 1; i < n; i++)
        assert(strcmp(e[i - 1].authority, e[i].authority) < 0);
    kubeobj_free_endpoints(e, n);
}

static void read_object(struct kubeslices *s, struct slice text)
{
    struct cJSON *o = kubeobj_parse(text);
    const struct cJSON *inner;
    struct kubeobj_meta meta;
    struct slice a, b;
    const char *why = NULL;

    (void)kubeobj_event(o, &inner);
    (void)kubeobj_status(o, &a);
    if (kubeobj_list(o, &a, &b))
        assert(a.n > 0);
    if (kubeobj_meta(inner, &meta))
        assert(meta.uid.n > 0);
    if (!kubeslices_put(s, o, &why))
        assert(why != NULL);
    if (!kubeslices_put(s, inner, &why))
        assert(why != NULL);
    read_endpoints(s);
    kubeslices_delete(s, inner);
    kubeobj_free(o);
}

static struct outcome run(enum kubescan_mode mode, struct slice text, size_t step, struct kubeslices *slices)
{
    struct outcome out = {0, 0, KUBESCAN_MORE, false};
    struct kubescan s;

    kubescan_init(&s);
    kubescan_start(&s, mode);
    while (text.n > 0 && out.last != KUBESCAN_BAD) {
        struct slice in = {text.p, text.n < step ? text.n : step};

        text.p += in.n, text.n -= in.n;
        do {
            out.last = kubescan_next(&s, &in);
            if (out.last == KUBESCAN_OBJECT) {
                out.objects++;
                out.bytes += s.object.len;
                assert(buf_slice(&s.object).p[0] == '{');
                if (slices != NULL)
                    read_object(slices, buf_slice(&s.object));
            }
        } while (out.last == KUBESCAN_OBJECT || (out.last == KUBESCAN_DONE && in.n > 0));
        if (out.last == KUBESCAN_DONE)
            out.last = KUBESCAN_MORE;
    }
    out.at_rest = kubescan_at_rest(&s);
    assert((out.last == KUBESCAN_BAD) == (s.error != NULL));
    kubescan_free(&s);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum kubescan_mode mode;
    struct slice text;
    struct kubeslices slices;
    struct outcome whole, pieces;

    if (size < 2)
        return 0;
    mode = (data[0] & 1) != 0 ? KUBESCAN_WATCH : KUBESCAN_LIST;
    text = (struct slice){(const char *)data + 2, size - 2};
    kubeslices_init(&slices, (data[0] & 2) != 0 ? SLICE("http") : SLICE(""));
    kubeslices_list_begin(&slices);
    whole = run(mode, text, text.n + 1, &slices);
    pieces = run(mode, text, (size_t)data[1] + 1, NULL);
    kubeslices_list_end(&slices);
    read_endpoints(&slices);
    kubeslices_free(&slices);
    assert(whole.objects == pieces.objects && whole.bytes == pieces.bytes &&
           whole.at_rest == pieces.at_rest && whole.last == pieces.last);
    return 0;
}
