/* kubescan: cuts the bytes of a Kubernetes API answer into objects as they come: the items of a list, by
 * their brackets, or the events of a watch, each a line. Whether an object is JSON is for who parses it. */
#ifndef KUBESCAN_H
#define KUBESCAN_H

#include "buf.h"

/* The API server stores objects of up to 1.5 MiB. */
#define KUBESCAN_OBJECT_MAX (4 * 1024 * 1024)
#define KUBESCAN_OUTER_MAX  (64 * 1024) /* what is around a list's items, or a Status */

enum kubescan_mode { KUBESCAN_LIST, KUBESCAN_WATCH };

enum kubescan_step {
    KUBESCAN_MORE,   /* the input is used up */
    KUBESCAN_OBJECT, /* `object` holds one; an event with its line end */
    KUBESCAN_DONE,   /* a list is complete: `outer` holds what is around its items */
    KUBESCAN_BAD     /* `error` says why; nothing more can be read */
};

struct kubescan {
    enum kubescan_mode mode;
    struct buf object; /* valid until the next call */
    struct buf outer;
    size_t depth; /* of brackets, in the object while inside it, else around it */
    bool inside, in_items, in_string, escaped, delivered, done;
    const char *error; /* static */
};

void kubescan_init(struct kubescan *s);
void kubescan_free(struct kubescan *s);
/* A new answer; buffers keep their memory. */
void kubescan_start(struct kubescan *s, enum kubescan_mode mode);
/* Takes bytes off *in until something is complete. Call again until KUBESCAN_MORE or KUBESCAN_BAD. */
enum kubescan_step kubescan_next(struct kubescan *s, struct slice *in);
/* No object has been begun: a watch that ends here lost nothing. */
bool kubescan_at_rest(const struct kubescan *s);

#endif
