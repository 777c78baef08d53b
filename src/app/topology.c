/* Public names and their ways to servers, and what a reload makes of them. Where pods come from is
 * topology_server's affair, how they are spoken to topology_pod's. */
#include "topology.h"

#include "log.h"
#include "mem.h"
#include "openai.h"

#define TOPOLOGY_STALE_INTERVALS 3 /* README "Room" */

/* ---- pods of routes ---- */

static void topology_note_adapter(const struct topology_route *r, const struct topology_pod *p)
{
    if (r->model->adapter)
        model_set_listed(r->model, p->pod->id, topology_pod_lists(p, slice_of(r->model_name)));
}

void topology_note_served(struct topology *t, const struct topology_pod *p)
{
    for (size_t i = 0; i < t->n_routes; i++)
        topology_note_adapter(t->routes[i], p);
}

static void topology_route_pods(struct topology *t, struct topology_route *r)
{
    const struct topology_server *s = r->server;
    const size_t n = s != NULL ? s->n_pods : 0;
    struct pod **pods = mem_array(NULL, n + 1, sizeof(struct pod *));

    for (size_t i = 0; i < n; i++)
        pods[i] = s->pods[i]->pod;
    model_set_pods(r->model, pods, n, loop_now_us(t->loop));
    mem_free(pods);
    for (size_t i = 0; i < n && r->model->adapter; i++)
        topology_note_adapter(r, s->pods[i]);
    (void)model_refresh(r->model, loop_now_us(t->loop));
}

struct topology_other {
    const struct topology_route *than;
    int64_t now_us;
    bool found;
};

static void topology_has_other(void *to, void *arg)
{
    const struct topology_route *r = to;
    struct topology_other *o = arg;

    if (r != o->than && model_in_place(r->model, o->now_us))
        o->found = true;
}

/* Its pods are gone: what waits goes to another target of its rule, if one of the name has pods. */
static void topology_move_waiting(struct topology *t, struct topology_route *r)
{
    struct topology_other o = {r, loop_now_us(t->loop), false};
    const struct route_name *n = route_find(&t->table, slice_of(r->model_name));

    if (n == NULL || boostq_len(&r->model->q) == 0 || model_in_place(r->model, o.now_us))
        return;
    route_name_each(n, topology_has_other, &o);
    if (o.found)
        sched_flush(t->sched, r->model);
}

void topology_take_pods(struct topology *t, const struct topology_server *s)
{
    for (size_t i = 0; i < t->n_routes; i++)
        if (t->routes[i]->server == s)
            topology_route_pods(t, t->routes[i]);
    for (size_t i = 0; i < t->n_routes; i++)
        if (t->routes[i]->server == s)
            topology_move_waiting(t, t->routes[i]);
}

/* ---- routes ---- */

static struct fairq_rules topology_fairness(const struct config *c)
{
    const double tokens = c->fairness_priority_token_weight,
                 requests = c->fairness_priority_request_num_weight;

    return (struct fairq_rules){
        .window_us = c->fairness_window_size_us,
        .input_weight = c->fairness_input_token_weight,
        .output_weight = c->fairness_output_token_weight,
        .token_weight = tokens > 0 || requests > 0 ? tokens : 1, /* see check_strategies in config.c */
        .request_weight = requests,
        .max_users = (size_t)c->fairness_max_users,
        .max_concurrent = (unsigned)c->fairness_max_concurrent,
        .max_qps = (unsigned)c->fairness_max_qps,
    };
}

static int64_t topology_wait_limit(const struct config *c)
{
    if (c->enable_fairness_scheduling)
        return c->fairness_queue_timeout_us;
    return c->enable_session_boost ? c->session_boost_timeout_us : 0;
}

static void topology_rules(const struct config *c, struct boostq_rules *q, struct pod_rules *p)
{
    *q = (struct boostq_rules){
        .boost = c->enable_session_boost,
        .fair = c->enable_fairness_scheduling,
        .fairness = topology_fairness(c),
        .prefer_warm = c->session_sticky == CONFIG_STICKY_PREFER,
        .sticky = c->session_sticky == CONFIG_STICKY_PREFER && c->session_sticky_wait_us > 0,
        .sticky_wait_us = c->session_sticky_wait_us,
        .timeout_us = topology_wait_limit(c),
        .max_overtakes = (unsigned)c->session_boost_max_overtakes,
        .max_sessions = (size_t)c->session_boost_max_sessions,
    };
    *p = (struct pod_rules){
        .gated = c->enable_session_boost || c->enable_fairness_scheduling,
        .inflight_limit = (unsigned)c->session_boost_inflight_per_pod,
        .grace_us = c->enable_session_boost ? c->session_boost_grace_period_us : 0,
        .stale_us = TOPOLOGY_STALE_INTERVALS * c->metrics_scrape_interval_us,
    };
}

