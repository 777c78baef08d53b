/* Three watches feed a kthena. What comes of it is put in force in slices (kubeapi_work): servers and routes
 * as a whole, then the pods of one server after the other. */
#include "cluster.h"

#include "clock.h"
#include "kubewatch.h"
#include "log.h"
#include "mem.h"

#define CLUSTER_GROUP     "/apis/networking.serving.volcano.sh/v1alpha1"
#define CLUSTER_SAID_MAX  4096
#define CLUSTER_SHOWN_MAX 512 /* bytes of names in one text */

struct cluster_kind {
    struct cluster *cluster;
    enum kthena_kind kind;
    struct kubewatch *watch;
    bool full; /* and that has been said */
};

struct cluster {
    struct kubeapi *api;
    struct topology *topology;
    struct kthena *kthena;
    struct cluster_kind kinds[KTHENA_KINDS];
    struct kubeapi_work work;
    struct wheel_timer timer; /* when servers and routes that have changed are put in force */
    int64_t due_us;           /* then; 0 = nothing has changed */
    bool applied, settled;
    /* In force */
    const struct config *base;
    struct config merged; /* options and strings are the base's, and the view's */
    struct kthena_view *view;
    struct buf said; /* unsupported fields that were logged, each followed by a line end */
};

static const char *const cluster_names[KTHENA_KINDS] = {"pods", "modelservers", "modelroutes"};
static const char *const cluster_words[KTHENA_KINDS] = {"Pod", "ModelServer", "ModelRoute"};

static bool cluster_synced(const struct cluster *c)
{
    for (int i = 0; i < KTHENA_KINDS; i++)
        if (c->kinds[i].watch == NULL || !kubewatch_synced(c->kinds[i].watch))
            return false;
    return true;
}

/* ---- what is said about objects ---- */

static bool cluster_has_said(const struct cluster *c, struct slice line)
{
    struct slice rest = buf_slice(&c->said);

    while (rest.n > 0)
        if (slice_eq(slice_cut(&rest, '\n'), line))
            return true;
    return false;
}

/* Once for each field, with the first object that has it. */
static void cluster_say_field(struct cluster *c, const struct kthena_info *info, struct slice field)
{
    char *line = mem_printf("%s %.*s", cluster_words[info->kind], SLICE_ARG(field));

    if (!cluster_has_said(c, slice_of(line))) {
        log_warn("a field is not supported; it has no effect", LOG_STR("kind", cluster_words[info->kind]),
                 LOG_SLICE("field", field), LOG_STR("object", info->name));
        if (!buf_printf(&c->said, "%s\n", line))
            buf_clear(&c->said); /* more kinds of fields than anybody has: from the beginning */
    }
    mem_free(line);
}

static void cluster_say(struct cluster *c, const struct kthena_info *info)
{
    struct slice rest = slice_of(info->unsupported);

    while (rest.n > 0)
        cluster_say_field(c, info, slice_cut(&rest, ','));
    for (rest = slice_of(info->warnings); rest.n > 0;)
        log_warn("an object is not as it should be", LOG_STR("kind", cluster_words[info->kind]),
                 LOG_STR("object", info->name), LOG_SLICE("warning", slice_cut(&rest, '\n')));
    if (info->problem != NULL)
        log_warn("an object is not used", LOG_STR("kind", cluster_words[info->kind]),
                 LOG_STR("object", info->name), LOG_STR("problem", info->problem));
}

static bool cluster_base_has(const struct config *base, const char *server)
{
    for (size_t i = 0; i < base->n_servers; i++)
        if (strcmp(base->servers[i].name, server) == 0)
            return true;
    return false;
}

/* The servers of a route that do not exist, into `text`, separated; those that have no room are left out. */
static void cluster_missing(const struct cluster *c, const struct route_spec *route, struct buf *text)
{
    for (size_t i = 0; route != NULL && i < route->n_rules; i++) {
        for (size_t k = 0; k < route->rules[i].n_targets; k++) {
            const char *server = route->rules[i].targets[k].server;

            if (!kthena_has_server(c->kthena, server) && !cluster_base_has(c->base, server) &&
                !buf_printf(text, "%s%s", text->len > 0 ? ", " : "", server))
                return;
        }
    }
}

/* Once for each route as it is: its server may come and go, or come later. */
static void cluster_say_missing(const struct kthena_info *info, void *arg)
{
    struct cluster *c = arg;
    struct buf text;

    if (info->route == NULL || info->problem != NULL || *info->told)
        return;
    buf_init(&text, CLUSTER_SHOWN_MAX);
    cluster_missing(c, info->route, &text);
    *info->told = text.len > 0;
    if (text.len > 0)
        log_warn("a route names a ModelServer that does not exist", LOG_STR("object", info->name),
                 LOG_SLICE("model_server", buf_slice(&text)));
    buf_free(&text);
}

