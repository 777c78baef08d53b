/* The INI text: lines of any length, comments, sections, keys, and every error with its line. */
#include "config_fixture.h"
#include "config_ini.h"
#include "config_option.h"
#include "config_routes.h"

static const char ROUTE[] = "[model-route r]\ntarget = s\n";

/* Parses the text alone, as the file "f". */
static struct fixture parse_bytes(struct slice text)
{
    struct fixture f = {.c = mem_zalloc(sizeof(*f.c))};

    config_option_set_defaults(f.c);
    config_ini_parse(f.c, text, "f", &f.report);
    config_routes_resolve(f.c, "f", &f.report);
    return f;
}

static struct fixture parse(const char *text)
{
    return parse_bytes(slice_of(text));
}

/* The text has this problem and no other. */
static void refuse(const char *text, const char *problem)
{
    struct fixture f = parse(text);

    fixture_expect(&f, true, problem);
    fixture_expect_count(&f, 1, 1);
    fixture_free(&f);
}

/* ---- what is accepted ---- */

static void check_whole(const char *text)
{
    struct fixture f = parse(text);
    const struct config_server *s;

    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.c->port, 81);
    assert_int_equal(f.c->n_servers, 1);
    s = &f.c->servers[0];
    assert_string_equal(s->name, "a/B:c 1");
    assert_int_equal(s->n_pods, 3);
    assert_string_equal(s->pods[0], "h:1");
    assert_string_equal(s->pods[1], "[::1]:2");
    assert_string_equal(s->pods[2], "[::2]:3");
    assert_int_equal(s->engine, PROMTEXT_SGLANG);
    assert_string_equal(s->model, "org/x = y");
    assert_int_equal(s->timeout_us, 90 * US_PER_S);
    assert_int_equal(f.c->n_routes, 1);
    assert_string_equal(f.c->routes[0].model, "public");
    assert_string_equal(f.c->routes[0].rules[0].targets[0].server, f.c->servers[0].name);
    fixture_free(&f);
}

static void test_spellings(void **state)
{
    (void)state;
    check_whole("[router]\nport=81\n[model-server a/B:c "
                "1]\npods=h:1,[::1]:2,[::2]:3\nengine=sglang\nmodel=org/x = y\n"
                "timeout=1m30s\n[model-route r]\nmodel=public\ntarget=a/B:c 1");
    check_whole("\xef\xbb\xbf; c\r\n[router]\r\nport : 81\t# c ; d\r\n\r\n[ model-server\t a/B:c 1 ] ; "
                "c\r\npods = h:1\r\n"
                "   [::1]:2, ; c\r\n# c\r\n\r\n\t[::2]:3,\r\nengine\t=\tsglang\r\nmodel =  org/x = y "
                ";c\r\ntimeout = 1m30s\r\n"
                "[model-route r]\r\ntarget = a/B:c 1\r\nmodel = public\r\n");
    check_whole("\n  # c\n  [router]\n  port = 81\n[model-route r]\ntarget = a/B:c 1\nmodel = "
                "public\n[model-server a/B:c 1]\n"
                "pods =\n  h:1 [::1]:2\n  [::2]:3\nengine = sglang\nmodel = org/x = y\ntimeout = 1m30s\n");
}

static void test_defaults_of_sections(void **state)
{
    struct fixture f = parse("[model-server s]\ndns = Pods.NS:8000\n[model-route r]\ntarget = s\n");

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_string_equal(f.c->servers[0].dns, "pods.ns:8000");
    assert_int_equal(f.c->servers[0].n_pods, 0);
    assert_int_equal(f.c->servers[0].engine, PROMTEXT_VLLM);
    assert_null(f.c->servers[0].model);
    assert_int_equal(f.c->servers[0].timeout_us, 0);
    assert_int_equal(f.c->servers[0].line, 1);
    assert_string_equal(f.c->routes[0].model, "r");
    fixture_free(&f);
}

static void test_options_that_are_lists_go_on(void **state)
{
    struct fixture f =
        parse("[router]\ncors_allow_origins = http://a,\n    http://b\nbackends = m=h:1,\n\th:2\n"
              "session_boost_header = X-A,\n  X-B\n");

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_string_equal(f.c->cors_allow_origins, "http://a,http://b");
    assert_string_equal(f.c->backends, "m=h:1,h:2");
    assert_string_equal(f.c->session_boost_header, "X-A,X-B");
    fixture_free(&f);
}

