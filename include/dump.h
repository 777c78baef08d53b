/* dump: the state of the router as JSON, for /debug/config_dump/... Field names as in the Go router where it
 * has them. */
#ifndef DUMP_H
#define DUMP_H

#include "server.h"

/* kind: config, modelroutes, modelservers, pods, queues, requests, kubernetes. Appends a JSON object; false:
 * no such kind, or over the buffer's maximum. */
MUST_CHECK bool dump_render(struct server *s, struct slice kind, struct buf *out);

#endif
