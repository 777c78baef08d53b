/* A slice is reduced to its usable addresses when it comes; the set of the Service is their union. */
#include "kubeslices.h"

#include <cjson/cJSON.h>

#include "mem.h"

struct slice_entry {
    struct list link;
    char *uid;
    unsigned generation;
    struct kubeobj_endpoint *endpoints;
    size_t n;
};

/* 0: it is a name (which has a letter), or nothing. */
static int64_t read_number(struct slice port)
{
    int64_t number = 0;

    for (size_t i = 0; i < port.n; i++) {
        if (port.p[i] < '0' || port.p[i] > '9' || number > 65535)
            return 0;
        number = number * 10 + (port.p[i] - '0');
    }
    return number;
}

static bool is_port(struct slice s)
{
    bool digits = true;

    for (size_t i = 0; i < s.n; i++)
        digits = digits && s.p[i] >= '0' && s.p[i] <= '9';
    return kubeobj_is_label(s) && (!digits || (read_number(s) >= 1 && read_number(s) <= 65535));
}

bool kubeslices_parse_service(struct slice text, struct slice *namespace, struct slice *name,
                              struct slice *port, const char **error)
{
    struct slice rest = text, first = slice_cut(&rest, '/');
    const bool has_namespace = rest.p != NULL;

    *namespace = has_namespace ? first : SLICE("");
    *port = has_namespace ? rest : first;
    *name = slice_cut(port, ':');
    *error = "expected [namespace/]name[:port] of a Service, the port 1 to 65535 or the name of a port";
    if ((has_namespace && !kubeobj_is_label(*namespace)) || !kubeobj_is_label(*name) ||
        (port->p != NULL && !is_port(*port)))
        return false;
    if (port->p == NULL)
        *port = SLICE("");
    return true;
}

void kubeslices_init(struct kubeslices *s, struct slice port)
{
    *s = (struct kubeslices){.port = mem_dup_slice(port), .port_number = read_number(port)};
    list_init(&s->slices);
}

static void entry_free(struct kubeslices *s, struct slice_entry *e)
{
    list_del(&e->link);
    s->n_slices--;
    kubeobj_free_endpoints(e->endpoints, e->n);
    mem_free(e->uid);
    mem_free(e);
}

void kubeslices_free(struct kubeslices *s)
{
    LIST_EACH_SAFE(it, &s->slices)
    entry_free(s, LIST_ITEM(it, struct slice_entry, link));
    mem_free(s->port);
}

static struct slice_entry *find(const struct kubeslices *s, struct slice uid)
{
    LIST_EACH(it, &s->slices)
    {
        struct slice_entry *e = LIST_ITEM(it, struct slice_entry, link);

        if (slice_eq(slice_of(e->uid), uid))
            return e;
    }
    return NULL;
}

/* A port of the slice that has no number stands for all ports. */
static bool port_number(const cJSON *port, int64_t *number)
{
    return kubeobj_int(port, "port", number) && *number >= 1 && *number <= 65535;
}

static bool is_port_wanted(const struct kubeslices *s, const cJSON *port, int64_t number)
{
    if (s->port_number > 0)
        return number == s->port_number;
    return s->port[0] == '\0' || slice_eq(kubeobj_text(port, "name"), slice_of(s->port));
}

/* The slice's port with the given number or name, else its first one. */
static bool find_port(const struct kubeslices *s, const cJSON *slice, int64_t *number)
{
    const cJSON *port;

    cJSON_ArrayForEach(port, kubeobj_get(slice, "ports"))
    {
        if (port_number(port, number) && is_port_wanted(s, port, *number))
            return true;
    }
    return false;
}

/* A number holds although the slice does not have it: the pods of a Service without ports have them all, and
 * a headless one need not name the port that is meant. */
static bool take_port(const struct kubeslices *s, const cJSON *slice, int64_t *number, const char **why)
{
    if (find_port(s, slice, number))
        return true;
    *why = s->port_number == 0 ? "it has no such port"
           : cJSON_GetArraySize(kubeobj_get(slice, "ports")) > 0
               ? "no port of the EndpointSlice has the number; it is the pods' port, not the Service's"
               : NULL;
    *number = s->port_number;
    return s->port_number > 0;
}

