/* vllm-sim: everything its source files share. The simulator uses nothing of the router, on purpose: a
 * mistake cannot hide on both sides. One process, one thread, one epoll loop, so nothing here locks.
 * Times are monotonic microseconds (`_us`). */
#ifndef SIM_H
#define SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_VERSION     "1.0"
#define SIM_TOKEN_BYTES 4  /* one token of a prompt, in bytes of text */
#define SIM_BLOCK_BYTES 64 /* one block of the prefix cache: 16 tokens */
#define SIM_MODELS_MAX  16
#define SIM_RANKS_MAX   64

/* ---- util.c: memory, byte buffers, hashes, clocks ---- */

/* Readable bytes are data[off .. len). Grows without limit; callers bound it. All zero = empty. */
struct buf {
    char *data;
    size_t off, len, cap;
};

void *util_alloc(size_t size);             /* zeroed; exits when memory is out */
void *util_resize(void *old, size_t size); /* exits when memory is out */
char *util_copy(const char *text, size_t len);
const char *util_intern(const char *text); /* lives until util_free_interned() */
void util_free_interned(void);
int64_t util_now_us(void);
double util_unix_time(void);
uint64_t util_mix(uint64_t x);
uint64_t util_fnv1a(const char *data, size_t len);
/* Text of token `index` of the answer `seed`: a blank and then lower-case letters. */
void util_token_text(uint64_t seed, int64_t index, char *out, size_t len);

size_t buf_size(const struct buf *b);
const char *buf_bytes(const struct buf *b);
void buf_put(struct buf *b, const void *data, size_t len);
void buf_text(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3), nonnull(2)));
void buf_json(struct buf *b, const char *text, size_t len); /* quoted; bytes that are not ASCII as \u00XX */
void buf_take(struct buf *b, size_t len);                   /* drops bytes from the front */
void buf_clear(struct buf *b);
void buf_free(struct buf *b);

/* ---- loop.c: epoll, timers, memory that is freed at the end of a turn ---- */

struct loop_io {
    int fd;
    uint32_t events;
    void (*ready)(struct loop_io *io, uint32_t events);
    void *owner;
};

struct loop_timer {
    int64_t due_us;
    size_t slot; /* 0 = not armed */
    void (*fire)(struct loop_timer *timer);
    void *owner;
};

void loop_open(void);
void loop_run(void); /* until loop_stop() */
void loop_stop(void);
void loop_close(void);
void loop_watch(struct loop_io *io, uint32_t events); /* adds or changes */
void loop_forget(struct loop_io *io);                 /* does not close the descriptor */
void loop_arm(struct loop_timer *timer, int64_t due_us);
void loop_disarm(struct loop_timer *timer);
void loop_free_later(void *memory); /* callbacks of this turn may still look at it */

/* ---- config.c: options, faults and forced numbers ---- */

enum fault_kind {
    FAULT_NONE,
    FAULT_REFUSE,
    FAULT_HANG,
    FAULT_RESET_BEFORE,
    FAULT_FIN_BEFORE,
    FAULT_RESET_MID,
    FAULT_FIN_MID,
    FAULT_CLOSE_IDLE,
    FAULT_STATUS,
    FAULT_SLOW_HEAD,
    FAULT_GARBAGE
};

enum metrics_fault_kind {
    METRICS_FAULT_NONE,
    METRICS_FAULT_STATUS,
    METRICS_FAULT_HANG,
    METRICS_FAULT_SLOW,
    METRICS_FAULT_GARBAGE,
    METRICS_FAULT_NAN,
    METRICS_FAULT_MISSING,
    METRICS_FAULT_RESET
};

struct fault {
    int kind; /* enum fault_kind, or enum metrics_fault_kind */
    int64_t status;
    int64_t after_bytes;  /* of the whole answer, head included; -1 = not given */
    int64_t after_tokens; /* of a stream; -1 = not given */
    int64_t delay_us;
    int64_t count;   /* requests still to be hit; -1 = all */
    bool keep_open;  /* garbage: leave the connection open afterwards */
    const char *raw; /* garbage: these bytes instead of the built-in ones; interned */
};

