/* The life of one request. Each event moves it one state on (request_enter knows the allowed moves) or ends
 * it (request_finish). */
#include "request.h"

#include <errno.h>
#include <stdlib.h>

#include "cluster.h"
#include "cors.h"
#include "headers.h"
#include "mem.h"
#include "metrics.h"
#include "multipart.h"
#include "prompt.h"
#include "reply.h"
#include "report.h"

#define REQUEST_ERROR_BODY_MAX    (8 * 1024)
#define REQUEST_RETRY_AFTER_MAX_S 30
/* A body from here on is sent before the next one is read where that changes nobody's turn: at the end of the
 * turn it would have left the cache. */
#define REQUEST_BODY_AT_ONCE (16 * 1024)

/* What most requests do not need, or no chunk does, is not compiled into what all go through. */
#define REQUEST_APART __attribute__((noinline))

static void request_start_attempt(struct request *r, bool fresh);

/* ---- states ---- */

const char *request_state_name(enum request_state s)
{
    static const char *const names[REQUEST_STATES] = {"READ", "QUEUED", "CONNECT", "SEND",
                                                      "HEAD", "STREAM", "DONE"};

    return names[s];
}

/* The allowed moves. This table is the retry rule: back to QUEUED or CONNECT only while no byte of an answer
 * has come, and from STREAM only to the end. */
static bool request_may(enum request_state from, enum request_state to)
{
#define TO(s) (1u << REQUEST_##s)
    static const unsigned moves[REQUEST_STATES] = {
        [REQUEST_READ] = TO(QUEUED) | TO(DONE),
        [REQUEST_QUEUED] = TO(CONNECT) | TO(SEND) | TO(HEAD) | TO(DONE),
        [REQUEST_CONNECT] = TO(CONNECT) | TO(SEND) | TO(HEAD) | TO(QUEUED) | TO(DONE),
        [REQUEST_SEND] = TO(HEAD) | TO(STREAM) | TO(CONNECT) | TO(DONE),
        [REQUEST_HEAD] = TO(STREAM) | TO(CONNECT) | TO(DONE),
        [REQUEST_STREAM] = TO(DONE),
    };
#undef TO
    return (moves[from] & (1u << to)) != 0;
}

static void request_enter(struct request *r, enum request_state to)
{
    if (!request_may(r->state, to)) {
        log_error("internal error: a request made a move that is not allowed",
                  LOG_SLICE("req", request_id(r)), LOG_STR("from", request_state_name(r->state)),
                  LOG_STR("to", request_state_name(to)));
        abort();
    }
    r->state = to;
}

static int64_t request_now(const struct request *r)
{
    return loop_now_us(r->server->loop);
}

/* ---- what the queue says ---- */

void request_promoted(struct boostq_item *item, void *arg)
{
    const struct request *r = request_of(item);

    (void)arg;
    REPORT_QUEUE(r, "promoted while waiting");
}

/* ---- beginning ---- */

/* Of a list of names the first header with a value. */
static struct slice request_find_header(const struct http1_head *head, const struct slice *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct slice value = http1_find_name(head, names[i]);

        if (value.n > 0)
            return value;
    }
    return (struct slice){NULL, 0};
}

/* What the router cannot look into is refused in plain words instead of guessed at. Any other Content-Type is
 * taken for JSON, as engines do: curl -d says it sends a form. */
static const char *request_why_unsupported(const struct http1_head *head)
{
    const struct slice type = http1_find(head, HEADER_CONTENT_TYPE),
                       encoding = http1_find(head, HEADER_CONTENT_ENCODING);

    if (type.n >= 10 && slice_ieq((struct slice){type.p, 10}, SLICE("multipart/")) &&
        !multipart_is_form(type))
        return "multipart bodies other than multipart/form-data are not supported";
    if (encoding.n > 0 && !slice_ieq(encoding, SLICE("identity")))
        return "compressed request bodies are not supported: send the JSON as it is";
    return NULL;
}

/* Copies s behind the text that there is and returns its length; *n is the length of it all. */
static uint32_t request_put_text(struct request *r, uint32_t *n, struct slice s)
{
    if (s.n > 0)
        memcpy(r->text + *n, s.p, s.n);
    *n += (uint32_t)s.n;
    return (uint32_t)s.n;
}

/* The path is a part of the target, unless that has none: then it is "/". */
static void request_put_target(struct request *r, uint32_t *n, struct slice target)
{
    struct slice path;

    r->target_at = *n;
    r->target_n = request_put_text(r, n, target);
    path = target.n > 0 ? headers_path(request_target(r)) : target;
    r->path_n = (uint32_t)path.n;
    r->path_at = *n;
    if (path.p >= r->text && path.p < r->text + *n)
        r->path_at = (uint32_t)(path.p - r->text);
    else
        (void)request_put_text(r, n, path);
}

/* head: as far as it was read; NULL when nothing of it is known. */
static struct request *request_from_head(const struct config *c, const struct http1_head *head)
{
    const struct slice none = {NULL, 0};
    const bool line = head != NULL && head->target_n > 0;
    const struct slice method = line ? http1_method(head) : none, target = line ? http1_target(head) : none;
    const struct slice session =
        line ? request_find_header(head, c->session_headers, c->n_session_headers) : none;
    const struct slice user = line && c->enable_fairness_scheduling
                                  ? request_find_header(head, c->user_headers, c->n_user_headers)
                                  : none;
    char id[HEADERS_REQUEST_ID_MAX + 1];
    const size_t id_n = headers_request_id(line ? http1_find(head, HEADER_X_REQUEST_ID) : none, id);
    const size_t text_n = id_n + method.n + session.n + user.n + target.n + (sizeof "/" - 1);
    struct request *r = mem_alloc(sizeof *r + text_n);
    uint32_t n = 0;

