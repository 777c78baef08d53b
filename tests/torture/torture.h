/* torture: a driver that plays clients and pods against the real router and knows what each of them must see.
 * One process, one epoll loop. It shares loop, buffers and hashes with vllm-sim, and nothing with the router.
 * What request n does follows from the seed and n alone (plan.c); when it happens does not. */
#ifndef TORTURE_H
#define TORTURE_H

#include <sys/types.h>

#include "sim.h"

#define TORTURE_PODS          6
#define TORTURE_MODELS        3
#define TORTURE_SESSIONS      400
#define TORTURE_CODE_MAX      24
#define TORTURE_AUTHORITY_MAX 32

/* Limits and times the router is started with. */
#define TORTURE_HEAD_MAX        (64 * 1024)
#define TORTURE_BODY_MAX        (512 * 1024)
#define TORTURE_HEAD_LIMIT_US   (1500 * 1000) /* of a pod's answer, and between two of its bytes */
#define TORTURE_CLIENT_LIMIT_US (1400 * 1000) /* between two bytes of a body; twice that for a head */
#define TORTURE_LOST_US         (30 * 1000 * 1000)
#define TORTURE_RESULT_CODE_OK  "successful_request"

#define CLIENT(id, name, fault, weight) CLIENT_##id,
#define POD(id, name, fault, weight)
#define WORLD(id, name, fault, weight)
enum client_act {
#include "acts.def"
    CLIENT_ACTS
};
#define CLIENT(id, name, fault, weight)
#define POD(id, name, fault, weight) POD_##id,
#define WORLD(id, name, fault, weight)
enum pod_act {
#include "acts.def"
    POD_ACTS
};
#define CLIENT(id, name, fault, weight)
#define POD(id, name, fault, weight)
#define WORLD(id, name, fault, weight) WORLD_##id,
enum world_act {
#include "acts.def"
    WORLD_ACTS
};

struct act_info {
    const char *name;
    bool fault;
    unsigned weight;
};
extern const struct act_info client_acts[CLIENT_ACTS], pod_acts[POD_ACTS], world_acts[WORLD_ACTS];

/* ---- plan.c: what request n does ---- */

struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n); /* 0 .. n-1 */
unsigned rng_act(struct rng *r, const struct act_info *acts, unsigned n);

struct plan {
    uint32_t n;
    uint8_t client, pod, model, variant;
    bool reset, stream;    /* leaves with RST; asks for a stream */
    uint16_t status;       /* of the pod's answer */
    uint32_t body_bytes;   /* padding in the request's body */
    uint32_t answer_bytes; /* about; the body of the pod's answer */
    uint32_t client_us, pod_us;
    uint32_t session; /* 0 = none */
};

void plan_make(struct plan *p, uint64_t seed, uint32_t n);
/* Has the request a place in the queue and at a pod, if nobody interferes? */
bool plan_is_proxied(const struct plan *p);
bool plan_may_leave(const struct plan *p);
/* The request's JSON. for_pod: with the name its pods know the model by. */
void plan_body(const struct plan *p, bool for_pod, struct buf *out);
/* The whole request as sent; *head_n = where its body starts. */
void plan_request(const struct plan *p, const char *authority, struct buf *out, size_t *head_n);
void plan_answer_body(const struct plan *p, struct buf *out);
/* Hostile requests: refused, never relayed. Answers: never relayed as they are. */
const char *plan_hostile(const struct plan *p, size_t *n, unsigned *status);
const char *plan_garbage(const struct plan *p, size_t *n);
const char *plan_bad_chunk(const struct plan *p);

/* ---- flow.c: a socket with a script ---- */

enum step_kind { STEP_SEND, STEP_WAIT, STEP_FIN, STEP_CLOSE, STEP_RESET, STEP_STOP };

struct step {
    enum step_kind kind;
    uint32_t value; /* bytes, or microseconds */
};

