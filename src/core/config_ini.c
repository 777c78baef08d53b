/* config_ini: reads the INI text through inih and fills options, servers and routes. It owns lines, sections
 * and keys; the syntax of values is config_option's and config_routes'.
 *
 * inih takes its input from a reader of ours, line by line, and calls the handler from within. The reader is
 * where its limits are dealt with: it cuts lines at about 200 bytes and section names at 49 without a word.
 * So the reader hands a long line over in pieces, as a line and its continuations, and keeps the section's
 * name itself. It also removes comments, so that no piece can start in the middle of one, and notes lines
 * that never reached the handler. */
#include "config_ini.h"
#include "authority.h"
#include "config_option.h"
#include "config_routes.h"
#include "duration.h"
#include "headers.h"
#include "kubeslices.h"
#include "mem.h"
#include "nearest.h"

#include <ini.h>

enum section { SECTION_NONE, SECTION_ROUTER, SECTION_SERVER, SECTION_ROUTE, SECTION_RULE, SECTION_IGNORED };

/* The keys of all sections but [router]. */
enum key {
    KEY_PODS,
    KEY_DNS,
    KEY_SERVICE,
    KEY_PROTOCOL,
    KEY_TLS_NAME,
    KEY_ENGINE,
    KEY_MODEL,
    KEY_TIMEOUT,
    KEY_TARGET,
    KEY_LORA,
    KEY_HEADER,
    KEY_URI,
    KEY_SESSION_STICKY,
    KEY_STICKY_TTL,
    KEY_STICKY_MODE,
    KEY_POLICY,
    KEY_SCORE,
    KEY_MAX_WAITING,
    KEY_COUNT
};
static const struct {
    const char *name;
    bool in_server, in_route, in_rule;
    bool list; /* may go on in indented lines */
} keys[KEY_COUNT] = {
    [KEY_PODS] = {"pods", true, false, false, true},
    [KEY_DNS] = {"dns", true, false, false, false},
    [KEY_SERVICE] = {"service", true, false, false, false},
    [KEY_PROTOCOL] = {"protocol", true, false, false, false},
    [KEY_TLS_NAME] = {"tls_name", true, false, false, false},
    [KEY_ENGINE] = {"engine", true, false, false, false},
    [KEY_MODEL] = {"model", true, true, true, false},
    [KEY_TIMEOUT] = {"timeout", true, false, false, false},
    [KEY_TARGET] = {"target", false, true, true, true},
    [KEY_LORA] = {"lora", false, true, false, true},
    [KEY_HEADER] = {"header", false, false, true, false},
    [KEY_URI] = {"uri", false, false, true, false},
    [KEY_SESSION_STICKY] = {"session_sticky", false, true, false, true},
    [KEY_STICKY_TTL] = {"sticky_ttl", false, true, false, false},
    [KEY_STICKY_MODE] = {"sticky_mode", false, true, false, false},
    [KEY_POLICY] = {"policy", false, true, false, false},
    [KEY_SCORE] = {"score", false, true, false, true},
    [KEY_MAX_WAITING] = {"max_waiting", false, true, false, false},
};

/* What an indented line, or the rest of a long one, belongs to. */
enum open_value { OPEN_NOTHING, OPEN_IGNORED, OPEN_ONE_LINE, OPEN_LIST, OPEN_OPTION };

struct ini {
    struct config *c;
    struct config_report *report;
    const char *file;
    /* The reader */
    struct slice text; /* not read yet; p is NULL at the end */
    struct slice rest; /* of a long line, not handed over yet */
    size_t line;       /* number of the line handed over last */
    bool expected;     /* the handler must be called for it */
    bool continues;    /* it belongs to the value before it */
    bool piece;        /* it is no line of the file but the rest of one */
    enum open_value open;
    /* The section */
    enum section section;
    size_t section_line, router_line;
    size_t entry;            /* index of its server or route */
    size_t rule;             /* index of its rule in the route */
    size_t lines[KEY_COUNT]; /* of its keys; 0 = it has not got that one */
    enum key list;           /* that is open (OPEN_LIST) */
    size_t section_errors;   /* fatal problems when it began */
    unsigned scores;         /* a bit for each enum policy_score that it has named */
    /* The option that is set when all its lines have come in (OPEN_OPTION) */
    enum config_option option;
    struct buf value;
    size_t option_lines[CONFIG_OPTION_COUNT]; /* where each was set; 0 = not yet */
};

#define INI_ERROR(ini, at_line, ...) report_error((ini), (at_line), mem_printf(__VA_ARGS__))

/* Frees the text. */
static void report_error(const struct ini *ini, size_t line, char *text)
{
    config_report_add(ini->report, true, "%.250s:%zu: %s", ini->file, line, text);
    mem_free(text);
}

