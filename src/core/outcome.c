/* outcome: the table of endings, made from outcome.def. Owns no state; who ended how is the request's. */
#include "outcome.h"

#include <assert.h>

#define OUTCOME(id, name, status, type, text)                                                                \
    _Static_assert((status) == 0 || ((status) >= 200 && (status) <= 599), "an HTTP status, or 0");           \
    _Static_assert(sizeof(name) > 1, "every outcome has a name");
#include "outcome.def"
#undef OUTCOME
/* A zeroed request must not look like a failure. */
_Static_assert(OUTCOME_OK == 0, "OK comes first");

static const struct outcome_info outcomes[OUTCOME_COUNT] = {
#define OUTCOME(id, name, status, type, text) [OUTCOME_##id] = {name, status, type, text},
#include "outcome.def"
#undef OUTCOME
};

const struct outcome_info *outcome_info(enum outcome o)
{
    assert((unsigned)o < OUTCOME_COUNT);
    return &outcomes[o];
}
