/* Bytes as a program for one queue with four lanes: each byte is an operation, some take the next one as
 * operand. After every operation the queue's inner order is checked: whatever is counted twice must agree. */
#include "boostq.h"

#include <stdio.h>
#include <stdlib.h>

#define N_LANES    4
#define N_ITEMS    64
#define N_SESSIONS 12
#define MAX_BYTES  4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct machine {
    struct boostq q;
    struct boostq_lane lanes[N_LANES];
    bool lane_in[N_LANES];
    struct boostq_item items[N_ITEMS];
    int64_t now_us;
    const uint8_t *code;
    size_t left;
};

#define CHECK(cond)                                                                                          \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                                 \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static uint8_t next_byte(struct machine *m)
{
    if (m->left == 0)
        return 0;
    m->left--;
    return *m->code++;
}

/* The last ids are longer than what is stored as it is. */
static struct slice session_of(uint8_t byte)
{
    static char ids[N_SESSIONS][400];
    size_t which = byte % (N_SESSIONS + 1);

    if (which == N_SESSIONS)
        return (struct slice){NULL, 0};
    memset(ids[which], (int)('a' + which), sizeof(ids[which]));
    return (struct slice){ids[which], which < 8 ? which + 1 : 300 + which};
}

/* ---- what must hold at any time ---- */

static size_t check_lane(const struct machine *m, const struct boostq_lane *lane)
{
    const struct boostq_item *last = NULL;
    uint64_t sum = 0, in_steps = 0;
    size_t n = 0;

    LIST_EACH(link, &lane->waiting)
    {
        const struct boostq_item *item = LIST_ITEM(link, struct boostq_item, in_lane);

        CHECK(item->where == BOOSTQ_BOOSTED && item->lane == lane && item->group != NULL);
        CHECK(last != NULL || lane->first_entered_us == item->entered_lane_us);
        CHECK(last == NULL || last->entry < item->entry);
        CHECK(last == NULL || boostq_overtaken(&m->q, last) >= boostq_overtaken(&m->q, item));
        CHECK((item->diff == 0) == list_empty(&item->by_step));
        sum += item->diff;
        last = item;
        n++;
    }
    LIST_EACH(link, &lane->steps)
    {
        in_steps += LIST_ITEM(link, struct boostq_item, by_step)->diff;
    }
    CHECK(n == lane->n && sum == lane->overtakes_total && in_steps == sum);
    CHECK((n == 0) == (lane->boosted.n == 0));
    CHECK(lane->open || n == 0);
    return n;
}

static void check_arrivals(const struct machine *m)
{
    const struct boostq_item *last = NULL, *oldest = boostq_oldest(&m->q);

    LIST_EACH(link, &m->q.arrivals)
    {
        const struct boostq_item *item = LIST_ITEM(link, struct boostq_item, by_arrival);

        CHECK(item->where != BOOSTQ_OUT);
        CHECK(last == NULL || (last->arrival < item->arrival && last->arrived_us <= item->arrived_us));
        CHECK(oldest->arrived_us <= item->arrived_us);
        last = item;
    }
    for (size_t i = 1; i <= m->q.late.n; i++) {
        const struct boostq_item *item = CONTAINER_OF(m->q.late.entries[i].node, struct boostq_item, by_late);

        CHECK(item->where != BOOSTQ_OUT && oldest->arrived_us <= item->arrived_us);
    }
}

/* Runs in ascending order of arrival, the first of each in the heap. */
static size_t check_forced(const struct machine *m)
{
    const struct boostq_item *last = m->q.last_forced;
    size_t n = 0;

    CHECK(last == NULL || heap_has(&LIST_ITEM(last->in_lane.next, struct boostq_item, in_lane)->by_forced));
    for (const struct boostq_item *i = boostq_head_forced(&m->q); i != NULL;
         i = boostq_next_forced(&m->q, i)) {
        CHECK(i->where == BOOSTQ_FORCED && i->forced);
        if (heap_has(&i->by_forced))
            CHECK(m->q.forced.entries[i->by_forced.at].key == i->arrival);
        else
            CHECK(LIST_ITEM(i->in_lane.prev, struct boostq_item, in_lane)->arrival < i->arrival);
        n++;
    }
    return n;
}

static void check_order(const struct boostq_item *item, void *arg)
{
    const struct boostq_item **last = arg;

    CHECK(*last == NULL || (boostq_before(*last, item) && !boostq_before(item, *last)));
    *last = item;
}

static void check(const struct machine *m)
{
    const struct boostq_stats *st = &m->q.stats;
    const struct boostq_item *last = NULL;
    size_t n = check_lane(m, &m->q.shared) + check_forced(m);

    for (size_t i = 0; i < N_LANES; i++)
        n += m->lane_in[i] ? check_lane(m, &m->lanes[i]) : 0;
    LIST_EACH(link, &m->q.fresh)
    {
        CHECK(LIST_ITEM(link, struct boostq_item, in_lane)->where == BOOSTQ_FRESH);
        n++;
    }
    CHECK(n == boostq_len(&m->q));
    CHECK(st->enqueued + st->requeued == st->dequeued + st->expired + st->abandoned + n);
    CHECK(m->q.tracker.n <= m->q.rules.max_sessions);
    CHECK(m->q.sessions.n <= n);
    CHECK(n > 0 || (m->q.sessions.n == 0 && m->q.fresh_overtakes == 0 && m->q.shared_passed == 0 &&
                    boostq_oldest(&m->q) == NULL));
    check_arrivals(m);
    boostq_each(&m->q, check_order, &last);
}

