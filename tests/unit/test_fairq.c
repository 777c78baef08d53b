/* User fairness: the order, the window, the two limits; and the scenarios in which the Go router's queue (Q)
 * and token tracker (T) are tested, by our rules: Q1 Q2 test_empty          Q3 test_least_used_first       Q4
 * test_inside_a_user_by_arrival Q8 Q18 test_qps           Q17 Q19 Q22 test_concurrent    Q20 Q23
 * test_rank_follows_usage Q21 test_a_drifts_and_c_goes    Q24 test_request_weight   Q25
 * test_later_push_is_admitted Q6 Q11 test_who_leaves_is_skipped   Q5 Q7 Q9 to Q16:
 * tests/e2e/test_go_scenarios.py T1 T13 test_window_drops_whole_buckets   T2 T3 test_config.c   T4
 * test_zero_and_large   T5 T6 T8 T16 test_weights T7 test_two_in_one_second   T10 test_users_are_apart   T12
 * T15 test_updates_add_up   T14 test_usage.c T9 T11 T17 test_many_updates, and test_queue_random.c for what
 * comes in any order: nothing runs at one time here
 */
#include "fairq.h"
#include "mem.h"

#include "test.h"

#define WINDOW_US (300 * US_PER_S)
#define MINUTE_US (60 * US_PER_S)

struct fixture {
    struct fairq *f;
    struct fairq_line line, other;
    struct fairq_item items[16];
    struct fairq_run runs[16];
    uint64_t arrivals;
    int64_t now_us;
};

static const struct fairq_rules usual = {.window_us = WINDOW_US,
                                         .input_weight = 1,
                                         .output_weight = 2,
                                         .token_weight = 1,
                                         .max_users = 100,
                                         .max_qps = 100};

static void start(struct fixture *t, const struct fairq_rules *rules)
{
    *t = (struct fixture){.f = fairq_new(rules), .now_us = 1000 * US_PER_S};
    fairq_line_init(&t->line, t->f);
    fairq_line_init(&t->other, t->f);
}

static void end(struct fixture *t)
{
    for (size_t i = 0; i < ARRAY_LEN(t->items); i++) {
        if (t->items[i].place != NULL)
            fairq_leave(&t->items[i]);
        fairq_end(t->f, &t->runs[i], 0, 0, t->now_us);
    }
    fairq_line_free(&t->line);
    fairq_line_free(&t->other);
    fairq_free(t->f);
}

static void push_into(struct fixture *t, struct fairq_line *line, size_t i, const char *user)
{
    t->items[i].user = slice_of(user);
    fairq_enter(line, &t->items[i], ++t->arrivals);
}

static void push(struct fixture *t, size_t i, const char *user)
{
    push_into(t, &t->line, i, user);
}

/* Takes out who goes first; 99: nobody. */
static size_t pop_from(struct fixture *t, struct fairq_line *line)
{
    struct fairq_item *item;

    fairq_advance(t->f, t->now_us);
    item = fairq_head(line);
    if (item == NULL)
        return 99;
    fairq_leave(item);
    return (size_t)(item - t->items);
}

static size_t pop(struct fixture *t)
{
    return pop_from(t, &t->line);
}

static size_t pop_and_start(struct fixture *t)
{
    size_t i = pop(t);

    assert_true(i != 99);
    fairq_start(t->f, &t->runs[i], &t->items[i], t->now_us);
    return i;
}

/* The user has had so much, by a request that is over. */
static void use(struct fixture *t, const char *user, int64_t input, int64_t output)
{
    struct fairq_item item = {.user = slice_of(user)};
    struct fairq_run run = {NULL, 0};

    fairq_start(t->f, &run, &item, t->now_us);
    fairq_end(t->f, &run, input, output, t->now_us);
}

struct find {
    struct slice name;
    struct fairq_view found;
    bool any;
};

static void find_view(const struct fairq_view *v, void *arg)
{
    struct find *find = arg;

    if (!slice_eq(v->name, find->name))
        return;
    find->found = *v;
    find->any = true;
}

static struct fairq_view view(struct fixture *t, const char *user)
{
    struct find find = {.name = slice_of(user)};

    fairq_advance(t->f, t->now_us);
    fairq_each(t->f, find_view, &find);
    return find.found;
}

