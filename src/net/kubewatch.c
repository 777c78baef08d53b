/* One request at a time: pages of a list until it is whole, then one watch after the other. What libcurl
 * reads goes into a buffer and is worked through in slices; when that falls behind, the transfer is paused.
 */
#include "kubewatch.h"

#include <stdio.h>

#include "kubescan.h"
#include "log.h"
#include "mem.h"
#include "metrics.h"

struct kubewatch {
    struct kubeapi *api;
    struct curlev_job job;
    struct kubeapi_work work;
    struct wheel_timer timer; /* until the next request; during a watch: until an event must have ended */
    struct list peers;        /* all watches */
    char *path, *selector, *resource;
    const struct kubewatch_ops *ops;
    void *arg;
    /* What is known */
    char *version; /* of the last list or event */
    char *more;    /* token of the list's next page; NULL = no list is under way */
    bool must_list, synced;
    int64_t listed_us;
    /* The request */
    bool watching; /* or listing */
    int64_t began_us;
    long status; /* of the answer; 0 = none yet */
    bool heard;  /* some byte of its body came */
    bool paused, ended;
    CURLcode result;
    struct buf in;
    struct kubescan scan;
    char *trouble; /* what was wrong with the answer */
    bool expired;  /* the server has forgotten our version */
    char curl_error[CURL_ERROR_SIZE];
    /* Trouble */
    unsigned failures; /* in a row */
    unsigned expiries; /* in a row, without an event between */
    bool down;
    int64_t down_us;
};

/* Every watch of the process, for the gauge by resource. */
static struct list kubewatch_all = {&kubewatch_all, &kubewatch_all};

/* ---- state for people ---- */

static void kubewatch_set_gauge(const char *resource)
{
    const struct slice label = slice_of(resource);
    bool up = true, any = false;

    LIST_EACH(it, &kubewatch_all)
    {
        const struct kubewatch *w = LIST_ITEM(it, struct kubewatch, peers);

        if (strcmp(w->resource, resource) != 0)
            continue;
        any = true;
        up = up && kubewatch_is_up(w);
    }
    if (any)
        metrics_set(metrics_series(METRIC_KUBERNETES_UP, &label), up);
    else
        metrics_drop(METRIC_KUBERNETES_UP, &label);
}

static void kubewatch_say_down(struct kubewatch *w, const char *why)
{
    if (w->down)
        return;
    w->down = true;
    w->down_us = loop_now_us(kubeapi_loop(w->api));
    log_warn(w->synced ? "the Kubernetes API fails; what was last known stays in use"
                       : "the Kubernetes API fails; nothing is known yet",
             LOG_STR("resource", w->path), LOG_STR("selector", w->selector),
             LOG_STR("server", kubeapi_server(w->api)), LOG_STR("error", why));
    kubewatch_set_gauge(w->resource);
}

static void kubewatch_say_up(struct kubewatch *w)
{
    if (w->down)
        log_info("the Kubernetes API answers again", LOG_STR("resource", w->path),
                 LOG_STR("selector", w->selector),
                 LOG_MS("down_ms", loop_now_us(kubeapi_loop(w->api)) - w->down_us));
    w->down = false;
    kubewatch_set_gauge(w->resource);
}

/* ---- asking ---- */

static void kubewatch_wait(struct kubewatch *w, int64_t in_us)
{
    loop_timer_set(kubeapi_loop(w->api), &w->timer, loop_now_us(kubeapi_loop(w->api)) + in_us);
}

/* 0.5 s, 1 s, 2 s ... 30 s, less up to a half by chance, so that many routers do not come at once. */
static int64_t kubewatch_pause_us(unsigned failures)
{
    int64_t us = KUBEWATCH_RETRY_US;

    while (--failures > 0 && us < KUBEWATCH_RETRY_MAX_US)
        us *= 2;
    if (us > KUBEWATCH_RETRY_MAX_US)
        us = KUBEWATCH_RETRY_MAX_US;
    return us - kubeapi_random(us / 2);
}

/* reason: from a fixed set, a label. */
static void kubewatch_failed(struct kubewatch *w, const char *reason, const char *why, int64_t least_us)
{
    int64_t pause_us = kubewatch_pause_us(++w->failures);

    metrics_inc(METRIC_KUBERNETES_FAILURES, w->resource, reason);
    kubewatch_say_down(w, why);
    kubewatch_wait(w, pause_us > least_us ? pause_us : least_us);
}

