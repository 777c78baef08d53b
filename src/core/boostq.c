/* boostq: who goes first. It owns lanes, groups, ranks, overtake counts and the tracker; requests belong to
 * the caller, and whether a pod has room is for admit.
 *
 * Overtake counts. In one lane every admission overtakes all boosted requests that entered before the
 * admitted one: a whole prefix of `waiting`. So counts never rise along the list, and a request holds only
 * the difference `diff` between its own count and that of the next one: its count is the sum of diff from
 * itself to the end. Admitting X gives 1 + diff(X) to its predecessor, and whoever leaves otherwise gives it
 * diff. The first one has the largest count, overtakes_total, and is the only one to compare with the bound.
 * As all diff add up to at most the bound, few requests have one at all; these are linked in `steps`, which
 * makes any exact count cheap. What pod lanes admit past the shared one is counted for the oldest of the
 * shared lane alone (shared_passed): that needs no differences. */
#include "boostq.h"
#include "mem.h"

#include <assert.h>
#include <stdlib.h>

/* One cache line. */
struct boostq_session {
    _Alignas(64) struct htab_node by_id;
    uint64_t check; /* with the hash in by_id: the session's key */
    struct heap_node
        by_rank; /* in lane->boosted while it has a group: boosted requests that are not forced */
    uint32_t n;  /* waiting requests, the forced ones too */
    struct boostq_lane *lane; /* of the group; NULL: there is none */
    /* Those that are not forced, by arrival: first the group, which is in order of entry then, too; behind it
     * the ones that are not boosted. */
    struct list waiting;
    uint64_t completed; /* number of the session's last completed turn */
    uint64_t warm_pod_id;
};
static_assert(sizeof(struct boostq_session) == 64, "more lines to load");

static struct boostq_item *item_in_lane(struct list *link)
{
    return LIST_ITEM(link, struct boostq_item, in_lane);
}

static struct boostq_item *item_forced(struct heap_node *node)
{
    return CONTAINER_OF(node, struct boostq_item, by_forced);
}

static struct boostq_item *item_in_session(struct list *link)
{
    return LIST_ITEM(link, struct boostq_item, in_session);
}

static struct boostq_item *item_by_step(struct list *link)
{
    return LIST_ITEM(link, struct boostq_item, by_step);
}

/* The heap's smallest key goes first, the largest completion number shall. */
static uint64_t rank_key(const struct boostq_session *s)
{
    return ~s->completed;
}

/* ---- sessions with waiting requests ---- */

static bool session_is(const struct htab_node *node, const void *key)
{
    const struct boostq_session *s = (const struct boostq_session *)(const void *)node;
    const struct session_key *k = key;

    return s->check == k->check;
}

static struct boostq_session *session_find(const struct boostq *q, const struct session_key *key)
{
    struct htab_node *node = htab_find(&q->sessions, key->hash, session_is, key);

    return node == NULL ? NULL : CONTAINER_OF(node, struct boostq_session, by_id);
}

static struct boostq_session *session_new(struct boostq *q, const struct session_key *key)
{
    struct boostq_session *s = pool_get(&q->session_pool);

    s->check = key->check;
    s->by_rank = (struct heap_node){0};
    s->lane = NULL;
    list_init(&s->waiting);
    htab_add(&q->sessions, &s->by_id, key->hash);
    return s;
}

/* Makes the item one of its session's waiting requests. Returns whether the session is tracked. Both places
 * that may know it are loaded before either is looked at; where the session waits already, the tracker's is
 * not needed. */
static bool session_join(struct boostq *q, struct boostq_item *item)
{
    const struct session_entry *tracked;
    struct boostq_session *s;

    session_lru_key(&item->key, item->session);
    htab_prefetch(&q->sessions, item->key.hash);
    session_lru_prefetch(&q->tracker, &item->key);
    s = item->group = session_find(q, &item->key);
    if (s != NULL) {
        s->n++;
        return session_lru_keeps(&q->tracker, s->completed);
    }
    tracked = session_lru_find(&q->tracker, &item->key);
    s = item->group = session_new(q, &item->key);
    s->n = 1;
    s->completed = tracked == NULL ? 0 : tracked->completed;
    s->warm_pod_id = q->rules.pinned ? item->pinned_pod_id : tracked == NULL ? 0 : tracked->pod_id;
    return tracked != NULL;
}

