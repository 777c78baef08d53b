/* Where values come from: default, INI file, environment, flags; what is said about bad ones; reloads. */
#include "config_fixture.h"
#include "config_option.h"

static char POD[] = "ROUTER_BACKENDS=m=h:1"; /* so that nothing warns of no pods */

/* ---- precedence ---- */

/* The i-th of three values of the option's type that differ from its default. */
static const char *other_value(enum config_option o, size_t i)
{
    static const char *const numbers[] = {"1101", "1102", "1103"}, *const sizes[] = {"2KiB", "3KiB", "4KiB"};
    static const char *const durations[] = {"7s", "8s", "9s"}, *const binds[] = {"127.0.0.1", "::1",
                                                                                 "127.0.0.2"};
    static const char *const windows[] = {"2m", "3m", "4m"};
    static const char *const backends[] = {"m=h:1", "m=h:2", "m=h:3"}, *const words[] = {"A", "B", "C"};
    static const char *const origins[] = {"http://a", "http://b:1, *", "null"};
    const struct config_option_row *row = config_option_row(o);

    switch (row->type) {
    case CONFIG_TYPE_BOOL:
        return (strcmp(row->initial, "true") == 0) == (i % 2 == 0) ? "false" : "true";
    case CONFIG_TYPE_BYTES:
        return sizes[i];
    case CONFIG_TYPE_DURATION:
        return o == CONFIG_OPT_fairness_window_size_us ? windows[i] : durations[i];
    case CONFIG_TYPE_ENUM:
        return strncmp(row->choices, "text", 4) == 0 ? (i % 2 == 0 ? "json" : "text")
               : row->choices[0] == 'o'              ? (i % 2 == 0 ? "off" : "prefer")
                                                     : (i % 2 == 0 ? "error" : "warn");
    case CONFIG_TYPE_STRING:
        if (o == CONFIG_OPT_cors_allow_origins)
            return origins[i];
        return o == CONFIG_OPT_bind ? binds[i] : o == CONFIG_OPT_backends ? backends[i] : words[i];
    default:
        return numbers[i];
    }
}

/* Sets the option in the first n_sources of INI, environment and flag. */
static void check_sources(enum config_option o, size_t n_sources, const char *expected)
{
    const struct config_option_row *row = config_option_row(o);
    char ini[200], env[200], flag[200];
    struct fixture f;

    (void)snprintf(ini, sizeof(ini), "[router]\n%s = %s\n", row->key, other_value(o, 0));
    (void)snprintf(env, sizeof(env), "%s=%s", row->env, other_value(o, 1));
    (void)snprintf(flag, sizeof(flag), "--%s=%s", row->flag, other_value(o, 2));
    f = fixture_load(n_sources >= 1 ? ini : NULL, n_sources >= 3 ? LIST(flag) : NULL,
                     n_sources >= 2 ? LIST(env) : NULL);
    fixture_expect_value(f.c, o, expected, (enum config_origin)n_sources);
    fixture_free(&f);
}

static void test_precedence_of_every_option(void **state)
{
    (void)state;
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        for (size_t n = 1; n <= 3; n++)
            check_sources(o, n, other_value(o, n - 1));
    }
}

static void test_defaults(void **state)
{
    struct fixture f = fixture_load(NULL, NULL, LIST(POD));

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.action, CONFIG_RUN);
    assert_int_equal(f.c->port, 8080);
    assert_int_equal(f.c->metrics_port, 9090);
    assert_int_equal(f.c->debug_port, 15000);
    assert_false(f.c->enable_session_boost);
    assert_int_equal(f.c->session_boost_max_sessions, 4096);
    assert_int_equal(f.c->session_boost_inflight_per_pod, 16);
    assert_int_equal(f.c->session_boost_timeout_us, 30 * US_PER_S);
    assert_int_equal(f.c->session_boost_grace_period_us, 0);
    assert_int_equal(f.c->session_boost_max_overtakes, 32);
    assert_int_equal(f.c->session_sticky, 1);
    assert_int_equal(f.c->session_sticky_wait_us, 10 * US_PER_S);
    assert_int_equal(f.c->max_body_bytes, 64 << 20);
    assert_int_equal(f.c->upstream_header_timeout_us, 0);
    assert_int_equal(f.c->drain_timeout_us, 300 * US_PER_S);
    assert_true(f.c->access_log_enabled);
    assert_string_equal(f.c->access_log_output, "stdout");
    assert_int_equal(f.c->n_session_headers, 1);
    assert_true(slice_eq(f.c->session_headers[0], SLICE("X-Session-ID")));
    assert_null(f.c->file);
    fixture_free(&f);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(config_option_row(CONFIG_OPT_port)->key, "port");
    assert_string_equal(config_option_row(CONFIG_OPT_metrics_port)->flag, "metrics-port");
    assert_string_equal(config_option_row(CONFIG_OPT_session_boost_timeout_us)->key, "session_boost_timeout");
    assert_string_equal(config_option_row(CONFIG_OPT_session_boost_timeout_us)->flag,
                        "session-boost-timeout");
    assert_string_equal(config_env_name(CONFIG_OPT_session_sticky), "SESSION_STICKY");
}

