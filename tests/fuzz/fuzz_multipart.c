/* Any bytes as a Content-Type (the first line) and a form: what is found lies in the body, behind a blank
 * line and in front of a delimiter, and a form that is read to its end has one. */
#include "multipart.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fuzz_multipart: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice body = {(const char *)data, size}, type, boundary, found;
    const char *error;

    if (size == 0)
        return 0;
    type = slice_cut(&body, '\n');
    boundary = multipart_boundary(type);
    (void)multipart_is_form(type);
    if (boundary.p == NULL || body.p == NULL)
        return 0;
    require(boundary.p > type.p && boundary.p + boundary.n <= type.p + type.n, "a boundary from nowhere");
    found = multipart_field(body, boundary, SLICE("model"), &error);
    require(error != NULL || memmem(body.p, body.n, boundary.p, boundary.n) != NULL,
            "a form without a delimiter");
    if (found.p == NULL)
        return 0;
    require(found.p - 4 >= body.p && memcmp(found.p - 4, "\r\n\r\n", 4) == 0, "no blank line");
    require(found.p + found.n + 4 + boundary.n <= body.p + body.n &&
                memcmp(found.p + found.n, "\r\n--", 4) == 0 &&
                memcmp(found.p + found.n + 4, boundary.p, boundary.n) == 0,
            "no delimiter");
    return 0;
}
