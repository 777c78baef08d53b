/* The scheduler of the simulated pod. Requests wait first come first served; --max-num-seqs of them run.
 * A request that starts to run is prefilled first: one prefill at a time, at the pod's rate, and only for
 * the tokens whose blocks are not in the cache. Then it adds a token every --inter-token-ms. Its blocks,
 * those of the answer included, stay in the cache when it ends. Owns nothing of a sequence but its links;
 * the sequence belongs to who submitted it. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct list {
    struct engine_seq *first, *last;
};

struct engine_stats engine_stats;

static struct {
    struct list waiting, prefill;
    struct engine_seq *prefilling;
    uint64_t next_rank;
    bool scheduling;
} engine;

static void list_add(struct list *list, struct engine_seq *seq)
{
    seq->next = NULL;
    seq->prev = list->last;
    if (list->last)
        list->last->next = seq;
    else
        list->first = seq;
    list->last = seq;
}

static void list_remove(struct list *list, struct engine_seq *seq)
{
    if (seq->prev)
        seq->prev->next = seq->next;
    else
        list->first = seq->next;
    if (seq->next)
        seq->next->prev = seq->prev;
    else
        list->last = seq->prev;
    seq->prev = seq->next = NULL;
}

static double seconds(int64_t us)
{
    return (double)us / 1e6;
}

/* ---- text and blocks ---- */

static void seq_add_hash(struct engine_seq *seq, uint64_t hash)
{
    if (seq->n_hashes == seq->cap_hashes) {
        seq->cap_hashes = seq->cap_hashes ? seq->cap_hashes * 2 : 16;
        seq->hashes = util_resize(seq->hashes, seq->cap_hashes * sizeof(*seq->hashes));
    }
    seq->hashes[seq->n_hashes++] = hash;
}

/* Goes on with the chained hash; a full block adds its hash to the list. */
static void seq_add_text(struct engine_seq *seq, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        seq->chain = (seq->chain ^ (unsigned char)text[i]) * 0x100000001b3U;
        if (++seq->fill == SIM_BLOCK_BYTES) {
            seq->chain = util_mix(seq->chain);
            seq->fill = 0;
            seq_add_hash(seq, seq->chain);
        }
    }
}

static void seq_hold(struct engine_seq *seq, struct cache_block *block)
{
    if (seq->n_held == seq->cap_held) {
        seq->cap_held = seq->cap_held ? seq->cap_held * 2 : 16;
        seq->held = util_resize(seq->held, seq->cap_held * sizeof(struct cache_block *));
    }
    seq->held[seq->n_held++] = block;
}

/* Takes hold of the known blocks that continue what is held. The last token is always computed, as in a
 * real engine, so a block that ends the prompt exactly does not count. */
static void seq_hold_known(struct engine_seq *seq)
{
    int64_t usable = (seq->prompt_bytes - 1) / SIM_BLOCK_BYTES;
    while ((int64_t)seq->n_held < usable) {
        struct cache_block *block = cache_pin_known(seq->hashes[seq->n_held]);
        if (!block)
            return;
        seq_hold(seq, block);
    }
}

/* Makes blocks of what has been computed. Stops for good where the cache has no room. */
static void seq_hold_computed(struct engine_seq *seq)
{
    while (seq->n_held < seq->n_hashes) {
        if (seq->reserved > 1) {
            cache_unreserve(1);
            seq->reserved--;
        }
        struct cache_block *block = cache_pin(seq->hashes[seq->n_held]);
        if (!block)
            return;
        seq_hold(seq, block);
    }
}

/* From the end of the text to its start, so that the start is evicted last. */
static void seq_drop_blocks(struct engine_seq *seq)
{
    cache_unreserve(seq->reserved);
    seq->reserved = 0;
    while (seq->n_held > 0)
        cache_unpin(seq->held[--seq->n_held]);
}

void engine_prompt(struct engine_seq *seq, const char *text, size_t len)
{
    seq->prompt_bytes += (int64_t)len;
    seq_add_text(seq, text, len);
}

/* ---- decode ---- */