/* ---- options of [router] ---- */

/* Sets the option whose lines have all come in. */
static void close_option(struct ini *ini)
{
    struct slice value = slice_trim(buf_slice(&ini->value));
    char *error;

    if (ini->open != OPEN_OPTION)
        return;
    if (config_option_set(ini->c, ini->option, value, &error))
        ini->c->origins[ini->option] = CONFIG_INI;
    else
        INI_ERROR(ini, ini->option_lines[ini->option], "%s = %.*s: %s", config_option_row(ini->option)->key,
                  CONFIG_SHOWN(value), error);
    mem_free(error);
    buf_clear(&ini->value);
    ini->open = OPEN_NOTHING;
}

/* Pieces were cut at white space or after a comma. */
static void append_value(struct ini *ini, struct slice piece)
{
    struct slice value = buf_slice(&ini->value);
    bool glue = value.n == 0 || value.p[value.n - 1] == ',';

    if ((!glue && !buf_append(&ini->value, " ", 1)) || !buf_append_slice(&ini->value, piece))
        INI_ERROR(ini, ini->line, "the value is too long");
}

static void report_unknown_option(const struct ini *ini, struct slice key)
{
    struct nearest nearest;

    nearest_start(&nearest, key);
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++)
        nearest_try(&nearest, slice_of(config_option_row(o)->key));
    INI_ERROR(ini, ini->line, "unknown option \"%.*s\" in [router]; the nearest known one is \"%s\"",
              CONFIG_SHOWN(key), nearest.best);
}

static void on_option(struct ini *ini, struct slice key, struct slice value)
{
    enum config_option o = config_option_by_key(key);

    if (o == CONFIG_OPTION_COUNT) {
        report_unknown_option(ini, key);
        return;
    }
    if (ini->option_lines[o] != 0) {
        INI_ERROR(ini, ini->line, "\"%s\" is given twice, first in line %zu", config_option_row(o)->key,
                  ini->option_lines[o]);
        return;
    }
    ini->option_lines[o] = ini->line;
    ini->option = o;
    ini->open = OPEN_OPTION;
    append_value(ini, value);
}

/* ---- keys of [model-server] and [model-route] ---- */

static const char *section_word(const struct ini *ini)
{
    return ini->section == SECTION_SERVER  ? "model-server"
           : ini->section == SECTION_ROUTE ? "model-route"
                                           : "model-route .../rule ...";
}

static bool key_fits(const struct ini *ini, enum key k)
{
    return ini->section == SECTION_SERVER  ? keys[k].in_server
           : ini->section == SECTION_ROUTE ? keys[k].in_route
                                           : keys[k].in_rule;
}

/* KEY_COUNT: unknown, and reported. */
static enum key find_key(const struct ini *ini, struct slice name)
{
    struct nearest nearest;

    nearest_start(&nearest, name);
    for (enum key k = 0; k < KEY_COUNT; k++) {
        if (!key_fits(ini, k))
            continue;
        if (slice_eq(name, slice_of(keys[k].name)))
            return k;
        nearest_try(&nearest, slice_of(keys[k].name));
    }
    INI_ERROR(ini, ini->line, "unknown key \"%.*s\" in [%s]; the nearest known one is \"%s\"",
              CONFIG_SHOWN(name), section_word(ini), nearest.best);
    return KEY_COUNT;
}

static void set_engine(struct ini *ini, struct config_server *s, struct slice value)
{
    if (slice_eq(value, SLICE("vllm")))
        s->engine = PROMTEXT_VLLM;
    else if (slice_eq(value, SLICE("sglang")))
        s->engine = PROMTEXT_SGLANG;
    else if (slice_eq(value, SLICE("none")))
        s->engine = PROMTEXT_NONE;
    else
        INI_ERROR(ini, ini->line, "engine = %.*s: expected vllm, sglang or none", CONFIG_SHOWN(value));
}

static void set_timeout(struct ini *ini, struct config_server *s, struct slice value)
{
    if (!duration_parse(value, &s->timeout_us) || s->timeout_us < 0)
        INI_ERROR(ini, ini->line,
                  "timeout = %.*s: expected a duration such as 30s, or 0 for UPSTREAM_HEADER_TIMEOUT",
                  CONFIG_SHOWN(value));
}

static void set_dns(struct ini *ini, struct config_server *s, struct slice value)
{
    const char *error;

    if (!authority_parse(value, &s->dns, &error))
        INI_ERROR(ini, ini->line, "dns = %.*s: %s", CONFIG_SHOWN(value), error);
}

