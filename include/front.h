/* front: what comes in at the inference listener: health checks, the model list, /v1 requests, and everything
 * that is refused. */
#ifndef FRONT_H
#define FRONT_H

#include "server.h"

/* listener.on_accept; arg is the server. */
void front_on_accept(struct listener *l, int fd, const struct sockaddr *from);

#endif
