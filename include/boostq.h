/* boostq: one queue: of one public model name and one of its targets. It owns the order: lanes, ranks,
 * promotion, the overtake bound, the wait limit and the tracker of completed sessions. It knows pods only by
 * id, and not whether they have room (admit does).
 *
 * Rank (README "Queue rules"): forced first, oldest arrival first; then boosted, the session whose last turn
 * completed most recently first, inside a session by arrival; then the rest by arrival. Lanes: a boosted
 * request waits in the lane of its session's warm pod while that pod is usable, everything else in the shared
 * lane. Forced requests always stand in the shared lane.
 *
 * The waiting boosted requests of one session form a group: they rank together and leave by arrival. A group
 * gets its lane when it forms and keeps it while that lane is open, also when a later turn of the session
 * completes elsewhere.
 *
 * Overtaken (README "Overtake bound"): a boosted request, each time a boosted request that entered its lane
 * after it is admitted from that lane before it; the oldest boosted request of the shared lane, while it is
 * that, also each time a boosted request that arrived after it is admitted from a pod's lane (a session whose
 * pod is gone must not starve behind those that have one); a request that is not boosted, while it is the
 * oldest of those, each time a boosted request that arrived after it is admitted from any lane. Forced
 * requests overtake and are overtaken by nobody.
 *
 * With user fairness (rules.fair) nothing is boosted, and fairq ranks what is not forced. A request is
 * overtaken, while it is the oldest, each time one that arrived after it is admitted, also from another queue
 * of its name while its own queue had somebody for a pod with room (boostq_passed).
 *
 * All operations are O(log n), but for a lane that closes (O(its length)), the lanes of a queue (one for each
 * pod, looked at one by one) and boostq_take, which may also look at up to max_overtakes neighbours. */
#ifndef BOOSTQ_H
#define BOOSTQ_H

#include "fairq.h"
#include "heap.h"
#include "htab.h"
#include "list.h"
#include "pool.h"
#include "session_lru.h"

struct boostq_rules {
    bool boost; /* false: plain arrival order, nothing is tracked (no strategy is on) */
    bool fair;  /* and not boost: users in the order of fairq */
    struct fairq_rules fairness;
    bool sticky;      /* SESSION_STICKY=prefer and SESSION_STICKY_WAIT > 0: pod lanes are used */
    bool prefer_warm; /* SESSION_STICKY=prefer, whatever the wait: pick takes the warm pod when it has room */
    /* Longest wait in a pod's lane before a request is forced; see boostq_bound_wait. */
    int64_t sticky_wait_us;
    int64_t timeout_us;     /* wait limit; <= 0 = none */
    bool fixed_wait;        /* sticky_wait_us holds whatever a warm prefix is worth */
    bool pinned;            /* warm pods are the caller's to say (pinned_pod_id), not the tracker's */
    unsigned max_overtakes; /* >= 1 */
    size_t max_sessions;    /* >= 1 */
};

/* In order of rank, the last one first. */
enum boostq_where { BOOSTQ_OUT, BOOSTQ_FRESH, BOOSTQ_BOOSTED, BOOSTQ_FORCED };

struct boostq_session; /* the waiting requests of one session and the rank of its group; private */
struct boostq_lane;

/* One waiting request; embedded in the caller's object, zeroed before its first push. Fields are read-only
 * outside. From `where` to `entered_lane_us` is what an admission touches; of one among thousands no cache
 * has it. */
struct boostq_item {
    enum boostq_where where : 8;
    bool boosted; /* its session was tracked at push, or it was promoted while it waited */
    bool forced;  /* overtaken to the bound, waited too long for its warm pod, or put back (boostq_requeue) */
    struct heap_node by_forced; /* in boostq.forced: the first of a run */
    struct boostq_lane *lane;   /* where it stands; NULL when out */
    struct boostq_session *group;
    struct list in_lane;    /* in boostq_lane.waiting, in boostq.fresh, or in a run of forced ones, a ring */
    struct list in_session; /* of its session's requests that are not forced, in order of arrival */
    struct list by_arrival; /* in boostq.arrivals; in no list: it is in boostq.late */
    uint64_t arrival;       /* arrival number, unique among the queues of the name */
    int64_t arrived_us;     /* set by boostq_push: what the wait limit counts from */
    uint64_t entry;         /* entry number in its lane */
    unsigned diff;          /* see boostq.c */
    unsigned overtaken; /* exact once it is forced or has left by boostq_take; see boostq_overtaken before */
    uint64_t warm_pod_id;    /* 0 = none known; as known at boostq_take; while it waits see boostq_warm_pod */
    int64_t entered_lane_us; /* since when it waits in a pod's lane */
    struct list by_step;     /* in boostq_lane.steps while diff > 0 */
    struct session_key key;  /* of session; set by boostq_push when the rules say `boost` */
    struct slice session;    /* set by the caller, owned by it while the item waits; empty: no session */
    uint64_t pinned_pod_id;  /* set by the caller where the rules say `pinned`; 0 = none */
    struct heap_node by_late; /* in boostq.late */
    struct fairq_item fair;   /* its user and tokens are set by the caller when rules.fair */
};

