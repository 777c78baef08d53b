/* Watches the slices that carry the Service's name. All changes of a turn are announced at its end, at once.
 */
#include "discover_service.h"

#include "kubeslices.h"
#include "kubewatch.h"
#include "log.h"
#include "mem.h"

struct discover_service {
    struct kubeapi *api;
    char *owner, *service;
    void (*changed)(void *arg);
    void *arg;
    struct kubeslices slices;
    struct kubewatch *watch;
    struct loop_task announce;
    struct discover_endpoint *endpoints;
    size_t n;
    bool settled;
    bool told_empty;       /* that there are no slices */
    const char *complaint; /* the last thing that was wrong with a slice, so that it is said once */
};

/* ---- what the watch tells ---- */

static void discover_service_dirty(struct discover_service *s)
{
    loop_defer(kubeapi_loop(s->api), &s->announce);
}

static void discover_service_on_begin(void *arg)
{
    struct discover_service *s = arg;

    kubeslices_list_begin(&s->slices);
}

static void discover_service_on_end(void *arg)
{
    struct discover_service *s = arg;

    kubeslices_list_end(&s->slices);
    discover_service_dirty(s);
}

static void discover_service_on_put(const struct cJSON *slice, void *arg)
{
    struct discover_service *s = arg;
    const char *why;
    const bool used = kubeslices_put(&s->slices, slice, &why);
    struct kubeobj_meta meta;

    if (why != NULL && why != s->complaint && kubeobj_meta(slice, &meta)) {
        s->complaint = why;
        log_warn(used ? "an EndpointSlice is used, and may be wrong" : "an EndpointSlice is not used",
                 LOG_SLICE("slice", meta.name), LOG_STR("service", s->service),
                 LOG_STR("model_server", s->owner), LOG_STR("error", why));
    }
    discover_service_dirty(s);
}

static void discover_service_on_deleted(const struct cJSON *slice, void *arg)
{
    struct discover_service *s = arg;

    kubeslices_delete(&s->slices, slice);
    discover_service_dirty(s);
}

static const struct kubewatch_ops discover_service_ops = {
    discover_service_on_begin, discover_service_on_end, discover_service_on_put, discover_service_on_deleted};

/* ---- the set ---- */

static bool discover_service_same(const struct discover_service *s, const struct kubeobj_endpoint *e,
                                  size_t n)
{
    if (n != s->n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(e[i].authority, s->endpoints[i].name) != 0 || strcmp(e[i].uid, s->endpoints[i].uid) != 0)
            return false;
    return true;
}

static void discover_service_set(struct discover_service *s, const struct kubeobj_endpoint *e, size_t n)
{
    discover_free_endpoints(s->endpoints, s->n);
    s->endpoints = mem_zalloc((n + 1) * sizeof *s->endpoints);
    s->n = 0;
    for (size_t i = 0; i < n; i++)
        s->n += discover_set_endpoint(&s->endpoints[s->n], e[i].authority, e[i].uid);
}

/* A Service with a selector has a slice even when it has no pods. Said once, until there is one. */
static void discover_service_check_empty(struct discover_service *s)
{
    const bool empty = s->slices.n_slices == 0;

    if (empty && !s->told_empty)
        log_warn("a Service has no EndpointSlices: does it exist?", LOG_STR("service", s->service),
                 LOG_STR("model_server", s->owner));
    s->told_empty = empty;
}

static void discover_service_on_announce(struct loop_task *t)
{
    struct discover_service *s = CONTAINER_OF(t, struct discover_service, announce);
    struct kubeobj_endpoint *e;
    bool first = !s->settled;
    size_t n;

    /* Part of the first list is not the set. */
    if (!kubewatch_synced(s->watch))
        return;
    s->settled = true;
    discover_service_check_empty(s);
    e = kubeslices_endpoints(&s->slices, &n);
    if (first || !discover_service_same(s, e, n)) {
        discover_service_set(s, e, n);
        s->changed(s->arg);
    }
    kubeobj_free_endpoints(e, n);
}

/* ---- life ---- */

static bool discover_service_watch(struct discover_service *s)
{
    struct slice namespace, name, port;
    const char *error;
    char *path, *selector;

    if (!kubeslices_parse_service(slice_of(s->service), &namespace, &name, &port, &error))
        return false;
    if (namespace.n == 0)
    namespace = slice_of(kubeapi_namespace(s->api));
    path = mem_printf("/apis/discovery.k8s.io/v1/namespaces/%.*s/endpointslices", SLICE_ARG(namespace));
    selector = mem_printf("kubernetes.io/service-name=%.*s", SLICE_ARG(name));
    kubeslices_init(&s->slices, port);
    s->watch = kubewatch_new(s->api, &(struct kubewatch_spec){path, selector, "endpointslices"},
                             &discover_service_ops, s);
    mem_free(path);
    mem_free(selector);
    return s->watch != NULL;
}

struct discover_service *discover_service_new(struct kubeapi *api, const struct discover_service_spec *spec)
{
    struct discover_service *s = mem_zalloc(sizeof *s);

    s->api = api;
    s->owner = mem_strdup(spec->owner);
    s->service = mem_strdup(spec->service);
    s->changed = spec->changed;
    s->arg = spec->arg;
    list_init(&s->slices.slices);
    loop_task_init(&s->announce, discover_service_on_announce);
    if (discover_service_watch(s))
        return s;
    discover_service_free(s);
    return NULL;
}

void discover_service_free(struct discover_service *s)
{
    if (s == NULL)
        return;
    loop_task_cancel(&s->announce);
    kubewatch_free(s->watch);
    kubeslices_free(&s->slices);
    discover_free_endpoints(s->endpoints, s->n);
    mem_free(s->owner);
    mem_free(s->service);
    mem_free(s);
}

const struct discover_endpoint *discover_service_endpoints(const struct discover_service *s, size_t *n)
{
    *n = s->n;
    return s->endpoints;
}

bool discover_service_settled(const struct discover_service *s)
{
    return s->settled;
}
