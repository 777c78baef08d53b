/* cors: which pages in a browser may read the answers (CORS_ALLOW_ORIGINS), and the fields that tell the
 * browser. */
#ifndef CORS_H
#define CORS_H

#include "config.h"
#include "http1.h"

/* In every answer while any origin is listed, also where the request has none: a shared cache must not give
 * one page what was said to another. */
#define CORS_VARY "Vary: Origin\r\n"

/* The other fields of an answer, complete lines, for a request from this origin; freed by the caller. NULL:
 * the request has no origin, or one that is not allowed. */
char *cors_fields(const struct config *c, struct slice origin);
/* Those that the answer to a preflight has besides; freed by the caller. */
char *cors_preflight_fields(const struct http1_head *head);

#endif
