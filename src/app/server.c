/* Start, reload, drain, stop. */
#include "server.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "admin.h"
#include "clock.h"
#include "front.h"
#include "mem.h"
#include "metrics.h"
#include "request.h"

/* Descriptors that are not client or pod connections: listeners, logs, epoll, scrapes, DNS; a quarter of a
 * small limit, and never less than what the router has at rest. */
#define SERVER_RESERVED_FDS 160
#define SERVER_LEAST_FDS    20
#define SERVER_MAX_FDS      (1024 * 1024)
#define SERVER_FEW_FDS      256
/* How long a connection may be idle when the port has closed: a client that has just connected, or has an
 * answer that promised to keep the connection, may have a request on its way. */
#define SERVER_LAST_IDLE_US (500 * US_PER_MS)
/* More than the largest MAX_HEADER_BYTES with our own fields. */
#define SERVER_SCRATCH_MAX (32 * 1024 * 1024)

/* ---- configuration -> what is in force ---- */

void server_log_report(const struct config_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->problems[i].fatal)
            log_error("configuration", LOG_STR("problem", r->problems[i].text));
        else
            log_warn("configuration", LOG_STR("problem", r->problems[i].text));
    }
}

static size_t server_raise_fd_limit(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0)
        return 1024;
    if (r.rlim_max > SERVER_MAX_FDS)
        r.rlim_max = SERVER_MAX_FDS;
    if (r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &r) < 0 && getrlimit(RLIMIT_NOFILE, &r) < 0)
            return 1024;
    }
    return (size_t)r.rlim_cur;
}

/* Each client may need a connection to a pod. */
static void server_share_fds(struct server *s)
{
    const size_t fds = server_raise_fd_limit();
    const size_t quarter = fds / 4 > SERVER_LEAST_FDS ? fds / 4 : SERVER_LEAST_FDS;
    const size_t reserved = quarter < SERVER_RESERVED_FDS ? quarter : SERVER_RESERVED_FDS;
    const size_t possible = fds > reserved + 2 ? (fds - reserved) / 2 : 1;
    const size_t wanted = (size_t)s->config->max_connections;

    s->max_clients = wanted > 0 ? wanted : possible;
    s->upstream_rules.max_open = possible;
    log_info("descriptors", LOG_INT("open_files", fds), LOG_INT("max_connections", s->max_clients));
    if (fds < SERVER_FEW_FDS)
        log_warn("the limit of open files (RLIMIT_NOFILE) is very low", LOG_INT("open_files", fds),
                 LOG_INT("expected_at_least", SERVER_FEW_FDS));
    if (wanted > possible)
        log_warn("MAX_CONNECTIONS is more than the limit of open files allows",
                 LOG_INT("max_connections", wanted), LOG_INT("open_files", fds),
                 LOG_INT("enough_for", possible));
}

static void server_shorten_idle(struct server *s)
{
    int64_t *idle_us = &s->client_rules.idle_timeout_us;

    if (*idle_us <= 0 || *idle_us > SERVER_LAST_IDLE_US)
        *idle_us = SERVER_LAST_IDLE_US;
}

static void server_set_rules(struct server *s)
{
    const struct config *c = s->config;
    struct client_rules *r = &s->client_rules;
    struct upstream_rules *u = &s->upstream_rules;

    log_init((enum log_level)c->log_level, (enum log_format)c->log_format);
    r->max_head_bytes = (size_t)c->max_header_bytes;
    r->max_body_bytes = (uint64_t)c->max_body_bytes;
    r->max_held_bytes = (uint64_t)c->queue_max_bytes;
    r->header_timeout_us = c->client_header_timeout_us;
    r->body_timeout_us = c->client_body_timeout_us;
    r->idle_timeout_us = c->client_idle_timeout_us;
    r->write_timeout_us = c->client_write_timeout_us;
    s->admin_rules = *r;
    s->admin_rules.held_bytes = 0;
    s->admin_rules.closing = false;
    if (s->drain_delay_over)
        server_shorten_idle(s);
    s->discover_rules = (struct discover_rules){c->dns_ttl_min_us, c->dns_ttl_max_us};
    u->connect_timeout_us = c->upstream_connect_timeout_us;
    u->body_timeout_us = c->upstream_body_timeout_us;
    u->keepalive_us = c->upstream_keepalive_us;
    u->max_head_bytes = (size_t)c->max_header_bytes;
    u->tls = s->trust;
    server_share_fds(s);
}

