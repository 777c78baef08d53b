/* pattern: text -> tree -> program -> the set of all places the program can be in, moved on byte by byte. It
 * owns syntax and matching; which values are compared with what is route's. */
#include "pattern.h"
#include "mem.h"

#include <ctype.h>

#define DEPTH_MAX  100
#define NODES_MAX  (4 * PATTERN_TEXT_MAX + 64)
#define REPEAT_MAX 1000 /* RE2's */

/* A set of byte values. */
struct bytes {
    uint64_t bits[4];
};

enum node_kind { NODE_EMPTY, NODE_SET, NODE_CHECK, NODE_THEN, NODE_OR, NODE_REPEAT };
enum check { CHECK_TEXT_START, CHECK_TEXT_END, CHECK_LINE_START, CHECK_LINE_END, CHECK_WORD, CHECK_NO_WORD };

struct node {
    enum node_kind kind;
    enum check check;
    int a, b;          /* parts, of THEN and OR; a of REPEAT */
    unsigned min, max; /* of REPEAT; max UNLIMITED */
    struct bytes set;
};
#define UNLIMITED UINT32_MAX

enum step_kind { STEP_SET, STEP_CHECK, STEP_FORK, STEP_MATCH };
struct step {
    enum step_kind kind;
    enum check check;
    unsigned next, other; /* other: of FORK */
    struct bytes set;
};

/* A set of steps that is emptied at once: index[step] is its place in members. */
struct places {
    unsigned n;
    unsigned *members, *index;
};

struct pattern {
    struct step *steps;
    unsigned n, start;
    struct places now, then;
    unsigned *stack;
};

struct parser {
    struct slice rest;
    const char *error;
    unsigned depth;
    bool ignore_case, multi_line, dot_all;
    struct node *nodes;
    int n;
};

/* ---- sets of bytes ---- */

static void bytes_add(struct bytes *s, unsigned from, unsigned to)
{
    for (unsigned b = from; b <= to; b++)
        s->bits[b / 64] |= UINT64_C(1) << (b % 64);
}

static bool bytes_have(const struct bytes *s, unsigned char b)
{
    return (s->bits[b / 64] >> (b % 64) & 1) != 0;
}

static void bytes_join(struct bytes *s, const struct bytes *other)
{
    for (size_t i = 0; i < ARRAY_LEN(s->bits); i++)
        s->bits[i] |= other->bits[i];
}

/* Of the ASCII half; the rest is empty. */
static struct bytes bytes_ascii_without(const struct bytes *s)
{
    return (struct bytes){{~s->bits[0], ~s->bits[1], 0, 0}};
}

static void bytes_ignore_case(struct bytes *s)
{
    for (unsigned b = 'a'; b <= 'z'; b++) {
        const unsigned upper = b - 'a' + 'A';

        if (bytes_have(s, (unsigned char)b) || bytes_have(s, (unsigned char)upper)) {
            bytes_add(s, b, b);
            bytes_add(s, upper, upper);
        }
    }
}

/* ---- the tree ---- */

static int fail(struct parser *p, const char *error)
{
    if (p->error == NULL)
        p->error = error;
    return 0; /* the tree's first node: an empty one */
}

static int add(struct parser *p, struct node n)
{
    if (p->n == NODES_MAX)
        return fail(p, "too large: count the inside of {n,m} n or m times");
    p->nodes[p->n] = n;
    return p->n++;
}

static int add_two(struct parser *p, enum node_kind kind, int a, int b)
{
    return add(p, (struct node){.kind = kind, .a = a, .b = b});
}

static int add_set(struct parser *p, struct bytes set)
{
    return add(p, (struct node){.kind = NODE_SET, .set = set});
}

static int add_range(struct parser *p, unsigned from, unsigned to)
{
    struct bytes set = {{0}};

    bytes_add(&set, from, to);
    return add_set(p, set);
}

/* The bytes of a character, one after another. */
static int add_text(struct parser *p, const char *bytes, size_t n)
{
    int all = add_range(p, (unsigned char)bytes[0], (unsigned char)bytes[0]);

    for (size_t i = 1; i < n; i++)
        all = add_two(p, NODE_THEN, all, add_range(p, (unsigned char)bytes[i], (unsigned char)bytes[i]));
    return all;
}

