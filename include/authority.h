/* authority: the address of a pod as people write it: "name:port", "1.2.3.4:port", "[IPv6]:port". No look-up.
 */
#ifndef AUTHORITY_H
#define AUTHORITY_H

#include "util.h"

#define AUTHORITY_HOST_MAX 253 /* of a DNS name */

/* True: *authority is the normalised spelling (lower-case name, shortest IPv6, plain port), freed by the
 * caller with mem_free. False: *error says what is wrong and what is expected; static. The port is 1 to
 * 65535. */
MUST_CHECK bool authority_parse(struct slice text, char **authority, const char **error);
/* An IPv4 or IPv6 address without port and brackets. */
bool authority_is_ip(struct slice host);

#endif
