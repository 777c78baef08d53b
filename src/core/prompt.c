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

/* The text of one part of a message's content; {NULL, 0}: it has none. */
static struct slice part_text(struct slice part)
{
    static const char *const kinds[] = {"\"text\"", "\"input_text\"", "\"output_text\""};
    const struct slice type = json_find(part, SLICE("type")), text = json_find(part, SLICE("text"));

    if (!json_is(text, '"'))
        return (struct slice){NULL, 0};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (type.p == NULL || slice_eq(type, slice_of(kinds[i])))
            return text;
    }
    return (struct slice){NULL, 0};
}

static bool has_text(struct slice content)
{
    struct slice rest = json_inside(content), part;

    while (json_is(content, '[') && json_element(&rest, &part)) {
        if (part_text(part).p != NULL)
            return true;
    }
    return json_is(content, '"');
}

/* Parts are joined by a line end. */
static void put_content(const struct prompt_sink *s, struct slice content)
{
    struct slice rest = json_inside(content), part, text;
    bool first = true;

    if (json_is(content, '"')) {
        put_string(s, content);
        return;
    }
    while (json_element(&rest, &part)) {
        text = part_text(part);
        if (text.p == NULL)
            continue;
        if (!first)
            put(s, SLICE("\n"));
        put_string(s, text);
        first = false;
    }
}

static void put_message(const struct prompt_sink *s, struct slice role, struct slice content)
{
    if (role.n == 0 || !has_text(content))
        return;
    put(s, SLICE("<|im_start|>"));
    s->piece(role, true, s->arg);
    put(s, SLICE("\n"));
    put_content(s, content);
    put(s, SLICE("<|im_end|>\n"));
}

/* The inside of the role; {NULL, 0}: not a string. */
static struct slice role_of(struct slice message)
{
    const struct slice role = json_find(message, SLICE("role"));

    return json_is(role, '"') ? json_inside(role) : (struct slice){NULL, 0};
}

static void put_messages(const struct prompt_sink *s, struct slice messages, struct slice system)
{
    struct slice rest = json_inside(messages), message;

    if (!json_is(messages, '['))
        return;
    put_message(s, SLICE("system"), system);
    while (json_element(&rest, &message))
        put_message(s, role_of(message), json_find(message, SLICE("content")));
}

/* Items of other types are calls of tools, images and the like. */
static bool is_message(struct slice item)
{
    const struct slice type = json_find(item, SLICE("type"));

    return type.p == NULL || type.n == 2 || slice_eq(type, SLICE("\"message\""));
}

static void put_input(const struct prompt_sink *s, struct slice input, struct slice instructions)
{
    struct slice rest = json_inside(input), item;

    if (!json_is(input, '"') && !json_is(input, '['))
        return;
    if (json_is(instructions, '"'))
        put_message(s, SLICE("developer"), instructions);
    if (json_is(input, '"'))
        put_message(s, SLICE("user"), input);
    while (json_is(input, '[') && json_element(&rest, &item)) {
        if (json_is(item, '{') && is_message(item))
            put_message(s, role_of(item), json_find(item, SLICE("content")));
    }
}

/* The fields of a body that may hold a prompt, the last of each name. */
struct prompt_fields {
    struct slice prompt, messages, system, input, instructions;
};

static void find_fields(struct slice object, struct prompt_fields *f)
{
    struct slice rest = json_inside(object), key, value;

    while (json_member(&rest, &key, &value)) {
        if (slice_eq(key, SLICE("messages")))
            f->messages = value;
        else if (slice_eq(key, SLICE("prompt")))
            f->prompt = value;
        else if (slice_eq(key, SLICE("system")))
            f->system = value;
        else if (slice_eq(key, SLICE("input")))
            f->input = value;
        else if (slice_eq(key, SLICE("instructions")))
            f->instructions = value;
    }
}

void prompt_each(struct slice body, void (*piece)(struct slice text, bool escaped, void *arg), void *arg)
{
    const struct prompt_sink s = {piece, arg};
    struct slice object = json_take(&body);
    struct prompt_fields f = {.prompt = {NULL, 0}};

    if (!json_is(object, '{'))
        return;
    find_fields(object, &f);
    if (json_is(f.prompt, '"'))
        put_string(&s, f.prompt);
    else if (f.prompt.p == NULL && f.messages.p != NULL)
        put_messages(&s, f.messages, f.system);
    else if (f.prompt.p == NULL && f.input.p != NULL)
        put_input(&s, f.input, f.instructions);
}

static void count_piece(struct slice text, bool escaped, void *arg)
{
    size_t *n = arg;

    *n += escaped ? json_characters(text) : text.n;
}

int64_t prompt_tokens(struct slice body)
{
    size_t n = 0;

    prompt_each(body, count_piece, &n);
    return (int64_t)((n + PROMPT_CHARACTERS_PER_TOKEN - 1) / PROMPT_CHARACTERS_PER_TOKEN);
}
