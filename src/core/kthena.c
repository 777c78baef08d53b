/* Objects are found by namespace and name and known by uid. A ModelServer or ModelRoute that changes is a new
 * object: views keep the old one alive. Which pods a server has is worked out when a pod or a server changes,
 * never for all of them. */
#include "kthena.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

#include "authority.h"
#include "htab.h"
#include "list.h"
#include "mem.h"

struct kthena_object {
    struct htab_node by_name;
    struct list link; /* in kthena.kinds[].objects */
    enum kthena_kind kind;
    char *name, *uid, *namespace; /* name: "namespace/name" */
    char *created, *version;      /* for the order of routes */
    int64_t of_generation;        /* metadata.generation: it grows when the spec changes; 0 = not said */
    unsigned list;                /* the last one that showed it */
    unsigned refs;                /* the table and views */
    char *unsupported, *warnings; /* NULL = none */
    const char *problem;
    bool told;
};

struct kthena_pod {
    struct kthena_object o;
    char *ip;
    bool usable;
    struct kthena_labels labels;
    struct kthena_server **servers; /* that have it */
    size_t n_servers;
};

struct kthena_server {
    struct kthena_object o;
    struct kthena_server_spec spec;
    struct kthena_pod **pods;
    size_t n_pods;
    struct list dirty; /* in kthena.dirty */
    bool shown;        /* in the last view */
};

struct kthena_route {
    struct kthena_object o;
    struct route_spec spec;
};

struct kthena_set {
    struct htab by_name;
    struct list objects;
    size_t n;
    unsigned list; /* number of the list that is being read, or was last */
};

struct kthena {
    struct kthena_set sets[KTHENA_KINDS];
    /* Servers that are gone or have changed, but are in the last view: their pods count on. */
    struct list gone;
    struct list dirty;
    bool changed;
};

struct view {
    struct kthena_view v; /* first */
    struct kthena_object **objects;
    size_t n;
};

#define POD(object)    CONTAINER_OF(object, struct kthena_pod, o)
#define SERVER(object) CONTAINER_OF(object, struct kthena_server, o)
#define ROUTE(object)  CONTAINER_OF(object, struct kthena_route, o)

struct kthena *kthena_new(void)
{
    struct kthena *k = mem_zalloc(sizeof(*k));

    for (int i = 0; i < KTHENA_KINDS; i++) {
        htab_init(&k->sets[i].by_name, 0);
        list_init(&k->sets[i].objects);
    }
    list_init(&k->gone);
    list_init(&k->dirty);
    return k;
}

/* ---- objects ---- */

static void object_init(struct kthena_object *o, enum kthena_kind kind, const struct kubeobj_meta *m)
{
    o->kind = kind;
    o->name = mem_printf("%.*s/%.*s", SLICE_ARG(m->namespace), SLICE_ARG(m->name));
    o->namespace = mem_dup_slice(m->namespace);
    o->uid = mem_dup_slice(m->uid);
    o->created = mem_dup_slice(m->created);
    o->version = mem_dup_slice(m->version);
    o->refs = 1;
    list_init(&o->link);
}

static void free_pod(struct kthena_pod *p)
{
    kthena_spec_labels_free(&p->labels);
    mem_free(p->servers);
    mem_free(p->ip);
    mem_free(p);
}

static void free_server(struct kthena_server *s)
{
    kthena_spec_free_server(&s->spec);
    mem_free(s->pods);
    mem_free(s);
}

static void free_route(struct kthena_route *r)
{
    route_spec_free(&r->spec);
    mem_free(r);
}

static void object_unref(struct kthena_object *o)
{
    if (--o->refs > 0)
        return;
    mem_free(o->name);
    mem_free(o->namespace);
    mem_free(o->uid);
    mem_free(o->created);
    mem_free(o->version);
    mem_free(o->unsupported);
    mem_free(o->warnings);
    if (o->kind == KTHENA_PODS)
        free_pod(POD(o));
    else if (o->kind == KTHENA_SERVERS)
        free_server(SERVER(o));
    else
        free_route(ROUTE(o));
}