static void test_comments_inside_values(void **state)
{
    struct fixture f = parse("[router]\nbackends = m=h:1;n=h:2 ; c\naccess_log_output = /tmp/a;b#c\n");

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_string_equal(f.c->backends, "m=h:1;n=h:2");
    assert_string_equal(f.c->access_log_output, "/tmp/a;b#c");
    fixture_free(&f);
}

/* ---- long lines ---- */

/* A list of n pods, each `width` bytes or a little more, separated by `separator`. */
static void put_pods(struct buf *b, size_t n, size_t width, const char *separator)
{
    for (size_t i = 0; i < n; i++)
        assert_true(buf_printf(b, "%spod-%0*zu:%zu", i == 0 ? "" : separator, (int)width, i, i + 1));
}

static void check_long(size_t n, size_t width, const char *separator)
{
    struct fixture f;
    struct buf b;
    char last[120];

    buf_init(&b, 1 << 20);
    assert_true(buf_printf(&b, "[router]\nbackends = m="));
    put_pods(&b, n, width, separator);
    assert_true(buf_printf(&b, " ; %0300d\n\n[model-server s]\npods =", 1));
    put_pods(&b, n, width, separator);
    assert_true(buf_printf(&b, "\nengine = bad\n%s", ROUTE));
    assert_true(n < 100 || b.len > 10000);
    f = parse_bytes(buf_slice(&b));
    fixture_expect_count(&f, 1, 1);
    fixture_expect(&f, true, "f:6: engine = bad"); /* lines are counted as they stand in the file */
    assert_int_equal(f.c->servers[0].n_pods, n);
    (void)snprintf(last, sizeof(last), "pod-%0*zu:%zu", (int)width, n - 1, n);
    assert_string_equal(f.c->servers[0].pods[n - 1], last);
    config_routes_add_backends(f.c, slice_of(f.c->backends), &f.report);
    assert_int_equal(f.c->servers[1].n_pods, n);
    assert_string_equal(f.c->servers[1].pods[n - 1], last);
    fixture_free(&f);
    buf_free(&b);
}

static void test_long_lines(void **state)
{
    (void)state;
    for (size_t width = 1; width < 60; width += 3) {
        check_long(width < 20 ? 1500 : 300, width, ",");
        check_long(width < 20 ? 1500 : 300, width, " , ");
        check_long(width < 20 ? 1500 : 300, width, " \t");
        check_long(5, width, ",   ");
    }
}

static void test_long_line_that_looks_like_something_else_when_cut(void **state)
{
    char text[2048];
    struct fixture f;

    (void)state;
    for (size_t pad = 100; pad < 250; pad++) {
        (void)snprintf(text, sizeof(text), "[router]\nbackends = m=h:1,%*s[::1]:2,;n=h:%03zu ,%*s#=h:4\n",
                       (int)pad, "", pad, (int)pad, "");
        f = parse(text);
        fixture_expect_count(&f, 0, 0);
        config_routes_add_backends(f.c, slice_of(f.c->backends), &f.report);
        assert_int_equal(f.c->n_servers, 2); /* " #" begins a comment, ",;" does not */
        assert_int_equal(f.c->servers[0].n_pods, 2);
        assert_int_equal(f.c->servers[1].n_pods, 1);
        fixture_free(&f);
    }
}

static void test_long_lines_that_cannot_be_cut(void **state)
{
    char word[600], text[2048];
    struct fixture f;

    (void)state;
    memset(word, 'x', sizeof(word));
    word[599] = '\0';
    (void)snprintf(text, sizeof(text), "[router]\nport = 1\naccess_log_output=%s\n", word);
    refuse(text, "f:3: access_log_output=xx...: longer than 198 bytes without a comma or a space");
    for (size_t i = 9; i < 599; i += 10)
        word[i] = ' ';
    (void)snprintf(text, sizeof(text), "[router]\naccess_log_output = /%s\n", word);
    refuse(text, "f:2: longer than 198 bytes, which only lists may be");
    memset(word, 'x', 599);
    (void)snprintf(text, sizeof(text), "; %s\n[router]\nbind = ::1 # %s\n", word, word);
    f = parse(text);
    fixture_expect_count(&f, 0, 0);
    fixture_free(&f);
    (void)snprintf(text, sizeof(text), "[model-server %s]\n", word);
    refuse(text, "f:1: the section's name is longer than 160 bytes");
}

