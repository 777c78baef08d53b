/* metrics: the families of metrics.def and their series; the page. Owns the numbers; who counts what, and
 * when, is the caller's. */
#include "metrics.h"

#include <assert.h>
#include <math.h>

#include "htab.h"
#include "list.h"
#include "mem.h"
#include "number.h"

#define MAX_BOUNDS 16

enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };

struct family {
    /* from metrics.def */
    enum kind kind;
    const char *name, *bucket_texts, *label_texts, *help;
    /* made from it on first use */
    size_t n_labels, n_bounds;
    struct slice label_names[METRICS_MAX_LABELS];
    struct slice bound_names[MAX_BOUNDS];
    double bounds[MAX_BOUNDS + 1]; /* infinity is the last */
    struct htab by_labels;
    struct list series; /* oldest first: the page's order */
    size_t n_series;
    struct metrics_series *sink; /* takes what is over the bound; not on the page */
};

struct metrics_series {
    struct family *family;
    double value;   /* a histogram's sum */
    uint64_t count; /* histogram only */
    struct htab_node node;
    struct list link;
    char *values_text;
    struct slice values[METRICS_MAX_LABELS]; /* into values_text */
    char *labels;                            /* as on the page, without braces: model="m",path="p" */
    uint64_t buckets[];                      /* n_bounds + 1, not cumulative */
};

static struct family families[METRIC_COUNT] = {
#define METRIC(id, kind_of, name_of, buckets, labels, help_of)                                               \
    [METRIC_##id] = {.kind = KIND_##kind_of,                                                                 \
                     .name = name_of,                                                                        \
                     .bucket_texts = buckets,                                                                \
                     .label_texts = labels,                                                                  \
                     .help = help_of},
#include "metrics.def"
#undef METRIC
};
static bool ready;

/* ---- set-up ---- */

static void read_labels(struct family *f)
{
    struct slice rest = slice_of(f->label_texts);

    while (rest.n > 0) {
        assert(f->n_labels < METRICS_MAX_LABELS);
        f->label_names[f->n_labels++] = slice_cut(&rest, ',');
    }
}

static void read_bounds(struct family *f)
{
    struct slice rest = slice_of(f->bucket_texts);

    while (rest.n > 0) {
        size_t i = f->n_bounds++;
        bool ok;

        assert(i < MAX_BOUNDS);
        f->bound_names[i] = slice_cut(&rest, ' ');
        ok = number_parse(f->bound_names[i], &f->bounds[i]);
        assert(ok && (i == 0 || f->bounds[i] > f->bounds[i - 1]));
        (void)ok;
    }
    f->bounds[f->n_bounds] = (double)INFINITY;
    assert((f->n_bounds > 0) == (f->kind == KIND_HISTOGRAM));
}

/* A family without labels has its one series from the start, so that it reads 0 and not "absent". */
static void set_up(void)
{
    ready = true;
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        struct family *f = &families[i];

        f->n_labels = f->n_bounds = f->n_series = 0;
        read_labels(f);
        read_bounds(f);
        htab_init(&f->by_labels, 0);
        list_init(&f->series);
        if (f->n_labels == 0)
            metrics_series((enum metric)i, NULL);
    }
}

static struct family *family_of(enum metric m)
{
    assert((unsigned)m < METRIC_COUNT);
    if (!ready)
        set_up();
    return &families[m];
}

/* ---- label text ---- */

/* Length of the well-formed UTF-8 character at p, 0 when there is none: one stray byte would make the whole
 * page unreadable. */
