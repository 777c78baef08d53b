/* The OpenAI endpoints of the simulated pod, its small GET endpoints, and the faults that hit them. Owns
 * the calls in progress: one for each request that is not answered within the callback that read it. */
#include "sim.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RENDER_BYTES    65536 /* text is made when this little is unwritten: a slow reader costs no memory */
#define ROUNDS_PER_TURN 8
#define MAX_TOKENS      1000000
#define EMBEDDING_SIZE  8

enum call_kind { CALL_CHAT, CALL_COMPLETION, CALL_EMBEDDING, CALL_OTHER };

struct api_call {
    struct http_conn *conn;
    enum call_kind kind;
    bool stream, include_usage, base64;
    struct engine_seq seq;
    struct loop_timer timer;
    void (*then)(struct api_call *call); /* what follows the delay of a fault */
    struct fault fault;
    int64_t log;       /* number of the log entry, -1 = none */
    int status;        /* not 0: the answer is known already */
    struct buf answer; /* its body */
    struct buf prefix; /* of every event that carries text */
    int64_t sent;      /* tokens given to the connection */
    bool first_sent;
    int64_t n_inputs;
    const char *model;
    int64_t created;
    char id[64];
};

static int64_t next_id;

static void call_pump(struct api_call *call);

/* ---- life of a call ---- */

static void call_delay_over(struct loop_timer *timer)
{
    struct api_call *call = timer->owner;
    call->then(call);
}

static struct api_call *call_new(struct http_conn *conn, struct fault fault)
{
    struct api_call *call = util_alloc(sizeof(*call));
    call->conn = conn;
    call->fault = fault;
    call->log = -1;
    call->timer = (struct loop_timer){.fire = call_delay_over, .owner = call};
    call->kind = CALL_OTHER;
    http_set_call(conn, call);
    return call;
}

static void call_end(struct api_call *call, const char *outcome)
{
    control_log_outcome(call->log, outcome);
    http_set_call(call->conn, NULL);
    loop_disarm(&call->timer);
    engine_release(&call->seq);
    buf_free(&call->answer);
    buf_free(&call->prefix);
    loop_free_later(call);
}

static void call_end_normally(struct api_call *call)
{
    call_end(call, call->fault.kind ? config_fault_name(call->fault.kind) : "finished");
}

void api_gone(struct http_conn *conn)
{
    struct api_call *call = http_call(conn);
    bool ours = call->fault.kind == FAULT_RESET_MID || call->fault.kind == FAULT_FIN_MID;
    call_end(call, ours ? config_fault_name(call->fault.kind) : "aborted");
}

void api_drained(struct http_conn *conn)
{
    call_pump(http_call(conn));
}

/* Last use of call by the caller. */
static void call_later(struct api_call *call, void (*then)(struct api_call *call))
{
    call->then = then;
    if (call->fault.delay_us == 0)
        then(call);
    else
        loop_arm(&call->timer, util_now_us() + call->fault.delay_us);
}

/* ---- errors ---- */

static void call_fail(struct api_call *call, int status, const char *type, const char *param,
                      const char *text)
{
    buf_clear(&call->answer);
    buf_text(&call->answer, "{\"error\":{\"message\":");
    buf_json(&call->answer, text, strlen(text));
    buf_printf(&call->answer, ",\"type\":\"%s\",\"param\":", type);
    if (param)
        buf_json(&call->answer, param, strlen(param));
    else
        buf_text(&call->answer, "null");
    buf_printf(&call->answer, ",\"code\":%d}}", status);
    call->status = status;
}

static void call_fail_input(struct api_call *call, const char *text)
{
    call_fail(call, 400, "BadRequestError", NULL, text);
}

static void reply_text(struct http_conn *conn, int status, const char *type, const char *text)
{
    struct buf body = {0};
    buf_text(&body, text);
    http_reply(conn, status, type, &body);
}

/* ---- reading a request ---- */

/* The last of several equal keys counts, as in the JSON readers of real engines. */
static const cJSON *json_get(const cJSON *object, const char *name)
{
    const cJSON *found = NULL, *item;
    cJSON_ArrayForEach(item, (cJSON_IsObject(object) ? object : NULL))
    {
        if (strcmp(item->string, name) == 0)
            found = item;
    }
    return found && !cJSON_IsNull(found) ? found : NULL;
}

