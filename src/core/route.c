/* route: the data of routes, and the table that decides. It owns names, rules and whose turn it is; the queue
 * and the pods of a target are its model's. */
#include "route.h"
#include "headers.h"
#include "mem.h"
#include "pattern.h"

/* ---- what a route says ---- */

struct route_rule_spec *route_spec_add_rule(struct route_spec *s)
{
    if (s->n_rules == ROUTE_RULES_MAX)
        return NULL;
    s->rules = mem_array(s->rules, s->n_rules + 1, sizeof(*s->rules));
    s->rules[s->n_rules] = (struct route_rule_spec){0};
    return &s->rules[s->n_rules++];
}

bool route_spec_add_adapter(struct route_spec *s, struct slice name)
{
    if (s->n_adapters == ROUTE_ADAPTERS_MAX)
        return false;
    s->adapters = mem_array(s->adapters, s->n_adapters + 1, sizeof(*s->adapters));
    s->adapters[s->n_adapters++] = mem_dup_slice(name);
    return true;
}

bool route_spec_add_source(struct route_spec *s, enum route_source_kind kind, struct slice name)
{
    if (s->n_sources == ROUTE_SOURCES_MAX)
        return false;
    s->sources = mem_array(s->sources, s->n_sources + 1, sizeof(*s->sources));
    s->sources[s->n_sources++] = (struct route_source){kind, mem_dup_slice(name)};
    return true;
}

const char *route_source_word(enum route_source_kind kind)
{
    static const char *const words[] = {"header", "cookie", "query"};

    return words[kind];
}

struct route_header *route_rule_add_header(struct route_rule_spec *r, struct slice name)
{
    if (r->n_headers == ROUTE_HEADERS_MAX)
        return NULL;
    r->headers = mem_array(r->headers, r->n_headers + 1, sizeof(*r->headers));
    r->headers[r->n_headers] = (struct route_header){.name = mem_dup_slice(name)};
    return &r->headers[r->n_headers++];
}

bool route_rule_add_target(struct route_rule_spec *r, struct slice server, int64_t weight)
{
    if (r->n_targets == ROUTE_TARGETS_MAX)
        return false;
    r->targets = mem_array(r->targets, r->n_targets + 1, sizeof(*r->targets));
    r->targets[r->n_targets++] = (struct route_weight){.server = mem_dup_slice(server), .weight = weight};
    return true;
}

/* Rules look at what goes on to the pods; these fields never do, or change on the way. */
bool route_hides_header(struct slice name)
{
    static const enum header_id hidden[] = {HEADER_HOST,
                                            HEADER_CONNECTION,
                                            HEADER_KEEP_ALIVE,
                                            HEADER_PROXY_CONNECTION,
                                            HEADER_TE,
                                            HEADER_PROXY_AUTHENTICATE,
                                            HEADER_TRAILER,
                                            HEADER_PROXY_AUTHORIZATION,
                                            HEADER_EXPECT,
                                            HEADER_TRANSFER_ENCODING,
                                            HEADER_UPGRADE,
                                            HEADER_HTTP2_SETTINGS,
                                            HEADER_CONTENT_LENGTH};
    const enum header_id id = name.n > 0 ? headers_id(name) : HEADER_OTHER;

    for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
        if (id == hidden[i])
            return true;
    }
    return false;
}

/* Ids stand in logs and dumps, where credentials must not. */
static bool carries_credentials(struct slice header)
{
    static const char *const names[] = {"authorization", "proxy-authorization", "cookie", "x-api-key",
                                        "api-key"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_ieq(header, slice_of(names[i])))
            return true;
    }
    return false;
}

const char *route_key_header_problem(struct slice name)
{
    if (!headers_is_name(name))
        return "is not a header name";
    if (carries_credentials(name))
        return "carries credentials, and ids are written to the log; expected another header";
    if (route_hides_header(name))
        return "says how the request is sent, not whose it is; expected another header";
    return NULL;
}

/* True when none of them is in it, nor a blank or a control character. */
static bool is_free_of(struct slice text, const char *marks)
{
    for (size_t i = 0; i < text.n; i++) {
        if ((unsigned char)text.p[i] <= ' ' || text.p[i] == 0x7f || strchr(marks, text.p[i]) != NULL)
            return false;
    }
    return true;
}