/* What is not said counts as ready, and as not terminating. */
static bool is_usable(const cJSON *endpoint)
{
    const cJSON *c = kubeobj_get(endpoint, "conditions");

    return kubeobj_bool(c, "ready", true) && !kubeobj_bool(c, "terminating", false);
}

static void add_endpoint(struct slice_entry *e, const cJSON *endpoint, int64_t port)
{
    const cJSON *addresses = kubeobj_get(endpoint, "addresses");
    /* Several addresses of an endpoint are the same pod. */
    const struct slice address = kubeobj_string(cJSON_GetArrayItem(addresses, 0));
    const struct slice uid = kubeobj_text(kubeobj_get(endpoint, "targetRef"), "uid");
    char *authority = kubeobj_authority(address, port);

    if (authority == NULL)
        return;
    e->endpoints = mem_grow(e->endpoints, e->n, sizeof(*e->endpoints));
    e->endpoints[e->n++] = (struct kubeobj_endpoint){authority, mem_dup_slice(uid)};
}

static bool read_slice(const struct kubeslices *s, struct slice_entry *e, const cJSON *slice,
                       const char **why)
{
    const struct slice type = kubeobj_text(slice, "addressType");
    const cJSON *endpoint;
    int64_t port;

    if (!slice_eq(type, SLICE("IPv4")) && !slice_eq(type, SLICE("IPv6"))) {
        *why = "its addressType is neither IPv4 nor IPv6";
        return false;
    }
    if (cJSON_GetArraySize(kubeobj_get(slice, "endpoints")) == 0)
        return true;
    if (!take_port(s, slice, &port, why))
        return false;
    cJSON_ArrayForEach(endpoint, kubeobj_get(slice, "endpoints"))
    {
        if (is_usable(endpoint) && e->n < KUBESLICES_ENDPOINTS_MAX)
            add_endpoint(e, endpoint, port);
    }
    return true;
}

static struct slice_entry *entry_of(struct kubeslices *s, struct slice uid)
{
    struct slice_entry *e = find(s, uid);

    if (e == NULL) {
        e = mem_zalloc(sizeof(*e));
        e->uid = mem_dup_slice(uid);
        list_push_back(&s->slices, &e->link);
        s->n_slices++;
    }
    kubeobj_free_endpoints(e->endpoints, e->n);
    e->endpoints = NULL;
    e->n = 0;
    e->generation = s->generation;
    return e;
}

bool kubeslices_put(struct kubeslices *s, const struct cJSON *slice, const char **why)
{
    struct kubeobj_meta meta;

    *why = NULL;
    if (!kubeobj_meta(slice, &meta)) {
        *why = "it has no uid";
        return false;
    }
    if (s->n_slices == KUBESLICES_MAX && find(s, meta.uid) == NULL) {
        *why = "there are more than 4096 slices";
        return false;
    }
    return read_slice(s, entry_of(s, meta.uid), slice, why);
}

void kubeslices_delete(struct kubeslices *s, const struct cJSON *slice)
{
    struct kubeobj_meta meta;
    struct slice_entry *e = kubeobj_meta(slice, &meta) ? find(s, meta.uid) : NULL;

    if (e != NULL)
        entry_free(s, e);
}

void kubeslices_list_begin(struct kubeslices *s)
{
    s->generation++;
}

void kubeslices_list_end(struct kubeslices *s)
{
    LIST_EACH_SAFE(it, &s->slices)
    {
        struct slice_entry *e = LIST_ITEM(it, struct slice_entry, link);

        if (e->generation != s->generation)
            entry_free(s, e);
    }
}

struct kubeobj_endpoint *kubeslices_endpoints(const struct kubeslices *s, size_t *n)
{
    struct kubeobj_endpoint *all = NULL;
    size_t cap = 0;

    LIST_EACH(it, &s->slices)
    cap += LIST_ITEM(it, struct slice_entry, link)->n;
    all = mem_array(NULL, cap + 1, sizeof(*all));
    *n = 0;
    LIST_EACH(it, &s->slices)
    {
        const struct slice_entry *e = LIST_ITEM(it, struct slice_entry, link);

        for (size_t i = 0; i < e->n && *n < KUBESLICES_ENDPOINTS_MAX; i++)
            all[(*n)++] = (struct kubeobj_endpoint){mem_strdup(e->endpoints[i].authority),
                                                    mem_strdup(e->endpoints[i].uid)};
    }
    *n = kubeobj_sort_endpoints(all, *n);
    return all;
}