static bool has_name(const struct htab_node *node, const void *key)
{
    return strcmp(CONTAINER_OF(node, const struct kthena_object, by_name)->name, key) == 0;
}

static struct kthena_object *find(const struct kthena *k, enum kthena_kind kind, const char *name)
{
    struct htab_node *node = htab_find(&k->sets[kind].by_name, htab_hash(slice_of(name)), has_name, name);

    return node != NULL ? CONTAINER_OF(node, struct kthena_object, by_name) : NULL;
}

static struct kthena_object *find_meta(const struct kthena *k, enum kthena_kind kind,
                                       const struct kubeobj_meta *m)
{
    char *name = mem_printf("%.*s/%.*s", SLICE_ARG(m->namespace), SLICE_ARG(m->name));
    struct kthena_object *o = find(k, kind, name);

    mem_free(name);
    return o;
}

/* ---- which pods a server has ---- */

static void make_dirty(struct kthena *k, struct kthena_server *s)
{
    if (s->shown && list_empty(&s->dirty))
        list_push_back(&k->dirty, &s->dirty);
}

static void join(struct kthena *k, struct kthena_server *s, struct kthena_pod *p)
{
    s->pods = mem_grow(s->pods, s->n_pods, sizeof(struct kthena_pod *));
    s->pods[s->n_pods++] = p;
    p->servers = mem_grow(p->servers, p->n_servers, sizeof(struct kthena_server *));
    p->servers[p->n_servers++] = s;
    make_dirty(k, s);
}

static void part(struct kthena *k, struct kthena_server *s, struct kthena_pod *p)
{
    size_t i = 0;

    while (s->pods[i] != p)
        i++;
    s->pods[i] = s->pods[--s->n_pods];
    for (i = 0; p->servers[i] != s;)
        i++;
    p->servers[i] = p->servers[--p->n_servers];
    make_dirty(k, s);
}

static bool fits(const struct kthena_server *s, const struct kthena_pod *p)
{
    return p->usable && p->o.problem == NULL && s->o.problem == NULL &&
           strcmp(s->o.namespace, p->o.namespace) == 0 &&
           kthena_spec_labels_match(&s->spec.labels, &p->labels);
}

static void join_pod_to(struct kthena *k, struct list *servers, struct kthena_pod *p)
{
    LIST_EACH(it, servers)
    {
        struct kthena_server *s = SERVER(LIST_ITEM(it, struct kthena_object, link));

        if (fits(s, p))
            join(k, s, p);
    }
}

static void join_pod(struct kthena *k, struct kthena_pod *p)
{
    join_pod_to(k, &k->sets[KTHENA_SERVERS].objects, p);
    join_pod_to(k, &k->gone, p);
}

static void join_server(struct kthena *k, struct kthena_server *s)
{
    LIST_EACH(it, &k->sets[KTHENA_PODS].objects)
    {
        struct kthena_pod *p = POD(LIST_ITEM(it, struct kthena_object, link));

        if (fits(s, p))
            join(k, s, p);
    }
}

/* ---- coming and going ---- */

static void part_server(struct kthena *k, struct kthena_server *s)
{
    s->shown = false;
    list_del(&s->dirty);
    while (s->n_pods > 0)
        part(k, s, s->pods[s->n_pods - 1]);
}

static void drop(struct kthena *k, struct kthena_object *o)
{
    struct kthena_set *set = &k->sets[o->kind];

    htab_remove(&set->by_name, &o->by_name);
    list_del(&o->link);
    set->n--;
    if (o->kind != KTHENA_PODS)
        k->changed = true;
    if (o->kind == KTHENA_SERVERS && SERVER(o)->shown) {
        list_push_back(&k->gone, &o->link);
        return;
    }
    if (o->kind == KTHENA_SERVERS)
        part_server(k, SERVER(o));
    while (o->kind == KTHENA_PODS && POD(o)->n_servers > 0)
        part(k, POD(o)->servers[0], POD(o));
    object_unref(o);
}

