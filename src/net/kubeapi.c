/* As a pod: the files that the kubelet mounts. Outside: a kubeconfig. Tokens and certificates are small
 * files, read when a request starts: the kubelet replaces them while we run. */
#include "kubeapi.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "clock.h"
#include "htab.h"
#include "kubeconfig.h"
#include "mem.h"

struct kubeapi {
    struct loop *loop;
    struct curlev *curl;
    char *dir; /* what relative file names are relative to */
    struct kubeconfig k;
    bool insecure;
    int64_t watch_us;
    struct curl_slist *headers, *connect_to;
    struct list busy; /* kubeapi_work */
    struct loop_task more;
};

/* ---- files ---- */

/* The file's text without white space at its end; NULL: *error says why. */
static char *kubeapi_read_file(const char *path, size_t max_bytes, char **error)
{
    FILE *f = fopen(path, "re");
    char *text = NULL;
    size_t n;

    if (f == NULL)
        goto fail;
    text = mem_alloc(max_bytes + 1);
    n = fread(text, 1, max_bytes + 1, f);
    errno = ferror(f) != 0 ? errno : n > max_bytes ? EFBIG : 0;
    if (errno != 0)
        goto fail;
    (void)fclose(f);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        n--;
    text[n] = '\0';
    return text;
fail:
    *error = mem_printf("%s: %s", path, strerror(errno));
    if (f != NULL)
        (void)fclose(f);
    mem_free(text);
    return NULL;
}

static char *kubeapi_path(const struct kubeapi *a, const char *name)
{
    return name[0] == '/' ? mem_strdup(name) : mem_printf("%s/%s", a->dir, name);
}

/* ---- where the server is ---- */

static bool kubeapi_load_file(struct kubeapi *a, const char *path, char **error)
{
    const char *slash = strrchr(path, '/');
    char *text = kubeapi_read_file(path, KUBECONFIG_BYTES_MAX, error), *why;
    bool ok;

    if (text == NULL)
        return false;
    a->dir = slash == NULL ? mem_strdup(".") : mem_dup_slice((struct slice){path, (size_t)(slash - path)});
    ok = kubeconfig_parse(slice_of(text), &a->k, &why);
    mem_free(text);
    if (!ok) {
        *error = mem_printf("%s: %s", path, why);
        mem_free(why);
    }
    return ok;
}

static bool kubeapi_load_account(struct kubeapi *a, const struct kubeapi_options *o, char **error)
{
    char *path, *why = NULL;

    if (o->host == NULL || o->host[0] == '\0' || o->port == NULL) {
        *error = mem_strdup(
            "KUBERNETES_SERVICE_HOST is not set, so this is no pod of a cluster; expected KUBECONFIG");
        return false;
    }
    a->dir = mem_strdup(o->account_dir);
    a->k.server =
        mem_printf(strchr(o->host, ':') != NULL ? "https://[%s]:%s" : "https://%s:%s", o->host, o->port);
    a->k.ca_file = mem_strdup("ca.crt");
    a->k.token_file = mem_strdup("token");
    path = kubeapi_path(a, "namespace");
    a->k.namespace = kubeapi_read_file(path, 256, &why);
    mem_free(path);
    mem_free(why); /* it is only a default */
    return true;
}

/* A server that is to be verified under another name is asked for under that name, at the address it has. */
static void kubeapi_use_tls_name(struct kubeapi *a)
{
    struct slice path = slice_of(strstr(a->k.server, "://") + 3), authority = slice_cut(&path, '/');
    char *host = mem_dup_slice(authority), *colon = strrchr(host, ':'), *to, *server;
    const bool has_port = colon != NULL && strchr(colon, ']') == NULL;
    const char *port = has_port ? colon + 1 : "443";

    if (a->k.tls_server_name == NULL) {
        mem_free(host);
        return;
    }
    to = mem_printf("%s:%s:%s%s", a->k.tls_server_name, port, host, has_port ? "" : ":443");
    server = mem_printf("https://%s:%s%s%.*s", a->k.tls_server_name, port, path.p != NULL ? "/" : "",
                        SLICE_ARG(path));
    mem_free(host);
    a->connect_to = curl_slist_append(NULL, to);
    mem_free(to);
    mem_free(a->k.server);
    a->k.server = server;
}