static void session_leave(struct boostq *q, struct boostq_item *item)
{
    struct boostq_session *s = item->group;

    item->group = NULL;
    if (s == NULL)
        return;
    item->warm_pod_id = s->warm_pod_id;
    if (--s->n > 0)
        return;
    htab_remove(&q->sessions, &s->by_id);
    pool_put(&q->session_pool, s);
}

/* ---- lanes and overtake counts ---- */

static void lane_init(struct boostq_lane *lane, uint64_t pod_id)
{
    *lane = (struct boostq_lane){.pod_id = pod_id, .open = true};
    list_init(&lane->waiting);
    list_init(&lane->steps);
    list_init(&lane->link);
}

static void lane_enter(struct boostq *q, struct boostq_lane *lane, struct boostq_item *item)
{
    item->lane = lane;
    item->entry = ++q->last_entry;
    item->diff = 0;
    list_push_back(&lane->waiting, &item->in_lane);
    if (lane->n++ == 0)
        lane->first_entered_us = item->entered_lane_us;
}

static unsigned lane_count(struct boostq_lane *lane, const struct boostq_item *item)
{
    unsigned sum = 0;

    for (struct list *at = lane->steps.prev; at != &lane->steps; at = at->prev) {
        if (item_by_step(at)->entry < item->entry)
            break;
        sum += item_by_step(at)->diff;
    }
    return sum;
}

static void lane_add_diff(struct boostq_lane *lane, struct boostq_item *item, unsigned diff)
{
    struct list *at = lane->steps.prev;

    if (item->diff == 0) {
        while (at != &lane->steps && item_by_step(at)->entry > item->entry)
            at = at->prev;
        list_insert_before(at->next, &item->by_step);
    }
    item->diff += diff;
}

static void lane_leave(struct boostq_lane *lane, struct boostq_item *item, bool admitted)
{
    struct list *prev = item->in_lane.prev;
    unsigned diff = item->diff + (admitted ? 1 : 0);

    if (item->diff > 0)
        list_del(&item->by_step);
    if (prev == &lane->waiting) {
        lane->overtakes_total -= item->diff;
    } else if (diff > 0) {
        lane_add_diff(lane, item_in_lane(prev), diff);
        lane->overtakes_total += diff - item->diff;
    }
    item->diff = 0;
    list_del(&item->in_lane);
    if (--lane->n > 0 && prev == &lane->waiting)
        lane->first_entered_us = item_in_lane(prev->next)->entered_lane_us;
}

static struct boostq_lane *lane_for(struct boostq *q, uint64_t pod_id)
{
    if (!q->rules.sticky || q->wait_us == 0)
        return &q->shared;
    LIST_EACH(link, &q->lanes)
    {
        struct boostq_lane *lane = LIST_ITEM(link, struct boostq_lane, link);

        if (lane->pod_id == pod_id)
            return lane->open ? lane : &q->shared;
    }
    return &q->shared;
}

/* Moves all groups and their requests to the end of the shared lane; there they start to count anew. */
static void lane_empty(struct boostq *q, struct boostq_lane *lane)
{
    while (lane->boosted.n > 0) {
        struct heap_node *node = lane->boosted.entries[lane->boosted.n].node;
        struct boostq_session *s = CONTAINER_OF(node, struct boostq_session, by_rank);

        heap_remove(&lane->boosted, node);
        heap_push(&q->shared.boosted, node, rank_key(s));
        s->lane = &q->shared;
    }
    while (lane->n > 0) {
        struct boostq_item *item = item_in_lane(lane->waiting.next);

        lane_leave(lane, item, false);
        lane_enter(q, &q->shared, item);
    }
}

void boostq_add_lane(struct boostq *q, struct boostq_lane *lane, uint64_t pod_id)
{
    lane_init(lane, pod_id);
    list_push_back(&q->lanes, &lane->link);
}

void boostq_close_lane(struct boostq *q, struct boostq_lane *lane)
{
    lane->open = false;
    lane_empty(q, lane);
}

void boostq_open_lane(struct boostq_lane *lane)
{
    lane->open = true;
}

void boostq_remove_lane(struct boostq *q, struct boostq_lane *lane)
{
    boostq_close_lane(q, lane);
    list_del(&lane->link);
    heap_free(&lane->boosted);
}

