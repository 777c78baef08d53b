/* collect: brings the gauges and the counters that are kept elsewhere up to date, just before the metrics
 * page is rendered. */
#ifndef COLLECT_H
#define COLLECT_H

#include "server.h"

void collect_metrics(struct server *s);

#endif
