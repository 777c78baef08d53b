/* Items of a list are found by counting brackets outside of strings, events of a watch by the line ends
 * behind them: an event that breaks off is noticed with its line, and hides no other. Items are not kept: a
 * list of any length costs the memory of its largest item. */
#include "kubescan.h"

void kubescan_init(struct kubescan *s)
{
    *s = (struct kubescan){.mode = KUBESCAN_LIST};
    buf_init(&s->object, KUBESCAN_OBJECT_MAX);
    buf_init(&s->outer, KUBESCAN_OUTER_MAX);
}

void kubescan_free(struct kubescan *s)
{
    buf_free(&s->object);
    buf_free(&s->outer);
}

void kubescan_start(struct kubescan *s, enum kubescan_mode mode)
{
    s->mode = mode;
    buf_clear(&s->object);
    buf_clear(&s->outer);
    s->depth = 0;
    s->inside = s->in_items = s->in_string = s->escaped = s->delivered = s->done = false;
    s->error = NULL;
}

static enum kubescan_step bad(struct kubescan *s, const char *why)
{
    s->error = why;
    return KUBESCAN_BAD;
}

static bool is_space(char ch)
{
    return ch == ' ' || ch == '\n' || ch == '\r' || ch == '\t';
}

/* Follows one byte of a string. */
static void pass_string(struct kubescan *s, char ch)
{
    if (s->escaped)
        s->escaped = false;
    else if (ch == '\\')
        s->escaped = true;
    else if (ch == '"')
        s->in_string = false;
}

/* How many bytes belong to the object that is being read; *end: it is complete with them. */
static size_t measure(struct kubescan *s, struct slice in, bool *end)
{
    *end = false;
    for (size_t i = 0; i < in.n; i++) {
        const char ch = in.p[i];

        if (s->in_string)
            pass_string(s, ch);
        else if (ch == '"')
            s->in_string = true;
        else if (ch == '{' || ch == '[')
            s->depth++;
        else if ((ch == '}' || ch == ']') && --s->depth == 0) {
            *end = true;
            return i + 1;
        }
    }
    return in.n;
}

/* How many bytes belong to the line that is being read. */
static size_t measure_line(struct slice in, bool *end)
{
    const char *at = memchr(in.p, '\n', in.n);

    *end = at != NULL;
    return at != NULL ? (size_t)(at - in.p) + 1 : in.n;
}

static enum kubescan_step read_object(struct kubescan *s, struct slice *in)
{
    bool end;
    const size_t n = s->mode == KUBESCAN_WATCH ? measure_line(*in, &end) : measure(s, *in, &end);

    if (!buf_append(&s->object, in->p, n))
        return bad(s, "an object is larger than 4 MiB");
    in->p += n;
    in->n -= n;
    if (!end)
        return KUBESCAN_MORE;
    s->inside = false;
    s->depth = 2; /* of a list */
    s->delivered = true;
    return KUBESCAN_OBJECT;
}

/* The text so far ends in "items": at the top level of the list. */
static bool opens_items(const struct kubescan *s)
{
    const struct slice key = SLICE("\"items\"");
    struct slice text = buf_slice(&s->outer);

    while (text.n > 0 && is_space(text.p[text.n - 1]))
        text.n--;
    if (s->depth != 1 || text.n == 0 || text.p[text.n - 1] != ':')
        return false;
    text.n--;
    while (text.n > 0 && is_space(text.p[text.n - 1]))
        text.n--;
    return text.n > key.n && text.p[text.n - key.n - 1] != '\\' &&
           slice_eq((struct slice){text.p + text.n - key.n, key.n}, key);
}

static void follow_outer(struct kubescan *s, char ch)
{
    if (s->in_string) {
        pass_string(s, ch);
    } else if (ch == '"') {
        s->in_string = true;
    } else if (ch == '{' || ch == '[') {
        s->in_items = ch == '[' && opens_items(s);
        s->depth++;
    } else if (ch == '}' || ch == ']') {
        s->in_items = false;
        s->done = --s->depth == 0;
    }
}

/* One byte around a list's items. */
static enum kubescan_step read_outer(struct kubescan *s, char ch)
{
    if (s->depth == 0 && (s->done || ch != '{'))
        return is_space(ch) ? KUBESCAN_MORE : bad(s, "the answer is not a JSON object");
    follow_outer(s, ch);
    if (!buf_append(&s->outer, &ch, 1))
        return bad(s, "more than 64 KiB around the items of a list");
    return s->done ? KUBESCAN_DONE : KUBESCAN_MORE;
}

/* One byte that belongs to no object. */
static enum kubescan_step read_between(struct kubescan *s, struct slice *in)
{
    const char ch = in->p[0];
    const bool among = s->mode == KUBESCAN_WATCH || s->in_items;

    if (among && ch == '{') {
        s->inside = true;
        s->depth = 0;
        return KUBESCAN_MORE;
    }
    in->p++, in->n--;
    if (among && (is_space(ch) || (ch == ',' && s->mode == KUBESCAN_LIST)))
        return KUBESCAN_MORE;
    if (s->mode == KUBESCAN_WATCH)
        return bad(s, "bytes between the events of a watch");
    if (among && ch != ']')
        return bad(s, "an item of a list is not an object");
    return read_outer(s, ch);
}

enum kubescan_step kubescan_next(struct kubescan *s, struct slice *in)
{
    if (s->error != NULL)
        return KUBESCAN_BAD;
    if (s->delivered)
        buf_consume_keep(&s->object, s->object.len);
    s->delivered = false;
    while (in->n > 0) {
        const enum kubescan_step step = s->inside ? read_object(s, in) : read_between(s, in);

        if (step != KUBESCAN_MORE)
            return step;
    }
    return KUBESCAN_MORE;
}

bool kubescan_at_rest(const struct kubescan *s)
{
    return !s->inside && s->error == NULL;
}
