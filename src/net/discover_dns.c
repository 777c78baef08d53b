/* evdns tells a TTL only to its plain questions, one for each family, and those do not look into /etc/hosts.
 * So a name is looked for there once, by a resolver that knows nothing else, and then asked for family by
 * family. */
#include "discover_dns.h"

#include <event2/dns.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "log.h"
#include "mem.h"
#include "metrics.h"

#define DISCOVER_DNS_MOST                                                                                    \
    32 /* addresses that evdns takes of an answer; it does not say that there were more */
#define DISCOVER_DNS_HOSTS "/etc/hosts"

struct discover_dns {
    struct loop *loop;
    struct evdns_base *dns, *hosts;
    const struct discover_rules *rules;
};

enum discover_dns_kind { DISCOVER_DNS_V4, DISCOVER_DNS_V6, DISCOVER_DNS_FAMILIES };

/* What is known of one family. */
struct discover_dns_family {
    struct discover_dns_name *name;
    struct evdns_request *asking;
    struct sockaddr_storage *addresses;
    size_t n;
    int error;      /* DNS_ERR_ of the last answer */
    int64_t ttl_us; /* of the last good one */
};

struct discover_dns_name {
    struct loop_grave grave;
    struct discover_dns *dns;
    char *owner, *authority, *host;
    uint16_t port;
    bool all;
    void (*changed)(void *arg);
    void *arg;
    struct discover_dns_family families[DISCOVER_DNS_FAMILIES];
    struct discover_endpoint *endpoints;
    size_t n;
    struct wheel_timer again;
    unsigned left;      /* families that have not answered in this round */
    unsigned n_pending; /* calls that evdns owes us, of cancelled questions too */
    bool settled, removed;
    const char *problem; /* of the last look-up, static; NULL = it worked */
    struct list peers;   /* all names, for the gauge */
};

static struct list discover_dns_all = {&discover_dns_all, &discover_dns_all};