/* No view shows them any more. */
static void drop_gone(struct kthena *k)
{
    LIST_EACH_SAFE(it, &k->gone)
    {
        struct kthena_object *o = LIST_ITEM(it, struct kthena_object, link);

        list_del(&o->link);
        part_server(k, SERVER(o));
        object_unref(o);
    }
}

static void add(struct kthena *k, struct kthena_object *o)
{
    struct kthena_set *set = &k->sets[o->kind];

    htab_add(&set->by_name, &o->by_name, htab_hash(slice_of(o->name)));
    list_push_back(&set->objects, &o->link);
    set->n++;
    o->list = set->list;
    if (o->kind == KTHENA_PODS)
        join_pod(k, POD(o));
    else
        k->changed = true;
    if (o->kind == KTHENA_SERVERS)
        join_server(k, SERVER(o));
}

void kthena_list_begin(struct kthena *k, enum kthena_kind kind)
{
    k->sets[kind].list++;
}

void kthena_list_end(struct kthena *k, enum kthena_kind kind)
{
    LIST_EACH_SAFE(it, &k->sets[kind].objects)
    {
        struct kthena_object *o = LIST_ITEM(it, struct kthena_object, link);

        if (o->list != k->sets[kind].list)
            drop(k, o);
    }
}

void kthena_delete(struct kthena *k, enum kthena_kind kind, const struct cJSON *object)
{
    struct kubeobj_meta m;
    struct kthena_object *o = kubeobj_meta(object, &m) ? find_meta(k, kind, &m) : NULL;

    if (o != NULL && slice_eq(slice_of(o->uid), m.uid))
        drop(k, o);
}

/* ---- reading ---- */

/* Ready, running, not on its way out. */
static bool pod_is_usable(const cJSON *pod, const struct kubeobj_meta *m)
{
    const cJSON *status = kubeobj_get(pod, "status"), *condition;
    bool ready = false;

    cJSON_ArrayForEach(condition, kubeobj_get(status, "conditions"))
    {
        if (slice_eq(kubeobj_text(condition, "type"), SLICE("Ready")))
            ready = slice_eq(kubeobj_text(condition, "status"), SLICE("True"));
    }
    return ready && !m->deleting && kubeobj_text(status, "podIP").n > 0;
}

static struct kthena_object *read_pod(const cJSON *object, const struct kubeobj_meta *m)
{
    struct kthena_pod *p = mem_zalloc(sizeof(*p));
    const struct slice ip = kubeobj_text(kubeobj_get(object, "status"), "podIP");

    object_init(&p->o, KTHENA_PODS, m);
    p->ip = mem_dup_slice(ip.p != NULL ? ip : SLICE(""));
    p->usable = pod_is_usable(object, m);
    if (p->usable && !authority_is_ip(ip))
        p->o.problem = "status.podIP is no IP address";
    if (!kthena_spec_labels_read(kubeobj_get(kubeobj_get(object, "metadata"), "labels"), &p->labels))
        p->o.problem = "it has more labels than are supported, or one that is not a text";
    return &p->o;
}

static void take_notes(struct kthena_object *o, const struct kthena_notes *n)
{
    o->unsupported = n->fields[0] != '\0' ? mem_strdup(n->fields) : NULL;
    o->warnings = n->warnings[0] != '\0' ? mem_strdup(n->warnings) : NULL;
    o->problem = n->problem;
}

static struct kthena_object *read_server(const cJSON *object, const struct kubeobj_meta *m)
{
    struct kthena_server *s = mem_zalloc(sizeof(*s));
    struct kthena_notes notes;

    object_init(&s->o, KTHENA_SERVERS, m);
    list_init(&s->dirty);
    kthena_spec_server(object, m, &s->spec, &notes);
    take_notes(&s->o, &notes);
    return &s->o;
}

static struct kthena_object *read_route(const cJSON *object, const struct kubeobj_meta *m)
{
    struct kthena_route *r = mem_zalloc(sizeof(*r));
    struct kthena_notes notes;

