/* The event loop. It runs libevent turn by turn itself, so that "the end of a turn" is a place in this file.
 */
#include "loop.h"

#include <errno.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "mem.h"

/* Ready descriptors that are handled in one turn. More would share the price of a turn among more of them,
 * but what was read at its beginning would have left the cache when it is sent on at its end. */
#define LOOP_BATCH 64
/* Answers go before new requests, up to so many batches of them: what has been begun is finished first. Else
 * a thousand busy clients keep hundreds of requests between router and pods, all of them out of the cache. */
#define LOOP_UPSTREAM_BATCHES 4
/* When so many were handled in a turn something new has most likely come meanwhile: the turn asks for it at
 * its end. To wait for it there, for a millisecond, was tried: so short a timer costs more than a system
 * call. */
#define LOOP_BUSY 2
/* How long libevent is left alone meanwhile. */
#define LOOP_LOOK_US US_PER_MS

/* What is ready on one side. */
struct loop_batch {
    int n;
    struct epoll_event ready[LOOP_BATCH];
};

static void loop_on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct loop *l = arg;

    (void)fd, (void)what;
    l->ticked = true;
}

static void loop_arm_tick(struct loop *l, int64_t at_us)
{
    const int64_t wait_us = at_us - loop_now_us(l);
    struct timeval wait = {0, 0};

    if (wait_us > 0)
        wait = (struct timeval){wait_us / US_PER_S, wait_us % US_PER_S};
    if (event_add(l->tick, &wait) == 0)
        l->tick_us = at_us;
}

/* When pods and clients have been heard: when the router stood still, what they said meanwhile was in time.
 */
static void loop_advance_wheel(struct loop *l)
{
    l->ticked = false;
    wheel_advance(&l->wheel, loop_now_us(l));
    l->tick_us = INT64_MAX;
    if (l->wheel.n > 0)
        loop_arm_tick(l, wheel_next_us(&l->wheel));
}

static void loop_read_ahead(struct loop *l, const struct loop_batch *b, struct loop_ahead *ahead)
{
    for (int i = 0; i < b->n; i++) {
        struct loop_watch *w = b->ready[i].data.ptr;
        char *p = l->read_buffer + l->read_at;

        ahead[i].watch = NULL;
        if (b->ready[i].events != EPOLLIN || l->read_at > LOOP_AHEAD_BYTES - LOOP_AHEAD_EACH ||
            !w->ops->read(w, p, LOOP_AHEAD_EACH, &ahead[i].got))
            continue;
        ahead[i].watch = w;
        ahead[i].p = p;
        l->read_at += ahead[i].got > 0 ? (size_t)ahead[i].got : 0;
    }
}

static void loop_handle(struct loop *l, const struct loop_batch *b, enum loop_side side)
{
    struct loop_ahead ahead[LOOP_BATCH];
    const bool reads_ahead = side == LOOP_UPSTREAM && b->n > 1;
    const size_t others =
        side == LOOP_DOWNSTREAM ? (size_t)b->n - 1 : LOOP_MANY; /* clients come after pods */

    if (reads_ahead)
        loop_read_ahead(l, b, ahead);
    for (int i = 0; i < b->n; i++) {
        struct loop_watch *w = b->ready[i].data.ptr;
        const uint32_t events = b->ready[i].events;

        l->left = others - (size_t)i;
        if (reads_ahead)
            l->ahead = ahead[i];
        w->ops->ready(w, (events & (EPOLLERR | EPOLLHUP)) != 0 ? EPOLLIN | EPOLLOUT : events);
    }
    l->ahead.watch = NULL;
    l->read_at = 0;
    l->left = LOOP_MANY;
    l->handled += (unsigned)b->n;
}

/* Their set stands among the pods without a watch. */
static void loop_take_out_clients(struct loop *l, struct loop_batch *b)
{
    for (int i = 0; i < b->n; i++) {
        if (b->ready[i].data.ptr == NULL) {
            b->ready[i] = b->ready[--b->n];
            l->clients_ready = true;
            return;
        }
    }
}

/* False: neither pods nor clients have something new. */
static bool loop_ask_pods(struct loop *l, struct loop_batch *b)
{
    const int n = epoll_wait(l->sets[LOOP_UPSTREAM], b->ready, LOOP_BATCH, 0);

    l->pods_ready = n == LOOP_BATCH;
    b->n = n > 0 ? n : 0;
    loop_take_out_clients(l, b);
    return n > 0;
}

