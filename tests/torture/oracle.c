/* What must be true: each request ended once, as its plan and what happened around it allow, and client, pod
 * and access log agree. Owns the records of a round and the counts of the run. */
#include "torture.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORACLE_LOOK_US                                                                                       \
    (50 * 1000) /* from one look of the router at a client to the next, on a busy machine */
#define ORACLE_COMPLAINTS_MAX 60
#define ORACLE_SLACK_US       (1000 * 1000)

struct tally tally;

static struct record *records;
static uint32_t first_record, n_records;
static int64_t disturbed_until_us[DISTURBANCES];
static uint64_t lines_missing, n_complaints;

void oracle_round(uint32_t first, uint32_t n)
{
    free(records);
    records = util_alloc(n * sizeof *records);
    first_record = first;
    n_records = n;
    for (uint32_t i = 0; i < n; i++)
        plan_make(&records[i].plan, settings.seed, settings.only != UINT32_MAX ? settings.only : first + i);
    for (uint32_t i = 0; i < n; i++)
        records[i].plan.n = first + i;
}

struct record *oracle_record(long n)
{
    if (n < (long)first_record || n >= (long)first_record + (long)n_records)
        return NULL;
    return &records[n - (long)first_record];
}

void oracle_new_router(void)
{
    lines_missing = 0;
}

void oracle_disturb(enum disturbance d, int64_t until_us)
{
    if (until_us > disturbed_until_us[d])
        disturbed_until_us[d] = until_us;
}

void oracle_calm(enum disturbance d)
{
    disturbed_until_us[d] = 0;
}

bool oracle_disturbed(enum disturbance d, int64_t since_us)
{
    return disturbed_until_us[d] >= since_us - ORACLE_SLACK_US;
}

/* ---- complaints ---- */

static const char *const result_names[] = {"open", "no answer", "answered", "cut", "left", "lost", "bad"};
static const char *const deed_names[] = {
    "nothing",  "whole answer", "silent end", "cut head",         "cut body",    "reset",
    "bad head", "bad body",     "hung",       "hung in the body", "early answer"};

static void oracle_describe(const struct record *r)
{
    const struct plan *p = &r->plan;

    fprintf(stderr,
            "    request %u: client %s, pod %s, model %u, variant %u, body %u, answer %u, session %u\n"
            "    client: %s, status %u, code \"%s\"%s%s; pod %u: %u arrivals, %s%s%s; log: %u lines, %u "
            "\"%s\"; %lld ms\n",
            p->n, client_acts[p->client].name, pod_acts[p->pod].name, p->model, p->variant, p->body_bytes,
            p->answer_bytes, p->session, result_names[r->result], r->status, r->code,
            r->from_pod ? ", from a pod" : "", r->follower ? ", behind a cut one" : "", r->pod, r->arrivals,
            deed_names[r->deed], r->reused ? ", kept connection" : "", r->killed ? ", killed" : "", r->lines,
            r->log_status, r->log_code, (long long)(r->done_us - r->sent_us) / 1000);
}

void oracle_complain(const struct record *r, const char *format, ...)
{
    va_list args;

    tally.wrong++;
    if (n_complaints++ >= ORACLE_COMPLAINTS_MAX)
        return;
    fputs("WRONG: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs("\n", stderr);
    if (r != NULL)
        oracle_describe(r);
}

/* ---- the access log ---- */

static const char *oracle_find(const char *line, size_t n, const char *key)
{
    const char *p = memmem(line, n, key, strlen(key));

    return p == NULL ? NULL : p + strlen(key);
}

static void oracle_copy_code(char code[TORTURE_CODE_MAX], const char *p)
{
    size_t n = 0;

    while (n < TORTURE_CODE_MAX - 1 && p[n] != '"' && p[n] != ':' && p[n] != '\0')
        n++;
    memcpy(code, p, n);
    code[n] = '\0';
}

/* Either form of the log; the driver's ids and codes need no escapes. */
void oracle_log_line(char *line, size_t n)
{
    const bool json = line[0] == '{';
    const char *id = oracle_find(line, n, json ? "\"request_id\":\"t-" : " request_id=t-");
    const char *status = json ? oracle_find(line, n, "\"status_code\":") : oracle_find(line, n, "\" ");
    const char *error = oracle_find(line, n, json ? "\"error\":{\"type\":\"" : " error=");
    struct record *r;

    tally.lines++;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            oracle_complain(NULL, "control byte in the access log: %.200s", line);
            break;
        }
    if (status == NULL || (json && line[n - 1] != '}') || (!json && line[0] != '[')) {
        oracle_complain(NULL, "bad line in the access log: %.200s", line);
        return;
    }
    if (id != NULL && memmem(line, n, "secret-", 7) != NULL)
        oracle_complain(NULL, "a secret in the access log: %.300s", line);
    r = id == NULL ? NULL : oracle_record(strtol(id, NULL, 10));
    if (id != NULL && r == NULL)
        oracle_complain(NULL, "a line for a request that is over: %.300s", line);
    if (r == NULL)
        return;
    if (r->lines++ > 0) {
        tally.duplicates++;
        oracle_complain(r, "two lines in the access log");
    }
    r->log_status = (uint16_t)strtoul(status, NULL, 10);
    if (error != NULL)
        oracle_copy_code(r->log_code, error);
    else
        oracle_copy_code(r->log_code, TORTURE_RESULT_CODE_OK);
}