static char *kubewatch_url(const struct kubewatch *w, int64_t watch_s)
{
    CURL *easy = w->job.easy;
    char *selector = w->selector != NULL ? curl_easy_escape(easy, w->selector, 0) : NULL;
    char *more = curl_easy_escape(easy, w->more != NULL ? w->more : "", 0);
    char *version = curl_easy_escape(easy, w->version != NULL ? w->version : "", 0), *url;

    if (w->watching)
        url =
            mem_printf("%s%s?watch=true&allowWatchBookmarks=true&resourceVersion=%s&timeoutSeconds=%lld%s%s",
                       kubeapi_server(w->api), w->path, version, (long long)watch_s,
                       selector != NULL ? "&labelSelector=" : "", selector != NULL ? selector : "");
    else
        url = mem_printf("%s%s?limit=%d%s%s%s%s", kubeapi_server(w->api), w->path, KUBEWATCH_PAGE,
                         w->more[0] != '\0' ? "&continue=" : "", more,
                         selector != NULL ? "&labelSelector=" : "", selector != NULL ? selector : "");
    curl_free(selector);
    curl_free(more);
    curl_free(version);
    return url;
}

/* A watch ends by itself a little after the server should have ended it: so long may one be silent. */
static long kubewatch_limit_ms(const struct kubewatch *w, int64_t watch_s)
{
    const int64_t grace_us = kubeapi_watch_us(w->api) / 10;

    if (!w->watching)
        return (long)(KUBEWATCH_LIST_US / US_PER_MS);
    return (long)(watch_s * 1000 + (grace_us > US_PER_S ? grace_us : US_PER_S) / US_PER_MS);
}

/* Not all routers' watches end at the same time. */
static int64_t kubewatch_seconds(const struct kubewatch *w)
{
    const int64_t us = kubeapi_watch_us(w->api), s = (us - kubeapi_random(us / 10 + 1)) / US_PER_S;

    return s > 0 ? s : 1;
}

static void kubewatch_begin_request(struct kubewatch *w)
{
    w->status = 0;
    w->heard = w->paused = w->ended = w->expired = false;
    w->curl_error[0] = '\0';
    mem_free(w->trouble);
    w->trouble = NULL;
    buf_clear(&w->in);
    w->began_us = loop_now_us(kubeapi_loop(w->api));
}

static void kubewatch_request(struct kubewatch *w)
{
    const int64_t watch_s = kubewatch_seconds(w);
    char *url, *error = NULL;

    kubewatch_begin_request(w);
    if (!kubeapi_prepare(w->api, w->job.easy, &error)) {
        kubewatch_failed(w, "credentials", error, 0);
        mem_free(error);
        return;
    }
    url = kubewatch_url(w, watch_s);
    curl_easy_setopt(w->job.easy, CURLOPT_URL, url);
    mem_free(url);
    curl_easy_setopt(w->job.easy, CURLOPT_TIMEOUT_MS, kubewatch_limit_ms(w, watch_s));
    curlev_start(kubeapi_curl(w->api), &w->job);
}

static void kubewatch_set_text(char **to, struct slice text)
{
    char *copy = mem_dup_slice(text);

    mem_free(*to);
    *to = copy;
}

static void kubewatch_forget(char **text)
{
    mem_free(*text);
    *text = NULL;
}

static void kubewatch_start_list(struct kubewatch *w)
{
    w->watching = false;
    kubewatch_set_text(&w->more, SLICE(""));
    w->ops->list_begin(w->arg);
    kubewatch_request(w);
}

static void kubewatch_go_on(struct kubewatch *w)
{
    const int64_t now_us = loop_now_us(kubeapi_loop(w->api));

    if (w->must_list || w->version == NULL || now_us - w->listed_us > KUBEWATCH_RELIST_US) {
        kubewatch_start_list(w);
        return;
    }
    w->watching = true;
    kubewatch_request(w);
}

/* ---- reading ---- */

static void kubewatch_note(struct kubewatch *w, const char *trouble)
{
    if (w->trouble == NULL)
        w->trouble = mem_strdup(trouble);
}

static void kubewatch_take_error(struct kubewatch *w, const struct cJSON *status)
{
    struct slice message;
    const int code = kubeobj_status(status, &message);
    char *text = mem_printf("the watch ended with %d %.*s", code, (int)(message.n < 200 ? message.n : 200),
                            message.n > 0 ? message.p : "");

    w->expired = code == 410;
    kubewatch_note(w, text);
    mem_free(text);
}

