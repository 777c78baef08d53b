/* What happens around the requests, and the order of a run: starts of the router, rounds of requests, the
 * quiet at the end of a round in which everything must be back at zero, and the verdicts. */
#include "torture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORLD_TICK_US      (20 * 1000)
#define WORLD_QUIET_US     (15 * 1000 * 1000)
#define WORLD_FLOOD_SIZE   250
#define WORLD_RSS_SLACK_KB (24 * 1024)

enum phase { PHASE_START, PHASE_WARM, PHASE_ROUND, PHASE_QUIET, PHASE_LOGS, PHASE_STOP };

static enum phase phase;
static int64_t start_us, phase_since_us, next_act_us, next_look_us, next_question_us;
static struct loop_timer tick;
static struct rng world_rng;
static uint32_t next_request, round_end, rounds_here;
static unsigned limit_here;
static bool boost_here, stopping_under_load, log_here;
static long fds_at_rest, rss_after_first_kb;
static uint64_t lines_dropped_here;
static char ini_path[512];

/* Things that end by themselves. */
static int64_t pod_back_us[TORTURE_PODS], reload_back_us, thaw_us, logs_back_us, fds_back_us, flood_over_us;
static struct flow *flood;
static struct rlimit fds_before;

static void world_enter(enum phase p)
{
    phase = p;
    phase_since_us = util_now_us();
}

/* ---- configuration ---- */

static void world_pods(FILE *f, unsigned first, unsigned n, unsigned without)
{
    char name[TORTURE_AUTHORITY_MAX];
    const char *comma = "";

    fputs("pods = ", f);
    for (unsigned i = first; i < first + n; i++) {
        if (i == without)
            continue;
        fprintf(f, "%s%s", comma, pod_authority(i, name));
        comma = ", ";
    }
    fputs("\n", f);
}

/* variant 0 is what a round begins and ends with. */
static void world_write_ini(unsigned variant)
{
    const unsigned without = variant == 0 ? TORTURE_PODS : variant % (TORTURE_PODS + 1);
    char new_path[520];
    FILE *f;

    snprintf(new_path, sizeof new_path, "%s.new", ini_path);
    f = fopen(new_path, "w");
    if (f == NULL) {
        perror(new_path);
        exit(2);
    }
    fprintf(f,
            "[router]\nsession_boost_inflight_per_pod = %u\nsession_sticky = %s\nsession_sticky_wait = "
            "200ms\nsession_boost_timeout = 2s\n"
            "session_boost_max_sessions = %u\nsession_boost_max_overtakes = %u\nsession_boost_grace_period = "
            "%s\nlog_level = %s\n",
            variant == 0 ? limit_here : 1 + variant % limit_here, variant & 1 ? "off" : "prefer",
            50 + variant % 200, 1 + variant % 16, variant & 2 ? "5ms" : "0", variant & 4 ? "debug" : "info");
    fputs("[model-server a]\n", f);
    world_pods(f, 0, 4, without);
    fputs("[model-server b]\nmodel = org/Beta-7B\n", f);
    world_pods(f, 2, 3, without);
    fputs("[model-server c]\n", f);
    world_pods(f, 4, 2, without);
    fputs("[model-route alpha]\ntarget = a\n[model-route beta]\ntarget = b\n", f);
    if (variant % 8 != 5)
        fputs("[model-route gamma]\ntarget = c\n", f);
    fclose(f);
    rename(new_path, ini_path);
}

static void world_write_broken(unsigned variant)
{
    static const char *const broken[] = {
        "[router\nport=", "[model-server a]\npods = :\n",       "[nonsense]\nx = y\n",
        "\0\1\2",         "[model-route x]\ntarget = nobody\n", "port = 1\n"};
    FILE *f = fopen(ini_path, "w");

    if (f == NULL)
        return;
    fputs(broken[variant % (sizeof broken / sizeof *broken)], f);
    if (variant % 3 == 0)
        for (unsigned i = 0; i < 5000; i++)
            fputs("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", f);
    fclose(f);
}

static void world_reload_disturbs(int64_t until_us)
{
    oracle_disturb(DISTURB_RELOAD, until_us);
    /* A pod that leaves may be the last one with room, or the last one. */
    oracle_disturb(DISTURB_PODS, until_us);
}

/* ---- acts ---- */

