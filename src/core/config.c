/* config: joins defaults, INI file, environment and flags into one struct config and checks the whole. It
 * owns the order of the sources, the names in environment and command line, and the report; single values are
 * config_option's, the INI text is config_ini's, servers and routes are config_routes'. */
#include "config.h"
#include "config_ini.h"
#include "config_option.h"
#include "config_routes.h"
#include "config_text.h"
#include "kubeobj.h"
#include "mem.h"
#include "nearest.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- the report ---- */

/* Longer texts are cut. */
#define PROBLEM_TEXT_MAX 2048

void config_report_add(struct config_report *r, bool fatal, const char *fmt, ...)
{
    char text[PROBLEM_TEXT_MAX] = "";
    va_list args;

    assert(fmt != NULL);
    if (fatal)
        r->n_fatal++;
    if (r->n == CONFIG_PROBLEMS_MAX)
        return;
    if (r->n == r->cap) {
        r->cap = r->cap == 0 ? 8 : r->cap * 2;
        r->problems = mem_array(r->problems, r->cap, sizeof(*r->problems));
    }
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (char *p = text; *p != '\0'; p++) {
        if (iscntrl((unsigned char)*p))
            *p = '?';
    }
    r->problems[r->n++] = (struct config_problem){.fatal = fatal, .text = mem_strdup(text)};
}

void config_report_free(struct config_report *r)
{
    for (size_t i = 0; i < r->n; i++)
        mem_free(r->problems[i].text);
    mem_free(r->problems);
    *r = (struct config_report){0};
}

/* ---- flags ---- */

/* The command line taken apart: options are set only after INI file and environment were read. */
struct flags {
    enum config_action action;
    struct slice file; /* p is NULL: no --config */
    struct flag_value {
        enum config_option option;
        struct slice value;
    } * values;
    size_t n;
};

static const struct {
    const char *name;
    enum config_action action;
} actions[] = {
    {"help", CONFIG_HELP},   {"version", CONFIG_VERSION},       {"print-config", CONFIG_PRINT},
    {"check", CONFIG_CHECK}, {"print-example", CONFIG_EXAMPLE}, {"print-options-doc", CONFIG_OPTIONS_DOC}};

static void report_unknown_flag(struct slice name, struct config_report *report)
{
    struct nearest nearest;

    nearest_start(&nearest, name);
    nearest_try(&nearest, SLICE("config"));
    for (size_t i = 0; i < ARRAY_LEN(actions); i++)
        nearest_try(&nearest, slice_of(actions[i].name));
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++)
        nearest_try(&nearest, slice_of(config_option_row(o)->flag));
    config_report_add(report, true, "unknown flag --%.*s; the nearest known one is --%s", CONFIG_SHOWN(name),
                      nearest.best);
}

static bool take_action(struct flags *f, struct slice name, bool has_value, struct config_report *report)
{
    for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
        if (!slice_eq(name, slice_of(actions[i].name)))
            continue;
        if (has_value)
            config_report_add(report, true, "--%s takes no value", actions[i].name);
        f->action = actions[i].action;
        return true;
    }
    return false;
}

/* The value of a flag that needs one: after '=', or the next argument, which *i then skips. */
static bool take_value(const struct config_inputs *in, int *i, struct slice name, struct slice *value,
                       struct config_report *report)
{
    if (value->p != NULL)
        return true;
    if (*i + 1 >= in->argc) {
        config_report_add(report, true, "--%.*s needs a value: --%.*s=VALUE", CONFIG_SHOWN(name),
                          CONFIG_SHOWN(name));
        return false;
    }
    *value = slice_of(in->argv[++*i]);
    return true;
}

static void take_option(struct flags *f, const struct config_inputs *in, int *i, struct slice name,
                        struct slice value, struct config_report *report)
{
    enum config_option o = config_option_by_flag(name);

