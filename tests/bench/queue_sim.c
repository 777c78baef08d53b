/* queue_sim: the regimes of bench-ttft as a discrete-event program around the router's own core: the queue,
 * admission, choice and tracker are the very objects of the product; pods, prefix caches, clients and the
 * clock are models. A pod behaves as tests/sim does: --max-num-seqs running, one prefill at a time, first
 * come first served, an LRU prefix cache in blocks of 16 tokens, a fixed time between chunks.
 *
 * Prints one JSON object a run. Not modelled: the time of the network and of the router itself. */
#include "admit.h"
#include "bench.h"
#include "mem.h"
#include "results.h"
#include "workload.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define RETRY_US (1 * US_PER_S) /* after a 504, as its Retry-After says */
#define ID_BYTES 32
#define NO_EVENT INT64_MAX
#define PODS_MAX 4096

/* DIRECT: round robin to the pods, no router. FIFO: no session header. The rest differ in rules alone. */
enum order_policy { DIRECT, NOQUEUE, FIFO, OFF, PREFER, N_POLICIES };

static const char *const policy_names[N_POLICIES] = {"direct", "noqueue", "fifo", "off", "prefer"};

/* Which boosted request goes first: that of the session whose last turn completed last, as the router has it;
 * completed first, so whose prefix its pod drops next; or the same, but those whose prefix was dropped
 * already come last, newest first, which no router can know. */
enum warm_order { NEWEST, OLDEST, DROPPED_NEXT, N_ORDERS };

static const char *const order_names[N_ORDERS] = {"newest", "oldest", "dropped-next"};

enum event_kind { SESSION_WAKES, CALL_RETRIES, CALL_PREFILLED, CALL_ENDS };

struct event {
    struct heap_node at;
    enum event_kind kind;
};

/* The prefix of one session on one pod, or the end of a parallel call's prompt that nobody will ask for
 * again. Its blocks are evicted from the end, as the pod drops them in that order. */
struct prefix {
    struct htab_node by_key;
    struct list by_use; /* in pod_model.unheld while no call holds it */
    uint64_t key;       /* 0: an end that is in no table */
    size_t blocks;
    unsigned holders;
};

struct pod_model {
    struct run *run;
    struct pod *pod; /* the router's side of it */
    struct htab prefixes;
    struct list unheld; /* least recently used first */
    size_t capacity, resident, held, reserved;
    struct list waiting, prefills; /* calls */
    struct call *prefilling;
    unsigned running, n_waiting;
};

struct session {
    struct event wake;
    struct workload_place place;
    const struct workload_kind *kind;
    unsigned turns, calls_left;
    size_t context_bytes, next_context_bytes;
    struct slice id; /* of `text`; empty when no header is sent */
    char text[ID_BYTES];
};

struct call {
    struct admit_item item;
    struct event event;
    struct session *session;
    struct pod_model *at;
    struct list link; /* in at->waiting or at->prefills */
    struct prefix *prefix, *end;
    size_t shared_blocks; /* of the prompt, with the session's other calls; all of it for the first call */
    size_t held_known, reserved, prompt_bytes, cached_tokens;
    int64_t issued_us, queued_us, admitted_us, first_us, ttft_us;
    bool main; /* its answer goes on in the next prompt */
};

struct options {
    struct workload_regime regime;
    enum order_policy policy;
    enum warm_order order;
    struct boostq_rules rules;
    struct pod_rules pods;
    int64_t warmup_us, window_us, turn_us, scrape_us;
    uint64_t seed;
    bool fixed_wait; /* whatever a warm prefix is worth */
};

struct run {
    struct options o;
    struct heap events;
    int64_t now_us, timer_us;
    struct admit admit;
    struct model *model;
    struct pod_model *pods;
    struct session *sessions;
    struct results results;
    struct results_series waits;
    unsigned next_pod;
    uint64_t issued, answered, expired, in_system;
    uint64_t last_arrival, n_events, n_pumps;
    uint64_t falling, dropped; /* completion numbers of other orders than NEWEST */
};

