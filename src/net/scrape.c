/* One pod's metrics page and list of models. The URL holds the pod's numeric address: libcurl never resolves
 * a name. What a read needs lives as long as the read: most of the time thousands of pods only wait. */
#include "scrape.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "htab.h"
#include "mem.h"
#include "upstream.h"

/* A read under way. */
struct scrape_read {
    struct curlev_job job;
    struct scrape *scrape;
    bool models; /* else metrics */
    struct promtext text;
    struct buf list; /* of models */
    size_t page_bytes;
    struct curl_slist *headers, *connect_to;
    char error[CURL_ERROR_SIZE];
};

struct scrape {
    struct scrape_read *read; /* NULL between two */
    struct loop *loop;
    struct curlev *curl;
    struct pod *pod;
    const struct scrape_rules *rules;
    const struct scrape_ops *ops;
    void *arg;
    enum promtext_engine engine;
    struct wheel_timer timer;
    int64_t models_due_us;
    unsigned models_failures; /* in a row */
    bool failing;
};

static size_t scrape_on_bytes(char *p, size_t size, size_t n, void *arg)
{
    struct scrape_read *r = arg;

    (void)size;
    r->page_bytes += n;
    if (r->models)
        return buf_append(&r->list, p, n) ? n : 0;
    if (r->page_bytes > SCRAPE_PAGE_MAX)
        return 0; /* libcurl ends the transfer with CURLE_WRITE_ERROR */
    promtext_feed(&r->text, (struct slice){p, n});
    return n;
}

/* "1.2.3.4:80", "[::1]:80" */
static void scrape_address(const struct upstream *up, char out[INET6_ADDRSTRLEN + 10])
{
    char host[INET6_ADDRSTRLEN];

    if (up->address.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)&up->address;

        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(out, INET6_ADDRSTRLEN + 10, "%s:%u", host, ntohs(v4->sin_port));
    } else {
        const struct sockaddr_in6 *v6 = (const void *)&up->address;

        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(out, INET6_ADDRSTRLEN + 10, "[%s]:%u", host, ntohs(v6->sin6_port));
    }
}

static const char *scrape_path(const struct scrape_read *r)
{
    return r->models ? "/v1/models" : "/metrics";
}

/* The name in the URL is the one that libcurl looks for in the certificate; it connects to the address. */
static void scrape_set_https(struct scrape_read *r, const char *address)
{
    const char *name = r->scrape->pod->upstream->tls_name, *ca_file = r->scrape->rules->ca_file;
    const bool v6 = strchr(name, ':') != NULL;
    char *url = mem_printf(v6 ? "https://[%s]%s" : "https://%s%s", name, scrape_path(r));
    char *to = mem_printf("::%s", address);

    r->connect_to = curl_slist_append(NULL, to);
    curl_easy_setopt(r->job.easy, CURLOPT_CONNECT_TO, r->connect_to);
    curl_easy_setopt(r->job.easy, CURLOPT_URL, url);
    if (ca_file[0] != '\0')
        curl_easy_setopt(r->job.easy, CURLOPT_CAINFO, ca_file);
    mem_free(to);
    mem_free(url);
}

static void scrape_set_http(struct scrape_read *r, const char *address)
{
    char *url = mem_printf("http://%s%s", address, scrape_path(r));

    curl_easy_setopt(r->job.easy, CURLOPT_URL, url);
    mem_free(url);
}

static void scrape_wait(struct scrape *s)
{
    loop_timer_set(s->loop, &s->timer, loop_now_us(s->loop) + s->rules->interval_us);
}

static void scrape_on_done(struct curlev_job *job, CURLcode result);

/* The pod expects its own name in Host, also when it is reached by a resolved address. */
static void scrape_set_headers(struct scrape_read *r)
{
    char *host = mem_printf("Host: %s", r->scrape->pod->name);

    r->headers = curl_slist_append(NULL, host);
    r->headers = curl_slist_append(r->headers, r->models ? "Accept: application/json" : "Accept: text/plain");
    mem_free(host);
    curl_easy_setopt(r->job.easy, CURLOPT_HTTPHEADER, r->headers);
}

/* NULL: no curl handle. */
static struct scrape_read *scrape_new_read(struct scrape *s)
{
    struct scrape_read *r = mem_alloc(sizeof *r);

