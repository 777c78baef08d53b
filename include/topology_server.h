/* topology_server: the model-servers in force, and where their pods come from. */
#ifndef TOPOLOGY_SERVER_H
#define TOPOLOGY_SERVER_H

#include "config.h"
#include "discover.h"
#include "htab.h"

struct topology;
struct topology_pod;

/* [model-server NAME] in force. */
struct topology_server {
    struct htab_node by_name; /* in topology.servers_by_name */
    struct topology *topology;
    char *name;
    struct config_server *spec;     /* a view into the running configuration */
    struct discover_source *source; /* NULL: its pods are given (topology_set_endpoints) */
    struct topology_pod **pods;
    size_t n_pods;
    bool kept;     /* during a reload: the new configuration has it too */
    bool disputed; /* a pod of it has another owner that says other things of it; that has been logged */
};

/* NULL: there is none of that name. */
struct topology_server *topology_server_find(const struct topology *t, const char *name);
/* The specification of a server of the configuration that is being put in force; NULL: it has none of that
 * name. */
const struct config_server *topology_server_find_spec(const struct topology *t, const char *name);
/* Puts the specification in force; it stays a view into the configuration. */
void topology_server_apply(struct topology *t, struct config_server *spec);
/* Those that are not `kept`. */
void topology_server_drop_unkept(struct topology *t);
/* The complete set of pods of a server whose pods are given; nothing happens when there is no such server. */
void topology_server_set_endpoints(struct topology *t, const char *server,
                                   const struct discover_endpoint *endpoints, size_t n);

#endif
