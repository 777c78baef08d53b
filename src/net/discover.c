/* Static lists and DNS names. A name is one `discover_name`; a source is the ordered list of its names'
 * endpoints. */
#include "discover.h"

#include <arpa/inet.h>
#include <event2/dns.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "log.h"
#include "mem.h"

struct discover {
    struct loop *loop;
    struct evdns_base *dns;
};

struct discover_name {
    struct discover_source *source;
    char *authority;   /* as configured */
    char *host, *port; /* of a name that needs resolving; NULL for an address literal */
    bool all;          /* every address is an endpoint of its own */
    struct discover_endpoint *endpoints;
    size_t n;
    struct evdns_getaddrinfo_request *asking;
    struct wheel_timer again;
    bool settled, failing;
};

struct discover_source {
    struct discover *discover;
    char *owner;
    struct discover_name *names;
    size_t n_names;
    discover_changed_fn *changed;
    void *arg;
    bool removed; /* freed when the last cancelled question has been answered */
    size_t n_asking;
    struct loop_grave grave;
};

struct discover *discover_new(struct loop *l)
{
    struct discover *d = mem_zalloc(sizeof *d);

    d->loop = l;
    d->dns = evdns_base_new(l->base, EVDNS_BASE_INITIALIZE_NAMESERVERS | EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (d->dns == NULL) {
        /* No usable resolv.conf: address literals and /etc/hosts still work. */
        d->dns = evdns_base_new(l->base, EVDNS_BASE_DISABLE_WHEN_INACTIVE);
        if (d->dns == NULL) {
            mem_free(d);
            return NULL;
        }
        evdns_base_load_hosts(d->dns, "/etc/hosts");
    }
    /* Some cluster resolvers do not echo the case of a question. */
    evdns_base_set_option(d->dns, "randomize-case:", "0");
    evdns_base_set_option(d->dns, "timeout:", "2");
    evdns_base_set_option(d->dns, "attempts:", "2");
    return d;
}

void discover_free(struct discover *d)
{
    if (d == NULL)
        return;
    /* Cancelled questions are answered by a deferred callback, which frees what belongs to them. */
    event_base_loop(d->loop->base, EVLOOP_NONBLOCK);
    evdns_base_free(d->dns, 0);
    mem_free(d);
}

/* Announces the whole set, once every name has been answered. */
static void discover_announce(struct discover_source *s)
{
    struct discover_endpoint *all = NULL;
    size_t n = 0;

    /* A part of the set would take pods away that a reload only seems to have dropped. */
    if (!discover_settled(s))
        return;
    for (size_t i = 0; i < s->n_names; i++) {
        if (s->names[i].n == 0)
            continue;
        all = mem_array(all, n + s->names[i].n, sizeof *all);
        memcpy(all + n, s->names[i].endpoints, s->names[i].n * sizeof *all);
        n += s->names[i].n;
    }
    s->changed(all, n, s->arg);
    mem_free(all);
}

/* ---- one name ---- */

static void discover_set_port(struct sockaddr_storage *a, uint16_t port)
{
    if (a->ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)a)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)(void *)a)->sin6_port = htons(port);
}

static char *discover_address_text(const struct sockaddr_storage *a)
{
    char host[INET6_ADDRSTRLEN];

    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)a;

        return mem_printf("%s:%u", inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host), ntohs(v4->sin_port));
    }
    const struct sockaddr_in6 *v6 = (const void *)a;

    return mem_printf("[%s]:%u", inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host),
                      ntohs(v6->sin6_port));
}

static void discover_free_endpoints(struct discover_endpoint *e, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free(e[i].name);
    mem_free(e);
}

static int discover_compare(const void *a, const void *b)
{
    return strcmp(((const struct discover_endpoint *)a)->name, ((const struct discover_endpoint *)b)->name);
}

/* The endpoints of an answer, sorted, so that round-robin DNS is no change. */
static struct discover_endpoint *discover_read_answer(const struct discover_name *name,
                                                      const struct evutil_addrinfo *ai, size_t *n)
{
    const size_t max = name->all ? DISCOVER_MAX_PER_NAME : 1;
    struct discover_endpoint *list = NULL;
    int64_t port = 0;

    for (const char *p = name->port; *p != '\0'; p++)
        port = port * 10 + (*p - '0');
    for (*n = 0; ai != NULL && *n < max; ai = ai->ai_next) {
        struct discover_endpoint *e;

        if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
            continue;
        list = mem_array(list, *n + 1, sizeof *list);
        e = memset(&list[(*n)++], 0, sizeof *list);
        memcpy(&e->address, ai->ai_addr, ai->ai_addrlen);
        e->address_bytes = (socklen_t)ai->ai_addrlen;
        discover_set_port(&e->address, (uint16_t)port);
        e->name = name->all ? discover_address_text(&e->address) : mem_strdup(name->authority);
    }
    if (*n > 1)
        qsort(list, *n, sizeof *list, discover_compare);
    return list;
}

static bool discover_same(const struct discover_name *name, const struct discover_endpoint *e, size_t n)
{
    if (n != name->n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(e[i].name, name->endpoints[i].name) != 0 ||
            memcmp(&e[i].address, &name->endpoints[i].address, sizeof e[i].address) != 0)
            return false;
    return true;
}