static void set_service(struct ini *ini, struct config_server *s, struct slice value)
{
    struct slice namespace, name, port;
    const char *error;

    if (kubeslices_parse_service(value, &namespace, &name, &port, &error))
        s->service = mem_dup_slice(value);
    else
        INI_ERROR(ini, ini->line, "service = %.*s: %s", CONFIG_SHOWN(value), error);
}

static struct config_place here(const struct ini *ini)
{
    return (struct config_place){ini->file, ini->line};
}

static void set_protocol(struct ini *ini, struct config_server *s, struct slice value)
{
    s->https = slice_eq(value, SLICE("https"));
    if (!s->https && !slice_eq(value, SLICE("http")))
        INI_ERROR(ini, ini->line, "protocol = %.*s: expected http or https", CONFIG_SHOWN(value));
}

static void set_tls_name(struct ini *ini, struct config_server *s, struct slice value)
{
    char *name = mem_dup_slice(value), *with_port = mem_printf("%s:1", name), *authority = NULL;
    const char *error;

    if (authority_is_ip(value) || authority_parse(slice_of(with_port), &authority, &error)) {
        s->tls_name = name;
        name = NULL;
    } else {
        INI_ERROR(ini, ini->line, "tls_name = %.*s: expected a host name or an IP address",
                  CONFIG_SHOWN(value));
    }
    mem_free(authority);
    mem_free(with_port);
    mem_free(name);
}

static void set_server_key(struct ini *ini, enum key k, struct slice value)
{
    struct config_server *s = &ini->c->servers[ini->entry];

    if (k == KEY_PODS)
        config_routes_add_pods(s, value, here(ini), ini->report);
    else if (k == KEY_DNS)
        set_dns(ini, s, value);
    else if (k == KEY_SERVICE)
        set_service(ini, s, value);
    else if (k == KEY_PROTOCOL)
        set_protocol(ini, s, value);
    else if (k == KEY_TLS_NAME)
        set_tls_name(ini, s, value);
    else if (k == KEY_ENGINE)
        set_engine(ini, s, value);
    else if (k == KEY_TIMEOUT)
        set_timeout(ini, s, value);
    else
        s->model = mem_dup_slice(value);
}

static void set_targets(struct ini *ini, struct route_rule_spec *r, struct slice value)
{
    if (r == NULL) {
        INI_ERROR(ini, ini->line, "too many rules: at most %d in a route", ROUTE_RULES_MAX);
        return;
    }
    if (r->target_line == 0)
        r->target_line = ini->line;
    config_routes_add_targets(r, value, here(ini), ini->report);
}

static void set_sticky_ttl(struct ini *ini, struct route_spec *s, struct slice value)
{
    if (!duration_parse(value, &s->sticky_ttl_us) || s->sticky_ttl_us <= 0)
        INI_ERROR(ini, ini->line, "sticky_ttl = %.*s: expected a duration above 0 such as 3h",
                  CONFIG_SHOWN(value));
}

static void set_sticky_mode(struct ini *ini, struct route_spec *s, struct slice value)
{
    if (slice_eq(value, SLICE("off")))
        s->sticky = ROUTE_STICKY_OFF;
    else if (slice_eq(value, SLICE("prefer")))
        s->sticky = ROUTE_STICKY_PREFER;
    else if (slice_starts(value, SLICE("wait:")) &&
             duration_parse((struct slice){value.p + 5, value.n - 5}, &s->sticky_wait_us) &&
             s->sticky_wait_us > 0)
        s->sticky = ROUTE_STICKY_WAIT;
    else
        INI_ERROR(ini, ini->line, "sticky_mode = %.*s: expected off, prefer or wait:DURATION such as wait:5s",
                  CONFIG_SHOWN(value));
}

/* Digits alone. */
static bool parse_count(struct slice text, int64_t *n)
{
    *n = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || i > 8)
            return false;
        *n = *n * 10 + (text.p[i] - '0');
    }
    return text.n > 0;
}

static void set_policy(struct ini *ini, struct route_spec *s, struct slice value)
{
    const enum policy_kind kind = policy_by_word(value);

    if (kind == POLICY_KINDS)
        INI_ERROR(
            ini, ini->line,
            "policy = %.*s: expected least-request, round-robin, random, prefix, least-latency or kv-usage",
            CONFIG_SHOWN(value));
    else
        s->policy.kind = kind;
}

