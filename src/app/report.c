/* What is said of requests. Nothing here changes one. */
#include "report.h"

#include <stdio.h>

#include "accesslog.h"
#include "metrics.h"

/* ---- the queue's lines ---- */

static struct log_known report_pod(const struct request *r)
{
    return r->pod != NULL ? r->pod->log_name : (struct log_known){.is_plain = false};
}

static void report_boost_event(const struct request *r, struct slice event)
{
    LOG_EVENT(LOG_INFO, event, LOG_KNOWN("req", request_known(r, request_id(r))),
              LOG_KNOWN("model", r->route->log_model_name),
              LOG_KNOWN("session", request_known(r, request_session(r))),
              LOG_BOOL("boosted", r->out->admit.queue.boosted),
              LOG_INT("queue_len", boostq_len(&r->route->model->q)),
              LOG_MS("wait_ms", loop_now_us(r->server->loop) - r->queued_us), LOG_KNOWN("pod", report_pod(r)),
              LOG_STR("sticky", r->sticky));
}

static void report_fair_event(const struct request *r, struct slice event)
{
    LOG_EVENT(
        LOG_INFO, event, LOG_KNOWN("req", request_known(r, request_id(r))),
        LOG_KNOWN("model", r->route->log_model_name), LOG_KNOWN("user", request_known(r, request_user(r))),
        LOG_INT("queue_len", boostq_len(&r->route->model->q)),
        LOG_MS("wait_ms", loop_now_us(r->server->loop) - r->queued_us), LOG_KNOWN("pod", report_pod(r)));
}

void report_queue_event(const struct request *r, struct slice boost_event, struct slice fair_event)
{
    if (r->session_n > 0 && r->server->config->enable_session_boost)
        report_boost_event(r, boost_event);
    else if (r->user_n > 0)
        report_fair_event(r, fair_event);
}

/* ---- metrics ---- */

static double report_seconds(int64_t us)
{
    return (double)us / (double)US_PER_S;
}

static const char *report_path_label(struct slice path)
{
#define PATH(path)                                                                                           \
    {                                                                                                        \
        path, sizeof(path) - 1                                                                               \
    }
    static const struct slice known[] = {PATH("/v1/chat/completions"),
                                         PATH("/v1/completions"),
                                         PATH("/v1/embeddings"),
                                         PATH("/v1/responses"),
                                         PATH("/v1/messages"),
                                         PATH("/v1/models"),
                                         PATH("/v1/rerank"),
                                         PATH("/v1/score"),
                                         PATH("/v1/images/generations"),
                                         PATH("/v1/audio/transcriptions"),
                                         PATH("/v1/audio/translations"),
                                         PATH("/v1/audio/speech")};
#undef PATH

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (slice_eq(path, known[i]))
            return known[i].p;
    return "other";
}

/* The series of a finished request. Looking them up costs more than counting, so a route keeps those it has
 * used. */
static struct topology_series report_series(const struct request *r, const char *path)
{
    const struct topology_route *route = r->route;
    const char *model = route != NULL ? route->model_name : "unknown";
    const char *pods_model = route != NULL ? topology_upstream_model(route) : "none";
    const unsigned status = r->status != 0 ? r->status : outcome_info(r->outcome)->status;
    char status_text[12];
    const int status_n = snprintf(status_text, sizeof status_text, "%u", status);
    const struct slice labels[] = {slice_of(model),
                                   slice_of(path),
                                   {status_text, (size_t)status_n},
                                   slice_of(outcome_info(r->outcome)->name),
                                   slice_of(route != NULL ? route->name : "none"),
                                   slice_of(route != NULL ? "model_server" : "unresolved"),
                                   slice_of(route != NULL ? route->server_name : "none"),
                                   slice_of(pods_model)};
    const struct slice duration[] = {labels[0], labels[1], labels[2], labels[4],
                                     labels[5], labels[6], labels[7]};
    struct slice tokens[] = {labels[0], labels[1], SLICE("input"), labels[4],
                             labels[5], labels[6], labels[7]};
    struct metrics_series *counted[2] = {NULL, NULL};

    if (r->tokens != NULL) {
        counted[0] = metrics_series(METRIC_TOKENS, tokens);
        tokens[2] = SLICE("output");
        counted[1] = metrics_series(METRIC_TOKENS, tokens);
    }
    return (struct topology_series){
        .path = path,
        .status = r->status,
        .outcome = r->outcome,
        .requests = metrics_series(METRIC_REQUESTS, labels),
        .duration = metrics_series(METRIC_REQUEST_DURATION, duration),
        .prefill = route != NULL ? metrics_series(METRIC_PREFILL_DURATION, labels) : NULL,
        .decode = route != NULL ? metrics_series(METRIC_DECODE_DURATION, labels) : NULL,
        .tokens = {counted[0], counted[1]},
    };
}

/* Valid until the next call. */
static const struct topology_series *report_find_series(const struct request *r)
{
    static struct topology_series unkept;
    const char *path = report_path_label(request_path(r));
    struct topology_route *route = r->route;

    for (size_t i = 0; route != NULL && i < route->n_series; i++) {
        const struct topology_series *s = &route->series[i];

        if (s->path == path && s->status == r->status && s->outcome == r->outcome &&
            (s->tokens[0] != NULL || r->tokens == NULL))
            return s;
    }
    unkept = report_series(r, path);
    if (route == NULL || route->n_series == TOPOLOGY_MAX_SERIES)
        return &unkept;
    route->series[route->n_series] = unkept;
    return &route->series[route->n_series++];
}

