/* Servers are found by name. Their pods change under them; the routes that lead there follow. */
#include "topology_server.h"

#include "log.h"
#include "mem.h"
#include "topology.h"

/* New pods are taken before old ones are dropped: one that is in both sets never leaves. */
static void topology_server_on_endpoints(const struct discover_endpoint *endpoints, size_t n, void *arg)
{
    struct topology_server *s = arg;
    struct topology *t = s->topology;
    struct topology_pod **old = s->pods;
    const size_t n_old = s->n_pods;

    s->pods = mem_array(NULL, n + 1, sizeof(struct topology_pod *));
    for (s->n_pods = 0; s->n_pods < n; s->n_pods++)
        s->pods[s->n_pods] = topology_pod_use(s, &endpoints[s->n_pods]);
    for (size_t i = 0; i < n_old; i++)
        topology_pod_drop(s, old[i]);
    mem_free(old);
    topology_take_pods(t, s);
    sched_kick(t->sched);
}

static bool topology_server_same_places(const struct config_server *a, const struct config_server *b)
{
    if (a->n_pods != b->n_pods || a->given != b->given || !topology_same_text(a->dns, b->dns) ||
        !topology_same_text(a->service, b->service) || !topology_same_text(a->tls_name, b->tls_name))
        return false;
    for (size_t i = 0; i < a->n_pods; i++)
        if (strcmp(a->pods[i], b->pods[i]) != 0)
            return false;
    return a->engine == b->engine && a->https == b->https;
}

static void topology_server_discover(struct topology_server *s)
{
    const struct discover_spec spec = {s->name, s->spec->pods, s->spec->n_pods, s->spec->dns,
                                       s->spec->service};
    struct discover_source *old = s->source;

    s->source =
        s->spec->given ? NULL : discover_add(s->topology->discover, &spec, topology_server_on_endpoints, s);
    discover_remove(old);
}

static bool topology_server_has_name(const struct htab_node *node, const void *key)
{
    return strcmp(CONTAINER_OF(node, const struct topology_server, by_name)->name, key) == 0;
}

struct topology_server *topology_server_find(const struct topology *t, const char *name)
{
    struct htab_node *node =
        htab_find(&t->servers_by_name, htab_hash(slice_of(name)), topology_server_has_name, name);

    return node != NULL ? CONTAINER_OF(node, struct topology_server, by_name) : NULL;
}

const struct config_server *topology_server_find_spec(const struct topology *t, const char *name)
{
    const struct topology_server *s = topology_server_find(t, name);

    return s != NULL && s->kept ? s->spec : NULL;
}

void topology_server_set_endpoints(struct topology *t, const char *server,
                                   const struct discover_endpoint *endpoints, size_t n)
{
    struct topology_server *s = topology_server_find(t, server);

    if (s != NULL && s->source == NULL)
        topology_server_on_endpoints(endpoints, n, s);
}

void topology_server_apply(struct topology *t, struct config_server *spec)
{
    struct topology_server *s = topology_server_find(t, spec->name);
    const struct config_server *before = s != NULL ? s->spec : NULL;

    if (s == NULL) {
        s = mem_zalloc(sizeof *s);
        s->topology = t;
        s->name = mem_strdup(spec->name);
        t->servers = mem_grow(t->servers, t->n_servers, sizeof(struct topology_server *));
        t->servers[t->n_servers++] = s;
        htab_add(&t->servers_by_name, &s->by_name, htab_hash(slice_of(s->name)));
    }
    s->kept = true;
    s->spec = spec;
    if (before == NULL || !topology_server_same_places(before, spec)) {
        s->disputed = false;
        topology_server_discover(s);
    }
}

static void topology_server_free(struct topology_server *s)
{
    discover_remove(s->source);
    htab_remove(&s->topology->servers_by_name, &s->by_name);
    for (size_t i = 0; i < s->n_pods; i++)
        topology_pod_drop(s, s->pods[i]);
    mem_free(s->pods);
    mem_free(s->name);
    mem_free(s);
}

/* Those that go are not among the others any more when their pods find new owners. */
void topology_server_drop_unkept(struct topology *t)
{
    struct topology_server **gone = mem_array(NULL, t->n_servers + 1, sizeof(struct topology_server *));
    size_t kept = 0, n_gone = 0;

    for (size_t i = 0; i < t->n_servers; i++) {
        if (t->servers[i]->kept)
            t->servers[kept++] = t->servers[i];
        else
            gone[n_gone++] = t->servers[i];
    }
    t->n_servers = kept;
    for (size_t i = 0; i < n_gone; i++)
        topology_server_free(gone[i]);
    mem_free(gone);
}