static void engine_finish(struct engine_seq *seq, int64_t now_us)
{
    int64_t decode_us = seq->last_token_us - seq->first_token_us;
    engine_stats.running--;
    engine_stats.running_by_rank[seq->rank]--;
    engine_stats.finished++;
    seq_drop_blocks(seq);
    seq->state = SEQ_DONE;
    metrics_count(seq->rank, seq->length_limited ? COUNT_LENGTH : COUNT_STOP, 1);
    metrics_observe(seq->rank, HIST_E2E, seconds(now_us - seq->arrival_us));
    metrics_observe(seq->rank, HIST_INFERENCE, seconds(now_us - seq->admitted_us));
    metrics_observe(seq->rank, HIST_DECODE, seconds(decode_us));
    if (seq->generated > 1)
        metrics_observe(seq->rank, HIST_REQUEST_PER_TOKEN, seconds(decode_us) / (double)(seq->generated - 1));
}

static void engine_add_token(struct engine_seq *seq, int64_t now_us)
{
    char text[256];
    size_t left = (size_t)seq->token_bytes;
    if (left <= sizeof(text)) {
        util_token_text(seq->answer_seed, seq->generated, text, left);
        seq_add_text(seq, text, left);
    } else {
        char *large = util_alloc(left);
        util_token_text(seq->answer_seed, seq->generated, large, left);
        seq_add_text(seq, large, left);
        free(large);
    }
    if (seq->generated > 0)
        metrics_observe(seq->rank, HIST_INTER_TOKEN, seconds(now_us - seq->last_token_us));
    metrics_observe(seq->rank, HIST_ITERATION_TOKENS, 1);
    seq->last_token_us = now_us;
    seq->generated++;
    seq_hold_computed(seq);
}

/* One token, or all that are left when tokens take no time. progress() is the last use of seq. */
static void engine_decode(struct engine_seq *seq, int64_t due_us)
{
    int64_t now_us = util_now_us(), pause_us = (int64_t)(cfg.inter_token_ms * 1000);
    int64_t before = seq->generated;
    while (seq->generated < seq->max_tokens) {
        engine_add_token(seq, now_us);
        if (pause_us > 0)
            break;
    }
    metrics_count(seq->rank, COUNT_GENERATION_TOKENS, seq->generated - before);
    if (seq->generated >= seq->max_tokens)
        engine_finish(seq, now_us);
    else
        loop_arm(&seq->timer, due_us + pause_us); /* from the due time: no drift */
    seq->progress(seq);
}

static void engine_token_due(struct loop_timer *timer)
{
    engine_decode(timer->owner, timer->due_us);
    engine_schedule();
}

/* ---- prefill ---- */

static void engine_prefilled(struct engine_seq *seq, int64_t due_us)
{
    int64_t now_us = util_now_us();
    engine.prefilling = NULL;
    seq->state = SEQ_DECODE;
    seq->first_token_us = seq->last_token_us = now_us;
    seq_hold_computed(seq);
    metrics_count(seq->rank, COUNT_PROMPT_TOKENS, seq->prompt_tokens);
    metrics_observe(seq->rank, HIST_ITERATION_TOKENS, (double)(seq->prompt_tokens - seq->cached_tokens));
    metrics_observe(seq->rank, HIST_PREFILL, seconds(now_us - seq->admitted_us));
    metrics_observe(seq->rank, HIST_TTFT, seconds(now_us - seq->arrival_us));
    engine_decode(seq, due_us);
}

static void engine_prefill_due(struct loop_timer *timer)
{
    struct engine_seq *seq = timer->owner;
    timer->fire = engine_token_due;
    engine_prefilled(seq, timer->due_us);
    engine_schedule();
}

static bool engine_start_prefill(void)
{
    struct engine_seq *seq = engine.prefill.first;
    int64_t now_us = util_now_us();
    if (engine.prefilling || !seq)
        return false;
    list_remove(&engine.prefill, seq);
    engine.prefilling = seq;
    seq_hold_known(seq); /* an earlier prefill may have made more of them since it was admitted */
    seq->cached_tokens = (int64_t)seq->n_held * (SIM_BLOCK_BYTES / SIM_TOKEN_BYTES);
    metrics_count(seq->rank, COUNT_PREFIX_QUERIES, seq->prompt_tokens);
    metrics_count(seq->rank, COUNT_PREFIX_HITS, seq->cached_tokens);
    if (cfg.prefill_tokens_per_second <= 0) {
        seq->timer.fire = engine_token_due;
        engine_prefilled(seq, now_us);
        return true;
    }
    double tokens = (double)(seq->prompt_tokens - seq->cached_tokens);
    seq->timer.fire = engine_prefill_due;
    loop_arm(&seq->timer, now_us + (int64_t)(tokens / cfg.prefill_tokens_per_second * 1e6));
    return true;
}