/* NAME or NAME:WEIGHT */
static void set_score(struct ini *ini, struct route_spec *s, struct slice item)
{
    struct slice weight = item, word = slice_trim(slice_cut(&weight, ':'));
    const enum policy_score score = policy_score_by_word(word);
    int64_t n = 1;

    weight = slice_trim(weight);
    if (score == POLICY_SCORES ||
        (weight.p != NULL && (!parse_count(weight, &n) || n < 0 || n > POLICY_WEIGHT_MAX)))
        INI_ERROR(ini, ini->line,
                  "score: \"%.*s\": expected NAME or NAME:WEIGHT, the name one of least-request, random, "
                  "prefix, least-latency and kv-usage, the weight 0 to 1000 (1 when not given)",
                  CONFIG_SHOWN(item));
    else if ((ini->scores & 1U << score) != 0)
        INI_ERROR(ini, ini->line, "score: \"%.*s\" is given twice; expected each once", CONFIG_SHOWN(word));
    else
        s->policy.weights[score] = (unsigned)n;
    if (score != POLICY_SCORES)
        ini->scores |= 1U << score;
}

static void set_scores(struct ini *ini, struct route_spec *s, struct slice list)
{
    s->policy.kind = POLICY_SCORE;
    while (list.p != NULL) {
        const struct slice item = slice_trim(slice_cut(&list, ','));

        if (item.n > 0)
            set_score(ini, s, item);
        else if (list.p != NULL) /* a comma may end the line */
            INI_ERROR(ini, ini->line, "score: an empty name before a comma; expected NAME:WEIGHT, ...");
    }
}

static void set_max_waiting(struct ini *ini, struct route_spec *s, struct slice value)
{
    if (!parse_count(value, &s->policy.max_waiting) || s->policy.max_waiting < 1 ||
        s->policy.max_waiting > 1000000)
        INI_ERROR(ini, ini->line, "max_waiting = %.*s: expected a number of requests, 1 to 1000000",
                  CONFIG_SHOWN(value));
}

static void set_route_key(struct ini *ini, enum key k, struct slice value)
{
    struct route_spec *s = &ini->c->routes[ini->entry];

    if (k == KEY_TARGET) {
        set_targets(ini, config_routes_own_rule(s), value);
    } else if (k == KEY_LORA) {
        config_routes_add_adapters(s, value, here(ini), ini->report);
    } else if (k == KEY_SESSION_STICKY) {
        config_routes_add_sources(s, value, here(ini), ini->report);
    } else if (k == KEY_STICKY_TTL) {
        set_sticky_ttl(ini, s, value);
    } else if (k == KEY_STICKY_MODE) {
        set_sticky_mode(ini, s, value);
    } else if (k == KEY_POLICY) {
        set_policy(ini, s, value);
    } else if (k == KEY_SCORE) {
        set_scores(ini, s, value);
    } else if (k == KEY_MAX_WAITING) {
        set_max_waiting(ini, s, value);
    } else {
        mem_free(s->model);
        s->model = mem_dup_slice(value);
    }
}

/* KIND:TEXT */
static void set_match(struct ini *ini, struct route_match *m, const char *key, struct slice value,
                      const char *(*problem_of)(const struct route_match *m))
{
    struct slice text = value, word = slice_cut(&text, ':');
    const char *problem;

    for (enum route_match_kind kind = ROUTE_EXACT; kind <= ROUTE_REGEX; kind++) {
        if (text.p == NULL || !slice_eq(word, slice_of(route_match_word(kind))))
            continue;
        m->kind = kind;
        text = slice_trim(text); /* as values of headers are */
        m->text = mem_dup_slice(text);
        problem = problem_of(m);
        if (problem != NULL)
            INI_ERROR(ini, ini->line, "%s: %s \"%.*s\": %s", key, route_match_word(kind), CONFIG_SHOWN(text),
                      problem);
        return;
    }
    INI_ERROR(ini, ini->line, "%s: \"%.*s\": expected exact:TEXT, prefix:TEXT or regex:PATTERN", key,
              CONFIG_SHOWN(value));
}

/* NAME KIND:TEXT */
static void set_header(struct ini *ini, struct route_rule_spec *r, struct slice value)
{
    struct slice name = {value.p, 0};
    struct route_header *h;

    while (name.n < value.n && value.p[name.n] != ' ' && value.p[name.n] != '\t')
        name.n++;
    if (!headers_is_name(name)) {
        INI_ERROR(ini, ini->line, "header: \"%.*s\" is not a header name; expected NAME MATCH",
                  CONFIG_SHOWN(name));
        return;
    }
    if (route_hides_header(name)) {
        INI_ERROR(ini, ini->line, "header: %.*s is not passed on to pods, and rules cannot see it",
                  CONFIG_SHOWN(name));
        return;
    }
    h = route_rule_add_header(r, name);
    if (h == NULL)
        INI_ERROR(ini, ini->line, "too many headers: at most %d in a rule", ROUTE_HEADERS_MAX);
    else
        set_match(ini, &h->value, "header = NAME MATCH",
                  slice_trim((struct slice){value.p + name.n, value.n - name.n}), route_match_problem);
}