/* Any character of the set, which is ASCII, or any other character of UTF-8. */
static int add_set_or_beyond(struct parser *p, struct bytes ascii)
{
    static const unsigned leads[][2] = {{0xc2, 0xdf}, {0xe0, 0xef}, {0xf0, 0xf4}};
    int all = add_set(p, ascii);

    for (size_t i = 0; i < ARRAY_LEN(leads); i++) {
        int one = add_range(p, leads[i][0], leads[i][1]);

        for (size_t k = 0; k <= i; k++)
            one = add_two(p, NODE_THEN, one, add_range(p, 0x80, 0xbf));
        all = add_two(p, NODE_OR, all, one);
    }
    return all;
}

static int add_check(struct parser *p, enum check check)
{
    return add(p, (struct node){.kind = NODE_CHECK, .check = check});
}

/* ---- reading ---- */

static bool at(const struct parser *p, const char *text)
{
    return slice_starts(p->rest, slice_of(text));
}

static void skip(struct parser *p, size_t n)
{
    p->rest.p += n;
    p->rest.n -= n;
}

static bool take(struct parser *p, const char *text)
{
    if (!at(p, text))
        return false;
    skip(p, strlen(text));
    return true;
}

/* Bytes of the UTF-8 character at the front. */
static size_t character_bytes(const struct parser *p)
{
    const unsigned char lead = (unsigned char)p->rest.p[0];
    size_t n = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;

    return n < p->rest.n ? n : p->rest.n;
}

static int literal(struct parser *p, const char *bytes, size_t n)
{
    struct bytes set = {{0}};

    if (n > 1 || !p->ignore_case)
        return add_text(p, bytes, n);
    bytes_add(&set, (unsigned char)bytes[0], (unsigned char)bytes[0]);
    bytes_ignore_case(&set);
    return add_set(p, set);
}

static int literal_character(struct parser *p)
{
    const size_t n = character_bytes(p);
    const char *bytes = p->rest.p;

    skip(p, n);
    return literal(p, bytes, n);
}

/* \d and its kin. False: the letter is none of these. */
static bool class_letter(char letter, struct bytes *set)
{
    *set = (struct bytes){{0}};
    switch (tolower((unsigned char)letter)) {
    case 'd':
        bytes_add(set, '0', '9');
        return true;
    case 'w':
        bytes_add(set, '0', '9');
        bytes_add(set, 'A', 'Z');
        bytes_add(set, 'a', 'z');
        bytes_add(set, '_', '_');
        return true;
    case 's':
        bytes_add(set, '\t', '\n');
        bytes_add(set, '\f', '\r');
        bytes_add(set, ' ', ' ');
        return true;
    default:
        return false;
    }
}

static int digit_of(char ch)
{
    return isdigit((unsigned char)ch)    ? ch - '0'
           : isxdigit((unsigned char)ch) ? tolower((unsigned char)ch) - 'a' + 10
                                         : -1;
}

/* The code of \xHH or \x{H...}, behind the x. */
static bool hex_code(struct parser *p, unsigned *code)
{
    const bool braces = take(p, "{");
    unsigned digits = 0;

    *code = 0;
    while (p->rest.n > 0 && digit_of(p->rest.p[0]) >= 0 && digits < (braces ? 6U : 2U)) {
        *code = *code * 16 + (unsigned)digit_of(p->rest.p[0]);
        skip(p, 1);
        digits++;
    }
    if (digits == 0 || (!braces && digits != 2) || (braces && !take(p, "}")) || *code > 0x10ffff) {
        (void)fail(p, "\\x needs two hexadecimal digits, or a character's code in braces");
        return false;
    }
    return true;
}

