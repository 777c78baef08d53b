/* Pods are found by name, so that a pod that two servers list, or that leaves and comes back while it still
 * runs requests, is one pod with one in-flight count. */
#include "topology_pod.h"

#include "log.h"
#include "mem.h"
#include "openai.h"
#include "topology.h"

#define TOPOLOGY_POD_SERVED_MAX (64 * 1024) /* bytes of the names that one pod lists */

static void topology_pod_on_scrape_failed(struct pod *pod, const char *why, bool first, void *arg)
{
    (void)arg;
    metrics_inc(METRIC_POD_SCRAPES_FAILED, pod->name);
    if (first)
        log_warn("cannot read a pod's metrics; when its numbers are stale the in-flight limit alone decides",
                 LOG_STR("pod", pod->name), LOG_STR("error", why));
}

static void topology_pod_on_scrape_recovered(struct pod *pod, void *arg)
{
    (void)arg;
    log_info("reading a pod's metrics again", LOG_STR("pod", pod->name));
}

static void topology_pod_on_fresh(struct pod *pod, void *arg);
static void topology_pod_on_models(struct pod *pod, struct slice list, void *arg);

static const struct scrape_ops topology_pod_scrape_ops = {
    topology_pod_on_fresh, topology_pod_on_scrape_failed, topology_pod_on_scrape_recovered,
    topology_pod_on_models};

static bool topology_pod_has_name(const struct htab_node *node, const void *key)
{
    const struct topology_pod *p = CONTAINER_OF(node, const struct topology_pod, by_name);

    return !p->replaced && strcmp(p->pod->name, key) == 0;
}

static struct topology_pod *topology_pod_find(const struct topology *t, const char *name)
{
    struct htab_node *node =
        htab_find(&t->pods_by_name, htab_hash(slice_of(name)), topology_pod_has_name, name);

    return node != NULL ? CONTAINER_OF(node, struct topology_pod, by_name) : NULL;
}

static void topology_pod_on_fresh(struct pod *pod, void *arg)
{
    struct topology *t = arg;
    struct topology_pod *p = topology_pod_find(t, pod->name);

    if (p != NULL && p->pod == pod && p->asleep != pod->numbers.asleep) {
        p->asleep = pod->numbers.asleep;
        log_info(p->asleep ? "a pod's engine sleeps: it gets no request" : "a pod's engine is awake again",
                 LOG_STR("pod", pod->name));
        sched_refresh(t->sched);
    }
    sched_kick(t->sched);
}

bool topology_pod_lists(const struct topology_pod *p, struct slice name)
{
    struct slice rest = buf_slice(&p->served);

    while (rest.n > 0) {
        if (slice_eq(slice_cut(&rest, '\n'), name))
            return true;
    }
    return false;
}

/* Requests for adapters go to the pods that list them. */
static void topology_pod_on_models(struct pod *pod, struct slice list, void *arg)
{
    struct topology *t = arg;
    struct topology_pod *p = topology_pod_find(t, pod->name);
    struct buf before;

    if (p == NULL)
        return;
    before = p->served;
    buf_init(&p->served, TOPOLOGY_POD_SERVED_MAX);
    openai_model_names(list, &p->served);
    if (!slice_eq(buf_slice(&before), buf_slice(&p->served))) {
        topology_note_served(t, p);
        sched_refresh(t->sched);
    }
    buf_free(&before);
}

static struct topology_pod *topology_pod_add(struct topology *t, const struct discover_endpoint *e)
{
    struct topology_pod *p = mem_zalloc(sizeof *p);

    p->uid = mem_strdup(e->uid);
    buf_init(&p->served, TOPOLOGY_POD_SERVED_MAX);
    p->pod = pod_new(slice_of(e->name));
    upstream_new(t->loop, p->pod);
    t->pods = mem_grow(t->pods, t->n_pods, sizeof(struct topology_pod *));
    t->pods[t->n_pods++] = p;
    htab_add(&t->pods_by_name, &p->by_name, htab_hash(slice_of(e->name)));
    return p;
}

/* The pod at the endpoint's address, unless another one was there before: that one keeps its count and
 * sessions to itself. Who does not know uids, as a list of addresses, means whatever pod is there. */
static struct topology_pod *topology_pod_at(struct topology *t, const struct discover_endpoint *e)
{
    struct topology_pod *p = topology_pod_find(t, e->name);

    if (p == NULL || e->uid[0] == '\0' || strcmp(p->uid, e->uid) == 0)
        return p;
    if (p->uid[0] == '\0') {
        mem_free(p->uid);
        p->uid = mem_strdup(e->uid);
        return p;
    }
    p->replaced = true;
    return NULL;
}

static void topology_pod_start_scrape(struct topology *t, struct topology_pod *p, enum promtext_engine engine)
{
    if (p->scrape != NULL && p->engine == engine)
        return;
    scrape_free(p->scrape);
    p->scrape = NULL;
    p->engine = engine;
    if (engine == PROMTEXT_NONE)
        return;
    p->scrape = scrape_new(t->loop, t->curl, p->pod, engine, &t->scrape_rules, &topology_pod_scrape_ops, t);
}

/* The host of "host:port", brackets removed. */
static char *topology_pod_host(const char *authority)
{
    const char *end = strrchr(authority, ':');
    const bool v6 = authority[0] == '[';

    return mem_dup_slice((struct slice){authority + v6, (size_t)(end - authority) - 2 * (size_t)v6});
}