static void expect_priority(struct fixture *t, const char *user, double priority)
{
    const struct fairq_view v = view(t, user);

    assert_true(v.priority <= priority && v.priority >= priority);
}

/* ---- the order ---- */

static void test_empty(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    assert_null(fairq_head(&t.line));
    assert_int_equal(t.f->n_users, 0);
    push(&t, 3, "a");
    assert_int_equal(pop(&t), 3);
    assert_int_equal(pop(&t), 99);
    assert_int_equal(t.f->n_users, 0);
    end(&t);
}

static void test_least_used_first(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "c", 300, 0);
    use(&t, "b", 200, 0);
    use(&t, "a", 100, 0);
    push(&t, 3, "c");
    push(&t, 2, "b");
    push(&t, 1, "a");
    push(&t, 0, "new");
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pop(&t), i);
    end(&t);
}

static void test_inside_a_user_by_arrival(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "b", 1, 0);
    push(&t, 0, "a");
    push(&t, 5, "b");
    push(&t, 1, "a");
    push(&t, 2, "a");
    push(&t, 6, "b");
    assert_int_equal(pop(&t), 0);
    assert_int_equal(pop(&t), 1);
    assert_int_equal(pop(&t), 2);
    assert_int_equal(pop(&t), 5);
    assert_int_equal(pop(&t), 6);
    end(&t);
}

static void test_equals_by_arrival_and_anonymous_last(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    push(&t, 0, "");
    push(&t, 1, "a");
    push(&t, 2, "b");
    push(&t, 3, "a");
    push(&t, 4, "");
    push(&t, 5, "c");
    assert_int_equal(pop(&t), 1);
    assert_int_equal(pop(&t), 2);
    assert_int_equal(pop(&t), 3);
    assert_int_equal(pop(&t), 5);
    assert_int_equal(pop(&t), 0);
    assert_int_equal(pop(&t), 4);
    /* Last among equals only. */
    use(&t, "a", 10, 0);
    push(&t, 1, "a");
    push(&t, 0, NULL);
    assert_int_equal(pop(&t), 0);
    use(&t, "", 11, 0);
    push(&t, 0, NULL);
    assert_int_equal(pop(&t), 1);
    end(&t);
}

static void test_before(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "b", 5, 0);
    push(&t, 0, "b");
    push(&t, 1, "a");
    push(&t, 2, "a");
    push(&t, 3, "");
    assert_true(fairq_before(&t.items[1], &t.items[2]));
    assert_true(fairq_before(&t.items[2], &t.items[0]));
    assert_true(fairq_before(&t.items[2], &t.items[3]));
    assert_true(fairq_before(&t.items[3], &t.items[0]));
    assert_false(fairq_before(&t.items[0], &t.items[3]));
    end(&t);
}

/* Their usage is swapped while both wait. */
static void test_rank_follows_usage(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "low", 10, 0);
    use(&t, "high", 100, 0);
    push(&t, 0, "low");
    push(&t, 1, "high");
    assert_ptr_equal(fairq_head(&t.line), &t.items[0]);
    use(&t, "low", 1000, 0);
    assert_int_equal(pop(&t), 1);
    assert_int_equal(pop(&t), 0);
    assert_true(t.f->rank_changes > 0);
    end(&t);
}

static void test_a_drifts_and_c_goes(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "a", 1, 0);
    use(&t, "b", 10, 0);
    use(&t, "c", 20, 0);
    push(&t, 0, "a");
    push(&t, 1, "b");
    push(&t, 2, "c");
    use(&t, "a", 100, 0);
    use(&t, "b", 90, 0);
    assert_int_equal(pop(&t), 2);
    assert_int_equal(pop(&t), 1);
    end(&t);
}

static void test_request_weight(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    rules.request_weight = 10;
    start(&t, &rules);
    use(&t, "b", 20, 0);
    push(&t, 0, "a");
    push(&t, 1, "b");
    for (int i = 0; i < 5; i++)
        use(&t, "a", 1, 0);
    assert_int_equal(pop(&t), 1);
    expect_priority(&t, "a", 55);
    expect_priority(&t, "b", 30);
    end(&t);
}

