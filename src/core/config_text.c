/* config_text: what is printed from the table of options: help, effective values, sample file, options page.
 * It owns the words and the layout; every name, default and meaning comes from config.def. */
#include "config_text.h"
#include "config_option.h"
#include "duration.h"

/* ---- help ---- */

static bool help_option(const struct config_option_row *row, struct buf *out)
{
    char words[CONFIG_OPTION_NAME_MAX + 2] = "";

    if (row->type == CONFIG_TYPE_ENUM)
        config_option_choices(row, words);
    if (row->group != NULL && !buf_printf(out, "\n%s:\n", row->group))
        return false;
    return buf_printf(out, "  --%-30s %-30s %-12s %s%s%s%s\n", row->flag, row->env,
                      row->initial[0] == '\0' ? "-" : row->initial, row->help, words[0] == '\0' ? "" : " (",
                      words, words[0] == '\0' ? "" : ")");
}

bool config_text_help(struct buf *out)
{
    static const char head[] =
        "kthena-router: HTTP router for LLM pods; the next turn of a session that just finished goes first\n"
        "\n"
        "Usage: kthena-router [--config FILE] [--NAME=VALUE | --NAME VALUE]...\n"
        "\n"
        "A flag counts before its environment variable, that before the INI file, that before the default.\n"
        "Booleans may stand alone (--enable-session-boost) or take =true or =false.\n"
        "\n"
        "  --config FILE          the INI file (environment: ROUTER_CONFIG); SIGHUP reads it again\n"
        "  --check                read everything, list every problem; exit status 1 if there is one\n"
        "  --print-config         print the values in force and where each comes from\n"
        "  --print-example        print a commented sample INI file\n"
        "  --print-options-doc    print the table of options as Markdown\n"
        "  --version              print the version\n"
        "  --help                 print this text\n"
        "\n"
        "  Flag                             Environment                    Default      Meaning\n";

    if (!buf_append(out, head, sizeof(head) - 1))
        return false;
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        if (!help_option(config_option_row(o), out))
            return false;
    }
    return true;
}

/* ---- the values in force ---- */

static const char *const origin_names[] = {[CONFIG_DEFAULT] = "default",
                                           [CONFIG_INI] = "INI file",
                                           [CONFIG_ENV] = "environment",
                                           [CONFIG_FLAG] = "flag"};

static bool print_option(const struct config *c, enum config_option o, struct buf *out)
{
    size_t start = out->len, width;

    if (!buf_printf(out, "%s = ", config_option_row(o)->key) || !config_option_format(c, o, out))
        return false;
    width = out->len - start;
    return buf_printf(out, "%*s ; %s\n", width < 50 ? (int)(50 - width) : 0, "", origin_names[c->origins[o]]);
}

static bool print_pods(const struct config_server *s, const char *prefix, struct buf *out)
{
    if (s->dns != NULL)
        return buf_printf(out, "%sdns = %s\n", prefix, s->dns);
    if (s->service != NULL)
        return buf_printf(out, "%sservice = %s\n", prefix, s->service);
    for (size_t i = 0; i < s->n_pods; i++) {
        if (!buf_printf(out, "%s%s%s%s\n", prefix, i == 0 ? "pods = " : "    ", s->pods[i],
                        i + 1 < s->n_pods ? "," : ""))
            return false;
    }
    return true;
}

static bool print_server(const struct config_server *s, const char *prefix, struct buf *out)
{
    static const char *const engines[] = {
        [PROMTEXT_NONE] = "none", [PROMTEXT_VLLM] = "vllm", [PROMTEXT_SGLANG] = "sglang"};
    char timeout[DURATION_TEXT_MAX];
    size_t n = duration_format(s->timeout_us, timeout);

    if (!buf_printf(out, "\n%s[model-server %s]\n", prefix, s->name) || !print_pods(s, prefix, out) ||
        !buf_printf(out, "%sengine = %s\n", prefix, engines[s->engine]))
        return false;
    if (s->https && !buf_printf(out, "%sprotocol = https\n", prefix))
        return false;
    if (s->tls_name != NULL && !buf_printf(out, "%stls_name = %s\n", prefix, s->tls_name))
        return false;
    if (s->model != NULL && !buf_printf(out, "%smodel = %s\n", prefix, s->model))
        return false;
    return s->timeout_us == 0 || buf_printf(out, "%stimeout = %.*s\n", prefix, (int)n, timeout);
}

