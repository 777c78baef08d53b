/* report: what is said of a request: the queue's lines, its access log line, and the metrics
 * it counts in. */
#ifndef REPORT_H
#define REPORT_H

#include "request.h"

/* One info line about the request's place in the queue, when it has a session and session boost is on, or a
 * user and user fairness. Which of the two it is stands at the line's begin, for operators to look for. */
void report_queue_event(const struct request *r, struct slice boost_event, struct slice fair_event);
#define REPORT_QUEUE(r, what) report_queue_event((r), SLICE("session boost: " what), SLICE("fairness: " what))
/* The request has ended (outcome and times are set): its access log line and its metrics. */
void report_finished(struct request *r);

#endif