/* ---- what the watches tell ---- */

static void cluster_dirty(struct cluster *c)
{
    kubeapi_work_add(c->api, &c->work);
}

static void cluster_on_begin(void *arg)
{
    const struct cluster_kind *k = arg;

    kthena_list_begin(k->cluster->kthena, k->kind);
}

static void cluster_on_end(void *arg)
{
    const struct cluster_kind *k = arg;

    kthena_list_end(k->cluster->kthena, k->kind);
    cluster_dirty(k->cluster);
}

/* Once. */
static void cluster_say_full(struct cluster *c, enum kthena_kind kind)
{
    const size_t n = kthena_count(c->kthena, kind);

    if (c->kinds[kind].full || n < (kind == KTHENA_PODS ? KTHENA_PODS_MAX : KTHENA_OBJECTS_MAX))
        return;
    c->kinds[kind].full = true;
    log_error("as many objects are known as can be; any more are not used",
              LOG_STR("kind", cluster_words[kind]), LOG_INT("objects", (int64_t)n));
}

static void cluster_on_put(const struct cJSON *object, void *arg)
{
    const struct cluster_kind *k = arg;
    struct kthena_info info;

    if (kthena_put(k->cluster->kthena, k->kind, object, &info))
        cluster_say(k->cluster, &info);
    cluster_say_full(k->cluster, k->kind);
    cluster_dirty(k->cluster);
}

static void cluster_on_deleted(const struct cJSON *object, void *arg)
{
    const struct cluster_kind *k = arg;

    kthena_delete(k->cluster->kthena, k->kind, object);
    cluster_dirty(k->cluster);
}

static const struct kubewatch_ops cluster_ops = {cluster_on_begin, cluster_on_end, cluster_on_put,
                                                 cluster_on_deleted};

/* ---- servers and routes ---- */

/* The configuration's come first: its routes are the oldest, its servers keep their names. */
static void cluster_merge(const struct config *base, const struct kthena_view *v, struct config *out)
{
    *out = *base;
    out->servers = mem_array(NULL, base->n_servers + v->n_servers + 1, sizeof *out->servers);
    out->routes = mem_array(NULL, base->n_routes + v->n_routes + 1, sizeof *out->routes);
    for (size_t i = 0; i < base->n_servers; i++)
        out->servers[i] = base->servers[i];
    for (size_t i = 0; i < base->n_routes; i++)
        out->routes[i] = base->routes[i];
    for (size_t i = 0; i < v->n_servers; i++)
        if (!cluster_base_has(base, v->servers[i]->name))
            out->servers[out->n_servers++] = *v->servers[i];
    for (size_t i = 0; i < v->n_routes; i++)
        out->routes[out->n_routes++] = *v->routes[i];
}

static void cluster_drop_merged(struct config *merged, struct kthena_view *view)
{
    mem_free(merged->servers);
    mem_free(merged->routes);
    kthena_view_free(view);
}

/* ---- pods ---- */

static void cluster_give_pods(struct cluster *c, const struct kthena_server *s)
{
    size_t n, n_given = 0;
    struct kubeobj_endpoint *e = kthena_endpoints(s, &n);
    struct discover_endpoint *given = mem_zalloc((n + 1) * sizeof *given);

    for (size_t i = 0; i < n; i++)
        n_given += discover_set_endpoint(&given[n_given], e[i].authority, e[i].uid);
    topology_server_set_endpoints(c->topology, kthena_server_name(s), given, n_given);
    discover_free_endpoints(given, n_given);
    kubeobj_free_endpoints(e, n);
}

/* Servers that are new in force have their pods before anything else happens: no request finds one without.
 * When there are very many, as after a list, the rest have them in the next turns. */
static void cluster_give_new_pods(struct cluster *c)
{
    const int64_t end_us = clock_mono_us() + CLUSTER_GIVE_US;
    const struct kthena_server *s;

    while (clock_mono_us() < end_us && (s = kthena_next_dirty(c->kthena)) != NULL)
        cluster_give_pods(c, s);
}

/* ---- in force ---- */

void cluster_apply(struct cluster *c, const struct config *base)
{
    static const struct kthena_view nothing;
    struct kthena_view *old_view = c->view;
    struct config old = c->merged;

    c->base = base;
    c->view = cluster_synced(c) ? kthena_view(c->kthena) : NULL;
    cluster_merge(base, c->view != NULL ? c->view : &nothing, &c->merged);
    topology_apply(c->topology, &c->merged);
    cluster_drop_merged(&old, old_view);
    c->due_us = 0;
    if (c->applied)
        cluster_give_new_pods(c);
    if (c->view != NULL)
        kthena_each(c->kthena, cluster_say_missing, c);
    c->applied = c->view != NULL;
    cluster_dirty(c);
}

