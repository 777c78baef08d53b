/* config_routes: builds the lists of servers and routes and checks that they fit together. It owns the quick
 * form of ROUTER_BACKENDS and lists of pods; the sections of the INI file are config_ini's. */
#include "config_routes.h"
#include "authority.h"
#include "config_option.h"
#include "mem.h"
#include "nearest.h"

#include <stdio.h>

static const char BACKENDS[] = "ROUTER_BACKENDS";

void config_routes_place(struct config_place at, char out[CONFIG_PLACE_MAX])
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

struct config_route *config_routes_add_route(struct config *c, struct slice name, size_t line)
{
    if (c->n_routes == CONFIG_SERVERS_MAX)
        return NULL;
    c->routes = mem_array(c->routes, c->n_routes + 1, sizeof(*c->routes));
    c->routes[c->n_routes] = (struct config_route){.name = mem_dup_slice(name), .line = line};
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
                          s->n_pods == CONFIG_PODS_MAX ? "is one too many: at most 4096 in a list"
                                                       : "is given twice");
        mem_free(authority);
        return;
    }
    if ((s->n_pods & (s->n_pods - 1)) == 0)
        s->pods = mem_array(s->pods, s->n_pods == 0 ? 1 : s->n_pods * 2, sizeof(*s->pods));
    s->pods[s->n_pods++] = authority;
}

void config_routes_add_pods(struct config_server *s, struct slice list, struct config_place at,
                            struct config_report *report)
{
    char place[CONFIG_PLACE_MAX];

    config_routes_place(at, place);
    for (struct slice item = next_item(&list); item.n > 0; item = next_item(&list))
        add_pod(s, item, place, report);
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
    struct config_route *route;
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
    route->target = mem_dup_slice(model);
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
    config_routes_place((struct config_place){line == 0 || file == NULL ? BACKENDS : file, line}, out);
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
            const struct config_route *a = &c->routes[j], *b = &c->routes[i];

            if (strcmp(a->model, b->model) == 0)
                report_twice("a route for model", b->model, file, a->line, b->line, report);
            else if (strcmp(a->name, b->name) == 0)
                report_twice("model-route", b->name, file, a->line, b->line, report);
            else
                continue;
            break;
        }
    }
}

static void report_target(const struct config *c, const struct config_route *r, const char *file,
                          struct config_report *report)
{
    struct nearest nearest;
    char place[CONFIG_PLACE_MAX];

    place_of(file, r->target_line, place);
    nearest_start(&nearest, slice_of(r->target));
    for (size_t i = 0; i < c->n_servers; i++)
        nearest_try(&nearest, slice_of(c->servers[i].name));
    config_report_add(report, true, "%s: [model-route %.80s]: target \"%.80s\" is no model-server%s%s%s",
                      place, r->name, r->target,
                      c->n_servers == 0 ? ": there is none" : "; the nearest is \"", nearest.best,
                      c->n_servers == 0 ? "" : "\"");
}

void config_routes_resolve(struct config *c, const char *file, struct config_report *report)
{
    check_servers(c, file, report);
    check_routes(c, file, report);
    for (size_t i = 0; i < c->n_routes; i++) {
        struct config_route *r = &c->routes[i];

        if (r->target == NULL) /* reported when its section was read */
            continue;
        r->server = 0;
        while (r->server < c->n_servers && strcmp(c->servers[r->server].name, r->target) != 0)
            r->server++;
        if (r->server == c->n_servers)
            report_target(c, r, file, report);
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
    }
    for (size_t i = 0; i < c->n_routes; i++) {
        mem_free(c->routes[i].name);
        mem_free(c->routes[i].model);
        mem_free(c->routes[i].target);
    }
    mem_free(c->servers);
    mem_free(c->routes);
}
