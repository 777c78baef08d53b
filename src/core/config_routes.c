/* config_routes: builds the lists of servers and routes and checks that they fit together. It owns the quick
 * form of ROUTER_BACKENDS and lists of pods; the sections of the INI file are config_ini's. */
#include "config_routes.h"
#include "authority.h"
#include "config_option.h"
#include "mem.h"
#include "nearest.h"

#include <stdio.h>
#include <stdlib.h>

#define CONFIG_PLACE_MAX 280

static const char BACKENDS[] = "ROUTER_BACKENDS";

/* "router.ini:12" or "ROUTER_BACKENDS" */
static void write_place(struct config_place at, char out[CONFIG_PLACE_MAX])
{
    if (at.line == 0)
        (void)snprintf(out, CONFIG_PLACE_MAX, "%.250s", at.name);
    else
        (void)snprintf(out, CONFIG_PLACE_MAX, "%.250s:%zu", at.name, at.line);
}

struct config_server *config_routes_add_server(struct config *c, struct slice name, size_t line)
{
    if (c->n_servers == CONFIG_SERVERS_MAX)
        return NULL;
    c->servers = mem_array(c->servers, c->n_servers + 1, sizeof(*c->servers));
    c->servers[c->n_servers] =
        (struct config_server){.name = mem_dup_slice(name), .engine = PROMTEXT_VLLM, .line = line};
    return &c->servers[c->n_servers++];
}

struct route_spec *config_routes_add_route(struct config *c, struct slice name, size_t line)
{
    if (c->n_routes == CONFIG_SERVERS_MAX)
        return NULL;
    c->routes = mem_array(c->routes, c->n_routes + 1, sizeof(*c->routes));
    c->routes[c->n_routes] = (struct route_spec){.name = mem_dup_slice(name), .line = line};
    return &c->routes[c->n_routes++];
}

/* ---- lists of pods ---- */

static bool is_separator(char ch)
{
    return ch == ',' || ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r';
}

/* Cuts the next item off; {.n = 0}: no more. */
static struct slice next_item(struct slice *list)
{
    struct slice item;

    while (list->n > 0 && is_separator(list->p[0]))
        list->p++, list->n--;
    item = (struct slice){list->p, 0};
    while (item.n < list->n && !is_separator(item.p[item.n]))
        item.n++;
    list->p += item.n;
    list->n -= item.n;
    return item;
}

static bool has_pod(const struct config_server *s, const char *authority)
{
    for (size_t i = 0; i < s->n_pods; i++) {
        if (strcmp(s->pods[i], authority) == 0)
            return true;
    }
    return false;
}

static void add_pod(struct config_server *s, struct slice text, const char *place,
                    struct config_report *report)
{
    const char *error;
    char *authority;

    if (!authority_parse(text, &authority, &error)) {
        config_report_add(report, true, "%s: pod \"%.*s\": %s", place, CONFIG_SHOWN(text), error);
        return;
    }
    if (has_pod(s, authority) || s->n_pods == CONFIG_PODS_MAX) {
        config_report_add(report, true, "%s: pod \"%s\" %s", place, authority,
                          s->n_pods == CONFIG_PODS_MAX ? "is one too many" : "is given twice");
        mem_free(authority);
        return;
    }
    s->pods = mem_grow(s->pods, s->n_pods, sizeof(*s->pods));
    s->pods[s->n_pods++] = authority;
}

void config_routes_add_pods(struct config_server *s, struct slice list, struct config_place at,
                            struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];

    write_place(at, place);
    for (struct slice item = next_item(&list); item.n > 0; item = next_item(&list))
        add_pod(s, item, place, report);
}

/* ---- targets and adapters ---- */

struct route_rule_spec *config_routes_own_rule(struct route_spec *s)
{
    for (size_t i = 0; i < s->n_rules; i++) {
        if (s->rules[i].name == NULL)
            return &s->rules[i];
    }
    return route_spec_add_rule(s);
}

