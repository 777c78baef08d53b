/* json: looks into JSON text in place: members of an object, elements of an array, without a copy and without
 * recursion. It does not judge: openai_inspect validates requests, pods are trusted. Text that is no JSON
 * gives fewer values or odd ones, but nothing outside the text is ever read. Values are slices of the text, a
 * string with its quotes and escapes. */
#ifndef JSON_H
#define JSON_H

#include "util.h"

/* Takes the first value off *rest, white space before it skipped. {NULL, 0}: there is none; a closing bracket
 * that stands there instead is taken off. */
struct slice json_take(struct slice *rest);
/* Between the brackets or quotes of an object, array or string; {NULL, 0} for anything else. */
struct slice json_inside(struct slice value);
/* Takes the next member off the inside of an object; key without its quotes. False: no more. */
bool json_member(struct slice *inside, struct slice *key, struct slice *value);
/* Takes the next element off the inside of an array. False: no more. */
bool json_element(struct slice *inside, struct slice *value);
/* Goes into the next object or array (by its bracket) of the inside of another one, without a look at where
 * it ends: until there is no more of it *inside is its inside, and then that of the other one again. False:
 * the next value is something else. */
bool json_enter(struct slice *inside, char open);
/* The value of the last member of this name, as it is written without escapes; {NULL, 0}: none, or `object`
 * is none. */
struct slice json_find(struct slice object, struct slice name);

/* Of the backslashes of 64 bytes, the first of which does not follow one that belongs to it, those that make
 * the next byte ordinary: every other one of each run, from its first. Where a run starts at an odd place,
 * adding its first bit turns all its bits to 0. */
static inline uint64_t json_escapers(uint64_t slash)
{
    const uint64_t odd = UINT64_C(0xaaaaaaaaaaaaaaaa), first = slash & ~(slash << 1);

    return slash & ((slash + (first & odd)) ^ odd);
}

static inline bool json_is(struct slice value, char first)
{
    return value.n > 0 && value.p[0] == first;
}

/* Unicode characters in a string, given without its quotes: escapes are one each, surrogate pairs together.
 */
size_t json_characters(struct slice inside);

#endif