    memset(r, 0, sizeof *r);
    r->id_n = request_put_text(r, &n, (struct slice){id, id_n});
    r->method_n = request_put_text(r, &n, method);
    r->session_n = request_put_text(r, &n, session);
    r->user_n = request_put_text(r, &n, user);
    request_put_target(r, &n, target);
    r->plain = log_is_plain((struct slice){r->text, r->path_at + r->path_n});
    r->minor = line ? (uint8_t)head->minor : 1;
    r->head_only = slice_eq(method, SLICE("HEAD"));
    return r;
}

struct request *request_new(struct server *s, struct client *c)
{
    struct request *r = request_from_head(s->config, c->head);

    r->server = s;
    r->client = c;
    c->request = r;
    if (s->config->n_cors_origins > 0 && c->head != NULL)
        r->cors = cors_fields(s->config, http1_find_name(c->head, SLICE("Origin")));
    r->received_us = c->first_byte_us;
    s->n_requests++;
    return r;
}

/* The part of a request that is for the pods. False: refused and over. */
bool request_take_head(struct request *r)
{
    const struct headers_request h = {.head = r->client->head,
                                      .request_id = request_id(r),
                                      .peer_ip = client_address(r->client),
                                      .proto = client_is_secure(r->client) ? SLICE("https") : SLICE("http"),
                                      .readable_answer = r->server->config->inject_stream_usage};
    struct buf *head = &r->server->head;
    struct request_outgoing *o;
    size_t line_bytes, front;

    buf_clear(head);
    if (!headers_request_block(head, &h, &line_bytes)) {
        request_finish(r, OUTCOME_HEAD_TOO_LARGE,
                       "the request head with the router's own fields is over MAX_HEADER_BYTES");
        return false;
    }
    front = sizeof *o + HEADERS_POD_MAX + head->len;
    o = r->out = client_place_body(r->client, front);
    memset(o, 0, sizeof *o);
    o->place = r->client->place;
    o->line = (o->place != NULL ? o->place : (char *)o + front) - head->len;
    memcpy(o->line, buf_slice(head).p, head->len);
    o->line_n = line_bytes;
    o->fields = o->line + line_bytes;
    o->fields_n = head->len - line_bytes;
    o->request = r;
    o->admit.queue.session = request_session(r);
    o->unsupported = request_why_unsupported(h.head);
    if (multipart_is_form(http1_find(h.head, HEADER_CONTENT_TYPE)))
        o->boundary = mem_dup_slice(multipart_boundary(http1_find(h.head, HEADER_CONTENT_TYPE)));
    return true;
}

/* The route has sessions of its own: this is the request's from now on. */
static void request_set_session(struct request *r, struct slice session)
{
    char *copy = mem_dup_slice(session);

    mem_free(r->session);
    r->session = copy;
    r->session_n = (uint32_t)session.n;
    r->plain = r->plain && log_is_plain(session);
    r->out->admit.queue.session = request_session(r);
}

/* Away from the targets that it could not reach. */
static struct topology_route *request_decide(struct request *r, struct slice model, bool *known)
{
    const struct request_outgoing *o = r->out;
    struct slice query = request_target(r);
    struct route_query q = {.path = request_path(r),
                            .fields = {o->fields, o->fields_n},
                            .session = request_session(r),
                            .avoid = o->failed,
                            .n_avoid = o->n_failed};
    struct topology_route *route;

    (void)slice_cut(&query, '?');
    q.query = query;
    route = topology_decide(&r->server->topology, model, &q, known);
    if (q.session.p != request_session(r).p)
        request_set_session(r, q.session);
    return route;
}

/* A form's field; {NULL, 0}: none. */
static struct slice request_form_field(const struct request *r, struct slice name, const char **error)
{
    const struct slice body = {r->out->body, r->body_n};

    if (r->out->boundary[0] == '\0') {
        *error = "the Content-Type of the multipart body has no boundary";
        return (struct slice){NULL, 0};
    }
    return multipart_field(body, slice_of(r->out->boundary), name, error);
}

/* What openai_inspect finds in JSON. */
static enum openai_verdict request_inspect_form(const struct request *r, struct openai_body *found)
{
    struct slice model;

    memset(found, 0, sizeof *found);
    model = request_form_field(r, SLICE("model"), &found->error);
    if (found->error != NULL)
        return OPENAI_NO_MODEL;
    found->error = model.p == NULL ? "the multipart form must have a field \"model\""
                                   : "the form's \"model\" is blank or longer than 1024 bytes";
    if (slice_trim(model).n == 0 || model.n > OPENAI_MODEL_MAX)
        return model.p == NULL ? OPENAI_NO_MODEL : OPENAI_BAD_MODEL;
    memcpy(found->model, model.p, model.n);
    found->model_n = model.n;
    found->model_raw = model;
    found->error = NULL;
    return OPENAI_OK;
}

static enum openai_verdict request_inspect(const struct request *r, struct openai_body *found)
{
    static_assert(CLIENT_BODY_SPARE >= OPENAI_SPARE, "openai_inspect writes behind the body");

    return r->out->boundary != NULL ? request_inspect_form(r, found)
                                    : openai_inspect(r->out->body, r->body_n, found);
}

/* As long as a header may be; what is longer counts as far as that. */
static void request_set_user(struct request *r, struct slice user)
{
    const size_t max = (size_t)r->server->config->max_header_bytes;

    if (user.n == 0)
        return;
    user.n = user.n < max ? user.n : max;
    r->user = mem_dup_slice(user);
    r->user_n = (uint32_t)user.n;
    r->plain = r->plain && log_is_plain(user);
}