static bool has_text(char *const *texts, size_t n, struct slice text)
{
    for (size_t i = 0; i < n; i++) {
        if (slice_eq(slice_of(texts[i]), text))
            return true;
    }
    return false;
}

/* Cuts the next name off a list separated by commas. Empty ones, but for the last, and too long ones are
 * reported and passed over. False: there is no more. */
static bool next_name(struct slice *list, struct slice *name, const char *place, struct config_report *report)
{
    while (list->p != NULL) {
        *name = slice_trim(slice_cut(list, ','));
        if (name->n > CONFIG_NAME_MAX)
            config_report_add(report, true, "%s: \"%.*s...\": the name is longer than %d bytes", place,
                              CONFIG_SHOWN(*name), CONFIG_NAME_MAX);
        else if (name->n > 0)
            return true;
        else if (list->p != NULL) /* a comma may end the line */
            config_report_add(report, true, "%s: an empty name before a comma; expected NAME, NAME, ...",
                              place);
    }
    return false;
}

static void report_one_too_many(struct config_report *report, const char *place, const char *what,
                                struct slice name, int max)
{
    config_report_add(report, true, "%s: %s \"%.*s\" is one too many: at most %d", place, what,
                      CONFIG_SHOWN(name), max);
}

void config_routes_add_targets(struct route_rule_spec *r, struct slice list, struct config_place at,
                               struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];
    struct slice name;

    write_place(at, place);
    while (next_name(&list, &name, place, report)) {
        if (route_rule_add_target(r, name, ROUTE_NO_WEIGHT))
            r->targets[r->n_targets - 1].line = at.line;
        else
            report_one_too_many(report, place, "target", name, ROUTE_TARGETS_MAX);
    }
}

void config_routes_add_adapters(struct route_spec *s, struct slice list, struct config_place at,
                                struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];
    struct slice name;

    write_place(at, place);
    while (next_name(&list, &name, place, report)) {
        if (has_text(s->adapters, s->n_adapters, name))
            config_report_add(report, true, "%s: adapter \"%.*s\" is given twice", place, CONFIG_SHOWN(name));
        else if (!route_spec_add_adapter(s, name))
            report_one_too_many(report, place, "adapter", name, ROUTE_ADAPTERS_MAX);
    }
}

static bool parse_source(struct slice item, enum route_source_kind *kind, struct slice *name)
{
    struct slice word = slice_trim(slice_cut(&item, ':'));

    *name = slice_trim(item);
    for (*kind = ROUTE_HEADER; *kind <= ROUTE_QUERY; (*kind)++) {
        if (slice_eq(word, slice_of(route_source_word(*kind))))
            return name->n > 0;
    }
    return false;
}

void config_routes_add_sources(struct route_spec *s, struct slice list, struct config_place at,
                               struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];
    enum route_source_kind kind;
    struct slice item, name;

    write_place(at, place);
    while (next_name(&list, &item, place, report)) {
        if (!parse_source(item, &kind, &name))
            config_report_add(report, true,
                              "%s: session_sticky: \"%.*s\": expected header:NAME, cookie:NAME or query:NAME",
                              place, CONFIG_SHOWN(item));
        else if (route_source_problem(kind, name) != NULL)
            config_report_add(report, true, "%s: session_sticky: \"%.*s\" %s", place, CONFIG_SHOWN(name),
                              route_source_problem(kind, name));
        else if (!route_spec_add_source(s, kind, name))
            report_one_too_many(report, place, "session_sticky:", item, ROUTE_SOURCES_MAX);
    }
}

/* ---- the quick form ---- */

static struct slice trim_lines(struct slice s)
{
    while (s.n > 0 && is_separator(s.p[0]) && s.p[0] != ',')
        s.p++, s.n--;
    while (s.n > 0 && is_separator(s.p[s.n - 1]) && s.p[s.n - 1] != ',')
        s.n--;
    return s;
}