    object_init(&r->o, KTHENA_ROUTES, m);
    kthena_spec_route(object, m, &r->spec, &notes);
    take_notes(&r->o, &notes);
    return &r->o;
}

static struct kthena_object *read_object(enum kthena_kind kind, const cJSON *object,
                                         const struct kubeobj_meta *m)
{
    struct kthena_object *o = kind == KTHENA_PODS      ? read_pod(object, m)
                              : kind == KTHENA_SERVERS ? read_server(object, m)
                                                       : read_route(object, m);

    if (!kubeobj_int(kubeobj_get(object, "metadata"), "generation", &o->of_generation))
        o->of_generation = 0;
    return o;
}

/* In the same order: the API server sorts them. Another order only costs a new look. */
static bool same_labels(const struct kthena_labels *a, const struct kthena_labels *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (strcmp(a->pairs[i], b->pairs[i]) != 0)
            return false;
    }
    return true;
}

/* Nothing that counts here is different: most changes of objects are to their status. */
static bool is_same(const struct kthena_object *a, const struct kthena_object *b)
{
    if (strcmp(a->uid, b->uid) != 0)
        return false;
    if (a->kind != KTHENA_PODS)
        return a->of_generation != 0 && a->of_generation == b->of_generation;
    return POD(a)->usable == POD(b)->usable && strcmp(POD(a)->ip, POD(b)->ip) == 0 &&
           same_labels(&POD(a)->labels, &POD(b)->labels);
}

static void fill_info(struct kthena_object *o, struct kthena_info *info)
{
    *info = (struct kthena_info){
        .kind = o->kind,
        .name = o->name,
        .uid = o->uid,
        .unsupported = o->unsupported != NULL ? o->unsupported : "",
        .warnings = o->warnings != NULL ? o->warnings : "",
        .problem = o->problem,
        .route = o->kind == KTHENA_ROUTES ? &ROUTE(o)->spec : NULL,
        .told = &o->told,
    };
}

bool kthena_put(struct kthena *k, enum kthena_kind kind, const struct cJSON *object, struct kthena_info *info)
{
    const size_t max = kind == KTHENA_PODS ? KTHENA_PODS_MAX : KTHENA_OBJECTS_MAX;
    struct kthena_object *old, *o;
    struct kubeobj_meta m;

    if (!kubeobj_meta(object, &m))
        return false;
    old = find_meta(k, kind, &m);
    if (old == NULL && k->sets[kind].n == max)
        return false;
    o = read_object(kind, object, &m);
    if (old != NULL && is_same(old, o)) {
        old->list = k->sets[kind].list;
        object_unref(o);
        return false;
    }
    add(k, o);
    if (old != NULL)
        drop(k, old);
    fill_info(o, info);
    return o->problem != NULL || o->unsupported != NULL || o->warnings != NULL;
}

size_t kthena_count(const struct kthena *k, enum kthena_kind kind)
{
    return k->sets[kind].n;
}

void kthena_each(const struct kthena *k, void (*fn)(const struct kthena_info *info, void *arg), void *arg)
{
    for (int kind = 0; kind < KTHENA_KINDS; kind++) {
        LIST_EACH(it, &k->sets[kind].objects)
        {
            struct kthena_info info;

            fill_info(LIST_ITEM(it, struct kthena_object, link), &info);
            if (kind != KTHENA_PODS || info.problem != NULL)
                fn(&info, arg);
        }
    }
}

bool kthena_has_server(const struct kthena *k, const char *name)
{
    const struct kthena_object *o = find(k, KTHENA_SERVERS, name);

    return o != NULL && o->problem == NULL;
}

/* ---- views ---- */

bool kthena_changed(const struct kthena *k)
{
    return k->changed;
}

/* The Go router's order: by time, then version as text, then name. */
static int compare_age(const void *a, const void *b)
{
    const struct kthena_object *x = *(struct kthena_object *const *)a, *y = *(struct kthena_object *const *)b;
    int order = strcmp(x->created, y->created);

    if (order == 0)
        order = strcmp(x->version, y->version);
    return order != 0 ? order : strcmp(x->name, y->name);
}

