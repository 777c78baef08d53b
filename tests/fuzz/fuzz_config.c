/* The INI text from any bytes; then the same bytes as the value of a variable and of a flag. What was read
 * without a problem and printed must read the same again. */
#include "config.h"
#include "config_ini.h"
#include "config_option.h"
#include "config_routes.h"
#include "mem.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct config *parse(struct slice text, struct config_report *report)
{
    struct config *c = mem_zalloc(sizeof(*c));

    config_option_set_defaults(c);
    config_ini_parse(c, text, "f", report);
    config_routes_resolve(c, "f", report);
    return c;
}

/* Without the file's name in the first line. */
static struct slice body(const struct buf *b)
{
    struct slice rest = buf_slice(b);

    (void)slice_cut(&rest, '\n');
    return rest;
}

/* Lines that are cut may change the white space of a list. */
static bool has_long_line(struct slice text)
{
    while (text.p != NULL) {
        if (slice_cut(&text, '\n').n > 150)
            return true;
    }
    return false;
}

static void check_round_trip(const struct config *c)
{
    struct config_report report = {0};
    struct buf once, twice;
    struct config *again;

    buf_init(&once, 1 << 24);
    buf_init(&twice, 1 << 24);
    assert(config_print(c, &once));
    again = parse(buf_slice(&once), &report);
    assert(report.n_fatal == 0);
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++)
        assert(has_long_line(body(&once)) || config_option_same(c, again, o));
    assert(config_print(again, &twice));
    assert(again->n_servers == c->n_servers && again->n_routes == c->n_routes);
    config_free(again);
    config_report_free(&report);
    buf_free(&once);
    buf_free(&twice);
}

static void fuzz_ini(struct slice text)
{
    struct config_report report = {0};
    struct config *c = parse(text, &report);

    assert(report.n <= CONFIG_PROBLEMS_MAX && (report.n_fatal > 0) == (report.n > 0));
    if (report.n_fatal == 0)
        check_round_trip(c);
    config_free(c);
    config_report_free(&report);
}

/* The value at once as variable and flag: both understand it, or neither. */
static void fuzz_value(enum config_option o, const char *value)
{
    const struct config_option_row *row = config_option_row(o);
    char *env[] = {mem_printf("%s=%s", row->env, value), NULL};
    char *argv[] = {mem_strdup("router"), mem_printf("--%s=%s", row->flag, value), mem_strdup("--check"),
                    NULL};
    struct config_inputs in = {1, argv, env};
    struct config_report of_env = {0}, of_flag = {0};
    enum config_action action;
    struct config *by_env = config_load(&in, &action, &of_env), *by_flag;
    static char *no_env[] = {NULL};

    in = (struct config_inputs){3, argv, no_env};
    by_flag = config_load(&in, &action, &of_flag);
    assert(action == CONFIG_CHECK);
    if (by_env->origins[o] == CONFIG_ENV)
        assert(by_flag->origins[o] == CONFIG_FLAG && config_option_same(by_env, by_flag, o));
    else if (value[0] != '\0' && row->type != CONFIG_TYPE_PORT)
        assert(of_flag.n_fatal > 0 && of_env.n > 0);
    config_free(by_env);
    config_free(by_flag);
    config_report_free(&of_env);
    config_report_free(&of_flag);
    mem_free(env[0]);
    for (size_t i = 0; i < 3; i++)
        mem_free(argv[i]);
}

/* Any bytes as a whole variable and a whole argument. */
static void fuzz_names(char *text)
{
    char *env[] = {text, NULL}, *argv[] = {text, text, NULL};
    struct config_inputs in = {2, argv, env};
    struct config_report report = {0};
    enum config_action action;

    if (strncmp(text, "--config", 8) != 0 && strncmp(text, "ROUTER_CONFIG", 13) != 0)
        config_free(config_load(&in, &action, &report));
    config_report_free(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_dup_slice((struct slice){(const char *)data, size});

    fuzz_ini((struct slice){(const char *)data, size});
    if (size > 0 && data[0] < CONFIG_OPTION_COUNT)
        fuzz_value((enum config_option)data[0], text + 1);
    else
        fuzz_names(text);
    mem_free(text);
    return 0;
}