static void schedule(struct run *r, struct event *e, enum event_kind kind, int64_t due_us)
{
    e->kind = kind;
    heap_push(&r->events, &e->at, (uint64_t)due_us);
}

/* ---- the order of the warm ---- */

/* The queue ranks by completion numbers, so other numbers are another order, in the very same queue. */
static void mark_as(struct run *r, struct slice session, uint64_t pod_id, uint64_t completed)
{
    struct session_key key;

    r->model->q.tracker.last_completed = completed - 1;
    session_lru_key(&key, session);
    boostq_mark(&r->model->q, &key, pod_id, r->now_us);
}

static void mark(struct run *r, struct slice session, uint64_t pod_id)
{
    mark_as(r, session, pod_id, r->o.order == NEWEST ? r->model->q.tracker.last_completed + 1 : --r->falling);
}

/* ---- a pod's prefix cache ---- */

static bool prefix_is(const struct htab_node *node, const void *key)
{
    return CONTAINER_OF(node, const struct prefix, by_key)->key == *(const uint64_t *)key;
}

static struct prefix *prefix_find(const struct pod_model *p, uint64_t key)
{
    struct htab_node *node = htab_find(&p->prefixes, workload_mix(key), prefix_is, &key);

    return node == NULL ? NULL : CONTAINER_OF(node, struct prefix, by_key);
}

static struct prefix *prefix_new(struct pod_model *p, uint64_t key)
{
    struct prefix *prefix = mem_zalloc(sizeof(*prefix));

    prefix->key = key;
    list_init(&prefix->by_use);
    if (key != 0)
        htab_add(&p->prefixes, &prefix->by_key, workload_mix(key));
    return prefix;
}

static void prefix_free(struct pod_model *p, struct prefix *prefix)
{
    list_del(&prefix->by_use);
    if (prefix->key != 0)
        htab_remove(&p->prefixes, &prefix->by_key);
    mem_free(prefix);
}

static uint64_t prefix_key(const struct session *s)
{
    return ((uint64_t)s->place.slot + 1) << 32 | s->place.life;
}

/* The pod dropped the last block of a prefix: that of a session that still goes on, and last went on here? */
static void prefix_dropped(const struct pod_model *p, const struct prefix *prefix)
{
    struct run *r = p->run;
    const struct session *s = prefix->key == 0 ? NULL : &r->sessions[(prefix->key >> 32) - 1];
    const struct session_entry *tracked;
    struct session_key key;

    if (r->o.order != DROPPED_NEXT || s == NULL || s->id.n == 0 || prefix_key(s) != prefix->key)
        return;
    session_lru_key(&key, s->id);
    tracked = session_lru_find(&r->model->q.tracker, &key);
    if (tracked != NULL && tracked->pod_id == p->pod->id)
        mark_as(r, s->id, p->pod->id, ++r->dropped);
}

static void cache_make_room(struct pod_model *p, size_t blocks)
{
    while (!list_empty(&p->unheld) && p->resident + p->reserved + blocks > p->capacity) {
        struct prefix *oldest = LIST_ITEM(p->unheld.next, struct prefix, by_use);
        size_t over = p->resident + p->reserved + blocks - p->capacity;
        size_t n = over < oldest->blocks ? over : oldest->blocks;

        oldest->blocks -= n;
        p->resident -= n;
        if (oldest->blocks == 0) {
            prefix_dropped(p, oldest);
            prefix_free(p, oldest);
        }
    }
}

static void prefix_hold(struct pod_model *p, struct prefix *prefix)
{
    if (prefix->holders++ == 0) {
        list_del(&prefix->by_use);
        p->held += prefix->blocks;
    }
}

static void prefix_drop(struct pod_model *p, struct prefix *prefix)
{
    if (--prefix->holders > 0)
        return;
    p->held -= prefix->blocks;
    if (prefix->blocks == 0) {
        prefix_free(p, prefix);
        return;
    }
    list_push_back(&p->unheld, &prefix->by_use);
    cache_make_room(p, 0);
}

