/* admit: joins the ranks of boostq with the room of the pods. It owns the turns between models, the choice
 * between the queues of a name that is fair between its users, and the gate-closed accounts; the order inside
 * a queue is boostq's, the choice among pods pick's. */
#include "admit.h"
#include "mem.h"
#include "pick.h"

#include <assert.h>

struct candidate {
    struct model *model;
    struct boostq_item *item;
    struct model_target *target;
};

/* Behind those of its name. */
static size_t place_for(const struct admit *a, const struct model *m)
{
    for (size_t i = a->n_models; i > 0 && m->q.name->refs > 1; i--) {
        if (a->models[i - 1]->q.name == m->q.name)
            return i;
    }
    return a->n_models;
}

void admit_add_model(struct admit *a, struct model *m)
{
    const size_t at = place_for(a, m);

    if (a->n_models == a->cap_models) {
        a->cap_models = a->cap_models > 0 ? a->cap_models * 2 : 4;
        a->models = mem_array(a->models, a->cap_models, sizeof(*a->models));
    }
    for (size_t i = a->n_models++; i > at; i--)
        a->models[i] = a->models[i - 1];
    a->models[at] = m;
}

void admit_remove_model(struct admit *a, struct model *m)
{
    size_t i = 0;

    while (i < a->n_models && a->models[i] != m)
        i++;
    assert(i < a->n_models);
    for (a->n_models--; i < a->n_models; i++)
        a->models[i] = a->models[i + 1];
}

void admit_free(struct admit *a)
{
    mem_free(a->models);
    *a = (struct admit){0};
}

static struct admit_item *admit_item_of(struct boostq_item *item)
{
    return CONTAINER_OF(item, struct admit_item, queue);
}

/* ---- one model's best request ---- */

static struct model_target *pick_for(const struct admit *a, struct candidate *c, int64_t now_us)
{
    return pick_target(c->model, admit_item_of(c->item), &a->rules, now_us);
}

/* Only when the oldest forced request has tried the pods that have room: the oldest of the others that may
 * go. */
static bool find_other_forced(const struct admit *a, struct candidate *c, int64_t now_us)
{
    struct candidate other = {.model = c->model};

    c->target = NULL;
    for (other.item = boostq_head_forced(&c->model->q); other.item != NULL;
         other.item = boostq_next_forced(&c->model->q, other.item)) {
        if (c->target != NULL && !boostq_before(other.item, c->item))
            continue;
        other.target = pick_for(a, &other, now_us);
        if (other.target != NULL)
            *c = other;
    }
    return c->target != NULL;
}

static bool find_forced(const struct admit *a, struct candidate *c, int64_t now_us)
{
    c->item = boostq_head_forced(&c->model->q);
    if (c->item == NULL)
        return false;
    c->target = pick_for(a, c, now_us);
    return c->target != NULL || find_other_forced(a, c, now_us);
}

/* The best of the lane heads of pods with room, into *c. Returns whether any pod has room at all. */
static bool find_in_pod_lanes(const struct admit *a, struct candidate *c, int64_t now_us)
{
    bool any_room = false;

    c->item = NULL;
    for (size_t i = 0; i < c->model->n_targets; i++) {
        struct model_target *t = c->model->targets[i];
        struct boostq_item *head;

        if (model_target_room(t, &a->rules, now_us) != POD_ROOM)
            continue;
        any_room = true;
        head = boostq_head_boosted(&t->lane);
        if (head != NULL && (c->item == NULL || boostq_before(head, c->item))) {
            c->item = head;
            c->target = t;
        }
    }
    return any_room;
}

/* Some pod has room. Only forced requests have tried pods, so any pod with room will do for those here. */
static bool find_shared(const struct admit *a, struct candidate *c, int64_t now_us)
{
    struct boostq_item *head = boostq_head_boosted(&c->model->q.shared);

    if (head == NULL)
        head = boostq_head_fresh(&c->model->q);
    if (head == NULL || (c->item != NULL && boostq_before(c->item, head)))
        return c->item != NULL;
    c->item = head;
    c->target = pick_for(a, c, now_us);
    assert(c->target != NULL);
    return true;
}

static bool find_candidate(const struct admit *a, struct model *m, int64_t now_us, struct candidate *c)
{
    struct candidate in_lane = {.model = m};

    *c = in_lane;
    if (boostq_len(&m->q) == 0 || model_gate(m, now_us) != POD_ROOM ||
        !find_in_pod_lanes(a, &in_lane, now_us))
        return false;
    if (find_forced(a, c, now_us))
        return true;
    *c = in_lane;
    return find_shared(a, c, now_us);
}