static void prompt_text(struct api_call *call, const char *text)
{
    engine_prompt(&call->seq, text, strlen(text));
}

static void prompt_json(struct api_call *call, const cJSON *item)
{
    char *text = item ? cJSON_PrintUnformatted(item) : NULL;
    if (text)
        prompt_text(call, text);
    cJSON_free(text);
}

static void prompt_message(struct api_call *call, const cJSON *message)
{
    const cJSON *role = json_get(message, "role"), *content = json_get(message, "content"), *part;
    prompt_text(call, "<|");
    prompt_text(call, cJSON_IsString(role) ? role->valuestring : "user");
    prompt_text(call, "|>");
    if (cJSON_IsString(content))
        prompt_text(call, content->valuestring);
    cJSON_ArrayForEach(part, (cJSON_IsArray(content) ? content : NULL))
    {
        const cJSON *text = json_get(part, "text");
        if (cJSON_IsString(text))
            prompt_text(call, text->valuestring);
        else
            prompt_json(call, part);
    }
    prompt_json(call, json_get(message, "tool_calls"));
    prompt_text(call, "\n");
}

static void read_messages(struct api_call *call, const cJSON *body)
{
    const cJSON *messages = json_get(body, "messages"), *message;
    if (!cJSON_IsArray(messages) || !messages->child) {
        call_fail_input(call, "messages: expected a list with at least one message");
        return;
    }
    cJSON_ArrayForEach(message, messages)
    {
        if (!cJSON_IsObject(message)) {
            call_fail_input(call, "messages: every message must be an object");
            return;
        }
        prompt_message(call, message);
    }
    prompt_text(call, "<|assistant|>");
}

/* `prompt` and `input`: a text, a list of texts or a list of token numbers. */
static void read_prompt(struct api_call *call, const cJSON *body, const char *name)
{
    const cJSON *prompt = json_get(body, name), *item;
    call->n_inputs = 1;
    if (cJSON_IsString(prompt)) {
        prompt_text(call, prompt->valuestring);
        return;
    }
    if (!cJSON_IsArray(prompt) || !prompt->child) {
        call_fail_input(call, "prompt: expected a text or a list");
        return;
    }
    if (cJSON_IsString(prompt->child) || cJSON_IsArray(prompt->child))
        call->n_inputs = cJSON_GetArraySize(prompt);
    cJSON_ArrayForEach(item, prompt)
    {
        char token[SIM_TOKEN_BYTES + 8];
        snprintf(token, sizeof(token), "%04x", (unsigned)item->valueint & 0xffff);
        if (cJSON_IsString(item))
            prompt_text(call, item->valuestring);
        else if (cJSON_IsNumber(item))
            prompt_text(call, token);
        else
            prompt_json(call, item);
    }
}

static void read_max_tokens(struct api_call *call, const cJSON *body)
{
    const cJSON *given = json_get(body, "max_completion_tokens");
    if (!given)
        given = json_get(body, "max_tokens");
    call->seq.max_tokens = cfg.max_tokens_default;
    call->seq.length_limited = given != NULL;
    if (!given)
        return;
    if (!cJSON_IsNumber(given) || !(given->valuedouble >= 1 && given->valuedouble <= MAX_TOKENS))
        call_fail_input(call, "max_tokens must be a number from 1 to 1000000");
    else
        call->seq.max_tokens = (int64_t)given->valuedouble;
}

static void read_model(struct api_call *call, const cJSON *body)
{
    const cJSON *model = json_get(body, "model");
    const char *wanted = cJSON_IsString(model) ? model->valuestring : NULL;
    call->model = wanted ? NULL : cfg.models[0];
    for (size_t i = 0; wanted && i < cfg.n_models; i++)
        if (strcmp(wanted, cfg.models[i]) == 0)
            call->model = cfg.models[i];
    if (model && !wanted)
        call_fail_input(call, "model: expected a text");
    if (call->model)
        return;
    struct buf text = {0};
    buf_printf(&text, "The model `%s` does not exist.", wanted);
    buf_put(&text, "", 1);
    call_fail(call, 404, "NotFoundError", "model", buf_bytes(&text));
    buf_free(&text);
}

