/* kubeconfig files: as tools write them, the ways to show who one is, and what is wrong with bad ones. */
#include "kubeconfig.h"

#include "mem.h"
#include "test.h"

#define CONTEXTS                                                                                             \
    "apiVersion: v1\nkind: Config\ncurrent-context: dev\n"                                                   \
    "contexts:\n- name: other\n  context: {cluster: x, user: y}\n"                                           \
    "- context:\n    cluster: c1\n    namespace: llm\n    user: u1\n  name: dev\n"
#define CLUSTER "clusters:\n- cluster:\n    server: https://127.0.0.1:6443/\n  name: c1\n"

static void good(const char *text, struct kubeconfig *k)
{
    char *error = NULL;

    if (!kubeconfig_parse(slice_of(text), k, &error))
        fail_msg("%s", error);
}

static void bad(const char *text, const char *word)
{
    struct kubeconfig k;
    char *error = NULL;

    assert_false(kubeconfig_parse(slice_of(text), &k, &error));
    assert_non_null(error);
    if (strstr(error, word) == NULL)
        fail_msg("\"%s\" does not name %s", error, word);
    assert_null(k.server);
    mem_free(error);
}

static void test_token(void **state)
{
    struct kubeconfig k;

    (void)state;
    good(CONTEXTS CLUSTER "users:\n- name: u1\n  user:\n    token: secret\n    tokenFile: t/token\n", &k);
    assert_string_equal(k.server, "https://127.0.0.1:6443");
    assert_string_equal(k.namespace, "llm");
    assert_string_equal(k.token, "secret");
    assert_string_equal(k.token_file, "t/token");
    assert_false(k.insecure);
    assert_null(k.ca_pem);
    kubeconfig_free(&k);
}

static void test_certificates(void **state)
{
    struct kubeconfig k;

    (void)state;
    good(CONTEXTS "clusters:\n- name: c1\n  cluster:\n    server: https://[::1]:6443\n    "
                  "certificate-authority-data: SGVsbG8=\n"
                  "    tls-server-name: kubernetes\n    insecure-skip-tls-verify: true\n"
                  "users:\n- name: u1\n  user:\n    client-certificate-data: |\n      SGVs\n      bG8h\n    "
                  "client-key-data: SGk=\n",
         &k);
    assert_string_equal(k.ca_pem, "Hello");
    assert_string_equal(k.cert_pem, "Hello!");
    assert_string_equal(k.key_pem, "Hi");
    assert_string_equal(k.tls_server_name, "kubernetes");
    assert_true(k.insecure);
    kubeconfig_free(&k);
    good(CONTEXTS "clusters:\n- name: c1\n  cluster: {server: \"http://localhost:8001\", "
                  "certificate-authority: ca.crt}\n"
                  "users:\n- name: u1\n  user: {client-certificate: /c.crt, client-key: /c.key}\n",
         &k);
    assert_string_equal(k.ca_file, "ca.crt");
    assert_string_equal(k.cert_file, "/c.crt");
    assert_string_equal(k.key_file, "/c.key");
    kubeconfig_free(&k);
}

static void test_json(void **state)
{
    struct kubeconfig k;

    (void)state;
    good("{\"current-context\":\"a\",\"contexts\":[{\"name\":\"a\",\"context\":{\"cluster\":\"b\"}}],"
         "\"clusters\":[{\"name\":\"b\",\"cluster\":{\"server\":\"https://h\"}}],\"users\":[]}",
         &k);
    assert_string_equal(k.server, "https://h");
    assert_null(k.namespace);
    kubeconfig_free(&k);
}

