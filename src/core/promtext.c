/* promtext: lines of a pod's metrics page, one at a time. Owns the line that is not complete yet; fetches
 * nothing. */
#include "promtext.h"

#include <math.h>

#include "number.h"

struct wanted {
    enum promtext_engine engine;
    struct slice name;
    enum promtext_number number;
};

#define NAME(text)                                                                                           \
    {                                                                                                        \
        (text), sizeof(text) - 1                                                                             \
    }
static const struct wanted wanted[] = {
    {PROMTEXT_VLLM, NAME("vllm:num_requests_running"), PROMTEXT_RUNNING},
    {PROMTEXT_VLLM, NAME("vllm:num_requests_waiting"), PROMTEXT_WAITING},
    {PROMTEXT_VLLM, NAME("vllm:kv_cache_usage_perc"), PROMTEXT_KV},
    {PROMTEXT_VLLM, NAME("vllm:gpu_cache_usage_perc"), PROMTEXT_KV_OLD},
    {PROMTEXT_VLLM, NAME("vllm:engine_sleep_state"),
     PROMTEXT_AWAKE}, /* of its rows that with sleep_state="awake" */
    {PROMTEXT_SGLANG, NAME("sglang:num_running_reqs"), PROMTEXT_RUNNING},
    {PROMTEXT_SGLANG, NAME("sglang:num_queue_reqs"), PROMTEXT_WAITING},
    {PROMTEXT_SGLANG, NAME("sglang:token_usage"), PROMTEXT_KV},
    {PROMTEXT_VLLM, NAME("vllm:time_to_first_token_seconds_sum"), PROMTEXT_TTFT_SUM},
    {PROMTEXT_VLLM, NAME("vllm:time_to_first_token_seconds_count"), PROMTEXT_TTFT_COUNT},
    {PROMTEXT_VLLM, NAME("vllm:inter_token_latency_seconds_sum"), PROMTEXT_TPOT_SUM},
    {PROMTEXT_VLLM, NAME("vllm:inter_token_latency_seconds_count"), PROMTEXT_TPOT_COUNT},
    {PROMTEXT_VLLM, NAME("vllm:time_per_output_token_seconds_sum"), PROMTEXT_TPOT_OLD_SUM},
    {PROMTEXT_VLLM, NAME("vllm:time_per_output_token_seconds_count"), PROMTEXT_TPOT_OLD_COUNT},
    {PROMTEXT_SGLANG, NAME("sglang:time_to_first_token_seconds_sum"), PROMTEXT_TTFT_SUM},
    {PROMTEXT_SGLANG, NAME("sglang:time_to_first_token_seconds_count"), PROMTEXT_TTFT_COUNT},
    {PROMTEXT_SGLANG, NAME("sglang:inter_token_latency_seconds_sum"), PROMTEXT_TPOT_SUM},
    {PROMTEXT_SGLANG, NAME("sglang:inter_token_latency_seconds_count"), PROMTEXT_TPOT_COUNT},
    {PROMTEXT_SGLANG, NAME("sglang:time_per_output_token_seconds_sum"), PROMTEXT_TPOT_OLD_SUM},
    {PROMTEXT_SGLANG, NAME("sglang:time_per_output_token_seconds_count"), PROMTEXT_TPOT_OLD_COUNT},
};

/* ---- one line ---- */

struct sample {
    struct slice name;
    bool awake; /* has the label sleep_state="awake" */
    bool split; /* has a label `priority` with a value; an empty one is the same as none */
    double value;
};

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
           (!first && c >= '0' && c <= '9');
}

static struct slice take_name(struct slice *rest)
{
    struct slice name = {rest->p, 0};

    while (name.n < rest->n && is_name_char(rest->p[name.n], name.n == 0))
        name.n++;
    rest->p += name.n;
    rest->n -= name.n;
    return name;
}

static bool take_char(struct slice *rest, char c)
{
    if (rest->n == 0 || rest->p[0] != c)
        return false;
    rest->p++;
    rest->n--;
    return true;
}

static void skip_blanks(struct slice *rest)
{
    while (take_char(rest, ' ') || take_char(rest, '\t'))
        ;
}

/* The text between the quotes, still escaped: what it is compared with has nothing to escape. */
static bool take_quoted(struct slice *rest, struct slice *value)
{
    size_t i = 0;

    if (!take_char(rest, '"'))
        return false;
    while (i < rest->n && rest->p[i] != '"')
        i += rest->p[i] == '\\' ? 2 : 1;
    if (i >= rest->n)
        return false;
    *value = (struct slice){rest->p, i};
    rest->p += i + 1;
    rest->n -= i + 1;
    return true;
}

static bool take_label(struct slice *rest, struct sample *s)
{
    struct slice name = take_name(rest), value;

    skip_blanks(rest);
    if (name.n == 0 || !take_char(rest, '='))
        return false;
    skip_blanks(rest);
    if (!take_quoted(rest, &value))
        return false;
    skip_blanks(rest);
    if (slice_eq(name, SLICE("priority")) && value.n > 0)
        s->split = true;
    if (slice_eq(name, SLICE("sleep_state")) && slice_eq(value, SLICE("awake")))
        s->awake = true;
    return true;
}

/* After the '{'. A comma may stand before the '}'. */
static bool take_labels(struct slice *rest, struct sample *s)
{
    skip_blanks(rest);
    while (!take_char(rest, '}')) {
        if (!take_label(rest, s))
            return false;
        if (take_char(rest, ','))
            skip_blanks(rest);
        else if (rest->n == 0 || rest->p[0] != '}')
            return false;
    }
    return true;
}