static bool discover_dns_make_base(struct discover_dns *d, const char *resolv_conf)
{
    struct event_base *base = d->loop->base;

    d->dns = evdns_base_new(base, EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    d->hosts = evdns_base_new(base, EVDNS_BASE_DISABLE_WHEN_INACTIVE);
    if (d->dns == NULL || d->hosts == NULL)
        return false;
    evdns_base_load_hosts(d->hosts, DISCOVER_DNS_HOSTS);
    if (evdns_base_resolv_conf_parse(d->dns, DNS_OPTIONS_ALL & ~DNS_OPTION_HOSTSFILE, resolv_conf) != 0)
        log_warn("no name servers: names of pods cannot be looked up, but for those in /etc/hosts",
                 LOG_STR("file", resolv_conf));
    /* Some cluster resolvers do not echo the case of a question. */
    evdns_base_set_option(d->dns, "randomize-case:", "0");
    evdns_base_set_option(d->dns, "timeout:", "2");
    evdns_base_set_option(d->dns, "attempts:", "2");
    return true;
}

struct discover_dns *discover_dns_new(struct loop *l, const char *resolv_conf,
                                      const struct discover_rules *rules)
{
    struct discover_dns *d = mem_zalloc(sizeof *d);

    d->loop = l;
    d->rules = rules;
    if (discover_dns_make_base(d, resolv_conf))
        return d;
    discover_dns_free(d);
    return NULL;
}

void discover_dns_free(struct discover_dns *d)
{
    if (d == NULL)
        return;
    /* Cancelled questions are answered by a deferred callback, which frees what belongs to them. */
    event_base_loop(d->loop->base, EVLOOP_NONBLOCK);
    if (d->dns != NULL)
        evdns_base_free(d->dns, 0);
    if (d->hosts != NULL)
        evdns_base_free(d->hosts, 0);
    mem_free(d);
}

/* ---- state for people ---- */

/* Several sources may have the same name. */
static void discover_dns_set_gauge(const char *authority)
{
    const struct slice label = slice_of(authority);
    bool up = true, any = false;

    LIST_EACH(it, &discover_dns_all)
    {
        const struct discover_dns_name *name = LIST_ITEM(it, struct discover_dns_name, peers);

        if (!name->settled || strcmp(name->authority, authority) != 0)
            continue;
        any = true;
        up = up && name->problem == NULL;
    }
    if (any)
        metrics_set(metrics_series(METRIC_DNS_UP, &label), up);
    else
        metrics_drop(METRIC_DNS_UP, &label);
}

/* ---- the set of addresses ---- */

static void discover_dns_add_address(struct discover_dns_name *name, const struct sockaddr_storage *address)
{
    struct discover_endpoint *e = &name->endpoints[name->n++];
    char text[64];

    *e = (struct discover_endpoint){.uid = mem_strdup(""), .address = *address};
    if (address->ss_family == AF_INET) {
        struct sockaddr_in *v4 = (void *)&e->address;

        v4->sin_port = htons(name->port);
        e->address_bytes = sizeof *v4;
        evutil_inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
        e->name = mem_printf("%s:%u", text, name->port);
    } else {
        struct sockaddr_in6 *v6 = (void *)&e->address;

        v6->sin6_port = htons(name->port);
        e->address_bytes = sizeof *v6;
        evutil_inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
        e->name = mem_printf("[%s]:%u", text, name->port);
    }
}

static int discover_dns_compare(const void *a, const void *b)
{
    return strcmp(((const struct discover_endpoint *)a)->name, ((const struct discover_endpoint *)b)->name);
}

/* Both families in one list, sorted, so that round-robin DNS is no change. */
static void discover_dns_join(struct discover_dns_name *name)
{
    name->endpoints = mem_array(NULL, name->families[0].n + name->families[1].n + 1, sizeof *name->endpoints);
    name->n = 0;
    for (int k = 0; k < DISCOVER_DNS_FAMILIES; k++)
        for (size_t i = 0; i < name->families[k].n && (name->all || name->n == 0); i++)
            discover_dns_add_address(name, &name->families[k].addresses[i]);
    if (name->n > 1)
        qsort(name->endpoints, name->n, sizeof *name->endpoints, discover_dns_compare);
    if (!name->all && name->n > 0) {
        mem_free(name->endpoints[0].name);
        name->endpoints[0].name = mem_strdup(name->authority);
    }
}

static bool discover_dns_same(const struct discover_dns_name *name, const struct discover_endpoint *old,
                              size_t n)
{
    if (n != name->n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(old[i].name, name->endpoints[i].name) != 0 ||
            memcmp(&old[i].address, &name->endpoints[i].address, sizeof old[i].address) != 0)
            return false;
    return true;
}

/* Announces the joined set when it is another one, or the first. */
static void discover_dns_conclude(struct discover_dns_name *name)
{
    struct discover_endpoint *old = name->endpoints;
    const size_t n_old = name->n;
    const bool first = !name->settled;

    discover_dns_join(name);
    name->settled = true;
    discover_dns_set_gauge(name->authority);
    if (first || !discover_dns_same(name, old, n_old))
        name->changed(name->arg);
    discover_free_endpoints(old, n_old);
}

/* ---- answers ---- */

static void discover_dns_free_name(struct loop_grave *g)
{
    struct discover_dns_name *name = CONTAINER_OF(g, struct discover_dns_name, grave);

    for (int k = 0; k < DISCOVER_DNS_FAMILIES; k++)
        mem_free(name->families[k].addresses);
    discover_free_endpoints(name->endpoints, name->n);
    mem_free(name->owner);
    mem_free(name->authority);
    mem_free(name->host);
    mem_free(name);
}

/* False: the name is gone. */
static bool discover_dns_answered(struct discover_dns_name *name)
{
    name->n_pending--;
    if (!name->removed)
        return true;
    if (name->n_pending == 0)
        discover_dns_free_name(&name->grave);
    return false;
}

static const char *discover_dns_error_text(int error)
{
    if (error == DNS_ERR_TRUNCATED)
        return "the answer is longer than the 512 bytes of a UDP message; give the pods by service instead";
    return error == DNS_ERR_NONE || error == DNS_ERR_NODATA ? "no address" : evdns_err_to_string(error);
}

static bool discover_dns_has_none(int error)
{
    return error == DNS_ERR_NOTEXIST || error == DNS_ERR_NODATA || error == DNS_ERR_NONE;
}

static void discover_dns_complain(struct discover_dns_name *name, int error)
{
    const size_t known = name->families[0].n + name->families[1].n;
    const char *problem = discover_dns_error_text(error);

    if (name->problem == NULL || strcmp(name->problem, problem) != 0)
        log_warn(known > 0 ? "cannot resolve a pod's name; the last good answer stays in use"
                           : "cannot resolve a pod's name",
                 LOG_STR("name", name->authority), LOG_STR("model_server", name->owner),
                 LOG_STR("error", problem), LOG_INT("endpoints", known));
    name->problem = problem;
}

static void discover_dns_set(struct discover_dns_family *f, const char *addresses, size_t n)
{
    const bool v4 = f == &f->name->families[DISCOVER_DNS_V4];

    mem_free(f->addresses);
    f->addresses = mem_zalloc(n * sizeof *f->addresses);
    f->n = n;
    for (size_t i = 0; i < n; i++) {
        f->addresses[i].ss_family = v4 ? AF_INET : AF_INET6;
        if (v4)
            memcpy(&((struct sockaddr_in *)(void *)&f->addresses[i])->sin_addr, addresses + 4 * i, 4);
        else
            memcpy(&((struct sockaddr_in6 *)(void *)&f->addresses[i])->sin6_addr, addresses + 16 * i, 16);
    }
}

static int64_t discover_dns_wait_us(const struct discover_dns_name *name)
{
    const struct discover_rules *r = name->dns->rules;
    int64_t us = INT64_MAX;

    for (int k = 0; k < DISCOVER_DNS_FAMILIES; k++)
        if (name->families[k].n > 0 && name->families[k].ttl_us < us)
            us = name->families[k].ttl_us;
    if (us == INT64_MAX)
        return DISCOVER_DNS_RETRY_US;
    us = us > r->ttl_max_us ? r->ttl_max_us : us;
    return us < r->ttl_min_us ? r->ttl_min_us : us;
}

/* Both families have been answered. A family that is said to have no address loses what it had only while the
 * other one has some: a name without any is a mistake more often than an order to drop every pod. */
static void discover_dns_finish(struct discover_dns_name *name)
{
    struct discover_dns_family *f = name->families;
    const bool good = f[0].error == DNS_ERR_NONE || f[1].error == DNS_ERR_NONE;
    const int other = discover_dns_has_none(f[0].error) ? f[1].error : f[0].error;

    for (int k = 0; k < DISCOVER_DNS_FAMILIES && good; k++)
        if (f[k].error != DNS_ERR_NONE && discover_dns_has_none(f[k].error))
            f[k].n = 0;
    if (!good || !discover_dns_has_none(other))
        discover_dns_complain(name, other);
    else
        name->problem = NULL;
    loop_timer_set(name->dns->loop, &name->again, loop_now_us(name->dns->loop) + discover_dns_wait_us(name));
    discover_dns_conclude(name);
}

static void discover_dns_on_answer(int result, char type, int count, int ttl, void *addresses, void *arg)
{
    struct discover_dns_family *f = arg;
    struct discover_dns_name *name = f->name;

    (void)type;
    f->asking = NULL;
    if (!discover_dns_answered(name))
        return;
    f->error = result != DNS_ERR_NONE       ? result
               : count <= 0                 ? DNS_ERR_NODATA
               : count >= DISCOVER_DNS_MOST ? DNS_ERR_TRUNCATED
                                            : DNS_ERR_NONE;
    if (f->error == DNS_ERR_NONE) {
        f->ttl_us = (ttl > 0 ? ttl : 0) * US_PER_S;
        discover_dns_set(f, addresses, (size_t)count);
    }
    if (--name->left == 0)
        discover_dns_finish(name);
}

/* A question that cannot be put counts as answered. */
static void discover_dns_ask(struct discover_dns_name *name)
{
    struct discover_dns_family *f = name->families;

    f[0].error = f[1].error = DNS_ERR_UNKNOWN;
    f[0].asking = evdns_base_resolve_ipv4(name->dns->dns, name->host, 0, discover_dns_on_answer, &f[0]);
    f[1].asking = evdns_base_resolve_ipv6(name->dns->dns, name->host, 0, discover_dns_on_answer, &f[1]);
    name->left = (f[0].asking != NULL ? 1U : 0U) + (f[1].asking != NULL ? 1U : 0U);
    name->n_pending += name->left;
    if (name->left == 0)
        discover_dns_finish(name);
}

static void discover_dns_on_again(struct wheel_timer *t)
{
    discover_dns_ask(CONTAINER_OF(t, struct discover_dns_name, again));
}

/* ---- /etc/hosts ---- */

static void discover_dns_take_hosts(struct discover_dns_name *name, const struct evutil_addrinfo *ai)
{
    for (; ai != NULL; ai = ai->ai_next) {
        const int k = ai->ai_family == AF_INET ? DISCOVER_DNS_V4 : DISCOVER_DNS_V6;
        struct discover_dns_family *f = &name->families[k];

        if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
            continue;
        f->addresses = mem_array(f->addresses, f->n + 1, sizeof *f->addresses);
        memset(&f->addresses[f->n], 0, sizeof *f->addresses);
        memcpy(&f->addresses[f->n++], ai->ai_addr, ai->ai_addrlen);
    }
}

static void discover_dns_on_hosts(int error, struct evutil_addrinfo *ai, void *arg)
{
    struct discover_dns_name *name = arg;

    if (error == 0 && !name->removed)
        discover_dns_take_hosts(name, ai);
    if (ai != NULL)
        evutil_freeaddrinfo(ai);
    (void)discover_dns_answered(name);
}

/* True: the name stands in /etc/hosts. evdns says so before it returns, or would ask a server: it has none.
 */
static bool discover_dns_in_hosts(struct discover_dns_name *name)
{
    const struct evutil_addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_protocol = IPPROTO_TCP};
    struct evdns_getaddrinfo_request *asking;

    name->n_pending++;
    asking = evdns_getaddrinfo(name->dns->hosts, name->host, NULL, &hints, discover_dns_on_hosts, name);
    if (asking != NULL)
        evdns_getaddrinfo_cancel(asking);
    return name->families[0].n + name->families[1].n > 0;
}

