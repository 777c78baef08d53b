/* Routes: which rule, which target, whose turn, and what a new table takes over. */
#include "route.h"
#include "mem.h"
#include "test.h"

#include <stdio.h>

#define MODELS 4

/* Models with one pod each; their turns stand in the table as `to`. */
struct fixture {
    struct route_table t;
    struct route_spec specs[4];
    size_t n_specs;
    struct model *models[MODELS];
    struct pod *pods[MODELS];
};

static const struct boostq_rules rules = {.boost = true,
                                          .prefer_warm = true,
                                          .sticky = true,
                                          .sticky_wait_us = 5000000,
                                          .max_overtakes = 16,
                                          .max_sessions = 100};

static struct fixture *setup(void)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    route_table_init(&f->t);
    for (size_t i = 0; i < MODELS; i++) {
        f->models[i] = model_new("m", &rules, NULL);
        f->pods[i] = pod_new(SLICE("p:1"));
        model_set_pods(f->models[i], &f->pods[i], 1, 0);
    }
    return f;
}

static void teardown(struct fixture *f)
{
    route_table_free(&f->t);
    for (size_t i = 0; i < f->n_specs; i++)
        route_spec_free(&f->specs[i]);
    for (size_t i = 0; i < MODELS; i++) {
        model_free(f->models[i]);
        pod_unref(f->pods[i]);
    }
    mem_free(f);
}

/* A rule of the last route whose targets are the first n models, with these weights. */
static struct route_rule_spec *rule(struct fixture *f, const int64_t *weights, size_t n)
{
    struct route_rule_spec *r = route_spec_add_rule(&f->specs[f->n_specs - 1]);
    char name[24];

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof(name), "%zu", i);
        assert_true(route_rule_add_target(r, slice_of(name), weights[i]));
    }
    return r;
}

/* To one model alone. */
static struct route_rule_spec *rule_to(struct fixture *f, size_t model)
{
    struct route_rule_spec *r = route_spec_add_rule(&f->specs[f->n_specs - 1]);
    char name[8];

    (void)snprintf(name, sizeof(name), "%zu", model);
    assert_true(route_rule_add_target(r, slice_of(name), ROUTE_NO_WEIGHT));
    return r;
}

static void route(struct fixture *f, const char *model)
{
    f->specs[f->n_specs++] = (struct route_spec){.model = mem_strdup(model)};
}

static void put(struct fixture *f, struct route_table *t, const char *name, size_t spec, bool adapter)
{
    struct route_name *n = route_table_add_name(t, slice_of(name), adapter);

    if (n->adapter != adapter)
        return;
    for (size_t i = 0; i < f->specs[spec].n_rules; i++) {
        const struct route_rule_spec *r = &f->specs[spec].rules[i];
        const size_t at = route_name_add_rule(n, &f->specs[spec], r);

        for (size_t k = 0; k < r->n_targets; k++) {
            struct model *m = f->models[r->targets[k].server[0] - '0'];

            route_name_add_target(n, at, m, m, r->targets[k].weight);
        }
    }
}

static void build(struct fixture *f)
{
    struct route_table t;

    route_table_init(&t);
    for (size_t i = 0; i < f->n_specs; i++)
        put(f, &t, f->specs[i].model, i, false);
    for (size_t i = 0; i < f->n_specs; i++)
        for (size_t k = 0; k < f->specs[i].n_adapters; k++)
            put(f, &t, f->specs[i].adapters[k], i, true);
    route_table_finish(&t, &f->t);
    route_table_free(&f->t);
    f->t = t;
}

static void header(struct route_rule_spec *r, const char *name, enum route_match_kind kind, const char *text)
{
    route_rule_add_header(r, slice_of(name))->value = (struct route_match){kind, mem_strdup(text)};
}

/* The model's number; -1: no rule, -2: no name. */
static int ask(const struct fixture *f, const char *name, struct route_query q)
{
    struct route_name *n = route_find(&f->t, slice_of(name));
    const struct route_target *t;

    if (n == NULL)
        return -2;
    t = n->only != NULL ? n->only : route_decide(n, &q, 0);
    for (size_t i = 0; t != NULL && i < MODELS; i++) {
        if (f->models[i] == t->to)
            return (int)i;
    }
    return -1;
}

static int ask_with(const struct fixture *f, const char *fields)
{
    return ask(f, "m", (struct route_query){.path = SLICE("/v1/x"), .fields = slice_of(fields)});
}