/* A burst of one user does not go through before its first answer. */
static void test_running_requests_count(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    for (size_t i = 0; i < 4; i++) {
        t.items[i].input_tokens = 50;
        push(&t, i, "burst");
    }
    assert_int_equal(pop_and_start(&t), 0);
    expect_priority(&t, "burst", 50);
    push(&t, 9, "other");
    assert_int_equal(pop_and_start(&t), 9);
    assert_int_equal(pop_and_start(&t), 1);
    expect_priority(&t, "burst", 100);
    /* The estimate makes place for what it was. */
    fairq_end(t.f, &t.runs[0], 60, 100, t.now_us);
    expect_priority(&t, "burst", 310);
    /* One that came to nothing leaves nothing. */
    fairq_end(t.f, &t.runs[1], 0, 0, t.now_us);
    expect_priority(&t, "burst", 260);
    assert_int_equal(view(&t, "burst").requests, 1);
    assert_int_equal(t.f->n_running, 1);
    end(&t);
}

static void test_changed_weights(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "in", 100, 0);
    use(&t, "out", 0, 60);
    push(&t, 0, "in");
    push(&t, 1, "out");
    assert_ptr_equal(fairq_head(&t.line), &t.items[0]);
    rules.output_weight = 1;
    fairq_set_rules(t.f, &rules);
    assert_ptr_equal(fairq_head(&t.line), &t.items[1]);
    rules.token_weight = 0;
    fairq_set_rules(t.f, &rules);
    assert_int_equal(pop(&t), 0);
    end(&t);
}

static void test_who_leaves_is_skipped(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "b", 10, 0);
    push(&t, 0, "a");
    push(&t, 1, "b");
    assert_ptr_equal(fairq_head(&t.line), &t.items[0]);
    fairq_leave(&t.items[0]);
    assert_int_equal(pop(&t), 1);
    assert_int_equal(pop(&t), 99);
    end(&t);
}

/* ---- the window ---- */

/* Tokens 1 to 4, a minute apart: when the first two are out of the window, 7 tokens of two requests are left.
 */
static void test_window_drops_whole_buckets(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    push(&t, 0, "a"); /* so that the user stays known */
    for (int64_t n = 1; n <= 4; n++) {
        use(&t, "a", n, 0);
        t.now_us += MINUTE_US;
    }
    t.now_us += WINDOW_US - 2 * MINUTE_US;
    fairq_advance(t.f, t.now_us);
    assert_int_equal(view(&t, "a").input_tokens, 7);
    assert_int_equal(view(&t, "a").requests, 2);
    expect_priority(&t, "a", 7);
    t.now_us += WINDOW_US;
    fairq_advance(t.f, t.now_us);
    assert_int_equal(view(&t, "a").input_tokens, 0);
    assert_int_equal(view(&t, "a").requests, 0);
    end(&t);
}

static void test_zero_and_large(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "none", 0, 0); /* it counts as if it had not been */
    assert_int_equal(t.f->n_users, 0);
    for (int i = 0; i < 100; i++)
        use(&t, "huge", INT64_C(1000000000000000), INT64_C(1000000000000000));
    expect_priority(&t, "huge", 3e17);
    use(&t, "small", 1, 0);
    push(&t, 0, "huge");
    push(&t, 1, "small");
    assert_int_equal(pop(&t), 1);
    end(&t);
}

static void test_two_in_one_second(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "a", 50, 25);
    t.now_us += 300 * US_PER_MS;
    use(&t, "a", 30, 15);
    expect_priority(&t, "a", 160);
    end(&t);
}

static void test_weights(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "a", 100, 50);
    expect_priority(&t, "a", 200);
    expect_priority(&t, "unknown", 0);
    use(&t, "a", 0, 0);
    expect_priority(&t, "a", 200);
    assert_int_equal(view(&t, "a").requests, 1);
    rules.input_weight = 1.5;
    rules.output_weight = 3;
    fairq_set_rules(t.f, &rules);
    expect_priority(&t, "a", 300);
    end(&t);
}

static void test_updates_add_up(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "a", 100, 50);
    t.now_us += 1100 * US_PER_MS;
    use(&t, "a", 100, 30);
    expect_priority(&t, "a", 360);
    t.now_us += 1100 * US_PER_MS;
    use(&t, "a", 100, 10);
    expect_priority(&t, "a", 480);
    assert_int_equal(view(&t, "a").requests, 3);
    end(&t);
}