static void topology_route_series(struct topology_route *r)
{
    const struct slice model = slice_of(r->model_name);

    r->active_downstream = metrics_series(METRIC_ACTIVE_DOWNSTREAM, &model);
    if (r->model->q.fair != NULL)
        r->queue_duration =
            metrics_series(METRIC_FAIR_DURATION, (const struct slice[]){model, SLICE("_all")});
    else if (r->model->q.rules.boost)
        r->queue_duration = metrics_series(METRIC_QUEUE_DURATION, &model);
    r->overtakes = metrics_series(METRIC_QUEUE_OVERTAKES, &model);
    r->ttft[0] = metrics_series(METRIC_TTFT, (const struct slice[]){model, SLICE("false")});
    r->ttft[1] = metrics_series(METRIC_TTFT, (const struct slice[]){model, SLICE("true")});
}

static void topology_set_text(char **to, const char *text)
{
    char *copy = text != NULL ? mem_strdup(text) : NULL;

    mem_free(*to);
    *to = copy;
}

static char *topology_json_string(const char *text)
{
    struct buf b;
    char *value;

    if (text == NULL)
        return NULL;
    buf_init(&b, 8 * OPENAI_MODEL_MAX);
    value = openai_model_value(&b, slice_of(text)) ? mem_dup_slice(buf_slice(&b)) : NULL;
    buf_free(&b);
    return value;
}

static bool topology_same_upstream(const struct topology_route *a, const struct topology_route *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->server_name, b->server_name) == 0 &&
           strcmp(topology_upstream_model(a), topology_upstream_model(b)) == 0;
}

/* Its labels are what a reload may change. */
static void topology_drop_upstream_series(const struct topology *t, const struct topology_route *r)
{
    const struct slice labels[] = {slice_of(r->server_name), slice_of(r->name), SLICE("model_server"),
                                   slice_of(r->server_name), slice_of(topology_upstream_model(r))};

    LIST_EACH(it, &t->alive)
    {
        const struct topology_route *other = LIST_ITEM(it, struct topology_route, link);

        if (other != r && topology_same_upstream(other, r))
            return;
    }
    metrics_drop(METRIC_ACTIVE_UPSTREAM, labels);
}

static bool topology_name_is(const struct htab_node *node, const void *key)
{
    return strcmp(CONTAINER_OF(node, const struct topology_name, by_name)->text, key) == 0;
}

static struct topology_name *topology_use_name(struct topology *t, const char *text)
{
    const uint64_t hash = htab_hash(slice_of(text));
    struct htab_node *node = htab_find(&t->names, hash, topology_name_is, text);
    struct topology_name *name;

    if (node != NULL)
        return CONTAINER_OF(node, struct topology_name, by_name);
    name = mem_zalloc(sizeof *name);
    name->text = mem_strdup(text);
    list_init(&name->routes);
    htab_add(&t->names, &name->by_name, hash);
    return name;
}

static void topology_free_name(struct topology *t, struct topology_name *name)
{
    htab_remove(&t->names, &name->by_name);
    mem_free(name->text);
    mem_free(name);
}

static struct topology_route *topology_new_route(struct topology *t, const char *model_name,
                                                 const struct boostq_rules *rules)
{
    struct topology_route *r = mem_zalloc(sizeof *r);
    struct topology_name *name = r->public_name = topology_use_name(t, model_name);
    struct list *sibling = list_first(&name->routes);

    list_init(&r->link);
    list_push_back(&t->alive, &r->link);
    list_init(&r->in_name);
    list_push_back(&name->routes, &r->in_name);
    r->model_name = name->text;
    r->log_model_name = log_know(r->model_name);
    r->model = model_new(model_name, rules,
                         sibling != NULL ? LIST_ITEM(sibling, struct topology_route, in_name)->model : NULL);
    r->model->q.on_promoted = t->on_promoted;
    r->refs = 1;
    topology_route_series(r);
    admit_add_model(&t->sched->admit, r->model);
    t->routes = mem_array(t->routes, t->n_routes + 1, sizeof(struct topology_route *));
    t->routes[t->n_routes++] = r;
    return r;
}