/* ---- what may come of a request ---- */

static bool oracle_is(const char *code, const char *name)
{
    return strcmp(code, name) == 0;
}

static bool oracle_head_limit_passed(const struct record *r)
{
    return r->done_us - r->sent_us > TORTURE_HEAD_LIMIT_US - 200 * 1000;
}

/* What the world around may do to any request. */
static bool oracle_world_allows(const struct record *r, const char *code)
{
    const int64_t since_us = r->sent_us;

    if (oracle_is(code, "queue_timeout") || oracle_is(code, "queue_full") ||
        oracle_is(code, "queue_bytes_full"))
        return r->arrivals == 0 || r->retry_allowed || r->killed;
    if (oracle_is(code, "connect_failed") || oracle_is(code, "no_usable_pod"))
        return (r->arrivals == 0 || r->retry_allowed || r->killed) &&
               (oracle_disturbed(DISTURB_PODS, since_us) || oracle_disturbed(DISTURB_FDS, since_us));
    if (oracle_is(code, "route_not_found"))
        return (r->arrivals == 0 || r->retry_allowed || r->killed) &&
               oracle_disturbed(DISTURB_RELOAD, since_us);
    if (oracle_is(code, "router_shutdown"))
        return oracle_disturbed(DISTURB_DRAIN, since_us);
    if (oracle_is(code, "pod_reset"))
        return r->killed || oracle_disturbed(DISTURB_PODS, since_us);
    if (oracle_is(code, "pod_head_timeout") || oracle_is(code, "pod_body_timeout"))
        return oracle_disturbed(DISTURB_FROZEN, since_us) && oracle_head_limit_passed(r);
    return false;
}

static bool oracle_is_whole(const struct record *r, const char *code)
{
    return oracle_is(code, r->plan.status >= 400 ? "request_failed" : TORTURE_RESULT_CODE_OK);
}

static bool oracle_deed_allows(const struct record *r, const char *code)
{
    switch ((enum deed)r->deed) {
    case DEED_WHOLE:
        return oracle_is_whole(r, code);
    case DEED_SILENT_END:
    case DEED_CUT_HEAD:
    case DEED_CUT_BODY:
    case DEED_RESET:
        return oracle_is(code, "pod_reset");
    case DEED_BAD_HEAD:
    case DEED_BAD_BODY:
        return oracle_is(code, "pod_protocol_error");
    case DEED_HANG_HEAD:
        return oracle_is(code, "pod_head_timeout") && oracle_head_limit_passed(r);
    case DEED_HANG_BODY:
        return oracle_is(code, "pod_body_timeout") && oracle_head_limit_passed(r);
    case DEED_EARLY:
        return oracle_is(code, "request_failed") || oracle_is(code, "pod_reset");
    case DEED_NONE:
        break;
    }
    return false;
}

/* The codes of what never gets to a pod. */
static const char *oracle_refusal(const struct plan *p)
{
    switch (p->client) {
    case CLIENT_HEAD_STOPS:
    case CLIENT_BODY_STOPS:
        return "client_timeout";
    case CLIENT_HEAD_TOO_LARGE:
        return "head_too_large";
    case CLIENT_URI_TOO_LONG:
        return "uri_too_long";
    case CLIENT_BODY_TOO_LARGE:
    case CLIENT_ENDLESS_CHUNKS:
        return "body_too_large";
    case CLIENT_BAD_JSON:
        return "bad_json";
    case CLIENT_NO_MODEL:
        return "model_missing";
    case CLIENT_UNKNOWN_MODEL:
        return "route_not_found";
    case CLIENT_UNKNOWN_PATH:
        return "path_not_found";
    case CLIENT_OPTIONS:
        return "method_not_allowed";
    case CLIENT_MULTIPART: /* its body is no form */
        return "model_missing";
    case CLIENT_LIST:
        return TORTURE_RESULT_CODE_OK;
    default:
        return NULL;
    }
}

