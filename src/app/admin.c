/* Two small listeners, GET only. Each has its own clients, so that a full inference listener never hides the
 * metrics. */
#include "admin.h"

#include <unistd.h>

#include "collect.h"
#include "dump.h"
#include "headers.h"
#include "openai.h"
#include "reply.h"

#define ADMIN_MAX_CLIENTS 64
#define ADMIN_PAGE_MAX    (64 * 1024 * 1024)
#define ADMIN_DUMP_PREFIX "/debug/config_dump/"

static struct server *admin_server(const struct client *c)
{
    return c->arg;
}

static void admin_reply(struct client *c, unsigned status, const char *type, struct slice body)
{
    const bool head_only = c->head != NULL && slice_eq(http1_method(c->head), SLICE("HEAD"));
    const struct reply r = {.status = status, .content_type = type, .body = body, .head_only = head_only};

    client_end(c, reply_send(c, &r));
}

static void admin_error(struct client *c, unsigned status, const char *message)
{
    struct buf b;

    buf_init(&b, 4096);
    if (openai_error(&b, slice_of(message), "invalid_request_error",
                     status == 405 ? "method_not_allowed" : "path_not_found"))
        admin_reply(c, status, "application/json", buf_slice(&b));
    else
        client_end(c, false);
    buf_free(&b);
}

static bool admin_check_method(struct client *c)
{
    if (slice_eq(http1_method(c->head), SLICE("GET")) || slice_eq(http1_method(c->head), SLICE("HEAD")))
        return true;
    admin_error(c, 405, "method not allowed here: use GET");
    return false;
}

static bool admin_on_metrics_head(struct client *c)
{
    struct buf page;

    if (!admin_check_method(c))
        return false;
    if (!slice_eq(headers_path(http1_target(c->head)), SLICE("/metrics"))) {
        admin_error(c, 404, "path not found: this port serves /metrics");
        return false;
    }
    buf_init(&page, ADMIN_PAGE_MAX);
    collect_metrics(admin_server(c));
    if (metrics_render(&page))
        admin_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", buf_slice(&page));
    else
        admin_error(c, 500, "the metrics page is too large");
    buf_free(&page);
    return false;
}

static bool admin_on_debug_head(struct client *c)
{
    const struct slice path = headers_path(http1_target(c->head));
    const size_t prefix = sizeof ADMIN_DUMP_PREFIX - 1;
    struct buf page;

    if (!admin_check_method(c))
        return false;
    buf_init(&page, ADMIN_PAGE_MAX);
    if (slice_starts(path, SLICE(ADMIN_DUMP_PREFIX)) &&
        dump_render(admin_server(c), (struct slice){path.p + prefix, path.n - prefix}, &page))
        admin_reply(c, 200, "application/json", buf_slice(&page));
    else
        admin_error(c, 404,
                    "path not found: this port serves " ADMIN_DUMP_PREFIX
                    "{config,modelroutes,modelservers,pods,queues,requests,kubernetes}");
    buf_free(&page);
    return false;
}

static void admin_on_request(struct client *c)
{
    client_end(c, false); /* never reached: every head is answered */
}

static void admin_on_refuse(struct client *c, enum outcome o, const char *why)
{
    const struct reply r = {
        .status = outcome_info(o)->status, .content_type = "text/plain", .body = slice_of(why)};

    client_end(c, reply_send(c, &r));
}

static void admin_on_gone(struct client *c, enum client_loss loss)
{
    (void)c, (void)loss;
}

static void admin_on_drained(struct client *c)
{
    (void)c;
}

static void admin_on_closed(struct client *c)
{
    list_del(&c->link);
    admin_server(c)->n_admin_clients--;
}

static const struct client_ops admin_metrics_ops = {admin_on_metrics_head, admin_on_request, admin_on_refuse,
                                                    admin_on_gone,         admin_on_drained, admin_on_closed};
static const struct client_ops admin_debug_ops = {admin_on_debug_head, admin_on_request, admin_on_refuse,
                                                  admin_on_gone,       admin_on_drained, admin_on_closed};

/* More than a few connections here are a mistake of somebody's: they are closed, not queued. */
static void admin_accept(struct server *s, int fd, const struct sockaddr *from, const struct client_ops *ops)
{
    struct client *c;

    if (s->n_admin_clients >= ADMIN_MAX_CLIENTS) {
        close(fd);
        return;
    }
    c = client_new(s->loop, fd, from, &s->admin_rules, ops, s);
    list_push_back(&s->admin_clients, &c->link);
    s->n_admin_clients++;
}

void admin_on_accept_metrics(struct listener *l, int fd, const struct sockaddr *from)
{
    admin_accept(l->arg, fd, from, &admin_metrics_ops);
}

void admin_on_accept_debug(struct listener *l, int fd, const struct sockaddr *from)
{
    admin_accept(l->arg, fd, from, &admin_debug_ops);
}