static void request_find_form_user(struct request *r)
{
    const char *error;
    const struct slice user = request_form_field(r, SLICE("user"), &error);

    if (r->user_n == 0)
        request_set_user(r, user);
}

/* The header names the user, else the body does. */
static void request_find_user(struct request *r, const struct openai_body *found)
{
    struct buf user;

    if (r->user_n > 0 || found->user.n == 0)
        return;
    buf_init(&user, (size_t)r->server->config->max_header_bytes);
    openai_decode_text(&user, found->user);
    request_set_user(r, buf_slice(&user));
    buf_free(&user);
}

/* Only these two APIs have the option. */
static void request_want_usage(struct request *r, const struct openai_body *found)
{
    const struct slice path = request_path(r);

    if (slice_eq(path, SLICE("/v1/chat/completions")) || slice_eq(path, SLICE("/v1/completions")))
        (void)openai_want_usage((struct slice){r->out->body, r->body_n}, found, &r->out->want_usage);
}

/* Nobody serves it; or a route of the cluster does, which has not been listed yet. */
static void request_refuse_model(struct request *r, bool known)
{
    const struct cluster *c = r->server->cluster;

    if (c != NULL && !cluster_settled(c))
        request_finish(r, OUTCOME_NOT_SYNCED, NULL);
    else
        request_finish(r, OUTCOME_ROUTE_NOT_FOUND,
                       known ? "route not found: no rule of the model's routes fits this request" : NULL);
}

/* True: r->route is set; else the request has ended. */
static bool request_find_model(struct request *r)
{
    static const char *const texts[] = {
        [OPENAI_NOT_JSON] = NULL,
        [OPENAI_NOT_OBJECT] = "the request body must be a JSON object",
        [OPENAI_NO_MODEL] = "the request body must have a \"model\"",
        [OPENAI_BAD_MODEL] = "\"model\" must be a string that is not blank",
    };
    struct openai_body found;
    const enum openai_verdict v = request_inspect(r, &found);
    bool known;

    if (v == OPENAI_NOT_JSON || v == OPENAI_NOT_OBJECT) {
        request_finish(r, OUTCOME_BAD_JSON, texts[v] != NULL ? texts[v] : found.error);
        return false;
    }
    if (v != OPENAI_OK) {
        request_finish(r, OUTCOME_NO_MODEL, found.error != NULL ? found.error : texts[v]);
        return false;
    }
    r->out->model_at = (size_t)(found.model_raw.p - r->out->body);
    r->out->model_n = found.model_raw.n;
    r->out->prompt = found.prompt;
    r->route = topology_only(&r->server->topology, (struct slice){found.model, found.model_n});
    if (r->route == NULL)
        r->route = request_decide(r, (struct slice){found.model, found.model_n}, &known);
    if (r->route == NULL) {
        r->model_name = mem_dup_slice((struct slice){found.model, found.model_n});
        request_refuse_model(r, known);
        return false;
    }
    if (r->server->config->inject_stream_usage)
        request_want_usage(r, &found);
    if (r->server->config->enable_fairness_scheduling && r->out->boundary != NULL)
        request_find_form_user(r);
    else if (r->server->config->enable_fairness_scheduling)
        request_find_user(r, &found);
    (void)topology_ref(r->route);
    metrics_add(r->route->active_downstream, 1);
    return true;
}

static int64_t request_count_prompt(const struct request *r)
{
    return prompt_tokens(&r->out->prompt, r->out->body + r->body_n);
}

/* For the queue that is fair between users. */
static void request_set_share(struct request *r)
{
    struct fairq_item *item = &r->out->admit.queue.fair;

    item->user = request_user(r);
    item->input_tokens = request_count_prompt(r);
}

static void request_look_at_prompt(struct request *r)
{
    struct request_outgoing *o = r->out;

    if (o->prefix == NULL)
        o->admit.prefix = o->prefix = prefix_chain_of(&o->prompt, o->body + r->body_n);
}

/* Who came in this turn of the loop and can go at once does not count: only then it is looked for. */
static bool request_queue_is_full(const struct request *r)
{
    const size_t *n = &r->route->model->q.name->n, max = (size_t)r->server->config->queue_max_requests;

    if (*n >= max)
        sched_settle(&r->server->sched);
    return *n >= max;
}

static void request_enqueue(struct request *r)
{
    struct model *m = r->route->model;

    if (m->n_usable == 0) {
        request_finish(r, OUTCOME_NO_POD, NULL);
        return;
    }
    if (request_queue_is_full(r)) {
        request_finish(r, OUTCOME_QUEUE_FULL, NULL);
        return;
    }
    request_enter(r, REQUEST_QUEUED);
    r->queued_us = request_now(r);
    m->queued_bytes += r->body_n;
    if (m->q.fair != NULL)
        request_set_share(r);
    if (m->wants_prefix)
        request_look_at_prompt(r);
    sched_enqueue(&r->server->sched, m, &r->out->admit);
    REPORT_QUEUE(r, "queued");
    if (r->body_n >= REQUEST_BODY_AT_ONCE && sched_order_is_free(&r->server->sched, m))
        sched_settle(&r->server->sched);
}

void request_ready(struct request *r)
{
    r->body_us = request_now(r);
    r->out->body = client_take_body(r->client, &r->body_n);
    if (r->out->unsupported != NULL)
        request_finish(r, OUTCOME_UNSUPPORTED, r->out->unsupported);
    else if (r->body_n == 0)
        request_finish(r, OUTCOME_BAD_JSON, "the request has no body: send a JSON object with a \"model\"");
    else if (request_find_model(r))
        request_enqueue(r);
}

/* ---- leaving the queue ---- */

