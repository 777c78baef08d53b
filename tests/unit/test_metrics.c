/* Counting, bounds and removal; and the page, read back by a strict reader of its own that every test page
 * passes through. */
#include "metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "htab.h"
#include "test.h"

/* ---- a strict reader of the exposition format ---- */

struct page {
    struct buf text;
    size_t n_samples, n_families;
};

struct line {
    char name[128], labels[4096], le[64];
    double value;
};

static const char *read_name(const char *p, char *out, bool colons)
{
    size_t n = strspn(p, colons ? "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:0123456789"
                                : "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");

    assert_true(n > 0 && n < 128 && (p[0] < '0' || p[0] > '9'));
    memcpy(out, p, n);
    out[n] = '\0';
    return p + n;
}

/* Behind the closing quote. Only the three escapes of the format. */
static const char *read_quoted(const char *p)
{
    assert_int_equal(*p++, '"');
    for (; *p != '"'; p++) {
        assert_true(*p != '\0' && *p != '\n');
        if (*p == '\\') {
            p++;
            assert_true(*p == '\\' || *p == '"' || *p == 'n');
        }
    }
    return p + 1;
}

/* Copies the labels but for `le`, which has a place of its own. */
static const char *read_labels(const char *p, struct line *l)
{
    size_t n = 0;

    do {
        char label[128];
        const char *start = ++p, *end;

        p = read_name(p, label, false);
        assert_int_equal(*p++, '=');
        end = read_quoted(p);
        if (strcmp(label, "le") == 0)
            (void)snprintf(l->le, sizeof(l->le), "%.*s", (int)(end - p - 2), p + 1);
        else
            n += (size_t)snprintf(l->labels + n, sizeof(l->labels) - n, "%.*s,", (int)(end - start), start);
        p = end;
    } while (*p == ',');
    assert_int_equal(*p, '}');
    return p + 1;
}

static struct line read_sample(const char *p)
{
    struct line l = {0};
    char *end;

    p = read_name(p, l.name, true);
    if (*p == '{')
        p = read_labels(p, &l);
    assert_int_equal(*p++, ' ');
    assert_true((*p >= '0' && *p <= '9') || *p == '-' || strncmp(p, "+Inf", 4) == 0 ||
                strncmp(p, "NaN", 3) == 0);
    l.value = strtod(p, &end);
    assert_true(end > p && *end == '\n');
    return l;
}

static const char *next_line(const char *p)
{
    p = strchr(p, '\n');
    assert_non_null(p);
    return p + 1;
}

static bool is_named(const struct line *l, const char *family, const char *suffix)
{
    size_t n = strlen(family);

    return strncmp(l->name, family, n) == 0 && strcmp(l->name + n, suffix) == 0;
}

/* One histogram: NAME_bucket up to +Inf, NAME_sum, NAME_count. Returns what follows. */
static const char *read_histogram(const char *p, const char *family, struct page *page)
{
    struct line first = read_sample(p), l = first;
    double bound = -(double)INFINITY, below = 0;

    for (; is_named(&l, family, "_bucket"); p = next_line(p), l = read_sample(p)) {
        assert_string_equal(l.labels, first.labels);
        assert_true(strtod(l.le, NULL) > bound && l.value >= below);
        bound = strtod(l.le, NULL);
        below = l.value;
        if (isinf(bound))
            assert_string_equal(l.le, "+Inf");
    }
    assert_true(isinf(bound));
    assert_true(is_named(&l, family, "_sum"));
    assert_string_equal(l.labels, first.labels);
    l = read_sample(p = next_line(p));
    assert_true(is_named(&l, family, "_count"));
    assert_string_equal(l.labels, first.labels);
    assert_true(l.value >= below && l.value <= below);
    page->n_samples++;
    return next_line(p);
}

static const char *read_value(const char *p, const char *family, bool counter, struct page *page)
{
    struct line l = read_sample(p);

    assert_string_equal(l.name, family);
    assert_string_equal(l.le, "");
    if (counter)
        assert_true(l.value >= 0);
    page->n_samples++;
    return next_line(p);
}