static void test_long_section_names(void **state)
{
    struct fixture f;
    char text[600];
    const char *name = "0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/012345";

    (void)state;
    (void)snprintf(
        text, sizeof(text),
        "[model-server %s]\npods = h:1\n[model-server %s-b]\npods = h:2\n[model-route r]\ntarget = %s-b\n",
        name, name, name);
    f = parse(text);
    fixture_expect_count(&f, 0, 0);
    assert_string_equal(f.c->routes[0].rules[0].targets[0].server, f.c->servers[1].name);
    fixture_free(&f);
}

/* ---- what is refused ---- */

static void test_lines(void **state)
{
    (void)state;
    refuse("x = 1\n[router]\n", "f:1: \"x\" stands before the first section");
    refuse("[router]\n\ngarbage\n", "f:3: not understood; expected key = value");
    refuse("[router]\nport = 1\ngarbage", "f:3: not understood");
    refuse("[router\n", "f:1: expected [section] alone on the line");
    refuse("[router] x\n", "f:1: expected [section] alone on the line");
    refuse("[router]\nport = 1\n  bind = ::1\n",
           "f:3: an indented line continues the value before it, and only lists");
    refuse("[model-server s]\npods = h:1\nmodel = a\n b\n", "f:4: an indented line continues");
    refuse("[router]\nbind = a\x01\n", "f:2: control byte 0x01");
    refuse("[router]\nbind = ::1\r \n", "f:2: control byte 0x0d");
    refuse("[router]\nbind = ::1\r", "f:2: control byte 0x0d");
    refuse("[router]\n= 1\n", "f:2: unknown option \"\"");
}

static void test_zero_byte(void **state)
{
    struct fixture f = parse_bytes(SLICE("[router]\nport = 1\nbind = ::1\0x\n"));

    (void)state;
    fixture_expect(&f, true, "f:3: control byte 0x00");
    fixture_free(&f);
}

static void test_options(void **state)
{
    (void)state;
    refuse("[router]\nprot = 1\n",
           "f:2: unknown option \"prot\" in [router]; the nearest known one is \"port\"");
    refuse("[router]\nROUTER_PORT = 1\n", "unknown option");
    refuse("[router]\nport = 1\nport = 1\n", "f:3: \"port\" is given twice, first in line 2");
    refuse("[router]\nport = 65536\n", "f:2: port = 65536: out of range: expected 0 to 65535");
    refuse("[router]\nqueue_max_requests = 0\n",
           "f:2: queue_max_requests = 0: out of range: expected 1 to 10000000");
    refuse("[router]\nsession_boost_timeout = 30\n", "f:2: session_boost_timeout = 30: not a duration");
    refuse("[router]\nsession_boost_grace_period = -1s\n", "out of range: expected at least 0s");
    refuse("[router]\nmax_body_bytes = 1.5M\n", "not a size");
    refuse("[router]\nsession_sticky = on\n", "expected one of off, prefer");
    refuse("[router]\nenable_session_boost = yes\n", "not a boolean");
    refuse("[router]\naccess_log_output =\n", "empty: expected stdout, stderr or a file name");
    refuse("[router]\nbackends = m=h:1,\n  h:0\n", "f:2: backends = m=h:1,h:0: pod \"h:0\": port 0");
}

static void test_sections(void **state)
{
    (void)state;
    refuse("[routr]\nx = 1\n  y\n", "f:1: unknown section [routr]; the nearest known one is [router]");
    refuse("[model-sever x]\npods = 1\n",
           "unknown section [model-sever]; the nearest known one is [model-server NAME]");
    refuse("[]\n", "f:1: unknown section []");
    refuse("[router x]\n", "f:1: [router] takes no name");
    refuse("[router]\n[router]\nport = x\n", "f:2: [router] is given twice, first in line 1");
    refuse("[model-server ]\npods = h:1\n", "f:1: the section has no name; expected [model-server NAME]");
    refuse("[model-route]\n", "f:1: the section has no name; expected [model-route NAME]");
    refuse("[model-server s]\npods = h:1\n[model-server s]\npods = h:2\n",
           "f:3: model-server \"s\" is given twice, first at f:1");
}