/* Whether the session meets its pod; its next request comes here. */
REQUEST_APART static void request_stick(struct request *r)
{
    struct model *m = r->route->model;
    const struct model_target *warm = r->warm_pod_id != 0 ? model_target_of(m, r->warm_pod_id) : NULL;
    const bool waited = request_now(r) - r->queued_us >= US_PER_MS;

    if (r->session_n == 0)
        return;
    if (r->warm_pod_id == 0)
        r->sticky = "new";
    else if (r->pod->id == r->warm_pod_id)
        r->sticky = waited ? "waited" : "hit";
    else
        r->sticky = warm != NULL && warm->usable ? "spill" : "gone";
    model_pin(m, request_session(r), r->pod->id, request_now(r));
}

static void request_take_pod(struct request *r, struct pod *pod)
{
    struct fairq *fair = r->route->model->q.fair;

    r->pod = pod_ref(pod);
    r->route->in_flight++;
    if (r->route->says_sticky)
        request_stick(r);
    if (fair != NULL)
        fairq_start(fair, &r->run, &r->out->admit.queue.fair, request_now(r));
}

static void request_left_queue(struct request *r)
{
    const struct boostq_item *item = &r->out->admit.queue;
    struct topology_route *route = r->route;
    const int64_t wait_us = request_now(r) - r->queued_us;

    r->boosted = item->boosted;
    r->overtaken = item->overtaken;
    r->warm_pod_id = item->warm_pod_id;
    r->session_key = item->key;
    route->model->queued_bytes -= r->body_n;
    route->recent_wait_us += (wait_us - route->recent_wait_us) / 8;
    if (route->queue_duration != NULL)
        metrics_observe(route->queue_duration, (double)wait_us / (double)US_PER_S);
}

static void request_on_admitted(struct admit_item *item, struct pod *pod)
{
    struct request *r = request_of(&item->queue);

    request_left_queue(r);
    request_take_pod(r, pod);
    if (r->admitted_us == 0)
        r->admitted_us = request_now(r);
    if (r->server->config->enable_session_boost && item->queue.boosted)
        metrics_observe(r->route->overtakes, item->queue.overtaken);
    REPORT_QUEUE(r, "dequeued");
    request_start_attempt(r, false);
}

/* Of what waits in a long queue nothing is in the cache any more. */
static void request_load(const void *p, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes; at += 64)
        __builtin_prefetch((const char *)p + at);
}

/* While another one is being sent. */
static void request_on_upcoming(const struct admit_item *item)
{
    const struct request *r = request_of(&item->queue);
    const struct request_outgoing *o = CONTAINER_OF(item, const struct request_outgoing, admit);

    request_load(o, sizeof *o);
    request_load(o->line, o->line_n + o->fields_n);
    request_load(r, sizeof *r + 64);
    request_load(o->body, r->body_n < 1024 ? r->body_n : 1024);
    request_load(r->client, 320);
}

static void request_on_expired(struct admit_item *item)
{
    struct request *r = request_of(&item->queue);

    request_left_queue(r);
    REPORT_QUEUE(r, "timed out in the queue");
    request_finish(r, OUTCOME_QUEUE_TIMEOUT, NULL);
}

static bool request_has_failed_on(const struct request *r, const struct topology_route *route)
{
    for (size_t i = 0; i < r->out->n_failed; i++) {
        if (r->out->failed[i] == route)
            return true;
    }
    return false;
}

/* Into the queue of another target, or of the same one anew; the wait limit runs on. False: there is none. */
static bool request_move(struct request *r)
{
    struct topology_route *from = r->route, *to;
    bool known;

    to = request_decide(r, slice_of(from->model_name), &known);
    if (to == NULL || request_has_failed_on(r, to))
        return false;
    metrics_add(from->active_downstream, -1);
    metrics_add(to->active_downstream, 1);
    r->route = topology_ref(to);
    topology_unref(&r->server->topology, from);
    to->model->queued_bytes += r->body_n;
    if (to->model->wants_prefix)
        request_look_at_prompt(r);
    sched_move(&r->server->sched, to->model, &r->out->admit, r->queued_us);
    REPORT_QUEUE(r, "moved to the queue of another target");
    return true;
}

static void request_on_vanished(struct admit_item *item)
{
    struct request *r = request_of(&item->queue);

    request_left_queue(r);
    if (request_move(r))
        return;
    REPORT_QUEUE(r, "abandoned, its model was removed");
    request_finish(r, OUTCOME_ROUTE_NOT_FOUND,
                   "route not found: the model was removed while the request waited");
}

const struct sched_ops request_sched_ops = {request_on_admitted, request_on_upcoming, request_on_expired,
                                            request_on_vanished};

/* ---- attempts ---- */

/* Broken off before the answer began, and not by the pod, which has worked on it: nothing else is known. */
static bool request_was_work(const struct request *r)
{
    return r->connected && r->upstream_status == 0 && r->state == REQUEST_DONE &&
           (r->outcome == OUTCOME_CLIENT_GONE || r->outcome == OUTCOME_POD_HEAD_TIMEOUT);
}

/* What it cost its user: a stream without usage is taken for a token in each event. */
REQUEST_APART static void request_charge(struct request *r)
{
    struct request_tokens none = {.input = request_was_work(r) ? r->run.input_tokens : 0};
    struct request_tokens *t = r->tokens != NULL ? r->tokens : &none;
    const int64_t output = t->output > 0 ? t->output : (int64_t)t->usage.events;

    fairq_end(r->route->model->q.fair, &r->run, t->input, output, request_now(r));
}

static void request_give_back_slot(struct request *r)
{
    struct pod *pod = r->pod;

    if (pod == NULL)
        return;
    r->pod = NULL;
    r->route->in_flight--;
    if (r->run.user != NULL)
        request_charge(r);
    sched_release(&r->server->sched, pod, r->connected);
    pod_unref(pod);
    topology_pod_idle(&r->server->topology);
}