/* ---- entering and leaving the three kinds of waiting ---- */

static void enter_fresh(struct boostq *q, struct boostq_item *item)
{
    item->where = BOOSTQ_FRESH;
    item->lane = &q->shared;
    list_push_back(&q->fresh, &item->in_lane);
    if (q->fair != NULL)
        fairq_enter(&q->line, &item->fair, item->arrival);
}

static void leave_fresh(struct boostq *q, struct boostq_item *item)
{
    if (item->in_lane.prev == &q->fresh)
        q->fresh_overtakes = 0; /* the next oldest starts to count now */
    list_del(&item->in_lane);
    if (q->fair != NULL)
        fairq_leave(&item->fair);
}

/* The item stands in its session's list already. */
static void enter_boosted(struct boostq *q, struct boostq_item *item, int64_t now_us)
{
    struct boostq_session *s = item->group;

    if (s->lane == NULL) {
        s->lane = lane_for(q, s->warm_pod_id);
        heap_push(&s->lane->boosted, &s->by_rank, rank_key(s));
    }
    item->where = BOOSTQ_BOOSTED;
    item->boosted = true;
    item->entered_lane_us = now_us;
    lane_enter(q, s->lane, item);
}

/* The oldest boosted request of the shared lane. */
static bool is_first_shared(const struct boostq *q, const struct boostq_item *item)
{
    return item->where == BOOSTQ_BOOSTED && item->in_lane.prev == &q->shared.waiting;
}

/* No other boosted one stands in its session's list. */
static bool is_last_of_group(const struct boostq_item *item)
{
    const struct list *all = &item->group->waiting;

    return item->in_session.prev == all &&
           (item->in_session.next == all || item_in_session(item->in_session.next)->where == BOOSTQ_FRESH);
}

/* It still stands in its session's list. */
static void leave_boosted(struct boostq *q, struct boostq_item *item, bool admitted)
{
    struct boostq_session *s = item->group;

    if (is_first_shared(q, item))
        q->shared_passed = 0; /* the next oldest starts to count now */
    lane_leave(s->lane, item, admitted);
    if (!is_last_of_group(item))
        return;
    heap_remove(&s->lane->boosted, &s->by_rank);
    s->lane = NULL;
}

/* At the end of the last run if it arrived later than all of that, else a run of its own. */
static void enter_forced(struct boostq *q, struct boostq_item *item)
{
    struct boostq_item *last = q->last_forced;

    item->where = BOOSTQ_FORCED;
    item->lane = &q->shared;
    item->forced = true;
    if (last != NULL && last->arrival < item->arrival)
        list_insert_before(last->in_lane.next, &item->in_lane); /* a ring: the first follows the last */
    else
        heap_push(&q->forced, &item->by_forced, item->arrival);
    q->last_forced = item;
}

/* The next of the run takes its place. When it leaves itself, what it needs then shall be there. */
static void leave_run_to(struct boostq *q, struct boostq_item *item, struct boostq_item *next)
{
    __builtin_prefetch(next->group, 1);
    __builtin_prefetch(next->in_lane.next, 1);
    __builtin_prefetch(&item_in_lane(next->in_lane.next)->arrival, 1);
    heap_replace(&q->forced, &item->by_forced, &next->by_forced, next->arrival);
}

static void leave_forced(struct boostq *q, struct boostq_item *item)
{
    struct boostq_item *next = item_in_lane(item->in_lane.next);

    if (item == q->last_forced)
        q->last_forced = next == item ? NULL : item_in_lane(item->in_lane.prev);
    if (heap_has(&item->by_forced) && next != item)
        leave_run_to(q, item, next);
    else if (heap_has(&item->by_forced))
        heap_remove(&q->forced, &item->by_forced);
    list_del(&item->in_lane);
}

static void count(struct boostq *q, int more)
{
    q->n += (size_t)more;
    q->name->n += (size_t)more;
}

/* ---- entering and leaving the order of the wait limit ---- */

static struct boostq_item *item_by_late(const struct heap_node *node)
{
    return CONTAINER_OF(node, struct boostq_item, by_late);
}

static bool arrived_before(const struct boostq_item *a, const struct boostq_item *b)
{
    return a->arrived_us != b->arrived_us ? a->arrived_us < b->arrived_us : a->arrival < b->arrival;
}