static void kubeapi_on_more(struct loop_task *t);

static bool kubeapi_load(struct kubeapi *a, const struct kubeapi_options *o, char **error)
{
    return o->kubeconfig[0] != '\0' ? kubeapi_load_file(a, o->kubeconfig, error)
                                    : kubeapi_load_account(a, o, error);
}

struct kubeapi *kubeapi_new(struct loop *l, struct curlev *c, const struct kubeapi_options *o, char **error)
{
    struct kubeapi *a = mem_zalloc(sizeof *a);

    a->loop = l;
    a->curl = c;
    a->watch_us = o->watch_us;
    list_init(&a->busy);
    loop_task_init(&a->more, kubeapi_on_more);
    *error = NULL;
    if (!kubeapi_load(a, o, error))
        goto fail;
    a->insecure = o->insecure || a->k.insecure;
    kubeapi_use_tls_name(a);
    a->headers = curl_slist_append(NULL, "Accept: application/json");
    return a;
fail:
    kubeapi_free(a);
    return NULL;
}

void kubeapi_free(struct kubeapi *a)
{
    if (a == NULL)
        return;
    kubeconfig_free(&a->k);
    curl_slist_free_all(a->headers);
    curl_slist_free_all(a->connect_to);
    loop_task_cancel(&a->more);
    mem_free(a->dir);
    mem_free(a);
}

struct loop *kubeapi_loop(const struct kubeapi *a)
{
    return a->loop;
}

struct curlev *kubeapi_curl(const struct kubeapi *a)
{
    return a->curl;
}

const char *kubeapi_namespace(const struct kubeapi *a)
{
    return a->k.namespace != NULL && a->k.namespace[0] != '\0' ? a->k.namespace : "default";
}

const char *kubeapi_server(const struct kubeapi *a)
{
    return a->k.server;
}

bool kubeapi_is_insecure(const struct kubeapi *a)
{
    return a->insecure;
}

int64_t kubeapi_watch_us(const struct kubeapi *a)
{
    return a->watch_us;
}

/* ---- one request ---- */

static void kubeapi_set_file(const struct kubeapi *a, CURL *easy, CURLoption option, const char *name)
{
    char *path = kubeapi_path(a, name);

    curl_easy_setopt(easy, option, path); /* copied */
    mem_free(path);
}

/* A PEM text, or the file that holds it. */
static void kubeapi_set_pem(const struct kubeapi *a, CURL *easy, CURLoption blob_option, const char *pem,
                            CURLoption file_option, const char *file)
{
    if (pem != NULL) {
        struct curl_blob blob = {(void *)(uintptr_t)pem, strlen(pem), CURL_BLOB_NOCOPY};

        curl_easy_setopt(easy, blob_option, &blob);
    } else if (file != NULL) {
        kubeapi_set_file(a, easy, file_option, file);
    }
}

static bool kubeapi_is_token(const char *token)
{
    for (const char *p = token; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~')
            return false;
    }
    return token[0] != '\0';
}

