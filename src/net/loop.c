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

static void loop_on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct loop *l = arg;

    (void)fd, (void)what;
    wheel_advance(&l->wheel, loop_now_us(l));
    if (l->wheel.n == 0) {
        event_del(l->tick);
        l->ticking = false;
    }
}

static void loop_on_set(evutil_socket_t fd, short what, void *arg)
{
    struct loop_set *set = arg;

    (void)fd, (void)what;
    set->ready = true;
}

static void loop_read_ahead(struct loop *l, const struct epoll_event *ready, struct loop_ahead *ahead, int n)
{
    for (int i = 0; i < n; i++) {
        struct loop_watch *w = ready[i].data.ptr;
        char *p = l->read_buffer + l->read_at;

        ahead[i].watch = NULL;
        if (ready[i].events != EPOLLIN || l->read_at > LOOP_AHEAD_BYTES - LOOP_AHEAD_EACH ||
            !w->ops->read(w, p, LOOP_AHEAD_EACH, &ahead[i].got))
            continue;
        ahead[i].watch = w;
        ahead[i].p = p;
        l->read_at += ahead[i].got > 0 ? (size_t)ahead[i].got : 0;
    }
}

static int loop_handle_batch(struct loop *l, enum loop_side side)
{
    struct epoll_event ready[LOOP_BATCH];
    struct loop_ahead ahead[LOOP_BATCH];
    const int n = epoll_wait(l->sets[side].fd, ready, LOOP_BATCH, 0);
    const bool reads_ahead = side == LOOP_UPSTREAM && n > 1;
    const size_t others = side == LOOP_DOWNSTREAM ? (size_t)n - 1 : LOOP_MANY; /* clients come after pods */

    if (reads_ahead)
        loop_read_ahead(l, ready, ahead, n);
    for (int i = 0; i < n; i++) {
        struct loop_watch *w = ready[i].data.ptr;
        const uint32_t events = ready[i].events;

        l->left = others - (size_t)i;
        if (reads_ahead)
            l->ahead = ahead[i];
        w->ops->ready(w, (events & (EPOLLERR | EPOLLHUP)) != 0 ? EPOLLIN | EPOLLOUT : events);
    }
    l->ahead.watch = NULL;
    l->read_at = 0;
    l->left = LOOP_MANY;
    return n;
}

static void loop_handle(struct loop *l, enum loop_side side, unsigned batches)
{
    struct loop_set *set = &l->sets[side];

    while (set->ready) {
        batches--;
        set->ready = loop_handle_batch(l, side) == LOOP_BATCH && batches > 0;
    }
}

void loop_watch(struct loop *l, enum loop_side side, int fd, struct loop_watch *w, uint32_t before,
                uint32_t now)
{
    const int change = before == 0 ? EPOLL_CTL_ADD : now == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    struct epoll_event e = {.events = now, .data.ptr = w};

    /* The owner's time limits end what cannot be watched. */
    if (epoll_ctl(l->sets[side].fd, change, fd, &e) < 0)
        log_error("cannot watch a connection", LOG_STR("error", strerror(errno)));
}

static bool loop_open_set(struct loop *l, struct loop_set *set)
{
    set->fd = epoll_create1(EPOLL_CLOEXEC);
    if (set->fd < 0)
        return false;
    set->event = event_new(l->base, set->fd, EV_READ | EV_PERSIST, loop_on_set, set);
    return set->event != NULL && event_add(set->event, NULL) == 0;
}

static void loop_close_set(struct loop_set *set)
{
    if (set->event != NULL)
        event_free(set->event);
    if (set->fd >= 0)
        close(set->fd);
}

static bool loop_open(struct loop *l, const struct event_config *cfg)
{
    l->base = event_base_new_with_config(cfg);
    if (l->base == NULL)
        return false;
    l->tick = event_new(l->base, -1, EV_PERSIST, loop_on_tick, l);
    return l->tick != NULL && loop_open_set(l, &l->sets[LOOP_UPSTREAM]) &&
           loop_open_set(l, &l->sets[LOOP_DOWNSTREAM]);
}

static void loop_close(struct loop *l)
{
    for (unsigned i = 0; i < LOOP_SIDES; i++)
        loop_close_set(&l->sets[i]);
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
    l->left = LOOP_MANY;
    l->sets[LOOP_UPSTREAM].fd = l->sets[LOOP_DOWNSTREAM].fd = -1;
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
    return l;
}

static void loop_run_tasks(struct loop *l)
{
    struct list *first;

    while ((first = list_first(&l->tasks)) != NULL) {
        struct loop_task *t = LIST_ITEM(first, struct loop_task, link);

        list_del(first);
        t->run(t);
    }
}

static void loop_free_graves(struct loop *l)
{
    struct loop_grave *g;

    while ((g = l->graves) != NULL) {
        l->graves = g->next;
        g->free(g);
    }
}

static void loop_end_turn(struct loop *l)
{
    loop_run_tasks(l);
    loop_free_graves(l);
    if (l->on_turn_end != NULL)
        l->on_turn_end(l->on_turn_end_arg);
    l->now_us = 0;
    log_set_time(0);
}

void loop_run(struct loop *l)
{
    loop_end_turn(l);
    while (!l->stopped) {
        if (event_base_loop(l->base, EVLOOP_ONCE | EVLOOP_NO_EXIT_ON_EMPTY) < 0)
            break;

        loop_handle(l, LOOP_UPSTREAM, LOOP_UPSTREAM_BATCHES);
        loop_handle(l, LOOP_DOWNSTREAM, 1);
        loop_end_turn(l);
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
    static const struct timeval every = {0, WHEEL_TICK_US};

    if (!l->ticking) {
        /* The wheel stood still while it was empty. */
        wheel_advance(&l->wheel, loop_now_us(l));
        event_add(l->tick, &every);
        l->ticking = true;
    }
    wheel_set(&l->wheel, t, due_us);
}

void loop_timer_cancel(struct loop *l, struct wheel_timer *t)
{
    wheel_cancel(&l->wheel, t);
}
