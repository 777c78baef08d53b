/* The settings of vllm-sim. One table serves the command line, --help, POST /sim/config and the dump in
 * GET /sim/state. Owns cfg; everybody else only reads it. */
#include "sim.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_config cfg;
static struct sim_config cfg_at_start;

enum kind { INTEGER, REAL, CHOICE };

struct option {
    const char *name; /* a dash here is an underscore in JSON */
    enum kind kind;
    size_t offset;
    double min, max;
    const char *choices; /* "first|second" */
    bool fixed;          /* command line only */
    const char *help;
};

#define AT(field) offsetof(struct sim_config, field)

static const struct option options[] = {
    {"port", INTEGER, AT(port), 0, 65535, NULL, true, "API port; 0 = any free one (default 0)"},
    {"control-port", INTEGER, AT(control_port), -1, 65535, NULL, true,
     "second listener, for /sim/ only; 0 = any free one (default -1 = off)"},
    {"engine", CHOICE, AT(engine), 0, 0, "vllm|sglang", true, "whose metrics to show (default vllm)"},
    {"metrics-names", CHOICE, AT(metrics_names), 0, 0, "old|new|both", false,
     "names of old engines, of new ones, or both (default new)"},
    {"max-num-seqs", INTEGER, AT(max_num_seqs), 1, 1e9, NULL, false,
     "requests running at once; the rest wait, first come first served (default 256)"},
    {"prefill-tokens-per-second", REAL, AT(prefill_tokens_per_second), 0, 1e12, NULL, false,
     "prefill speed of the pod: prefills run one after the other at this rate and only\n"
     "      prompt tokens that are not in the prefix cache cost time; 0 = instant (default 0)"},
    {"inter-token-ms", REAL, AT(inter_token_ms), 0, 1e9, NULL, false,
     "time between two tokens of an answer; 0 = as fast as possible (default 0)"},
    {"kv-blocks", INTEGER, AT(kv_blocks), 0, 1e8, NULL, false,
     "KV blocks of 16 tokens, reused by prefix, least recently used goes first;\n"
     "      0 = no cache and no limit (default 65536)"},
    {"max-tokens-default", INTEGER, AT(max_tokens_default), 1, 1e6, NULL, false,
     "length of an answer when the request does not say (default 16)"},
    {"token-bytes", INTEGER, AT(token_bytes), 1, 65536, NULL, false,
     "length of the text one answer token adds (default 4)"},
    {"ranks", INTEGER, AT(ranks), 1, SIM_RANKS_MAX, NULL, false,
     "data-parallel engines: one series each in the metrics (default 1)"},
    {"keep-alive-timeout", REAL, AT(keep_alive_timeout_s), 0, 1e6, NULL, false,
     "seconds until an idle connection is closed after an answer; 0 = never (default 5)"},
    {"max-requests-per-connection", INTEGER, AT(max_requests_per_connection), 0, 1e9, NULL, false,
     "close a connection after so many answers; 0 = never (default 0)"},
    {"seed", INTEGER, AT(seed), 0, 1e15, NULL, false, "changes the text of all answers (default 1)"},
    {"force-waiting", REAL, AT(force_waiting), 0, 1e12, NULL, false,
     "metrics show this number waiting (on the first rank), whatever is true"},
    {"force-running", REAL, AT(force_running), 0, 1e12, NULL, false, "the same for running"},
    {"force-kv", REAL, AT(force_kv), 0, 1, NULL, false, "the same for the KV cache usage, 0..1 (all ranks)"},
};

#define N_OPTIONS (sizeof(options) / sizeof(options[0]))

static const char fault_names[] = "none|refuse|hang|reset_before|fin_before|reset_mid|fin_mid|close_idle|"
                                  "status|slow_head|garbage";
static const char metrics_fault_names[] = "none|status|hang|slow|garbage|nan|missing|reset";

/* Index of `word` in "a|b|c", or -1. */
static int choice_index(const char *choices, const char *word)
{
    size_t len = strlen(word);
    int index = 0;
    for (const char *at = choices; *at; index++) {
        size_t n = strcspn(at, "|");
        if (n == len && memcmp(at, word, n) == 0)
            return index;
        at += n + (at[n] == '|');
    }
    return -1;
}

static void choice_text(const char *choices, int64_t index, char *out, size_t out_size)
{
    while (index-- > 0)
        choices += strcspn(choices, "|") + 1;
    snprintf(out, out_size, "%.*s", (int)strcspn(choices, "|"), choices);
}

