/* What request n does: everything here follows from the seed and n, so that a run can be played again. Owns
 * no state. */
#include "torture.h"

#include <stdio.h>
#include <string.h>

#define CLIENT(id, name, fault, weight) [CLIENT_##id] = {name, fault, weight},
#define POD(id, name, fault, weight)
#define WORLD(id, name, fault, weight)
const struct act_info client_acts[CLIENT_ACTS] = {
#include "acts.def"
};
#define CLIENT(id, name, fault, weight)
#define POD(id, name, fault, weight) [POD_##id] = {name, fault, weight},
#define WORLD(id, name, fault, weight)
const struct act_info pod_acts[POD_ACTS] = {
#include "acts.def"
};
#define CLIENT(id, name, fault, weight)
#define POD(id, name, fault, weight)
#define WORLD(id, name, fault, weight) [WORLD_##id] = {name, fault, weight},
const struct act_info world_acts[WORLD_ACTS] = {
#include "acts.def"
};

/* ---- chance ---- */

uint64_t rng_next(struct rng *r)
{
    return util_mix(r->state++);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return n == 0 ? 0 : (uint32_t)(rng_next(r) >> 16) % n;
}

unsigned rng_act(struct rng *r, const struct act_info *acts, unsigned n)
{
    uint32_t sum = 0, at;
    unsigned i = 0;

    for (unsigned k = 0; k < n; k++)
        sum += acts[k].weight;
    for (at = rng_below(r, sum); at >= acts[i].weight; i++)
        at -= acts[i].weight;
    return i;
}

/* ---- the plan ---- */

/* Mostly small, now and then up to `most`. */
static uint32_t plan_size(struct rng *r, uint32_t most)
{
    switch (rng_below(r, 16)) {
    case 0:
        return rng_below(r, most);
    case 1:
    case 2:
        return rng_below(r, most / 16);
    default:
        return rng_below(r, 1024);
    }
}

static uint16_t plan_status(struct rng *r, enum pod_act act)
{
    static const uint16_t errors[] = {400, 401, 404, 409, 413, 422, 429, 500, 502, 503, 504};

    if (act == POD_STATUS)
        return errors[rng_below(r, sizeof errors / sizeof *errors)];
    if (act == POD_NO_BODY)
        return rng_below(r, 2) ? 204 : 304;
    if (act == POD_EARLY)
        return 413;
    return rng_below(r, 20) == 0 ? 201 : 200;
}

static bool plan_answer_is_large(const struct plan *p)
{
    return p->client == CLIENT_STALL || p->client == CLIENT_SLOW_READER;
}

bool plan_is_proxied(const struct plan *p)
{
    return p->client <= CLIENT_BODY_STOPS;
}

bool plan_may_leave(const struct plan *p)
{
    return p->client >= CLIENT_GONE_HEAD && p->client <= CLIENT_HALF_CLOSE;
}

/* Acts that are about a stream are streams; clients that must get much get plain bytes. */
static void plan_fit(struct plan *p, struct rng *r)
{
    if (plan_answer_is_large(p)) {
        p->pod = POD_PLAIN;
        p->status = 200;
        p->answer_bytes = p->client == CLIENT_STALL ? 12 * 1024 * 1024 : 300 * 1024;
    }
    if (p->client == CLIENT_HEAD && p->pod != POD_FIN_BEFORE && p->pod != POD_LATE)
        p->pod = POD_PLAIN;
    if (p->client == CLIENT_LARGE_BODY)
        p->body_bytes = 100 * 1024 + rng_below(r, TORTURE_BODY_MAX - 110 * 1024);
    if (p->pod == POD_EARLY || p->pod == POD_SLOW_TAKER)
        p->body_bytes = 64 * 1024 + rng_below(r, 300 * 1024);
    if (p->client == CLIENT_BYTES || p->pod == POD_BYTES)
        p->body_bytes = p->answer_bytes = rng_below(r, 100);
    if (p->client == CLIENT_GONE_WAIT && rng_below(r, 2))
        p->pod = POD_HANG_HEAD;
    p->stream =
        p->pod == POD_STREAM || p->pod == POD_FIN_STREAM || p->pod == POD_RST_STREAM || p->pod == POD_NO_DONE;
    if (p->stream || p->pod == POD_NO_DONE)
        p->status = 200;
    if (p->pod == POD_FIN_BODY || p->pod == POD_RST_BODY || p->pod == POD_HANG_BODY)
        p->answer_bytes += 64;
    if (p->stream && p->answer_bytes > 8192)
        p->answer_bytes = 8192;
}