/* HELP, TYPE and all samples of one family. */
static const char *read_family(const char *p, struct page *page)
{
    char name[128], again[128], kind[16];
    const char *name_at;

    assert_int_equal(strncmp(p, "# HELP ", 7), 0);
    p = read_name(p + 7, name, true);
    assert_true(*p == ' ' && p[1] != '\n' && p[1] != ' ');
    assert_null(memchr(p, '\\', (size_t)(next_line(p) - p)));
    p = next_line(p);
    assert_int_equal(strncmp(p, "# TYPE ", 7), 0);
    name_at = p + 7;
    assert_int_equal(sscanf(name_at, "%127s %15s", again, kind), 2);
    assert_string_equal(name, again);
    assert_true(strcmp(kind, "counter") == 0 || strcmp(kind, "gauge") == 0 || strcmp(kind, "histogram") == 0);
    assert_int_equal(strcmp(kind, "counter") == 0,
                     strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0);
    page->n_families++;
    for (p = next_line(p); *p != '#' && *p != '\0';)
        p = strcmp(kind, "histogram") == 0 ? read_histogram(p, name, page)
                                           : read_value(p, name, strcmp(kind, "counter") == 0, page);
    return p;
}

/* No name and labels twice: the hash of every sample's left side is looked for in those before it. */
static void check_unique(const char *text)
{
    static uint64_t seen[20000];
    size_t n = 0;

    for (const char *p = text; *p != '\0'; p = next_line(p)) {
        const char *end = p, *eol = strchr(p, '\n');

        while (memchr(end, ' ', (size_t)(eol - end)) != NULL && *p != '#')
            end = (const char *)memchr(end, ' ', (size_t)(eol - end)) + 1;
        if (*p == '#')
            end = eol;
        assert_true(n < ARRAY_LEN(seen));
        seen[n] = htab_hash((struct slice){p, (size_t)(end - p)});
        for (size_t i = 0; i < n; i++)
            assert_true(seen[i] != seen[n]);
        n++;
    }
}

static void page_read(struct page *page)
{
    const char *p;

    *page = (struct page){0};
    buf_init(&page->text, 16 * 1024 * 1024);
    assert_true(metrics_render(&page->text));
    assert_true(buf_append(&page->text, "", 1));
    assert_int_equal(strlen(buf_slice(&page->text).p), buf_slice(&page->text).n - 1);
    for (p = buf_slice(&page->text).p; *p != '\0';)
        p = read_family(p, page);
    assert_int_equal(page->n_families, METRIC_COUNT);
    if (page->n_samples < 1000)
        check_unique(buf_slice(&page->text).p);
}

static void assert_has(const struct page *page, const char *line)
{
    const char *text = buf_slice(&page->text).p, *at = strstr(text, line);

    if (at == NULL)
        print_error("not on the page: %s\n", line);
    assert_non_null(at);
    assert_true(at == text || at[-1] == '\n');
}

static void assert_page_has(const char *line)
{
    struct page page;

    page_read(&page);
    assert_has(&page, line);
    buf_free(&page.text);
}

static void assert_page_lacks(const char *part)
{
    struct page page;

    page_read(&page);
    assert_null(strstr(buf_slice(&page.text).p, part));
    buf_free(&page.text);
}

static struct metrics_series *one(enum metric m, const char *label)
{
    struct slice value = slice_of(label);

    return metrics_series(m, &value);
}

static void assert_value(const struct metrics_series *s, double expected)
{
    assert_true(metrics_value(s) >= expected && metrics_value(s) <= expected);
}

/* ---- tests ---- */

/* Series without labels are there from the start. */
static void test_empty_page(void **state)
{
    struct page page;

    (void)state;
    page_read(&page);
    assert_has(&page, "# TYPE kthena_router_requests_total counter\n");
    assert_has(&page, "kthena_router_active_requests 0\n");
    assert_has(&page, "process_open_fds 0\n");
    buf_free(&page.text);
}

