/* Fields are those of networking.serving.volcano.sh/v1alpha1. One that this router does not know is noted by
 * its path, so that a person sees what is not heeded; the rest of the object counts. */
#include "kthena_spec.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#include "duration.h"
#include "mem.h"

/* A value in a text for people. */
#define SHOWN(s) (int)((s).n < 60 ? (s).n : 60), (s).p != NULL ? (s).p : ""

/* ---- notes ---- */

static bool has_note(const struct kthena_notes *n, const char *path)
{
    const size_t len = strlen(path);

    for (const char *at = strstr(n->fields, path); at != NULL; at = strstr(at + 1, path)) {
        if ((at == n->fields || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
            return true;
    }
    return false;
}

/* What does not fit any more is left out. */
static void note(struct kthena_notes *n, const char *path)
{
    const size_t used = strlen(n->fields);

    if (!has_note(n, path) && used + strlen(path) + 2 < sizeof(n->fields))
        (void)snprintf(n->fields + used, sizeof(n->fields) - used, "%s%s", used > 0 ? "," : "", path);
}

/* Frees the text. What does not fit any more is left out. */
static void warn(struct kthena_notes *n, char *text)
{
    const size_t used = strlen(n->warnings);

    for (char *p = text; *p != '\0'; p++) {
        if (*p < ' ' || *p > '~')
            *p = '?';
    }
    if (used + strlen(text) + 2 < sizeof(n->warnings))
        (void)snprintf(n->warnings + used, sizeof(n->warnings) - used, "%s%s", used > 0 ? "\n" : "", text);
    mem_free(text);
}

static void fail(struct kthena_notes *n, const char *problem)
{
    if (n->problem == NULL)
        n->problem = problem;
}

/* For cJSON_ArrayForEach: the object, or NULL when it is none, whose children have no names. */
static const cJSON *members(const cJSON *o)
{
    return cJSON_IsObject(o) ? o : NULL;
}

/* The same for a list. */
static const cJSON *items(const cJSON *o)
{
    return cJSON_IsArray(o) ? o : NULL;
}

static bool is_set(const cJSON *v)
{
    return v != NULL && !cJSON_IsNull(v);
}

/* A text that is there and is none. */
static void check_text(struct kthena_notes *n, const cJSON *o, const char *key, const char *path)
{
    const cJSON *v = kubeobj_get(o, key);

    if (is_set(v) && !cJSON_IsString(v))
        warn(n, mem_printf("%s.%s is not a text; it does not count", path, key));
}

static bool is_named(const char *name, const char *known)
{
    struct slice rest = slice_of(known);

    while (rest.n > 0) {
        if (slice_eq(slice_cut(&rest, ' '), slice_of(name)))
            return true;
    }
    return false;
}

/* Notes the members that are set and not among the known names (with blanks between). */
static void note_others(struct kthena_notes *n, const cJSON *o, const char *path, const char *known)
{
    const cJSON *member;
    char text[128];

    cJSON_ArrayForEach(member, members(o))
    {
        if (cJSON_IsNull(member) || is_named(member->string, known))
            continue;
        (void)snprintf(text, sizeof(text), "%s.%.60s", path, member->string);
        for (char *p = text; *p != '\0'; p++) {
            if (*p <= ' ' || *p == ',' || *p > '~')
                *p = '?';
        }
        note(n, text);
    }
}

/* ---- labels ---- */

bool kthena_spec_labels_read(const struct cJSON *labels, struct kthena_labels *out)
{
    const cJSON *label;
    bool whole = !is_set(labels) || cJSON_IsObject(labels);

    cJSON_ArrayForEach(label, members(labels))
    {
        if (!cJSON_IsString(label) || out->n == KTHENA_SPEC_LABELS_MAX) {
            whole = false;
            continue;
        }
        out->pairs = mem_array(out->pairs, out->n + 1, sizeof(*out->pairs));
        out->pairs[out->n++] = mem_printf("%s=%s", label->string, label->valuestring);
    }
    return whole;
}

void kthena_spec_labels_free(struct kthena_labels *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->pairs[i]);
    mem_free(l->pairs);
    *l = (struct kthena_labels){0};
}

static bool has_label(const struct kthena_labels *l, const char *pair)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->pairs[i], pair) == 0)
            return true;
    }
    return false;
}