/* One MODEL=host:port,... */
static void add_backend(struct config *c, struct slice part, struct config_report *report)
{
    struct slice pods = part, model = trim_lines(slice_cut(&pods, '='));
    struct config_server *server;
    struct route_spec *route;
    size_t errors = report->n_fatal;

    if (pods.p == NULL || model.n == 0) {
        config_report_add(report, true, "%s: \"%.*s\": expected MODEL=host:port,host:port;MODEL2=...",
                          BACKENDS, CONFIG_SHOWN(part));
        return;
    }
    if (model.n > CONFIG_NAME_MAX) {
        config_report_add(report, true, "%s: model \"%.*s...\": the name is longer than %d bytes", BACKENDS,
                          CONFIG_SHOWN(model), CONFIG_NAME_MAX);
        return;
    }
    server = config_routes_add_server(c, model, 0);
    route = config_routes_add_route(c, model, 0);
    if (server == NULL || route == NULL) {
        config_report_add(report, true, "%s: more than %d models", BACKENDS, CONFIG_SERVERS_MAX);
        return;
    }
    route->model = mem_dup_slice(model);
    if (!route_rule_add_target(config_routes_own_rule(route), model, ROUTE_NO_WEIGHT))
        return; /* never: it is the first */
    config_routes_add_pods(server, pods, (struct config_place){.name = BACKENDS}, report);
    if (server->n_pods == 0 && report->n_fatal == errors)
        config_report_add(report, true, "%s: model \"%.*s\" has no pods: expected %.*s=host:port", BACKENDS,
                          CONFIG_SHOWN(model), CONFIG_SHOWN(model));
}

void config_routes_add_backends(struct config *c, struct slice text, struct config_report *report)
{
    for (struct slice rest = text; rest.p != NULL;) {
        struct slice part = trim_lines(slice_cut(&rest, ';'));

        if (part.n > 0) /* a semicolon may also end the text */
            add_backend(c, part, report);
    }
}

/* All problems as one text, without the place: the caller names it once. */
static char *join_problems(const struct config_report *report)
{
    const size_t skip = strlen(BACKENDS) + 2;
    char *text = mem_strdup(report->problems[0].text + skip);

    for (size_t i = 1; i < report->n && i < 10; i++) {
        char *longer = mem_printf("%s; %s", text, report->problems[i].text + skip);

        mem_free(text);
        text = longer;
    }
    return text;
}

bool config_routes_check_backends(struct slice text, char **error)
{
    struct config scratch = {0};
    struct config_report report = {0};
    bool ok;

    config_routes_add_backends(&scratch, text, &report);
    config_routes_resolve(&scratch, NULL, &report);
    ok = report.n_fatal == 0;
    *error = ok ? NULL : join_problems(&report);
    config_routes_free(&scratch);
    config_report_free(&report);
    return ok;
}

/* ---- how it fits together ---- */

static void place_of(const char *file, size_t line, char out[CONFIG_PLACE_MAX])
{
    write_place((struct config_place){line == 0 || file == NULL ? BACKENDS : file, line}, out);
}

/* Reports names or models that two entries share, once for each later entry. */
static void report_twice(const char *what, const char *name, const char *file, size_t first_line, size_t line,
                         struct config_report *report)
{
    char first[CONFIG_PLACE_MAX], second[CONFIG_PLACE_MAX];

    place_of(file, first_line, first);
    place_of(file, line, second);
    config_report_add(report, true, "%s: %s \"%.80s\" is given twice, first at %s", second, what, name,
                      first);
}

static void check_servers(const struct config *c, const char *file, struct config_report *report)
{
    for (size_t i = 0; i < c->n_servers; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(c->servers[i].name, c->servers[j].name) != 0)
                continue;
            report_twice("model-server", c->servers[i].name, file, c->servers[j].line, c->servers[i].line,
                         report);
            break;
        }
    }
}

static void check_routes(const struct config *c, const char *file, struct config_report *report)
{
    for (size_t i = 0; i < c->n_routes; i++) {
        for (size_t j = 0; j < i; j++) {
            const struct route_spec *a = &c->routes[j], *b = &c->routes[i];

            if (strcmp(a->name, b->name) != 0)
                continue;
            report_twice("model-route", b->name, file, a->line, b->line, report);
            break;
        }
    }
}