/* One pod is spoken to in one way. */
static void test_pods_in_two_servers(void **state)
{
    (void)state;
    refuse("[model-server a]\npods = h:1, h:2\n[model-server b]\npods = h:3, h:2\nprotocol = https\n",
           "f:3: [model-server b]: pod h:2 is also in [model-server a] at f:1, with another protocol");
    refuse("[model-server a]\npods = h:1\nengine = none\n[model-server b]\npods = h:1\n",
           "f:4: [model-server b]: pod h:1 is also in "
           "[model-server a] at f:1, with another engine; expected the same, for it is one pod");
    refuse("[model-server a]\npods = h:1\nprotocol = https\ntls_name = x\n[model-server b]\npods = "
           "h:1\nprotocol = https\n",
           "f:5: [model-server b]: pod h:1 is also in [model-server a] at f:1, with another tls_name");
}

static void test_pods_in_two_servers_that_agree(void **state)
{
    struct fixture f = parse("[model-server a]\npods = h:1, h:2\nprotocol = https\ntls_name = x\nmodel = n\n"
                             "[model-server b]\npods = h:2\nprotocol = https\ntls_name = x\n"
                             "[model-server c]\npods = h:3\ntls_name = z\nprotocol = https\n");

    (void)state;
    fixture_expect_count(&f, 0, 0);
    fixture_free(&f);
}

static void test_servers(void **state)
{
    (void)state;
    refuse("[model-server s]\n", "f:1: [model-server s] has none of pods, dns and service");
    refuse("\n[model-server s]\npods = h:1\ndns = h:2\n",
           "f:2: [model-server s] has several of pods, dns and service");
    refuse("[model-server s]\npods =\n", "f:1: [model-server s]: pods is empty");
    refuse("[model-server s]\npods = ,\n  ,\n", "f:1: [model-server s]: pods is empty");
    refuse("[model-server s]\npods = h\n", "f:2: pod \"h\": the port is missing");
    refuse("[model-server s]\npods = a:1,\n  b:2,\n  A:1\n", "f:4: pod \"a:1\" is given twice");
    refuse("[model-server s]\ndns = a:0\n", "f:2: dns = a:0: port 0");
    refuse("[model-server s]\nservice = a/b/c\n", "f:2: service = a/b/c: expected [namespace/]name[:port]");
    refuse("[model-server s]\nservice = a\npods = h:1\n",
           "f:1: [model-server s] has several of pods, dns and service");
    refuse("[model-server s]\npods = a:1\npods = b:1\n",
           "f:3: \"pods\" is given twice in [model-server], first in line 2");
    refuse("[model-server s]\npods = a:1\npod = b:1\n",
           "f:3: unknown key \"pod\" in [model-server]; the nearest known one is \"pods\"");
    refuse("[model-server s]\npods = a:1\ntarget = b\n", "f:3: unknown key \"target\" in [model-server]");
    refuse("[model-server s]\npods = a:1\nengine = tgi\n",
           "f:3: engine = tgi: expected vllm, sglang or none");
    refuse("[model-server s]\npods = a:1\nprotocol = tls\n", "f:3: protocol = tls: expected http or https");
    refuse("[model-server s]\npods = a:1\nprotocol = https\ntls_name = a b\n",
           "f:4: tls_name = a b: expected a host name or an IP address");
    refuse("[model-server s]\npods = a:1\ntls_name = a\n",
           "f:1: [model-server s] has a tls_name; it needs protocol = https");
    refuse("[model-server s]\npods = a:1\ntimeout = -1s\n", "f:3: timeout = -1s: expected a duration");
    refuse("[model-server s]\npods = a:1\ntimeout = 5\n", "f:3: timeout = 5: expected a duration");
    refuse("[model-server s]\npods = a:1\nmodel =\n", "f:3: \"model\" has no value");
}

static void test_routes(void **state)
{
    static const char server[] = "[model-server s]\npods = a:1\n";
    char text[400];
    static const struct {
        const char *lines, *problem;
    } cases[] = {
        {"[model-route r]\n", "f:3: [model-route r] has no target"},
        {"[model-route r]\nmodel = m\ntarget = S\n",
         "f:5: [model-route r]: target \"S\" is no model-server; the nearest is \"s\""},
        {"[model-route r]\ntarget =\n", "f:3: [model-route r]: target is empty; expected NAME, NAME:WEIGHT"},
        {"[model-route r]\ntarget = s\npods = a:1\n", "f:5: unknown key \"pods\" in [model-route]"},
        {"[model-route r]\ntarget = s\n[model-route r]\nmodel = r2\ntarget = s\n",
         "f:5: model-route \"r\" is given twice, first at f:3"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)snprintf(text, sizeof(text), "%s%s", server, cases[i].lines);
        refuse(text, cases[i].problem);
    }
    refuse("[model-route r]\ntarget = s\n",
           "f:2: [model-route r]: target \"s\" is no model-server: there is none");
}