/* What is being put in force: one public name, by one route, to one server. */
struct topology_way {
    struct topology *t;
    const struct config *c;
    const struct boostq_rules *rules;
    struct route_table *table; /* the new one */
    const struct route_spec *route;
    const char *name;
    bool adapter;
    const struct config_server *server;
    struct config_server missing; /* in place of one that does not exist: it has no pods */
    bool any_server;              /* an old one to another server will do */
    struct topology_route *found;
};

static bool topology_is_way(const struct topology_route *r, const struct topology_way *w)
{
    return strcmp(r->name, w->route->name) == 0 && strcmp(r->server_name, w->server->name) == 0;
}

static void topology_find_way(void *to, void *arg)
{
    struct topology_route *r = to;
    struct topology_way *w = arg;

    if (topology_is_way(r, w))
        w->found = r;
}

static void topology_claim(void *to, void *arg)
{
    struct topology_route *r = to;
    struct topology_way *w = arg;

    if (w->found == NULL && !r->kept && (w->any_server || strcmp(r->server_name, w->server->name) == 0))
        w->found = r;
}

/* The one in the table that is this way already. */
static struct topology_route *topology_way_in(struct topology_way *w, const struct route_table *table)
{
    const struct route_name *n = route_find(table, slice_of(w->name));

    w->found = NULL;
    if (n != NULL)
        route_name_each(n, topology_find_way, w);
    return w->found;
}

/* Another way of the name that is in force and stays as none: its queue goes on under the new route or
 * server. */
static struct topology_route *topology_heir(struct topology_way *w)
{
    const struct route_name *n = route_find(&w->t->table, slice_of(w->name));

    w->found = NULL;
    for (int i = 0; i < 2 && n != NULL && w->found == NULL; i++) {
        w->any_server = i == 1;
        route_name_each(n, topology_claim, w);
    }
    return w->found;
}

/* What stands in labels. Where many routes stay as they are, only those that change cost anything. */
static void topology_set_names(struct topology_route *r, const struct topology_way *w)
{
    const char *pods_name = w->adapter ? NULL : w->server->model;

    if (r->name != NULL) {
        if (topology_is_way(r, w) && topology_same_text(r->upstream_model, pods_name))
            return;
        topology_drop_upstream_series(w->t, r);
    }
    r->n_series = 0;
    topology_set_text(&r->name, w->route->name);
    topology_set_text(&r->server_name, w->server->name);
    topology_set_text(&r->upstream_model, pods_name);
    mem_free(r->upstream_value);
    r->upstream_value = topology_json_string(pods_name);
    accesslog_route_set(&r->log_names, r->model_name, r->name, r->server_name, topology_upstream_model(r));
}

static void topology_set_way(struct topology_route *r, const struct topology_way *w)
{
    const struct config_server *server = w->server;

    r->kept = true;
    r->server = server != &w->missing ? topology_server_find(w->t, server->name) : NULL;
    topology_set_names(r, w);
    r->timeout_us = server->timeout_us > 0 ? server->timeout_us : w->c->upstream_header_timeout_us;
    model_set_pins(r->model, w->route->sticky_ttl_us, w->rules->max_sessions);
    model_set_policy(r->model, &w->route->policy);
    r->model->adapter = w->adapter;
    r->says_sticky = w->route->n_sources > 0 || w->route->sticky != ROUTE_STICKY_UNSET;
    topology_route_pods(w->t, r);
}

/* The router's rules as this route wants them. */
static struct boostq_rules topology_way_rules(const struct topology_way *w)
{
    const struct route_spec *s = w->route;
    struct boostq_rules rules = *w->rules;

