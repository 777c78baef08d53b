/* usage: the token counts that a pod reports in an answer, read while the answer passes, without keeping it
 * or changing a byte. Any split of the bytes. A count is a whole number under a name of the OpenAI APIs
 * (chat, completions, embeddings, responses) or of Anthropic's messages, in an object under the key "usage"
 * of the answer itself, or of an event of a stream or an object in it ("response", "message"); deeper ones
 * are the model's or the caller's. An answer may bring several such objects, such as one in each event with
 * the sums so far, or one part of the counts first and the rest last: of each count the last value holds, so
 * that nothing is counted twice. In event streams only data lines count.
 *
 * Also here: hiding the event that a stream has only because the router asked for it (usage_hide). */
#ifndef USAGE_H
#define USAGE_H

#include "buf.h"

#define USAGE_KEY_MAX 32

enum usage_count {
    USAGE_INPUT,  /* prompt_tokens, input_tokens */
    USAGE_OUTPUT, /* completion_tokens, output_tokens */
    USAGE_TOTAL,
    USAGE_CACHE_CREATED, /* Anthropic: not in input_tokens */
    USAGE_CACHE_READ,
    USAGE_COUNTS
};

struct usage_counts {
    int64_t counts[USAGE_COUNTS];
    bool seen[USAGE_COUNTS];
};

/* Zeroed is ready. `stream` and `count_events` are set by the caller before the first bytes. */
struct usage {
    bool stream;                      /* an event stream */
    bool count_events;                /* wanted: `events` */
    uint32_t events;                  /* those with data so far, but for [DONE] */
    struct usage_counts taken, found; /* private from here; found: in this event or document */
    int64_t number;
    int64_t level; /* how deep we are now, from where the found object stands */
    bool has_found;
    uint8_t state, matched, depth, key_n, line_n, name_n;
    bool before_slash, between_lines, skips_line, after_cr;
    bool in_string, escaped, is_key, ignored, counted, head_cr;
    uint8_t head_n;
    char line[5], head[16]; /* the first bytes of an unfinished line */
    char key[USAGE_KEY_MAX];
};

void usage_feed(struct usage *u, struct slice bytes);
/* What was reported so far. An input that is not known is 0, an output -1; a total tells the output beside an
 * input alone. False: nothing above 0. */
bool usage_tokens(const struct usage *u, int64_t *input, int64_t *output);
/* The input was reported, with a number that can be one. */
bool usage_has_input(const struct usage *u);

/* Leaves out of an event stream the event that has usage and neither choices nor an error, as `include_usage`
 * brings it. An event that has not come whole yet is held back, up to USAGE_EVENT_MAX: a longer one passes.
 */
#define USAGE_EVENT_MAX (1024 * 1024)
struct usage_hide {
    struct buf text; /* first the bytes that were given, then an unfinished event */
    size_t given_bytes;
    bool passing; /* what is left of an event of more than USAGE_EVENT_MAX */
};
void usage_hide_init(struct usage_hide *h);
void usage_hide_free(struct usage_hide *h);
/* Takes the next bytes; returns what may go to the client now (end: all that is left), which is valid until
 * the next call. */
struct slice usage_hide_feed(struct usage_hide *h, const struct slice *spans, size_t n_spans, bool end);

#endif