static void report_target(const struct config *c, const struct route_spec *s, struct slice target,
                          const char *place, struct config_report *report)
{
    struct nearest nearest;

    nearest_start(&nearest, target);
    for (size_t i = 0; i < c->n_servers; i++)
        nearest_try(&nearest, slice_of(c->servers[i].name));
    config_report_add(report, true, "%s: [model-route %.80s]: target \"%.*s\" is no model-server%s%s%s",
                      place, s->name, CONFIG_SHOWN(target),
                      c->n_servers == 0 ? ": there is none" : "; the nearest is \"", nearest.best,
                      c->n_servers == 0 ? "" : "\"");
}

static bool is_server(const struct config *c, struct slice name)
{
    for (size_t i = 0; i < c->n_servers; i++) {
        if (slice_eq(slice_of(c->servers[i].name), name))
            return true;
    }
    return false;
}

/* False: no number from 0 to ROUTE_WEIGHT_MAX. */
static bool parse_weight(struct slice digits, int64_t *weight)
{
    *weight = 0;
    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] < '0' || digits.p[i] > '9')
            return false;
        *weight = *weight * 10 + (digits.p[i] - '0');
        if (*weight > ROUTE_WEIGHT_MAX)
            return false;
    }
    return digits.n > 0;
}

/* NAME:WEIGHT; names may hold colons, too. False: it is not, and all of it may be a name. */
static bool split_weight(const struct config *c, struct slice text, struct slice *name, struct slice *weight)
{
    const char *colon = text.n > 0 ? memrchr(text.p, ':', text.n) : NULL;
    int64_t value;

    if (colon == NULL)
        return false;
    *name = slice_trim((struct slice){text.p, (size_t)(colon - text.p)});
    *weight = slice_trim((struct slice){colon + 1, text.n - (size_t)(colon + 1 - text.p)});
    return is_server(c, *name) || parse_weight(*weight, &value);
}

/* A server's whole name counts before one with a weight. */
static void resolve_target(const struct config *c, const struct route_spec *s, struct route_weight *t,
                           const char *place, struct config_report *report)
{
    struct slice name = slice_of(t->server), weight;
    char *whole = t->server;

    if (is_server(c, name))
        return;
    if (split_weight(c, name, &name, &weight)) {
        if (!parse_weight(weight, &t->weight)) {
            config_report_add(report, true,
                              "%s: [model-route %.80s]: target \"%.*s\": weight \"%.*s\": expected a whole "
                              "number from 0 to %d",
                              place, s->name, CONFIG_SHOWN(name), CONFIG_SHOWN(weight), ROUTE_WEIGHT_MAX);
            t->weight = 1;
        }
        t->server = mem_dup_slice(name);
        mem_free(whole);
    }
    if (!is_server(c, slice_of(t->server)))
        report_target(c, s, slice_of(t->server), place, report);
}

static bool has_server_before(const struct route_rule_spec *r, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (strcmp(r->targets[k].server, r->targets[i].server) == 0)
            return true;
    }
    return false;
}

static void resolve_rule(const struct config *c, const struct route_spec *s, struct route_rule_spec *r,
                         const char *file, struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];
    const char *problem;

    for (size_t i = 0; i < r->n_targets; i++) {
        place_of(file, r->targets[i].line, place);
        resolve_target(c, s, &r->targets[i], place, report);
        if (has_server_before(r, i))
            config_report_add(report, true, "%s: target \"%.80s\" is given twice", place,
                              r->targets[i].server);
    }
    place_of(file, r->target_line, place);
    problem = r->n_targets > 0 ? route_weights_problem(r) : NULL;
    if (problem != NULL)
        config_report_add(report, true, "%s: [model-route %.80s]: %s", place, s->name, problem);
}

/* The route's own targets come last, wherever their line stands. */
static void put_own_rule_last(struct route_spec *s)
{
    for (size_t i = 0; i + 1 < s->n_rules; i++) {
        struct route_rule_spec own = s->rules[i];

        if (own.name != NULL)
            continue;
        s->rules[i] = s->rules[i + 1];
        s->rules[i + 1] = own;
    }
}