/* ---- flags ---- */

static void test_flag_forms(void **state)
{
    struct fixture f = fixture_load(NULL,
                                    LIST("--port", "1", "--metrics-port=2", "--enable-session-boost",
                                         "--access-log-enabled=f", "--port=3", "--backends", "m=h:1"),
                                    NULL);

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.c->port, 3);
    assert_int_equal(f.c->metrics_port, 2);
    assert_true(f.c->enable_session_boost);
    assert_false(f.c->access_log_enabled);
    fixture_free(&f);
}

static void test_bad_flags_are_all_listed(void **state)
{
    struct fixture f = fixture_load(NULL,
                                    LIST("--prot=1", "stray", "-port=1", "--port=x", "--log-level=loud",
                                         "--check=1", "--enable-session-boost=yes", "--", "--bind"),
                                    NULL);

    (void)state;
    fixture_expect(&f, true, "unknown flag --prot; the nearest known one is --port");
    fixture_expect(&f, true, "unexpected argument \"stray\"");
    fixture_expect(&f, true, "unexpected argument \"-port=1\": flags are --NAME=VALUE, with two dashes");
    fixture_expect(&f, true, "unexpected argument \"--\"");
    fixture_expect(&f, true, "--port=x: not a port");
    fixture_expect(&f, true, "--log-level=loud: not a known word: expected one of debug, info, warn, error");
    fixture_expect(&f, true, "--check takes no value");
    fixture_expect(&f, true, "--enable-session-boost=yes: not a boolean");
    fixture_expect(&f, true, "--bind needs a value");
    assert_int_equal(f.report.n_fatal, 9);
    fixture_free(&f);
}

static void check_action(char *flag, enum config_action action)
{
    struct fixture f = fixture_load(NULL, LIST(flag), LIST("PORT=x", "SESSION_BOOST_TIMEOUT=x", POD));

    assert_int_equal(f.action, action);
    assert_int_equal(f.report.n > 0, action == CONFIG_PRINT || action == CONFIG_CHECK);
    fixture_free(&f);
}

static void test_actions(void **state)
{
    (void)state;
    check_action("--help", CONFIG_HELP);
    check_action("--version", CONFIG_VERSION);
    check_action("--print-config", CONFIG_PRINT);
    check_action("--check", CONFIG_CHECK);
    check_action("--print-example", CONFIG_EXAMPLE);
    check_action("--print-options-doc", CONFIG_OPTIONS_DOC);
}

static void expect_bad_user_header(const char *name, const char *problem)
{
    char *variable = mem_printf("FAIRNESS_USER_HEADER=X-A, %s", name);
    struct fixture f = fixture_load("[router]\n", NULL, LIST(variable));

    fixture_expect(&f, false, problem);
    assert_string_equal(f.c->fairness_user_header, "X-User-ID");
    fixture_free(&f);
    mem_free(variable);
}

/* Ids stand in logs. */
static void test_headers_that_hold_no_ids(void **state)
{
    (void)state;
    expect_bad_user_header("authorization", "\"authorization\" carries credentials, and ids are written");
    expect_bad_user_header("Proxy-Authorization", "carries credentials");
    expect_bad_user_header("Cookie", "carries credentials");
    expect_bad_user_header("X-Api-Key", "carries credentials");
    expect_bad_user_header("Host", "\"Host\" says how the request is sent, not whose it is");
    expect_bad_user_header("Connection", "says how the request is sent");
    expect_bad_user_header("Content-Length", "says how the request is sent");
    expect_bad_user_header("", "an empty header name");
}