/* No pod of its target could be reached: to the next target, each at most once. */
static bool request_next_target(struct request *r)
{
    struct request_outgoing *o = r->out;

    o->failed = mem_array(o->failed, o->n_failed + 1, sizeof(*o->failed));
    o->failed[o->n_failed++] = topology_ref(r->route);
    return request_move(r);
}

/* No connection to the pod could be made: the one place that decides where the request goes now. */
static void request_next_pod(struct request *r, const char *why)
{
    struct pod *failed = pod_ref(r->pod), *next = NULL;
    enum admit_retry retry;

    log_warn("cannot connect to a pod", LOG_SLICE("req", request_id(r)),
             LOG_STR("model", r->route->model_name), LOG_STR("pod", failed->name),
             LOG_STR("state", request_state_name(r->state)), LOG_STR("error", why));
    topology_pod_connect_failed(&r->server->topology, failed);
    request_give_back_slot(r);
    retry = sched_retry(&r->server->sched, r->route->model, &r->out->admit, failed, &next);
    pod_unref(failed);
    switch (retry) {
    case ADMIT_RETRY_NOW:
        request_take_pod(r, next);
        request_start_attempt(r, false);
        break;
    case ADMIT_RETRY_QUEUED:
        request_enter(r, REQUEST_QUEUED);
        r->route->model->queued_bytes += r->body_n;
        REPORT_QUEUE(r, "queued again, its pod could not be reached");
        break;
    case ADMIT_RETRY_NONE:
        if (request_next_target(r))
            request_enter(r, REQUEST_QUEUED);
        else
            request_finish(r, OUTCOME_CONNECT_FAILED, NULL);
        break;
    }
}

/* ---- sending ---- */

/* One part more, or more of the last one, when that ends where p starts. */
static struct iovec *request_put_part(struct iovec *last, char *p, size_t n)
{
    if ((char *)last->iov_base + last->iov_len != p)
        *++last = (struct iovec){p, 0};
    last->iov_len += n;
    return last;
}

/* Puts the body from *at to the edit, and the edit's text; *at goes behind it. */
static struct iovec *request_put_edit(const struct request_outgoing *o, struct iovec *last, size_t *at,
                                      const struct openai_edit *e)
{
    if (e->text.n == 0)
        return last;
    last = request_put_part(last, o->body + *at, e->at - *at);
    last = request_put_part(last, (char *)(uintptr_t)e->text.p, e->text.n);
    *at = e->at + e->n;
    return last;
}

/* The model's value, where the pods know it by another name: a copy, anew for each attempt, as a reload may
 * replace the route's value at any time. */
static struct openai_edit request_rename(const struct request *r)
{
    struct request_outgoing *o = r->out;

    if (r->route->upstream_value == NULL)
        return (struct openai_edit){0, 0, {NULL, 0}};
    mem_free(o->model);
    o->model = mem_strdup(o->boundary != NULL ? r->route->upstream_model : r->route->upstream_value);
    return (struct openai_edit){o->model_at, o->model_n, slice_of(o->model)};
}

/* The head for this pod in one piece: its line goes where Host and length fit between that and the client's
 * fields. */
static struct iovec request_head(struct request_outgoing *o, struct slice pod_start, size_t length)
{
    char number[NUMBER_TEXT_MAX], *start, *line;
    const size_t number_n = headers_pod_length(number, length);

    start = o->fields - number_n - pod_start.n;
    line = memmove(start - o->line_n, o->line, o->line_n);
    memcpy(text_add(start, pod_start), number, number_n);
    o->line = line;
    return (struct iovec){line, (size_t)(o->fields + o->fields_n - line)};
}

/* The parts of the request for this pod: its head, body with the model's value replaced and the wish for
 * usage put in. Returns how many. */
static unsigned request_parts(struct request *r, struct iovec iov[CONN_BORROWED_MAX])
{
    struct request_outgoing *o = r->out;
    const struct openai_edit *want = &o->want_usage, rename = request_rename(r);
    const size_t length = r->body_n + want->text.n - want->n + rename.text.n - rename.n;
    struct iovec *last = iov;
    size_t at = 0;

    *last = request_head(o, r->pod->head_start, length);
    if (want->text.n + rename.text.n > 0) {
        last = request_put_edit(o, last, &at, want->at < rename.at ? want : &rename);
        last = request_put_edit(o, last, &at, want->at < rename.at ? &rename : want);
    }
    last = request_put_part(last, o->body + at, r->body_n - at);
    return (unsigned)(last + 1 - iov);
}

static void request_on_connected(void *arg)
{
    struct request *r = arg;

    r->connected = true;
    topology_pod_connected(&r->server->topology, r->pod);
    request_enter(r, conn_pending(&r->upstream->conn) > 0 ? REQUEST_SEND : REQUEST_HEAD);
}

static void request_on_sent(void *arg)
{
    struct request *r = arg;

    if (r->state == REQUEST_SEND)
        request_enter(r, REQUEST_HEAD);
}

static void request_drop_outgoing(struct request *r)
{
    struct request_outgoing *o = r->out;

    if (o == NULL)
        return;
    r->out = NULL;
    while (o->n_failed > 0)
        topology_unref(&r->server->topology, o->failed[--o->n_failed]);
    client_release_held(&r->server->client_rules, r->body_n);
    if (o->body != o->place)
        mem_free(o->body);
    mem_free(o->model);
    mem_free(o->prefix);
    mem_free(o->boundary);
    mem_free(o->failed);
    mem_free(o);
}

/* ---- the answer ---- */

