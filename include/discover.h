/* discover: where pods come from. A source turns a list of authorities, a DNS name or a Kubernetes Service
 * into endpoints (name, address, uid) and says when they change. What was last known is kept. */
#ifndef DISCOVER_H
#define DISCOVER_H

#include <sys/socket.h>

#include "loop.h"

struct discover;
struct discover_source;
struct kubeapi;

struct discover_endpoint {
    char *name; /* the pod's Host, and its name for people: as configured, or "address:port" */
    char *uid; /* of the pod, in Kubernetes: another uid at the same address is another pod. "" = not known */
    struct sockaddr_storage address;
    socklen_t address_bytes;
};

/* Exactly one of pods, dns and service. */
struct discover_spec {
    const char *owner; /* model-server, for log lines */
    char *const *pods; /* authorities */
    size_t n_pods;
    const char *dns;     /* "host:port": every address is a pod */
    const char *service; /* "[namespace/]name[:port]" of a Kubernetes Service */
};

/* May change on reload. */
struct discover_rules {
    int64_t ttl_min_us, ttl_max_us; /* an answer counts for its TTL, but within these */
};

/* The complete set; valid during the call. */
typedef void discover_changed_fn(const struct discover_endpoint *endpoints, size_t n, void *arg);

/* NULL: evdns could not be started. resolv_conf: file with the name servers. */
struct discover *discover_new(struct loop *l, const char *resolv_conf, const struct discover_rules *rules);
void discover_free(struct discover *d);
/* Needed before a source with a service is added; borrowed. */
void discover_use_api(struct discover *d, struct kubeapi *api);
/* `changed` is called before this returns when nothing needs looking up, else once everything has been
 * answered; then at every change. */
struct discover_source *discover_add(struct discover *d, const struct discover_spec *spec,
                                     discover_changed_fn *changed, void *arg);
void discover_remove(struct discover_source *s);
/* Has every name of the source been answered once, well or badly, and its service been listed? */
bool discover_settled(const struct discover_source *s);

/* Static text: why the last look-up of a name failed, of the first that did; NULL: none. */
const char *discover_problem(const struct discover_source *s);

/* False: not "address:port". Name and uid are copied. */
MUST_CHECK bool discover_set_endpoint(struct discover_endpoint *e, const char *authority, const char *uid);
void discover_free_endpoints(struct discover_endpoint *e, size_t n);

#endif
