/* kthena_spec: what the specs of Kthena's objects mean for the router: a ModelServer becomes a set of pods
 * that are alike, a ModelRoute a route. Says which of their fields have no meaning here, and which cannot be
 * as they are. Keeps nothing. */
#ifndef KTHENA_SPEC_H
#define KTHENA_SPEC_H

#include "config.h"
#include "kubeobj.h"

#define KTHENA_SPEC_LABELS_MAX 512
#define KTHENA_SPEC_NOTES_MAX  1024

/* "key=value" texts. */
struct kthena_labels {
    char **pairs;
    size_t n;
};

struct kthena_notes {
    char fields[KTHENA_SPEC_NOTES_MAX]; /* fields that are not supported, as paths, each once, "," between */
    char warnings[KTHENA_SPEC_NOTES_MAX]; /* what is wrong in it, a text each, line ends between */
    const char *problem;                  /* why the object is not used at all; static; NULL = it is */
};

struct kthena_server_spec {
    struct config_server server; /* called "namespace/name"; no pods: they are given as they match */
    struct kthena_labels labels; /* that a pod must have */
    int64_t port;
};

/* Both fill *out in any case; it is freed with the matching call. The object is used when notes->problem is
 * NULL. */
void kthena_spec_server(const struct cJSON *object, const struct kubeobj_meta *meta,
                        struct kthena_server_spec *out, struct kthena_notes *notes);
void kthena_spec_route(const struct cJSON *object, const struct kubeobj_meta *meta, struct route_spec *out,
                       struct kthena_notes *notes);
void kthena_spec_free_server(struct kthena_server_spec *s);

/* Adds the members of an object of labels. False: not all of them, for one is no string or they are too many.
 */
MUST_CHECK bool kthena_spec_labels_read(const struct cJSON *labels, struct kthena_labels *out);
void kthena_spec_labels_free(struct kthena_labels *l);
/* True: every one of `wanted` is among `has`. Nothing wanted matches nothing. */
bool kthena_spec_labels_match(const struct kthena_labels *wanted, const struct kthena_labels *has);

#endif
