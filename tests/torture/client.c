/* The clients: each sends one request after another, kept alive where it can be, in the way of the request's
 * plan, and notes what it saw. */
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_PIPELINED   4
#define CLIENT_LEAST_PIECE 256 /* small ones of a large body would measure our own timers */

struct client {
    struct flow flow;
    struct wire wire;
    struct loop_timer timer; /* the next request, a pause in reading, or the limit for an answer */
    uint32_t queue[CLIENT_PIPELINED];
    unsigned n_queue, at;
    struct buf request;
    size_t head_n;
    bool awaiting, stalled, expecting, surplus;
    struct rng rng;
};

static struct client *clients;
static unsigned n_clients, n_busy;

static void client_next(struct client *c);

static struct record *client_record(struct client *c)
{
    return c->awaiting ? oracle_record(c->queue[c->at]) : NULL;
}

static struct plan *client_plan(struct client *c)
{
    struct record *r = client_record(c);

    return r != NULL ? &r->plan : NULL;
}

/* ---- what came of a request ---- */

/* At a given rate each client thinks; else it hardly does. */
static uint32_t client_pause_us(struct client *c)
{
    return rng_below(&c->rng, settings.rate > 0 ? 2 * 1000000u / settings.rate * n_clients : 1500);
}

static void client_done_all(struct client *c)
{
    c->awaiting = false;
    c->stalled = c->expecting = false;
    loop_disarm(&c->timer);
    n_busy--;
    if (flow_is_open(&c->flow)) {
        flow_pause_reading(&c->flow, false);
        c->flow.read_max = 0;
        loop_arm(&c->timer, util_now_us() + client_pause_us(c));
        return;
    }
    if (settings.rate > 0)
        loop_arm(&c->timer, util_now_us() + client_pause_us(c));
    else
        client_next(c);
}

static void client_settle(struct client *c, enum result result)
{
    struct record *r = client_record(c);

    r->result = (uint8_t)result;
    r->done_us = util_now_us();
    r->refused_connect = false;
    tally.requests++;
    tally.client[r->plan.client]++;
    if (r->arrivals > 0)
        tally.pod[r->plan.pod]++;
    if (settings.seconds > 0)
        soak_request(r);
}

/* The rest of the pipeline is lost with the connection. */
static void client_settle_rest(struct client *c, enum result result)
{
    while (++c->at < c->n_queue) {
        oracle_record(c->queue[c->at])->follower = true;
        client_settle(c, result);
    }
}

/* What follows the part of the answer: the error event of a stream, or nothing. */
static bool client_is_error_event(const char *p, size_t n)
{
    static const char event[] = "data: {\"error\":";

    while (n > 0 && *p == '\n') {
        p++;
        n--;
    }
    return n > sizeof event - 1 && memcmp(p, event, sizeof event - 1) == 0 && p[n - 1] == '\n' &&
           p[n - 2] == '\n';
}

/* The event may begin like the one that is missing: then look from the start of its line. */
static bool client_ends_with_error(const char *p, size_t same, size_t n)
{
    if (client_is_error_event(p + same, n - same))
        return true;
    while (same > 0 && p[same - 1] != '\n')
        same--;
    return client_is_error_event(p + same, n - same);
}

static void client_check_body(struct record *r, const struct wire *w)
{
    struct buf want = {0};
    size_t n = buf_size(&w->body), same = 0;
    const bool none = w->head_request || w->status == 204 || w->status == 304 || r->deed == DEED_EARLY;

    if (!none && r->deed != DEED_BAD_BODY)
        plan_answer_body(&r->plan, &want);
    while (same < n && same < buf_size(&want) && buf_bytes(&want)[same] == buf_bytes(&w->body)[same])
        same++;
    r->body_ok = n == buf_size(&want) && same == n;
    r->error_event = same < n && r->plan.stream && client_ends_with_error(buf_bytes(&w->body), same, n);
    r->prefix_ok = same == n || r->error_event || r->deed == DEED_BAD_BODY;
    buf_free(&want);
}