/* ---- environment ---- */

static void test_bad_environment_values_are_warnings(void **state)
{
    struct fixture f = fixture_load(
        "[router]\ndrain_timeout = 3m\n", NULL,
        LIST("DRAIN_TIMEOUT=0", "ENABLE_SESSION_BOOST=yes", "SESSION_BOOST_HEADER=a b",
             "SESSION_BOOST_MAX_OVERTAKES=0", "SESSION_BOOST_TIMEOUT=", "LOG_LEVEL=", "ACCESS_LOG_FORMAT=xml",
             "MAX_HEADER_BYTES=1", "ROUTER_BIND=localhost", "ROUTER_BACKENDS=m=h"));

    (void)state;
    fixture_expect(&f, false,
                   "DRAIN_TIMEOUT=\"0\": out of range: expected at least 1ms; using the INI file's \"3m\"");
    fixture_expect(&f, false,
                   "ENABLE_SESSION_BOOST=\"yes\": not a boolean: expected true or false; using the default "
                   "\"false\"");
    fixture_expect(&f, false,
                   "SESSION_BOOST_HEADER=\"a b\": \"a b\" is not a header name; using the default");
    fixture_expect(&f, false, "SESSION_BOOST_MAX_OVERTAKES=\"0\": out of range: expected 1 to 1000000");
    fixture_expect(&f, false, "SESSION_BOOST_TIMEOUT=\"\": not a duration");
    fixture_expect(&f, false, "ACCESS_LOG_FORMAT=\"xml\": not a known word: expected one of text, json");
    fixture_expect(&f, false, "MAX_HEADER_BYTES=\"1\": out of range: expected 1KiB to 16MiB");
    fixture_expect(&f, false, "ROUTER_BIND=\"localhost\": not an IPv4 or IPv6 address");
    fixture_expect(&f, false, "ROUTER_BACKENDS=\"m=h\": pod \"h\": the port is missing");
    fixture_expect(&f, false, "no models are configured");
    fixture_expect_count(&f, 0, 10);
    fixture_expect_value(f.c, CONFIG_OPT_drain_timeout_us, "3m", CONFIG_INI);
    fixture_expect_value(f.c, CONFIG_OPT_session_boost_timeout_us, "30s", CONFIG_DEFAULT);
    fixture_free(&f);
}

static void test_bad_environment_values_fail_a_check(void **state)
{
    struct fixture f =
        fixture_load(NULL, LIST("--check"),
                     LIST("DRAIN_TIMEOUT=soon", "SESSION_BOOST_TIMEOUT=", "SESSION_BOOST_TIMOUT=1s", POD));

    (void)state;
    fixture_expect(&f, true, "DRAIN_TIMEOUT=\"soon\": not a duration");
    fixture_expect(&f, true, "SESSION_BOOST_TIMEOUT=\"\"");
    fixture_expect(&f, false,
                   "unknown variable SESSION_BOOST_TIMOUT is ignored; the nearest known one is "
                   "SESSION_BOOST_TIMEOUT");
    fixture_expect_count(&f, 2, 3);
    fixture_free(&f);
}

static void test_values_without_a_limit(void **state)
{
    struct fixture f = fixture_load(
        NULL, NULL,
        LIST("SESSION_BOOST_TIMEOUT=-1s", "UPSTREAM_HEADER_TIMEOUT=0", "DRAIN_TIMEOUT=1000h", POD));

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.c->session_boost_timeout_us, -US_PER_S);
    fixture_free(&f);
}