static bool print_targets(const struct route_rule_spec *r, const char *prefix, struct buf *out)
{
    for (size_t i = 0; i < r->n_targets; i++) {
        if (!buf_printf(out, "%s%s", i > 0 ? ", " : prefix, i > 0 ? "" : "target = ") ||
            !buf_printf(out, "%s", r->targets[i].server))
            return false;
        if (r->targets[i].weight != ROUTE_NO_WEIGHT &&
            !buf_printf(out, ":%lld", (long long)r->targets[i].weight))
            return false;
    }
    return buf_append(out, "\n", 1);
}

static bool print_rule(const struct route_spec *s, const struct route_rule_spec *r, const char *prefix,
                       struct buf *out)
{
    if (!buf_printf(out, "\n%s[model-route %s/rule %s]\n", prefix, s->name, r->name))
        return false;
    for (size_t i = 0; i < r->n_headers; i++) {
        const struct route_header *h = &r->headers[i];

        if (!buf_printf(out, "%sheader = %s %s:%s\n", prefix, h->name, route_match_word(h->value.kind),
                        h->value.text))
            return false;
    }
    if (r->uri.kind != ROUTE_ANY &&
        !buf_printf(out, "%suri = %s:%s\n", prefix, route_match_word(r->uri.kind), r->uri.text))
        return false;
    if (r->model != NULL && !buf_printf(out, "%smodel = %s\n", prefix, r->model))
        return false;
    return print_targets(r, prefix, out);
}

static bool print_adapters(const struct route_spec *s, const char *prefix, struct buf *out)
{
    for (size_t i = 0; i < s->n_adapters; i++) {
        if (!buf_printf(out, "%s%s", i > 0 ? ", " : prefix, i > 0 ? "" : "lora = ") ||
            !buf_printf(out, "%s", s->adapters[i]))
            return false;
    }
    return s->n_adapters == 0 || buf_append(out, "\n", 1);
}

static bool print_sticky(const struct route_spec *s, const char *prefix, struct buf *out)
{
    char text[DURATION_TEXT_MAX];
    size_t n = duration_format(s->sticky_ttl_us, text);

    for (size_t i = 0; i < s->n_sources; i++) {
        if (!buf_printf(out, "%s%s", i > 0 ? ", " : prefix, i > 0 ? "" : "session_sticky = ") ||
            !buf_printf(out, "%s:%s", route_source_word(s->sources[i].kind), s->sources[i].name))
            return false;
    }
    if (s->n_sources > 0 && !buf_printf(out, "\n%ssticky_ttl = %.*s\n", prefix, (int)n, text))
        return false;
    if (s->sticky == ROUTE_STICKY_UNSET)
        return true;
    n = duration_format(s->sticky_wait_us, text);
    if (s->sticky == ROUTE_STICKY_WAIT)
        return buf_printf(out, "%ssticky_mode = wait:%.*s\n", prefix, (int)n, text);
    return buf_printf(out, "%ssticky_mode = %s\n", prefix, s->sticky == ROUTE_STICKY_OFF ? "off" : "prefer");
}

static bool print_policy(const struct policy *p, const char *prefix, struct buf *out)
{
    bool first = true;

    for (enum policy_score s = 0; s < POLICY_SCORES && p->kind == POLICY_SCORE; s++) {
        if (p->weights[s] == 0)
            continue;
        if (!buf_printf(out, "%s%s%s:%u", first ? prefix : ", ", first ? "score = " : "",
                        policy_score_word(s), p->weights[s]))
            return false;
        first = false;
    }
    if (!first && !buf_append(out, "\n", 1))
        return false;
    if (p->kind != POLICY_UNSET && p->kind != POLICY_SCORE &&
        !buf_printf(out, "%spolicy = %s\n", prefix, policy_word(p->kind)))
        return false;
    return p->max_waiting == 0 ||
           buf_printf(out, "%smax_waiting = %lld\n", prefix, (long long)p->max_waiting);
}

static bool print_route(const struct route_spec *s, const char *prefix, struct buf *out)
{
    const struct route_rule_spec *own = s->n_rules > 0 ? &s->rules[s->n_rules - 1] : NULL;

    if (!buf_printf(out, "\n%s[model-route %s]\n%smodel = %s\n", prefix, s->name, prefix, s->model) ||
        !print_adapters(s, prefix, out) || !print_sticky(s, prefix, out) ||
        !print_policy(&s->policy, prefix, out))
        return false;
    if (own != NULL && own->name == NULL && !print_targets(own, prefix, out))
        return false;
    for (size_t i = 0; i < s->n_rules; i++) {
        if (s->rules[i].name != NULL && !print_rule(s, &s->rules[i], prefix, out))
            return false;
    }
    return true;
}