static bool late_before_when_equal(const struct heap_node *a, const struct heap_node *b)
{
    return item_by_late(a)->arrival < item_by_late(b)->arrival;
}

static void enter_late(struct boostq *q, struct boostq_item *item)
{
    heap_push(&q->late, &item->by_late, (uint64_t)item->arrived_us);
}

static void enter_arrivals(struct boostq *q, struct boostq_item *item)
{
    if (item->arrived_us < q->last_arrived_us) {
        enter_late(q, item);
        return;
    }
    q->last_arrived_us = item->arrived_us;
    list_push_back(&q->arrivals, &item->by_arrival);
}

static void leave_arrivals(struct boostq *q, struct boostq_item *item)
{
    if (list_empty(&item->by_arrival))
        heap_remove(&q->late, &item->by_late);
    else
        list_del(&item->by_arrival);
}

static void leave(struct boostq *q, struct boostq_item *item, bool admitted)
{
    assert(item->where != BOOSTQ_OUT);
    if (item->where == BOOSTQ_FRESH)
        leave_fresh(q, item);
    else if (item->where == BOOSTQ_BOOSTED)
        leave_boosted(q, item, admitted);
    else
        leave_forced(q, item);
    list_del(&item->in_session);
    item->where = BOOSTQ_OUT;
    item->lane = NULL;
    leave_arrivals(q, item);
    session_leave(q, item);
    count(q, -1);
}

static void force(struct boostq *q, struct boostq_item *item)
{
    item->overtaken = boostq_overtaken(q, item);
    if (item->where == BOOSTQ_FRESH)
        leave_fresh(q, item);
    else
        leave_boosted(q, item, false);
    list_del(&item->in_session);
    enter_forced(q, item);
}

/* ---- life ---- */

static struct boostq_name *name_ref(struct boostq_name *name, const struct boostq_rules *rules)
{
    if (name == NULL) {
        name = mem_zalloc(sizeof(*name));
        name->fair = rules->fair ? fairq_new(&rules->fairness) : NULL;
    }
    name->refs++;
    return name;
}

static void name_unref(struct boostq_name *name)
{
    if (--name->refs > 0)
        return;
    if (name->fair != NULL)
        fairq_free(name->fair);
    mem_free(name);
}

void boostq_init(struct boostq *q, const struct boostq_rules *rules, struct boostq_name *name)
{
    *q = (struct boostq){.rules = *rules, .name = name_ref(name, rules), .wait_us = rules->sticky_wait_us};
    q->fair = q->name->fair;
    fairq_line_init(&q->line, q->fair);
    session_lru_init(&q->tracker, rules->max_sessions);
    lane_init(&q->shared, 0);
    list_init(&q->lanes);
    list_init(&q->fresh);
    list_init(&q->arrivals);
    q->late.before_when_equal = late_before_when_equal;
    htab_init(&q->sessions, 0);
    pool_init(&q->session_pool, sizeof(struct boostq_session));
}

void boostq_free(struct boostq *q)
{
    assert(q->n == 0);
    fairq_line_free(&q->line);
    name_unref(q->name);
    session_lru_free(&q->tracker);
    heap_free(&q->shared.boosted);
    heap_free(&q->forced);
    heap_free(&q->late);
    htab_free(&q->sessions);
    pool_free(&q->session_pool);
}

void boostq_set_rules(struct boostq *q, const struct boostq_rules *rules)
{
    const bool boost = q->rules.boost, fair = q->rules.fair;

    q->rules = *rules;
    q->rules.boost = boost;
    q->rules.fair = fair;
    if (q->fair != NULL)
        fairq_set_rules(q->fair, &rules->fairness);
    q->wait_us = rules->sticky_wait_us;
    session_lru_resize(&q->tracker, rules->max_sessions);
    if (rules->sticky)
        return;
    LIST_EACH(link, &q->lanes)
    {
        lane_empty(q, LIST_ITEM(link, struct boostq_lane, link));
    }
}

void boostq_bound_wait(struct boostq *q, int64_t worth_us)
{
    q->wait_us =
        worth_us < q->rules.sticky_wait_us && !q->rules.fixed_wait ? worth_us : q->rules.sticky_wait_us;
}

/* ---- arriving ---- */

