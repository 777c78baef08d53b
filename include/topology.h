/* topology: the routes in force, with the model-servers (topology_server.h) and pods (topology_pod.h) that
 * they lead to: built from a configuration, changed by reloads and by discovery. Owns the routes' models with
 * their queues. */
#ifndef TOPOLOGY_H
#define TOPOLOGY_H

#include "accesslog.h"
#include "config.h"
#include "htab.h"
#include "metrics.h"
#include "model.h"
#include "outcome.h"
#include "route.h"
#include "sched.h"
#include "scrape.h"
#include "topology_pod.h"
#include "topology_server.h"

#define TOPOLOGY_MAX_SERIES 16

/* The series that a request of a route counts in when it ends in this way. */
struct topology_series {
    const char *path; /* label, from a fixed table */
    unsigned status;
    enum outcome outcome;
    struct metrics_series *requests, *duration, *prefill, *decode, *tokens[2]; /* tokens: input, output */
};

/* A public name that has ways; its users, their limits and its counts outlive each of them. */
struct topology_name {
    struct htab_node by_name; /* in topology.names */
    char *text;
    struct list routes; /* its ways, also those that are removed and still run requests */
};

/* One way in force: a public name, by one route, to one server, with a queue of its own. What a request is
 * resolved to. Lives until the last request on it ends, also when a reload removed it. */
struct topology_route {
    struct list link, in_name; /* in topology.alive, in public_name->routes */
    struct topology_name *public_name;
    char *name, *server_name; /* of the route, of the server */
    const char *model_name;   /* public */
    struct log_known log_model_name;
    struct accesslog_route log_names;
    char *upstream_model; /* what pods call it; NULL = the public name */
    char *upstream_value; /* the same as JSON string, quotes included; NULL = body untouched */
    int64_t timeout_us;   /* to an answer's head; <= 0 = none */
    struct model *model;
    bool says_sticky;               /* log and metrics tell whether sessions met their pod */
    struct topology_server *server; /* NULL when removed, or when there is none of that name */
    unsigned refs;
    unsigned page; /* of metrics it was counted on last */
    bool kept;
    size_t in_flight;       /* its requests that have a slot on a pod */
    int64_t recent_wait_us; /* moving average of queue waits, for Retry-After */
    struct metrics_series *active_downstream, *queue_duration, *overtakes,
        *ttft[2]; /* queue_duration: NULL when no strategy is on */
    /* Used so far; emptied when a reload changes the labels. */
    struct topology_series series[TOPOLOGY_MAX_SERIES];
    size_t n_series;
};

struct topology {
    struct loop *loop;
    struct curlev *curl;
    struct discover *discover;
    struct sched *sched;
    struct scrape_rules scrape_rules;
    struct scrape_pace scrape_pace;
    struct topology_server **servers;
    size_t n_servers;
    struct htab servers_by_name;
    struct route_table table;       /* public names -> struct topology_route */
    const struct route_spec *specs; /* a view into the running configuration, for dumps */
    size_t n_specs;
    struct topology_route **routes;
    size_t n_routes;
    struct htab names;          /* those of `alive` */
    struct list alive;          /* every route that is not freed yet, removed ones too */
    struct topology_pod **pods; /* also those that leave and still run requests */
    size_t n_pods;
    struct htab pods_by_name;
    struct loop_task reap;
    bool ending; /* topology_free: what goes now goes without a word */
    void (*on_promoted)(struct boostq_item *item, void *arg); /* given to each queue; may be NULL */
};

void topology_init(struct topology *t, struct loop *l, struct curlev *c, struct discover *d, struct sched *s);
/* Puts the configuration's servers and routes in force; what stays keeps its pods, queue and tracker. The
 * configuration must stay valid until the next call. Routes that vanish answer their queued requests through
 * sched's `vanished`. */
void topology_apply(struct topology *t, const struct config *c);
void topology_free(struct topology *t);
/* Where all requests of a public name go, whatever they are; NULL: there is no such name, or topology_decide
 * is to be asked. */
struct topology_route *topology_only(const struct topology *t, struct slice name);
/* Where the request of a public name goes, or NULL: no such name, or no rule of it fits. *known tells the two
 * apart. The query is looked at only where the name has rules, several targets or sessions of its own
 * (route_decide). */
struct topology_route *topology_decide(const struct topology *t, struct slice name, struct route_query *q,
                                       bool *known);
/* What the route's pods call the model. */
const char *topology_upstream_model(const struct topology_route *r);
struct topology_route *topology_ref(struct topology_route *r);
void topology_unref(struct topology *t, struct topology_route *r);
/* Discovery has answered for every server. */
bool topology_ready(const struct topology *t);
/* The server has other pods than before: its routes have them, too, and what waits for none goes to another
 * target. */
void topology_take_pods(struct topology *t, const struct topology_server *s);
/* The pod lists other models than before: routes of adapters heed it. */
void topology_note_served(struct topology *t, const struct topology_pod *p);
/* NULL is a text of its own. */
static inline bool topology_same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

#endif