const char *config_fault_name(int kind)
{
    static char text[24];
    choice_text(fault_names, kind, text, sizeof(text));
    return text;
}

/* Dash and underscore are the same in a name. */
static bool name_equal(const char *a, const char *b, size_t b_len)
{
    if (strlen(a) != b_len)
        return false;
    for (size_t i = 0; i < b_len; i++)
        if (a[i] != b[i] && !(a[i] == '-' && b[i] == '_'))
            return false;
    return true;
}

static const struct option *find_option(const char *name, size_t len)
{
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (name_equal(options[i].name, name, len))
            return &options[i];
    return NULL;
}

static bool set_number(struct sim_config *to, const struct option *option, double value)
{
    char *field = (char *)to + option->offset;
    if (!(value >= option->min && value <= option->max))
        return false;
    if (option->kind == REAL) {
        memcpy(field, &value, sizeof(value));
        return true;
    }
    int64_t whole = (int64_t)value;
    if ((double)whole < value || (double)whole > value)
        return false;
    memcpy(field, &whole, sizeof(whole));
    return true;
}

static bool set_choice(struct sim_config *to, const struct option *option, const char *word)
{
    int64_t index = choice_index(option->choices, word);
    if (index >= 0)
        memcpy((char *)to + option->offset, &index, sizeof(index));
    return index >= 0;
}

static void explain(const struct option *option, char *error, size_t error_size)
{
    if (option->kind == CHOICE)
        snprintf(error, error_size, "%s: expected one of %s", option->name, option->choices);
    else
        snprintf(error, error_size, "%s: expected %s from %.15g to %.15g", option->name,
                 option->kind == REAL ? "a number" : "a whole number", option->min, option->max);
}

/* ---- JSON ---- */

static bool fault_field(struct fault *fault, const cJSON *item)
{
    const char *name = item->string;
    if (strcmp(name, "raw") == 0 && cJSON_IsString(item)) {
        fault->raw = util_intern(item->valuestring);
        return true;
    }
    if (strcmp(name, "keep_open") == 0 && cJSON_IsBool(item)) {
        fault->keep_open = cJSON_IsTrue(item);
        return true;
    }
    if (!cJSON_IsNumber(item) || fabs(item->valuedouble) > 1e15)
        return false;
    if (strcmp(name, "status") == 0)
        fault->status = (int64_t)item->valuedouble;
    else if (strcmp(name, "after_bytes") == 0)
        fault->after_bytes = (int64_t)item->valuedouble;
    else if (strcmp(name, "after_tokens") == 0)
        fault->after_tokens = (int64_t)item->valuedouble;
    else if (strcmp(name, "delay_ms") == 0 && item->valuedouble >= 0)
        fault->delay_us = (int64_t)(item->valuedouble * 1000);
    else if (strcmp(name, "count") == 0)
        fault->count = (int64_t)item->valuedouble;
    else
        return false;
    return true;
}

static bool read_fault(struct fault *fault, const char *names, const cJSON *object, char *error, size_t size)
{
    struct fault made = {.status = 503, .after_bytes = -1, .after_tokens = -1, .count = -1};
    const cJSON *kind = cJSON_IsString(object) ? object : cJSON_GetObjectItemCaseSensitive(object, "kind");
    const cJSON *item;
    made.kind = cJSON_IsString(kind) ? choice_index(names, kind->valuestring) : -1;
    if (made.kind < 0) {
        snprintf(error, size, "fault: kind must be one of %s", names);
        return false;
    }
    cJSON_ArrayForEach(item, (cJSON_IsObject(object) ? object : NULL))
    {
        if (item != kind && !fault_field(&made, item)) {
            snprintf(error, size, "fault: unknown or unusable field %s", item->string);
            return false;
        }
    }
    if (made.status < 200 || made.status > 599) {
        snprintf(error, size, "fault: status must be from 200 to 599");
        return false;
    }
    *fault = made;
    return true;
}