static void loop_handle_pods(struct loop *l, struct loop_batch *b)
{
    loop_handle(l, b, LOOP_UPSTREAM);
    for (unsigned i = 1; l->pods_ready && i < LOOP_UPSTREAM_BATCHES; i++) {
        loop_ask_pods(l, b);
        loop_handle(l, b, LOOP_UPSTREAM);
    }
}

static void loop_handle_clients(struct loop *l, struct loop_batch *b)
{
    const int n = epoll_wait(l->sets[LOOP_DOWNSTREAM], b->ready, LOOP_BATCH, 0);

    b->n = n > 0 ? n : 0;
    loop_handle(l, b, LOOP_DOWNSTREAM);
}

void loop_watch(struct loop *l, enum loop_side side, int fd, struct loop_watch *w, uint32_t before,
                uint32_t now)
{
    const int change = before == 0 ? EPOLL_CTL_ADD : now == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    struct epoll_event e = {.events = now, .data.ptr = w};

    /* The owner's time limits end what cannot be watched. */
    if (epoll_ctl(l->sets[side], change, fd, &e) < 0)
        log_error("cannot watch a connection", LOG_STR("error", strerror(errno)));
}

static void loop_on_pods(evutil_socket_t fd, short what, void *arg)
{
    struct loop *l = arg;

    (void)fd, (void)what;
    l->pods_ready = true;
}

static bool loop_open_sets(struct loop *l)
{
    struct epoll_event clients = {.events = EPOLLIN, .data.ptr = NULL};

    for (unsigned i = 0; i < LOOP_SIDES; i++) {
        l->sets[i] = epoll_create1(EPOLL_CLOEXEC);
        if (l->sets[i] < 0)
            return false;
    }
    l->event = event_new(l->base, l->sets[LOOP_UPSTREAM], EV_READ | EV_PERSIST, loop_on_pods, l);
    return l->event != NULL && event_add(l->event, NULL) == 0 &&
           epoll_ctl(l->sets[LOOP_UPSTREAM], EPOLL_CTL_ADD, l->sets[LOOP_DOWNSTREAM], &clients) == 0;
}

static bool loop_open(struct loop *l, const struct event_config *cfg)
{
    l->base = event_base_new_with_config(cfg);
    if (l->base == NULL)
        return false;
    l->tick = event_new(l->base, -1, 0, loop_on_tick, l);
    return l->tick != NULL && loop_open_sets(l);
}

static void loop_close(struct loop *l)
{
    if (l->event != NULL)
        event_free(l->event);
    for (unsigned i = 0; i < LOOP_SIDES; i++)
        if (l->sets[i] >= 0)
            close(l->sets[i]);
    if (l->tick != NULL)
        event_free(l->tick);
    if (l->base != NULL)
        event_base_free(l->base);
    mem_free(l);
}

struct loop *loop_new(void)
{
    struct event_config *cfg = event_config_new();
    struct loop *l = mem_zalloc(sizeof *l);
    bool open;

    list_init(&l->tasks);
    list_init(&l->last);
    list_init(&l->next);
    l->left = LOOP_MANY;
    l->sets[LOOP_UPSTREAM] = l->sets[LOOP_DOWNSTREAM] = -1;
    /* Timers go by milliseconds: a precise one would cost a system call before every wait. */
    if (cfg != NULL)
        event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK);
    open = loop_open(l, cfg);
    if (cfg != NULL)
        event_config_free(cfg);
    if (!open) {
        loop_close(l);
        return NULL;
    }
    wheel_init(&l->wheel, clock_mono_us());
    l->tick_us = INT64_MAX;
    return l;
}

static void loop_run_first(struct list *tasks)
{
    struct loop_task *t = LIST_ITEM(list_first(tasks), struct loop_task, link);

    list_del(&t->link);
    t->run(t);
}

static void loop_run_tasks(struct loop *l)
{
    while (!list_empty(&l->tasks) || !list_empty(&l->last))
        loop_run_first(list_empty(&l->tasks) ? &l->last : &l->tasks);
}

