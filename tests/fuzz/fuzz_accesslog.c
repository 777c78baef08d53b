/* Any bytes as the values of a finished request: the text line keeps its fields, the JSON line parses and
 * gives well-formed values back. The input is cut at its zero bytes: path, session, model, error message,
 * request id. */
#include "accesslog.h"

#include <assert.h>
#include <cjson/cJSON.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct accesslog_entry entry_of(struct slice input)
{
    struct accesslog_entry e = {
        .queue_us = 1000, .ttft_us = -1, .has_queue = true, .error_type = "client_gone"};

    e.method = SLICE("POST");
    e.path = slice_cut(&input, '\0');
    e.session = slice_cut(&input, '\0');
    e.model_name = slice_cut(&input, '\0');
    e.error_message = slice_cut(&input, '\0');
    e.request_id = slice_cut(&input, '\0');
    e.plain = log_is_plain(e.path) && log_is_plain(e.session) && log_is_plain(e.request_id);
    return e;
}

/* The next field: up to a blank outside quotes. */
static struct slice take_field(struct slice *rest)
{
    bool quoted = false;
    struct slice field = {rest->p, 0};

    for (; field.n < rest->n && (quoted || rest->p[field.n] != ' '); field.n++) {
        unsigned char c = (unsigned char)rest->p[field.n];

        assert(c >= ' ' && c != 0x7f);
        if (c == '\\' && quoted)
            field.n++;
        else if (c == '"')
            quoted = !quoted;
    }
    assert(!quoted && field.n <= rest->n);
    rest->p += field.n + (field.n < rest->n);
    rest->n -= field.n + (field.n < rest->n);
    return field;
}

static void expect(struct slice *rest, const char *front)
{
    assert(slice_starts(take_field(rest), slice_of(front)));
}

static void check_text(const struct accesslog_entry *e, struct slice line)
{
    assert(line.n > 0 && line.p[line.n - 1] == '\n');
    line.n--;
    expect(&line, "[1970-01-01T00:00:00Z]");
    expect(&line, "\"POST ");
    expect(&line, "0");
    expect(&line, "error=client_gone:");
    if (e->model_name.n > 0)
        expect(&line, "model_name=");
    if (e->request_id.n > 0)
        expect(&line, "request_id=");
    expect(&line, "queue_ms=1");
    if (e->session.n > 0)
        expect(&line, "session=");
    expect(&line, "boosted=false");
    expect(&line, "overtaken=0");
    expect(&line, "timings=0ms(0+0+0)");
    assert(line.n == 0);
}

static bool is_plain(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] >= 0x80)
            return false;
    return s.n <= ACCESSLOG_VALUE_MAX;
}

static void check_json(const struct accesslog_entry *e, struct slice line)
{
    cJSON *json = cJSON_ParseWithLength(line.p, line.n);
    const char *path = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "path"));

    assert(json != NULL && path != NULL && line.p[line.n - 1] == '\n');
    assert(memchr(line.p, '\n', line.n) == line.p + line.n - 1);
    if (is_plain(e->path))
        assert(slice_eq(slice_of(path), e->path));
    assert(cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(json, "boosted")));
    cJSON_Delete(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct accesslog_entry e = entry_of((struct slice){(const char *)data, size});
    struct buf out;

    buf_init(&out, ACCESSLOG_LINE_MAX);
    assert(accesslog_text(&out, &e));
    check_text(&e, buf_slice(&out));
    buf_clear(&out);
    assert(accesslog_json(&out, &e));
    check_json(&e, buf_slice(&out));
    buf_free(&out);
    return 0;
}