static size_t utf8_char(const unsigned char *p, size_t n)
{
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;

    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
        (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

/* The character at p as a label value shows it; *taken = how many bytes it is. */
static struct slice escaped_char(const char *p, size_t n, size_t *taken)
{
    size_t len = utf8_char((const unsigned char *)p, n);

    *taken = len > 0 ? len : 1;
    if (len == 0)
        return SLICE("\xef\xbf\xbd");
    switch (*p) {
    case '\\':
        return SLICE("\\\\");
    case '"':
        return SLICE("\\\"");
    case '\n':
        return SLICE("\\n");
    default:
        return (struct slice){p, len};
    }
}

static char *put(char *to, struct slice s)
{
    if (s.n > 0)
        memcpy(to, s.p, s.n);
    return to + s.n;
}

static char *put_escaped(char *to, struct slice s)
{
    size_t taken;

    for (size_t i = 0; i < s.n; i += taken)
        to = put(to, escaped_char(s.p + i, s.n - i, &taken));
    return to;
}

static char *make_labels(const struct family *f, const struct slice *values)
{
    size_t max_bytes = 1;
    char *text, *to;

    for (size_t i = 0; i < f->n_labels; i++)
        max_bytes += f->label_names[i].n + 4 + 3 * values[i].n; /* ,="" and three bytes for a stray one */
    to = text = mem_alloc(max_bytes);
    for (size_t i = 0; i < f->n_labels; i++) {
        to = put(to, i > 0 ? SLICE(",") : SLICE(""));
        to = put(to, f->label_names[i]);
        to = put(to, SLICE("=\""));
        to = put_escaped(to, values[i]);
        to = put(to, SLICE("\""));
    }
    *to = '\0';
    return text;
}

/* ---- series ---- */

static void copy_values(struct metrics_series *s, const struct slice *values)
{
    size_t n_bytes = 0;
    char *to;

    for (size_t i = 0; i < s->family->n_labels; i++)
        n_bytes += values[i].n;
    to = s->values_text = mem_alloc(n_bytes);
    for (size_t i = 0; i < s->family->n_labels; i++) {
        s->values[i] = (struct slice){to, values[i].n};
        to = put(to, values[i]);
    }
}

static struct metrics_series *new_series(struct family *f, const struct slice *values)
{
    struct metrics_series *s = mem_zalloc(sizeof(*s) + (f->n_bounds + 1) * sizeof(s->buckets[0]));

    s->family = f;
    list_init(&s->link);
    if (values != NULL) {
        copy_values(s, values);
        s->labels = make_labels(f, values);
    }
    return s;
}

static void free_series(struct metrics_series *s)
{
    mem_free(s->values_text);
    mem_free(s->labels);
    mem_free(s);
}

static uint64_t hash_values(const struct family *f, const struct slice *values)
{
    uint64_t hash = f->n_labels;

    for (size_t i = 0; i < f->n_labels; i++)
        hash = (hash << 7 | hash >> 57) ^ htab_hash(values[i]);
    return hash;
}

static bool same_values(const struct htab_node *node, const void *key)
{
    const struct metrics_series *s = CONTAINER_OF(node, const struct metrics_series, node);
    const struct slice *values = key;

    for (size_t i = 0; i < s->family->n_labels; i++)
        if (!slice_eq(s->values[i], values[i]))
            return false;
    return true;
}

static struct metrics_series *find_series(const struct family *f, uint64_t hash, const struct slice *values)
{
    struct htab_node *node = htab_find(&f->by_labels, hash, same_values, values);

    return node == NULL ? NULL : CONTAINER_OF(node, struct metrics_series, node);
}

static struct metrics_series *sink_of(struct family *f)
{
    if (f->sink == NULL)
        f->sink = new_series(f, NULL);
    metrics_inc(METRIC_SERIES_DROPPED, f->name);
    return f->sink;
}

struct metrics_series *metrics_series(enum metric m, const struct slice *label_values)
{
    struct family *f = family_of(m);
    uint64_t hash = hash_values(f, label_values);
    struct metrics_series *s = find_series(f, hash, label_values);

    if (s != NULL)
        return s;
    if (f->n_series >= METRICS_MAX_SERIES)
        return sink_of(f);
    s = new_series(f, label_values);
    htab_add(&f->by_labels, &s->node, hash);
    list_push_back(&f->series, &s->link);
    f->n_series++;
    return s;
}

void metrics_drop(enum metric m, const struct slice *label_values)
{
    struct family *f = family_of(m);
    struct metrics_series *s = find_series(f, hash_values(f, label_values), label_values);

    if (s == NULL)
        return;
    htab_remove(&f->by_labels, &s->node);
    list_del(&s->link);
    f->n_series--;
    free_series(s);
}

/* ---- counting ---- */

void metrics_add(struct metrics_series *s, double v)
{
    assert(s->family->kind == KIND_GAUGE || (s->family->kind == KIND_COUNTER && v >= 0));
    s->value += v;
}

void metrics_set(struct metrics_series *s, double v)
{
    assert(s->family->kind != KIND_HISTOGRAM);
    /* A source that starts again from a lower number must not look like a restart of the router. */
    if (s->family->kind == KIND_GAUGE || v > s->value)
        s->value = v;
}

void metrics_observe(struct metrics_series *s, double v)
{
    const struct family *f = s->family;
    size_t i = 0;

    assert(f->kind == KIND_HISTOGRAM && !isnan(v));
    while (v > f->bounds[i])
        i++;
    s->buckets[i]++;
    s->count++;
    s->value += v;
}

double metrics_value(const struct metrics_series *s)
{
    return s->family->kind == KIND_HISTOGRAM ? (double)s->count : s->value;
}

void metrics_add_labels(enum metric m, const char *const *label_values, size_t n, double v)
{
    struct slice values[METRICS_MAX_LABELS];

    assert(n == family_of(m)->n_labels);
    for (size_t i = 0; i < n; i++)
        values[i] = slice_of(label_values[i]);
    metrics_add(metrics_series(m, values), v);
}

/* ---- the page ---- */

/* One line: NAME SUFFIX {LABELS,le="LE"} VALUE. */
static bool render_line(struct buf *out, const struct metrics_series *s, struct slice suffix, struct slice le,
                        double value)
{
    struct slice name = slice_of(s->family->name), labels = slice_of(s->labels);
    bool braces = labels.n > 0 || le.n > 0;
    char *line =
        buf_reserve(out, name.n + suffix.n + labels.n + le.n + NUMBER_TEXT_MAX + sizeof("{,le=\"\"} \n"));
    char *to = line;

    if (line == NULL)
        return false;
    to = put(put(to, name), suffix);
    to = put(put(to, braces ? SLICE("{") : SLICE("")), labels);
    if (le.n > 0) {
        to = put(to, labels.n > 0 ? SLICE(",le=\"") : SLICE("le=\""));
        to = put(put(to, le), SLICE("\""));
    }
    to = put(to, braces ? SLICE("} ") : SLICE(" "));
    to += number_format(value, to);
    to = put(to, SLICE("\n"));
    buf_commit(out, (size_t)(to - line));
    return true;
}

static bool render_histogram(struct buf *out, const struct metrics_series *s)
{
    const struct family *f = s->family;
    uint64_t below = 0;

    for (size_t i = 0; i <= f->n_bounds; i++) {
        below += s->buckets[i];
        if (!render_line(out, s, SLICE("_bucket"), i < f->n_bounds ? f->bound_names[i] : SLICE("+Inf"),
                         (double)below))
            return false;
    }
    return render_line(out, s, SLICE("_sum"), SLICE(""), s->value) &&
           render_line(out, s, SLICE("_count"), SLICE(""), (double)s->count);
}

static bool render_family(struct buf *out, const struct family *f)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};

    if (!buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, kinds[f->kind]))
        return false;
    LIST_EACH(it, &f->series)
    {
        const struct metrics_series *s = LIST_ITEM(it, const struct metrics_series, link);

        if (!(f->kind == KIND_HISTOGRAM ? render_histogram(out, s)
                                        : render_line(out, s, SLICE(""), SLICE(""), s->value)))
            return false;
    }
    return true;
}

bool metrics_render(struct buf *out)
{
    for (size_t i = 0; i < METRIC_COUNT; i++)
        if (!render_family(out, family_of((enum metric)i)))
            return false;
    return true;
}

static void clear_family(struct family *f)
{
    LIST_EACH_SAFE(it, &f->series)
    {
        free_series(LIST_ITEM(it, struct metrics_series, link));
    }
    htab_free(&f->by_labels);
    if (f->sink != NULL)
        free_series(f->sink);
    f->sink = NULL;
}

void metrics_reset(void)
{
    if (!ready)
        return;
    for (size_t i = 0; i < METRIC_COUNT; i++)
        clear_family(&families[i]);
    ready = false;
}
