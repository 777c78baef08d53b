/* fairq: fairness between the users of one public name. It owns the tokens each user has had in a sliding
 * window, the two limits that fairness brings of its own, and the order of the requests that nothing else
 * ranks. A name has a queue for each of its targets: users, windows and limits are one (struct fairq), the
 * order is in the line of each queue (struct fairq_line). It is the part of boostq that is there while
 * fairness is on: forced requests, wait limit, cancellation and overtake bound are boostq's for both
 * strategies.
 *
 * Rank (README "User fairness"): the user with the smallest priority first, inside a user by arrival.
 * Priority = token weight x (input weight x input tokens + output weight x output tokens of the window) +
 * request weight x requests of the window. A request that runs counts with the tokens its input is estimated
 * at, so that a burst is not over before its first answer is. Between equal priorities: the anonymous user
 * last, else the user whose oldest request in its line arrived first. All of it is a strict weak order at any
 * moment, of one line and of all lines together, and follows the window while requests wait: for each change
 * O(log users) in each line that the user waits in, O(1) for each bucket of the window that ends. */
#ifndef FAIRQ_H
#define FAIRQ_H

#include "heap.h"
#include "htab.h"
#include "list.h"
#include "pool.h"
#include "session_lru.h"

#define FAIRQ_NAME_MAX 64 /* bytes of a user's id that are kept for dumps */

struct fairq_rules {
    int64_t window_us;
    double input_weight, output_weight, token_weight, request_weight; /* finite, >= 0 */
    /* With tokens in the window and nothing waiting or running; the one idle longest goes. */
    size_t max_users;
    unsigned max_concurrent; /* requests running at one time; 0: max_qps holds instead */
    unsigned max_qps;        /* >= 1, admissions in a second, evenly */
};

struct fairq_user;
struct fairq_place; /* of a user in a line, while it waits there; private */

/* The part of a waiting request; embedded in boostq_item. */
struct fairq_item {
    struct slice user;         /* set by the caller, owned by it while the item waits; empty: anonymous */
    int64_t input_tokens;      /* set by the caller: an estimate, >= 0 */
    bool had_turn;             /* set by fairq_start: when it starts again, it takes none of max_qps */
    struct fairq_place *place; /* while it waits */
    uint64_t arrival;
    struct list in_place;
};

/* A request that runs; in the caller's object, zeroed before fairq_start. */
struct fairq_run {
    struct fairq_user *user; /* NULL: not running */
    int64_t input_tokens;
};

enum fairq_gate { FAIRQ_OPEN, FAIRQ_MAX_CONCURRENT, FAIRQ_MAX_QPS };

struct fairq {
    struct fairq_rules rules;
    struct htab users;   /* by id; all that have anything */
    struct list idle;    /* users with nothing waiting or running, idle longest first */
    struct list buckets; /* of all users, oldest first */
    struct pool places;
    struct fairq_user *anonymous;
    size_t n_users, n_running;
    int64_t next_turn_us; /* max_qps: not before */
    uint64_t evictions, rank_changes;
};

/* Of one queue. */
struct fairq_line {
    struct fairq *fair;
    struct heap users; /* with requests waiting here, by priority */
};

struct fairq *fairq_new(const struct fairq_rules *rules);
/* Nothing may wait or run any more, in no line. */
void fairq_free(struct fairq *f);
/* Changed weights rank anew who waits. */
void fairq_set_rules(struct fairq *f, const struct fairq_rules *rules);

void fairq_line_init(struct fairq_line *l, struct fairq *f);
/* Nothing may wait in it. */
void fairq_line_free(struct fairq_line *l);
/* The request waits from now on. Arrival numbers grow, over all lines. */
void fairq_enter(struct fairq_line *l, struct fairq_item *item, uint64_t arrival);
void fairq_leave(struct fairq_item *item);
/* Who goes first, or NULL. */
struct fairq_item *fairq_head(const struct fairq_line *l);
/* Both wait, in any two lines. */
bool fairq_before(const struct fairq_item *a, const struct fairq_item *b);

/* The request was admitted: it counts against the limits and with its estimate. */
void fairq_start(struct fairq *f, struct fairq_run *run, struct fairq_item *item, int64_t now_us);
/* It has ended. The tokens it has had go into the window in place of the estimate; none: it counts as if it
 * had not been. */
void fairq_end(struct fairq *f, struct fairq_run *run, int64_t input_tokens, int64_t output_tokens,
               int64_t now_us);
/* What has left the window counts no more. Called before anybody is asked who goes first. */
void fairq_advance(struct fairq *f, int64_t now_us);

enum fairq_gate fairq_gate(const struct fairq *f, int64_t now_us);
/* When the gate opens by time alone; INT64_MAX = it does not. */
int64_t fairq_next_due_us(const struct fairq *f, int64_t now_us);

/* Calls fn for each user that is known, in no order; priority as it is now. */
struct fairq_view {
    struct slice name; /* at most FAIRQ_NAME_MAX bytes of the id; empty: anonymous */
    double priority;
    int64_t input_tokens, output_tokens; /* in the window */
    uint64_t requests;                   /* in the window */
    size_t waiting, running;             /* in all lines */
};
void fairq_each(struct fairq *f, void (*fn)(const struct fairq_view *v, void *arg), void *arg);

#endif
