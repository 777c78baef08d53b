/* The event loop of vllm-sim: one epoll set, a binary heap of timers, and a list of memory that is freed
 * when the turn is over. Owns no descriptor but its own. */
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_PER_TURN 512

static struct {
    int epoll_fd;
    bool stop, no_pwait2;
    struct loop_timer **heap; /* heap[1] is the earliest */
    size_t n_heap, cap_heap;
    void **garbage;
    size_t n_garbage, cap_garbage;
} loop;

void loop_open(void)
{
    loop.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop.epoll_fd < 0) {
        perror("vllm-sim: epoll_create1");
        exit(1);
    }
}

void loop_stop(void)
{
    loop.stop = true;
}

void loop_watch(struct loop_io *io, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = io};
    int operation = io->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (io->events == events)
        return;
    if (epoll_ctl(loop.epoll_fd, operation, io->fd, &event) < 0) {
        perror("vllm-sim: epoll_ctl");
        exit(1);
    }
    io->events = events;
}

void loop_forget(struct loop_io *io)
{
    if (io->events)
        epoll_ctl(loop.epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
    io->events = 0;
}

static void heap_place(size_t slot, struct loop_timer *timer)
{
    loop.heap[slot] = timer;
    timer->slot = slot;
}

static void heap_up(size_t slot)
{
    struct loop_timer *timer = loop.heap[slot];
    while (slot > 1 && loop.heap[slot / 2]->due_us > timer->due_us) {
        heap_place(slot, loop.heap[slot / 2]);
        slot /= 2;
    }
    heap_place(slot, timer);
}

static void heap_down(size_t slot)
{
    struct loop_timer *timer = loop.heap[slot];
    for (;;) {
        size_t child = slot * 2;
        if (child + 1 <= loop.n_heap && loop.heap[child + 1]->due_us < loop.heap[child]->due_us)
            child++;
        if (child > loop.n_heap || loop.heap[child]->due_us >= timer->due_us)
            break;
        heap_place(slot, loop.heap[child]);
        slot = child;
    }
    heap_place(slot, timer);
}

void loop_arm(struct loop_timer *timer, int64_t due_us)
{
    loop_disarm(timer);
    if (loop.n_heap + 2 > loop.cap_heap) {
        loop.cap_heap = loop.cap_heap ? loop.cap_heap * 2 : 256;
        loop.heap = util_resize(loop.heap, loop.cap_heap * sizeof(*loop.heap));
    }
    timer->due_us = due_us;
    heap_place(++loop.n_heap, timer);
    heap_up(loop.n_heap);
}

void loop_disarm(struct loop_timer *timer)
{
    size_t slot = timer->slot;
    if (slot == 0)
        return;
    struct loop_timer *last = loop.heap[loop.n_heap--];
    timer->slot = 0;
    if (last == timer)
        return;
    heap_place(slot, last);
    heap_up(slot);
    heap_down(last->slot);
}

void loop_free_later(void *memory)
{
    if (loop.n_garbage == loop.cap_garbage) {
        loop.cap_garbage = loop.cap_garbage ? loop.cap_garbage * 2 : 64;
        loop.garbage = util_resize(loop.garbage, loop.cap_garbage * sizeof(*loop.garbage));
    }
    loop.garbage[loop.n_garbage++] = memory;
}

static void loop_free_garbage(void)
{
    while (loop.n_garbage > 0)
        free(loop.garbage[--loop.n_garbage]);
}

/* epoll_pwait2 sleeps to the microsecond; where the kernel lacks it, whole milliseconds, rounded up. */
static int loop_wait(struct epoll_event *events)
{
    int64_t left_us = loop.n_heap ? loop.heap[1]->due_us - util_now_us() : -1;
    if (loop.n_heap && left_us < 0)
        left_us = 0;
    if (!loop.no_pwait2) {
        struct timespec timeout = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
        int n = epoll_pwait2(loop.epoll_fd, events, EVENTS_PER_TURN, left_us < 0 ? NULL : &timeout, NULL);
        if (n >= 0 || errno != ENOSYS)
            return n;
        loop.no_pwait2 = true;
    }
    int64_t left_ms = left_us < 0 ? -1 : (left_us + 999) / 1000;
    return epoll_wait(loop.epoll_fd, events, EVENTS_PER_TURN, left_ms > 60000 ? 60000 : (int)left_ms);
}

/* Fires what was due when the turn began; a timer armed again for "now" waits for the next turn. */
static void loop_fire_timers(void)
{
    int64_t now_us = util_now_us();
    while (loop.n_heap && loop.heap[1]->due_us <= now_us) {
        struct loop_timer *timer = loop.heap[1];
        loop_disarm(timer);
        timer->fire(timer);
    }
}

void loop_run(void)
{
    struct epoll_event events[EVENTS_PER_TURN];
    while (!loop.stop) {
        int n = loop_wait(events);
        for (int i = 0; i < n; i++) {
            struct loop_io *io = events[i].data.ptr;
            if (io->events) /* else forgotten earlier in this turn */
                io->ready(io, events[i].events);
        }
        loop_fire_timers();
        loop_free_garbage();
    }
}

void loop_close(void)
{
    loop_free_garbage();
    free(loop.garbage);
    free(loop.heap);
    close(loop.epoll_fd);
}