/* ---- rules ---- */

static void test_whole_route(void **state)
{
    struct fixture f =
        parse("[model-server a:5]\npods = a:1\n[model-server b]\npods = b:1\n[model-server c 1]\npods = c:1\n"
              "[model-route r]\ntarget = a:5, b,\n  c 1\nlora = x/1 , y,\n  z\nmodel = m\n"
              "[model-route r/rule first]\nheader = X-Tier exact:gold: 1\nheader = x-empty exact:\n"
              "header = x-r  regex:^a b|c$\nuri = prefix:/v1/chat\nmodel = y\ntarget = a:5:70,b:30\n"
              "[model-route other]\ntarget = b : 2\n"
              "[model-route r/rule  second one]\nuri=regex:.\ntarget = c 1:0, b:1\n");
    const struct route_spec *r = &f.c->routes[0];

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_string_equal(r->model, "m");
    assert_int_equal(r->n_adapters, 3);
    assert_string_equal(r->adapters[0], "x/1");
    assert_string_equal(r->adapters[2], "z");
    assert_int_equal(r->n_rules, 3);
    assert_string_equal(r->rules[0].name, "first");
    assert_int_equal(r->rules[0].line, 13);
    assert_int_equal(r->rules[0].n_headers, 3);
    assert_string_equal(r->rules[0].headers[0].name, "X-Tier");
    assert_int_equal(r->rules[0].headers[0].value.kind, ROUTE_EXACT);
    assert_string_equal(r->rules[0].headers[0].value.text, "gold: 1");
    assert_string_equal(r->rules[0].headers[1].value.text, "");
    assert_int_equal(r->rules[0].headers[2].value.kind, ROUTE_REGEX);
    assert_string_equal(r->rules[0].headers[2].value.text, "^a b|c$");
    assert_int_equal(r->rules[0].uri.kind, ROUTE_PREFIX);
    assert_string_equal(r->rules[0].model, "y");
    assert_int_equal(r->rules[0].n_targets, 2);
    assert_string_equal(r->rules[0].targets[0].server, "a:5");
    assert_int_equal(r->rules[0].targets[0].weight, 70);
    assert_int_equal(r->rules[0].targets[1].weight, 30);
    assert_string_equal(r->rules[1].name, "second one");
    assert_int_equal(r->rules[1].targets[0].weight, 0);
    assert_null(r->rules[2].name); /* the route's own comes last */
    assert_int_equal(r->rules[2].n_targets, 3);
    assert_string_equal(r->rules[2].targets[0].server, "a:5"); /* a whole name before a weight */
    assert_int_equal(r->rules[2].targets[0].weight, ROUTE_NO_WEIGHT);
    assert_string_equal(r->rules[2].targets[2].server, "c 1");
    assert_int_equal(f.c->routes[1].rules[0].targets[0].weight, 2);
    fixture_free(&f);
}