/* ---- life ---- */

/* Splits "host:port", which the configuration has checked. */
static void discover_dns_split(struct discover_dns_name *name, const char *authority)
{
    const char *colon = strrchr(authority, ':');

    name->authority = mem_strdup(authority);
    name->host = mem_dup_slice((struct slice){authority, (size_t)(colon - authority)});
    name->port = 0;
    for (const char *p = colon + 1; *p != '\0'; p++)
        name->port = (uint16_t)(name->port * 10 + (*p - '0'));
}

struct discover_dns_name *discover_dns_add(struct discover_dns *d, const struct discover_dns_spec *spec)
{
    struct discover_dns_name *name = mem_zalloc(sizeof *name);

    name->dns = d;
    name->owner = mem_strdup(spec->owner);
    name->all = spec->all;
    name->changed = spec->changed;
    name->arg = spec->arg;
    discover_dns_split(name, spec->authority);
    list_init(&name->peers);
    list_push_back(&discover_dns_all, &name->peers);
    wheel_timer_init(&name->again, discover_dns_on_again);
    for (int k = 0; k < DISCOVER_DNS_FAMILIES; k++)
        name->families[k].name = name;
    return name;
}

void discover_dns_start(struct discover_dns_name *name)
{
    if (discover_dns_in_hosts(name))
        discover_dns_conclude(name);
    else
        discover_dns_ask(name);
}

void discover_dns_remove(struct discover_dns_name *name)
{
    if (name == NULL)
        return;
    name->removed = true;
    list_del(&name->peers);
    discover_dns_set_gauge(name->authority);
    loop_timer_cancel(name->dns->loop, &name->again);
    /* evdns answers a cancelled question later. */
    for (int k = 0; k < DISCOVER_DNS_FAMILIES; k++)
        if (name->families[k].asking != NULL)
            evdns_cancel_request(name->dns->dns, name->families[k].asking);
    if (name->n_pending == 0)
        loop_bury(name->dns->loop, &name->grave, discover_dns_free_name);
}

const struct discover_endpoint *discover_dns_endpoints(const struct discover_dns_name *name, size_t *n)
{
    *n = name->n;
    return name->endpoints;
}

const char *discover_dns_problem(const struct discover_dns_name *name)
{
    return name->problem;
}

bool discover_dns_settled(const struct discover_dns_name *name)
{
    return name->settled;
}
