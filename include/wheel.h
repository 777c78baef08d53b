/* wheel: many coarse time limits for the price of one timer. Setting one again while it is pending only
 * stores the new time: the timer is looked at when its old slot comes round, so that a limit that is pushed
 * out by every byte costs a store. A limit fires up to one tick late, never early. */
#ifndef WHEEL_H
#define WHEEL_H

#include "list.h"

#define WHEEL_SLOTS   512
#define WHEEL_TICK_US (20 * US_PER_MS)

struct wheel_timer {
    struct list link;
    int64_t due_us;  /* when it shall fire */
    int64_t slot_us; /* due_us as it was when the timer was put into its slot */
    void (*fire)(struct wheel_timer *t);
};

struct wheel {
    struct list slots[WHEEL_SLOTS];
    int64_t tick; /* the last tick that was handled, in units of WHEEL_TICK_US */
    size_t n;     /* timers in slots */
};

void wheel_init(struct wheel *w, int64_t now_us);
void wheel_timer_init(struct wheel_timer *t, void (*fire)(struct wheel_timer *t));
/* Arms the timer or moves it, earlier or later. */
void wheel_set(struct wheel *w, struct wheel_timer *t, int64_t due_us);
void wheel_cancel(struct wheel *w, struct wheel_timer *t);
/* Not due any more, for the price of a store: the timer stays in its slot for some time, most likely until it
 * is set again. wheel_cancel before its memory goes. */
static inline void wheel_rest(struct wheel_timer *t)
{
    t->due_us = INT64_MAX;
}
static inline bool wheel_in_slot(const struct wheel_timer *t)
{
    return !list_empty(&t->link);
}
static inline bool wheel_pending(const struct wheel_timer *t)
{
    return wheel_in_slot(t) && t->due_us != INT64_MAX;
}
/* The end of the tick in which the timer is looked at, which must be in a slot. */
static inline int64_t wheel_look_us(const struct wheel_timer *t)
{
    return t->slot_us < INT64_MAX - WHEEL_TICK_US ? (t->slot_us / WHEEL_TICK_US + 1) * WHEEL_TICK_US
                                                  : INT64_MAX;
}
/* The end of the next tick that has timers to look at: nothing fires before. The wheel must not be empty. */
int64_t wheel_next_us(const struct wheel *w);
/* Fires what is due at now_us. A fired timer is not pending any more; fire may set or cancel any timer. */
void wheel_advance(struct wheel *w, int64_t now_us);

#endif