    if (o == CONFIG_OPTION_COUNT) {
        report_unknown_flag(name, report);
        return;
    }
    if (value.p == NULL && config_option_row(o)->type == CONFIG_TYPE_BOOL)
        value = SLICE("true");
    if (!take_value(in, i, name, &value, report))
        return;
    f->values = mem_array(f->values, f->n + 1, sizeof(*f->values));
    f->values[f->n++] = (struct flag_value){o, value};
}

static void take_argument(struct flags *f, const struct config_inputs *in, int *i,
                          struct config_report *report)
{
    struct slice argument = slice_of(in->argv[*i]), name, value;

    if (!slice_starts(argument, SLICE("--")) || argument.n == 2) {
        config_report_add(report, true, "unexpected argument \"%.*s\": flags are --NAME=VALUE%s",
                          CONFIG_SHOWN(argument),
                          argument.n > 0 && argument.p[0] == '-' ? ", with two dashes" : "");
        return;
    }
    value = (struct slice){argument.p + 2, argument.n - 2};
    name = slice_cut(&value, '=');
    if (take_action(f, name, value.p != NULL, report))
        return;
    if (!slice_eq(name, SLICE("config")))
        take_option(f, in, i, name, value, report);
    else if (take_value(in, i, name, &value, report))
        f->file = value;
}

static struct flags read_flags(const struct config_inputs *in, struct config_report *report)
{
    struct flags f = {.action = CONFIG_RUN};

    for (int i = 1; i < in->argc; i++)
        take_argument(&f, in, &i, report);
    return f;
}

static void apply_flags(struct config *c, const struct flags *f, struct config_report *report)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct flag_value *v = &f->values[i];
        char *error;

        if (config_option_set(c, v->option, v->value, &error))
            c->origins[v->option] = CONFIG_FLAG;
        else
            config_report_add(report, true, "--%s=%.*s: %s", config_option_row(v->option)->flag,
                              CONFIG_SHOWN(v->value), error);
        mem_free(error);
    }
}

/* ---- environment ---- */

/* Value of the variable; p is NULL when it is not set. */
static struct slice env_value(const struct config_inputs *in, struct slice name)
{
    for (char **e = in->env; e != NULL && *e != NULL; e++) {
        struct slice value = slice_of(*e);

        if (slice_eq(slice_cut(&value, '='), name) && value.p != NULL)
            return value;
    }
    return (struct slice){NULL, 0};
}

/* What Kubernetes puts into variables called ..._PORT for each Service of the namespace. */
static bool is_service_link(struct slice value)
{
    return slice_starts(value, SLICE("tcp://")) || slice_starts(value, SLICE("udp://")) ||
           slice_starts(value, SLICE("sctp://"));
}

static void report_service_link(struct slice name, struct slice value, struct config_report *report)
{
    char service[CONFIG_OPTION_NAME_MAX];
    size_t n = 0;

    for (; n + sizeof("_PORT") - 1 < name.n && n + 1 < sizeof(service); n++)
        service[n] = name.p[n] == '_' ? '-' : (char)tolower((unsigned char)name.p[n]);
    service[n] = '\0';
    config_report_add(
        report, false,
        "%.*s=%.*s ignored: Kubernetes sets it for the Service named \"%s\"; to set the port use the "
        "flag, or enableServiceLinks: false in the pod's spec",
        CONFIG_SHOWN(name), CONFIG_SHOWN(value), service);
}

static const char *origin_text(enum config_origin origin)
{
    return origin == CONFIG_INI ? "the INI file's" : "the default";
}

/* The option's value as a text; "" when it does not fit. Freed by the caller. */
static char *value_text(const struct config *c, enum config_option o)
{
    struct buf out;
    char *text;

    buf_init(&out, 4096);
    if (!config_option_format(c, o, &out))
        buf_clear(&out);
    text = mem_dup_slice(buf_slice(&out));
    buf_free(&out);
    return text;
}