static void test_unknown_names(void **state)
{
    struct fixture f =
        fixture_load(NULL, NULL,
                     LIST("ROUTER_PROT=1", "SESSION_STICKY_WIAT=1s", "FAIRNESS_MAX_QPS=1", "PATH=/bin",
                          "FAIRNESS_WINDOW_SIZE=1h", "FAIRNESS_MAX_QSP=1", "session_boost_x=1",
                          "ROUTER_CONFIG=", "KTHENA_ROUTER_SERVICE_HOST=1", "ROUTER_NO_VALUE", POD));

    (void)state;
    fixture_expect(&f, false, "ROUTER_PROT is ignored; the nearest known one is ROUTER_PORT");
    fixture_expect(&f, false, "SESSION_STICKY_WIAT is ignored; the nearest known one is SESSION_STICKY_WAIT");
    fixture_expect(&f, false, "FAIRNESS_MAX_QSP is ignored; the nearest known one is FAIRNESS_MAX_QPS");
    fixture_expect(&f, false, "ROUTER_NO_VALUE");
    fixture_expect_count(&f, 0, 4);
    fixture_free(&f);
}

static void test_kubernetes_service_variables(void **state)
{
    struct fixture f = fixture_load(
        NULL, LIST("--check"),
        LIST("ROUTER_PORT=tcp://10.0.0.1:80", "ROUTER_SERVICE_HOST=10.0.0.1", "ROUTER_SERVICE_PORT=80",
             "ROUTER_SERVICE_PORT_HTTP=80", "ROUTER_PORT_80_TCP=tcp://10.0.0.1:80",
             "ROUTER_PORT_80_TCP_PORT=80", "ROUTER_PORT_80_TCP_ADDR=10.0.0.1",
             "ROUTER_METRICS_PORT=tcp://10.0.0.2:90", "ROUTER_X_PORT=udp://10.0.0.2:90", POD));

    (void)state;
    fixture_expect(
        &f, false,
        "ROUTER_PORT=tcp://10.0.0.1:80 ignored: Kubernetes sets it for the Service named \"router\"");
    fixture_expect(&f, false, "for the Service named \"router-metrics\"");
    fixture_expect_count(&f, 0, 2);
    fixture_expect_value(f.c, CONFIG_OPT_port, "8080", CONFIG_DEFAULT);
    fixture_free(&f);
}

static void expect_weight(const char *text, const char *value, bool accepted)
{
    char env[100];
    struct fixture f;

    (void)snprintf(env, sizeof(env), "FAIRNESS_INPUT_TOKEN_WEIGHT=%s", text);
    f = fixture_load(NULL, NULL, LIST(env, POD));
    fixture_expect_value(f.c, CONFIG_OPT_fairness_input_token_weight, value,
                         accepted ? CONFIG_ENV : CONFIG_DEFAULT);
    fixture_expect_count(&f, 0, accepted ? 0 : 1);
    fixture_free(&f);
}

static void test_fractions(void **state)
{
    struct fixture f = fixture_load(NULL, NULL, LIST("FAIRNESS_INPUT_TOKEN_WEIGHT=1e308", POD));

    (void)state;
    fixture_expect(&f, false, "out of range: expected 0 to 9223372036854775807; using the default");
    fixture_free(&f);
    expect_weight("0", "0", true);
    expect_weight("2.5", "2.5", true);
    expect_weight("+1e3", "1000", true);
    expect_weight(".5", "0.5", true);
    expect_weight("-1", "1", false);
    expect_weight("NaN", "1", false);
    expect_weight("inf", "1", false);
    expect_weight("1 ", "1", false);
    expect_weight("two", "1", false);
    expect_weight("1_0", "1", false);
    expect_weight("0x1p3", "1", false);
    expect_weight("1e308", "1", false);
}

static void test_fairness_ranges(void **state)
{
    struct fixture f =
        fixture_load(NULL, NULL,
                     LIST("FAIRNESS_WINDOW_SIZE=30s", "FAIRNESS_QUEUE_TIMEOUT=", "FAIRNESS_MAX_CONCURRENT=-1",
                          "FAIRNESS_MAX_QPS=0", "FAIRNESS_PRIORITY_TOKEN_WEIGHT=", POD));

    (void)state;
    fixture_expect(&f, false,
                   "FAIRNESS_WINDOW_SIZE=\"30s\": out of range: expected 1m to 1h; using the default \"5m\"");
    fixture_expect(&f, false, "FAIRNESS_QUEUE_TIMEOUT=\"\": not a duration");
    fixture_expect(&f, false, "FAIRNESS_MAX_CONCURRENT=\"-1\"");
    fixture_expect(&f, false, "FAIRNESS_MAX_QPS=\"0\"");
    fixture_expect(&f, false, "FAIRNESS_PRIORITY_TOKEN_WEIGHT=\"\": not a number");
    fixture_expect_count(&f, 0, 5);
    fixture_free(&f);
}

