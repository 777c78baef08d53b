/* worth: what a warm prefix is worth on the pods of one model, learned from turns that completed, and from it
 * the longest sensible wait for the pod that holds it. Knows no queue and no pod.
 *
 * A request that goes to another pod pays a cold prefill there: its slot is held longer by about the time to
 * a cold first token. Where that is a small part of the time a turn holds a slot anyway, waiting for the one
 * pod costs more than it saves; where it is a large part, every cold prefill also delays all others, and
 * waiting pays. So the wait is none below 1/8 of a turn, all of SESSION_STICKY_WAIT from 1/4 on, and in
 * proportion between. `make bench-ttft` shows it. */
#ifndef WORTH_H
#define WORTH_H

#include "util.h"

/* Before so many cold turns were seen, the configured wait holds. Also the pace at which it forgets. */
#define WORTH_MIN_TURNS 64

struct worth_mean {
    double value;
    unsigned n; /* up to WORTH_MIN_TURNS */
};

/* A zeroed struct has seen nothing. */
struct worth {
    struct worth_mean cold_us, cold_bytes; /* of turns on a pod that did not hold their session */
    struct worth_mean follow_bytes;        /* of turns that have a warm pod, wherever they went */
    struct worth_mean held_us;             /* of all turns */
};

struct worth_turn {
    size_t body_bytes;
    bool has_warm_pod; /* a pod was known to hold the session */
    bool on_warm_pod;  /* and that one served the turn */
    int64_t first_us;  /* from sending the request to the first byte of the answer's body */
    int64_t held_us;   /* from sending the request to the end of the answer */
};

void worth_add(struct worth *w, const struct worth_turn *turn);
/* At most limit_us, which is also the answer while too little has been seen. */
int64_t worth_wait_us(const struct worth *w, int64_t limit_us);

#endif
