/* fairq: users, their windows and their ranks. The window is kept in buckets of a 60th of its length: one
 * list of all buckets in the order in which they end, so that what is over is found at its front, and sums in
 * whole numbers beside them, so that nothing drifts. A user has one rank, and a place with it in each line
 * where it waits. Which request goes to which pod is not its business. */
#include "fairq.h"
#include "mem.h"

#include <assert.h>

#define FAIRQ_BUCKETS 60
/* An admission that comes up to so much later than its turn, because the loop woke up late, does not move the
 * turns after it. */
#define FAIRQ_LATE_US (5 * US_PER_MS)

struct fairq_sums {
    int64_t input, output;
    uint64_t requests;
};

struct fairq_bucket {
    struct list in_all, in_user;
    struct fairq_user *user;
    int64_t start_us;
    struct fairq_sums sums;
};

struct fairq_user {
    struct htab_node by_id;
    uint64_t check;      /* the key's; by_id has its hash */
    uint64_t rank;       /* while it waits */
    struct list places;  /* in the lines where it waits */
    struct list buckets; /* oldest first */
    struct list in_idle;
    struct fairq_sums window, running;
    size_t n_waiting;
    bool anonymous;
    uint8_t name_n;
    char name[];
};

struct fairq_place {
    struct fairq_user *user;
    struct fairq_line *line;
    struct heap_node by_rank; /* in line->users */
    struct list items;        /* waiting here, by arrival; never empty */
    struct list in_user;
};

static struct fairq_item *oldest(const struct fairq_place *p)
{
    return LIST_ITEM(p->items.next, struct fairq_item, in_place);
}

/* ---- ranks ---- */

static double priority(const struct fairq *f, const struct fairq_user *u)
{
    const struct fairq_rules *r = &f->rules;
    const double tokens = r->input_weight * (double)(u->window.input + u->running.input) +
                          r->output_weight * (double)u->window.output;

    return r->token_weight * tokens + r->request_weight * (double)(u->window.requests + u->running.requests);
}

/* The bits of numbers that are not negative are in the order of the numbers. */
static uint64_t rank_key(const struct fairq *f, const struct fairq_user *u)
{
    const double p = priority(f, u);
    uint64_t key;

    memcpy(&key, &p, sizeof(key));
    return key;
}

static bool before_when_equal(const struct heap_node *a, const struct heap_node *b)
{
    const struct fairq_place *x = CONTAINER_OF(a, struct fairq_place, by_rank),
                             *y = CONTAINER_OF(b, struct fairq_place, by_rank);

    if (x->user->anonymous != y->user->anonymous)
        return y->user->anonymous;
    return oldest(x)->arrival < oldest(y)->arrival;
}

/* Its priority may have changed. */
static void rerank(struct fairq *f, struct fairq_user *u)
{
    const uint64_t rank = u->n_waiting > 0 ? rank_key(f, u) : u->rank;

    if (rank == u->rank)
        return;
    u->rank = rank;
    f->rank_changes++;
    LIST_EACH(link, &u->places)
    {
        struct fairq_place *p = LIST_ITEM(link, struct fairq_place, in_user);

        heap_rekey(&p->line->users, &p->by_rank, rank);
    }
}

/* ---- users ---- */

static bool user_is(const struct htab_node *node, const void *key)
{
    const struct fairq_user *u = (const struct fairq_user *)(const void *)node;
    const struct session_key *k = key;

    return u->check == k->check;
}

static struct fairq_user *user_new(struct fairq *f, struct slice name)
{
    const size_t n = name.n < FAIRQ_NAME_MAX ? name.n : FAIRQ_NAME_MAX;
    struct fairq_user *u = mem_alloc(sizeof(*u) + n);

    *u = (struct fairq_user){.name_n = (uint8_t)n, .anonymous = n == 0};
    if (n > 0)
        memcpy(u->name, name.p, n);
    list_init(&u->places);
    list_init(&u->buckets);
    list_init(&u->in_idle);
    f->n_users++;
    return u;
}

static struct fairq_user *user_get(struct fairq *f, struct slice name)
{
    struct session_key key;
    struct htab_node *node;
    struct fairq_user *u;

    if (name.n == 0) {
        if (f->anonymous == NULL)
            f->anonymous = user_new(f, name);
        return f->anonymous;
    }
    session_lru_key(&key, name);
    node = htab_find(&f->users, key.hash, user_is, &key);
    if (node != NULL)
        return CONTAINER_OF(node, struct fairq_user, by_id);
    u = user_new(f, name);
    u->check = key.check;
    htab_add(&f->users, &u->by_id, key.hash);
    return u;
}

static void bucket_free(struct fairq_bucket *b)
{
    list_del(&b->in_all);
    list_del(&b->in_user);
    mem_free(b);
}

