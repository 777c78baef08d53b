/* The loop with real descriptors: who is looked at first, what is put off to the next turn, and that neither
 * libevent nor a listener waits for pods and clients that always have something new. Nothing is compared with
 * the clock but stamps of the loop, so that a busy machine cannot fail a test. */
#include "loop.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listen.h"

#include "test.h"

#define N_MANY 300 /* more than the pods that one turn takes */
/* How late, by the stamps of turns, libevent's may be looked at: turns later than that must be few, as the
 * one that is held up by the machine sees it too late and the next one looks. */
#define LATE_US    (2 * US_PER_MS)
#define LATE_TURNS 2
/* libevent's clock is one that moves with the kernel's ticks. */
#define LIBEVENT_CLOCK_US (10 * US_PER_MS)
#define ENOUGH_TURNS      200
#define ENOUGH_EVENTS     20
#define EVER              UINT_MAX

struct end {
    struct loop_watch watch;
    int fd;
    char name;
    unsigned times; /* it is ready */
    unsigned n;
};

static struct loop *loop;
static unsigned n_turns, most_turns;
static char seen[64];
static size_t n_seen;
static int64_t due_us; /* something of libevent's is; 0: nothing */
static unsigned late_turns, most_late_turns;
static struct event *alarm_at_rest; /* after the last end that was ready; NULL: none */
static unsigned n_looks;            /* at libevent */
static int64_t look_us;

static void on_turn_end(void *arg)
{
    (void)arg;
    n_turns++;
    n_looks += loop->look_us != look_us;
    look_us = loop->look_us;
    if (due_us != 0 && loop_now_us(loop) > due_us + LATE_US)
        late_turns++;
    if (late_turns > most_late_turns)
        most_late_turns = late_turns;
    if (n_turns == most_turns)
        loop_stop(loop);
}

static int set_up(void **state)
{
    (void)state;
    alarm(60); /* a loop that waits for what does not come */
    loop = loop_new();
    assert_non_null(loop);
    n_turns = most_turns = late_turns = most_late_turns = n_looks = 0;
    n_seen = 0;
    due_us = 0;
    alarm_at_rest = NULL;
    loop->on_turn_end = on_turn_end;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_free(loop);
    return 0;
}

static void run(unsigned turns)
{
    n_turns = 0;
    most_turns = turns;
    loop->stopped = false;
    loop_run(loop);
}

static void on_ready(struct loop_watch *w, uint32_t events)
{
    const struct timeval in = {0, 100 * US_PER_MS};
    struct end *e = CONTAINER_OF(w, struct end, watch);
    eventfd_t value;

    assert_true(events & EPOLLIN);
    e->n++;
    if (n_seen < sizeof seen)
        seen[n_seen++] = e->name;
    if (e->n < e->times)
        return;
    eventfd_read(e->fd, &value);
    if (alarm_at_rest != NULL)
        event_add(alarm_at_rest, &in);
}

static bool read_nothing(struct loop_watch *w, char *p, size_t n_bytes, ssize_t *got)
{
    (void)w, (void)p, (void)n_bytes, (void)got;
    return false;
}

/* Ready at once. */
static void open_end(struct end *e, enum loop_side side, char name, unsigned times)
{
    static const struct loop_watch_ops ops = {on_ready, read_nothing};

    *e = (struct end){{&ops}, eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC), name, times, 0};
    assert_true(e->fd >= 0);
    loop_watch(loop, side, e->fd, &e->watch, 0, EPOLLIN);
}

/* So many that the loop is busy. */
static struct end pods[4];

static void open_pods(void)
{
    for (size_t i = 0; i < ARRAY_LEN(pods); i++)
        open_end(&pods[i], LOOP_UPSTREAM, 'p', EVER);
}

static void close_pods(void)
{
    for (size_t i = 0; i < ARRAY_LEN(pods); i++)
        close(pods[i].fd);
}

