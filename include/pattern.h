/* pattern: regular expressions of route rules in RE2's syntax, as the Go router has them, asked one question:
 * does it match anywhere? In time that grows with the length of the value times that of the pattern, whatever
 * both are, and without allocation. (Measured on 4 KiB of "abab...", ([ab]*a[ab]*)[cd] takes PCRE2 5.6 s,
 * match limit or not, and pcre2_dfa_match keeps a state for each count of a repeat; glibc's regexec remembers
 * every set of states it has seen, which a client can make grow without end.)
 *
 * Understood: literals, . [..] [^..] [[:alpha:]], \d \w \s \D \W \S, \b \B ^ $ \A \z, groups as (..) (?:..)
 * (?P<name>..) and (?<name>..), flags as (?i) (?m) (?s) (?U) and their negations, | * + ? {n,m} and their
 * lazy forms, \Q..\E, \xHH, \x{HHHH}, \a \f \n \r \t \v, UTF-8. Case is ignored for ASCII letters alone.
 * Refused, as RE2 does: what goes back in the text (backreferences, look-around). Refused, unlike RE2: \p{..}
 * and ranges of characters beyond ASCII in brackets. */
#ifndef PATTERN_H
#define PATTERN_H

#include "util.h"

#define PATTERN_TEXT_MAX  1024 /* bytes of a pattern */
#define PATTERN_STEPS_MAX 1000 /* of the program it becomes; {n,m} count their inside that often */
#define PATTERN_VALUE_MAX 8192 /* longer values match nothing */

struct pattern;

/* NULL: *error, static text, says what was expected. */
MUST_CHECK struct pattern *pattern_new(struct slice text, const char **error);
/* NULL is allowed. */
void pattern_free(struct pattern *p);
bool pattern_matches(struct pattern *p, struct slice value);

#endif