enum { ENGINE_VLLM, ENGINE_SGLANG };
enum { NAMES_OLD, NAMES_NEW, NAMES_BOTH };

struct sim_config {
    int64_t port, control_port; /* control_port -1 = off */
    const char *bind;
    const char *name;
    const char *models[SIM_MODELS_MAX];
    size_t n_models;
    int64_t engine, metrics_names;
    int64_t max_num_seqs, kv_blocks, max_tokens_default, token_bytes, ranks, seed;
    int64_t max_requests_per_connection;
    double prefill_tokens_per_second, inter_token_ms, keep_alive_timeout_s;
    double force_waiting, force_running, force_kv; /* NaN = the real number */
    struct fault fault, metrics_fault;
};

extern struct sim_config cfg;

struct cJSON;
/* Reads the command line into cfg. Returns -1 to go on, or the status to exit with. */
int config_read_arguments(int argc, char **argv);
/* Applies a JSON object to cfg: all of it, or nothing and a reason in `error`. */
bool config_apply(const struct cJSON *object, char *error, size_t error_size);
void config_restore(void); /* back to what the command line said, faults included */
void config_print(struct buf *out);
const char *config_fault_name(int kind);
/* The fault this request shall suffer, counted down; kind 0 if none. */
struct fault config_take_fault(struct fault *fault);

/* ---- http.c: connections, HTTP/1.x parsing and framing ---- */

struct api_call;
struct http_conn;

struct http_request { /* slices are valid during api_request() only */
    const char *head;
    size_t head_len; /* request line and header lines with their line ends, without the empty line */
    char method[16];
    char target[2048];
    int minor; /* HTTP/1.minor */
    const char *body;
    size_t body_len;
};

struct http_stats {
    int64_t open, accepted;
};

extern struct http_stats http_stats;

/* Binds and listens; fills in the real port. False: a message is on stderr. */
bool http_listen(int64_t *port, bool control);
void http_print_address(const char *label, int64_t port);
void http_refuse(bool refuse); /* stop or resume listening on the API port */
void http_close_all(void);

bool http_header(const struct http_request *request, const char *name, char *out, size_t out_size);
struct api_call *http_call(const struct http_conn *conn);
void http_set_call(struct http_conn *conn, struct api_call *call);
int64_t http_conn_id(const struct http_conn *conn);
bool http_is_control(const struct http_conn *conn);
size_t http_pending(const struct http_conn *conn);

void http_head(struct http_conn *conn, int status, const char *content_type, int64_t length); /* -1: stream */
void http_body(struct http_conn *conn, const char *data, size_t len);
void http_flush(struct http_conn *conn);
void http_done(struct http_conn *conn); /* the answer is complete; last use of conn by the caller */
void http_reply(struct http_conn *conn, int status, const char *content_type, struct buf *body);
void http_raw(struct http_conn *conn, const char *data, size_t len, bool keep_open);
void http_kill(struct http_conn *conn, bool reset);
/* Ends the connection once `bytes` more bytes of the answer have been written. */
void http_cut(struct http_conn *conn, int64_t bytes, bool reset, int64_t delay_us);
void http_close_when_idle(struct http_conn *conn, int64_t delay_us);

/* ---- cache.c: the KV blocks, reused by prefix ---- */

struct cache_block;

void cache_set_capacity(int64_t blocks); /* 0 = no cache and no limit */
void cache_clear(void);                  /* drops what no sequence holds */
void cache_free(void);
struct cache_block *cache_pin_known(uint64_t hash); /* NULL: not in the cache */
struct cache_block *cache_pin(uint64_t hash);       /* makes it if needed; NULL: every block is held */
void cache_unpin(struct cache_block *block);
void cache_reserve(int64_t blocks); /* blocks that will be filled */
void cache_unreserve(int64_t blocks);
int64_t cache_available(void);
int64_t cache_resident(void);
double cache_usage(void); /* share held or reserved, 0..1 */