/* Half an event may look like a whole one of another kind. */
static void kubewatch_take_event(struct kubewatch *w, const struct cJSON *event)
{
    const struct cJSON *object;
    const enum kubeobj_event kind = kubeobj_event(event, &object);
    struct kubeobj_meta meta;
    const bool whole = kubeobj_meta(object, &meta);

    if (kind == KUBEOBJ_ERROR) {
        kubewatch_take_error(w, object);
        return;
    }
    if (kind == KUBEOBJ_UNKNOWN || (kind != KUBEOBJ_BOOKMARK && !whole)) {
        kubewatch_note(w, "a line of the watch is no event");
        return;
    }
    if (kind == KUBEOBJ_DELETED)
        w->ops->deleted(object, w->arg);
    else if (kind != KUBEOBJ_BOOKMARK)
        w->ops->put(object, w->arg);
    if (meta.version.n > 0)
        kubewatch_set_text(&w->version, meta.version);
    w->failures = w->expiries = 0;
}

static void kubewatch_take_object(struct kubewatch *w)
{
    struct cJSON *o = kubeobj_parse(buf_slice(&w->scan.object));

    if (o == NULL)
        kubewatch_note(w, w->watching ? "a line of the watch is not JSON"
                                      : "an object of the answer is not JSON");
    else if (w->watching)
        kubewatch_take_event(w, o);
    else
        w->ops->put(o, w->arg);
    kubeobj_free(o);
}

static void kubewatch_end_request(struct kubewatch *w);

static void kubewatch_resume(struct kubewatch *w)
{
    if (!w->paused || w->in.len > KUBEWATCH_HELD_MAX / 2)
        return;
    w->paused = false;
    curl_easy_pause(w->job.easy, CURLPAUSE_CONT); /* may deliver bytes at once */
}

/* What comes after an event that breaks off would not be seen before its line ends: the rest of an event
 * comes soon, or never. */
static void kubewatch_mind_silence(struct kubewatch *w)
{
    if (w->watching && w->in.len == 0 && !w->ended && !kubescan_at_rest(&w->scan))
        kubewatch_wait(w, KUBEWATCH_LINE_US);
    else
        loop_timer_cancel(kubeapi_loop(w->api), &w->timer);
}

/* An answer that is of no use any more. */
static void kubewatch_break_off(struct kubewatch *w)
{
    curlev_stop(kubeapi_curl(w->api), &w->job);
    kubewatch_end_request(w);
}

static bool kubewatch_work(struct kubeapi_work *work)
{
    struct kubewatch *w = CONTAINER_OF(work, struct kubewatch, work);
    struct slice in = buf_slice(&w->in);
    const size_t before = in.n;
    const enum kubescan_step step = kubescan_next(&w->scan, &in);

    buf_consume_keep(&w->in, before - in.n);
    if (step == KUBESCAN_OBJECT)
        kubewatch_take_object(w);
    else if (step == KUBESCAN_BAD)
        kubewatch_note(w, w->scan.error);
    if (w->trouble != NULL) {
        kubewatch_break_off(w);
        return false;
    }
    kubewatch_resume(w);
    kubewatch_mind_silence(w);
    if (w->in.len == 0 && w->ended)
        kubewatch_end_request(w);
    else
        return w->in.len > 0;
    return false;
}