const char *route_source_problem(enum route_source_kind kind, struct slice name)
{
    switch (kind) {
    case ROUTE_COOKIE:
        return is_free_of(name, "=;\"") ? NULL : "is no name that a cookie can have: no blank, ; = or quote";
    case ROUTE_QUERY:
        return is_free_of(name, "=&#") ? NULL : "is no name that a query can have: no blank, & = or #";
    case ROUTE_HEADER:
        break;
    }
    return route_key_header_problem(name);
}

bool route_rule_is_open(const struct route_rule_spec *r)
{
    return r->n_headers == 0 && r->uri.kind == ROUTE_ANY && r->model == NULL;
}

const char *route_match_problem(const struct route_match *m)
{
    const char *error = NULL;

    if (m->kind == ROUTE_REGEX)
        pattern_free(pattern_new(slice_of(m->text), &error));
    return error;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* True where %XX begins. */
static bool is_escape(struct slice s, size_t at)
{
    return s.p[at] == '%' && s.n - at > 2 && hex_value(s.p[at + 1]) >= 0 && hex_value(s.p[at + 2]) >= 0;
}

const char *route_uri_problem(const struct route_match *m)
{
    const struct slice text = slice_of(m->text);

    if (m->kind != ROUTE_EXACT && m->kind != ROUTE_PREFIX)
        return route_match_problem(m);
    if (text.n == 0 || text.p[0] != '/')
        return "a path begins with /";
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == '?' || text.p[i] == '#')
            return "the path without query is compared; expected no ? or #";
        if (is_escape(text, i))
            return "the decoded path is compared; expected the character itself in place of its %XX";
    }
    return NULL;
}

const char *route_weights_problem(const struct route_rule_spec *r)
{
    int64_t sum = 0;
    size_t n_given = 0;

    for (size_t i = 0; i < r->n_targets; i++) {
        if (r->targets[i].weight == ROUTE_NO_WEIGHT)
            continue;
        n_given++;
        if (r->targets[i].weight < 0 || r->targets[i].weight > ROUTE_WEIGHT_MAX)
            return "a weight is 0 to 1000000";
        sum += r->targets[i].weight;
    }
    if (r->n_targets == 0)
        return "there is no target";
    if (n_given > 0 && n_given < r->n_targets)
        return "some targets have a weight and some have none; expected all or none";
    return n_given > 0 && sum == 0 ? "all weights are 0; expected one above" : NULL;
}

const char *route_match_word(enum route_match_kind kind)
{
    static const char *const words[] = {"any", "exact", "prefix", "regex"};

    return words[kind];
}

static void rule_spec_free(struct route_rule_spec *r)
{
    for (size_t i = 0; i < r->n_headers; i++) {
        mem_free(r->headers[i].name);
        mem_free(r->headers[i].value.text);
    }
    for (size_t i = 0; i < r->n_targets; i++)
        mem_free(r->targets[i].server);
    mem_free(r->headers);
    mem_free(r->targets);
    mem_free(r->uri.text);
    mem_free(r->model);
    mem_free(r->name);
}

void route_spec_drop_rule(struct route_spec *s)
{
    rule_spec_free(&s->rules[--s->n_rules]);
}

void route_spec_free(struct route_spec *s)
{
    for (size_t i = 0; i < s->n_rules; i++)
        rule_spec_free(&s->rules[i]);
    for (size_t i = 0; i < s->n_adapters; i++)
        mem_free(s->adapters[i]);
    for (size_t i = 0; i < s->n_sources; i++)
        mem_free(s->sources[i].name);
    mem_free(s->sources);
    mem_free(s->rules);
    mem_free(s->adapters);
    mem_free(s->name);
    mem_free(s->model);
}

/* ---- the table ---- */