bool kthena_spec_labels_match(const struct kthena_labels *wanted, const struct kthena_labels *has)
{
    for (size_t i = 0; i < wanted->n; i++) {
        if (!has_label(has, wanted->pairs[i]))
            return false;
    }
    return wanted->n > 0;
}

/* ---- ModelServer ---- */

static char *full_name(struct slice namespace, struct slice name)
{
    return mem_printf("%.*s/%.*s", SLICE_ARG(namespace), SLICE_ARG(name));
}

static char *text_or_null(struct slice s)
{
    return s.n > 0 ? mem_dup_slice(s) : NULL;
}

static enum promtext_engine read_engine(struct slice name, struct kthena_notes *n)
{
    if (slice_ieq(name, SLICE("vLLM")))
        return PROMTEXT_VLLM;
    if (slice_ieq(name, SLICE("SGLang")))
        return PROMTEXT_SGLANG;
    warn(
        n,
        mem_printf(
            "spec.inferenceEngine is \"%.*s\": expected vLLM or SGLang; the metrics of its pods are not read",
            SHOWN(name)));
    return PROMTEXT_NONE;
}

/* Of a group of prefill and decode pods the decode pods serve whole requests: they can do both. */
static void read_selector(const cJSON *selector, struct kthena_server_spec *out, struct kthena_notes *n)
{
    const cJSON *group = kubeobj_get(selector, "pdGroup");

    /* With a label less it would select more. */
    if (!kthena_spec_labels_read(kubeobj_get(selector, "matchLabels"), &out->labels))
        fail(n, "spec.workloadSelector.matchLabels has one that is not a text, or too many");
    if (out->labels.n == 0)
        fail(n, "spec.workloadSelector.matchLabels is empty");
    if ((is_set(group) && !cJSON_IsObject(group)) ||
        !kthena_spec_labels_read(kubeobj_get(group, "decodeLabels"), &out->labels))
        fail(n, "spec.workloadSelector.pdGroup.decodeLabels has one that is not a text, or too many");
    note_others(n, selector, "spec.workloadSelector", "matchLabels");
}

static void read_port(const cJSON *port, struct kthena_server_spec *out, struct kthena_notes *n)
{
    const struct slice protocol = kubeobj_text(port, "protocol");

    if (!kubeobj_int(port, "port", &out->port) || out->port < 1 || out->port > 65535)
        fail(n, "spec.workloadPort.port is not 1 to 65535");
    out->server.https = slice_ieq(protocol, SLICE("https"));
    if (protocol.n > 0 && !out->server.https && !slice_ieq(protocol, SLICE("http")))
        fail(n, "spec.workloadPort.protocol is neither http nor https");
    note_others(n, port, "spec.workloadPort", "port protocol");
}

static void read_traffic(const cJSON *policy, struct kthena_server_spec *out, struct kthena_notes *n)
{
    const struct slice timeout = kubeobj_text(policy, "timeout");

    check_text(n, policy, "timeout", "spec.trafficPolicy");
    if (timeout.n > 0 && (!duration_parse(timeout, &out->server.timeout_us) || out->server.timeout_us < 0)) {
        out->server.timeout_us = 0;
        warn(n, mem_printf("spec.trafficPolicy.timeout is \"%.*s\": expected a duration like 30s; none of "
                           "its own applies",
                           SHOWN(timeout)));
    }
    note_others(n, policy, "spec.trafficPolicy", "timeout");
}

void kthena_spec_server(const struct cJSON *object, const struct kubeobj_meta *meta,
                        struct kthena_server_spec *out, struct kthena_notes *notes)
{
    const cJSON *spec = kubeobj_get(object, "spec");

    *out = (struct kthena_server_spec){
        .server = {.name = full_name(meta->namespace, meta->name), .given = true}};
    *notes = (struct kthena_notes){.problem = NULL};
    check_text(notes, spec, "model", "spec");
    out->server.model = text_or_null(kubeobj_text(spec, "model"));
    out->server.engine = read_engine(kubeobj_text(spec, "inferenceEngine"), notes);
    read_selector(kubeobj_get(spec, "workloadSelector"), out, notes);
    read_port(kubeobj_get(spec, "workloadPort"), out, notes);
    read_traffic(kubeobj_get(spec, "trafficPolicy"), out, notes);
    note_others(notes, spec, "spec", "model inferenceEngine workloadSelector workloadPort trafficPolicy");
}

void kthena_spec_free_server(struct kthena_server_spec *s)
{
    mem_free(s->server.name);
    mem_free(s->server.model);
    kthena_spec_labels_free(&s->labels);
}