static void item_reset(struct boostq_item *item)
{
    list_init(&item->by_arrival);
    list_init(&item->in_lane);
    list_init(&item->in_session);
    list_init(&item->by_step);
    item->group = NULL;
    item->by_forced = (struct heap_node){0};
    item->by_late = (struct heap_node){0};
    item->diff = 0;
}

void boostq_push(struct boostq *q, struct boostq_item *item, int64_t now_us, int64_t since_us)
{
    bool tracked;

    assert(item->where == BOOSTQ_OUT);
    item_reset(item);
    item->arrived_us = since_us;
    item->arrival = ++q->name->last_arrival;
    item->boosted = item->forced = false;
    item->overtaken = 0;
    item->warm_pod_id = q->rules.pinned ? item->pinned_pod_id : 0;
    enter_arrivals(q, item);
    count(q, 1);
    q->stats.enqueued++;
    if (!q->rules.boost || item->session.n == 0) {
        enter_fresh(q, item);
        return;
    }
    tracked = session_join(q, item);
    list_push_back(&item->group->waiting, &item->in_session);
    if (tracked)
        enter_boosted(q, item, now_us);
    else
        enter_fresh(q, item);
}

void boostq_force(struct boostq *q, struct boostq_item *item)
{
    assert(item->where == BOOSTQ_FRESH || item->where == BOOSTQ_BOOSTED);
    force(q, item);
}

void boostq_requeue(struct boostq *q, struct boostq_item *item)
{
    assert(item->where == BOOSTQ_OUT);
    item_reset(item);
    enter_late(q, item);
    count(q, 1);
    q->stats.requeued++;
    if (q->rules.boost && item->session.n > 0)
        session_join(q, item);
    enter_forced(q, item);
}

/* ---- completions ---- */

/* Behind the group, in order of arrival. */
static struct list *first_fresh(struct boostq_session *s)
{
    struct list *at = &s->waiting;

    while (at->prev != &s->waiting && item_in_session(at->prev)->where == BOOSTQ_FRESH)
        at = at->prev;
    return at;
}

static size_t promote(struct boostq *q, struct boostq_session *s, int64_t now_us)
{
    size_t n = 0;

    for (struct list *at = first_fresh(s); at != &s->waiting; at = at->next) {
        struct boostq_item *item = item_in_session(at);

        leave_fresh(q, item);
        enter_boosted(q, item, now_us);
        n++;
        if (q->on_promoted != NULL)
            q->on_promoted(item, q->on_promoted_arg);
    }
    q->stats.promoted += n;
    return n;
}

size_t boostq_mark(struct boostq *q, const struct session_key *key, uint64_t pod_id, int64_t now_us)
{
    struct boostq_session *s;

    if (!q->rules.boost)
        return 0;
    s = session_find(q, key);
    if (s == NULL) {
        session_lru_mark(&q->tracker, key, pod_id, now_us);
        return 0;
    }
    s->completed = session_lru_mark(&q->tracker, key, pod_id, now_us)->completed;
    s->warm_pod_id = pod_id;
    if (s->lane != NULL)
        heap_rekey(&s->lane->boosted, &s->by_rank, rank_key(s));
    return promote(q, s, now_us);
}

/* ---- time ---- */

struct boostq_item *boostq_oldest(const struct boostq *q)
{
    struct list *link = list_first(&q->arrivals);
    struct boostq_item *item = link == NULL ? NULL : LIST_ITEM(link, struct boostq_item, by_arrival);
    struct boostq_item *late = q->late.n == 0 ? NULL : item_by_late(heap_min(&q->late));

    return item == NULL || (late != NULL && arrived_before(late, item)) ? late : item;
}

struct boostq_item *boostq_expire(struct boostq *q, int64_t now_us)
{
    struct boostq_item *item = q->rules.timeout_us > 0 ? boostq_oldest(q) : NULL;

    if (item == NULL || now_us < item->arrived_us + q->rules.timeout_us)
        return NULL;
    item->overtaken = boostq_overtaken(q, item);
    leave(q, item, false);
    q->stats.expired++;
    return item;
}

/* The first one has the largest count. */
static uint64_t most_overtaken(const struct boostq *q, const struct boostq_lane *lane)
{
    return lane->overtakes_total + (lane == &q->shared ? q->shared_passed : 0);
}