struct route_rule {
    const struct route_rule_spec *spec;
    struct pattern *uri;      /* where the spec's is a ROUTE_REGEX */
    struct pattern **headers; /* one for each header, NULL where it is no ROUTE_REGEX */
    size_t n_headers;
    bool never;     /* a pattern cannot be read */
    bool no_target; /* its weights are not well-formed */
    const struct route_spec *route;
    struct route_target *targets;
    size_t n_targets;
};

void route_table_init(struct route_table *t)
{
    *t = (struct route_table){.names = NULL};
    htab_init(&t->by_name, 0);
}

static void name_free(struct route_name *n)
{
    for (size_t i = 0; i < n->n_rules; i++) {
        struct route_rule *r = &n->rules[i];

        for (size_t k = 0; k < r->n_headers; k++)
            pattern_free(r->headers[k]);
        pattern_free(r->uri);
        mem_free(r->headers);
        mem_free(r->targets);
    }
    mem_free(n->rules);
    mem_free(n->text);
    mem_free(n);
}

void route_table_free(struct route_table *t)
{
    for (size_t i = 0; i < t->n_names; i++)
        name_free(t->names[i]);
    mem_free(t->names);
    htab_free(&t->by_name);
    t->names = NULL;
    t->n_names = t->cap_names = 0;
}

static bool name_is(const struct htab_node *node, const void *key)
{
    const struct route_name *n = (const struct route_name *)(const void *)node;
    const struct slice *text = key;

    return slice_eq((struct slice){n->text, n->text_n}, *text);
}

/* Looking through a handful costs less than a hash. */
#define FEW_NAMES 6

struct route_name *route_find(const struct route_table *t, struct slice name)
{
    struct htab_node *node;

    if (t->n_names <= FEW_NAMES) {
        for (size_t i = 0; i < t->n_names; i++) {
            if (slice_eq((struct slice){t->names[i]->text, t->names[i]->text_n}, name))
                return t->names[i];
        }
        return NULL;
    }
    node = htab_find(&t->by_name, htab_hash(name), name_is, &name);
    return node == NULL ? NULL : CONTAINER_OF(node, struct route_name, by_name);
}

struct route_name *route_table_add_name(struct route_table *t, struct slice name, bool adapter)
{
    struct route_name *n = route_find(t, name);

    if (n != NULL)
        return n;
    if (t->n_names == t->cap_names) {
        t->cap_names = t->cap_names > 0 ? 2 * t->cap_names : 16;
        t->names = mem_array(t->names, t->cap_names, sizeof(*t->names));
    }
    n = mem_zalloc(sizeof(*n));
    n->text = mem_dup_slice(name);
    n->text_n = name.n;
    n->adapter = adapter;
    htab_add(&t->by_name, &n->by_name, htab_hash(name));
    t->names[t->n_names++] = n;
    return n;
}

static struct pattern *compile(struct route_rule *r, const struct route_match *m)
{
    struct pattern *p = NULL;
    const char *error;

    if (m->kind == ROUTE_REGEX) {
        p = pattern_new(slice_of(m->text), &error);
        r->never = r->never || p == NULL;
    }
    return p;
}

size_t route_name_add_rule(struct route_name *n, const struct route_spec *route,
                           const struct route_rule_spec *spec)
{
    struct route_rule *r;

    n->rules = mem_array(n->rules, n->n_rules + 1, sizeof(*n->rules));
    r = &n->rules[n->n_rules];
    *r = (struct route_rule){.spec = spec, .route = route, .no_target = route_weights_problem(spec) != NULL};
    r->headers = mem_array(NULL, spec->n_headers, sizeof(struct pattern *));
    r->uri = compile(r, &spec->uri);
    r->n_headers = spec->n_headers;
    for (size_t i = 0; i < spec->n_headers; i++)
        r->headers[i] = compile(r, &spec->headers[i].value);
    return n->n_rules++;
}

void route_name_add_target(struct route_name *n, size_t rule, struct model *model, void *to, int64_t weight)
{
    struct route_rule *r = &n->rules[rule];

    if (weight == 0)
        return;
    r->targets = mem_array(r->targets, r->n_targets + 1, sizeof(*r->targets));
    r->targets[r->n_targets++] = (struct route_target){model, to, weight == ROUTE_NO_WEIGHT ? 1 : weight, 0};
}

