/* kthena: Kthena's objects in a cluster as far as they are known: ModelServers with the pods that their
 * selectors match, and ModelRoutes. Fed with objects, asked for servers, routes and endpoints; watches
 * nothing itself. */
#ifndef KTHENA_H
#define KTHENA_H

#include "kthena_spec.h"

enum kthena_kind { KTHENA_PODS, KTHENA_SERVERS, KTHENA_ROUTES, KTHENA_KINDS };

#define KTHENA_PODS_MAX    65536
#define KTHENA_OBJECTS_MAX 8192 /* of the other kinds */

struct kthena;
struct kthena_server;

/* One object for people. Valid during the call. */
struct kthena_info {
    enum kthena_kind kind;
    const char *name; /* "namespace/name" */
    const char *uid;
    const char *unsupported;        /* as kthena_notes.fields */
    const char *warnings;           /* as kthena_notes.warnings */
    const char *problem;            /* why it is not used; NULL = it is */
    const struct route_spec *route; /* of a ModelRoute; else NULL */
    bool *told; /* the caller's, false at first; a spec that changes is another object with another one */
};

struct kthena *kthena_new(void);
/* Views must have been freed. */
void kthena_free(struct kthena *k);
/* What a list does not show between the two calls is gone. */
void kthena_list_begin(struct kthena *k, enum kthena_kind kind);
void kthena_list_end(struct kthena *k, enum kthena_kind kind);
/* The object is there, as of now. An object of the same name and another uid takes the old one's place. *info
 * is filled when something about it is worth saying (its pointers live until the next call): then true is
 * returned. */
bool kthena_put(struct kthena *k, enum kthena_kind kind, const struct cJSON *object,
                struct kthena_info *info);
void kthena_delete(struct kthena *k, enum kthena_kind kind, const struct cJSON *object);
size_t kthena_count(const struct kthena *k, enum kthena_kind kind);
/* There is a ModelServer of that name ("namespace/name"), and it is used. */
bool kthena_has_server(const struct kthena *k, const char *name);
/* Every ModelServer and ModelRoute, and the pods that have a problem. */
void kthena_each(const struct kthena *k, void (*fn)(const struct kthena_info *info, void *arg), void *arg);

/* Servers and routes at one moment, routes oldest first. The entries belong to the view. */
struct kthena_view {
    const struct config_server *const *servers;
    size_t n_servers;
    const struct route_spec *const *routes;
    size_t n_routes;
};
/* Servers or routes are others than in the last view. */
bool kthena_changed(const struct kthena *k);
struct kthena_view *kthena_view(struct kthena *k);
void kthena_view_free(struct kthena_view *v);

/* A server of the last view whose pods are others than when it was last returned here; NULL: none. One that
 * is gone since then counts on until the next view: its pods are in use, and may not stay so. */
struct kthena_server *kthena_next_dirty(struct kthena *k);
const char *kthena_server_name(const struct kthena_server *s);
/* Its pods that are ready and do not terminate, sorted; freed with kubeobj_free_endpoints. */
struct kubeobj_endpoint *kthena_endpoints(const struct kthena_server *s, size_t *n);

#endif
