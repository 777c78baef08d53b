/* discover_dns: one DNS name and its addresses, IPv4 and IPv6, asked for again when their time is over. evdns
 * on the loop; /etc/hosts comes first, as of the start. */
#ifndef DISCOVER_DNS_H
#define DISCOVER_DNS_H

#include "discover.h"

#define DISCOVER_DNS_RETRY_US (1 * US_PER_S) /* after a failure, while nothing is known */

struct discover_dns;
struct discover_dns_name;

/* NULL: evdns could not be started. The rules are borrowed. */
struct discover_dns *discover_dns_new(struct loop *l, const char *resolv_conf,
                                      const struct discover_rules *rules);
/* Names must have been removed. */
void discover_dns_free(struct discover_dns *d);

struct discover_dns_spec {
    const char *owner;     /* model-server, for log lines */
    const char *authority; /* "host:port" */
    bool all; /* every address is a pod, called "address:port"; else the first one, called as written */
    /* The addresses are others than before, or the first answer came. */
    void (*changed)(void *arg);
    void *arg;
};
struct discover_dns_name *discover_dns_add(struct discover_dns *d, const struct discover_dns_spec *spec);
/* May call `changed` before it returns. */
void discover_dns_start(struct discover_dns_name *name);
void discover_dns_remove(struct discover_dns_name *name);
/* Valid until the next change. */
const struct discover_endpoint *discover_dns_endpoints(const struct discover_dns_name *name, size_t *n);
/* Static text: why the last look-up failed; NULL: it worked, or none has ended. */
const char *discover_dns_problem(const struct discover_dns_name *name);
/* It has been answered, well or badly. */
bool discover_dns_settled(const struct discover_dns_name *name);

#endif
