/* The pump: expire, then admit until no pod with room has a candidate. */
#include "sched.h"

#include <sys/time.h>

/* A pump looks at all models and their pods: at so many it may do so for one request alone. */
#define SCHED_FEW 32

static void sched_expire(struct sched *s, struct model *m, int64_t now_us)
{
    struct boostq_item *item;

    while ((item = boostq_expire(&m->q, now_us)) != NULL)
        s->ops->expired(CONTAINER_OF(item, struct admit_item, queue));
}

/* The timer only ever moves to an earlier time; one that fires too early finds nothing and is set again. */
static void sched_set_timer(struct sched *s, int64_t now_us)
{
    const int64_t due_us = admit_next_due_us(&s->admit, now_us);
    const int64_t in_us = due_us > now_us ? due_us - now_us : 0;
    const struct timeval in = {in_us / US_PER_S, in_us % US_PER_S};

    if (due_us == INT64_MAX || due_us >= s->timer_us)
        return;
    s->timer_us = due_us;
    event_add(s->timer, &in);
}

static void sched_pump(struct loop_task *t)
{
    struct sched *s = CONTAINER_OF(t, struct sched, pump);
    const int64_t now_us = loop_now_us(s->loop);
    struct admission a;

    for (size_t i = 0; i < s->admit.n_models; i++)
        sched_expire(s, s->admit.models[i], now_us);
    admit_begin(&s->admit, now_us);
    while (admit_next(&s->admit, now_us, &a)) {
        if (a.upcoming != NULL)
            s->ops->upcoming(a.upcoming);
        s->ops->admitted(a.item, a.pod);
    }
    sched_set_timer(s, now_us);
}

static void sched_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct sched *s = arg;

    (void)fd, (void)what;
    s->timer_us = INT64_MAX;
    sched_refresh(s);
}

bool sched_init(struct sched *s, struct loop *l, const struct sched_ops *ops)
{
    s->loop = l;
    s->ops = ops;
    s->timer_us = INT64_MAX;
    loop_task_init(&s->pump, sched_pump);
    s->timer = event_new(l->base, -1, 0, sched_on_timer, s);
    return s->timer != NULL;
}

void sched_free(struct sched *s)
{
    loop_task_cancel(&s->pump);
    event_free(s->timer);
    admit_free(&s->admit);
}

void sched_kick(struct sched *s)
{
    loop_defer_last(s->loop, &s->pump);
}

void sched_settle(struct sched *s)
{
    if (list_empty(&s->pump.link))
        return;
    loop_task_cancel(&s->pump);
    sched_pump(&s->pump);
}

bool sched_order_is_free(const struct sched *s, const struct model *m)
{
    return s->admit.n_models <= SCHED_FEW && m->n_targets <= SCHED_FEW &&
           admit_order_is_free(&s->admit, m, loop_may_come(s->loop), loop_now_us(s->loop));
}

void sched_enqueue(struct sched *s, struct model *m, struct admit_item *item)
{
    model_push(m, &item->queue, loop_now_us(s->loop), loop_now_us(s->loop));
    sched_kick(s);
}

void sched_cancel(struct sched *s, struct model *m, struct admit_item *item)
{
    boostq_remove(&m->q, &item->queue);
    sched_kick(s);
}

void sched_move(struct sched *s, struct model *m, struct admit_item *item, int64_t since_us)
{
    admit_move(m, item, loop_now_us(s->loop), since_us);
    sched_kick(s);
}

void sched_flush(struct sched *s, struct model *m)
{
    for (size_t n = boostq_len(&m->q); n > 0; n--) {
        struct boostq_item *item = boostq_oldest(&m->q);

        boostq_remove(&m->q, item);
        s->ops->vanished(CONTAINER_OF(item, struct admit_item, queue));
    }
}

void sched_release(struct sched *s, struct pod *pod, bool reached)
{
    pod_release_slot(pod, &s->admit.rules, reached, loop_now_us(s->loop));
    sched_kick(s);
}

enum admit_retry sched_retry(struct sched *s, struct model *m, struct admit_item *item, struct pod *failed,
                             struct pod **pod)
{
    sched_kick(s);
    return admit_retry(&s->admit, m, item, failed, loop_now_us(s->loop), pod);
}

void sched_refresh(struct sched *s)
{
    for (size_t i = 0; i < s->admit.n_models; i++)
        (void)model_refresh(s->admit.models[i], loop_now_us(s->loop));
    sched_kick(s);
}
