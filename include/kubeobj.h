/* kubeobj: what every Kubernetes object has: an identity, a version, an envelope when it comes by a watch,
 * and the Status the API server answers with when it refuses. Reads trees made by cJSON; what a field means
 * for the router is for the modules of the kinds. */
#ifndef KUBEOBJ_H
#define KUBEOBJ_H

#include "util.h"

struct cJSON;

/* Slices into the tree. An object without uid or name is none (kubeobj_meta returns false). */
struct kubeobj_meta {
    struct slice uid, namespace, name, version;
    struct slice created; /* RFC 3339 in UTC: texts compare as times do */
    bool deleting;        /* a deletion time is set: it will go */
};

enum kubeobj_event {
    KUBEOBJ_ADDED,
    KUBEOBJ_MODIFIED,
    KUBEOBJ_DELETED,
    KUBEOBJ_BOOKMARK,
    KUBEOBJ_ERROR,
    KUBEOBJ_UNKNOWN
};

/* An address of a pod, and the pod's uid ("" = not known). */
struct kubeobj_endpoint {
    char *authority; /* "1.2.3.4:8000", "[::1]:8000" */
    char *uid;
};

/* A tree, freed by the caller with kubeobj_free, or NULL: not JSON, or more than one value. */
struct cJSON *kubeobj_parse(struct slice text);
void kubeobj_free(struct cJSON *o);

/* The member, or NULL. Any argument may be NULL or of another type: then there is nothing. */
const struct cJSON *kubeobj_get(const struct cJSON *o, const char *key);
struct slice kubeobj_text(const struct cJSON *o, const char *key);         /* {NULL, 0}: no string */
bool kubeobj_bool(const struct cJSON *o, const char *key, bool otherwise); /* null counts as absent */
bool kubeobj_int(const struct cJSON *o, const char *key, int64_t *value);  /* a whole number */
/* The value of a node itself. {NULL, 0}: no string; false: no whole number. */
bool kubeobj_int_of(const struct cJSON *node, int64_t *value);
struct slice kubeobj_string(const struct cJSON *node);

MUST_CHECK bool kubeobj_meta(const struct cJSON *o, struct kubeobj_meta *meta);
/* One event of a watch; *object: what it is about. */
enum kubeobj_event kubeobj_event(const struct cJSON *event, const struct cJSON **object);
/* The parts of a list around its items. more: the token of the next page, "" = none. False: no list. */
MUST_CHECK bool kubeobj_list(const struct cJSON *outer, struct slice *version, struct slice *more);
/* Code and text of a Status; 0 and "" where it has none. */
int kubeobj_status(const struct cJSON *status, struct slice *message);

/* The name of a namespace or a Service: lower-case letters, digits and dashes, these neither first nor last;
 * at most 63. */
bool kubeobj_is_label(struct slice s);

/* "address:port", or NULL: not an IP address or no port. Freed by the caller. */
char *kubeobj_authority(struct slice address, int64_t port);
void kubeobj_free_endpoints(struct kubeobj_endpoint *e, size_t n);
/* Sorts by authority and drops what is twice. Returns how many are left. */
size_t kubeobj_sort_endpoints(struct kubeobj_endpoint *e, size_t n);

#endif
