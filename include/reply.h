/* reply: the answers that the router writes itself. */
#ifndef REPLY_H
#define REPLY_H

#include "client.h"

struct reply {
    unsigned status;
    const char *content_type;
    struct slice body;
    struct slice request_id; /* {NULL, 0} = none */
    const char *extra;       /* complete "Name: value\r\n" lines, or NULL */
    bool head_only;          /* the request was HEAD */
};

/* Writes the whole answer; the caller calls client_end afterwards. False: the client is gone. */
MUST_CHECK bool reply_send(struct client *c, const struct reply *r);

#endif