/* Blocks for a held prefix, as many as there is room for. */
static void prefix_grow(struct pod_model *p, struct prefix *prefix, size_t to_blocks)
{
    size_t n = to_blocks > prefix->blocks ? to_blocks - prefix->blocks : 0, room;

    cache_make_room(p, n);
    room = p->resident + p->reserved < p->capacity ? p->capacity - p->resident - p->reserved : 0;
    if (n > room)
        n = room;
    prefix->blocks += n;
    p->resident += n;
    p->held += n;
}

/* ---- a pod's engine ---- */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The last token is always computed: a block that ends the prompt exactly does not count. */
static size_t known_blocks(const struct call *c)
{
    return min_size(min_size(c->prefix->blocks, c->shared_blocks),
                    (c->prompt_bytes - 1) / WORKLOAD_BLOCK_BYTES);
}

static void hold_prefix(struct pod_model *p, struct call *c)
{
    uint64_t key = prefix_key(c->session);

    c->prefix = prefix_find(p, key);
    if (c->prefix == NULL)
        c->prefix = prefix_new(p, key);
    prefix_hold(p, c->prefix);
    c->held_known = known_blocks(c);
}

static bool reserve(struct pod_model *p, struct call *c)
{
    size_t need, taken;

    hold_prefix(p, c);
    need = c->prompt_bytes / WORKLOAD_BLOCK_BYTES + 1 - c->held_known;
    taken = p->held + p->reserved;
    if (taken + need > p->capacity && p->running > 0) {
        prefix_drop(p, c->prefix);
        return false;
    }
    c->reserved = taken >= p->capacity ? 0 : min_size(need, p->capacity - taken);
    p->reserved += c->reserved;
    cache_make_room(p, 0);
    return true;
}

static bool engine_admit(const struct run *r, struct pod_model *p)
{
    struct list *first = list_first(&p->waiting);
    struct call *c = first == NULL ? NULL : LIST_ITEM(first, struct call, link);

    if (c == NULL || p->running >= r->o.regime.slots || !reserve(p, c))
        return false;
    list_del(&c->link);
    list_push_back(&p->prefills, &c->link);
    p->n_waiting--;
    p->running++;
    return true;
}

static bool engine_prefill(struct run *r, struct pod_model *p)
{
    struct list *first = list_first(&p->prefills);
    struct call *c;
    size_t tokens;

    if (p->prefilling != NULL || first == NULL)
        return false;
    c = LIST_ITEM(first, struct call, link);
    list_del(&c->link);
    p->prefilling = c;
    c->cached_tokens = known_blocks(c) * (WORKLOAD_BLOCK_BYTES / WORKLOAD_TOKEN_BYTES);
    tokens = (c->prompt_bytes + WORKLOAD_TOKEN_BYTES - 1) / WORKLOAD_TOKEN_BYTES - c->cached_tokens;
    schedule(r, &c->event, CALL_PREFILLED,
             r->now_us +
                 (int64_t)((double)tokens / (double)r->o.regime.prefill_tokens_per_s * (double)US_PER_S));
    return true;
}

static void engine_schedule(struct run *r, struct pod_model *p)
{
    while (engine_admit(r, p) || engine_prefill(r, p))
        ;
}

/* The prompt's blocks, and later the answer's. */
static void engine_store(struct pod_model *p, struct call *c, size_t text_bytes)
{
    size_t blocks = text_bytes / WORKLOAD_BLOCK_BYTES;

    p->reserved -= c->reserved;
    c->reserved = 0;
    prefix_grow(p, c->prefix, c->main ? blocks : min_size(blocks, c->shared_blocks));
    if (c->main)
        return;
    if (c->end == NULL) {
        c->end = prefix_new(p, 0);
        prefix_hold(p, c->end);
    }
    prefix_grow(p, c->end, blocks - min_size(blocks, c->shared_blocks));
}

