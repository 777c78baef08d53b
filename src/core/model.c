/* model: joins a queue with its pods. It owns the targets and their lanes and decides which pods are usable;
 * who is admitted is for admit. */
#include "model.h"
#include "mem.h"

struct model *model_new(const char *name, const struct boostq_rules *rules, const struct model *sibling)
{
    struct model *m = mem_zalloc(sizeof(*m));

    m->name = mem_strdup(name);
    m->dice = htab_hash((struct slice){(const char *)&m, sizeof(m)}) |
              1; /* another row for each model and process */
    boostq_init(&m->q, rules, sibling != NULL ? sibling->q.name : NULL);
    return m;
}

static void target_drop_prefix(struct model_target *t)
{
    if (t->prefix == NULL)
        return;
    prefix_store_free(t->prefix);
    mem_free(t->prefix);
    t->prefix = NULL;
}

static void target_set_policy(struct model_target *t, const struct policy *p)
{
    t->limits_waiting = p->max_waiting > 0;
    t->max_waiting = (double)p->max_waiting;
    if (!policy_wants_prefix(p)) {
        target_drop_prefix(t);
    } else if (t->prefix == NULL) {
        t->prefix = mem_alloc(sizeof(*t->prefix));
        prefix_store_init(t->prefix, PREFIX_STORE_MAX);
    }
}

void model_set_policy(struct model *m, const struct policy *p)
{
    m->policy = *p;
    m->wants_prefix = policy_wants_prefix(p);
    for (size_t i = 0; i < m->n_targets; i++)
        target_set_policy(m->targets[i], p);
    mem_free(m->judged);
    m->judged = p->kind == POLICY_UNSET ? NULL : mem_array(NULL, m->cap_targets, sizeof(*m->judged));
}

void model_served(struct model *m, uint64_t pod_id, const struct prefix_chain *chain)
{
    const struct model_target *t = model_target_of(m, pod_id);

    if (t != NULL && t->prefix != NULL)
        prefix_store_add(t->prefix, chain);
}

static struct model_target *target_new(struct model *m, struct pod *p)
{
    struct model_target *t = mem_zalloc(sizeof(*t));

    t->pod = pod_ref(p);
    target_set_policy(t, &m->policy);
    t->usable = true;
    boostq_add_lane(&m->q, &t->lane, p->id);
    return t;
}

static void target_free(struct model *m, struct model_target *t)
{
    boostq_remove_lane(&m->q, &t->lane);
    target_drop_prefix(t);
    pod_unref(t->pod);
    mem_free(t);
}

void model_free(struct model *m)
{
    for (size_t i = 0; i < m->n_targets; i++)
        target_free(m, m->targets[i]);
    model_set_pins(m, 0, 0);
    boostq_free(&m->q);
    mem_free(m->judged);
    mem_free(m->targets);
    mem_free(m->name);
    mem_free(m);
}

struct model_target *model_target_of(const struct model *m, uint64_t pod_id)
{
    for (size_t i = 0; i < m->n_targets; i++) {
        if (m->targets[i]->pod->id == pod_id)
            return m->targets[i];
    }
    return NULL;
}

/* Targets whose pod has another mark go; the marks of the others are cleared. */
static void drop_targets_without(struct model *m, uint64_t mark)
{
    size_t kept = 0;

    for (size_t i = 0; i < m->n_targets; i++) {
        struct model_target *t = m->targets[i];

        if (t->pod->mark == mark) {
            t->pod->mark = 0;
            t->index = kept;
            m->targets[kept++] = t;
        } else {
            target_free(m, t);
        }
    }
    m->n_targets = kept;
}

static void add_target(struct model *m, struct pod *p)
{
    if (m->n_targets == m->cap_targets) {
        m->cap_targets = m->cap_targets > 0 ? m->cap_targets * 2 : 4;
        m->targets = mem_array(m->targets, m->cap_targets, sizeof(*m->targets));
        if (m->judged != NULL)
            m->judged = mem_array(m->judged, m->cap_targets, sizeof(*m->judged));
    }
    m->targets[m->n_targets] = target_new(m, p);
    m->targets[m->n_targets]->index = m->n_targets;
    m->n_targets++;
}

void model_set_pods(struct model *m, struct pod *const *pods, size_t n, int64_t now_us)
{
    static uint64_t last_mark;
    const uint64_t mark = ++last_mark;

    /* Marked = named, and no target yet. */
    for (size_t i = 0; i < n; i++)
        pods[i]->mark = mark;
    drop_targets_without(m, mark);
    for (size_t i = 0; i < n; i++) {
        if (pods[i]->mark == mark)
            add_target(m, pods[i]);
        pods[i]->mark = 0;
    }
    model_refresh(m, now_us);
}

static bool is_in_place(const struct model_target *t, int64_t now_us)
{
    return !t->pod->leaving && !pod_is_aside(t->pod, now_us) && !pod_is_asleep(t->pod, now_us);
}

bool model_in_place(const struct model *m, int64_t now_us)
{
    for (size_t i = 0; i < m->n_targets; i++) {
        if (is_in_place(m->targets[i], now_us))
            return true;
    }
    return false;
}

bool model_is_listed(const struct model *m, int64_t now_us)
{
    for (size_t i = 0; i < m->n_targets && m->adapter; i++) {
        if (m->targets[i]->lists && is_in_place(m->targets[i], now_us))
            return true;
    }
    return false;
}