static void test_bad_files(void **state)
{
    (void)state;
    bad("", "current-context");
    bad("a: [", "line");
    bad("- a\n- b\n", "current-context");
    bad("current-context: x\n", "no context \"x\"");
    bad(CONTEXTS, "names no cluster");
    bad(CONTEXTS "clusters:\n- name: c1\n  cluster: {server: ftp://x}\n", "ftp://x");
    bad(CONTEXTS "clusters:\n- name: c1\n  cluster: {}\n", "https://host:port");
    bad(CONTEXTS "clusters:\n- name: c1\n  cluster: {server: 'https://x', certificate-authority-data: '?'}\n",
        "certificate-authority-data");
    bad(CONTEXTS "clusters:\n- name: c1\n  cluster: {server: 'https://x', proxy-url: 'http://p'}\n",
        "proxy-url");
    bad(CONTEXTS CLUSTER "users:\n- name: u1\n  user: {exec: {command: x}}\n", "exec");
    bad(CONTEXTS CLUSTER "users:\n- name: u1\n  user: {exec: {command: x}, token: t}\n",
        "exec of a user is not supported; expected token, tokenFile or a client certificate");
    bad(CONTEXTS CLUSTER "users:\n- name: u1\n  user: {auth-provider: {name: gcp}}\n",
        "auth-provider of a user");
    bad(CONTEXTS CLUSTER "users:\n- name: u1\n  user: {username: x}\n", "username");
    bad(CONTEXTS CLUSTER "users:\n- name: u1\n  user: {token: t, as: root}\n", "as of a user");
    bad(CONTEXTS CLUSTER "users:\n- name: u2\n  user: {token: t}\n", "user \"u1\" is not in the file");
    bad(CONTEXTS CLUSTER "users:\n- name: u1\n  user: {client-key-data: AAAA}\n", "client-key-data");
    bad("a: &a [*a]\n", "current-context");
}

static void bad_server(const char *server, const char *word)
{
    char *text = mem_printf(CONTEXTS "clusters:\n- name: c1\n  cluster: {server: '%s'}\n", server);

    bad(text, word);
    mem_free(text);
}

/* What would go into a URL or a log line, or would make us nobody without a word. */
static void test_odd_values(void **state)
{
    struct kubeconfig k;
    char *error = NULL;

    (void)state;
    bad_server("http://u:secret@127.0.0.1:1", "has a user in its URL");
    assert_false(kubeconfig_parse(
        SLICE(CONTEXTS "clusters:\n- name: c1\n  cluster: {server: 'u:secret@h'}\n"), &k, &error));
    assert_null(strstr(error, "secret"));
    mem_free(error);
    bad_server("https://", "https://host:port");
    bad_server("https://a b:1", "https://host:port");
    bad_server("https://h:1/?x=1", "https://host:port");
    bad_server("https://h:1/#x", "https://host:port");
    bad_server("https://h:70000", "https://host:port");
    bad(CONTEXTS "clusters:\n- name: c1\n  cluster: {server: 'http://h:1', tls-server-name: x}\n",
        "tls-server-name");
    bad(CONTEXTS CLUSTER "users:\n- name: u1\n  user: {token: ''}\n", "token of the user is empty");
    bad(CONTEXTS CLUSTER "users:\n- name: u1\n  user: {token: [a]}\n", "token of the user is empty");
    bad(CONTEXTS CLUSTER "users:\n- name: u1\n  user: {tokenFile: {}}\n", "tokenFile of the user is empty");
    bad("current-context: a\ncontexts:\n- name: a\n  context: {cluster: c1, namespace: 'A/../b'}\n" CLUSTER,
        "namespace is \"A/../b\"");
    good(CONTEXTS "clusters:\n- name: c1\n  cluster: {server: 'https://h/k8s/clusters/c-1/'}\n"
                  "users:\n- name: u1\n  user: {}\n",
         &k);
    assert_string_equal(k.server, "https://h/k8s/clusters/c-1");
    kubeconfig_free(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_token), cmocka_unit_test(test_certificates),
                                       cmocka_unit_test(test_json), cmocka_unit_test(test_bad_files),
                                       cmocka_unit_test(test_odd_values)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