static size_t kubewatch_on_bytes(char *p, size_t size, size_t n, void *arg)
{
    struct kubewatch *w = arg;

    (void)size;
    if (!w->heard) {
        curl_easy_getinfo(w->job.easy, CURLINFO_RESPONSE_CODE, &w->status);
        /* A refusal is one Status object. */
        kubescan_start(&w->scan, w->watching && w->status == 200 ? KUBESCAN_WATCH : KUBESCAN_LIST);
        w->heard = true;
    }
    if (w->in.len >= KUBEWATCH_HELD_MAX) {
        w->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    if (!buf_append(&w->in, p, n))
        return 0;
    kubeapi_work_add(w->api, &w->work);
    return n;
}

/* A watch stands with its head: the events may be long in coming. */
static size_t kubewatch_on_head(char *p, size_t size, size_t n, void *arg)
{
    struct kubewatch *w = arg;
    long status = 0;

    (void)p;
    curl_easy_getinfo(w->job.easy, CURLINFO_RESPONSE_CODE, &status);
    if (n <= 2 && w->watching && status == 200)
        kubewatch_say_up(w);
    return size * n;
}

static void kubewatch_on_done(struct curlev_job *job, CURLcode result)
{
    struct kubewatch *w = CONTAINER_OF(job, struct kubewatch, job);

    w->ended = true;
    w->result = result;
    curl_easy_getinfo(job->easy, CURLINFO_RESPONSE_CODE, &w->status);
    if (w->in.len == 0)
        kubewatch_end_request(w);
}

/* ---- the end of a request ---- */

/* The server has forgotten where we are: list anew, at once for the first time. */
static void kubewatch_expire(struct kubewatch *w)
{
    w->must_list = true;
    kubewatch_forget(&w->more);
    w->expiries++;
    log_info("the Kubernetes API has forgotten our version; listing anew", LOG_STR("resource", w->path),
             LOG_STR("selector", w->selector));
    kubewatch_wait(w, w->expiries == 1 ? 0 : kubewatch_pause_us(w->expiries));
}

static const char *kubewatch_reason(const struct kubewatch *w)
{
    if (w->status == 401 || w->status == 403)
        return "denied";
    if (w->status != 0 && w->status != 200)
        return "status";
    return w->trouble != NULL ? "protocol" : w->result == CURLE_OPERATION_TIMEDOUT ? "timeout" : "connection";
}

/* What to tell of a request that failed. */
static char *kubewatch_why(struct kubewatch *w)
{
    struct cJSON *status = w->heard ? kubeobj_parse(buf_slice(&w->scan.outer)) : NULL;
    struct slice message;
    char *text;

    (void)kubeobj_status(status, &message);
    if (w->status != 0 && w->status != 200)
        text = mem_printf("status %ld %.*s", w->status, (int)(message.n < 300 ? message.n : 300),
                          message.n > 0 ? message.p : "");
    else if (w->trouble != NULL)
        text = mem_strdup(w->trouble);
    else if (w->ended && w->result == CURLE_OK)
        text = mem_strdup("the answer ended in the middle of an object");
    else
        text = mem_strdup(w->curl_error[0] != '\0' ? w->curl_error : curl_easy_strerror(w->result));
    kubeobj_free(status);
    return text;
}

static void kubewatch_fail_request(struct kubewatch *w)
{
    char *why = kubewatch_why(w);
    curl_off_t wait_s = 0;

    /* A token that was replaced: once more at once, with the new one. */
    if (w->status == 401 && w->failures == 0 && !w->down) {
        w->failures++;
        kubewatch_wait(w, 0);
        mem_free(why);
        return;
    }
    if (w->ended)
        curl_easy_getinfo(w->job.easy, CURLINFO_RETRY_AFTER, &wait_s);
    w->must_list = true;
    kubewatch_failed(w, kubewatch_reason(w), why, (wait_s < 60 ? wait_s : 60) * US_PER_S);
    mem_free(why);
}

static void kubewatch_end_list(struct kubewatch *w)
{
    w->ops->list_end(w->arg);
    w->listed_us = loop_now_us(kubeapi_loop(w->api));
    w->must_list = false;
    w->synced = true;
    kubewatch_forget(&w->more);
    metrics_inc(METRIC_KUBERNETES_LISTS, w->resource);
    kubewatch_set_gauge(w->resource);
    kubewatch_go_on(w);
}

static void kubewatch_end_page(struct kubewatch *w)
{
    struct cJSON *outer =
        w->trouble == NULL && w->heard && w->scan.done ? kubeobj_parse(buf_slice(&w->scan.outer)) : NULL;
    struct slice version, more;

    if (!w->ended || w->result != CURLE_OK || !kubeobj_list(outer, &version, &more)) {
        kubewatch_fail_request(w);
    } else if (more.n > 0) {
        kubewatch_set_text(&w->more, more);
        kubewatch_request(w);
    } else {
        kubewatch_set_text(&w->version, version);
        kubewatch_end_list(w);
    }
    kubeobj_free(outer);
}

/* An established watch ended. It goes on where it was, unless that was tried in vain already, or the server
 * was silent past the end. */
static void kubewatch_end_watch(struct kubewatch *w)
{
    const int64_t lasted_us = loop_now_us(kubeapi_loop(w->api)) - w->began_us;
    const bool timed_out = w->result == CURLE_OPERATION_TIMEDOUT;
    const bool clean = w->ended && w->trouble == NULL && kubescan_at_rest(&w->scan) &&
                       (w->result == CURLE_OK || (timed_out && w->heard));

    if (lasted_us > KUBEWATCH_STEADY_US)
        w->failures = 0;
    if (clean) {
        w->failures = 0;
        w->expiries = 0;
        kubewatch_wait(w, lasted_us < US_PER_S ? US_PER_S - lasted_us : 0);
    } else if (w->failures == 0 && w->trouble == NULL && !timed_out) {
        w->failures++;
        metrics_inc(METRIC_KUBERNETES_FAILURES, w->resource, kubewatch_reason(w));
        kubewatch_wait(w, kubeapi_random(KUBEWATCH_RETRY_US));
    } else {
        kubewatch_fail_request(w);
    }
}

static void kubewatch_end_request(struct kubewatch *w)
{
    kubeapi_work_cancel(&w->work);
    loop_timer_cancel(kubeapi_loop(w->api), &w->timer);
    buf_clear(&w->in);
    if (w->expired || w->status == 410)
        kubewatch_expire(w);
    else if (w->status != 0 && w->status != 200)
        kubewatch_fail_request(w);
    else if (!w->watching)
        kubewatch_end_page(w);
    else if (w->status == 200)
        kubewatch_end_watch(w);
    else
        kubewatch_fail_request(w);
}

/* Time for the next request, or an event that stands half there. */
static void kubewatch_on_timer(struct wheel_timer *t)
{
    struct kubewatch *w = CONTAINER_OF(t, struct kubewatch, timer);

    if (!w->job.running) {
        kubewatch_go_on(w);
        return;
    }
    kubewatch_note(w, "half an event, and then silence");
    kubewatch_break_off(w);
}

/* ---- life ---- */

static void kubewatch_set_handle(struct kubewatch *w)
{
    curl_easy_setopt(w->job.easy, CURLOPT_ERRORBUFFER, w->curl_error);
    curl_easy_setopt(w->job.easy, CURLOPT_WRITEFUNCTION, kubewatch_on_bytes);
    curl_easy_setopt(w->job.easy, CURLOPT_WRITEDATA, w);
    curl_easy_setopt(w->job.easy, CURLOPT_HEADERFUNCTION, kubewatch_on_head);
    curl_easy_setopt(w->job.easy, CURLOPT_HEADERDATA, w);
}

struct kubewatch *kubewatch_new(struct kubeapi *a, const struct kubewatch_spec *spec,
                                const struct kubewatch_ops *ops, void *arg)
{
    struct kubewatch *w = mem_zalloc(sizeof *w);

    if (!curlev_job_init(&w->job, kubewatch_on_done)) {
        mem_free(w);
        return NULL;
    }
    w->api = a;
    w->path = mem_strdup(spec->path);
    w->selector = spec->selector != NULL ? mem_strdup(spec->selector) : NULL;
    w->resource = mem_strdup(spec->resource);
    w->ops = ops;
    w->arg = arg;
    list_init(&w->peers);
    list_push_back(&kubewatch_all, &w->peers);
    kubeapi_work_init(&w->work, kubewatch_work);
    wheel_timer_init(&w->timer, kubewatch_on_timer);
    kubescan_init(&w->scan);
    buf_init(&w->in, KUBEWATCH_HELD_MAX + CURL_MAX_WRITE_SIZE);
    kubewatch_set_handle(w);
    kubewatch_set_gauge(w->resource);
    kubewatch_wait(w, 0);
    return w;
}

void kubewatch_free(struct kubewatch *w)
{
    if (w == NULL)
        return;
    list_del(&w->peers);
    kubewatch_set_gauge(w->resource);
    loop_timer_cancel(kubeapi_loop(w->api), &w->timer);
    kubeapi_work_cancel(&w->work);
    curlev_job_free(kubeapi_curl(w->api), &w->job);
    kubescan_free(&w->scan);
    buf_free(&w->in);
    mem_free(w->path);
    mem_free(w->selector);
    mem_free(w->resource);
    mem_free(w->version);
    mem_free(w->more);
    mem_free(w->trouble);
    mem_free(w);
}

bool kubewatch_synced(const struct kubewatch *w)
{
    return w->synced;
}

bool kubewatch_is_up(const struct kubewatch *w)
{
    return w->synced && !w->down;
}
