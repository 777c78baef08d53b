/* nearest: which of the known names a mistyped one most likely means, for error texts. */
#ifndef NEAREST_H
#define NEAREST_H

#include "util.h"

#define NEAREST_NAME_MAX 64 /* longer names are compared by their beginning */

struct nearest {
    struct slice wanted; /* borrowed */
    size_t distance;     /* edits between wanted and best */
    char best[NEAREST_NAME_MAX + 1];
};

void nearest_start(struct nearest *n, struct slice wanted);
/* Keeps the name when it is nearer than all before it. ASCII case does not count. */
void nearest_try(struct nearest *n, struct slice name);

#endif
