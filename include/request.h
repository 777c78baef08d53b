/* request: the life of one inference request, from its head to its access log line: states, attempts, relay,
 * the one way to end. Owned by itself: it frees itself at the end of the turn in which it ended. */
#ifndef REQUEST_H
#define REQUEST_H

#include "openai.h"
#include "server.h"
#include "usage.h"

enum request_state {
    REQUEST_READ,    /* its body is arriving */
    REQUEST_QUEUED,  /* waits in its model's queue */
    REQUEST_CONNECT, /* has a slot; a connection to the pod is being made */
    REQUEST_SEND,    /* the pod has not taken all of it yet */
    REQUEST_HEAD,    /* waits for the head of the pod's answer */
    REQUEST_STREAM,  /* the answer is on its way to the client: no retry from here */
    REQUEST_DONE,
    REQUEST_STATES
};

/* What is needed only until the answer begins: the place in the queue and the bytes for the pod. A stream may
 * go on for minutes after that, and there are many of them. */
struct request_outgoing {
    struct admit_item admit;
    struct request *request;
    char *line, *fields; /* of its head, see headers_request_block; the line's place differs between pods */
    size_t line_n, fields_n;
    char *place; /* of its body, right behind the fields, so that both go out as one; NULL: the body is a
                    block of its own */
    char *body;
    size_t model_at, model_n;    /* where the model's value stands in the body */
    char *model;                 /* a copy of what goes to the pod instead, or NULL */
    struct prefix_chain *prefix; /* of its prompt, or NULL */
    struct prompt_fields prompt;
    struct openai_edit want_usage; /* no text: the body goes as it came */
    char *boundary;                /* of a multipart form; NULL: the body is JSON */
    const char *unsupported;       /* why such a request is refused, or NULL */
    void **failed;                 /* routes of which it could reach no pod, a reference to each */
    size_t n_failed;
    /* Behind it, in its block: room for what its head has of the pod, HEADERS_POD_MAX bytes, line and fields,
     * and the body if it has its place here. */
};

/* The tokens of a successful answer of a kind that has usage. */
struct request_tokens {
    bool readable; /* not compressed */
    struct usage usage;
    struct usage_hide *hide; /* of an event that the client did not ask for; NULL: none is left out */
    int64_t input, output; /* set at the end; input 0, output -1 = unknown. Until then input is an estimate */
};

/* Small, and in this order, because an open stream keeps it. */
struct request {
    struct loop_grave grave;
    struct server *server;
    struct client *client;          /* NULL once it is gone */
    struct request_outgoing *out;   /* NULL before its head is taken, and when the answer has begun */
    struct topology_route *route;   /* one reference; NULL until the model is known */
    struct pod *pod;                /* one reference and one slot, or NULL */
    struct upstream_conn *upstream; /* while a pod works on it */
    struct request_tokens *tokens;  /* NULL: not counted */

    /* What the client sent. */
    size_t body_n;
    char *model_name; /* that no route has; else NULL */
    char *session;    /* found where the route says, session_n bytes; NULL: the one in text */
    char *user;       /* found in the body, user_n bytes; NULL: the one in text */
    char *cors;       /* fields that let a browser's page read the answer, or NULL */

    /* What came of it. */
    const char *sticky; /* how it went with the session's pod, where the route says so; else NULL */
    const char *why;    /* detail for the log and the error body, or NULL */
    int64_t received_us, body_us, queued_us, admitted_us, sent_us, head_us, first_byte_us,
        end_us;                     /* 0 = not reached */
    struct fairq_run run;           /* with user fairness, while it has a slot */
    struct session_key session_key; /* with session boost */
    uint64_t warm_pod_id;           /* its rank when it left the queue: with `boosted` and `overtaken` */
    unsigned overtaken;
    uint16_t status; /* sent to the client; 0 = none yet */
    uint16_t upstream_status;
    struct openai_sse sse; /* of an event stream */
    unsigned attempts;
    enum request_state state : 8;
    enum request_state closed_in : 8; /* where it was broken off */
    enum outcome outcome : 8;
    uint8_t minor;
    bool head_only; /* HEAD */
    bool boosted;
    bool paused;      /* the client reads too slowly: not reading from the pod */
    bool until_close; /* the pod's answer ends with its connection */
    bool event_stream;
    bool said_all;  /* the answer is complete, or was but for the end of its framing: the session is marked */
    bool connected; /* a pod was reached with this request */
    bool plain;     /* log lines may have id, method, session, user and path as they are (log_is_plain) */

    /* Lengths in text, and where target and path stand; the path mostly inside the target. */
    uint32_t id_n, method_n, session_n, user_n, target_at, target_n, path_at, path_n;
    char text[]; /* id, method, session, user, target */
};

static inline struct slice request_id(const struct request *r)
{
    return (struct slice){r->text, r->id_n};
}
/* Empty, as are the next two, when no request line came. */
static inline struct slice request_method(const struct request *r)
{
    return (struct slice){r->text + r->id_n, r->method_n};
}
static inline struct slice request_target(const struct request *r)
{
    return (struct slice){r->text + r->target_at, r->target_n};
}
/* headers_path of it. */
static inline struct slice request_path(const struct request *r)
{
    return (struct slice){r->text + r->path_at, r->path_n};
}
/* Empty: of no session. */
static inline struct slice request_session(const struct request *r)
{
    return (struct slice){r->session != NULL ? r->session : r->text + r->id_n + r->method_n, r->session_n};
}
/* With user fairness; empty: anonymous. */
static inline struct slice request_user(const struct request *r)
{
    return (struct slice){r->user != NULL ? r->user : r->text + r->target_at - r->user_n, r->user_n};
}
/* One of these for a log line; not empty. */
static inline struct log_known request_known(const struct request *r, struct slice part)
{
    return (struct log_known){part, r->plain};
}
static inline struct request *request_of(const struct boostq_item *item)
{
    return CONTAINER_OF(item, const struct request_outgoing, admit.queue)->request;
}

/* client_ops of the inference listener use these. */

/* A request of the client, known as far as c->head was read; copies what is needed of it. */
struct request *request_new(struct server *s, struct client *c);
/* Keeps the part of c->head that is for the pods. False: refused and over. */
MUST_CHECK bool request_take_head(struct request *r);
/* The whole body is there: find the model and queue. */
void request_ready(struct request *r);
/* The client closed, reset, or stalled. It must not be touched any more. */
void request_client_gone(struct request *r, enum client_loss loss);
/* The client took everything that waited. */
void request_client_drained(struct request *r);
/* The only way to end, from any state; later calls do nothing. why: static text or NULL. */
void request_finish(struct request *r, enum outcome o, const char *why);

/* For sched. */
extern const struct sched_ops request_sched_ops;
/* boostq's on_promoted. */
void request_promoted(struct boostq_item *item, void *arg);
const char *request_state_name(enum request_state s);
/* What went wrong, in words; the outcome's own text when there is nothing more to say. */
const char *request_message(const struct request *r);
/* The lines that an answer of our own has besides: these and what pages in browsers need; to be freed. */
char *request_own_fields(const struct request *r, const char *more);

#endif
