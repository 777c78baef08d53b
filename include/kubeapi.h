/* kubeapi: how to reach the Kubernetes API server: its address and CA, and who we are; and the share of each
 * loop turn that may be spent on what it sends. One for the process; the requests are kubewatch's. */
#ifndef KUBEAPI_H
#define KUBEAPI_H

#include "curlev.h"

/* Of one loop turn, for objects of the API: streams wait no longer than this, and for the end of one object.
 */
#define KUBEAPI_TURN_US   (1 * US_PER_MS)
#define KUBEAPI_TOKEN_MAX (64 * 1024)

struct kubeapi;

/* Copied. */
struct kubeapi_options {
    const char *kubeconfig;  /* file; "" = as a pod of the cluster */
    const char *account_dir; /* token, ca.crt and namespace of a pod */
    const char *host, *port; /* KUBERNETES_SERVICE_HOST and _PORT, of a pod; may be NULL */
    bool insecure;           /* do not verify the server's certificate */
    int64_t watch_us;        /* how long one watch lasts */
};

/* NULL: *error says why, freed by the caller. Reads the kubeconfig. */
struct kubeapi *kubeapi_new(struct loop *l, struct curlev *c, const struct kubeapi_options *o, char **error);
/* Reads what kubeapi_new reads and the files that requests need, and talks to nobody. False: as there. */
MUST_CHECK bool kubeapi_check(const struct kubeapi_options *o, char **error);
/* Watches must be gone. */
void kubeapi_free(struct kubeapi *a);

struct loop *kubeapi_loop(const struct kubeapi *a);
struct curlev *kubeapi_curl(const struct kubeapi *a);
/* Our own namespace; "default" where nothing says. */
const char *kubeapi_namespace(const struct kubeapi *a);
/* "https://10.96.0.1:443", for log lines too. */
const char *kubeapi_server(const struct kubeapi *a);
/* The server's certificate is not verified. */
bool kubeapi_is_insecure(const struct kubeapi *a);
int64_t kubeapi_watch_us(const struct kubeapi *a);
/* Sets on the handle what all requests share, with the token as it is now: it is read anew, for it rotates.
 * False: *error says why, freed by the caller. */
MUST_CHECK bool kubeapi_prepare(const struct kubeapi *a, CURL *easy, char **error);

/* Something that wants to work through a backlog, a part in each turn. */
struct kubeapi_work {
    struct list link;
    /* Does one small part. False: nothing is left. It may cancel itself or others. */
    bool (*run)(struct kubeapi_work *w);
};
void kubeapi_work_init(struct kubeapi_work *w, bool (*run)(struct kubeapi_work *w));
/* From the next turn on; those that have work take turns. */
void kubeapi_work_add(struct kubeapi *a, struct kubeapi_work *w);
void kubeapi_work_cancel(struct kubeapi_work *w);

/* 0 <= result < below, differently each time. below > 0. */
int64_t kubeapi_random(int64_t below);

#endif
