/* multipart: finds one field of a multipart/form-data body (RFC 7578) wherever it stands, without a copy or a
 * change. Parts are not decoded: a field is text. */
#ifndef MULTIPART_H
#define MULTIPART_H

#include "util.h"

#define MULTIPART_BOUNDARY_MAX 200 /* RFC 2046 allows 70 */

/* multipart/form-data, any parameters. */
bool multipart_is_form(struct slice content_type);
/* The boundary of such a Content-Type; {NULL, 0}: it has none, or one that is too long. */
struct slice multipart_boundary(struct slice content_type);
/* The content of the last part of this name that is no file; {NULL, 0}: there is none. NULL in *error: the
 * body was read to its end; else static text. */
struct slice multipart_field(struct slice body, struct slice boundary, struct slice name, const char **error);

#endif
