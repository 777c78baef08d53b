/* discover: where pods come from. A source turns a list of authorities, or one DNS name, into endpoints (name
 * + address) and says when they change. Names are resolved by evdns on the loop, again and again; the last
 * good answer is kept. */
#ifndef DISCOVER_H
#define DISCOVER_H

#include <sys/socket.h>

#include "loop.h"

/* evdns does not tell a record's TTL with /etc/hosts and search domains in play, so names are asked for at
 * this pace. */
#define DISCOVER_INTERVAL_US  (5 * US_PER_S)
#define DISCOVER_RETRY_US     (1 * US_PER_S) /* while a name has never been resolved */
#define DISCOVER_MAX_PER_NAME 1024           /* addresses used of one DNS name */

struct discover;
struct discover_source;

struct discover_endpoint {
    char *name; /* the pod's identity and Host: as configured, or "address:port" for a DNS name with many
                   addresses */
    struct sockaddr_storage address;
    socklen_t address_bytes;
};

struct discover_spec {
    const char *owner; /* model-server, for log lines */
    char *const *pods; /* authorities, or */
    size_t n_pods;
    const char *dns; /* "host:port": every address is a pod; NULL when pods are given */
};

/* The complete set; valid during the call. */
typedef void discover_changed_fn(const struct discover_endpoint *endpoints, size_t n, void *arg);

/* NULL: evdns could not be started. */
struct discover *discover_new(struct loop *l);
void discover_free(struct discover *d);
/* `changed` is called before this returns when nothing needs resolving, else once every name has been
 * answered; then at every change. */
struct discover_source *discover_add(struct discover *d, const struct discover_spec *spec,
                                     discover_changed_fn *changed, void *arg);
void discover_remove(struct discover_source *s);
/* Has every name of the source been answered once, well or badly? */
bool discover_settled(const struct discover_source *s);

#endif