/* With the name of the option first; bad ones leave the default. */
static void expect_duration(const char *text, enum config_option o, const char *value, bool accepted)
{
    char *env = mem_strdup(text);
    struct fixture f = fixture_load(NULL, NULL, LIST(env, POD));

    fixture_expect_value(f.c, o, value, accepted ? CONFIG_ENV : CONFIG_DEFAULT);
    fixture_free(&f);
    mem_free(env);
}

/* As the Go router's tests have them; that an empty one is none is its rule for nearly all variables. */
static void test_durations_of_the_go_router(void **state)
{
    (void)state;
    expect_duration("METRICS_SCRAPE_INTERVAL=", CONFIG_OPT_metrics_scrape_interval_us, "1s", false);
    expect_duration("METRICS_SCRAPE_INTERVAL=garbage", CONFIG_OPT_metrics_scrape_interval_us, "1s", false);
    expect_duration("METRICS_SCRAPE_INTERVAL=0s", CONFIG_OPT_metrics_scrape_interval_us, "1s", false);
    expect_duration("METRICS_SCRAPE_INTERVAL=-1s", CONFIG_OPT_metrics_scrape_interval_us, "1s", false);
    expect_duration("METRICS_SCRAPE_INTERVAL=200ms", CONFIG_OPT_metrics_scrape_interval_us, "200ms", true);
    expect_duration("METRICS_SCRAPE_INTERVAL=5s", CONFIG_OPT_metrics_scrape_interval_us, "5s", true);
    expect_duration("FAIRNESS_WINDOW_SIZE=10m", CONFIG_OPT_fairness_window_size_us, "10m", true);
    expect_duration("FAIRNESS_WINDOW_SIZE=2h", CONFIG_OPT_fairness_window_size_us, "5m", false);
}

static void expect_origins(const char *text, size_t n)
{
    char env[200];
    struct fixture f;

    (void)snprintf(env, sizeof(env), "CORS_ALLOW_ORIGINS=%s", text);
    f = fixture_load(NULL, NULL, LIST(env, POD));
    assert_int_equal(f.c->n_cors_origins, n);
    fixture_expect_count(&f, 0, n > 0 || text[0] == '\0' ? 0 : 1);
    fixture_free(&f);
}

static void test_origins(void **state)
{
    (void)state;
    expect_origins("", 0);
    expect_origins("*", 1);
    expect_origins("https://a.example , http://localhost:3000,null", 3);
    expect_origins("https://a.example/", 0);
    expect_origins("https://", 0);
    expect_origins("a.example", 0);
    expect_origins("https://a.example,,", 0);
    expect_origins("https://a b", 0);
}

/* ---- what options mean to each other ---- */

static void test_strategies(void **state)
{
    struct fixture both =
        fixture_load(NULL, LIST("--enable-session-boost"), LIST("ENABLE_FAIRNESS_SCHEDULING=1", POD));
    struct fixture fair = fixture_load(NULL, NULL, LIST("ENABLE_FAIRNESS_SCHEDULING=1", POD));
    struct fixture flat = fixture_load(
        NULL, NULL, LIST("ENABLE_FAIRNESS_SCHEDULING=1", "FAIRNESS_PRIORITY_TOKEN_WEIGHT=0", POD));

    (void)state;
    fixture_expect(&both, true, "ENABLE_SESSION_BOOST and ENABLE_FAIRNESS_SCHEDULING are both on");
    fixture_expect_count(&both, 1, 1);
    fixture_expect_count(&fair, 0, 0);
    fixture_expect(&flat, false, "the token weight counts as 1");
    fixture_expect_count(&flat, 0, 1);
    fixture_free(&flat);
    fixture_free(&both);
    fixture_free(&fair);
}

