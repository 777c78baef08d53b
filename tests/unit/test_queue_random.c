/* Random programs against the queue, the pods and admission, each step compared with a naive model of plain
 * arrays that follows the words of the rules and shares no code with them. Replay: SEED=<printed> STEPS=<n>.
 */
#include "test.h"
#include "admit.h"

#include <math.h>
#include <stdlib.h>

#define N_PODS        4
#define N_MODELS      3
#define N_SESSIONS    8
#define N_ITEMS       64
#define PROGRAM_STEPS 400
#define DEFAULT_STEPS 1000000
#define MAX_HELD      256
#define LONG_ID_BYTES 300
#define NO_POD        (-1)
#define SHARED        (-1)
#define NO_USER       (-9)

enum ref_where { REF_OUT, REF_FRESH, REF_BOOSTED, REF_FORCED, REF_RUNNING };

struct ref_item {
    enum ref_where where;
    int model, session, lane, pod, warm;
    uint64_t arrival, entry;
    int64_t arrived_us, entered_us;
    unsigned overtaken;
    bool boosted, forced;
    bool tried[N_PODS];
    unsigned n_tried;
    int input_tokens; /* estimated */
    bool runs;        /* and counts against its user */
    bool had_turn;
};

/* Tokens that a user of a name has had; all that fall into one bucket have its start. */
struct ref_charge {
    int user;
    int64_t start_us, input, output;
};

/* What one model knows of one session. */
struct ref_session {
    bool tracked;
    uint64_t completed;
    int pod;
    uint64_t known_completed; /* of the session's waiting requests */
    int known_pod, lane;
};

struct ref_pod {
    unsigned in_flight;
    bool leaving;
    struct pod_numbers numbers;
    int64_t held[MAX_HELD];
    size_t n_held;
    unsigned failures;
    int64_t aside_until_us, pause_us;
};

/* A public name: what its models have in common. */
struct ref_name {
    bool fair;
    struct fairq_rules fairness;
    struct ref_charge charges[PROGRAM_STEPS]; /* in the window, as they came */
    size_t n_charges;
    uint64_t idle_since[N_SESSIONS + 1]; /* order in which users ran out of requests */
    int64_t next_turn_us;
};

struct ref_model {
    struct boostq_rules rules;
    int name;
    struct ref_session sessions[N_SESSIONS];
    int targets[N_PODS];
    size_t n_targets, next_tie;
    bool usable[N_PODS];
    uint64_t last_admitted[N_PODS], name_admitted[N_PODS]; /* name_admitted: or another one of the name */
    uint64_t last_completed;
    uint64_t n_promoted;
};

struct world {
    int64_t now_us;
    struct admit admit;
    struct model *models[N_MODELS];
    struct pod *pods[N_PODS];
    struct admit_item items[N_ITEMS];
    struct fairq_run runs[N_ITEMS];
    size_t n_models, n_names;
    uint64_t last_number; /* arrivals, entries and turns of the naive model */
    struct pod_rules pod_rules;
    struct ref_item ref_items[N_ITEMS];
    struct ref_model ref_models[N_MODELS];
    struct ref_name ref_names[N_MODELS];
    struct ref_pod ref_pods[N_PODS];
    bool settled;        /* the pump ran and nothing happened since */
    int finish_per_cent; /* of the steps: low = long queues */
};

/* What all programs together did: a rule that never came up was not tested. */
struct totals {
    uint64_t admissions, at_the_bound, longest;
    uint64_t closed[POD_ROOM_KINDS];
    struct boostq_stats stats;
    uint64_t retried, moved, evictions, passed_by_lanes, passed_by_queues, users_evicted, ranks_changed,
        by_user;
};

static struct totals totals;

static char long_id[LONG_ID_BYTES];
static const char *const short_ids[N_SESSIONS - 1] = {"a", "b", "c", "conv-4", "conv-5", "x y\"z", "7"};
static struct test_random rng;
static uint64_t seed_of_program;

static int below(int n)
{
    return (int)test_random_below(&rng, (size_t)n);
}

static bool chance(int one_in)
{
    return below(one_in) == 0;
}