static void test_window_slides(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "a", 100, 0);
    t.now_us += MINUTE_US;
    use(&t, "a", 10, 0);
    push(&t, 0, "a");
    push(&t, 1, "b");
    use(&t, "b", 50, 0);
    t.now_us += WINDOW_US - MINUTE_US - 1;
    expect_priority(&t, "a", 110);
    assert_ptr_equal(fairq_head(&t.line), &t.items[1]);
    t.now_us += 5 * US_PER_S + 1; /* a bucket is a 60th of the window */
    expect_priority(&t, "a", 10);
    assert_ptr_equal(fairq_head(&t.line), &t.items[0]);
    t.now_us += 2 * WINDOW_US;
    expect_priority(&t, "a", 0);
    assert_int_equal(pop(&t), 0);
    assert_int_equal(pop(&t), 1);
    assert_int_equal(t.f->n_users, 0);
    end(&t);
}

static void test_many_updates(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    for (int i = 0; i < 1000; i++)
        use(&t, "a", 1, 0);
    expect_priority(&t, "a", 1000);
    assert_int_equal(view(&t, "a").requests, 1000);
    end(&t);
}

static void test_users_are_apart(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    use(&t, "a", 1, 0);
    use(&t, "b", 2, 0);
    use(&t, "", 3, 0);
    expect_priority(&t, "a", 1);
    expect_priority(&t, "b", 2);
    expect_priority(&t, "", 3);
    end(&t);
}

static void test_bounded(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;
    char name[16];

    (void)state;
    rules.max_users = 3;
    start(&t, &rules);
    push(&t, 0, "waits");
    push(&t, 1, "runs");
    fairq_leave(&t.items[1]);
    fairq_start(t.f, &t.runs[1], &t.items[1], t.now_us);
    use(&t, "waits", 7, 0);
    for (int i = 0; i < 100; i++) {
        name[0] = (char)('A' + i % 26);
        name[1] = (char)('a' + i / 26);
        name[2] = '\0';
        use(&t, name, 5, 0);
        assert_int_equal(t.f->n_users, 3);
    }
    assert_int_equal(t.f->evictions, 99);
    expect_priority(&t, name, 5);
    expect_priority(&t, "waits", 7);
    rules.max_users = 1;
    fairq_set_rules(t.f, &rules);
    expect_priority(&t, name, 0);
    expect_priority(&t, "waits", 7);
    end(&t);
}

static void test_least_recently_used_is_forgotten(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    rules.max_users = 2;
    start(&t, &rules);
    use(&t, "a", 1, 0);
    use(&t, "b", 1, 0);
    use(&t, "a", 1, 0);
    use(&t, "c", 1, 0);
    expect_priority(&t, "a", 2);
    expect_priority(&t, "b", 0);
    expect_priority(&t, "c", 1);
    end(&t);
}

static void test_long_names(void **state)
{
    struct fixture t;
    char a[1000], b[1000];

    (void)state;
    memset(a, 'x', sizeof(a));
    memcpy(b, a, sizeof(b));
    a[sizeof(a) - 1] = b[sizeof(b) - 1] = '\0';
    b[sizeof(b) - 2] = 'y';
    start(&t, &usual);
    use(&t, a, 5, 0);
    push(&t, 0, a);
    push(&t, 1, b);
    assert_int_equal(pop(&t), 1);
    a[FAIRQ_NAME_MAX] = '\0';
    assert_int_equal(view(&t, a).waiting, 1);
    end(&t);
}

/* ---- the limits ---- */

static void test_concurrent(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    rules.max_concurrent = 2;
    start(&t, &rules);
    for (size_t i = 0; i < 4; i++)
        push(&t, i, "a");
    assert_int_equal(pop_and_start(&t), 0);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_OPEN);
    assert_int_equal(pop_and_start(&t), 1);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_MAX_CONCURRENT);
    assert_int_equal(fairq_next_due_us(t.f, t.now_us), INT64_MAX);
    fairq_end(t.f, &t.runs[0], 1, 1, t.now_us);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_OPEN);
    assert_int_equal(pop_and_start(&t), 2);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_MAX_CONCURRENT);
    end(&t);
}

