/* loop: the one event loop: events, coarse timers, work put off to the end of a turn or to the next one, and
 * one time stamp for each turn. A turn is: wait, run what was put off to it, run the callbacks of what became
 * ready (pods before clients), fire the timers that are due, run the deferred tasks, free what was buried,
 * end-of-turn hook.
 *
 * There are three sets of descriptors, each a member of the next: the clients', the pods', libevent's. A turn
 * waits at the last one, and so for everything. But at its end a busy turn asks the pods' set what is ready
 * already, and if something is, the next turn handles that without a wait, which saves a system call. Then
 * timers, signals and other sockets come a millisecond and a turn later at most. */
#ifndef LOOP_H
#define LOOP_H

#include <sys/epoll.h>

#include <event2/event.h>

#include "list.h"
#include "wheel.h"

/* Work for the end of this turn or for the next one; queued at most once at a time. */
struct loop_task {
    struct list link;
    void (*run)(struct loop_task *t);
};

/* An object that an event of this turn may still name: freed when the turn is over. */
struct loop_grave {
    struct loop_grave *next;
    void (*free)(struct loop_grave *g);
};

/* Whom a connection leads to: in each turn the pods' are looked at first. Those who want to become clients
 * are on the side of the clients. */
enum loop_side { LOOP_UPSTREAM, LOOP_DOWNSTREAM, LOOP_SIDES };

/* A descriptor that is looked at with every request or chunk. libevent has everything else: its bookkeeping
 * for each event costs 400 instructions and 250 bytes of memory. Lives in its owner, which is to be buried.
 */
struct loop_watch {
    const struct loop_watch_ops *ops;
};

struct loop_watch_ops {
    /* EPOLLIN, EPOLLOUT, both after an error or hang-up. May come once more in the turn in which the watch
     * ended. */
    void (*ready)(struct loop_watch *w, uint32_t events);
    /* Of pods alone: reads what has come, at most n bytes, before `ready` says so: see struct loop_ahead.
     * False: not now. */
    bool (*read)(struct loop_watch *w, char *p, size_t n_bytes, ssize_t *got);
};

#define LOOP_MANY (SIZE_MAX / 2) /* more than there can be */

#define LOOP_READ_BYTES (64 * 1024)

/* Of pods that speak at the same moment all is read first and handled then. So what goes to the clients goes
 * out closer together, and those who receive it are woken up less often. */
struct loop_ahead {
    struct loop_watch *watch; /* whose bytes they are; NULL: nothing was read */
    char *p;
    ssize_t got; /* as conn_read tells it */
};

#define LOOP_AHEAD_EACH  (4 * 1024)
#define LOOP_AHEAD_BYTES (32 * 1024)

struct loop {
    struct event_base *base;
    int sets[LOOP_SIDES];           /* epoll sets: the clients' is in the pods' */
    struct event *event;            /* the pods' set, in libevent's */
    bool pods_ready, clients_ready; /* perhaps, in this turn */
    unsigned handled;               /* pods and clients, in this turn */
    bool waits;                     /* the next turn, at libevent's set */
    int64_t look_us;                /* from then on turns look at libevent */
    struct wheel wheel;
    struct event *tick;
    int64_t tick_us;           /* when it is due: with the next timer; INT64_MAX: there is none */
    bool ticked;               /* in this turn */
    struct list tasks, last;   /* for the end of this turn, and for its very end */
    struct list next;          /* for the next turn */
    struct loop_grave *graves; /* the last one buried first */
    int64_t now_us;            /* 0 = not stamped yet in this turn */
    int64_t wall_us;           /* the same moment by the clock on the wall; log lines of this turn have it */
    bool stopped;
    void (*on_turn_end)(void *arg); /* `waits` is known */
    void *on_turn_end_arg;
    size_t left;             /* see loop_may_come */
    struct loop_ahead ahead; /* for the watch that is being handled */
    /* Shared by all connections, valid inside one callback: from read_at on there are LOOP_READ_BYTES. In
     * front of them stands what was read ahead. */
    size_t read_at;
    char read_buffer[LOOP_AHEAD_BYTES + LOOP_READ_BYTES];
};

/* NULL with errno set when the system gives no event base. */
struct loop *loop_new(void);
void loop_free(struct loop *l);
/* Until loop_stop. */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);
int64_t loop_stamp_us(struct loop *l);
/* The stamp of this turn. */
static inline int64_t loop_now_us(struct loop *l)
{
    return l->now_us != 0 ? l->now_us : loop_stamp_us(l);
}

/* What the clock on the wall showed at an earlier stamp. */
static inline int64_t loop_wall_us(struct loop *l, int64_t stamp_us)
{
    const int64_t now_us = loop_now_us(l);

    return l->wall_us - (now_us - stamp_us);
}

/* Changes what is waited for at the descriptor, from the events `before` to `now`: EPOLLIN, EPOLLOUT,
 * EPOLLET; 0 = nothing. Closing the descriptor ends it too. */
void loop_watch(struct loop *l, enum loop_side side, int fd, struct loop_watch *w, uint32_t before,
                uint32_t now);

/* From how many clients besides the one that is being handled a request may still come in this turn: who is
 * ready and looked at later, and who has sent one ahead, counted with all that is put off to the end of the
 * turn, but not to its very end. LOOP_MANY: nobody knows, the loop is not at its clients. */
size_t loop_may_come(const struct loop *l);

void loop_task_init(struct loop_task *t, void (*run)(struct loop_task *t));
/* To the end of this turn. */
void loop_defer(struct loop *l, struct loop_task *t);
/* To the very end of this turn: after all that loop_defer puts there. */
void loop_defer_last(struct loop *l, struct loop_task *t);
/* To the next turn, which does not wait. So work in slices lets everybody else have a turn in between. */
void loop_defer_next(struct loop *l, struct loop_task *t);
void loop_task_cancel(struct loop_task *t);
void loop_bury(struct loop *l, struct loop_grave *g, void (*free_fn)(struct loop_grave *g));

/* Coarse timers (wheel.h): fire up to WHEEL_TICK_US late. */
void loop_timer_start(struct loop *l, struct wheel_timer *t, int64_t due_us);
/* Pushing a pending timer out, as every read of an answer does, is a store. */
static inline void loop_timer_set(struct loop *l, struct wheel_timer *t, int64_t due_us)
{
    if (wheel_in_slot(t) && due_us >= t->slot_us)
        t->due_us = due_us;
    else
        loop_timer_start(l, t, due_us);
}
void loop_timer_cancel(struct loop *l, struct wheel_timer *t);

#endif