void plan_make(struct plan *p, uint64_t seed, uint32_t n)
{
    struct rng r = {util_mix(seed ^ util_mix(n))};

    *p = (struct plan){.n = n};
    p->client = (uint8_t)rng_act(&r, client_acts, CLIENT_ACTS);
    p->pod = (uint8_t)(rng_below(&r, 3) == 0 ? rng_act(&r, pod_acts, POD_ACTS)
                                             : rng_act(&r, pod_acts, POD_LATE + 1));
    p->model = (uint8_t)rng_below(&r, TORTURE_MODELS);
    p->variant = (uint8_t)rng_below(&r, 256);
    p->reset = rng_below(&r, 2);
    p->status = plan_status(&r, p->pod);
    p->body_bytes = plan_size(&r, 64 * 1024);
    p->answer_bytes = plan_size(&r, 128 * 1024);
    p->client_us = rng_below(&r, 60 * 1000);
    p->pod_us = rng_below(&r, rng_below(&r, 8) == 0 ? 150 * 1000 : 15 * 1000);
    p->session = rng_below(&r, 4) == 0 ? 0 : 1 + rng_below(&r, TORTURE_SESSIONS);
    plan_fit(p, &r);
}

/* ---- bodies ---- */

static const char *const plan_models[TORTURE_MODELS] = {"alpha", "beta", "gam\\u006da"};
static const char *const plan_pod_models[TORTURE_MODELS] = {"alpha", "org/Beta-7B", "gam\\u006da"};

/* Text in a JSON string: letters, escapes, UTF-8. */
static void plan_text(struct rng *r, uint32_t n, struct buf *out)
{
    static const char *const odd[] = {
        "\\\"", "\\\\", "\\n", "\\u00e9", "\xc3\xa9", "\\ud83d\\ude00", "}", "{\\\"model\\\":\\\"x\\\"}",
        "]",    ":",    ","};
    char letters[64];

    while (n > 0) {
        const uint32_t k = n < sizeof letters ? n : sizeof letters;
        uint64_t bits = rng_next(r);

        for (uint32_t i = 0; i < k; i++)
            letters[i] = (char)('a' + ((bits >> (i & 31)) & 15));
        buf_put(out, letters, k);
        if (rng_below(r, 4) == 0)
            buf_text(out, odd[rng_below(r, sizeof odd / sizeof *odd)]);
        n -= k;
    }
}

void plan_body(const struct plan *p, bool for_pod, struct buf *out)
{
    struct rng r = {util_mix(p->n) + 1};
    const char *model = (for_pod ? plan_pod_models : plan_models)[p->model];
    const bool model_first = rng_below(&r, 2);

    buf_text(out, rng_below(&r, 2) ? "{ " : "{");
    if (model_first)
        buf_printf(out, "\"model\":\"%s\",", model);
    buf_text(out, "\"messages\":[{\"role\":\"user\",\"content\":\"");
    plan_text(&r, p->body_bytes, out);
    buf_printf(out, "\"}],\"stream\":%s,\"n\":%u", p->stream ? "true" : "false", p->n);
    if (!model_first)
        buf_printf(out, " , \"model\" : \"%s\"", model);
    buf_text(out, "}");
}

void plan_answer_body(const struct plan *p, struct buf *out)
{
    struct rng r = {util_mix(p->n) + 2};

    if (p->stream) {
        while (buf_size(out) < p->answer_bytes)
            buf_printf(out, "data: {\"choices\":[{\"delta\":{\"content\":\"%016llx\"}}]}\n\n",
                       (unsigned long long)rng_next(&r));
        buf_text(out, "data: [DONE]\n\n");
        return;
    }
    for (uint32_t left = p->answer_bytes; left > 0;) {
        const uint64_t bits = rng_next(&r);
        const uint32_t k = left < sizeof bits ? left : (uint32_t)sizeof bits;

        buf_put(out, &bits, k);
        left -= k;
    }
}

/* ---- hostile bytes ---- */

struct bytes {
    const char *p;
    size_t n;
    unsigned status;
};
#define HOSTILE(status, text)                                                                                \
    {                                                                                                        \
        (text), sizeof(text) - 1, (status)                                                                   \
    }
