/* pod: one pod's slots. It owns the in-flight count, the grace windows, the pauses after failed connects and
 * the test for room; which requests run there is not its business. */
#include "pod.h"
#include "headers.h"
#include "mem.h"

#include <assert.h>
#include <math.h>

static const char *const room_names[POD_ROOM_KINDS] = {
    [POD_ROOM] = "open",       [POD_NOT_USABLE] = "no_usable_pod",  [POD_FULL] = "inflight_limit",
    [POD_GRACE] = "grace",     [POD_BACKPRESSURE] = "backpressure", [POD_MAX_CONCURRENT] = "max_concurrent",
    [POD_MAX_QPS] = "max_qps",
};

const char *pod_room_name(enum pod_room r)
{
    return room_names[r];
}

struct pod *pod_new(struct slice name)
{
    static uint64_t last_id;
    struct pod *p = mem_zalloc(sizeof(*p));

    p->name = mem_dup_slice(name);
    p->log_name = log_know(p->name);
    p->head_start = slice_of(headers_pod_start(p->name));
    p->id = ++last_id;
    p->ttft.value_s = p->tpot.value_s = (double)NAN;
    p->refs = 1;
    return p;
}

void pod_unref(struct pod *p)
{
    assert(p->refs > 0);
    if (--p->refs > 0)
        return;
    mem_free(p->name);
    mem_free((char *)(uintptr_t)p->head_start.p);
    mem_free(p->held_until_us);
    mem_free(p);
}

/* ---- grace windows: a ring, oldest first ---- */

static int64_t *held_at(const struct pod *p, size_t i)
{
    return &p->held_until_us[(p->held_first + i) % p->held_cap];
}

static void held_grow(struct pod *p)
{
    size_t cap = p->held_cap > 0 ? p->held_cap * 2 : 8;
    int64_t *ring = mem_array(NULL, cap, sizeof(*ring));

    for (size_t i = 0; i < p->held_n; i++)
        ring[i] = *held_at(p, i);
    mem_free(p->held_until_us);
    p->held_until_us = ring;
    p->held_cap = cap;
    p->held_first = 0;
}

/* After a reload to a shorter grace the older windows are cut, so that the ring stays in order. */
static void held_add(struct pod *p, int64_t until_us)
{
    if (p->held_n == p->held_cap)
        held_grow(p);
    p->held_n++;
    *held_at(p, p->held_n - 1) = until_us;
    for (size_t i = p->held_n - 1; i > 0 && *held_at(p, i - 1) > until_us; i--)
        *held_at(p, i - 1) = until_us;
}

static void held_drop_over(struct pod *p, int64_t now_us)
{
    while (p->held_n > 0 && *held_at(p, 0) <= now_us) {
        p->held_first = (p->held_first + 1) % p->held_cap;
        p->held_n--;
    }
}

/* ---- room ---- */

bool pod_numbers_stale(const struct pod *p, const struct pod_rules *rules, int64_t now_us)
{
    return p->numbers.at_us == 0 || now_us - p->numbers.at_us > rules->stale_us;
}

/* What has come since the last scrape; after a restart of the pod, since then. */
static void average_take(struct pod_average *a, double sum_s, double n, double sum_before_s, double n_before,
                         int64_t now_us)
{
    const bool begins = !(n >= n_before) || !(sum_s >= sum_before_s);
    const double new_n = begins ? n : n - n_before, new_s = begins ? sum_s : sum_s - sum_before_s;

    if (!(new_n > 0) || !(new_s >= 0))
        return;
    a->value_s = new_s / new_n;
    a->at_us = now_us;
}

void pod_take_numbers(struct pod *p, const struct pod_numbers *numbers, const struct pod_totals *totals,
                      int64_t now_us)
{
    const struct pod_totals before = p->totals;

    average_take(&p->ttft, totals->ttft_s, totals->ttft_n, before.ttft_s, before.ttft_n, now_us);
    average_take(&p->tpot, totals->tpot_s, totals->tpot_n, before.tpot_s, before.tpot_n, now_us);
    p->numbers = *numbers;
    p->numbers.at_us = now_us;
    p->totals = *totals;
}

