/* JSON dumps, built with cJSON. Lists are cut at DUMP_MAX_ITEMS, so that a dump under load stays a moment's
 * work. */
#include "dump.h"

#include <cjson/cJSON.h>
#include <math.h>

#include "mem.h"
#include "request.h"

#define DUMP_MAX_ITEMS 10000

/* Session ids and names are client input: invalid UTF-8 must not make invalid JSON. */
/* A JSON string, freed by the caller. */
static char *dump_quote(struct slice text)
{
    struct buf quoted;
    char *raw;

    buf_init(&quoted, 16 * text.n + 64);
    log_append_json(&quoted, text);
    raw = mem_dup_slice(buf_slice(&quoted));
    buf_free(&quoted);
    return raw;
}

static void dump_text(cJSON *o, const char *key, struct slice text)
{
    char *raw = dump_quote(text);

    cJSON_AddRawToObject(o, key, raw);
    mem_free(raw);
}

static void dump_number(cJSON *o, const char *key, double v)
{
    if (isnan(v))
        cJSON_AddNullToObject(o, key);
    else
        cJSON_AddNumberToObject(o, key, v);
}

static double dump_ms(int64_t us)
{
    return (double)us / (double)US_PER_MS;
}

static void dump_config(struct server *s, cJSON *list)
{
    for (int o = 0; o < CONFIG_OPTION_COUNT; o++) {
        static const char *const origins[] = {"default", "ini", "environment", "flag"};
        cJSON *item = cJSON_CreateObject();
        struct buf value;

        buf_init(&value, 1024 * 1024);
        if (config_value(s->config, (enum config_option)o, &value))
            dump_text(item, "value", buf_slice(&value));
        buf_free(&value);
        cJSON_AddStringToObject(item, "origin", origins[s->config->origins[o]]);
        cJSON_AddStringToObject(item, "name", config_env_name((enum config_option)o));
        cJSON_AddItemToArray(list, item);
    }
}

static void dump_match(cJSON *o, const char *key, const struct route_match *m)
{
    if (m->kind != ROUTE_ANY)
        dump_text(cJSON_AddObjectToObject(o, key), route_match_word(m->kind), slice_of(m->text));
}

static void dump_rule(const struct route_rule_spec *r, cJSON *list)
{
    cJSON *rule = cJSON_CreateObject(), *match = cJSON_AddObjectToObject(rule, "modelMatch"), *headers,
          *targets;

    dump_text(rule, "name", slice_of(r->name));
    headers = cJSON_AddObjectToObject(match, "headers");
    for (size_t i = 0; i < r->n_headers; i++)
        dump_match(headers, r->headers[i].name, &r->headers[i].value);
    dump_match(match, "uri", &r->uri);
    if (r->model != NULL)
        dump_text(cJSON_AddObjectToObject(match, "body"), "model", slice_of(r->model));
    targets = cJSON_AddArrayToObject(rule, "targetModels");
    for (size_t i = 0; i < r->n_targets; i++) {
        cJSON *target = cJSON_CreateObject();

        dump_text(target, "modelServerName", slice_of(r->targets[i].server));
        if (r->targets[i].weight != ROUTE_NO_WEIGHT)
            cJSON_AddNumberToObject(target, "weight", (double)r->targets[i].weight);
        cJSON_AddItemToArray(targets, target);
    }
    cJSON_AddItemToArray(list, rule);
}

static void dump_sticky(const struct route_spec *r, cJSON *spec)
{
    static const char *const modes[] = {NULL, "off", "prefer", "wait"};
    cJSON *sticky, *sources;

    if (r->n_sources == 0 && r->sticky == ROUTE_STICKY_UNSET)
        return;
    sticky = cJSON_AddObjectToObject(spec, "sessionSticky");
    if (modes[r->sticky] != NULL)
        cJSON_AddStringToObject(sticky, "mode", modes[r->sticky]);
    if (r->sticky == ROUTE_STICKY_WAIT)
        cJSON_AddNumberToObject(sticky, "waitMs", dump_ms(r->sticky_wait_us));
    cJSON_AddNumberToObject(sticky, "sessionAffinitySeconds", dump_ms(r->sticky_ttl_us) / 1000);
    sources = cJSON_AddArrayToObject(sticky, "sources");
    for (size_t i = 0; i < r->n_sources; i++) {
        cJSON *source = cJSON_CreateObject();

        cJSON_AddStringToObject(source, "type", route_source_word(r->sources[i].kind));
        dump_text(source, "name", slice_of(r->sources[i].name));
        cJSON_AddItemToArray(sources, source);
    }
}

