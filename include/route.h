/* route: where a request of a public model goes: routes with rules over headers, path and model, and weighted
 * targets. The first half is what a route says, as the INI file or a ModelRoute has it: plain data. The
 * second half decides: a table by public names, made of such data. Knows no pods; asks the targets' models
 * whether they have any in place.
 *
 * Rules (README "Routes"): a name is looked up among the models first and, if it is none, among the adapters.
 * Of the routes of that name the oldest comes first; in it the first rule that matches. Its targets take
 * turns by weight (smooth weighted round robin: in any row of requests as long as the weights' sum each has
 * had its share), but for those without pods in place, and, for an adapter that the pods of one list, those
 * whose pods do not. */
#ifndef ROUTE_H
#define ROUTE_H

#include "htab.h"
#include "model.h"

#define ROUTE_RULES_MAX    64 /* of a route */
#define ROUTE_HEADERS_MAX  16 /* of a rule */
#define ROUTE_TARGETS_MAX  64 /* of a rule */
#define ROUTE_ADAPTERS_MAX 256
#define ROUTE_WEIGHT_MAX   1000000
#define ROUTE_NO_WEIGHT    (-1) /* not given; then none of the rule's may be, and all count as 1 */

/* ---- what a route says ---- */

enum route_match_kind { ROUTE_ANY, ROUTE_EXACT, ROUTE_PREFIX, ROUTE_REGEX };

struct route_match {
    enum route_match_kind kind;
    char *text; /* NULL for ROUTE_ANY; a pattern.h for ROUTE_REGEX */
};

/* A header that is missing counts as empty; of one given twice the first counts. */
struct route_header {
    char *name; /* any case */
    struct route_match value;
};

struct route_weight {
    char *server; /* name of a model-server */
    int64_t weight;
    size_t line; /* in the INI file; 0 = from elsewhere */
};

/* Where a route's sessions have their key. */
enum route_source_kind { ROUTE_HEADER, ROUTE_COOKIE, ROUTE_QUERY };
struct route_source {
    enum route_source_kind kind;
    char *name; /* a header's in any case, the others as they are */
};

/* How a request's pod is tied to its session. Given by the route, or by the whole router. */
enum route_sticky { ROUTE_STICKY_UNSET, ROUTE_STICKY_OFF, ROUTE_STICKY_PREFER, ROUTE_STICKY_WAIT };

/* Everything given must match. */
struct route_rule_spec {
    char *name; /* NULL = none */
    struct route_header *headers;
    size_t n_headers;
    struct route_match uri; /* against the path without query, its %XX decoded */
    char *model;            /* the request's model; NULL = any */
    struct route_weight *targets;
    size_t n_targets;
    size_t line, target_line; /* in the INI file; 0 = from elsewhere */
};

struct route_spec {
    char *name;
    char *model; /* public name; NULL only where there are adapters */
    char **adapters;
    size_t n_adapters;
    struct route_rule_spec *rules;
    size_t n_rules;
    /* Sessions: the first source with a value counts. None: SESSION_BOOST_HEADER, for session boost alone. */
    struct route_source *sources;
    size_t n_sources;
    int64_t sticky_ttl_us; /* how long a session without requests is remembered; > 0 with sources */
    struct policy policy;  /* of choosing a pod in each target */
    enum route_sticky sticky;
    int64_t sticky_wait_us; /* of ROUTE_STICKY_WAIT */
    size_t line;
};

#define ROUTE_SOURCES_MAX   16
#define ROUTE_STICKY_TTL_US (3 * 3600 * US_PER_S) /* where the route does not say */

/* Each adds one at the end, zeroed but for what is given; NULL above its maximum. Pointers are valid until
 * the next call. */