    if (s->policy.max_waiting > 0 && !w->c->enable_session_boost && !w->c->enable_fairness_scheduling)
        rules.timeout_us = w->c->session_boost_timeout_us; /* who waits may wait too long */
    rules.pinned = s->n_sources > 0;
    if (rules.pinned || s->sticky == ROUTE_STICKY_PREFER || s->sticky == ROUTE_STICKY_WAIT)
        rules.prefer_warm = true;
    if (s->sticky == ROUTE_STICKY_OFF)
        rules.prefer_warm = false;
    if (s->sticky != ROUTE_STICKY_UNSET)
        rules.sticky = s->sticky == ROUTE_STICKY_WAIT;
    if (s->sticky == ROUTE_STICKY_WAIT) {
        rules.sticky_wait_us = s->sticky_wait_us;
        rules.fixed_wait = true;
    }
    return rules;
}

static struct topology_route *topology_put_way(struct topology_way *w)
{
    struct topology_route *r = topology_way_in(w, w->table);
    const struct boostq_rules rules = topology_way_rules(w);

    if (r != NULL) /* another rule of the route has it */
        return r;
    r = topology_way_in(w, &w->t->table);
    if (r == NULL)
        r = topology_heir(w);
    if (r == NULL)
        r = topology_new_route(w->t, w->name, &rules);
    boostq_set_rules(&r->model->q, &rules); /* a new one's name may live on with the rules of before */
    topology_set_way(r, w);
    return r;
}

/* False: the target is never taken. */
static bool topology_way_to(struct topology_way *w, const struct route_weight *target)
{
    w->server = topology_server_find_spec(w->t, target->server);
    w->missing.name = target->server;
    if (w->server == NULL)
        w->server = &w->missing;
    return target->weight != 0;
}

static void topology_put_rule(struct topology_way *w, struct route_name *n,
                              const struct route_rule_spec *spec)
{
    const size_t rule = route_name_add_rule(n, w->route, spec);

    for (size_t i = 0; i < spec->n_targets; i++) {
        struct topology_route *r;

        if (!topology_way_to(w, &spec->targets[i]))
            continue;
        r = topology_put_way(w);
        route_name_add_target(n, rule, r->model, r, spec->targets[i].weight);
    }
}

static void topology_put_name(struct topology_way *w, const char *name, bool adapter)
{
    struct route_name *n = route_table_add_name(w->table, slice_of(name), adapter);

    if (n->adapter != adapter) /* a model has that name */
        return;
    w->name = name;
    w->adapter = adapter;
    for (size_t i = 0; i < w->route->n_rules; i++)
        topology_put_rule(w, n, &w->route->rules[i]);
}

/* Ways that stay as they are must not be claimed by others first. */
static void topology_keep_way(void *to, void *arg)
{
    struct topology_route *r = to;
    struct topology_way *w = arg;

    for (size_t i = 0; i < w->route->n_rules; i++) {
        for (size_t k = 0; k < w->route->rules[i].n_targets; k++) {
            if (topology_way_to(w, &w->route->rules[i].targets[k]) && topology_is_way(r, w))
                r->kept = true;
        }
    }
}

static void topology_each_name(struct topology_way *w, bool adapters,
                               void (*fn)(struct topology_way *w, const char *name, bool adapter))
{
    for (size_t i = 0; i < w->c->n_routes; i++) {
        const struct route_spec *s = w->route = &w->c->routes[i];

        if (!adapters && s->model != NULL)
            fn(w, s->model, false);
        for (size_t k = 0; adapters && k < s->n_adapters; k++)
            fn(w, s->adapters[k], true);
    }
}

static void topology_keep_name(struct topology_way *w, const char *name, bool adapter)
{
    const struct route_name *n = route_find(&w->t->table, slice_of(name));

    if (n != NULL && n->adapter == adapter)
        route_name_each(n, topology_keep_way, w);
}

static void topology_apply_routes(struct topology *t, const struct config *c,
                                  const struct boostq_rules *rules)
{
    struct route_table table;
    struct topology_way w = {.t = t, .c = c, .rules = rules, .table = &table};

    route_table_init(&table);
    topology_each_name(&w, false, topology_keep_name);
    topology_each_name(&w, true, topology_keep_name);
    topology_each_name(&w, false, topology_put_name);
    topology_each_name(&w, true, topology_put_name);
    route_table_finish(&table, &t->table);
    route_table_free(&t->table);
    t->table = table;
    t->specs = c->routes;
    t->n_specs = c->n_routes;
}

const char *topology_upstream_model(const struct topology_route *r)
{
    return r->upstream_model != NULL ? r->upstream_model : r->model_name;
}