static bool apply_item(struct sim_config *to, const cJSON *item, char *error, size_t size)
{
    const struct option *option = find_option(item->string, strlen(item->string));
    bool forced = option && strncmp(option->name, "force-", 6) == 0;
    bool good = false;
    if (strcmp(item->string, "fault") == 0)
        return read_fault(&to->fault, fault_names, item, error, size);
    if (strcmp(item->string, "metrics_fault") == 0)
        return read_fault(&to->metrics_fault, metrics_fault_names, item, error, size);
    if (!option || option->fixed) {
        snprintf(error, size, option ? "%s can only be set on the command line" : "unknown setting %s",
                 item->string);
        return false;
    }
    if (option->kind == CHOICE)
        good = cJSON_IsString(item) && set_choice(to, option, item->valuestring);
    else if (cJSON_IsNumber(item))
        good = set_number(to, option, item->valuedouble);
    else if (forced && cJSON_IsNull(item)) {
        double none = NAN;
        memcpy((char *)to + option->offset, &none, sizeof(none));
        good = true;
    }
    if (!good)
        explain(option, error, size);
    return good;
}

/* Other modules keep what depends on a setting; tell them. */
static void settings_changed(void)
{
    cache_set_capacity(cfg.kv_blocks);
    http_refuse(cfg.fault.kind == FAULT_REFUSE);
    engine_schedule();
}

bool config_apply(const cJSON *object, char *error, size_t error_size)
{
    struct sim_config changed = cfg;
    const cJSON *item;
    if (!cJSON_IsObject(object)) {
        snprintf(error, error_size, "expected a JSON object of settings");
        return false;
    }
    cJSON_ArrayForEach(item, object)
    {
        if (!apply_item(&changed, item, error, error_size))
            return false;
    }
    cfg = changed;
    settings_changed();
    return true;
}

void config_restore(void)
{
    int64_t port = cfg.port, control_port = cfg.control_port;
    cfg = cfg_at_start;
    cfg.port = port;
    cfg.control_port = control_port;
    settings_changed();
}

static void print_value(struct buf *out, const struct option *option)
{
    const char *field = (const char *)&cfg + option->offset;
    int64_t whole;
    double real;
    memcpy(&whole, field, sizeof(whole));
    memcpy(&real, field, sizeof(real));
    if (option->kind == CHOICE) {
        char word[24];
        choice_text(option->choices, whole, word, sizeof(word));
        buf_json(out, word, strlen(word));
    } else if (option->kind == INTEGER)
        buf_printf(out, "%lld", (long long)whole);
    else if (isnan(real))
        buf_text(out, "null");
    else
        buf_printf(out, "%.15g", real);
}

static void print_fault(struct buf *out, const char *key, const char *names, const struct fault *fault)
{
    char kind[24];
    choice_text(names, fault->kind, kind, sizeof(kind));
    buf_printf(out, ",\"%s\":{\"kind\":\"%s\",\"status\":%lld,\"after_bytes\":%lld,\"after_tokens\":%lld,",
               key, kind, (long long)fault->status, (long long)fault->after_bytes,
               (long long)fault->after_tokens);
    buf_printf(out, "\"delay_ms\":%.15g,\"count\":%lld}", (double)fault->delay_us / 1000,
               (long long)fault->count);
}

void config_print(struct buf *out)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        buf_text(out, i ? ",\"" : "{\"");
        for (const char *c = options[i].name; *c; c++)
            buf_put(out, *c == '-' ? "_" : c, 1);
        buf_text(out, "\":");
        print_value(out, &options[i]);
    }
    print_fault(out, "fault", fault_names, &cfg.fault);
    print_fault(out, "metrics_fault", metrics_fault_names, &cfg.metrics_fault);
    buf_text(out, "}");
}

struct fault config_take_fault(struct fault *fault)
{
    struct fault taken = *fault;
    if (fault->count > 0 && --fault->count == 0)
        fault->kind = 0;
    return taken;
}

/* ---- command line ---- */

static void print_help(void)
{
    printf("vllm-sim: a simulated vLLM or SGLang pod, for tests and benchmarks.\n\nOptions:\n"
           "  --bind ADDRESS\n      IPv4 or IPv6 address to listen on (default 127.0.0.1)\n"
           "  --model NAME\n      served model; repeat it or separate names by commas (default sim)\n"
           "  --name NAME\n      \"pod\" in the answers' \"sim\" object (default: the port)\n");
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *o = &options[i];
        printf("  --%s %s\n      %s\n", o->name,
               o->kind == CHOICE ? o->choices
               : o->kind == REAL ? "R"
                                 : "N",
               o->help);
    }
    printf("  --fault KIND or JSON\n      %s\n"
           "  --metrics-fault KIND or JSON\n      %s\n"
           "  --help, --version\n\n"
           "One line on stdout says where it listens. While running:\n"
           "  GET /sim/state[?log=N]  numbers, settings and the last requests, as JSON\n"
           "  POST /sim/config        a JSON object with any setting above ('_' for '-') or fault\n"
           "  POST /sim/reset         settings as started, counters 0, cache and log empty\n"
           "A fault is "
           "{\"kind\":K,\"status\":503,\"after_bytes\":N,\"after_tokens\":N,\"delay_ms\":N,\"count\":N}\n"
           "(count = how many /v1/ requests it hits, -1 = all).\n",
           fault_names, metrics_fault_names);
}

