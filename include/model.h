/* model: a public model name on one set of pods: its queue, its targets (pods) and which of them are usable.
 * A name with several model-servers has a model for each. */
#ifndef MODEL_H
#define MODEL_H

#include "boostq.h"
#include "pod.h"
#include "policy.h"
#include "prefix.h"
#include "worth.h"

struct model_target {
    struct pod *pod;     /* one reference */
    bool limits_waiting; /* the model's policy has max_waiting: */
    double max_waiting;
    struct prefix_store *prefix; /* prompts it served; NULL where the policy asks for none */
    struct boostq_lane lane;
    size_t index; /* in model.targets */
    bool lists;   /* the pod says that it has the model, an adapter */
    bool usable;  /* see model_refresh, which keeps it */
    /* Turn numbers of the last admissions on the pod, 0 = none: of this model, and of its whole public name.
     * Names take turns, and so do the models of a name. */
    uint64_t last_admitted, name_admitted;
};

struct model {
    char *name;
    struct boostq q;
    struct model_target **targets;
    size_t n_targets, cap_targets;
    size_t n_usable;
    bool adapter;              /* pods may have it or not */
    size_t next_tie;           /* ties of the choice are taken in turn */
    struct policy policy;      /* how to choose among pods */
    bool wants_prefix;         /* of prompts, for the policy */
    struct policy_pod *judged; /* room for all targets while choosing; NULL without a policy */
    uint64_t dice;
    struct worth worth;       /* of a warm prefix; bounds the wait in the pods' lanes */
    struct session_lru *pins; /* session -> the pod it went to last; NULL: the queue's tracker says it */
    int64_t pin_ttl_us;       /* since it went there */
    /* Why nothing could be admitted although requests wait, since when, and the sums; kept by admit. */
    enum pod_room closed_reason; /* POD_ROOM = not closed */
    int64_t closed_since_us;
    int64_t closed_us[POD_ROOM_KINDS];
    bool could_go;       /* somebody, if the name's others do not go first; scratch of admit */
    size_t queued_bytes; /* bodies of waiting requests; kept by the caller */
};

/* sibling: another model of the name, whose users and counts are this one's, too; NULL: there is none. */
struct model *model_new(const char *name, const struct boostq_rules *rules, const struct model *sibling);
/* No item may wait any more. */
void model_free(struct model *m);

/* What the target can take now: POD_NOT_USABLE, or the pod's own room. */
enum pod_room model_target_room(const struct model_target *t, const struct pod_rules *rules, int64_t now_us);
/* What the model itself allows, whatever its pods do: POD_ROOM, or a limit of user fairness. */
enum pod_room model_gate(const struct model *m, int64_t now_us);
/* The pods of the model from now on, each at most once. Targets that stay keep their lane and turn; a dropped
 * one empties its lane into the shared one. Calls model_refresh. */
void model_set_pods(struct model *m, struct pod *const *pods, size_t n, int64_t now_us);
/* Works out anew which targets are usable (a pod was set aside, came back, sleeps, or leaves) and opens or
 * closes their lanes. Never are all of a model's pods aside: when every pod that is neither leaving nor
 * asleep is set aside, all of them stay usable. Of an adapter only the pods that list it are usable while one
 * of those is in place. Returns true when something changed. */
bool model_refresh(struct model *m, int64_t now_us);
/* Whether model_refresh would change something. */
bool model_is_outdated(const struct model *m, int64_t now_us);
/* A turn of a session completed: learns from it how long to wait for a warm pod. */
void model_learn(struct model *m, const struct worth_turn *turn);
/* Adds the sums of a queue that ends to those of one that goes on under the same name; what the name has in
 * common they share anyway. */
void model_inherit(struct model *m, const struct model *ended);
/* Some pod is neither leaving nor set aside, and does not sleep. */
bool model_in_place(const struct model *m, int64_t now_us);
/* And it lists the model, which is an adapter. */
bool model_is_listed(const struct model *m, int64_t now_us);
/* Whether the pod lists the model. Does nothing when the pod is none of its targets; heeded from the next
 * model_refresh on. */
void model_set_listed(struct model *m, uint64_t pod_id, bool lists);
/* Changes how pods are chosen; what is known of prompts stays while prefixes are asked for. */
void model_set_policy(struct model *m, const struct policy *p);
/* The pod has taken the prompt in. */
void model_served(struct model *m, uint64_t pod_id, const struct prefix_chain *chain);
/* Pins of at most max_sessions sessions, each for ttl_us; ttl_us 0: none. What is pinned stays so. */
void model_set_pins(struct model *m, int64_t ttl_us, size_t max_sessions);
/* The session went to the pod. Does nothing without pins. */
void model_pin(struct model *m, struct slice session, uint64_t pod_id, int64_t now_us);
/* Tells the item where its session is pinned. */
void model_find_pin(const struct model *m, struct boostq_item *item, int64_t now_us);
/* Lets the item wait, as if it had come at since_us. */
static inline void model_push(struct model *m, struct boostq_item *item, int64_t now_us, int64_t since_us)
{
    if (m->pins != NULL)
        model_find_pin(m, item, now_us);
    boostq_push(&m->q, item, now_us, since_us);
}
/* Sessions are to stay with their pods, and this one was here, at *at_us. */
bool model_knows(const struct model *m, struct slice session, int64_t now_us, int64_t *at_us);
struct model_target *model_target_of(const struct model *m, uint64_t pod_id);

#endif