static void test_headers(void **state)
{
    struct fixture *f = setup();
    struct route_rule_spec *r;

    (void)state;
    route(f, "m");
    r = rule_to(f, 0);
    header(r, "x-tier", ROUTE_EXACT, "gold");
    header(r, "x-region", ROUTE_PREFIX, "eu-");
    header(rule_to(f, 1), "x-tier", ROUTE_REGEX, "^(?i)(gold|silver)");
    header(rule_to(f, 2), "x-empty", ROUTE_EXACT, "");
    build(f);
    assert_int_equal(ask_with(f, "X-Tier: gold\r\nX-Region: eu-1\r\n\r\n"), 0);
    assert_int_equal(ask_with(f, "X-Region:eu-1\r\nX-TIER:  gold \r\n\r\n"), 0);
    assert_int_equal(ask_with(f, "X-Tier: gold\r\nX-Region: us-1\r\n\r\n"), 1);
    assert_int_equal(ask_with(f, "X-Tier: gold\r\n\r\n"), 1);
    assert_int_equal(ask_with(f, "X-Tier: SILVER-2\r\n\r\n"), 1);
    assert_int_equal(ask_with(f, "X-Tier: bronze\r\nX-Tier: gold\r\n\r\n"), 2); /* the first one counts */
    assert_int_equal(ask_with(f, "X-Tiers: gold\r\nTier: gold\r\nA: X-Tier: gold\r\n\r\n"), 2);
    assert_int_equal(ask_with(f, "X-Empty: no\r\n\r\n"), -1);
    teardown(f);
}

static void test_uri_and_model(void **state)
{
    struct fixture *f = setup();
    struct route_rule_spec *r;

    (void)state;
    route(f, "m");
    assert_true(route_spec_add_adapter(&f->specs[0], SLICE("lora")));
    r = rule_to(f, 0);
    r->uri = (struct route_match){ROUTE_EXACT, mem_strdup("/v1/chat/completions")};
    r->model = mem_strdup("lora");
    rule_to(f, 1)->uri = (struct route_match){ROUTE_PREFIX, mem_strdup("/v1/chat/")};
    rule_to(f, 2)->uri = (struct route_match){ROUTE_REGEX, mem_strdup("embed+ings$")};
    build(f);
    assert_int_equal(ask(f, "lora", (struct route_query){.path = SLICE("/v1/chat/completions")}), 0);
    assert_int_equal(ask(f, "m", (struct route_query){.path = SLICE("/v1/chat/completions")}), 1);
    assert_int_equal(ask(f, "lora", (struct route_query){.path = SLICE("/v1/chat/x")}), 1);
    assert_int_equal(ask(f, "m", (struct route_query){.path = SLICE("/v1/embeddings")}), 2);
    assert_int_equal(ask(f, "m", (struct route_query){.path = SLICE("/v1/chat")}), -1);
    assert_int_equal(ask(f, "other", (struct route_query){.path = SLICE("/v1/chat")}), -2);
    /* The decoded path is compared; what is no escape, and slashes and dots, stay as they are. */
    assert_int_equal(ask(f, "lora", (struct route_query){.path = SLICE("/v1/%63hat%2Fcompletion%73")}), 0);
    assert_int_equal(ask(f, "m", (struct route_query){.path = SLICE("/%76%31/chat/%zz%4")}), 1);
    assert_int_equal(ask(f, "m", (struct route_query){.path = SLICE("/v1/emb%65ddin%67s")}), 2);
    assert_int_equal(ask(f, "m", (struct route_query){.path = SLICE("/v1/%2563hat/x")}), -1);
    assert_int_equal(ask(f, "m", (struct route_query){.path = SLICE("/v1//chat/x")}), -1);
    assert_int_equal(ask(f, "m", (struct route_query){.path = SLICE("/v1/./chat/x")}), -1);
    teardown(f);
}