/* True: they are in force now; false: as they were already, or not yet. What changes together, as an object
 * that is deleted and made again, comes in force together. */
static bool cluster_apply_changes(struct cluster *c)
{
    const int64_t now_us = loop_now_us(kubeapi_loop(c->api));

    if (c->applied && !kthena_changed(c->kthena))
        return false;
    if (c->applied && c->due_us == 0) {
        c->due_us = now_us + CLUSTER_APPLY_US;
        loop_timer_set(kubeapi_loop(c->api), &c->timer, c->due_us);
    }
    if (now_us < c->due_us)
        return false;
    cluster_apply(c, c->base);
    return true;
}

static void cluster_on_timer(struct wheel_timer *t)
{
    cluster_dirty(CONTAINER_OF(t, struct cluster, timer));
}

static bool cluster_work(struct kubeapi_work *work)
{
    struct cluster *c = CONTAINER_OF(work, struct cluster, work);
    const struct kthena_server *s;

    /* Part of the first lists is not what the cluster has. */
    if (!cluster_synced(c))
        return false;
    if (cluster_apply_changes(c))
        return true;
    s = kthena_next_dirty(c->kthena);
    if (s != NULL)
        cluster_give_pods(c, s);
    else
        c->settled = true;
    return s != NULL;
}

bool cluster_settled(const struct cluster *c)
{
    return c->settled;
}

/* ---- life ---- */

static struct kubewatch *cluster_watch(struct cluster *c, enum kthena_kind kind, const char *namespace)
{
    char *path = mem_printf("%s%s%s/%s", kind == KTHENA_PODS ? "/api/v1" : CLUSTER_GROUP,
                            namespace[0] != '\0' ? "/namespaces/" : "", namespace, cluster_names[kind]);
    const struct kubewatch_spec spec = {path, NULL, cluster_names[kind]};
    struct kubewatch *w = kubewatch_new(c->api, &spec, &cluster_ops, &c->kinds[kind]);

    if (w == NULL)
        log_error("cannot start watching", LOG_STR("resource", path));
    mem_free(path);
    return w;
}

struct cluster *cluster_new(struct kubeapi *api, struct topology *t, const char *namespace)
{
    struct cluster *c = mem_zalloc(sizeof *c);

    c->api = api;
    c->topology = t;
    c->kthena = kthena_new();
    kubeapi_work_init(&c->work, cluster_work);
    wheel_timer_init(&c->timer, cluster_on_timer);
    buf_init(&c->said, CLUSTER_SAID_MAX);
    for (int i = 0; i < KTHENA_KINDS; i++) {
        c->kinds[i].cluster = c;
        c->kinds[i].kind = (enum kthena_kind)i;
        c->kinds[i].watch = cluster_watch(c, (enum kthena_kind)i, namespace);
    }
    return c;
}

void cluster_free(struct cluster *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < KTHENA_KINDS; i++)
        kubewatch_free(c->kinds[i].watch);
    kubeapi_work_cancel(&c->work);
    loop_timer_cancel(kubeapi_loop(c->api), &c->timer);
    cluster_drop_merged(&c->merged, c->view);
    kthena_free(c->kthena);
    buf_free(&c->said);
    mem_free(c);
}

/* ---- for dumps ---- */

struct cluster_resource cluster_resource(const struct cluster *c, enum kthena_kind kind)
{
    const struct kubewatch *w = c->kinds[kind].watch;

    return (struct cluster_resource){.name = cluster_names[kind],
                                     .objects = kthena_count(c->kthena, kind),
                                     .synced = w != NULL && kubewatch_synced(w),
                                     .up = w != NULL && kubewatch_is_up(w)};
}

struct cluster_each {
    const struct cluster *cluster;
    void (*fn)(const struct kthena_info *info, void *arg);
    void *arg;
};

/* With what can only be known of all objects together. */
static void cluster_show(const struct kthena_info *info, void *arg)
{
    const struct cluster_each *e = arg;
    struct kthena_info shown = *info;
    struct buf missing;
    char *text = NULL;

    buf_init(&missing, CLUSTER_SHOWN_MAX);
    cluster_missing(e->cluster, info->route, &missing);
    if (missing.len > 0)
        shown.warnings = text =
            mem_printf("%s%sthere is no ModelServer %.*s", info->warnings,
                       info->warnings[0] != '\0' ? "\n" : "", SLICE_ARG(buf_slice(&missing)));
    e->fn(&shown, e->arg);
    mem_free(text);
    buf_free(&missing);
}

void cluster_each(const struct cluster *c, void (*fn)(const struct kthena_info *info, void *arg), void *arg)
{
    struct cluster_each e = {c, fn, arg};

    kthena_each(c->kthena, cluster_show, &e);
}