static void report_bad_env(const struct config *c, enum config_option o, struct slice value,
                           const char *error, bool fatal, struct config_report *report)
{
    char *in_force = value_text(c, o);

    config_report_add(report, fatal, "%s=\"%.*s\": %s; using %s \"%.80s\"", config_env_name(o),
                      CONFIG_SHOWN(value), error, origin_text(c->origins[o]), in_force);
    mem_free(in_force);
}

/* Empty counts as not set, as in the Go router, with the exceptions it has. */
static bool is_set(enum config_option o, struct slice value)
{
    static const enum config_option exceptions[] = {
        CONFIG_OPT_session_boost_timeout_us, CONFIG_OPT_fairness_queue_timeout_us,
        CONFIG_OPT_fairness_priority_token_weight, CONFIG_OPT_fairness_priority_request_num_weight};

    for (size_t i = 0; value.p != NULL && i < ARRAY_LEN(exceptions); i++) {
        if (exceptions[i] == o)
            return true;
    }
    return value.n > 0;
}

/* That the environment wins is no fault; --check says it, for who edits the file sees no effect. */
static void set_from_env(struct config *c, enum config_option o, struct slice value, bool check,
                         struct config_report *report)
{
    char *before = check && c->origins[o] == CONFIG_INI ? value_text(c, o) : NULL, *after = NULL, *error;

    if (config_option_set(c, o, value, &error))
        c->origins[o] = CONFIG_ENV;
    else
        report_bad_env(c, o, value, error, check, report);
    if (before != NULL)
        after = value_text(c, o);
    if (after != NULL && strcmp(before, after) != 0)
        config_report_add(report, false, "%s=\"%.80s\" overrides %s = %.80s of the INI file",
                          config_env_name(o), after, config_option_row(o)->key, before);
    mem_free(before);
    mem_free(after);
    mem_free(error);
}

static void apply_env(struct config *c, const struct config_inputs *in, bool check,
                      struct config_report *report)
{
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        struct slice name = slice_of(config_env_name(o)), value = env_value(in, name);

        if (!is_set(o, value))
            continue;
        if (config_option_row(o)->type == CONFIG_TYPE_PORT && is_service_link(value)) {
            report_service_link(name, value, report);
            continue;
        }
        set_from_env(c, o, value, check, report);
    }
}

/* ROUTER_SERVICE_HOST, ROUTER_SERVICE_PORT[_NAME], ROUTER_PORT_80_TCP[_ADDR ...], also of Services like
 * router-metrics. */
static bool is_service_name(struct slice name, struct slice value)
{
    const char *port = memmem(name.p, name.n, "_PORT_", 6);

    if (memmem(name.p, name.n, "_SERVICE_HOST", 13) != NULL ||
        memmem(name.p, name.n, "_SERVICE_PORT", 13) != NULL)
        return true;
    return is_service_link(value) ||
           (port != NULL && port + 6 < name.p + name.n && isdigit((unsigned char)port[6]));
}

static bool is_ours(struct slice name)
{
    return slice_starts(name, SLICE("SESSION_BOOST_")) || slice_starts(name, SLICE("SESSION_STICKY")) ||
           slice_starts(name, SLICE("ROUTER_")) || slice_starts(name, SLICE("FAIRNESS_"));
}

/* Distance 0: the name itself is known. */
static struct nearest nearest_env(struct slice name)
{
    struct nearest nearest;

    nearest_start(&nearest, name);
    nearest_try(&nearest, SLICE("ROUTER_CONFIG"));
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++)
        nearest_try(&nearest, slice_of(config_env_name(o)));
    return nearest;
}

static void check_env_names(const struct config_inputs *in, struct config_report *report)
{
    for (char **e = in->env; e != NULL && *e != NULL; e++) {
        struct slice value = slice_of(*e), name = slice_cut(&value, '=');
        struct nearest nearest;

        if (!is_ours(name) || is_service_name(name, value))
            continue;
        nearest = nearest_env(name);
        if (!slice_eq(name, slice_of(nearest.best)))
            config_report_add(report, false, "unknown variable %.*s is ignored; the nearest known one is %s",
                              CONFIG_SHOWN(name), nearest.best);
    }
}