static bool add_models(const char *list)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        char *name = util_copy(list, n);
        bool good = n > 0 && cfg.n_models < SIM_MODELS_MAX;
        if (good)
            cfg.models[cfg.n_models++] = util_intern(name);
        free(name);
        if (!good)
            return false;
        list += n + (list[n] == ',');
    }
    return cfg.n_models > 0;
}

static bool argument_fault(struct fault *fault, const char *names, const char *value, char *error,
                           size_t size)
{
    cJSON *json = value[0] == '{' ? cJSON_Parse(value) : cJSON_CreateString(value);
    bool good = read_fault(fault, names, json, error, size);
    cJSON_Delete(json);
    return good;
}

static bool argument_option(const struct option *option, const char *value, char *error, size_t size)
{
    char *end;
    bool good;
    if (option->kind == CHOICE)
        good = set_choice(&cfg, option, value);
    else {
        errno = 0;
        double number = strtod(value, &end);
        good = end != value && *end == '\0' && errno == 0 && set_number(&cfg, option, number);
    }
    if (!good)
        explain(option, error, size);
    return good;
}

static bool set_argument(const char *name, const char *value, char *error, size_t size)
{
    const struct option *option = find_option(name, strlen(name));
    if (option)
        return argument_option(option, value, error, size);
    if (strcmp(name, "fault") == 0)
        return argument_fault(&cfg.fault, fault_names, value, error, size);
    if (strcmp(name, "metrics-fault") == 0)
        return argument_fault(&cfg.metrics_fault, metrics_fault_names, value, error, size);
    if (strcmp(name, "bind") == 0)
        cfg.bind = util_intern(value);
    else if (strcmp(name, "name") == 0)
        cfg.name = util_intern(value);
    else if (strcmp(name, "model") != 0)
        snprintf(error, size, "unknown option --%s; see --help", name);
    else if (!add_models(value))
        snprintf(error, size, "model: expected 1 to %d names separated by commas", SIM_MODELS_MAX);
    return error[0] == '\0';
}

/* One argument: "--name=value", or "--name" and then "value". Returns -1 or the exit status. */
static int read_argument(char **argv, int *at)
{
    char name[64] = "", error[256] = "";
    const char *text = argv[(*at)++];
    if (strcmp(text, "--help") == 0) {
        print_help();
        return 0;
    }
    if (strcmp(text, "--version") == 0) {
        puts("vllm-sim " SIM_VERSION);
        return 0;
    }
    size_t n = strcspn(text, "=");
    const char *value = text[n] ? text + n + 1 : argv[*at];
    if (strncmp(text, "--", 2) == 0)
        snprintf(name, sizeof(name), "%.*s", (int)(n - 2), text + 2);
    if (!name[0])
        snprintf(error, sizeof(error), "unexpected argument '%s'; see --help", text);
    else if (!value)
        snprintf(error, sizeof(error), "unknown option or missing value: --%s; see --help", name);
    else if (set_argument(name, value, error, sizeof(error))) {
        *at += text[n] == '\0';
        return -1;
    }
    fprintf(stderr, "vllm-sim: %s\n", error);
    return 2;
}

int config_read_arguments(int argc, char **argv)
{
    cfg = (struct sim_config){.control_port = -1,
                              .bind = "127.0.0.1",
                              .metrics_names = NAMES_NEW,
                              .max_num_seqs = 256,
                              .kv_blocks = 65536,
                              .max_tokens_default = 16,
                              .token_bytes = 4,
                              .ranks = 1,
                              .seed = 1,
                              .keep_alive_timeout_s = 5,
                              .force_waiting = NAN,
                              .force_running = NAN,
                              .force_kv = NAN};
    for (int at = 1; at < argc;) {
        int status = read_argument(argv, &at);
        if (status >= 0)
            return status;
    }
    if (cfg.n_models == 0)
        cfg.models[cfg.n_models++] = "sim";
    cfg_at_start = cfg;
    return -1;
}