static void test_rules(void **state)
{
    static const char before[] =
        "[model-server s]\npods = a:1\n[model-server t]\npods = b:1\n[model-route r]\n";
    char text[1000], many[700];
    static const struct {
        const char *lines, *problem;
    } cases[] = {
        {"target = s:1, t\n", "f:6: [model-route r]: some targets have a weight and some have none"},
        {"target = s:0, t:0\n", "f:6: [model-route r]: all weights are 0"},
        {"target = s:1000001, t:1\n", "f:6: [model-route r]: target \"s\": weight \"1000001\": expected a "
                                      "whole number from 0 to 1000000"},
        {"target = t:1,\n s:-5\n", "f:7: [model-route r]: target \"s\": weight \"-5\": expected a whole "
                                   "number from 0 to 1000000"},
        {"target = s:\n", "f:6: [model-route r]: target \"s\": weight \"\": expected a whole number"},
        {"target = s:99999999999999999999\n", "target \"s\": weight \"99999999999999999999\": expected"},
        {"target = s, s\n", "f:6: target \"s\" is given twice"},
        {"target = s:1,\n s:2\n", "f:7: target \"s\" is given twice"},
        {"target = s:x\n", "f:6: [model-route r]: target \"s\": weight \"x\": expected a whole number"},
        {"target = t2:x\n", "f:6: [model-route r]: target \"t2:x\" is no model-server; the nearest is \"t\""},
        {"target = s\nlora = a, b, a\n", "f:7: adapter \"a\" is given twice"},
        {"[model-route r/rule x]\n", "f:6: [model-route r/rule x] has no target"},
        {"[model-route r/rule x]\ntarget =\n", "f:6: [model-route r/rule x] has no target"},
        {"target = s\n[model-route q/rule x]\ntarget = s\n",
         "f:7: [model-route q] must stand before its rules"},
        {"target = s\n[model-route r/rule]\ntarget = s\n", "f:7: a rule needs a name"},
        {"[model-route r/rule x]\ntarget = s\n[model-route r/rule x]\ntarget = s\n",
         "f:8: rule \"x\" is given twice, first at f:6"},
        {"[model-route r/rule x]\ntarget = s\nheader = h\n",
         "f:8: header = NAME MATCH: \"\": expected exact:TEXT"},
        {"[model-route r/rule x]\ntarget = s\nheader = h is:a\n",
         "\"is:a\": expected exact:TEXT, prefix:TEXT or regex"},
        {"[model-route r/rule x]\ntarget = s\nheader = Host exact:a\n",
         "f:8: header: Host is not passed on to pods"},
        {"[model-route r/rule x]\ntarget = s\nuri = /v1\n", "f:8: uri = MATCH: \"/v1\": expected exact:TEXT"},
        {"[model-route r/rule x]\ntarget = s\nuri = regex:(a\n",
         "f:8: uri = MATCH: regex \"(a\": ( has no )"},
        {"[model-route r/rule x]\ntarget = s\nuri = exact:/a\nuri = exact:/b\n",
         "f:9: \"uri\" is given twice in [model-route .../rule ...], first in line 8"},
        {"[model-route r/rule x]\ntarget = s\nlora = a\n",
         "f:8: unknown key \"lora\" in [model-route .../rule"},
        {"target = s\nsession_sticky =\n", "f:5: [model-route r]: session_sticky is empty"},
        {"target = s\nsession_sticky = header:a, jwt:sub\n",
         "f:7: session_sticky: \"jwt:sub\": expected header:NAME, cookie"},
        {"target = s\nsession_sticky = cookie:\n", "f:7: session_sticky: \"cookie:\": expected header:NAME"},
        {"target = s\nsticky_ttl = 3h\n",
         "f:5: [model-route r]: sticky_ttl is for session_sticky, which is not given"},
        {"target = s\nsession_sticky = query:a\nsticky_ttl = 0s\n",
         "f:8: sticky_ttl = 0s: expected a duration above 0"},
        {"target = s\nsticky_mode = wait\n",
         "f:7: sticky_mode = wait: expected off, prefer or wait:DURATION"},
        {"target = s\nsticky_mode = wait:0s\n", "f:7: sticky_mode = wait:0s: expected off"},
        {"target = s\npolicy = fastest\n",
         "f:7: policy = fastest: expected least-request, round-robin, random, prefix"},
        {"target = s\nscore = prefix:2, fast:1\n", "f:7: score: \"fast:1\": expected NAME or NAME:WEIGHT"},
        {"target = s\nscore = prefix:1001\n", "f:7: score: \"prefix:1001\": expected NAME or NAME:WEIGHT"},
        {"target = s\nscore = prefix:-1\n", "f:7: score: \"prefix:-1\": expected NAME or NAME:WEIGHT"},
        {"target = s\nscore = prefix:0\n", "f:5: [model-route r]: score is empty"},
        {"target = s\nscore = prefix\npolicy = random\n", "f:5: [model-route r] has both policy and score"},
        {"target = s\nscore = prefix:2, prefix:1\n", "f:7: score: \"prefix\" is given twice"},
        {"target = s\nscore = random:0, kv-usage,\n random\n", "f:8: score: \"random\" is given twice"},
        {"target = s\nscore = prefix:2,,random\n", "f:7: score: an empty name before a comma"},
        {"target = s\nlora = x,,y\n", "f:7: an empty name before a comma"},
        {"target = s,,t\n", "f:6: an empty name before a comma"},
        {"target = s\nsession_sticky = header:host\n", "f:7: session_sticky: \"host\" says how the request"},
        {"target = s\nsession_sticky = header:Connection\n", "f:7: session_sticky: \"Connection\" says how"},
        {"target = s\nsession_sticky = header:a b\n", "f:7: session_sticky: \"a b\" is not a header name"},
        {"target = s\nsession_sticky = header:AUTHORIZATION\n",
         "f:7: session_sticky: \"AUTHORIZATION\" carries credentials"},
        {"target = s\nsession_sticky = cookie:a=b\n",
         "f:7: session_sticky: \"a=b\" is no name that a cookie"},
        {"target = s\nsession_sticky = cookie:a;b\n",
         "f:7: session_sticky: \"a;b\" is no name that a cookie"},
        {"target = s\nsession_sticky = query:a b\n", "f:7: session_sticky: \"a b\" is no name that a query"},
        {"target = s\nsession_sticky = query:a&b\n", "f:7: session_sticky: \"a&b\" is no name that a query"},
        {"[model-route r/rule x]\ntarget = s\nheader = x(a exact:1\n",
         "f:8: header: \"x(a\" is not a header name; expected NAME MATCH"},
        {"[model-route r/rule x]\ntarget = s\nuri = prefix:v1\n",
         "f:8: uri = MATCH: prefix \"v1\": a path begins with /"},
        {"[model-route r/rule x]\ntarget = s\nuri = exact:/v1/chat?x=1\n",
         "f:8: uri = MATCH: exact \"/v1/chat?x=1\": the path without query is compared"},
        {"[model-route r/rule x]\ntarget = s\nuri = prefix:/v1/%63hat\n",
         "f:8: uri = MATCH: prefix \"/v1/%63hat\": the decoded path is compared"},
        {"lora = l\n[model-route r/rule x]\ntarget = s\nmodel = nosuch\n",
         "f:9: [model-route r/rule x]: model = nosuch matches no request: the route serves \"r\""},
        {"target = s\nmax_waiting = 0\n",
         "f:7: max_waiting = 0: expected a number of requests, 1 to 1000000"},
        {"target = s\nmax_waiting = many\n", "f:7: max_waiting = many: expected a number"},
        {"target = s\nheader = a exact:b\n", "f:7: unknown key \"header\" in [model-route]"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        (void)snprintf(text, sizeof(text), "%s%s", before, cases[i].lines);
        refuse(text, cases[i].problem);
    }
    many[0] = '\0';
    for (size_t i = 0; i <= ROUTE_HEADERS_MAX; i++)
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), "header = h%zu exact:\n", i);
    (void)snprintf(text, sizeof(text), "%s[model-route r/rule x]\ntarget = s\n%s", before, many);
    refuse(text, "f:24: too many headers: at most 16 in a rule");
}

