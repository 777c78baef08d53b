/* Pods, servers and routes that come, change and go: by hand, and as random programs beside a naive model
 * that works everything out anew. The scenarios of the Go router's tests of what comes in which order:
 *   O1 O2 O4 test_pod_after_its_server_and_before   O3 O10 O11 test_pods_of_a_server
 *   O5 O6 O7 O8 O9 test_pod_of_two_servers          all of them in any order: test_random_programs
 */
#include "kthena.h"

#include <stdio.h>
#include <stdlib.h>

#include "mem.h"
#include "test.h"

static bool put(struct kthena *k, enum kthena_kind kind, char *text, struct kthena_info *info)
{
    struct cJSON *o = kubeobj_parse(slice_of(text));
    struct kthena_info none;
    bool said;

    assert_non_null(o);
    said = kthena_put(k, kind, o, info != NULL ? info : &none);
    kubeobj_free(o);
    mem_free(text);
    return said;
}

static void put_pod(struct kthena *k, const char *name, const char *uid, const char *ip, const char *label,
                    bool ready)
{
    put(k, KTHENA_PODS,
        mem_printf("{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"%s\",\"labels\":{\"app\":"
                   "\"%s\",\"x\":\"y\"}},"
                   "\"status\":{\"podIP\":\"%s\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"%s\"}]}}",
                   name, uid, label, ip, ready ? "True" : "False"),
        NULL);
}

static bool put_server(struct kthena *k, const char *name, const char *label, int port)
{
    return put(
        k, KTHENA_SERVERS,
        mem_printf("{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"u-%s\"},\"spec\":{"
                   "\"inferenceEngine\":\"vLLM\","
                   "\"workloadSelector\":{\"matchLabels\":{\"app\":\"%s\"}},\"workloadPort\":{\"port\":%d}}}",
                   name, name, label, port),
        NULL);
}

static void put_route(struct kthena *k, const char *name, const char *created, const char *version)
{
    put(k, KTHENA_ROUTES,
        mem_printf("{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"u-%s\","
                   "\"creationTimestamp\":\"%s\","
                   "\"resourceVersion\":\"%s\"},\"spec\":{\"modelName\":\"m\",\"rules\":[{\"targetModels\":[{"
                   "\"modelServerName\":\"s\"}]}]}}",
                   name, name, created, version),
        NULL);
}

static void delete_object(struct kthena *k, enum kthena_kind kind, const char *name, const char *uid)
{
    char *text =
        mem_printf("{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"uid\":\"%s\"}}", name, uid);
    struct cJSON *o = kubeobj_parse(slice_of(text));

    kthena_delete(k, kind, o);
    kubeobj_free(o);
    mem_free(text);
}

/* "authority/uid authority/uid" of the server, when it is the next dirty one. */
static void expect_dirty(struct kthena *k, const char *server, const char *endpoints)
{
    struct kthena_server *s = kthena_next_dirty(k);
    struct kubeobj_endpoint *e;
    struct buf b;
    size_t n;

    assert_non_null(s);
    assert_string_equal(kthena_server_name(s), server);
    e = kthena_endpoints(s, &n);
    buf_init(&b, 65536);
    for (size_t i = 0; i < n; i++)
        assert_true(buf_printf(&b, "%s%s/%s", i > 0 ? " " : "", e[i].authority, e[i].uid));
    assert_true(buf_append(&b, "", 1));
    assert_string_equal(buf_slice(&b).p, endpoints);
    kubeobj_free_endpoints(e, n);
    buf_free(&b);
}