static void set_rule_key(struct ini *ini, enum key k, struct slice value)
{
    struct route_rule_spec *r = &ini->c->routes[ini->entry].rules[ini->rule];

    if (k == KEY_TARGET)
        set_targets(ini, r, value);
    else if (k == KEY_HEADER)
        set_header(ini, r, value);
    else if (k == KEY_URI)
        set_match(ini, &r->uri, "uri = MATCH", value, route_uri_problem);
    else
        r->model = mem_dup_slice(value);
}

static void set_key(struct ini *ini, enum key k, struct slice value)
{
    if (ini->section == SECTION_SERVER)
        set_server_key(ini, k, value);
    else if (ini->section == SECTION_ROUTE)
        set_route_key(ini, k, value);
    else
        set_rule_key(ini, k, value);
}

static void on_key(struct ini *ini, struct slice name, struct slice value)
{
    enum key k = find_key(ini, name);

    if (k == KEY_COUNT)
        return;
    if (k != KEY_HEADER && ini->lines[k] != 0) {
        INI_ERROR(ini, ini->line, "\"%s\" is given twice in [%s], first in line %zu", keys[k].name,
                  section_word(ini), ini->lines[k]);
        return;
    }
    ini->lines[k] = ini->line;
    ini->open = keys[k].list ? OPEN_LIST : OPEN_ONE_LINE;
    ini->list = k;
    if (value.n == 0 && !keys[k].list) /* a list may start on the next line */
        INI_ERROR(ini, ini->line, "\"%s\" has no value", keys[k].name);
    else
        set_key(ini, k, value);
}

/* ---- sections ---- */

static void close_server(struct ini *ini)
{
    const struct config_server *s = &ini->c->servers[ini->entry];
    bool pods = ini->lines[KEY_PODS] != 0, dns = ini->lines[KEY_DNS] != 0;
    bool service = ini->lines[KEY_SERVICE] != 0;

    if (pods + dns + service != 1)
        INI_ERROR(ini, ini->section_line,
                  "[model-server %.80s] has %s of pods, dns and service; expected one", s->name,
                  pods + dns + service == 0 ? "none" : "several");
    else if (pods && s->n_pods == 0 && ini->report->n_fatal == ini->section_errors)
        INI_ERROR(ini, ini->section_line,
                  "[model-server %.80s]: pods is empty; expected host:port, host:port, ...", s->name);
    if (ini->lines[KEY_TLS_NAME] != 0 && !s->https)
        INI_ERROR(ini, ini->section_line, "[model-server %.80s] has a tls_name; it needs protocol = https",
                  s->name);
}

/* An empty list is as good as none. */
static bool has_targets(const struct route_spec *s)
{
    for (size_t i = 0; i < s->n_rules; i++) {
        if (s->rules[i].name == NULL)
            return s->rules[i].n_targets > 0;
    }
    return false;
}

static void close_sticky(struct ini *ini, struct route_spec *s)
{
    if (ini->lines[KEY_SESSION_STICKY] != 0) {
        if (s->n_sources == 0 && ini->report->n_fatal == ini->section_errors)
            INI_ERROR(ini, ini->section_line,
                      "[model-route %.80s]: session_sticky is empty; expected header:NAME, cookie:NAME or "
                      "query:NAME",
                      s->name);
        if (s->sticky_ttl_us == 0)
            s->sticky_ttl_us = ROUTE_STICKY_TTL_US;
    } else if (ini->lines[KEY_STICKY_TTL] != 0) {
        INI_ERROR(ini, ini->section_line,
                  "[model-route %.80s]: sticky_ttl is for session_sticky, which is not given", s->name);
    }
}

static void close_policy(struct ini *ini, const struct route_spec *s)
{
    unsigned sum = 0;

    for (size_t i = 0; i < POLICY_SCORES; i++)
        sum += s->policy.weights[i];
    if (ini->lines[KEY_POLICY] != 0 && ini->lines[KEY_SCORE] != 0)
        INI_ERROR(ini, ini->section_line,
                  "[model-route %.80s] has both policy and score; expected one of the two", s->name);
    else if (ini->lines[KEY_SCORE] != 0 && sum == 0 && ini->report->n_fatal == ini->section_errors)
        INI_ERROR(ini, ini->section_line,
                  "[model-route %.80s]: score is empty; expected NAME or NAME:WEIGHT with a weight "
                  "above 0",
                  s->name);
}

static void close_route(struct ini *ini)
{
    struct route_spec *s = &ini->c->routes[ini->entry];

    close_sticky(ini, s);
    close_policy(ini, s);
    if (ini->lines[KEY_TARGET] != 0 && !has_targets(s))
        INI_ERROR(ini, ini->section_line,
                  "[model-route %.80s]: target is empty; expected NAME, NAME:WEIGHT, ...", s->name);
}