static void test_pods_before_clients(void **state)
{
    struct end client;

    (void)state;
    open_end(&client, LOOP_DOWNSTREAM, 'c', EVER);
    open_pods();
    run(sizeof seen / (ARRAY_LEN(pods) + 1) + 2);
    assert_int_equal(n_seen, sizeof seen);
    for (size_t i = 0; i < n_seen; i++)
        assert_int_equal(seen[i], i % 5 < 4 ? 'p' : 'c');
    close(client.fd);
    close_pods();
}

/* More pods than a turn takes are ready, and all of them again in the next one. */
static void test_many_pods_leave_clients_their_batch(void **state)
{
    static struct end many[N_MANY];
    struct end client;
    unsigned least = UINT32_MAX, most = 0;

    (void)state;
    for (size_t i = 0; i < N_MANY; i++)
        open_end(&many[i], LOOP_UPSTREAM, 'p', EVER);
    open_end(&client, LOOP_DOWNSTREAM, 'c', EVER);
    run(ENOUGH_TURNS);
    for (size_t i = 0; i < N_MANY; i++) {
        least = many[i].n < least ? many[i].n : least;
        most = many[i].n > most ? many[i].n : most;
        close(many[i].fd);
    }
    close(client.fd);
    assert_int_equal(client.n, ENOUGH_TURNS - 1); /* the first end of a turn comes before the first turn */
    assert_true(least >= ENOUGH_TURNS / 2 && most < ENOUGH_TURNS);
}

static void test_clients_alone(void **state)
{
    struct end client;

    (void)state;
    open_end(&client, LOOP_DOWNSTREAM, 'c', EVER);
    run(ENOUGH_TURNS);
    assert_int_equal(client.n, ENOUGH_TURNS - 1);
    close(client.fd);
}

static void test_busy_turns_wait_directly(void **state)
{
    struct end client;
    int64_t began_us;

    (void)state;
    open_end(&client, LOOP_DOWNSTREAM, 'c', EVER);
    open_pods();
    run(2);
    began_us = loop_now_us(loop);
    n_looks = 0;
    run(ENOUGH_TURNS);
    assert_true(n_looks <= 2 + (loop_now_us(loop) - began_us) / US_PER_MS);
    close(client.fd);
    close_pods();
}

/* ---- the end of the turn ---- */

struct named {
    struct loop_task task;
    char name;
    struct named *then; /* is put off to the end of the turn; NULL: nobody */
};

static void on_named(struct loop_task *t)
{
    const struct named *n = CONTAINER_OF(t, struct named, task);

    seen[n_seen++] = n->name;
    if (n->then != NULL)
        loop_defer(loop, &n->then->task);
}

static void open_named(struct named *n, char name, struct named *then)
{
    *n = (struct named){.name = name, .then = then};
    loop_task_init(&n->task, on_named);
}

static void test_who_is_last(void **state)
{
    struct named last, after_last, first, after_first;

    (void)state;
    open_named(&last, 'l', &after_last);
    open_named(&after_last, 'm', NULL);
    open_named(&first, 'a', &after_first);
    open_named(&after_first, 'b', NULL);
    loop_defer_last(loop, &last.task);
    loop_defer_last(loop, &last.task); /* once is enough */
    loop_defer(loop, &first.task);
    run(1);
    assert_int_equal(n_seen, 4);
    assert_memory_equal(seen, "ablm", 4);
}

static size_t come[3];
static unsigned n_come;
static struct named at_end, at_very_end, in_next;

static void on_ready_count(struct loop_watch *w, uint32_t events)
{
    eventfd_t value;

    (void)events;
    eventfd_read(CONTAINER_OF(w, struct end, watch)->fd, &value);
    come[n_come++] = loop_may_come(loop);
    loop_defer(loop, &at_end.task);
    loop_defer_last(loop, &at_very_end.task);
    loop_defer_next(loop, &in_next.task);
}