static void request_expect_tokens(struct request *r, const struct http1_head *head)
{
    const struct slice encoding = http1_find(head, HEADER_CONTENT_ENCODING);
    struct request_tokens *t;

    if (head->status < 200 || head->status > 299 ||
        !(r->event_stream || headers_is_json(http1_find(head, HEADER_CONTENT_TYPE))))
        return;
    t = r->tokens = mem_zalloc(sizeof *t);
    t->readable = encoding.n == 0 || slice_ieq(encoding, SLICE("identity"));
    t->usage.stream = r->event_stream;
    t->usage.count_events = r->event_stream && t->readable && r->run.user != NULL;
    if (!t->readable || !r->event_stream || r->out == NULL || r->out->want_usage.text.n == 0)
        return;
    t->hide = mem_alloc(sizeof *t->hide);
    usage_hide_init(t->hide);
}

static void request_read_answer_head(struct request *r, const struct http1_head *head)
{
    r->upstream_status = r->status = (uint16_t)head->status;
    r->head_us = request_now(r);
    r->until_close = head->framing == HTTP1_UNTIL_CLOSE;
    r->event_stream = headers_is_event_stream(http1_find(head, HEADER_CONTENT_TYPE));
    if (r->server->config->count_tokens || r->out->want_usage.text.n > 0 || r->run.user != NULL)
        request_expect_tokens(r, head);
    request_enter(r, REQUEST_STREAM);
}

/* The pod's framing where the client can have it; else what its version allows. */
static enum http1_framing request_framing(const struct request *r, const struct http1_head *head)
{
    const bool hides = r->tokens != NULL && r->tokens->hide != NULL;

    if (head->framing == HTTP1_NO_BODY || (head->framing == HTTP1_SIZED && !hides))
        return head->framing;
    return r->minor >= 1 ? HTTP1_CHUNKED : HTTP1_UNTIL_CLOSE;
}

REQUEST_APART static bool request_answer_head(struct request *r, const struct http1_head *head,
                                              struct buf *out)
{
    const enum http1_framing framing = request_framing(r, head);
    const bool keep = client_may_keep(r->client, framing);
    const struct headers_response h = {
        .head = head,
        .request_id = request_id(r),
        .client_minor = r->minor,
        .keep_alive = keep,
        .framing = framing,
        .content_length = head->content_length,
        .has_length = framing == HTTP1_NO_BODY && http1_find(head, HEADER_CONTENT_LENGTH).p != NULL,
        .event_stream = r->event_stream,
        .own_cors = r->server->config->n_cors_origins > 0,
        .cors = slice_of(r->cors),
    };

    client_begin(r->client, framing, keep);
    return headers_response_block(out, &h);
}

/* Is the answer whole? Until-close framing cannot tell, but an event stream ends with [DONE]. */
static bool request_is_whole(const struct request *r)
{
    return !(r->until_close && r->event_stream) || openai_sse_done(&r->sse);
}

static void request_learn(struct request *r)
{
    if (r->first_byte_us == 0)
        return;
    model_learn(r->route->model, &(struct worth_turn){.body_bytes = r->body_n,
                                                      .has_warm_pod = r->warm_pod_id != 0,
                                                      .on_warm_pod = r->warm_pod_id == r->pod->id,
                                                      .first_us = r->first_byte_us - r->sent_us,
                                                      .held_us = request_now(r) - r->sent_us});
}

/* The turn is complete: the session's next turn is boosted from now on, before the client sees the last byte
 * and before the slot is given back. */
static void request_mark(struct request *r)
{
    if (r->status < 200 || r->status > 299 || r->client->conn.broken || r->session_n == 0)
        return;
    request_learn(r);
    boostq_mark(&r->route->model->q, &r->session_key, r->pod->id, request_now(r));
    sched_kick(&r->server->sched);
}

static void request_note_body(struct request *r, const struct upstream_data *d)
{
    if (d->n_spans == 0)
        return;
    if (r->first_byte_us == 0)
        r->first_byte_us = request_now(r);
    if (r->event_stream) {
        for (unsigned i = 0; i < d->n_spans; i++)
            openai_sse_feed(&r->sse, d->spans[i]);
    }
    for (unsigned i = 0; r->tokens != NULL && r->tokens->readable && i < d->n_spans; i++)
        usage_feed(&r->tokens->usage, d->spans[i]);
}

/* Before the body is dropped: the answer may not say what its input was, so that is estimated, unless it has
 * said it already. */
static void request_estimate_input(struct request *r)
{
    struct request_tokens *t = r->tokens;

    if (t == NULL || usage_has_input(&t->usage))
        return;
    t->input = r->run.user != NULL ? r->run.input_tokens : request_count_prompt(r);
}

static bool request_send_body(struct request *r, const struct upstream_data *d, struct slice head, bool whole)
{
    struct client_part part = {head, d->spans, d->n_spans, d->framed, whole};
    struct slice shown;

    if (r->tokens != NULL && r->tokens->hide != NULL) {
        shown = usage_hide_feed(r->tokens->hide, d->spans, d->n_spans, d->end);
        part = (struct client_part){.head = head, .spans = &shown, .n_spans = shown.n > 0, .end = whole};
    }
    return client_send(r->client, &part);
}

/* An event stream has said all with data: [DONE]. Clients that close right then, as the official OpenAI one
 * does, have a whole answer, although the pod's last chunk is still on its way. Only a chunk that ends in ']'
 * is looked at closely. */