static void act_pod(enum world_act act, unsigned i)
{
    const int64_t now_us = util_now_us();

    if (pod_back_us[i] != 0)
        return;
    pod_back_us[i] =
        now_us + (act == WORLD_HOLE ? 600 * 1000 : 10 * 1000 + rng_below(&world_rng, 200 * 1000));
    if (act == WORLD_HOLE)
        pod_hole(i);
    else
        pod_down(i, act == WORLD_RESTART);
    if (act == WORLD_RESTART && rng_below(&world_rng, 2)) {
        pod_up(i);
        pod_back_us[i] = 0;
    }
    oracle_disturb(DISTURB_PODS, now_us + 1000 * 1000);
}

static void act_reload(unsigned variant)
{
    world_write_ini(variant);
    kill(router_pid, SIGHUP);
    reload_back_us = util_now_us() + 100 * 1000 + rng_below(&world_rng, 400 * 1000);
    world_reload_disturbs(reload_back_us + 1000 * 1000);
}

static void act_signals(void)
{
    static const int harmless[] = {SIGHUP, SIGPIPE, SIGURG, SIGCONT, SIGWINCH, SIGCHLD};

    for (unsigned i = 0; i < 12; i++)
        kill(router_pid, harmless[rng_below(&world_rng, sizeof harmless / sizeof *harmless)]);
    world_reload_disturbs(util_now_us() + 1000 * 1000);
}

static void flood_nothing(struct flow *f)
{
    (void)f;
}

static void flood_bytes(struct flow *f, const char *p, size_t n)
{
    (void)f;
    oracle_complain(NULL, "a silent connection got %zu bytes: %.*s", n, n < 40 ? (int)n : 40, p);
}

static void flood_ended(struct flow *f, int error)
{
    (void)error;
    flow_close(f, false);
}

static void act_flood(void)
{
    if (flood_over_us != 0)
        return;
    for (unsigned i = 0; i < WORLD_FLOOD_SIZE; i++) {
        flood[i].bytes = flood_bytes;
        flood[i].ended = flood_ended;
        flood[i].played = flood_nothing;
        flow_connect(&flood[i], router_port, 0);
    }
    flood_over_us = util_now_us() + 100 * 1000;
}

static void flood_end(void)
{
    for (unsigned i = 0; i < WORLD_FLOOD_SIZE; i++)
        flow_close(&flood[i], i & 1);
    flood_over_us = 0;
}

static void act_few_fds(void)
{
    char path[64];
    struct rlimit r;
    unsigned n = 0;

    if (fds_back_us != 0 || prlimit(router_pid, RLIMIT_NOFILE, NULL, &fds_before) < 0)
        return;
    for (unsigned fd = 0; fd < 2048; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%u", (int)router_pid, fd);
        if (access(path, F_OK) == 0)
            n = fd + 1;
    }
    r = (struct rlimit){n + rng_below(&world_rng, 3), fds_before.rlim_max};
    prlimit(router_pid, RLIMIT_NOFILE, &r, NULL);
    fds_back_us = util_now_us() + 150 * 1000;
    oracle_disturb(DISTURB_FDS, fds_back_us + 1000 * 1000);
    oracle_disturb(DISTURB_PODS, fds_back_us + 1000 * 1000);
}

static void fds_back(void)
{
    prlimit(router_pid, RLIMIT_NOFILE, &fds_before, NULL);
    fds_back_us = 0;
}

static void got_admin(unsigned status, const char *body, size_t n)
{
    (void)body;
    if (status != 200 && status != 0)
        oracle_complain(NULL, "an admin port answered %u", status);
    if (status == 200 && n == 0)
        oracle_complain(NULL, "an admin port answered nothing");
}

static void act_admin(void)
{
    static const char *const dumps[] = {"config", "modelroutes", "modelservers",
                                        "pods",   "queues",      "requests"};
    char path[64];
    struct plan p = {.client = CLIENT_HOSTILE, .variant = (uint8_t)rng_next(&world_rng)};
    unsigned status;
    size_t n;
    const char *junk = plan_hostile(&p, &n, &status);

    switch (rng_below(&world_rng, 4)) {
    case 0:
        router_get(ROUTER_METRICS, "/metrics", got_admin);
        break;
    case 1:
        router_send_junk(rng_below(&world_rng, 2) ? ROUTER_METRICS : ROUTER_DEBUG, junk, n);
        break;
    default:
        snprintf(path, sizeof path, "/debug/config_dump/%s", dumps[rng_below(&world_rng, 6)]);
        router_get(ROUTER_DEBUG, path, got_admin);
        break;
    }
}