struct flow {
    struct loop_io io;
    struct loop_timer timer;
    struct buf out;
    struct step *steps;
    unsigned n_steps, cap_steps, at;
    bool running, connecting, read_paused;
    size_t read_max; /* bytes for each read, 0 = all there is */
    void *owner;
    void (*bytes)(struct flow *f, const char *p, size_t n);
    void (*ended)(struct flow *f,
                  int error);       /* the other side: 0 = FIN, else errno. The flow is still open. */
    void (*played)(struct flow *f); /* the script came to its end and left the flow open */
};

void flow_open(struct flow *f, int fd);
void flow_connect(struct flow *f, uint16_t port, int receive_buffer);
bool flow_is_open(const struct flow *f);
/* Adding to the script. flow_play starts it, or goes on. */
void flow_send(struct flow *f, const void *p, size_t n);
void flow_add(struct flow *f, enum step_kind kind, uint32_t value);
/* Spreads what was sent last (n bytes) into pieces with a pause between. */
void flow_send_pieces(struct flow *f, const char *p, size_t n, size_t piece, uint32_t pause_us);
void flow_play(struct flow *f);
bool flow_is_played(const struct flow *f);
void flow_pause_reading(struct flow *f, bool paused);
void flow_close(struct flow *f, bool reset);
void flow_free(struct flow *f);
/* Has the other side closed, or reset, what we have not read yet? */
bool flow_peer_left(const struct flow *f);

/* ---- wire.c: strict readers of HTTP/1.1, independent of the router's ---- */

enum wire_state { WIRE_HEAD, WIRE_BODY, WIRE_DONE, WIRE_BAD };

struct wire {
    enum wire_state state;
    struct buf in, body;
    bool request, head_request;
    const char *why;
    /* the head */
    unsigned status, minor;
    char method[16], target[512], host[64], request_id[160], code[TORTURE_CODE_MAX];
    long mark; /* X-Torture of a request, X-Pod of an answer; -1 = none */
    bool keep, chunked, until_close, hop_by_hop, interim;
    bool has_length, has_retry_after;
    uint64_t remaining; /* of the body or chunk */
    int chunk_state;
};

void wire_start(struct wire *w, bool request, bool head_request);
void wire_free(struct wire *w);
/* Takes what it can of w->in. True: state changed to DONE or BAD, or an interim head was read (w->interim).
 */
bool wire_read(struct wire *w);
void wire_eof(struct wire *w); /* may complete a body that ends with its connection */

/* ---- oracle.c ---- */

enum result {
    RESULT_OPEN,
    RESULT_NONE,   /* closed without an answer */
    RESULT_ANSWER, /* whole */
    RESULT_CUT,    /* a head, then an unclean end */
    RESULT_LEFT,   /* the client left first */
    RESULT_LOST,   /* nothing in TORTURE_LOST_US */
    RESULT_BAD     /* not HTTP */
};

enum deed { /* of the pod, the last that got it */
            DEED_NONE,
            DEED_WHOLE,
            DEED_SILENT_END, /* closed or reset without a byte */
            DEED_CUT_HEAD,
            DEED_CUT_BODY,
            DEED_RESET, /* after some bytes: they may be lost with it */
            DEED_BAD_HEAD,
            DEED_BAD_BODY,
            DEED_HANG_HEAD,
            DEED_HANG_BODY,
            DEED_EARLY
};

struct record {
    struct plan plan;
    int64_t sent_us, left_us, done_us;
    uint8_t result; /* enum result */
    bool issued, from_pod, body_ok, prefix_ok, error_event, follower, refused_connect;
    uint16_t status;
    char code[TORTURE_CODE_MAX];
    /* pods */
    uint8_t arrivals, pod, deed;
    bool reused, retry_allowed, killed, pod_open;
    int64_t arrived_us, pod_closed_us;
    /* the access log */
    uint8_t lines;
    uint16_t log_status;
    char log_code[TORTURE_CODE_MAX];
};