static void report_count(const struct request *r)
{
    const struct topology_series *s = report_find_series(r);

    metrics_add(s->requests, 1);
    if (r->sticky != NULL)
        metrics_inc(METRIC_SESSION_STICKY, r->route->model_name, r->sticky);
    metrics_observe(s->duration, report_seconds(r->end_us - r->received_us));
    if (r->tokens != NULL) {
        metrics_add(s->tokens[0], (double)r->tokens->input);
        if (r->tokens->output > 0)
            metrics_add(s->tokens[1], (double)r->tokens->output);
    }
    if (r->first_byte_us == 0 || r->route == NULL)
        return;
    metrics_observe(s->prefill, report_seconds(r->first_byte_us - r->sent_us));
    metrics_observe(s->decode, report_seconds(r->end_us - r->first_byte_us));
    metrics_observe(r->route->ttft[r->boosted], report_seconds(r->first_byte_us - r->received_us));
}

/* ---- the access log ---- */

static const char *report_origin(const struct request *r)
{
    switch (r->outcome) {
    case OUTCOME_OK:
    case OUTCOME_LOCAL:
        return NULL;
    case OUTCOME_POD_ERROR_STATUS:
    case OUTCOME_POD_PROTOCOL:
    case OUTCOME_POD_RESET:
    case OUTCOME_POD_HEAD_TIMEOUT:
    case OUTCOME_POD_BODY_TIMEOUT:
    case OUTCOME_CONNECT_FAILED:
        return "upstream";
    case OUTCOME_CLIENT_GONE:
    case OUTCOME_CLIENT_STALLED:
        return "client";
    default:
        return "router";
    }
}

/* Who broke it off, for the access log; a time limit is the router's doing. */
static const char *report_closer(enum outcome o)
{
    switch (o) {
    case OUTCOME_CLIENT_GONE:
        return "client";
    case OUTCOME_POD_PROTOCOL:
    case OUTCOME_POD_RESET:
        return "pod";
    case OUTCOME_CLIENT_STALLED:
    case OUTCOME_POD_HEAD_TIMEOUT:
    case OUTCOME_POD_BODY_TIMEOUT:
    case OUTCOME_SHUTDOWN:
        return "router";
    default:
        return NULL;
    }
}

static int64_t report_span_us(int64_t from_us, int64_t to_us)
{
    return from_us != 0 && to_us > from_us ? to_us - from_us : 0;
}

static int64_t report_queue_us(const struct request *r)
{
    return r->queued_us == 0 ? -1
                             : report_span_us(r->queued_us, r->admitted_us != 0 ? r->admitted_us : r->end_us);
}

/* Sets every field, one by one: an initializer would be made elsewhere and copied. */
static void report_fill_entry(const struct request *r, struct accesslog_entry *e)
{
    const char *const origin = report_origin(r);

    e->wall_us = loop_wall_us(r->server->loop, r->received_us);
    e->route = r->route != NULL ? &r->route->log_names : NULL;
    e->model_name = slice_of(r->model_name);
    e->plain = r->plain;
    e->method = request_method(r);
    e->path = request_path(r);
    e->minor = r->minor;
    e->status = r->status != 0 ? r->status : outcome_info(r->outcome)->status;
    e->error_type = origin != NULL ? outcome_info(r->outcome)->name : NULL;
    e->error_message = slice_of(origin != NULL ? request_message(r) : NULL);
    e->selected_pod = report_pod(r);
    e->request_id = request_id(r);
    e->upstream_status = r->upstream_status;
    e->upstream_attempts = r->attempts;
    e->error_origin = origin;
    e->input_tokens = r->tokens != NULL ? r->tokens->input : 0;
    e->output_tokens = r->tokens != NULL ? r->tokens->output : 0;
    e->total_us = r->end_us - r->received_us;
    e->request_us = report_span_us(r->received_us, r->body_us);
    e->upstream_us = report_span_us(r->admitted_us, r->head_us != 0 ? r->head_us : r->end_us);
    e->response_us = report_span_us(r->head_us, r->end_us);
    e->queue_us = report_queue_us(r);
    e->ttft_us = r->first_byte_us == 0 ? -1 : r->first_byte_us - r->received_us;
    e->session = request_session(r);
    e->user = request_user(r);
    e->sticky = r->sticky;
    e->has_queue = r->queued_us != 0 && r->server->config->enable_session_boost;
    e->boosted = r->boosted;
    e->overtaken = r->overtaken;
    e->closed_by = report_closer(r->outcome);
    e->closed_phase = e->closed_by != NULL ? request_state_name(r->closed_in) : NULL;
}

static bool report_put_line(struct log_sink *sink, int64_t format, const struct accesslog_entry *e)
{
    return format == 1 ? accesslog_json(&sink->pending, e) : accesslog_text(&sink->pending, e);
}

/* Straight into the sink; when that is full, what the output takes now may make room. */
static void report_access_log(struct request *r)
{
    struct log_sink *sink = &r->server->access;
    const int64_t format = r->server->config->access_log_format;
    struct accesslog_entry e;

    report_fill_entry(r, &e);
    if (report_put_line(sink, format, &e))
        return;
    log_sink_flush(sink);
    if (!report_put_line(sink, format, &e))
        sink->dropped++;
}

void report_finished(struct request *r)
{
    /* No request line, no access log line. */
    if (r->server->config->access_log_enabled && r->target_n > 0)
        report_access_log(r);
    report_count(r);
}