static void make_prefix(struct api_call *call)
{
    struct buf *p = &call->prefix;
    buf_printf(p, "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", call->id,
               call->kind == CALL_CHAT ? "chat.completion.chunk" : "text_completion",
               (long long)call->created);
    buf_json(p, call->model, strlen(call->model));
    buf_text(p, ",\"choices\":[");
}

static void read_options(struct api_call *call, const cJSON *body)
{
    const cJSON *format = json_get(body, "encoding_format");
    call->stream = call->kind != CALL_EMBEDDING && cJSON_IsTrue(json_get(body, "stream"));
    call->include_usage = cJSON_IsTrue(json_get(json_get(body, "stream_options"), "include_usage"));
    call->base64 = cJSON_IsString(format) && strcmp(format->valuestring, "base64") == 0;
    if (call->kind == CALL_EMBEDDING)
        call->seq.max_tokens = 0;
    else
        read_max_tokens(call, body);
}

static void make_id(struct api_call *call)
{
    static const char *const names[] = {"chatcmpl", "cmpl", "embd"};
    uint64_t n = util_mix((uint64_t)cfg.port << 32 | (uint64_t)next_id);
    call->created = (int64_t)util_unix_time();
    snprintf(call->id, sizeof(call->id), "%s-%016llx%016llx", names[call->kind], (unsigned long long)n,
             (unsigned long long)util_mix(n + (uint64_t)next_id));
    next_id++;
}

static void read_inference(struct api_call *call, const struct http_request *request)
{
    const char *end = request->body;
    cJSON *body = cJSON_ParseWithLengthOpts(request->body, request->body_len, &end, false);
    while (body && end < request->body + request->body_len && strchr(" \t\r\n", *end) && *end)
        end++;
    if (!cJSON_IsObject(body) || end != request->body + request->body_len)
        call_fail_input(call, "The body is not a JSON object.");
    if (!call->status)
        read_model(call, body);
    if (!call->status)
        read_options(call, body);
    if (!call->status) {
        call->seq.chain = util_fnv1a(call->model, strlen(call->model));
        if (call->kind == CALL_CHAT)
            read_messages(call, body);
        else
            read_prompt(call, body, call->kind == CALL_COMPLETION ? "prompt" : "input");
        make_id(call);
        make_prefix(call);
    }
    cJSON_Delete(body);
}

/* ---- what answers carry ---- */

static void put_sim(struct buf *out, struct api_call *call)
{
    const struct log_entry *entry = control_log_entry(call->log);
    const char *session = entry ? entry->session : "";
    char port[24];
    snprintf(port, sizeof(port), "%lld", (long long)cfg.port);
    const char *pod = cfg.name ? cfg.name : port;
    buf_text(out, ",\"sim\":{\"pod\":");
    buf_json(out, pod, strlen(pod));
    buf_printf(out, ",\"prompt_tokens\":%lld,\"cached_tokens\":%lld,\"seq\":%lld,\"session\":",
               (long long)call->seq.prompt_tokens, (long long)call->seq.cached_tokens,
               (long long)call->seq.start_seq);
    buf_json(out, session, strlen(session));
    buf_text(out, "}");
}

static void put_usage(struct buf *out, const struct api_call *call)
{
    buf_printf(out, "\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld,\"completion_tokens\":%lld,",
               (long long)call->seq.prompt_tokens, (long long)(call->seq.prompt_tokens + call->seq.generated),
               (long long)call->seq.generated);
    buf_printf(out, "\"prompt_tokens_details\":{\"cached_tokens\":%lld}}",
               (long long)call->seq.cached_tokens);
}

static const char *finish_reason(const struct api_call *call)
{
    return call->seq.length_limited ? "length" : "stop";
}

static void put_token(struct buf *out, const struct api_call *call, int64_t index)
{
    size_t len = (size_t)call->seq.token_bytes;
    char small[64];
    char *text = len <= sizeof(small) ? small : util_alloc(len);
    util_token_text(call->seq.answer_seed, index, text, len);
    buf_put(out, text, len);
    if (text != small)
        free(text);
}

static void note_start(const struct api_call *call)
{
    struct log_entry *entry = control_log_entry(call->log);
    if (!entry)
        return;
    entry->start_seq = call->seq.start_seq;
    entry->prompt_tokens = call->seq.prompt_tokens;
    entry->cached_tokens = call->seq.cached_tokens;
}