static void test_sticky(void **state)
{
    struct fixture f =
        parse("[model-server s]\npods = a:1\n[model-route r]\ntarget = s\nsession_sticky = header:X-A, "
              "cookie:sid,\n"
              " query:q\nsticky_mode = wait:1m30s\n[model-route q]\ntarget = s\nsession_sticky = query:a-b\n"
              "sticky_ttl = 90s\n");

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.c->routes[0].n_sources, 3);
    assert_int_equal(f.c->routes[0].sources[1].kind, ROUTE_COOKIE);
    assert_string_equal(f.c->routes[0].sources[2].name, "q");
    assert_int_equal(f.c->routes[0].sticky_ttl_us, 3 * 3600 * US_PER_S);
    assert_int_equal(f.c->routes[0].sticky, ROUTE_STICKY_WAIT);
    assert_int_equal(f.c->routes[0].sticky_wait_us, 90 * US_PER_S);
    assert_int_equal(f.c->routes[1].sticky_ttl_us, 90 * US_PER_S);
    assert_int_equal(f.c->routes[1].sticky, ROUTE_STICKY_UNSET);
    fixture_free(&f);
}

static void test_a_match_is_trimmed_as_values_of_headers_are(void **state)
{
    struct fixture f =
        parse("[model-server s]\npods = a:1\n[model-route r]\nlora = l\n[model-route r/rule x]\n"
              "header = x-a exact: 1\nuri = prefix: /v1\nmodel = l\ntarget = s\n");

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_string_equal(f.c->routes[0].rules[0].headers[0].value.text, "1");
    assert_string_equal(f.c->routes[0].rules[0].uri.text, "/v1");
    fixture_free(&f);
}