/* What dashboards of the Go router ask for: name, kind, labels in this order, first and last bucket. */
static const struct {
    enum metric metric;
    const char *kind, *series; /* with every label value "v" */
} shared_families[] = {
    {METRIC_REQUESTS, "counter",
     "kthena_router_requests_total{model=\"v\",path=\"v\",status_code=\"v\",error_type=\"v\",model_route="
     "\"v\","
     "backend_type=\"v\",backend_name=\"v\",upstream_model=\"v\"} 0"},
    {METRIC_REQUEST_DURATION, "histogram",
     "kthena_router_request_duration_seconds_bucket{model=\"v\",path=\"v\",status_code=\"v\",model_route="
     "\"v\","
     "backend_type=\"v\",backend_name=\"v\",upstream_model=\"v\",le=\"0.005\"} 0"},
    {METRIC_PREFILL_DURATION, "histogram",
     "kthena_router_request_prefill_duration_seconds_bucket{model=\"v\",path=\"v\",status_code=\"v\",le="
     "\"60\"} 0"},
    {METRIC_DECODE_DURATION, "histogram",
     "kthena_router_request_decode_duration_seconds_bucket{model=\"v\",path=\"v\",status_code=\"v\",le=\"2."
     "5\"} 0"},
    {METRIC_ACTIVE_REQUESTS, "gauge", "kthena_router_active_requests 0"},
    {METRIC_ACTIVE_DOWNSTREAM, "gauge", "kthena_router_active_downstream_requests{model=\"v\"} 0"},
    {METRIC_ACTIVE_UPSTREAM, "gauge",
     "kthena_router_active_upstream_requests{model_server=\"v\",model_route=\"v\",backend_type=\"v\",backend_"
     "name=\"v\","
     "upstream_model=\"v\"} 0"},
    {METRIC_QUEUE_SIZE, "gauge", "kthena_router_session_boost_queue_size{model=\"v\"} 0"},
    {METRIC_QUEUE_DURATION, "histogram",
     "kthena_router_session_boost_queue_duration_seconds_bucket{model=\"v\",le=\"0.001\"} 0"},
    {METRIC_QUEUE_CANCELLED, "counter", "kthena_router_session_boost_queue_cancelled_total{model=\"v\"} 0"},
    {METRIC_QUEUE_DEQUEUE, "counter", "kthena_router_session_boost_queue_dequeue_total{model=\"v\"} 0"},
    {METRIC_QUEUE_INFLIGHT, "gauge", "kthena_router_session_boost_queue_inflight{model=\"v\"} 0"},
};

static void test_families_of_the_go_router(void **state)
{
    struct slice values[METRICS_MAX_LABELS];

    (void)state;
    for (size_t i = 0; i < METRICS_MAX_LABELS; i++)
        values[i] = SLICE("v");
    for (size_t i = 0; i < ARRAY_LEN(shared_families); i++) {
        size_t n = strcspn(shared_families[i].series, "{ ");
        char line[512];

        (void)metrics_series(shared_families[i].metric, values);
        (void)snprintf(line, sizeof(line), "%s\n", shared_families[i].series);
        assert_page_has(line);
        n -= strcmp(shared_families[i].kind, "histogram") == 0 ? strlen("_bucket") : 0;
        (void)snprintf(line, sizeof(line), "# TYPE %.*s %s\n", (int)n, shared_families[i].series,
                       shared_families[i].kind);
        assert_page_has(line);
    }
}

static void test_labels_in_order(void **state)
{
    (void)state;
    metrics_inc(METRIC_REQUESTS, "m", "/v1/completions", "200", "successful_request", "r", "model_server",
                "s", "um");
    metrics_inc(METRIC_REQUESTS, "m", "/v1/completions", "200", "successful_request", "r", "model_server",
                "s", "um");
    metrics_inc(METRIC_REQUESTS, "m", "/v1/completions", "200", "successful_request", "r", "model_server",
                "s", "");
    assert_page_has("kthena_router_requests_total{model=\"m\",path=\"/v1/completions\",status_code=\"200\","
                    "error_type=\"successful_request\",model_route=\"r\",backend_type=\"model_server\","
                    "backend_name=\"s\","
                    "upstream_model=\"um\"} 2\n");
    assert_page_has("kthena_router_requests_total{model=\"m\",path=\"/v1/completions\",status_code=\"200\","
                    "error_type=\"successful_request\",model_route=\"r\",backend_type=\"model_server\","
                    "backend_name=\"s\","
                    "upstream_model=\"\"} 1\n");
}