/* A half-closed client has left, unless its pod answered before the router could look. */
static bool oracle_may_be_answered(const struct record *r)
{
    return r->plan.client != CLIENT_HALF_CLOSE || r->done_us - r->arrived_us < ORACLE_LOOK_US ||
           oracle_disturbed(DISTURB_FROZEN, r->sent_us);
}

static bool oracle_allows(const struct record *r, const char *code)
{
    const struct plan *p = &r->plan;
    const char *refusal = oracle_refusal(p);

    if (oracle_is(code, "client_gone"))
        return plan_may_leave(p) || p->client == CLIENT_PIPELINE;
    /* On a machine that is busy we are slower than we mean to be. */
    if (oracle_is(code, "client_timeout") && (p->client == CLIENT_BYTES || p->client == CLIENT_SPLIT))
        return r->done_us - r->sent_us > TORTURE_CLIENT_LIMIT_US;
    if (oracle_is(code, "client_stalled"))
        return p->client == CLIENT_STALL ||
               (p->client == CLIENT_SLOW_READER && oracle_disturbed(DISTURB_FROZEN, r->sent_us));
    if (refusal != NULL)
        return oracle_is(code, refusal);
    return (oracle_may_be_answered(r) && oracle_deed_allows(r, code)) || oracle_world_allows(r, code);
}

/* ---- does what the client saw fit? ---- */

