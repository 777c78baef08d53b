/* kubewatch: keeps up with one kind of object of the Kubernetes API: a list in pages, then watches that go on
 * from its version. Whatever goes wrong, it comes back by itself, and what was known stays known until a new
 * list says otherwise. */
#ifndef KUBEWATCH_H
#define KUBEWATCH_H

#include "kubeapi.h"
#include "kubeobj.h"

#define KUBEWATCH_PAGE         500             /* objects of a list asked for at once */
#define KUBEWATCH_HELD_MAX     (256 * 1024)    /* bytes read and not worked through: then the server waits */
#define KUBEWATCH_LIST_US      (60 * US_PER_S) /* limit of one page */
#define KUBEWATCH_RELIST_US    (30 * 60 * US_PER_S) /* a list at least this often, in case an event was lost */
#define KUBEWATCH_RETRY_US     (500 * US_PER_MS)    /* after the first failure; doubles up to */
#define KUBEWATCH_RETRY_MAX_US (30 * US_PER_S)
#define KUBEWATCH_LINE_US                                                                                    \
    (5 * US_PER_S) /* silence in the middle of an event; then it is not coming any more */
#define KUBEWATCH_STEADY_US (5 * US_PER_S) /* a watch that lasted this long was a good one */

struct kubewatch;

struct kubewatch_ops {
    /* What is not put between the two is gone. A second begin without an end: the first list was broken off.
     */
    void (*list_begin)(void *arg);
    void (*list_end)(void *arg);
    /* The object is there, as of now. */
    void (*put)(const struct cJSON *object, void *arg);
    void (*deleted)(const struct cJSON *object, void *arg);
};

struct kubewatch_spec {
    const char *path;     /* "/api/v1/namespaces/llm/pods" */
    const char *selector; /* labels; NULL = all */
    const char *resource; /* "pods": for metrics and log lines */
};

/* Starts in a later turn. NULL: no curl handle. */
struct kubewatch *kubewatch_new(struct kubeapi *a, const struct kubewatch_spec *spec,
                                const struct kubewatch_ops *ops, void *arg);
/* Not from its own ops. */
void kubewatch_free(struct kubewatch *w);
/* A list has come in whole, at some time. */
bool kubewatch_synced(const struct kubewatch *w);
/* Synced, and its requests work. */
bool kubewatch_is_up(const struct kubewatch *w);

#endif
