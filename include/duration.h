/* duration: the value syntaxes of the configuration: Go durations, byte sizes, Go booleans and integers
 * (the Go router's grammar, so that existing manifests work unchanged). No clock. */
#ifndef DURATION_H
#define DURATION_H

#include "util.h"

#define DURATION_TEXT_MAX 48

/* "1m30s", "250ms", "1.5h", "0". A value that is not a whole number of microseconds is rounded away from
 * zero. False: not a duration, or beyond +-292 years. */
MUST_CHECK bool duration_parse(struct slice text, int64_t *us);
/* Text that parses back to the same value, without parts that are zero: "1m30s", "1h", "1.5ms", "0s". Returns
 * its length. */
size_t duration_format(int64_t us, char out[DURATION_TEXT_MAX]);

/* "65536", "64KiB", "64Ki", "64K" (all 1024-based), "1MB" and "1kB" (1000-based), "1GiB". False: not a size,
 * negative, or beyond 2^63. */
MUST_CHECK bool duration_parse_bytes(struct slice text, int64_t *bytes);
size_t duration_format_bytes(int64_t bytes, char out[DURATION_TEXT_MAX]);

/* Go's strconv.Atoi: base 10, optional sign, no spaces. */
MUST_CHECK bool duration_parse_int(struct slice text, int64_t *value);
/* Go's strconv.ParseBool: 1 t T true TRUE True 0 f F false FALSE False. */
MUST_CHECK bool duration_parse_bool(struct slice text, bool *value);

#endif
