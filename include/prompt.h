/* prompt: the text that a request asks a model to read: found in its body, handed out piece by piece, never
 * copied. Which fields count, and in which order, is the Go router's rule: `prompt`; else `messages`, with an
 * Anthropic `system` before them; else `input`, with `instructions` before it. */
#ifndef PROMPT_H
#define PROMPT_H

#include "util.h"

/* Where the values of a body's fields that may hold a prompt begin, the last one of each name; NULL: none.
 * openai_inspect finds them. Zeroed: no prompt. */
struct prompt_fields {
    const char *prompt, *messages, *system, *input, *instructions;
};

/* Calls piece for each part of the prompt's text: words of our own around each message, and the insides of
 * JSON strings of the body (escaped: not decoded). No prompt of these kinds gives none. end: of the body. */
void prompt_each(const struct prompt_fields *f, const char *end,
                 void (*piece)(struct slice text, bool escaped, void *arg), void *arg);
/* An estimate without a tokenizer: a token for each four characters, rounded up; 0: no prompt. */
int64_t prompt_tokens(const struct prompt_fields *f, const char *end);

#endif