static void test_series_are_kept(void **state)
{
    struct metrics_series *a = one(METRIC_QUEUE_SIZE, "a"), *b = one(METRIC_QUEUE_SIZE, "b");
    struct slice ab[] = {SLICE("a"), SLICE("bc")}, ba[] = {SLICE("ab"), SLICE("c")},
                 swapped[] = {SLICE("bc"), SLICE("a")};

    (void)state;
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(a, one(METRIC_QUEUE_SIZE, "a"));
    assert_ptr_not_equal(a, one(METRIC_QUEUE_INFLIGHT, "a"));
    assert_ptr_not_equal(metrics_series(METRIC_GATE_CLOSED, ab), metrics_series(METRIC_GATE_CLOSED, ba));
    assert_ptr_not_equal(metrics_series(METRIC_GATE_CLOSED, ab), metrics_series(METRIC_GATE_CLOSED, swapped));
    metrics_add(a, 3);
    metrics_add(a, -1);
    assert_value(a, 2);
    assert_value(b, 0);
    metrics_set(a, -5.5);
    assert_page_has("kthena_router_session_boost_queue_size{model=\"a\"} -5.5\n");
}

static void test_counters_do_not_go_down(void **state)
{
    struct metrics_series *s = one(METRIC_LOG_DROPPED, "access");

    (void)state;
    metrics_set(s, 7);
    metrics_set(s, 3);
    assert_value(s, 7);
    metrics_set(s, 8);
    assert_value(s, 8);
}

static void test_large_integers(void **state)
{
    (void)state;
    metrics_add(one(METRIC_QUEUE_DEQUEUE, "m"), 9007199254740990.0);
    metrics_inc(METRIC_QUEUE_DEQUEUE, "m");
    assert_page_has("kthena_router_session_boost_queue_dequeue_total{model=\"m\"} 9007199254740991\n");
    metrics_set(metrics_series(METRIC_PROCESS_START_TIME, NULL), 1788555301.25);
    assert_page_has("process_start_time_seconds 1788555301.25\n");
    metrics_set(one(METRIC_POD_WAITING, "p"), (double)NAN);
    assert_page_has("kthena_router_pod_waiting_requests{pod=\"p\"} NaN\n");
}

/* A value equal to a bound lies in that bucket. */
static void test_histogram(void **state)
{
    struct metrics_series *s = one(METRIC_QUEUE_OVERTAKES, "m");
    static const double values[] = {0, 0, 1, 16, 17, 64, 65};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        metrics_observe(s, values[i]);
    assert_value(s, 7);
    assert_page_has("kthena_router_session_boost_overtakes_bucket{model=\"m\",le=\"0\"} 2\n"
                    "kthena_router_session_boost_overtakes_bucket{model=\"m\",le=\"1\"} 3\n"
                    "kthena_router_session_boost_overtakes_bucket{model=\"m\",le=\"2\"} 3\n"
                    "kthena_router_session_boost_overtakes_bucket{model=\"m\",le=\"4\"} 3\n"
                    "kthena_router_session_boost_overtakes_bucket{model=\"m\",le=\"8\"} 3\n"
                    "kthena_router_session_boost_overtakes_bucket{model=\"m\",le=\"16\"} 4\n"
                    "kthena_router_session_boost_overtakes_bucket{model=\"m\",le=\"32\"} 5\n"
                    "kthena_router_session_boost_overtakes_bucket{model=\"m\",le=\"64\"} 6\n"
                    "kthena_router_session_boost_overtakes_bucket{model=\"m\",le=\"+Inf\"} 7\n"
                    "kthena_router_session_boost_overtakes_sum{model=\"m\"} 163\n"
                    "kthena_router_session_boost_overtakes_count{model=\"m\"} 7\n");
}

/* The Go router's buckets, and waits beyond its last one. */
static void test_queue_buckets(void **state)
{
    static const char *const bounds[] = {"0.001", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5",
                                         "1",     "2.5",   "5",    "10",    "20",   "30",  "60",   "+Inf"};
    struct page page;

    (void)state;
    metrics_observe(one(METRIC_QUEUE_DURATION, "m"), 29.5);
    page_read(&page);
    for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
        char line[160];

        (void)snprintf(
            line, sizeof(line),
            "kthena_router_session_boost_queue_duration_seconds_bucket{model=\"m\",le=\"%s\"} %d\n",
            bounds[i], i >= 13);
        assert_has(&page, line);
    }
    buf_free(&page.text);
}