/* ---- operations ---- */

/* Of one that was moved here the wait limit counts from an earlier time. */
static void push(struct machine *m, uint8_t what)
{
    const int64_t since_us = what >= 128 && m->now_us > what ? m->now_us - what : m->now_us;
    struct boostq_item *item = &m->items[what % N_ITEMS];

    if (item->where != BOOSTQ_OUT)
        return;
    *item = (struct boostq_item){.session = session_of(next_byte(m))};
    boostq_push(&m->q, item, m->now_us, since_us);
}

/* The head of the lane if there is one, else of the shared lane, else the oldest plain one; forced before
 * all. */
static void take(struct machine *m, uint8_t what)
{
    size_t lane = what % N_LANES;
    struct boostq_item *item = boostq_head_forced(&m->q);

    boostq_force_due(&m->q, m->now_us);
    if (boostq_head_forced(&m->q) != NULL)
        item = boostq_head_forced(&m->q);
    if (item == NULL && m->lane_in[lane])
        item = boostq_head_boosted(&m->lanes[lane]);
    if (item == NULL)
        item = boostq_head_boosted(&m->q.shared);
    if (item == NULL)
        item = boostq_head_fresh(&m->q);
    if (item == NULL)
        return;
    boostq_take(&m->q, item);
    CHECK(item->where == BOOSTQ_OUT && item->overtaken <= m->q.rules.max_overtakes);
    if (what >= 128)
        boostq_requeue(&m->q, item);
}

static void lane_change(struct machine *m, uint8_t what)
{
    size_t i = what % N_LANES;

    if (!m->lane_in[i])
        boostq_add_lane(&m->q, &m->lanes[i], i + 1);
    else if (what < 64)
        boostq_remove_lane(&m->q, &m->lanes[i]);
    else if (m->lanes[i].open)
        boostq_close_lane(&m->q, &m->lanes[i]);
    else
        boostq_open_lane(&m->lanes[i]);
    m->lane_in[i] = m->lane_in[i] && what < 64 ? false : true;
}

static void advance(struct machine *m, uint8_t what)
{
    int64_t to_us = m->now_us + what, due_us = boostq_next_due_us(&m->q);

    if (due_us > to_us) {
        boostq_force_due(&m->q, m->now_us);
        CHECK(boostq_expire(&m->q, to_us) == NULL);
    }
    m->now_us = to_us;
    while (boostq_expire(&m->q, m->now_us) != NULL)
        ;
    boostq_force_due(&m->q, m->now_us);
    CHECK(boostq_next_due_us(&m->q) > m->now_us);
}

/* The bound stays, so that it can be checked. */
static struct boostq_rules rules_of(uint8_t what, unsigned max_overtakes)
{
    return (struct boostq_rules){.boost = true,
                                 .sticky = (what & 1) != 0,
                                 .sticky_wait_us = 1 + (what >> 1 & 31),
                                 .timeout_us = what & 64 ? 50 : 0,
                                 .max_overtakes = max_overtakes,
                                 .max_sessions = 1 + (what >> 5)};
}

static void step(struct machine *m)
{
    uint8_t op = next_byte(m), what = next_byte(m);
    struct boostq_rules rules;
    struct session_key key;

    switch (op % 8) {
    case 0:
    case 1:
        push(m, what);
        break;
    case 2:
    case 3:
        take(m, what);
        break;
    case 4:
        session_lru_key(&key, session_of(what));
        (void)boostq_mark(&m->q, &key, 1 + (op >> 3) % (N_LANES + 1), m->now_us);
        break;
    case 5:
        if (m->items[what % N_ITEMS].where != BOOSTQ_OUT)
            boostq_remove(&m->q, &m->items[what % N_ITEMS]);
        break;
    case 6:
        advance(m, what);
        break;
    default:
        rules = rules_of(what, m->q.rules.max_overtakes);
        if (op < 200)
            lane_change(m, what);
        else
            boostq_set_rules(&m->q, &rules);
    }
}

static void finish(struct machine *m)
{
    struct boostq_item *item;

    while ((item = boostq_oldest(&m->q)) != NULL)
        boostq_remove(&m->q, item);
    check(m);
    for (size_t i = 0; i < N_LANES; i++) {
        if (m->lane_in[i])
            boostq_remove_lane(&m->q, &m->lanes[i]);
    }
    boostq_free(&m->q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct machine m;
    struct boostq_rules rules;

    m = (struct machine){.code = data, .left = size < MAX_BYTES ? size : MAX_BYTES, .now_us = 1};
    rules = rules_of(next_byte(&m), 1 + next_byte(&m) % 8);
    boostq_init(&m.q, &rules, NULL);
    while (m.left > 0) {
        step(&m);
        check(&m);
    }
    finish(&m);
    return 0;
}