static void dump_policy(const struct policy *p, cJSON *spec)
{
    cJSON *scores;

    if (p->kind != POLICY_UNSET)
        cJSON_AddStringToObject(spec, "policy", policy_word(p->kind));
    if (p->max_waiting > 0)
        cJSON_AddNumberToObject(spec, "maxWaiting", (double)p->max_waiting);
    if (p->kind != POLICY_SCORE)
        return;
    scores = cJSON_AddObjectToObject(spec, "scores");
    for (enum policy_score s = 0; s < POLICY_SCORES; s++) {
        if (p->weights[s] > 0)
            cJSON_AddNumberToObject(scores, policy_score_word(s), p->weights[s]);
    }
}

static void dump_modelroutes(struct server *s, cJSON *list)
{
    for (size_t i = 0; i < s->topology.n_specs; i++) {
        const struct route_spec *r = &s->topology.specs[i];
        cJSON *item = cJSON_CreateObject(), *spec, *adapters, *rules;

        dump_text(item, "name", slice_of(r->name));
        spec = cJSON_AddObjectToObject(item, "spec");
        dump_text(spec, "modelName", slice_of(r->model));
        adapters = cJSON_AddArrayToObject(spec, "loraAdapters");
        for (size_t k = 0; k < r->n_adapters; k++)
            cJSON_AddItemToArray(adapters, cJSON_CreateString(r->adapters[k]));
        dump_sticky(r, spec);
        dump_policy(&r->policy, spec);
        rules = cJSON_AddArrayToObject(spec, "rules");
        for (size_t k = 0; k < r->n_rules; k++)
            dump_rule(&r->rules[k], rules);
        cJSON_AddItemToArray(list, item);
    }
}

static void dump_modelservers(struct server *s, cJSON *list)
{
    static const char *const engines[] = {"none", "vLLM", "SGLang"};

    for (size_t i = 0; i < s->topology.n_servers; i++) {
        const struct topology_server *m = s->topology.servers[i];
        cJSON *item = cJSON_CreateObject(), *spec, *pods;

        dump_text(item, "name", slice_of(m->name));
        spec = cJSON_AddObjectToObject(item, "spec");
        cJSON_AddStringToObject(spec, "inferenceEngine", engines[m->spec->engine]);
        cJSON_AddStringToObject(spec, "protocol", m->spec->https ? "https" : "http");
        dump_text(spec, "model", slice_of(m->spec->model != NULL ? m->spec->model : ""));
        cJSON_AddNumberToObject(spec, "timeoutMs", dump_ms(m->spec->timeout_us));
        if (m->source != NULL && discover_problem(m->source) != NULL)
            cJSON_AddStringToObject(item, "problem", discover_problem(m->source));
        pods = cJSON_AddArrayToObject(item, "associatedPods");
        for (size_t k = 0; k < m->n_pods; k++)
            cJSON_AddItemToArray(pods, cJSON_CreateString(m->pods[k]->pod->name));
        cJSON_AddItemToArray(list, item);
    }
}

static void dump_pod_metrics(cJSON *item, const struct pod *p, int64_t now_us)
{
    const struct pod_numbers *n = &p->numbers;
    cJSON *m = cJSON_AddObjectToObject(item, "metrics");
    const bool seen = n->at_us != 0;

    dump_number(m, "gpuCacheUsage", seen ? n->kv_usage : (double)NAN);
    dump_number(m, "requestWaitingNum", seen ? n->waiting : (double)NAN);
    dump_number(m, "requestWaitingMin", seen ? n->waiting_min : (double)NAN);
    dump_number(m, "requestRunningNum", seen ? n->running : (double)NAN);
    dump_number(m, "timeToFirstTokenMs", pod_average_s(&p->ttft, now_us) * 1000);
    dump_number(m, "timePerOutputTokenMs", pod_average_s(&p->tpot, now_us) * 1000);
    dump_number(m, "ageMs", seen ? dump_ms(now_us - n->at_us) : (double)NAN);
}

/* As the pod listed them last; none where nobody asks. */
static void dump_served(cJSON *item, struct slice names)
{
    cJSON *models = cJSON_AddArrayToObject(item, "models");

    while (names.n > 0) {
        char *raw = dump_quote(slice_cut(&names, '\n'));

        cJSON_AddItemToArray(models, cJSON_CreateRaw(raw));
        mem_free(raw);
    }
}

