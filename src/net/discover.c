/* A source is an ordered list of parts: address literals, DNS names, or one Service. The set is announced as
 * a whole. */
#include "discover.h"

#include <event2/util.h>

#include "discover_dns.h"
#include "discover_service.h"
#include "log.h"
#include "mem.h"

struct discover {
    struct loop *loop;
    struct discover_dns *dns;
    struct kubeapi *api;
};

/* An address literal, or a name. */
struct discover_part {
    struct discover_endpoint literal; /* no name: not one */
    struct discover_dns_name *name;
};

struct discover_source {
    struct discover_part *parts;
    size_t n_parts;
    struct discover_service *service;
    discover_changed_fn *changed;
    void *arg;
    bool started;
};

struct discover *discover_new(struct loop *l, const char *resolv_conf, const struct discover_rules *rules)
{
    struct discover *d = mem_zalloc(sizeof *d);

    d->loop = l;
    d->dns = discover_dns_new(l, resolv_conf, rules);
    if (d->dns != NULL)
        return d;
    mem_free(d);
    return NULL;
}

void discover_free(struct discover *d)
{
    if (d == NULL)
        return;
    discover_dns_free(d->dns);
    mem_free(d);
}

void discover_use_api(struct discover *d, struct kubeapi *api)
{
    d->api = api;
}

bool discover_set_endpoint(struct discover_endpoint *e, const char *authority, const char *uid)
{
    int bytes = sizeof e->address;

    memset(e, 0, sizeof *e);
    if (evutil_parse_sockaddr_port(authority, (struct sockaddr *)&e->address, &bytes) != 0)
        return false;
    e->address_bytes = (socklen_t)bytes;
    e->name = mem_strdup(authority);
    e->uid = mem_strdup(uid);
    return true;
}

void discover_free_endpoints(struct discover_endpoint *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mem_free(e[i].name);
        mem_free(e[i].uid);
    }
    mem_free(e);
}

/* ---- the set ---- */

static const struct discover_endpoint *discover_part_endpoints(const struct discover_part *p, size_t *n)
{
    *n = 1;
    return p->name == NULL ? &p->literal : discover_dns_endpoints(p->name, n);
}

static void discover_announce_parts(struct discover_source *s)
{
    struct discover_endpoint *all = NULL;
    size_t n = 0;

    for (size_t i = 0; i < s->n_parts; i++) {
        size_t n_part;
        const struct discover_endpoint *part = discover_part_endpoints(&s->parts[i], &n_part);

        if (n_part == 0)
            continue;
        all = mem_array(all, n + n_part, sizeof *all);
        memcpy(all + n, part, n_part * sizeof *all);
        n += n_part;
    }
    s->changed(all, n, s->arg);
    mem_free(all);
}

/* Announces the whole set, once every part has been answered: a part of the set would take pods away that a
 * reload only seems to have dropped. */
static void discover_announce(struct discover_source *s)
{
    size_t n;

    if (!s->started || !discover_settled(s))
        return;
    if (s->service != NULL) {
        const struct discover_endpoint *e = discover_service_endpoints(s->service, &n);

        s->changed(e, n, s->arg);
    } else {
        discover_announce_parts(s);
    }
}

static void discover_on_changed(void *arg)
{
    discover_announce(arg);
}

/* ---- a source ---- */

static void discover_init_part(struct discover *d, struct discover_source *s, struct discover_part *p,
                               const struct discover_spec *spec, const char *authority)
{
    const struct discover_dns_spec name = {spec->owner, authority, spec->dns != NULL, discover_on_changed, s};

    if (!discover_set_endpoint(&p->literal, authority, ""))
        p->name = discover_dns_add(d->dns, &name);
}

static void discover_init_service(struct discover *d, struct discover_source *s,
                                  const struct discover_spec *spec)
{
    const struct discover_service_spec service = {spec->owner, spec->service, discover_on_changed, s};

    s->service = discover_service_new(d->api, &service);
    if (s->service == NULL)
        log_error("cannot start watching a Service", LOG_STR("service", spec->service),
                  LOG_STR("model_server", spec->owner));
}

struct discover_source *discover_add(struct discover *d, const struct discover_spec *spec,
                                     discover_changed_fn *changed, void *arg)
{
    struct discover_source *s = mem_zalloc(sizeof *s);

    s->changed = changed;
    s->arg = arg;
    if (spec->service != NULL)
        discover_init_service(d, s, spec);
    s->n_parts = spec->service != NULL ? 0 : spec->dns != NULL ? 1 : spec->n_pods;
    s->parts = mem_zalloc((s->n_parts + 1) * sizeof *s->parts);
    for (size_t i = 0; i < s->n_parts; i++)
        discover_init_part(d, s, &s->parts[i], spec, spec->dns != NULL ? spec->dns : spec->pods[i]);
    for (size_t i = 0; i < s->n_parts; i++)
        if (s->parts[i].name != NULL)
            discover_dns_start(s->parts[i].name);
    s->started = true;
    discover_announce(s);
    return s;
}

void discover_remove(struct discover_source *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n_parts; i++) {
        discover_dns_remove(s->parts[i].name);
        mem_free(s->parts[i].literal.name);
        mem_free(s->parts[i].literal.uid);
    }
    discover_service_free(s->service);
    mem_free(s->parts);
    mem_free(s);
}

bool discover_settled(const struct discover_source *s)
{
    for (size_t i = 0; i < s->n_parts; i++)
        if (s->parts[i].name != NULL && !discover_dns_settled(s->parts[i].name))
            return false;
    return s->service == NULL || discover_service_settled(s->service);
}

const char *discover_problem(const struct discover_source *s)
{
    const char *problem = NULL;

    for (size_t i = 0; i < s->n_parts && problem == NULL; i++)
        if (s->parts[i].name != NULL)
            problem = discover_dns_problem(s->parts[i].name);
    return problem;
}