/* ---- the Kubernetes API ---- */

#define SERVER_API_PROBLEM "Kubernetes API: %s"

static bool server_needs_api(const struct config *c)
{
    for (size_t i = 0; i < c->n_servers; i++)
        if (c->servers[i].service != NULL)
            return true;
    return c->kubernetes;
}

static struct kubeapi_options server_api_options(const struct config *c)
{
    return (struct kubeapi_options){.kubeconfig = c->kubeconfig,
                                    .account_dir = c->kubernetes_account,
                                    .host = getenv("KUBERNETES_SERVICE_HOST"),
                                    .port = getenv("KUBERNETES_SERVICE_PORT"),
                                    .insecure = c->kubernetes_insecure,
                                    .watch_us = c->kubernetes_watch_timeout_us};
}

void server_check_surroundings(const struct config *c, struct config_report *report)
{
    const struct kubeapi_options o = server_api_options(c);
    char *error = NULL;

    if (server_needs_api(c) && !kubeapi_check(&o, &error))
        config_report_add(report, true, SERVER_API_PROBLEM, error);
    mem_free(error);
}

/* False: the configuration needs it and it cannot be reached in principle; *error, freed by the caller. */
static bool server_open_api(struct server *s, const struct config *c, char **error)
{
    const struct kubeapi_options o = server_api_options(c);

    if (s->api != NULL || !server_needs_api(c))
        return true;
    s->api = kubeapi_new(s->loop, s->curl, &o, error);
    if (s->api == NULL)
        return false;
    discover_use_api(s->discover, s->api);
    log_info("Kubernetes API", LOG_STR("server", kubeapi_server(s->api)),
             LOG_STR("namespace", kubeapi_namespace(s->api)));
    if (kubeapi_is_insecure(s->api))
        log_warn("the certificate of the Kubernetes API server is not verified",
                 LOG_STR("server", kubeapi_server(s->api)));
    return true;
}

static void server_check_api(struct server *s, const struct config *c, struct config_report *report)
{
    char *error = NULL;

    if (!server_open_api(s, c, &error))
        config_report_add(report, true, SERVER_API_PROBLEM, error);
    mem_free(error);
}

/* The authorities for https pods are read only when there may be such. False: *error says why they cannot be.
 */
static bool server_read_trust(const struct config *c, struct tls_context **trust, char **error)
{
    bool https = c->kubernetes; /* a ModelServer may ask for it at any time */

    *trust = NULL;
    for (size_t i = 0; i < c->n_servers; i++)
        https |= c->servers[i].https;
    if (https)
        *trust = tls_context_client(c->upstream_tls_ca, error);
    return !https || *trust != NULL;
}

/* The configuration, with what the cluster has beside it. */
static void server_apply(struct server *s)
{
    if (s->cluster != NULL)
        cluster_apply(s->cluster, s->config);
    else
        topology_apply(&s->topology, s->config);
}

/* ---- reload ---- */

static void server_reopen_access_log(struct server *s)
{
    char *error = NULL;

    if (!log_sink_reopen(&s->access, &error))
        log_warn("the access log cannot be opened anew, the old file stays in use", LOG_STR("error", error));
    mem_free(error);
    log_sink_pair(log_sink(), &s->access);
}

static void server_reload(struct server *s)
{
    struct config_report report = {0};
    enum config_action action;
    struct config *next = config_load(&s->inputs, &action, &report), *old = s->config;
    struct tls_context *trust = NULL;
    char *error = NULL;

    server_reopen_access_log(s);
    if (report.n_fatal == 0)
        config_keep_restart_options(next, old, &report);
    if (report.n_fatal == 0)
        server_check_api(s, next, &report);
    if (report.n_fatal == 0 &&
        !(server_read_trust(next, &trust, &error) && certificate_reload(&s->certificate, &error)))
        config_report_add(&report, true, "%s", error);
    mem_free(error);
    server_log_report(&report);
    if (report.n_fatal > 0) {
        log_error("reload refused: the running configuration stays in force",
                  LOG_INT("problems", report.n_fatal));
        metrics_inc(METRIC_RELOADS, "refused");
        config_free(next);
        tls_context_free(trust);
    } else {
        s->config = next;
        tls_context_free(s->trust);
        s->trust = trust;
        server_set_rules(s);
        server_apply(s);
        config_free(old);
        metrics_inc(METRIC_RELOADS, "ok");
        log_info("reloaded", LOG_INT("model_servers", next->n_servers),
                 LOG_INT("model_routes", next->n_routes));
    }
    config_report_free(&report);
}

