/* admit: which waiting request goes to which pod next: the pump's decision, over all models. No loop, no
 * clock. */
#ifndef ADMIT_H
#define ADMIT_H

#include "model.h"

#define ADMIT_MAX_ATTEMPTS 3  /* in one queue */
#define ADMIT_TRIED_MAX    12 /* pods of several targets; more than that are forgotten, oldest first */

/* The part of a request that admission needs; embedded in it. `queue.session` is set by the caller. */
struct admit_item {
    unsigned attempts; /* that failed since it came to this queue */
    unsigned n_tried;  /* so far */
    struct boostq_item queue;
    const struct prefix_chain *prefix; /* of its prompt; NULL: none, or the policy does not ask */
    uint64_t tried[ADMIT_TRIED_MAX];   /* ids of pods whose connect failed for it: a ring */
};

struct admit {
    struct pod_rules rules;
    /* Borrowed, those of one name beside each other; kept by admit_add_model / admit_remove_model. */
    struct model **models;
    size_t n_models, cap_models;
    uint64_t turn; /* admissions so far */
};

/* So many that what belongs to the next one has left the cache. */
#define ADMIT_LONG_QUEUE 256

struct admission {
    struct model *model;
    struct admit_item *item;
    struct pod *pod;                   /* its slot is taken */
    const struct admit_item *upcoming; /* most likely the next one; NULL in a short queue */
};

/* A zeroed struct with rules set is ready. */
void admit_add_model(struct admit *a, struct model *m);
void admit_remove_model(struct admit *a, struct model *m);
void admit_free(struct admit *a);

/* Before the first admit_next of a pump: works out which pods are usable (model_refresh), and what has left
 * the windows of user fairness. */
void admit_begin(struct admit *a, int64_t now_us);
/* Forces what is due, then takes the best waiting request that a pod has room for out of its queue and takes
 * the pod's slot. With user fairness the queues of one name are as one: whoever of them ranks first among
 * those for whom a pod has room. Else names take turns, and so do the models of a name. False: no pod with
 * room has a candidate (then each model's closed_reason is up to date). Call until false. */
bool admit_next(struct admit *a, int64_t now_us, struct admission *out);
/* Whether whoever can go may go now without taking the turn of those who may come to any model at this same
 * moment and rank before him: each pod of the model has room for all of these and all that wait, and so has
 * each pod of the other models for which somebody waits, unless none of a model's pods has room for one.
 * Never with user fairness, which charges by the order; always without limits. */
bool admit_order_is_free(const struct admit *a, const struct model *m, size_t may_come, int64_t now_us);
/* The connect to the pod of an admitted request failed and its slot was released. */
enum admit_retry {
    ADMIT_RETRY_NOW,    /* *pod is the next pod, its slot taken */
    ADMIT_RETRY_QUEUED, /* every untried pod is full: back in the queue, forced */
    ADMIT_RETRY_NONE    /* three attempts used up, or no usable pod is left untried */
};
enum admit_retry admit_retry(struct admit *a, struct model *m, struct admit_item *item, struct pod *failed,
                             int64_t now_us, struct pod **pod);
/* From another model's queue, where it has waited since then, into this one's: with as many attempts as at
 * first. */
void admit_move(struct model *m, struct admit_item *item, int64_t now_us, int64_t since_us);
/* The next moment at which time alone changes an answer: wait limits, sticky waits, grace windows, set-aside
 * ends, staleness; INT64_MAX = never. */
int64_t admit_next_due_us(const struct admit *a, int64_t now_us);

#endif