static bool request_says_done(const struct request *r, const struct upstream_data *d)
{
    const char *first, *end;

    if (!r->event_stream || d->n_spans == 0)
        return false;
    first = d->spans[d->n_spans - 1].p;
    end = first + d->spans[d->n_spans - 1].n;
    while (end > first && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    /* Line ends alone may be the second half of it. */
    return (end == first || end[-1] == ']') && openai_sse_done(&r->sse);
}

static enum outcome request_complete_outcome(const struct request *r)
{
    return r->status >= 400 ? OUTCOME_POD_ERROR_STATUS : OUTCOME_OK;
}

static void request_relay(struct request *r, const struct upstream_data *d, struct slice head)
{
    const bool had_all = r->said_all;
    bool whole = false;

    if (d->end) {
        whole = request_is_whole(r);
        r->upstream = NULL;
    }
    if (!r->said_all && (whole || request_says_done(r, d))) {
        r->said_all = true;
        request_mark(r);
    }
    if (!request_send_body(r, d, head, whole)) {
        request_finish(r, had_all ? request_complete_outcome(r) : OUTCOME_CLIENT_GONE, NULL);
    } else if (whole) {
        request_finish(r, request_complete_outcome(r), NULL);
    } else if (d->end) {
        request_finish(r, OUTCOME_POD_RESET, "the event stream ended without data: [DONE]");
    } else if (client_pending(r->client) > CLIENT_HIGH_BYTES) {
        r->paused = true;
        upstream_pause(r->upstream, true);
    }
}

static void request_on_data(void *arg, const struct upstream_data *d)
{
    struct request *r = arg;
    struct buf *head = &r->server->head;

    if (d->head != NULL) {
        buf_clear(head);
        request_read_answer_head(r, d->head);
        if (!request_answer_head(r, d->head, head)) {
            r->status = 0;
            request_finish(r, OUTCOME_POD_PROTOCOL, "the head of the pod's answer is too large");
            return;
        }
    }
    request_note_body(r, d);
    /* Nothing can be sent again from here, so what was sent need not be kept. */
    if (r->out != NULL && (d->end || conn_pending(&r->upstream->conn) == 0)) {
        request_estimate_input(r);
        if (r->out->prefix != NULL && r->status < 300)
            model_served(r->route->model, r->pod->id, r->out->prefix);
        request_drop_outgoing(r);
    }
    request_relay(r, d, d->head != NULL ? buf_slice(head) : (struct slice){NULL, 0});
}

static enum outcome request_failure_outcome(enum upstream_failure f)
{
    switch (f) {
    case UPSTREAM_PROTOCOL:
        return OUTCOME_POD_PROTOCOL;
    case UPSTREAM_HEAD_TIMEOUT:
        return OUTCOME_POD_HEAD_TIMEOUT;
    case UPSTREAM_BODY_TIMEOUT:
        return OUTCOME_POD_BODY_TIMEOUT;
    case UPSTREAM_CONNECT:
    case UPSTREAM_STALE:
    case UPSTREAM_RESET:
        break;
    }
    return OUTCOME_POD_RESET;
}

static void request_on_failed(void *arg, enum upstream_failure f, const char *why)
{
    struct request *r = arg;

    r->upstream = NULL;
    if (f == UPSTREAM_CONNECT) {
        request_next_pod(r, why);
    } else if (f == UPSTREAM_STALE) {
        /* Once, because a fresh connection is never stale. */
        metrics_inc(METRIC_STALE_RETRIES, r->pod->name);
        request_start_attempt(r, true);
    } else {
        log_warn("a pod failed a request", LOG_SLICE("req", request_id(r)),
                 LOG_STR("model", r->route->model_name), LOG_STR("pod", r->pod->name),
                 LOG_STR("state", request_state_name(r->state)), LOG_STR("error", why));
        request_finish(r, request_failure_outcome(f), NULL);
    }
}

/* Our own want of descriptors: no pod is to blame, and none could be reached. */
static void request_no_socket(struct request *r, const char *why)
{
    log_warn("no socket for a connection to a pod", LOG_SLICE("req", request_id(r)),
             LOG_STR("model", r->route->model_name), LOG_STR("error", why));
    request_enter(r, REQUEST_CONNECT);
    request_finish(r, OUTCOME_CONNECT_FAILED, "the router has no descriptor left for a connection to a pod");
}

static void request_start_attempt(struct request *r, bool fresh)
{
    static const struct upstream_ops ops = {request_on_connected, request_on_sent, request_on_data,
                                            request_on_failed};
    struct iovec iov[CONN_BORROWED_MAX];
    const struct upstream_request u = {
        .iov = iov,
        .n_iov = request_parts(r, iov),
        .fresh = fresh,
        .head_request = r->head_only,
        .head_timeout_us = r->route->timeout_us,
        .rules = &r->server->upstream_rules,
        .ops = &ops,
        .arg = r,
    };

    if (!fresh)
        r->attempts++; /* a retry after a stale connection is the same attempt */
    r->connected = false;
    r->sent_us = request_now(r);
    r->upstream = upstream_send(r->pod->upstream, &u);
    if (r->upstream == NULL) {
        request_no_socket(r, strerror(errno));
        return;
    }
    if (r->upstream->conn.connecting) {
        request_enter(r, REQUEST_CONNECT);
        return;
    }
    r->connected = true;
    request_enter(r, conn_pending(&r->upstream->conn) > 0 ? REQUEST_SEND : REQUEST_HEAD);
}

/* ---- clients ---- */

void request_client_gone(struct request *r, enum client_loss loss)
{
    r->client = NULL;
    if (r->said_all && loss == CLIENT_LOSS_GONE)
        request_finish(r, request_complete_outcome(r), NULL);
    else
        request_finish(r, loss == CLIENT_LOSS_STALLED ? OUTCOME_CLIENT_STALLED : OUTCOME_CLIENT_GONE, NULL);
}

void request_client_drained(struct request *r)
{
    if (!r->paused)
        return;
    r->paused = false;
    upstream_pause(r->upstream, false);
}

/* ---- the end ---- */

static int64_t request_retry_after_s(const struct request *r)
{
    const int64_t s = r->route != NULL ? (r->route->recent_wait_us + US_PER_S - 1) / US_PER_S : 1;

    return s < 1 ? 1 : s > REQUEST_RETRY_AFTER_MAX_S ? REQUEST_RETRY_AFTER_MAX_S : s;
}

const char *request_message(const struct request *r)
{
    return r->why != NULL ? r->why : outcome_info(r->outcome)->text;
}

char *request_own_fields(const struct request *r, const char *more)
{
    return mem_printf("%s%s%s", more, r->cors != NULL ? r->cors : "",
                      r->server->config->n_cors_origins > 0 ? CORS_VARY : "");
}

/* An answer of our own, when nothing of a pod's has been sent. */
static bool request_answer_error(struct request *r)
{
    const struct outcome_info *info = outcome_info(r->outcome);
    char retry[64] = "", *extra;
    struct buf body;
    bool ok;

    if (info->status == 429 || r->outcome == OUTCOME_QUEUE_TIMEOUT || r->outcome == OUTCOME_NOT_SYNCED)
        snprintf(retry, sizeof retry, "Retry-After: %lld\r\n", (long long)request_retry_after_s(r));
    extra = request_own_fields(r, retry);
    buf_init(&body, REQUEST_ERROR_BODY_MAX);
    ok = openai_error(&body, slice_of(request_message(r)), info->type, info->name);
    r->status = (uint16_t)info->status;
    ok = ok && reply_send(r->client, &(struct reply){info->status, "application/json", buf_slice(&body),
                                                     request_id(r), extra, r->head_only});
    mem_free(extra);
    buf_free(&body);
    return ok;
}

/* A stream that was cut says so before its unclean end. */
static bool request_answer_broken(struct request *r)
{
    const struct outcome_info *info = outcome_info(r->outcome);
    struct buf event;
    bool ok = true;

    /* An event behind an announced length would be cut off, and the answer would look whole. */
    if (!r->event_stream || info->type == NULL || r->client->framing == HTTP1_SIZED)
        return true;
    buf_init(&event, REQUEST_ERROR_BODY_MAX);
    if (openai_error_event(&event, openai_sse_inside_event(&r->sse), slice_of(request_message(r)), info->type,
                           info->name)) {
        const struct slice span = buf_slice(&event);

        ok = client_send(r->client, &(struct client_part){.spans = &span, .n_spans = 1});
    }
    buf_free(&event);
    return ok;
}

/* Returns whether the answer is complete, so that the connection may live on. */
static bool request_answer(struct request *r)
{
    if (r->client == NULL)
        return false;
    if (r->outcome == OUTCOME_OK || r->outcome == OUTCOME_POD_ERROR_STATUS || r->outcome == OUTCOME_LOCAL)
        return true;
    if (outcome_info(r->outcome)->type == NULL)
        return false;
    if (r->status == 0)
        return request_answer_error(r);
    if (!request_answer_broken(r))
        r->client->conn.broken = true;
    return false;
}

static void request_free_tokens(struct request_tokens *t)
{
    if (t != NULL && t->hide != NULL)
        usage_hide_free(t->hide);
    if (t != NULL)
        mem_free(t->hide);
    mem_free(t);
}

static void request_free(struct loop_grave *g)
{
    struct request *r = CONTAINER_OF(g, struct request, grave);

    request_free_tokens(r->tokens);
    mem_free(r->user);
    mem_free(r->cors);
    mem_free(r->model_name);
    mem_free(r->session);
    mem_free(r);
}

static void request_note_end(struct request *r)
{
    r->closed_in = r->state;
    if (r->outcome == OUTCOME_CLIENT_GONE || r->outcome == OUTCOME_CLIENT_STALLED)
        metrics_inc(METRIC_CLIENT_ABORTS, request_state_name(r->state));
}

/* What the answer said of its tokens, or what is known without. */
static void request_settle_tokens(struct request *r)
{
    struct request_tokens *t = r->tokens;
    int64_t input;
    bool known;

    if (t == NULL)
        return;
    known = usage_tokens(&t->usage, &input, &t->output);
    if (usage_has_input(&t->usage))
        t->input = input;
    if (!known && r->outcome == OUTCOME_OK)
        metrics_inc(METRIC_USAGE_UNKNOWN, r->route->model_name, t->readable ? "missing" : "encoded");
}

/* Out of the queue, off the pod. */
static void request_let_go(struct request *r)
{
    if (r->state == REQUEST_QUEUED && r->out->admit.queue.where != BOOSTQ_OUT) {
        sched_cancel(&r->server->sched, r->route->model, &r->out->admit);
        request_left_queue(r);
        if (r->outcome == OUTCOME_SHUTDOWN)
            REPORT_QUEUE(r, "abandoned, the router stops");
        else
            REPORT_QUEUE(r, "abandoned, the client left");
    }
    if (r->upstream != NULL)
        upstream_cancel(r->upstream);
    r->upstream = NULL;
}

void request_finish(struct request *r, enum outcome o, const char *why)
{
    struct client *c = r->client;
    struct server *s = r->server;
    bool clean;

    if (r->state == REQUEST_DONE)
        return;
    r->outcome = o;
    r->why = why;
    r->end_us = request_now(r);
    request_note_end(r);
    clean = request_answer(r);
    request_let_go(r);
    request_drop_outgoing(r);
    request_settle_tokens(r);
    report_finished(r);
    request_enter(r, REQUEST_DONE);
    request_give_back_slot(r);
    if (r->route != NULL) {
        metrics_add(r->route->active_downstream, -1);
        topology_unref(&s->topology, r->route);
    }
    s->n_requests--;
    r->client = NULL;
    loop_bury(s->loop, &r->grave, request_free);
    server_check_idle(s);
    if (c != NULL)
        client_end(c, clean);
}