/* ---- drain ---- */

static void server_stop(struct server *s)
{
    log_info("stopped", LOG_INT("requests_cut", s->cut),
             LOG_MS("drain_ms", s->draining ? loop_now_us(s->loop) - s->drain_us : 0));
    loop_stop(s->loop);
}

/* What is left is cut: streams get their error event, queued requests a 503. */
static void server_cut(struct server *s)
{
    s->cut = s->n_requests;
    LIST_EACH_SAFE(it, &s->clients)
    {
        const struct client *c = LIST_ITEM(it, struct client, link);

        if (c->request != NULL)
            request_finish(c->request, OUTCOME_SHUTDOWN, NULL);
    }
    if (s->cut > 0)
        log_warn("drain ended with requests left; they were cut", LOG_INT("requests_cut", s->cut));
    server_stop(s);
}

static void server_hurry_clients(struct server *s)
{
    LIST_EACH_SAFE(it, &s->clients)
    client_hurry_idle(LIST_ITEM(it, struct client, link));
}

static void server_on_check_idle(struct loop_task *t)
{
    struct server *s = CONTAINER_OF(t, struct server, check_idle);

    if (s->n_requests == 0 && s->n_clients == 0 && !s->loop->stopped)
        server_stop(s);
}

void server_check_idle(struct server *s)
{
    if (s->drain_delay_over)
        loop_defer(s->loop, &s->check_idle);
}

static void server_close_port(struct server *s)
{
    s->drain_delay_over = true;
    listen_close(&s->inference);
}

/* Who could connect is served. */
static void server_end_delay(struct server *s)
{
    server_shorten_idle(s);
    listen_take_waiting(&s->inference);
    server_close_port(s);
    server_hurry_clients(s);
    loop_timer_set(s->loop, &s->drain_timer, loop_now_us(s->loop) + s->config->drain_timeout_us);
    server_check_idle(s);
}

static void server_on_drain_timer(struct wheel_timer *t)
{
    struct server *s = CONTAINER_OF(t, struct server, drain_timer);

    if (s->drain_delay_over)
        server_cut(s);
    else
        server_end_delay(s);
}

/* SIGTERM. README "Shutting down". */
static void server_drain(struct server *s)
{
    if (s->draining) {
        log_warn("second signal: ending at once", LOG_INT("requests", s->n_requests));
        if (!s->drain_delay_over)
            server_close_port(s);
        server_cut(s);
        return;
    }
    s->draining = true;
    s->client_rules.closing = true;
    s->drain_us = loop_now_us(s->loop);
    log_info("draining", LOG_INT("requests", s->n_requests), LOG_MS("delay_ms", s->config->drain_delay_us),
             LOG_MS("timeout_ms", s->config->drain_timeout_us));
    if (s->config->drain_delay_us > 0)
        loop_timer_set(s->loop, &s->drain_timer, s->drain_us + s->config->drain_delay_us);
    else
        server_end_delay(s);
}

bool server_ready(struct server *s)
{
    const int64_t limit_us = s->config->sync_timeout_us;

    s->was_ready = s->was_ready ||
                   (topology_ready(&s->topology) && (s->cluster == NULL || cluster_settled(s->cluster))) ||
                   (limit_us > 0 && loop_now_us(s->loop) - s->started_us >= limit_us);
    return !s->draining && s->was_ready;
}

/* ---- signals and the end of a turn ---- */

static void server_on_signal(evutil_socket_t signal_number, short what, void *arg)
{
    struct server *s = arg;

    (void)what;
    if (signal_number == SIGHUP)
        server_reload(s);
    else
        server_drain(s);
}

/* What libevent leaves behind: a signal does not end the process while the last log lines are written. */
static void server_on_late_signal(int number)
{
    (void)number;
}

/* None is lost meanwhile, nor a SIGHUP from before, which main holds back. */
static bool server_watch_signals(struct server *s)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t all;
    bool watched = true;

    sigemptyset(&all);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        sigaddset(&all, numbers[i]);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (size_t i = 0; i < ARRAY_LEN(numbers) && watched; i++) {
        signal(numbers[i], server_on_late_signal);
        s->signals[i] = evsignal_new(s->loop->base, numbers[i], server_on_signal, s);
        watched = s->signals[i] != NULL && event_add(s->signals[i], NULL) == 0;
    }
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    return watched;
}

