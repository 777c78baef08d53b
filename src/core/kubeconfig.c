/* The file is loaded as a YAML document by libyaml, and the few fields of interest are looked up in it. An
 * alias is a reference to a node there, so that nested aliases do not grow. */
#include "kubeconfig.h"

#include <yaml.h>

#include "authority.h"
#include "kubeobj.h"
#include "mem.h"

#define CHECK(ok, ...)                                                                                       \
    do {                                                                                                     \
        if (!(ok)) {                                                                                         \
            *error = mem_printf(__VA_ARGS__);                                                                \
            return false;                                                                                    \
        }                                                                                                    \
    } while (0)

/* ---- the tree ---- */

static struct slice text_of(const yaml_node_t *n)
{
    if (n == NULL || n->type != YAML_SCALAR_NODE)
        return (struct slice){NULL, 0};
    return (struct slice){(const char *)n->data.scalar.value, n->data.scalar.length};
}

/* The value of a key of a mapping; NULL: none, or no mapping. */
static yaml_node_t *get(yaml_document_t *doc, const yaml_node_t *map, const char *key)
{
    if (map == NULL || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        if (slice_eq(text_of(yaml_document_get_node(doc, p->key)), slice_of(key)))
            return yaml_document_get_node(doc, p->value);
    }
    return NULL;
}

static struct slice get_text(yaml_document_t *doc, const yaml_node_t *map, const char *key)
{
    return text_of(get(doc, map, key));
}

/* The `what` of the entry called `name` of the list `lists`: {clusters, cluster}, {users, user}, ... */
static yaml_node_t *named(yaml_document_t *doc, const char *list, const char *what, struct slice name)
{
    const yaml_node_t *items = get(doc, yaml_document_get_root_node(doc), list);

    if (items == NULL || items->type != YAML_SEQUENCE_NODE)
        return NULL;
    for (yaml_node_item_t *i = items->data.sequence.items.start; i < items->data.sequence.items.top; i++) {
        const yaml_node_t *item = yaml_document_get_node(doc, *i);

        if (slice_eq(get_text(doc, item, "name"), name))
            return get(doc, item, what);
    }
    return NULL;
}

/* ---- fields ---- */

static void take(yaml_document_t *doc, const yaml_node_t *map, const char *key, char **to)
{
    const struct slice text = get_text(doc, map, key);

    if (text.n > 0 && memchr(text.p, '\0', text.n) == NULL)
        *to = mem_dup_slice(text);
}

static int base64_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;

    return at != NULL ? (int)(at - digits) : -1;
}

/* NULL: not base64, or a text that holds a zero byte. White space may stand anywhere. */
static char *base64_text(struct slice in)
{
    char *out = mem_alloc(in.n / 4 * 3 + 4), *to = out;
    uint32_t bits = 0, n = 0;

    for (size_t i = 0; i < in.n && in.p[i] != '='; i++) {
        const int value = base64_value(in.p[i]);

        if (in.p[i] == ' ' || in.p[i] == '\n' || in.p[i] == '\r')
            continue;
        if (value < 0)
            goto fail;
        bits = bits << 6 | (uint32_t)value;
        if (++n % 4 == 1)
            continue;
        *to = (char)(bits >> (6 - 2 * ((n - 1) % 4)) & 0xff);
        if (*to++ == '\0')
            goto fail;
    }
    if (n % 4 == 1)
        goto fail;
    *to = '\0';
    return out;
fail:
    mem_free(out);
    return NULL;
}

static bool take_data(yaml_document_t *doc, const yaml_node_t *map, const char *key, char **to, char **error)
{
    const struct slice text = get_text(doc, map, key);

    if (text.n == 0)
        return true;
    *to = base64_text(text);
    CHECK(*to != NULL, "%s is not the base64 of a text", key);
    return true;
}

/* The token and the like: one that is there and says nothing would make us anonymous without a word. */
static bool take_identity(yaml_document_t *doc, const yaml_node_t *user, const char *key, char **to,
                          char **error)
{
    take(doc, user, key, to);
    CHECK(*to != NULL || get(doc, user, key) == NULL, "%s of the user is empty or not a text", key);
    return true;
}

/* "https://host[:port][/path]". */
static bool is_server(struct slice url)
{
    struct slice rest = {url.p + (slice_starts(url, SLICE("https://")) ? 8 : 7), 0}, host;
    char *authority = NULL, *text;
    const char *error;
    bool ok;

    rest.n = url.n - (size_t)(rest.p - url.p);
    for (size_t i = 0; i < rest.n; i++) {
        if (rest.p[i] <= ' ' || rest.p[i] > '~' || rest.p[i] == '?' || rest.p[i] == '#')
            return false;
    }
    host = slice_cut(&rest, '/');
    text = mem_dup_slice(host);
    ok = authority_parse(slice_of(text), &authority, &error);
    if (!ok) {
        mem_free(text);
        text = mem_printf("%.*s:443", SLICE_ARG(host)); /* the port may be left out */
        ok = authority_parse(slice_of(text), &authority, &error);
    }
    mem_free(authority);
    mem_free(text);
    return ok;
}

