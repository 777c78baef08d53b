/* cluster: Kthena's objects in the cluster put in force: watches them and gives the topology their servers,
 * routes and pods, beside those of the configuration. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include "config.h"
#include "kthena.h"
#include "kubeapi.h"
#include "topology.h"

/* So long after a change of servers or routes, all that have changed by then are put in force: that costs a
 * pass over all of them. Pods come and go at once. */
#define CLUSTER_APPLY_US (100 * US_PER_MS)
#define CLUSTER_GIVE_US  (5 * US_PER_MS) /* of that turn, for the pods of new servers */

struct cluster;

/* Starts watching. namespace: "" = all. Both pointers are borrowed. */
struct cluster *cluster_new(struct kubeapi *api, struct topology *t, const char *namespace);
/* After topology_free. */
void cluster_free(struct cluster *c);
/* Puts the configuration in force with what is known of the cluster. It must stay valid until the next call.
 */
void cluster_apply(struct cluster *c, const struct config *base);
/* Everything has been listed once and is in force. */
bool cluster_settled(const struct cluster *c);

/* For dumps. */
struct cluster_resource {
    const char *name;
    size_t objects;
    bool synced, up;
};
struct cluster_resource cluster_resource(const struct cluster *c, enum kthena_kind kind);
void cluster_each(const struct cluster *c, void (*fn)(const struct kthena_info *info, void *arg), void *arg);

#endif