static size_t encode(unsigned code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* A character after a backslash, which is taken already. Returns its bytes; 0: refused. */
static size_t escaped_character(struct parser *p, char out[4])
{
    static const char letters[] = "aftnrv", codes[] = "\a\f\t\n\r\v";
    const char letter = p->rest.n > 0 ? p->rest.p[0] : '\0';
    const char *known = letter != '\0' ? strchr(letters, letter) : NULL;
    unsigned code;

    if (letter == '\0') {
        (void)fail(p, "ends in a backslash");
        return 0;
    }
    skip(p, 1);
    if (letter == 'x')
        return hex_code(p, &code) ? encode(code, out) : 0;
    if (known == NULL && (isalnum((unsigned char)letter) || (unsigned char)letter >= 0x80)) {
        (void)fail(p, letter == 'p' || letter == 'P' ? "\\p is not supported: list the characters in brackets"
                                                     : "unknown escape; backreferences are not supported");
        return 0;
    }
    out[0] = known != NULL ? codes[known - letters] : letter;
    return 1;
}

static int quoted(struct parser *p)
{
    int all = add(p, (struct node){.kind = NODE_EMPTY});

    while (p->rest.n > 0 && !take(p, "\\E"))
        all = add_two(p, NODE_THEN, all, literal_character(p));
    return all;
}

static int escape(struct parser *p)
{
    struct bytes set;
    char bytes[4];
    size_t n;

    if (take(p, "A"))
        return add_check(p, CHECK_TEXT_START);
    if (take(p, "z"))
        return add_check(p, CHECK_TEXT_END);
    if (take(p, "b"))
        return add_check(p, CHECK_WORD);
    if (take(p, "B"))
        return add_check(p, CHECK_NO_WORD);
    if (take(p, "Q"))
        return quoted(p);
    if (p->rest.n > 0 && class_letter(p->rest.p[0], &set)) {
        const bool negated = isupper((unsigned char)p->rest.p[0]) != 0;

        skip(p, 1);
        return negated ? add_set_or_beyond(p, bytes_ascii_without(&set)) : add_set(p, set);
    }
    n = escaped_character(p, bytes);
    return n > 0 ? literal(p, bytes, n) : 0;
}

/* ---- brackets ---- */

struct bracket {
    struct bytes set;
    bool beyond; /* with every character beyond ASCII */
    int others;  /* single characters beyond ASCII, as a tree; -1: none */
};

/* [:alpha:] and its kin. */
static bool named_class(struct parser *p, struct bracket *b)
{
    static const struct {
        const char *name;
        int (*is)(int);
    } known[] = {{"[:alnum:]", isalnum}, {"[:alpha:]", isalpha}, {"[:blank:]", isblank},
                 {"[:cntrl:]", iscntrl}, {"[:digit:]", isdigit}, {"[:graph:]", isgraph},
                 {"[:lower:]", islower}, {"[:print:]", isprint}, {"[:punct:]", ispunct},
                 {"[:space:]", isspace}, {"[:upper:]", isupper}, {"[:xdigit:]", isxdigit}};

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (!take(p, known[i].name))
            continue;
        for (int ch = 0; ch < 0x80; ch++) {
            if (known[i].is(ch))
                bytes_add(&b->set, (unsigned)ch, (unsigned)ch);
        }
        return true;
    }
    if (take(p, "[:word:]")) {
        struct bytes word;

        (void)class_letter('w', &word);
        bytes_join(&b->set, &word);
        return true;
    }
    return false;
}

/* \d and its kin inside brackets. */
static bool bracket_letter(struct parser *p, struct bracket *b)
{
    struct bytes set;

    if (p->rest.n < 2 || p->rest.p[0] != '\\' || !class_letter(p->rest.p[1], &set))
        return false;
    if (isupper((unsigned char)p->rest.p[1])) {
        set = bytes_ascii_without(&set);
        b->beyond = true;
    }
    bytes_join(&b->set, &set);
    skip(p, 2);
    return true;
}

/* One character; returns its bytes, 0: refused. */
static size_t bracket_character(struct parser *p, char out[4])
{
    size_t n;

    if (p->rest.n == 0) {
        (void)fail(p, "[ has no ]");
        return 0;
    }
    if (take(p, "\\"))
        return escaped_character(p, out);
    n = character_bytes(p);
    memcpy(out, p->rest.p, n);
    skip(p, n);
    return n;
}

static void bracket_range(struct parser *p, struct bracket *b)
{
    char first[4], last[4];
    size_t n = bracket_character(p, first), m = n;

    if (n == 0)
        return;
    memcpy(last, first, n);
    if (p->rest.n >= 2 && p->rest.p[0] == '-' && p->rest.p[1] != ']') {
        skip(p, 1);
        m = bracket_character(p, last);
        if (m != 1 || n != 1) {
            (void)fail(p, "ranges in brackets are for ASCII characters only");
            return;
        }
    }
    if (n > 1) {
        const int one = add_text(p, first, n);

        b->others = b->others < 0 ? one : add_two(p, NODE_OR, b->others, one);
    } else if ((unsigned char)first[0] > (unsigned char)last[0]) {
        (void)fail(p, "a range in brackets goes backwards");
    } else {
        bytes_add(&b->set, (unsigned char)first[0], (unsigned char)last[0]);
    }
}