static void test_pods_of_a_server(void **state)
{
    struct kthena *k = kthena_new();

    (void)state;
    put_server(k, "s", "a", 80);
    put_pod(k, "p2", "u2", "10.0.0.2", "a", true);
    assert_true(kthena_changed(k));
    assert_null(kthena_next_dirty(k)); /* nobody has seen it yet */
    kthena_view_free(kthena_view(k));
    assert_false(kthena_changed(k));
    expect_dirty(k, "ns/s", "10.0.0.2:80/u2");
    assert_null(kthena_next_dirty(k));
    put_pod(k, "p1", "u1", "10.0.0.1", "a", true);
    put_pod(k, "p3", "u3", "10.0.0.3", "b", true);
    put_pod(k, "p4", "u4", "10.0.0.4", "a", false);
    expect_dirty(k, "ns/s", "10.0.0.1:80/u1 10.0.0.2:80/u2");
    put_pod(k, "p1", "u1", "10.0.0.1", "a", true); /* nothing new */
    assert_null(kthena_next_dirty(k));
    put_pod(k, "p1", "u1b", "10.0.0.1", "a", true); /* another pod of that name */
    expect_dirty(k, "ns/s", "10.0.0.1:80/u1b 10.0.0.2:80/u2");
    delete_object(k, KTHENA_PODS, "p1", "u1"); /* the one that is gone already */
    assert_null(kthena_next_dirty(k));
    put_pod(k, "p2", "u2", "10.0.0.2", "a", false);
    expect_dirty(k, "ns/s", "10.0.0.1:80/u1b");
    delete_object(k, KTHENA_PODS, "p1", "u1b");
    expect_dirty(k, "ns/s", "");
    kthena_free(k);
}

/* Takes all that is dirty: "SERVER=N ..." in the order of the names, N the number of its pods. */
static void expect_all_dirty(struct kthena *k, const char *text)
{
    size_t n_of[2] = {0}, n;
    bool is[2] = {false};
    struct kthena_server *s;
    char got[64] = "";

    while ((s = kthena_next_dirty(k)) != NULL) {
        const size_t which = strcmp(kthena_server_name(s), "ns/s") == 0 ? 0 : 1;
        struct kubeobj_endpoint *e = kthena_endpoints(s, &n);

        kubeobj_free_endpoints(e, n);
        is[which] = true;
        n_of[which] = n;
    }
    for (size_t i = 0, at = 0; i < 2; i++) {
        if (is[i])
            at += (size_t)snprintf(got + at, sizeof(got) - at, "%s%c=%zu", at > 0 ? " " : "",
                                   i == 0 ? 's' : 't', n_of[i]);
    }
    assert_string_equal(got, text);
}

static void test_pod_after_its_server_and_before(void **state)
{
    for (int server_first = 0; server_first < 2; server_first++) {
        struct kthena *k = kthena_new();

        (void)state;
        if (server_first)
            put_server(k, "s", "a", 80);
        put_pod(k, "p", "u", "10.0.0.1", "a", true);
        if (!server_first)
            put_server(k, "s", "a", 80);
        kthena_view_free(kthena_view(k));
        expect_dirty(k, "ns/s", "10.0.0.1:80/u");
        put_server(k, "s", "a", 80); /* again, as it is */
        kthena_view_free(kthena_view(k));
        expect_dirty(k, "ns/s", "10.0.0.1:80/u");
        assert_null(kthena_next_dirty(k));
        kthena_free(k);
    }
}

static void test_pod_of_two_servers(void **state)
{
    struct kthena *k = kthena_new();

    (void)state;
    put_server(k, "s", "a", 80);
    put_server(k, "t", "a", 80);
    kthena_view_free(kthena_view(k));
    expect_all_dirty(k, "s=0 t=0");
    put_pod(k, "p", "u", "10.0.0.1", "a", true);
    expect_all_dirty(k, "s=1 t=1");
    put_server(k, "s", "a", 80);
    put_server(k, "t", "b", 80); /* the pod stays with s alone */
    kthena_view_free(kthena_view(k));
    expect_all_dirty(k, "s=1 t=0");
    put_pod(k, "p", "u", "10.0.0.1", "b", true); /* it moves */
    expect_all_dirty(k, "s=0 t=1");
    put_pod(k, "q", "v", "10.0.0.2", "a", true);
    put_server(k, "t", "a", 80);
    put_pod(k, "r", "w", "10.0.0.3", "a", true);
    kthena_view_free(kthena_view(k));
    expect_all_dirty(k, "s=2 t=2");
    delete_object(k, KTHENA_PODS, "q", "v");
    delete_object(k, KTHENA_PODS, "nobody", "x");
    delete_object(k, KTHENA_SERVERS, "nothing", "x");
    expect_all_dirty(k, "s=1 t=1");
    delete_object(k, KTHENA_SERVERS, "s", "u-s");
    kthena_view_free(kthena_view(k));
    put_pod(k, "r", "w", "10.0.0.3", "a", false);
    expect_all_dirty(k, "t=0");
    kthena_free(k);
}

