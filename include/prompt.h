/* prompt: the text that a request asks a model to read: found in its body, handed out piece by piece, never
 * copied. Which fields count, and in which order, is the Go router's rule: `prompt`; else `messages`, with an
 * Anthropic `system` before them; else `input`, with `instructions` before it. */
#ifndef PROMPT_H
#define PROMPT_H

#include "util.h"

/* Calls piece for each part of the prompt's text: words of our own around each message, and the insides of
 * JSON strings of the body (escaped: not decoded). A body that is no JSON object, or has no prompt of these
 * kinds, gives none. */
void prompt_each(struct slice body, void (*piece)(struct slice text, bool escaped, void *arg), void *arg);
/* An estimate without a tokenizer: a token for each four characters, rounded up; 0: no prompt. */
int64_t prompt_tokens(struct slice body);

#endif