/* ---- streams ---- */

static void send_event(struct api_call *call, struct buf *event)
{
    http_body(call->conn, buf_bytes(event), buf_size(event));
    buf_clear(event);
}

static void send_first_event(struct api_call *call, struct buf *event)
{
    call->first_sent = true;
    note_start(call);
    if (call->kind == CALL_CHAT) {
        buf_put(event, buf_bytes(&call->prefix), buf_size(&call->prefix));
        buf_text(event, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                        "\"finish_reason\":null}]");
        put_sim(event, call);
        buf_text(event, "}\n\n");
        send_event(call, event);
    }
    buf_text(&call->prefix,
             call->kind == CALL_CHAT ? "{\"index\":0,\"delta\":{\"content\":\"" : "{\"index\":0,\"text\":\"");
}

static void send_token(struct api_call *call, struct buf *event)
{
    buf_put(event, buf_bytes(&call->prefix), buf_size(&call->prefix));
    put_token(event, call, call->sent);
    buf_text(event, call->kind == CALL_CHAT ? "\"},\"logprobs\":null," : "\",\"logprobs\":null,");
    if (call->sent + 1 == call->seq.max_tokens)
        buf_printf(event, "\"finish_reason\":\"%s\",\"stop_reason\":null}]", finish_reason(call));
    else
        buf_text(event, "\"finish_reason\":null}]");
    if (call->sent == 0 && call->kind == CALL_COMPLETION)
        put_sim(event, call);
    buf_text(event, "}\n\n");
    send_event(call, event);
    call->sent++;
}

/* Ends the text of the stream at the token the fault names (1 if it names nothing). */
static void cut_stream(struct api_call *call)
{
    const struct fault *fault = &call->fault;
    int64_t at = fault->after_tokens < 0 && fault->after_bytes < 0 ? 1 : fault->after_tokens;
    bool mid = fault->kind == FAULT_RESET_MID || fault->kind == FAULT_FIN_MID;
    if (mid && call->sent == at)
        http_cut(call->conn, 0, fault->kind == FAULT_RESET_MID, fault->delay_us);
}

static void finish_stream(struct api_call *call, struct buf *event)
{
    struct http_conn *conn = call->conn;
    if (call->include_usage) {
        buf_printf(event, "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", call->id,
                   call->kind == CALL_CHAT ? "chat.completion.chunk" : "text_completion",
                   (long long)call->created);
        buf_json(event, call->model, strlen(call->model));
        buf_text(event, ",\"choices\":[],");
        put_usage(event, call);
        buf_text(event, "}\n\n");
        send_event(call, event);
    }
    buf_text(event, "data: [DONE]\n\n");
    send_event(call, event);
    call_end_normally(call);
    http_done(conn);
}

/* Text for one buffer. False: the stream ended, and the call with it. */
static bool fill_stream(struct api_call *call)
{
    struct buf event = {0};
    if (!call->first_sent)
        send_first_event(call, &event);
    while (call->sent < call->seq.generated && http_pending(call->conn) < RENDER_BYTES) {
        send_token(call, &event);
        cut_stream(call);
    }
    bool over = call->seq.state == SEQ_DONE && call->sent == call->seq.generated;
    if (over)
        finish_stream(call, &event);
    buf_free(&event);
    return !over;
}

/* Until the connection takes no more or there is no more; a fast reader gives way to others now and then. */
static void pump_stream(struct api_call *call)
{
    struct http_conn *conn = call->conn;
    for (int round = 0; round < ROUNDS_PER_TURN; round++) {
        if (!fill_stream(call))
            return;
        http_flush(conn);
        if (http_call(conn) != call || http_pending(conn) > 0 || call->sent == call->seq.generated)
            return;
    }
    call->then = call_pump;
    loop_arm(&call->timer, util_now_us());
}

/* ---- whole answers ---- */

static void put_base64(struct buf *out, const unsigned char *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        unsigned bits = (unsigned)data[i] << 16 | (i + 1 < len ? (unsigned)data[i + 1] << 8 : 0) |
                        (i + 2 < len ? data[i + 2] : 0U);
        char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                        i + 1 < len ? digits[bits >> 6 & 63] : '=', i + 2 < len ? digits[bits & 63] : '='};
        buf_put(out, four, 4);
    }
}