/* A pod in the list of a server. */
struct listed {
    const char *pod;
    size_t server;
};

static int compare_listed(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    const int order = strcmp(x->pod, y->pod);

    return order != 0 ? order : x->server < y->server ? -1 : x->server > y->server;
}

/* What two servers say of one pod; NULL: nothing that cannot be true of both. */
static const char *find_difference(const struct config_server *a, const struct config_server *b)
{
    if (a->https != b->https)
        return "protocol";
    if (a->engine != b->engine)
        return "engine";
    if (!a->https || (a->tls_name == NULL && b->tls_name == NULL))
        return NULL;
    return a->tls_name == NULL || b->tls_name == NULL || strcmp(a->tls_name, b->tls_name) != 0 ? "tls_name"
                                                                                               : NULL;
}

static void report_shared_pod(const struct config *c, const struct listed *first, const struct listed *other,
                              const char *difference, const char *file, struct config_report *report)
{
    const struct config_server *a = &c->servers[first->server], *b = &c->servers[other->server];
    char first_place[CONFIG_PLACE_MAX], place[CONFIG_PLACE_MAX];

    place_of(file, a->line, first_place);
    place_of(file, b->line, place);
    config_report_add(report, true,
                      "%s: [model-server %.80s]: pod %.80s is also in [model-server %.80s] at %s, with "
                      "another %s; expected the "
                      "same, for it is one pod",
                      place, b->name, other->pod, a->name, first_place, difference);
}

/* One problem for each server. */
static void check_shared_pods(const struct config *c, const char *file, struct config_report *report)
{
    struct listed *pods, *first;
    bool *told = mem_zalloc(c->n_servers + 1);
    size_t n = 0;

    for (size_t i = 0; i < c->n_servers; i++)
        n += c->servers[i].n_pods;
    first = pods = mem_array(NULL, n + 1, sizeof(*pods));
    n = 0;
    for (size_t i = 0; i < c->n_servers; i++) {
        for (size_t k = 0; k < c->servers[i].n_pods; k++)
            pods[n++] = (struct listed){c->servers[i].pods[k], i};
    }
    if (n > 1)
        qsort(pods, n, sizeof(*pods), compare_listed);
    for (size_t i = 0; i < n; i++) {
        const struct config_server *server = &c->servers[pods[i].server];
        const char *difference;

        if (strcmp(first->pod, pods[i].pod) != 0)
            first = &pods[i];
        difference = find_difference(&c->servers[first->server], server);
        if (difference == NULL || told[pods[i].server])
            continue;
        told[pods[i].server] = true;
        report_shared_pod(c, first, &pods[i], difference, file, report);
    }
    mem_free(pods);
    mem_free(told);
}

void config_routes_resolve(struct config *c, const char *file, struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];

    check_servers(c, file, report);
    check_shared_pods(c, file, report);
    check_routes(c, file, report);
    for (size_t i = 0; i < c->n_routes; i++) {
        struct route_spec *s = &c->routes[i];

        put_own_rule_last(s);
        for (size_t k = 0; k < s->n_rules; k++)
            resolve_rule(c, s, &s->rules[k], file, report);
        place_of(file, s->line, place);
        if (s->n_rules == 0)
            config_report_add(report, true,
                              "%s: [model-route %.80s] has no target; expected the name of a model-server",
                              place, s->name);
    }
}

/* ---- what is of no use ---- */

static bool is_target(const struct config *c, const char *server)
{
    for (size_t i = 0; i < c->n_routes; i++) {
        for (size_t k = 0; k < c->routes[i].n_rules; k++) {
            const struct route_rule_spec *r = &c->routes[i].rules[k];

            for (size_t t = 0; t < r->n_targets; t++) {
                if (strcmp(r->targets[t].server, server) == 0)
                    return true;
            }
        }
    }
    return false;
}