static void test_header_list(void **state)
{
    struct fixture f =
        fixture_load("[router]\nsession_boost_header = x-a,\n   session_id , X-B\n", NULL, LIST(POD));
    struct fixture none =
        fixture_load("[router]\nenable_session_boost = true\nsession_boost_header =\n", NULL, NULL);
    struct fixture hole = fixture_load(NULL, LIST("--session-boost-header=a,,b"), NULL);

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.c->n_session_headers, 3);
    assert_true(slice_eq(f.c->session_headers[0], SLICE("x-a")));
    assert_true(slice_eq(f.c->session_headers[1], SLICE("session_id")));
    assert_true(slice_eq(f.c->session_headers[2], SLICE("X-B")));
    fixture_expect(&none, true, ":3: session_boost_header = : an empty header name");
    fixture_expect(&hole, true, "--session-boost-header=a,,b: an empty header name");
    fixture_free(&f);
    fixture_free(&none);
    fixture_free(&hole);
}

static void test_backends(void **state)
{
    struct fixture f =
        fixture_load(NULL, LIST("--backends= org/Model:v1.5 = H:1 , [::0001]:2;\n m2=10.0.0.1:3;"), NULL);

    (void)state;
    fixture_expect_count(&f, 0, 0);
    assert_int_equal(f.c->n_servers, 2);
    assert_int_equal(f.c->n_routes, 2);
    assert_string_equal(f.c->servers[0].name, "org/Model:v1.5");
    assert_string_equal(f.c->routes[0].model, "org/Model:v1.5");
    assert_int_equal(f.c->servers[0].n_pods, 2);
    assert_string_equal(f.c->servers[0].pods[0], "h:1");
    assert_string_equal(f.c->servers[0].pods[1], "[::1]:2");
    assert_int_equal(f.c->servers[0].engine, PROMTEXT_VLLM);
    assert_null(f.c->servers[0].model);
    assert_string_equal(f.c->routes[1].model, "m2");
    assert_string_equal(f.c->routes[1].rules[0].targets[0].server, "m2");
    fixture_free(&f);
}

static void test_bad_backends(void **state)
{
    struct fixture f = fixture_load(NULL, LIST("--backends=h:1;=h:1;m=;n=h:1,H:1;a=x:1;a=y:1"), NULL);

    (void)state;
    fixture_expect(&f, true, "\"h:1\": expected MODEL=host:port");
    fixture_expect(&f, true, "\"=h:1\": expected MODEL=");
    fixture_expect(&f, true, "model \"m\" has no pods");
    fixture_expect(&f, true, "pod \"h:1\" is given twice");
    fixture_expect(&f, true, "model-server \"a\" is given twice");
    fixture_free(&f);
}

static void test_backends_and_ini_of_one_model(void **state)
{
    struct fixture f = fixture_load("[model-server s]\npods = h:1\n[model-route r]\nmodel = m\ntarget = s\n",
                                    NULL, LIST(POD));

    (void)state;
    fixture_expect(&f, false, "ROUTER_BACKENDS: model-route \"m\" gets no request: \"r\" at /tmp/");
    fixture_expect_count(&f, 0, 1);
    fixture_free(&f);
}

static void test_routes_of_no_use(void **state)
{
    struct fixture f = fixture_load("[model-server s]\npods = h:1\n[model-server t]\npods = h:2\n"
                                    "[model-route r]\nmodel = m\nlora = a, n\ntarget = s\n"
                                    "[model-route r/rule all]\ntarget = s\n"
                                    "[model-route q]\nmodel = m\ntarget = s\n[model-route n]\ntarget = s\n",
                                    NULL, NULL);

    (void)state;
    fixture_expect(&f, false, ":3: [model-server t] is the target of no model-route");
    fixture_expect(&f, false,
                   ":8: [model-route r]: no request comes here: rule \"all\" before it has no condition");
    fixture_expect(&f, false, ":11: model-route \"q\" gets no request: \"r\" at ");
    fixture_expect(&f, false, ":5: [model-route r]: adapter \"n\" gets no request: a model has this name");
    fixture_expect_count(&f, 0, 4);
    fixture_free(&f);
}

static void test_sticky_without_a_queue(void **state)
{
    static const char ini[] =
        "[model-server s]\npods = h:1\n[model-route a]\ntarget = s\nsticky_mode = prefer\n"
        "[model-route b]\ntarget = s\nsession_sticky = query:s\nsticky_mode = prefer\n"
        "[model-route c]\ntarget = s\nsession_sticky = query:s\nsticky_mode = wait:1s\n";
    struct fixture f = fixture_load(ini, NULL, NULL),
                   on = fixture_load(ini, LIST("--enable-session-boost"), NULL);

    (void)state;
    fixture_expect(&f, false, ":3: [model-route a]: sticky_mode has no effect here");
    fixture_expect(&f, false, ":10: [model-route c]: sticky_mode has no effect here");
    fixture_expect_count(&f, 0, 2);
    fixture_expect_count(&on, 0, 0);
    fixture_free(&f);
    fixture_free(&on);
}

