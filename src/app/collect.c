/* Numbers that live in the objects they describe are copied into their series when somebody asks for the
 * page. */
#include "collect.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void collect_set(enum metric m, struct slice label, double v)
{
    metrics_set(metrics_series(m, &label), v);
}

/* What all ways of one public name have come to together. */
struct collect_sum {
    unsigned page; /* each way counts once on a page */
    int64_t now_us;
    struct boostq_stats stats;
    size_t waiting, tracked;
    uint64_t evictions;
    const struct topology_name *name;
    const struct fairq *fair; /* one for all of them */
    int64_t closed_us[POD_ROOM_KINDS];
};

static void collect_way(void *to, void *arg)
{
    struct topology_route *r = to;
    struct collect_sum *sum = arg;
    struct model *m = r->model;

    if (r->page == sum->page)
        return;
    r->page = sum->page;
    boostq_stats_add(&sum->stats, &m->q.stats);
    sum->waiting += boostq_len(&m->q);
    sum->name = r->public_name;
    sum->tracked += m->q.tracker.n;
    sum->evictions += m->q.tracker.evictions;
    sum->fair = m->q.fair;
    for (int reason = POD_NOT_USABLE; reason < POD_ROOM_KINDS; reason++)
        sum->closed_us[reason] += m->closed_us[reason];
    if (m->closed_reason != POD_ROOM)
        sum->closed_us[m->closed_reason] += sum->now_us - m->closed_since_us;
}

/* Ways that were removed run theirs to the end. */
static double collect_in_flight(const struct topology_name *name)
{
    size_t n = 0;

    if (name == NULL)
        return 0;
    LIST_EACH(it, &name->routes)
    {
        n += LIST_ITEM(it, struct topology_route, in_name)->in_flight;
    }
    return (double)n;
}

static void collect_gate(enum metric m, struct slice name, const struct collect_sum *sum, int kinds)
{
    for (int reason = POD_NOT_USABLE; reason < kinds; reason++) {
        const struct slice labels[] = {name, slice_of(pod_room_name((enum pod_room)reason))};

        metrics_set(metrics_series(m, labels), (double)sum->closed_us[reason] / (double)US_PER_S);
    }
}

static void collect_boost(struct slice name, const struct collect_sum *sum)
{
    collect_set(METRIC_QUEUE_SIZE, name, (double)sum->waiting);
    collect_set(METRIC_QUEUE_CANCELLED, name, (double)sum->stats.abandoned);
    collect_set(METRIC_QUEUE_DEQUEUE, name, (double)sum->stats.dequeued);
    collect_set(METRIC_QUEUE_INFLIGHT, name, collect_in_flight(sum->name));
    collect_set(METRIC_QUEUE_BOOSTED, name, (double)sum->stats.dequeued_boosted);
    collect_set(METRIC_QUEUE_FORCED, name, (double)sum->stats.dequeued_forced);
    collect_set(METRIC_QUEUE_PROMOTED, name, (double)sum->stats.promoted);
    collect_set(METRIC_QUEUE_TIMEOUTS, name, (double)sum->stats.expired);
    collect_set(METRIC_SESSIONS_TRACKED, name, (double)sum->tracked);
    collect_set(METRIC_SESSIONS_EVICTED, name, (double)sum->evictions);
    collect_gate(METRIC_GATE_CLOSED, name, sum, POD_ROOM_OF_PODS);
}

static void collect_all_users(enum metric m, struct slice name, double v)
{
    metrics_set(metrics_series(m, (const struct slice[]){name, SLICE("_all")}), v);
}

static void collect_fairness(struct slice name, const struct collect_sum *sum)
{
    collect_all_users(METRIC_FAIR_SIZE, name, (double)sum->waiting);
    collect_all_users(METRIC_FAIR_CANCELLED, name, (double)sum->stats.abandoned);
    collect_all_users(METRIC_FAIR_DEQUEUE, name, (double)sum->stats.dequeued);
    collect_set(METRIC_FAIR_INFLIGHT, name, collect_in_flight(sum->name));
    collect_set(METRIC_FAIR_RANKS, name, (double)sum->fair->rank_changes);
    collect_set(METRIC_FAIR_FORCED, name, (double)sum->stats.dequeued_forced);
    collect_set(METRIC_FAIR_TIMEOUTS, name, (double)sum->stats.expired);
    collect_set(METRIC_FAIR_USERS, name, (double)sum->fair->n_users);
    collect_set(METRIC_FAIR_EVICTED, name, (double)sum->fair->evictions);
    collect_gate(METRIC_FAIR_GATE_CLOSED, name, sum, POD_ROOM_KINDS);
}