struct boostq_lane {
    uint64_t pod_id;     /* 0 for the shared lane */
    bool open;           /* false: its pod is not usable, nobody may enter */
    struct heap boosted; /* boostq_session groups, most recent completion first */
    struct list waiting; /* boosted items in order of entry */
    struct list steps;   /* those with diff > 0, in the same order: at most as many as the bound */
    size_t n;            /* length of `waiting` */
    /* Of the first item of `waiting`, so that it need not be loaded to see that nothing is due. */
    uint64_t overtakes_total; /* sum of all diff = its overtakes inside the lane */
    int64_t first_entered_us; /* its entered_lane_us */
    struct list link;         /* in boostq.lanes */
};

/* enqueued + requeued = dequeued + expired + abandoned + boostq_len. */
struct boostq_stats {
    uint64_t enqueued, requeued, dequeued, dequeued_boosted, dequeued_forced;
    uint64_t promoted, forced_by_overtakes, forced_by_sticky_wait, expired, abandoned;
};

void boostq_stats_add(struct boostq_stats *to, const struct boostq_stats *more);

/* What the queues of one public name have in common; lives as long as one of them. */
struct boostq_name {
    unsigned refs;         /* queues */
    size_t n;              /* requests waiting in all of them */
    uint64_t last_arrival; /* so that requests of two queues have an order, too */
    struct fairq *fair;    /* NULL: off */
};

struct boostq {
    struct boostq_rules rules;
    struct boostq_name *name;
    struct fairq *fair; /* the name's; NULL: off */
    struct fairq_line line;
    struct session_lru tracker;
    struct boostq_lane shared;
    struct list lanes; /* pod lanes */
    /* By arrival number: runs of requests that arrived in the order in which they were forced, by the first
     * of each. Where many are forced at once, they are few. */
    struct heap forced;
    struct boostq_item *last_forced; /* at the end of the last run; NULL: it has left, and its run is empty */
    struct list fresh;               /* not boosted, by arrival */
    unsigned fresh_overtakes;        /* of the oldest fresh item */
    unsigned shared_passed; /* of the oldest boosted item of the shared lane, by admissions from pod lanes */
    /* All that wait, by arrived_us: in the order in which they came, and those that came when somebody who
     * arrived later stood there already (moved here, put back). */
    struct list arrivals;
    struct heap late;
    int64_t last_arrived_us; /* the latest arrived_us of all that ever stood in arrivals */
    struct htab sessions;    /* sessions with waiting requests, by id */
    struct pool session_pool;
    int64_t wait_us; /* in a pod's lane; 0: pod lanes are not entered; at most rules.sticky_wait_us */
    size_t n;
    uint64_t last_entry;
    struct boostq_stats stats;
    /* A waiting request became boosted; may be NULL. Called inside boostq_mark; must not change the queue. */
    void (*on_promoted)(struct boostq_item *item, void *arg);
    void *on_promoted_arg;
};

/* name: of another queue of the same public name; NULL: there is none. */
void boostq_init(struct boostq *q, const struct boostq_rules *rules, struct boostq_name *name);
/* The queue must be empty of items. */
void boostq_free(struct boostq *q);
/* Changed rules (reload) apply to who waits already; the strategy itself needs a restart and is left as it
 * is. Those of fairness hold for the whole name. */
void boostq_set_rules(struct boostq *q, const struct boostq_rules *rules);

/* Bounds the wait in pod lanes by what a warm prefix is worth; INT64_MAX = sticky_wait_us alone, as at first.
 */