static void test_no_file(void **state)
{
    struct fixture missing = fixture_load(NULL, LIST("--config=/nonexistent/r.ini"), NULL);
    struct fixture directory = fixture_load(NULL, NULL, LIST("ROUTER_CONFIG=/tmp"));
    struct fixture empty = fixture_load(NULL, LIST("--config="), NULL);

    (void)state;
    fixture_expect(&missing, true, "/nonexistent/r.ini: No such file or directory");
    fixture_expect(&directory, true, "/tmp: Is a directory");
    fixture_expect(&empty, true, "--config needs a file name");
    fixture_free(&missing);
    fixture_free(&directory);
    fixture_free(&empty);
}

/* ---- reload ---- */

static void test_reload_keeps_what_needs_a_restart(void **state)
{
    struct fixture old = fixture_load("[router]\nport = 1\nbind = ::1\nlog_level = warn\n", NULL, LIST(POD));
    struct fixture new =
        fixture_load("[router]\nport = 2\nlog_level = error\nenable_session_boost = true\n", NULL, LIST(POD));

    (void)state;
    config_keep_restart_options(new.c, old.c, &new.report);
    fixture_expect(&new, false, "ROUTER_PORT stays \"1\": \"2\" needs a restart");
    fixture_expect(&new, false, "ROUTER_BIND stays \"::1\": \"\" needs a restart");
    fixture_expect(&new, false, "ENABLE_SESSION_BOOST stays \"false\": \"true\" needs a restart");
    fixture_expect_count(&new, 0, 3);
    fixture_expect_value(new.c, CONFIG_OPT_port, "1", CONFIG_INI);
    fixture_expect_value(new.c, CONFIG_OPT_bind, "::1", CONFIG_INI);
    fixture_expect_value(new.c, CONFIG_OPT_enable_session_boost, "false", CONFIG_DEFAULT);
    fixture_expect_value(new.c, CONFIG_OPT_log_level, "error", CONFIG_INI);
    fixture_expect_value(old.c, CONFIG_OPT_bind, "::1", CONFIG_INI);
    fixture_free(&old);
    fixture_free(&new);
}

static void test_report_is_bounded_and_plain(void **state)
{
    struct config_report r = {0};

    (void)state;
    for (size_t i = 0; i < CONFIG_PROBLEMS_MAX + 50; i++)
        config_report_add(&r, i % 2 == 0, "a\nb\x1b[0m\x7f %zu", i);
    assert_int_equal(r.n, CONFIG_PROBLEMS_MAX);
    assert_int_equal(r.n_fatal, (CONFIG_PROBLEMS_MAX + 50) / 2);
    assert_string_equal(r.problems[1].text, "a?b?[0m? 1");
    config_report_free(&r);
    assert_int_equal(r.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precedence_of_every_option),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_flag_forms),
        cmocka_unit_test(test_bad_flags_are_all_listed),
        cmocka_unit_test(test_actions),
        cmocka_unit_test(test_headers_that_hold_no_ids),
        cmocka_unit_test(test_bad_environment_values_are_warnings),
        cmocka_unit_test(test_bad_environment_values_fail_a_check),
        cmocka_unit_test(test_values_without_a_limit),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_kubernetes_service_variables),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_fractions),
        cmocka_unit_test(test_fairness_ranges),
        cmocka_unit_test(test_durations_of_the_go_router),
        cmocka_unit_test(test_strategies),
        cmocka_unit_test(test_header_list),
        cmocka_unit_test(test_backends),
        cmocka_unit_test(test_bad_backends),
        cmocka_unit_test(test_backends_and_ini_of_one_model),
        cmocka_unit_test(test_routes_of_no_use),
        cmocka_unit_test(test_sticky_without_a_queue),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_reload_keeps_what_needs_a_restart),
        cmocka_unit_test(test_report_is_bounded_and_plain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
