/* Any JSON as Kthena's objects and pods: lines of "P", "S" or "R" (put) or "p", "s", "r" (delete), then an
 * object. After each the endpoints of every dirty server are sorted, views hold, and nothing leaks. */
#include "kthena.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_endpoints(struct kthena *k)
{
    struct kthena_server *s;

    while ((s = kthena_next_dirty(k)) != NULL) {
        size_t n;
        struct kubeobj_endpoint *e = kthena_endpoints(s, &n);

        for (size_t i = 1; i < n; i++)
            assert(strcmp(e[i - 1].authority, e[i].authority) < 0);
        kubeobj_free_endpoints(e, n);
    }
}

static void check_info(const struct kthena_info *info, void *arg)
{
    (void)arg;
    assert(info->kind != KTHENA_PODS || info->problem != NULL);
    assert(info->name != NULL && info->uid[0] != '\0' && strlen(info->unsupported) < KTHENA_SPEC_NOTES_MAX);
}

static void run_line(struct kthena *k, struct slice line)
{
    static const char letters[] = "PSR";
    const char letter = line.p[0];
    const char *at = strchr(letters, letter & ~0x20);
    struct cJSON *o = kubeobj_parse((struct slice){line.p + 1, line.n - 1});
    struct kthena_info info;

    if (at != NULL && *at != '\0' && (letter & 0x20) == 0) {
        if (kthena_put(k, (enum kthena_kind)(at - letters), o, &info))
            assert(info.problem != NULL || info.unsupported[0] != '\0' || info.warnings[0] != '\0');
    } else if (at != NULL && *at != '\0') {
        kthena_delete(k, (enum kthena_kind)(at - letters), o);
    }
    kubeobj_free(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice rest = {(const char *)data, size};
    struct kthena *k = kthena_new();
    struct kthena_view *view = NULL;

    while (rest.n > 0) {
        const struct slice line = slice_cut(&rest, '\n');
        struct kthena_view *next;

        if (line.n < 2)
            continue;
        run_line(k, line);
        next = kthena_view(k);
        kthena_view_free(view);
        view = next;
        check_endpoints(k);
    }
    kthena_each(k, check_info, NULL);
    kthena_view_free(view);
    kthena_free(k);
    return 0;
}
