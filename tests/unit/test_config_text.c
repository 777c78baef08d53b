/* The printed texts: nothing is missing in them, and the router can read what it prints. */
#include "config_fixture.h"
#include "config_option.h"

#include <ctype.h>

static struct buf text_of(bool (*print)(struct buf *out))
{
    struct buf b;

    buf_init(&b, 1 << 20);
    assert_true(print(&b) && buf_append(&b, "", 1));
    return b;
}

static void expect_in(const struct buf *b, const char *part)
{
    if (strstr(buf_slice(b).p, part) == NULL)
        fail_msg("\"%s\" is missing", part);
}

static void test_help_has_every_option(void **state)
{
    struct buf b = text_of(config_help);
    char line[300];

    (void)state;
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        const struct config_option_row *row = config_option_row(o);

        (void)snprintf(line, sizeof(line), "  --%-30s %-30s %-12s %s", row->flag, row->env,
                       row->initial[0] == '\0' ? "-" : row->initial, row->help);
        expect_in(&b, line);
    }
    for (size_t i = 0; i < 7; i++)
        expect_in(&b, ((const char *[]){"--config ", "--check ", "--print-config ", "--print-example ",
                                        "--print-options-doc ", "--version ", "ROUTER_CONFIG"})[i]);
    expect_in(&b, "\nSession boost:\n");
    buf_free(&b);
}

static void test_options_doc_has_every_option(void **state)
{
    struct buf b = text_of(config_options_doc);
    char line[300];

    (void)state;
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        const struct config_option_row *row = config_option_row(o);

        assert_null(strchr(row->help, '|')); /* it would end the cell */
        (void)snprintf(line, sizeof(line), "| `%s` | `--%s` | `%s` |", row->env, row->flag, row->key);
        expect_in(&b, line);
    }
    buf_free(&b);
}

/* "; text" is a comment, ";key = value" and ";[section]" are samples. */
static void uncomment(struct buf *b)
{
    char *text = b->data + b->start;

    for (char *p = text; *p != '\0'; p++) {
        if (*p == ';' && (p == text || p[-1] == '\n') && (isalpha((unsigned char)p[1]) || p[1] == '['))
            *p = ' ';
    }
    for (char *p = text; *p != '\0'; p++) {
        if (*p == '\n' && p[1] == ' ' && (isalpha((unsigned char)p[2]) || p[2] == '['))
            memmove(p + 1, p + 2, strlen(p + 2) + 1);
    }
}

static void test_example_is_valid_as_it_is(void **state)
{
    struct buf b = text_of(config_example);
    struct fixture f = fixture_load(buf_slice(&b).p, NULL, NULL);

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.c->n_servers, 1);
    assert_int_equal(f.c->n_routes, 1);
    assert_int_equal(f.c->servers[0].n_pods, 2);
    fixture_free(&f);
    buf_free(&b);
}

static void test_example_is_valid_without_comments(void **state)
{
    struct buf b = text_of(config_example);
    struct config *defaults = mem_zalloc(sizeof(*defaults));
    struct fixture f;

    (void)state;
    uncomment(&b);
    config_option_set_defaults(defaults);
    f = fixture_load(buf_slice(&b).p, NULL, NULL);
    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.c->n_servers, 4);
    assert_int_equal(f.c->n_routes, 4);
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        assert_int_equal(f.c->origins[o], CONFIG_INI); /* every option is there */
        assert_true(config_option_same(f.c, defaults, o));
    }
    fixture_free(&f);
    config_free(defaults);
    buf_free(&b);
}

static struct buf print(const struct config *c)
{
    struct buf b;

    buf_init(&b, 1 << 20);
    assert_true(config_print(c, &b) && buf_append(&b, "", 1));
    return b;
}

static void test_print_shows_values_and_origins(void **state)
{
    struct fixture f =
        fixture_load("[router]\nlog_level = warn\n[model-server s]\ndns = h:1\nengine = none\nmodel = q\n"
                     "timeout = 90s\n[model-route r]\ntarget = s\n",
                     LIST("--port=1"), LIST("SESSION_BOOST_TIMEOUT=0", "ROUTER_BACKENDS=m=h:1,h:2"));
    struct buf b = print(f.c);

    (void)state;
    fixture_expect_count(&f, 0, 0);
    expect_in(&b, "port = 1                                           ; flag\n");
    expect_in(&b, "session_boost_timeout = 0s                         ; environment\n");
    expect_in(&b, "log_level = warn                                   ; INI file\n");
    expect_in(&b, "max_header_bytes = 64KiB                           ; default\n");
    expect_in(&b, "\n[model-server s]\ndns = h:1\nengine = none\nmodel = q\ntimeout = 1m30s\n");
    expect_in(&b, "\n[model-route r]\nmodel = r\ntarget = s\n");
    expect_in(&b, "\n; [model-server m]\n; pods = h:1,\n;     h:2\n; engine = vllm\n");
    buf_free(&b);
    fixture_free(&f);
}

static void test_print_can_be_read_again(void **state)
{
    struct fixture f = fixture_load(
        "[model-server s]\npods = a:1, b:2\nengine = sglang\n[model-server t]\npods = c:1\n"
        "[model-route r]\ntarget = s:3, t:0\nlora = x, y\nsession_sticky = header:a, query:b\nsticky_ttl = "
        "90s\nsticky_mode = wait:2s\nscore = prefix:2, kv-usage:1\nmax_waiting = 3\n[model-route r/rule "
        "one]\n"
        "header = a exact:b c\nheader = d regex:^e$\nuri = prefix:/v1\nmodel = x\ntarget = t, s\n",
        LIST("--session-boost-header=a, b", "--enable-session-boost"),
        LIST("ROUTER_BACKENDS=m=h:1,h:2;n=h:3"));
    struct buf once = print(f.c), twice;
    struct fixture again = fixture_load(buf_slice(&once).p, NULL, NULL);

    (void)state;
    fixture_expect_count(&again, 0, 0);
    twice = print(again.c);
    assert_int_equal(f.c->n_servers, again.c->n_servers);
    assert_string_equal(strstr(buf_slice(&once).p, "\n\n"), strstr(buf_slice(&twice).p, "\n\n"));
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++)
        assert_true(config_option_same(f.c, again.c, o));
    buf_free(&once);
    buf_free(&twice);
    fixture_free(&f);
    fixture_free(&again);
}

static bool print_to(int which, const struct config *c, struct buf *b)
{
    return which == 0   ? config_help(b)
           : which == 1 ? config_example(b)
           : which == 2 ? config_options_doc(b)
                        : config_print(c, b);
}

static void test_full_buffer(void **state)
{
    struct fixture f = fixture_load(
        "[model-server s]\npods = h:1\nmodel = x\ntimeout = 1s\n[model-route r]\ntarget = s\n", NULL, NULL);

    (void)state;
    for (int which = 0; which < 4; which++) {
        size_t whole;
        struct buf b;

        buf_init(&b, 1 << 20);
        assert_true(print_to(which, f.c, &b));
        whole = b.len;
        buf_free(&b);
        for (size_t max = 0; max < whole; max += 1 + max / 50) {
            buf_init(&b, max);
            assert_false(print_to(which, f.c, &b));
            buf_free(&b);
        }
    }
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help_has_every_option),
        cmocka_unit_test(test_options_doc_has_every_option),
        cmocka_unit_test(test_example_is_valid_as_it_is),
        cmocka_unit_test(test_example_is_valid_without_comments),
        cmocka_unit_test(test_print_shows_values_and_origins),
        cmocka_unit_test(test_print_can_be_read_again),
        cmocka_unit_test(test_full_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
