/* admin: the metrics listener (/metrics) and the debug listener (JSON dumps): what operators look at. Reads
 * everything, changes nothing. */
#ifndef ADMIN_H
#define ADMIN_H

#include "server.h"

/* listener.on_accept of either; arg is the server. */
void admin_on_accept_metrics(struct listener *l, int fd, const struct sockaddr *from);
void admin_on_accept_debug(struct listener *l, int fd, const struct sockaddr *from);

#endif
