/* prompt: walks the fields of a body that hold text. What a field looks like is the API's affair, chat,
 * completions, responses or messages; what is not understood is skipped. */
#include "prompt.h"
#include "json.h"

#define PROMPT_CHARACTERS_PER_TOKEN 4

struct prompt_sink {
    void (*piece)(struct slice text, bool escaped, void *arg);
    void *arg;
};

static void put(const struct prompt_sink *s, struct slice text)
{
    s->piece(text, false, s->arg);
}

static void put_string(const struct prompt_sink *s, struct slice value)
{
    s->piece(json_inside(value), true, s->arg);
}

/* An element of `messages`, `input` or a message's content: the last value of each name. */
struct item {
    struct slice type, role, content, text;
};

/* Takes the next object off the inside of an array, and what is none before it. False: no more. */
static bool next_item(struct slice *rest, struct item *item)
{
    struct slice key, value;

    while (!json_enter(rest, '{')) {
        if (!json_element(rest, &value))
            return false;
    }
    memset(item, 0, sizeof(*item));
    while (json_member(rest, &key, &value)) {
        if (slice_eq(key, SLICE("content")))
            item->content = value;
        else if (slice_eq(key, SLICE("role")))
            item->role = value;
        else if (slice_eq(key, SLICE("text")))
            item->text = value;
        else if (slice_eq(key, SLICE("type")))
            item->type = value;
    }
    return true;
}

static bool is_text_part(const struct item *part)
{
    static const char *const kinds[] = {"\"text\"", "\"input_text\"", "\"output_text\""};

    for (size_t i = 0; i < ARRAY_LEN(kinds) && json_is(part->text, '"'); i++) {
        if (part->type.p == NULL || slice_eq(part->type, slice_of(kinds[i])))
            return true;
    }
    return false;
}

static void begin_message(const struct prompt_sink *s, struct slice role)
{
    put(s, SLICE("<|im_start|>"));
    s->piece(role, true, s->arg);
    put(s, SLICE("\n"));
}

/* Parts are joined by a line end. False: there is no text. */
static bool put_parts(const struct prompt_sink *s, struct slice role, struct slice parts)
{
    struct slice rest = json_inside(parts);
    struct item part;
    bool any = false;

    while (next_item(&rest, &part)) {
        if (!is_text_part(&part))
            continue;
        if (any)
            put(s, SLICE("\n"));
        else
            begin_message(s, role);
        put_string(s, part.text);
        any = true;
    }
    return any;
}

static void put_message(const struct prompt_sink *s, struct slice role, struct slice content)
{
    if (role.n == 0)
        return;
    if (json_is(content, '"')) {
        begin_message(s, role);
        put_string(s, content);
    } else if (!json_is(content, '[') || !put_parts(s, role, content)) {
        return;
    }
    put(s, SLICE("<|im_end|>\n"));
}

/* Items of other types are calls of tools, images and the like. */
static bool is_message(const struct item *item)
{
    return item->type.p == NULL || item->type.n == 2 || slice_eq(item->type, SLICE("\"message\""));
}

static void put_item(const struct prompt_sink *s, const struct item *item)
{
    put_message(s, json_is(item->role, '"') ? json_inside(item->role) : (struct slice){NULL, 0},
                item->content);
}

/* From the value to the end of the body. */
static struct slice from(const char *value, const char *end)
{
    return value == NULL ? (struct slice){NULL, 0} : (struct slice){value, (size_t)(end - value)};
}

static struct slice take(const char *value, const char *end)
{
    struct slice rest = from(value, end);

    return json_take(&rest);
}

static void put_messages(const struct prompt_sink *s, const struct prompt_fields *f, const char *end)
{
    struct slice rest = from(f->messages, end);
    struct item message;

    if (!json_enter(&rest, '['))
        return;
    put_message(s, SLICE("system"), take(f->system, end));
    while (next_item(&rest, &message))
        put_item(s, &message);
}

static void put_input(const struct prompt_sink *s, const struct prompt_fields *f, const char *end)
{
    struct slice rest = from(f->input, end), instructions = take(f->instructions, end);
    const bool many = json_enter(&rest, '[');
    struct item item;

    if (!many && !json_is(rest, '"'))
        return;
    if (json_is(instructions, '"'))
        put_message(s, SLICE("developer"), instructions);
    if (!many)
        put_message(s, SLICE("user"), json_take(&rest));
    while (many && next_item(&rest, &item)) {
        if (is_message(&item))
            put_item(s, &item);
    }
}

void prompt_each(const struct prompt_fields *f, const char *end,
                 void (*piece)(struct slice text, bool escaped, void *arg), void *arg)
{
    const struct prompt_sink s = {piece, arg};

    if (f->prompt != NULL && *f->prompt == '"')
        put_string(&s, take(f->prompt, end));
    else if (f->prompt == NULL && f->messages != NULL)
        put_messages(&s, f, end);
    else if (f->prompt == NULL && f->input != NULL)
        put_input(&s, f, end);
}

static void count_piece(struct slice text, bool escaped, void *arg)
{
    size_t *n = arg;

    *n += escaped ? json_characters(text) : text.n;
}

int64_t prompt_tokens(const struct prompt_fields *f, const char *end)
{
    size_t n = 0;

    prompt_each(f, end, count_piece, &n);
    return (int64_t)((n + PROMPT_CHARACTERS_PER_TOKEN - 1) / PROMPT_CHARACTERS_PER_TOKEN);
}