static int finish_bracket(struct parser *p, struct bracket *b, bool negated)
{
    int all;

    if (p->ignore_case)
        bytes_ignore_case(&b->set);
    if (negated && b->others >= 0)
        return fail(p, "[^...] is for ASCII characters only");
    if (negated && b->beyond)
        return add_set(p, bytes_ascii_without(&b->set));
    if (negated || b->beyond)
        return add_set_or_beyond(p, negated ? bytes_ascii_without(&b->set) : b->set);
    all = add_set(p, b->set);
    return b->others < 0 ? all : add_two(p, NODE_OR, all, b->others);
}

/* The opening bracket is taken. A ] that comes first is one of the characters. */
static int bracket(struct parser *p)
{
    const bool negated = take(p, "^");
    struct bracket b = {.others = -1};

    for (bool first = true; p->error == NULL && (first || !at(p, "]")); first = false) {
        if (!named_class(p, &b) && !bracket_letter(p, &b))
            bracket_range(p, &b);
    }
    (void)take(p, "]");
    return finish_bracket(p, &b, negated);
}

/* ---- groups and repeats ---- */

static int alternatives(struct parser *p);

/* The flags of (?flags) and (?flags: up to what ends them. */
static void flags(struct parser *p)
{
    bool on = true;

    while (p->error == NULL && p->rest.n > 0 && p->rest.p[0] != ')' && p->rest.p[0] != ':') {
        if (take(p, "i"))
            p->ignore_case = on;
        else if (take(p, "m"))
            p->multi_line = on;
        else if (take(p, "s"))
            p->dot_all = on;
        else if (take(p, "-"))
            on = false;
        else if (!take(p, "U")) /* which of several matches is found makes no difference here */
            (void)fail(p, "unknown group; look-around and conditions are not supported");
    }
}

static bool group_name(struct parser *p)
{
    size_t n = 0;

    while (n < p->rest.n && (isalnum((unsigned char)p->rest.p[n]) || p->rest.p[n] == '_'))
        n++;
    if (n == 0 || n == p->rest.n || p->rest.p[n] != '>')
        return false;
    skip(p, n + 1);
    return true;
}

/* Behind the opening parenthesis. Flags end with the group; those of (?flags) with the one around it. */
static int group(struct parser *p)
{
    const struct parser outer = *p;
    int inside;

    if (take(p, "?P<") || (at(p, "?<") && !at(p, "?<=") && !at(p, "?<!") && take(p, "?<"))) {
        if (!group_name(p))
            return fail(p, "a group's name is letters, digits and _, ended by >");
    } else if (take(p, "?")) {
        flags(p);
        if (take(p, ")"))
            return add(p, (struct node){.kind = NODE_EMPTY});
        (void)take(p, ":");
    }
    inside = alternatives(p);
    if (!take(p, ")"))
        return fail(p, "( has no )");
    p->ignore_case = outer.ignore_case;
    p->multi_line = outer.multi_line;
    p->dot_all = outer.dot_all;
    return inside;
}

static bool number(struct parser *p, unsigned *n)
{
    size_t digits = 0;

    *n = 0;
    while (p->rest.n > 0 && isdigit((unsigned char)p->rest.p[0]) && digits < 5) {
        *n = *n * 10 + (unsigned)(p->rest.p[0] - '0');
        skip(p, 1);
        digits++;
    }
    return digits > 0;
}

/* {n}, {n,} or {n,m}; anything else is no repeat and stands for itself. */
static bool counts(struct parser *p, unsigned *min, unsigned *max)
{
    const struct slice before = p->rest;

    if (take(p, "{") && number(p, min)) {
        *max = *min;
        if (take(p, ",") && !number(p, max))
            *max = UNLIMITED;
        if (take(p, "}"))
            return true;
    }
    p->rest = before;
    return false;
}

static bool repeat(struct parser *p, unsigned *min, unsigned *max)
{
    *min = 0;
    *max = UNLIMITED;
    if (take(p, "*"))
        return true;
    if (take(p, "+")) {
        *min = 1;
        return true;
    }
    if (take(p, "?")) {
        *max = 1;
        return true;
    }
    return counts(p, min, max);
}

