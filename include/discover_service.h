/* discover_service: the pods of one Kubernetes Service, by its EndpointSlices. */
#ifndef DISCOVER_SERVICE_H
#define DISCOVER_SERVICE_H

#include "discover.h"
#include "kubeapi.h"

struct discover_service;

struct discover_service_spec {
    const char *owner;   /* model-server, for log lines */
    const char *service; /* "[namespace/]name[:port]", which the configuration has checked; the namespace is
                            ours by default */
    /* The pods are others than before, or the first list came. */
    void (*changed)(void *arg);
    void *arg;
};

/* NULL: no curl handle. */
struct discover_service *discover_service_new(struct kubeapi *api, const struct discover_service_spec *spec);
void discover_service_free(struct discover_service *s);
/* Valid until the next change. */
const struct discover_endpoint *discover_service_endpoints(const struct discover_service *s, size_t *n);
/* A list has come in whole. */
bool discover_service_settled(const struct discover_service *s);

#endif
