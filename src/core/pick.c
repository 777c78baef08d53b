/* pick: which pod. It owns the order of preference and reads everything else; it takes no slot and changes
 * nothing. */
#include "pick.h"

static bool has_tried(const struct admit_item *item, const struct model_target *t)
{
    for (unsigned i = 0; i < item->n_tried && i < ADMIT_TRIED_MAX; i++) {
        if (item->tried[i] == t->pod->id)
            return true;
    }
    return false;
}

bool pick_any_untried(const struct model *m, const struct admit_item *item)
{
    for (size_t i = 0; i < m->n_targets; i++) {
        if (m->targets[i]->usable && !has_tried(item, m->targets[i]))
            return true;
    }
    return false;
}

/* 0 for a number that is missing (NAN) or stale. */
static double opinion(double number, bool stale)
{
    return !stale && number > 0 ? number : 0;
}

static bool better(const struct pod *a, const struct pod *b, const struct pod_rules *rules, int64_t now_us)
{
    bool stale_a = pod_numbers_stale(a, rules, now_us), stale_b = pod_numbers_stale(b, rules, now_us);
    double waiting_a = opinion(a->numbers.waiting, stale_a), waiting_b = opinion(b->numbers.waiting, stale_b);

    if (a->in_flight != b->in_flight)
        return a->in_flight < b->in_flight;
    if (waiting_a < waiting_b || waiting_a > waiting_b)
        return waiting_a < waiting_b;
    return opinion(a->numbers.kv_usage, stale_a) < opinion(b->numbers.kv_usage, stale_b);
}

/* The target whose turn is i turns away. The division is needed only after targets went away. */
static struct model_target *in_turn(const struct model *m, size_t i)
{
    size_t at = m->next_tie + i;

    if (at >= m->n_targets)
        at -= m->n_targets;
    return m->targets[at < m->n_targets ? at : at % m->n_targets];
}

/* One choice: for whom, and by what. */
struct choice {
    struct model *m;
    const struct admit_item *item;
    const struct pod_rules *rules;
    int64_t now_us;
    bool heed_tried;
    uint64_t warm_pod_id;
};

/* Inside each loop: asked of every pod in every choice. */
static inline __attribute__((always_inline)) bool is_candidate(const struct choice *c,
                                                               const struct model_target *t)
{
    return model_target_room(t, c->rules, c->now_us) == POD_ROOM && !(c->heed_tried && has_tried(c->item, t));
}

static struct model_target *pick_in_order(const struct choice *c)
{
    struct model_target *best = NULL;

    for (size_t i = 0; i < c->m->n_targets; i++) {
        struct model_target *t = in_turn(c->m, i);

        if (!is_candidate(c, t))
            continue;
        if (t->pod->id == c->warm_pod_id)
            return t;
        if (best == NULL || better(t->pod, best->pod, c->rules, c->now_us))
            best = t;
    }
    return best;
}

/* ---- by a policy ---- */

static struct policy_pod judge(const struct choice *c, const struct model_target *t)
{
    const struct pod *p = t->pod;
    const bool stale = pod_numbers_stale(p, c->rules, c->now_us);
    struct policy_pod judged = {.in_flight = p->in_flight,
                                .waiting = opinion(p->numbers.waiting, stale),
                                .kv_usage = opinion(p->numbers.kv_usage, stale),
                                .ttft_s = pod_average_s(&p->ttft, c->now_us),
                                .tpot_s = pod_average_s(&p->tpot, c->now_us),
                                .tried = pod_was_tried(p, c->now_us)};

    if (t->prefix != NULL && c->item->prefix != NULL)
        judged.matched = (double)prefix_store_match(t->prefix, c->item->prefix) / c->item->prefix->n;
    return judged;
}

/* In the order of turns, from 0. There are more than n. */
static struct model_target *nth_candidate(const struct choice *c, size_t n)
{
    for (size_t i = 0;; i++) {
        struct model_target *t = in_turn(c->m, i);

        if (is_candidate(c, t) && n-- == 0)
            return t;
    }
}

static struct model_target *pick_by_policy(const struct choice *c)
{
    struct model *m = c->m;
    size_t n = 0;

    for (size_t i = 0; i < m->n_targets; i++) {
        struct model_target *t = in_turn(m, i);

        if (!is_candidate(c, t))
            continue;
        if (t->pod->id == c->warm_pod_id)
            return t;
        m->judged[n++] = judge(c, t);
    }
    return n == 0 ? NULL : nth_candidate(c, policy_choose(&m->policy, m->judged, n, &m->dice));
}

struct model_target *pick_target(struct model *m, const struct admit_item *item,
                                 const struct pod_rules *rules, int64_t now_us)
{
    const struct choice c = {.m = m,
                             .item = item,
                             .rules = rules,
                             .now_us = now_us,
                             .heed_tried = item->n_tried > 0 && pick_any_untried(m, item),
                             .warm_pod_id = boostq_warm_pod(&m->q, &item->queue)};

    return m->policy.kind == POLICY_UNSET ? pick_in_order(&c) : pick_by_policy(&c);
}
