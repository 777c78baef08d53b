/* The inference listener's routes. Health checks leave no trace in the access log; everything else becomes a
 * request. */
#include "front.h"

#include <stdlib.h>

#include "cors.h"
#include "headers.h"
#include "mem.h"
#include "reply.h"
#include "request.h"

#define FRONT_MODEL_LIST_MAX (4 * 1024 * 1024)
#define FRONT_SERVED_MAX     10000 /* names, with the public ones */

static struct server *front_server(const struct client *c)
{
    return c->arg;
}

static bool front_is(const struct http1_head *h, struct slice method)
{
    return slice_eq(http1_method(h), method);
}

static bool front_is_get(const struct http1_head *h)
{
    return front_is(h, SLICE("GET")) || front_is(h, SLICE("HEAD"));
}

/* /healthz and /readyz: never queued, never logged. */
static void front_probe(struct client *c, unsigned status, const char *body)
{
    char id[HEADERS_REQUEST_ID_MAX + 1];
    const size_t id_n = headers_request_id(http1_find(c->head, HEADER_X_REQUEST_ID), id);
    const struct reply r = {.status = status,
                            .content_type = "application/json; charset=utf-8",
                            .body = slice_of(body),
                            .request_id = {id, id_n},
                            .head_only = front_is(c->head, SLICE("HEAD"))};

    client_end(c, reply_send(c, &r));
}

static bool front_health(struct client *c)
{
    const struct slice path = headers_path(http1_target(c->head));

    if (slice_eq(path, SLICE("/healthz"))) {
        front_probe(c, 200, "{\"message\":\"ok\"}");
        return true;
    }
    if (slice_eq(path, SLICE("/readyz"))) {
        const bool ready = server_ready(front_server(c));

        front_probe(c, ready ? 200 : 503,
                    ready ? "{\"message\":\"router is ready\"}" : "{\"message\":\"router is not ready\"}");
        return true;
    }
    return false;
}

static int front_compare_names(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    const int order = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

/* Sorted names: each once. Returns how many. */
static size_t front_drop_doubles(struct slice *names, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || !slice_eq(names[i], names[kept - 1]))
            names[kept++] = names[i];
    }
    return kept;
}

/* What the pods list, as read last: nobody waits for a pod here. */
static void front_add_served(const struct topology *t, struct slice **names, size_t *n)
{
    for (size_t i = 0; i < t->n_pods; i++) {
        struct slice rest = buf_slice(&t->pods[i]->served);

        while (rest.n > 0 && *n < FRONT_SERVED_MAX) {
            *names = mem_array(*names, *n + 1, sizeof **names);
            (*names)[(*n)++] = slice_cut(&rest, '\n');
        }
    }
}

/* The public names, sorted, and what the pods list where that is wanted. To be freed. */
static struct slice *front_model_names(const struct server *s, size_t *n)
{
    const struct topology *t = &s->topology;
    struct slice *names = mem_array(NULL, t->table.n_names + 1, sizeof *names);

    *n = t->table.n_names;
    for (size_t i = 0; i < *n; i++)
        names[i] = slice_of(t->table.names[i]->text);
    if (s->config->models_from_pods)
        front_add_served(t, &names, n);
    qsort(names, *n, sizeof *names, front_compare_names);
    *n = front_drop_doubles(names, *n);
    return names;
}

static void front_models(struct request *r)
{
    size_t n;
    struct slice *names = front_model_names(r->server, &n);
    char *fields = request_own_fields(r, "");
    struct buf body;

    buf_init(&body, FRONT_MODEL_LIST_MAX);
    if (openai_model_list(&body, names, n)) {
        const struct reply reply = {200,    "application/json", buf_slice(&body), request_id(r),
                                    fields, r->head_only};

        r->status = 200;
        if (!reply_send(r->client, &reply))
            r->client->conn.broken = true;
    }
    buf_free(&body);
    mem_free(fields);
    mem_free(names);
    request_finish(r, OUTCOME_LOCAL, NULL);
}

/* Asked by a browser before the request of a page. Without our fields it will not send that. */
static void front_preflight(struct request *r, const struct http1_head *h)
{
    char *more = cors_preflight_fields(h), *fields = request_own_fields(r, more);
    const struct reply reply = {.status = 204, .request_id = request_id(r), .extra = fields};

    r->status = 204;
    if (!reply_send(r->client, &reply))
        r->client->conn.broken = true;
    mem_free(more);
    mem_free(fields);
    request_finish(r, OUTCOME_LOCAL, NULL);
}

static void front_options(struct request *r, const struct http1_head *h)
{
    if (r->server->config->n_cors_origins == 0)
        request_finish(r, OUTCOME_METHOD_NOT_ALLOWED,
                       "OPTIONS is for CORS preflights, and CORS_ALLOW_ORIGINS is empty");
    else if (r->cors == NULL)
        request_finish(r, OUTCOME_METHOD_NOT_ALLOWED,
                       "OPTIONS is for CORS preflights, and this origin is not in CORS_ALLOW_ORIGINS");
    else
        front_preflight(r, h);
}

/* What can be answered on the head alone. True: it was. */
static bool front_answer_early(struct request *r, const struct http1_head *h)
{
    if (!slice_starts(request_path(r), SLICE("/v1/"))) {
        request_finish(r, OUTCOME_PATH_NOT_FOUND, NULL);
        return true;
    }
    if (front_is(h, SLICE("OPTIONS"))) {
        front_options(r, h);
        return true;
    }
    return false;
}

static bool front_on_head(struct client *c)
{
    struct request *r;

    if (front_is_get(c->head) && front_health(c))
        return false;
    r = request_new(front_server(c), c);
    return !front_answer_early(r, c->head) && request_take_head(r);
}

static bool front_wants_models(const struct request *r)
{
    return (r->head_only || slice_eq(request_method(r), SLICE("GET"))) &&
           slice_eq(request_path(r), SLICE("/v1/models"));
}

static void front_on_request(struct client *c)
{
    struct request *r = c->request;

    if (front_wants_models(r))
        front_models(r);
    else
        request_ready(r);
}

static void front_on_refuse(struct client *c, enum outcome o, const char *why)
{
    struct request *r = c->request;

    if (r == NULL)
        r = request_new(front_server(c), c);
    request_finish(r, o, why);
}

static void front_on_gone(struct client *c, enum client_loss loss)
{
    if (c->request != NULL)
        request_client_gone(c->request, loss);
}

static void front_on_drained(struct client *c)
{
    if (c->request != NULL)
        request_client_drained(c->request);
}

static void front_on_closed(struct client *c)
{
    struct server *s = front_server(c);

    list_del(&c->link);
    s->n_clients--;
    if (!s->drain_delay_over)
        listen_pause(&s->inference, s->n_clients >= s->max_clients);
    server_check_idle(s);
}

static const struct client_ops front_client_ops = {front_on_head, front_on_request, front_on_refuse,
                                                   front_on_gone, front_on_drained, front_on_closed};

void front_on_accept(struct listener *l, int fd, const struct sockaddr *from)
{
    struct server *s = l->arg;
    struct client *c = client_new(s->loop, fd, from, &s->client_rules, &front_client_ops, s);

    if (s->certificate.context != NULL)
        client_secure(c, s->certificate.context);
    list_push_back(&s->clients, &c->link);
    s->n_clients++;
    listen_pause(l, s->n_clients >= s->max_clients);
}