/* The name in the certificate of a server's pod; NULL: plain HTTP. */
static char *topology_pod_tls_name(const struct config_server *spec, const char *pod)
{
    if (!spec->https)
        return NULL;
    return spec->tls_name != NULL ? mem_strdup(spec->tls_name)
                                  : topology_pod_host(spec->dns != NULL ? spec->dns : pod);
}

/* The server has the pod, and it is spoken to as the server says, unless another one has said so before. */
static void topology_pod_own(struct topology *t, struct topology_pod *p, struct topology_server *s)
{
    char *tls_name = topology_pod_tls_name(s->spec, p->pod->name);

    if (p->owner == NULL || p->owner == s) {
        p->owner = s;
        p->owner_uses++;
        upstream_set_tls(p->pod->upstream, tls_name);
        topology_pod_start_scrape(t, p, s->spec->engine);
    } else if (!s->disputed &&
               (p->engine != s->spec->engine || !topology_same_text(p->pod->upstream->tls_name, tls_name))) {
        s->disputed = true;
        log_warn("two model-servers say different things of one pod; what the first one says holds",
                 LOG_STR("pod", p->pod->name), LOG_STR("model_server", s->name),
                 LOG_STR("first", p->owner->name),
                 LOG_STR("differs", p->engine != s->spec->engine ? "engine" : "protocol or tls_name"));
    }
    mem_free(tls_name);
}

/* A server does not have the pod any more: what another one says holds. */
static void topology_pod_disown(struct topology *t, struct topology_pod *p, const struct topology_server *s)
{
    if (p->owner != s || --p->owner_uses > 0)
        return;
    p->owner = NULL;
    for (size_t i = 0; i < t->n_servers && p->users > 0 && p->owner == NULL; i++) {
        struct topology_server *other = t->servers[i];

        for (size_t k = 0; k < other->n_pods && other != s; k++)
            if (other->pods[k] == p)
                topology_pod_own(t, p, other);
    }
}

struct topology_pod *topology_pod_use(struct topology_server *s, const struct discover_endpoint *e)
{
    struct topology *t = s->topology;
    struct topology_pod *p = topology_pod_at(t, e);

    if (p == NULL)
        p = topology_pod_add(t, e);
    if (p->users++ == 0) {
        p->pod->leaving = false;
        log_info("pod in use", LOG_STR("pod", e->name));
    }
    upstream_set_address(p->pod->upstream, (const struct sockaddr *)&e->address, e->address_bytes);
    topology_pod_own(t, p, s);
    return p;
}

void topology_pod_drop(struct topology_server *s, struct topology_pod *p)
{
    struct topology *t = s->topology;

    p->users--;
    topology_pod_disown(t, p, s);
    if (p->users > 0)
        return;
    if (!t->ending)
        log_info("pod leaves: gets no new request, finishes what it runs", LOG_STR("pod", p->pod->name),
                 LOG_INT("in_flight", p->pod->in_flight));
    p->pod->leaving = true;
    scrape_free(p->scrape);
    p->scrape = NULL;
    upstream_close_idle(p->pod->upstream);
    loop_defer(t->loop, &t->reap);
}

static void topology_pod_free(struct topology *t, struct topology_pod *p)
{
    static const enum metric per_pod[] = {
        METRIC_POD_INFLIGHT,  METRIC_POD_WAITING,     METRIC_POD_RUNNING, METRIC_POD_KV_USAGE,
        METRIC_POD_STALE,     METRIC_POD_ASIDE,       METRIC_POD_ASLEEP,  METRIC_POD_SCRAPES_FAILED,
        METRIC_STALE_RETRIES, METRIC_CONNECT_FAILURES};
    const struct slice label = slice_of(p->pod->name);

    htab_remove(&t->pods_by_name, &p->by_name);
    for (size_t i = 0; i < ARRAY_LEN(per_pod) && !p->replaced; i++)
        metrics_drop(per_pod[i], &label);
    scrape_free(p->scrape);
    upstream_free(p->pod->upstream);
    pod_unref(p->pod);
    buf_free(&p->served);
    mem_free(p->uid);
    mem_free(p);
}

/* Pods that leave go when nobody else refers to them. */
void topology_pod_on_reap(struct loop_task *task)
{
    struct topology *t = CONTAINER_OF(task, struct topology, reap);
    size_t kept = 0;

    for (size_t i = 0; i < t->n_pods; i++) {
        struct topology_pod *p = t->pods[i];

        if (p->users == 0 && p->pod->refs == 1)
            topology_pod_free(t, p);
        else
            t->pods[kept++] = p;
    }
    t->n_pods = kept;
}

void topology_pod_idle(struct topology *t)
{
    loop_defer(t->loop, &t->reap);
}

void topology_pod_connect_failed(struct topology *t, struct pod *p)
{
    metrics_inc(METRIC_CONNECT_FAILURES, p->name);
    if (!pod_connect_failed(p, loop_now_us(t->loop)))
        return;
    log_warn("pod set aside: it cannot be connected to", LOG_STR("pod", p->name),
             LOG_MS("pause_ms", p->aside_pause_us), LOG_INT("failures", p->connect_failures));
    sched_refresh(t->sched);
}

void topology_pod_connected(struct topology *t, struct pod *p)
{
    const bool was_aside = p->aside_until_us != 0;

    pod_connect_succeeded(p);
    if (was_aside)
        sched_refresh(t->sched);
}