double pod_average_s(const struct pod_average *a, int64_t now_us)
{
    return now_us - a->at_us <= POD_AVERAGE_KEEP_US ? a->value_s : (double)NAN;
}

bool pod_was_tried(const struct pod *p, int64_t now_us)
{
    return p->ended_us != 0 && now_us - p->ended_us <= POD_AVERAGE_KEEP_US;
}

/* NAN compares false: a missing number is no opinion. */
static bool has_waiting(const struct pod *p)
{
    return p->numbers.waiting_min > 0;
}

enum pod_room pod_room(struct pod *p, const struct pod_rules *rules, int64_t now_us)
{
    if (p->leaving || pod_is_asleep(p, now_us))
        return POD_NOT_USABLE;
    if (!rules->gated)
        return POD_ROOM;
    if (p->in_flight >= rules->inflight_limit)
        return POD_FULL;
    held_drop_over(p, now_us);
    if (p->in_flight + p->held_n >= rules->inflight_limit)
        return POD_GRACE;
    if (has_waiting(p) && !pod_numbers_stale(p, rules, now_us))
        return POD_BACKPRESSURE;
    return POD_ROOM;
}

unsigned pod_free_slots(const struct pod *p, const struct pod_rules *rules)
{
    const size_t taken = p->in_flight + p->held_n;

    return taken < rules->inflight_limit ? rules->inflight_limit - (unsigned)taken : 0;
}

void pod_take_slot(struct pod *p)
{
    p->in_flight++;
}

void pod_release_slot(struct pod *p, const struct pod_rules *rules, bool open_grace, int64_t now_us)
{
    assert(p->in_flight > 0);
    p->in_flight--;
    p->ended_us = now_us;
    held_drop_over(p, now_us);
    if (open_grace && rules->gated && rules->grace_us > 0)
        held_add(p, now_us + rules->grace_us);
}

/* ---- set aside ---- */

bool pod_is_aside(const struct pod *p, int64_t now_us)
{
    return now_us < p->aside_until_us;
}

bool pod_is_asleep(const struct pod *p, int64_t now_us)
{
    return p->numbers.asleep && now_us - p->numbers.at_us <= POD_ASLEEP_KEEP_US;
}

bool pod_connect_failed(struct pod *p, int64_t now_us)
{
    p->connect_failures++;
    if (p->connect_failures < POD_ASIDE_AFTER_FAILURES || pod_is_aside(p, now_us))
        return false;
    p->aside_pause_us = p->aside_pause_us == 0 ? POD_ASIDE_MIN_US : p->aside_pause_us * 2;
    if (p->aside_pause_us > POD_ASIDE_MAX_US)
        p->aside_pause_us = POD_ASIDE_MAX_US;
    p->aside_until_us = now_us + p->aside_pause_us;
    return true;
}

void pod_connect_succeeded(struct pod *p)
{
    p->connect_failures = 0;
    p->aside_until_us = 0;
    p->aside_pause_us = 0;
}

static int64_t first_held_end_us(const struct pod *p, int64_t now_us)
{
    for (size_t i = 0; i < p->held_n; i++) {
        if (*held_at(p, i) > now_us)
            return *held_at(p, i);
    }
    return INT64_MAX;
}

int64_t pod_next_due_us(const struct pod *p, const struct pod_rules *rules, int64_t now_us)
{
    int64_t due_us = first_held_end_us(p, now_us);
    int64_t stale_at_us = p->numbers.at_us + rules->stale_us + 1;

    if (pod_is_aside(p, now_us) && p->aside_until_us < due_us)
        due_us = p->aside_until_us;
    if (pod_is_asleep(p, now_us) && p->numbers.at_us + POD_ASLEEP_KEEP_US + 1 < due_us)
        due_us = p->numbers.at_us + POD_ASLEEP_KEEP_US + 1;
    if (has_waiting(p) && !pod_numbers_stale(p, rules, now_us) && stale_at_us < due_us)
        due_us = stale_at_us;
    return due_us;
}