static void test_policy(void **state)
{
    struct fixture f = parse(
        "[model-server s]\npods = a:1\n[model-route r]\ntarget = s\npolicy = kv-usage\nmax_waiting = 7\n"
        "[model-route q]\ntarget = s\nscore = prefix:2,\n least-request , random: 0\n"
        "[model-route p]\ntarget = s\n");

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.c->routes[0].policy.kind, POLICY_KV_USAGE);
    assert_int_equal(f.c->routes[0].policy.max_waiting, 7);
    assert_int_equal(f.c->routes[1].policy.kind, POLICY_SCORE);
    assert_int_equal(f.c->routes[1].policy.weights[POLICY_SCORE_PREFIX], 2);
    assert_int_equal(f.c->routes[1].policy.weights[POLICY_SCORE_LEAST_REQUEST], 1);
    assert_int_equal(f.c->routes[1].policy.weights[POLICY_SCORE_RANDOM], 0);
    assert_int_equal(f.c->routes[2].policy.kind, POLICY_UNSET);
    fixture_free(&f);
}

static void test_many_rules(void **state)
{
    struct buf b;
    struct fixture f;

    (void)state;
    buf_init(&b, 1 << 20);
    assert_true(buf_printf(&b, "[model-server s]\npods = a:1\n[model-route r]\n"));
    for (size_t i = 0; i <= ROUTE_RULES_MAX; i++)
        assert_true(buf_printf(&b, "[model-route r/rule %zu]\ntarget = s\n", i));
    f = parse_bytes(buf_slice(&b));
    fixture_expect_count(&f, 1, 1);
    fixture_expect(&f, true, "f:132: too many rules: at most 64 in a route");
    fixture_free(&f);
    buf_clear(&b);
    assert_true(buf_printf(&b, "[model-server s]\npods = a:1\n[model-route r]\ntarget = s\nlora ="));
    for (size_t i = 0; i <= ROUTE_ADAPTERS_MAX; i++)
        assert_true(buf_printf(&b, " a%zu,", i));
    f = parse_bytes(buf_slice(&b));
    fixture_expect_count(&f, 1, 1);
    fixture_expect(&f, true, "f:5: adapter \"a256\" is one too many");
    fixture_free(&f);
    buf_free(&b);
}

static void test_all_problems_are_listed(void **state)
{
    struct fixture f =
        parse("[router]\nx = 1\nport = y\n[z]\n[model-server s]\npods = a, b:1, c\nq = 1\n[model-route r]\n");

    (void)state;
    fixture_expect_count(&f, 7, 7);
    fixture_free(&f);
}

static void test_limits(void **state)
{
    struct fixture f;
    struct buf b;

    (void)state;
    buf_init(&b, CONFIG_INI_BYTES_MAX + 100);
    for (size_t i = 0; i <= CONFIG_SERVERS_MAX; i++)
        assert_true(buf_printf(&b, "[model-server s%zu]\ndns = h:1\n", i));
    f = parse_bytes(buf_slice(&b));
    fixture_expect(&f, true, "too many sections: at most 4096 of a kind");
    assert_int_equal(f.c->n_servers, CONFIG_SERVERS_MAX);
    fixture_free(&f);
    buf_clear(&b);
    assert_true(buf_printf(&b, "[model-server s]\npods ="));
    for (size_t i = 0; i <= CONFIG_PODS_MAX; i++)
        assert_true(buf_printf(&b, " h:%zu", i + 1));
    f = parse_bytes(buf_slice(&b));
    fixture_expect(&f, true, "pod \"h:4097\" is one too many");
    fixture_free(&f);
    buf_clear(&b);
    while (b.len <= CONFIG_INI_BYTES_MAX)
        assert_true(buf_printf(&b, "; %077d\n", 1));
    f = fixture_load_bytes(buf_slice(&b), NULL, NULL);
    fixture_expect(&f, true, "larger than 4 MiB");
    fixture_free(&f);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_defaults_of_sections),
        cmocka_unit_test(test_options_that_are_lists_go_on),
        cmocka_unit_test(test_comments_inside_values),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_long_line_that_looks_like_something_else_when_cut),
        cmocka_unit_test(test_long_lines_that_cannot_be_cut),
        cmocka_unit_test(test_long_section_names),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_zero_byte),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_pods_in_two_servers),
        cmocka_unit_test(test_pods_in_two_servers_that_agree),
        cmocka_unit_test(test_servers),
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_whole_route),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_sticky),
        cmocka_unit_test(test_a_match_is_trimmed_as_values_of_headers_are),
        cmocka_unit_test(test_policy),
        cmocka_unit_test(test_many_rules),
        cmocka_unit_test(test_all_problems_are_listed),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
