/* report: what is said of a request: the queue's "session boost" lines, its access log line, and the metrics
 * it counts in. */
#ifndef REPORT_H
#define REPORT_H

#include "request.h"

/* One info line about the request's place in the queue, when it has a session and session boost is on. event
 * begins with "session boost: ", the words that operators look for. */
void report_queue_event(const struct request *r, const char *event);
/* The request has ended (outcome, times and closed_by are set): its access log line and its metrics. */
void report_finished(struct request *r);

#endif