    r->scrape = s;
    r->models = s->rules->models && loop_now_us(s->loop) >= s->models_due_us;
    buf_init(&r->list, SCRAPE_MODELS_MAX);
    r->page_bytes = 0;
    r->headers = r->connect_to = NULL;
    r->error[0] = '\0';
    if (!curlev_job_init(&r->job, scrape_on_done)) {
        mem_free(r);
        return NULL;
    }
    promtext_start(&r->text, s->engine);
    scrape_set_headers(r);
    curl_easy_setopt(r->job.easy, CURLOPT_ERRORBUFFER, r->error);
    curl_easy_setopt(r->job.easy, CURLOPT_WRITEFUNCTION, scrape_on_bytes);
    curl_easy_setopt(r->job.easy, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(r->job.easy, CURLOPT_TIMEOUT_MS, (long)(s->rules->timeout_us / US_PER_MS));
    return r;
}

static void scrape_drop_read(struct scrape *s)
{
    if (s->read == NULL)
        return;
    curlev_job_free(s->curl, &s->read->job);
    curl_slist_free_all(s->read->headers);
    curl_slist_free_all(s->read->connect_to);
    buf_free(&s->read->list);
    mem_free(s->read);
    s->read = NULL;
}

static void scrape_run(struct scrape *s)
{
    const struct upstream *up = s->pod->upstream;
    char address[INET6_ADDRSTRLEN + 10];

    if (up->address_bytes > 0) /* else its name is not resolved yet */
        s->read = scrape_new_read(s);
    if (s->read == NULL) {
        scrape_wait(s);
        return;
    }
    scrape_address(up, address);
    if (up->tls_name != NULL)
        scrape_set_https(s->read, address);
    else
        scrape_set_http(s->read, address);
    curlev_start(s->curl, &s->read->job);
}

/* False: as many as may be have been started in this tick. */
static bool scrape_may_start(struct scrape *s)
{
    struct scrape_pace *pace = s->rules->pace;
    const int64_t tick = loop_now_us(s->loop) / WHEEL_TICK_US;

    if (pace->tick != tick)
        pace->started = 0;
    pace->tick = tick;
    return pace->started++ < SCRAPE_STARTS_MAX;
}

static void scrape_on_timer(struct wheel_timer *t)
{
    struct scrape *s = CONTAINER_OF(t, struct scrape, timer);

    if (scrape_may_start(s))
        scrape_run(s);
    else
        loop_timer_set(s->loop, &s->timer, loop_now_us(s->loop) + WHEEL_TICK_US);
}

/* NULL = a good page; else what was wrong with it. */
static const char *scrape_verdict(struct scrape_read *r, CURLcode result, char why[CURL_ERROR_SIZE])
{
    long status = 0;

    if (r->page_bytes > SCRAPE_PAGE_MAX)
        return "the page is larger than 16 MiB";
    if (result != CURLE_OK)
        return r->error[0] != '\0' ? r->error : curl_easy_strerror(result);
    curl_easy_getinfo(r->job.easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        snprintf(why, CURL_ERROR_SIZE, "/metrics answered with status %ld, expected 200", status);
        return why;
    }
    return promtext_finish(&r->text) ? NULL : "/metrics holds no sample of a Prometheus page";
}

static void scrape_take(struct scrape *s, const struct promtext *text)
{
    const bool was_failing = s->failing;

    s->failing = false;
    pod_take_numbers(s->pod, &text->numbers, &text->totals, loop_now_us(s->loop));
    if (was_failing)
        s->ops->recovered(s->pod, s->arg);
    s->ops->fresh(s->pod, s->arg);
}

/* The metrics are read right after it. */
static void scrape_on_models(struct scrape_read *r, CURLcode result)
{
    struct scrape *s = r->scrape;
    long status = 0;

    curl_easy_getinfo(r->job.easy, CURLINFO_RESPONSE_CODE, &status);
    s->models_failures++;
    if (result == CURLE_OK && status == 200)
        s->models_failures = 0;
    else
        buf_clear(&r->list);
    s->models_due_us = loop_now_us(s->loop) + SCRAPE_MODELS_EVERY * s->rules->interval_us;
    loop_timer_set(s->loop, &s->timer, loop_now_us(s->loop));
    if (s->models_failures == 0 || s->models_failures >= SCRAPE_MODELS_KEEP)
        s->ops->models(s->pod, buf_slice(&r->list), s->arg);
    scrape_drop_read(s);
}

static void scrape_on_done(struct curlev_job *job, CURLcode result)
{
    struct scrape_read *r = CONTAINER_OF(job, struct scrape_read, job);
    struct scrape *s = r->scrape;
    char text[CURL_ERROR_SIZE];
    const char *why;

    if (r->models) {
        scrape_on_models(r, result);
        return;
    }
    why = scrape_verdict(r, result, text);
    scrape_wait(s);
    if (why != NULL) {
        s->ops->failed(s->pod, why, !s->failing, s->arg);
        s->failing = true;
    } else {
        scrape_take(s, &r->text);
    }
    scrape_drop_read(s);
}

/* Many pods that come at once are not all read at once. */
static int64_t scrape_first_us(const struct scrape *s)
{
    const uint64_t hash = htab_hash((struct slice){(const char *)&s->pod->id, sizeof s->pod->id});

    return s->rules->pace->n <= SCRAPE_FEW ? 0 : (int64_t)(hash % (uint64_t)(s->rules->interval_us + 1));
}

struct scrape *scrape_new(struct loop *l, struct curlev *c, struct pod *pod, enum promtext_engine engine,
                          const struct scrape_rules *rules, const struct scrape_ops *ops, void *arg)
{
    struct scrape *s = mem_zalloc(sizeof *s);

    s->loop = l;
    s->curl = c;
    s->pod = pod;
    s->engine = engine;
    s->rules = rules;
    s->ops = ops;
    s->arg = arg;
    rules->pace->n++;
    wheel_timer_init(&s->timer, scrape_on_timer);
    loop_timer_set(l, &s->timer, loop_now_us(l) + scrape_first_us(s));
    return s;
}

void scrape_heed_rules(struct scrape *s)
{
    if (wheel_pending(&s->timer) && s->timer.due_us > loop_now_us(s->loop) + s->rules->interval_us)
        scrape_wait(s);
}

void scrape_free(struct scrape *s)
{
    if (s == NULL)
        return;
    s->rules->pace->n--;
    loop_timer_cancel(s->loop, &s->timer);
    scrape_drop_read(s);
    mem_free(s);
}