/* ---- ModelRoute ---- */

/* The rule that is being read. */
struct rule_reader {
    struct slice namespace;
    struct route_rule_spec *rule;
    struct kthena_notes *notes;
    size_t number, n_targets; /* which of the route, and how many of its targets have been read */
    bool bad;                 /* a condition is not understood: without it the rule would match too much */
};

/* expected: static. */
static void refuse(struct rule_reader *r, const char *where, const char *expected)
{
    warn(r->notes,
         mem_printf("spec.rules[%zu]%s is not %s; the rule is left out", r->number, where, expected));
    r->bad = true;
}

/* An object, or not there. */
static bool check_object(struct rule_reader *r, const cJSON *v, const char *where)
{
    if (!is_set(v) || cJSON_IsObject(v))
        return true;
    refuse(r, where, "an object");
    return false;
}

/* An empty object is fine. */
static void check_match(struct rule_reader *r, const cJSON *match, const char *where)
{
    bool known = cJSON_GetArraySize(match) == 0;
    const cJSON *member;

    cJSON_ArrayForEach(member, members(match))
    {
        if (!is_named(member->string, "exact prefix regex") && is_set(member))
            continue;
        known = true;
        if (is_set(member) && !cJSON_IsString(member))
            refuse(r, where, "a text in exact, prefix or regex");
    }
    if (!known)
        refuse(r, where, "one of exact, prefix or regex");
}

/* Several at once: exact before prefix before regex. None set matches anything. */
static void read_match(struct rule_reader *r, const cJSON *match, struct route_match *out, const char *path,
                       const char *where)
{
    static const char *const words[] = {"exact", "prefix", "regex"};
    const char *problem;

    if (!check_object(r, match, where))
        return;
    check_match(r, match, where);
    for (size_t i = 0; i < ARRAY_LEN(words) && out->kind == ROUTE_ANY; i++) {
        const struct slice text = kubeobj_text(match, words[i]);

        if (text.p == NULL)
            continue;
        out->kind = (enum route_match_kind)((int)ROUTE_EXACT + (int)i);
        out->text = mem_dup_slice(text);
    }
    problem = route_match_problem(out);
    if (problem != NULL)
        warn(r->notes, mem_printf("spec.rules[%zu]: the regex \"%.60s\" never matches: %s", r->number,
                                  out->text, problem));
    note_others(r->notes, match, path, "exact prefix regex");
}

static void read_header(struct rule_reader *r, const cJSON *header, struct route_match *out)
{
    char *where = mem_printf(".modelMatch.headers.%.60s", header->string);

    read_match(r, header, out, "spec.rules.modelMatch.headers", where);
    mem_free(where);
}

static void read_headers(struct rule_reader *r, const cJSON *headers)
{
    const cJSON *header;

    (void)check_object(r, headers, ".modelMatch.headers");
    cJSON_ArrayForEach(header, members(headers))
    {
        struct route_header *h = route_rule_add_header(r->rule, slice_of(header->string));

        if (h == NULL)
            fail(r->notes, "a rule has more headers than are supported");
        else
            read_header(r, header, &h->value);
        if (route_hides_header(slice_of(header->string)))
            warn(r->notes,
                 mem_printf("spec.rules[%zu]: the header %.60s is not passed on to pods and counts as empty",
                            r->number, header->string));
    }
}

static void read_model_match(struct rule_reader *r, const cJSON *match)
{
    const cJSON *body = kubeobj_get(match, "body"), *model = kubeobj_get(body, "model");

    (void)(check_object(r, match, ".modelMatch") && check_object(r, body, ".modelMatch.body"));
    if (is_set(model) && !cJSON_IsString(model))
        refuse(r, ".modelMatch.body.model", "a text");
    read_headers(r, kubeobj_get(match, "headers"));
    read_match(r, kubeobj_get(match, "uri"), &r->rule->uri, "spec.rules.modelMatch.uri", ".modelMatch.uri");
    r->rule->model = text_or_null(kubeobj_text(body, "model"));
    note_others(r->notes, match, "spec.rules.modelMatch", "headers uri body");
    note_others(r->notes, body, "spec.rules.modelMatch.body", "model");
}