/* While pods are handled, nobody knows. Later: the clients that follow, and what is put off to the end. */
static void test_who_may_come(void **state)
{
    static const struct loop_watch_ops counts = {on_ready_count, read_nothing};
    struct end pod, clients[2];

    (void)state;
    open_named(&at_end, 'e', NULL);
    open_named(&at_very_end, 'v', NULL);
    open_named(&in_next, 'n', NULL);
    open_end(&pod, LOOP_UPSTREAM, 'p', 1);
    open_end(&clients[0], LOOP_DOWNSTREAM, 'c', 1);
    open_end(&clients[1], LOOP_DOWNSTREAM, 'c', 1);
    pod.watch.ops = clients[0].watch.ops = clients[1].watch.ops = &counts;
    n_come = 0;
    run(3);
    assert_int_equal(n_come, 3);
    assert_true(come[0] >= LOOP_MANY);
    assert_int_equal(come[1], 2);
    assert_int_equal(come[2], 1);
    assert_int_equal(n_seen, 3);
    assert_memory_equal(seen, "evn", 3);
    close(pod.fd);
    close(clients[0].fd);
    close(clients[1].fd);
}

/* ---- the next turn ---- */

struct sender {
    struct loop_task task;
    struct loop_task *cancels;
    unsigned n;
};

static void on_next(struct loop_task *t)
{
    struct sender *s = CONTAINER_OF(t, struct sender, task);

    s->n++;
    if (s->cancels != NULL)
        loop_task_cancel(s->cancels);
    loop_defer_next(loop, t);
    loop_defer_next(loop, t); /* once is enough */
}

static void open_sender(struct sender *s, struct loop_task *cancels)
{
    *s = (struct sender){.cancels = cancels};
    loop_task_init(&s->task, on_next);
    loop_defer_next(loop, &s->task);
}

/* Who goes on in each turn waits for nothing, and holds nobody. */
static void test_next_turn_is_everybodys(void **state)
{
    struct end client;
    struct sender first, second;

    (void)state;
    open_sender(&first, NULL);
    open_sender(&second, NULL);
    run(ENOUGH_TURNS);
    assert_int_equal(first.n, ENOUGH_TURNS - 1);
    assert_int_equal(second.n, ENOUGH_TURNS - 1);
    open_end(&client, LOOP_DOWNSTREAM, 'c', EVER);
    open_pods();
    run(ENOUGH_TURNS);
    assert_int_equal(first.n, 2 * (ENOUGH_TURNS - 1));
    assert_int_equal(client.n, ENOUGH_TURNS - 1);
    assert_int_equal(pods[0].n, ENOUGH_TURNS - 1);
    loop_task_cancel(&first.task);
    loop_task_cancel(&second.task);
    close(client.fd);
    close_pods();
}

static void test_next_turn_cancelled(void **state)
{
    struct sender first, second;

    (void)state;
    open_sender(&first, &second.task);
    open_sender(&second, NULL);
    run(3);
    assert_int_equal(first.n, 2);
    assert_int_equal(second.n, 0);
    loop_task_cancel(&first.task);
}

/* ---- timers ---- */

static struct wheel_timer limit;
static unsigned n_over;

static void on_over(struct wheel_timer *t)
{
    (void)t;
    n_over++;
    loop_stop(loop);
}

static void on_ready_in_time(struct loop_watch *w, uint32_t events)
{
    eventfd_t value;

    (void)events;
    eventfd_read(CONTAINER_OF(w, struct end, watch)->fd, &value);
    loop_timer_cancel(loop, &limit);
    loop_stop(loop);
}

/* The process stands still until the time is over. */
static void stand_still(void)
{
    wheel_timer_init(&limit, on_over);
    loop_timer_start(loop, &limit, loop_now_us(loop) + 1);
    poll(NULL, 0, 5 * WHEEL_TICK_US / US_PER_MS);
    run(EVER);
}

static void test_who_was_in_time_while_the_process_stood_still(void **state)
{
    static const struct loop_watch_ops in_time = {on_ready_in_time, read_nothing};

    (void)state;
    n_over = 0;
    for (unsigned side = 0; side < LOOP_SIDES; side++) {
        struct end end;

        open_end(&end, side, 'e', 1);
        end.watch.ops = &in_time;
        stand_still();
        assert_int_equal(n_over, 0);
        close(end.fd);
    }
    stand_still();
    assert_int_equal(n_over, 1);
}

static void on_over_early(struct wheel_timer *t)
{
    (void)t;
    n_turns = 0;
    n_over++;
}