static void test_server_that_changes(void **state)
{
    struct kthena *k = kthena_new();
    struct kthena_view *v;

    (void)state;
    put_pod(k, "p", "u", "fd00::1", "a", true);
    put_server(k, "s", "a", 80);
    v = kthena_view(k);
    assert_int_equal(v->n_servers, 1);
    assert_non_null(kthena_next_dirty(k));
    put_server(k, "s", "a", 81);
    assert_true(kthena_changed(k));
    assert_string_equal(v->servers[0]->name, "ns/s"); /* the old view lives */
    kthena_view_free(v);
    assert_null(kthena_next_dirty(k));
    kthena_view_free(kthena_view(k));
    expect_dirty(k, "ns/s", "[fd00::1]:81/u");
    delete_object(k, KTHENA_SERVERS, "s", "u-s");
    assert_true(kthena_changed(k));
    assert_null(kthena_next_dirty(k));
    kthena_free(k);
}

/* A server that was in force keeps its pods until the next view, and loses those that go. */
static void test_server_that_is_gone(void **state)
{
    struct kthena *k = kthena_new();

    (void)state;
    put_pod(k, "p", "u", "10.0.0.1", "a", true);
    put_pod(k, "q", "v", "10.0.0.2", "a", true);
    put_server(k, "s", "a", 80);
    kthena_view_free(kthena_view(k));
    expect_dirty(k, "ns/s", "10.0.0.1:80/u 10.0.0.2:80/v");
    delete_object(k, KTHENA_SERVERS, "s", "u-s");
    assert_null(kthena_next_dirty(k));
    delete_object(k, KTHENA_PODS, "q", "v");
    expect_dirty(k, "ns/s", "10.0.0.1:80/u");
    put_server(k, "s", "a", 81);
    assert_null(kthena_next_dirty(k));
    put_pod(k, "r", "w", "10.0.0.3", "a", true);
    expect_dirty(k, "ns/s", "10.0.0.1:80/u 10.0.0.3:80/w");
    kthena_view_free(kthena_view(k));
    expect_dirty(k, "ns/s", "10.0.0.1:81/u 10.0.0.3:81/w");
    delete_object(k, KTHENA_SERVERS, "s", "u-s");
    kthena_view_free(kthena_view(k));
    delete_object(k, KTHENA_PODS, "r", "w");
    assert_null(kthena_next_dirty(k));
    kthena_free(k);
}

/* Status updates of an object do not touch its generation. */
static void test_generation(void **state)
{
    static const char text[] =
        "{\"metadata\":{\"name\":\"s\",\"namespace\":\"ns\",\"uid\":\"u\",\"generation\":%d},\"spec\":{"
        "\"inferenceEngine\":\"vLLM\",\"workloadSelector\":{\"matchLabels\":{\"a\":\"b\"}},"
        "\"workloadPort\":{\"port\":80}}}";
    struct kthena *k = kthena_new();
    char first[512], second[512];

    (void)state;
    (void)snprintf(first, sizeof(first), text, 1);
    (void)snprintf(second, sizeof(second), text, 2);
    put(k, KTHENA_SERVERS, mem_strdup(first), NULL);
    kthena_view_free(kthena_view(k));
    put(k, KTHENA_SERVERS, mem_strdup(first), NULL);
    assert_false(kthena_changed(k));
    put(k, KTHENA_SERVERS, mem_strdup(second), NULL);
    assert_true(kthena_changed(k));
    kthena_free(k);
}

static void test_lists_replace(void **state)
{
    struct kthena *k = kthena_new();

    (void)state;
    kthena_list_begin(k, KTHENA_PODS);
    put_pod(k, "p1", "u1", "10.0.0.1", "a", true);
    put_pod(k, "p2", "u2", "10.0.0.2", "a", true);
    kthena_list_end(k, KTHENA_PODS);
    kthena_list_begin(k, KTHENA_PODS);
    put_pod(k, "p2", "u2", "10.0.0.2", "a", true);
    kthena_list_begin(k, KTHENA_PODS); /* the first one was broken off */
    put_pod(k, "p3", "u3", "10.0.0.3", "a", true);
    assert_int_equal(kthena_count(k, KTHENA_PODS), 3);
    kthena_list_end(k, KTHENA_PODS);
    assert_int_equal(kthena_count(k, KTHENA_PODS), 1);
    kthena_free(k);
}