static void client_read_code(struct record *r, const struct wire *w)
{
    static const char key[] = "\"code\":\"";
    const char *p = memmem(buf_bytes(&w->body), buf_size(&w->body), key, sizeof key - 1);
    size_t n = 0;

    if (p == NULL)
        return;
    p += sizeof key - 1;
    while (n < TORTURE_CODE_MAX - 1 && p + n < buf_bytes(&w->body) + buf_size(&w->body) && p[n] != '"')
        n++;
    memcpy(r->code, p, n);
    r->code[n] = '\0';
}

static void client_note(struct record *r, const struct wire *w)
{
    char id[24];

    r->status = (uint16_t)w->status;
    r->from_pod = w->mark >= 0;
    if (r->from_pod)
        client_check_body(r, w);
    else
        client_read_code(r, w);
    snprintf(id, sizeof id, "t-%u", r->plan.n);
    if (r->plan.client != CLIENT_HOSTILE && r->plan.client != CLIENT_MUTANT &&
        r->plan.client != CLIENT_NOISE && r->plan.client != CLIENT_URI_TOO_LONG &&
        r->plan.client != CLIENT_HEAD_STOPS && r->plan.client != CLIENT_HEAD_TOO_LARGE && r->status != 408 &&
        strcmp(id, w->request_id) != 0)
        oracle_complain(r, "the client got request id \"%s\"", w->request_id);
}

/* ---- reading ---- */

static void client_start_answer(struct client *c)
{
    const struct plan *p = client_plan(c);

    wire_start(&c->wire, false, p->client == CLIENT_HEAD);
}

static bool client_is_strange(const struct plan *p)
{
    return p->client == CLIENT_MUTANT || p->client == CLIENT_NOISE;
}

/* An answer is whole. False: the flow is closed, or waits for its end. */
static bool client_answered(struct client *c)
{
    struct record *r = client_record(c);

    client_note(r, &c->wire);
    client_settle(c, RESULT_ANSWER);
    if (c->at + 1 < c->n_queue && c->wire.keep) {
        c->at++;
        client_start_answer(c);
        return true;
    }
    client_settle_rest(c, RESULT_NONE);
    c->at = c->n_queue - 1;
    if (client_is_strange(&r->plan) || r->plan.client == CLIENT_HALF_CLOSE || !flow_is_played(&c->flow)) {
        flow_close(&c->flow, false); /* what it sent may be the start of another request */
    } else if (buf_size(&c->wire.in) > 0) {
        oracle_complain(r, "the client got bytes behind its answer");
        tally.duplicates++;
        flow_close(&c->flow, false);
    } else if (!c->wire.keep) {
        /* The end has to come by itself. */
        c->surplus = true;
        c->awaiting = false;
        loop_arm(&c->timer, util_now_us() + TORTURE_LOST_US);
        return false;
    }
    client_done_all(c);
    return false;
}

static void client_send_body(struct client *c)
{
    c->expecting = false;
    flow_send(&c->flow, buf_bytes(&c->request) + c->head_n, buf_size(&c->request) - c->head_n);
    flow_play(&c->flow);
}

static void client_leave(struct client *c)
{
    struct record *r = client_record(c);

    r->left_us = util_now_us();
    flow_close(&c->flow, r->plan.reset);
    client_settle(c, RESULT_LEFT);
    client_settle_rest(c, RESULT_LEFT);
    client_done_all(c);
}

static void client_broken_answer(struct client *c)
{
    struct record *r = client_record(c);

    oracle_complain(r, "the client got a bad answer: %s", c->wire.why);
    flow_close(&c->flow, false);
    client_settle(c, RESULT_BAD);
    client_settle_rest(c, RESULT_NONE);
    client_done_all(c);
}