/* A write costs as much as ten lines: while many lines come they share one. Who reads along sees a line so
 * much later at most, and a tick of the timers. */
#define SERVER_LOG_EVERY_US    (10 * US_PER_MS)
#define SERVER_LOG_BATCH_BYTES (128 * 1024)

static void server_on_log_timer(struct wheel_timer *t)
{
    (void)t; /* the turn it causes ends with a flush */
}

static void server_measure_turn(struct server *s)
{
    const int64_t us = s->loop->now_us != 0 ? clock_mono_us() - s->loop->now_us : 0;

    metrics_observe(s->turns, (double)us / (double)US_PER_S);
    if (us > s->longest_turn_us)
        s->longest_turn_us = us;
}

static size_t server_waiting_log_bytes(const struct server *s)
{
    const size_t log = log_sink()->pending.len, access = s->access.pending.len;

    return log > access ? log : access;
}

/* What a slow reader leaves waiting is tried again when the next lines would be due. */
static void server_flush_logs(struct server *s)
{
    const size_t waiting = server_waiting_log_bytes(s);
    int64_t due_us = s->logs_flushed_us + SERVER_LOG_EVERY_US;

    if (waiting == 0)
        return;
    if (waiting >= SERVER_LOG_BATCH_BYTES || loop_now_us(s->loop) >= due_us) {
        /* In this order: where both go to one output, a request's own lines stand before its access line. */
        log_sink_flush(log_sink());
        log_sink_flush(&s->access);
        s->logs_flushed_us = loop_now_us(s->loop);
        due_us = s->logs_flushed_us + SERVER_LOG_EVERY_US;
    }
    if (server_waiting_log_bytes(s) > 0 && !wheel_pending(&s->log_timer))
        loop_timer_set(s->loop, &s->log_timer, due_us);
}

static void server_on_turn_end(void *arg)
{
    struct server *s = arg;

    server_flush_logs(s);
    server_measure_turn(s);
}

/* ---- start ---- */

static bool server_listen(struct server *s, struct listener *l, const char *what, const char *bind,
                          int64_t port,
                          void (*on_accept)(struct listener *l, int fd, const struct sockaddr *from))
{
    char *error = NULL;

    l->on_accept = on_accept;
    l->arg = s;
    if (!listen_open(l, s->loop, bind, (uint16_t)port, &error)) {
        log_error("cannot start", LOG_STR("listener", what), LOG_STR("error", error));
        mem_free(error);
        return false;
    }
    /* A port that the system chose can be known from this line alone. */
    LOG_WITH_FIELDS(port == 0 ? LOG_ALWAYS : LOG_INFO, "listening", LOG_STR("listener", what),
                    LOG_STR("bind", bind[0] == '\0' ? "*" : bind), LOG_INT("port", l->port),
                    LOG_BOOL("tls", l == &s->inference && s->certificate.context != NULL));
    return true;
}

static bool server_listen_all(struct server *s)
{
    const struct config *c = s->config;

    return server_listen(s, &s->metrics, "metrics", c->bind, c->metrics_port, admin_on_accept_metrics) &&
           server_listen(s, &s->debug, "debug", "loopback", c->debug_port, admin_on_accept_debug) &&
           server_listen(s, &s->inference, "inference", c->bind, c->port, front_on_accept);
}

static bool server_open_access_log(struct server *s)
{
    char *error = NULL;

    if (!log_sink_open(&s->access, s->config->access_log_output, &error)) {
        log_error("cannot open the access log", LOG_STR("error", error));
        mem_free(error);
        return false;
    }
    log_sink_pair(log_sink(), &s->access);
    return true;
}

static bool server_read_tls(struct server *s)
{
    char *error = NULL;

    if (server_read_trust(s->config, &s->trust, &error) &&
        certificate_start(&s->certificate, s->loop, s->config->tls_cert, s->config->tls_key, &error))
        return true;
    log_error("cannot start", LOG_STR("error", error));
    mem_free(error);
    return false;
}