/* From the first limit to the second; a few turns more are libevent's clock, which is behind the loop's. */
static void test_sleeps_until_the_next_limit(void **state)
{
    struct wheel_timer early;

    (void)state;
    n_over = 0;
    wheel_timer_init(&limit, on_over);
    wheel_timer_init(&early, on_over_early);
    loop_timer_start(loop, &limit, loop_now_us(loop) + 25 * WHEEL_TICK_US);
    loop_timer_start(loop, &early, loop_now_us(loop) + WHEEL_TICK_US);
    assert_int_equal(loop->tick_us, wheel_look_us(&early));
    run(EVER);
    assert_int_equal(n_over, 2);
    assert_false(wheel_pending(&limit));
    assert_in_range(n_turns, 1, 10);
}

/* ---- libevent's, while pods and clients always have something new ---- */

static struct event *every;
static unsigned n_fired;

static void on_due(evutil_socket_t fd, short what, void *arg)
{
    const struct timeval in = {0, 5 * US_PER_MS};

    (void)fd, (void)what, (void)arg;
    late_turns = 0;
    if (++n_fired == ENOUGH_EVENTS) {
        loop_stop(loop);
        return;
    }
    due_us = loop_now_us(loop) + 5 * US_PER_MS + LIBEVENT_CLOCK_US;
    event_add(every, &in);
}

static void test_timers_while_busy(void **state)
{
    static const struct timeval now = {0, 0};

    (void)state;
    open_pods();
    every = event_new(loop->base, -1, 0, on_due, NULL);
    n_fired = 0;
    event_add(every, &now);
    run(0);
    assert_int_equal(n_fired, ENOUGH_EVENTS);
    assert_true(n_turns > 10 * ENOUGH_EVENTS);
    assert_true(most_late_turns <= LATE_TURNS);
    event_free(every);
    close_pods();
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    due_us = late_turns = 0;
    loop_stop(loop);
}

static void on_ready_raise(struct loop_watch *w, uint32_t events)
{
    struct end *e = CONTAINER_OF(w, struct end, watch);

    (void)events;
    if (++e->n != ENOUGH_TURNS)
        return;
    due_us = loop_now_us(loop);
    raise(SIGUSR1);
}

static void test_signal_while_busy(void **state)
{
    static const struct loop_watch_ops raises = {on_ready_raise, read_nothing};
    struct end client;
    struct event *signals;

    (void)state;
    open_pods();
    open_end(&client, LOOP_DOWNSTREAM, 'c', EVER);
    client.watch.ops = &raises;
    signals = evsignal_new(loop->base, SIGUSR1, on_signal, NULL);
    assert_int_equal(event_add(signals, NULL), 0);
    run(0);
    assert_true(client.n >= ENOUGH_TURNS);
    assert_true(most_late_turns <= LATE_TURNS);
    event_free(signals);
    close(client.fd);
    close_pods();
}

static void on_alarm(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    loop_stop(loop);
}

/* After busy turns the loop is back at the one wait for everything: it sleeps in it. */
static void test_idle_sleeps(void **state)
{
    struct rusage before, after;
    struct end ends[ENOUGH_EVENTS];

    (void)state;
    for (size_t i = 0; i < ENOUGH_EVENTS; i++)
        open_end(&ends[i], i % 2 == 0 ? LOOP_UPSTREAM : LOOP_DOWNSTREAM, 'p', ENOUGH_TURNS);
    getrusage(RUSAGE_SELF, &before);
    alarm_at_rest = event_new(loop->base, -1, 0, on_alarm, NULL);
    run(0);
    getrusage(RUSAGE_SELF, &after);
    for (size_t i = 0; i < ENOUGH_EVENTS; i++) {
        assert_int_equal(ends[i].n, ENOUGH_TURNS);
        close(ends[i].fd);
    }
    event_free(alarm_at_rest);
    /* And those before the first wait and of the alarm. */
    assert_int_equal(n_turns, ENOUGH_TURNS + 2);
    assert_true(after.ru_nvcsw - before.ru_nvcsw < 20);
}

/* ---- listeners ---- */