static void client_on_bytes(struct flow *f, const char *p, size_t n)
{
    struct client *c = f->owner;
    const struct plan *plan = client_plan(c);

    if (plan == NULL) {
        oracle_complain(NULL, "a client got %zu bytes it did not ask for: %.*s", n, n < 60 ? (int)n : 60, p);
        tally.duplicates++;
        flow_close(f, false);
        if (c->surplus) {
            c->surplus = false;
            client_done_all(c);
        }
        return;
    }
    buf_put(&c->wire.in, p, n);
    while (client_record(c) != NULL && wire_read(&c->wire)) {
        if (c->wire.state == WIRE_BAD) {
            client_broken_answer(c);
            return;
        }
        if (c->wire.interim) {
            if (c->expecting && c->wire.status == 100)
                client_send_body(c);
            else
                oracle_complain(client_record(c), "the client got an interim answer");
            client_start_answer(c);
            continue;
        }
        if (c->wire.state == WIRE_DONE && !client_answered(c))
            return;
        if (buf_size(&c->wire.in) == 0)
            break;
    }
    if (client_record(c) == NULL || !flow_is_open(f))
        return;
    plan = client_plan(c);
    if (plan->client == CLIENT_GONE_STREAM && (c->wire.state == WIRE_BODY || buf_size(&c->wire.body) > 0)) {
        client_leave(c);
        return;
    }
    if (plan->client == CLIENT_SLOW_READER) {
        flow_pause_reading(f, true);
        loop_arm(&c->timer, util_now_us() + 1500);
    }
}

/* The router closed, or reset, the connection. */
static void client_on_ended(struct flow *f, int error)
{
    struct client *c = f->owner;
    struct record *r = client_record(c);
    enum result result = RESULT_NONE;

    flow_close(f, false);
    if (c->surplus) {
        c->surplus = false;
        client_done_all(c);
        return;
    }
    if (r == NULL) {
        return; /* between two requests; the timer goes on */
    }
    if (error == 0)
        wire_eof(&c->wire);
    if (c->wire.state == WIRE_DONE) {
        client_note(r, &c->wire);
        result = RESULT_ANSWER;
    } else if (c->wire.state == WIRE_BODY) {
        client_note(r, &c->wire);
        result = RESULT_CUT;
    } else if (buf_size(&c->wire.in) > 0) {
        oracle_complain(r, "the client got a part of a head");
        result = RESULT_BAD;
    }
    client_settle(c, result);
    client_settle_rest(c, RESULT_NONE);
    client_done_all(c);
}

/* ---- sending ---- */

static void client_on_played(struct flow *f)
{
    struct client *c = f->owner;
    const struct plan *p = client_plan(c);

    if (p == NULL)
        return;
    if (!flow_is_open(f)) { /* the script said: leave */
        struct record *r = client_record(c);

        r->left_us = util_now_us();
        client_settle(c, RESULT_LEFT);
        client_settle_rest(c, RESULT_LEFT);
        client_done_all(c);
        return;
    }
    if (p->client == CLIENT_STALL) {
        c->stalled = true;
        loop_arm(&c->timer, util_now_us() + 2500 * 1000);
    }
}

static void client_on_timer(struct loop_timer *t)
{
    struct client *c = t->owner;
    struct record *r = client_record(c);

    if (r == NULL && !c->surplus) {
        client_next(c);
        return;
    }
    if (r != NULL && r->plan.client == CLIENT_SLOW_READER && util_now_us() - r->sent_us < TORTURE_LOST_US) {
        loop_arm(t, r->sent_us + TORTURE_LOST_US);
        flow_pause_reading(&c->flow, false);
        return;
    }
    if (c->stalled) {
        c->stalled = false;
        loop_arm(t, util_now_us() + TORTURE_LOST_US);
        flow_pause_reading(&c->flow, false);
        return;
    }
    flow_close(&c->flow, false);
    tally.lost++;
    if (c->surplus) {
        c->surplus = false;
        oracle_complain(NULL, "a connection that was to be closed was not (request %u)", c->queue[c->at]);
        client_done_all(c);
        return;
    }
    oracle_complain(r, "lost: nothing for %d s", TORTURE_LOST_US / 1000000);
    client_settle(c, RESULT_LOST);
    client_settle_rest(c, RESULT_LOST);
    client_done_all(c);
}