/* The objects of a kind that are used; the view holds a reference to each. */
static size_t collect(struct kthena *k, enum kthena_kind kind, struct kthena_object **to)
{
    size_t n = 0;

    LIST_EACH(it, &k->sets[kind].objects)
    {
        struct kthena_object *o = LIST_ITEM(it, struct kthena_object, link);

        if (o->problem != NULL)
            continue;
        o->refs++;
        to[n++] = o;
    }
    if (n > 1)
        qsort(to, n, sizeof(struct kthena_object *), compare_age);
    return n;
}

/* From now on its pods are asked for. */
static void show(struct kthena *k, struct kthena_server *s)
{
    if (s->shown)
        return;
    s->shown = true;
    make_dirty(k, s);
}

struct kthena_view *kthena_view(struct kthena *k)
{
    struct view *v = mem_zalloc(sizeof(*v));
    const struct config_server **servers = mem_array(NULL, k->sets[KTHENA_SERVERS].n + 1, sizeof(*servers));
    const struct route_spec **routes = mem_array(NULL, k->sets[KTHENA_ROUTES].n + 1, sizeof(*routes));

    v->objects = mem_array(NULL, k->sets[KTHENA_SERVERS].n + k->sets[KTHENA_ROUTES].n + 1,
                           sizeof(struct kthena_object *));
    drop_gone(k);
    v->v.n_servers = collect(k, KTHENA_SERVERS, v->objects);
    v->v.n_routes = collect(k, KTHENA_ROUTES, v->objects + v->v.n_servers);
    v->n = v->v.n_servers + v->v.n_routes;
    for (size_t i = 0; i < v->v.n_servers; i++) {
        servers[i] = &SERVER(v->objects[i])->spec.server;
        show(k, SERVER(v->objects[i]));
    }
    for (size_t i = 0; i < v->v.n_routes; i++)
        routes[i] = &ROUTE(v->objects[v->v.n_servers + i])->spec;
    v->v.servers = servers;
    v->v.routes = routes;
    k->changed = false;
    return &v->v;
}

void kthena_view_free(struct kthena_view *view)
{
    struct view *v;

    if (view == NULL)
        return;
    v = CONTAINER_OF(view, struct view, v);
    for (size_t i = 0; i < v->n; i++)
        object_unref(v->objects[i]);
    mem_free(v->objects);
    mem_free((void *)(uintptr_t)view->servers);
    mem_free((void *)(uintptr_t)view->routes);
    mem_free(v);
}

void kthena_free(struct kthena *k)
{
    if (k == NULL)
        return;
    for (int kind = 0; kind < KTHENA_KINDS; kind++) {
        LIST_EACH_SAFE(it, &k->sets[kind].objects)
        drop(k, LIST_ITEM(it, struct kthena_object, link));
        htab_free(&k->sets[kind].by_name);
    }
    drop_gone(k);
    mem_free(k);
}

/* ---- endpoints ---- */

struct kthena_server *kthena_next_dirty(struct kthena *k)
{
    struct list *first = list_first(&k->dirty);

    if (first == NULL)
        return NULL;
    list_del(first);
    return LIST_ITEM(first, struct kthena_server, dirty);
}

const char *kthena_server_name(const struct kthena_server *s)
{
    return s->o.name;
}

struct kubeobj_endpoint *kthena_endpoints(const struct kthena_server *s, size_t *n)
{
    struct kubeobj_endpoint *e = mem_array(NULL, s->n_pods + 1, sizeof(*e));

    *n = 0;
    for (size_t i = 0; i < s->n_pods; i++) {
        char *authority = kubeobj_authority(slice_of(s->pods[i]->ip), s->spec.port);

        if (authority != NULL)
            e[(*n)++] = (struct kubeobj_endpoint){authority, mem_strdup(s->pods[i]->o.uid)};
    }
    *n = kubeobj_sort_endpoints(e, *n);
    return e;
}