static void test_oldest_route_first_and_models_before_adapters(void **state)
{
    struct fixture *f = setup();

    (void)state;
    route(f, "m");
    header(rule_to(f, 0), "x", ROUTE_EXACT, "1");
    route(f, "m");
    (void)rule_to(f, 1);
    assert_true(route_spec_add_adapter(&f->specs[1], SLICE("n")));
    assert_true(route_spec_add_adapter(&f->specs[1], SLICE("l")));
    route(f, "n");
    (void)rule_to(f, 2);
    assert_true(route_spec_add_adapter(&f->specs[2], SLICE("l")));
    build(f);
    assert_int_equal(ask_with(f, "x: 1\r\n\r\n"), 0);
    assert_int_equal(ask_with(f, "x: 2\r\n\r\n"), 1); /* no rule of the first route fits */
    assert_int_equal(ask(f, "n", (struct route_query){.avoid = NULL}), 2);
    assert_int_equal(ask(f, "l", (struct route_query){.avoid = NULL}), 1);
    assert_true(route_find(&f->t, SLICE("l"))->adapter);
    assert_non_null(route_find(&f->t, SLICE("n"))->only);
    assert_null(route_find(&f->t, SLICE("m"))->only);
    teardown(f);
}

/* What an admission webhook would have refused: the rule or the route is passed over. */
static void test_specs_that_do_not_fit(void **state)
{
    struct fixture *f = setup();

    (void)state;
    route(f, "m");
    header(rule_to(f, 0), "x", ROUTE_REGEX, "("); /* never matches; the next rule is tried */
    header(rule(f, (const int64_t[]){1, ROUTE_NO_WEIGHT}, 2), "x", ROUTE_EXACT, "mixed");
    header(rule(f, (const int64_t[]){0, 0}, 2), "x", ROUTE_EXACT, "zero");
    header(route_spec_add_rule(&f->specs[0]), "x", ROUTE_EXACT, "none");
    (void)rule_to(f, 1);
    route(f, "m");
    (void)rule_to(f, 3);
    build(f);
    assert_int_equal(ask_with(f, "x: (\r\n\r\n"), 1);
    assert_int_equal(ask_with(f, "x: mixed\r\n\r\n"), 3); /* matched without targets: the next route */
    assert_int_equal(ask_with(f, "x: zero\r\n\r\n"), 3);
    assert_int_equal(ask_with(f, "x: none\r\n\r\n"), 3);
    teardown(f);
}

/* ---- targets ---- */

static void count(const struct fixture *f, size_t n, int counts[MODELS])
{
    memset(counts, 0, MODELS * sizeof(*counts));
    for (size_t i = 0; i < n; i++)
        counts[ask(f, "m", (struct route_query){.avoid = NULL})]++;
}

static void test_weights(void **state)
{
    static const int64_t cases[][3] = {{70, 30, 0}, {50, 30, 0},     {1, 999, 0},
                                       {5, 1, 1},   {1000000, 1, 0}, {1, 1, 1}};

    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
        const int64_t *w = cases[c], sum = w[0] + w[1] + w[2];
        struct fixture *f = setup();
        int counts[MODELS];

        route(f, "m");
        (void)rule(f, w, 3);
        build(f);
        for (int64_t n = 100; n <= 10000; n *= 10) { /* one row behind another: any is as good as the first */
            count(f, (size_t)n, counts);
            for (size_t i = 0; i < 3; i++)
                assert_in_range(counts[i] * sum + sum, w[i] * n, w[i] * n + 2 * sum);
        }
        teardown(f);
    }
}

static void test_no_weights_are_equal_ones(void **state)
{
    struct fixture *f = setup();
    int counts[MODELS];

    (void)state;
    route(f, "m");
    (void)rule(f, (const int64_t[]){ROUTE_NO_WEIGHT, ROUTE_NO_WEIGHT, ROUTE_NO_WEIGHT}, 3);
    build(f);
    count(f, 300, counts);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(counts[i], 100);
    teardown(f);
}

static void test_any_hundred(void **state)
{
    struct fixture *f = setup();
    int last[10000], in_row = 0;

    (void)state;
    route(f, "m");
    (void)rule(f, (const int64_t[]){70, 30}, 2);
    build(f);
    for (size_t i = 0; i < ARRAY_LEN(last); i++) {
        last[i] = ask(f, "m", (struct route_query){.avoid = NULL}) == 0;
        in_row += last[i] - (i >= 100 ? last[i - 100] : 0);
        if (i >= 99)
            assert_int_equal(in_row, 70);
    }
    teardown(f);
}

static void set_away(struct fixture *f, size_t i, bool away)
{
    f->pods[i]->leaving = away;
    (void)model_refresh(f->models[i], 0);
}