static void engine_prefilled(struct run *r, struct call *c)
{
    struct pod_model *p = c->at;

    p->prefilling = NULL;
    engine_store(p, c, c->prompt_bytes);
    c->first_us = r->now_us;
    c->ttft_us = r->now_us - c->issued_us;
    schedule(r, &c->event, CALL_ENDS, r->now_us + (c->session->kind->chunks - 1) * r->o.regime.chunk_us);
    engine_schedule(r, p);
}

static void engine_end(struct run *r, struct call *c)
{
    struct pod_model *p = c->at;

    engine_store(p, c, c->prompt_bytes + workload_answer_bytes(c->session->kind));
    if (c->end != NULL)
        prefix_drop(p, c->end);
    prefix_drop(p, c->prefix);
    p->running--;
    engine_schedule(r, p);
}

static void engine_submit(struct run *r, struct pod_model *p, struct call *c)
{
    c->at = p;
    c->admitted_us = r->now_us;
    list_push_back(&p->waiting, &c->link);
    p->n_waiting++;
    engine_schedule(r, p);
}

/* ---- clients ---- */

static void session_begin(struct run *r, struct session *s, int64_t due_us)
{
    s->kind = workload_kind_of(&r->o.regime, s->place.slot);
    s->place.turn = s->place.call = 0;
    s->turns = workload_turns(s->kind, &s->place);
    s->context_bytes = 0;
    if (r->o.policy != FIFO && r->o.policy != DIRECT) {
        int n = snprintf(s->text, sizeof(s->text), "s%u-%u", s->place.slot, s->place.life);

        s->id = (struct slice){s->text, (size_t)n};
    }
    schedule(r, &s->wake, SESSION_WAKES, due_us);
}

static void call_issue(struct run *r, struct call *c)
{
    c->queued_us = r->now_us;
    if (r->o.policy == DIRECT) {
        engine_submit(r, &r->pods[r->next_pod++ % r->o.regime.pods], c);
        return;
    }
    c->item.queue.session = c->session->id;
    boostq_push(&r->model->q, &c->item.queue, r->now_us, r->now_us);
}

static void call_new(struct run *r, struct session *s, unsigned i)
{
    struct call *c = mem_zalloc(sizeof(*c));
    struct workload_place place = s->place;

    place.call = i;
    c->session = s;
    c->main = i == 0;
    c->prompt_bytes = s->context_bytes + WORKLOAD_USER_BYTES + workload_user_bytes(s->kind, &place) +
                      WORKLOAD_ASSISTANT_BYTES;
    c->shared_blocks = (c->main ? c->prompt_bytes : s->context_bytes) / WORKLOAD_BLOCK_BYTES;
    if (c->main)
        s->next_context_bytes = c->prompt_bytes + workload_answer_bytes(s->kind) + 1;
    list_init(&c->link);
    c->issued_us = r->now_us;
    r->issued++;
    r->in_system++;
    call_issue(r, c);
}

static void session_wake(struct run *r, struct session *s)
{
    s->calls_left = s->kind->calls;
    for (unsigned i = 0; i < s->kind->calls; i++)
        call_new(r, s, i);
}

static void session_turn_over(struct run *r, struct session *s)
{
    int64_t due_us = r->now_us + workload_pause_us(s->kind, &s->place);

    s->context_bytes = s->next_context_bytes;
    if (++s->place.turn < s->turns) {
        schedule(r, &s->wake, SESSION_WAKES, due_us);
        return;
    }
    s->place.life++;
    session_begin(r, s, due_us);
}

static void record(struct run *r, const struct call *c)
{
    if (!results_open(&r->results, r->now_us))
        return;
    results_answered(&r->results, c->session->place.turn == 0, c->ttft_us,
                     (c->prompt_bytes + WORKLOAD_TOKEN_BYTES - 1) / WORKLOAD_TOKEN_BYTES, c->cached_tokens);
    results_add(&r->waits, c->admitted_us - c->queued_us);
}

