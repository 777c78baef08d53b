/* queue_fixture: one model with pods and a handful of requests known by number, for the tests of the queue
 * and of admission. Time moves only when a test moves it. */
#ifndef QUEUE_FIXTURE_H
#define QUEUE_FIXTURE_H

#include "admit.h"
#include "pick.h"

#include "test.h"

#define FX_PODS  4
#define FX_ITEMS 64
#define FX_NONE  (-1)
#define FX_MS    US_PER_MS

struct fixture {
    struct admit admit;
    struct model *m;
    struct pod *pods[FX_PODS];
    size_t n_pods;
    struct admit_item items[FX_ITEMS];
    struct pod *ran_on[FX_ITEMS];
    int64_t now_us;
};

static inline struct boostq_rules fx_rules(void)
{
    return (struct boostq_rules){.boost = true,
                                 .sticky = false,
                                 .prefer_warm = true,
                                 .sticky_wait_us = 5 * US_PER_S,
                                 .timeout_us = 30 * US_PER_S,
                                 .max_overtakes = 16,
                                 .max_sessions = 4096};
}

static inline void fx_start(struct fixture *f, struct boostq_rules rules, size_t n_pods, unsigned limit)
{
    *f = (struct fixture){.n_pods = n_pods, .now_us = US_PER_S};
    f->admit.rules = (struct pod_rules){.gated = true, .inflight_limit = limit, .stale_us = 3 * US_PER_S};
    f->m = model_new("m", &rules, NULL);
    for (size_t i = 0; i < n_pods; i++)
        f->pods[i] = pod_new(SLICE("127.0.0.1:8000"));
    model_set_pods(f->m, f->pods, n_pods, f->now_us);
    admit_add_model(&f->admit, f->m);
}

static inline void fx_release(struct fixture *f, int i)
{
    pod_release_slot(f->ran_on[i], &f->admit.rules, true, f->now_us);
    f->ran_on[i] = NULL;
}

static inline void fx_set_aside(struct fixture *f, size_t pod)
{
    for (int i = 0; i < POD_ASIDE_AFTER_FAILURES; i++)
        (void)pod_connect_failed(f->pods[pod], f->now_us);
}

/* Whatever still waits or runs is ended; all counts must then be 0. */
static inline void fx_end(struct fixture *f)
{
    for (int i = 0; i < FX_ITEMS; i++) {
        if (f->items[i].queue.where != BOOSTQ_OUT)
            boostq_remove(&f->m->q, &f->items[i].queue);
        if (f->ran_on[i] != NULL)
            fx_release(f, i);
    }
    assert_int_equal(boostq_len(&f->m->q), 0);
    assert_int_equal(f->m->q.sessions.n, 0);
    admit_remove_model(&f->admit, f->m);
    model_free(f->m);
    for (size_t i = 0; i < f->n_pods; i++) {
        assert_int_equal(f->pods[i]->in_flight, 0);
        assert_int_equal(f->pods[i]->refs, 1);
        pod_unref(f->pods[i]);
    }
    admit_free(&f->admit);
}

/* session NULL: none. */
static inline struct boostq_item *fx_push(struct fixture *f, int i, const char *session)
{
    f->items[i] = (struct admit_item){.queue = {.session = slice_of(session)}};
    boostq_push(&f->m->q, &f->items[i].queue, f->now_us, f->now_us);
    return &f->items[i].queue;
}

static inline void fx_remove(struct fixture *f, int i)
{
    boostq_remove(&f->m->q, &f->items[i].queue);
}

static inline size_t fx_mark(struct fixture *f, const char *session, size_t pod)
{
    struct session_key key;

    session_lru_key(&key, slice_of(session));
    return boostq_mark(&f->m->q, &key, f->pods[pod]->id, f->now_us);
}

/* Admits one request; its number, or FX_NONE. */
static inline int fx_admit(struct fixture *f)
{
    struct admission got;
    int i;

    admit_begin(&f->admit, f->now_us);
    if (!admit_next(&f->admit, f->now_us, &got))
        return FX_NONE;
    i = (int)(got.item - f->items);
    f->ran_on[i] = got.pod;
    return i;
}

/* Admits one request, which must be the given one, and ends it at once. */
static inline void fx_expect(struct fixture *f, int want)
{
    int got = fx_admit(f);

    assert_int_equal(got, want);
    if (got != FX_NONE)
        fx_release(f, got);
}

static inline void fx_numbers(struct fixture *f, size_t pod, double waiting)
{
    f->pods[pod]->numbers = (struct pod_numbers){
        .running = 0, .waiting = waiting, .waiting_min = waiting, .kv_usage = 0, .at_us = f->now_us};
}

#endif