void model_set_listed(struct model *m, uint64_t pod_id, bool lists)
{
    struct model_target *t = model_target_of(m, pod_id);

    if (t != NULL)
        t->lists = lists;
}

static bool set_usable(struct model *m, struct model_target *t, bool usable)
{
    if (t->usable == usable)
        return false;
    t->usable = usable;
    if (usable)
        boostq_open_lane(&t->lane);
    else
        boostq_close_lane(&m->q, &t->lane);
    return true;
}

/* What keeps a pod out while the model has others. */
struct heed {
    bool aside, lists;
};

static struct heed heed_of(const struct model *m, int64_t now_us)
{
    return (struct heed){model_in_place(m, now_us), model_is_listed(m, now_us)};
}

static bool is_usable(const struct model_target *t, struct heed heed, int64_t now_us)
{
    return !t->pod->leaving && !pod_is_asleep(t->pod, now_us) &&
           !(heed.aside && pod_is_aside(t->pod, now_us)) && !(heed.lists && !t->lists);
}

bool model_is_outdated(const struct model *m, int64_t now_us)
{
    const struct heed heed = heed_of(m, now_us);

    for (size_t i = 0; i < m->n_targets; i++) {
        if (m->targets[i]->usable != is_usable(m->targets[i], heed, now_us))
            return true;
    }
    return false;
}

bool model_refresh(struct model *m, int64_t now_us)
{
    const struct heed heed = heed_of(m, now_us);
    bool changed = false;

    m->n_usable = 0;
    for (size_t i = 0; i < m->n_targets; i++) {
        struct model_target *t = m->targets[i];
        const bool usable = is_usable(t, heed, now_us);

        m->n_usable += usable;
        if (set_usable(m, t, usable))
            changed = true;
    }
    return changed;
}

void model_inherit(struct model *m, const struct model *ended)
{
    boostq_stats_add(&m->q.stats, &ended->q.stats);
    m->q.tracker.evictions += ended->q.tracker.evictions;
    for (int reason = 0; reason < POD_ROOM_KINDS; reason++)
        m->closed_us[reason] += ended->closed_us[reason];
}

void model_set_pins(struct model *m, int64_t ttl_us, size_t max_sessions)
{
    m->pin_ttl_us = ttl_us;
    if (ttl_us > 0 && m->pins != NULL) {
        session_lru_resize(m->pins, max_sessions);
    } else if (ttl_us > 0) {
        m->pins = mem_alloc(sizeof(*m->pins));
        session_lru_init(m->pins, max_sessions);
    } else if (m->pins != NULL) {
        session_lru_free(m->pins);
        mem_free(m->pins);
        m->pins = NULL;
    }
}

void model_pin(struct model *m, struct slice session, uint64_t pod_id, int64_t now_us)
{
    struct session_key key;

    if (m->pins == NULL || session.n == 0)
        return;
    session_lru_key(&key, session);
    (void)session_lru_mark(m->pins, &key, pod_id, now_us);
}

/* NULL: not known, or too old. */
static const struct session_entry *find_pin(const struct model *m, struct slice session, int64_t now_us)
{
    const struct session_entry *e;
    struct session_key key;

    session_lru_key(&key, session);
    e = session_lru_find(m->pins, &key);
    return e != NULL && now_us - e->completed_us < m->pin_ttl_us ? e : NULL;
}

void model_find_pin(const struct model *m, struct boostq_item *item, int64_t now_us)
{
    const struct session_entry *e = item->session.n > 0 ? find_pin(m, item->session, now_us) : NULL;

    item->pinned_pod_id = e != NULL ? e->pod_id : 0;
}

bool model_knows(const struct model *m, struct slice session, int64_t now_us, int64_t *at_us)
{
    const struct session_entry *e = NULL;
    struct session_key key;

    if (m->pins != NULL) {
        e = find_pin(m, session, now_us);
    } else if (m->q.rules.prefer_warm && m->q.tracker.n > 0) {
        session_lru_key(&key, session);
        e = session_lru_find(&m->q.tracker, &key);
    }
    if (e != NULL)
        *at_us = e->completed_us;
    return e != NULL;
}

void model_learn(struct model *m, const struct worth_turn *turn)
{
    worth_add(&m->worth, turn);
    boostq_bound_wait(&m->q, worth_wait_us(&m->worth, m->q.rules.sticky_wait_us));
}

static bool has_too_many_waiting(const struct model_target *t, const struct pod_rules *rules, int64_t now_us)
{
    return t->pod->numbers.waiting >= t->max_waiting && !pod_numbers_stale(t->pod, rules, now_us);
}

enum pod_room model_target_room(const struct model_target *t, const struct pod_rules *rules, int64_t now_us)
{
    enum pod_room room = t->usable ? pod_room(t->pod, rules, now_us) : POD_NOT_USABLE;

    return t->limits_waiting && room == POD_ROOM && has_too_many_waiting(t, rules, now_us) ? POD_BACKPRESSURE
                                                                                           : room;
}

enum pod_room model_gate(const struct model *m, int64_t now_us)
{
    static const enum pod_room reasons[] = {
        [FAIRQ_OPEN] = POD_ROOM, [FAIRQ_MAX_CONCURRENT] = POD_MAX_CONCURRENT, [FAIRQ_MAX_QPS] = POD_MAX_QPS};

    return m->q.fair == NULL ? POD_ROOM : reasons[fairq_gate(m->q.fair, now_us)];
}