static void world_act(enum world_act act)
{
    const int64_t now_us = util_now_us();

    tally.world[act]++;
    switch (act) {
    case WORLD_RESTART:
    case WORLD_DOWN:
    case WORLD_HOLE:
        act_pod(act, rng_below(&world_rng, TORTURE_PODS));
        break;
    case WORLD_METRICS:
        pod_metrics_mode(rng_below(&world_rng, TORTURE_PODS), rng_below(&world_rng, POD_METRICS_MODES));
        break;
    case WORLD_RELOAD:
        act_reload(1 + rng_below(&world_rng, 1000));
        break;
    case WORLD_RELOAD_BROKEN:
        world_write_broken(rng_below(&world_rng, 1000));
        kill(router_pid, SIGHUP);
        reload_back_us = now_us + 100 * 1000;
        world_reload_disturbs(now_us + 1000 * 1000);
        break;
    case WORLD_SIGNALS:
        act_signals();
        break;
    case WORLD_FROZEN:
        kill(router_pid, SIGSTOP);
        thaw_us = now_us + 20 * 1000 + rng_below(&world_rng, 300 * 1000);
        oracle_disturb(DISTURB_FROZEN, thaw_us + 2000 * 1000);
        break;
    case WORLD_LOG_BLOCKED:
        router_block_logs(true);
        logs_back_us = now_us + 300 * 1000 + rng_below(&world_rng, 500 * 1000);
        break;
    case WORLD_FLOOD:
        act_flood();
        break;
    case WORLD_FEW_FDS:
        act_few_fds();
        break;
    case WORLD_CLOCK:
        router_jump_clock((int64_t)rng_below(&world_rng, 400 * 86400) - 200 * 86400);
        break;
    case WORLD_DNS:
        dns_change(rng_below(&world_rng, DNS_MODES));
        break;
    case WORLD_ADMIN:
        act_admin();
        break;
    case WORLD_FULL_DISK:
    case WORLD_DEAF:
    case WORLD_FEW_FILES:
    case WORLD_ACTS:
        break;
    }
}

/* What is over by now goes back to normal; all of it when the round is over. */
static void world_mend(bool all)
{
    const int64_t now_us = all ? INT64_MAX : util_now_us();

    for (unsigned i = 0; i < TORTURE_PODS; i++) {
        if (pod_back_us[i] != 0 && pod_back_us[i] <= now_us) {
            pod_back_us[i] = 0;
            pod_up(i);
        }
        if (all)
            pod_metrics_mode(i, 0);
    }
    if (all) {
        router_jump_clock(0);
        dns_change(0);
    }
    if (thaw_us != 0 && thaw_us <= now_us) {
        thaw_us = 0;
        kill(router_pid, SIGCONT);
    }
    if (reload_back_us != 0 && reload_back_us <= now_us) {
        reload_back_us = 0;
        world_write_ini(0);
        kill(router_pid, SIGHUP);
    }
    if (logs_back_us != 0 && logs_back_us <= now_us) {
        logs_back_us = 0;
        router_block_logs(false);
    }
    if (fds_back_us != 0 && fds_back_us <= now_us)
        fds_back();
    if (flood_over_us != 0 && flood_over_us <= now_us)
        flood_end();
}

/* ---- rounds ---- */

uint32_t world_next(void)
{
    if (phase != PHASE_ROUND || next_request >= round_end)
        return UINT32_MAX;
    return next_request++;
}

static void world_start_round(void)
{
    const uint32_t left = settings.requests - next_request, n = left < settings.round ? left : settings.round;

    pods_forget_records();
    oracle_round(next_request, n);
    round_end = next_request + n;
    world_rng.state = util_mix(settings.seed + next_request);
    rounds_here++;
    tally.rounds++;
    world_enter(PHASE_ROUND);
    clients_go();
}

/* Every second start has something odd from the beginning; a soak has but one start. */
static void world_choose_surroundings(struct router_start *how)
{
    const uint64_t turn = settings.calm || settings.seconds > 0 ? 1 : tally.episodes % 6;

    how->full_disk = turn == 2;
    how->deaf = turn == 4;
    how->open_files = turn == 0 ? 100 : 0;
    tally.world[WORLD_FULL_DISK] += how->full_disk;
    tally.world[WORLD_DEAF] += how->deaf;
    tally.world[WORLD_FEW_FILES] += how->open_files > 0;
    log_here = !how->full_disk && !how->deaf;
    if (how->open_files > 0) {
        oracle_disturb(DISTURB_FDS, INT64_MAX / 2);
        oracle_disturb(DISTURB_PODS, INT64_MAX / 2);
    } else {
        oracle_calm(DISTURB_FDS);
        oracle_calm(DISTURB_PODS);
    }
}