static void learn(struct run *r, const struct call *c)
{
    const uint64_t warm_pod_id = c->item.queue.warm_pod_id;

    if (!r->o.fixed_wait)
        model_learn(r->model, &(struct worth_turn){.body_bytes = c->prompt_bytes,
                                                   .has_warm_pod = warm_pod_id != 0,
                                                   .on_warm_pod = warm_pod_id == c->at->pod->id,
                                                   .first_us = c->first_us - c->admitted_us,
                                                   .held_us = r->now_us - c->admitted_us});
}

static void call_end(struct run *r, struct call *c)
{
    struct session *s = c->session;

    record(r, c);
    engine_end(r, c);
    r->answered++;
    r->in_system--;
    if (r->o.policy != DIRECT) {
        learn(r, c);
        mark(r, s->id, c->at->pod->id);
        pod_release_slot(c->at->pod, &r->o.pods, true, r->now_us);
    }
    mem_free(c);
    if (--s->calls_left == 0)
        session_turn_over(r, s);
}

/* ---- the router's pump, as in sched.c ---- */

static struct pod_model *model_of_pod(const struct run *r, const struct pod *pod)
{
    return &r->pods[pod->id - r->pods[0].pod->id];
}

/* Without sessions the queue is plain first come, first served. */
static void check_order(struct run *r, const struct admit_item *item)
{
    if (r->o.policy == FIFO && item->queue.arrival < r->last_arrival) {
        fprintf(stderr, "queue_sim: FIFO is not in order of arrival\n");
        exit(1);
    }
    r->last_arrival = item->queue.arrival;
}

static void pump(struct run *r)
{
    struct boostq_item *item;
    struct admission a;

    r->n_pumps++;
    while ((item = boostq_expire(&r->model->q, r->now_us)) != NULL) {
        struct call *c = CONTAINER_OF(CONTAINER_OF(item, struct admit_item, queue), struct call, item);

        r->expired++;
        r->results.failed += results_open(&r->results, r->now_us);
        schedule(r, &c->event, CALL_RETRIES, r->now_us + RETRY_US);
    }
    admit_begin(&r->admit, r->now_us);
    while (admit_next(&r->admit, r->now_us, &a)) {
        check_order(r, a.item);
        engine_submit(r, model_of_pod(r, a.pod), CONTAINER_OF(a.item, struct call, item));
    }
    r->timer_us = admit_next_due_us(&r->admit, r->now_us);
}

static void scrape(struct run *r)
{
    for (unsigned i = 0; i < r->o.regime.pods; i++) {
        struct pod_model *p = &r->pods[i];

        p->pod->numbers = (struct pod_numbers){
            .running = p->running,
            .waiting = p->n_waiting,
            .waiting_min = p->n_waiting,
            .kv_usage = (double)(p->held + p->reserved) / (double)p->capacity,
            .at_us = r->now_us,
        };
    }
}

/* ---- the run ---- */

static void fire(struct run *r, struct event *e)
{
    switch (e->kind) {
    case SESSION_WAKES:
        session_wake(r, CONTAINER_OF(e, struct session, wake));
        break;
    case CALL_RETRIES:
        call_issue(r, CONTAINER_OF(e, struct call, event));
        break;
    case CALL_PREFILLED:
        engine_prefilled(r, CONTAINER_OF(e, struct call, event));
        break;
    case CALL_ENDS:
        call_end(r, CONTAINER_OF(e, struct call, event));
        break;
    }
}

static int64_t next_event_us(const struct run *r)
{
    return r->events.n == 0 ? NO_EVENT : (int64_t)heap_min_key(&r->events);
}

/* One turn of the router's loop: all events of --turn-us, then the pump. */
static void loop_turn(struct run *r, int64_t scrape_at_us)
{
    int64_t until_us = next_event_us(r);

    if (r->timer_us < until_us)
        until_us = r->timer_us;
    if (scrape_at_us < until_us)
        until_us = scrape_at_us;
    if (until_us > r->now_us)
        r->now_us = until_us;
    until_us = r->now_us + r->o.turn_us;
    while (next_event_us(r) <= until_us) {
        struct heap_node *node = heap_min(&r->events);

        r->now_us = next_event_us(r) > r->now_us ? next_event_us(r) : r->now_us;
        heap_remove(&r->events, node);
        r->n_events++;
        fire(r, CONTAINER_OF(node, struct event, at));
    }
}

