/* outcome: the one table of how a request can end: name (error code in bodies, metrics and logs), HTTP
 * status, error type, text. */
#ifndef OUTCOME_H
#define OUTCOME_H

#include "util.h"

enum outcome {
#define OUTCOME(id, name, status, type, text) OUTCOME_##id,
#include "outcome.def"
#undef OUTCOME
    OUTCOME_COUNT
};

struct outcome_info {
    const char *name; /* snake_case: `code`, metric label error_type, access log */
    unsigned status;  /* HTTP status the client sees; 0 = the pod's own, or none was sent */
    /* invalid_request_error, rate_limit_error or server_error; NULL = no error body of ours. */
    const char *type;
    const char *text; /* default message */
};

const struct outcome_info *outcome_info(enum outcome o);

#endif