static bool serves_name(const struct route_spec *s, const char *name)
{
    bool found = strcmp(s->model, name) == 0;

    for (size_t i = 0; i < s->n_adapters && !found; i++)
        found = strcmp(s->adapters[i], name) == 0;
    return found;
}

static void close_rule(struct ini *ini)
{
    const struct route_spec *s = &ini->c->routes[ini->entry];

    if (s->rules[ini->rule].n_targets == 0)
        INI_ERROR(ini, ini->section_line,
                  "[model-route %.80s/rule %.80s] has no target; expected the name of a model-server",
                  s->name, s->rules[ini->rule].name);
    if (s->rules[ini->rule].model != NULL && !serves_name(s, s->rules[ini->rule].model))
        INI_ERROR(
            ini, ini->lines[KEY_MODEL],
            "[model-route %.80s/rule %.80s]: model = %.80s matches no request: the route serves \"%.80s\" "
            "and its adapters (lora)",
            s->name, s->rules[ini->rule].name, s->rules[ini->rule].model, s->model);
}

/* What can be said only when the whole section was read. */
static void close_section(struct ini *ini)
{
    close_option(ini);
    if (ini->section == SECTION_SERVER)
        close_server(ini);
    else if (ini->section == SECTION_ROUTE)
        close_route(ini);
    else if (ini->section == SECTION_RULE)
        close_rule(ini);
}

static enum section open_router(struct ini *ini, struct slice name)
{
    if (name.n > 0 || ini->router_line != 0) {
        if (name.n > 0)
            INI_ERROR(ini, ini->line, "[router] takes no name");
        else
            INI_ERROR(ini, ini->line, "[router] is given twice, first in line %zu", ini->router_line);
        return SECTION_IGNORED;
    }
    ini->router_line = ini->line;
    return SECTION_ROUTER;
}

static enum section open_entry(struct ini *ini, enum section kind, struct slice name)
{
    if (name.n == 0) {
        INI_ERROR(ini, ini->line, "the section has no name; expected [%s NAME]",
                  kind == SECTION_SERVER ? "model-server" : "model-route");
        return SECTION_IGNORED;
    }
    if (name.n > CONFIG_NAME_MAX) {
        INI_ERROR(ini, ini->line, "the section's name is longer than %d bytes", CONFIG_NAME_MAX);
        return SECTION_IGNORED;
    }
    if (kind == SECTION_SERVER) {
        ini->entry = ini->c->n_servers;
        if (config_routes_add_server(ini->c, name, ini->line) != NULL)
            return kind;
    } else {
        struct route_spec *r = config_routes_add_route(ini->c, name, ini->line);

        ini->entry = ini->c->n_routes - 1;
        if (r != NULL) {
            r->model = mem_dup_slice(name);
            return kind;
        }
    }
    INI_ERROR(ini, ini->line, "too many sections: at most %d of a kind", CONFIG_SERVERS_MAX);
    return SECTION_IGNORED;
}

/* "NAME/rule RULE" -> NAME, and RULE in *rule; {NULL, 0} in *rule: a route. */
static struct slice cut_rule(struct slice name, struct slice *rule)
{
    static const char word[] = "/rule";
    const size_t n = sizeof(word) - 1;

    *rule = (struct slice){NULL, 0};
    for (size_t i = 0; i + n <= name.n; i++) {
        if (memcmp(name.p + i, word, n) != 0)
            continue;
        if (i + n < name.n && name.p[i + n] != ' ' && name.p[i + n] != '\t')
            continue;
        *rule = slice_trim((struct slice){name.p + i + n, name.n - i - n});
        name.n = i;
    }
    return slice_trim(name);
}

/* NULL: it has none of that name. */
static const struct route_rule_spec *find_rule(const struct route_spec *s, struct slice name)
{
    for (size_t i = 0; i < s->n_rules; i++) {
        if (s->rules[i].name != NULL && slice_eq(slice_of(s->rules[i].name), name))
            return &s->rules[i];
    }
    return NULL;
}

static enum section open_rule(struct ini *ini, struct slice route, struct slice name)
{
    const struct route_rule_spec *first;
    struct route_rule_spec *r;
    size_t i = 0;

