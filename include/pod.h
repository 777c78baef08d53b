/* pod: what the router knows of one pod: its in-flight count, health, scraped numbers and grace windows, and
 * the one test whether it has room. Opens no connection (upstream does) and reads no metrics (scrape does).
 */
#ifndef POD_H
#define POD_H

#include "log.h"

/* The last scraped numbers, summed or joined over an engine's ranks. NAN = missing in the pod's metrics. */
struct pod_numbers {
    double running;     /* sum over ranks */
    double waiting;     /* sum over ranks */
    double waiting_min; /* of any rank: 0 means some rank has room */
    double kv_usage;    /* 0..1, the fullest rank */
    bool asleep;        /* every rank says that it sleeps (vLLM's sleep mode): it would not answer */
    int64_t at_us;      /* when they arrived; 0 = never */
};

/* Running totals of a pod's histograms. NAN = missing. */
struct pod_totals {
    double ttft_s, ttft_n; /* seconds to first tokens, and how many those were */
    double tpot_s, tpot_n; /* the same between tokens */
};

/* An average between two scrapes. */
struct pod_average {
    double value_s; /* NAN = never */
    int64_t at_us;  /* of the last scrape with something new in it */
};
/* After so long without anything new an average is no longer known, nor that the pod was tried. */
#define POD_AVERAGE_KEEP_US (30 * US_PER_S)
#define POD_ASLEEP_KEEP_US  (30 * US_PER_S) /* then nobody knows any more, and a request finds out */

struct pod_rules {
    bool gated;              /* a queue strategy is on: limits count. false: usable = room */
    unsigned inflight_limit; /* SESSION_BOOST_INFLIGHT_PER_POD, all models together */
    int64_t grace_us;        /* SESSION_BOOST_GRACE_PERIOD; 0 = off */
    int64_t stale_us;        /* numbers older than this are no opinion: three scrape intervals */
};

/* Why a pod cannot take a request now. The names are the label values of the gate-closed metric
 * (pod_room_name). */
enum pod_room {
    POD_ROOM,
    POD_NOT_USABLE,
    POD_FULL,
    POD_GRACE,
    POD_BACKPRESSURE,
    POD_ROOM_OF_PODS, /* from here on: not the pods, the model's own limits (model_gate) */
    POD_MAX_CONCURRENT = POD_ROOM_OF_PODS,
    POD_MAX_QPS,
    POD_ROOM_KINDS
};

struct upstream;

struct pod {
    char *name; /* authority as configured: "10.0.0.1:8000", "[::1]:8000", "pod-0.svc:8000" */
    struct log_known log_name;
    struct slice head_start; /* headers_pod_start */
    uint64_t id;             /* never 0, never used twice */
    unsigned refs;           /* who points here: models, requests, discovery */
    unsigned in_flight; /* requests of ours, all models; counted by admit, released once in request_finish */
    struct pod_numbers numbers;
    struct pod_totals totals; /* as scraped last */
    struct pod_average ttft, tpot;
    int64_t ended_us;          /* when the last request of ours ended; 0 = never */
    bool leaving;              /* discovery dropped it: finishes what it runs, gets nothing new */
    unsigned connect_failures; /* in a row */
    int64_t aside_until_us;    /* set aside until then; 0 = not */
    int64_t aside_pause_us;    /* length of the current or last pause */
    int64_t *held_until_us;    /* grace windows, oldest first: a ring of held_cap */
    size_t held_first, held_n, held_cap;
    struct upstream *upstream; /* its connections; set by the network layer */
    uint64_t mark;             /* scratch of model_set_pods */
};

struct pod *pod_new(struct slice name);
static inline struct pod *pod_ref(struct pod *p)
{
    p->refs++;
    return p;
}
/* Frees it with the last reference; pod_new gives the first one. */
void pod_unref(struct pod *p);

/* The one test for admission and choice (README "Queue rules", Room). Drops grace windows that are over. Set
 * aside or not is left to the model, which never has all of its pods aside (model_refresh). */
enum pod_room pod_room(struct pod *p, const struct pod_rules *rules, int64_t now_us);
const char *pod_room_name(enum pod_room r);
bool pod_is_aside(const struct pod *p, int64_t now_us);
/* Its last numbers say so, and are not older than POD_ASLEEP_KEEP_US. */
bool pod_is_asleep(const struct pod *p, int64_t now_us);
/* A scrape. at_us of the numbers is set here. */
void pod_take_numbers(struct pod *p, const struct pod_numbers *numbers, const struct pod_totals *totals,
                      int64_t now_us);
/* NAN: not known. */
double pod_average_s(const struct pod_average *a, int64_t now_us);
/* A request of ours has ended there in the last POD_AVERAGE_KEEP_US. */
bool pod_was_tried(const struct pod *p, int64_t now_us);
bool pod_numbers_stale(const struct pod *p, const struct pod_rules *rules, int64_t now_us);

/* Requests that it may get before it is full; where the rules are `gated`. */
unsigned pod_free_slots(const struct pod *p, const struct pod_rules *rules);
void pod_take_slot(struct pod *p);
/* Exactly once for each taken slot. open_grace: a request that reached the pod ended; its slot is held for
 * rules->grace_us. */
void pod_release_slot(struct pod *p, const struct pod_rules *rules, bool open_grace, int64_t now_us);

#define POD_ASIDE_AFTER_FAILURES 3
#define POD_ASIDE_MIN_US         (1 * US_PER_S)
#define POD_ASIDE_MAX_US         (30 * US_PER_S)
/* The third failure in a row and later ones: set aside for 1 s, 2 s, 4 s ... 30 s. Failures while it is aside
 * do not lengthen the pause: many connects that fail together count as one. Returns true when it was set
 * aside now. */
bool pod_connect_failed(struct pod *p, int64_t now_us);
void pod_connect_succeeded(struct pod *p);
/* The next moment at which the pod's room or place could change by time alone (grace, set aside, sleep,
 * staleness); INT64_MAX = never. */
int64_t pod_next_due_us(const struct pod *p, const struct pod_rules *rules, int64_t now_us);

#endif