static void user_free(struct fairq *f, struct fairq_user *u)
{
    assert(u->n_waiting == 0 && u->running.requests == 0);
    while (!list_empty(&u->buckets))
        bucket_free(LIST_ITEM(u->buckets.next, struct fairq_bucket, in_user));
    list_del(&u->in_idle);
    if (u->anonymous)
        f->anonymous = NULL;
    else
        htab_remove(&f->users, &u->by_id);
    f->n_users--;
    mem_free(u);
}

/* Not when a request leaves: it may be admitted, and its user not idle at all. */
static void evict(struct fairq *f)
{
    while (f->n_users > f->rules.max_users && !list_empty(&f->idle)) {
        user_free(f, LIST_ITEM(f->idle.next, struct fairq_user, in_idle));
        f->evictions++;
    }
}

/* Something of the user ended: it may be idle now, or have nothing left to be known for. */
static void user_settle(struct fairq *f, struct fairq_user *u)
{
    if (u->n_waiting > 0 || u->running.requests > 0)
        return;
    if (list_empty(&u->buckets)) {
        user_free(f, u);
        return;
    }
    list_del(&u->in_idle);
    list_push_back(&f->idle, &u->in_idle);
}

/* ---- life ---- */

struct fairq *fairq_new(const struct fairq_rules *rules)
{
    struct fairq *f = mem_zalloc(sizeof(*f));

    f->rules = *rules;
    htab_init(&f->users, 0);
    pool_init(&f->places, sizeof(struct fairq_place));
    list_init(&f->idle);
    list_init(&f->buckets);
    return f;
}

void fairq_free(struct fairq *f)
{
    while (!list_empty(&f->idle))
        user_free(f, LIST_ITEM(f->idle.next, struct fairq_user, in_idle));
    assert(f->n_users == 0);
    pool_free(&f->places);
    htab_free(&f->users);
    mem_free(f);
}

static void rerank_node(struct htab_node *node, void *f)
{
    rerank(f, CONTAINER_OF(node, struct fairq_user, by_id));
}

void fairq_set_rules(struct fairq *f, const struct fairq_rules *rules)
{
    f->rules = *rules;
    if (f->anonymous != NULL)
        rerank(f, f->anonymous);
    htab_each(&f->users, rerank_node, f);
    evict(f);
}

/* ---- waiting ---- */

void fairq_line_init(struct fairq_line *l, struct fairq *f)
{
    *l = (struct fairq_line){.fair = f, .users = {.before_when_equal = before_when_equal}};
}

void fairq_line_free(struct fairq_line *l)
{
    assert(l->users.n == 0);
    heap_free(&l->users);
}

/* As many as the name has targets at most. */
static struct fairq_place *find_place(const struct fairq_line *l, const struct fairq_user *u)
{
    LIST_EACH(link, &u->places)
    {
        struct fairq_place *p = LIST_ITEM(link, struct fairq_place, in_user);

        if (p->line == l)
            return p;
    }
    return NULL;
}

static struct fairq_place *place_new(struct fairq_line *l, struct fairq_user *u)
{
    struct fairq_place *p = pool_get(&l->fair->places);

    *p = (struct fairq_place){.user = u, .line = l};
    list_init(&p->items);
    list_init(&p->in_user);
    list_push_back(&u->places, &p->in_user);
    return p;
}

void fairq_enter(struct fairq_line *l, struct fairq_item *item, uint64_t arrival)
{
    struct fairq_user *u = user_get(l->fair, item->user);
    struct fairq_place *p = find_place(l, u);
    const bool is_first = p == NULL;

    list_del(&u->in_idle);
    if (u->n_waiting++ == 0)
        u->rank = rank_key(l->fair, u);
    if (is_first)
        p = place_new(l, u);
    item->place = p;
    item->arrival = arrival;
    list_init(&item->in_place);
    list_push_back(&p->items, &item->in_place);
    if (is_first)
        heap_push(&l->users, &p->by_rank, u->rank);
    evict(l->fair);
}

void fairq_leave(struct fairq_item *item)
{
    struct fairq_place *p = item->place;
    struct fairq_line *l = p->line;
    struct fairq_user *u = p->user;

    item->place = NULL;
    list_del(&item->in_place);
    u->n_waiting--;
    if (list_empty(&p->items)) {
        heap_remove(&l->users, &p->by_rank);
        list_del(&p->in_user);
        pool_put(&l->fair->places, p);
    } else { /* another one is the oldest now, perhaps */
        heap_rekey(&l->users, &p->by_rank, u->rank);
    }
    user_settle(l->fair, u);
}

struct fairq_item *fairq_head(const struct fairq_line *l)
{
    const struct heap_node *first = heap_min(&l->users);

    return first == NULL ? NULL : oldest(CONTAINER_OF(first, struct fairq_place, by_rank));
}

bool fairq_before(const struct fairq_item *a, const struct fairq_item *b)
{
    const struct fairq_place *x = a->place, *y = b->place;

    if (x == y)
        return a->arrival < b->arrival;
    if (x->user->rank != y->user->rank)
        return x->user->rank < y->user->rank;
    return before_when_equal(&x->by_rank, &y->by_rank);
}

/* ---- running ---- */