static struct slice take_word(struct slice *rest)
{
    struct slice word = {rest->p, 0};

    while (word.n < rest->n && rest->p[word.n] != ' ' && rest->p[word.n] != '\t')
        word.n++;
    rest->p += word.n;
    rest->n -= word.n;
    return word;
}

/* NAME[{LABELS}] VALUE [TIMESTAMP]; blanks at both ends are gone already. */
static bool parse_sample(struct slice line, struct sample *s)
{
    double timestamp;
    bool labels;

    *s = (struct sample){.name = take_name(&line)};
    if (s->name.n == 0)
        return false;
    skip_blanks(&line);
    labels = take_char(&line, '{');
    if (labels && !take_labels(&line, s))
        return false;
    /* "name1" must not be read as name and 1. */
    if (!labels && s->name.p + s->name.n == line.p)
        return false;
    skip_blanks(&line);
    if (!number_parse(take_word(&line), &s->value))
        return false;
    skip_blanks(&line);
    return line.n == 0 || number_parse(line, &timestamp);
}

/* ---- what it comes to ---- */

/* fmin, fmax: a NAN on one side gives the other. */
static void gauge_take(struct promtext_gauge *g, const struct sample *s)
{
    if (s->split) {
        g->split_sum = isnan(g->split_sum) ? s->value : g->split_sum + s->value;
        return;
    }
    g->sum = isnan(g->sum) ? s->value : g->sum + s->value;
    g->min = fmin(g->min, s->value);
    g->max = fmax(g->max, s->value);
}

static void take_sample(struct promtext *p, const struct sample *s)
{
    p->samples++;
    if (!isfinite(s->value) || s->value < 0)
        return;
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (wanted[i].engine == p->engine && slice_eq(wanted[i].name, s->name) &&
            (wanted[i].number != PROMTEXT_AWAKE || s->awake))
            gauge_take(&p->gauges[wanted[i].number], s);
}

static void take_line(struct promtext *p, struct slice line)
{
    struct sample s;

    if (line.n > 0 && line.p[line.n - 1] == '\r')
        line.n--;
    line = slice_trim(line);
    if (line.n > 0 && line.p[0] != '#' && parse_sample(line, &s))
        take_sample(p, &s);
}

/* ---- lines out of pieces ---- */

static void start_line(struct promtext *p)
{
    p->line_n = 0;
    p->skipping = false;
}

/* A piece of a line that ends later. */
static void keep_piece(struct promtext *p, struct slice piece)
{
    if (piece.n > PROMTEXT_LINE_MAX - p->line_n)
        p->skipping = true;
    if (p->skipping || piece.n == 0)
        return;
    memcpy(p->line + p->line_n, piece.p, piece.n);
    p->line_n += piece.n;
}

/* The piece that a newline ends; a line that came in one piece is not copied. */
static void end_line(struct promtext *p, struct slice piece)
{
    if (!p->skipping && p->line_n == 0) {
        if (piece.n <= PROMTEXT_LINE_MAX)
            take_line(p, piece);
        return;
    }
    keep_piece(p, piece);
    if (!p->skipping)
        take_line(p, (struct slice){p->line, p->line_n});
    start_line(p);
}

void promtext_start(struct promtext *p, enum promtext_engine engine)
{
    const struct promtext_gauge none = {(double)NAN, (double)NAN, (double)NAN, (double)NAN};

    p->engine = engine;
    p->numbers = (struct pod_numbers){(double)NAN, (double)NAN, (double)NAN, (double)NAN, false, 0};
    p->samples = 0;
    for (size_t i = 0; i < PROMTEXT_NUMBERS; i++)
        p->gauges[i] = none;
    start_line(p);
}

void promtext_feed(struct promtext *p, struct slice bytes)
{
    while (bytes.n > 0) {
        struct slice piece = slice_cut(&bytes, '\n');

        if (bytes.p == NULL)
            keep_piece(p, piece);
        else
            end_line(p, piece);
    }
}

static double sum_of(const struct promtext_gauge *g)
{
    return isnan(g->sum) ? g->split_sum : g->sum;
}

/* Rows by priority are parts of one engine's queue, not ranks: only all of them together say whether it has
 * room. */
static double min_of(const struct promtext_gauge *g)
{
    return isnan(g->sum) ? g->split_sum : g->min;
}

bool promtext_finish(struct promtext *p)
{
    const struct promtext_gauge *kv = &p->gauges[PROMTEXT_KV];
    enum promtext_number tpot;

    if (p->line_n > 0)
        end_line(p, SLICE(""));
    if (isnan(kv->max))
        kv = &p->gauges[PROMTEXT_KV_OLD];
    p->numbers.running = sum_of(&p->gauges[PROMTEXT_RUNNING]);
    p->numbers.waiting = sum_of(&p->gauges[PROMTEXT_WAITING]);
    p->numbers.waiting_min = min_of(&p->gauges[PROMTEXT_WAITING]);
    p->numbers.kv_usage = kv->max;
    p->numbers.asleep = p->gauges[PROMTEXT_AWAKE].max <= 0; /* every rank; not with NAN */
    tpot = isnan(p->gauges[PROMTEXT_TPOT_COUNT].sum) ? PROMTEXT_TPOT_OLD_SUM : PROMTEXT_TPOT_SUM;
    p->totals =
        (struct pod_totals){sum_of(&p->gauges[PROMTEXT_TTFT_SUM]), sum_of(&p->gauges[PROMTEXT_TTFT_COUNT]),
                            sum_of(&p->gauges[tpot]), sum_of(&p->gauges[tpot + 1])};
    return p->samples > 0;
}