static void force_overtaken(struct boostq *q, struct boostq_lane *lane)
{
    while (lane->n > 0 && most_overtaken(q, lane) >= q->rules.max_overtakes) {
        force(q, item_in_lane(lane->waiting.next));
        q->stats.forced_by_overtakes++;
    }
}

static int64_t sticky_due_us(const struct boostq *q, const struct boostq_lane *lane)
{
    return lane->n == 0 ? INT64_MAX : lane->first_entered_us + q->wait_us;
}

void boostq_force_due(struct boostq *q, int64_t now_us)
{
    force_overtaken(q, &q->shared);
    LIST_EACH(link, &q->lanes)
    {
        struct boostq_lane *lane = LIST_ITEM(link, struct boostq_lane, link);

        force_overtaken(q, lane);
        while (now_us >= sticky_due_us(q, lane)) {
            force(q, item_in_lane(lane->waiting.next));
            q->stats.forced_by_sticky_wait++;
        }
    }
    if (q->fresh_overtakes >= q->rules.max_overtakes) {
        force(q, item_in_lane(q->fresh.next));
        q->stats.forced_by_overtakes++;
    }
}

int64_t boostq_next_due_us(const struct boostq *q)
{
    const struct boostq_item *oldest = q->rules.timeout_us > 0 ? boostq_oldest(q) : NULL;
    int64_t due_us = oldest == NULL ? INT64_MAX : oldest->arrived_us + q->rules.timeout_us;

    LIST_EACH(link, &q->lanes)
    {
        int64_t lane_due_us = sticky_due_us(q, LIST_ITEM(link, struct boostq_lane, link));

        if (lane_due_us < due_us)
            due_us = lane_due_us;
    }
    return due_us;
}

/* ---- leaving ---- */

void boostq_remove(struct boostq *q, struct boostq_item *item)
{
    item->overtaken = boostq_overtaken(q, item);
    leave(q, item, false);
    q->stats.abandoned++;
}

/* Whether the oldest of the list, q->fresh or a lane's waiting ones, arrived before the item. */
static bool overtakes_first(const struct list *list, const struct boostq_item *item)
{
    return !list_empty(list) && item_in_lane(list->next)->arrival < item->arrival;
}

static void count_passed(struct boostq *q, const struct boostq_item *item)
{
    if (overtakes_first(&q->fresh, item))
        q->fresh_overtakes++;
    if (item->lane != &q->shared && overtakes_first(&q->shared.waiting, item))
        q->shared_passed++;
}

void boostq_passed(struct boostq *q, const struct boostq_item *item)
{
    if (item->where != BOOSTQ_FORCED && overtakes_first(&q->fresh, item))
        q->fresh_overtakes++;
}

const struct boostq_item *boostq_upcoming(const struct boostq *q, const struct boostq_lane *lane)
{
    const struct boostq_item *next = boostq_head_forced(q);

    if (next == NULL)
        next = boostq_head_boosted(lane);
    return next != NULL ? next : boostq_head_fresh(q);
}

/* Starts to load what the admission of the next one touches of it: other work comes between. */
static void expect_next(const struct boostq *q, const struct boostq_lane *lane)
{
    const struct boostq_item *next = boostq_upcoming(q, lane);

    if (next == NULL)
        return;
    __builtin_prefetch(&next->by_forced, 1);
    __builtin_prefetch(&next->entered_lane_us, 1);
}

/* Starts to load what the item's departure will touch besides itself: these misses then take place together.
 */
static void expect_leave(const struct boostq *q, const struct boostq_item *item)
{
    if (item->group != NULL)
        htab_prefetch(&q->sessions, item->group->by_id.hash);
    __builtin_prefetch(item->in_lane.prev, 1);
    __builtin_prefetch(item->in_lane.next, 1);
    __builtin_prefetch(item->by_arrival.prev, 1);
    __builtin_prefetch(item->by_arrival.next, 1);
}

void boostq_take(struct boostq *q, struct boostq_item *item)
{
    struct boostq_lane *lane = item->lane;

    expect_leave(q, item);
    item->overtaken = boostq_overtaken(q, item);
    if (item->where != BOOSTQ_FORCED)
        count_passed(q, item);
    q->stats.dequeued++;
    q->stats.dequeued_boosted += item->boosted;
    q->stats.dequeued_forced += item->forced;
    leave(q, item, true);
    expect_next(q, lane);
}