static void put_vector(struct buf *out, const struct api_call *call, int64_t index)
{
    float vector[EMBEDDING_SIZE];
    for (size_t i = 0; i < EMBEDDING_SIZE; i++) {
        uint64_t bits = util_mix(call->seq.answer_seed + (uint64_t)index * EMBEDDING_SIZE + i);
        vector[i] = (float)(bits & 0xffff) / 65536.0F - 0.5F;
    }
    buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%lld,\"embedding\":", index ? "," : "",
               (long long)index);
    if (call->base64) {
        unsigned char bytes[sizeof(vector)];
        memcpy(bytes, vector, sizeof(vector));
        buf_text(out, "\"");
        put_base64(out, bytes, sizeof(bytes));
        buf_text(out, "\"}");
        return;
    }
    for (size_t i = 0; i < EMBEDDING_SIZE; i++)
        buf_printf(out, "%s%.8g", i ? "," : "[", (double)vector[i]);
    buf_text(out, "]}");
}

static void put_embeddings(struct buf *out, const struct api_call *call)
{
    buf_text(out, "\"object\":\"list\",\"data\":[");
    for (int64_t i = 0; i < call->n_inputs; i++)
        put_vector(out, call, i);
    buf_text(out, "],");
}

static void put_choice(struct buf *out, const struct api_call *call)
{
    bool chat = call->kind == CALL_CHAT;
    buf_printf(out, "\"object\":\"%s\",\"choices\":[{\"index\":0,%s\"",
               chat ? "chat.completion" : "text_completion",
               chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    for (int64_t i = 0; i < call->seq.generated; i++)
        put_token(out, call, i);
    buf_printf(out, "\"%s,\"logprobs\":null,\"finish_reason\":\"%s\",\"stop_reason\":null}],",
               chat ? ",\"tool_calls\":[]}" : "", finish_reason(call));
}

static void make_answer(struct api_call *call)
{
    struct buf *out = &call->answer;
    buf_printf(out, "{\"id\":\"%s\",\"created\":%lld,\"model\":", call->id, (long long)call->created);
    buf_json(out, call->model, strlen(call->model));
    buf_text(out, ",");
    if (call->kind == CALL_EMBEDDING)
        put_embeddings(out, call);
    else
        put_choice(out, call);
    put_usage(out, call);
    put_sim(out, call);
    buf_text(out, "}");
    call->status = 200;
}

static void cut_by_bytes(struct api_call *call)
{
    const struct fault *fault = &call->fault;
    if ((fault->kind == FAULT_RESET_MID || fault->kind == FAULT_FIN_MID) && fault->after_bytes >= 0)
        http_cut(call->conn, fault->after_bytes, fault->kind == FAULT_RESET_MID, fault->delay_us);
}

/* Sends the answer that is complete in memory. */
static void send_answer(struct api_call *call)
{
    struct http_conn *conn = call->conn;
    struct fault fault = call->fault;
    struct buf body = call->answer;
    struct log_entry *entry = control_log_entry(call->log);
    if (entry)
        entry->status = call->status;
    cut_by_bytes(call);
    http_head(conn, call->status, "application/json", (int64_t)buf_size(&body));
    if ((fault.kind == FAULT_RESET_MID || fault.kind == FAULT_FIN_MID) && fault.after_bytes < 0)
        http_cut(conn, (int64_t)buf_size(&body) / 2, fault.kind == FAULT_RESET_MID, fault.delay_us);
    call->answer = (struct buf){0};
    call_end_normally(call);
    http_body(conn, buf_bytes(&body), buf_size(&body));
    buf_free(&body);
    http_done(conn);
}

static void call_pump(struct api_call *call)
{
    if (call->seq.state != SEQ_DECODE && call->seq.state != SEQ_DONE)
        return;
    if (call->stream) {
        pump_stream(call);
    } else if (call->seq.state == SEQ_DONE) {
        note_start(call);
        make_answer(call);
        send_answer(call);
    }
}

static void seq_progress(struct engine_seq *seq)
{
    call_pump(seq->owner);
}

/* ---- from request to engine ---- */

static void call_start(struct api_call *call)
{
    struct http_conn *conn = call->conn;
    struct log_entry *entry = control_log_entry(call->log);
    if (call->fault.kind == FAULT_CLOSE_IDLE)
        http_close_when_idle(conn, call->fault.delay_us);
    if (call->status) {
        send_answer(call);
        return;
    }
    call->seq.owner = call;
    call->seq.progress = seq_progress;
    if (call->stream) { /* the head goes out at once, as from a real server; text follows when it exists */
        if (entry)
            entry->status = 200;
        cut_by_bytes(call);
        http_head(conn, 200, "text/event-stream; charset=utf-8", -1);
        cut_stream(call);
        http_flush(conn);
        if (http_call(conn) != call)
            return;
    }
    engine_submit(&call->seq);
}

static void list_models(struct api_call *call)
{
    struct buf *out = &call->answer;
    buf_text(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < cfg.n_models; i++) {
        buf_text(out, i ? ",{\"id\":" : "{\"id\":");
        buf_json(out, cfg.models[i], strlen(cfg.models[i]));
        buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"%s\",\"root\":",
                   (long long)util_unix_time(), cfg.engine == ENGINE_VLLM ? "vllm" : "sglang");
        buf_json(out, cfg.models[i], strlen(cfg.models[i]));
        buf_text(out, ",\"parent\":null,\"max_model_len\":131072,\"permission\":[]}");
    }
    buf_text(out, "]}");
    call->status = 200;
}