/* The rule that takes every request of the route's model, or NULL. */
static const struct route_rule_spec *open_rule(const struct route_spec *s)
{
    for (size_t i = 0; i < s->n_rules; i++) {
        if (route_rule_is_open(&s->rules[i]))
            return &s->rules[i];
    }
    return NULL;
}

static void check_rules_use(const struct config *c, const struct route_spec *s, struct config_report *report)
{
    const struct route_rule_spec *open = open_rule(s);
    char place[CONFIG_PLACE_MAX];

    if (open == NULL || open == &s->rules[s->n_rules - 1])
        return;
    place_of(c->file, open[1].name != NULL ? open[1].line : open[1].target_line, place);
    config_report_add(
        report, false,
        "%s: [model-route %.80s]: no request comes here: rule \"%.80s\" before it has no condition", place,
        s->name, open->name);
}

static void check_route_use(const struct config *c, size_t at, struct config_report *report)
{
    char place[CONFIG_PLACE_MAX], first[CONFIG_PLACE_MAX];

    for (size_t i = 0; i < at; i++) {
        if (strcmp(c->routes[i].model, c->routes[at].model) != 0 || open_rule(&c->routes[i]) == NULL)
            continue;
        place_of(c->file, c->routes[at].line, place);
        place_of(c->file, c->routes[i].line, first);
        config_report_add(
            report, false,
            "%s: model-route \"%.80s\" gets no request: \"%.80s\" at %s is older and takes all of "
            "model \"%.80s\"",
            place, c->routes[at].name, c->routes[i].name, first, c->routes[at].model);
        return;
    }
}

static void check_adapters_use(const struct config *c, const struct route_spec *s,
                               struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];

    for (size_t i = 0; i < s->n_adapters; i++) {
        for (size_t k = 0; k < c->n_routes; k++) {
            if (strcmp(c->routes[k].model, s->adapters[i]) != 0)
                continue;
            place_of(c->file, s->line, place);
            config_report_add(
                report, false,
                "%s: [model-route %.80s]: adapter \"%.80s\" gets no request: a model has this name", place,
                s->name, s->adapters[i]);
            break;
        }
    }
}

static void check_sticky_use(const struct config *c, const struct route_spec *s, struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];

    if (c->enable_session_boost ||
        (s->sticky != ROUTE_STICKY_WAIT && (s->sticky == ROUTE_STICKY_UNSET || s->n_sources > 0)))
        return;
    place_of(c->file, s->line, place);
    config_report_add(
        report, false,
        "%s: [model-route %.80s]: sticky_mode has no effect here: without ENABLE_SESSION_BOOST nobody "
        "waits for the pod of its session, and sessions are known by session_sticky alone",
        place, s->name);
}

void config_routes_check_use(const struct config *c, struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];

    for (size_t i = 0; i < c->n_servers && c->n_routes > 0; i++) {
        if (is_target(c, c->servers[i].name))
            continue;
        place_of(c->file, c->servers[i].line, place);
        config_report_add(report, false, "%s: [model-server %.80s] is the target of no model-route", place,
                          c->servers[i].name);
    }
    for (size_t i = 0; i < c->n_routes; i++) {
        check_rules_use(c, &c->routes[i], report);
        check_route_use(c, i, report);
        check_adapters_use(c, &c->routes[i], report);
        check_sticky_use(c, &c->routes[i], report);
    }
}

void config_routes_free(struct config *c)
{
    for (size_t i = 0; i < c->n_servers; i++) {
        for (size_t j = 0; j < c->servers[i].n_pods; j++)
            mem_free(c->servers[i].pods[j]);
        mem_free(c->servers[i].pods);
        mem_free(c->servers[i].name);
        mem_free(c->servers[i].dns);
        mem_free(c->servers[i].service);
        mem_free(c->servers[i].model);
        mem_free(c->servers[i].tls_name);
    }
    for (size_t i = 0; i < c->n_routes; i++)
        route_spec_free(&c->routes[i]);
    mem_free(c->servers);
    mem_free(c->routes);
}