static void play(struct run *r)
{
    int64_t scrape_at_us = r->o.scrape_us > 0 ? r->o.scrape_us : NO_EVENT;

    while (r->now_us < r->results.until_us) {
        loop_turn(r, scrape_at_us);
        if (r->now_us >= scrape_at_us) {
            scrape(r);
            scrape_at_us = r->now_us + r->o.scrape_us;
        }
        if (r->o.policy != DIRECT)
            pump(r);
    }
}

static void set_up_pods(struct run *r)
{
    struct pod **pods = mem_array(NULL, r->o.regime.pods, sizeof(struct pod *));

    r->pods = mem_array(NULL, r->o.regime.pods, sizeof(*r->pods));
    for (unsigned i = 0; i < r->o.regime.pods; i++) {
        r->pods[i] =
            (struct pod_model){.run = r, .pod = pod_new(SLICE("pod")), .capacity = r->o.regime.kv_blocks};
        htab_init(&r->pods[i].prefixes, 0);
        list_init(&r->pods[i].unheld);
        list_init(&r->pods[i].waiting);
        list_init(&r->pods[i].prefills);
        pods[i] = r->pods[i].pod;
    }
    model_set_pods(r->model, pods, r->o.regime.pods, 0);
    mem_free(pods);
}

static void set_up(struct run *r)
{
    r->admit.rules = r->o.pods;
    r->model = model_new("m", &r->o.rules, NULL);
    admit_add_model(&r->admit, r->model);
    set_up_pods(r);
    r->timer_us = NO_EVENT;
    r->falling = UINT64_MAX;
    r->results.from_us = r->o.warmup_us;
    r->results.until_us = r->o.warmup_us + r->o.window_us;
    r->sessions = mem_array(NULL, r->o.regime.sessions, sizeof(*r->sessions));
    for (unsigned i = 0; i < r->o.regime.sessions; i++) {
        r->sessions[i] = (struct session){.place = {.seed = r->o.seed, .slot = i}};
        session_begin(r, &r->sessions[i], workload_start_us(&r->sessions[i].place));
    }
}

/* Every call that was issued was answered, waits, runs, or waits to be sent again: nothing is lost, nothing
 * ends twice. */
static void check_conservation(const struct run *r)
{
    uint64_t waiting = boostq_len(&r->model->q), at_pods = 0, retrying = 0;

    for (unsigned i = 0; i < r->o.regime.pods; i++) {
        at_pods += r->pods[i].n_waiting + r->pods[i].running;
        if (r->o.policy != DIRECT && r->pods[i].pod->in_flight != r->pods[i].n_waiting + r->pods[i].running)
            retrying = UINT64_MAX / 2; /* does not add up either */
    }
    for (size_t i = 1; i <= r->events.n; i++)
        retrying += CONTAINER_OF(r->events.entries[i].node, struct event, at)->kind == CALL_RETRIES;
    if (r->issued != r->answered + r->in_system || r->in_system != waiting + at_pods + retrying) {
        fprintf(stderr,
                "queue_sim: requests do not add up: %llu issued, %llu answered, %llu waiting, %llu at pods\n",
                (unsigned long long)r->issued, (unsigned long long)r->answered, (unsigned long long)waiting,
                (unsigned long long)at_pods);
        exit(1);
    }
}