/* Counted over the whole run. */
struct tally {
    uint64_t requests, client[CLIENT_ACTS], pod[POD_ACTS], world[WORLD_ACTS];
    uint64_t wrong, duplicates, lost, leaks, deaths;
    uint64_t lines, lines_dropped, router_lines_dropped, arrivals, stale_retries, mutants_relayed;
    uint64_t episodes, rounds;
    long rss_first_kb, rss_last_kb;
};
extern struct tally tally;

enum disturbance {
    DISTURB_PODS,   /* some pod could not be connected to */
    DISTURB_RELOAD, /* models may have come and gone */
    DISTURB_FDS,
    DISTURB_FROZEN,
    DISTURB_DRAIN,
    DISTURBANCES
};

void oracle_round(uint32_t first, uint32_t n);
void oracle_new_router(void);         /* its counts begin at zero */
struct record *oracle_record(long n); /* NULL = not of this round */
void oracle_complain(const struct record *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void oracle_disturb(enum disturbance d, int64_t until_us);
void oracle_calm(enum disturbance d);
bool oracle_disturbed(enum disturbance d, int64_t since_us);
void oracle_log_line(char *line, size_t n);
/* When all is quiet. lines_dropped: as the router counts them, since its start. */
void oracle_judge(bool complete_log, uint64_t lines_dropped);
void oracle_table(double seconds);

/* ---- soak.c ---- */

void soak_request(const struct record *r);
void soak_rest(long rss_kb, long fds); /* of the router, at a moment of quiet */
void soak_table(void);
void soak_close(void);

/* ---- pod.c ---- */

void pods_open(void);
void pods_close(void);
uint16_t pod_port(unsigned i);
/* As the router knows it: by its address, or the last one by its name. */
const char *pod_authority(unsigned i, char out[TORTURE_AUTHORITY_MAX]);
void pod_down(unsigned i, bool kill_connections);
void pod_hole(unsigned i);
void pod_up(unsigned i);
void pods_forget_records(void); /* before they are freed */
void pod_metrics_mode(unsigned i, unsigned mode);
#define POD_METRICS_MODES 12
void pods_set_limit(unsigned limit, int64_t strict_from_us); /* 0 = none */

/* ---- dns.c ---- */

#define DNS_MODES 10
void dns_open(void);
void dns_close(void);
void dns_change(unsigned mode); /* 0 = as at the start */
const char *dns_resolv_conf(void);

/* ---- client.c ---- */

void clients_open(unsigned n);
void clients_go(void); /* issue what is left of the round */
void clients_close(void);
unsigned clients_busy(void);

/* ---- router.c: the process under test ---- */

extern uint16_t router_port; /* 0 = not there */
extern pid_t router_pid;

struct router_start {
    const char *ini;
    bool boost, text_log, full_disk, deaf; /* deaf: nobody has its stdout */
    unsigned queue_max, open_files;        /* open_files 0 = as many as there are */
};
void router_start(const struct router_start *how);
/* Only with settings.preload. */
void router_jump_clock(int64_t seconds);
void router_forget_clock(void);
bool router_is_up(void);
/* False: it ended. *status as of waitpid. */
bool router_is_alive(int *status);
void router_block_logs(bool blocked);
void router_show_last_lines(void);
void router_close(void);

typedef void router_got_fn(unsigned status, const char *body, size_t n);
enum router_port_kind { ROUTER_INFERENCE, ROUTER_METRICS, ROUTER_DEBUG };
/* got is called once: status 0 = no answer. */
void router_get(enum router_port_kind port, const char *path, router_got_fn *got);
void router_send_junk(enum router_port_kind port, const char *p, size_t n);

/* ---- watch.c ---- */

void watch_start(unsigned limit); /* of a pod, 0 = there are no queues */
void watch_look(void);

/* ---- world.c ---- */

struct settings {
    const char *router, *preload, *directory;
    uint64_t seed;
    uint32_t requests, round, only;
    uint32_t seconds, rate; /* of a soak: how long, and requests per second */
    unsigned clients, episode_rounds;
    bool verbose, calm;
};
extern struct settings settings;

uint32_t world_next(void); /* number of the next request to issue; UINT32_MAX = none */
void world_start(void);
void world_close(void);

#endif
