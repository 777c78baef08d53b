/* worth: running means of what turns cost, and the one rule that makes a wait of them. */
#include "worth.h"

#define NONE_BELOW 0.125 /* share of the time a slot is held */
#define ALL_FROM   0.25

/* The plain mean of the first WORTH_MIN_TURNS + 1 values, then a running one that forgets at that pace. */
static void mean_add(struct worth_mean *m, double value)
{
    m->value += (value - m->value) / (m->n + 1);
    if (m->n < WORTH_MIN_TURNS)
        m->n++;
}

void worth_add(struct worth *w, const struct worth_turn *turn)
{
    mean_add(&w->held_us, (double)turn->held_us);
    if (turn->has_warm_pod)
        mean_add(&w->follow_bytes, (double)turn->body_bytes);
    if (turn->on_warm_pod)
        return;
    mean_add(&w->cold_us, (double)turn->first_us);
    mean_add(&w->cold_bytes, (double)turn->body_bytes);
}

static bool has_seen_enough(const struct worth *w)
{
    return w->cold_us.n == WORTH_MIN_TURNS && w->follow_bytes.n > 0 && w->cold_bytes.value > 0 &&
           w->held_us.value > 0;
}

/* First turns are shorter than follow-ups, so the time to a cold first token is scaled to their size. */
int64_t worth_wait_us(const struct worth *w, int64_t limit_us)
{
    double cold_us, share;

    if (!has_seen_enough(w))
        return limit_us;
    cold_us = w->cold_us.value * w->follow_bytes.value / w->cold_bytes.value;
    share = (cold_us / w->held_us.value - NONE_BELOW) / (ALL_FROM - NONE_BELOW);
    return share <= 0 ? 0 : share >= 1 ? limit_us : (int64_t)(share * (double)limit_us);
}