/* vLLM's answers to the two calls that load and unload an adapter while the server runs. */
static void answer_lora(struct api_call *call, const char *name, bool load, size_t at)
{
    bool known = at < cfg.n_models;
    struct buf text = {0};
    if (load == known || (load && cfg.n_models == SIM_MODELS_MAX)) {
        buf_printf(&text, "The lora adapter '%s' %s.", name,
                   known  ? "has already been loaded"
                   : load ? "is one too many"
                          : "cannot be found");
        buf_put(&text, "", 1);
        call_fail(call, load ? 400 : 404, load ? "InvalidUserInput" : "NotFoundError", NULL,
                  buf_bytes(&text));
        buf_free(&text);
        return;
    }
    if (load)
        cfg.models[cfg.n_models++] = util_intern(name);
    else
        memmove(&cfg.models[at], &cfg.models[at + 1], (--cfg.n_models - at) * sizeof(cfg.models[0]));
    buf_printf(&call->answer, "Success: LoRA adapter '%s' %s successfully.", name,
               load ? "added" : "removed");
    call->status = 200;
}

static void change_lora(struct api_call *call, const struct http_request *request, bool load)
{
    cJSON *body = cJSON_ParseWithLength(request->body, request->body_len);
    const cJSON *name = json_get(body, "lora_name");
    size_t at = 1; /* the first model is no adapter */
    if (!cJSON_IsString(name) || (load && !cJSON_IsString(json_get(body, "lora_path")))) {
        call_fail_input(call, load ? "Both 'lora_name' and 'lora_path' must be provided."
                                   : "'lora_name' must be provided.");
    } else {
        while (at < cfg.n_models && strcmp(cfg.models[at], name->valuestring) != 0)
            at++;
        answer_lora(call, name->valuestring, load, at);
    }
    cJSON_Delete(body);
}

static void call_route(struct api_call *call, const struct http_request *request, const char *path)
{
    static const char *const paths[] = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings"};
    bool models = strcmp(path, "/v1/models") == 0, load = strcmp(path, "/v1/load_lora_adapter") == 0;
    bool lora = load || strcmp(path, "/v1/unload_lora_adapter") == 0;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (strcmp(path, paths[i]) == 0)
            call->kind = (enum call_kind)i;
    if (call->kind == CALL_OTHER && !models && !lora) {
        call->status = 404;
        buf_text(&call->answer, "{\"detail\":\"Not Found\"}");
    } else if (strcmp(request->method, models ? "GET" : "POST") != 0) {
        call->status = 405;
        buf_text(&call->answer, "{\"detail\":\"Method Not Allowed\"}");
    } else if (models)
        list_models(call);
    else if (lora)
        change_lora(call, request, load);
    else
        read_inference(call, request);
}

/* ---- faults instead of an answer ---- */