static void test_target_without_pods(void **state)
{
    struct fixture *f = setup();
    int counts[MODELS];

    (void)state;
    route(f, "m");
    (void)rule(f, (const int64_t[]){70, 20, 10, 0}, 4);
    build(f);
    set_away(f, 0, true);
    count(f, 300, counts);
    assert_int_equal(counts[1], 200);
    assert_int_equal(counts[2], 100);
    f->pods[1]->aside_until_us = 1; /* as good as gone while others have pods in place */
    count(f, 100, counts);
    assert_int_equal(counts[2], 100);
    set_away(f, 2, true);
    count(f, 10, counts);
    assert_int_equal(counts[1], 10); /* set aside is better than nothing, and weight 0 is nothing */
    set_away(f, 1, true);
    assert_true(ask(f, "m", (struct route_query){.avoid = NULL}) >= 0); /* its model says 503 */
    set_away(f, 0, false);
    set_away(f, 1, false);
    f->pods[1]->aside_until_us = 0;
    set_away(f, 2, false);
    count(f, 100, counts); /* nobody makes up for the time it was away */
    assert_in_range(counts[0], 69, 71);
    teardown(f);
}

static void test_avoid(void **state)
{
    struct fixture *f = setup();

    (void)state;
    route(f, "m");
    (void)rule(f, (const int64_t[]){99, 1}, 2);
    build(f);
    for (int i = 0; i < 5; i++)
        assert_int_equal(ask(f, "m", (struct route_query){.avoid = (void *[]){f->models[0]}, .n_avoid = 1}),
                         1);
    route(f, "three");
    (void)rule(f, (const int64_t[]){50, 30, 20}, 3);
    build(f);
    for (int i = 0; i < 5; i++)
        assert_int_equal(
            ask(f, "three",
                (struct route_query){.avoid = (void *[]){f->models[0], f->models[2]}, .n_avoid = 2}),
            1);
    teardown(f);
}

static void test_sessions_stay_with_their_target(void **state)
{
    struct fixture *f = setup();
    struct route_query known = {.session = SLICE("s")}, other = {.session = SLICE("t")};
    struct session_key key;
    int counts[2] = {0};

    (void)state;
    route(f, "m");
    (void)rule(f, (const int64_t[]){70, 30}, 2);
    build(f);
    session_lru_key(&key, known.session);
    boostq_mark(&f->models[1]->q, &key, f->pods[1]->id, 1);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ask(f, "m", known), 1);
        counts[ask(f, "m", other)]++;
    }
    assert_int_equal(counts[0], 70); /* and take nobody's turn */
    boostq_mark(&f->models[0]->q, &key, f->pods[0]->id, 2);
    assert_int_equal(ask(f, "m", known), 0); /* the later one */
    set_away(f, 0, true);
    assert_int_equal(ask(f, "m", known), 1);
    teardown(f);
}

/* The session that the route's sources find in a request. */
static void expect_session(const struct fixture *f, const char *fields, const char *query,
                           const char *session)
{
    struct route_query q = {.fields = slice_of(fields), .query = slice_of(query), .session = SLICE("header")};

    assert_non_null(route_decide(route_find(&f->t, SLICE("m")), &q, 0));
    if (!slice_eq(q.session, slice_of(session)))
        fail_msg("%s and ?%s: \"%.*s\"; expected \"%s\"", fields, query, SLICE_ARG(q.session), session);
}

static void test_sources(void **state)
{
    struct fixture *f = setup();

    (void)state;
    route(f, "m");
    (void)rule_to(f, 0);
    assert_true(route_spec_add_source(&f->specs[0], ROUTE_HEADER, SLICE("x-session")));
    assert_true(route_spec_add_source(&f->specs[0], ROUTE_COOKIE, SLICE("sid")));
    assert_true(route_spec_add_source(&f->specs[0], ROUTE_QUERY, SLICE("session")));
    build(f);
    assert_null(route_find(&f->t, SLICE("m"))->only);
    expect_session(f, "X-Session: a \r\nCookie: sid=b\r\n\r\n", "session=c", "a");
    expect_session(f, "X-Session: \r\nCookie: sid=b\r\n\r\n", "session=c", "b"); /* the first with a value */
    expect_session(f, "Cookie: x=1;  sid= b ; sid=d\r\n\r\n", "", "b");
    expect_session(f, "Cookie: SID=1; sidd=2; xsid=3; a=sid=4\r\n\r\n", "session=c", "c");
    expect_session(f, "Cookie: sid\r\n\r\n", "a=session=x&session=c&session=d", "c");
    expect_session(f, "Cookie: a=1\r\nX: y\r\nCOOKIE: b=2; sid=e\r\nCookie: sid=f\r\n\r\n", "session=c", "e");
    expect_session(f, "Cookie: sid=\r\n\r\n", "session=", "");
    expect_session(f, "\r\n", NULL, "");
    for (size_t i = 3; i < ROUTE_SOURCES_MAX; i++)
        assert_true(route_spec_add_source(&f->specs[0], ROUTE_QUERY, SLICE("q")));
    assert_false(route_spec_add_source(&f->specs[0], ROUTE_QUERY, SLICE("q")));
    teardown(f);
}