static void test_later_push_is_admitted(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    rules.max_concurrent = 1;
    start(&t, &rules);
    assert_int_equal(pop(&t), 99);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_OPEN);
    t.now_us += MINUTE_US;
    push(&t, 0, "a");
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_OPEN);
    assert_int_equal(pop_and_start(&t), 0);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_MAX_CONCURRENT);
    end(&t);
}

static void test_qps(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    rules.max_qps = 20;
    start(&t, &rules);
    for (size_t i = 0; i < 4; i++)
        push(&t, i, "a");
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_OPEN);
    (void)pop_and_start(&t);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_MAX_QPS);
    assert_int_equal(fairq_next_due_us(t.f, t.now_us), t.now_us + 50 * US_PER_MS);
    t.now_us += 50 * US_PER_MS - 1;
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_MAX_QPS);
    t.now_us += 1;
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_OPEN);
    assert_int_equal(fairq_next_due_us(t.f, t.now_us), INT64_MAX);
    end(&t);
}

/* A loop that wakes up a little late keeps the rate; a pause is not made up for. */
static void test_qps_is_even(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;
    int n = 0;

    (void)state;
    rules.max_qps = 100;
    start(&t, &rules);
    for (int64_t end_us = t.now_us + US_PER_S; t.now_us < end_us; t.now_us += 700) {
        struct fairq_item item = {.user = SLICE("a")};
        struct fairq_run run = {NULL, 0};

        if (fairq_gate(t.f, t.now_us) != FAIRQ_OPEN)
            continue;
        fairq_start(t.f, &run, &item, t.now_us);
        fairq_end(t.f, &run, 0, 0, t.now_us);
        n++;
    }
    assert_in_range(n, 99, 101);
    t.now_us += 60 * US_PER_S;
    for (n = 0; fairq_gate(t.f, t.now_us) == FAIRQ_OPEN; n++) {
        struct fairq_item item = {.user = SLICE("a")};
        struct fairq_run run = {NULL, 0};

        fairq_start(t.f, &run, &item, t.now_us);
        fairq_end(t.f, &run, 0, 0, t.now_us);
    }
    assert_int_equal(n, 1);
    end(&t);
}

/* Its pod could not be reached: it goes to the next one in the turn that it has. */
static void test_a_request_takes_one_turn(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;
    size_t i;

    (void)state;
    rules.max_qps = 20;
    start(&t, &rules);
    push(&t, 0, "a");
    i = pop_and_start(&t);
    for (int attempt = 0; attempt < 3; attempt++) {
        fairq_end(t.f, &t.runs[i], 0, 0, t.now_us);
        fairq_start(t.f, &t.runs[i], &t.items[i], t.now_us);
        assert_int_equal(fairq_next_due_us(t.f, t.now_us), 1000 * US_PER_S + 50 * US_PER_MS);
        t.now_us += US_PER_MS;
    }
    t.now_us += US_PER_S;
    fairq_end(t.f, &t.runs[i], 0, 0, t.now_us);
    fairq_start(t.f, &t.runs[i], &t.items[i], t.now_us);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_OPEN);
    end(&t);
}

/* ---- several lines ---- */

static void test_one_window_for_all_lines(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    push(&t, 0, "heavy");
    assert_int_equal(pop_and_start(&t), 0);
    fairq_end(t.f, &t.runs[0], 100, 0, t.now_us);
    push_into(&t, &t.other, 1, "heavy");
    push_into(&t, &t.other, 2, "light");
    push(&t, 3, "heavy");
    push(&t, 4, "light");
    assert_int_equal(t.f->n_users, 2);
    assert_int_equal(view(&t, "heavy").waiting, 2);
    expect_priority(&t, "heavy", 100);
    assert_int_equal(pop_from(&t, &t.other), 2);
    assert_int_equal(pop_from(&t, &t.other), 1);
    assert_int_equal(pop(&t), 4);
    assert_int_equal(pop(&t), 3);
    end(&t);
}