static void client_mutate(struct client *c, const struct plan *p)
{
    struct rng r = {util_mix(p->n) + 5};
    char *bytes = c->request.data + c->request.off, *mark;
    const size_t n = buf_size(&c->request);

    /* Without its number: the pods answer it as a stranger's. */
    mark = memmem(bytes, n, "X-Torture:", 10);
    memcpy(mark, "X-Mutant_:", 10);
    mark = memmem(bytes, n, "X-Request-ID: t-", 16);
    memcpy(mark, "X-Request-No: u-", 16);
    for (unsigned i = 0; i <= p->variant % 4u; i++) {
        const size_t at = rng_below(&r, (uint32_t)(rng_below(&r, 3) ? c->head_n : n));

        switch (rng_below(&r, 4)) {
        case 0:
            bytes[at] = (char)rng_next(&r);
            break;
        case 1:
            bytes[at] ^= (char)(1 << rng_below(&r, 8));
            break;
        case 2:
            bytes[at] = "\r\n \t:;,\0"[rng_below(&r, 8)];
            break;
        default:
            memmove(bytes + at, bytes + rng_below(&r, (uint32_t)n / 2), (n - at < 20 ? n - at : 20) / 2);
            break;
        }
    }
}

static void client_fill_strange(struct client *c, const struct plan *p)
{
    struct rng r = {util_mix(p->n) + 6};
    unsigned status;
    size_t n;
    const char *hostile;
    char number[16];
    char *mark;

    buf_clear(&c->request);
    if (p->client == CLIENT_NOISE) {
        for (unsigned i = 0; i <= p->variant; i++) {
            const char byte = (char)rng_next(&r);

            buf_put(&c->request, &byte, 1);
        }
        buf_text(&c->request, "\r\n\r\n");
        c->head_n = buf_size(&c->request);
        return;
    }
    hostile = plan_hostile(p, &n, &status);
    buf_put(&c->request, hostile, n);
    mark = memmem(buf_bytes(&c->request), n, "@@@@@@@@", 8);
    if (mark != NULL) {
        snprintf(number, sizeof number, "%08u", p->n);
        memcpy(mark, number, 8);
    }
    c->head_n = n;
}

static void client_send_part(struct client *c, size_t n, const struct plan *p)
{
    struct flow *f = &c->flow;

    flow_send(f, buf_bytes(&c->request), n);
    if (plan_may_leave(p)) {
        flow_add(f, STEP_WAIT, p->client_us);
        flow_add(f, p->reset ? STEP_RESET : STEP_CLOSE, 0);
    }
}

static void client_send_request(struct client *c, const struct plan *p)
{
    struct flow *f = &c->flow;
    const char *bytes = buf_bytes(&c->request);
    const size_t n = buf_size(&c->request), body_n = n - c->head_n;
    struct rng r = {util_mix(p->n) + 7};

    switch (p->client) {
    case CLIENT_SPLIT:
        flow_send_pieces(f, bytes, n, CLIENT_LEAST_PIECE + p->variant * 8u, 300);
        break;
    case CLIENT_BYTES:
        flow_send_pieces(f, bytes, n, 1, 150);
        break;
    case CLIENT_EXPECT:
        c->expecting = true;
        flow_send(f, bytes, c->head_n);
        break;
    case CLIENT_GONE_HEAD:
    case CLIENT_HEAD_STOPS:
        client_send_part(c, 1 + rng_below(&r, (uint32_t)c->head_n - 2), p);
        break;
    case CLIENT_GONE_BODY:
    case CLIENT_BODY_STOPS:
        client_send_part(c, c->head_n + rng_below(&r, (uint32_t)body_n - 1), p);
        break;
    case CLIENT_GONE_WAIT:
        client_send_part(c, n, p);
        break;
    case CLIENT_HALF_CLOSE:
        flow_send(f, bytes, n);
        flow_add(f, STEP_FIN, 0);
        break;
    case CLIENT_SCAN:
        flow_add(f, STEP_WAIT, p->client_us / 8);
        flow_add(f, p->reset ? STEP_RESET : STEP_CLOSE, 0);
        break;
    case CLIENT_MUTANT:
    case CLIENT_NOISE:
        flow_send(f, bytes, n);
        flow_add(f, STEP_WAIT, 30 * 1000 + p->client_us);
        flow_add(f, STEP_FIN, 0);
        break;
    default:
        flow_send(f, bytes, n);
        break;
    }
}