struct topology_route *topology_ref(struct topology_route *r)
{
    r->refs++;
    return r;
}

/* A removed model's numbers go from the metrics page with the last route that counts in them. */
static void topology_drop_series(const struct topology_name *name)
{
    static const enum metric per_model[] = {
        METRIC_ACTIVE_DOWNSTREAM, METRIC_QUEUE_SIZE,     METRIC_QUEUE_DURATION,  METRIC_QUEUE_CANCELLED,
        METRIC_QUEUE_DEQUEUE,     METRIC_QUEUE_INFLIGHT, METRIC_QUEUE_BOOSTED,   METRIC_QUEUE_FORCED,
        METRIC_QUEUE_PROMOTED,    METRIC_QUEUE_TIMEOUTS, METRIC_QUEUE_OVERTAKES, METRIC_SESSIONS_TRACKED,
        METRIC_SESSIONS_EVICTED,  METRIC_FAIR_INFLIGHT,  METRIC_FAIR_RANKS,      METRIC_FAIR_FORCED,
        METRIC_FAIR_TIMEOUTS,     METRIC_FAIR_USERS,     METRIC_FAIR_EVICTED};
    static const enum metric per_user[] = {METRIC_FAIR_SIZE, METRIC_FAIR_DURATION, METRIC_FAIR_CANCELLED,
                                           METRIC_FAIR_DEQUEUE};
    static const char *const sticky_results[] = {"new", "hit", "waited", "spill", "gone"};
    const struct slice model = slice_of(name->text);

    for (size_t i = 0; i < ARRAY_LEN(per_model); i++)
        metrics_drop(per_model[i], &model);
    metrics_drop(METRIC_TTFT, (const struct slice[]){model, SLICE("false")});
    metrics_drop(METRIC_TTFT, (const struct slice[]){model, SLICE("true")});
    for (size_t i = 0; i < ARRAY_LEN(sticky_results); i++)
        metrics_drop(METRIC_SESSION_STICKY, (const struct slice[]){model, slice_of(sticky_results[i])});
    for (size_t i = 0; i < ARRAY_LEN(per_user); i++)
        metrics_drop(per_user[i], (const struct slice[]){model, SLICE("_all")});
    for (int reason = POD_NOT_USABLE; reason < POD_ROOM_KINDS; reason++) {
        const struct slice labels[] = {model, slice_of(pod_room_name((enum pod_room)reason))};

        metrics_drop(METRIC_GATE_CLOSED, labels);
        metrics_drop(METRIC_FAIR_GATE_CLOSED, labels);
    }
}

void topology_unref(struct topology *t, struct topology_route *r)
{
    if (--r->refs > 0)
        return;
    list_del(&r->in_name);
    if (list_empty(&r->public_name->routes))
        topology_drop_series(r->public_name);
    topology_drop_upstream_series(t, r);
    list_del(&r->link);
    model_free(r->model);
    mem_free(r->name);
    accesslog_route_free(&r->log_names);
    mem_free(r->server_name);
    mem_free(r->upstream_model);
    mem_free(r->upstream_value);
    if (list_empty(&r->public_name->routes))
        topology_free_name(t, r->public_name);
    mem_free(r);
    loop_defer(t->loop, &t->reap);
}

static void topology_note_way(void *to, void *arg)
{
    struct topology_route **found = arg;

    *found = to;
}

/* What waits there goes to another target of its name, or has no model any more; running ones finish. */
static void topology_vanish(struct topology *t, struct topology_route *r)
{
    const struct slice model = slice_of(r->model_name);
    struct topology_route *other = NULL;
    const struct route_name *n = route_find(&t->table, model);

    if (n != NULL)
        route_name_each(n, topology_note_way, &other);
    if (!t->ending)
        log_info(other == NULL ? "model removed" : "target removed", LOG_STR("model", r->model_name),
                 LOG_STR("model_server", r->server_name), LOG_INT("queued", boostq_len(&r->model->q)));
    r->server = NULL;
    admit_remove_model(&t->sched->admit, r->model);
    sched_flush(t->sched, r->model);
    model_set_pods(r->model, NULL, 0, loop_now_us(t->loop));
    if (other != NULL) {
        model_inherit(other->model, r->model);
    } else {
        /* Nothing waits there any more, however long its last request runs. */
        metrics_drop(METRIC_QUEUE_SIZE, &model);
        metrics_drop(METRIC_FAIR_SIZE, (const struct slice[]){model, SLICE("_all")});
        metrics_drop(METRIC_SESSIONS_TRACKED, &model);
    }
    topology_unref(t, r);
}