/* What is put off meanwhile is for the turn after this one. */
static void loop_run_next(struct loop *l)
{
    struct list end;

    if (list_empty(&l->next))
        return;
    list_push_back(&l->next, &end);
    while (list_first(&l->next) != &end)
        loop_run_first(&l->next);
    list_del(&end);
}

static void loop_free_graves(struct loop *l)
{
    struct loop_grave *g;

    while ((g = l->graves) != NULL) {
        l->graves = g->next;
        g->free(g);
    }
}

/* Is something new there already? Else the next turn waits. */
static bool loop_goes_on(struct loop *l, struct loop_batch *b)
{
    if (l->handled >= LOOP_BUSY && l->now_us < l->look_us && loop_ask_pods(l, b))
        return true;
    l->look_us = l->now_us + LOOP_LOOK_US;
    return false;
}

/* Finds out what the next turn handles, if that is there. */
static void loop_end_turn(struct loop *l, struct loop_batch *b)
{
    loop_run_tasks(l);
    loop_free_graves(l);
    l->pods_ready = l->clients_ready = false;
    b->n = 0;
    l->waits = !loop_goes_on(l, b);
    l->handled = 0;
    if (l->on_turn_end != NULL)
        l->on_turn_end(l->on_turn_end_arg);
    l->now_us = 0;
    log_set_time(0);
}

/* For anything, as long as it takes. */
static void loop_wait(struct loop *l, struct loop_batch *b)
{
    const int wait = list_empty(&l->next) ? 0 : EVLOOP_NONBLOCK;

    if (event_base_loop(l->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY | wait) < 0)
        l->stopped = true;
    /* After a stop and SIGCONT libevent sees that time has passed, and nothing else. */
    if (l->pods_ready || l->ticked)
        loop_ask_pods(l, b);
}

void loop_run(struct loop *l)
{
    struct loop_batch b;

    loop_end_turn(l, &b);
    while (!l->stopped) {
        if (l->waits)
            loop_wait(l, &b);
        (void)loop_now_us(l);
        loop_run_next(l);
        loop_handle_pods(l, &b);
        /* More pods may hide that clients are ready. */
        if (l->clients_ready || l->pods_ready)
            loop_handle_clients(l, &b);
        if (l->ticked)
            loop_advance_wheel(l);
        loop_end_turn(l, &b);
    }
}

void loop_stop(struct loop *l)
{
    l->stopped = true;
    event_base_loopbreak(l->base);
}

void loop_free(struct loop *l)
{
    if (l == NULL)
        return;
    loop_run_tasks(l);
    loop_free_graves(l);
    loop_close(l);
}

int64_t loop_stamp_us(struct loop *l)
{
    l->now_us = clock_mono_us();
    l->wall_us = clock_wall_us();
    log_set_time(l->wall_us);
    return l->now_us;
}

size_t loop_may_come(const struct loop *l)
{
    size_t n = l->left;

    LIST_EACH(t, &l->tasks)
    n++;
    return n;
}

void loop_task_init(struct loop_task *t, void (*run)(struct loop_task *t))
{
    list_init(&t->link);
    t->run = run;
}

void loop_defer(struct loop *l, struct loop_task *t)
{
    if (list_empty(&t->link))
        list_push_back(&l->tasks, &t->link);
}

void loop_defer_last(struct loop *l, struct loop_task *t)
{
    if (list_empty(&t->link))
        list_push_back(&l->last, &t->link);
}

void loop_defer_next(struct loop *l, struct loop_task *t)
{
    if (list_empty(&t->link))
        list_push_back(&l->next, &t->link);
}

void loop_task_cancel(struct loop_task *t)
{
    list_del(&t->link);
}

void loop_bury(struct loop *l, struct loop_grave *g, void (*free_fn)(struct loop_grave *g))
{
    g->free = free_fn;
    g->next = l->graves;
    l->graves = g;
}

void loop_timer_start(struct loop *l, struct wheel_timer *t, int64_t due_us)
{
    wheel_set(&l->wheel, t, due_us);
    if (wheel_look_us(t) < l->tick_us)
        loop_arm_tick(l, wheel_look_us(t));
}

void loop_timer_cancel(struct loop *l, struct wheel_timer *t)
{
    wheel_cancel(&l->wheel, t);
}