static bool server_make_parts(struct server *s)
{
    s->loop = loop_new();
    if (s->loop == NULL)
        return false;
    s->loop->on_turn_end = server_on_turn_end;
    s->loop->on_turn_end_arg = s;
    s->curl = curlev_new(s->loop);
    s->discover = discover_new(s->loop, s->config->resolv_conf, &s->discover_rules);
    s->turns = metrics_series(METRIC_LOOP_TURN, NULL);
    s->started_us = loop_now_us(s->loop);
    return s->curl != NULL && s->discover != NULL && sched_init(&s->sched, s->loop, &request_sched_ops) &&
           server_watch_signals(s);
}

bool server_start(struct server *s, const struct config_inputs *in, struct config *c)
{
    char *error = NULL;

    memset(s, 0, sizeof *s);
    s->inputs = *in;
    s->config = c;
    list_init(&s->clients);
    list_init(&s->admin_clients);
    list_init(&s->upstream_rules.idle);
    buf_init(&s->head, SERVER_SCRATCH_MAX);
    wheel_timer_init(&s->drain_timer, server_on_drain_timer);
    wheel_timer_init(&s->log_timer, server_on_log_timer);
    loop_task_init(&s->check_idle, server_on_check_idle);
    server_set_rules(s);
    log_info("starting", LOG_STR("version", CONFIG_VERSION_TEXT),
             LOG_BOOL("session_boost", c->enable_session_boost),
             LOG_BOOL("fairness", c->enable_fairness_scheduling));
    if (!server_open_access_log(s))
        return false;
    if (!server_make_parts(s)) {
        log_error("cannot start",
                  LOG_STR("error", "the event loop, libcurl or the resolver could not be set up"));
        return false;
    }
    if (!server_open_api(s, c, &error)) {
        log_error("cannot start", LOG_STR("error", error), LOG_STR("needs", "the Kubernetes API"));
        mem_free(error);
        return false;
    }
    if (!server_read_tls(s))
        return false;
    s->upstream_rules.tls = s->trust;
    metrics_set(metrics_series(METRIC_PROCESS_START_TIME, NULL), (double)clock_wall_us() / (double)US_PER_S);
    topology_init(&s->topology, s->loop, s->curl, s->discover, &s->sched);
    s->topology.on_promoted = request_promoted;
    if (c->kubernetes)
        s->cluster = cluster_new(s->api, &s->topology, c->kubernetes_namespace);
    server_apply(s);
    return server_listen_all(s);
}

void server_run(struct server *s)
{
    loop_run(s->loop);
}

static void server_close_clients(struct list *clients)
{
    LIST_EACH_SAFE(it, clients)
    client_close(LIST_ITEM(it, struct client, link));
}

/* The metric that counts them may have been read for the last time long before. */
static void server_say_lost(const char *log, uint64_t lines)
{
    if (lines > 0)
        log_warn("log lines were lost", LOG_STR("log", log), LOG_INT("lines", lines));
}

/* The router's log itself is closed by who began it. What was lost is said when all the rest is gone, or
 * there would be no room for it. */
static void server_end_logs(struct server *s)
{
    log_sink_finish(&s->access);
    if (s->access.dropped > 0 || log_sink()->dropped > 0)
        log_sink_finish(log_sink());
    server_say_lost("access", s->access.dropped);
    server_say_lost("router", log_sink()->dropped);
    log_sink_close(&s->access);
}

void server_free(struct server *s)
{
    if (s->loop != NULL) {
        listen_close(&s->inference);
        listen_close(&s->metrics);
        listen_close(&s->debug);
        server_close_clients(&s->clients);
        server_close_clients(&s->admin_clients);
        loop_timer_cancel(s->loop, &s->drain_timer);
        loop_timer_cancel(s->loop, &s->log_timer);
        certificate_free(&s->certificate);
        /* A start that failed half-way has not made all of them. */
        if (s->topology.loop != NULL)
            topology_free(&s->topology);
        cluster_free(s->cluster);
        if (s->sched.timer != NULL)
            sched_free(&s->sched);
        for (size_t i = 0; i < ARRAY_LEN(s->signals); i++)
            if (s->signals[i] != NULL)
                event_free(s->signals[i]);
        discover_free(s->discover);
        kubeapi_free(s->api);
        curlev_free(s->curl);
        loop_free(s->loop);
    }
    tls_context_free(s->trust);
    server_end_logs(s);
    buf_free(&s->head);
    config_free(s->config);
    metrics_reset();
}