static int64_t turn_us(const struct fairq *f)
{
    return US_PER_S / (int64_t)f->rules.max_qps;
}

/* What could not be sent keeps its turn for the next pod. */
static void take_turn(struct fairq *f, struct fairq_item *item, int64_t now_us)
{
    const bool late = now_us - f->next_turn_us <= FAIRQ_LATE_US;

    if (item->had_turn)
        return;
    item->had_turn = true;
    f->next_turn_us = (late ? f->next_turn_us : now_us) + turn_us(f);
}

void fairq_start(struct fairq *f, struct fairq_run *run, struct fairq_item *item, int64_t now_us)
{
    struct fairq_user *u = user_get(f, item->user);

    assert(run->user == NULL);
    list_del(&u->in_idle);
    *run = (struct fairq_run){u, item->input_tokens};
    u->running.requests++;
    u->running.input += run->input_tokens;
    f->n_running++;
    take_turn(f, item, now_us);
    rerank(f, u);
}

static int64_t bucket_us(const struct fairq *f)
{
    return f->rules.window_us / FAIRQ_BUCKETS;
}

static struct fairq_bucket *bucket_at(struct fairq *f, struct fairq_user *u, int64_t now_us)
{
    struct fairq_bucket *b;

    if (!list_empty(&u->buckets)) {
        b = LIST_ITEM(u->buckets.prev, struct fairq_bucket, in_user);
        if (now_us - b->start_us < bucket_us(f))
            return b;
    }
    b = mem_zalloc(sizeof(*b));
    b->user = u;
    b->start_us = now_us;
    list_init(&b->in_all);
    list_init(&b->in_user);
    list_push_back(&f->buckets, &b->in_all);
    list_push_back(&u->buckets, &b->in_user);
    return b;
}

static void charge(struct fairq_sums *s, int64_t input, int64_t output)
{
    s->input += input;
    s->output += output;
    s->requests++;
}

void fairq_end(struct fairq *f, struct fairq_run *run, int64_t input_tokens, int64_t output_tokens,
               int64_t now_us)
{
    struct fairq_user *u = run->user;

    if (u == NULL)
        return;
    u->running.requests--;
    u->running.input -= run->input_tokens;
    f->n_running--;
    *run = (struct fairq_run){NULL, 0};
    if (input_tokens > 0 || output_tokens > 0) {
        charge(&bucket_at(f, u, now_us)->sums, input_tokens, output_tokens);
        charge(&u->window, input_tokens, output_tokens);
    }
    rerank(f, u);
    user_settle(f, u);
    evict(f);
}

/* A bucket stays until the last token that may be in it is out of the window. */
void fairq_advance(struct fairq *f, int64_t now_us)
{
    while (!list_empty(&f->buckets)) {
        struct fairq_bucket *b = LIST_ITEM(f->buckets.next, struct fairq_bucket, in_all);
        struct fairq_user *u = b->user;

        if (now_us - b->start_us < f->rules.window_us + bucket_us(f))
            return;
        u->window.input -= b->sums.input;
        u->window.output -= b->sums.output;
        u->window.requests -= b->sums.requests;
        bucket_free(b);
        rerank(f, u);
        if (list_empty(&u->buckets))
            user_settle(f, u);
    }
}

/* ---- limits ---- */

enum fairq_gate fairq_gate(const struct fairq *f, int64_t now_us)
{
    if (f->rules.max_concurrent > 0)
        return f->n_running < f->rules.max_concurrent ? FAIRQ_OPEN : FAIRQ_MAX_CONCURRENT;
    return now_us >= f->next_turn_us ? FAIRQ_OPEN : FAIRQ_MAX_QPS;
}

int64_t fairq_next_due_us(const struct fairq *f, int64_t now_us)
{
    return fairq_gate(f, now_us) == FAIRQ_MAX_QPS ? f->next_turn_us : INT64_MAX;
}

/* ---- looking ---- */

static void view_user(const struct fairq *f, const struct fairq_user *u,
                      void (*fn)(const struct fairq_view *v, void *arg), void *arg)
{
    const struct fairq_view v = {.name = {u->name, u->name_n},
                                 .priority = priority(f, u),
                                 .input_tokens = u->window.input,
                                 .output_tokens = u->window.output,
                                 .requests = u->window.requests,
                                 .waiting = u->n_waiting,
                                 .running = u->running.requests};

    fn(&v, arg);
}

struct each {
    const struct fairq *f;
    void (*fn)(const struct fairq_view *v, void *arg);
    void *arg;
};

static void each_node(struct htab_node *node, void *arg)
{
    const struct each *e = arg;

    view_user(e->f, CONTAINER_OF(node, struct fairq_user, by_id), e->fn, e->arg);
}

void fairq_each(struct fairq *f, void (*fn)(const struct fairq_view *v, void *arg), void *arg)
{
    struct each e = {f, fn, arg};

    if (f->anonymous != NULL)
        view_user(f, f->anonymous, fn, arg);
    htab_each(&f->users, each_node, &e);
}