static unsigned n_accepted;

static void on_accept(struct listener *l, int fd, const struct sockaddr *from)
{
    (void)l, (void)from;
    n_accepted++;
    close(fd);
}

/* The connection waits to be accepted. */
static int connect_to(const struct listener *l, size_t which)
{
    struct pollfd p = {.fd = l->sockets[which].fd, .events = POLLIN};
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    int fd;

    assert_int_equal(getsockname(p.fd, (struct sockaddr *)&a, &n), 0);
    fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, n), 0);
    assert_int_equal(poll(&p, 1, -1), 1);
    return fd;
}

/* New connections wait for no look at libevent. */
static void test_accepts_while_busy(void **state)
{
    struct listener l = {.on_accept = on_accept};
    char *error;

    (void)state;
    n_accepted = 0;
    open_pods();
    assert_true(listen_open(&l, loop, "127.0.0.1", 0, &error));
    run(ENOUGH_TURNS);
    for (unsigned i = 1; i <= ENOUGH_EVENTS; i++) {
        const int fd = connect_to(&l, 0);

        run(2); /* the first one ends without a wait */
        assert_int_equal(n_accepted, i);
        close(fd);
    }
    listen_close(&l);
    close_pods();
}

static void test_paused_listener(void **state)
{
    struct listener l = {.on_accept = on_accept};
    char *error;
    int fd;

    (void)state;
    n_accepted = 0;
    open_pods();
    assert_true(listen_open(&l, loop, "127.0.0.1", 0, &error));
    listen_pause(&l, true);
    fd = connect_to(&l, 0);
    run(ENOUGH_TURNS);
    assert_int_equal(n_accepted, 0);
    listen_pause(&l, false);
    run(2);
    assert_int_equal(n_accepted, 1);
    close(fd);
    listen_close(&l);
    close_pods();
}

#define N_ROUNDS 4

static int families[N_ROUNDS], accepted;
static unsigned n_families;
static bool pauses; /* else descriptors end */

static void on_accept_one(struct listener *l, int fd, const struct sockaddr *from)
{
    assert_true(n_families < N_ROUNDS);
    families[n_families++] = from->sa_family;
    accepted = fd;
    listen_pause(l, pauses);
    loop_stop(l->loop);
}

/* Room for one more. */
static rlim_t few_descriptors(void)
{
    const int next = dup(STDERR_FILENO);

    close(next);
    return (rlim_t)next + 1;
}

/* Clients of both families wait all the time, and one connection at a time is possible. */
static void check_families_take_turns(void)
{
    struct listener l = {.on_accept = on_accept_one};
    int clients[2 * N_ROUNDS];
    struct rlimit before, now;
    char *error;

    assert_true(listen_open(&l, loop, "loopback", 0, &error));
    for (size_t i = 0; i < ARRAY_LEN(clients); i++)
        clients[i] = connect_to(&l, i % l.n);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = (struct rlimit){pauses ? before.rlim_cur : few_descriptors(), before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    for (n_families = 0; n_families < N_ROUNDS;) {
        run(EVER);
        close(accepted);
        listen_pause(&l, false);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (size_t i = 1; i < N_ROUNDS; i++)
        assert_true(l.n == 1 || families[i] != families[i - 1]);
    for (size_t i = 0; i < ARRAY_LEN(clients); i++)
        close(clients[i]);
    listen_close(&l);
}

static void test_families_take_turns_when_descriptors_end(void **state)
{
    (void)state;
    pauses = false;
    check_families_take_turns();
}

static void test_families_take_turns_after_a_pause(void **state)
{
    (void)state;
    pauses = true;
    check_families_take_turns();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pods_before_clients, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_pods_leave_clients_their_batch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_clients_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_busy_turns_wait_directly, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_is_last, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_may_come, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_next_turn_is_everybodys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_next_turn_cancelled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sleeps_until_the_next_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_who_was_in_time_while_the_process_stood_still, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_timers_while_busy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_signal_while_busy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_idle_sleeps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_accepts_while_busy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_paused_listener, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_families_take_turns_when_descriptors_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_families_take_turns_after_a_pause, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
