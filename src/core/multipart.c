/* multipart: walks the parts of a form by their delimiters. It owns nothing; whose field it is, is the
 * caller's business. */
#include "multipart.h"
#include "headers.h"

#include <assert.h>

/* ---- parameters: ; name=token; name="quoted" ---- */

/* The length of a parameter's value, quotes included. */
static size_t value_length(struct slice s)
{
    size_t n = 0;

    if (s.n > 0 && s.p[0] == '"') {
        for (n = 1; n < s.n && s.p[n] != '"'; n++)
            n += s.p[n] == '\\' && n + 1 < s.n;
        return n < s.n ? n + 1 : n;
    }
    while (n < s.n && s.p[n] != ';')
        n++;
    return n;
}

static struct slice unquote(struct slice value)
{
    value = slice_trim(value);
    if (value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"')
        return (struct slice){value.p + 1, value.n - 2};
    return value;
}

/* Of "type; a=b; c=d": the value of the parameter without its quotes; {NULL, 0}: none. */
static struct slice parameter(struct slice field, struct slice name)
{
    (void)slice_cut(&field, ';');
    while (field.p != NULL && field.n > 0) {
        const char *equals = memchr(field.p, '=', field.n);
        struct slice key, value;
        size_t n;

        if (equals == NULL)
            return (struct slice){NULL, 0};
        key = slice_trim((struct slice){field.p, (size_t)(equals - field.p)});
        value = (struct slice){equals + 1, field.n - (size_t)(equals - field.p) - 1};
        n = value_length(value);
        if (slice_ieq(key, name))
            return unquote((struct slice){value.p, n});
        field = (struct slice){value.p + n, value.n - n};
        (void)slice_cut(&field, ';');
    }
    return (struct slice){NULL, 0};
}

bool multipart_is_form(struct slice content_type)
{
    return headers_is_type(content_type, SLICE("multipart/form-data"));
}

struct slice multipart_boundary(struct slice content_type)
{
    struct slice boundary = parameter(content_type, SLICE("boundary"));

    return boundary.n > 0 && boundary.n <= MULTIPART_BOUNDARY_MAX ? boundary : (struct slice){NULL, 0};
}

/* ---- parts ---- */

static struct slice from(struct slice s, const char *p)
{
    return (struct slice){p, s.n - (size_t)(p - s.p)};
}

static struct slice header(struct slice head, struct slice name)
{
    while (head.p != NULL) {
        struct slice line = slice_cut(&head, '\n');

        if (line.n > name.n && line.p[name.n] == ':' && slice_ieq((struct slice){line.p, name.n}, name)) {
            line = from(line, line.p + name.n + 1);
            if (line.n > 0 && line.p[line.n - 1] == '\r')
                line.n--;
            return line;
        }
    }
    return (struct slice){NULL, 0};
}

/* part: head, blank line, content. Whether it is the field of that name; then *value is its content. */
static bool is_field(struct slice part, struct slice name, struct slice *value)
{
    const char *blank = memmem(part.p, part.n, "\r\n\r\n", 4);
    struct slice disposition;

    if (blank == NULL)
        return false;
    disposition = header((struct slice){part.p, (size_t)(blank - part.p)}, SLICE("Content-Disposition"));
    if (!slice_eq(parameter(disposition, SLICE("name")), name) ||
        parameter(disposition, SLICE("filename")).p != NULL)
        return false;
    *value = from(part, blank + 4);
    return true;
}

/* What follows the next delimiter, the boundary behind a line end; *part is what stands before it. False:
 * none. */
static bool cut_part(struct slice *rest, struct slice delimiter, struct slice *part)
{
    const char *at = rest->n == 0 ? NULL : memmem(rest->p, rest->n, delimiter.p, delimiter.n);

    if (at == NULL)
        return false;
    *part = (struct slice){rest->p, (size_t)(at - rest->p)};
    *rest = from(*rest, at + delimiter.n);
    return true;
}

struct slice multipart_field(struct slice body, struct slice boundary, struct slice name, const char **error)
{
    char text[MULTIPART_BOUNDARY_MAX + 4] = "\r\n--";
    const struct slice delimiter = {text, boundary.n + 4}, first = {text + 2, boundary.n + 2};
    struct slice found = {NULL, 0}, part;

    assert(boundary.n > 0 && boundary.n <= MULTIPART_BOUNDARY_MAX);
    memcpy(text + 4, boundary.p, boundary.n);
    *error = "the multipart body does not have its boundary";
    if (slice_starts(body, first)) /* may have no line end in front of it */
        body = from(body, body.p + first.n);
    else if (!cut_part(&body, delimiter, &part))
        return found;
    *error = "the multipart body ends in the middle of a part";
    while (!slice_starts(body, SLICE("--"))) {
        if (!cut_part(&body, delimiter, &part))
            return found;
        (void)is_field(part, name, &found);
    }
    *error = NULL;
    return found;
}