    while (i < ini->c->n_routes && !slice_eq(slice_of(ini->c->routes[i].name), route))
        i++;
    if (i == ini->c->n_routes || name.n == 0 || name.n > CONFIG_NAME_MAX) {
        if (i == ini->c->n_routes)
            INI_ERROR(ini, ini->line, "[model-route %.*s] must stand before its rules", CONFIG_SHOWN(route));
        else
            INI_ERROR(ini, ini->line,
                      "a rule needs a name of at most %d bytes; expected [model-route NAME/rule RULE]",
                      CONFIG_NAME_MAX);
        return SECTION_IGNORED;
    }
    first = find_rule(&ini->c->routes[i], name);
    r = first != NULL ? NULL : route_spec_add_rule(&ini->c->routes[i]);
    if (r == NULL) {
        if (first != NULL)
            INI_ERROR(ini, ini->line, "rule \"%.*s\" is given twice, first at %.250s:%zu", CONFIG_SHOWN(name),
                      ini->file, first->line);
        else
            INI_ERROR(ini, ini->line, "too many rules: at most %d in a route", ROUTE_RULES_MAX);
        return SECTION_IGNORED;
    }
    r->name = mem_dup_slice(name);
    r->line = ini->line;
    ini->entry = i;
    ini->rule = ini->c->routes[i].n_rules - 1;
    return SECTION_RULE;
}

static enum section open_route(struct ini *ini, struct slice name)
{
    struct slice rule, route = cut_rule(name, &rule);

    return rule.p == NULL ? open_entry(ini, SECTION_ROUTE, route) : open_rule(ini, route, rule);
}

static enum section unknown_section(struct ini *ini, struct slice kind)
{
    struct nearest nearest;

    nearest_start(&nearest, kind);
    nearest_try(&nearest, SLICE("router"));
    nearest_try(&nearest, SLICE("model-server"));
    nearest_try(&nearest, SLICE("model-route"));
    INI_ERROR(ini, ini->line, "unknown section [%.*s]; the nearest known one is [%s%s]", CONFIG_SHOWN(kind),
              nearest.best, strcmp(nearest.best, "router") == 0 ? "" : " NAME");
    return SECTION_IGNORED;
}

/* header: what is between the brackets. */
static void open_section(struct ini *ini, struct slice header)
{
    struct slice kind, name;

    header = slice_trim(header);
    kind = (struct slice){header.p, 0};
    while (kind.n < header.n && kind.p[kind.n] != ' ' && kind.p[kind.n] != '\t')
        kind.n++;
    name = slice_trim((struct slice){header.p + kind.n, header.n - kind.n});
    ini->section_line = ini->line;
    memset(ini->lines, 0, sizeof(ini->lines));
    ini->scores = 0;
    if (slice_eq(kind, SLICE("router")))
        ini->section = open_router(ini, name);
    else if (slice_eq(kind, SLICE("model-server")))
        ini->section = open_entry(ini, SECTION_SERVER, name);
    else if (slice_eq(kind, SLICE("model-route")))
        ini->section = open_route(ini, name);
    else
        ini->section = unknown_section(ini, kind);
    ini->section_errors = ini->report->n_fatal;
}

/* ---- what inih calls ---- */

static bool is_list_option(enum config_option o)
{
    return o == CONFIG_OPT_backends || o == CONFIG_OPT_session_boost_header ||
           o == CONFIG_OPT_cors_allow_origins;
}

static void continue_value(struct ini *ini, struct slice value)
{
    if (ini->open == OPEN_LIST) {
        set_key(ini, ini->list, value);
    } else if (ini->open == OPEN_OPTION && is_list_option(ini->option)) {
        append_value(ini, value);
    } else if (ini->open != OPEN_IGNORED && ini->piece) {
        INI_ERROR(ini, ini->line, "longer than 198 bytes, which only lists may be");
        ini->rest.n = 0;
    } else if (ini->open != OPEN_IGNORED) {
        INI_ERROR(ini, ini->line,
                  "an indented line continues the value before it, and only lists may go on; "
                  "if this is a new key, remove the indentation");
    }
}

static int on_value(void *user, const char *section, const char *name, const char *value)
{
    struct ini *ini = user;

    (void)section; /* inih cuts it */
    ini->expected = false;
    if (ini->continues) {
        continue_value(ini, slice_of(value));
        return 1;
    }
    close_option(ini);
    ini->open = OPEN_IGNORED;
    if (ini->section == SECTION_NONE)
        INI_ERROR(ini, ini->line, "\"%.80s\" stands before the first section; expected [router] above it",
                  name);
    else if (ini->section == SECTION_ROUTER)
        on_option(ini, slice_of(name), slice_of(value));
    else if (ini->section != SECTION_IGNORED)
        on_key(ini, slice_of(name), slice_of(value));
    return 1;
}

/* ---- the reader ---- */

static bool is_blank(char ch)
{
    return ch == ' ' || ch == '\t';
}

static bool is_comment(char ch)
{
    return ch == ';' || ch == '#';
}