static void test_escapes(void **state)
{
    (void)state;
    metrics_inc(METRIC_QUEUE_DEQUEUE, "a\"b\\c\nd}{\xc3\xa9 ,=");
    assert_page_has(
        "kthena_router_session_boost_queue_dequeue_total{model=\"a\\\"b\\\\c\\nd}{\xc3\xa9 ,=\"} 1\n");
    metrics_inc(METRIC_QUEUE_DEQUEUE, "x\xff\xc3(\xed\xa0\x80\xf0\x9f\x98\x80\xe2\x82");
    assert_page_has(
        "kthena_router_session_boost_queue_dequeue_total{model=\"x\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd"
        "\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\"} 1\n");
}

/* Up to the bound series are told apart; what comes later shares one that is not on the page, and is counted.
 */
static void test_bound_on_series(void **state)
{
    struct metrics_series *sink;
    char label[32];

    (void)state;
    for (int i = 0; i < METRICS_MAX_SERIES; i++) {
        (void)snprintf(label, sizeof(label), "pod-%d", i);
        metrics_inc(METRIC_STALE_RETRIES, label);
    }
    assert_page_lacks("series_dropped_total{");
    sink = one(METRIC_STALE_RETRIES, "one too many");
    metrics_add(sink, 1);
    assert_ptr_equal(sink, one(METRIC_STALE_RETRIES, "two too many"));
    assert_ptr_not_equal(sink, one(METRIC_STALE_RETRIES, "pod-0"));
    assert_page_lacks("too many\"");
    assert_page_has("kthena_router_metric_series_dropped_total{family=\"kthena_router_upstream_stale_retries_"
                    "total\"} 2\n");
    assert_page_has("kthena_router_upstream_stale_retries_total{pod=\"pod-4095\"} 1\n");
    metrics_drop(METRIC_STALE_RETRIES, &SLICE("pod-7"));
    metrics_inc(METRIC_STALE_RETRIES, "now there is room");
    assert_page_has("kthena_router_upstream_stale_retries_total{pod=\"now there is room\"} 1\n");
}

static void test_sink_of_histograms(void **state)
{
    (void)state;
    for (int i = 0; i < METRICS_MAX_SERIES; i++) {
        char label[32];

        (void)snprintf(label, sizeof(label), "model-%d", i);
        (void)one(METRIC_QUEUE_DURATION, label);
    }
    metrics_observe(one(METRIC_QUEUE_DURATION, "more"), 100);
    assert_value(one(METRIC_QUEUE_DURATION, "still more"), 1);
}

static void test_drop(void **state)
{
    (void)state;
    metrics_set(one(METRIC_POD_INFLIGHT, "p1"), 4);
    metrics_set(one(METRIC_POD_INFLIGHT, "p2"), 5);
    metrics_drop(METRIC_POD_INFLIGHT, &SLICE("p1"));
    metrics_drop(METRIC_POD_INFLIGHT, &SLICE("p3"));
    assert_page_lacks("pod_inflight_requests{pod=\"p1\"");
    assert_page_has("kthena_router_pod_inflight_requests{pod=\"p2\"} 5\n");
    assert_value(one(METRIC_POD_INFLIGHT, "p1"), 0);
}

static void test_full_buffer(void **state)
{
    struct buf out;

    (void)state;
    metrics_observe(one(METRIC_QUEUE_DURATION, "m"), 1);
    buf_init(&out, 500);
    assert_false(metrics_render(&out));
    buf_free(&out);
}

/* The order is that of first use, so that two pages can be compared. */
static void test_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < 26; i++)
        metrics_inc(METRIC_RELOADS, ((char[]){(char)('z' - i), '\0'}));
    assert_page_has("kthena_router_config_reloads_total{result=\"z\"} 1\n"
                    "kthena_router_config_reloads_total{result=\"y\"} 1\n"
                    "kthena_router_config_reloads_total{result=\"x\"} 1\n");
}

static int reset(void **state)
{
    (void)state;
    metrics_reset();
    return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, reset, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_empty_page),
        TEST(test_labels_in_order),
        TEST(test_series_are_kept),
        TEST(test_counters_do_not_go_down),
        TEST(test_large_integers),
        TEST(test_histogram),
        TEST(test_queue_buckets),
        TEST(test_escapes),
        TEST(test_bound_on_series),
        TEST(test_sink_of_histograms),
        TEST(test_drop),
        TEST(test_full_buffer),
        TEST(test_order),
        TEST(test_families_of_the_go_router),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
