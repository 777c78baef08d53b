/* bench_queue: nanoseconds per push + admission at several queue depths, and per completion in the tracker.
 * The clock is read outside the measured loops. Prints one line for each case: case, depth, ns per operation.
 * With the argument `goals` only for those that have one.
 */
#include "admit.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define N_PODS   4
#define ID_BYTES 36
#define AHEAD    16

enum load { FRESH, BOOSTED, PARALLEL, MARKED, N_LOADS };

static const char *const load_names[N_LOADS] = {
    [FRESH] = "push+admit, no sessions",
    [BOOSTED] = "push+admit, each its own session",
    [PARALLEL] = "push+admit, 16 calls for each session",
    [MARKED] = "push+admit+complete, each its own session",
};

/* Session ids, as long as UUIDs, drawn at random. The router has just read the id of a request when it uses
 * it; so the bytes of the next ones are loaded ahead. */
struct ids {
    char (*all)[ID_BYTES];
    size_t n;
    uint64_t random;
    const char *next[AHEAD];
    size_t turn;
};

/* As the router's allocator lays them out. */
struct waiting {
    _Alignas(64) struct admit_item item;
};

struct bench {
    struct admit admit;
    struct model *model;
    struct pod *pods[N_PODS];
    struct waiting *items;
    struct ids ids;
    int64_t now_us;
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static double now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static struct slice draw(struct ids *ids)
{
    const char **turn = &ids->next[ids->turn++ % AHEAD], *id = *turn;

    *turn = ids->all[next_random(&ids->random) % ids->n];
    __builtin_prefetch(*turn);
    __builtin_prefetch(*turn + ID_BYTES - 1);
    return (struct slice){id, ID_BYTES};
}

static void ids_init(struct ids *ids, size_t n)
{
    uint64_t state = 7;

    *ids = (struct ids){.all = mem_table(n * ID_BYTES), .n = n, .random = 1};
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < ID_BYTES; k++)
            ids->all[i][k] = "0123456789abcdef"[next_random(&state) % 16];
    }
    for (size_t i = 0; i < AHEAD; i++)
        (void)draw(ids);
}

static void bench_init(struct bench *b, enum load load, size_t depth)
{
    struct boostq_rules rules = {.boost = true,
                                 .sticky = true,
                                 .prefer_warm = true,
                                 .sticky_wait_us = INT64_C(1) << 50,
                                 .timeout_us = INT64_C(1) << 50,
                                 .max_overtakes = 16};
    struct session_key key;

    ids_init(&b->ids, load == PARALLEL ? depth / 16 + 1 : depth);
    rules.max_sessions = b->ids.n;
    b->items = aligned_alloc(64, (depth + 1) * sizeof(*b->items));
    if (b->items == NULL)
        abort();
    memset(b->items, 0, (depth + 1) * sizeof(*b->items));
    b->model = model_new("bench", &rules, NULL);
    b->admit.rules = (struct pod_rules){.gated = true, .stale_us = 3 * US_PER_S};
    for (size_t i = 0; i < N_PODS; i++)
        b->pods[i] = pod_new(SLICE("127.0.0.1:8000"));
    model_set_pods(b->model, b->pods, N_PODS, 0);
    admit_add_model(&b->admit, b->model);
    for (size_t i = 0; i < b->ids.n; i++) {
        session_lru_key(&key, draw(&b->ids));
        (void)boostq_mark(&b->model->q, &key, b->pods[i % N_PODS]->id, 0);
    }
}

static void push(struct bench *b, struct admit_item *item, enum load load)
{
    item->queue.session = load == FRESH ? (struct slice){NULL, 0} : draw(&b->ids);
    b->now_us++;
    boostq_push(&b->model->q, &item->queue, b->now_us, b->now_us);
}

/* Admission frees a slot of the pod at once, so that the queue keeps its depth. */
static struct admit_item *admit_one(struct bench *b)
{
    struct admission got;

    admit_begin(&b->admit, b->now_us);
    if (!admit_next(&b->admit, b->now_us, &got))
        abort();
    pod_release_slot(got.pod, &b->admit.rules, false, b->now_us);
    return got.item;
}

static double run(struct bench *b, enum load load, size_t depth, size_t n)
{
    struct admit_item *spare = &b->items[depth].item;
    double start;

    for (size_t i = 0; i < depth; i++)
        push(b, &b->items[i].item, load);
    b->admit.rules.inflight_limit = 16;
    start = now_ns();
    for (size_t i = 0; i < n; i++) {
        push(b, spare, load);
        spare = admit_one(b);
        if (load == MARKED)
            (void)boostq_mark(&b->model->q, &spare->queue.key, b->pods[i % N_PODS]->id, b->now_us);
    }
    return (now_ns() - start) / (double)n;
}

static void bench_free(struct bench *b)
{
    struct boostq_item *item;

    while ((item = boostq_oldest(&b->model->q)) != NULL)
        boostq_remove(&b->model->q, item);
    model_free(b->model);
    for (size_t i = 0; i < N_PODS; i++)
        pod_unref(b->pods[i]);
    admit_free(&b->admit);
    free(b->items);
    mem_free(b->ids.all);
}

static void bench_queue(enum load load, size_t depth)
{
    struct bench b = {.now_us = 0};
    double ns;

    bench_init(&b, load, depth);
    ns = run(&b, load, depth, 1000000);
    printf("%-44s %8zu %8.0f ns\n", load_names[load], depth, ns);
    bench_free(&b);
}

static void bench_tracker(size_t n_sessions)
{
    const size_t n = 2000000;
    struct session_lru l;
    struct session_key key;
    struct ids ids;
    double start = 0;

    ids_init(&ids, n_sessions);
    session_lru_init(&l, n_sessions);
    for (size_t i = 0; i < n_sessions + n; i++) {
        if (i == n_sessions)
            start = now_ns();
        session_lru_key(&key, i < n_sessions ? (struct slice){ids.all[i], ID_BYTES} : draw(&ids));
        (void)session_lru_mark(&l, &key, 1, 0);
    }
    printf("%-44s %8zu %8.0f ns\n", "completion of a tracked session", n_sessions,
           (now_ns() - start) / (double)n);
    session_lru_free(&l);
    mem_free(ids.all);
}

int main(int argc, char **argv)
{
    static const size_t depths[] = {1000, 10000, 100000, 1000000};
    const bool goals = argc == 2 && strcmp(argv[1], "goals") == 0;

    for (int load = 0; load < N_LOADS; load++) {
        for (size_t i = 0; i < ARRAY_LEN(depths); i++) {
            if (!goals || (load == BOOSTED && depths[i] != 10000))
                bench_queue((enum load)load, depths[i]);
        }
    }
    bench_tracker(4096);
    bench_tracker(1000000);
    return 0;
}