void boostq_bound_wait(struct boostq *q, int64_t worth_us);

/* The lane of a pod; the caller owns the struct and calls boostq_remove_lane before it frees it. A new lane
 * is open. */
void boostq_add_lane(struct boostq *q, struct boostq_lane *lane, uint64_t pod_id);
/* The pod left or was set aside: its lane empties into the shared one at once and takes nobody until it is
 * opened. */
void boostq_close_lane(struct boostq *q, struct boostq_lane *lane);
void boostq_open_lane(struct boostq_lane *lane);
void boostq_remove_lane(struct boostq *q, struct boostq_lane *lane);

/* Ranks the request (item->session set) and lets it wait. Its wait limit counts from since_us, which is
 * now_us unless it has waited elsewhere. */
void boostq_push(struct boostq *q, struct boostq_item *item, int64_t now_us, int64_t since_us);
/* A request that waits and is not forced yet is forced from now on. */
void boostq_force(struct boostq *q, struct boostq_item *item);
/* Back after boostq_take because its pod could not be reached: forced, with its first arrival, wait limit
 * running on. */
void boostq_requeue(struct boostq *q, struct boostq_item *item);
/* The request goes away unserved (client gone, model removed). */
void boostq_remove(struct boostq *q, struct boostq_item *item);
/* A turn of the session completed on the pod: tracks it, promotes or re-ranks its waiting requests. key: as
 * the item of that turn had it, or session_lru_key of the id. Returns how many were promoted. */
size_t boostq_mark(struct boostq *q, const struct session_key *key, uint64_t pod_id, int64_t now_us);

/* The waiting request with the earliest arrived_us, or NULL: to empty a queue, remove it until there is none.
 */
struct boostq_item *boostq_oldest(const struct boostq *q);
/* Takes out and returns one request whose wait limit is over (now_us >= arrived_us + timeout_us), oldest
 * first; NULL = none. */
struct boostq_item *boostq_expire(struct boostq *q, int64_t now_us);
/* Forces every request that reached the overtake bound or has waited too long in a pod's lane. */
void boostq_force_due(struct boostq *q, int64_t now_us);
/* The next moment at which boostq_expire or boostq_force_due finds something by time alone; INT64_MAX =
 * never. */
int64_t boostq_next_due_us(const struct boostq *q);

/* The candidates, best of each kind; NULL = none. All are still waiting afterwards. */
struct boostq_item *boostq_head_forced(const struct boostq *q);
struct boostq_item *boostq_head_boosted(const struct boostq_lane *lane);
struct boostq_item *boostq_head_fresh(const struct boostq *q);
/* All forced requests, in no particular order: the head, then one after the other; NULL: that was the last.
 */
struct boostq_item *boostq_next_forced(const struct boostq *q, const struct boostq_item *item);
/* True when a ranks before b (both waiting, with user fairness in any two queues of a name): the order of the
 * rank rule above, lanes ignored. */
bool boostq_before(const struct boostq_item *a, const struct boostq_item *b);
/* Who most likely follows one that was taken out of the lane, or out of q->shared; NULL: nobody there. */
const struct boostq_item *boostq_upcoming(const struct boostq *q, const struct boostq_lane *lane);
/* Admits a candidate: takes it out and counts who was overtaken by it. */
void boostq_take(struct boostq *q, struct boostq_item *item);
/* The item is to be taken from another queue of the name by the rank between them, although somebody of this
 * one could have gone: counts who is overtaken here. */
void boostq_passed(struct boostq *q, const struct boostq_item *item);

/* The pod of the last completed turn of the item's session, as known now for a waiting item and as known at
 * boostq_take for any other; 0 = none known, or the rules do not want it (prefer_warm). */
uint64_t boostq_warm_pod(const struct boostq *q, const struct boostq_item *item);
/* How often the waiting item has been overtaken so far; O(max_overtakes). */
unsigned boostq_overtaken(const struct boostq *q, const struct boostq_item *item);
/* Calls fn in the order in which the queue would be served if every pod had room; O(n log n), for dumps. */
void boostq_each(const struct boostq *q, void (*fn)(const struct boostq_item *item, void *arg), void *arg);
static inline size_t boostq_len(const struct boostq *q)
{
    return q->n;
}

#endif