void route_name_each(const struct route_name *n, void (*fn)(void *to, void *arg), void *arg)
{
    for (size_t i = 0; i < n->n_rules; i++) {
        for (size_t k = 0; k < n->rules[i].n_targets; k++)
            fn(n->rules[i].targets[k].to, arg);
    }
}

static bool same_targets(const struct route_rule *a, const struct route_rule *b)
{
    if (a->n_targets != b->n_targets)
        return false;
    for (size_t i = 0; i < a->n_targets; i++) {
        if (a->targets[i].to != b->targets[i].to || a->targets[i].weight != b->targets[i].weight)
            return false;
    }
    return true;
}

static void keep_credits(struct route_name *n, const struct route_name *before)
{
    for (size_t i = 0; i < n->n_rules && i < before->n_rules; i++) {
        if (!same_targets(&n->rules[i], &before->rules[i]))
            continue;
        for (size_t k = 0; k < n->rules[i].n_targets; k++)
            n->rules[i].targets[k].credit = before->rules[i].targets[k].credit;
    }
}

static bool is_open(const struct route_rule *r)
{
    return route_rule_is_open(r->spec) && !r->no_target && r->route->n_sources == 0;
}

void route_table_finish(struct route_table *t, const struct route_table *before)
{
    for (size_t i = 0; i < t->n_names; i++) {
        struct route_name *n = t->names[i];
        const struct route_name *old = route_find(before, slice_of(n->text));

        if (old != NULL)
            keep_credits(n, old);
        if (n->n_rules > 0 && is_open(&n->rules[0]) && n->rules[0].n_targets == 1)
            n->only = &n->rules[0].targets[0];
    }
}

/* ---- which rule ---- */

static bool match(const struct route_match *m, struct pattern *p, struct slice value)
{
    const struct slice text = slice_of(m->text);

    switch (m->kind) {
    case ROUTE_EXACT:
        return slice_eq(value, text);
    case ROUTE_PREFIX:
        return slice_starts(value, text);
    case ROUTE_REGEX:
        return pattern_matches(p, value);
    case ROUTE_ANY:
        break;
    }
    return true;
}

static bool rule_matches(const struct route_rule *r, const struct route_name *n, const struct route_query *q)
{
    if (r->never || (r->spec->model != NULL && strcmp(r->spec->model, n->text) != 0))
        return false;
    if (!match(&r->spec->uri, r->uri, q->path))
        return false;
    for (size_t i = 0; i < r->n_headers; i++) {
        const struct route_header *h = &r->spec->headers[i];

        if (!match(&h->value, r->headers[i], headers_field(q->fields, slice_of(h->name))))
            return false;
    }
    return true;
}

/* The first rule that matches and has targets. */
static struct route_rule *find_rule_of(struct route_name *n, const struct route_query *q)
{
    const struct route_spec *passed_over = NULL;

    for (size_t i = 0; i < n->n_rules; i++) {
        struct route_rule *r = &n->rules[i];

        if (r->route == passed_over || !rule_matches(r, n, q))
            continue;
        if (!r->no_target && r->n_targets > 0)
            return r;
        passed_over = r->route;
    }
    return NULL;
}

/* Writes at most s.n bytes. What is no %XX stays as it is. */
static size_t decode_path(struct slice s, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        if (is_escape(s, i)) {
            out[n++] = (char)(hex_value(s.p[i + 1]) * 16 + hex_value(s.p[i + 2]));
            i += 2;
        } else {
            out[n++] = s.p[i];
        }
    }
    return n;
}

/* Pods take /v1/%63hat for /v1/chat, so rules do. */
static struct route_rule *find_rule(struct route_name *n, const struct route_query *q)
{
    struct route_query plain = *q;
    struct route_rule *r;
    char *path;

    if (q->path.n == 0 || memchr(q->path.p, '%', q->path.n) == NULL)
        return find_rule_of(n, q);
    path = mem_alloc(q->path.n);
    plain.path = (struct slice){path, decode_path(q->path, path)};
    r = find_rule_of(n, &plain);
    mem_free(path);
    return r;
}

/* ---- which session ---- */