static void print(struct run *r)
{
    const struct boostq_stats *s = &r->model->q.stats;

    printf("{\"run\": \"sim\", \"regime\": \"%s\", \"policy\": \"%s\", \"seed\": %llu, \"pods\": %u, "
           "\"sessions\": %u, \"kv_blocks\": %u, \"order\": \"%s\", \"sticky_wait_s\": %.3f, \"grace_s\": "
           "%.3f, \"max_overtakes\": %u, "
           "\"timeout_s\": %.1f",
           r->o.regime.name, policy_names[r->o.policy], (unsigned long long)r->o.seed, r->o.regime.pods,
           r->o.regime.sessions, r->o.regime.kv_blocks, order_names[r->o.order],
           (double)r->o.rules.sticky_wait_us / 1e6, (double)r->o.pods.grace_us / 1e6,
           r->o.rules.max_overtakes, (double)r->o.rules.timeout_us / 1e6);
    results_print(&r->results);
    results_print_series("queue", &r->waits);
    printf(", \"forced_share\": %.4f, \"forced_by_overtakes\": %llu, \"forced_by_sticky_wait\": %llu, "
           "\"promoted\": %llu, \"wait_s\": %.3f, \"events\": %llu, \"pumps\": %llu}\n",
           s->dequeued > 0 ? (double)s->dequeued_forced / (double)s->dequeued : 0,
           (unsigned long long)s->forced_by_overtakes, (unsigned long long)s->forced_by_sticky_wait,
           (unsigned long long)s->promoted, (double)r->model->q.wait_us / 1e6,
           (unsigned long long)r->n_events, (unsigned long long)r->n_pumps);
}

/* ---- options ---- */

static void set_policy(struct options *o)
{
    o->rules.boost = o->policy != FIFO;
    o->rules.prefer_warm = o->policy == PREFER || o->policy == NOQUEUE;
    o->rules.sticky = o->policy == PREFER && o->rules.sticky_wait_us > 0;
    o->pods.gated = true;
    if (o->policy == NOQUEUE) {
        o->pods.inflight_limit = 1000000;
        o->scrape_us = 0;
    } else {
        o->pods.inflight_limit = o->regime.slots;
    }
    o->pods.stale_us = 3 * o->scrape_us;
}

static const char usage[] =
    "usage: queue_sim [option...]; times in seconds\n"
    "  --regime NAME    long-above long-below short-above short-below agents\n"
    "  --policy NAME    direct noqueue fifo off prefer (default prefer)\n"
    "  --sticky-wait S  default 10        --grace S          default 0\n"
    "  --max-overtakes N  default 32      --timeout S        wait limit, 0 = none (default)\n"
    "  --pods N --sessions N --slots N --kv-blocks N --prefill-rate N   instead of the regime's\n"
    "  --warm-order ORDER  newest (default), oldest or dropped-next completed turn first among the "
    "boosted\n"
    "  --fixed-wait     the sticky wait holds, whatever a warm prefix is worth\n"
    "  --tracked N      sessions the router remembers (default 4096)\n"
    "  --warmup S --seconds S   instead of the regime's   --seed N   default 1\n"
    "  --turn-us N      the router's loop takes the events of so many microseconds at a time\n";

static int64_t us_of(const char *text)
{
    return (int64_t)(strtod(text, NULL) * 1e6);
}

static bool wrong(const char *what, const char *text)
{
    return bench_wrong("queue_sim", what, text);
}

/* Its place among the names; n: none of them, which is said. */
static unsigned find_name(const char *what, const char *const *names, unsigned n, const char *name)
{
    unsigned i = 0;

    while (i < n && strcmp(names[i], name) != 0)
        i++;
    if (i == n)
        (void)wrong(what, name);
    return i;
}

static const struct option long_options[] = {
    {"regime", 1, NULL, 'r'},  {"policy", 1, NULL, 'p'},       {"sticky-wait", 1, NULL, 'w'},
    {"grace", 1, NULL, 'g'},   {"seed", 1, NULL, 's'},         {"max-overtakes", 1, NULL, 'o'},
    {"timeout", 1, NULL, 't'}, {"pods", 1, NULL, 'P'},         {"sessions", 1, NULL, 'S'},
    {"slots", 1, NULL, 'L'},   {"kv-blocks", 1, NULL, 'K'},    {"fixed-wait", 0, NULL, 'f'},
    {"tracked", 1, NULL, 'T'}, {"warmup", 1, NULL, 'W'},       {"seconds", 1, NULL, 'D'},
    {"turn-us", 1, NULL, 'u'}, {"prefill-rate", 1, NULL, 'R'}, {"warm-order", 1, NULL, 'O'},
    {NULL, 0, NULL, 0},
};