static void test_order_of_routes(void **state)
{
    struct kthena *k = kthena_new();
    struct kthena_view *v;

    (void)state;
    put_route(k, "d", "2026-01-02T00:00:00Z", "1");
    put_route(k, "c", "2026-01-01T00:00:00Z", "9");
    put_route(k, "b", "2026-01-01T00:00:00Z", "10");
    put_route(k, "a", "2026-01-01T00:00:00Z", "10");
    v = kthena_view(k);
    assert_int_equal(v->n_routes, 4);
    assert_string_equal(v->routes[0]->name, "ns/a");
    assert_string_equal(v->routes[1]->name, "ns/b");
    assert_string_equal(v->routes[2]->name, "ns/c"); /* versions compare as texts, as there */
    assert_string_equal(v->routes[3]->name, "ns/d");
    kthena_view_free(v);
    kthena_free(k);
}

static void count_used(const struct kthena_info *info, void *arg)
{
    size_t *n = arg;

    n[info->problem == NULL]++;
}

static void test_what_is_said(void **state)
{
    struct kthena *k = kthena_new();
    struct kthena_info info;
    size_t n[2] = {0, 0};

    (void)state;
    assert_false(put_server(k, "s", "a", 80));
    assert_true(put(k, KTHENA_SERVERS,
                    mem_strdup("{\"metadata\":{\"name\":\"t\",\"uid\":\"t\"},\"spec\":{}}"), &info));
    assert_string_equal(info.name, "/t");
    assert_non_null(info.problem);
    assert_false(put(k, KTHENA_SERVERS, mem_strdup("{}"), &info));
    assert_true(kthena_has_server(k, "ns/s"));
    assert_false(kthena_has_server(k, "/t"));
    kthena_each(k, count_used, n);
    assert_int_equal(n[0], 1);
    assert_int_equal(n[1], 1);
    kthena_free(k);
}

/* A pod that cannot be reached is told apart from one that is not ready; told again only when it changes. */
static void test_pod_without_an_address(void **state)
{
    struct kthena *k = kthena_new();
    struct kthena_info info;
    const char *text =
        "{\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\",\"uid\":\"u\",\"labels\":{\"app\":\"a\"}},"
        "\"status\":{\"podIP\":\"%s\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}";
    char *bad = mem_alloc(512);

    (void)state;
    (void)snprintf(bad, 512, text, "10.0.0");
    put_server(k, "s", "a", 80);
    kthena_view_free(kthena_view(k));
    (void)kthena_next_dirty(k);
    assert_true(put(k, KTHENA_PODS, mem_strdup(bad), &info));
    assert_string_equal(info.problem, "status.podIP is no IP address");
    assert_false(put(k, KTHENA_PODS, bad, &info));
    put_pod(k, "q", "v", "", "a", true);
    assert_null(kthena_next_dirty(k));
    put_pod(k, "p", "u", "10.0.0.1", "a", true);
    expect_dirty(k, "ns/s", "10.0.0.1:80/u");
    kthena_free(k);
}

/* ---- random programs ---- */

#define N_PODS    12
#define N_SERVERS 4
#define N_LABELS  3