static bool kubeapi_set_token(const struct kubeapi *a, CURL *easy, char **error)
{
    char *path, *token;
    bool ok;

    if (a->k.token_file == NULL && a->k.token == NULL)
        return true;
    if (a->k.token_file != NULL) {
        path = kubeapi_path(a, a->k.token_file);
        token = kubeapi_read_file(path, KUBEAPI_TOKEN_MAX, error);
        mem_free(path);
    } else {
        token = mem_strdup(a->k.token);
    }
    if (token == NULL)
        return false;
    ok = kubeapi_is_token(token);
    if (ok) {
        curl_easy_setopt(easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(easy, CURLOPT_XOAUTH2_BEARER, token);
    } else {
        *error = mem_strdup("the token is empty or holds bytes that no token has");
    }
    mem_free(token);
    return ok;
}

bool kubeapi_prepare(const struct kubeapi *a, CURL *easy, char **error)
{
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, strncmp(a->k.server, "https:", 6) == 0 ? "https" : "http");
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "kthena-router/" ROUTER_VERSION);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, a->headers);
    if (a->connect_to != NULL)
        curl_easy_setopt(easy, CURLOPT_CONNECT_TO, a->connect_to);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, 5000L);
    /* A server that vanished without a word is noticed within a minute. */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 15L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 5L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, a->insecure ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, a->insecure ? 0L : 2L);
    if (!a->insecure)
        kubeapi_set_pem(a, easy, CURLOPT_CAINFO_BLOB, a->k.ca_pem, CURLOPT_CAINFO, a->k.ca_file);
    kubeapi_set_pem(a, easy, CURLOPT_SSLCERT_BLOB, a->k.cert_pem, CURLOPT_SSLCERT, a->k.cert_file);
    kubeapi_set_pem(a, easy, CURLOPT_SSLKEY_BLOB, a->k.key_pem, CURLOPT_SSLKEY, a->k.key_file);
    return kubeapi_set_token(a, easy, error);
}

/* ---- without the network ---- */

static bool kubeapi_check_file(const struct kubeapi *a, const char *name, char **error)
{
    char *path, *text;

    if (name == NULL)
        return true;
    path = kubeapi_path(a, name);
    text = kubeapi_read_file(path, KUBECONFIG_BYTES_MAX, error);
    mem_free(path);
    mem_free(text);
    return text != NULL;
}

bool kubeapi_check(const struct kubeapi_options *o, char **error)
{
    struct kubeapi a = {.insecure = false};
    bool ok;

    *error = NULL;
    ok = kubeapi_load(&a, o, error) && kubeapi_check_file(&a, a.k.ca_file, error) &&
         kubeapi_check_file(&a, a.k.token_file, error) && kubeapi_check_file(&a, a.k.cert_file, error) &&
         kubeapi_check_file(&a, a.k.key_file, error);
    kubeconfig_free(&a.k);
    mem_free(a.dir);
    return ok;
}

/* ---- work in slices ---- */

static void kubeapi_go_on(struct kubeapi *a)
{
    if (!list_empty(&a->busy))
        loop_defer_next(a->loop, &a->more);
}

static void kubeapi_on_more(struct loop_task *t)
{
    struct kubeapi *a = CONTAINER_OF(t, struct kubeapi, more);
    const int64_t end_us = loop_now_us(a->loop) + KUBEAPI_TURN_US;
    struct list *first;

    while ((first = list_first(&a->busy)) != NULL) {
        struct kubeapi_work *w = LIST_ITEM(first, struct kubeapi_work, link);

        list_del(&w->link);
        /* It may have got new work meanwhile, or be gone. */
        if (w->run(w) && list_empty(&w->link))
            list_push_back(&a->busy, &w->link);
        if (clock_mono_us() >= end_us)
            break;
    }
    kubeapi_go_on(a);
}

void kubeapi_work_init(struct kubeapi_work *w, bool (*run)(struct kubeapi_work *w))
{
    list_init(&w->link);
    w->run = run;
}

void kubeapi_work_add(struct kubeapi *a, struct kubeapi_work *w)
{
    if (list_empty(&w->link))
        list_push_back(&a->busy, &w->link);
    kubeapi_go_on(a);
}

void kubeapi_work_cancel(struct kubeapi_work *w)
{
    list_del(&w->link);
}

int64_t kubeapi_random(int64_t below)
{
    static uint64_t calls;

    calls++;
    return (int64_t)(htab_hash((struct slice){(const char *)&calls, sizeof calls}) % (uint64_t)below);
}