void boostq_stats_add(struct boostq_stats *to, const struct boostq_stats *more)
{
    to->enqueued += more->enqueued;
    to->requeued += more->requeued;
    to->dequeued += more->dequeued;
    to->dequeued_boosted += more->dequeued_boosted;
    to->dequeued_forced += more->dequeued_forced;
    to->promoted += more->promoted;
    to->forced_by_overtakes += more->forced_by_overtakes;
    to->forced_by_sticky_wait += more->forced_by_sticky_wait;
    to->expired += more->expired;
    to->abandoned += more->abandoned;
}

/* ---- looking ---- */

struct boostq_item *boostq_head_forced(const struct boostq *q)
{
    struct heap_node *first = heap_min(&q->forced);

    return first == NULL ? NULL : item_forced(first);
}

struct boostq_item *boostq_next_forced(const struct boostq *q, const struct boostq_item *item)
{
    struct boostq_item *next = item_in_lane(item->in_lane.next);

    if (!heap_has(&next->by_forced))
        return next;
    return next->by_forced.at == q->forced.n ? NULL
                                             : item_forced(q->forced.entries[next->by_forced.at + 1].node);
}

struct boostq_item *boostq_head_boosted(const struct boostq_lane *lane)
{
    struct heap_node *node = heap_min(&lane->boosted);

    if (node == NULL)
        return NULL;
    return item_in_session(CONTAINER_OF(node, struct boostq_session, by_rank)->waiting.next);
}

struct boostq_item *boostq_head_fresh(const struct boostq *q)
{
    struct list *link = list_first(&q->fresh);

    if (link == NULL)
        return NULL;
    return q->fair == NULL ? item_in_lane(link)
                           : CONTAINER_OF(fairq_head(&q->line), struct boostq_item, fair);
}

bool boostq_before(const struct boostq_item *a, const struct boostq_item *b)
{
    if (a->where != b->where)
        return a->where > b->where; /* the enum is in order of rank */
    if (a->where == BOOSTQ_BOOSTED && a->group != b->group)
        return a->group->completed > b->group->completed;
    if (a->fair.place != NULL)
        return fairq_before(&a->fair, &b->fair);
    return a->arrival < b->arrival;
}

uint64_t boostq_warm_pod(const struct boostq *q, const struct boostq_item *item)
{
    if (!q->rules.prefer_warm && !q->rules.sticky)
        return 0;
    return item->group != NULL ? item->group->warm_pod_id : item->warm_pod_id;
}

unsigned boostq_overtaken(const struct boostq *q, const struct boostq_item *item)
{
    if (item->where == BOOSTQ_BOOSTED)
        return lane_count(item->lane, item) + (is_first_shared(q, item) ? q->shared_passed : 0);
    if (item->where == BOOSTQ_FRESH)
        return item->in_lane.prev == &q->fresh ? q->fresh_overtakes : 0;
    return item->overtaken;
}

static int compare_rank(const void *a, const void *b)
{
    const struct boostq_item *const *x = a, *const *y = b;

    return boostq_before(*x, *y) ? -1 : boostq_before(*y, *x) ? 1 : 0;
}

static size_t gather_lane(const struct boostq_lane *lane, const struct boostq_item **items)
{
    size_t n = 0;

    LIST_EACH(link, &lane->waiting)
    {
        items[n++] = item_in_lane(link);
    }
    return n;
}

static size_t gather(const struct boostq *q, const struct boostq_item **items)
{
    size_t n = gather_lane(&q->shared, items);

    LIST_EACH(link, &q->lanes)
    {
        n += gather_lane(LIST_ITEM(link, struct boostq_lane, link), items + n);
    }
    for (const struct boostq_item *i = boostq_head_forced(q); i != NULL; i = boostq_next_forced(q, i))
        items[n++] = i;
    LIST_EACH(link, &q->fresh)
    {
        items[n++] = item_in_lane(link);
    }
    return n;
}

void boostq_each(const struct boostq *q, void (*fn)(const struct boostq_item *item, void *arg), void *arg)
{
    const struct boostq_item **items = mem_array(NULL, q->n, sizeof(*items));
    size_t n = gather(q, items);

    qsort(items, n, sizeof(*items), compare_rank);
    for (size_t i = 0; i < n; i++)
        fn(items[i], arg);
    mem_free(items);
}