/* Without a comment (at the start, or after white space) and without white space at the end. */
static struct slice strip_comment(struct slice line)
{
    for (size_t i = 0; i < line.n; i++) {
        if (is_comment(line.p[i]) && (i == 0 || is_blank(line.p[i - 1])))
            line.n = i;
    }
    while (line.n > 0 && (is_blank(line.p[line.n - 1]) || line.p[line.n - 1] == '\r'))
        line.n--;
    return line;
}

/* The longest beginning of at most max_bytes that can be cut off; 0: there is none. What follows must not
 * look like a comment, nor like an empty item of a list. */
static size_t find_cut(struct slice s, size_t max_bytes)
{
    for (size_t n = max_bytes; n > 0; n--) {
        if ((s.p[n - 1] == ',' || is_blank(s.p[n - 1]) || is_blank(s.p[n])) && !is_comment(s.p[n]) &&
            s.p[n] != ',')
            return n;
    }
    return 0;
}

/* Hands over the line, or as much of it as inih takes; the rest becomes a continuation. */
static void hand_over(struct ini *ini, struct slice s, bool continues, char *out, size_t room)
{
    size_t indent = continues ? 1 : 0, max_bytes = room - 2 - indent, n = s.n;

    ini->rest = (struct slice){NULL, 0};
    if (n > max_bytes) {
        n = find_cut(s, max_bytes);
        ini->rest = slice_trim((struct slice){s.p + n, s.n - n});
    }
    if (n == 0) {
        INI_ERROR(ini, ini->line, "%.*s...: longer than %zu bytes without a comma or a space to cut it at",
                  (int)(s.n < 20 ? s.n : 20), s.p, max_bytes);
        ini->rest = (struct slice){NULL, 0};
    }
    out[0] = ' ';
    memcpy(out + indent, s.p, n);
    memcpy(out + indent + n, "\n", 2);
    ini->continues = continues;
    ini->expected = n > 0;
}

static void on_section(struct ini *ini, struct slice line)
{
    struct slice rest = {line.p + 1, line.n - 1}, header = slice_cut(&rest, ']');

    close_section(ini);
    ini->open = OPEN_NOTHING;
    ini->section = SECTION_IGNORED;
    if (rest.p == NULL || rest.n > 0)
        INI_ERROR(ini, ini->line, "expected [section] alone on the line");
    else
        open_section(ini, header);
}

/* One line of the file; out is empty, but for the line end, when inih need not see it. */
static void read_line(struct ini *ini, char *out, size_t room)
{
    struct slice line = strip_comment(slice_cut(&ini->text, '\n')), trimmed = slice_trim(line);
    bool continues = trimmed.n < line.n && ini->open != OPEN_NOTHING;

    ini->line++;
    memcpy(out, "\n", 2);
    if (trimmed.n == 0)
        return;
    if (trimmed.p[0] != '[' || continues) {
        hand_over(ini, trimmed, continues, out, room);
        return;
    }
    on_section(ini, trimmed);
    memcpy(out, "[s]\n", 5); /* ends the value for inih, too */
}

static char *next_line(char *out, int room, void *user)
{
    struct ini *ini = user;

    ini->piece = ini->rest.n > 0;
    if (ini->expected)
        INI_ERROR(ini, ini->line, "not understood; expected key = value, [section] or a comment");
    ini->expected = false;
    if (ini->piece)
        hand_over(ini, ini->rest, true, out, (size_t)room);
    else if (ini->text.p != NULL)
        read_line(ini, out, (size_t)room);
    else
        return NULL;
    return out;
}

/* ---- the whole text ---- */

/* Control bytes are never meant, and a zero byte would end the text for inih. False: reported. */
static bool check_bytes(struct ini *ini)
{
    size_t line = 1;

    for (size_t i = 0; i < ini->text.n; i++) {
        unsigned char byte = (unsigned char)ini->text.p[i];
        bool line_end = byte == '\r' && i + 1 < ini->text.n && ini->text.p[i + 1] == '\n';

        if (byte == '\n') {
            line++;
        } else if ((byte < ' ' && byte != '\t' && !line_end) || byte == 0x7f) {
            INI_ERROR(ini, line, "control byte 0x%02x; expected plain text", byte);
            return false;
        }
    }
    return true;
}

void config_ini_parse(struct config *c, struct slice text, const char *file_name,
                      struct config_report *report)
{
    struct ini ini = {.c = c, .report = report, .file = file_name, .text = text};

    if (slice_starts(text, SLICE("\xef\xbb\xbf")))
        ini.text = (struct slice){text.p + 3, text.n - 3};
    if (!check_bytes(&ini))
        return;
    buf_init(&ini.value, CONFIG_INI_BYTES_MAX * 2);
    if (ini_parse_stream(next_line, &ini, on_value, &ini) < 0)
        INI_ERROR(&ini, ini.line, "out of memory");
    close_section(&ini);
    buf_free(&ini.value);
}
