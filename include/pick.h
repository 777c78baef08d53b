/* pick: the choice of a pod for a request from the shared lane (README "Queue rules", Choice): the warm pod
 * if it has room, else what the route's policy says, or without one the least in-flight, then the smaller
 * scraped waiting, then the lower KV use, ties in turn. Missing and stale numbers count as 0: no opinion
 * against a pod. */
#ifndef PICK_H
#define PICK_H

#include "admit.h"

/* NULL: no pod that the item may use has room. It may use the usable pods that it has not tried; when it has
 * tried all of them, any usable one. Changes nothing: the taker sets m->next_tie. */
struct model_target *pick_target(struct model *m, const struct admit_item *item,
                                 const struct pod_rules *rules, int64_t now_us);

/* True when a usable pod is left that the item has not tried, with room or not. */
bool pick_any_untried(const struct model *m, const struct admit_item *item);

#endif