/* What comes from ROUTER_BACKENDS is a comment, so that the whole can be used as an INI file. */
static const char *prefix_of(size_t line)
{
    return line == 0 ? "; " : "";
}

bool config_text_print(const struct config *c, struct buf *out)
{
    if (!buf_printf(out, "; INI file: %s\n[router]\n", c->file == NULL ? "none" : c->file))
        return false;
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        if (!print_option(c, o, out))
            return false;
    }
    for (size_t i = 0; i < c->n_servers; i++) {
        if (!print_server(&c->servers[i], prefix_of(c->servers[i].line), out))
            return false;
    }
    for (size_t i = 0; i < c->n_routes; i++) {
        if (!print_route(&c->routes[i], prefix_of(c->routes[i].line), out))
            return false;
    }
    return true;
}

/* ---- the sample file ---- */

/* "; text" lines of at most 100 characters. */
static bool print_comment(const char *text, struct buf *out)
{
    while (*text != '\0') {
        size_t n = strlen(text), line = n;

        if (n > 98) {
            for (line = 98; line > 0 && text[line] != ' ';)
                line--;
        }
        if (!buf_printf(out, "; %.*s\n", (int)line, text))
            return false;
        text += line < n ? line + 1 : line;
    }
    return true;
}

static bool example_option(const struct config_option_row *row, struct buf *out)
{
    char words[CONFIG_OPTION_NAME_MAX];

    if (row->group != NULL && !buf_printf(out, "\n; ---- %s ----\n", row->group))
        return false;
    if (!buf_append(out, "\n", 1) || !print_comment(row->help, out))
        return false;
    if (row->type == CONFIG_TYPE_ENUM) {
        config_option_choices(row, words);
        if (!buf_printf(out, "; One of: %s\n", words))
            return false;
    }
    if (row->restart && !buf_printf(out, "; A change takes effect after a restart.\n"))
        return false;
    return buf_printf(out, ";%s =%s%s\n", row->key, row->initial[0] == '\0' ? "" : " ", row->initial);
}

bool config_text_example(struct buf *out)
{
    static const char head[] =
        "; Sample configuration of kthena-router: every option with its default, and the sections for pods "
        "and routes.\n"
        "; Use it with:  kthena-router --config router.ini     Check it with:  kthena-router --check "
        "--config router.ini\n"
        ";\n"
        "; A line is \"key = value\". Comments start with ';' or '#', at the start of a line or after a "
        "space.\n"
        "; A list may go on in indented lines. Another line has at most 198 bytes.\n"
        "; Environment variables and flags count before this file. SIGHUP reads it again; if it holds an "
        "error,\n"
        "; the router says so and keeps what it has.\n"
        "\n"
        "[router]\n";
    static const char tail[] =
        "\n"
        "; ---- Pods and routes ----\n"
        "\n"
        "; A model-server is a set of pods that are alike. Give pods, dns or service.\n"
        "[model-server chat]\n"
        "; Addresses: name:port, IPv4:port or [IPv6]:port, separated by commas or white space.\n"
        "pods = 127.0.0.1:8000,\n"
        "    127.0.0.1:8001\n"
        "; Whose metrics the pods have: vllm (default), sglang, or none: not read, the in-flight limit alone "
        "decides.\n"
        ";engine = vllm\n"
        "; The name the pods know the model by; without it requests are passed on untouched.\n"
        ";model = Qwen/Qwen2.5-7B-Instruct\n"
        "; Pods that speak TLS, verified: upstream_tls_ca, and the name in their certificates (default: the "
        "pod's host, or\n"
        "; that of dns).\n"
        ";protocol = https\n"
        ";tls_name = chat-pods.llm.svc\n"
        "; For the head of an answer; 0 = as upstream_header_timeout.\n"
        ";timeout = 0s\n"
        "\n"
        "; A model-route gives a model its public name (default: the route's own) and names the servers "
        "behind it.\n"
        "[model-route chat]\n"
        ";model = chat\n"
        "; One server, or several that take turns by weight: chat:70, chat-canary:30\n"
        "target = chat\n"
        "; Adapters that its pods serve: each is a public name, too, and goes to the pods under it.\n"
        ";lora = support-lora, sales-lora\n"
        "; Sessions that stay with their pod, with or without session boost: the first of these with a "
        "value.\n"
        ";session_sticky = header:X-Session-ID, cookie:sid, query:session\n"
        ";sticky_ttl = 3h\n"
        "; When that pod is full: prefer takes another one, wait:5s waits up to 5 s for it (with session "
        "boost).\n"
        ";sticky_mode = prefer\n"
        "; How a pod is chosen: a policy (least-request, round-robin, random, prefix, least-latency, "
        "kv-usage) or a sum of "
        "scores.\n"
        ";score = prefix:2, least-request:1\n"
        ";max_waiting = 10\n"
        "\n"
        "; Pods behind a DNS name, such as a headless Kubernetes Service: every address is a pod, and the "
        "name is looked up\n"
        "; again all the time.\n"
        ";[model-server coder]\n"
        ";dns = coder-pods.llm.svc.cluster.local:8000\n"
        ";model = Qwen/Qwen2.5-Coder-7B-Instruct\n"
        ";timeout = 2m\n"
        "\n"
        ";[model-route coder]\n"
        ";target = coder\n"
        "\n"
        "; The ready pods of a Kubernetes Service, watched through the API; needs the right to read its "
        "EndpointSlices.\n"
        ";[model-server agents]\n"
        ";service = llm/agent-pods:http\n"
        "\n"
        ";[model-route agents]\n"
        ";target = agents\n"
        "\n"
        "; SGLang pods, with IPv6 addresses.\n"
        ";[model-server qwen3]\n"
        ";pods = [fd00::10]:30000, [fd00::11]:30000\n"
        ";engine = sglang\n"
        "\n"
        ";[model-route qwen3-route]\n"
        ";model = Qwen/Qwen3-8B\n"
        ";target = qwen3:9, chat:1\n"
        "\n"
        "; Rules of a route are tried in their order, before its own target. All that a rule says must "
        "match.\n"
        ";[model-route qwen3-route/rule premium]\n"
        ";header = x-tier exact:premium\n"
        ";header = x-client regex:^(web|mobile)-[0-9]+$\n"
        ";uri = prefix:/v1/chat/\n"
        ";target = qwen3\n";

    if (!buf_append(out, head, sizeof(head) - 1))
        return false;
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        if (!example_option(config_option_row(o), out))
            return false;
    }
    return buf_append(out, tail, sizeof(tail) - 1);
}