/* Both wait in both lines while the order between them changes. */
static void test_rank_changes_in_every_line(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    start(&t, &usual);
    push(&t, 0, "a");
    push(&t, 1, "b");
    push_into(&t, &t.other, 2, "a");
    push_into(&t, &t.other, 3, "b");
    use(&t, "b", 0, 4);
    use(&t, "a", 5, 0);
    assert_int_equal(t.f->rank_changes, 2); /* not once in each line */
    assert_ptr_equal(fairq_head(&t.line), &t.items[0]);
    assert_ptr_equal(fairq_head(&t.other), &t.items[2]);
    rules.output_weight = 1;
    fairq_set_rules(t.f, &rules);
    assert_ptr_equal(fairq_head(&t.line), &t.items[1]);
    assert_ptr_equal(fairq_head(&t.other), &t.items[3]);
    end(&t);
}

static void expect_before(const struct fixture *t, size_t a, size_t b)
{
    assert_true(fairq_before(&t->items[a], &t->items[b]));
    assert_false(fairq_before(&t->items[b], &t->items[a]));
}

/* Of equals the oldest request of the user in its line counts: no three are each before the next one. */
static void test_order_between_lines(void **state)
{
    struct fixture t;

    (void)state;
    start(&t, &usual);
    push(&t, 0, "a");
    push(&t, 1, "b");
    push_into(&t, &t.other, 2, "a");
    push(&t, 3, "a");
    push_into(&t, &t.other, 4, "c");
    push(&t, 5, "");
    for (size_t i = 0; i < 5; i++)
        expect_before(&t, i, 5);
    expect_before(&t, 0, 3);
    expect_before(&t, 3, 1);
    expect_before(&t, 1, 2);
    expect_before(&t, 3, 2);
    expect_before(&t, 2, 4);
    use(&t, "a", 1, 0);
    expect_before(&t, 4, 0);
    expect_before(&t, 1, 2);
    expect_before(&t, 5, 0);
    end(&t);
}

static void test_who_waits_elsewhere_is_remembered(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    rules.max_users = 1;
    start(&t, &rules);
    push(&t, 0, "a");
    push_into(&t, &t.other, 1, "a");
    use(&t, "a", 9, 0);
    assert_int_equal(pop(&t), 0);
    use(&t, "b", 1, 0);
    assert_int_equal(t.f->evictions, 1);
    expect_priority(&t, "a", 9);
    expect_priority(&t, "b", 0);
    end(&t);
}

static void test_limits_are_of_all_lines(void **state)
{
    struct fairq_rules rules = usual;
    struct fixture t;

    (void)state;
    rules.max_concurrent = 2;
    start(&t, &rules);
    push(&t, 0, "a");
    push_into(&t, &t.other, 1, "b");
    assert_int_equal(pop_and_start(&t), 0);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_OPEN);
    assert_int_equal(pop_from(&t, &t.other), 1);
    fairq_start(t.f, &t.runs[1], &t.items[1], t.now_us);
    assert_int_equal(fairq_gate(t.f, t.now_us), FAIRQ_MAX_CONCURRENT);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_least_used_first),
        cmocka_unit_test(test_inside_a_user_by_arrival),
        cmocka_unit_test(test_equals_by_arrival_and_anonymous_last),
        cmocka_unit_test(test_before),
        cmocka_unit_test(test_rank_follows_usage),
        cmocka_unit_test(test_a_drifts_and_c_goes),
        cmocka_unit_test(test_request_weight),
        cmocka_unit_test(test_running_requests_count),
        cmocka_unit_test(test_changed_weights),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_updates_add_up),
        cmocka_unit_test(test_window_slides),
        cmocka_unit_test(test_many_updates),
        cmocka_unit_test(test_users_are_apart),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_least_recently_used_is_forgotten),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_concurrent),
        cmocka_unit_test(test_who_leaves_is_skipped),
        cmocka_unit_test(test_window_drops_whole_buckets),
        cmocka_unit_test(test_zero_and_large),
        cmocka_unit_test(test_two_in_one_second),
        cmocka_unit_test(test_later_push_is_admitted),
        cmocka_unit_test(test_qps),
        cmocka_unit_test(test_qps_is_even),
        cmocka_unit_test(test_a_request_takes_one_turn),
        cmocka_unit_test(test_one_window_for_all_lines),
        cmocka_unit_test(test_rank_changes_in_every_line),
        cmocka_unit_test(test_order_between_lines),
        cmocka_unit_test(test_who_waits_elsewhere_is_remembered),
        cmocka_unit_test(test_limits_are_of_all_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