/* The regime comes first, whatever the order of the options, as others change it. */
static bool find_regime(int argc, char **argv, struct options *o)
{
    const char *name = "long-above";

    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (c == '?')
            return false;
        if (c == 'r')
            name = optarg;
    }
    if (optind < argc)
        return wrong("not an option: ", argv[optind]);
    if (workload_find(name) == NULL)
        return wrong("no such regime: ", name);
    o->regime = *workload_find(name);
    o->warmup_us = o->regime.warmup_s * US_PER_S;
    o->window_us = o->regime.window_s * US_PER_S;
    optind = 1;
    return true;
}

static unsigned number_of(const char *text)
{
    return (unsigned)strtoul(text, NULL, 10);
}

static bool set_option(struct options *o, int c)
{
    switch (c) {
    case 'p':
        o->policy = (enum order_policy)find_name("no such policy: ", policy_names, N_POLICIES, optarg);
        return o->policy < N_POLICIES;
    case 'O':
        o->order = (enum warm_order)find_name("no such order: ", order_names, N_ORDERS, optarg);
        return o->order < N_ORDERS;
    case 'w':
        o->rules.sticky_wait_us = us_of(optarg);
        break;
    case 'g':
        o->pods.grace_us = us_of(optarg);
        break;
    case 's':
        o->seed = number_of(optarg);
        break;
    case 'o':
        o->rules.max_overtakes = number_of(optarg);
        break;
    case 't':
        o->rules.timeout_us = us_of(optarg);
        break;
    case 'P':
        o->regime.pods = number_of(optarg);
        break;
    case 'S':
        o->regime.sessions = number_of(optarg);
        break;
    case 'L':
        o->regime.slots = number_of(optarg);
        break;
    case 'K':
        o->regime.kv_blocks = number_of(optarg);
        break;
    case 'R':
        o->regime.prefill_tokens_per_s = number_of(optarg);
        break;
    case 'f':
        o->fixed_wait = true;
        break;
    case 'T':
        o->rules.max_sessions = number_of(optarg);
        break;
    case 'W':
        o->warmup_us = us_of(optarg);
        break;
    case 'D':
        o->window_us = us_of(optarg);
        break;
    case 'u':
        o->turn_us = (int64_t)number_of(optarg);
        break;
    default:
        break;
    }
    return true;
}

static bool options_are_sane(const struct options *o)
{
    const struct workload_regime *w = &o->regime;
    const bool sane = w->pods > 0 && w->pods <= PODS_MAX && w->slots > 0 && w->sessions > 0 &&
                      w->kv_blocks > 0 && w->prefill_tokens_per_s > 0 && o->rules.max_overtakes > 0 &&
                      o->rules.max_sessions > 0 && o->window_us > 0 && o->rules.sticky_wait_us >= 0;
    char most[16];

    (void)snprintf(most, sizeof(most), "%d", PODS_MAX);
    return sane || wrong("numbers are above 0, --pods at most ", most);
}

static bool read_options(int argc, char **argv, struct options *o)
{
    if (!find_regime(argc, argv, o))
        return false;
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (!set_option(o, c))
            return false;
    }
    return options_are_sane(o);
}

int main(int argc, char **argv)
{
    static struct run r; /* its memory is in use until the end */

    r.o = (struct options){
        .policy = PREFER,
        .rules = {.sticky_wait_us = 10 * US_PER_S, .max_overtakes = 32, .max_sessions = 4096},
        .scrape_us = 1 * US_PER_S,
        .seed = 1};
    bench_help(argc, argv, usage);
    if (!read_options(argc, argv, &r.o)) {
        fputs(usage, stderr);
        return 2;
    }
    set_policy(&r.o);
    set_up(&r);
    play(&r);
    check_conservation(&r);
    print(&r);
    return 0;
}