static int repeated(struct parser *p, int inside)
{
    unsigned min, max;

    if (!repeat(p, &min, &max))
        return inside;
    (void)take(p, "?"); /* lazy: finds the same */
    if (min > REPEAT_MAX || (max != UNLIMITED && (max > REPEAT_MAX || max < min)))
        return fail(p, "{n,m} needs n <= m <= 1000");
    if (repeat(p, &(unsigned){0}, &(unsigned){0}))
        return fail(p, "a repeat of a repeat");
    return add(p, (struct node){.kind = NODE_REPEAT, .a = inside, .min = min, .max = max});
}

static int dot(struct parser *p)
{
    struct bytes newline = {{0}};

    if (!p->dot_all)
        bytes_add(&newline, '\n', '\n');
    return add_set_or_beyond(p, bytes_ascii_without(&newline));
}

static int atom(struct parser *p)
{
    if (take(p, "("))
        return group(p);
    if (take(p, "["))
        return bracket(p);
    if (take(p, "."))
        return dot(p);
    if (take(p, "^"))
        return add_check(p, p->multi_line ? CHECK_LINE_START : CHECK_TEXT_START);
    if (take(p, "$"))
        return add_check(p, p->multi_line ? CHECK_LINE_END : CHECK_TEXT_END);
    if (take(p, "\\"))
        return escape(p);
    if (at(p, "*") || at(p, "+") || at(p, "?"))
        return fail(p, "a repeat of nothing");
    return literal_character(p);
}

static int sequence(struct parser *p)
{
    int all = add(p, (struct node){.kind = NODE_EMPTY});

    while (p->error == NULL && p->rest.n > 0 && !at(p, "|") && !at(p, ")"))
        all = add_two(p, NODE_THEN, all, repeated(p, atom(p)));
    return all;
}

static int alternatives(struct parser *p)
{
    int all;

    if (++p->depth > DEPTH_MAX)
        return fail(p, "parentheses are nested too deeply");
    all = sequence(p);
    while (p->error == NULL && take(p, "|"))
        all = add_two(p, NODE_OR, all, sequence(p));
    p->depth--;
    return all;
}

/* ---- the program: written from its end, so that each part knows what comes after it ---- */

struct writer {
    const struct node *nodes;
    struct pattern *p;
    bool full;
};

static unsigned put(struct writer *w, struct step s)
{
    if (w->p->n == PATTERN_STEPS_MAX) {
        w->full = true;
        return 0;
    }
    w->p->steps[w->p->n] = s;
    return w->p->n++;
}

static unsigned write_node(struct writer *w, int node, unsigned next);

static unsigned write_repeat(struct writer *w, const struct node *n, unsigned next)
{
    const unsigned end = next;
    unsigned copies = n->min;

    if (n->max == UNLIMITED) {
        const unsigned fork = put(w, (struct step){.kind = STEP_FORK, .other = next});
        const unsigned inside = write_node(w, n->a, fork);

        w->p->steps[fork].next = inside;
        next = n->min > 0 ? inside : fork;
        copies = n->min > 0 ? n->min - 1 : 0;
    }
    for (unsigned i = n->min; n->max != UNLIMITED && i < n->max && !w->full; i++)
        next = put(w, (struct step){.kind = STEP_FORK, .next = write_node(w, n->a, next), .other = end});
    for (unsigned i = 0; i < copies && !w->full; i++)
        next = write_node(w, n->a, next);
    return next;
}

static unsigned write_node(struct writer *w, int node, unsigned next)
{
    const struct node *n = &w->nodes[node];

    if (w->full)
        return 0;
    switch (n->kind) {
    case NODE_SET:
        return put(w, (struct step){.kind = STEP_SET, .set = n->set, .next = next});
    case NODE_CHECK:
        return put(w, (struct step){.kind = STEP_CHECK, .check = n->check, .next = next});
    case NODE_THEN:
        next = write_node(w, n->b, next);
        return write_node(w, n->a, next);
    case NODE_OR:
        return put(w, (struct step){.kind = STEP_FORK,
                                    .next = write_node(w, n->a, next),
                                    .other = write_node(w, n->b, next)});
    case NODE_REPEAT:
        return write_repeat(w, n, next);
    case NODE_EMPTY:
        break;
    }
    return next;
}

static void places_init(struct places *s, unsigned n)
{
    s->n = 0;
    s->members = mem_array(NULL, n, sizeof(*s->members));
    s->index = mem_zalloc(n * sizeof(*s->index));
}