/* True when the endpoints changed. An answer without a usable address changes nothing. */
static bool discover_take_answer(struct discover_name *name, const struct evutil_addrinfo *ai)
{
    size_t n;
    struct discover_endpoint *list = discover_read_answer(name, ai, &n);

    if (n == 0 || discover_same(name, list, n)) {
        discover_free_endpoints(list, n);
        return false;
    }
    discover_free_endpoints(name->endpoints, name->n);
    name->endpoints = list;
    name->n = n;
    return true;
}

static void discover_complain(struct discover_name *name, int error)
{
    if (!name->failing)
        log_warn(name->n > 0 ? "cannot resolve a pod's name; the last good answer stays in use"
                             : "cannot resolve a pod's name",
                 LOG_STR("name", name->authority), LOG_STR("model_server", name->source->owner),
                 LOG_STR("error", evutil_gai_strerror(error)), LOG_INT("endpoints", name->n));
    name->failing = true;
}

static void discover_free_source(struct loop_grave *g)
{
    struct discover_source *s = CONTAINER_OF(g, struct discover_source, grave);

    for (size_t i = 0; i < s->n_names; i++) {
        discover_free_endpoints(s->names[i].endpoints, s->names[i].n);
        mem_free(s->names[i].authority);
        mem_free(s->names[i].host);
        mem_free(s->names[i].port);
    }
    mem_free(s->names);
    mem_free(s->owner);
    mem_free(s);
}

static void discover_on_answer(int error, struct evutil_addrinfo *ai, void *arg)
{
    struct discover_name *name = arg;
    struct discover_source *s = name->source;
    bool changed;

    name->asking = NULL;
    s->n_asking--;
    if (s->removed) {
        if (ai != NULL)
            evutil_freeaddrinfo(ai);
        if (s->n_asking == 0)
            discover_free_source(&s->grave);
        return;
    }
    changed = !name->settled;
    name->settled = true;
    if (error == 0) {
        name->failing = false;
        changed |= discover_take_answer(name, ai);
        evutil_freeaddrinfo(ai);
    } else {
        discover_complain(name, error);
    }
    if (changed)
        discover_announce(s);
    loop_timer_set(s->discover->loop, &name->again,
                   loop_now_us(s->discover->loop) + (name->n > 0 ? DISCOVER_INTERVAL_US : DISCOVER_RETRY_US));
}

static void discover_ask(struct discover_name *name)
{
    struct evutil_addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP};
    struct evdns_getaddrinfo_request *asking;

    name->source->n_asking++;
    asking =
        evdns_getaddrinfo(name->source->discover->dns, name->host, NULL, &hints, discover_on_answer, name);
    /* An answer from /etc/hosts has been delivered already, and NULL is returned. */
    if (asking != NULL)
        name->asking = asking;
}

static void discover_on_again(struct wheel_timer *t)
{
    discover_ask(CONTAINER_OF(t, struct discover_name, again));
}

/* Splits "host:port" or "[v6]:port", which the configuration has checked. */
static void discover_init_name(struct discover_name *name, const char *authority, bool all)
{
    struct sockaddr_storage address;
    int bytes = sizeof address;
    const char *colon = strrchr(authority, ':');

    memset(&address, 0, sizeof address);
    name->authority = mem_strdup(authority);
    name->all = all;
    wheel_timer_init(&name->again, discover_on_again);
    if (evutil_parse_sockaddr_port(authority, (struct sockaddr *)&address, &bytes) == 0) {
        name->endpoints = mem_zalloc(sizeof *name->endpoints);
        name->endpoints->name = mem_strdup(authority);
        name->endpoints->address = address;
        name->endpoints->address_bytes = (socklen_t)bytes;
        name->n = 1;
        name->settled = true;
        return;
    }
    name->host = mem_dup_slice((struct slice){authority, (size_t)(colon - authority)});
    name->port = mem_strdup(colon + 1);
}

/* ---- a source ---- */

struct discover_source *discover_add(struct discover *d, const struct discover_spec *spec,
                                     discover_changed_fn *changed, void *arg)
{
    struct discover_source *s = mem_zalloc(sizeof *s);

    s->discover = d;
    s->owner = mem_strdup(spec->owner);
    s->changed = changed;
    s->arg = arg;
    s->n_names = spec->dns != NULL ? 1 : spec->n_pods;
    s->names = mem_zalloc(s->n_names * sizeof *s->names);
    for (size_t i = 0; i < s->n_names; i++) {
        s->names[i].source = s;
        discover_init_name(&s->names[i], spec->dns != NULL ? spec->dns : spec->pods[i], spec->dns != NULL);
    }
    discover_announce(s);
    for (size_t i = 0; i < s->n_names; i++)
        if (s->names[i].host != NULL)
            discover_ask(&s->names[i]);
    return s;
}

void discover_remove(struct discover_source *s)
{
    if (s == NULL)
        return;
    s->removed = true;
    for (size_t i = 0; i < s->n_names; i++) {
        loop_timer_cancel(s->discover->loop, &s->names[i].again);
        if (s->names[i].asking != NULL)
            evdns_getaddrinfo_cancel(s->names[i].asking);
    }
    /* evdns answers a cancelled question later. */
    if (s->n_asking == 0)
        loop_bury(s->discover->loop, &s->grave, discover_free_source);
}

bool discover_settled(const struct discover_source *s)
{
    for (size_t i = 0; i < s->n_names; i++)
        if (!s->names[i].settled)
            return false;
    return true;
}