static void world_start_router(void)
{
    struct rng r = {util_mix(settings.seed ^ (tally.episodes + 1) << 32)};
    struct router_start how;

    tally.episodes++;
    rounds_here = 0;
    fds_at_rest = 0;
    lines_dropped_here = 0;
    oracle_new_router();
    rss_after_first_kb = 0;
    boost_here = rng_below(&r, 4) != 0;
    limit_here = 2 + rng_below(&r, 9);
    stopping_under_load = settings.seconds == 0 && rng_below(&r, 2);
    how = (struct router_start){.ini = ini_path, .boost = boost_here, .text_log = rng_below(&r, 2)};
    how.queue_max = rng_below(&r, 3) == 0 ? 30 : 10000;
    world_choose_surroundings(&how);
    world_write_ini(0);
    pods_set_limit(boost_here ? limit_here : 0, 0);
    watch_start(boost_here ? limit_here : 0);
    if (settings.verbose)
        fprintf(stderr, "start: boost %d, limit %u, queue %u, open files %u, full disk %d, deaf %d\n",
                how.boost, limit_here, how.queue_max, how.open_files, how.full_disk, how.deaf);
    router_start(&how);
    world_enter(PHASE_START);
}

static void world_stop_router(void)
{
    oracle_disturb(DISTURB_DRAIN, util_now_us() + 60 * 1000 * 1000);
    kill(router_pid, SIGTERM);
    world_enter(PHASE_STOP);
}

static bool world_is_last_round(void)
{
    if (settings.seconds > 0)
        return util_now_us() - start_us > (int64_t)settings.seconds * 1000000;
    return next_request >= settings.requests || rounds_here >= settings.episode_rounds;
}

static void world_end(void)
{
    loop_stop();
}