static void collect_queues(const struct config *c, const struct route_name *n, unsigned page, int64_t now_us)
{
    struct collect_sum sum = {.page = page, .now_us = now_us};

    route_name_each(n, collect_way, &sum);
    if (c->enable_session_boost)
        collect_boost(slice_of(n->text), &sum);
    else if (sum.fair != NULL)
        collect_fairness(slice_of(n->text), &sum);
}

static struct metrics_series *collect_upstream_series(const struct topology_route *r)
{
    const struct slice labels[] = {slice_of(r->server_name), slice_of(r->name), SLICE("model_server"),
                                   slice_of(r->server_name), slice_of(topology_upstream_model(r))};

    return metrics_series(METRIC_ACTIVE_UPSTREAM, labels);
}

/* One that was removed and still runs requests may share its series with one in force. */
static void collect_upstream(const struct topology *t)
{
    LIST_EACH(it, &t->alive)
    {
        metrics_set(collect_upstream_series(LIST_ITEM(it, struct topology_route, link)), 0);
    }
    LIST_EACH(it, &t->alive)
    {
        const struct topology_route *r = LIST_ITEM(it, struct topology_route, link);

        metrics_add(collect_upstream_series(r), (double)r->in_flight);
    }
}

static void collect_pod(const struct server *s, const struct topology_pod *t, int64_t now_us)
{
    const struct pod *p = t->pod;
    const struct slice name = slice_of(p->name);
    const bool seen = p->numbers.at_us != 0;

    if (t->replaced)
        return;
    collect_set(METRIC_POD_INFLIGHT, name, p->in_flight);
    collect_set(METRIC_POD_WAITING, name, seen ? p->numbers.waiting : (double)NAN);
    collect_set(METRIC_POD_RUNNING, name, seen ? p->numbers.running : (double)NAN);
    collect_set(METRIC_POD_KV_USAGE, name, seen ? p->numbers.kv_usage : (double)NAN);
    /* A pod that is not scraped has no numbers that could grow old. */
    collect_set(METRIC_POD_STALE, name,
                t->engine != PROMTEXT_NONE && pod_numbers_stale(p, &s->sched.admit.rules, now_us));
    collect_set(METRIC_POD_ASIDE, name, pod_is_aside(p, now_us));
    collect_set(METRIC_POD_ASLEEP, name, pod_is_asleep(p, now_us));
}

static double collect_resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;

    if (f == NULL)
        return 0;
    if (fscanf(f, "%*u %lu", &pages) != 1)
        pages = 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double collect_open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    double n = -3; /* ".", ".." and the directory itself */

    if (d == NULL)
        return 0;
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n;
}

static void collect_process(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    metrics_set(metrics_series(METRIC_PROCESS_CPU, NULL),
                (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                    (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    metrics_set(metrics_series(METRIC_PROCESS_RESIDENT_MEMORY, NULL), collect_resident_bytes());
    metrics_set(metrics_series(METRIC_PROCESS_OPEN_FDS, NULL), collect_open_fds());
}

void collect_metrics(struct server *s)
{
    static unsigned page;
    const struct topology *t = &s->topology;
    const int64_t now_us = loop_now_us(s->loop);

    page++;
    for (size_t i = 0; i < t->table.n_names; i++)
        collect_queues(s->config, t->table.names[i], page, now_us);
    collect_upstream(t);
    for (size_t i = 0; i < t->n_pods; i++)
        collect_pod(s, t->pods[i], now_us);
    metrics_set(metrics_series(METRIC_ACTIVE_REQUESTS, NULL), (double)s->n_requests);
    metrics_set(metrics_series(METRIC_QUEUED_BYTES, NULL), (double)s->client_rules.held_bytes);
    metrics_set(metrics_series(METRIC_DOWNSTREAM_CONNECTIONS, NULL), (double)s->n_clients);
    metrics_set(metrics_series(METRIC_DRAINING, NULL), s->draining);
    metrics_set(metrics_series(METRIC_LOOP_TURN_LONGEST, NULL),
                (double)s->longest_turn_us / (double)US_PER_S);
    collect_set(METRIC_LOG_DROPPED, SLICE("router"), (double)log_sink()->dropped);
    collect_set(METRIC_LOG_DROPPED, SLICE("access"), (double)s->access.dropped);
    collect_set(METRIC_BUILD_INFO, SLICE(CONFIG_VERSION_TEXT), 1);
    collect_process();
}