struct naive {
    struct naive_pod {
        bool there, ready;
        unsigned uid, ip, label;
    } pods[N_PODS];
    struct naive_server {
        bool there;
        unsigned label, port;
    } servers[N_SERVERS], shown[N_SERVERS]; /* now, and in the last view */
    char told[N_SERVERS][2048];             /* endpoints as last told */
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void naive_endpoints(const struct naive *n, size_t server, char out[2048])
{
    char *texts[N_PODS];
    size_t count = 0;

    for (size_t i = 0; i < N_PODS; i++) {
        const struct naive_pod *p = &n->pods[i];

        if (p->there && p->ready && p->label == n->shown[server].label)
            texts[count++] = mem_printf("10.0.%zu.%u:%u/u%u ", i, p->ip, n->shown[server].port, p->uid);
    }
    qsort(texts, count, sizeof(char *), by_text);
    out[0] = '\0';
    for (size_t i = 0, at = 0; i < count; i++) {
        at += (size_t)snprintf(out + at, 2048 - at, "%s", texts[i]);
        mem_free(texts[i]);
    }
}

static void random_pod(struct kthena *k, struct naive *n, struct test_random *r, unsigned step)
{
    const size_t i = test_random_below(r, N_PODS);
    struct naive_pod *p = &n->pods[i];
    char name[16], uid[16], ip[32], label[16];

    (void)snprintf(name, sizeof(name), "p%zu", i);
    if (p->there && test_random_below(r, 4) == 0) {
        (void)snprintf(uid, sizeof(uid), "u%u", p->uid);
        delete_object(k, KTHENA_PODS, name, uid);
        p->there = false;
        return;
    }
    if (!p->there || test_random_below(r, 6) == 0)
        p->uid = step;
    p->there = true;
    p->ready = test_random_below(r, 4) > 0;
    p->ip = (unsigned)test_random_below(r, 2) + 1;
    p->label = (unsigned)test_random_below(r, N_LABELS);
    (void)snprintf(uid, sizeof(uid), "u%u", p->uid);
    (void)snprintf(ip, sizeof(ip), "10.0.%zu.%u", i, p->ip);
    (void)snprintf(label, sizeof(label), "l%u", p->label);
    put_pod(k, name, uid, ip, label, p->ready);
}

static void random_server(struct kthena *k, struct naive *n, struct test_random *r)
{
    const size_t i = test_random_below(r, N_SERVERS);
    struct naive_server *s = &n->servers[i];
    char name[16], uid[16], label[16];

    (void)snprintf(name, sizeof(name), "s%zu", i);
    if (s->there && test_random_below(r, 3) == 0) {
        (void)snprintf(uid, sizeof(uid), "u-s%zu", i);
        delete_object(k, KTHENA_SERVERS, name, uid);
        s->there = false;
        return;
    }
    s->there = true;
    s->label = (unsigned)test_random_below(r, N_LABELS);
    s->port = 80 + (unsigned)test_random_below(r, 3);
    (void)snprintf(label, sizeof(label), "l%u", s->label);
    put_server(k, name, label, (int)s->port);
}

/* Takes what is dirty; afterwards the last told endpoints of each server of the last view are what they
 * should be, also of one that is gone or has changed since. */
static void check(struct kthena *k, struct naive *n)
{
    struct kthena_server *s;

    while ((s = kthena_next_dirty(k)) != NULL) {
        const size_t i = (size_t)(kthena_server_name(s)[4] - '0');
        size_t count;
        struct kubeobj_endpoint *e = kthena_endpoints(s, &count);

        n->told[i][0] = '\0';
        for (size_t j = 0, at = 0; j < count; j++)
            at += (size_t)snprintf(n->told[i] + at, sizeof(n->told[i]) - at, "%s/%s ", e[j].authority,
                                   e[j].uid);
        kubeobj_free_endpoints(e, count);
    }
    for (size_t i = 0; i < N_SERVERS; i++) {
        char expected[2048];

        if (!n->shown[i].there)
            continue;
        naive_endpoints(n, i, expected);
        assert_string_equal(n->told[i], expected);
    }
}

static void test_random_programs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct test_random r = {seed};
        struct kthena *k = kthena_new();
        struct naive *n = mem_zalloc(sizeof(*n));
        struct kthena_view *v = NULL;

        for (unsigned step = 1; step < 200; step++) {
            const size_t what = test_random_below(&r, 10);

            if (what < 6) {
                random_pod(k, n, &r, step);
            } else if (what < 8) {
                random_server(k, n, &r);
            } else {
                struct kthena_view *next = kthena_view(k);

                kthena_view_free(v);
                v = next;
                memcpy(n->shown, n->servers, sizeof(n->shown));
            }
            check(k, n);
        }
        kthena_view_free(v);
        kthena_free(k);
        mem_free(n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pod_after_its_server_and_before),
                                       cmocka_unit_test(test_pod_of_two_servers),
                                       cmocka_unit_test(test_pods_of_a_server),
                                       cmocka_unit_test(test_server_that_changes),
                                       cmocka_unit_test(test_server_that_is_gone),
                                       cmocka_unit_test(test_generation),
                                       cmocka_unit_test(test_lists_replace),
                                       cmocka_unit_test(test_order_of_routes),
                                       cmocka_unit_test(test_what_is_said),
                                       cmocka_unit_test(test_pod_without_an_address),
                                       cmocka_unit_test(test_random_programs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