/* ---- engine.c: scheduler, prefill, decode ---- */

enum engine_state { SEQ_NEW, SEQ_WAITING, SEQ_PREFILL, SEQ_DECODE, SEQ_DONE };

struct engine_seq {
    enum engine_state state;
    struct engine_seq *prev, *next;
    void *owner;
    void (*progress)(struct engine_seq *seq); /* tokens came or it is done; may free the sequence */
    int64_t max_tokens;                       /* 0 = prefill only */
    bool length_limited;                      /* the client set max_tokens: finish_reason "length" */
    uint64_t answer_seed;
    int64_t token_bytes;
    int64_t prompt_bytes, prompt_tokens, cached_tokens, generated, start_seq;
    size_t rank;
    uint64_t chain; /* running hash of the block being filled */
    size_t fill;
    uint64_t *hashes;
    size_t n_hashes, cap_hashes;
    struct cache_block **held;
    size_t n_held, cap_held;
    int64_t reserved;
    int64_t arrival_us, admitted_us, first_token_us, last_token_us;
    struct loop_timer timer;
};

struct engine_stats {
    int64_t running, waiting, peak_running, peak_waiting, started, finished, aborted;
    int64_t running_by_rank[SIM_RANKS_MAX], waiting_by_rank[SIM_RANKS_MAX];
};

extern struct engine_stats engine_stats;

void engine_prompt(struct engine_seq *seq, const char *text, size_t len); /* before engine_submit() */
void engine_submit(struct engine_seq *seq);
void engine_abort(struct engine_seq *seq); /* no-op when done */
void engine_release(struct engine_seq *seq);
void engine_schedule(void); /* after settings changed */
void engine_reset_stats(void);

/* ---- metrics.c: counters, histograms, the text of /metrics ---- */

enum metrics_histogram {
    HIST_TTFT,
    HIST_INTER_TOKEN,
    HIST_REQUEST_PER_TOKEN,
    HIST_E2E,
    HIST_QUEUE,
    HIST_PREFILL,
    HIST_DECODE,
    HIST_INFERENCE,
    HIST_ITERATION_TOKENS,
    HIST_COUNT
};

enum metrics_counter {
    COUNT_PREFIX_QUERIES,
    COUNT_PREFIX_HITS,
    COUNT_PROMPT_TOKENS,
    COUNT_GENERATION_TOKENS,
    COUNT_STOP,
    COUNT_LENGTH,
    COUNT_ABORT,
    COUNT_PREEMPTIONS, /* always 0: no sequence is ever thrown out */
    COUNT_COUNT
};

void metrics_reset(void);
void metrics_observe(size_t rank, enum metrics_histogram which, double value);
void metrics_count(size_t rank, enum metrics_counter which, int64_t n);
void metrics_render(struct buf *out);

/* ---- api.c: the OpenAI endpoints and their faults ---- */

void api_request(struct http_conn *conn, const struct http_request *request);
void api_drained(struct http_conn *conn); /* everything written: room for more */
void api_gone(struct http_conn *conn);    /* the client left, or the connection was cut */

/* ---- control.c: /sim/ and the log of requests ---- */

struct log_entry {
    int64_t number, conn_id, start_seq, status, prompt_tokens, cached_tokens;
    char *head;
    size_t head_len;
    char session[256], request_id[256], outcome[24];
    uint64_t body_hash;
    size_t body_bytes;
};

extern int64_t control_scrapes;

bool control_request(struct http_conn *conn, const struct http_request *request); /* false: not /sim/ */
int64_t control_log(struct http_conn *conn, const struct http_request *request);  /* number of the entry */
struct log_entry *control_log_entry(int64_t number); /* NULL when it has been overwritten */
void control_log_outcome(int64_t number, const char *outcome);
void control_free(void);

#endif