struct route_rule_spec *route_spec_add_rule(struct route_spec *s);
/* Takes away the rule that was added last. */
void route_spec_drop_rule(struct route_spec *s);
MUST_CHECK bool route_spec_add_adapter(struct route_spec *s, struct slice name);
/* name: not empty. */
MUST_CHECK bool route_spec_add_source(struct route_spec *s, enum route_source_kind kind, struct slice name);
const char *route_source_word(enum route_source_kind kind); /* "header", "cookie", "query" */
struct route_header *route_rule_add_header(struct route_rule_spec *r, struct slice name);
/* A header of that name is not passed on to pods, and rules do not see it: it counts as missing. */
bool route_hides_header(struct slice name);
/* NULL: a session's or user's id may be read from this header, or from this source. Else static text that
 * goes on after the name: "is not a header name". */
const char *route_key_header_problem(struct slice name);
const char *route_source_problem(enum route_source_kind kind, struct slice name);
MUST_CHECK bool route_rule_add_target(struct route_rule_spec *r, struct slice server, int64_t weight);
/* True when it matches every request of its model. */
bool route_rule_is_open(const struct route_rule_spec *r);
/* NULL: well-formed; else static text says what was expected. A uri is also compared with paths, which begin
 * with a slash and hold no query. */
const char *route_uri_problem(const struct route_match *m);
const char *route_match_problem(const struct route_match *m);
const char *route_weights_problem(const struct route_rule_spec *r);
const char *route_match_word(enum route_match_kind kind); /* "exact", "prefix", "regex" */
/* Not the struct itself. */
void route_spec_free(struct route_spec *s);

/* ---- deciding ---- */

struct route_target {
    struct model *model; /* whose pods and sessions are looked at */
    void *to;            /* the caller's */
    int64_t weight;      /* > 0 */
    int64_t credit;
};

struct route_rule;

/* A public name: a model, or an adapter. */
struct route_name {
    struct htab_node by_name;
    char *text;
    size_t text_n;
    bool adapter;
    struct route_rule *rules; /* of all its routes, in the order in which they are tried */
    size_t n_rules;
    struct route_target *only; /* where all its requests go whatever they are; NULL = ask route_decide */
};

struct route_table {
    struct htab by_name;
    struct route_name **names; /* in the order in which they were added */
    size_t n_names, cap_names;
};

/* What rules look at. */
struct route_query {
    struct slice path;    /* without query */
    struct slice query;   /* behind the '?' */
    struct slice fields;  /* the request's fields, each line with its CRLF */
    struct slice session; /* empty: none; of a route with sources the one found there, set by route_decide */
    void *const *avoid;   /* the `to` of targets that are left out while there are others */
    size_t n_avoid;
    bool only_listed; /* set by route_decide: targets whose pods do not list the adapter are left out */
};

void route_table_init(struct route_table *t);
/* Leaves it empty: no name is found any more. */
void route_table_free(struct route_table *t);
/* A name that is there already stays what it is: add models before adapters. */
struct route_name *route_table_add_name(struct route_table *t, struct slice name, bool adapter);
/* Adds the route's rule at the end of the name's. Both are borrowed until the table is asked no more. What
 * can never match (a bad pattern, bad weights) is kept and never taken; such a rule's route is passed over as
 * the Go router does. Returns its index. */
size_t route_name_add_rule(struct route_name *n, const struct route_spec *route,
                           const struct route_rule_spec *rule);
/* Weight 0: never taken. */
void route_name_add_target(struct route_name *n, size_t rule, struct model *model, void *to, int64_t weight);
/* After the last rule of the last name: finds names with one target, and takes over whose turn it is from the
 * table before where a rule's targets are the same. */
void route_table_finish(struct route_table *t, const struct route_table *before);
/* Calls fn for each target of the name; a `to` may come several times. */
void route_name_each(const struct route_name *n, void (*fn)(void *to, void *arg), void *arg);

/* NULL: no such name. */
struct route_name *route_find(const struct route_table *t, struct slice name);
/* NULL: no rule matches. A session that a target's model knows stays with that target as long as it has pods
 * in place, and does not count as its turn. When no target has pods in place, one with usable pods or else
 * any is returned: its model says what is wrong. */
struct route_target *route_decide(struct route_name *n, struct route_query *q, int64_t now_us);

#endif