static void topology_drop_routes(struct topology *t)
{
    struct topology_route **gone = mem_array(NULL, t->n_routes + 1, sizeof(struct topology_route *));
    size_t kept = 0, n_gone = 0;

    for (size_t i = 0; i < t->n_routes; i++) {
        if (t->routes[i]->kept)
            t->routes[kept++] = t->routes[i];
        else
            gone[n_gone++] = t->routes[i];
    }
    t->n_routes = kept;
    for (size_t i = 0; i < n_gone; i++)
        topology_vanish(t, gone[i]);
    mem_free(gone);
}

struct topology_route *topology_only(const struct topology *t, struct slice name)
{
    const struct route_name *n = route_find(&t->table, name);

    return n != NULL && n->only != NULL ? n->only->to : NULL;
}

struct topology_route *topology_decide(const struct topology *t, struct slice name, struct route_query *q,
                                       bool *known)
{
    struct route_name *n = route_find(&t->table, name);
    const struct route_target *target;

    *known = n != NULL;
    if (n == NULL)
        return NULL;
    target = n->only != NULL ? n->only : route_decide(n, q, loop_now_us(t->loop));
    return target != NULL ? target->to : NULL;
}

/* ---- the whole ---- */

void topology_init(struct topology *t, struct loop *l, struct curlev *c, struct discover *d, struct sched *s)
{
    memset(t, 0, sizeof *t);
    t->loop = l;
    t->curl = c;
    t->discover = d;
    t->sched = s;
    list_init(&t->alive);
    htab_init(&t->pods_by_name, 0);
    htab_init(&t->servers_by_name, 0);
    htab_init(&t->names, 0);
    route_table_init(&t->table);
    loop_task_init(&t->reap, topology_pod_on_reap);
}

void topology_apply(struct topology *t, const struct config *c)
{
    struct boostq_rules rules;
    bool adapters = false;

    topology_rules(c, &rules, &t->sched->admit.rules);
    for (size_t i = 0; i < c->n_routes; i++)
        adapters = adapters || c->routes[i].n_adapters > 0;
    t->scrape_rules =
        (struct scrape_rules){c->metrics_scrape_interval_us, c->metrics_scrape_timeout_us, c->upstream_tls_ca,
                              &t->scrape_pace, c->models_from_pods || adapters};
    for (size_t i = 0; i < t->n_servers; i++)
        t->servers[i]->kept = false;
    for (size_t i = 0; i < t->n_routes; i++)
        t->routes[i]->kept = false;
    for (size_t i = 0; i < c->n_servers; i++)
        topology_server_apply(t, &c->servers[i]);
    topology_apply_routes(t, c, &rules);
    topology_drop_routes(t);
    topology_server_drop_unkept(t);
    for (size_t i = 0; i < t->n_routes; i++)
        if (t->routes[i]->server == NULL)
            topology_move_waiting(t, t->routes[i]);
    for (size_t i = 0; i < t->n_pods; i++)
        if (t->pods[i]->scrape != NULL)
            scrape_heed_rules(t->pods[i]->scrape);
    sched_refresh(t->sched);
}

void topology_free(struct topology *t)
{
    t->ending = true;
    route_table_free(&t->table); /* nobody goes anywhere any more */
    for (size_t i = 0; i < t->n_routes; i++)
        t->routes[i]->kept = false;
    topology_drop_routes(t);
    for (size_t i = 0; i < t->n_servers; i++)
        t->servers[i]->kept = false;
    topology_server_drop_unkept(t);
    loop_task_cancel(&t->reap);
    topology_pod_on_reap(&t->reap);
    mem_free(t->routes);
    mem_free(t->servers);
    mem_free(t->pods);
    htab_free(&t->pods_by_name);
    htab_free(&t->servers_by_name);
    htab_free(&t->names);
}

bool topology_ready(const struct topology *t)
{
    for (size_t i = 0; i < t->n_servers; i++)
        if (t->servers[i]->source != NULL && !discover_settled(t->servers[i]->source))
            return false;
    return true;
}