/* ---- the INI file ---- */

/* The whole file, or NULL: reported. */
static char *read_file(const char *path, size_t *n_bytes, struct config_report *report)
{
    char *bytes = NULL;
    FILE *f = fopen(path, "re");

    if (f == NULL)
        goto fail;
    bytes = mem_alloc(CONFIG_INI_BYTES_MAX + 1);
    *n_bytes = fread(bytes, 1, CONFIG_INI_BYTES_MAX + 1, f);
    if (ferror(f) != 0)
        goto fail;
    (void)fclose(f);
    if (*n_bytes <= CONFIG_INI_BYTES_MAX)
        return bytes;
    config_report_add(report, true, "%.250s: larger than 4 MiB; expected an INI file", path);
    mem_free(bytes);
    return NULL;
fail:
    config_report_add(report, true, "%.250s: %s; expected an INI file", path, strerror(errno));
    if (f != NULL)
        (void)fclose(f);
    mem_free(bytes);
    return NULL;
}

static void apply_ini(struct config *c, const struct config_inputs *in, const struct flags *f,
                      struct config_report *report)
{
    struct slice path = f->file.p != NULL ? f->file : env_value(in, SLICE("ROUTER_CONFIG"));
    size_t n_bytes;
    char *bytes;

    if (path.n == 0) {
        if (f->file.p != NULL)
            config_report_add(report, true, "--config needs a file name");
        return;
    }
    c->file = mem_dup_slice(path);
    bytes = read_file(c->file, &n_bytes, report);
    if (bytes != NULL)
        config_ini_parse(c, (struct slice){bytes, n_bytes}, c->file, report);
    mem_free(bytes);
}

/* ---- the whole ---- */

static void check_strategies(const struct config *c, struct config_report *report)
{
    if (c->enable_session_boost && c->enable_fairness_scheduling)
        config_report_add(report, true,
                          "ENABLE_SESSION_BOOST and ENABLE_FAIRNESS_SCHEDULING are both on; expected one "
                          "of them");
    if (c->enable_fairness_scheduling && !(c->fairness_priority_token_weight > 0) &&
        !(c->fairness_priority_request_num_weight > 0))
        config_report_add(
            report, false,
            "FAIRNESS_PRIORITY_TOKEN_WEIGHT and FAIRNESS_PRIORITY_REQUEST_NUM_WEIGHT are both 0, which "
            "would rank nobody; the token weight counts as 1");
}

/* A list separated by commas, checked already. The names are parts of the text. */
static void split_list(const char *text, struct slice **names, size_t *n)
{
    for (struct slice rest = slice_of(text); rest.p != NULL;) {
        *names = mem_array(*names, *n + 1, sizeof(**names));
        (*names)[(*n)++] = slice_trim(slice_cut(&rest, ','));
    }
}

/* 0 = any free port, so several of those are no clash. */
static void check_ports(const struct config *c, struct config_report *report)
{
    const int64_t ports[] = {c->port, c->metrics_port, c->debug_port};
    static const char *const names[] = {"ROUTER_PORT", "ROUTER_METRICS_PORT", "ROUTER_DEBUG_PORT"};

    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        for (size_t k = i + 1; k < ARRAY_LEN(ports); k++) {
            if (ports[i] != 0 && ports[i] == ports[k])
                config_report_add(report, true,
                                  "%s and %s are both %lld: each listener needs a port of its own", names[i],
                                  names[k], (long long)ports[i]);
        }
    }
}

static void check_tls(const struct config *c, struct config_report *report)
{
    if ((c->tls_cert[0] == '\0') != (c->tls_key[0] == '\0'))
        config_report_add(report, true, "%s is set and %s is not: TLS needs both",
                          c->tls_cert[0] == '\0' ? "ROUTER_TLS_KEY" : "ROUTER_TLS_CERT",
                          c->tls_cert[0] == '\0' ? "ROUTER_TLS_CERT" : "ROUTER_TLS_KEY");
}

