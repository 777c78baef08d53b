/* kubeslices: the EndpointSlices of one Service and the pods they name. A pod is in use while it is ready and
 * not terminating; one that several slices name is one pod. Slices are known by uid. */
#ifndef KUBESLICES_H
#define KUBESLICES_H

#include "kubeobj.h"
#include "list.h"

#define KUBESLICES_MAX           4096  /* slices of one Service */
#define KUBESLICES_ENDPOINTS_MAX 16384 /* pods of one Service; more are not used */

struct kubeslices {
    struct list slices;
    size_t n_slices;
    char *port;          /* name of the pods' port; "" = the first one a slice has */
    int64_t port_number; /* when it was given as a number: the pods' own; else 0 */
    unsigned generation; /* of the list that is being read */
};

/* "[namespace/]name[:port]" into its parts; what is not there is empty. False: *error says what is expected,
 * static. */
MUST_CHECK bool kubeslices_parse_service(struct slice text, struct slice *namespace, struct slice *name,
                                         struct slice *port, const char **error);

/* port: copied. */
void kubeslices_init(struct kubeslices *s, struct slice port);
void kubeslices_free(struct kubeslices *s);
/* Takes a slice in or replaces it. *why says what is wrong (static); NULL: nothing. False: the slice counts
 * as without pods. */
MUST_CHECK bool kubeslices_put(struct kubeslices *s, const struct cJSON *slice, const char **why);
void kubeslices_delete(struct kubeslices *s, const struct cJSON *slice);
/* What a list does not show between the two calls is gone. A begin without an end before it changes nothing.
 */
void kubeslices_list_begin(struct kubeslices *s);
void kubeslices_list_end(struct kubeslices *s);
/* Pods in use, sorted by authority, each once. Freed by the caller with kubeobj_free_endpoints. */
struct kubeobj_endpoint *kubeslices_endpoints(const struct kubeslices *s, size_t *n);

#endif