/* ---- the accounts of the closed gate ---- */

static enum pod_room closed_reason(const struct admit *a, const struct model *m, int64_t now_us)
{
    bool seen[POD_ROOM_KINDS] = {false};

    if (boostq_len(&m->q) == 0)
        return POD_ROOM;
    for (size_t i = 0; i < m->n_targets; i++)
        seen[model_target_room(m->targets[i], &a->rules, now_us)] = true;
    if (m->n_usable == 0)
        return POD_NOT_USABLE;
    if (seen[POD_ROOM] && model_gate(m, now_us) != POD_ROOM)
        return model_gate(m, now_us);
    return seen[POD_BACKPRESSURE] ? POD_BACKPRESSURE : seen[POD_GRACE] ? POD_GRACE : POD_FULL;
}

static void account(struct model *m, enum pod_room reason, int64_t now_us)
{
    if (m->closed_reason != POD_ROOM)
        m->closed_us[m->closed_reason] += now_us - m->closed_since_us;
    m->closed_reason = reason;
    m->closed_since_us = now_us;
}

/* ---- admission ---- */

/* Other models of the name may have the pod, too. */
static void note_turn(const struct admit *a, const struct model *m, struct model_target *t)
{
    t->last_admitted = t->name_admitted = a->turn;
    for (size_t i = 0; i < a->n_models && m->q.name->refs > 1; i++) {
        const struct model *other = a->models[i];
        struct model_target *same = other->q.name == m->q.name ? model_target_of(other, t->pod->id) : NULL;

        if (same != NULL)
            same->name_admitted = a->turn;
    }
}

static void give_slot(struct admit *a, struct model *m, struct model_target *t)
{
    pod_take_slot(t->pod);
    a->turn++;
    note_turn(a, m, t);
    m->next_tie = t->index + 1;
}

void admit_begin(struct admit *a, int64_t now_us)
{
    for (size_t i = 0; i < a->n_models; i++) {
        model_refresh(a->models[i], now_us);
        if (a->models[i]->q.fair != NULL)
            fairq_advance(a->models[i]->q.fair, now_us);
    }
}

/* An admission may have been one overtake too many. */
static void force_due(const struct admit *a, int64_t now_us)
{
    for (size_t i = 0; i < a->n_models; i++)
        boostq_force_due(&a->models[i]->q, now_us);
}

/* Of models[i] and, with user fairness, the others of its name, which follow. Returns how many these are. */
static size_t find_best_of_name(const struct admit *a, size_t i, int64_t now_us, struct candidate *best)
{
    const struct fairq *fair = a->models[i]->q.fair;
    struct candidate c;
    size_t n = 0;

    best->item = NULL;
    do {
        struct model *m = a->models[i + n];

        m->could_go = find_candidate(a, m, now_us, &c);
        if (m->could_go && (best->item == NULL || boostq_before(c.item, best->item)))
            *best = c;
        n++;
    } while (fair != NULL && i + n < a->n_models && a->models[i + n]->q.fair == fair);
    return n;
}

/* Who went longer ago: the name, else, of one name, the model. */
static bool has_turn_before(const struct model_target *a, const struct model_target *b)
{
    if (a->name_admitted != b->name_admitted)
        return a->name_admitted < b->name_admitted;
    return a->last_admitted < b->last_admitted;
}

static bool find_best(const struct admit *a, int64_t now_us, struct candidate *best)
{
    struct candidate c;

    best->item = NULL;
    for (size_t i = 0; i < a->n_models;) {
        i += find_best_of_name(a, i, now_us, &c);
        if (c.item == NULL)
            continue;
        if (best->item == NULL || has_turn_before(c.target, best->target))
            *best = c;
    }
    return best->item != NULL;
}

/* Who could have gone from other queues of the name. */
static void count_passed(const struct admit *a, const struct candidate *best)
{
    for (size_t i = 0; i < a->n_models && best->model->q.fair != NULL && best->model->q.name->refs > 1; i++) {
        struct model *m = a->models[i];

        if (m != best->model && m->could_go && m->q.name == best->model->q.name)
            boostq_passed(&m->q, best->item);
    }
}