static int64_t read_weight(const struct rule_reader *r, const cJSON *weight)
{
    int64_t value;
    char *text;

    if (weight == NULL || cJSON_IsNull(weight))
        return ROUTE_NO_WEIGHT;
    if (kubeobj_int_of(weight, &value) && value >= 0 && value <= ROUTE_WEIGHT_MAX)
        return value;
    text = cJSON_PrintUnformatted(weight);
    warn(r->notes, mem_printf("spec.rules[%zu].targetModels[%zu].weight is %.60s: expected a whole number "
                              "from 0 to %d; it counts as 0",
                              r->number, r->n_targets, text, ROUTE_WEIGHT_MAX));
    cJSON_free(text);
    return 0;
}

static void read_target(struct rule_reader *r, const cJSON *target)
{
    const struct slice name = kubeobj_text(target, "modelServerName");
    const int64_t weight = read_weight(r, kubeobj_get(target, "weight"));
    char *server;

    note_others(r->notes, target, "spec.rules.targetModels", "modelServerName weight");
    if (name.n == 0)
        warn(r->notes, mem_printf("spec.rules[%zu].targetModels[%zu] names no ModelServer; it is left out",
                                  r->number, r->n_targets));
    r->n_targets++;
    if (name.n == 0)
        return;
    server = full_name(r->namespace, name);
    if (!route_rule_add_target(r->rule, slice_of(server), weight))
        fail(r->notes, "a rule has more targets than are supported");
    mem_free(server);
}

static void read_rule(const cJSON *o, size_t number, struct slice namespace, struct route_spec *out,
                      struct kthena_notes *n)
{
    struct rule_reader r = {.namespace = namespace, .notes = n, .number = number};
    const cJSON *target;

    r.rule = route_spec_add_rule(out);
    if (r.rule == NULL) {
        fail(n, "it has more rules than are supported");
        return;
    }
    if (!cJSON_IsObject(o))
        refuse(&r, "", "an object");
    r.rule->name = text_or_null(kubeobj_text(o, "name"));
    read_model_match(&r, kubeobj_get(o, "modelMatch"));
    cJSON_ArrayForEach(target, items(kubeobj_get(o, "targetModels")))
    {
        read_target(&r, target);
    }
    note_others(n, o, "spec.rules", "name modelMatch targetModels");
    if (r.bad)
        route_spec_drop_rule(out);
    else if (route_weights_problem(r.rule) != NULL)
        warn(n, mem_printf("spec.rules[%zu] takes no request: %s", r.number, route_weights_problem(r.rule)));
}

static void read_adapters(const cJSON *adapters, struct route_spec *out, struct kthena_notes *n)
{
    const cJSON *adapter;

    if (is_set(adapters) && !cJSON_IsArray(adapters))
        warn(n, mem_strdup("spec.loraAdapters is not a list; it does not count"));
    cJSON_ArrayForEach(adapter, items(adapters))
    {
        const struct slice name = kubeobj_string(adapter);

        if (name.n == 0)
            warn(n, mem_strdup("spec.loraAdapters has one that is no text or empty; it is left out"));
        else if (!route_spec_add_adapter(out, name))
            fail(n, "it has more adapters than are supported");
    }
}

void kthena_spec_route(const struct cJSON *object, const struct kubeobj_meta *meta, struct route_spec *out,
                       struct kthena_notes *notes)
{
    const cJSON *spec = kubeobj_get(object, "spec"), *rule;
    size_t n_rules = 0;

    *out = (struct route_spec){.name = full_name(meta->namespace, meta->name)};
    *notes = (struct kthena_notes){.problem = NULL};
    check_text(notes, spec, "modelName", "spec");
    out->model = text_or_null(kubeobj_text(spec, "modelName"));
    read_adapters(kubeobj_get(spec, "loraAdapters"), out, notes);
    if (out->model == NULL && out->n_adapters == 0)
        fail(notes, "it has neither spec.modelName nor spec.loraAdapters");
    /* Routes of a Gateway are for its listeners; the Go router's own port passes them over, too. */
    if (cJSON_GetArraySize(kubeobj_get(spec, "parentRefs")) > 0)
        fail(notes, "spec.parentRefs binds it to a Gateway");
    cJSON_ArrayForEach(rule, items(kubeobj_get(spec, "rules")))
    {
        read_rule(rule, n_rules++, meta->namespace, out, notes);
    }
    if (out->n_rules == 0)
        fail(notes, n_rules == 0 ? "it has no spec.rules" : "none of its spec.rules is understood");
    note_others(notes, spec, "spec", "modelName loraAdapters rules parentRefs");
}