static void fault_kill(struct api_call *call)
{
    struct http_conn *conn = call->conn;
    bool reset = call->fault.kind != FAULT_FIN_BEFORE;
    call_end_normally(call);
    http_kill(conn, reset);
}

static void fault_status(struct api_call *call)
{
    call_fail(call, (int)call->fault.status, "InternalServerError", NULL, "simulated fault");
    send_answer(call);
}

static void fault_garbage(struct api_call *call)
{
    static const char junk[] = "\x16\x03\x01 this is not HTTP\r\n\r\n";
    struct http_conn *conn = call->conn;
    const char *raw = call->fault.raw;
    bool keep_open = call->fault.keep_open;
    call_end_normally(call);
    http_raw(conn, raw ? raw : junk, raw ? strlen(raw) : sizeof(junk) - 1, keep_open);
}

/* True when the fault replaces the answer. */
static bool call_break(struct api_call *call)
{
    switch (call->fault.kind) {
    case FAULT_HANG:
        return true;
    case FAULT_RESET_BEFORE:
    case FAULT_FIN_BEFORE:
        call_later(call, fault_kill);
        return true;
    case FAULT_STATUS:
        call_later(call, fault_status);
        return true;
    case FAULT_GARBAGE:
        call_later(call, fault_garbage);
        return true;
    default:
        return false;
    }
}

static void v1_request(struct http_conn *conn, const struct http_request *request, const char *path)
{
    struct fault none = {0};
    bool hit = cfg.fault.kind != FAULT_NONE && cfg.fault.kind != FAULT_REFUSE;
    struct api_call *call = call_new(conn, hit ? config_take_fault(&cfg.fault) : none);
    call->log = control_log(conn, request);
    if (call_break(call))
        return;
    call_route(call, request, path);
    if (call->fault.kind == FAULT_SLOW_HEAD)
        call_later(call, call_start);
    else
        call_start(call);
}

/* ---- /metrics and small endpoints ---- */

static void metrics_answer(struct api_call *call)
{
    struct http_conn *conn = call->conn;
    struct buf body = {0};
    struct fault fault = call->fault;
    call_end(call, "");
    if (fault.kind == METRICS_FAULT_RESET) {
        http_kill(conn, true);
    } else if (fault.kind == METRICS_FAULT_STATUS) {
        reply_text(conn, (int)fault.status, "text/plain; charset=utf-8", "simulated fault");
    } else if (fault.kind == METRICS_FAULT_GARBAGE) {
        reply_text(conn, 200, "text/plain; charset=utf-8", "{{{ \x01\x7f = 12 } not metrics\n\n,,\"");
    } else {
        metrics_render(&body);
        http_reply(conn, 200, "text/plain; version=1.0.0; charset=utf-8", &body);
    }
}

static void metrics_request(struct http_conn *conn)
{
    struct fault none = {0};
    bool shape =
        cfg.metrics_fault.kind == METRICS_FAULT_NAN || cfg.metrics_fault.kind == METRICS_FAULT_MISSING;
    struct api_call *call = call_new(conn, shape ? none : config_take_fault(&cfg.metrics_fault));
    control_scrapes++;
    if (call->fault.kind != METRICS_FAULT_HANG)
        call_later(call, metrics_answer);
}

void api_request(struct http_conn *conn, const struct http_request *request)
{
    char path[sizeof(request->target)];
    bool get = strcmp(request->method, "GET") == 0;
    snprintf(path, sizeof(path), "%.*s", (int)strcspn(request->target, "?"), request->target);
    if (control_request(conn, request))
        return;
    if (strncmp(path, "/v1/", 4) == 0 && !http_is_control(conn))
        v1_request(conn, request, path);
    else if (get && strcmp(path, "/metrics") == 0 && !http_is_control(conn))
        metrics_request(conn);
    else if (get && strcmp(path, "/health") == 0 && !http_is_control(conn))
        reply_text(conn, 200, "text/plain; charset=utf-8", "");
    else if (get && strcmp(path, "/version") == 0 && !http_is_control(conn))
        reply_text(conn, 200, "application/json", "{\"version\":\"" SIM_VERSION "-sim\"}");
    else
        reply_text(conn, 404, "application/json", "{\"detail\":\"Not Found\"}");
}
