/* sched: where the queue meets the loop: one pump, run at the very end of a turn, and one timer. Decides
 * nothing itself (admit does). */
#ifndef SCHED_H
#define SCHED_H

#include "admit.h"
#include "loop.h"

struct sched_ops {
    /* The request got a slot on the pod. */
    void (*admitted)(struct admit_item *item, struct pod *pod);
    /* It will most likely be admitted next: what its admission reads may be loaded. */
    void (*upcoming)(const struct admit_item *item);
    /* Its wait limit is over; it has left the queue. */
    void (*expired)(struct admit_item *item);
    /* Its model was removed or lost its pods; it has left the queue. */
    void (*vanished)(struct admit_item *item);
};

struct sched {
    struct loop *loop;
    struct admit admit;
    const struct sched_ops *ops;
    struct loop_task pump;
    struct event *timer;
    int64_t timer_us; /* when it fires; INT64_MAX = not armed */
};

/* False: no timer could be made. */
MUST_CHECK bool sched_init(struct sched *s, struct loop *l, const struct sched_ops *ops);
void sched_free(struct sched *s);
/* Something changed (arrival, release, fresh numbers, pods): pump at the very end of this turn, after what
 * was sent ahead of an answer that has ended in it. */
void sched_kick(struct sched *s);
/* Does now what is due at the end of this turn, if anything: nobody is left in a queue who need not wait. Not
 * out of ops. */
void sched_settle(struct sched *s);
/* Whether sched_settle may be called for a request just enqueued and changes nobody's turn: the order of all
 * that wait and of all that may come in this turn of the loop is free (admit_order_is_free). And whether it
 * costs little, with few models and pods. */
bool sched_order_is_free(const struct sched *s, const struct model *m);
void sched_enqueue(struct sched *s, struct model *m, struct admit_item *item);
/* The waiting request goes away. */
void sched_cancel(struct sched *s, struct model *m, struct admit_item *item);
/* As sched_enqueue, for one that has waited in another model's queue since then: its wait limit runs on. */
void sched_move(struct sched *s, struct model *m, struct admit_item *item, int64_t since_us);
/* The model was removed or lost its pods: everything that waits for it leaves through ops->vanished, which
 * may put it into a queue again. */
void sched_flush(struct sched *s, struct model *m);
/* Gives the slot back. reached: a request reached the pod and ended there, so a grace window may open. */
void sched_release(struct sched *s, struct pod *pod, bool reached);
enum admit_retry sched_retry(struct sched *s, struct model *m, struct admit_item *item, struct pod *failed,
                             struct pod **pod);
/* Works out anew which pods are usable, everywhere. */
void sched_refresh(struct sched *s);

#endif