/* ---- scheduling ---- */

/* Reserves the blocks the prompt needs. With nothing running a prompt is never too large. */
static bool engine_reserve(struct engine_seq *seq)
{
    if (cfg.kv_blocks == 0)
        return true;
    seq_hold_known(seq);
    int64_t need = seq->prompt_bytes / SIM_BLOCK_BYTES + 1 - (int64_t)seq->n_held;
    int64_t available = cache_available();
    if (need > available && engine_stats.running > 0) {
        seq_drop_blocks(seq);
        return false;
    }
    seq->reserved = need < available ? need : available;
    if (seq->reserved < 0)
        seq->reserved = 0;
    cache_reserve(seq->reserved);
    return true;
}

static bool engine_admit(void)
{
    struct engine_seq *seq = engine.waiting.first;
    if (!seq || engine_stats.running >= cfg.max_num_seqs || !engine_reserve(seq))
        return false;
    list_remove(&engine.waiting, seq);
    seq->state = SEQ_PREFILL;
    seq->admitted_us = util_now_us();
    seq->start_seq = engine_stats.started++;
    metrics_observe(seq->rank, HIST_QUEUE, seconds(seq->admitted_us - seq->arrival_us));
    engine_stats.waiting--;
    engine_stats.waiting_by_rank[seq->rank]--;
    engine_stats.running++;
    engine_stats.running_by_rank[seq->rank]++;
    if (engine_stats.running > engine_stats.peak_running)
        engine_stats.peak_running = engine_stats.running;
    list_add(&engine.prefill, seq);
    return true;
}

void engine_schedule(void)
{
    if (engine.scheduling) /* called from progress() below: the loop goes round again */
        return;
    engine.scheduling = true;
    while (engine_admit() || engine_start_prefill())
        ;
    engine.scheduling = false;
    if (engine_stats.waiting > engine_stats.peak_waiting)
        engine_stats.peak_waiting = engine_stats.waiting;
}

void engine_submit(struct engine_seq *seq)
{
    seq->state = SEQ_WAITING;
    seq->timer.owner = seq;
    seq->token_bytes = cfg.token_bytes;
    seq->rank = (size_t)(engine.next_rank++ % (uint64_t)cfg.ranks);
    seq->arrival_us = util_now_us();
    if (seq->prompt_bytes == 0)
        engine_prompt(seq, " ", 1);
    seq->prompt_tokens = (seq->prompt_bytes + SIM_TOKEN_BYTES - 1) / SIM_TOKEN_BYTES;
    seq->answer_seed = util_mix(seq->chain + util_mix((uint64_t)cfg.seed));
    list_add(&engine.waiting, seq);
    engine_stats.waiting++;
    engine_stats.waiting_by_rank[seq->rank]++;
    engine_schedule();
}

void engine_abort(struct engine_seq *seq)
{
    if (seq->state == SEQ_NEW || seq->state == SEQ_DONE)
        return;
    if (seq->state == SEQ_WAITING) {
        list_remove(&engine.waiting, seq);
        engine_stats.waiting--;
        engine_stats.waiting_by_rank[seq->rank]--;
    } else {
        if (engine.prefilling == seq)
            engine.prefilling = NULL;
        else if (seq->state == SEQ_PREFILL)
            list_remove(&engine.prefill, seq);
        engine_stats.running--;
        engine_stats.running_by_rank[seq->rank]--;
        seq_drop_blocks(seq);
    }
    loop_disarm(&seq->timer);
    seq->state = SEQ_DONE;
    engine_stats.aborted++;
    metrics_count(seq->rank, COUNT_ABORT, 1);
    engine_schedule();
}

void engine_release(struct engine_seq *seq)
{
    engine_abort(seq);
    free(seq->hashes);
    free(seq->held);
    seq->hashes = NULL;
    seq->held = NULL;
}

void engine_reset_stats(void)
{
    engine_stats.peak_running = engine_stats.running;
    engine_stats.peak_waiting = engine_stats.waiting;
    engine_stats.started = engine_stats.finished = engine_stats.aborted = 0;
}