/* The value behind NAME= among pieces that `sep` parts. */
static struct slice find_piece(struct slice pieces, char sep, struct slice name)
{
    while (pieces.p != NULL) {
        struct slice value = slice_trim(slice_cut(&pieces, sep));

        if (slice_eq(slice_cut(&value, '='), name))
            return slice_trim(value);
    }
    return (struct slice){NULL, 0};
}

/* HTTP/2 front ends may leave a field for each cookie. */
static struct slice find_cookie(struct slice fields, struct slice name)
{
    struct slice value = {NULL, 0};

    while (value.n == 0 && fields.p != NULL)
        value = find_piece(headers_next_field(&fields, SLICE("cookie")), ';', name);
    return value;
}

static struct slice read_source(const struct route_source *source, const struct route_query *q)
{
    const struct slice name = slice_of(source->name);

    switch (source->kind) {
    case ROUTE_COOKIE:
        return find_cookie(q->fields, name);
    case ROUTE_QUERY:
        return find_piece(q->query, '&', name);
    case ROUTE_HEADER:
        break;
    }
    return headers_field(q->fields, name);
}

static struct slice find_session(const struct route_spec *s, const struct route_query *q)
{
    struct slice session = {NULL, 0};

    for (size_t i = 0; i < s->n_sources && session.n == 0; i++)
        session = read_source(&s->sources[i], q);
    return session;
}

/* ---- which target ---- */

static bool may_go(const struct route_target *t, const struct route_query *q, int64_t now_us)
{
    for (size_t i = 0; i < q->n_avoid; i++) {
        if (t->to == q->avoid[i])
            return false;
    }
    return q->only_listed ? model_is_listed(t->model, now_us) : model_in_place(t->model, now_us);
}

static bool any_listed(const struct route_rule *r, const struct route_query *q, int64_t now_us)
{
    for (size_t i = 0; i < r->n_targets; i++) {
        if (model_is_listed(r->targets[i].model, now_us) && may_go(&r->targets[i], q, now_us))
            return true;
    }
    return false;
}

/* The one that served the session last, if any has. */
static struct route_target *find_known(const struct route_rule *r, const struct route_query *q,
                                       int64_t now_us)
{
    struct route_target *best = NULL;
    int64_t best_us = INT64_MIN;

    for (size_t i = 0; i < r->n_targets; i++) {
        int64_t at_us;

        if (!model_knows(r->targets[i].model, q->session, now_us, &at_us) ||
            !may_go(&r->targets[i], q, now_us))
            continue;
        if (best == NULL || at_us > best_us) {
            best = &r->targets[i];
            best_us = at_us;
        }
    }
    return best;
}

/* Smooth weighted round robin among those with pods in place. */
static struct route_target *take_turn(struct route_rule *r, const struct route_query *q, int64_t now_us)
{
    struct route_target *best = NULL;
    int64_t sum = 0;

    for (size_t i = 0; i < r->n_targets; i++) {
        struct route_target *t = &r->targets[i];

        if (!may_go(t, q, now_us))
            continue;
        t->credit += t->weight;
        sum += t->weight;
        if (best == NULL || t->credit > best->credit)
            best = t;
    }
    if (best != NULL)
        best->credit -= sum;
    return best;
}

static struct route_target *any_usable(const struct route_rule *r)
{
    for (size_t i = 0; i < r->n_targets; i++) {
        if (r->targets[i].model->n_usable > 0)
            return &r->targets[i];
    }
    return &r->targets[0];
}

struct route_target *route_decide(struct route_name *n, struct route_query *q, int64_t now_us)
{
    struct route_rule *r = find_rule(n, q);
    struct route_target *t = NULL;

    if (r == NULL)
        return NULL;
    if (r->route->n_sources > 0)
        q->session = find_session(r->route, q);
    if (r->n_targets == 1)
        return &r->targets[0];
    q->only_listed = n->adapter && any_listed(r, q, now_us);
    if (q->session.n > 0)
        t = find_known(r, q, now_us);
    if (t == NULL)
        t = take_turn(r, q, now_us);
    return t != NULL ? t : any_usable(r);
}
