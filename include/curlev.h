/* curlev: libcurl's multi interface on the loop, for requests of our own (pods' metrics, the Kubernetes API).
 * Proxied bytes never come here. */
#ifndef CURLEV_H
#define CURLEV_H

#include <curl/curl.h>

#include "loop.h"

#define CURLEV_IDLE_MAX 64L /* connections kept open between requests */

struct curlev;

/* Embedded in the owner's object; the easy handle's CURLOPT_PRIVATE. */
struct curlev_job {
    CURL *easy; /* made by curlev_job_init, reused for each run */
    bool running;
    void (*done)(struct curlev_job *job, CURLcode result);
};

/* NULL when libcurl cannot be started. */
struct curlev *curlev_new(struct loop *l);
/* No job may run any more. */
void curlev_free(struct curlev *c);
/* Sets what every request of ours has: no proxy from the environment, no signals, HTTP only, no redirects.
 * False: no handle. */
MUST_CHECK bool curlev_job_init(struct curlev_job *job,
                                void (*done)(struct curlev_job *job, CURLcode result));
/* The caller has set URL, limits and callbacks on job->easy. `done` is called later. */
void curlev_start(struct curlev *c, struct curlev_job *job);
/* Ends a running job without `done`. Not from one of libcurl's callbacks. */
void curlev_stop(struct curlev *c, struct curlev_job *job);
/* Ends a running job without `done`; frees the handle. */
void curlev_job_free(struct curlev *c, struct curlev_job *job);

#endif