static struct pattern *write_program(const struct parser *parsed, int root, const char **error)
{
    struct pattern *p = mem_zalloc(sizeof(*p));
    struct writer w = {parsed->nodes, p, false};

    p->steps = mem_array(NULL, PATTERN_STEPS_MAX, sizeof(*p->steps));
    p->start = write_node(&w, root, put(&w, (struct step){.kind = STEP_MATCH}));
    if (w.full) {
        pattern_free(p);
        *error = "too large: count the inside of {n,m} n or m times";
        return NULL;
    }
    p->steps = mem_array(p->steps, p->n, sizeof(*p->steps));
    places_init(&p->now, p->n);
    places_init(&p->then, p->n);
    p->stack = mem_array(NULL, 2 * (size_t)p->n + 1, sizeof(*p->stack));
    return p;
}

struct pattern *pattern_new(struct slice text, const char **error)
{
    struct parser parser = {.rest = text};
    struct pattern *p = NULL;
    int root;

    *error = NULL;
    if (text.n > PATTERN_TEXT_MAX) {
        *error = "longer than 1024 bytes";
        return NULL;
    }
    parser.nodes = mem_array(NULL, NODES_MAX, sizeof(*parser.nodes));
    (void)add(&parser, (struct node){.kind = NODE_EMPTY});
    root = alternatives(&parser);
    if (parser.error == NULL && parser.rest.n > 0)
        parser.error = ") has no (";
    *error = parser.error;
    if (parser.error == NULL)
        p = write_program(&parser, root, error);
    mem_free(parser.nodes);
    return p;
}

void pattern_free(struct pattern *p)
{
    if (p == NULL)
        return;
    mem_free(p->steps);
    mem_free(p->now.members);
    mem_free(p->now.index);
    mem_free(p->then.members);
    mem_free(p->then.index);
    mem_free(p->stack);
    mem_free(p);
}

/* ---- matching ---- */

static bool is_word(struct slice value, size_t i)
{
    return i < value.n && (isalnum((unsigned char)value.p[i]) || value.p[i] == '_');
}

/* Whether the check holds before byte i. */
static bool holds(enum check check, struct slice value, size_t i)
{
    switch (check) {
    case CHECK_TEXT_START:
        return i == 0;
    case CHECK_TEXT_END:
        return i == value.n;
    case CHECK_LINE_START:
        return i == 0 || value.p[i - 1] == '\n';
    case CHECK_LINE_END:
        return i == value.n || value.p[i] == '\n';
    case CHECK_WORD:
    case CHECK_NO_WORD:
        break;
    }
    return ((i > 0 && is_word(value, i - 1)) != is_word(value, i)) == (check == CHECK_WORD);
}

static bool places_add(struct places *s, unsigned step)
{
    if (s->index[step] < s->n && s->members[s->index[step]] == step)
        return false;
    s->index[step] = s->n;
    s->members[s->n++] = step;
    return true;
}

/* Adds the step, and all that is reached from it without a byte. Returns whether that is the end. */
static bool enter(struct pattern *p, struct places *into, unsigned step, struct slice value, size_t i)
{
    unsigned n = 0;

    p->stack[n++] = step;
    while (n > 0) {
        const unsigned at_step = p->stack[--n];
        const struct step *s = &p->steps[at_step];

        if (!places_add(into, at_step))
            continue;
        if (s->kind == STEP_MATCH)
            return true;
        if (s->kind == STEP_FORK) {
            p->stack[n++] = s->other;
            p->stack[n++] = s->next;
        } else if (s->kind == STEP_CHECK && holds(s->check, value, i)) {
            p->stack[n++] = s->next;
        }
    }
    return false;
}

/* A new attempt starts before each byte: all of them run at the same time, in one set. */
bool pattern_matches(struct pattern *p, struct slice value)
{
    struct places *now = &p->now, *then = &p->then;

    if (value.n > PATTERN_VALUE_MAX)
        return false;
    now->n = 0;
    for (size_t i = 0;; i++) {
        if (enter(p, now, p->start, value, i))
            return true;
        if (i == value.n)
            return false;
        then->n = 0;
        for (unsigned k = 0; k < now->n; k++) {
            const struct step *s = &p->steps[now->members[k]];

            if (s->kind == STEP_SET && bytes_have(&s->set, (unsigned char)value.p[i]) &&
                enter(p, then, s->next, value, i + 1))
                return true;
        }
        struct places *spare = now;

        now = then;
        then = spare;
    }
}
