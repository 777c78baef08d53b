/* libcurl tells which sockets and which timer it wants watched; the loop tells it what happened. */
#include "curlev.h"

#include "libs.h"
#include "mem.h"

struct curlev {
    struct loop *loop;
    CURLM *multi;
    struct event *timer;
};

/* One socket that libcurl wants watched. */
struct curlev_socket {
    struct loop_grave grave;
    struct curlev *owner;
    struct event *event;
};

static void curlev_report_done(struct curlev *c)
{
    CURLMsg *msg;
    int left;

    while ((msg = curl_multi_info_read(c->multi, &left)) != NULL) {
        const CURLcode result = msg->data.result;
        CURL *easy = msg->easy_handle;
        struct curlev_job *job = NULL;

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&job);
        curl_multi_remove_handle(c->multi, easy);
        job->running = false;
        job->done(job, result);
    }
}

static void curlev_on_socket(evutil_socket_t fd, short what, void *arg)
{
    struct curlev_socket *s = arg;
    struct curlev *c = s->owner;
    const int bits = ((what & EV_READ) ? CURL_CSELECT_IN : 0) | ((what & EV_WRITE) ? CURL_CSELECT_OUT : 0);
    int running;

    (void)loop_now_us(c->loop); /* the turn's time is measured from here at the latest */
    curl_multi_socket_action(c->multi, fd, bits, &running);
    curlev_report_done(c);
}

static void curlev_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct curlev *c = arg;
    int running;

    (void)fd, (void)what, (void)loop_now_us(c->loop);
    curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    curlev_report_done(c);
}

static int curlev_want_timer(CURLM *multi, long ms, void *arg)
{
    struct curlev *c = arg;
    const struct timeval in = {ms / 1000, (ms % 1000) * 1000};

    (void)multi;
    if (ms < 0)
        event_del(c->timer);
    else
        event_add(c->timer, &in);
    return 0;
}

static void curlev_free_socket(struct loop_grave *g)
{
    mem_free(CONTAINER_OF(g, struct curlev_socket, grave));
}

static int curlev_want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct curlev *c = arg;
    struct curlev_socket *s = socket_arg;
    short events = EV_PERSIST;

    (void)easy;
    if (s != NULL)
        event_free(s->event);
    if (what == CURL_POLL_REMOVE) {
        if (s != NULL) {
            curl_multi_assign(c->multi, fd, NULL);
            loop_bury(c->loop, &s->grave, curlev_free_socket);
        }
        return 0;
    }
    if (s == NULL) {
        s = mem_zalloc(sizeof *s);
        s->owner = c;
        curl_multi_assign(c->multi, fd, s);
    }
    if (what & CURL_POLL_IN)
        events |= EV_READ;
    if (what & CURL_POLL_OUT)
        events |= EV_WRITE;
    s->event = event_new(c->loop->base, fd, events, curlev_on_socket, s);
    event_add(s->event, NULL);
    return 0;
}

struct curlev *curlev_new(struct loop *l)
{
    struct curlev *c;

    if (!libs_start_curl())
        return NULL;
    c = mem_zalloc(sizeof *c);
    c->loop = l;
    c->multi = curl_multi_init();
    c->timer = event_new(l->base, -1, 0, curlev_on_timer, c);
    if (c->multi == NULL || c->timer == NULL) {
        curlev_free(c);
        return NULL;
    }
    /* Kept for the next read; what they take of the descriptors is reserved. */
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, CURLEV_IDLE_MAX);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, curlev_want_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, curlev_want_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    return c;
}

void curlev_free(struct curlev *c)
{
    if (c == NULL)
        return;
    if (c->multi != NULL)
        curl_multi_cleanup(c->multi);
    if (c->timer != NULL)
        event_free(c->timer);
    curl_global_cleanup();
    mem_free(c);
}

bool curlev_job_init(struct curlev_job *job, void (*done)(struct curlev_job *job, CURLcode result))
{
    job->easy = curl_easy_init();
    job->running = false;
    job->done = done;
    if (job->easy == NULL)
        return false;
    curl_easy_setopt(job->easy, CURLOPT_PRIVATE, job);
    curl_easy_setopt(job->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(job->easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(job->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(job->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    /* Authorities are parsed anew at most this often, in seconds, and so a changed file counts. */
    curl_easy_setopt(job->easy, CURLOPT_CA_CACHE_TIMEOUT, 60L);
    /* libcurl looks through its whole cache of names at each request, and keeps numeric addresses there. */
    curl_easy_setopt(job->easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    /* A proxy in the environment is for the outside world, not for pods. */
    curl_easy_setopt(job->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(job->easy, CURLOPT_NOPROXY, "*");
    return true;
}

void curlev_start(struct curlev *c, struct curlev_job *job)
{
    job->running = true;
    curl_multi_add_handle(c->multi, job->easy);
}

void curlev_stop(struct curlev *c, struct curlev_job *job)
{
    if (job->running)
        curl_multi_remove_handle(c->multi, job->easy);
    job->running = false;
}

void curlev_job_free(struct curlev *c, struct curlev_job *job)
{
    if (job->easy == NULL)
        return;
    curlev_stop(c, job);
    curl_easy_cleanup(job->easy);
    job->easy = NULL;
}