static bool take_server(struct slice server, struct kubeconfig *k, char **error)
{
    while (server.n > 0 && server.p[server.n - 1] == '/')
        server.n--;
    /* Not shown: it may hold a password. */
    CHECK(server.n == 0 || memchr(server.p, '@', server.n) == NULL,
          "the cluster's server has a user in its URL, which is not supported; expected https://host:port");
    CHECK((slice_starts(server, SLICE("https://")) || slice_starts(server, SLICE("http://"))) &&
              is_server(server),
          "the cluster's server is \"%.*s\"; expected https://host:port",
          (int)(server.n < 80 ? server.n : 80), server.n > 0 ? server.p : "");
    k->server = mem_dup_slice(server);
    return true;
}

static bool take_cluster(yaml_document_t *doc, const yaml_node_t *cluster, struct kubeconfig *k, char **error)
{
    if (!take_server(get_text(doc, cluster, "server"), k, error))
        return false;
    k->insecure = slice_eq(get_text(doc, cluster, "insecure-skip-tls-verify"), SLICE("true"));
    take(doc, cluster, "certificate-authority", &k->ca_file);
    take(doc, cluster, "tls-server-name", &k->tls_server_name);
    CHECK(k->tls_server_name == NULL || slice_starts(slice_of(k->server), SLICE("https:")),
          "the cluster has a tls-server-name, and its server is not https");
    CHECK(get(doc, cluster, "proxy-url") == NULL, "proxy-url of a cluster is not supported");
    return take_data(doc, cluster, "certificate-authority-data", &k->ca_pem, error);
}

static bool take_user(yaml_document_t *doc, const yaml_node_t *user, struct kubeconfig *k, char **error)
{
    static const char *const unsupported[] = {"exec", "auth-provider", "username",  "password",
                                              "as",   "as-uid",        "as-groups", "as-user-extra"};

    for (size_t i = 0; i < ARRAY_LEN(unsupported); i++)
        CHECK(get(doc, user, unsupported[i]) == NULL,
              "%s of a user is not supported; expected token, tokenFile or a client certificate (kubectl "
              "create token "
              "gives one)",
              unsupported[i]);
    return take_identity(doc, user, "token", &k->token, error) &&
           take_identity(doc, user, "tokenFile", &k->token_file, error) &&
           take_identity(doc, user, "client-certificate", &k->cert_file, error) &&
           take_identity(doc, user, "client-key", &k->key_file, error) &&
           take_data(doc, user, "client-certificate-data", &k->cert_pem, error) &&
           take_data(doc, user, "client-key-data", &k->key_pem, error);
}

static bool take_context(yaml_document_t *doc, struct kubeconfig *k, char **error)
{
    const struct slice name = get_text(doc, yaml_document_get_root_node(doc), "current-context");
    const yaml_node_t *context = named(doc, "contexts", "context", name), *cluster, *user;
    struct slice user_name;

    CHECK(name.n > 0, "there is no current-context");
    CHECK(context != NULL, "there is no context \"%.*s\"", (int)(name.n < 80 ? name.n : 80), name.p);
    take(doc, context, "namespace", &k->namespace);
    CHECK(k->namespace == NULL || kubeobj_is_label(slice_of(k->namespace)),
          "the context's namespace is \"%.80s\"; expected lower-case letters, digits and dashes",
          k->namespace);
    cluster = named(doc, "clusters", "cluster", get_text(doc, context, "cluster"));
    CHECK(cluster != NULL, "the current context names no cluster of the file");
    if (!take_cluster(doc, cluster, k, error))
        return false;
    user_name = get_text(doc, context, "user");
    user = named(doc, "users", "user", user_name);
    CHECK(user != NULL || user_name.n == 0, "the current context's user \"%.*s\" is not in the file",
          (int)(user_name.n < 80 ? user_name.n : 80), user_name.p);
    return take_user(doc, user, k, error);
}

/* ---- the file ---- */

static bool load(struct slice text, yaml_document_t *doc, char **error)
{
    yaml_parser_t parser;
    bool ok;

    CHECK(yaml_parser_initialize(&parser) == 1, "out of memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.p, text.n);
    ok = yaml_parser_load(&parser, doc) == 1;
    if (!ok)
        *error = mem_printf("line %zu: %s; expected YAML", parser.problem_mark.line + 1,
                            parser.problem != NULL ? parser.problem : "not understood");
    yaml_parser_delete(&parser);
    return ok;
}

bool kubeconfig_parse(struct slice text, struct kubeconfig *k, char **error)
{
    yaml_document_t doc;
    bool ok;

    *k = (struct kubeconfig){0};
    if (!load(text, &doc, error))
        return false;
    ok = take_context(&doc, k, error);
    yaml_document_delete(&doc);
    if (!ok)
        kubeconfig_free(k);
    return ok;
}

void kubeconfig_free(struct kubeconfig *k)
{
    mem_free(k->server);
    mem_free(k->namespace);
    mem_free(k->ca_file);
    mem_free(k->ca_pem);
    mem_free(k->tls_server_name);
    mem_free(k->token);
    mem_free(k->token_file);
    mem_free(k->cert_file);
    mem_free(k->cert_pem);
    mem_free(k->key_file);
    mem_free(k->key_pem);
    *k = (struct kubeconfig){0};
}
