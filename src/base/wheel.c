/* wheel: one circle of slots, a tick apart. A timer that is found in its slot before its time, because that
 * is rounds away or was moved later, is put again. It owns the order of time, not the timers and no clock. */
#include "wheel.h"

void wheel_init(struct wheel *w, int64_t now_us)
{
    for (size_t i = 0; i < WHEEL_SLOTS; i++)
        list_init(&w->slots[i]);
    w->tick = now_us / WHEEL_TICK_US;
    w->n = 0;
}

void wheel_timer_init(struct wheel_timer *t, void (*fire)(struct wheel_timer *t))
{
    *t = (struct wheel_timer){.fire = fire};
    list_init(&t->link);
}

static size_t slot_at(int64_t tick)
{
    return (uint64_t)tick % WHEEL_SLOTS;
}

/* The first tick that is surely not too early. */
static int64_t tick_for(const struct wheel *w, int64_t due_us)
{
    int64_t tick = due_us / WHEEL_TICK_US + 1;

    return tick > w->tick ? tick : w->tick + 1;
}

/* The link must be in no list. */
static void put(struct wheel *w, struct wheel_timer *t)
{
    t->slot_us = t->due_us;
    list_push_back(&w->slots[slot_at(tick_for(w, t->due_us))], &t->link);
}

void wheel_set(struct wheel *w, struct wheel_timer *t, int64_t due_us)
{
    bool was_in_slot = wheel_in_slot(t);

    t->due_us = due_us;
    if (was_in_slot && due_us >= t->slot_us)
        return;
    list_del(&t->link);
    put(w, t);
    if (!was_in_slot)
        w->n++;
}

void wheel_cancel(struct wheel *w, struct wheel_timer *t)
{
    if (!wheel_in_slot(t))
        return;
    list_del(&t->link);
    w->n--;
}

int64_t wheel_next_us(const struct wheel *w)
{
    int64_t tick = w->tick + 1;

    while (list_empty(&w->slots[slot_at(tick)]))
        tick++;
    return tick * WHEEL_TICK_US;
}

/* Looks at every timer of the slot. The timers stand in a list of their own meanwhile: fire may cancel any of
 * them, and what it sets goes to a later tick. */
static void turn_slot(struct wheel *w, int64_t now_us)
{
    struct list *slot = &w->slots[slot_at(w->tick)], here, *link;

    if (list_empty(slot))
        return;
    list_init(&here);
    list_insert_before(slot, &here);
    list_del(slot);
    while ((link = list_first(&here)) != NULL) {
        struct wheel_timer *t = LIST_ITEM(link, struct wheel_timer, link);

        list_del(link);
        if (t->due_us > now_us && t->due_us != INT64_MAX) {
            put(w, t);
            continue;
        }
        w->n--;
        if (t->due_us != INT64_MAX)
            t->fire(t);
    }
}

void wheel_advance(struct wheel *w, int64_t now_us)
{
    int64_t now_tick = now_us / WHEEL_TICK_US;

    /* After a long pause one round looks at every slot. */
    if (now_tick - w->tick > WHEEL_SLOTS)
        w->tick = now_tick - WHEEL_SLOTS;
    while (w->tick < now_tick) {
        w->tick++;
        turn_slot(w, now_us);
    }
}
