/* topology_pod: the pods that model-servers have, with their connections and scrapes: each as long as a
 * server has it or a request runs there. How a pod is spoken to is what its first server says. */
#ifndef TOPOLOGY_POD_H
#define TOPOLOGY_POD_H

#include "discover.h"
#include "htab.h"
#include "scrape.h"
#include "upstream.h"

struct topology;
struct topology_server;

struct topology_pod {
    struct htab_node by_name; /* in topology.pods_by_name */
    char *uid;                /* "" = not known */
    bool asleep;              /* its engine said so last; that has been logged */
    bool replaced;            /* another pod has its address now; it finishes what it runs */
    struct pod *pod;
    struct scrape *scrape;
    /* How it is spoken to is what one of its servers says, the first one that had it. NULL: none has it. */
    struct topology_server *owner;
    unsigned owner_uses; /* how often it is in the owner's set: twice while that is replaced */
    enum promtext_engine engine;
    char *tls_name;    /* in its certificate; NULL: plain HTTP */
    struct buf served; /* names of the models it lists, each ended by a line end; where they are read */
    unsigned users;    /* servers that have it in their set */
};

/* The server has the pod at the endpoint from now on. */
struct topology_pod *topology_pod_use(struct topology_server *s, const struct discover_endpoint *e);
/* And not any more: when no server has it, it finishes what it runs and goes. */
void topology_pod_drop(struct topology_server *s, struct topology_pod *p);
/* It says that it has the model, as it was read last. */
bool topology_pod_lists(const struct topology_pod *p, struct slice name);
/* A request on a pod ended: a pod that leaves may be free to go. */
void topology_pod_idle(struct topology *t);
/* A connect to the pod failed or worked. */
void topology_pod_connect_failed(struct topology *t, struct pod *p);
void topology_pod_connected(struct topology *t, struct pod *p);
/* Frees the pods that nobody has or uses any more; topology.reap. */
void topology_pod_on_reap(struct loop_task *task);

#endif