static void dump_pods(struct server *s, cJSON *list)
{
    static const char *const engines[] = {"none", "vLLM", "SGLang"};
    const int64_t now_us = loop_now_us(s->loop);

    for (size_t i = 0; i < s->topology.n_pods; i++) {
        const struct topology_pod *t = s->topology.pods[i];
        struct pod *p = t->pod;
        cJSON *item = cJSON_CreateObject();

        dump_text(item, "name", slice_of(p->name));
        dump_text(item, "uid", slice_of(t->uid));
        cJSON_AddStringToObject(item, "engine", engines[t->engine]);
        if (p->upstream->tls_name != NULL)
            cJSON_AddStringToObject(item, "tlsName", p->upstream->tls_name);
        dump_text(item, "setBy", slice_of(t->owner != NULL ? t->owner->name : ""));
        cJSON_AddNumberToObject(item, "inFlight", p->in_flight);
        cJSON_AddStringToObject(item, "room", pod_room_name(pod_room(p, &s->sched.admit.rules, now_us)));
        cJSON_AddBoolToObject(item, "leaving", p->leaving);
        cJSON_AddBoolToObject(item, "setAside", pod_is_aside(p, now_us));
        cJSON_AddBoolToObject(item, "asleep", pod_is_asleep(p, now_us));
        cJSON_AddBoolToObject(item, "stale", pod_numbers_stale(p, &s->sched.admit.rules, now_us));
        cJSON_AddNumberToObject(item, "connectFailures", p->connect_failures);
        cJSON_AddNumberToObject(item, "graceWindows", (double)p->held_n);
        cJSON_AddNumberToObject(item, "idleConnections", (double)p->upstream->n_idle);
        dump_served(item, buf_slice(&t->served));
        dump_pod_metrics(item, p, now_us);
        cJSON_AddItemToArray(list, item);
    }
}

static void dump_texts(cJSON *item, const char *key, const char *texts, char separator)
{
    cJSON *list = cJSON_AddArrayToObject(item, key);
    struct slice rest = slice_of(texts);

    while (rest.n > 0) {
        char *text = mem_dup_slice(slice_cut(&rest, separator));

        cJSON_AddItemToArray(list, cJSON_CreateString(text));
        mem_free(text);
    }
}

static void dump_object(const struct kthena_info *info, void *arg)
{
    static const char *const kinds[KTHENA_KINDS] = {"Pod", "ModelServer", "ModelRoute"};
    cJSON *item = cJSON_CreateObject();

    cJSON_AddStringToObject(item, "kind", kinds[info->kind]);
    dump_text(item, "name", slice_of(info->name));
    dump_text(item, "uid", slice_of(info->uid));
    cJSON_AddBoolToObject(item, "used", info->problem == NULL);
    if (info->problem != NULL)
        cJSON_AddStringToObject(item, "problem", info->problem);
    dump_texts(item, "unsupported", info->unsupported, ',');
    dump_texts(item, "warnings", info->warnings, '\n');
    cJSON_AddItemToArray(arg, item);
}

/* One entry for each kind of object that is watched, then the objects, of pods those that have a problem. */
static void dump_kubernetes(struct server *s, cJSON *list)
{
    for (int i = 0; i < KTHENA_KINDS && s->cluster != NULL; i++) {
        const struct cluster_resource r = cluster_resource(s->cluster, (enum kthena_kind)i);
        cJSON *item = cJSON_CreateObject();

        cJSON_AddStringToObject(item, "resource", r.name);
        cJSON_AddNumberToObject(item, "objects", (double)r.objects);
        cJSON_AddBoolToObject(item, "synced", r.synced);
        cJSON_AddBoolToObject(item, "up", r.up);
        cJSON_AddItemToArray(list, item);
    }
    if (s->cluster != NULL)
        cluster_each(s->cluster, dump_object, list);
}

struct dump_queue {
    struct server *server;
    cJSON *list;
    int n;
};

static void dump_waiting(const struct boostq_item *q, void *arg)
{
    struct dump_queue *d = arg;
    const struct request *r = request_of(q);
    cJSON *item;

    if (d->n++ >= DUMP_MAX_ITEMS)
        return;
    item = cJSON_CreateObject();
    dump_text(item, "requestID", request_id(r));
    dump_text(item, "session", q->session);
    cJSON_AddBoolToObject(item, "boosted", q->boosted);
    cJSON_AddBoolToObject(item, "forced", q->forced);
    cJSON_AddNumberToObject(item, "overtaken", boostq_overtaken(&r->route->model->q, q));
    cJSON_AddNumberToObject(item, "waitMs", dump_ms(loop_now_us(d->server->loop) - q->arrived_us));
    cJSON_AddNumberToObject(item, "warmPodID", (double)boostq_warm_pod(&r->route->model->q, q));
    cJSON_AddItemToArray(d->list, item);
}

static void dump_user(const struct fairq_view *v, void *arg)
{
    struct dump_queue *d = arg;
    cJSON *item;

    if (d->n++ >= DUMP_MAX_ITEMS)
        return;
    item = cJSON_CreateObject();
    dump_text(item, "user", v->name);
    cJSON_AddNumberToObject(item, "priority", v->priority);
    cJSON_AddNumberToObject(item, "inputTokens", (double)v->input_tokens);
    cJSON_AddNumberToObject(item, "outputTokens", (double)v->output_tokens);
    cJSON_AddNumberToObject(item, "requests", (double)v->requests);
    cJSON_AddNumberToObject(item, "waiting", (double)v->waiting);
    cJSON_AddNumberToObject(item, "running", (double)v->running);
    cJSON_AddItemToArray(d->list, item);
}

