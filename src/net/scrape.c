/* One pod's metrics page. The URL holds the pod's numeric address: libcurl never resolves a name. */
#include "scrape.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "mem.h"
#include "upstream.h"

struct scrape {
    struct curlev_job job;
    struct loop *loop;
    struct curlev *curl;
    struct pod *pod;
    const struct scrape_rules *rules;
    const struct scrape_ops *ops;
    void *arg;
    enum promtext_engine engine;
    struct promtext text;
    size_t page_bytes;
    struct curl_slist *headers, *connect_to;
    struct wheel_timer timer;
    bool failing;
    char error[CURL_ERROR_SIZE];
};

static size_t scrape_on_bytes(char *p, size_t size, size_t n, void *arg)
{
    struct scrape *s = arg;

    (void)size;
    s->page_bytes += n;
    if (s->page_bytes > SCRAPE_PAGE_MAX)
        return 0; /* libcurl ends the transfer with CURLE_WRITE_ERROR */
    promtext_feed(&s->text, (struct slice){p, n});
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

/* The name in the URL is the one that libcurl looks for in the certificate; it connects to the address. */
static void scrape_set_https(struct scrape *s, const char *address)
{
    const char *name = s->pod->upstream->tls_name;
    const bool v6 = strchr(name, ':') != NULL;
    char *url = mem_printf(v6 ? "https://[%s]/metrics" : "https://%s/metrics", name);
    char *to = mem_printf("::%s", address);

    curl_slist_free_all(s->connect_to);
    s->connect_to = curl_slist_append(NULL, to);
    curl_easy_setopt(s->job.easy, CURLOPT_CONNECT_TO, s->connect_to);
    curl_easy_setopt(s->job.easy, CURLOPT_URL, url);
    if (s->rules->ca_file[0] != '\0')
        curl_easy_setopt(s->job.easy, CURLOPT_CAINFO, s->rules->ca_file);
    mem_free(to);
    mem_free(url);
}

static void scrape_set_http(struct scrape *s, const char *address)
{
    char *url = mem_printf("http://%s/metrics", address);

    curl_easy_setopt(s->job.easy, CURLOPT_CONNECT_TO, NULL);
    curl_easy_setopt(s->job.easy, CURLOPT_URL, url);
    mem_free(url);
}

static void scrape_wait(struct scrape *s)
{
    loop_timer_set(s->loop, &s->timer, loop_now_us(s->loop) + s->rules->interval_us);
}

static void scrape_run(struct scrape *s)
{
    const struct upstream *up = s->pod->upstream;
    char address[INET6_ADDRSTRLEN + 10];

    if (up->address_bytes == 0) { /* its name is not resolved yet */
        scrape_wait(s);
        return;
    }
    scrape_address(up, address);
    if (up->tls_name != NULL)
        scrape_set_https(s, address);
    else
        scrape_set_http(s, address);
    promtext_start(&s->text, s->engine);
    s->page_bytes = 0;
    s->error[0] = '\0';
    curl_easy_setopt(s->job.easy, CURLOPT_TIMEOUT_MS, (long)(s->rules->timeout_us / US_PER_MS));
    curlev_start(s->curl, &s->job);
}

static void scrape_on_timer(struct wheel_timer *t)
{
    scrape_run(CONTAINER_OF(t, struct scrape, timer));
}

/* NULL = a good page; else what was wrong with it. */
static const char *scrape_verdict(struct scrape *s, CURLcode result, char why[CURL_ERROR_SIZE])
{
    long status = 0;

    if (s->page_bytes > SCRAPE_PAGE_MAX)
        return "the page is larger than 16 MiB";
    if (result != CURLE_OK)
        return s->error[0] != '\0' ? s->error : curl_easy_strerror(result);
    curl_easy_getinfo(s->job.easy, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) {
        snprintf(why, CURL_ERROR_SIZE, "/metrics answered with status %ld, expected 200", status);
        return why;
    }
    return promtext_finish(&s->text) ? NULL : "/metrics holds no sample of a Prometheus page";
}

static void scrape_on_done(struct curlev_job *job, CURLcode result)
{
    struct scrape *s = CONTAINER_OF(job, struct scrape, job);
    char text[CURL_ERROR_SIZE];
    const char *why = scrape_verdict(s, result, text);
    const bool was_failing = s->failing;

    s->failing = why != NULL;
    scrape_wait(s);
    if (why != NULL) {
        s->ops->failed(s->pod, why, !was_failing, s->arg);
        return;
    }
    pod_take_numbers(s->pod, &s->text.numbers, &s->text.totals, loop_now_us(s->loop));
    if (was_failing)
        s->ops->recovered(s->pod, s->arg);
    s->ops->fresh(s->pod, s->arg);
}

/* The pod expects its own name in Host, also when it is reached by a resolved address. */
static void scrape_set_headers(struct scrape *s)
{
    char *host = mem_printf("Host: %s", s->pod->name);

    s->headers = curl_slist_append(NULL, host);
    s->headers = curl_slist_append(s->headers, "Accept: text/plain");
    mem_free(host);
    curl_easy_setopt(s->job.easy, CURLOPT_HTTPHEADER, s->headers);
}

struct scrape *scrape_new(struct loop *l, struct curlev *c, struct pod *pod, enum promtext_engine engine,
                          const struct scrape_rules *rules, const struct scrape_ops *ops, void *arg)
{
    struct scrape *s = mem_zalloc(sizeof *s);

    if (!curlev_job_init(&s->job, scrape_on_done)) {
        mem_free(s);
        return NULL;
    }
    s->loop = l;
    s->curl = c;
    s->pod = pod;
    s->engine = engine;
    s->rules = rules;
    s->ops = ops;
    s->arg = arg;
    wheel_timer_init(&s->timer, scrape_on_timer);
    scrape_set_headers(s);
    curl_easy_setopt(s->job.easy, CURLOPT_ERRORBUFFER, s->error);
    curl_easy_setopt(s->job.easy, CURLOPT_WRITEFUNCTION, scrape_on_bytes);
    curl_easy_setopt(s->job.easy, CURLOPT_WRITEDATA, s);
    loop_timer_set(l, &s->timer, loop_now_us(l));
    return s;
}

void scrape_free(struct scrape *s)
{
    if (s == NULL)
        return;
    loop_timer_cancel(s->loop, &s->timer);
    curlev_job_free(s->curl, &s->job);
    curl_slist_free_all(s->headers);
    curl_slist_free_all(s->connect_to);
    mem_free(s);
}