/* Anything else would go into the path of each request. */
static void check_namespace(const struct config *c, struct config_report *report)
{
    const struct slice namespace = slice_of(c->kubernetes_namespace);

    if (namespace.n > 0 && !kubeobj_is_label(namespace))
        config_report_add(report, true,
                          "ROUTER_KUBERNETES_NAMESPACE is \"%.*s\": expected lower-case letters, digits and "
                          "dashes",
                          CONFIG_SHOWN(namespace));
}

static void check_use(const struct config *c, struct config_report *report)
{
    if (c->n_routes == 0 && !c->kubernetes)
        config_report_add(report, false,
                          "no models are configured, every request will get 404: set ROUTER_BACKENDS, or "
                          "[model-server] and [model-route] in the INI file");
    config_routes_check_use(c, report);
}

/* What can be judged only when all sources were read. */
static void finish(struct config *c, struct config_report *report)
{
    check_strategies(c, report);
    check_ports(c, report);
    check_tls(c, report);
    check_namespace(c, report);
    split_list(c->session_boost_header, &c->session_headers, &c->n_session_headers);
    split_list(c->fairness_user_header, &c->user_headers, &c->n_user_headers);
    if (c->cors_allow_origins[0] != '\0')
        split_list(c->cors_allow_origins, &c->cors_origins, &c->n_cors_origins);
    config_routes_add_backends(c, slice_of(c->backends), report);
    config_routes_resolve(c, c->file, report);
    if (report->n_fatal == 0)
        check_use(c, report);
}

struct config *config_load(const struct config_inputs *in, enum config_action *action,
                           struct config_report *report)
{
    struct config *c = mem_zalloc(sizeof(*c));
    struct flags f = read_flags(in, report);

    config_option_set_defaults(c);
    *action = f.action;
    if (f.action == CONFIG_RUN || f.action == CONFIG_CHECK || f.action == CONFIG_PRINT) {
        apply_ini(c, in, &f, report);
        apply_env(c, in, f.action == CONFIG_CHECK, report);
        check_env_names(in, report);
        apply_flags(c, &f, report);
        finish(c, report);
    }
    mem_free(f.values);
    return c;
}

void config_free(struct config *c)
{
    if (c == NULL)
        return;
    mem_free(c->session_headers);
    mem_free(c->user_headers);
    mem_free(c->cors_origins);
    mem_free(c->file);
    config_option_free_all(c);
    config_routes_free(c);
    mem_free(c);
}

static void report_restart(const struct config *next, const struct config *running, enum config_option o,
                           struct config_report *report)
{
    struct buf text;
    size_t cut;

    buf_init(&text, 8192);
    if (!config_option_format(running, o, &text))
        buf_clear(&text);
    cut = text.len;
    if (!config_option_format(next, o, &text))
        cut = text.len;
    config_report_add(report, false, "%s stays \"%.*s\": \"%.*s\" needs a restart", config_env_name(o),
                      CONFIG_SHOWN(((struct slice){buf_slice(&text).p, cut})),
                      CONFIG_SHOWN(((struct slice){buf_slice(&text).p + cut, text.len - cut})));
    buf_free(&text);
}

void config_keep_restart_options(struct config *next, const struct config *running,
                                 struct config_report *report)
{
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        if (!config_option_row(o)->restart || config_option_same(next, running, o))
            continue;
        report_restart(next, running, o, report);
        config_option_copy(next, running, o);
    }
}

/* ---- texts: config.h is all that the application includes ---- */

bool config_help(struct buf *out)
{
    return config_text_help(out);
}

bool config_print(const struct config *c, struct buf *out)
{
    return config_text_print(c, out);
}

bool config_example(struct buf *out)
{
    return config_text_example(out);
}

bool config_options_doc(struct buf *out)
{
    return config_text_options_doc(out);
}

bool config_value(const struct config *c, enum config_option o, struct buf *out)
{
    return config_option_format(c, o, out);
}

const char *config_env_name(enum config_option o)
{
    return config_option_row(o)->env;
}