static void dump_queues(struct server *s, cJSON *list)
{
    for (size_t i = 0; i < s->topology.n_routes; i++) {
        const struct topology_route *r = s->topology.routes[i];
        cJSON *item = cJSON_CreateObject();
        struct dump_queue d = {s, NULL, 0};

        dump_text(item, "model", slice_of(r->model_name));
        dump_text(item, "modelRoute", slice_of(r->name));
        dump_text(item, "modelServer", slice_of(r->server_name));
        cJSON_AddNumberToObject(item, "length", (double)boostq_len(&r->model->q));
        cJSON_AddNumberToObject(item, "bytes", (double)r->model->queued_bytes);
        cJSON_AddNumberToObject(item, "inFlight", (double)r->in_flight);
        cJSON_AddNumberToObject(item, "usablePods", (double)r->model->n_usable);
        cJSON_AddNumberToObject(item, "trackedSessions", (double)r->model->q.tracker.n);
        cJSON_AddNumberToObject(item, "pinnedSessions",
                                r->model->pins != NULL ? (double)r->model->pins->n : 0);
        cJSON_AddStringToObject(item, "closedReason", pod_room_name(r->model->closed_reason));
        d.list = cJSON_AddArrayToObject(item, "waiting");
        boostq_each(&r->model->q, dump_waiting, &d);
        cJSON_AddItemToArray(list, item);
    }
}

static void dump_note_way(void *to, void *arg)
{
    const struct topology_route **found = arg;

    *found = to;
}

/* With user fairness: once for each public name, whatever the number of its queues. */
static void dump_users(struct server *s, cJSON *list)
{
    for (size_t i = 0; i < s->topology.table.n_names; i++) {
        const struct topology_route *r = NULL;
        struct dump_queue d = {s, NULL, 0};
        struct fairq *fair;
        cJSON *item;

        route_name_each(s->topology.table.names[i], dump_note_way, &r);
        fair = r != NULL ? r->model->q.fair : NULL;
        if (fair == NULL)
            continue;
        item = cJSON_CreateObject();
        dump_text(item, "model", slice_of(r->model_name));
        cJSON_AddNumberToObject(item, "waiting", (double)r->model->q.name->n);
        cJSON_AddNumberToObject(item, "running", (double)fair->n_running);
        d.list = cJSON_AddArrayToObject(item, "users");
        fairq_advance(fair, loop_now_us(s->loop));
        fairq_each(fair, dump_user, &d);
        cJSON_AddItemToArray(list, item);
    }
}

static void dump_requests(struct server *s, cJSON *list)
{
    int n = 0;

    LIST_EACH(it, &s->clients)
    {
        const struct request *r = LIST_ITEM(it, struct client, link)->request;
        cJSON *item;

        if (r == NULL)
            continue;
        if (n++ >= DUMP_MAX_ITEMS)
            return;
        item = cJSON_CreateObject();
        dump_text(item, "requestID", request_id(r));
        cJSON_AddStringToObject(item, "state", request_state_name(r->state));
        dump_text(item, "model", slice_of(r->route != NULL ? r->route->model_name : ""));
        dump_text(item, "session", request_session(r));
        if (r->user_n > 0)
            dump_text(item, "user", request_user(r));
        dump_text(item, "pod", slice_of(r->pod != NULL ? r->pod->name : ""));
        cJSON_AddNumberToObject(item, "ageMs", dump_ms(loop_now_us(s->loop) - r->received_us));
        cJSON_AddNumberToObject(item, "attempts", r->attempts);
        cJSON_AddNumberToObject(item, "bodyBytes", (double)r->body_n);
        cJSON_AddItemToArray(list, item);
    }
}

bool dump_render(struct server *s, struct slice kind, struct buf *out)
{
    static const struct {
        const char *kind;
        void (*fill)(struct server *s, cJSON *list);
    } kinds[] = {
        {"config", dump_config},     {"modelroutes", dump_modelroutes}, {"modelservers", dump_modelservers},
        {"pods", dump_pods},         {"queues", dump_queues},           {"users", dump_users},
        {"requests", dump_requests}, {"kubernetes", dump_kubernetes}};

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (slice_eq(kind, slice_of(kinds[i].kind))) {
            cJSON *top = cJSON_CreateObject();
            char *text;
            bool ok;

            kinds[i].fill(s, cJSON_AddArrayToObject(top, kinds[i].kind));
            text = cJSON_PrintUnformatted(top);
            ok = text != NULL && buf_append(out, text, strlen(text));
            cJSON_free(text);
            cJSON_Delete(top);
            return ok;
        }
    }
    return false;
}
