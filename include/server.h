/* server: the daemon as a whole: what exists once per process, start, reload, drain and stop. */
#ifndef SERVER_H
#define SERVER_H

#include "certificate.h"
#include "client.h"
#include "cluster.h"
#include "config.h"
#include "kubeapi.h"
#include "log.h"
#include "sched.h"
#include "topology.h"
#include "upstream.h"

struct server {
    struct loop *loop;
    struct curlev *curl;
    struct discover *discover;
    struct discover_rules discover_rules;
    struct kubeapi *api;     /* NULL = nothing comes from Kubernetes */
    struct cluster *cluster; /* NULL = without Kthena's objects */
    struct config_inputs inputs;
    struct config *config;
    struct sched sched;
    struct topology topology;
    struct client_rules client_rules; /* inference listener */
    struct client_rules admin_rules;  /* metrics and debug listeners */
    struct upstream_rules upstream_rules;
    struct listener inference, metrics, debug;
    struct certificate certificate; /* of the inference listener */
    struct tls_context *trust;      /* for https pods; NULL = there are none */
    struct list clients;            /* inference connections */
    size_t n_clients, max_clients;
    struct list admin_clients;
    size_t n_admin_clients;
    size_t n_requests;
    struct log_sink access;
    struct buf head; /* scratch, filled and used within one call */
    struct event *signals[3];
    struct wheel_timer log_timer; /* while log lines wait */
    int64_t logs_flushed_us;
    int64_t started_us, longest_turn_us;
    struct metrics_series *turns;
    bool was_ready;                 /* once ready, only a drain ends it */
    bool draining;                  /* SIGTERM: not ready */
    int64_t drain_us;               /* when it began */
    struct wheel_timer drain_timer; /* end of the delay, then of the timeout */
    bool drain_delay_over;          /* the inference port is closed */
    struct loop_task check_idle;    /* draining: is the last request gone? */
    size_t cut;                     /* requests that the drain had to cut */
};

/* Takes over the configuration. False: the reason is logged. */
MUST_CHECK bool server_start(struct server *s, const struct config_inputs *in, struct config *c);
/* Until the drain is over. */
void server_run(struct server *s);
void server_free(struct server *s);

/* Has a first discovery been made, and is nobody draining? */
bool server_ready(struct server *s);
/* A request or a connection ended: a drain may be over. */
void server_check_idle(struct server *s);
/* What a start would find wrong with the way to the Kubernetes API, without the network. For --check. */
void server_check_surroundings(const struct config *c, struct config_report *report);
/* Logs each problem of a report as a warning or an error. */
void server_log_report(const struct config_report *r);

#endif
