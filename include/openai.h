/* openai: what the router needs to know of OpenAI-style bodies, and the bodies it writes itself. Reads bytes
 * in place, never re-serialises what a client or a pod sent. */
#ifndef OPENAI_H
#define OPENAI_H

#include "buf.h"
#include "prompt.h"

#define OPENAI_MODEL_MAX 1024 /* longest decoded model name, bytes */
#define OPENAI_MAX_DEPTH 1024 /* nested arrays and objects */
#define OPENAI_SPARE     64   /* bytes behind a body that openai_inspect writes to */

enum openai_verdict {
    OPENAI_OK,
    OPENAI_NOT_JSON, /* `error` says what and `error_at` where */
    OPENAI_NOT_OBJECT,
    OPENAI_NO_MODEL, /* missing */
    OPENAI_BAD_MODEL /* not a string, blank, longer than OPENAI_MODEL_MAX, or with a NUL or half a surrogate
                        pair */
};

struct openai_body {
    struct slice model_raw; /* the value in the body with its quotes: what is replaced on a rename */
    char model[OPENAI_MODEL_MAX + 1]; /* decoded, terminated */
    size_t model_n;
    bool stream;       /* the last "stream" key is literally true */
    struct slice user; /* the last "user", a string with its quotes; {NULL, 0}: none */
    /* From the value of the last "stream_options" to the end of the body; {NULL, 0}: none. */
    struct slice stream_options;
    struct prompt_fields prompt;
    const char *error; /* static text for every verdict but OPENAI_OK, which has NULL */
    size_t error_at;   /* byte offset it refers to; 0 for OPENAI_NO_MODEL */
};

/* How strings are scanned. The best kind that the processor has is chosen once; tests choose for themselves.
 */
enum openai_simd { OPENAI_PLAIN, OPENAI_SSE2, OPENAI_AVX2 };
/* False, and no change, when this processor does not have it. */
bool openai_use_simd(enum openai_simd kind);

/* Validates the whole body as one JSON value (RFC 8259; any bytes >= 0x80 and any \uXXXX inside strings pass)
 * and finds the top-level keys. Of a key given twice the last counts, also when spelled with escapes. One
 * pass, no allocation, no recursion. The OPENAI_SPARE bytes behind the body are made NULs: the scan stops at
 * them, and needs no look at where it is. `out` refers to the body. */
enum openai_verdict openai_inspect(char *body, size_t n, struct openai_body *out);
/* In all that follows bytes that are not UTF-8 become U+FFFD, so that what we write is JSON whatever we were
 * given. False: over the buffer's maximum; what was appended so far stays. */

/* Appends the JSON string (with quotes) for a model name: the replacement for model_raw. */
MUST_CHECK bool openai_model_value(struct buf *out, struct slice name);

/* A change to a body: n bytes from `at` on make place for the text. */
struct openai_edit {
    size_t at, n;
    struct slice text;
};
/* What makes the pod report the usage of a stream: "include_usage" added to the options that are there.
 * False: the body is for no stream, says itself whether it wants that, or has options that are no object. */
bool openai_want_usage(struct slice body, const struct openai_body *b, struct openai_edit *e);
/* Appends a string value (with its quotes) decoded. False: over the maximum, or a NUL or half a surrogate
 * pair. */
MUST_CHECK bool openai_decode_string(struct buf *out, struct slice value);
/* The same for text that is only compared: as much of it as there is room for, NUL and all; half a surrogate
 * pair becomes the three bytes that UTF-8 would have for it. */
void openai_decode_text(struct buf *out, struct slice value);

/* {"error":{"message":M,"type":T,"param":null,"code":C}} */
MUST_CHECK bool openai_error(struct buf *out, struct slice message, const char *type, const char *code);
/* The event that ends a broken stream: "data: {"error":...}\n\n", preceded by "\n\n" when the stream stopped
 * inside an event. */
MUST_CHECK bool openai_error_event(struct buf *out, bool inside_event, struct slice message, const char *type,
                                   const char *code);
/* {"object":"list","data":[{"id":...,"object":"model","created":0,"owned_by":"kthena"}...]}, names in the
 * order given. */
MUST_CHECK bool openai_model_list(struct buf *out, const struct slice *names, size_t n);
/* The other way round: appends the names of a list of models, each with a line end behind it, as many as
 * there is room for. Names that are empty, or hold control bytes, are left out. */
void openai_model_names(struct slice list, struct buf *out);

#define OPENAI_SSE_TAIL 64

/* Remembers the end of an event stream: all that is asked of it is how it ended. Starts zeroed. */
struct openai_sse {
    char tail[OPENAI_SSE_TAIL]; /* the last bytes of the stream */
    uint32_t n;                 /* of them in use */
    bool cut;                   /* there were more */
};
/* Any split of the bytes. Costs the same for every size. */
void openai_sse_feed(struct openai_sse *s, struct slice bytes);
/* The last data line, finished or not, is "data: [DONE]" (space optional). What follows it must fit into the
 * tail. */
bool openai_sse_done(const struct openai_sse *s);
/* Bytes came after the last blank line. Lines end with LF, CR LF or CR. */
bool openai_sse_inside_event(const struct openai_sse *s);

#endif