bool admit_next(struct admit *a, int64_t now_us, struct admission *out)
{
    struct candidate best = {.item = NULL};
    const struct boostq_lane *lane;
    const struct boostq_item *next;

    force_due(a, now_us);
    if (!find_best(a, now_us, &best)) {
        for (size_t i = 0; i < a->n_models; i++)
            account(a->models[i], closed_reason(a, a->models[i], now_us), now_us);
        return false;
    }
    count_passed(a, &best);
    lane = best.item->lane;
    boostq_take(&best.model->q, best.item);
    give_slot(a, best.model, best.target);
    account(best.model, POD_ROOM, now_us);
    next = boostq_len(&best.model->q) >= ADMIT_LONG_QUEUE ? boostq_upcoming(&best.model->q, lane) : NULL;
    *out = (struct admission){best.model, admit_item_of(best.item), best.target->pod,
                              next != NULL ? CONTAINER_OF(next, const struct admit_item, queue) : NULL};
    return true;
}

static bool has_room_for(const struct admit *a, const struct model *m, size_t n, int64_t now_us)
{
    for (size_t i = 0; i < m->n_targets; i++) {
        const struct model_target *t = m->targets[i];

        if (t->usable &&
            (model_target_room(t, &a->rules, now_us) != POD_ROOM || pod_free_slots(t->pod, &a->rules) < n))
            return false;
    }
    return true;
}

static bool has_room_for_one(const struct admit *a, const struct model *m, int64_t now_us)
{
    for (size_t i = 0; i < m->n_targets; i++) {
        if (model_target_room(m->targets[i], &a->rules, now_us) == POD_ROOM)
            return true;
    }
    return false;
}

/* Either everybody or nobody can go. */
static bool is_order_free(const struct admit *a, const struct model *m, size_t n, int64_t now_us)
{
    return boostq_len(&m->q) == 0 || has_room_for(a, m, n, now_us) || !has_room_for_one(a, m, now_us);
}

bool admit_order_is_free(const struct admit *a, const struct model *m, size_t may_come, int64_t now_us)
{
    size_t n = may_come;

    if (!a->rules.gated)
        return true;
    for (size_t i = 0; i < a->n_models; i++)
        n += boostq_len(&a->models[i]->q);
    if (m->q.fair != NULL || !has_room_for(a, m, n, now_us))
        return false;
    for (size_t i = 0; i < a->n_models; i++) {
        const struct model *each = a->models[i];

        /* Time alone may have let a pod in or out, which a pump would see first. */
        if (model_is_outdated(each, now_us) || (each != m && !is_order_free(a, each, n, now_us)))
            return false;
    }
    return true;
}

enum admit_retry admit_retry(struct admit *a, struct model *m, struct admit_item *item, struct pod *failed,
                             int64_t now_us, struct pod **pod)
{
    struct model_target *t;

    assert(item->attempts < ADMIT_MAX_ATTEMPTS);
    item->tried[item->n_tried++ % ADMIT_TRIED_MAX] = failed->id;
    item->attempts++;
    model_refresh(m, now_us);
    if (item->attempts == ADMIT_MAX_ATTEMPTS || !pick_any_untried(m, item))
        return ADMIT_RETRY_NONE;
    t = pick_target(m, item, &a->rules, now_us);
    if (t == NULL) {
        boostq_requeue(&m->q, &item->queue);
        return ADMIT_RETRY_QUEUED;
    }
    give_slot(a, m, t);
    *pod = t->pod;
    return ADMIT_RETRY_NOW;
}

/* Forced when it has tried pods: only for forced requests another one is looked for while theirs are tried.
 */
void admit_move(struct model *m, struct admit_item *item, int64_t now_us, int64_t since_us)
{
    item->attempts = 0;
    model_push(m, &item->queue, now_us, since_us);
    if (item->n_tried > 0)
        boostq_force(&m->q, &item->queue);
}

static int64_t model_next_due_us(const struct admit *a, const struct model *m, int64_t now_us)
{
    int64_t due_us = boostq_next_due_us(&m->q);

    if (m->q.fair != NULL && fairq_next_due_us(m->q.fair, now_us) < due_us)
        due_us = fairq_next_due_us(m->q.fair, now_us);
    for (size_t i = 0; i < m->n_targets; i++) {
        int64_t pod_due_us = pod_next_due_us(m->targets[i]->pod, &a->rules, now_us);

        if (pod_due_us < due_us)
            due_us = pod_due_us;
    }
    return due_us;
}

int64_t admit_next_due_us(const struct admit *a, int64_t now_us)
{
    int64_t due_us = INT64_MAX;

    for (size_t i = 0; i < a->n_models; i++) {
        int64_t model_due_us =
            boostq_len(&a->models[i]->q) == 0 ? INT64_MAX : model_next_due_us(a, a->models[i], now_us);

        if (model_due_us < due_us)
            due_us = model_due_us;
    }
    return due_us;
}