static void world_ended(int status)
{
    if (phase != PHASE_STOP || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        tally.deaths++;
        oracle_complain(NULL, "the router ended with %s %d", WIFSIGNALED(status) ? "signal" : "status",
                        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        router_close();
        router_show_last_lines();
        world_end();
        return;
    }
    router_close();
    if (clients_busy() > 0)
        return;
    if (stopping_under_load)
        oracle_judge(false, 0);
    if (settings.seconds > 0 || next_request >= settings.requests)
        world_end();
    else
        world_start_router();
}

/* ---- the quiet at the end of a round ---- */

/* The sum of a family's series, or of one of them. */
static double world_sum(const char *page, const char *family)
{
    const size_t n = strlen(family);
    double sum = 0;

    for (const char *line = page; line != NULL && *line != '\0';
         line = strchr(line, '\n'), line += line != NULL)
        if (strncmp(line, family, n) == 0 && (line[n] == ' ' || line[n] == '{' || family[n - 1] == '}'))
            sum += strtod(strrchr(strndupa(line, strcspn(line, "\n")), ' '), NULL);
    return sum;
}

static const char *const zero_at_rest[] = {
    "kthena_router_active_requests",
    "kthena_router_active_downstream_requests",
    "kthena_router_active_upstream_requests",
    "kthena_router_session_boost_queue_size",
    "kthena_router_session_boost_queue_inflight",
    "kthena_router_queued_bytes",
    "kthena_router_pod_inflight_requests",
    "kthena_router_downstream_connections",
};

static const char *world_not_at_rest(const char *page)
{
    for (size_t i = 0; i < sizeof zero_at_rest / sizeof *zero_at_rest; i++)
        if (world_sum(page, zero_at_rest[i]) != 0)
            return zero_at_rest[i];
    /* Every pod may have one kept connection for its metrics; one is this question's. */
    if (fds_at_rest > 0 && world_sum(page, "process_open_fds") > (double)(fds_at_rest + TORTURE_PODS + 1))
        return "process_open_fds";
    return NULL;
}

static void world_note_memory(const char *page)
{
    const long rss_kb = (long)(world_sum(page, "process_resident_memory_bytes") / 1024);

    if (rss_after_first_kb == 0)
        rss_after_first_kb = rss_kb;
    if (tally.rss_first_kb == 0)
        tally.rss_first_kb = rss_kb;
    tally.rss_last_kb = rss_kb;
    if (settings.seconds > 0)
        soak_rest(rss_kb, (long)world_sum(page, "process_open_fds"));
    if (rss_kb > rss_after_first_kb * 2 + WORLD_RSS_SLACK_KB) {
        tally.leaks++;
        oracle_complain(NULL, "memory grew from %ld KiB after the first round to %ld KiB", rss_after_first_kb,
                        rss_kb);
    }
}

static void world_note_dropped(uint64_t lines)
{
    tally.lines_dropped += lines - lines_dropped_here;
    lines_dropped_here = lines;
}

static void got_rest(unsigned status, const char *body, size_t n)
{
    char *page = util_copy(body, n);
    const char *culprit = status == 200 ? world_not_at_rest(page) : "/metrics";

    if (phase == PHASE_WARM && status == 200) {
        fds_at_rest = (long)world_sum(page, "process_open_fds");
        world_start_round();
    } else if (phase == PHASE_QUIET && culprit != NULL && util_now_us() - phase_since_us > WORLD_QUIET_US) {
        tally.leaks++;
        oracle_complain(NULL, "%s is %g after the end of all requests", culprit, world_sum(page, culprit));
        culprit = NULL;
    }
    if (phase == PHASE_QUIET && culprit == NULL) {
        world_note_dropped(
            (uint64_t)world_sum(page, "kthena_router_log_lines_dropped_total{log=\"access\"}"));
        world_note_memory(page);
        world_enter(PHASE_LOGS);
    }
    free(page);
}

static void world_ask_rest(void)
{
    const int64_t now_us = util_now_us();

    if (now_us < next_question_us)
        return;
    next_question_us = now_us + 200 * 1000;
    router_get(ROUTER_METRICS, "/metrics", got_rest);
}

static void world_round_judged(void)
{
    oracle_judge(log_here, lines_dropped_here);
    if (settings.verbose)
        fprintf(stderr, "round %llu: %u requests, wrong %llu\n", (unsigned long long)tally.rounds, round_end,
                (unsigned long long)tally.wrong);
    if (world_is_last_round())
        world_stop_router();
    else
        world_start_round();
}

/* ---- one step ---- */

static void world_play(void)
{
    const int64_t now_us = util_now_us();

    world_mend(false);
    if (now_us >= next_look_us) {
        next_look_us = now_us + 250 * 1000;
        watch_look();
    }
    if (next_request >= round_end && world_is_last_round() && stopping_under_load) {
        world_mend(true);
        world_stop_router();
        return;
    }
    if (next_request >= round_end && clients_busy() == 0) {
        world_mend(true);
        world_enter(PHASE_QUIET);
        return;
    }
    if (settings.calm || now_us < next_act_us || thaw_us != 0)
        return;
    /* A soak leaves quiet between them, to see what requests feel that nothing touched. */
    next_act_us = now_us + (settings.seconds > 0 ? 3000 * 1000 : 20 * 1000) +
                  rng_below(&world_rng, settings.seconds > 0 ? 5000 * 1000 : 120 * 1000);
    world_act((enum world_act)rng_act(&world_rng, world_acts, WORLD_ACTS));
}

static void world_step(struct loop_timer *t)
{
    const int64_t now_us = util_now_us(), here_us = now_us - phase_since_us;
    int status = 0;

    loop_arm(t, now_us + WORLD_TICK_US);
    if (router_pid != 0 && !router_is_alive(&status)) {
        world_ended(status);
        return;
    }
    switch (phase) {
    case PHASE_START:
        if (router_is_up())
            world_enter(PHASE_WARM);
        break;
    case PHASE_WARM:
        if (here_us > 600 * 1000)
            world_ask_rest();
        break;
    case PHASE_ROUND:
        world_play();
        break;
    case PHASE_QUIET:
        if (here_us > 500 * 1000)
            world_ask_rest();
        break;
    case PHASE_LOGS:
        if (here_us > 200 * 1000)
            world_round_judged();
        break;
    case PHASE_STOP:
        if (router_pid == 0)
            world_ended(0);
        else if (here_us > 40 * 1000 * 1000) {
            oracle_complain(NULL, "the router does not end after SIGTERM");
            kill(router_pid, SIGKILL);
        }
        break;
    }
}

void world_start(void)
{
    snprintf(ini_path, sizeof ini_path, "%s/router.ini", settings.directory);
    flood = util_alloc(WORLD_FLOOD_SIZE * sizeof *flood);
    for (unsigned i = 0; i < WORLD_FLOOD_SIZE; i++)
        flood[i].io.fd = -1;
    start_us = util_now_us();
    tick = (struct loop_timer){.fire = world_step};
    world_start_router();
    loop_arm(&tick, util_now_us() + WORLD_TICK_US);
}

void world_close(void)
{
    for (unsigned i = 0; i < WORLD_FLOOD_SIZE; i++)
        flow_free(&flood[i]);
    free(flood);
    if (router_pid > 0)
        kill(router_pid, SIGKILL);
    router_close();
    unlink(ini_path);
    router_forget_clock();
}