static unsigned oracle_status_of(const char *code)
{
    static const struct {
        const char *code;
        unsigned status;
    } table[] = {{"client_timeout", 408},     {"head_too_large", 431},  {"uri_too_long", 414},
                 {"body_too_large", 413},     {"bad_json", 400},        {"model_missing", 400},
                 {"route_not_found", 404},    {"path_not_found", 404},  {"unsupported", 400},
                 {"method_not_allowed", 405}, {"queue_full", 429},      {"queue_bytes_full", 429},
                 {"queue_timeout", 504},      {"no_usable_pod", 503},   {"connect_failed", 503},
                 {"pod_protocol_error", 502}, {"pod_reset", 502},       {"pod_head_timeout", 504},
                 {"pod_body_timeout", 504},   {"router_shutdown", 503}, {"bad_http", 400}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (oracle_is(code, table[i].code))
            return table[i].status;
    return 0;
}

static void oracle_check_answer(const struct record *r, const char *code)
{
    const struct plan *p = &r->plan;

    if (r->from_pod) {
        if (r->status != p->status && r->deed != DEED_EARLY)
            oracle_complain(r, "status %u instead of %u", r->status, p->status);
        if (!r->body_ok)
            oracle_complain(r, "another body than the pod sent");
        if (!oracle_is_whole(r, code) && r->deed != DEED_EARLY)
            oracle_complain(r, "a whole answer, but the log says %s", code);
        return;
    }
    if (p->client == CLIENT_LIST || p->client == CLIENT_HEALTH) {
        if (r->status != 200 && !(r->status == 503 && oracle_disturbed(DISTURB_RELOAD, r->sent_us)))
            oracle_complain(r, "status %u", r->status);
        return;
    }
    if (r->status != oracle_status_of(code))
        oracle_complain(r, "status %u does not go with %s", r->status, code);
    if (p->client != CLIENT_HEAD && !oracle_is(code, r->code))
        oracle_complain(r, "the client was told %s, the log %s", r->code, code);
}

static void oracle_check_view(const struct record *r, const char *code)
{
    switch ((enum result)r->result) {
    case RESULT_ANSWER:
        oracle_check_answer(r, code);
        break;
    case RESULT_CUT:
        if (!r->from_pod || r->status != r->plan.status)
            oracle_complain(r, "a cut answer that is not the pod's");
        if (!r->prefix_ok)
            oracle_complain(r, "a cut answer with bytes the pod did not send");
        if (oracle_is_whole(r, code))
            oracle_complain(r, "a cut answer, but the log says %s", code);
        break;
    case RESULT_NONE:
        if (!oracle_is(code, "client_gone") && !oracle_is(code, "client_stalled"))
            oracle_complain(r, "no answer, but the log says %s", code);
        break;
    default:
        break;
    }
}

/* The answer that a client saw, when there is no line in the log. */
static const char *oracle_code_seen(const struct record *r)
{
    if (r->result != RESULT_ANSWER)
        return NULL;
    if (r->plan.client == CLIENT_LIST)
        return TORTURE_RESULT_CODE_OK;
    if (!r->from_pod)
        return r->code[0] != '\0' ? r->code : NULL; /* HEAD: no body says it */
    return r->status >= 400 ? "request_failed" : TORTURE_RESULT_CODE_OK;
}

static bool oracle_is_anonymous(const struct plan *p)
{
    return p->client == CLIENT_MUTANT || p->client == CLIENT_NOISE || p->client == CLIENT_SCAN ||
           p->client == CLIENT_HEALTH;
}

static void oracle_judge_hostile(const struct record *r)
{
    if (r->result == RESULT_ANSWER && (r->status != 400 || r->from_pod))
        oracle_complain(r, "hostile bytes got status %u", r->status);
    else if (r->result != RESULT_ANSWER && !oracle_disturbed(DISTURB_DRAIN, r->sent_us))
        oracle_complain(r, "hostile bytes got no answer");
}

/* May there be no line? The head was not whole, or the connection ended before it was read. */
static bool oracle_may_be_unlogged(const struct record *r)
{
    return r->follower || r->plan.client == CLIENT_GONE_HEAD || r->plan.client == CLIENT_HEAD_STOPS ||
           plan_may_leave(&r->plan) || r->plan.client == CLIENT_URI_TOO_LONG ||
           r->plan.client == CLIENT_HEAD_TOO_LARGE || r->status == 408;
}

static void oracle_judge_one(const struct record *r, bool complete_log)
{
    const struct plan *p = &r->plan;
    const char *code;

    if (!r->issued || r->result == RESULT_LOST || r->result == RESULT_BAD)
        return;
    if (r->result == RESULT_OPEN || r->pod_open) {
        tally.lost++;
        oracle_complain(r, "not over");
        return;
    }
    if (oracle_is_anonymous(p))
        return;
    if (p->client == CLIENT_HOSTILE) {
        oracle_judge_hostile(r);
        return;
    }
    if (r->lines == 0 && !oracle_may_be_unlogged(r) &&
        !(r->result == RESULT_NONE && oracle_disturbed(DISTURB_DRAIN, r->sent_us))) {
        lines_missing++;
        if (complete_log)
            oracle_complain(r, "no line in the access log");
    }
    code = r->lines > 0 ? r->log_code : oracle_code_seen(r);
    if (code == NULL)
        return;
    if (!oracle_allows(r, code))
        oracle_complain(r, "ended as %s", code);
    oracle_check_view(r, code);
}

void oracle_judge(bool complete_log, uint64_t lines_dropped)
{
    for (uint32_t i = 0; i < n_records; i++)
        oracle_judge_one(&records[i], complete_log && lines_dropped == 0);
    if (!complete_log || lines_missing <= lines_dropped)
        return;
    oracle_complain(NULL, "%llu lines are missing in the access log, %llu were counted as dropped",
                    (unsigned long long)lines_missing, (unsigned long long)lines_dropped);
    lines_missing = lines_dropped; /* said once */
}

/* ---- the table ---- */

static unsigned oracle_rows(const char *who, const struct act_info *acts, const uint64_t *counts, unsigned n,
                            uint64_t *sum)
{
    unsigned kinds = 0;

    for (unsigned i = 0; i < n; i++) {
        printf("%-8s %-34s %10llu%s\n", who, acts[i].name, (unsigned long long)counts[i],
               acts[i].fault ? "  fault" : "");
        kinds += acts[i].fault && counts[i] > 0;
        *sum += acts[i].fault ? counts[i] : 0;
    }
    return kinds;
}

void oracle_table(double seconds)
{
    uint64_t faults = 0;
    unsigned kinds = oracle_rows("client", client_acts, tally.client, CLIENT_ACTS, &faults);

    kinds += oracle_rows("pod", pod_acts, tally.pod, POD_ACTS, &faults);
    kinds += oracle_rows("world", world_acts, tally.world, WORLD_ACTS, &faults);
    printf("\nrequests %llu in %.0f s (%.0f/s), %llu rounds, %llu starts of the router, seed %llu\n",
           (unsigned long long)tally.requests, seconds, (double)tally.requests / seconds,
           (unsigned long long)tally.rounds, (unsigned long long)tally.episodes,
           (unsigned long long)settings.seed);
    printf("faults %llu of %u kinds; at pods %llu, sent again after a dead kept connection %llu, mutants "
           "that were good requests %llu\n",
           (unsigned long long)faults, kinds, (unsigned long long)tally.arrivals,
           (unsigned long long)tally.stale_retries, (unsigned long long)tally.mutants_relayed);
    printf("access log lines %llu, dropped and counted %llu; memory after the first round %ld KiB, after the "
           "last %ld KiB\n",
           (unsigned long long)tally.lines, (unsigned long long)tally.lines_dropped, tally.rss_first_kb,
           tally.rss_last_kb);
    printf("wrong %llu, duplicates %llu, lost %llu, leaks %llu, deaths %llu\n",
           (unsigned long long)tally.wrong, (unsigned long long)tally.duplicates,
           (unsigned long long)tally.lost, (unsigned long long)tally.leaks, (unsigned long long)tally.deaths);
}
