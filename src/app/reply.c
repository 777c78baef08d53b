/* Answers of our own: head and body in one write. */
#include "reply.h"

#include "clock.h"
#include "headers.h"

#define REPLY_HEAD_MAX (16 * 1024)

bool reply_send(struct client *c, const struct reply *r)
{
    const bool empty = r->head_only || r->status == 204;
    const enum http1_framing framing = empty ? HTTP1_NO_BODY : HTTP1_SIZED;
    const bool keep = client_may_keep(c, framing);
    const struct headers_own own = {.status = r->status,
                                    .content_type = r->content_type,
                                    .content_length = r->body.n,
                                    .date = clock_http_date(clock_wall_us()),
                                    .request_id = r->request_id,
                                    .client_minor = c->minor,
                                    .keep_alive = keep,
                                    .extra = r->extra};
    struct buf head;
    bool ok;

    client_begin(c, framing, keep);
    buf_init(&head, REPLY_HEAD_MAX);
    ok = headers_own_block(&head, &own) &&
         client_send(c,
                     &(struct client_part){
                         .head = buf_slice(&head), .spans = &r->body, .n_spans = empty ? 0 : 1, .end = true});
    buf_free(&head);
    return ok;
}