static void test_pins_choose_the_target_and_end(void **state)
{
    struct fixture *f = setup();
    struct route_query q = {.fields = SLICE("X: s\r\n\r\n")};
    int counts[2] = {0};

    (void)state;
    route(f, "m");
    (void)rule(f, (const int64_t[]){70, 30}, 2);
    assert_true(route_spec_add_source(&f->specs[0], ROUTE_HEADER, SLICE("x")));
    for (size_t i = 0; i < MODELS; i++)
        model_set_pins(f->models[i], 100, 10);
    build(f);
    model_pin(f->models[1], SLICE("s"), f->pods[1]->id, -50);
    for (int i = 0; i < 20; i++)
        assert_int_equal(ask(f, "m", q), 1);
    model_pin(f->models[1], SLICE("s"), f->pods[1]->id, -100);
    for (int i = 0; i < 10; i++)
        counts[ask(f, "m", q)]++;
    assert_int_equal(counts[0], 7);
    teardown(f);
}

static void test_new_table_goes_on_where_the_old_one_was(void **state)
{
    struct fixture *f = setup();
    int counts[2] = {0};

    (void)state;
    route(f, "m");
    (void)rule(f, (const int64_t[]){70, 30}, 2);
    build(f);
    for (int i = 0; i < 100; i++) {
        counts[ask(f, "m", (struct route_query){.avoid = NULL})]++;
        build(f);
    }
    assert_int_equal(counts[0], 70);
    route_table_free(&f->t);
    assert_null(route_find(&f->t, SLICE("m")));
    teardown(f);
}

static void test_limits(void **state)
{
    struct route_spec s = {0};
    struct route_rule_spec *r = NULL;

    (void)state;
    for (size_t i = 0; i < ROUTE_RULES_MAX; i++)
        assert_non_null(r = route_spec_add_rule(&s));
    assert_null(route_spec_add_rule(&s));
    for (size_t i = 0; i < ROUTE_HEADERS_MAX; i++)
        assert_non_null(route_rule_add_header(r, SLICE("h")));
    assert_null(route_rule_add_header(r, SLICE("h")));
    for (size_t i = 0; i < ROUTE_TARGETS_MAX; i++)
        assert_true(route_rule_add_target(r, SLICE("t"), 1));
    assert_false(route_rule_add_target(r, SLICE("t"), 1));
    for (size_t i = 0; i < ROUTE_ADAPTERS_MAX; i++)
        assert_true(route_spec_add_adapter(&s, SLICE("a")));
    assert_false(route_spec_add_adapter(&s, SLICE("a")));
    route_spec_free(&s);
}

static void test_hidden_headers(void **state)
{
    (void)state;
    assert_true(route_hides_header(SLICE("host")));
    assert_true(route_hides_header(SLICE("Proxy-Authorization")));
    assert_false(route_hides_header(SLICE("Content-Type")));
    assert_false(route_hides_header(SLICE("X-Session-ID")));
    assert_false(route_hides_header(SLICE("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_uri_and_model),
        cmocka_unit_test(test_oldest_route_first_and_models_before_adapters),
        cmocka_unit_test(test_specs_that_do_not_fit),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_no_weights_are_equal_ones),
        cmocka_unit_test(test_any_hundred),
        cmocka_unit_test(test_target_without_pods),
        cmocka_unit_test(test_avoid),
        cmocka_unit_test(test_sessions_stay_with_their_target),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_pins_choose_the_target_and_end),
        cmocka_unit_test(test_new_table_goes_on_where_the_old_one_was),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_hidden_headers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