#define CHECK(cond)                                                                                          \
    do {                                                                                                     \
        if (!(cond))                                                                                         \
            fail_msg("program seed %llu: %s", (unsigned long long)seed_of_program, #cond);                   \
    } while (0)

static struct slice session_id(int session)
{
    if (session < 0)
        return (struct slice){NULL, 0};
    if (session == N_SESSIONS - 1)
        return (struct slice){long_id, LONG_ID_BYTES};
    return slice_of(short_ids[session]);
}

static uint64_t pod_id(const struct world *w, int pod)
{
    return pod == NO_POD ? 0 : w->pods[pod]->id;
}

/* ---- the naive model: users ---- */

static struct ref_name *name_of(struct world *w, const struct ref_item *it)
{
    return &w->ref_names[w->ref_models[it->model].name];
}

static bool is_of_user(const struct world *w, const struct ref_item *it, int name, int user)
{
    return w->ref_models[it->model].name == name && it->session == user;
}

static bool user_is_active(const struct world *w, int name, int user)
{
    for (int i = 0; i < N_ITEMS; i++) {
        const struct ref_item *it = &w->ref_items[i];

        if (is_of_user(w, it, name, user) && (it->where == REF_FRESH || it->runs))
            return true;
    }
    return false;
}

static bool user_is_charged(const struct ref_name *n, int user)
{
    for (size_t i = 0; i < n->n_charges; i++) {
        if (n->charges[i].user == user)
            return true;
    }
    return false;
}

static void forget_charges(struct ref_name *n, int user, int64_t until_us)
{
    size_t kept = 0;

    for (size_t i = 0; i < n->n_charges; i++) {
        if (n->charges[i].user != user && n->charges[i].start_us > until_us)
            n->charges[kept++] = n->charges[i];
    }
    n->n_charges = kept;
}

static void ref_evict_users(struct world *w, int name)
{
    struct ref_name *r = &w->ref_names[name];

    for (;;) {
        size_t n = 0;
        int victim = NO_USER;

        for (int u = -1; u < N_SESSIONS; u++) {
            const bool active = user_is_active(w, name, u), charged = user_is_charged(r, u);

            n += active || charged;
            if (!active && charged && (victim == NO_USER || r->idle_since[u + 1] < r->idle_since[victim + 1]))
                victim = u;
        }
        if (!r->fair || n <= r->fairness.max_users || victim == NO_USER)
            return;
        forget_charges(r, victim, 0);
        totals.users_evicted++;
    }
}

static void ref_settle_user(struct world *w, const struct ref_item *it)
{
    if (!user_is_active(w, w->ref_models[it->model].name, it->session))
        name_of(w, it)->idle_since[it->session + 1] = ++w->last_number;
}

static void ref_advance(struct world *w, int name)
{
    const struct fairq_rules *r = &w->ref_names[name].fairness;

    if (w->ref_names[name].fair)
        forget_charges(&w->ref_names[name], NO_USER, w->now_us - r->window_us - r->window_us / 60);
}

static double ref_priority(const struct world *w, int name, int user)
{
    const struct ref_name *n = &w->ref_names[name];
    const struct fairq_rules *r = &n->fairness;
    double input = 0, output = 0, requests = 0;

    for (size_t i = 0; i < n->n_charges; i++) {
        if (n->charges[i].user != user)
            continue;
        input += (double)n->charges[i].input;
        output += (double)n->charges[i].output;
        requests++;
    }
    for (int i = 0; i < N_ITEMS; i++) {
        if (is_of_user(w, &w->ref_items[i], name, user) && w->ref_items[i].runs) {
            input += w->ref_items[i].input_tokens;
            requests++;
        }
    }
    return r->token_weight * (r->input_weight * input + r->output_weight * output) +
           r->request_weight * requests;
}

/* In the item's queue. */
static uint64_t ref_oldest_of_user(const struct world *w, const struct ref_item *of)
{
    uint64_t oldest = UINT64_MAX;

    for (int i = 0; i < N_ITEMS; i++) {
        const struct ref_item *it = &w->ref_items[i];

        if (it->model == of->model && it->session == of->session && it->where == REF_FRESH &&
            it->arrival < oldest)
            oldest = it->arrival;
    }
    return oldest;
}

/* Between requests of two users or of two queues. */
static bool ref_user_before(const struct world *w, const struct ref_item *a, const struct ref_item *b)
{
    const int name = w->ref_models[a->model].name;
    const double pa = ref_priority(w, name, a->session), pb = ref_priority(w, name, b->session);

    if (pa < pb || pb < pa)
        return pa < pb;
    if ((a->session < 0) != (b->session < 0))
        return b->session < 0;
    return ref_oldest_of_user(w, a) < ref_oldest_of_user(w, b);
}

static void ref_start(struct world *w, struct ref_item *it)
{
    struct ref_name *n = name_of(w, it);

    it->runs = n->fair;
    if (it->had_turn)
        return;
    it->had_turn = true;
    if (w->now_us - n->next_turn_us > 5000)
        n->next_turn_us = w->now_us;
    n->next_turn_us += n->fair ? 1000000 / n->fairness.max_qps : 0;
}

static void ref_charge(struct ref_name *n, int user, int64_t now_us, int input, int output)
{
    struct ref_charge c = {user, now_us, input, output};

    for (size_t i = 0; i < n->n_charges; i++) {
        const int64_t start_us = n->charges[i].start_us;

        if (n->charges[i].user == user && now_us - start_us < n->fairness.window_us / 60)
            c.start_us = start_us;
    }
    n->charges[n->n_charges++] = c;
}

static void ref_end(struct world *w, struct ref_item *it, int input, int output)
{
    if (!it->runs)
        return;
    it->runs = false;
    if (input + output > 0)
        ref_charge(name_of(w, it), it->session, w->now_us, input, output);
    ref_settle_user(w, it);
    ref_evict_users(w, w->ref_models[it->model].name);
}

static enum pod_room ref_gate(const struct world *w, int model)
{
    const int name = w->ref_models[model].name;
    const struct ref_name *r = &w->ref_names[name];
    unsigned n = 0;

    if (!r->fair)
        return POD_ROOM;
    for (int i = 0; i < N_ITEMS; i++)
        n += w->ref_models[w->ref_items[i].model].name == name && w->ref_items[i].runs;
    if (r->fairness.max_concurrent > 0)
        return n < r->fairness.max_concurrent ? POD_ROOM : POD_MAX_CONCURRENT;
    return w->now_us < r->next_turn_us ? POD_MAX_QPS : POD_ROOM;
}

/* ---- the naive model: sessions and lanes ---- */

static bool waits(const struct ref_item *it)
{
    return it->where == REF_FRESH || it->where == REF_BOOSTED || it->where == REF_FORCED;
}

static bool session_waits(const struct world *w, int model, int session, bool boosted_only)
{
    for (int i = 0; i < N_ITEMS; i++) {
        const struct ref_item *it = &w->ref_items[i];

        if (it->model == model && it->session == session && waits(it) &&
            (!boosted_only || it->where == REF_BOOSTED))
            return true;
    }
    return false;
}

static void ref_evict(struct ref_model *m)
{
    for (;;) {
        size_t n = 0;
        int oldest = -1;

        for (int s = 0; s < N_SESSIONS; s++) {
            n += m->sessions[s].tracked;
            if (m->sessions[s].tracked &&
                (oldest < 0 || m->sessions[s].completed < m->sessions[oldest].completed))
                oldest = s;
        }
        if (n <= m->rules.max_sessions)
            return;
        m->sessions[oldest].tracked = false;
    }
}

static int ref_lane_for(const struct world *w, int model, int pod)
{
    const struct ref_model *m = &w->ref_models[model];

    if (!m->rules.sticky || pod == NO_POD)
        return SHARED;
    for (size_t i = 0; i < m->n_targets; i++) {
        if (m->targets[i] == pod)
            return m->usable[pod] ? pod : SHARED;
    }
    return SHARED;
}

static void ref_enter_boosted(struct world *w, struct ref_item *it)
{
    struct ref_session *s = &w->ref_models[it->model].sessions[it->session];

    if (!session_waits(w, it->model, it->session, true))
        s->lane = ref_lane_for(w, it->model, s->known_pod);
    it->where = REF_BOOSTED;
    it->boosted = true;
    it->lane = s->lane;
    it->entry = ++w->last_number;
    it->entered_us = w->now_us;
    it->overtaken = 0;
}

static void ref_know_session(struct world *w, struct ref_item *it)
{
    struct ref_session *s = &w->ref_models[it->model].sessions[it->session];

    if (session_waits(w, it->model, it->session, false))
        return;
    s->known_pod = s->tracked ? s->pod : NO_POD;
    s->known_completed = s->tracked ? s->completed : 0;
}

static void ref_push(struct world *w, int i, int model, int session, int64_t since_us)
{
    struct ref_item *it = &w->ref_items[i];
    struct ref_model *m = &w->ref_models[model];

    *it =
        (struct ref_item){.model = model, .session = session, .lane = SHARED, .pod = NO_POD, .warm = NO_POD};
    it->arrived_us = since_us;
    it->arrival = ++w->last_number;
    if (m->rules.boost && session >= 0)
        ref_know_session(w, it);
    if (m->rules.boost && session >= 0 && m->sessions[session].tracked)
        ref_enter_boosted(w, it);
    else
        it->where = REF_FRESH;
    ref_evict_users(w, m->name);
}

static struct ref_item *ref_first_fresh_of(struct world *w, int model, int session)
{
    struct ref_item *first = NULL;

    for (int i = 0; i < N_ITEMS; i++) {
        struct ref_item *it = &w->ref_items[i];

        if (it->where == REF_FRESH && it->model == model && (session < 0 || it->session == session) &&
            (first == NULL || it->arrival < first->arrival))
            first = it;
    }
    return first;
}

static size_t ref_mark(struct world *w, int model, int session, int pod)
{
    struct ref_model *m = &w->ref_models[model];
    struct ref_session *s = &m->sessions[session];
    struct ref_item *it;
    size_t n = 0;

    if (!m->rules.boost)
        return 0;
    s->tracked = true;
    s->completed = s->known_completed = ++m->last_completed;
    s->pod = s->known_pod = pod;
    ref_evict(m);
    while ((it = ref_first_fresh_of(w, model, session)) != NULL) {
        ref_enter_boosted(w, it);
        n++;
    }
    m->n_promoted += n;
    return n;
}

static void ref_empty_lane(struct world *w, int model, int lane)
{
    for (;;) {
        struct ref_item *first = NULL;

        for (int i = 0; i < N_ITEMS; i++) {
            struct ref_item *it = &w->ref_items[i];

            if (it->where == REF_BOOSTED && it->model == model && it->lane == lane &&
                (first == NULL || it->entry < first->entry))
                first = it;
        }
        if (first == NULL)
            return;
        first->lane = w->ref_models[model].sessions[first->session].lane = SHARED;
        first->entry = ++w->last_number;
        first->overtaken = 0;
    }
}

/* ---- the naive model: pods ---- */

static bool ref_aside(const struct world *w, int pod)
{
    return w->ref_pods[pod].aside_until_us > w->now_us;
}

static void ref_refresh(struct world *w, int model)
{
    struct ref_model *m = &w->ref_models[model];
    bool all_aside = true;

    for (size_t i = 0; i < m->n_targets; i++) {
        if (!w->ref_pods[m->targets[i]].leaving && !ref_aside(w, m->targets[i]))
            all_aside = false;
    }
    for (size_t i = 0; i < m->n_targets; i++) {
        int p = m->targets[i];

        m->usable[p] = !w->ref_pods[p].leaving && (all_aside || !ref_aside(w, p));
        if (!m->usable[p])
            ref_empty_lane(w, model, p);
    }
}

static bool ref_stale(const struct world *w, int pod)
{
    int64_t at_us = w->ref_pods[pod].numbers.at_us;

    return at_us == 0 || at_us + w->pod_rules.stale_us < w->now_us;
}

static enum pod_room ref_room(const struct world *w, int model, int pod)
{
    const struct ref_pod *p = &w->ref_pods[pod];
    unsigned held = 0;

    if (!w->ref_models[model].usable[pod])
        return POD_NOT_USABLE;
    if (!w->pod_rules.gated)
        return POD_ROOM;
    for (size_t i = 0; i < p->n_held; i++)
        held += p->held[i] > w->now_us;
    if (p->in_flight >= w->pod_rules.inflight_limit)
        return POD_FULL;
    if (p->in_flight + held >= w->pod_rules.inflight_limit)
        return POD_GRACE;
    if (!ref_stale(w, pod) && !isnan(p->numbers.waiting_min) && p->numbers.waiting_min > 0)
        return POD_BACKPRESSURE;
    return POD_ROOM;
}

/* A shorter grace also ends the windows that would outlast the new one. */
static void ref_release(struct world *w, int pod, bool open_grace)
{
    struct ref_pod *p = &w->ref_pods[pod];
    int64_t until_us = w->now_us + w->pod_rules.grace_us;
    size_t n = 0;

    p->in_flight--;
    for (size_t i = 0; i < p->n_held; i++) {
        if (p->held[i] > w->now_us)
            p->held[n++] = p->held[i];
    }
    p->n_held = n;
    if (!open_grace || !w->pod_rules.gated || w->pod_rules.grace_us <= 0)
        return;
    for (size_t i = 0; i < n; i++) {
        if (p->held[i] > until_us)
            p->held[i] = until_us;
    }
    p->held[p->n_held++] = until_us;
}

static double ref_opinion(const struct world *w, int pod, double number)
{
    return ref_stale(w, pod) || isnan(number) ? 0 : number;
}

/* Whether pod a is a better choice than b, by the first difference. */
static bool ref_better(const struct world *w, int a, int b)
{
    const struct ref_pod *x = &w->ref_pods[a], *y = &w->ref_pods[b];
    double wx = ref_opinion(w, a, x->numbers.waiting), wy = ref_opinion(w, b, y->numbers.waiting);
    double kx = ref_opinion(w, a, x->numbers.kv_usage), ky = ref_opinion(w, b, y->numbers.kv_usage);

    if (x->in_flight != y->in_flight)
        return x->in_flight < y->in_flight;
    if (fabs(wx - wy) > 1e-9)
        return wx < wy;
    return kx < ky - 1e-9;
}

static bool ref_any_untried(const struct world *w, const struct ref_item *it)
{
    const struct ref_model *m = &w->ref_models[it->model];

    for (size_t i = 0; i < m->n_targets; i++) {
        if (m->usable[m->targets[i]] && !it->tried[m->targets[i]])
            return true;
    }
    return false;
}

static int ref_warm(const struct world *w, const struct ref_item *it)
{
    const struct ref_model *m = &w->ref_models[it->model];

    if ((!m->rules.prefer_warm && !m->rules.sticky) || !m->rules.boost || it->session < 0)
        return NO_POD;
    return waits(it) ? m->sessions[it->session].known_pod : it->warm;
}

static bool ref_may_use(const struct world *w, const struct ref_item *it, int pod)
{
    return ref_room(w, it->model, pod) == POD_ROOM && (!it->tried[pod] || !ref_any_untried(w, it));
}

static int ref_pick(const struct world *w, const struct ref_item *it)
{
    const struct ref_model *m = &w->ref_models[it->model];
    int warm = ref_warm(w, it), best = NO_POD;

    for (size_t i = 0; i < m->n_targets; i++) {
        if (m->targets[i] == warm && ref_may_use(w, it, warm))
            return warm;
    }
    for (size_t i = 0; i < m->n_targets; i++) {
        int p = m->targets[(m->next_tie + i) % m->n_targets];

        if (ref_may_use(w, it, p) && (best == NO_POD || ref_better(w, p, best)))
            best = p;
    }
    return best;
}

/* ---- the naive model: order and admission ---- */

static bool ref_before(const struct world *w, const struct ref_item *a, const struct ref_item *b)
{
    uint64_t ca, cb;

    if (a->where != b->where)
        return a->where == REF_FORCED || (a->where == REF_BOOSTED && b->where == REF_FRESH);
    if (a->where == REF_BOOSTED) {
        ca = w->ref_models[a->model].sessions[a->session].known_completed;
        cb = w->ref_models[b->model].sessions[b->session].known_completed;
        if (ca != cb)
            return ca > cb;
    }
    if (a->where == REF_FRESH && w->ref_models[a->model].rules.fair &&
        (a->session != b->session || a->model != b->model))
        return ref_user_before(w, a, b);
    return a->arrival < b->arrival;
}

/* Unserved. */
static void ref_leave(struct world *w, struct ref_item *it)
{
    const bool was_fresh = it->where == REF_FRESH;

    it->where = REF_OUT;
    if (was_fresh)
        ref_settle_user(w, it);
}

static void ref_force(struct world *w, struct ref_item *it)
{
    ref_leave(w, it);
    it->where = REF_FORCED;
    it->forced = true;
    it->lane = SHARED;
}

static bool ref_is_due(const struct world *w, const struct ref_item *it)
{
    const struct boostq_rules *r = &w->ref_models[it->model].rules;

    if (it->where != REF_FRESH && it->where != REF_BOOSTED)
        return false;
    if (it->overtaken >= r->max_overtakes)
        return true;
    return it->where == REF_BOOSTED && it->lane != SHARED && w->now_us - it->entered_us >= r->sticky_wait_us;
}

/* Models in the order in which they are asked: those of one name beside each other. k from 0 to n_models - 1.
 */
static int model_in_order(const struct world *w, int k)
{
    for (int name = 0;; name++) {
        for (int model = 0; model < (int)w->n_models; model++) {
            if (w->ref_models[model].name == name && k-- == 0)
                return model;
        }
    }
}

static void ref_force_due(struct world *w)
{
    for (int i = 0; i < N_ITEMS * (int)w->n_models; i++) {
        struct ref_item *it = &w->ref_items[i % N_ITEMS];

        if (it->model == model_in_order(w, i / N_ITEMS) && ref_is_due(w, it))
            ref_force(w, it);
    }
}

/* The pod that the waiting request would go to if it were its turn, or NO_POD. */
static int ref_pod_for(const struct world *w, const struct ref_item *it)
{
    if (it->where == REF_BOOSTED && it->lane != SHARED)
        return ref_room(w, it->model, it->lane) == POD_ROOM ? it->lane : NO_POD;
    return ref_pick(w, it);
}

static struct ref_item *ref_best_of(struct world *w, int model)
{
    struct ref_item *best = NULL;

    if (ref_gate(w, model) != POD_ROOM)
        return NULL;
    for (int i = 0; i < N_ITEMS; i++) {
        struct ref_item *it = &w->ref_items[i];

        if (waits(it) && it->model == model && (best == NULL || ref_before(w, it, best)) &&
            ref_pod_for(w, it) != NO_POD)
            best = it;
    }
    return best;
}

/* The best of the models of a name, which are as one where it is fair; else of the one model alone. */
static struct ref_item *ref_best_beside(struct world *w, int model)
{
    struct ref_item *best = NULL;

    for (int other = 0; other < (int)w->n_models; other++) {
        const bool same =
            w->ref_models[other].name == w->ref_models[model].name && w->ref_models[model].rules.fair;
        struct ref_item *it = same || other == model ? ref_best_of(w, other) : NULL;

        if (it != NULL && (best == NULL || ref_before(w, it, best)))
            best = it;
    }
    return best;
}

static bool ref_has_turn_before(const struct world *w, const struct ref_item *a, const struct ref_item *b)
{
    const struct ref_model *x = &w->ref_models[a->model], *y = &w->ref_models[b->model];
    const int p = ref_pod_for(w, a), q = ref_pod_for(w, b);

    return x->name_admitted[p] < y->name_admitted[q] ||
           (x->name_admitted[p] == y->name_admitted[q] && x->last_admitted[p] < y->last_admitted[q]);
}

static struct ref_item *ref_best(struct world *w)
{
    struct ref_item *best = NULL;

    for (int k = 0; k < (int)w->n_models; k++) {
        struct ref_item *it = ref_best_beside(w, model_in_order(w, k));

        if (it != NULL && (best == NULL || ref_has_turn_before(w, it, best)))
            best = it;
    }
    return best;
}

/* Those whose own queue could have sent somebody. */
static void ref_count_passed(struct world *w, const struct ref_item *taken)
{
    for (int model = 0; model < (int)w->n_models; model++) {
        const struct ref_model *m = &w->ref_models[model];
        struct ref_item *oldest = ref_first_fresh_of(w, model, -1);

        if (!m->rules.fair || model == taken->model || m->name != w->ref_models[taken->model].name ||
            oldest == NULL || oldest->arrival > taken->arrival || ref_best_of(w, model) == NULL)
            continue;
        oldest->overtaken++;
        totals.passed_by_queues++;
    }
}

static void ref_count_overtakes(struct world *w, const struct ref_item *taken)
{
    struct ref_item *oldest_fresh = ref_first_fresh_of(w, taken->model, -1);
    struct ref_item *first_shared = NULL;

    for (int i = 0; i < N_ITEMS; i++) {
        struct ref_item *it = &w->ref_items[i];

        if (it->where != REF_BOOSTED || it->model != taken->model)
            continue;
        if (it->lane == taken->lane && it->entry < taken->entry)
            it->overtaken++;
        if (it->lane == SHARED && (first_shared == NULL || it->entry < first_shared->entry))
            first_shared = it;
    }
    if (taken->lane != SHARED && first_shared != NULL && first_shared->arrival < taken->arrival) {
        first_shared->overtaken++;
        totals.passed_by_lanes++;
    }
    if (oldest_fresh != NULL && oldest_fresh->arrival < taken->arrival)
        oldest_fresh->overtaken++;
}

static void ref_note_turn(struct world *w, int name, int pod)
{
    for (int k = 0; k < (int)w->n_models; k++) {
        struct ref_model *m = &w->ref_models[k];

        for (size_t i = 0; i < m->n_targets && m->name == name; i++) {
            if (m->targets[i] == pod)
                m->name_admitted[pod] = w->last_number;
        }
    }
}

static void ref_give_slot(struct world *w, struct ref_item *it, int pod)
{
    struct ref_model *m = &w->ref_models[it->model];

    it->where = REF_RUNNING;
    it->lane = SHARED;
    it->pod = pod;
    w->ref_pods[pod].in_flight++;
    m->last_admitted[pod] = ++w->last_number;
    ref_note_turn(w, m->name, pod);
    for (size_t i = 0; i < m->n_targets; i++) {
        if (m->targets[i] == pod)
            m->next_tie = i + 1;
    }
}

static struct ref_item *ref_admit(struct world *w)
{
    struct ref_item *it;
    int pod;

    for (int model = 0; model < (int)w->n_models; model++) {
        ref_refresh(w, model);
        ref_advance(w, w->ref_models[model].name);
    }
    ref_force_due(w);
    it = ref_best(w);
    if (it == NULL)
        return NULL;
    pod = ref_pod_for(w, it);
    it->warm = it->session >= 0 ? w->ref_models[it->model].sessions[it->session].known_pod : NO_POD;
    if (it->where != REF_FORCED) {
        ref_count_passed(w, it);
        ref_count_overtakes(w, it);
    }
    totals.by_user += it->where == REF_FRESH && it != ref_first_fresh_of(w, it->model, -1);
    ref_give_slot(w, it, pod);
    ref_settle_user(w, it);
    return it;
}

static enum pod_room ref_closed_reason(const struct world *w, int model)
{
    static const enum pod_room by_priority[] = {POD_BACKPRESSURE, POD_GRACE};
    const struct ref_model *m = &w->ref_models[model];
    size_t n_waiting = 0, n_usable = 0;

    for (int i = 0; i < N_ITEMS; i++)
        n_waiting += waits(&w->ref_items[i]) && w->ref_items[i].model == model;
    if (n_waiting == 0)
        return POD_ROOM;
    for (size_t i = 0; i < m->n_targets; i++)
        n_usable += m->usable[m->targets[i]];
    if (n_usable == 0)
        return POD_NOT_USABLE;
    for (size_t i = 0; i < m->n_targets && ref_gate(w, model) != POD_ROOM; i++) {
        if (ref_room(w, model, m->targets[i]) == POD_ROOM)
            return ref_gate(w, model);
    }
    for (size_t k = 0; k < ARRAY_LEN(by_priority); k++) {
        for (size_t i = 0; i < m->n_targets; i++) {
            if (ref_room(w, model, m->targets[i]) == by_priority[k])
                return by_priority[k];
        }
    }
    return POD_FULL;
}

static bool ref_arrived_before(const struct ref_item *a, const struct ref_item *b)
{
    return a->arrived_us < b->arrived_us || (a->arrived_us == b->arrived_us && a->arrival < b->arrival);
}

static struct ref_item *ref_expire(struct world *w, int model)
{
    const struct boostq_rules *r = &w->ref_models[model].rules;
    struct ref_item *oldest = NULL;

    for (int i = 0; i < N_ITEMS; i++) {
        struct ref_item *it = &w->ref_items[i];

        if (it->model == model && waits(it) && (oldest == NULL || ref_arrived_before(it, oldest)))
            oldest = it;
    }
    if (r->timeout_us <= 0 || oldest == NULL || w->now_us - oldest->arrived_us < r->timeout_us)
        return NULL;
    ref_leave(w, oldest);
    return oldest;
}

/* ---- comparing ---- */

static int index_of(const struct world *w, const struct boostq_item *item)
{
    return item == NULL ? -1 : (int)(CONTAINER_OF(item, struct admit_item, queue) - w->items);
}

static enum ref_where where_of(enum boostq_where where)
{
    static const enum ref_where map[] = {REF_OUT, REF_FRESH, REF_BOOSTED, REF_FORCED};

    return map[where];
}

static void compare_item(const struct world *w, int i)
{
    const struct ref_item *ref = &w->ref_items[i];
    const struct boostq_item *item = &w->items[i].queue;

    CHECK(where_of(item->where) == (ref->where == REF_RUNNING ? REF_OUT : ref->where));
    CHECK(item->boosted == ref->boosted);
    CHECK(item->forced == ref->forced);
    if (!waits(ref))
        return;
    CHECK(item->lane->pod_id == pod_id(w, ref->lane));
    CHECK(boostq_overtaken(&w->models[ref->model]->q, item) == ref->overtaken);
    CHECK(boostq_warm_pod(&w->models[ref->model]->q, item) == pod_id(w, ref_warm(w, ref)));
}

struct order {
    const struct world *w;
    int last, model;
    size_t n;
};

static void compare_order(const struct boostq_item *item, void *arg)
{
    struct order *o = arg;
    int i = index_of(o->w, item);

    CHECK(waits(&o->w->ref_items[i]) && o->w->ref_items[i].model == o->model);
    if (o->last >= 0)
        CHECK(ref_before(o->w, &o->w->ref_items[o->last], &o->w->ref_items[i]));
    o->last = i;
    o->n++;
}

static void compare_model(const struct world *w, int model)
{
    const struct boostq *q = &w->models[model]->q;
    const struct boostq_stats *st = &q->stats;
    struct order o = {.w = w, .last = -1, .model = model};
    size_t n = 0, n_of_name = 0, n_tracked = 0;

    for (int i = 0; i < N_ITEMS; i++)
        n += waits(&w->ref_items[i]) && w->ref_items[i].model == model;
    for (int s = 0; s < N_SESSIONS; s++)
        n_tracked += w->ref_models[model].sessions[s].tracked;
    for (int i = 0; i < N_ITEMS; i++)
        n_of_name +=
            waits(&w->ref_items[i]) && w->ref_models[w->ref_items[i].model].name == w->ref_models[model].name;
    CHECK(q->name->n == n_of_name);
    boostq_each(q, compare_order, &o);
    CHECK(o.n == n && boostq_len(q) == n);
    CHECK(q->tracker.n == n_tracked);
    CHECK(st->enqueued + st->requeued == st->dequeued + st->expired + st->abandoned + n);
    CHECK(st->promoted == w->ref_models[model].n_promoted);
}

static void compare_all(const struct world *w)
{
    for (int i = 0; i < N_ITEMS; i++)
        compare_item(w, i);
    for (int model = 0; model < (int)w->n_models; model++)
        compare_model(w, model);
    for (int p = 0; p < N_PODS; p++)
        CHECK(w->pods[p]->in_flight == w->ref_pods[p].in_flight);
}

/* ---- steps on both sides ---- */

static void start_run(struct world *w, int i)
{
    struct ref_item *it = &w->ref_items[i];
    struct fairq *fair = w->models[it->model]->q.fair;

    if (fair != NULL)
        fairq_start(fair, &w->runs[i], &w->items[i].queue.fair, w->now_us);
    ref_start(w, it);
}

static void end_run(struct world *w, int i, int input, int output)
{
    struct ref_item *it = &w->ref_items[i];
    struct fairq *fair = w->models[it->model]->q.fair;

    if (fair != NULL)
        fairq_end(fair, &w->runs[i], input, output, w->now_us);
    ref_end(w, it, input, output);
}

static bool step_admit(struct world *w)
{
    struct admission got = {0};
    struct ref_item *ref = ref_admit(w);
    bool any;
    int i;

    admit_begin(&w->admit, w->now_us);
    any = admit_next(&w->admit, w->now_us, &got);
    CHECK(any == (ref != NULL));
    if (!any)
        return false;
    i = index_of(w, &got.item->queue);
    CHECK(ref == &w->ref_items[i]);
    CHECK(got.model == w->models[ref->model]);
    CHECK(got.pod == w->pods[ref->pod]);
    CHECK(got.item->queue.overtaken == ref->overtaken);
    CHECK(ref->overtaken <= w->ref_models[ref->model].rules.max_overtakes);
    CHECK(!w->pod_rules.gated || got.pod->in_flight <= w->pod_rules.inflight_limit);
    CHECK(boostq_warm_pod(&got.model->q, &got.item->queue) == pod_id(w, ref_warm(w, ref)));
    totals.at_the_bound += ref->overtaken == w->ref_models[ref->model].rules.max_overtakes;
    totals.admissions++;
    start_run(w, i);
    return true;
}

static void step_expire(struct world *w)
{
    for (int model = 0; model < (int)w->n_models; model++) {
        struct ref_item *ref;

        do {
            struct boostq_item *item = boostq_expire(&w->models[model]->q, w->now_us);

            ref = ref_expire(w, model);
            CHECK((ref == NULL) == (item == NULL));
            CHECK(ref == NULL || ref == &w->ref_items[index_of(w, item)]);
        } while (ref != NULL);
    }
}

static void step_pump(struct world *w)
{
    step_expire(w);
    while (step_admit(w))
        ;
    for (int model = 0; model < (int)w->n_models; model++) {
        CHECK(w->models[model]->closed_reason == ref_closed_reason(w, model));
        totals.closed[w->models[model]->closed_reason]++;
        if (boostq_len(&w->models[model]->q) > totals.longest)
            totals.longest = boostq_len(&w->models[model]->q);
    }
    w->settled = true;
}

static int some_item(const struct world *w, bool running)
{
    int start = below(N_ITEMS);

    for (int k = 0; k < N_ITEMS; k++) {
        int i = (start + k) % N_ITEMS;

        if (running ? w->ref_items[i].where == REF_RUNNING : waits(&w->ref_items[i]))
            return i;
    }
    return -1;
}

static void step_push(struct world *w)
{
    int i = below(N_ITEMS), model = below((int)w->n_models), session = below(N_SESSIONS + 2) - 2;
    int input_tokens = below(5);

    if (w->ref_items[i].where != REF_OUT)
        return;
    if (session < -1)
        session = -1;
    w->items[i] =
        (struct admit_item){.queue = {.session = session_id(session),
                                      .fair = {.user = session_id(session), .input_tokens = input_tokens}}};
    boostq_push(&w->models[model]->q, &w->items[i].queue, w->now_us, w->now_us);
    ref_push(w, i, model, session, w->now_us);
    w->ref_items[i].input_tokens = input_tokens;
}

/* To another model's queue, as if its own were gone. */
static void step_move(struct world *w)
{
    int i = some_item(w, false), model = below((int)w->n_models);
    struct ref_item *it = &w->ref_items[i < 0 ? 0 : i];
    int session = it->session, input_tokens = it->input_tokens;

    if (i < 0 || model == it->model || it->n_tried > 0)
        return;
    boostq_remove(&w->models[it->model]->q, &w->items[i].queue);
    ref_leave(w, it);
    admit_move(w->models[model], &w->items[i], w->now_us, it->arrived_us);
    ref_push(w, i, model, session, it->arrived_us);
    it->input_tokens = input_tokens;
    totals.moved++;
}

static void step_mark(struct world *w, int model, int session, int pod)
{
    struct session_key key;
    size_t n;

    session_lru_key(&key, session_id(session));
    n = boostq_mark(&w->models[model]->q, &key, w->pods[pod]->id, w->now_us);
    CHECK(n == ref_mark(w, model, session, pod));
}

static void step_finish(struct world *w)
{
    int i = some_item(w, true);
    bool open_grace = !chance(4);
    struct ref_item *it = &w->ref_items[i < 0 ? 0 : i];

    if (i < 0)
        return;
    if (it->session >= 0 && !chance(4))
        step_mark(w, it->model, it->session, it->pod);
    pod_release_slot(w->pods[it->pod], &w->admit.rules, open_grace, w->now_us);
    ref_release(w, it->pod, open_grace);
    end_run(w, i, below(6), below(6));
    it->where = REF_OUT;
}

static void ref_retry(struct world *w, struct ref_item *it, enum admit_retry got, const struct pod *pod)
{
    int next;

    it->tried[it->pod] = true;
    it->n_tried++;
    ref_refresh(w, it->model);
    if (it->n_tried == ADMIT_MAX_ATTEMPTS || !ref_any_untried(w, it)) {
        CHECK(got == ADMIT_RETRY_NONE);
        it->where = REF_OUT;
        return;
    }
    next = ref_pick(w, it);
    CHECK(got == (next == NO_POD ? ADMIT_RETRY_QUEUED : ADMIT_RETRY_NOW));
    if (next == NO_POD) {
        if (w->ref_models[it->model].rules.boost && it->session >= 0)
            ref_know_session(w, it);
        ref_force(w, it);
    } else {
        CHECK(pod == w->pods[next]);
        totals.retried++;
        ref_give_slot(w, it, next);
    }
}

static void step_connect_failed(struct world *w)
{
    int i = some_item(w, true);
    struct ref_item *it = &w->ref_items[i < 0 ? 0 : i];
    struct ref_pod *p = &w->ref_pods[i < 0 ? 0 : it->pod];
    struct pod *next = NULL, *failed = w->pods[i < 0 ? 0 : it->pod];
    enum admit_retry got;
    bool aside;

    if (i < 0)
        return;
    pod_release_slot(failed, &w->admit.rules, false, w->now_us);
    ref_release(w, it->pod, false);
    end_run(w, i, 0, 0);
    aside = pod_connect_failed(failed, w->now_us);
    p->failures++;
    CHECK(aside == (p->failures >= 3 && p->aside_until_us <= w->now_us));
    if (aside) {
        p->pause_us = p->pause_us == 0 ? 1000000 : p->pause_us * 2 > 30000000 ? 30000000 : p->pause_us * 2;
        p->aside_until_us = w->now_us + p->pause_us;
    }
    got = admit_retry(&w->admit, w->models[it->model], &w->items[i], failed, w->now_us, &next);
    ref_retry(w, it, got, next);
    if (got == ADMIT_RETRY_NOW)
        start_run(w, i);
}

static void step_connect_succeeded(struct world *w)
{
    int p = below(N_PODS);

    pod_connect_succeeded(w->pods[p]);
    w->ref_pods[p].failures = 0;
    w->ref_pods[p].aside_until_us = w->ref_pods[p].pause_us = 0;
}

static void step_remove(struct world *w)
{
    int i = some_item(w, false);

    if (i < 0)
        return;
    boostq_remove(&w->models[w->ref_items[i].model]->q, &w->items[i].queue);
    ref_leave(w, &w->ref_items[i]);
}

static void step_numbers(struct world *w)
{
    static const double waiting[] = {0, 0, 0, 1, 5, NAN};
    int p = below(N_PODS);
    struct pod_numbers n = {.waiting = waiting[below((int)ARRAY_LEN(waiting))],
                            .waiting_min = waiting[below((int)ARRAY_LEN(waiting))],
                            .kv_usage = chance(5) ? NAN : (double)below(4) / 4,
                            .at_us = w->now_us};

    w->pods[p]->numbers = n;
    w->ref_pods[p].numbers = n;
}

static void step_set_pods(struct world *w)
{
    int model = below((int)w->n_models), start = below(N_PODS);
    struct ref_model *m = &w->ref_models[model];
    struct pod *pods[N_PODS];
    bool wanted[N_PODS], had[N_PODS] = {false};
    int order[N_PODS];
    size_t n = 0, n_kept = 0;

    for (int k = 0; k < N_PODS; k++) {
        int p = (start + k) % N_PODS;

        wanted[p] = !chance(3);
        if (wanted[p])
            order[n++] = p;
    }
    for (size_t i = 0; i < n; i++)
        pods[i] = w->pods[order[i]];
    model_set_pods(w->models[model], pods, n, w->now_us);

    for (size_t i = 0; i < m->n_targets; i++) {
        int p = m->targets[i];

        had[p] = true;
        if (wanted[p]) {
            m->targets[n_kept++] = p;
        } else {
            ref_empty_lane(w, model, p);
            m->usable[p] = false;
            m->last_admitted[p] = m->name_admitted[p] = 0;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (!had[order[i]])
            m->targets[n_kept++] = order[i];
    }
    m->n_targets = n_kept;
    ref_refresh(w, model);
}

static void step_leaving(struct world *w)
{
    int p = below(N_PODS);

    w->pods[p]->leaving = w->ref_pods[p].leaving = chance(3);
}

/* Until the announced moment nothing may become possible by time alone: nothing expires, nobody can be
 * admitted. */
static void check_announced(struct world *w, int64_t to_us)
{
    int64_t due_us = admit_next_due_us(&w->admit, w->now_us);

    CHECK(due_us > w->now_us);
    w->now_us = due_us > to_us ? to_us : due_us - 1;
    for (int model = 0; model < (int)w->n_models; model++)
        CHECK(boostq_expire(&w->models[model]->q, w->now_us) == NULL);
    CHECK(!step_admit(w));
}

static void step_time(struct world *w)
{
    int64_t to_us = w->now_us + (chance(40) ? below(40) * US_PER_S : below(6));

    if (w->settled)
        check_announced(w, to_us);
    w->now_us = to_us;
}

static struct fairq_rules random_fairness(void)
{
    return (struct fairq_rules){.window_us = 60 + below(300),
                                .input_weight = below(3),
                                .output_weight = below(3),
                                .token_weight = below(4) > 0,
                                .request_weight = below(2),
                                .max_users = (size_t)(2 + below(N_SESSIONS)),
                                .max_concurrent = (unsigned)(chance(3) ? 0 : 1 + below(6)),
                                .max_qps = chance(2) ? 100000 : 20000};
}

static struct boostq_rules random_rules(bool boost, bool fair)
{
    struct boostq_rules r = {.boost = boost,
                             .fair = fair,
                             .fairness = random_fairness(),
                             .sticky = !chance(4),
                             .prefer_warm = chance(2),
                             .sticky_wait_us = 1 + below(20),
                             .timeout_us = chance(2) ? 0 : 20 + below(80),
                             .max_overtakes = (unsigned)(chance(4) ? 16 : 1 + below(4)),
                             .max_sessions = (size_t)(1 + below(N_SESSIONS))};

    return r;
}

static void step_rules(struct world *w)
{
    int model = below((int)w->n_models);
    struct ref_model *m = &w->ref_models[model];
    struct boostq_rules r = random_rules(m->rules.boost, m->rules.fair);

    /* A lower bound would make counts that are already above it; the bound is checked with a constant one. */
    r.max_overtakes = m->rules.max_overtakes;
    boostq_set_rules(&w->models[model]->q, &r);
    m->rules = r;
    w->ref_names[m->name].fairness = r.fairness;
    ref_evict_users(w, m->name);
    ref_evict(m);
    for (size_t i = 0; i < m->n_targets && !r.sticky; i++)
        ref_empty_lane(w, model, m->targets[i]);
    if (chance(2))
        w->admit.rules.grace_us = w->pod_rules.grace_us = below(12);
}

static void random_step(struct world *w)
{
    int what = below(100);

    if (what < 70 - w->finish_per_cent)
        step_push(w);
    else if (what < 66)
        step_finish(w);
    else if (what < 70)
        step_mark(w, below((int)w->n_models), below(N_SESSIONS), below(N_PODS));
    else if (what < 73)
        step_remove(w);
    else if (what < 76)
        step_move(w);
    else if (what < 80)
        step_numbers(w);
    else if (what < 84)
        step_connect_failed(w);
    else if (what < 85)
        step_connect_succeeded(w);
    else if (what < 86)
        step_set_pods(w);
    else if (what < 87)
        step_leaving(w);
    else if (what < 88 && chance(4))
        step_rules(w);
    else
        step_time(w);
    w->settled = false;
}

/* ---- programs ---- */

/* A name is as fair as its first model says. */
static void ref_name_model(struct world *w, int model, int sibling, struct boostq_rules *r)
{
    struct ref_model *m = &w->ref_models[model];

    m->name = sibling < 0 ? (int)w->n_names++ : w->ref_models[sibling].name;
    m->rules = *r;
    if (sibling < 0) {
        w->ref_names[m->name].fair = r->fair;
        w->ref_names[m->name].fairness = r->fairness;
    }
}

static void world_init(struct world *w)
{
    bool fair = chance(3), boost = !fair && !chance(12);

    *w = (struct world){.now_us = 1000000, .n_models = (size_t)(1 + below(N_MODELS))};
    w->finish_per_cent = chance(2) ? 34 : 14 + below(20);
    w->pod_rules = (struct pod_rules){.gated = !chance(10),
                                      .inflight_limit = (unsigned)(1 + below(3)),
                                      .grace_us = chance(2) ? 0 : 1 + below(10),
                                      .stale_us = 5 + below(30)};
    w->admit.rules = w->pod_rules;
    for (int p = 0; p < N_PODS; p++)
        w->pods[p] = pod_new(SLICE("10.0.0.1:8000"));
    for (int model = 0; model < (int)w->n_models; model++) {
        struct boostq_rules r = random_rules(boost, fair);
        size_t n = (size_t)(1 + below(N_PODS));
        int sibling = model > 0 && !chance(3) ? below(model) : -1;

        w->models[model] = model_new("m", &r, sibling < 0 ? NULL : w->models[sibling]);
        ref_name_model(w, model, sibling, &r);
        model_set_pods(w->models[model], w->pods, n, w->now_us);
        w->ref_models[model].n_targets = n;
        for (size_t i = 0; i < n; i++)
            w->ref_models[model].targets[i] = (int)i;
        ref_refresh(w, model);
        admit_add_model(&w->admit, w->models[model]);
    }
}

static void finish_everything(struct world *w)
{
    for (int i = 0; i < N_ITEMS; i++) {
        struct ref_item *it = &w->ref_items[i];

        if (it->where == REF_RUNNING) {
            pod_release_slot(w->pods[it->pod], &w->admit.rules, true, w->now_us);
            end_run(w, i, 0, 0);
        } else if (waits(it))
            boostq_remove(&w->models[it->model]->q, &w->items[i].queue);
    }
}

static void add_stats(const struct boostq_stats *st)
{
    totals.stats.requeued += st->requeued;
    totals.stats.promoted += st->promoted;
    totals.stats.dequeued_boosted += st->dequeued_boosted;
    totals.stats.dequeued_forced += st->dequeued_forced;
    totals.stats.forced_by_overtakes += st->forced_by_overtakes;
    totals.stats.forced_by_sticky_wait += st->forced_by_sticky_wait;
    totals.stats.expired += st->expired;
    totals.stats.abandoned += st->abandoned;
}

static void world_end(struct world *w)
{
    finish_everything(w);
    for (int model = 0; model < (int)w->n_models; model++) {
        struct boostq *q = &w->models[model]->q;

        CHECK(boostq_len(q) == 0 && q->sessions.n == 0 && q->forced.n == 0 && boostq_oldest(q) == NULL);
        add_stats(&q->stats);
        totals.evictions += q->tracker.evictions;
        if (q->fair != NULL) {
            totals.ranks_changed += q->fair->rank_changes;
            CHECK(q->fair->n_running == 0 && q->line.users.n == 0);
        }
        CHECK(q->name->n == 0);
        CHECK(q->shared.n == 0 && q->shared.overtakes_total == 0 && q->fresh_overtakes == 0);
        CHECK(q->shared_passed == 0);
        admit_remove_model(&w->admit, w->models[model]);
        model_free(w->models[model]);
    }
    for (int p = 0; p < N_PODS; p++) {
        CHECK(w->pods[p]->in_flight == 0 && w->pods[p]->refs == 1);
        pod_unref(w->pods[p]);
    }
    admit_free(&w->admit);
}

static void run_program(uint64_t seed, uint64_t steps)
{
    static struct world w;

    seed_of_program = seed;
    rng = (struct test_random){seed};
    world_init(&w);
    for (uint64_t i = 0; i < steps; i++) {
        random_step(&w);
        if (!chance(8))
            step_pump(&w);
        if (chance(24))
            compare_all(&w);
    }
    compare_all(&w);
    world_end(&w);
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* Prints and demands: each kind of event happened at least once in a thousand steps. */
static void want_often(const char *what, uint64_t n, uint64_t steps)
{
    print_message("  %-22s %llu\n", what, (unsigned long long)n);
    assert_true(n >= steps / 1000);
}

static void want_variety(uint64_t steps)
{
    const struct boostq_stats *st = &totals.stats;

    want_often("admissions", totals.admissions, steps);
    want_often("boosted", st->dequeued_boosted, steps);
    want_often("forced", st->dequeued_forced, steps);
    want_often("forced by overtakes", st->forced_by_overtakes, steps);
    want_often("forced by sticky wait", st->forced_by_sticky_wait, steps);
    want_often("left at the bound", totals.at_the_bound, steps);
    want_often("passed by pod lanes", totals.passed_by_lanes, steps);
    want_often("passed by another queue of the name", totals.passed_by_queues, steps);
    want_often("promoted", st->promoted, steps);
    want_often("evicted", totals.evictions, steps);
    want_often("put back", st->requeued, steps);
    want_often("retried at once", totals.retried, steps);
    want_often("expired", st->expired, steps);
    want_often("moved", totals.moved, steps);
    want_often("abandoned", st->abandoned, steps);
    want_often("went before an older one of another user", totals.by_user, steps);
    want_often("users forgotten", totals.users_evicted, steps);
    want_often("ranks changed while waiting", totals.ranks_changed, steps);
    for (int k = POD_ROOM + 1; k < POD_ROOM_KINDS; k++)
        want_often(pod_room_name((enum pod_room)k), totals.closed[k], steps);
}

static void test_random_programs_match_the_naive_model(void **state)
{
    uint64_t seed = env_number("SEED", 1), steps = env_number("STEPS", DEFAULT_STEPS);

    (void)state;
    memset(long_id, 'L', sizeof(long_id));
    for (uint64_t done = 0; done < steps; done += PROGRAM_STEPS, seed++)
        run_program(seed, PROGRAM_STEPS);
    print_message("%llu steps, seeds up to %llu, longest queue %llu\n", (unsigned long long)steps,
                  (unsigned long long)seed - 1, (unsigned long long)totals.longest);
    if (steps >= DEFAULT_STEPS)
        want_variety(steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_programs_match_the_naive_model)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