static void client_add_request(struct client *c, struct record *r)
{
    char authority[32];

    snprintf(authority, sizeof authority, "127.0.0.1:%u", router_port);
    buf_clear(&c->request);
    plan_request(&r->plan, authority, &c->request, &c->head_n);
    if (r->plan.client == CLIENT_MUTANT)
        client_mutate(c, &r->plan);
    if (r->plan.client == CLIENT_NOISE || r->plan.client == CLIENT_HOSTILE)
        client_fill_strange(c, &r->plan);
    r->issued = true;
    r->sent_us = util_now_us();
    client_send_request(c, &r->plan);
}

/* The requests that follow in one go. */
static void client_pipeline(struct client *c)
{
    const unsigned n = 1 + rng_below(&c->rng, CLIENT_PIPELINED - 1);

    while (c->n_queue <= n) {
        const uint32_t next = world_next();
        struct record *r = next == UINT32_MAX ? NULL : oracle_record(next);

        if (r == NULL)
            break;
        if (r->plan.answer_bytes > 128 * 1024)
            r->plan.answer_bytes = 1000;
        r->plan.client = CLIENT_PIPELINE;
        c->queue[c->n_queue++] = next;
        client_add_request(c, r);
    }
}

static bool client_may_reuse(const struct plan *p)
{
    return p->client != CLIENT_SCAN && p->client != CLIENT_STALL && p->variant % 8 != 0;
}

static void client_next(struct client *c)
{
    const uint32_t n = world_next();
    struct record *r;

    if (n == UINT32_MAX) {
        flow_close(&c->flow, false);
        loop_disarm(&c->timer);
        return;
    }
    r = oracle_record(n);
    n_busy++;
    c->queue[0] = n;
    c->n_queue = 1;
    c->at = 0;
    c->awaiting = true;
    if (flow_is_open(&c->flow) && (!client_may_reuse(&r->plan) || flow_peer_left(&c->flow)))
        flow_close(&c->flow, false);
    if (!flow_is_open(&c->flow))
        flow_connect(&c->flow, router_port,
                     r->plan.client == CLIENT_STALL || r->plan.client == CLIENT_SLOW_READER ? 4096 : 0);
    buf_clear(&c->wire.in);
    client_start_answer(c);
    client_add_request(c, r);
    if (r->plan.client == CLIENT_PIPELINE)
        client_pipeline(c);
    if (r->plan.client == CLIENT_STALL)
        flow_pause_reading(&c->flow, true);
    if (r->plan.client == CLIENT_SLOW_READER)
        c->flow.read_max = 8192;
    loop_arm(&c->timer, util_now_us() + TORTURE_LOST_US);
    flow_play(&c->flow);
}

/* ---- all of them ---- */

unsigned clients_busy(void)
{
    return n_busy;
}

void clients_go(void)
{
    for (unsigned i = 0; i < n_clients; i++)
        if (!clients[i].awaiting && !clients[i].surplus)
            loop_arm(&clients[i].timer, util_now_us() + client_pause_us(&clients[i]));
}

void clients_open(unsigned n)
{
    clients = util_alloc(n * sizeof *clients);
    n_clients = n;
    for (unsigned i = 0; i < n; i++) {
        struct client *c = &clients[i];

        c->flow.io.fd = -1;
        c->flow.owner = c;
        c->flow.bytes = client_on_bytes;
        c->flow.ended = client_on_ended;
        c->flow.played = client_on_played;
        c->timer = (struct loop_timer){.fire = client_on_timer, .owner = c};
        c->rng.state = settings.seed + i;
    }
}

void clients_close(void)
{
    for (unsigned i = 0; i < n_clients; i++) {
        flow_free(&clients[i].flow);
        wire_free(&clients[i].wire);
        buf_free(&clients[i].request);
    }
    free(clients);
}