/* ---- the options page ---- */

static bool doc_option(const struct config_option_row *row, struct buf *out)
{
    char words[CONFIG_OPTION_NAME_MAX];

    if (row->group != NULL && !buf_printf(out,
                                          "\n## %s\n\n| environment | flag | INI key | default | restart | "
                                          "meaning |\n|---|---|---|---|---|---|\n",
                                          row->group))
        return false;
    if (!buf_printf(out, "| `%s` | `--%s` | `%s` | %s%s%s | %s | %s", row->env, row->flag, row->key,
                    row->initial[0] == '\0' ? "" : "`", row->initial[0] == '\0' ? "-" : row->initial,
                    row->initial[0] == '\0' ? "" : "`", row->restart ? "yes" : "no", row->help))
        return false;
    if (row->type == CONFIG_TYPE_ENUM) {
        config_option_choices(row, words);
        if (!buf_printf(out, " (%s)", words))
            return false;
    }
    return buf_append(out, " |\n", 3);
}

bool config_text_options_doc(struct buf *out)
{
    static const char head[] =
        "# Options\n"
        "\n"
        "Printed by `kthena-router --print-options-doc`; do not edit.\n"
        "\n"
        "Precedence: default < INI file (`--config FILE` or `ROUTER_CONFIG`) < "
        "environment < flag. `--print-config` shows\n"
        "each value in force and its origin, `--check` lists every problem and exits "
        "with 1 if there is one.\n"
        "\n"
        "- A flag is `--name=value` or `--name value`; booleans may stand alone. A "
        "bad flag or INI line is an error.\n"
        "- An environment value that cannot be parsed is a warning, and the value "
        "without it applies (an error under\n"
        "  `--check`). An empty variable counts as not set, but for "
        "`SESSION_BOOST_TIMEOUT`, `FAIRNESS_QUEUE_TIMEOUT`,\n"
        "  `FAIRNESS_PRIORITY_TOKEN_WEIGHT` and `FAIRNESS_PRIORITY_REQUEST_NUM_WEIGHT`, where it is a bad "
        "value.\n"
        "- Durations: `250ms`, `30s`, `1m30s`, `0`; the unit is required. Sizes: "
        "`65536`, `64KiB`, `1GiB`. Booleans:\n"
        "  `true`, `false`, `1`, `0`, `t`, `f`.\n"
        "- INI file: `key = value`; `;` and `#` begin a comment, at the start of a line or "
        "after a blank. Lists may be as\n"
        "  long as they like and go on in indented lines; an entry has at most 197 bytes, another "
        "line 198.\n"
        "- restart: `SIGHUP` reads the INI file again; an option marked `yes` keeps "
        "its value until the next start, and a\n"
        "  warning says so.\n";
    static const char tail[] =
        "\n"
        "## Pods and routes (INI file)\n"
        "\n"
        "| section | key | default | meaning |\n"
        "|---|---|---|---|\n"
        "| `[model-server NAME]` | `pods` | - | list of `name:port`, `IPv4:port`, `[IPv6]:port`, separated "
        "by commas or white space |\n"
        "| | `dns` | - | `name:port` instead of `pods`: every address of the name is a pod; looked up again "
        "when its TTL is over |\n"
        "| | `service` | - | `[namespace/]name[:port]` of a Kubernetes Service instead of `pods`: its ready "
        "endpoints, "
        "watched; the port is a number or a name, without one the first of the endpoints; the namespace is "
        "ours by "
        "default |\n"
        "| | `protocol` | `http` | `https`: the pods speak TLS, and their certificates are verified against "
        "`UPSTREAM_TLS_CA`; their metrics are read the same way |\n"
        "| | `tls_name` | the host of `dns`, or of the pod | the name or address that a pod's certificate "
        "must "
        "have |\n"
        "| | `engine` | `vllm` | whose metrics are read: `vllm`, `sglang`, or `none`: not read, the "
        "in-flight limit alone decides |\n"
        "| | `model` | - | the name the pods know the model by; without it request bodies are passed on "
        "untouched |\n"
        "| | `timeout` | `0s` | for the head of an answer; 0 = `UPSTREAM_HEADER_TIMEOUT` |\n"
        "| `[model-route NAME]` | `model` | NAME | public name of the model; of several routes for one the "
        "first in "
        "the file comes first |\n"
        "| | `target` | - | name of the model-server, or `NAME:WEIGHT, NAME:WEIGHT, ...`: they take turns by "
        "weight; "
        "for requests that no rule takes; required in a route without rules |\n"
        "| | `lora` | - | list of adapters: public names, too, passed on as they are, to the pods that list "
        "them |\n"
        "| | `session_sticky` | - | list of `header:NAME`, `cookie:NAME`, `query:NAME`: the first with a "
        "value is the "
        "session, which stays with its pod, with session boost or without |\n"
        "| | `sticky_ttl` | `3h` | how long a session without requests is remembered |\n"
        "| | `sticky_mode` | - | `prefer`: another pod when the session's own is full; `wait:DURATION`: "
        "waits up to that "
        "long for it, as others pass; `off`; without it `SESSION_STICKY` and `SESSION_STICKY_WAIT` hold |\n"
        "| | `policy` | - | how a pod is chosen: `least-request`, `round-robin`, `random`, `prefix`, "
        "`least-latency` or "
        "`kv-usage`; without it the least in-flight, ties in turn |\n"
        "| | `score` | - | instead of `policy`: list of `NAME:WEIGHT`, scores of 0 to 100 that are weighted "
        "and added; "
        "names as above but `round-robin` |\n"
        "| | `max_waiting` | - | pods with so many requests waiting, or more, get none; requests wait at "
        "most "
        "`SESSION_BOOST_TIMEOUT` for one |\n"
        "| `[model-route NAME/rule RULE]` | `header` | - | `HEADER MATCH`; may be given several times; a "
        "missing "
        "header counts as empty |\n"
        "| | `uri` | - | `MATCH` against the path without query |\n"
        "| | `model` | - | the name in the request: the route's model, or one of its adapters |\n"
        "| | `target` | - | as in the route; required |\n"
        "\n"
        "`MATCH` is `exact:TEXT`, `prefix:TEXT` or `regex:PATTERN` (RE2 syntax, matches anywhere). Rules are "
        "tried in "
        "the order of the\n"
        "file; all that a rule says must match.\n"
        "\n"
        "`ROUTER_BACKENDS=MODEL=host:port,host:port;MODEL2=...` makes a server (engine vllm) and a route for "
        "each MODEL. The\n"
        "first `=` ends the name: it may hold `/`, `:` and `.`, but neither `=` nor `;`. Routes of the "
        "INI file come before these.\n"
        "\n"
        "In Kubernetes, a Service named `router` makes every pod of its namespace see "
        "`ROUTER_PORT=tcp://...`. Such values are\n"
        "ignored with a warning; `enableServiceLinks: false` in the pod's spec keeps them away.\n";

    if (!buf_append(out, head, sizeof(head) - 1))
        return false;
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        if (!doc_option(config_option_row(o), out))
            return false;
    }
    return buf_append(out, tail, sizeof(tail) - 1);
}