#define POST "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nX-Torture: @@@@@@@@\r\n"
#define BODY "{\"model\":\"alpha\"}"

/* Each ends so that nothing more is needed for a verdict. */
static const struct bytes hostile[] = {
    HOSTILE(400, POST
            "Content-Length: 17\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/x HTTP/1.1\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length: 17\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length: 17\r\nContent-Length: 0\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length: 17, 17\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length: +17\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length: -1\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length: 0x11\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length: 1 7\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length: 99999999999999999999\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length:\r\n\r\n" BODY),
    HOSTILE(400, POST "Content-Length: 17\n\r\n" BODY),
    HOSTILE(400, POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: \x0b"
                      "chunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer_Encoding: chunked\r\nContent-Length: 17\r\n X: y\r\n\r\n" BODY),
    HOSTILE(400, POST "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "X: a\nTransfer-Encoding: chunked\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "X: a\0b\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "X\0: a\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "X: \x7f\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST ": no name\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "no colon\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "\xc3\xa9: x\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "Host: other\r\nContent-Length: 17\r\n\r\n" BODY),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n5;a\nX\r\nhello\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\nhello\r\n0\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n"),
    HOSTILE(400, POST "Transfer-Encoding: chunked\r\n\r\n0\r\nX: a\nY: b\r\n\r\n"),
    HOSTILE(400, "POST  /v1/chat/completions HTTP/1.1\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat/completions  HTTP/1.1\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat completions HTTP/1.1\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST\t/v1/chat/completions\tHTTP/1.1\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat/completions HTTP/1.1\nHost: h\n\n"),
    HOSTILE(400, "POST /v1/chat/completions HTTP/1.1\r\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/x#y HTTP/1.1\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST v1/chat/completions HTTP/1.1\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat/completions HTTP/1.1\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat/completions\r\n\r\n"),
    HOSTILE(400, "GET /v1/models\r\n"),
    HOSTILE(400, "POST /v1/chat/completions HTTP/0.9\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat/completions HTTP/2.0\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat/completions HTTP/1.2\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat/completions http/1.1\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat/completions HTTP/1.10\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(400, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    HOSTILE(400, "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n"),
    HOSTILE(400, "TRACE /v1/x HTTP/1.1\r\nHost: h\r\n\r\n"),
    HOSTILE(400, "GET http://a/v1/x HTTP/1.1\r\nHost: b\r\n\r\n"),
    HOSTILE(400, "GET http://a@b/v1/x HTTP/1.1\r\nHost: b\r\n\r\n"),
    HOSTILE(400, "GET /v1/x HTTP/1.1\r\nHost: a,b\r\n\r\n"),
    HOSTILE(400, "GET /v1/x HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    HOSTILE(400, "GET /v1/x HTTP/1.1\r\n Host: a\r\n\r\n"),
    HOSTILE(400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    HOSTILE(400, "\0\0\0\0\0\0\0\0\r\n\r\n"),
};

const char *plan_hostile(const struct plan *p, size_t *n, unsigned *status)
{
    const struct bytes *b = &hostile[(p->variant + p->n) % (sizeof hostile / sizeof *hostile)];

    *n = b->n;
    *status = b->status;
    return b->p;
}

static const struct bytes garbage[] = {
    HOSTILE(0, "\x16\x03\x01 not http at all\r\n\r\n"),
    HOSTILE(0, "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 600 High\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nhello"),
    HOSTILE(0, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nX: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "HTTP/1.1200 OK\r\nContent-Length: 0\r\n\r\n"),
    HOSTILE(0, "\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
};

const char *plan_garbage(const struct plan *p, size_t *n)
{
    const struct bytes *b = &garbage[(p->variant + p->n) % (sizeof garbage / sizeof *garbage)];

    *n = b->n;
    return b->p;
}

const char *plan_bad_chunk(const struct plan *p)
{
    static const char *const bad[] = {"5\nhello\r\n0\r\n\r\n",
                                      "5\r\nhello0\r\n\r\n",
                                      "zz\r\nhello\r\n",
                                      "-5\r\nhello\r\n0\r\n\r\n",
                                      "5;x\ny\r\nhello\r\n0\r\n\r\n",
                                      "11111111111111111\r\nhello",
                                      "\r\n\r\n",
                                      "0\r\nbad trailer\r\n\r\n"};

    return bad[p->variant % (sizeof bad / sizeof *bad)];
}

/* ---- requests ---- */

static const char *plan_path(const struct plan *p)
{
    static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings",
                                        "/v1/x/y?z=1&a=%00"};

    return paths[p->variant % 8 < 4 ? 0 : p->variant % 4];
}

static void plan_session(const struct plan *p, struct buf *out)
{
    if (p->client == CLIENT_ODD_SESSION) {
        buf_printf(out, "X-Session-ID: \"s\\%u\" = \xc3\xa9\xff\t<x> model=forged [1] {\"a\":1}\r\n",
                   p->session);
    } else if (p->client == CLIENT_LONG_SESSION) {
        buf_printf(out, "X-Session-ID: %u-", p->session);
        for (unsigned i = 0; i < 10 * 1024 / 16; i++)
            buf_text(out, "0123456789abcdef");
        buf_text(out, "\r\n");
    } else if (p->session > 0) {
        buf_printf(out, "X-Session-ID: s-%u\r\n", p->session);
    }
}

static void plan_fields(const struct plan *p, struct buf *out)
{
    buf_printf(out, "X-Request-ID: t-%u\r\nX-Torture: %u\r\nAuthorization: Bearer secret-%u\r\n", p->n, p->n,
               p->n);
    plan_session(p, out);
    if (p->client == CLIENT_BIG_HEAD || p->client == CLIENT_HEAD_TOO_LARGE) {
        const unsigned lines = p->client == CLIENT_BIG_HEAD ? 1 : 5;

        for (unsigned line = 0; line < lines; line++) {
            buf_text(out, "Cookie: ");
            for (unsigned i = 0; i < 1024; i++)
                buf_text(out, "c=0123456789abc;");
            buf_text(out, "\r\n");
        }
    }
    if (p->client == CLIENT_HTTP10_KEEP)
        buf_text(out, "Connection: keep-alive\r\n");
    else if (p->client == CLIENT_CLOSE)
        buf_text(out, "Connection: close, X-Hop\r\nX-Hop: 1\r\n");
    else if (p->variant % 16 == 3)
        buf_text(
            out,
            "Connection: X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nProxy-Authorization: x\r\n");
    if (p->client == CLIENT_EXPECT)
        buf_text(out, "Expect: 100-continue\r\n");
    if (p->client == CLIENT_MULTIPART)
        buf_text(out, "Content-Type: multipart/form-data; boundary=x\r\n");
    else
        buf_text(out, "Content-Type: application/json\r\n");
}

static const char *plan_method(const struct plan *p)
{
    switch (p->client) {
    case CLIENT_HEAD:
        return "HEAD";
    case CLIENT_OPTIONS:
        return "OPTIONS";
    case CLIENT_LIST:
    case CLIENT_HEALTH:
        return "GET";
    default:
        return "POST";
    }
}

static void plan_target(const struct plan *p, const char *authority, struct buf *out)
{
    switch (p->client) {
    case CLIENT_LIST:
        buf_text(out, "/v1/models");
        break;
    case CLIENT_HEALTH:
        buf_text(out, p->variant & 1 ? "/healthz" : "/readyz");
        break;
    case CLIENT_UNKNOWN_PATH:
        buf_printf(out, "/%08x/v1/%u", (unsigned)util_mix(p->n), p->n);
        break;
    case CLIENT_ABSOLUTE:
        buf_printf(out, "http://%s%s", authority, plan_path(p));
        break;
    case CLIENT_URI_TOO_LONG:
        buf_text(out, "/v1/");
        for (unsigned i = 0; i < (TORTURE_HEAD_MAX + 4096) / 8; i++)
            buf_text(out, "01234567");
        break;
    default:
        buf_text(out, plan_path(p));
        break;
    }
}

static void plan_chunks(const struct plan *p, const struct buf *body, struct buf *out)
{
    struct rng r = {util_mix(p->n) + 3};
    const bool extras = p->client == CLIENT_CHUNK_EXTRAS;
    const char *at = buf_bytes(body);
    size_t left = buf_size(body);

    while (left > 0) {
        const size_t most = 1 + rng_below(&r, rng_below(&r, 4) == 0 ? 16 : 16384),
                     k = left < most ? left : most;

        buf_printf(out, rng_below(&r, 2) ? "%zx" : "00%zX", k);
        if (extras && rng_below(&r, 2))
            buf_text(out, ";name=value;other=\"quoted \xc3\xa9\"");
        buf_text(out, "\r\n");
        buf_put(out, at, k);
        buf_text(out, "\r\n");
        at += k;
        left -= k;
    }
    buf_text(out, extras ? "000\r\nX-Torture: 0\r\nContent-Length: 5\r\n\r\n" : "0\r\n\r\n");
}

static void plan_bad_body(const struct plan *p, struct buf *out)
{
    static const char *const not_json[] = {"{",
                                           "{\"model\":\"alpha\"",
                                           "\xff\xfe",
                                           "{\"model\":\"alpha\"}x",
                                           "[1,2",
                                           "{\"model\":\"al\x01pha\"}",
                                           "{'model':'alpha'}",
                                           "[]",
                                           "\"alpha\"",
                                           "17"};
    static const char *const no_model[] = {"{}",
                                           "{\"model\":1}",
                                           "{\"model\":null}",
                                           "{\"model\":\"\"}",
                                           "{\"model\":\"  \"}",
                                           "{\"model\":[\"alpha\"]}",
                                           "{\"Model\":\"alpha\"}",
                                           "{\"a\":{\"model\":\"alpha\"}}"};

    if (p->client == CLIENT_BAD_JSON)
        buf_text(out, not_json[p->variant % (sizeof not_json / sizeof *not_json)]);
    else if (p->client == CLIENT_NO_MODEL)
        buf_text(out, no_model[p->variant % (sizeof no_model / sizeof *no_model)]);
    else if (p->client == CLIENT_UNKNOWN_MODEL)
        buf_printf(out, "{\"model\":\"m-%016llx\\n\\\"forged\\\"\"}", (unsigned long long)util_mix(p->n));
    else
        plan_body(p, false, out);
}

static bool plan_is_chunked(const struct plan *p)
{
    return p->client == CLIENT_CHUNKED || p->client == CLIENT_CHUNK_EXTRAS ||
           (p->client == CLIENT_GONE_BODY && p->variant & 1) ||
           (p->client == CLIENT_PIPELINE && p->variant & 1);
}

static void plan_too_large(const struct plan *p, struct buf *out)
{
    if (p->client == CLIENT_BODY_TOO_LARGE) {
        buf_printf(out, "Content-Length: %u\r\n\r\n", TORTURE_BODY_MAX + 1 + p->variant);
        return;
    }
    buf_text(out, "Transfer-Encoding: chunked\r\n\r\n");
    for (unsigned i = 0; i < TORTURE_BODY_MAX / 32768 + 1; i++) {
        buf_text(out, "8000\r\n");
        for (unsigned k = 0; k < 32768 / 16; k++)
            buf_text(out, "0123456789abcdef");
        buf_text(out, "\r\n");
    }
}

void plan_request(const struct plan *p, const char *authority, struct buf *out, size_t *head_n)
{
    const bool old = p->client == CLIENT_HTTP10 || p->client == CLIENT_HTTP10_KEEP;
    struct buf body = {0};

    buf_printf(out, "%s ", plan_method(p));
    plan_target(p, authority, out);
    buf_printf(out, " HTTP/1.%u\r\n", old ? 0 : 1);
    if (!old || p->variant & 1)
        buf_printf(out, "Host: %s\r\n", authority);
    plan_fields(p, out);
    if (p->client == CLIENT_LIST || p->client == CLIENT_HEALTH || p->client == CLIENT_OPTIONS) {
        buf_text(out, "\r\n");
    } else if (p->client == CLIENT_BODY_TOO_LARGE || p->client == CLIENT_ENDLESS_CHUNKS) {
        plan_too_large(p, out);
    } else if (plan_is_chunked(p)) {
        plan_body(p, false, &body);
        buf_text(out, "Transfer-Encoding: chunked\r\n\r\n");
        *head_n = buf_size(out);
        plan_chunks(p, &body, out);
        buf_free(&body);
        return;
    } else {
        plan_bad_body(p, &body);
        buf_printf(out, "Content-Length: %zu\r\n\r\n", buf_size(&body));
    }
    *head_n = buf_size(out);
    buf_put(out, buf_bytes(&body), buf_size(&body));
    buf_free(&body);
}
